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
  bool places; /* data takes nothing from a full block */
  BlockMap *map;
} Blocks;

static MaskFinding find(Blocks *blocks, int64_t q0, int64_t q1, int64_t k0, int64_t k1,
                        bool least) {
  mask_range(&blocks->ask, blocks->query.dim, q0, q1),
      mask_range(&blocks->ask, blocks->key.dim, k0, k1);
  return mask_find(&blocks->ask, blocks->mask, least);
}

/* Whether scores of a rectangle are admitted: some, all. Both are known once one that is and one
   that is not were seen; `least`: once one that is not was. */
static void look(Blocks *blocks, int64_t q0, int64_t q1, int64_t k0, int64_t k1, bool least,
                 MaskFinding *seen) {
  bool enough = !seen->all && (seen->some || least);
  if (q0 >= q1 || k0 >= k1 || enough) return;
  MaskFinding finding = find(blocks, q0, q1, k0, k1, least);
  bool single = q1 - q0 == 1 && k1 - k0 == 1;
  if (single) finding.all = finding.some;
  if (!finding.some || finding.all) {
    seen->some |= finding.some, seen->all &= finding.all;
    return;
  }
  int64_t q = (q0 + q1 + 1) / 2, k = (k0 + k1 + 1) / 2;
  for (int i = 0; i < 4; i++)
    look(blocks, i / 2 ? q : q0, i / 2 ? q1 : q, i % 2 ? k : k0, i % 2 ? k1 : k, least, seen);
}

static BlockState state_of(Blocks *blocks, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  MaskFinding most = {false, true}, least = {false, true};
  look(blocks, q0, q1, k0, k1, false, &most);
  if (!most.some) return BLOCK_ABSENT;
  if (most.all && !blocks->places) look(blocks, q0, q1, k0, k1, true, &least);
  return most.all && least.all ? BLOCK_FULL : BLOCK_PARTIAL;
}

static void put(BlockMap *map, int64_t r0, int64_t r1, int64_t c0, int64_t c1, BlockState s) {
  for (int64_t r = r0; r < r1 && s != BLOCK_ABSENT; r++)
    for (int64_t c = c0; c < c1; c++) map->state[r * map->columns + c] = (uint8_t)s;
  int64_t n = (r1 - r0) * (c1 - c0);
  map->full += s == BLOCK_FULL ? n : 0, map->partial += s == BLOCK_PARTIAL ? n : 0;
}

/* Blocks [r0, r1) x [c0, c1) */
static void fill(Blocks *blocks, int64_t r0, int64_t r1, int64_t c0, int64_t c1) {
  BlockMap *map = blocks->map;
  if (r0 >= r1 || c0 >= c1) return;
  int64_t q0 = r0 * map->high, q1 = min_i64(r1 * map->high, blocks->query.size),
          k0 = c0 * map->wide, k1 = min_i64(c1 * map->wide, blocks->key.size);
  if (r1 - r0 == 1 && c1 - c0 == 1) {
    put(map, r0, r1, c0, c1, state_of(blocks, q0, q1, k0, k1));
    return;
  }
  if (!find(blocks, q0, q1, k0, k1, false).some) return;
  if (find(blocks, q0, q1, k0, k1, !blocks->places).all) {
    put(map, r0, r1, c0, c1, BLOCK_FULL);
    return;
  }
  int64_t r = (r0 + r1 + 1) / 2, c = (c0 + c1 + 1) / 2;
  for (int i = 0; i < 4; i++)
    fill(blocks, i / 2 ? r : r0, i / 2 ? r1 : r, i % 2 ? c : c0, i % 2 ? c1 : c);
}

typedef struct BlockSize {
  int64_t high, wide;
} BlockSize;

static BlockMap blocks_of(Arena *arena, Blocks *blocks, const BlockSize *size) {
  BlockMap map = {.rows = ceil_div(blocks->query.size, size->high),
                  .columns = ceil_div(blocks->key.size, size->wide),
                  .high = size->high,
                  .wide = size->wide};
  map.state = ARENA_ARRAY(arena, uint8_t, map.rows * map.columns + 1);
  blocks->map = &map;
  fill(blocks, 0, map.rows, 0, map.columns);
  arena_free(blocks->ask.arena);
  return map;
}

void blocks_set_heads(MaskQuestion *x, int heads, const BlockHead *head) {
  for (int i = 0; i < heads; i++)
    if (head[i].dim) mask_range(x, head[i].dim, head[i].at, head[i].at + 1);
    else mask_scalar(x, head[i].scalar, head[i].at);
}

static Blocks blocks_about(const Fn *f, ValueId mask, Axis query, Axis key, int heads,
                           const BlockHead *head) {
  Blocks blocks = {.ask = mask_question(arena_new(), f), .mask = mask, .query = query, .key = key};
  blocks_set_heads(&blocks.ask, heads, head);
  return blocks;
}

BlockMap mask_blocks(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key, int64_t high,
                     int64_t wide, int heads, const BlockHead *head) {
  Blocks blocks = blocks_about(f, mask, query, key, heads, head);
  return blocks_of(arena, &blocks, &(BlockSize){high, wide});
}

BlockMap mask_places(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key, int64_t high,
                     int64_t wide, int heads, const BlockHead *head) {
  Blocks blocks = blocks_about(f, mask, query, key, heads, head);
  blocks.places = true;
  return blocks_of(arena, &blocks, &(BlockSize){high, wide});
}

int64_t mask_contradicts(const Fn *f, ValueId mask, Axis query, Axis key, const BlockMap *map,
                         int heads, const BlockHead *head, int64_t samples) {
  Blocks blocks = blocks_about(f, mask, query, key, heads, head);
  blocks.places = true;
  int64_t n = map->rows * map->columns, step = n <= samples ? 1 : (n / samples) | 1, wrong = -1;
  for (int64_t b = 0; b < n && wrong < 0; b += step) {
    int64_t q = b / map->columns * map->high, k = b % map->columns * map->wide;
    BlockState s = state_of(&blocks, q, min_i64(q + map->high, query.size), k,
                            min_i64(k + map->wide, key.size));
    if (s != (BlockState)map->state[b]) wrong = b;
  }
  arena_free(blocks.ask.arena);
  return wrong;
}

struct MaskPlaces {
  Blocks x;
};

MaskPlaces *mask_places_ask(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key,
                            int heads, const BlockHead *head) {
  MaskPlaces *p = ARENA_NEW(arena, MaskPlaces);
  p->x = (Blocks){.ask = mask_question(arena, f), .mask = mask, .query = query, .key = key};
  p->x.places = true;
  blocks_set_heads(&p->x.ask, heads, head);
  return p;
}

BlockState mask_rectangle(MaskPlaces *p, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
  return state_of(&p->x, q0, q1, k0, k1);
}
