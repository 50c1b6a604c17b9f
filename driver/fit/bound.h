/* Lower bounds of the plans of a space (plan_space.h): seconds of a step, by the forecast, and
   bytes of a rank; no compiled plan is below them. They need no compiled plan.

   Each comes from a few small programs of the same model, of two and three layers, on the ranks of
   one copy of the model: their differences are the cost of one layer, and the cost of one more
   micro-batch that of its samples. All plans with the same split of the layers share them. Before a
   split is measured, its layers take their share of one rank's work in whole tiles without
   launches, and the messages of both of its axes alone. The bounds leave out padding, the head of a
   pipeline, copies from and to the host, and messages between copies of the model where these may
   run concurrently with kernels. */
#ifndef SHARDC_BOUND_H
#define SHARDC_BOUND_H
#include "plan_space.h"

typedef struct LayerCost {       /* of one sample on a rank */
  double computes, waits, saved; /* of a layer: seconds; bytes */
  double least;                  /* `computes` in any smaller micro-batch, at least */
  double outside;                /* seconds outside of the stack */
  double working;                /* bytes of temporaries that grow with the micro-batch */
} LayerCost;

typedef struct SplitCost {
  int32_t tensor, context, sequence, recompute, micro;
  bool known;
  LayerCost cost;
} SplitCost;

typedef struct PlanBounds {
  const PlanSpace *space;
  ChangeSearch search; /* of small programs */
  Machine machine;     /* of the forecast; if there is none (`reach` NULL), of the bound */
  LayerCost whole[2];  /* on one rank, by KEEP_ALL, KEEP_INPUT */
  double weights, gradients, optimizer; /* bytes of a rank that has all */
  double parameters, of_layers;         /* numbers; of a layer */
  double wire;                          /* bytes of an element in messages, at least */
  VEC(SplitCost) splits;
  uint32_t compiled;
} PlanBounds;

typedef struct Bound {
  double seconds, bytes;
  double guess; /* seconds; no bound: which of several to try first */
} Bound;

bool bounds_open(const PlanSpace *space, const ChangeSearch *search, PlanBounds *out);
/* True: the costs of its split are known now, and were not before. */
bool bounds_refine(PlanBounds *bounds, const SpacePlan *plan);
Bound bound_of(const PlanBounds *bounds, const SpacePlan *plan);
#endif
