/* Family scatter on a GPU: rows of x are added up by index, without atomics and in the order of the
   rows, so that the same bits come out every time.

   Phase 0 fills the result with zeros, or with what the sums are added to; nothing is to be done if
   that stands in the result's buffer already. Phase 1, variant `search`: a warp has one row and a
   block of columns; it looks for the row's index among the rows before. If it is there, another
   warp does it; else the warp adds the row and all later ones of that index, in registers, and
   stores the sum. All lanes look at once, 32 rows at a time; what is read, indexes and rows of x,
   is read AT_ONCE times before the first of it is waited for, since a frequent index (a space among
   tokens) is one warp's work and takes as long as its reads. Variant `owner`, where the index
   differs from column to column: a thread has a column, goes through all rows, and is the only one
   that writes it. Indexes outside are dropped. */
#include "families.h"
#include "ir/kernel/gpu_tile.h"
#include "ir/kernel/scatter_shape.h"
#include "space.h"

enum { AT_ONCE = 4 };

typedef struct GpuScattering {
  Emit *e;
  Scatter s;
  Elem elem, in_registers; /* of the result, of its sums */
  int64_t rows, columns, vectors;
  LLVMValueRef own; /* index of the warp's row */
  Point column[GPU_COLUMNS_MOST];
} GpuScattering;

/* ---- phase 0 ---- */

static void phase_fill(GpuScattering *s, int lanes) {
  Emit *e = s->e;
  e->lanes = lanes;
  int64_t all = space_vectors(e, &s->s.result, lanes);
  emit_begin_phase(e, 0);
  Branch apart = emit_if_apart(e, s->s.from_arg);
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_index(e, simt_thread(e));
  LLVMValueRef flat = index_mul_add(e, cta, simt_threads(e, 0), thread);
  Branch b = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntULT, flat, emit_index(e, all), ""));
  Point p = space_point(e, &s->s.result, lanes, flat, NULL);
  bool from = s->s.base != NO_VALUE;
  expr_put(e, s->s.out, &p, from ? expr_value(e, s->s.base, &p) : emit_number(e, s->elem, 0));
  emit_end_if(e, b), emit_end_if(e, apart);
  emit_end_phase(e);
}

/* ---- rows ---- */

/* The index of a row at the columns of `base`, as e->index; -1: outside. */
static LLVMValueRef index_of(GpuScattering *s, LLVMValueRef row, const Point *base,
                             LLVMValueRef guard) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  Point p = space_point(e, &s->s.from, 1, row, base);
  p.guard = guard;
  expr_forget(e);
  LLVMValueRef i = expr_value(e, s->s.index, &p);
  i = expr_convert(e, i, value_type(e->k, s->s.index)->elem, ELEM_i64);
  expr_forget(e);
  LLVMValueRef inside = LLVMBuildICmp(b, LLVMIntULT, i, emit_i64(e, s->s.to_size), "");
  if (guard) inside = LLVMBuildAnd(b, inside, guard, "");
  return LLVMBuildSelect(b, inside, LLVMBuildTrunc(b, i, e->index, ""), emit_index(e, -1), "");
}

static LLVMValueRef x_at(GpuScattering *s, LLVMValueRef row, const Point *column) {
  Emit *e = s->e;
  Point p = space_point(e, &s->s.from, 1, row, column);
  p.guard = column->guard;
  LLVMValueRef x = expr_value(e, s->s.x, &p);
  x = expr_convert(e, x, value_type(e->k, s->s.x)->elem, s->in_registers);
  return emit_splat(e, x, e->lanes);
}

/* ---- variant search ---- */

/* One bit per lane: row first + lane, below `end`, has the own index. */
static LLVMValueRef equal_rows(GpuScattering *s, LLVMValueRef first, LLVMValueRef end) {
  Emit *e = s->e;
  LLVMValueRef row = LLVMBuildNSWAdd(e->builder, first, simt_index(e, simt_lane(e)), "");
  LLVMValueRef there = LLVMBuildICmp(e->builder, LLVMIntULT, row, end, "");
  LLVMValueRef i = index_of(s, row, NULL, there);
  return simt_ballot(e, LLVMBuildICmp(e->builder, LLVMIntEQ, i, s->own, ""));
}

/* Those of AT_ONCE times 32 rows. */
static void several_equal(GpuScattering *s, LLVMValueRef first, LLVMValueRef end,
                          LLVMValueRef *bits) {
  Emit *e = s->e;
  for (int i = 0; i < AT_ONCE; i++)
    bits[i] = equal_rows(s, LLVMBuildNSWAdd(e->builder, first, emit_index(e, i * WARP), ""), end);
}

typedef struct While {
  LLVMBasicBlockRef head, body, exit, before;
  LLVMValueRef phi[GPU_COLUMNS_MOST + 2];
  int n;
} While;

/* while (..): carried values are phis; while_test ends the head, while_end the body. */
static While while_begin(Emit *e, int n, const LLVMValueRef *initial) {
  While w = {.n = n, .before = LLVMGetInsertBlock(e->builder)};
  w.head = LLVMAppendBasicBlockInContext(e->context, e->function, "head");
  w.body = LLVMAppendBasicBlockInContext(e->context, e->function, "body");
  w.exit = LLVMAppendBasicBlockInContext(e->context, e->function, "exit");
  LLVMBuildBr(e->builder, w.head);
  LLVMPositionBuilderAtEnd(e->builder, w.head);
  for (int i = 0; i < n; i++) {
    LLVMValueRef first = initial[i];
    w.phi[i] = LLVMBuildPhi(e->builder, LLVMTypeOf(first), "");
    LLVMAddIncoming(w.phi[i], &first, &w.before, 1);
  }
  return w;
}

static void while_test(Emit *e, const While *w, LLVMValueRef more) {
  LLVMBuildCondBr(e->builder, more, w->body, w->exit);
  LLVMPositionBuilderAtEnd(e->builder, w->body);
}

static void while_end(Emit *e, const While *w, LLVMValueRef *next) {
  LLVMBasicBlockRef last = LLVMGetInsertBlock(e->builder);
  LLVMBuildBr(e->builder, w->head);
  for (int i = 0; i < w->n; i++) LLVMAddIncoming(w->phi[i], &next[i], &last, 1);
  LLVMPositionBuilderAtEnd(e->builder, w->exit);
}

/* Whether no row before has the own index. */
static LLVMValueRef is_first(GpuScattering *s, LLVMValueRef row) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef start[] = {emit_index(e, 0), simt_i32(e, 0)};
  While w = while_begin(e, 2, start);
  LLVMValueRef more = LLVMBuildICmp(b, LLVMIntULT, w.phi[0], row, "");
  LLVMValueRef none = LLVMBuildICmp(b, LLVMIntEQ, w.phi[1], simt_i32(e, 0), "");
  while_test(e, &w, LLVMBuildAnd(b, more, none, ""));
  LLVMValueRef next[2], bits[AT_ONCE];
  several_equal(s, w.phi[0], row, bits);
  for (int i = 1; i < AT_ONCE; i++) bits[0] = LLVMBuildOr(b, bits[0], bits[i], "");
  next[1] = bits[0];
  next[0] = LLVMBuildNSWAdd(b, w.phi[0], emit_index(e, AT_ONCE * WARP), "");
  while_end(e, &w, next);
  return LLVMBuildICmp(b, LLVMIntEQ, w.phi[1], simt_i32(e, 0), "");
}

/* A row to add: of the lowest bit that is set, which goes; guard: there was one. */
typedef struct TakenRows {
  LLVMValueRef guard, x[GPU_COLUMNS_MOST];
} TakenRows;

static TakenRows take_row(GpuScattering *s, LLVMValueRef first, LLVMValueRef *bits) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  TakenRows t = {.guard = LLVMBuildICmp(b, LLVMIntNE, *bits, simt_i32(e, 0), "")};
  /* Of no bit any number will do, since the guard keeps its row from being read: no branch. */
  LLVMValueRef args[] = {*bits, LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0)};
  LLVMValueRef lowest = emit_intrinsic(e, "llvm.cttz", LLVMTypeOf(*bits), 2, args);
  lowest = LLVMBuildFreeze(b, lowest, "");
  LLVMValueRef row = LLVMBuildNSWAdd(b, first, simt_index(e, lowest), "");
  expr_forget(e);
  for (int64_t i = 0; i < s->vectors; i++) {
    Point column = s->column[i];
    column.guard = column.guard ? LLVMBuildAnd(b, column.guard, t.guard, "") : t.guard;
    t.x[i] = x_at(s, row, &column);
  }
  expr_forget(e);
  *bits = LLVMBuildAnd(b, *bits, LLVMBuildSub(b, *bits, simt_i32(e, 1), ""), "");
  return t;
}

/* Adds the rows whose bits are set, lowest first. */
static void add_rows(GpuScattering *s, LLVMValueRef first, LLVMValueRef bits, LLVMValueRef *sum) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef start[GPU_COLUMNS_MOST + 1], next[GPU_COLUMNS_MOST + 1];
  TakenRows row[AT_ONCE];
  for (int64_t i = 0; i < s->vectors; i++) start[i + 1] = sum[i];
  start[0] = bits;
  While w = while_begin(e, (int)s->vectors + 1, start);
  while_test(e, &w, LLVMBuildICmp(b, LLVMIntNE, w.phi[0], simt_i32(e, 0), ""));
  for (int64_t i = 0; i <= s->vectors; i++) next[i] = w.phi[i];
  for (int j = 0; j < AT_ONCE; j++) row[j] = take_row(s, first, &next[0]);
  for (int j = 0; j < AT_ONCE; j++)
    for (int64_t i = 0; i < s->vectors; i++) {
      LLVMValueRef more = math_combine(e, OP_sum, next[i + 1], row[j].x[i]);
      next[i + 1] = LLVMBuildSelect(b, row[j].guard, more, next[i + 1], "");
    }
  while_end(e, &w, next);
  for (int64_t i = 0; i < s->vectors; i++) sum[i] = w.phi[i + 1];
}

static void sum_rows(GpuScattering *s, LLVMValueRef row, LLVMValueRef *sum) {
  Emit *e = s->e;
  LLVMValueRef bits[AT_ONCE];
  expr_forget(e);
  for (int64_t i = 0; i < s->vectors; i++) sum[i] = x_at(s, row, &s->column[i]);
  expr_forget(e);
  LLVMValueRef after = LLVMBuildNSWAdd(e->builder, row, emit_index(e, 1), "");
  Loop l = emit_loop(e, after, emit_index(e, s->rows), AT_ONCE * WARP, (int)s->vectors, sum);
  several_equal(s, l.i, emit_index(e, s->rows), bits);
  for (int64_t i = 0; i < s->vectors; i++) l.next[i] = l.phi[i];
  for (int j = 0; j < AT_ONCE; j++)
    add_rows(s, LLVMBuildNSWAdd(e->builder, l.i, emit_index(e, j * WARP), ""), bits[j], l.next);
  emit_loop_end(e, &l);
  for (int64_t i = 0; i < s->vectors; i++) sum[i] = l.phi[i];
}

static void store_sums(GpuScattering *s, const LLVMValueRef *sum) {
  Emit *e = s->e;
  for (int64_t i = 0; i < s->vectors; i++) {
    Point to = s->column[i];
    point_set(&to, (Index){.dim = s->s.to, .at = s->own});
    LLVMValueRef all = sum[i];
    if (s->s.base != NO_VALUE) {
      LLVMValueRef old = expr_load(e, s->s.out, &to);
      all = math_combine(e, OP_sum, expr_convert(e, old, s->elem, s->in_registers), all);
    }
    expr_put(e, s->s.out, &to, expr_convert(e, all, s->in_registers, s->elem));
  }
}

static void find_columns(GpuScattering *s, LLVMValueRef block) {
  Emit *e = s->e;
  for (int64_t i = 0; i < s->vectors; i++) {
    LLVMValueRef at = index_mul_add(e, block, s->vectors * WARP, emit_index(e, i * WARP));
    at = LLVMBuildNSWAdd(e->builder, at, simt_index(e, simt_lane(e)), "");
    s->column[i] = space_point(e, &s->s.kept, e->lanes, at, NULL);
    if (s->columns % (s->vectors * WARP))
      s->column[i].guard = LLVMBuildICmp(e->builder, LLVMIntULT, at, emit_index(e, s->columns), "");
  }
}

static void search(GpuScattering *s) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  int64_t blocks = (s->columns + s->vectors * WARP - 1) / (s->vectors * WARP);
  LLVMValueRef sum[GPU_COLUMNS_MOST], cta = simt_index(e, simt_cta(e));
  LLVMValueRef warp = index_mul_add(e, cta, simt_threads(e, 1) / WARP, simt_index(e, simt_warp(e)));
  LLVMValueRef row = index_div(e, warp, blocks);
  Branch there = emit_if(e, LLVMBuildICmp(b, LLVMIntULT, row, emit_index(e, s->rows), ""));
  find_columns(s, index_rem(e, warp, blocks));
  s->own = index_of(s, row, NULL, NULL);
  Branch wanted = emit_if(e, LLVMBuildICmp(b, LLVMIntSGE, s->own, emit_index(e, 0), ""));
  Branch first = emit_if(e, is_first(s, row));
  sum_rows(s, row, sum);
  store_sums(s, sum);
  emit_end_if(e, first), emit_end_if(e, wanted), emit_end_if(e, there);
}

/* ---- variant owner ---- */

static void own_column(GpuScattering *s) {
  Emit *e = s->e;
  LLVMBuilderRef b = e->builder;
  LLVMValueRef cta = simt_index(e, simt_cta(e)), thread = simt_index(e, simt_thread(e));
  LLVMValueRef flat = index_mul_add(e, cta, simt_threads(e, 1), thread);
  Branch there = emit_if(e, LLVMBuildICmp(b, LLVMIntULT, flat, emit_index(e, s->columns), ""));
  Point column = space_point(e, &s->s.kept, 1, flat, NULL);
  Loop l = emit_loop(e, emit_index(e, 0), emit_index(e, s->rows), 1, 0, NULL);
  LLVMValueRef at = index_of(s, l.i, &column, NULL);
  Branch wanted = emit_if(e, LLVMBuildICmp(b, LLVMIntSGE, at, emit_index(e, 0), ""));
  Point to = column;
  point_set(&to, (Index){.dim = s->s.to, .at = at});
  expr_forget(e);
  LLVMValueRef x = expr_convert(e, x_at(s, l.i, &column), s->in_registers, s->elem);
  expr_put(e, s->s.out, &to, math_combine(e, OP_sum, expr_load(e, s->s.out, &to), x));
  expr_forget(e);
  emit_end_if(e, wanted);
  emit_loop_end(e, &l);
  emit_end_if(e, there);
}

void gpu_scatter_emit(Emit *e) {
  const Fn *k = e->k;
  const int64_t *tile = emit_tile(e, SCATTER_TILES);
  GpuScattering *s = ARENA_NEW(e->arena, GpuScattering);
  s->e = e, s->s = scatter_of(k, 1);
  s->elem = value_type(k, s->s.out)->elem;
  s->in_registers = elem_is_half(s->elem) ? ELEM_f32 : s->elem;
  s->vectors = tile[SCATTER_VECTORS];
  if (s->vectors > GPU_COLUMNS_MOST) bug("kernel %s: too many columns per thread", k->name);
  phase_fill(s, (int)tile[SCATTER_FILL]);
  e->lanes = (int)tile[SCATTER_LANES];
  s->rows = nest_count(&s->s.from), s->columns = space_vectors(e, &s->s.kept, e->lanes);
  emit_begin_phase(e, 1);
  if (!strcmp(attr_str(&k->attrs, ATTR_variant, ""), "search")) search(s);
  else own_column(s);
  emit_end_phase(e);
}
