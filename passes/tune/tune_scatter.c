/* Tuning of family scatter: lanes over the innermost dim that stays, blocks of columns, ranges of
   the new dim where columns alone do not keep all workers busy. */
#include "ir/kernel/scatter_shape.h"
#include "ir/support/num.h"
#include "gpu.h"
#include "tune.h"

enum {
  FILL = 4096,
  VECTORS = 4,
  TABLE = 8 /* tenths of nanoseconds per index that is read in vain */
};

static void tune_scatter(Module *m, Fn *k) {
  int lanes = target_lanes(&m->target);
  Scatter scatter = scatter_of(k, lanes);
  must(scatter.to_size > 0, "kernel %s: a scatter into nothing", k->name);
  int64_t tile[4] = {scatter.vector ? VECTORS * lanes : 16, 1, scatter.vector ? VECTORS : 1, FILL};
  int64_t columns = nest_blocks(&scatter.kept, tile[0]), rows = nest_count(&scatter.from);
  int64_t work = rows * nest_count(&scatter.kept),
          cost = element_cost(k) * (scatter.vector ? 1 : 8);
  int64_t wanted = chunks_for(m, work, cost, columns * scatter.to_size);
  if (wanted > columns && work * cost > rows * TABLE * wanted) tile[1] = ceil_div(wanted, columns);
  int64_t chunks[2] = {
      chunks_for(m, nest_count(&scatter.result), 4, nest_blocks(&scatter.result, FILL)),
      columns * tile[1]};
  if (chunks[1] > wanted) chunks[1] = wanted;
  attr_set_str(m, &k->attrs, ATTR_variant, scatter.vector ? "vector" : "scalar");
  attr_set_ints(m, &k->attrs, ATTR_tile, 4, tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, 2, chunks);
  tune_nontemporal(m, k);
}

const FamilyRules scatter_rules = {.cpu = tune_scatter, .gpu = gpu_tune_scatter};
