/* Readers of data formats. Each open_* looks at the first bytes (or the name) and either declines,
   fills the Array, or reports what is wrong with the header. Sizes that a header claims are checked
   against the file before anything uses them. Must not: allocate, read outside the range, know
   where the bytes came from. */
#include "formats.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Answer { NO, YES, BAD } Answer;

typedef struct Ask { /* what an open_* function sees */
  Bytes file;
  const char *name;
  bool forced; /* the user insists on this format */
  Fault *f;
} Ask;

static Answer bad(const Ask *ask, const char *why, int64_t position) {
  rt_fault(ask->f, 202, "damaged %s", why);
  rt_at(ask->f, "", "byte", position);
  return BAD;
}

/* A sequence of all numbers after `head`; the user of the array gives the shape (rank 0). */
static Answer bare(const Ask *ask, Array *array, int width, NumberKind kind) {
  int64_t n = ask->file.n;
  if (n % width) {
    rt_fault(ask->f, 202, "%lld bytes are no whole number of %d-byte numbers", (long long)n, width);
    rt_help(ask->f,
            "`format =` in the data line says how to read it, such as bytes, u16, u32, f32");
    return BAD;
  }
  *array = (Array){.at = ask->file.at,
                   .kind = kind,
                   .width = width,
                   .count = n / width,
                   .guessed = !ask->forced};
  return YES;
}

static Answer open_bytes(const Ask *ask, Array *array) { return bare(ask, array, 1, NUMBER_UINT); }
static Answer open_u16(const Ask *ask, Array *array) {
  return ask->forced || rt_text_ends(ask->name, ".bin") || rt_text_ends(ask->name, ".u16")
             ? bare(ask, array, 2, NUMBER_UINT)
             : NO;
}
static Answer open_u32(const Ask *ask, Array *array) {
  return ask->forced || rt_text_ends(ask->name, ".u32") ? bare(ask, array, 4, NUMBER_UINT) : NO;
}
static Answer open_f32(const Ask *ask, Array *array) {
  return ask->forced || rt_text_ends(ask->name, ".f32") ? bare(ask, array, 4, NUMBER_FLOAT) : NO;
}

static Answer open_llmc(const Ask *ask, Array *array) {
  uint64_t magic = ask->file.n >= 4 ? rt_load_le(ask->file.at, 4) : 0;
  if (magic != 20240520 && magic != 20240801)
    return ask->forced ? bad(ask, "llm.c header: wrong magic number", 0) : NO;
  if (ask->file.n < 1024) return bad(ask, "llm.c header: shorter than 1024 bytes", ask->file.n);
  int width = magic == 20240520 ? 2 : 4, version = width == 2 ? 1 : 7;
  if (rt_load_le(ask->file.at + 4, 4) != (uint64_t)version)
    return bad(ask, "llm.c header: unknown version", 4);
  int64_t n = (int64_t)rt_load_le(ask->file.at + 8, 4);
  if (n > (ask->file.n - 1024) / width)
    return bad(ask, "llm.c file: it is shorter than its header says", 8);
  *array = (Array){
      .at = ask->file.at + 1024, .kind = NUMBER_UINT, .width = width, .head = 1024, .count = n};
  return YES;
}

/* Bytes of the numbers of a shape, or -1 if they exceed what there is. */
static int64_t shape_count(const Array *array, int64_t available) {
  int64_t n = 1;
  for (int i = 0; i < array->rank; i++)
    if (__builtin_mul_overflow(n, array->size[i], &n)) return -1;
  int64_t bytes;
  if (__builtin_mul_overflow(n, array->width, &bytes) || bytes > available) return -1;
  return n;
}

static bool idx_type(int code, Array *array) {
  static const struct {
    int code, width;
    NumberKind kind;
  } types[] = {{8, 1, NUMBER_UINT}, {9, 1, NUMBER_INT},    {11, 2, NUMBER_INT},
               {12, 4, NUMBER_INT}, {13, 4, NUMBER_FLOAT}, {14, 8, NUMBER_FLOAT}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].code == code)
      return array->width = types[i].width, array->kind = types[i].kind, true;
  return false;
}

static Answer open_idx(const Ask *ask, Array *array) {
  const uint8_t *p = ask->file.at;
  bool magic = ask->file.n >= 4 && !p[0] && !p[1] && idx_type(p[2], array) && p[3] >= 1 &&
               p[3] <= RT_MAX_RANK;
  if (!magic) return ask->forced ? bad(ask, "IDX header: wrong magic number", 0) : NO;
  array->rank = p[3], array->big = true, array->head = 4 + 4 * array->rank;
  if (ask->file.n < array->head) return bad(ask, "IDX header: the file ends in it", ask->file.n);
  for (int i = 0; i < array->rank; i++) array->size[i] = (int64_t)rt_load_be(p + 4 + 4 * i, 4);
  array->at = p + array->head;
  array->count = shape_count(array, ask->file.n - array->head);
  if (array->count < 0) return bad(ask, "IDX file: it is shorter than its header says", 4);
  return YES;
}

/* Pairs are opened by rt_megatron_open; this is a file without its other half. */
static Answer open_megatron(const Ask *ask, Array *array) {
  (void)array;
  if (!ask->forced && !rt_megatron_is(ask->file)) return NO;
  rt_fault(ask->f, 202,
           "Megatron data is a pair of files: NAME.bin, and NAME.idx in the same "
           "folder");
  return BAD;
}

/* ---- NPY: a Python dictionary such as {'descr': '<f4', 'fortran_order': False, 'shape': (60000,
 * 784), } ---- */

static const char *npy_value(const char *head, const char *key) {
  const char *p = strstr(head, key);
  if (!p) return NULL;
  p += strlen(key);
  while (*p == ' ' || *p == ':' || *p == '\'' || *p == '"') p++;
  return p;
}

static bool npy_type(const char *p, Array *array) {
  char order = *p++, kind = *p++;
  array->width = *p >= '0' && *p <= '9' ? *p - '0' : 0;
  array->big = order == '>';
  array->kind = kind == 'u'   ? NUMBER_UINT
                : kind == 'i' ? NUMBER_INT
                : kind == 'f' ? NUMBER_FLOAT
                              : NUMBER_BOOL;
  bool known = kind == 'b'   ? array->width == 1
               : kind == 'f' ? array->width >= 2
                             : kind == 'u' || kind == 'i';
  bool width = array->width == 1 || array->width == 2 || array->width == 4 || array->width == 8;
  return known && width && strchr("<>|=", order) && (p[1] == '\'' || p[1] == '"');
}

static bool npy_shape(const char *p, Array *array) {
  if (*p++ != '(') return false;
  while (*p != ')') {
    char *end;
    if (*p < '0' || *p > '9' || array->rank == RT_MAX_RANK) return false;
    unsigned long long n = strtoull(p, &end, 10);
    if (n > INT64_MAX) return false;
    array->size[array->rank++] = (int64_t)n;
    for (p = end; *p == ',' || *p == ' ' || *p == 'L'; p++) {}
  }
  return true;
}

/* Not damaged: something else than rows of numbers. */
static Answer npy_other_type(const Ask *ask, const char *type) {
  rt_fault(ask->f, 202, "this NPY file holds no plain numbers: its type is %.*s",
           (int)strcspn(type, "'\","), type);
  rt_help(ask->f, "`numpy.save(FILE, array.astype(\"float32\"))`, or another type of 1, 2, 4 or 8 "
                  "bytes: integers, floats, bool");
  rt_at(ask->f, "", "byte", 0);
  return BAD;
}

static Answer npy_columns_first(const Ask *ask) {
  rt_fault(ask->f, 202, "this NPY file is in Fortran order: its first index varies fastest");
  rt_help(ask->f, "`numpy.save(FILE, numpy.ascontiguousarray(numpy.load(FILE)))` writes its rows "
                  "contiguously");
  rt_at(ask->f, "", "byte", 0);
  return BAD;
}

static Answer open_npy(const Ask *ask, Array *array) {
  const uint8_t *p = ask->file.at;
  if (ask->file.n < 10 || memcmp(p, "\x93NUMPY", 6))
    return ask->forced ? bad(ask, "NPY header: wrong magic", 0) : NO;
  int lead = p[6] == 1 ? 10 : 12;
  if (p[6] < 1 || p[6] > 3) return bad(ask, "NPY header: unknown version", 6);
  if (ask->file.n < lead) return bad(ask, "NPY header: the file ends in it", ask->file.n);
  int64_t n = (int64_t)rt_load_le(p + 8, lead - 8);
  char head[4096];
  if (n > ask->file.n - lead || n >= (int64_t)sizeof head)
    return bad(ask, "NPY header: its length is wrong", 8);
  memcpy(head, p + lead, (size_t)n);
  head[n] = 0;
  const char *type = npy_value(head, "'descr'"), *order = npy_value(head, "'fortran_order'");
  const char *shape = npy_value(head, "'shape'");
  if (!type || strlen(type) < 4) return bad(ask, "NPY header: it names no type", lead);
  if (!npy_type(type, array)) return npy_other_type(ask, type);
  if (!order || (strncmp(order, "False", 5) && strncmp(order, "True", 4)))
    return bad(ask, "NPY header: it names no order", lead);
  if (!shape || !npy_shape(shape, array))
    return bad(ask, "NPY header: no shape that can be read", lead);
  if (*order == 'T' && array->rank > 1) return npy_columns_first(ask);
  array->head = lead + n, array->at = p + array->head;
  array->count = shape_count(array, ask->file.n - array->head);
  if (array->rank == 0) array->rank = 1, array->size[0] = 1;
  if (array->count < 0)
    return bad(ask, "NPY file: it is shorter than its header says", array->head);
  return YES;
}

static const struct {
  const char *name;
  Answer (*open)(const Ask *q, Array *a);
} formats[] = {
#define FORMAT(name, how) {#name, open_##name},
#include "formats.def"
#undef FORMAT
};

bool rt_format_known(const char *format) {
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
    if (!strcmp(format, formats[i].name)) return true;
  return false;
}

bool rt_array_open(Bytes file, const char *name, const char *format, Array *array, Fault *f) {
  if (!rt_not_foreign(file, format, f)) return false;
  for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
    if (format && strcmp(format, formats[i].name)) continue;
    Ask ask = {file, name, format != NULL, f};
    *array = (Array){0};
    Answer r = formats[i].open(&ask, array);
    array->format = formats[i].name;
    if (r == YES && array->guessed) return rt_guess_holds(file, name, array, f);
    if (r != NO) return r == YES;
  }
  rt_fault(f, 202, "unknown format `%s`", format ? format : "");
  return rt_help(f, "formats: npy llmc megatron idx u16 u32 f32 bytes");
}

static uint64_t load(const Array *array, int64_t i) {
  const uint8_t *p = array->at + i * array->width;
  return array->big ? rt_load_be(p, array->width) : rt_load_le(p, array->width);
}

double rt_array_real(const Array *array, int64_t i) {
  uint64_t v = load(array, i);
  if (array->kind != NUMBER_FLOAT)
    return array->kind == NUMBER_INT ? (double)rt_array_int(array, i) : (double)v;
  uint16_t half = (uint16_t)v;
  if (array->width == 2) return rt_elem_get(RT_F16, &half, 0);
  return rt_elem_get(array->width == 4 ? RT_F32 : RT_F64, &v, 0); /* little-endian machine */
}

/* A float that is no whole number of 64 bits gives INT64_MAX, which is no index of anything. */
int64_t rt_array_int(const Array *array, int64_t i) {
  if (array->kind == NUMBER_FLOAT) {
    double v = rt_array_real(array, i);
    return v > -9e18 && v < 9e18 && v == (double)(int64_t)v ? (int64_t)v : INT64_MAX;
  }
  uint64_t v = load(array, i);
  int shift = 64 - 8 * array->width;
  if (array->kind == NUMBER_INT) return (int64_t)(v << shift) >> shift;
  return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}
