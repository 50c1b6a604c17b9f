/* The kernel cache, its hash and its files: see cache.h. */
#include "cache.h"
#include "ir/support/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- hash: two FNV-1a sums with different primes of the field, enough for names of files ---- */

Hash hash_begin(void) { return (Hash){0xcbf29ce484222325u, 0x9ae16a3b2f90404fu}; }

Hash hash_bytes(Hash h, const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  for (size_t i = 0; i < n; i++) {
    h.a = (h.a ^ p[i]) * 0x100000001b3u;
    h.b = (h.b ^ p[i]) * 0xc6a4a7935bd1e995u;
    h.b ^= h.b >> 29;
  }
  return h;
}

Hash hash_text(Hash h, const char *text) { return hash_bytes(h, text, strlen(text) + 1); }

/* ---- files ---- */

static bool read_all(int fd, char *at, size_t n) {
  while (n) {
    ssize_t got = read(fd, at, n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got, n -= (size_t)got;
  }
  return true;
}

Bytes cache_read_file(Arena *a, const char *path) {
  Bytes b = {0};
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return b;
  if (!fstat(fd, &st) && S_ISREG(st.st_mode)) {
    b.n = (size_t)st.st_size;
    b.at = arena_alloc(a, b.n + 1);
    if (!read_all(fd, b.at, b.n)) b.at = NULL;
  }
  close(fd);
  return b;
}

/* ---- the cache ---- */

static bool make_folder(char *path) {
  for (char *c = path + 1; *c; c++) {
    if (*c != '/') continue;
    *c = 0;
    mkdir(path, 0777);
    *c = '/';
  }
  return !mkdir(path, 0777) || errno == EEXIST;
}

const char *cache_folder(Arena *a) {
  const char *own = getenv("SHARDC_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  char *path = NULL;
  if (own) path = arena_printf(a, "%s", own);
  else if (xdg && *xdg) path = arena_printf(a, "%s/shardc", xdg);
  else if (home && *home) path = arena_printf(a, "%s/.cache/shardc", home);
  return path && *path && make_folder(path) ? path : NULL;
}

static const char *cache_path(Arena *a, const char *folder, Hash key) {
  return arena_printf(a, "%s/%016llx%016llx.o", folder, (unsigned long long)key.a,
                      (unsigned long long)key.b);
}

Bytes cache_get(Arena *a, const char *folder, Hash key) {
  Bytes none = {0}, b = cache_read_file(a, cache_path(a, folder, key));
  Hash stored;
  if (!b.at || b.n <= sizeof stored) return none;
  memcpy(&stored, b.at, sizeof stored);
  b.at += sizeof stored, b.n -= sizeof stored;
  Hash h = hash_bytes(key, b.at, b.n);
  return h.a == stored.a && h.b == stored.b ? b : none;
}

void cache_put(Arena *a, const char *folder, Hash key, Bytes b) {
  Hash h = hash_bytes(key, b.at, b.n);
  Bytes all = {arena_alloc(a, b.n + sizeof h), b.n + sizeof h};
  memcpy(all.at, &h, sizeof h);
  memcpy(all.at + sizeof h, b.at, b.n);
  output_write(a, cache_path(a, folder, key), all.at, all.n, 0666);
}
