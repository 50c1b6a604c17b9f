/* Walking the lists of a kernel (ir/kernel/attention_list.h), which are constants in its object.

   If data decides as well, whole rectangles evaluate only that part of the mask; if it does not
   depend on the query and admits all keys, they take the path without a mask. Must not: decide
   which blocks are listed. */
#include "attention.h"
#include "ir/mask/mask_range.h"

/* ---- constants ---- */

static LLVMValueRef constant(Attention *attention, const AttentionWords *words, const char *what) {
  Emit *e = attention->e;
  if (!words->n) return NULL;
  LLVMValueRef bytes = LLVMConstStringInContext2(e->context, (const char *)words->at,
                                                 sizeof *words->at * words->n, 1);
  LLVMValueRef g =
      LLVMAddGlobal(e->module, LLVMTypeOf(bytes), arena_printf(e->arena, "%s_%s", e->symbol, what));
  LLVMSetInitializer(g, bytes), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

/* The part of the mask that data decides: one value, or all of the mask. */
static void find_rest(Attention *attention) {
  ValueId rest[MASK_REST];
  const AttentionLists *lists = &attention->lists;
  int n = mask_rest(attention->e->k, attention->f.mask, lists->shape.scalars, lists->heads.scalar,
                    rest);
  attention->lists.rest = n == 0 ? NO_VALUE : n == 1 ? rest[0] : attention->f.mask;
  attention->lists.by_key = n == 1 && type_find(value_type(attention->e->k, attention->lists.rest),
                                                attention->f.query) < 0;
}

void attention_make_lists(Attention *attention) {
  AttentionList list = attention_list(attention->e->arena, attention->e->m, attention->e->k,
                                      &attention->f, &attention->p);
  attention->lists =
      (AttentionLists){.present = list.present, .shape = list.shape, .heads = list.heads};
  if (!list.present) return;
  AttentionLists *lists = &attention->lists;
  lists->starts = constant(attention, &list.starts, "starts"),
  lists->rects = constant(attention, &list.rects, "rects");
  lists->classes = constant(attention, &list.classes, "classes");
  for (int i = 0; i < attention->p.phases; i++) {
    lists->chunks[i] = constant(attention, &list.chunks[i], i ? "chunks1" : "chunks0");
    lists->units[i] = list.units[i];
  }
  find_rest(attention);
}

/* ---- walking them ---- */

static LLVMValueRef word(Emit *e, LLVMValueRef words, LLVMValueRef at) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef p = LLVMBuildGEP2(e->builder, i32, words, &at, 1, "");
  return LLVMBuildZExt(e->builder, LLVMBuildLoad2(e->builder, i32, p, ""), emit_type(e, ELEM_i64),
                       "");
}

/* Which of the ranks' lists are this one's: by the numbers that a rank computes with. */
static LLVMValueRef rank_number(Attention *attention, LLVMValueRef n) {
  Emit *e = attention->e;
  const ListsShape *shape = &attention->lists.shape;
  Point p = {0};
  expr_reset(e);
  for (int i = 0; i < shape->scalars; i++) {
    LLVMValueRef at = expr_value(e, attention->lists.heads.scalar[i], &p);
    at = LLVMBuildSExt(e->builder, at, attention->i64, "");
    at = LLVMBuildUDiv(e->builder, at, emit_i64(e, shape->step[i]), "");
    n = tile_add(e, tile_times(e, n, shape->head[shape->heads - shape->scalars + i]), at);
  }
  return n;
}

static LLVMValueRef class_number(Attention *attention) {
  Emit *e = attention->e;
  LLVMValueRef h = emit_i64(e, 0);
  const ListsHeads *of = &attention->lists.heads;
  if (!attention->lists.classes) return h;
  Point p = attention_point(attention);
  for (int i = 0; i < of->dims; i++)
    for (int k = 0; k < p.n; k++)
      if (p.index[k].dim == of->dim[i].dim)
        h = tile_add(e, tile_times(e, h, of->dim[i].size), p.index[k].at);
  return word(e, attention->lists.classes, rank_number(attention, h));
}

static LLVMValueRef bits(Emit *e, LLVMValueRef x, int from, int n) {
  x = LLVMBuildLShr(e->builder, x, emit_i64(e, from), "");
  return LLVMBuildAnd(e->builder, x, emit_i64(e, (1ll << n) - 1), "");
}

/* Whether the part that data decides admits all keys of a rectangle. */
static LLVMValueRef admits_keys(Attention *attention, LLVMValueRef whole, Range keys) {
  Emit *e = attention->e;
  LLVMValueRef yes = LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0);
  LLVMValueRef to = LLVMBuildSelect(e->builder, whole, keys.to, keys.from, "");
  Point p = attention_point(attention);
  Loop loop = emit_loop(e, keys.from, to, 1, 1, &yes);
  point_set(&p, (Index){.dim = attention->f.key, .at = loop.i});
  expr_reset(e);
  loop.next[0] =
      LLVMBuildAnd(e->builder, expr_value(e, attention->lists.rest, &p), loop.phi[0], "");
  emit_loop_end(e, &loop);
  return LLVMBuildAnd(e->builder, whole, loop.phi[0], "");
}

/* Data decides in whole rectangles, but where it admits all. */
static LLVMValueRef kind_with_data(Attention *attention, const AttentionRect *rect) {
  Emit *e = attention->e;
  LLVMValueRef data = emit_i64(e, RUN_DATA), kind = data;
  if (attention->lists.by_key) {
    LLVMValueRef all =
        admits_keys(attention, attention_rect_is(attention, rect, RUN_WHOLE), rect->keys);
    kind = LLVMBuildSelect(e->builder, all, emit_i64(e, RUN_WHOLE), data, "");
  }
  return LLVMBuildSelect(e->builder, attention_rect_is(attention, rect, RUN_MIXED), rect->kind,
                         kind, "");
}

AttentionRect attention_rects(Attention *attention, LLVMValueRef s0) {
  must(attention->lists.present, "kernel %s: lists of keys were not made", attention->e->k->name);
  Emit *e = attention->e;
  const AttentionLists *lists = &attention->lists;
  LLVMValueRef one = emit_i64(e, 1),
               qb = LLVMBuildUDiv(e->builder, s0, emit_i64(e, attention->p.tile[FLASH_QUERY_BLOCK]),
                                  "");
  LLVMValueRef at =
      tile_add(e, tile_times(e, class_number(attention), attention->p.query_blocks), qb);
  AttentionRect rect = {.loop =
                            emit_loop(e, word(e, lists->starts, at),
                                      word(e, lists->starts, tile_add(e, at, one)), 1, 0, NULL)};
  LLVMValueRef first = tile_times(e, rect.loop.i, RECT_WORDS), tiles = word(e, lists->rects, first),
               end = word(e, lists->rects, tile_add(e, first, emit_i64(e, 2)));
  int64_t n = attention->p.tile_queries;
  rect.queries =
      (Range){tile_times(e, bits(e, tiles, 0, 16), n), tile_times(e, bits(e, tiles, 16, 16), n)};
  rect.keys = (Range){word(e, lists->rects, tile_add(e, first, one)), bits(e, end, 2, 30)};
  rect.kind = bits(e, end, 0, 2);
  return rect;
}

void attention_ask_data(Attention *attention, AttentionRect *rect) {
  if (attention->lists.rest != NO_VALUE) rect->kind = kind_with_data(attention, rect);
}

LLVMValueRef attention_rect_is(Attention *attention, const AttentionRect *rect,
                               AttentionRunKind kind) {
  return LLVMBuildICmp(attention->e->builder, LLVMIntEQ, rect->kind, emit_i64(attention->e, kind),
                       "");
}

Range attention_chunk(Attention *attention, int phase) {
  Emit *e = attention->e;
  LLVMValueRef at = e->chunk;
  if (attention->lists.shape.ranks > 1)
    at = tile_add(
        e, tile_times(e, rank_number(attention, emit_i64(e, 0)), attention->p.chunks[phase]), at);
  at = tile_times(e, at, 2);
  LLVMValueRef words = attention->lists.chunks[phase];
  return (Range){word(e, words, at), word(e, words, tile_add(e, at, emit_i64(e, 1)))};
}

Range attention_chunk_heads(Attention *attention, int phase, Range units) {
  Emit *e = attention->e;
  int64_t n = attention->lists.units[phase];
  LLVMValueRef last = tile_add(e, units.to, emit_i64(e, n - 1)), each = emit_i64(e, n);
  return (Range){LLVMBuildUDiv(e->builder, units.from, each, ""),
                 LLVMBuildUDiv(e->builder, last, each, "")};
}

Range attention_chunk_units(Attention *attention, int phase, Range units, LLVMValueRef head) {
  Emit *e = attention->e;
  LLVMValueRef n = emit_i64(e, attention->lists.units[phase]), zero = emit_i64(e, 0);
  LLVMValueRef first = tile_times(e, head, attention->lists.units[phase]);
  LLVMValueRef from = LLVMBuildNSWSub(e->builder, units.from, first, ""),
               to = LLVMBuildNSWSub(e->builder, units.to, first, "");
  LLVMValueRef before = LLVMBuildICmp(e->builder, LLVMIntSLT, from, zero, "");
  return (Range){LLVMBuildSelect(e->builder, before, zero, from, ""), emit_min_i64(e, to, n)};
}
