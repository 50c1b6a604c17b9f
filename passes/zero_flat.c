/* Flat values of a group: members put end to end and taken out again, buckets cut and joined. All
   of it is renaming, merging, slicing: views, where the storage allows it. */
#include "ir/message.h"
#include "passes/zero.h"

static Type led_by(const ZeroGroup *g, Elem e, bool all) {
  bool rounds = all && g->rounds.dim;
  return type_of(e, rounds ? 1 : 0, &g->rounds);
}

static void push(Type *t, Str dim, int64_t size) { t->axis[t->rank++] = (Axis){dim, size}; }

static int64_t padded(const ZeroGroup *g) { return g->buckets * g->piece * g->ways; }

Type zero_flat_type(const ZeroGroup *g, Elem e, bool all) {
  Type t = led_by(g, e, all);
  push(&t, g->flat, padded(g));
  return t;
}

Type zero_owned_type(const Zero *z, const ZeroGroup *g, Elem e, bool all, bool whole) {
  Type t = led_by(g, e, all);
  push(&t, g->bucket, g->buckets);
  for (int i = 0; i < g->naxes; i++) push(&t, g->owner[i], whole ? zero_ways(z, g->axis[i]) : 1);
  push(&t, g->part, g->piece);
  return t;
}

static Str member_dim(const Zero *z, const ZeroGroup *g, uint32_t i) {
  return intern_printf(z->m->ctx->names, "%s_%u", g->flat, i);
}

/* A member with all its dims but the rounds merged into one, in the order `dims`. */
static ValueId line_up(Zero *z, Fn *f, const ZeroGroup *g, uint32_t i, ValueId v, const Str *dims,
                       bool all) {
  Str from[MAX_RANK], to = member_dim(z, g, i);
  int n = 0;
  const Type *have = value_type(f, v);
  for (int k = 0; k < g->member.at[i].param->type.rank; k++)
    if (dims[k] != g->rounds.dim && type_find(have, dims[k]) >= 0) from[n++] = dims[k];
  Type t = led_by(g, have->elem, all);
  push(&t, to, g->member.at[i].count);
  Group map = group_map(n, from, 1, &to);
  return emit_typed(z->m, f, n == 1 ? OP_rename : OP_merge, 1, &v, &map, t, (Loc){0});
}

static void param_dims(const Global *p, Str *dims) {
  for (int k = 0; k < p->type.rank; k++) dims[k] = p->type.axis[k].dim;
}

/* Elements of padding behind a member. */
static int64_t gap_behind(const ZeroGroup *g, uint32_t i) {
  const ZeroMember *m = &g->member.at[i];
  return (i + 1 < g->member.n ? m[1].begin : padded(g)) - m->begin - m->count;
}

static ValueId zeros(Zero *z, Fn *f, const ZeroGroup *g, Elem e, bool all, Axis a) {
  Type t = led_by(g, e, all);
  push(&t, a.dim, a.size);
  return emit_full(z->m, f, t, 0, (Loc){0});
}

/* One behind the other, in as many steps as a list of dims needs. */
static ValueId chain(Zero *z, Fn *f, const ZeroGroup *g, uint32_t n, const ValueId *in,
                     const Str *name, bool all) {
  ValueId v = in[0];
  Str have = name[0];
  int64_t size = type_size(value_type(f, v), have);
  for (uint32_t i = 1, step = 0; i < n; step++) {
    ValueId part[MAX_RANK] = {v};
    Str from[MAX_RANK] = {have};
    int k = 1;
    for (; k < MAX_RANK && i < n; k++, i++) {
      part[k] = in[i], from[k] = name[i];
      size += type_size(value_type(f, in[i]), name[i]);
    }
    have = i < n ? intern_printf(z->m->ctx->names, "%s_to_%u", g->flat, step) : g->flat;
    Type t = led_by(g, value_type(f, v)->elem, all);
    push(&t, have, size);
    Group map = group_map(k, from, 1, &have);
    v = emit_typed(z->m, f, OP_concat, (uint32_t)k, part, &map, t, (Loc){0});
  }
  return n == 1 ? ir_rename(z->m, f, v, have, g->flat, (Loc){0}) : v;
}

ValueId zero_flatten(Zero *z, Fn *f, const ZeroGroup *g, const ValueId *member, bool all,
                     bool gradient) {
  must(g->member.n && g->piece > 0, "zero: %s is not laid out yet", g->name);
  uint32_t n = 0, most = 2 * g->member.n;
  ValueId *in = ARENA_ARRAY(z->m->arena, ValueId, most);
  Str *name = ARENA_ARRAY(z->m->arena, Str, most);
  for (uint32_t i = 0; i < g->member.n; i++) {
    Str dims[MAX_RANK];
    param_dims(g->member.at[i].param, dims);
    name[n] = member_dim(z, g, i);
    in[n++] = line_up(z, f, g, i, member[i], gradient ? g->member.at[i].order : dims, all);
    if (!gap_behind(g, i)) continue;
    name[n] = member_dim(z, g, g->member.n + i);
    Axis gap = {name[n], gap_behind(g, i)};
    in[n++] = zeros(z, f, g, value_type(f, in[0])->elem, all, gap);
  }
  return chain(z, f, g, n, in, name, all);
}

/* A member's dims, those of the parameter without the rounds, or with them. */
static Type member_type(const ZeroGroup *g, uint32_t i, Elem e, bool all) {
  Type t = led_by(g, e, all);
  const Type *p = &g->member.at[i].param->type;
  for (int k = 0; k < p->rank; k++)
    if (p->axis[k].dim != g->rounds.dim) t.axis[t.rank++] = p->axis[k];
  return t;
}

ValueId zero_member(Zero *z, Fn *f, const ZeroGroup *g, uint32_t i, ValueId flat, bool all) {
  must(i < g->member.n && type_find(value_type(f, flat), g->flat) >= 0,
       "zero: member %u is taken from %%%u, which is not %s", i, flat, g->name);
  const ZeroMember *m = &g->member.at[i];
  Elem e = value_type(f, flat)->elem;
  Str from = g->flat, to = member_dim(z, g, i), dims[MAX_RANK];
  Type t = led_by(g, e, all), whole = member_type(g, i, e, all);
  push(&t, to, m->count);
  Group cut = group_map(1, &from, 1, &to);
  Op *o = fn_op(z->m, f, OP_slice, 1, &flat, 1, &t, (Loc){0});
  ValueId v = o->out;
  op_add_group(z->m, o, cut);
  attr_set_int(z->m, &o->attrs, ATTR_at, m->begin);
  int n = 0;
  for (int k = t.rank - 1; k < whole.rank; k++) dims[n++] = whole.axis[k].dim;
  Group map = group_map(1, &to, n, dims);
  return emit_typed(z->m, f, n == 1 ? OP_rename : OP_split, 1, &v, &map, whole, (Loc){0});
}

/* [buckets, owners, piece] of a group; returns their number. */
static int owned_dims(const ZeroGroup *g, Str *dims) {
  int n = 0;
  dims[n++] = g->bucket;
  for (int i = 0; i < g->naxes; i++) dims[n++] = g->owner[i];
  dims[n++] = g->part;
  return n;
}

ValueId zero_cut(Zero *z, Fn *f, const ZeroGroup *g, ValueId flat, bool all) {
  must(type_size(value_type(f, flat), g->flat) == padded(g), "zero: %s is cut before it is padded",
       g->name);
  Str to[ZERO_AXES + 2];
  Group map = group_map(1, &g->flat, owned_dims(g, to), to);
  Type t = zero_owned_type(z, g, value_type(f, flat)->elem, all, true);
  return emit_typed(z->m, f, OP_split, 1, &flat, &map, t, (Loc){0});
}

ValueId zero_join(Zero *z, Fn *f, const ZeroGroup *g, ValueId owned, bool all) {
  must(g->naxes > 0, "zero: %s is partitioned over no axis", g->name);
  Str from[ZERO_AXES + 2];
  Group map = group_map(owned_dims(g, from), from, 1, &g->flat);
  Type t = zero_flat_type(g, value_type(f, owned)->elem, all);
  return emit_typed(z->m, f, OP_merge, 1, &owned, &map, t, (Loc){0});
}

/* A bucket lies [owners, piece], end to end, and goes as one; sums on all ranks may take several,
   and so do the short buckets of measured groups, as rows. */
int64_t zero_messages(const Zero *z, OpCode c, const Type *in, int64_t ways) {
  const ZeroGroup *g = NULL;
  int64_t each = c != OP_all_gather && z->reduce_bytes ? z->reduce_bytes : elem_bytes(in->elem),
          rows = 1, bytes = type_count(in) * each * (c == OP_all_gather ? ways : 1);
  for (uint32_t i = 0; i < z->group.n; i++)
    if (type_find(in, z->group.at[i].owner[0]) >= 0) g = &z->group.at[i];
  if (!g) return 1;
  for (int i = 0; in->axis[i].dim != g->owner[0]; i++) rows *= in->axis[i].size;
  return g->measured || c == OP_all_reduce ? message_fewest(rows, bytes / rows, z->bucket_bytes)
                                           : rows;
}

static ValueId collective(Zero *z, Fn *f, OpCode c, Str dim, Str axis, ValueId v) {
  Type t = *value_type(f, v);
  int64_t ways = zero_ways(z, axis), times;
  if (ways == 1) return v; /* alone on the axis: nothing is sent */
  times = zero_messages(z, c, &t, ways);
  if (dim && c == OP_all_gather) t.axis[type_find(&t, dim)].size *= ways;
  else if (dim) t.axis[type_find(&t, dim)].size /= ways;
  Op *o = fn_op(z->m, f, c, 1, &v, 1, &t, (Loc){0});
  if (dim) op_add_group(z->m, o, group_dims(1, &dim));
  attr_set_str(z->m, &o->attrs, ATTR_axis, axis);
  attr_set_int(z->m, &o->attrs, ATTR_ways, ways);
  if (times > 1) attr_set_int(z->m, &o->attrs, ATTR_times, times);
  return o->out;
}

ValueId zero_sum(Zero *z, Fn *f, Str axis, ValueId v) {
  return collective(z, f, OP_all_reduce, NULL, axis, v);
}

/* Says so, for pass `wire`. */
static ValueId marked(Zero *z, Fn *f, ValueId from, ValueId v) {
  if (v != from) attr_set_int(z->m, &vec_last(f->ops).attrs, ATTR_gradient, 1);
  return v;
}

ValueId zero_sum_gradient(Zero *z, Fn *f, Str axis, ValueId v) {
  return marked(z, f, v, zero_sum(z, f, axis, v));
}

ValueId zero_reduce(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  must(type_find(value_type(f, v), g->part) >= 0, "zero: %%%u of %s is not cut in pieces of %s", v,
       f->name, g->name);
  for (int i = 0; i < g->naxes; i++)
    v = g->stage ? marked(z, f, v, collective(z, f, OP_reduce_scatter, g->owner[i], g->axis[i], v))
                 : zero_sum_gradient(z, f, g->axis[i], v);
  return v;
}

ValueId zero_gather(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  must(type_find(value_type(f, v), g->part) >= 0, "zero: %%%u of %s is no piece of %s", v, f->name,
       g->name);
  for (int i = g->naxes - 1; i >= 0; i--)
    v = collective(z, f, OP_all_gather, g->owner[i], g->axis[i], v);
  return v;
}

/* The coordinate of this rank is a number that the runtime sets. */
static ValueId coordinate(Zero *z, Fn *f, Str axis) {
  Str name = intern_printf(z->m->ctx->names, "mesh.%s", axis);
  Global *g = module_global(z->m, name);
  if (!g) g = module_add_global(z->m, GLOBAL_SCALAR, name, type_scalar(ELEM_i32), (Loc){0});
  return ir_load(z->m, f, g, (Loc){0});
}

ValueId zero_own(Zero *z, Fn *f, const ZeroGroup *g, ValueId owned) {
  Type t =
      zero_owned_type(z, g, value_type(f, owned)->elem,
                      g->rounds.dim && type_find(value_type(f, owned), g->rounds.dim) >= 0, false);
  ValueId v = owned;
  for (int i = 0; i < g->naxes; i++)
    v = ir_gather(z->m, f, v, coordinate(z, f, g->axis[i]), g->owner[i], (Loc){0});
  return emit_spread(z->m, f, v, t, (Loc){0});
}

/* v where a dim of owners is at this rank, else 0. */
static ValueId only_own(Zero *z, Fn *f, Str axis, Str owner, ValueId v) {
  Type t = *value_type(f, v);
  Axis owners = {owner, zero_ways(z, axis)};
  Group dims = group_dims(1, &owner);
  ValueId at =
              emit_typed(z->m, f, OP_iota, 0, NULL, &dims, type_of(ELEM_i32, 1, &owners), (Loc){0}),
          here = ir_binary(z->m, f, OP_eq, at, coordinate(z, f, axis), (Loc){0}),
          in[3] = {emit_spread(z->m, f, here, type_with_elem(t, ELEM_bool), (Loc){0}), v,
                   emit_full(z->m, f, t, 0, (Loc){0})};
  return emit_typed(z->m, f, OP_where, 3, in, NULL, t, (Loc){0});
}

/* By a sum in which all other ranks have 0: exact, and of one buffer, where a gather would put
   rows of single numbers together. */
ValueId zero_numbers(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  if (g->ways == 1) return v;
  Type t = *value_type(f, v);
  for (int i = 0; i < g->naxes; i++)
    t.axis[type_find(&t, g->owner[i])].size = zero_ways(z, g->axis[i]);
  v = ir_reduce(z->m, f, OP_sum, v, g->naxes, g->owner, (Loc){0});
  v = emit_spread(z->m, f, v, t, (Loc){0});
  for (int i = 0; i < g->naxes; i++) v = only_own(z, f, g->axis[i], g->owner[i], v);
  for (int i = 0; i < g->naxes; i++) v = zero_sum(z, f, g->axis[i], v);
  return v;
}
