/* Passes: one table (passes.def), one signature, one file each. A pass reads the module and its
   settings, changes the module, and reports the user's mistakes through the diagnostics. It keeps
   nothing between runs. */
#ifndef SHARDC_PASS_H
#define SHARDC_PASS_H
#include "ir/ir.h"
#include "ir/plan/stage_class.h"

/* Properties of a module (facts.def): numbers, then masks. */
enum PassFactNumbers {
#define FACT(name, word, fence, meaning) FACT_NUMBER_##name,
#include "facts.def"
#undef FACT
  FACT_COUNT
};
enum PassFacts {
#define FACT(name, word, fence, meaning) FACT_##name = 1 << FACT_NUMBER_##name,
#include "facts.def"
#undef FACT
};

typedef void PassRun(Module *m);

typedef struct Pass {
  const char *name;
  PassRun *run; /* NULL: a pass in the table that is not built yet; it is skipped */
  unsigned needs, makes, breaks;
  const char *help;
} Pass;

const Pass *pass_table(uint32_t *n);
const Pass *pass_find(const char *name);
/* Its number in the table, from 1 on; 0: no such pass, or NULL. */
uint32_t pass_number(const char *name);

typedef struct PipelineOptions {
  const char *until;     /* pipeline_run: stop after this pass, NULL: run all */
  const char *dump_dir;  /* write NN-name.ir after every pass, NULL: no dumps */
  const char *crash_dir; /* folder for the IR before a pass that fails, NULL: it is not written */
  bool verify;           /* run the verifier after every pass */
  bool timings;          /* print milliseconds per pass to stderr */
  bool stats;            /* print statistics of the module after every pass to stderr */
  bool unread;           /* the module is not printed: counts for its readers are left out */
} PipelineOptions;

/* Runs the passes after m->after, in table order. False if diagnostics with errors were given. */
bool pipeline_run(Module *m, const PipelineOptions *options);

/* The programs of a module: one for all ranks, or one for each class of them (stage_class.h). */
typedef struct Programs {
  uint32_t n;
  Module *at[STAGE_CLASSES];
} Programs;

/* As pipeline_run; if classes differ, the passes from `offload` on run for each class on a copy,
   and the messages between classes are proved together. */
bool pipeline_classes(Module *m, const PipelineOptions *options, Programs *out);

/* Runs these passes in this order. A pass that does not find the facts it needs, or that has run
   already, is E1203. m->after advances only to passes that are later in the table. */
bool passes_run(Module *m, uint32_t n, const Pass *const *list, const PipelineOptions *options);
#endif
