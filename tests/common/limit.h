/* A limit for a trial in a process of its own: seconds of the processor, not of the clock, so that
   a machine with other work ends no trial early (SIGPROF). What waits for ever takes none of these:
   ten times as many seconds of the clock end it, too (SIGALRM). */
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
