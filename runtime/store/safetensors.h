/* safetensors files: u64 length, a JSON header of that many bytes, then the data without holes. */
#ifndef SHARDC_RT_SAFETENSORS_H
#define SHARDC_RT_SAFETENSORS_H
#include "runtime/base/base.h"
#include "runtime/rt.h"

typedef struct SafeTensor {
  const char *name;
  int elem; /* rt_elem; -1: a type that the runtime has no use for */
  int rank;
  int64_t size[RT_MAX_RANK];
  const uint8_t *data;
  int64_t begin, bytes; /* begin: from the first data byte */
} SafeTensor;

typedef struct SafePair { /* of __metadata__ */
  const char *key, *value;
} SafePair;

typedef struct SafeFile {
  SafeTensor *tensor;
  SafePair *pair;
  int ntensors, npairs;
  char *names; /* holds all texts */
} SafeFile;

/* Reads a header over the bytes of a file; tensors point into them. Memory used is bounded by the
 * header's length. */
bool rt_safe_read(Bytes file, SafeFile *safe_file, Fault *f);
void rt_safe_free(SafeFile *file);
const SafeTensor *rt_safe_find(const SafeFile *file, const char *name);
const char *rt_safe_meta(const SafeFile *file, const char *key);

typedef struct SafeItem { /* something to be written */
  const char *name;
  int elem, rank;
  const int64_t *size;
  const void *data; /* NULL: it comes in parts */
  /* The next bytes of the data, which hold until the next call; returns how many, 0: no more. */
  int64_t (*next)(void *of, const void **part);
  void *of;
} SafeItem;

/* Writes to an open file from its start; *hash: XXH64 of all bytes. */
bool rt_safe_write(int fd, const SafeItem *items, int n, const SafePair *pairs, int npairs,
                   int64_t *bytes, uint64_t *hash, Fault *f);
#endif
