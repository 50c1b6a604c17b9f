/* turns: under `pipeline one_f_one_b`, the forward and the backward loop over parts of the batch
   take turns (ir/turns.h).

   Up to here they stand one behind the other, as under `gpipe`: pass `pipeline` has cut them apart,
   and every pass between sees two plain loops. What stands between them and does not follow from
   the forward one goes in front of it; what is left are views. Then the loops get the table of the
   schedule, and stacks that cross from one to the other become rings of as many slots as parts are
   in flight: slices keep their strides, since parts are outermost. What would write over something
   that the other loop still reads is refused at the place line (E0901). Must not: look at what
   rounds compute; change the order of any sum. */
#include "ir/bytes.h"
#include "ir/module_settings.h"
#include "ir/placement.h"
#include "ir/turns.h"
#include "passes/internal.h"
#include <string.h>

typedef struct TurnLoops {
  Module *m;
  Fn *f;
  OpId forward, backward;
  Str dim, axis;
  const Op *hop;
  bool *follows; /* by value: from the forward loop */
} TurnLoops;

static void refuse(const TurnLoops *t, const char *why) {
  const PlaceRule *rule = NULL;
  for (uint32_t i = 0; i < t->m->rules.n && !rule; i++)
    if (t->m->rules.at[i].axes.n && t->m->rules.at[i].axes.at[0] == t->axis)
      rule = &t->m->rules.at[i];
  Report *r = diag_at(t->m->ctx->diag, "E0901", rule ? span_of(t->m, rule->loc) : (Span){0},
                      "`pipeline one_f_one_b` of this model is not built yet");
  diag_label(r, "%s", why);
  diag_help(r, "`pipeline gpipe`: all micro-batches forward, then all backward");
}

/* ---- the two loops ---- */

static const Op *first_hop(const Op *loop) {
  for (OpId i = 0; loop->code == OP_loop && i < loop->callee->ops.n; i++)
    if (op_is_hop(loop->callee->ops.at[i].code)) return &loop->callee->ops.at[i];
  return NULL;
}

static bool find_loops(TurnLoops *t) {
  for (OpId i = 0; i < t->f->ops.n; i++) {
    const Op *o = &t->f->ops.at[i], *hop = first_hop(o);
    if (!hop || o->group[0].from[0] != t->dim) continue;
    if (t->forward == NO_OP) t->forward = i, t->hop = hop;
    else t->backward = i;
  }
  if (t->backward == NO_OP) return false;
  t->axis = intern(t->m->ctx->names, attr_str(&t->hop->attrs, ATTR_axis, ""));
  return true;
}

static void find_follows(TurnLoops *t) {
  for (OpId i = t->forward; i <= t->backward; i++) {
    const Op *o = &t->f->ops.at[i];
    bool any = i == t->forward;
    for (uint32_t k = 0; k < o->nin; k++) any |= t->follows[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) t->follows[o->out + k] = any;
  }
}

static bool is_view(const TurnLoops *t, const Op *o) {
  bool view = op_family(o->code) == FAMILY_STRUCT;
  for (uint32_t k = 0; k < o->nout; k++)
    view &= t->f->values.at[o->out + k].storage.view == VIEW_OF;
  return view;
}

/* Parts are outermost, so that a shorter stack has the same strides. */
static bool is_outermost(const TurnLoops *t, ValueId v) {
  const Value *x = &t->f->values.at[v];
  int at = type_find(&x->type, t->dim);
  return at >= 0 && x->storage.stride[at] == type_count(&x->type) / x->type.axis[at].size &&
         value_is_dense(x);
}

/* Is it read by the backward loop alone, as a stack? */
static bool crosses_alone(const TurnLoops *t, ValueId v) {
  const Op *backward = &t->f->ops.at[t->backward];
  for (OpId i = t->forward + 1; i < t->f->ops.n; i++)
    for (uint32_t k = 0; k < t->f->ops.at[i].nin; k++)
      if (t->f->ops.at[i].in[k] == v &&
          (i > t->backward || (i == t->backward && k < loop_whole(backward))))
        return false;
  return type_find(value_type(t->f, v), t->dim) >= 0;
}

static bool moves(const TurnLoops *t, const Op *o) {
  return !o->nout ? false : !t->follows[o->out];
}

/* Does an op that is no view write into bytes that the forward loop reads? */
static bool writes_over(const TurnLoops *t, const ValueId *class, OpId id) {
  const Op *o = &t->f->ops.at[id], *forward = &t->f->ops.at[t->forward];
  for (uint32_t k = 0; k < o->nout; k++)
    for (uint32_t i = 0; i < forward->nin; i++)
      if (t->f->values.at[o->out + k].storage.view != VIEW_OF &&
          class[o->out + k] == class[forward->in[i]])
        return true;
  return false;
}

static const char *why_not(const TurnLoops *t) {
  const Op *forward = &t->f->ops.at[t->forward];
  const ValueId *class = shared_bytes(t->m->arena, t->f).of;
  if (attr_int(&forward->attrs, ATTR_carry, 0)) return "what goes forward carries something";
  for (OpId i = t->forward + 1; i <= t->backward; i++) {
    const Op *o = &t->f->ops.at[i];
    if (writes_over(t, class, i)) return "what goes backward writes over what goes forward reads";
    if (i < t->backward && !moves(t, o) && !is_view(t, o))
      return "something is computed of all micro-batches between forward and backward";
  }
  for (uint32_t k = 0; k < forward->nout; k++)
    if (!is_outermost(t, forward->out + k)) return "micro-batches are stored in turn";
  for (ValueId v = 0; v < t->f->values.n; v++)
    if (t->follows[v] && value_def(t->f, v) != &t->f->ops.at[t->backward] && !crosses_alone(t, v))
      return "what a micro-batch leaves is read behind its backward pass";
  return NULL;
}

/* ---- the new function ---- */

static void set_table(const TurnLoops *t, Op *o, bool forward) {
  int64_t stages = t->m->mesh.at[mesh_find(t->m, t->axis)].size;
  int64_t *most = ARENA_ARRAY(t->m->arena, int64_t, stages);
  for (int64_t s = 0; s < stages; s++)
    most[s] = turns_one_f_one_b(stages, s, attr_int(&o->attrs, ATTR_trip, 0));
  attr_set_ints(t->m, &o->attrs, ATTR_turns, (int)stages, most);
  if (forward) attr_set_str(t->m, &o->attrs, ATTR_axis, t->axis);
}

static int64_t depth_of(const Op *o) { return attr_get(&o->attrs, ATTR_turns)->list[0]; }

static void copy_op(const TurnLoops *t, Rebuild *r, OpId id) {
  Op *o = rebuild_op(r, &t->f->ops.at[id]);
  if (id == t->forward || id == t->backward) set_table(t, o, id == t->forward);
}

static void shorten(const TurnLoops *t, Rebuild *r, int64_t depth) {
  for (ValueId v = 0; v < t->f->values.n; v++) {
    if (!t->follows[v] || value_def(t->f, v) == &t->f->ops.at[t->backward]) continue;
    Type *type = &r->to->values.at[r->map[v]].type;
    type->axis[type_find(type, t->dim)].size = depth;
  }
}

/* What moves, the forward loop, views, and the rest. */
static Fn *take_turns(const TurnLoops *t) {
  Rebuild r = rebuild_begin(t->m, t->f);
  for (OpId i = 0; i < t->forward; i++) copy_op(t, &r, i);
  for (OpId i = t->forward + 1; i < t->backward; i++)
    if (moves(t, &t->f->ops.at[i])) copy_op(t, &r, i);
  copy_op(t, &r, t->forward);
  int64_t depth = depth_of(&vec_last(r.to->ops));
  for (OpId i = t->forward + 1; i < t->f->ops.n; i++)
    if (i >= t->backward || !moves(t, &t->f->ops.at[i])) copy_op(t, &r, i);
  shorten(t, &r, depth);
  rebuild_results(&r);
  return r.to;
}

void pass_turns(Module *m) {
  TurnLoops t = {.m = m, .f = entry_of(m, "step"), .forward = NO_OP, .backward = NO_OP};
  if (!t.f || !m->mesh.n || strcmp(plan_schedule(m), "one_f_one_b")) return;
  t.dim = intern(m->ctx->names, "micro");
  if (!find_loops(&t)) return;
  t.follows = ARENA_ARRAY(m->arena, bool, t.f->values.n + 1);
  find_follows(&t);
  const char *why = why_not(&t);
  if (why) refuse(&t, why);
  else module_replace(m, t.f, take_turns(&t));
}
