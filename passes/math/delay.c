/* The delayed update ("ZeRO-Offload: Democratizing Billion-Scale Model Training", section 5.2):
   after a warm-up, a step updates with the gradient of the previous step, and its own gradient
   waits for the next step. So a delayed update needs nothing from its own step's forward and
   backward part.

     late         is the warm-up of train.delay.after steps over?
     d            late ? waiting : g, with the factor and the flag that were found with it
     waiting      g, a state of every parameter: checkpoints hold it
     number, rate of the update: those of the step that the gradient is of

   No gradient waits when the first late step begins: the flag is 0 until then, and that step
   changes nothing. The gradient of the last step of a run waits in its checkpoint. This is part of
   the mathematics, whatever the plan. Must not: depend on which ops overlap. */
#include "update.h"
#include "ir/made.h"
#include "ir/phases.h"
#include "ir/plan/module_settings.h"

void update_delay_begin(Update *u) {
  int64_t after = module_whole(u->m, "train.delay.after");
  if (after <= 0) return;
  u->late = bin(u, OP_le, schedule_number(&u->s, (double)after), u->s.t);
  attr_set_str(u->m, &vec_last(u->f->ops).attrs, ATTR_phase,
               intern(u->m->ctx->names, phase_name(PHASE_late)));
  u->s.t = schedule_binary(&u->s, OP_sub, u->s.t, ir_cast(u->m, u->f, u->late, ELEM_f64, u->loc));
}

/* Checkpoints hold no numbers that are not: a gradient that is left out waits as zeros. */
static ValueId kept(Update *u, ValueId v) {
  return u->whole == NO_VALUE ? v : pick(u, u->whole, v, num(u, 0));
}

/* The value of a number that the previous step stored, if updates are late; stores this step's for
   the next. */
static ValueId handed_on(Update *u, const char *name, ValueId now, ValueId left) {
  Global *g = update_state(u->m, name, type_scalar(ELEM_f32));
  ValueId taken = pick(u, u->late, load(u, g), now);
  ir_store(u->m, u->f, g, kept(u, left), u->loc);
  return taken;
}

void update_delay_numbers(Update *u) {
  if (u->late == NO_VALUE) return;
  u->whole = u->fine;
  ValueId fine = u->fine == NO_VALUE ? num(u, 1) : to_f32(u, u->fine);
  ValueId waits = pick(u, u->late, fine, num(u, 0));
  u->fine = bin(u, OP_lt, num(u, 0), handed_on(u, DELAY_FINE, fine, waits));
  if (u->coefficient != NO_VALUE)
    u->coefficient = handed_on(u, "delay.coefficient", u->coefficient, u->coefficient);
}

ValueId update_delay(Update *u, const Global *g, ValueId d) {
  if (u->late == NO_VALUE) return d;
  Global *waiting = state(u, g, "waiting");
  ValueId before = load(u, waiting);
  ValueId taken = pick(u, u->late, before, d);
  ir_store(u->m, u->f, waiting, kept(u, d), u->loc);
  return taken;
}
