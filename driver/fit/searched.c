/* `mesh auto`, `plan auto`: the plan that `plan --search` finds first, at compile time. Its block
   is added to the file (Cli.written) and is the plan of the command from then on; a note says
   which, and `info` prints it. The search depends on the file and the options alone, so every
   compile finds the same. Must not: search in another way than `plan --search`. */
#include "best.h"
#include "fit.h"

static Report *refuse(Cli *o, const SearchedPlan *plan, const char *code, const char *why) {
  return diag_at(o->c->diag, code, plan->at, "`%s`: %s", plan->word, why);
}

/* mesh tensor = 2, data = 4; zero 1 over data */
static const char *on_one_line(Arena *arena, const char *block) {
  const char *text = "";
  for (size_t n; *block; block += n + (block[n] == '\n')) {
    n = strcspn(block, "\n");
    size_t blank = strspn(block, " ");
    if (!blank) continue;
    text = arena_printf(arena, "%s%s", text, *text ? "; " : "");
    for (size_t i = blank; i < n; i++)
      if (block[i] != ' ' || block[i - 1] != ' ')
        text = arena_printf(arena, "%s%c", text, block[i]);
  }
  return text;
}

static void say(Cli *o, const SearchedPlan *plan, const BestPlans *best, const char *lines) {
  const FoundPlan *first = &best->found.at[0];
  Arena *arena = o->c->arena;
  Report *r = diag_at(o->c->diag, "N0601", plan->at, "`%s` is plan `%s`: %s", plan->word,
                      best->space.name, lines);
  double bytes = (double)(budget_all(&first->shown.need) + best->space.machine.reserve);
  diag_fact(r, "%s of a rank, %.3g s a step %s", arena_amount(arena, bytes),
            first->shown.forecast.seconds, first->shown.foreseen ? "by the forecast" : "at least");
  diag_fact(r, "no plan of %u is faster by more than %.3g %%%s", best->plans, 100 * best_gap(best),
            best_waits(best) ? ", if kernels and messages do not wait for each other" : "");
  diag_help(r, "`shardc plan --search` prints it, to be written in place of this plan");
}

/* False: said why. */
static bool find(Cli *o, const SearchedPlan *plan, BestPlans *best) {
  PlanSpace *space = &best->space;
  if (space_open(o, space) != EXIT_FINE)
    return refuse(o, plan, "E0602", "no plan of all ranks of the machine can be lowered"), false;
  const char *lacks = space_lacks_rate(space);
  if (lacks) {
    Report *r = refuse(o, plan, "E0602",
                       arena_printf(o->c->arena, "the machine block lacks `%s = ..`", lacks));
    diag_help(r, "`plan --search --objective memory` finds the plan with the fewest bytes");
    return false;
  }
  best->search = search_new(o, space->m, BY_SECONDS);
  best->wanted = (BestWanted){.gap = USUAL_GAP / 100., .most = USUAL_TRIES};
  if (!best_find(best))
    return refuse(o, plan, "E0602", "the model cannot be compiled for one rank"), false;
  if (best->fitting) return true;
  Report *r = refuse(o, plan, "E0801", "no plan of the machine fits");
  diag_help(r, "`shardc plan --search` says what the smallest one needs");
  return false;
}

Module *fit_searched(Cli *o, const SearchedPlan *plan) {
  BestPlans best = {0};
  Cli search = *o;
  search.fixes = (Strings){0}, search.value[OPT_ON] = NULL;
  if (!find(&search, plan, &best)) return NULL;
  const char *block = space_text(&best.space, &best.found.at[0].plan, best.space.name),
             *lines = on_one_line(o->c->arena, block);
  o->written = block, o->value[OPT_PLAN] = best.space.name;
  say(o, plan, &best, lines);
  Module *m = load_shard(o, o->operands.at[0]);
  if (m) module_set(m, "made.plan", "found: %s", lines);
  return m;
}
