#include "staged_file.h"
#include "file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, STAGE = 1 << 20 };

/* O_DIRECT has another meaning for pipes. */
static bool set_direct(int fd, bool on) {
  struct stat status;
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fstat(fd, &status) || !S_ISREG(status.st_mode)) return false;
  return !fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT);
}

void rt_stage_begin(StagedFile *file, int fd) {
  *file = (StagedFile){.fd = fd, .bytes = aligned_alloc(PAGE, STAGE)};
  if (!file->bytes) rt_fail(701, "no memory");
  file->direct = set_direct(fd, true);
}

static void end_direct(StagedFile *file) {
  if (file->direct) set_direct(file->fd, false);
  file->direct = false;
}

/* Whatever goes wrong with direct writes is tried again without: it names the fault. */
static bool flush(StagedFile *file, Fault *f) {
  size_t done = 0;
  while (file->direct && done < file->have) {
    ssize_t k = write(file->fd, file->bytes + done, file->have - done);
    if (k > 0) done += (size_t)k;
    else if (k == 0 || errno != EINTR) end_direct(file);
    if (done % PAGE) end_direct(file);
  }
  bool ok = rt_write_all(file->fd, file->bytes + done, (int64_t)(file->have - done), f);
  file->have = 0;
  return ok;
}

bool rt_stage_put(StagedFile *file, const void *data, int64_t n, Fault *f) {
  for (const uint8_t *p = data; n > 0;) {
    size_t room = STAGE - file->have, k = (size_t)n < room ? (size_t)n : room;
    memcpy(file->bytes + file->have, p, k);
    file->have += k, p += k, n -= (int64_t)k;
    if (file->have == STAGE && !flush(file, f)) return false;
  }
  return true;
}

bool rt_stage_end(StagedFile *file, bool ok, Fault *f) {
  end_direct(file);
  if (ok) ok = flush(file, f);
  free(file->bytes);
  return ok;
}
