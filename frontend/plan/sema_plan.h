/* Inside of the check of plans: a plan as its rules and its mesh (sema_plan.c), its stages
   (sema_stages.c), its paths (sema_paths.c), and its machine (sema_machine.c). */
#ifndef SHARDC_SEMA_PLAN_H
#define SHARDC_SEMA_PLAN_H
#include "plan.h"
#include "frontend/settings/settings.h"

typedef struct PlanAxis {
  Str name;
  int64_t size;
  Span value;
  bool placed; /* a `place` line has it */
} PlanAxis;

typedef struct Placed { /* a dim in a `place` line, or a path */
  Str dim;
  Span span;
  bool otherwise; /* after `else` */
} Placed;

typedef struct PlaceLine { /* one `place` line */
  const AstSetting *line;
  VEC(Placed) dims;
  VEC(Placed) paths; /* parameters, or what they are part of */
  VEC(const PlanAxis *) axes;
  Span target;                 /* the axes as written */
  bool none;                   /* -> none: these tensors stay whole */
  const AstValue *balanced;    /* the word; NULL: ranks have one block of each dim */
  const AstValue *activations; /* the word; NULL: parameters are split as well */
  const AstValue *ring;        /* the word; NULL: attention gathers keys and values */
} PlaceLine;

typedef struct PlanCheck {
  Eval *e;
  World *w;
  const Choice *c;
  const AstItem *item;
  VEC(PlanAxis) mesh;
  VEC(PlaceLine) rules;
} PlanCheck;

bool plan_is_stack_dim(const PlanCheck *p, Str dim);
int64_t plan_mesh_ranks(const PlanCheck *check); /* all ranks of the mesh */
int64_t plan_ranks_of(const PlaceLine *line);
bool plan_cuts_batch(const PlaceLine *line);
const PlaceLine *plan_batch_rule(const PlanCheck *p); /* the first that cuts Batch; NULL: none */
int64_t plan_batch_ranks(const PlanCheck *p);         /* over which all lines cut it */
int64_t plan_zero_ranks(PlanCheck *p);                /* that share what `zero` partitions */
/* Checks layers over a number of stages: E0704. */
void check_layers(PlanCheck *p, const Placed *placed, int64_t size, int64_t ranks);
/* `mesh auto`, `plan auto`: the driver writes the plan. False: it is neither (sema_search.c). */
bool check_searched(PlanCheck *check); /* E0602 */
/* Help of E0701: ranks that share key/value heads (sema_heads.c). */
void help_heads(PlanCheck *check, Report *r, const PlaceLine *rule, const Placed *heads);
bool plan_line_has_axis(const PlaceLine *line, const PlanAxis *axis);
/* Refuses a line whose axes earlier lines have: E0606 (sema_shared_axis.c). */
void check_shared_axis(PlanCheck *check, const PlaceLine *line);
void check_balanced(PlanCheck *check, const PlaceLine *rule);    /* E0602, E0701 (sema_balance.c) */
void check_activations(PlanCheck *check, const PlaceLine *rule); /* E0602 (sema_balance.c) */
void check_ring(PlanCheck *check, const PlaceLine *rule);        /* E0602 (sema_balance.c) */
void check_stages(PlanCheck *p);          /* E0602, W0702, W0706 (sema_stages.c) */
void check_machine(PlanCheck *check);     /* E0201, E0708, N0701 */
void check_flights(PlanCheck *check);     /* E0602, N0702 (sema_flight.c) */
void check_ignored(PlanCheck *check);     /* E0602, W0706 (sema_ignored.c) */
void check_onebit_plan(PlanCheck *check); /* E0602, E0703, E0901 (sema_onebit.c) */
void check_offload(PlanCheck *check);     /* E0606, E0709, E0901 (sema_offload.c) */
/* E0709 for a path that is a prefix of no parameter of the model, or has layers that do not
   exist. */
bool plan_names_params(PlanCheck *check, const AstValue *value);
/* E0709 for a path whose first word is unknown, or that has layers that do not exist. */
void plan_names_part(PlanCheck *check, const AstValue *value);
/* The stack of whose layers a path names some: enc.layers of enc.layers[0..3].attn; else its first
   word. */
Str plan_stack_of(const PlanCheck *check, const AstValue *value);
bool plan_has_path(const PlanCheck *check, Str path);    /* of a parameter, or a prefix of one */
void check_messages(PlanCheck *check);                   /* E0602, W0707 (sema_messages.c) */
int64_t plan_int8_numbers(const PlanCheck *check);       /* that share a scale; 0: nothing does */
void warn_wide(PlanCheck *check, const PlaceLine *rule); /* W0708 */
#endif
