/* The epilogue of a product: sums of a pass are f32 rows in shared memory; neighbouring threads
   take neighbouring columns, some of them at once as a vector, evaluate the kernel's POINT ops on
   them and store every result. With several splits the sums are stored to the workspace as
   [split][batch][m][n], and the second phase adds the splits in their order before it does the
   same.

   A thread of eight columns reads them as two pieces of 16 bytes; neighbouring lanes are then 32
   bytes apart, and the fifth would have a bank conflict with the first. So in every other 32
   columns the two pieces change places. */
#include "codegen/product_names.h"
#include "gemm.h"

static LLVMValueRef index_of(Gemm *gemm, LLVMValueRef i) {
  return LLVMBuildZExtOrBitCast(gemm->e->builder, i, gemm->e->index, "");
}

void gemm_set_dims(Gemm *gemm, Point *p, const ProductDims *d, LLVMValueRef flat) {
  for (int i = 0; i < d->count; i++)
    point_set(
        p, (Index){.dim = d->dim[i].dim, .at = index_of(gemm, tile_index(&gemm->w, d, i, flat))});
}

/* The inner columns run over the lanes of a vector. */
static void set_columns(Gemm *gemm, Point *p, LLVMValueRef n) {
  gemm_set_dims(gemm, p, &gemm->p.n, n);
  if (!gemm->p.n.count || gemm->e->lanes == 1) return;
  Index *inner = point_find(p, gemm->p.n.dim[gemm->p.n.count - 1].dim);
  inner->lane = true, inner->multiple = gemm->e->lanes;
}

static LLVMTypeRef numbers(Gemm *gemm) { return emit_vector(gemm->e, ELEM_f32, gemm->e->lanes); }

typedef struct Evaluated { /* the results of some columns of a row */
  Point p;
  LLVMValueRef value[MAX_RESULTS], term; /* term: of sums of columns */
} Evaluated;

/* A word has two neighbours. */
static void bind_element(Gemm *gemm, uint32_t arg, LLVMValueRef word) {
  Emit *emit = gemm->e;
  ValueId v = gemm->k->args.at[arg];
  Elem elem = value_type(gemm->k, v)->elem;
  LLVMTypeRef two = LLVMVectorType(emit_memory_type(emit, elem), 2);
  expr_bind(emit, v, expr_from_memory(emit, elem, LLVMBuildBitCast(emit->builder, word, two, "")));
}

static void evaluate(Gemm *gemm, LLVMValueRef batch, const GemmOut *from, Evaluated *out) {
  Emit *emit = gemm->e;
  out->p = (Point){0};
  gemm_set_dims(gemm, &out->p, &gemm->p.batch, batch);
  gemm_set_dims(gemm, &out->p, &gemm->p.m, from->m);
  set_columns(gemm, &out->p, from->n);
  for (int i = 0; i < gemm->p.nzero; i++)
    point_set(&out->p, (Index){.dim = gemm->p.zero[i], .at = emit_index(emit, 0)});
  product_add_names(emit, &gemm->p, &out->p);
  expr_reset(emit);
  expr_bind(emit, gemm->p.value,
            expr_convert(emit, from->sum, ELEM_f32, value_type(gemm->k, gemm->p.value)->elem));
  for (int i = 0; i < PRODUCT_ELEMENTS; i++)
    if (from->element[i]) bind_element(gemm, gemm->p.element[i], from->element[i]);
  for (uint32_t i = 0; i < gemm->k->results.n; i++)
    if (gemm->k->results.at[i] != gemm->p.columns)
      out->value[i] = expr_value(emit, gemm->k->results.at[i], &out->p);
  if (gemm_has_columns(gemm)) out->term = gemm_column_term(gemm, &out->p);
}

static void store(Gemm *gemm, const Evaluated *from) {
  for (uint32_t i = 0; i < gemm->k->results.n; i++) {
    bool again = gemm->k->results.at[i] == gemm->p.columns;
    /* expr_put stores to all buffers of a value */
    for (uint32_t j = 0; j < i; j++) again |= gemm->k->results.at[j] == gemm->k->results.at[i];
    if (!again) expr_put(gemm->e, gemm->k->results.at[i], &from->p, from->value[i]);
  }
}

/* All results are evaluated before one is stored: a result may have the buffer of an operand. */
static void put_results(Gemm *gemm, LLVMValueRef batch, const GemmOut *out) {
  Evaluated evaluated;
  evaluate(gemm, batch, out, &evaluated);
  store(gemm, &evaluated);
}

/* Address in the workspace of element `flat` of split `split`. */
static LLVMValueRef partial(Gemm *gemm, LLVMValueRef split, LLVMValueRef flat) {
  LLVMBuilderRef builder = gemm->e->builder;
  int64_t elements = gemm->g.batches * gemm->g.m * gemm->g.n;
  LLVMValueRef at = warp_wide_times(&gemm->w, split, elements);
  at = LLVMBuildNSWAdd(builder, at, flat, "");
  LLVMValueRef base = emit_buffer(gemm->e, gemm->k->args.n + gemm->k->results.n);
  return LLVMBuildInBoundsGEP2(builder, gemm->w.f32, base, &at, 1, "");
}

static LLVMValueRef flat_of(Gemm *gemm, LLVMValueRef batch, LLVMValueRef m, LLVMValueRef n) {
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMValueRef at = warp_wide_times(&gemm->w, batch, gemm->g.m);
  at = LLVMBuildNSWAdd(builder, at, warp_wide(&gemm->w, m), "");
  at = LLVMBuildNSWMul(builder, at, emit_i64(gemm->e, gemm->g.n), "");
  return LLVMBuildNSWAdd(builder, at, warp_wide(&gemm->w, n), "");
}

static unsigned vector_align(const Gemm *gemm) {
  return gemm->e->lanes < 4 ? 4 * (unsigned)gemm->e->lanes : 16;
}

static void leave(Gemm *gemm, const GemmOut *out, const Evaluated *from) {
  store(gemm, from);
  if (from->term) gemm_column_leave(gemm, out, from->term);
}

static void put(Gemm *gemm, const GemmOut *out) {
  if (!gemm_is_split(&gemm->g)) {
    Evaluated evaluated = {0};
    evaluate(gemm, gemm->batch, out, &evaluated);
    leave(gemm, out, &evaluated);
    return;
  }
  LLVMValueRef at = partial(gemm, gemm->split, flat_of(gemm, gemm->batch, out->m, out->n));
  LLVMSetAlignment(LLVMBuildStore(gemm->e->builder, out->sum, at), vector_align(gemm));
}

/* i1: element (m, n) exists; NULL: all do */
static LLVMValueRef inside(Gemm *gemm, LLVMValueRef m, LLVMValueRef n) {
  Warp *w = &gemm->w;
  LLVMValueRef a = warp_less(w, m, warp_i32(w, gemm->g.m)),
               b = warp_less(w, n, warp_i32(w, gemm->g.n));
  bool rows = gemm->g.m % gemm->g.tile[GEMM_M], columns = gemm->g.n % gemm->g.tile[GEMM_N];
  if (rows && columns) return LLVMBuildAnd(gemm->e->builder, a, b, "");
  return rows ? a : columns ? b : NULL;
}

LLVMValueRef gemm_out_values(Gemm *gemm, const GemmOut *out, LLVMValueRef value[MAX_RESULTS]) {
  Evaluated evaluated = {0};
  evaluate(gemm, gemm->batch, out, &evaluated);
  memcpy(value, evaluated.value, sizeof evaluated.value);
  return evaluated.term;
}

void gemm_out_put(Gemm *gemm, const GemmOut *out) {
  LLVMValueRef in = inside(gemm, out->m, out->n);
  Branch branch = {0};
  if (in) branch = emit_if(gemm->e, in);
  put(gemm, out);
  if (in) emit_end_if(gemm->e, branch);
}

void gemm_out_put_all(Gemm *gemm, const GemmOut *out, int count) {
  bool ragged = gemm->g.m % gemm->g.tile[GEMM_M] || gemm->g.n % gemm->g.tile[GEMM_N];
  Evaluated evaluated[GEMM_OUT_MOST] = {0};
  if (ragged || gemm_is_split(&gemm->g)) {
    for (int i = 0; i < count; i++) gemm_out_put(gemm, &out[i]);
    return;
  }
  for (int i = 0; i < count; i++) evaluate(gemm, gemm->batch, &out[i], &evaluated[i]);
  for (int i = 0; i < count; i++) leave(gemm, &out[i], &evaluated[i]);
}

LLVMValueRef gemm_out_row(Gemm *gemm) {
  Warp *w = &gemm->w;
  return warp_times(w, warp_div(w, w->warp, gemm->g.warps_n), gemm->g.out_rows);
}

LLVMValueRef gemm_out_row_of(Gemm *gemm, LLVMValueRef row, int pass) {
  Warp *w = &gemm->w;
  if (gemm->g.passes == 1) return row;
  LLVMValueRef first = warp_times(w, warp_div(w, row, gemm->g.out_rows), gemm->g.tile[GEMM_WARP_M]);
  LLVMValueRef within = warp_plus(w, warp_rem(w, row, gemm->g.out_rows), pass * gemm->g.out_rows);
  return warp_add(w, first, within);
}

LLVMValueRef gemm_out_turn(Gemm *gemm, LLVMValueRef at, LLVMValueRef block) {
  Warp *w = &gemm->w;
  if (gemm->e->lanes <= 4) return at;
  return warp_xor(w, at, warp_times(w, warp_rem(w, block, 2), 16));
}

static void read_sums(Gemm *gemm, LLVMValueRef row, LLVMValueRef column, GemmOut *out) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMValueRef at = warp_add(w, warp_times(w, row, gemm->g.out_pitch), warp_times(w, column, 4));
  out->at[0] = at;
  if (gemm->e->lanes <= 4) {
    out->sum = warp_load(w, numbers(gemm), at, (int)vector_align(gemm));
    return;
  }
  LLVMValueRef all = LLVMGetPoison(numbers(gemm)), block = warp_div(w, column, 32);
  for (int i = 0; i < gemm->e->lanes; i += 4) {
    out->at[i / 4] = gemm_out_turn(gemm, warp_plus(w, at, 4 * i), block);
    LLVMValueRef four = warp_load(w, LLVMVectorType(w->f32, 4), out->at[i / 4], 16);
    for (int j = 0; j < 4; j++) {
      LLVMValueRef one = LLVMBuildExtractElement(builder, four, warp_i32(w, j), "");
      all = LLVMBuildInsertElement(builder, all, one, warp_i32(w, i + j), "");
    }
  }
  out->sum = all;
}

void gemm_results(Gemm *gemm, int pass) {
  Warp *w = &gemm->w;
  Emit *emit = gemm->e;
  int64_t elements = gemm->g.warps_m * gemm->g.out_rows * gemm->g.tile[GEMM_N] / emit->lanes;
  Loop loop =
      emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, elements / gemm->g.threads[0]), 1, 0, NULL);
  LLVMValueRef i = LLVMBuildTrunc(emit->builder, loop.i, w->i32, "");
  i = warp_times(w, warp_add(w, warp_times(w, i, gemm->g.threads[0]), w->thread), emit->lanes);
  LLVMValueRef row = warp_div(w, i, gemm->g.tile[GEMM_N]),
               column = warp_rem(w, i, gemm->g.tile[GEMM_N]);
  GemmOut out = {.m = warp_add(w, gemm->m0, gemm_out_row_of(gemm, row, pass)),
                 .n = warp_add(w, gemm->n0, column)};
  read_sums(gemm, row, column, &out);
  gemm_out_put(gemm, &out);
  emit_loop_end(emit, &loop);
}

static LLVMValueRef sum_splits(Gemm *gemm, LLVMValueRef flat) {
  Emit *emit = gemm->e;
  LLVMValueRef zero = LLVMConstNull(numbers(gemm));
  Loop loop = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, gemm->g.splits), 1, 1, &zero);
  LLVMValueRef split = LLVMBuildTrunc(emit->builder, loop.i, gemm->w.i32, "");
  LLVMValueRef v = LLVMBuildLoad2(emit->builder, numbers(gemm), partial(gemm, split, flat), "");
  LLVMSetAlignment(v, vector_align(gemm));
  loop.next[0] = LLVMBuildFAdd(emit->builder, loop.phi[0], v, "");
  emit_loop_end(emit, &loop);
  return loop.phi[0];
}

void gemm_reduce(Gemm *gemm) {
  Warp *w = &gemm->w;
  Emit *emit = gemm->e;
  int64_t elements = gemm->g.batches * gemm->g.m * gemm->g.n, threads = gemm->g.threads[1];
  int64_t all = gemm->g.chunks[1] * threads * emit->lanes;
  LLVMValueRef first = warp_add(w, warp_times(w, w->cta, threads), w->thread);
  first = warp_wide(w, warp_times(w, first, emit->lanes));
  Loop loop = emit_loop(emit, first, emit_i64(emit, elements), all, 0, NULL);
  LLVMValueRef n = LLVMBuildURem(emit->builder, loop.i, emit_i64(emit, gemm->g.n), "");
  LLVMValueRef above = LLVMBuildUDiv(emit->builder, loop.i, emit_i64(emit, gemm->g.n), "");
  LLVMValueRef m = LLVMBuildURem(emit->builder, above, emit_i64(emit, gemm->g.m), "");
  LLVMValueRef batch = LLVMBuildUDiv(emit->builder, above, emit_i64(emit, gemm->g.m), "");
  LLVMValueRef at[] = {batch, m, n};
  for (int i = 0; i < 3; i++) at[i] = LLVMBuildTrunc(emit->builder, at[i], w->i32, "");
  GemmOut out = {.m = at[1], .n = at[2], .sum = sum_splits(gemm, loop.i)};
  put_results(gemm, at[0], &out);
  emit_loop_end(emit, &loop);
}
