/* Stopping. SIGINT, SIGTERM and SIGUSR1 are blocked in every thread; one thread waits for them. The
   first is remembered and the run saves and leaves with 75 at its next look; the second ends the
   process at once. No handler, no global. */
#include "run.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
  if (write(2, text, strlen(text)) < 0) return; /* nobody to tell */
}

static void *wait_for(void *argument) {
  Watch *w = argument;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM), sigaddset(&set, SIGUSR1);
  for (;;) {
    int number = 0;
    if (sigwait(&set, &number)) continue;
    if (atomic_load(&w->caught)) _exit(128 + number);
    atomic_store(&w->caught, number);
    say("\nstopping after this step; a second signal leaves at once\n");
  }
}

void rt_watch_start(Watch *w) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM), sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN); /* a closed terminal must not end a training run */
  if (pthread_create(&w->thread, NULL, wait_for, w)) pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
