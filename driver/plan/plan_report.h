/* The data of `shardc plan` about one plan, and its topics, which write it into a sheet
   (driver/sheet). It holds for each rank or, if classes of ranks differ (stage_class.h), for the
   class that needs the most memory; the memory of each class is stored as well. */
#ifndef SHARDC_PLAN_REPORT_H
#define SHARDC_PLAN_REPORT_H
#include "driver/cmd.h"
#include "driver/fit/fit.h"
#include "driver/sheet/sheet.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/cost/step.h"
#include "ir/phases.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"

typedef struct Alternative { /* a value of a setting, and the plan with it */
  const char *value;
  bool taken; /* it is the plan's */
  Cost cost;
} Alternative;
typedef VEC(Alternative) Alternatives; /* none: there is no choice */

typedef struct PlannedClass {
  const char *name, *ranks; /* first; "0-7, 16-23" */
  int64_t count;            /* of its ranks */
  Budget need;
  double flop;
} PlannedClass;

typedef struct OffloadLeft { /* the plan with one group on the device */
  const char *paths;
  bool update; /* of these the update with its gradients; else the parameters */
  Cost cost;
} OffloadLeft;

typedef struct OffloadPays { /* plan_offload.c */
  bool known;
  Cost without; /* of the plan without its lines `offload` */
  VEC(OffloadLeft) left;
} OffloadPays;

typedef struct GanttMark { /* a message to a neighbour, or from one */
  bool sends;
  int kind; /* of the turn: TURN_FORWARD .. */
  int64_t part;
  double from, to;
} GanttMark;

typedef struct GanttLane { /* of a stage, in the order of time */
  VEC(TurnSpan) span;      /* while it computes */
  VEC(GanttMark) mark;
} GanttLane;

typedef struct PlanGantt { /* a step of a pipeline: by its table, or as it was measured */
  ScheduleTable table;
  GanttLane *lane; /* by stage */
  double total;    /* by the table in operations, messages take no time; else in seconds */
  double second;   /* seconds per unit; 0: not known */
} PlanGantt;

typedef struct ComparedRow { /* seconds of a step */
  const char *name;
  KernelPart part; /* of a kernel */
  double forecast, measured;
} ComparedRow;

typedef struct PlanCompared {                     /* plan_compare.c */
  double seconds;                                 /* of the measured step */
  ComparedRow part[KERNEL_PARTS], axis[MAX_MESH]; /* waits for messages over each axis */
  VEC(ComparedRow) kernel;                        /* by difference, the largest first */
} PlanCompared;

typedef struct Measured { /* plan_measured.c */
  const char *path;
  int64_t step, steps;          /* the step that is shown, and the number of steps */
  double error;                 /* seconds that its times may be off */
  const PlanCompared *compared; /* NULL: there is no forecast */
  bool scheduled;               /* the plan has a schedule, and the following */
  PlanGantt gantt;
  double *still; /* by stage: seconds that it was blocked inside of turns */
} Measured;

typedef struct Planned {
  const char *name; /* of the plan; "" for the default one */
  Module *m;        /* of the class that needs the most memory */
  Module *hosting;  /* of the one that has the most on the host, or m: of it is host */
  Programs programs;
  PlannedClass class[STAGE_CLASSES];
  Budget need;
  HostBudget host; /* 0 without `offload` */
  OffloadPays offload;
  double checkpoint; /* bytes; 0: not known, as of a dump */
  int64_t frame;     /* bytes of the largest entry's frame, part of need.total */
  Machine machine;
  PlanStep step, later; /* later: 1-bit Adam's frozen ones, late ones, after `from` of `step` */
  Forecast forecast, later_forecast; /* of these */
  Phase phase;                       /* of those; PHASE_none: there are none */
  double from, steps;                /* from 0: the run finds out */
  bool fits;
  Alternatives accumulate, micro, bucket, ways; /* plan_alternatives.c */
  Timeline timeline;                            /* only if a picture is wanted */
  const Measured *measured;                     /* NULL: nothing was */
} Planned;

typedef struct PlanPart {
  const char *name;
  int64_t bytes;
} PlanPart;
enum { PLAN_PARTS = 7 };
void plan_parts(const Planned *planned, const Budget *b, PlanPart out[PLAN_PARTS]);
/* " = 2 Ψ/8": bytes of that part (of plan_parts) as the stage of `zero` has them; "" if it has not
   (plan_formula.c). */
const char *plan_formula(const Module *m, int part, int64_t bytes);

/* ---- the topics of `plan` ---- */

#define TOPIC(name, contents) void topic_##name(Sheet *sheet, const Planned *planned);
#include "plan_topics.def"
#undef TOPIC
/* Parts of these. */
void plan_traffic_of(Sheet *sheet, const Planned *planned, const PlanStep *step);
void plan_time_of(Sheet *sheet, const Planned *planned, const PlanStep *step);
void plan_background_of(Sheet *sheet, const Planned *planned, const StepTime *time);
void plan_forecast_of(Sheet *sheet, const Planned *planned, const Forecast *forecast);
void plan_freeze(Sheet *sheet, const Planned *planned); /* plan_freeze.c */
void plan_moves(Sheet *sheet, bool shown, const char *words, const Moves *moves); /* plan_host.c */
void plan_measured(Sheet *sheet, const Planned *planned, const PlanGantt *plan);

/* ---- their figures ---- */

double plan_checkpoint(const Cli *o); /* bytes (plan_checkpoint.c) */
double plan_bytes_sent(const PlanStep *step);
bool plan_freezes(const Planned *planned);             /* 1-bit Adam */
void plan_classes(Planned *planned);                   /* fills p->class */
bool plan_gantt(const Planned *planned, PlanGantt *s); /* false: stages have no classes */
bool plan_measure(Planned *planned, const char *path); /* plan_measured.c; false: reported */
/* Nothing of one rank, and without a clock. */
void plan_alternative_tries(const Cli *o, Planned *planned);
void plan_offload_tries(const Cli *o, Planned *planned);

/* ---- pictures ---- */

void plan_svg(FILE *out, const Planned *planned); /* plan_svg.c */
const char *plan_colour(int part);
/* saved f32[Layers:4, Batch:8, ..] of h.fwd (model.shard:20) */
const char *plan_buffer(const Planned *planned, const Alive *alive);
void plan_gantt_svg(FILE *out, const Planned *planned, const PlanGantt *plan_gantt);
double plan_scale_step(double all); /* seconds between the marks of a scale, a round number */

/* plan_page.c */
typedef struct PlanPage PlanPage;
PlanPage *plan_page_new(Arena *arena);
void plan_page_add(PlanPage *page, const Planned *planned, const Sheet *sheet);
Exit plan_page_write(PlanPage *page, Ctx *c, const char *model, const char *path);
const char *plan_css_text(size_t *n); /* plan.css, embedded */
#endif
