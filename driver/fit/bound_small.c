/* Small programs of plans in bounds (bound.h). Two of them, without stages, tell what a plan
   computes and sends for each layer and micro-batch, and how many seconds of kernels its messages
   can hide.

   Plans that differ only by stages share the programs; the links of each plan give the time of its
   messages. Messages inside of a copy of the model are the same for every ZeRO and every order of
   the mesh. Where several copies make the compiler send or compute more, the bound is that of one
   copy.

   Programs of a plan without stages and `replica` have the plan's whole mesh in its order, because
   the compiler decides by the time on the links which messages it hides. One more micro-batch then
   takes nearly as many seconds in these programs, scaled to all layers, as in the plan. Must not:
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

/* Shards of gradients are those of many copies. */
void bound_set_copies(const PlanBounds *bounds, SpacePlan *plan, bool shards) {
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
  bound_set_copies(bounds, &copy,
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

/* May its own programs have its mesh? Sums over `replica` are left out: they travel in buckets of
   several layers. */
static bool is_whole(const SpacePlan *plan) {
  const int32_t *at = plan->at;
  return at[FIELD_PIPE] == 1 && at[FIELD_REPLICA] == 1;
}

SpacePlan bound_copy(const PlanBounds *bounds, const SpacePlan *plan, bool inside, int micro) {
  SpacePlan copy = inside ? split_of(bounds, plan) : own_of(bounds, plan);
  int32_t *at = copy.at;
  bool whole = !inside && is_whole(plan) && at[FIELD_OVERLAP] == plan->at[FIELD_OVERLAP];
  at[FIELD_MICRO] = micro, at[FIELD_PIPELINE] = at[FIELD_OFFLOAD] = 0;
  if (whole) return copy;
  at[FIELD_REPLICA] = at[FIELD_PIPE] = 1;
  at[FIELD_ORDER] =
      at[FIELD_OVER] && space_data_first(plan) ? ORDER_DATA_FIRST : ORDER_CONTEXT_FIRST;
  return copy;
}

/* The numbers by which these programs differ, but for the micro-batch. */
SpacePlan bound_key(const PlanBounds *bounds, const SpacePlan *plan, bool inside) {
  SpacePlan one = bound_copy(bounds, plan, inside, 1);
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

bool bound_is_known(const PlanBounds *bounds, const SpacePlan *key, int micro) {
  return find_small(bounds, key, true, micro, micro) != NULL;
}

const SmallCost *bound_small(const PlanBounds *bounds, const SpacePlan *plan, bool inside) {
  SpacePlan key = bound_key(bounds, plan, inside);
  return find_small(bounds, &key, inside, plan->at[FIELD_MICRO], INT32_MAX);
}

static int32_t smallest_factor(int32_t n) {
  for (int32_t i = 2; i * i <= n; i++)
    if (n % i == 0) return i;
  return n;
}

/* Gradients are whole: shards are never sent less often. */
SpacePlan bound_smallest_key(const PlanBounds *bounds, const SpacePlan *plan) {
  SpacePlan small = *plan;
  small.at[FIELD_TENSOR] = smallest_factor(plan->at[FIELD_TENSOR]);
  small.at[FIELD_CONTEXT] = smallest_factor(plan->at[FIELD_CONTEXT]);
  small = bound_key(bounds, &small, true), bound_set_copies(bounds, &small, false);
  return small;
}

const SmallCost *bound_smallest(const PlanBounds *bounds, const SpacePlan *plan) {
  SpacePlan key = bound_smallest_key(bounds, plan);
  return find_small(bounds, &key, true, (int)bounds->space->batch, INT32_MAX);
}

SpaceField bound_field(const int axis[SPACE_AXES], int of) {
  SpaceField field = 0;
  while (axis[field] != of) field++;
  return field;
}

/* Axes that split samples: messages over them are not those inside of a copy. */
bool bound_of_copies(SpaceField axis) {
  return axis == FIELD_EXPERT || axis == FIELD_DATA || axis == FIELD_REPLICA;
}

/* Parameters and their gradients; between experts, tokens are exchanged as well. */
static bool of_parameters(SpaceField axis, OpCode kind) {
  return bound_of_copies(axis) && !(axis == FIELD_EXPERT && kind == OP_all_to_all);
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

/* The time of a message is concave in its bytes: an all-reduce takes a ring or a tree, whichever is
   faster. So messages of unknown sizes take the least if one of them has all bytes. */
static double least_seconds(const PlanBounds *bounds, const Module *mesh, int axis, OpCode kind,
                            double calls, double bytes) {
  const Machine *machine = &bounds->machine;
  double others = calls > 1 ? calls - 1 : 0;
  return link_time(mesh, machine, axis, kind, calls - others, bytes).seconds +
         link_time(mesh, machine, axis, kind, others, 0).seconds;
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
    seconds += least_seconds(bounds, &mesh, axis[sent->axis], sent->kind, calls, bytes);
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

double bound_more(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *cost) {
  const int32_t *at = plan->at;
  bool same = cost->known && !cost->inside && cost->micro == at[FIELD_MICRO] && is_whole(plan) &&
              !at[FIELD_OFFLOAD] && at[FIELD_OVERLAP] == cost->plan.at[FIELD_OVERLAP];
  double layers = (double)bound_layers(bounds->space, plan);
  return same ? layers * cost->seconds[OF_LAYER_AND_PART] + cost->seconds[OF_PART] : 0;
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
    seconds += least_seconds(bounds, &mesh, of, sent->kind, sent->calls, bytes);
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

/* All messages of a layer in a micro-batch. */
static SentList layer_sent(const SmallCost *cost) {
  SentList list = {0};
  for (uint32_t i = 0; i < cost->n; i++) {
    const SmallSent *sent = &cost->sent[i];
    if (sent->calls[OF_LAYER_AND_PART] > 0)
      list.at[list.n++] = (SentKind){(int)sent->axis, sent->kind, sent->calls[OF_LAYER_AND_PART],
                                     sent->bytes[OF_LAYER_AND_PART]};
  }
  return list;
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
  SentList each = layer_sent(cost);
  double sent = list_seconds(bounds, plan, &each, share, all),
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

/* Bytes of a gather or a sum over an axis do not depend on its size, but those of activations on
   the other one's. */
static SentList of_larger_split(const SpacePlan *plan, const SmallCost *small,
                                const SentList *list) {
  const int32_t *at = plan->at, *from = small->plan.at;
  double tensor = (double)from[FIELD_TENSOR] / at[FIELD_TENSOR],
         context = (double)from[FIELD_CONTEXT] / at[FIELD_CONTEXT];
  SentList out = {0};
  for (uint32_t i = 0; i < list->n; i++) {
    SentKind sent = list->at[i];
    bool whole =
        sent.kind == OP_all_gather || sent.kind == OP_reduce_scatter || sent.kind == OP_all_reduce;
    if (!whole || (sent.axis != FIELD_TENSOR && sent.axis != FIELD_CONTEXT)) continue;
    sent.calls = 0, sent.bytes *= sent.axis == FIELD_TENSOR ? context : tensor;
    out.at[out.n++] = sent;
  }
  return out;
}

double bound_larger_split(const PlanBounds *bounds, const SpacePlan *plan, double layers,
                          double parts, double busy) {
  const SmallCost *small = bound_smallest(bounds, plan);
  if (!small || !small->known) return busy;
  double share = (double)plan->at[FIELD_MICRO] / small->micro, blocks = 0;
  SentList all = layer_sent(small), list = of_larger_split(plan, small, &all);
  double sent = list_seconds(bounds, plan, &list, share, false);
  for (int i = 0; i < TURN_KINDS - bound_splits_backward(plan); i++) {
    list = of_larger_split(plan, small, &small->layer.blocking[i]);
    blocks += list_seconds(bounds, plan, &list, share, false);
  }
  return fmax(busy + layers * parts * blocks, layers * parts * sent);
}
