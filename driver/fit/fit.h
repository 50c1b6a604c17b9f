/* Fitting a program into memory: for the driver alone (fit.c, fit_try.c).

   All of it may run passes on copies of the program; none changes the module that it is given. */
#ifndef SHARDC_FIT_H
#define SHARDC_FIT_H
#include "ir/plan/module_settings.h"
#include "driver/cmd.h"
#include "frontend/lower.h"
#include "ir/cost/budget.h"
#include "ir/cost/machine.h"
#include "passes/pass.h"

/* cmd_load.c: FILE -> a module; NULL: diagnostics were given, or FILE cannot be read */
Module *load_shard(Cli *o, const char *path, LowerFacts *facts);

/* The machine of the plan, or this machine for `verify`, which runs the ranks locally. */
Machine fit_machine(const Cli *o, const Module *m);
/* Memory that a rank may use: on the plan's machine, or on this machine if the plan names none. */
int64_t fit_capacity(const Cli *o, const Module *m);
/* The target of --target that plans are tried for; NULL: no --target. */
const char *fit_target(const Cli *o);

/* The micro-batch that is to be taken because none is written, with its note; 0: leave it. */
int64_t fit_micro(Cli *o, const Module *m, const LowerFacts *facts);

/* The bucket of `zero` that is used because the plan sets none; set in m, with its note
   (fit_bucket.c). */
void fit_bucket(Cli *o, Module *m, const LowerFacts *facts);
int64_t fit_set_bucket(Module *m, const LowerFacts *facts); /* its bytes, no note; 0: none is */
double fit_latency(const Module *m, int64_t bytes); /* of a full bucket's time, in percent */

/* Chooses the schedule for `pipeline auto`, sets it in m and adds its note. False: no schedule can
   be compiled; the first one is set, and its passes report the reason. */
bool fit_schedule(Cli *o, Module *m, const LowerFacts *facts);

/* Chooses the numbers of layers for `uneven = memory`, for which each stage has memory, sets them
   in m and adds the note. */
void fit_layers(Cli *o, Module *m, const LowerFacts *facts);

/* After pass `memory`: a `prefetch` in bytes that holds no layer is E0602; false. */
bool flights_check(Cli *o, Module *m);
/* After pass `memory`. False: E0801 was given. */
bool fit_check(Cli *o, const Module *m, const LowerFacts *facts);
/* The same of what programs for GPUs have in the memory of their host, if its machine says how much
   there is (fit_host.c). */
bool fit_hosts(Cli *o, const Programs *programs, const LowerFacts *facts);

/* The class of ranks that needs the most memory. */
const Module *fit_largest(const Programs *programs);
/* Both checks, of all classes: E0801 judges the largest, and the fullest node. */
bool programs_fit(Cli *o, const Programs *programs);

/* After pass `memory`: W0701 where another order of the mesh's axes keeps bytes inside of nodes
   (fit_nodes.c). */
void nodes_warn(Cli *o, const Programs *programs);

/* ---- tries: fit_try.c ---- */

/* The choice of `offload`: paths of parameters for each of its words, "": none
   (offload_units.c). */
enum { MOST_UNITS = 16 };
typedef struct OffloadChoice {
  const char *paths[OFFLOAD_WORDS];
} OffloadChoice;
typedef VEC(const char *) OffloadUnits;
OffloadUnits offload_units(const Module *m); /* h.*, and "wte, wpe, ln_f": what may be apart */
/* The unit's paths of parameters that an update writes; "": none. */
const char *offload_updated(const Module *m, const char *unit);
int64_t offload_layers(const Module *m, const char *unit); /* of h.*; 1: they go together */
const char *offload_paths(const Module *m, int word);      /* what the plan says */
const char *offload_without(Arena *arena, const char *list, const char *paths);
const char *offload_text(Arena *arena, const OffloadChoice *choice); /* "params of h.*" */
void offload_set(Module *m, const OffloadChoice *choice);

/* Chooses the units for `offload auto`, sets them in m and adds the note. False: no program can be
   compiled. */
bool fit_offload(Cli *o, Module *m);

typedef struct FitChange { /* of a plan; what is 0 stays as it is */
  int stage;               /* of zero */
  int64_t micro, bucket;
  int64_t near;               /* not 0: layers gathered ahead (`prefetch` of zero), plus one */
  bool blocking;              /* messages do not overlap with the computation (`overlap` of zero) */
  bool keep_input;            /* recompute every stack from its input */
  Str over;                   /* .. which is split over this axis (Pa) */
  const char *zero_over;      /* axes of zero */
  int offload;                /* the first n of optimizer, grads, params, of all parameters */
  int64_t times;              /* factor on the ranks along the first axis that splits Batch */
  const char *schedule;       /* of a pipeline */
  int64_t chunks;             /* of layers, that it has on a stage */
  int64_t ahead;              /* of `zero_bubble`, its `memory` */
  int64_t layers;             /* for which each stage has memory (`uneven`) */
  const char *accumulate;     /* gradients of zero between micro-batches: "shard", "full" */
  const char *mesh[MAX_MESH]; /* its axes in this order */
  const OffloadChoice *moved; /* instead of what its lines `offload` say */
  bool timed;                 /* the bound of a step is asked for */
} FitChange;

typedef struct Cost { /* of a rank */
  Budget need;
  double elements, bytes; /* that it sends in a step, over all axes */
  double seconds;         /* the bound of its step, if it is asked for; 0: not known */
  double moved;           /* bytes between its device and the host in a step */
  int64_t host;           /* bytes of the host's memory, with what is pinned for the runtime */
  double makespan;        /* of the table of its stages, in FLOP; 0: it has none */
} Cost;

/* The plan as it is, settings that were chosen for it included (fit_nodes.c). */
FitChange fit_as_written(const Module *m, const LowerFacts *facts);
/* True if the program so changed can be made; what a rank then needs is in `out`. */
bool fit_try(const Cli *o, const FitChange *change, Budget *out);
bool fit_cost(const Cli *o, const FitChange *change, Cost *out); /* the same, with what it sends */
/* The programs of the plan so changed, after pass `memory`, in a context of their own: it is freed
   by whoever calls. False: they cannot be made, and there is no context. */
bool fit_programs(const Cli *o, const FitChange *change, Ctx **c, Programs *out);
/* The largest divisor of a rank's share of the batch, below `limit`, with which it fits; 0: none.
 */
int64_t fit_largest_micro(const Cli *o, const Module *m, FitChange change, int64_t limit,
                          int64_t capacity, Budget *out);
/* Among the changes that make it fit, the one with the shortest bound of a step, `seconds` if the
   machine says how fast it is, else 0. False: none was found. */
bool fit_find(const Cli *o, const Module *m, int64_t capacity, FitChange *change, Cost *out);
/* `zero 1 over data` with `micro 2` */
const char *fit_words(Arena *arena, const Module *m, const FitChange *change);
int fit_batch_axis(const Module *m); /* the first of the mesh that cuts Batch; -1: none */
#endif
