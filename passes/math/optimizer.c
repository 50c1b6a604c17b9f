/* optimizer: an update rule per parameter, appended to the entry `step`. Its states begin as
   zeros.

   Takes the gradients that `grad` stored to the outputs grad.NAME and removes these outputs, unless
   setting debug.gradients is on. Settings read: train.optim (a row of optimizers.def, whose rule is
   in update_rules.c or muon.c; for 1-bit Adam onebit.c makes a second entry) with .lr .betas .eps
   .weight_decay .momentum .nesterov .scale .states, and train.optim.N, the same for groups of
   parameters (ir/plan/optimizers.h); train.lr (the schedule, schedule_lr.c); train.clip;
   train.delay (delay.c); train.ema (average.c). States with a rule of their own get the values
   that `step` stores to the outputs MADE_NEXT NAME. Without train.optim nothing is updated and
   gradients stay outputs.

   Formulas are PyTorch's AdamW and SGD, term by term; values that depend on the step alone are
   computed in f64 and rounded once. An update is a handful of ops on a whole (stacked) parameter.
   A step whose loss or gradients are not finite changes nothing (guard_nonfinite.c), unless
   train.on_nan is off. Outputs: lr, the rate of this step; norm.of.gradients and, per parameter,
   norm2.of.NAME. */
#include "ir/made.h"
#include "update.h"
#include "guard_nonfinite.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/optimizers.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

typedef struct UpdateRule {
  const char *name;
  void (*begin)(Update *u);
  void (*update)(Update *u, Global *global, ValueId w, ValueId d);
} UpdateRule;

static const UpdateRule rules[] = {
#define OPTIMIZER(name, states, flags) {#name, update_##name##_begin, update_##name},
#include "ir/plan/optimizers.def"
#undef OPTIMIZER
};

static const UpdateRule *rule_of(const Module *m, int line) {
  Str name = module_word(m, optimizer_key(m, line, "train.optim"));
  for (size_t i = 0; i < COUNT_OF(rules); i++)
    if (!strcmp(rules[i].name, name)) return &rules[i];
  bug("optimizer `%s`", name);
}

/* ---- clipping and guarding ---- */
/* 0: gradients are not clipped. */
static double largest_norm(const Module *m) { return module_amount(m, "train.clip"); }

/* min(1, clip / (norm + 1e-6)) */
static void clip(Update *u, ValueId norm) {
  if (largest_norm(u->m) <= 0) return;
  ValueId limit = to_f32(u, schedule_setting(&u->s, intern(u->m->ctx->names, "train.clip")));
  ValueId ratio = bin(u, OP_div, limit, bin(u, OP_add, norm, num(u, 1e-6)));
  u->coefficient = bin(u, OP_min, ratio, num(u, 1));
}

/* Gradients are multiplied by the scale until the update reads them: one factor takes it out and
   clips. */
static void unscale(Update *u) {
  must(u->scale.inverse != NO_VALUE, "gradients that carry no scale are unscaled");
  if (u->coefficient == NO_VALUE) u->coefficient = u->scale.inverse;
  else u->coefficient = bin(u, OP_mul, u->coefficient, u->scale.inverse);
}

static void guard(Update *u, ValueId norm) {
  ValueId loss = u->loss == NO_VALUE ? NO_VALUE : guard_finite(u->m, u->f, u->loss);
  ValueId fine = guard_finite(u->m, u->f, norm);
  u->fine = loss == NO_VALUE ? fine : bin(u, OP_and, loss, fine);
  loss_scale_step(u->m, u->f, &u->scale, loss, fine);
}

static bool is_guarded(const Update *u) {
  return u->scale.now != NO_VALUE || strcmp(module_word(u->m, "train.on_nan"), "off");
}

bool update_wants_norm(const Update *u) { return is_guarded(u) || largest_norm(u->m) > 0; }

void update_guarded(Update *u, ValueId norm, bool clips) {
  bool scaled = u->scale.now != NO_VALUE;
  if (norm == NO_VALUE) return;
  if (scaled) norm = bin(u, OP_mul, norm, u->scale.inverse);
  guard_output(u->m, u->f, "norm.of.gradients", norm);
  if (clips) clip(u, norm);
  if (scaled) unscale(u);
  if (is_guarded(u)) guard(u, norm);
}

static void measure(Update *u, const ValueId *gradient) {
  if (!update_wants_norm(u)) return;
  update_guarded(u, guard_norm(u->m, u->f, u->globals, gradient), true);
}

/* ---- putting it together ---- */
static const char *base_name(const Global *global) {
  return global->kind == GLOBAL_OUTPUT ? made_rest(global->name, MADE_GRADIENT) : NULL;
}

/* The next value of a state with a rule (frontend/model/sema_rule.c). */
static const char *ruled_name(const Global *global) {
  return global->kind == GLOBAL_OUTPUT ? made_rest(global->name, MADE_NEXT) : NULL;
}

/* Copies step without its stores of gradients and next values; gradient[i], next[i]: of global i,
   in the copy. */
static Fn *take_gradients(Module *m, Fn *step, ValueId *gradient, ValueId *next, ValueId *loss) {
  Rebuild rebuild = rebuild_begin(m, step);
  const bool *left_out = projected_alone(m, step);
  EACH_OP (step, o) {
    if (*left_out++) continue;
    const char *name = o->code == OP_store ? base_name(o->global) : NULL, *rule = NULL;
    if (o->code == OP_store && !name) rule = ruled_name(o->global);
    for (uint32_t g = 0; (name || rule) && g < m->globals.n; g++)
      if (!strcmp(m->globals.at[g]->name, name ? name : rule))
        (name ? gradient : next)[g] = rebuild.map[o->in[0]];
    if (o->code == OP_store && !strcmp(o->global->name, "loss")) *loss = rebuild.map[o->in[0]];
    if (!name && !rule) rebuild_op(&rebuild, o);
  }
  return rebuild.to;
}

/* Outputs grad.NAME that stay, without the scale. */
static void store_gradients(Update *u, const ValueId *gradient) {
  for (uint32_t i = 0; i < u->globals; i++) {
    if (gradient[i] == NO_VALUE) continue;
    Str name = name_made(u->m, MADE_GRADIENT "%s", u->m->globals.at[i]->name);
    ValueId d = gradient[i];
    if (u->scale.now != NO_VALUE) d = bin(u, OP_mul, d, u->scale.inverse);
    ir_store(u->m, u->f, module_global(u->m, name), d, u->m->globals.at[i]->loc);
  }
}

/* The outputs of gradients, unless they are kept, and of next values. */
static void drop_outputs(Module *m, bool keep) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    const char *name = keep ? NULL : base_name(global);
    if (!name && global->kind == GLOBAL_OUTPUT) name = made_rule(global->name);
    Global *of = name ? global_named(m, name) : NULL;
    if (!of || of->kind != GLOBAL_PARAM) m->globals.at[n++] = global;
  }
  m->globals.n = n;
}

/* The settings of a line, and the rate. */
static void read_line(Update *u, int line) {
  Module *m = u->m;
  u->line = line;
  module_amounts(m, optimizer_key(m, line, "train.optim.betas"), 2, u->betas);
  u->eps = module_amount(m, optimizer_key(m, line, "train.optim.eps"));
  u->decay = module_amount(m, optimizer_key(m, line, "train.optim.weight_decay"));
  u->momentum = module_amount(m, optimizer_key(m, line, "train.optim.momentum"));
  u->nesterov = module_on(m, optimizer_key(m, line, "train.optim.nesterov"));
  Str states = module_said(m, optimizer_key(m, line, "train.optim.states"));
  u->states = ELEM_f32;
  if (states && !strcmp(states, "int8")) u->states = ELEM_u8;
  else if (states) must(elem_find(states, &u->states), "states of type %s", states);
  ValueId rate = schedule_setting(&u->s, optimizer_key(m, line, "train.optim.lr"));
  u->lr = schedule_binary(&u->s, OP_mul, rate, u->factor);
}

/* How many times a step adds up gradients. */
static double rounds(const Module *m) {
  double part = (double)plan_micro(m);
  for (uint32_t i = 0; i < m->dims.n && part > 0; i++)
    if (!strcmp(m->dims.at[i].name, "Batch")) return (double)m->dims.at[i].size / part;
  return 1;
}

/* With narrow products: the gradient in the type in which it waits, converted to f32. */
ValueId update_delivered(Update *u, ValueId d) {
  const char *compute = plan_precision(u->m);
  if (!strcmp(compute, "f32") || !strcmp(compute, "tf32")) return d;
  const char *waits = plan_gradient_type(u->m);
  if (!waits) waits = rounds(u->m) > 1 ? "f32" : compute;
  Elem e = ELEM_f32;
  if (elem_find(waits, &e) && e != ELEM_f32) d = to_f32(u, ir_cast(u->m, u->f, d, e, u->loc));
  return un(u, OP_wide, d);
}

/* The number of this update, from 1. */
static ValueId count_updates(Update *u) {
  RateSchedule *s = &u->s;
  ValueId t = schedule_binary(s, OP_add, s->t, schedule_number(s, 1));
  if (u->scale.now == NO_VALUE) return t;
  return schedule_binary(s, OP_sub, t, ir_cast(u->m, u->f, u->scale.skipped, ELEM_f64, (Loc){0}));
}

/* The update by one line's rule: what was found for all gradients, and the line's own numbers. */
typedef struct LineUpdate {
  Update u;
  const UpdateRule *rule;
} LineUpdate;

static LineUpdate begin_line(const Update *u, int line) {
  LineUpdate by = {.u = *u, .rule = rule_of(u->m, line)};
  if (line) read_line(&by.u, line);
  by.rule->begin(&by.u);
  return by;
}

static void update_param(LineUpdate *by, Global *global, ValueId gradient) {
  Update *u = &by->u;
  u->loc = global->loc;
  must(global->kind == GLOBAL_PARAM && !global->frozen,
       "@%s has a gradient and is not to be updated", global->name);
  must(type_same_dims(value_type(u->f, gradient), &global->type),
       "the gradient of @%s has other dims", global->name);
  ValueId d = update_delay(u, global, gradient);
  if (u->coefficient != NO_VALUE) d = bin(u, OP_mul, d, u->coefficient);
  by->rule->update(u, global, ir_load(u->m, u->f, global, global->loc), d);
}

/* A step that is left out leaves these states as they are, with `delay` its own. */
static void update_states(Update *u, const ValueId *next) {
  ValueId fine = u->fine;
  if (u->late != NO_VALUE) u->fine = u->whole;
  for (uint32_t i = 0; i < u->globals; i++)
    if (next[i] != NO_VALUE)
      u->loc = u->m->globals.at[i]->loc, put(u, u->m->globals.at[i], next[i]);
  u->fine = fine;
}

/* A parameter without a gradient is projected as well. */
static void project_others(Update *u, const ValueId *gradient) {
  for (uint32_t i = 0; i < u->globals; i++) {
    Global *global = u->m->globals.at[i];
    u->loc = global->loc;
    if (gradient[i] == NO_VALUE && projected_is(u, global)) put(u, global, load(u, global));
  }
}

static void update_all(Update *u, ValueId *gradient) {
  for (uint32_t i = 0; i < u->globals; i++)
    if (gradient[i] != NO_VALUE) gradient[i] = update_delivered(u, gradient[i]);
  measure(u, gradient);
  update_delay_numbers(u);
  int lines = optimizer_lines(u->m);
  for (int line = 0; line <= lines; line++) {
    LineUpdate by = begin_line(u, line);
    for (uint32_t i = 0; i < u->globals; i++)
      if (gradient[i] != NO_VALUE && optimizer_line_of(u->m, u->m->globals.at[i]->name) == line)
        update_param(&by, u->m->globals.at[i], gradient[i]);
  }
  update_averages(u, gradient);
  guard_output(u->m, u->f, "lr", to_f32(u, u->lr));
}

void update_begin(Update *u) {
  u->coefficient = u->fine = u->late = u->whole = u->stays = u->comes = NO_VALUE;
  u->s = schedule_begin(u->m, u->f);
  update_delay_begin(u);
  u->scale = loss_scale_load(u->m, u->f);
  u->count = count_updates(u);
  u->factor = schedule_factor(&u->s);
  read_line(u, 0);
}

void pass_optimizer(Module *m) {
  Fn *step = entry_of(m, "step");
  if (!step || !train_optimizer(m)) return;
  bool keep = !strcmp(module_setting(m, "debug.gradients", "off"), "on");
  ValueId *gradient = ARENA_ARRAY(m->arena, ValueId, m->globals.n + 1);
  ValueId *next = ARENA_ARRAY(m->arena, ValueId, m->globals.n + 1);
  for (uint32_t i = 0; i < m->globals.n; i++) gradient[i] = next[i] = NO_VALUE;
  Update u = {.m = m, .model = step, .globals = m->globals.n, .loss = NO_VALUE};
  bool by_workers = train_freezes(m) && plan_micro(m);
  u.f = by_workers ? onebit_warm_up(m, step, gradient, &u.loss)
                   : take_gradients(m, step, gradient, next, &u.loss);
  if (!u.f) return;
  update_begin(&u);
  if (keep) store_gradients(&u, gradient);
  update_all(&u, gradient);
  update_states(&u, next);
  project_others(&u, gradient);
  Fn *frozen = train_freezes(m) ? onebit_entry(m, step) : NULL;
  drop_outputs(m, keep);
  module_replace(m, step, u.f);
  if (frozen) module_add(m, frozen);
  loss_scale_begin(m);
  module_collect(m);
}
