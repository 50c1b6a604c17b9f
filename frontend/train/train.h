/* Train and weights blocks: checked against the model and written as settings of the module. */
#ifndef SHARDC_TRAIN_H
#define SHARDC_TRAIN_H
#include "frontend/plan/plan.h"
#include "ir/plan/optimizers.h"

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

/* ---- checks of settings that need the model ---- */
void check_data(Eval *e, const Choice *choice);      /* E0604 */
void check_weights(Eval *e, const AstItem *weights); /* E0502, E0503 */
void check_states(Eval *e, const AstItem *train);    /* E0602, W0503 (sema_states.c) */
void check_averages(Eval *e, const AstItem *train);  /* E0602 (sema_average.c) */
void check_nesterov(Eval *e, const AstItem *train);  /* E0602 */
const OptimizerRow *block_optimizer(const Eval *e, const AstItem *block); /* of its line `optim` */
/* E0602, E0606, E0709, E0901: the lines `optim .. of` (sema_groups.c) */
void check_groups(Eval *e, const Choice *choice, const AstItem *train);
/* Adapters (sema_lora.c): those of a block, or NULL; E0201, E0602, E0709, E0901. */
const Adapters *read_lora(Ctx *c, const AstItem *train);
void check_lora(Eval *e, const Choice *choice, const AstItem *train);
void write_lora(Module *m, const Eval *e); /* weights.adapter.PATH = the weight that it adapts */
void check_delay(Eval *e, const AstItem *train); /* E0602, E0901 (sema_delay.c) */

/* ---- weights (lower_weights.c) ---- */
const AstItem *choose_weights(World *w, const Choice *choice); /* a block of the user's, or NULL */
/* The value of a config line as JSON; NULL: it has none (weights_config.c). */
Str config_number(Ctx *c, double v);
Str config_json(Eval *e, const AstValue *value);
const char *config_known(const char *key); /* its name among the known numbers, or NULL */
void check_weights_config(Eval *e, const AstItem *block); /* E0201, E0504, E0606 */
/* A name of several lines (weights_shared.c): E0502; weights.reads.PATH = on: others write it */
void check_shared_names(Eval *e, const AstItem *weights);
void write_shared_names(Module *m, const Eval *e, const AstItem *weights);
void write_weights(Module *m, Eval *e, const Choice *choice);
#endif
