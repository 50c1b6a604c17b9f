/* Two clocks over the events of a step (lanes.h): one of the kernels, one of the messages.

   A kernel takes as long as its operations or its bytes, whichever is longer. A message starts when
   the kernels have come to its start and the messages before it are over, and takes its bytes over
   the slowest link of its axis. Copies between host and GPU, and kernels of the host, have clocks
   of their own (lanes_host.h). A wait moves the kernels' clock to the end of its message; which
   axis that waiting counts for follows from what travels meanwhile. Where the processors of a rank
   carry its messages themselves (`link cpu`), kernels are slower by that share while one travels.
   Rounds that the list leaves out count as those before them; they are not drawn. Launches and
   neighbours are not in it: bounds, as the other times of a plan. */
#include "lanes.h"
#include "count.h"
#include "flight.h"
#include "lanes_host.h"
#include "placement.h"

typedef struct KernelSeconds { /* counted once */
  const Fn *f;
  double seconds;
} KernelSeconds;

typedef struct Clocks {
  const Module *m;
  const Machine *x;
  const EventList *events;
  Lanes *lanes;
  double kernels, messages; /* when each is free again */
  double *over;             /* by event: when its message is over */
  VEC(KernelSeconds) known;
  Lanes *at; /* by event: the sums before it */
  HostClocks host;
} Clocks;

static double kernel_seconds(Clocks *c, const Fn *f) {
  for (uint32_t i = 0; i < c->known.n; i++)
    if (c->known.at[i].f == f) return c->known.at[i].seconds;
  IrCount n = ir_count(c->m, f);
  double work = n.flop / c->x->flops, memory = c->x->hbm > 0 ? n.bytes / c->x->hbm : 0;
  bool beside = kernel_beside(c->m, f);
  KernelSeconds k = {f, work > memory ? work : memory};
  if (beside) k.seconds = c->x->dram > 0 ? n.bytes / c->x->dram : 0;
  vec_push(c->m->arena, c->known, k);
  return k.seconds;
}

static int axis_of(const Clocks *c, const Event *e) {
  return mesh_find(c->m, attr_str(&event_op(e)->attrs, ATTR_axis, ""));
}

static void add_span(Clocks *c, int axis, double from, double to, const Event *e) {
  if (to > from) vec_push(c->m->arena, c->lanes->span, (LaneSpan){axis, from, to, e});
  if (to > c->lanes->shown) c->lanes->shown = to;
}

/* The first of the messages on their way after a time; the number of spans: none is. */
static uint32_t first_behind(const Clocks *c, double time) {
  uint32_t first = c->lanes->span.n;
  for (uint32_t i = first; i-- > 0;) {
    const LaneSpan *s = &c->lanes->span.at[i];
    if (s->axis >= 0 && s->to <= time) break;
    if (s->axis >= 0) first = i;
  }
  return first;
}

/* When so many seconds of computation are over: slower while a message is carried. */
static double computed(const Clocks *c, double time, double left) {
  for (uint32_t i = first_behind(c, time); i < c->lanes->span.n; i++) {
    const LaneSpan *s = &c->lanes->span.at[i];
    if (s->axis < 0 || s->to <= time) continue;
    double alone = s->from > time ? s->from - time : 0;
    if (left <= alone) break;
    left -= alone, time += alone;
    double speed = 1 - message_load(c->m, c->x, s->axis), beside = (s->to - time) * speed;
    if (left < beside) return time + left / speed;
    left -= beside, time = s->to;
  }
  return time + left;
}

/* A copy to or from the host, or a kernel there; false: it is neither. */
static bool run_beside(Clocks *c, const Event *e) {
  const Op *o = event_op(e);
  Moves moved = op_moves(e->f, o);
  double from = c->kernels;
  if (moved.calls > 0 && c->x->pcie > 0) {
    c->kernels = host_clock_move(&c->host, e, moved.down + moved.up, moved.up > 0, from);
    c->lanes->away += c->kernels - from;
    return true;
  }
  if (o->code != OP_kernel || !kernel_beside(c->m, o->callee)) return moved.calls > 0;
  host_clock_kernel(&c->host, e, kernel_seconds(c, o->callee));
  return true;
}

static void run(Clocks *c, const Event *e) {
  double from = c->kernels;
  const Op *o = event_op(e);
  if (run_beside(c, e)) return;
  double takes = o->code == OP_kernel ? kernel_seconds(c, o->callee) : 0;
  c->kernels = from + takes;
  if (c->x->carries > 0) {
    double until = computed(c, from, takes);
    c->lanes->slowed += until - c->kernels, c->kernels = until;
  }
  add_span(c, -1, from, c->kernels, e);
}

static void start(Clocks *c, const Event *e) {
  int axis = axis_of(c, e);
  double from = c->kernels > c->messages ? c->kernels : c->messages;
  double takes = message_seconds(c->m, c->x, e->f, event_op(e));
  c->messages = from + takes, c->lanes->busy[axis] += takes;
  c->over[e - c->events->at.at] = c->messages;
  add_span(c, axis, from, c->messages, e);
}

/* The kernels stand still; meanwhile messages travel, the last ones of the list of spans. */
static void wait_until(Clocks *c, double until) {
  double from = c->kernels;
  if (until <= from) return;
  c->kernels = until;
  for (uint32_t i = c->lanes->span.n; i-- > 0;) {
    const LaneSpan *s = &c->lanes->span.at[i];
    if (s->axis >= 0 && s->to <= from) break;
    double a = s->from > from ? s->from : from, b = s->to < until ? s->to : until;
    if (s->axis >= 0 && b > a) c->lanes->exposed[s->axis] += b - a;
  }
}

static void skip(Clocks *c, const Event *e) {
  const Lanes *before = &c->at[e->since];
  double periods = (double)e->rounds / (double)e->period;
  for (uint32_t i = 0; i < c->m->mesh.n; i++) {
    c->lanes->busy[i] += periods * (c->lanes->busy[i] - before->busy[i]);
    c->lanes->exposed[i] += periods * (c->lanes->exposed[i] - before->exposed[i]);
  }
  c->lanes->slowed += periods * (c->lanes->slowed - before->slowed);
  c->lanes->away += periods * (c->lanes->away - before->away);
  vec_push(c->m->arena, c->lanes->cut, (LaneBreak){c->kernels, e->rounds});
}

static void step(Clocks *c, uint32_t i) {
  const Event *e = &c->events->at.at[i];
  c->at[i] = *c->lanes;
  switch (e->kind) {
  case EVENT_RUN: run(c, e); break;
  case EVENT_START: start(c, e); break;
  case EVENT_COLLECT: start(c, e), wait_until(c, c->over[i]); break;
  case EVENT_END:
    if (e->start != NO_EVENT) wait_until(c, c->over[e->start]);
    break;
  case EVENT_SKIP: skip(c, e); break;
  }
}

Lanes lanes_of(const Module *m, const Machine *x, const EventList *events) {
  Lanes lanes = {0};
  Clocks c = {.m = m, .x = x, .events = events, .lanes = &lanes};
  c.host = host_clocks(m, x, events);
  if (x->flops <= 0) return lanes;
  c.over = ARENA_ARRAY(m->arena, double, events->at.n + 1);
  c.at = ARENA_ARRAY(m->arena, Lanes, events->at.n + 1);
  for (uint32_t i = 0; i < events->at.n; i++) step(&c, i);
  double over = host_clock_over(&c.host);
  if (over > c.kernels) lanes.away += over - c.kernels;
  return lanes;
}

Lanes plan_lanes(const Module *m, const Machine *x, const Fn *entry) {
  if (!entry) return (Lanes){0};
  EventList *events = ARENA_NEW(m->arena, EventList); /* spans point into it */
  *events = events_of(m, entry);
  return lanes_of(m, x, events);
}

void lanes_hide(const Lanes *l, const Module *m, StepTime *t) {
  if (t->total <= 0) return;
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    double least = t->axis[i] * (1 - 1e-9); /* less is rounding */
    double exposed = l->exposed[i] < least ? l->exposed[i] : t->axis[i];
    t->total -= t->axis[i] - exposed, t->exposed[i] = exposed;
  }
  t->slowed = l->slowed, t->total += l->slowed;
  double beside = t->pcie + t->host;
  t->away = l->away < beside ? l->away : beside, t->total -= beside - t->away;
  double least = t->longest - t->total; /* rounds that are left out wait no less */
  if (least > 0) t->away += least, t->total += least;
}
