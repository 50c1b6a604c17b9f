/* The kernel cache, its hash and its files: see cache.h. */
#include "cache.h"
#include "ir/support/diag.h"
#include "ir/support/output.h"
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- hash ---- */

CacheKey hash_begin(void) { return sha256_begin(); }

CacheKey hash_bytes(CacheKey h, const void *bytes, size_t n) {
  sha256_add(&h, bytes, n);
  return h;
}

CacheKey hash_text(CacheKey h, const char *text) { return hash_bytes(h, text, strlen(text) + 1); }

const char *hash_words(Arena *arena, CacheKey h, int digits) {
  must(digits > 0 && digits <= 2 * SHA256_BYTES, "a digest of %d digits", digits);
  uint8_t sum[SHA256_BYTES];
  char text[2 * SHA256_BYTES + 1];
  sha256_end(h, sum);
  for (int i = 0; i < SHA256_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", sum[i]);
  return arena_printf(arena, "%.*s", digits, text);
}

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

static bool of_others(const struct stat *st) {
  return (st->st_uid != geteuid() && st->st_uid != 0) || st->st_mode & (S_IWGRP | S_IWOTH);
}

static CacheBytes read_file(Arena *arena, const char *path, bool own) {
  CacheBytes bytes = {0};
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return bytes;
  if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !(own && of_others(&st))) {
    bytes.n = (size_t)st.st_size;
    bytes.at = arena_alloc(arena, bytes.n + 1);
    if (!read_all(fd, bytes.at, bytes.n)) bytes.at = NULL;
  }
  close(fd);
  return bytes;
}

CacheBytes cache_read_file(Arena *arena, const char *path) { return read_file(arena, path, false); }

/* ---- this program ---- */

/* Looks through the notes of one loaded object; the first object is the program itself. */
static int find_build_id(struct dl_phdr_info *object, size_t size, void *found) {
  (void)size;
  CacheBytes *id = found;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &object->dlpi_phdr[i];
    if (p->p_type != PT_NOTE) continue;
    char *at = (char *)object->dlpi_addr + p->p_vaddr, *end = at + p->p_memsz;
    while (end - at > (ptrdiff_t)sizeof(ElfW(Nhdr))) {
      const ElfW(Nhdr) *note = (const void *)at;
      char *name = at + sizeof *note, *words = name + (note->n_namesz + 3) / 4 * 4;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && !memcmp(name, "GNU", 4))
        *id = (CacheBytes){words, note->n_descsz};
      at = words + (note->n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

CacheKey hash_program(CacheKey h, Arena *arena) {
  CacheBytes self = {0};
  dl_iterate_phdr(find_build_id, &self);
  if (!self.at) self = cache_read_file(arena, "/proc/self/exe");
  return hash_bytes(h, self.at ? self.at : "", self.at ? self.n : 0);
}

/* ---- the cache ---- */

/* The folders above it may be open to other users; the folder itself is not. */
static bool make_folder(char *path) {
  for (char *c = path + 1; *c; c++) {
    if (*c != '/') continue;
    *c = 0;
    mkdir(path, 0777);
    *c = '/';
  }
  return !mkdir(path, 0700) || errno == EEXIST;
}

const char *cache_folder(Arena *arena, const char **why) {
  const char *own = getenv("SHARDC_CACHE_DIR"), *xdg = getenv("XDG_CACHE_HOME"),
             *home = getenv("HOME");
  struct stat st;
  char *path = NULL;
  *why = NULL;
  if (own) path = arena_printf(arena, "%s", own);
  else if (xdg && *xdg) path = arena_printf(arena, "%s/shardc", xdg);
  else if (home && *home) path = arena_printf(arena, "%s/.cache/shardc", home);
  if (!path || !*path || !make_folder(path) || stat(path, &st)) return NULL;
  if (!of_others(&st)) return path;
  bool theirs = st.st_uid != geteuid() && st.st_uid != 0;
  *why = theirs ? arena_printf(arena, "`%s` belongs to another user", path)
                : arena_printf(arena, "others can write `%s` (mode %04o)", path,
                               (unsigned)st.st_mode & 07777);
  return NULL;
}

enum { FOLDERS = 256, MIB_OF_FOLDER = 1024 / FOLDERS };

static const char *cache_part(Arena *arena, const char *folder, CacheKey key) {
  return arena_printf(arena, "%s/%s", folder, hash_words(arena, key, 2));
}

static const char *cache_path(Arena *arena, const char *folder, CacheKey key) {
  const char *digits = hash_words(arena, key, 2 * SHA256_BYTES);
  return arena_printf(arena, "%s/%s.o", cache_part(arena, folder, key), digits + 2);
}

CacheBytes cache_get(Arena *arena, const char *folder, CacheKey key) {
  const char *path = cache_path(arena, folder, key);
  CacheBytes none = {0}, bytes = read_file(arena, path, true);
  uint8_t sum[SHA256_BYTES];
  if (!bytes.at || bytes.n <= sizeof sum) return none;
  const char *stored = bytes.at;
  bytes.at += sizeof sum, bytes.n -= sizeof sum;
  sha256_end(hash_bytes(key, bytes.at, bytes.n), sum);
  if (memcmp(sum, stored, sizeof sum)) return none;
  utimensat(AT_FDCWD, path, NULL, 0); /* used now */
  return bytes;
}

/* One object of 16: a scan of the folder for each of them slows compiles, and a folder that exceeds
   its part by a few objects does no harm. */
static bool trims(Arena *arena, CacheKey key) { return hash_words(arena, key, 3)[2] == '0'; }

void cache_put(Arena *arena, const char *folder, CacheKey key, CacheBytes bytes) {
  must(bytes.at && bytes.n, "nothing is put into the cache of kernels");
  CacheBytes all = {arena_alloc(arena, bytes.n + SHA256_BYTES), bytes.n + SHA256_BYTES};
  sha256_end(hash_bytes(key, bytes.at, bytes.n), (uint8_t *)all.at);
  memcpy(all.at + SHA256_BYTES, bytes.at, bytes.n);
  const char *part = cache_part(arena, folder, key);
  mkdir(part, 0700);
  output_write(arena, cache_path(arena, folder, key), all.at, all.n, 0600);
  if (trims(arena, key)) cache_trim(arena, part, (int64_t)MIB_OF_FOLDER << 20);
}
