/* Room on the stacks of a process: of its main thread, which may grow up to the limit of the shell
   (`ulimit -s`), and of the threads that it starts later. A smaller limit is raised; below a hard
   limit the process would end in a fault of memory, so that it says so first. Inline, so that the
   runtime may use it too. Must not: lower a limit. */
#ifndef SHARDC_STACK_ROOM_H
#define SHARDC_STACK_ROOM_H
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>

/* Threads get the limit that held when the process began, unless they are given another one. */
static inline bool stack_of_threads(size_t bytes) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return false;
  bool good =
      !pthread_attr_setstacksize(&attributes, bytes) && !pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  return good;
}

/* False: the limit is *had bytes, and may not be raised to `least`. */
static inline bool stack_room(size_t least, size_t *had) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= least) return true;
  *had = (size_t)limit.rlim_cur;
  limit.rlim_cur = least;
  return !setrlimit(RLIMIT_STACK, &limit) && stack_of_threads(least);
}
#endif
