/* `pipeline auto`: chooses the schedule of a plan (fit.h). Each schedule is compiled up to pass
   `memory`: its table is simulated turn by turn with the FLOP of the classes of stages
   (ir/cost/step.h), and the memory of its largest class is known. Among the schedules that fit, the
   one with the shortest step is chosen; a later one in the list must be 1% shorter, since it keeps
   more or sends more often. If none fits, the one with the least memory is chosen. Schedules that
   this model, communicator or number of layers does not allow are no candidates. Must not: choose
   one that was not compiled. */
#include "fit.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/pipeline_schedule.h"

enum { MOST_TRIES = MOST_CHUNKS + 2 };
static const double GAIN = 0.99;

typedef struct ScheduleTry {
  FitChange change;
  Cost cost;
  bool made;
} ScheduleTry;

static const char *name_of(const Cli *o, const FitChange *change) {
  int64_t number = change->chunks ? change->chunks : change->ahead;
  const char *key = change->chunks ? "chunks" : "memory";
  return number
             ? arena_printf(o->c->arena, "%s %s = %lld", change->schedule, key, (long long)number)
             : change->schedule;
}

static uint32_t list(ScheduleTry *all) {
  uint32_t n = 0;
  all[n++].change.schedule = "one_f_one_b";
  all[n++].change.schedule = "zero_bubble";
  all[n++].change = (FitChange){.schedule = "zero_bubble", .ahead = MOST_AHEAD};
  for (int64_t chunks = 2; chunks <= MOST_CHUNKS; chunks++)
    all[n++].change = (FitChange){.schedule = "interleaved", .chunks = chunks};
  return n;
}

static bool is_better(const ScheduleTry *a, const ScheduleTry *than, int64_t capacity) {
  int64_t need = budget_all(&a->cost.need), had = budget_all(&than->cost.need);
  if ((need <= capacity) != (had <= capacity)) return need <= capacity;
  if (need > capacity) return need < had;
  return a->cost.makespan < GAIN * than->cost.makespan;
}

static void say(Cli *o, const LowerFacts *facts, const ScheduleTry *all, uint32_t n,
                const ScheduleTry *best) {
  Report *r = diag_at(o->c->diag, "N0601", facts->pipeline, "`pipeline %s` was chosen",
                      name_of(o, &best->change));
  for (uint32_t i = 0; i < n; i++)
    if (all[i].made)
      diag_fact(r, "%s: %.4g FLOP from the first turn to the last, %s", name_of(o, &all[i].change),
                all[i].cost.makespan,
                arena_amount(o->c->arena, (double)budget_all(&all[i].cost.need)));
}

bool fit_schedule(Cli *o, Module *m, const LowerFacts *facts) {
  ScheduleTry *all = ARENA_ARRAY(o->c->arena, ScheduleTry, MOST_TRIES), *best = NULL;
  Str word = module_word(m, "plan.pipeline");
  if (!word || strcmp(word, "auto") != 0) return true;
  int64_t capacity = machine_node_memory(m) > 0 ? fit_capacity(o, m) : INT64_MAX;
  uint32_t n = list(all);
  for (uint32_t i = 0; i < n; i++) {
    if (!facts->micro) all[i].change.micro = plan_micro(m);
    all[i].made = fit_cost(o, &all[i].change, &all[i].cost);
    if (all[i].made && (!best || is_better(&all[i], best, capacity))) best = &all[i];
  }
  const FitChange *taken = best ? &best->change : &all[0].change;
  module_set(m, "plan.pipeline", "%s", taken->schedule);
  if (taken->chunks) module_set(m, "plan.pipeline.chunks", "%lld", (long long)taken->chunks);
  if (taken->ahead) module_set(m, "plan.pipeline.memory", "%lld", (long long)taken->ahead);
  if (best) say(o, facts, all, n, best);
  return best != NULL;
}
