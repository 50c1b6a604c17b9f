/* `offload auto`: chooses the data of a plan that is kept on the host (fit.h). Data that does not
   fit on the device is offloaded in units (offload_units.c): the update with its gradients, or the
   parameters, of a stack or of everything outside of stacks. Each remaining unit is compiled up to
   pass `memory`. The unit is taken that adds the fewest seconds to the forecast of a step per freed
   byte; to its bound where the machine has no forecast of steps with an update on the host; or, if
   the machine has no rates, the one that moves the fewest bytes. If
   one unit is enough, the one with the shortest step is taken; of a stack only as many layers as
   needed, the first or the last ones (pass `ranges`), and whole stages if stages of a pipeline
   share them. In the end, units that are not needed on the host return to the device. Must not:
   choose a plan that was not compiled; offload more than the host's memory holds. */
#include "fit.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"

enum { MOST_UNITS = 16 };

typedef struct UnitPart { /* of a unit */
  int64_t layers;         /* of a stack; 1: what is outside of stacks; 0: nothing */
  bool last;              /* its last layers, not its first ones */
} UnitPart;

typedef struct AutoOffload {
  ChangeSearch search; /* from: the cost with these */
  Machine machine;
  OffloadUnits units;
  UnitPart share[2][MOST_UNITS]; /* parameters, the update: of which units */
  Try now;                       /* with these */
  VEC(const char *) told;
} AutoOffload;

typedef struct Moved { /* a try with another part of one unit */
  UnitPart *at, part;
  Try try;
} Moved;

/* h.*, or h[0..3] */
static const char *path_of(const Module *m, const OffloadUnit *unit, UnitPart part, bool update) {
  if (part.layers == unit->layers) return update ? unit->updated : unit->paths;
  Str stack = intern_n(m->ctx->names, unit->stack, strlen(unit->stack) - strlen(".*"));
  return layer_range(m, stack, part.last ? unit->layers - part.layers : 0, part.layers);
}

static OffloadChoice choice_of(const AutoOffload *plan) {
  const Module *m = plan->search.m;
  OffloadChoice choice = {{"", "", ""}};
  for (int update = 0; update < 2; update++)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      const char **paths = &choice.paths[update ? OFFLOAD_OPTIMIZER : OFFLOAD_PARAMS], *path;
      UnitPart share = plan->share[update][i];
      if (share.layers && *(path = path_of(m, &plan->units.at[i], share, update)))
        *paths = arena_list(m->arena, *paths, "%s", path);
    }
  choice.paths[OFFLOAD_GRADS] = choice.paths[OFFLOAD_OPTIMIZER];
  return choice;
}

static Try try_chosen(const AutoOffload *plan) {
  OffloadChoice choice = choice_of(plan);
  return search_try(&plan->search, offload_change(plan->search.m, (Change){0}, &choice));
}

/* Tries the plan with this part of the unit on the host; the unit keeps the part that it had. */
static Moved try_part(const AutoOffload *plan, UnitPart *at, int64_t layers, bool last) {
  UnitPart had = *at;
  Moved moved = {.at = at, .part = {layers, last}};
  *at = moved.part, moved.try = try_chosen(plan), *at = had;
  return moved;
}

static void tell(AutoOffload *plan) {
  OffloadChoice choice = choice_of(plan);
  const Cost *cost = &plan->now.cost;
  Arena *arena = plan->search.o->c->arena;
  double seconds = cost->forecast.seconds;
  const char *words =
                 cost->foreseen ? ", %.4g s a step by the forecast" : ", at least %.4g s a step",
             *time = seconds > 0 ? arena_printf(arena, words, seconds) : "";
  vec_push(arena, plan->told,
           arena_printf(arena, "%s: %s device, %s host%s", offload_text(arena, &choice),
                        arena_amount(arena, (double)(cost->need.total + plan->machine.reserve)),
                        arena_amount(arena, (double)cost->host), time));
}

static void take(AutoOffload *plan, const Moved *moved) {
  *moved->at = moved->part, plan->now = moved->try, plan->search.from = moved->try.cost;
  tell(plan);
}

static bool fits(const AutoOffload *plan, const Moved *moved) {
  return search_fits(&plan->search, &moved->try);
}

static bool is_longer(const Moved *moved, const Moved *than) {
  return search_whole(&moved->try.cost) > search_whole(&than->try.cost);
}

/* A unit that fits, reduced to as few layers as needed. Layers of the other end of the stack need
   the same memory, and their copies may overlap better. */
static Moved fewest(const AutoOffload *plan, uint32_t unit, Moved all) {
  Moved least = all, other;
  int64_t grain = plan->units.at[unit].grain;
  for (int64_t low = grain; low < least.part.layers;) {
    int64_t half = low + (least.part.layers - low) / 2;
    Moved middle = try_part(plan, all.at, half - half % grain, all.part.last);
    if (fits(plan, &middle)) least = middle;
    else low = middle.part.layers + grain;
  }
  Moved best = is_longer(&least, &all) ? all : least;
  if (least.part.layers == plan->units.at[unit].layers) return best;
  other = try_part(plan, all.at, least.part.layers, !all.part.last);
  return fits(plan, &other) && is_longer(&best, &other) ? other : best;
}

/* All of a unit, or where that is enough what is needed. False: none of those that are left frees a
   byte. */
static bool move_one(AutoOffload *plan) {
  Moved best = {0};
  for (int update = 1; update >= 0; update--)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      UnitPart *at = &plan->share[update][i];
      if (at->layers) continue;
      Moved moved = try_part(plan, at, plan->units.at[i].layers, false);
      if (!moved.try.made || moved.try.cost.need.total >= plan->now.cost.need.total ||
          moved.try.cost.host > plan->search.host)
        continue;
      if (fits(plan, &moved)) moved = fewest(plan, i, moved);
      if (search_better(&plan->search, &moved.try, &best.try)) best = moved;
    }
  if (best.at) take(plan, &best);
  return best.at != NULL;
}

/* Units that were offloaded first may no longer be needed, or not entirely: returns them to the
   device. */
static void take_back(AutoOffload *plan) {
  for (int update = 0; update < 2; update++)
    for (uint32_t i = 0; i < plan->units.n; i++) {
      UnitPart *at = &plan->share[update][i], had = *at;
      Moved now = {at, had, plan->now};
      if (!had.layers) continue;
      Moved none = try_part(plan, at, 0, false);
      bool back = fits(plan, &none) && !is_longer(&none, &now);
      Moved moved = back ? none : fewest(plan, i, now);
      if (moved.part.layers != had.layers || moved.part.last != had.last) take(plan, &moved);
    }
}

/* All tries are compared by forecasts, or all by bounds: a forecast needs rates of the host, which
   a plan without an update on it does not ask for. */
static void choose_clock(AutoOffload *plan) {
  AutoOffload updates = *plan;
  for (uint32_t i = 0; i < plan->units.n; i++)
    updates.share[1][i] = (UnitPart){plan->units.at[i].layers, false};
  Try all = try_chosen(&updates);
  plan->search.bounds = !all.made || !all.cost.foreseen;
}

static void say(const AutoOffload *plan, const OffloadChoice *choice, Span at) {
  Arena *arena = plan->search.o->c->arena;
  Report *r = diag_at(plan->search.o->c->diag, "N0601", at, "`offload %s -> host` was chosen",
                      offload_text(arena, choice));
  for (uint32_t i = 0; i < plan->told.n; i++) diag_fact(r, "%s", plan->told.at[i]);
  diag_fact(r, "available: %s device, %s host", arena_amount(arena, (double)plan->machine.memory),
            arena_amount(arena, (double)plan->machine.host));
}

void fit_offload(Cli *o, Module *m) {
  AutoOffload plan = {
      .search = search_new(o, m, BY_FREED), .machine = plan_machine(m), .units = offload_units(m)};
  if (!plan_offloads_any(m, OFFLOAD_AUTO)) return;
  plan.search.device = plan_capacity(&plan.machine), plan.search.host = plan.machine.host;
  if (plan.units.n > MOST_UNITS) plan.units.n = MOST_UNITS;
  choose_clock(&plan);
  plan.now = try_chosen(&plan), plan.search.from = plan.now.cost;
  bool made = plan.now.made;
  if (made) tell(&plan);
  while (made && !search_fits(&plan.search, &plan.now) && move_one(&plan)) {}
  if (search_fits(&plan.search, &plan.now)) take_back(&plan);
  OffloadChoice choice = choice_of(&plan);
  Change change = offload_change(m, (Change){0}, &choice);
  if (made) say(&plan, &choice, plan_offload_at(m));
  change_choose(o, m, &change);
}
