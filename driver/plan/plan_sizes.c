/* `shardc plan --search --objective cost`: the plan that takes the fewest seconds of GPUs. All
   plans of a space have all of its ranks, so a space for each size of the machine is searched: its
   nodes and their divisors, and of one node the divisors of its GPUs. The smallest is first. In
   later ones a plan whose bound, times its ranks, is not below the least cost so far cannot win, so
   none is looked for: such a size has the best plan of those that were compiled, and a bound of the
   others. Must not: search a size in another way than `plan --search`. */
#include "plan_search.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include <math.h>

enum { HOUR = 3600 };

typedef struct Size { /* of the machine */
  int64_t nodes, ranks;
  BestPlans best;
  double cost, least; /* seconds of all ranks; INFINITY: no plan fits. No plan is below `least` */
} Size;

typedef struct SizeSearch {
  const PlanSpace *whole;
  const BestWanted *wanted;
  VEC(Size *) at;
  VEC(uint32_t) order; /* of those that have a plan, by cost */
  double least;        /* of all */
  uint32_t plans, compiled;
} SizeSearch;

static const char *device_of(const SizeSearch *sizes) {
  return sizes->whole->machine.gpus ? "GPU" : "rank";
}

/* ---- the search ---- */

/* The whole machine, if it is of that size: messages name the options that the user gave. */
static bool open_size(const SizeSearch *sizes, Size *size) {
  const PlanSpace *whole = sizes->whole;
  Arena *arena = whole->o->c->arena;
  PlanSpace *space = &size->best.space;
  if (size->ranks == whole->ranks) return *space = *whole, true;
  Cli *own = ARENA_NEW(arena, Cli);
  *own = *whole->o, own->fixes = (Strings){0};
  for (uint32_t i = 0; i < whole->o->fixes.n; i++)
    vec_push(arena, own->fixes, whole->o->fixes.at[i]);
  vec_push(arena, own->fixes, arena_printf(arena, "ranks=%lld", (long long)size->ranks));
  int name = (int)strcspn(whole->base.on, " ");
  own->value[OPT_ON] = arena_printf(arena, "%.*s", name, whole->base.on);
  if (size->nodes > 1)
    own->value[OPT_ON] =
        arena_printf(arena, "%s nodes = %lld", own->value[OPT_ON], (long long)size->nodes);
  return space_open(own, space) == EXIT_FINE;
}

static double least_cost(const SizeSearch *sizes) {
  double least = INFINITY;
  for (uint32_t i = 0; i < sizes->at.n; i++) least = fmin(least, sizes->at.at[i]->cost);
  return least;
}

/* False: a size cannot be searched. */
static bool search_size(SizeSearch *sizes, int64_t nodes, int64_t ranks) {
  Arena *arena = sizes->whole->o->c->arena;
  Size *size = ARENA_NEW(arena, Size);
  *size = (Size){.nodes = nodes, .ranks = ranks, .cost = INFINITY, .least = INFINITY};
  if (!open_size(sizes, size)) return false;
  double than = least_cost(sizes) / (double)ranks;
  BestWanted wanted = *sizes->wanted;
  wanted.than = than < INFINITY ? than : 0;
  BestPlans *best = &size->best;
  *best = best_of(&best->space, &wanted);
  if (!best_find(best)) return false;
  if (best->fitting) size->cost = (double)ranks * best_value(best, &best->found.at[0].shown);
  size->least = fmin(size->cost, (double)ranks * best->floor);
  sizes->least = fmin(sizes->least, size->least);
  sizes->plans += best->plans, sizes->compiled += best->done.n;
  vec_push(arena, sizes->at, size);
  return true;
}

static bool search_divisors(SizeSearch *sizes, int64_t gpus, int64_t nodes) {
  bool all = true;
  for (int64_t n = 1; all && n < gpus; n = divisor_from(gpus, n + 1))
    all = search_size(sizes, 1, n);
  for (int64_t n = 1; all; n = divisor_from(nodes, n + 1)) {
    all = search_size(sizes, n, n * gpus);
    if (n == nodes) break;
  }
  return all;
}

static void sort_sizes(SizeSearch *sizes) {
  for (uint32_t i = 0; i < sizes->at.n; i++) {
    if (!sizes->at.at[i]->best.fitting) continue;
    vec_push(sizes->whole->o->c->arena, sizes->order, i);
    for (uint32_t k = sizes->order.n - 1, *at = sizes->order.at;
         k && sizes->at.at[at[k]]->cost < sizes->at.at[at[k - 1]]->cost; k--) {
      uint32_t other = at[k];
      at[k] = at[k - 1], at[k - 1] = other;
    }
  }
}

/* ---- figures ---- */

static double gap_of(const SizeSearch *sizes) { return least_cost(sizes) / sizes->least - 1; }

static void say_head(Sheet *sheet, const SizeSearch *sizes) {
  const PlanSpace *whole = sizes->whole;
  double gap = gap_of(sizes);
  sheet_say(sheet,
            "# plans for {model} on {machine}, of {} size{}: up to {ranks} ranks, batch {batch}\n",
            as_text(whole->m->model), as_text(whole->base.on), as_count(sizes->at.n),
            as_text(sizes->at.n == 1 ? "" : "s"), as_exact((double)whole->ranks),
            as_exact((double)whole->batch));
  sheet_say(sheet, "# {in_space} plans, {compiled} compiled\n", as_exact(sizes->plans),
            as_exact(sizes->compiled));
  sheet_say(sheet,
            "# certificate: by {certified_by}, no plan of these sizes costs less by more than "
            "{gap:.2}\n",
            as_text(search_by_what(&sizes->at.at[0]->best)), as_share(gap));
  sheet_say_if(sheet, gap > sizes->wanted->gap * (1 + 1e-9),
               "# a search ended after {!ended_after}{} plans of a size: `--tries N` allows more\n",
               as_exact(sizes->wanted->most), as_count(sizes->wanted->most));
}

static const char *size_words(const SizeSearch *sizes, const Size *size) {
  Arena *arena = sizes->whole->o->c->arena;
  const char *text = arena_printf(arena, "%lld %s%s", (long long)size->ranks, device_of(sizes),
                                  size->ranks > 1 ? "s" : "");
  if (size->nodes < 2) return text;
  return arena_printf(arena, "%s, %lld nodes", text, (long long)size->nodes);
}

/* Seconds of all ranks in a step as hours of the run, if its steps are known. */
static double scale_of(const SizeSearch *sizes) {
  double steps = train_steps(sizes->whole->m);
  return steps > 0 ? steps / HOUR : 1;
}

static void say_none_fits(Sheet *sheet, const Size *size, double scale) {
  const BestPlans *best = &size->best;
  sheet_say(sheet,
            "no plan found: {in_space} in the space, {too_large} too large, {refused} refused",
            as_exact(best->plans), as_exact(best->large), as_exact(best->refused));
  sheet_say_if(sheet, size->least < INFINITY, "; others cost at least {}",
               as_number(size->least * scale));
  sheet_say(sheet, "\n");
}

static void say_size(Sheet *sheet, const SizeSearch *sizes, const Size *size) {
  double scale = scale_of(sizes), least = least_cost(sizes);
  bool hours = train_steps(sizes->whole->m) > 0;
  sheet_open(sheet, "sizes[]");
  sheet_say(sheet, "#   {:-22}", as_text(size_words(sizes, size)));
  sheet_put(sheet, "{nodes}{ranks}", as_exact((double)size->nodes), as_exact((double)size->ranks));
  if (size->least < INFINITY) sheet_put(sheet, "{least_device_seconds}", as_exact(size->least));
  if (size->best.fitting) {
    sheet_say(sheet, "{seconds:12}{!device_seconds}",
              as_seconds(size->best.found.at[0].shown.forecast.seconds), as_exact(size->cost));
    if (hours) sheet_put(sheet, "{device_hours}", as_exact(size->cost * scale));
    sheet_say(sheet, "{:12}{:12}{loss:10.1}\n", as_number(size->cost * scale),
              as_number(size->least * scale), as_share(size->cost / least - 1));
  } else say_none_fits(sheet, size, scale);
  sheet_close(sheet);
}

static void say_sizes(Sheet *sheet, const SizeSearch *sizes) {
  Arena *arena = sizes->whole->o->c->arena;
  bool hours = train_steps(sizes->whole->m) > 0;
  const char *unit = arena_printf(arena, "%s %s", device_of(sizes), hours ? "hours" : "seconds");
  sheet_say(sheet, "#   {:-22}{:12}{:12}{:12}{:10}\n", as_text("size"), as_text("a step"),
            as_text(unit), as_text("at least"), as_text("loss"));
  for (uint32_t i = 0; i < sizes->at.n; i++) say_size(sheet, sizes, sizes->at.at[i]);
}

static void say_plans(Sheet *sheet, const SizeSearch *sizes) {
  Arena *arena = sizes->whole->o->c->arena;
  const FoundPlan *first = NULL;
  for (uint32_t i = 0; i < sizes->order.n; i++) {
    const Size *size = sizes->at.at[sizes->order.at[i]];
    const BestPlans *best = &size->best;
    const FoundPlan *one = &best->found.at[0];
    const char *name = arena_printf(arena, "%s_%u", sizes->whole->name, i + 1);
    sheet_open(sheet, "plans[]");
    search_say_plan(sheet, best, one, name);
    sheet_put(sheet, "{ranks}", as_exact((double)size->ranks));
    if (first)
      sheet_say(sheet, "#   {loss:.1} more than the first; it has {differs}\n",
                as_share(size->cost / least_cost(sizes) - 1),
                as_text(space_unlike(&best->space, &one->plan, &first->plan)));
    else first = one;
    search_say_block(sheet, best, space_text(&best->space, &one->plan, name));
    sheet_close(sheet);
  }
}

/* ---- the command ---- */

/* The search of the largest size that has plans; if none has, of the whole machine. */
static BestPlans *largest_space(const SizeSearch *sizes) {
  uint32_t i = sizes->at.n - 1;
  while (i && !sizes->at.at[i]->best.plans) i--;
  return &sizes->at.at[sizes->at.at[i]->best.plans ? i : sizes->at.n - 1]->best;
}

Exit plan_search_sizes(PlanSpace *whole, const BestWanted *wanted) {
  Cli *o = whole->o;
  SizeSearch sizes = {.whole = whole, .wanted = wanted, .least = INFINITY};
  int64_t gpus = module_whole(whole->m, "machine.node.gpus");
  bool one = !gpus;
  for (uint32_t i = 0; i < o->fixes.n; i++) one |= !strncmp(o->fixes.at[i], "ranks=", 6);
  bool all = !one ? search_divisors(&sizes, gpus, whole->nodes)
                  : search_size(&sizes, whole->nodes, whole->ranks);
  if (!all) return search_no_bounds(whole);
  sort_sizes(&sizes);
  if (!sizes.order.n) return search_say_none(largest_space(&sizes));
  Sheet *sheet = sheet_new(o->c->arena);
  say_head(sheet, &sizes), say_sizes(sheet, &sizes), say_plans(sheet, &sizes);
  for (uint32_t i = 0; i < sizes.at.n; i++) search_put_all(sheet, &sizes.at.at[i]->best);
  sheet_show(sheet, o->value[OPT_JSON]);
  return cli_report(o, EXIT_FINE);
}
