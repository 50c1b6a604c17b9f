/* Inside of lowering: functions under construction. A frame is the entry or the body of a loop; a
   body learns its arguments while it is written, from what it uses. */
#ifndef SHARDC_LOWER_BUILD_H
#define SHARDC_LOWER_BUILD_H
#include "frontend/lower.h"
#include "frontend/sema.h"

typedef struct Capture { /* a value of the parent, the same in every round */
  ValueId outer, inner;
} Capture;

typedef struct Stacked { /* a value of the parent, one slice per round */
  const void *key;       /* the parameter's path, or the list of numbers */
  ValueId outer, inner;
} Stacked;

typedef struct WeightLoad {
  Global *global;
  ValueId id;
} WeightLoad;

struct Frame {
  Fn *fn;
  Frame *parent; /* NULL: the entry */
  const Stack *stack;
  int64_t trip;
  ValueId counter, carried; /* carried: in the parent */
  VEC(Capture) captures;
  VEC(Stacked) stacked;
  VEC(WeightLoad) loads; /* of the entry */
  bool has_aux;
  Val aux; /* sum of the `aux` of this function */
  Span here;
};

struct Build {
  Module *m;
  Frame *root, *frame;
  uint32_t rands;        /* random tensors so far: makes their keys differ */
  const uint32_t *files; /* file number of the module per number of the diagnostics */
};

Loc build_loc(const Build *build, Span s);
Type lower_type(Eval *e, Elem elem, const Dims *dims);
ValueId emit_use(Eval *e, const Val *v); /* its id in the function that is being written */
ValueId emit_rounds(Module *m, Fn *fn, const Val *v, Loc loc);
ValueId emit_rand_op(Module *m, Fn *fn, const ValueId *in, const Type *t, const char *path,
                     Loc loc);
uint32_t random_key(const char *path); /* FNV-1a, 32 bits */

/* ---- what is chosen for a program (lower_choose.c) ---- */
typedef struct Choice {
  const Decl *model;        /* a model or variant */
  const AstItem *base;      /* the model's item */
  const AstItem *variant;   /* or NULL */
  const Decl *train, *plan; /* or NULL */
} Choice;

bool choose_program(World *w, const LowerOptions *options, Choice *out);
/* A plan of FILE that would serve, when none was asked for; NULL: none. */
Str choose_plan_left(World *w, const Choice *choice);
bool choose_for_model(World *w, const Decl *model,
                      Choice *out); /* its base and its train block; false: E0603 or a wrong base */
Sizes *choice_sizes(World *w, const Choice *choice);
void give_command_line(World *w, Sizes *sizes, const LowerOptions *options);

/* ---- the task of a data line (sema_task.c) ---- */
typedef struct Fed { /* an input that a data line feeds */
  Str name;
  Span span;
} Fed;
typedef VEC(Fed) Feds;

void fed_push(Eval *e, Feds *out, Str name, Span span);
void task_feeds(Eval *e, const AstValue *task, Feds *out);
void check_task(Eval *e, const AstSetting *line, const AstValue *task); /* E0402, E0601 .. E0606 */
void check_next(Eval *e, const AstSetting *line); /* the task of a line without one: E0604, E0606 */
void write_task(Module *m, Eval *e, const AstValue *task);

/* ---- checks of settings that need the model (sema_data.c, sema_plan.c) ---- */
void check_data(Eval *e, const Choice *choice);                 /* E0604 */
void check_weights(Eval *e, const AstItem *weights);            /* E0502, E0503 */
void check_onebit(Eval *e, const AstItem *train);               /* E0602, E0703 (sema_onebit.c) */
void check_states(Eval *e, const AstItem *train);               /* E0602, W0503 (sema_states.c) */
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
/* --set: train block, plan and machine become copies with these settings. E0601, E0602, E0901 */
void apply_command_line(World *w, Choice *choice, const LowerOptions *options);
void write_settings(Module *m, Eval *e, const Choice *choice, const LowerOptions *options);
void write_data(Module *m, Eval *e, const Choice *choice);

void write_mesh(Build *build, const Sizes *sizes, const AstItem *plan); /* lower_plan.c */

/* ---- weights (lower_weights.c) ---- */
const AstItem *choose_weights(World *w, const Choice *choice); /* a block of the user's, or NULL */
void check_weights_config(Eval *e, const AstItem *block);      /* E0201 */
void write_weights(Module *m, Eval *e, const Choice *choice);

/* ---- layouts for people (lower_layout.c) ---- */
/* Figures of what a checked model uses, added to out, which may be NULL; W0304 */
void layouts_of(Eval *checked, LayoutList *out);
void draw_layouts(Eval *checked, LayoutDrawings *out);

void lower_init(Build *build, Eval *e); /* the entry that makes initial values */
#endif
