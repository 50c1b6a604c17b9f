/* fuse, before grouping: loop sinking. Element-wise consumers of a loop's stacked results are fused
   into its rounds (as epilogues of the products there), which saves writing the stacked gradients.

   A stack's gradients come out of the loop over its layers stacked. What is computed from one of
   them alone, element by element, with values that are known before the loop, round i can compute
   for slice i: known values with the loop's dim go in as stacked operands, others as invariant
   ones. Then the contraction that makes the slice does the rest in its epilogue, in the operands'
   buffers (order_inplace.c), and the stacked gradient is never written. So micro-batches add to one
   set of gradients; and an update that waits for no norm of all gradients (no clipping,
   train.on_nan off) is the end of the product that makes its gradient.

   Done where it needs no more bytes: what others read of the work takes no more room than the
   operands that nothing reads afterwards. And only where a product makes the slice, or the work is
   no more than a sum: other kernels have no place for it, and one more per round is more expensive
   than one for all. The numbers are the same bit by bit.

   Where several loops write a stack, each its part (attribute `into`), every one of them does the
   work for its own slices: links of a chain. What they give then goes on with an operand of the
   work that nothing reads afterwards, or else the work stays where it is: so the chain fills the
   operand's buffer, and later links read of it what the ones before have left alone.

   Must not: touch a loop whose body another one runs, too. */
#include "passes/fuse.h"

typedef struct RoundWork RoundWork;

typedef struct RoundLink { /* one loop of a chain */
  RoundWork *work;
  OpId loop;
  LoopShape s;
  uint32_t *same;               /* by result of the last link: the one that it continues, or nout */
  bool *taken;                  /* by result: read by the work alone */
  ValueList invariant, stacked; /* operands that the loop lacks */
  ValueList gives;              /* by result of the new loop: the value that it stands for */
} RoundLink;

struct RoundWork {  /* what the rounds of a loop, or of a chain of loops, take over */
  OpId first, loop; /* the first and the last link */
  LoopShape s;      /* of the last one */
  bool *op;         /* by OpId: element-wise ops behind the loop */
  ValueId *buffer;  /* by value that the work gives: the operand that it goes on with, NO_VALUE */
  VEC(RoundLink *) link; /* in order */
};

typedef struct FuseRounds {
  Module *m;
  const Fn *f;
  RoundWork *work; /* of the loop that is looked at */
  bool *early;     /* by ValueId: known before that loop, or could be */
  bool *moved;     /* by OpId: some loop's rounds do it */
  bool *mine;      /* by OpId: of the work on one result */
  bool *derived;   /* by ValueId: that result, and what its work makes */
} FuseRounds;

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

static void note_early(FuseRounds *x) {
  const Fn *f = x->f;
  x->early = ARENA_ARRAY(x->m->arena, bool, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) x->early[f->args.at[i]] = true;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool early = i < x->work->first || (i > x->work->first && may_rise(f, i));
    for (uint32_t k = 0; k < o->nin; k++) early &= x->early[o->in[k]];
    for (uint32_t k = 0; k < o->nout; k++) x->early[o->out + k] = early;
  }
}

/* ---- the work on one result ---- */

static bool alike(const Fn *f, ValueId a, ValueId b) {
  Type t = type_with_elem(*value_type(f, a), value_type(f, b)->elem);
  return type_equal(&t, value_type(f, b));
}

static bool in_rounds(const FuseRounds *x, ValueId v) { /* one slice for each round */
  return type_find(value_type(x->f, v), x->work->s.axis.dim) >= 0;
}

static bool admit(FuseRounds *x, OpId id, ValueId space);

/* Values with the loop's dim have a buffer, or are part of the work. */
static bool admit_operand(FuseRounds *x, ValueId v, ValueId space) {
  const Op *o = value_def(x->f, v);
  if (x->derived[v]) return true;
  if (!in_rounds(x, v)) return x->early[v];
  if (!alike(x->f, v, space)) return false;
  if (o && op_family(o->code) == FAMILY_ELEM) return admit(x, x->f->values.at[v].def, space);
  return x->early[v] && (!o || o->code == OP_load || o->code == OP_loop);
}

/* Op `id` becomes part of the work on `space`, and what it needs. */
static bool admit(FuseRounds *x, OpId id, ValueId space) {
  const Op *o = &x->f->ops.at[id];
  must(in_rounds(x, space), "fuse: the work on %%%u of %s is not one of rounds", space, x->f->name);
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
static int64_t bytes_more(const FuseRounds *x) {
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

static bool only_sums(const FuseRounds *x) {
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

/* ---- chains ---- */

/* Does an op between the links or behind them, which is no link nor part of the work, read v? */
static bool read_beside(const FuseRounds *x, ValueId v) {
  const RoundWork *w = x->work;
  for (OpId i = w->first; i < x->f->ops.n; i++) {
    bool link = false;
    for (uint32_t k = 0; k < w->link.n; k++) link |= w->link.at[k]->loop == i;
    if (!link && !x->mine[i] && read_by(&x->f->ops.at[i], v)) return true;
  }
  for (uint32_t i = 0; i < x->f->results.n; i++)
    if (x->f->results.at[i] == v) return true;
  return false;
}

static const Global *stored_to(const Fn *f, ValueId v) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].in[0] == v) return f->ops.at[i].global;
  return NULL;
}

/* May v, made by the work, take over operand a of it in the end? */
static bool same_place(const Fn *f, ValueId v, ValueId a) {
  const Op *o = value_def(f, a);
  const Global *to = stored_to(f, v);
  if (to || (o && o->code == OP_load)) return to && o && o->code == OP_load && o->global == to;
  for (uint32_t i = 0; !o && i < f->results.n; i++)
    if (f->results.at[i] == v) return f->values.at[a].result == i + 1;
  return o && o->code == OP_loop;
}

static bool goes_on(const FuseRounds *x, ValueId a) {
  for (uint32_t k = 0; k < x->work->link.n; k++) {
    const Op *o = &x->f->ops.at[x->work->link.at[k]->loop];
    for (uint32_t i = 0; i < o->nout; i++)
      if (loop_continues(o, i) != NO_VALUE && o->in[loop_continues(o, i)] == a) return true;
  }
  return false;
}

/* The operand that v goes on with. */
static ValueId buffer_of(const FuseRounds *x, ValueId v) {
  const Fn *f = x->f;
  for (OpId i = x->work->loop + 1; i < f->ops.n; i++)
    for (uint32_t k = 0; x->mine[i] && k < f->ops.at[i].nin; k++) {
      ValueId a = f->ops.at[i].in[k];
      bool free =
          !x->derived[a] && x->early[a] && in_rounds(x, a) && !read_beside(x, a) && !goes_on(x, a);
      for (ValueId u = 0; free && u < f->values.n; u++) free = x->work->buffer[u] != a;
      if (free && type_equal(value_type(f, a), value_type(f, v)) && same_place(f, v, a)) return a;
    }
  return NO_VALUE;
}

/* All that the work on one result gives finds a buffer. */
static bool find_buffers(FuseRounds *x) {
  const Fn *f = x->f;
  if (x->work->link.n == 1) return true;
  for (OpId i = x->work->loop + 1; i < f->ops.n; i++) {
    ValueId v = f->ops.at[i].out;
    if (!x->mine[i] || !read_later(f, x->work->loop, x->mine, v)) continue;
    if ((x->work->buffer[v] = buffer_of(x, v)) == NO_VALUE) return false;
  }
  return true;
}

/* ---- what the rounds take over ---- */

/* Is result i of the last link, in every link, what only the next link and the work read, and a
   value that the body makes, by a product if it `must`? */
static bool comes_from_links(const FuseRounds *x, uint32_t i, bool must) {
  const RoundWork *w = x->work;
  for (uint32_t k = 0; k < w->link.n; k++) {
    const Op *o = &x->f->ops.at[w->link.at[k]->loop];
    uint32_t r = w->link.at[k]->same[i];
    if (r == o->nout) return false;
    ValueId slice = o->callee->results.at[r];
    if (!value_def(o->callee, slice) || (must && !made_by_product(o->callee, slice))) return false;
    if (read_beside(x, o->out + r)) return false;
  }
  return true;
}

/* Does the work on result i go into the rounds? */
static bool takes_over(FuseRounds *x, uint32_t i) {
  const Fn *f = x->f;
  ValueId v = f->ops.at[x->work->loop].out + i;
  x->mine = ARENA_ARRAY(x->m->arena, bool, f->ops.n + 1);
  x->derived = ARENA_ARRAY(x->m->arena, bool, f->values.n + 1);
  x->derived[v] = true;
  bool any = false;
  for (OpId j = x->work->loop + 1; j < f->ops.n; j++)
    if (fuse_reads(&f->ops.at[j], x->derived)) any |= x->mine[j] || admit(x, j, v);
  if (!any || read_later(f, x->work->loop, x->mine, v)) return false;
  return comes_from_links(x, i, !only_sums(x)) && bytes_more(x) <= 0 && find_buffers(x);
}

/* What the work reads and the loop is not given. Constants are made where they are read. */
static void note_operand(const FuseRounds *x, RoundLink *l, ValueId v, bool *noted) {
  const Op *loop = &x->f->ops.at[l->loop], *o = value_def(x->f, v);
  uint32_t stacked = l->s.carry + l->s.invariant;
  bool inside = in_rounds(x, v);
  if (noted[v] || (o && o->code == OP_const)) return;
  noted[v] = true;
  for (uint32_t k = inside ? stacked : l->s.carry; k < (inside ? loop->nin : stacked); k++)
    if (loop->in[k] == v) return;
  if (inside) vec_push(x->m->arena, l->stacked, v);
  else vec_push(x->m->arena, l->invariant, v);
}

static void note_operands(const FuseRounds *x, RoundLink *l) {
  const RoundWork *w = x->work;
  const Op *loop = &x->f->ops.at[w->loop];
  bool *noted = ARENA_ARRAY(x->m->arena, bool, x->f->values.n + 1);
  for (uint32_t k = 0; k < loop->nout; k++) noted[loop->out + k] = true;
  for (OpId i = w->loop + 1; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!w->op[i]) continue;
    noted[o->out] = true; /* its readers stand behind it */
    for (uint32_t k = 0; k < o->nin; k++) note_operand(x, l, o->in[k], noted);
  }
}

static RoundLink *link_new(FuseRounds *x, OpId id, uint32_t results) {
  RoundLink *l = ARENA_NEW(x->m->arena, RoundLink);
  const Op *o = &x->f->ops.at[id];
  *l = (RoundLink){.work = x->work, .loop = id, .s = loop_shape(o)};
  l->same = ARENA_ARRAY(x->m->arena, uint32_t, results + 1);
  l->taken = ARENA_ARRAY(x->m->arena, bool, o->nout + 1);
  for (uint32_t i = 0; i < results; i++) l->same[i] = o->nout;
  return l;
}

/* The loop before link l: of the first of its results that continues one. */
static OpId link_before(const Fn *f, const RoundLink *l) {
  const Op *o = &f->ops.at[l->loop];
  for (uint32_t i = l->s.carry; i < o->nout; i++) {
    uint32_t on = loop_continues(o, i);
    const Op *def = on == NO_VALUE ? NULL : value_def(f, o->in[on]);
    if (def && def->code == OP_loop) return (OpId)(def - f->ops.at);
  }
  return NO_OP;
}

/* From the last link backwards; results whose chain is another one are none of it. */
static void find_links(FuseRounds *x, OpId id) {
  const Fn *f = x->f;
  uint32_t n = f->ops.at[id].nout;
  VEC(RoundLink *) back = {0};
  RoundLink *l = link_new(x, id, n);
  for (uint32_t i = l->s.carry; i < n; i++) l->same[i] = i;
  vec_push(x->m->arena, back, l);
  for (OpId at; (at = link_before(f, l)) != NO_OP;) {
    const Op *o = &f->ops.at[l->loop], *before = &f->ops.at[at];
    RoundLink *b = link_new(x, at, n);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t on = l->same[i] < o->nout ? loop_continues(o, l->same[i]) : NO_VALUE;
      uint32_t r = on == NO_VALUE ? before->nout : o->in[on] - before->out;
      if (r < before->nout && r >= b->s.carry) b->same[i] = r;
    }
    vec_push(x->m->arena, back, b);
    l = b;
  }
  for (uint32_t k = back.n; k-- > 0;) vec_push(x->m->arena, x->work->link, back.at[k]);
  x->work->first = x->work->link.at[0]->loop;
}

static bool is_continued(const Fn *f, const Op *loop) {
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; f->ops.at[i].code == OP_loop && k < f->ops.at[i].nout; k++) {
      uint32_t on = loop_continues(&f->ops.at[i], k);
      if (on != NO_VALUE && value_def(f, f->ops.at[i].in[on]) == loop) return true;
    }
  return false;
}

static bool links_alone(const FuseRounds *x) {
  for (uint32_t k = 0; k < x->work->link.n; k++)
    if (callers_of(x->m, x->f->ops.at[x->work->link.at[k]->loop].callee) != 1) return false;
  return true;
}

/* What the rounds of loop `id`, and of those whose stacks it ends, take over; NULL: nothing. */
static RoundWork *work_of(FuseRounds *x, OpId id) {
  const Op *o = &x->f->ops.at[id];
  Arena *a = x->m->arena;
  RoundWork *w = x->work = ARENA_NEW(a, RoundWork);
  *w = (RoundWork){.loop = id, .s = loop_shape(o), .op = ARENA_ARRAY(a, bool, x->f->ops.n + 1)};
  w->buffer = value_map(x->m, x->f);
  find_links(x, id);
  if (is_continued(x->f, o) || !links_alone(x)) return NULL;
  note_early(x);
  bool any = false;
  for (uint32_t i = w->s.carry; i < o->nout; i++) {
    if (!takes_over(x, i)) continue;
    any = true;
    for (uint32_t k = 0; k < w->link.n; k++) w->link.at[k]->taken[w->link.at[k]->same[i]] = true;
    for (OpId j = id + 1; j < x->f->ops.n; j++) w->op[j] |= x->mine[j], x->moved[j] |= x->mine[j];
  }
  for (uint32_t k = 0; any && k < w->link.n; k++) note_operands(x, w->link.at[k]);
  return any ? w : NULL;
}

/* ---- the body ---- */

typedef struct Inside { /* of a loop: its body with the work */
  const FuseRounds *x;
  const RoundLink *l;
  Rebuild r;    /* of the body */
  ValueId *map; /* from values of the function to those of the new body */
} Inside;

static void add_args(Inside *n, const ValueList *more) {
  for (uint32_t i = 0; i < more->n; i++) {
    Type slice = type_without(value_type(n->x->f, more->at[i]), &n->l->s.axis.dim, 1);
    n->map[more->at[i]] = fn_arg(n->r.m, n->r.to, slice);
  }
}

/* Does operand k carry on a stack that the work takes over? It goes, with its argument. */
static bool is_gone(const Op *loop, const RoundLink *l, uint32_t k) {
  for (uint32_t i = l->s.carry; i < loop->nout; i++)
    if (l->taken[i] && loop_continues(loop, i) == k) return true;
  return false;
}

/* The old arguments, behind those of each kind the new ones. */
static void give_args(Inside *n, const Op *loop) {
  const Fn *from = n->r.from;
  uint32_t stacked = 1 + n->l->s.carry + n->l->s.invariant;
  for (uint32_t i = 0; i < from->args.n; i++) {
    ValueId arg = from->args.at[i];
    if (i == stacked) add_args(n, &n->l->invariant);
    if (i && is_gone(loop, n->l, i - 1)) continue;
    n->r.map[arg] = fn_arg(n->r.m, n->r.to, *value_type(from, arg));
    if (i > n->l->s.carry) n->map[loop->in[i - 1]] = n->r.map[arg];
  }
  if (from->args.n == stacked) add_args(n, &n->l->invariant);
  add_args(n, &n->l->stacked);
}

static void give_op(Inside *n, const Op *o) {
  const Fn *f = n->x->f;
  for (uint32_t k = 0; k < o->nin; k++)
    if (n->map[o->in[k]] == NO_VALUE)
      fn_clone_op(n->r.m, n->r.to, f, value_def(f, o->in[k]), n->map);
  const Op *c = fn_clone_op(n->r.m, n->r.to, f, o, n->map);
  n->r.to->values.at[c->out].type = type_without(value_type(f, o->out), &n->l->s.axis.dim, 1);
}

static void give_result(Inside *n, ValueList *gives, ValueId of, ValueId v) {
  fn_result(n->r.m, n->r.to, v);
  vec_push(n->r.m->arena, *gives, of);
}

static void give_work(Inside *n, RoundLink *l) {
  const FuseRounds *x = n->x;
  const RoundWork *w = l->work;
  for (OpId i = w->loop + 1; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!w->op[i]) continue;
    give_op(n, o);
    if (read_later(x->f, w->loop, w->op, o->out)) give_result(n, &l->gives, o->out, n->map[o->out]);
  }
}

static Fn *working_body(const FuseRounds *x, RoundLink *l) {
  const Op *loop = &x->f->ops.at[l->loop], *last = &x->f->ops.at[l->work->loop];
  const Fn *from = loop->callee;
  Inside n = {x,
              l,
              {x->m, from, fn_new(x->m, from->kind, from->name), value_map(x->m, from)},
              value_map(x->m, x->f)};
  n.r.to->loc = from->loc;
  for (uint32_t i = 0; i < from->attrs.n; i++)
    vec_push(x->m->arena, n.r.to->attrs, from->attrs.at[i]);
  give_args(&n, loop);
  for (OpId i = 0; i < from->ops.n; i++) rebuild_op(&n.r, &from->ops.at[i]);
  for (uint32_t i = 0; i < loop->nout; i++)
    if (!l->taken[i]) give_result(&n, &l->gives, loop->out + i, n.r.map[from->results.at[i]]);
  for (uint32_t i = l->s.carry; i < last->nout; i++)
    if (l->same[i] < loop->nout && l->taken[l->same[i]])
      n.map[last->out + i] = n.r.map[from->results.at[l->same[i]]];
  give_work(&n, l);
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

/* A stacked operand of the work: a later link finds it in what the one before gives. */
static ValueId operand(Rebuild *r, const RoundLink *l, ValueId v) {
  const RoundWork *w = l->work;
  for (ValueId u = 0; u < r->from->values.n && w->link.n > 1; u++)
    if (w->buffer[u] == v && r->map[u] != NO_VALUE) return r->map[u];
  return risen(r, v);
}

typedef struct RoundOperands { /* of a new loop */
  VEC(ValueId) in;             /* values of the new function, and of the old one */
  VEC(ValueId) old;
} RoundOperands;

static void add_operand(Rebuild *r, RoundOperands *n, ValueId v, ValueId old) {
  vec_push(r->m->arena, n->in, v);
  vec_push(r->m->arena, n->old, old);
}

static RoundOperands working_operands(Rebuild *r, const Op *o, const RoundLink *l, LoopShape *s) {
  RoundOperands n = {0};
  uint32_t whole = s->carry + s->invariant;
  for (uint32_t k = 0; k < whole; k++) add_operand(r, &n, r->map[o->in[k]], o->in[k]);
  for (uint32_t i = 0; i < l->invariant.n; i++)
    add_operand(r, &n, risen(r, l->invariant.at[i]), l->invariant.at[i]);
  s->invariant = n.in.n - s->carry;
  for (uint32_t k = whole; k < o->nin; k++)
    if (!is_gone(o, l, k)) add_operand(r, &n, operand(r, l, o->in[k]), o->in[k]);
  for (uint32_t i = 0; i < l->stacked.n; i++)
    add_operand(r, &n, operand(r, l, l->stacked.at[i]), l->stacked.at[i]);
  s->stacked = n.in.n - s->carry - s->invariant;
  return n;
}

/* Attribute `into` of a new loop: old results go on with what they did, new ones with their buffer.
 */
static void working_stacks(Rebuild *r, const Op *o, const RoundLink *l, const RoundOperands *n,
                           LoopShape *s) {
  int64_t *into = ARENA_ARRAY(r->m->arena, int64_t, l->gives.n + 1);
  for (uint32_t i = s->carry; i < l->gives.n; i++) {
    ValueId v = l->gives.at[i], buffer = l->work->buffer[v];
    bool old = v >= o->out && v < o->out + o->nout;
    uint32_t on = old ? loop_continues(o, v - o->out) : NO_VALUE;
    if (on != NO_VALUE) buffer = o->in[on];
    into[i - s->carry] = old ? loop_into(&l->s, v - o->out) : INTO_OWN;
    for (uint32_t k = s->carry + s->invariant; buffer != NO_VALUE && k < n->old.n; k++)
      if (n->old.at[k] == buffer) into[i - s->carry] = k - s->carry - s->invariant;
  }
  s->into = into, s->ninto = l->gives.n - s->carry;
}

static void working_loop(Rebuild *r, const Op *o, const RoundLink *l) {
  LoopShape s = l->s;
  RoundOperands n = working_operands(r, o, l, &s);
  working_stacks(r, o, l, &n, &s);
  const Op *c = rebuild_loop(r->m, r->to, o->callee, s, n.in.at, o->loc);
  for (uint32_t i = 0; i < l->gives.n; i++) r->map[l->gives.at[i]] = c->out + i;
}

static Fn *working_function(const FuseRounds *x, RoundLink *const *link) {
  Rebuild r = rebuild_begin(x->m, x->f);
  for (OpId i = 0; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    bool there = x->moved[i] || (o->nout && r.map[o->out] != NO_VALUE);
    if (link[i]) working_loop(&r, o, link[i]);
    else if (!there) rebuild_op(&r, o);
  }
  rebuild_results(&r);
  return r.to;
}

static bool work_in_rounds(Module *m, Fn *f) {
  FuseRounds x = {.m = m, .f = f, .moved = ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  RoundLink **link = ARENA_ARRAY(m->arena, RoundLink *, f->ops.n + 1);
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    RoundWork *w = f->ops.at[i].code == OP_loop ? work_of(&x, i) : NULL;
    for (uint32_t k = 0; w && k < w->link.n; k++) {
      RoundLink *l = link[w->link.at[k]->loop] = w->link.at[k];
      module_replace(m, f->ops.at[l->loop].callee, working_body(&x, l));
      any = true;
    }
  }
  if (any) module_replace(m, f, working_function(&x, link));
  return any;
}

/* Callers stand behind their bodies: work may sink through several loops. A loop's results may
   have their dims in another order than those before, and so what is made of them. */
void fuse_rounds(Module *m) {
  bool any = false;
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) any |= work_in_rounds(m, m->fns.at[i]);
  if (any) module_collect(m);
}
