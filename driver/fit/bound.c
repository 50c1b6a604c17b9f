/* Lower bounds of plans (bound.h). Must not: judge. */
#include "bound.h"
#include "fit.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/support/num.h"

enum { MOST_COPIES = 64 };
static const double SLACK = 0.998, /* what rounding and sharing of buffers may save */
    SHARED = 0.9;                  /* .. of temporaries, on several ranks */

static double larger(double a, double b) { return a > b ? a : b; }

/* ---- small programs ---- */

/* A plan of one copy of the model, its pipeline aside. */
static SpacePlan copy_of(const SpacePlan *plan) {
  SpacePlan copy = *plan;
  int32_t *at = copy.at;
  at[FIELD_DATA] = at[FIELD_REPLICA] = at[FIELD_PIPE] = 1;
  at[FIELD_ZERO] = at[FIELD_OVER] = at[FIELD_FULL] = at[FIELD_PIPELINE] = at[FIELD_OFFLOAD] = 0;
  at[FIELD_ORDER] = 0;
  return copy;
}

static Change change_of(const PlanBounds *bounds, const SpacePlan *copy, int layers, int batch) {
  const PlanSpace *space = bounds->space;
  Arena *arena = space->o->c->arena;
  Change change = change_with(arena, space_change(space, copy), "train.batch", "%d", batch);
  int64_t gpus = module_whole(space->m, "machine.node.gpus"),
          ranks = (int64_t)copy->at[FIELD_TENSOR] * copy->at[FIELD_CONTEXT] * copy->at[FIELD_DATA];
  if (gpus && ranks > gpus * space->nodes)
    change = change_with(arena, change, "plan.on.nodes", "%lld", (long long)ceil_div(ranks, gpus));
  if (!layers || !*space->layers) return change;
  return change_with(arena, change, arena_printf(arena, "dim.%s", space->layers), "%d", layers);
}

bool bound_measure_layers(PlanBounds *bounds, const SpacePlan *copy, int parts, Cost *small,
                          Cost *wide) {
  int batch = parts * copy->at[FIELD_MICRO] * copy->at[FIELD_DATA];
  Change change[] = {change_of(bounds, copy, 2, batch), change_of(bounds, copy, 3, batch)};
  Try made[2];
  bool layers = *bounds->space->layers;
  if (layers) search_try_two(&bounds->search, change, made);
  else made[0] = made[1] = search_try(&bounds->search, change[0]);
  bounds->compiled += layers ? 2 : 1;
  *small = made[0].cost, *wide = made[1].cost;
  return made[0].made && made[1].made;
}

LayerCost bound_cost_between(const Cost *small, const Cost *wide, double micro) {
  LayerCost cost = {.computes = (wide->micro.computes - small->micro.computes) / micro,
                    .waits = (wide->micro.inside - small->micro.inside) / micro,
                    .least = (wide->micro.least - small->micro.least) / micro,
                    .saved = (double)(wide->need.saved - small->need.saved) / micro};
  cost.outside = small->micro.computes / micro - 2 * cost.computes;
  return cost;
}

/* On one rank, with all samples of the batch in a micro-batch: in smaller ones and on more ranks a
   sample takes no less. */
static bool measure_whole(PlanBounds *bounds, int keep, LayerCost *out) {
  SpacePlan one = {.at = {1, 1, 1, 1, 1}};
  Cost small, wide;
  int micro = bounds->space->batch > 1 ? (int)bounds->space->batch : 2;
  one.at[FIELD_MICRO] = 1, one.at[FIELD_RECOMPUTE] = keep;
  Try first = search_try(&bounds->search, change_of(bounds, &one, 2, 2));
  one.at[FIELD_MICRO] = micro, bounds->compiled++;
  if (!first.made || !bound_measure_layers(bounds, &one, 2, &small, &wide)) return false;
  *out = bound_cost_between(&small, &wide, micro);
  out->computes = out->least, out->waits = 0;
  out->outside = small.micro.least / micro - 2 * out->least;
  out->working = (double)(small.need.working - first.cost.need.working) / (micro - 1);
  bounds->of_layers = (double)(wide.need.weights - small.need.weights);
  return true;
}

/* The machine of forecasts. A program on one rank does not know how many ranks of a plan share a
   node. */
static void find_machine(PlanBounds *bounds, const Programs *programs) {
  Forecast forecast = plan_forecast(programs->at, programs->n, ir_main_entry(programs->at[0]));
  Arch *reach = ARENA_NEW(bounds->space->o->c->arena, Arch);
  bounds->machine = bounds->space->machine;
  if (!forecast.known) return;
  *reach = *forecast.machine.reach;
  bounds->machine = forecast.machine, bounds->machine.reach = reach;
  bounds->machine.in_node = bounds->space->machine.in_node;
  if (bounds->machine.intra <= 0) /* published; one rank does not ask for it */
    bounds->machine.intra = reach->intra * reach->intra_share;
}

/* The whole model on one rank. */
static bool measure_all(PlanBounds *bounds, Cost *out) {
  SpacePlan one = {.at = {1, 1, 1, 1, 1}};
  Programs programs;
  Ctx *c;
  one.at[FIELD_MICRO] = 1;
  Change change = change_of(bounds, &one, 0, 2);
  bounds->compiled++;
  if (!change_programs(bounds->search.o, &change, &c, &programs)) return false;
  *out = search_cost(&bounds->search, &programs), find_machine(bounds, &programs);
  ctx_free(c);
  return true;
}

bool bounds_open(const PlanSpace *space, const ChangeSearch *search, PlanBounds *out) {
  Cost all;
  *out = (PlanBounds){.space = space, .search = *search};
  out->search.forecasts = out->search.micros = true;
  if (!measure_all(out, &all)) return false;
  double held = (double)all.need.weights;
  out->gradients = (double)all.need.gradients;
  for (uint32_t i = 0; i < space->m->globals.n; i++) {
    const Global *global = space->m->globals.at[i];
    if (global->kind == GLOBAL_PARAM && global_learns(global))
      out->parameters += (double)type_count(&global->type);
  }
  bool half = !strcmp(plan_precision(space->m), "bf16") || !strcmp(plan_precision(space->m), "f16");
  out->flying = ARENA_ARRAY(space->o->c->arena, KeptParts, KEPT_SLOTS);
  bool bytes = plan_int8_gradients(space->m) || plan_int8_weights(space->m);
  out->wire = bytes ? 1 : half ? 2 : 4;
  out->weights = (half ? 2 : 4) * out->parameters; /* one rank alone has no copy to compute with */
  out->optimizer = held + (double)all.need.optimizer - out->weights;
  if (!measure_whole(out, KEEP_ALL, &out->whole[0])) return false;
  out->whole[1] = out->whole[0];
  if (*space->stack && !measure_whole(out, KEEP_INPUT, &out->whole[1])) return false;
  out->of_layers *= out->parameters / held;
  return true;
}

int64_t bound_parts(const PlanSpace *space, const SpacePlan *plan) {
  return space->batch / plan->at[FIELD_DATA] / plan->at[FIELD_REPLICA] / plan->at[FIELD_MICRO];
}

/* Are gradients of micro-batches added in shards, or not at all? */
static bool adds_shards(const PlanSpace *space, const SpacePlan *plan) {
  return (plan->at[FIELD_ZERO] > 1 && !plan->at[FIELD_FULL]) || bound_parts(space, plan) == 1;
}

static bool same_split(const PlanSpace *space, const SplitCost *split, const SpacePlan *plan) {
  return split->shards == adds_shards(space, plan) && split->tensor == plan->at[FIELD_TENSOR] &&
         split->context == plan->at[FIELD_CONTEXT] && split->sequence == plan->at[FIELD_SEQUENCE] &&
         split->recompute == plan->at[FIELD_RECOMPUTE];
}

/* That of the plan's micro-batch; if it is not known, of a larger one: for a sample it is no longer
   waited then. */
static const SplitCost *split_of(const PlanBounds *bounds, const SpacePlan *plan) {
  const SplitCost *best = NULL;
  int micro = plan->at[FIELD_MICRO];
  for (uint32_t i = 0; i < bounds->splits.n; i++) {
    const SplitCost *split = &bounds->splits.at[i];
    if (same_split(bounds->space, split, plan) && split->micro >= micro &&
        (!best || split->micro < best->micro))
      best = split;
  }
  return best;
}

/* The largest micro-batch of a plan with this split of which not even saved values are too many. */
static int largest_micro(const PlanBounds *bounds, const SpacePlan *plan) {
  const LayerCost *whole = &bounds->whole[plan->at[FIELD_RECOMPUTE] != KEEP_ALL];
  double sample = (whole->saved * (double)bounds->space->layer_count + whole->working) /
                  plan->at[FIELD_TENSOR] / plan->at[FIELD_CONTEXT];
  int64_t most = bounds->space->batch * plan->at[FIELD_TENSOR] * plan->at[FIELD_CONTEXT] /
                 bounds->space->ranks;
  if (most < plan->at[FIELD_MICRO]) most = plan->at[FIELD_MICRO];
  if (sample * (double)most > (double)bounds->search.device)
    most = (int64_t)((double)bounds->search.device / sample);
  return most > plan->at[FIELD_MICRO] ? (int)most : plan->at[FIELD_MICRO];
}

/* Two axes that do not fit into a node together: another order may have the faster links. */
static bool orders_matter(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  return at[FIELD_TENSOR] > 1 && at[FIELD_CONTEXT] > 1 &&
         at[FIELD_TENSOR] * at[FIELD_CONTEXT] > bounds->machine.in_node;
}

/* Shards of gradients are those of many copies. */
static void measure_split(PlanBounds *bounds, const SpacePlan *plan, int micro) {
  SpacePlan copy = copy_of(plan);
  SplitCost split = {.tensor = plan->at[FIELD_TENSOR],
                     .context = plan->at[FIELD_CONTEXT],
                     .sequence = plan->at[FIELD_SEQUENCE],
                     .recompute = plan->at[FIELD_RECOMPUTE],
                     .micro = micro,
                     .shards = adds_shards(bounds->space, plan)};
  Cost small, wide;
  copy.at[FIELD_OVERLAP] = bounds->space->machine.gpus, copy.at[FIELD_MICRO] = micro;
  int64_t copies = bounds->space->ranks / copy.at[FIELD_TENSOR] / copy.at[FIELD_CONTEXT];
  if (bounds->machine.gpus || copies > MOST_COPIES) copies = MOST_COPIES; /* of more nodes */
  if (!split.shards) copies = 1;
  copy.at[FIELD_DATA] = (int32_t)copies;
  copy.at[FIELD_ZERO] = copies > 1 ? 2 : 0;
  split.known = bound_measure_layers(bounds, &copy, 2, &small, &wide);
  split.cost = bound_cost_between(&small, &wide, micro);
  if (orders_matter(bounds, plan)) split.cost.waits = 0;
  vec_push(bounds->space->o->c->arena, bounds->splits, split);
}

/* The plan with one of its two axes that split layers. */
static SpacePlan with_one(const SpacePlan *plan, SpaceField left_out) {
  SpacePlan one = *plan;
  one.at[left_out] = 1;
  if (left_out != FIELD_TENSOR) return one;
  one.at[FIELD_SEQUENCE] = 0;
  if (one.at[FIELD_RECOMPUTE] == KEEP_SPLIT) one.at[FIELD_RECOMPUTE] = KEEP_INPUT;
  return one;
}

static bool refine_parent(PlanBounds *bounds, const SpacePlan *plan, SpaceField left_out) {
  SpacePlan one = with_one(plan, left_out);
  one.at[FIELD_MICRO] = 1;
  if (split_of(bounds, &one)) return false;
  return measure_split(bounds, &one, largest_micro(bounds, &one)), true;
}

bool bounds_refine(PlanBounds *bounds, const SpacePlan *plan) {
  const SplitCost *now = split_of(bounds, plan);
  const LikeCost *like = bound_like(bounds, plan);
  const int32_t *at = plan->at;
  bool both = at[FIELD_TENSOR] > 1 && at[FIELD_CONTEXT] > 1;
  if (!*bounds->space->layers || (like && like->micro == at[FIELD_MICRO])) return false;
  if (!now && both &&
      (refine_parent(bounds, plan, FIELD_CONTEXT) || refine_parent(bounds, plan, FIELD_TENSOR)))
    return true;
  if (now) bound_measure_like(bounds, plan);
  else measure_split(bounds, plan, largest_micro(bounds, plan));
  return true;
}

/* ---- a plan ---- */

/* Layers of the stage that has the most, at least. */
static double stage_has(const PlanSpace *space, const SpacePlan *plan) {
  return (double)ceil_div(space->layer_count, plan->at[FIELD_PIPE]);
}

/* Messages over one of two axes that split layers, by a split over it alone: the other axis splits
   their bytes, and their latency is that of a micro-batch. */
static double waits_of(const PlanBounds *bounds, const SpacePlan *plan, SpaceField left_out) {
  SpacePlan one = with_one(plan, left_out);
  one.at[FIELD_MICRO] = 1;
  const SplitCost *split = split_of(bounds, &one);
  double ways = plan->at[left_out];
  if (plan->at[FIELD_TENSOR] == 1 || plan->at[FIELD_CONTEXT] == 1) return 0;
  if (!split || !split->known || split->micro * ways < plan->at[FIELD_MICRO]) return 0;
  return split->cost.waits / ways;
}

static void take_larger(LayerCost *cost, const LayerCost *other, bool same) {
  cost->computes = larger(cost->computes, same ? other->computes : other->least);
  if (same) cost->outside = larger(cost->outside, other->outside);
  cost->saved = larger(cost->saved, other->saved);
  cost->waits = larger(cost->waits, other->waits);
}

/* The cost of a layer for a sample. */
static LayerCost layer_cost(const PlanBounds *bounds, const SpacePlan *plan) {
  LayerCost cost = bounds->whole[plan->at[FIELD_RECOMPUTE] != KEEP_ALL];
  double ways = (double)plan->at[FIELD_TENSOR] * plan->at[FIELD_CONTEXT];
  const SplitCost *split = split_of(bounds, plan);
  cost.computes /= ways, cost.saved /= ways, cost.outside /= ways;
  cost.first = cost.computes, cost.first_outside = cost.outside;
  cost.working /= ways;
  /* The mesh of each has its axis first, with the fastest links. */
  if (!split || orders_matter(bounds, plan))
    cost.waits = waits_of(bounds, plan, FIELD_CONTEXT) + waits_of(bounds, plan, FIELD_TENSOR);
  if (!split || !split->known) return cost;
  /* A single micro-batch has no kernels that add gradients. */
  take_larger(&cost, &split->cost,
              split->micro == plan->at[FIELD_MICRO] && bound_parts(bounds->space, plan) > 1);
  const LikeCost *like = bound_like(bounds, plan);
  if (like && like->known && !like->one)
    take_larger(&cost, &like->cost, like->micro == plan->at[FIELD_MICRO]);
  return cost;
}

/* Turns of other stages in which a stage waits, in turns of its own micro-batch. */
static double bubble_of(const PlanSpace *space, const SpacePlan *plan) {
  int stages = plan->at[FIELD_PIPE], schedule = plan->at[FIELD_PIPELINE];
  double forward = plan->at[FIELD_RECOMPUTE] ? 0.2 : 0.25; /* of a turn, at least */
  if (space->layer_count % stages) return 0;
  if (schedule == 1) return stages - 1;
  return (stages - 1) * (schedule <= 3 ? forward : 1.0 / (schedule - 2));
}

/* Messages of ZeRO over its first axis. */
static double data_seconds(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  if (axis[FIELD_DATA] < 0) return 0;
  double held =
      (double)at[FIELD_TENSOR] * at[FIELD_PIPE] * (at[FIELD_OVER] ? at[FIELD_CONTEXT] : 1);
  double parts = (double)bound_parts(bounds->space, plan), all = bounds->parameters / held;
  double layers = bounds->of_layers * (double)bounds->space->layer_count / held;
  double grads = at[FIELD_FULL] ? 1 : parts;
  double sent = at[FIELD_ZERO] < 2    ? 2 * all
                : at[FIELD_ZERO] == 2 ? all + grads * layers
                                      : (grads + 2 * parts) * layers;
  return link_time(&mesh, &bounds->machine, axis[FIELD_DATA], OP_all_reduce, 0, sent * bounds->wire)
      .seconds;
}

/* By the rounds of the first stage: for each chunk of its layers the micro-batches that are forward
   and not yet backward; their mean. */
static double kept_by(const ScheduleTable *table) {
  int64_t chunks = table->chunks > 1 ? table->chunks : 1, most[MOST_CHUNKS] = {0}, sum = 0;
  for (ScheduleState state = {{0}}; !schedule_done(table, &state);) {
    state.over[schedule_next(table, 0, &state)]++;
    for (int64_t i = 0; i < chunks; i++) {
      int64_t now = state.over[i] - state.over[2 * chunks - 1 - i];
      most[i] = now > most[i] ? now : most[i];
    }
  }
  for (int64_t i = 0; i < chunks; i++) sum += most[i];
  return (double)sum / (double)chunks;
}

/* Micro-batches whose saved values a layer of the first stage has at once. */
static double flying_on(const PlanBounds *bounds, const SpacePlan *plan) {
  Arena *arena = bounds->space->o->c->arena;
  int64_t stages = plan->at[FIELD_PIPE], parts = bound_parts(bounds->space, plan);
  int schedule = plan->at[FIELD_PIPELINE];
  if (stages == 1) return 1;
  int64_t key = (parts * (MOST_CHUNKS + 3) + schedule) * bounds->space->ranks + stages;
  KeptParts *slot = &bounds->flying[(uint64_t)key * 0x9e3779b97f4a7c15u >> 52];
  if (slot->key == key) return slot->kept;
  ScheduleTable table = schedule > 3   ? schedule_interleaved(arena, stages, parts, schedule - 2)
                        : schedule > 1 ? schedule_zero_bubble(arena, stages, parts, schedule - 1)
                                       : schedule_one_f_one_b(arena, stages, parts);
  *slot = (KeptParts){key, kept_by(&table)};
  return slot->kept;
}

/* The plan with those fields of another one by which saved values do not differ. */
static SpacePlan saved_as(const SpacePlan *plan, const SpacePlan *of) {
  static const SpaceField others[] = {FIELD_ORDER, FIELD_ZERO, FIELD_OVER, FIELD_FULL,
                                      FIELD_OFFLOAD};
  SpacePlan one = *plan;
  for (size_t i = 0; i < COUNT_OF(others); i++) one.at[others[i]] = of->at[others[i]];
  return one;
}

/* The bytes of a compiled plan that differs by the order of the mesh alone; 0: there is none.
   `saved` becomes those of one that saves the same, if they are more. */
static double known_bytes(const PlanBounds *bounds, const SpacePlan *plan, double *saved) {
  double bytes = 0;
  for (uint32_t i = 0; i < bounds->known.n; i++) {
    const KnownBytes *known = &bounds->known.at[i];
    SpacePlan one = saved_as(&known->plan, plan);
    if (memcmp(&one, plan, sizeof one) != 0) continue;
    *saved = larger(*saved, known->saved);
    one = known->plan, one.at[FIELD_ORDER] = plan->at[FIELD_ORDER];
    if (!memcmp(&one, plan, sizeof one)) bytes = known->bytes;
  }
  return bytes;
}

/* The order determines the size of buckets; one is at most 1/64 of the memory. */
void bounds_learn(PlanBounds *bounds, const SpacePlan *plan, const Cost *cost) {
  double buckets = (double)cost->need.buffers + (double)bounds->machine.memory / 64;
  KnownBytes known = {*plan, (double)budget_all(&cost->need) - buckets, (double)cost->need.saved};
  vec_push(bounds->space->o->c->arena, bounds->known, known);
}

/* Loops over layers, one for each chunk, gather a layer or hold its gradient before these are
   added. */
static double whole_layers(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  int chunks = at[FIELD_PIPELINE] > 3 ? at[FIELD_PIPELINE] - 2 : 1;
  double element = (at[FIELD_ZERO] == 3 && at[FIELD_OFFLOAD] < 3 ? bounds->wire : 0) +
                   (at[FIELD_ZERO] > 1 && !at[FIELD_FULL] ? bounds->wire : 0);
  return bounds->of_layers / at[FIELD_TENSOR] * element * chunks;
}

static double bytes_of(const PlanBounds *bounds, const SpacePlan *plan, const LayerCost *layer) {
  const int32_t *at = plan->at;
  double parts = (double)bound_parts(bounds->space, plan),
         held = (double)at[FIELD_TENSOR] * at[FIELD_PIPE];
  double shards = at[FIELD_DATA] * (at[FIELD_OVER] ? at[FIELD_CONTEXT] : 1);
  double bytes = 0;
  if (at[FIELD_OFFLOAD] < 3) bytes += bounds->weights / held / (at[FIELD_ZERO] > 2 ? shards : 1);
  if (!at[FIELD_OFFLOAD]) bytes += bounds->optimizer / held / (at[FIELD_ZERO] ? shards : 1);
  if (!at[FIELD_OFFLOAD] && parts > 1)
    bytes += bounds->gradients / held / (at[FIELD_ZERO] > 1 && !at[FIELD_FULL] ? shards : 1);
  double saved =
      layer->saved * at[FIELD_MICRO] * stage_has(bounds->space, plan) * flying_on(bounds, plan);
  double working = /* most of it is the head's */
      at[FIELD_PIPE] == 1 ? SHARED * layer->working * at[FIELD_MICRO] : 0;
  double known = known_bytes(bounds, plan, &saved);
  return larger(SLACK * (bytes + saved + larger(working, whole_layers(bounds, plan))), known);
}

/* States are read and written. */
static double update_seconds(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  double held = (double)at[FIELD_TENSOR] * at[FIELD_PIPE],
         shards = at[FIELD_DATA] * (at[FIELD_OVER] ? at[FIELD_CONTEXT] : 1);
  if (!bounds->machine.reach || at[FIELD_OFFLOAD]) return 0;
  return 2 * bounds->optimizer / held / (at[FIELD_ZERO] ? shards : 1) / bounds->machine.hbm;
}

/* A guess of the factor by which messages inside layers, and unequal stages, make a step longer. */
static double usual_loss(const PlanBounds *bounds, const SpacePlan *plan) {
  const SplitCost *split = split_of(bounds, plan);
  int64_t parts = bound_parts(bounds->space, plan), stages = plan->at[FIELD_PIPE];
  bool uneven = stages > 1 && bounds->space->layer_count % stages;
  double loss = uneven ? 1.1 * (double)(parts + stages) / (double)parts : stages > 1 ? 1.1 : 1;
  if (!split && plan->at[FIELD_TENSOR] > 1) loss *= 1.5;
  if (!split && plan->at[FIELD_CONTEXT] > 1) loss *= 1.5;
  return loss;
}

Bound bound_of(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  LayerCost layer = layer_cost(bounds, plan);
  double layers = stage_has(bounds->space, plan);
  double parts = (double)bound_parts(bounds->space, plan), micro = at[FIELD_MICRO];
  bool one = parts < 2;
  double others = parts - 1;
  double busy = layers * micro * (one ? layer.computes : layer.first + others * layer.computes);
  double bubble = layers * bubble_of(bounds->space, plan) * micro * layer.computes;
  double waits = layers * parts * micro * layer.waits;
  if (at[FIELD_PIPE] == 1)
    busy += micro * (one ? layer.outside : layer.first_outside + others * layer.outside);
  double sent = data_seconds(bounds, plan);
  busy += update_seconds(bounds, plan);
  bool hides = at[FIELD_OVERLAP];
  Bound bound = {.bytes = bytes_of(bounds, plan, &layer)};
  double seconds = (hides ? larger(busy, sent) : busy + sent) + waits;
  const LikeCost *like = bound_like(bounds, plan);
  if (like && like->known) {
    double hidden = hides ? bound_hidden(like, layers, parts) : 0;
    seconds = larger(seconds, busy - hidden + bound_sent(bounds, plan, like, layers, parts));
  }
  bound.seconds = SLACK * (seconds + bubble);
  bound.guess = bound.seconds * usual_loss(bounds, plan) + (hides ? sent / 4 : 0);
  return bound;
}
