/* Learning-rate schedules as scalar f64 ops on @step.

   Settings: train.lr names a row of the table below; train.lr.warmup (steps), train.lr.floor
   (share of the rate), train.lr.decay (share of all steps, wsd), train.steps. During warmup the
   factor is (t + 1) / warmup. After the last step, if a run is longer than planned, factors keep
   their last value. */
#include "optimizer.h"
#include "ir/made.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

ValueId schedule_number(RateSchedule *schedule, double value) {
  return ir_const(schedule->m, schedule->f, ELEM_f64, value, (Loc){0});
}

ValueId schedule_binary(RateSchedule *schedule, OpCode c, ValueId a, ValueId b) {
  must(value_type(schedule->f, a)->elem == ELEM_f64 && value_type(schedule->f, b)->elem == ELEM_f64,
       "%s of a learning rate is computed in f64", op_name(c));
  return ir_binary(schedule->m, schedule->f, c, a, b, (Loc){0});
}

ValueId schedule_setting(RateSchedule *schedule, Str key) {
  Module *m = schedule->m;
  Str name = name_made(m, MADE_SETTING "%s", key);
  Global *scalar = module_global(m, name);
  if (!scalar) scalar = module_add_global(m, GLOBAL_SCALAR, name, type_scalar(ELEM_f64), (Loc){0});
  return ir_load(m, schedule->f, scalar, (Loc){0});
}

static ValueId s_un(RateSchedule *schedule, OpCode c, ValueId a) {
  return ir_unary(schedule->m, schedule->f, c, a, (Loc){0});
}

/* e^(exponent log(base)); a base of 0 gives 0: exponents are at least 1 */
ValueId schedule_power(RateSchedule *schedule, double base, ValueId exponent) {
  if (base <= 0) return schedule_number(schedule, 0);
  return s_un(schedule, OP_exp,
              schedule_binary(schedule, OP_mul, exponent, schedule_number(schedule, log(base))));
}

RateSchedule schedule_begin(Module *m, Fn *f) {
  must(f->kind == FN_ENTRY, "a learning rate in %s, which is no entry", f->name);
  Global *step = global_named(m, "step");
  if (!step)
    step = module_add_global(m, GLOBAL_SCALAR, intern(m->ctx->names, "step"), type_scalar(ELEM_i32),
                             (Loc){0});
  RateSchedule schedule = {m, f, NO_VALUE};
  schedule.t = ir_cast(m, f, ir_load(m, f, step, (Loc){0}), ELEM_f64, (Loc){0});
  return schedule;
}

typedef struct ScheduleShape {
  double warmup, floor, steps, decay;
} ScheduleShape;

/* (t - warmup) / (steps - warmup), at most 1 */
static ValueId progress(RateSchedule *schedule, const ScheduleShape *shape, double from) {
  double length = shape->steps - from > 1 ? shape->steps - from : 1;
  ValueId p = schedule_binary(
      schedule, OP_div,
      schedule_binary(schedule, OP_sub, schedule->t, schedule_number(schedule, from)),
      schedule_number(schedule, length));
  return schedule_binary(schedule, OP_min, p, schedule_number(schedule, 1));
}

static ValueId constant(RateSchedule *schedule, const ScheduleShape *shape) {
  return (void)shape, schedule_number(schedule, 1);
}

/* floor + (1 - floor)(1 + cos(pi p)) / 2 */
static ValueId cosine(RateSchedule *schedule, const ScheduleShape *shape) {
  ValueId p = progress(schedule, shape, shape->warmup);
  ValueId c =
      s_un(schedule, OP_cos,
           schedule_binary(schedule, OP_mul, p, schedule_number(schedule, 3.14159265358979323846)));
  ValueId half = schedule_binary(schedule, OP_mul,
                                 schedule_binary(schedule, OP_add, c, schedule_number(schedule, 1)),
                                 schedule_number(schedule, (1 - shape->floor) / 2));
  return schedule_binary(schedule, OP_add, half, schedule_number(schedule, shape->floor));
}

static ValueId falling(RateSchedule *schedule, const ScheduleShape *shape, double from) {
  ValueId p = progress(schedule, shape, from);
  return schedule_binary(
      schedule, OP_sub, schedule_number(schedule, 1),
      schedule_binary(schedule, OP_mul, p, schedule_number(schedule, 1 - shape->floor)));
}

static ValueId linear(RateSchedule *schedule, const ScheduleShape *shape) {
  return falling(schedule, shape, shape->warmup);
}

static ValueId wsd(RateSchedule *schedule, const ScheduleShape *shape) {
  double from = shape->steps - shape->decay * shape->steps;
  if (shape->decay <= 0) return constant(schedule, shape); /* in longer runs as well */
  ValueId steady = schedule_binary(schedule, OP_lt, schedule->t, schedule_number(schedule, from));
  return ir_where(schedule->m, schedule->f, steady, schedule_number(schedule, 1),
                  falling(schedule, shape, from), (Loc){0});
}

static ValueId inverse_sqrt(RateSchedule *schedule, const ScheduleShape *shape) {
  double w = shape->warmup > 1 ? shape->warmup : 1;
  ValueId t1 = schedule_binary(schedule, OP_add, schedule->t, schedule_number(schedule, 1));
  return s_un(schedule, OP_sqrt,
              schedule_binary(schedule, OP_div, schedule_number(schedule, w), t1));
}

static const struct {
  const char *name;
  ValueId (*factor)(RateSchedule *s, const ScheduleShape *k);
} schedules[] = {
    {"constant", constant},         {"cosine", cosine}, {"linear", linear}, {"wsd", wsd},
    {"inverse_sqrt", inverse_sqrt},
};

static ValueId with_warmup(RateSchedule *schedule, const ScheduleShape *shape, ValueId factor) {
  if (shape->warmup <= 0) return factor;
  ValueId rising =
      schedule_binary(schedule, OP_div,
                      schedule_binary(schedule, OP_add, schedule->t, schedule_number(schedule, 1)),
                      schedule_number(schedule, shape->warmup));
  ValueId early =
      schedule_binary(schedule, OP_lt, schedule->t, schedule_number(schedule, shape->warmup));
  return ir_where(schedule->m, schedule->f, early, rising, factor, (Loc){0});
}

ValueId schedule_factor(RateSchedule *schedule) {
  const Module *m = schedule->m;
  double steps = train_steps(m);
  ScheduleShape shape = {module_amount(m, "train.lr.warmup"), module_amount(m, "train.lr.floor"),
                         steps > 0 ? steps : 1, module_amount(m, "train.lr.decay")};
  Str name = module_word(m, "train.lr");
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
    if (!strcmp(schedules[i].name, name))
      return with_warmup(schedule, &shape, schedules[i].factor(schedule, &shape));
  bug("learning-rate schedule `%s`", name);
}
