/* Late steps as a program of their own, part of pass offload: the update runs on the host
   concurrently with the forward and backward part ("ZeRO-Offload: Democratizing Billion-Scale
   Model Training", section 5.2).

   With `delay`, one `step` implements both kinds of steps and chooses between its own gradient and
   the waiting one (delay.c), by an op marked with phase `late`. If states are on the host, it is
   specialised into two entries: in `step` the op's result is false, in `step.late` true. A late
   update then reads only the waiting gradient, and the ops of `step.late` are put in this
   order:

     loads; ops that depend only on states, parameters and numbers, and their stores of states;
     forward, backward, and their stores for the next step;
     stores of parameters, with the ops that only they need

   so that kernels of the host start with the step, and the parameters, which forward and backward
   read, are exchanged after them. Must not: change a number; move ops of forward and backward. */
#include "passes/simplify/simplify.h"
#include "offload.h"
#include "ir/made.h"
#include "ir/phases.h"
#include "ir/plan/module_settings.h"

/* ---- two programs ---- */

typedef struct PhasePeel {
  Rebuild r;
  bool *is_test; /* by value of r.from: the result of the test, in any type or spread over dims */
  bool inside;   /* the phase */
} PhasePeel;

/* The operand that the op selects by the test, if it has the op's type; NO_VALUE: it does not
   select by it. */
static ValueId arm_of(const PhasePeel *peel, const Op *o) {
  const Fn *f = peel->r.from;
  if (o->code != OP_where || !peel->is_test[o->in[0]]) return NO_VALUE;
  ValueId v = o->in[peel->inside ? 1 : 2];
  return type_same_dims(value_type(f, v), value_type(f, o->out)) ? v : NO_VALUE;
}

/* The entry with the ops that test for the phase replaced by their answer; adds their number to
   `tests`. */
static Fn *specialise_entry(Module *m, const Fn *step, Phase phase, bool inside, uint32_t *tests) {
  PhasePeel peel = {.r = rebuild_begin(m, step), .inside = inside};
  peel.is_test = ARENA_ARRAY(m->arena, bool, step->values.n + 1);
  EACH_OP (step, o) {
    bool test = phase_find(attr_str(&o->attrs, ATTR_phase, "")) == phase,
         shows = o->code == OP_cast || o->code == OP_expand;
    ValueId v = arm_of(&peel, o);
    if (v != NO_VALUE) peel.r.map[o->out] = peel.r.map[v];
    else if (test) peel.r.map[o->out] = ir_const(m, peel.r.to, ELEM_bool, inside, o->loc);
    else rebuild_op(&peel.r, o);
    if (test || (shows && peel.is_test[o->in[0]])) peel.is_test[o->out] = true;
    *tests += test;
  }
  return peel.r.to;
}

/* ---- their order ---- */

typedef struct LateOrder {
  Rebuild r;
  bool *done; /* by op */
} LateOrder;

static void place(LateOrder *order, OpId id) {
  const Op *o = &order->r.from->ops.at[id];
  if (order->done[id]) return;
  order->done[id] = true;
  for (uint32_t i = 0; i < o->nin; i++) {
    OpId def = order->r.from->values.at[o->in[i]].def;
    if (def != NO_OP) place(order, def);
  }
  rebuild_op(&order->r, o);
}

/* By value: made of states, parameters and numbers alone. */
static bool *made_of_states(Module *m, const Fn *f) {
  bool *alone = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  EACH_OP (f, o) {
    bool good = o->code != OP_loop && !op_is_p2p(o->code) &&
                !(o->code == OP_load && o->global->kind == GLOBAL_INPUT);
    for (uint32_t k = 0; k < o->nin; k++) good = good && alone[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) alone[o->out + k] = good;
  }
  return alone;
}

static bool stores(const Op *o, GlobalKind kind) {
  return o->code == OP_store && o->global->kind == kind;
}

/* By op: does anything need it, or anything but the stores of parameters? */
static bool *needed(Module *m, const Fn *f, bool params) {
  bool *needed = ARENA_ARRAY(m->arena, bool, f->ops.n + 1);
  for (OpId i = f->ops.n; i-- > 0;) {
    const Op *o = &f->ops.at[i];
    needed[i] |= op_acts(o) && (params || !stores(o, GLOBAL_PARAM));
    for (uint32_t k = 0; needed[i] && k < o->nin; k++)
      if (f->values.at[o->in[k]].def != NO_OP) needed[f->values.at[o->in[k]].def] = true;
  }
  return needed;
}

/* Downloads for one update come before the first update: one kernel may make the states of a
   parameter. */
static void place_updates(LateOrder *order, const bool *alone) {
  const Fn *f = order->r.from;
  for (int store = 0; store < 2; store++)
    for (OpId i = 0; i < f->ops.n; i++) {
      const Op *o = &f->ops.at[i];
      if (!stores(o, GLOBAL_STATE) || !alone[o->in[0]]) continue;
      place(order, store ? i : f->values.at[o->in[0]].def);
    }
}

static Fn *update_first(Module *m, const Fn *f) {
  LateOrder order = {.r = rebuild_begin(m, f), .done = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  const bool *before = needed(m, f, false), *all = needed(m, f, true);
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_load && all[i]) place(&order, i);
  place_updates(&order, made_of_states(m, f));
  for (OpId i = 0; i < f->ops.n; i++)
    if (before[i]) place(&order, i);
  for (OpId i = 0; i < f->ops.n; i++)
    if (all[i]) place(&order, i);
  return order.r.to;
}

/* A dump from before ops were marked with phases would stay one program, and be slower. */
static void refuse_unmarked(Module *m, const Fn *step) {
  const Global *handed_on = global_named(m, DELAY_FINE);
  for (OpId i = 0; handed_on && i < step->ops.n; i++) {
    if (step->ops.at[i].global != handed_on) continue;
    Report *r = diag_at(m->ctx->diag, "E1105", step->span,
                        "updates are delayed, and no op of @step is marked `phase = \"late\"`");
    diag_help(r, "older versions wrote no marks: dump the program anew");
    return;
  }
}

void delayed_update(Module *m) {
  Fn *step = entry_of(m, "step");
  int64_t after = module_whole(m, "train.delay.after");
  uint32_t tests = 0;
  if (!step || after <= 0) return;
  Fn *late = specialise_entry(m, step, PHASE_late, true, &tests);
  phase_mark(m, late, PHASE_late, after);
  if (!tests) { /* nothing is updated */
    refuse_unmarked(m, step);
    return;
  }
  module_replace(m, step, specialise_entry(m, step, PHASE_late, false, &tests));
  module_add(m, update_first(m, late));
}
