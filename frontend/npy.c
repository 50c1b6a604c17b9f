/* The format of NumPy, versions 1 to 3 (numpy.lib.format): a magic word, the length of a header, a
   Python dict with the keys descr, fortran_order and shape, then the values. Read are bools and
   whole numbers of any width and byte order whose values are 0 and 1, of two or three dims.

   The file is of unknown origin: nothing is taken that was not checked against its length. Must
   not: know what the bits mean. */
#include "npy.h"
#include "ir/support/arena.h"
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_BITS = INT32_MAX; /* as op `lookup` holds */

typedef struct Npy {
  Arena *a;
  const char *text, *header;
  size_t n, length; /* of the text; of the header */
  NpyBits out;
} Npy;

static bool refuse(Npy *x, const char *fault, const char *help) {
  x->out = (NpyBits){.fault = fault, .help = help};
  return false;
}

static const unsigned char *bytes_of(const Npy *x) { return (const unsigned char *)x->text; }

static bool find_header(Npy *x) {
  const unsigned char *b = bytes_of(x);
  if (x->n < 10 || memcmp(x->text, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
    return refuse(x, "this is no .npy file", "NumPy writes one: `np.save(\"f.npy\", table)`");
  size_t at = b[6] == 1 ? 10 : 12;
  x->length = (size_t)b[8] | (size_t)b[9] << 8;
  if (b[6] > 1 && x->n >= at) x->length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
  if (x->n < at || x->length > x->n - at) return refuse(x, "its header is cut off", NULL);
  x->header = arena_strndup(x->a, x->text + at, x->length);
  x->text += at + x->length, x->n -= at + x->length;
  return true;
}

/* What follows a key of the dict, NULL: there is none. */
static const char *after_key(const Npy *x, const char *key) {
  const char *at = strstr(x->header, key);
  if (!at) return NULL;
  at += strlen(key);
  return at + strspn(at, " :");
}

static bool read_shape(Npy *x) {
  const char *at = after_key(x, "'shape'");
  int64_t count = 1;
  int n = 0;
  if (!at || *at != '(') return refuse(x, "its header says no shape", NULL);
  for (at += strspn(at, "( "); *at >= '0' && *at <= '9'; n++) {
    char *end;
    long long size = strtoll(at, &end, 10);
    if (size <= 0 || size > MOST_BITS / count)
      return refuse(x, size > 0 ? "it has more than 2^31 values" : "it has no values", NULL);
    if (n < NPY_RANK) x->out.dim[n] = size;
    count *= size, at = end + strspn(end, ", L");
  }
  x->out.rank = n;
  if (n == 2 || n == 3) return true;
  return refuse(x, arena_printf(x->a, "it has %d dimension%s", n, n == 1 ? "" : "s"),
                "a table is [rows, columns] of blocks, or [heads, rows, columns]");
}

static bool read_order(Npy *x) {
  const char *at = after_key(x, "'fortran_order'");
  if (at && !strncmp(at, "False", 5)) return true;
  return refuse(x, "it is stored column by column (fortran_order)",
                "store it row by row: `np.save(\"f.npy\", np.ascontiguousarray(table))`");
}

/* Bytes of a value, with its order; 0: refused. */
static size_t read_type(Npy *x, bool *big) {
  const char *at = after_key(x, "'descr'");
  size_t n = at && *at == '\'' ? strcspn(at + 1, "'") : 0;
  const char *name = n ? arena_strndup(x->a, at + 1, n) : "?";
  static const char *const widths[] = {"1", "2", "4", "8"};
  *big = *name == '>';
  bool kind = n == 3 && strchr("<>|=", name[0]) && strchr("biu", name[1]);
  for (size_t i = 0; kind && i < sizeof widths / sizeof *widths; i++)
    if (!strcmp(name + 2, widths[i]) && (name[1] != 'b' || !i)) return (size_t)1 << i;
  refuse(x, arena_printf(x->a, "its values are of type `%s`", name),
         "a table has bools or whole numbers: `np.save(\"f.npy\", table.astype(bool))`");
  return 0;
}

static const char *place_of(const Npy *x, int64_t i) {
  const char *s = "";
  for (int d = x->out.rank; d-- > 0; i /= x->out.dim[d])
    s = arena_printf(x->a, "%lld%s%s", (long long)(i % x->out.dim[d]), *s ? ", " : "", s);
  return s;
}

static bool not_a_bit(Npy *x, int64_t i) {
  const char *fault = arena_printf(x->a, "its value at [%s] is neither 0 nor 1", place_of(x, i));
  return refuse(x, fault, "1 lists a block, 0 does not: `np.save(\"f.npy\", table != 0)`");
}

static bool read_bits(Npy *x, size_t width, bool big) {
  int64_t count = 1;
  for (int d = 0; d < x->out.rank; d++) count *= x->out.dim[d];
  if (x->n != (size_t)count * width) {
    const char *fault = arena_printf(x->a, "it has %zu bytes of values, where %s of %zu take %zu",
                                     x->n, npy_shape(x->a, &x->out), width, (size_t)count * width);
    return refuse(x, fault, NULL);
  }
  x->out.set = ARENA_ARRAY(x->a, bool, count);
  const unsigned char *at = bytes_of(x);
  for (int64_t i = 0; i < count; i++, at += width) {
    uint64_t v = 0;
    for (size_t b = 0; b < width; b++) v = v << 8 | at[big ? b : width - 1 - b];
    if (v > 1) return not_a_bit(x, i);
    x->out.set[i] = v;
  }
  return true;
}

NpyBits npy_bits(Arena *a, const char *text, size_t n) {
  Npy x = {.a = a, .text = text, .n = n};
  bool big;
  if (!find_header(&x) || !read_shape(&x) || !read_order(&x)) return x.out;
  size_t width = read_type(&x, &big);
  if (width) read_bits(&x, width, big);
  return x.out;
}

const char *npy_shape(Arena *a, const NpyBits *b) {
  const char *s = "";
  for (int d = 0; d < b->rank; d++)
    s = arena_printf(a, "%s%s%lld", s, d ? " x " : "", (long long)b->dim[d]);
  return s;
}
