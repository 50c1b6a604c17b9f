/* Messages in flight, of the interpreter after pass `memory` (interp_placed.c).

   A message in flight gives the bytes that it receives a mark that no value has, until its wait: so
   a reader of these bytes before the wait is found, and so is a write into bytes that are sent or
   received. Messages arrive as late as they can, at the wait, or as early, at the start
   (interp_set_early): results must not change. */
#include "interp_rounds.h"

static int64_t sent_bytes(const Fn *f, const Op *op) {
  const Type *t = value_type(f, op->in[0]);
  return type_dense_bytes(t);
}

static int64_t received_bytes(const Fn *f, const Op *op) {
  const Type *t = value_type(f, op->out);
  return type_dense_bytes(t);
}

static double *exchange(PlacedCall *call, const Fn *f, const Flying *flying) {
  Elem e = value_type(f, flying->op->out)->elem;
  int64_t size = elem_bytes(e), sends = sent_bytes(f, flying->op) / size,
          receives = received_bytes(f, flying->op) / size;
  Arena *arena = call->x->arena;
  double *send = ARENA_ARRAY(arena, double, sends + 1),
         *receive = ARENA_ARRAY(arena, double, receives + 1);
  placed_read(flying->from, e, send, sends);
  if (!call->x->in->ranks || !ranks_exchange(call->x->in, f, flying->op, &flying->m, send, receive))
    call->x->error = interp_alone;
  return receive;
}

static void receive(const Fn *f, const Flying *flying, Mark mark) {
  Elem e = value_type(f, flying->op->out)->elem;
  int64_t size = elem_bytes(e), n = received_bytes(f, flying->op) / size;
  placed_spoil(flying->to, n * size, mark);
  placed_write(flying->to, e, flying->received, n);
}

/* In a chain: the latest message of the previous op arrives and is sent on. Returns its mark. */
static Mark send_on(PlacedCall *call, const Fn *f, const Op *before) {
  Flying *flying = NULL;
  for (uint32_t i = 0; i < call->x->flying.n; i++)
    if (call->x->flying.at[i].op == before) flying = &call->x->flying.at[i];
  if (!flying) {
    placed_error(call, before, "was not started", NO_VALUE);
    return 0;
  }
  if (!placed_marked(flying->to, received_bytes(f, before), flying->mark))
    placed_error(call, before, "finds what it receives written over in flight", NO_VALUE);
  if (!flying->received) flying->received = exchange(call, f, flying);
  if (!call->x->error) receive(f, flying, flying->mark);
  flying->sent_on = true;
  return flying->mark;
}

/* The received bytes have a mark of their own from now on; the sent bytes keep theirs. */
void placed_start_flight(PlacedCall *call, const Fn *f, const Op *op, PlacedAddress from, Mark own,
                         PlacedAddress to) {
  bool inplace = f->values.at[op->out].storage.view == VIEW_INPLACE;
  placed_touch(from, sent_bytes(f, op), false), placed_touch(to, received_bytes(f, op), true);
  const Op *before = flight_before(f, op);
  if (before) own = send_on(call, f, before);
  Flying flying = {.op = op, .m = message_of(f, op), .from = from, .to = to, .own = own};
  flying.mark = placed_new_mark(call);
  if (!placed_inside(to, received_bytes(f, op)))
    placed_error(call, op, "receives outside of its memory", NO_VALUE);
  if (!placed_marked(from, sent_bytes(f, op), own))
    placed_error(call, op, "sends bytes that are another value's", NO_VALUE);
  if (call->x->error) return;
  if (inplace) flying.own = flying.mark;
  else placed_spoil(to, received_bytes(f, op), flying.mark);
  for (int64_t i = 0; inplace && i < received_bytes(f, op); i++)
    to.memory->mark[to.at + i] = flying.mark;
  flying.work = placed_work(call, op);
  flying.workspace = attr_int(&op->attrs, ATTR_workspace, 0);
  if (flying.workspace && !placed_inside(flying.work, flying.workspace))
    placed_error(call, op, "has its workspace outside of the frame", NO_VALUE);
  if (call->x->error) return;
  placed_spoil(flying.work, flying.workspace, flying.mark);
  if (call->x->in->early) flying.received = exchange(call, f, &flying);
  vec_push(call->x->arena, call->x->flying, flying);
}

/* The oldest that is on its way from this op arrives: its bytes get the mark. */
void placed_land_flight(PlacedCall *call, const Fn *f, const Op *op, Mark mark) {
  uint32_t i = 0;
  while (i < call->x->flying.n && call->x->flying.at[i].op != op) i++;
  if (i == call->x->flying.n) {
    placed_error(call, op, "is waited for and was not started", NO_VALUE);
    return;
  }
  Flying flying = call->x->flying.at[i];
  for (call->x->flying.n--; i < call->x->flying.n; i++)
    call->x->flying.at[i] = call->x->flying.at[i + 1];
  if (!placed_marked(flying.from, sent_bytes(f, op), flying.own))
    placed_error(call, op, "finds what it sends written over in flight", NO_VALUE);
  if (!flying.sent_on && !placed_marked(flying.to, received_bytes(f, op), flying.mark))
    placed_error(call, op, "finds what it receives written over in flight", NO_VALUE);
  if (flying.workspace && !placed_marked(flying.work, flying.workspace, flying.mark))
    placed_error(call, op, "finds its workspace written over in flight", NO_VALUE);
  if (call->x->error || flying.sent_on) return;
  if (!flying.received) flying.received = exchange(call, f, &flying);
  receive(f, &flying, mark);
}

/* Starts the message of this op, unless its loop has started it already. */
void placed_run_start(PlacedCall *call, const Op *op) {
  call->mark[op->out] = placed_new_mark(call);
  if (attr_int(&op->attrs, ATTR_flight, 0) < 0) return;
  placed_begin_operation(call, op, STREAM_compute, call->round);
  placed_start_flight(call, call->f, op, placed_address(call, op->in[0]), call->mark[op->in[0]],
                      placed_address(call, op->out));
  placed_end_operation(call, op);
}

void placed_run_wait(PlacedCall *call, const Op *op) {
  const Op *start = flight_start(call->f, op);
  Mark mark = placed_new_mark(call);
  if (!start) placed_error(call, op, "waits for nothing", op->in[0]);
  else placed_land_flight(call, call->f, start, mark);
  call->mark[op->in[0]] = call->mark[op->out] = mark;
}
