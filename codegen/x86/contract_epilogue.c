/* The epilogue of a register tile: reads the sums from the tile's place in scratch (first-level
   cache) and evaluates the kernel's POINT ops on them, vector by vector, then stores every result.
   All results of a point are evaluated before any is stored, so a result may have the buffer of an
   operand.

   A vector covers lanes of the inner n dim only; its last lanes may be past the end and are
   masked. --quick: a loop over the vectors, which has the code of one. */
#include "contract.h"
#include "codegen/product_names.h"

typedef struct Epilogue {
  Contract *c;
  const TileAt *t;
  LLVMValueRef outer[8], first[8], mask[8]; /* per vector of the tile */
} Epilogue;

static bool scalar(const Contract *contract) { return contract->product.n.count == 0; }

static void set_index(Point *p, Str dim, LLVMValueRef at, bool lane, int64_t multiple) {
  p->index[p->n++] = (Index){.dim = dim, .at = at, .lane = lane, .multiple = multiple};
}

static void set_flat(Contract *contract, Point *p, const ProductDims *d, int n, LLVMValueRef flat) {
  for (int i = 0; i < n; i++)
    set_index(p, d->dim[i].dim, contract_index(contract->e, d, n, i, flat), false, 0);
}

static Point point_of(Epilogue *epilogue, LLVMValueRef row, int v) {
  Contract *contract = epilogue->c;
  const TileAt *place = epilogue->t;
  Point p = {0};
  set_flat(contract, &p, &contract->product.batch, contract->product.batch.count, place->batch);
  set_flat(contract, &p, &contract->product.m, contract->product.m.count - 1, place->m_outer);
  if (contract->product.m.count)
    set_index(&p, contract->product.m.dim[contract->product.m.count - 1].dim, row, false, 0);
  set_flat(contract, &p, &contract->product.n, contract->product.n.count - 1, epilogue->outer[v]);
  if (!scalar(contract))
    set_index(&p, contract->product.n.dim[contract->product.n.count - 1].dim, epilogue->first[v],
              true, contract->plan.lanes);
  for (int i = 0; i < contract->product.nzero; i++)
    set_index(&p, contract->product.zero[i], emit_i64(contract->e, 0), false, 0);
  p.mask = epilogue->mask[v];
  product_add_names(contract->e, &contract->product, &p);
  return p;
}

static void locate_vector(Epilogue *epilogue, int v) {
  Contract *contract = epilogue->c;
  Emit *emit = contract->e;
  LLVMValueRef flat = tile_add(emit, epilogue->t->v0, emit_i64(emit, v)), first = flat;
  epilogue->outer[v] = emit_i64(emit, 0), epilogue->mask[v] = NULL;
  if (contract->product.n.outer > 1) {
    epilogue->outer[v] =
        LLVMBuildUDiv(emit->builder, flat, emit_i64(emit, contract->plan.vectors_inner), "");
    first = LLVMBuildURem(emit->builder, flat, emit_i64(emit, contract->plan.vectors_inner), "");
  }
  epilogue->first[v] = tile_times(emit, first, contract->plan.lanes);
  if (!scalar(contract) && contract->product.n.inner % contract->plan.lanes)
    epilogue->mask[v] = emit_tail_mask(
        emit, epilogue->first[v], emit_i64(emit, contract->product.n.inner), contract->plan.lanes);
}

Point contract_point(Contract *contract, const TileAt *place, int v) {
  Epilogue epilogue = {.c = contract, .t = place};
  locate_vector(&epilogue, v);
  return point_of(&epilogue, place->row0, v);
}

TileAt contract_tile_at(Contract *contract, LLVMValueRef batch, LLVMValueRef tile, LLVMValueRef v0,
                        int vectors) {
  TileAt at = {.batch = batch, .v0 = v0, .vectors = vectors};
  at.m_outer = contract_tile_outer(contract, tile), at.row0 = contract_tile_row(contract, tile);
  at.rows = contract_tile_rows(contract, tile);
  return at;
}

static LLVMValueRef sums(Epilogue *epilogue, LLVMValueRef r, int v) {
  Contract *contract = epilogue->c;
  Emit *emit = contract->e;
  LLVMValueRef at = tile_times(emit, r, contract->plan.tile[TILE_VECTORS] * contract->plan.lanes);
  at = tile_add(emit, at, emit_i64(emit, v * contract->plan.lanes));
  LLVMTypeRef type = scalar(contract) ? contract->f32 : contract->vector;
  LLVMValueRef s = LLVMBuildLoad2(emit->builder, type,
                                  tile_elements(emit, contract->f32, epilogue->t->values, at), "");
  LLVMSetAlignment(s, 4);
  return expr_convert(emit, s, ELEM_f32, value_type(contract->k, contract->product.value)->elem);
}

static LLVMValueRef zero_of(Epilogue *epilogue, ValueId result) {
  Contract *contract = epilogue->c;
  LLVMTypeRef type = scalar(contract) ? contract->f32 : contract->vector;
  return expr_convert(contract->e, LLVMConstNull(type), ELEM_f32,
                      value_type(contract->k, result)->elem);
}

static void store_results(Epilogue *epilogue, LLVMValueRef r, int v) {
  Contract *contract = epilogue->c;
  Emit *emit = contract->e;
  Point p = point_of(epilogue, tile_add(emit, epilogue->t->row0, r), v);
  LLVMValueRef value[MAX_RESULTS];
  expr_reset(emit);
  if (!epilogue->t->zero) expr_bind(emit, contract->product.value, sums(epilogue, r, v));
  for (uint32_t i = 0; i < contract->k->results.n; i++)
    if (epilogue->t->zero) value[i] = zero_of(epilogue, contract->k->results.at[i]);
    else if (contract->k->results.at[i] != contract->product.sum)
      value[i] = expr_value(emit, contract->k->results.at[i], &p);
  for (uint32_t i = 0; i < contract->k->results.n; i++) {
    bool again = contract->k->results.at[i] ==
                 contract->product.sum; /* expr_put stores to all buffers of a value */
    for (uint32_t j = 0; j < i; j++)
      again |= contract->k->results.at[j] == contract->k->results.at[i];
    if (!again) expr_put(emit, contract->k->results.at[i], &p, value[i]);
  }
}

static void rows_of_vectors(Epilogue *epilogue) {
  Contract *contract = epilogue->c;
  const TileAt *place = epilogue->t;
  for (int v = 0; v < place->vectors; v++) locate_vector(epilogue, v);
  Loop loop = emit_loop(contract->e, place->first ? place->first : emit_i64(contract->e, 0),
                        place->rows, 1, 0, NULL);
  for (int v = 0; v < place->vectors; v++) store_results(epilogue, loop.i, v);
  emit_loop_end(contract->e, &loop);
}

static void rows(void *state) {
  Epilogue *epilogue = state;
  Emit *emit = epilogue->c->e;
  TileAt one = *epilogue->t;
  if (!emit->quick || one.vectors < 2) {
    rows_of_vectors(epilogue);
    return;
  }
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, one.vectors), 1, 0, NULL);
  LLVMValueRef at = tile_times(emit, loop.i, epilogue->c->plan.lanes);
  one.v0 = tile_add(emit, one.v0, loop.i), one.vectors = 1;
  if (one.values) one.values = tile_elements(emit, epilogue->c->f32, one.values, at);
  Epilogue of_one = {.c = epilogue->c, .t = &one};
  rows_of_vectors(&of_one);
  emit_loop_end(emit, &loop);
}

/* Is v 0 where the product is, whatever finite numbers its other operands are? */
static bool is_zero_with(const Contract *contract, ValueId v) {
  const Op *op = value_def(contract->k, v);
  if (v == contract->product.value) return true;
  if (!op) return false;
  switch (op->code) {
  case OP_mul: return is_zero_with(contract, op->in[0]) || is_zero_with(contract, op->in[1]);
  case OP_add:
  case OP_sub: return is_zero_with(contract, op->in[0]) && is_zero_with(contract, op->in[1]);
  case OP_neg:
  case OP_cast: return is_zero_with(contract, op->in[0]);
  default: return false;
  }
}

bool contract_zero_epilogue(const Contract *contract) {
  const Fn *k = contract->k;
  const Type *product = value_type(k, contract->product.value);
  for (uint32_t i = 0; i < k->results.n; i++) {
    const Type *t = value_type(k, k->results.at[i]);
    if (elem_class(t->elem) != CLASS_FLOAT || !type_same_dims(t, product) ||
        !is_zero_with(contract, k->results.at[i]))
      return false;
  }
  return true;
}

void contract_epilogue(Contract *contract, const TileAt *place) {
  Epilogue epilogue = {.c = contract, .t = place};
  uint64_t results = place->zero ? contract->zeros : contract->nontemporal;
  nontemporal_either(contract->e, results, contract_all_aligned(contract, results), rows,
                     &epilogue);
}
