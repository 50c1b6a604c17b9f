/* Writing files: see output.h. The temporary file is made with O_EXCL under a random name, so that
   nobody who can write the folder can put a link in its way. Must not: follow a link but the one
   that the user named. */
#include "ir/support/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static bool in_place(const char *path) {
  struct stat s;
  return !lstat(path, &s) && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode);
}

static const char *random_name(Arena *a, const char *path) {
  const char *slash = strrchr(path, '/');
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return NULL;
  return arena_printf(a, "%.*sshardc-%016llx.tmp", slash ? (int)(slash - path) + 1 : 0, path,
                      (unsigned long long)number);
}

static int make(Output *o, Arena *a, int mode) {
  for (int i = 0; i < 100; i++) {
    if (!(o->part = random_name(a, o->path))) return -1;
    int fd = open(o->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

bool output_open(Output *o, Arena *a, const char *path, int mode) {
  struct stat s;
  *o = (Output){.fd = -1, .path = path};
  if (!stat(path, &s) && S_ISDIR(s.st_mode)) return errno = EISDIR, false;
  o->fd = in_place(path) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
                         : make(o, a, mode);
  if (o->fd < 0) o->part = NULL;
  return o->fd >= 0;
}

bool output_close(Output *o, bool good) {
  int why = errno;
  if (o->fd < 0) return false;
  if (close(o->fd) && good) good = false, why = errno;
  if (good && o->part && rename(o->part, o->path)) good = false, why = errno;
  if (!good && o->part) unlink(o->part);
  o->fd = -1, errno = why;
  return good;
}

bool output_write(Arena *a, const char *path, const void *data, size_t n, int mode) {
  Output o;
  const char *at = data;
  if (!output_open(&o, a, path, mode)) return false;
  while (n) {
    ssize_t put = write(o.fd, at, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    at += put, n -= (size_t)put;
  }
  return output_close(&o, n == 0);
}

/* A FIFO is not opened: that would wait for its reader. */
bool output_possible(Arena *a, const char *path) {
  Output o;
  struct stat s;
  if (in_place(path) && !stat(path, &s))
    return S_ISDIR(s.st_mode) ? (errno = EISDIR, false) : !access(path, W_OK);
  if (in_place(path)) return true; /* a link that leads nowhere yet */
  if (!output_open(&o, a, path, 0666)) return false;
  output_close(&o, false);
  return true;
}
