/* Cuts of family column for GPUs: vectors of adjacent columns in a warp where columns are
   consecutive, else threads along the reduced space; with enough splits of it to fill the GPU with
   CTAs, and a minimum of elements for each thread. */
#include "gpu.h"
#include "ir/support/num.h"
#include "ir/kernel/gpu_tile.h"

enum { THREADS = 256, ACROSS = 32, TURN = 4, WANTED = 512, LEAST = 8, SPLITS = 512, MANY = 4096 };

void gpu_tune_column(Module *m, Fn *k) {
  ReducedSpace space = column_space(k);
  GpuRows rows = gpu_rows_of(m, k, &space);
  bool side = gpu_consecutive(k, &rows.kept, rows.reference);
  int lanes = gpu_lanes(m, k, side ? &rows.kept : &rows.over, rows.nroots, rows.root);
  int64_t columns = nest_count(&rows.kept) / (side ? lanes : 1),
          length = nest_count(&rows.over) / (side ? 1 : lanes);
  int64_t across = 1, threads = THREADS;
  while (side && across < ACROSS && across < columns) across *= 2;
  while (threads > 32 && threads / across > length) threads /= 2;
  int64_t joiners = threads / across, blocks = ceil_div(columns, across);
  must(joiners >= 1, "kernel %s: %lld threads for %lld columns", k->name, (long long)threads,
       (long long)across);
  int64_t splits = min_i64(ceil_div(WANTED, blocks), ceil_div(length, joiners * LEAST));
  if (splits > SPLITS) splits = SPLITS;
  while (splits > 1 && (splits - 1) * ceil_div(length, splits) >= length)
    splits--; /* none is empty */
  int64_t all = nest_count(&rows.kept), last = 1;
  while (all < MANY && last < 32 && 2 * last <= splits)
    last *= 2; /* every one has a split to join */
  int64_t tile[COLUMN_TILES] = {lanes, across, splits, TURN, last};
  int64_t all_threads[] = {threads, THREADS};
  gpu_set(m, k, side ? "columns" : "along", COLUMN_TILES, tile, splits > 1 ? 2 : 1, all_threads);
}
