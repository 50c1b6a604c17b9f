/* A library loaded before libc (LD_PRELOAD) for tests of faults. It counts the calls that change
   files: write, fsync, rename, mkdir, open with O_CREAT.

   FAIL_AT=k: call k finds the disk full; with FAIL_ALL also every later one. KILL_AT=k: the process
   dies before call k, as with kill -9. COUNT=file: the number of calls is written there at the end.
   NO_LOCKS: flock fails as on a file system without locks. NO_EXCHANGE: two names cannot be
   exchanged, as over NFS. WAITS=file: the first mkdir of a new folder makes file.here and continues
   once file exists. SLOW=milliseconds: each write and fsync of a thread
   other than the main one takes that much longer. Must not: touch the standard streams. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int calls; /* of a process that lives for one test */

static int knob(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

/* Counts; true if this call is to fail. */
static int due(void) {
  int k = atomic_fetch_add(&calls, 1) + 1, at = knob("FAIL_AT");
  if (knob("KILL_AT") == k) kill(getpid(), SIGKILL);
  return at && (getenv("FAIL_ALL") ? k >= at : k == at);
}

static void slow(void) {
  if (gettid() != getpid()) usleep((unsigned)knob("SLOW") * 1000);
}

static int full(void) { return errno = ENOSPC, -1; }

ssize_t write(int fd, const void *data, size_t n) {
  ssize_t (*next)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  slow();
  return fd > 2 && due() ? full() : next(fd, data, n);
}

int fsync(int fd) {
  int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
  slow();
  return due() ? full() : next(fd);
}

int rename(const char *from, const char *to) {
  int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
  return due() ? full() : next(from, to);
}

int flock(int fd, int what) {
  int (*next)(int, int) = dlsym(RTLD_NEXT, "flock");
  return getenv("NO_LOCKS") ? (errno = ENOLCK, -1) : next(fd, what);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned how) {
  int (*next)(int, const char *, int, const char *, unsigned) = dlsym(RTLD_NEXT, "renameat2");
  if (getenv("NO_EXCHANGE")) return errno = EINVAL, -1;
  return due() ? full() : next(from_folder, from, to_folder, to, how);
}

static void wait_for(const char *file) {
  char here[4096];
  int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  if (!file || !access(file, F_OK)) return;
  snprintf(here, sizeof here, "%s.here", file);
  close(next(here, O_WRONLY | O_CREAT, 0666));
  while (access(file, F_OK)) usleep(2000);
}

int mkdir(const char *path, mode_t mode) {
  int (*next)(const char *, mode_t) = dlsym(RTLD_NEXT, "mkdir");
  struct stat s;
  if (stat(path, &s)) wait_for(getenv("WAITS"));
  return stat(path, &s) && due() ? full() : next(path, mode);
}

int open(const char *path, int flags, ...) {
  va_list a;
  va_start(a, flags);
  int mode = va_arg(a, int), (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  va_end(a);
  return flags & O_CREAT && due() ? full() : next(path, flags, mode);
}

__attribute__((destructor)) static void tell(void) {
  const char *path = getenv("COUNT");
  int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");
  int fd = path ? next(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
  if (fd >= 0) dprintf(fd, "%d", atomic_load(&calls)), close(fd);
}
