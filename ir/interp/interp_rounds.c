/* Loops, of the interpreter after pass `memory` (interp_placed.c): the bytes of the values that
   each round carries, reads and leaves, and the messages that a loop starts for its rounds.

   Buffers of a loop's carried value: the argument's own, if the body updates it in place; the
   slices of a saved result, if the body returns the argument to be stacked; otherwise two in turn,
   the last round writing the loop's result. If several loops write a stack, each finds the slices
   written before: the operand's bytes get the mark of the result. */
#include "interp_rounds.h"
#include "ir/schedule/pipeline_schedule.h"

static PlacedAddress slice_at(const PlacedCall *call, const PlacedRounds *rounds, ValueId v,
                              int64_t i) {
  const Value *value = &call->f->values.at[v];
  int64_t stride = value->storage.stride[type_find(&value->type, rounds->dim)];
  int64_t slice = loop_slice(rounds->op, &value->type, i);
  return placed_offset(placed_address(call, v), slice * stride * elem_bytes(value->type.elem));
}

static PlacedAddress second_buffer(const PlacedCall *call, const PlacedRounds *rounds, uint32_t j) {
  int64_t at = loop_second_at(rounds->op, j);
  return placed_offset(call->frame[value_type(call->f, rounds->op->out + j)->tier],
                       at < 0 ? 0 : at);
}

static int64_t counter_of(const PlacedRounds *rounds, int64_t n) {
  return rounds->first + (rounds->reverse ? rounds->trip - 1 - n : n);
}

/* Where round n leaves carried value j. */
static PlacedAddress carry_to(const PlacedCall *call, const PlacedRounds *rounds, uint32_t j,
                              int64_t n) {
  ValueId result = rounds->op->out + j;
  uint32_t saved = loop_saved(rounds->op, j);
  bool last = n == rounds->trip - 1;
  if (last || loop_returns_arg(rounds->op, j, j + 1)) return placed_address(call, result);
  if (saved) return slice_at(call, rounds, rounds->op->out + saved, counter_of(rounds, n + 1));
  return (rounds->trip - 1 - n) % 2 ? second_buffer(call, rounds, j) : placed_address(call, result);
}

static void start_carry(PlacedCall *call, PlacedRounds *rounds, uint32_t j) {
  ValueId first = rounds->op->in[j];
  uint32_t saved = loop_saved(rounds->op, j);
  PlacedAddress from = placed_address(call, first), to = from;
  if (saved) to = slice_at(call, rounds, rounds->op->out + saved, counter_of(rounds, 0));
  else if (loop_returns_arg(rounds->op, j, j + 1)) to = placed_address(call, rounds->op->out + j);
  rounds->in[j + 1] = to, rounds->in_mark[j + 1] = call->mark[first];
  if (placed_same(to, from)) return;
  rounds->in_mark[j + 1] = saved ? rounds->out_mark[saved] : placed_new_mark(call);
  placed_copy(call, rounds->op, to, first, rounds->in_mark[j + 1]);
}

/* A stack that other loops write as well: the operand's bytes, copied unless they are the result's.
   Before the first of these loops its contents are nonsense. */
static void start_stack(PlacedCall *call, PlacedRounds *rounds, uint32_t k) {
  ValueId result = rounds->op->out + k;
  uint32_t on = loop_continues(rounds->op, k);
  if (loop_begins(rounds->op, k) && call->f->values.at[result].storage.view != VIEW_INPLACE &&
      !placed_visit(call, result, NULL, SPOIL))
    placed_error(call, rounds->op, "writes outside of its memory:", result);
  if (on == NO_VALUE) return;
  if (!placed_same(placed_address(call, result), rounds->in[on + 1])) {
    placed_copy(call, rounds->op, placed_address(call, result), rounds->op->in[on],
                rounds->out_mark[k]);
  } else {
    placed_hand_over(call, rounds->op, rounds->op->in[on], rounds->out_mark[k]);
    rounds->in_mark[on + 1] = rounds->out_mark[k];
  }
}

static void set_counter(PlacedCall *call, PlacedRounds *rounds, int64_t i) {
  Memory *counter = ARENA_NEW(call->x->arena, Memory);
  *counter = placed_memory(call->x, "counter", elem_bytes(ELEM_i32));
  rounds->in[0] = (PlacedAddress){counter, 0}, rounds->in_mark[0] = placed_new_mark(call);
  placed_spoil(rounds->in[0], counter->n, rounds->in_mark[0]);
  placed_write(rounds->in[0], ELEM_i32, &(double){(double)i}, 1);
}

static PlacedAddress ring_at(const PlacedCall *call, const PlacedRounds *rounds, uint32_t i,
                             int64_t n) {
  Ring ring = loop_ring(rounds->op, i);
  return placed_offset(call->frame[TIER_device],
                       ring.at + (ring.buffers ? n % ring.buffers : 0) * ring.bytes);
}

/* Starts what round n reads, if there is such a round. */
static void start_fetch(PlacedCall *call, PlacedRounds *rounds, uint32_t i, int64_t n) {
  const Flight *flight = &rounds->flights.at[i];
  if (n >= rounds->trip || flight->rounds > 0) return;
  PlacedAddress from =
      slice_at(call, rounds, rounds->op->in[flight->role - 1], counter_of(rounds, n));
  const Op *op = &rounds->op->callee->ops.at[flight->op];
  placed_begin_operation(call, op, STREAM_compute, n);
  placed_start_flight(call, rounds->op->callee, op, from, rounds->in_mark[flight->role],
                      ring_at(call, rounds, i, n));
  placed_end_operation(call, op);
}

static void start_first_fetches(PlacedCall *call, PlacedRounds *rounds) {
  for (int64_t n = 0; n < rounds->trip; n++)
    for (uint32_t i = 0; i < rounds->flights.n; i++)
      if (n < -rounds->flights.at[i].rounds) start_fetch(call, rounds, i, n);
}

/* Before round n: starts the loop's messages for later rounds, and selects the ring slots of this
   one. */
static void begin_flights(PlacedCall *call, PlacedRounds *rounds, int64_t n) {
  for (uint32_t i = 0; i < rounds->flights.n; i++) {
    start_fetch(call, rounds, i, n - rounds->flights.at[i].rounds);
    rounds->ring[i] = ring_at(call, rounds, i, n);
    if (rounds->flights.at[i].rounds > 0)
      placed_spoil(rounds->ring[i], loop_ring(rounds->op, i).bytes, placed_new_mark(call));
  }
}

/* Messages started in the previous round arrive after this one; at the end, the last ones
   arrive. */
static void end_flights(PlacedCall *call, PlacedRounds *rounds, bool any) {
  const Fn *body = rounds->op->callee;
  for (uint32_t i = 0; any && i < rounds->flights.n && !call->x->error; i++) {
    const Flight *flight = &rounds->flights.at[i];
    if (flight->rounds > 0)
      placed_land_flight(call, body, &body->ops.at[flight->op], rounds->out_mark[flight->role]);
  }
}

static bool arrives_later(const PlacedRounds *rounds, uint32_t result) {
  for (uint32_t i = 0; i < rounds->flights.n; i++)
    if (rounds->flights.at[i].rounds > 0 && rounds->flights.at[i].role == result) return true;
  return false;
}

/* The results of a round become the loop's: stacked slices, and what the next round is given. */
static void take_results(PlacedCall *call, PlacedCall *inner, PlacedRounds *rounds, int64_t n) {
  const Op *op = rounds->op;
  for (uint32_t k = op->nout;
       k-- > 0 && !call->x->error;) { /* stacked ones first: they may be arguments */
    ValueId result = inner->f->results.at[k];
    if (!placed_same(placed_address(inner, result), rounds->out[k]))
      placed_error(call, op, "finds a result elsewhere than expected:", op->out + k);
    if (arrives_later(rounds, k)) continue;
    uint32_t saved = k < rounds->carried && n < rounds->trip - 1 ? loop_saved(rounds->op, k) : 0;
    Mark mark = k >= rounds->carried ? rounds->out_mark[k]
                : saved              ? rounds->out_mark[saved]
                                     : placed_new_mark(call);
    placed_hand_over(inner, NULL, result, mark);
    if (k < rounds->carried) rounds->in[k + 1] = rounds->out[k], rounds->in_mark[k + 1] = mark;
  }
}

void placed_round(PlacedCall *call, PlacedRounds *rounds, int64_t n) {
  const Op *op = rounds->op;
  const Fn *body = op->callee;
  int64_t i = counter_of(rounds, n);
  set_counter(call, rounds, i);
  for (uint32_t k = rounds->whole; k < op->nin; k++)
    rounds->in[k + 1] = slice_at(call, rounds, op->in[k], i);
  for (uint32_t k = 0; k < op->nout; k++)
    rounds->out[k] =
        k < rounds->carried ? carry_to(call, rounds, k, n) : slice_at(call, rounds, op->out + k, i);
  begin_flights(call, rounds, n);
  PlacedCall inner = {.x = call->x,
                      .f = body,
                      .in = rounds->in,
                      .out = rounds->out,
                      .ring = rounds->ring,
                      .round = n};
  inner.mark = ARENA_ARRAY(call->x->arena, Mark, body->values.n + 1);
  for (Tier t = 0; t < TIERS; t++) {
    int64_t frame = op_work(op, t);
    inner.frame[t] = placed_offset(call->frame[t], attr_int(&op->attrs, tier_work(t), 0));
    if (frame && !placed_inside(inner.frame[t], frame))
      placed_error(call, op, "has its body's frame outside of the frame", NO_VALUE);
    placed_spoil(inner.frame[t], frame, placed_new_mark(call));
  }
  for (uint32_t k = 0; k < body->args.n; k++) inner.mark[body->args.at[k]] = rounds->in_mark[k];
  placed_run(&inner);
  take_results(call, &inner, rounds, n);
  end_flights(call, rounds, n > 0);
}

PlacedRounds placed_begin_rounds(PlacedCall *call, const Op *op) {
  Arena *arena = call->x->arena;
  PlacedRounds rounds = {.op = op, .carried = (uint32_t)attr_int(&op->attrs, ATTR_carry, 0)};
  rounds.whole = loop_whole(op), rounds.first = loop_first(op);
  rounds.trip = attr_int(&op->attrs, ATTR_trip, 0),
  rounds.reverse = attr_int(&op->attrs, ATTR_reverse, 0);
  rounds.dim = op->group[0].from[0];
  rounds.in = ARENA_ARRAY(arena, PlacedAddress, op->nin + 1),
  rounds.out = ARENA_ARRAY(arena, PlacedAddress, op->nout + 1);
  rounds.in_mark = ARENA_ARRAY(arena, Mark, op->nin + 1),
  rounds.out_mark = ARENA_ARRAY(arena, Mark, op->nout + 1);
  for (uint32_t k = rounds.carried; k < op->nout; k++)
    rounds.out_mark[k] = call->mark[op->out + k] = placed_new_mark(call);
  for (uint32_t k = rounds.carried; k < op->nin; k++)
    rounds.in[k + 1] = placed_address(call, op->in[k]),
                  rounds.in_mark[k + 1] = call->mark[op->in[k]];
  for (uint32_t k = rounds.carried; k < op->nout; k++) start_stack(call, &rounds, k);
  for (uint32_t j = 0; j < rounds.carried; j++) start_carry(call, &rounds, j);
  rounds.flights = flights_over(arena, op->callee);
  rounds.ring = ARENA_ARRAY(arena, PlacedAddress, rounds.flights.n + 1);
  start_first_fetches(call, &rounds);
  return rounds;
}

/* A stack of more than these rounds, in place of another one that is not read any more. */
static void end_stack(PlacedCall *call, const PlacedRounds *rounds, uint32_t k) {
  ValueId result = rounds->op->out + k;
  const Storage *storage = &call->f->values.at[result].storage;
  if (loop_begins(rounds->op, k) && storage->view == VIEW_INPLACE)
    placed_spoil_rest(call, result, call->mark[storage->base]);
}

void placed_end_rounds(PlacedCall *call, PlacedRounds *rounds) {
  end_flights(call, rounds, true);
  for (uint32_t k = rounds->carried; k < rounds->op->nout; k++) end_stack(call, rounds, k);
  for (uint32_t j = 0; j < rounds->carried; j++)
    call->mark[rounds->op->out + j] = rounds->in_mark[j + 1];
}

void placed_run_loop(PlacedCall *call, const Op *op) {
  PlacedRounds rounds = placed_begin_rounds(call, op);
  for (int64_t n = 0; n < rounds.trip && !call->x->error; n++) placed_round(call, &rounds, n);
  placed_end_rounds(call, &rounds);
}
