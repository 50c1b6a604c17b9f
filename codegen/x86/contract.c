/* Family contract: one dot and an epilogue of POINT ops over its result's dims.

   The dot is a batch of matrix products (ir/kernel/product.h says which dims are what). The result
   is cut into register tiles: some rows along m, some vectors along n. A chunk of work is a block
   of batches x a block of row tiles x a block of panels (columns of tiles). Per chunk, per batch,
   per block of k:

     pack A tiles into scratch                 (unless a shared phase did so for all chunks)
     for each panel of B:
       pack it into scratch                    (or read it in place)
       for each row tile:
         micro-kernel: tile (+)= A tile x B panel over the block of k
         last block of k: epilogue, store

   Sums stay in scratch between blocks of k. A panel is packed once per chunk and used for all of
   its rows. The value of an element does not depend on the cut of rows and columns, only on the
   blocks of k; the number of workers changes nothing. */
#include "contract_loops.h"

/* The last chunk dim changes fastest: neighbouring chunks share rows. */
static void chunk_ranges(ChunkLoops *w) {
  Contract *c = w->c;
  Emit *e = c->e;
  const int64_t *tile = c->plan.tile;
  LLVMValueRef columns = emit_i64(e, tile[TILE_COLUMN]), rows = emit_i64(e, tile[TILE_ROW]);
  LLVMValueRef above = LLVMBuildUDiv(e->builder, e->chunk, columns, "");
  LLVMValueRef column = LLVMBuildURem(e->builder, e->chunk, columns, "");
  LLVMValueRef row = LLVMBuildURem(e->builder, above, rows, "");
  w->panel = tile_range(e, column, c->plan.panels, tile[TILE_COLUMN]);
  w->row = tile_range(e, row, c->plan.tiles, tile[TILE_ROW]);
  w->batch = tile_range(e, LLVMBuildUDiv(e->builder, above, rows, ""),
                        c->product.batch.outer * c->product.batch.inner, tile[TILE_BATCH]);
}

static void scratch_parts(ChunkLoops *w) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  w->packed_a = e->scratch;
  w->packed_b = tile_elements(e, i8, e->scratch, emit_i64(e, c->plan.a_bytes));
  w->sums = tile_elements(e, i8, w->packed_b, emit_i64(e, c->plan.b_bytes));
  w->totals = tile_elements(e, i8, w->sums, emit_i64(e, c->plan.c_bytes));
}

/* Elements of operand s between steps of the inner k dim. */
static int64_t step_stride(const Contract *c, ProductSide s) {
  return contract_inner_stride(&c->product.k, s) * c->plan.tile[TILE_DEPTH];
}

/* Address in operand s at this batch, at the block's first inner k element. */
static LLVMValueRef operand_base(ChunkLoops *w, ProductSide s) {
  Contract *c = w->c;
  Emit *e = c->e;
  uint32_t arg = s == SIDE_A ? c->product.arg_a : c->product.arg_b;
  LLVMValueRef offset = contract_offset(e, &c->product.batch, c->product.batch.count, w->b, s);
  offset = tile_add(e, offset,
                    LLVMBuildNSWMul(e->builder, w->k.start, emit_i64(e, step_stride(c, s)), ""));
  Elem elem = s == SIDE_A ? c->product.elem_a : c->product.elem_b;
  return tile_elements(e, contract_memory(e, elem), emit_buffer(e, arg), offset);
}

LLVMValueRef contract_panel_first(Contract *c, LLVMValueRef p) {
  LLVMValueRef extra = emit_min_i64(c->e, p, emit_i64(c->e, c->plan.wide));
  return tile_add(c->e, tile_times(c->e, p, c->plan.width), extra);
}

static LLVMValueRef tile_sums(ChunkLoops *w, LLVMValueRef tile, LLVMValueRef panel) {
  Contract *c = w->c;
  Emit *e = c->e;
  const int64_t *x = c->plan.tile;
  int64_t each = x[TILE_ROWS] * x[TILE_VECTORS] * c->plan.lanes;
  if (x[TILE_K_OUTER] * x[TILE_K_INNER] == 1) { /* two in turn: one may wait for its epilogue */
    LLVMValueRef odd = LLVMBuildAnd(e->builder, tile, emit_i64(e, c->pipelined), "");
    return tile_elements(e, c->f32, w->sums, tile_times(e, odd, each));
  }
  LLVMValueRef i = LLVMBuildNSWSub(e->builder, panel, w->panel.from, "");
  i = tile_times(e, i, c->plan.tiles_max);
  i = tile_add(e, i, LLVMBuildNSWSub(e->builder, tile, w->row.from, ""));
  return tile_elements(e, c->f32, w->sums, tile_times(e, i, each));
}

LLVMValueRef contract_shared_block(ChunkLoops *w, ProductSide s) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef at = tile_times(e, w->b, c->plan.tile[TILE_K_OUTER] * c->plan.tile[TILE_K_INNER]);
  at = tile_times(e, tile_add(e, at, w->k_turn),
                  s == SIDE_A ? c->plan.block_floats : c->plan.block_b);
  if (s == SIDE_B) at = tile_add(e, at, emit_i64(e, c->plan.at_b / 4));
  return tile_elements(e, c->f32, emit_buffer(e, c->k->args.n + c->k->results.n), at);
}

static LLVMValueRef tile_a(ChunkLoops *w, LLVMValueRef tile) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->plan.tile[TILE_PACK_A])
    return tile_elements(e, c->a_memory, w->a_base, contract_tile_offset(c, tile, SIDE_A));
  LLVMValueRef n = tile, base = w->packed_a;
  if (c->plan.shared) base = contract_shared_block(w, SIDE_A);
  else n = LLVMBuildNSWSub(e->builder, tile, w->row.from, "");
  return tile_elements(e, c->f32, base, contract_packed_tile(c, n, &w->k));
}

static void call_micro(ChunkLoops *w, LLVMValueRef *args, LLVMValueRef rows, int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (c->amx) { /* all tiles are of full height: their last rows may be nobody's */
    LLVMValueRef f = contract_amx(c, vectors);
    LLVMBuildCall2(e->builder, contract_micro_type(c), f, args, MICRO_ARGS, "");
    return;
  }
  for (int tall = c->plan.high > 0; tall >= 0; tall--) {
    LLVMValueRef f = contract_micro(c, (int)c->plan.height + tall, vectors);
    LLVMValueRef here =
        LLVMBuildICmp(e->builder, LLVMIntEQ, rows, emit_i64(e, c->plan.height + tall), "");
    Branch b = emit_if(e, here);
    LLVMBuildCall2(e->builder, contract_micro_type(c), f, args, MICRO_ARGS, "");
    emit_end_if(e, b);
  }
}

/* Address in a result of a tile's first element; sums if the result is not laid out by rows. */
static LLVMValueRef tile_out(ChunkLoops *w, uint32_t result, LLVMValueRef tile, LLVMValueRef v0,
                             LLVMValueRef sums) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->out_row) return sums;
  LLVMValueRef at = contract_offset(e, &c->product.batch, c->product.batch.count, w->b, SIDE_R);
  at = tile_add(e, at, contract_tile_offset(c, tile, SIDE_R));
  at = tile_add(e, at, tile_times(e, v0, c->plan.lanes));
  return tile_elements(e, contract_memory(e, c->out), emit_buffer(e, c->k->args.n + result), at);
}

/* Where a's rows of the tile after this one begin: of this panel, or the first one's at the next
 * block of k. */
static LLVMValueRef next_tile(ChunkLoops *w, LLVMValueRef tile, LLVMValueRef here) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->prefetch_a) return here;
  LLVMValueRef next = tile_add(e, tile, emit_i64(e, 1));
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, next, w->row.to, "");
  next = LLVMBuildSelect(e->builder, more, next, w->row.from, "");
  if (c->plan.rows_a) return tile_a(w, next);
  LLVMValueRef block = tile_times(e, w->k.length, step_stride(c, SIDE_A));
  LLVMValueRef on = LLVMBuildSelect(e->builder, more, emit_i64(e, 0), block, "");
  return tile_elements(e, c->a_memory, w->a_base,
                       tile_add(e, contract_tile_offset(c, next, SIDE_A), on));
}

/* 1 if the micro-kernel may store its sums as the result. The last panel may have lanes that do not
 * exist. */
static LLVMValueRef is_direct(ChunkLoops *w, LLVMValueRef v0, int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->direct) return emit_i64(e, 0);
  LLVMValueRef end = tile_times(e, tile_add(e, v0, emit_i64(e, vectors)), c->plan.lanes);
  LLVMValueRef full =
      LLVMBuildICmp(e->builder, LLVMIntSLE, end, emit_i64(e, c->product.n.inner), "");
  return LLVMBuildZExt(e->builder, LLVMBuildAnd(e->builder, full, w->last, ""), c->i64, "");
}

typedef struct NextPanel { /* of b: fetched, and packed, while the present one is computed */
  LLVMValueRef v0, wide, src, length, half, dst; /* src: at its block of k */
  LLVMValueRef pack; /* i1: it is this chunk's; the next chunk's first one is only fetched */
} NextPanel;

/* Buffer of the panel that is `turn`th in this chunk. */
static LLVMValueRef panel_buffer(ChunkLoops *w, LLVMValueRef turn) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->double_buffered) return w->packed_b;
  LLVMValueRef odd = LLVMBuildAnd(e->builder, turn, emit_i64(e, 1), "");
  return tile_elements(e, LLVMInt8TypeInContext(e->context), w->packed_b,
                       tile_times(e, odd, c->plan.b_bytes / 2));
}

LLVMValueRef contract_is_wide(Contract *c, LLVMValueRef panel) {
  return LLVMBuildICmp(c->e->builder, LLVMIntSLT, panel, emit_i64(c->e, c->plan.wide), "");
}

static LLVMValueRef panel_source(ChunkLoops *w, LLVMValueRef base, LLVMValueRef v0) {
  Contract *c = w->c;
  LLVMValueRef at =
      tile_times(c->e, v0, c->plan.lanes * contract_inner_stride(&c->product.n, SIDE_B));
  return tile_elements(c->e, contract_memory(c->e, c->product.elem_b), base, at);
}

/* The panel that comes `by` after this one: of this block of k, the first ones of the next block,
   or, at the end, those with which the next chunk begins. */
static NextPanel next_panel(ChunkLoops *w, LLVMValueRef panel, int by) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef next = tile_add(e, panel, emit_i64(e, by)), zero = emit_i64(e, 0);
  LLVMValueRef same = LLVMBuildICmp(e->builder, LLVMIntSLT, next, w->panel.to, "");
  LLVMValueRef all = emit_i64(e, c->plan.panels), from = w->panel.from;
  LLVMValueRef over = LLVMBuildICmp(e->builder, LLVMIntSLT, w->panel.to, all, "");
  LLVMValueRef after = LLVMBuildSelect(e->builder, over, w->panel.to, zero, "");
  LLVMValueRef back = LLVMBuildNSWSub(e->builder, zero, w->k.start, "");
  LLVMValueRef on = LLVMBuildSelect(e->builder, w->last, back, w->k.length, "");
  on = LLVMBuildSelect(e->builder, same, zero, on, "");
  on = tile_times(e, on, step_stride(c, SIDE_B));
  LLVMValueRef base = tile_elements(e, contract_memory(e, c->product.elem_b), w->b_base, on);
  from = LLVMBuildSelect(e->builder, w->last, after, from, "");
  from = tile_add(e, from, LLVMBuildNSWSub(e->builder, next, w->panel.to, ""));
  from = emit_min_i64(e, from, emit_i64(e, c->plan.panels - 1));
  next = LLVMBuildSelect(e->builder, same, next, from, "");
  NextPanel n = {.v0 = contract_panel_first(c, next), .wide = contract_is_wide(c, next)};
  n.length = LLVMBuildSelect(e->builder, same, w->k.length, w->next_length, "");
  if (w->k.half) n.half = LLVMBuildSelect(e->builder, same, w->k.half, w->next_half, "");
  n.src = base, n.dst = panel_buffer(w, tile_add(e, w->turn, emit_i64(e, by)));
  n.pack = LLVMBuildOr(e->builder, same, LLVMBuildNot(e->builder, w->last, ""), "");
  return n;
}

/* Packs steps of the next panel before a row tile. */
static void pack_slice(ChunkLoops *w, const NextPanel *n, Range part) {
  Contract *c = w->c;
  Emit *e = c->e;
  KBlock k = {w->k.o0, w->k.o1, w->k.start, n->length, n->half};
  for (int wide = 0; wide <= (c->plan.wide > 0); wide++) {
    LLVMValueRef here = wide ? n->wide : LLVMBuildNot(e->builder, n->wide, "");
    LLVMValueRef some = LLVMBuildICmp(e->builder, LLVMIntSLT, part.from, part.to, "");
    some = LLVMBuildAnd(e->builder, some, n->pack, "");
    Branch b = emit_if(e, LLVMBuildAnd(e->builder, here, some, ""));
    contract_pack_b(c, wide, n->src, n->dst, n->v0, &k, part);
    emit_end_if(e, b);
  }
}

/* How many steps of a slice the micro-kernel packs: of a panel that is as wide as its own and has
   all lanes, whole ones, no more than it has rounds. */
static LLVMValueRef interleaved_steps(ChunkLoops *w, const NextPanel *n, Range part, int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef zero = emit_i64(e, 0), whole = n->length, own = w->k.length;
  if (!c->interleaved) return zero;
  LLVMValueRef wide = vectors > c->plan.width ? n->wide : LLVMBuildNot(e->builder, n->wide, "");
  LLVMValueRef end = tile_times(e, tile_add(e, n->v0, emit_i64(e, vectors)), c->plan.lanes);
  LLVMValueRef full =
      LLVMBuildICmp(e->builder, LLVMIntSLE, end, emit_i64(e, c->product.n.inner), "");
  if (n->half) whole = LLVMBuildNSWSub(e->builder, whole, n->half, "");
  if (n->half) own = LLVMBuildNSWSub(e->builder, own, w->k.half, "");
  whole = LLVMBuildNSWSub(e->builder, emit_min_i64(e, part.to, whole), part.from, "");
  LLVMValueRef rounds = LLVMBuildUDiv(e->builder, own, emit_i64(e, MICRO_ROUND), "");
  LLVMValueRef steps = emit_min_i64(e, whole, rounds);
  LLVMValueRef some = LLVMBuildICmp(e->builder, LLVMIntSGT, steps, zero, "");
  some = LLVMBuildAnd(e->builder, some, LLVMBuildAnd(e->builder, wide, full, ""), "");
  some = LLVMBuildAnd(e->builder, some, n->pack, "");
  return LLVMBuildSelect(e->builder, some, steps, zero, "");
}

static LLVMValueRef slice_source(ChunkLoops *w, const NextPanel *n, LLVMValueRef step) {
  Contract *c = w->c;
  LLVMValueRef at = tile_times(c->e, step, step_stride(c, SIDE_B));
  return tile_elements(c->e, contract_memory(c->e, c->product.elem_b),
                       panel_source(w, n->src, n->v0), at);
}

/* What is fetched with row tile i: the slice that is packed with the next one, after the last one
   the first slice of the panel after the next. */
static LLVMValueRef fetch_slice(ChunkLoops *w, const NextPanel *n, LLVMValueRef i,
                                LLVMValueRef tiles, LLVMValueRef end) {
  Emit *e = w->c->e;
  LLVMValueRef after = tile_add(e, i, emit_i64(e, 1));
  LLVMValueRef more = LLVMBuildICmp(e->builder, LLVMIntSLT, after, tiles, "");
  LLVMValueRef here = slice_source(w, &n[0], end);
  return LLVMBuildSelect(e->builder, more, here, slice_source(w, &n[1], emit_i64(e, 0)), "");
}

static LLVMValueRef fetch_lanes(ChunkLoops *w, const NextPanel *n, LLVMValueRef i) {
  Contract *c = w->c;
  Emit *e = c->e;
  int64_t each = contract_prefetch_lanes(c),
          lanes = (c->plan.width + (c->plan.wide > 0)) * c->plan.lanes;
  LLVMValueRef left = LLVMBuildICmp(e->builder, LLVMIntSLT, tile_times(e, i, each),
                                    emit_i64(e, lanes), ""); /* else the first ones again */
  LLVMValueRef at = LLVMBuildSelect(e->builder, left, i, emit_i64(e, 0), "");
  return tile_elements(e, contract_memory(e, c->product.elem_b), panel_source(w, n->src, n->v0),
                       tile_times(e, at, each * contract_inner_stride(&c->product.n, SIDE_B)));
}

/* Part i of the panel that lies behind this one in the copy for all chunks. */
static LLVMValueRef fetch_copied(ChunkLoops *w, LLVMValueRef panel, LLVMValueRef i, int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  LLVMValueRef tiles = LLVMBuildNSWSub(e->builder, w->row.to, w->row.from, "");
  LLVMValueRef from = contract_slice(c, i, tiles, w->k.length).from;
  LLVMValueRef steps = tile_add(e, w->k.length, from);
  return tile_elements(e, c->f32, panel, tile_times(e, steps, vectors * c->plan.lanes));
}

/* Row tile i of the chunk: a slice of the next panel is packed, what comes after it is fetched. */
static void prepare_prefetch(ChunkLoops *w, const NextPanel *n, LLVMValueRef i, int vectors,
                             LLVMValueRef *args) {
  Contract *c = w->c;
  Emit *e = c->e;
  args[MICRO_PREFETCH] = args[MICRO_SLICE] = args[MICRO_PLACE] = args[MICRO_B];
  args[MICRO_PACKS] = emit_i64(e, 0);
  if (c->prefetch_copy) args[MICRO_PREFETCH] = fetch_copied(w, args[MICRO_B], i, vectors);
  else if (c->prefetch && !c->double_buffered) args[MICRO_PREFETCH] = fetch_lanes(w, n, i);
  if (!c->double_buffered) return;
  LLVMValueRef tiles = LLVMBuildNSWSub(e->builder, w->row.to, w->row.from, "");
  Range part = contract_slice(c, i, tiles, n->length);
  if (c->amx) {
    args[MICRO_PREFETCH] = slice_source(w, n, part.to);
  } else {
    LLVMValueRef interleaved = interleaved_steps(w, n, part, vectors);
    args[MICRO_SLICE] = slice_source(w, n, part.from);
    LLVMValueRef row = tile_times(e, part.from, vectors * c->plan.lanes);
    args[MICRO_PLACE] = tile_elements(e, c->f32, n->dst, row);
    args[MICRO_PACKS] = interleaved;
    args[MICRO_PREFETCH] = fetch_slice(w, n, i, tiles, part.to);
    part.from = tile_add(e, part.from, interleaved);
  }
  pack_slice(w, n, part);
}

/* A row tile of a panel: where it is, what the micro-kernel is told. */
typedef struct RowTile {
  TileAt at;
  LLVMValueRef args[MICRO_ARGS];
} RowTile;

static TileAt tile_at(ChunkLoops *w, LLVMValueRef tile, LLVMValueRef panel, LLVMValueRef v0,
                      int vectors) {
  Contract *c = w->c;
  TileAt at = {.batch = w->b, .v0 = v0, .vectors = vectors};
  at.m_outer = contract_tile_outer(c, tile), at.row0 = contract_tile_row(c, tile);
  at.rows = contract_tile_rows(c, tile), at.values = tile_sums(w, tile, panel);
  return at;
}

static RowTile row_tile(ChunkLoops *w, LLVMValueRef tile, LLVMValueRef panel, LLVMValueRef v0,
                        LLVMValueRef b, int vectors, const NextPanel *n) {
  const Contract *c = w->c;
  Emit *e = c->e;
  RowTile x = {tile_at(w, tile, panel, v0, vectors),
               {[MICRO_A] = tile_a(w, tile),
                [MICRO_B] = b,
                [MICRO_O0] = w->k.o0,
                [MICRO_O1] = w->k.o1,
                [MICRO_LENGTH] = w->k.length,
                [MICRO_FROM] = emit_i64(e, 0),
                [MICRO_TO] = w->k.length,
                [MICRO_MORE] = w->more,
                [MICRO_HALF] = w->k.half ? w->k.half : emit_i64(e, 0)}};
  x.args[MICRO_C] = x.at.values, x.args[MICRO_OUT] = tile_out(w, c->first, tile, v0, x.at.values);
  for (int i = 0; i < BESIDE; i++)
    x.args[MICRO_BESIDE + i] =
        i < c->nbeside ? tile_out(w, c->beside[i], tile, v0, x.at.values) : x.args[MICRO_OUT];
  prepare_prefetch(w, n, LLVMBuildNSWSub(e->builder, tile, w->row.from, ""), vectors, x.args);
  x.args[MICRO_NEXT] = next_tile(w, tile, x.args[MICRO_A]);
  x.args[MICRO_DIRECT] = is_direct(w, v0, vectors);
  return x;
}

static void row_tiles(ChunkLoops *w, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                      int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  NextPanel n[2] = {0};
  for (int i = 0; i < 2 && c->prefetch && !c->prefetch_copy; i++)
    n[i] = next_panel(w, panel, i + 1);
  Loop t = emit_loop(e, w->row.from, w->row.to, 1, 0, NULL);
  RowTile x = row_tile(w, t.i, panel, v0, b, vectors, n);
  call_micro(w, x.args, x.at.rows, vectors);
  LLVMValueRef in_sums =
      LLVMBuildICmp(e->builder, LLVMIntEQ, x.args[MICRO_DIRECT], emit_i64(e, 0), "");
  Branch last = emit_if(e, LLVMBuildAnd(e->builder, w->last, in_sums, ""));
  contract_epilogue(c, &x.at);
  emit_end_if(e, last);
  emit_loop_end(e, &t);
}

/* Parts of a tile's steps of k, and of the rows of the tile before it, in turn. */
enum { PARTS = 4 };

static LLVMValueRef part_of(Emit *e, LLVMValueRef part, LLVMValueRef total) {
  LLVMValueRef x = LLVMBuildNSWMul(e->builder, part, total, "");
  return LLVMBuildUDiv(e->builder, x, emit_i64(e, PARTS), "");
}

static void some_rows(Contract *c, TileAt at, LLVMValueRef part, LLVMValueRef next) {
  int64_t each = c->plan.tile[TILE_ROWS] / PARTS;
  at.first = tile_times(c->e, part, each);
  at.rows = emit_min_i64(c->e, at.rows, tile_times(c->e, next, each));
  contract_epilogue(c, &at);
}

/* The same for AMX tiles: their products and the vector instructions of the epilogue of the
   tile before take turns in short pieces, so that the processor does them at the same time. */
static void pipelined_tiles(ChunkLoops *w, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                            int vectors) {
  Contract *c = w->c;
  Emit *e = c->e;
  NextPanel n = {0};
  LLVMValueRef one = emit_i64(e, 1);
  if (c->double_buffered) n = next_panel(w, panel, 1);
  Loop t = emit_loop(e, w->row.from, w->row.to, 1, 0, NULL);
  RowTile x = row_tile(w, t.i, panel, v0, b, vectors, &n);
  LLVMValueRef begun = LLVMBuildICmp(e->builder, LLVMIntSGT, t.i, w->row.from, "");
  begun = LLVMBuildAnd(e->builder, begun, w->last, "");
  TileAt before = tile_at(w, LLVMBuildNSWSub(e->builder, t.i, one, ""), panel, v0, vectors);
  Loop p = emit_loop(e, emit_i64(e, 0), emit_i64(e, PARTS), 1, 0, NULL);
  LLVMValueRef next = tile_add(e, p.i, one);
  x.args[MICRO_FROM] = part_of(e, p.i, w->k.length);
  x.args[MICRO_TO] = part_of(e, next, w->k.length);
  call_micro(w, x.args, x.at.rows, vectors);
  Branch some = emit_if(e, begun);
  some_rows(c, before, p.i, next);
  emit_end_if(e, some);
  emit_loop_end(e, &p);
  emit_loop_end(e, &t);
  Branch last = emit_if(e, w->last);
  TileAt rest = tile_at(w, LLVMBuildNSWSub(e->builder, w->row.to, one, ""), panel, v0, vectors);
  contract_epilogue(c, &rest);
  emit_end_if(e, last);
}

/* The panel as the micro-kernel reads it. If panels are packed by slices, only the first one is not
 * there yet. */
static LLVMValueRef ready_panel(ChunkLoops *w, LLVMValueRef v0, int wide) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (!c->plan.tile[TILE_PACK_B])
    return tile_elements(e, c->f32, w->b_base, tile_times(e, v0, c->plan.lanes));
  if (c->plan.shared_b)
    return tile_elements(e, c->f32, contract_shared_block(w, SIDE_B),
                         contract_packed_panel(c, v0, &w->k));
  LLVMValueRef dst = panel_buffer(w, w->turn),
               begun = LLVMBuildICmp(e->builder, LLVMIntNE, w->turn, emit_i64(e, 0), "");
  Range all = {emit_i64(e, 0), w->k.length};
  if (!c->double_buffered) {
    contract_pack_b(c, wide, w->b_base, dst, v0, &w->k, all);
    return dst;
  }
  Branch first = emit_if(e, LLVMBuildNot(e->builder, begun, ""));
  contract_pack_b(c, wide, w->b_base, dst, v0, &w->k, all);
  emit_end_if(e, first);
  return dst;
}

/* Sums of b's panel beside the product, once for all blocks of rows. */
static void panel_sums(ChunkLoops *w, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                       int wide) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (c->product.sum == NO_VALUE) return;
  LLVMValueRef zero = emit_i64(e, 0), n = LLVMBuildNSWSub(e->builder, panel, w->panel.from, "");
  TileAt t = {.batch = w->b, .m_outer = zero, .row0 = zero, .rows = zero, .v0 = v0};
  t.vectors = (int)c->plan.width + wide;
  t.values = tile_elements(e, c->f32, w->totals,
                           tile_times(e, n, c->plan.tile[TILE_VECTORS] * c->plan.lanes));
  Branch first = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntEQ, w->row.from, zero, ""));
  contract_sums(c, wide, b, &t, &w->k, w->more, w->last);
  emit_end_if(e, first);
}

static void panel_of_width(ChunkLoops *w, LLVMValueRef panel, int wide) {
  LLVMValueRef v0 = contract_panel_first(w->c, panel), b = ready_panel(w, v0, wide);
  panel_sums(w, panel, v0, b, wide);
  (w->c->pipelined ? pipelined_tiles : row_tiles)(w, panel, v0, b, (int)w->c->plan.width + wide);
}

static void panels(ChunkLoops *w) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (c->plan.tile[TILE_PACK_A] && !c->plan.shared)
    contract_pack_a(c, w->a_base, w->packed_a, w->row.from, w->row.to, &w->k);
  Loop p = emit_loop(e, w->panel.from, w->panel.to, 1, 0, NULL);
  LLVMValueRef wide = contract_is_wide(c, p.i),
               count = LLVMBuildNSWSub(e->builder, w->panel.to, w->panel.from, "");
  w->turn = LLVMBuildNSWMul(e->builder, w->k_turn, count, "");
  w->turn = tile_add(e, w->turn, LLVMBuildNSWSub(e->builder, p.i, w->panel.from, ""));
  if (c->plan.wide) {
    Branch b = emit_if(e, wide);
    panel_of_width(w, p.i, 1);
    emit_end_if(e, b);
  }
  Branch b = emit_if(e, LLVMBuildNot(e->builder, wide, ""));
  panel_of_width(w, p.i, 0);
  emit_end_if(e, b);
  emit_loop_end(e, &p);
}

/* Whether inner block of k i ends with half a step. */
static LLVMValueRef half_of(ChunkLoops *w, LLVMValueRef i) {
  Contract *c = w->c;
  Emit *e = c->e;
  if (c->product.k.inner % c->plan.tile[TILE_DEPTH] == 0) return NULL;
  LLVMValueRef last = emit_i64(e, c->plan.tile[TILE_K_INNER] - 1);
  return LLVMBuildZExt(e->builder, LLVMBuildICmp(e->builder, LLVMIntEQ, i, last, ""), c->i64, "");
}

void contract_enter_block(ChunkLoops *w, LLVMValueRef turn) {
  Contract *c = w->c;
  Emit *e = c->e;
  int64_t outer = c->plan.tile[TILE_K_OUTER], inner = c->plan.tile[TILE_K_INNER];
  LLVMValueRef n = emit_i64(e, inner);
  Range o = tile_range(e, LLVMBuildUDiv(e->builder, turn, n, ""), c->product.k.outer, outer);
  LLVMValueRef now = LLVMBuildURem(e->builder, turn, n, "");
  LLVMValueRef next = LLVMBuildURem(e->builder, tile_add(e, turn, emit_i64(e, 1)), n, "");
  Range i = tile_range(e, now, c->plan.steps, inner),
        after = tile_range(e, next, c->plan.steps, inner);
  w->k = (KBlock){o.from, o.to, i.from, LLVMBuildNSWSub(e->builder, i.to, i.from, ""), NULL};
  w->k.half = half_of(w, now), w->next_half = half_of(w, next);
  w->k_turn = turn;
  w->next_length = LLVMBuildNSWSub(e->builder, after.to, after.from, "");
  LLVMValueRef first = LLVMBuildICmp(e->builder, LLVMIntEQ, turn, emit_i64(e, 0), "");
  w->more = LLVMBuildSelect(e->builder, first, emit_i64(e, 0), emit_i64(e, 1), "");
  w->last = LLVMBuildICmp(e->builder, LLVMIntEQ, turn, emit_i64(e, outer * inner - 1), "");
  w->a_base = operand_base(w, SIDE_A), w->b_base = operand_base(w, SIDE_B);
}

static void k_blocks(ChunkLoops *w) {
  Emit *e = w->c->e;
  const int64_t *tile = w->c->plan.tile;
  LLVMValueRef blocks = emit_i64(e, tile[TILE_K_OUTER] * tile[TILE_K_INNER]);
  Loop x = emit_loop(e, emit_i64(e, 0), blocks, 1, 0, NULL);
  contract_enter_block(w, x.i);
  panels(w);
  emit_loop_end(e, &x);
}

static ProductPlan read_plan(Emit *e, const Product *p) {
  const Attr *tile = attr_get(&e->k->attrs, ATTR_tile);
  if (!tile || tile->i != TILE_COUNT)
    bug("kernel %s has no tile of %d numbers", e->k->name, TILE_COUNT);
  return product_plan(p, e->lanes, tile->list);
}

void contract_emit(Emit *e) {
  Contract c = {.e = e, .k = e->k, .product = product_of(e->k, e->lanes)};
  c.plan = read_plan(e, &c.product);
  c.f32 = emit_type(e, ELEM_f32), c.vector = emit_vector(e, ELEM_f32, e->lanes),
  c.i64 = emit_type(e, ELEM_i64);
  c.ptr = LLVMPointerTypeInContext(e->context, 0), c.nothing = LLVMVoidTypeInContext(e->context);
  c.amx = c.plan.tile[TILE_DEPTH] == DEPTH_AMX;
  c.pairs = c.amx || c.plan.tile[TILE_DEPTH] == DEPTH_PAIRS;
  c.a_memory = c.plan.tile[TILE_PACK_A] ? c.f32 : contract_memory(e, c.product.elem_a);
  contract_plan_prefetch(&c);
  contract_plan_interleave(&c);
  contract_plan_nontemporal(&c);
  c.pipelined = c.amx && c.plan.k_outer_max == 1 && c.plan.k_inner_max >= PARTS;
  if (c.pipelined) c.direct = false;
  bool before = c.plan.pack_chunks > 0;
  if (before) contract_share(&c);
  emit_begin_phase(e, before);
  if (c.amx) contract_amx_begin(&c);
  ChunkLoops w = {.c = &c};
  chunk_ranges(&w);
  scratch_parts(&w);
  Loop b = emit_loop(e, w.batch.from, w.batch.to, 1, 0, NULL);
  w.b = b.i;
  k_blocks(&w);
  emit_loop_end(e, &b);
  if (c.amx) contract_amx_end(&c);
  nontemporal_end(e, c.nontemporal);
  emit_end_phase(e);
}
