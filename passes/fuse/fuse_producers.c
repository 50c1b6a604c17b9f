/* fuse, before grouping: producer fusion into loops, the mirror of loop sinking (loop_sinking.c).
   Element-wise host work whose result a loop reads row by row moves into the loop, so that each
   round makes the row that it reads.

   An update on the host is then not one kernel followed by the upload of all new parameters, but a
   kernel for each row (a layer, or a bucket): a row is copied to the GPU while the host updates
   the next one (zero_publish.c makes the loop, pass offload its copies).

     before   m' = U(m, g);  p = cast(m');  loop over rows: move p_i;  store m'
     after    loop over rows: m'_i = U(m_i, g_i);  p_i = cast(m'_i);  move p_i;  store m'

   Either all of the work moves or none. It must be element-wise, on stacks whose first dim is the
   loop's and on scalars. A value with other readers becomes a result of the loop; so does a value
   that the rounds read, so that each row has a buffer of its own in which it waits for its copy
   while the next one is made. A value with readers before the loop, e.g. a gradient's cast for its
   norm, is computed twice. The numbers are the same bit by bit.

   Must not: move work that comes first in order to overlap with other work (phase `late`); reorder
   a load and a store of one global. */
#include "fuse.h"
#include "ir/phases.h"

typedef struct RowFeed {
  Module *m;
  const Fn *f;
  OpId loop;
  LoopShape shape;
  const Type *rows;           /* of the loop's stacked operand */
  bool *mine;                 /* by op: part of the work */
  bool *stays;                /* by op: of it, and others read it before, so it is done twice */
  bool *made;                 /* by value: by it */
  bool *fails;                /* by op: looked at, and no part of it */
  ValueList numbers, stacked; /* values that the work reads; operands of the new loop */
  ValueList gives;            /* results of the work, after the loop's own results */
} RowFeed;

/* ---- the work ---- */

static bool is_alike(const RowFeed *feed, ValueId v) {
  Type type = type_with_elem(*value_type(feed->f, v), feed->rows->elem);
  return type_equal(&type, feed->rows);
}

static void add_once(const RowFeed *feed, ValueList *list, ValueId v) {
  for (uint32_t i = 0; i < list->n; i++)
    if (list->at[i] == v) return;
  vec_push(feed->m->arena, *list, v);
}

static bool admit(RowFeed *feed, OpId id);

static bool admit_operand(RowFeed *feed, ValueId v) {
  const Op *o = value_def(feed->f, v);
  bool number = !value_type(feed->f, v)->rank;
  if (feed->made[v] || (o && o->code == OP_const)) return true;
  if (!number && !is_alike(feed, v)) return false;
  if (!number && o && op_family(o->code) == FAMILY_ELEM) {
    OpId def = feed->f->values.at[v].def;
    if (!feed->fails[def] && admit(feed, def)) return true;
    feed->fails[def] = true;
  }
  add_once(feed, number ? &feed->numbers : &feed->stacked, v);
  return true;
}

static bool admit(RowFeed *feed, OpId id) {
  const Op *o = &feed->f->ops.at[id];
  if (o->nout != 1 || o->ngroups || !is_alike(feed, o->out)) return false;
  for (uint32_t k = 0; k < o->nin; k++)
    if (!admit_operand(feed, o->in[k])) return false;
  return feed->mine[id] = feed->made[o->out] = true;
}

static bool loads_between(const RowFeed *feed, OpId store) {
  for (OpId i = store + 1; i < feed->loop; i++)
    if (feed->f->ops.at[i].code == OP_load &&
        feed->f->ops.at[i].global == feed->f->ops.at[store].global)
      return true;
  return false;
}

/* Does the op read a result of the work after the loop, or can it be moved there? */
static bool may_wait(const RowFeed *feed, OpId id) {
  const Op *o = &feed->f->ops.at[id];
  if (id < feed->loop) return o->code == OP_store && !loads_between(feed, id);
  for (uint32_t k = 0; id == feed->loop && k < feed->shape.carry + feed->shape.invariant; k++)
    if (feed->made[o->in[k]]) return false;
  return true;
}

static bool is_made(const RowFeed *feed, ValueId v) {
  return feed->made[v] && !feed->stays[feed->f->values.at[v].def];
}

/* Work with readers before the loop also stays where it is; false: it is more than a cheap op. */
static bool find_twice(RowFeed *feed) {
  for (OpId i = feed->f->ops.n; i-- > 0;) {
    const Op *o = &feed->f->ops.at[i];
    if ((feed->mine[i] && !feed->stays[i]) || !fuse_reads(o, feed->made) || may_wait(feed, i))
      continue;
    for (uint32_t k = 0; k < o->nin; k++) {
      OpId def = feed->f->values.at[o->in[k]].def;
      if (!feed->made[o->in[k]]) continue;
      if (i == feed->loop || fuse_expensive(feed->f->ops.at[def].code)) return false;
      feed->stays[def] = true;
    }
  }
  return true;
}

/* Is it the row as it is that the rounds leave? Then it has its place. */
static bool is_left(const RowFeed *feed, OpId id, uint32_t operand) {
  const Fn *body = feed->f->ops.at[feed->loop].callee;
  bool left = false;
  for (uint32_t i = 0; id == feed->loop && i < body->results.n; i++)
    left |= body->results.at[i] == body->args.at[operand + 1];
  return left;
}

static bool find_readers(RowFeed *feed) {
  if (!find_twice(feed)) return false;
  for (OpId i = 0; i < feed->f->ops.n; i++) {
    const Op *o = &feed->f->ops.at[i];
    for (uint32_t k = 0; !feed->mine[i] && k < o->nin; k++)
      if (is_made(feed, o->in[k]) && !is_left(feed, i, k)) add_once(feed, &feed->gives, o->in[k]);
  }
  return true;
}

/* Is it made of something that the work makes? */
static bool follows(const RowFeed *feed, ValueId v) {
  const Op *o = value_def(feed->f, v);
  if (feed->made[v]) return true;
  if (!o || op_family(o->code) != FAMILY_ELEM || !is_alike(feed, v)) return false;
  for (uint32_t k = 0; k < o->nin; k++)
    if (follows(feed, o->in[k])) return true;
  return false;
}

/* Adds to the work the stores of states with the same rows that follow from the operands. */
static void admit_stores(RowFeed *feed) {
  for (OpId i = 0; i < feed->loop; i++) {
    const Op *o = &feed->f->ops.at[i];
    if (o->code == OP_store && !feed->made[o->in[0]] && follows(feed, o->in[0]))
      admit(feed, feed->f->values.at[o->in[0]].def);
  }
}

/* Finds the ops that make stacked operand k; false: the operand stays as it is. */
static bool find_work(RowFeed *feed, uint32_t k) {
  ValueId v = feed->f->ops.at[feed->loop].in[k];
  const Op *o = value_def(feed->f, v);
  const Type *t = value_type(feed->f, v);
  if (!o || op_family(o->code) != FAMILY_ELEM || t->tier != TIER_host) return false;
  if (!t->rank || t->axis[0].dim != feed->shape.axis.dim) return false;
  feed->rows = t;
  feed->mine = ARENA_ARRAY(feed->m->arena, bool, feed->f->ops.n + 1);
  feed->fails = ARENA_ARRAY(feed->m->arena, bool, feed->f->ops.n + 1);
  feed->stays = ARENA_ARRAY(feed->m->arena, bool, feed->f->ops.n + 1);
  feed->made = ARENA_ARRAY(feed->m->arena, bool, feed->f->values.n + 1);
  if (!admit(feed, feed->f->values.at[v].def)) return false;
  admit_stores(feed);
  return find_readers(feed);
}

/* ---- the loop ---- */

typedef struct FedBody { /* the new body */
  Rebuild r;
  ValueId *map; /* by value of the function: its row */
} FedBody;

static void add_args(FedBody *fed, const RowFeed *feed, const ValueList *list) {
  for (uint32_t i = 0; i < list->n; i++) {
    const Type *t = value_type(feed->f, list->at[i]);
    Type row = t->rank ? type_without(t, &feed->shape.axis.dim, 1) : *t;
    fed->map[list->at[i]] = fn_arg(feed->m, fed->r.to, row);
  }
}

/* The old arguments except those that the rounds make; new ones follow the old ones of their
   kind. */
static void give_args(FedBody *fed, const RowFeed *feed) {
  const Op *loop = &feed->f->ops.at[feed->loop];
  const Fn *from = loop->callee;
  uint32_t stacked = 1 + feed->shape.carry + feed->shape.invariant;
  for (uint32_t i = 0; i < from->args.n; i++) {
    ValueId arg = from->args.at[i];
    if (i == stacked) add_args(fed, feed, &feed->numbers);
    if (i >= stacked && feed->made[loop->in[i - 1]]) continue;
    fed->r.map[arg] = fn_arg(feed->m, fed->r.to, *value_type(from, arg));
  }
  add_args(fed, feed, &feed->stacked);
}

static void give_work(FedBody *fed, const RowFeed *feed) {
  for (OpId i = 0; i < feed->loop; i++) {
    const Op *o = &feed->f->ops.at[i];
    if (!feed->mine[i]) continue;
    for (uint32_t k = 0; k < o->nin; k++)
      if (fed->map[o->in[k]] == NO_VALUE)
        fn_clone_op(feed->m, fed->r.to, feed->f, value_def(feed->f, o->in[k]), fed->map);
    Op *made = fn_clone_op(feed->m, fed->r.to, feed->f, o, fed->map);
    fed->r.to->values.at[made->out].type =
        type_without(value_type(feed->f, o->out), &feed->shape.axis.dim, 1);
  }
}

static Fn *body_with_producer(const RowFeed *feed) {
  const Op *loop = &feed->f->ops.at[feed->loop];
  const Fn *from = loop->callee;
  FedBody fed = {{feed->m, from, fn_like(feed->m, from), value_map(feed->m, from)},
                 value_map(feed->m, feed->f)};
  give_args(&fed, feed);
  give_work(&fed, feed);
  for (uint32_t k = 0; k < loop->nin; k++)
    if (feed->made[loop->in[k]]) fed.r.map[from->args.at[k + 1]] = fed.map[loop->in[k]];
  for (OpId i = 0; i < from->ops.n; i++) rebuild_op(&fed.r, &from->ops.at[i]);
  rebuild_results(&fed.r);
  for (uint32_t i = 0; i < feed->gives.n; i++)
    fn_result(feed->m, fed.r.to, fed.map[feed->gives.at[i]]);
  return fed.r.to;
}

static void add_operands(const RowFeed *feed, const Rebuild *rebuild, ValueList *in,
                         const ValueList *more) {
  for (uint32_t i = 0; i < more->n; i++) vec_push(feed->m->arena, *in, rebuild->map[more->at[i]]);
}

static void fed_loop(const RowFeed *feed, Rebuild *rebuild) {
  const Op *loop = &feed->f->ops.at[feed->loop];
  LoopShape shape = feed->shape;
  uint32_t whole = shape.carry + shape.invariant;
  ValueList in = {0};
  for (uint32_t k = 0; k < whole; k++) vec_push(feed->m->arena, in, rebuild->map[loop->in[k]]);
  add_operands(feed, rebuild, &in, &feed->numbers);
  shape.invariant = in.n - shape.carry;
  for (uint32_t k = whole; k < loop->nin; k++)
    if (!feed->made[loop->in[k]]) vec_push(feed->m->arena, in, rebuild->map[loop->in[k]]);
  add_operands(feed, rebuild, &in, &feed->stacked);
  shape.stacked = in.n - shape.carry - shape.invariant;
  const Op *made =
      rebuild_loop(feed->m, rebuild->to, body_with_producer(feed), shape, in.at, loop->loc);
  for (uint32_t i = 0; i < loop->nout; i++) rebuild->map[loop->out + i] = made->out + i;
  for (uint32_t i = 0; i < feed->gives.n; i++)
    rebuild->map[feed->gives.at[i]] = made->out + loop->nout + i;
}

/* ---- the function ---- */

static void add_stores(const RowFeed *feed, Rebuild *rebuild) {
  for (OpId i = 0; i < feed->loop; i++) {
    const Op *o = &feed->f->ops.at[i];
    if (o->code == OP_store && is_made(feed, o->in[0])) rebuild_op(rebuild, o);
  }
}

static Fn *fed_function(const RowFeed *feed) {
  Rebuild rebuild = rebuild_begin(feed->m, feed->f);
  for (OpId i = 0; i < feed->f->ops.n; i++) {
    const Op *o = &feed->f->ops.at[i];
    bool waits = i < feed->loop && o->code == OP_store && is_made(feed, o->in[0]);
    bool moves = feed->mine[i] && !feed->stays[i];
    if (i == feed->loop) fed_loop(feed, &rebuild), add_stores(feed, &rebuild);
    else if (!moves && !waits) rebuild_op(&rebuild, o);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}

/* The first loop that takes over something; NULL: none does. */
static Fn *feed_one(Module *m, const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++) {
    if (f->ops.at[i].code != OP_loop) continue;
    LoopShape shape = loop_shape(&f->ops.at[i]);
    for (uint32_t k = shape.carry + shape.invariant; !shape.ninto && k < f->ops.at[i].nin; k++) {
      RowFeed feed = {.m = m, .f = f, .loop = i, .shape = shape};
      if (find_work(&feed, k)) return fed_function(&feed);
    }
  }
  return NULL;
}

void fuse_feed(Module *m) {
  bool any = false;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (!entry_trains(f) || fn_phase(f) == PHASE_late) continue;
    for (const Fn *next = f; (next = feed_one(m, next)) != NULL; any = true) f = (Fn *)next;
    if (f != m->fns.at[i]) module_replace(m, m->fns.at[i], f);
  }
  if (any) module_collect(m);
}
