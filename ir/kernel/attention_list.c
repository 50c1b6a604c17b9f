/* From lists of blocks to rectangles; see attention_list.h. A rectangle starts anywhere, but a
   register tile reads whole rows of keys: where it could read past the last key, the last keys are
   one mixed range. Partial blocks are evaluated STEP keys of a tile at a time. */
#include "attention_list.h"
#include "ir/mask/mask_range.h"
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

/* State of a column of blocks over the rows of a tile: MIXED may be PARTIAL, evaluated below. */
typedef enum ColumnState { COLUMN_ABSENT, COLUMN_FULL, COLUMN_MIXED, COLUMN_ASK } ColumnState;

static ColumnState column_state(const BlockMap *map, int64_t r0, int64_t r1, int64_t c) {
  bool seen[3] = {false};
  for (int64_t r = r0; r < r1; r++) seen[map->state[r * map->columns + c]] = true;
  if (seen[BLOCK_PARTIAL]) return COLUMN_ASK;
  if (seen[BLOCK_FULL]) return seen[BLOCK_ABSENT] ? COLUMN_MIXED : COLUMN_FULL;
  return COLUMN_ABSENT;
}

static void add_keys(Listing *listing, KeyRuns *out, int64_t from, int64_t to,
                     AttentionRunKind kind) {
  KeyRun *last = out->n ? &vec_last(*out) : NULL;
  if (last && last->to == from && last->kind == kind) last->to = to;
  else if (from < to) vec_push(listing->scratch, *out, ((KeyRun){from, to, kind}));
}

static void ask_keys(Listing *listing, KeyRuns *out, Range64 queries, int64_t from, int64_t to) {
  for (int64_t k = from; k < to;) {
    int64_t end = min_i64((k / STEP + 1) * STEP, to);
    BlockState s = mask_rectangle(listing->ask, queries.from, queries.to, k, end);
    if (s != BLOCK_ABSENT) add_keys(listing, out, k, end, s == BLOCK_FULL ? RUN_WHOLE : RUN_MIXED);
    k = end;
  }
}

/* Where a register tile could read past the keys, the last ones are one mixed range. */
static void hold_end(Listing *listing, KeyRuns *runs) {
  int64_t rows = listing->p->tile[FLASH_ROWS], last = listing->p->keys - rows;
  bool aligned = true;
  for (uint32_t i = 0; i < runs->n; i++) aligned &= runs->at[i].from % rows == 0;
  if (aligned || !runs->n || vec_last(*runs).to <= last) return;
  while (runs->n && vec_last(*runs).from >= last) runs->n--;
  if (runs->n) vec_last(*runs).to = min_i64(vec_last(*runs).to, last);
  vec_push(listing->scratch, *runs, ((KeyRun){last, listing->f->keys, RUN_MIXED}));
}

static KeyRuns tile_keys(Listing *listing, const BlockMap *map, int64_t tile) {
  KeyRuns runs = {0};
  int64_t n = listing->p->tile_queries;
  Range64 q = {tile * n, min_i64((tile + 1) * n, listing->f->queries)};
  int64_t r0 = q.from / map->high, r1 = (q.to - 1) / map->high + 1;
  for (int64_t c = 0; c < map->columns; c++) {
    int64_t from = c * map->wide, to = min_i64(from + map->wide, listing->f->keys);
    ColumnState s = column_state(map, r0, r1, c);
    if (s == COLUMN_ASK) ask_keys(listing, &runs, q, from, to);
    else if (s != COLUMN_ABSENT)
      add_keys(listing, &runs, from, to, s == COLUMN_FULL ? RUN_WHOLE : RUN_MIXED);
  }
  hold_end(listing, &runs);
  return runs;
}

/* ---- rectangles ---- */

typedef VEC(Rect) Rects;

static void add_rect(Listing *listing, Rects *out, int64_t tile, KeyRun keys) {
  if (keys.from >= keys.to) return;
  for (uint32_t i = 0; i < out->n; i++) {
    Rect *rect = &out->at[i];
    bool same =
        rect->keys.from == keys.from && rect->keys.to == keys.to && rect->keys.kind == keys.kind;
    if (!same || rect->tile1 != tile) continue;
    rect->tile1++;
    return;
  }
  vec_push(listing->scratch, *out, ((Rect){tile, tile + 1, keys}));
}

/* A range that is admitted wholly, in whole register tiles, and the rest of it. */
static void add_range(Listing *listing, Rects *out, int64_t tile, KeyRun run) {
  int64_t rows = listing->p->tile[FLASH_ROWS];
  if (run.kind != RUN_WHOLE) {
    add_rect(listing, out, tile, run);
    return;
  }
  int64_t whole = run.from + (run.to - run.from) / rows * rows;
  add_rect(listing, out, tile, (KeyRun){run.from, whole, RUN_WHOLE});
  add_rect(listing, out, tile, (KeyRun){whole, run.to, RUN_REST});
}

static void put_rects(Listing *listing, const Rects *rects, int64_t class, int64_t qb, int64_t kb) {
  for (uint32_t i = 0; i < rects->n; i++) {
    const Rect *rect = &rects->at[i];
    const uint32_t word[RECT_WORDS] = {(uint32_t)(rect->tile0 | rect->tile1 << 16),
                                       (uint32_t)rect->keys.from,
                                       (uint32_t)(rect->keys.to * 4 + rect->keys.kind)};
    for (int k = 0; k < RECT_WORDS; k++) vec_push(listing->a, listing->x->rects, word[k]);
    double work = (double)(rect->tile1 - rect->tile0) * (double)(rect->keys.to - rect->keys.from);
    listing->work.queries[class * listing->p->query_blocks + qb] += work;
    listing->work.keys[class * listing->p->key_blocks + kb] += work;
  }
}

/* The next block of keys of tiles that are at runs `at`; none: after the last one. */
static int64_t next_block(const Listing *listing, const KeyRuns *tile, const uint32_t *at,
                          int64_t tiles, int64_t kb) {
  int64_t wide = listing->p->tile[FLASH_KEY_BLOCK], next = listing->p->key_blocks;
  for (int64_t t = 0; t < tiles; t++)
    if (at[t] < tile[t].n) next = min_i64(next, max_i64(tile[t].at[at[t]].from / wide, kb));
  return next;
}

/* All rectangles of a block of queries, of which each tile's keys are given. */
static void list_block(Listing *listing, const KeyRuns *tile, int64_t tiles, int64_t class,
                       int64_t qb) {
  int64_t wide = listing->p->tile[FLASH_KEY_BLOCK];
  uint32_t *at = ARENA_ARRAY(listing->scratch, uint32_t, tiles + 1);
  vec_push(listing->a, listing->x->starts, listing->x->rects.n / RECT_WORDS);
  for (int64_t kb = 0; (kb = next_block(listing, tile, at, tiles, kb)) < listing->p->key_blocks;
       kb++) {
    int64_t from = kb * wide, to = min_i64(from + wide, listing->f->keys);
    Rects rects = {0};
    for (int64_t t = 0; t < tiles; t++)
      while (at[t] < tile[t].n && tile[t].at[at[t]].from < to) {
        KeyRun run = tile[t].at[at[t]];
        add_range(listing, &rects, t,
                  (KeyRun){max_i64(run.from, from), min_i64(run.to, to), run.kind});
        if (run.to > to) break;
        at[t]++;
      }
    put_rects(listing, &rects, class, qb, kb);
  }
}

/* Lists of a class, as its first head has them; false: there are too many. */
static bool list_class(Listing *listing, int64_t class) {
  const AttentionList *list = listing->x;
  int64_t first = 0, tiles = ceil_div(listing->f->queries, listing->p->tile_queries),
          each = listing->p->tile[FLASH_QUERY_BLOCK] / listing->p->tile_queries;
  while (first < list->shape.count && lists_class(listing->work.lists, first) != class) first++;
  Axis query = {listing->f->query, listing->f->queries}, key = {listing->f->key, listing->f->keys};
  BlockHead at[MASK_DIMS];
  lists_head_at(&list->shape, &list->heads, first, at);
  listing->ask = mask_places_ask(listing->scratch, listing->k, listing->f->mask, query, key,
                                 list->shape.heads, at);
  BlockMap map = lists_map(listing->scratch, listing->work.lists, class);
  for (int64_t qb = 0; qb < listing->p->query_blocks && list->rects.n / RECT_WORDS <= listing->most;
       qb++) {
    KeyRuns *tile = ARENA_ARRAY(listing->scratch, KeyRuns, each + 1);
    int64_t n = min_i64(each, tiles - qb * each);
    for (int64_t t = 0; t < n; t++) tile[t] = tile_keys(listing, &map, qb * each + t);
    list_block(listing, tile, n, class, qb);
  }
  return list->rects.n / RECT_WORDS <= listing->most;
}

/* They are those of the mask ([lists-c4]), whose dims are the kernel's ([attention-c7]). */
static void find_heads(const Fn *k, const Flash *flash, AttentionList *list) {
  list->heads = lists_heads(k, flash->mask, flash->query, flash->key);
  bool meet = list->shape.queries == flash->queries && list->shape.keys == flash->keys;
  must(meet && lists_heads_meet(&list->shape, &list->heads), "kernel %s: lists of another mask",
       k->name);
}

static void put_classes(Listing *listing) {
  const ListsShape *s = &listing->x->shape;
  for (int64_t h = 0; h < s->count && s->classes > 1; h++)
    vec_push(listing->a, listing->x->classes, (uint32_t)lists_class(listing->work.lists, h));
}

/* Lists of all classes, and what follows from them. */
static void make(Listing *listing) {
  AttentionList *list = listing->x;
  Arena *work = arena_new();
  int64_t classes = list->shape.classes;
  listing->work.queries = ARENA_ARRAY(work, double, classes * listing->p->query_blocks + 1);
  listing->work.keys = ARENA_ARRAY(work, double, classes * listing->p->key_blocks + 1);
  for (int64_t c = 0; c < classes && !list->too_many; c++) {
    listing->scratch = arena_new();
    list->too_many = !list_class(listing, c);
    arena_free(listing->scratch);
  }
  vec_push(listing->a, list->starts, list->rects.n / RECT_WORDS);
  for (int k = 0; k < RECT_WORDS && list->rects.n < RECT_WORDS;
       k++)                               /* nothing is listed: there is */
    vec_push(listing->a, list->rects, 0); /* one that is not read */
  list->present = !list->too_many;
  if (list->present)
    put_classes(listing), attention_cut(listing->a, &listing->work, listing->p, list);
  arena_free(work);
}

AttentionList attention_list(Arena *arena, const Module *m, const Fn *k, const Flash *flash,
                             const FlashPlan *plan) {
  AttentionList list = {0};
  const BlockLists *lists = lists_of(m, &k->ops.at[flash->op]);
  if (!lists || flash->mask == NO_VALUE) return list;
  list.shape = lists_shape(lists), find_heads(k, flash, &list);
  Listing listing = {
      .a = arena, .k = k, .f = flash, .p = plan, .most = m->target.listed, .x = &list};
  listing.work =
      (AttentionWork){.f = flash, .lists = lists, .shape = &list.shape, .heads = &list.heads};
  make(&listing);
  return list;
}
