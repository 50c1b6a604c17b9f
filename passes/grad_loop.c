/* The gradient of a loop: a loop of the same dim that runs the other way, over a body of backward
   ops.

     forward    c.., s.. = loop f, carried, invariant, stacked
                           + results that backward reads, stacked
     backward   dc.., acc.., ds.. = loop f.bwd, dc.., 0..,
                           invariant, stacked, what forward kept, gradients of s

   The gradient of a carried value is carried; an invariant operand's is added up in a carried
   accumulator that starts at 0; a stacked operand's comes out stacked. The body is differentiated
   like any function (so loops nest). A carried value whose last round has no gradient may still get
   one inside: the set of carried gradients grows until it stays. Everything that backward reads and
   that is no operand of the loop is kept here; `recompute` thins that out. */
#include "passes/grad.h"

typedef struct Renamed {
  ValueId scratch, arg; /* argument of the scratch function; of the new body */
  Str name;             /* that the loop's own dim has in it */
} Renamed;

typedef struct LoopBack {
  Back *k; /* of the function with the loop */
  const Op *o;
  LoopShape s;
  const Fn *body;
  Back *in;        /* of the body */
  bool *carried;   /* [carry]: gradient is carried */
  ValueId *seed;   /* by result of body: argument of in->b, or NO_VALUE */
  ValueId *wanted; /* by operand: gradient of the body's argument in in->b, or NO_VALUE */
  VEC(Renamed) renamed;
  Fn *bwd;               /* the new body */
  ValueId *map;          /* in->b -> bwd */
  ValueList operands[3]; /* of the new loop, values of k->b: carried, invariant, stacked */
  ValueList results;     /* by result of the new loop: which operand of o it is the gradient of */
} LoopBack;

static void seed_body(LoopBack *l, const ValueId *dy) {
  for (uint32_t i = 0; i < l->body->results.n; i++) {
    l->seed[i] = NO_VALUE;
    if (i < l->s.carry ? !l->carried[i] : dy[i] == NO_VALUE) continue;
    ValueId v = l->body->results.at[i];
    l->seed[i] = fn_arg(l->k->m, l->in->b, *value_type(l->body, v));
    if (l->in->varied[v]) back_seed(l->in, v, l->seed[i]);
  }
}

static bool more_carried(LoopBack *l) {
  bool more = false;
  for (uint32_t i = 0; i < l->s.carry; i++)
    if (l->wanted[i] != NO_VALUE && !l->carried[i]) l->carried[i] = more = true;
  return more;
}

static void differentiate_body(LoopBack *l, const ValueId *dy) {
  const bool *varied = varied_body(l->k->m, l->k->f, l->o, l->k->varied);
  for (uint32_t i = 0; i < l->s.carry; i++) l->carried[i] = dy[i] != NO_VALUE;
  do {
    l->in = back_new(l->k->m, l->body, varied);
    l->in->loc = l->o->loc;
    seed_body(l, dy);
    back_run(l->in);
    for (uint32_t i = 0; i < l->o->nin; i++) {
      ValueId arg = l->body->args.at[i + 1];
      l->wanted[i] = varied[arg] ? back_total(l->in, arg) : NO_VALUE;
      if (i >= l->s.carry && !grad_wants(l->k, l->o, i)) l->wanted[i] = NO_VALUE;
    }
  } while (more_carried(l));
}

/* ---- arguments of the new body, operands of the new loop ---- */
static ValueId new_operand(LoopBack *l, int role, Type t, ValueId operand) {
  vec_push(l->k->m->arena, l->operands[role], operand);
  return fn_arg(l->k->m, l->bwd, t);
}

static void carried_gradients(LoopBack *l, const ValueId *dy) {
  for (uint32_t i = 0; i < l->s.carry; i++) {
    if (!l->carried[i]) continue;
    const Type *t = value_type(l->body, l->body->args.at[i + 1]);
    ValueId first = dy[i] != NO_VALUE ? dy[i] : grad_zeros(l->k, t);
    l->map[l->seed[i]] = new_operand(l, 0, *t, first);
    vec_push(l->k->m->arena, l->results, i);
  }
}

static void accumulators(LoopBack *l) {
  for (uint32_t i = l->s.carry; i < l->s.carry + l->s.invariant; i++) {
    if (l->wanted[i] == NO_VALUE) continue;
    const Type *t = grad_in_type(l->k, l->o, i);
    new_operand(l, 0, *t, grad_zeros(l->k, t));
    vec_push(l->k->m->arena, l->results, i);
  }
}

/* Which operand of the loop a body argument is; the counter is not asked for. */
static uint32_t operand_of(const LoopBack *l, ValueId v) {
  return l->body->values.at[v].result - 1;
}

static bool is_arg(const LoopBack *l, ValueId v) {
  return v != NO_VALUE && l->body->values.at[v].def == NO_OP;
}

static bool is_counter(const LoopBack *l, ValueId v) { return v == l->body->args.at[0]; }

static void invariant_reads(LoopBack *l) {
  for (uint32_t i = 0; i < l->in->reads.n; i++) {
    const Read *d = &l->in->reads.at[i];
    if (!is_arg(l, d->value) || is_counter(l, d->value)) continue;
    uint32_t n = operand_of(l, d->value);
    if (n < l->s.carry || n >= l->s.carry + l->s.invariant) continue;
    l->map[d->arg] = new_operand(l, 1, *value_type(l->in->b, d->arg), back_read(l->k, l->o->in[n]));
  }
}

/* A kept value that has the loop's own dim is stacked under another name for it. */
static Str free_dim(Module *m, const Type *t, Str dim) {
  Str free = dim;
  while (type_find(t, free) >= 0) free = intern_printf(m->ctx->names, "%s'", free);
  return free;
}

/* Kept: one more stacked result of the forward loop, read by the backward one. */
static void keep(LoopBack *l, const Read *d, Fn *fwd, ValueId kept, Extended *e) {
  Module *m = l->k->m;
  Str own = l->s.axis.dim, name = own;
  if (type_find(value_type(fwd, kept), own) >= 0) {
    name = free_dim(m, value_type(fwd, kept), own);
    kept = ir_rename(m, fwd, kept, own, name, l->o->loc);
  }
  Type t = *value_type(fwd, kept), all = type_of(t.elem, 1, &l->s.axis);
  if (t.rank == MAX_RANK) bug("a value of rank %d is kept over loop %s", t.rank, own);
  for (int i = 0; i < t.rank; i++) all.axis[all.rank++] = t.axis[i];
  fn_result(m, fwd, kept);
  OpId id = (OpId)(l->o - l->k->f->ops.at);
  ValueId arg = new_operand(l, 2, t, back_read_extra(l->k, id, e->extras++, all));
  l->map[d->arg] = arg;
  if (name != own) vec_push(m->arena, l->renamed, (Renamed){d->arg, arg, name});
}

/* Once all arguments are there: the names that kept values had. */
static void rename_back(LoopBack *l) {
  for (uint32_t i = 0; i < l->renamed.n; i++) {
    const Renamed *r = &l->renamed.at[i];
    l->map[r->scratch] = ir_rename(l->k->m, l->bwd, r->arg, r->name, l->s.axis.dim, l->o->loc);
  }
}

static void stacked_reads(LoopBack *l) {
  Rebuild r;
  Extended *e = &l->k->extended[l->o - l->k->f->ops.at];
  Fn *fwd = e->body = extended_forward(l->in, &r);
  fwd->name = intern_printf(l->k->m->ctx->names, "%s.fwd", l->body->name);
  ValueId *value = map_reads(l->in, &r);
  for (uint32_t i = 0; i < l->in->reads.n; i++) {
    const Read *d = &l->in->reads.at[i];
    bool arg = is_arg(l, d->value);
    if (arg && is_counter(l, d->value)) {
      l->map[d->arg] = l->bwd->args.at[0];
    } else if (arg && operand_of(l, d->value) >= l->s.carry + l->s.invariant) {
      ValueId whole = back_read(l->k, l->o->in[operand_of(l, d->value)]);
      l->map[d->arg] = new_operand(l, 2, *value_type(l->in->b, d->arg), whole);
    } else if (!arg || operand_of(l, d->value) < l->s.carry) {
      keep(l, d, fwd, value[d->arg], e);
    }
  }
}

static void stacked_seeds(LoopBack *l, const ValueId *dy) {
  for (uint32_t i = l->s.carry; i < l->body->results.n; i++)
    if (l->seed[i] != NO_VALUE)
      l->map[l->seed[i]] = new_operand(l, 2, *value_type(l->in->b, l->seed[i]), dy[i]);
}

/* ---- results ---- */
static void carried_results(LoopBack *l) {
  Module *m = l->k->m;
  for (uint32_t i = 0; i < l->s.carry; i++) {
    if (!l->carried[i]) continue;
    const Type *t = value_type(l->body, l->body->args.at[i + 1]);
    ValueId g = l->wanted[i];
    fn_result(m, l->bwd, g != NO_VALUE ? l->map[g] : emit_full(m, l->bwd, *t, 0, l->o->loc));
  }
}

static void accumulated_results(LoopBack *l) {
  Module *m = l->k->m;
  for (uint32_t n = l->bwd->results.n; n < l->results.n; n++) {
    ValueId sum = l->bwd->args.at[n + 1], g = l->map[l->wanted[l->results.at[n]]];
    fn_result(m, l->bwd, ir_binary(m, l->bwd, OP_add, sum, g, l->o->loc));
  }
}

static void stacked_results(LoopBack *l) {
  for (uint32_t i = l->s.carry + l->s.invariant; i < l->o->nin; i++) {
    if (l->wanted[i] == NO_VALUE) continue;
    fn_result(l->k->m, l->bwd, l->map[l->wanted[i]]);
    vec_push(l->k->m->arena, l->results, i);
  }
}

static void build_body(LoopBack *l, const ValueId *dy) {
  Module *m = l->k->m;
  l->bwd = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.bwd", l->body->name));
  l->bwd->loc = l->body->loc;
  l->map = value_map(m, l->in->b);
  fn_arg(m, l->bwd, type_scalar(ELEM_i32));
  carried_gradients(l, dy);
  accumulators(l);
  invariant_reads(l);
  stacked_reads(l);
  stacked_seeds(l, dy);
  rename_back(l);
  for (uint32_t i = 0; i < l->in->b->ops.n; i++)
    fn_clone_op(m, l->bwd, l->in->b, &l->in->b->ops.at[i], l->map);
  carried_results(l);
  accumulated_results(l);
  stacked_results(l);
}

static ValueId emit_backward(LoopBack *l) {
  ValueList all = {0};
  for (int role = 0; role < 3; role++)
    for (uint32_t i = 0; i < l->operands[role].n; i++)
      vec_push(l->k->m->arena, all, l->operands[role].at[i]);
  LoopShape s = {.carry = l->operands[0].n,
                 .invariant = l->operands[1].n,
                 .stacked = l->operands[2].n,
                 .trip = l->s.trip,
                 .reverse = !l->s.reverse,
                 .axis = l->s.axis,
                 .first = l->s.first,
                 .path = l->s.path};
  return rebuild_loop(l->k->m, l->k->b, l->bwd, s, all.at, l->o->loc)->out;
}

void grad_loop(Back *k, const Op *o, const ValueId *dy) {
  must(o->callee->args.n == o->nin + 1 && o->callee->results.n == o->nout,
       "grad: loop body %s does not fit its call", o->callee->name);
  LoopBack l = {.k = k, .o = o, .s = loop_shape(o), .body = o->callee};
  Arena *a = k->m->arena;
  l.carried = ARENA_ARRAY(a, bool, l.s.carry + 1);
  l.seed = ARENA_ARRAY(a, ValueId, l.body->results.n + 1);
  l.wanted = ARENA_ARRAY(a, ValueId, o->nin + 1);
  differentiate_body(&l, dy);
  build_body(&l, dy);
  if (!l.results.n) return;
  ValueId first = emit_backward(&l);
  for (uint32_t i = 0; i < l.results.n; i++) grad_give(k, o, l.results.at[i], first + i);
}
