/* The gradient of a loop: a loop of the same dim in reverse order, over a body of backward ops.

     forward    c.., s.. = loop f, carried, invariant, stacked
                           + results that backward reads, stacked
     backward   dc.., acc.., ds.. = loop f.bwd, dc.., 0..,
                           invariant, stacked, values kept by forward, gradients of s

   The gradient of a carried value is carried; an invariant operand's is added up in a carried
   accumulator that starts at 0; a stacked operand's is a stacked result. The body is
   differentiated like any function (so loops nest). A carried value whose last round has no
   gradient may still get one inside: the set of carried gradients grows to a fixed point. All
   values that backward reads and that are no operand of the loop are kept; `recompute` removes
   some of them. */
#include "grad.h"

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

static void seed_body(LoopBack *back, const ValueId *dy) {
  for (uint32_t i = 0; i < back->body->results.n; i++) {
    back->seed[i] = NO_VALUE;
    if (i < back->s.carry ? !back->carried[i] : dy[i] == NO_VALUE) continue;
    ValueId v = back->body->results.at[i];
    back->seed[i] = fn_arg(back->k->m, back->in->b, *value_type(back->body, v));
    if (back->in->varied[v]) back_seed(back->in, v, back->seed[i]);
  }
}

static bool more_carried(LoopBack *back) {
  bool more = false;
  for (uint32_t i = 0; i < back->s.carry; i++)
    if (back->wanted[i] != NO_VALUE && !back->carried[i]) back->carried[i] = more = true;
  return more;
}

static void differentiate_body(LoopBack *back, const ValueId *dy) {
  const bool *varied = varied_body(back->k->m, back->k->f, back->o, back->k->varied);
  for (uint32_t i = 0; i < back->s.carry; i++) back->carried[i] = dy[i] != NO_VALUE;
  do {
    back->in = back_new(back->k->m, back->body, varied);
    back->in->loc = back->o->loc;
    seed_body(back, dy);
    back_run(back->in);
    for (uint32_t i = 0; i < back->o->nin; i++) {
      ValueId arg = back->body->args.at[i + 1];
      back->wanted[i] = varied[arg] ? back_total(back->in, arg) : NO_VALUE;
      if (i >= back->s.carry && !grad_wants(back->k, back->o, i)) back->wanted[i] = NO_VALUE;
    }
  } while (more_carried(back));
}

/* ---- arguments of the new body, operands of the new loop ---- */
static ValueId new_operand(LoopBack *back, int role, Type t, ValueId operand) {
  vec_push(back->k->m->arena, back->operands[role], operand);
  return fn_arg(back->k->m, back->bwd, t);
}

static void carried_gradients(LoopBack *back, const ValueId *dy) {
  for (uint32_t i = 0; i < back->s.carry; i++) {
    if (!back->carried[i]) continue;
    const Type *t = value_type(back->body, back->body->args.at[i + 1]);
    ValueId first = dy[i] != NO_VALUE ? dy[i] : grad_zeros(back->k, t);
    back->map[back->seed[i]] = new_operand(back, 0, *t, first);
    vec_push(back->k->m->arena, back->results, i);
  }
}

static void accumulators(LoopBack *back) {
  for (uint32_t i = back->s.carry; i < back->s.carry + back->s.invariant; i++) {
    if (back->wanted[i] == NO_VALUE) continue;
    const Type *t = grad_in_type(back->k, back->o, i);
    new_operand(back, 0, *t, grad_zeros(back->k, t));
    vec_push(back->k->m->arena, back->results, i);
  }
}

/* The operand of the loop that a body argument belongs to; the counter has none. */
static uint32_t operand_of(const LoopBack *back, ValueId v) {
  return back->body->values.at[v].result - 1;
}

static bool is_arg(const LoopBack *back, ValueId v) {
  return v != NO_VALUE && back->body->values.at[v].def == NO_OP;
}

static bool is_counter(const LoopBack *back, ValueId v) { return v == back->body->args.at[0]; }

static void invariant_reads(LoopBack *back) {
  for (uint32_t i = 0; i < back->in->reads.n; i++) {
    const Read *d = &back->in->reads.at[i];
    if (!is_arg(back, d->value) || is_counter(back, d->value)) continue;
    uint32_t n = operand_of(back, d->value);
    if (n < back->s.carry || n >= back->s.carry + back->s.invariant) continue;
    back->map[d->arg] =
        new_operand(back, 1, *value_type(back->in->b, d->arg), back_read(back->k, back->o->in[n]));
  }
}

/* A kept value that has the loop's own dim is stacked under another name for it. */
static Str free_dim(Module *m, const Type *t, Str dim) {
  Str free = dim;
  while (type_find(t, free) >= 0) free = intern_printf(m->ctx->names, "%s'", free);
  return free;
}

/* Kept: one more stacked result of the forward loop, read by the backward one. */
static void keep(LoopBack *back, const Read *d, Fn *fwd, ValueId kept, Extended *extended) {
  Module *m = back->k->m;
  Str own = back->s.axis.dim, name = own;
  if (type_find(value_type(fwd, kept), own) >= 0) {
    name = free_dim(m, value_type(fwd, kept), own);
    kept = ir_rename(m, fwd, kept, own, name, back->o->loc);
  }
  Type t = *value_type(fwd, kept), all = type_of(t.elem, 1, &back->s.axis);
  if (t.rank == MAX_RANK) bug("a value of rank %d is kept over loop %s", t.rank, own);
  for (int i = 0; i < t.rank; i++) all.axis[all.rank++] = t.axis[i];
  fn_result(m, fwd, kept);
  OpId id = (OpId)(back->o - back->k->f->ops.at);
  ValueId arg = new_operand(back, 2, t, back_read_extra(back->k, id, extended->extras++, all));
  back->map[d->arg] = arg;
  if (name != own) vec_push(m->arena, back->renamed, (Renamed){d->arg, arg, name});
}

/* Once all arguments exist: the names that kept values had. */
static void rename_back(LoopBack *back) {
  for (uint32_t i = 0; i < back->renamed.n; i++) {
    const Renamed *renamed = &back->renamed.at[i];
    back->map[renamed->scratch] = ir_rename(back->k->m, back->bwd, renamed->arg, renamed->name,
                                            back->s.axis.dim, back->o->loc);
  }
}

static void stacked_reads(LoopBack *back) {
  Rebuild rebuild;
  Extended *extended = &back->k->extended[back->o - back->k->f->ops.at];
  Fn *fwd = extended->body = extended_forward(back->in, &rebuild);
  fwd->name = intern_printf(back->k->m->ctx->names, "%s.fwd", back->body->name);
  ValueId *value = map_reads(back->in, &rebuild);
  for (uint32_t i = 0; i < back->in->reads.n; i++) {
    const Read *d = &back->in->reads.at[i];
    bool arg = is_arg(back, d->value);
    if (arg && is_counter(back, d->value)) {
      back->map[d->arg] = back->bwd->args.at[0];
    } else if (arg && operand_of(back, d->value) >= back->s.carry + back->s.invariant) {
      ValueId whole = back_read(back->k, back->o->in[operand_of(back, d->value)]);
      back->map[d->arg] = new_operand(back, 2, *value_type(back->in->b, d->arg), whole);
    } else if (!arg || operand_of(back, d->value) < back->s.carry) {
      keep(back, d, fwd, value[d->arg], extended);
    }
  }
}

static void stacked_seeds(LoopBack *back, const ValueId *dy) {
  for (uint32_t i = back->s.carry; i < back->body->results.n; i++)
    if (back->seed[i] != NO_VALUE)
      back->map[back->seed[i]] =
          new_operand(back, 2, *value_type(back->in->b, back->seed[i]), dy[i]);
}

/* ---- results ---- */
static void carried_results(LoopBack *back) {
  Module *m = back->k->m;
  for (uint32_t i = 0; i < back->s.carry; i++) {
    if (!back->carried[i]) continue;
    const Type *t = value_type(back->body, back->body->args.at[i + 1]);
    ValueId g = back->wanted[i];
    fn_result(m, back->bwd,
              g != NO_VALUE ? back->map[g] : emit_full(m, back->bwd, *t, 0, back->o->loc));
  }
}

static void accumulated_results(LoopBack *back) {
  Module *m = back->k->m;
  for (uint32_t n = back->bwd->results.n; n < back->results.n; n++) {
    ValueId sum = back->bwd->args.at[n + 1], g = back->map[back->wanted[back->results.at[n]]];
    fn_result(m, back->bwd, ir_binary(m, back->bwd, OP_add, sum, g, back->o->loc));
  }
}

static void stacked_results(LoopBack *back) {
  for (uint32_t i = back->s.carry + back->s.invariant; i < back->o->nin; i++) {
    if (back->wanted[i] == NO_VALUE) continue;
    fn_result(back->k->m, back->bwd, back->map[back->wanted[i]]);
    vec_push(back->k->m->arena, back->results, i);
  }
}

static void build_body(LoopBack *back, const ValueId *dy) {
  Module *m = back->k->m;
  back->bwd = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.bwd", back->body->name));
  back->bwd->loc = back->body->loc;
  back->map = value_map(m, back->in->b);
  fn_arg(m, back->bwd, type_scalar(ELEM_i32));
  carried_gradients(back, dy);
  accumulators(back);
  invariant_reads(back);
  stacked_reads(back);
  stacked_seeds(back, dy);
  rename_back(back);
  for (uint32_t i = 0; i < back->in->b->ops.n; i++)
    fn_clone_op(m, back->bwd, back->in->b, &back->in->b->ops.at[i], back->map);
  carried_results(back);
  accumulated_results(back);
  stacked_results(back);
}

static ValueId emit_backward(LoopBack *back) {
  ValueList all = {0};
  for (int role = 0; role < 3; role++)
    for (uint32_t i = 0; i < back->operands[role].n; i++)
      vec_push(back->k->m->arena, all, back->operands[role].at[i]);
  LoopShape shape = {.carry = back->operands[0].n,
                     .invariant = back->operands[1].n,
                     .stacked = back->operands[2].n,
                     .trip = back->s.trip,
                     .reverse = !back->s.reverse,
                     .axis = back->s.axis,
                     .first = back->s.first,
                     .path = back->s.path};
  return rebuild_loop(back->k->m, back->k->b, back->bwd, shape, all.at, back->o->loc)->out;
}

void grad_loop(Back *back, const Op *o, const ValueId *dy) {
  must(o->callee->args.n == o->nin + 1 && o->callee->results.n == o->nout,
       "grad: loop body %s does not fit its call", o->callee->name);
  LoopBack loop_back = {.k = back, .o = o, .s = loop_shape(o), .body = o->callee};
  Arena *arena = back->m->arena;
  loop_back.carried = ARENA_ARRAY(arena, bool, loop_back.s.carry + 1);
  loop_back.seed = ARENA_ARRAY(arena, ValueId, loop_back.body->results.n + 1);
  loop_back.wanted = ARENA_ARRAY(arena, ValueId, o->nin + 1);
  differentiate_body(&loop_back, dy);
  build_body(&loop_back, dy);
  if (!loop_back.results.n) return;
  ValueId first = emit_backward(&loop_back);
  for (uint32_t i = 0; i < loop_back.results.n; i++)
    grad_give(back, o, loop_back.results.at[i], first + i);
}
