/* Branch and bound over a space of plans (best.h). Must not: know what fields of plans mean. */
#include "best.h"
#include "fit.h"
#include <math.h>
#include <stdlib.h>

typedef struct Node { /* a plan that is neither compiled nor dropped */
  double bound, guess;
  uint32_t plan;
} Node;

typedef struct Heap {
  Node *at;
  uint32_t n;
} Heap;

static bool before(const Node *a, const Node *b) {
  if (a->bound != b->bound) return a->bound < b->bound;
  return a->guess != b->guess ? a->guess < b->guess : a->plan < b->plan;
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
  sink(heap, 0);
}

double best_value(const BestPlans *best, const Cost *cost) {
  return best->wanted.memory ? (double)budget_all(&cost->need) : cost->seconds;
}

static Node node_of(const BestPlans *best, uint32_t i, Bound *bound) {
  *bound = bound_of(&best->bounds, &best->space.plans.at[i]);
  double value = best->wanted.memory ? bound->bytes : bound->seconds;
  return (Node){value, best->wanted.memory ? bound->seconds : bound->guess, i};
}

/* Plans whose bound in bytes fits. */
static Heap heap_of(BestPlans *best) {
  uint32_t n = best->space.plans.n;
  Heap heap = {ARENA_ARRAY(best->space.o->c->arena, Node, n + 1), 0};
  best->least = INFINITY;
  for (uint32_t i = 0; i < n; i++) {
    Bound bound;
    Node node = node_of(best, i, &bound);
    if (bound.bytes < best->least) best->least = bound.bytes;
    if (best->wanted.all || bound.bytes <= (double)best->search.device) heap.at[heap.n++] = node;
    else best->large++;
  }
  for (uint32_t i = heap.n / 2 + 1; i-- > 0;) sink(&heap, i);
  return heap;
}

static void compile(BestPlans *best, uint32_t i) {
  FoundPlan one = {.plan = best->space.plans.at[i]};
  Try try = search_try(&best->search, space_change(&best->space, &one.plan));
  one.cost = try.cost, one.bound = bound_of(&best->bounds, &one.plan);
  one.outcome = !try.made                          ? PLAN_REFUSED
                : search_fits(&best->search, &try) ? PLAN_FITS
                                                   : PLAN_LARGE;
  if (one.outcome == PLAN_FITS && !best->wanted.memory && one.cost.seconds <= 0)
    one.outcome = PLAN_REFUSED;
  best->refused += one.outcome == PLAN_REFUSED, best->large += one.outcome == PLAN_LARGE;
  best->fitting += one.outcome == PLAN_FITS;
  if (one.outcome == PLAN_FITS || best->wanted.all)
    vec_push(best->space.o->c->arena, best->found, one);
}

static double found_value(const BestPlans *best) {
  double least = INFINITY;
  for (uint32_t i = 0; i < best->found.n; i++)
    if (best->found.at[i].outcome == PLAN_FITS)
      least = fmin(least, best_value(best, &best->found.at[i].cost));
  return least;
}

static int by_value(const BestPlans *best, const FoundPlan *a, const FoundPlan *b) {
  double x = best_value(best, &a->cost), y = best_value(best, &b->cost);
  if (a->outcome != b->outcome) return a->outcome < b->outcome ? -1 : 1;
  if (x != y) return x < y ? -1 : 1;
  return memcmp(&a->plan, &b->plan, sizeof a->plan);
}

/* Few enough for insertion. */
static void sort_found(BestPlans *best) {
  for (uint32_t i = 1; i < best->found.n; i++)
    for (uint32_t k = i; k && by_value(best, &best->found.at[k], &best->found.at[k - 1]) < 0; k--) {
      FoundPlan other = best->found.at[k];
      best->found.at[k] = best->found.at[k - 1], best->found.at[k - 1] = other;
    }
}

/* A first plan that fits, so that bounds have something to be compared with: of those that surely
   need little memory the ones that promise most. */
static void compile_first(BestPlans *best, const Heap *heap) {
  enum { MOST_FIRST = 8 };
  double least = -1;
  for (int k = 0; k < MOST_FIRST && best->fitting < 2; k++) {
    const Node *first = NULL;
    for (uint32_t i = 0; i < heap->n; i++) {
      const Node *node = &heap->at[i];
      Bound bound = bound_of(&best->bounds, &best->space.plans.at[node->plan]);
      if (bound.bytes > 0.7 * (double)best->search.device || node->guess <= least) continue;
      if (!first || node->guess < first->guess) first = node;
    }
    if (!first) return;
    least = first->guess;
    compile(best, first->plan);
  }
}

bool best_find(BestPlans *best) {
  if (!bounds_open(&best->space, &best->search, &best->bounds)) return false;
  Heap heap = heap_of(best);
  if (!best->wanted.all) compile_first(best, &heap);
  double value = found_value(best);
  for (uint32_t compiled = 0; heap.n;) {
    Bound bound;
    Node first = heap.at[0], now;
    if (!best->wanted.all && first.bound >= value / (1 + best->wanted.gap)) break;
    if (compiled == best->wanted.most && !best->wanted.all) break;
    bounds_refine(&best->bounds, &best->space.plans.at[first.plan]);
    now = node_of(best, first.plan, &bound);
    if (!best->wanted.all && bound.bytes > (double)best->search.device) {
      best->large++, drop_first(&heap);
    } else if (!best->wanted.all && before(&first, &now)) {
      heap.at[0] = now, sink(&heap, 0);
    } else {
      drop_first(&heap), compiled++;
      compile(best, first.plan), value = found_value(best);
    }
  }
  best->floor = heap.n ? heap.at[0].bound : INFINITY;
  sort_found(best);
  return true;
}

double best_gap(const BestPlans *best) {
  double value = found_value(best);
  return best->floor < value ? value / best->floor - 1 : 0;
}
