/* A limit for a trial in a process of its own: seconds of the processor, not of the clock, so that
   a machine with other work ends no trial early. Ends the process with SIGPROF. Must not: be used
   for trials that may wait for ever; those take no processor time. */
#ifndef SHARDC_TESTS_LIMIT_H
#define SHARDC_TESTS_LIMIT_H
#include <sys/time.h>

static inline void limit_processor_seconds(int seconds) {
  struct itimerval at = {.it_value.tv_sec = seconds};
  setitimer(ITIMER_PROF, &at, NULL);
}
#endif
