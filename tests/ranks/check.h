/* One model on one rank and on a mesh, in the interpreter: what both store must agree. */
#ifndef SHARDC_TESTS_RANKS_CHECK_H
#define SHARDC_TESTS_RANKS_CHECK_H
#include "ir/interp/interp_ranks.h"

typedef struct Plan {
  const char *mesh;  /* "data = 2, tensor = 2"; NULL: one rank */
  const char *rules; /* lines of the IR: "place Batch -> data\n..." */
  int64_t micro;     /* samples of a rank and micro-batch; 0: all */
  int zero;          /* stage */
  int64_t pad;       /* all dims but Batch are stored in multiples of this; 0: as the file says */
  const char *recompute; /* lines as in the IR: "s0[0..1] keep = input;s1 keep = none", or NULL */
  const char *settings; /* more of them: "plan.zero.bucket=4096 plan.zero.keep_root=off", or NULL */
} Plan;

typedef struct Trial {
  const char *file;
  Plan plan;
  int steps;
  const char *train; /* settings of both, as those of the plan, or NULL */
  const char *dim;   /* "Layers=3", or NULL */
  int64_t batch;     /* 0: the file's */
  uint64_t frozen;   /* not 0: about half of the parameters are, drawn by this number */
  uint64_t groups;   /* not 0: about a third of them have an optimizer of their own, likewise */
  const char *rate;  /* train.optim.lr instead of the file's, or NULL */
  bool print;        /* the module that ran on the ranks, on stdout */
  bool placed;       /* through all passes, and once more in poisoned bytes */
} Trial;

typedef struct Outcome {
  double worst;                     /* largest difference of a loss or a weight, against its size */
  const char *where, *error;        /* error: NULL, or why there is no outcome */
  int64_t sent[MAX_MESH][OP_COUNT]; /* in all steps together */
  Module *m;                        /* after `clean`, or `memory` */
} Outcome;

Outcome trial_run(Ctx *c, const Trial *t);
Module *trial_module(Ctx *c, const Trial *t, const char *last); /* NULL: diagnostics */
#endif
