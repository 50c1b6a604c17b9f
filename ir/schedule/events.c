/* Events of an entry (events.h): the walk of the host program (codegen/host_body.c), with addresses
   as the interpreter in bytes makes them (ir/interp/interp_placed.c). */
#include "events.h"
#include "ir/bytes.h"
#include "flight.h"
#include "ir/loop.h"
#include "ir/support/num.h"
#include "pipeline_schedule.h"
#include <string.h>

typedef struct EventPlace {
  uint32_t space; /* the frames, by tier, then globals */
  int64_t at;
} EventPlace;

#define SPACE_HOST UINT32_MAX /* variables of the host program */

typedef struct BodySends { /* of a loop: has it messages over the axis? */
  const Fn *f;
  bool sends;
} BodySends;

typedef struct EventWalk {
  const Module *m;
  Arena *arena; /* of the list */
  EventList *list;
  int64_t rank;
  Str only;            /* messages over this axis and nothing else; NULL: all events */
  bool placed;         /* values have places: events say what they touch */
  bool periods, every; /* loops end with a whole period; have all rounds in the list */
  VEC(uint32_t) open;  /* starts without a wait so far, in their order */
  VEC(BodySends) bodies;
} EventWalk;

typedef struct EventCall { /* a function that runs */
  const Fn *f;
  EventPlace frame[TIERS];
  const EventPlace *in, *out, *ring;
  int64_t round;
} EventCall;

const Op *event_op(const Event *event) { return &event->f->ops.at[event->op]; }

bool event_sends(const Event *event) {
  return event->kind == EVENT_START || event->kind == EVENT_COLLECT;
}

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

static uint32_t space_of(const Module *m, const Global *g) { return global_index(m, g) + TIERS; }

static EventPlace place_of(const EventCall *call, ValueId v) {
  const Storage *storage = &call->f->values.at[v].storage;
  Tier tier = value_type(call->f, v)->tier;
  switch (storage->place) {
  case PLACE_NONE: return (EventPlace){SPACE_HOST, v}; /* before pass memory */
  case PLACE_FRAME: return plus(call->frame[tier], storage->at);
  case PLACE_GLOBAL: return (EventPlace){storage->slot + TIERS, storage->at};
  case PLACE_ARG: return plus(call->in[storage->slot], storage->at);
  case PLACE_RESULT: return plus(call->out[storage->slot], storage->at);
  case PLACE_RING: return plus(call->ring[storage->slot], storage->at);
  default: bug("events: value %u of @%s has no place", v, call->f->name);
  }
}

static bool same(EventPlace a, EventPlace b) { return a.space == b.space && a.at == b.at; }

/* ---- events ---- */

static void touch(EventWalk *walk, EventPlace p, int64_t bytes, const Value *of, bool written) {
  EventList *list = walk->list;
  if (bytes <= 0 || !walk->placed) return;
  vec_push(walk->arena, list->bytes, (EventBytes){p.space, p.at, p.at + bytes, of, written});
  vec_last(list->at).nbytes++;
}

static void touch_value(EventWalk *walk, const EventCall *call, ValueId v, bool written) {
  const Value *x = &call->f->values.at[v];
  touch(walk, place_of(call, v), value_room(call->f, v), value_is_dense(x) ? NULL : x, written);
}

static void begin_event(EventWalk *walk, const Fn *f, OpId op, EventKind kind, int64_t round) {
  EventList *list = walk->list;
  vec_push(walk->arena, list->at,
           (Event){.kind = kind,
                   .f = f,
                   .op = op,
                   .round = round,
                   .start = NO_EVENT,
                   .bytes = list->bytes.n});
}

static void add_copy(EventWalk *walk, const EventCall *call, OpId op, EventPlace to, ValueId from) {
  const Value *x = &call->f->values.at[from];
  if (walk->only || same(place_of(call, from), to)) return;
  begin_event(walk, call->f, op, EVENT_RUN, call->round);
  touch_value(walk, call, from, false);
  touch(walk, to, value_span_bytes(x), value_is_dense(x) ? NULL : x, true);
}

static void add_kernel(EventWalk *walk, const EventCall *call, OpId id) {
  const Op *o = &call->f->ops.at[id];
  if (walk->only) return;
  begin_event(walk, call->f, id, EVENT_RUN, call->round);
  for (uint32_t i = 0; i < o->nin; i++) touch_value(walk, call, o->in[i], false);
  for (uint32_t i = 0; i < o->nout; i++) touch_value(walk, call, o->out + i, true);
  Tier t = kernel_tier(o->callee);
  touch(walk, plus(call->frame[t], attr_int(&o->attrs, tier_work(t), 0)), op_work(o, t), NULL,
        true);
}

static bool is_left_out(const EventWalk *walk, const Op *o) {
  return walk->only && strcmp(walk->only, attr_str(&o->attrs, ATTR_axis, ""));
}

/* The message of op `id` of f, wherever its two buffers are. */
static void add_message(EventWalk *walk, const Fn *f, OpId id, EventKind kind, int64_t round,
                        EventPlace from, EventPlace to) {
  const Op *o = &f->ops.at[id];
  if (is_left_out(walk, o)) return;
  begin_event(walk, f, id, kind, round);
  if (o->nin) touch(walk, from, value_span_bytes(&f->values.at[o->in[0]]), NULL, false);
  touch(walk, to, value_span_bytes(&f->values.at[o->out]), NULL, true);
  if (kind == EVENT_START) vec_push(walk->arena, walk->open, walk->list->at.n - 1);
}

static void add_collective(EventWalk *walk, const EventCall *call, OpId id) {
  const Op *o = &call->f->ops.at[id];
  if (is_left_out(walk, o)) return;
  add_message(walk, call->f, id, op_flies(o) ? EVENT_START : EVENT_COLLECT, call->round,
              o->nin ? place_of(call, o->in[0]) : (EventPlace){SPACE_HOST, 0},
              place_of(call, o->out));
  touch(walk, plus(call->frame[TIER_device], attr_int(&o->attrs, ATTR_work_at, 0)),
        attr_int(&o->attrs, ATTR_workspace, 0), NULL, true);
}

/* The oldest that is on its way from this op has come. */
static void add_end(EventWalk *walk, const Fn *f, OpId op, int64_t round) {
  uint32_t i = 0;
  const EventList *list = walk->list;
  if (walk->only) return;
  while (i < walk->open.n &&
         (list->at.at[walk->open.at[i]].f != f || list->at.at[walk->open.at[i]].op != op))
    i++;
  begin_event(walk, f, op, EVENT_END, round);
  if (i == walk->open.n) return;
  vec_last(walk->list->at).start = walk->open.at[i];
  for (walk->open.n--; i < walk->open.n; i++) walk->open.at[i] = walk->open.at[i + 1];
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
  int64_t ahead;               /* rounds by which a message may precede its own */
  int64_t period, shown, half; /* rounds in the list; from `half` on they are the last ones */
} EventRounds;

static void walk(EventWalk *recompute_walk, const EventCall *call);

/* Which round of the loop round n of the list is. */
static int64_t round_of(const EventRounds *rounds, int64_t n) {
  return n < rounds->half ? n : n + rounds->trip - rounds->shown;
}

static int64_t counter_of(const EventRounds *rounds, int64_t n) {
  int64_t round = round_of(rounds, n);
  return rounds->first + (rounds->reverse ? rounds->trip - 1 - round : round);
}

static EventPlace slice_at(const EventCall *call, const EventRounds *rounds, ValueId v, int64_t n) {
  const Value *x = &call->f->values.at[v];
  int64_t stride = x->storage.stride[type_find(&x->type, rounds->op->group[0].from[0])];
  int64_t i = loop_slice(rounds->op, &x->type, counter_of(rounds, n));
  return plus(place_of(call, v), i * stride * elem_bytes(x->type.elem));
}

/* Where round n leaves carried value j. */
static EventPlace carry_to(const EventCall *call, const EventRounds *rounds, uint32_t j,
                           int64_t n) {
  ValueId result = rounds->op->out + j;
  uint32_t saved = loop_saved(rounds->op, j);
  if (n == rounds->shown - 1 || loop_returns_arg(rounds->op, j, j + 1))
    return place_of(call, result);
  if (saved) return slice_at(call, rounds, rounds->op->out + saved, n + 1);
  int64_t at = loop_second_at(rounds->op, j);
  return (rounds->shown - 1 - n) % 2
             ? plus(call->frame[value_type(call->f, result)->tier], at < 0 ? 0 : at)
             : place_of(call, result);
}

static EventPlace ring_at(const EventCall *call, const EventRounds *rounds, uint32_t i, int64_t n) {
  Ring r = loop_ring(rounds->op, i);
  return plus(call->frame[TIER_device],
              r.at + (r.buffers ? round_of(rounds, n) % r.buffers : 0) * r.bytes);
}

static int64_t common_multiple(int64_t a, int64_t b) { return a / gcd_i64(a, b) * b; }

/* The value that operand or result number k of the loop slices by rounds; NO_VALUE: it does not. */
static ValueId sliced(const EventRounds *rounds, uint32_t k) {
  const Op *o = rounds->op;
  if (k < o->nin) return k < rounds->whole ? NO_VALUE : o->in[k];
  return k - o->nin < rounds->carried ? NO_VALUE : o->out + (k - o->nin);
}

/* Has it a slice for each round in host memory, or of a parameter? */
static bool slices_differ(const EventWalk *walk, const EventCall *call, const EventRounds *rounds) {
  for (uint32_t k = 0; k < rounds->op->nin + rounds->op->nout; k++) {
    ValueId v = sliced(rounds, k);
    if (v == NO_VALUE) continue;
    EventPlace place = place_of(call, v);
    const Global *global = place.space >= TIERS && place.space != SPACE_HOST
                               ? walk->m->globals.at[place.space - TIERS]
                               : NULL;
    if (value_type(call->f, v)->tier != TIER_device || (global && global->kind == GLOBAL_PARAM))
      return true;
  }
  return false;
}

/* Rounds until all buffers come again in their order; rounds that the list has. */
static void find_period(const EventWalk *walk, const EventCall *call, EventRounds *event_rounds) {
  int64_t ahead = 0, more;
  event_rounds->period = 1;
  for (uint32_t j = 0; j < event_rounds->carried; j++)
    if (loop_second_at(event_rounds->op, j) >= 0) event_rounds->period = 2;
  for (uint32_t i = 0; i < event_rounds->flights.n; i++) {
    int64_t rounds = event_rounds->flights.at[i].rounds,
            buffers = flight_buffers(event_rounds->op, &event_rounds->flights.at[i]);
    if (rounds < 0 ? -rounds > ahead : rounds > ahead) ahead = rounds < 0 ? -rounds : rounds;
    if (buffers > 0) event_rounds->period = common_multiple(event_rounds->period, buffers);
  }
  more = walk->periods ? event_rounds->period : 0;
  event_rounds->ahead = ahead;
  event_rounds->half =
      ahead < event_rounds->trip ? 1 + ahead + event_rounds->period + more : event_rounds->trip;
  event_rounds->shown = event_rounds->half + ahead + 1 + more;
  if (event_rounds->shown < event_rounds->trip)
    event_rounds->shown += (event_rounds->trip - event_rounds->shown) % event_rounds->period;
  bool every = walk->every || (walk->periods && slices_differ(walk, call, event_rounds));
  if (every || event_rounds->shown >= event_rounds->trip || op_is_scheduled(event_rounds->op))
    event_rounds->shown = event_rounds->half = event_rounds->trip;
}

/* Starts what round n of the list reads. */
static void add_fetch(EventWalk *walk, const EventCall *call, const EventRounds *rounds, uint32_t i,
                      int64_t n) {
  const Flight *x = &rounds->flights.at[i];
  add_message(walk, rounds->op->callee, x->op, EVENT_START, round_of(rounds, n),
              slice_at(call, rounds, rounds->op->in[x->role - 1], n), ring_at(call, rounds, i, n));
}

static void add_first_fetches(EventWalk *walk, const EventCall *call, const EventRounds *rounds) {
  for (uint32_t i = 0; i < rounds->flights.n; i++)
    for (int64_t n = 0; n < -rounds->flights.at[i].rounds && n < rounds->shown; n++)
      add_fetch(walk, call, rounds, i, n);
}

static void add_fetches(EventWalk *walk, const EventCall *call, const EventRounds *rounds,
                        int64_t n) {
  for (uint32_t i = 0; i < rounds->flights.n; i++) {
    int64_t ahead = -rounds->flights.at[i].rounds;
    if (ahead > 0 && n + ahead < rounds->shown) add_fetch(walk, call, rounds, i, n + ahead);
  }
}

static void add_drains(EventWalk *walk, const EventRounds *rounds, int64_t n) {
  for (uint32_t i = 0; i < rounds->flights.n; i++)
    if (rounds->flights.at[i].rounds > 0)
      add_end(walk, rounds->op->callee, rounds->flights.at[i].op, round_of(rounds, n));
}

static void add_round(EventWalk *event_walk, const EventCall *call, EventRounds *rounds,
                      int64_t n) {
  const Op *o = rounds->op;
  EventCall inner = {.f = o->callee,
                     .in = rounds->in,
                     .out = rounds->out,
                     .ring = rounds->ring,
                     .round = round_of(rounds, n)};
  for (Tier t = 0; t < TIERS; t++)
    inner.frame[t] = plus(call->frame[t], attr_int(&o->attrs, tier_work(t), 0));
  add_fetches(event_walk, call, rounds, n);
  for (uint32_t k = rounds->whole; k < o->nin; k++)
    rounds->in[k + 1] = slice_at(call, rounds, o->in[k], n);
  for (uint32_t k = 0; k < o->nout; k++)
    rounds->out[k] =
        k < rounds->carried ? carry_to(call, rounds, k, n) : slice_at(call, rounds, o->out + k, n);
  for (uint32_t i = 0; i < rounds->flights.n; i++) rounds->ring[i] = ring_at(call, rounds, i, n);
  walk(event_walk, &inner);
  for (uint32_t j = 0; j < rounds->carried; j++) rounds->in[j + 1] = rounds->out[j];
  if (n) add_drains(event_walk, rounds, n - 1);
}

static void start_carry(EventWalk *walk, const EventCall *call, EventRounds *rounds, uint32_t j) {
  ValueId first = rounds->op->in[j];
  uint32_t saved = loop_saved(rounds->op, j);
  EventPlace to = place_of(call, first);
  if (saved) to = slice_at(call, rounds, rounds->op->out + saved, 0);
  else if (loop_returns_arg(rounds->op, j, j + 1)) to = place_of(call, rounds->op->out + j);
  add_copy(walk, call, rounds->id, to, first);
  rounds->in[j + 1] = to;
}

static void add_rounds(EventWalk *walk, const EventCall *call, EventRounds *rounds) {
  EventList *list = walk->list;
  uint32_t since = list->at.n;
  for (int64_t n = 0; n < rounds->shown; n++) {
    if (n == rounds->half - rounds->period) since = list->at.n;
    if (n == rounds->half && rounds->shown < rounds->trip) {
      begin_event(walk, call->f, rounds->id, EVENT_SKIP, call->round);
      Event *event = &vec_last(list->at);
      event->rounds = rounds->trip - rounds->shown, event->period = rounds->period,
      event->since = since;
    }
    add_round(walk, call, rounds, n);
  }
  if (rounds->shown) add_drains(walk, rounds, rounds->shown - 1);
}

static EventRounds begin_rounds(EventWalk *walk, const EventCall *call, OpId id) {
  Arena *arena = walk->arena;
  const Op *o = &call->f->ops.at[id];
  EventRounds rounds = {.op = o, .id = id, .carried = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0)};
  rounds.whole = loop_whole(o), rounds.first = loop_first(o);
  rounds.trip = attr_int(&o->attrs, ATTR_trip, 0),
  rounds.reverse = attr_int(&o->attrs, ATTR_reverse, 0);
  rounds.flights = flights_over(arena, o->callee);
  rounds.in = ARENA_ARRAY(arena, EventPlace, o->nin + 1),
  rounds.out = ARENA_ARRAY(arena, EventPlace, o->nout + 1);
  rounds.ring = ARENA_ARRAY(arena, EventPlace, rounds.flights.n + 1);
  rounds.in[0] = (EventPlace){SPACE_HOST, 0}; /* the counter */
  find_period(walk, call, &rounds);
  for (uint32_t k = rounds.carried; k < o->nout; k++)
    if (loop_continues(o, k) != NO_VALUE)
      add_copy(walk, call, id, place_of(call, o->out + k), o->in[loop_continues(o, k)]);
  for (uint32_t k = rounds.carried; k < rounds.whole; k++)
    rounds.in[k + 1] = place_of(call, o->in[k]);
  for (uint32_t j = 0; j < rounds.carried; j++) start_carry(walk, call, &rounds, j);
  add_first_fetches(walk, call, &rounds);
  return rounds;
}

/* Asked once in every round of the loops around it, so it is kept. */
static bool sends_over(EventWalk *walk, const Fn *f) {
  bool sends = false;
  for (uint32_t i = 0; i < walk->bodies.n; i++)
    if (walk->bodies.at[i].f == f) return walk->bodies.at[i].sends;
  for (OpId i = 0; !sends && i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    sends = o->code == OP_loop ? sends_over(walk, o->callee)
                               : op_family(o->code) == FAMILY_COLLECTIVE && !is_left_out(walk, o);
  }
  vec_push(walk->arena, walk->bodies, (BodySends){f, sends});
  return sends;
}

/* For the messages over one axis, every round is listed: programs of other classes of ranks, which
   are compared with this one, may have other periods. */
static void add_loop(EventWalk *walk, const EventCall *call, OpId id) {
  if (walk->only && !sends_over(walk, call->f->ops.at[id].callee)) return;
  EventRounds rounds = begin_rounds(walk, call, id);
  if (walk->only) rounds.shown = rounds.half = rounds.trip;
  add_rounds(walk, call, &rounds);
}

/* Rounds until all of its buffers come again in their order. */
static int64_t buffers_period(const EventCall *call, const EventRounds *rounds) {
  int64_t period = rounds->period;
  for (uint32_t k = 0; k < rounds->op->nin + rounds->op->nout; k++) {
    ValueId v = sliced(rounds, k);
    int64_t slots = v == NO_VALUE ? 0 : loop_slots(rounds->op, value_type(call->f, v));
    if (slots > 0) period = common_multiple(period, slots);
  }
  return period;
}

/* The turns that the list leaves out: in these, all buffers come again in the order of the turns
   before them. */
static ScheduleRepeat repeat_of(const EventWalk *walk, const EventCall *call,
                                const ScheduleLoops *loops, const EventRounds *rounds,
                                int64_t stage) {
  int64_t unit = 1, ahead = 0;
  if (walk->only || walk->every) return (ScheduleRepeat){0};
  for (int i = 0; i < loops->n; i++) {
    if (walk->periods && slices_differ(walk, call, &rounds[i])) return (ScheduleRepeat){0};
    unit = common_multiple(unit, buffers_period(call, &rounds[i]));
    if (rounds[i].ahead > ahead) ahead = rounds[i].ahead;
    if (unit > loops->table.parts) return (ScheduleRepeat){0};
  }
  return schedule_repeat(&loops->table, stage, unit, ahead);
}

/* Their values are those of the round before the next one. */
static void skip_turns(EventWalk *walk, const EventCall *call, EventRounds *rounds, int n,
                       const ScheduleRepeat *repeat, uint32_t since, ScheduleState *state) {
  begin_event(walk, call->f, rounds[0].id, EVENT_SKIP, call->round);
  Event *event = &vec_last(walk->list->at);
  event->rounds = repeat->times * repeat->parts, event->period = repeat->parts,
  event->since = since;
  for (int i = 0; i < n; i++) {
    state->over[i] += event->rounds;
    for (uint32_t j = 0; j < rounds[i].carried; j++)
      rounds[i].in[j + 1] = carry_to(call, &rounds[i], j, state->over[i] - 1);
  }
}

/* As the table of the rank's stage says. */
static void add_turns(EventWalk *walk, const EventCall *call, const ScheduleLoops *loops) {
  EventRounds rounds[TURN_LOOPS];
  uint32_t since = 0;
  int64_t turn = 0;
  for (int i = 0; i < loops->n; i++) rounds[i] = begin_rounds(walk, call, loops->loop[i]);
  int64_t stage = schedule_stage(walk->m, rounds[0].op, walk->rank);
  ScheduleRepeat repeat = repeat_of(walk, call, loops, rounds, stage);
  for (ScheduleState state = {{0}}; !schedule_done(&loops->table, &state); turn++) {
    if (turn == repeat.from - repeat.turns) since = walk->list->at.n;
    if (repeat.times && turn == repeat.from)
      skip_turns(walk, call, rounds, loops->n, &repeat, since, &state);
    int next = schedule_next(&loops->table, stage, &state);
    add_round(walk, call, &rounds[next], state.over[next]++);
  }
  for (int i = 0; i < loops->n; i++) add_drains(walk, &rounds[i], loops->table.parts - 1);
}

/* ---- functions ---- */

static void add_store(EventWalk *walk, const EventCall *call, OpId id) {
  const Op *o = &call->f->ops.at[id];
  add_copy(walk, call, id, (EventPlace){space_of(walk->m, o->global), 0}, o->in[0]);
}

static void add_wait(EventWalk *walk, const EventCall *call, OpId id) {
  const Op *start = flight_start(call->f, &call->f->ops.at[id]);
  if (start) add_end(walk, call->f, (OpId)(start - call->f->ops.at), call->round);
}

static void walk(EventWalk *event_walk, const EventCall *call) {
  for (OpId i = 0; i < call->f->ops.n; i++) {
    const Op *o = &call->f->ops.at[i];
    ScheduleLoops loops;
    if (schedule_find(call->f, i, &loops))
      add_turns(event_walk, call, &loops), i = schedule_end(&loops);
    else if (o->code == OP_kernel) add_kernel(event_walk, call, i);
    else if (o->code == OP_loop) add_loop(event_walk, call, i);
    else if (o->code == OP_store) add_store(event_walk, call, i);
    else if (o->code == OP_move) add_copy(event_walk, call, i, place_of(call, o->out), o->in[0]);
    else if (o->code == OP_wait) add_wait(event_walk, call, i);
    else if (op_family(o->code) == FAMILY_COLLECTIVE && attr_int(&o->attrs, ATTR_flight, 0) >= 0)
      add_collective(event_walk, call, i); /* else the loop has started it */
  }
}

static void fill(EventWalk walk_of_entry) {
  EventCall call = {.f = walk_of_entry.list->entry, .round = NO_ROUND};
  for (Tier t = 0; t < TIERS; t++) call.frame[t].space = t;
  walk(&walk_of_entry, &call);
}

static EventList events(const Module *m, const Fn *entry, int64_t rank, bool placed, Arena *arena) {
  EventList list = {.entry = entry};
  fill((EventWalk){.m = m, .arena = arena, .list = &list, .rank = rank, .placed = placed});
  return list;
}

EventList events_of(const Module *m, const Fn *entry) {
  return events(m, entry, 0, true, m->arena);
}

EventList events_of_rank(const Module *m, const Fn *entry, int64_t rank, Arena *arena) {
  return events(m, entry, rank, true, arena);
}

EventList events_in_periods(const Module *m, const Fn *entry, int64_t rank, bool every,
                            Arena *arena) {
  EventList list = {.entry = entry};
  fill((EventWalk){.m = m,
                   .arena = arena,
                   .list = &list,
                   .rank = rank,
                   .placed = true,
                   .periods = true,
                   .every = every});
  return list;
}

void messages_of_rank(const Module *m, const Fn *entry, int64_t rank, Str axis, EventList *list) {
  list->entry = entry, list->at.n = 0;
  fill((EventWalk){.m = m, .arena = m->arena, .list = list, .rank = rank, .only = axis});
}

EventList events_in_order(const Module *m, const Fn *entry) {
  return events(m, entry, 0, false, m->arena);
}
