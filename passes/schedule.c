/* schedule: the order of ops is the order of execution.

   Program order after `fuse` is kept: groups stand where their anchors stood, and lowering and
   `grad` write forward, then backward, then updates, which is the order that frees saved values
   soonest. What can be moved is what costs nothing: loads and views stand right before their first
   reader, so that dumps read well and lifetimes are plain. */
#include "passes/internal.h"

typedef struct Schedule {
  Rebuild r;
} Schedule;

static bool floats(const Op *o) {
  return o->code == OP_load || (op_flags(o->code) & VIEW && op_family(o->code) == FAMILY_STRUCT);
}

/* Writes the loads and views that v stands for, if they are not written yet. */
static void bring(Schedule *s, ValueId v) {
  if (s->r.map[v] != NO_VALUE) return;
  const Op *o = value_def(s->r.from, v);
  must(o, "schedule: %%%u of %s is an argument without a value", v, s->r.from->name);
  for (uint32_t i = 0; i < o->nin; i++) bring(s, o->in[i]);
  if (s->r.map[v] == NO_VALUE) rebuild_op(&s->r, o);
}

static Fn *schedule_function(Module *m, const Fn *f) {
  Schedule s = {.r = rebuild_begin(m, f)};
  for (uint32_t i = 0; i < f->args.n; i++)
    s.r.to->values.at[s.r.map[f->args.at[i]]] = f->values.at[f->args.at[i]];
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (floats(o)) continue;
    for (uint32_t k = 0; k < o->nin; k++) bring(&s, o->in[k]);
    rebuild_op(&s.r, o);
  }
  for (uint32_t i = 0; i < f->results.n; i++) bring(&s, f->results.at[i]);
  rebuild_results(&s.r);
  return s.r.to;
}

void pass_schedule(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL)
      module_replace(m, m->fns.at[i], schedule_function(m, m->fns.at[i]));
}
