/* Loops with less to carry: part of simplify.

   For one loop op the plan says what becomes of each operand and each result:
     operand   kept, dropped (its argument is dead), the same as an earlier one, made again in the
               body (a constant or a position), or moved from carried to invariant (the body
               returns it as it came)
     result    kept, dropped (nobody reads it), or known outside: an operand, a constant, an
               earlier result
   A body may serve several loops, so a changed loop gets a body of its own; equal bodies are merged
   later (simplify.c). */
#include "passes/simplify.h"

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

static ValueId body_arg(const LoopPlan *p, uint32_t operand) {
  return p->body->args.at[operand + 1];
}

/* Operand whose argument v is, or -1. */
static int64_t operand_of(const LoopPlan *p, ValueId v) {
  const Value *x = &p->body->values.at[v];
  return x->def == NO_OP && x->result > 0 ? (int64_t)x->result - 1 : -1;
}

/* A carried result is read if somebody outside reads it, or the body reads the argument that it
 * becomes. */
static void find_live(LoopPlan *p, const uint32_t *uses) {
  bool *read = ARENA_ARRAY(p->m->arena, bool, p->o->nout + 1);
  for (uint32_t i = 0; i < p->o->nout; i++) read[i] = uses[p->o->out + i] > 0;
  for (bool again = true; again;) {
    again = false;
    p->live = live_values(p->m, p->body, read);
    for (uint32_t i = 0; i < p->s.carry; i++)
      if (!read[i] && p->live[body_arg(p, i)]) read[i] = again = true;
  }
  for (uint32_t i = 0; i < p->o->nout; i++)
    if (!read[i]) p->result[i] = RESULT_DROPPED;
}

/* Constants, expanded ones too, and positions: ops without operands that a body can make itself. */
static bool made_of_nothing(const Fn *f, ValueId v) {
  const Op *def = value_def(f, v);
  if (def && def->code == OP_expand) def = value_def(f, def->in[0]);
  return def && (def->code == OP_const || def->code == OP_iota);
}

static void judge_carried(LoopPlan *p, uint32_t i) {
  if (p->result[i] == RESULT_DROPPED) p->operand[i] = OPERAND_DROPPED;
  else if (p->body->results.at[i] == body_arg(p, i))
    p->operand[i] = OPERAND_FIXED, p->result[i] = RESULT_OPERAND, p->of[i] = i;
}

/* Is it in a stack that a result which somebody reads goes on with? Such a one stays alone: it may
   be taken over. */
static bool is_continued(const LoopPlan *p, uint32_t operand) {
  for (uint32_t i = p->s.carry; i < p->o->nout; i++)
    if (p->result[i] == RESULT_KEPT && loop_continues(p->o, i) == operand) return true;
  return false;
}

static void judge_other(LoopPlan *p, uint32_t i) {
  bool invariant = i < p->s.carry + p->s.invariant;
  if (is_continued(p, i)) return;
  if (!p->live[body_arg(p, i)]) {
    p->operand[i] = OPERAND_DROPPED;
  } else if (invariant && made_of_nothing(p->f, p->o->in[i])) {
    p->operand[i] = OPERAND_MADE;
  } else {
    for (uint32_t j = invariant ? p->s.carry : p->s.carry + p->s.invariant; j < i; j++)
      if (p->o->in[j] == p->o->in[i] && p->operand[j] == OPERAND_KEPT && !is_continued(p, j))
        p->operand[i] = OPERAND_SAME, p->which[i] = j;
  }
}

/* A result of all rounds is what the body returns of the operand of its type; of a stack that other
   loops write, too, only if it continues that one. */
static bool shows_operand(const LoopPlan *p, uint32_t i, int64_t n) {
  uint32_t on = loop_continues(p->o, i);
  if (n < p->s.carry) return false;
  if (n < p->s.carry + p->s.invariant) return on == NO_VALUE;
  return type_same_dims(value_type(p->f, p->o->in[n]), value_type(p->f, p->o->out + i)) &&
         (on == NO_VALUE || on == n);
}

static void judge_stacked_result(LoopPlan *p, uint32_t i) {
  ValueId v = p->body->results.at[i];
  int64_t n = operand_of(p, v);
  if (p->result[i] == RESULT_DROPPED) return;
  if (shows_operand(p, i, n)) {
    bool invariant = n < p->s.carry + p->s.invariant;
    p->result[i] = invariant ? RESULT_SPREAD : RESULT_OPERAND, p->of[i] = (uint32_t)n;
  } else if (loop_continues(p->o, i) != NO_VALUE) {
    return;
  } else if (made_of_nothing(p->body, v)) {
    p->result[i] = RESULT_MADE;
  } else {
    for (uint32_t j = p->s.carry; j < i; j++)
      if (p->body->results.at[j] == v && p->result[j] == RESULT_KEPT &&
          loop_into(&p->s, i) == loop_into(&p->s, j))
        p->result[i] = RESULT_SAME, p->of[i] = j;
  }
}

static void make_plan(LoopPlan *p, const uint32_t *uses) {
  find_live(p, uses);
  for (uint32_t i = 0; i < p->s.carry; i++) judge_carried(p, i);
  for (uint32_t i = p->s.carry; i < p->o->nout; i++) judge_stacked_result(p, i);
  for (uint32_t i = p->s.carry; i < p->o->nin; i++) judge_other(p, i);
  for (uint32_t i = 0; i < p->o->nin; i++) p->changed |= p->operand[i] != OPERAND_KEPT;
  for (uint32_t i = 0; i < p->o->nout; i++) p->changed |= p->result[i] != RESULT_KEPT;
}

/* Copies what makes v (one or two ops without operands) to the end of `to`. */
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
static void add_args(LoopPlan *p, Rebuild *r, OperandFate fate, uint32_t begin, uint32_t end) {
  for (uint32_t i = begin; i < end; i++)
    if (p->operand[i] == fate)
      r->map[body_arg(p, i)] = fn_arg(p->m, r->to, *value_type(p->body, body_arg(p, i)));
}

static void other_args(LoopPlan *p, Rebuild *r) {
  for (uint32_t i = 0; i < p->o->nin; i++)
    if (p->operand[i] == OPERAND_MADE)
      r->map[body_arg(p, i)] = make_again(p->m, r->to, p->f, p->o->in[i]);
    else if (p->operand[i] == OPERAND_SAME)
      r->map[body_arg(p, i)] = r->map[body_arg(p, p->which[i])];
}

static Fn *new_body(LoopPlan *p) {
  uint32_t c = p->s.carry, v = c + p->s.invariant;
  Rebuild r = {p->m, p->body, fn_new(p->m, FN_BODY, p->body->name), value_map(p->m, p->body)};
  r.to->loc = p->body->loc;
  r.map[p->body->args.at[0]] = fn_arg(p->m, r.to, type_scalar(ELEM_i32));
  add_args(p, &r, OPERAND_KEPT, 0, c);
  add_args(p, &r, OPERAND_FIXED, 0, c);
  add_args(p, &r, OPERAND_KEPT, c, v);
  add_args(p, &r, OPERAND_KEPT, v, p->o->nin);
  other_args(p, &r);
  for (uint32_t i = 0; i < p->body->ops.n; i++) {
    const Op *o = &p->body->ops.at[i];
    bool live = op_acts(o);
    for (uint32_t j = 0; j < o->nout; j++) live |= p->live[o->out + j];
    if (live) rebuild_op(&r, o);
  }
  for (uint32_t i = 0; i < p->o->nout; i++)
    if (p->result[i] == RESULT_KEPT) fn_result(p->m, r.to, r.map[p->body->results.at[i]]);
  return r.to;
}

/* ---- the new loop ---- */
static uint32_t add_operands(LoopPlan *p, const Rebuild *r, OperandFate fate, uint32_t begin,
                             uint32_t end, ValueId *in, uint32_t n) {
  for (uint32_t i = begin; i < end; i++)
    if (p->operand[i] == fate) in[n++] = r->map[p->o->in[i]];
  return n;
}

/* Attribute `into` for the results that stay, by the new numbers of the operands that stay. */
static void renumber_into(const LoopPlan *p, LoopShape *s) {
  uint32_t v = p->s.carry + p->s.invariant;
  int64_t *into = ARENA_ARRAY(p->m->arena, int64_t, p->o->nout + 1);
  s->into = into, s->ninto = 0;
  for (uint32_t i = p->s.carry; i < p->o->nout; i++) {
    int64_t k = loop_into(&p->s, i), to = k < 0 ? k : 0;
    for (uint32_t j = 0; k > 0 && j < k; j++) to += p->operand[v + j] == OPERAND_KEPT;
    if (p->result[i] == RESULT_KEPT) into[s->ninto++] = to;
  }
}

static ValueId new_loop(LoopPlan *p, Rebuild *r) {
  uint32_t c = p->s.carry, v = c + p->s.invariant;
  ValueId *in = ARENA_ARRAY(p->m->arena, ValueId, p->o->nin + 1);
  LoopShape s = p->s;
  s.carry = add_operands(p, r, OPERAND_KEPT, 0, c, in, 0);
  uint32_t n = add_operands(p, r, OPERAND_FIXED, 0, c, in, s.carry);
  n = add_operands(p, r, OPERAND_KEPT, c, v, in, n);
  s.invariant = n - s.carry;
  s.stacked = add_operands(p, r, OPERAND_KEPT, v, p->o->nin, in, n) - n;
  renumber_into(p, &s);
  return rebuild_loop(p->m, r->to, new_body(p), s, in, p->o->loc)->out;
}

static ValueId spread_over_rounds(LoopPlan *p, Rebuild *r, uint32_t i, ValueId v) {
  Axis axis = loop_axis(&p->s, i);
  return ir_expand(p->m, r->to, v, 1, &axis, p->o->loc);
}

static void map_result(LoopPlan *p, Rebuild *r, uint32_t i) {
  ValueId *to = &r->map[p->o->out + i];
  switch (p->result[i]) {
  case RESULT_OPERAND: *to = r->map[p->o->in[p->of[i]]]; break;
  case RESULT_SPREAD: *to = spread_over_rounds(p, r, i, r->map[p->o->in[p->of[i]]]); break;
  case RESULT_MADE:
    *to = spread_over_rounds(p, r, i, make_again(p->m, r->to, p->body, p->body->results.at[i]));
    break;
  case RESULT_SAME: *to = r->map[p->o->out + p->of[i]]; break;
  case RESULT_KEPT:
  case RESULT_DROPPED: break;
  }
}

static void replace_loop(LoopPlan *p, Rebuild *r) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < p->o->nout; i++) kept += p->result[i] == RESULT_KEPT;
  ValueId next = kept || op_acts(p->o) ? new_loop(p, r) : NO_VALUE;
  for (uint32_t i = 0; i < p->o->nout; i++)
    if (p->result[i] == RESULT_KEPT) r->map[p->o->out + i] = next++;
  for (uint32_t i = 0; i < p->o->nout; i++) map_result(p, r, i);
}

static bool simplify_loop(Rebuild *r, const Op *o, const uint32_t *uses) {
  Arena *a = r->m->arena;
  LoopPlan p = {.m = r->m, .f = r->from, .o = o, .body = o->callee, .s = loop_shape(o)};
  p.operand = ARENA_ARRAY(a, OperandFate, o->nin + 1),
  p.which = ARENA_ARRAY(a, uint32_t, o->nin + 1);
  p.result = ARENA_ARRAY(a, ResultFate, o->nout + 1), p.of = ARENA_ARRAY(a, uint32_t, o->nout + 1);
  make_plan(&p, uses);
  if (p.changed) replace_loop(&p, r);
  return p.changed;
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
  Rebuild r = rebuild_begin(m, f);
  bool changed = false;
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop && simplify_loop(&r, o, uses)) changed = true;
    else rebuild_op(&r, o);
  }
  rebuild_results(&r);
  return changed ? r.to : NULL;
}
