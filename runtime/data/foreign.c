/* Files that are not what a format would make of them. A known magic number contradicts every
   format but `bytes`, whoever chose it. A format that was guessed from the name, or because nothing
   else fits, is held against the content: text read as numbers, numbers read as text, wide numbers
   read as narrow ones. Looks at the first kilobytes only. Must not: allocate. */
#include "formats.h"
#include "runtime/base/json.h"
#include <string.h>

enum { SEEN = 1 << 16 }; /* bytes of a file that are looked at */

static bool stands_at(Bytes file, int64_t at, const char *magic, int64_t n) {
  return file.n >= at + n && !memcmp(file.at + at, magic, (size_t)n);
}

static bool refuse(Fault *f, const char *name, const char *cure) {
  rt_fault(f, 202, "this is a file of format %s, which is not read", name);
  rt_help(f, "%s; `format = bytes` insists on its bytes as they are", cure);
  return rt_at(f, "", "byte", 0);
}

bool rt_not_foreign(Bytes file, const char *format, Fault *f) {
  static const struct {
    const char *name, *cure, *magic[2];
    int64_t at[2], n[2];
  } rows[] = {
#define FOREIGN(name, at, magic, at2, magic2, cure)                                                \
  {name, cure, {magic, magic2}, {at, at2}, {sizeof magic - 1, sizeof magic2 - 1}},
#define FOREIGN_END(end, name, cure)
#include "foreign.def"
#undef FOREIGN
#undef FOREIGN_END
  };
  if (format && !strcmp(format, "bytes")) return true;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (stands_at(file, rows[i].at[0], rows[i].magic[0], rows[i].n[0]) &&
        stands_at(file, rows[i].at[1], rows[i].magic[1], rows[i].n[1]))
      return refuse(f, rows[i].name, rows[i].cure);
  return true;
}

/* ---- what was guessed ---- */

static int64_t seen(Bytes file) { return file.n < SEEN ? file.n : SEEN; }

/* The first value is an object with a key, or a list of such. */
static bool is_json(Bytes file) {
  int64_t mark = stands_at(file, 0, "\xef\xbb\xbf", 3) ? 3 : 0; /* of UTF-8 */
  Json json = rt_json(file.at + mark, seen(file) - mark);
  if (rt_json_peek(&json) == '[' && !(rt_json_array(&json) && rt_json_element(&json))) return false;
  return rt_json_peek(&json) == '{' && rt_json_object(&json) && rt_json_member(&json, NULL, 0);
}

static bool known_end(const char *name, Fault *f) {
  static const struct {
    const char *end, *name, *cure;
  } rows[] = {
#define FOREIGN(name, at, magic, at2, magic2, cure)
#define FOREIGN_END(end, name, cure) {end, name, cure},
#include "foreign.def"
#undef FOREIGN
#undef FOREIGN_END
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rt_text_ends(name, rows[i].end)) return refuse(f, rows[i].name, rows[i].cure), true;
  return false;
}

/* Does every character take `width` bytes, of which only the one at `place` is not 0? */
static bool is_wide(Bytes file, int width, int place) {
  enum { MOST = 256, LEAST = 16 };
  int64_t n = file.n < MOST ? file.n - file.n % width : MOST;
  for (int64_t i = 0; i < n; i++) {
    uint8_t c = file.at[i];
    bool letter = (c >= ' ' && c < 0x7f) || (c && strchr("\t\n\r", c));
    if (i % width == place ? !letter : c) return false;
  }
  return n >= LEAST;
}

/* Text whose characters take 2 or 4 bytes: by its mark, or by letters of ASCII among zeros. */
static bool wide_text(Bytes file, Fault *f) {
  static const struct {
    const char *mark, *name, *cure;
    int n, width, place;
  } rows[] = {
#define WIDE(mark, name, width, place)                                                             \
  {mark, name, "`iconv -f " name " -t UTF-8` converts it", sizeof mark - 1, width, place}
      WIDE("\xff\xfe\0\0", "UTF-32LE", 4, 0),
      WIDE("\0\0\xfe\xff", "UTF-32BE", 4, 3),
      WIDE("\xff\xfe", "UTF-16LE", 2, 0),
      WIDE("\xfe\xff", "UTF-16BE", 2, 1),
#undef WIDE
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (stands_at(file, 0, rows[i].mark, rows[i].n) || is_wide(file, rows[i].width, rows[i].place))
      return refuse(f, rows[i].name, rows[i].cure), true;
  return false;
}

bool rt_text_holds(Bytes file, const char *name, Fault *f) {
  if (known_end(name, f) || wide_text(file, f)) return false;
  if (is_json(file))
    return refuse(f, "JSON",
                  "`shardc data tokenize` makes tokens of lines of JSON with `text`, `messages`, "
                  "or `prompt` and `completion`");
  const uint8_t *zero = memchr(file.at, 0, (size_t)seen(file));
  if (!zero) return true;
  rt_fault(f, 202, "neither text, which has no zero bytes, nor of a format that is recognised");
  rt_help(f, "`format = u16`, u32, f32 reads numbers; `format = bytes` insists on its bytes");
  return rt_at(f, "", "byte", zero - file.at);
}

/* Letters, digits, punctuation, lines: bytes of numbers are hardly ever all of these. */
static bool is_text(Bytes file) {
  enum { LEAST = 64, MOST = 4096 };
  for (int64_t i = 0; i < file.n && i < MOST; i++)
    if (file.at[i] < ' ' ? !strchr("\t\n\r", file.at[i]) || !file.at[i] : file.at[i] == 0x7f)
      return false;
  return file.n >= LEAST;
}

/* Are numbers at `phase` of every `period` 0, and not all others? */
static bool always_zero(const Array *array, int64_t period, int64_t phase) {
  enum { MOST = 8192, LEAST = 16 };
  bool other = false;
  int64_t n = array->count < MOST ? array->count : MOST;
  for (int64_t i = 0; i < n; i++) {
    bool zero = rt_array_int(array, i) == 0;
    if (i % period == phase && !zero) return false;
    other |= !zero;
  }
  return n >= LEAST && other;
}

static bool guessed_numbers(Bytes file, const Array *array, Fault *f) {
  int wide = 8 * array->width;
  if (is_text(file)) {
    rt_fault(f, 202, "this is text, which the name of the file would make numbers of %d bits",
             wide);
    rt_help(f, "`format = bytes` makes every byte a token, `shardc data tokenize` words");
    return rt_at(f, "", "byte", 0);
  }
  if (array->kind == NUMBER_FLOAT || !(always_zero(array, 2, 1) || always_zero(array, 2, 0)))
    return true;
  rt_fault(f, 202, "every second number of %d bits is 0: the numbers are wider", wide);
  if (array->width == 4 || always_zero(array, 4, 2) || !always_zero(array, 2, 1))
    rt_help(f, "write it with `numpy.save`, which says its type; `format = u%d` insists", wide);
  else rt_help(f, "`format = u32` reads it as numbers of 32 bits; `format = u16` insists");
  return rt_at(f, "", "byte", 0);
}

bool rt_guess_holds(Bytes file, const char *name, const Array *array, Fault *f) {
  return array->kind == NUMBER_UINT && array->width == 1 ? rt_text_holds(file, name, f)
                                                         : guessed_numbers(file, array, f);
}
