/* Lower bounds of plans (bound.h). Must not: judge. */
#include "bound.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/support/num.h"
#include <math.h>

static const double SLACK = 0.998, /* what rounding and sharing of buffers may save */
    SHARED = 0.9,                  /* .. of temporaries, on several ranks */
    SINGLE = 0.95,                 /* .. what has no loop, a stack of one layer */
    ALIKE = 0.99,    /* layers that follow each other may hide more than those of small programs */
    AHEAD = 0.99,    /* what more layers hide where parameters are gathered ahead */
    OF_TURNS = 0.85; /* .. of operands kept for gradients of weights: some are computed again */

/* The part of computed seconds that every plan takes. */
static double of_time(const PlanBounds *bounds) {
  return bounds->space->layer_count == 1 ? SINGLE * SLACK : SLACK;
}

/* ---- one rank ---- */

/* On one rank, with all samples of the batch in a micro-batch: in smaller ones and on more ranks a
   sample takes no less. */
static bool measure_whole(PlanBounds *bounds, int keep, LayerCost *out) {
  SpacePlan one = {.at = {1, 1, 1, 1, 1, 1}};
  Cost small, wide;
  int micro = bounds->space->batch > 1 ? (int)bounds->space->batch : 2;
  one.at[FIELD_MICRO] = 1, one.at[FIELD_RECOMPUTE] = keep;
  Try first = search_try(&bounds->search, bound_change(bounds, &one, 2, 2));
  one.at[FIELD_MICRO] = micro, bounds->compiled++;
  if (!first.made || !bound_measure_layers(bounds, &one, 2, &small, &wide)) return false;
  *out = bound_cost_between(&small, &wide, micro);
  out->computes = out->least;
  out->outside = small.micro.least / micro - 2 * out->least;
  out->head = out->least_head, out->first_stage = out->least_first_stage;
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
  bounds->machine.records = NULL, bounds->machine.shapes = NULL;
  bounds->machine.in_node = bounds->space->machine.in_node;
  if (bounds->machine.intra <= 0) /* published; one rank does not ask for it */
    bounds->machine.intra = reach->intra * reach->intra_share;
  if (bounds->machine.latency <= 0) bounds->machine.latency = reach->hop_between;
}

/* The whole model on one rank. */
static bool measure_all(PlanBounds *bounds, Cost *out) {
  SpacePlan one = {.at = {1, 1, 1, 1, 1, 1}};
  Programs programs;
  Ctx *c;
  one.at[FIELD_MICRO] = 1;
  Change change = bound_change(bounds, &one, 0, 2);
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
  out->sent = ARENA_ARRAY(space->o->c->arena, SentSeconds, KEPT_SLOTS);
  out->alike = ARENA_NEW(space->o->c->arena, AlikeBound);
  out->turns = ARENA_ARRAY(space->o->c->arena, TurnsDone, KEPT_SLOTS);
  bool bytes = plan_int8_gradients(space->m) || plan_int8_weights(space->m);
  out->bytes = bytes, out->wire = bytes ? 1 : half ? 2 : 4;
  out->weights = (half ? 2 : 4) * out->parameters; /* one rank alone has no copy to compute with */
  out->optimizer = held + (double)all.need.optimizer - out->weights;
  if (!measure_whole(out, KEEP_ALL, &out->whole[0])) return false;
  out->whole[1] = out->whole[0];
  if (*space->stack && !measure_whole(out, KEEP_INPUT, &out->whole[1])) return false;
  out->of_layers *= out->parameters / held;
  return true;
}

int64_t bound_parts(const PlanSpace *space, const SpacePlan *plan) {
  return space->batch / space_copies(plan) / plan->at[FIELD_MICRO];
}

/* ---- a plan ---- */

/* Kinds of stages that the plan has. */
static StageKind stages_of(const SpacePlan *plan) {
  int stages = plan->at[FIELD_PIPE];
  return stages < STAGE_KINDS ? (StageKind)stages : STAGE_KINDS;
}

static void take_larger(LayerCost *cost, const LayerCost *other, bool same) {
  cost->computes = fmax(cost->computes, same ? other->computes : other->least);
  if (same) cost->outside = fmax(cost->outside, other->outside);
  cost->head = fmax(cost->head, same ? other->head : other->least_head);
  cost->first_stage = fmax(cost->first_stage, same ? other->first_stage : other->least_first_stage);
}

/* Are parameters that are gathered ahead counted as saved values, not as weights? Bounds count them
   as weights. */
static bool saves_gathered(const SpacePlan *plan) {
  return plan->at[FIELD_OVERLAP] == OVERLAP_AHEAD;
}

/* The cost of a layer for a sample. */
static LayerCost layer_cost(const PlanBounds *bounds, const SpacePlan *plan) {
  LayerCost cost = bounds->whole[plan->at[FIELD_RECOMPUTE] != KEEP_ALL];
  double ways = (double)plan->at[FIELD_TENSOR] * plan->at[FIELD_CONTEXT];
  const SmallCost *split = bound_small(bounds, plan, true), *own = bound_small(bounds, plan, false);
  cost.computes /= ways, cost.saved /= ways, cost.outside /= ways;
  cost.head /= ways, cost.first_stage /= ways;
  cost.first = cost.computes, cost.first_outside = cost.outside;
  cost.working /= ways;
  if (!split || !split->known) return cost;
  /* A single micro-batch has no kernels that add gradients. */
  bool several = bound_parts(bounds->space, plan) > 1;
  take_larger(&cost, &split->cost, split->micro == plan->at[FIELD_MICRO] && several);
  cost.saved = fmax(cost.saved, split->cost.saved);
  if (!own || !own->known || !several) return cost;
  take_larger(&cost, &own->cost, own->micro == plan->at[FIELD_MICRO]);
  if (!saves_gathered(plan)) cost.saved = fmax(cost.saved, own->cost.saved);
  return cost;
}

static double layer_numbers(const PlanBounds *bounds) {
  return bounds->of_layers * (double)bounds->space->layer_count;
}

/* Seconds of ZeRO's messages over an axis: sums of gradients, and gathers of parameters. A rank
   sends `share` of `all` numbers, or of those of layers where layers send in each micro-batch; then
   each layer has a message of its own. */
static double zero_seconds(const PlanBounds *bounds, const SpacePlan *plan, const Module *mesh,
                           int axis, double all, double share) {
  const int32_t *at = plan->at;
  const Machine *machine = &bounds->machine;
  double parts = (double)bound_parts(bounds->space, plan), layers = layer_numbers(bounds),
         own = (double)bounds->space->layer_count / at[FIELD_PIPE],
         sums = at[FIELD_FULL] ? 1 : parts, gathers = 2 * parts;
  bool sums_each = at[FIELD_ZERO] > 1 && !at[FIELD_FULL], gathers_each = at[FIELD_ZERO] > 2;
  double summed = share * bounds->wire * (at[FIELD_ZERO] > 1 ? sums * layers : all),
         gathered = share * bounds->wire * (gathers_each ? gathers * layers : all);
  if (axis < 0) return 0;
  if (!at[FIELD_ZERO] || bounds->bytes) /* bytes are summed and sent in other ways */
    return link_time(mesh, machine, axis, OP_all_reduce, 0, summed + gathered).seconds;
  LinkTime sum = link_time(mesh, machine, axis, OP_reduce_scatter, sums_each ? sums * own : 0,
                           summed),
           gather = link_time(mesh, machine, axis, OP_all_gather, gathers_each ? gathers * own : 0,
                              gathered);
  return sum.seconds + gather.seconds;
}

/* Over the first axis of two, parameters of layers are whole, over the other shards of it. Some
   others, of positions, are cut over `context`. Experts are those of one rank of `expert`. */
static double data_seconds(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  SpaceField first = space_data_first(plan) ? FIELD_DATA : FIELD_CONTEXT,
             second = first == FIELD_DATA ? FIELD_CONTEXT : FIELD_DATA;
  double share = 1. / at[FIELD_TENSOR] / at[FIELD_PIPE] / at[FIELD_EXPERT],
         layers = layer_numbers(bounds);
  if (!at[FIELD_OVER])
    return zero_seconds(bounds, plan, &mesh, axis[FIELD_DATA], bounds->parameters, share);
  return zero_seconds(bounds, plan, &mesh, axis[first], layers, share) +
         zero_seconds(bounds, plan, &mesh, axis[second], layers, share / at[first]);
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

static void kept_until(const ScheduleTable *table, int64_t stage, double out[KEPT_KINDS]) {
  static const int turns[KEPT_KINDS][2] = {[UNTIL_BACKWARD] = {TURN_FORWARD, TURN_BACKWARD},
                                           [UNTIL_WEIGHTS] = {TURN_FORWARD, TURN_WEIGHTS},
                                           [BETWEEN_BOTH] = {TURN_BACKWARD, TURN_WEIGHTS}};
  for (int i = 0; i < KEPT_KINDS; i++)
    out[i] = fmax(out[i], (double)schedule_between(table, turns[i][0], turns[i][1], stage, stage));
}

/* All stages between the first one and the last one run one program: it has room for each. */
static KeptParts kept_in(const PlanBounds *bounds, int64_t key, int64_t stages, int64_t parts,
                         const SpacePlan *plan) {
  KeptParts kept = {.key = key};
  ScheduleTable table = bound_schedule(bounds->space->o->c->arena, plan, parts);
  kept.kept = kept_by(&table);
  if (!table.wait) return kept;
  kept_until(&table, 0, kept.until[STAGE_FIRST]);
  kept_until(&table, stages - 1, kept.until[STAGE_LAST]);
  if (stages < 3) return kept;
  kept_until(&table, 1, kept.until[STAGE_MIDDLE]);
  kept_until(&table, stages - 2, kept.until[STAGE_MIDDLE]);
  return kept;
}

/* The micro-batches that a pipeline keeps. */
static const KeptParts *kept_parts(const PlanBounds *bounds, const SpacePlan *plan) {
  int64_t stages = plan->at[FIELD_PIPE], parts = bound_parts(bounds->space, plan);
  int64_t key = bound_schedule_key(bounds->space, plan);
  KeptParts *slot = &bounds->flying[(uint64_t)key * 0x9e3779b97f4a7c15u >> 52];
  if (slot->key != key) *slot = kept_in(bounds, key, stages, parts, plan);
  return slot;
}

/* Bytes of one layer, with turns for gradients of weights. */
static double saved_until(const SmallCost *small, double saved, const double parts[KEPT_KINDS]) {
  const CostLayer *layer = &small->layer;
  double rest = fmax(0, saved * small->micro - layer->kept);
  return OF_TURNS *
         (rest * parts[UNTIL_BACKWARD] + layer->kept * parts[UNTIL_WEIGHTS] +
          layer->passed * parts[BETWEEN_BOTH]) /
         small->micro;
}

/* Bytes of saved values on a stage, for a sample of a micro-batch. */
static double saved_on(const PlanBounds *bounds, const SpacePlan *plan, const LayerCost *layer,
                       StageKind stage) {
  double layers = (double)bound_layers(bounds->space, plan);
  if (plan->at[FIELD_PIPE] == 1) return layer->saved * layers;
  const KeptParts *kept = kept_parts(bounds, plan);
  const SmallCost *small = bound_small(bounds, plan, true);
  double saved = stage == STAGE_FIRST ? layer->saved * layers * kept->kept : 0;
  bool last = stage == STAGE_LAST && bound_uneven(bounds->space, plan),
       turns = bound_parts(bounds->space, plan) > 1; /* a single one has no room for each kind */
  if (!turns || !bound_splits_backward(plan) || !small || !small->known || !small->layer.known ||
      last)
    return saved;
  return fmax(saved, layers * saved_until(small, layer->saved, kept->until[stage]));
}

/* .. on the stage that has the most of them. */
static double saved_of(const PlanBounds *bounds, const SpacePlan *plan, const LayerCost *layer) {
  double most = 0;
  for (StageKind stage = 0; stage < stages_of(plan); stage++)
    most = fmax(most, saved_on(bounds, plan, layer, stage));
  return most;
}

/* Do stages of both keep the same values for gradients of weights, for as long? */
static bool keeps_alike(const SpacePlan *a, const SpacePlan *b) {
  static const SpaceField same[] = {FIELD_TENSOR,   FIELD_CONTEXT, FIELD_EXPERT,
                                    FIELD_SEQUENCE, FIELD_MICRO,   FIELD_RECOMPUTE,
                                    FIELD_PIPELINE, FIELD_WAY,     FIELD_PIPE};
  bool all = bound_splits_backward(a);
  for (size_t i = 0; i < COUNT_OF(same); i++) all &= a->at[same[i]] == b->at[same[i]];
  return all;
}

/* The plan with those fields of another one by which saved values do not differ. */
static SpacePlan saved_as(const SpacePlan *plan, const SpacePlan *of) {
  static const SpaceField others[] = {FIELD_DATA, FIELD_REPLICA, FIELD_ORDER,  FIELD_ZERO,
                                      FIELD_OVER, FIELD_FULL,    FIELD_OFFLOAD};
  SpacePlan one = *plan;
  for (size_t i = 0; i < COUNT_OF(others); i++) one.at[others[i]] = of->at[others[i]];
  return one;
}

static bool same_gradients(const SpacePlan *a, const SpacePlan *b) {
  return a->at[FIELD_ZERO] == b->at[FIELD_ZERO] && a->at[FIELD_FULL] == b->at[FIELD_FULL] &&
         a->at[FIELD_OFFLOAD] == b->at[FIELD_OFFLOAD];
}

/* The facts that are known of plans like this one, 0 if none is: `bytes` of one that differs by
   the order of the mesh alone; the most saved values and temporaries of those that shard or send in
   another way, which for temporaries have the same stage of ZeRO. */
static KnownBytes known_bytes(const PlanBounds *bounds, const SpacePlan *plan) {
  KnownBytes all = {.plan = *plan, .share = 1};
  for (uint32_t i = 0; i < bounds->known.n; i++) {
    const KnownBytes *known = &bounds->known.at[i];
    if (keeps_alike(plan, &known->plan)) all.share = fmax(all.share, SHARED * known->share);
    SpacePlan one = saved_as(&known->plan, plan);
    if (memcmp(&one, plan, sizeof one) != 0) continue;
    all.saved = fmax(all.saved, known->saved);
    if (same_gradients(&known->plan, plan)) all.working = fmax(all.working, known->working);
    one = known->plan, one.at[FIELD_ORDER] = plan->at[FIELD_ORDER];
    if (!memcmp(&one, plan, sizeof one)) all.bytes = known->bytes;
  }
  return all;
}

/* Numbers of parameters that ZeRO gathers at once. Each of the loops over layers, one for each
   chunk, has a layer of them; experts that no other rank has are not gathered. */
static double numbers_at_once(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  int chunks = at[FIELD_PIPELINE] > 3 ? at[FIELD_PIPELINE] - 2 : 1;
  double all = bounds->of_layers * bounds->space->largest / at[FIELD_TENSOR],
         experts = bounds->space->expert_parameters / (double)bounds->space->layer_count /
                   at[FIELD_TENSOR];
  if (at[FIELD_EXPERT] == 1) return all * chunks;
  bool shared = at[FIELD_DATA] > 1 || at[FIELD_OVER];
  return fmax(0, all - experts) * chunks + (shared ? experts / at[FIELD_EXPERT] : 0);
}

/* Bytes of gathered parameters. Gradients that are whole before they are added are left out: they
   may take the place of the layer's saved values. */
static double whole_layers(const PlanBounds *bounds, const SpacePlan *plan) {
  bool gathers = plan->at[FIELD_ZERO] == 3 && plan->at[FIELD_OFFLOAD] < 3;
  return gathers ? numbers_at_once(bounds, plan) * bounds->wire : 0;
}

static bool adds_whole(const SpacePlan *plan) {
  return plan->at[FIELD_ZERO] < 2 || plan->at[FIELD_FULL];
}

/* Numbers of parameters on a stage, at least. */
static double numbers_on(const PlanBounds *bounds, const SpacePlan *plan, StageKind stage) {
  double tensor = plan->at[FIELD_TENSOR];
  if (plan->at[FIELD_PIPE] == 1) return bounds->parameters / tensor;
  double layers = (double)bound_layers(bounds->space, plan) * bounds->of_layers;
  return (layers + (stage == STAGE_FIRST ? bounds->space->first_parameters : 0)) / tensor;
}

/* The part of these numbers of a stage that a rank has where ZeRO shards them, or does not: its own
   experts, and all others. */
static double part_of(const PlanBounds *bounds, const SpacePlan *plan, double numbers,
                      bool sharded) {
  const PlanSpace *space = bounds->space;
  double shards = (double)space_shards(plan), all = numbers * plan->at[FIELD_TENSOR],
         experts = space->expert_parameters, others = 1 - 1.0 / plan->at[FIELD_EXPERT];
  if (sharded) return 1 / shards;
  if (plan->at[FIELD_PIPE] > 1)
    experts *= (double)bound_layers(space, plan) / (double)space->layer_count;
  return 1 - others * (all > experts ? experts / all : 1);
}

/* Gradients of these numbers that are added up over micro-batches. */
static double gradients_of(const PlanBounds *bounds, const SpacePlan *plan, double numbers) {
  double whole = bounds->gradients * numbers / bounds->parameters;
  if (plan->at[FIELD_OFFLOAD] || bound_parts(bounds->space, plan) < 2) return 0;
  return whole * part_of(bounds, plan, numbers, !adds_whole(plan));
}

/* The order determines the size of buckets; one is at most 1/64 of the memory. Up to four of a
   layer's parameters and gradients are whole at once, in each chunk. */
void bounds_learn(PlanBounds *bounds, const SpacePlan *plan, const Cost *cost) {
  enum { WHOLE = 4, ELEMENT = 4 };
  int chunks = plan->at[FIELD_PIPELINE] > 3 ? plan->at[FIELD_PIPELINE] - 2 : 1;
  double buckets = (double)cost->need.buffers + (double)bounds->machine.memory / 64;
  double whole = WHOLE * ELEMENT * bounds->of_layers / plan->at[FIELD_TENSOR] * chunks;
  LayerCost layer = layer_cost(bounds, plan);
  double twice = gradients_of(bounds, plan, numbers_on(bounds, plan, STAGE_FIRST)) -
                 (double)cost->need.gradients; /* some are temporaries */
  if (twice > 0) whole += twice;
  double counted = saved_of(bounds, plan, &layer) * plan->at[FIELD_MICRO],
         saved = (double)cost->need.saved;
  if (saves_gathered(plan)) saved = fmax(0, saved + (double)cost->need.weights - bounds->weights);
  KnownBytes known = {.plan = *plan,
                      .bytes = (double)budget_all(&cost->need) - buckets,
                      .saved = saved,
                      .share = counted > 0 ? saved / counted : 1,
                      .working = SHARED * ((double)cost->need.working - whole)};
  vec_push(bounds->space->o->c->arena, bounds->known, known);
}

/* Bytes of weights, optimizer states and gradients that a stage holds during the whole step. Chunks
   add up gradients of their layers apart from those of the whole stage. */
static double states_of(const PlanBounds *bounds, const SpacePlan *plan, StageKind stage) {
  const int32_t *at = plan->at;
  double numbers = numbers_on(bounds, plan, stage), share = numbers / bounds->parameters,
         bytes = gradients_of(bounds, plan, numbers);
  if (at[FIELD_OFFLOAD] < 3)
    bytes += bounds->weights * share * part_of(bounds, plan, numbers, at[FIELD_ZERO] > 2);
  if (!at[FIELD_OFFLOAD])
    bytes += bounds->optimizer * share * part_of(bounds, plan, numbers, at[FIELD_ZERO] > 0);
  if (at[FIELD_PIPELINE] > 3 && adds_whole(plan))
    bytes += SHARED * gradients_of(bounds, plan, numbers_on(bounds, plan, STAGE_MIDDLE));
  return bytes;
}

/* Facts of compiled plans do not say of which stage they are. */
static double bytes_of(const PlanBounds *bounds, const SpacePlan *plan, const LayerCost *layer) {
  KnownBytes known = known_bytes(bounds, plan);
  double bytes = 0, most = 0, micro = plan->at[FIELD_MICRO],
         working = /* most of it is the head's */
         plan->at[FIELD_PIPE] == 1 ? SHARED * layer->working * micro : 0,
         least = plan->at[FIELD_PIPE] == 1 ? states_of(bounds, plan, STAGE_FIRST)
                                           : states_of(bounds, plan, STAGE_MIDDLE);
  for (StageKind stage = 0; stage < stages_of(plan); stage++) {
    double saved = saved_on(bounds, plan, layer, stage) * micro;
    bytes = fmax(bytes, states_of(bounds, plan, stage) + saved);
    most = fmax(most, saved);
  }
  bytes = fmax(bytes, least + fmax(most * known.share, known.saved));
  bytes += fmax(fmax(working, known.working), whole_layers(bounds, plan));
  return fmax(SLACK * bytes, known.bytes);
}

/* States are read and written. */
static double update_seconds(const PlanBounds *bounds, const SpacePlan *plan) {
  const int32_t *at = plan->at;
  double held = (double)at[FIELD_TENSOR] * at[FIELD_PIPE],
         shards = (double)(at[FIELD_ZERO] ? space_shards(plan) : at[FIELD_EXPERT]);
  if (!bounds->machine.reach || at[FIELD_OFFLOAD]) return 0;
  return 2 * bounds->optimizer / held / shards / bounds->machine.hbm;
}

/* A guess of the factor by which messages inside layers, and unequal stages, make a step longer. */
static double usual_loss(const PlanBounds *bounds, const SpacePlan *plan) {
  const SmallCost *split = bound_small(bounds, plan, true);
  int64_t parts = bound_parts(bounds->space, plan), stages = plan->at[FIELD_PIPE];
  bool uneven = bound_uneven(bounds->space, plan);
  double loss = uneven ? 1.1 * (double)(parts + stages) / (double)parts : stages > 1 ? 1.1 : 1;
  if (!split && plan->at[FIELD_TENSOR] > 1) loss *= 1.5;
  if (!split && plan->at[FIELD_CONTEXT] > 1) loss *= 1.5;
  return loss;
}

/* A step in seconds of kernels and, for a sample, of its layers. */
typedef struct StepSeconds {
  LayerCost layer;
  double layers, parts, update, busy;
  double enough; /* a bound that is not below it may be any below the sharpest one */
} StepSeconds;

static StepSeconds step_seconds(const PlanBounds *bounds, const SpacePlan *plan) {
  StepSeconds step = {.layer = layer_cost(bounds, plan),
                      .layers = (double)bound_layers(bounds->space, plan),
                      .parts = (double)bound_parts(bounds->space, plan),
                      .update = update_seconds(bounds, plan)};
  const LayerCost *layer = &step.layer;
  bool one = step.parts < 2;
  double computes = one ? layer->computes : layer->first + (step.parts - 1) * layer->computes,
         outside = one ? layer->outside : layer->first_outside + (step.parts - 1) * layer->outside;
  step.busy = plan->at[FIELD_MICRO] * (step.layers * computes + outside) + step.update;
  if (plan->at[FIELD_PIPE] > 1) step.busy = bound_turns(bounds, plan, NULL, layer) + step.update;
  return step;
}

/* Messages of these small programs, one after the other, that kernels do not hide. */
static double with_messages(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                            const StepSeconds *step) {
  const int32_t *at = plan->at;
  const LayerCost *layer = &step->layer;
  double sent = bound_sent(bounds, plan, small, step->layers, step->parts), busy = step->busy;
  if (!at[FIELD_OVERLAP] && at[FIELD_WAY] != WAY_RING) return busy + sent; /* a ring overlaps */
  if (small->micro != at[FIELD_MICRO]) {
    double others = step->parts - 1, computes = layer->first + others * small->cost.least;
    busy = at[FIELD_MICRO] * (step->layers * computes + step->parts * layer->first_outside);
  }
  double blocks = bound_blocking(bounds, plan, small, step->layers, step->parts),
         rest = sent - blocks - bound_hidden(plan, small, step->layers, step->parts);
  return busy + blocks + fmax(0, rest);
}

/* The same of a pipeline: turns, with messages for which these wait, and messages after them. */
static double with_turns(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                         const StepSeconds *step) {
  double layers = step->layers, parts = step->parts, turns[TURN_KINDS], after, later = 0,
         sent = bound_sent(bounds, plan, small, layers, parts),
         shown = bound_after(bounds, plan, small, layers, &after);
  bool splits = bound_splits_backward(plan), waits = small->layer.known;
  bound_turn_sent(bounds, plan, small, turns);
  double blocks = turns[TURN_FORWARD] + turns[TURN_BACKWARD] + (splits ? 0 : turns[TURN_WEIGHTS]),
         rest = sent - after - (waits ? layers * parts * blocks : 0);
  if (plan->at[FIELD_OVERLAP] || plan->at[FIELD_WAY] == WAY_RING)
    rest -= bound_hidden(plan, small, layers, parts);
  if (splits && waits) later = bound_later(bounds, plan, small, layers, parts);
  double others = bound_handed(bounds, plan) + shown + fmax(0, rest) + fmax(0, later);
  if (of_time(bounds) * (step->busy + others) >= step->enough) return step->busy + others;
  return step->update + bound_turns(bounds, plan, small, &step->layer) + others;
}

/* Messages of all micro-batches but the first: before it and after the last one, programs of few
   layers may send otherwise. */
static double with_more(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                        const StepSeconds *step) {
  double first = step->layers * step->layer.first + step->layer.first_outside;
  return ALIKE * (plan->at[FIELD_MICRO] * first + step->update +
                  (step->parts - 1) * bound_more(bounds, plan, small));
}

static double with_small(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                         const StepSeconds *step) {
  return plan->at[FIELD_PIPE] > 1 ? with_turns(bounds, plan, small, step)
                                  : with_messages(bounds, plan, small, step);
}

Bound bound_of(const PlanBounds *bounds, const SpacePlan *plan) {
  return bound_below(bounds, plan, INFINITY);
}

Bound bound_below(const PlanBounds *bounds, const SpacePlan *plan, double enough) {
  StepSeconds step = step_seconds(bounds, plan);
  step.enough = enough;
  if (of_time(bounds) * step.busy >= enough)
    return (Bound){of_time(bounds) * step.busy, 0, of_time(bounds) * step.busy};
  double sent = data_seconds(bounds, plan), seconds = step.busy;
  bool hides = plan->at[FIELD_OVERLAP];
  const SmallCost *split = bound_small(bounds, plan, true), *own = bound_small(bounds, plan, false);
  /* 0 of programs with several micro-batches. */
  if (own && own->known && own->micro == plan->at[FIELD_MICRO] && plan->at[FIELD_PIPE] == 1)
    seconds = step.busy = fmax(step.busy, step.layers * own->single + own->single_outside);
  if (split && split->known && !(own && own->micro == plan->at[FIELD_MICRO])) {
    seconds = fmax(seconds, with_small(bounds, plan, split, &step));
    if (hides) sent += bound_sent(bounds, plan, split, step.layers, step.parts);
  }
  if (!split && !own)
    seconds = bound_larger_split(bounds, plan, step.layers, step.parts, step.busy);
  seconds = hides ? fmax(seconds, sent) : seconds + sent;
  double ahead = saves_gathered(plan) ? AHEAD : 1;
  if (own && own->known) seconds = fmax(seconds, ahead * with_small(bounds, plan, own, &step));
  if (own && plan->at[FIELD_PIPE] == 1)
    seconds = fmax(seconds, with_more(bounds, plan, own, &step));
  Bound bound = {.seconds = of_time(bounds) * seconds,
                 .bytes = bytes_of(bounds, plan, &step.layer)};
  bound.guess = bound.seconds * usual_loss(bounds, plan) + (hides ? sent / 4 : 0);
  return bound;
}

/* Plans that are alike follow each other in a space. */
Bound bound_of_alike(const PlanBounds *bounds, const SpacePlan *plan) {
  static const SpaceField others[] = {FIELD_ORDER, FIELD_ZERO,    FIELD_OVER,
                                      FIELD_FULL,  FIELD_OVERLAP, FIELD_OFFLOAD};
  AlikeBound *alike = bounds->alike;
  SpacePlan one = *plan;
  for (size_t i = 0; i < COUNT_OF(others); i++) one.at[others[i]] = 0;
  if (memcmp(&alike->plan, &one, sizeof one) != 0) {
    StepSeconds step = step_seconds(bounds, plan);
    double saved = saved_of(bounds, plan, &step.layer) * plan->at[FIELD_MICRO];
    *alike = (AlikeBound){one, of_time(bounds) * (step.busy - step.update), SLACK * saved};
  }
  return (Bound){.seconds = alike->seconds,
                 .bytes = alike->bytes,
                 .guess = alike->seconds * usual_loss(bounds, plan)};
}
