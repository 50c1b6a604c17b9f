/* Passes: one table (passes.def), one signature, one file each. A pass reads the module and its settings, changes the
   module, and reports the user's mistakes through the diagnostics. It keeps nothing between runs. */
#ifndef SHARDC_PASS_H
#define SHARDC_PASS_H
#include "ir/ir.h"

/* Properties of a module that passes need, make and break; the runner asserts them. */
enum PassFacts {
  FACT_INLINED = 1 << 0,   /* no call ops */
  FACT_CLEAN = 1 << 1,     /* no dead ops, no duplicate expressions */
  FACT_GRADS = 1 << 2,     /* step holds forward and backward */
  FACT_UPDATES = 1 << 3,   /* step stores parameters and states */
  FACT_MICRO = 1 << 4,     /* Batch is cut over time */
  FACT_TYPED = 1 << 5,     /* element types are final */
  FACT_LOCAL = 1 << 6,     /* every value is local to one rank */
  FACT_FUSED = 1 << 7,     /* only load, store, loop, kernel and views outside kernel functions */
  FACT_ORDERED = 1 << 8,   /* storage order, strides, views, in-place are decided */
  FACT_SELECTED = 1 << 9,  /* kernels have variant, tile, chunks, scratch */
  FACT_SCHEDULED = 1 << 10,/* the order of ops is the order of execution */
  FACT_PLACED = 1 << 11    /* every value has its bytes */
};

typedef void PassRun(Module *m);

typedef struct Pass {
  const char *name;
  PassRun *run; /* NULL: its place is here, it is not built yet and is skipped */
  unsigned needs, makes, breaks;
  const char *help;
} Pass;

const Pass *pass_table(uint32_t *n);
const Pass *pass_find(const char *name);

typedef struct PipelineOptions {
  const char *until;    /* stop after this pass, NULL: run all */
  const char *dump_dir; /* write NN-name.ir after every pass, NULL: no dumps */
  bool verify;          /* run the verifier after every pass */
  bool timings;         /* print milliseconds per pass to stderr */
} PipelineOptions;

/* Runs the passes after m->after, in table order. False if diagnostics with errors were given. */
bool pipeline_run(Module *m, const PipelineOptions *o);
#endif
