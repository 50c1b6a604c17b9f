/* Small programs of plans in bounds (bound.h): two of them, without stages, say what a plan
   computes and sends for each layer and micro-batch, and how many seconds of kernels its messages
   can hide. None of it depends on stages, nor on the order of the mesh, but for which of ZeRO's
   axes is first: plans that differ by those alone share the programs, and their links give the
   time of the messages. For messages inside of a copy this is so whatever ZeRO sends; where many
   copies make the compiler send or compute more, these bounds are those of one copy. Must not:
   judge. */
#include "bound.h"
#include "ir/support/num.h"
#include <math.h>

enum { MOST_COPIES = 64 };

/* A step has something for each layer of each micro-batch, each micro-batch, each layer, and once:
   stages of a pipeline have the first and the third, plans of a split the first two. */
static double in_step(const double part[STEP_PARTS], double layers, double parts,
                      const SmallCost *cost, const SpacePlan *plan) {
  bool all = !plan || plan->at[FIELD_PIPE] == 1;
  double sum = layers * parts * part[OF_LAYER_AND_PART] + (all ? parts * part[OF_PART] : 0);
  if (cost->inside) return sum;
  return sum + layers * part[OF_LAYER] + (all ? part[ONCE] : 0);
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

/* Shards of gradients are those of many copies. */
static void set_copies(const PlanBounds *bounds, SpacePlan *plan, bool shards) {
  int32_t *at = plan->at;
  int64_t copies = bounds->space->ranks / at[FIELD_TENSOR] / at[FIELD_CONTEXT] / at[FIELD_EXPERT];
  bool more = bounds->space->machine.gpus || copies > MOST_COPIES; /* of more nodes */
  if (more) copies = MOST_COPIES;
  at[FIELD_DATA] = shards ? (int32_t)copies : 1, at[FIELD_ZERO] = at[FIELD_DATA] > 1 ? 2 : 0;
}

/* A plan of one copy of the model, its pipeline aside. */
static SpacePlan split_of(const PlanBounds *bounds, const SpacePlan *plan) {
  const PlanSpace *space = bounds->space;
  SpacePlan copy = *plan;
  int32_t *at = copy.at;
  set_copies(bounds, &copy,
             (at[FIELD_ZERO] > 1 && !at[FIELD_FULL]) || bound_parts(space, plan) == 1);
  at[FIELD_OVER] = at[FIELD_FULL] = 0, at[FIELD_OVERLAP] = space->machine.gpus;
  return copy;
}

/* With its copies and its ZeRO. */
static SpacePlan own_of(const PlanBounds *bounds, const SpacePlan *plan) {
  SpacePlan copy = *plan;
  /* It sends the same. */
  if (bounds->space->machine.gpus && !copy.at[FIELD_OVERLAP]) copy.at[FIELD_OVERLAP] = 1;
  return copy;
}

static SpacePlan copy_of(const PlanBounds *bounds, const SpacePlan *plan, bool inside, int micro) {
  SpacePlan copy = inside ? split_of(bounds, plan) : own_of(bounds, plan);
  int32_t *at = copy.at;
  at[FIELD_REPLICA] = at[FIELD_PIPE] = 1, at[FIELD_MICRO] = micro;
  at[FIELD_PIPELINE] = at[FIELD_OFFLOAD] = 0;
  at[FIELD_ORDER] =
      at[FIELD_OVER] && space_data_first(plan) ? ORDER_DATA_FIRST : ORDER_CONTEXT_FIRST;
  return copy;
}

/* The numbers by which these programs differ, but for the micro-batch. */
static SpacePlan key_of(const PlanBounds *bounds, const SpacePlan *plan, bool inside) {
  SpacePlan one = copy_of(bounds, plan, inside, 1);
  bool single = !inside && bound_parts(bounds->space, plan) == 1;
  one.at[FIELD_PIPELINE] = single; /* in its place: a single micro-batch */
  return one;
}

static const SmallCost *find_small(const PlanBounds *bounds, const SpacePlan *key, bool inside,
                                   int least, int most) {
  const SmallCost *best = NULL;
  for (uint32_t i = 0; i < bounds->small.n; i++) {
    const SmallCost *one = &bounds->small.at[i];
    if (one->inside == inside && one->micro >= least && one->micro <= most &&
        !memcmp(&one->plan, key, sizeof *key) && (!best || one->micro < best->micro))
      best = one;
  }
  return best;
}

const SmallCost *bound_small(const PlanBounds *bounds, const SpacePlan *plan, bool inside) {
  SpacePlan key = key_of(bounds, plan, inside);
  return find_small(bounds, &key, inside, plan->at[FIELD_MICRO], INT32_MAX);
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

/* Axes that split samples: messages over them are not those inside of a copy. */
static bool of_copies(SpaceField axis) {
  return axis == FIELD_EXPERT || axis == FIELD_DATA || axis == FIELD_REPLICA;
}

/* Parameters and their gradients; between experts, tokens are exchanged as well. */
static bool of_parameters(SpaceField axis, OpCode kind) {
  return of_copies(axis) && !(axis == FIELD_EXPERT && kind == OP_all_to_all);
}

static void name_fields(SentList *list, const int axis[SPACE_AXES]) {
  for (uint32_t i = 0; i < list->n; i++) list->at[i].axis = (int)field_of(axis, list->at[i].axis);
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
    sent->axis = field_of(axis, two_once->axis), sent->kind = two_once->kind;
    if (cost->inside && of_copies(sent->axis)) continue;
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

static void keep_small(PlanBounds *bounds, SmallCost cost, const SpacePlan *copy, int parts,
                       const Try made[2]) {
  const Cost *two = &made[0].cost, *three = &made[1].cost;
  cost.micro = copy->at[FIELD_MICRO];
  cost.known = made[0].made && made[1].made && divide_sent(bounds, copy, parts, &cost, two, three);
  cost.cost = bound_cost_between(two, three, cost.micro);
  cost.single = parts == 1 ? three->forecast.computes - two->forecast.computes : 0;
  cost.single_outside = parts == 1 ? two->forecast.computes - 2 * cost.single : 0;
  divide(cost.hidden, hidden(&two->forecast), hidden(&two->micro), hidden(&three->forecast),
         hidden(&three->micro), parts);
  divide(cost.least_hidden, least_hidden(&two->forecast), least_hidden(&two->micro),
         least_hidden(&three->forecast), least_hidden(&three->micro), parts);
  vec_push(bounds->space->o->c->arena, bounds->small, cost);
}

void bound_measure_split(PlanBounds *bounds, const SpacePlan *plan, int micro) {
  SpacePlan copy[2] = {copy_of(bounds, plan, true, micro)};
  SmallCost cost[2] = {{.plan = key_of(bounds, plan, true), .inside = true}};
  Try made[2][2];
  copy[1] = copy[0], cost[1] = cost[0];
  set_copies(bounds, &copy[1], copy[0].at[FIELD_DATA] == 1);
  set_copies(bounds, &cost[1].plan, copy[0].at[FIELD_DATA] == 1);
  bool both = !find_small(bounds, &cost[1].plan, true, micro, micro);
  bound_measure_inside(bounds, copy, 1 + both, made);
  for (int i = 0; i < 1 + both; i++) keep_small(bounds, cost[i], &copy[i], 2, made[i]);
}

void bound_measure_own(PlanBounds *bounds, const SpacePlan *plan) {
  SpacePlan copy = copy_of(bounds, plan, false, plan->at[FIELD_MICRO]);
  SmallCost cost = {.plan = key_of(bounds, plan, false)};
  int parts = cost.plan.at[FIELD_PIPELINE] ? 1 : 2;
  Try made[2] = {0};
  made[0].made = made[1].made =
      bound_measure_layers(bounds, &copy, parts, &made[0].cost, &made[1].cost);
  keep_small(bounds, cost, &copy, parts, made);
}

bool bound_splits_backward(const SpacePlan *plan) {
  return plan->at[FIELD_PIPELINE] == 2 || plan->at[FIELD_PIPELINE] == 3;
}

/* Messages of a kind that gradients of weights read: turns of their own have kernels that hide
   them. If the program does not tell them apart, all gathers over `tensor`. */
static SentKind sent_later(const SpacePlan *plan, const SmallCost *cost, const SmallSent *sent) {
  const SentList *list = &cost->layer.later_sent;
  SentKind none = {(int)sent->axis, sent->kind, 0, 0};
  if (!bound_splits_backward(plan)) return none;
  bool gathers = sent->kind == OP_all_gather && sent->axis == FIELD_TENSOR;
  if (!cost->layer.known && gathers)
    none.calls = sent->calls[OF_LAYER_AND_PART], none.bytes = sent->bytes[OF_LAYER_AND_PART];
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i].axis == (int)sent->axis && list->at[i].kind == sent->kind) return list->at[i];
  return none;
}

/* If the micro-batch is smaller than that of the programs, messages inside of a copy have as many
   bytes for a sample, those of parameters no fewer. */
static double sent_seconds(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                           double layers, double parts) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  double share = (double)plan->at[FIELD_MICRO] / cost->micro, seconds = 0;
  for (uint32_t i = 0; i < cost->n; i++) {
    const SmallSent *sent = &cost->sent[i];
    SentKind later = sent_later(plan, cost, sent);
    double calls = in_step(sent->calls, layers, parts, cost, plan) - layers * parts * later.calls,
           bytes =
               (in_step(sent->bytes, layers, parts, cost, plan) - layers * parts * later.bytes) *
               (of_parameters(sent->axis, sent->kind) ? 1 : share);
    if (calls <= 0 || bytes <= 0 || axis[sent->axis] < 0) continue;
    seconds +=
        link_time(&mesh, &bounds->machine, axis[sent->axis], sent->kind, calls, bytes).seconds;
  }
  return seconds;
}

/* Many plans of a space that follow each other send the same. */
double bound_sent(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                  double layers, double parts) {
  static const SpaceField others[] = {FIELD_ZERO,    FIELD_OVER,      FIELD_FULL,
                                      FIELD_OVERLAP, FIELD_RECOMPUTE, FIELD_SEQUENCE,
                                      FIELD_OFFLOAD, FIELD_PIPELINE};
  SpacePlan key = *plan;
  uint32_t of = (uint32_t)(cost - bounds->small.at) + 1;
  for (size_t i = 0; i < COUNT_OF(others); i++) key.at[others[i]] = 0;
  key.at[FIELD_PIPELINE] = bound_splits_backward(plan);
  uint64_t hash = of;
  for (int i = 0; i < SPACE_FIELDS; i++) hash = (hash ^ (uint32_t)key.at[i]) * 0x9e3779b97f4a7c15u;
  SentSeconds *slot = &bounds->sent[hash >> 52];
  if (slot->of != of || memcmp(&slot->plan, &key, sizeof key) != 0)
    *slot = (SentSeconds){of, key, sent_seconds(bounds, plan, cost, layers, parts)};
  return slot->seconds;
}

double bound_hidden(const SpacePlan *plan, const SmallCost *cost, double layers, double parts) {
  bool same = cost->micro == plan->at[FIELD_MICRO];
  double share = (double)plan->at[FIELD_MICRO] / cost->micro;
  double seconds =
      in_step(same ? cost->hidden : cost->least_hidden, layers, parts, cost, NULL) * share;
  return seconds > 0 ? seconds : 0;
}

/* Seconds of messages, on the links of the plan: of all, or of those inside of a copy. */
static double list_seconds(const PlanBounds *bounds, const SpacePlan *plan, const SentList *list,
                           double share, bool all) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  double seconds = 0;
  for (uint32_t i = 0; i < list->n; i++) {
    const SentKind *sent = &list->at[i];
    bool parameters = of_parameters((SpaceField)sent->axis, sent->kind);
    int of = axis[sent->axis];
    if (of < 0 || (parameters && !all)) continue;
    double bytes = sent->bytes * (parameters ? 1 : share);
    seconds += link_time(&mesh, &bounds->machine, of, sent->kind, sent->calls, bytes).seconds;
  }
  return seconds;
}

double bound_later(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                   double layers, double parts) {
  const CostLayer *layer = &cost->layer;
  double share = (double)plan->at[FIELD_MICRO] / cost->micro,
         sent = list_seconds(bounds, plan, &layer->later_sent, share, !cost->inside);
  return layers * parts * (sent - share * layer->later);
}

/* Seconds of all messages of a layer in a micro-batch. */
static double layer_seconds(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                            double share) {
  SentList list = {0};
  for (uint32_t i = 0; i < cost->n; i++) {
    const SmallSent *sent = &cost->sent[i];
    if (sent->calls[OF_LAYER_AND_PART] > 0)
      list.at[list.n++] = (SentKind){(int)sent->axis, sent->kind, sent->calls[OF_LAYER_AND_PART],
                                     sent->bytes[OF_LAYER_AND_PART]};
  }
  return list_seconds(bounds, plan, &list, share, !cost->inside);
}

/* Without overlap all of them; a ring overlaps. */
void bound_turn_sent(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                     double out[TURN_KINDS]) {
  const CostLayer *layer = &cost->layer;
  double share = (double)plan->at[FIELD_MICRO] / cost->micro;
  bool all = !cost->inside;
  for (int i = 0; i < TURN_KINDS; i++)
    out[i] = list_seconds(bounds, plan, &layer->blocking[i], share, all);
  if (plan->at[FIELD_OVERLAP] || plan->at[FIELD_WAY] == WAY_RING) return;
  double sent = layer_seconds(bounds, plan, cost, share),
         forward = list_seconds(bounds, plan, &layer->forward_sent, share, all),
         later = list_seconds(bounds, plan, &layer->later_sent, share, all);
  out[TURN_FORWARD] = forward, out[TURN_WEIGHTS] = later;
  out[TURN_BACKWARD] = sent > forward + later ? sent - forward - later : 0;
}

double bound_blocking(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                      double layers, double parts) {
  const SentList *list = cost->layer.blocking;
  double share = (double)plan->at[FIELD_MICRO] / cost->micro, seconds = 0;
  for (int i = 0; i < TURN_KINDS - bound_splits_backward(plan); i++)
    seconds += list_seconds(bounds, plan, &list[i], share, false);
  return layers * parts * seconds;
}

double bound_after(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost,
                   double layers, double *all) {
  SentList list = {0};
  bool same = cost->micro == plan->at[FIELD_MICRO];
  for (uint32_t i = 0; i < cost->n && !cost->inside; i++) {
    const SmallSent *sent = &cost->sent[i];
    if (sent->calls[OF_LAYER] > 0 && sent->bytes[OF_LAYER] > 0)
      list.at[list.n++] = (SentKind){(int)sent->axis, sent->kind, layers * sent->calls[OF_LAYER],
                                     layers * sent->bytes[OF_LAYER]};
  }
  *all = list_seconds(bounds, plan, &list, 1, true);
  if (!plan->at[FIELD_OVERLAP]) return *all;
  double shown = *all - layers * (same ? cost->hidden : cost->least_hidden)[OF_LAYER];
  return shown > 0 ? shown : 0;
}
