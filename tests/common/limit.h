/* A limit for a trial in a process of its own: seconds of the processor, not of the clock, so that
   a machine with other work ends no trial early (SIGPROF). A process that waits for ever uses no
   processor time: ten times the limit in seconds of the clock also ends it (SIGALRM). */
#ifndef SHARDC_TESTS_LIMIT_H
#define SHARDC_TESTS_LIMIT_H
#include <sys/time.h>
#include <unistd.h>

static inline void limit_processor_seconds(int seconds) {
  struct itimerval at = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &at, NULL);
  alarm(10 * (unsigned)seconds);
}
#endif
