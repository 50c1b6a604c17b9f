/* What two threads of this machine can do: multiply-adds on registers in f32 and with what bf16 is
   multiplied with, and triad past the caches. The reference of bench/cpu.

     bench_peak     prints GFLOP/s, GFLOP/s of bf16 and GB/s, best of some rounds */
#include "bench/team.h"
#include <stdio.h>

enum { ROUNDS = 6 };

static void better(double *best, double rate) { *best = rate > *best ? rate : *best; }

int main(void) {
  Team *team = team_start();
  double wide = 0, narrow = 0, moved = 0;
  for (int i = 0; i < ROUNDS; i++) {
    better(&wide, team_rate(team, loop_of(ELEM_f32)));
    better(&narrow, team_rate(team, loop_of(ELEM_bf16)));
    better(&moved, team_triad(team));
  }
  printf("%.1f %.1f %.1f\n", 1e-9 * wide, 1e-9 * narrow, 1e-9 * moved);
  return 0;
}
