/* collect, internal declarations: a function is rewritten so that every op works on shards that
   its operands hold.

   collect.c          the walk over functions and loops
   collect_choose.c   the strategy of an op: fewest elements sent
   collect_sum.c      sums of several terms, taken together
   collect_reshard.c  values in a requested placement: copies, conversions, values made again
   collect_uses.c     the values that may stay partial sums, that are gradients, that are free to
   make */
#ifndef SHARDC_PASSES_COLLECT_H
#define SHARDC_PASSES_COLLECT_H
#include "ir/collective.h"
#include "ir/shape/placement.h"
#include "passes/base/rebuild.h"

typedef struct Copy { /* a value in one placement of the new function */
  Placement at;
  ValueId v;
} Copy;
typedef VEC(Copy) Copies;

/* Values that must stay replicated on an axis because their consumers need different shards: an
   input, or an argument of a body that costs nothing to make. */
typedef struct Demand {
  const void *of; /* Global or Fn (by pointer: looked up only, never an order) */
  uint32_t arg;
  bool whole[MAX_MESH];
} Demand;

typedef struct Collect {
  Module *m;
  int axis[MAX_MESH], n; /* mesh axes in the order of the rules */
  VEC(Demand) demands;
  bool again;          /* there is a new demand: walk again */
  bool deals;          /* the entry trains or evaluates: attention may pass keys round a ring */
  bool ring[MAX_MESH]; /* some attention passes keys round that axis */
  bool failed;         /* a diagnostic was given */
} Collect;

typedef struct Uses { /* of the values of one function; arrays by ValueId */
  Arena *arena;
  Placement *assigned;
  bool *free;     /* made where it is needed: positions, constants, inputs, and values made from
                     them */
  bool *input;    /* ... from inputs: samples of other ranks are no cheap thing */
  bool *linear;   /* all its uses let a partial sum through */
  bool *root;     /* a gradient that the update reads */
  bool *gradient; /* ends in gradients of parameters only, through sums: lives as `assigned` says */
  const Global **of; /* the parameter that it is, or a round's slice of */
  bool *inner;       /* a sum that is one term of the only op that reads it */
  bool *running;     /* argument of a body that a sum over rounds runs in, its cast */
  bool *narrowed;    /* a cast of such a sum: it has the placement that the argument has taken */
} Uses;

typedef struct CollectSite { /* a function at work */
  Collect *c;
  Module *m;
  const Fn *f;
  Fn *to;
  Uses u;
  Copies *copies; /* by ValueId of f */
  ValueId *map;   /* scratch for copied ops */
  const Op *op;   /* in work */
  bool gradient;  /* only updates read the completed value */
} CollectSite;

/* ---- collect_uses.c ---- */
Uses uses_new(Module *m, const Fn *f);
void uses_of_entry(Module *m, const Fn *f, Uses *uses);
/* uses: of the body of loop o, called from f with uses `outer`. */
void uses_of_body(Module *m, const Fn *f, const Uses *outer, const Op *o, Uses *uses);
void uses_follow_weights(const Fn *f, Uses *uses);
bool sum_like(const Fn *f, const Op *o); /* add or sub of floats */

/* ---- collect_reshard.c ---- */
void site_put(CollectSite *site, ValueId old, ValueId v, const Placement *at); /* one more copy */
ValueId site_reshard(CollectSite *site, ValueId old, const Placement *want);
ValueId site_convert(CollectSite *site, ValueId v, const Placement *to); /* v: in s->to */
/* Copies o with its operands so placed; returns its first result. */
ValueId site_emit(CollectSite *site, const Op *o, const Placement *in);
const Placement *site_placed(const CollectSite *site, ValueId v);
const Demand *demand_find(const Collect *c, const void *of, uint32_t arg); /* NULL: none */
double convert_cost(const CollectSite *site, Str from, Str to, int axis, double held);
/* Elements of type t that a rank holds where `axis` does not cut it. */
double bytes_without_axis(const CollectSite *site, const Type *t, const Placement *placement,
                          int axis);
/* The least cost of bringing operand value `old` to `want` on one axis; `others`: states on the
   rest. */
double reshard_cost(const CollectSite *site, ValueId old, int axis, Str want,
                    const Placement *others);

/* ---- collect_choose.c ---- */
typedef struct Way { /* an op on blocks */
  Placement *in, *out;
} Way;
bool choose_way(CollectSite *site, const Op *o, Way *way); /* false: E0707 was given */
bool collect_refuse(CollectSite *site, const Op *o, ValueId weight, int axis);

/* ---- collect_sum.c ---- */
void collect_sum(CollectSite *s, const Op *root);

/* ---- collect.c ---- */
/* A new result: completed now unless it may stay as it is. */
void site_define(CollectSite *s, ValueId old, ValueId v, const Placement *at);
#endif
