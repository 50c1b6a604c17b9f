/* Branch and bound over a space of plans (best.h). Must not: know what fields of plans mean. */
#include "best.h"
#include <math.h>
#include <stdlib.h>

typedef struct Node { /* a plan that is neither compiled nor dropped */
  double bound, guess;
  uint32_t number; /* in the order of the space */
  uint32_t family; /* BestPlans.families */
  SpacePlan plan;
} Node;

typedef VEC(Node) Heap;

static bool before(const Node *a, const Node *b) {
  if (a->bound != b->bound) return a->bound < b->bound;
  return a->guess != b->guess ? a->guess < b->guess : a->number < b->number;
}

static void sink(Heap *heap, uint32_t i) {
  for (uint32_t child; (child = 2 * i + 1) < heap->n; i = child) {
    if (child + 1 < heap->n && before(&heap->at[child + 1], &heap->at[child])) child++;
    if (!before(&heap->at[child], &heap->at[i])) return;
    Node other = heap->at[i];
    heap->at[i] = heap->at[child], heap->at[child] = other;
  }
}

static void drop_first(Heap *heap) {
  heap->at[0] = heap->at[--heap->n];
  if (heap->n) sink(heap, 0);
}

double best_value(const BestPlans *best, const Cost *cost) {
  return best->wanted.memory ? (double)budget_all(&cost->need) : cost->forecast.seconds;
}

/* Plans of one mesh follow each other in a space. */
static uint32_t family_of(BestPlans *best, const SpacePlan *plan) {
  uint32_t n = best->families.n;
  for (uint32_t i = n; i-- > 0;)
    if (space_same_mesh(&best->families.at[i].plan, plan)) return i;
  vec_push(best->space.o->c->arena, best->families, (PlanFamily){*plan, 0});
  return n;
}

/* enough: seconds of a bound above which no more need to be known. */
static Node node_of(BestPlans *best, const SpacePlan *plan, uint32_t number, double enough,
                    Bound *bound) {
  *bound = bound_below(&best->bounds, plan, best->wanted.memory ? INFINITY : enough);
  double value = best->wanted.memory ? bound->bytes : bound->seconds;
  return (Node){value, best->wanted.memory ? bound->seconds : bound->guess, number,
                family_of(best, plan), *plan};
}

static bool fits_surely(const BestPlans *best, double bytes) {
  return bytes <= 0.7 * (double)best->search.device;
}

/* ---- first plans ---- */

enum { MOST_FIRST = 24, MOST_COMPILED_FIRST = 4, FIRST_THAT_FIT = 2 };

typedef struct
    FirstPlans { /* those that promise most, the best one first; all promise differently */
  BestPlans *best;
  uint32_t n, seen;
  Node at[MOST_FIRST];
} FirstPlans;

static void keep_first(FirstPlans *first, const Node *node) {
  uint32_t at = first->n;
  while (at && node->guess < first->at[at - 1].guess) at--;
  if (at == MOST_FIRST || (at && first->at[at - 1].guess == node->guess)) return;
  if (first->n < MOST_FIRST) first->n++;
  memmove(&first->at[at + 1], &first->at[at], (first->n - at - 1) * sizeof *first->at);
  first->at[at] = *node;
}

static void visit_first(void *visitor, const SpacePlan *plan) {
  FirstPlans *first = visitor;
  const BestPlans *best = first->best;
  Bound bound = bound_of_alike(&best->bounds, plan);
  uint32_t number = first->seen++;
  double most = first->n == MOST_FIRST ? first->at[MOST_FIRST - 1].guess : INFINITY;
  if (!fits_surely(best, bound.bytes)) return;
  if (!best->wanted.memory && bound.guess >= most) return;
  Node node = node_of(first->best, plan, number, most, &bound);
  if (fits_surely(first->best, bound.bytes)) keep_first(first, &node);
}

/* By which factor a plan of this mesh was slower than its bound, at least. */
static void learn_loss(BestPlans *best, const FoundPlan *one) {
  PlanFamily *family = &best->families.at[family_of(best, &one->plan)];
  double loss = one->outcome == PLAN_FITS ? best_value(best, &one->cost) / one->bound.seconds : 2;
  if (family->loss <= 0 || loss < family->loss) family->loss = loss;
}

/* Returns what it is worth; INFINITY: it does not fit. */
static void say_progress(BestPlans *best) {
  progress_say(best->space.o, &best->progress, "search: %u plans compiled, of which %u fit",
               best->done.n, best->fitting);
}

static double compile(BestPlans *best, const SpacePlan *plan, bool outside) {
  Arena *arena = best->space.o->c->arena;
  FoundPlan one = {.plan = *plan, .outside = outside};
  say_progress(best);
  Try try = search_try(&best->search, space_change_compared(&best->space, &one.plan));
  one.cost = one.shown = try.cost, one.bound = bound_of(&best->bounds, &one.plan);
  one.outcome = !try.made                          ? PLAN_REFUSED
                : search_fits(&best->search, &try) ? PLAN_FITS
                                                   : PLAN_LARGE;
  if (one.outcome == PLAN_FITS && !best->wanted.memory && one.cost.forecast.seconds <= 0)
    one.outcome = PLAN_REFUSED;
  if (!outside) learn_loss(best, &one);
  if (try.made) bounds_learn(&best->bounds, plan, &one.cost);
  vec_push(arena, best->done, *plan);
  if (!try.made && !best->unmade.at[FIELD_DATA]) best->unmade = *plan;
  best->refused += one.outcome == PLAN_REFUSED, best->large += one.outcome == PLAN_LARGE;
  best->fitting += one.outcome == PLAN_FITS;
  if (one.outcome == PLAN_FITS || best->wanted.all) vec_push(arena, best->found, one);
  return one.outcome == PLAN_FITS ? best_value(best, &one.cost) : INFINITY;
}

static double found_value(const BestPlans *best) {
  double least = INFINITY;
  for (uint32_t i = 0; i < best->found.n; i++)
    if (best->found.at[i].outcome == PLAN_FITS)
      least = fmin(least, best_value(best, &best->found.at[i].cost));
  return least;
}

/* No plan of this value or more is looked for. */
static double wanted_value(const BestPlans *best) {
  double value = found_value(best), than = best->wanted.than;
  return than > 0 && than < value ? than : value;
}

static int by_value(const BestPlans *best, const FoundPlan *a, const FoundPlan *b) {
  double x = best_value(best, &a->shown), y = best_value(best, &b->shown);
  if (a->outcome != b->outcome) return a->outcome < b->outcome ? -1 : 1;
  if (x != y) return x < y ? -1 : 1;
  return memcmp(&a->plan, &b->plan, sizeof a->plan);
}

/* Few enough for insertion. */
static void sort_found(BestPlans *best, uint32_t n) {
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t k = i; k && by_value(best, &best->found.at[k], &best->found.at[k - 1]) < 0; k--) {
      FoundPlan other = best->found.at[k];
      best->found.at[k] = best->found.at[k - 1], best->found.at[k - 1] = other;
    }
}

static bool is_done(const BestPlans *best, const SpacePlan *plan) {
  for (uint32_t i = 0; i < best->done.n; i++)
    if (!memcmp(&best->done.at[i], plan, sizeof *plan)) return true;
  return false;
}

/* Plans that fit, so that bounds have something to be compared with. Those that promise most are
   looked at more closely before they are compiled. */
static void compile_first(BestPlans *best) {
  FirstPlans *first = ARENA_NEW(best->space.o->c->arena, FirstPlans);
  first->best = best;
  space_list(&best->space, visit_first, first);
  for (uint32_t tried = 0; first->n && tried < MOST_COMPILED_FIRST;) {
    Node node = first->at[0];
    Bound bound;
    memmove(first->at, first->at + 1, --first->n * sizeof *first->at);
    if (bounds_refine(&best->bounds, &node.plan, first->n ? &first->at[0].plan : NULL)) {
      node = node_of(best, &node.plan, node.number, INFINITY, &bound);
      if (fits_surely(best, bound.bytes)) keep_first(first, &node);
    } else {
      compile(best, &node.plan, false), tried++;
      if (best->fitting == FIRST_THAT_FIT) return;
    }
  }
}

/* ---- plans that the space leaves out ---- */

/* A budget of saved values with which a plan of these bytes would fill the device. */
static double room_of(const BestPlans *best, const Cost *cost) {
  return (double)best->search.device - (double)budget_all(&cost->need) + (double)cost->need.saved;
}

/* Temporaries and the host's copies may take more with other values: a second budget is smaller. */
static void compile_kept(BestPlans *best, const SpacePlan *plan, int times) {
  SpacePlan one;
  if (!space_keeping(&best->space, plan, times, 0, &one)) return;
  Try try = search_try(&best->search, space_change_compared(&best->space, &one));
  double room = room_of(best, &try.cost);
  for (int i = 0; i < 2 && try.made && room > (double)try.cost.need.saved; i++) {
    if (!space_keeping(&best->space, plan, times, room, &one)) return;
    uint32_t large = best->large;
    compile(best, &one, true);
    if (best->large == large) return;
    room -= (double)best->search.device / 16;
  }
}

/* Near the best plan that the space has, once: the shorter the best step is, the fewer plans may be
   better. */
static void compile_near(BestPlans *best) {
  enum { MOST_TIMES = 2 };
  SpacePlan one;
  uint32_t at = 0;
  sort_found(best, best->found.n);
  while (at < best->found.n && best->found.at[at].outside) at++;
  if (at == best->found.n || best->found.at[at].outcome != PLAN_FITS) return;
  SpacePlan first = best->found.at[at].plan, base = first;
  double least = best_value(best, &best->found.at[at].cost);
  if (!memcmp(&best->near, &base, sizeof base)) return;
  best->near = base;
  for (int way = 0; way < WAYS; way++) {
    if (!space_with_way(&best->space, &base, way, &one)) continue;
    double value = compile(best, &one, true);
    if (value < least) least = value, first = one;
  }
  for (int times = 1; !best->wanted.memory && times <= MOST_TIMES; times *= 2)
    compile_kept(best, &first, times);
}

/* ---- all plans ---- */

typedef struct Remaining { /* plans that may be better than those that are known */
  BestPlans *best;
  double limit; /* no plan whose bound is not below it */
  double value; /* the best one's */
  Heap heap;
} Remaining;

static bool is_large(const BestPlans *best, double bytes) {
  return !best->wanted.all && bytes > (double)best->search.device;
}

/* By the bound that plans like it share. While no plan fits, the least bytes of all plans are
   wanted for E0801, so each plan has a bound of its own. */
static bool is_ruled_out(Remaining *left, const SpacePlan *plan) {
  BestPlans *best = left->best;
  if ((!best->fitting && best->wanted.than <= 0) || best->wanted.all) return false;
  Bound bound = bound_of_alike(&best->bounds, plan);
  if (!best->wanted.memory && bound.seconds >= left->limit)
    return best->floor = fmin(best->floor, bound.seconds), true;
  return is_large(best, bound.bytes) && ++best->large;
}

static void visit(void *visitor, const SpacePlan *plan) {
  Remaining *left = visitor;
  BestPlans *best = left->best;
  uint32_t number = best->plans++;
  Bound bound;
  if (is_ruled_out(left, plan)) return;
  Node node = node_of(best, plan, number, left->value, &bound);
  best->least = fmin(best->least, bound.bytes);
  if (is_large(best, bound.bytes)) {
    best->large++;
    return;
  }
  bool small = best->wanted.all || node.bound < left->limit;
  if (small) vec_push(best->space.o->c->arena, left->heap, node);
  else best->floor = fmin(best->floor, node.bound);
}

/* The limit of bounds of plans that are better by more than the gap. */
static double limit_of(const BestPlans *best) {
  return wanted_value(best) / (1 + best->wanted.gap);
}

static bool may_sharpen(const BestPlans *best) {
  return best->bounds.compiled < (uint64_t)best->wanted.most * SMALL_FOR_ONE;
}

/* The plan with the least bound of those that want other small programs than the first one, among
   those that are near to it in the heap; NULL: there is none. */
static const SpacePlan *second_of(BestPlans *best, Heap *heap, double limit) {
  enum { NEAR = 256 };
  SpacePlan first, own;
  Bound bound;
  if (!bounds_wants(&best->bounds, &heap->at[0].plan, &first)) return NULL;
  for (int tried = 0; tried < NEAR; tried++) {
    uint32_t at = 0;
    for (uint32_t i = 1; i < heap->n && i < NEAR; i++) {
      const Node *node = &heap->at[i];
      if (node->bound >= limit || (at && !before(node, &heap->at[at]))) continue;
      if (!bounds_wants(&best->bounds, &node->plan, &own)) continue;
      if (memcmp(&own, &first, sizeof own) != 0) at = i;
    }
    if (!at) return NULL;
    Node *node = &heap->at[at],
         now = node_of(best, &node->plan, node->number, wanted_value(best), &bound);
    if (!before(node, &now)) return &node->plan;
    *node = now, sink(heap, at);
  }
  return NULL;
}

/* Compiles the plan with the least bound, unless that is no bound any more by what is known now, or
   can be made sharper. */
static bool judge_next(BestPlans *best, Heap *heap, double limit) {
  Bound bound;
  Node first = heap->at[0],
       now = node_of(best, &first.plan, first.number, wanted_value(best), &bound);
  if (is_done(best, &first.plan)) return drop_first(heap), false;
  if (bound.bytes > (double)best->search.device) return best->large++, drop_first(heap), false;
  if (before(&first, &now)) return heap->at[0] = now, sink(heap, 0), false;
  if (may_sharpen(best) && bounds_refine(&best->bounds, &first.plan, second_of(best, heap, limit)))
    return false;
  return drop_first(heap), compile(best, &first.plan, false), true;
}

/* Drops a plan that is not worth to be compiled by what is known now, else notes its bound. */
static bool is_worth(BestPlans *best, Heap *heap, uint32_t i, double limit) {
  Bound bound;
  Node *node = &heap->at[i],
       now = node_of(best, &node->plan, node->number, wanted_value(best), &bound);
  bool large = bound.bytes > (double)best->search.device, done = is_done(best, &node->plan);
  if (!large && !done && now.bound < limit) return *node = now, true;
  if (large && !done) best->large++;
  if (!large && !done) best->floor = fmin(best->floor, now.bound);
  return *node = heap->at[--heap->n], false;
}

/* Compiles the plan that promises most by what plans of its mesh lost so far, unless its sharpest
   bound is not below the limit: bounds of meshes are not equally tight. After it the plans are
   no heap. */
static bool judge_promising(BestPlans *best, Heap *heap, double limit) {
  uint32_t at = heap->n;
  double least = INFINITY;
  for (uint32_t i = 0; i < heap->n;) {
    Node *node = &heap->at[i];
    double loss = fmax(best->families.at[node->family].loss, 1);
    if (node->bound * loss < least) {
      if (!is_worth(best, heap, i, limit)) continue;
      if (node->bound * loss < least) least = node->bound * loss, at = i;
    }
    i++;
  }
  if (at >= heap->n) return false;
  while (may_sharpen(best) && bounds_refine(&best->bounds, &heap->at[at].plan, NULL))
    if (!is_worth(best, heap, at, limit)) return false;
  SpacePlan plan = heap->at[at].plan;
  heap->at[at] = heap->at[--heap->n];
  return compile(best, &plan, false), true;
}

/* First the least bound, which ends the search where bounds are tight; if half of the plans that
   may be compiled do not end it, what promises most. */
static void search(BestPlans *best, Heap *heap) {
  double limit = limit_of(best);
  for (uint32_t compiled = 0; heap->n && compiled < best->wanted.most;) {
    bool promising = !best->wanted.memory && compiled >= best->wanted.most / 2;
    say_progress(best);
    if (!promising && heap->at[0].bound >= limit) return;
    if (promising ? judge_promising(best, heap, limit) : judge_next(best, heap, limit))
      compiled++, limit = limit_of(best);
  }
}

static void compile_all(BestPlans *best, const Heap *heap) {
  for (uint32_t i = 0; i < heap->n; i++) {
    while (may_sharpen(best) && bounds_refine(&best->bounds, &heap->at[i].plan, NULL)) {}
    compile(best, &heap->at[i].plan, false);
  }
}

/* With what kernels and messages wait for each other; a target for which this changes nothing is
   told by the first plan. */
static void settle(BestPlans *best) {
  enum { MOST_SETTLED = 16 };
  uint32_t n = 0;
  best->settled = best->found.n;
  for (uint32_t i = 0; i < best->found.n && n < MOST_SETTLED; i++) {
    FoundPlan *one = &best->found.at[i];
    if (one->outcome != PLAN_FITS) break;
    Try try = search_try(&best->search, space_change(&best->space, &one->plan));
    if (!try.made) continue;
    one->shown = try.cost, n = i + 1;
    if (!i && !best_waits(best)) return;
  }
  if (n) best->settled = n;
  sort_found(best, n);
}

bool best_find(BestPlans *best) {
  best->search.forecasts = true;
  if (!bounds_open(&best->space, &best->search, &best->bounds)) return false;
  if (!best->wanted.all) compile_first(best), compile_near(best);
  Remaining left = {.best = best, .limit = limit_of(best), .value = wanted_value(best)};
  best->least = best->floor = INFINITY;
  space_list(&best->space, visit, &left);
  for (uint32_t i = left.heap.n / 2 + 1; i-- > 0;) sink(&left.heap, i);
  if (best->wanted.all) compile_all(best, &left.heap), left.heap.n = 0;
  else search(best, &left.heap), compile_near(best);
  for (uint32_t i = 0; i < left.heap.n; i++) best->floor = fmin(best->floor, left.heap.at[i].bound);
  sort_found(best, best->found.n);
  settle(best);
  progress_end(&best->progress);
  return true;
}

double best_gap(const BestPlans *best) {
  double value = found_value(best);
  return best->floor < value ? value / best->floor - 1 : 0;
}

bool best_waits(const BestPlans *best) {
  const FoundPlan *first = best->found.at;
  return best->fitting && best_value(best, &first->shown) != best_value(best, &first->cost);
}
