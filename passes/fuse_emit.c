/* fuse, last part: writes a function with kernels in place of ops, and the kernel functions.

   A kernel's results are the stored values of its group; its ops are what they need: the group's
   own values, and a copy of every expression that is computed on the way in. Everything else is an
   argument, in the order in which it is first read. Loads come first, then groups in their order
   with the views that they read in front, then stores. */
#include "passes/fuse.h"

typedef struct FuseWriter {
  Fuse *u;
  Fn *to;
  ValueId *map; /* values of u->f in `to` */
  uint32_t kernels;
} FuseWriter;

static const FuseValue *info(const Fuse *u, ValueId v) { return &u->value[v]; }

/* Is v computed inside group g (its own value, an expression, one that gets its buffer only later)?
   Otherwise it is an argument. */
static bool inside(const Fuse *u, uint32_t g, ValueId v) {
  const FuseValue *x = info(u, v);
  return x->where == INLINED || (x->where == MATERIALISED && (x->group >= g || !x->stored));
}

/* ---- kernel functions ---- */

typedef struct FuseKernel {
  Fuse *u;
  uint32_t group;
  Fn *fn;
  ValueId *map;
  bool *seen, *moved; /* moved: something reads it at other indexes than its own */
  ValueList args;
} FuseKernel;

static void find_args(FuseKernel *k, ValueId v) {
  if (k->seen[v]) return;
  k->seen[v] = true;
  if (!inside(k->u, k->group, v)) {
    vec_push(k->u->arena, k->args, v);
    return;
  }
  const Op *o = value_def(k->u->f, v);
  for (uint32_t i = 0; i < o->nin; i++) find_args(k, o->in[i]);
}

/* A sum is known at the present row only: what is read at others is no pick, but the gather that it
   was. */
static bool picks(const FuseKernel *k, const Op *o) {
  return !k->moved[o->out] && fuse_picks(k->u, k->group, o);
}

static void mark_moved(FuseKernel *k, ValueId v, bool moved) {
  const Op *o = value_def(k->u->f, v);
  if (!inside(k->u, k->group, v) || (k->seen[v] && k->moved[v] >= moved)) return;
  k->seen[v] = true, k->moved[v] |= moved;
  bool moves = fuse_moves(o->code) && !picks(k, o);
  for (uint32_t i = 0; i < o->nin; i++) mark_moved(k, o->in[i], k->moved[v] || moves);
}

static void build_pick(FuseKernel *k, const Op *o) {
  Module *m = k->u->m;
  ValueId w = k->map[o->in[0]], i = k->map[o->in[1]];
  Str dim = o->group[0].from[0];
  Axis axis = {dim, type_size(value_type(k->fn, w), dim)};
  ValueId at =
      ir_cast(m, k->fn, ir_iota(m, k->fn, axis, o->loc), value_type(k->fn, i)->elem, o->loc);
  ValueId here = ir_binary(m, k->fn, OP_eq, ir_expand(m, k->fn, i, 1, &axis, o->loc), at, o->loc);
  ValueId zero = ir_const(m, k->fn, value_type(k->fn, w)->elem, 0, o->loc);
  ValueId one = ir_where(m, k->fn, here, w, zero, o->loc);
  k->map[o->out] = ir_reduce(m, k->fn, OP_sum, one, 1, &dim, o->loc);
}

static void build_value(FuseKernel *k, ValueId v) {
  if (k->map[v] != NO_VALUE) return;
  const Op *o = value_def(k->u->f, v);
  for (uint32_t i = 0; i < o->nin; i++) build_value(k, o->in[i]);
  if (k->map[v] != NO_VALUE) return;
  if (picks(k, o)) build_pick(k, o);
  else fn_clone_op(k->u->m, k->fn, k->u->f, o, k->map);
}

static Str kernel_name(FuseWriter *w, const FuseGroup *g) {
  const Op *anchor = &w->u->f->ops.at[g->anchor];
  const char *what = g->kind == GROUP_elem ? "elem" : op_name(anchor->code);
  return intern_printf(w->u->m->ctx->names, "%s.%s%u", w->u->f->name, what, ++w->kernels);
}

static FuseKernel kernel_begin(FuseWriter *w, uint32_t g) {
  Fuse *u = w->u;
  FuseKernel k = {
      .u = u, .group = g, .fn = fn_new(u->m, FN_KERNEL, kernel_name(w, &u->groups.at[g]))};
  k.map = value_map(u->m, u->f);
  k.seen = ARENA_ARRAY(u->arena, bool, u->f->values.n + 1);
  k.moved = ARENA_ARRAY(u->arena, bool, u->f->values.n + 1);
  k.fn->loc = u->f->ops.at[u->groups.at[g].anchor].loc;
  attr_set_str(u->m, &k.fn->attrs, ATTR_family,
               intern(u->m->ctx->names, group_name(u->groups.at[g].kind)));
  return k;
}

static FuseKernel kernel_function(FuseWriter *w, uint32_t g) {
  FuseKernel k = kernel_begin(w, g);
  const ValueList *results = &w->u->groups.at[g].results;
  for (uint32_t i = 0; i < results->n; i++) find_args(&k, results->at[i]);
  memset(k.seen, 0, sizeof *k.seen * w->u->f->values.n);
  for (uint32_t i = 0; i < results->n; i++) mark_moved(&k, results->at[i], false);
  for (uint32_t i = 0; i < k.args.n; i++)
    k.map[k.args.at[i]] = fn_arg(w->u->m, k.fn, *value_type(w->u->f, k.args.at[i]));
  for (uint32_t i = 0; i < results->n; i++) build_value(&k, results->at[i]);
  for (uint32_t i = 0; i < results->n; i++) fn_result(w->u->m, k.fn, k.map[results->at[i]]);
  return k;
}

/* ---- the function around them ---- */

/* The value in `to` of something in a buffer; views are written when first read. */
static ValueId outside(FuseWriter *w, ValueId v) {
  if (w->map[v] != NO_VALUE) return w->map[v];
  const Op *o = value_def(w->u->f, v);
  if (!o || !(op_flags(o->code) & VIEW))
    bug("fuse: value %u of %s is read before it is made", v, w->u->f->name);
  outside(w, o->in[0]);
  fn_clone_op(w->u->m, w->to, w->u->f, o, w->map);
  return w->map[v];
}

static void write_kernel(FuseWriter *w, uint32_t g, FnVec *kernels) {
  Fuse *u = w->u;
  const ValueList *results = &u->groups.at[g].results;
  FuseKernel k = kernel_function(w, g);
  ValueId *in = ARENA_ARRAY(u->arena, ValueId, k.args.n + 1);
  Type *types = ARENA_ARRAY(u->arena, Type, results->n + 1);
  for (uint32_t i = 0; i < k.args.n; i++) in[i] = outside(w, k.args.at[i]);
  for (uint32_t i = 0; i < results->n; i++) types[i] = *value_type(u->f, results->at[i]);
  if (results->n > MAX_RESULTS) bug("fuse: kernel %s has %u results", k.fn->name, results->n);
  Op *o = fn_op(u->m, w->to, OP_kernel, k.args.n, in, results->n, types, k.fn->loc);
  o->callee = k.fn;
  for (uint32_t i = 0; i < results->n; i++) w->map[results->at[i]] = o->out + i;
  vec_push(u->m->arena, *kernels, k.fn);
}

static void write_other(FuseWriter *w, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++) outside(w, o->in[i]);
  fn_clone_op(w->u->m, w->to, w->u->f, o, w->map);
}

static void write_group(FuseWriter *w, uint32_t g, FnVec *kernels) {
  const FuseGroup *x = &w->u->groups.at[g];
  if (x->kind == GROUP_LOOP) write_other(w, &w->u->f->ops.at[x->anchor]);
  else if (x->results.n) write_kernel(w, g, kernels);
}

static void write_stores(FuseWriter *w) {
  const Fn *f = w->u->f;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store) write_other(w, &f->ops.at[i]);
}

/* One load for each global: later passes may let an update take over its buffer. */
static void write_loads(FuseWriter *w) {
  const Fn *f = w->u->f;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_load) continue;
    for (OpId j = 0; j < i && w->map[o->out] == NO_VALUE; j++)
      if (f->ops.at[j].code == OP_load && f->ops.at[j].global == o->global)
        w->map[o->out] = w->map[f->ops.at[j].out];
    if (w->map[o->out] == NO_VALUE) write_other(w, o);
  }
}

Fn *fuse_emit(Fuse *u, FnVec *kernels) {
  Rebuild r = rebuild_begin(u->m, u->f);
  FuseWriter w = {.u = u, .to = r.to, .map = r.map};
  for (ValueId v = 0; v < u->f->values.n; v++)
    if (info(u, v)->where == MATERIALISED && info(u, v)->stored)
      vec_push(u->arena, u->groups.at[info(u, v)->group].results, v);
  write_loads(&w);
  for (uint32_t g = 0; g < u->groups.n; g++) write_group(&w, g, kernels);
  write_stores(&w);
  for (uint32_t i = 0; i < u->f->results.n; i++)
    fn_result(u->m, w.to, outside(&w, u->f->results.at[i]));
  return w.to;
}
