/* Tuning of family row: along which dim lanes run, how many rows are a unit, how many vectors of a
   row are summed at once.

   Lanes run along the row where its elements are consecutive, in one buffer or in each of those
   that it is made of; over neighbouring rows where those are; else there are none. Short
   expressions are unrolled, so that additions do not wait for each other. */
#include "ir/kernel/row_kept.h"
#include "gpu.h"
#include "tune.h"

enum { ROWS = 64, SIMPLE = 10, UNROLL = 4 };

/* Ops that one walk evaluates per element to get v: up to other reductions. */
static int ops_below(const Fn *k, ValueId v, bool *seen) {
  const Op *o = value_def(k, v);
  if (!o || seen[v] || !(op_flags(o->code) & POINT)) return 0;
  seen[v] = true;
  int n = o->code == OP_exp || o->code == OP_tanh || o->code == OP_sigmoid ? SIMPLE : 1;
  for (uint32_t i = 0; i < o->nin; i++) n += ops_below(k, o->in[i], seen);
  return n;
}

static int64_t unroll_of(Module *m, const Fn *k, const Reductions *r, const int *level, int pass) {
  bool *seen = ARENA_ARRAY(m->arena, bool, k->values.n + 1);
  int n = 0, reductions = 0;
  for (int i = 0; i < r->n; i++) {
    ValueId a = k->ops.at[r->op[i]].in[0];
    if (level[a] != pass) continue;
    n += 1 + ops_below(k, a, seen);
    reductions++;
  }
  return reductions && n <= SIMPLE ? UNROLL : 1;
}

static void tune_row(Module *m, Fn *k) {
  ReducedSpace space = row_space(k);
  Reductions reductions = space.r;
  ValueId reference = space.reference;
  Nest kept = space.kept, over = space.over;
  int lanes = target_lanes(&m->target);
  bool along = reference == NO_VALUE ? nest_moved_vector(m, k, &over, lanes)
                                     : nest_vector(k, &over, reference, lanes);
  bool across = !along && !reductions.scans && nest_vector(k, &kept, reference, lanes);
  const int *level = reduction_levels(m->arena, k);
  int passes = reduction_passes(k, &reductions, level);
  int64_t *tile = ARENA_ARRAY(m->arena, int64_t, passes + 1);
  int64_t rows = nest_inner(&kept), length = nest_inner(&over);
  tile[0] = across ? ROWS : 1;
  for (int i = 0; i < passes; i++)
    tile[1 + i] =
        along && length >= 2 * UNROLL * lanes ? unroll_of(m, k, &reductions, level, i) : 1;
  int64_t units = nest_count(&kept) / rows * ((rows + tile[0] - 1) / tile[0]);
  int64_t count = nest_count(&kept) * nest_count(&over);
  int64_t chunks[2] = {chunks_for(m, count, element_cost(k) * (along || across ? 1 : 8), units), 1};
  attr_set_str(m, &k->attrs, ATTR_variant, along ? "row" : across ? "rows" : "scalar");
  attr_set_ints(m, &k->attrs, ATTR_tile, passes + 1, tile);
  if (reductions.ncolumns)
    chunks[1] = chunks_for(m, nest_count(&over) * chunks[0] * reductions.ncolumns, 4, length);
  attr_set_ints(m, &k->attrs, ATTR_chunks, reductions.ncolumns ? 2 : 1, chunks);
  if (reductions.ncolumns)
    attr_set_int(m, &k->attrs, ATTR_workspace, column_workspace(&reductions, chunks[0]));
  int64_t scratch = row_scratch(m->arena, k, &reductions);
  if (scratch) attr_set_int(m, &k->attrs, ATTR_scratch, scratch);
  tune_nontemporal(m, k);
}

const FamilyRules row_rules = {.cpu = tune_row, .gpu = gpu_tune_row};
