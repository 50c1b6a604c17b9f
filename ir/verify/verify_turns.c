/* Loops that take turns (ir/turns.h): a forward loop, and behind it the backward one, or those of
   inputs and of weights.

   Between them stand views, which cost no time. What a loop leaves for a later one is in a ring of
   as many slots as the table has parts between the two, so nobody reads it but views and, slice by
   slice, later loops; what a loop reads is there until all end. Must not: look at the order of
   messages; pass `prove` runs the table. */
#include "ir/bytes.h"
#include "ir/loop.h"
#include "ir/placement.h"
#include "ir/turns.h"
#include "verify.h"
#include <string.h>

enum { NO_RING = -1 };

static void wrong(Verifier *v, const Op *o, const char *label, const char *what) {
  verify_report(v, "E1104", verify_at_op(o), "[%s] %s", label, what);
}

static bool same_list(const Op *a, const Op *b, AttrKey k) {
  const Attr *x = attr_get(&a->attrs, k), *y = attr_get(&b->attrs, k);
  if (!x || !y || x->i != y->i) return x == y;
  for (int64_t i = 0; i < x->i; i++)
    if (x->list[i] != y->list[i]) return false;
  return true;
}

static bool same_table(const Op *a, const Op *b) {
  return same_list(a, b, ATTR_turns) &&
         attr_int(&a->attrs, ATTR_interleave, 1) == attr_int(&b->attrs, ATTR_interleave, 1) &&
         a->group[0].from[0] == b->group[0].from[0] &&
         attr_int(&a->attrs, ATTR_trip, 0) == attr_int(&b->attrs, ATTR_trip, 0);
}

static void check_table(Verifier *v, const TurnLoops *t) {
  const Op *forward = &v->fn->ops.at[t->loop[0]];
  for (int i = 1; i < t->n; i++) {
    const Op *o = &v->fn->ops.at[t->loop[i]];
    if (!same_table(forward, o) || attr_get(&o->attrs, ATTR_axis))
      wrong(v, o, "turns-c3", "this does not take turns with the loop before it");
  }
  int axis = mesh_find(v->m, attr_str(&forward->attrs, ATTR_axis, ""));
  int64_t lists = t->table.wait ? 2 : 1, size = axis < 0 ? 0 : v->m->mesh.at[axis].size;
  if (t->n != turns_loops(&t->table))
    wrong(v, forward, "turns-c10", "chunks of layers have a loop forward and one backward each");
  if (axis < 0 || attr_get(&forward->attrs, ATTR_turns)->i != size * lists)
    wrong(v, forward, "turns-c4", "the table has not its numbers for each stage of the axis");
  for (int64_t s = 0; s < t->table.stages; s++)
    if (t->table.most[s] < 1) wrong(v, forward, "turns-c1", "no part may be in flight on a stage");
}

/* By value: the loop that begins the ring that it is, or shows. What a loop leaves in place of
   what it reads goes on in that ring. */
static int *rings_of(Verifier *v, const TurnLoops *t) {
  const Fn *f = v->fn;
  int *ring = ARENA_ARRAY(v->m->arena, int, f->values.n + 1);
  for (ValueId i = 0; i < f->values.n; i++) ring[i] = NO_RING;
  for (OpId i = t->loop[0]; i < turns_end(t); i++) {
    const Op *o = &f->ops.at[i];
    int loop = turns_number(t, i);
    bool view = loop < 0 && o->nin == 1 && ring[o->in[0]] != NO_RING && op_flags(o->code) & VIEW;
    for (uint32_t k = 0; k < o->nout; k++) {
      const Storage *s = &f->values.at[o->out + k].storage;
      bool goes_on = s->view == VIEW_INPLACE && ring[s->base] != NO_RING;
      bool carried = loop >= 0 && k < (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
      if (carried) continue; /* there behind the last round */
      ring[o->out + k] = view ? ring[o->in[0]] : goes_on ? ring[s->base] : loop;
    }
    if (loop < 0 && !view)
      wrong(v, o, "turns-c5", "between loops that take turns stand views of what they leave");
  }
  return ring;
}

/* Loop number `to` reads value x stacked, which loop `from` leaves. */
static void check_slots(Verifier *v, const TurnLoops *t, int from, int to, ValueId x) {
  const Op *o = &v->fn->ops.at[t->loop[to]];
  const Type *type = value_type(v->fn, x);
  int64_t need = turns_ring(v->m, &t->table, from, to);
  if (type_size(type, o->group[0].from[0]) < need)
    wrong(v, o, "turns-c8", "more parts are in flight than the ring that this reads has slots");
}

static void check_rings(Verifier *v, const TurnLoops *t) {
  const Fn *f = v->fn;
  const int *ring = rings_of(v, t);
  for (OpId i = t->loop[0]; i < f->ops.n && !v->failed; i++) {
    const Op *o = &f->ops.at[i];
    int to = turns_number(t, i);
    for (uint32_t k = 0; k < o->nin; k++) {
      int from = ring[o->in[k]];
      bool stacked = to >= 0 && k >= loop_whole(o);
      if (from == NO_RING && stacked && loop_slots(o, value_type(f, o->in[k])))
        wrong(v, o, "turns-c8", "this reads slots of what no loop before it leaves in a ring");
      if (from == NO_RING || (to < 0 && i < turns_end(t))) continue;
      if (!stacked) wrong(v, o, "turns-c6", "this reads more of a ring than a slot");
      else check_slots(v, t, from, to, o->in[k]);
    }
  }
}

/* All run at once, so that none may take over anything that one before it reads. */
static void check_bytes(Verifier *v, const TurnLoops *t) {
  const Fn *f = v->fn;
  const ValueId *class = shared_bytes(v->m->arena, f).of;
  for (int a = 0; a < t->n; a++)
    for (int b = a + 1; b < t->n; b++) {
      const Op *first = &f->ops.at[t->loop[a]], *second = &f->ops.at[t->loop[b]];
      uint32_t carry = (uint32_t)attr_int(&first->attrs, ATTR_carry, 0); /* read at its begin */
      for (uint32_t i = carry; i < first->nin; i++)
        for (uint32_t k = 0; k < second->nout; k++)
          if (class[first->in[i]] == class[second->out + k])
            wrong(v, second, "turns-c7", "this writes over what its partner reads");
    }
}

void verify_turns(Verifier *v) {
  const Fn *f = v->fn;
  TurnLoops t = {.n = 0};
  for (OpId i = 0; i < f->ops.n && !v->failed; i++) {
    if (!op_takes_turns(&f->ops.at[i]) || (t.n && turns_number(&t, i) > 0)) continue;
    if (!turns_begin(f, i, &t)) {
      wrong(v, &f->ops.at[i], "turns-c3", "no loop takes turns with this");
      return;
    }
    check_table(v, &t);
    if (!v->failed) check_rings(v, &t);
    if (!v->failed) check_bytes(v, &t);
  }
}
