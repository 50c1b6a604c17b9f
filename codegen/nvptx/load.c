/* Tiles into shared memory: see load.h.

   A thread copies pieces of 16 bytes of one column of pieces, in rows whose distance is the number
   of rows that all threads copy at once; if a row has more pieces than there are threads, its parts
   count as rows.

   Data whose layout is the same in memory and in shared memory is copied asynchronously: 16 bytes
   at once where alignment is known, single words of f32 otherwise. All other data is loaded into
   registers when the copy begins, and rounded and stored when it ends (`held`), or its pieces are
   copied one after the other when the copy begins, where they would fill the registers. Rows,
   columns and elements of k that do not exist become zeros (but see `repeats`). */
#include "load.h"

static LLVMValueRef both(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return a && b ? LLVMBuildAnd(w->e->builder, a, b, "") : a ? a : b;
}

LLVMValueRef tile_index(Warp *w, const ProductDims *dims, int at, LLVMValueRef flat) {
  int64_t below = 1;
  for (int i = at + 1; i < dims->count; i++) below *= dims->dim[i].size;
  flat = warp_div(w, flat, below);
  return at ? warp_rem(w, flat, dims->dim[at].size) : flat;
}

/* Contiguous dims count as one. */
LLVMValueRef tile_offset(Warp *w, const ProductDims *dims, bool is_b, LLVMValueRef flat) {
  LLVMBuilderRef builder = w->e->builder;
  LLVMValueRef sum = emit_i64(w->e, 0);
  int64_t below = 1, size, stride;
  for (int last = dims->count - 1, first; last >= 0; last = first - 1) {
    first = gemm_range(dims, is_b, last, &size, &stride);
    LLVMValueRef at = warp_div(w, flat, below);
    if (first) at = warp_rem(w, at, size);
    below *= size;
    if (!stride) continue;
    at = warp_wide_times(w, at, stride);
    sum = LLVMBuildNSWAdd(builder, sum, at, "");
  }
  return sum;
}

LLVMValueRef tile_turn(Warp *w, const GemmSide *side, LLVMValueRef row) {
  int64_t pieces = side->columns * side->elem / 16;
  if (!side->swizzled || pieces < 2) return warp_i32(w, 0);
  if (pieces >= 8) return warp_rem(w, row, 8);
  return warp_rem(w, warp_div(w, row, 8 / pieces), pieces);
}

/* Offset in a stage of piece `piece` of row `row` */
static LLVMValueRef place_of(Warp *w, const GemmSide *side, LLVMValueRef row, LLVMValueRef piece) {
  LLVMValueRef turned = warp_xor(w, piece, tile_turn(w, side, row));
  return warp_add(w, warp_times(w, row, side->pitch), warp_times(w, turned, 16));
}

/* Where row or column mn of the tile is; whether it exists. */
static LLVMValueRef locate(Warp *w, const TileLoad *load, LLVMValueRef mn, LLVMValueRef *present) {
  mn = warp_add(w, load->mn0, mn);
  if (load->mn_extent % load->mn_tile) {
    LLVMValueRef exists = warp_less(w, mn, warp_i32(w, load->mn_extent));
    mn = LLVMBuildSelect(w->e->builder, exists, mn, warp_i32(w, 0), "");
    if (!load->repeats) *present = exists;
  }
  return tile_offset(w, &load->mn, load->is_b, mn);
}

/* The thread's i-th piece; past the end of the tile it belongs to no thread and is not read. */
static TilePiece piece_at(Warp *w, const TileLoad *load, LLVMValueRef i) {
  const GemmSide *side = &load->side;
  int64_t parts = side->rows * load->parts;
  LLVMValueRef part = warp_add(w, load->first, warp_times(w, i, load->parts_apart));
  TilePiece piece = {.piece = load->piece};
  if (load->parts_apart * load->across < load->threads)
    piece.mine = warp_less(w, load->first, warp_i32(w, load->parts_apart));
  if (parts % load->parts_apart)
    piece.mine = both(w, piece.mine, warp_less(w, part, warp_i32(w, parts)));
  if (piece.mine) part = warp_min(w, part, warp_i32(w, parts - 1));
  piece.row = warp_div(w, part, load->parts);
  if (load->parts > 1)
    piece.piece =
        warp_add(w, piece.piece, warp_times(w, warp_rem(w, part, load->parts), load->across));
  piece.to = warp_plus(w, place_of(w, side, piece.row, piece.piece), load->at);
  if (side->along_k) piece.offset = locate(w, load, piece.row, &piece.present);
  return piece;
}

static LLVMValueRef nth_element(Warp *w, const TileLoad *load, LLVMValueRef piece, int j) {
  return warp_plus(w, warp_times(w, piece, load->each), j);
}

static bool rolled(const TileLoad *load) {
  return load->quiet ? load->items > PIECES_UNROLLED : !load->side.held;
}

void tile_load_setup(Warp *w, TileLoad *load, int64_t at) {
  const GemmSide *side = &load->side;
  must(side->columns * side->elem % 16 == 0 && at % 16 == 0,
       "kernel %s: rows of %lld bytes at %lld are copied in pieces of 16", w->e->k->name,
       (long long)(side->columns * side->elem), (long long)at);
  must(load->threads >= 32, "kernel %s: %d threads copy a tile", w->e->k->name, load->threads);
  load->quiet = side->async || (load->memory == ELEM_f32 && load->shared == ELEM_f32);
  load->each = 16 / side->elem;
  SidePieces of = gemm_pieces_of(side, load->threads);
  load->parts = (int)of.parts, load->across = of.across, load->parts_apart = of.apart;
  load->at = at, load->items = (int)of.items;
  must(load->quiet || !side->held || load->items <= PIECES_UNROLLED,
       "kernel %s: %d pieces are held", w->e->k->name, load->items);
  load->piece = warp_rem(w, w->thread, load->across);
  load->first = warp_div(w, w->thread, load->across);
  for (int i = 0; !rolled(load) && i < load->items; i++)
    load->item[i] = piece_at(w, load, warp_i32(w, i));
  for (int j = 0; !side->along_k && load->parts == 1 && j < (side->async ? 1 : load->each); j++)
    load->offset[j] = locate(w, load, nth_element(w, load, load->piece, j), &load->present[j]);
}

/* ---- elements ---- */

typedef struct Element {
  LLVMValueRef at, present; /* pointer; NULL: it exists */
} Element;

/* Element j of a piece at tile kt of k. */
static Element element(Warp *w, TileLoad *load, const TilePiece *piece, int j, LLVMValueRef kt) {
  LLVMBuilderRef builder = w->e->builder;
  bool along = load->side.along_k;
  LLVMValueRef k = along ? nth_element(w, load, piece->piece, j) : piece->row, mn = piece->offset;
  k = warp_add(w, k, warp_times(w, kt, load->k_tile));
  Element el = {.present = piece->present};
  if (!along && load->parts == 1) mn = load->offset[j], el.present = load->present[j];
  if (!along && load->parts > 1)
    mn = locate(w, load, nth_element(w, load, piece->piece, j), &el.present);
  if (load->k_extent % load->k_tile) {
    LLVMValueRef in = warp_less(w, k, warp_i32(w, load->k_extent));
    k = LLVMBuildSelect(builder, in, k, warp_i32(w, 0), "");
    el.present = both(w, el.present, in);
  }
  LLVMValueRef offset = LLVMBuildNSWAdd(builder, mn, tile_offset(w, &load->k, load->is_b, k), "");
  el.at = LLVMBuildInBoundsGEP2(builder, emit_memory_type(w->e, load->memory), load->base, &offset,
                                1, "");
  return el;
}

static void copy_piece(Warp *w, TileLoad *load, const TilePiece *piece, LLVMValueRef kt,
                       LLVMValueRef stage) {
  int n = load->side.async ? 1 : load->each;
  for (int j = 0; j < n; j++) {
    Element el = element(w, load, piece, j, kt);
    warp_copy(w, warp_plus(w, warp_add(w, stage, piece->to), j * 4), el.at, 16 / n,
              both(w, el.present, load->now));
  }
}

/* In the form of registers for rounding, otherwise as it is in memory. */
static LLVMValueRef fetch(Warp *w, TileLoad *load, const Element *el) {
  LLVMTypeRef type = emit_memory_type(w->e, load->memory);
  LLVMValueRef v = LLVMBuildLoad2(w->e->builder, type, el->at, "");
  LLVMSetAlignment(v, (unsigned)elem_bytes(load->memory));
  if (el->present) v = LLVMBuildSelect(w->e->builder, el->present, v, LLVMConstNull(type), "");
  return load->memory == load->shared ? v : expr_from_memory(w->e, load->memory, v);
}

static LLVMValueRef halves(Warp *w, LLVMValueRef low, LLVMValueRef high) {
  LLVMBuilderRef builder = w->e->builder;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(w->e->context);
  low = LLVMBuildZExt(builder, LLVMBuildBitCast(builder, low, i16, ""), w->i32, "");
  high = LLVMBuildZExt(builder, LLVMBuildBitCast(builder, high, i16, ""), w->i32, "");
  return LLVMBuildOr(builder, low, LLVMBuildShl(builder, high, warp_i32(w, 16), ""), "");
}

static LLVMValueRef word(Warp *w, TileLoad *load, const TilePiece *piece, int j, LLVMValueRef kt) {
  if (load->side.elem == 4) {
    Element el = element(w, load, piece, j, kt);
    return LLVMBuildBitCast(w->e->builder, fetch(w, load, &el), w->i32, "");
  }
  Element low = element(w, load, piece, 2 * j, kt), high = element(w, load, piece, 2 * j + 1, kt);
  LLVMValueRef a = fetch(w, load, &low), b = fetch(w, load, &high);
  return load->memory == load->shared ? halves(w, a, b) : warp_pack(w, load->shared, a, b);
}

/* Words 2 half and 2 half + 1 from four f32. */
static void wide_words(Warp *w, TileLoad *load, const TilePiece *piece, int half, LLVMValueRef kt,
                       LLVMValueRef *words) {
  LLVMTypeRef four = LLVMVectorType(w->f32, 4);
  Element el = element(w, load, piece, 4 * half, kt);
  LLVMValueRef v = LLVMBuildLoad2(w->e->builder, four, el.at, ""), x[4];
  LLVMSetAlignment(v, 16);
  if (el.present) v = LLVMBuildSelect(w->e->builder, el.present, v, LLVMConstNull(four), "");
  for (int i = 0; i < 4; i++) x[i] = LLVMBuildExtractElement(w->e->builder, v, warp_i32(w, i), "");
  for (int i = 0; i < 2; i++)
    words[2 * half + i] = warp_pack(w, load->shared, x[2 * i], x[2 * i + 1]);
}

static void words_of(Warp *w, TileLoad *load, const TilePiece *piece, LLVMValueRef kt,
                     LLVMValueRef *words) {
  for (int half = 0; load->side.wide && half < 2; half++)
    wide_words(w, load, piece, half, kt, words);
  for (int j = 0; !load->side.wide && j < 4; j++) words[j] = word(w, load, piece, j, kt);
}

static void store_piece(Warp *w, const TilePiece *piece, const LLVMValueRef *words,
                        LLVMValueRef stage) {
  LLVMValueRef v = LLVMGetPoison(LLVMVectorType(w->i32, 4));
  for (int j = 0; j < 4; j++)
    v = LLVMBuildInsertElement(w->e->builder, v, words[j], warp_i32(w, j), "");
  warp_store(w, v, warp_add(w, stage, piece->to), 16);
}

/* All of a piece at once. */
static void move_piece(Warp *w, TileLoad *load, const TilePiece *piece, LLVMValueRef kt,
                       LLVMValueRef stage) {
  Branch branch = {0};
  if (piece->mine) branch = emit_if(w->e, piece->mine);
  if (load->quiet) {
    copy_piece(w, load, piece, kt, stage);
  } else {
    LLVMValueRef words[4];
    words_of(w, load, piece, kt, words);
    store_piece(w, piece, words, stage);
  }
  if (piece->mine) emit_end_if(w->e, branch);
}

static void move_pieces(Warp *w, TileLoad *load, LLVMValueRef kt, LLVMValueRef stage) {
  for (int i = 0; !rolled(load) && i < load->items; i++)
    move_piece(w, load, &load->item[i], kt, stage);
  if (!rolled(load)) return;
  Loop loop = emit_loop(w->e, warp_i32(w, 0), warp_i32(w, load->items), 1, 0, NULL);
  loop.rolled = true; /* else loads of all pieces begin before the first one is stored */
  TilePiece piece = piece_at(w, load, loop.i);
  move_piece(w, load, &piece, kt, stage);
  emit_loop_end(w->e, &loop);
}

/* Tiles that do not exist: zeros where a copy writes them, else the last tile again. */
static void begin_always(Warp *w, TileLoad *load, LLVMValueRef kt, LLVMValueRef end,
                         LLVMValueRef stage) {
  if (load->quiet) load->now = warp_less(w, kt, end);
  else kt = warp_min(w, kt, warp_plus(w, end, -1));
  move_pieces(w, load, kt, stage);
}

void tile_load_begin(Warp *w, TileLoad *load, LLVMValueRef kt, LLVMValueRef end,
                     LLVMValueRef stage) {
  if ((load->quiet || rolled(load)) && load->always) {
    begin_always(w, load, kt, end, stage);
    return;
  }
  if (load->quiet || rolled(load)) {
    Branch branch = emit_if(w->e, warp_less(w, kt, end));
    move_pieces(w, load, kt, stage);
    emit_end_if(w->e, branch);
    return;
  }
  kt = warp_min(w, kt, warp_plus(w, end, -1)); /* the last one again, which is not multiplied */
  for (int i = 0; i < load->items; i++) words_of(w, load, &load->item[i], kt, load->held[i]);
}

void tile_load_end(Warp *w, TileLoad *load, LLVMValueRef stage) {
  if (load->quiet || rolled(load)) return;
  for (int i = 0; i < load->items; i++) {
    Branch branch = {0};
    if (load->item[i].mine) branch = emit_if(w->e, load->item[i].mine);
    store_piece(w, &load->item[i], load->held[i], stage);
    if (load->item[i].mine) emit_end_if(w->e, branch);
  }
}
