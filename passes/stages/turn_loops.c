/* turns: interleaves the loops over micro-batches by a schedule: under `pipeline one_f_one_b` the
   forward and the backward loop, under `zero_bubble` that of weights as well, under `interleaved`
   those of all chunks (ir/schedule/pipeline_schedule.h).

   Before this pass they run one after the other, as under `gpipe`: pass `pipeline` has cut them
   apart, and every pass between sees plain loops. Ops between them that do not depend on one of
   them move before the loops; ops that depend on sums carried by one of them move after the loops;
   only views may remain.

   Then the loops get the table of the schedule, and stacks that one loop writes and another reads
   become rings, with one slot for each micro-batch in flight between the two on the stages that
   run this module: slices keep their strides, since micro-batches are outermost. If a loop would
   overwrite a value that another loop still reads, the plan is refused at the place line (E0901).
   Must not: examine the ops of rounds; change the order of any sum. */
#include "ir/loop.h"
#include "ir/bytes.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"
#include "passes/place/place.h"
#include <string.h>

typedef struct TurnPass {
  Module *m;
  Fn *f;
  ScheduleLoops t;
  Str dim, axis;
  bool *follows;        /* by value: from one of the loops */
  bool *late;           /* by value: depends on a carried result, so it is available after all
                           loops */
  const ValueId *class; /* by value: the class of values that share its bytes */
  int64_t *slots;       /* by class: of its ring; 0: it is none */
} TurnPass;

/* ---- the loops ---- */

static const Op *first_hop(const Op *loop) {
  for (OpId i = 0; i < loop->callee->ops.n; i++)
    if (op_is_p2p(loop->callee->ops.at[i].code)) return &loop->callee->ops.at[i];
  return NULL;
}

static void name_axis(TurnPass *pass, const Op *hop) {
  pass->axis = intern(pass->m->ctx->names, attr_str(&hop->attrs, ATTR_axis, ""));
}

/* All that send: chunk after chunk forward, then backward. */
static bool find_chunks(TurnPass *pass) {
  const Op *hop = NULL;
  int n = 2 * (int)module_chunks(pass->m);
  for (OpId i = 0; i < pass->f->ops.n; i++) {
    const Op *own = loop_is_micro(&pass->f->ops.at[i]) ? first_hop(&pass->f->ops.at[i]) : NULL;
    if (!own) continue;
    if (pass->t.n == n) return false;
    pass->t.loop[pass->t.n++] = i, hop = own;
  }
  if (!hop || pass->t.n != n) return false;
  return name_axis(pass, hop), true;
}

/* The first and the last loop that send; the next loop after these makes the gradients of
   weights. */
static bool find_loops(TurnPass *pass, bool weights) {
  OpId *loop = pass->t.loop;
  const Op *hop = NULL;
  loop[TURN_FORWARD] = loop[TURN_BACKWARD] = loop[TURN_WEIGHTS] = NO_OP;
  for (OpId i = 0; i < pass->f->ops.n; i++) {
    if (!loop_is_micro(&pass->f->ops.at[i])) continue;
    const Op *own = first_hop(&pass->f->ops.at[i]);
    if (own && !hop) loop[TURN_FORWARD] = i, hop = own;
    else if (own) loop[TURN_BACKWARD] = i, loop[TURN_WEIGHTS] = NO_OP;
    else if (hop && loop[TURN_WEIGHTS] == NO_OP) loop[TURN_WEIGHTS] = i;
  }
  if (!hop || loop[TURN_BACKWARD] == NO_OP) return false;
  pass->t.n = weights && loop[TURN_WEIGHTS] != NO_OP ? 3 : 2;
  return name_axis(pass, hop), true;
}

static void find_table(TurnPass *pass) {
  int64_t stages = pass->m->mesh.at[mesh_find(pass->m, pass->axis)].size;
  int64_t parts = attr_int(&pass->f->ops.at[pass->t.loop[0]].attrs, ATTR_trip, 0);
  int64_t chunks = module_chunks(pass->m);
  pass->t.table = chunks > 1 ? schedule_interleaved(pass->m->arena, stages, parts, chunks)
                  : pass->t.n > 2
                      ? schedule_zero_bubble(pass->m->arena, stages, parts, plan_ahead(pass->m))
                      : schedule_one_f_one_b(pass->m->arena, stages, parts);
}

/* For example the sum of the loss: on the stage that has it, it follows from a loop, on others
   from a constant. All stages must reach it at the same point, so it comes after the loops. */
static bool is_for_all_stages(const Op *o) { return attr_get(&o->attrs, ATTR_keep_alive) != NULL; }

static void find_follows(TurnPass *pass) {
  pass->follows = ARENA_ARRAY(pass->m->arena, bool, pass->f->values.n + 1);
  pass->late = ARENA_ARRAY(pass->m->arena, bool, pass->f->values.n + 1);
  for (OpId i = pass->t.loop[0]; i <= schedule_end(&pass->t); i++) {
    const Op *o = &pass->f->ops.at[i];
    bool loop = schedule_loop_number(&pass->t, i) >= 0, any = loop, late = false;
    uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
    for (uint32_t k = 0; k < o->nin; k++)
      any |= pass->follows[o->in[k]], late |= pass->late[o->in[k]];
    if (is_for_all_stages(o)) any = late = true;
    for (uint32_t k = 0; k < o->nout; k++)
      pass->follows[o->out + k] = any, pass->late[o->out + k] = late || (loop && k < carry);
  }
}

/* Is v a stack of parts that crosses from a loop to another, or a view of one? */
static bool crosses(const TurnPass *pass, ValueId v) {
  OpId def = pass->f->values.at[v].def;
  return pass->follows[v] && !pass->late[v] && def != schedule_end(&pass->t);
}

/* Does an op between the loops read a carried result of one of them? */
static bool is_late(const TurnPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id];
  bool late = is_for_all_stages(o);
  for (uint32_t k = 0; k < o->nin; k++) late |= pass->late[o->in[k]];
  return late && id > pass->t.loop[0] && id < schedule_end(&pass->t);
}

static bool is_view(const TurnPass *pass, const Op *o) {
  bool view = op_family(o->code) == FAMILY_STRUCT;
  for (uint32_t k = 0; k < o->nout; k++)
    view &= pass->f->values.at[o->out + k].storage.view == VIEW_OF;
  return view;
}

/* Parts are outermost, so that a shorter stack has the same strides. */
static bool is_outermost(const TurnPass *pass, ValueId v) {
  const Value *x = &pass->f->values.at[v];
  int at = type_find(&x->type, pass->dim);
  return at >= 0 && x->storage.stride[at] == type_count(&x->type) / x->type.axis[at].size &&
         value_is_dense(x);
}

/* Is it read by views and, as a stack, by later loops alone? */
static bool is_ring(const TurnPass *pass, ValueId v) {
  OpId end = schedule_end(&pass->t);
  for (OpId i = pass->t.loop[0] + 1; i < pass->f->ops.n; i++) {
    const Op *o = &pass->f->ops.at[i];
    bool loop = schedule_loop_number(&pass->t, i) >= 0;
    for (uint32_t k = 0; k < o->nin; k++)
      if (o->in[k] == v && (i > end || is_late(pass, i) || (loop && k < loop_whole(o))))
        return false;
  }
  return type_find(value_type(pass->f, v), pass->dim) >= 0;
}

static bool moves(const TurnPass *pass, OpId i) {
  const Op *o = &pass->f->ops.at[i];
  return i > pass->t.loop[0] && i < schedule_end(&pass->t) && o->nout && !pass->follows[o->out];
}

/* Does an op that is no view write into bytes that a loop above it reads? */
static bool writes_over(const TurnPass *pass, OpId id) {
  const Op *o = &pass->f->ops.at[id];
  for (int a = 0; a < pass->t.n && pass->t.loop[a] < id; a++) {
    const Op *loop = &pass->f->ops.at[pass->t.loop[a]];
    uint32_t carry = (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0); /* read before round 1 */
    for (uint32_t k = 0; k < o->nout; k++)
      for (uint32_t i = carry; i < loop->nin; i++)
        if (pass->f->values.at[o->out + k].storage.view != VIEW_OF &&
            pass->class[o->out + k] == pass->class[loop->in[i]])
          return true;
  }
  return false;
}

static const char *why_not(const TurnPass *pass) {
  for (OpId i = pass->t.loop[0]; i <= schedule_end(&pass->t); i++) {
    const Op *o = &pass->f->ops.at[i];
    bool loop = schedule_loop_number(&pass->t, i) >= 0, last = i == schedule_end(&pass->t);
    if (loop && is_late(pass, i)) return "a sum over micro-batches depends on another one";
    if (is_late(pass, i)) continue;
    if (writes_over(pass, i))
      return "the backward pass overwrites a value that the forward pass reads";
    if (!loop && !moves(pass, i) && !is_view(pass, o))
      return "an op between forward and backward needs all micro-batches";
    uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
    for (uint32_t k = carry; loop && !last && k < o->nout; k++)
      if (!is_outermost(pass, o->out + k))
        return "micro-batches are not the outermost dim of a stacked value";
  }
  for (ValueId v = 0; v < pass->f->values.n; v++)
    if (crosses(pass, v) && !is_ring(pass, v))
      return "a value of a micro-batch is read after its backward pass";
  return NULL;
}

/* ---- the new function ---- */

/* Loop `to` reads value v, which is stored in a ring that loop `from` begins to fill. */
static void give_slots(TurnPass *pass, ValueId v, int from, int to) {
  int64_t n = schedule_ring_slots(pass->m, &pass->t.table, from, to);
  int64_t *slots = &pass->slots[pass->class[v]];
  *slots = n > *slots ? n : *slots;
}

/* A loop may write a stack in place of one that an op before the loops has made of all
   micro-batches: both keep all of them. */
static void keep_whole_stacks(TurnPass *pass) {
  for (ValueId v = 0; v < pass->f->values.n; v++) {
    int at = type_find(value_type(pass->f, v), pass->dim);
    if (at >= 0 && !pass->follows[v] && pass->slots[pass->class[v]])
      pass->slots[pass->class[v]] = value_type(pass->f, v)->axis[at].size;
  }
}

/* A result that a loop makes in place of an operand shares its ring. */
static void find_slots(TurnPass *pass) {
  int *first = ARENA_ARRAY(pass->m->arena, int, pass->f->values.n + 1);
  pass->slots = ARENA_ARRAY(pass->m->arena, int64_t, pass->f->values.n + 1);
  for (int i = pass->t.n - 1; i-- > 0;) {
    const Op *o = &pass->f->ops.at[pass->t.loop[i]];
    for (uint32_t k = 0; k < o->nout; k++)
      pass->slots[pass->class[o->out + k]] = 1, first[pass->class[o->out + k]] = i;
  }
  for (int i = 1; i < pass->t.n; i++) {
    const Op *o = &pass->f->ops.at[pass->t.loop[i]];
    for (uint32_t k = loop_whole(o); k < o->nin; k++)
      if (crosses(pass, o->in[k])) give_slots(pass, o->in[k], first[pass->class[o->in[k]]], i);
  }
  keep_whole_stacks(pass);
}

static void set_table(const TurnPass *pass, Op *o) {
  const ScheduleTable *table = &pass->t.table;
  int64_t n = table->stages, *both = ARENA_ARRAY(pass->m->arena, int64_t, 2 * n);
  for (int64_t s = 0; s < n; s++) {
    both[s] = table->most[s];
    if (table->wait) both[n + s] = table->wait[s];
  }
  attr_set_ints(pass->m, &o->attrs, ATTR_turns, (int)(table->wait ? 2 * n : n), both);
}

static void copy_op(const TurnPass *pass, Rebuild *rebuild, OpId id) {
  int loop = schedule_loop_number(&pass->t, id);
  Op *o = rebuild_op(rebuild, &pass->f->ops.at[id]);
  if (loop >= 0) set_table(pass, o);
  if (loop >= 0 && schedule_has_chunks(&pass->t.table))
    attr_set_int(pass->m, &o->attrs, ATTR_interleave, pass->t.table.chunks);
  if (loop == TURN_FORWARD) attr_set_str(pass->m, &o->attrs, ATTR_axis, pass->axis);
}

static void shorten(const TurnPass *pass, Rebuild *rebuild) {
  for (ValueId v = 0; v < pass->f->values.n; v++) {
    if (!crosses(pass, v)) continue;
    Type *type = &rebuild->to->values.at[rebuild->map[v]].type;
    type->axis[type_find(type, pass->dim)].size = pass->slots[pass->class[v]];
  }
}

/* Ops that move first, then the loops with their views, then ops that depend on them, and the
   rest. */
static Fn *take_turns(const TurnPass *pass) {
  Rebuild rebuild = rebuild_begin(pass->m, pass->f);
  OpId first = pass->t.loop[0];
  for (OpId i = 0; i < first; i++) copy_op(pass, &rebuild, i);
  for (OpId i = first; i < schedule_end(&pass->t); i++)
    if (moves(pass, i)) copy_op(pass, &rebuild, i);
  for (OpId i = first; i <= schedule_end(&pass->t); i++)
    if (!moves(pass, i) && !is_late(pass, i)) copy_op(pass, &rebuild, i);
  for (OpId i = first; i < schedule_end(&pass->t); i++)
    if (is_late(pass, i)) copy_op(pass, &rebuild, i);
  for (OpId i = schedule_end(&pass->t) + 1; i < pass->f->ops.n; i++) copy_op(pass, &rebuild, i);
  shorten(pass, &rebuild);
  rebuild_results(&rebuild);
  return rebuild.to;
}

static void entry_turns(Module *m, Fn *f) {
  TurnPass pass = {.m = m, .f = f};
  bool weights = !strcmp(plan_schedule(m), "zero_bubble");
  bool chunks = module_chunks(m) > 1;
  if (!plan_takes_turns(m)) return;
  if (chunks ? !find_chunks(&pass) : !find_loops(&pass, weights)) return;
  pass.dim = f->ops.at[pass.t.loop[0]].group[0].from[0];
  pass.class = shared_bytes(m->arena, pass.f).of;
  find_table(&pass), find_follows(&pass);
  const char *why = why_not(&pass);
  if (why) {
    stages_refuse(m, pass.axis, why,
                  "`pipeline gpipe`: all micro-batches forward, then all backward");
    return;
  }
  find_slots(&pass);
  module_replace(m, pass.f, take_turns(&pass));
}

void pass_turns(Module *m) {
  for (uint32_t i = 0, n = m->mesh.n ? m->fns.n : 0; i < n; i++)
    if (entry_trains(m->fns.at[i])) entry_turns(m, m->fns.at[i]);
}
