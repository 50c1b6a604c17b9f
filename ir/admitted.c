/* The share of the scores that a mask admits, for counting operations.

   A rectangle of queries and keys is asked over intervals (mask_range.h): admitted wholly, not at
   all, or cut in four and asked again, down to single scores. So a causal mask of N positions
   costs a few N questions, not N * N. Above FINEST positions a side the last rectangles count
   half. Where heads differ, the share is that of all of them; of more than HEADS, of the first.

   What data or a rank's number decides (operands, scalars) counts as admitted: such a part is true
   where that admits more, and false behind `not`. Must not: depend on tiles, so that a model counts
   the same at each pass and for each target. */
#include "admitted.h"
#include "ir/support/num.h"
#include "mask_range.h"

enum { FINEST = 8192, HEADS = 64 };

typedef struct Share {
  MaskQuestion ask;
  ValueId mask;
  int64_t fine;
} Share;

/* Admitted scores of the rectangle: ranges 0 and 1 of the question. */
static double admitted(Share *x) {
  MaskQuestion *a = &x->ask;
  int64_t q0 = a->from[0], q1 = a->to[0], k0 = a->from[1], k1 = a->to[1];
  if (q0 >= q1 || k0 >= k1) return 0;
  MaskFinding s = mask_find(a, x->mask, false);
  double area = (double)(q1 - q0) * (double)(k1 - k0), sum = 0;
  if (!s.some || s.all) return s.some ? area : 0;
  if (q1 - q0 <= x->fine && k1 - k0 <= x->fine) return area / 2;
  int64_t q = (q0 + q1) / 2, k = (k0 + k1) / 2;
  for (int i = 0; i < 4; i++) {
    a->from[0] = i / 2 ? q : q0, a->to[0] = i / 2 ? q1 : q;
    a->from[1] = i % 2 ? k : k0, a->to[1] = i % 2 ? k1 : k;
    sum += admitted(x);
  }
  return sum;
}

double mask_share(const Fn *f, ValueId mask, Axis query, Axis key) {
  Arena *a = arena_new();
  Share x = {.ask = mask_question(a, f), .mask = mask};
  Axis head[MASK_DIMS];
  int heads = mask_heads(f, mask, query.dim, key.dim, head);
  int64_t count = 1;
  for (int i = 0; i < heads; i++) count *= head[i].size;
  count = min_i64(count, HEADS);
  x.fine = 1 + max_i64(query.size, key.size) / (FINEST + 1);
  double sum = 0;
  for (int64_t h = 0; h < count; h++) {
    int64_t rest = h;
    mask_range(&x.ask, query.dim, 0, query.size), mask_range(&x.ask, key.dim, 0, key.size);
    for (int i = heads; i-- > 0; rest /= head[i].size)
      mask_range(&x.ask, head[i].dim, rest % head[i].size, rest % head[i].size + 1);
    sum += admitted(&x);
  }
  arena_free(a);
  return sum / ((double)query.size * (double)key.size * (double)max_i64(count, 1));
}
