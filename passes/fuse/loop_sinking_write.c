/* Loop sinking, part of pass fuse: writes the loops whose rounds take the work that loop_sinking.c
   found. Bodies get the operands of the work, do the work last, and return its results that are
   read; values that only the work read are no longer results. Must not: decide which work is
   moved. */
#include "loop_sinking.h"

/* ---- the body ---- */

typedef struct Inside { /* of a loop: its body with the work */
  const FuseRounds *x;
  const RoundLink *l;
  Rebuild r;    /* of the body */
  ValueId *map; /* from values of the function to those of the new body */
} Inside;

static void add_args(Inside *inside, const ValueList *more) {
  for (uint32_t i = 0; i < more->n; i++) {
    Type slice = type_without(value_type(inside->x->f, more->at[i]), &inside->l->s.axis.dim, 1);
    inside->map[more->at[i]] = fn_arg(inside->r.m, inside->r.to, slice);
  }
}

/* Does operand k continue a stack that the work takes over? It is removed, with its argument. */
static bool is_gone(const Op *loop, const RoundLink *link, uint32_t k) {
  for (uint32_t i = link->s.carry; i < loop->nout; i++)
    if (link->taken[i] && loop_continues(loop, i) == k) return true;
  return false;
}

/* The old arguments; new ones follow the old ones of their kind. */
static void give_args(Inside *inside, const Op *loop) {
  const Fn *from = inside->r.from;
  uint32_t stacked = 1 + inside->l->s.carry + inside->l->s.invariant;
  for (uint32_t i = 0; i < from->args.n; i++) {
    ValueId arg = from->args.at[i];
    if (i == stacked) add_args(inside, &inside->l->invariant);
    if (i && is_gone(loop, inside->l, i - 1)) continue;
    inside->r.map[arg] = fn_arg(inside->r.m, inside->r.to, *value_type(from, arg));
    if (i > inside->l->s.carry) inside->map[loop->in[i - 1]] = inside->r.map[arg];
  }
  if (from->args.n == stacked) add_args(inside, &inside->l->invariant);
  add_args(inside, &inside->l->stacked);
}

static void give_op(Inside *inside, const Op *o) {
  const Fn *fn = inside->x->f;
  for (uint32_t k = 0; k < o->nin; k++)
    if (inside->map[o->in[k]] == NO_VALUE)
      fn_clone_op(inside->r.m, inside->r.to, fn, value_def(fn, o->in[k]), inside->map);
  Op *c = fn_clone_op(inside->r.m, inside->r.to, fn, o, inside->map);
  inside->r.to->values.at[c->out].type =
      type_without(value_type(fn, o->out), &inside->l->s.axis.dim, 1);
}

static void give_result(Inside *inside, ValueList *gives, ValueId of, ValueId value) {
  fn_result(inside->r.m, inside->r.to, value);
  vec_push(inside->r.m->arena, *gives, of);
}

static void give_work(Inside *inside, RoundLink *link) {
  const FuseRounds *rounds = inside->x;
  const RoundWork *work = link->work;
  for (OpId i = work->loop + 1; i < rounds->f->ops.n; i++) {
    const Op *op = &rounds->f->ops.at[i];
    if (!work->op[i]) continue;
    give_op(inside, op);
    if (rounds_read_later(rounds->f, work->loop, work->op, op->out))
      give_result(inside, &link->gives, op->out, inside->map[op->out]);
  }
}

Fn *rounds_body(const FuseRounds *rounds, RoundLink *link) {
  const Op *loop = &rounds->f->ops.at[link->loop], *last = &rounds->f->ops.at[link->work->loop];
  const Fn *from = loop->callee;
  Inside inside = {rounds,
                   link,
                   {rounds->m, from, fn_like(rounds->m, from), value_map(rounds->m, from)},
                   value_map(rounds->m, rounds->f)};
  give_args(&inside, loop);
  for (OpId i = 0; i < from->ops.n; i++) rebuild_op(&inside.r, &from->ops.at[i]);
  for (uint32_t i = 0; i < loop->nout; i++)
    if (!link->taken[i])
      give_result(&inside, &link->gives, loop->out + i, inside.r.map[from->results.at[i]]);
  for (uint32_t i = link->s.carry; i < last->nout; i++)
    if (link->same[i] < loop->nout && link->taken[link->same[i]])
      inside.map[last->out + i] = inside.r.map[from->results.at[link->same[i]]];
  give_work(&inside, link);
  return inside.r.to;
}

/* ---- the function ---- */

/* v in the new function; its op is moved before the loop if it came after. */
static ValueId risen(Rebuild *rebuild, ValueId value) {
  const Op *op = value_def(rebuild->from, value);
  if (rebuild->map[value] != NO_VALUE) return rebuild->map[value];
  for (uint32_t k = 0; k < op->nin; k++) risen(rebuild, op->in[k]);
  rebuild_op(rebuild, op);
  return rebuild->map[value];
}

/* A stacked operand of the work: a later link reads the result of the previous link. */
static ValueId operand(Rebuild *rebuild, const RoundLink *link, ValueId v) {
  const RoundWork *work = link->work;
  for (ValueId u = 0; u < rebuild->from->values.n && work->link.n > 1; u++)
    if (work->buffer[u] == v && rebuild->map[u] != NO_VALUE) return rebuild->map[u];
  return risen(rebuild, v);
}

typedef struct RoundOperands { /* of a new loop */
  VEC(ValueId) in;             /* values of the new function, and of the old one */
  VEC(ValueId) old;
} RoundOperands;

static void add_operand(Rebuild *rebuild, RoundOperands *operands, ValueId value, ValueId old) {
  vec_push(rebuild->m->arena, operands->in, value);
  vec_push(rebuild->m->arena, operands->old, old);
}

static RoundOperands working_operands(Rebuild *rebuild, const Op *op, const RoundLink *link,
                                      LoopShape *shape) {
  RoundOperands operands = {0};
  uint32_t whole = shape->carry + shape->invariant;
  for (uint32_t k = 0; k < whole; k++)
    add_operand(rebuild, &operands, rebuild->map[op->in[k]], op->in[k]);
  for (uint32_t i = 0; i < link->invariant.n; i++)
    add_operand(rebuild, &operands, risen(rebuild, link->invariant.at[i]), link->invariant.at[i]);
  shape->invariant = operands.in.n - shape->carry;
  for (uint32_t k = whole; k < op->nin; k++)
    if (!is_gone(op, link, k))
      add_operand(rebuild, &operands, operand(rebuild, link, op->in[k]), op->in[k]);
  for (uint32_t i = 0; i < link->stacked.n; i++)
    add_operand(rebuild, &operands, operand(rebuild, link, link->stacked.at[i]),
                link->stacked.at[i]);
  shape->stacked = operands.in.n - shape->carry - shape->invariant;
  return operands;
}

/* Attribute `continues` of a new loop: old results continue the same operands, new ones their
   buffer. */
static void working_stacks(Rebuild *rebuild, const Op *op, const RoundLink *link,
                           const RoundOperands *operands, LoopShape *shape) {
  int64_t *into = ARENA_ARRAY(rebuild->m->arena, int64_t, link->gives.n + 1);
  for (uint32_t i = shape->carry; i < link->gives.n; i++) {
    ValueId value = link->gives.at[i], buffer = link->work->buffer[value];
    bool old = value >= op->out && value < op->out + op->nout;
    uint32_t on = old ? loop_continues(op, value - op->out) : NO_VALUE;
    if (on != NO_VALUE) buffer = op->in[on];
    into[i - shape->carry] = old ? loop_into(&link->s, value - op->out) : INTO_OWN;
    for (uint32_t k = shape->carry + shape->invariant; buffer != NO_VALUE && k < operands->old.n;
         k++)
      if (operands->old.at[k] == buffer)
        into[i - shape->carry] = k - shape->carry - shape->invariant;
  }
  shape->into = into, shape->ninto = link->gives.n - shape->carry;
}

static void working_loop(Rebuild *rebuild, const Op *o, const RoundLink *link) {
  LoopShape shape = link->s;
  RoundOperands operands = working_operands(rebuild, o, link, &shape);
  working_stacks(rebuild, o, link, &operands, &shape);
  const Op *c = rebuild_loop(rebuild->m, rebuild->to, o->callee, shape, operands.in.at, o->loc);
  for (uint32_t i = 0; i < link->gives.n; i++) rebuild->map[link->gives.at[i]] = c->out + i;
}

Fn *rounds_function(const FuseRounds *rounds, RoundLink *const *link) {
  Rebuild rebuild = rebuild_begin(rounds->m, rounds->f);
  for (OpId i = 0; i < rounds->f->ops.n; i++) {
    const Op *op = &rounds->f->ops.at[i];
    bool there = rounds->moved[i] || (op->nout && rebuild.map[op->out] != NO_VALUE);
    if (link[i]) working_loop(&rebuild, op, link[i]);
    else if (!there) rebuild_op(&rebuild, op);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}
