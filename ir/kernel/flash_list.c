/* From the mask of attention to lists of tiles; see flash_list.h. States of tiles come from the
   module's lists of blocks, where a tile is some of these, otherwise from the mask itself
   (ir/blocks.h), one map per head that the mask tells apart; each CTA's row of a map, or column
   where rows are keys, becomes runs, and equal lists are kept once. Lists of keys go through the
   heads of the group, one after the other, so dk and dv have one owner and one order. */
#include "flash_list.h"
#include "ir/lists.h"
#include "ir/support/num.h"
#include <stdlib.h>

#define NONE UINT32_MAX

enum { FEW = 40 /* percent */ };
static const int64_t MOST_STATES = 1ll << 28;

typedef struct Listing {
  Arena *a, *work;
  const Fn *k;
  const Flash *f;
  const BlockLists *lists; /* the module's, NULL: none */
  FlashLists *x;
  int64_t most;           /* runs */
  bool keys;              /* rows are keys */
  int64_t rows, columns;  /* of a tile of scores */
  int64_t blocks, groups; /* tiles of columns; heads of queries that a CTA has in turn */
  ListsHeads of;          /* all that the mask tells apart, and how many that makes */
  ListsShape s;
  BlockMap *map;         /* by head, of all ranks; classes of the module's lists share theirs */
  uint32_t *slot, slots; /* first run + 1 of lists by a hash of them */
} Listing;

/* ---- heads ---- */

/* Heads by dims; by numbers of a rank, if the module's lists have them ([lists-c4]). */
static void count_heads(Listing *l) {
  l->of = lists_heads(l->k, l->f->mask, l->f->query, l->f->key);
  if (l->lists) {
    l->s = lists_shape(l->lists);
    must(lists_heads_meet(&l->s, &l->of), "kernel %s: lists of another mask", l->k->name);
    return;
  }
  l->s = (ListsShape){.heads = l->of.dims, .count = 1, .ranks = 1};
  for (int i = 0; i < l->of.dims; i++) l->s.count *= l->s.head[i] = l->of.dim[i].size;
}

/* False: they are so many that lists are not worth it. */
static bool find_heads(Listing *l) {
  count_heads(l), l->x->classes = 1;
  for (int i = 0; i < l->of.dims; i++) {
    Str dim = l->of.dim[i].dim;
    bool shared = flash_index(&l->f->shared, 0, dim) >= 0;
    must(shared || flash_index(&l->f->group, 0, dim) >= 0, "kernel %s: `%s` is no dim of its heads",
         l->k->name, dim);
    if (l->keys && !shared) continue;
    l->x->head[l->x->heads++] = l->of.dim[i], l->x->classes *= l->of.dim[i].size;
  }
  l->x->ranks = l->s.ranks;
  for (int i = 0; i < l->s.scalars; i++)
    l->x->number[l->x->numbers++] =
        (FlashNumber){l->of.scalar[i], l->s.head[l->s.heads - l->s.scalars + i], l->s.step[i]};
  return l->lists || l->s.count <= LISTS_HEADS;
}

/* Which map heads of a class have, of head g of the group. */
static const BlockMap *map_of(const Listing *l, int64_t rank, int64_t class, int64_t g) {
  FlashDims d = {.n = l->x->heads};
  memcpy(d.axis, l->x->head, sizeof l->x->head[0] * (size_t)d.n);
  int64_t at = 0;
  for (int i = 0; i < l->of.dims; i++) {
    int64_t p = flash_index(&d, class, l->of.dim[i].dim);
    if (p < 0) p = flash_index(&l->f->group, g, l->of.dim[i].dim);
    at = at * l->of.dim[i].size + p;
  }
  return &l->map[at * l->s.ranks + rank];
}

/* ---- tiles ---- */

/* A tile of these rows and columns of the module's blocks. */
static BlockState joined(const BlockMap *m, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  bool some = false, all = true;
  for (int64_t r = r0; r < min_i64(r1, m->rows); r++)
    for (int64_t c = c0; c < min_i64(c1, m->columns); c++) {
      BlockState s = (BlockState)m->state[r * m->columns + c];
      some |= s != BLOCK_ABSENT, all &= s == BLOCK_FULL;
    }
  return !some ? BLOCK_ABSENT : all ? BLOCK_FULL : BLOCK_PARTIAL;
}

/* From the module's lists, where tiles are whole blocks of them; false: they are not. */
static bool join_blocks(const Listing *l, int64_t head, BlockMap *to) {
  if (!l->lists) return false;
  BlockMap from = lists_map(l->work, l->lists, lists_class(l->lists, head));
  int64_t high = to->high / from.high, wide = to->wide / from.wide;
  if (to->high % from.high || to->wide % from.wide) return false;
  for (int64_t r = 0; r < to->rows; r++)
    for (int64_t c = 0; c < to->columns; c++)
      to->state[r * to->columns + c] =
          joined(&from, r * high, (r + 1) * high, c * wide, (c + 1) * wide);
  return true;
}

/* The map of an earlier head with the same lists, or NULL. */
static const BlockMap *shared_map(const Listing *l, int64_t head) {
  for (int64_t h = 0; l->lists && h < head; h++)
    if (lists_class(l->lists, h) == lists_class(l->lists, head)) return &l->map[h];
  return NULL;
}

static void make_map(Listing *l, int64_t head) {
  const Flash *f = l->f;
  const BlockMap *same = shared_map(l, head);
  if (same) {
    l->map[head] = *same;
    return;
  }
  BlockHead at[MASK_DIMS];
  BlockMap m = {.high = l->keys ? l->columns : l->rows, .wide = l->keys ? l->rows : l->columns};
  m.rows = ceil_div(f->queries, m.high), m.columns = ceil_div(f->keys, m.wide);
  m.state = ARENA_ARRAY(l->work, uint8_t, m.rows * m.columns + 1);
  lists_head_at(&l->s, &l->of, head, at);
  if (!join_blocks(l, head, &m))
    m = mask_places(l->work, l->k, f->mask, (Axis){f->query, f->queries}, (Axis){f->key, f->keys},
                    m.high, m.wide, l->s.heads, at);
  l->map[head] = m;
}

/* Masks whose queries see keys wholly, then in part, then not at all are walked as well by
   intervals, unless there is much to pass over. */
static bool worth_it(const Listing *l) {
  int64_t listed = 0, all = 0;
  for (int64_t i = 0; i < l->s.count; i++) {
    const BlockMap *m = &l->map[i];
    all += m->rows * m->columns;
    for (int64_t b = 0; b < m->rows * m->columns; b++) {
      listed += m->state[b] != BLOCK_ABSENT;
      if (b % m->columns && m->state[b] > m->state[b - 1]) return true;
    }
  }
  return listed * 100 < all * FEW;
}

/* ---- lists ---- */

static BlockState state_of(const Listing *l, const BlockMap *m, int64_t row, int64_t column) {
  BlockState s =
      (BlockState)m->state[l->keys ? column * m->columns + row : row * m->columns + column];
  bool whole = l->keys || (column + 1) * l->columns <= l->f->keys;
  return s == BLOCK_FULL && !whole ? BLOCK_PARTIAL : s;
}

static void push(Listing *l, FlashWords *w, uint32_t word) { vec_push(l->a, *w, word); }

/* The runs of a CTA behind all others; how many tiles they have. */
static int64_t put_runs(Listing *l, int64_t rank, int64_t class, int64_t row, uint32_t *first) {
  FlashLists *x = l->x;
  BlockState now = BLOCK_ABSENT;
  int64_t n = 0;
  *first = NONE;
  for (int64_t u = 0; u < l->blocks * l->groups; u++) {
    BlockState s = state_of(l, map_of(l, rank, class, u / l->blocks), row, u % l->blocks);
    if (s != now && s != BLOCK_ABSENT) {
      if (n) vec_last(x->runs) = (uint32_t)u;
      else *first = (uint32_t)u;
      push(l, &x->runs, 0), push(l, &x->runs, NONE);
    }
    now = s;
    if (s == BLOCK_ABSENT) continue;
    x->runs.at[x->runs.n - 2] = (uint32_t)(u + 1) * 2 + (s == BLOCK_FULL), n++;
    *(s == BLOCK_FULL ? &x->full : &x->partial) = true;
  }
  return n;
}

/* The list behind all others, from word `from` on, or an earlier one like it: its first run. */
static uint32_t kept_list(Listing *l, uint32_t from) {
  FlashLists *x = l->x;
  uint32_t n = x->runs.n - from;
  if (!n) return 0;
  uint64_t h = 14695981039346656037u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ x->runs.at[from + i]) * 1099511628211u;
  uint32_t *s = &l->slot[(h ^ h >> 32) % l->slots];
  while (*s) {
    uint32_t first = 2 * (*s - 1);
    if (first + n <= from && !memcmp(&x->runs.at[first], &x->runs.at[from], 4 * (size_t)n))
      return x->runs.n = from, first / 2;
    s = s + 1 == l->slot + l->slots ? l->slot : s + 1;
  }
  return *s = from / 2 + 1, from / 2;
}

typedef struct Place {
  int64_t length;
  uint32_t row, list, first;
} Place;

static int longer_first(const void *a, const void *b) {
  const Place *x = a, *y = b;
  if (x->length != y->length) return x->length < y->length ? 1 : -1;
  return x->row < y->row ? -1 : x->row > y->row;
}

/* Lists of all CTAs of a rank. */
static bool make_rank(Listing *l, int64_t rank, Place *place) {
  FlashLists *x = l->x;
  int64_t n = x->classes * x->tiles;
  for (int64_t i = 0; i < n; i++) {
    uint32_t from = x->runs.n, first;
    int64_t length = put_runs(l, rank, i / x->tiles, i % x->tiles, &first);
    x->listed += length;
    place[i] = (Place){length, (uint32_t)i, kept_list(l, from), first};
    if (x->runs.n > 2 * l->most) return false;
  }
  qsort(place, (size_t)n, sizeof *place, longer_first);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t word[] = {place[i].row, place[i].list, place[i].first, 0};
    for (int k = 0; k < 4; k++) push(l, &x->order, word[k]);
  }
  return true;
}

static bool make_lists(Listing *l) {
  FlashLists *x = l->x;
  int64_t n = x->classes * x->tiles;
  Place *place = ARENA_ARRAY(l->work, Place, n + 1);
  l->slots = (uint32_t)(2 * n * x->ranks + 1), l->slot = ARENA_ARRAY(l->work, uint32_t, l->slots);
  for (int64_t r = 0; r < x->ranks; r++)
    if (!make_rank(l, r, place)) return false;
  if (!x->runs.n) push(l, &x->runs, 0), push(l, &x->runs, NONE);
  return true;
}

FlashLists flash_lists(Arena *a, const Module *m, const Fn *k, const Flash *f,
                       const FlashGpuPlan *p, FlashPhase phase) {
  FlashLists x = {0};
  if (f->mask == NO_VALUE || phase == FLASH_ROWSUMS) return x;
  Listing l = {.a = a, .work = arena_new(), .k = k, .f = f, .x = &x, .keys = phase == FLASH_DKV};
  l.lists = lists_of(m, &k->ops.at[f->op]), l.most = m->target.listed;
  l.rows = p->tile[FLASH_GPU_ROWS], l.columns = p->tile[FLASH_GPU_COLUMNS];
  x.tiles = ceil_div(l.keys ? f->keys : f->queries, l.rows);
  l.blocks = ceil_div(l.keys ? f->queries : f->keys, l.columns);
  l.groups = l.keys ? f->group.count : 1;
  bool heads = find_heads(&l);
  x.too_many = heads && l.lists && l.s.classes * x.tiles * l.blocks > MOST_STATES;
  if (heads && (l.lists ? l.s.classes : l.s.count) * x.tiles * l.blocks <= MOST_STATES) {
    l.map = ARENA_ARRAY(l.work, BlockMap, l.s.count);
    for (int64_t i = 0; i < l.s.count; i++) make_map(&l, i);
    x.there = (l.lists || worth_it(&l)) && make_lists(&l);
    x.too_many = x.runs.n > 2 * l.most;
    x.parts = mask_rest(k, f->mask, x.numbers, l.of.scalar, x.part);
  }
  arena_free(l.work);
  if (!x.there) x = (FlashLists){.too_many = x.too_many};
  return x;
}
