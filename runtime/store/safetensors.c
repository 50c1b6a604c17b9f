/* Reader and writer of safetensors.

   The reader believes nothing: lengths are checked against the file before use, every tensor's
   bytes against its shape and type, and the tensors together must cover the data exactly once.
   Texts are decoded into one block as long as the header. Must not: read outside the given bytes;
   allocate more than a fixed multiple of the header. */
#include "safetensors.h"
#include "runtime/base/staged_file.h"
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
static const char *keep_text(Reader *reader, bool key) {
  char *at = reader->text;
  bool ok = key ? rt_json_member(&reader->j, at, reader->left)
                : rt_json_string(&reader->j, at, reader->left);
  if (!ok) return NULL;
  size_t n = strlen(at) + 1;
  reader->text += n, reader->left -= n;
  return at;
}

static void read_metadata(Reader *reader) {
  if (!rt_json_object(&reader->j)) return;
  for (const char *key; (key = keep_text(reader, true));) {
    const char *value = keep_text(reader, false);
    if (!value) return;
    reader->s->pair[reader->s->npairs++] = (SafePair){key, value};
  }
}

static int read_dtype(Reader *reader, SafeTensor *tensor) {
  char name[16];
  if (!rt_json_string(&reader->j, name, sizeof name)) return 0;
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (!strcmp(dtypes[i].name, name)) return tensor->elem = dtypes[i].elem, dtypes[i].bytes;
  return rt_json_fail(&reader->j, "a tensor of unknown type");
}

static void read_shape(Reader *reader, SafeTensor *tensor) {
  if (!rt_json_array(&reader->j)) return;
  while (rt_json_element(&reader->j)) {
    int64_t size = -1;
    if (tensor->rank == RT_MAX_RANK) rt_json_fail(&reader->j, "a tensor of more than 8 dimensions");
    else if (rt_json_int(&reader->j, &size) && size < 0)
      rt_json_fail(&reader->j, "a negative size");
    if (reader->j.error) return;
    tensor->size[tensor->rank++] = size;
  }
}

static void read_offsets(Reader *reader, SafeTensor *tensor) {
  int64_t at[2] = {0, 0};
  int n = 0;
  if (!rt_json_array(&reader->j)) return;
  while (rt_json_element(&reader->j)) {
    if (n == 2) rt_json_fail(&reader->j, "data_offsets with more than two numbers");
    else rt_json_int(&reader->j, &at[n++]);
  }
  if (n != 2 || at[0] < 0 || at[1] < at[0] || at[1] > reader->data_bytes)
    rt_json_fail(&reader->j, "data_offsets outside the file");
  tensor->begin = at[0], tensor->bytes = at[1] - at[0];
}

static bool fits(const SafeTensor *tensor, int elem_bytes) {
  int64_t n = elem_bytes;
  for (int i = 0; i < tensor->rank; i++)
    if (__builtin_mul_overflow(n, tensor->size[i], &n)) return false;
  return n == tensor->bytes;
}

static void read_tensor(Reader *reader, const char *name) {
  SafeTensor *tensor = &reader->s->tensor[reader->s->ntensors];
  char key[32];
  int bytes = 0, seen = 0;
  *tensor = (SafeTensor){.name = name, .elem = -1};
  if (!rt_json_object(&reader->j)) return;
  while (rt_json_member(&reader->j, key, sizeof key)) {
    if (!strcmp(key, "dtype") && !(seen & 1)) seen |= 1, bytes = read_dtype(reader, tensor);
    else if (!strcmp(key, "shape") && !(seen & 2)) seen |= 2, read_shape(reader, tensor);
    else if (!strcmp(key, "data_offsets") && !(seen & 4)) seen |= 4, read_offsets(reader, tensor);
    else rt_json_fail(&reader->j, "an unknown or repeated word in a tensor");
  }
  if (!reader->j.error && seen != 7)
    rt_json_fail(&reader->j, "a tensor without dtype, shape or data_offsets");
  if (!reader->j.error && !fits(tensor, bytes))
    rt_json_fail(&reader->j, "a tensor whose bytes do not match its shape");
  if (!reader->j.error) reader->s->ntensors++;
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

/* Checks that tensors cover the data exactly and that no name occurs twice. Sorts them by name. */
static const char *check_cover(SafeFile *file, int64_t bytes) {
  int64_t at = 0;
  qsort(file->tensor, (size_t)file->ntensors, sizeof *file->tensor, by_begin);
  for (int i = 0; i < file->ntensors; at += file->tensor[i++].bytes)
    if (file->tensor[i].begin != at) return "tensors overlap or leave holes";
  if (at != bytes) return "the data is longer or shorter than the header says";
  qsort(file->tensor, (size_t)file->ntensors, sizeof *file->tensor, by_name);
  for (int i = 1; i < file->ntensors; i++)
    if (!strcmp(file->tensor[i - 1].name, file->tensor[i].name)) return "a tensor occurs twice";
  return NULL;
}

static int64_t count(Bytes b, char c) {
  int64_t n = 0;
  for (int64_t i = 0; i < b.n; i++) n += b.at[i] == (uint8_t)c;
  return n;
}

static const char *read_header(Bytes header, int64_t data_bytes, SafeFile *file,
                               int64_t *position) {
  file->names = rt_alloc((size_t)header.n + 1);
  file->tensor = rt_alloc(sizeof *file->tensor * (size_t)(count(header, '{') + 1));
  file->pair = rt_alloc(sizeof *file->pair * (size_t)(count(header, ':') + 1));
  Reader reader = {rt_json(header.at, header.n), file, file->names, (size_t)header.n + 1,
                   data_bytes};
  bool meta = false;
  if (rt_json_object(&reader.j))
    for (const char *key; (key = keep_text(&reader, true));) {
      if (strcmp(key, "__metadata__")) read_tensor(&reader, key);
      else if (!meta) meta = true, read_metadata(&reader);
      else rt_json_fail(&reader.j, "__metadata__ occurs twice");
    }
  rt_json_done(&reader.j);
  *position = reader.j.p - reader.j.begin;
  return reader.j.error;
}

bool rt_safe_read(Bytes file, SafeFile *safe_file, Fault *f) {
  *safe_file = (SafeFile){0};
  if (file.n < 8) return rt_fault(f, 302, "the file has %lld bytes: no header", (long long)file.n);
  uint64_t n = rt_load_le(file.at, 8);
  if (n > (uint64_t)file.n - 8 || n > 100000000)
    return rt_fault(f, 302, "the header claims %llu bytes, the file has %lld",
                    (unsigned long long)n, (long long)file.n);
  int64_t position, data_bytes = file.n - 8 - (int64_t)n;
  const char *why = n && file.at[8] == '{' ? NULL : "the header does not begin with {";
  if (!why) why = read_header((Bytes){file.at + 8, (int64_t)n}, data_bytes, safe_file, &position);
  else position = 0;
  if (why) {
    rt_safe_free(safe_file);
    rt_fault(f, 302, "damaged header: %s", why);
    return rt_at(f, "", "byte", 8 + position);
  }
  if ((why = check_cover(safe_file, data_bytes))) {
    rt_safe_free(safe_file);
    return rt_fault(f, 302, "damaged header: %s", why);
  }
  for (int i = 0; i < safe_file->ntensors; i++)
    safe_file->tensor[i].data = file.at + 8 + n + safe_file->tensor[i].begin;
  return true;
}

void rt_safe_free(SafeFile *file) {
  free(file->tensor), free(file->pair), free(file->names);
  *file = (SafeFile){0};
}

const SafeTensor *rt_safe_find(const SafeFile *file, const char *name) {
  SafeTensor key = {.name = name};
  return file->ntensors ? bsearch(&key, file->tensor, (size_t)file->ntensors, sizeof key, by_name)
                        : NULL;
}

const char *rt_safe_meta(const SafeFile *file, const char *key) {
  for (int i = 0; i < file->npairs; i++)
    if (!strcmp(file->pair[i].key, key)) return file->pair[i].value;
  return NULL;
}

/* ---- writing ---- */

static int64_t item_bytes(const SafeItem *t) {
  int64_t n = rt_elem_bytes(t->elem);
  for (int i = 0; i < t->rank; i++) n *= t->size[i];
  return n;
}

static void write_header(FILE *file, const SafeItem *items, int n, const SafePair *pairs,
                         int npairs) {
  int64_t at = 0;
  fprintf(file, "{\"__metadata__\":{\"format\":\"pt\"");
  for (int i = 0; i < npairs; i++) {
    fputc(',', file), rt_json_write(file, pairs[i].key);
    fputc(':', file), rt_json_write(file, pairs[i].value);
  }
  fprintf(file, "}");
  for (int i = 0; i < n; i++) {
    fputc(',', file), rt_json_write(file, items[i].name);
    fprintf(file, ":{\"dtype\":\"%s\",\"shape\":[", rt_elem_safetensors(items[i].elem));
    for (int d = 0; d < items[i].rank; d++)
      fprintf(file, "%s%lld", d ? "," : "", (long long)items[i].size[d]);
    fprintf(file, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
            (long long)(at + item_bytes(&items[i])));
    at += item_bytes(&items[i]);
  }
  fprintf(file, "}");
}

typedef struct SafeWriting {
  StagedFile file;
  Hash hash;
  int64_t bytes;
} SafeWriting;

static bool put(SafeWriting *writing, const void *data, int64_t n, Fault *f) {
  rt_hash_add(&writing->hash, data, (size_t)n);
  writing->bytes += n;
  return rt_stage_put(&writing->file, data, n, f);
}

static bool put_item(SafeWriting *writing, const SafeItem *t, Fault *f) {
  const void *part;
  if (!t->next) return put(writing, t->data, item_bytes(t), f);
  for (int64_t n; (n = t->next(t->of, &part)) > 0;)
    if (!put(writing, part, n, f)) return false;
  return true;
}

bool rt_safe_write(int fd, const SafeItem *items, int n, const SafePair *pairs, int npairs,
                   int64_t *bytes, uint64_t *hash, Fault *f) {
  char *header = NULL;
  size_t length = 0;
  FILE *file = open_memstream(&header, &length);
  if (!file) return rt_fault(f, 701, "no memory for a header");
  write_header(file, items, n, pairs, npairs);
  while (ftello(file) % 64)
    fputc(' ', file); /* data begins at a multiple of 64, less the length in front */
  fclose(file);
  SafeWriting writing = {.bytes = 0};
  rt_stage_begin(&writing.file, fd), rt_hash_start(&writing.hash);
  uint64_t le = length;
  bool ok = put(&writing, &le, 8, f) && put(&writing, header, (int64_t)length, f);
  for (int i = 0; ok && i < n; i++) ok = put_item(&writing, &items[i], f);
  ok = rt_stage_end(&writing.file, ok, f);
  *bytes = writing.bytes, *hash = rt_hash_end(&writing.hash);
  free(header);
  return ok;
}
