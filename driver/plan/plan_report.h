/* The data of `shardc plan` about one plan, for its output formats: text, JSON (cmd_plan.c), a page
   (plan_html.c). It holds for each rank or, if classes of ranks differ (stage_class.h), for the
   class that needs the most memory; the memory of each class is stored as well. */
#ifndef SHARDC_CMD_PLAN_H
#define SHARDC_CMD_PLAN_H
#include "driver/cmd.h"
#include "driver/fit/fit.h"
#include "frontend/lower.h"
#include "ir/cost/count.h"
#include "ir/cost/step.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"

/* The values of `accumulate` of `zero` and their costs, for plans with sharded gradients and
   several micro-batches. */
typedef struct Accumulation {
  const char *name;
  bool taken;
  Cost cost;
} Accumulation;
enum { ACCUMULATIONS = 2 };

typedef struct Alternative { /* plan_alternatives.c */
  const char *setting;       /* micro, bucket */
  int64_t value, total;      /* bytes of a rank */
  double seconds;            /* of a step, at least */
  bool taken;
} Alternative;
enum { ALTERNATIVES = 6 };

typedef struct PlannedClass {
  const char *name, *ranks; /* first; "0-7, 16-23" */
  int64_t count;            /* of its ranks */
  Budget need;
  double flop, moved;
} PlannedClass;

typedef struct OffloadTry { /* the plan with something else on the host */
  OffloadChoice choice;
  const char *left; /* the paths that stay on the device */
  bool update;      /* .. of the update; else of parameters */
  int64_t micro;
  bool made;
  Cost cost;
} OffloadTry;

typedef struct OffloadPays { /* plan_offload.c */
  bool known;
  OffloadTry without;
  VEC(OffloadTry) left; /* one group on the device in each */
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

typedef struct Measured { /* plan_measured.c */
  const char *path;
  int64_t step, steps; /* the step that is shown, and the number of steps */
  double error;        /* seconds that its times may be off */
  PlanGantt gantt;
  double *still; /* by stage: seconds that it was blocked inside of turns */
} Measured;

typedef struct Planned {
  const char *name; /* of the plan; "" for the default one */
  Module *m;        /* of the class that needs the most memory */
  Module
      *hosting; /* of the one that has the most on the host, or m: of it are host, moves, pinned */
  Programs programs;
  PlannedClass class[STAGE_CLASSES];
  const LowerFacts *facts;
  Budget need;
  HostBudget host; /* 0 without `offload` */
  OffloadPays offload;
  Moves moves;
  Pinned pinned;
  int64_t frame; /* bytes of the largest entry's frame, part of need.total */
  Machine machine;
  PlanStep step, later; /* later: 1-bit Adam's frozen ones, late ones, after `from` of `step` */
  const char *kind;     /* of those: frozen, late; NULL: there are none */
  double from, steps;   /* from 0: the run finds out */
  bool fits;
  Accumulation accumulate[ACCUMULATIONS];
  int naccumulate; /* 0: there is no choice */
  Alternative alternative[ALTERNATIVES];
  int nalternative;
  Timeline timeline;        /* only if a picture is wanted */
  const Measured *measured; /* NULL: nothing was */
} Planned;

typedef struct PlanPart {
  const char *name;
  int64_t bytes;
} PlanPart;
enum { PLAN_PARTS = 7, HOST_PARTS = 5, PINNED_AHEAD = 3, PINNED_PARTS = 4 };
/* " = 2 Ψ/8": bytes of that part (of plan_parts) as the stage of `zero` has them; "" if it has not
   (plan_formula.c). */
const char *plan_formula(const Module *m, int part, int64_t bytes);
/* PLAN_PARTS of them: weights .. reserve. */
void plan_parts(const Planned *planned, const Budget *b, PlanPart *out);
void plan_host_parts(const HostBudget *h, PlanPart out[HOST_PARTS]);
void plan_pinned_parts(const Pinned *h, PlanPart out[PINNED_PARTS]);
int64_t plan_sum(const PlanPart *part, int n);

double plan_bubble(const PlanStep *s); /* part of a step in which a rank waits for other stages */
const char *plan_mesh(const Planned *planned);  /* data = 2, tensor = 2 */
const char *plan_title(const Planned *planned); /* plan two for Tiny: 2 ranks (data = 2) */
/* saved f32[Layers:4, Batch:8, ..] of h.fwd (model.shard:20) */
const char *plan_buffer(const Planned *planned, const Alive *alive);

void plan_svg(FILE *out, const Planned *planned); /* plan_svg.c */
const char *plan_colour(int part);
/* plan_step.c */
double plan_bytes_sent(const PlanStep *step);
void plan_say_traffic(const Planned *planned, const PlanStep *step);
void plan_say_bucket(const Planned *planned); /* nothing where links have no latency */
void plan_put_bucket(const Planned *planned);
void plan_say_int8(const Planned *planned); /* in which messages, and what it rounds by */
void plan_put_int8(const Planned *planned);
void plan_say_time(const Planned *planned, const PlanStep *step);
void plan_put_communication(const Planned *planned,
                            const PlanStep *step); /* "communication":[..] */
void plan_put_time(const Planned *planned, const PlanStep *step);
/* Entries of steps after the warm-up: frozen; late, and the waiting time. */
const char *plan_warm_up(const Planned *planned); /* 2000 of 10000 steps */
void plan_say_later(const Planned *planned);
void plan_put_later(const Planned *planned);
/* plan_freeze.c: what a run of 1-bit Adam sends as a whole, what its `zero 1` saves */
bool plan_freezes(const Planned *planned);
const Fn *plan_entry(const Module *m, const char *name); /* NULL: there is none */
void plan_say_freeze(const Planned *planned);
void plan_put_freeze(const Planned *planned);
/* plan_classes.c */
void plan_classes(Planned *planned);                   /* fills p->class */
void plan_say_classes(const Planned *planned);         /* a column of bytes per class */
void plan_put_classes(const Planned *planned);         /* JSON: a list of them */
void plan_put_stages(const Planned *planned);          /* JSON: what `uneven` made of the layers */
bool plan_gantt(const Planned *planned, PlanGantt *s); /* false: stages have no classes */
void plan_gantt_svg(FILE *out, const Planned *planned, const PlanGantt *plan_gantt);
double plan_idle(const PlanGantt *gantt, int64_t stage); /* part of it, without computing */
/* plan_measured.c */
bool plan_measure(Planned *planned, const char *path); /* false: that was said */
void plan_say_measured(const Planned *planned);        /* nothing if nothing was measured */
void plan_put_measured(const Planned *planned);
/* plan_schedule.c: the pictures of the schedule, and what stages do not use of it */
void plan_html_schedule(FILE *file, const Planned *planned);
/* plan_nodes.c */
void plan_say_nodes(const Planned *planned); /* prints nothing if all ranks are on one node */
void plan_put_nodes(const Planned *planned);
void plan_html_nodes(FILE *file, const Planned *planned);
/* plan_offload.c */
void plan_offload_pays(const Cli *o, Planned *planned);
void plan_say_offload(const Planned *planned);
void plan_put_offload(const Planned *planned);
/* plan_alternatives.c: nothing of one rank, and without a clock */
void plan_alternatives(const Cli *o, Planned *planned);
void plan_say_alternatives(const Planned *planned);
void plan_put_alternatives(const Planned *planned);
/* plan_flights.c */
void plan_say_flights(const Planned *planned);
void plan_put_flights(const Planned *planned);

void plan_lanes_svg(FILE *out, const Planned *planned); /* plan_timeline.c */
double plan_scale_step(double all); /* seconds between the marks of a scale, a round number */

/* plan_html.c */
/* Begins a table: heads with a blank between; _ is one; # for numbers. */
void plan_html_heads(FILE *file, const char *heads);
void plan_html_number(FILE *file, const char *text);
typedef struct PlanPage PlanPage;
PlanPage *plan_page_new(Arena *arena);
void plan_page_add(PlanPage *page, const Planned *planned);
Exit plan_page_write(PlanPage *page, Ctx *c, const char *model, const char *path);
const char *plan_css_text(size_t *n); /* plan.css, embedded */
#endif
