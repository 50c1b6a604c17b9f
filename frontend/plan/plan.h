/* Train, plan, data, machine and weights blocks: checked against the model and written as settings
   of the module. */
#ifndef SHARDC_PLAN_H
#define SHARDC_PLAN_H
#include "frontend/model/build.h"

/* The model and the blocks that are chosen for a program. */
typedef struct Choice {
  const Decl *model;        /* a model or variant */
  const AstItem *base;      /* the model's item */
  const AstItem *variant;   /* or NULL */
  const Decl *train, *plan; /* or NULL */
} Choice;

/* ---- the task of a data line (sema_task.c) ---- */
typedef struct Fed { /* an input that a data line feeds */
  Str name;
  Span span;
} Fed;
typedef VEC(Fed) Feds;

void fed_push(Eval *e, Feds *out, Str name, Span span);
void task_feeds(Eval *e, const AstValue *task, Feds *out);
void check_task(Eval *e, const AstSetting *line, const AstValue *task); /* E0402, E0601 .. E0606 */
void check_columns(Eval *e, const AstSetting *line); /* E0602, W0706 (sema_columns.c) */
void check_next(Eval *e, const AstSetting *line); /* the task of a line without one: E0604, E0606 */
void write_task(Module *m, Eval *e, const AstValue *task);

/* ---- checks of settings that need the model (sema_data.c, sema_plan.c) ---- */
void check_data(Eval *e, const Choice *choice);      /* E0604 */
void check_weights(Eval *e, const AstItem *weights); /* E0502, E0503 */
void check_onebit(Eval *e, const AstItem *train);    /* E0602, E0703 (sema_onebit.c) */
void check_states(Eval *e, const AstItem *train);    /* E0602, W0503 (sema_states.c) */
void check_nesterov(Eval *e, const AstItem *train);  /* E0602 */
/* E0602, E0606, E0709, E0901: the lines `optim .. of` (sema_groups.c) */
void check_groups(Eval *e, const Choice *choice, const AstItem *train);
void check_delay(Eval *e, const AstItem *train);                /* E0602, E0901 (sema_delay.c) */
void check_plan(Eval *e, const Choice *c, const AstItem *plan); /* E0701 .. E0709 */
void check_machine_block(World *w, const AstItem *item);        /* E0602, E0606 */
void check_recompute(Eval *e, const AstSetting *line);          /* E0709, E0606, E0901 */
void write_recompute(const Build *build, Eval *e, const AstItem *plan); /* the lines as settings */
void write_offload(const Build *build, const AstItem *plan);            /* the same */
void check_unbuilt(World *w,
                   const AstItem *item);     /* E0901, N0902: settings that no pass reads yet */
void check_built(World *w, const Choice *c); /* of all blocks of a program, and N0901 */
const Decl *plan_machine_of(World *w, const Decl *plan); /* NULL: it names none that there is */

/* ---- weights (lower_weights.c) ---- */
const AstItem *choose_weights(World *w, const Choice *choice); /* a block of the user's, or NULL */
/* The value of a config line as JSON; NULL: it has none (weights_config.c). */
Str config_number(Ctx *c, double v);
Str config_json(Eval *e, const AstValue *value);
const char *config_known(const char *key); /* its name among the known numbers, or NULL */
void check_weights_config(Eval *e, const AstItem *block); /* E0201, E0504, E0606 */
void write_weights(Module *m, Eval *e, const Choice *choice);
#endif
