/* Family scatter on a GPU: rows of x are added up by index, without atomics and in the order of the
   rows, so that the result has the same bits every time.

   Phase 0 fills the result with zeros, or with the value to which the sums are added; it does
   nothing if that value has the result's buffer already.

   Variant `order`: one CTA of phase 0 sorts the rows by index, phases 1 and 2 add pieces of at most
   64 of them, and then the pieces (scatter_order.c).

   Phase 1, variant `search`, for few rows: a warp has one row and a block of columns; it searches
   the row's index among the rows before. If it finds it, another warp does the work; else the warp
   adds the row and all later ones of that index, in registers, and stores the sum. All lanes search
   at once, 32 rows at a time. Variant `owner`, where the index differs from column to column: a
   thread has a column, reads all rows, and is the only one that writes it. Indexes outside are
   dropped. */
#include "scatter.h"
#include "ir/support/num.h"

/* ---- phase 0 ---- */

static void fill(GpuScattering *scattering, LLVMValueRef cta) {
  Emit *e = scattering->e;
  int64_t all = space_vectors(e, &scattering->s.result, e->lanes);
  Branch apart = emit_if_apart(e, scattering->s.from_arg);
  LLVMValueRef thread = simt_index(e, simt_thread(e));
  LLVMValueRef flat = index_mul_add(e, cta, simt_threads(e, 0), thread);
  Branch branch = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, flat, emit_index(e, all), ""));
  Point p = space_point(e, &scattering->s.result, e->lanes, flat, NULL);
  bool from = scattering->s.base != NO_VALUE;
  expr_put(e, scattering->s.out, &p,
           from ? expr_value(e, scattering->s.base, &p) : emit_number(e, scattering->elem, 0));
  emit_end_if(e, branch), emit_end_if(e, apart);
}

/* The first CTA may sort meanwhile: it takes longest. */
static void phase_fill(GpuScattering *scattering, int lanes, bool sorts) {
  Emit *e = scattering->e;
  e->lanes = lanes;
  emit_begin_phase(e, 0);
  LLVMValueRef cta = simt_index(e, simt_cta(e));
  if (sorts) {
    LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntEQ, cta, emit_index(e, 0), "");
    Branch sort = emit_if(e, first);
    scatter_sort(scattering);
    LLVMBuildRetVoid(e->builder);
    LLVMPositionBuilderAtEnd(e->builder, sort.rest);
    cta = LLVMBuildNSWSub(e->builder, cta, emit_index(e, 1), "");
  }
  fill(scattering, cta);
  emit_end_phase(e);
}

/* ---- rows ---- */

LLVMValueRef scatter_index_of(GpuScattering *scattering, LLVMValueRef row, const Point *base,
                              LLVMValueRef guard) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  Point p = space_point(e, &scattering->s.from, 1, row, base);
  p.guard = guard;
  expr_forget(e);
  LLVMValueRef i = expr_value(e, scattering->s.index, &p);
  i = expr_convert(e, i, value_type(e->k, scattering->s.index)->elem, ELEM_i64);
  expr_forget(e);
  LLVMValueRef inside =
      LLVMBuildICmp(builder, LLVMIntULT, i, emit_i64(e, scattering->s.to_size), "");
  if (guard) inside = LLVMBuildAnd(builder, inside, guard, "");
  return LLVMBuildSelect(builder, inside, LLVMBuildTrunc(builder, i, e->index, ""),
                         emit_index(e, -1), "");
}

LLVMValueRef scatter_x_at(GpuScattering *scattering, LLVMValueRef row, const Point *column) {
  Emit *e = scattering->e;
  Point p = space_point(e, &scattering->s.from, 1, row, column);
  p.guard = column->guard;
  LLVMValueRef x = expr_value(e, scattering->s.x, &p);
  x = expr_convert(e, x, value_type(e->k, scattering->s.x)->elem, scattering->in_registers);
  return emit_splat(e, x, e->lanes);
}

/* ---- variant search ---- */

/* One bit per lane: row first + lane, below `end`, has the own index. */
static LLVMValueRef equal_rows(GpuScattering *scattering, LLVMValueRef first, LLVMValueRef end) {
  Emit *e = scattering->e;
  LLVMValueRef row = LLVMBuildNSWAdd(e->builder, first, simt_index(e, simt_lane(e)), "");
  LLVMValueRef present = LLVMBuildICmp(e->builder, LLVMIntULT, row, end, "");
  LLVMValueRef i = scatter_index_of(scattering, row, NULL, present);
  return simt_ballot(e, LLVMBuildICmp(e->builder, LLVMIntEQ, i, scattering->own, ""));
}

/* Those of SCATTER_AT_ONCE times 32 rows. */
static void several_equal(GpuScattering *scattering, LLVMValueRef first, LLVMValueRef end,
                          LLVMValueRef *bits) {
  Emit *e = scattering->e;
  for (int i = 0; i < SCATTER_AT_ONCE; i++)
    bits[i] = equal_rows(scattering,
                         LLVMBuildNSWAdd(e->builder, first, emit_index(e, i * WARP), ""), end);
}

While while_begin(Emit *e, int n, const LLVMValueRef *initial) {
  While loop = {.n = n, .before = LLVMGetInsertBlock(e->builder)};
  loop.head = LLVMAppendBasicBlockInContext(e->context, e->function, "head");
  loop.body = LLVMAppendBasicBlockInContext(e->context, e->function, "body");
  loop.exit = LLVMAppendBasicBlockInContext(e->context, e->function, "exit");
  LLVMBuildBr(e->builder, loop.head);
  LLVMPositionBuilderAtEnd(e->builder, loop.head);
  for (int i = 0; i < n; i++) {
    LLVMValueRef first = initial[i];
    loop.phi[i] = LLVMBuildPhi(e->builder, LLVMTypeOf(first), "");
    LLVMAddIncoming(loop.phi[i], &first, &loop.before, 1);
  }
  return loop;
}

void while_test(Emit *e, const While *loop, LLVMValueRef more) {
  LLVMBuildCondBr(e->builder, more, loop->body, loop->exit);
  LLVMPositionBuilderAtEnd(e->builder, loop->body);
}

void while_end(Emit *e, const While *loop, LLVMValueRef *next) {
  LLVMBasicBlockRef last = LLVMGetInsertBlock(e->builder);
  LLVMBuildBr(e->builder, loop->head);
  for (int i = 0; i < loop->n; i++) LLVMAddIncoming(loop->phi[i], &next[i], &last, 1);
  LLVMPositionBuilderAtEnd(e->builder, loop->exit);
}

/* Whether no row before has the own index. */
static LLVMValueRef is_first(GpuScattering *scattering, LLVMValueRef row) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef start[] = {emit_index(e, 0), simt_i32(e, 0)};
  While loop = while_begin(e, 2, start);
  LLVMValueRef more = LLVMBuildICmp(builder, LLVMIntULT, loop.phi[0], row, "");
  LLVMValueRef none = LLVMBuildICmp(builder, LLVMIntEQ, loop.phi[1], simt_i32(e, 0), "");
  while_test(e, &loop, LLVMBuildAnd(builder, more, none, ""));
  LLVMValueRef next[2], bits[SCATTER_AT_ONCE];
  several_equal(scattering, loop.phi[0], row, bits);
  for (int i = 1; i < SCATTER_AT_ONCE; i++) bits[0] = LLVMBuildOr(builder, bits[0], bits[i], "");
  next[1] = bits[0];
  next[0] = LLVMBuildNSWAdd(builder, loop.phi[0], emit_index(e, SCATTER_AT_ONCE * WARP), "");
  while_end(e, &loop, next);
  return LLVMBuildICmp(builder, LLVMIntEQ, loop.phi[1], simt_i32(e, 0), "");
}

/* A row to add: of the lowest bit that is set, which goes; guard: there was one. */
typedef struct TakenRows {
  LLVMValueRef guard, x[GPU_COLUMNS_MOST];
} TakenRows;

static TakenRows take_row(GpuScattering *scattering, LLVMValueRef first, LLVMValueRef *bits) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  TakenRows rows = {.guard = LLVMBuildICmp(builder, LLVMIntNE, *bits, simt_i32(e, 0), "")};
  /* If there is no bit, any number will do, since the guard prevents the read of its row: no
     branch. */
  LLVMValueRef args[] = {*bits, LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0)};
  LLVMValueRef lowest = emit_intrinsic(e, "llvm.cttz", LLVMTypeOf(*bits), 2, args);
  lowest = LLVMBuildFreeze(builder, lowest, "");
  LLVMValueRef row = LLVMBuildNSWAdd(builder, first, simt_index(e, lowest), "");
  expr_forget(e);
  for (int64_t i = 0; i < scattering->vectors; i++) {
    Point column = scattering->column[i];
    column.guard = column.guard ? LLVMBuildAnd(builder, column.guard, rows.guard, "") : rows.guard;
    rows.x[i] = scatter_x_at(scattering, row, &column);
  }
  expr_forget(e);
  *bits = LLVMBuildAnd(builder, *bits, LLVMBuildSub(builder, *bits, simt_i32(e, 1), ""), "");
  return rows;
}

/* Adds the rows whose bits are set, lowest first. */
static void add_rows(GpuScattering *scattering, LLVMValueRef first, LLVMValueRef bits,
                     LLVMValueRef *sum) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef start[GPU_COLUMNS_MOST + 1], next[GPU_COLUMNS_MOST + 1];
  TakenRows row[SCATTER_AT_ONCE];
  for (int64_t i = 0; i < scattering->vectors; i++) start[i + 1] = sum[i];
  start[0] = bits;
  While loop = while_begin(e, (int)scattering->vectors + 1, start);
  while_test(e, &loop, LLVMBuildICmp(builder, LLVMIntNE, loop.phi[0], simt_i32(e, 0), ""));
  for (int64_t i = 0; i <= scattering->vectors; i++) next[i] = loop.phi[i];
  for (int j = 0; j < SCATTER_AT_ONCE; j++) row[j] = take_row(scattering, first, &next[0]);
  for (int j = 0; j < SCATTER_AT_ONCE; j++)
    for (int64_t i = 0; i < scattering->vectors; i++) {
      LLVMValueRef more = math_combine(e, OP_sum, next[i + 1], row[j].x[i]);
      next[i + 1] = LLVMBuildSelect(builder, row[j].guard, more, next[i + 1], "");
    }
  while_end(e, &loop, next);
  for (int64_t i = 0; i < scattering->vectors; i++) sum[i] = loop.phi[i + 1];
}

static void sum_rows(GpuScattering *scattering, LLVMValueRef row, LLVMValueRef *sum) {
  Emit *e = scattering->e;
  LLVMValueRef bits[SCATTER_AT_ONCE];
  expr_forget(e);
  for (int64_t i = 0; i < scattering->vectors; i++)
    sum[i] = scatter_x_at(scattering, row, &scattering->column[i]);
  expr_forget(e);
  LLVMValueRef after = LLVMBuildNSWAdd(e->builder, row, emit_index(e, 1), "");
  Loop loop = emit_loop(e, after, emit_index(e, scattering->rows), SCATTER_AT_ONCE * WARP,
                        (int)scattering->vectors, sum);
  several_equal(scattering, loop.i, emit_index(e, scattering->rows), bits);
  for (int64_t i = 0; i < scattering->vectors; i++) loop.next[i] = loop.phi[i];
  for (int j = 0; j < SCATTER_AT_ONCE; j++)
    add_rows(scattering, LLVMBuildNSWAdd(e->builder, loop.i, emit_index(e, j * WARP), ""), bits[j],
             loop.next);
  emit_loop_end(e, &loop);
  for (int64_t i = 0; i < scattering->vectors; i++) sum[i] = loop.phi[i];
}

void scatter_store(GpuScattering *scattering, const LLVMValueRef *sum) {
  Emit *e = scattering->e;
  for (int64_t i = 0; i < scattering->vectors; i++) {
    Point to = scattering->column[i];
    point_set(&to, (Index){.dim = scattering->s.to, .at = scattering->own});
    LLVMValueRef all = sum[i];
    if (scattering->s.base != NO_VALUE) {
      LLVMValueRef old = expr_load(e, scattering->s.out, &to);
      all = math_combine(e, OP_sum,
                         expr_convert(e, old, scattering->elem, scattering->in_registers), all);
    }
    expr_put(e, scattering->s.out, &to,
             expr_convert(e, all, scattering->in_registers, scattering->elem));
  }
}

int64_t scatter_blocks(const GpuScattering *scattering) {
  return ceil_div(scattering->columns, scattering->vectors * WARP);
}

void scatter_find_columns(GpuScattering *scattering, LLVMValueRef block) {
  Emit *e = scattering->e;
  for (int64_t i = 0; i < scattering->vectors; i++) {
    LLVMValueRef at = index_mul_add(e, block, scattering->vectors * WARP, emit_index(e, i * WARP));
    at = LLVMBuildNSWAdd(e->builder, at, simt_index(e, simt_lane(e)), "");
    scattering->at[i] = at;
    scattering->column[i] = space_point(e, &scattering->s.kept, e->lanes, at, NULL);
    if (scattering->columns % (scattering->vectors * WARP))
      scattering->column[i].guard =
          LLVMBuildICmp(e->builder, LLVMIntULT, at, emit_index(e, scattering->columns), "");
  }
}

static void search(GpuScattering *scattering) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  int64_t blocks = scatter_blocks(scattering);
  LLVMValueRef sum[GPU_COLUMNS_MOST], cta = simt_index(e, simt_cta(e));
  LLVMValueRef warp = index_mul_add(e, cta, simt_threads(e, 1) / WARP, simt_index(e, simt_warp(e)));
  LLVMValueRef row = index_div(e, warp, blocks);
  Branch present =
      emit_if(e, LLVMBuildICmp(builder, LLVMIntULT, row, emit_index(e, scattering->rows), ""));
  scatter_find_columns(scattering, index_rem(e, warp, blocks));
  scattering->own = scatter_index_of(scattering, row, NULL, NULL);
  Branch wanted =
      emit_if(e, LLVMBuildICmp(builder, LLVMIntSGE, scattering->own, emit_index(e, 0), ""));
  Branch first = emit_if(e, is_first(scattering, row));
  sum_rows(scattering, row, sum);
  scatter_store(scattering, sum);
  emit_end_if(e, first), emit_end_if(e, wanted), emit_end_if(e, present);
}

/* ---- variant owner ---- */

static void own_column(GpuScattering *scattering) {
  Emit *e = scattering->e;
  LLVMBuilderRef builder = e->builder;
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_index(e, simt_thread(e));
  LLVMValueRef flat = index_mul_add(e, cta, simt_threads(e, 1), thread);
  Branch present =
      emit_if(e, LLVMBuildICmp(builder, LLVMIntULT, flat, emit_index(e, scattering->columns), ""));
  Point column = space_point(e, &scattering->s.kept, 1, flat, NULL);
  Loop loop = emit_loop(e, emit_index(e, 0), emit_index(e, scattering->rows), 1, 0, NULL);
  LLVMValueRef at = scatter_index_of(scattering, loop.i, &column, NULL);
  Branch wanted = emit_if(e, LLVMBuildICmp(builder, LLVMIntSGE, at, emit_index(e, 0), ""));
  Point to = column;
  point_set(&to, (Index){.dim = scattering->s.to, .at = at});
  expr_forget(e);
  LLVMValueRef x = expr_convert(e, scatter_x_at(scattering, loop.i, &column),
                                scattering->in_registers, scattering->elem);
  expr_put(e, scattering->s.out, &to,
           math_combine(e, OP_sum, expr_load(e, scattering->s.out, &to), x));
  expr_forget(e);
  emit_end_if(e, wanted);
  emit_loop_end(e, &loop);
  emit_end_if(e, present);
}

void gpu_scatter_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, SCATTER_TILES);
  GpuScattering *scattering = ARENA_NEW(e->arena, GpuScattering);
  scattering->e = e, scattering->s = scatter_of(k, 1);
  scattering->elem = value_type(k, scattering->s.out)->elem;
  scattering->in_registers = elem_is_half(scattering->elem) ? ELEM_f32 : scattering->elem;
  scattering->vectors = tile[SCATTER_VECTORS];
  if (scattering->vectors > GPU_COLUMNS_MOST)
    bug("kernel %s: too many columns per thread", k->name);
  Str variant = attr_str(&k->attrs, ATTR_variant, "");
  bool order = !strcmp(variant, "order");
  scattering->rows = nest_count(&scattering->s.from);
  phase_fill(scattering, (int)tile[SCATTER_FILL], order);
  e->lanes = (int)tile[SCATTER_LANES];
  scattering->columns = space_vectors(e, &scattering->s.kept, e->lanes);
  emit_begin_phase(e, 1);
  if (order) scatter_pieces(scattering);
  else if (!strcmp(variant, "search")) search(scattering);
  else own_column(scattering);
  emit_end_phase(e);
  if (!order) return;
  emit_begin_phase(e, 2);
  scatter_joins(scattering);
  emit_end_phase(e);
}
