/* Tuning of family column: lanes over columns where those are consecutive, else along the reduced
   dim; blocks; and into how many ranges the reduced dim is split when there are too few columns for
   all workers. */
#include "ir/kernel/nest.h"
#include "ir/support/num.h"
#include "gpu.h"
#include "tune.h"

enum { REDUCED = 1024, ROWS = 16, VECTORS = 4, SPLITS = 64 };

static void tune_column(Module *m, Fn *k) {
  ReducedSpace space = column_space(k);
  Reductions reductions = space.r;
  ValueId reference = space.reference;
  Nest kept = space.kept, over = space.over;
  int lanes = target_lanes(&m->target);
  bool across = nest_vector(k, &kept, reference, lanes);
  bool along = !across && nest_vector(k, &over, reference, lanes);
  int64_t vectors = reductions.n > 2 ? 2 : VECTORS;
  int64_t tile[4] = {across ? vectors * lanes : 1, along ? REDUCED : ROWS, 1,
                     across || along ? vectors : 1};
  int64_t count = nest_count(&kept) * nest_count(&over);
  int64_t columns = nest_blocks(&kept, tile[0]), rows = nest_blocks(&over, tile[1]);
  int64_t cost = element_cost(k) * (across || along ? 1 : 4);
  int64_t wanted = chunks_for(m, count, cost, columns * rows);
  if (wanted > columns) tile[2] = min_i64(min_i64(ceil_div(wanted, columns), rows), SPLITS);
  int64_t chunks[2] = {min_i64(wanted, columns * tile[2]), 1};
  chunks[1] = chunks_for(m, nest_count(&kept) * tile[2], cost, columns);
  attr_set_str(m, &k->attrs, ATTR_variant, across ? "columns" : along ? "row" : "scalar");
  attr_set_ints(m, &k->attrs, ATTR_tile, 4, tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, tile[2] > 1 ? 2 : 1, chunks);
  if (tile[2] > 1)
    attr_set_int(m, &k->attrs, ATTR_workspace, reduction_workspace(k, &reductions, tile[2]));
  else tune_nontemporal(m, k);
}

const FamilyRules column_rules = {.cpu = tune_column, .gpu = gpu_tune_column};
