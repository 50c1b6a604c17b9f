/* Loops of a pipeline schedule (pipeline_schedule.h): a forward loop, and after it the backward
   one, or those of input gradients and of weight gradients.

   Between them only views are allowed, which take no time. A value that a loop leaves for a later
   one is in a ring of as many slots as the table has micro-batches between the two, so its only
   readers are views and, slice by slice, later loops; a value that a loop reads stays in place
   until all loops end. Must not: look at the order of messages; pass `prove` runs the table. */
#include "ir/bytes.h"
#include "ir/loop.h"
#include "ir/shape/placement.h"
#include "ir/schedule/pipeline_schedule.h"
#include "verify.h"
#include <string.h>

enum { NO_RING = -1 };

static void wrong(Verifier *verifier, const Op *o, const char *label, const char *what) {
  verify_report(verifier, "E1104", verify_at_op(o), "[%s] %s", label, what);
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

static void check_table(Verifier *verifier, const ScheduleLoops *loops) {
  const Op *forward = &verifier->fn->ops.at[loops->loop[0]];
  for (int i = 1; i < loops->n; i++) {
    const Op *o = &verifier->fn->ops.at[loops->loop[i]];
    if (!same_table(forward, o) || attr_get(&o->attrs, ATTR_axis))
      wrong(verifier, o, "turns-c3", "this does not take turns with the loop before it");
  }
  int axis = mesh_find(verifier->m, attr_str(&forward->attrs, ATTR_axis, ""));
  int64_t lists = loops->table.wait ? 2 : 1, size = axis < 0 ? 0 : verifier->m->mesh.at[axis].size;
  if (loops->n != schedule_loops(&loops->table))
    wrong(verifier, forward, "turns-c10",
          "chunks of layers have a loop forward and one backward each");
  if (axis < 0 || attr_get(&forward->attrs, ATTR_turns)->i != size * lists)
    wrong(verifier, forward, "turns-c4",
          "the table has not its numbers for each stage of the axis");
  for (int64_t s = 0; s < loops->table.stages; s++)
    if (loops->table.most[s] < 1)
      wrong(verifier, forward, "turns-c1", "no part may be in flight on a stage");
  if (!verifier->failed && !schedule_in_order(&loops->table))
    wrong(verifier, forward, "turns-c11",
          "a part would go backward on a stage before it is forward");
}

/* For each value: the loop that begins the ring that it is, or is a view of. A value that a loop
   writes in place of one that it reads continues that ring. */
static int *rings_of(Verifier *verifier, const ScheduleLoops *loops) {
  const Fn *f = verifier->fn;
  int *ring = ARENA_ARRAY(verifier->m->arena, int, f->values.n + 1);
  for (ValueId i = 0; i < f->values.n; i++) ring[i] = NO_RING;
  for (OpId i = loops->loop[0]; i < schedule_end(loops); i++) {
    const Op *o = &f->ops.at[i];
    int loop = schedule_loop_number(loops, i);
    bool view = loop < 0 && o->nin == 1 && ring[o->in[0]] != NO_RING && op_flags(o->code) & VIEW;
    for (uint32_t k = 0; k < o->nout; k++) {
      const Storage *storage = &f->values.at[o->out + k].storage;
      bool goes_on = storage->view == VIEW_INPLACE && ring[storage->base] != NO_RING;
      bool carried = loop >= 0 && k < (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
      if (carried) continue; /* exists after the last round */
      ring[o->out + k] = view ? ring[o->in[0]] : goes_on ? ring[storage->base] : loop;
    }
    if (loop < 0 && !view)
      wrong(verifier, o, "turns-c5",
            "between loops of a pipeline schedule only views of their results are allowed");
  }
  return ring;
}

/* Loop number `to` reads value x stacked, which loop `from` leaves. */
static void check_slots(Verifier *verifier, const ScheduleLoops *loops, int from, int to,
                        ValueId x) {
  const Op *o = &verifier->fn->ops.at[loops->loop[to]];
  const Type *type = value_type(verifier->fn, x);
  int64_t need = schedule_ring_slots(verifier->m, &loops->table, from, to);
  if (type_size(type, o->group[0].from[0]) < need)
    wrong(verifier, o, "turns-c8",
          "more parts are in flight than the ring that this reads has slots");
}

static void check_rings(Verifier *verifier, const ScheduleLoops *loops) {
  const Fn *f = verifier->fn;
  const int *ring = rings_of(verifier, loops);
  for (OpId i = loops->loop[0]; i < f->ops.n && !verifier->failed; i++) {
    const Op *o = &f->ops.at[i];
    int to = schedule_loop_number(loops, i);
    for (uint32_t k = 0; k < o->nin; k++) {
      int from = ring[o->in[k]];
      bool stacked = to >= 0 && k >= loop_whole(o);
      if (from == NO_RING && stacked && loop_slots(o, value_type(f, o->in[k])))
        wrong(verifier, o, "turns-c8",
              "this reads slots of what no loop before it leaves in a ring");
      if (from == NO_RING || (to < 0 && i < schedule_end(loops))) continue;
      if (!stacked) wrong(verifier, o, "turns-c6", "this reads more of a ring than a slot");
      else check_slots(verifier, loops, from, to, o->in[k]);
    }
  }
}

/* All run at once, so that none may take over anything that one before it reads. */
static void check_bytes(Verifier *verifier, const ScheduleLoops *loops) {
  const Fn *f = verifier->fn;
  const ValueId *class = shared_bytes(verifier->m->arena, f).of;
  for (int a = 0; a < loops->n; a++)
    for (int b = a + 1; b < loops->n; b++) {
      const Op *first = &f->ops.at[loops->loop[a]], *second = &f->ops.at[loops->loop[b]];
      uint32_t carry = (uint32_t)attr_int(&first->attrs, ATTR_carry, 0); /* read at its begin */
      for (uint32_t i = carry; i < first->nin; i++)
        for (uint32_t k = 0; k < second->nout; k++)
          if (class[first->in[i]] == class[second->out + k])
            wrong(verifier, second, "turns-c7", "this writes over what its partner reads");
    }
}

void verify_turns(Verifier *verifier) {
  const Fn *f = verifier->fn;
  ScheduleLoops loops = {.n = 0};
  for (OpId i = 0; i < f->ops.n && !verifier->failed; i++) {
    if (!op_is_scheduled(&f->ops.at[i]) || (loops.n && schedule_loop_number(&loops, i) > 0))
      continue;
    if (!schedule_find(f, i, &loops)) {
      wrong(verifier, &f->ops.at[i], "turns-c3", "no loop takes turns with this");
      return;
    }
    check_table(verifier, &loops);
    if (!verifier->failed) check_rings(verifier, &loops);
    if (!verifier->failed) check_bytes(verifier, &loops);
  }
}
