/* Learning-rate schedules as scalar f64 ops on @step.

   Settings: train.lr names a row of the table below; train.lr.warmup (steps), train.lr.floor (share
   of the rate), train.lr.decay (share of all steps, wsd), train.steps. Below warmup the factor is
   (t + 1) / warmup. Past the last step, when a run goes on longer than planned, factors stay where
   they ended. */
#include "passes/optimizer.h"
#include "ir/module_settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

ValueId schedule_number(RateSchedule *s, double value) {
  return ir_const(s->m, s->f, ELEM_f64, value, (Loc){0});
}

ValueId schedule_binary(RateSchedule *s, OpCode c, ValueId a, ValueId b) {
  must(value_type(s->f, a)->elem == ELEM_f64 && value_type(s->f, b)->elem == ELEM_f64,
       "%s of a learning rate is computed in f64", op_name(c));
  return ir_binary(s->m, s->f, c, a, b, (Loc){0});
}

static ValueId s_un(RateSchedule *s, OpCode c, ValueId a) {
  return ir_unary(s->m, s->f, c, a, (Loc){0});
}

/* e^(exponent log(base)); a base of 0 gives 0: exponents are at least 1 */
ValueId schedule_power(RateSchedule *s, double base, ValueId exponent) {
  if (base <= 0) return schedule_number(s, 0);
  return s_un(s, OP_exp, schedule_binary(s, OP_mul, exponent, schedule_number(s, log(base))));
}

RateSchedule schedule_begin(Module *m, Fn *f) {
  must(f->kind == FN_ENTRY, "a learning rate in %s, which is no entry", f->name);
  Global *step = global_named(m, "step");
  if (!step)
    step = module_add_global(m, GLOBAL_SCALAR, intern(m->ctx->names, "step"), type_scalar(ELEM_i32),
                             (Loc){0});
  RateSchedule s = {m, f, NO_VALUE};
  s.t = ir_cast(m, f, ir_load(m, f, step, (Loc){0}), ELEM_f64, (Loc){0});
  return s;
}

typedef struct ScheduleShape {
  double warmup, floor, steps, decay;
} ScheduleShape;

/* (t - warmup) / (steps - warmup), at most 1 */
static ValueId progress(RateSchedule *s, const ScheduleShape *k, double from) {
  double length = k->steps - from > 1 ? k->steps - from : 1;
  ValueId p = schedule_binary(s, OP_div, schedule_binary(s, OP_sub, s->t, schedule_number(s, from)),
                              schedule_number(s, length));
  return schedule_binary(s, OP_min, p, schedule_number(s, 1));
}

static ValueId constant(RateSchedule *s, const ScheduleShape *k) {
  return (void)k, schedule_number(s, 1);
}

/* floor + (1 - floor)(1 + cos(pi p)) / 2 */
static ValueId cosine(RateSchedule *s, const ScheduleShape *k) {
  ValueId p = progress(s, k, k->warmup);
  ValueId c =
      s_un(s, OP_cos, schedule_binary(s, OP_mul, p, schedule_number(s, 3.14159265358979323846)));
  ValueId half = schedule_binary(s, OP_mul, schedule_binary(s, OP_add, c, schedule_number(s, 1)),
                                 schedule_number(s, (1 - k->floor) / 2));
  return schedule_binary(s, OP_add, half, schedule_number(s, k->floor));
}

static ValueId falling(RateSchedule *s, const ScheduleShape *k, double from) {
  ValueId p = progress(s, k, from);
  return schedule_binary(s, OP_sub, schedule_number(s, 1),
                         schedule_binary(s, OP_mul, p, schedule_number(s, 1 - k->floor)));
}

static ValueId linear(RateSchedule *s, const ScheduleShape *k) { return falling(s, k, k->warmup); }

static ValueId wsd(RateSchedule *s, const ScheduleShape *k) {
  double from = k->steps - k->decay * k->steps;
  ValueId steady = schedule_binary(s, OP_lt, s->t, schedule_number(s, from));
  return ir_where(s->m, s->f, steady, schedule_number(s, 1), falling(s, k, from), (Loc){0});
}

static ValueId inverse_sqrt(RateSchedule *s, const ScheduleShape *k) {
  double w = k->warmup > 1 ? k->warmup : 1;
  ValueId t1 = schedule_binary(s, OP_add, s->t, schedule_number(s, 1));
  return s_un(s, OP_sqrt, schedule_binary(s, OP_div, schedule_number(s, w), t1));
}

static const struct {
  const char *name;
  ValueId (*factor)(RateSchedule *s, const ScheduleShape *k);
} schedules[] = {
    {"constant", constant},         {"cosine", cosine}, {"linear", linear}, {"wsd", wsd},
    {"inverse_sqrt", inverse_sqrt},
};

static ValueId with_warmup(RateSchedule *s, const ScheduleShape *k, ValueId factor) {
  if (k->warmup <= 0) return factor;
  ValueId rising =
      schedule_binary(s, OP_div, schedule_binary(s, OP_add, s->t, schedule_number(s, 1)),
                      schedule_number(s, k->warmup));
  ValueId early = schedule_binary(s, OP_lt, s->t, schedule_number(s, k->warmup));
  return ir_where(s->m, s->f, early, rising, factor, (Loc){0});
}

ValueId schedule_factor(RateSchedule *s) {
  const Module *m = s->m;
  double steps = train_steps(m);
  ScheduleShape k = {module_amount(m, "train.lr.warmup"), module_amount(m, "train.lr.floor"),
                     steps > 0 ? steps : 1, module_amount(m, "train.lr.decay")};
  Str name = module_word(m, "train.lr");
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    if (!strcmp(schedules[i].name, name)) return with_warmup(s, &k, schedules[i].factor(s, &k));
  diag_at(m->ctx->diag, "E0601", (Span){0}, "there is no learning-rate schedule `%s`", name);
  return schedule_number(s, 1);
}
