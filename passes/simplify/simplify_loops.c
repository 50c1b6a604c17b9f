/* Loops with fewer operands and results: part of simplify.

   For one loop op the plan gives the outcome of each operand and each result:

     operand   kept, dropped (its argument is dead), the same as an earlier one, made again in the
               body (a constant or a position), or moved from carried to invariant (the body
               returns it unchanged)
     result    kept, dropped (it has no reader), or known outside: an operand, a constant, an
               earlier result

   A body may serve several loops, so a changed loop gets a body of its own; equal bodies are
   merged later (simplify.c). */
#include "simplify_inside.h"

typedef enum OperandFate {
  OPERAND_KEPT,
  OPERAND_DROPPED,
  OPERAND_SAME,
  OPERAND_MADE,
  OPERAND_FIXED
} OperandFate;
typedef enum ResultFate {
  RESULT_KEPT,
  RESULT_DROPPED,
  RESULT_OPERAND,
  RESULT_SPREAD,
  RESULT_MADE,
  RESULT_SAME
} ResultFate;

typedef struct LoopPlan {
  Module *m;
  const Fn *f; /* with the loop */
  const Op *o;
  const Fn *body;
  LoopShape s;
  bool *live; /* values of body */
  OperandFate *operand;
  ResultFate *result;
  uint32_t *which; /* OPERAND_SAME: which operand; by operand */
  uint32_t *of;    /* RESULT_OPERAND, _SPREAD, _SAME: which operand or result; by result */
  bool changed;
} LoopPlan;

static ValueId body_arg(const LoopPlan *plan, uint32_t operand) {
  return plan->body->args.at[operand + 1];
}

/* Operand whose argument v is, or -1. */
static int64_t operand_of(const LoopPlan *plan, ValueId v) {
  const Value *x = &plan->body->values.at[v];
  return x->def == NO_OP && x->result > 0 ? (int64_t)x->result - 1 : -1;
}

/* A carried result is live if an op outside reads it, or if the body reads the argument that it
   becomes. */
static void find_live(LoopPlan *plan, const uint32_t *uses) {
  bool *read = ARENA_ARRAY(plan->m->arena, bool, plan->o->nout + 1);
  for (uint32_t i = 0; i < plan->o->nout; i++) read[i] = uses[plan->o->out + i] > 0;
  for (bool again = true; again;) {
    again = false;
    plan->live = live_values(plan->m, plan->body, read);
    for (uint32_t i = 0; i < plan->s.carry; i++)
      if (!read[i] && plan->live[body_arg(plan, i)]) read[i] = again = true;
  }
  for (uint32_t i = 0; i < plan->o->nout; i++)
    if (!read[i]) plan->result[i] = RESULT_DROPPED;
}

/* Constants, expanded ones too, and positions: ops without operands that a body can make itself. */
static bool made_of_nothing(const Fn *f, ValueId v) {
  const Op *def = value_def(f, v);
  if (def && def->code == OP_expand) def = value_def(f, def->in[0]);
  return def && (def->code == OP_const || def->code == OP_iota);
}

static void judge_carried(LoopPlan *plan, uint32_t i) {
  if (plan->result[i] == RESULT_DROPPED) plan->operand[i] = OPERAND_DROPPED;
  else if (plan->body->results.at[i] == body_arg(plan, i))
    plan->operand[i] = OPERAND_FIXED, plan->result[i] = RESULT_OPERAND, plan->of[i] = i;
}

/* Is the operand part of a stack that a live result continues? Then it is not merged with others,
   since its buffer may be taken over. */
static bool is_continued(const LoopPlan *plan, uint32_t operand) {
  for (uint32_t i = plan->s.carry; i < plan->o->nout; i++)
    if (plan->result[i] == RESULT_KEPT && loop_continues(plan->o, i) == operand) return true;
  return false;
}

static void judge_other(LoopPlan *plan, uint32_t i) {
  bool invariant = i < plan->s.carry + plan->s.invariant;
  if (is_continued(plan, i)) return;
  if (!plan->live[body_arg(plan, i)]) {
    plan->operand[i] = OPERAND_DROPPED;
  } else if (invariant && made_of_nothing(plan->f, plan->o->in[i])) {
    plan->operand[i] = OPERAND_MADE;
  } else {
    for (uint32_t j = invariant ? plan->s.carry : plan->s.carry + plan->s.invariant; j < i; j++)
      if (plan->o->in[j] == plan->o->in[i] && plan->operand[j] == OPERAND_KEPT &&
          !is_continued(plan, j))
        plan->operand[i] = OPERAND_SAME, plan->which[i] = j;
  }
}

/* A result of all rounds is the body's result for the operand of its type; if other loops also
   write the stack, only a loop that continues this operand counts. */
static bool shows_operand(const LoopPlan *plan, uint32_t i, int64_t n) {
  uint32_t on = loop_continues(plan->o, i);
  if (n < plan->s.carry) return false;
  if (n < plan->s.carry + plan->s.invariant) return on == NO_VALUE;
  /* The host makes its values row by row in such a loop (fuse_producers.c). */
  if (value_type(plan->f, plan->o->in[n])->tier == TIER_host && plan->s.trip > 1) return false;
  return type_same_dims(value_type(plan->f, plan->o->in[n]),
                        value_type(plan->f, plan->o->out + i)) &&
         (on == NO_VALUE || on == n);
}

static void judge_stacked_result(LoopPlan *plan, uint32_t i) {
  ValueId v = plan->body->results.at[i];
  int64_t n = operand_of(plan, v);
  if (plan->result[i] == RESULT_DROPPED) return;
  if (shows_operand(plan, i, n)) {
    bool invariant = n < plan->s.carry + plan->s.invariant;
    plan->result[i] = invariant ? RESULT_SPREAD : RESULT_OPERAND, plan->of[i] = (uint32_t)n;
  } else if (loop_continues(plan->o, i) != NO_VALUE) {
    return;
  } else if (made_of_nothing(plan->body, v)) {
    plan->result[i] = RESULT_MADE;
  } else {
    for (uint32_t j = plan->s.carry; j < i; j++)
      if (plan->body->results.at[j] == v && plan->result[j] == RESULT_KEPT &&
          loop_into(&plan->s, i) == loop_into(&plan->s, j))
        plan->result[i] = RESULT_SAME, plan->of[i] = j;
  }
}

static void make_plan(LoopPlan *plan, const uint32_t *uses) {
  find_live(plan, uses);
  for (uint32_t i = 0; i < plan->s.carry; i++) judge_carried(plan, i);
  for (uint32_t i = plan->s.carry; i < plan->o->nout; i++) judge_stacked_result(plan, i);
  for (uint32_t i = plan->s.carry; i < plan->o->nin; i++) judge_other(plan, i);
  for (uint32_t i = 0; i < plan->o->nin; i++) plan->changed |= plan->operand[i] != OPERAND_KEPT;
  for (uint32_t i = 0; i < plan->o->nout; i++) plan->changed |= plan->result[i] != RESULT_KEPT;
}

/* Copies the ops that make v (one or two ops without operands) to the end of `to`. */
static ValueId make_again(Module *m, Fn *to, const Fn *from, ValueId v) {
  ValueId *map = value_map(m, from);
  const Op *def = value_def(from, v);
  must(def && (def->code == OP_expand || !def->nin), "simplify: %%%u of %s is not made of nothing",
       v, from->name);
  if (def->code == OP_expand) fn_clone_op(m, to, from, value_def(from, def->in[0]), map);
  fn_clone_op(m, to, from, def, map);
  return map[v];
}

/* ---- the new body ---- */
static void add_args(LoopPlan *plan, Rebuild *rebuild, OperandFate fate, uint32_t begin,
                     uint32_t end) {
  for (uint32_t i = begin; i < end; i++)
    if (plan->operand[i] == fate)
      rebuild->map[body_arg(plan, i)] =
          fn_arg(plan->m, rebuild->to, *value_type(plan->body, body_arg(plan, i)));
}

static void other_args(LoopPlan *plan, Rebuild *rebuild) {
  for (uint32_t i = 0; i < plan->o->nin; i++)
    if (plan->operand[i] == OPERAND_MADE)
      rebuild->map[body_arg(plan, i)] = make_again(plan->m, rebuild->to, plan->f, plan->o->in[i]);
    else if (plan->operand[i] == OPERAND_SAME)
      rebuild->map[body_arg(plan, i)] = rebuild->map[body_arg(plan, plan->which[i])];
}

static Fn *new_body(LoopPlan *plan) {
  uint32_t c = plan->s.carry, v = c + plan->s.invariant;
  Rebuild rebuild = {plan->m, plan->body, fn_new(plan->m, FN_BODY, plan->body->name),
                     value_map(plan->m, plan->body)};
  rebuild.to->loc = plan->body->loc;
  rebuild.map[plan->body->args.at[0]] = fn_arg(plan->m, rebuild.to, type_scalar(ELEM_i32));
  add_args(plan, &rebuild, OPERAND_KEPT, 0, c);
  add_args(plan, &rebuild, OPERAND_FIXED, 0, c);
  add_args(plan, &rebuild, OPERAND_KEPT, c, v);
  add_args(plan, &rebuild, OPERAND_KEPT, v, plan->o->nin);
  other_args(plan, &rebuild);
  EACH_OP (plan->body, o) {
    bool live = op_acts(o);
    for (uint32_t j = 0; j < o->nout; j++) live |= plan->live[o->out + j];
    if (live) rebuild_op(&rebuild, o);
  }
  for (uint32_t i = 0; i < plan->o->nout; i++)
    if (plan->result[i] == RESULT_KEPT)
      fn_result(plan->m, rebuild.to, rebuild.map[plan->body->results.at[i]]);
  return rebuild.to;
}

/* ---- the new loop ---- */
static uint32_t add_operands(LoopPlan *plan, const Rebuild *rebuild, OperandFate fate,
                             uint32_t begin, uint32_t end, ValueId *in, uint32_t n) {
  for (uint32_t i = begin; i < end; i++)
    if (plan->operand[i] == fate) in[n++] = rebuild->map[plan->o->in[i]];
  return n;
}

/* Attribute `continues` for the results that stay, by the new numbers of the operands that stay. */
static void renumber_into(const LoopPlan *plan, LoopShape *shape) {
  uint32_t v = plan->s.carry + plan->s.invariant;
  int64_t *into = ARENA_ARRAY(plan->m->arena, int64_t, plan->o->nout + 1);
  shape->into = into, shape->ninto = 0;
  for (uint32_t i = plan->s.carry; i < plan->o->nout; i++) {
    int64_t k = loop_into(&plan->s, i), to = k < 0 ? k : 0;
    for (uint32_t j = 0; k > 0 && j < k; j++) to += plan->operand[v + j] == OPERAND_KEPT;
    if (plan->result[i] == RESULT_KEPT) into[shape->ninto++] = to;
  }
}

static ValueId new_loop(LoopPlan *plan, Rebuild *rebuild) {
  uint32_t c = plan->s.carry, v = c + plan->s.invariant;
  ValueId *in = ARENA_ARRAY(plan->m->arena, ValueId, plan->o->nin + 1);
  LoopShape shape = plan->s;
  shape.carry = add_operands(plan, rebuild, OPERAND_KEPT, 0, c, in, 0);
  uint32_t n = add_operands(plan, rebuild, OPERAND_FIXED, 0, c, in, shape.carry);
  n = add_operands(plan, rebuild, OPERAND_KEPT, c, v, in, n);
  shape.invariant = n - shape.carry;
  shape.stacked = add_operands(plan, rebuild, OPERAND_KEPT, v, plan->o->nin, in, n) - n;
  renumber_into(plan, &shape);
  return rebuild_loop(plan->m, rebuild->to, new_body(plan), shape, in, plan->o->loc)->out;
}

static ValueId spread_over_rounds(LoopPlan *plan, Rebuild *rebuild, uint32_t i, ValueId v) {
  Axis axis = loop_axis(&plan->s, i);
  return ir_expand(plan->m, rebuild->to, v, 1, &axis, plan->o->loc);
}

static void map_result(LoopPlan *plan, Rebuild *rebuild, uint32_t i) {
  ValueId *to = &rebuild->map[plan->o->out + i];
  switch (plan->result[i]) {
  case RESULT_OPERAND: *to = rebuild->map[plan->o->in[plan->of[i]]]; break;
  case RESULT_SPREAD:
    *to = spread_over_rounds(plan, rebuild, i, rebuild->map[plan->o->in[plan->of[i]]]);
    break;
  case RESULT_MADE:
    *to = spread_over_rounds(
        plan, rebuild, i, make_again(plan->m, rebuild->to, plan->body, plan->body->results.at[i]));
    break;
  case RESULT_SAME: *to = rebuild->map[plan->o->out + plan->of[i]]; break;
  case RESULT_KEPT:
  case RESULT_DROPPED: break;
  }
}

static void replace_loop(LoopPlan *plan, Rebuild *rebuild) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < plan->o->nout; i++) kept += plan->result[i] == RESULT_KEPT;
  ValueId next = kept || op_acts(plan->o) ? new_loop(plan, rebuild) : NO_VALUE;
  for (uint32_t i = 0; i < plan->o->nout; i++)
    if (plan->result[i] == RESULT_KEPT) rebuild->map[plan->o->out + i] = next++;
  for (uint32_t i = 0; i < plan->o->nout; i++) map_result(plan, rebuild, i);
}

static LoopPlan plan_loop(Module *m, const Fn *f, const Op *o, const uint32_t *uses) {
  Arena *arena = m->arena;
  LoopPlan plan = {.m = m, .f = f, .o = o, .body = o->callee, .s = loop_shape(o)};
  plan.operand = ARENA_ARRAY(arena, OperandFate, o->nin + 1),
  plan.which = ARENA_ARRAY(arena, uint32_t, o->nin + 1);
  plan.result = ARENA_ARRAY(arena, ResultFate, o->nout + 1),
  plan.of = ARENA_ARRAY(arena, uint32_t, o->nout + 1);
  make_plan(&plan, uses);
  return plan;
}

static uint32_t *count_uses(Module *m, const Fn *f) {
  uint32_t *uses = ARENA_ARRAY(m->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t j = 0; j < f->ops.at[i].nin; j++) uses[f->ops.at[i].in[j]]++;
  for (uint32_t i = 0; i < f->results.n; i++) uses[f->results.at[i]]++;
  return uses;
}

Fn *simplify_loops(Module *m, const Fn *f) {
  const uint32_t *uses = count_uses(m, f);
  VEC(LoopPlan) plans = {0};
  bool changed = false;
  EACH_OP (f, o)
    if (o->code == OP_loop) {
      vec_push(m->arena, plans, plan_loop(m, f, o, uses));
      changed |= vec_last(plans).changed;
    }
  if (!changed) return NULL;
  Rebuild rebuild = rebuild_begin(m, f);
  LoopPlan *next = plans.at;
  EACH_OP (f, o) {
    LoopPlan *plan = o->code == OP_loop ? next++ : NULL;
    if (plan && plan->changed) replace_loop(plan, &rebuild);
    else rebuild_op(&rebuild, o);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}
