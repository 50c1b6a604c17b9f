/* recompute: each value that a loop keeps for its backward loop is kept or computed again.

   Default (keep = all), without being silly: a kept value is computed again when its producers are
   POINT ops, back to values that are in memory anyway, with at most one large input: the kernel
   that reads it would read that input instead, so nothing is paid in memory traffic. In memory
   anyway are the loop's operands, what a contraction, attention or inner loop of the forward body
   reads, what lives across one, and small results of reductions (statistics of rows). If such a
   value is not kept yet, it is kept from now on, in exchange. What a contraction reads is not
   computed again, unless it needs nothing but the loop's operands (masks). So a pre-norm block
   keeps its input, the operands of its products, what attention delivers, the residual stream and
   per-row statistics; norms and activations are computed again.

   Values are judged in order of definition; what was dropped is looked through. Pairs of loops are
   found by use: a stacked result of one loop that is a stacked operand of another in the same
   function. Random numbers are functions of logical indexes, so that a second computation gives the
   same. The pass simplifies before and after itself, since it judges by who reads what. */
#include "passes/internal.h"

typedef struct Pair {
  Module *m;
  const Fn *f; /* with both loops */
  const Op *l1, *l2;
  LoopShape s1, s2;
  const Fn *fwd, *bwd;
  uint32_t *kept; /* by value of fwd: operand of l2 that carries it, or NO_VALUE */
  bool *drop;     /* by value of fwd: is computed again */
  bool *pinned;   /* by value of fwd: read from memory, by an op of fwd or of f */
  bool *memory;   /* by value of fwd: that, or it lives across such an op */
  bool *free;     /* by value of fwd: made of the loop's operands, constants, positions alone */
  bool *fresh;    /* by value of fwd: was not kept before, is now */
  bool *chain;    /* by op of fwd: copied into the backward body */
} Pair;

static void find_kept(Pair *p) {
  for (uint32_t i = 0; i < p->fwd->values.n; i++) p->kept[i] = NO_VALUE;
  for (uint32_t i = p->l2->nin - p->s2.stacked; i < p->l2->nin; i++) {
    uint32_t r = p->l2->in[i] - p->l1->out;
    if (p->l2->in[i] >= p->l1->out && r >= p->s1.carry && r < p->l1->nout)
      p->kept[p->fwd->results.at[r]] = i;
  }
}

/* Uses by other ops of f than the backward loop count, too. */
static void pin_outside(Pair *p) {
  for (uint32_t i = 0; i < p->f->ops.n; i++) {
    const Op *o = &p->f->ops.at[i];
    for (uint32_t j = 0; o != p->l2 && j < o->nin; j++) {
      uint32_t r = o->in[j] - p->l1->out;
      if (o->in[j] >= p->l1->out && r < p->l1->nout) p->pinned[p->fwd->results.at[r]] = true;
    }
  }
}

static bool reads_memory(const Op *o) {
  OpFamily family = op_family(o->code);
  return family == FAMILY_CONTRACT || family == FAMILY_ATTENTION || family == FAMILY_CALL;
}

/* What holds the number v: of a narrow float cast to a wide one, the narrow one. */
static ValueId held(const Pair *p, ValueId v) {
  const Op *o = value_def(p->fwd, v);
  if (!o || o->code != OP_cast) return v;
  const Type *from = value_type(p->fwd, o->in[0]), *to = value_type(p->fwd, v);
  bool widens = elem_class(from->elem) == CLASS_FLOAT && elem_class(to->elem) == CLASS_FLOAT &&
                elem_bytes(from->elem) < elem_bytes(to->elem);
  return widens ? o->in[0] : v;
}

/* `barrier` counts the reading ops up to here: a value that is used behind a later one than the one
   before its definition lives across it. */
static void find_memory(Pair *p) {
  uint32_t *born = ARENA_ARRAY(p->m->arena, uint32_t, p->fwd->values.n + 1), barrier = 0;
  for (uint32_t i = 0; i < p->fwd->ops.n; i++) {
    const Op *o = &p->fwd->ops.at[i];
    for (uint32_t j = 0; j < o->nin; j++) {
      if (reads_memory(o)) p->pinned[o->in[j]] = true;
      ValueId v = held(p, o->in[j]);
      p->memory[v] |= p->pinned[v] || born[v] < barrier;
    }
    barrier += reads_memory(o);
    for (uint32_t j = 0; j < o->nout; j++) born[o->out + j] = barrier;
  }
  for (uint32_t i = 0; i < p->s1.carry; i++) {
    p->memory[p->fwd->args.at[i + 1]] = true;
    p->memory[p->fwd->results.at[i]] = true;
  }
}

static void find_free(Pair *p) {
  for (uint32_t i = 0; i < p->fwd->args.n; i++)
    p->free[p->fwd->args.at[i]] = i == 0 || i > p->s1.carry;
  for (uint32_t i = 0; i < p->fwd->ops.n; i++) {
    const Op *o = &p->fwd->ops.at[i];
    bool all = op_flags(o->code) & POINT;
    for (uint32_t j = 0; j < o->nin; j++) all &= p->free[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) p->free[o->out + j] = all;
  }
}

typedef struct Walk {
  const Pair *p;
  bool *seen;      /* by value of fwd */
  bool *need;      /* by value of fwd: would have to be kept */
  Type type;       /* of the value in question */
  int large, kept; /* large inputs; inputs that are kept values */
  bool possible;
} Walk;

/* As many elements as the value in question; of operands of the loop, only such with all its dims
   (a weight may have more elements than a small batch). */
static bool is_large(const Walk *w, ValueId v) {
  Type t = *value_type(w->p->fwd, v);
  t.elem = w->type.elem;
  if (!value_def(w->p->fwd, v)) return w->type.rank && type_contains(&t, &w->type);
  return type_count(&t) >= type_count(&w->type);
}

static void keep_leaf(Walk *w, ValueId v) {
  w->large += is_large(w, v), w->kept++;
  if (w->p->kept[v] == NO_VALUE) w->need[v] = true;
}

static bool is_carried(const Pair *p, ValueId v) {
  uint32_t arg = p->fwd->values.at[v].result; /* 0: the counter */
  return !value_def(p->fwd, v) && arg > 0 && arg <= p->s1.carry;
}

static bool is_kept(const Pair *p, ValueId v) {
  return p->fresh[v] || (p->kept[v] != NO_VALUE && !p->drop[v]);
}

static bool small(const Walk *w, ValueId v) {
  return type_count(value_type(w->p->fwd, v)) * 4 <= type_count(&w->type);
}

/* Follows v back to values that are kept or may be, and to operands of the loop. */
static void walk(Walk *w, ValueId v, bool root) {
  if (w->seen[v] || !w->possible) return;
  w->seen[v] = true;
  const Op *def = value_def(w->p->fwd, v);
  bool in_memory = w->p->memory[v] && !w->p->free[v];
  if (!root && (is_kept(w->p, v) || in_memory || is_carried(w->p, v))) {
    keep_leaf(w, v);
  } else if (!def) {
    w->large += is_large(w, v);
  } else if (op_flags(def->code) & POINT) {
    for (uint32_t i = 0; i < def->nin; i++) walk(w, def->in[i], false);
  } else if (small(w, v)) {
    keep_leaf(w, v);
  } else {
    w->possible = false;
  }
}

/* Is v computed again? Then what has to be kept for that is marked fresh. */
static bool again(Pair *p, ValueId v) {
  const Op *def = value_def(p->fwd, v);
  uint32_t n = p->fwd->values.n;
  if (!def || !(op_flags(def->code) & POINT)) return false;
  Walk w = {.p = p, .type = *value_type(p->fwd, v), .possible = true};
  w.seen = ARENA_ARRAY(p->m->arena, bool, n + 1), w.need = ARENA_ARRAY(p->m->arena, bool, n + 1);
  walk(&w, v, true);
  if (!w.possible || w.large > 1 || (p->memory[v] && w.kept)) return false;
  for (ValueId i = 0; i < n; i++) /* cannot be stacked along a dim that it has */
    if (w.need[i] && type_find(value_type(p->fwd, i), p->s1.axis.dim) >= 0) return false;
  for (ValueId i = 0; i < n; i++) p->fresh[i] |= w.need[i];
  return true;
}

static bool judge(Pair *p) {
  bool any = false;
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->kept[v] != NO_VALUE && again(p, v)) p->drop[v] = any = true;
  return any;
}

/* ---- the backward body with the copied chain ---- */
static void mark_chain(Pair *p, ValueId v) {
  const Op *def = value_def(p->fwd, v);
  if (!def || is_kept(p, v) || p->chain[def - p->fwd->ops.at]) return;
  p->chain[def - p->fwd->ops.at] = true;
  for (uint32_t i = 0; i < def->nin; i++) mark_chain(p, def->in[i]);
}

typedef struct NewLoop {
  Pair *p;
  ValueId fresh;   /* first of the forward loop's new results */
  Rebuild body;    /* bwd -> new body */
  ValueId *map;    /* fwd -> new body */
  VEC(ValueId) in; /* operands, values of the new f */
  LoopShape s;
} NewLoop;

static bool dropped_operand(const Pair *p, uint32_t operand) {
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->kept[v] == operand && p->drop[v]) return true;
  return false;
}

static void old_operands(NewLoop *n, const Rebuild *r, uint32_t begin, uint32_t end) {
  const Pair *p = n->p;
  for (uint32_t i = begin; i < end; i++) {
    if (dropped_operand(p, i)) continue;
    ValueId arg = p->bwd->args.at[i + 1];
    n->body.map[arg] = fn_arg(p->m, n->body.to, *value_type(p->bwd, arg));
    vec_push(p->m->arena, n->in, r->map[p->l2->in[i]]);
  }
}

/* Operands of the forward loop that the chain may read; those that it does not read are dead and go
 * in simplify. */
static void new_operands(NewLoop *n, const Rebuild *r, uint32_t begin, uint32_t end) {
  const Pair *p = n->p;
  for (uint32_t i = begin; i < end; i++) {
    ValueId arg = p->fwd->args.at[i + 1];
    n->map[arg] = fn_arg(p->m, n->body.to, *value_type(p->fwd, arg));
    vec_push(p->m->arena, n->in, r->map[p->l1->in[i]]);
  }
}

static void fresh_operands(NewLoop *n) {
  const Pair *p = n->p;
  ValueId next = n->fresh;
  for (ValueId v = 0; v < p->fwd->values.n; v++) {
    if (!p->fresh[v]) continue;
    n->map[v] = fn_arg(p->m, n->body.to, *value_type(p->fwd, v));
    vec_push(p->m->arena, n->in, next++);
  }
}

static void operands(NewLoop *n, const Rebuild *r) {
  const Pair *p = n->p;
  uint32_t c1 = p->s1.carry, v1 = c1 + p->s1.invariant, c2 = p->s2.carry, v2 = c2 + p->s2.invariant;
  ValueId counter = fn_arg(p->m, n->body.to, type_scalar(ELEM_i32));
  n->body.map[p->bwd->args.at[0]] = n->map[p->fwd->args.at[0]] = counter;
  old_operands(n, r, 0, v2);
  new_operands(n, r, c1, v1);
  n->s.invariant = n->in.n - c2;
  old_operands(n, r, v2, p->l2->nin);
  new_operands(n, r, v1, p->l1->nin);
  fresh_operands(n);
  n->s.stacked = n->in.n - c2 - n->s.invariant;
}

static void copy_chain(NewLoop *n) {
  Pair *p = n->p;
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->drop[v]) mark_chain(p, v);
    else if (p->kept[v] != NO_VALUE) n->map[v] = n->body.map[p->bwd->args.at[p->kept[v] + 1]];
  for (uint32_t i = 0; i < p->fwd->ops.n; i++) {
    const Op *o = &p->fwd->ops.at[i];
    if (!p->chain[i]) continue;
    ValueId *all = value_map(p->m, p->fwd);
    for (uint32_t j = 0; j < o->nin; j++) all[o->in[j]] = n->map[o->in[j]];
    fn_clone_op(p->m, n->body.to, p->fwd, o, all);
    for (uint32_t j = 0; j < o->nout; j++)
      if (n->map[o->out + j] == NO_VALUE) n->map[o->out + j] = all[o->out + j];
  }
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->drop[v]) n->body.map[p->bwd->args.at[p->kept[v] + 1]] = n->map[v];
}

/* The forward loop with the fresh values as further results; returns the first of them. */
static ValueId emit_forward(Pair *p, Rebuild *r) {
  Rebuild b = rebuild_begin(p->m, p->fwd);
  for (uint32_t i = 0; i < p->fwd->ops.n; i++) rebuild_op(&b, &p->fwd->ops.at[i]);
  rebuild_results(&b);
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->fresh[v]) fn_result(p->m, b.to, b.map[v]);
  VEC(ValueId) in = {0};
  for (uint32_t i = 0; i < p->l1->nin; i++) vec_push(p->m->arena, in, r->map[p->l1->in[i]]);
  ValueId first = rebuild_loop(p->m, r->to, b.to, p->s1, in.at, p->l1->loc)->out;
  for (uint32_t i = 0; i < p->l1->nout; i++) r->map[p->l1->out + i] = first + i;
  return first + p->l1->nout;
}

static void emit_backward(Pair *p, Rebuild *r, ValueId fresh) {
  NewLoop n = {.p = p, .fresh = fresh, .s = p->s2, .map = value_map(p->m, p->fwd)};
  n.body = (Rebuild){p->m, p->bwd, fn_new(p->m, FN_BODY, p->bwd->name), value_map(p->m, p->bwd)};
  n.body.to->loc = p->bwd->loc;
  operands(&n, r);
  copy_chain(&n);
  for (uint32_t i = 0; i < p->bwd->ops.n; i++) rebuild_op(&n.body, &p->bwd->ops.at[i]);
  rebuild_results(&n.body);
  ValueId first = rebuild_loop(p->m, r->to, n.body.to, n.s, n.in.at, p->l2->loc)->out;
  for (uint32_t i = 0; i < p->l2->nout; i++) r->map[p->l2->out + i] = first + i;
}

static Fn *with_new_loops(Pair *p) {
  Rebuild r = rebuild_begin(p->m, p->f);
  ValueId fresh = NO_VALUE;
  for (uint32_t i = 0; i < p->f->ops.n; i++) {
    const Op *o = &p->f->ops.at[i];
    if (o == p->l1) fresh = emit_forward(p, &r);
    else if (o == p->l2) emit_backward(p, &r, fresh);
    else rebuild_op(&r, o);
  }
  rebuild_results(&r);
  return r.to;
}

static bool judge_pair(Module *m, const Fn *f, const Op *l1, const Op *l2, Pair *p) {
  *p = (Pair){.m = m, .f = f, .l1 = l1, .l2 = l2, .s1 = loop_shape(l1), .s2 = loop_shape(l2)};
  p->fwd = l1->callee, p->bwd = l2->callee;
  p->kept = ARENA_ARRAY(m->arena, uint32_t, p->fwd->values.n + 1);
  p->drop = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  p->pinned = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  p->memory = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  p->free = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  p->fresh = ARENA_ARRAY(m->arena, bool, p->fwd->values.n + 1);
  p->chain = ARENA_ARRAY(m->arena, bool, p->fwd->ops.n + 1);
  find_kept(p);
  pin_outside(p);
  find_memory(p);
  find_free(p);
  return judge(p);
}

/* The first pair of loops with something to compute again, or NULL. */
static Fn *improved(Module *m, const Fn *f) {
  Pair p;
  for (uint32_t j = 0; j < f->ops.n; j++)
    for (uint32_t i = 0; i < j; i++)
      if (f->ops.at[i].code == OP_loop && f->ops.at[j].code == OP_loop &&
          judge_pair(m, f, &f->ops.at[i], &f->ops.at[j], &p))
        return with_new_loops(&p);
  return NULL;
}

/* Ends: each round takes a POINT value from what is kept; what it adds instead is in memory anyway,
   an operand or no POINT value, and such are never taken. */
void pass_recompute(Module *m) {
  bool changed;
  simplify_module(m, true);
  do {
    changed = false;
    for (uint32_t i = 0; i < m->fns.n; i++) {
      Fn *n = improved(m, m->fns.at[i]);
      if (n) module_replace(m, m->fns.at[i], n), changed = true;
    }
    if (changed) module_collect(m), simplify_module(m, true);
  } while (changed);
}
