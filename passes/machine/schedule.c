/* schedule: the order of ops is the order of execution.

   Program order after `fuse` is kept: groups are where their anchors were, and lowering and `grad`
   write forward, then backward, then updates, which is the order that frees saved values soonest.
   Loads and views come right before their first reader, so that dumps read well and lifetimes are
   plain. Kernels are moved only where a plan lets messages overlap (fill.c). */
#include "fill.h"

typedef struct Schedule {
  Rebuild r;
} Schedule;

/* Writes the loads and views that make v, if they are not written yet. */
static void bring(Schedule *schedule, ValueId v) {
  if (schedule->r.map[v] != NO_VALUE) return;
  const Op *o = value_def(schedule->r.from, v);
  must(o, "schedule: %%%u of %s is an argument without a value", v, schedule->r.from->name);
  for (uint32_t i = 0; i < o->nin; i++) bring(schedule, o->in[i]);
  if (schedule->r.map[v] == NO_VALUE) rebuild_op(&schedule->r, o);
}

static Fn *schedule_function(Module *m, const Fn *f) {
  Schedule schedule = {.r = rebuild_begin(m, f)};
  for (uint32_t i = 0; i < f->args.n; i++)
    schedule.r.to->values.at[schedule.r.map[f->args.at[i]]] = f->values.at[f->args.at[i]];
  FilledOrder order = fill_order(m, f);
  for (uint32_t i = 0; i < order.n; i++) {
    const Op *o = &f->ops.at[order.at[i]];
    for (uint32_t k = 0; k < o->nin; k++) bring(&schedule, o->in[k]);
    rebuild_op(&schedule.r, o);
  }
  for (uint32_t i = 0; i < f->results.n; i++) bring(&schedule, f->results.at[i]);
  rebuild_results(&schedule.r);
  return schedule.r.to;
}

void pass_schedule(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL)
      module_replace(m, m->fns.at[i], schedule_function(m, m->fns.at[i]));
}
