/* From a mask to its blocks. Rectangles of blocks are asked over intervals (mask_range.h) and cut
   in four while the answer is `some`; a single block is asked down to its scores, until one that is
   admitted and one that is not are found. So the answer is exact, and costs about as many questions
   as there are listed blocks.

   What data decides (padding, documents) admits everything for the question whether a block is
   listed, and nothing for the question whether it is full. */
#include "blocks.h"
#include "ir/support/num.h"
#include "mask_range.h"

typedef struct Blocks {
  MaskQuestion ask;
  ValueId mask;
  Axis query, key;
  BlockMap *map;
} Blocks;

static MaskFinding find(Blocks *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool least) {
  mask_range(&x->ask, x->query.dim, q0, q1), mask_range(&x->ask, x->key.dim, k0, k1);
  return mask_find(&x->ask, x->mask, least);
}

/* Whether scores of a rectangle are admitted: some, all. Both are known once one that is and one
   that is not were seen; `least`: once one that is not was. */
static void look(Blocks *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool least,
                 MaskFinding *seen) {
  bool enough = !seen->all && (seen->some || least);
  if (q0 >= q1 || k0 >= k1 || enough) return;
  MaskFinding s = find(x, q0, q1, k0, k1, least);
  bool single = q1 - q0 == 1 && k1 - k0 == 1;
  if (single) s.all = s.some;
  if (!s.some || s.all) {
    seen->some |= s.some, seen->all &= s.all;
    return;
  }
  int64_t q = (q0 + q1 + 1) / 2, k = (k0 + k1 + 1) / 2;
  for (int i = 0; i < 4; i++)
    look(x, i / 2 ? q : q0, i / 2 ? q1 : q, i % 2 ? k : k0, i % 2 ? k1 : k, least, seen);
}

static BlockState state_of(Blocks *x, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  MaskFinding most = {false, true}, least = {false, true};
  look(x, q0, q1, k0, k1, false, &most);
  if (!most.some) return BLOCK_ABSENT;
  if (most.all) look(x, q0, q1, k0, k1, true, &least);
  return most.all && least.all ? BLOCK_FULL : BLOCK_PARTIAL;
}

static void put(BlockMap *m, int64_t r0, int64_t r1, int64_t c0, int64_t c1, BlockState s) {
  for (int64_t r = r0; r < r1 && s != BLOCK_ABSENT; r++)
    for (int64_t c = c0; c < c1; c++) m->state[r * m->columns + c] = (uint8_t)s;
  int64_t n = (r1 - r0) * (c1 - c0);
  m->full += s == BLOCK_FULL ? n : 0, m->partial += s == BLOCK_PARTIAL ? n : 0;
}

/* Blocks [r0, r1) x [c0, c1) */
static void fill(Blocks *x, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  BlockMap *m = x->map;
  if (r0 >= r1 || c0 >= c1) return;
  int64_t q0 = r0 * m->high, q1 = min_i64(r1 * m->high, x->query.size), k0 = c0 * m->wide,
          k1 = min_i64(c1 * m->wide, x->key.size);
  if (r1 - r0 == 1 && c1 - c0 == 1) {
    put(m, r0, r1, c0, c1, state_of(x, q0, q1, k0, k1));
    return;
  }
  if (!find(x, q0, q1, k0, k1, false).some) return;
  if (find(x, q0, q1, k0, k1, true).all) {
    put(m, r0, r1, c0, c1, BLOCK_FULL);
    return;
  }
  int64_t r = (r0 + r1 + 1) / 2, c = (c0 + c1 + 1) / 2;
  for (int i = 0; i < 4; i++)
    fill(x, i / 2 ? r : r0, i / 2 ? r1 : r, i % 2 ? c : c0, i % 2 ? c1 : c);
}

BlockMap mask_blocks(Arena *a, const Fn *f, ValueId mask, Axis query, Axis key, int64_t high,
                     int64_t wide, int heads, const BlockHead *head) {
  BlockMap m = {.rows = ceil_div(query.size, high),
                .columns = ceil_div(key.size, wide),
                .high = high,
                .wide = wide};
  m.state = ARENA_ARRAY(a, uint8_t, m.rows * m.columns + 1);
  Arena *work = arena_new();
  Blocks x = {.ask = mask_question(work, f), .mask = mask, .query = query, .key = key, .map = &m};
  for (int i = 0; i < heads; i++) mask_range(&x.ask, head[i].dim, head[i].at, head[i].at + 1);
  fill(&x, 0, m.rows, 0, m.columns);
  arena_free(work);
  return m;
}
