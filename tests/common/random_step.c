/* See random_step.h. Values are drawn from all that exist; what does not fit is drawn again. */
#include "random_step.h"

typedef struct Maker {
  Module *m;
  Fn *f;
  uint64_t state;
  VEC(ValueId) pool;
  int depth, globals, bodies;
  Axis axis[6];
  bool typed;
} Maker;

static int below(Maker *k, int n) { return (int)(random_number(&k->state) * n); }
static const Type *type(Maker *k, ValueId v) { return value_type(k->f, v); }
static const Loc nowhere = {0};
static void keep(Maker *k, ValueId v) { vec_push(k->m->arena, k->pool, v); }

/* Recent values are likelier: chains grow long. */
static ValueId any(Maker *k) {
  int n = (int)k->pool.n, from = below(k, 3) ? (n > 6 ? n - 6 : 0) : 0;
  return k->pool.at[from + below(k, n - from)];
}

static ValueId any_float(Maker *k) {
  for (;;) {
    ValueId v = any(k);
    if (type(k, v)->elem == ELEM_f32) return v;
  }
}

static Type random_type(Maker *k, int least) {
  Type t = {.elem = ELEM_f32};
  for (int i = 0; i < 4; i++)
    if (below(k, 2) && t.rank < 3) t.axis[t.rank++] = k->axis[i];
  while (t.rank < least) t = random_type(k, least);
  if (t.rank > 1 && below(k, 3) == 0) {
    Axis a = t.axis[0];
    t.axis[0] = t.axis[t.rank - 1], t.axis[t.rank - 1] = a;
  }
  return t;
}

static Global *global(Maker *k, GlobalKind kind, const char *name, Type t) {
  return module_add_global(k->m, kind, intern_printf(k->m->ctx->names, "%s%d", name, k->globals++),
                           t, nowhere);
}

static void tame(Maker *k, ValueId v) { keep(k, ir_unary(k->m, k->f, OP_tanh, v, nowhere)); }

static ValueId of_type(Maker *k, const Type *t);

/* ---- one op each ---- */

static void make_unary(Maker *k) {
  static const OpCode codes[] = {OP_neg, OP_abs, OP_tanh, OP_sigmoid, OP_sin, OP_cos, OP_copy};
  keep(k, ir_unary(k->m, k->f, codes[below(k, 7)], any_float(k), nowhere));
}

static void make_binary(Maker *k) {
  static const OpCode codes[] = {OP_add, OP_sub, OP_mul, OP_max, OP_min};
  for (int i = 0; i < 20; i++) {
    ValueId a = any_float(k), b = any_float(k);
    if (!type_contains(type(k, a), type(k, b)) && !type_contains(type(k, b), type(k, a))) continue;
    OpCode c = codes[below(k, 5)];
    ValueId v = ir_binary(k->m, k->f, c, a, b, nowhere);
    if (c == OP_mul && below(k, 2)) tame(k, v);
    else keep(k, v);
    return;
  }
}

static void make_where(Maker *k) {
  for (int i = 0; i < 20; i++) {
    ValueId a = any_float(k), b = any_float(k);
    if (!type_contains(type(k, a), type(k, b))) continue;
    ValueId c = ir_binary(k->m, k->f, OP_lt, a, b, nowhere);
    keep(k, ir_where(k->m, k->f, c, b, a, nowhere));
    return;
  }
}

static void make_iota_mask(Maker *k) {
  ValueId a = any_float(k);
  if (!type(k, a)->rank) return;
  Axis x = type(k, a)->axis[below(k, type(k, a)->rank)];
  ValueId i = ir_iota(k->m, k->f, x, nowhere),
          n = ir_const(k->m, k->f, ELEM_i32, (double)below(k, 4), nowhere);
  ValueId zero = ir_const(k->m, k->f, ELEM_f32, 0, nowhere);
  keep(k, ir_where(k->m, k->f, ir_binary(k->m, k->f, OP_le, i, n, nowhere), a, zero, nowhere));
}

static void make_reduce(Maker *k) {
  static const OpCode codes[] = {OP_sum, OP_sum, OP_rmax, OP_rmin, OP_cumsum};
  ValueId a = any_float(k);
  Str dims[MAX_RANK];
  int n = 0;
  OpCode c = codes[below(k, 5)];
  for (int i = 0; i < type(k, a)->rank; i++)
    if (below(k, 2) && !(c == OP_cumsum && n)) dims[n++] = type(k, a)->axis[i].dim;
  if (!n) return;
  if (c == OP_cumsum) {
    Type t = *type(k, a);
    Op *o = fn_op(k->m, k->f, c, 1, &a, 1, &t, nowhere);
    op_add_group(k->m, o, group_dims(1, dims));
    tame(k, o->out);
    return;
  }
  ValueId s = ir_reduce(k->m, k->f, c, a, n, dims, nowhere);
  keep(k, s);
  if (type_contains(type(k, a), type(k, s)) && below(k, 2))
    keep(k, ir_binary(k->m, k->f, OP_sub, a, s, nowhere));
}

static void make_dot(Maker *k) {
  for (int i = 0; i < 30; i++) {
    ValueId a = any_float(k), b = any_float(k);
    Str dims[MAX_RANK];
    int n = 0, rank = type(k, b)->rank;
    for (int j = 0; j < type(k, a)->rank; j++) {
      Axis x = type(k, a)->axis[j];
      int at = type_find(type(k, b), x.dim);
      if (at < 0) rank++;
      if (at >= 0 && type(k, b)->axis[at].size != x.size) rank = 99;
      if (at >= 0 && (!n || below(k, 2))) dims[n++] = x.dim;
    }
    if (!n || rank - n > 4) continue;
    tame(k, ir_dot(k->m, k->f, a, b, n, dims, nowhere));
    return;
  }
}

static ValueId typed(Maker *k, OpCode c, ValueId a, Group g, Type t) {
  Op *o = fn_op(k->m, k->f, c, 1, &a, 1, &t, nowhere);
  op_add_group(k->m, o, g);
  return o->out;
}

static Str fresh(Maker *k) { return intern_printf(k->m->ctx->names, "N%d", below(k, 3)); }

static void make_moved(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  if (!t.rank) return;
  int i = below(k, t.rank);
  Str from = t.axis[i].dim, to = fresh(k);
  if (type_find(&t, to) >= 0) return;
  int64_t size = t.axis[i].size, at = 0;
  OpCode c = (OpCode[]){OP_rename, OP_slice, OP_pad, OP_rename}[below(k, 4)];
  if (c == OP_slice && size > 1) t.axis[i].size = size - 1, at = below(k, 2);
  if (c == OP_pad) t.axis[i].size = size + 2, at = below(k, 3);
  t.axis[i].dim = to;
  ValueId v = typed(k, c, a, group_map(1, &from, 1, &to), t);
  if (c != OP_rename) attr_set_int(k->m, &vec_last(k->f->ops).attrs, ATTR_at, at);
  keep(k, v);
}

static void make_shift(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  if (!t.rank) return;
  ValueId v = typed(k, OP_shift, a, group_dims(1, &t.axis[0].dim), t);
  attr_set_int(k->m, &vec_last(k->f->ops).attrs, ATTR_by, 1);
  keep(k, v);
}

static void make_split_merge(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  Str names[] = {intern(k->m->ctx->names, "P"), intern(k->m->ctx->names, "Q")};
  if (type_find(&t, names[0]) >= 0 || type_find(&t, names[1]) >= 0 || t.rank > 4) return;
  for (int i = 0; i < t.rank; i++)
    if (t.axis[i].size % 2 == 0) {
      Str from = t.axis[i].dim;
      Type r = type_without(&t, &from, 1);
      r.axis[r.rank++] = (Axis){names[0], t.axis[i].size / 2},
      r.axis[r.rank++] = (Axis){names[1], 2};
      keep(k, typed(k, OP_split, a, group_map(1, &from, 2, names), r));
      return;
    }
  if (t.rank < 2) return;
  int i = below(k, t.rank - 1), swap = below(k, 2);
  Str from[] = {t.axis[i + swap].dim, t.axis[i + 1 - swap].dim};
  Type r = type_without(&t, from, 2);
  r.axis[r.rank++] = (Axis){names[0], t.axis[i].size * t.axis[i + 1].size};
  keep(k, typed(k, OP_merge, a, group_map(2, from, 1, names), r));
}

static void make_stack(Maker *k) {
  ValueId a = any_float(k), b = any_float(k);
  Type t = *type(k, a);
  Str s = intern(k->m->ctx->names, "S");
  if (!type_same_dims(&t, type(k, b)) || t.rank > 4 || type_find(&t, s) >= 0) return;
  Type r = type_of(ELEM_f32, 1, &(Axis){s, 2});
  for (int i = 0; i < t.rank; i++) r.axis[r.rank++] = t.axis[i];
  ValueId in[] = {a, b};
  Op *o = fn_op(k->m, k->f, OP_stack, 2, in, 1, &r, nowhere);
  op_add_group(k->m, o, group_dims(1, &s));
  keep(k, o->out);
}

static void make_unstack(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a), r[8];
  if (!t.rank || t.axis[0].size > 8) return;
  Str d = t.axis[0].dim;
  for (int i = 0; i < t.axis[0].size; i++) r[i] = type_without(&t, &d, 1);
  Op *o = fn_op(k->m, k->f, OP_unstack, 1, &a, (uint32_t)t.axis[0].size, r, nowhere);
  op_add_group(k->m, o, group_dims(1, &d));
  ValueId out = o->out;
  for (int i = 0; i < t.axis[0].size; i++) keep(k, out + (ValueId)i);
}

static ValueId index_of(Maker *k, const Type *t, Axis into) {
  ValueId n = ir_const(k->m, k->f, ELEM_i32, (double)into.size, nowhere),
          i = ir_iota(k->m, k->f, t->axis[0], nowhere);
  ValueId three = ir_const(k->m, k->f, ELEM_i32, 3, nowhere);
  ValueId x = ir_binary(k->m, k->f, OP_mul, i, three, nowhere);
  ValueId q = ir_binary(k->m, k->f, OP_div, x, n, nowhere);
  return ir_binary(k->m, k->f, OP_sub, x, ir_binary(k->m, k->f, OP_mul, q, n, nowhere), nowhere);
}

static void make_gather(Maker *k) {
  ValueId a = any_float(k);
  const Type *t = type(k, a);
  if (!t->rank || t->rank > 4) return;
  Axis into = t->axis[below(k, t->rank)];
  Type by = type_of(ELEM_i32, 1, &k->axis[below(k, 4)]);
  if (type_find(t, by.axis[0].dim) >= 0 && by.axis[0].dim == into.dim) return;
  if (type_find(t, by.axis[0].dim) >= 0 && type_size(t, by.axis[0].dim) != by.axis[0].size) return;
  keep(k, ir_gather(k->m, k->f, a, index_of(k, &by, into), into.dim, nowhere));
}

static ValueId two(Maker *k, OpCode c, ValueId a, ValueId b) {
  return ir_binary(k->m, k->f, c, a, b, nowhere);
}

/* Dims of t but `b`, each by chance, the first one surely. */
static int some_but(Maker *k, const Type *t, Str b, Str *dims) {
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (t->axis[i].dim != b && (!n || below(k, 3))) dims[n++] = t->axis[i].dim;
  return n;
}

/* Scores of a label shared by many rows, and computations from them over more than their dim. */
static void make_margin(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  Str dims[MAX_RANK];
  if (t.rank < 2 || t.rank > 4) return;
  if (below(k, 2)) a = ir_unary(k->m, k->f, OP_sin, a, nowhere);
  int v = below(k, t.rank), b = (v + 1 + below(k, t.rank - 1)) % t.rank;
  Type by = type_of(ELEM_i32, 1, &t.axis[b]);
  ValueId u = ir_gather(k->m, k->f, a, index_of(k, &by, t.axis[v]), t.axis[v].dim, nowhere);
  keep(k, u);
  ValueId d = two(k, below(k, 2) ? OP_sub : OP_max, a, u);
  int n = some_but(k, &t, t.axis[b].dim, dims);
  keep(k, ir_reduce(k->m, k->f, below(k, 3) ? OP_sum : OP_rmax, d, n, dims, nowhere));
}

static void make_one_hot(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  if (t.rank < 2 || t.rank > 4) return;
  int v = below(k, t.rank), b = (v + 1 + below(k, t.rank - 1)) % t.rank;
  Type by = type_of(ELEM_i32, 1, &t.axis[b]);
  ValueId i = ir_expand(k->m, k->f, index_of(k, &by, t.axis[v]), 1, &t.axis[v], nowhere);
  ValueId here = two(k, OP_eq, i, ir_iota(k->m, k->f, t.axis[v], nowhere));
  keep(k, two(k, OP_mul, a, ir_cast(k->m, k->f, here, ELEM_f32, nowhere)));
}

/* A norm over one dim of the rows that an index takes out of a table. */
static void make_norm_of_rows(Maker *k) {
  Type t = random_type(k, 2), by = type_of(ELEM_i32, 1, &k->axis[below(k, 4)]);
  if (type_find(&t, by.axis[0].dim) >= 0) return;
  ValueId a = of_type(k, &t);
  Axis into = t.axis[below(k, t.rank)];
  a = ir_gather(k->m, k->f, a, index_of(k, &by, into), into.dim, nowhere);
  Str over = into.dim;
  for (int i = 0; i < t.rank; i++)
    if (t.axis[i].dim != into.dim) over = t.axis[i].dim;
  ValueId s = ir_reduce(k->m, k->f, OP_sum, two(k, OP_mul, a, a), 1, &over, nowhere);
  s = two(k, OP_add, s, ir_const(k->m, k->f, ELEM_f32, 0.5, nowhere));
  keep(k, two(k, OP_mul, a, ir_unary(k->m, k->f, OP_rsqrt, s, nowhere)));
}

static void make_scatter(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  Axis into = {intern(k->m->ctx->names, "V"), 5};
  if (!t.rank || type_find(&t, into.dim) >= 0) return;
  Type by = type_of(ELEM_i32, 1, &t.axis[below(k, t.rank)]);
  ValueId in[] = {a, index_of(k, &by, into)};
  Type r = type_without(&t, &by.axis[0].dim, 1);
  r.axis[r.rank++] = into;
  Op *o = fn_op(k->m, k->f, OP_scatter, 2, in, 1, &r, nowhere);
  op_add_group(k->m, o, group_map(1, &by.axis[0].dim, 1, &into.dim));
  tame(k, o->out);
}

static Op *inferred(Maker *k, OpCode c, uint32_t nin, const ValueId *in, Group g, Group h,
                    uint32_t nout) {
  Group groups[] = {g, h};
  Type out[4];
  Op probe = {
      .code = c, .nin = nin, .nout = nout, .in = (ValueId *)in, .ngroups = 2, .group = groups};
  if (shape_infer(k->m, k->f, &probe, out)) return NULL;
  Op *o = fn_op(k->m, k->f, c, nin, in, nout, out, nowhere);
  op_add_group(k->m, o, g);
  op_add_group(k->m, o, h);
  return o;
}

/* Queries, keys and values of one type, a causal mask half of the time, sometimes the gradient as
 * well. */
static void make_attention(Maker *k) {
  ValueId q = any_float(k);
  Type t = *type(k, q);
  Str key = intern(k->m->ctx->names, "K");
  if (t.rank < 2 || t.rank > 4 || type_find(&t, key) >= 0) return;
  int at = below(k, t.rank), d = (at + 1) % t.rank;
  Str from = t.axis[at].dim;
  Type moved = t;
  moved.axis[at].dim = key;
  ValueId in[7] = {q, typed(k, OP_rename, of_type(k, &t), group_map(1, &from, 1, &key), moved),
                   typed(k, OP_rename, of_type(k, &t), group_map(1, &from, 1, &key), moved)};
  Group g = group_map(1, &from, 1, &key), h = group_dims(1, &t.axis[d].dim);
  ValueId mask = NO_VALUE;
  if (below(k, 2)) {
    ValueId a = ir_iota(k->m, k->f, t.axis[at], nowhere),
            b = ir_iota(k->m, k->f, moved.axis[at], nowhere);
    mask = ir_binary(k->m, k->f, OP_le, b, ir_expand(k->m, k->f, a, 1, &moved.axis[at], nowhere),
                     nowhere);
  }
  in[3] = mask;
  Op *o = inferred(k, OP_attention, mask == NO_VALUE ? 3 : 4, in, g, h, 2);
  if (!o) return;
  attr_set_float(k->m, &o->attrs, ATTR_scale, 0.5);
  ValueId y = o->out;
  keep(k, y);
  if (below(k, 2)) keep(k, y + 1);
  if (below(k, 2)) return;
  in[3] = y, in[4] = y + 1, in[5] = of_type(k, type(k, y)), in[6] = mask;
  o = inferred(k, OP_attention_grad, mask == NO_VALUE ? 6 : 7, in, g, h, 3);
  if (!o) return;
  attr_set_float(k->m, &o->attrs, ATTR_scale, 0.5);
  y = o->out;
  for (uint32_t i = 0; i < 3; i++) keep(k, y + i);
}

static void make_rope(Maker *k) {
  ValueId a = any_float(k);
  const Type *t = type(k, a);
  if (t->rank < 2) return;
  int d = below(k, t->rank), s = (d + 1) % t->rank;
  Op *o = inferred(k, OP_rope, 1, &a, group_dims(1, &t->axis[s].dim),
                   group_dims(1, &t->axis[d].dim), 1);
  if (!o) return;
  attr_set_float(k->m, &o->attrs, ATTR_theta, 100);
  keep(k, o->out);
}

static void make_rand(Maker *k) {
  ValueId a = any_float(k);
  Type t = *type(k, a);
  Str dims[MAX_RANK];
  int64_t strides[MAX_RANK], n = 1;
  for (int i = t.rank; i-- > 0; n *= t.axis[i].size) dims[i] = t.axis[i].dim, strides[i] = n;
  ValueId in[] = {ir_const(k->m, k->f, ELEM_i64, 5, nowhere),
                  ir_const(k->m, k->f, ELEM_i32, 1, nowhere),
                  ir_const(k->m, k->f, ELEM_i64, 0, nowhere)};
  Op *o = fn_op(k->m, k->f, OP_rand, 3, in, 1, &t, nowhere);
  op_add_group(k->m, o, group_dims(t.rank, dims));
  attr_set_int(k->m, &o->attrs, ATTR_key, below(k, 1000));
  attr_set_ints(k->m, &o->attrs, ATTR_strides, t.rank, strides);
  keep(k, ir_binary(k->m, k->f, OP_mul, a, o->out, nowhere));
}

/* ---- loops ---- */

static void make_some(Maker *k, int n);

static Type stacked(Axis a, const Type *t) {
  Type r = type_of(t->elem, 1, &a);
  for (int i = 0; i < t->rank; i++) r.axis[r.rank++] = t->axis[i];
  return r;
}

/* A value of exactly this type in the function under construction. */
static ValueId of_type(Maker *k, const Type *t) {
  for (int i = 0; i < 40; i++) {
    ValueId v = any_float(k);
    if (type_same_dims(type(k, v), t)) return v;
  }
  for (uint32_t i = 0; i < k->pool.n; i++)
    if (type_same_dims(type(k, k->pool.at[i]), t) && type(k, k->pool.at[i])->elem == t->elem)
      return k->pool.at[i];
  ValueId zero = ir_const(k->m, k->f, ELEM_f32, 0.5, nowhere);
  return ir_expand(k->m, k->f, zero, t->rank, t->axis, nowhere);
}

typedef struct LoopMaker {
  uint32_t carry, invariant, stacked, extra, continued; /* continued: stacked ones at the end */
  const Type *slices;                                   /* of extra results, if they are given */
  ValueId in[12];
  Axis axis;
  Fn *body;
} LoopMaker;

static void make_body(Maker *k, LoopMaker *l) {
  Maker inner = *k;
  inner.f = l->body = fn_new(k->m, FN_BODY, intern_printf(k->m->ctx->names, "body%d", k->bodies++));
  memset(&inner.pool, 0, sizeof inner.pool);
  inner.depth++, inner.bodies = k->bodies;
  fn_arg(k->m, inner.f, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < l->carry + l->invariant + l->stacked; i++) {
    Type t = *type(k, l->in[i]);
    ValueId arg =
        fn_arg(k->m, inner.f, i < l->carry + l->invariant ? t : type_without(&t, &l->axis.dim, 1));
    if (i < l->carry + l->invariant + l->stacked - l->continued) keep(&inner, arg);
  }
  if (below(k, 2)) keep(&inner, ir_cast(k->m, inner.f, inner.f->args.at[0], ELEM_f32, nowhere));
  inner.state += 77;
  make_some(&inner, 6 + below(k, 8));
  for (uint32_t i = 0; i < l->carry; i++)
    fn_result(k->m, inner.f, of_type(&inner, type(k, l->in[i])));
  for (uint32_t i = 0; i < l->extra; i++) {
    ValueId v = i == 0 && below(k, 2) ? inner.f->args.at[1] : any_float(&inner);
    if (type(&inner, v)->rank > 4 || type_find(type(&inner, v), l->axis.dim) >= 0)
      v = inner.f->args.at[1];
    if (l->slices) v = of_type(&inner, &l->slices[i]);
    fn_result(k->m, inner.f, v);
  }
  k->bodies = inner.bodies, k->globals = inner.globals, k->state = inner.state;
  module_add(k->m, inner.f);
}

static Op *emit_loop(Maker *k, const LoopMaker *l, int64_t trip, int64_t length) {
  Type out[12];
  for (uint32_t i = 0; i < l->carry + l->extra; i++) {
    const Type *t = value_type(l->body, l->body->results.at[i]);
    out[i] = i < l->carry ? *t : stacked((Axis){l->axis.dim, length}, t);
  }
  Op *o = fn_op(k->m, k->f, OP_loop, l->carry + l->invariant + l->stacked, l->in,
                l->carry + l->extra, out, nowhere);
  op_add_group(k->m, o, group_dims(1, &l->axis.dim));
  attr_set_int(k->m, &o->attrs, ATTR_carry, l->carry);
  attr_set_int(k->m, &o->attrs, ATTR_invariant, l->invariant);
  attr_set_int(k->m, &o->attrs, ATTR_trip, trip);
  o->callee = l->body;
  return o;
}

static void add_part(Maker *k, Op *o, const LoopMaker *l, int64_t first, bool reverse) {
  int64_t into[4];
  for (uint32_t i = 0; i < l->extra; i++)
    into[i] = l->continued ? (int64_t)(l->stacked - l->continued + i) : INTO_NEW;
  if (first) attr_set_int(k->m, &o->attrs, ATTR_start, first);
  attr_set_int(k->m, &o->attrs, ATTR_stack_length, l->axis.size);
  if (l->extra) attr_set_ints(k->m, &o->attrs, ATTR_continues, (int)l->extra, into);
  if (reverse) attr_set_int(k->m, &o->attrs, ATTR_reverse, 1);
}

/* Two loops over parts of the stacks, the second one goes on with what the first has left. */
static void make_parts(Maker *k, LoopMaker *l) {
  bool reverse = below(k, 2);
  int64_t cut = 1 + below(k, (int)l->axis.size - 1), size = l->axis.size;
  Op *o = emit_loop(k, l, reverse ? size - cut : cut, size);
  ValueId out = o->out;
  add_part(k, o, l, reverse ? cut : 0, reverse);
  Type slices[4];
  for (uint32_t i = 0; i < l->extra; i++)
    slices[i] = *value_type(l->body, l->body->results.at[l->carry + i]);
  for (uint32_t i = 0; i < l->carry; i++) l->in[i] = out + i;
  for (uint32_t i = 0; i < l->extra; i++)
    l->in[l->carry + l->invariant + l->stacked++] = out + l->carry + i;
  l->continued = l->extra, l->slices = slices;
  make_body(k, l);
  o = emit_loop(k, l, reverse ? cut : size - cut, size);
  out = o->out;
  add_part(k, o, l, reverse ? 0 : cut, reverse);
  for (uint32_t i = 0; i < l->carry + l->extra; i++) keep(k, out + i);
}

static void make_loop(Maker *k) {
  LoopMaker l = {.carry = 1 + (uint32_t)below(k, 2),
                 .invariant = (uint32_t)below(k, 3),
                 .extra = (uint32_t)below(k, 4)};
  l.axis = (Axis){intern_printf(k->m->ctx->names, "L%d", k->bodies), 1 + below(k, 4)};
  for (uint32_t i = 0; i < l.carry + l.invariant; i++) l.in[i] = any_float(k);
  if (below(k, 2)) {
    ValueId v = any_float(k);
    if (type(k, v)->rank < 4) {
      ValueId w = ir_expand(k->m, k->f, v, 1, &l.axis, nowhere);
      l.in[l.carry + l.invariant + l.stacked++] = ir_unary(k->m, k->f, OP_neg, w, nowhere);
    }
  }
  for (uint32_t i = 0; i < l.carry; i++)
    if (type_find(type(k, l.in[i]), l.axis.dim) >= 0) return;
  make_body(k, &l);
  if (l.axis.size > 1 && !below(k, 3) && !k->typed) {
    make_parts(k, &l);
    return;
  }
  Op *o = emit_loop(k, &l, l.axis.size, l.axis.size);
  if (below(k, 2)) attr_set_int(k->m, &o->attrs, ATTR_reverse, 1);
  ValueId first = o->out;
  for (uint32_t i = 0; i < l.carry + l.extra; i++) keep(k, first + i);
}

/* ---- values put end to end ---- */

/* [rows, D], made by a product or not. */
static ValueId make_piece(Maker *k, Axis rows, Axis d, Axis over) {
  Type t = type_of(ELEM_f32, 2, (Axis[]){rows, over}), row = type_of(ELEM_f32, 1, &over);
  ValueId x = of_type(k, &t), i = ir_iota(k->m, k->f, d, nowhere);
  Axis column = t.axis[1] = d;
  if (below(k, 4) == 0) return of_type(k, &t);
  ValueId y = ir_expand(k->m, k->f, ir_cast(k->m, k->f, i, ELEM_f32, nowhere), 1, &over, nowhere);
  ValueId w = ir_unary(k->m, k->f, OP_tanh, of_type(k, &row), nowhere);
  y = two(k, OP_mul, y, ir_expand(k->m, k->f, w, 1, &column, nowhere));
  x = ir_unary(k->m, k->f, OP_tanh, x, nowhere), y = ir_unary(k->m, k->f, OP_sin, y, nowhere);
  return ir_dot(k->m, k->f, x, y, 1, &over.dim, nowhere);
}

/* Most pieces begin at 16 bytes, so that kernels write them where they are read. */
static void make_laid(Maker *k) {
  Axis over = k->axis[below(k, 4)], d = {intern(k->m->ctx->names, "K"), below(k, 5) ? 4 : 3};
  Str from[3];
  ValueId in[3];
  int n = 2 + below(k, 2);
  Axis all = {intern(k->m->ctx->names, "Laid"), 0};
  for (int i = 0; i < n; i++) {
    Axis rows = k->axis[below(k, 4)];
    if (rows.dim == over.dim) return;
    in[i] = make_piece(k, rows, d, over), from[i] = rows.dim, all.size += rows.size;
  }
  Type t = type_of(ELEM_f32, 2, (Axis[]){all, d}), by = type_of(ELEM_f32, 2, (Axis[]){d, over});
  Op *o = fn_op(k->m, k->f, OP_concat, (uint32_t)n, in, 1, &t, nowhere);
  op_add_group(k->m, o, group_map(n, from, 1, &all.dim));
  ValueId v = o->out;
  if (below(k, 3) == 0) keep(k, v);
  tame(k, ir_dot(k->m, k->f, v, of_type(k, &by), 1, &d.dim, nowhere));
}

/* ---- all ---- */

static void make_some(Maker *k, int n) {
  static void (*const makers[])(Maker *) = {
      make_unary,   make_unary,     make_binary,  make_binary,    make_binary,       make_binary,
      make_where,   make_iota_mask, make_reduce,  make_reduce,    make_reduce,       make_dot,
      make_dot,     make_moved,     make_moved,   make_shift,     make_split_merge,  make_stack,
      make_unstack, make_gather,    make_scatter, make_attention, make_attention,    make_rope,
      make_rand,    make_margin,    make_margin,  make_one_hot,   make_norm_of_rows, make_laid};
  enum { MAKERS = sizeof makers / sizeof *makers };
  for (int i = 0; i < n; i++) makers[below(k, MAKERS)](k);
  if (k->depth < 2 && below(k, 3)) make_loop(k);
  if (k->depth < 2 && below(k, 3) == 0) make_loop(k);
  for (int i = 0; i < n / 2; i++) makers[below(k, MAKERS)](k);
}

static void make_stores(Maker *k) {
  for (int i = 0; i < 4; i++) {
    ValueId v = any_float(k);
    ir_store(k->m, k->f, global(k, GLOBAL_OUTPUT, "out", *type(k, v)), v, nowhere);
  }
  for (uint32_t i = 0; i < k->m->globals.n; i++) {
    Global *g = k->m->globals.at[i];
    if (g->kind == GLOBAL_PARAM && below(k, 2)) {
      ValueId old = k->f->ops.at[i].out, by = of_type(k, &g->type);
      ValueId step = two(k, OP_mul, by, ir_const(k->m, k->f, ELEM_f32, 0.5, nowhere));
      ir_store(k->m, k->f, g, ir_binary(k->m, k->f, OP_sub, old, step, nowhere), nowhere);
    }
  }
}

static int64_t random_size(Maker *k, const RandomSizes *sizes, int64_t points) {
  int64_t size = sizes->from[below(k, sizes->n)];
  return size > 1 && points * size > sizes->most ? random_size(k, sizes, points) : size;
}

Module *random_step_of(Ctx *c, uint64_t seed, int ops, const RandomSizes *sizes) {
  Maker k = {.m = module_new(c), .typed = sizes->typed, .state = seed * 2654435761u + 12345};
  k.m->model = intern(c->names, "Random"), k.m->after = intern(c->names, "clean");
  static const char *const names[] = {"A", "B", "C", "D"};
  for (int64_t i = 0, points = 1; i < 4; points *= k.axis[i++].size)
    k.axis[i] = (Axis){intern(c->names, names[i]), random_size(&k, sizes, points)};
  k.f = fn_new(k.m, FN_ENTRY, intern(c->names, "step"));
  for (int i = 0; i < 5; i++) {
    Global *g =
        global(&k, i < 3 ? GLOBAL_PARAM : GLOBAL_INPUT, i < 3 ? "w" : "x", random_type(&k, i < 3));
    keep(&k, ir_load(k.m, k.f, g, nowhere));
  }
  make_some(&k, ops);
  make_stores(&k);
  module_add(k.m, k.f);
  return k.m;
}
