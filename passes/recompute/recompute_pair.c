/* recompute: pairs of loops and their rewriting.

   A pair is a forward loop and a backward loop of one function such that stacked results of the
   first are stacked operands of the second. After rewriting, the forward loop saves the values
   that its segment keeps; the backward body begins with copies of the forward ops that compute the
   values it reads from those.

   Layers that keep different values become loops of their own (segments), each over its range of
   the stacks: operands are passed whole, and results that are read by ops other than the backward
   loop are whole as well, each loop continuing the stack that the previous one began (attribute
   `continues`). So an op before or after the loops still sees one stack. Unused values are removed
   in simplify. */
#include "recompute.h"
#include "ir/plan/layer_range.h"
#include <string.h>

/* ---- pairs ---- */

static void find_kept(Pair *pair) {
  for (uint32_t i = 0; i < pair->fwd->values.n; i++) pair->kept[i] = NO_VALUE;
  for (uint32_t i = pair->l2->nin - pair->s2.stacked; i < pair->l2->nin; i++) {
    uint32_t r = pair->l2->in[i] - pair->l1->out;
    if (pair->l2->in[i] >= pair->l1->out && r >= pair->s1.carry && r < pair->l1->nout)
      pair->kept[pair->fwd->results.at[r]] = i;
  }
}

static void find_outside(Pair *pair) {
  uint32_t first = pair->l2->nin - pair->s2.stacked;
  EACH_OP (pair->f, o) {
    for (uint32_t j = 0; j < (o == pair->l2 ? first : o->nin); j++) {
      uint32_t r = o->in[j] - pair->l1->out;
      if (o->in[j] >= pair->l1->out && r < pair->l1->nout)
        pair->outside[pair->fwd->results.at[r]] = true;
    }
  }
  for (uint32_t i = 0; i < pair->f->results.n; i++) {
    uint32_t r = pair->f->results.at[i] - pair->l1->out;
    if (pair->f->results.at[i] >= pair->l1->out && r < pair->l1->nout)
      pair->outside[pair->fwd->results.at[r]] = true;
  }
}

bool pair_of(Module *m, const Fn *f, const Op *l1, const Op *l2, Pair *pair) {
  if (l1->code != OP_loop || l2->code != OP_loop) return false;
  *pair = (Pair){.m = m, .f = f, .l1 = l1, .l2 = l2, .s1 = loop_shape(l1), .s2 = loop_shape(l2)};
  pair->fwd = l1->callee, pair->bwd = l2->callee;
  if (pair->s1.of || pair->s2.of) return false; /* segments have been made already */
  pair->kept = ARENA_ARRAY(m->arena, uint32_t, pair->fwd->values.n + 1);
  pair->outside = ARENA_ARRAY(m->arena, bool, pair->fwd->values.n + 1);
  find_kept(pair);
  find_outside(pair);
  for (uint32_t v = 0; v < pair->fwd->values.n; v++)
    if (pair->kept[v] != NO_VALUE) return pair->s1.trip == pair->s2.trip;
  return false;
}

bool pair_judged(const Pair *pair) { return pair->s1.path && strchr(pair->s1.path, '['); }

bool pair_is_carried(const Pair *pair, ValueId v) {
  must(v < pair->fwd->values.n, "recompute: %s has no value %u", pair->fwd->name, v);
  uint32_t arg = pair->fwd->values.at[v].result; /* 0: the counter */
  return !value_def(pair->fwd, v) && arg > 0 && arg <= pair->s1.carry;
}

bool pair_can_keep(const Pair *pair, ValueId v) {
  const Type *t = value_type(pair->fwd, v);
  return t->rank < MAX_RANK && type_find(t, pair->s1.axis.dim) < 0;
}

/* ---- one segment ---- */

typedef struct PairWork { /* of one pair while f is rebuilt */
  RecomputeChange *c;
  const Pair *p;
  Rebuild *r;
  bool judged;
  ValueId **part; /* by segment: the results of its forward loop, then the fresh ones */
  ValueId **from; /* by segment: the carried operands it began with */
} PairWork;

static bool kept_before(const Pair *pair, ValueId v) { return pair->kept[v] != NO_VALUE; }
static bool is_fresh(const Pair *pair, const Segment *segment, ValueId v) {
  return segment->keep[v] && !kept_before(pair, v);
}
static bool is_dropped(const Pair *pair, const Segment *segment, ValueId v) {
  return !segment->keep[v] && kept_before(pair, v);
}

static LoopShape shape_of(const PairWork *work, const Segment *segment, LoopShape shape) {
  must(segment->first >= 0 && segment->first + segment->count <= shape.trip,
       "recompute: layers %lld to %lld of %lld", (long long)segment->first,
       (long long)(segment->first + segment->count), (long long)shape.trip);
  if (segment->count != shape.trip) shape.of = shape.trip, shape.first = segment->first;
  shape.trip = shape.axis.size = segment->count;
  if (work->judged && shape.path)
    shape.path = layer_range(work->p->m, shape.path, segment->first, segment->count);
  return shape;
}

/* Results of a segment's loop that other ops read continue those of the previous segment;
   `before`: its results, NULL for the first one. */
typedef struct Stacks {
  const ValueId *before;
  VEC(ValueId) in;   /* continued operands, after all others */
  VEC(int64_t) into; /* by stacked result */
} Stacks;

static void continue_stack(const PairWork *work, Stacks *stacks, const LoopShape *shape, Fn *body,
                           uint32_t i, const Type *slice) {
  Arena *arena = work->p->m->arena;
  bool part = shape->of != 0;
  vec_push(arena, stacks->into,
           !part             ? INTO_OWN
           : !stacks->before ? INTO_NEW
                             : (int64_t)shape->stacked + stacks->in.n);
  if (!part || !stacks->before) return;
  fn_arg(work->p->m, body, *slice);
  vec_push(arena, stacks->in, stacks->before[i]);
}

static void end_stacks(Stacks *stacks, LoopShape *shape) {
  shape->stacked += stacks->in.n, shape->into = stacks->into.at, shape->ninto = stacks->into.n;
}

/* ---- forward ---- */

static bool is_read_outside(const Pair *pair, uint32_t result) {
  return pair->outside[pair->fwd->results.at[result]];
}

/* `stacks`: stacks that other ops read; only the backward loop reads the values that are made
   again. */
static Fn *forward_body(const PairWork *work, const Segment *segment, bool saves, LoopShape *shape,
                        Stacks *stacks) {
  const Pair *pair = work->p;
  Rebuild rebuild = {pair->m, pair->fwd, fn_new(pair->m, FN_BODY, pair->fwd->name),
                     value_map(pair->m, pair->fwd)};
  rebuild.to->loc = pair->fwd->loc;
  for (uint32_t i = 0; i < pair->fwd->args.n; i++)
    rebuild.map[pair->fwd->args.at[i]] =
        fn_arg(pair->m, rebuild.to, *value_type(pair->fwd, pair->fwd->args.at[i]));
  for (uint32_t i = pair->s1.carry; i < pair->l1->nout; i++) {
    const Type *slice = value_type(pair->fwd, pair->fwd->results.at[i]);
    if (stacks && is_read_outside(pair, i))
      continue_stack(work, stacks, shape, rebuild.to, i, slice);
    else if (stacks) vec_push(pair->m->arena, stacks->into, INTO_OWN);
  }
  for (uint32_t i = 0; i < pair->fwd->ops.n; i++) rebuild_op(&rebuild, &pair->fwd->ops.at[i]);
  rebuild_results(&rebuild);
  for (ValueId v = 0; v < pair->fwd->values.n; v++)
    if (saves && is_fresh(pair, segment, v)) fn_result(pair->m, rebuild.to, rebuild.map[v]);
  return rebuild.to;
}

static ValueId *results_of(Module *m, const Op *o) {
  ValueId *out = ARENA_ARRAY(m->arena, ValueId, o->nout + 1);
  for (uint32_t i = 0; i < o->nout; i++) out[i] = o->out + i;
  return out;
}

/* The values with which the loops that replace `loop` begin. */
static ValueId *first_carried(const PairWork *work, const Op *loop, uint32_t carry) {
  ValueId *carried = ARENA_ARRAY(work->p->m->arena, ValueId, carry + 1);
  for (uint32_t i = 0; i < carry; i++) carried[i] = work->r->map[loop->in[i]];
  return carried;
}

/* The forward loop over a segment's layers; its results. */
static ValueId *emit_forward(const PairWork *work, const Segment *segment, const ValueId *carried,
                             bool saves, Stacks *stacks) {
  const Pair *pair = work->p;
  VEC(ValueId) in = {0};
  LoopShape shape = shape_of(work, segment, pair->s1);
  shape.over = segment->over, shape.offload = segment->offload && !segment->rerun;
  for (uint32_t i = 0; i < pair->l1->nin; i++)
    vec_push(pair->m->arena, in, i < pair->s1.carry ? carried[i] : work->r->map[pair->l1->in[i]]);
  Fn *body = forward_body(work, segment, saves, &shape, stacks);
  for (uint32_t i = 0; stacks && i < stacks->in.n; i++)
    vec_push(pair->m->arena, in, stacks->in.at[i]);
  if (stacks) end_stacks(stacks, &shape);
  const Op *o = rebuild_loop(pair->m, work->r->to, body, shape, in.at, pair->l1->loc);
  return results_of(pair->m, o);
}

/* Number of the segment that runs as k-th. */
static uint32_t turn(const PairWork *work, const LoopShape *shape, uint32_t k) {
  return shape->reverse ? work->c->segments.n - 1 - k : k;
}

static void write_forward(PairWork *work) {
  const Pair *pair = work->p;
  uint32_t n = work->c->segments.n;
  ValueId *carried = first_carried(work, pair->l1, pair->s1.carry);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t at = turn(work, &pair->s1, k);
    const Segment *segment = &work->c->segments.at[at];
    Stacks stacks = {.before = k ? carried : NULL};
    work->from[at] = carried;
    work->part[at] = carried = emit_forward(work, segment, carried, !segment->rerun, &stacks);
  }
  for (uint32_t i = 0; i < pair->l1->nout; i++)
    if (i < pair->s1.carry || is_read_outside(pair, i))
      work->r->map[pair->l1->out + i] = carried[i];
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

static void add_operand(NewLoop *loop, ValueId *map, const Fn *from, ValueId arg, ValueId operand) {
  map[arg] = fn_arg(loop->p->m, loop->body.to, *value_type(from, arg));
  vec_push(loop->p->m->arena, loop->in, operand);
}

/* Which result of the forward loop an operand of the backward loop is; 0: none of the stacked. */
static uint32_t saved_result(const Pair *pair, uint32_t operand) {
  uint32_t r = pair->l2->in[operand] - pair->l1->out;
  bool is = pair->l2->in[operand] >= pair->l1->out && r >= pair->s1.carry && r < pair->l1->nout;
  return is && operand >= pair->s2.carry + pair->s2.invariant ? r + 1 : 0;
}

static void carried_operands(NewLoop *loop, const ValueId *carried) {
  const Pair *pair = loop->p;
  for (uint32_t i = 0; i < pair->s2.carry; i++)
    add_operand(loop, loop->body.map, pair->bwd, pair->bwd->args.at[i + 1], carried[i]);
}

static void old_operands(NewLoop *loop, uint32_t begin, uint32_t end) {
  const Pair *pair = loop->p;
  for (uint32_t i = begin; i < end; i++) {
    uint32_t r = saved_result(pair, i);
    if (r && is_dropped(pair, loop->g, pair->fwd->results.at[r - 1])) continue;
    ValueId all = loop->w->r->map[pair->l2->in[i]],
            v = r && all == NO_VALUE ? loop->saved[r - 1] : all;
    add_operand(loop, loop->body.map, pair->bwd, pair->bwd->args.at[i + 1], v);
  }
}

/* Operands of the forward loop that the chain may read; those that it does not read are dead and go
 * in simplify. */
static void new_operands(NewLoop *loop, uint32_t begin, uint32_t end) {
  const Pair *pair = loop->p;
  for (uint32_t i = begin; i < end; i++)
    add_operand(loop, loop->map, pair->fwd, pair->fwd->args.at[i + 1],
                loop->w->r->map[pair->l1->in[i]]);
}

static void fresh_operands(NewLoop *loop) {
  const ValueId *next = loop->saved + loop->p->l1->nout;
  for (ValueId v = 0; v < loop->p->fwd->values.n; v++)
    if (is_fresh(loop->p, loop->g, v)) add_operand(loop, loop->map, loop->p->fwd, v, *next++);
}

static void operands(NewLoop *loop, const ValueId *carried) {
  const Pair *pair = loop->p;
  uint32_t c1 = pair->s1.carry, v1 = c1 + pair->s1.invariant, c2 = pair->s2.carry,
           v2 = c2 + pair->s2.invariant;
  fn_arg(pair->m, loop->body.to, type_scalar(ELEM_i32));
  carried_operands(loop, carried);
  old_operands(loop, c2, v2);
  new_operands(loop, c1, v1);
  loop->s.invariant = loop->in.n - c2;
  old_operands(loop, v2, pair->l2->nin);
  new_operands(loop, v1, pair->l1->nin);
  fresh_operands(loop);
  loop->s.stacked = loop->in.n - c2 - loop->s.invariant;
  loop->body.map[pair->bwd->args.at[0]] = loop->map[pair->fwd->args.at[0]] =
      loop->body.to->args.at[0];
}

/* All stacked results: gradients of the stack. */
static void stacked_results(NewLoop *loop, Stacks *stacks) {
  const Pair *pair = loop->p;
  for (uint32_t i = pair->s2.carry; i < pair->l2->nout; i++)
    continue_stack(loop->w, stacks, &loop->s, loop->body.to, i,
                   value_type(pair->bwd, pair->bwd->results.at[i]));
  for (uint32_t i = 0; i < stacks->in.n; i++) vec_push(pair->m->arena, loop->in, stacks->in.at[i]);
  end_stacks(stacks, &loop->s);
}

static void mark_chain(const Pair *pair, Segment *segment, ValueId v) {
  const Op *def = value_def(pair->fwd, v);
  if (segment->keep[v] || (!def && !pair_is_carried(pair, v))) return;
  if (!def) bug("recompute: the input of a layer is needed and not kept");
  if (segment->chain[def - pair->fwd->ops.at]) return;
  segment->chain[def - pair->fwd->ops.at] = true;
  for (uint32_t i = 0; i < def->nin; i++) mark_chain(pair, segment, def->in[i]);
}

static void copy_op(NewLoop *loop, const Op *o) {
  const Pair *pair = loop->p;
  ValueId *all = value_map(pair->m, pair->fwd);
  for (uint32_t j = 0; j < o->nin; j++) all[o->in[j]] = loop->map[o->in[j]];
  fn_clone_op(pair->m, loop->body.to, pair->fwd, o, all);
  for (uint32_t j = 0; j < o->nout; j++)
    if (loop->map[o->out + j] == NO_VALUE) loop->map[o->out + j] = all[o->out + j];
}

static void copy_chain(NewLoop *loop) {
  const Pair *pair = loop->p;
  for (ValueId v = 0; v < pair->fwd->values.n; v++)
    if (kept_before(pair, v) && !is_dropped(pair, loop->g, v))
      loop->map[v] = loop->body.map[pair->bwd->args.at[pair->kept[v] + 1]];
  for (uint32_t i = 0; i < pair->fwd->ops.n; i++)
    if (loop->g->chain[i]) copy_op(loop, &pair->fwd->ops.at[i]);
  for (uint32_t i = pair->s2.carry + pair->s2.invariant; i < pair->l2->nin; i++) {
    uint32_t r = saved_result(pair, i);
    if (r && is_dropped(pair, loop->g, pair->fwd->results.at[r - 1]))
      loop->body.map[pair->bwd->args.at[i + 1]] = loop->map[pair->fwd->results.at[r - 1]];
  }
}

static ValueId *emit_backward(const PairWork *work, const Segment *segment, const ValueId *saved,
                              const ValueId *carried, bool first) {
  const Pair *pair = work->p;
  NewLoop loop = {
      .w = work, .p = pair, .g = segment, .saved = saved, .s = shape_of(work, segment, pair->s2)};
  loop.map = value_map(pair->m, pair->fwd);
  loop.body = (Rebuild){pair->m, pair->bwd, fn_new(pair->m, FN_BODY, pair->bwd->name),
                        value_map(pair->m, pair->bwd)};
  loop.body.to->loc = pair->bwd->loc;
  Stacks stacks = {.before = first ? NULL : carried};
  operands(&loop, carried);
  stacked_results(&loop, &stacks);
  copy_chain(&loop);
  for (uint32_t i = 0; i < pair->bwd->ops.n; i++) rebuild_op(&loop.body, &pair->bwd->ops.at[i]);
  rebuild_results(&loop.body);
  const Op *o = rebuild_loop(pair->m, work->r->to, loop.body.to, loop.s, loop.in.at, pair->l2->loc);
  return results_of(pair->m, o);
}

static void write_backward(PairWork *work) {
  const Pair *pair = work->p;
  uint32_t n = work->c->segments.n;
  ValueId *carried = first_carried(work, pair->l2, pair->s2.carry);
  for (uint32_t k = 0; k < n; k++) {
    uint32_t at = turn(work, &pair->s2, k);
    const Segment *segment = &work->c->segments.at[at];
    const ValueId *saved =
        segment->rerun ? emit_forward(work, segment, work->from[at], true, NULL) : work->part[at];
    carried = emit_backward(work, segment, saved, carried, k == 0);
  }
  for (uint32_t i = 0; i < pair->l2->nout; i++) work->r->map[pair->l2->out + i] = carried[i];
}

/* ---- the function ---- */

static PairWork work_of(RecomputeChange *change, Rebuild *rebuild, bool judged) {
  const Pair *pair = &change->pair;
  Arena *arena = pair->m->arena;
  PairWork work = {.c = change, .p = pair, .r = rebuild, .judged = judged};
  work.part = ARENA_ARRAY(arena, ValueId *, change->segments.n);
  work.from = ARENA_ARRAY(arena, ValueId *, change->segments.n);
  for (uint32_t i = 0; i < change->segments.n; i++) {
    Segment *segment = &change->segments.at[i];
    segment->chain = ARENA_ARRAY(arena, bool, pair->fwd->ops.n + 1);
    for (ValueId v = 0; v < pair->fwd->values.n; v++)
      if (is_dropped(pair, segment, v)) mark_chain(pair, segment, v);
  }
  return work;
}

Fn *pair_rewrite(Module *m, const Fn *f, RecomputeChange *changes, uint32_t n, bool judged) {
  for (uint32_t k = 0; k < n; k++)
    must(changes[k].pair.f == f && changes[k].segments.n, "recompute: a change of %s is none of %s",
         changes[k].pair.f->name, f->name);
  Rebuild rebuild = rebuild_begin(m, f);
  PairWork *work = ARENA_ARRAY(m->arena, PairWork, n);
  for (uint32_t k = 0; k < n; k++) work[k] = work_of(&changes[k], &rebuild, judged);
  EACH_OP (f, o) {
    bool written = false;
    for (uint32_t k = 0; k < n; k++) { /* equal calls have one forward loop and a backward each */
      if (o == changes[k].pair.l1) write_forward(&work[k]), written = true;
      else if (o == changes[k].pair.l2) write_backward(&work[k]), written = true;
    }
    if (!written) rebuild_op(&rebuild, o);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}
