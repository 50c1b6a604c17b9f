/* Loss scaling for plans in f16, part of passes grad and optimizer ("Mixed Precision Training",
   section 3.2, with a scale that is adjusted during the run).

   Gradients in f16 below 2^-24 would be lost, so backward starts from the scale instead of 1, and
   the update divides by it, in f32. A step whose gradients are not finite is skipped
   (guard_nonfinite.c) and the scale halves; after plan.precision.growth_interval good steps in a
   row it doubles. All of it is scalar ops and states: no branch, no query of the host, the same on
   every rank, since the deciding norm is that of all ranks.

     state    scale.of.loss     f32[]   of the next step
              good.of.loss      i32[]   good steps since it changed
              skipped.of.loss   i32[]   steps skipped so far
     output   loss.scale, loss.overflow, loss.skipped: the scale of this step; whether it is skipped
              because of the scale; the number of skipped steps

   The scale is not the cause of a loss that is not finite, nor of gradients that stay non-finite
   at the least scale (plan.precision.min_scale): then nothing changes and the runtime decides
   (train.on_nan). Must not: scale the loss itself, which is reported as it is. */
#include "loss_scale.h"
#include "guard_nonfinite.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <string.h>

static bool loss_scale_is_on(const Module *m) {
  return !strcmp(plan_precision(m), "f16") && train_optimizer(m);
}

static Global *state(Module *m, const char *name, Elem e) {
  Global *g = global_named(m, name);
  if (g) return g;
  return module_add_global(m, GLOBAL_STATE, intern(m->ctx->names, name), type_scalar(e), (Loc){0});
}

static Global *the_scale(Module *m) { return state(m, "scale.of.loss", ELEM_f32); }
static Global *good_steps(Module *m) { return state(m, "good.of.loss", ELEM_i32); }
static Global *skipped_steps(Module *m) { return state(m, "skipped.of.loss", ELEM_i32); }

static const double largest = 0x1p127;

static double first_scale(const Module *m) {
  return fmin(module_amount(m, "plan.precision.init_scale"), largest);
}

static double least_scale(const Module *m) {
  return fmin(module_amount(m, "plan.precision.min_scale"), first_scale(m));
}

ValueId loss_scale_seed(Module *m, Fn *f, Elem e, Loc loc) {
  must(elem_class(e) == CLASS_FLOAT, "a gradient of %s", elem_name(e));
  if (!loss_scale_is_on(m)) return ir_const(m, f, e, 1, loc);
  return ir_cast(m, f, ir_load(m, f, the_scale(m), loc), e, loc);
}

LossScale loss_scale_load(Module *m, Fn *f) {
  LossScale scale = {NO_VALUE, NO_VALUE, NO_VALUE};
  if (!loss_scale_is_on(m)) return scale;
  scale.now = ir_load(m, f, the_scale(m), (Loc){0});
  scale.inverse =
      ir_binary(m, f, OP_div, ir_const(m, f, ELEM_f32, 1, (Loc){0}), scale.now, (Loc){0});
  scale.skipped = ir_load(m, f, skipped_steps(m), (Loc){0});
  return scale;
}

/* ---- the next one ---- */

typedef struct ScaleStep {
  Module *m;
  Fn *f;
  ValueId fine, overflow; /* bool[] */
} ScaleStep;

static ValueId number(const ScaleStep *step, Elem e, double v) {
  return ir_const(step->m, step->f, e, v, (Loc){0});
}

static ValueId bin(const ScaleStep *step, OpCode c, ValueId a, ValueId b) {
  return ir_binary(step->m, step->f, c, a, b, (Loc){0});
}

/* One value after a good step, one after an overflow; otherwise it stays. */
static ValueId next(const ScaleStep *step, ValueId good, ValueId overflow, ValueId now) {
  ValueId v = ir_where(step->m, step->f, step->overflow, overflow, now, (Loc){0});
  return ir_where(step->m, step->f, step->fine, good, v, (Loc){0});
}

static void next_scale(const ScaleStep *step, ValueId now) {
  Module *m = step->m;
  double every = module_amount(m, "plan.precision.growth_interval");
  Global *counter = good_steps(m);
  ValueId good = ir_load(m, step->f, counter, (Loc){0}), zero = number(step, ELEM_i32, 0);
  ValueId more = bin(step, OP_add, good, number(step, ELEM_i32, 1));
  ValueId due = bin(step, OP_le, number(step, ELEM_i32, fmin(every, INT32_MAX)), more);
  ValueId grown = bin(step, OP_min, bin(step, OP_mul, now, number(step, ELEM_f32, 2)),
                      bin(step, OP_max, now, number(step, ELEM_f32, largest)));
  ValueId half = bin(step, OP_max, bin(step, OP_mul, now, number(step, ELEM_f32, 0.5)),
                     number(step, ELEM_f32, least_scale(m)));
  ValueId doubled = ir_where(m, step->f, due, grown, now, (Loc){0});
  ValueId counted = ir_where(m, step->f, due, zero, more, (Loc){0});
  ir_store(m, step->f, the_scale(m), next(step, doubled, half, now), (Loc){0});
  ir_store(m, step->f, counter, next(step, counted, zero, good), (Loc){0});
}

void loss_scale_step(Module *m, Fn *f, const LossScale *scale, ValueId loss, ValueId norm) {
  ScaleStep step = {.m = m, .f = f, .fine = norm};
  if (scale->now == NO_VALUE) return;
  must(norm != NO_VALUE && value_type(f, norm)->elem == ELEM_bool,
       "a loss scale without a test of the gradients' norm");
  ValueId bad = ir_unary(m, f, OP_not, norm, (Loc){0});
  step.overflow = bin(&step, OP_and, bad,
                      bin(&step, OP_lt, number(&step, ELEM_f32, least_scale(m)), scale->now));
  if (loss != NO_VALUE) step.fine = bin(&step, OP_and, loss, norm);
  if (loss != NO_VALUE) step.overflow = bin(&step, OP_and, loss, step.overflow);
  next_scale(&step, scale->now);
  ValueId left_out = ir_cast(m, f, step.overflow, ELEM_i32, (Loc){0});
  ValueId skipped = bin(&step, OP_add, scale->skipped, left_out);
  ir_store(m, f, skipped_steps(m), skipped, (Loc){0});
  guard_output(m, f, "loss.scale", ir_unary(m, f, OP_copy, scale->now, (Loc){0}));
  guard_output(m, f, "loss.overflow", left_out);
  guard_output(m, f, "loss.skipped", skipped);
}

void loss_scale_begin(Module *m) {
  Fn *init = entry_of(m, "init");
  if (!loss_scale_is_on(m) || !init) return;
  Rebuild r = rebuild_begin(m, init);
  for (uint32_t i = 0; i < init->ops.n; i++) rebuild_op(&r, &init->ops.at[i]);
  ir_store(m, r.to, the_scale(m), ir_const(m, r.to, ELEM_f32, first_scale(m), (Loc){0}), (Loc){0});
  module_replace(m, init, r.to);
}
