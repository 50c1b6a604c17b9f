/* Peak rates of the threads of this machine: multiply-adds on registers in f32 and with what bf16
   is multiplied with, and triad with non-temporal stores. The reference of bench/cpu.

     bench_peak     prints GFLOP/s, GFLOP/s of bf16 and GB/s, best of some rounds, on as many
                    threads as BENCH_THREADS says (bench/team.h), with the instructions of the
                    target that BENCH_TARGET names (bench/loops.h)

   bf16 is multiplied with the fastest instructions of this processor: AMX tiles, pairs, or f32.
   Must not: need the compiler, which is not where a bundle runs (bench/cpu --pack). */
#include "loops.h"
#include "team.h"
#include <stdio.h>

enum { ROUNDS = 6 };

static void better(double *best, double rate) { *best = rate > *best ? rate : *best; }

int main(void) {
  TeamLoop *loop[3];
  int n = 0;
  loop[n++] = loop_wide;
  if (loop_has_pairs()) loop[n++] = loop_narrow;
  if (loop_has_matrix()) loop[n++] = loop_matrix;
  Team *team = team_start();
  double wide = 0, narrow = 0, moved = 0;
  for (int i = 0; i < ROUNDS; i++) {
    better(&wide, team_rate(team, loop_wide));
    for (int k = 0; k < n; k++) better(&narrow, team_rate(team, loop[k]));
    better(&moved, team_triad(team, 0));
  }
  printf("%.1f %.1f %.1f\n", 1e-9 * wide, 1e-9 * narrow, 1e-9 * moved);
  return 0;
}
