/* `shardc plan --search`: the best plans of a space (driver/fit/best.h) as plan blocks that the
   file may end with, each with its cost and what it loses to the best one, and the certificate. All
   other lines of the text are comments of the language. */
#include "plan_search.h"
#include "driver/fit/best.h"
#include "driver/sheet/sheet.h"
#include "ir/word_patterns.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_SHOWN = 3, MOST_TRIES = 1000000 };

/* ---- options ---- */

Exit check_search_options(const Cli *o) {
  static const struct {
    CliOption option;
    const char *name;
    bool with; /* `--search` */
  } rows[] = {
      {OPT_ON, "on", true},      {OPT_FIX, "fix", true},     {OPT_OBJECTIVE, "objective", true},
      {OPT_GAP, "gap", true},    {OPT_TRIES, "tries", true}, {OPT_ALL, "all", true},
      {OPT_HTML, "html", false}, {OPT_SVG, "svg", false},    {OPT_MEASURED, "measured", false}};
  for (size_t i = 0; i < COUNT_OF(rows); i++)
    if (o->value[rows[i].option] && rows[i].with != (o->value[OPT_SEARCH] != NULL))
      return cli_usage(rows[i].with ? "`--%s` is for `--search`"
                                    : "`--%s` draws plans of FILE, not "
                                      "those of `--search`",
                       rows[i].name);
  if (o->value[OPT_SEARCH] && o->value[OPT_TUNE_DB])
    return cli_usage("`--search` forecasts plans by the machine block, without `--tune-db`: its "
                     "bounds use no tuning records");
  return EXIT_FINE;
}

static Exit read_number(const char *text, const char *name, double most, double *to) {
  char *end;
  if (!text) return EXIT_FINE;
  *to = strtod(text, &end);
  if (*text >= '0' && *text <= '9' && (!*end || !strcmp(end, "%")) && *to <= most) return EXIT_FINE;
  return cli_usage("`--%s` takes a number from 0 to %g, not `%s`", name, most, text);
}

static Exit read_wanted(const Cli *o, BestWanted *wanted) {
  const char *by = o->value[OPT_OBJECTIVE] ? o->value[OPT_OBJECTIVE] : "time";
  double gap = USUAL_GAP, most = USUAL_TRIES;
  *wanted = (BestWanted){.memory = !strcmp(by, "memory"), .all = o->value[OPT_ALL] != NULL};
  if (!text_lists("time, cost, memory", by))
    return cli_usage("`--objective` is time, cost or memory, not `%s`", by);
  Exit e = read_number(o->value[OPT_GAP], "gap", 100, &gap);
  if (e == EXIT_FINE) e = read_number(o->value[OPT_TRIES], "tries", MOST_TRIES, &most);
  wanted->gap = gap / 100, wanted->most = (uint32_t)most;
  return e;
}

/* ---- which plans are shown ---- */

/* The best one of each of the best meshes; if there are fewer meshes, others. */
static uint32_t choose_shown(const BestPlans *best, const FoundPlan **shown) {
  uint32_t n = 0;
  for (int round = 0; round < 2; round++)
    for (uint32_t i = 0; i < best->settled && n < MOST_SHOWN; i++) {
      const FoundPlan *one = &best->found.at[i];
      bool seen = one->outcome != PLAN_FITS;
      for (uint32_t k = 0; k < n; k++)
        seen |= shown[k] == one || (!round && space_same_mesh(&shown[k]->plan, &one->plan));
      if (!seen) shown[n++] = one;
    }
  return n;
}

/* ---- figures ---- */

/* Where there is no forecast, the seconds that no step is below take its place. */
static bool forecasts(const BestPlans *best) { return best->bounds.machine.reach != NULL; }

static double other_seconds(const CostTime *time) {
  double rest = time->seconds - time->computes - time->waits;
  return rest > 0.005 * time->seconds ? rest : 0;
}

static void say_cost(Sheet *sheet, const BestPlans *best, const FoundPlan *one) {
  const Cost *cost = &one->shown;
  const CostTime *time = &cost->forecast;
  double compared = one->cost.forecast.seconds;
  bool timed = time->seconds > 0; /* the machine has rates */
  int64_t reserve = best->space.machine.reserve;
  sheet_say(sheet, "#   {bytes} of a rank", as_bytes((double)(cost->need.total + reserve)));
  sheet_say_if(sheet, timed, "; {} {seconds} a step: computation {computation_seconds}",
               as_text(forecasts(best) ? "forecast" : "at least"), as_seconds(time->seconds),
               as_seconds(time->computes));
  sheet_say_if(sheet, timed, ", waiting for messages {waiting_seconds}", as_seconds(time->waits));
  sheet_say_if(sheet, other_seconds(time) > 0,
               ", for the host, memory and shared multiprocessors {other_seconds}",
               as_seconds(other_seconds(time)));
  sheet_say_if(sheet, timed && forecasts(best) && cost->seconds > 0, "; at least {least_seconds}",
               as_seconds(cost->seconds));
  sheet_say_if(sheet, timed && compared != time->seconds,
               "; {compared_seconds} if kernels and messages did not wait for each other",
               as_seconds(compared));
  sheet_say(sheet, "\n");
}

void search_say_plan(Sheet *sheet, const BestPlans *best, const FoundPlan *one, const char *name) {
  sheet_say(sheet, "{}\n# {name}\n", as_text(""), as_text(name));
  say_cost(sheet, best, one);
}

static void say_loss(Sheet *sheet, const BestPlans *best, const FoundPlan *one,
                     const FoundPlan *first) {
  const CostTime *time = &one->shown.forecast, *than = &first->shown.forecast;
  double value = best_value(best, &one->shown), least = best_value(best, &first->shown);
  const char *why = "it needs more bytes";
  double computes = time->computes - than->computes, waits = time->waits - than->waits,
         others = other_seconds(time) - other_seconds(than);
  if (!best->wanted.memory)
    why = value <= least                            ? "none: it is as fast"
          : computes >= waits && computes >= others ? "more computation, or a longer bubble"
          : waits >= others                         ? "it waits longer for messages"
          : forecasts(best)                         ? "it waits for its host"
                                                    : "it is bound by memory";
  sheet_say(sheet, "#   {loss:.1} worse than the first: {why}; it has {differs}\n",
            as_share(value / least - 1), as_text(why),
            as_text(space_unlike(&best->space, &one->plan, &first->plan)));
}

void search_say_block(Sheet *sheet, const BestPlans *best, const char *text) {
  Arena *arena = best->space.o->c->arena;
  sheet_put(sheet, "{text}", as_text(text));
  for (size_t n; *text; text += n + 1) {
    n = strcspn(text, "\n");
    sheet_say(sheet, "{}\n", as_text(arena_strndup(arena, text, n)));
  }
}

static void say_plans(Sheet *sheet, const BestPlans *best) {
  Arena *arena = best->space.o->c->arena;
  const FoundPlan *shown[MOST_SHOWN];
  uint32_t n = choose_shown(best, shown);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = arena_printf(arena, "%s_%u", best->space.name, i + 1);
    sheet_open(sheet, "plans[]");
    search_say_plan(sheet, best, shown[i], name);
    if (i) say_loss(sheet, best, shown[i], shown[0]);
    search_say_block(sheet, best, space_text(&best->space, &shown[i]->plan, name));
    sheet_close(sheet);
  }
}

/* Where the figures that are compared come from. */
const char *search_by_what(const BestPlans *best) {
  if (best->wanted.memory) return "exact bytes of compiled plans";
  if (!forecasts(best)) return "times that no step is below";
  return best_waits(best) ? "forecasts in which kernels and messages do not wait for each other"
                          : "forecasts";
}

static void say_head(Sheet *sheet, const BestPlans *best) {
  const PlanSpace *space = &best->space;
  double gap = best_gap(best);
  sheet_say(sheet, "# plans for {model} on {machine}: {ranks} ranks, batch {batch}\n",
            as_text(space->m->model), as_text(space->base.on), as_exact((double)space->ranks),
            as_exact((double)space->batch));
  sheet_say(sheet,
            "# {in_space} plans: {too_large} too large, {refused} refused, {fitting} compiled that "
            "fit; {small_programs} small programs for bounds\n",
            as_exact(best->plans), as_exact(best->large), as_exact(best->refused),
            as_exact(best->fitting), as_exact(best->bounds.compiled));
  sheet_say_if(
      sheet, best->found.n,
      "# certificate: by {certified_by}, no plan of the space is {} by more than {gap:.2}\n",
      as_text(search_by_what(best)), as_text(best->wanted.memory ? "smaller" : "faster"),
      as_share(gap));
  sheet_put(sheet, "{floor}", as_exact(best->floor));
  if (best->found.n && gap > best->wanted.gap)
    sheet_say(
        sheet,
        "# the search ended after {} compiled plans, {!ended_after}{} of them by their bounds: "
        "`--tries N` allows more\n",
        as_count(best->done.n), as_exact(best->wanted.most), as_count(best->wanted.most));
}

/* Every row, with its bound. */
void search_put_all(Sheet *sheet, const BestPlans *best) {
  static const char *const words[] = {"fits", "large", "refused"};
  Arena *arena = best->space.o->c->arena;
  for (uint32_t i = 0; best->wanted.all && i < best->found.n; i++) {
    const FoundPlan *one = &best->found.at[i];
    sheet_open(sheet, "all[]");
    for (int f = 0; f < SPACE_FIELDS; f++)
      sheet_put(sheet, arena_printf(arena, "{%s}", space_key(f)),
                as_text(space_value(arena, &one->plan, f)));
    sheet_put(sheet, "{ranks}{outcome}{seconds}{bytes}{bound_seconds}{bound_bytes}",
              as_exact((double)best->space.ranks), as_text(words[one->outcome]),
              as_exact(one->cost.forecast.seconds), as_exact((double)budget_all(&one->cost.need)),
              as_exact(one->bound.seconds), as_exact(one->bound.bytes));
    sheet_close(sheet);
  }
}

/* ---- no plan ---- */

BestPlans best_of(const PlanSpace *space, const BestWanted *wanted) {
  return (BestPlans){
      .space = *space, .search = search_new(space->o, space->m, BY_SECONDS), .wanted = *wanted};
}

/* The plan that was refused first; why it was, with the edit, is printed before. */
static void say_refused(const BestPlans *best, Report *r) {
  static const SpacePlan simple = {.at = {1, 1, 1, 1, 1, 1}};
  const PlanSpace *space = &best->space;
  Change change = space_change(space, &best->unmade);
  change_explain(space->o, &change);
  diag_fact(r, "the message before is that of the plan refused first: %s",
            space_unlike(space, &best->unmade, &simple));
}

/* Is there a plan that fits without the constraint i of `--fix`? */
static bool fits_without(const BestPlans *best, uint32_t i) {
  Cli *o = best->space.o;
  const char *fix = o->fixes.at[i];
  BestPlans other =
      best_of(&best->space, &(BestWanted){.memory = true, .gap = 100, .most = USUAL_TRIES});
  o->fixes.at[i] = "";
  bool fits = best_find(&other) && other.fitting;
  o->fixes.at[i] = fix;
  return fits;
}

static void count_plan(void *plans, const SpacePlan *plan) {
  (void)plan;
  ++*(uint32_t *)plans;
}

/* The batch nearest to that of the train block with which the space has a plan; 0: none near is. */
static int64_t nearest_batch(const PlanSpace *space) {
  enum { MOST_AWAY = 1024 };
  for (int64_t by = 1; by <= space->ranks && by <= MOST_AWAY; by++)
    for (int sign = -1; sign <= 1; sign += 2) {
      PlanSpace other = *space;
      uint32_t plans = 0;
      other.batch = space->batch + sign * by;
      if (other.batch > 0) space_list(&other, count_plan, &plans);
      if (plans) return other.batch;
    }
  return 0;
}

static bool fixes_number(Arena *arena, const char *fix, size_t key) {
  for (SpaceField f = 0; f < SPACE_FIELDS; f++)
    if (strlen(space_key(f)) == key && !strncmp(fix, space_key(f), key))
      return !*space_words(arena, f);
  return false;
}

/* `tensor=8` in place of the constraint i, `tensor=7`: the number nearest to it with which the
   space has plans. NULL: there is none, or the constraint has words, or several numbers. */
static const char *nearest_fix(const PlanSpace *space, uint32_t i) {
  enum { MOST_AWAY = 64 };
  Cli *o = space->o;
  Arena *arena = o->c->arena;
  const char *fix = o->fixes.at[i], *near = NULL;
  int key = (int)strcspn(fix, "=");
  int64_t number;
  if (!fixes_number(arena, fix, (size_t)key) || !whole_number(fix + key + 1, 1, INT32_MAX, &number))
    return NULL;
  for (int64_t by = 1; by <= MOST_AWAY && !near; by++)
    for (int sign = -1; sign <= 1 && !near; sign += 2) {
      uint32_t plans = 0;
      if (number + sign * by < 1) continue;
      o->fixes.at[i] = arena_printf(arena, "%.*s=%lld", key, fix, (long long)(number + sign * by));
      space_list(space, count_plan, &plans);
      if (plans) near = o->fixes.at[i];
    }
  o->fixes.at[i] = fix;
  return near;
}

/* No mesh of all ranks splits what the model has. */
static void say_axes(const PlanSpace *space, Report *r) {
  Arena *arena = space->o->c->arena;
  const char *axes = arena_printf(arena, "data divides Batch = %lld", (long long)space->batch);
  if (*space->tensor) axes = arena_printf(arena, "%s; tensor divides %s", axes, space->tensor);
  if (*space->experts)
    axes = arena_printf(arena, "%s; expert divides %s = %lld", axes, space->experts,
                        (long long)space->expert_count);
  if (*space->sequence)
    axes = arena_printf(arena, "%s; context divides %s = %lld", axes, space->sequence,
                        (long long)space->sequence_size);
  if (*space->layers)
    axes = arena_printf(arena, "%s; pipe is at most %s = %lld", axes, space->layers,
                        (long long)space->layer_count);
  diag_fact(r, "axes of %lld ranks in all: %s", (long long)space->ranks, axes);
}

static void say_empty(const PlanSpace *space, Report *r) {
  int64_t batch = nearest_batch(space);
  if (batch) diag_help(r, "`--set train.batch=%lld` has plans", (long long)batch);
  else if (space->o->fixes.n == 1)
    diag_help(r, "no plan is left by `--fix %s`, and the others do not fit", space->o->fixes.at[0]);
  else if (space->o->fixes.n)
    diag_help(r, "leave out more than one `--fix`: together they exclude every plan");
  else diag_help(r, "no batch near this one has plans: another number of nodes");
}

Exit search_say_none(BestPlans *best) {
  PlanSpace *space = &best->space;
  Arena *arena = space->o->c->arena;
  int64_t reserve = space->machine.reserve;
  Report *r = diag_at(space->o->c->diag, "E0801", (Span){0}, "no plan of the space fits");
  diag_fact(r, "%u plans on %lld ranks%s: %u too large, %u refused", best->plans,
            (long long)space->ranks, space->o->fixes.n ? " with `--fix`" : "", best->large,
            best->refused);
  if (best->plans)
    diag_fact(r, "the smallest needs at least %s, capacity is %s",
              arena_amount(arena, best->least + (double)reserve),
              arena_amount(arena, (double)(best->search.device + reserve)));
  else say_axes(space, r);
  if (best->unmade.at[FIELD_DATA]) say_refused(best, r);
  for (uint32_t i = 0; i < space->o->fixes.n; i++)
    if (fits_without(best, i)) {
      const char *near = best->plans ? NULL : nearest_fix(space, i);
      diag_help(r, "without `--fix %s` a plan fits%s", space->o->fixes.at[i],
                near ? arena_printf(arena, "; `--fix %s` has plans", near) : "");
      return cli_report(space->o, EXIT_NO);
    }
  if (!best->plans) say_empty(space, r); /* memory is not at fault */
  else if (best->large)
    diag_help(r, "more nodes: `--on \"%.*s nodes = %lld\"`", (int)strcspn(space->base.on, " "),
              space->base.on, 2 * (long long)space->nodes);
  return cli_report(space->o, EXIT_NO);
}

/* ---- the command ---- */

Exit search_no_bounds(const PlanSpace *space) {
  return cli_usage("the model cannot be compiled for one rank of `%s`: `shardc plan FILE` says why",
                   space->base.on);
}

Exit plan_search(Cli *o) {
  PlanSpace space;
  BestWanted wanted;
  o->planning = true;
  Exit e = read_wanted(o, &wanted);
  if (e == EXIT_FINE) e = space_open(o, &space);
  if (e != EXIT_FINE) return cli_report(o, e);
  const char *by = o->value[OPT_OBJECTIVE] ? o->value[OPT_OBJECTIVE] : "time";
  const char *lacks = wanted.memory ? NULL : space_lacks_rate(&space);
  if (lacks)
    return cli_usage("`--objective %s` needs `%s = ..` in the machine block; `--objective "
                     "memory` does not",
                     by, lacks);
  if (!strcmp(by, "cost")) return plan_search_sizes(&space, &wanted);
  BestPlans best = best_of(&space, &wanted);
  if (!best_find(&best)) return search_no_bounds(&space);
  if (!best.fitting) return search_say_none(&best);
  Sheet *sheet = sheet_new(o->c->arena);
  say_head(sheet, &best), say_plans(sheet, &best), search_put_all(sheet, &best);
  sheet_show(sheet, o->value[OPT_JSON]);
  return cli_report(o, EXIT_FINE);
}
