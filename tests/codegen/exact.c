/* The exact twin of a kernel has its family, cut and types, and in place of ops that round others
   of as many operands that do not: a function becomes the negative, a quotient the product, and a
   product whose size f32 could not hold a difference or a maximum; constants become short ones. Its
   operands are small whole numbers. Then each value is a whole multiple of 2^-s that has as many
   digits as its type, sums are the same in any order, and machine code and interpreter agree in
   every bit: index arithmetic, tiles, splits, lists, predicates and edges are compared without a
   tolerance.

   Attention has a scale of 2048 in powers of two, and larger whole numbers in queries and keys: the
   weight of a row's largest score is 1, those of all others are 0, and equal scores share it, up to
   the last digit of 2^0. Its gradient, whose differences cancel for such weights, has no twin. Must
   not: change what decides how a kernel is cut or emitted. */
#include "exact.h"
#include <math.h>

typedef struct Reach { /* of a value: multiples of 2^-steps */
  double most;
  int steps;
} Reach;

typedef struct Twin {
  Module *m;
  Fn *k;
  Reach *reach; /* by value */
  bool exact;
} Twin;

static int digits_of(Elem e) {
  if (elem_class(e) != CLASS_FLOAT) return 31;
  return e == ELEM_bf16 ? 8 : e == ELEM_f16 ? 11 : 24;
}

/* A result that no op reads is rounded once, by whoever computes it. */
static bool is_read(const Fn *k, ValueId v) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    for (uint32_t j = 0; j < k->ops.at[i].nin; j++)
      if (k->ops.at[i].in[j] == v) return true;
  return false;
}

static bool holds(const Twin *twin, ValueId v, Reach reach) {
  Elem e = value_type(twin->k, v)->elem;
  int digits = digits_of(e);
  if (digits < 24 && !is_read(twin->k, v)) digits = 24;
  return ldexp(reach.most, reach.steps) <= ldexp(1, digits);
}

static Reach larger(Reach a, Reach b) {
  return (Reach){fmax(a.most, b.most), a.steps > b.steps ? a.steps : b.steps};
}

static Reach sum_of(Reach a, Reach b) {
  return (Reach){a.most + b.most, a.steps > b.steps ? a.steps : b.steps};
}

static Reach product_of(Reach a, Reach b) { return (Reach){a.most * b.most, a.steps + b.steps}; }

static Reach times(Reach a, int64_t n) { return (Reach){a.most * (double)n, a.steps}; }

/* ---- constants ---- */

static Reach reach_of(double x) {
  Reach reach = {fabs(x), 0};
  while (ldexp(x, reach.steps) != trunc(ldexp(x, reach.steps))) reach.steps++;
  return reach;
}

/* In place of a number with many digits, a short one that is not 0 or 1. */
static double short_number(double x, uint32_t i) {
  static const double others[] = {2, -1.5, 0.5, 3, -2.5};
  bool is_short = fabs(x) <= 8 && ldexp(x, 2) == trunc(ldexp(x, 2));
  return is_short ? x : others[i % (sizeof others / sizeof *others)];
}

static Reach shorten(Twin *twin, Op *op, AttrKey key, uint32_t i) {
  const Attr *attr = attr_get(&op->attrs, key);
  if (!attr) return (Reach){0, 0};
  double number = short_number(attr_float(&op->attrs, key, 0), i);
  attr_set_float(twin->m, &op->attrs, key, number);
  return reach_of(number);
}

static Reach source(Twin *twin, Op *op, uint32_t i) {
  const Type *t = value_type(twin->k, op->out);
  if (op->code == OP_iota) return (Reach){(double)type_count(t), 0};
  if (op->code == OP_rand) return (Reach){1, 24};
  if (elem_class(t->elem) == CLASS_FLOAT) return shorten(twin, op, ATTR_value, i);
  return (Reach){fabs(attr_float(&op->attrs, ATTR_value, 0)), 0};
}

/* ---- element-wise ops ---- */

static Reach of_two(Twin *twin, Op *op, Reach a, Reach b) {
  Reach reach;
  if (op->code == OP_div) op->code = OP_mul;
  if (op->code == OP_mul && holds(twin, op->out, reach = product_of(a, b))) return reach;
  if (op->code == OP_mul) op->code = OP_sub;
  if (holds(twin, op->out, reach = sum_of(a, b))) return reach;
  op->code = OP_max;
  return larger(a, b);
}

static Reach element_wise(Twin *twin, Op *op) {
  Reach in[3] = {{0}};
  Elem from = value_type(twin->k, op->in[0])->elem, to = value_type(twin->k, op->out)->elem;
  for (uint32_t i = 0; i < op->nin && i < 3; i++) in[i] = twin->reach[op->in[i]];
  switch (op->code) {
  case OP_add:
  case OP_sub:
  case OP_mul:
  case OP_div:
    if (elem_class(to) != CLASS_FLOAT) return product_of(sum_of(in[0], in[1]), in[1]);
    return of_two(twin, op, in[0], in[1]);
  case OP_min:
  case OP_max: return larger(in[0], in[1]);
  case OP_where: return larger(in[1], in[2]);
  case OP_lt:
  case OP_le:
  case OP_eq:
  case OP_and:
  case OP_or:
  case OP_lookup:
  case OP_not:
  case OP_sign: return (Reach){1, 0};
  case OP_floor: return (Reach){in[0].most + 1, 0};
  case OP_cast:
    return elem_class(from) == CLASS_FLOAT && elem_class(to) != CLASS_FLOAT ? (Reach){in[0].most, 0}
                                                                            : in[0];
  case OP_neg:
  case OP_abs:
  case OP_copy:
  case OP_wide:
  case OP_stop: return in[0];
  default: op->code = OP_neg; return in[0];
  }
}

/* ---- sums and moved indexes ---- */

/* Elements of the operand for one of the result. */
static int64_t summed(const Twin *twin, const Op *op) {
  int64_t n = type_count(value_type(twin->k, op->in[0]));
  if (op->code == OP_scatter || op->code == OP_cumsum) return n;
  return op->code == OP_sum ? n / type_count(value_type(twin->k, op->out)) : 1;
}

static Reach contracted(const Twin *twin, const Op *op) {
  const Type *left = value_type(twin->k, op->in[0]);
  int64_t n = 1;
  for (int i = 0; i < op->group[0].nfrom; i++) n *= type_size(left, op->group[0].from[i]);
  return times(product_of(twin->reach[op->in[0]], twin->reach[op->in[1]]), n);
}

static Reach moved(Twin *twin, Op *op, uint32_t i) {
  Reach reach = shorten(twin, op, ATTR_fill, i);
  if (op->code == OP_rope) twin->exact = false;
  if (op->code == OP_pack_bits || op->code == OP_unpack_bits) return (Reach){255, 0};
  for (uint32_t k = 0; k < op->nin; k++) reach = larger(reach, twin->reach[op->in[k]]);
  return reach;
}

/* Queries and keys as they are stored. */
static Reach attended(Twin *twin, Op *op) {
  enum { POWERS = 2048 };
  attr_set_float(twin->m, &op->attrs, ATTR_scale, POWERS * M_LN2);
  for (uint32_t i = 0; i < 2; i++) twin->exact &= exact_is_scored(twin->k, op->in[i]);
  return (Reach){twin->reach[op->in[2]].most, 2 + twin->reach[op->in[2]].steps};
}

static Reach any(Twin *twin, Op *op, uint32_t i) {
  switch (op_family(op->code)) {
  case FAMILY_SOURCE: return source(twin, op, i);
  case FAMILY_ELEM: return element_wise(twin, op);
  case FAMILY_STRUCT: return moved(twin, op, i);
  case FAMILY_CONTRACT: return contracted(twin, op);
  case FAMILY_REDUCE:
    if (op->code == OP_argmax)
      return (Reach){(double)type_count(value_type(twin->k, op->in[0])), 0};
    return times(twin->reach[op->in[0]], summed(twin, op));
  case FAMILY_SCAN:
  case FAMILY_SCATTER: return times(twin->reach[op->in[0]], summed(twin, op));
  case FAMILY_GATHER: return twin->reach[op->in[0]];
  case FAMILY_ATTENTION:
    if (op->code == OP_attention) return attended(twin, op);
    twin->exact = false;
    return (Reach){0, 0};
  default: twin->exact = false; return (Reach){0, 0};
  }
}

bool exact_is_scored(const Fn *k, ValueId v) {
  bool scored = false;
  for (uint32_t i = 0; i < k->args.n; i++) scored |= k->args.at[i] == v;
  for (uint32_t i = 0; i < k->ops.n && scored; i++) {
    const Op *op = &k->ops.at[i];
    for (uint32_t j = 0; j < op->nin; j++)
      if (op->in[j] == v && (op->code != OP_attention || j > 1)) return false;
  }
  return scored;
}

bool exact_is_attended(const Fn *k, ValueId v) {
  const Op *op = value_def(k, v);
  return op && op->code == OP_attention;
}

bool exact_twin(Module *m, Fn *k) {
  Twin twin = {m, k, ARENA_ARRAY(m->arena, Reach, k->values.n + 1), true};
  for (uint32_t i = 0; i < k->args.n; i++) {
    Elem e = value_type(k, k->args.at[i])->elem;
    ElemClass class = elem_class(e);
    twin.reach[k->args.at[i]] = (Reach){class == CLASS_FLOAT  ? EXACT_MOST
                                        : class == CLASS_BOOL ? 1
                                        : class == CLASS_BYTE ? 255
                                                              : 9,
                                        0};
  }
  for (uint32_t i = 0; i < k->ops.n && twin.exact; i++) {
    Op *op = &k->ops.at[i];
    Reach reach = any(&twin, op, i);
    for (uint32_t j = 0; j < op->nout; j++) {
      twin.reach[op->out + j] = reach;
      if (value_is_float(k, op->out + j) && !exact_is_attended(k, op->out + j))
        twin.exact &= holds(&twin, op->out + j, reach);
    }
  }
  return twin.exact;
}
