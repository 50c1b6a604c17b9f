/* Packing blocks with known lifetimes into the fewest bytes (offline dynamic storage allocation).

   One placement goes through the blocks in some order and puts each at the lowest gap, among the
   blocks placed so far that live at the same time, that leaves the least room (best fit) or simply
   is the lowest (first fit). Several orders are tried: by size, by size times lifetime, by
   lifetime, by birth. If none comes near the lower bound, the best order is
   changed a little at random (always the same way), over and over, for a bounded number of rounds.
   Ties are broken by index: the result depends on nothing but the blocks. */
#include "passes/memory.h"

typedef struct Pack {
  const Block *blocks;
  uint32_t n;
  uint32_t *order, *near; /* near: blocks alive at the same time, by place */
  int64_t *at;
} Pack;

static bool meet(const Block *a, const Block *b) {
  return a->born <= b->dies && b->born <= a->dies;
}

static void insert_by_place(Pack *p, uint32_t count, uint32_t b) {
  uint32_t i = count;
  for (; i > 0 && p->at[p->near[i - 1]] > p->at[b]; i--) p->near[i] = p->near[i - 1];
  p->near[i] = b;
}

/* The gap for block b among p->near[0 .. count). */
static int64_t find_gap(const Pack *p, uint32_t count, uint32_t b, bool best) {
  int64_t end = 0, found = -1, room = INT64_MAX;
  for (uint32_t i = 0; i < count; i++) {
    const Block *x = &p->blocks[p->near[i]];
    int64_t gap = p->at[p->near[i]] - end;
    if (gap >= p->blocks[b].bytes && gap < room && (best || found < 0)) found = end, room = gap;
    if (p->at[p->near[i]] + x->bytes > end) end = p->at[p->near[i]] + x->bytes;
  }
  return found >= 0 ? found : end;
}

static int64_t place_all(Pack *p, bool best) {
  int64_t total = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    uint32_t b = p->order[i], count = 0;
    for (uint32_t j = 0; j < i; j++)
      if (meet(&p->blocks[b], &p->blocks[p->order[j]])) insert_by_place(p, count++, p->order[j]);
    p->at[b] = find_gap(p, count, b, best);
    int64_t end = p->at[b] + p->blocks[b].bytes;
    if (end > total) total = end;
  }
  return total;
}

static double weight(const Block *b, int rule) {
  double life = (double)(b->dies - b->born + 1);
  switch (rule) {
  case 0: return (double)b->bytes;
  case 1: return (double)b->bytes * life;
  case 2: return life * 1e15 + (double)b->bytes;
  default: return -(double)b->born;
  }
}

static void sort_order(Pack *p, int rule) {
  for (uint32_t i = 0; i < p->n; i++) {
    uint32_t j = i;
    double w = weight(&p->blocks[i], rule);
    for (; j > 0 && weight(&p->blocks[p->order[j - 1]], rule) < w; j--)
      p->order[j] = p->order[j - 1];
    p->order[j] = i;
  }
}

typedef struct Best {
  int64_t total;
  int64_t *at;
  uint32_t *order;
} Best;

static bool keep(const Pack *p, Best *best, int64_t total) {
  if (total > best->total) return false;
  best->total = total;
  memcpy(best->at, p->at, p->n * sizeof *p->at);
  memcpy(best->order, p->order, p->n * sizeof *p->order);
  return true;
}

static uint32_t highest(const Pack *p, const int64_t *at) {
  uint32_t h = 0;
  for (uint32_t b = 1; b < p->n; b++)
    if (at[b] + p->blocks[b].bytes > at[h] + p->blocks[h].bytes) h = b;
  return h;
}

static void to_front(Pack *p, uint32_t b) {
  uint32_t i = 0;
  while (p->order[i] != b) i++;
  for (; i > 0; i--) p->order[i] = p->order[i - 1];
  p->order[0] = b;
}

static uint32_t next_random(uint64_t *state, uint32_t below) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % below);
}

static void move(Pack *p, uint32_t from, uint32_t to) {
  uint32_t b = p->order[from];
  for (; from > to; from--) p->order[from] = p->order[from - 1];
  for (; from < to; from++) p->order[from] = p->order[from + 1];
  p->order[to] = b;
}

/* Changes the best order a little, over and over: the highest block goes to the front, or one block
   goes elsewhere. Orders that are no worse are kept, so that the search can leave a plain. Stops
   well within the promised 3 %. */
static void improve(Pack *p, Best *best, int64_t bound) {
  int64_t work = (int64_t)p->n * p->n, rounds = work ? 30000000 / work : 0;
  uint64_t state = 1;
  if (rounds > 4000) rounds = 4000;
  for (int64_t r = 0; r < rounds && best->total > bound + bound / 500; r++) {
    memcpy(p->order, best->order, p->n * sizeof *p->order);
    if (r % 4 == 0) to_front(p, highest(p, best->at));
    else move(p, next_random(&state, p->n), next_random(&state, p->n));
    if (r % 4 == 3) move(p, next_random(&state, p->n), next_random(&state, p->n));
    keep(p, best, place_all(p, r % 3 == 0));
  }
}

int64_t memory_live(Arena *a, const Block *blocks, uint32_t n) {
  int64_t last = 0, most = 0, sum = 0;
  for (uint32_t i = 0; i < n; i++) {
    must(blocks[i].born >= -1 && blocks[i].born <= blocks[i].dies,
         "a block is born at %lld and dies at %lld", (long long)blocks[i].born,
         (long long)blocks[i].dies);
    must(blocks[i].bytes >= 0, "a block of %lld bytes", (long long)blocks[i].bytes);
    if (blocks[i].dies > last) last = blocks[i].dies;
  }
  int64_t *change = ARENA_ARRAY(a, int64_t, last + 4); /* born may be -1 */
  for (uint32_t i = 0; i < n; i++)
    change[blocks[i].born + 1] += blocks[i].bytes, change[blocks[i].dies + 2] -= blocks[i].bytes;
  for (int64_t t = 0; t <= last + 2; t++) {
    sum += change[t];
    if (sum > most) most = sum;
  }
  return most;
}

int64_t memory_pack(Arena *a, Block *blocks, uint32_t n) {
  Pack p = {blocks, n, ARENA_ARRAY(a, uint32_t, n + 1), ARENA_ARRAY(a, uint32_t, n + 1),
            ARENA_ARRAY(a, int64_t, n + 1)};
  Best best = {INT64_MAX, ARENA_ARRAY(a, int64_t, n + 1), ARENA_ARRAY(a, uint32_t, n + 1)};
  for (uint32_t i = 0; i < n; i++) blocks[i].bytes = memory_round(blocks[i].bytes);
  int64_t bound = memory_live(a, blocks, n);
  for (int rule = 0; rule < 4 && best.total > bound; rule++) {
    sort_order(&p, rule);
    keep(&p, &best, place_all(&p, false));
    if (best.total > bound) keep(&p, &best, place_all(&p, true));
  }
  if (best.total > bound) improve(&p, &best, bound);
  for (uint32_t i = 0; i < n; i++) blocks[i].at = best.at[i];
  return n ? best.total : 0;
}
