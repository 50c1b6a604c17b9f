/* The way out of a product: sums of a pass lie as f32 rows in shared memory; neighbouring threads
   take neighbouring columns, some of them at once as a vector, evaluate the kernel's POINT ops
   there and store every result. With several splits the sums go to the workspace as
   [split][batch][m][n], and the second phase adds the splits in their order before it does the
   same.

   A thread of eight columns reads them as two pieces of 16 bytes; lanes beside each other are then
   32 bytes apart, and the fifth would meet the first in its banks. So of every other 32 columns
   both pieces change places. */
#include "codegen/product_names.h"
#include "gemm.h"

static LLVMValueRef index_of(Gemm *x, LLVMValueRef i) {
  return LLVMBuildZExtOrBitCast(x->e->builder, i, x->e->index, "");
}

static void set_dims(Gemm *x, Point *p, const ProductDims *d, LLVMValueRef flat) {
  for (int i = 0; i < d->count; i++)
    point_set(p, (Index){.dim = d->dim[i].dim, .at = index_of(x, tile_index(&x->w, d, i, flat))});
}

/* The inner columns run over the lanes of a vector. */
static void set_columns(Gemm *x, Point *p, LLVMValueRef n) {
  set_dims(x, p, &x->p.n, n);
  if (!x->p.n.count || x->e->lanes == 1) return;
  Index *inner = point_find(p, x->p.n.dim[x->p.n.count - 1].dim);
  inner->lane = true, inner->multiple = x->e->lanes;
}

static LLVMTypeRef numbers(Gemm *x) { return emit_vector(x->e, ELEM_f32, x->e->lanes); }

/* All results are evaluated before one is stored: a result may lie in the buffer of an operand. */
static void put_results(Gemm *x, LLVMValueRef batch, LLVMValueRef m, LLVMValueRef n,
                        LLVMValueRef sum) {
  Emit *e = x->e;
  Point p = {0};
  set_dims(x, &p, &x->p.batch, batch);
  set_dims(x, &p, &x->p.m, m);
  set_columns(x, &p, n);
  for (int i = 0; i < x->p.nzero; i++)
    point_set(&p, (Index){.dim = x->p.zero[i], .at = emit_index(e, 0)});
  product_add_names(e, &x->p, &p);
  LLVMValueRef value[MAX_RESULTS];
  expr_reset(e);
  expr_bind(e, x->p.value, expr_convert(e, sum, ELEM_f32, value_type(x->k, x->p.value)->elem));
  for (uint32_t i = 0; i < x->k->results.n; i++) value[i] = expr_value(e, x->k->results.at[i], &p);
  for (uint32_t i = 0; i < x->k->results.n; i++) {
    bool again = false; /* expr_put stores to all buffers of a value */
    for (uint32_t j = 0; j < i; j++) again |= x->k->results.at[j] == x->k->results.at[i];
    if (!again) expr_put(e, x->k->results.at[i], &p, value[i]);
  }
}

/* Address in the workspace of element `flat` of split `split`. */
static LLVMValueRef partial(Gemm *x, LLVMValueRef split, LLVMValueRef flat) {
  LLVMBuilderRef b = x->e->builder;
  int64_t elements = x->g.batches * x->g.m * x->g.n;
  LLVMValueRef at = LLVMBuildNSWMul(b, warp_wide(&x->w, split), emit_i64(x->e, elements), "");
  at = LLVMBuildNSWAdd(b, at, flat, "");
  LLVMValueRef base = emit_buffer(x->e, x->k->args.n + x->k->results.n);
  return LLVMBuildInBoundsGEP2(b, x->w.f32, base, &at, 1, "");
}

static LLVMValueRef flat_of(Gemm *x, LLVMValueRef batch, LLVMValueRef m, LLVMValueRef n) {
  LLVMBuilderRef b = x->e->builder;
  LLVMValueRef at = LLVMBuildNSWMul(b, warp_wide(&x->w, batch), emit_i64(x->e, x->g.m), "");
  at = LLVMBuildNSWAdd(b, at, warp_wide(&x->w, m), "");
  at = LLVMBuildNSWMul(b, at, emit_i64(x->e, x->g.n), "");
  return LLVMBuildNSWAdd(b, at, warp_wide(&x->w, n), "");
}

static unsigned vector_align(const Gemm *x) {
  return x->e->lanes < 4 ? 4 * (unsigned)x->e->lanes : 16;
}

static void put(Gemm *x, LLVMValueRef m, LLVMValueRef n, LLVMValueRef sum) {
  if (x->g.phases == 1) {
    put_results(x, x->batch, m, n, sum);
    return;
  }
  LLVMValueRef at = partial(x, x->split, flat_of(x, x->batch, m, n));
  LLVMSetAlignment(LLVMBuildStore(x->e->builder, sum, at), vector_align(x));
}

/* i1: element (m, n) is there; NULL: all are */
static LLVMValueRef inside(Gemm *x, LLVMValueRef m, LLVMValueRef n) {
  Warp *w = &x->w;
  LLVMValueRef a = warp_less(w, m, warp_i32(w, x->g.m)), b = warp_less(w, n, warp_i32(w, x->g.n));
  bool rows = x->g.m % x->g.tile[GEMM_M], columns = x->g.n % x->g.tile[GEMM_N];
  if (rows && columns) return LLVMBuildAnd(x->e->builder, a, b, "");
  return rows ? a : columns ? b : NULL;
}

LLVMValueRef gemm_out_row(Gemm *x) {
  Warp *w = &x->w;
  return warp_times(w, warp_div(w, w->warp, x->g.warps_n), x->g.out_rows);
}

/* The row of the tile that row `row` of a pass is. */
static LLVMValueRef row_of(Gemm *x, LLVMValueRef row, int pass) {
  Warp *w = &x->w;
  if (x->g.passes == 1) return row;
  LLVMValueRef first = warp_times(w, warp_div(w, row, x->g.out_rows), x->g.tile[GEMM_WARP_M]);
  LLVMValueRef within = warp_plus(w, warp_rem(w, row, x->g.out_rows), pass * x->g.out_rows);
  return warp_add(w, first, within);
}

LLVMValueRef gemm_out_turn(Gemm *x, LLVMValueRef at, LLVMValueRef block) {
  Warp *w = &x->w;
  if (x->e->lanes <= 4) return at;
  return warp_xor(w, at, warp_times(w, warp_rem(w, block, 2), 16));
}

/* Sums of the thread's columns. */
static LLVMValueRef read_out(Gemm *x, LLVMValueRef row, LLVMValueRef column) {
  Warp *w = &x->w;
  LLVMBuilderRef b = x->e->builder;
  LLVMValueRef at = warp_add(w, warp_times(w, row, x->g.out_pitch), warp_times(w, column, 4));
  if (x->e->lanes <= 4) return warp_load(w, numbers(x), at, (int)vector_align(x));
  LLVMValueRef all = LLVMGetPoison(numbers(x)), block = warp_div(w, column, 32);
  for (int i = 0; i < x->e->lanes; i += 4) {
    LLVMValueRef piece = gemm_out_turn(x, warp_plus(w, at, 4 * i), block);
    LLVMValueRef four = warp_load(w, LLVMVectorType(w->f32, 4), piece, 16);
    for (int j = 0; j < 4; j++) {
      LLVMValueRef one = LLVMBuildExtractElement(b, four, warp_i32(w, j), "");
      all = LLVMBuildInsertElement(b, all, one, warp_i32(w, i + j), "");
    }
  }
  return all;
}

void gemm_results(Gemm *x, int pass) {
  Warp *w = &x->w;
  Emit *e = x->e;
  int64_t elements = x->g.warps_m * x->g.out_rows * x->g.tile[GEMM_N] / e->lanes;
  Loop l = emit_loop(e, emit_i64(e, 0), emit_i64(e, elements / x->g.threads[0]), 1, 0, NULL);
  LLVMValueRef i = LLVMBuildTrunc(e->builder, l.i, w->i32, "");
  i = warp_times(w, warp_add(w, warp_times(w, i, x->g.threads[0]), w->thread), e->lanes);
  LLVMValueRef row = warp_div(w, i, x->g.tile[GEMM_N]), column = warp_rem(w, i, x->g.tile[GEMM_N]);
  LLVMValueRef m = warp_add(w, x->m0, row_of(x, row, pass)), n = warp_add(w, x->n0, column);
  LLVMValueRef in = inside(x, m, n);
  Branch b = {0};
  if (in) b = emit_if(e, in);
  put(x, m, n, read_out(x, row, column));
  if (in) emit_end_if(e, b);
  emit_loop_end(e, &l);
}

static LLVMValueRef sum_splits(Gemm *x, LLVMValueRef flat) {
  Emit *e = x->e;
  LLVMValueRef zero = LLVMConstNull(numbers(x));
  Loop l = emit_loop(e, emit_i64(e, 0), emit_i64(e, x->g.tile[GEMM_SPLITS]), 1, 1, &zero);
  LLVMValueRef split = LLVMBuildTrunc(e->builder, l.i, x->w.i32, "");
  LLVMValueRef v = LLVMBuildLoad2(e->builder, numbers(x), partial(x, split, flat), "");
  LLVMSetAlignment(v, vector_align(x));
  l.next[0] = LLVMBuildFAdd(e->builder, l.phi[0], v, "");
  emit_loop_end(e, &l);
  return l.phi[0];
}

void gemm_reduce(Gemm *x) {
  Warp *w = &x->w;
  Emit *e = x->e;
  int64_t elements = x->g.batches * x->g.m * x->g.n, threads = x->g.threads[1];
  int64_t all = x->g.chunks[1] * threads * e->lanes;
  LLVMValueRef first = warp_add(w, warp_times(w, w->cta, threads), w->thread);
  first = warp_wide(w, warp_times(w, first, e->lanes));
  Loop l = emit_loop(e, first, emit_i64(e, elements), all, 0, NULL);
  LLVMValueRef n = LLVMBuildURem(e->builder, l.i, emit_i64(e, x->g.n), "");
  LLVMValueRef above = LLVMBuildUDiv(e->builder, l.i, emit_i64(e, x->g.n), "");
  LLVMValueRef m = LLVMBuildURem(e->builder, above, emit_i64(e, x->g.m), "");
  LLVMValueRef batch = LLVMBuildUDiv(e->builder, above, emit_i64(e, x->g.m), "");
  LLVMValueRef at[] = {batch, m, n};
  for (int i = 0; i < 3; i++) at[i] = LLVMBuildTrunc(e->builder, at[i], w->i32, "");
  put_results(x, at[0], at[1], at[2], sum_splits(x, l.i));
  emit_loop_end(e, &l);
}
