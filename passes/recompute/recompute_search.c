/* recompute: the least work within a budget of bytes that stacks share.

   Per layer, a set of kept values costs operations and bytes (recompute_cut.c). A stack's layers
   use at most two sets, so that it becomes two loops at most, however deep it is: `before` layers
   with one, the others with the other. Wanted: the least sum of operations whose bytes are within
   the budget.

   1. Lagrange: with a price per byte, each layer is a minimum cut of its own. The price at which
      the cheapest answer passes from within the budget to beyond it is found by Newton's steps over
      the corners of the lower hull. It gives a lower bound of the operations, and the two answers
      on both sides of the budget give a solution: as many layers as fit take the larger set.
   2. The gap is the difference of the two. The reduced costs of an optimal solution (operations and
      priced bytes above the cheapest answer) add up to no more than the gap. So only sets with a
      reduced cost within it matter; branch and bound with the cut as bound lists them all.
   3. Stacks are combined one by one from their lists; dominated sums are dropped.
   Steps 2 and 3 run with a small part of the gap first: a better solution shrinks the gap.

   The result is optimal for this model: cost is the operations of the IR (count.c), every value is
   kept in its own type, layers of a stack differ in two sets at most. The model ignores possible
   fusion, and the memory that recomputation needs for itself. MOST bounds the lists; if they would
   grow longer the answer is good, not proven, and reported as such. */
#include "recompute_cut.h"
#include "ir/support/diag.h"
#include "ir/support/vec.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SETS = 50000, MOST_ALIKE = 3000, MOST_POINTS = 100000 };

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
  KeepState **state;           /* by stack: values that cannot matter, values that are settled */
  KeepNet **net;
  KeptSet *low, *high; /* by stack: at the price, on both sides of the budget */
  double *floor;       /* by stack: cheapest layer at the price */
  bool cut_short;
} PlanSearch;

/* ---- one answer for all stacks at a price ---- */

static bool solve(const PlanSearch *search, uint32_t i, double flop_price, double byte_price,
                  KeptSet *out) {
  out->keep = ARENA_ARRAY(search->a, bool, search->stack[i].body->nvalues + 1);
  return keep_cheapest(search->net[i], search->state[i], flop_price, byte_price, out->keep,
                       &out->cost);
}

static bool solve_all(const PlanSearch *search, double flop_price, double byte_price,
                      KeptSet *out) {
  for (uint32_t i = 0; i < search->n; i++)
    if (!solve(search, i, flop_price, byte_price, &out[i])) return false;
  return true;
}

static KeepCost total(const PlanSearch *search, const KeptSet *sets) {
  KeepCost sum = {0};
  for (uint32_t i = 0; i < search->n; i++) {
    sum.flop += (double)search->stack[i].layers * sets[i].cost.flop;
    sum.bytes += (double)search->stack[i].layers * sets[i].cost.bytes;
  }
  return sum;
}

/* The cost of computing everything plus that of keeping everything: the scale for prices of
   ties. */
static KeepCost whole(const PlanSearch *search) {
  KeepCost sum = {1, 1};
  for (uint32_t i = 0; i < search->n; i++) {
    const KeepBody *body = search->stack[i].body;
    for (uint32_t k = 0; k < body->nops; k++) sum.flop += body->op[k].flop;
    for (uint32_t k = 0; k < body->nvalues; k++) sum.bytes += body->value[k].bytes;
  }
  return sum;
}

/* Newton's steps: s->low fits, s->high does not. */
static void find_price(PlanSearch *search) {
  KeptSet *at = ARENA_ARRAY(search->a, KeptSet, search->n);
  for (int step = 0; step < 100; step++) {
    KeepCost low = total(search, search->low), high = total(search, search->high);
    search->price = (low.flop - high.flop) / (high.bytes - low.bytes);
    solve_all(search, 1, search->price, at);
    KeepCost here = total(search, at);
    double gain = low.flop + search->price * low.bytes - here.flop - search->price * here.bytes;
    if (gain <= 1e-9 * (1 + low.flop)) break;
    memcpy(here.bytes <= search->budget ? search->low : search->high, at, search->n * sizeof *at);
  }
  KeepCost low = total(search, search->low);
  search->bound = low.flop + search->price * (low.bytes - search->budget);
  for (uint32_t i = 0; i < search->n; i++) {
    search->floor[i] = fmin(search->low[i].cost.flop + search->price * search->low[i].cost.bytes,
                            search->high[i].cost.flop + search->price * search->high[i].cost.bytes);
  }
}

/* ---- lists ---- */

static int by_bytes(const void *x, const void *y) {
  const KeepCost *a = x, *b = y; /* first member of Set and Point */
  if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
  return a->flop < b->flop ? -1 : a->flop > b->flop;
}

static void keep_best_sets(Sets *sets) {
  uint32_t n = 0;
  if (sets->n) qsort(sets->at, sets->n, sizeof *sets->at, by_bytes);
  for (uint32_t i = 0; i < sets->n; i++)
    if (!n || sets->at[i].cost.flop < sets->at[n - 1].cost.flop) sets->at[n++] = sets->at[i];
  sets->n = n;
}

static void keep_best_points(Points *points) {
  uint32_t n = 0;
  if (points->n) qsort(points->at, points->n, sizeof *points->at, by_bytes);
  for (uint32_t i = 0; i < points->n; i++)
    if (!n || points->at[i].cost.flop < points->at[n - 1].cost.flop)
      points->at[n++] = points->at[i];
  points->n = n;
}

/* ---- all sets of a stack whose reduced cost is within `most` ---- */

typedef struct SearchBranch {
  PlanSearch *s;
  uint32_t i; /* stack */
  double most;
  Sets *found;
  uint32_t solved;
} SearchBranch;

static double above(const PlanSearch *search, uint32_t i, const KeptSet *set) {
  return set->cost.flop + search->price * set->cost.bytes - search->floor[i];
}

static uint32_t first_open(const KeepState *state, uint32_t n) {
  uint32_t v = 0;
  while (v < n && state[v] != KEEP_OPEN) v++;
  return v;
}

/* `best` is the cheapest set that agrees with the states. */
static void branch(SearchBranch *search_branch, const KeptSet *best) {
  KeepState *state = search_branch->s->state[search_branch->i];
  uint32_t n = search_branch->s->stack[search_branch->i].body->nvalues, v = first_open(state, n);
  if (v == n) {
    vec_push(search_branch->s->a, *search_branch->found, *best);
    return;
  }
  KeepState same = best->keep[v] ? KEEP_ALWAYS : KEEP_NOT;
  state[v] = same;
  branch(search_branch, best);
  state[v] = same == KEEP_NOT ? KEEP_ALWAYS : KEEP_NOT;
  KeptSet other;
  bool alike = search_branch->s->stack[search_branch->i].alike; /* a wider gap, longer lists */
  if (++search_branch->solved > (alike ? MOST_ALIKE : MOST_SETS)) {
    search_branch->s->cut_short = true;
  } else if (solve(search_branch->s, search_branch->i, 1, search_branch->s->price, &other)) {
    other.above = above(search_branch->s, search_branch->i, &other);
    if (other.above <= search_branch->most) branch(search_branch, &other);
  }
  state[v] = KEEP_OPEN;
}

static Sets list_sets(PlanSearch *search, uint32_t i, double most) {
  Sets found = {0};
  SearchBranch search_branch = {search, i, most, &found, 0};
  KeptSet best = search->low[i];
  best.above = above(search, i, &best);
  solve(search, i, 1, search->price, &best);
  best.above = fmax(0, above(search, i, &best));
  branch(&search_branch, &best);
  vec_push(search->a, found, search->low[i]);
  vec_push(search->a, found, search->high[i]);
  for (uint32_t k = found.n - 2; k < found.n; k++)
    found.at[k].above = above(search, i, &found.at[k]);
  keep_best_sets(&found);
  return found;
}

/* ---- all ways of a stack: two sets and how many layers have the first ---- */

static void add_point(PlanSearch *search, Points *points, const KeptSet *x, const KeptSet *y,
                      int64_t layers, int64_t n, double most) {
  double rest = (double)(layers - n), first = (double)n;
  SearchPoint point = {.set = {x, y}, .before = n, .above = first * x->above + rest * y->above};
  point.cost.flop = first * x->cost.flop + rest * y->cost.flop;
  point.cost.bytes = first * x->cost.bytes + rest * y->cost.bytes;
  if (point.above > most) return;
  if (points->n >= MOST_POINTS) keep_best_points(points);
  if (points->n < MOST_POINTS) vec_push(search->a, *points, point);
  else search->cut_short = true;
}

static Points list_points(PlanSearch *search, uint32_t i, const Sets *sets, double most) {
  Points points = {0};
  int64_t layers = search->stack[i].layers;
  for (uint32_t x = 0; x < sets->n; x++) {
    add_point(search, &points, &sets->at[x], &sets->at[x], layers, layers, most);
    for (uint32_t y = x + 1; y < sets->n && !search->stack[i].alike; y++) {
      /* n * above(x) + (layers - n) * above(y) <= most */
      double slope = sets->at[x].above - sets->at[y].above;
      double room = most - (double)layers * sets->at[y].above;
      int64_t from = 1, to = layers - 1;
      if (slope > 0) to = (int64_t)fmin((double)to, floor(room / slope) + 1);
      else if (slope < 0) from = (int64_t)fmax(1, ceil(room / slope) - 1);
      else if (room < 0) continue;
      for (int64_t n = from; n <= to; n++)
        add_point(search, &points, &sets->at[x], &sets->at[y], layers, n, most);
    }
  }
  keep_best_points(&points);
  return points;
}

/* ---- all stacks together ---- */

static Points join(PlanSearch *search, const Points *before, const Points *own, double most) {
  Points points = {0};
  for (uint32_t x = 0; x < before->n; x++)
    for (uint32_t y = 0; y < own->n; y++) {
      SearchPoint point = own->at[y];
      point.rest = &before->at[x];
      point.above += before->at[x].above;
      point.cost.flop += before->at[x].cost.flop, point.cost.bytes += before->at[x].cost.bytes;
      if (point.above > most || point.cost.bytes > search->budget) continue;
      if (points.n >= MOST_POINTS) keep_best_points(&points);
      if (points.n < MOST_POINTS) vec_push(search->a, points, point);
      else search->cut_short = true;
    }
  keep_best_points(&points);
  return points;
}

/* The best within the budget among sums whose reduced costs are within `most`, or NULL. */
static const SearchPoint *best_within(PlanSearch *search, double most) {
  Points sum = {0};
  vec_push(search->a, sum, (SearchPoint){0});
  for (uint32_t i = 0; i < search->n; i++) {
    Sets *sets = ARENA_NEW(search->a, Sets);
    *sets = list_sets(search, i, most);
    Points own = list_points(search, i, sets, most), *before = ARENA_NEW(search->a, Points);
    *before = sum;
    sum = join(search, before, &own, most);
  }
  return sum.n ? &sum.at[sum.n - 1] : NULL;
}

/* As many layers as fit take the set beyond the budget. */
static double first_solution(PlanSearch *search) {
  double bytes = total(search, search->low).bytes, flop = total(search, search->low).flop;
  for (uint32_t i = 0; i < search->n; i++) {
    KeepStack *stack = &search->stack[i];
    const KeptSet *both[] = {&search->low[i], &search->high[i]};
    double more = both[1]->cost.bytes - both[0]->cost.bytes, n = (double)stack->layers;
    if (more > 0) n = fmin(n, floor((search->budget - bytes) / more));
    if (stack->alike && n < (double)stack->layers) n = 0;
    bytes += n * more, flop += n * (both[1]->cost.flop - both[0]->cost.flop);
    stack->before = stack->layers - (int64_t)n;
    for (int j = 0; j < 2; j++) stack->set[j] = both[j]->keep, stack->cost[j] = both[j]->cost;
  }
  return flop;
}

static void take(PlanSearch *search, const SearchPoint *point) {
  for (uint32_t i = search->n; i-- > 0; point = point->rest) {
    search->stack[i].before = point->before;
    for (int k = 0; k < 2; k++)
      search->stack[i].set[k] = point->set[k]->keep, search->stack[i].cost[k] = point->set[k]->cost;
  }
}

static void take_sets(PlanSearch *search, const KeptSet *sets) {
  for (uint32_t i = 0; i < search->n; i++)
    for (int k = 0; k < 2; k++) {
      search->stack[i].before = search->stack[i].layers;
      search->stack[i].set[k] = sets[i].keep, search->stack[i].cost[k] = sets[i].cost;
    }
}

static KeepFound close_gap(PlanSearch *search) {
  double most = fmax(first_solution(search) - search->bound, 0) * (1 + 1e-9) + 1e-6;
  const SearchPoint *best = NULL;
  for (double part = most / 64;; part *= 8) {
    if (best) most = fmin(most, (best->cost.flop - search->bound) * (1 + 1e-9) + 1e-6);
    search->cut_short = false;
    const SearchPoint *found = best_within(search, fmin(part, most));
    if (found && (!best || found->cost.flop < best->cost.flop ||
                  (found->cost.flop == best->cost.flop && found->cost.bytes < best->cost.bytes)))
      best = found;
    if (part >= most || search->cut_short) break;
  }
  if (best) take(search, best);
  return search->cut_short ? KEEP_NOT_PROVEN : KEEP_FOUND;
}

KeepFound keep_search(Arena *arena, KeepStack *stack, uint32_t n, double budget, double *least) {
  must(n > 0 && budget >= 0, "recompute: a search over %u stacks for %g bytes", n, budget);
  PlanSearch search = {.a = arena, .stack = stack, .n = n, .budget = budget};
  search.state = ARENA_ARRAY(arena, KeepState *, n), search.floor = ARENA_ARRAY(arena, double, n);
  search.low = ARENA_ARRAY(arena, KeptSet, n), search.high = ARENA_ARRAY(arena, KeptSet, n);
  search.net = ARENA_ARRAY(arena, KeepNet *, n);
  for (uint32_t i = 0; i < n; i++) {
    search.state[i] = keep_states(arena, stack[i].body);
    search.net[i] = keep_net(arena, stack[i].body, search.state[i]);
  }
  KeepCost all = whole(&search);
  solve_all(&search, 0.5 / all.flop, 1, search.low);
  *least = total(&search, search.low).bytes;
  if (*least > budget) return KEEP_TOO_SMALL;
  solve_all(&search, 1, 0.5 / all.bytes, search.high);
  if (total(&search, search.high).bytes <= budget)
    return take_sets(&search, search.high), KEEP_FOUND;
  find_price(&search);
  return close_gap(&search);
}
