/* Family elem: element-wise kernels, moved indexes and gathers included, with any number of results.

   The space is that of the largest result, collapsed, walked in units; a chunk does a range of units. All results are evaluated
   at a point before any is stored, because a result may lie in the buffer of an operand. A result with fewer dims is
   stored where its missing dims are 0. Attribute variant is `vector` or `scalar`, tile = [block of the innermost dim]. */
#include "walk.h"

typedef struct Elementwise {
  Emit *e;
  Nest nest;
} Elementwise;

static bool first_of(const Fn *k, uint32_t r) { /* the same value may be several results */
  for (uint32_t i = 0; i < r; i++)
    if (k->results.at[i] == k->results.at[r]) return false;
  return true;
}

/* Condition that all dims of the space that v lacks are at 0; NULL: it lacks none. */
static LLVMValueRef only_once(Emit *e, const Nest *n, ValueId v, const Point *p) {
  LLVMValueRef all = NULL;
  for (int i = 0; i < n->n; i++) {
    Str dim = n->dim[i].dim;
    if (type_find(value_type(e->k, v), dim) >= 0) continue;
    LLVMValueRef zero = LLVMBuildICmp(e->builder, LLVMIntEQ, point_find(p, dim)->at, emit_i64(e, 0), "");
    all = all ? LLVMBuildAnd(e->builder, all, zero, "") : zero;
  }
  return all;
}

static void store_results(void *state, const Point *p, int n, LLVMValueRef start) {
  Elementwise *s = state;
  const Fn *k = s->e->k;
  LLVMValueRef value[MAX_RESULTS];
  (void)n, (void)start;
  for (uint32_t r = 0; r < k->results.n; r++) value[r] = expr_value(s->e, k->results.at[r], p);
  for (uint32_t r = 0; r < k->results.n; r++) {
    if (!first_of(k, r)) continue;
    LLVMValueRef once = only_once(s->e, &s->nest, k->results.at[r], p);
    Branch b;
    if (once) b = emit_if(s->e, once);
    expr_put(s->e, k->results.at[r], p, value[r]);
    if (once) emit_end_if(s->e, b);
  }
}

void elem_emit(Emit *e) {
  const Fn *k = e->k;
  Elementwise s = {.e = e};
  Axes all = {0};
  for (uint32_t r = 0; r < k->results.n; r++) axes_add(&all, value_type(k, k->results.at[r]));
  s.nest = nest_of(k, &all, nest_reference(k, &all));
  bool vector = !strcmp(attr_str(&k->attrs, ATTR_variant, ""), "vector");
  if (!vector) e->lanes = 1;
  emit_begin_phase(e, 0);
  Walk w = {.nest = &s.nest, .block = attr_get(&k->attrs, ATTR_tile)->list[0], .lanes = vector, .unroll = 1,
            .body = store_results, .state = &s};
  LLVMValueRef from, to;
  emit_chunk_range(e, walk_units(&w), attr_get(&k->attrs, ATTR_chunks)->list[0], &from, &to);
  walk(e, &w, from, to);
  emit_end_phase(e);
}
