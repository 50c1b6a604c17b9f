/* `offload auto`: chooses the data of a plan that is kept on the host (fit.h). Data that does not
   fit on the device is offloaded in units (offload_units.c): the update with its gradients, or the
   parameters, of a stack or of everything outside of stacks. Each remaining unit is compiled up to
   pass `memory`. The unit is taken that adds the fewest seconds to the bound of a step per freed
   byte (timeline_host.c), or, if the machine has no rates, the one that moves the fewest bytes. If
   one unit is enough, the one with the shortest step is taken; of a stack only as many layers as
   needed, the first or the last ones (pass `ranges`), and whole stages if stages of a pipeline
   share them. In the end, units that are not needed on the host return to the device. Must not:
   choose a plan that was not compiled; offload more than the host's memory holds. */
#include "fit.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_offload.h"
#include "ir/word_patterns.h"
#include <string.h>

typedef struct UnitPart { /* of a unit */
  int64_t layers;         /* of a stack; 1: what is outside of stacks; 0: nothing */
  bool last;              /* its last layers, not its first ones */
} UnitPart;

typedef struct AutoOffload {
  const Cli *o;
  Module *m;
  Machine machine;
  OffloadUnits units;
  UnitPart share[2][MOST_UNITS]; /* parameters, the update: of which units */
  Cost cost;                     /* with these */
  VEC(const char *) told;
} AutoOffload;

static int64_t here(const Cost *cost) {
  return budget_all(&cost->need) - (cost->need.apart ? 0 : cost->need.host);
}

static bool fits(const AutoOffload *plan, const Cost *cost) {
  return here(cost) <= plan_capacity(&plan->machine) && cost->host <= plan->machine.host;
}

static int64_t all_layers(const AutoOffload *plan, uint32_t unit) {
  return offload_layers(plan->m, plan->units.at[unit]);
}

/* Layers that go together: where all stages have a block of as many, these are one. */
static int64_t grain_of(const AutoOffload *plan, uint32_t unit) {
  const char *path = plan->units.at[unit];
  int64_t all = all_layers(plan, unit), ranks = 1;
  for (uint32_t i = 0; ranks == 1 && i < plan->m->globals.n; i++) {
    const Global *global = plan->m->globals.at[i];
    if (!strncmp(global->name, path, strlen(path))) ranks = layers_ranks(plan->m, global);
  }
  if (ranks == 1 || plan_uneven(plan->m) || all % ranks) return 1;
  return plan_chunks(plan->m) > 1 ? all : all / ranks;
}

/* h.*, or h[0..3] */
static const char *path_of(const AutoOffload *plan, uint32_t unit, UnitPart share, bool update) {
  const char *path = plan->units.at[unit];
  int64_t all = all_layers(plan, unit);
  if (share.layers == all) return update ? offload_updated(plan->m, path) : path;
  Str stack = intern_n(plan->m->ctx->names, path, strlen(path) - strlen(".*"));
  return layer_range(plan->m, stack, share.last ? all - share.layers : 0, share.layers);
}

static OffloadChoice choice_of(const AutoOffload *plan) {
  OffloadChoice choice = {{"", "", ""}};
  for (int update = 0; update < 2; update++)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      const char **paths = &choice.paths[update ? 0 : 2], *path;
      UnitPart share = plan->share[update][i];
      if (share.layers && *(path = path_of(plan, i, share, update)))
        *paths = arena_printf(plan->m->arena, "%s%s%s", *paths, **paths ? ", " : "", path);
    }
  choice.paths[1] = choice.paths[0];
  return choice;
}

static bool try_chosen(const AutoOffload *plan, Cost *cost) {
  OffloadChoice choice = choice_of(plan);
  return fit_cost(plan->o, &(FitChange){.moved = &choice, .timed = true}, cost);
}

static void tell(AutoOffload *plan, const Cost *cost) {
  OffloadChoice choice = choice_of(plan);
  Arena *arena = plan->o->c->arena;
  const char *time = cost->seconds > 0 ? arena_printf(arena, ", %.4g s a step", cost->seconds) : "";
  vec_push(arena, plan->told,
           arena_printf(arena, "%s: %s device, %s host%s", offload_text(arena, &choice),
                        arena_amount(arena, (double)(here(cost) + plan->machine.reserve)),
                        arena_amount(arena, (double)cost->host), time));
}

/* Seconds that a byte costs which is free then, or bytes moved for it. */
static double price(const AutoOffload *plan, const Cost *cost) {
  bool timed = cost->seconds > 0 && plan->cost.seconds > 0;
  double more = timed ? cost->seconds - plan->cost.seconds : cost->moved - plan->cost.moved;
  return more / (double)(here(&plan->cost) - here(cost));
}

static double whole(const Cost *cost) { return cost->seconds > 0 ? cost->seconds : cost->moved; }

static bool is_better(const AutoOffload *plan, const Cost *a, const Cost *than) {
  if (fits(plan, a) != fits(plan, than)) return fits(plan, a);
  return fits(plan, a) ? whole(a) < whole(than) : price(plan, a) < price(plan, than);
}

static bool try_share(AutoOffload *plan, UnitPart *at, UnitPart share, Cost *cost) {
  *at = share;
  return try_chosen(plan, cost) && fits(plan, cost);
}

/* Reduces a unit that fits to as few layers as needed. Layers of the other end of the stack need
   the same memory, and their copies may overlap better. */
static void take_fewest(AutoOffload *plan, UnitPart *at, uint32_t unit, Cost *cost) {
  UnitPart best = *at, least = *at;
  Cost one, fewest = *cost;
  int64_t all = all_layers(plan, unit), grain = grain_of(plan, unit);
  for (int64_t low = grain; low < least.layers;) {
    int64_t half = low + (least.layers - low) / 2;
    UnitPart middle = {half - half % grain, best.last};
    if (try_share(plan, at, middle, &one)) least = middle, fewest = one;
    else low = middle.layers + grain;
  }
  if (least.layers < best.layers && whole(&fewest) <= whole(cost)) best = least, *cost = fewest;
  least.last = !least.last;
  if (least.layers < all && try_share(plan, at, least, &one) && whole(&one) < whole(cost))
    best = least, *cost = one;
  *at = best;
}

/* All of it, or where that is enough what is needed. False: it frees nothing. */
static bool try_unit(AutoOffload *plan, UnitPart *at, uint32_t unit, Cost *cost) {
  *at = (UnitPart){.layers = all_layers(plan, unit)};
  if (!try_chosen(plan, cost) || here(cost) >= here(&plan->cost) || cost->host > plan->machine.host)
    return false;
  if (fits(plan, cost)) take_fewest(plan, at, unit, cost);
  return true;
}

/* False: none of those that are left frees a byte. */
static bool move_one(AutoOffload *plan) {
  UnitPart best_share, *best_at = NULL;
  Cost best = {0}, cost;
  for (int update = 1; update >= 0; update--)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      UnitPart *at = &plan->share[update][i], share;
      if (at->layers) continue;
      bool good = try_unit(plan, at, i, &cost);
      share = *at, *at = (UnitPart){0};
      if (!good || (best_at && !is_better(plan, &cost, &best))) continue;
      best = cost, best_at = at, best_share = share;
    }
  if (!best_at) return false;
  *best_at = best_share, plan->cost = best;
  tell(plan, &best);
  return true;
}

/* Units that were offloaded first may no longer be needed, or not entirely: returns them to the
   device. */
static void take_back(AutoOffload *plan) {
  for (int update = 0; update < 2; update++)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      UnitPart *at = &plan->share[update][i], had = *at;
      Cost cost;
      if (!had.layers) continue;
      bool none = try_share(plan, at, (UnitPart){0}, &cost) && whole(&cost) <= whole(&plan->cost);
      if (!none) *at = had, cost = plan->cost, take_fewest(plan, at, i, &cost);
      if (at->layers == had.layers && at->last == had.last) continue;
      plan->cost = cost;
      tell(plan, &cost);
    }
}

static void say(const AutoOffload *plan, const OffloadChoice *choice, Span at) {
  Arena *arena = plan->o->c->arena;
  Report *r = diag_at(plan->o->c->diag, "N0601", at, "`offload %s -> host` was chosen",
                      offload_text(arena, choice));
  for (uint32_t i = 0; i < plan->told.n; i++) diag_fact(r, "%s", plan->told.at[i]);
  diag_fact(r, "available: %s device, %s host", arena_amount(arena, (double)plan->machine.memory),
            arena_amount(arena, (double)plan->machine.host));
}

bool fit_offload(Cli *o, Module *m) {
  AutoOffload plan = {.o = o, .m = m, .machine = plan_machine(m), .units = offload_units(m)};
  if (!text_lists(plan_offload(m), "auto")) return true;
  if (plan.units.n > MOST_UNITS) plan.units.n = MOST_UNITS;
  bool made = try_chosen(&plan, &plan.cost);
  if (made) tell(&plan, &plan.cost);
  while (made && !fits(&plan, &plan.cost) && move_one(&plan)) {}
  if (made && fits(&plan, &plan.cost)) take_back(&plan);
  OffloadChoice *choice = ARENA_NEW(o->c->arena, OffloadChoice);
  *choice = choice_of(&plan);
  if (made) say(&plan, choice, plan_offload_at(m));
  offload_set(m, choice);
  o->offload = choice;
  return made;
}
