/* Checks that a program fits into the memory of its machine. The memory of a step is known once
   pass `memory` has run, and the passes take a fraction of a second even for large models. So plans
   are tried, not estimated: a plan that does not fit is E0801, with a change that would fit
   (search.h), at the line to change. The machine is that of the plan; else this machine, less an
   eighth of its memory for other programs; else, with --target, a common GPU of that target. */
#include "fit.h"
#include "codegen/codegen.h"
#include "ir/cost/machine.h"
#include "ir/schedule/flight.h"
#include "ir/shape/placement.h"
#include "passes/machine/prefetch.h"
#include "ir/plan/stage_class.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include <unistd.h>

Machine fit_machine(const Cli *o, const Module *m) {
  return o->planning && o->here ? (Machine){0} : plan_machine(m);
}

/* The GPU with the least memory among the targets that --target names; NULL: the program runs in
 * the memory of a host, as on the stand-in. */
static const Target *named_gpu(const Cli *o) {
  const char *list = o->value[OPT_EMULATE] ? NULL : o->value[OPT_TARGET];
  const Target *least = NULL;
  for (size_t n; list && *list; list += n + (list[n] == ',')) {
    n = strcspn(list, ",");
    const Target *target = target_find(arena_strndup(o->c->arena, list, n));
    if (target && target->facts.device == DEVICE_GPU &&
        (!least || target->memory_bytes < least->memory_bytes))
      least = target;
  }
  return least;
}

/* .. or, without --target, that of the plan's machine. */
static const Target *gpu_for(const Cli *o, const Module *m) {
  const char *name = machine_target(m);
  if (o->value[OPT_TARGET] || o->value[OPT_EMULATE] || !*name) return named_gpu(o);
  const Target *target = target_find(name);
  return target && target->facts.device == DEVICE_GPU ? target : NULL;
}

const char *fit_target(const Cli *o) {
  const char *list = o->value[OPT_TARGET];
  const Target *gpu = named_gpu(o);
  if (!list || gpu) return list ? gpu->name : NULL;
  return arena_strndup(o->c->arena, list, strcspn(list, ","));
}

int64_t fit_capacity(const Cli *o, const Module *m) {
  Machine machine = fit_machine(o, m);
  const Target *gpu = gpu_for(o, m);
  if (machine.memory > 0) return plan_capacity(&machine);
  if (gpu && !o->here) return gpu->memory_bytes / 8 * 7;
  int64_t all = (int64_t)sysconf(_SC_PHYS_PAGES) / 8 * 7 * (int64_t)sysconf(_SC_PAGESIZE);
  return o->here ? all / mesh_ranks(m) : all;
}

/* The memory of driver and libraries is reported with that of the program, as `plan` does. */
static int64_t reserve_of(const Cli *o, const Module *m) { return fit_machine(o, m).reserve; }

static const char *amount(Ctx *c, int64_t bytes) { return arena_amount(c->arena, (double)bytes); }

/* ---- a program that does not fit ---- */

static void say_parts(Ctx *c, Report *r, const Budget *budget, int64_t reserve) {
  const struct {
    const char *name;
    int64_t bytes;
  } parts[] = {{"weights", budget->weights},
               {"gradients", budget->gradients},
               {"optimizer", budget->optimizer},
               {"saved", budget->saved},
               {"working", budget->working},
               {"buffers", budget->buffers},
               {"reserve", reserve},
               {"the host's", budget->host}};
  const char *text = "";
  for (size_t i = 0; i < COUNT_OF(parts) - (!budget->host || budget->apart); i++)
    text = arena_list(c->arena, text, "%s %s", parts[i].name, amount(c, parts[i].bytes));
  diag_fact(r, "%s", text);
}

/* The loop whose messages in flight need the most room. */
static void say_rings(const Module *m, Report *r) {
  const Op *loop = NULL;
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      const Attr *attr = attr_get(&o->attrs, ATTR_ring);
      int64_t bytes = 0;
      for (uint32_t n = 0; attr && 3 * n < attr->i; n++)
        bytes += loop_ring(o, n).bytes * loop_ring(o, n).buffers;
      if (bytes > most) most = bytes, loop = o;
    }
  if (loop)
    diag_fact(r,
              "%s of these are rings of loop @%s: layers gathered ahead, and gradients that are "
              "being sent",
              amount(m->ctx, most), loop->callee->name);
}

static void say_capacity(const Cli *o, const Module *m, Report *r) {
  Machine machine = fit_machine(o, m);
  Ctx *c = o->c;
  const char *class = module_class(m).name,
             *alike = *class      ? arena_printf(c->arena, "; stage `%s` needs the most", class)
                      : m->mesh.n ? "; all ranks need the same"
                                  : "";
  bool shared =
      machine.memory ? !machine.gpus && machine.in_node > 1 : o->here && mesh_ranks(m) > 1;
  const char *of = shared
                       ? arena_printf(c->arena, " for each of the %lld ranks of a node",
                                      (long long)(machine.memory ? machine.in_node : mesh_ranks(m)))
                       : "";
  const Target *gpu = o->here ? NULL : gpu_for(o, m);
  if (!machine.memory && gpu)
    diag_fact(r,
              "capacity: seven eighths of the %s that a GPU of %s commonly has; a `machine` block "
              "gives another size",
              amount(c, gpu->memory_bytes), gpu->name);
  else if (!machine.memory)
    diag_fact(r,
              "capacity: seven eighths of this machine's memory%s; a `machine` block gives "
              "another size",
              of);
  else if (machine.reserve)
    diag_fact(r, "capacity: %s, of which driver and libraries use the reserve%s%s",
              amount(c, machine.memory), of, alike);
  else if (*of || *alike) diag_fact(r, "capacity: %s%s%s", amount(c, machine.memory), of, alike);
}

/* The place is the line that would change. */
static Span place_of(const Module *m, const Change *change) {
  Span stage = module_written(m, "plan.zero").all, micro = module_written(m, "plan.micro").value,
       async = module_written(m, "train.save.async").value;
  bool zero = false;
  for (uint32_t i = 0; i < change->n; i++) zero |= !strncmp(change->line[i].key, "plan.zero", 9);
  if (zero && stage.file) return stage;
  if (change->n == 1 && change_value(change, "train.save.async") && async.file) return async;
  return change_value(change, "plan.micro") && micro.file ? micro : m->written->plan_at;
}

/* A label at the line `zero` with the data that it does not partition. */
static void label_stage(const Module *m, Report *r) {
  static const char *const whole[] = {"a full optimizer state", "whole gradients", "whole weights"};
  int stage = plan_zero_stage(m);
  const char *axes = batch_axes(m);
  if (stage < 3 && *axes)
    diag_label(r, "every %.*s rank keeps %s", (int)strcspn(axes, ","), axes, whole[stage]);
}

/* The last change of those tried from `first` on becomes the base. */
static void join_last(ChangeSearch *search, uint32_t first) {
  for (uint32_t i = first; i < search->tried.n; i++)
    if (search->tried.at[i].made) search->base = search->tried.at[i].change;
}

/* .. the one with the fewest bytes, if it needs fewer than all that were tried before. */
static void join_least(ChangeSearch *search, uint32_t first) {
  int64_t least = INT64_MAX;
  for (uint32_t i = 0; i < search->tried.n; i++) {
    const Try *one = &search->tried.at[i];
    if (!one->made || one->cost.host > search->host || budget_all(&one->cost.need) >= least)
      continue;
    least = budget_all(&one->cost.need);
    if (i >= first) search->base = one->change;
  }
}

/* The best of those that fit as the file into which the change is written, whose open choices are
   made anew: candidates have those of the plan that does not fit, the smallest micro-batch. */
static void take_anew(const ChangeSearch *search, Try *out) {
  Try best = {0};
  for (uint32_t i = 0; i < search->tried.n; i++) {
    Try anew = {.change = search->tried.at[i].change};
    Programs programs;
    Ctx *c;
    if (!search_fits(search, &search->tried.at[i])) continue;
    anew.made = change_anew(search->o, &anew.change, &c, &programs, NULL);
    if (!anew.made) continue;
    anew.cost = search_cost(search, &programs);
    if (search_fits(search, &anew) && search_better(search, &anew, &best)) best = anew;
    ctx_free(c);
  }
  if (best.made) *out = best;
}

/* Two changes in place of the single one that was found, where the step is clearly shorter: layers
   from their inputs leave room for larger micro-batches, or for a lower stage of zero. */
static void try_two(const ChangeSearch *singles, Try *out) {
  static const double CLEARLY = 0.9;
  ChangeSearch search = search_new(singles->o, singles->m, BY_SECONDS);
  Changes inputs = {0};
  search_list(singles, TRY_INPUT, &inputs);
  if (!inputs.n || out->cost.forecast.seconds <= 0) return;
  search.base = inputs.at[0];
  if (!search_run(&search, 1u << TRY_ZERO)) return;
  Try two = search.best;
  if (search.o->chosen) take_anew(&search, &two);
  if (two.cost.forecast.seconds < CLEARLY * out->cost.forecast.seconds) *out = two;
}

/* Each change by itself, the one with the shortest step; if none fits, several together: layers
   from their inputs, the last stage of zero, the smallest micro-batch, then what else needs fewer
   bytes, until one of a kind fits. False: none was found, and *out has those that joined. */
static bool find_change(const Cli *o, const Module *m, Try *out) {
  static const Generator steps[] = {TRY_INPUT,   TRY_ZERO,     TRY_MICRO, TRY_SYNC,    TRY_STEADY,
                                    TRY_OVERLAP, TRY_PREFETCH, TRY_WIDER, TRY_OFFLOAD, TRY_RANKS};
  enum { ALWAYS = 3 };
  ChangeSearch search = search_new(o, m, BY_SECONDS);
  Change always = {0};
  bool found = search_run(&search, (2u << TRY_STEADY) - 1), single = found;
  for (size_t i = 0; i < COUNT_OF(steps) && !found; i++) {
    uint32_t first = search.tried.n;
    found = search_run(&search, 1u << steps[i]);
    if (i < ALWAYS) join_last(&search, first), always = search.base;
    else join_least(&search, first);
  }
  if (!found) search.base = always, found = search_run(&search, 1u << TRY_RANKS);
  *out = found ? search.best : (Try){.change = search.base};
  if (found && o->chosen) take_anew(&search, out);
  if (single) try_two(&search, out);
  return found;
}

static void say_help(Cli *o, const Module *m, Report *r, const Try *found) {
  Span async = module_written(m, "train.save.async").value,
       micro_at = module_written(m, "plan.micro").value;
  bool sync = found->change.n == 1 && change_value(&found->change, "train.save.async");
  const char *html = m->mesh.n ? "; `shardc plan --html` draws the timeline" : "",
             *need = amount(o->c, budget_all(&found->cost.need) + reserve_of(o, m)),
             *micro = change_value(&found->change, "plan.micro"), *time = "";
  if (found->cost.forecast.seconds > 0)
    time = arena_printf(o->c->arena,
                        found->cost.foreseen ? ", and %.3g s a step by the forecast"
                                             : ", and at least %.3g s a step",
                        found->cost.forecast.seconds);
  diag_help(r, "%s would need %s%s%s", change_words(o->c->arena, &found->change), need, time, html);
  if (micro && found->change.n == 1 && micro_at.file) diag_edit(r, micro_at, "%s", micro);
  if (sync && async.file) diag_edit(r, async, "off");
}

const char *fit_subject(const Module *m) {
  Str plan = m->written->plan, train = m->written->train;
  const char *text = plan && *plan ? arena_printf(m->arena, "plan `%s`", plan) : "the program";
  return train ? arena_printf(m->arena, "%s with `%s`", text, train) : text;
}

bool fit_check(Cli *o, const Module *m) {
  Budget budget = module_budget(m);
  Try better = {0};
  int64_t capacity = fit_capacity(o, m), reserve = reserve_of(o, m);
  if (budget_all(&budget) <= capacity) return true;
  bool shard = file_kind(o->c, o->operands.at[0]) == FILE_SHARD,
       found = shard && find_change(o, m, &better);
  Span at = place_of(m, &better.change), zero = module_written(m, "plan.zero").all;
  int64_t needs = budget_all(&budget) + reserve, has = capacity + reserve;
  const char *needed = amount(o->c, needs), *available = amount(o->c, has);
  if (!strcmp(needed, available))
    needed = arena_printf(o->c->arena, "%lld bytes", (long long)needs),
    available = arena_printf(o->c->arena, "%lld", (long long)has);
  Report *r = diag_at(o->c->diag, "E0801", at, "%s needs %s on rank 0, capacity is %s",
                      fit_subject(m), needed, available);
  if (zero.file && at.offset == zero.offset) label_stage(m, r);
  say_parts(o->c, r, &budget, reserve);
  say_rings(m, r);
  say_capacity(o, m, r);
  if (m->written->plan_left)
    diag_help(r, "this is one rank without a plan; `--plan %s` takes one of the file",
              m->written->plan_left);
  else if (found) say_help(o, m, r, &better);
  else if (shard)
    diag_help(r,
              budget.weights + budget.optimizer > capacity
                  ? "weights and optimizer alone are too large: a smaller model, or more memory"
                  : "zero, micro, recompute, offload and more ranks, all together, would not do: "
                    "a smaller model, or more memory");
  return false;
}

bool flights_check(Cli *o, Module *m) {
  Ahead asked = flights_ahead(m);
  int64_t least = 0;
  const Fn *of = NULL;
  Span ahead = module_written(m, "plan.zero.prefetch").value;
  for (uint32_t i = 0; asked.bytes && i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    int64_t bytes = f->kind == FN_BODY ? prefetch_round_bytes(m, f) : 0;
    if (bytes > 0 && (!of || bytes < least)) least = bytes, of = f;
  }
  if (!of || asked.bytes >= least) return true;
  Report *r = diag_at(
      o->c->diag, "E0602", ahead, "`prefetch = %s` holds no layer: one of @%s takes %s",
      arena_amount(m->arena, (double)asked.bytes), of->name, arena_amount(m->arena, (double)least));
  diag_help(r, "`prefetch = 1` gathers one layer ahead, whatever it takes");
  if (ahead.file) diag_edit(r, ahead, "1");
  return false;
}

const Module *fit_largest(const Programs *programs) {
  const Module *largest = NULL;
  int64_t most = -1;
  for (uint32_t i = 0; i < programs->n; i++) {
    Budget budget = module_budget(programs->at[i]);
    if (budget_all(&budget) > most) most = budget_all(&budget), largest = programs->at[i];
  }
  return largest;
}

bool programs_fit(Cli *o, const Programs *programs) {
  for (uint32_t i = 0; i < programs->n; i++)
    if (!flights_check(o, programs->at[i])) return false;
  return fit_hosts(o, programs) && fit_check(o, fit_largest(programs));
}
