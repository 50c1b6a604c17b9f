/* W0703: parameters that stay whole on every rank although the plan's stage partitions them. These
   are parameters that no group takes (zero_groups.c notes the first and why), and stacks whose
   layers are whole all at once, as the rewriting found. Must not: decide which parameters are
   partitioned. */
#include "zero.h"

/* The first of them is named, with its reason. */
static void warn_whole(Zero *zero) {
  Module *module = zero->m;
  if (!zero->named.n) return;
  const Global *first = zero->named.at[0];
  Report *report = diag_at(
      module->ctx->diag, "W0703", span_of(module, first->loc),
      "`zero %d` does not partition parameter `%s`%s", zero->stage, first->name,
      zero->named.n > 1 ? arena_printf(module->arena, " and %u more", zero->named.n - 1) : "");
  diag_label(report, "%s", zero->why);
  diag_help(report, "every rank has the whole parameter and its states; `plan` counts them");
}

static void warn_at_once(const Zero *zero, const ZeroGroup *group, const char *what,
                         const char *why) {
  Module *module = zero->m;
  const Global *global = group->member.at[0].param;
  Report *report = diag_at(
      module->ctx->diag, "W0703", span_of(module, global->loc), "`zero %d` %s of `%s`%s at once",
      zero->stage, what, global->name,
      group->member.n > 1 ? arena_printf(module->arena, " and %u more with it", group->member.n - 1)
                          : "");
  diag_label(report, "%s", why);
  diag_help(report, "during that time a rank holds all of it, which the plan counts");
}

static void warn_kept(const Zero *zero, const ZeroGroup *group) {
  Module *module = zero->m;
  const Global *global = group->member.at[0].param;
  Report *report =
      diag_at(module->ctx->diag, "W0703", span_of(module, global->loc),
              "`zero 2` keeps the gradient of `%s` whole until the end of the step", global->name);
  diag_label(report, "shared by stages, which work on different micro-batches at a time");
  diag_help(report, "all of it is counted; `accumulate = full` keeps all gradients so");
}

void zero_warn(Zero *zero) {
  warn_whole(zero);
  for (uint32_t i = 0; i < zero->group.n; i++) {
    const ZeroGroup *group = &zero->group.at[i];
    if (group->gathers_all)
      warn_at_once(zero, group, "gathers all layers",
                   "ops outside the rounds of its stack read it");
    if (group->stage == 2 && !zero->full && zero_waits_for_stages(zero, group))
      warn_kept(zero, group);
    if (group->sums_all)
      warn_at_once(zero, group, "makes the gradients of all layers",
                   "ops outside the rounds of its stack make a term of its gradient");
  }
}
