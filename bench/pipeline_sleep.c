/* Linked into an executable by bench/pipeline, between its program and rt_launch (--wrap of ld): a
   kernel whose name holds a word of SLEEP, such as "fwd.attention=5,bwd.attention_grad=10", takes
   that number of milliseconds: it computes, and sleeps until they are over. A rank's stage may be
   slower by a factor: SLEEP_STAGES is "1,1,2,1", by rank. SLEEP_NOTE is a file to which each rank
   appends how many kernels slept. So a stage takes a known time of the wall, on however few
   processors the ranks are. Must not: be linked into anything else; change what kernels store. */
#include "rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void __real_rt_launch(rt_ctx *rt, const rt_kernel *k, void *const *buffers);
void __wrap_rt_launch(rt_ctx *rt, const rt_kernel *k, void *const *buffers);

static long slept;

static const char *rank(void) {
  const char *r = getenv("OMPI_COMM_WORLD_RANK");
  if (!r) r = getenv("RANK");
  return r ? r : "0";
}

/* Number i of the list "a,b,c"; 1 if there is none. */
static double number(const char *list, long i) {
  for (; list && i > 0; i--) list = strchr(list, ','), list += list != NULL;
  return list ? strtod(list, NULL) : 1;
}

/* Milliseconds that it sleeps; below 0: it runs. */
static double length_of(const char *name) {
  const char *words = getenv("SLEEP");
  while (words && *words) {
    char word[64];
    const char *is = strchr(words, '='), *next = strchr(words, ',');
    if (!is || (size_t)(is - words) >= sizeof word) break;
    memcpy(word, words, (size_t)(is - words)), word[is - words] = 0;
    if (strstr(name, word)) return strtod(is + 1, NULL);
    words = next ? next + 1 : NULL;
  }
  return -1;
}

static void note(void) {
  const char *path = getenv("SLEEP_NOTE");
  FILE *f = path ? fopen(path, "a") : NULL;
  if (f) fprintf(f, "%s %ld\n", rank(), slept), fclose(f);
}

/* From its begin on, so that what comes late of one does not add up. */
static void sleep_until(struct timespec begin, double ms) {
  int64_t at = begin.tv_nsec + (int64_t)(ms * 1e6);
  struct timespec until = {begin.tv_sec + at / 1000000000, at % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) {}
}

void __wrap_rt_launch(rt_ctx *rt, const rt_kernel *k, void *const *buffers) {
  struct timespec begin;
  double ms = length_of(k->name);
  clock_gettime(CLOCK_MONOTONIC, &begin);
  __real_rt_launch(rt, k, buffers);
  if (ms < 0) return;
  if (!slept++) atexit(note);
  sleep_until(begin, ms * number(getenv("SLEEP_STAGES"), atol(rank())));
}
