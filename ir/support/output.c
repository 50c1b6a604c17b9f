/* Writing files: see output.h. The temporary file is made with O_EXCL under a random name, so that
   no other process that can write the folder puts a link in its way. Must not: follow a link but
   the one that the user named. */
#include "output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static bool in_place(const char *path) {
  struct stat status;
  return !lstat(path, &status) && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

static const char *random_name(Arena *arena, const char *path) {
  const char *slash = strrchr(path, '/');
  uint64_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number) return NULL;
  return arena_printf(arena, "%.*sshardc-%016llx.tmp", slash ? (int)(slash - path) + 1 : 0, path,
                      (unsigned long long)number);
}

static int make(Output *output, Arena *arena, int mode) {
  for (int i = 0; i < 100; i++) {
    if (!(output->part = random_name(arena, output->path))) return -1;
    int fd = open(output->part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

bool output_open(Output *output, Arena *arena, const char *path, int mode) {
  struct stat status;
  *output = (Output){.fd = -1, .path = path};
  if (!stat(path, &status) && S_ISDIR(status.st_mode)) return errno = EISDIR, false;
  output->fd = in_place(path) ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode)
                              : make(output, arena, mode);
  if (output->fd < 0) output->part = NULL;
  return output->fd >= 0;
}

bool output_close(Output *output, bool good) {
  int why = errno;
  if (output->fd < 0) return false;
  if (close(output->fd) && good) good = false, why = errno;
  if (good && output->part && rename(output->part, output->path)) good = false, why = errno;
  if (!good && output->part) unlink(output->part);
  output->fd = -1, errno = why;
  return good;
}

bool output_write(Arena *arena, const char *path, const void *data, size_t n, int mode) {
  Output output;
  const char *at = data;
  if (!output_open(&output, arena, path, mode)) return false;
  while (n) {
    ssize_t put = write(output.fd, at, n);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) break;
    at += put, n -= (size_t)put;
  }
  return output_close(&output, n == 0);
}

/* A FIFO is not opened: that would wait for its reader. */
bool output_possible(Arena *arena, const char *path) {
  Output output;
  struct stat status;
  if (in_place(path) && !stat(path, &status))
    return S_ISDIR(status.st_mode) ? (errno = EISDIR, false) : !access(path, W_OK);
  if (in_place(path)) return true; /* a link that leads nowhere yet */
  if (!output_open(&output, arena, path, 0666)) return false;
  output_close(&output, false);
  return true;
}

/* Is there a character at `c` that a terminal obeys? Of ASCII, or of U+0080 .. U+009F. */
static bool is_control(const unsigned char *c) {
  return (*c < 0x20 && *c != '\t' && *c != '\n') || *c == 0x7f ||
         (*c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0);
}

void output_shown(FILE *out, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const unsigned char *c = (const unsigned char *)text + i;
    bool obeyed = is_control(c);
    fputc(obeyed ? '?' : *c, out);
    i += obeyed && *c == 0xC2;
  }
}

void output_say(FILE *out, const char *format, ...) {
  char *text = NULL;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  if (n < 0) return;
  output_shown(out, text, (size_t)n);
  free(text);
}
