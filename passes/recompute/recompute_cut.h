/* Which values of a body are kept, the rest being computed again: the problem as numbers, apart
   from IR. See recompute_cut.c for one body at a price per byte, recompute_search.c for budgets. */
#ifndef SHARDC_PASSES_RECOMPUTE_CUT_H
#define SHARDC_PASSES_RECOMPUTE_CUT_H
#include "ir/support/arena.h"
#include <stdbool.h>
#include <stdint.h>

enum { KEEP_NO_OP = UINT32_MAX };

typedef enum KeepState { KEEP_OPEN, KEEP_NOT, KEEP_ALWAYS } KeepState;

typedef struct KeepValue {
  uint32_t op;   /* that makes it; KEEP_NO_OP: an input of the layer, available only if kept */
  double bytes;  /* per layer, if kept */
  bool known;    /* available without being kept: weights, constants */
  bool needed;   /* the backward pass reads it */
  bool possible; /* may be kept */
} KeepValue;

typedef struct KeepOp {
  double flop; /* per layer, if computed again */
  uint32_t nin;
  const uint32_t *in; /* values */
} KeepOp;

typedef struct KeepBody {
  uint32_t nvalues, nops;
  KeepValue *value;
  KeepOp *op; /* in order: an op's inputs are made by earlier ones */
} KeepBody;

typedef struct KeepCost {
  double flop, bytes;
} KeepCost;

/* The cost of keeping this set. False: a needed value cannot be computed from it. */
bool keep_cost(Arena *arena, const KeepBody *body, const bool *keep, KeepCost *cost);

/* Values that no optimal set needs, whatever the price: KEEP_NOT, others KEEP_OPEN. */
KeepState *keep_states(Arena *arena, const KeepBody *body);

typedef struct KeepNet KeepNet; /* a body, prepared for many queries */
KeepNet *keep_net(Arena *arena, const KeepBody *body, const KeepState *never);

/* The set of least flop * flop_price + bytes * byte_price among those that agree with `state` (by
   value; KEEP_NOT where `never` has it). False: there is none. `keep` gets the set. */
bool keep_cheapest(KeepNet *net, const KeepState *state, double flop_price, double byte_price,
                   bool *keep, KeepCost *cost);

/* ---- recompute_search.c ---- */

/* Layers of one stack that share a budget with others. At most two sets are used: the first
   `before` layers keep set[0], the others set[1]. */
typedef struct KeepStack {
  const KeepBody *body;
  int64_t layers;
  bool alike; /* one set for all of them */
  int64_t before;
  bool *set[2];
  KeepCost cost[2]; /* of one layer with each set */
} KeepStack;

typedef enum KeepFound { KEEP_FOUND, KEEP_TOO_SMALL, KEEP_NOT_PROVEN } KeepFound;

/* Least flop in all within `budget` bytes in all, then least bytes; *least: the fewest bytes that
   are possible. KEEP_NOT_PROVEN: within the budget, but the search was cut short. */
KeepFound keep_search(Arena *a, KeepStack *stack, uint32_t n, double budget, double *least);
#endif
