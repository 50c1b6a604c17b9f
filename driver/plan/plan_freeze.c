/* The part of `plan` about a run of 1-bit Adam (passes/math/onebit.c) as a whole: the traffic of a
   rank at the change from one kind of step to the other; the average traffic per step; and the
   memory that `zero 1` saves, given that every rank keeps a whole copy of the second moments after
   the freeze. Must not: print the traffic or time of one step, which plan_step.c does. */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/support/variance_refresh.h"
#include "ir/plan/stage_class.h"
#include <string.h>

bool plan_freezes(const Planned *planned) {
  return planned->kind && !strcmp(planned->kind, "frozen");
}

const Fn *plan_entry(const Module *m, const char *name) {
  return module_fn(m, intern(m->ctx->names, name));
}

static double bytes_of_entry(const Planned *planned, const char *name) {
  PlanStep step =
      plan_step(planned->programs.at, planned->programs.n, plan_entry(planned->m, name));
  return plan_bytes_sent(&step);
}

static double bytes_once(const Planned *planned) {
  return bytes_of_entry(planned, "step.unit") + bytes_of_entry(planned, "step.freeze");
}

/* Where a step renews second moments. */
static double bytes_ended(const Planned *planned) { return bytes_of_entry(planned, "step.thaw"); }

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
  int64_t often = renews(planned), behind = (int64_t)(planned->steps - planned->from), at = 0;
  for (int64_t next; often && (next = renewal_after(at, often)) <= behind; at = next)
    renewals.steps++, renewals.ends += next - at > 1;
  renewals.begins = renewals.ends + (at < behind);
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

static bool is_group(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == global) return true;
  return false;
}

/* Bytes of a rank, against `zero 0`. */
static int64_t bytes_saved(const Module *m) {
  int64_t saved = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind != GLOBAL_STATE) continue;
    if (is_group(m, global)) saved += global_bytes(m, global) * (ways_of(m, global) - 1);
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
static void say_sent(const Planned *planned) {
  double first = plan_bytes_sent(&planned->step), mean = bytes_on_average(planned);
  if (first <= 0 || mean <= 0) return;
  printf("a frozen step sends %s", times_less(planned, first, plan_bytes_sent(&planned->later)));
  if (planned->from)
    printf("; on average of the run %s a step, %s", arena_amount(planned->m->arena, mean),
           times_less(planned, first, mean));
  printf("\n");
}

/* 53 of 850 steps after the freeze update second moments, with full gradients */
static void say_renewals(const Planned *planned) {
  Arena *arena = planned->m->arena;
  double ended = bytes_ended(planned);
  if (!renews(planned)) return;
  if (planned->from)
    printf("of %.0f steps behind the freeze %.0f renew second moments: they are as those before it",
           planned->steps - planned->from, renewals_of(planned).steps);
  else printf("after the freeze some steps update second moments, with full gradients");
  if (ended > 0) printf(", and a rank sends %s for each", arena_amount(arena, ended));
  printf("\n");
}

void plan_say_freeze(const Planned *planned) {
  Arena *arena = planned->m->arena;
  double once = bytes_once(planned);
  int64_t saved = bytes_saved(planned->m);
  say_sent(planned);
  if (once > 0)
    printf("where it freezes a rank sends %s %s\n", arena_amount(arena, once),
           renews(planned) ? "each time" : "once");
  say_renewals(planned);
  if (plan_zero_stage(planned->m) != 1) return;
  if (saved > 0)
    printf("zero 1 saves %s of moments: parts of both, less all second ones for frozen steps\n",
           arena_amount(arena, (double)saved));
  else printf("zero 1 saves nothing: all second moments for frozen steps are as much\n");
}

void plan_put_freeze(const Planned *planned) {
  if (planned->from) printf("\"bytes_per_step_on_average\":%.17g,", bytes_on_average(planned));
  printf("\"bytes_at_freeze\":%.17g,", bytes_once(planned));
  if (renews(planned)) printf("\"bytes_at_renewal\":%.17g,", bytes_ended(planned));
  if (renews(planned) && planned->from) printf("\"renewals\":%.0f,", renewals_of(planned).steps);
  if (plan_zero_stage(planned->m) == 1)
    printf("\"zero_saves\":%lld,", (long long)bytes_saved(planned->m));
}
