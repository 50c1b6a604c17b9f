/* Whole text files: models, IR, records. Every text of unknown origin is read through this file.

   A path may name a file without an end (/dev/zero) or one that never begins (a FIFO without a
   writer): only regular files, pipes with a writer and standard input are read, and no more than 1
   GiB. */
#include "input.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
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

static char *room(Arena *arena, Growing *growing) {
  if (growing->cap - growing->n > 1) return growing->at + growing->n;
  size_t cap = growing->cap ? growing->cap * 2 : 1 << 16;
  char *more = arena_alloc(arena, cap);
  if (growing->n) memcpy(more, growing->at, growing->n);
  growing->at = more, growing->cap = cap;
  return growing->at + growing->n;
}

static bool read_all(Arena *arena, int fd, bool pipe, Growing *growing) {
  for (bool waited = false;;) {
    char *to = room(arena, growing);
    ssize_t got = read(fd, to, growing->cap - growing->n - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN && !waited) { /* there is a writer: it may take its time */
      waited = true, fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      continue;
    }
    if (got <= 0) return got == 0 && (growing->n || !pipe || (errno = ENODATA, false));
    growing->n += (size_t)got;
    if (growing->n > MOST_TEXT) return errno = EFBIG, false;
  }
}

static const OpenText *open_elsewhere(const Ctx *c, const char *path) {
  char real[PATH_MAX];
  const char *name = c->open && realpath(path, real) ? real : path;
  for (const OpenText *open = c->open; open; open = open->next)
    if (!strcmp(open->path, name)) return open;
  return NULL;
}

bool text_was_read(const Ctx *c, const char *path) {
  struct stat info;
  if (stat(path, &info) || !S_ISREG(info.st_mode)) return false;
  for (uint32_t i = 0; i < c->read.n; i++)
    if (c->read.at[i].device == info.st_dev && c->read.at[i].number == info.st_ino) return true;
  return false;
}

void text_note(Ctx *c, const char *path) {
  struct stat info;
  if (!stat(path, &info)) vec_push(c->arena, c->read, (FileId){info.st_dev, info.st_ino});
}

char *text_read(Ctx *c, const char *path, size_t *n) {
  Growing growing = {0};
  const OpenText *open = open_elsewhere(c, path);
  if (open) return *n = open->length, arena_strndup(c->arena, open->text, open->length);
  if (c->input && !strcmp(path, c->input_path)) return *n = c->input_length, c->input;
  int fd = open_text(path);
  if (fd < 0) return NULL;
  struct stat info;
  /* standard input goes on where it was read to, a file that it comes from too */
  bool once = fstat(fd, &info) || !S_ISREG(info.st_mode) || !strcmp(path, "-");
  bool good = read_all(c->arena, fd, once && S_ISFIFO(info.st_mode) && strcmp(path, "-"), &growing);
  int error = errno;
  close(fd);
  errno = error;
  if (!good) return NULL;
  growing.at[growing.n] = 0, *n = growing.n;
  vec_push(c->arena, c->read, (FileId){info.st_dev, info.st_ino});
  if (!once) return growing.at;
  c->input = growing.at, c->input_length = growing.n;
  c->input_path = arena_strndup(c->arena, path, strlen(path));
  return growing.at;
}

FolderNames files_ending(Arena *a, const char *folder, const char *ending) {
  FolderNames names = {0};
  struct dirent **at;
  size_t end = strlen(ending);
  int n = scandir(folder, &at, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    const char *name = at[i]->d_name;
    size_t length = strlen(name);
    if (length > end && !strcmp(name + length - end, ending))
      vec_push(a, names, arena_strndup(a, name, length - end));
    free(at[i]);
  }
  if (n >= 0) free(at);
  return names;
}
