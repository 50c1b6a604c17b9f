/* Loops that take turns (ir/turns.h): a forward loop and the backward one behind it.

   Between them stand views, which cost no time. What the forward loop leaves is in a ring, so
   nobody reads it but views and, slice by slice, the backward loop; what the forward loop reads is
   there until both end. Must not: look at the order of messages; pass `prove` runs the table. */
#include "ir/bytes.h"
#include "ir/loop.h"
#include "ir/placement.h"
#include "ir/turns.h"
#include "verify.h"
#include <string.h>

static void wrong(Verifier *v, const Op *o, const char *label, const char *what) {
  verify_report(v, "E1104", verify_at_op(o), "[%s] %s", label, what);
}

static bool same_table(const Op *a, const Op *b) {
  const Attr *x = attr_get(&a->attrs, ATTR_turns), *y = attr_get(&b->attrs, ATTR_turns);
  if (x->i != y->i || a->group[0].from[0] != b->group[0].from[0]) return false;
  for (int64_t i = 0; i < x->i; i++)
    if (x->list[i] != y->list[i]) return false;
  return attr_int(&a->attrs, ATTR_trip, 0) == attr_int(&b->attrs, ATTR_trip, 0);
}

static void check_pair(Verifier *v, const Op *forward, const Op *backward) {
  int axis = mesh_find(v->m, attr_str(&forward->attrs, ATTR_axis, ""));
  if (!same_table(forward, backward) || attr_get(&backward->attrs, ATTR_axis))
    wrong(v, backward, "turns-c3", "this does not take turns with the loop before it");
  if (axis < 0 || v->m->mesh.at[axis].size != attr_get(&forward->attrs, ATTR_turns)->i)
    wrong(v, forward, "turns-c4", "the table has no number for each stage of the axis");
}

/* Values that show what the forward loop leaves. */
static bool *rings_of(Verifier *v, const TurnPair *t) {
  const Fn *f = v->fn;
  bool *ring = ARENA_ARRAY(v->m->arena, bool, f->values.n + 1);
  for (uint32_t k = 0; k < f->ops.at[t->forward].nout; k++) ring[f->ops.at[t->forward].out + k] = 1;
  for (OpId i = t->forward + 1; i < t->backward; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nout; k++) ring[o->out + k] = o->nin == 1 && ring[o->in[0]];
    if (o->nin != 1 || !ring[o->in[0]] || !(op_flags(o->code) & VIEW))
      wrong(v, o, "turns-c5", "between loops that take turns stand views of what the first leaves");
  }
  return ring;
}

static void check_rings(Verifier *v, const TurnPair *t) {
  const Fn *f = v->fn;
  const bool *ring = rings_of(v, t);
  uint32_t whole = loop_whole(&f->ops.at[t->backward]);
  for (OpId i = t->backward; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (ring[f->ops.at[i].in[k]] && (i > t->backward || k < whole))
        wrong(v, &f->ops.at[i], "turns-c6", "this reads more of a ring than a slot");
}

/* Both run at once, so that the second may take over nothing that the first reads. */
static void check_bytes(Verifier *v, const TurnPair *t) {
  const Fn *f = v->fn;
  const Op *forward = &f->ops.at[t->forward], *backward = &f->ops.at[t->backward];
  const ValueId *class = shared_bytes(v->m->arena, f).of;
  for (uint32_t i = 0; i < forward->nin; i++)
    for (uint32_t k = 0; k < backward->nout; k++)
      if (class[forward->in[i]] == class[backward->out + k])
        wrong(v, backward, "turns-c7", "this writes over what its partner reads");
}

void verify_turns(Verifier *v) {
  const Fn *f = v->fn;
  OpId ends = NO_OP;
  for (OpId i = 0; i < f->ops.n && !v->failed; i++) {
    TurnPair t;
    if (turns_begin(f, i, &t)) {
      check_pair(v, &f->ops.at[i], &f->ops.at[t.backward]);
      check_rings(v, &t), check_bytes(v, &t);
      ends = t.backward;
    } else if (op_takes_turns(&f->ops.at[i]) && i != ends) {
      wrong(v, &f->ops.at[i], "turns-c3", "no loop takes turns with this");
    }
  }
}
