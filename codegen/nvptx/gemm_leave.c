/* Results of products by wgmma that leave by bulk tensor copies (attribute tile: BY_BULK_ALL); see
   gemm_wgmma.c for the whole. Each warp, whose sums are 16 rows of the tile:

     if other arguments have an element for each sum (residuals, kept values), with the first tile
     of k: one lane: wait until copies have read what the warp left before; copy all panels of them

     wait until copies have read what the warp left before; warp barrier
       or: wait until all elements have come
     for each panel of 64 columns:
       elements of the panel to registers, as sums are (ldmatrix)
       its rooms were used before in this tile: wait until they have been read; warp barrier
       epilogue of sums where they are, two columns of a thread at once
       16-bit words to shared memory, eight rows and columns at once (stmatrix), swizzled
       fence; warp barrier; one lane: copy the panel of each result
     sums of columns (gemm_columns.c)
     after the last tile: wait for all copies

   So sums do not pass through shared memory, and copies run while the next panel is evaluated and
   the next tile is multiplied. They leave out rows and columns outside of the result, so kernels
   compare no positions: the epilogue reads values of the last row or column for them, or zeros.

   A result is copied from the room of an element of its panel, or from the room whose last use is
   the longest ago. It may have the buffer of an element: all elements of a tile are read before its
   first result is written. If 64 does not divide the columns of a tile, the last panel begins
   within the one before it and stores some columns a second time, with the same bits. */
#include "bulk.h"
#include "codegen/emit.h"
#include "gemm.h"
#include "warpgroup.h"

enum { EIGHT = 8, EIGHTS = WGMMA_LEAVE / EIGHT }; /* columns of a matrix; matrices of a panel */
enum { HALVES = 2 };                              /* of the rows of a warp */
enum { PANEL_BYTES = WGMMA_LEAVE_ROWS * WGMMA_PANEL };

enum { MOST_ROOMS = 16, NEVER = -1 };

typedef struct Leave {
  LLVMValueRef to, turned; /* i32: of a lane's row of a matrix in a panel: offset; of its piece */
  int panel;
  int left[MOST_ROOMS];      /* of each room: the last panel that left from it, or NEVER */
  int read;                  /* the last panel that is known to have been read, or NEVER */
  int room[PRODUCT_RESULTS]; /* of the panel's results */
  LLVMValueRef element[PRODUCT_ELEMENTS][EIGHTS][HALVES]; /* words of the panel */
  LLVMValueRef sum[GEMM_PANEL_SUMS]; /* of columns, both rows of the thread: two of each eight */
} Leave;

typedef struct Words { /* of a thread in eight columns, for stmatrix */
  LLVMValueRef of[PRODUCT_RESULTS][HALVES];
} Words;

static Branch one_lane(Gemm *gemm) {
  return emit_if(gemm->e, warp_less(&gemm->w, gemm->w.lane, warp_i32(&gemm->w, 1)));
}

/* Groups of copies that may still read. Lanes that began none do not wait. */
static void make_room(Gemm *gemm, int groups) {
  bulk_leave_read(&gemm->w, groups);
  warp_barrier_lanes(&gemm->w);
}

/* Not past the last one that exists: of rows, or of pairs of columns. */
static LLVMValueRef within(Gemm *gemm, LLVMValueRef i, int64_t extent, int64_t tile, int64_t step) {
  return extent % tile ? warp_min(&gemm->w, i, warp_i32(&gemm->w, extent - step)) : i;
}

static int panels_of(const Gemm *gemm) { return (int)gemm_panels_across(&gemm->g); }

/* Column of the panel in the tile. */
static int first_of(const Gemm *gemm, int panel) {
  int last = (int)gemm->g.tile[GEMM_N] - WGMMA_LEAVE;
  return panel * WGMMA_LEAVE < last ? panel * WGMMA_LEAVE : last;
}

static LLVMValueRef room_at(Gemm *gemm, int room) {
  return warp_plus(&gemm->w, gemm->room, room * PANEL_BYTES);
}

/* Number of the room of an element's panel. */
static int room_of(const Gemm *gemm, int element, int panel) {
  return element * panels_of(gemm) + panel;
}

/* ---- elements ---- */

LLVMValueRef gemm_leave_signal(Gemm *gemm, LLVMValueRef row) {
  LLVMValueRef warp = warp_div(&gemm->w, row, WGMMA_LEAVE_ROWS);
  return warp_plus(&gemm->w, warp_times(&gemm->w, warp, SIGNAL_BYTES), gemm->g.elements_at);
}

/* Coordinates of a panel of that buffer. */
static GemmMap place_of(Gemm *gemm, uint32_t buffer, int panel, LLVMValueRef at[MAP_RANK]) {
  Warp *w = &gemm->w;
  LLVMValueRef number[] = {[OF_N] = warp_plus(w, gemm->n0, first_of(gemm, panel)),
                           [OF_MN] = warp_add(w, gemm->m0, gemm->row),
                           [OF_BATCH] = gemm->batch};
  GemmMap map;
  if (!gemm_panel_map(gemm->k, &gemm->p, &gemm->g, buffer, &map))
    bug("kernel %s: no map of buffer %u", gemm->k->name, buffer);
  for (int i = 0; i < map.map.rank; i++) at[i] = gemm_bulk_at(gemm, &map, i, number[map.of[i]]);
  return map;
}

void gemm_leave_start(Gemm *gemm, LLVMValueRef room, LLVMValueRef row) {
  gemm->room = room, gemm->row = row;
  if (!gemm_has_elements(gemm)) return;
  gemm->come = warp_registers(&gemm->w, gemm->w.i32, 1);
  warp_set(&gemm->w, &gemm->come, 0, warp_i32(&gemm->w, 0));
}

void gemm_leave_bring(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef signal = gemm_leave_signal(gemm, gemm->row), at[MAP_RANK];
  int panels = panels_of(gemm);
  Branch one = one_lane(gemm);
  bulk_leave_read(w, 0);
  bulk_expect(w, signal, gemm->p.elements * panels * PANEL_BYTES);
  for (int e = 0; e < gemm->p.elements; e++)
    for (int i = 0; i < panels; i++) {
      GemmMap map = place_of(gemm, gemm->p.element[e], i, at);
      LLVMValueRef of = gemm->e->map[OPERAND_MAPS + gemm->p.results + e];
      bulk_copy(w, room_at(gemm, room_of(gemm, e, i)), of, map.map.rank, at, signal);
    }
  emit_end_if(gemm->e, one);
}

static void wait_elements(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef parity = warp_get(w, &gemm->come, 0);
  bulk_wait(w, gemm_leave_signal(gemm, gemm->row), parity);
  warp_set(w, &gemm->come, 0, warp_xor(w, parity, warp_i32(w, 1)));
}

/* i32: the lane's row of the matrices of two eights. */
static LLVMValueRef matrices_at(Gemm *gemm, const Leave *leave, int eight) {
  Warp *w = &gemm->w;
  LLVMValueRef at = warp_xor(w, leave->turned, warp_i32(w, eight * WGMMA_PIECE));
  return warp_add(w, at, leave->to);
}

/* Words of the panel's elements, before a result takes their place: a lane gives the same addresses
   then, so that no barrier is needed. */
static void take_elements(Gemm *gemm, Leave *leave) {
  Warp *w = &gemm->w;
  for (int e = 0; e < gemm->p.elements; e++)
    for (int eight = 0; eight < EIGHTS; eight += 2) {
      LLVMValueRef room = room_at(gemm, room_of(gemm, e, leave->panel)), word[4];
      warp_matrices(w, warp_add(w, room, matrices_at(gemm, leave, eight)), 0, false, word);
      for (int i = 0; i < 2 * HALVES; i++)
        leave->element[e][eight + i / HALVES][i % HALVES] = word[i];
    }
}

/* ---- results ---- */

/* Both neighbouring sums of a thread in eight columns and half of the rows. */
static GemmOut pair_of(Gemm *gemm, const Leave *leave, int eight, int half) {
  Warp *w = &gemm->w;
  int column = first_of(gemm, leave->panel) + EIGHT * eight, at = column / 2 + 2 * half;
  LLVMValueRef m = warp_add(w, gemm->m0, warp_add(w, gemm->row, warp_div(w, w->lane, 4)));
  LLVMValueRef n = warp_add(w, gemm->n0, warp_times(w, warp_rem(w, w->lane, 4), 2));
  GemmOut out = {.sum = LLVMGetPoison(LLVMVectorType(w->f32, 2))};
  out.m = within(gemm, warp_plus(w, m, EIGHT * half), gemm->g.m, gemm->g.tile[GEMM_M], 1);
  out.n = within(gemm, warp_plus(w, n, column), gemm->g.n, gemm->g.tile[GEMM_N], 2);
  for (int i = 0; i < 2; i++)
    out.sum = LLVMBuildInsertElement(gemm->e->builder, out.sum, warp_get(w, &gemm->sums, at + i),
                                     warp_i32(w, i), "");
  for (int e = 0; e < gemm->p.elements; e++) out.element[e] = leave->element[e][eight][half];
  return out;
}

/* Rows past the last one hold no value. */
static void add_terms(Gemm *gemm, Leave *leave, int eight, int half, LLVMValueRef term) {
  Warp *w = &gemm->w;
  LLVMBuilderRef builder = gemm->e->builder;
  LLVMValueRef m = warp_add(w, gemm->m0, warp_add(w, gemm->row, warp_div(w, w->lane, 4)));
  LLVMValueRef exists = warp_less(w, warp_plus(w, m, EIGHT * half), warp_i32(w, gemm->g.m));
  for (int i = 0; i < 2; i++) {
    LLVMValueRef x = LLVMBuildExtractElement(builder, term, warp_i32(w, i), ""),
                 *sum = &leave->sum[2 * eight + i];
    if (gemm->g.m % gemm->g.tile[GEMM_M])
      x = LLVMBuildSelect(builder, exists, x, emit_f32(gemm->e, 0), "");
    *sum = half ? LLVMBuildFAdd(builder, *sum, x, "") : x;
  }
}

/* Words of eight columns, both halves of the rows, for each result. */
static void evaluate(Gemm *gemm, Leave *leave, int eight, Words *out) {
  const Fn *k = gemm->k;
  for (int half = 0; half < HALVES; half++) {
    GemmOut pair = pair_of(gemm, leave, eight, half);
    LLVMValueRef value[MAX_RESULTS];
    LLVMValueRef term = gemm_out_values(gemm, &pair, value);
    if (term) add_terms(gemm, leave, eight, half, term);
    for (int i = 0; i < gemm->p.results; i++) {
      LLVMValueRef x = emit_splat(gemm->e, value[i], 2);
      x = expr_to_memory(gemm->e, value_type(k, k->results.at[i])->elem, x);
      out->of[i][half] = LLVMBuildBitCast(gemm->e->builder, x, gemm->w.i32, "");
    }
  }
}

/* Eight lanes give the places of the rows of a matrix: of the upper and the lower half of eight
   columns, then of the next eight. */
static void put(Gemm *gemm, Leave *leave, int eight) {
  Warp *w = &gemm->w;
  Words one, next;
  evaluate(gemm, leave, eight, &one), evaluate(gemm, leave, eight + 1, &next);
  for (int i = 0; i < gemm->p.results; i++) {
    LLVMValueRef words[] = {one.of[i][0], one.of[i][1], next.of[i][0], next.of[i][1]};
    LLVMValueRef room = room_at(gemm, leave->room[i]);
    warp_put_matrices(w, warp_add(w, room, matrices_at(gemm, leave, eight)), words);
  }
}

/* Elements of later panels, and those of this one that a result replaces, have their rooms. */
static bool is_taken(const Gemm *gemm, const Leave *leave, int room) {
  int panels = panels_of(gemm), e = room / panels;
  if (e >= gemm->p.elements) return false;
  return room % panels > leave->panel || (room % panels == leave->panel && e < gemm->p.results);
}

static int oldest_room(const Gemm *gemm, const Leave *leave) {
  int best = NEVER;
  for (int i = 0; i < gemm->g.rooms; i++)
    if (!is_taken(gemm, leave, i) && leave->left[i] < leave->panel &&
        (best == NEVER || leave->left[i] < leave->left[best]))
      best = i;
  must(best != NEVER, "kernel %s: no room for a panel", gemm->k->name);
  return best;
}

/* A panel's copies are one group, also where no room is used twice in a tile and no wait tells
   groups apart: the assembler evaluates no panel before the group of the one before it ends.
   Several panels at once, with random numbers of a dropout, would fill the registers. */
static void choose_rooms(Gemm *gemm, Leave *leave) {
  int last = NEVER;
  for (int i = 0; i < gemm->p.results; i++) {
    int room = i < gemm->p.elements ? room_of(gemm, i, leave->panel) : oldest_room(gemm, leave);
    if (leave->left[room] > last) last = leave->left[room];
    leave->room[i] = room, leave->left[room] = leave->panel;
  }
  if (last <= leave->read) return;
  make_room(gemm, leave->panel - 1 - last);
  leave->read = last;
}

/* Are results computed by many instructions? Sums of columns are added outside of a branch. */
static bool is_slow(const Gemm *gemm) {
  bool slow = false;
  EACH_OP (gemm->k, o) slow |= o->code == OP_rand || op_flags(o->code) & SLOW;
  return slow && !gemm_has_columns(gemm);
}

/* Slow results of half a panel after each other: with those of more at once the assembler would
   fill the registers. It moves no instruction across a branch, and all tiles begin at a row. */
static void put_all(Gemm *gemm, Leave *leave) {
  Warp *w = &gemm->w;
  for (int eight = 0; eight < EIGHTS; eight += EIGHTS / 2) {
    Branch branch = {0};
    if (is_slow(gemm)) branch = emit_if(gemm->e, warp_less(w, gemm->m0, warp_i32(w, gemm->g.m)));
    put(gemm, leave, eight), put(gemm, leave, eight + 2);
    if (is_slow(gemm)) emit_end_if(gemm->e, branch);
  }
}

static void leave_panel(Gemm *gemm, Leave *leave) {
  Warp *w = &gemm->w;
  LLVMValueRef at[MAP_RANK];
  take_elements(gemm, leave);
  choose_rooms(gemm, leave);
  put_all(gemm, leave);
  if (gemm_has_columns(gemm)) gemm_columns_of_panel(gemm, leave->sum, first_of(gemm, leave->panel));
  warpgroup_publish(w);
  warp_barrier_lanes(w);
  Branch one = one_lane(gemm);
  for (int i = 0; i < gemm->p.results; i++) {
    GemmMap map = place_of(gemm, gemm->k->args.n + (uint32_t)i, leave->panel, at);
    bulk_leave(w, gemm->e->map[OPERAND_MAPS + i], map.map.rank, at, room_at(gemm, leave->room[i]));
  }
  bulk_leave_end(w);
  emit_end_if(gemm->e, one);
}

void gemm_leave_tile(Gemm *gemm) {
  Warp *w = &gemm->w;
  LLVMValueRef matrix = warp_div(w, w->lane, EIGHT), line = warp_rem(w, w->lane, EIGHT);
  Leave leave = {.read = NEVER};
  for (int i = 0; i < MOST_ROOMS; i++) leave.left[i] = NEVER;
  leave.to = warp_add(w, line, warp_times(w, warp_rem(w, matrix, 2), EIGHT));
  leave.to = warp_times(w, leave.to, WGMMA_PANEL);
  leave.turned = warp_times(w, warp_xor(w, warp_div(w, matrix, 2), line), WGMMA_PIECE);
  if (gemm_has_elements(gemm)) wait_elements(gemm);
  else make_room(gemm, 0);
  for (leave.panel = 0; leave.panel < panels_of(gemm); leave.panel++) leave_panel(gemm, &leave);
  if (gemm_has_columns(gemm)) gemm_columns_of_panels(gemm);
}

void gemm_leave_end(Gemm *gemm) { bulk_leave_wait(&gemm->w); }
