/* The order of messages to neighbours (send_order.h): for rounds that take turns, from the table of
   their schedule; for others, from the messages of each stage in the order of the program
   (events.h). Must not: look at messages over other axes between two of these; all ranks of those
   axes are at the same point of the program. */
#include "send_order.h"
#include "ir/bytes.h"
#include "message.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "pipeline_schedule.h"
#include "ir/support/num.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct TimedHop { /* a message of a rank, in the order in which its program comes to it */
  const Op *op;
  const Fn *of;
  double at;   /* when its receiver comes to it */
  int64_t nth; /* of the messages of that turn */
  int64_t issued;
} TimedHop;

typedef VEC(TimedHop) TimedHops;

typedef struct HopWalk { /* of an entry, over an axis */
  const Module *m;
  SendOrder *order;
  int axis;
  int64_t stage, stages;
  ScheduleLoops loops;
  const double *from; /* by loop, stage, part: when that turn begins; NULL: none take turns */
  TimedHops hops;
} HopWalk;

static bool is_over(const Module *m, const Op *o, int axis) {
  return op_is_p2p(o->code) && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), m->mesh.at[axis].name);
}

/* ---- turns ---- */

/* For turns of these lengths: backward twice a forward pass, in one turn or in two. */
static const double *turn_times(const Module *m, const ScheduleTable *table) {
  int64_t n = schedule_loops(table), each = n * table->parts;
  double *time = ARENA_ARRAY(m->arena, double, table->stages *TURN_LOOPS),
         *from = ARENA_ARRAY(m->arena, double, table->stages *each);
  TurnSpan *span = ARENA_ARRAY(m->arena, TurnSpan, table->stages * each);
  for (int64_t s = 0; s < table->stages; s++)
    for (int i = 0; i < n; i++)
      time[s * TURN_LOOPS + i] =
          schedule_loop_kind(table, i) == TURN_FORWARD || table->wait ? 1 : 2;
  if (schedule_spans(table, time, span) < 0) return NULL;
  for (int64_t s = 0; s < table->stages; s++)
    for (int64_t i = s * each; i < (s + 1) * each; i++)
      from[(span[i].loop * table->stages + s) * table->parts + span[i].part] = span[i].from;
  return from;
}

static bool find_turns(HopWalk *walk, const Fn *entry) {
  OpId i = 0;
  while (i < entry->ops.n && !schedule_find(entry, i, &walk->loops)) i++;
  if (i == entry->ops.n) return false;
  const char *axis = attr_str(&entry->ops.at[i].attrs, ATTR_axis, "");
  if (mesh_find(walk->m, axis) != walk->axis) return false;
  walk->from = turn_times(walk->m, &walk->loops.table);
  return walk->from != NULL;
}

static double turn_from(const HopWalk *walk, int loop, int64_t stage, int64_t part) {
  const ScheduleTable *t = &walk->loops.table;
  return loop < walk->loops.n ? walk->from[(loop * t->stages + stage) * t->parts + part] : INFINITY;
}

/* Behind the last stage the next chunk begins. */
static double taken_at(const HopWalk *walk, const Op *send, int loop, int64_t part) {
  int64_t other = hop_peer(send, walk->stage, walk->stages);
  bool back = attr_int(&send->attrs, ATTR_reverse, 0) != 0,
       ring = back ? other > walk->stage : other < walk->stage;
  return turn_from(walk, loop + ring, other, part);
}

static void add_hop(HopWalk *walk, const Fn *of, const Op *o, double at, int64_t nth) {
  int64_t issued = walk->hops.n;
  vec_push(walk->m->arena, walk->hops, (TimedHop){o, of, at, nth, issued});
}

static void add_turn(HopWalk *walk, const Fn *body, int loop, int64_t part) {
  int64_t sends = 0, receives = 0;
  EACH_OP (body, o) {
    if (!is_over(walk->m, o, walk->axis) || hop_peer(o, walk->stage, walk->stages) < 0) continue;
    if (o->code == OP_send) add_hop(walk, body, o, taken_at(walk, o, loop, part), sends++);
    else add_hop(walk, body, o, turn_from(walk, loop, walk->stage, part), receives++);
  }
}

static void add_turns(HopWalk *walk, const Fn *entry) {
  for (ScheduleState state = {{0}}; !schedule_done(&walk->loops.table, &state);) {
    int next = schedule_next(&walk->loops.table, walk->stage, &state);
    add_turn(walk, entry->ops.at[walk->loops.loop[next]].callee, next, state.over[next]++);
  }
}

/* Among messages of one time: sends, then the receive. */
static int earlier(const void *x, const void *y) {
  const TimedHop *a = x, *b = y;
  if (a->at < b->at || a->at > b->at) return a->at < b->at ? -1 : 1;
  if (a->nth != b->nth) return a->nth < b->nth ? -1 : 1;
  if (a->op->code != b->op->code) return a->op->code == OP_send ? -1 : 1;
  return a->issued < b->issued ? -1 : a->issued > b->issued;
}

/* Is a receive of the same time after the message of place q? */
static bool joins(const TimedHop *sorted, int64_t n, int64_t q) {
  for (int64_t i = q + 1; i < n; i++) {
    const TimedHop *h = &sorted[i];
    if (h->at > sorted[q].at || h->nth != sorted[q].nth) return false;
    if (h->op->code == OP_receive) return h->issued > sorted[q].issued;
  }
  return false;
}

static void places_in_time(const HopWalk *walk, SendPlace *places) {
  int64_t n = walk->hops.n;
  TimedHop *sorted = ARENA_ARRAY(walk->m->arena, TimedHop, n + 1);
  for (int64_t i = 0; i < n; i++) sorted[i] = walk->hops.at[i];
  qsort(sorted, (size_t)n, sizeof *sorted, earlier);
  for (int64_t q = 0; q < n; q++)
    places[sorted[q].issued] = (SendPlace){q - sorted[q].issued, joins(sorted, n, q)};
}

/* ---- in the order of the program ---- */

static void add_messages(HopWalk *walk, const Fn *entry, EventList *list) {
  int64_t rank = walk->stage;
  for (int i = 0; i < walk->axis; i++) rank *= walk->m->mesh.at[i].size;
  messages_of_rank(walk->m, entry, rank, walk->m->mesh.at[walk->axis].name, list);
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Op *o = event_op(&list->at.at[i]);
    if (op_is_p2p(o->code) && hop_peer(o, walk->stage, walk->stages) >= 0)
      add_hop(walk, list->at.at[i].f, o, 0, 0);
  }
}

static void places_in_turn(const HopWalk *walk, SendPlace *places) {
  for (uint32_t i = 0; i + 1 < walk->hops.n; i++)
    places[i].joins = walk->hops.at[i + 1].op->code == OP_receive;
}

/* ---- rows ---- */

static SendRuns *runs_of(HopWalk *walk, const TimedHop *hop) {
  SendOrder *order = walk->order;
  for (uint32_t i = 0; i < order->rows.n; i++)
    if (order->rows.at[i].op == hop->op)
      return &order->rows.at[i].runs[walk->stage - order->first[walk->axis]];
  SendRuns *runs = ARENA_ARRAY(walk->m->arena, SendRuns, order->stages[walk->axis]);
  vec_push(walk->m->arena, order->rows, (SendRow){hop->op, hop->of, runs});
  return &runs[walk->stage - order->first[walk->axis]];
}

static void add_place(HopWalk *walk, const TimedHop *hop, SendPlace place) {
  SendRuns *runs = runs_of(walk, hop);
  SendRun *last = runs->n ? &vec_last(*runs) : NULL;
  if (last && last->place.later == place.later && last->place.joins == place.joins) last->n++;
  else vec_push(walk->m->arena, *runs, (SendRun){1, place});
}

/* As the runtime has it, with a slot more wherever all are full. */
static int64_t slots_of(const HopWalk *walk, const SendPlace *places) {
  VEC(SendSlot) slots = {0};
  SendQueue queue = {0};
  for (uint32_t i = 0; i < walk->hops.n; i++) {
    if (walk->hops.at[i].op->code == OP_receive) {
      while (send_give(&queue, true) >= 0) continue;
      send_receives(&queue);
    } else {
      int64_t slot = send_free_slot(&queue);
      if (slot < 0) {
        slot = slots.n;
        vec_push(walk->m->arena, slots, (SendSlot){0});
        queue.slot = slots.at, queue.n = slots.n;
      }
      send_hold(&queue, slot, places[i].later, places[i].joins);
    }
    while (send_give(&queue, false) >= 0) continue;
  }
  return queue.n;
}

/* One stage; with rows, or slots only. */
static void add_stage(HopWalk *walk, bool rows) {
  SendPlace *places = ARENA_ARRAY(walk->m->arena, SendPlace, walk->hops.n + 1);
  if (walk->from) places_in_time(walk, places);
  else places_in_turn(walk, places);
  int64_t slots = slots_of(walk, places);
  if (slots > walk->order->slots) walk->order->slots = slots;
  for (uint32_t i = 0; rows && i < walk->hops.n; i++)
    if (walk->hops.at[i].op->code == OP_send) add_place(walk, &walk->hops.at[i], places[i]);
}

/* A send that waits for nothing but a receive needs one slot: where these alone are asked for,
   rounds that take no turns are left out. */
static void add_entry(const Module *m, SendOrder *order, const Fn *entry, int axis, bool rows) {
  HopWalk walk = {.m = m, .order = order, .axis = axis, .stages = m->mesh.at[axis].size};
  EventList list = {0};
  bool turns = find_turns(&walk, entry);
  for (int64_t s = 0; (turns || rows) && s < order->stages[axis]; s++) {
    walk.stage = order->first[axis] + s, walk.hops.n = 0;
    if (turns) add_turns(&walk, entry);
    else add_messages(&walk, entry, &list);
    add_stage(&walk, rows);
  }
}

static bool sends_over(const Module *m, int axis) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o)
      if (o->code == OP_send && is_over(m, o, axis)) return true;
  return false;
}

static void add_axis(const Module *m, SendOrder *order, int axis, bool rows) {
  StageClass class = module_class(m);
  bool one = *class.name && class.axis == axis;
  order->first[axis] = one ? class.first : 0;
  order->stages[axis] = one ? class.last - class.first + 1 : m->mesh.at[axis].size;
  if (!order->slots) order->slots = 1;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) add_entry(m, order, m->fns.at[i], axis, rows);
}

static SendOrder order_of(const Module *m, bool rows) {
  SendOrder order = {.used = message_needs_line(m)};
  for (uint32_t i = 0; order.used && i < m->mesh.n; i++)
    if (sends_over(m, (int)i)) add_axis(m, &order, (int)i, rows);
  return order;
}

SendOrder send_order(const Module *m) { return order_of(m, true); }

const SendRuns *send_runs(const SendOrder *order, const Module *m, const Op *send, int64_t stage) {
  int axis = mesh_find(m, attr_str(&send->attrs, ATTR_axis, ""));
  for (uint32_t i = 0; i < order->rows.n; i++)
    if (order->rows.at[i].op == send) return &order->rows.at[i].runs[stage - order->first[axis]];
  return NULL;
}

SendPlace send_place(const SendRuns *runs, int64_t k) {
  for (uint32_t i = 0; runs && i < runs->n; k -= runs->at[i++].n)
    if (k < runs->at[i].n) return runs->at[i].place;
  return (SendPlace){0};
}

int64_t module_send_slots(const Module *m) { return order_of(m, false).slots; }

int64_t module_send_slot(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; message_needs_line(m) && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Fn *f = m->fns.at[i];
      const Op *o = &f->ops.at[k];
      if (o->code != OP_send) continue;
      int64_t bytes = message_of(f, o).count * elem_bytes(value_type(f, o->in[0])->elem);
      if (bytes > most) most = bytes;
    }
  return round_up(most, CACHE_LINE);
}
