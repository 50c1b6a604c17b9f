/* The optimizer step under construction: shared by optimizer.c and the rules (update_rules.c,
   muon.c, onebit.c). */
#ifndef SHARDC_PASSES_UPDATE_H
#define SHARDC_PASSES_UPDATE_H
#include "loss_scale.h"
#include "optimizer.h"
#include "ir/plan/optimizers.h"

typedef struct Update {
  Module *m;
  const Fn *model;  /* the step that `grad` made: lines `project` are read in it (projected.c) */
  Fn *f;            /* the new step */
  Loc loc;          /* of the parameter in work */
  uint32_t globals; /* number of globals that may have a gradient: those from before */
  RateSchedule s;
  int line;            /* of the settings train.optim whose rule this is (ir/plan/optimizers.h) */
  ValueId factor, lr;  /* of the schedule; the rate: f64[] */
  ValueId loss;        /* f32[] or NO_VALUE */
  ValueId coefficient; /* of clipping, f32[] or NO_VALUE */
  ValueId fine;        /* the step is to be applied, bool[], or NO_VALUE: it always is */
  ValueId late;        /* it updates with the gradient of the step before, or NO_VALUE: never */
  ValueId whole;       /* is its own gradient finite, bool[], or NO_VALUE: not needed */
  ValueId count;   /* of this update, from 1, f64[]: steps left out for the scale do not count */
  LossScale scale; /* of the gradients */
  double betas[2], eps, decay, momentum; /* decay: as compiled; 0 stays so */
  bool nesterov;
  Elem states; /* of moments, between steps */
  /* AdamW: f32[], made once */
  ValueId shrink, rate, root; /* 1 - lr decay; lr / (1 - beta1^t); sqrt(1 - beta2^t) */
  ValueId fresh;              /* LAMB: 1 - beta1^t, and rate is lr; others: of their rule */
  ValueId share;              /* schedule-free: of this step in the average */
  /* moments in 8 bits, of the first and the second (codes8.c), f32[] */
  ValueId phase_was[2], phase_is[2], dither;
  /* weights of the old and the new second moment, f32[]; NO_VALUE: beta2, 1 - beta2 */
  ValueId stays, comes;
} Update;

static inline ValueId bin(Update *u, OpCode c, ValueId a, ValueId b) {
  return ir_binary(u->m, u->f, c, a, b, u->loc);
}

static inline ValueId num(Update *u, double value) {
  return ir_const(u->m, u->f, ELEM_f32, value, u->loc);
}
static inline ValueId un(Update *u, OpCode c, ValueId a) {
  return ir_unary(u->m, u->f, c, a, u->loc);
}
static inline ValueId pick(Update *u, ValueId which, ValueId a, ValueId b) {
  return ir_where(u->m, u->f, which, a, b, u->loc);
}
static inline ValueId load(Update *u, Global *g) { return ir_load(u->m, u->f, g, u->loc); }
static inline ValueId times(Update *u, ValueId a, double b) { return bin(u, OP_mul, a, num(u, b)); }
static inline ValueId to_f32(Update *u, ValueId a) {
  return ir_cast(u->m, u->f, a, ELEM_f32, u->loc);
}

/* Weight decay, f64[]. Compiled as 0, it has no ops that a run could give another value. */
static inline ValueId decay_number(Update *u) {
  if (u->decay == 0) return schedule_number(&u->s, 0);
  return schedule_setting(&u->s, optimizer_key(u->m, u->line, "train.optim.weight_decay"));
}

static inline bool decays(const Update *u, const Global *global) {
  return global->decay && u->decay != 0;
}

/* w - lr decay w */
static inline ValueId shrunk(Update *u, const Global *global, ValueId w) {
  return decays(u, global) ? bin(u, OP_mul, w, u->shrink) : w;
}

/* States begin as zeros, as every byte of a fresh arena is: `init` need not touch them. */
static inline Global *state(Update *u, const Global *g, const char *name) {
  Module *m = u->m;
  Str path = intern_printf(m->ctx->names, "%s.%s", g->name, name);
  Global *s = module_global(m, path);
  if (!s) s = module_add_global(m, GLOBAL_STATE, path, g->type, g->loc);
  return s;
}

/* A moment: a state in the type of the setting `states`. Read, it is f32. */
static inline Global *moment(Update *u, const Global *g, const char *name) {
  Global *s = state(u, g, name);
  if (u->states != ELEM_f32) s->type.elem = u->states;
  return s;
}
static inline ValueId read_moment(Update *u, Global *s) {
  ValueId v = load(u, s);
  return s->type.elem == ELEM_f32 ? v : un(u, OP_wide, to_f32(u, v));
}

/* One of no parameter. */
static inline Global *update_state(Module *m, const char *name, Type t) {
  Global *g = global_named(m, name);
  return g ? g : module_add_global(m, GLOBAL_STATE, intern(m->ctx->names, name), t, (Loc){0});
}

/* Lines `project` (projected.c): by op of a step, is it read by such lines alone? Has a parameter
   one, and its value by the line. */
bool *projected_alone(Module *m, const Fn *step);
bool projected_is(const Update *u, const Global *global);
ValueId projected_value(Update *u, const Global *global, ValueId updated);

/* Stores the new value of a parameter, projected, or of a state, if the step is fine; returns the
   stored value. */
static inline ValueId put(Update *u, Global *g, ValueId v) {
  if (projected_is(u, g)) v = projected_value(u, g, v);
  if (value_type(u->f, v)->elem != g->type.elem) v = ir_cast(u->m, u->f, v, g->type.elem, u->loc);
  if (u->fine != NO_VALUE) v = pick(u, u->fine, v, load(u, g));
  ir_store(u->m, u->f, g, v, u->loc);
  return v;
}

/* The rule of each optimizer (update_rules.c, muon.c, onebit.c): values that depend on the step
   alone; the update of one parameter of value w with gradient d. */
#define OPTIMIZER(name, states, flags)                                                             \
  void update_##name##_begin(Update *u);                                                           \
  void update_##name(Update *u, Global *global, ValueId w, ValueId d);
#include "ir/plan/optimizers.def"
#undef OPTIMIZER
void update_decoupled(Update *u); /* rate and shrink, of rules that use lr as it is */

/* Begins the update in entry u->f, made from `step`: schedule, scale, settings, rate. */
void update_begin(Update *u);
/* The gradient in the type in which it waits, converted to f32. */
ValueId update_delivered(Update *u, ValueId d);
bool update_wants_norm(const Update *u);
/* Tells the norm of all gradients, clips, unscales, guards. */
void update_guarded(Update *u, ValueId norm, bool clips);
/* A moving average of the updated parameters (average.c), if requested. */
void update_averages(Update *u, const ValueId *gradient);
/* The delayed update (delay.c), if requested: for a step, as update_begin begins it; exchanges the
   results of the norm for the waiting ones; and a gradient likewise. */
void update_delay_begin(Update *u);
void update_delay_numbers(Update *u);
ValueId update_delay(Update *u, const Global *g, ValueId d);

/* freeze = auto (onebit_auto.c): the number of steps after which the norms of the second moments
   are compared, 0: not requested; and the entry that does so, for the parameters that have a
   gradient. */
int64_t onebit_window(const Module *m);
void onebit_look(Module *m, uint32_t globals, const ValueId *gradient);
/* 1-bit Adam (onebit.c): the entry `step.frozen` made from
   the `step` that `grad` made; NULL: refused. */
/* If plan.micro cuts steps: `step` without its stores of gradients, made of the gradients of
   workers like step.frozen, so that samples have the same layout in all entries; the same for
   `eval`. */
Fn *onebit_warm_up(Module *m, const Fn *step, ValueId *gradient, ValueId *loss);
Fn *onebit_entry(Module *m, const Fn *step);
#endif
