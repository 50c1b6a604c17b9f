/* The snapshot of `save async = on`: memory of the host that holds a copy of all that a checkpoint
   stores, while training goes on and a thread writes the copy to files. It is an arena (SNAPSHOT),
   so it is allocated once and is part of every sum of host memory. Frozen parameters are not part
   of it: they never change. Ranges follow the order of the globals; neighbours in one arena are
   joined. Must not: list values that a checkpoint leaves out (`derived`). */
#include "budget.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/background_order.h"
#include "ir/support/num.h"

SnapshotRanges module_snapshot_ranges(const Module *m) {
  SnapshotRanges ranges = {0};
  int64_t at = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (!global_is_kept(m, global)) continue;
    int64_t bytes = round_up(global_bytes(m, global), CACHE_LINE), from = global->storage.at;
    SnapshotRange *last = ranges.n ? &vec_last(ranges) : NULL;
    bool follows = last && last->arena == global_arena(global) && last->from + last->bytes == from;
    if (follows) last->bytes += bytes;
    else vec_push(m->arena, ranges, (SnapshotRange){global_arena(global), from, bytes, at});
    at += bytes;
  }
  return ranges;
}

int64_t module_snapshot(const Module *m) {
  SnapshotRanges ranges = module_snapshot_ranges(m);
  return ranges.n ? vec_last(ranges).at + vec_last(ranges).bytes : 0;
}
