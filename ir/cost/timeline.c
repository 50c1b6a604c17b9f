/* Two clocks over the events of a step (timeline.h): one of the kernels, one of the messages.

   A kernel takes as long as its operations or its bytes, whichever is longer. A message starts when
   the kernels have come to its start and the messages before it are over, and takes its bytes over
   the slowest link of its axis. Copies between host and GPU, and kernels of the host, have clocks
   of their own (timeline_host.h). In a forecast each multiprocessor of a GPU has one kernel:
   messages that are in flight hold some of them (target fact channels). While a kernel runs that
   fills the GPU (gpu_fills), messages do not begin; if one is in flight when such a kernel starts,
   its last CTAs start when the message or the first CTAs end, and take as long again. A wait moves
   the kernels' clock to the end of its message; which axis that waiting counts for follows from
   what travels meanwhile. Where the processors of a rank carry its messages themselves (`link
   cpu`), kernels are slower by that share while one travels. Rounds that the list leaves out count
   as those before them; they are not drawn. Launches and neighbours are not in it: bounds, as the
   other times of a plan. */
#include "timeline.h"
#include "count.h"
#include "ir/schedule/flight.h"
#include "kernel_time.h"
#include "timeline_background.h"
#include "timeline_host.h"
#include "ir/kernel/gpu_plan.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include <math.h>

typedef struct KernelSeconds { /* counted once */
  const Fn *f;
  double seconds;
  bool fills;
} KernelSeconds;

typedef struct ClocksAt { /* before an event */
  Lanes lanes;
  double kernels;
  HostAt host;
} ClocksAt;

typedef struct Clocks {
  const Module *m;
  const Machine *x;
  const EventList *events;
  Lanes *lanes;
  double kernels, messages; /* when each is free again */
  double computed;          /* seconds since the last wait */
  uint32_t before;          /* number of spans when the last kernel ended: later spans are
                               messages that have waited since */
  double *over;             /* by event: when its message is over */
  VEC(KernelSeconds) known;
  ClocksAt *at; /* by event */
  /* By event of skipped rounds: the shortest wait of the round after it in earlier steps; less than
     0: there was none. */
  double *away;
  HostClocks host;
  BackgroundClocks background;
} Clocks;

static KernelSeconds kernel_of(Clocks *clocks, const Fn *f) {
  for (uint32_t i = 0; i < clocks->known.n; i++)
    if (clocks->known.at[i].f == f) return clocks->known.at[i];
  KernelTime time = kernel_time(clocks->m, clocks->x, f);
  const Arch *reach = clocks->x->reach;
  KernelSeconds seconds = {f, kernel_sum(&time),
                           reach && reach->processors && gpu_fills(clocks->m, f)};
  if (kernel_on_host(clocks->m, f))
    seconds.seconds = clocks->x->dram > 0 ? ir_count(clocks->m, f).bytes / clocks->x->dram : 0;
  vec_push(clocks->m->arena, clocks->known, seconds);
  return seconds;
}

static int axis_of(const Clocks *clocks, const Event *event) {
  return mesh_find(clocks->m, attr_str(&event_op(event)->attrs, ATTR_axis, ""));
}

static void add_span(Clocks *clocks, int axis, double from, double to, const Event *event) {
  LaneSpan span = {axis, from, to, event, NULL};
  if (to > from) vec_push(clocks->m->arena, clocks->lanes->span, span);
  if (to > clocks->lanes->shown) clocks->lanes->shown = to;
}

/* The first of the messages on their way after a time; the number of spans: none is. */
static uint32_t first_behind(const Clocks *clocks, double time) {
  uint32_t first = clocks->lanes->span.n;
  for (uint32_t i = first; i-- > 0;) {
    const LaneSpan *span = &clocks->lanes->span.at[i];
    if (span->axis >= 0 && span->to <= time) break;
    if (span->axis >= 0) first = i;
  }
  return first;
}

/* The time at which that many seconds of computation are done: slower while a message is in
   flight. */
static double computed(const Clocks *clocks, double time, double left) {
  for (uint32_t i = first_behind(clocks, time); i < clocks->lanes->span.n; i++) {
    const LaneSpan *span = &clocks->lanes->span.at[i];
    if (span->axis < 0 || span->to <= time) continue;
    double alone = span->from > time ? span->from - time : 0;
    if (left <= alone) break;
    left -= alone, time += alone;
    double speed = 1 - message_load(clocks->m, clocks->x, span->axis),
           beside = (span->to - time) * speed;
    if (left < beside) return time + left / speed;
    left -= beside, time = span->to;
  }
  return time + left;
}

/* A copy to or from the host, or a host kernel; false: it is neither. A program for processors has
   no slots, because device and host memory are the same, whatever the machine of its plan has. */
static bool run_beside(Clocks *clocks, const Event *event) {
  const Op *o = event_op(event);
  Moves moved = op_moves(event->f, o);
  double from = clocks->kernels;
  if (moved.calls > 0 && clocks->x->pcie > 0 && clocks->host.bytes) {
    clocks->kernels =
        host_clock_move(&clocks->host, event, moved.down + moved.up, moved.up > 0, from);
    clocks->lanes->away += clocks->kernels - from;
    return true;
  }
  bool host = o->code == OP_kernel && kernel_on_host(clocks->m, o->callee);
  if (!host && (!clocks->host.bytes || op_stream(o) != STREAM_host)) return moved.calls > 0;
  if (host) host_clock_kernel(&clocks->host, event, kernel_of(clocks, o->callee).seconds);
  else if (event_stream(clocks->m, clocks->events, event) == STREAM_host)
    host_clock_kernel(&clocks->host, event, 0);
  else return false;
  return true;
}

/* Kernels and messages wait for parameters that they touch. */
static void wait_arrived(Clocks *clocks, const Event *event) {
  double over = host_clock_arrived(&clocks->host, event, clocks->kernels);
  if (over <= clocks->kernels) return;
  clocks->lanes->away += over - clocks->kernels;
  clocks->kernels = over;
}

/* Has message i begun at a time? If a kernel begins at the same time, the message is first if it
   waited for the kernel before. */
static bool has_begun(const Clocks *clocks, uint32_t i, double time) {
  double from = clocks->lanes->span.at[i].from;
  return from < time || (from == time && i < clocks->before);
}

/* Messages that have not begun at `from` begin at `until`, one after the other. */
static void delay_messages(Clocks *clocks, double from, double until) {
  for (uint32_t i = first_behind(clocks, from); i < clocks->lanes->span.n; i++) {
    LaneSpan *span = &clocks->lanes->span.at[i];
    if (span->axis < 0 || has_begun(clocks, i, from)) continue;
    double takes = span->to - span->from;
    if (span->from < until) span->from = until, span->to = until + takes;
    until = span->to;
    clocks->over[span->event - clocks->events->at.at] = until;
    if (clocks->messages < until) clocks->messages = until;
    if (clocks->lanes->shown < until) clocks->lanes->shown = until;
  }
}

/* The end of the message in flight at a time; 0: there is none. */
static double in_flight(const Clocks *clocks, double time) {
  for (uint32_t i = first_behind(clocks, time); i < clocks->lanes->span.n; i++) {
    const LaneSpan *span = &clocks->lanes->span.at[i];
    if (span->axis >= 0 && has_begun(clocks, i, time) && span->to > time) return span->to;
  }
  return 0;
}

/* Runs a kernel that fills the GPU; `takes`: its seconds without messages. */
static void fill(Clocks *clocks, double from, double takes) {
  double over = in_flight(clocks, from), late = fmin(over - from, takes);
  if (late > 0) clocks->kernels += late, clocks->lanes->slowed += late;
  delay_messages(clocks, from, from + takes);
}

static void run(Clocks *clocks, const Event *event) {
  const Op *o = event_op(event);
  if (run_beside(clocks, event)) return;
  wait_arrived(clocks, event);
  double from = clocks->kernels;
  KernelSeconds kernel = {0};
  if (o->code == OP_kernel) kernel = kernel_of(clocks, o->callee);
  double takes = kernel.seconds;
  clocks->computed += takes;
  clocks->kernels = from + takes;
  if (clocks->x->carries > 0) {
    double until = computed(clocks, from, takes);
    clocks->lanes->slowed += until - clocks->kernels, clocks->kernels = until;
  }
  if (kernel.fills) fill(clocks, from, takes);
  if (takes > 0) clocks->before = clocks->lanes->span.n;
  add_span(clocks, -1, from, clocks->kernels, event);
}

static void start(Clocks *clocks, const Event *event) {
  int axis = axis_of(clocks, event);
  wait_arrived(clocks, event);
  double from = clocks->kernels > clocks->messages ? clocks->kernels : clocks->messages;
  double takes = message_seconds(clocks->m, clocks->x, event->f, event_op(event));
  clocks->messages = from + takes, clocks->lanes->busy[axis] += takes;
  clocks->over[event - clocks->events->at.at] = clocks->messages;
  add_span(clocks, axis, from, clocks->messages, event);
}

/* The kernels wait; meanwhile messages travel, the last ones of the list of spans. */
static void wait_until(Clocks *clocks, double until) {
  double from = clocks->kernels;
  if (until <= from) return;
  clocks->kernels = until;
  for (uint32_t i = clocks->lanes->span.n; i-- > 0;) {
    const LaneSpan *span = &clocks->lanes->span.at[i];
    if (span->axis >= 0 && span->to <= from) break;
    double a = span->from > from ? span->from : from, b = span->to < until ? span->to : until;
    if (span->axis >= 0 && b > a) clocks->lanes->exposed[span->axis] += b - a;
  }
}

/* Seconds of a turn that Linux gives a thread, by the processors of a node, while others wait for
   this one. */
static double turn_of(const Machine *machine) {
  double cores = (double)machine->in_node / machine->on_core;
  return 0.75e-3 * (1 + floor(log2(cores < 8 ? cores : 8)));
}

/* Ranks that share cores compute in turns, so the last one of a node, for which all others wait,
   comes a turn later than its work takes, if that takes longer than a turn. */
static void wait_for_turn(Clocks *clocks, const Event *message) {
  const Machine *machine = clocks->x;
  double computed = clocks->computed;
  clocks->computed = 0;
  if (!machine->reach || machine->on_core <= 1 || op_is_p2p(event_op(message)->code) ||
      axis_joined(clocks->m, machine, axis_of(clocks, message)) < machine->in_node)
    return;
  double late = fmin(computed, turn_of(machine));
  clocks->kernels += late, clocks->lanes->slowed += late;
}

/* Waits of a skipped round. Rounds before it may be delayed by the rest of the last step, rounds
   after it are not. */
static double away_in_round(const Clocks *clocks, const Event *event, double seen) {
  double behind = clocks->away[event - clocks->events->at.at];
  return behind < 0 || behind > seen ? seen : behind;
}

static void skip(Clocks *clocks, const Event *event) {
  const ClocksAt *since = &clocks->at[event->since];
  const Lanes *before = &since->lanes;
  double periods = (double)event->rounds / (double)event->period;
  double seen = clocks->lanes->away - before->away, away = away_in_round(clocks, event, seen);
  for (uint32_t i = 0; i < clocks->m->mesh.n; i++) {
    clocks->lanes->busy[i] += periods * (clocks->lanes->busy[i] - before->busy[i]);
    clocks->lanes->exposed[i] += periods * (clocks->lanes->exposed[i] - before->exposed[i]);
  }
  clocks->lanes->slowed += periods * (clocks->lanes->slowed - before->slowed);
  clocks->lanes->away += periods * away;
  host_clock_skip(&clocks->host, &since->host, clocks->kernels - since->kernels - (seen - away),
                  periods);
  vec_push(clocks->m->arena, clocks->lanes->cut, (LaneBreak){clocks->kernels, event->rounds});
}

/* A period of rounds follows the skipped ones. */
static void note_behind(Clocks *clocks) {
  const EventList *list = clocks->events;
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Event *event = &list->at.at[i];
    if (event->kind != EVENT_SKIP) continue;
    uint32_t end = i + 1 + (i - event->since);
    double over = end < list->at.n ? clocks->at[end].lanes.away : clocks->lanes->away;
    double away = over - clocks->at[i + 1].lanes.away;
    if (clocks->away[i] < 0 || away < clocks->away[i]) clocks->away[i] = away;
  }
}

static void wait_for(Clocks *clocks, uint32_t message) {
  if (clocks->over[message] <= clocks->kernels) return;
  wait_until(clocks, clocks->over[message]);
  wait_for_turn(clocks, &clocks->events->at.at[message]);
}

static void step(Clocks *clocks, uint32_t i) {
  const Event *event = &clocks->events->at.at[i];
  ClocksAt *at = &clocks->at[i];
  *at = (ClocksAt){*clocks->lanes, clocks->kernels, host_clock_at(&clocks->host)};
  switch (event->kind) {
  case EVENT_RUN: run(clocks, event); break;
  case EVENT_START: start(clocks, event); break;
  case EVENT_COLLECT: start(clocks, event), wait_for(clocks, i); break;
  case EVENT_END:
    if (event->start != NO_EVENT) wait_for(clocks, event->start);
    break;
  case EVENT_SKIP: skip(clocks, event); break;
  }
}

static Clocks clocks_of(const Module *m, const Machine *machine, const EventList *events) {
  Clocks clocks = {.m = m, .x = machine, .events = events};
  clocks.host = host_clocks(m, machine, events);
  clocks.background = background_clocks(m, machine, events->entry);
  clocks.over = ARENA_ARRAY(m->arena, double, events->at.n + 1);
  clocks.at = ARENA_ARRAY(m->arena, ClocksAt, events->at.n + 1);
  clocks.away = ARENA_ARRAY(m->arena, double, events->at.n + 1);
  for (uint32_t i = 0; i < events->at.n; i++) clocks.away[i] = -1;
  return clocks;
}

static void run_step(Clocks *clocks, Lanes *lanes) {
  clocks->lanes = clocks->host.lanes = clocks->background.lanes = lanes;
  clocks->before = 0;
  clocks->kernels = background_begin(&clocks->background, clocks->kernels);
  for (uint32_t i = 0; i < clocks->events->at.n; i++) step(clocks, i);
}

Lanes lanes_of(const Module *m, const Machine *machine, const EventList *events) {
  Lanes lanes = {0};
  if (machine->flops <= 0) return lanes;
  Clocks clocks = clocks_of(m, machine, events);
  run_step(&clocks, &lanes);
  double over = host_clock_over(&clocks.host);
  if (over > clocks.kernels) lanes.away += over - clocks.kernels, clocks.kernels = over;
  clocks.kernels = background_end(&clocks.background, clocks.kernels);
  background_save(&clocks.background, clocks.kernels, over);
  return lanes;
}

/* A step of a running training, which begins as soon as the data of the previous step allows. */
static Lanes lanes_among(const Module *m, const Machine *machine, const EventList *events) {
  enum { STEPS = 4 };
  Lanes lanes = {0};
  Clocks clocks = clocks_of(m, machine, events);
  clocks.host.stays = true;
  for (int n = 0; n < STEPS; n++) {
    host_clock_shift(&clocks.host, clocks.kernels);
    clocks.messages -= clocks.kernels, clocks.kernels = 0;
    lanes = (Lanes){0};
    run_step(&clocks, &lanes);
    if (n) note_behind(&clocks); /* the first step finds lanes empty */
    clocks.kernels = background_end(&clocks.background, clocks.kernels);
  }
  background_save(&clocks.background, clocks.kernels, host_clock_over(&clocks.host));
  return lanes;
}

Lanes plan_lanes(const Module *m, const Machine *machine, const Fn *entry) {
  if (!entry || machine->flops <= 0) return (Lanes){0};
  EventList *events = ARENA_NEW(m->arena, EventList); /* spans point into it */
  *events = events_of(m, entry);
  return module_copies_stay(m) ? lanes_among(m, machine, events) : lanes_of(m, machine, events);
}

/* A step is no shorter than the copy of the next inputs. */
static void hide_background(const Lanes *lanes, const Module *m, StepTime *step_time) {
  double every = (double)module_whole(m, "train.save.every");
  step_time->sends = lanes->sends, step_time->inputs = lanes->inputs;
  step_time->total += lanes->inputs;
  double least = lanes->sends - step_time->total;
  if (least > 0) step_time->inputs += least, step_time->total += least;
  step_time->snapshot = lanes->snapshot;
  step_time->saves = every > 0 ? lanes->snapshot / every : 0;
  step_time->total += step_time->saves;
}

void lanes_hide(const Lanes *lanes, const Module *m, StepTime *step_time) {
  if (step_time->total <= 0) return;
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    double least = step_time->axis[i] * (1 - 1e-9); /* less is rounding */
    double exposed = lanes->exposed[i] < least ? lanes->exposed[i] : step_time->axis[i];
    step_time->total -= step_time->axis[i] - exposed, step_time->exposed[i] = exposed;
  }
  step_time->slowed = lanes->slowed, step_time->total += lanes->slowed;
  double beside = step_time->pcie + step_time->host;
  step_time->away = lanes->away < beside ? lanes->away : beside,
  step_time->total -= beside - step_time->away;
  double least = step_time->longest - step_time->total; /* rounds that are left out wait no less */
  if (least > 0) step_time->away += least, step_time->total += least;
  hide_background(lanes, m, step_time);
}
