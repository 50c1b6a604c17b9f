/* From the mask of attention to lists of tiles; see flash_list.h. States of tiles come from the
   module's lists of blocks, where a tile is some of these, otherwise from the mask itself
   (blocks.h), one map per head that the mask tells apart; each CTA's row of a map, or column
   where rows are keys, becomes runs, and equal lists are kept once. Lists of keys go through the
   heads of the group, one after the other, so dk and dv have one owner and one order. */
#include "flash_list.h"
#include "ir/mask/lists.h"
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
  int64_t apart;          /* states of a tile: rows of a map are rows / apart */
  int64_t blocks, groups; /* tiles of columns; heads of queries that a CTA has in turn */
  ListsHeads of;          /* all that the mask tells apart, and how many that makes */
  ListsShape s;
  BlockMap *map;         /* by head, of all ranks; classes of the module's lists share theirs */
  uint32_t *slot, slots; /* first run + 1 of lists by a hash of them */
} Listing;

/* ---- heads ---- */

/* Heads by dims; by numbers of a rank, if the module's lists have them ([lists-c4]). */
static void count_heads(Listing *listing) {
  listing->of = lists_heads(listing->k, listing->f->mask, listing->f->query, listing->f->key);
  if (listing->lists) {
    listing->s = lists_shape(listing->lists);
    must(lists_heads_meet(&listing->s, &listing->of), "kernel %s: lists of another mask",
         listing->k->name);
    return;
  }
  listing->s = (ListsShape){.heads = listing->of.dims, .count = 1, .ranks = 1};
  for (int i = 0; i < listing->of.dims; i++)
    listing->s.count *= listing->s.head[i] = listing->of.dim[i].size;
}

/* False: there are too many for lists to be worth it. */
static bool find_heads(Listing *listing) {
  count_heads(listing), listing->x->classes = 1;
  for (int i = 0; i < listing->of.dims; i++) {
    Str dim = listing->of.dim[i].dim;
    bool shared = flash_index(&listing->f->shared, 0, dim) >= 0;
    must(shared || flash_index(&listing->f->group, 0, dim) >= 0,
         "kernel %s: `%s` is no dim of its heads", listing->k->name, dim);
    if (listing->keys && !shared) continue;
    listing->x->head[listing->x->heads++] = listing->of.dim[i],
    listing->x->classes *= listing->of.dim[i].size;
  }
  listing->x->ranks = listing->s.ranks;
  for (int i = 0; i < listing->s.scalars; i++)
    listing->x->number[listing->x->numbers++] = (FlashNumber){
        listing->of.scalar[i], listing->s.head[listing->s.heads - listing->s.scalars + i],
        listing->s.step[i]};
  return listing->lists || listing->s.count <= LISTS_HEADS;
}

/* Which map heads of a class have, of head g of the group. */
static const BlockMap *map_of(const Listing *listing, int64_t rank, int64_t class, int64_t g) {
  FlashDims dims = {.n = listing->x->heads};
  memcpy(dims.axis, listing->x->head, sizeof listing->x->head[0] * (size_t)dims.n);
  int64_t at = 0;
  for (int i = 0; i < listing->of.dims; i++) {
    int64_t p = flash_index(&dims, class, listing->of.dim[i].dim);
    if (p < 0) p = flash_index(&listing->f->group, g, listing->of.dim[i].dim);
    at = at * listing->of.dim[i].size + p;
  }
  return &listing->map[at * listing->s.ranks + rank];
}

/* ---- tiles ---- */

/* A tile of these rows and columns of the module's blocks. */
static BlockState joined(const BlockMap *map, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  bool some = false, all = true;
  for (int64_t r = r0; r < min_i64(r1, map->rows); r++)
    for (int64_t c = c0; c < min_i64(c1, map->columns); c++) {
      BlockState s = (BlockState)map->state[r * map->columns + c];
      some |= s != BLOCK_ABSENT, all &= s == BLOCK_FULL;
    }
  return !some ? BLOCK_ABSENT : all ? BLOCK_FULL : BLOCK_PARTIAL;
}

/* From the module's lists, where tiles are whole blocks of them; false: they are not. */
static bool join_blocks(const Listing *listing, int64_t head, BlockMap *to) {
  if (!listing->lists) return false;
  BlockMap from = lists_map(listing->work, listing->lists, lists_class(listing->lists, head));
  int64_t high = to->high / from.high, wide = to->wide / from.wide;
  if (to->high % from.high || to->wide % from.wide) return false;
  for (int64_t r = 0; r < to->rows; r++)
    for (int64_t c = 0; c < to->columns; c++)
      to->state[r * to->columns + c] =
          joined(&from, r * high, (r + 1) * high, c * wide, (c + 1) * wide);
  return true;
}

/* The map of an earlier head with the same lists, or NULL. */
static const BlockMap *shared_map(const Listing *listing, int64_t head) {
  for (int64_t h = 0; listing->lists && h < head; h++)
    if (lists_class(listing->lists, h) == lists_class(listing->lists, head))
      return &listing->map[h];
  return NULL;
}

static void make_map(Listing *listing, int64_t head) {
  const Flash *flash = listing->f;
  const BlockMap *same = shared_map(listing, head);
  if (same) {
    listing->map[head] = *same;
    return;
  }
  BlockHead at[MASK_DIMS];
  int64_t rows = listing->rows / listing->apart;
  BlockMap map = {.high = listing->keys ? listing->columns : rows,
                  .wide = listing->keys ? rows : listing->columns};
  map.rows = ceil_div(flash->queries, map.high), map.columns = ceil_div(flash->keys, map.wide);
  map.state = ARENA_ARRAY(listing->work, uint8_t, map.rows * map.columns + 1);
  lists_head_at(&listing->s, &listing->of, head, at);
  if (!join_blocks(listing, head, &map))
    map = mask_places(listing->work, listing->k, flash->mask, (Axis){flash->query, flash->queries},
                      (Axis){flash->key, flash->keys}, map.high, map.wide, listing->s.heads, at);
  listing->map[head] = map;
}

/* Masks whose queries see keys wholly, then in part, then not at all are walked as well by
   intervals, unless there is much to pass over. */
static bool worth_it(const Listing *listing) {
  int64_t listed = 0, all = 0;
  for (int64_t i = 0; i < listing->s.count; i++) {
    const BlockMap *map = &listing->map[i];
    all += map->rows * map->columns;
    for (int64_t b = 0; b < map->rows * map->columns; b++) {
      listed += map->state[b] != BLOCK_ABSENT;
      if (b % map->columns && map->state[b] > map->state[b - 1]) return true;
    }
  }
  return listed * 100 < all * FEW;
}

/* ---- lists ---- */

static BlockState state_of(const Listing *listing, const BlockMap *map, int64_t row,
                           int64_t column) {
  if (row >= (listing->keys ? map->columns : map->rows)) return BLOCK_ABSENT;
  BlockState s =
      (BlockState)
          map->state[listing->keys ? column * map->columns + row : row * map->columns + column];
  bool whole = listing->keys || (column + 1) * listing->columns <= listing->f->keys;
  return s == BLOCK_FULL && !whole ? BLOCK_PARTIAL : s;
}

/* States of a tile, as bits of a unit's code; 0: it is not listed. */
static uint32_t states_of(const Listing *listing, const BlockMap *map, int64_t row,
                          int64_t column) {
  uint32_t states = 0;
  for (int64_t i = 0; i < listing->apart; i++) {
    BlockState s = state_of(listing, map, row * listing->apart + i, column);
    if (s != BLOCK_ABSENT) states |= 1u << (FLASH_UNIT_SOME + i);
    if (s == BLOCK_FULL) states |= 1u << (FLASH_UNIT_FULL + i);
  }
  return states;
}

static void note_states(const Listing *listing, uint32_t states) {
  FlashLists *lists = listing->x;
  for (int64_t i = 0; i < listing->apart; i++) {
    bool some = states >> (FLASH_UNIT_SOME + i) & 1, full = states >> (FLASH_UNIT_FULL + i) & 1;
    lists->full |= full, lists->partial |= !full, lists->apart |= !some;
  }
}

static void push(Listing *listing, FlashWords *w, uint32_t word) { vec_push(listing->a, *w, word); }

/* Appends the runs of a CTA; returns how many tiles they have. */
static int64_t put_runs(Listing *listing, int64_t rank, int64_t class, int64_t row,
                        uint32_t *first) {
  FlashLists *lists = listing->x;
  uint32_t now = 0;
  int64_t n = 0;
  *first = NONE;
  for (int64_t u = 0; u < listing->blocks * listing->groups; u++) {
    uint32_t states = states_of(listing, map_of(listing, rank, class, u / listing->blocks), row,
                                u % listing->blocks);
    if (states && states != now) {
      *(n ? &vec_last(lists->runs) : first) = (uint32_t)u * FLASH_UNIT + states;
      push(listing, &lists->runs, 0), push(listing, &lists->runs, NONE);
    }
    now = states;
    if (!states) continue;
    lists->runs.at[lists->runs.n - 2] = (uint32_t)(u + 1) * FLASH_UNIT, n++;
    note_states(listing, states);
  }
  return n;
}

/* The list that was appended last, from word `from` on, or an earlier equal one: its first run. */
static uint32_t kept_list(Listing *listing, uint32_t from) {
  FlashLists *lists = listing->x;
  uint32_t n = lists->runs.n - from;
  if (!n) return 0;
  uint64_t h = 14695981039346656037u;
  for (uint32_t i = 0; i < n; i++) h = (h ^ lists->runs.at[from + i]) * 1099511628211u;
  uint32_t *s = &listing->slot[(h ^ h >> 32) % listing->slots];
  while (*s) {
    uint32_t first = 2 * (*s - 1);
    if (first + n <= from && !memcmp(&lists->runs.at[first], &lists->runs.at[from], 4 * (size_t)n))
      return lists->runs.n = from, first / 2;
    s = s + 1 == listing->slot + listing->slots ? listing->slot : s + 1;
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
static bool make_rank(Listing *listing, int64_t rank, Place *place) {
  FlashLists *lists = listing->x;
  int64_t n = lists->classes * lists->tiles;
  for (int64_t i = 0; i < n; i++) {
    uint32_t from = lists->runs.n, first;
    int64_t length = put_runs(listing, rank, i / lists->tiles, i % lists->tiles, &first);
    lists->listed += length;
    place[i] = (Place){length, (uint32_t)i, kept_list(listing, from), first};
    if (lists->runs.n > 2 * listing->most) return false;
  }
  qsort(place, (size_t)n, sizeof *place, longer_first);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t word[] = {place[i].row, place[i].list, place[i].first, 0};
    for (int k = 0; k < 4; k++) push(listing, &lists->order, word[k]);
  }
  return true;
}

static bool make_lists(Listing *listing) {
  FlashLists *lists = listing->x;
  int64_t n = lists->classes * lists->tiles;
  Place *place = ARENA_ARRAY(listing->work, Place, n + 1);
  listing->slots = (uint32_t)(2 * n * lists->ranks + 1),
  listing->slot = ARENA_ARRAY(listing->work, uint32_t, listing->slots);
  for (int64_t r = 0; r < lists->ranks; r++)
    if (!make_rank(listing, r, place)) return false;
  if (!lists->runs.n) push(listing, &lists->runs, 0), push(listing, &lists->runs, NONE);
  return true;
}

FlashLists flash_lists(Arena *arena, const Module *m, const Fn *k, const Flash *flash,
                       const FlashGpuPlan *plan, FlashPhase phase) {
  FlashLists lists = {0};
  if (flash->mask == NO_VALUE || !flash_gpu_scores(phase)) return lists;
  Listing listing = {
      .a = arena, .work = arena_new(), .k = k, .f = flash, .x = &lists, .keys = phase == FLASH_DKV};
  listing.lists = lists_of(m, &k->ops.at[flash->op]), listing.most = m->target.listed;
  listing.rows = plan->tile[FLASH_GPU_ROWS], listing.columns = plan->tile[FLASH_GPU_COLUMNS];
  lists.tiles = ceil_div(listing.keys ? flash->keys : flash->queries, listing.rows);
  listing.blocks = ceil_div(listing.keys ? flash->queries : flash->keys, listing.columns);
  listing.groups = listing.keys ? flash->group.count : 1;
  listing.apart = plan->wgmma ? WGMMA_GROUPS : 1;
  bool heads = find_heads(&listing) && listing.blocks * listing.groups < FLASH_UNITS;
  int64_t states = lists.tiles * listing.apart * listing.blocks;
  lists.too_many = heads && listing.lists && listing.s.classes * states > MOST_STATES;
  if (heads && (listing.lists ? listing.s.classes : listing.s.count) * states <= MOST_STATES) {
    listing.map = ARENA_ARRAY(listing.work, BlockMap, listing.s.count);
    for (int64_t i = 0; i < listing.s.count; i++) make_map(&listing, i);
    lists.present = (listing.lists || worth_it(&listing)) && make_lists(&listing);
    lists.too_many = lists.runs.n > 2 * listing.most;
    lists.parts = mask_rest(k, flash->mask, lists.numbers, listing.of.scalar, lists.part);
  }
  arena_free(listing.work);
  if (!lists.present) lists = (FlashLists){.too_many = lists.too_many};
  return lists;
}
