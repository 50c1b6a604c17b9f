/* fuse, before grouping: element-wise work on values that a loop stacks is done by its rounds.

   A stack's gradients come out of the loop over its layers stacked. What is computed from one of
   them alone, element by element, with values that are known before the loop, round i can compute
   for slice i: known values with the loop's dim go in as stacked operands, others as invariant
   ones. Then the contraction that makes the slice does the rest in its epilogue, in the operands'
   buffers (order_inplace.c), and no stacked gradient ever exists. So micro-batches add to one set
   of gradients; and an update that waits for no norm of all gradients (no clipping, train.on_nan
   off) is the end of the product that makes its gradient.

   Done where it needs no more bytes: what others read of the work takes no more room than the
   operands that nothing reads afterwards. And only where a product makes the slice, or the work is
   no more than a sum: other kernels have no place for it, and one more per round is dearer than one
   for all. The numbers are the same bit by bit. Must not: touch a loop whose body another one runs,
   too. */
#include "passes/fuse.h"

typedef struct Work { /* what the rounds of one loop take over */
  OpId loop;
  LoopShape s;
  bool *op;                     /* by OpId: element-wise ops behind the loop */
  bool *taken;                  /* by result of the loop: read by that work alone */
  ValueList invariant, stacked; /* operands that the loop lacks */
  ValueList gives;              /* by result of the new loop: the value that it stands for */
} Work;

typedef struct Rounds {
  Module *m;
  const Fn *f;
  Work *work;    /* of the loop that is looked at */
  bool *early;   /* by ValueId: known before that loop, or could be */
  bool *moved;   /* by OpId: some loop's rounds do it */
  bool *mine;    /* by OpId: of the work on one result */
  bool *derived; /* by ValueId: that result, and what its work makes */
} Rounds;

static uint32_t callers_of(const Module *m, const Fn *body) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++) n += m->fns.at[i]->ops.at[j].callee == body;
  return n;
}

/* ---- what is known before a loop ---- */

static bool stored_before(const Fn *f, OpId id) {
  for (OpId i = 0; i < id; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].global == f->ops.at[id].global) return true;
  return false;
}

/* May an op behind the loop stand before it, if its operands do? Only what costs nothing there. */
static bool may_rise(const Fn *f, OpId id) {
  const Op *o = &f->ops.at[id];
  if (o->code == OP_load) return !stored_before(f, id);
  bool plain = op_family(o->code) == FAMILY_ELEM || o->code == OP_const;
  return plain && o->nout == 1 && !value_type(f, o->out)->rank;
}

static void note_early(Rounds *x) {
  const Fn *f = x->f;
  x->early = ARENA_ARRAY(x->m->arena, bool, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) x->early[f->args.at[i]] = true;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool early = i < x->work->loop || (i > x->work->loop && may_rise(f, i));
    for (uint32_t k = 0; k < o->nin; k++) early &= x->early[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) x->early[o->out + k] = early;
  }
}

/* ---- the work on one result ---- */

static bool alike(const Fn *f, ValueId a, ValueId b) {
  Type t = type_with_elem(*value_type(f, a), value_type(f, b)->elem);
  return type_equal(&t, value_type(f, b));
}

static bool in_rounds(const Rounds *x, ValueId v) { /* one slice for each round */
  return type_find(value_type(x->f, v), x->work->s.axis.dim) >= 0;
}

static bool admit(Rounds *x, OpId id, ValueId space);

/* Values with the loop's dim have a buffer, or are part of the work. */
static bool admit_operand(Rounds *x, ValueId v, ValueId space) {
  const Op *o = value_def(x->f, v);
  if (x->derived[v]) return true;
  if (!in_rounds(x, v)) return x->early[v];
  if (!alike(x->f, v, space)) return false;
  if (o && op_family(o->code) == FAMILY_ELEM) return admit(x, x->f->values.at[v].def, space);
  return x->early[v] && (!o || o->code == OP_load || o->code == OP_loop);
}

/* Op `id` becomes part of the work on `space`, and what it needs. */
static bool admit(Rounds *x, OpId id, ValueId space) {
  const Op *o = &x->f->ops.at[id];
  if (id < x->work->loop || op_family(o->code) != FAMILY_ELEM || x->moved[id]) return false;
  if (o->ngroups || !alike(x->f, o->out, space)) return false;
  for (uint32_t k = 0; k < o->nin; k++)
    if (!admit_operand(x, o->in[k], space)) return false;
  return x->mine[id] = x->derived[o->out] = true;
}

static bool read_by(const Op *o, ValueId v) {
  for (uint32_t k = 0; k < o->nin; k++)
    if (o->in[k] == v) return true;
  return false;
}

/* Does anything behind the loop but its rounds' work read v? */
static bool read_later(const Fn *f, OpId loop, const bool *work, ValueId v) {
  for (OpId i = loop + 1; i < f->ops.n; i++)
    if (!work[i] && read_by(&f->ops.at[i], v)) return true;
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return true;
  return false;
}

/* Bytes of what others read of the work, less those of operands that nothing reads afterwards. */
static int64_t bytes_more(const Rounds *x) {
  int64_t more = 0;
  bool *counted = ARENA_ARRAY(x->m->arena, bool, x->f->values.n + 1);
  for (OpId i = x->work->loop + 1; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!x->mine[i]) continue;
    if (read_later(x->f, x->work->loop, x->mine, o->out)) more += fuse_bytes(x->f, o->out);
    for (uint32_t k = 0; k < o->nin; k++) {
      ValueId v = o->in[k];
      if (counted[v] || x->derived[v] || !in_rounds(x, v)) continue;
      counted[v] = true;
      if (!read_later(x->f, x->work->loop, x->mine, v)) more -= fuse_bytes(x->f, v);
    }
  }
  return more;
}

static bool only_sums(const Rounds *x) {
  for (OpId i = x->work->loop + 1; i < x->f->ops.n; i++)
    if (x->mine[i] && x->f->ops.at[i].code != OP_add && x->f->ops.at[i].code != OP_cast)
      return false;
  return true;
}

/* Is v a contraction, or what element-wise ops make of one? */
static bool made_by_product(const Fn *body, ValueId v) {
  const Op *o = value_def(body, v);
  while (o && op_family(o->code) == FAMILY_ELEM) {
    const Op *next = NULL;
    for (uint32_t k = 0; k < o->nin && !next; k++)
      if (alike(body, o->in[k], v)) next = value_def(body, o->in[k]);
    o = next;
  }
  return o && op_family(o->code) == FAMILY_CONTRACT;
}

/* Does the work on v, a stacked result that the body leaves in `slice`, go into the rounds? */
static bool takes_over(Rounds *x, ValueId v, ValueId slice) {
  const Fn *f = x->f, *body = f->ops.at[x->work->loop].callee;
  x->mine = ARENA_ARRAY(x->m->arena, bool, f->ops.n + 1);
  x->derived = ARENA_ARRAY(x->m->arena, bool, f->values.n + 1);
  x->derived[v] = true;
  bool any = false;
  for (OpId i = x->work->loop + 1; i < f->ops.n; i++)
    if (fuse_reads(&f->ops.at[i], x->derived)) any |= x->mine[i] || admit(x, i, v);
  if (!any || !value_def(body, slice) || read_later(f, x->work->loop, x->mine, v)) return false;
  return bytes_more(x) <= 0 && (only_sums(x) || made_by_product(body, slice));
}

/* What the work reads and the loop is not given. Constants are made where they are read. */
static void note_operand(Rounds *x, ValueId v, bool *noted) {
  Work *w = x->work;
  const Op *loop = &x->f->ops.at[w->loop], *o = value_def(x->f, v);
  uint32_t stacked = w->s.carry + w->s.invariant;
  bool inside = in_rounds(x, v);
  if (noted[v] || (o && o->code == OP_const)) return;
  noted[v] = true;
  for (uint32_t k = inside ? stacked : w->s.carry; k < (inside ? loop->nin : stacked); k++)
    if (loop->in[k] == v) return;
  if (inside) vec_push(x->m->arena, w->stacked, v);
  else vec_push(x->m->arena, w->invariant, v);
}

static void note_operands(Rounds *x) {
  const Work *w = x->work;
  const Op *loop = &x->f->ops.at[w->loop];
  bool *noted = ARENA_ARRAY(x->m->arena, bool, x->f->values.n + 1);
  for (uint32_t k = 0; k < loop->nout; k++) noted[loop->out + k] = true;
  for (OpId i = w->loop + 1; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!w->op[i]) continue;
    noted[o->out] = true; /* its readers stand behind it */
    for (uint32_t k = 0; k < o->nin; k++) note_operand(x, o->in[k], noted);
  }
}

/* What the rounds of loop `id` take over; NULL: nothing. */
static Work *work_of(Rounds *x, OpId id) {
  const Op *o = &x->f->ops.at[id];
  Arena *a = x->m->arena;
  Work *w = x->work = ARENA_NEW(a, Work);
  *w = (Work){.loop = id, .s = loop_shape(o), .op = ARENA_ARRAY(a, bool, x->f->ops.n + 1)};
  w->taken = ARENA_ARRAY(a, bool, o->nout + 1);
  note_early(x);
  bool any = false;
  for (uint32_t i = w->s.carry; i < o->nout; i++) {
    if (!takes_over(x, o->out + i, o->callee->results.at[i])) continue;
    any = w->taken[i] = true;
    for (OpId j = id + 1; j < x->f->ops.n; j++) w->op[j] |= x->mine[j], x->moved[j] |= x->mine[j];
  }
  if (any) note_operands(x);
  return any ? w : NULL;
}

/* ---- the body ---- */

typedef struct Inside { /* of a loop: its body with the work */
  const Rounds *x;
  const Work *w;
  Rebuild r;    /* of the body */
  ValueId *map; /* from values of the function to those of the new body */
} Inside;

static void add_args(Inside *n, const ValueList *more) {
  for (uint32_t i = 0; i < more->n; i++) {
    Type slice = type_without(value_type(n->x->f, more->at[i]), &n->w->s.axis.dim, 1);
    n->map[more->at[i]] = fn_arg(n->r.m, n->r.to, slice);
  }
}

/* The old arguments, behind those of each kind the new ones. */
static void give_args(Inside *n, const Op *loop) {
  const Fn *from = n->r.from;
  uint32_t stacked = 1 + n->w->s.carry + n->w->s.invariant;
  for (uint32_t i = 0; i < from->args.n; i++) {
    ValueId arg = from->args.at[i];
    if (i == stacked) add_args(n, &n->w->invariant);
    n->r.map[arg] = fn_arg(n->r.m, n->r.to, *value_type(from, arg));
    if (i > n->w->s.carry) n->map[loop->in[i - 1]] = n->r.map[arg];
  }
  if (from->args.n == stacked) add_args(n, &n->w->invariant);
  add_args(n, &n->w->stacked);
}

static void give_op(Inside *n, const Op *o) {
  const Fn *f = n->x->f;
  for (uint32_t k = 0; k < o->nin; k++)
    if (n->map[o->in[k]] == NO_VALUE)
      fn_clone_op(n->r.m, n->r.to, f, value_def(f, o->in[k]), n->map);
  const Op *c = fn_clone_op(n->r.m, n->r.to, f, o, n->map);
  n->r.to->values.at[c->out].type = type_without(value_type(f, o->out), &n->w->s.axis.dim, 1);
}

static void give_result(Inside *n, ValueList *gives, ValueId of, ValueId v) {
  fn_result(n->r.m, n->r.to, v);
  vec_push(n->r.m->arena, *gives, of);
}

static Fn *working_body(const Rounds *x, Work *w) {
  const Op *loop = &x->f->ops.at[w->loop];
  const Fn *from = loop->callee;
  Inside n = {x,
              w,
              {x->m, from, fn_new(x->m, from->kind, from->name), value_map(x->m, from)},
              value_map(x->m, x->f)};
  n.r.to->loc = from->loc;
  for (uint32_t i = 0; i < from->attrs.n; i++)
    vec_push(x->m->arena, n.r.to->attrs, from->attrs.at[i]);
  give_args(&n, loop);
  for (OpId i = 0; i < from->ops.n; i++) rebuild_op(&n.r, &from->ops.at[i]);
  for (uint32_t i = 0; i < loop->nout; i++) {
    ValueId v = n.r.map[from->results.at[i]];
    if (w->taken[i]) n.map[loop->out + i] = v;
    else give_result(&n, &w->gives, loop->out + i, v);
  }
  for (OpId i = w->loop + 1; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!w->op[i]) continue;
    give_op(&n, o);
    if (read_later(x->f, w->loop, w->op, o->out)) give_result(&n, &w->gives, o->out, n.map[o->out]);
  }
  return n.r.to;
}

/* ---- the function ---- */

/* v in the new function, its op there if it stood behind. */
static ValueId risen(Rebuild *r, ValueId v) {
  const Op *o = value_def(r->from, v);
  if (r->map[v] != NO_VALUE) return r->map[v];
  for (uint32_t k = 0; k < o->nin; k++) risen(r, o->in[k]);
  rebuild_op(r, o);
  return r->map[v];
}

static void working_loop(Rebuild *r, const Op *o, const Work *w) {
  ValueId *in = ARENA_ARRAY(r->m->arena, ValueId, o->nin + w->invariant.n + w->stacked.n + 1);
  LoopShape s = w->s;
  uint32_t n = 0, old = 0;
  while (old < s.carry + s.invariant) in[n++] = r->map[o->in[old++]];
  for (uint32_t i = 0; i < w->invariant.n; i++) in[n++] = risen(r, w->invariant.at[i]);
  while (old < o->nin) in[n++] = r->map[o->in[old++]];
  for (uint32_t i = 0; i < w->stacked.n; i++) in[n++] = risen(r, w->stacked.at[i]);
  s.invariant += w->invariant.n, s.stacked += w->stacked.n;
  const Op *c = rebuild_loop(r->m, r->to, o->callee, s, in, o->loc);
  for (uint32_t i = 0; i < w->gives.n; i++) r->map[w->gives.at[i]] = c->out + i;
}

static Fn *working_function(const Rounds *x, Work *const *work) {
  Rebuild r = rebuild_begin(x->m, x->f);
  for (OpId i = 0; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    bool there = x->moved[i] || (o->nout && r.map[o->out] != NO_VALUE);
    if (work[i]) working_loop(&r, o, work[i]);
    else if (!there) rebuild_op(&r, o);
  }
  rebuild_results(&r);
  return r.to;
}

static void work_in_rounds(Module *m, Fn *f) {
  Rounds x = {.m = m, .f = f, .moved = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  Work **work = ARENA_ARRAY(m->arena, Work *, f->ops.n + 1);
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    Fn *body = f->ops.at[i].callee;
    bool alone = f->ops.at[i].code == OP_loop && callers_of(m, body) == 1;
    if (!alone || !(work[i] = work_of(&x, i))) continue;
    module_replace(m, body, working_body(&x, work[i]));
    any = true;
  }
  if (any) module_replace(m, f, working_function(&x, work));
}

/* Callers stand behind their bodies: work may sink through several loops. */
void fuse_rounds(Module *m) {
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) work_in_rounds(m, m->fns.at[i]);
}
