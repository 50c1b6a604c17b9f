/* Preloaded into shardc: after FORKS calls of fork or vfork, no further process can be started;
   with KILLED those that are started die at once, as of a machine that has no memory left. Must
   not: be linked into anything. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

pid_t fork(void) {
  static int done;
  const char *allowed = getenv("FORKS");
  if (done++ < (allowed ? atoi(allowed) : 0)) {
    pid_t pid = (pid_t)syscall(SYS_fork);
    if (!pid && getenv("KILLED")) raise(SIGKILL);
    return pid;
  }
  errno = EAGAIN;
  return -1;
}

/* Callers of vfork also work with a copy of the process. */
pid_t vfork(void) { return fork(); }
