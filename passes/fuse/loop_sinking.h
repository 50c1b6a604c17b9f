/* Loop sinking, internal declarations: the work that rounds take over (loop_sinking.c), and the
   new loops with it (loop_sinking_write.c). */
#ifndef SHARDC_PASSES_FUSE_ROUNDS_H
#define SHARDC_PASSES_FUSE_ROUNDS_H
#include "fuse.h"

typedef struct RoundWork RoundWork;

typedef struct RoundLink { /* one loop of a chain */
  RoundWork *work;
  OpId loop;
  LoopShape s;
  uint32_t *same;               /* by result of the last link: the one that it continues, or nout */
  bool *taken;                  /* by result: read by the work alone */
  ValueList invariant, stacked; /* operands that the loop lacks */
  ValueList gives;              /* by result of the new loop: the value that it replaces */
} RoundLink;

struct RoundWork {  /* the work that the rounds of a loop, or of a chain of loops, take over */
  OpId first, loop; /* the first and the last link */
  LoopShape s;      /* of the last one */
  bool *op;         /* by OpId: element-wise ops after the loop */
  ValueId *buffer;  /* by result of the work: the operand whose buffer it continues, NO_VALUE */
  VEC(RoundLink *) link; /* in order */
};

typedef struct FuseRounds {
  Module *m;
  const Fn *f;
  RoundWork *work; /* of the loop that is looked at */
  bool *early;     /* by ValueId: known before that loop, or could be */
  bool *moved;     /* by OpId: some loop's rounds do it */
  bool *mine;      /* by OpId: of the work on one result */
  bool *derived;   /* by ValueId: that result, and the results of its work */
} FuseRounds;

/* Does any op after the loop, other than the work of its rounds, read v? */
bool rounds_read_later(const Fn *fn, OpId loop, const bool *work, ValueId value);
/* The body of a loop with the work; records the results of the new loop. */
Fn *rounds_body(const FuseRounds *rounds, RoundLink *link);
/* The function whose loops have their work; link: by op, NULL: no such loop. */
Fn *rounds_function(const FuseRounds *rounds, RoundLink *const *link);
#endif
