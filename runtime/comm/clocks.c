/* How far the clock of each rank is ahead of that of rank 0: bounds, not estimates.

   Ranks on one kernel and in one time namespace read the same clock, so no measurement is needed.
   Other ranks meet several times in an all-reduce over all ranks, which no rank leaves before every
   rank has entered. So in each meeting rank 0 left after the other rank entered, and vice versa:

     came(other) - left(0)  <=  ahead(other)  <=  left(other) - came(0)

   This assumes nothing about the time of a message in either direction. All meetings hold together:
   the largest lower bound and the smallest upper bound count. Ranks of one machine share a clock
   and therefore their bounds. For a period of time, bounds are measured before and after: if one
   offset satisfies both, it is used for the whole period; otherwise the clocks drift, and a linear
   function is used. Must not: compare times of two ranks anywhere else. */
#include "clocks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MEETINGS = 64 };

/* FNV-1a of the kernel's number of this boot and the name of the time namespace. */
static uint64_t clock_name(void) {
  char text[256] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
  size_t n = file ? fread(text, 1, 64, file) : 0;
  if (file) fclose(file);
  ssize_t more = readlink("/proc/self/ns/time", text + n, sizeof text - n - 1);
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < n + (size_t)(more > 0 ? more : 0); i++)
    hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
  return hash;
}

ClockBound rt_clock_of_meetings(const double (*first)[2], const double (*other)[2], int n) {
  ClockBound bound = {0, -INFINITY, INFINITY};
  for (int i = 0; i < n; i++) {
    bound.low = fmax(bound.low, other[i][0] - first[i][1]);
    bound.high = fmin(bound.high, other[i][1] - first[i][0]);
  }
  return bound;
}

/* The narrowest bounds among the ranks that share a clock. */
static ClockBound shared(ClockBound mine, const uint64_t *clocks, const ClockBound *all, int ranks,
                         uint64_t clock) {
  for (int i = 0; i < ranks; i++)
    if (clocks[i] == clock)
      mine.low = fmax(mine.low, all[i].low), mine.high = fmin(mine.high, all[i].high);
  return mine;
}

static ClockBound meet(Comm *c, const uint64_t *clocks) {
  int ranks = rt_comm_world(c), me = rt_comm_rank(c);
  double first[MEETINGS][2], mine[MEETINGS][2];
  ClockBound *all = rt_alloc(sizeof *all * (size_t)ranks);
  for (int i = 0; i < MEETINGS; i++) {
    mine[i][0] = rt_now();
    rt_comm_wait(c, "the clocks");
    mine[i][1] = rt_now();
  }
  memcpy(first, mine, sizeof first);
  rt_comm_broadcast(c, "the clocks", first, sizeof first);
  ClockBound bound = rt_clock_of_meetings(first, mine, MEETINGS);
  if (clocks[me] == clocks[0]) bound.low = bound.high = 0;
  rt_comm_gather(c, "the clocks", &bound, all, sizeof bound);
  bound = shared(bound, clocks, all, ranks, clocks[me]);
  free(all);
  return bound;
}

ClockBound rt_clock_bound(Comm *c) {
  int ranks = rt_comm_world(c);
  uint64_t mine = clock_name(), *clocks = rt_alloc(sizeof *clocks * (size_t)ranks);
  rt_comm_gather(c, "the clocks", &mine, clocks, sizeof mine);
  bool one = true;
  for (int i = 0; i < ranks; i++) one &= clocks[i] == clocks[0];
  ClockBound bound = one ? (ClockBound){0} : meet(c, clocks);
  bound.at = rt_now();
  free(clocks);
  return bound;
}

typedef struct ClockLine { /* how far ahead, then and then */
  double before, after;
} ClockLine;

/* A number that both bounds allow; if there is none, clocks drift: the middles of both. */
static ClockLine line(const ClockBound *before, const ClockBound *after) {
  double low = fmax(before->low, after->low), high = fmin(before->high, after->high);
  if (low <= high) return (ClockLine){(low + high) / 2, (low + high) / 2};
  return (ClockLine){(before->low + before->high) / 2, (after->low + after->high) / 2};
}

double rt_clock_ahead(const ClockBound *before, const ClockBound *after, double now) {
  ClockLine l = line(before, after);
  if (after->at <= before->at) return l.before;
  return l.before + (l.after - l.before) * (now - before->at) / (after->at - before->at);
}

static double error_of(const ClockBound *bound, double ahead) {
  return fmax(bound->high - ahead, ahead - bound->low);
}

double rt_clock_error(const ClockBound *before, const ClockBound *after) {
  ClockLine l = line(before, after);
  return fmax(error_of(before, l.before), error_of(after, l.after));
}
