/* The interpreter after pass `memory`: executes entries and bodies in bytes, as the host program
   does, and kernels by their mathematics. It is the oracle of placement.

   Every byte remembers the mark of the value that wrote it last; each value of each call has a mark
   of its own (views share their base's, results of a loop's body are handed over to the loop's). A
   kernel first spoils its workspace and its results that are not in place, then reads its operands
   byte by byte with their marks, then writes: so whatever overlaps is found. A collective does the
   same with its two buffers, which it takes as dense, and exchanges blocks with the machines of its
   peers (interp_ranks.c): what it receives may come before all that it sends is sent.

   Buffers of a loop's carried value: the argument's own, if the body updates it in place; the
   slices of a saved result, if the body returns the argument to be stacked; otherwise two in turn,
   the last round writing the loop's result. Of a stack that several loops write each finds what
   those before have written: the operand's bytes get the mark of the result.

   A message in flight gives what it receives a mark that no value has, until its wait: who reads
   it before then, or writes into what it sends or receives, is found. What was sent arrives as
   late as it can, at the wait, or as early, at the start (interp_set_early): numbers must not
   change. */
#include "interp_placed.h"
#include "ir/flight.h"
#include "ir/support/num.h"
#include "ir/turns.h"

const char interp_alone[] = "the other ranks did not come to this collective";

/* ---- kernels ---- */

/* What a kernel may write before it has read its operands. */
static PlacedAddress work_of(const PlacedCall *c, const Op *op) {
  Tier t = op->code == OP_kernel ? kernel_tier(op->callee) : TIER_device;
  return placed_offset(c->frame[t], attr_int(&op->attrs, tier_work(t), 0));
}

static void spoil_work(PlacedCall *c, const Op *op, int64_t workspace) {
  PlacedAddress work = work_of(c, op);
  if (workspace && !placed_inside(work, workspace))
    placed_error(c, op, "has its workspace outside of the frame", NO_VALUE);
  placed_spoil(work, workspace, placed_new_mark(c));
}

static void spoil_outputs(PlacedCall *c, const Op *op) {
  spoil_work(c, op, attr_int(&op->callee->attrs, ATTR_workspace, 0));
  for (uint32_t i = 0; i < op->nout; i++) {
    c->mark[op->out + i] = placed_new_mark(c);
    bool inplace = c->f->values.at[op->out + i].storage.view == VIEW_INPLACE;
    if (!inplace && !placed_visit(c, op->out + i, NULL, SPOIL))
      placed_error(c, op, "writes outside of its memory:", op->out + i);
  }
}

static unsigned char *byte_of(const PlacedCall *c, ValueId v) {
  PlacedAddress a = placed_address(c, v);
  return a.memory->byte + a.at;
}

/* By whoever else has the kernel: it writes where the marks say that it may. False: nobody has. */
static bool run_given_kernel(PlacedCall *c, const Op *op) {
  Interp *in = c->x->in;
  void **buffers = ARENA_ARRAY(c->x->arena, void *, op->nin + op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    buffers[i] = byte_of(c, op->in[i]);
    if (!placed_visit(c, op->in[i], NULL, READ))
      placed_error(c, op, "reads bytes that are another value's:", op->in[i]);
  }
  for (uint32_t i = 0; i < op->nout; i++) buffers[op->nin + i] = byte_of(c, op->out + i);
  PlacedAddress work = work_of(c, op);
  buffers[op->nin + op->nout] = work.memory->byte + work.at;
  if (!c->x->error && !in->kernel(in->kernel_state, op->callee, buffers)) return false;
  for (uint32_t i = 0; i < op->nout && !c->x->error; i++) placed_visit(c, op->out + i, NULL, OWN);
  return true;
}

static void run_placed_kernel(PlacedCall *c, const Op *op) {
  spoil_outputs(c, op);
  if (c->x->in->kernel && run_given_kernel(c, op)) return;
  Arena *a = arena_new();
  Tensor *args = ARENA_ARRAY(a, Tensor, op->nin + 1),
         *results = ARENA_ARRAY(a, Tensor, op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    args[i] = tensor_new(a, *value_type(c->f, op->in[i]));
    if (!placed_visit(c, op->in[i], &args[i], READ))
      placed_error(c, op, "reads bytes that are another value's:", op->in[i]);
  }
  if (!c->x->error) interp_fn(c->x->in, op->callee, args, a, results);
  for (uint32_t i = 0; i < op->nout && !c->x->error; i++) {
    Tensor t = tensor_in_order(a, &results[i], value_type(c->f, op->out + i));
    placed_visit(c, op->out + i, &t, WRITE);
  }
  arena_free(a);
}

/* ---- collectives ---- */

static void run_placed_collective(PlacedCall *c, const Op *op) {
  Message m = message_of(c->f, op);
  ValueId sent = op->nin ? op->in[0] : op->out; /* without operand: nothing */
  const Type *in = value_type(c->f, sent), *out = value_type(c->f, op->out);
  int64_t size = elem_bytes(in->elem), sends = op->nin ? type_count(in) : 0,
          receives = type_count(out);
  PlacedAddress from = placed_address(c, sent), to = placed_address(c, op->out);
  Mark own = c->mark[sent], mark = c->mark[op->out] = placed_new_mark(c);
  if (!placed_inside(to, receives * size))
    placed_error(c, op, "receives outside of its memory:", op->out);
  if (c->f->values.at[op->out].storage.view != VIEW_INPLACE)
    placed_spoil(to, receives * size, mark);
  spoil_work(c, op, attr_int(&op->attrs, ATTR_workspace, 0));
  if (!placed_marked(from, sends * size, own))
    placed_error(c, op, "sends bytes that are another value's:", sent);
  if (c->x->error) return;
  Arena *a = arena_new();
  double *send = ARENA_ARRAY(a, double, sends + 1), *receive = ARENA_ARRAY(a, double, receives);
  for (int64_t i = 0; i < sends; i++)
    send[i] = placed_decode(from.memory->byte + from.at + i * size, in->elem);
  if (!c->x->in->ranks || !ranks_exchange(c->x->in, op, &m, send, receive))
    c->x->error = interp_alone;
  placed_spoil(to, receives * size, mark);
  for (int64_t i = 0; i < receives; i++)
    placed_encode(to.memory->byte + to.at + i * size, out->elem, receive[i]);
  arena_free(a);
}

/* ---- messages in flight ---- */

static int64_t sent_bytes(const Fn *f, const Op *op) {
  const Type *t = value_type(f, op->in[0]);
  return type_count(t) * elem_bytes(t->elem);
}

static int64_t received_bytes(const Fn *f, const Op *op) {
  const Type *t = value_type(f, op->out);
  return type_count(t) * elem_bytes(t->elem);
}

static double *exchange(PlacedCall *c, const Fn *f, const Flying *x) {
  Elem e = value_type(f, x->op->out)->elem;
  int64_t size = elem_bytes(e), sends = sent_bytes(f, x->op) / size,
          receives = received_bytes(f, x->op) / size;
  Arena *a = c->x->arena;
  double *send = ARENA_ARRAY(a, double, sends + 1), *receive = ARENA_ARRAY(a, double, receives + 1);
  for (int64_t i = 0; i < sends; i++)
    send[i] = placed_decode(x->from.memory->byte + x->from.at + i * size, e);
  if (!c->x->in->ranks || !ranks_exchange(c->x->in, x->op, &x->m, send, receive))
    c->x->error = interp_alone;
  return receive;
}

static void receive(const Fn *f, const Flying *x, Mark mark) {
  Elem e = value_type(f, x->op->out)->elem;
  int64_t size = elem_bytes(e), n = received_bytes(f, x->op) / size;
  placed_spoil(x->to, n * size, mark);
  for (int64_t k = 0; k < n; k++)
    placed_encode(x->to.memory->byte + x->to.at + k * size, e, x->received[k]);
}

/* Of a chain: what the last start of the op before has on its way arrives, and is sent on. Returns
   its mark. */
static Mark send_on(PlacedCall *c, const Fn *f, const Op *before) {
  Flying *x = NULL;
  for (uint32_t i = 0; i < c->x->flying.n; i++)
    if (c->x->flying.at[i].op == before) x = &c->x->flying.at[i];
  if (!x) {
    placed_error(c, before, "was not started", NO_VALUE);
    return 0;
  }
  if (!placed_marked(x->to, received_bytes(f, before), x->mark))
    placed_error(c, before, "finds what it receives written over in flight", NO_VALUE);
  if (!x->received) x->received = exchange(c, f, x);
  if (!c->x->error) receive(f, x, x->mark);
  x->sent_on = true;
  return x->mark;
}

/* What is received has a mark of its own from here on; what is sent stays as it is. */
static void start_flight(PlacedCall *c, const Fn *f, const Op *op, PlacedAddress from, Mark own,
                         PlacedAddress to) {
  bool inplace = f->values.at[op->out].storage.view == VIEW_INPLACE;
  const Op *before = flight_before(f, op);
  if (before) own = send_on(c, f, before);
  Flying x = {.op = op, .m = message_of(f, op), .from = from, .to = to, .own = own};
  x.mark = placed_new_mark(c);
  if (!placed_inside(to, received_bytes(f, op)))
    placed_error(c, op, "receives outside of its memory", NO_VALUE);
  if (!placed_marked(from, sent_bytes(f, op), own))
    placed_error(c, op, "sends bytes that are another value's", NO_VALUE);
  if (c->x->error) return;
  if (inplace) x.own = x.mark;
  else placed_spoil(to, received_bytes(f, op), x.mark);
  for (int64_t i = 0; inplace && i < received_bytes(f, op); i++)
    to.memory->mark[to.at + i] = x.mark;
  x.work = work_of(c, op);
  x.workspace = attr_int(&op->attrs, ATTR_workspace, 0);
  if (x.workspace && !placed_inside(x.work, x.workspace))
    placed_error(c, op, "has its workspace outside of the frame", NO_VALUE);
  if (c->x->error) return;
  placed_spoil(x.work, x.workspace, x.mark);
  if (c->x->in->early) x.received = exchange(c, f, &x);
  vec_push(c->x->arena, c->x->flying, x);
}

/* The oldest that is on its way from this op arrives: its bytes get the mark. */
static void land_flight(PlacedCall *c, const Fn *f, const Op *op, Mark mark) {
  uint32_t i = 0;
  while (i < c->x->flying.n && c->x->flying.at[i].op != op) i++;
  if (i == c->x->flying.n) {
    placed_error(c, op, "is waited for and was not started", NO_VALUE);
    return;
  }
  Flying x = c->x->flying.at[i];
  for (c->x->flying.n--; i < c->x->flying.n; i++) c->x->flying.at[i] = c->x->flying.at[i + 1];
  if (!placed_marked(x.from, sent_bytes(f, op), x.own))
    placed_error(c, op, "finds what it sends written over in flight", NO_VALUE);
  if (!x.sent_on && !placed_marked(x.to, received_bytes(f, op), x.mark))
    placed_error(c, op, "finds what it receives written over in flight", NO_VALUE);
  if (x.workspace && !placed_marked(x.work, x.workspace, x.mark))
    placed_error(c, op, "finds its workspace written over in flight", NO_VALUE);
  if (c->x->error || x.sent_on) return;
  if (!x.received) x.received = exchange(c, f, &x);
  receive(f, &x, mark);
}

/* Starts what starts here. What its loop has started for it is on its way. */
static void run_placed_start(PlacedCall *c, const Op *op) {
  c->mark[op->out] = placed_new_mark(c);
  if (attr_int(&op->attrs, ATTR_flight, 0) >= 0)
    start_flight(c, c->f, op, placed_address(c, op->in[0]), c->mark[op->in[0]],
                 placed_address(c, op->out));
}

static void run_placed_wait(PlacedCall *c, const Op *op) {
  const Op *start = flight_start(c->f, op);
  Mark mark = placed_new_mark(c);
  if (!start) placed_error(c, op, "waits for nothing", op->in[0]);
  else land_flight(c, c->f, start, mark);
  c->mark[op->in[0]] = c->mark[op->out] = mark;
}

/* ---- loops ---- */

static void run_placed(PlacedCall *c);

typedef struct PlacedRounds {
  const Op *op;
  uint32_t carried, whole;
  int64_t trip, first;
  bool reverse;
  Str dim;
  PlacedAddress *in, *out;
  Mark *in_mark, *out_mark; /* out_mark: of stacked results, for all rounds */
  FlightList flights;       /* of the body, over rounds */
  PlacedAddress *ring;      /* of each in this round */
} PlacedRounds;

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
  start_flight(c, l->op->callee, &l->op->callee->ops.at[x->op], from, l->in_mark[x->role],
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
    if (x->rounds > 0) land_flight(c, body, &body->ops.at[x->op], l->out_mark[x->role]);
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

static void placed_round(PlacedCall *c, PlacedRounds *l, int64_t n) {
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
  run_placed(&inner);
  take_results(c, &inner, l, n);
  end_flights(c, l, n > 0);
}

static PlacedRounds begin_rounds(PlacedCall *c, const Op *op) {
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

static void end_rounds(PlacedCall *c, PlacedRounds *l) {
  end_flights(c, l, true);
  for (uint32_t j = 0; j < l->carried; j++) c->mark[l->op->out + j] = l->in_mark[j + 1];
}

static void run_placed_loop(PlacedCall *c, const Op *op) {
  PlacedRounds l = begin_rounds(c, op);
  for (int64_t n = 0; n < l.trip && !c->x->error; n++) placed_round(c, &l, n);
  end_rounds(c, &l);
}

/* ---- functions ---- */

static uint32_t slot_of(const PlacedMachine *x, const Global *g) {
  uint32_t i = 0;
  while (x->in->m->globals.at[i] != g) i++;
  return i;
}

static void run_placed_store(PlacedCall *c, const Op *op) {
  ValueId v = op->in[0];
  uint32_t slot = slot_of(c->x, op->global);
  PlacedAddress to = {&c->x->global[slot], 0}, from = placed_address(c, v);
  if (!placed_same(to, from)) placed_copy(c, op, to, v, placed_new_mark(c));
  c->x->old[slot] = placed_same(to, from) ? c->mark[v] : c->x->last;
}

static void run_placed_view(PlacedCall *c, const Op *op) {
  for (uint32_t i = 0; i < op->nout; i++) {
    const Storage *s = &c->f->values.at[op->out + i].storage;
    if (s->view == VIEW_OF) c->mark[op->out + i] = c->mark[s->base];
    else placed_error(c, op, "is no view:", op->out + i);
  }
}

/* Two loops by the table of the rank's stage (ir/turns.h). */
static void run_placed_turns(PlacedCall *c, const TurnPair *t) {
  const Op *op = c->f->ops.at;
  int64_t most = turns_most(c->x->in->m, &op[t->forward], c->x->in->rank), n = 0, done = 0;
  PlacedRounds forward = begin_rounds(c, &op[t->forward]);
  for (OpId i = t->forward + 1; i < t->backward; i++) run_placed_view(c, &op[i]);
  PlacedRounds backward = begin_rounds(c, &op[t->backward]);
  while (done < t->parts && !c->x->error)
    if (turn_is_forward(most, t->parts, n, done)) placed_round(c, &forward, n++);
    else placed_round(c, &backward, done++);
  end_rounds(c, &forward), end_rounds(c, &backward);
}

/* Nothing runs: what kernels have left at the places of the operands is the result, if it is still
   there. Who reads an operand later finds the mark of another value. */
static void run_placed_concat(PlacedCall *c, const Op *op) {
  if (!op_lays(c->f, op)) placed_error(c, op, "is laid by nobody:", op->out);
  for (uint32_t k = 0; k < op->nin && !c->x->error; k++) {
    if (!placed_same(placed_address(c, op->in[k]),
                     placed_offset(placed_address(c, op->out), laid_at(c->f, op, k))))
      placed_error(c, op, "lies elsewhere than in the result:", op->in[k]);
    if (!placed_visit(c, op->in[k], NULL, READ))
      placed_error(c, op, "not all bytes are its own any more of", op->in[k]);
  }
  c->mark[op->out] = placed_new_mark(c);
  if (!c->x->error && !placed_visit(c, op->out, NULL, OWN))
    placed_error(c, op, "lies outside of its memory:", op->out);
}

static void run_placed_move(PlacedCall *c, const Op *op) {
  Mark mark = placed_new_mark(c);
  placed_copy(c, op, placed_address(c, op->out), op->in[0], mark);
  c->mark[op->out] = mark;
}

static void run_placed(PlacedCall *c) {
  for (OpId i = 0; i < c->f->ops.n && !c->x->error; i++) {
    const Op *op = &c->f->ops.at[i];
    TurnPair t;
    if (turns_begin(c->f, i, &t)) run_placed_turns(c, &t), i = t.backward;
    else if (op->code == OP_kernel) run_placed_kernel(c, op);
    else if (op->code == OP_loop) run_placed_loop(c, op);
    else if (op->code == OP_store) run_placed_store(c, op);
    else if (op_flies(op)) run_placed_start(c, op);
    else if (op->code == OP_wait) run_placed_wait(c, op);
    else if (op->code == OP_move) run_placed_move(c, op);
    else if (op_family(op->code) == FAMILY_COLLECTIVE) run_placed_collective(c, op);
    else if (op->code == OP_concat) run_placed_concat(c, op);
    else if (op->code == OP_load) c->mark[op->out] = slot_of(c->x, op->global) + 1;
    else run_placed_view(c, op);
  }
}

/* Globals go in and come out in the declared order; their marks at the start are 1, 2, .. */
static void exchange_globals(PlacedMachine *x, bool out) {
  for (uint32_t g = 0; g < x->in->m->globals.n; g++) {
    Tensor *t = &x->in->global[g];
    int64_t size = elem_bytes(t->type.elem), n = type_count(&t->type);
    if (!out) {
      x->global[g] = placed_memory(x, x->in->m->globals.at[g]->name, n * size);
      x->old[g] = ++x->last;
      placed_spoil((PlacedAddress){&x->global[g], 0}, n * size, x->last);
    }
    for (int64_t i = 0; i < n; i++) {
      if (out) t->at[i] = placed_decode(x->global[g].byte + i * size, t->type.elem);
      else placed_encode(x->global[g].byte + i * size, t->type.elem, t->at[i]);
    }
  }
}

static void check_globals(PlacedMachine *x) {
  for (uint32_t g = 0; g < x->in->m->globals.n && !x->error; g++)
    if (!placed_marked((PlacedAddress){&x->global[g], 0}, x->global[g].n, x->old[g]))
      x->error = arena_printf(x->in->arena, "global @%s does not hold its value at the end",
                              x->global[g].name);
}

bool interp_run_placed(Interp *in, const char *entry) {
  const Fn *f = interp_entry(in, entry);
  if (!f) return false;
  PlacedMachine x = {.in = in, .arena = arena_new()};
  x.global = ARENA_ARRAY(x.arena, Memory, in->m->globals.n + 1);
  x.old = ARENA_ARRAY(x.arena, Mark, in->m->globals.n + 1);
  exchange_globals(&x, false);
  Memory frame[TIERS];
  PlacedCall c = {.x = &x, .f = f, .mark = ARENA_ARRAY(x.arena, Mark, f->values.n + 1)};
  for (Tier t = 0; t < TIERS; t++) {
    frame[t] = placed_memory(&x, tier_name(t), attr_int(&f->attrs, tier_frame(t), 0));
    c.frame[t].memory = &frame[t];
  }
  run_placed(&c);
  if (x.flying.n) placed_error(&c, x.flying.at[0].op, "is started and never waited for", NO_VALUE);
  check_globals(&x);
  if (!x.error) exchange_globals(&x, true);
  in->error = x.error;
  arena_free(x.arena);
  return !in->error;
}
