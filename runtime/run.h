/* A run of the executable: what the commands share. */
#ifndef SHARDC_RT_RUN_H
#define SHARDC_RT_RUN_H
#include "runtime/store/checkpoint.h"
#include "runtime/data/data.h"
#include "metrics.h"
#include "options.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct Watch { /* signals: a thread waits for them, the run asks */
  atomic_int caught;   /* number of the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP; 0: none */
  atomic_bool looks;   /* the run asks; until then a signal ends the process */
  struct Record *_Atomic record; /* that is told of it; NULL: none */
  pthread_t thread;
} Watch;

typedef struct Run {
  const rt_program *p, *first; /* first: of all that the executable holds */
  Options o;
  Watch watch;
  Device device;
  Comm comm;
  const rt_program *whole; /* the program as one rank would have it: tensors of logical size */
  Data data;
  Progress at;
  double started;    /* rt_now() of the start of main */
  char out[RT_PATH]; /* run directory */
  char *given;       /* numbers of the optimizer, lines KEY=VALUE (rates.c); NULL: none */
  int lock;          /* file descriptor that holds the run directory */
  int folder;        /* the directory itself, whatever its name is now; -1: none yet */
  size_t there;      /* length of the part of `out` that existed before this run */
} Run;

void rt_watch_start(Watch *watch); /* before anything that may start a thread */
void rt_watch_look(Watch *watch);

/* Many ranks (run_agree.c). Rank 0 writes, reports and decides; what depends on a clock or a signal
   is asked of all, so that all do the same. */
bool rt_is_first(const Run *r); /* is this rank 0? */
int rt_caught(Run *r);          /* has any rank got a signal? A call of all ranks */
/* Some rank cannot read its data, and all know it: a rank without a fault gets one that is quiet.
 */
void rt_data_lost(Run *r, Fault *f);
/* Asked of all ranks after each step: each member becomes the largest of all. */
typedef struct Agreed {
  int64_t stop, writing, late; /* reason to stop; is a checkpoint being written, is one due? */
  double own;                  /* milliseconds of the step without waiting for others; NaN */
  double slowest, slower; /* out: the rank with the most, and by how much the least is less; NaN */
} Agreed;
void rt_agree(Run *r, Agreed *agreed);
bool rt_all_filled(Run *r, bool filled, Fault *f); /* asked of all ranks */
bool rt_everywhere(const Run *r, Fault *f);        /* all ranks have this fault; false */
/* rt_die; waits for the other ranks if all have the fault. */
_Noreturn void rt_die_on_all(Run *r, Fault *f);

const rt_program *rt_choose_program(const rt_program *first,
                                    const Options *options); /* choose_program.c */
/* Starts the ranks of this node if the command line or PET_NNODES asks for it, and returns in each
   of them; the process that starts them ends here, with their status (start_node.c). */
bool rt_start_node(Run *r, const char *program, Fault *f);
bool rt_override(Run *r, Fault *f); /* --set (overrides.c) */

/* rates.c: numbers of the optimizer that a run may change */
bool rt_is_rate(const rt_program *program, const char *key);
bool rt_give_rate(Run *r, const char *key, const char *value, Fault *f); /* by --set */
bool rt_give_rates(Run *r, Fault *f); /* by --lr, --weight-decay, --clip */
/* Those that the resumed run was given stay, unless this one gives others. */
void rt_keep_rates(Run *r, const char *then);
void rt_set_rates(Run *r);                                     /* before the first step */
void rt_give_line(Run *r, const char *key, const char *value); /* to what checkpoints keep */

/* given_data.c: the data that the command line names, which checkpoints keep */
bool rt_is_given_data(const char *key);
void rt_keep_data(Run *r);             /* before the first step */
bool rt_recall_data(Run *r, Fault *f); /* before rt_open_data, of a run that goes on or is read */

/* nonfinite.c: steps whose loss or gradients are not finite */
bool rt_guarded(const rt_program *p);     /* such a step changes nothing */
int64_t rt_may_skip(const rt_program *p); /* how many in a row may be left out */
bool rt_step_is_finite(const rt_program *p, const StepRecord *r);
bool rt_overflowed(const Run *r); /* the last step was left out because its scale was too large */
/* Says it of the first step without a label that counts, whose gradients are 0. */
void rt_tell_uncounted(const Run *r, Meter *meter, const StepRecord *record, int64_t *told);
bool rt_report_nonfinite(const Run *r, const StepRecord *record,
                         Fault *f); /* fills f, returns false */

/* session.c */
int64_t rt_count_option(const Run *r, OptionId o, int64_t otherwise);
double rt_save_seconds(const Run *r); /* between checkpoints by the clock; 0: none */
int64_t rt_count_setting(const Run *r, OptionId o, const char *key); /* the option, or that */
int64_t rt_kept(const Run *r);     /* checkpoints that stay; 0: none is written */
bool rt_saves_aside(const Run *r); /* `save async = on`, and there are saves before the end */
int64_t rt_seed(const Run *r);
bool rt_open_data(Run *r, Fault *f);
bool rt_open_port(Run *r, int64_t steps, MetricsPort **port, Fault *f); /* --metrics */
bool rt_without_validation(const Run *r, Fault *f); /* R0104 for options that read it */
bool rt_start_device(Run *r, Fault *f);
bool rt_rank_log(const Run *r, Fault *f);         /* --rank-logs (rank_log.c) */
bool rt_run_folder(Run *r, bool fresh, Fault *f); /* decides r->out; fresh: must hold no run yet */
/* Makes and locks it; r->out may become another number. */
bool rt_hold_folder(Run *r, bool fresh, Fault *f);
/* After a start that failed: removes the directories that this run made, if they are empty. */
void rt_forget_folder(Run *r);
bool rt_lock_folder(const char *folder, int *fd, Fault *f); /* run_lock.c */
void rt_unlock_folder(const char *folder);                  /* by the process that holds it */

/* run_folder.c: a run directory that is moved or removed while a run writes into it; by rank 0 */
typedef enum Whereabouts { FOLDER_STAYED, FOLDER_MOVED, FOLDER_MADE, FOLDER_LOST } Whereabouts;
bool rt_keep_folder(Run *r, Fault *f);
/* Sets r->out to the name that it has now; MADE: it was gone and is made again, empty; LOST: f. */
Whereabouts rt_find_folder(Run *r, Fault *f);

bool rt_refresh(Run *r, Fault *f); /* call after parameters were loaded: recomputes what derives */
bool rt_initialise(Run *r, Fault *f); /* entry init, then --init */
bool rt_load_weights(Run *r,
                     Fault *f); /* for eval and sample: --init, --resume or the run directory */
void rt_set_scalar(Run *r, const char *name, int64_t v);
double rt_get_output(const Run *r, const char *name); /* NaN if there is none */
double rt_counted(const Run *r); /* labels that counted in the last step; NaN: all do */
const rt_entry *rt_need_entry(const Run *r, const char *name, Fault *f); /* NULL: R0801 */
bool rt_can_finish(Run *r, Fault *f); /* once the run directory is made */
bool rt_finish(Run *r, const Outputs *outputs,
               Fault *f); /* --dump, --check-memory; outputs: of the model, or NULL */
int64_t rt_parameters(const rt_program *p);

/* training_phase.c: the entry that replaces `step` from some step on, or NULL; and that step. */
const rt_entry *rt_phase_entry(const Run *r);
int64_t rt_phase_from(const Run *r);
/* Called before the first such step of a process: prepares the states that 1-bit Adam's steps start
   from. rt_phase_fits: can a run that begins these steps at `from` continue from this state? */
bool rt_phase_begin(Run *r, Fault *f);
bool rt_phase_fits(const Run *r, int64_t from, Fault *f);
/* Does the next step of 1-bit Adam update second moments, as steps before the freeze do? Then the
   caller ends the phase before it and calls rt_phase_begin after it; begun: that was in this
   process. */
bool rt_phase_renews(const Run *r, int64_t from);
bool rt_phase_end(Run *r, bool begun, Fault *f);
/* The first frozen step; INT64_MAX: not known yet, or none. The program looks for it after this
   number of steps; 0: it is fixed. */
int64_t rt_freeze(const Run *r);
int64_t rt_freeze_window(const Run *r);

/* eval.c */
typedef struct Evaluation { /* what of the validation data, and its loss */
  double loss;              /* NaN: nothing counts */
  double counted;           /* labels that count, or the sum of their weights; NaN: all do */
  int64_t samples;          /* 0: stopped by a signal */
  int64_t batches, tail;    /* whole batches, spread evenly; samples after the last whole batch */
  bool repeats;             /* the set is smaller than a batch, which shows some samples again */
} Evaluation;

/* The batches and samples of an evaluation; batches: the largest number, 0: all. */
Evaluation rt_evaluation(const Run *r, int64_t batches);
int64_t rt_evaluated(const Run *r, const Evaluation *evaluation,
                     int64_t i); /* the i-th sample of it */
/* A note where the loss is no sum over samples, nor a quotient of such: it depends on the batch. */
void rt_tell_batches(const Run *r, const Evaluation *evaluation);
bool rt_evaluate(Run *r, Evaluation *evaluation, Fault *f);
/* outputs.c: what the model's outputs are for the samples of an evaluation */
bool rt_outputs(Run *r, const Evaluation *evaluation, Outputs *outputs, Fault *f);
void rt_outputs_free(Outputs *outputs);

int rt_train(Run *r);
int rt_eval(Run *r);
int rt_sample(Run *r);
int rt_info(Run *r);
int rt_export(Run *r);
#endif
