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
static void chunk_ranges(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  const int64_t *tile = contract->plan.tile;
  LLVMValueRef columns = emit_i64(emit, tile[TILE_COLUMN]), rows = emit_i64(emit, tile[TILE_ROW]);
  LLVMValueRef above = LLVMBuildUDiv(emit->builder, emit->chunk, columns, "");
  LLVMValueRef column = LLVMBuildURem(emit->builder, emit->chunk, columns, "");
  LLVMValueRef row = LLVMBuildURem(emit->builder, above, rows, "");
  loops->panel = tile_range(emit, column, contract->plan.panels, tile[TILE_COLUMN]);
  loops->row = tile_range(emit, row, contract->plan.tiles, tile[TILE_ROW]);
  loops->batch =
      tile_range(emit, LLVMBuildUDiv(emit->builder, above, rows, ""),
                 contract->product.batch.outer * contract->product.batch.inner, tile[TILE_BATCH]);
}

static void scratch_parts(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  loops->packed_a = emit->scratch;
  loops->packed_b = tile_elements(emit, i8, emit->scratch, emit_i64(emit, contract->plan.a_bytes));
  loops->sums = tile_elements(emit, i8, loops->packed_b, emit_i64(emit, contract->plan.b_bytes));
  loops->totals = tile_elements(emit, i8, loops->sums, emit_i64(emit, contract->plan.c_bytes));
  loops->list = tile_elements(emit, i8, loops->totals, emit_i64(emit, contract->plan.s_bytes));
}

/* Elements of operand s between steps of the inner k dim. */
static int64_t step_stride(const Contract *contract, ProductSide side) {
  return contract_inner_stride(&contract->product.k, side) * contract->plan.tile[TILE_DEPTH];
}

/* Address in operand s at this batch, at the block's first inner k element. */
static LLVMValueRef operand_base(ChunkLoops *loops, ProductSide side) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  uint32_t arg = side == SIDE_A ? contract->product.arg_a : contract->product.arg_b;
  LLVMValueRef offset = contract_offset(emit, &contract->product.batch,
                                        contract->product.batch.count, loops->b, side);
  offset = tile_add(emit, offset,
                    LLVMBuildNSWMul(emit->builder, loops->k.start,
                                    emit_i64(emit, step_stride(contract, side)), ""));
  Elem elem = side == SIDE_A ? contract->product.elem_a : contract->product.elem_b;
  return tile_elements(emit, contract_memory(emit, elem), emit_buffer(emit, arg), offset);
}

LLVMValueRef contract_panel_first(Contract *contract, LLVMValueRef p) {
  LLVMValueRef extra = emit_min_i64(contract->e, p, emit_i64(contract->e, contract->plan.wide));
  return tile_add(contract->e, tile_times(contract->e, p, contract->plan.width), extra);
}

/* i: the tile's place in the order in which tiles are multiplied. */
static LLVMValueRef tile_sums(ChunkLoops *loops, LLVMValueRef tile, LLVMValueRef i,
                              LLVMValueRef panel) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  const int64_t *x = contract->plan.tile;
  int64_t each = x[TILE_ROWS] * x[TILE_VECTORS] * contract->plan.lanes;
  if (x[TILE_K_OUTER] * x[TILE_K_INNER] == 1) { /* two in turn: one may wait for its epilogue */
    LLVMValueRef odd = LLVMBuildAnd(emit->builder, i, emit_i64(emit, contract->pipelined), "");
    return tile_elements(emit, contract->f32, loops->sums, tile_times(emit, odd, each));
  }
  LLVMValueRef at = LLVMBuildNSWSub(emit->builder, panel, loops->panel.from, "");
  at = tile_times(emit, at, contract->plan.tiles_max);
  at = tile_add(emit, at, LLVMBuildNSWSub(emit->builder, tile, loops->row.from, ""));
  return tile_elements(emit, contract->f32, loops->sums, tile_times(emit, at, each));
}

static LLVMValueRef tile_a(ChunkLoops *loops, LLVMValueRef tile) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->plan.tile[TILE_PACK_A])
    return tile_elements(emit, contract->a_memory, loops->a_base,
                         contract_tile_offset(contract, tile, SIDE_A));
  LLVMValueRef n = tile, base = loops->packed_a;
  if (contract->plan.shared) base = contract_shared_block(loops, SIDE_A);
  else n = LLVMBuildNSWSub(emit->builder, tile, loops->row.from, "");
  return tile_elements(emit, contract->f32, base, contract_packed_tile(contract, n, &loops->k));
}

static void call_micro(ChunkLoops *loops, LLVMValueRef *args, LLVMValueRef rows, int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (contract->amx) { /* all tiles are of full height: their last rows may be nobody's */
    LLVMValueRef f = contract_amx(contract, vectors);
    LLVMBuildCall2(emit->builder, contract_micro_type(contract), f, args, MICRO_ARGS, "");
    return;
  }
  for (int tall = contract->plan.high > 0; tall >= 0; tall--) {
    LLVMValueRef f = contract_micro(contract, (int)contract->plan.height + tall, vectors);
    LLVMValueRef here = LLVMBuildICmp(emit->builder, LLVMIntEQ, rows,
                                      emit_i64(emit, contract->plan.height + tall), "");
    Branch branch = emit_if(emit, here);
    LLVMBuildCall2(emit->builder, contract_micro_type(contract), f, args, MICRO_ARGS, "");
    emit_end_if(emit, branch);
  }
}

/* Address in a buffer, a result's or one of its layout, of a tile's first element; sums if the
   result is not laid out by rows. */
static LLVMValueRef tile_out(ChunkLoops *loops, uint32_t buffer, LLVMValueRef tile, LLVMValueRef v0,
                             LLVMValueRef sums) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->out_row) return sums;
  LLVMValueRef at = contract_offset(emit, &contract->product.batch, contract->product.batch.count,
                                    loops->b, SIDE_R);
  at = tile_add(emit, at, contract_tile_offset(contract, tile, SIDE_R));
  at = tile_add(emit, at, tile_times(emit, v0, contract->plan.lanes));
  return tile_elements(emit, contract_memory(emit, contract->out), emit_buffer(emit, buffer), at);
}

/* Where a's rows of the tile after the ith begin: of this panel, or the first one's at the next
 * block of k. */
static LLVMValueRef next_tile(ChunkLoops *loops, LLVMValueRef i, LLVMValueRef here) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->prefetch_a) return here;
  LLVMValueRef next = tile_add(emit, i, emit_i64(emit, 1));
  LLVMValueRef more = LLVMBuildICmp(emit->builder, LLVMIntSLT, next, loops->count, "");
  next = LLVMBuildSelect(emit->builder, more, next, emit_i64(emit, 0), "");
  next = contract_listed_tile(loops, next);
  if (contract->plan.rows_a) return tile_a(loops, next);
  LLVMValueRef block = tile_times(emit, loops->k.length, step_stride(contract, SIDE_A));
  LLVMValueRef on = LLVMBuildSelect(emit->builder, more, emit_i64(emit, 0), block, "");
  return tile_elements(emit, contract->a_memory, loops->a_base,
                       tile_add(emit, contract_tile_offset(contract, next, SIDE_A), on));
}

/* 1 if the micro-kernel may store its sums as the result. The last panel may have lanes that do not
 * exist. */
static LLVMValueRef is_direct(ChunkLoops *loops, LLVMValueRef v0, int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->direct) return emit_i64(emit, 0);
  LLVMValueRef end =
      tile_times(emit, tile_add(emit, v0, emit_i64(emit, vectors)), contract->plan.lanes);
  LLVMValueRef full =
      LLVMBuildICmp(emit->builder, LLVMIntSLE, end, emit_i64(emit, contract->product.n.inner), "");
  return LLVMBuildZExt(emit->builder, LLVMBuildAnd(emit->builder, full, loops->last, ""),
                       contract->i64, "");
}

typedef struct NextPanel { /* of b: fetched, and packed, while the present one is computed */
  LLVMValueRef v0, wide, src, length, half, dst; /* src: at its block of k */
  LLVMValueRef pack; /* i1: it is this chunk's; the next chunk's first one is only fetched */
} NextPanel;

/* Buffer of the panel that is `turn`th in this chunk. */
static LLVMValueRef panel_buffer(ChunkLoops *loops, LLVMValueRef turn) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->double_buffered) return loops->packed_b;
  LLVMValueRef odd = LLVMBuildAnd(emit->builder, turn, emit_i64(emit, 1), "");
  return tile_elements(emit, LLVMInt8TypeInContext(emit->context), loops->packed_b,
                       tile_times(emit, odd, contract->plan.b_bytes / 2));
}

LLVMValueRef contract_is_wide(Contract *contract, LLVMValueRef panel) {
  return LLVMBuildICmp(contract->e->builder, LLVMIntSLT, panel,
                       emit_i64(contract->e, contract->plan.wide), "");
}

static LLVMValueRef panel_source(ChunkLoops *loops, LLVMValueRef base, LLVMValueRef v0) {
  Contract *contract = loops->c;
  LLVMValueRef at = tile_times(
      contract->e, v0, contract->plan.lanes * contract_inner_stride(&contract->product.n, SIDE_B));
  return tile_elements(contract->e, contract_memory(contract->e, contract->product.elem_b), base,
                       at);
}

/* The panel that comes `by` after this one: of this block of k, the first ones of the next block,
   or, at the end, those with which the next chunk begins. */
static NextPanel next_panel(ChunkLoops *loops, LLVMValueRef panel, int by) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef next = tile_add(emit, panel, emit_i64(emit, by)), zero = emit_i64(emit, 0);
  LLVMValueRef same = LLVMBuildICmp(emit->builder, LLVMIntSLT, next, loops->panel.to, "");
  LLVMValueRef all = emit_i64(emit, contract->plan.panels), from = loops->panel.from;
  LLVMValueRef over = LLVMBuildICmp(emit->builder, LLVMIntSLT, loops->panel.to, all, "");
  LLVMValueRef after = LLVMBuildSelect(emit->builder, over, loops->panel.to, zero, "");
  LLVMValueRef back = LLVMBuildNSWSub(emit->builder, zero, loops->k.start, "");
  LLVMValueRef on = LLVMBuildSelect(emit->builder, loops->last, back, loops->k.length, "");
  on = LLVMBuildSelect(emit->builder, same, zero, on, "");
  on = tile_times(emit, on, step_stride(contract, SIDE_B));
  LLVMValueRef base =
      tile_elements(emit, contract_memory(emit, contract->product.elem_b), loops->b_base, on);
  from = LLVMBuildSelect(emit->builder, loops->last, after, from, "");
  from = tile_add(emit, from, LLVMBuildNSWSub(emit->builder, next, loops->panel.to, ""));
  from = emit_min_i64(emit, from, emit_i64(emit, contract->plan.panels - 1));
  next = LLVMBuildSelect(emit->builder, same, next, from, "");
  NextPanel n = {.v0 = contract_panel_first(contract, next),
                 .wide = contract_is_wide(contract, next)};
  n.length = LLVMBuildSelect(emit->builder, same, loops->k.length, loops->next_length, "");
  if (loops->k.half)
    n.half = LLVMBuildSelect(emit->builder, same, loops->k.half, loops->next_half, "");
  n.src = base, n.dst = panel_buffer(loops, tile_add(emit, loops->turn, emit_i64(emit, by)));
  n.pack = LLVMBuildOr(emit->builder, same, LLVMBuildNot(emit->builder, loops->last, ""), "");
  return n;
}

/* Packs steps of the next panel before a row tile. */
static void pack_slice(ChunkLoops *loops, const NextPanel *next, Range part) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  KBlock block = {loops->k.o0, loops->k.o1, loops->k.start, next->length, next->half};
  for (int wide = 0; wide <= (contract->plan.wide > 0); wide++) {
    LLVMValueRef here = wide ? next->wide : LLVMBuildNot(emit->builder, next->wide, "");
    LLVMValueRef some = LLVMBuildICmp(emit->builder, LLVMIntSLT, part.from, part.to, "");
    some = LLVMBuildAnd(emit->builder, some, next->pack, "");
    Branch branch = emit_if(emit, LLVMBuildAnd(emit->builder, here, some, ""));
    contract_pack_b(contract, wide, next->src, next->dst, next->v0, &block, part);
    emit_end_if(emit, branch);
  }
}

/* How many steps of a slice the micro-kernel packs: of a panel that is as wide as its own and has
   all lanes, whole ones, no more than it has rounds. */
static LLVMValueRef interleaved_steps(ChunkLoops *loops, const NextPanel *next, Range part,
                                      int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef zero = emit_i64(emit, 0), whole = next->length, own = loops->k.length;
  if (!contract->interleaved) return zero;
  LLVMValueRef wide =
      vectors > contract->plan.width ? next->wide : LLVMBuildNot(emit->builder, next->wide, "");
  LLVMValueRef end =
      tile_times(emit, tile_add(emit, next->v0, emit_i64(emit, vectors)), contract->plan.lanes);
  LLVMValueRef full =
      LLVMBuildICmp(emit->builder, LLVMIntSLE, end, emit_i64(emit, contract->product.n.inner), "");
  if (next->half) whole = LLVMBuildNSWSub(emit->builder, whole, next->half, "");
  if (next->half) own = LLVMBuildNSWSub(emit->builder, own, loops->k.half, "");
  whole = LLVMBuildNSWSub(emit->builder, emit_min_i64(emit, part.to, whole), part.from, "");
  LLVMValueRef rounds = LLVMBuildUDiv(emit->builder, own, emit_i64(emit, MICRO_ROUND), "");
  LLVMValueRef steps = emit_min_i64(emit, whole, rounds);
  LLVMValueRef some = LLVMBuildICmp(emit->builder, LLVMIntSGT, steps, zero, "");
  some = LLVMBuildAnd(emit->builder, some, LLVMBuildAnd(emit->builder, wide, full, ""), "");
  some = LLVMBuildAnd(emit->builder, some, next->pack, "");
  return LLVMBuildSelect(emit->builder, some, steps, zero, "");
}

static LLVMValueRef slice_source(ChunkLoops *loops, const NextPanel *next, LLVMValueRef step) {
  Contract *contract = loops->c;
  LLVMValueRef at = tile_times(contract->e, step, step_stride(contract, SIDE_B));
  return tile_elements(contract->e, contract_memory(contract->e, contract->product.elem_b),
                       panel_source(loops, next->src, next->v0), at);
}

/* Fetched with row tile i: the slice that is packed with the next one, after the last one the first
   slice of the panel after the next. */
static LLVMValueRef fetch_slice(ChunkLoops *loops, const NextPanel *next, LLVMValueRef i,
                                LLVMValueRef end) {
  Emit *emit = loops->c->e;
  LLVMValueRef after = tile_add(emit, i, emit_i64(emit, 1));
  LLVMValueRef more = LLVMBuildICmp(emit->builder, LLVMIntSLT, after, loops->count, "");
  LLVMValueRef here = slice_source(loops, &next[0], end);
  return LLVMBuildSelect(emit->builder, more, here,
                         slice_source(loops, &next[1], emit_i64(emit, 0)), "");
}

static LLVMValueRef fetch_lanes(ChunkLoops *loops, const NextPanel *next, LLVMValueRef i) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  int64_t each = contract_prefetch_lanes(contract),
          lanes = (contract->plan.width + (contract->plan.wide > 0)) * contract->plan.lanes;
  LLVMValueRef left = LLVMBuildICmp(emit->builder, LLVMIntSLT, tile_times(emit, i, each),
                                    emit_i64(emit, lanes), ""); /* else the first ones again */
  LLVMValueRef at = LLVMBuildSelect(emit->builder, left, i, emit_i64(emit, 0), "");
  return tile_elements(
      emit, contract_memory(emit, contract->product.elem_b),
      panel_source(loops, next->src, next->v0),
      tile_times(emit, at, each * contract_inner_stride(&contract->product.n, SIDE_B)));
}

/* Part i of the panel after this one in the copy for all chunks. */
static LLVMValueRef fetch_copied(ChunkLoops *loops, LLVMValueRef panel, LLVMValueRef i,
                                 int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef from = contract_slice(contract, i, loops->count, loops->k.length).from;
  LLVMValueRef steps = tile_add(emit, loops->k.length, from);
  return tile_elements(emit, contract->f32, panel,
                       tile_times(emit, steps, vectors * contract->plan.lanes));
}

/* Row tile i of the chunk: a slice of the next panel is packed, what comes after it is fetched. */
static void prepare_prefetch(ChunkLoops *loops, const NextPanel *next, LLVMValueRef i, int vectors,
                             LLVMValueRef *args) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  args[MICRO_PREFETCH] = args[MICRO_SLICE] = args[MICRO_PLACE] = args[MICRO_B];
  args[MICRO_PACKS] = emit_i64(emit, 0);
  if (contract->prefetch_copy)
    args[MICRO_PREFETCH] = fetch_copied(loops, args[MICRO_B], i, vectors);
  else if (contract->prefetch && !contract->double_buffered)
    args[MICRO_PREFETCH] = fetch_lanes(loops, next, i);
  if (!contract->double_buffered) return;
  Range part = contract_slice(contract, i, loops->count, next->length);
  if (contract->amx) {
    args[MICRO_PREFETCH] = slice_source(loops, next, part.to);
  } else {
    LLVMValueRef interleaved = interleaved_steps(loops, next, part, vectors);
    args[MICRO_SLICE] = slice_source(loops, next, part.from);
    LLVMValueRef row = tile_times(emit, part.from, vectors * contract->plan.lanes);
    args[MICRO_PLACE] = tile_elements(emit, contract->f32, next->dst, row);
    args[MICRO_PACKS] = interleaved;
    args[MICRO_PREFETCH] = fetch_slice(loops, next, i, part.to);
    part.from = tile_add(emit, part.from, interleaved);
  }
  pack_slice(loops, next, part);
}

/* A row tile of a panel: where it is, what the micro-kernel is told. */
typedef struct RowTile {
  TileAt at;
  LLVMValueRef args[MICRO_ARGS];
} RowTile;

/* The ith of those to multiply. */
static TileAt tile_with_sums(ChunkLoops *loops, LLVMValueRef i, LLVMValueRef panel, LLVMValueRef v0,
                             int vectors) {
  LLVMValueRef tile = contract_listed_tile(loops, i);
  TileAt at = contract_tile_at(loops->c, loops->b, tile, v0, vectors);
  at.values = tile_sums(loops, tile, i, panel);
  return at;
}

static RowTile row_tile(ChunkLoops *loops, LLVMValueRef i, LLVMValueRef panel, LLVMValueRef v0,
                        LLVMValueRef b, int vectors, const NextPanel *next) {
  const Contract *contract = loops->c;
  Emit *emit = contract->e;
  LLVMValueRef tile = contract_listed_tile(loops, i);
  RowTile x = {tile_with_sums(loops, i, panel, v0, vectors),
               {[MICRO_A] = tile_a(loops, tile),
                [MICRO_B] = b,
                [MICRO_O0] = loops->k.o0,
                [MICRO_O1] = loops->k.o1,
                [MICRO_LENGTH] = loops->k.length,
                [MICRO_FROM] = emit_i64(emit, 0),
                [MICRO_TO] = loops->k.length,
                [MICRO_MORE] = loops->more,
                [MICRO_HALF] = loops->k.half ? loops->k.half : emit_i64(emit, 0)}};
  x.args[MICRO_C] = x.at.values,
  x.args[MICRO_OUT] = tile_out(loops, contract->k->args.n + contract->first, tile, v0, x.at.values);
  for (int j = 0; j < BESIDE; j++)
    x.args[MICRO_BESIDE + j] = j < contract->nbeside
                                   ? tile_out(loops, contract->beside[j], tile, v0, x.at.values)
                                   : x.args[MICRO_OUT];
  prepare_prefetch(loops, next, i, vectors, x.args);
  x.args[MICRO_NEXT] = next_tile(loops, i, x.args[MICRO_A]);
  x.args[MICRO_DIRECT] = is_direct(loops, v0, vectors);
  return x;
}

static void row_tiles(ChunkLoops *loops, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                      int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  NextPanel next[2] = {0};
  for (int i = 0; i < 2 && contract->prefetch && !contract->prefetch_copy; i++)
    next[i] = next_panel(loops, panel, i + 1);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), loops->count, 1, 0, NULL);
  RowTile x = row_tile(loops, loop.i, panel, v0, b, vectors, next);
  call_micro(loops, x.args, x.at.rows, vectors);
  LLVMValueRef in_sums =
      LLVMBuildICmp(emit->builder, LLVMIntEQ, x.args[MICRO_DIRECT], emit_i64(emit, 0), "");
  Branch last = emit_if(emit, LLVMBuildAnd(emit->builder, loops->last, in_sums, ""));
  contract_epilogue(contract, &x.at);
  emit_end_if(emit, last);
  emit_loop_end(emit, &loop);
}

/* Parts of a tile's steps of k, and of the rows of the tile before it, in turn. */
enum { PARTS = 4 };

static LLVMValueRef part_of(Emit *emit, LLVMValueRef part, LLVMValueRef total) {
  LLVMValueRef x = LLVMBuildNSWMul(emit->builder, part, total, "");
  return LLVMBuildUDiv(emit->builder, x, emit_i64(emit, PARTS), "");
}

static void some_rows(Contract *contract, TileAt at, LLVMValueRef part, LLVMValueRef next) {
  int64_t each = contract->plan.tile[TILE_ROWS] / PARTS;
  at.first = tile_times(contract->e, part, each);
  at.rows = emit_min_i64(contract->e, at.rows, tile_times(contract->e, next, each));
  contract_epilogue(contract, &at);
}

/* The same for AMX tiles: their products and the vector instructions of the epilogue of the
   tile before take turns in short pieces, so that the processor does them at the same time. */
static void pipelined_tiles(ChunkLoops *loops, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                            int vectors) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  NextPanel n = {0};
  LLVMValueRef one = emit_i64(emit, 1);
  if (contract->double_buffered) n = next_panel(loops, panel, 1);
  Loop t = emit_loop(emit, emit_i64(emit, 0), loops->count, 1, 0, NULL);
  RowTile x = row_tile(loops, t.i, panel, v0, b, vectors, &n);
  LLVMValueRef begun = LLVMBuildICmp(emit->builder, LLVMIntSGT, t.i, emit_i64(emit, 0), "");
  begun = LLVMBuildAnd(emit->builder, begun, loops->last, "");
  LLVMValueRef earlier = LLVMBuildNSWSub(emit->builder, t.i, one, "");
  TileAt before = tile_with_sums(loops, earlier, panel, v0, vectors);
  Loop p = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, PARTS), 1, 0, NULL);
  LLVMValueRef next = tile_add(emit, p.i, one);
  x.args[MICRO_FROM] = part_of(emit, p.i, loops->k.length);
  x.args[MICRO_TO] = part_of(emit, next, loops->k.length);
  call_micro(loops, x.args, x.at.rows, vectors);
  Branch some = emit_if(emit, begun);
  some_rows(contract, before, p.i, next);
  emit_end_if(emit, some);
  emit_loop_end(emit, &p);
  emit_loop_end(emit, &t);
  Branch last = emit_if(emit, loops->last);
  earlier = LLVMBuildNSWSub(emit->builder, loops->count, one, "");
  TileAt rest = tile_with_sums(loops, earlier, panel, v0, vectors);
  contract_epilogue(contract, &rest);
  emit_end_if(emit, last);
}

/* The panel as the micro-kernel reads it. If panels are packed by slices, only the first one has to
 * be packed at this point. */
static LLVMValueRef ready_panel(ChunkLoops *loops, LLVMValueRef v0, int wide) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (!contract->plan.tile[TILE_PACK_B])
    return tile_elements(emit, contract->f32, loops->b_base,
                         tile_times(emit, v0, contract->plan.lanes));
  if (contract->plan.shared_b)
    return tile_elements(emit, contract->f32, contract_shared_block(loops, SIDE_B),
                         contract_packed_panel(contract, v0, &loops->k));
  LLVMValueRef dst = panel_buffer(loops, loops->turn),
               begun = LLVMBuildICmp(emit->builder, LLVMIntNE, loops->turn, emit_i64(emit, 0), "");
  Range all = {emit_i64(emit, 0), loops->k.length};
  if (!contract->double_buffered) {
    contract_pack_b(contract, wide, loops->b_base, dst, v0, &loops->k, all);
    return dst;
  }
  Branch first = emit_if(emit, LLVMBuildNot(emit->builder, begun, ""));
  contract_pack_b(contract, wide, loops->b_base, dst, v0, &loops->k, all);
  emit_end_if(emit, first);
  return dst;
}

/* Sums of b's panel in addition to the product, once for all blocks of rows. */
static void panel_sums(ChunkLoops *loops, LLVMValueRef panel, LLVMValueRef v0, LLVMValueRef b,
                       int wide) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (contract->product.sum == NO_VALUE) return;
  LLVMValueRef zero = emit_i64(emit, 0),
               n = LLVMBuildNSWSub(emit->builder, panel, loops->panel.from, "");
  TileAt place = {.batch = loops->b, .m_outer = zero, .row0 = zero, .rows = zero, .v0 = v0};
  place.vectors = (int)contract->plan.width + wide;
  place.values =
      tile_elements(emit, contract->f32, loops->totals,
                    tile_times(emit, n, contract->plan.tile[TILE_VECTORS] * contract->plan.lanes));
  Branch first = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntEQ, loops->row.from, zero, ""));
  contract_sums(contract, wide, b, &place, &loops->k, loops->more, loops->last);
  emit_end_if(emit, first);
}

static void panel_of_width(ChunkLoops *loops, LLVMValueRef panel, int wide) {
  LLVMValueRef v0 = contract_panel_first(loops->c, panel), b = ready_panel(loops, v0, wide);
  panel_sums(loops, panel, v0, b, wide);
  (loops->c->pipelined ? pipelined_tiles : row_tiles)(loops, panel, v0, b,
                                                      (int)loops->c->plan.width + wide);
}

static void panels(ChunkLoops *loops) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (contract->plan.tile[TILE_PACK_A] && !contract->plan.shared)
    contract_pack_a(contract, loops->a_base, loops->packed_a, loops->row.from, loops->row.to,
                    &loops->k);
  Loop loop = emit_loop(emit, loops->panel.from, loops->panel.to, 1, 0, NULL);
  LLVMValueRef wide = contract_is_wide(contract, loop.i),
               count = LLVMBuildNSWSub(emit->builder, loops->panel.to, loops->panel.from, "");
  loops->turn = LLVMBuildNSWMul(emit->builder, loops->k_turn, count, "");
  loops->turn =
      tile_add(emit, loops->turn, LLVMBuildNSWSub(emit->builder, loop.i, loops->panel.from, ""));
  if (contract->plan.wide) {
    Branch branch = emit_if(emit, wide);
    panel_of_width(loops, loop.i, 1);
    emit_end_if(emit, branch);
  }
  Branch branch = emit_if(emit, LLVMBuildNot(emit->builder, wide, ""));
  panel_of_width(loops, loop.i, 0);
  emit_end_if(emit, branch);
  emit_loop_end(emit, &loop);
}

/* Whether inner block of k i ends with half a step. */
static LLVMValueRef half_of(ChunkLoops *loops, LLVMValueRef i) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  if (contract->product.k.inner % contract->plan.tile[TILE_DEPTH] == 0) return NULL;
  LLVMValueRef last = emit_i64(emit, contract->plan.tile[TILE_K_INNER] - 1);
  return LLVMBuildZExt(emit->builder, LLVMBuildICmp(emit->builder, LLVMIntEQ, i, last, ""),
                       contract->i64, "");
}

void contract_enter_block(ChunkLoops *loops, LLVMValueRef turn) {
  Contract *contract = loops->c;
  Emit *emit = contract->e;
  int64_t outer = contract->plan.tile[TILE_K_OUTER], inner = contract->plan.tile[TILE_K_INNER];
  LLVMValueRef n = emit_i64(emit, inner);
  Range range =
      tile_range(emit, LLVMBuildUDiv(emit->builder, turn, n, ""), contract->product.k.outer, outer);
  LLVMValueRef now = LLVMBuildURem(emit->builder, turn, n, "");
  LLVMValueRef next = LLVMBuildURem(emit->builder, tile_add(emit, turn, emit_i64(emit, 1)), n, "");
  Range i = tile_range(emit, now, contract->plan.steps, inner),
        after = tile_range(emit, next, contract->plan.steps, inner);
  loops->k = (KBlock){range.from, range.to, i.from,
                      LLVMBuildNSWSub(emit->builder, i.to, i.from, ""), NULL};
  loops->k.half = half_of(loops, now), loops->next_half = half_of(loops, next);
  loops->k_turn = turn;
  loops->next_length = LLVMBuildNSWSub(emit->builder, after.to, after.from, "");
  LLVMValueRef first = LLVMBuildICmp(emit->builder, LLVMIntEQ, turn, emit_i64(emit, 0), "");
  loops->more = LLVMBuildSelect(emit->builder, first, emit_i64(emit, 0), emit_i64(emit, 1), "");
  loops->last =
      LLVMBuildICmp(emit->builder, LLVMIntEQ, turn, emit_i64(emit, outer * inner - 1), "");
  loops->a_base = operand_base(loops, SIDE_A), loops->b_base = operand_base(loops, SIDE_B);
}

static void k_blocks(ChunkLoops *loops) {
  Emit *emit = loops->c->e;
  const int64_t *tile = loops->c->plan.tile;
  LLVMValueRef blocks = emit_i64(emit, tile[TILE_K_OUTER] * tile[TILE_K_INNER]);
  Loop loop = emit_loop(emit, emit_i64(emit, 0), blocks, 1, 0, NULL);
  contract_enter_block(loops, loop.i);
  contract_seek_steps(loops);
  panels(loops);
  emit_loop_end(emit, &loop);
}

static ProductPlan read_plan(Emit *emit, const Product *p) {
  const Attr *tile = attr_get(&emit->k->attrs, ATTR_tile);
  if (!tile || tile->i != TILE_COUNT)
    bug("kernel %s has no tile of %d numbers", emit->k->name, TILE_COUNT);
  return product_plan(p, emit->lanes, tile->list);
}

void contract_emit(Emit *emit) {
  Contract contract = {.e = emit, .k = emit->k, .product = product_of(emit->k, emit->lanes)};
  contract.plan = read_plan(emit, &contract.product);
  contract.f32 = emit_type(emit, ELEM_f32),
  contract.vector = emit_vector(emit, ELEM_f32, emit->lanes),
  contract.i64 = emit_type(emit, ELEM_i64);
  contract.ptr = LLVMPointerTypeInContext(emit->context, 0),
  contract.nothing = LLVMVoidTypeInContext(emit->context);
  contract.amx = contract.plan.tile[TILE_DEPTH] == DEPTH_AMX;
  contract.pairs = contract.amx || contract.plan.tile[TILE_DEPTH] == DEPTH_PAIRS;
  contract.a_memory = contract.plan.tile[TILE_PACK_A]
                          ? contract.f32
                          : contract_memory(emit, contract.product.elem_a);
  contract_plan_prefetch(&contract);
  contract_plan_interleave(&contract);
  contract_plan_nontemporal(&contract);
  contract.pipelined =
      contract.amx && contract.plan.k_outer_max == 1 && contract.plan.k_inner_max >= PARTS;
  if (contract.pipelined) contract.direct = false;
  bool before = contract.plan.pack_chunks > 0;
  if (before) contract_share(&contract);
  emit_begin_phase(emit, before);
  if (contract.amx) contract_amx_begin(&contract);
  ChunkLoops loops = {.c = &contract};
  chunk_ranges(&loops);
  scratch_parts(&loops);
  Loop loop = emit_loop(emit, loops.batch.from, loops.batch.to, 1, 0, NULL);
  loops.b = loop.i;
  contract_list_tiles(&loops);
  Branch some =
      emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSGT, loops.count, emit_i64(emit, 0), ""));
  k_blocks(&loops);
  emit_end_if(emit, some);
  contract_empty_tiles(&loops);
  emit_loop_end(emit, &loop);
  if (contract.amx) contract_amx_end(&contract);
  nontemporal_end(emit, contract.nontemporal | (loops.empty ? contract.zeros : 0));
  emit_end_phase(emit);
}
