/* The epilogue of a register tile: reads the sums from the tile's place in scratch (first-level
   cache) and evaluates the kernel's POINT ops on them, vector by vector, then stores every result.
   All results of a point are evaluated before any is stored, so a result may lie in the buffer of
   an operand.

   A vector covers lanes of the inner n dim only; its last lanes may lie beyond the end and are
   masked. */
#include "contract.h"
#include "codegen/product_names.h"

typedef struct Epilogue {
  Contract *c;
  const TileAt *t;
  LLVMValueRef outer[8], first[8], mask[8]; /* per vector of the tile */
} Epilogue;

static bool scalar(const Contract *c) { return c->product.n.count == 0; }

static void set_index(Point *p, Str dim, LLVMValueRef at, bool lane, int64_t multiple) {
  p->index[p->n++] = (Index){.dim = dim, .at = at, .lane = lane, .multiple = multiple};
}

static void set_flat(Contract *c, Point *p, const ProductDims *d, int n, LLVMValueRef flat) {
  for (int i = 0; i < n; i++)
    set_index(p, d->dim[i].dim, contract_index(c->e, d, n, i, flat), false, 0);
}

static Point point_of(Epilogue *x, LLVMValueRef row, int v) {
  Contract *c = x->c;
  const TileAt *t = x->t;
  Point p = {0};
  set_flat(c, &p, &c->product.batch, c->product.batch.count, t->batch);
  set_flat(c, &p, &c->product.m, c->product.m.count - 1, t->m_outer);
  if (c->product.m.count)
    set_index(&p, c->product.m.dim[c->product.m.count - 1].dim, row, false, 0);
  set_flat(c, &p, &c->product.n, c->product.n.count - 1, x->outer[v]);
  if (!scalar(c))
    set_index(&p, c->product.n.dim[c->product.n.count - 1].dim, x->first[v], true, c->plan.lanes);
  for (int i = 0; i < c->product.nzero; i++)
    set_index(&p, c->product.zero[i], emit_i64(c->e, 0), false, 0);
  p.mask = x->mask[v];
  product_add_names(c->e, &c->product, &p);
  return p;
}

static void locate_vector(Epilogue *x, int v) {
  Contract *c = x->c;
  Emit *e = c->e;
  LLVMValueRef flat = tile_add(e, x->t->v0, emit_i64(e, v)), first = flat;
  x->outer[v] = emit_i64(e, 0), x->mask[v] = NULL;
  if (c->product.n.outer > 1) {
    x->outer[v] = LLVMBuildUDiv(e->builder, flat, emit_i64(e, c->plan.vectors_inner), "");
    first = LLVMBuildURem(e->builder, flat, emit_i64(e, c->plan.vectors_inner), "");
  }
  x->first[v] = tile_times(e, first, c->plan.lanes);
  if (!scalar(c) && c->product.n.inner % c->plan.lanes)
    x->mask[v] = emit_tail_mask(e, x->first[v], emit_i64(e, c->product.n.inner), c->plan.lanes);
}

Point contract_point(Contract *c, const TileAt *t, int v) {
  Epilogue x = {.c = c, .t = t};
  locate_vector(&x, v);
  return point_of(&x, t->row0, v);
}

static LLVMValueRef sums(Epilogue *x, LLVMValueRef r, int v) {
  Contract *c = x->c;
  Emit *e = c->e;
  LLVMValueRef at = tile_times(e, r, c->plan.tile[TILE_VECTORS] * c->plan.lanes);
  at = tile_add(e, at, emit_i64(e, v * c->plan.lanes));
  LLVMTypeRef type = scalar(c) ? c->f32 : c->vector;
  LLVMValueRef s = LLVMBuildLoad2(e->builder, type, tile_elements(e, c->f32, x->t->values, at), "");
  LLVMSetAlignment(s, 4);
  return expr_convert(e, s, ELEM_f32, value_type(c->k, c->product.value)->elem);
}

static void store_results(Epilogue *x, LLVMValueRef r, int v) {
  Contract *c = x->c;
  Emit *e = c->e;
  Point p = point_of(x, tile_add(e, x->t->row0, r), v);
  LLVMValueRef value[MAX_RESULTS];
  expr_reset(e);
  expr_bind(e, c->product.value, sums(x, r, v));
  for (uint32_t i = 0; i < c->k->results.n; i++)
    if (c->k->results.at[i] != c->product.sum) value[i] = expr_value(e, c->k->results.at[i], &p);
  for (uint32_t i = 0; i < c->k->results.n; i++) {
    bool again =
        c->k->results.at[i] == c->product.sum; /* expr_put stores to all buffers of a value */
    for (uint32_t j = 0; j < i; j++) again |= c->k->results.at[j] == c->k->results.at[i];
    if (!again) expr_put(e, c->k->results.at[i], &p, value[i]);
  }
}

static void rows(void *state) {
  Epilogue *x = state;
  Contract *c = x->c;
  const TileAt *t = x->t;
  for (int v = 0; v < t->vectors; v++) locate_vector(x, v);
  Loop r = emit_loop(c->e, t->first ? t->first : emit_i64(c->e, 0), t->rows, 1, 0, NULL);
  for (int v = 0; v < t->vectors; v++) store_results(x, r.i, v);
  emit_loop_end(c->e, &r);
}

void contract_epilogue(Contract *c, const TileAt *t) {
  Epilogue x = {.c = c, .t = t};
  LLVMValueRef aligned = contract_aligned(c, emit_buffer(c->e, c->k->args.n + c->first));
  nontemporal_either(c->e, c->nontemporal, aligned, rows, &x);
}
