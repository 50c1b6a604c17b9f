/* Branch and bound over a space of plans (plan_space.h): the best plans, and a certificate of how
   much faster any other plan could be.

   A few plans with the shortest expected steps are compiled first, and plans close to the best of
   them that the space leaves out, because a short step rules out more of the others. After that the
   plan with the smallest lower bound (bound.h) is next; in the second half of a search it is the
   one with the shortest expected step, corrected by how much compiled plans of the same mesh were
   slower than expected. The bound of the next plan is made sharper before it is compiled.

   The search ends when every bound is at most the wanted gap below the best plan that fits, or
   when the allowed number of plans is compiled; the last of them get no more small programs. The
   smallest bound of the plans that were not compiled is the certificate.

   Bounds leave out the time that kernels and messages of a GPU wait for each other (pass spare), so
   plans are compared without it. The first plans that fit are compiled once more with it, and
   sorted by it. The result depends on the input alone. */
#ifndef SHARDC_BEST_H
#define SHARDC_BEST_H
#include "bound.h"
#include "driver/progress_line.h"

enum { USUAL_TRIES = 48, USUAL_GAP = 2 /* percent */ };
enum { SMALL_FOR_ONE = 16 }; /* small programs, for each plan that may be compiled */

typedef enum Outcome { PLAN_FITS, PLAN_LARGE, PLAN_REFUSED } Outcome;

typedef struct FoundPlan { /* a plan that was compiled */
  SpacePlan plan;
  Cost cost;  /* by which plans are compared: kernels and messages do not wait for each other */
  Cost shown; /* as `plan` prints it, of the first ones that fit; of others the same */
  Bound bound;
  Outcome outcome;
  bool outside; /* the space leaves it out */
} FoundPlan;
typedef VEC(FoundPlan) FoundPlans;

typedef struct BestWanted {
  bool memory;   /* the fewest bytes; else the shortest step, by its forecast */
  bool all;      /* compile every plan */
  double gap;    /* 0.02: what the best one may miss */
  double than;   /* no plan of that many seconds or more is looked for; 0: there is no limit */
  uint32_t most; /* plans compiled */
} BestWanted;

typedef struct PlanFamily { /* plans of one mesh */
  SpacePlan plan;           /* one of them */
  double
      loss; /* by which factor compiled ones were slower than their bound, at least; 0: none was */
} PlanFamily;

typedef struct BestPlans {
  PlanSpace space;
  ChangeSearch search;
  PlanBounds bounds;
  BestWanted wanted;
  VEC(SpacePlan) done; /* compiled */
  SpacePlan near;      /* the last one near which plans that the space leaves out were tried */
  VEC(PlanFamily) families;
  uint32_t plans;                   /* of the space */
  FoundPlans found;                 /* those that were compiled, the best first */
  uint32_t settled;                 /* the first ones, by what `plan` prints */
  uint32_t fitting, refused, large; /* of these; `large` by their bounds as well */
  ProgressLine progress;
  SpacePlan unmade; /* the first that could not be compiled; no data: none was */
  double floor;     /* the least bound of a plan left uncompiled that may fit; INFINITY: none is */
  double least;     /* the smallest bound in bytes */
} BestPlans;

/* False: no bounds, because the model on one rank cannot be compiled. */
bool best_find(BestPlans *best);
double best_value(const BestPlans *best, const Cost *cost);
/* Does the first plan wait for what plans are compared without? */
bool best_waits(const BestPlans *best);
double best_gap(const BestPlans *best); /* by how much another plan may be better, at most: 0.013 */
#endif
