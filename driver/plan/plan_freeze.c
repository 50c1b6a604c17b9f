/* The part of `plan` about a run of 1-bit Adam (passes/math/onebit.c) as a whole: the traffic of a
   rank at the change from one kind of step to the other; the average traffic per step; and the
   memory that `zero 1` saves, given that every rank keeps a whole copy of the second moments after
   the freeze. Must not: print the traffic or time of one step, which plan_step.c does. */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/support/variance_refresh.h"
#include "ir/plan/stage_class.h"
#include <string.h>

bool plan_freezes(const Planned *planned) { return planned->phase == PHASE_frozen; }

static double bytes_of_entry(const Planned *planned, Phase phase) {
  PlanStep step =
      plan_step(planned->programs.at, planned->programs.n, module_phase(planned->m, phase));
  return plan_bytes_sent(&step);
}

static double bytes_once(const Planned *planned) {
  return bytes_of_entry(planned, PHASE_derive) + bytes_of_entry(planned, PHASE_freeze);
}

/* Where a step renews second moments. */
static double bytes_ended(const Planned *planned) { return bytes_of_entry(planned, PHASE_thaw); }

static int64_t renews(const Planned *planned) {
  return module_whole(planned->m, "train.optim.renew");
}

/* The number of steps after the freeze that update second moments, and how often runs of frozen
   steps begin and end. */
typedef struct Renewals {
  double steps, begins, ends;
} Renewals;

static Renewals renewals_of(const Planned *planned) {
  Renewals renewals = {0};
  int64_t often = renews(planned), after = (int64_t)(planned->steps - planned->from), at = 0;
  for (int64_t next; often && (next = renewal_after(at, often)) <= after; at = next)
    renewals.steps++, renewals.ends += next - at > 1;
  renewals.begins = renewals.ends + (at < after);
  return renewals;
}

/* Bytes of a step, over all of the run. */
static double bytes_on_average(const Planned *planned) {
  double warm = planned->from, steps = planned->steps, first = plan_bytes_sent(&planned->step);
  if (warm >= steps) return first;
  Renewals renewals = renewals_of(planned);
  warm += renewals.steps;
  double frozen = (steps - warm) * plan_bytes_sent(&planned->later);
  double between = renewals.begins * bytes_once(planned) + renewals.ends * bytes_ended(planned);
  return (warm * first + frozen + between) / steps;
}

/* The number of ranks that share a state of a flat group. */
static int64_t ways_of(const Module *m, const Global *global) {
  int64_t ways = 1;
  for (uint32_t i = 0; i < m->mesh.n; i++)
    if (global->placed.on[i]) ways *= m->mesh.at[i].size;
  return ways;
}

/* Bytes of a rank, against `zero 0`. */
static int64_t bytes_saved(const Module *m) {
  int64_t saved = 0;
  EACH_GLOBAL (m, global) {
    if (global->kind != GLOBAL_STATE) continue;
    if (global_has_members(m, global)) saved += global_bytes(m, global) * (ways_of(m, global) - 1);
    if (global->derived) saved -= global_bytes(m, global);
  }
  return saved;
}

/* Stages gather what their workers compress, which may be more than the signs save. */
static const char *times_less(const Planned *planned, double before, double after) {
  bool less = after <= before;
  return arena_printf(planned->m->arena, "%.3g times %s", less ? before / after : after / before,
                      less ? "less" : "as much");
}

/* a frozen step sends 31.4 times less; on average of the run 2.80 MiB a step, 4.29 times less */
static void say_sent(Sheet *sheet, const Planned *planned) {
  double first = plan_bytes_sent(&planned->step), mean = bytes_on_average(planned);
  bool shown = first > 0 && mean > 0;
  if (shown)
    sheet_say(sheet, "a frozen step sends {}",
              as_text(times_less(planned, first, plan_bytes_sent(&planned->later))));
  if (planned->from)
    sheet_say_if(sheet, shown, "; on average of the run {bytes_per_step_on_average} a step, {}",
                 as_bytes(mean), as_text(times_less(planned, first, mean)));
  sheet_say_if(sheet, shown, "\n");
}

/* 53 of 850 steps after the freeze update second moments, with full gradients */
static void say_renewals(Sheet *sheet, const Planned *planned) {
  double ended = bytes_ended(planned);
  if (!renews(planned)) return;
  if (planned->from)
    sheet_say(sheet,
              "of {} steps after the freeze {renewals} renew second moments: they are as those "
              "before it",
              as_count(planned->steps - planned->from), as_count(renewals_of(planned).steps));
  else sheet_say(sheet, "after the freeze some steps update second moments, with full gradients");
  sheet_say_if(sheet, ended > 0, ", and a rank sends {bytes_at_renewal} for each", as_bytes(ended));
  sheet_say(sheet, "\n");
}

void plan_freeze(Sheet *sheet, const Planned *planned) {
  double once = bytes_once(planned);
  int64_t saved = bytes_saved(planned->m);
  say_sent(sheet, planned);
  sheet_say_if(sheet, once > 0, "where it freezes a rank sends {bytes_at_freeze} {}\n",
               as_bytes(once), as_text(renews(planned) ? "each time" : "once"));
  say_renewals(sheet, planned);
  if (plan_zero_stage(planned->m) != 1) return;
  sheet_say_if(sheet, saved > 0,
               "zero 1 saves {zero_saves} of moments: parts of both, less all second ones for "
               "frozen steps\n",
               as_bytes((double)saved));
  sheet_say_if(sheet, saved <= 0,
               "zero 1 saves nothing: all second moments for frozen steps are as much\n");
}
