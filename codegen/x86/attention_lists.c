/* Walking the lists of a kernel (ir/kernel/attention_list.h), which are constants beside its code.

   Where data decides, too, whole rectangles ask for that part of the mask alone; if it does not
   depend on the query and admits all keys, they take the path without a mask. Must not: decide what
   is listed. */
#include "attention.h"
#include "ir/mask_range.h"

/* ---- constants ---- */

static LLVMValueRef constant(Attention *a, const AttentionWords *w, const char *what) {
  Emit *e = a->e;
  if (!w->n) return NULL;
  LLVMValueRef bytes =
      LLVMConstStringInContext2(e->context, (const char *)w->at, sizeof *w->at * w->n, 1);
  LLVMValueRef g =
      LLVMAddGlobal(e->module, LLVMTypeOf(bytes), arena_printf(e->arena, "%s_%s", e->symbol, what));
  LLVMSetInitializer(g, bytes), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

/* What data decides of the mask: one value, or all of the mask. */
static void find_rest(Attention *a) {
  ValueId rest[MASK_REST];
  const AttentionLists *x = &a->lists;
  int n = mask_rest(a->e->k, a->f.mask, x->shape.scalars, x->heads.scalar, rest);
  a->lists.rest = n == 0 ? NO_VALUE : n == 1 ? rest[0] : a->f.mask;
  a->lists.by_key = n == 1 && type_find(value_type(a->e->k, a->lists.rest), a->f.query) < 0;
}

void attention_make_lists(Attention *a) {
  AttentionList list = attention_list(a->e->arena, a->e->m, a->e->k, &a->f, &a->p);
  a->lists = (AttentionLists){.there = list.there, .shape = list.shape, .heads = list.heads};
  if (!list.there) return;
  AttentionLists *x = &a->lists;
  x->starts = constant(a, &list.starts, "starts"), x->rects = constant(a, &list.rects, "rects");
  x->classes = constant(a, &list.classes, "classes");
  for (int i = 0; i < a->p.phases; i++) {
    x->chunks[i] = constant(a, &list.chunks[i], i ? "chunks1" : "chunks0");
    x->units[i] = list.units[i];
  }
  find_rest(a);
}

/* ---- walking them ---- */

static LLVMValueRef word(Emit *e, LLVMValueRef words, LLVMValueRef at) {
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef p = LLVMBuildGEP2(e->builder, i32, words, &at, 1, "");
  return LLVMBuildZExt(e->builder, LLVMBuildLoad2(e->builder, i32, p, ""), emit_type(e, ELEM_i64),
                       "");
}

/* Which of the ranks' lists are this one's: by the numbers that a rank computes with. */
static LLVMValueRef rank_number(Attention *a, LLVMValueRef n) {
  Emit *e = a->e;
  const ListsShape *s = &a->lists.shape;
  Point p = {0};
  expr_reset(e);
  for (int i = 0; i < s->scalars; i++) {
    LLVMValueRef at = expr_value(e, a->lists.heads.scalar[i], &p);
    at = LLVMBuildSExt(e->builder, at, a->i64, "");
    at = LLVMBuildUDiv(e->builder, at, emit_i64(e, s->step[i]), "");
    n = tile_add(e, tile_times(e, n, s->head[s->heads - s->scalars + i]), at);
  }
  return n;
}

static LLVMValueRef class_number(Attention *a) {
  Emit *e = a->e;
  LLVMValueRef h = emit_i64(e, 0);
  const ListsHeads *of = &a->lists.heads;
  if (!a->lists.classes) return h;
  Point p = attention_point(a);
  for (int i = 0; i < of->dims; i++)
    for (int k = 0; k < p.n; k++)
      if (p.index[k].dim == of->dim[i].dim)
        h = tile_add(e, tile_times(e, h, of->dim[i].size), p.index[k].at);
  return word(e, a->lists.classes, rank_number(a, h));
}

static LLVMValueRef bits(Emit *e, LLVMValueRef x, int from, int n) {
  x = LLVMBuildLShr(e->builder, x, emit_i64(e, from), "");
  return LLVMBuildAnd(e->builder, x, emit_i64(e, (1ll << n) - 1), "");
}

/* Of all keys of a rectangle: whether what data decides admits them. */
static LLVMValueRef admits_keys(Attention *a, LLVMValueRef whole, Range keys) {
  Emit *e = a->e;
  LLVMValueRef yes = LLVMConstInt(LLVMInt1TypeInContext(e->context), 1, 0);
  LLVMValueRef to = LLVMBuildSelect(e->builder, whole, keys.to, keys.from, "");
  Point p = attention_point(a);
  Loop k = emit_loop(e, keys.from, to, 1, 1, &yes);
  point_set(&p, (Index){.dim = a->f.key, .at = k.i});
  expr_reset(e);
  k.next[0] = LLVMBuildAnd(e->builder, expr_value(e, a->lists.rest, &p), k.phi[0], "");
  emit_loop_end(e, &k);
  return LLVMBuildAnd(e->builder, whole, k.phi[0], "");
}

/* Data decides in whole rectangles, but where it admits all. */
static LLVMValueRef kind_with_data(Attention *a, const AttentionRect *r) {
  Emit *e = a->e;
  LLVMValueRef data = emit_i64(e, RUN_DATA), kind = data;
  if (a->lists.by_key) {
    LLVMValueRef all = admits_keys(a, attention_rect_is(a, r, RUN_WHOLE), r->keys);
    kind = LLVMBuildSelect(e->builder, all, emit_i64(e, RUN_WHOLE), data, "");
  }
  return LLVMBuildSelect(e->builder, attention_rect_is(a, r, RUN_MIXED), r->kind, kind, "");
}

AttentionRect attention_rects(Attention *a, LLVMValueRef s0) {
  must(a->lists.there, "kernel %s: lists of keys were not made", a->e->k->name);
  Emit *e = a->e;
  const AttentionLists *x = &a->lists;
  LLVMValueRef one = emit_i64(e, 1),
               qb = LLVMBuildUDiv(e->builder, s0, emit_i64(e, a->p.tile[FLASH_QUERY_BLOCK]), "");
  LLVMValueRef at = tile_add(e, tile_times(e, class_number(a), a->p.query_blocks), qb);
  AttentionRect r = {.loop = emit_loop(e, word(e, x->starts, at),
                                       word(e, x->starts, tile_add(e, at, one)), 1, 0, NULL)};
  LLVMValueRef first = tile_times(e, r.loop.i, RECT_WORDS), tiles = word(e, x->rects, first),
               end = word(e, x->rects, tile_add(e, first, emit_i64(e, 2)));
  int64_t n = a->p.tile_queries;
  r.queries =
      (Range){tile_times(e, bits(e, tiles, 0, 16), n), tile_times(e, bits(e, tiles, 16, 16), n)};
  r.keys = (Range){word(e, x->rects, tile_add(e, first, one)), bits(e, end, 2, 30)};
  r.kind = bits(e, end, 0, 2);
  return r;
}

void attention_ask_data(Attention *a, AttentionRect *r) {
  if (a->lists.rest != NO_VALUE) r->kind = kind_with_data(a, r);
}

LLVMValueRef attention_rect_is(Attention *a, const AttentionRect *r, AttentionRunKind kind) {
  return LLVMBuildICmp(a->e->builder, LLVMIntEQ, r->kind, emit_i64(a->e, kind), "");
}

Range attention_chunk(Attention *a, int phase) {
  Emit *e = a->e;
  LLVMValueRef at = e->chunk;
  if (a->lists.shape.ranks > 1)
    at = tile_add(e, tile_times(e, rank_number(a, emit_i64(e, 0)), a->p.chunks[phase]), at);
  at = tile_times(e, at, 2);
  LLVMValueRef words = a->lists.chunks[phase];
  return (Range){word(e, words, at), word(e, words, tile_add(e, at, emit_i64(e, 1)))};
}

Range attention_chunk_heads(Attention *a, int phase, Range units) {
  Emit *e = a->e;
  int64_t n = a->lists.units[phase];
  LLVMValueRef last = tile_add(e, units.to, emit_i64(e, n - 1)), each = emit_i64(e, n);
  return (Range){LLVMBuildUDiv(e->builder, units.from, each, ""),
                 LLVMBuildUDiv(e->builder, last, each, "")};
}

Range attention_chunk_units(Attention *a, int phase, Range units, LLVMValueRef head) {
  Emit *e = a->e;
  LLVMValueRef n = emit_i64(e, a->lists.units[phase]), zero = emit_i64(e, 0);
  LLVMValueRef first = tile_times(e, head, a->lists.units[phase]);
  LLVMValueRef from = LLVMBuildNSWSub(e->builder, units.from, first, ""),
               to = LLVMBuildNSWSub(e->builder, units.to, first, "");
  LLVMValueRef before = LLVMBuildICmp(e->builder, LLVMIntSLT, from, zero, "");
  return (Range){LLVMBuildSelect(e->builder, before, zero, from, ""), emit_min_i64(e, to, n)};
}
