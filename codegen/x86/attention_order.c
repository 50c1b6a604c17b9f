/* In which order chunks of attention are worked on where heads list unequally much: the longest
   first, so that all workers end together.

   A worker begins with its share, consecutive chunks, and then helps others with theirs
   (runtime/device/pool.c). So chunks by falling work are dealt in turn to the first and the second
   half of all, in each half again, and so on: for any number of workers that is a power of two,
   shares are about equal, and what is left at the end is short. The order is a constant beside the
   kernel's lists; each chunk does what it would in any other. Must not: depend on how many workers
   there are; reorder where chunks are about equal anyway. */
#include "attention.h"
#include "ir/support/num.h"
#include <stdlib.h>

typedef struct OrderedChunk {
  double work;
  uint32_t chunk;
} OrderedChunk;

static int longer_first(const void *a, const void *b) {
  const OrderedChunk *x = a, *y = b;
  if (x->work != y->work) return x->work < y->work ? 1 : -1;
  return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/* The lists of a head of the kernel on a rank. */
static int64_t class_of(const AttentionWork *w, int64_t head, int64_t rank) {
  const Flash *f = &w->a->f;
  int64_t n = 0;
  for (int i = 0; i < w->of->dims; i++) {
    Str dim = w->of->dim[i].dim;
    int64_t at = flash_index_in(&f->shared, head / f->group.count, dim);
    if (at < 0) at = flash_index_in(&f->group, head % f->group.count, dim);
    n = n * w->of->dim[i].size + at;
  }
  return lists_class(w->lists, n * w->s->ranks + rank);
}

static double chunk_work(const AttentionWork *w, const AttentionChunks *c, int64_t rank,
                         int64_t chunk) {
  int64_t range = chunk / c->parts, part = chunk % c->parts, heads = c->total * c->each;
  int64_t from = range * c->total / c->ranges * c->each,
          to = (range + 1) * c->total / c->ranges * c->each;
  int64_t b0 = part * c->blocks / c->parts, b1 = (part + 1) * c->blocks / c->parts;
  if (c->cuts) b0 = c->cuts[rank * (c->parts + 1) + part];
  if (c->cuts) b1 = c->cuts[rank * (c->parts + 1) + part + 1];
  double sum = 0;
  for (int64_t h = from; h < to && h < heads; h++) {
    const double *work = c->work + class_of(w, h, rank) * c->blocks;
    for (int64_t b = b0; b < b1; b++) sum += 1 + work[b];
  }
  return sum;
}

/* Where number i of n goes: evens to the first half, odds to the second, and so on within. */
static int64_t dealt(int64_t i, int64_t n) {
  if (n < 2) return 0;
  int64_t first = ceil_div(n, 2);
  return i % 2 ? first + dealt(i / 2, n - first) : dealt(i / 2, first);
}

LLVMValueRef attention_order(const AttentionWork *w, const AttentionChunks *c, const char *what) {
  Arena *arena = w->a->e->arena;
  int64_t n = c->ranges * c->parts;
  OrderedChunk *place = ARENA_ARRAY(arena, OrderedChunk, n + 1);
  uint32_t *order = ARENA_ARRAY(arena, uint32_t, w->s->ranks * n + 1);
  bool unequal = false;
  for (int64_t r = 0; r < w->s->ranks; r++) {
    for (int64_t i = 0; i < n; i++) place[i] = (OrderedChunk){chunk_work(w, c, r, i), (uint32_t)i};
    qsort(place, (size_t)n, sizeof *place, longer_first);
    unequal |= place[0].work > 1.1 * place[n - 1].work;
    for (int64_t i = 0; i < n; i++) order[r * n + dealt(i, n)] = place[i].chunk;
  }
  return unequal ? attention_constant(w->a, order, w->s->ranks * n, what) : NULL;
}
