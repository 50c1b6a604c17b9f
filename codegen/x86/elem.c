/* Family elem: element-wise kernels, moved indexes and gathers included, with any number of
   results.

   The space is that of the largest result, collapsed, walked in units; a chunk does a range of
   units. All results are evaluated at a point before any is stored, because a result may lie in the
   buffer of an operand. A result with fewer dims is stored where its missing dims are 0. Attribute
   variant is `vector` or `scalar`, tile = [block of the innermost dim]. */
#include "nontemporal.h"
#include "codegen/walk.h"

typedef struct Elementwise {
  Emit *e;
  Nest nest;
  Walk walk;
  LLVMValueRef from, to; /* units of this chunk */
} Elementwise;

static void store_results(void *state, const Point *p, int n, LLVMValueRef start) {
  Elementwise *elementwise = state;
  (void)n, (void)start;
  walk_store(elementwise->e, &elementwise->nest, NULL, p, elementwise->e->k->results.n,
             elementwise->e->k->results.at);
}

static void units(void *state) {
  Elementwise *elementwise = state;
  walk_space(elementwise->e, &elementwise->walk, elementwise->from, elementwise->to);
}

static Nontemporal nontemporal_results(Elementwise *elementwise) {
  const Nest *n = &elementwise->nest;
  if (!n->n) return (Nontemporal){0};
  const NestDim *inner = &n->dim[n->n - 1];
  return nontemporal_of(elementwise->e,
                        &(NontemporalSpace){n->dim, n->n - 1, inner->dim, inner->size, false});
}

void elem_emit(Emit *e) {
  const Fn *k = e->k;
  Elementwise elementwise = {.e = e};
  Axes all = {0};
  for (uint32_t r = 0; r < k->results.n; r++) axes_add(&all, value_type(k, k->results.at[r]));
  elementwise.nest = nest_of(k, &all, nest_reference(k, &all));
  bool vector = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "vector");
  if (!vector) e->lanes = 1;
  emit_begin_phase(e, 0);
  elementwise.walk = (Walk){.nest = &elementwise.nest,
                            .block = emit_tile(e, 1)[0],
                            .lanes = vector,
                            .unroll = 1,
                            .body = store_results,
                            .state = &elementwise};
  emit_chunk_range(e, walk_units(&elementwise.walk), emit_chunks(e, 1)[0], &elementwise.from,
                   &elementwise.to);
  Nontemporal nontemporal = nontemporal_results(&elementwise);
  nontemporal_either(e, nontemporal.results, nontemporal.holds, units, &elementwise);
  nontemporal_end(e, nontemporal.results);
  emit_end_phase(e);
}
