/* Facts about messages in flight: see flight.h. */
#include "flight.h"
#include "ir/collective.h"
#include "ir/plan/module_settings.h"
#include <stdlib.h>
#include <string.h>

/* 2, or 536870912 bytes */
Ahead flights_ahead(const Module *m) {
  const char *text = module_word(m, "plan.zero.prefetch");
  int64_t n = (int64_t)strtod(text, NULL);
  return strstr(text, "bytes") ? (Ahead){0, n} : (Ahead){n, 0};
}

bool op_can_fly(const Op *o) {
  return op_family(o->code) == FAMILY_COLLECTIVE && collective_meets(o->code);
}

bool op_can_cross(const Op *o) { return op_can_fly(o) && !attr_get(&o->attrs, ATTR_workspace); }

bool op_flies(const Op *o) { return attr_get(&o->attrs, ATTR_flight) != NULL; }

/* flies over rounds */
static bool op_crosses(const Op *o) { return attr_int(&o->attrs, ATTR_flight, 0) != 0; }

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

static bool drains(const Op *o) { return attr_int(&o->attrs, ATTR_flight, 0) > 0; }

const Op *flight_before(const Fn *f, const Op *o) {
  const Op *def = drains(o) && o->nin ? value_def(f, o->in[0]) : NULL;
  return def && drains(def) ? def : NULL;
}

const Op *flight_behind(const Fn *f, const Op *o) {
  for (OpId i = (OpId)(o - f->ops.at) + 1; drains(o) && i < f->ops.n; i++)
    if (flight_before(f, &f->ops.at[i]) == o) return &f->ops.at[i];
  return NULL;
}

static ValueId drain_crosses(const Fn *f, const Op *o) {
  bool there = f->values.at[o->out].storage.view == VIEW_INPLACE && flight_before(f, o);
  return there ? NO_VALUE : o->in[0];
}

static uint32_t drain_role(const Fn *f, const Op *o) {
  for (const Op *next; (next = flight_behind(f, o));) o = next;
  return result_of(f, o->out);
}

FlightList flights_over(Arena *arena, const Fn *f) {
  FlightList list = {0};
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!op_crosses(o) || !o->nin || !o->nout) continue;
    int64_t rounds = attr_int(&o->attrs, ATTR_flight, 0);
    bool early = rounds < 0;
    vec_push(arena, list,
             (Flight){i, rounds, early ? o->out : drain_crosses(f, o),
                      early ? argument_of(f, o->in[0]) : drain_role(f, o)});
  }
  return list;
}

int64_t flights_depth(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      int64_t rounds = -attr_int(&m->fns.at[i]->ops.at[k].attrs, ATTR_flight, 0);
      if (rounds > most) most = rounds;
    }
  return most;
}

int64_t flight_buffers(const Op *loop, const Flight *flight) {
  int64_t trip = attr_int(&loop->attrs, ATTR_trip, 0),
          wanted = flight->rounds < 0 ? 1 - flight->rounds : 2;
  if (flight->crosses == NO_VALUE) return 0;
  return wanted < trip ? wanted : trip;
}

int64_t flights_at_once(const Module *m, const Fn *f, const Op *o) {
  int64_t most = 1, rounds = attr_int(&o->attrs, ATTR_flight, 0);
  Flight flight = {.rounds = rounds};
  for (uint32_t i = 0; rounds && i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], loop) {
      if (loop->code != OP_loop || loop->callee != f) continue;
      int64_t n = flight_buffers(loop, &flight);
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

OpId flight_end(const Fn *f, OpId start) {
  if (!op_flies(&f->ops.at[start])) return start;
  for (OpId i = start + 1; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_wait && f->ops.at[i].in[0] == f->ops.at[start].out) return i;
  return start;
}

bool flight_in_caller(const Fn *f, const ValueId *class, ValueId v) {
  for (uint32_t i = 0; i < f->args.n; i++)
    if (class[f->args.at[i]] == class[v]) return true;
  for (uint32_t i = 0; i < f->results.n; i++)
    if (class[f->results.at[i]] == class[v]) return true;
  return false;
}
