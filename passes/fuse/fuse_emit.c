/* fuse, last part: writes a function with kernels in place of ops, and the kernel functions.

   A kernel's results are the stored values of its group. Its ops are those that the results need:
   the ops of the group, and a copy of every expression that is computed while it is read.
   Everything else is an argument, in the order in which it is first read. Loads come first, then
   groups in their order, each after the views that it reads, then stores. */
#include "fuse.h"

typedef struct FuseWriter {
  Fuse *u;
  Fn *to;
  ValueId *map; /* values of u->f in `to` */
  uint32_t kernels;
} FuseWriter;

static const FuseValue *info(const Fuse *u, ValueId v) { return &u->value[v]; }

/* Is v computed inside group g (its own value, an expression, one that gets its buffer only later)?
   Otherwise it is an argument. */
static bool inside(const Fuse *fuse, uint32_t g, ValueId value) {
  const FuseValue *x = info(fuse, value);
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

static void find_args(FuseKernel *kernel, ValueId value) {
  if (kernel->seen[value]) return;
  kernel->seen[value] = true;
  if (!inside(kernel->u, kernel->group, value)) {
    vec_push(kernel->u->arena, kernel->args, value);
    return;
  }
  const Op *op = value_def(kernel->u->f, value);
  for (uint32_t i = 0; i < op->nin; i++) find_args(kernel, op->in[i]);
}

/* A sum is known at the present row only; a read at other rows stays a gather and is not a pick. */
static bool picks(const FuseKernel *kernel, const Op *op) {
  return !kernel->moved[op->out] && fuse_picks(kernel->u, kernel->group, op);
}

static void mark_moved(FuseKernel *kernel, ValueId value, bool moved) {
  const Op *op = value_def(kernel->u->f, value);
  if (!inside(kernel->u, kernel->group, value) ||
      (kernel->seen[value] && kernel->moved[value] >= moved))
    return;
  kernel->seen[value] = true, kernel->moved[value] |= moved;
  bool moves =
      fuse_moves(op->code) && !picks(kernel, op) && !fuse_packs(kernel->u, kernel->group, op);
  for (uint32_t i = 0; i < op->nin; i++)
    mark_moved(kernel, op->in[i], kernel->moved[value] || moves);
}

static void build_pick(FuseKernel *kernel, const Op *op) {
  Module *module = kernel->u->m;
  ValueId value = kernel->map[op->in[0]], i = kernel->map[op->in[1]];
  Str dim = op->group[0].from[0];
  Axis axis = {dim, type_size(value_type(kernel->fn, value), dim)};
  ValueId at = ir_cast(module, kernel->fn, ir_iota(module, kernel->fn, axis, op->loc),
                       value_type(kernel->fn, i)->elem, op->loc);
  ValueId here = ir_binary(module, kernel->fn, OP_eq,
                           ir_expand(module, kernel->fn, i, 1, &axis, op->loc), at, op->loc);
  ValueId zero = ir_const(module, kernel->fn, value_type(kernel->fn, value)->elem, 0, op->loc);
  ValueId one = ir_where(module, kernel->fn, here, value, zero, op->loc);
  kernel->map[op->out] = ir_reduce(module, kernel->fn, OP_sum, one, 1, &dim, op->loc);
}

static void build_value(FuseKernel *kernel, ValueId value) {
  if (kernel->map[value] != NO_VALUE) return;
  const Op *op = value_def(kernel->u->f, value);
  for (uint32_t i = 0; i < op->nin; i++) build_value(kernel, op->in[i]);
  if (kernel->map[value] != NO_VALUE) return;
  if (picks(kernel, op)) build_pick(kernel, op);
  else fn_clone_op(kernel->u->m, kernel->fn, kernel->u->f, op, kernel->map);
}

static Str kernel_name(FuseWriter *writer, const FuseGroup *group) {
  const Op *anchor = &writer->u->f->ops.at[group->anchor];
  const char *what = group->kind == GROUP_elem ? "elem" : op_name(anchor->code);
  return intern_printf(writer->u->m->ctx->names, "%s.%s%u", writer->u->f->name, what,
                       ++writer->kernels);
}

static FuseKernel kernel_begin(FuseWriter *writer, uint32_t g) {
  Fuse *fuse = writer->u;
  FuseKernel kernel = {.u = fuse,
                       .group = g,
                       .fn = fn_new(fuse->m, FN_KERNEL, kernel_name(writer, &fuse->groups.at[g]))};
  kernel.map = value_map(fuse->m, fuse->f);
  kernel.seen = ARENA_ARRAY(fuse->arena, bool, fuse->f->values.n + 1);
  kernel.moved = ARENA_ARRAY(fuse->arena, bool, fuse->f->values.n + 1);
  kernel.fn->loc = fuse->f->ops.at[fuse->groups.at[g].anchor].loc;
  attr_set_str(fuse->m, &kernel.fn->attrs, ATTR_family,
               intern(fuse->m->ctx->names, group_name(fuse->groups.at[g].kind)));
  return kernel;
}

static FuseKernel kernel_function(FuseWriter *writer, uint32_t g) {
  FuseKernel kernel = kernel_begin(writer, g);
  const ValueList *results = &writer->u->groups.at[g].results;
  for (uint32_t i = 0; i < results->n; i++) find_args(&kernel, results->at[i]);
  memset(kernel.seen, 0, sizeof *kernel.seen * writer->u->f->values.n);
  for (uint32_t i = 0; i < results->n; i++) mark_moved(&kernel, results->at[i], false);
  for (uint32_t i = 0; i < kernel.args.n; i++)
    kernel.map[kernel.args.at[i]] =
        fn_arg(writer->u->m, kernel.fn, *value_type(writer->u->f, kernel.args.at[i]));
  for (uint32_t i = 0; i < results->n; i++) build_value(&kernel, results->at[i]);
  for (uint32_t i = 0; i < results->n; i++)
    fn_result(writer->u->m, kernel.fn, kernel.map[results->at[i]]);
  return kernel;
}

/* ---- the function around them ---- */

/* The value in `to` of something in a buffer; views are written when first read. */
static ValueId outside(FuseWriter *writer, ValueId value) {
  if (writer->map[value] != NO_VALUE) return writer->map[value];
  const Op *op = value_def(writer->u->f, value);
  if (!op || !(op_flags(op->code) & VIEW))
    bug("fuse: value %u of %s is read before it is made", value, writer->u->f->name);
  outside(writer, op->in[0]);
  fn_clone_op(writer->u->m, writer->to, writer->u->f, op, writer->map);
  return writer->map[value];
}

static void write_kernel(FuseWriter *writer, uint32_t g, FnVec *kernels) {
  Fuse *fuse = writer->u;
  const ValueList *results = &fuse->groups.at[g].results;
  FuseKernel kernel = kernel_function(writer, g);
  ValueId *in = ARENA_ARRAY(fuse->arena, ValueId, kernel.args.n + 1);
  Type *types = ARENA_ARRAY(fuse->arena, Type, results->n + 1);
  for (uint32_t i = 0; i < kernel.args.n; i++) in[i] = outside(writer, kernel.args.at[i]);
  for (uint32_t i = 0; i < results->n; i++) types[i] = *value_type(fuse->f, results->at[i]);
  if (results->n > MAX_RESULTS) bug("fuse: kernel %s has %u results", kernel.fn->name, results->n);
  Op *op =
      fn_op(fuse->m, writer->to, OP_kernel, kernel.args.n, in, results->n, types, kernel.fn->loc);
  op->callee = kernel.fn;
  for (uint32_t i = 0; i < results->n; i++) writer->map[results->at[i]] = op->out + i;
  vec_push(fuse->m->arena, *kernels, kernel.fn);
}

static void write_other(FuseWriter *writer, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++) outside(writer, op->in[i]);
  fn_clone_op(writer->u->m, writer->to, writer->u->f, op, writer->map);
}

static void write_group(FuseWriter *writer, uint32_t g, FnVec *kernels) {
  const FuseGroup *group = &writer->u->groups.at[g];
  if (group->kind == GROUP_LOOP) write_other(writer, &writer->u->f->ops.at[group->anchor]);
  else if (group->results.n) write_kernel(writer, g, kernels);
}

static void write_stores(FuseWriter *writer) {
  const Fn *fn = writer->u->f;
  for (OpId i = 0; i < fn->ops.n; i++)
    if (fn->ops.at[i].code == OP_store) write_other(writer, &fn->ops.at[i]);
}

/* One load for each global: later passes may let an update take over its buffer. */
static void write_loads(FuseWriter *writer) {
  const Fn *fn = writer->u->f;
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (op->code != OP_load) continue;
    for (OpId j = 0; j < i && writer->map[op->out] == NO_VALUE; j++)
      if (fn->ops.at[j].code == OP_load && fn->ops.at[j].global == op->global)
        writer->map[op->out] = writer->map[fn->ops.at[j].out];
    if (writer->map[op->out] == NO_VALUE) write_other(writer, op);
  }
}

Fn *fuse_emit(Fuse *fuse, FnVec *kernels) {
  Rebuild rebuild = rebuild_begin(fuse->m, fuse->f);
  FuseWriter writer = {.u = fuse, .to = rebuild.to, .map = rebuild.map};
  for (ValueId value = 0; value < fuse->f->values.n; value++)
    if (info(fuse, value)->where == MATERIALISED && info(fuse, value)->stored)
      vec_push(fuse->arena, fuse->groups.at[info(fuse, value)->group].results, value);
  write_loads(&writer);
  for (uint32_t g = 0; g < fuse->groups.n; g++) write_group(&writer, g, kernels);
  write_stores(&writer);
  for (uint32_t i = 0; i < fuse->f->results.n; i++)
    fn_result(fuse->m, writer.to, outside(&writer, fuse->f->results.at[i]));
  return writer.to;
}
