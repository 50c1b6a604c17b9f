/* Choices that a plan leaves open, made when its file is loaded, with notes N0601: the micro-batch,
   the schedule of `pipeline auto`, the layers of `uneven = memory`, the data of `offload auto`
   (fit_offload.c), the bucket. Each choice is part of all later tries. Must not: choose a
   plan that was not compiled. */
#include "fit.h"
#include "ir/cost/bucket.h"
#include "ir/cost/count.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"

/* ---- micro ---- */

/* A bound that needs no passes: every value of the forward part several times. */
static bool surely_fits(const Module *m, int64_t capacity) {
  const Fn *step = ir_main_entry(m);
  double moved = step ? ir_count(m, step).bytes : 0;
  return 8 * moved + 4 * (double)module_budget(m).total < (double)capacity;
}

/* That of all tried with the fewest bytes; NULL: none could be compiled. */
static const Try *least_of(const ChangeSearch *search) {
  const Try *least = NULL;
  for (uint32_t i = 0; i < search->tried.n; i++) {
    const Try *one = &search->tried.at[i];
    if (one->made && (!least || budget_all(&one->cost.need) < budget_all(&least->cost.need)))
      least = one;
  }
  return least;
}

/* The largest divisor of a rank's share of the batch with which the program fits, or, as none does,
   that which needs least: its figures are those of E0801. A mesh without a machine may run
   anywhere, so its micro-batch is not chosen. */
static void choose_micro(Cli *o, Module *m) {
  ChangeSearch search = search_new(o, m, BY_BYTES);
  bool anywhere = m->mesh.n && machine_node_memory(m) <= 0;
  if (module_written(m, "plan.micro").key || anywhere || rank_share(m) < 2 ||
      surely_fits(m, search.device))
    return;
  search.host = INT64_MAX;
  Try whole = search_try(&search, search.base);
  if (!whole.made || search_fits(&search, &whole)) return;
  bool fits = search_run(&search, 1u << TRY_MICRO);
  const Try *taken = fits ? &search.best : least_of(&search);
  if (!taken || !change_value(&taken->change, "plan.micro")) return; /* E0801 follows */
  Arena *arena = o->c->arena;
  int64_t reserve = fit_machine(o, m).reserve;
  Report *r = diag_at(o->c->diag, "N0601", m->written->plan_at, "micro = %s was chosen",
                      change_value(&taken->change, "plan.micro"));
  diag_fact(r, "needs %s; the whole %s of %lld would need %s; available: %s",
            arena_amount(arena, (double)(budget_all(&taken->cost.need) + reserve)),
            m->mesh.n ? "share" : "batch", (long long)rank_share(m),
            arena_amount(arena, (double)(budget_all(&whole.cost.need) + reserve)),
            arena_amount(arena, (double)(search.device + reserve)));
  if (!fits) diag_fact(r, "no micro-batch fits, and this one needs least");
  diag_help(r, "to choose another: `--set plan.micro=N`, or `micro N` in a plan");
  change_choose(o, m, &taken->change);
}

/* ---- pipeline auto ---- */

/* zero_bubble memory = 2 */
static const char *schedule_name(Arena *arena, const Change *change) {
  const char *name = change_value(change, "plan.pipeline"),
             *chunks = change_value(change, "plan.pipeline.chunks"),
             *memory = change_value(change, "plan.pipeline.memory");
  if (!chunks && !memory) return name;
  return arena_printf(arena, "%s %s = %s", name, chunks ? "chunks" : "memory",
                      chunks ? chunks : memory);
}

static void take_best(ChangeSearch *search) {
  search->best = (Try){0};
  for (uint32_t i = 0; i < search->tried.n; i++) {
    const Try *one = &search->tried.at[i];
    if (one->made && search_better(search, one, &search->best)) search->best = *one;
  }
}

/* By the forecasts of steps; false: the machine has none. */
static bool take_fastest(ChangeSearch *search) {
  for (uint32_t i = 0; i < search->tried.n; i++)
    if (search->tried.at[i].made && !search->tried.at[i].cost.foreseen) return false;
  search->by = BY_SECONDS;
  return take_best(search), search->best.made;
}

/* 1.2e+14 FLOP from the first turn to the last, or 0.52 s a step by the forecast */
static const char *length_words(Arena *arena, const Cost *cost, bool timed) {
  if (timed) return arena_printf(arena, "%.4g s a step by the forecast", cost->forecast.seconds);
  return arena_printf(arena, "%.4g FLOP from the first turn to the last", cost->makespan);
}

/* The shortest step of those that fit, by its forecast; where the machine has none, the table of
   each schedule is simulated turn by turn with the FLOP of the classes of stages. A later one must
   be 1% shorter, since it keeps more or sends more often. If none fits, the one with the least
   memory. Schedules that this model, communicator or number of layers does not allow are no
   candidates; if none is left, the passes report why the first one is not. */
static void choose_schedule(Cli *o, Module *m) {
  ChangeSearch search = search_new(o, m, BY_MAKESPAN);
  Str word = module_word(m, "plan.pipeline");
  if (!word || strcmp(word, "auto") != 0) return;
  search.host = INT64_MAX;
  if (machine_node_memory(m) <= 0) search.device = INT64_MAX;
  search.forecasts = true;
  search_run(&search, 1u << TRY_SCHEDULE);
  bool timed = take_fastest(&search);
  if (!search.best.made) diag_drop(o->c->diag, "N0601"), search.best = search.tried.at[0];
  change_choose(o, m, &search.best.change);
  if (!search.best.made) return;
  Report *r = diag_at(o->c->diag, "N0601", module_written(m, "plan.pipeline").value,
                      "`pipeline %s` was chosen", schedule_name(o->c->arena, &search.best.change));
  for (uint32_t i = 0; i < search.tried.n; i++)
    if (search.tried.at[i].made)
      diag_fact(r, "%s: %s, %s", schedule_name(o->c->arena, &search.tried.at[i].change),
                length_words(o->c->arena, &search.tried.at[i].cost, timed),
                arena_amount(o->c->arena, (double)budget_all(&search.tried.at[i].cost.need)));
}

/* ---- uneven = memory ---- */

static void choose_layers(Cli *o, Module *m) {
  ChangeSearch search = search_new(o, m, BY_BYTES);
  if (strcmp(module_word(m, "plan.pipeline.uneven"), "memory") != 0) return;
  search.device = search.host = INT64_MAX;
  if (!search_run(&search, 1u << TRY_LAYERS)) return; /* the passes say why there is none */
  change_choose(o, m, &search.best.change);
  Report *r = diag_at(o->c->diag, "N0601", module_written(m, "plan.pipeline").value,
                      "%s layers on a stage were chosen",
                      change_value(&search.best.change, "made.stage_layers"));
  for (uint32_t i = 0; i < search.tried.n; i++)
    if (search.tried.at[i].made)
      diag_fact(r, "%s, the last stage has the rest: %s on a rank of the largest class",
                change_value(&search.tried.at[i].change, "made.stage_layers"),
                arena_amount(o->c->arena, (double)budget_all(&search.tried.at[i].cost.need)));
}

/* ---- the bucket: by latency and rate of the machine's links (ir/cost/bucket.h) ---- */

int64_t fit_set_bucket(Module *m) {
  int64_t bytes = module_written(m, "plan.zero.bucket").key ? 0 : bucket_default(m);
  if (bytes) module_set(m, "plan.zero.bucket", "%lld", (long long)bytes);
  return bytes;
}

double fit_latency(const Module *m, int64_t bytes) {
  LinkTime time = bucket_time(m, (double)bytes);
  return time.seconds > 0 ? 100 * time.latency / time.seconds : 0;
}

/* The largest of `bytes`, its quarter, .. `least` with which the program fits. If none does, or the
   machine names no memory: `bytes`. */
static int64_t fitting_bucket(Cli *o, Module *m, int64_t bytes, int64_t least) {
  ChangeSearch search = search_new(o, m, BY_BYTES);
  search.host = INT64_MAX;
  if (machine_node_memory(m) <= 0 || surely_fits(m, search.device)) return bytes;
  Try try = search_try(&search, search.base);
  for (int64_t now = bytes; try.made && !search_fits(&search, &try) && now > least;) {
    now = now / 4 > least ? now / 4 : least;
    try = search_try(
        &search, change_with(o->c->arena, search.base, "plan.zero.bucket", "%lld", (long long)now));
    if (!search_fits(&search, &try)) continue;
    change_choose(o, m, &try.change);
    return now;
  }
  return bytes;
}

static void choose_bucket(Cli *o, Module *m) {
  int64_t before = plan_zero_bucket(m), wanted = fit_set_bucket(m);
  Span zero = module_written(m, "plan.zero").all;
  if (!wanted) return;
  int64_t bytes = fitting_bucket(o, m, wanted, before), other = bytes > before ? before : wanted;
  Report *r = diag_at(o->c->diag, "N0601", zero.file ? zero : m->written->plan_at,
                      "bucket = %lldMiB was chosen", (long long)(bytes >> 20));
  Str why = arena_printf(
      o->c->arena, "latency is %.2g %% of the time of a full bucket; of %s it would be %.2g %%",
      fit_latency(m, bytes), arena_amount(o->c->arena, (double)other), fit_latency(m, other));
  diag_fact(r, "%s", why);
  module_set(m, "made.zero.bucket", "chosen: %s", why); /* `info` prints it */
  if (bytes < wanted)
    diag_fact(r, "with buckets of %s the plan needs more memory than a rank has",
              arena_amount(o->c->arena, (double)wanted));
  else if (fit_latency(m, bytes) > BUCKET_LATENCY)
    diag_fact(r, "no larger one is chosen: 1/64 of a rank's memory, or 1 GiB, is the most");
  diag_help(r, "to choose another: `--set plan.zero.bucket=N`, or `bucket = N` in the line `zero`");
}

void fit_choose(Cli *o, Module *m) {
  choose_micro(o, m);
  choose_schedule(o, m);
  choose_layers(o, m);
  if (diag_errors(o->c->diag)) return;
  fit_offload(o, m);
  choose_bucket(o, m);
}
