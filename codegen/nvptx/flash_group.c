/* Attention by warpgroups: a CTA of three of them stays on its multiprocessor and takes tile of
   rows after tile of rows, in the order of flash_place.

     the first warpgroup copies              the others multiply, 64 rows of the tile each
       for each tile of rows:                  for each tile of rows:
         rows: wait until they are left
         for each unit of its list:              for each unit of its list (flash_units.c):
           for both operands of its columns:       full: wait, for the operand that is needed
             empty: wait                           wgmma; scores; wgmma (flash.c, flash_grad.c)
             cp.async                              empty: arrive, for each operand when it is read
             those before have come: fence;      rows: arrive
               full: arrive

   `full` and `empty` are two of the CTA's barriers for each operand of a stage. Rows come with the
   first operand of their first unit, so they need no barrier that says so. Both roles find the same
   units by themselves. The warpgroup that copies fences the bytes written by cp.async, because
   wgmma reads asynchronously.

   Tiles are panels of 64 elements of the width: rows of 128 bytes, in which piece p of row r of 16
   bytes is at p ^ r % 8. Rows and elements that do not exist are zeros.

   With bulk tensor copies (FLASH_COPY_BULK) one thread or warp does what that warpgroup does, and
   barriers are mbarriers in shared memory: a copy completes `full` by itself, nothing is fenced,
   and rows have a signal of their own. Stages are then numbered over two laps of the ring, which
   tells a waiting thread the parity of its lap.

   Must not: know what scores are for. */
#include "flash_group.h"
#include "bulk.h"
#include "codegen/expr.h"
#include "ir/mask/mask_range.h"
#include "simt.h"

enum { STEP = 16 }; /* of the width, of a product */
enum { EVERYBODY = WGMMA_THREADS * (WGMMA_GROUPS + 1) };

/* After which operand of a unit those before it are waited for. Units that are multiplied one by
   one need both operands at once; forward, keys of a unit come before values of the last. */
typedef enum Publish { AFTER_EACH, AFTER_FIRST, AFTER_SECOND } Publish;

typedef struct Copier {
  FlashGpu *x;
  Publish publish;
  Registers stage, oldest, begun; /* i32: next stage; operand whose copies end next, of all of the
                                     ring; operands whose copies are not seen to be complete */
  Registers rows;                 /* i32: parity of the next tile of rows, of bulk copies */
  LLVMValueRef row, piece, to;    /* i32: of the thread, in a tile; offset of its first piece */
} Copier;

static int64_t stages(const FlashGpu *flash) { return flash->g.tile[FLASH_GPU_STAGES]; }

static int64_t laps(const FlashGpu *flash) { return flash->g.bulk ? 2 : 1; }

/* i32: of the lap of a stage */
static LLVMValueRef parity_of(FlashGpu *flash, LLVMValueRef stage) {
  LLVMValueRef first = warp_less(&flash->w, stage, warp_i32(&flash->w, stages(flash)));
  LLVMBuilderRef builder = flash->e->builder;
  return LLVMBuildZExt(builder, LLVMBuildNot(builder, first, ""), flash->w.i32, "");
}

static LLVMValueRef place_of(FlashGpu *flash, LLVMValueRef stage) {
  if (!flash->g.bulk) return stage;
  Warp *w = &flash->w;
  LLVMValueRef first = warp_less(w, stage, warp_i32(w, stages(flash)));
  return LLVMBuildSelect(flash->e->builder, first, stage, warp_plus(w, stage, -stages(flash)), "");
}

/* i32: an mbarrier's offset, or a barrier of the CTA */
static LLVMValueRef barrier(FlashGpu *flash, LLVMValueRef number) {
  if (!flash->g.bulk) return warp_plus(&flash->w, number, 1);
  int64_t ring =
      2 * stages(flash) * (flash->g.column.bytes + flash_gpu_sums(&flash->g, flash->phase));
  return warp_plus(&flash->w, warp_times(&flash->w, number, SIGNAL_BYTES), flash->column_at + ring);
}

/* Barrier of operand c of a stage, or of all of the ring where that is numbered. */
static LLVMValueRef full(FlashGpu *flash, LLVMValueRef number) { return barrier(flash, number); }
static LLVMValueRef empty(FlashGpu *flash, LLVMValueRef number) {
  return barrier(flash, warp_plus(&flash->w, number, 2 * stages(flash)));
}
static bool reads_mask(const FlashGpu *flash) {
  return flash->f.mask != NO_VALUE && mask_reads(flash->e->k, flash->f.mask);
}
/* Both operands of a stage are left at once by gradients, and by units that are multiplied one by
   one: for bulk copies one barrier says so. */
static bool leaves_alone(const FlashGpu *flash, int c) {
  return !flash->g.bulk || !(flash->f.grad || reads_mask(flash)) || !c;
}
static LLVMValueRef rows_left(FlashGpu *flash) {
  return barrier(flash, warp_i32(&flash->w, 4 * stages(flash)));
}
static LLVMValueRef rows_full(FlashGpu *flash) {
  return barrier(flash, warp_i32(&flash->w, 4 * stages(flash) + 1));
}
static LLVMValueRef number_of(FlashGpu *flash, LLVMValueRef stage, int c) {
  return warp_plus(&flash->w, warp_times(&flash->w, place_of(flash, stage), 2), c);
}

static LLVMValueRef tile_at(FlashGpu *flash, LLVMValueRef stage, int c) {
  LLVMValueRef at = warp_times(&flash->w, place_of(flash, stage), 2 * flash->g.column.bytes);
  return warp_plus(&flash->w, at, flash->column_at + c * flash->g.column.bytes);
}

/* Sums of rows of the columns of a stage, where these are queries. */
static LLVMValueRef sums_at(FlashGpu *flash, LLVMValueRef stage, int c) {
  int64_t bytes = flash_gpu_sums(&flash->g, flash->phase),
          at = flash->column_at + 2 * stages(flash) * flash->g.column.bytes;
  return warp_plus(&flash->w, warp_times(&flash->w, number_of(flash, stage, c), bytes), at);
}

static void advance(FlashGpu *flash, const Registers *number, int64_t end) {
  Warp *w = &flash->w;
  LLVMBuilderRef builder = flash->e->builder;
  LLVMValueRef next = warp_plus(w, warp_get(w, number, 0), 1);
  LLVMValueRef last = LLVMBuildICmp(builder, LLVMIntEQ, next, warp_i32(w, end), "");
  warp_set(w, number, 0, LLVMBuildSelect(builder, last, warp_i32(w, 0), next, ""));
}

static Registers counter(FlashGpu *flash) {
  Registers r = warp_registers(&flash->w, flash->w.i32, 1);
  warp_set(&flash->w, &r, 0, warp_i32(&flash->w, 0));
  return r;
}

static Loop each_rows(FlashGpu *flash) {
  Emit *e = flash->e;
  Loop loop = emit_loop(e, warp_wide(&flash->w, flash->w.cta),
                        emit_i64(e, flash->g.tiles[e->phase]), simt_ctas(e, e->phase), 0, NULL);
  flash->number = LLVMBuildTrunc(e->builder, loop.i, flash->w.i32, "");
  flash_place(flash);
  return loop;
}

/* ---- copies ---- */

static LLVMValueRef moved(FlashGpu *flash, LLVMValueRef from, LLVMValueRef elements) {
  LLVMTypeRef type = emit_memory_type(flash->e, flash->elem);
  return LLVMBuildGEP2(flash->e->builder, type, from, &elements, 1, "");
}

/* Rows of the tile that there are, of this thread's: none where its piece is past the width. */
static LLVMValueRef left_of(Copier *copier, int64_t extent, LLVMValueRef row0, int64_t panel,
                            int64_t rows) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  LLVMValueRef left = warp_sub(w, warp_sub(w, warp_i32(w, extent), row0), copier->row);
  int64_t rest = flash->f.width - panel * WGMMA_K;
  if (rest >= WGMMA_K) return extent % rows ? left : NULL;
  LLVMValueRef in = warp_less(w, copier->piece, warp_i32(w, rest / (WGMMA_PIECE / 2)));
  return LLVMBuildSelect(flash->e->builder, in, left, warp_i32(w, 0), "");
}

/* Rows row0 .. of a value of the head to the tile at offset `at`. */
static void bring(Copier *copier, ValueId value, bool keys, const GemmSide *side, LLVMValueRef row0,
                  LLVMValueRef at) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  Str dim = keys ? flash->f.key : flash->f.query;
  int64_t extent = keys ? flash->f.keys : flash->f.queries,
          stride = flash_stride(flash, value, dim), apart = WGMMA_THREADS / WGMMA_PIECES;
  LLVMValueRef from = flash_base(flash, value, dim), to = warp_add(w, at, copier->to);
  from = moved(flash, from, warp_wide_times(w, warp_add(w, row0, copier->row), stride));
  from = moved(flash, from, warp_wide(w, warp_times(w, copier->piece, WGMMA_PIECE / 2)));
  for (int64_t panel = 0; panel * WGMMA_K < flash->g.width; panel++) {
    LLVMValueRef left = left_of(copier, extent, row0, panel, side->rows);
    for (int64_t row = 0; row < side->rows; row += apart)
      warp_copy_more(w, to, panel * side->rows * WGMMA_PANEL + row * WGMMA_PANEL, from,
                     row * stride * 2 + panel * WGMMA_PANEL, row, left);
  }
}

/* More operands than the last `under_way` are not known to be complete. */
static Branch if_more(Copier *copier, int under_way) {
  Warp *w = &copier->x->w;
  LLVMValueRef begun = warp_get(w, &copier->begun, 0);
  return emit_if(w->e, warp_less(w, warp_i32(w, under_way), begun));
}

/* The oldest of them may be read. */
static void publish_oldest(Copier *copier) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  warp_set(w, &copier->begun, 0, warp_plus(w, warp_get(w, &copier->begun, 0), -1));
  warpgroup_arrive(w, full(flash, warp_get(w, &copier->oldest, 0)), EVERYBODY);
  advance(flash, &copier->oldest, 2 * stages(flash));
}

/* All but the last `under_way` operands have come: one, or both of a unit; or, forward, one and the
   keys of the next unit, if that is no tile's first. */
static void publish_if(Copier *copier, int under_way) {
  Warp *w = &copier->x->w;
  Branch more = if_more(copier, under_way), next = {0};
  bool perhaps = copier->publish == AFTER_SECOND && under_way;
  warp_wait(w, under_way);
  warpgroup_publish(w);
  publish_oldest(copier);
  if (perhaps) next = if_more(copier, under_way);
  if (perhaps || copier->publish == AFTER_FIRST) publish_oldest(copier);
  if (perhaps) emit_end_if(w->e, next);
  emit_end_if(w->e, more);
}

static void bring_rows(Copier *copier) {
  FlashGpu *flash = copier->x;
  int bit;
  publish_if(copier, 0); /* rows are left when the last unit before has been read */
  warpgroup_meet(&flash->w, rows_left(flash), EVERYBODY);
  for (int r = 0; r < flash_gpu_tiles(flash->phase, false); r++)
    bring(copier, flash_tile_value(flash, false, r, &bit), flash->rows_are_keys, &flash->g.row,
          flash->row0, warp_i32(&flash->w, flash->row_at[r]));
}

static int64_t sum_pieces(const FlashGpu *flash) {
  return flash_gpu_sums(&flash->g, flash->phase) / WGMMA_PIECE;
}

/* A piece for each of the first threads. */
static void bring_sums(Copier *copier, FlashWalk *walk, const FlashUnit *unit, LLVMValueRef c0,
                       LLVMValueRef stage, int c) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  if (!sum_pieces(flash)) return;
  Branch some = emit_if(flash->e, warp_less(w, w->thread, warp_i32(w, sum_pieces(flash))));
  LLVMValueRef first = flash_sums(flash, flash_unit_head(walk, unit->number), c0, c);
  LLVMValueRef from =
      flash_workspace(flash, warp_add(w, first, warp_times(w, w->thread, WGMMA_PIECE / 4)));
  warp_copy(w, warp_add(w, sums_at(flash, stage, c), warp_times(w, w->thread, WGMMA_PIECE)), from,
            WGMMA_PIECE, NULL);
  emit_end_if(flash->e, some);
}

static void bring_unit(Copier *copier, FlashWalk *walk, const FlashUnit *unit) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  LLVMValueRef stage = warp_get(w, &copier->stage, 0);
  LLVMValueRef c0 = warp_times(w, flash_unit_tile(walk, unit->number), flash->g.column.rows);
  flash_unit_enter(walk, unit->number);
  for (int c = 0, bit; c < 2; c++) {
    ValueId value = flash_tile_value(flash, true, c, &bit);
    warpgroup_meet(w, empty(flash, number_of(flash, stage, c)), EVERYBODY);
    bring(copier, value, !flash->rows_are_keys, &flash->g.column, c0, tile_at(flash, stage, c));
    bring_sums(copier, walk, unit, c0, stage, c);
    warp_commit(w);
    warp_set(w, &copier->begun, 0, warp_plus(w, warp_get(w, &copier->begun, 0), 1));
    if (copier->publish != (c ? AFTER_FIRST : AFTER_SECOND)) publish_if(copier, 1);
  }
  advance(flash, &copier->stage, laps(flash) * stages(flash));
}

/* ---- bulk copies, by one thread; by one warp if sums of rows come through its lanes ---- */

/* Rows of an operand's tile: its boxes are below each other, panel after panel. */
static void bring_boxes(FlashGpu *flash, bool column, int c, LLVMValueRef row0, LLVMValueRef to,
                        LLVMValueRef signal) {
  Warp *w = &flash->w;
  const GemmSide *side = column ? &flash->g.column : &flash->g.row;
  int64_t rows = flash->g.column.rows;
  int bit, operand = 0;
  flash_tile_value(flash, column, c, &bit);
  while (bit >> operand > 1) operand++;
  FlashMap map;
  if (!flash_map(flash->e->k, &flash->f, operand, rows, &map))
    bug("kernel %s: no map of operand %d", flash->e->k->name, operand);
  Point p = flash_point(flash);
  LLVMValueRef at[MAP_RANK];
  for (int i = 2; i < map.map.rank; i++)
    at[i] = LLVMBuildTrunc(flash->e->builder, point_taken(&p, map.dim[i]).at, w->i32, "");
  for (int64_t panel = 0; panel * WGMMA_K < flash->g.width; panel++)
    for (int64_t row = 0; row < side->rows; row += rows) {
      at[0] = warp_i32(w, panel * WGMMA_K), at[1] = warp_plus(w, row0, row);
      bulk_copy(w, warp_plus(w, to, (panel * side->rows + row) * WGMMA_PANEL),
                flash->e->map[operand], map.map.rank, at, signal);
    }
}

/* A wait for the lap before that of this parity: a new mbarrier does not wait. */
static void wait_empty(FlashGpu *flash, LLVMValueRef at, LLVMValueRef parity) {
  bulk_wait(&flash->w, at, warp_sub(&flash->w, warp_i32(&flash->w, 1), parity));
}

/* Begins code of the thread that copies, where its warp leaves sums. */
static Branch one_thread(FlashGpu *flash) {
  Warp *w = &flash->w;
  return sum_pieces(flash) ? emit_if(flash->e, warp_less(w, w->lane, warp_i32(w, 1))) : (Branch){0};
}

static void end_one_thread(FlashGpu *flash, Branch one) {
  if (sum_pieces(flash)) emit_end_if(flash->e, one);
}

static void bring_rows_in_bulk(Copier *copier) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  int tiles = flash_gpu_tiles(flash->phase, false);
  wait_empty(flash, rows_left(flash), warp_get(w, &copier->rows, 0));
  Branch one = one_thread(flash);
  bulk_expect(w, rows_full(flash), tiles * flash->g.row.bytes);
  for (int r = 0; r < tiles; r++)
    bring_boxes(flash, false, r, flash->row0, warp_i32(w, flash->row_at[r]), rows_full(flash));
  end_one_thread(flash, one);
  advance(flash, &copier->rows, 2);
}

/* Sums of rows come through registers, a piece of each for a lane; then one lane arrives. */
static LLVMValueRef read_sums(Copier *copier, FlashWalk *walk, const FlashUnit *unit,
                              LLVMValueRef c0, int c) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  LLVMValueRef piece = warp_min(w, w->lane, warp_i32(w, sum_pieces(flash) - 1));
  LLVMValueRef first = flash_sums(flash, flash_unit_head(walk, unit->number), c0, c);
  LLVMValueRef at = warp_add(w, first, warp_times(w, piece, WGMMA_PIECE / 4));
  LLVMValueRef four =
      LLVMBuildLoad2(flash->e->builder, LLVMVectorType(w->f32, 4), flash_workspace(flash, at), "");
  LLVMSetAlignment(four, WGMMA_PIECE);
  return four;
}

/* Both are read when the second operand has come. */
static void leave_sums(Copier *copier, LLVMValueRef four[2], LLVMValueRef stage) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  Branch some = emit_if(flash->e, warp_less(w, w->lane, warp_i32(w, sum_pieces(flash))));
  for (int c = 0; c < 2; c++) {
    LLVMValueRef at = warp_add(w, sums_at(flash, stage, c), warp_times(w, w->lane, WGMMA_PIECE));
    warp_store(w, four[c], at, WGMMA_PIECE);
  }
  emit_end_if(flash->e, some);
  warp_barrier_lanes(w);
}

static void bring_unit_in_bulk(Copier *copier, FlashWalk *walk, const FlashUnit *unit) {
  FlashGpu *flash = copier->x;
  Warp *w = &flash->w;
  LLVMValueRef stage = warp_get(w, &copier->stage, 0), four[2] = {NULL, NULL};
  LLVMValueRef c0 = warp_times(w, flash_unit_tile(walk, unit->number), flash->g.column.rows);
  flash_unit_enter(walk, unit->number);
  for (int c = 0; c < 2 && sum_pieces(flash); c++) four[c] = read_sums(copier, walk, unit, c0, c);
  for (int c = 0; c < 2; c++) {
    LLVMValueRef number = number_of(flash, stage, c);
    if (leaves_alone(flash, c)) wait_empty(flash, empty(flash, number), parity_of(flash, stage));
    if (c && sum_pieces(flash)) leave_sums(copier, four, stage);
    Branch one = one_thread(flash);
    bulk_expect(w, full(flash, number), flash->g.column.bytes);
    bring_boxes(flash, true, c, c0, tile_at(flash, stage, c), full(flash, number));
    end_one_thread(flash, one);
  }
  advance(flash, &copier->stage, laps(flash) * stages(flash));
}

/* ---- all copies ---- */

static Copier copier_of(FlashGpu *flash) {
  Warp *w = &flash->w;
  Copier copier = {.x = flash,
                   .stage = counter(flash),
                   .oldest = counter(flash),
                   .begun = counter(flash),
                   .rows = counter(flash),
                   .row = warp_div(w, w->thread, WGMMA_PIECES),
                   .piece = warp_rem(w, w->thread, WGMMA_PIECES)};
  copier.to = warpgroup_piece(w, copier.row, copier.piece);
  return copier;
}

static void copy_all(FlashGpu *flash) {
  Warp *w = &flash->w;
  warpgroup_registers(w, false);
  Copier copier = copier_of(flash);
  Branch one = {0};
  int copying = sum_pieces(flash) ? 32 : 1;
  if (flash->g.bulk) one = emit_if(flash->e, warp_less(w, w->thread, warp_i32(w, copying)));
  Loop tile = each_rows(flash);
  FlashWalk walk = flash_walk_new(flash, NULL);
  if (walk.reads) copier.publish = AFTER_FIRST;
  else if (flash->phase == FLASH_FORWARD) copier.publish = AFTER_SECOND;
  FlashUnit first = flash_unit_first(&walk);
  Branch some = emit_if(flash->e, first.present);
  (flash->g.bulk ? bring_rows_in_bulk : bring_rows)(&copier);
  emit_end_if(flash->e, some);
  WarpLoop loop = warp_loop(w);
  FlashUnit now = flash_unit_now(&walk);
  warp_loop_while(w, &loop, now.present);
  flash_walk_run(&walk, &now);
  (flash->g.bulk ? bring_unit_in_bulk : bring_unit)(&copier, &walk, &now);
  flash_unit_next(&walk, &now);
  warp_loop_end(w, &loop);
  emit_loop_end(flash->e, &tile);
  if (flash->g.bulk) emit_end_if(flash->e, one);
  else publish_if(&copier, 0);
}

/* ---- the ring, for those that multiply ---- */

void flash_ring_meet(FlashRing *ring, LLVMValueRef stage, int c) {
  FlashGpu *flash = ring->x;
  LLVMValueRef at = full(flash, number_of(flash, stage, c));
  if (flash->g.bulk) bulk_wait(&flash->w, at, parity_of(flash, stage));
  else warpgroup_meet(&flash->w, at, EVERYBODY);
}

/* A warp has read what the barrier is for: its products were waited for by all lanes. */
static void leave(FlashGpu *flash, LLVMValueRef at) {
  Warp *w = &flash->w;
  if (!flash->g.bulk) {
    warpgroup_arrive(w, at, EVERYBODY);
    return;
  }
  Branch first = emit_if(flash->e, warp_less(w, w->lane, warp_i32(w, 1)));
  bulk_arrive(w, at);
  emit_end_if(flash->e, first);
}

void flash_ring_leave(FlashRing *ring, LLVMValueRef stage, int c) {
  if (!leaves_alone(ring->x, c)) return;
  /* All lanes read sums; without products nothing else says that none still waits for the lap. */
  if (ring->x->g.bulk && (sum_pieces(ring->x) || reads_mask(ring->x)))
    warp_barrier_lanes(&ring->x->w);
  leave(ring->x, empty(ring->x, number_of(ring->x, stage, c)));
}

void flash_ring_pass(FlashRing *ring) {
  FlashGpu *flash = ring->x;
  LLVMValueRef stage = warp_get(&flash->w, &ring->stage, 0);
  for (int c = 0; c < 2; c++) flash_ring_meet(ring, stage, c);
  if (flash->g.bulk) warp_barrier_lanes(&flash->w); /* no lane still waits for the lap */
  for (int c = 0; c < 2; c++)
    if (leaves_alone(flash, c)) leave(flash, empty(flash, number_of(flash, stage, c)));
}

void flash_ring_next(FlashRing *ring) {
  advance(ring->x, &ring->stage, laps(ring->x) * stages(ring->x));
}

void flash_rows_meet(FlashRing *ring) {
  FlashGpu *flash = ring->x;
  if (!flash->g.bulk) return;
  bulk_wait(&flash->w, rows_full(flash), warp_get(&flash->w, &ring->rows, 0));
  advance(flash, &ring->rows, 2);
}

LLVMValueRef flash_ring_sums(FlashGpu *flash, LLVMValueRef stage, int c, int block) {
  Warp *w = &flash->w;
  LLVMValueRef at =
      warp_add(w, sums_at(flash, stage, c), warp_times(w, warp_rem(w, w->lane, 4), 8));
  return warp_load(w, LLVMVectorType(w->f32, 2), warp_plus(w, at, block * FLASH_BLOCK * 4), 8);
}

void flash_rows_leave(FlashRing *ring) { leave(ring->x, rows_left(ring->x)); }

/* ---- products ---- */

/* Step s of 16 of the width, of a tile whose rows are such; in units of descriptors. */
static LLVMValueRef along(FlashGpu *flash, LLVMValueRef from, int64_t rows, int s) {
  int per_panel = WGMMA_K / STEP;
  int64_t bytes = s / per_panel * rows * WGMMA_PANEL + s % per_panel * STEP * 2;
  return s ? LLVMBuildAdd(flash->e->builder, from, emit_i64(flash->e, bytes / WGMMA_PIECE), "")
           : from;
}

void flash_group_scores(FlashRing *ring, const Registers *out, int r, LLVMValueRef stage, int c) {
  FlashGpu *flash = ring->x;
  Warp *w = &flash->w;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(flash->e->context);
  LLVMValueRef row = warp_times(w, ring->group, WGMMA_ROWS * WGMMA_PANEL);
  LLVMValueRef a = warpgroup_operand(w, warp_plus(w, row, flash->row_at[r]), 0),
               b = warpgroup_operand(w, tile_at(flash, stage, c), 0);
  warp_fill(w, out, LLVMGetUndef(w->f32));
  for (int s = 0; s < flash->g.width / STEP; s++)
    warpgroup_multiply(w, flash->elem, out, along(flash, a, flash->g.row.rows, s), false,
                       along(flash, b, flash->g.column.rows, s), false, LLVMConstInt(i1, s > 0, 0));
}

void flash_group_apply(FlashRing *ring, const Registers *out, const Registers *p,
                       LLVMValueRef stage, int c, bool first) {
  FlashGpu *flash = ring->x;
  Warp *w = &flash->w;
  LLVMTypeRef i1 = LLVMInt1TypeInContext(flash->e->context);
  LLVMValueRef b =
      warpgroup_operand(w, tile_at(flash, stage, c), flash->g.column.rows * WGMMA_PANEL);
  if (first) warp_fill(w, out, LLVMGetUndef(w->f32));
  for (int s = 0; s < p->n / 4; s++) {
    LLVMValueRef word[4], at = emit_i64(flash->e, s * STEP * WGMMA_PANEL / WGMMA_PIECE);
    for (int q = 0; q < 4; q++) word[q] = warp_get(w, p, 4 * s + q);
    if (s) at = LLVMBuildAdd(flash->e->builder, b, at, "");
    warpgroup_multiply_words(w, flash->elem, out, word, s ? at : b, true,
                             LLVMConstInt(i1, s > 0 || !first, 0));
  }
}

Registers flash_group_words(FlashGpu *flash) {
  return warp_registers(&flash->w, flash->w.i32, (int)flash->g.tile[FLASH_GPU_COLUMNS] / 4);
}

void flash_group_pack(FlashGpu *flash, const Registers *scores, const Registers *words) {
  Warp *w = &flash->w;
  for (int i = 0; i < words->n; i++)
    warp_set(w, words, i,
             warp_pack(w, flash->elem, warp_get(w, scores, 2 * i), warp_get(w, scores, 2 * i + 1)));
}

/* ---- the whole ---- */

static void begin_signals(FlashGpu *flash) {
  Warp *w = &flash->w;
  int64_t ring = 2 * stages(flash);
  int warps = WGMMA_GROUPS * WGMMA_THREADS / 32;
  Branch first = emit_if(flash->e, warp_less(w, w->thread, warp_i32(w, 1)));
  for (int64_t i = 0; i < ring; i++) {
    bulk_begin(w, full(flash, warp_i32(w, i)), 1);
    if (leaves_alone(flash, (int)i % 2)) bulk_begin(w, empty(flash, warp_i32(w, i)), warps);
  }
  bulk_begin(w, rows_full(flash), 1), bulk_begin(w, rows_left(flash), warps);
  bulk_begun(w);
  emit_end_if(flash->e, first);
  warp_barrier(w);
}

static void multiply_all(FlashGpu *flash, LLVMValueRef warp, void *begin(FlashGpu *flash),
                         FlashRows *rows) {
  Warp *w = &flash->w;
  warpgroup_registers(w, true);
  w->warp = warp_plus(w, warp, -WGMMA_THREADS / 32);
  FlashRing ring = {flash, counter(flash), counter(flash),
                    warp_div(w, w->warp, WGMMA_THREADS / 32)};
  void *with = begin(flash);
  for (int64_t i = 0; !flash->g.bulk && i < 2 * stages(flash); i++)
    warpgroup_arrive(w, empty(flash, warp_i32(w, i)), EVERYBODY);
  if (!flash->g.bulk) flash_rows_leave(&ring);
  Loop tile = each_rows(flash);
  FlashWalk walk = flash_walk_new(flash, ring.group);
  rows(&ring, &walk, with);
  emit_loop_end(flash->e, &tile);
}

void flash_groups(FlashGpu *flash, void *begin(FlashGpu *flash), FlashRows *rows) {
  Emit *emit = flash->e;
  LLVMSetAlignment(flash->w.shared, 1024); /* swizzles go by the bits of addresses */
  if (flash->g.bulk) begin_signals(flash);
  LLVMValueRef warp = simt_warp(emit); /* the same in all lanes, and known to be so */
  Branch copies =
      emit_if(emit, warp_less(&flash->w, warp, warp_i32(&flash->w, WGMMA_THREADS / 32)));
  copy_all(flash);
  LLVMBuildRetVoid(emit->builder);
  LLVMPositionBuilderAtEnd(emit->builder, copies.rest);
  multiply_all(flash, warp, begin, rows);
}
