/* Messages in flight (flight.h): every start has exactly one wait, and until then nothing reads the
   received bytes, and nothing writes the bytes that are sent or received.

   For a flight inside one function the wait is a view of the result and reads the operand. The
   rules of views, of in-place results and of bytes in use at the same time (verify_storage.c)
   therefore hold for both buffers until the wait; this file checks that there is one wait, and that
   all readers read the wait.

   A flight over rounds has buffers in rings, whose slots its loop takes in turn: this file checks
   that nothing else uses these bytes, and that slots are as many and as large as the rounds need. A
   wrong start or wait would be a race, or a rank that waits for ever, which no comparison of
   results finds reliably; so all of it is proved statically. */
#include "ir/schedule/flight.h"
#include "verify.h"

enum { ALIGNED = 16 };

static void wrong(Verifier *verifier, const Op *op, const char *label, const char *what) {
  verify_report(verifier, "E1111", verify_at_op(op), "[%s] %s", label, what);
}

static uint32_t count_reads(const Fn *f, ValueId x, OpId *last) {
  uint32_t n = 0;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == x) n++, *last = i;
  return n;
}

static uint32_t count_returns(const Fn *f, ValueId x) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < f->results.n; i++) n += f->results.at[i] == x;
  return n;
}

static void check_start(Verifier *verifier, OpId id) {
  const Fn *f = verifier->fn;
  const Op *op = &f->ops.at[id];
  OpId reader = id;
  if (!op_can_fly(op) || attr_int(&op->attrs, ATTR_flight, 0) > 1)
    wrong(verifier, op, "flight-c1", "this op cannot fly, or not so");
  else if (attr_int(&op->attrs, ATTR_flight, 0) > 0) return;
  else if (count_reads(f, op->out, &reader) != 1 || f->ops.at[reader].code != OP_wait ||
           f->ops.at[reader].in[0] != op->out || count_returns(f, op->out))
    wrong(verifier, op, "flight-c2",
          "what a started collective receives is read by its wait alone");
}

static void check_wait(Verifier *verifier, const Op *op) {
  const Op *start = flight_start(verifier->fn, op);
  if (!start || attr_int(&start->attrs, ATTR_flight, 0) > 0 || op->nin > 2) {
    wrong(verifier, op, "flight-c3", "a wait for what nobody has started");
    return;
  }
  bool inplace = verifier->fn->values.at[start->out].storage.view == VIEW_INPLACE;
  if (op->nin != (inplace ? 1 : 2) || (!inplace && op->in[1] != start->in[0]))
    wrong(verifier, op, "flight-c3",
          "a wait reads what is received and, unless they are one, what is sent");
}

/* ---- over rounds ---- */

static bool written_after(const Fn *f, const ValueId *class, ValueId x, OpId id) {
  for (ValueId w = 0; w < f->values.n; w++)
    if (class[w] == class[x] && f->values.at[w].def != NO_OP && f->values.at[w].def > id &&
        f->values.at[w].storage.view != VIEW_OF)
      return true;
  return false;
}

static bool fetch_fits(const Fn *f, const Flight *flight) {
  return f->kind == FN_BODY && f->ops.at[flight->op].code == OP_all_gather && flight->role > 0 &&
         flight->role < f->args.n;
}

/* Only what is sent on in its place shares the bytes. */
static bool is_alone(const Fn *f, const ValueId *class, const Op *op) {
  for (ValueId w = 0; w < f->values.n; w++) {
    const Op *def = value_def(f, w);
    bool sent_on = def && (def == flight_before(f, op) || def == flight_behind(f, op));
    if (w != op->out && class[w] == class[op->out] && !sent_on) return false;
  }
  return true;
}

/* No op of the round reads the arriving value, except to send it on, and no argument has its
   bytes. */
static bool drain_fits(const Fn *f, const ValueId *class, const Flight *flight) {
  const Op *op = &f->ops.at[flight->op], *next = flight_behind(f, op);
  OpId reader = 0;
  bool sums = op->code == OP_all_reduce && flight->crosses == NO_VALUE;
  if (f->kind != FN_BODY || flight->role >= f->results.n ||
      (op->code != OP_reduce_scatter && !sums))
    return false;
  return is_alone(f, class, op) && count_reads(f, op->out, &reader) == (next ? 1 : 0) &&
         count_returns(f, op->out) == (next ? 0 : 1);
}

static void check_crossing(Verifier *verifier, const ValueId *class, const Flight *flight) {
  const Fn *f = verifier->fn;
  const Op *op = &f->ops.at[flight->op];
  bool early = flight->rounds < 0;
  if (!op_can_cross(op))
    wrong(verifier, op, "flight-c4", "what needs a workspace flies over no rounds");
  else if (early ? !fetch_fits(f, flight) : !drain_fits(f, class, flight))
    wrong(verifier, op, "flight-c4",
          early ? "only an all_gather of an argument of a body is started in a round before"
                : "only a reduce_scatter that nothing reads, or that is sent on, into a result of "
                  "its own, is waited for in the next round");
  else if (flight->crosses == NO_VALUE) return;
  else if (flight_in_caller(f, class, flight->crosses))
    wrong(verifier, op, "flight-c5",
          "the buffer of a message that crosses rounds is in bytes of the caller");
  else if (!early && written_after(f, class, flight->crosses, flight->op))
    wrong(verifier, op, "flight-c5", "what is sent is written again while it flies");
}

/* The loop hands each round what it must start or wait for: slices. */
static void check_loop(Verifier *verifier, const Op *loop) {
  FlightList list = flights_over(verifier->m->arena, loop->callee);
  uint32_t carry = (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0);
  for (uint32_t i = 0; i < list.n; i++) {
    const Flight *flight = &list.at[i];
    if (flight->rounds < 0 ? flight->role <= loop_whole(loop) : flight->role < carry)
      wrong(verifier, loop, "flight-c6",
            "the value of a message that crosses the body's rounds is no slice in this loop");
  }
}

void verify_landed(Verifier *verifier) {
  EACH_OP (verifier->fn, op)
    if (op_flies(op) || op->code == OP_wait)
      wrong(verifier, op, "flight-c1", "nothing flies before pass `select`");
}

void verify_flights(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (OpId i = 0; i < f->ops.n; i++) {
    if (op_flies(&f->ops.at[i])) check_start(verifier, i);
    if (f->ops.at[i].code == OP_wait) check_wait(verifier, &f->ops.at[i]);
    if (f->ops.at[i].code == OP_loop) check_loop(verifier, &f->ops.at[i]);
  }
  if (verifier->failed || f->kind == FN_KERNEL) return;
  const ValueId *class = shared_bytes(verifier->m->arena, f).of;
  FlightList list = flights_over(verifier->m->arena, f);
  for (uint32_t i = 0; i < list.n; i++) check_crossing(verifier, class, &list.at[i]);
}

/* ---- after memory ---- */

/* Values that cross rounds are in their ring, from the ring's start on, and nothing else is. */
static void check_places(Verifier *verifier, const FlightList *list) {
  const Fn *f = verifier->fn;
  const ValueId *class = shared_bytes(verifier->m->arena, f).of;
  for (ValueId x = 0; x < f->values.n; x++) {
    const Storage *storage = &f->values.at[x].storage;
    const Op *def = value_def(f, x);
    uint32_t of = 0;
    while (of < list->n &&
           (list->at[of].crosses == NO_VALUE || class[list->at[of].crosses] != class[x]))
      of++;
    bool here = storage->place == PLACE_RING,
         fits = here ? storage->slot == of && of < list->n : of == list->n;
    if (!fits || (here && class[x] == x && storage->at))
      verify_report(
          verifier, "E1111", def ? verify_at_op(def) : verify_at_fn(verifier),
          "[flight-c7] a value of @%s is in a ring that is not its own, or not in its own",
          f->name);
  }
}

static void check_rings(Verifier *verifier, const Op *loop) {
  FlightList list = flights_over(verifier->m->arena, loop->callee);
  const Attr *attr = attr_get(&loop->attrs, ATTR_ring);
  int64_t frame = attr_int(&verifier->fn->attrs, ATTR_frame, 0), all;
  bool fine = (attr ? attr->i : 0) == 3 * (int64_t)list.n;
  for (uint32_t i = 0; fine && i < list.n; i++) {
    Ring ring = loop_ring(loop, i);
    fine = ring.buffers == flight_buffers(loop, &list.at[i]) &&
           ring.bytes >= flight_bytes(loop->callee, i) &&
           !__builtin_mul_overflow(ring.bytes, ring.buffers, &all) &&
           verify_fits(ring.at, all, frame) && ring.at % ALIGNED == 0 && ring.bytes % ALIGNED == 0;
  }
  if (!fine)
    wrong(verifier, loop, "flight-c8", "the rings of a loop are not what its body's messages need");
}

void verify_rings(Verifier *verifier) {
  const Fn *f = verifier->fn;
  FlightList list = flights_over(verifier->m->arena, f);
  check_places(verifier, &list);
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop) check_rings(verifier, &f->ops.at[i]);
}
