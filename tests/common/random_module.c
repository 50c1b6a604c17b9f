/* Random modules; see random_module.h. A function grows op by op: a generator is drawn from a
   table, it draws operands from what there is and appends ops, or gives up when nothing fits. Types
   come from the shape rules or are stated: the verifier judges the result like any other module. */
#include "random_module.h"

enum { MOST_ELEMENTS = 160, DIMS = 7 };

uint32_t random_below(Random *r, uint32_t n) {
  r->state += 0x9e3779b97f4a7c15u;
  uint64_t x = r->state;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)((x ^ x >> 31) % n);
}

typedef struct Gen {
  Module *m;
  Fn *f;
  Random *r;
  RandomOptions o;
  VEC(ValueId) pool; /* float values */
  int depth;         /* of loops still allowed */
  Str without;       /* the dim of the loop around, or NULL */
} Gen;

typedef bool Maker(Gen *g);

static uint32_t below(Gen *g, uint32_t n) { return random_below(g->r, n); }
static Type type_in(const Gen *g, ValueId v) { return *value_type(g->f, v); }
static ValueId bin(Gen *g, OpCode c, ValueId a, ValueId b) {
  return ir_binary(g->m, g->f, c, a, b, (Loc){0});
}
static ValueId un(Gen *g, OpCode c, ValueId a) { return ir_unary(g->m, g->f, c, a, (Loc){0}); }
static ValueId num(Gen *g, double v) { return ir_const(g->m, g->f, ELEM_f32, v, (Loc){0}); }

static Axis dim(Gen *g, uint32_t i) {
  static const char *const names[DIMS] = {"A", "B", "C", "D", "E", "F", "G"};
  static const int sizes[DIMS] = {3, 5, 2, 1, 4, 6, 7};
  return (Axis){intern(g->m->ctx->names, names[i]), sizes[i]};
}

static Type random_type(Gen *g, uint32_t most) {
  Type t = type_scalar(ELEM_f32);
  uint32_t n = below(g, most + 1);
  while (n-- > 0) {
    Axis a = dim(g, below(g, DIMS));
    if (type_find(&t, a.dim) >= 0 || a.dim == g->without) continue;
    if (type_count(&t) * a.size <= MOST_ELEMENTS) t.axis[t.rank++] = a;
  }
  return t;
}

static ValueId pick(Gen *g) { return g->pool.at[below(g, g->pool.n)]; }

static bool add(Gen *g, ValueId v) {
  Type t = type_in(g, v);
  if (type_count(&t) > MOST_ELEMENTS) return false;
  vec_push(g->m->arena, g->pool, v);
  return true;
}

static ValueId spread(Gen *g, ValueId v, const Type *t) {
  Type have = type_in(g, v);
  Axis missing[MAX_RANK];
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (type_find(&have, t->axis[i].dim) < 0) missing[n++] = t->axis[i];
  return ir_expand(g->m, g->f, v, n, missing, (Loc){0});
}

/* v with exactly the dims of t: others summed, missing ones expanded */
static ValueId fit(Gen *g, ValueId v, const Type *t) {
  Type have = type_in(g, v);
  Str gone[MAX_RANK];
  int n = 0;
  for (int i = 0; i < have.rank; i++)
    if (type_find(t, have.axis[i].dim) < 0) gone[n++] = have.axis[i].dim;
  if (n) v = un(g, OP_tanh, ir_reduce(g->m, g->f, OP_sum, v, n, gone, (Loc){0}));
  return spread(g, v, t);
}

/* v, summed to dims that `big` has */
static ValueId inside(Gen *g, ValueId v, ValueId big) {
  Type have = type_in(g, v), want = type_in(g, big), t = type_scalar(ELEM_f32);
  for (int i = 0; i < have.rank; i++)
    if (type_find(&want, have.axis[i].dim) >= 0) t.axis[t.rank++] = have.axis[i];
  return fit(g, v, &t);
}

static ValueId positive(Gen *g, ValueId v) {
  return bin(g, OP_add, bin(g, OP_mul, v, v), num(g, 0.5));
}

/* ---- element-wise ---- */
static bool make_unary(Gen *g) {
  static const OpCode any[] = {OP_neg, OP_tanh, OP_sigmoid, OP_sin,   OP_cos,
                               OP_erf, OP_copy, OP_abs,     OP_floor, OP_sign};
  OpCode c = any[below(g, g->o.smooth ? 7 : 10)];
  return add(g, un(g, c, pick(g)));
}

static bool make_positive(Gen *g) {
  static const OpCode any[] = {OP_log, OP_sqrt, OP_rsqrt};
  return add(g, un(g, any[below(g, 3)], positive(g, pick(g))));
}

static bool make_exp(Gen *g) { return add(g, un(g, OP_exp, un(g, OP_tanh, pick(g)))); }
static bool make_erfinv(Gen *g) {
  return add(g, un(g, OP_erfinv, bin(g, OP_mul, un(g, OP_tanh, pick(g)), num(g, 0.5))));
}

static bool make_pow(Gen *g) {
  static const double any[] = {2, 3, 1, 0, 0.5, -0.5, -1, 1.5};
  uint32_t i = below(g, 8);
  ValueId v = i < 4 ? un(g, OP_tanh, pick(g)) : positive(g, pick(g));
  return add(g, ir_pow(g->m, g->f, v, any[i], (Loc){0}));
}

static bool make_binary(Gen *g) {
  static const OpCode any[] = {OP_add, OP_sub, OP_mul, OP_mul, OP_max, OP_min};
  ValueId a = pick(g), b = inside(g, pick(g), a);
  OpCode c = any[below(g, g->o.smooth ? 4 : 6)];
  bool swap = below(g, 2);
  return add(g, swap ? bin(g, c, b, a) : bin(g, c, a, b));
}

static bool make_div(Gen *g) {
  ValueId a = pick(g), b = inside(g, pick(g), a);
  if (below(g, 2)) return add(g, bin(g, OP_div, a, positive(g, b)));
  return add(g, bin(g, OP_div, b, positive(g, a)));
}

static bool make_constant(Gen *g) {
  static const double any[] = {0, 1, -1, 2, 0.5, 3};
  static const OpCode ops[] = {OP_add, OP_sub, OP_mul, OP_add, OP_mul, OP_div};
  uint32_t i = below(g, 6);
  OpCode c = ops[below(g, any[i] == 0 ? 5 : 6)];
  ValueId k = num(g, any[i]), a = pick(g);
  return add(g, c != OP_div && below(g, 2) ? bin(g, c, k, a) : bin(g, c, a, k));
}

static ValueId condition(Gen *g, ValueId a) {
  static const OpCode any[] = {OP_lt, OP_le, OP_eq};
  ValueId c = bin(g, any[below(g, 3)], a, inside(g, pick(g), a));
  if (below(g, 3) == 0) c = un(g, OP_not, c);
  if (below(g, 3) == 0) c = bin(g, below(g, 2) ? OP_and : OP_or, c, bin(g, OP_lt, a, num(g, 0.25)));
  return c;
}

/* Smooth: the condition is about positions, not values. */
static ValueId position_condition(Gen *g, const Type *t) {
  Axis a = t->axis[below(g, (uint32_t)t->rank)];
  ValueId i = ir_iota(g->m, g->f, a, (Loc){0});
  return spread(
      g,
      bin(g, OP_lt, i,
          ir_const(g->m, g->f, ELEM_i32, (double)below(g, (uint32_t)a.size + 1), (Loc){0})),
      t);
}

static bool make_where(Gen *g) {
  ValueId a = pick(g), b = below(g, 3) ? inside(g, pick(g), a) : num(g, 0);
  Type t = type_in(g, a);
  if (g->o.smooth && !t.rank) return false;
  ValueId c = g->o.smooth ? position_condition(g, &t) : condition(g, a);
  bool swap = below(g, 2);
  return add(g, ir_where(g->m, g->f, c, swap ? b : a, swap ? a : b, (Loc){0}));
}

static bool make_cast(Gen *g) {
  if (g->o.smooth) return add(g, un(g, OP_copy, pick(g)));
  ValueId a = pick(g);
  return add(g, ir_cast(g->m, g->f, condition(g, a), ELEM_f32, (Loc){0}));
}

static bool make_stop(Gen *g) {
  if (g->o.smooth && g->o.loss) return false; /* differences see through it */
  return add(g, un(g, OP_stop, pick(g)));
}

/* ---- reductions ---- */
static int some_dims(Gen *g, const Type *t, Str *dims) {
  int n = 0;
  for (int i = 0; i < t->rank; i++)
    if (below(g, 2)) dims[n++] = t->axis[i].dim;
  if (!n && t->rank) dims[n++] = t->axis[below(g, (uint32_t)t->rank)].dim;
  return n;
}

static bool make_reduce(Gen *g) {
  static const OpCode any[] = {OP_sum, OP_sum, OP_rmax, OP_rmin};
  ValueId a = pick(g);
  Type t = type_in(g, a);
  Str dims[MAX_RANK];
  int n = some_dims(g, &t, dims);
  if (!n) return false;
  OpCode c = any[below(g, g->o.smooth ? 2 : 4)];
  ValueId v = ir_reduce(g->m, g->f, c, a, n, dims, (Loc){0});
  return add(g, below(g, 2) ? un(g, OP_tanh, v) : v);
}

static ValueId emit(Gen *g, OpCode c, uint32_t n, const ValueId *in, const Group *groups,
                    int ngroups, Type t) {
  Op *o = fn_op(g->m, g->f, c, n, in, 1, &t, (Loc){0});
  for (int i = 0; i < ngroups; i++) op_add_group(g->m, o, groups[i]);
  return o->out;
}

static AttrList *last_attrs(Gen *g) { return &vec_last(g->f->ops).attrs; }

static bool make_cumsum(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  if (!t.rank) return false;
  Group d = group_dims(1, &t.axis[below(g, (uint32_t)t.rank)].dim);
  ValueId v = emit(g, OP_cumsum, 1, &a, &d, 1, t);
  if (below(g, 2)) attr_set_int(g->m, last_attrs(g), ATTR_inverse, 1);
  return add(g, un(g, OP_tanh, v));
}

/* ---- structure ---- */
static bool make_expand(Gen *g) {
  ValueId a = pick(g);
  Axis d = dim(g, below(g, DIMS));
  Type t = type_in(g, a);
  if (type_find(&t, d.dim) >= 0 || d.dim == g->without || t.rank > 3) return false;
  return add(g, ir_expand(g->m, g->f, a, 1, &d, (Loc){0}));
}

/* A dim that t lacks. A name has one size, so that values of different origin fit together. */
static Str fresh_name(Gen *g, const Type *t, int64_t size) {
  for (uint32_t i = 0;; i++) {
    Str s = intern_printf(g->m->ctx->names, "%c%d", 'P' + (int)i, (int)size);
    if (type_find(t, s) < 0) return s;
  }
}

static bool make_rename(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  if (!t.rank) return false;
  Axis d = t.axis[below(g, (uint32_t)t.rank)];
  for (uint32_t i = 0; i < DIMS; i++) {
    Axis to = dim(g, i);
    if (to.size == d.size && to.dim != d.dim && type_find(&t, to.dim) < 0 && to.dim != g->without)
      return add(g, ir_rename(g->m, g->f, a, d.dim, to.dim, (Loc){0}));
  }
  Str to = fresh_name(g, &t, d.size);
  ValueId b = un(g, OP_sin, ir_rename(g->m, g->f, a, d.dim, to, (Loc){0}));
  return add(g, ir_rename(g->m, g->f, b, to, d.dim, (Loc){0}));
}

/* Cut and put together again, with something between. */
static bool make_split(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  for (int i = 0; i < t.rank; i++) {
    if (t.axis[i].size % 2 || t.rank >= MAX_RANK) continue;
    Str d = t.axis[i].dim, to[2];
    Type cut = t;
    to[0] = fresh_name(g, &t, t.axis[i].size / 2), cut.axis[i] = (Axis){to[0], t.axis[i].size / 2};
    to[1] = fresh_name(g, &cut, 2), cut.axis[cut.rank++] = (Axis){to[1], 2};
    Group s = group_map(1, &d, 2, to), back = group_map(2, to, 1, &d);
    ValueId v = emit(g, OP_split, 1, &a, &s, 1, cut);
    v = ir_reduce(g->m, g->f, OP_sum, bin(g, OP_mul, v, v), 1, &to[below(g, 2)], (Loc){0});
    v = spread(g, un(g, OP_tanh, v), &cut);
    return add(g, emit(g, OP_merge, 1, &v, &back, 1, t));
  }
  return false;
}

static bool make_slice_pad(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  if (!t.rank) return false;
  int i = (int)below(g, (uint32_t)t.rank);
  Str d = t.axis[i].dim;
  int64_t size = 1 + below(g, (uint32_t)t.axis[i].size),
          at = below(g, (uint32_t)(t.axis[i].size - size + 1));
  Str part = fresh_name(g, &t, size);
  Type s = t;
  s.axis[i] = (Axis){part, size};
  Group down = group_map(1, &d, 1, &part), up = group_map(1, &part, 1, &d);
  ValueId v = emit(g, OP_slice, 1, &a, &down, 1, s);
  attr_set_int(g->m, last_attrs(g), ATTR_at, at);
  v = emit(g, OP_pad, 1, (ValueId[]){un(g, OP_sin, v)}, &up, 1, t);
  attr_set_int(g->m, last_attrs(g), ATTR_at, below(g, (uint32_t)(t.axis[i].size - size + 1)));
  attr_set_float(g->m, last_attrs(g), ATTR_fill, below(g, 2) ? 0 : 0.5);
  return add(g, v);
}

static bool make_shift(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  if (!t.rank) return false;
  Group d = group_dims(1, &t.axis[below(g, (uint32_t)t.rank)].dim);
  ValueId v = emit(g, OP_shift, 1, &a, &d, 1, t);
  attr_set_int(g->m, last_attrs(g), ATTR_by, (int64_t)below(g, 5) - 2);
  attr_set_float(g->m, last_attrs(g), ATTR_fill, 0.25);
  return add(g, v);
}

static bool make_stack(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  uint32_t n = 1 + below(g, 3);
  Str d = fresh_name(g, &t, n);
  if (t.rank > 4 || type_count(&t) * n > MOST_ELEMENTS) return false;
  ValueId parts[3] = {a};
  for (uint32_t i = 1; i < n; i++) parts[i] = fit(g, pick(g), &t);
  Type all = type_of(t.elem, 1, &(Axis){d, n});
  for (int i = 0; i < t.rank; i++) all.axis[all.rank++] = t.axis[i];
  Group s = group_dims(1, &d);
  ValueId v = un(g, OP_sin, emit(g, OP_stack, n, parts, &s, 1, all));
  Type types[3] = {t, t, t};
  Op *o = fn_op(g->m, g->f, OP_unstack, 1, &v, n, types, (Loc){0});
  op_add_group(g->m, o, s);
  ValueId first = o->out, last = o->out + n - 1;
  return add(g, bin(g, OP_add, first, last));
}

static bool make_concat(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  if (!t.rank) return false;
  int i = (int)below(g, (uint32_t)t.rank);
  Type all = t;
  Str parts[2] = {t.axis[i].dim, t.axis[i].dim}, to = fresh_name(g, &t, 2 * t.axis[i].size);
  all.axis[i] = (Axis){to, 2 * t.axis[i].size};
  if (type_count(&all) > MOST_ELEMENTS) return false;
  ValueId in[2] = {a, fit(g, pick(g), &t)};
  Group c = group_map(2, parts, 1, &to), s = group_map(1, &to, 1, parts);
  ValueId v = un(g, OP_sin, emit(g, OP_concat, 2, in, &c, 1, all));
  v = emit(g, OP_slice, 1, &v, &s, 1, t);
  attr_set_int(g->m, last_attrs(g), ATTR_at, below(g, (uint32_t)t.axis[i].size + 1));
  return add(g, v);
}

static void scale_frequencies(Module *m, AttrList *attrs, int64_t ramp) {
  attr_set_float(m, attrs, ATTR_factor, 4), attr_set_float(m, attrs, ATTR_original, 16);
  attr_set_float(m, attrs, ATTR_slow, 0.5), attr_set_float(m, attrs, ATTR_fast, 2);
  attr_set_int(m, attrs, ATTR_ramp, ramp);
}

static bool make_rope(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a);
  for (int i = 0; i < t.rank; i++)
    for (int j = 0; j < t.rank; j++) {
      if (i == j || t.axis[j].size % 2) continue;
      Group d[2] = {group_dims(1, &t.axis[i].dim), group_dims(1, &t.axis[j].dim)};
      ValueId v = emit(g, OP_rope, 1, &a, d, 2, t);
      attr_set_float(g->m, last_attrs(g), ATTR_theta, 100);
      if (below(g, 2)) scale_frequencies(g->m, last_attrs(g), below(g, 4));
      return add(g, v);
    }
  return false;
}

/* ---- contraction, indexed, attention ---- */
static bool make_dot(Gen *g) {
  ValueId a = pick(g), b = pick(g);
  Type ta = type_in(g, a), tb = type_in(g, b);
  Str dims[MAX_RANK];
  int n = 0;
  int64_t size = type_count(&ta);
  for (int i = 0; i < tb.rank; i++)
    if (type_find(&ta, tb.axis[i].dim) < 0) size *= tb.axis[i].size;
    else if (below(g, 2)) dims[n++] = tb.axis[i].dim;
  if (!n || size > 8 * MOST_ELEMENTS || ta.rank + tb.rank > MAX_RANK) return false;
  return add(g, un(g, OP_tanh, ir_dot(g->m, g->f, a, b, n, dims, (Loc){0})));
}

/* An index of a dim of that size over a dim or two that differ from it. */
static ValueId some_index(Gen *g, Axis v, const Type *over) {
  ValueId i = ir_iota(g->m, g->f, over->axis[0], (Loc){0});
  i = bin(g, OP_add, i,
          ir_const(g->m, g->f, ELEM_i32, (double)below(g, (uint32_t)v.size) - 1, (Loc){0}));
  if (over->rank < 2) return i;
  ValueId j = ir_iota(g->m, g->f, over->axis[1], (Loc){0});
  return bin(g, OP_add, ir_expand(g->m, g->f, i, 1, &over->axis[1], (Loc){0}), j);
}

static bool make_gather(Gen *g) {
  ValueId w = pick(g);
  Type t = type_in(g, w), over = random_type(g, 2);
  if (!t.rank || !over.rank) return false;
  Axis v = t.axis[below(g, (uint32_t)t.rank)];
  if (type_find(&over, v.dim) >= 0) return false;
  ValueId i = some_index(g, v, &over);
  if (below(g, 4) == 0) i = ir_iota(g->m, g->f, over.axis[0], (Loc){0});
  return add(g, ir_gather(g->m, g->f, w, i, v.dim, (Loc){0}));
}

/* The score of some rows' label, and a computation from it over more than its dim. */
static bool make_margin(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a), by = type_scalar(ELEM_i32);
  Str dims[MAX_RANK];
  int n = 0;
  if (t.rank < 2) return false;
  int v = (int)below(g, (uint32_t)t.rank);
  int b = (v + 1 + (int)below(g, (uint32_t)t.rank - 1)) % t.rank;
  by.axis[by.rank++] = t.axis[b];
  ValueId u = ir_gather(g->m, g->f, a, some_index(g, t.axis[v], &by), t.axis[v].dim, (Loc){0});
  ValueId d = un(g, OP_sin, bin(g, OP_sub, a, u));
  for (int i = 0; i < t.rank; i++)
    if (i != b && (i == v || below(g, 2))) dims[n++] = t.axis[i].dim;
  return add(g, un(g, OP_tanh, ir_reduce(g->m, g->f, OP_sum, d, n, dims, (Loc){0})));
}

static bool make_one_hot(Gen *g) {
  ValueId a = pick(g);
  Type t = type_in(g, a), by = type_scalar(ELEM_i32);
  if (t.rank < 2) return false;
  int v = (int)below(g, (uint32_t)t.rank);
  by.axis[by.rank++] = t.axis[(v + 1) % t.rank];
  ValueId i = ir_expand(g->m, g->f, some_index(g, t.axis[v], &by), 1, &t.axis[v], (Loc){0});
  ValueId here = bin(g, OP_eq, i, ir_iota(g->m, g->f, t.axis[v], (Loc){0}));
  return add(g, bin(g, OP_mul, a, ir_cast(g->m, g->f, here, ELEM_f32, (Loc){0})));
}

static bool make_scatter(Gen *g) {
  ValueId x = pick(g);
  Type t = type_in(g, x), over = type_scalar(ELEM_f32);
  if (!t.rank) return false;
  over.axis[over.rank++] = t.axis[below(g, (uint32_t)t.rank)];
  int64_t size = 1 + below(g, 4);
  Axis to = {fresh_name(g, &t, size), size};
  ValueId i = some_index(g, to, &over);
  Type r = type_without(&t, &over.axis[0].dim, 1);
  r.axis[r.rank++] = to;
  Group d = group_map(1, &over.axis[0].dim, 1, &to.dim);
  ValueId args[] = {x, i};
  return add(g, emit(g, OP_scatter, 2, args, &d, 1, r));
}

static ValueId of_keys(Gen *g, const Type *t, Str seq, Str key) {
  return ir_rename(g->m, g->f, fit(g, pick(g), t), seq, key, (Loc){0});
}

static bool make_attention(Gen *g) {
  ValueId q = pick(g);
  Type t = type_in(g, q);
  if (t.rank < 2) return false;
  Str seq = t.axis[0].dim, d = t.axis[1].dim, key = fresh_name(g, &t, t.axis[0].size);
  Type out[2] = {t, type_without(&t, &d, 1)};
  ValueId args[6] = {q, of_keys(g, &t, seq, key), of_keys(g, &t, seq, key)};
  uint32_t n = 3;
  if (below(g, 2)) {
    Axis a = {key, t.axis[0].size};
    ValueId i = ir_expand(g->m, g->f, ir_iota(g->m, g->f, t.axis[0], (Loc){0}), 1, &a, (Loc){0});
    args[n++] = bin(g, below(g, 2) ? OP_lt : OP_le, ir_iota(g->m, g->f, a, (Loc){0}), i);
  }
  bool drops = below(g, 4) == 0;
  ValueId some = of_keys(g, &out[1], seq, key), bit = bin(g, OP_lt, some, un(g, OP_neg, some));
  if (drops) args[n++] = ir_cast(g->m, g->f, bit, ELEM_i32, (Loc){0});
  if (below(g, 3) == 0) args[n++] = some;
  Op *o = fn_op(g->m, g->f, OP_attention, n, args, 2, out, (Loc){0});
  op_add_group(g->m, o, group_map(1, &seq, 1, &key)), op_add_group(g->m, o, group_dims(1, &d));
  attr_set_float(g->m, &o->attrs, ATTR_scale, 0.7);
  if (drops || !below(g, 3)) attr_set_float(g->m, &o->attrs, drops ? ATTR_drop : ATTR_cap, 0.75);
  return add(g, o->out);
}

/* ---- loops ---- */
static void grow(Gen *g, int ops);

static ValueId loop_operand(Gen *g, Axis d, bool stacked) {
  ValueId v = pick(g);
  Type t = type_in(g, v);
  if (type_find(&t, d.dim) >= 0) t = type_without(&t, &d.dim, 1);
  v = fit(g, v, &t);
  return stacked ? ir_expand(g->m, g->f, un(g, OP_sin, v), 1, &d, (Loc){0}) : v;
}

typedef struct LoopDraft {
  uint32_t carry, invariant, stacked, extra;
  ValueId in[12];
  Axis d;
} LoopDraft;

static Fn *draw_body(Gen *g, const LoopDraft *l) {
  Gen b = *g;
  b.f = fn_new(g->m, FN_BODY, intern(g->m->ctx->names, "body"));
  b.pool.at = NULL, b.pool.n = b.pool.cap = 0, b.depth--, b.without = l->d.dim;
  ValueId counter = fn_arg(g->m, b.f, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < l->carry + l->invariant + l->stacked; i++) {
    Type t = type_in(g, l->in[i]);
    if (i >= l->carry + l->invariant) t = type_without(&t, &l->d.dim, 1);
    add(&b, fn_arg(g->m, b.f, t));
  }
  ValueId c = ir_cast(g->m, b.f, counter, ELEM_f32, (Loc){0});
  add(&b, ir_binary(g->m, b.f, OP_mul, c, num(&b, 0.25), (Loc){0}));
  grow(&b, g->o.ops / 2);
  for (uint32_t i = 0; i < l->carry; i++) {
    Type t = type_in(g, l->in[i]);
    fn_result(g->m, b.f, below(g, 5) ? fit(&b, pick(&b), &t) : b.f->args.at[i + 1]);
  }
  for (uint32_t i = 0; i < l->extra; i++) fn_result(g->m, b.f, pick(&b));
  b.f->name =
      intern_printf(g->m->ctx->names, "body%u", g->m->fns.n); /* nested bodies exist already */
  module_add(g->m, b.f);
  return b.f;
}

static void emit_drawn(Gen *g, const LoopDraft *l, Fn *body) {
  Type out[8];
  for (uint32_t i = 0; i < l->carry + l->extra; i++) {
    const Type *t = value_type(body, body->results.at[i]);
    out[i] = i < l->carry ? type_in(g, l->in[i]) : type_of(t->elem, 1, &l->d);
    for (int k = 0; i >= l->carry && k < t->rank; k++) out[i].axis[out[i].rank++] = t->axis[k];
  }
  uint32_t nin = l->carry + l->invariant + l->stacked;
  Op *o = fn_op(g->m, g->f, OP_loop, nin, l->in, l->carry + l->extra, out, (Loc){0});
  op_add_group(g->m, o, group_dims(1, &l->d.dim));
  attr_set_int(g->m, &o->attrs, ATTR_carry, l->carry);
  attr_set_int(g->m, &o->attrs, ATTR_invariant, l->invariant);
  attr_set_int(g->m, &o->attrs, ATTR_trip, l->d.size);
  if (below(g, 2)) attr_set_int(g->m, &o->attrs, ATTR_reverse, 1);
  o->callee = body;
  for (uint32_t i = 0, first = o->out; i < l->carry + l->extra; i++)
    if (i < l->carry || g->depth == g->o.loops) add(g, first + i);
}

static bool make_loop(Gen *g) {
  if (g->depth <= 0) return false;
  LoopDraft l = {1 + below(g, 2), below(g, 3), below(g, 3), below(g, 3), {0}, dim(g, below(g, 3))};
  if (l.d.dim == g->without) return false;
  for (uint32_t i = 0; i < l.carry + l.invariant + l.stacked; i++)
    l.in[i] = loop_operand(g, l.d, i >= l.carry + l.invariant);
  Fn *body = draw_body(g, &l);
  emit_drawn(g, &l, body);
  return true;
}

static Maker *const makers[] = {
    make_unary,     make_unary,  make_positive, make_exp,       make_erfinv,   make_pow,
    make_binary,    make_binary, make_binary,   make_div,       make_constant, make_constant,
    make_where,     make_cast,   make_stop,     make_reduce,    make_reduce,   make_cumsum,
    make_expand,    make_rename, make_split,    make_slice_pad, make_shift,    make_stack,
    make_concat,    make_rope,   make_dot,      make_dot,       make_gather,   make_scatter,
    make_attention, make_margin, make_one_hot,
};

static void grow(Gen *g, int ops) {
  for (int i = 0; i < ops; i++) makers[below(g, sizeof makers / sizeof *makers)](g);
  if (g->depth > 0) make_loop(g);
}

/* ---- the module ---- */
static void load_globals(Gen *g) {
  for (uint32_t i = 0; i < 5; i++) {
    bool param = i < 3;
    Str name = intern_printf(g->m->ctx->names, "%s%u", param ? "w" : "x", i);
    Global *v = module_add_global(g->m, param ? GLOBAL_PARAM : GLOBAL_INPUT, name,
                                  random_type(g, 3), (Loc){0});
    add(g, ir_load(g->m, g->f, v, (Loc){0}));
  }
}

static ValueId weighted(Gen *g, ValueId y, uint32_t number) {
  Type t = type_in(g, y);
  Str name = intern_printf(g->m->ctx->names, "c%u", number), dims[MAX_RANK];
  Global *c = module_add_global(g->m, GLOBAL_INPUT, name, t, (Loc){0});
  for (int i = 0; i < t.rank; i++) dims[i] = t.axis[i].dim;
  ValueId v = bin(g, OP_mul, y, ir_load(g->m, g->f, c, (Loc){0}));
  return ir_reduce(g->m, g->f, OP_sum, v, t.rank, dims, (Loc){0});
}

static void store_outputs(Gen *g) {
  ValueId sum = NO_VALUE;
  for (uint32_t i = 0; i < 2 + below(g, 3); i++) {
    ValueId y = g->pool.at[g->pool.n - 1 - below(g, g->pool.n < 8 ? g->pool.n : 8)];
    Str name = intern_printf(g->m->ctx->names, "y%u", i);
    ir_store(g->m, g->f, module_add_global(g->m, GLOBAL_OUTPUT, name, type_in(g, y), (Loc){0}), y,
             (Loc){0});
    if (!g->o.loss) continue;
    ValueId s = weighted(g, y, i);
    sum = sum == NO_VALUE ? s : bin(g, OP_add, sum, s);
  }
  if (!g->o.loss) return;
  Str name = intern(g->m->ctx->names, "loss");
  ir_store(g->m, g->f,
           module_add_global(g->m, GLOBAL_OUTPUT, name, type_scalar(ELEM_f32), (Loc){0}), sum,
           (Loc){0});
}

Module *random_module(Ctx *c, uint64_t seed, RandomOptions o) {
  Random r = {seed * 0x2545f4914f6cdd1du + 1};
  Gen g = {.m = module_new(c), .r = &r, .o = o, .depth = o.loops};
  g.m->model = intern_printf(c->names, "Random%d", (int)seed);
  g.f = fn_new(g.m, FN_ENTRY, intern(c->names, "step"));
  load_globals(&g);
  grow(&g, o.ops);
  if (o.loops && below(&g, 2)) make_loop(&g);
  store_outputs(&g);
  module_add(g.m, g.f);
  return g.m;
}
