/* Flat values of a group: members put end to end and taken out again, buckets cut and joined. All
   of it is renaming, merging, slicing: views, where the storage allows it. */
#include "ir/made.h"
#include "ir/schedule/message.h"
#include "passes/precision/int8.h"
#include "zero.h"

static Type led_by(const ZeroGroup *group, Elem e, bool all) {
  bool rounds = all && group->rounds.dim;
  return type_of(e, rounds ? 1 : 0, &group->rounds);
}

static void push(Type *type, Str dim, int64_t size) {
  type->axis[type->rank++] = (Axis){dim, size};
}

Type zero_flat_type(const ZeroGroup *group, Elem e, bool all) {
  Type t = led_by(group, e, all);
  push(&t, group->flat, zero_padded(group));
  return t;
}

Type zero_owned_type(const Zero *zero, const ZeroGroup *group, Elem e, bool all, bool whole) {
  Type t = led_by(group, e, all);
  push(&t, group->bucket, group->buckets);
  for (int i = 0; i < group->naxes; i++)
    push(&t, group->owner[i], whole ? zero_ways(zero, group->axis[i]) : 1);
  push(&t, group->part, group->piece);
  return t;
}

static Str member_dim(const Zero *zero, const ZeroGroup *group, uint32_t i) {
  return name_made(zero->m, "%s'%u", group->flat, i);
}

/* A member with all its dims but the rounds merged into one, in the order `dims`. */
static ValueId line_up(Zero *zero, Fn *fn, const ZeroGroup *group, uint32_t i, ValueId value,
                       const Str *dims, bool all) {
  Str from[MAX_RANK], to = member_dim(zero, group, i);
  int n = 0;
  const Type *have = value_type(fn, value);
  for (int k = 0; k < group->member.at[i].param->type.rank; k++)
    if (dims[k] != group->rounds.dim && type_find(have, dims[k]) >= 0) from[n++] = dims[k];
  Type type = led_by(group, have->elem, all);
  push(&type, to, group->member.at[i].count);
  if (!n) return emit_spread(zero->m, fn, value, type, (Loc){0}); /* one number of a round */
  Group map = group_map(n, from, 1, &to);
  return emit_typed(zero->m, fn, n == 1 ? OP_rename : OP_merge, 1, &value, &map, type, (Loc){0});
}

static void param_dims(const Global *global, Str *dims) {
  for (int k = 0; k < global->type.rank; k++) dims[k] = global->type.axis[k].dim;
}

/* Elements of padding after a member. */
static int64_t gap_behind(const ZeroGroup *group, uint32_t i) {
  const ZeroMember *member = &group->member.at[i];
  return (i + 1 < group->member.n ? member[1].begin : zero_padded(group)) - member->begin -
         member->count;
}

static ValueId zeros(Zero *zero, Fn *fn, const ZeroGroup *group, Elem e, bool all, Axis a) {
  Type type = led_by(group, e, all);
  push(&type, a.dim, a.size);
  return emit_full(zero->m, fn, type, 0, (Loc){0});
}

/* Joins values one after the other, in as many steps as a list of dims needs. */
static ValueId chain(Zero *zero, Fn *fn, const ZeroGroup *group, uint32_t n, const ValueId *in,
                     const Str *name, bool all) {
  ValueId value = in[0];
  Str have = name[0];
  int64_t size = type_size(value_type(fn, value), have);
  for (uint32_t i = 1, step = 0; i < n; step++) {
    ValueId part[MAX_RANK] = {value};
    Str from[MAX_RANK] = {have};
    int k = 1;
    for (; k < MAX_RANK && i < n; k++, i++) {
      part[k] = in[i], from[k] = name[i];
      size += type_size(value_type(fn, in[i]), name[i]);
    }
    have = i < n ? name_made(zero->m, "%s'to_%u", group->flat, step) : group->flat;
    Type type = led_by(group, value_type(fn, value)->elem, all);
    push(&type, have, size);
    Group map = group_map(k, from, 1, &have);
    value = emit_typed(zero->m, fn, OP_concat, (uint32_t)k, part, &map, type, (Loc){0});
  }
  return n == 1 ? ir_rename(zero->m, fn, value, have, group->flat, (Loc){0}) : value;
}

ValueId zero_flatten(Zero *zero, Fn *fn, const ZeroGroup *group, const ValueId *member, bool all,
                     bool gradient) {
  must(group->member.n && group->piece > 0, "zero: %s is not laid out yet", group->name);
  uint32_t n = 0, most = 2 * group->member.n;
  ValueId *in = ARENA_ARRAY(zero->m->arena, ValueId, most);
  Str *name = ARENA_ARRAY(zero->m->arena, Str, most);
  for (uint32_t i = 0; i < group->member.n; i++) {
    Str dims[MAX_RANK];
    param_dims(group->member.at[i].param, dims);
    name[n] = member_dim(zero, group, i);
    in[n++] =
        line_up(zero, fn, group, i, member[i], gradient ? group->member.at[i].order : dims, all);
    if (!gap_behind(group, i)) continue;
    name[n] = member_dim(zero, group, group->member.n + i);
    Axis gap = {name[n], gap_behind(group, i)};
    in[n++] = zeros(zero, fn, group, value_type(fn, in[0])->elem, all, gap);
  }
  return chain(zero, fn, group, n, in, name, all);
}

/* A member's dims, those of the parameter without the rounds, or with them. */
static Type member_type(const ZeroGroup *group, uint32_t i, Elem e, bool all) {
  Type t = led_by(group, e, all);
  const Type *p = &group->member.at[i].param->type;
  for (int k = 0; k < p->rank; k++)
    if (p->axis[k].dim != group->rounds.dim) t.axis[t.rank++] = p->axis[k];
  return t;
}

ValueId zero_member(Zero *zero, Fn *fn, const ZeroGroup *group, uint32_t i, ValueId flat,
                    bool all) {
  must(i < group->member.n && type_find(value_type(fn, flat), group->flat) >= 0,
       "zero: member %u is taken from %%%u, which is not %s", i, flat, group->name);
  const ZeroMember *member = &group->member.at[i];
  Elem e = value_type(fn, flat)->elem;
  Str from = group->flat, to = member_dim(zero, group, i), dims[MAX_RANK];
  Type type = led_by(group, e, all), whole = member_type(group, i, e, all);
  push(&type, to, member->count);
  Group cut = group_map(1, &from, 1, &to);
  Op *op = fn_op(zero->m, fn, OP_slice, 1, &flat, 1, &type, (Loc){0});
  ValueId value = op->out;
  op_add_group(zero->m, op, cut);
  attr_set_int(zero->m, &op->attrs, ATTR_at, member->begin);
  int n = 0;
  for (int k = type.rank - 1; k < whole.rank; k++) dims[n++] = whole.axis[k].dim;
  if (!n) {
    ValueId first = ir_const(zero->m, fn, ELEM_i32, 0, (Loc){0});
    return ir_gather(zero->m, fn, value, first, to, (Loc){0});
  }
  Group map = group_map(1, &to, n, dims);
  return emit_typed(zero->m, fn, n == 1 ? OP_rename : OP_split, 1, &value, &map, whole, (Loc){0});
}

/* [buckets, owners, piece] of a group; returns their number. */
static int owned_dims(const ZeroGroup *group, Str *dims) {
  int n = 0;
  dims[n++] = group->bucket;
  for (int i = 0; i < group->naxes; i++) dims[n++] = group->owner[i];
  dims[n++] = group->part;
  return n;
}

ValueId zero_cut(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId flat, bool all) {
  must(type_size(value_type(fn, flat), group->flat) == zero_padded(group),
       "zero: %s is cut before it is padded", group->name);
  Str to[ZERO_AXES + 2];
  Group map = group_map(1, &group->flat, owned_dims(group, to), to);
  Type type = zero_owned_type(zero, group, value_type(fn, flat)->elem, all, true);
  return emit_typed(zero->m, fn, OP_split, 1, &flat, &map, type, (Loc){0});
}

ValueId zero_join(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId owned, bool all) {
  Str from[ZERO_AXES + 2];
  Group map = group_map(owned_dims(group, from), from, 1, &group->flat);
  Type type = zero_flat_type(group, value_type(fn, owned)->elem, all);
  return emit_typed(zero->m, fn, OP_merge, 1, &owned, &map, type, (Loc){0});
}

/* The dim at which a bucket begins. */
static Str row_of(const ZeroGroup *group) { return group->naxes ? group->owner[0] : group->part; }

/* A bucket has the layout [owners, piece], contiguous, and is sent as one message; sums on all
   ranks may take several, and so do the short buckets of measured groups, as rows. */
int64_t zero_messages(const Zero *zero, OpCode c, const Type *in, int64_t ways) {
  const ZeroGroup *group = NULL;
  int64_t rows = 1, bytes = type_dense_bytes(in) * (c == OP_all_gather ? ways : 1);
  for (uint32_t i = 0; i < zero->group.n; i++)
    if (type_find(in, row_of(&zero->group.at[i])) >= 0) group = &zero->group.at[i];
  if (!group) return 1;
  for (int i = 0; in->axis[i].dim != row_of(group); i++) rows *= in->axis[i].size;
  return group->measured || c == OP_all_reduce
             ? message_fewest(rows, bytes / rows, zero->bucket_bytes)
             : rows;
}

/* The type that is sent: gradients have the type of pass `wire`, and a mark for it, since `wire`
   may find that a sum over further axes is too short for 8 bits. */
static Type sent_type(const Zero *zero, OpCode c, const Type *type, bool gradient) {
  Type sent = *type;
  bool stays = c == OP_all_reduce && zero->reduce == ELEM_u8;
  if (gradient && zero->asked && !stays) sent.elem = zero->reduce;
  return sent;
}

static ValueId collective(Zero *zero, Fn *fn, OpCode c, Str dim, Str axis, ValueId value,
                          bool gradient) {
  Type type = *value_type(fn, value), sent = sent_type(zero, c, &type, gradient);
  int64_t ways = zero_ways(zero, axis), times;
  if (ways == 1) return value; /* alone on the axis: nothing is sent */
  times = zero_messages(zero, c, &sent, ways);
  if (dim && c == OP_all_gather) type.axis[type_find(&type, dim)].size *= ways;
  else if (dim) type.axis[type_find(&type, dim)].size /= ways;
  Op *op = fn_op(zero->m, fn, c, 1, &value, 1, &type, (Loc){0});
  if (dim) op_add_group(zero->m, op, group_dims(1, &dim));
  if (gradient) attr_set_int(zero->m, &op->attrs, ATTR_gradient, 1);
  attr_set_str(zero->m, &op->attrs, ATTR_axis, axis);
  attr_set_int(zero->m, &op->attrs, ATTR_ranks, ways);
  if (times > 1) attr_set_int(zero->m, &op->attrs, ATTR_messages, times);
  return op->out;
}

ValueId zero_sum(Zero *zero, Fn *fn, Str axis, ValueId value) {
  return collective(zero, fn, OP_all_reduce, NULL, axis, value, false);
}

ValueId zero_sum_gradient(Zero *zero, Fn *fn, Str axis, ValueId value) {
  return collective(zero, fn, OP_all_reduce, NULL, axis, value, true);
}

ValueId zero_reduce(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v) {
  must(type_find(value_type(fn, v), group->part) >= 0,
       "zero: %%%u of %s is not cut in pieces of %s", v, fn->name, group->name);
  for (int i = 0; i < group->naxes; i++)
    v = group->stage ? collective(zero, fn, OP_reduce_scatter, group->owner[i], group->axis[i], v,
                                  ATTR_gradient)
                     : zero_sum_gradient(zero, fn, group->axis[i], v);
  return v;
}

static ValueId gather(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v) {
  for (int i = group->naxes - 1; i >= 0; i--)
    v = collective(zero, fn, OP_all_gather, group->owner[i], group->axis[i], v, false);
  return v;
}

ValueId zero_gather(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v) {
  must(type_find(value_type(fn, v), group->part) >= 0, "zero: %%%u of %s is no piece of %s", v,
       fn->name, group->name);
  return gather(zero, fn, group, v);
}

bool zero_packs(const Zero *zero, const ZeroGroup *group) {
  return group->stage == 3 && zero->int8_weights && group->ways > 1;
}

/* Pieces are whole blocks. */
ValueId zero_pack(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v, ValueId *scale) {
  Int8 k = {zero->m, fn, zero->unit, (Loc){0}};
  Int8Packed p = int8_pack(&k, int8_blocks(&k, v, group->part));
  *scale = p.scale;
  return p.codes;
}

ValueId zero_gather_packed(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId codes,
                           ValueId scale) {
  Int8 k = {zero->m, fn, zero->unit, (Loc){0}};
  Int8Packed p = {gather(zero, fn, group, codes), gather(zero, fn, group, scale)};
  return ir_cast(zero->m, fn, int8_line(&k, int8_unpack(&k, p), group->part),
                 group->param->type.elem, (Loc){0});
}

/* The coordinate of this rank is a number that the runtime sets. */
static ValueId coordinate(Zero *zero, Fn *fn, Str axis) {
  Str name = made_coordinate(zero->m, axis);
  Global *global = module_global(zero->m, name);
  if (!global)
    global = module_add_global(zero->m, GLOBAL_SCALAR, name, type_scalar(ELEM_i32), (Loc){0});
  return ir_load(zero->m, fn, global, (Loc){0});
}

ValueId zero_own(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId owned) {
  Type type = zero_owned_type(
      zero, group, value_type(fn, owned)->elem,
      group->rounds.dim && type_find(value_type(fn, owned), group->rounds.dim) >= 0, false);
  ValueId value = owned;
  for (int i = 0; i < group->naxes; i++)
    value = ir_gather(zero->m, fn, value, coordinate(zero, fn, group->axis[i]), group->owner[i],
                      (Loc){0});
  return emit_spread(zero->m, fn, value, type, (Loc){0});
}

/* v where a dim of owners is at this rank, else 0. */
static ValueId only_own(Zero *zero, Fn *fn, Str axis, Str owner, ValueId value) {
  Type type = *value_type(fn, value);
  Axis owners = {owner, zero_ways(zero, axis)};
  Group dims = group_dims(1, &owner);
  ValueId at = emit_typed(zero->m, fn, OP_iota, 0, NULL, &dims, type_of(ELEM_i32, 1, &owners),
                          (Loc){0}),
          here = ir_binary(zero->m, fn, OP_eq, at, coordinate(zero, fn, axis), (Loc){0}),
          in[3] = {emit_spread(zero->m, fn, here, type_with_elem(type, ELEM_bool), (Loc){0}), value,
                   emit_full(zero->m, fn, type, 0, (Loc){0})};
  return emit_typed(zero->m, fn, OP_where, 3, in, NULL, type, (Loc){0});
}

/* By a sum in which all other ranks have 0: exact, and of one buffer, where a gather would put
   rows of single numbers together. */
ValueId zero_numbers(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId v) {
  if (group->ways == 1) return v;
  Type type = *value_type(fn, v);
  for (int i = 0; i < group->naxes; i++)
    type.axis[type_find(&type, group->owner[i])].size = zero_ways(zero, group->axis[i]);
  v = ir_reduce(zero->m, fn, OP_sum, v, group->naxes, group->owner, (Loc){0});
  v = emit_spread(zero->m, fn, v, type, (Loc){0});
  for (int i = 0; i < group->naxes; i++) v = only_own(zero, fn, group->axis[i], group->owner[i], v);
  for (int i = 0; i < group->naxes; i++) v = zero_sum(zero, fn, group->axis[i], v);
  return v;
}
