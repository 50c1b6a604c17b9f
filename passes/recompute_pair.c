/* recompute: pairs of loops and their rewriting.

   A pair is a forward loop and a backward loop of one function such that stacked results of the
   first are stacked operands of the second. Rewritten, the forward loop saves what its segment
   keeps; the backward body begins with copies of the forward ops that lead from there to what it
   reads. Layers that keep different things become loops of their own (segments), each over its part
   of the stacks: operands go in whole, results that others than the backward loop read are whole,
   too, each loop going on with the stack that the one before began (attribute `into`). So whoever
   asks about a stack, before or behind the loops, sees one. What nobody reads any more goes in
   simplify. */
#include "passes/recompute.h"
#include <string.h>

/* ---- pairs ---- */

static void find_kept(Pair *p) {
  for (uint32_t i = 0; i < p->fwd->values.n; i++) p->kept[i] = NO_VALUE;
  for (uint32_t i = p->l2->nin - p->s2.stacked; i < p->l2->nin; i++) {
    uint32_t r = p->l2->in[i] - p->l1->out;
    if (p->l2->in[i] >= p->l1->out && r >= p->s1.carry && r < p->l1->nout)
      p->kept[p->fwd->results.at[r]] = i;
  }
}

static void find_outside(Pair *p) {
  uint32_t first = p->l2->nin - p->s2.stacked;
  for (uint32_t i = 0; i < p->f->ops.n; i++) {
    const Op *o = &p->f->ops.at[i];
    for (uint32_t j = 0; j < (o == p->l2 ? first : o->nin); j++) {
      uint32_t r = o->in[j] - p->l1->out;
      if (o->in[j] >= p->l1->out && r < p->l1->nout) p->outside[p->fwd->results.at[r]] = true;
    }
  }
  for (uint32_t i = 0; i < p->f->results.n; i++) {
    uint32_t r = p->f->results.at[i] - p->l1->out;
    if (p->f->results.at[i] >= p->l1->out && r < p->l1->nout)
      p->outside[p->fwd->results.at[r]] = true;
  }
}

bool pair_of(Module *m, const Fn *f, const Op *l1, const Op *l2, Pair *p) {
  if (l1->code != OP_loop || l2->code != OP_loop) return false;
  *p = (Pair){.m = m, .f = f, .l1 = l1, .l2 = l2, .s1 = loop_shape(l1), .s2 = loop_shape(l2)};
  p->fwd = l1->callee, p->bwd = l2->callee;
  if (p->s1.of || p->s2.of) return false; /* segments have been made already */
  p->kept = ARENA_ARRAY(m->arena, uint32_t, p->fwd->values.n + 1);
  p->outside = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  find_kept(p);
  find_outside(p);
  for (uint32_t v = 0; v < p->fwd->values.n; v++)
    if (p->kept[v] != NO_VALUE) return p->s1.trip == p->s2.trip;
  return false;
}

bool pair_judged(const Pair *p) { return p->s1.path && strchr(p->s1.path, '['); }

bool pair_is_carried(const Pair *p, ValueId v) {
  must(v < p->fwd->values.n, "recompute: %s has no value %u", p->fwd->name, v);
  uint32_t arg = p->fwd->values.at[v].result; /* 0: the counter */
  return !value_def(p->fwd, v) && arg > 0 && arg <= p->s1.carry;
}

bool pair_can_keep(const Pair *p, ValueId v) {
  const Type *t = value_type(p->fwd, v);
  return t->rank < MAX_RANK && type_find(t, p->s1.axis.dim) < 0;
}

/* ---- one segment ---- */

typedef struct PairWork { /* of one pair while f is rebuilt */
  RecomputeChange *c;
  const Pair *p;
  Rebuild *r;
  bool judged;
  ValueId **part; /* by segment: the forward loop's results there, then the fresh ones */
  ValueId **from; /* by segment: the carried operands it began with */
} PairWork;

static bool kept_before(const Pair *p, ValueId v) { return p->kept[v] != NO_VALUE; }
static bool is_fresh(const Pair *p, const Segment *g, ValueId v) {
  return g->keep[v] && !kept_before(p, v);
}
static bool is_dropped(const Pair *p, const Segment *g, ValueId v) {
  return !g->keep[v] && kept_before(p, v);
}

static LoopShape shape_of(const PairWork *w, const Segment *g, LoopShape s) {
  must(g->first >= 0 && g->first + g->count <= s.trip, "recompute: layers %lld to %lld of %lld",
       (long long)g->first, (long long)(g->first + g->count), (long long)s.trip);
  if (g->count != s.trip) s.of = s.trip, s.first = g->first;
  s.trip = s.axis.size = g->count;
  if (w->judged && s.path)
    s.path = intern_printf(w->p->m->ctx->names, "%s[%lld..%lld]", s.path, (long long)g->first,
                           (long long)(g->first + g->count - 1));
  return s;
}

/* Results of a segment's loop that others read go on with those of the segment before; `before`:
   its results, NULL for the first one. */
typedef struct Stacks {
  const ValueId *before;
  VEC(ValueId) in;   /* operands that are continued, behind all others */
  VEC(int64_t) into; /* by stacked result */
} Stacks;

static void continue_stack(const PairWork *w, Stacks *s, const LoopShape *shape, Fn *body,
                           uint32_t i, const Type *slice) {
  Arena *a = w->p->m->arena;
  bool part = shape->of != 0;
  vec_push(a, s->into,
           !part        ? INTO_OWN
           : !s->before ? INTO_NEW
                        : (int64_t)shape->stacked + s->in.n);
  if (!part || !s->before) return;
  fn_arg(w->p->m, body, *slice);
  vec_push(a, s->in, s->before[i]);
}

static void end_stacks(Stacks *s, LoopShape *shape) {
  shape->stacked += s->in.n, shape->into = s->into.at, shape->ninto = s->into.n;
}

/* ---- forward ---- */

static bool is_read_outside(const Pair *p, uint32_t result) {
  return p->outside[p->fwd->results.at[result]];
}

/* `s`: stacks that others read; what is made once more is read by the backward loop alone. */
static Fn *forward_body(const PairWork *w, const Segment *g, bool saves, LoopShape *shape,
                        Stacks *s) {
  const Pair *p = w->p;
  Rebuild b = {p->m, p->fwd, fn_new(p->m, FN_BODY, p->fwd->name), value_map(p->m, p->fwd)};
  b.to->loc = p->fwd->loc;
  for (uint32_t i = 0; i < p->fwd->args.n; i++)
    b.map[p->fwd->args.at[i]] = fn_arg(p->m, b.to, *value_type(p->fwd, p->fwd->args.at[i]));
  for (uint32_t i = p->s1.carry; i < p->l1->nout; i++) {
    const Type *slice = value_type(p->fwd, p->fwd->results.at[i]);
    if (s && is_read_outside(p, i)) continue_stack(w, s, shape, b.to, i, slice);
    else if (s) vec_push(p->m->arena, s->into, INTO_OWN);
  }
  for (uint32_t i = 0; i < p->fwd->ops.n; i++) rebuild_op(&b, &p->fwd->ops.at[i]);
  rebuild_results(&b);
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (saves && is_fresh(p, g, v)) fn_result(p->m, b.to, b.map[v]);
  return b.to;
}

/* The forward loop over a segment's layers; its results. */
static ValueId *emit_forward(const PairWork *w, const Segment *g, const ValueId *carried,
                             bool saves, Stacks *s) {
  const Pair *p = w->p;
  VEC(ValueId) in = {0};
  LoopShape shape = shape_of(w, g, p->s1);
  shape.over = g->over, shape.offload = g->offload && !g->rerun;
  for (uint32_t i = 0; i < p->l1->nin; i++)
    vec_push(p->m->arena, in, i < p->s1.carry ? carried[i] : w->r->map[p->l1->in[i]]);
  Fn *body = forward_body(w, g, saves, &shape, s);
  for (uint32_t i = 0; s && i < s->in.n; i++) vec_push(p->m->arena, in, s->in.at[i]);
  if (s) end_stacks(s, &shape);
  const Op *o = rebuild_loop(p->m, w->r->to, body, shape, in.at, p->l1->loc);
  ValueId *out = ARENA_ARRAY(p->m->arena, ValueId, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++) out[i] = o->out + i;
  return out;
}

/* Number of the segment that runs as k-th. */
static uint32_t turn(const PairWork *w, const LoopShape *s, uint32_t k) {
  return s->reverse ? w->c->segments.n - 1 - k : k;
}

static void write_forward(PairWork *w) {
  const Pair *p = w->p;
  uint32_t n = w->c->segments.n;
  ValueId *carried = ARENA_ARRAY(p->m->arena, ValueId, p->s1.carry + 1);
  for (uint32_t i = 0; i < p->s1.carry; i++) carried[i] = w->r->map[p->l1->in[i]];
  for (uint32_t k = 0; k < n; k++) {
    uint32_t at = turn(w, &p->s1, k);
    const Segment *g = &w->c->segments.at[at];
    Stacks s = {.before = k ? carried : NULL};
    w->from[at] = carried;
    w->part[at] = carried = emit_forward(w, g, carried, !g->rerun, &s);
  }
  for (uint32_t i = 0; i < p->l1->nout; i++)
    if (i < p->s1.carry || is_read_outside(p, i)) w->r->map[p->l1->out + i] = carried[i];
}

/* ---- backward ---- */

typedef struct NewLoop {
  const PairWork *w;
  const Pair *p;
  const Segment *g;
  const ValueId *saved; /* results of the segment's forward loop */
  Rebuild body;         /* bwd -> new body */
  ValueId *map;         /* fwd -> new body */
  VEC(ValueId) in;      /* operands, values of the new f */
  LoopShape s;
} NewLoop;

static void add_operand(NewLoop *n, ValueId *map, const Fn *from, ValueId arg, ValueId operand) {
  map[arg] = fn_arg(n->p->m, n->body.to, *value_type(from, arg));
  vec_push(n->p->m->arena, n->in, operand);
}

/* Which result of the forward loop an operand of the backward loop is; 0: none of the stacked. */
static uint32_t saved_result(const Pair *p, uint32_t operand) {
  uint32_t r = p->l2->in[operand] - p->l1->out;
  bool is = p->l2->in[operand] >= p->l1->out && r >= p->s1.carry && r < p->l1->nout;
  return is && operand >= p->s2.carry + p->s2.invariant ? r + 1 : 0;
}

static void carried_operands(NewLoop *n, const ValueId *carried) {
  const Pair *p = n->p;
  for (uint32_t i = 0; i < p->s2.carry; i++)
    add_operand(n, n->body.map, p->bwd, p->bwd->args.at[i + 1], carried[i]);
}

static void old_operands(NewLoop *n, uint32_t begin, uint32_t end) {
  const Pair *p = n->p;
  for (uint32_t i = begin; i < end; i++) {
    uint32_t r = saved_result(p, i);
    if (r && is_dropped(p, n->g, p->fwd->results.at[r - 1])) continue;
    ValueId all = n->w->r->map[p->l2->in[i]], v = r && all == NO_VALUE ? n->saved[r - 1] : all;
    add_operand(n, n->body.map, p->bwd, p->bwd->args.at[i + 1], v);
  }
}

/* Operands of the forward loop that the chain may read; those that it does not read are dead and go
 * in simplify. */
static void new_operands(NewLoop *n, uint32_t begin, uint32_t end) {
  const Pair *p = n->p;
  for (uint32_t i = begin; i < end; i++)
    add_operand(n, n->map, p->fwd, p->fwd->args.at[i + 1], n->w->r->map[p->l1->in[i]]);
}

static void fresh_operands(NewLoop *n) {
  const ValueId *next = n->saved + n->p->l1->nout;
  for (ValueId v = 0; v < n->p->fwd->values.n; v++)
    if (is_fresh(n->p, n->g, v)) add_operand(n, n->map, n->p->fwd, v, *next++);
}

static void operands(NewLoop *n, const ValueId *carried) {
  const Pair *p = n->p;
  uint32_t c1 = p->s1.carry, v1 = c1 + p->s1.invariant, c2 = p->s2.carry, v2 = c2 + p->s2.invariant;
  fn_arg(p->m, n->body.to, type_scalar(ELEM_i32));
  carried_operands(n, carried);
  old_operands(n, c2, v2);
  new_operands(n, c1, v1);
  n->s.invariant = n->in.n - c2;
  old_operands(n, v2, p->l2->nin);
  new_operands(n, v1, p->l1->nin);
  fresh_operands(n);
  n->s.stacked = n->in.n - c2 - n->s.invariant;
  n->body.map[p->bwd->args.at[0]] = n->map[p->fwd->args.at[0]] = n->body.to->args.at[0];
}

/* All stacked results: gradients of the stack. */
static void stacked_results(NewLoop *n, Stacks *s) {
  const Pair *p = n->p;
  for (uint32_t i = p->s2.carry; i < p->l2->nout; i++)
    continue_stack(n->w, s, &n->s, n->body.to, i, value_type(p->bwd, p->bwd->results.at[i]));
  for (uint32_t i = 0; i < s->in.n; i++) vec_push(p->m->arena, n->in, s->in.at[i]);
  end_stacks(s, &n->s);
}

static void mark_chain(const Pair *p, Segment *g, ValueId v) {
  const Op *def = value_def(p->fwd, v);
  if (g->keep[v] || (!def && !pair_is_carried(p, v))) return;
  if (!def) bug("recompute: the input of a layer is needed and not kept");
  if (g->chain[def - p->fwd->ops.at]) return;
  g->chain[def - p->fwd->ops.at] = true;
  for (uint32_t i = 0; i < def->nin; i++) mark_chain(p, g, def->in[i]);
}

static void copy_op(NewLoop *n, const Op *o) {
  const Pair *p = n->p;
  ValueId *all = value_map(p->m, p->fwd);
  for (uint32_t j = 0; j < o->nin; j++) all[o->in[j]] = n->map[o->in[j]];
  fn_clone_op(p->m, n->body.to, p->fwd, o, all);
  for (uint32_t j = 0; j < o->nout; j++)
    if (n->map[o->out + j] == NO_VALUE) n->map[o->out + j] = all[o->out + j];
}

static void copy_chain(NewLoop *n) {
  const Pair *p = n->p;
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (kept_before(p, v) && !is_dropped(p, n->g, v))
      n->map[v] = n->body.map[p->bwd->args.at[p->kept[v] + 1]];
  for (uint32_t i = 0; i < p->fwd->ops.n; i++)
    if (n->g->chain[i]) copy_op(n, &p->fwd->ops.at[i]);
  for (uint32_t i = p->s2.carry + p->s2.invariant; i < p->l2->nin; i++) {
    uint32_t r = saved_result(p, i);
    if (r && is_dropped(p, n->g, p->fwd->results.at[r - 1]))
      n->body.map[p->bwd->args.at[i + 1]] = n->map[p->fwd->results.at[r - 1]];
  }
}

static ValueId *emit_backward(const PairWork *w, const Segment *g, const ValueId *saved,
                              const ValueId *carried, bool first) {
  const Pair *p = w->p;
  NewLoop n = {.w = w, .p = p, .g = g, .saved = saved, .s = shape_of(w, g, p->s2)};
  n.map = value_map(p->m, p->fwd);
  n.body = (Rebuild){p->m, p->bwd, fn_new(p->m, FN_BODY, p->bwd->name), value_map(p->m, p->bwd)};
  n.body.to->loc = p->bwd->loc;
  Stacks s = {.before = first ? NULL : carried};
  operands(&n, carried);
  stacked_results(&n, &s);
  copy_chain(&n);
  for (uint32_t i = 0; i < p->bwd->ops.n; i++) rebuild_op(&n.body, &p->bwd->ops.at[i]);
  rebuild_results(&n.body);
  const Op *o = rebuild_loop(p->m, w->r->to, n.body.to, n.s, n.in.at, p->l2->loc);
  ValueId *out = ARENA_ARRAY(p->m->arena, ValueId, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++) out[i] = o->out + i;
  return out;
}

static void write_backward(PairWork *w) {
  const Pair *p = w->p;
  uint32_t n = w->c->segments.n;
  ValueId *carried = ARENA_ARRAY(p->m->arena, ValueId, p->s2.carry + 1);
  for (uint32_t i = 0; i < p->s2.carry; i++) carried[i] = w->r->map[p->l2->in[i]];
  for (uint32_t k = 0; k < n; k++) {
    uint32_t at = turn(w, &p->s2, k);
    const Segment *g = &w->c->segments.at[at];
    const ValueId *saved = g->rerun ? emit_forward(w, g, w->from[at], true, NULL) : w->part[at];
    carried = emit_backward(w, g, saved, carried, k == 0);
  }
  for (uint32_t i = 0; i < p->l2->nout; i++) w->r->map[p->l2->out + i] = carried[i];
}

/* ---- the function ---- */

static PairWork work_of(RecomputeChange *c, Rebuild *r, bool judged) {
  const Pair *p = &c->pair;
  Arena *a = p->m->arena;
  PairWork w = {.c = c, .p = p, .r = r, .judged = judged};
  w.part = ARENA_ARRAY(a, ValueId *, c->segments.n);
  w.from = ARENA_ARRAY(a, ValueId *, c->segments.n);
  for (uint32_t i = 0; i < c->segments.n; i++) {
    Segment *g = &c->segments.at[i];
    g->chain = ARENA_ARRAY(a, bool, p->fwd->ops.n + 1);
    for (ValueId v = 0; v < p->fwd->values.n; v++)
      if (is_dropped(p, g, v)) mark_chain(p, g, v);
  }
  return w;
}

Fn *pair_rewrite(Module *m, const Fn *f, RecomputeChange *changes, uint32_t n, bool judged) {
  for (uint32_t k = 0; k < n; k++)
    must(changes[k].pair.f == f && changes[k].segments.n, "recompute: a change of %s is none of %s",
         changes[k].pair.f->name, f->name);
  Rebuild r = rebuild_begin(m, f);
  PairWork *w = ARENA_ARRAY(m->arena, PairWork, n);
  for (uint32_t k = 0; k < n; k++) w[k] = work_of(&changes[k], &r, judged);
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    uint32_t k = 0;
    while (k < n && o != changes[k].pair.l1 && o != changes[k].pair.l2) k++;
    if (k == n) rebuild_op(&r, o);
    else if (o == changes[k].pair.l1) write_forward(&w[k]);
    else write_backward(&w[k]);
  }
  rebuild_results(&r);
  return r.to;
}
