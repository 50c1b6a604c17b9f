/* The kernel cache: object files under a key. A file is its checksum, then the object; it is
   written under another name and renamed, so that a reader sees all of it or nothing. A file that
   cannot be read or written counts as absent: the cache never fails. Its objects become part of
   executables, so a folder or a file that other users own or can write is not used.
   Objects are in 256 folders by the first byte of their key. A folder that exceeds its part of
   1 GiB loses the objects that were not used for the longest time (cache_trim.c). */
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
  char *at; /* in the arena; NULL: not in the cache */
  size_t n;
} CacheBytes;

CacheBytes cache_read_file(Arena *arena, const char *path);
/* Identifies this program: its build id, or all its bytes if the linker wrote none. */
CacheKey hash_program(CacheKey h, Arena *arena);

/* Made if needed, for this user alone. NULL: there is none, *why says so if it is one of others. */
const char *cache_folder(Arena *arena, const char **why);
CacheBytes cache_get(Arena *arena, const char *folder, CacheKey key);
void cache_put(Arena *arena, const char *folder, CacheKey key, CacheBytes bytes);
/* If the files of the folder have more than `most` bytes: removes those that were not used for the
   longest time, until at most three quarters of `most` remain, or the newest file alone. */
void cache_trim(Arena *arena, const char *folder, int64_t most);
#endif
