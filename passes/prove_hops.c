/* prove, (d): ranks that hand values to their neighbours along an axis, in one program, or in one
   for each class of stages.

   Each place along such an axis is a line of the same messages, but for the two ends, where nothing
   comes or goes. A line moves on from a send when its neighbour stands in the receive, from a
   message of the whole axis when all lines of the axis stand in it, and from messages over other
   axes at once: ranks that differ there alone stand at the same place. The lines are run as Kahn's
   algorithm does; if none can move on before the end, ranks wait for each other for ever, and the
   report says who stands where. Rendezvous is the strictest way to deliver: what comes to an end so
   does with any buffers between. Stages whose rounds take turns (ir/turns.h) have a list each, and
   need the buffer that a communicator has for them: a message from each rank in each direction.
   NCCL has none, and gets a send together with the receive behind it (ir/send_pairs.h): then a rank
   stands in both, and each moves with its other side. Must not: assume that sends and receives
   stand in pairs. */
#include "ir/message.h"
#include "ir/placement.h"
#include "passes/internal.h"
#include "passes/prove.h"
#include <string.h>

typedef struct ClassLine { /* what a rank of a class sends or receives, in its order */
  const RankClass *of;
  VEC(const Event *) at;
  uint32_t receives; /* none from here on */
} ClassLine;

typedef struct Lines {
  Module *m;
  ClassLine *line; /* by class */
  uint32_t nlines;
  const ClassLine **line_at; /* by place */
  int axis[MAX_MESH], naxes; /* along which there are neighbours */
  int64_t n;                 /* places */
  uint32_t *over;            /* by place: so many messages are */
  const Event **sent;        /* by place and direction: what its neighbour has not received yet */
  bool *got;                 /* by place, over NCCL: the receive in which it stands */
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
  bug("prove: no class stands at place %lld", (long long)place);
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

/* ---- moving on ---- */

/* Programs of classes come from one, so sides of one message stand in one place of the model. */
static bool same_place(const Op *a, const Op *b) {
  return a->loc.file == b->loc.file && a->loc.line == b->loc.line && a->loc.column == b->loc.column;
}

/* Over NCCL: the send that waits for the receive behind it, and must be over before all else. */
static const Event *gives(const Lines *lines, int64_t place) {
  return lines->line_at[place]->of->pairs.used ? lines->sent[2 * place] : NULL;
}

/* All places of an axis that stand in one message are over it together. */
static bool meet(Lines *lines, int64_t place, int axis) {
  int64_t step = step_of(lines, axis), first = place - coordinate(lines, place, axis) * step;
  const Event *event = event_at(lines, place);
  for (int64_t i = 0; i < lines->m->mesh.at[axis].size; i++) {
    const Event *there = event_at(lines, first + i * step);
    if (!there || axis_of(lines, event_op(there)) != axis || !prove_alike(event, there) ||
        !same_place(event_op(event), event_op(there)) || gives(lines, first + i * step))
      return false;
  }
  for (int64_t i = 0; i < lines->m->mesh.at[axis].size; i++) lines->over[first + i * step]++;
  return true;
}

/* In the buffer between two stages that take turns. */
static bool pass_on(Lines *lines, int64_t place, int64_t other, const Event *event) {
  const Op *o = event_op(event);
  bool down = attr_int(&o->attrs, ATTR_reverse, 0) != 0, sends = o->code == OP_send;
  const Event **between = &lines->sent[2 * (sends ? place : other) + down];
  if (sends ? *between != NULL : !*between) return false;
  if (!sends && (!same_way(event_op(*between), o) || !same_bytes(*between, event))) return false;
  *between = sends ? event : NULL;
  return lines->over[place]++, true;
}

/* ---- over NCCL ---- */

/* What a place stands in sending: beside a receive, or alone. */
static const Event *offered(const Lines *lines, int64_t place) {
  const Event *event = event_at(lines, place);
  if (gives(lines, place)) return gives(lines, place);
  return event && event_op(event)->code == OP_send && neighbour(lines, place, event_op(event)) >= 0
             ? event
             : NULL;
}

static bool take_in(Lines *lines, int64_t place, int64_t other) {
  const Event *event = event_at(lines, place), *there = offered(lines, other),
              *beside = gives(lines, place);
  bool fits = there && same_way(event_op(there), event_op(event)) && same_bytes(there, event);
  bool apart = beside && axis_of(lines, event_op(beside)) != axis_of(lines, event_op(event));
  if (!fits || apart || lines->got[place]) return false;
  if (lines->sent[2 * other]) lines->sent[2 * other] = NULL;
  else lines->over[other]++;
  return lines->got[place] = true;
}

/* The rank gives NCCL what it sends, and with it the receive behind, if one is. */
static bool trade(Lines *lines, int64_t place, const Event *event, int64_t other) {
  const Event **beside = &lines->sent[2 * place];
  if (event_op(event)->code == OP_send) {
    const ClassLine *line = lines->line_at[place];
    bool none = lines->over[place] >= line->receives;
    if (*beside || none || send_is_alone(&line->of->pairs, event_op(event))) return false;
    *beside = event;
    return lines->over[place]++, true;
  }
  if (take_in(lines, place, other)) return true;
  if (*beside || !lines->got[place]) return false;
  lines->got[place] = false;
  return lines->over[place]++, true;
}

/* ---- all of them ---- */

/* A receive moves with the send on its other side. */
static bool advance(Lines *lines, int64_t place) {
  const Event *event = event_at(lines, place);
  if (!event) return false;
  const Op *o = event_op(event);
  int axis = axis_of(lines, o);
  if (!along(lines, axis)) return lines->over[place]++, true;
  if (!op_is_hop(o->code)) return meet(lines, place, axis);
  int64_t other = neighbour(lines, place, o);
  if (other < 0) return lines->over[place]++, true;
  const RankClass *of = lines->line_at[place]->of;
  if (of->pairs.used) return trade(lines, place, event, other);
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

/* What its rank has come to, or still sends; NULL: it is at the end. */
static const Event *stands(const Lines *lines, int64_t place) {
  const Event *event = event_at(lines, place);
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
    else diag_fact(r, "%s stand in %s", place_text(lines, i), prove_said(lines->m, event));
    shown++;
  }
}

/* ---- events ---- */

static void add_axis(Lines *lines, int axis) {
  if (axis >= 0 && !along(lines, axis)) lines->axis[lines->naxes++] = axis;
}

static void collect_events(Lines *lines, ClassLine *line) {
  const EventList *list = line->of->events;
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Event *event = &list->at.at[i];
    if (!event_sends(event)) continue;
    vec_push(lines->m->arena, line->at, event);
    if (event_op(event)->code == OP_receive) line->receives = line->at.n;
    if (op_is_hop(event_op(event)->code)) add_axis(lines, axis_of(lines, event_op(event)));
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
  lines.got = ARENA_ARRAY(m->arena, bool, lines.n);
  for (bool any = true; any;) {
    any = false;
    for (int64_t i = 0; i < lines.n; i++)
      while (advance(&lines, i)) any = true;
  }
  for (int64_t i = 0; i < lines.n; i++)
    if (stands(&lines, i)) return report(&lines), false;
  return true;
}
