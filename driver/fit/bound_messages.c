/* Messages of plans in bounds (bound.h): two small programs of a plan without its stages say what
   it sends for each layer and micro-batch, and how many seconds of kernels no message can hide.
   Neither depends on the order of the mesh, on the number of copies or on stages: plans that differ
   by those alone share the programs, and their links give the time of the messages. Must not:
   judge. */
#include "bound.h"

/* A step has something for each layer of each micro-batch, each micro-batch, each layer, and once.
 */
static double in_step(const double part[STEP_PARTS], double layers, double parts, bool all) {
  double inside = layers * (parts * part[OF_LAYER_AND_PART] + part[OF_LAYER]);
  return all ? inside + parts * part[OF_PART] + part[ONCE] : inside;
}

/* By programs of two layers and of three, both with `parts` micro-batches, and one more of them. */
static void divide(double part[STEP_PARTS], double two, double two_more, double three,
                   double three_more, double parts) {
  part[OF_LAYER_AND_PART] = three_more - two_more;
  part[OF_PART] = two_more - 2 * part[OF_LAYER_AND_PART];
  double once = two - parts * two_more, once_three = three - parts * three_more;
  part[OF_LAYER] = once_three - once;
  part[ONCE] = once - 2 * part[OF_LAYER];
}

/* The numbers by which these programs differ, but for the micro-batch. */
static SpacePlan like(const SpacePlan *plan) {
  SpacePlan one = *plan;
  int32_t *at = one.at;
  at[FIELD_REPLICA] = at[FIELD_PIPE] = at[FIELD_MICRO] = 1;
  at[FIELD_ORDER] = at[FIELD_PIPELINE] = at[FIELD_OFFLOAD] = 0;
  if (at[FIELD_DATA] > 1) at[FIELD_DATA] = 2;
  if (!at[FIELD_OVERLAP]) at[FIELD_OVERLAP] = 1; /* it sends the same */
  return one;
}

const LikeCost *bound_like(const PlanBounds *bounds, const SpacePlan *plan) {
  const LikeCost *best = NULL;
  SpacePlan own = like(plan);
  int32_t micro = plan->at[FIELD_MICRO];
  bool single = bound_parts(bounds->space, plan) == 1;
  for (uint32_t i = 0; i < bounds->like.n; i++) {
    const LikeCost *one = &bounds->like.at[i];
    if (one->micro >= micro && one->one == single && !memcmp(&one->plan, &own, sizeof own) &&
        (!best || one->micro < best->micro))
      best = one;
  }
  return best;
}

static bool same_kinds(const SentList *a, const SentList *b) {
  bool same = a->n == b->n;
  for (uint32_t i = 0; same && i < a->n; i++)
    same = a->at[i].axis == b->at[i].axis && a->at[i].kind == b->at[i].kind;
  return same;
}

static SpaceField field_of(const int axis[SPACE_AXES], int of) {
  SpaceField field = 0;
  while (axis[field] != of) field++;
  return field;
}

static bool divide_sent(const PlanBounds *bounds, const SpacePlan *copy, LikeCost *cost,
                        const Cost *two, const Cost *three) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  space_mesh(bounds->space, copy, storage, axis);
  cost->n = two->sent.n;
  for (uint32_t i = 0; i < cost->n; i++) {
    LikeSent *sent = &cost->sent[i];
    const SentKind *two_once = &two->sent.at[i], *two_more = &two->sent_micro.at[i],
                   *three_once = &three->sent.at[i], *three_more = &three->sent_micro.at[i];
    double parts = cost->one ? 1 : 2;
    sent->axis = field_of(axis, two_once->axis), sent->kind = two_once->kind;
    divide(sent->calls, two_once->calls, two_more->calls, three_once->calls, three_more->calls,
           parts);
    divide(sent->bytes, two_once->bytes, two_more->bytes, three_once->bytes, three_more->bytes,
           parts);
  }
  return same_kinds(&two->sent, &three->sent);
}

static double hidden(const CostTime *time) { return time->computes - time->alone; }

void bound_measure_like(PlanBounds *bounds, const SpacePlan *plan) {
  SpacePlan copy = *plan;
  Cost two, three;
  copy.at[FIELD_REPLICA] = copy.at[FIELD_PIPE] = 1;
  copy.at[FIELD_PIPELINE] = copy.at[FIELD_OFFLOAD] = 0;
  if (bounds->space->machine.gpus && !copy.at[FIELD_OVERLAP]) copy.at[FIELD_OVERLAP] = 1;
  bool one = bound_parts(bounds->space, plan) == 1;
  LikeCost cost = {.plan = like(plan), .micro = plan->at[FIELD_MICRO], .one = one};
  cost.known = bound_measure_layers(bounds, &copy, one ? 1 : 2, &two, &three) &&
               divide_sent(bounds, &copy, &cost, &two, &three);
  cost.cost = bound_cost_between(&two, &three, cost.micro);
  divide(cost.hidden, hidden(&two.forecast), hidden(&two.micro), hidden(&three.forecast),
         hidden(&three.micro), one ? 1 : 2);
  vec_push(bounds->space->o->c->arena, bounds->like, cost);
}

static bool of_copies(SpaceField axis) { return axis == FIELD_DATA || axis == FIELD_REPLICA; }

/* If the micro-batch is smaller than that of the programs, messages inside of a copy have as many
   bytes for a sample, those of parameters no fewer. */
double bound_sent(const PlanBounds *bounds, const SpacePlan *plan, const LikeCost *cost,
                  double layers, double parts) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  bool all = plan->at[FIELD_PIPE] == 1;
  double share = (double)plan->at[FIELD_MICRO] / cost->micro, seconds = 0;
  for (uint32_t i = 0; i < cost->n; i++) {
    const LikeSent *sent = &cost->sent[i];
    double calls = in_step(sent->calls, layers, parts, all),
           bytes = in_step(sent->bytes, layers, parts, all) * (of_copies(sent->axis) ? 1 : share);
    if (calls <= 0 || bytes <= 0 || axis[sent->axis] < 0) continue;
    seconds +=
        link_time(&mesh, &bounds->machine, axis[sent->axis], sent->kind, calls, bytes).seconds;
  }
  return seconds;
}

double bound_hidden(const LikeCost *cost, double layers, double parts) {
  double hidden = in_step(cost->hidden, layers, parts, true);
  return hidden > 0 ? hidden : 0;
}
