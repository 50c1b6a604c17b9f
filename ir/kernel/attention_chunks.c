/* Chunks of about equal work for kernels of attention that walk lists.

   The units of a phase stand in one row, head after head: blocks of queries of each head, blocks of
   keys of each head of keys, or, where a chunk owns all that a head of keys writes, these heads. A
   chunk is a range of units that ends where the work so far is nearest its share. So a head that
   lists much becomes several chunks, and heads that list little share one. Each chunk copies the
   keys and values of every head that it touches: a cut near a head's end is moved there.

   Where chunks differ still (heads that stay whole), the longest come first, so that all workers
   end together. A worker begins with its share, consecutive chunks, and then helps others with
   theirs (runtime/device/pool.c). So chunks by falling work are dealt in turn to the first and the
   second half of all, in each half again, and so on: for any number of workers that is a power of
   two, shares are about equal, and what is left at the end is short. Must not: depend on how many
   workers there are; reorder where chunks are about equal anyway. */
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
static int64_t class_of(const Flash *f, const BlockLists *l, const ListsShape *s,
                        const ListsHeads *of, int64_t head, int64_t rank) {
  int64_t n = 0;
  for (int i = 0; i < of->dims; i++) {
    int64_t at = flash_index(&f->shared, head / f->group.count, of->dim[i].dim);
    if (at < 0) at = flash_index(&f->group, head % f->group.count, of->dim[i].dim);
    n = n * of->dim[i].size + at;
  }
  return lists_class(l, n * s->ranks + rank);
}

/* ---- work ---- */

/* A block without any score still has rows to read and to write. */
static double unit_work(const AttentionWork *w, const FlashPlan *p, const Units *u, int64_t head,
                        int64_t unit, int64_t rank) {
  int64_t group = u->kind == UNIT_QUERIES ? 1 : w->f->group.count, n = 1;
  double sum = 0;
  if (u->kind == UNIT_HEAD) unit = 0, n = p->query_blocks;
  for (int64_t g = 0; g < group; g++) {
    int64_t class = class_of(w->f, w->lists, w->shape, w->heads, head * group + g, rank);
    const double *work = u->kind == UNIT_KEYS ? w->keys + class * p->key_blocks
                                              : w->queries + class * p->query_blocks;
    for (int64_t b = unit; b < unit + n; b++) sum += 1 + work[b];
  }
  return sum;
}

static void add_up(const AttentionWork *w, const FlashPlan *p, Units *u, int64_t rank) {
  u->sum[0] = 0;
  for (int64_t i = 0; i < u->heads * u->each; i++)
    u->sum[i + 1] = u->sum[i] + unit_work(w, p, u, i / u->each, i % u->each, rank);
}

/* ---- cuts ---- */

/* `near`: so much work, as a part of a chunk's, a cut is moved by to be a head's end. */
static void cut(Units *u, double near) {
  int64_t n = u->heads * u->each, at = 0;
  double share = u->sum[n] / (double)u->chunks;
  u->from[0] = 0, u->from[u->chunks] = (uint32_t)n;
  for (int64_t i = 1; i < u->chunks; i++) {
    double goal = share * (double)i;
    while (at < n && (u->sum[at] + u->sum[at + 1]) / 2 < goal) at++;
    int64_t end = (at + u->each / 2) / u->each * u->each;
    double away = u->sum[end] > goal ? u->sum[end] - goal : goal - u->sum[end];
    u->from[i] = (uint32_t)max_i64(u->from[i - 1], away <= near * share ? end : at);
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

static void put_chunks(const Units *u, OrderedChunk *place, uint32_t *out) {
  int64_t n = u->chunks;
  for (int64_t i = 0; i < n; i++)
    place[i] = (OrderedChunk){u->sum[u->from[i + 1]] - u->sum[u->from[i]], i};
  qsort(place, (size_t)n, sizeof *place, longer_first);
  bool equal = place[0].work <= 1.1 * place[n - 1].work;
  for (int64_t i = 0; i < n; i++) {
    int64_t chunk = equal ? i : place[i].chunk, at = equal ? i : dealt(i, n);
    out[2 * at] = u->from[chunk], out[2 * at + 1] = u->from[chunk + 1];
  }
}

/* ---- phases ---- */

static void cut_phase(Arena *a, const AttentionWork *w, const FlashPlan *p, AttentionList *x,
                      int phase, Units u) {
  int64_t n = u.heads * u.each, words = 2 * u.chunks * w->shape->ranks;
  Arena *work = arena_new();
  u.sum = ARENA_ARRAY(work, double, n + 1), u.from = ARENA_ARRAY(work, uint32_t, u.chunks + 1);
  OrderedChunk *place = ARENA_ARRAY(work, OrderedChunk, u.chunks);
  uint32_t *out = ARENA_ARRAY(a, uint32_t, words);
  for (int64_t r = 0; r < w->shape->ranks; r++) {
    add_up(w, p, &u, r);
    cut(&u, w->shape->classes > 1 ? 0.125 : 0.5);
    put_chunks(&u, place, out + r * 2 * u.chunks);
  }
  for (int64_t i = 0; i < words; i++) vec_push(a, x->chunks[phase], out[i]);
  x->units[phase] = u.each;
  arena_free(work);
}

void attention_cut(Arena *a, const AttentionWork *w, const FlashPlan *p, AttentionList *x) {
  int64_t shared = w->f->shared.count, all = shared * w->f->group.count;
  Units queries = {.kind = UNIT_QUERIES, .heads = all, .each = p->query_blocks},
        keys = {.kind = UNIT_KEYS, .heads = shared, .each = p->key_blocks},
        heads = {.kind = UNIT_HEAD, .heads = shared, .each = 1};
  Units *u[] = {!w->f->grad ? &queries : p->phases > 1 ? &keys : &heads, &queries};
  for (int i = 0; i < p->phases; i++) {
    u[i]->chunks = p->chunks[i];
    cut_phase(a, w, p, x, i, *u[i]);
  }
}

/* ---- heads that differ ---- */

static double heaviest_on(const Flash *f, const BlockLists *l, const ListsShape *s,
                          const ListsHeads *of, const double *listed, int64_t rank) {
  double most = 0, sum = 0, here;
  for (int64_t h = 0; h < f->shared.count; h++, sum += here) {
    here = 0;
    for (int64_t g = 0; g < f->group.count; g++)
      here += listed[class_of(f, l, s, of, h * f->group.count + g, rank)];
    if (here > most) most = here;
  }
  return sum > 0 ? most / sum : 0;
}

double attention_heaviest(const Module *m, const Fn *k, const Flash *f) {
  const BlockLists *l = lists_of(m, &k->ops.at[f->op]);
  if (!l || f->mask == NO_VALUE) return 0;
  ListsShape s = lists_shape(l);
  ListsHeads of = lists_heads(k, f->mask, f->query, f->key);
  if (!lists_heads_meet(&s, &of)) return 0;
  Arena *a = arena_new();
  const double *listed = lists_counts(a, l);
  double most = 0, here;
  for (int64_t r = 0; r < s.ranks; r++)
    if ((here = heaviest_on(f, l, &s, &of, listed, r)) > most) most = here;
  arena_free(a);
  return most;
}
