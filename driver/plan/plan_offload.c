/* Part of `shardc plan`: reports whether `offload` pays. The plan is compiled again without its
   lines `offload`, and once for each unit of parameters with the unit on the device
   (offload_units.c). It prints the memory and the bound of the step of each next to those of the
   plan, and then a recommendation. Only for machines with GPUs and their rates: otherwise there is
   no bound. Must not: choose; `offload auto` does (fit_offload.c). */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"

static bool fits(const Planned *planned, const Cost *cost) {
  return budget_all(&cost->need) <= plan_capacity(&planned->machine);
}

static bool try_choice(const Cli *o, const Planned *planned, const OffloadChoice *choice,
                       Cost *out) {
  ChangeSearch search = search_new(o, planned->m, BY_SECONDS);
  Try one = search_try(&search, offload_change(planned->m, search.base, choice));
  *out = one.cost;
  return one.made && one.cost.seconds > 0;
}

static OffloadChoice as_planned(const Module *m) {
  OffloadChoice choice;
  for (int i = 0; i < OFFLOAD_WORDS; i++) choice.paths[i] = offload_paths(m, i);
  return choice;
}

static void leave(const Cli *o, Planned *planned, const OffloadChoice *had, const char *paths,
                  bool update) {
  Arena *arena = planned->m->arena;
  OffloadLeft one = {.paths = paths, .update = update};
  OffloadChoice choice = *had;
  bool any = false;
  for (OffloadWord i = 0; i < OFFLOAD_WORDS; i++) {
    if (update == (i == OFFLOAD_PARAMS)) continue;
    choice.paths[i] = offload_without(arena, had->paths[i], paths);
    any |= strcmp(choice.paths[i], had->paths[i]) != 0;
  }
  if (any && try_choice(o, planned, &choice, &one.cost))
    vec_push(arena, planned->offload.left, one);
}

static void leave_each(const Cli *o, Planned *planned, const OffloadChoice *had, bool update) {
  const Module *m = planned->m;
  OffloadWord word = update ? OFFLOAD_OPTIMIZER : OFFLOAD_PARAMS;
  const char *list = had->paths[word];
  if (plan_offloads_all(m, word)) {
    OffloadUnits units = offload_units(m);
    for (uint32_t i = 0; *list && i < units.n; i++)
      leave(o, planned, had, units.at[i].paths, update);
    return;
  }
  for (size_t n; *list; list += n + strspn(list + n, ", ")) {
    n = strcspn(list, ",");
    leave(o, planned, had, arena_strndup(m->arena, list, n), update);
  }
}

void plan_offload_tries(const Cli *o, Planned *planned) {
  OffloadChoice had = as_planned(planned->m);
  OffloadChoice none = {{"", "", ""}};
  bool any = false;
  for (int i = 0; i < OFFLOAD_WORDS; i++) any |= *had.paths[i] != 0;
  if (!any || !planned->machine.gpus || !planned->machine.memory || planned->step.time.total <= 0 ||
      planned->programs.n > 1 || file_kind(o->c, o->operands.at[0]) != FILE_SHARD)
    return;
  planned->offload.known = try_choice(o, planned, &none, &planned->offload.without);
  if (!planned->offload.known) return;
  leave_each(o, planned, &had, true), leave_each(o, planned, &had, false);
}

/* ---- the topic ---- */

static double gain(const Planned *planned, const Cost *cost) {
  return planned->step.time.total - cost->seconds;
}

static const char *words_of(const Planned *planned, const OffloadLeft *one) {
  return arena_printf(planned->m->arena, "%s of %s", one->update ? "the update" : "parameters",
                      one->paths);
}

static void say_try(Sheet *sheet, const Planned *planned, const Cost *cost, const char *words) {
  sheet_say(sheet, "  {:-40} {bytes:12} {seconds_per_step:12.4}  {fits:-}\n", as_text(words),
            as_bytes((double)(budget_all(&cost->need) + planned->machine.reserve)),
            as_seconds(cost->seconds), as_flag(fits(planned, cost), "fits", "does not fit"));
}

/* Among the tries that fit and shorten the step, the one that saves the most time per byte. */
static const OffloadLeft *best_left(const Planned *planned) {
  const OffloadLeft *best = NULL;
  double most = 0;
  for (uint32_t i = 0; i < planned->offload.left.n; i++) {
    const OffloadLeft *one = &planned->offload.left.at[i];
    double bytes = (double)(budget_all(&one->cost.need) - budget_all(&planned->need)),
           each = gain(planned, &one->cost) / (bytes > 1 ? bytes : 1);
    bool counts = gain(planned, &one->cost) > 1e-6 * planned->step.time.total;
    if (fits(planned, &one->cost) && counts && each > most) best = one, most = each;
  }
  return best;
}

static bool pays(const Planned *planned) {
  const Cost *without = &planned->offload.without;
  return !fits(planned, without) || gain(planned, without) < 0;
}

void topic_offload(Sheet *sheet, const Planned *planned) {
  const OffloadPays *offload = &planned->offload;
  if (!offload->known) return;
  const OffloadLeft *best = best_left(planned);
  double less = gain(planned, &offload->without);
  sheet_heads(sheet, EVERYWHERE,
              "on the device instead                           total     a step");
  sheet_put(sheet, "{offload.pays}", as_flag(pays(planned), "", ""));
  sheet_open(sheet, "offload.without");
  say_try(sheet, planned, &offload->without, "all that `offload` names");
  sheet_close(sheet);
  sheet_list(sheet, "offload.left");
  for (uint32_t i = 0; i < offload->left.n; i++) {
    const OffloadLeft *one = &offload->left.at[i];
    sheet_open(sheet, "offload.left[]");
    say_try(sheet, planned, &one->cost, words_of(planned, one));
    sheet_put(sheet, "{what}{of}{best}", as_text(one->update ? "update" : "params"),
              as_text(one->paths), as_flag(one == best, "", ""));
    sheet_close(sheet);
  }
  if (!pays(planned))
    sheet_say(sheet, "`offload` does not pay: without it the plan fits, and a step is {} shorter\n",
              as_seconds(less));
  else if (best)
    sheet_say(sheet, "to be left on the device: {}; it fits, and a step is {} shorter\n",
              as_text(words_of(planned, best)), as_seconds(gain(planned, &best->cost)));
  else sheet_say(sheet, "`offload` pays: no unit that fits on the device makes the step shorter\n");
}
