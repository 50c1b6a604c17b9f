/* From lists of blocks to rectangles; see attention_list.h. A rectangle starts anywhere, but a
   register tile reads whole rows of keys: where that could be behind the last ones, these are one
   mixed range. Partial blocks are asked STEP keys of a tile at a time. */
#include "attention_list.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"

enum { STEP = 16 };

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
  Arena *a;
  const Fn *k;
  const Flash *f;
  const FlashPlan *p;
  Arena *scratch; /* of a class */
  int64_t most;   /* rectangles */
  MaskPlaces *ask;
  AttentionWork work;
  AttentionList *x;
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
  else if (from < to) vec_push(l->scratch, *out, ((KeyRun){from, to, kind}));
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
  int64_t rows = l->p->tile[FLASH_ROWS], last = l->p->keys - rows;
  bool aligned = true;
  for (uint32_t i = 0; i < x->n; i++) aligned &= x->at[i].from % rows == 0;
  if (aligned || !x->n || vec_last(*x).to <= last) return;
  while (x->n && vec_last(*x).from >= last) x->n--;
  if (x->n) vec_last(*x).to = min_i64(vec_last(*x).to, last);
  vec_push(l->scratch, *x, ((KeyRun){last, l->f->keys, RUN_MIXED}));
}

static KeyRuns tile_keys(Listing *l, const BlockMap *m, int64_t tile) {
  KeyRuns x = {0};
  int64_t n = l->p->tile_queries;
  Range64 q = {tile * n, min_i64((tile + 1) * n, l->f->queries)};
  int64_t r0 = q.from / m->high, r1 = (q.to - 1) / m->high + 1;
  for (int64_t c = 0; c < m->columns; c++) {
    int64_t from = c * m->wide, to = min_i64(from + m->wide, l->f->keys);
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
  vec_push(l->scratch, *out, ((Rect){tile, tile + 1, keys}));
}

/* A range that is admitted wholly, in whole register tiles, and the rest of it. */
static void add_range(Listing *l, Rects *out, int64_t tile, KeyRun k) {
  int64_t rows = l->p->tile[FLASH_ROWS];
  if (k.kind != RUN_WHOLE) {
    add_rect(l, out, tile, k);
    return;
  }
  int64_t whole = k.from + (k.to - k.from) / rows * rows;
  add_rect(l, out, tile, (KeyRun){k.from, whole, RUN_WHOLE});
  add_rect(l, out, tile, (KeyRun){whole, k.to, RUN_REST});
}

static void put_rects(Listing *l, const Rects *rects, int64_t class, int64_t qb, int64_t kb) {
  for (uint32_t i = 0; i < rects->n; i++) {
    const Rect *r = &rects->at[i];
    const uint32_t word[RECT_WORDS] = {(uint32_t)(r->tile0 | r->tile1 << 16),
                                       (uint32_t)r->keys.from,
                                       (uint32_t)(r->keys.to * 4 + r->keys.kind)};
    for (int k = 0; k < RECT_WORDS; k++) vec_push(l->a, l->x->rects, word[k]);
    double work = (double)(r->tile1 - r->tile0) * (double)(r->keys.to - r->keys.from);
    l->work.queries[class * l->p->query_blocks + qb] += work;
    l->work.keys[class * l->p->key_blocks + kb] += work;
  }
}

/* Of tiles at runs `at` the block of keys that comes next; none: behind the last one. */
static int64_t next_block(const Listing *l, const KeyRuns *tile, const uint32_t *at, int64_t tiles,
                          int64_t kb) {
  int64_t wide = l->p->tile[FLASH_KEY_BLOCK], next = l->p->key_blocks;
  for (int64_t t = 0; t < tiles; t++)
    if (at[t] < tile[t].n) next = min_i64(next, max_i64(tile[t].at[at[t]].from / wide, kb));
  return next;
}

/* All rectangles of a block of queries, of which each tile's keys are given. */
static void list_block(Listing *l, const KeyRuns *tile, int64_t tiles, int64_t class, int64_t qb) {
  int64_t wide = l->p->tile[FLASH_KEY_BLOCK];
  uint32_t *at = ARENA_ARRAY(l->scratch, uint32_t, tiles + 1);
  vec_push(l->a, l->x->starts, l->x->rects.n / RECT_WORDS);
  for (int64_t kb = 0; (kb = next_block(l, tile, at, tiles, kb)) < l->p->key_blocks; kb++) {
    int64_t from = kb * wide, to = min_i64(from + wide, l->f->keys);
    Rects rects = {0};
    for (int64_t t = 0; t < tiles; t++)
      while (at[t] < tile[t].n && tile[t].at[at[t]].from < to) {
        KeyRun k = tile[t].at[at[t]];
        add_range(l, &rects, t, (KeyRun){max_i64(k.from, from), min_i64(k.to, to), k.kind});
        if (k.to > to) break;
        at[t]++;
      }
    put_rects(l, &rects, class, qb, kb);
  }
}

/* Lists of a class, as its first head has them; false: there are too many. */
static bool list_class(Listing *l, int64_t class) {
  const AttentionList *x = l->x;
  int64_t first = 0, tiles = ceil_div(l->f->queries, l->p->tile_queries),
          each = l->p->tile[FLASH_QUERY_BLOCK] / l->p->tile_queries;
  while (first < x->shape.count && lists_class(l->work.lists, first) != class) first++;
  Axis query = {l->f->query, l->f->queries}, key = {l->f->key, l->f->keys};
  BlockHead at[MASK_DIMS];
  lists_head_at(&x->shape, &x->heads, first, at);
  l->ask = mask_places_ask(l->scratch, l->k, l->f->mask, query, key, x->shape.heads, at);
  BlockMap map = lists_map(l->scratch, l->work.lists, class);
  for (int64_t qb = 0; qb < l->p->query_blocks && x->rects.n / RECT_WORDS <= l->most; qb++) {
    KeyRuns *tile = ARENA_ARRAY(l->scratch, KeyRuns, each + 1);
    int64_t n = min_i64(each, tiles - qb * each);
    for (int64_t t = 0; t < n; t++) tile[t] = tile_keys(l, &map, qb * each + t);
    list_block(l, tile, n, class, qb);
  }
  return x->rects.n / RECT_WORDS <= l->most;
}

/* They are those of the mask ([lists-c4]), whose dims are the kernel's ([attention-c7]). */
static void find_heads(const Fn *k, const Flash *f, AttentionList *x) {
  x->heads = lists_heads(k, f->mask, f->query, f->key);
  bool meet = x->shape.queries == f->queries && x->shape.keys == f->keys;
  must(meet && lists_heads_meet(&x->shape, &x->heads), "kernel %s: lists of another mask", k->name);
}

static void put_classes(Listing *l) {
  const ListsShape *s = &l->x->shape;
  for (int64_t h = 0; h < s->count && s->classes > 1; h++)
    vec_push(l->a, l->x->classes, (uint32_t)lists_class(l->work.lists, h));
}

/* Lists of all classes, and what follows from them. */
static void make(Listing *l) {
  AttentionList *x = l->x;
  Arena *work = arena_new();
  int64_t classes = x->shape.classes;
  l->work.queries = ARENA_ARRAY(work, double, classes * l->p->query_blocks + 1);
  l->work.keys = ARENA_ARRAY(work, double, classes * l->p->key_blocks + 1);
  for (int64_t c = 0; c < classes && !x->too_many; c++) {
    l->scratch = arena_new();
    x->too_many = !list_class(l, c);
    arena_free(l->scratch);
  }
  vec_push(l->a, x->starts, x->rects.n / RECT_WORDS);
  for (int k = 0; k < RECT_WORDS && x->rects.n < RECT_WORDS; k++) /* nothing is listed: there is */
    vec_push(l->a, x->rects, 0);                                  /* one that nobody reads */
  x->there = !x->too_many;
  if (x->there) put_classes(l), attention_cut(l->a, &l->work, l->p, x);
  arena_free(work);
}

AttentionList attention_list(Arena *a, const Module *m, const Fn *k, const Flash *f,
                             const FlashPlan *p) {
  AttentionList x = {0};
  const BlockLists *lists = lists_of(m, &k->ops.at[f->op]);
  if (!lists || f->mask == NO_VALUE) return x;
  x.shape = lists_shape(lists), find_heads(k, f, &x);
  Listing l = {.a = a, .k = k, .f = f, .p = p, .most = m->target.listed, .x = &x};
  l.work = (AttentionWork){.f = f, .lists = lists, .shape = &x.shape, .heads = &x.heads};
  make(&l);
  return x;
}
