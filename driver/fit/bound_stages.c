/* Pipelines in bounds (bound.h): the time until all stages have taken their turns, simulated by the
   table of the schedule as a forecast does (ir/cost/step.h), from seconds of one layer in one
   micro-batch. Must not: judge. */
#include "bound.h"
#include "ir/support/num.h"
#include <math.h>

int64_t bound_layers(const PlanSpace *space, const SpacePlan *plan) {
  return ceil_div(space->layer_count, plan->at[FIELD_PIPE]);
}

bool bound_uneven(const PlanSpace *space, const SpacePlan *plan) {
  return space->layer_count % plan->at[FIELD_PIPE] != 0;
}

int64_t bound_schedule_key(const PlanSpace *space, const SpacePlan *plan) {
  int64_t schedules = MOST_CHUNKS + 3, parts = bound_parts(space, plan);
  return (parts * schedules + plan->at[FIELD_PIPELINE]) * space->ranks + plan->at[FIELD_PIPE];
}

ScheduleTable bound_schedule(Arena *arena, const SpacePlan *plan, int64_t parts) {
  int64_t stages = plan->at[FIELD_PIPE];
  int schedule = plan->at[FIELD_PIPELINE];
  if (schedule > 3) return schedule_interleaved(arena, stages, parts, schedule - 2);
  if (schedule > 1) return schedule_zero_bubble(arena, stages, parts, schedule - 1);
  return schedule_one_f_one_b(arena, stages, parts);
}

/* Seconds of one layer, by turn. */
static void layer_turns(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                        const LayerCost *cost, double out[TURN_KINDS]) {
  const CostLayer *layer = &small->layer;
  double micro = plan->at[FIELD_MICRO], share = micro / small->micro, sent[TURN_KINDS];
  if (small->micro != plan->at[FIELD_MICRO]) share *= small->cost.least / small->cost.computes;
  out[TURN_FORWARD] = share * layer->forward;
  out[TURN_WEIGHTS] = bound_splits_backward(plan) ? share * layer->later : 0;
  out[TURN_BACKWARD] = fmax(0, micro * cost->computes - out[TURN_FORWARD] - out[TURN_WEIGHTS]);
  bound_turn_sent(bounds, plan, small, sent);
  for (int i = 0; i < TURN_KINDS; i++)
    out[i == TURN_WEIGHTS && !bound_splits_backward(plan) ? TURN_BACKWARD : i] += sent[i];
}

/* Layers of the stages of a kind, at least, in a plan whose first stage has no more than it must.
   The first one has the most, and the middle ones run one program. */
static double layers_on(const PlanSpace *space, const SpacePlan *plan, StageKind kind) {
  int64_t most = bound_layers(space, plan), stages = plan->at[FIELD_PIPE];
  if (kind == STAGE_FIRST || !bound_uneven(space, plan)) return (double)most;
  int64_t rest = space->layer_count - 2 * most;
  return kind == STAGE_LAST || stages < 3 || rest < 0 ? 0 : (double)ceil_div(rest, stages - 2);
}

/* Seconds of the stages of a kind, by turn. The head is in one turn as a whole: nothing tells its
   gradients of weights from the rest. */
static void stage_turns(const PlanBounds *bounds, const SpacePlan *plan, const LayerCost *cost,
                        const double turns[TURN_KINDS], int head,
                        double out[STAGE_KINDS][TURN_KINDS]) {
  double micro = plan->at[FIELD_MICRO];
  int last = bound_splits_backward(plan) ? TURN_WEIGHTS : TURN_BACKWARD;
  for (StageKind kind = 0; kind < STAGE_KINDS; kind++)
    for (int i = 0; i < TURN_KINDS; i++)
      out[kind][i] = layers_on(bounds->space, plan, kind) * turns[i];
  out[STAGE_FIRST][last] += micro * cost->first_stage;
  out[STAGE_LAST][head] += micro * cost->head;
}

/* Chunks share the layers of a stage; the last one has the head, the first one the other ends. */
static double *times_of(Arena *arena, const ScheduleTable *table,
                        const double of[STAGE_KINDS][TURN_KINDS]) {
  double *time = ARENA_ARRAY(arena, double, table->stages *TURN_LOOPS);
  double chunks = schedule_has_chunks(table) ? (double)table->chunks : 1;
  for (int64_t s = 0; s < table->stages; s++) {
    StageKind kind = s == 0 ? STAGE_FIRST : s == table->stages - 1 ? STAGE_LAST : STAGE_MIDDLE;
    for (int i = 0; i < schedule_loops(table); i++)
      time[s * TURN_LOOPS + i] = of[kind][schedule_loop_kind(table, i)] / chunks;
  }
  return time;
}

/* Once many micro-batches have followed each other, one more takes as long as on the slowest
   stage. */
static double simulate(const PlanBounds *bounds, const SpacePlan *plan,
                       const double of[STAGE_KINDS][TURN_KINDS]) {
  int64_t all = bound_parts(bounds->space, plan), stages = plan->at[FIELD_PIPE],
          parts = all > 4 * stages ? 3 * stages + all % stages : all;
  double slowest = 0;
  for (int kind = 0; kind < (stages > 2 ? STAGE_KINDS : STAGE_MIDDLE); kind++) {
    double sum = 0;
    for (int i = 0; i < TURN_KINDS; i++) sum += of[kind][i];
    slowest = fmax(slowest, sum);
  }
  Arena *arena = arena_new();
  ScheduleTable table = bound_schedule(arena, plan, parts);
  double seconds = schedule_makespan(&table, times_of(arena, &table, of));
  arena_free(arena);
  return seconds + slowest * (double)(all - parts);
}

static double turns_done(const PlanBounds *bounds, const SpacePlan *plan,
                         const double of[STAGE_KINDS][TURN_KINDS]) {
  int64_t key = bound_schedule_key(bounds->space, plan);
  double time[TURNS_OF];
  memcpy(time, of, sizeof time);
  uint64_t hash = (uint64_t)key;
  for (int i = 0; i < TURNS_OF; i++) {
    uint64_t bits;
    memcpy(&bits, &time[i], sizeof bits), hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  TurnsDone *slot = &bounds->turns[hash % KEPT_SLOTS];
  if (slot->key == key && !memcmp(slot->time, time, sizeof time)) return slot->seconds;
  slot->key = key, memcpy(slot->time, time, sizeof time);
  return slot->seconds = simulate(bounds, plan, of);
}

/* Seconds for which a stage waits for turns of the others, through all of them forward and, where
   no turns for gradients of weights fill them, back again, if nothing tells forward from backward.
   Uneven stages: the last one of those with the most layers. */
static double bubble_of(const PlanBounds *bounds, const SpacePlan *plan, double all) {
  const PlanSpace *space = bounds->space;
  int64_t layers = bound_layers(space, plan), schedule = plan->at[FIELD_PIPELINE];
  double others = (double)(space->layer_count / layers - 1),
         forward = all * (plan->at[FIELD_RECOMPUTE] ? 0.2 : 0.25);
  if (bound_splits_backward(plan)) return others * forward;
  return others * (schedule == 1               ? all
                   : bound_uneven(space, plan) ? forward
                                               : all / (double)(schedule - 2));
}

/* All stages send what their layers hand on, forward or back, and wait for it. */
double bound_handed(const PlanBounds *bounds, const SpacePlan *plan) {
  int axis[SPACE_AXES];
  MeshAxis storage[SPACE_AXES];
  const int32_t *at = plan->at;
  if (at[FIELD_PIPE] == 1) return 0;
  Module mesh = space_mesh(bounds->space, plan, storage, axis);
  double ways = at[FIELD_CONTEXT] * (at[FIELD_SEQUENCE] ? at[FIELD_TENSOR] : 1),
         calls = (double)bound_parts(bounds->space, plan),
         bytes = calls * at[FIELD_MICRO] * bounds->space->handed * bounds->wire / ways;
  return link_time(&mesh, &bounds->machine, axis[FIELD_PIPE], OP_send, calls, bytes).seconds;
}

double bound_turns(const PlanBounds *bounds, const SpacePlan *plan, const SmallCost *small,
                   const LayerCost *layer) {
  double micro = plan->at[FIELD_MICRO], turns[TURN_KINDS], of[STAGE_KINDS][TURN_KINDS],
         layers = (double)bound_layers(bounds->space, plan),
         parts = (double)bound_parts(bounds->space, plan), all = micro * layers * layer->computes;
  double head = bound_uneven(bounds->space, plan) ? 0 : micro * layer->head;
  double sum = parts * (all + head);
  /* A partition with more layers on a stage has fewer such stages, but takes longer if there are
     more micro-batches than layers. */
  if (bound_uneven(bounds->space, plan) && parts <= layers) return sum;
  sum += bubble_of(bounds, plan, all);
  bool other = bound_uneven(bounds->space, plan) && parts <= (double)bounds->space->layer_count;
  if (!small || !small->known || !small->layer.known || other) return sum;
  layer_turns(bounds, plan, small, layer, turns);
  stage_turns(bounds, plan, layer, turns, TURN_BACKWARD, of);
  double done = turns_done(bounds, plan, of);
  if (!bound_splits_backward(plan)) return fmax(sum, done);
  stage_turns(bounds, plan, layer, turns, TURN_WEIGHTS, of);
  return fmax(sum, fmin(done, turns_done(bounds, plan, of)));
}
