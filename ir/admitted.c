/* The share of the scores that a mask admits, for counting operations.

   A rectangle of queries and keys is asked over intervals (mask_range.h): admitted wholly, not at
   all, or cut in four and asked again, down to single scores. So a causal mask of N positions
   costs a few N questions, not N * N. Cuts stand at multiples of powers of two, whatever the
   length: there lie the borders of blocks, which would be asked score by score otherwise. Above
   FINEST positions a side the last rectangles count half. Where heads differ, the share is that of
   all of them; of more than HEADS, of the first.

   Counts are asked for after every pass, of masks that are the same: a module keeps the shares that
   it was asked for, by all that they follow from.

   What data or a rank's number decides (operands, scalars) counts as admitted: such a part is true
   where that admits more, and false behind `not`. Must not: depend on tiles, so that a model counts
   the same at each pass and for each target. */
#include "admitted.h"
#include "ir/support/num.h"
#include "lists.h"

enum { FINEST = 8192, HEADS = 64 };

typedef struct AdmittedShare {
  MaskQuestion ask;
  ValueId mask;
  int64_t fine;
} AdmittedShare;

/* A multiple of the largest power of two that [from, to) has one of inside; from is one or a
   multiple of a larger one. */
static int64_t middle(int64_t from, int64_t to) {
  int64_t step = 1;
  while (step < to - from - step) step *= 2;
  return to - from > 1 ? from + step : to;
}

/* Admitted scores of the rectangle: ranges 0 and 1 of the question. */
static double admitted(AdmittedShare *x) {
  MaskQuestion *a = &x->ask;
  int64_t q0 = a->from[0], q1 = a->to[0], k0 = a->from[1], k1 = a->to[1];
  if (q0 >= q1 || k0 >= k1) return 0;
  MaskFinding s = mask_find(a, x->mask, false);
  double area = (double)(q1 - q0) * (double)(k1 - k0), sum = 0;
  if (!s.some || s.all) return s.some ? area : 0;
  if (q1 - q0 <= x->fine && k1 - k0 <= x->fine) return area / 2;
  int64_t q = middle(q0, q1), k = middle(k0, k1);
  for (int i = 0; i < 4; i++) {
    a->from[0] = i / 2 ? q : q0, a->to[0] = i / 2 ? q1 : q;
    a->from[1] = i % 2 ? k : k0, a->to[1] = i % 2 ? k1 : k;
    sum += admitted(x);
  }
  return sum;
}

/* By what heads differ: what lists count, or dims alone. */
static ListsShape shape_of(const BlockLists *lists, const ListsHeads *of) {
  ListsShape s = {.heads = of->dims, .count = 1};
  if (lists) {
    ListsShape own = lists_shape(lists);
    if (lists_heads_meet(&own, of)) return own;
  }
  for (int i = 0; i < of->dims; i++) s.count *= s.head[i] = of->dim[i].size;
  return s;
}

static double share(const Fn *f, ValueId mask, Axis query, Axis key, const BlockLists *lists) {
  Arena *a = arena_new();
  AdmittedShare x = {.ask = mask_question(a, f), .mask = mask};
  ListsHeads of = lists_heads(f, mask, query.dim, key.dim);
  ListsShape s = shape_of(lists, &of);
  int64_t count = min_i64(s.count, HEADS);
  x.fine = 1 + max_i64(query.size, key.size) / (FINEST + 1);
  double sum = 0;
  for (int64_t h = 0; h < count; h++) {
    BlockHead at[MASK_DIMS];
    lists_head_at(&s, &of, s.ranks > 1 ? h * s.count / count : h, at);
    mask_range(&x.ask, query.dim, 0, query.size), mask_range(&x.ask, key.dim, 0, key.size);
    blocks_set_heads(&x.ask, s.heads, at);
    sum += admitted(&x);
  }
  arena_free(a);
  return sum / ((double)query.size * (double)key.size * (double)max_i64(count, 1));
}

/* ---- what was asked before ---- */

typedef struct KnownShare {
  const int64_t *key;
  uint32_t n;
  double share;
} KnownShare;

struct MaskShares {
  VEC(KnownShare) known;
};

MaskShares *mask_shares_new(Arena *a) { return ARENA_NEW(a, MaskShares); }

/* All that a share follows from, as words: lengths, then each value of the mask once, operands
   first. Names are interned. */
typedef struct Key {
  Arena *arena;
  const Fn *f;
  uint32_t *number, values; /* by ValueId, from 1 */
  VEC(int64_t) words;
} Key;

static void add(Key *k, int64_t word) { vec_push(k->arena, k->words, word); }
static void add_name(Key *k, Str name) { add(k, (int64_t)(intptr_t)name); }

static void add_axis(Key *k, Axis x) { add_name(k, x.dim), add(k, x.size); }

static void add_attr(Key *k, const Attr *x) {
  int64_t bits;
  memcpy(&bits, &x->f, sizeof bits);
  add(k, x->key), add(k, x->i), add(k, bits), add_name(k, x->s);
  for (int64_t i = 0; x->list && i < x->i; i++) add(k, x->list[i]);
}

static void add_group(Key *k, const Group *g) {
  add(k, g->nfrom), add(k, g->nto);
  for (int i = 0; i < g->nfrom; i++) add_name(k, g->from[i]);
  for (int i = 0; i < g->nto; i++) add_name(k, g->to[i]);
}

static void add_op(Key *k, const Op *o) {
  add(k, o->code), add(k, o->ngroups), add(k, o->attrs.n);
  for (uint32_t i = 0; i < o->nin; i++) add(k, k->number[o->in[i]]);
  for (int i = 0; i < o->ngroups; i++) add_group(k, &o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) add_attr(k, &o->attrs.at[i]);
}

/* Intervals know nothing of floats, so what they follow from is left out. */
static void add_value(Key *k, ValueId v) {
  if (k->number[v]) return;
  const Type *t = value_type(k->f, v);
  const Op *o = elem_class(t->elem) == CLASS_FLOAT ? NULL : value_def(k->f, v);
  for (uint32_t i = 0; o && i < o->nin; i++) add_value(k, o->in[i]);
  k->number[v] = ++k->values;
  add(k, t->elem), add(k, t->rank), add(k, o ? 1 + (int64_t)(v - o->out) : 0);
  for (int i = 0; i < t->rank; i++) add_axis(k, t->axis[i]);
  if (o) add_op(k, o);
}

static const KnownShare *find_known(const MaskShares *s, const Key *k) {
  for (uint32_t i = 0; i < s->known.n; i++) {
    const KnownShare *x = &s->known.at[i];
    if (x->n == k->words.n && !memcmp(x->key, k->words.at, sizeof *x->key * x->n)) return x;
  }
  return NULL;
}

double mask_share(const Module *m, const Fn *f, ValueId mask, Axis query, Axis key,
                  const BlockLists *lists) {
  Arena *a = arena_new();
  Key k = {.arena = a, .f = f, .number = ARENA_ARRAY(a, uint32_t, f->values.n + 1)};
  add_name(&k, lists ? lists->name : NULL); /* which says all that is in them */
  add_axis(&k, query), add_axis(&k, key), add_value(&k, mask);
  const KnownShare *known = find_known(m->shares, &k);
  double result = known ? known->share : share(f, mask, query, key, lists);
  if (!known) {
    int64_t *words = ARENA_ARRAY(m->arena, int64_t, k.words.n);
    memcpy(words, k.words.at, sizeof *words * k.words.n);
    vec_push(m->arena, m->shares->known, ((KnownShare){words, k.words.n, result}));
  }
  arena_free(a);
  return result;
}
