/* Messages in flight, of the interpreter after pass `memory` (interp_placed.c).

   A message in flight gives what it receives a mark that no value has, until its wait: who reads
   it before then, or writes into what it sends or receives, is found. What was sent arrives as
   late as it can, at the wait, or as early, at the start (interp_set_early): numbers must not
   change. */
#include "interp_rounds.h"

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
void placed_start_flight(PlacedCall *c, const Fn *f, const Op *op, PlacedAddress from, Mark own,
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
  x.work = placed_work(c, op);
  x.workspace = attr_int(&op->attrs, ATTR_workspace, 0);
  if (x.workspace && !placed_inside(x.work, x.workspace))
    placed_error(c, op, "has its workspace outside of the frame", NO_VALUE);
  if (c->x->error) return;
  placed_spoil(x.work, x.workspace, x.mark);
  if (c->x->in->early) x.received = exchange(c, f, &x);
  vec_push(c->x->arena, c->x->flying, x);
}

/* The oldest that is on its way from this op arrives: its bytes get the mark. */
void placed_land_flight(PlacedCall *c, const Fn *f, const Op *op, Mark mark) {
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
void placed_run_start(PlacedCall *c, const Op *op) {
  c->mark[op->out] = placed_new_mark(c);
  if (attr_int(&op->attrs, ATTR_flight, 0) >= 0)
    placed_start_flight(c, c->f, op, placed_address(c, op->in[0]), c->mark[op->in[0]],
                        placed_address(c, op->out));
}

void placed_run_wait(PlacedCall *c, const Op *op) {
  const Op *start = flight_start(c->f, op);
  Mark mark = placed_new_mark(c);
  if (!start) placed_error(c, op, "waits for nothing", op->in[0]);
  else placed_land_flight(c, c->f, start, mark);
  c->mark[op->in[0]] = c->mark[op->out] = mark;
}
