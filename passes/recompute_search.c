/* recompute: the least work within a budget of bytes that stacks share.

   Per layer, a set of kept values costs operations and bytes (recompute_cut.c). A stack's layers
   use at most two sets, so that it becomes two loops at most, however deep it is: `before` layers
   with one, the others with the other. Wanted: the least sum of operations whose bytes are within
   the budget.

   1. Lagrange: with a price per byte, each layer is a minimum cut of its own. The price at which
      the cheapest answer passes from within the budget to beyond it is found by Newton's steps over
      the corners of the lower hull. It gives a lower bound of the operations, and the two answers
      on both sides of the budget give a solution: as many layers as fit take the larger set.
   2. What is between the two is the gap. Of an optimal solution the reduced costs (operations and
      priced bytes above the cheapest answer) add up to no more than the gap. So only sets with a
      reduced cost within it matter; branch and bound with the cut as bound lists them all.
   3. Stacks are put together one by one from their lists; dominated sums are dropped.
   Steps 2 and 3 run with a small part of the gap first: a better solution shrinks the gap.

   The result is optimal for this model: cost is the operations of the IR (ir/count.c), every value
   is kept in its own type, layers of a stack differ in two sets at most. It does not see what a
   kernel could fuse, nor the memory that computing again takes for itself. MOST bounds the lists;
   where they would grow longer the answer is good, not proven, and said to be so. */
#include "passes/recompute_cut.h"
#include "ir/support/diag.h"
#include "ir/support/vec.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETS = 50000, MOST_POINTS = 100000 };

typedef struct KeptSet {
  KeepCost cost;
  double above; /* reduced cost of one layer */
  bool *keep;
} KeptSet;
typedef VEC(KeptSet) Sets;

typedef struct SearchPoint { /* one way for a stack, or for the first few stacks */
  KeepCost cost;
  double above;
  const KeptSet *set[2];
  int64_t before;
  const struct SearchPoint *rest; /* of the stacks before */
} SearchPoint;
typedef VEC(SearchPoint) Points;

typedef struct PlanSearch {
  Arena *a;
  KeepStack *stack;
  uint32_t n;
  double budget, price, bound; /* price per byte; no solution has fewer operations than bound */
  KeepState **state;           /* by stack: what cannot matter, what is settled */
  KeepNet **net;
  KeptSet *low, *high; /* by stack: at the price, on both sides of the budget */
  double *floor;       /* by stack: cheapest layer at the price */
  bool cut_short;
} PlanSearch;

/* ---- one answer for all stacks at a price ---- */

static bool solve(const PlanSearch *s, uint32_t i, double flop_price, double byte_price,
                  KeptSet *out) {
  out->keep = ARENA_ARRAY(s->a, bool, s->stack[i].body->nvalues + 1);
  return keep_cheapest(s->net[i], s->state[i], flop_price, byte_price, out->keep, &out->cost);
}

static bool solve_all(const PlanSearch *s, double flop_price, double byte_price, KeptSet *out) {
  for (uint32_t i = 0; i < s->n; i++)
    if (!solve(s, i, flop_price, byte_price, &out[i])) return false;
  return true;
}

static KeepCost total(const PlanSearch *s, const KeptSet *sets) {
  KeepCost sum = {0};
  for (uint32_t i = 0; i < s->n; i++) {
    sum.flop += (double)s->stack[i].layers * sets[i].cost.flop;
    sum.bytes += (double)s->stack[i].layers * sets[i].cost.bytes;
  }
  return sum;
}

/* Everything computed, everything kept: what the prices of ties are measured by. */
static KeepCost whole(const PlanSearch *s) {
  KeepCost sum = {1, 1};
  for (uint32_t i = 0; i < s->n; i++) {
    const KeepBody *b = s->stack[i].body;
    for (uint32_t k = 0; k < b->nops; k++) sum.flop += b->op[k].flop;
    for (uint32_t k = 0; k < b->nvalues; k++) sum.bytes += b->value[k].bytes;
  }
  return sum;
}

/* Newton's steps: s->low fits, s->high does not. */
static void find_price(PlanSearch *s) {
  KeptSet *at = ARENA_ARRAY(s->a, KeptSet, s->n);
  for (int step = 0; step < 100; step++) {
    KeepCost low = total(s, s->low), high = total(s, s->high);
    s->price = (low.flop - high.flop) / (high.bytes - low.bytes);
    solve_all(s, 1, s->price, at);
    KeepCost here = total(s, at);
    double gain = low.flop + s->price * low.bytes - here.flop - s->price * here.bytes;
    if (gain <= 1e-9 * (1 + low.flop)) break;
    memcpy(here.bytes <= s->budget ? s->low : s->high, at, s->n * sizeof *at);
  }
  KeepCost low = total(s, s->low);
  s->bound = low.flop + s->price * (low.bytes - s->budget);
  for (uint32_t i = 0; i < s->n; i++) {
    s->floor[i] = fmin(s->low[i].cost.flop + s->price * s->low[i].cost.bytes,
                       s->high[i].cost.flop + s->price * s->high[i].cost.bytes);
  }
}

/* ---- lists ---- */

static int by_bytes(const void *x, const void *y) {
  const KeepCost *a = x, *b = y; /* first member of Set and Point */
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return a->flop < b->flop ? -1 : a->flop > b->flop;
}

static void keep_best_sets(Sets *l) {
  uint32_t n = 0;
  if (l->n) qsort(l->at, l->n, sizeof *l->at, by_bytes);
  for (uint32_t i = 0; i < l->n; i++)
    if (!n || l->at[i].cost.flop < l->at[n - 1].cost.flop) l->at[n++] = l->at[i];
  l->n = n;
}

static void keep_best_points(Points *l) {
  uint32_t n = 0;
  if (l->n) qsort(l->at, l->n, sizeof *l->at, by_bytes);
  for (uint32_t i = 0; i < l->n; i++)
    if (!n || l->at[i].cost.flop < l->at[n - 1].cost.flop) l->at[n++] = l->at[i];
  l->n = n;
}

/* ---- all sets of a stack whose reduced cost is within `most` ---- */

typedef struct SearchBranch {
  PlanSearch *s;
  uint32_t i; /* stack */
  double most;
  Sets *found;
  uint32_t solved;
} SearchBranch;

static double above(const PlanSearch *s, uint32_t i, const KeptSet *x) {
  return x->cost.flop + s->price * x->cost.bytes - s->floor[i];
}

static uint32_t first_open(const KeepState *state, uint32_t n) {
  uint32_t v = 0;
  while (v < n && state[v] != KEEP_OPEN) v++;
  return v;
}

/* `best` is the cheapest set that agrees with the states. */
static void branch(SearchBranch *b, const KeptSet *best) {
  KeepState *state = b->s->state[b->i];
  uint32_t n = b->s->stack[b->i].body->nvalues, v = first_open(state, n);
  if (v == n) {
    vec_push(b->s->a, *b->found, *best);
    return;
  }
  KeepState same = best->keep[v] ? KEEP_ALWAYS : KEEP_NOT;
  state[v] = same;
  branch(b, best);
  state[v] = same == KEEP_NOT ? KEEP_ALWAYS : KEEP_NOT;
  KeptSet other;
  if (++b->solved > MOST_SETS) {
    b->s->cut_short = true;
  } else if (solve(b->s, b->i, 1, b->s->price, &other)) {
    other.above = above(b->s, b->i, &other);
    if (other.above <= b->most) branch(b, &other);
  }
  state[v] = KEEP_OPEN;
}

static Sets list_sets(PlanSearch *s, uint32_t i, double most) {
  Sets found = {0};
  SearchBranch b = {s, i, most, &found, 0};
  KeptSet best = s->low[i];
  best.above = above(s, i, &best);
  solve(s, i, 1, s->price, &best);
  best.above = fmax(0, above(s, i, &best));
  branch(&b, &best);
  vec_push(s->a, found, s->low[i]);
  vec_push(s->a, found, s->high[i]);
  for (uint32_t k = found.n - 2; k < found.n; k++) found.at[k].above = above(s, i, &found.at[k]);
  keep_best_sets(&found);
  return found;
}

/* ---- all ways of a stack: two sets and how many layers have the first ---- */

static void add_point(PlanSearch *s, Points *l, const KeptSet *x, const KeptSet *y, int64_t layers,
                      int64_t n, double most) {
  double rest = (double)(layers - n), first = (double)n;
  SearchPoint p = {.set = {x, y}, .before = n, .above = first * x->above + rest * y->above};
  p.cost.flop = first * x->cost.flop + rest * y->cost.flop;
  p.cost.bytes = first * x->cost.bytes + rest * y->cost.bytes;
  if (p.above > most) return;
  if (l->n >= MOST_POINTS) keep_best_points(l);
  if (l->n < MOST_POINTS) vec_push(s->a, *l, p);
  else s->cut_short = true;
}

static Points list_points(PlanSearch *s, uint32_t i, const Sets *sets, double most) {
  Points l = {0};
  int64_t layers = s->stack[i].layers;
  for (uint32_t x = 0; x < sets->n; x++) {
    add_point(s, &l, &sets->at[x], &sets->at[x], layers, layers, most);
    for (uint32_t y = x + 1; y < sets->n; y++) {
      /* n * above(x) + (layers - n) * above(y) <= most */
      double slope = sets->at[x].above - sets->at[y].above;
      double room = most - (double)layers * sets->at[y].above;
      int64_t from = 1, to = layers - 1;
      if (slope > 0) to = (int64_t)fmin((double)to, floor(room / slope) + 1);
      else if (slope < 0) from = (int64_t)fmax(1, ceil(room / slope) - 1);
      else if (room < 0) continue;
      for (int64_t n = from; n <= to; n++)
        add_point(s, &l, &sets->at[x], &sets->at[y], layers, n, most);
    }
  }
  keep_best_points(&l);
  return l;
}

/* ---- all stacks together ---- */

static Points join(PlanSearch *s, const Points *before, const Points *own, double most) {
  Points l = {0};
  for (uint32_t x = 0; x < before->n; x++)
    for (uint32_t y = 0; y < own->n; y++) {
      SearchPoint p = own->at[y];
      p.rest = &before->at[x];
      p.above += before->at[x].above;
      p.cost.flop += before->at[x].cost.flop, p.cost.bytes += before->at[x].cost.bytes;
      if (p.above > most || p.cost.bytes > s->budget) continue;
      if (l.n >= MOST_POINTS) keep_best_points(&l);
      if (l.n < MOST_POINTS) vec_push(s->a, l, p);
      else s->cut_short = true;
    }
  keep_best_points(&l);
  return l;
}

/* The best within the budget among sums whose reduced costs are within `most`, or NULL. */
static const SearchPoint *best_within(PlanSearch *s, double most) {
  Points sum = {0};
  vec_push(s->a, sum, (SearchPoint){0});
  for (uint32_t i = 0; i < s->n; i++) {
    Sets *sets = ARENA_NEW(s->a, Sets);
    *sets = list_sets(s, i, most);
    Points own = list_points(s, i, sets, most), *before = ARENA_NEW(s->a, Points);
    *before = sum;
    sum = join(s, before, &own, most);
  }
  return sum.n ? &sum.at[sum.n - 1] : NULL;
}

/* As many layers as fit take the set beyond the budget. */
static double first_solution(PlanSearch *s) {
  double bytes = total(s, s->low).bytes, flop = total(s, s->low).flop;
  for (uint32_t i = 0; i < s->n; i++) {
    KeepStack *k = &s->stack[i];
    const KeptSet *both[] = {&s->low[i], &s->high[i]};
    double more = both[1]->cost.bytes - both[0]->cost.bytes, n = (double)k->layers;
    if (more > 0) n = fmin(n, floor((s->budget - bytes) / more));
    bytes += n * more, flop += n * (both[1]->cost.flop - both[0]->cost.flop);
    k->before = k->layers - (int64_t)n;
    for (int j = 0; j < 2; j++) k->set[j] = both[j]->keep, k->cost[j] = both[j]->cost;
  }
  return flop;
}

static void take(PlanSearch *s, const SearchPoint *p) {
  for (uint32_t i = s->n; i-- > 0; p = p->rest) {
    s->stack[i].before = p->before;
    for (int k = 0; k < 2; k++)
      s->stack[i].set[k] = p->set[k]->keep, s->stack[i].cost[k] = p->set[k]->cost;
  }
}

static void take_sets(PlanSearch *s, const KeptSet *sets) {
  for (uint32_t i = 0; i < s->n; i++)
    for (int k = 0; k < 2; k++) {
      s->stack[i].before = s->stack[i].layers;
      s->stack[i].set[k] = sets[i].keep, s->stack[i].cost[k] = sets[i].cost;
    }
}

static KeepFound close_gap(PlanSearch *s) {
  double most = fmax(first_solution(s) - s->bound, 0) * (1 + 1e-9) + 1e-6;
  const SearchPoint *best = NULL;
  for (double part = most / 64;; part *= 8) {
    if (best) most = fmin(most, (best->cost.flop - s->bound) * (1 + 1e-9) + 1e-6);
    s->cut_short = false;
    const SearchPoint *found = best_within(s, fmin(part, most));
    if (found && (!best || found->cost.flop < best->cost.flop ||
                  (found->cost.flop == best->cost.flop && found->cost.bytes < best->cost.bytes)))
      best = found;
    if (part >= most || s->cut_short) break;
  }
  if (best) take(s, best);
  return s->cut_short ? KEEP_NOT_PROVEN : KEEP_FOUND;
}

KeepFound keep_search(Arena *a, KeepStack *stack, uint32_t n, double budget, double *least) {
  must(n > 0 && budget >= 0, "recompute: a search over %u stacks for %g bytes", n, budget);
  PlanSearch s = {.a = a, .stack = stack, .n = n, .budget = budget};
  s.state = ARENA_ARRAY(a, KeepState *, n), s.floor = ARENA_ARRAY(a, double, n);
  s.low = ARENA_ARRAY(a, KeptSet, n), s.high = ARENA_ARRAY(a, KeptSet, n);
  s.net = ARENA_ARRAY(a, KeepNet *, n);
  for (uint32_t i = 0; i < n; i++) {
    s.state[i] = keep_states(a, stack[i].body);
    s.net[i] = keep_net(a, stack[i].body, s.state[i]);
  }
  KeepCost all = whole(&s);
  solve_all(&s, 0.5 / all.flop, 1, s.low);
  *least = total(&s, s.low).bytes;
  if (*least > budget) return KEEP_TOO_SMALL;
  solve_all(&s, 1, 0.5 / all.bytes, s.high);
  if (total(&s, s.high).bytes <= budget) return take_sets(&s, s.high), KEEP_FOUND;
  find_price(&s);
  return close_gap(&s);
}
