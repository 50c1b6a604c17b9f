/* order: values that products read as codes in two orders (ir/codes.h), such as the gradient of a
   layer's output, which one product sums along its rows and another one along its columns. Two
   kernels round them, in blocks along one dim and in blocks along the other; one kernel that reads
   the value once takes the place of both if the target has it (ir/kernel/row_turned.h).

     before   %1 = split[A -> a0, a1] %0    %3 = kernel @rows, %1
              %2 = split[B -> b0, b1] %0    %4 = kernel @columns, %2
     after    %1 = split[A -> a0, a1] %0    %2 = split[B -> c0, c1] %1
              %3, %4 = kernel @both, %2, and views in which readers find the results as before

   Runs when layouts and codes are known. Only kernels that round their one operand and do nothing
   else. Must not: change a number or a layout. */
#include "ir/codes.h"
#include "ir/kernel/row_turned.h"
#include "ir/made.h"
#include "order.h"
#include <math.h>

typedef struct Rounder {  /* a kernel that rounds its operand to codes */
  const Op *call, *split; /* split: the view that it reads, NULL: a value as it is */
  ValueId base;
  Str dim, outer, in; /* dim of base, cut into outer and in; outer NULL: `in` is a dim of base */
  Codes codes;
} Rounder;

typedef struct Both {
  Rounder turned, along; /* along: the numbers of a block are neighbours in memory */
  Str outer, in;         /* the blocks of `along`, by names that both have */
  Value half, operand;   /* what the kernel reads: with blocks of `turned`, then with all */
  Value first, second;   /* what it writes */
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

static bool only_rounds(const Op *call, Codes *codes, Str *in) {
  const Fn *k = call->code == OP_kernel ? call->callee : NULL;
  if (!k || k->args.n != 1 || k->results.n != 1 || !kernel_codes(k, 1, codes)) return false;
  const Op *quantize = codes_quantize(k, k->results.at[0]), *most = codes_most(k, k->results.at[0]);
  const Op *cast = quantize ? value_def(k, quantize->in[0]) : NULL;
  bool plain = cast && cast->code == OP_cast && cast->in[0] == k->args.at[0] && most &&
               most->group[0].nfrom == 1 && is_size(k, most->in[0], cast->out);
  if (plain) *in = most->group[0].from[0];
  return plain && type_size(value_type(k, k->args.at[0]), *in) == EIGHTS_BLOCK;
}

static bool rounding_of(const Fn *f, const Op *call, Rounder *out) {
  *out = (Rounder){.call = call};
  if (!only_rounds(call, &out->codes, &out->in)) return false;
  const Op *split = value_def(f, call->in[0]);
  out->base = call->in[0], out->dim = out->in;
  if (!split || split->code != OP_split || split->ngroups != 1) return true;
  const Group *group = &split->group[0];
  if (group->nfrom != 1 || group->nto != 2 || group->to[1] != out->in) return true;
  out->split = split, out->base = split->in[0];
  out->dim = group->from[0], out->outer = group->to[0];
  return true;
}

/* Both round one value: where one kernel reads a split of it as it is, that is the value. */
static bool same_base(Rounder *a, Rounder *b) {
  Rounder *inner = a->base == b->call->in[0] ? b : b->base == a->call->in[0] ? a : NULL;
  if (a->base != b->base && inner)
    inner->base = inner->call->in[0], inner->split = NULL, inner->dim = inner->in,
    inner->outer = NULL;
  return a->base == b->base && a->dim != b->dim;
}

/* ---- the kernel of both ---- */

/* v with a dim cut in two. */
static Value cut(const Value *v, Str dim, Str outer, Str in) {
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

static Value plain(const Value *v) {
  Value made = {.type = v->type, .storage.ordered = true};
  memcpy(made.storage.stride, v->storage.stride, sizeof made.storage.stride);
  return made;
}

static Value renamed(const Both *both, const Value *v) {
  Value made = plain(v);
  for (int i = 0; i < made.type.rank && both->along.outer; i++)
    if (made.type.axis[i].dim == both->along.outer) made.type.axis[i].dim = both->outer;
    else if (made.type.axis[i].dim == both->along.in) made.type.axis[i].dim = both->in;
  return made;
}

static void lay_out(Both *both, const Fn *f) {
  const Rounder *turned = &both->turned, *along = &both->along;
  const Value *base = &f->values.at[turned->base], *first = &f->values.at[turned->call->out];
  Value second = renamed(both, &f->values.at[along->call->out]);
  both->half = turned->outer ? cut(base, turned->dim, turned->outer, turned->in) : plain(base);
  both->operand = both->half, both->first = plain(first), both->second = second;
  if (turned->outer) both->second = cut(&second, turned->dim, turned->outer, turned->in);
  if (!along->outer) return;
  both->operand = cut(&both->half, along->dim, both->outer, both->in);
  both->first = cut(first, along->dim, both->outer, both->in);
}

static void lay(Fn *k, ValueId v, const Value *as) {
  k->values.at[v].type = as->type, k->values.at[v].storage = as->storage;
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

static Fn *kernel_of(Module *m, const Both *both) {
  const Fn *old = both->turned.call->callee;
  Fn *k = fn_new(m, FN_KERNEL, old->name);
  k->loc = old->loc;
  attr_set_str(m, &k->attrs, ATTR_family, intern(m->ctx->names, "row"));
  ValueId v = fn_arg(m, k, both->operand.type);
  lay(k, v, &both->operand);
  ValueId x = ir_cast(m, k, v, ELEM_f32, k->loc), size = ir_unary(m, k, OP_abs, x, k->loc);
  ValueId most = ir_const(m, k, ELEM_f32, INFINITY, k->loc);
  size = ir_where(m, k, ir_binary(m, k, OP_lt, size, most, k->loc), size, most, k->loc);
  add_result(m, k, x, size, both->turned.in, &both->turned.codes, &both->first);
  add_result(m, k, x, size, both->in, &both->along.codes, &both->second);
  kernel_add_codes(m, k, 1, &both->turned.codes);
  kernel_add_codes(m, k, 2, &both->along.codes);
  return k;
}

static bool has_room(const Fn *f, const Both *both) {
  const Type *t = value_type(f, both->turned.base);
  int more = !!both->turned.outer + !!both->along.outer;
  bool free = !both->along.outer || (type_find(t, both->outer) < 0 && type_find(t, both->in) < 0);
  return free && t->rank + more <= MAX_RANK && both->turned.outer != both->outer;
}

/* false: the target has no kernel of both. */
static bool both_of(Module *m, const Fn *f, const Op *a, const Op *b, Both *out) {
  *out = (Both){0};
  Rounder one, two;
  TurnedRows rows;
  if (!rounding_of(f, a, &one) || !rounding_of(f, b, &two) || !same_base(&one, &two)) return false;
  const Value *base = &f->values.at[one.base];
  bool first = base->storage.stride[type_find(&base->type, one.dim)] == 1;
  out->along = first ? one : two, out->turned = first ? two : one;
  out->outer = name_made(m, "eights'block1"), out->in = name_made(m, "eights'in1");
  if (!out->along.outer) out->in = out->along.in;
  if (!has_room(f, out)) return false;
  lay_out(out, f);
  out->kernel = kernel_of(m, out);
  return row_turned(m, out->kernel, &rows) && rows.other_most;
}

/* ---- the function ---- */

typedef struct Joining {
  Module *m;
  Rebuild rebuild;
  const Both **both; /* by op: what it is part of */
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

static ValueId split(Joining *joining, ValueId v, Str dim, Str outer, Str in, const Type *t,
                     Loc loc) {
  Str to[] = {outer, in};
  Group group = group_map(1, &dim, 2, to);
  return view(joining, OP_split, v, &group, t, loc);
}

static ValueId merge(Joining *joining, ValueId v, Str outer, Str in, Str dim, const Type *t,
                     Loc loc) {
  Str from[] = {outer, in};
  Group group = group_map(2, from, 1, &dim);
  return view(joining, OP_merge, v, &group, t, loc);
}

static void write_both(Joining *joining, const Both *both) {
  const Rounder *turned = &both->turned, *along = &both->along;
  Rebuild *rebuild = &joining->rebuild;
  Loc loc = turned->call->loc;
  const Value *last = &rebuild->from->values.at[along->call->out];
  ValueId v = rebuild->map[turned->base];
  if (turned->outer)
    v = split(joining, v, turned->dim, turned->outer, turned->in, &both->half.type, loc);
  if (along->outer)
    v = split(joining, v, along->dim, both->outer, both->in, &both->operand.type, loc);
  Type made[] = {both->first.type, both->second.type};
  Op *call = fn_op(joining->m, rebuild->to, OP_kernel, 1, &v, 2, made, loc);
  call->callee = both->kernel;
  ValueId first = call->out, second = first + 1;
  lay(rebuild->to, first, &both->first), lay(rebuild->to, second, &both->second);
  if (along->outer)
    first = merge(joining, first, both->outer, both->in, along->dim,
                  value_type(rebuild->from, turned->call->out), loc);
  Value narrow = renamed(both, last);
  if (turned->outer)
    second = merge(joining, second, turned->outer, turned->in, turned->dim, &narrow.type, loc);
  if (along->outer) {
    Str from[] = {both->outer, both->in}, to[] = {along->outer, along->in};
    Group group = group_map(2, from, 2, to);
    second = view(joining, OP_rename, second, &group, &last->type, loc);
  }
  rebuild->map[turned->call->out] = first, rebuild->map[along->call->out] = second;
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

static void join(Joining *joining, OpId a, OpId b, const Both *both) {
  const Fn *f = joining->rebuild.from;
  Both *kept = ARENA_NEW(joining->m->arena, Both);
  *kept = *both;
  joining->both[a] = kept;
  joining->dropped[a] = joining->dropped[b] = true;
  for (int i = 0; i < 2; i++) {
    const Op *read = value_def(f, f->ops.at[i ? b : a].in[0]);
    bool alone = read && read->code == OP_split && value_uses(f, read->out) == 1;
    if (alone) joining->dropped[read - f->ops.at] = true;
  }
}

static bool find_both(Joining *joining) {
  const Fn *f = joining->rebuild.from;
  bool found = false;
  for (OpId a = 0; a < f->ops.n; a++)
    for (OpId b = a + 1; b < f->ops.n && !joining->dropped[a]; b++) {
      Both both;
      if (joining->dropped[b] || !both_of(joining->m, f, &f->ops.at[a], &f->ops.at[b], &both))
        continue;
      join(joining, a, b, &both), found = true;
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
