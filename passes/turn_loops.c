/* turns: under `pipeline one_f_one_b` the forward and the backward loop over parts of the batch
   take turns, under `zero_bubble` the one of weights, too, under `interleaved` those of all chunks
   (ir/turns.h).

   Up to here they stand one behind the other, as under `gpipe`: pass `pipeline` has cut them apart,
   and every pass between sees plain loops. What stands between them and does not follow from one of
   them goes in front, what follows from sums that one of them carries behind; what is left are
   views. Then the loops get the table of the schedule, and
   stacks that cross from one to another become rings of as many slots as parts are between the two
   on the stages that run this module: slices keep their strides, since parts are outermost. What
   would write over something that another loop still reads is refused at the place line (E0901).
   Must not: look at what rounds compute; change the order of any sum. */
#include "ir/bytes.h"
#include "ir/module_settings.h"
#include "ir/placement.h"
#include "ir/stage_class.h"
#include "ir/turns.h"
#include "passes/internal.h"
#include <string.h>

typedef struct TurnPass {
  Module *m;
  Fn *f;
  TurnLoops t;
  Str dim, axis;
  bool *follows;        /* by value: from one of the loops */
  bool *late;           /* by value: from what one carries, so it is there behind all of them */
  const ValueId *class; /* by value: what it shares its bytes with */
  int64_t *slots;       /* by class: of its ring; 0: it is none */
} TurnPass;

/* ---- the loops ---- */

static const Op *first_hop(const Op *loop) {
  for (OpId i = 0; i < loop->callee->ops.n; i++)
    if (op_is_hop(loop->callee->ops.at[i].code)) return &loop->callee->ops.at[i];
  return NULL;
}

static bool is_over_parts(const TurnPass *t, OpId i) {
  const Op *o = &t->f->ops.at[i];
  return o->code == OP_loop && o->group[0].from[0] == t->dim;
}

static void name_axis(TurnPass *t, const Op *hop) {
  t->axis = intern(t->m->ctx->names, attr_str(&hop->attrs, ATTR_axis, ""));
}

/* All that send: chunk after chunk forward, then backward. */
static bool find_chunks(TurnPass *t) {
  const Op *hop = NULL;
  int n = 2 * (int)module_chunks(t->m);
  for (OpId i = 0; i < t->f->ops.n; i++) {
    const Op *own = is_over_parts(t, i) ? first_hop(&t->f->ops.at[i]) : NULL;
    if (!own) continue;
    if (t->t.n == n) return false;
    t->t.loop[t->t.n++] = i, hop = own;
  }
  if (!hop || t->t.n != n) return false;
  return name_axis(t, hop), true;
}

/* The first that sends and the last one; behind these, the gradients of weights. */
static bool find_loops(TurnPass *t, bool weights) {
  OpId *loop = t->t.loop;
  const Op *hop = NULL;
  loop[TURN_FORWARD] = loop[TURN_BACKWARD] = loop[TURN_WEIGHTS] = NO_OP;
  for (OpId i = 0; i < t->f->ops.n; i++) {
    if (!is_over_parts(t, i)) continue;
    const Op *own = first_hop(&t->f->ops.at[i]);
    if (own && !hop) loop[TURN_FORWARD] = i, hop = own;
    else if (own) loop[TURN_BACKWARD] = i, loop[TURN_WEIGHTS] = NO_OP;
    else if (hop && loop[TURN_WEIGHTS] == NO_OP) loop[TURN_WEIGHTS] = i;
  }
  if (!hop || loop[TURN_BACKWARD] == NO_OP) return false;
  t->t.n = weights && loop[TURN_WEIGHTS] != NO_OP ? 3 : 2;
  return name_axis(t, hop), true;
}

static void find_table(TurnPass *t) {
  int64_t stages = t->m->mesh.at[mesh_find(t->m, t->axis)].size;
  int64_t parts = attr_int(&t->f->ops.at[t->t.loop[0]].attrs, ATTR_trip, 0);
  int64_t chunks = module_chunks(t->m);
  t->t.table = chunks > 1   ? turns_interleaved(t->m->arena, stages, parts, chunks)
               : t->t.n > 2 ? turns_zero_bubble(t->m->arena, stages, parts)
                            : turns_one_f_one_b(t->m->arena, stages, parts);
}

static void find_follows(TurnPass *t) {
  t->follows = ARENA_ARRAY(t->m->arena, bool, t->f->values.n + 1);
  t->late = ARENA_ARRAY(t->m->arena, bool, t->f->values.n + 1);
  for (OpId i = t->t.loop[0]; i <= turns_end(&t->t); i++) {
    const Op *o = &t->f->ops.at[i];
    bool loop = turns_number(&t->t, i) >= 0, any = loop, late = false;
    uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
    for (uint32_t k = 0; k < o->nin; k++) any |= t->follows[o->in[k]], late |= t->late[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++)
      t->follows[o->out + k] = any, t->late[o->out + k] = late || (loop && k < carry);
  }
}

/* Is v a stack of parts that crosses from a loop to another, or a view of one? */
static bool crosses(const TurnPass *t, ValueId v) {
  OpId def = t->f->values.at[v].def;
  return t->follows[v] && !t->late[v] && def != turns_end(&t->t);
}

/* Does an op between the loops read what one of them carries? */
static bool is_late(const TurnPass *t, OpId id) {
  const Op *o = &t->f->ops.at[id];
  bool late = false;
  for (uint32_t k = 0; k < o->nin; k++) late |= t->late[o->in[k]];
  return late && id > t->t.loop[0] && id < turns_end(&t->t);
}

static bool is_view(const TurnPass *t, const Op *o) {
  bool view = op_family(o->code) == FAMILY_STRUCT;
  for (uint32_t k = 0; k < o->nout; k++)
    view &= t->f->values.at[o->out + k].storage.view == VIEW_OF;
  return view;
}

/* Parts are outermost, so that a shorter stack has the same strides. */
static bool is_outermost(const TurnPass *t, ValueId v) {
  const Value *x = &t->f->values.at[v];
  int at = type_find(&x->type, t->dim);
  return at >= 0 && x->storage.stride[at] == type_count(&x->type) / x->type.axis[at].size &&
         value_is_dense(x);
}

/* Is it read by views and, as a stack, by later loops alone? */
static bool is_ring(const TurnPass *t, ValueId v) {
  OpId end = turns_end(&t->t);
  for (OpId i = t->t.loop[0] + 1; i < t->f->ops.n; i++) {
    const Op *o = &t->f->ops.at[i];
    bool loop = turns_number(&t->t, i) >= 0;
    for (uint32_t k = 0; k < o->nin; k++)
      if (o->in[k] == v && (i > end || is_late(t, i) || (loop && k < loop_whole(o)))) return false;
  }
  return type_find(value_type(t->f, v), t->dim) >= 0;
}

static bool moves(const TurnPass *t, OpId i) {
  const Op *o = &t->f->ops.at[i];
  return i > t->t.loop[0] && i < turns_end(&t->t) && o->nout && !t->follows[o->out];
}

/* Does an op that is no view write into bytes that a loop above it reads? */
static bool writes_over(const TurnPass *t, OpId id) {
  const Op *o = &t->f->ops.at[id];
  for (int a = 0; a < t->t.n && t->t.loop[a] < id; a++) {
    const Op *loop = &t->f->ops.at[t->t.loop[a]];
    uint32_t carry = (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0); /* read before round 1 */
    for (uint32_t k = 0; k < o->nout; k++)
      for (uint32_t i = carry; i < loop->nin; i++)
        if (t->f->values.at[o->out + k].storage.view != VIEW_OF &&
            t->class[o->out + k] == t->class[loop->in[i]])
          return true;
  }
  return false;
}

static const char *why_not(const TurnPass *t) {
  for (OpId i = t->t.loop[0]; i <= turns_end(&t->t); i++) {
    const Op *o = &t->f->ops.at[i];
    bool loop = turns_number(&t->t, i) >= 0, last = i == turns_end(&t->t);
    if (loop && is_late(t, i)) return "a sum over micro-batches is read by another one";
    if (is_late(t, i)) continue;
    if (writes_over(t, i)) return "what goes backward writes over what goes forward reads";
    if (!loop && !moves(t, i) && !is_view(t, o))
      return "something is computed of all micro-batches between forward and backward";
    uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
    for (uint32_t k = carry; loop && !last && k < o->nout; k++)
      if (!is_outermost(t, o->out + k)) return "micro-batches are stored in turn";
  }
  for (ValueId v = 0; v < t->f->values.n; v++)
    if (crosses(t, v) && !is_ring(t, v))
      return "what a micro-batch leaves is read behind its backward pass";
  return NULL;
}

/* ---- the new function ---- */

/* Loop `to` reads value v, which lies in a ring that loop `from` begins to fill. */
static void give_slots(TurnPass *t, ValueId v, int from, int to) {
  int64_t n = turns_ring(t->m, &t->t.table, from, to);
  int64_t *slots = &t->slots[t->class[v]];
  *slots = n > *slots ? n : *slots;
}

/* What a loop leaves in place of what it reads shares its ring. */
static void find_slots(TurnPass *t) {
  int *first = ARENA_ARRAY(t->m->arena, int, t->f->values.n + 1);
  t->slots = ARENA_ARRAY(t->m->arena, int64_t, t->f->values.n + 1);
  for (int i = t->t.n - 1; i-- > 0;) {
    const Op *o = &t->f->ops.at[t->t.loop[i]];
    for (uint32_t k = 0; k < o->nout; k++)
      t->slots[t->class[o->out + k]] = 1, first[t->class[o->out + k]] = i;
  }
  for (int i = 1; i < t->t.n; i++) {
    const Op *o = &t->f->ops.at[t->t.loop[i]];
    for (uint32_t k = loop_whole(o); k < o->nin; k++)
      if (crosses(t, o->in[k])) give_slots(t, o->in[k], first[t->class[o->in[k]]], i);
  }
}

static void set_table(const TurnPass *t, Op *o) {
  const TurnTable *table = &t->t.table;
  int64_t n = table->stages, *both = ARENA_ARRAY(t->m->arena, int64_t, 2 * n);
  for (int64_t s = 0; s < n; s++) {
    both[s] = table->most[s];
    if (table->wait) both[n + s] = table->wait[s];
  }
  attr_set_ints(t->m, &o->attrs, ATTR_turns, (int)(table->wait ? 2 * n : n), both);
}

static void copy_op(const TurnPass *t, Rebuild *r, OpId id) {
  int loop = turns_number(&t->t, id);
  Op *o = rebuild_op(r, &t->f->ops.at[id]);
  if (loop >= 0) set_table(t, o);
  if (loop >= 0 && turns_interleave(&t->t.table))
    attr_set_int(t->m, &o->attrs, ATTR_interleave, t->t.table.chunks);
  if (loop == TURN_FORWARD) attr_set_str(t->m, &o->attrs, ATTR_axis, t->axis);
}

static void shorten(const TurnPass *t, Rebuild *r) {
  for (ValueId v = 0; v < t->f->values.n; v++) {
    if (!crosses(t, v)) continue;
    Type *type = &r->to->values.at[r->map[v]].type;
    type->axis[type_find(type, t->dim)].size = t->slots[t->class[v]];
  }
}

/* What moves, the loops with their views, what is late, and the rest. */
static Fn *take_turns(const TurnPass *t) {
  Rebuild r = rebuild_begin(t->m, t->f);
  OpId first = t->t.loop[0];
  for (OpId i = 0; i < first; i++) copy_op(t, &r, i);
  for (OpId i = first; i < turns_end(&t->t); i++)
    if (moves(t, i)) copy_op(t, &r, i);
  for (OpId i = first; i <= turns_end(&t->t); i++)
    if (!moves(t, i) && !is_late(t, i)) copy_op(t, &r, i);
  for (OpId i = first; i < turns_end(&t->t); i++)
    if (is_late(t, i)) copy_op(t, &r, i);
  for (OpId i = turns_end(&t->t) + 1; i < t->f->ops.n; i++) copy_op(t, &r, i);
  shorten(t, &r);
  rebuild_results(&r);
  return r.to;
}

void pass_turns(Module *m) {
  TurnPass t = {.m = m, .f = entry_of(m, "step"), .dim = intern(m->ctx->names, "micro")};
  bool weights = !strcmp(plan_schedule(m), "zero_bubble");
  bool chunks = module_chunks(m) > 1;
  if (!t.f || !m->mesh.n || (!chunks && !weights && strcmp(plan_schedule(m), "one_f_one_b")))
    return;
  if (chunks ? !find_chunks(&t) : !find_loops(&t, weights)) return;
  t.class = shared_bytes(m->arena, t.f).of;
  find_table(&t), find_follows(&t);
  const char *why = why_not(&t);
  if (why) {
    stages_refuse(m, t.axis, why, "`pipeline gpipe`: all micro-batches forward, then all backward");
    return;
  }
  find_slots(&t);
  module_replace(m, t.f, take_turns(&t));
}
