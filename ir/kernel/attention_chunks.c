/* Chunks of about equal work for kernels of attention that walk lists.

   The units of a phase form one row, head after head: blocks of queries of each head, blocks of
   keys of each head of keys, or, where a chunk owns everything that a head of keys writes, these
   heads. A chunk is a range of units that ends where the work so far is nearest its share. So a
   head with long lists becomes several chunks, and heads with short lists share one. Each chunk
   copies the keys and values of every head that it touches: a cut near a head's end is moved to
   that end.

   If chunks still differ (heads that stay whole), the longest come first, so that all workers end
   together. A worker begins with its share, consecutive chunks, and then takes chunks from others
   (runtime/device/pool.c). So chunks in order of falling work are dealt alternately to the first
   and the second half of all, in each half again, and so on: for any power of two of workers,
   shares are about equal, and the remaining chunks at the end are short. Must not: depend on the
   number of workers; reorder where chunks are about equal anyway. */
#include "attention_list.h"
#include "ir/support/num.h"
#include <stdlib.h>

typedef enum UnitKind { UNIT_QUERIES, UNIT_KEYS, UNIT_HEAD } UnitKind;

typedef struct Units {
  UnitKind kind;
  int64_t heads, each, chunks; /* each: of a head */
  double *sum;                 /* [heads * each + 1]: work of the units before */
  uint32_t *from;              /* [chunks + 1] */
} Units;

/* The lists of a head of queries on a rank. */
static int64_t class_of(const Flash *flash, const BlockLists *lists, const ListsShape *shape,
                        const ListsHeads *of, int64_t head, int64_t rank) {
  int64_t n = 0;
  for (int i = 0; i < of->dims; i++) {
    int64_t at = flash_index(&flash->shared, head / flash->group.count, of->dim[i].dim);
    if (at < 0) at = flash_index(&flash->group, head % flash->group.count, of->dim[i].dim);
    n = n * of->dim[i].size + at;
  }
  return lists_class(lists, n * shape->ranks + rank);
}

/* ---- work ---- */

/* A block without any score still has rows to read and to write. */
static double unit_work(const AttentionWork *attention_work, const FlashPlan *plan,
                        const Units *units, int64_t head, int64_t unit, int64_t rank) {
  int64_t group = units->kind == UNIT_QUERIES ? 1 : attention_work->f->group.count, n = 1;
  double sum = 0;
  if (units->kind == UNIT_HEAD) unit = 0, n = plan->query_blocks;
  for (int64_t g = 0; g < group; g++) {
    int64_t class = class_of(attention_work->f, attention_work->lists, attention_work->shape,
                             attention_work->heads, head * group + g, rank);
    const double *work = units->kind == UNIT_KEYS
                             ? attention_work->keys + class * plan->key_blocks
                             : attention_work->queries + class * plan->query_blocks;
    for (int64_t b = unit; b < unit + n; b++) sum += 1 + work[b];
  }
  return sum;
}

static void add_up(const AttentionWork *attention_work, const FlashPlan *plan, Units *units,
                   int64_t rank) {
  units->sum[0] = 0;
  for (int64_t i = 0; i < units->heads * units->each; i++)
    units->sum[i + 1] = units->sum[i] + unit_work(attention_work, plan, units, i / units->each,
                                                  i % units->each, rank);
}

/* ---- cuts ---- */

/* `near`: the share of a chunk's work by which a cut may be moved to a head's end. */
static void cut(Units *units, double near) {
  int64_t n = units->heads * units->each, at = 0;
  double share = units->sum[n] / (double)units->chunks;
  units->from[0] = 0, units->from[units->chunks] = (uint32_t)n;
  for (int64_t i = 1; i < units->chunks; i++) {
    double goal = share * (double)i;
    while (at < n && (units->sum[at] + units->sum[at + 1]) / 2 < goal) at++;
    int64_t end = (at + units->each / 2) / units->each * units->each;
    double away = units->sum[end] > goal ? units->sum[end] - goal : goal - units->sum[end];
    units->from[i] = (uint32_t)max_i64(units->from[i - 1], away <= near * share ? end : at);
  }
}

/* ---- the order ---- */

typedef struct OrderedChunk {
  double work;
  int64_t chunk;
} OrderedChunk;

static int longer_first(const void *a, const void *b) {
  const OrderedChunk *x = a, *y = b;
  if (x->work != y->work) return x->work < y->work ? 1 : -1;
  return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* Where number i of n goes: evens to the first half, odds to the second, and so on within. */
static int64_t dealt(int64_t i, int64_t n) {
  if (n < 2) return 0;
  int64_t first = ceil_div(n, 2);
  return i % 2 ? first + dealt(i / 2, n - first) : dealt(i / 2, first);
}

static void put_chunks(const Units *units, OrderedChunk *place, uint32_t *out) {
  int64_t n = units->chunks;
  for (int64_t i = 0; i < n; i++)
    place[i] = (OrderedChunk){units->sum[units->from[i + 1]] - units->sum[units->from[i]], i};
  qsort(place, (size_t)n, sizeof *place, longer_first);
  bool equal = place[0].work <= 1.1 * place[n - 1].work;
  for (int64_t i = 0; i < n; i++) {
    int64_t chunk = equal ? i : place[i].chunk, at = equal ? i : dealt(i, n);
    out[2 * at] = units->from[chunk], out[2 * at + 1] = units->from[chunk + 1];
  }
}

/* ---- phases ---- */

static void cut_phase(Arena *arena, const AttentionWork *attention_work, const FlashPlan *plan,
                      AttentionList *list, int phase, Units units) {
  int64_t n = units.heads * units.each, words = 2 * units.chunks * attention_work->shape->ranks;
  Arena *work = arena_new();
  units.sum = ARENA_ARRAY(work, double, n + 1),
  units.from = ARENA_ARRAY(work, uint32_t, units.chunks + 1);
  OrderedChunk *place = ARENA_ARRAY(work, OrderedChunk, units.chunks);
  uint32_t *out = ARENA_ARRAY(arena, uint32_t, words);
  for (int64_t r = 0; r < attention_work->shape->ranks; r++) {
    add_up(attention_work, plan, &units, r);
    cut(&units, attention_work->shape->classes > 1 ? 0.125 : 0.5);
    put_chunks(&units, place, out + r * 2 * units.chunks);
  }
  for (int64_t i = 0; i < words; i++) vec_push(arena, list->chunks[phase], out[i]);
  list->units[phase] = units.each;
  arena_free(work);
}

void attention_cut(Arena *arena, const AttentionWork *attention_work, const FlashPlan *plan,
                   AttentionList *list) {
  int64_t shared = attention_work->f->shared.count, all = shared * attention_work->f->group.count;
  Units queries = {.kind = UNIT_QUERIES, .heads = all, .each = plan->query_blocks},
        keys = {.kind = UNIT_KEYS, .heads = shared, .each = plan->key_blocks},
        heads = {.kind = UNIT_HEAD, .heads = shared, .each = 1};
  Units *units[] = {!attention_work->f->grad ? &queries
                    : plan->phases > 1       ? &keys
                                             : &heads,
                    &queries};
  for (int i = 0; i < plan->phases; i++) {
    units[i]->chunks = plan->chunks[i];
    cut_phase(arena, attention_work, plan, list, i, *units[i]);
  }
}

/* ---- heads that differ ---- */

static double heaviest_on(const Flash *flash, const BlockLists *lists, const ListsShape *shape,
                          const ListsHeads *of, const double *listed, int64_t rank) {
  double most = 0, sum = 0, here;
  for (int64_t h = 0; h < flash->shared.count; h++, sum += here) {
    here = 0;
    for (int64_t g = 0; g < flash->group.count; g++)
      here += listed[class_of(flash, lists, shape, of, h * flash->group.count + g, rank)];
    if (here > most) most = here;
  }
  return sum > 0 ? most / sum : 0;
}

double attention_heaviest(const Module *m, const Fn *k, const Flash *flash) {
  const BlockLists *lists = lists_of(m, &k->ops.at[flash->op]);
  if (!lists || flash->mask == NO_VALUE) return 0;
  ListsShape shape = lists_shape(lists);
  ListsHeads of = lists_heads(k, flash->mask, flash->query, flash->key);
  if (!lists_heads_meet(&shape, &of)) return 0;
  Arena *arena = arena_new();
  const double *listed = lists_counts(arena, lists);
  double most = 0, here;
  for (int64_t r = 0; r < shape.ranks; r++)
    if ((here = heaviest_on(flash, lists, &shape, &of, listed, r)) > most) most = here;
  arena_free(arena);
  return most;
}
