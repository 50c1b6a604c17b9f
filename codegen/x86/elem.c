/* Family elem: element-wise kernels, moved indexes and gathers included, with any number of
   results.

   The space is that of the largest result, collapsed, walked in units; a chunk does a range of
   units. All results are evaluated at a point before any is stored, because a result may have the
   buffer of an operand. A result with fewer dims is stored where its missing dims are 0. Attribute
   variant is `vector` or `scalar`, tile = [block of the innermost dim].

   Large operands are fetched ahead in software, each at a distance of its own: buffers begin at the
   same offset of a page, and memory was faster with streams at different offsets
   (docs/performance.md). Prefetching changes no value, whatever is at the address. */
#include "nontemporal.h"
#include "codegen/walk.h"

enum { AHEAD_BYTES = 1 << 10, APART_BYTES = 1 << 9, FARTHEST_BYTES = 4 << 10 };

typedef struct Elementwise {
  Emit *e;
  Nest nest;
  Walk walk;
  LLVMValueRef from, to; /* units of this chunk */
} Elementwise;

/* Larger than a core's cache, and read in the order of the space: not where a gather says. */
static bool streams(const Elementwise *elementwise, const Point *p, ValueId v) {
  const Nest *nest = &elementwise->nest;
  const Emit *e = elementwise->e;
  const Type *t = value_type(e->k, v);
  int64_t bytes = elem_bytes(t->elem);
  for (int i = 0; i < nest->n; i++)
    if (type_find(t, nest->dim[i].dim) < 0) return false;
  for (int i = 0; i < t->rank; i++)
    if (!point_find(p, t->axis[i].dim)) return false;
  return nest->n && bytes > 1 && type_count(t) * bytes > e->m->target.l2 &&
         buffer_stride(e->k, v, nest->dim[nest->n - 1].dim) == 1;
}

static void fetch_ahead(const Elementwise *elementwise, const Point *p) {
  Emit *e = elementwise->e;
  int64_t ahead = AHEAD_BYTES;
  if (!elementwise->walk.lanes || p->mask) return;
  for (uint32_t i = 0; i < e->k->args.n && ahead <= FARTHEST_BYTES; i++) {
    ValueId v = e->k->args.at[i];
    if (!streams(elementwise, p, v)) continue;
    Point place = *p;
    Index at = *point_find(p, elementwise->nest.dim[elementwise->nest.n - 1].dim);
    int64_t elements = ahead / elem_bytes(value_type(e->k, v)->elem);
    at.at = LLVMBuildAdd(e->builder, at.at, emit_index(e, elements), "");
    point_set(&place, at);
    emit_prefetch(e, expr_address(e, v, &place), false);
    ahead += APART_BYTES;
  }
}

static void store_results(void *state, const Point *p, int n, LLVMValueRef start) {
  Elementwise *elementwise = state;
  (void)n, (void)start;
  fetch_ahead(elementwise, p);
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
  elementwise.nest = elem_space(k, NULL);
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
