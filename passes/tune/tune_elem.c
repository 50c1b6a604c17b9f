/* Tuning of family elem: vector or scalar, the block of the innermost dim, the number of chunks.
   Blocks are multiples of all vector lengths, long enough that the overhead per block is
   negligible. */
#include "ir/kernel/nest.h"
#include "gpu.h"
#include "tune.h"

enum { BLOCK = 4096 };

static void tune_elem(Module *m, Fn *k) {
  ValueId reference;
  Nest nest = elem_space(k, &reference);
  int lanes = target_lanes(&m->target);
  bool vector = nest_vector(k, &nest, reference, lanes);
  int64_t units = nest_blocks(&nest, BLOCK);
  int64_t tile = BLOCK, chunks = chunks_for(m, nest_count(&nest), element_cost(k), units);
  attr_set_str(m, &k->attrs, ATTR_variant, vector ? "vector" : "scalar");
  attr_set_ints(m, &k->attrs, ATTR_tile, 1, &tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1, &chunks);
  tune_nontemporal(m, k);
}

const FamilyRules elem_rules = {.cpu = tune_elem, .gpu = gpu_tune_elem};
