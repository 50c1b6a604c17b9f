/* prove, (d): ranks that exchange values with their neighbours along an axis, in one program, or
   in one for each class of stages.

   Each place along such an axis is a line of the same messages, except that the first and the last
   place lack a neighbour. A line advances past a send once its neighbour is at the receive, past a
   message of the whole axis once all lines of the axis are at it, and past messages over other
   axes at once: ranks that differ only in those axes are at the same point. The lines are executed
   as in Kahn's algorithm; if none can advance before the end, ranks wait for each other for ever,
   and the report shows where each rank waits.

   Rendezvous is the strictest way to deliver: a program that completes with it completes with any
   buffers in between. Stages that follow a pipeline schedule (pipeline_schedule.h) have a list
   each, and need the buffer that a communicator has for them: one message from each rank in each
   direction.

   A library of the device (communicators.def) has no such buffer. There a rank issues its sends and
   receives in the order of ir/schedule/send_order.h, through the queue that the runtime uses
   (send_queue.h). The rank is at the first group of calls that is not complete. Each call of it
   completes with its counterpart, and the calls between two ranks in their order. The program
   continues after a send once a slot is free, and after a receive once its group is complete. Must
   not: assume that sends and receives come in pairs. */
#include "ir/schedule/message.h"
#include "ir/shape/placement.h"
#include "passes/base/rebuild.h"
#include "prove.h"
#include <string.h>

typedef struct ClassLine { /* messages of a rank of a class, in its order */
  const RankClass *of;
  VEC(const Event *) at;
  VEC(uint32_t) nth; /* of its op's */
} ClassLine;

typedef struct IssuedCall { /* a call that the library has */
  const Event *event;
  int64_t slot; /* -1: it receives */
  int64_t group;
  bool over;
} IssuedCall;

typedef struct IssuePlace {
  SendQueue q;
  const Event **what; /* by slot */
  bool *out;          /* by slot: it was passed on, and no peer has received it */
  VEC(IssuedCall) given;
  uint32_t first; /* that is not over */
  int64_t groups;
  int axis;         /* of the last message */
  int64_t receives; /* the receive call after which its program is; -1: none */
} IssuePlace;

typedef struct Lines {
  Module *m;
  ClassLine *line; /* by class */
  uint32_t nlines;
  const ClassLine **line_at; /* by place */
  int axis[MAX_MESH], naxes; /* along which there are neighbours */
  int64_t n;                 /* places */
  uint32_t *over;            /* by place: number of complete messages */
  const Event **sent;        /* by place and direction: a message that its neighbour has not
                                received yet */
  IssuePlace *issue;         /* by place; NULL: messages have room */
} Lines;

static int axis_of(const Lines *lines, const Op *o) {
  return mesh_find(lines->m, attr_str(&o->attrs, ATTR_axis, ""));
}

static int64_t step_of(const Lines *lines, int axis) {
  int64_t step = 1;
  for (int i = 0; i < lines->naxes && lines->axis[i] != axis; i++)
    step *= lines->m->mesh.at[lines->axis[i]].size;
  return step;
}

static int64_t coordinate(const Lines *lines, int64_t place, int axis) {
  return place / step_of(lines, axis) % lines->m->mesh.at[axis].size;
}

static const ClassLine *find_line(const Lines *lines, int64_t place) {
  for (uint32_t i = 0; i < lines->nlines; i++) {
    const StageClass *c = &lines->line[i].of->stages;
    int64_t at = lines->nlines > 1 ? coordinate(lines, place, c->axis) : c->first;
    if (at >= c->first && at <= c->last) return &lines->line[i];
  }
  bug("prove: no class is at place %lld", (long long)place);
}

static const Event *event_at(const Lines *lines, int64_t place) {
  const ClassLine *line = lines->line_at[place];
  return lines->over[place] < line->at.n ? line->at.at[lines->over[place]] : NULL;
}

/* The place on the other side; -1: the end of the line. */
static int64_t neighbour(const Lines *lines, int64_t place, const Op *o) {
  int axis = axis_of(lines, o);
  int64_t at = coordinate(lines, place, axis),
          other = hop_peer(o, at, lines->m->mesh.at[axis].size);
  return other < 0 ? -1 : place + (other - at) * step_of(lines, axis);
}

/* Do a send and a receive belong together? */
static bool same_way(const Op *a, const Op *b) {
  return a->code == OP_send && b->code == OP_receive &&
         !strcmp(attr_str(&a->attrs, ATTR_axis, ""), attr_str(&b->attrs, ATTR_axis, "")) &&
         attr_int(&a->attrs, ATTR_reverse, 0) == attr_int(&b->attrs, ATTR_reverse, 0);
}

/* Bytes are bytes: dims in one order, of one element type. */
static bool same_bytes(const Event *a, const Event *b) {
  const Type *x = value_type(a->f, event_op(a)->in[0]), *y = value_type(b->f, event_op(b)->out);
  bool same = x->elem == y->elem && x->rank == y->rank;
  for (int i = 0; same && i < x->rank; i++)
    same = x->axis[i].dim == y->axis[i].dim && x->axis[i].size == y->axis[i].size;
  return same;
}

static bool along(const Lines *lines, int axis) {
  for (int i = 0; i < lines->naxes; i++)
    if (lines->axis[i] == axis) return true;
  return false;
}

/* ---- sends that wait for their receives ---- */

static void give(Lines *lines, IssuePlace *state, int64_t slot) {
  state->out[slot] = true;
  vec_push(lines->m->arena, state->given,
           (IssuedCall){state->what[slot], slot, state->groups, false});
}

/* Each in a group of its own. */
static bool give_due(Lines *lines, IssuePlace *state, bool all) {
  bool any = false;
  for (int64_t i; (i = send_give(&state->q, all)) >= 0; any = true)
    state->groups++, give(lines, state, i);
  return any;
}

/* Before a message of the axis, or at the end: issues the remaining calls. */
static bool settle(Lines *lines, int64_t place, int axis) {
  IssuePlace *state = lines->issue ? &lines->issue[place] : NULL;
  return state && axis == state->axis && give_due(lines, state, true);
}

static bool is_quiet(const Lines *lines, int64_t place) {
  const IssuePlace *state = lines->issue ? &lines->issue[place] : NULL;
  return !state || state->first == state->given.n;
}

/* For a class without a pipeline schedule, as in send_order: lists leave rounds out. */
static bool receives_next(const Lines *lines, int64_t place, const Op *send) {
  const ClassLine *line = lines->line_at[place];
  for (uint32_t i = lines->over[place] + 1; i < line->at.n; i++) {
    const Op *o = event_op(line->at.at[i]);
    if (op_is_p2p(o->code) && axis_of(lines, o) == axis_of(lines, send) &&
        neighbour(lines, place, o) >= 0)
      return o->code == OP_receive;
  }
  return false;
}

static SendPlace place_of(const Lines *lines, int64_t place, const Op *send) {
  const ClassLine *line = lines->line_at[place];
  if (!line->of->turns) return (SendPlace){0, receives_next(lines, place, send)};
  int64_t stage = coordinate(lines, place, axis_of(lines, send));
  return send_place(send_runs(&line->of->sends, lines->m, send, stage),
                    line->nth.at[lines->over[place]]);
}

static bool issue_send(Lines *lines, int64_t place, const Event *event) {
  IssuePlace *state = &lines->issue[place];
  int64_t slot = send_free_slot(&state->q);
  if (slot < 0 || state->out[slot]) return false;
  SendPlace at = place_of(lines, place, event_op(event));
  state->what[slot] = event;
  send_hold(&state->q, slot, at.later, at.joins);
  give_due(lines, state, false);
  return lines->over[place]++, true;
}

/* Begins a receive and the sends that join its group. */
static void begin_receive(Lines *lines, IssuePlace *state, const Event *event) {
  state->groups++;
  for (int64_t i; (i = send_give(&state->q, true)) >= 0;) give(lines, state, i);
  state->receives = state->given.n;
  vec_push(lines->m->arena, state->given, (IssuedCall){event, -1, state->groups, false});
  send_receives(&state->q);
  give_due(lines, state, false);
}

static void call_over(IssuePlace *state, IssuedCall *call) {
  call->over = true;
  if (call->slot >= 0) state->out[call->slot] = false;
  while (state->first < state->given.n && state->given.at[state->first].over) state->first++;
}

/* The next call of the place that sends to another one. */
static IssuedCall *sends_to(const Lines *lines, int64_t place, int64_t other) {
  const IssuePlace *state = &lines->issue[place];
  for (uint32_t i = state->first; i < state->given.n; i++) {
    IssuedCall *call = &state->given.at[i];
    if (call->group != state->given.at[state->first].group) return NULL;
    if (!call->over && call->slot >= 0 && neighbour(lines, place, event_op(call->event)) == other)
      return call;
  }
  return NULL;
}

static bool take_in(Lines *lines, int64_t place, const Event *event, int64_t other) {
  IssuePlace *state = &lines->issue[place];
  IssuedCall *call = &state->given.at[state->receives], *there = sends_to(lines, other, place);
  if (call->over || call->group != state->given.at[state->first].group || !there) return false;
  if (!same_way(event_op(there->event), event_op(event)) || !same_bytes(there->event, event))
    return false;
  call_over(state, call), call_over(&lines->issue[other], there);
  return true;
}

static bool issue_hop(Lines *lines, int64_t place, const Event *event, int64_t other) {
  IssuePlace *state = &lines->issue[place];
  int axis = axis_of(lines, event_op(event));
  if (axis != state->axis) give_due(lines, state, true), state->axis = axis;
  if (event_op(event)->code == OP_send) return issue_send(lines, place, event);
  if (state->receives < 0) return begin_receive(lines, state, event), true;
  if (state->first <= state->receives) return take_in(lines, place, event, other);
  state->receives = -1;
  return lines->over[place]++, true;
}

static void start_issues(Lines *lines) {
  Arena *arena = lines->m->arena;
  lines->issue = ARENA_ARRAY(arena, IssuePlace, lines->n);
  for (int64_t i = 0; i < lines->n; i++) {
    IssuePlace *state = &lines->issue[i];
    int64_t n = lines->line_at[i]->of->sends.slots;
    *state =
        (IssuePlace){.q = {.slot = ARENA_ARRAY(arena, SendSlot, n + 1), .n = n}, .receives = -1};
    state->what = ARENA_ARRAY(arena, const Event *, n + 1),
    state->out = ARENA_ARRAY(arena, bool, n + 1);
  }
}

/* ---- moving on ---- */

/* Programs of classes are derived from one, so both sides of a message have one source position. */
static bool same_place(const Op *a, const Op *b) {
  return a->loc.file == b->loc.file && a->loc.line == b->loc.line && a->loc.column == b->loc.column;
}

/* If all places of an axis are at the same message, it completes for all of them together. */
static bool meet(Lines *lines, int64_t place, int axis) {
  int64_t step = step_of(lines, axis), first = place - coordinate(lines, place, axis) * step;
  const Event *event = event_at(lines, place);
  for (int64_t i = 0; i < lines->m->mesh.at[axis].size; i++) {
    const Event *there = event_at(lines, first + i * step);
    if (!there || axis_of(lines, event_op(there)) != axis || !prove_alike(event, there) ||
        !same_place(event_op(event), event_op(there)) || !is_quiet(lines, first + i * step))
      return false;
  }
  for (int64_t i = 0; i < lines->m->mesh.at[axis].size; i++) lines->over[first + i * step]++;
  return true;
}

/* Passes a message through the buffer between two stages whose rounds follow a schedule. */
static bool pass_on(Lines *lines, int64_t place, int64_t other, const Event *event) {
  const Op *o = event_op(event);
  bool down = attr_int(&o->attrs, ATTR_reverse, 0) != 0, sends = o->code == OP_send;
  const Event **between = &lines->sent[2 * (sends ? place : other) + down];
  if (sends ? *between != NULL : !*between) return false;
  if (!sends && (!same_way(event_op(*between), o) || !same_bytes(*between, event))) return false;
  *between = sends ? event : NULL;
  return lines->over[place]++, true;
}

/* ---- all of them ---- */

/* A receive moves with the send on its other side. */
static bool advance(Lines *lines, int64_t place) {
  const Event *event = event_at(lines, place);
  if (!event) return lines->issue && settle(lines, place, lines->issue[place].axis);
  const Op *o = event_op(event);
  int axis = axis_of(lines, o);
  if (!along(lines, axis)) return lines->over[place]++, true;
  if (!op_is_p2p(o->code)) return settle(lines, place, axis) || meet(lines, place, axis);
  int64_t other = neighbour(lines, place, o);
  if (other < 0) return lines->over[place]++, true;
  const RankClass *of = lines->line_at[place]->of;
  if (lines->issue) return issue_hop(lines, place, event, other);
  if (of->turns && axis == of->stages.axis) return pass_on(lines, place, other, event);
  const Event *there = event_at(lines, other);
  if (!there || !same_way(o, event_op(there)) || !same_bytes(event, there)) return false;
  lines->over[place]++, lines->over[other]++;
  return true;
}

/* ---- reports ---- */

static const char *place_text(const Lines *lines, int64_t place) {
  const char *text = "ranks at";
  for (int i = 0; i < lines->naxes; i++)
    text = arena_printf(lines->m->arena, "%s %s %lld", text, lines->m->mesh.at[lines->axis[i]].name,
                        (long long)coordinate(lines, place, lines->axis[i]));
  return text;
}

/* The message that its rank has reached, or still sends; NULL: the rank is at the end. */
static const Event *stands(const Lines *lines, int64_t place) {
  const Event *event = event_at(lines, place);
  const IssuePlace *state = lines->issue ? &lines->issue[place] : NULL;
  if (!event && state && state->first < state->given.n) return state->given.at[state->first].event;
  for (int down = 0; !event && down < 2; down++) event = lines->sent[2 * place + down];
  return event;
}

static void report(const Lines *lines) {
  int64_t place = 0;
  while (!stands(lines, place)) place++;
  Report *r =
      prove_wrong(lines->m, stands(lines, place), "E1113", "ranks wait for each other for ever");
  for (int64_t i = 0, shown = 0; i < lines->n && shown < 4; i++) {
    const Event *event = stands(lines, i);
    if (!event) diag_fact(r, "%s are at the end", place_text(lines, i));
    else diag_fact(r, "%s are at %s", place_text(lines, i), prove_said(lines->m, event));
    shown++;
  }
}

/* ---- events ---- */

static void add_axis(Lines *lines, int axis) {
  if (axis >= 0 && !along(lines, axis)) lines->axis[lines->naxes++] = axis;
}

static uint32_t count_before(const ClassLine *line, const Op *o) {
  for (uint32_t i = line->at.n; i-- > 0;)
    if (event_op(line->at.at[i]) == o) return line->nth.at[i] + 1;
  return 0;
}

static void collect_events(Lines *lines, ClassLine *line) {
  const EventList *list = line->of->events;
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Event *event = &list->at.at[i];
    if (!event_sends(event)) continue;
    uint32_t nth = count_before(line, event_op(event));
    vec_push(lines->m->arena, line->nth, nth);
    vec_push(lines->m->arena, line->at, event);
    if (op_is_p2p(event_op(event)->code)) add_axis(lines, axis_of(lines, event_op(event)));
  }
}

bool prove_hops(Module *m, const RankClass *classes, uint32_t n) {
  Lines lines = {.m = m, .line = ARENA_ARRAY(m->arena, ClassLine, n), .nlines = n, .n = 1};
  for (uint32_t i = 0; i < n; i++) {
    lines.line[i].of = &classes[i];
    if (n > 1) add_axis(&lines, classes[i].stages.axis);
    collect_events(&lines, &lines.line[i]);
  }
  if (!lines.naxes) return true;
  for (int i = 0; i < lines.naxes; i++) lines.n *= m->mesh.at[lines.axis[i]].size;
  lines.line_at = ARENA_ARRAY(m->arena, const ClassLine *, lines.n);
  for (int64_t i = 0; i < lines.n; i++) lines.line_at[i] = find_line(&lines, i);
  lines.over = ARENA_ARRAY(m->arena, uint32_t, lines.n);
  lines.sent = ARENA_ARRAY(m->arena, const Event *, 2 * lines.n);
  if (classes[0].sends.used) start_issues(&lines);
  for (bool any = true; any;) {
    any = false;
    for (int64_t i = 0; i < lines.n; i++)
      while (advance(&lines, i)) any = true;
  }
  for (int64_t i = 0; i < lines.n; i++)
    if (stands(&lines, i)) return report(&lines), false;
  return true;
}
