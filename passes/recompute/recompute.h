/* Shared by the files of pass `recompute`: a pair of loops, one forward, one backward, that reads
   the values which the first saved; the values that each layer of it keeps; and the rewriting. */
#ifndef SHARDC_PASSES_RECOMPUTE_H
#define SHARDC_PASSES_RECOMPUTE_H
#include "passes/base/rebuild.h"
#include "recompute_cut.h"

typedef struct Pair {
  Module *m;
  const Fn *f; /* with both loops */
  const Op *l1, *l2;
  LoopShape s1, s2;
  const Fn *fwd, *bwd;
  uint32_t *kept; /* by value of fwd: operand of l2 that carries it, or NO_VALUE */
  bool *outside;  /* by value of fwd: a result that others than l2 read */
} Pair;

bool pair_of(Module *m, const Fn *f, const Op *l1, const Op *l2, Pair *p); /* false: is none */
bool pair_judged(const Pair *p);                /* a plan's line has been applied to it */
bool pair_is_carried(const Pair *p, ValueId v); /* an argument that the layers carry */
bool pair_can_keep(const Pair *p, ValueId v);   /* may be stacked over the layers */

typedef struct Segment { /* layers that keep the same */
  int64_t first, count;
  bool *keep;   /* by value of fwd */
  Str over;     /* mesh axes over which kept values are split; NULL: none */
  bool offload; /* kept values wait on the host */
  bool rerun;   /* keep nothing: forward runs again, now with everything kept, before backward */
  bool *chain;  /* by op of fwd: copied into the backward body; worked out by pair_rewrite */
} Segment;
typedef VEC(Segment) Segments;

typedef struct RecomputeChange { /* of one pair */
  Pair pair;
  Segments segments; /* in order of layers, all layers */
} RecomputeChange;

/* f with these pairs rewritten. `judged`: the loops' paths get the range of layers, as in h[0..5],
   and are left alone from then on. */
Fn *pair_rewrite(Module *m, const Fn *f, RecomputeChange *changes, uint32_t n, bool judged);

/* recompute_lines.c: the lines of the plan, applied to every pair that they name and that has not
   been judged yet. */
bool recompute_lines(Module *m); /* true: something was changed */
/* recompute_rank.c: bytes of a layer's value v that one rank holds, split over the axes `over` */
double kept_by_rank(const Pair *pair, ValueId v, Str over);
typedef struct KeptShare { /* of the layers of a pair */
  int64_t stages;          /* over which the plan cuts them; 1: every rank has all */
  double in_flight;        /* micro-batches whose values a rank holds at once, at most */
} KeptShare;
KeptShare kept_share(const Pair *pair);
/* recompute_body.c: a forward body as the search sees it, bytes being those of one rank */
KeepBody *recompute_body(const Pair *pair, Str over);
#endif
