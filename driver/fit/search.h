/* Changes of a plan, tried and compared: the one search of the driver. A change is a list of lines
   `key = value`; generators list changes of some keys (generate.c); a try compiles the program so
   changed to pass `memory`, in a context of its own: a tenth of a second even for large models. A
   change that cannot be compiled is no candidate. E0801 proposes with it (fit.c), and what a plan
   leaves open is chosen with it (choose.c, fit_offload.c). */
#ifndef SHARDC_SEARCH_H
#define SHARDC_SEARCH_H
#include "driver/cmd.h"
#include "frontend/lower.h"
#include "ir/cost/budget.h"
#include "ir/cost/machine.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/pipeline_schedule.h"
#include "passes/pass.h"

/* ---- changes: change.c ---- */

typedef struct PlanLine { /* plan.zero, "3" */
  const char *key, *value;
} PlanLine;
enum { MOST_LINES = 16 };
/* A key without a line stays as it is in the plan, or as it was chosen (Cli.chosen). Keys are those
   of `--set`, then lines that --set does not give (plan.recompute: one more; plan.offload;
   made.stage_layers), `mesh`: the order of its axes, `way` (ways.h), dim.NAME: a size, and
   `written`: the text of a plan that the file does not have. */
typedef struct Change {
  uint32_t n;
  PlanLine line[MOST_LINES];
} Change;
typedef VEC(Change) Changes;

/* With the line; in place of the one of that key. */
Change change_with(Arena *arena, Change change, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
const char *change_value(const Change *change, const char *key); /* NULL: no such line */
const char *change_words(Arena *arena, const Change *change);    /* `zero 1` with `micro 2` */
/* Makes the change in m, and part of all later tries. */
void change_choose(Cli *o, Module *m, const Change *change);
/* The programs of the plan so changed, after pass `memory`, in a context of their own: it is freed
   by whoever calls. False: they cannot be made, and there is no context. */
bool change_programs(const Cli *o, const Change *change, Ctx **c, Programs *out);
/* The same of the file into which the change is written: what it leaves open is chosen anew. why,
   if not NULL: the first error, if there is no program. */
bool change_anew(const Cli *o, const Change *change, Ctx **c, Programs *out, const char **why);
/* Prints why a plan that a change writes cannot be compiled. */
void change_explain(const Cli *o, const Change *change);

/* ---- the search: search.c ---- */

typedef struct CostTime {          /* seconds */
  double seconds, computes, waits; /* of these: arithmetic; messages that kernels wait for */
  double least; /* arithmetic without launches and ends of tiles: what no micro-batch is below */
  double alone, least_alone; /* with `micros`: of both, in which no message can be in flight */
  /* Likewise, outside of layers: of the last stage of a pipeline, of the first; both in `least` */
  double head, first, least_head, least_first;
} CostTime;

typedef struct SentKind { /* messages of one kind over an axis */
  int axis;               /* of the program's mesh */
  OpCode kind;
  double calls, bytes; /* in paper counting */
} SentKind;
enum { MOST_SENT = 24 };
typedef struct SentList {
  uint32_t n;
  SentKind at[MOST_SENT];
} SentList;

typedef struct CostLayer { /* of one layer in a micro-batch */
  bool known;
  double forward; /* seconds of kernels */
  double later;   /* .. for gradients of weights */
  double kept;    /* bytes of saved values that gradients of weights read */
  double saved;   /* bytes that go from the loop forward to the loop backward */
  double passed;  /* .. of those that these read and that gradients of activations compute */
  SentList forward_sent, later_sent; /* messages; those that gradients of weights alone read */
  SentList blocking[TURN_KINDS];     /* those for which kernels wait, by turn */
} CostLayer;

typedef struct Cost { /* of a rank, or of the class that has the most */
  Budget need;
  double elements, bytes; /* that it sends in a step, over all axes */
  double seconds;         /* the bound of its step, of BY_SECONDS; 0: not known */
  double moved;           /* bytes between its device and the host in a step */
  int64_t host;           /* bytes of the host's memory, with what is pinned for the runtime */
  double makespan;        /* of the table of its stages, in FLOP; 0: it has none */
  double leaves;          /* if asked for: bytes that leave nodes in the best order of the mesh */
  const char *mesh;       /* .. that order */
  CostTime forecast;      /* if asked for: of its step; the bound, where there is no forecast */
  bool foreseen;          /* `forecast` is no bound */
  CostTime micro;  /* if asked for: .. of one more micro-batch, of a program without stages */
  CostLayer layer; /* likewise */
  SentList sent, sent_micro; /* likewise: messages of the step, of one more micro-batch */
} Cost;

typedef enum Objective {
  BY_SECONDS,  /* of a step, by the forecast; of several within a hundredth the first */
  BY_MAKESPAN, /* of the stages, likewise */
  BY_NODES,    /* bytes that leave nodes, likewise */
  BY_BYTES,    /* of the device */
  BY_FREED     /* seconds, or bytes moved, for a byte that is freed; if it fits, in all */
} Objective;

typedef struct Try {
  Change change;
  Cost cost;
  bool made; /* it can be compiled */
} Try;

typedef struct ChangeSearch {
  const Cli *o;
  const Module *m;      /* the plan */
  Change base;          /* candidates are further changes of it */
  int64_t device, host; /* bytes of a rank that fit */
  Objective by;
  Cost from; /* BY_FREED: of the plan without the change */
  Try best;
  VEC(Try) tried;
  bool forecasts, micros; /* costs have a forecast; the time of a micro-batch */
  bool bounds;            /* .. the bound in place of the forecast */
  bool inside;            /* `alone`: of messages inside of a copy of the model */
} ChangeSearch;

/* Its limits are those of the machine. */
ChangeSearch search_new(const Cli *o, const Module *m, Objective by);
Cost search_cost(const ChangeSearch *search, const Programs *programs);
Try search_try(const ChangeSearch *search, Change change);
typedef struct TryJob { /* one change, or two: the second has one more layer */
  Change change[2];
  int n;
  /* The second is the first one, whose loops over layers run once more: of it only what a
     micro-batch adds, and the values that these loops save, are those of such a program. If the
     layers of the first are not known, both are compiled after all. */
  bool deeper;
  bool inside; /* `alone` of the first two: of messages inside of a copy of the model */
  Try made[2];
  int compiled; /* programs */
} TryJob;
/* One or two at once, in threads of their own; costs have no `mesh`. */
void search_try_jobs(const ChangeSearch *search, TryJob *job, int n);

/* ---- layer_cost.c; body: of the loop over micro-batches ---- */

/* Seconds of its kernels that only the last stage of a pipeline runs, at least, or the first. */
void cost_of_ends(const Module *m, const Machine *machine, const Fn *body, double *head,
                  double *first);
CostLayer cost_of_layer(const Module *m, const Machine *machine, const Fn *body);

/* ---- search.c ---- */

bool search_fits(const ChangeSearch *search, const Try *one); /* and it is made */
double search_whole(const Cost *cost); /* seconds of a step or, if not known, bytes moved */
bool search_better(const ChangeSearch *search, const Try *one, const Try *than);

/* E0801 tries those up to TRY_STEADY, each by itself. */
typedef enum Generator {
  TRY_SYNC,       /* saves for which training waits: no snapshot */
  TRY_PREFETCH,   /* fewer layers gathered ahead */
  TRY_OVERLAP,    /* messages that block: gradients need no rings then */
  TRY_ZERO,       /* the next stages */
  TRY_MICRO,      /* the largest smaller micro-batch */
  TRY_INPUT,      /* every stack recomputed from its input */
  TRY_SPLIT,      /* .. which is split over one axis */
  TRY_WIDER,      /* zero over one more axis */
  TRY_OFFLOAD,    /* optimizer, then gradients, then parameters on the host */
  TRY_STEADY,     /* the schedule of a pipeline with the fewest micro-batches in flight */
  TRY_RANKS,      /* as few more ranks as do, with their nodes */
  TRY_SCHEDULE,   /* of a pipeline */
  TRY_LAYERS,     /* numbers of layers of stages */
  TRY_ORDER,      /* of the mesh's axes that cut Batch */
  TRY_NEAR,       /* the nearest micro-batches */
  TRY_BUCKET,     /* a smaller and a larger bucket */
  TRY_WAY,        /* the other ways by which attention gets keys */
  TRY_ACCUMULATE, /* both forms of gradients between micro-batches */
  GENERATORS
} Generator;

typedef enum TryOrder {               /* of the changes of a generator: which are candidates */
                        ORDER_ALL,    /* each */
                        ORDER_FIRST,  /* the first that fits */
                        ORDER_LARGEST /* the last that fits; each needs more than those before it */
} TryOrder;
TryOrder search_list(const ChangeSearch *search, Generator generator,
                     Changes *out); /* generate.c */

/* Tries the changes of these generators, bits 1 << TRY_.. True: `best` is made and fits. */
bool search_run(ChangeSearch *search, unsigned generators);

/* ---- facts of a plan that changes are made of: generate.c ---- */

int64_t rank_share(const Module *m);     /* samples of a rank */
int64_t rank_micro(const Module *m);     /* .. of a micro-batch */
const char *batch_axes(const Module *m); /* "data, node": those that cut Batch */
/* The stacks of the model that are not nested in another one: "dec.*, enc.*". */
const char *stack_paths(const Module *m);

/* ---- the lines `offload`: offload_units.c ---- */

typedef struct OffloadChoice { /* paths of parameters for each of its words, "": none */
  const char *paths[OFFLOAD_WORDS];
} OffloadChoice;
typedef struct OffloadUnit {   /* what may be apart: a stack, or all that is in none */
  const char *stack;           /* h.*; "": in none */
  const char *paths, *updated; /* "wte, wpe, ln_f"; those that an update writes */
  int64_t layers, grain;       /* of the stack, and that go together; 1 of what is in none */
} OffloadUnit;
typedef VEC(OffloadUnit) OffloadUnits;
OffloadUnits offload_units(const Module *m);
const char *offload_paths(const Module *m, OffloadWord word); /* what the plan says */
const char *offload_without(Arena *arena, const char *list, const char *paths);
const char *offload_text(Arena *arena, const OffloadChoice *choice); /* "params of h.*" */
/* With this choice in place of the plan's. */
Change offload_change(const Module *m, Change change, const OffloadChoice *choice);
/* Sets a line of such a change: plan.offload, which drops the lines of other words, or the paths of
   a word. */
void offload_set(Module *m, const PlanLine *change);
#endif
