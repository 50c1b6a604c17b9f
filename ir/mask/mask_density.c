/* The share of the scores that a mask admits, for counting operations.

   A rectangle of queries and keys is evaluated over intervals (mask_range.h): it is admitted
   wholly, not at all, or cut in four and evaluated again, down to single scores. So a causal mask
   of N positions costs a few N evaluations, not N * N. Cuts are at multiples of powers of two,
   whatever the length, because the borders of blocks are at such positions and would otherwise be
   evaluated score by score. Above FINEST positions a side the last rectangles count half. Where
   a mask depends on the distance of query and key alone, it is asked once for all rectangles of a
   size at a distance, so a causal one of N positions costs a few log N evaluations; rectangles that
   are longer than wide are cut in two along their length, since few of nearly square ones are
   admitted in part. Where heads differ, the share is the average of all of them; with more than
   HEADS, of some. Where ranks differ, each has a share of its own; of more than RANKS_ASKED, some
   are asked, the first and the last among them.

   Counts are computed after every pass, for masks that are the same: a module keeps the shares that
   have been computed, by all facts on which they depend.

   Scores that data decides (operands, other scalars) count as admitted: such a part is
   true where this admits more, and false under `not`. Must not: depend on tiles, so that a model
   counts the same at each pass and for each target. */
#include "mask_density.h"
#include "ir/support/num.h"
#include "lists.h"
#include "mask_shift.h"
#include "rank_numbers.h"

enum { FINEST = 8192, HEADS = 64, DISTANCES = 64 };

typedef struct DistanceShare { /* of a rectangle that is admitted in part */
  int64_t high, wide, distance[MASK_DISTANCES];
  int n;
  double admitted;
} DistanceShare;

typedef struct AdmittedShare {
  MaskQuestion ask;
  MaskShifts shifts;
  ValueId mask;
  int64_t fine;
  DistanceShare at[DISTANCES]; /* those that were asked last */
  uint32_t n;
} AdmittedShare;

/* A multiple of the largest power of two that [from, to) has one of inside; from is one or a
   multiple of a larger one. */
static int64_t middle(int64_t from, int64_t to) {
  int64_t step = 1;
  while (step < to - from - step) step *= 2;
  return to - from > 1 ? from + step : to;
}

static double admitted(AdmittedShare *share);

/* .. of one that is cut in four or, along its length, in two. */
static double admitted_of_parts(AdmittedShare *share, int64_t q0, int64_t q1, int64_t k0,
                                int64_t k1, bool along) {
  MaskQuestion *question = &share->ask;
  int64_t high = q1 - q0, wide = k1 - k0;
  int64_t q = along && wide >= 2 * high ? q1 : middle(q0, q1),
          k = along && high >= 2 * wide ? k1 : middle(k0, k1);
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    question->from[0] = i / 2 ? q : q0, question->to[0] = i / 2 ? q1 : q;
    question->from[1] = i % 2 ? k : k0, question->to[1] = i % 2 ? k1 : k;
    sum += admitted(share);
  }
  return sum;
}

static bool is_alike(const DistanceShare *a, const DistanceShare *b) {
  return a->high == b->high && a->wide == b->wide && a->n == b->n &&
         !memcmp(a->distance, b->distance, sizeof *a->distance * (size_t)a->n);
}

static double admitted_in_part(AdmittedShare *share, int64_t q0, int64_t q1, int64_t k0,
                               int64_t k1) {
  DistanceShare one = {.high = q1 - q0, .wide = k1 - k0};
  one.n = mask_distances(&share->shifts, &share->ask, share->mask, one.distance);
  for (uint32_t i = 0; one.n >= 0 && i < share->n && i < DISTANCES; i++)
    if (is_alike(&share->at[i], &one)) return share->at[i].admitted;
  one.admitted = admitted_of_parts(share, q0, q1, k0, k1, one.n >= 0);
  if (one.n >= 0) share->at[share->n++ % DISTANCES] = one;
  return one.admitted;
}

/* Admitted scores of the rectangle: ranges 0 and 1 of the question. */
static double admitted(AdmittedShare *share) {
  MaskQuestion *question = &share->ask;
  int64_t q0 = question->from[0], q1 = question->to[0], k0 = question->from[1],
          k1 = question->to[1];
  if (q0 >= q1 || k0 >= k1) return 0;
  MaskFinding finding = mask_find(question, share->mask, false);
  double area = (double)(q1 - q0) * (double)(k1 - k0);
  if (!finding.some || finding.all) return finding.some ? area : 0;
  if (q1 - q0 <= share->fine && k1 - k0 <= share->fine) return area / 2;
  return admitted_in_part(share, q0, q1, k0, k1);
}

/* By what heads differ: what lists count, or dims alone. */
static ListsShape shape_of(const BlockLists *lists, const ListsHeads *of) {
  ListsShape shape = {.heads = of->dims, .count = 1};
  if (lists) {
    ListsShape own = lists_shape(lists);
    if (lists_heads_meet(&own, of)) return own;
  }
  for (int i = 0; i < of->dims; i++) shape.count *= shape.head[i] = of->dim[i].size;
  return shape;
}

/* By what ranks differ: numbers that lists count as heads, or those that were found. */
typedef struct AskedRanks {
  const RankNumbers *numbers; /* NULL: all ranks are alike, or lists say how they differ */
  ListsHeads of;
  ListsShape shape;
} AskedRanks;

static void set_rank(AdmittedShare *share, const AskedRanks *asked, int64_t rank, int64_t call) {
  int n = asked->of.scalars;
  const RankNumbers *numbers = asked->numbers;
  for (int i = 0; numbers && i < n; i++)
    mask_scalar(&share->ask, asked->of.scalar[i],
                numbers->value[(rank * numbers->calls + call) * n + i]);
}

/* The mean of the heads of rank r of `ranks`, in one call. */
static double of_call(AdmittedShare *share, const AskedRanks *asked, Axis query, Axis key,
                      int64_t r, int64_t ranks, int64_t call) {
  int64_t own = max_i64(asked->shape.ranks, 1), all = asked->shape.count / own,
          heads = min_i64(all, max_i64(1, HEADS / ranks));
  double sum = 0;
  set_rank(share, asked, r, call);
  for (int64_t h = 0; h < heads; h++) {
    BlockHead at[MASK_DIMS];
    int64_t rank = own > 1 && ranks > 1 ? r * (own - 1) / (ranks - 1) : 0;
    lists_head_at(&asked->shape, &asked->of, h * all / heads * own + rank, at);
    mask_range(&share->ask, query.dim, 0, query.size),
        mask_range(&share->ask, key.dim, 0, key.size);
    blocks_set_heads(&share->ask, asked->shape.heads, at);
    sum += admitted(share);
  }
  return sum / ((double)query.size * (double)key.size * (double)max_i64(heads, 1));
}

/* .. in all calls. */
static double of_rank(AdmittedShare *share, const AskedRanks *asked, Axis query, Axis key,
                      int64_t r, int64_t ranks) {
  int64_t calls = asked->numbers ? asked->numbers->calls : 1;
  double sum = 0;
  for (int64_t call = 0; call < calls; call++)
    sum += of_call(share, asked, query, key, r, ranks, call);
  return sum / (double)calls;
}

static ScoreShares shares(const Fn *f, ValueId mask, Axis query, Axis key, const BlockLists *lists,
                          const RankNumbers *numbers) {
  Arena *arena = arena_new();
  AdmittedShare share = {.ask = mask_question(arena, f), .mask = mask};
  AskedRanks asked = {.numbers = numbers, .of = lists_heads(f, mask, query.dim, key.dim)};
  asked.shape = shape_of(numbers ? NULL : lists, &asked.of);
  share.fine = 1 + max_i64(query.size, key.size) / (FINEST + 1);
  share.shifts = mask_shifts(arena, f, query.dim, key.dim);
  int64_t ranks = numbers ? numbers->ranks : min_i64(max_i64(asked.shape.ranks, 1), RANKS_ASKED);
  ScoreShares found = {.least = 1};
  for (int64_t r = 0; r < ranks; r++) {
    double one = of_rank(&share, &asked, query, key, r, ranks);
    found.least = one < found.least ? one : found.least;
    found.most = one > found.most ? one : found.most;
    found.mean += one / (double)ranks;
  }
  found.ranks = ranks;
  arena_free(arena);
  return found;
}

/* ---- what was asked before ---- */

typedef struct KnownShare {
  const int64_t *key;
  uint32_t n;
  ScoreShares shares;
} KnownShare;

/* All that a share follows from, as words: lengths, then each value of the mask once, operands
   first. Names are interned. */
typedef struct Key {
  Arena *arena;
  const Fn *f;
  uint32_t *number, values; /* by ValueId, from 1 */
  VEC(int64_t) words;
} Key;

static void add(Key *key, int64_t word) { vec_push(key->arena, key->words, word); }
static void add_name(Key *key, Str name) { add(key, (int64_t)(intptr_t)name); }

static void add_axis(Key *key, Axis x) { add_name(key, x.dim), add(key, x.size); }

static void add_attr(Key *key, const Attr *x) {
  int64_t bits;
  memcpy(&bits, &x->f, sizeof bits);
  add(key, x->key), add(key, x->i), add(key, bits), add_name(key, x->s);
  for (int64_t i = 0; x->list && i < x->i; i++) add(key, x->list[i]);
}

static void add_group(Key *key, const Group *g) {
  add(key, g->nfrom), add(key, g->nto);
  for (int i = 0; i < g->nfrom; i++) add_name(key, g->from[i]);
  for (int i = 0; i < g->nto; i++) add_name(key, g->to[i]);
}

static void add_op(Key *key, const Op *o) {
  add(key, o->code), add(key, o->ngroups), add(key, o->attrs.n);
  for (uint32_t i = 0; i < o->nin; i++) add(key, key->number[o->in[i]]);
  for (int i = 0; i < o->ngroups; i++) add_group(key, &o->group[i]);
  for (uint32_t i = 0; i < o->attrs.n; i++) add_attr(key, &o->attrs.at[i]);
}

/* Intervals know nothing of floats, so what they follow from is left out. */
static void add_value(Key *key, ValueId v) {
  if (key->number[v]) return;
  const Type *t = value_type(key->f, v);
  const Op *o = elem_class(t->elem) == CLASS_FLOAT ? NULL : value_def(key->f, v);
  for (uint32_t i = 0; o && i < o->nin; i++) add_value(key, o->in[i]);
  key->number[v] = ++key->values;
  add(key, t->elem), add(key, t->rank), add(key, o ? 1 + (int64_t)(v - o->out) : 0);
  for (int i = 0; i < t->rank; i++) add_axis(key, t->axis[i]);
  if (o) add_op(key, o);
}

static const KnownShare *find_known(const MaskShares *s, const Key *key) {
  for (uint32_t i = 0; i < s->known.n; i++) {
    const KnownShare *x = &s->known.at[i];
    if (x->n == key->words.n && !memcmp(x->key, key->words.at, sizeof *x->key * x->n)) return x;
  }
  return NULL;
}

/* Numbers of ranks on which the mask depends, where no lists name them, or several, of which not
   all combinations occur. */
static const RankNumbers *find_numbers(Arena *arena, const Module *m, const Fn *f, ValueId mask,
                                       Axis query, Axis key, const BlockLists *lists) {
  ListsHeads of = lists_heads(f, mask, query.dim, key.dim);
  bool listed = lists && lists_shape(lists).ranks > 1 && of.scalars < 2;
  if (of.scalars <= 0 || listed || !m->mesh.n) return NULL;
  RankWorld world = rank_world(arena, m);
  RankNumbers *numbers = ARENA_NEW(arena, RankNumbers);
  return rank_numbers(&world, f, of.scalars, of.scalar, numbers) ? numbers : NULL;
}

static void add_numbers(Key *key, const RankNumbers *numbers, int n) {
  add(key, numbers ? numbers->ranks : 0), add(key, numbers ? numbers->calls : 0);
  for (int64_t i = 0; numbers && i < numbers->ranks * numbers->calls * n; i++)
    add(key, numbers->value[i]);
}

uint32_t mask_words(Arena *arena, const Fn *f, ValueId mask, Axis query, Axis key,
                    const int64_t **words) {
  Key own = {.arena = arena, .f = f, .number = ARENA_ARRAY(arena, uint32_t, f->values.n + 1)};
  add_axis(&own, query), add_axis(&own, key), add_value(&own, mask);
  *words = own.words.at;
  return own.words.n;
}

ScoreShares mask_shares(const Module *m, const Fn *f, ValueId mask, Axis query, Axis key,
                        const BlockLists *lists) {
  Arena *arena = arena_new();
  Key asked = {.arena = arena, .f = f, .number = ARENA_ARRAY(arena, uint32_t, f->values.n + 1)};
  const RankNumbers *numbers = find_numbers(arena, m, f, mask, query, key, lists);
  add_name(&asked, lists ? lists->name : NULL); /* which says all that is in them */
  add_numbers(&asked, numbers, lists_heads(f, mask, query.dim, key.dim).scalars);
  add_axis(&asked, query), add_axis(&asked, key), add_value(&asked, mask);
  const KnownShare *known = find_known(m->shares, &asked);
  ScoreShares result = known ? known->shares : shares(f, mask, query, key, lists, numbers);
  if (!known) {
    int64_t *words = ARENA_ARRAY(m->arena, int64_t, asked.words.n);
    memcpy(words, asked.words.at, sizeof *words * asked.words.n);
    vec_push(m->arena, m->shares->known, ((KnownShare){words, asked.words.n, result}));
  }
  arena_free(arena);
  return result;
}
