/* Small programs that make bounds sharper (bound.h), compiled two at once: the second one is for
   another plan that is likely to need its own next; without such a plan, it is for the plans that
   differ from the first one in whether shards of gradients are added up, since nearly all searches
   need these as well. If only the loops over layers depend on the number of layers, a program with
   two layers is measured as if it had three. That covers the messages inside of a copy of the
   model, and the parameters and gradients that ZeRO shards in each layer. Must not: judge. */
#include "bound.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include <math.h>

Change bound_change(const PlanBounds *bounds, const SpacePlan *copy, int layers, int batch) {
  const PlanSpace *space = bounds->space;
  Arena *arena = space->o->c->arena;
  Change change =
      change_with(arena, space_change_compared(space, copy), "train.batch", "%d", batch);
  int64_t gpus = module_whole(space->m, "machine.node.gpus"),
          ranks = copy->at[FIELD_TENSOR] * copy->at[FIELD_CONTEXT] * space_copies(copy);
  if (gpus && ranks > gpus * space->nodes)
    change = change_with(arena, change, "plan.on.nodes", "%lld", (long long)ceil_div(ranks, gpus));
  if (!layers || !*space->layers) return change;
  return change_with(arena, change, arena_printf(arena, "dim.%s", space->layers), "%d", layers);
}

typedef struct Small { /* programs, and what is known of them */
  SpacePlan copy;
  SmallCost cost;
  int parts; /* micro-batches of a copy of the model */
  TryJob job;
} Small;

static TryJob job_of(const PlanBounds *bounds, const SpacePlan *copy, int parts) {
  int batch = parts * copy->at[FIELD_MICRO] * (int)space_copies(copy);
  TryJob job = {.n = *bounds->space->layers ? 2 : 1};
  for (int i = 0; i < job.n; i++) job.change[i] = bound_change(bounds, copy, 2 + i, batch);
  return job;
}

bool bound_measure_layers(PlanBounds *bounds, const SpacePlan *copy, int parts, Cost *two,
                          Cost *three) {
  TryJob job = job_of(bounds, copy, parts);
  search_try_jobs(&bounds->search, &job, 1);
  bounds->compiled += (uint32_t)job.compiled;
  *two = job.made[0].cost, *three = job.made[job.n - 1].cost;
  return job.made[0].made && job.made[job.n - 1].made;
}

/* ---- what programs say ---- */

/* By programs of two layers and of three, both with `parts` micro-batches, and one more of them. */
static void divide(double part[STEP_PARTS], double two, double two_more, double three,
                   double three_more, double parts) {
  part[OF_LAYER_AND_PART] = three_more - two_more;
  part[OF_PART] = two_more - 2 * part[OF_LAYER_AND_PART];
  double once = two - parts * two_more, once_three = three - parts * three_more;
  part[OF_LAYER] = once_three - once;
  part[ONCE] = once - 2 * part[OF_LAYER];
}

static bool same_kinds(const SentList *a, const SentList *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++)
    same = a->at[i].axis == b->at[i].axis && a->at[i].kind == b->at[i].kind;
  return same;
}

static void name_fields(SentList *list, const int axis[SPACE_AXES]) {
  for (uint32_t i = 0; i < list->n; i++)
    list->at[i].axis = (int)bound_field(axis, list->at[i].axis);
}

static bool divide_sent(const PlanBounds *bounds, const SpacePlan *copy, double parts,
                        SmallCost *cost, const Cost *two, const Cost *three) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  if (!same_kinds(&two->sent, &three->sent)) return false;
  space_mesh(bounds->space, copy, storage, axis);
  cost->layer = two->layer;
  name_fields(&cost->layer.forward_sent, axis), name_fields(&cost->layer.later_sent, axis);
  for (int i = 0; i < TURN_KINDS; i++) name_fields(&cost->layer.blocking[i], axis);
  for (uint32_t i = 0; i < two->sent.n; i++) {
    SmallSent *sent = &cost->sent[cost->n];
    const SentKind *two_once = &two->sent.at[i], *two_more = &two->sent_micro.at[i],
                   *three_once = &three->sent.at[i], *three_more = &three->sent_micro.at[i];
    sent->axis = bound_field(axis, two_once->axis), sent->kind = two_once->kind;
    if (cost->inside && bound_of_copies(sent->axis)) continue;
    divide(sent->calls, two_once->calls, two_more->calls, three_once->calls, three_more->calls,
           parts);
    divide(sent->bytes, two_once->bytes, two_more->bytes, three_once->bytes, three_more->bytes,
           parts);
    cost->n++;
  }
  return true;
}

LayerCost bound_cost_between(const Cost *small, const Cost *wide, double micro) {
  LayerCost cost = {.computes = (wide->micro.computes - small->micro.computes) / micro,
                    .least = (wide->micro.least - small->micro.least) / micro,
                    .saved = (double)(wide->need.saved - small->need.saved) / micro};
  cost.outside = small->micro.computes / micro - 2 * cost.computes;
  double least = small->micro.least / micro - 2 * cost.least;
  /* Some of the layers may be out of their loop. */
  cost.head = fmin(small->micro.head / micro, cost.outside);
  cost.least_head = fmin(small->micro.least_head / micro, least);
  cost.first_stage = fmin(small->micro.first / micro, cost.outside - cost.head);
  cost.least_first_stage = fmin(small->micro.least_first / micro, least - cost.least_head);
  return cost;
}

static double hidden(const CostTime *time) { return time->computes - time->alone; }
static double least_hidden(const CostTime *time) { return time->least - time->least_alone; }

static void keep_small(PlanBounds *bounds, const Small *small) {
  const Cost *two = &small->job.made[0].cost, *three = &small->job.made[1].cost;
  bool made = small->job.made[0].made && small->job.made[1].made;
  SmallCost cost = small->cost;
  int parts = small->parts;
  cost.micro = small->copy.at[FIELD_MICRO];
  cost.known = made && divide_sent(bounds, &small->copy, parts, &cost, two, three);
  cost.cost = bound_cost_between(two, three, cost.micro);
  cost.single = parts == 1 ? three->forecast.computes - two->forecast.computes : 0;
  cost.single_outside = parts == 1 ? two->forecast.computes - 2 * cost.single : 0;
  divide(cost.hidden, hidden(&two->forecast), hidden(&two->micro), hidden(&three->forecast),
         hidden(&three->micro), parts);
  divide(cost.least_hidden, least_hidden(&two->forecast), least_hidden(&two->micro),
         least_hidden(&three->forecast), least_hidden(&three->micro), parts);
  divide(cost.seconds, two->forecast.seconds, two->micro.seconds, three->forecast.seconds,
         three->micro.seconds, parts);
  vec_push(bounds->space->o->c->arena, bounds->small, cost);
}

/* ---- which programs ---- */

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

/* Do parameters and gradients of layers travel in loops over layers alone? */
static bool sends_in_layers(const SpacePlan *copy) {
  const int32_t *at = copy->at;
  return at[FIELD_ZERO] > 2 && !at[FIELD_FULL] && (at[FIELD_CONTEXT] == 1 || at[FIELD_OVER]);
}

typedef struct SmallWanted { /* small programs */
  SpacePlan copy, key;
  bool inside, smallest; /* what plans share: with a split, or with any of its kind */
} SmallWanted;

static Small small_of(const PlanBounds *bounds, const SmallWanted *wanted) {
  Small small = {.copy = wanted->copy, .parts = 2};
  small.cost = (SmallCost){.plan = wanted->key, .inside = wanted->inside};
  if (!wanted->inside && small.cost.plan.at[FIELD_PIPELINE]) small.parts = 1;
  small.job = job_of(bounds, &small.copy, small.parts);
  small.job.inside = wanted->inside;
  small.job.deeper = wanted->inside || (small.parts > 1 && sends_in_layers(&small.copy));
  return small;
}

/* First what all plans with the smallest split of its kind share, then those with its own split,
   then the same in its micro-batch, then its own. */
static bool wants(const PlanBounds *bounds, const SpacePlan *plan, SmallWanted *out) {
  const SmallCost *split = bound_small(bounds, plan, true), *own = bound_small(bounds, plan, false);
  int micro = plan->at[FIELD_MICRO];
  bool inside = !split || split->micro != micro;
  if (!*bounds->space->layers || (own && own->micro == micro)) return false;
  *out = (SmallWanted){.inside = inside, .smallest = !split && !bound_smallest(bounds, plan)};
  if (out->smallest) {
    out->key = out->copy = bound_smallest_key(bounds, plan);
    out->copy.at[FIELD_MICRO] = (int)bounds->space->batch;
    return true;
  }
  out->key = bound_key(bounds, plan, inside);
  out->copy = bound_copy(bounds, plan, inside, split ? micro : largest_micro(bounds, plan));
  return true;
}

bool bounds_wants(const PlanBounds *bounds, const SpacePlan *plan, SpacePlan *program) {
  SmallWanted wanted;
  if (!wants(bounds, plan, &wanted)) return false;
  *program = wanted.key;
  program->at[FIELD_MICRO] = wanted.copy.at[FIELD_MICRO];
  program->at[FIELD_REPLICA] = wanted.inside; /* in its place */
  return true;
}

/* With gradients that are added up in the other way. */
static bool other_gradients(const PlanBounds *bounds, const Small *small, Small *out) {
  bool shards = small->copy.at[FIELD_DATA] == 1;
  int micro = small->copy.at[FIELD_MICRO];
  *out = *small;
  bound_set_copies(bounds, &out->copy, shards), bound_set_copies(bounds, &out->cost.plan, shards);
  out->job = job_of(bounds, &out->copy, out->parts);
  out->job.inside = out->job.deeper = true;
  return !bound_is_known(bounds, &out->cost.plan, micro);
}

static bool second_of(const PlanBounds *bounds, const SpacePlan *next, const Small *first,
                      bool smallest, Small *out) {
  SmallWanted wanted;
  if (next && wants(bounds, next, &wanted)) {
    *out = small_of(bounds, &wanted);
    bool same = out->cost.inside == first->cost.inside &&
                !memcmp(&out->copy, &first->copy, sizeof out->copy);
    if (!same) return true;
  }
  return !smallest && first->cost.inside && other_gradients(bounds, first, out);
}

bool bounds_refine(PlanBounds *bounds, const SpacePlan *plan, const SpacePlan *next) {
  SmallWanted wanted;
  if (!wants(bounds, plan, &wanted)) return false;
  Small small[2] = {small_of(bounds, &wanted)};
  int n = 1 + second_of(bounds, next, &small[0], wanted.smallest, &small[1]);
  TryJob job[2] = {small[0].job, small[1].job};
  search_try_jobs(&bounds->search, job, n);
  for (int i = 0; i < n; i++) {
    small[i].job = job[i], bounds->compiled += (uint32_t)job[i].compiled;
    keep_small(bounds, &small[i]);
  }
  return true;
}
