/* Stopping. SIGINT, SIGTERM, SIGUSR1 and SIGHUP are blocked in every thread, from the first line of
   main on: libraries such as MPI's start threads of their own, and a signal that one of these would
   take ends the process. One thread waits for them. Until the run looks after it, a signal does
   what it does to any program; then the first is remembered, and the run saves and leaves with 75
   at its next look. Launchers such as timeout signal a process and then its group, a moment apart:
   what comes within a second of the first (SHARDC_GRACE) is the same request; later ones end the
   process at once. No handler, no global. */
#include "run.h"
#include "runtime/base/recorder.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void say(const char *text) {
  if (write(2, text, strlen(text)) < 0) return; /* nobody to tell */
}

/* SIGHUP only where it is not ignored: nohup means that the run goes on. */
static sigset_t stopping(void) {
  struct sigaction hang_up;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM), sigaddset(&set, SIGUSR1);
  if (!sigaction(SIGHUP, NULL, &hang_up) && hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

static void end_by(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  signal(number, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  raise(number);
  _exit(128 + number);
}

static void *wait_for(void *argument) {
  Watch *watch = argument;
  sigset_t set = stopping();
  double first = 0, grace = rt_seconds_of("SHARDC_GRACE", 1);
  for (;;) {
    int number = 0;
    if (sigwait(&set, &number)) continue;
    if (!atomic_load(&watch->looks)) end_by(number);
    if (atomic_load(&watch->caught)) {
      if (rt_now() - first >= grace) _exit(128 + number);
      continue;
    }
    first = rt_now();
    atomic_store(&watch->caught, number);
    Record *record = atomic_load(&watch->record);
    if (record) record->asked = number;
    say("\nstopping after this step; another signal after a second leaves at once\n");
  }
}

void rt_watch_start(Watch *watch) {
  sigset_t set = stopping();
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN); /* a closed terminal must not end a training run */
  signal(SIGXFSZ, SIG_IGN); /* nor a limit of file sizes: the write says so */
  if (pthread_create(&watch->thread, NULL, wait_for, watch))
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void rt_watch_look(Watch *watch) { atomic_store(&watch->looks, true); }
