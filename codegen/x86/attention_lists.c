/* What a kernel works on, from the module's lists of blocks (ir/lists.h): rectangles of scores, as
   constants beside its code.

   Of each block of queries and block of keys there are some: tiles of queries, keys, and whether
   positions admit all of them. Neighbouring tiles with the same keys are one rectangle, so that a
   block of several tiles is worked on as a dense one is; neighbouring blocks of keys are one range.
   Inside of partial blocks the mask is asked once more, STEP keys of a tile at a time. Where data
   decides, too, whole rectangles ask for that part of the mask alone; if it does not depend on the
   query and admits all keys, they take the path without a mask.

   A rectangle starts anywhere, but a register tile reads whole rows of keys: where that could be
   behind the last ones, these are one mixed range. Chunks that share a head are cut so that each
   has as much listed work; of heads that differ, the longest chunks come first.
   Must not: hold what is absent; rectangles are bounded by MOST, above it the kernel asks the mask
   as it would without lists. */
#include "attention.h"
#include "ir/lists.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"

enum { STEP = 16, WORDS = 3, MOST = 1 << 23 };

typedef VEC(uint32_t) Words;

typedef struct Range64 {
  int64_t from, to;
} Range64;

typedef struct KeyRun {
  int64_t from, to;
  AttentionRunKind kind;
} KeyRun;
typedef VEC(KeyRun) KeyRuns;

typedef struct Rect { /* of scores: tiles of a block of queries, keys of a block of keys */
  int64_t tile0, tile1;
  KeyRun keys;
} Rect;

typedef struct Listing {
  Attention *a;
  const BlockLists *lists;
  ListsShape s;
  MaskPlaces *ask;
  ListsHeads of;
  Words starts, rects;    /* rects: tiles, first key, end * 4 + kind */
  double *queries, *keys; /* work by class and block of queries, of keys */
} Listing;

/* ---- the keys of a tile of queries ---- */

/* Of a column of blocks over the rows of a tile: MIXED may be PARTIAL, asked below. */
typedef enum ColumnState { COLUMN_ABSENT, COLUMN_FULL, COLUMN_MIXED, COLUMN_ASK } ColumnState;

static ColumnState column_state(const BlockMap *m, int64_t r0, int64_t r1, int64_t c) {
  bool seen[3] = {false};
  for (int64_t r = r0; r < r1; r++) seen[m->state[r * m->columns + c]] = true;
  if (seen[BLOCK_PARTIAL]) return COLUMN_ASK;
  if (seen[BLOCK_FULL]) return seen[BLOCK_ABSENT] ? COLUMN_MIXED : COLUMN_FULL;
  return COLUMN_ABSENT;
}

static void add_keys(Listing *l, KeyRuns *out, int64_t from, int64_t to, AttentionRunKind kind) {
  KeyRun *last = out->n ? &vec_last(*out) : NULL;
  if (last && last->to == from && last->kind == kind) last->to = to;
  else if (from < to) vec_push(l->a->e->arena, *out, ((KeyRun){from, to, kind}));
}

static void ask_keys(Listing *l, KeyRuns *out, Range64 queries, int64_t from, int64_t to) {
  for (int64_t k = from; k < to;) {
    int64_t end = min_i64((k / STEP + 1) * STEP, to);
    BlockState s = mask_rectangle(l->ask, queries.from, queries.to, k, end);
    if (s != BLOCK_ABSENT) add_keys(l, out, k, end, s == BLOCK_FULL ? RUN_WHOLE : RUN_MIXED);
    k = end;
  }
}

/* Where a register tile could read behind the keys, the last ones are one mixed range. */
static void hold_end(Listing *l, KeyRuns *x) {
  int64_t rows = l->a->p.tile[FLASH_ROWS], last = l->a->p.keys - rows;
  bool aligned = true;
  for (uint32_t i = 0; i < x->n; i++) aligned &= x->at[i].from % rows == 0;
  if (aligned || !x->n || vec_last(*x).to <= last) return;
  while (x->n && vec_last(*x).from >= last) x->n--;
  if (x->n) vec_last(*x).to = min_i64(vec_last(*x).to, last);
  vec_push(l->a->e->arena, *x, ((KeyRun){last, l->a->f.keys, RUN_MIXED}));
}

static KeyRuns tile_keys(Listing *l, const BlockMap *m, int64_t tile) {
  Attention *a = l->a;
  KeyRuns x = {0};
  Range64 q = {tile * a->p.tile_queries, min_i64((tile + 1) * a->p.tile_queries, a->f.queries)};
  int64_t r0 = q.from / m->high, r1 = (q.to - 1) / m->high + 1;
  for (int64_t c = 0; c < m->columns; c++) {
    int64_t from = c * m->wide, to = min_i64(from + m->wide, a->f.keys);
    ColumnState s = column_state(m, r0, r1, c);
    if (s == COLUMN_ASK) ask_keys(l, &x, q, from, to);
    else if (s != COLUMN_ABSENT)
      add_keys(l, &x, from, to, s == COLUMN_FULL ? RUN_WHOLE : RUN_MIXED);
  }
  hold_end(l, &x);
  return x;
}

/* ---- rectangles ---- */

typedef VEC(Rect) Rects;

static void add_rect(Listing *l, Rects *out, int64_t tile, KeyRun keys) {
  if (keys.from >= keys.to) return;
  for (uint32_t i = 0; i < out->n; i++) {
    Rect *r = &out->at[i];
    bool same = r->keys.from == keys.from && r->keys.to == keys.to && r->keys.kind == keys.kind;
    if (!same || r->tile1 != tile) continue;
    r->tile1++;
    return;
  }
  vec_push(l->a->e->arena, *out, ((Rect){tile, tile + 1, keys}));
}

/* A range that is admitted wholly, in whole register tiles, and the rest of it. */
static void add_range(Listing *l, Rects *out, int64_t tile, KeyRun k) {
  int64_t rows = l->a->p.tile[FLASH_ROWS];
  if (k.kind != RUN_WHOLE) {
    add_rect(l, out, tile, k);
    return;
  }
  int64_t whole = k.from + (k.to - k.from) / rows * rows;
  add_rect(l, out, tile, (KeyRun){k.from, whole, RUN_WHOLE});
  add_rect(l, out, tile, (KeyRun){whole, k.to, RUN_REST});
}

static void put_rects(Listing *l, const Rects *rects, int64_t class, int64_t qb, int64_t kb) {
  Arena *a = l->a->e->arena;
  for (uint32_t i = 0; i < rects->n; i++) {
    const Rect *r = &rects->at[i];
    vec_push(a, l->rects, (uint32_t)(r->tile0 | r->tile1 << 16));
    vec_push(a, l->rects, (uint32_t)r->keys.from);
    vec_push(a, l->rects, (uint32_t)(r->keys.to * 4 + r->keys.kind));
    double work = (double)(r->tile1 - r->tile0) * (double)(r->keys.to - r->keys.from);
    l->queries[class * l->a->p.query_blocks + qb] += work;
    l->keys[class * l->a->p.key_blocks + kb] += work;
  }
}

/* All rectangles of a block of queries, of which each tile's keys are given. */
static void list_block(Listing *l, const KeyRuns *tile, int64_t tiles, int64_t class, int64_t qb) {
  Attention *a = l->a;
  int64_t wide = a->p.tile[FLASH_KEY_BLOCK];
  uint32_t *at = ARENA_ARRAY(a->e->arena, uint32_t, tiles + 1);
  for (int64_t kb = 0; kb < a->p.key_blocks; kb++) {
    int64_t from = kb * wide, to = min_i64(from + wide, a->f.keys);
    Rects rects = {0};
    for (int64_t t = 0; t < tiles; t++) {
      while (at[t] < tile[t].n && tile[t].at[at[t]].to <= from) at[t]++;
      for (uint32_t i = at[t]; i < tile[t].n && tile[t].at[i].from < to; i++) {
        KeyRun k = tile[t].at[i];
        add_range(l, &rects, t, (KeyRun){max_i64(k.from, from), min_i64(k.to, to), k.kind});
      }
    }
    vec_push(a->e->arena, l->starts, l->rects.n / WORDS);
    put_rects(l, &rects, class, qb, kb);
  }
}

/* Lists of a class, as its first head has them. */
static void list_class(Listing *l, int64_t class) {
  Attention *a = l->a;
  Arena *work = arena_new();
  int64_t first = 0, tiles = ceil_div(a->f.queries, a->p.tile_queries),
          each = a->p.tile[FLASH_QUERY_BLOCK] / a->p.tile_queries;
  while (first < l->s.count && lists_class(l->lists, first) != class) first++;
  Axis query = {a->f.query, a->f.queries}, key = {a->f.key, a->f.keys};
  BlockHead at[MASK_DIMS];
  lists_head_at(&l->s, &l->of, first, at);
  l->ask = mask_places_ask(work, a->e->k, a->f.mask, query, key, l->s.heads, at);
  BlockMap map = lists_map(work, l->lists, class);
  for (int64_t qb = 0; qb < a->p.query_blocks && l->rects.n < MOST; qb++) {
    KeyRuns *tile = ARENA_ARRAY(work, KeyRuns, each + 1);
    int64_t n = min_i64(each, tiles - qb * each);
    for (int64_t t = 0; t < n; t++) tile[t] = tile_keys(l, &map, qb * each + t);
    list_block(l, tile, n, class, qb);
  }
  arena_free(work);
}

/* ---- constants ---- */

LLVMValueRef attention_constant(Attention *a, const uint32_t *w, int64_t n, const char *what) {
  Emit *e = a->e;
  LLVMTypeRef i32 = LLVMInt32TypeInContext(e->context);
  LLVMValueRef *x = ARENA_ARRAY(e->arena, LLVMValueRef, n + 1);
  for (int64_t i = 0; i < n; i++) x[i] = LLVMConstInt(i32, w[i], 0);
  LLVMValueRef g = LLVMAddGlobal(e->module, LLVMArrayType2(i32, (uint64_t)n),
                                 arena_printf(e->arena, "%s_%s", e->symbol, what));
  LLVMSetInitializer(g, LLVMConstArray2(i32, x, (uint64_t)n)), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

/* First blocks of `parts` ranges of n blocks, each of about the same work. */
static void cut(const double *work, int64_t n, int64_t parts, uint32_t *from) {
  double all = 0, so_far = 0;
  for (int64_t i = 0; i < n; i++) all += 1 + work[i];
  int64_t part = 1;
  for (int64_t i = 0; i < n; i++) {
    double half = so_far + (1 + work[i]) / 2; /* a block goes where its middle is */
    while (part < parts && half >= all * (double)part / (double)parts) from[part++] = (uint32_t)i;
    so_far += 1 + work[i];
  }
  while (part <= parts) from[part++] = (uint32_t)n;
}

/* The same for all heads of a rank together, rank by rank; NULL: there is one part. */
static uint32_t *cuts(Listing *l, const double *work, int64_t n, int64_t parts) {
  Arena *a = l->a->e->arena;
  uint32_t *from = ARENA_ARRAY(a, uint32_t, l->s.ranks * (parts + 1));
  for (int64_t r = 0; r < l->s.ranks; r++) {
    double *sum = ARENA_ARRAY(a, double, n + 1);
    for (int64_t h = r; h < l->s.count; h += l->s.ranks)
      for (int64_t i = 0; i < n; i++) sum[i] += work[lists_class(l->lists, h) * n + i];
    cut(sum, n, parts, from + r * (parts + 1));
  }
  return parts > 1 ? from : NULL;
}

static LLVMValueRef cuts_constant(Listing *l, const uint32_t *from, int64_t parts,
                                  const char *what) {
  return from ? attention_constant(l->a, from, l->s.ranks * (parts + 1), what) : NULL;
}

/* Whether they are heads of the kernel, and numbers of the rank. */
static bool find_heads(Listing *l) {
  Attention *a = l->a;
  l->of = lists_heads(a->e->k, a->f.mask, a->f.query, a->f.key);
  const FlashDims *dims[] = {&a->f.shared, &a->f.group};
  for (int i = 0; i < l->of.dims; i++) {
    bool found = false;
    for (int g = 0; g < 2; g++)
      for (int k = 0; k < dims[g]->n; k++) found |= dims[g]->axis[k].dim == l->of.dim[i].dim;
    if (!found) return false;
  }
  return lists_heads_meet(&l->s, &l->of);
}

/* Heads that differ: which chunks come first. */
static void put_order(Listing *l, AttentionLists *x, const uint32_t *queries,
                      const uint32_t *keys) {
  Attention *a = l->a;
  const FlashPlan *p = &a->p;
  AttentionWork w = {a, l->lists, &l->s, &l->of};
  int64_t shared = a->f.shared.count, group = a->f.group.count, all = shared * group,
          parts = max_i64(p->tile[FLASH_PARTS], 1);
  AttentionChunks by_query = {p->tile[FLASH_HEADS], all,     1,         parts,
                              p->query_blocks,      queries, l->queries};
  AttentionChunks by_key = {shared,        shared, group,  max_i64(p->tile[FLASH_KEY_PARTS], 1),
                            p->key_blocks, keys,   l->keys};
  bool two = p->phases > 1;
  if (two) x->order[0] = attention_order(&w, &by_key, "order0"), by_query.ranges = all;
  else if (a->f.grad) by_query.total = shared, by_query.each = group;
  x->order[two] = attention_order(&w, &by_query, two ? "order1" : "order0");
}

static void put_constants(Listing *l, AttentionLists *x) {
  Attention *a = l->a;
  vec_push(a->e->arena, l->starts, l->rects.n / WORDS);
  x->starts = attention_constant(a, l->starts.at, l->starts.n, "starts");
  x->rects = attention_constant(a, l->rects.at, l->rects.n, "rects");
  int64_t parts = a->p.tile[FLASH_PARTS], key_parts = a->p.tile[FLASH_KEY_PARTS];
  const uint32_t *queries = cuts(l, l->queries, a->p.query_blocks, parts),
                 *keys = cuts(l, l->keys, a->p.key_blocks, key_parts);
  x->query_cuts = cuts_constant(l, queries, parts, "query_cuts");
  x->key_cuts = cuts_constant(l, keys, key_parts, "key_cuts");
  if (l->s.classes < 2) return;
  put_order(l, x, queries, keys);
  Words class = {0};
  for (int64_t h = 0; h < l->s.count; h++)
    vec_push(a->e->arena, class, (uint32_t)lists_class(l->lists, h));
  x->classes = attention_constant(a, class.at, class.n, "classes");
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
  Listing l = {.a = a, .lists = lists_of(a->e->m, &a->e->k->ops.at[a->f.op])};
  Arena *arena = a->e->arena;
  a->lists = (AttentionLists){0};
  if (!l.lists || a->f.mask == NO_VALUE) return;
  l.s = lists_shape(l.lists);
  AttentionLists *x = &a->lists;
  if (l.s.queries != a->f.queries || l.s.keys != a->f.keys || !find_heads(&l)) return;
  if (l.s.classes * a->p.query_blocks * a->p.key_blocks > MOST) return;
  l.queries = ARENA_ARRAY(arena, double, l.s.classes * a->p.query_blocks + 1);
  l.keys = ARENA_ARRAY(arena, double, l.s.classes * a->p.key_blocks + 1);
  for (int64_t c = 0; c < l.s.classes && l.rects.n < MOST; c++) list_class(&l, c);
  if (l.rects.n >= MOST) return;
  x->shape = l.s, x->heads = l.of;
  find_rest(a), put_constants(&l, x);
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

AttentionRect attention_rects(Attention *a, LLVMValueRef s0, LLVMValueRef k0) {
  must(a->lists.starts, "kernel %s: lists of keys were not made", a->e->k->name);
  Emit *e = a->e;
  const AttentionLists *x = &a->lists;
  LLVMValueRef one = emit_i64(e, 1),
               qb = LLVMBuildUDiv(e->builder, s0, emit_i64(e, a->p.tile[FLASH_QUERY_BLOCK]), ""),
               kb = LLVMBuildUDiv(e->builder, k0, emit_i64(e, a->p.tile[FLASH_KEY_BLOCK]), "");
  LLVMValueRef at = tile_add(e, tile_times(e, class_number(a), a->p.query_blocks), qb);
  at = tile_add(e, tile_times(e, at, a->p.key_blocks), kb);
  AttentionRect r = {.loop = emit_loop(e, word(e, x->starts, at),
                                       word(e, x->starts, tile_add(e, at, one)), 1, 0, NULL)};
  LLVMValueRef first = tile_times(e, r.loop.i, WORDS), tiles = word(e, x->rects, first),
               end = word(e, x->rects, tile_add(e, first, emit_i64(e, 2)));
  int64_t n = a->p.tile_queries;
  r.queries =
      (Range){tile_times(e, bits(e, tiles, 0, 16), n), tile_times(e, bits(e, tiles, 16, 16), n)};
  r.keys = (Range){word(e, x->rects, tile_add(e, first, one)), bits(e, end, 2, 30)};
  r.kind = bits(e, end, 0, 2);
  if (x->rest != NO_VALUE) r.kind = kind_with_data(a, &r);
  return r;
}

LLVMValueRef attention_rect_is(Attention *a, const AttentionRect *r, AttentionRunKind kind) {
  return LLVMBuildICmp(a->e->builder, LLVMIntEQ, r->kind, emit_i64(a->e, kind), "");
}

LLVMValueRef attention_chunk(Attention *a, int phase) {
  Emit *e = a->e;
  LLVMValueRef order = a->lists.order[phase], at = e->chunk;
  if (!order) return at;
  if (a->lists.shape.ranks > 1)
    at = tile_add(e, tile_times(e, rank_number(a, emit_i64(e, 0)), a->p.chunks[phase]), at);
  return word(e, order, at);
}

Range attention_part(Attention *a, LLVMValueRef cuts, LLVMValueRef i, int64_t blocks,
                     int64_t parts) {
  Emit *e = a->e;
  if (!cuts) return tile_range(e, i, blocks, parts);
  if (a->lists.shape.ranks > 1)
    i = tile_add(e, tile_times(e, rank_number(a, emit_i64(e, 0)), parts + 1), i);
  return (Range){word(e, cuts, i), word(e, cuts, tile_add(e, i, emit_i64(e, 1)))};
}
