/* Which groups keep their parameters as a rank's shard between steps: all of stage 3, and with
   `prefetch` those of stages 1 and 2 that a stack reads. Their updated parameters are not gathered
   after the update but in the next step, layer by layer, so that a layer arrives while the ones
   before it compute ("PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", section
   3.2.1, SHARD_GRAD_OP). The loop that gathers a layer first stacks it for the loops after it: so
   every layer is sent once a step, as after the update. `zero 3 keep_gathered` does the same.

   Groups whose layers this does not serve are gathered after the update, with N0702 if no group is
   left: each micro-batch would gather the layers again. Must not: rewrite functions. */
#include "ir/plan/module_settings.h"
#include "ir/schedule/flight.h"
#include "zero.h"

/* The reason why rounds of the group cannot stay gathered in a step; NULL: they can. */
static const char *why_not_kept(const Zero *zero, const ZeroGroup *group) {
  if (!group->rounds.dim) return "parameters outside of stacks are needed at once";
  EACH_OP (zero->step, o)
    if (o->code == OP_loop && loop_is_micro(o))
      return "each micro-batch would gather the layers again";
  return NULL;
}

/* The same for a shard between steps in stages 1 and 2. */
static const char *why_whole(const Zero *zero, const ZeroGroup *group) {
  if (group->ways < 2) return "every rank owns all parameters";
  if (group->hosted || plan_offloads_any(zero->m, OFFLOAD_PARAMS))
    return "the host updates or stores the parameters";
  if (train_freezes(zero->m)) return "frozen steps of 1-bit Adam update whole parameters";
  return why_not_kept(zero, group);
}

static bool splits_kept(const Module *m) {
  for (uint32_t i = 0; i < m->recompute.n; i++)
    if (m->recompute.at[i].over) return true;
  return false;
}

static void note_useless(const Zero *zero, const char *why) {
  Module *m = zero->m;
  Report *r = diag_at(m->ctx->diag, "N0702", module_written(m, "plan.zero.prefetch").value,
                      "`prefetch` gathers no layer ahead: `zero %d` gathers all after the update",
                      zero->stage);
  diag_label(r, "%s", why);
  diag_help(r, "leave it out, or use `zero 3`");
}

void zero_find_sharded(Zero *zero) {
  Ahead ahead = flights_ahead(zero->m);
  bool asked = ahead.layers > 0 || ahead.bytes > 0, any = false;
  const char *why = NULL;
  for (uint32_t i = 0; i < zero->group.n; i++) {
    ZeroGroup *group = &zero->group.at[i];
    bool early = asked && (zero->stage == 1 || zero->stage == 2);
    const char *whole = early ? why_whole(zero, group) : NULL;
    group->sharded = group->stage == 3 || (early && !whole);
    bool keeps = group->sharded && (zero->keep_gathered || group->stage < 3);
    group->keeps_rounds = keeps && !why_not_kept(zero, group);
    any |= group->sharded;
    if (whole && (!why || group->rounds.dim)) why = whole;
  }
  if (why && !any && !splits_kept(zero->m)) note_useless(zero, why);
}
