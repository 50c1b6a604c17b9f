/* Packing blocks with known lifetimes into the fewest bytes (offline dynamic storage allocation).

   One placement takes the blocks in some order and puts each into a gap among the blocks placed so
   far that are live at the same time: the gap that leaves the least room (best fit) or the lowest
   one (first fit). Several orders are tried: by size, by size times lifetime, by lifetime, by
   birth. If none comes near the lower bound, the best order is changed a little at random (with a
   fixed seed), for a bounded number of rounds. Ties are broken by index: the result depends on
   nothing but the blocks. */
#include "memory.h"

typedef struct Pack {
  const Block *blocks;
  uint32_t n;
  uint32_t *order, *near; /* near: blocks alive at the same time, by place */
  int64_t *at;
} Pack;

static bool meet(const Block *a, const Block *b) {
  return a->born <= b->dies && b->born <= a->dies;
}

static void insert_by_place(Pack *pack, uint32_t count, uint32_t b) {
  uint32_t i = count;
  for (; i > 0 && pack->at[pack->near[i - 1]] > pack->at[b]; i--) pack->near[i] = pack->near[i - 1];
  pack->near[i] = b;
}

/* The gap for block b among p->near[0 .. count). */
static int64_t find_gap(const Pack *pack, uint32_t count, uint32_t b, bool best) {
  int64_t end = 0, found = -1, room = INT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const Block *block = &pack->blocks[pack->near[i]];
    int64_t gap = pack->at[pack->near[i]] - end;
    if (gap >= pack->blocks[b].bytes && gap < room && (best || found < 0)) found = end, room = gap;
    if (pack->at[pack->near[i]] + block->bytes > end) end = pack->at[pack->near[i]] + block->bytes;
  }
  return found >= 0 ? found : end;
}

static int64_t place_all(Pack *pack, bool best) {
  int64_t total = 0;
  for (uint32_t i = 0; i < pack->n; i++) {
    uint32_t b = pack->order[i], count = 0;
    for (uint32_t j = 0; j < i; j++)
      if (meet(&pack->blocks[b], &pack->blocks[pack->order[j]]))
        insert_by_place(pack, count++, pack->order[j]);
    pack->at[b] = find_gap(pack, count, b, best);
    int64_t end = pack->at[b] + pack->blocks[b].bytes;
    if (end > total) total = end;
  }
  return total;
}

static double weight(const Block *block, int rule) {
  double life = (double)(block->dies - block->born + 1);
  switch (rule) {
  case 0: return (double)block->bytes;
  case 1: return (double)block->bytes * life;
  case 2: return life * 1e15 + (double)block->bytes;
  default: return -(double)block->born;
  }
}

static void sort_order(Pack *pack, int rule) {
  for (uint32_t i = 0; i < pack->n; i++) {
    uint32_t j = i;
    double w = weight(&pack->blocks[i], rule);
    for (; j > 0 && weight(&pack->blocks[pack->order[j - 1]], rule) < w; j--)
      pack->order[j] = pack->order[j - 1];
    pack->order[j] = i;
  }
}

typedef struct Best {
  int64_t total;
  int64_t *at;
  uint32_t *order;
} Best;

static bool keep(const Pack *pack, Best *best, int64_t total) {
  if (total > best->total) return false;
  best->total = total;
  memcpy(best->at, pack->at, pack->n * sizeof *pack->at);
  memcpy(best->order, pack->order, pack->n * sizeof *pack->order);
  return true;
}

static uint32_t highest(const Pack *pack, const int64_t *at) {
  uint32_t h = 0;
  for (uint32_t b = 1; b < pack->n; b++)
    if (at[b] + pack->blocks[b].bytes > at[h] + pack->blocks[h].bytes) h = b;
  return h;
}

static void to_front(Pack *pack, uint32_t b) {
  uint32_t i = 0;
  while (pack->order[i] != b) i++;
  for (; i > 0; i--) pack->order[i] = pack->order[i - 1];
  pack->order[0] = b;
}

static uint32_t next_random(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % below);
}

static void move(Pack *pack, uint32_t from, uint32_t to) {
  uint32_t b = pack->order[from];
  for (; from > to; from--) pack->order[from] = pack->order[from - 1];
  for (; from < to; from++) pack->order[from] = pack->order[from + 1];
  pack->order[to] = b;
}

/* Changes the best order a little, repeatedly: the highest block moves to the front, or one block
   moves elsewhere. Orders that are no worse are kept, so that the search can leave a plateau.
   Stops well within the promised 3 %. */
static void improve(Pack *pack, Best *best, int64_t bound) {
  int64_t work = (int64_t)pack->n * pack->n, rounds = work ? 30000000 / work : 0;
  uint64_t state = 1;
  if (rounds > 4000) rounds = 4000;
  for (int64_t r = 0; r < rounds && best->total > bound + bound / 500; r++) {
    memcpy(pack->order, best->order, pack->n * sizeof *pack->order);
    if (r % 4 == 0) to_front(pack, highest(pack, best->at));
    else move(pack, next_random(&state, pack->n), next_random(&state, pack->n));
    if (r % 4 == 3) move(pack, next_random(&state, pack->n), next_random(&state, pack->n));
    keep(pack, best, place_all(pack, r % 3 == 0));
  }
}

int64_t memory_live(Arena *arena, const Block *blocks, uint32_t n) {
  int64_t last = 0, most = 0, sum = 0;
  for (uint32_t i = 0; i < n; i++) {
    must(blocks[i].born >= -1 && blocks[i].born <= blocks[i].dies,
         "a block is born at %lld and dies at %lld", (long long)blocks[i].born,
         (long long)blocks[i].dies);
    must(blocks[i].bytes >= 0, "a block of %lld bytes", (long long)blocks[i].bytes);
    if (blocks[i].dies > last) last = blocks[i].dies;
  }
  int64_t *change = ARENA_ARRAY(arena, int64_t, last + 4); /* born may be -1 */
  for (uint32_t i = 0; i < n; i++)
    change[blocks[i].born + 1] += blocks[i].bytes, change[blocks[i].dies + 2] -= blocks[i].bytes;
  for (int64_t t = 0; t <= last + 2; t++) {
    sum += change[t];
    if (sum > most) most = sum;
  }
  return most;
}

int64_t memory_pack(Arena *arena, Block *blocks, uint32_t n) {
  Pack pack = {blocks, n, ARENA_ARRAY(arena, uint32_t, n + 1), ARENA_ARRAY(arena, uint32_t, n + 1),
               ARENA_ARRAY(arena, int64_t, n + 1)};
  Best best = {INT64_MAX, ARENA_ARRAY(arena, int64_t, n + 1), ARENA_ARRAY(arena, uint32_t, n + 1)};
  for (uint32_t i = 0; i < n; i++) blocks[i].bytes = memory_round(blocks[i].bytes);
  int64_t bound = memory_live(arena, blocks, n);
  for (int rule = 0; rule < 4 && best.total > bound; rule++) {
    sort_order(&pack, rule);
    keep(&pack, &best, place_all(&pack, false));
    if (best.total > bound) keep(&pack, &best, place_all(&pack, true));
  }
  if (best.total > bound) improve(&pack, &best, bound);
  for (uint32_t i = 0; i < n; i++) blocks[i].at = best.at[i];
  return n ? best.total : 0;
}
