/* The lanes of an entry without times (timeline.h): what waits for what, for a machine whose speed
   is not known.

   Each operation is one span of one unit, loops with one round of their body. An operation begins
   when its lane, and all that it waits for by a token, are done; messages and downloads also follow
   the kernels before them, and kernels go on after an upload. Tokens are those of all listed rounds
   and runs of the entry: of several rounds between the same two operations one arrow remains. An
   operation that waits for a later one waits for its round, or its step, before. */
#include "count.h"
#include "ir/schedule/background_order.h"
#include "ir/schedule/flight.h"
#include "ir/shape/placement.h"
#include "timeline.h"
#include <string.h>

enum { NO_BOX = UINT32_MAX };

typedef struct BoxLink { /* from: what is waited for */
  uint32_t from, to;
} BoxLink;

typedef struct StreamBox { /* an operation of a stream, by its number */
  int64_t number;
  uint32_t box;
} StreamBox;

typedef struct Boxes {
  const Module *m;
  const EventList *list;
  Lanes *lanes;
  uint32_t *base, *of_op; /* by function; by op of all functions: its box */
  VEC(BoxLink) link;
  VEC(uint32_t) arrived; /* messages that the next operation waits for */
  VEC(StreamBox) of_stream[STREAMS];
  uint32_t background[BACKGROUNDS];
} Boxes;

int background_lane(BackgroundOp op) {
  bool computes = !strcmp(background_stream(op), stream_name(STREAM_compute));
  return computes ? LANE_KERNELS : stream_lane(STREAMS) - (int)op;
}

const char *lane_name(const Module *m, int lane) {
  if (lane >= 0) return arena_printf(m->arena, "over %s", m->mesh.at[lane].name);
  if (lane == LANE_KERNELS) return "kernels";
  if (lane > stream_lane(STREAMS)) return stream_name((OpStream)(LANE_KERNELS - lane));
  return background_stream((BackgroundOp)(stream_lane(STREAMS) - lane));
}

static uint32_t *slot_of(const Boxes *boxes, const Fn *f, OpId op) {
  uint32_t i = 0;
  while (boxes->m->fns.at[i] != f) i++;
  return &boxes->of_op[boxes->base[i] + op];
}

static uint32_t add_box(Boxes *boxes, int lane, const Event *event, const char *name) {
  vec_push(boxes->m->arena, boxes->lanes->span, (LaneSpan){lane, 0, 0, event, name});
  return boxes->lanes->span.n - 1;
}

static void add_link(Boxes *boxes, uint32_t from, uint32_t to) {
  if (from == NO_BOX || to == NO_BOX || from == to) return;
  for (uint32_t i = boxes->link.n; i-- > 0;)
    if (boxes->link.at[i].to == to && boxes->link.at[i].from == from) return;
  vec_push(boxes->m->arena, boxes->link, (BoxLink){from, to});
}

static int lane_of(const Boxes *boxes, const Event *event) {
  if (event_sends(event))
    return mesh_find(boxes->m, attr_str(&event_op(event)->attrs, ATTR_axis, ""));
  return stream_lane(event_stream(boxes->m, boxes->list, event));
}

/* ---- operations of the entry ---- */

static void add_event(Boxes *boxes, const Event *event) {
  if (event->kind == EVENT_SKIP) return;
  if (event->kind == EVENT_END) {
    if (event->start == NO_EVENT) return;
    const Event *start = &boxes->list->at.at[event->start];
    vec_push(boxes->m->arena, boxes->arrived, *slot_of(boxes, start->f, start->op));
    return;
  }
  uint32_t *slot = slot_of(boxes, event->f, event->op);
  if (*slot == NO_BOX) *slot = add_box(boxes, lane_of(boxes, event), event, NULL);
  bool waits = event_sends(event) || lane_of(boxes, event) == LANE_KERNELS;
  for (uint32_t i = 0; waits && i < boxes->arrived.n; i++)
    add_link(boxes, boxes->arrived.at[i], *slot);
  if (waits) boxes->arrived.n = 0;
  if (event->kind == EVENT_COLLECT) vec_push(boxes->m->arena, boxes->arrived, *slot);
}

/* ---- tokens ---- */

/* The operation with that number, or the last listed one before it. */
static uint32_t box_of(const Boxes *boxes, OpStream stream, int64_t number) {
  uint32_t from = 0, to = boxes->of_stream[stream].n;
  while (from < to) {
    uint32_t half = from + (to - from) / 2;
    if (boxes->of_stream[stream].at[half].number <= number) from = half + 1;
    else to = half;
  }
  return number > 0 && from ? boxes->of_stream[stream].at[from - 1].box : NO_BOX;
}

static void add_token(Boxes *boxes, const StreamEvent *at, OpStream other,
                      const StreamToken *token) {
  int64_t number =
      token->waits ? token_last(token, at->event->round, at->issued[other], at->started[other]) : 0;
  add_link(boxes, box_of(boxes, other, number), *slot_of(boxes, at->event->f, at->event->op));
}

static void add_tokens(Boxes *boxes, const StreamOrder *order) {
  for (uint32_t i = 0; i < order->at.n; i++) {
    const StreamEvent *at = &order->at.at[i];
    StreamTokens tokens = op_tokens(event_op(at->event));
    add_token(boxes, at, STREAM_up, &tokens.arrived);
    for (OpStream other = STREAM_down; other < STREAMS; other++)
      if (other != at->stream) add_token(boxes, at, other, &tokens.after[other]);
    StreamBox box = {at->issued[at->stream] + 1, *slot_of(boxes, at->event->f, at->event->op)};
    if (at->stream != STREAM_compute) vec_push(boxes->m->arena, boxes->of_stream[at->stream], box);
  }
}

/* ---- operations outside of entries ---- */

static void add_background(Boxes *boxes, BackgroundOp first, BackgroundOp last) {
  for (BackgroundOp op = first; op <= last; op++)
    if (boxes->m->background[op].there)
      boxes->background[op] = add_box(boxes, background_lane(op), NULL, background_name(op));
}

static void link_background(Boxes *boxes) {
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++) {
    const Background *background = &boxes->m->background[op];
    for (BackgroundOp other = 0; other < BACKGROUNDS; other++)
      if (background->after >> other & 1)
        add_link(boxes, boxes->background[other], boxes->background[op]);
    for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
      if (background->streams >> stream & 1)
        add_link(boxes, box_of(boxes, stream, INT64_MAX), boxes->background[op]);
  }
}

/* ---- places ---- */

static double lane_free(const Boxes *boxes, uint32_t until, int lane) {
  for (uint32_t i = until; i-- > 0;)
    if (boxes->lanes->span.at[i].axis == lane) return boxes->lanes->span.at[i].to;
  return 0;
}

static bool is_direct(const LaneSpan *span) {
  return span->event && attr_int(&event_op(span->event)->attrs, ATTR_direct, 0);
}

/* Orders that hold without a token. */
static double follows(const Boxes *boxes, uint32_t at) {
  const LaneSpan *span = &boxes->lanes->span.at[at];
  double kernels = lane_free(boxes, at, LANE_KERNELS);
  if (span->axis >= 0 || span->axis == stream_lane(STREAM_down) || is_direct(span)) return kernels;
  for (uint32_t i = at; span->axis == LANE_KERNELS && i-- > 0;) {
    const LaneSpan *before = &boxes->lanes->span.at[i];
    if (before->axis == stream_lane(STREAM_up) && !is_direct(before)) return before->to;
  }
  return 0;
}

static void set_places(Boxes *boxes) {
  Lanes *lanes = boxes->lanes;
  for (uint32_t i = 0; i < lanes->span.n; i++) {
    LaneSpan *span = &lanes->span.at[i];
    double from = lane_free(boxes, i, span->axis), other = follows(boxes, i);
    if (other > from) from = other;
    for (uint32_t k = 0; k < boxes->link.n; k++) {
      const BoxLink *link = &boxes->link.at[k];
      if (link->to == i && link->from < i && lanes->span.at[link->from].to > from)
        from = lanes->span.at[link->from].to;
    }
    span->from = from, span->to = from + 1;
    if (span->to > lanes->shown) lanes->shown = span->to;
  }
}

static void add_arrows(const Boxes *boxes) {
  for (uint32_t i = 0; i < boxes->link.n; i++) {
    const BoxLink *link = &boxes->link.at[i];
    const LaneSpan *from = &boxes->lanes->span.at[link->from],
                   *to = &boxes->lanes->span.at[link->to];
    if (from->axis == to->axis) continue;
    vec_push(boxes->m->arena, boxes->lanes->arrow,
             (LaneArrow){from->axis, to->axis, from->to, to->from, link->from > link->to});
  }
}

/* ---- loops ---- */

static void add_loops(const Boxes *boxes, const Fn *f, int depth) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_loop) continue;
    LaneLoop loop = {
        .body = o->callee, .rounds = attr_int(&o->attrs, ATTR_trip, 0), .depth = depth};
    loop.from = boxes->lanes->shown;
    uint32_t before = boxes->lanes->loop.n;
    add_loops(boxes, o->callee, depth + 1);
    for (uint32_t k = before; k < boxes->lanes->loop.n; k++) {
      const LaneLoop *inner = &boxes->lanes->loop.at[k];
      if (inner->from < loop.from) loop.from = inner->from;
      if (inner->to > loop.to) loop.to = inner->to;
    }
    for (OpId k = 0; k < o->callee->ops.n; k++) {
      uint32_t box = *slot_of(boxes, o->callee, k);
      if (box == NO_BOX) continue;
      const LaneSpan *span = &boxes->lanes->span.at[box];
      if (span->from < loop.from) loop.from = span->from;
      if (span->to > loop.to) loop.to = span->to;
    }
    if (loop.to > loop.from) vec_push(boxes->m->arena, boxes->lanes->loop, loop);
  }
}

/* ---- */

static Boxes boxes_of(const Module *m, const EventList *list, Lanes *lanes) {
  Boxes boxes = {.m = m, .list = list, .lanes = lanes};
  uint32_t n = 0;
  boxes.base = ARENA_ARRAY(m->arena, uint32_t, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) boxes.base[i] = n, n += m->fns.at[i]->ops.n;
  boxes.of_op = ARENA_ARRAY(m->arena, uint32_t, n + 1);
  for (uint32_t i = 0; i < n; i++) boxes.of_op[i] = NO_BOX;
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++) boxes.background[op] = NO_BOX;
  return boxes;
}

Lanes lanes_in_order(const Module *m, const Fn *entry) {
  Lanes lanes = {0};
  StreamOrder order = {0};
  bool streams = stream_order_of(m, entry, &order);
  EventList *list = ARENA_NEW(m->arena, EventList);
  *list = streams ? events_in_periods(m, entry, order.rank, false, m->arena) : events_of(m, entry);
  Boxes boxes = boxes_of(m, list, &lanes);
  bool main = entry == ir_main_entry(m);
  if (main && m->background[BACKGROUND_take].there) {
    add_background(&boxes, BACKGROUND_take, BACKGROUND_take);
    add_background(&boxes, BACKGROUND_read, BACKGROUND_send);
  }
  for (uint32_t i = 0; i < list->at.n; i++) add_event(&boxes, &list->at.at[i]);
  if (streams) add_tokens(&boxes, &order);
  if (main) add_background(&boxes, BACKGROUND_keep, BACKGROUND_write), link_background(&boxes);
  set_places(&boxes), add_arrows(&boxes), add_loops(&boxes, entry, 0);
  return lanes;
}
