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
  int axis[MAX_MESH], naxes; /* along which there are neighbours */
  int64_t n;                 /* places */
  uint32_t *over;            /* by place: so many messages are */
  const Event **sent;        /* by place and direction: what its neighbour has not received yet */
  bool *got;                 /* by place, over NCCL: the receive in which it stands */
} Lines;

static int axis_of(const Lines *l, const Op *o) {
  return mesh_find(l->m, attr_str(&o->attrs, ATTR_axis, ""));
}

static int64_t step_of(const Lines *l, int axis) {
  int64_t step = 1;
  for (int i = 0; i < l->naxes && l->axis[i] != axis; i++) step *= l->m->mesh.at[l->axis[i]].size;
  return step;
}

static int64_t coordinate(const Lines *l, int64_t place, int axis) {
  return place / step_of(l, axis) % l->m->mesh.at[axis].size;
}

static const ClassLine *line_at(const Lines *l, int64_t place) {
  for (uint32_t i = 0; i < l->nlines; i++) {
    const StageClass *c = &l->line[i].of->stages;
    int64_t at = l->nlines > 1 ? coordinate(l, place, c->axis) : c->first;
    if (at >= c->first && at <= c->last) return &l->line[i];
  }
  bug("prove: no class stands at place %lld", (long long)place);
}

static const Event *event_at(const Lines *l, int64_t place) {
  const ClassLine *line = line_at(l, place);
  return l->over[place] < line->at.n ? line->at.at[l->over[place]] : NULL;
}

/* The place on the other side; -1: the end of the line. */
static int64_t neighbour(const Lines *l, int64_t place, const Op *o) {
  int axis = axis_of(l, o);
  int64_t at = coordinate(l, place, axis), other = hop_peer(o, at, l->m->mesh.at[axis].size);
  return other < 0 ? -1 : place + (other - at) * step_of(l, axis);
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

static bool along(const Lines *l, int axis) {
  for (int i = 0; i < l->naxes; i++)
    if (l->axis[i] == axis) return true;
  return false;
}

/* ---- moving on ---- */

/* Programs of classes come from one, so sides of one message stand in one place of the model. */
static bool same_place(const Op *a, const Op *b) {
  return a->loc.file == b->loc.file && a->loc.line == b->loc.line && a->loc.column == b->loc.column;
}

/* Over NCCL: the send that waits for the receive behind it, and must be over before all else. */
static const Event *gives(const Lines *l, int64_t place) {
  return line_at(l, place)->of->pairs.used ? l->sent[2 * place] : NULL;
}

/* All places of an axis that stand in one message are over it together. */
static bool meet(Lines *l, int64_t place, int axis) {
  int64_t step = step_of(l, axis), first = place - coordinate(l, place, axis) * step;
  const Event *e = event_at(l, place);
  for (int64_t i = 0; i < l->m->mesh.at[axis].size; i++) {
    const Event *there = event_at(l, first + i * step);
    if (!there || axis_of(l, event_op(there)) != axis || !prove_alike(e, there) ||
        !same_place(event_op(e), event_op(there)) || gives(l, first + i * step))
      return false;
  }
  for (int64_t i = 0; i < l->m->mesh.at[axis].size; i++) l->over[first + i * step]++;
  return true;
}

/* In the buffer between two stages that take turns. */
static bool pass_on(Lines *l, int64_t place, int64_t other, const Event *e) {
  const Op *o = event_op(e);
  bool down = attr_int(&o->attrs, ATTR_reverse, 0) != 0, sends = o->code == OP_send;
  const Event **between = &l->sent[2 * (sends ? place : other) + down];
  if (sends ? *between != NULL : !*between) return false;
  if (!sends && (!same_way(event_op(*between), o) || !same_bytes(*between, e))) return false;
  *between = sends ? e : NULL;
  return l->over[place]++, true;
}

/* ---- over NCCL ---- */

/* What a place stands in sending: beside a receive, or alone. */
static const Event *offered(const Lines *l, int64_t place) {
  const Event *e = event_at(l, place);
  if (gives(l, place)) return gives(l, place);
  return e && event_op(e)->code == OP_send && neighbour(l, place, event_op(e)) >= 0 ? e : NULL;
}

static bool take_in(Lines *l, int64_t place, int64_t other) {
  const Event *e = event_at(l, place), *there = offered(l, other), *beside = gives(l, place);
  bool fits = there && same_way(event_op(there), event_op(e)) && same_bytes(there, e);
  bool apart = beside && axis_of(l, event_op(beside)) != axis_of(l, event_op(e));
  if (!fits || apart || l->got[place]) return false;
  if (l->sent[2 * other]) l->sent[2 * other] = NULL;
  else l->over[other]++;
  return l->got[place] = true;
}

/* The rank gives NCCL what it sends, and with it the receive behind, if one is. */
static bool trade(Lines *l, int64_t place, const Event *e, int64_t other) {
  const Event **beside = &l->sent[2 * place];
  if (event_op(e)->code == OP_send) {
    const ClassLine *line = line_at(l, place);
    bool none = l->over[place] >= line->receives;
    if (*beside || none || send_is_alone(&line->of->pairs, event_op(e))) return false;
    *beside = e;
    return l->over[place]++, true;
  }
  if (take_in(l, place, other)) return true;
  if (*beside || !l->got[place]) return false;
  l->got[place] = false;
  return l->over[place]++, true;
}

/* ---- all of them ---- */

/* A receive moves with the send on its other side. */
static bool advance(Lines *l, int64_t place) {
  const Event *e = event_at(l, place);
  if (!e) return false;
  const Op *o = event_op(e);
  int axis = axis_of(l, o);
  if (!along(l, axis)) return l->over[place]++, true;
  if (!op_is_hop(o->code)) return meet(l, place, axis);
  int64_t other = neighbour(l, place, o);
  if (other < 0) return l->over[place]++, true;
  const RankClass *of = line_at(l, place)->of;
  if (of->pairs.used) return trade(l, place, e, other);
  if (of->turns && axis == of->stages.axis) return pass_on(l, place, other, e);
  const Event *there = event_at(l, other);
  if (!there || !same_way(o, event_op(there)) || !same_bytes(e, there)) return false;
  l->over[place]++, l->over[other]++;
  return true;
}

/* ---- reports ---- */

static const char *place_text(const Lines *l, int64_t place) {
  const char *text = "ranks at";
  for (int i = 0; i < l->naxes; i++)
    text = arena_printf(l->m->arena, "%s %s %lld", text, l->m->mesh.at[l->axis[i]].name,
                        (long long)coordinate(l, place, l->axis[i]));
  return text;
}

/* What its rank has come to, or still sends; NULL: it is at the end. */
static const Event *stands(const Lines *l, int64_t place) {
  const Event *e = event_at(l, place);
  for (int down = 0; !e && down < 2; down++) e = l->sent[2 * place + down];
  return e;
}

static void report(const Lines *l) {
  int64_t place = 0;
  while (!stands(l, place)) place++;
  Report *r = prove_wrong(l->m, stands(l, place), "E1113", "ranks wait for each other for ever");
  for (int64_t i = 0, shown = 0; i < l->n && shown < 4; i++) {
    const Event *e = stands(l, i);
    if (!e) diag_fact(r, "%s are at the end", place_text(l, i));
    else diag_fact(r, "%s stand in %s", place_text(l, i), prove_said(l->m, e));
    shown++;
  }
}

/* ---- events ---- */

static void add_axis(Lines *l, int axis) {
  if (axis >= 0 && !along(l, axis)) l->axis[l->naxes++] = axis;
}

static void collect_events(Lines *l, ClassLine *line) {
  const EventList *list = line->of->events;
  for (uint32_t i = 0; i < list->at.n; i++) {
    const Event *e = &list->at.at[i];
    if (!event_sends(e)) continue;
    vec_push(l->m->arena, line->at, e);
    if (event_op(e)->code == OP_receive) line->receives = line->at.n;
    if (op_is_hop(event_op(e)->code)) add_axis(l, axis_of(l, event_op(e)));
  }
}

bool prove_hops(Module *m, const RankClass *classes, uint32_t n) {
  Lines l = {.m = m, .line = ARENA_ARRAY(m->arena, ClassLine, n), .nlines = n, .n = 1};
  for (uint32_t i = 0; i < n; i++) {
    l.line[i].of = &classes[i];
    if (n > 1) add_axis(&l, classes[i].stages.axis);
    collect_events(&l, &l.line[i]);
  }
  if (!l.naxes) return true;
  for (int i = 0; i < l.naxes; i++) l.n *= m->mesh.at[l.axis[i]].size;
  l.over = ARENA_ARRAY(m->arena, uint32_t, l.n);
  l.sent = ARENA_ARRAY(m->arena, const Event *, 2 * l.n);
  l.got = ARENA_ARRAY(m->arena, bool, l.n);
  for (bool any = true; any;) {
    any = false;
    for (int64_t i = 0; i < l.n; i++)
      while (advance(&l, i)) any = true;
  }
  for (int64_t i = 0; i < l.n; i++)
    if (stands(&l, i)) return report(&l), false;
  return true;
}
