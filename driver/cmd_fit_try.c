/* What would fit instead of a plan that does not (fit.h). Changes are tried in the order in
   which they cost the least: layers gathered less far ahead, no message beside the computation, the
   next stages of zero, smaller micro-batches, layers computed again from their inputs, all of these
   together, more ranks. A try takes the program from its file to pass `memory` in a context of its
   own: a tenth of a second also for large models. What cannot be made so (a stage that an optimizer
   does not take, sizes that do not divide) is no answer. */
#include "driver/fit.h"
#include "ir/flight.h"
#include "ir/placement.h"
#include "passes/pass.h"
#include "ir/module_settings.h"

enum { LAST_STAGE = 3, MOST_TIMES = 1024 };

int fit_batch_axis(const Module *m) {
  for (uint32_t i = 0; i < m->rules.n; i++)
    for (uint32_t k = 0; k < m->rules.at[i].dims.n; k++)
      for (uint32_t j = 0; !strcmp(m->rules.at[i].dims.at[k], "Batch"); j++) {
        if (j == m->rules.at[i].axes.n) break;
        int axis = mesh_find(m, m->rules.at[i].axes.at[j]);
        if (axis >= 0) return axis;
      }
  return -1;
}

/* ---- one try ---- */

/* The stacks of the model that stand in no other one: "dec, enc". */
static const char *stack_names(const Module *m) {
  const char *text = "";
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    const char *star = g->kind == GLOBAL_PARAM ? strstr(g->name, ".*.") : NULL;
    if (!star) continue;
    const char *name = arena_strndup(m->arena, g->name, (size_t)(star - g->name));
    const char *had = arena_printf(m->arena, ", %s,", text);
    if (strstr(had, arena_printf(m->arena, ", %s,", name))) continue;
    text = arena_printf(m->arena, "%s%s%s", text, *text ? ", " : "", name);
  }
  return text;
}

static bool apply(Module *m, const FitChange *c) {
  int axis = fit_batch_axis(m);
  const char *stacks = c->keep_input ? stack_names(m) : "";
  if (c->stage && axis < 0) return false;
  if (c->stage) module_set(m, "plan.zero", "%d", c->stage);
  if (c->keep_input && !*stacks) return false;
  if (c->keep_input) module_set(m, "plan.recompute.99", "%s keep = input", stacks);
  if (c->near) module_set(m, "plan.zero.prefetch", "%lld", (long long)c->near - 1);
  if (c->blocking) module_set(m, "plan.zero.overlap", "off");
  if (c->accumulate) module_set(m, "plan.zero.accumulate", "%s", c->accumulate);
  if (c->times <= 1) return true;
  if (axis < 0) return false;
  m->mesh.at[axis].size *= c->times;
  int64_t batch = train_batch(m), ranks = mesh_batch_ranks(m);
  return batch % (ranks * (plan_micro(m) ? plan_micro(m) : 1)) == 0;
}

static Cost cost_of(const Module *m) {
  Cost c = {.need = module_budget(m)};
  TrafficList l = module_traffic(m);
  for (uint32_t i = 0; i < l.n; i++) c.elements += l.at[i].elements, c.bytes += l.at[i].bytes;
  return c;
}

bool fit_cost(const Cli *o, const FitChange *c, Cost *out) {
  Cli one = *o;
  LowerFacts facts;
  one.c = ctx_new();
  one.sets = (Strings){0};
  one.value[OPT_TARGET] = fit_target(o);
  for (uint32_t i = 0; i < o->sets.n; i++) vec_push(one.c->arena, one.sets, o->sets.at[i]);
  if (c->micro)
    vec_push(one.c->arena, one.sets,
             arena_printf(one.c->arena, "plan.micro=%lld", (long long)c->micro));
  Module *m = load_shard(&one, o->operands.at[0], &facts);
  PipelineOptions p = {.until = "memory"};
  Programs all;
  bool good = m && apply(m, c) && describe_target(&one, m) == EXIT_FINE &&
              pipeline_classes(m, &p, &all) && !diag_errors(one.c->diag);
  if (good) *out = cost_of(fit_largest(&all));
  ctx_free(one.c);
  return good;
}

bool fit_try(const Cli *o, const FitChange *c, Budget *out) {
  Cost cost;
  bool good = fit_cost(o, c, &cost);
  if (good) *out = cost.need;
  return good;
}

int64_t fit_largest_micro(const Cli *o, const Module *m, FitChange c, int64_t limit,
                          int64_t capacity, Budget *out) {
  int64_t share = train_batch(m) / mesh_batch_ranks(m);
  VEC(int64_t) divisors = {0};
  for (int64_t d = 1; d < limit; d++)
    if (share % d == 0) vec_push(o->c->arena, divisors, d);
  int64_t best = 0;
  uint32_t low = 0, high = divisors.n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    Budget n;
    c.micro = divisors.at[middle];
    if (!fit_try(o, &c, &n)) return 0;
    if (budget_all(&n) <= capacity) best = c.micro, *out = n, low = middle + 1;
    else high = middle;
  }
  return best;
}

/* ---- the search ---- */

typedef struct FitSearch {
  const Cli *o;
  const Module *m;
  int64_t capacity, micro; /* the micro-batch of the plan */
  int stage;
  Budget need;
} FitSearch;

static bool fits(FitSearch *s, const FitChange *c) {
  return fit_try(s->o, c, &s->need) && budget_all(&s->need) <= s->capacity;
}

static bool find_stage(FitSearch *s, FitChange *c) {
  for (c->stage = s->stage + 1; c->stage <= LAST_STAGE; c->stage++)
    if (fits(s, c)) return true;
  return c->stage = 0, false;
}

/* Not so far ahead: the next layer alone hides nearly as much. */
static bool find_nearer(FitSearch *s, FitChange *c) {
  for (c->near = flights_depth(s->m); c->near > 0; c->near--)
    if (fits(s, c)) return true;
  return false;
}

/* Gradients wait for one another then, and need no rings. */
static bool find_blocking(FitSearch *s, FitChange *c) {
  int64_t depth = flights_depth(s->m);
  if (!plan_overlaps(s->m)) return false;
  c->blocking = true, c->near = depth > 0;
  if (fits(s, c)) return true;
  return c->blocking = false, c->near = 0, false;
}

static bool find_micro(FitSearch *s, FitChange *c) {
  c->micro = fit_largest_micro(s->o, s->m, *c, s->micro, s->capacity, &s->need);
  return c->micro > 0;
}

static bool find_input(FitSearch *s, FitChange *c) {
  c->keep_input = true;
  if (fits(s, c)) return true;
  return c->keep_input = false, false;
}

/* More ranks on top of *c, as few as do. */
static bool find_times(FitSearch *s, FitChange *c) {
  for (c->times = 2; c->times <= MOST_TIMES; c->times *= 2)
    if (fits(s, c)) return true;
  return c->times = 0, false;
}

/* Several changes at once: layers from their inputs, under the first stage that then does, or the
   last; a smaller micro-batch; more ranks. */
static bool find_together(FitSearch *s, FitChange *c, bool more_ranks) {
  *c = (FitChange){.keep_input = true};
  if (find_stage(s, c)) return true;
  *c = (FitChange){.stage = s->stage < LAST_STAGE ? LAST_STAGE : 0, .keep_input = true};
  if (!fit_try(s->o, c, &s->need)) c->keep_input = false; /* a model without stacks */
  if (find_micro(s, c)) return true;
  c->micro = s->micro > 1;
  return more_ranks && find_times(s, c);
}

bool fit_find(const Cli *o, const Module *m, int64_t capacity, FitChange *c, Budget *out) {
  FitSearch s = {.o = o, .m = m, .capacity = capacity};
  int64_t share = train_batch(m) / mesh_batch_ranks(m);
  int axis = fit_batch_axis(m);
  s.micro = plan_micro(m) ? plan_micro(m) : share;
  s.stage = axis < 0 ? LAST_STAGE : plan_zero_stage(m);
  *c = (FitChange){0};
  bool found = find_nearer(&s, c) || find_blocking(&s, c) || find_stage(&s, c) ||
               find_micro(&s, c) || find_input(&s, c) || find_together(&s, c, axis >= 0);
  *out = s.need;
  return found;
}

/* ---- words ---- */

/* "dec.*, enc.*" */
static const char *stack_paths(const Module *m) {
  const char *names = stack_names(m), *text = "";
  for (size_t n; *names; names += n + 2 * (names[n] == ',')) {
    n = strcspn(names, ",");
    text = arena_printf(m->arena, "%s%s%.*s.*", text, *text ? ", " : "", (int)n, names);
  }
  return text;
}

static void add_words(Arena *a, const char **text, const char *words) {
  *text = arena_printf(a, "%s%s%s", *text, **text ? " with " : "", words);
}

const char *fit_words(Arena *a, const Module *m, const FitChange *c) {
  const char *text = "", *over = plan_zero_axes(m);
  int axis = fit_batch_axis(m);
  if (c->times)
    add_words(a, &text,
              arena_printf(a, "`mesh %s = %lld`", m->mesh.at[axis].name,
                           (long long)(m->mesh.at[axis].size * c->times)));
  if (c->stage)
    add_words(a, &text,
              arena_printf(a, "`zero %d over %s`", c->stage, *over ? over : m->mesh.at[axis].name));
  if (c->near) add_words(a, &text, arena_printf(a, "`prefetch = %lld`", (long long)c->near - 1));
  if (c->blocking) add_words(a, &text, "`overlap = off`");
  if (c->micro) add_words(a, &text, arena_printf(a, "`micro %lld`", (long long)c->micro));
  if (c->keep_input)
    add_words(a, &text, arena_printf(a, "`recompute %s keep = input`", stack_paths(m)));
  return text;
}
