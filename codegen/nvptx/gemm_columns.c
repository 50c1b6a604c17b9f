/* A product's kernel sums a value of its epilogue over all rows: the gradient of a bias, without
   reading the rows again.

   The threads that evaluate results leave the values to be summed in shared memory, where the
   product's sums were. Then a thread adds up a column of the rows of a pass, and at last writes one
   f32 of the tile's line in the workspace; with wgmma a line is of a warpgroup's 64 rows. The last
   phase adds the lines in a fixed order (lines.h).

   Where results leave by bulk copies, values to be summed stay in registers: threads of a column
   add both of their rows, then halve the columns that they have three times, each time with the
   sums of the thread that keeps the other half, and leave two columns of a warp's 16 rows each in
   shared memory. A column that two panels have is added in the same order in both. */
#include "gemm.h"
#include "lines.h"
#include "warpgroup.h"

bool gemm_has_columns(const Gemm *gemm) { return gemm->p.columns != NO_VALUE; }

LLVMValueRef gemm_column_term(Gemm *gemm, const Point *p) {
  Emit *emit = gemm->e;
  LLVMValueRef x = expr_value(emit, value_def(gemm->k, gemm->p.columns)->in[0], p);
  return emit->lanes > 1 ? emit_splat(emit, x, emit->lanes) : x;
}

void gemm_column_leave(Gemm *gemm, const GemmOut *out, LLVMValueRef term) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  int lanes = gemm->e->lanes;
  for (int i = 0; i < lanes && lanes > 4; i += 4) {
    LLVMValueRef at[] = {warp_i32(w, i), warp_i32(w, i + 1), warp_i32(w, i + 2),
                         warp_i32(w, i + 3)};
    LLVMValueRef four = LLVMBuildShuffleVector(builder, term, LLVMGetPoison(LLVMTypeOf(term)),
                                               LLVMConstVector(at, 4), "");
    warp_store(w, four, out->at[i / 4], 16);
  }
  if (lanes <= 4) warp_store(w, term, out->at[0], 4 * lanes);
}

/* ---- by all threads of a CTA ---- */

static int64_t threads(const Gemm *gemm) { return gemm->g.threads[0]; }

/* Columns of a thread: every threads-th of the tile. */
static int columns_of(const Gemm *gemm) {
  if (gemm->g.math == GEMM_WGMMA) return WGMMA_OUT / 32;
  return (int)ceil_div(gemm->g.tile[GEMM_N], threads(gemm));
}

static LLVMValueRef column_of(Gemm *gemm, int i) {
  return warp_plus(&gemm->w, gemm->w.thread, i * threads(gemm));
}

void gemm_columns_start(Gemm *gemm) {
  gemm->columns = warp_registers(&gemm->w, gemm->w.f32, columns_of(gemm));
  warp_fill(&gemm->w, &gemm->columns, emit_f32(gemm->e, 0));
}

/* Rows past the last one hold no value. */
static LLVMValueRef term_at(Gemm *gemm, LLVMValueRef at, LLVMValueRef m) {
  Warp *w = &gemm->w;
  LLVMValueRef x = warp_load(w, w->f32, at, 4);
  if (gemm->g.m % gemm->g.tile[GEMM_M] == 0) return x;
  LLVMValueRef exists = warp_less(w, m, warp_i32(w, gemm->g.m));
  return LLVMBuildSelect(gemm->e->builder, exists, x, emit_f32(gemm->e, 0), "");
}

static void add_column(Gemm *gemm, int i, int pass) {
  Warp *w = &gemm->w;
  Emit *emit = gemm->e;
  LLVMValueRef column = column_of(gemm, i), sum = warp_get(w, &gemm->columns, i);
  Loop loop =
      emit_loop(emit, warp_i32(w, 0), warp_i32(w, gemm->g.warps_m * gemm->g.out_rows), 1, 1, &sum);
  LLVMValueRef at = warp_add(w, warp_times(w, loop.i, gemm->g.out_pitch), warp_times(w, column, 4));
  at = gemm_out_turn(gemm, at, warp_div(w, column, 32));
  LLVMValueRef m = warp_add(w, gemm->m0, gemm_out_row_of(gemm, loop.i, pass));
  loop.next[0] = LLVMBuildFAdd(emit->builder, loop.phi[0], term_at(gemm, at, m), "");
  emit_loop_end(emit, &loop);
  warp_set(w, &gemm->columns, i, loop.phi[0]);
}

/* The last columns of a tile narrower than the CTA have no thread. */
static Branch if_column(Gemm *gemm, int i, bool exists) {
  Warp *w = &gemm->w;
  LLVMValueRef column = column_of(gemm, i);
  LLVMValueRef in = warp_less(w, column, warp_i32(w, gemm->g.tile[GEMM_N]));
  LLVMValueRef n = warp_add(w, gemm->n0, column);
  if (exists) in = LLVMBuildAnd(gemm->e->builder, in, warp_less(w, n, warp_i32(w, gemm->g.n)), "");
  return emit_if(gemm->e, in);
}

void gemm_columns_add(Gemm *gemm, int pass) {
  warp_barrier(&gemm->w);
  for (int i = 0; i < columns_of(gemm); i++) {
    Branch branch = if_column(gemm, i, false);
    add_column(gemm, i, pass);
    emit_end_if(gemm->e, branch);
  }
}

void gemm_columns_end(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef line = warp_div(w, gemm->m0, gemm->g.tile[GEMM_M]);
  for (int i = 0; i < columns_of(gemm); i++) {
    Branch branch = if_column(gemm, i, true);
    LLVMValueRef n = warp_add(w, gemm->n0, column_of(gemm, i));
    lines_store(gemm->e, lines_at(gemm->e, &gemm->g.lines, 0, line, n),
                warp_get(w, &gemm->columns, i));
    emit_end_if(gemm->e, branch);
  }
}

/* ---- by a warpgroup ---- */

enum { ROWS = 8 };                       /* of a warp in its room */
enum { BARRIER = 2 * WGMMA_STAGES + 1 }; /* of the first warpgroup: after those of the ring */

static LLVMValueRef lane_column(Gemm *gemm, int j) {
  return warp_plus(&gemm->w, gemm->w.lane, 32 * j);
}

/* Pieces of eight columns change places where row and 32 columns are odd together or even together:
   see parity in gemm_wgmma.c. */
void gemm_columns_of_warp(Gemm *gemm, LLVMValueRef room, int columns) {
  Warp *w = &gemm->w;
  for (int j = 0; 32 * j < columns; j++) {
    LLVMValueRef sum = warp_get(w, &gemm->columns, j);
    LLVMValueRef at = warp_add(w, room, warp_times(w, lane_column(gemm, j), 4));
    LLVMValueRef turned = gemm->e->lanes > 4 ? warp_xor(w, at, warp_i32(w, 16)) : at;
    for (int row = 0; row < ROWS; row++) {
      LLVMValueRef from = warp_plus(w, (row + j) % 2 ? turned : at, row * gemm->g.out_pitch);
      sum = LLVMBuildFAdd(gemm->e->builder, sum, warp_load(w, w->f32, from, 4), "");
    }
    warp_set(w, &gemm->columns, j, sum);
  }
}

/* A thread has one column of the four warps. */
static LLVMValueRef of_warps(Gemm *gemm, LLVMValueRef rooms, LLVMValueRef thread) {
  Warp *w = &gemm->w;
  int64_t room = gemm->g.out_rows * gemm->g.out_pitch;
  LLVMValueRef at = warp_add(w, rooms, warp_times(w, thread, 4)), sum = NULL;
  for (int i = 0; i < WGMMA_THREADS / 32; i++) {
    LLVMValueRef x = warp_load(w, w->f32, warp_plus(w, at, i * room), 4);
    sum = sum ? LLVMBuildFAdd(gemm->e->builder, sum, x, "") : x;
  }
  return sum;
}

void gemm_columns_of_group(Gemm *gemm, LLVMValueRef group, LLVMValueRef rooms, int first,
                           int columns) {
  Warp *w = &gemm->w;
  int64_t room = gemm->g.out_rows * gemm->g.out_pitch;
  LLVMValueRef thread = warp_rem(w, w->thread, WGMMA_THREADS),
               barrier = warp_plus(w, group, BARRIER);
  LLVMValueRef own = warp_add(w, rooms, warp_times(w, warp_div(w, thread, 32), room));
  for (int j = 0; 32 * j < columns; j++)
    warp_store(w, warp_get(w, &gemm->columns, j),
               warp_add(w, own, warp_times(w, lane_column(gemm, j), 4)), 4);
  warp_fill(w, &gemm->columns, emit_f32(gemm->e, 0));
  warpgroup_meet(w, barrier, WGMMA_THREADS);
  LLVMValueRef n = warp_plus(w, warp_add(w, gemm->n0, thread), first);
  LLVMValueRef line = warp_div(w, gemm->m0, WGMMA_ROWS), sum = of_warps(gemm, rooms, thread);
  LLVMValueRef in = LLVMBuildAnd(gemm->e->builder, warp_less(w, n, warp_i32(w, gemm->g.n)),
                                 warp_less(w, thread, warp_i32(w, columns)), "");
  Branch branch = emit_if(gemm->e, in);
  lines_store(gemm->e, lines_at(gemm->e, &gemm->g.lines, 0, warp_add(w, line, group), n), sum);
  emit_end_if(gemm->e, branch);
  warpgroup_meet(w, barrier, WGMMA_THREADS);
}

/* ---- with bulk copies ---- */

/* i32: the warp's line; more: of the same warpgroup. */
static LLVMValueRef line_of(Gemm *gemm, LLVMValueRef row, int more) {
  Warp *w = &gemm->w;
  int64_t bytes = round_up(gemm->g.tile[GEMM_N] * 4, CACHE_LINE);
  LLVMValueRef warp = warp_plus(w, warp_div(w, row, WGMMA_LEAVE_ROWS), more);
  return warp_plus(w, warp_times(w, warp, bytes), gemm->g.sums_at);
}

void gemm_columns_of_panel(Gemm *gemm, LLVMValueRef sum[GEMM_PANEL_SUMS], int first) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  for (int distance = 16, n = GEMM_PANEL_SUMS / 2; distance >= 4; distance /= 2, n /= 2) {
    LLVMValueRef lower = warp_less(w, warp_rem(w, w->lane, 2 * distance), warp_i32(w, distance));
    for (int i = 0; i < n; i++) {
      LLVMValueRef keep = LLVMBuildSelect(builder, lower, sum[i], sum[i + n], ""),
                   give = LLVMBuildSelect(builder, lower, sum[i + n], sum[i], "");
      sum[i] = LLVMBuildFAdd(builder, keep, warp_from(w, give, distance), "");
    }
  }
  LLVMValueRef two = LLVMGetPoison(LLVMVectorType(w->f32, 2));
  for (int i = 0; i < 2; i++)
    two = LLVMBuildInsertElement(builder, two, sum[i], warp_i32(w, i), "");
  LLVMValueRef at = warp_plus(w, warp_times(w, w->lane, 8), 4 * first);
  warp_store(w, two, warp_add(w, at, line_of(gemm, gemm->row, 0)), 8);
}

/* A thread has every 128th column. */
void gemm_columns_of_panels(Gemm *gemm) {
  Warp *w = &gemm->w;
  int64_t columns = gemm->g.tile[GEMM_N];
  LLVMValueRef thread = warp_rem(w, w->thread, WGMMA_THREADS),
               group = warp_div(w, gemm->row, WGMMA_ROWS), barrier = warp_plus(w, group, BARRIER);
  LLVMValueRef line = warp_add(w, warp_div(w, gemm->m0, WGMMA_ROWS), group);
  warpgroup_meet(w, barrier, WGMMA_THREADS);
  for (int64_t i = 0; i < columns; i += WGMMA_THREADS) {
    LLVMValueRef column = warp_plus(w, thread, i), n = warp_add(w, gemm->n0, column), sum = NULL;
    LLVMValueRef in = LLVMBuildAnd(gemm->e->builder, warp_less(w, n, warp_i32(w, gemm->g.n)),
                                   warp_less(w, column, warp_i32(w, columns)), "");
    Branch branch = emit_if(gemm->e, in);
    for (int j = 0; j < WGMMA_THREADS / 32; j++) {
      LLVMValueRef from = line_of(gemm, warp_times(w, group, WGMMA_ROWS), j);
      LLVMValueRef x = warp_load(w, w->f32, warp_add(w, from, warp_times(w, column, 4)), 4);
      sum = sum ? LLVMBuildFAdd(gemm->e->builder, sum, x, "") : x;
    }
    lines_store(gemm->e, lines_at(gemm->e, &gemm->g.lines, 0, line, n), sum);
    emit_end_if(gemm->e, branch);
  }
  warpgroup_meet(w, barrier, WGMMA_THREADS); /* all have read them */
}

/* ---- the last phase ---- */

static void deliver(void *state, int i, LLVMValueRef at, LLVMValueRef sum) {
  Gemm *gemm = state;
  Emit *emit = gemm->e;
  Point p = {0};
  (void)i;
  at = LLVMBuildTrunc(emit->builder, at, gemm->w.i32, "");
  gemm_set_dims(gemm, &p, &gemm->p.n, at);
  for (int z = 0; z < gemm->p.nzero; z++)
    point_set(&p, (Index){.dim = gemm->p.zero[z], .at = emit_index(emit, 0)});
  expr_put(emit, gemm->p.columns, &p,
           expr_convert(emit, sum, ELEM_f32, value_type(gemm->k, gemm->p.columns)->elem));
}

void gemm_columns_join(Gemm *gemm, int phase) {
  lines_join(gemm->e, phase, &gemm->g.lines, deliver, gemm);
}
