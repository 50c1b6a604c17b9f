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

static bool refuse(Npy *npy, const char *fault, const char *help) {
  npy->out = (NpyBits){.fault = fault, .help = help};
  return false;
}

static const unsigned char *bytes_of(const Npy *npy) { return (const unsigned char *)npy->text; }

static bool find_header(Npy *npy) {
  const unsigned char *b = bytes_of(npy);
  if (npy->n < 10 || memcmp(npy->text, "\x93NUMPY", 6) != 0 || b[6] < 1 || b[6] > 3)
    return refuse(npy, "this is no .npy file", "NumPy writes one: `np.save(\"f.npy\", table)`");
  size_t at = b[6] == 1 ? 10 : 12;
  npy->length = (size_t)b[8] | (size_t)b[9] << 8;
  if (b[6] > 1 && npy->n >= at) npy->length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
  if (npy->n < at || npy->length > npy->n - at) return refuse(npy, "its header is cut off", NULL);
  npy->header = arena_strndup(npy->a, npy->text + at, npy->length);
  npy->text += at + npy->length, npy->n -= at + npy->length;
  return true;
}

/* The text after a key of the dict; NULL: no such key. */
static const char *after_key(const Npy *npy, const char *key) {
  const char *at = strstr(npy->header, key);
  if (!at) return NULL;
  at += strlen(key);
  return at + strspn(at, " :");
}

static bool read_shape(Npy *npy) {
  const char *at = after_key(npy, "'shape'");
  int64_t count = 1;
  int n = 0;
  if (!at || *at != '(') return refuse(npy, "its header has no shape", NULL);
  for (at += strspn(at, "( "); *at >= '0' && *at <= '9'; n++) {
    char *end;
    long long size = strtoll(at, &end, 10);
    if (size <= 0 || size > MOST_BITS / count)
      return refuse(npy, size > 0 ? "it has more than 2^31 values" : "it has no values", NULL);
    if (n < NPY_RANK) npy->out.dim[n] = size;
    count *= size, at = end + strspn(end, ", L");
  }
  npy->out.rank = n;
  if (n == 2 || n == 3) return true;
  return refuse(npy, arena_printf(npy->a, "it has %d dimension%s", n, n == 1 ? "" : "s"),
                "a table is [rows, columns] of blocks, or [heads, rows, columns]");
}

static bool read_order(Npy *npy) {
  const char *at = after_key(npy, "'fortran_order'");
  if (at && !strncmp(at, "False", 5)) return true;
  return refuse(npy, "it is stored column by column (fortran_order)",
                "store it row by row: `np.save(\"f.npy\", np.ascontiguousarray(table))`");
}

/* Bytes of a value, with its order; 0: refused. */
static size_t read_type(Npy *npy, bool *big) {
  const char *at = after_key(npy, "'descr'");
  size_t n = at && *at == '\'' ? strcspn(at + 1, "'") : 0;
  const char *name = n ? arena_strndup(npy->a, at + 1, n) : "?";
  static const char *const widths[] = {"1", "2", "4", "8"};
  *big = *name == '>';
  bool kind = n == 3 && strchr("<>|=", name[0]) && strchr("biu", name[1]);
  for (size_t i = 0; kind && i < sizeof widths / sizeof *widths; i++)
    if (!strcmp(name + 2, widths[i]) && (name[1] != 'b' || !i)) return (size_t)1 << i;
  refuse(npy, arena_printf(npy->a, "its values are of type `%s`", name),
         "a table has bools or whole numbers: `np.save(\"f.npy\", table.astype(bool))`");
  return 0;
}

static const char *place_of(const Npy *npy, int64_t i) {
  const char *s = "";
  for (int d = npy->out.rank; d-- > 0; i /= npy->out.dim[d])
    s = arena_printf(npy->a, "%lld%s%s", (long long)(i % npy->out.dim[d]), *s ? ", " : "", s);
  return s;
}

static bool not_a_bit(Npy *npy, int64_t i) {
  const char *fault =
      arena_printf(npy->a, "its value at [%s] is neither 0 nor 1", place_of(npy, i));
  return refuse(npy, fault, "1 lists a block, 0 does not: `np.save(\"f.npy\", table != 0)`");
}

static bool read_bits(Npy *npy, size_t width, bool big) {
  int64_t count = 1;
  for (int d = 0; d < npy->out.rank; d++) count *= npy->out.dim[d];
  if (npy->n != (size_t)count * width) {
    const char *fault =
        arena_printf(npy->a, "it has %zu bytes of values, where %s of %zu take %zu", npy->n,
                     npy_shape(npy->a, &npy->out), width, (size_t)count * width);
    return refuse(npy, fault, NULL);
  }
  npy->out.set = ARENA_ARRAY(npy->a, bool, count);
  const unsigned char *at = bytes_of(npy);
  for (int64_t i = 0; i < count; i++, at += width) {
    uint64_t v = 0;
    for (size_t b = 0; b < width; b++) v = v << 8 | at[big ? b : width - 1 - b];
    if (v > 1) return not_a_bit(npy, i);
    npy->out.set[i] = v;
  }
  return true;
}

NpyBits npy_bits(Arena *a, const char *text, size_t n) {
  Npy npy = {.a = a, .text = text, .n = n};
  bool big;
  if (!find_header(&npy) || !read_shape(&npy) || !read_order(&npy)) return npy.out;
  size_t width = read_type(&npy, &big);
  if (width) read_bits(&npy, width, big);
  return npy.out;
}

const char *npy_shape(Arena *a, const NpyBits *b) {
  const char *s = "";
  for (int d = 0; d < b->rank; d++)
    s = arena_printf(a, "%s%s%lld", s, d ? " x " : "", (long long)b->dim[d]);
  return s;
}
