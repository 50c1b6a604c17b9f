/* Tiles into shared memory: see load.h.

   A thread copies pieces of 16 bytes of one column of pieces, in rows that lie apart by as many
   rows as all threads make; where a row has more pieces than there are threads, its parts count as
   rows. What lies in memory as it will in shared memory goes asynchronously: 16
   bytes at once where alignment is known, single words of f32 otherwise. The rest is loaded into
   registers when the copy begins, and rounded and stored when it ends; more than a few pieces go
   one after the other when the copy begins, because their addresses would fill the registers. Rows,
   columns and elements of k that do not exist become zeros. */
#include "load.h"

static LLVMValueRef both(Warp *w, LLVMValueRef a, LLVMValueRef b) {
  return a && b ? LLVMBuildAnd(w->e->builder, a, b, "") : a ? a : b;
}

LLVMValueRef tile_index(Warp *w, const ProductDims *d, int at, LLVMValueRef flat) {
  int64_t below = 1;
  for (int i = at + 1; i < d->count; i++) below *= d->dim[i].size;
  flat = warp_div(w, flat, below);
  return at ? warp_rem(w, flat, d->dim[at].size) : flat;
}

LLVMValueRef tile_offset(Warp *w, const ProductDims *d, bool is_b, LLVMValueRef flat) {
  LLVMBuilderRef b = w->e->builder;
  LLVMValueRef sum = emit_i64(w->e, 0);
  for (int i = 0; i < d->count; i++) {
    int64_t stride = is_b ? d->dim[i].b : d->dim[i].a;
    if (!stride) continue;
    LLVMValueRef at = warp_wide(w, tile_index(w, d, i, flat));
    sum = LLVMBuildNSWAdd(b, sum, LLVMBuildNSWMul(b, at, emit_i64(w->e, stride), ""), "");
  }
  return sum;
}

LLVMValueRef tile_turn(Warp *w, const GemmSide *s, LLVMValueRef row) {
  int64_t pieces = s->columns * s->elem / 16;
  if (!s->swizzled || pieces < 2) return warp_i32(w, 0);
  if (pieces >= 8) return warp_rem(w, row, 8);
  return warp_rem(w, warp_div(w, row, 8 / pieces), pieces);
}

/* Offset in a stage of piece `piece` of row `row` */
static LLVMValueRef place_of(Warp *w, const GemmSide *s, LLVMValueRef row, LLVMValueRef piece) {
  LLVMValueRef turned = warp_xor(w, piece, tile_turn(w, s, row));
  return warp_add(w, warp_times(w, row, s->pitch), warp_times(w, turned, 16));
}

/* Where row or column mn of the tile is; whether it exists. */
static LLVMValueRef locate(Warp *w, const TileLoad *l, LLVMValueRef mn, LLVMValueRef *there) {
  mn = warp_add(w, l->mn0, mn);
  if (l->mn_extent % l->mn_tile) {
    *there = warp_less(w, mn, warp_i32(w, l->mn_extent));
    mn = LLVMBuildSelect(w->e->builder, *there, mn, warp_i32(w, 0), "");
  }
  return tile_offset(w, &l->mn, l->is_b, mn);
}

/* The thread's i-th piece; past the end of the tile it is nobody's, and nobody reads there. */
static TilePiece piece_at(Warp *w, const TileLoad *l, LLVMValueRef i) {
  const GemmSide *s = &l->side;
  int64_t parts = s->rows * l->parts;
  LLVMValueRef part = warp_add(w, l->first, warp_times(w, i, l->parts_apart));
  TilePiece p = {.piece = l->piece};
  if (l->parts_apart * l->across < l->threads)
    p.mine = warp_less(w, l->first, warp_i32(w, l->parts_apart));
  if (parts % l->parts_apart) p.mine = both(w, p.mine, warp_less(w, part, warp_i32(w, parts)));
  if (p.mine) part = warp_min(w, part, warp_i32(w, parts - 1));
  p.row = warp_div(w, part, l->parts);
  if (l->parts > 1)
    p.piece = warp_add(w, p.piece, warp_times(w, warp_rem(w, part, l->parts), l->across));
  p.to = warp_plus(w, place_of(w, s, p.row, p.piece), l->at);
  if (s->along_k) p.offset = locate(w, l, p.row, &p.there);
  return p;
}

static LLVMValueRef nth_element(Warp *w, const TileLoad *l, LLVMValueRef piece, int j) {
  return warp_plus(w, warp_times(w, piece, l->each), j);
}

static bool rolled(const TileLoad *l) { return l->items > LOAD_UNROLLED; }

void tile_load_setup(Warp *w, TileLoad *l, int64_t at) {
  const GemmSide *s = &l->side;
  must(s->columns * s->elem % 16 == 0 && at % 16 == 0,
       "kernel %s: rows of %lld bytes at %lld are copied in pieces of 16", w->e->k->name,
       (long long)(s->columns * s->elem), (long long)at);
  must(l->threads >= 32, "kernel %s: %d threads copy a tile", w->e->k->name, l->threads);
  l->quiet = s->async || (l->memory == ELEM_f32 && l->shared == ELEM_f32);
  l->each = 16 / s->elem;
  int64_t pieces = s->columns / l->each;
  for (l->parts = 1; pieces % l->parts || pieces / l->parts > l->threads;) l->parts++;
  l->at = at, l->across = pieces / l->parts, l->parts_apart = l->threads / l->across;
  l->items = (int)((s->rows * l->parts + l->parts_apart - 1) / l->parts_apart);
  l->piece = warp_rem(w, w->thread, l->across);
  l->first = warp_div(w, w->thread, l->across);
  for (int i = 0; !rolled(l) && i < l->items; i++) l->item[i] = piece_at(w, l, warp_i32(w, i));
  for (int j = 0; !s->along_k && l->parts == 1 && j < (s->async ? 1 : l->each); j++)
    l->offset[j] = locate(w, l, nth_element(w, l, l->piece, j), &l->there[j]);
}

/* ---- elements ---- */

typedef struct Element {
  LLVMValueRef at, there; /* pointer; NULL: it is there */
} Element;

/* Element j of a piece at tile kt of k. */
static Element element(Warp *w, TileLoad *l, const TilePiece *p, int j, LLVMValueRef kt) {
  LLVMBuilderRef b = w->e->builder;
  bool along = l->side.along_k;
  LLVMValueRef k = along ? nth_element(w, l, p->piece, j) : p->row, mn = p->offset;
  k = warp_add(w, k, warp_times(w, kt, l->k_tile));
  Element el = {.there = p->there};
  if (!along && l->parts == 1) mn = l->offset[j], el.there = l->there[j];
  if (!along && l->parts > 1) mn = locate(w, l, nth_element(w, l, p->piece, j), &el.there);
  if (l->k_extent % l->k_tile) {
    LLVMValueRef in = warp_less(w, k, warp_i32(w, l->k_extent));
    k = LLVMBuildSelect(b, in, k, warp_i32(w, 0), "");
    el.there = both(w, el.there, in);
  }
  LLVMValueRef offset = LLVMBuildNSWAdd(b, mn, tile_offset(w, &l->k, l->is_b, k), "");
  el.at = LLVMBuildInBoundsGEP2(b, emit_memory_type(w->e, l->memory), l->base, &offset, 1, "");
  return el;
}

static void copy_piece(Warp *w, TileLoad *l, const TilePiece *p, LLVMValueRef kt,
                       LLVMValueRef stage) {
  int n = l->side.async ? 1 : l->each;
  for (int j = 0; j < n; j++) {
    Element el = element(w, l, p, j, kt);
    warp_copy(w, warp_plus(w, warp_add(w, stage, p->to), j * 4), el.at, 16 / n,
              both(w, el.there, l->now));
  }
}

/* In the form of registers for rounding, as it lies in memory otherwise. */
static LLVMValueRef fetch(Warp *w, TileLoad *l, const Element *el) {
  LLVMTypeRef type = emit_memory_type(w->e, l->memory);
  LLVMValueRef v = LLVMBuildLoad2(w->e->builder, type, el->at, "");
  LLVMSetAlignment(v, (unsigned)elem_bytes(l->memory));
  if (el->there) v = LLVMBuildSelect(w->e->builder, el->there, v, LLVMConstNull(type), "");
  return l->memory == l->shared ? v : expr_from_memory(w->e, l->memory, v);
}

static LLVMValueRef halves(Warp *w, LLVMValueRef low, LLVMValueRef high) {
  LLVMBuilderRef b = w->e->builder;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(w->e->context);
  low = LLVMBuildZExt(b, LLVMBuildBitCast(b, low, i16, ""), w->i32, "");
  high = LLVMBuildZExt(b, LLVMBuildBitCast(b, high, i16, ""), w->i32, "");
  return LLVMBuildOr(b, low, LLVMBuildShl(b, high, warp_i32(w, 16), ""), "");
}

static LLVMValueRef word(Warp *w, TileLoad *l, const TilePiece *p, int j, LLVMValueRef kt) {
  if (l->side.elem == 4) {
    Element el = element(w, l, p, j, kt);
    return LLVMBuildBitCast(w->e->builder, fetch(w, l, &el), w->i32, "");
  }
  Element low = element(w, l, p, 2 * j, kt), high = element(w, l, p, 2 * j + 1, kt);
  LLVMValueRef a = fetch(w, l, &low), b = fetch(w, l, &high);
  return l->memory == l->shared ? halves(w, a, b) : warp_pack(w, l->shared, a, b);
}

/* Words 2 half and 2 half + 1 from four f32. */
static void wide_words(Warp *w, TileLoad *l, const TilePiece *p, int half, LLVMValueRef kt,
                       LLVMValueRef *words) {
  LLVMTypeRef four = LLVMVectorType(w->f32, 4);
  Element el = element(w, l, p, 4 * half, kt);
  LLVMValueRef v = LLVMBuildLoad2(w->e->builder, four, el.at, ""), x[4];
  LLVMSetAlignment(v, 16);
  if (el.there) v = LLVMBuildSelect(w->e->builder, el.there, v, LLVMConstNull(four), "");
  for (int i = 0; i < 4; i++) x[i] = LLVMBuildExtractElement(w->e->builder, v, warp_i32(w, i), "");
  for (int i = 0; i < 2; i++) words[2 * half + i] = warp_pack(w, l->shared, x[2 * i], x[2 * i + 1]);
}

static void words_of(Warp *w, TileLoad *l, const TilePiece *p, LLVMValueRef kt,
                     LLVMValueRef *words) {
  for (int half = 0; l->side.wide && half < 2; half++) wide_words(w, l, p, half, kt, words);
  for (int j = 0; !l->side.wide && j < 4; j++) words[j] = word(w, l, p, j, kt);
}

static void store_piece(Warp *w, const TilePiece *p, const LLVMValueRef *words,
                        LLVMValueRef stage) {
  LLVMValueRef v = LLVMGetPoison(LLVMVectorType(w->i32, 4));
  for (int j = 0; j < 4; j++)
    v = LLVMBuildInsertElement(w->e->builder, v, words[j], warp_i32(w, j), "");
  warp_store(w, v, warp_add(w, stage, p->to), 16);
}

/* All of a piece at once. */
static void move_piece(Warp *w, TileLoad *l, const TilePiece *p, LLVMValueRef kt,
                       LLVMValueRef stage) {
  Branch b = {0};
  if (p->mine) b = emit_if(w->e, p->mine);
  if (l->quiet) {
    copy_piece(w, l, p, kt, stage);
  } else {
    LLVMValueRef words[4];
    words_of(w, l, p, kt, words);
    store_piece(w, p, words, stage);
  }
  if (p->mine) emit_end_if(w->e, b);
}

static void move_pieces(Warp *w, TileLoad *l, LLVMValueRef kt, LLVMValueRef stage) {
  for (int i = 0; !rolled(l) && i < l->items; i++) move_piece(w, l, &l->item[i], kt, stage);
  if (!rolled(l)) return;
  Loop i = emit_loop(w->e, warp_i32(w, 0), warp_i32(w, l->items), 1, 0, NULL);
  TilePiece p = piece_at(w, l, i.i);
  move_piece(w, l, &p, kt, stage);
  emit_loop_end(w->e, &i);
}

/* What is not there: zeros where a copy brings them, else the last tile again. */
static void begin_always(Warp *w, TileLoad *l, LLVMValueRef kt, LLVMValueRef end,
                         LLVMValueRef stage) {
  if (l->quiet) l->now = warp_less(w, kt, end);
  else kt = warp_min(w, kt, warp_plus(w, end, -1));
  move_pieces(w, l, kt, stage);
}

void tile_load_begin(Warp *w, TileLoad *l, LLVMValueRef kt, LLVMValueRef end, LLVMValueRef stage) {
  if ((l->quiet || rolled(l)) && l->always) {
    begin_always(w, l, kt, end, stage);
    return;
  }
  if (l->quiet || rolled(l)) {
    Branch b = emit_if(w->e, warp_less(w, kt, end));
    move_pieces(w, l, kt, stage);
    emit_end_if(w->e, b);
    return;
  }
  kt = warp_min(w, kt, warp_plus(w, end, -1)); /* the last one again: nobody multiplies it */
  for (int i = 0; i < l->items; i++) words_of(w, l, &l->item[i], kt, l->held[i]);
}

void tile_load_end(Warp *w, TileLoad *l, LLVMValueRef stage) {
  if (l->quiet || rolled(l)) return;
  for (int i = 0; i < l->items; i++) {
    Branch b = {0};
    if (l->item[i].mine) b = emit_if(w->e, l->item[i].mine);
    store_piece(w, &l->item[i], l->held[i], stage);
    if (l->item[i].mine) emit_end_if(w->e, b);
  }
}
