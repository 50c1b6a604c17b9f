/* Finds a change that makes a plan fit (fit.h). These changes are tried, each by itself: fewer
   layers gathered ahead, no overlap of messages, the next stages of zero, zero over an
   additional axis, smaller micro-batches, recomputation from layer inputs, inputs split over an
   axis, optimizer, gradients and parameters on the host. Among those that fit, the one with the
   shortest step by the bound of `plan` is chosen or, if the machine has no rates, the first. If
   none fits, several of them together are tried, then more ranks. A try compiles the program
   from its file to pass `memory` in a context of its own: a tenth of a second even for large
   models. A change that does not compile (a stage that an optimizer does not support, sizes that
   do not divide) is skipped. */
#include "fit.h"
#include "ir/cost/count.h"
#include "ir/cost/step.h"
#include "ir/schedule/flight.h"
#include "ir/plan/layer_range.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"

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

typedef VEC(LayerRange) StackList;

/* The stacks of the model that are not nested in another one. */
static StackList whole_stacks(const Module *m) {
  StackList list = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    const char *path = layer_whole(m, global->name),
               *star = global->kind == GLOBAL_PARAM ? strstr(path, ".*.") : NULL;
    if (!star) continue;
    Str stack = intern_n(m->ctx->names, path, (size_t)(star - path));
    bool had = false;
    for (uint32_t k = 0; k < list.n; k++) had |= list.at[k].stack == stack;
    if (!had) vec_push(m->arena, list, ((LayerRange){.stack = stack, .last = -1}));
  }
  return list;
}

/* False: the model has no stack. */
static bool keep_inputs(Module *m, const char *over) {
  RecomputeLine line = {.keep = KEEPS_INPUT, .over = over ? intern(m->ctx->names, over) : NULL};
  StackList stacks = whole_stacks(m);
  for (uint32_t i = 0; i < stacks.n; i++) vec_push(m->arena, line.stacks, stacks.at[i]);
  vec_push(m->arena, m->recompute, line);
  return stacks.n > 0;
}

/* Axes by name, each moved to where it is wanted. */
static void order_mesh(Module *m, const char *const *names) {
  for (uint32_t i = 0; i < m->mesh.n && names[i]; i++)
    for (uint32_t k = i + 1; k < m->mesh.n; k++) {
      if (strcmp(m->mesh.at[k].name, names[i]) != 0) continue;
      MeshAxis other = m->mesh.at[i];
      m->mesh.at[i] = m->mesh.at[k], m->mesh.at[k] = other;
    }
}

/* The first `words` of optimizer, grads, params, of all that is updated. */
static void offload_all(Module *m, int words) {
  OffloadUnits units = offload_units(m);
  OffloadChoice choice = {{"", "", ""}};
  for (int w = 0; w < words; w++)
    for (uint32_t i = 0; i < units.n; i++) {
      const char **paths = &choice.paths[w], *path = offload_updated(m, units.at[i]);
      if (*path) *paths = arena_printf(m->arena, "%s%s%s", *paths, **paths ? ", " : "", path);
    }
  offload_set(m, &choice);
}

static bool apply(Module *m, const FitChange *change) {
  int axis = fit_batch_axis(m);
  order_mesh(m, change->mesh);
  if (change->stage && axis < 0 && !change->zero_over) return false;
  if (change->stage) module_set(m, "plan.zero", "%d", change->stage);
  if (change->keep_input && !keep_inputs(m, change->over)) return false;
  if (change->zero_over) module_set(m, "plan.zero.over", "%s", change->zero_over);
  if (change->offload) offload_all(m, change->offload);
  if (change->moved) offload_set(m, change->moved);
  if (change->near) module_set(m, "plan.zero.prefetch", "%lld", (long long)change->near - 1);
  if (change->blocking) module_set(m, "plan.zero.overlap", "off");
  if (change->layers) module_set(m, "made.stage_layers", "%lld", (long long)change->layers);
  if (change->accumulate) module_set(m, "plan.zero.accumulate", "%s", change->accumulate);
  if (change->times <= 1) return true;
  if (axis < 0) return false;
  m->mesh.at[axis].size *= change->times;
  int64_t batch = train_batch(m), ranks = mesh_batch_ranks(m);
  return batch % (ranks * (plan_micro(m) ? plan_micro(m) : 1)) == 0;
}

static Cost cost_of(const Module *m) {
  Moves moves = module_moves(m);
  HostBudget host = module_host(m);
  Pinned pinned = module_pinned(m);
  Cost cost = {.need = module_budget(m),
               .moved = moves.down + moves.up,
               .host = host.total + pinned_all(&pinned)};
  TrafficList l = module_traffic(m);
  for (uint32_t i = 0; i < l.n; i++) cost.elements += l.at[i].elements, cost.bytes += l.at[i].bytes;
  return cost;
}

static void add_number(Cli *one, const char *key, int64_t number) {
  if (!number) return;
  vec_push(one->c->arena, one->sets,
           arena_printf(one->c->arena, "%s=%lld", key, (long long)number));
}

static void add_sets(Cli *one, const FitChange *change) {
  add_number(one, "plan.micro", change->micro);
  if (change->schedule)
    vec_push(one->c->arena, one->sets,
             arena_printf(one->c->arena, "plan.pipeline=%s", change->schedule));
  add_number(one, "plan.pipeline.chunks", change->chunks);
  add_number(one, "plan.pipeline.memory", change->ahead);
}

bool fit_programs(const Cli *o, const FitChange *change, Ctx **c, Programs *out) {
  Cli one = *o;
  LowerFacts facts;
  one.c = *c = ctx_new();
  one.c->input = o->c->input, one.c->input_length = o->c->input_length; /* of a pipe */
  one.c->input_path = o->c->input_path;
  one.sets = (Strings){0};
  one.value[OPT_TARGET] = fit_target(o);
  for (uint32_t i = 0; i < o->sets.n; i++) vec_push(one.c->arena, one.sets, o->sets.at[i]);
  add_sets(&one, change);
  Module *m = load_shard(&one, o->operands.at[0], &facts);
  PipelineOptions options = {.until = "memory"};
  if (m && o->offload && !change->moved) offload_set(m, o->offload);
  bool good = m && apply(m, change);
  if (good && change->bucket) module_set(m, "plan.zero.bucket", "%lld", (long long)change->bucket);
  else if (good) fit_set_bucket(m, &facts);
  good = good && describe_target(&one, m) == EXIT_FINE && pipeline_classes(m, &options, out) &&
         !diag_errors(one.c->diag);
  if (!good) ctx_free(one.c);
  return good;
}

bool fit_cost(const Cli *o, const FitChange *change, Cost *out) {
  Ctx *c;
  Programs all;
  if (!fit_programs(o, change, &c, &all)) return false;
  *out = cost_of(fit_largest(&all)), out->makespan = stages_makespan(all.at, all.n);
  for (uint32_t i = 0; i < all.n; i++) { /* the class with the most there may be another one */
    Cost class = cost_of(all.at[i]);
    if (class.host > out->host) out->host = class.host, out->moved = class.moved;
  }
  if (change->timed) out->seconds = plan_step(all.at, all.n, ir_main_entry(all.at[0])).time.total;
  ctx_free(c);
  return true;
}

bool fit_try(const Cli *o, const FitChange *change, Budget *out) {
  Cost cost;
  bool good = fit_cost(o, change, &cost);
  if (good) *out = cost.need;
  return good;
}

int64_t fit_largest_micro(const Cli *o, const Module *m, FitChange change, int64_t limit,
                          int64_t capacity, Budget *out) {
  int64_t share = train_batch(m) / mesh_batch_ranks(m);
  VEC(int64_t) divisors = {0};
  for (int64_t d = 1; d < limit && d <= share; d = divisor_from(share, d + 1)) {
    vec_push(o->c->arena, divisors, d);
    if (d == share) break;
  }
  int64_t best = 0;
  uint32_t low = 0, high = divisors.n;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    Budget budget;
    change.micro = divisors.at[middle];
    if (!fit_try(o, &change, &budget)) return 0;
    if (budget_all(&budget) <= capacity) best = change.micro, *out = budget, low = middle + 1;
    else high = middle;
  }
  return best;
}

/* ---- the search ---- */

typedef struct FitSearch {
  const Cli *o;
  const Module *m;
  int64_t capacity, micro; /* the micro-batch of the plan */
  int stage, last;         /* of `zero`: the plan's, and how far it can go */
  Cost cost;               /* of the last try */
  FitChange best;          /* with its cost; `seconds` below 0: none yet */
  Cost least;
} FitSearch;

static bool fits(FitSearch *search, const FitChange *change) {
  FitChange timed = *change;
  timed.timed = true;
  return fit_cost(search->o, &timed, &search->cost) &&
         budget_all(&search->cost.need) <= search->capacity;
}

/* Keeps the change if its step takes less than 99 % of the time of the best one so far. */
static void offer(FitSearch *search, bool found, const FitChange *change) {
  if (!found) return;
  bool first = search->least.seconds < 0;
  if (!first && !(search->cost.seconds < .99 * search->least.seconds)) return;
  search->best = *change, search->least = search->cost;
}

static bool find_stage(FitSearch *search, FitChange *change) {
  for (change->stage = search->stage + 1; change->stage <= search->last; change->stage++)
    if (fits(search, change)) return true;
  return change->stage = 0, false;
}

/* Not so far ahead: the next layer alone hides nearly as much. */
static bool find_nearer(FitSearch *search, FitChange *change) {
  for (change->near = flights_depth(search->m); change->near > 0; change->near--)
    if (fits(search, change)) return true;
  return false;
}

/* Gradients wait for one another then, and need no rings. */
static bool find_blocking(FitSearch *search, FitChange *change) {
  int64_t depth = flights_depth(search->m);
  if (!plan_overlaps(search->m)) return false;
  change->blocking = true, change->near = depth > 0;
  if (fits(search, change)) return true;
  return change->blocking = false, change->near = 0, false;
}

static bool find_micro(FitSearch *search, FitChange *change) {
  Budget need;
  change->micro =
      fit_largest_micro(search->o, search->m, *change, search->micro, search->capacity, &need);
  return change->micro > 0 && fits(search, change);
}

static bool find_input(FitSearch *search, FitChange *change) {
  change->keep_input = true;
  if (fits(search, change)) return true;
  return change->keep_input = false, false;
}

/* More ranks on top of *change, as few as do. */
static bool find_times(FitSearch *search, FitChange *change) {
  for (change->times = 2; change->times <= MOST_TIMES; change->times *= 2)
    if (fits(search, change)) return true;
  return change->times = 0, false;
}

/* Several changes at once: layers from their inputs, under the first stage that then does, or the
   last; a smaller micro-batch; more ranks. */
static bool find_together(FitSearch *search, FitChange *change, bool more_ranks) {
  *change = (FitChange){.keep_input = true};
  if (find_stage(search, change)) return true;
  *change =
      (FitChange){.stage = search->stage < search->last ? search->last : 0, .keep_input = true};
  if (!fit_cost(search->o, change, &search->cost))
    change->keep_input = false; /* a model without stacks */
  if (find_micro(search, change)) return true;
  change->micro = search->micro > 1;
  return more_ranks && find_times(search, change);
}

/* The axes of zero, with axis `at` added. */
static const char *wider_zero(const Module *m, int at) {
  const char *text = plan_zero_axes(m);
  for (uint32_t i = 0; !*plan_zero_axes(m) && i < m->rules.n; i++)
    for (uint32_t k = 0; rule_cuts_batch(&m->rules.at[i]) && k < m->rules.at[i].axes.n; k++)
      text = arena_printf(m->arena, "%s%s%s", text, *text ? ", " : "", m->rules.at[i].axes.at[k]);
  return text_lists(text, m->mesh.at[at].name)
             ? NULL
             : arena_printf(m->arena, "%s%s%s", text, *text ? ", " : "", m->mesh.at[at].name);
}

/* Over one axis of the mesh: inputs of layers, or zero. */
static void offer_axes(FitSearch *search) {
  const Module *m = search->m;
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    if (m->mesh.at[i].size < 2) continue;
    FitChange inputs = {.keep_input = true, .over = m->mesh.at[i].name},
              zero = {.zero_over = wider_zero(m, (int)i), .stage = search->last};
    offer(search, fits(search, &inputs), &inputs);
    if (zero.zero_over) offer(search, fits(search, &zero), &zero);
  }
}

static void offer_host(FitSearch *search) {
  Machine machine = plan_machine(search->m);
  if (!machine.gpus || !machine.host || *plan_offload(search->m)) return;
  for (int words = 1; words <= OFFLOAD_WORDS; words++) {
    FitChange change = {.offload = words};
    bool found = fits(search, &change) && search->cost.host <= machine.host;
    offer(search, found, &change);
    if (found) return;
  }
}

static void offer_each(FitSearch *search) {
  static bool (*const find[])(FitSearch *, FitChange *) = {find_nearer, find_blocking, find_stage,
                                                           find_micro, find_input};
  for (size_t i = 0; i < COUNT_OF(find); i++) {
    FitChange change = {0};
    offer(search, find[i](search, &change), &change);
  }
  offer_axes(search);
  offer_host(search);
}

bool fit_find(const Cli *o, const Module *m, int64_t capacity, FitChange *change, Cost *out) {
  FitSearch search = {.o = o, .m = m, .capacity = capacity, .least = {.seconds = -1}};
  int64_t share = train_batch(m) / mesh_batch_ranks(m);
  int axis = fit_batch_axis(m);
  search.micro = plan_micro(m) ? plan_micro(m) : share;
  search.last = train_freezes(m) ? 1 : LAST_STAGE;
  search.stage = axis < 0 ? search.last : plan_zero_stage(m);
  offer_each(&search);
  *change = search.best, *out = search.least;
  if (out->seconds >= 0) return true;
  bool found = find_together(&search, change, axis >= 0);
  *out = search.cost;
  return found;
}

/* ---- words ---- */

/* "dec.*, enc.*" */
static const char *stack_paths(const Module *m) {
  const char *text = "";
  StackList stacks = whole_stacks(m);
  for (uint32_t i = 0; i < stacks.n; i++)
    text = arena_printf(m->arena, "%s%s%s.*", text, i ? ", " : "", stacks.at[i].stack);
  return text;
}

static void add_words(Arena *arena, const char **text, const char *words) {
  *text = arena_printf(arena, "%s%s%s", *text, **text ? " with " : "", words);
}

const char *fit_words(Arena *arena, const Module *m, const FitChange *change) {
  const char *text = "", *over = plan_zero_axes(m);
  int axis = fit_batch_axis(m);
  if (change->times)
    add_words(arena, &text,
              arena_printf(arena, "`mesh %s = %lld`", m->mesh.at[axis].name,
                           (long long)(m->mesh.at[axis].size * change->times)));
  if (change->zero_over) over = change->zero_over;
  if (change->stage)
    add_words(arena, &text,
              arena_printf(arena, "`zero %d over %s`", change->stage,
                           *over ? over : m->mesh.at[axis].name));
  if (change->near)
    add_words(arena, &text, arena_printf(arena, "`prefetch = %lld`", (long long)change->near - 1));
  if (change->blocking) add_words(arena, &text, "`overlap = off`");
  if (change->micro)
    add_words(arena, &text, arena_printf(arena, "`micro %lld`", (long long)change->micro));
  if (change->keep_input)
    add_words(arena, &text,
              arena_printf(arena, "`recompute %s keep = input%s%s`", stack_paths(m),
                           change->over ? " over " : "", change->over ? change->over : ""));
  static const char *const words[] = {"", "optimizer", "optimizer, grads",
                                      "optimizer, grads, params"};
  if (change->offload)
    add_words(arena, &text, arena_printf(arena, "`offload %s -> host`", words[change->offload]));
  return text;
}
