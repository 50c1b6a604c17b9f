/* Reader and writer of safetensors.

   The reader believes nothing: lengths are checked against the file before use, every tensor's
   bytes against its shape and type, and the tensors together must cover the data exactly once.
   Texts are decoded into one block as long as the header. Must not: read outside the given bytes;
   allocate more than a fixed multiple of the header. */
#include "safetensors.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
  const char *name;
  int bytes, elem;
} dtypes[] = {{"F32", 4, RT_F32}, {"BF16", 2, RT_BF16}, {"F16", 2, RT_F16},   {"F64", 8, RT_F64},
              {"I32", 4, RT_I32}, {"I64", 8, RT_I64},   {"BOOL", 1, RT_BOOL}, {"U8", 1, RT_U8},
              {"I8", 1, -1},      {"I16", 2, -1},       {"U16", 2, -1},       {"U32", 4, -1},
              {"U64", 8, -1},     {"F8_E4M3", 1, -1},   {"F8_E5M2", 1, -1}};

typedef struct Reader {
  Json j;
  SafeFile *s;
  char *text; /* next free byte of s->names */
  size_t left;
  int64_t data_bytes;
} Reader;

/* Decodes a string (a key if `key`) into the block of names. */
static const char *keep_text(Reader *r, bool key) {
  char *at = r->text;
  bool ok = key ? rt_json_member(&r->j, at, r->left) : rt_json_string(&r->j, at, r->left);
  if (!ok) return NULL;
  size_t n = strlen(at) + 1;
  r->text += n, r->left -= n;
  return at;
}

static void read_metadata(Reader *r) {
  if (!rt_json_object(&r->j)) return;
  for (const char *key; (key = keep_text(r, true));) {
    const char *value = keep_text(r, false);
    if (!value) return;
    r->s->pair[r->s->npairs++] = (SafePair){key, value};
  }
}

static int read_dtype(Reader *r, SafeTensor *t) {
  char name[16];
  if (!rt_json_string(&r->j, name, sizeof name)) return 0;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtypes[i].name, name)) return t->elem = dtypes[i].elem, dtypes[i].bytes;
  return rt_json_fail(&r->j, "a tensor of unknown type");
}

static void read_shape(Reader *r, SafeTensor *t) {
  if (!rt_json_array(&r->j)) return;
  while (rt_json_element(&r->j)) {
    int64_t size = -1;
    if (t->rank == RT_MAX_RANK) rt_json_fail(&r->j, "a tensor of more than 8 dimensions");
    else if (rt_json_int(&r->j, &size) && size < 0) rt_json_fail(&r->j, "a negative size");
    if (r->j.error) return;
    t->size[t->rank++] = size;
  }
}

static void read_offsets(Reader *r, SafeTensor *t) {
  int64_t at[2] = {0, 0};
  int n = 0;
  if (!rt_json_array(&r->j)) return;
  while (rt_json_element(&r->j)) {
    if (n == 2) rt_json_fail(&r->j, "data_offsets with more than two numbers");
    else rt_json_int(&r->j, &at[n++]);
  }
  if (n != 2 || at[0] < 0 || at[1] < at[0] || at[1] > r->data_bytes)
    rt_json_fail(&r->j, "data_offsets outside the file");
  t->begin = at[0], t->bytes = at[1] - at[0];
}

static bool fits(const SafeTensor *t, int elem_bytes) {
  int64_t n = elem_bytes;
  for (int i = 0; i < t->rank; i++)
    if (__builtin_mul_overflow(n, t->size[i], &n)) return false;
  return n == t->bytes;
}

static void read_tensor(Reader *r, const char *name) {
  SafeTensor *t = &r->s->tensor[r->s->ntensors];
  char key[32];
  int bytes = 0, seen = 0;
  *t = (SafeTensor){.name = name, .elem = -1};
  if (!rt_json_object(&r->j)) return;
  while (rt_json_member(&r->j, key, sizeof key)) {
    if (!strcmp(key, "dtype") && !(seen & 1)) seen |= 1, bytes = read_dtype(r, t);
    else if (!strcmp(key, "shape") && !(seen & 2)) seen |= 2, read_shape(r, t);
    else if (!strcmp(key, "data_offsets") && !(seen & 4)) seen |= 4, read_offsets(r, t);
    else rt_json_fail(&r->j, "an unknown or repeated word in a tensor");
  }
  if (!r->j.error && seen != 7)
    rt_json_fail(&r->j, "a tensor without dtype, shape or data_offsets");
  if (!r->j.error && !fits(t, bytes))
    rt_json_fail(&r->j, "a tensor whose bytes do not match its shape");
  if (!r->j.error) r->s->ntensors++;
}

static int by_begin(const void *a, const void *b) {
  const SafeTensor *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}
static int by_name(const void *a, const void *b) {
  return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

/* Tensors cover the data exactly; no name stands twice. Leaves them in the order of their names. */
static const char *check_cover(SafeFile *s, int64_t bytes) {
  int64_t at = 0;
  qsort(s->tensor, (size_t)s->ntensors, sizeof *s->tensor, by_begin);
  for (int i = 0; i < s->ntensors; at += s->tensor[i++].bytes)
    if (s->tensor[i].begin != at) return "tensors overlap or leave holes";
  if (at != bytes) return "the data is longer or shorter than the header says";
  qsort(s->tensor, (size_t)s->ntensors, sizeof *s->tensor, by_name);
  for (int i = 1; i < s->ntensors; i++)
    if (!strcmp(s->tensor[i - 1].name, s->tensor[i].name)) return "a tensor stands twice";
  return NULL;
}

static int64_t count(Bytes b, char c) {
  int64_t n = 0;
  for (int64_t i = 0; i < b.n; i++) n += b.at[i] == (uint8_t)c;
  return n;
}

static const char *read_header(Bytes header, int64_t data_bytes, SafeFile *s, int64_t *position) {
  s->names = rt_alloc((size_t)header.n + 1);
  s->tensor = rt_alloc(sizeof *s->tensor * (size_t)(count(header, '{') + 1));
  s->pair = rt_alloc(sizeof *s->pair * (size_t)(count(header, ':') + 1));
  Reader r = {rt_json(header.at, header.n), s, s->names, (size_t)header.n + 1, data_bytes};
  bool meta = false;
  if (rt_json_object(&r.j))
    for (const char *key; (key = keep_text(&r, true));) {
      if (strcmp(key, "__metadata__")) read_tensor(&r, key);
      else if (!meta) meta = true, read_metadata(&r);
      else rt_json_fail(&r.j, "__metadata__ stands twice");
    }
  rt_json_done(&r.j);
  *position = r.j.p - r.j.begin;
  return r.j.error;
}

bool rt_safe_read(Bytes file, SafeFile *s, Fault *f) {
  *s = (SafeFile){0};
  if (file.n < 8) return rt_fault(f, 302, "the file has %lld bytes: no header", (long long)file.n);
  uint64_t n = rt_load_le(file.at, 8);
  if (n > (uint64_t)file.n - 8 || n > 100000000)
    return rt_fault(f, 302, "the header claims %llu bytes, the file has %lld",
                    (unsigned long long)n, (long long)file.n);
  int64_t position, data_bytes = file.n - 8 - (int64_t)n;
  const char *why = n && file.at[8] == '{' ? NULL : "the header does not begin with {";
  if (!why) why = read_header((Bytes){file.at + 8, (int64_t)n}, data_bytes, s, &position);
  else position = 0;
  if (why) {
    rt_safe_free(s);
    rt_fault(f, 302, "damaged header: %s", why);
    return rt_at(f, "", "byte", 8 + position);
  }
  if ((why = check_cover(s, data_bytes))) {
    rt_safe_free(s);
    return rt_fault(f, 302, "damaged header: %s", why);
  }
  for (int i = 0; i < s->ntensors; i++) s->tensor[i].data = file.at + 8 + n + s->tensor[i].begin;
  return true;
}

void rt_safe_free(SafeFile *s) {
  free(s->tensor), free(s->pair), free(s->names);
  *s = (SafeFile){0};
}

const SafeTensor *rt_safe_find(const SafeFile *s, const char *name) {
  SafeTensor key = {.name = name};
  return s->ntensors ? bsearch(&key, s->tensor, (size_t)s->ntensors, sizeof key, by_name) : NULL;
}

const char *rt_safe_meta(const SafeFile *s, const char *key) {
  for (int i = 0; i < s->npairs; i++)
    if (!strcmp(s->pair[i].key, key)) return s->pair[i].value;
  return NULL;
}

/* ---- writing ---- */

static int64_t item_bytes(const SafeItem *t) {
  int64_t n = rt_elem_bytes(t->elem);
  for (int i = 0; i < t->rank; i++) n *= t->size[i];
  return n;
}

static void write_header(FILE *o, const SafeItem *items, int n, const SafePair *pairs, int npairs) {
  int64_t at = 0;
  fprintf(o, "{\"__metadata__\":{\"format\":\"pt\"");
  for (int i = 0; i < npairs; i++) {
    fputc(',', o), rt_json_write(o, pairs[i].key);
    fputc(':', o), rt_json_write(o, pairs[i].value);
  }
  fprintf(o, "}");
  for (int i = 0; i < n; i++) {
    fputc(',', o), rt_json_write(o, items[i].name);
    fprintf(o, ":{\"dtype\":\"%s\",\"shape\":[", rt_elem_safetensors(items[i].elem));
    for (int d = 0; d < items[i].rank; d++)
      fprintf(o, "%s%lld", d ? "," : "", (long long)items[i].size[d]);
    fprintf(o, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
            (long long)(at + item_bytes(&items[i])));
    at += item_bytes(&items[i]);
  }
  fprintf(o, "}");
}

static bool put(int fd, Hash *h, const void *data, int64_t n, int64_t *bytes, Fault *f) {
  rt_hash_add(h, data, (size_t)n);
  *bytes += n;
  return rt_write_all(fd, data, n, f);
}

static bool put_item(int fd, Hash *h, const SafeItem *t, int64_t *bytes, Fault *f) {
  const void *part;
  if (!t->next) return put(fd, h, t->data, item_bytes(t), bytes, f);
  for (int64_t n; (n = t->next(t->of, &part)) > 0;)
    if (!put(fd, h, part, n, bytes, f)) return false;
  return true;
}

bool rt_safe_write(int fd, const SafeItem *items, int n, const SafePair *pairs, int npairs,
                   int64_t *bytes, uint64_t *hash, Fault *f) {
  char *header = NULL;
  size_t length = 0;
  FILE *o = open_memstream(&header, &length);
  if (!o) return rt_fault(f, 701, "no memory for a header");
  write_header(o, items, n, pairs, npairs);
  while (ftello(o) % 64)
    fputc(' ', o); /* data begins at a multiple of 64, less the length in front */
  fclose(o);
  Hash h;
  rt_hash_start(&h);
  *bytes = 0;
  uint64_t le = length;
  bool ok = put(fd, &h, &le, 8, bytes, f) && put(fd, &h, header, (int64_t)length, bytes, f);
  for (int i = 0; ok && i < n; i++) ok = put_item(fd, &h, &items[i], bytes, f);
  *hash = rt_hash_end(&h);
  free(header);
  return ok;
}
