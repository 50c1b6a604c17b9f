/* The kernel cache: object files under a key. A file is its checksum, then the object; it appears
   by rename, so that a reader sees all of it or nothing. What cannot be read or written is as if it
   were not there: the cache never fails. What it holds goes into executables, so a folder or a file
   that others own or can write is not used. */
#ifndef SHARDC_CACHE_H
#define SHARDC_CACHE_H
#include "ir/support/sha256.h"
#include "ir/support/arena.h"
#include <stdbool.h>
#include <stdint.h>

typedef Sha256 CacheKey;

CacheKey hash_begin(void);
CacheKey hash_bytes(CacheKey h, const void *bytes, size_t n);
CacheKey hash_text(CacheKey h,
                   const char *text); /* with its end, so that two texts in a row stay apart */
const char *hash_words(Arena *arena, CacheKey h, int digits); /* hexadecimal, at most 64 */

typedef struct CacheBytes {
  char *at; /* in the arena; NULL: not there */
  size_t n;
} CacheBytes;

CacheBytes cache_read_file(Arena *arena, const char *path);
/* What this program is: its build id, or all its bytes where the linker wrote none. */
CacheKey hash_program(CacheKey h, Arena *arena);

/* Made if needed, for this user alone. NULL: there is none, *why says so if it is one of others. */
const char *cache_folder(Arena *arena, const char **why);
CacheBytes cache_get(Arena *arena, const char *folder, CacheKey key);
void cache_put(Arena *arena, const char *folder, CacheKey key, CacheBytes bytes);
#endif
