/* Results of products by wgmma that leave by bulk tensor copies (attribute tile: BY_BULK_ALL); see
   gemm_wgmma.c for the whole. Each warp, whose sums are 16 rows of the tile:

     one lane: wait until copies have read what the warp left before; lanes meet
     for each panel of 64 columns:
       its rooms were used before in this tile: one lane: wait until they have been read; lanes meet
       epilogue of sums where they are, two columns of a thread at once
       16-bit words to shared memory, eight rows and columns at once (stmatrix), swizzled
       fence; lanes meet; one lane: copy the panel of each result
     after the last tile: one lane: wait for all copies

   So sums do not pass through shared memory, copies leave while the next panel is evaluated and the
   next tile is multiplied, and rows and columns that do not exist are not stored, without a
   comparison. For them the epilogue reads values of the last row or column.

   A warp has room for the panels of one result; with two results each room is used twice. If 64
   does not divide the columns of a tile, the last panel begins within the one before it and stores
   some columns a second time, with the same bits. */
#include "bulk.h"
#include "codegen/emit.h"
#include "gemm.h"
#include "warpgroup.h"

enum { EIGHT = 8, EIGHTS = WGMMA_LEAVE / EIGHT }; /* columns of a matrix; matrices of a panel */
enum { HALVES = 2 };                              /* of the rows of a warp */
enum { PANEL_BYTES = WGMMA_LEAVE_ROWS * WGMMA_PANEL };

typedef struct Leave {
  LLVMValueRef room, row;  /* i32: of the warp: in shared memory; its first row in the tile */
  LLVMValueRef to, turned; /* i32: of a lane's row of a matrix in a panel: offset; of its piece */
  int first;               /* column of the panel in the tile */
} Leave;

typedef struct Words { /* of a thread in eight columns, for stmatrix */
  LLVMValueRef of[KERNEL_MAPS - OPERAND_MAPS][HALVES];
} Words;

static Branch one_lane(Gemm *gemm) {
  return emit_if(gemm->e, warp_less(&gemm->w, gemm->w.lane, warp_i32(&gemm->w, 1)));
}

/* Groups of copies that may still read. */
static void make_room(Gemm *gemm, int groups) {
  Branch one = one_lane(gemm);
  bulk_leave_read(&gemm->w, groups);
  emit_end_if(gemm->e, one);
  warp_barrier_lanes(&gemm->w);
}

/* Not past the last one that exists: of rows, or of pairs of columns. */
static LLVMValueRef within(Gemm *gemm, LLVMValueRef i, int64_t extent, int64_t tile, int64_t step) {
  return extent % tile ? warp_min(&gemm->w, i, warp_i32(&gemm->w, extent - step)) : i;
}

/* Both neighbouring sums of a thread in eight columns and half of the rows. */
static GemmOut pair_of(Gemm *gemm, const Leave *leave, int eight, int half) {
  Warp *w = &gemm->w;
  int column = leave->first + EIGHT * eight, at = column / 2 + 2 * half;
  LLVMValueRef m = warp_add(w, gemm->m0, warp_add(w, leave->row, warp_div(w, w->lane, 4)));
  LLVMValueRef n = warp_add(w, gemm->n0, warp_times(w, warp_rem(w, w->lane, 4), 2));
  GemmOut out = {.sum = LLVMGetPoison(LLVMVectorType(w->f32, 2))};
  out.m = within(gemm, warp_plus(w, m, EIGHT * half), gemm->g.m, gemm->g.tile[GEMM_M], 1);
  out.n = within(gemm, warp_plus(w, n, column), gemm->g.n, gemm->g.tile[GEMM_N], 2);
  for (int i = 0; i < 2; i++)
    out.sum = LLVMBuildInsertElement(gemm->e->builder, out.sum, warp_get(w, &gemm->sums, at + i),
                                     warp_i32(w, i), "");
  return out;
}

/* Words of eight columns, both halves of the rows, for each result. */
static void evaluate(Gemm *gemm, const Leave *leave, int eight, Words *out) {
  const Fn *k = gemm->k;
  for (int half = 0; half < HALVES; half++) {
    GemmOut pair = pair_of(gemm, leave, eight, half);
    LLVMValueRef value[MAX_RESULTS];
    gemm_out_values(gemm, &pair, value);
    for (uint32_t i = 0; i < k->results.n; i++) {
      LLVMValueRef x = emit_splat(gemm->e, value[i], 2);
      x = expr_to_memory(gemm->e, value_type(k, k->results.at[i])->elem, x);
      out->of[i][half] = LLVMBuildBitCast(gemm->e->builder, x, gemm->w.i32, "");
    }
  }
}

static void copy(Gemm *gemm, const Leave *leave, uint32_t result, LLVMValueRef from) {
  Warp *w = &gemm->w;
  LLVMValueRef number[] = {[OF_N] = warp_plus(w, gemm->n0, leave->first),
                           [OF_MN] = warp_add(w, gemm->m0, leave->row),
                           [OF_BATCH] = gemm->batch};
  LLVMValueRef at[MAP_RANK];
  GemmMap map;
  if (!gemm_result_map(gemm->k, &gemm->p, &gemm->g, result, &map))
    bug("kernel %s: no map of a result", gemm->k->name);
  for (int i = 0; i < map.map.rank; i++) at[i] = gemm_bulk_at(gemm, &map, i, number[map.of[i]]);
  bulk_leave(w, gemm->e->map[OPERAND_MAPS + result], map.map.rank, at, from);
}

static LLVMValueRef room_of(Gemm *gemm, const Leave *leave, int room) {
  return warp_plus(&gemm->w, leave->room, room % (int)gemm_result_panels(&gemm->g) * PANEL_BYTES);
}

/* Eight lanes give the places of the rows of a matrix: of the upper and the lower half of eight
   columns, then of the next eight. */
static void put(Gemm *gemm, const Leave *leave, int eight, int room) {
  Warp *w = &gemm->w;
  Words one, next;
  evaluate(gemm, leave, eight, &one), evaluate(gemm, leave, eight + 1, &next);
  LLVMValueRef at = warp_xor(w, leave->turned, warp_i32(w, eight * WGMMA_PIECE));
  at = warp_add(w, at, leave->to);
  for (int i = 0; i < (int)gemm->k->results.n; i++) {
    LLVMValueRef words[] = {one.of[i][0], one.of[i][1], next.of[i][0], next.of[i][1]};
    warp_put_matrices(w, warp_add(w, room_of(gemm, leave, room + i), at), words);
  }
}

/* room: its number for the first result. */
static void leave_panel(Gemm *gemm, const Leave *leave, int room) {
  Warp *w = &gemm->w;
  for (int eight = 0; eight < EIGHTS; eight += 2) put(gemm, leave, eight, room);
  warpgroup_publish(w);
  warp_barrier_lanes(w);
  Branch one = one_lane(gemm);
  for (uint32_t i = 0; i < gemm->k->results.n; i++)
    copy(gemm, leave, i, room_of(gemm, leave, room + (int)i));
  bulk_leave_end(w);
  emit_end_if(gemm->e, one);
}

void gemm_leave_tile(Gemm *gemm, LLVMValueRef room, LLVMValueRef row) {
  Warp *w = &gemm->w;
  int panels = (int)gemm_result_panels(&gemm->g), results = (int)gemm->k->results.n,
      last = (int)gemm->g.tile[GEMM_N] - WGMMA_LEAVE;
  LLVMValueRef matrix = warp_div(w, w->lane, EIGHT), line = warp_rem(w, w->lane, EIGHT);
  Leave leave = {.room = room, .row = row};
  leave.to = warp_add(w, line, warp_times(w, warp_rem(w, matrix, 2), EIGHT));
  leave.to = warp_times(w, leave.to, WGMMA_PANEL);
  leave.turned = warp_times(w, warp_xor(w, warp_div(w, matrix, 2), line), WGMMA_PIECE);
  make_room(gemm, 0);
  for (int i = 0; i < panels; i++) {
    if ((i + 1) * results > panels) make_room(gemm, panels / results - 1);
    leave.first = i * WGMMA_LEAVE < last ? i * WGMMA_LEAVE : last;
    leave_panel(gemm, &leave, i * results);
  }
}

void gemm_leave_end(Gemm *gemm) {
  Branch one = one_lane(gemm);
  bulk_leave_wait(&gemm->w);
  emit_end_if(gemm->e, one);
}
