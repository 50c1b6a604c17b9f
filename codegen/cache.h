/* The kernel cache: object files under a key. A file is its checksum, then the object; it appears
   by rename, so that a reader sees all of it or nothing. What cannot be read or written is as if it
   were not there: the cache never fails. */
#ifndef SHARDC_CACHE_H
#define SHARDC_CACHE_H
#include "ir/support/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct Hash {
  uint64_t a, b;
} Hash;

Hash hash_begin(void);
Hash hash_bytes(Hash h, const void *bytes, size_t n);
Hash hash_text(Hash h, const char *text); /* with its end, so that two texts in a row stay apart */

typedef struct Bytes {
  char *at; /* in the arena; NULL: not there */
  size_t n;
} Bytes;

Bytes cache_read_file(Arena *a, const char *path);

const char *cache_folder(Arena *a); /* made if needed; NULL: there is none */
Bytes cache_get(Arena *a, const char *folder, Hash key);
void cache_put(Arena *a, const char *folder, Hash key, Bytes b);
#endif
