/* Figures of a mask's blocks: scores of listed blocks, scores that are admitted, queries that see
   nothing. All are exact: a partial block is asked over intervals and cut in four until the answer
   is everything or nothing; a single score has an exact answer. A part that depends on the distance
   of query and key alone, such as a window, admits as much of all blocks at one distance: these are
   counted once, so that a million positions cost no more than the list of their blocks. */
#include "blocks.h"
#include "ir/support/num.h"
#include "mask_range.h"
#include "mask_shift.h"
#include <string.h>

typedef struct DistanceCount { /* of a rectangle, by the distance of its first query and key */
  ValueId v;
  int64_t distance, high, wide;
  double count;
} DistanceCount;

enum { DISTANCES = 64 };

typedef struct Count {
  MaskQuestion ask;
  MaskShifts shifts;
  DistanceCount at[DISTANCES];
  uint32_t n;
  int64_t blind; /* queries of the row of blocks at hand */
  ValueId mask;
  Str query, key;
  const BlockMap *map;
  int64_t queries, keys;
} Count;

static MaskFinding find(Count *count, ValueId v) { return mask_find(&count->ask, v, false); }

/* The part of the mask that decides inside the rectangle: within it, patterns admit all or
   nothing. */
static ValueId deciding(Count *count, ValueId v) {
  for (const Op *o; (o = value_def(count->ask.f, v)) && (o->code == OP_and || o->code == OP_or);) {
    MaskFinding a = find(count, o->in[0]), b = find(count, o->in[1]);
    bool first = o->code == OP_and ? b.all : !b.some, second = o->code == OP_and ? a.all : !a.some;
    if (!first && !second) break;
    v = first ? o->in[0] : o->in[1];
  }
  return v;
}

static double counted(Count *count, int64_t q0, int64_t q1, int64_t k0, int64_t k1, ValueId v) {
  if (q0 >= q1 || k0 >= k1) return 0;
  mask_range(&count->ask, count->query, q0, q1), mask_range(&count->ask, count->key, k0, k1);
  MaskFinding finding = find(count, v);
  bool single = q1 - q0 == 1 && k1 - k0 == 1;
  if (!finding.some || finding.all || single)
    return finding.some ? (double)(q1 - q0) * (double)(k1 - k0) : 0;
  int64_t q = (q0 + q1 + 1) / 2, k = (k0 + k1 + 1) / 2;
  double sum = 0;
  for (int i = 0; i < 4; i++)
    sum += counted(count, i / 2 ? q : q0, i / 2 ? q1 : q, i % 2 ? k : k0, i % 2 ? k1 : k, v);
  return sum;
}

/* ---- by distance ---- */

static double admitted(Count *count, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  mask_range(&count->ask, count->query, q0, q1), mask_range(&count->ask, count->key, k0, k1);
  ValueId v = deciding(count, count->mask);
  if (!mask_stays(&count->shifts, v)) return counted(count, q0, q1, k0, k1, v);
  DistanceCount one = {v, k0 - q0, q1 - q0, k1 - k0, 0};
  for (uint32_t i = 0; i < count->n && i < DISTANCES; i++) {
    const DistanceCount *known = &count->at[i];
    if (known->v == v && known->distance == one.distance && known->high == one.high &&
        known->wide == one.wide)
      return known->count;
  }
  one.count = counted(count, q0, q1, k0, k1, v);
  count->at[count->n++ % DISTANCES] = one;
  return one.count;
}

/* For query q, whose row of blocks has no full one. */
static bool sees(Count *count, int64_t q) {
  const BlockMap *map = count->map;
  const uint8_t *row = map->state + q / map->high * map->columns;
  bool any = false;
  for (int64_t c = 0; c < map->columns && !any; c++) {
    int64_t end = min_i64((c + 1) * map->wide, count->keys);
    any = row[c] != BLOCK_ABSENT && admitted(count, q, q + 1, c * map->wide, end) > 0;
  }
  return any;
}

/* Are the blocks of row r those of the row before it, one column on? Then it has as many blind
   queries, if the mask depends on distances alone. */
static bool goes_on(Count *count, int64_t r) {
  const BlockMap *map = count->map;
  int64_t n = map->columns;
  const uint8_t *row = map->state + r * n, *before = row - n;
  return r && map->high == map->wide && count->keys % map->wide == 0 &&
         (r + 1) * map->high <= count->queries && row[0] == BLOCK_ABSENT &&
         before[n - 1] == BLOCK_ABSENT && !memcmp(row + 1, before, (size_t)n - 1) &&
         mask_stays(&count->shifts, count->mask);
}

static void add_row(Count *count, int64_t r, BlockCount *out) {
  const BlockMap *map = count->map;
  const uint8_t *row = map->state + r * map->columns;
  int64_t q0 = r * map->high, q1 = min_i64(q0 + map->high, count->queries);
  bool full = false;
  for (int64_t c = 0; c < map->columns; c++) {
    int64_t k0 = c * map->wide, k1 = min_i64(k0 + map->wide, count->keys);
    double area = (double)(q1 - q0) * (double)(k1 - k0);
    if (row[c] == BLOCK_ABSENT) continue;
    full |= row[c] == BLOCK_FULL;
    out->listed += area;
    out->admitted += row[c] == BLOCK_FULL ? area : admitted(count, q0, q1, k0, k1);
  }
  if (!goes_on(count, r)) count->blind = 0;
  else q0 = q1;
  for (int64_t q = q0; q < q1 && !full; q++) count->blind += !sees(count, q);
  out->blind += count->blind;
}

BlockCount mask_count(const Fn *f, ValueId mask, Axis query, Axis key, const BlockMap *map,
                      int heads, const BlockHead *head) {
  Arena *arena = arena_new();
  BlockCount out = {.partial = map->partial, .full = map->full};
  Count count = {.ask = mask_question(arena, f), .mask = mask, .query = query.dim, .key = key.dim};
  count.shifts = mask_shifts(arena, f, query.dim, key.dim);
  count.map = map, count.queries = query.size, count.keys = key.size;
  for (int i = 0; i < heads; i++) mask_range(&count.ask, head[i].dim, head[i].at, head[i].at + 1);
  for (int64_t r = 0; r < map->rows; r++) add_row(&count, r, &out);
  arena_free(arena);
  return out;
}
