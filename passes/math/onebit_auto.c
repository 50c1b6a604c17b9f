/* Detects when 1-bit Adam's second moments are steady: `freeze = auto`. After the warm-up of the
   learning rate "1-bit Adam" compares |v_t| with |v_(t - window)|, norms of first order over all
   parameters. This implementation corrects both for the bias of their age, and the test has two
   sides: the smaller one is at least `ratio` of the larger, so that a norm that still grows is not
   taken for a steady one.

   An entry of its own, `step.look`, that the executable runs after every `window` steps of
   warm-up, keeps in states the norm (onebit.norm) and the number of the first frozen step
   (onebit.frozen, 0: none is known yet). Both are the same on all ranks, and in checkpoints. Must
   not: choose the entry that runs. */
#include "update.h"
#include "ir/phases.h"
#include "ir/plan/module_settings.h"
#include <math.h>
#include <string.h>

int64_t onebit_window(const Module *m) {
  Str freeze = module_word(m, "train.optim.freeze");
  int64_t window = module_whole(m, "train.optim.window");
  double betas[2];
  if (strcmp(freeze, "auto") != 0) return 0;
  module_amounts(m, "train.optim.betas", 2, betas);
  return window ? window : (int64_t)fmin(round(1 / (1 - betas[1])), INT32_MAX);
}

/* sum v / (1 - beta2^t) over all parameters, after t steps */
static ValueId norm_of_moments(Update *u, const ValueId *gradient) {
  RateSchedule *schedule = &u->s;
  ValueId all = num(u, 0), one = schedule_number(schedule, 1);
  for (uint32_t i = 0; i < u->globals; i++) {
    if (gradient[i] == NO_VALUE) continue;
    ValueId v = load(u, state(u, u->m->globals.at[i], "v"));
    all = bin(u, OP_add, all, emit_sum_all(u->m, u->f, v, u->loc));
  }
  ValueId fresh =
      schedule_binary(schedule, OP_sub, one, schedule_power(schedule, u->betas[1], u->count));
  return bin(u, OP_div, all, to_f32(u, fresh));
}

static ValueId at_least(Update *u, ValueId a, ValueId share_of) {
  double ratio = module_amount(u->m, "train.optim.ratio");
  return bin(u, OP_le, times(u, share_of, ratio), a);
}

void onebit_look(Module *m, uint32_t globals, const ValueId *gradient) {
  Fn *f = fn_new(m, FN_ENTRY, NULL);
  phase_mark(m, f, PHASE_look, -1);
  attr_set_int(m, &f->attrs, ATTR_every, onebit_window(m));
  Update u = {.m = m, .f = f, .globals = globals};
  update_begin(&u);
  Global *kept = update_state(m, "onebit.norm", type_scalar(ELEM_f32)),
         *frozen = update_state(m, "onebit.frozen", type_scalar(ELEM_i32));
  double first = (double)onebit_window(m) + module_amount(m, "train.lr.warmup");
  ValueId norm = norm_of_moments(&u, gradient), last = ir_load(m, f, kept, (Loc){0}),
          zero = ir_const(m, f, ELEM_i32, 0, (Loc){0}), one = ir_const(m, f, ELEM_i32, 1, (Loc){0}),
          done = bin(&u, OP_add, ir_load(m, f, global_named(m, "step"), (Loc){0}), one);
  ValueId steady = bin(&u, OP_and, at_least(&u, norm, last), at_least(&u, last, norm));
  steady = bin(&u, OP_and, steady, bin(&u, OP_lt, num(&u, 0), last));
  ValueId early = ir_const(m, f, ELEM_i32, fmin(first, INT32_MAX), (Loc){0});
  steady = bin(&u, OP_and, steady, bin(&u, OP_le, early, done));
  ir_store(m, f, kept, norm, (Loc){0});
  ir_store(m, f, frozen, ir_where(m, f, steady, done, zero, (Loc){0}), (Loc){0});
  module_add(m, f);
}
