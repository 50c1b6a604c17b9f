/* Figures of a mask's blocks: scores of listed blocks, scores that are admitted, queries that see
   nothing. All are exact: a partial block is asked over intervals and cut in four until the answer
   is everything or nothing; a single score has an exact answer. */
#include "blocks.h"
#include "ir/support/num.h"
#include "mask_range.h"

typedef struct Count {
  MaskQuestion ask;
  ValueId mask;
  Str query, key;
  const BlockMap *map;
  int64_t queries, keys;
} Count;

static MaskFinding find(Count *x, ValueId v) { return mask_find(&x->ask, v, false); }

/* The part of the mask that decides inside of the rectangle: patterns are all or nothing there. */
static ValueId deciding(Count *x, ValueId v) {
  for (const Op *o; (o = value_def(x->ask.f, v)) && (o->code == OP_and || o->code == OP_or);) {
    MaskFinding a = find(x, o->in[0]), b = find(x, o->in[1]);
    bool first = o->code == OP_and ? b.all : !b.some, second = o->code == OP_and ? a.all : !a.some;
    if (!first && !second) break;
    v = first ? o->in[0] : o->in[1];
  }
  return v;
}

static double counted(Count *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1, ValueId v) {
  if (q0 >= q1 || k0 >= k1) return 0;
  mask_range(&x->ask, x->query, q0, q1), mask_range(&x->ask, x->key, k0, k1);
  MaskFinding s = find(x, v);
  bool single = q1 - q0 == 1 && k1 - k0 == 1;
  if (!s.some || s.all || single) return s.some ? (double)(q1 - q0) * (double)(k1 - k0) : 0;
  int64_t q = (q0 + q1 + 1) / 2, k = (k0 + k1 + 1) / 2;
  double sum = 0;
  for (int i = 0; i < 4; i++)
    sum += counted(x, i / 2 ? q : q0, i / 2 ? q1 : q, i % 2 ? k : k0, i % 2 ? k1 : k, v);
  return sum;
}

static double admitted(Count *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  mask_range(&x->ask, x->query, q0, q1), mask_range(&x->ask, x->key, k0, k1);
  return counted(x, q0, q1, k0, k1, deciding(x, x->mask));
}

/* Of query q, whose row of blocks has no full one. */
static bool sees(Count *x, int64_t q) {
  const BlockMap *m = x->map;
  const uint8_t *row = m->state + q / m->high * m->columns;
  bool any = false;
  for (int64_t c = 0; c < m->columns && !any; c++) {
    int64_t end = min_i64((c + 1) * m->wide, x->keys);
    any = row[c] != BLOCK_ABSENT && admitted(x, q, q + 1, c * m->wide, end) > 0;
  }
  return any;
}

static void add_row(Count *x, int64_t r, BlockCount *out) {
  const BlockMap *m = x->map;
  const uint8_t *row = m->state + r * m->columns;
  int64_t q0 = r * m->high, q1 = min_i64(q0 + m->high, x->queries);
  bool full = false;
  for (int64_t c = 0; c < m->columns; c++) {
    int64_t k0 = c * m->wide, k1 = min_i64(k0 + m->wide, x->keys);
    double area = (double)(q1 - q0) * (double)(k1 - k0);
    if (row[c] == BLOCK_ABSENT) continue;
    full |= row[c] == BLOCK_FULL;
    out->listed += area;
    out->admitted += row[c] == BLOCK_FULL ? area : admitted(x, q0, q1, k0, k1);
  }
  for (int64_t q = q0; q < q1 && !full; q++) out->blind += !sees(x, q);
}

BlockCount mask_count(const Fn *f, ValueId mask, Axis query, Axis key, const BlockMap *m, int heads,
                      const BlockHead *head) {
  Arena *a = arena_new();
  BlockCount out = {.partial = m->partial, .full = m->full};
  Count x = {.ask = mask_question(a, f), .mask = mask, .query = query.dim, .key = key.dim};
  x.map = m, x.queries = query.size, x.keys = key.size;
  for (int i = 0; i < heads; i++) mask_range(&x.ask, head[i].dim, head[i].at, head[i].at + 1);
  for (int64_t r = 0; r < m->rows; r++) add_row(&x, r, &out);
  arena_free(a);
  return out;
}
