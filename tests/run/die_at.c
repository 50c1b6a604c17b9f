/* Preloaded into an executable whose messages fly: one rank kills itself, as kill -9 would, at a
   point of the communicating thread's queue (runtime/comm/flight.c) that follows from a count and
   from no clock. DIE_AT=start:N is the Nth message that is asked for, over:N the Nth that is over,
   wait:N the Nth time that the main thread waits; DIE_RANK says who. DIE_NOTE is a file: the time
   of death, or, of a run to its end, how often each came. Must not: be linked into anything. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { START, OVER, WAIT, POINTS };
static const char *const names[POINTS] = {"start", "over", "wait"};
static long counts[POINTS];

static const char *rank(void) {
  const char *r = getenv("OMPI_COMM_WORLD_RANK");
  return r ? r : getenv("RANK");
}

static int is_victim(void) {
  const char *who = getenv("DIE_RANK"), *me = rank();
  return who && me && !strcmp(who, me);
}

static void note(const char *words) {
  FILE *f = getenv("DIE_NOTE") ? fopen(getenv("DIE_NOTE"), "w") : NULL;
  if (f) fputs(words, f), fclose(f);
}

static void pass(int point) {
  long n = __atomic_add_fetch(&counts[point], 1, __ATOMIC_RELAXED);
  const char *at = getenv("DIE_AT"), *colon = at ? strchr(at, ':') : NULL;
  if (!colon || strncmp(at, names[point], (size_t)(colon - at)) || atol(colon + 1) != n) return;
  if (!is_victim()) return;
  struct timespec t;
  char words[64];
  clock_gettime(CLOCK_REALTIME, &t);
  snprintf(words, sizeof words, "%ld.%09ld\n", (long)t.tv_sec, t.tv_nsec);
  note(words);
  kill(getpid(), SIGKILL);
}

/* The names also have an older version, which dlsym may give. */
static void *next(const char *name) { return dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2"); }

int pthread_cond_signal(pthread_cond_t *c) {
  int (*real)(pthread_cond_t *) = (int (*)(pthread_cond_t *))next("pthread_cond_signal");
  pass(START);
  return real(c);
}

int pthread_cond_broadcast(pthread_cond_t *c) {
  int (*real)(pthread_cond_t *) = (int (*)(pthread_cond_t *))next("pthread_cond_broadcast");
  if (gettid() != getpid()) pass(OVER);
  return real(c);
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
  int (*real)(pthread_cond_t *, pthread_mutex_t *) =
      (int (*)(pthread_cond_t *, pthread_mutex_t *))next("pthread_cond_wait");
  if (gettid() == getpid()) pass(WAIT);
  return real(c, m);
}

__attribute__((destructor)) static void tell(void) {
  char words[128];
  snprintf(words, sizeof words, "%ld %ld %ld\n", counts[START], counts[OVER], counts[WAIT]);
  if (is_victim() && !getenv("DIE_AT")) note(words);
}
