/* order: values that products read as codes in two orders (ir/codes.h), such as the gradient of a
   layer's output, which one product sums along its rows and another one along its columns. Two
   kernels round them, in blocks along one dim and in blocks along the other; one kernel that reads
   the value once takes the place of both if the target has it (ir/kernel/row_turned.h).

     before   %2 = kernel @rows, %1               %3 = split[A -> a0, a1] %1
              %4 = kernel @columns, %3
     after    %2, %4 = kernel @both, %1           and views in which readers find %4 as before

   @rows may compute the value that it rounds, if nothing else reads it but @columns: then the value
   is in no buffer. Inside of @both it is split as @columns has it. Runs when layouts and codes are
   known. Must not: change a number or a layout. */
#include "ir/codes.h"
#include "ir/kernel/row_turned.h"
#include "ir/made.h"
#include "order.h"
#include <math.h>

typedef struct Rounder { /* a kernel that rounds one value to codes, in blocks along a dim */
  const Op *call;
  uint32_t result; /* the codes */
  ValueId rounded; /* in the kernel: the value in bf16 */
  Str in;          /* the dim */
  Codes codes;
} Rounder;

typedef struct CutView { /* of a dim, in a view; outer NULL: the view is the value as it is */
  const Op *op;
  Str dim, outer, in;
} CutView;

typedef struct Both {
  Rounder turned, along; /* along: the numbers of a block are neighbours in memory */
  CutView columns, rows; /* how `turned` and `along` see the value */
  ValueId kept;          /* of the function: the value if `along` makes it, else NO_VALUE */
  Str outer, in;         /* the blocks of `turned`, by names that `along` has not */
  Value first, second;   /* the results */
  Fn *kernel;
} Both;

/* ---- kernels that round ---- */

/* |x|, or infinity if it is not finite: pass `quantize` takes the largest of these. */
static bool is_size(const Fn *k, ValueId v, ValueId x) {
  const Op *where = value_def(k, v);
  if (!where || where->code != OP_where) return false;
  const Op *lt = value_def(k, where->in[0]), *size = value_def(k, where->in[1]),
           *most = value_def(k, where->in[2]);
  return lt && lt->code == OP_lt && lt->in[0] == where->in[1] && lt->in[1] == where->in[2] &&
         size && size->code == OP_abs && size->in[0] == x && most && most->code == OP_const &&
         isinf(attr_float(&most->attrs, ATTR_value, 0));
}

static uint32_t reductions(const Fn *k) {
  uint32_t n = 0;
  EACH_OP (k, o) n += op_family(o->code) == FAMILY_REDUCE || op_family(o->code) == FAMILY_SCAN;
  return n;
}

static bool rounder_of(const Op *call, Rounder *out) {
  const Fn *k = call->code == OP_kernel ? call->callee : NULL;
  *out = (Rounder){.call = call};
  if (!k || !kernel_has_codes(k) || reductions(k) != 1) return false;
  while (out->result < k->results.n && !kernel_codes(k, k->args.n + out->result, &out->codes))
    out->result++;
  if (out->result == k->results.n) return false;
  ValueId v = k->results.at[out->result];
  const Op *most = codes_most(k, v),
           *cast = most ? value_def(k, codes_quantize(k, v)->in[0]) : NULL;
  if (!cast || cast->code != OP_cast || most->group[0].nfrom != 1) return false;
  out->rounded = cast->in[0], out->in = most->group[0].from[0];
  return value_type(k, out->rounded)->elem == ELEM_bf16 && is_size(k, most->in[0], cast->out) &&
         type_size(value_type(k, out->rounded), out->in) == EIGHTS_BLOCK;
}

static bool reads_it(const Rounder *rounder) {
  const Fn *k = rounder->call->callee;
  return k->args.n == 1 && k->results.n == 1 && rounder->rounded == k->args.at[0];
}

/* The result of the function that is the value which the kernel computes and rounds. */
static ValueId makes_it(const Rounder *rounder) {
  const Fn *k = rounder->call->callee;
  bool two = k->results.n == 2 && k->results.at[!rounder->result] == rounder->rounded;
  return two ? rounder->call->out + !rounder->result : NO_VALUE;
}

/* ---- the value that both round ---- */

/* A view that cuts a dim into blocks and what is in them, or its inverse. */
static CutView cut_of(const Fn *f, ValueId v, OpCode code, Str in) {
  const Op *o = value_def(f, v);
  if (!o || o->code != code || o->ngroups != 1) return (CutView){.dim = in, .in = in};
  const Group *group = &o->group[0];
  const Str *whole = code == OP_split ? group->from : group->to,
            *parts = code == OP_split ? group->to : group->from;
  bool cuts = group->nfrom + group->nto == 3 && (code == OP_split ? group->nto : group->nfrom) == 2;
  if (!cuts || parts[1] != in) return (CutView){.dim = in, .in = in};
  return (CutView){o, whole[0], parts[0], in};
}

static ValueId seen(const CutView *cut, ValueId v) { return cut->op ? cut->op->in[0] : v; }

/* A kernel that reads it, and one that reads it along rows. */
static bool both_read(const Fn *f, Both *both) {
  ValueId a = both->turned.call->in[0], b = both->along.call->in[0];
  both->columns = cut_of(f, a, OP_split, both->turned.in);
  both->rows = cut_of(f, b, OP_split, both->along.in);
  if (seen(&both->columns, a) == b)
    both->rows = (CutView){.dim = both->along.in, .in = both->along.in};
  else if (seen(&both->rows, b) == a)
    both->columns = (CutView){.dim = both->turned.in, .in = both->turned.in};
  return seen(&both->columns, a) == seen(&both->rows, b) && both->columns.dim != both->rows.dim;
}

/* .. and one that makes it for the first alone. */
static bool one_makes(const Fn *f, Both *both) {
  ValueId v = both->turned.call->in[0];
  both->columns = cut_of(f, v, OP_split, both->turned.in);
  if (both->columns.op && value_uses(f, v) != 1) return false;
  v = seen(&both->columns, v);
  both->rows = cut_of(f, v, OP_merge, both->along.in);
  if (both->rows.op && value_uses(f, v) != 1) return false;
  v = both->kept = seen(&both->rows, v);
  return v == makes_it(&both->along) && value_uses(f, v) == 1 &&
         both->columns.dim != both->rows.dim;
}

/* ---- the kernel of both ---- */

static Value plain(const Value *v) {
  Value made = {.type = v->type, .storage.ordered = true};
  memcpy(made.storage.stride, v->storage.stride, sizeof made.storage.stride);
  return made;
}

/* v with a dim cut in two. */
static Value split_value(const Value *v, Str dim, Str outer, Str in) {
  Value made = {.type = {.elem = v->type.elem, .tier = v->type.tier}, .storage.ordered = true};
  for (int i = 0; i < v->type.rank; i++) {
    Axis axis = v->type.axis[i];
    int64_t stride = v->storage.stride[i];
    if (axis.dim == dim) {
      made.storage.stride[made.type.rank] = stride * EIGHTS_BLOCK;
      made.type.axis[made.type.rank++] = (Axis){outer, axis.size / EIGHTS_BLOCK};
      axis = (Axis){in, EIGHTS_BLOCK};
    }
    made.storage.stride[made.type.rank] = stride;
    made.type.axis[made.type.rank++] = axis;
  }
  return made;
}

/* The result of `turned` by the names of the blocks that the kernel of both has. */
static Value renamed(const Both *both, const Value *v) {
  Value made = plain(v);
  for (int i = 0; i < made.type.rank && both->columns.outer; i++)
    if (made.type.axis[i].dim == both->columns.outer) made.type.axis[i].dim = both->outer;
    else if (made.type.axis[i].dim == both->columns.in) made.type.axis[i].dim = both->in;
  return made;
}

static void lay_out(Both *both, const Fn *f) {
  const Rounder *along = &both->along;
  const CutView *columns = &both->columns, *rows = &both->rows;
  Value first = renamed(both, &f->values.at[both->turned.call->out]);
  const Value *second = &f->values.at[along->call->out + along->result];
  both->first = rows->outer ? split_value(&first, rows->dim, rows->outer, rows->in) : first;
  both->second =
      columns->outer ? split_value(second, columns->dim, both->outer, both->in) : plain(second);
}

static void lay(Fn *k, ValueId v, const Value *as) {
  k->values.at[v].type = as->type, k->values.at[v].storage = as->storage;
}

static void need(const Fn *k, ValueId v, bool *needed) {
  const Op *o = value_def(k, v);
  if (!o || needed[v]) return;
  for (uint32_t i = 0; i < o->nout; i++) needed[o->out + i] = true;
  for (uint32_t i = 0; i < o->nin; i++) need(k, o->in[i], needed);
}

/* The value as kernel `old` makes or reads it. */
static ValueId copy_value(Module *m, Fn *k, const Fn *old, ValueId v) {
  ValueId *map = value_map(m, old);
  bool *needed = ARENA_ARRAY(m->arena, bool, old->values.n + 1);
  need(old, v, needed);
  for (uint32_t i = 0; i < old->args.n; i++) {
    map[old->args.at[i]] = fn_arg(m, k, *value_type(old, old->args.at[i]));
    lay(k, map[old->args.at[i]], &old->values.at[old->args.at[i]]);
  }
  EACH_OP (old, o)
    if (needed[o->out]) fn_clone_op(m, k, old, o, map);
  return map[v];
}

static void add_result(Module *m, Fn *k, ValueId x, ValueId size, Str in, const Codes *codes,
                       const Value *as) {
  ValueId most = ir_reduce(m, k, OP_rmax, size, 1, &in, k->loc);
  ValueId v = ir_binary(m, k, OP_quantize, x, most, k->loc);
  attr_set_str(m, &vec_last(k->ops).attrs, ATTR_format, intern(m->ctx->names, codes->format->name));
  v = ir_cast(m, k, v, ELEM_bf16, k->loc);
  fn_result(m, k, v);
  lay(k, v, as);
}

static ValueId split(Module *m, Fn *f, ValueId v, Str dim, Str outer, Str in, Loc loc) {
  Str to[] = {outer, in};
  Group group = group_map(1, &dim, 2, to);
  const Value *from = &f->values.at[v];
  Type t = split_value(from, dim, outer, in).type;
  return emit_typed(m, f, OP_split, 1, &v, &group, t, loc);
}

static Fn *kernel_of(Module *m, const Both *both) {
  const Fn *old = both->along.call->callee;
  Fn *k = fn_new(m, FN_KERNEL, old->name);
  k->loc = old->loc;
  attr_set_str(m, &k->attrs, ATTR_family, intern(m->ctx->names, "row"));
  ValueId v = copy_value(m, k, old, both->along.rounded);
  if (both->columns.outer) v = split(m, k, v, both->columns.dim, both->outer, both->in, k->loc);
  ValueId x = ir_cast(m, k, v, ELEM_f32, k->loc), size = ir_unary(m, k, OP_abs, x, k->loc);
  ValueId most = ir_const(m, k, ELEM_f32, INFINITY, k->loc);
  size = ir_where(m, k, ir_binary(m, k, OP_lt, size, most, k->loc), size, most, k->loc);
  add_result(m, k, x, size, both->in, &both->turned.codes, &both->first);
  add_result(m, k, x, size, both->along.in, &both->along.codes, &both->second);
  kernel_add_codes(m, k, k->args.n, &both->turned.codes);
  kernel_add_codes(m, k, k->args.n + 1, &both->along.codes);
  return k;
}

/* false: the target has no kernel of both. */
static bool has_kernel(Module *m, const Fn *f, Both *both) {
  TurnedRows rows;
  const Type *t = value_type(both->along.call->callee, both->along.rounded);
  both->outer = name_made(m, "eights'block1"), both->in = name_made(m, "eights'in1");
  if (!both->columns.outer) both->in = both->columns.in;
  else if (t->rank == MAX_RANK || type_find(t, both->outer) >= 0 || type_find(t, both->in) >= 0)
    return false;
  if (type_find(t, both->columns.dim) < 0) return false;
  lay_out(both, f);
  both->kernel = kernel_of(m, both);
  return row_turned(m, both->kernel, &rows) && rows.other_most;
}

static bool both_of(Module *m, const Fn *f, const Rounder *turned, const Rounder *along,
                    Both *out) {
  *out = (Both){.turned = *turned, .along = *along, .kept = NO_VALUE};
  if (!reads_it(turned)) return false;
  bool same = reads_it(along) ? both_read(f, out) : one_makes(f, out);
  return same && has_kernel(m, f, out);
}

/* ---- the function ---- */

typedef struct Joining {
  Module *m;
  Rebuild rebuild;
  const Both **both; /* by op: what it is part of, the first one of it */
  bool *dropped;     /* by op */
} Joining;

static ValueId view(Joining *joining, OpCode code, ValueId v, const Group *group, const Type *t,
                    Loc loc) {
  Fn *to = joining->rebuild.to;
  ValueId made = emit_typed(joining->m, to, code, 1, &v, group, *t, loc);
  if (!layout_view(to, &vec_last(to->ops), 0, &to->values.at[made]))
    bug("order: a block of 8 bits in %s has no strides", to->name);
  return made;
}

static ValueId merge(Joining *joining, ValueId v, Str outer, Str in, Str dim, const Type *t,
                     Loc loc) {
  Str from[] = {outer, in};
  Group group = group_map(2, from, 1, &dim);
  return view(joining, OP_merge, v, &group, t, loc);
}

/* A view of a value that has become a view is one of that value's buffer. */
static void copy_op(Joining *joining, const Op *o) {
  const Op *made = rebuild_op(&joining->rebuild, o);
  Fn *to = joining->rebuild.to;
  for (uint32_t i = 0; i < made->nout; i++) {
    Storage *storage = &to->values.at[made->out + i].storage;
    if (storage->view != VIEW_OF) continue;
    const Storage *base = &to->values.at[storage->base].storage;
    if (base->view == VIEW_OF) storage->offset += base->offset, storage->base = base->base;
  }
}

/* The call, whose operand may be a view that is only made later. */
static const Op *call_both(Joining *joining, const Both *both) {
  Rebuild *rebuild = &joining->rebuild;
  const Op *along = both->along.call;
  if (both->rows.op && both->kept == NO_VALUE && rebuild->map[along->in[0]] == NO_VALUE) {
    copy_op(joining, both->rows.op);
    joining->dropped[both->rows.op - rebuild->from->ops.at] = true;
  }
  ValueId *in = ARENA_ARRAY(joining->m->arena, ValueId, along->nin + 1);
  for (uint32_t i = 0; i < along->nin; i++) in[i] = rebuild->map[along->in[i]];
  Type made[] = {both->first.type, both->second.type};
  Op *call = fn_op(joining->m, rebuild->to, OP_kernel, along->nin, in, 2, made, along->loc);
  call->callee = both->kernel;
  lay(rebuild->to, call->out, &both->first), lay(rebuild->to, call->out + 1, &both->second);
  return call;
}

static void write_both(Joining *joining, const Both *both) {
  const Op *call = call_both(joining, both);
  const CutView *columns = &both->columns, *rows = &both->rows;
  Rebuild *rebuild = &joining->rebuild;
  ValueId first = call->out, second = first + 1, turned = both->turned.call->out,
          along = both->along.call->out + both->along.result;
  Loc loc = call->loc;
  Value other = renamed(both, &rebuild->from->values.at[turned]);
  if (rows->outer)
    first = merge(joining, first, rows->outer, rows->in, rows->dim, &other.type, loc);
  if (columns->outer) {
    Str from[] = {both->outer, both->in}, to[] = {columns->outer, columns->in};
    Group group = group_map(2, from, 2, to);
    first = view(joining, OP_rename, first, &group, value_type(rebuild->from, turned), loc);
    second = merge(joining, second, both->outer, both->in, columns->dim,
                   value_type(rebuild->from, along), loc);
  }
  rebuild->map[turned] = first, rebuild->map[along] = second;
}

static void drop_view(Joining *joining, const Op *o) {
  const Fn *f = joining->rebuild.from;
  if (o && value_uses(f, o->out) == 1) joining->dropped[o - f->ops.at] = true;
}

static void join(Joining *joining, OpId turned, OpId along, const Both *both) {
  Both *kept = ARENA_NEW(joining->m->arena, Both);
  *kept = *both;
  bool reads = both->kept == NO_VALUE;
  joining->both[reads && turned < along ? turned : along] = kept;
  joining->dropped[turned] = joining->dropped[along] = true;
  drop_view(joining, both->columns.op);
  if (!reads) drop_view(joining, both->rows.op);
}

static bool find_both(Joining *joining) {
  const Fn *f = joining->rebuild.from;
  Rounder *rounder = ARENA_ARRAY(joining->m->arena, Rounder, f->ops.n + 1);
  bool *is = ARENA_ARRAY(joining->m->arena, bool, f->ops.n + 1), found = false;
  for (OpId i = 0; i < f->ops.n; i++) is[i] = rounder_of(&f->ops.at[i], &rounder[i]);
  for (OpId a = 0; a < f->ops.n; a++)
    for (OpId b = 0; b < f->ops.n && is[a]; b++) {
      Both both;
      if (a == b || !is[b] || !both_of(joining->m, f, &rounder[a], &rounder[b], &both)) continue;
      join(joining, a, b, &both);
      is[a] = is[b] = false, found = true;
    }
  return found;
}

Fn *order_turned(Module *m, Fn *f, FnVec *made) {
  Joining joining = {m, rebuild_begin(m, f), ARENA_ARRAY(m->arena, const Both *, f->ops.n + 1),
                     ARENA_ARRAY(m->arena, bool, f->ops.n + 1)};
  if (!order_multiplies_codes(m) || !find_both(&joining)) return NULL;
  for (uint32_t i = 0; i < f->args.n; i++)
    joining.rebuild.to->values.at[joining.rebuild.map[f->args.at[i]]] = f->values.at[f->args.at[i]];
  for (OpId i = 0; i < f->ops.n; i++) {
    if (joining.both[i]) {
      write_both(&joining, joining.both[i]);
      vec_push(m->arena, *made, joining.both[i]->kernel);
    }
    if (!joining.dropped[i]) copy_op(&joining, &f->ops.at[i]);
  }
  rebuild_results(&joining.rebuild);
  return joining.rebuild.to;
}
