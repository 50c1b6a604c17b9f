/* Preloaded into shardc: after FORKS calls of fork, no further process can be started. Must not: be
   linked into anything. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

pid_t fork(void) {
  static int done;
  const char *allowed = getenv("FORKS");
  if (done++ < (allowed ? atoi(allowed) : 0)) return (pid_t)syscall(SYS_fork);
  errno = EAGAIN;
  return -1;
}
