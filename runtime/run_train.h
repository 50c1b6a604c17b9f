/* A run of command train: its loop (train.c), and what precedes it (train_start.c). */
#ifndef SHARDC_RUN_TRAIN_H
#define SHARDC_RUN_TRAIN_H
#include "run.h"
#include "runtime/store/saver.h"

typedef struct Train {
  Run *r;
  const rt_entry *step, *later; /* later: in place of step from step number `from` on; NULL */
  int64_t looks; /* steps between two looks at the second moments; 0: `from` is known */
  int64_t steps, from, eval_every, eval_batches, save_every;
  double save_seconds, saved_at; /* after which another one is due, 0: never; its rt_now() */
  bool save_due, keep_best;
  int64_t saved;             /* step of the newest checkpoint, -1: none */
  int64_t may_skip, skipped; /* steps in a row that are not finite: at most, now */
  double limit, began;       /* rt_now() at which to stop, and when this step began */
  double waited;             /* for messages, until then */
  size_t allocated;          /* then */
  int64_t evaluated;         /* samples of the last evaluation; 0: none in this process */
  bool begun;                /* steps are `later` in this process */
  int64_t told_uncounted, told_unevaluated; /* how often nothing counted, in training and after */
  Saver *saver;
  bool saves;             /* false: no checkpoint is written, not even at the end */
  bool aside;             /* checkpoints are written while training goes on */
  bool writing;           /* .. and some rank still writes */
  double slowest, slower; /* rank, and its milliseconds, as in StepRecord */
  Metrics metrics;
  MetricsPort *port; /* NULL: none */
  Meter meter;
} Train;

bool rt_train_start(Train *train, Fault *f);

/* Has the run validation samples, and the program an entry for them? */
static inline bool rt_train_evaluates(const Train *train) {
  return train->r->data.valid.samples > 0 && rt_entry_find(train->r->p, "eval");
}
#endif
