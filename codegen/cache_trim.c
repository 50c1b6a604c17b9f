/* The size of the kernel cache: removes the objects of a folder that were not used for the longest
   time. Compilers that trim at the same moment may remove more than needed; a removed object is
   compiled again. Must not: follow links, or remove anything but files. */
#include "cache.h"
#include "ir/support/vec.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct CacheFile {
  const char *name;
  struct timespec used;
  int64_t bytes;
} CacheFile;

typedef VEC(CacheFile) CacheFiles;

static int newest_first(const void *left, const void *right) {
  const CacheFile *a = left, *b = right;
  if (a->used.tv_sec != b->used.tv_sec) return a->used.tv_sec < b->used.tv_sec ? 1 : -1;
  if (a->used.tv_nsec != b->used.tv_nsec) return a->used.tv_nsec < b->used.tv_nsec ? 1 : -1;
  return strcmp(a->name, b->name);
}

static CacheFiles files_of(Arena *arena, DIR *folder) {
  CacheFiles files = {0};
  struct stat st;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW)) continue;
    if (!S_ISREG(st.st_mode)) continue;
    const char *name = arena_printf(arena, "%s", entry->d_name);
    vec_push(arena, files, (CacheFile){name, st.st_mtim, (int64_t)st.st_size});
  }
  return files;
}

void cache_trim(Arena *arena, const char *path, int64_t most) {
  DIR *folder = opendir(path);
  if (!folder) return;
  CacheFiles files = files_of(arena, folder);
  int64_t all = 0, kept = 0;
  for (uint32_t i = 0; i < files.n; i++) all += files.at[i].bytes;
  if (all > most) qsort(files.at, files.n, sizeof *files.at, newest_first);
  for (uint32_t i = 0; all > most && i < files.n; i++) {
    kept += files.at[i].bytes;
    if (i && kept > most / 4 * 3) unlinkat(dirfd(folder), files.at[i].name, 0);
  }
  closedir(folder);
}
