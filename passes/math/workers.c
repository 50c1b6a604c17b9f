/* workers: the gradients of single workers. From the entry `step` and the bodies of its loops it
   makes another entry in which Batch is [worker, Batch / workers]. A sum over Batch keeps the dim
   of the worker as long as the ops that read it are linear. A value that `step` would store as the
   gradient of a parameter then has one slice per worker; their sum is the gradient. Everything
   else, the loss first of all, is completed by a sum over the workers where it is read.

   The analysis of micro-batches (micro_states.c) answers the same questions: which values are sums
   over Batch, and which may stay partial. If an op needs all samples of a loss at once, E0706 says
   so. Samples keep their numbers: random numbers and positions are made for [worker, Batch] with
   those that they have in Batch. Another op that names Batch itself (tokens counted) is done on
   the whole Batch, whose result is then cut; nothing is sent for that, as the ranks that cut Batch
   cut the workers alike. Must not: know the use of the gradients. */
#include "ir/made.h"
#include "workers.h"
#include <string.h>

typedef struct WorkerSite { /* one function */
  Micro *c;
  Axis worker;
  const MicroState *s; /* by value of r.from */
  Rebuild r;
  ValueId *whole; /* by value of r.from: its sum over the workers; entries only */
} WorkerSite;

/* ---- types ---- */
static void push(Type *t, Axis a) {
  must(t->rank < MAX_RANK, "workers: a value of rank %d has no room for them", t->rank);
  t->axis[t->rank++] = a;
}

static Type cut_type(const WorkerSite *site, const Type *t) {
  Type r = type_of(t->elem, 0, NULL);
  for (int i = 0; i < t->rank; i++) {
    bool batch = t->axis[i].dim == site->c->batch;
    if (batch) push(&r, site->worker);
    push(&r, batch ? (Axis){site->c->batch, site->c->part} : t->axis[i]);
  }
  return r;
}

static Type each_type(const WorkerSite *site, const Type *t) {
  Type r = type_of(t->elem, 1, &site->worker);
  for (int i = 0; i < t->rank; i++) push(&r, t->axis[i]);
  return r;
}

static Type type_in(const WorkerSite *site, const Type *t, MicroState s) {
  return s == MICRO_SLICED ? cut_type(site, t) : s == MICRO_PARTIAL ? each_type(site, t) : *t;
}

/* ---- values ---- */
static Group cut_group(const WorkerSite *site) {
  Str to[] = {site->worker.dim, site->c->batch};
  return group_map(1, &site->c->batch, 2, to);
}

static ValueId cut_batch(WorkerSite *site, ValueId v, Loc loc) {
  Group g = cut_group(site);
  Type t = cut_type(site, value_type(site->r.to, v));
  return emit_typed(site->c->m, site->r.to, OP_split, 1, &v, &g, t, loc);
}

static ValueId join_batch(WorkerSite *site, ValueId v, const Type *whole, Loc loc) {
  Str from[] = {site->worker.dim, site->c->batch};
  Group g = group_map(2, from, 1, &site->c->batch);
  return emit_typed(site->c->m, site->r.to, OP_merge, 1, &v, &g, *whole, loc);
}

static ValueId for_each(WorkerSite *site, ValueId v, Loc loc) {
  Type t = each_type(site, value_type(site->r.to, v));
  return emit_spread(site->c->m, site->r.to, v, t, loc);
}

/* v of the first worker, 0 of the others. */
static ValueId once(WorkerSite *site, ValueId v, Loc loc) {
  Module *m = site->c->m;
  Fn *f = site->r.to;
  ValueId zero = ir_const(m, f, ELEM_i32, 0, loc),
          first = ir_binary(m, f, OP_eq, ir_iota(m, f, site->worker, loc), zero, loc);
  v = for_each(site, v, loc);
  return ir_where(m, f, first, v, ir_const(m, f, value_type(f, v)->elem, 0, loc), loc);
}

/* The value of old value v once it is no longer one worker's. */
static ValueId completed(WorkerSite *site, ValueId v, Loc loc) {
  if (site->s[v] != MICRO_PARTIAL) return site->r.map[v];
  if (site->whole[v] == NO_VALUE)
    site->whole[v] =
        ir_reduce(site->c->m, site->r.to, OP_sum, site->r.map[v], 1, &site->worker.dim, loc);
  return site->whole[v];
}

/* Old value v, wanted as one term per worker. */
static ValueId as_terms(WorkerSite *site, ValueId v, Loc loc) {
  if (site->s[v] == MICRO_WHOLE) return once(site, site->r.map[v], loc);
  return site->s[v] == MICRO_ZERO ? for_each(site, site->r.map[v], loc) : site->r.map[v];
}

/* ---- ops ---- */
static bool names_batch(const WorkerSite *site, const Op *o) {
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (o->group[g].from[i] == site->c->batch) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (o->group[g].to[i] == site->c->batch) return true;
  }
  return false;
}

static Op *copy_with(WorkerSite *site, const Op *o, const ValueId *in) {
  Op *n = rebuild_op(&site->r, o);
  for (uint32_t i = 0; i < o->nin; i++) n->in[i] = in[i];
  return n;
}

/* Runs the op on the whole Batch, then cuts its result. */
static void on_whole(WorkerSite *site, const Op *o, ValueId *in) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (site->s[o->in[i]] == MICRO_SLICED)
      in[i] = join_batch(site, in[i], value_type(site->r.from, o->in[i]), o->loc);
  ValueId out = copy_with(site, o, in)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    bool cut = site->s[o->out + i] == MICRO_SLICED;
    site->r.map[o->out + i] = cut ? cut_batch(site, out + i, o->loc) : out + i;
  }
}

static bool contains_all(const WorkerSite *site, const Op *o, const ValueId *in, uint32_t big) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (!type_contains(value_type(site->r.to, in[big]), value_type(site->r.to, in[i])))
      return false;
  return true;
}

/* An element-wise op needs an operand with all dims. */
static void widen(WorkerSite *site, const Op *o, ValueId *in) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (contains_all(site, o, in, i)) return;
  for (uint32_t i = 0; i < o->nin; i++) {
    const Type *t = value_type(site->r.from, o->in[i]);
    if (!type_contains(t, value_type(site->r.from, o->out))) continue;
    in[i] = for_each(site, in[i], o->loc);
    return;
  }
}

static void copy_in_parts(WorkerSite *site, const Op *o, ValueId *in) {
  bool partial = o->nout && site->s[o->out] == MICRO_PARTIAL;
  for (uint32_t i = 0; i < o->nin && partial; i++) {
    bool zero = site->s[o->in[i]] == MICRO_ZERO && op_family(o->code) == FAMILY_STRUCT;
    if (zero) in[i] = for_each(site, in[i], o->loc);
    else if (micro_counts_once(o, site->s, i)) in[i] = once(site, in[i], o->loc);
  }
  if (partial && op_family(o->code) == FAMILY_ELEM) widen(site, o, in);
  Op *n = copy_with(site, o, in);
  for (uint32_t i = 0; i < o->nout; i++) {
    Value *v = &site->r.to->values.at[n->out + i];
    v->type = type_in(site, &v->type, site->s[o->out + i]);
  }
}

/* ---- ops that make samples ---- */
static bool makes_samples(const WorkerSite *site, const Op *o) {
  return (o->code == OP_rand || o->code == OP_iota || o->code == OP_expand) && names_batch(site, o);
}

/* Sample s of worker w is number w share + s. */
static void number_samples(WorkerSite *site, const Op *o) {
  Module *m = site->c->m;
  Fn *f = site->r.to;
  Type t = cut_type(site, value_type(site->r.from, o->out));
  ValueId share = ir_const(m, f, ELEM_i32, (double)site->c->part, o->loc),
          first = ir_binary(m, f, OP_mul, ir_iota(m, f, site->worker, o->loc), share, o->loc),
          own = ir_iota(m, f, (Axis){site->c->batch, site->c->part}, o->loc);
  site->r.map[o->out] = ir_binary(m, f, OP_add, emit_spread(m, f, own, t, o->loc), first, o->loc);
}

/* In the dims that the op makes, Batch becomes two dims; so does the stride of Batch. */
static void make_samples(WorkerSite *site, const Op *o, const ValueId *in) {
  if (o->code == OP_iota) {
    number_samples(site, o);
    return;
  }
  const Attr *was = attr_get(&o->attrs, ATTR_strides);
  Str dims[MAX_RANK];
  int64_t strides[MAX_RANK];
  int n = 0;
  for (int i = 0; i < o->group[0].nfrom; i++) {
    must(n + 1 < MAX_RANK, "workers: no room for them in %d dims", o->group[0].nfrom);
    int64_t stride = was ? was->list[i] : 0;
    bool batch = o->group[0].from[i] == site->c->batch;
    if (batch) dims[n] = site->worker.dim, strides[n++] = stride * site->c->part;
    dims[n] = o->group[0].from[i], strides[n++] = stride;
  }
  Op *made = copy_with(site, o, in);
  made->group = ARENA_NEW(site->c->m->arena, Group);
  *made->group = group_dims(n, dims);
  if (was) attr_set_ints(site->c->m, &made->attrs, ATTR_strides, n, strides);
  Value *v = &site->r.to->values.at[made->out];
  v->type = cut_type(site, &v->type);
}

static void copy_op(WorkerSite *site, const Op *o);

/* ---- loops ---- */
static Fn *body_of_workers(WorkerSite *k, const Op *loop, const MicroState *inside) {
  const Fn *f = loop->callee;
  Module *m = k->c->m;
  LoopShape shape = loop_shape(loop);
  WorkerSite b = {
      k->c, k->worker, inside, {m, f, fn_new(m, FN_BODY, f->name), value_map(m, f)}, NULL};
  b.r.to->loc = f->loc;
  for (uint32_t i = 0; i < f->args.n; i++) {
    ValueId v = f->args.at[i];
    b.r.map[v] = fn_arg(m, b.r.to, type_in(k, value_type(f, v), inside[v]));
  }
  for (uint32_t i = 0; i < f->ops.n; i++) copy_op(&b, &f->ops.at[i]);
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId v = f->results.at[i];
    bool terms = i < shape.carry && inside[f->args.at[i + 1]] == MICRO_PARTIAL;
    fn_result(m, b.r.to, terms ? as_terms(&b, v, loop->loc) : b.r.map[v]);
  }
  return b.r.to;
}

static void copy_loop(WorkerSite *site, const Op *o, ValueId *in) {
  const MicroState *inside = micro_body_states(site->c, o, site->s);
  LoopShape shape = loop_shape(o);
  for (uint32_t i = 0; i < shape.carry; i++)
    if (inside[o->callee->args.at[i + 1]] == MICRO_PARTIAL)
      in[i] = as_terms(site, o->in[i], o->loc);
  ValueId out =
      rebuild_loop(site->c->m, site->r.to, body_of_workers(site, o, inside), shape, in, o->loc)
          ->out;
  for (uint32_t i = 0; i < o->nout; i++) site->r.map[o->out + i] = out + i;
}

static bool behind_sums(const WorkerSite *site, const Op *o) {
  if (o->nout) return site->s[o->out] == MICRO_AFTER;
  return true; /* a store */
}

static void copy_op(WorkerSite *site, const Op *o) {
  ValueId *in = ARENA_ARRAY(site->c->m->arena, ValueId, o->nin + 1);
  bool sums = o->nout && site->s[o->out] == MICRO_PARTIAL;
  for (uint32_t i = 0; i < o->nin; i++)
    in[i] = behind_sums(site, o) ? completed(site, o->in[i], o->loc) : site->r.map[o->in[i]];
  if (o->code == OP_loop && !behind_sums(site, o)) copy_loop(site, o, in);
  else if (makes_samples(site, o)) make_samples(site, o, in);
  else if (o->code == OP_load || o->code == OP_store || (names_batch(site, o) && !sums))
    on_whole(site, o, in);
  else if (behind_sums(site, o)) copy_with(site, o, in);
  else copy_in_parts(site, o, in);
}

/* ---- the entry ---- */
static uint32_t gradient_of(const Module *m, const Op *o) {
  const char *of = o->code == OP_store ? made_rest(o->global->name, MADE_GRADIENT) : NULL;
  for (uint32_t g = 0; of && g < m->globals.n; g++)
    if (!strcmp(m->globals.at[g]->name, of)) return g;
  return UINT32_MAX;
}

static void take(WorkerSite *site, const Op *o, ValueId *gradient) {
  if (site->s[o->in[0]] == MICRO_AFTER) {
    Report *r = micro_report(site->c, o,
                             arena_printf(site->c->m->arena,
                                          "the gradient of `%s` cannot be split by worker",
                                          made_rest(o->global->name, MADE_GRADIENT)));
    diag_help(r, "`optim adamw` needs the gradient of all samples alone");
    site->c->failed = true;
  } else {
    *gradient = as_terms(site, o->in[0], o->loc);
  }
}

Fn *workers_entry(Module *m, const Fn *step, const char *name, int64_t batch, Axis worker,
                  ValueId *gradient, ValueId *loss) {
  Micro micro = {.m = m, .batch = intern(m->ctx->names, "Batch"), .size = batch, .linear = true};
  micro.part = batch / worker.size;
  WorkerSite site = {.c = &micro, .worker = worker, .s = micro_states(&micro, step, NULL)};
  if (micro.failed) return NULL;
  site.r = rebuild_begin(m, step);
  site.r.to->name = intern(m->ctx->names, name);
  site.whole = value_map(m, step);
  for (uint32_t i = 0; gradient && i < m->globals.n; i++) gradient[i] = NO_VALUE;
  for (uint32_t i = 0; i < step->ops.n && !micro.failed; i++) {
    const Op *o = &step->ops.at[i];
    uint32_t g = gradient ? gradient_of(m, o) : UINT32_MAX;
    if (g != UINT32_MAX) take(&site, o, &gradient[g]);
    else copy_op(&site, o);
    if (loss && o->code == OP_store && !strcmp(o->global->name, "loss"))
      *loss = completed(&site, o->in[0], o->loc);
  }
  return micro.failed ? NULL : site.r.to;
}
