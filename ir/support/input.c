/* Whole text files: models, IR, records. Whatever reads a text of unknown origin reads it here.

   A path may name what never ends (/dev/zero) or never begins (a FIFO that nobody writes to): only
   regular files, pipes with a writer and standard input are read, and no more than 1 GiB. */
#include "input.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t MOST_TEXT = (size_t)1 << 30;

static int refuse(int fd, int error) {
  close(fd);
  errno = error;
  return -1;
}

static int open_text(const char *path) {
  struct stat info;
  if (!strcmp(path, "-")) return dup(STDIN_FILENO);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer is empty */
  if (fd < 0) return -1;
  if (fstat(fd, &info)) return refuse(fd, errno);
  if (S_ISDIR(info.st_mode)) return refuse(fd, EISDIR);
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode)) return refuse(fd, ENODEV);
  if (S_ISREG(info.st_mode) && (size_t)info.st_size > MOST_TEXT) return refuse(fd, EFBIG);
  return fd;
}

typedef struct Growing {
  char *at;
  size_t n, cap;
} Growing;

static char *room(Arena *a, Growing *t) {
  if (t->cap - t->n > 1) return t->at + t->n;
  size_t cap = t->cap ? t->cap * 2 : 1 << 16;
  char *more = arena_alloc(a, cap);
  if (t->n) memcpy(more, t->at, t->n);
  t->at = more, t->cap = cap;
  return t->at + t->n;
}

static bool read_all(Arena *a, int fd, bool pipe, Growing *t) {
  for (bool waited = false;;) {
    char *to = room(a, t);
    ssize_t got = read(fd, to, t->cap - t->n - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && !waited) { /* there is a writer: it may take its time */
      waited = true, fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      continue;
    }
    if (got <= 0) return got == 0 && (t->n || !pipe || (errno = ENODATA, false));
    t->n += (size_t)got;
    if (t->n > MOST_TEXT) return errno = EFBIG, false;
  }
}

char *text_read(Ctx *c, const char *path, size_t *n) {
  Growing t = {0};
  if (c->input && !strcmp(path, c->input_path)) return *n = c->input_length, c->input;
  int fd = open_text(path);
  if (fd < 0) return NULL;
  struct stat info;
  /* standard input goes on where it was read to, a file that it comes from too */
  bool once = fstat(fd, &info) || !S_ISREG(info.st_mode) || !strcmp(path, "-");
  bool good = read_all(c->arena, fd, once && S_ISFIFO(info.st_mode) && strcmp(path, "-"), &t);
  int error = errno;
  close(fd);
  errno = error;
  if (!good) return NULL;
  t.at[t.n] = 0, *n = t.n;
  if (!once) return t.at;
  c->input = t.at, c->input_length = t.n;
  c->input_path = arena_strndup(c->arena, path, strlen(path));
  return t.at;
}
