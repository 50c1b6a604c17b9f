/* Loops, of the interpreter after pass `memory` (interp_placed.c): where each round finds what it
   carries, reads and leaves, and the messages that a loop starts for its rounds.

   Buffers of a loop's carried value: the argument's own, if the body updates it in place; the
   slices of a saved result, if the body returns the argument to be stacked; otherwise two in turn,
   the last round writing the loop's result. Of a stack that several loops write each finds what
   those before have written: the operand's bytes get the mark of the result. */
#include "interp_rounds.h"
#include "ir/turns.h"

static bool returns_arg(const Op *op, uint32_t result, uint32_t arg) {
  const Storage *s = &op->callee->values.at[op->callee->results.at[result]].storage;
  return s->place == PLACE_ARG && s->slot == arg;
}

/* The stacked result whose slices are the buffers of carried value j, or 0. */
static uint32_t saved_as(const PlacedRounds *l, uint32_t j) {
  for (uint32_t i = l->carried; i < l->op->nout; i++)
    if (returns_arg(l->op, i, j + 1)) return i;
  return 0;
}

static PlacedAddress slice_at(const PlacedCall *c, const PlacedRounds *l, ValueId v, int64_t i) {
  const Value *value = &c->f->values.at[v];
  int64_t stride = value->storage.stride[type_find(&value->type, l->dim)];
  int64_t slots = loop_slots(l->op, &value->type);
  i = slots ? i % slots : i + loop_base(l->op, &value->type);
  return placed_offset(placed_address(c, v), i * stride * elem_bytes(value->type.elem));
}

static PlacedAddress second_buffer(const PlacedCall *c, const PlacedRounds *l, uint32_t j) {
  const Attr *slots = attr_get(&l->op->attrs, ATTR_slots);
  bool there = slots && (int64_t)j < slots->i && slots->list[j] >= 0;
  return placed_offset(c->frame[value_type(c->f, l->op->out + j)->tier],
                       there ? slots->list[j] : 0);
}

static int64_t counter_of(const PlacedRounds *l, int64_t n) {
  return l->first + (l->reverse ? l->trip - 1 - n : n);
}

/* Where round n leaves carried value j. */
static PlacedAddress carry_to(const PlacedCall *c, const PlacedRounds *l, uint32_t j, int64_t n) {
  ValueId result = l->op->out + j;
  uint32_t saved = saved_as(l, j);
  bool last = n == l->trip - 1;
  if (last || returns_arg(l->op, j, j + 1)) return placed_address(c, result);
  if (saved) return slice_at(c, l, l->op->out + saved, counter_of(l, n + 1));
  return (l->trip - 1 - n) % 2 ? second_buffer(c, l, j) : placed_address(c, result);
}

static void start_carry(PlacedCall *c, PlacedRounds *l, uint32_t j) {
  ValueId first = l->op->in[j];
  uint32_t saved = saved_as(l, j);
  PlacedAddress from = placed_address(c, first), to = from;
  if (saved) to = slice_at(c, l, l->op->out + saved, counter_of(l, 0));
  else if (returns_arg(l->op, j, j + 1)) to = placed_address(c, l->op->out + j);
  l->in[j + 1] = to, l->in_mark[j + 1] = c->mark[first];
  if (placed_same(to, from)) return;
  l->in_mark[j + 1] = saved ? l->out_mark[saved] : placed_new_mark(c);
  placed_copy(c, l->op, to, first, l->in_mark[j + 1]);
}

/* A stack that other loops write, too: the operand's bytes, copied unless they stand there. Before
   the first of these loops it is nonsense. */
static void start_stack(PlacedCall *c, PlacedRounds *l, uint32_t k) {
  ValueId result = l->op->out + k;
  uint32_t on = loop_continues(l->op, k);
  if (loop_begins(l->op, k) && c->f->values.at[result].storage.view != VIEW_INPLACE &&
      !placed_visit(c, result, NULL, SPOIL))
    placed_error(c, l->op, "writes outside of its memory:", result);
  if (on == NO_VALUE) return;
  if (!placed_same(placed_address(c, result), l->in[on + 1])) {
    placed_copy(c, l->op, placed_address(c, result), l->op->in[on], l->out_mark[k]);
  } else {
    placed_hand_over(c, l->op, l->op->in[on], l->out_mark[k]);
    l->in_mark[on + 1] = l->out_mark[k];
  }
}

static void set_counter(PlacedCall *c, PlacedRounds *l, int64_t i) {
  Memory *counter = ARENA_NEW(c->x->arena, Memory);
  *counter = placed_memory(c->x, "counter", elem_bytes(ELEM_i32));
  l->in[0] = (PlacedAddress){counter, 0}, l->in_mark[0] = placed_new_mark(c);
  placed_spoil(l->in[0], counter->n, l->in_mark[0]);
  placed_encode(counter->byte, ELEM_i32, (double)i);
}

static PlacedAddress ring_at(const PlacedCall *c, const PlacedRounds *l, uint32_t i, int64_t n) {
  Ring r = loop_ring(l->op, i);
  return placed_offset(c->frame[TIER_device], r.at + (r.buffers ? n % r.buffers : 0) * r.bytes);
}

/* Starts what round n reads, if there is such a round. */
static void start_fetch(PlacedCall *c, PlacedRounds *l, uint32_t i, int64_t n) {
  const Flight *x = &l->flights.at[i];
  if (n >= l->trip || x->rounds > 0) return;
  PlacedAddress from = slice_at(c, l, l->op->in[x->role - 1], counter_of(l, n));
  placed_start_flight(c, l->op->callee, &l->op->callee->ops.at[x->op], from, l->in_mark[x->role],
                      ring_at(c, l, i, n));
}

static void start_first_fetches(PlacedCall *c, PlacedRounds *l) {
  for (int64_t n = 0; n < l->trip; n++)
    for (uint32_t i = 0; i < l->flights.n; i++)
      if (n < -l->flights.at[i].rounds) start_fetch(c, l, i, n);
}

/* Of round n: what the loop starts for later ones, and where this one finds its rings. */
static void begin_flights(PlacedCall *c, PlacedRounds *l, int64_t n) {
  for (uint32_t i = 0; i < l->flights.n; i++) {
    start_fetch(c, l, i, n - l->flights.at[i].rounds);
    l->ring[i] = ring_at(c, l, i, n);
    if (l->flights.at[i].rounds > 0)
      placed_spoil(l->ring[i], loop_ring(l->op, i).bytes, placed_new_mark(c));
  }
}

/* What the round before has sent on its way arrives behind this one; at the end, the last. */
static void end_flights(PlacedCall *c, PlacedRounds *l, bool any) {
  const Fn *body = l->op->callee;
  for (uint32_t i = 0; any && i < l->flights.n && !c->x->error; i++) {
    const Flight *x = &l->flights.at[i];
    if (x->rounds > 0) placed_land_flight(c, body, &body->ops.at[x->op], l->out_mark[x->role]);
  }
}

static bool arrives_later(const PlacedRounds *l, uint32_t result) {
  for (uint32_t i = 0; i < l->flights.n; i++)
    if (l->flights.at[i].rounds > 0 && l->flights.at[i].role == result) return true;
  return false;
}

/* The results of a round become the loop's: stacked slices, and what the next round is given. */
static void take_results(PlacedCall *c, PlacedCall *inner, PlacedRounds *l, int64_t n) {
  const Op *op = l->op;
  for (uint32_t k = op->nout;
       k-- > 0 && !c->x->error;) { /* stacked ones first: they may be arguments */
    ValueId result = inner->f->results.at[k];
    if (!placed_same(placed_address(inner, result), l->out[k]))
      placed_error(c, op, "finds a result elsewhere than expected:", op->out + k);
    if (arrives_later(l, k)) continue;
    uint32_t saved = k < l->carried && n < l->trip - 1 ? saved_as(l, k) : 0;
    Mark mark = k >= l->carried ? l->out_mark[k] : saved ? l->out_mark[saved] : placed_new_mark(c);
    placed_hand_over(inner, NULL, result, mark);
    if (k < l->carried) l->in[k + 1] = l->out[k], l->in_mark[k + 1] = mark;
  }
}

void placed_round(PlacedCall *c, PlacedRounds *l, int64_t n) {
  const Op *op = l->op;
  const Fn *body = op->callee;
  int64_t i = counter_of(l, n);
  set_counter(c, l, i);
  for (uint32_t k = l->whole; k < op->nin; k++) l->in[k + 1] = slice_at(c, l, op->in[k], i);
  for (uint32_t k = 0; k < op->nout; k++)
    l->out[k] = k < l->carried ? carry_to(c, l, k, n) : slice_at(c, l, op->out + k, i);
  begin_flights(c, l, n);
  PlacedCall inner = {.x = c->x, .f = body, .in = l->in, .out = l->out, .ring = l->ring};
  inner.mark = ARENA_ARRAY(c->x->arena, Mark, body->values.n + 1);
  for (Tier t = 0; t < TIERS; t++) {
    int64_t frame = op_work(op, t);
    inner.frame[t] = placed_offset(c->frame[t], attr_int(&op->attrs, tier_work(t), 0));
    if (frame && !placed_inside(inner.frame[t], frame))
      placed_error(c, op, "has its body's frame outside of the frame", NO_VALUE);
    placed_spoil(inner.frame[t], frame, placed_new_mark(c));
  }
  for (uint32_t k = 0; k < body->args.n; k++) inner.mark[body->args.at[k]] = l->in_mark[k];
  placed_run(&inner);
  take_results(c, &inner, l, n);
  end_flights(c, l, n > 0);
}

PlacedRounds placed_begin_rounds(PlacedCall *c, const Op *op) {
  Arena *a = c->x->arena;
  PlacedRounds l = {.op = op, .carried = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0)};
  l.whole = loop_whole(op), l.first = loop_first(op);
  l.trip = attr_int(&op->attrs, ATTR_trip, 0), l.reverse = attr_int(&op->attrs, ATTR_reverse, 0);
  l.dim = op->group[0].from[0];
  l.in = ARENA_ARRAY(a, PlacedAddress, op->nin + 1),
  l.out = ARENA_ARRAY(a, PlacedAddress, op->nout + 1);
  l.in_mark = ARENA_ARRAY(a, Mark, op->nin + 1), l.out_mark = ARENA_ARRAY(a, Mark, op->nout + 1);
  for (uint32_t k = l.carried; k < op->nout; k++)
    l.out_mark[k] = c->mark[op->out + k] = placed_new_mark(c);
  for (uint32_t k = l.carried; k < op->nin; k++)
    l.in[k + 1] = placed_address(c, op->in[k]), l.in_mark[k + 1] = c->mark[op->in[k]];
  for (uint32_t k = l.carried; k < op->nout; k++) start_stack(c, &l, k);
  for (uint32_t j = 0; j < l.carried; j++) start_carry(c, &l, j);
  l.flights = flights_over(a, op->callee);
  l.ring = ARENA_ARRAY(a, PlacedAddress, l.flights.n + 1);
  start_first_fetches(c, &l);
  return l;
}

void placed_end_rounds(PlacedCall *c, PlacedRounds *l) {
  end_flights(c, l, true);
  for (uint32_t j = 0; j < l->carried; j++) c->mark[l->op->out + j] = l->in_mark[j + 1];
}

void placed_run_loop(PlacedCall *c, const Op *op) {
  PlacedRounds l = placed_begin_rounds(c, op);
  for (int64_t n = 0; n < l.trip && !c->x->error; n++) placed_round(c, &l, n);
  placed_end_rounds(c, &l);
}
