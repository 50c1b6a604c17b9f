/* Setting train.ema: a moving average of each parameter that the step updates, a state NAME.ema in
   f32: average = decay average + (1 - decay) w with the new w. The first update copies w, so an
   average has no part of initial values; the state ema.begun says whether there was one. Skipped
   steps do not change the average. The executable reads averages in place of parameters with --ema.
   Must not: change what the step computes otherwise. */
#include "ir/plan/module_settings.h"
#include "update.h"

void update_averages(Update *u, const ValueId *gradient) {
  Module *m = u->m;
  if (!module_said(m, "train.ema")) return;
  Global *begun = update_state(m, "ema.begun", type_scalar(ELEM_f32));
  u->loc = (Loc){0};
  ValueId kept = times(u, ir_load(m, u->f, begun, u->loc), module_amount(m, "train.ema"));
  ValueId rest = bin(u, OP_sub, num(u, 1), kept);
  for (uint32_t i = 0; i < u->globals; i++) {
    Global *global = m->globals.at[i];
    const Op *store = gradient[i] == NO_VALUE ? NULL : fn_store_of(u->f, global);
    if (!store) continue;
    ValueId w = store->in[0];
    u->loc = global->loc;
    Global *average = state(u, global, "ema");
    ValueId before = bin(u, OP_mul, ir_load(m, u->f, average, u->loc), kept);
    put(u, average, bin(u, OP_add, before, bin(u, OP_mul, w, rest)));
  }
  put(u, begun, num(u, 1));
}
