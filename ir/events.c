/* Events of an entry (events.h): the walk of the host program (codegen/host_body.c), with addresses
   as the interpreter in bytes makes them (ir/interp/interp_placed.c). */
#include "events.h"
#include "bytes.h"
#include "flight.h"
#include "loop.h"
#include "turns.h"
#include <string.h>

typedef struct EventPlace {
  uint32_t space; /* the frames, by tier, then globals */
  int64_t at;
} EventPlace;

#define SPACE_HOST UINT32_MAX /* variables of the host program */

typedef struct EventWalk {
  const Module *m;
  EventList *list;
  int64_t rank;
  Str only;           /* messages over this axis and nothing else; NULL: all events */
  bool placed;        /* values have places: events say what they touch */
  VEC(uint32_t) open; /* starts that nobody has waited for, in their order */
} EventWalk;

typedef struct EventCall { /* a function that runs */
  const Fn *f;
  EventPlace frame[TIERS];
  const EventPlace *in, *out, *ring;
  int64_t round;
} EventCall;

const Op *event_op(const Event *e) { return &e->f->ops.at[e->op]; }

bool event_sends(const Event *e) { return e->kind == EVENT_START || e->kind == EVENT_COLLECT; }

/* ---- bytes ---- */

/* Does the value, its dims from `axis` on, from byte `at` on, touch from .. to? */
static bool layout_meets(const Value *v, int axis, int64_t at, int64_t from, int64_t to) {
  int64_t size = elem_bytes(v->type.elem), end = at + size, step;
  for (int i = axis; i < v->type.rank; i++)
    end += (v->type.axis[i].size - 1) * v->storage.stride[i] * size;
  if (at >= to || end <= from) return false;
  if (axis == v->type.rank || (at >= from && end <= to)) return true;
  step = v->storage.stride[axis] * size;
  for (int64_t i = 0; i < v->type.axis[axis].size; i++)
    if (layout_meets(v, axis + 1, at + i * step, from, to)) return true;
  return false;
}

bool bytes_meet(const EventBytes *a, const EventBytes *b) {
  if (a->space != b->space || a->from >= b->to || b->from >= a->to) return false;
  if (a->of && !b->of) return layout_meets(a->of, 0, a->from, b->from, b->to);
  if (b->of && !a->of) return layout_meets(b->of, 0, b->from, a->from, a->to);
  return true;
}

static EventPlace plus(EventPlace p, int64_t bytes) { return (EventPlace){p.space, p.at + bytes}; }

static uint32_t space_of(const Module *m, const Global *g) {
  uint32_t i = 0;
  while (m->globals.at[i] != g) i++;
  return i + TIERS;
}

static EventPlace place_of(const EventCall *c, ValueId v) {
  const Storage *s = &c->f->values.at[v].storage;
  Tier tier = value_type(c->f, v)->tier;
  switch (s->place) {
  case PLACE_NONE: return (EventPlace){SPACE_HOST, v}; /* before pass memory */
  case PLACE_FRAME: return plus(c->frame[tier], s->at);
  case PLACE_GLOBAL: return (EventPlace){s->slot + TIERS, s->at};
  case PLACE_ARG: return plus(c->in[s->slot], s->at);
  case PLACE_RESULT: return plus(c->out[s->slot], s->at);
  case PLACE_RING: return plus(c->ring[s->slot], s->at);
  default: bug("events: value %u of @%s has no place", v, c->f->name);
  }
}

static bool same(EventPlace a, EventPlace b) { return a.space == b.space && a.at == b.at; }

/* ---- events ---- */

static void touch(EventWalk *w, EventPlace p, int64_t bytes, const Value *of, bool written) {
  EventList *l = w->list;
  if (bytes <= 0 || !w->placed) return;
  vec_push(w->m->arena, l->bytes, (EventBytes){p.space, p.at, p.at + bytes, of, written});
  vec_last(l->at).nbytes++;
}

static void touch_value(EventWalk *w, const EventCall *c, ValueId v, bool written) {
  const Value *x = &c->f->values.at[v];
  touch(w, place_of(c, v), value_span_bytes(x), value_is_dense(x) ? NULL : x, written);
}

static void begin_event(EventWalk *w, const Fn *f, OpId op, EventKind kind, int64_t round) {
  EventList *l = w->list;
  vec_push(
      w->m->arena, l->at,
      (Event){
          .kind = kind, .f = f, .op = op, .round = round, .start = NO_EVENT, .bytes = l->bytes.n});
}

static void add_copy(EventWalk *w, const EventCall *c, OpId op, EventPlace to, ValueId from) {
  const Value *x = &c->f->values.at[from];
  if (w->only || same(place_of(c, from), to)) return;
  begin_event(w, c->f, op, EVENT_RUN, c->round);
  touch_value(w, c, from, false);
  touch(w, to, value_span_bytes(x), value_is_dense(x) ? NULL : x, true);
}

static void add_kernel(EventWalk *w, const EventCall *c, OpId id) {
  const Op *o = &c->f->ops.at[id];
  if (w->only) return;
  begin_event(w, c->f, id, EVENT_RUN, c->round);
  for (uint32_t i = 0; i < o->nin; i++) touch_value(w, c, o->in[i], false);
  for (uint32_t i = 0; i < o->nout; i++) touch_value(w, c, o->out + i, true);
  Tier t = kernel_tier(o->callee);
  touch(w, plus(c->frame[t], attr_int(&o->attrs, tier_work(t), 0)), op_work(o, t), NULL, true);
}

static bool is_left_out(const EventWalk *w, const Op *o) {
  return w->only && strcmp(w->only, attr_str(&o->attrs, ATTR_axis, ""));
}

/* Of op `id` of f, wherever its two buffers are. */
static void add_message(EventWalk *w, const Fn *f, OpId id, EventKind kind, int64_t round,
                        EventPlace from, EventPlace to) {
  const Op *o = &f->ops.at[id];
  if (is_left_out(w, o)) return;
  begin_event(w, f, id, kind, round);
  if (o->nin) touch(w, from, value_span_bytes(&f->values.at[o->in[0]]), NULL, false);
  touch(w, to, value_span_bytes(&f->values.at[o->out]), NULL, true);
  if (kind == EVENT_START) vec_push(w->m->arena, w->open, w->list->at.n - 1);
}

static void add_collective(EventWalk *w, const EventCall *c, OpId id) {
  const Op *o = &c->f->ops.at[id];
  if (is_left_out(w, o)) return;
  add_message(w, c->f, id, op_flies(o) ? EVENT_START : EVENT_COLLECT, c->round,
              o->nin ? place_of(c, o->in[0]) : (EventPlace){SPACE_HOST, 0}, place_of(c, o->out));
  touch(w, plus(c->frame[TIER_device], attr_int(&o->attrs, ATTR_work_at, 0)),
        attr_int(&o->attrs, ATTR_workspace, 0), NULL, true);
}

/* The oldest that is on its way from this op has come. */
static void add_end(EventWalk *w, const Fn *f, OpId op, int64_t round) {
  uint32_t i = 0;
  const EventList *l = w->list;
  if (w->only) return;
  while (i < w->open.n && (l->at.at[w->open.at[i]].f != f || l->at.at[w->open.at[i]].op != op)) i++;
  begin_event(w, f, op, EVENT_END, round);
  if (i == w->open.n) return;
  vec_last(w->list->at).start = w->open.at[i];
  for (w->open.n--; i < w->open.n; i++) w->open.at[i] = w->open.at[i + 1];
}

/* ---- loops ---- */

typedef struct EventRounds {
  const Op *op;
  OpId id;
  uint32_t carried, whole;
  int64_t trip, first;
  bool reverse;
  FlightList flights;
  EventPlace *in, *out, *ring;
  int64_t period, shown, half; /* rounds in the list; from `half` on they are the last ones */
} EventRounds;

static void walk(EventWalk *w, const EventCall *c);

static bool returns_arg(const Op *op, uint32_t result, uint32_t arg) {
  const Storage *s = &op->callee->values.at[op->callee->results.at[result]].storage;
  return s->place == PLACE_ARG && s->slot == arg;
}

/* The stacked result whose slices are the buffers of carried value j, or 0. */
static uint32_t saved_as(const EventRounds *l, uint32_t j) {
  for (uint32_t i = l->carried; i < l->op->nout; i++)
    if (returns_arg(l->op, i, j + 1)) return i;
  return 0;
}

/* Which round of the loop round n of the list is. */
static int64_t round_of(const EventRounds *l, int64_t n) {
  return n < l->half ? n : n + l->trip - l->shown;
}

static int64_t counter_of(const EventRounds *l, int64_t n) {
  int64_t round = round_of(l, n);
  return l->first + (l->reverse ? l->trip - 1 - round : round);
}

static EventPlace slice_at(const EventCall *c, const EventRounds *l, ValueId v, int64_t n) {
  const Value *x = &c->f->values.at[v];
  int64_t stride = x->storage.stride[type_find(&x->type, l->op->group[0].from[0])];
  int64_t i = counter_of(l, n), slots = loop_slots(l->op, &x->type);
  i = slots ? i % slots : i + loop_base(l->op, &x->type);
  return plus(place_of(c, v), i * stride * elem_bytes(x->type.elem));
}

static int64_t slot_of(const EventRounds *l, uint32_t j) {
  const Attr *a = attr_get(&l->op->attrs, ATTR_slots);
  return a && (int64_t)j < a->i ? a->list[j] : -1;
}

/* Where round n leaves carried value j. */
static EventPlace carry_to(const EventCall *c, const EventRounds *l, uint32_t j, int64_t n) {
  ValueId result = l->op->out + j;
  uint32_t saved = saved_as(l, j);
  if (n == l->shown - 1 || returns_arg(l->op, j, j + 1)) return place_of(c, result);
  if (saved) return slice_at(c, l, l->op->out + saved, n + 1);
  int64_t slot = slot_of(l, j) < 0 ? 0 : slot_of(l, j);
  return (l->shown - 1 - n) % 2 ? plus(c->frame[value_type(c->f, result)->tier], slot)
                                : place_of(c, result);
}

static EventPlace ring_at(const EventCall *c, const EventRounds *l, uint32_t i, int64_t n) {
  Ring r = loop_ring(l->op, i);
  return plus(c->frame[TIER_device], r.at + (r.buffers ? round_of(l, n) % r.buffers : 0) * r.bytes);
}

static int64_t common_multiple(int64_t a, int64_t b) {
  int64_t x = a, y = b;
  while (y) {
    int64_t rest = x % y;
    x = y, y = rest;
  }
  return a / x * b;
}

/* Rounds until all buffers come again in their order; rounds that the list has. */
static void find_period(EventRounds *l) {
  int64_t ahead = 0;
  l->period = 1;
  for (uint32_t j = 0; j < l->carried; j++)
    if (slot_of(l, j) >= 0) l->period = 2;
  for (uint32_t i = 0; i < l->flights.n; i++) {
    int64_t rounds = l->flights.at[i].rounds, buffers = flight_buffers(l->op, &l->flights.at[i]);
    if (rounds < 0 ? -rounds > ahead : rounds > ahead) ahead = rounds < 0 ? -rounds : rounds;
    if (buffers > 0) l->period = common_multiple(l->period, buffers);
  }
  l->half = ahead < l->trip ? 1 + ahead + l->period : l->trip;
  l->shown = l->half + ahead + 1;
  if (l->shown < l->trip) l->shown += (l->trip - l->shown) % l->period;
  if (l->shown >= l->trip || op_takes_turns(l->op)) l->shown = l->half = l->trip;
}

/* Starts what round n of the list reads. */
static void add_fetch(EventWalk *w, const EventCall *c, const EventRounds *l, uint32_t i,
                      int64_t n) {
  const Flight *x = &l->flights.at[i];
  add_message(w, l->op->callee, x->op, EVENT_START, round_of(l, n),
              slice_at(c, l, l->op->in[x->role - 1], n), ring_at(c, l, i, n));
}

static void add_first_fetches(EventWalk *w, const EventCall *c, const EventRounds *l) {
  for (uint32_t i = 0; i < l->flights.n; i++)
    for (int64_t n = 0; n < -l->flights.at[i].rounds && n < l->shown; n++) add_fetch(w, c, l, i, n);
}

static void add_fetches(EventWalk *w, const EventCall *c, const EventRounds *l, int64_t n) {
  for (uint32_t i = 0; i < l->flights.n; i++) {
    int64_t ahead = -l->flights.at[i].rounds;
    if (ahead > 0 && n + ahead < l->shown) add_fetch(w, c, l, i, n + ahead);
  }
}

static void add_drains(EventWalk *w, const EventRounds *l, int64_t n) {
  for (uint32_t i = 0; i < l->flights.n; i++)
    if (l->flights.at[i].rounds > 0) add_end(w, l->op->callee, l->flights.at[i].op, round_of(l, n));
}

static void add_round(EventWalk *w, const EventCall *c, EventRounds *l, int64_t n) {
  const Op *o = l->op;
  EventCall inner = {
      .f = o->callee, .in = l->in, .out = l->out, .ring = l->ring, .round = round_of(l, n)};
  for (Tier t = 0; t < TIERS; t++)
    inner.frame[t] = plus(c->frame[t], attr_int(&o->attrs, tier_work(t), 0));
  add_fetches(w, c, l, n);
  for (uint32_t k = l->whole; k < o->nin; k++) l->in[k + 1] = slice_at(c, l, o->in[k], n);
  for (uint32_t k = 0; k < o->nout; k++)
    l->out[k] = k < l->carried ? carry_to(c, l, k, n) : slice_at(c, l, o->out + k, n);
  for (uint32_t i = 0; i < l->flights.n; i++) l->ring[i] = ring_at(c, l, i, n);
  walk(w, &inner);
  for (uint32_t j = 0; j < l->carried; j++) l->in[j + 1] = l->out[j];
  if (n) add_drains(w, l, n - 1);
}

static void start_carry(EventWalk *w, const EventCall *c, EventRounds *l, uint32_t j) {
  ValueId first = l->op->in[j];
  uint32_t saved = saved_as(l, j);
  EventPlace to = place_of(c, first);
  if (saved) to = slice_at(c, l, l->op->out + saved, 0);
  else if (returns_arg(l->op, j, j + 1)) to = place_of(c, l->op->out + j);
  add_copy(w, c, l->id, to, first);
  l->in[j + 1] = to;
}

static void add_rounds(EventWalk *w, const EventCall *c, EventRounds *l) {
  EventList *list = w->list;
  uint32_t since = list->at.n;
  for (int64_t n = 0; n < l->shown; n++) {
    if (n == l->half - l->period) since = list->at.n;
    if (n == l->half && l->shown < l->trip) {
      begin_event(w, c->f, l->id, EVENT_SKIP, c->round);
      Event *e = &vec_last(list->at);
      e->rounds = l->trip - l->shown, e->period = l->period, e->since = since;
    }
    add_round(w, c, l, n);
  }
  if (l->shown) add_drains(w, l, l->shown - 1);
}

static EventRounds begin_rounds(EventWalk *w, const EventCall *c, OpId id) {
  Arena *a = w->m->arena;
  const Op *o = &c->f->ops.at[id];
  EventRounds l = {.op = o, .id = id, .carried = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0)};
  l.whole = loop_whole(o), l.first = loop_first(o);
  l.trip = attr_int(&o->attrs, ATTR_trip, 0), l.reverse = attr_int(&o->attrs, ATTR_reverse, 0);
  l.flights = flights_over(a, o->callee);
  l.in = ARENA_ARRAY(a, EventPlace, o->nin + 1), l.out = ARENA_ARRAY(a, EventPlace, o->nout + 1);
  l.ring = ARENA_ARRAY(a, EventPlace, l.flights.n + 1);
  l.in[0] = (EventPlace){SPACE_HOST, 0}; /* the counter */
  find_period(&l);
  for (uint32_t k = l.carried; k < o->nout; k++)
    if (loop_continues(o, k) != NO_VALUE)
      add_copy(w, c, id, place_of(c, o->out + k), o->in[loop_continues(o, k)]);
  for (uint32_t k = l.carried; k < l.whole; k++) l.in[k + 1] = place_of(c, o->in[k]);
  for (uint32_t j = 0; j < l.carried; j++) start_carry(w, c, &l, j);
  add_first_fetches(w, c, &l);
  return l;
}

static bool sends_over(const EventWalk *w, const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop ? sends_over(w, o->callee)
                           : op_family(o->code) == FAMILY_COLLECTIVE && !is_left_out(w, o))
      return true;
  }
  return false;
}

/* Of the messages over one axis, every round: programs of other classes of ranks, which are laid
   beside this one, may take other numbers of rounds until all comes again. */
static void add_loop(EventWalk *w, const EventCall *c, OpId id) {
  if (w->only && !sends_over(w, c->f->ops.at[id].callee)) return;
  EventRounds l = begin_rounds(w, c, id);
  if (w->only) l.shown = l.half = l.trip;
  add_rounds(w, c, &l);
}

/* Every round, as the table of the rank's stage says. */
static void add_turns(EventWalk *w, const EventCall *c, const TurnLoops *t) {
  EventRounds rounds[TURN_LOOPS];
  for (int i = 0; i < t->n; i++) rounds[i] = begin_rounds(w, c, t->loop[i]);
  int64_t stage = turns_stage(w->m, rounds[0].op, w->rank);
  for (TurnState x = {{0}}; !turns_over(&t->table, &x);) {
    int next = turn_next(&t->table, stage, &x);
    add_round(w, c, &rounds[next], x.over[next]++);
  }
  for (int i = 0; i < t->n; i++) add_drains(w, &rounds[i], t->table.parts - 1);
}

/* ---- functions ---- */

static void add_store(EventWalk *w, const EventCall *c, OpId id) {
  const Op *o = &c->f->ops.at[id];
  add_copy(w, c, id, (EventPlace){space_of(w->m, o->global), 0}, o->in[0]);
}

static void add_wait(EventWalk *w, const EventCall *c, OpId id) {
  const Op *start = flight_start(c->f, &c->f->ops.at[id]);
  if (start) add_end(w, c->f, (OpId)(start - c->f->ops.at), c->round);
}

static void walk(EventWalk *w, const EventCall *c) {
  for (OpId i = 0; i < c->f->ops.n; i++) {
    const Op *o = &c->f->ops.at[i];
    TurnLoops t;
    if (turns_begin(c->f, i, &t)) add_turns(w, c, &t), i = turns_end(&t);
    else if (o->code == OP_kernel) add_kernel(w, c, i);
    else if (o->code == OP_loop) add_loop(w, c, i);
    else if (o->code == OP_store) add_store(w, c, i);
    else if (o->code == OP_move) add_copy(w, c, i, place_of(c, o->out), o->in[0]);
    else if (o->code == OP_wait) add_wait(w, c, i);
    else if (op_family(o->code) == FAMILY_COLLECTIVE && attr_int(&o->attrs, ATTR_flight, 0) >= 0)
      add_collective(w, c, i); /* else the loop has started it */
  }
}

static EventList events(const Module *m, const Fn *entry, int64_t rank, Str only, bool placed) {
  EventList list = {.entry = entry};
  EventWalk w = {.m = m, .list = &list, .rank = rank, .only = only, .placed = placed};
  EventCall c = {.f = entry, .round = NO_ROUND};
  for (Tier t = 0; t < TIERS; t++) c.frame[t].space = t;
  walk(&w, &c);
  return list;
}

EventList events_of(const Module *m, const Fn *entry) { return events(m, entry, 0, NULL, true); }

EventList events_of_rank(const Module *m, const Fn *entry, int64_t rank) {
  return events(m, entry, rank, NULL, true);
}

EventList messages_of_rank(const Module *m, const Fn *entry, int64_t rank, Str axis) {
  return events(m, entry, rank, axis, false);
}

EventList events_in_order(const Module *m, const Fn *entry) {
  return events(m, entry, 0, NULL, false);
}
