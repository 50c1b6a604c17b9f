/* Facts about messages in flight: see flight.h. */
#include "flight.h"

bool op_can_fly(const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE && o->code != OP_part &&
         o->code != OP_keep_first && !op_is_hop(o->code) && !attr_get(&o->attrs, ATTR_workspace);
}

bool op_flies(const Op *o) { return attr_get(&o->attrs, ATTR_flight) != NULL; }

bool op_crosses(const Op *o) { return attr_int(&o->attrs, ATTR_flight, 0) != 0; }

/* UINT32_MAX: it is no argument. */
static uint32_t argument_of(const Fn *f, ValueId v) {
  const Value *x = &f->values.at[v];
  return x->def == NO_OP ? x->result : UINT32_MAX;
}

static uint32_t result_of(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return i;
  return UINT32_MAX;
}

FlightList flights_over(Arena *a, const Fn *f) {
  FlightList l = {0};
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!op_crosses(o) || !o->nin || !o->nout) continue;
    int64_t rounds = attr_int(&o->attrs, ATTR_flight, 0);
    bool early = rounds < 0;
    vec_push(a, l,
             (Flight){i, rounds, early ? o->out : o->in[0],
                      early ? argument_of(f, o->in[0]) : result_of(f, o->out)});
  }
  return l;
}

int64_t flight_buffers(const Op *loop, const Flight *x) {
  int64_t trip = attr_int(&loop->attrs, ATTR_trip, 0), wanted = x->rounds < 0 ? 1 - x->rounds : 2;
  return wanted < trip ? wanted : trip;
}

int64_t flights_at_once(const Module *m, const Fn *f, const Op *o) {
  int64_t most = 1, rounds = attr_int(&o->attrs, ATTR_flight, 0);
  Flight x = {.rounds = rounds};
  for (uint32_t i = 0; rounds && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *loop = &m->fns.at[i]->ops.at[k];
      if (loop->code != OP_loop || loop->callee != f) continue;
      int64_t n = flight_buffers(loop, &x);
      if (n > most) most = n;
    }
  return most;
}

int64_t flight_bytes(const Fn *body, uint32_t i) {
  int64_t most = 0;
  for (ValueId v = 0; v < body->values.n; v++) {
    const Value *x = &body->values.at[v];
    if (x->storage.place != PLACE_RING || x->storage.slot != i) continue;
    int64_t end = x->storage.at + value_span_bytes(x);
    if (end > most) most = end;
  }
  return most;
}

Ring loop_ring(const Op *loop, uint32_t i) {
  const Attr *a = attr_get(&loop->attrs, ATTR_ring);
  if (!a || a->i < 3 * ((int64_t)i + 1)) return (Ring){0};
  const int64_t *r = a->list + 3 * (size_t)i;
  return (Ring){r[0], r[1], r[2]};
}

const Op *flight_start(const Fn *f, const Op *wait) {
  const Op *o = wait->nin ? value_def(f, wait->in[0]) : NULL;
  return o && op_flies(o) ? o : NULL;
}

bool flight_in_caller(const Fn *f, const ValueId *class, ValueId v) {
  for (uint32_t i = 0; i < f->args.n; i++)
    if (class[f->args.at[i]] == class[v]) return true;
  for (uint32_t i = 0; i < f->results.n; i++)
    if (class[f->results.at[i]] == class[v]) return true;
  return false;
}
