/* Sources and element-wise ops. One scalar function per op, in a table; the loop over elements is
 * the same for all. */
#include "interp_inside.h"
#include "ir/eights.h"
#include "ir/mask/lookup.h"
#include "ir/support/philox.h"
#include <math.h>

#define FUNCTION(name, value, gradient, low, high, error, at, is, meaning)                         \
  static double do_##name(double a) { return value; }
#include "ir/functions.def"
#undef FUNCTION
static double do_neg(double a) { return -a; }
static double do_same(double a) { return a; }
static double do_sign(double a) { return a > 0 ? 1 : a < 0 ? -1 : a; }
static double do_not(double a) { return a == 0; }
static double do_add(double a, double b) { return a + b; }
static double do_sub(double a, double b) { return a - b; }
static double do_mul(double a, double b) { return a * b; }
static double do_div(double a, double b) { return a / b; }
/* A NaN in either operand is the result; of equal ones the first. */
static double do_min(double a, double b) { return b < a || isnan(b) ? b : a; }
static double do_max(double a, double b) { return b > a || isnan(b) ? b : a; }
static double do_lt(double a, double b) { return a < b; }
static double do_le(double a, double b) { return a <= b; }
static double do_eq(double a, double b) { return a == b; }
static double do_and(double a, double b) { return a != 0 && b != 0; }
static double do_or(double a, double b) { return a != 0 || b != 0; }

double real_logaddexp(double a, double b) {
  double most = a > b || isnan(a) ? a : b;
  return isinf(most) ? most : most + log1p(exp(-fabs(a - b)));
}

/* A first guess from the tail's asymptote, good for the sign and the size, then Newton steps on
   erf(x) - a; near the ends on erfc, which keeps its digits for small values. */
static double do_erfinv(double a) {
  if (!(fabs(a) < 1)) return fabs(a) == 1 ? copysign(INFINITY, a) : NAN;
  double l = log1p(-a * a), k = 2 / (M_PI * 0.147) + l / 2;
  double x = copysign(sqrt(sqrt(k * k - l / 0.147) - k), a);
  for (int i = 0; i < 4; i++) {
    double error = fabs(a) < 0.5 ? erf(x) - a : (1 - fabs(a) - erfc(fabs(x))) * (a < 0 ? -1 : 1);
    double u = error / (2 / sqrt(M_PI) * exp(-x * x));
    x -= u / (1 + x * u);
  }
  return x;
}

static double (*const unary[OP_COUNT])(double) = {
#define FUNCTION(name, value, gradient, low, high, error, at, is, meaning) [OP_##name] = do_##name,
#include "ir/functions.def"
#undef FUNCTION
    [OP_neg] = do_neg,   [OP_abs] = fabs,     [OP_erfinv] = do_erfinv, [OP_sign] = do_sign,
    [OP_floor] = floor,  [OP_not] = do_not,   [OP_cast] = do_same,     [OP_copy] = do_same,
    [OP_stop] = do_same, [OP_wide] = do_same, [OP_estimate] = do_same, [OP_share] = do_same,
};

static double (*const binary[OP_COUNT])(double, double) = {
    [OP_add] = do_add, [OP_sub] = do_sub, [OP_mul] = do_mul, [OP_div] = do_div,
    [OP_min] = do_min, [OP_max] = do_max, [OP_lt] = do_lt,   [OP_le] = do_le,
    [OP_eq] = do_eq,   [OP_and] = do_and, [OP_or] = do_or,   [OP_logaddexp] = real_logaddexp,
};

/* ---- in a field ---- */

static double field_neg(double a) { return field_sub(0, a); }
static double field_abs(double a) { return field_mul(a, field_sign(a)); }
static double field_min(double a, double b) { return field_less(b, a) || isnan(b) ? b : a; }
static double field_max(double a, double b) { return field_less(a, b) || isnan(b) ? b : a; }
static double field_lt(double a, double b) { return field_less(a, b); }
static double field_le(double a, double b) { return a == b || field_less(a, b); }

/* exp(a - b) = exp(a) / exp(b), where a or b is the logarithm of a sum of exponentials: by this law
   pass `decode` merges two pieces of a softmax. */
static double field_exp(double a) {
  return field_is_log(a) ? field_unlog(a) : field_function(OP_exp, a, exp);
}
static bool has_law(double a, double b) {
  return (field_is_log(a) || field_is_log(b)) && isfinite(a) && isfinite(b);
}
static double field_minus(double a, double b) {
  return has_law(a, b) ? field_log(field_div(field_exp(a), field_exp(b))) : field_sub(a, b);
}
static double field_most(double a, double b) {
  if (!has_law(a, b)) return field_max(a, b);
  return field_less(field_exp(a), field_exp(b)) ? b : a;
}

double field_logaddexp(double a, double b) {
  if (a == -INFINITY || b == -INFINITY) return a == -INFINITY ? b : a; /* no terms */
  return field_log(field_add(field_exp(a), field_exp(b)));
}

static double (*const field_unary[OP_COUNT])(double) = {
    [OP_neg] = field_neg, [OP_abs] = field_abs, [OP_sign] = field_sign, [OP_cast] = do_same,
    [OP_copy] = do_same,  [OP_stop] = do_same,  [OP_wide] = do_same,    [OP_estimate] = do_same,
    [OP_share] = do_same, [OP_exp] = field_exp,
};

static double (*const field_binary[OP_COUNT])(double, double) = {
    [OP_add] = field_add, [OP_sub] = field_minus, [OP_mul] = field_mul,
    [OP_div] = field_div, [OP_min] = field_min,   [OP_max] = field_most,
    [OP_lt] = field_lt,   [OP_le] = field_le,     [OP_logaddexp] = field_logaddexp,
};

/* Powers of numbers, and else a function of its own for each exponent. */
static double field_pow(const Op *op, double x) {
  enum { MOST = 64 };
  double exponent = attr_float(&op->attrs, ATTR_value, 1);
  if (exponent == trunc(exponent) && fabs(exponent) <= MOST)
    return field_power(x, (int64_t)exponent);
  return field_function(OP_COUNT + (uint64_t)field_of(exponent), x, fabs);
}

/* A whole number that an element stands for where an op makes an index of it. */
static double index_of(double x) {
  enum { RANGE = 1 << 10 };
  return isfinite(x) ? (double)((uint64_t)field_random(OP_cast, (uint64_t)x) % RANGE) : x;
}

static double field_cast(const InterpRun *run, double x) {
  bool from = run_in_field(run, run_in(run, 0)->type.elem),
       to = run_in_field(run, run_out(run, 0)->type.elem);
  return from == to ? x : to ? field_of(x) : index_of(x);
}

/* 1 / sqrt(x) is that of sqrt: rules may replace one by the other. */
static double field_rsqrt(double x) { return field_div(1, field_function(OP_sqrt, x, sqrt)); }

static bool counts_as_infinite(const Interp *in, double x) {
  double which = in->infinite_number;
  return in->infinite && (isnan(which) || x == which || x == field_sub(0, which));
}

static double field_scalar(const InterpRun *run, const double *x) {
  const Op *op = run->op;
  if (op->code == OP_cast) return field_cast(run, x[0]);
  if (op->code == OP_lt && isinf(x[1]) && !run_out(run, 0)->type.rank &&
      counts_as_infinite(run->interp, x[0]))
    return 0;
  if (op->code == OP_pow) return field_pow(op, x[0]);
  if (op->code == OP_rsqrt) return field_rsqrt(x[0]);
  if (field_unary[op->code]) return field_unary[op->code](x[0]);
  if (field_binary[op->code]) return field_binary[op->code](x[0], x[1]);
  if (unary[op->code]) return field_function(op->code, x[0], unary[op->code]);
  return interp_scalar(op, x);
}

static bool is_of_field(const InterpRun *run) {
  return run_in_field(run, run_out(run, 0)->type.elem) ||
         run_in_field(run, run_in(run, 0)->type.elem);
}

/* ---- ops ---- */

double interp_scalar(const Op *op, const double *x) {
  if (op->code == OP_where) return x[0] != 0 ? x[1] : x[2];
  if (op->code == OP_lookup) return lookup_one(op, x[0], x[1]);
  if (op->code == OP_quantize) return eights_round(eights_format_of(op), x[0], x[1]);
  if (op->code == OP_pow) return pow(x[0], attr_float(&op->attrs, ATTR_value, 1));
  if (unary[op->code]) return unary[op->code](x[0]);
  if (binary[op->code]) return binary[op->code](x[0], x[1]);
  bug("the interpreter does not know op %s", op_name(op->code));
}

static double one_result(const InterpRun *run, bool field, const double *x) {
  const Interp *in = run->interp;
  if (run->op->code == OP_quantize && (field || !in->round || in->exact_codes)) return x[0];
  return field ? field_scalar(run, x) : interp_scalar(run->op, x);
}

typedef struct ElemRow { /* the operands along the last axis of the result */
  bool field;
  const LookupTable *table; /* of a lookup; else NULL */
  const double *at[3];
  int64_t step[3];
} ElemRow;

/* Result elements from the i-th on. */
static void run_row(InterpRun *run, const ElemRow *row, int64_t i, int64_t n) {
  Tensor *out = run_out(run, 0);
  double x[3] = {0};
  for (int64_t j = 0; j < n; j++) {
    for (uint32_t k = 0; k < run->op->nin; k++) x[k] = row->at[k][j * row->step[k]];
    double y = row->table ? lookup_bit(row->table, (int64_t)x[0], (int64_t)x[1])
                          : one_result(run, row->field, x);
    run_put(run, out, i + j, y);
  }
}

void run_elem(InterpRun *run) {
  const Type *space = &run_out(run, 0)->type;
  int64_t index[MAX_RANK] = {0}, i = 0, n = walk_row(space);
  Steps steps[3];
  bool looks = run->op->code == OP_lookup;
  LookupTable table = looks ? lookup_table(run->arena, run->op) : (LookupTable){0};
  ElemRow row = {.field = is_of_field(run), .table = looks ? &table : NULL};
  for (uint32_t k = 0; k < run->op->nin; k++) {
    steps[k] = steps_in(space, &run_in(run, k)->type);
    row.step[k] = steps_in_row(space, &steps[k]);
  }
  do {
    for (uint32_t k = 0; k < run->op->nin; k++)
      row.at[k] = run_in(run, k)->at + steps_at(space, &steps[k], index);
    run_row(run, &row, i, n);
    i += n;
  } while (walk_next_row(space, index));
}

static void run_rand(InterpRun *run) {
  Tensor *out = run_out(run, 0);
  Group group = run->op->ngroups ? run->op->group[0] : group_dims(0, NULL);
  const Attr *strides = attr_get(&run->op->attrs, ATTR_strides);
  uint64_t seed = (uint64_t)(int64_t)run_in(run, 0)->at[0],
           base = (uint64_t)(int64_t)run_in(run, 2)->at[0];
  uint32_t step = (uint32_t)(int64_t)run_in(run, 1)->at[0],
           key = (uint32_t)attr_int(&run->op->attrs, ATTR_key, 0);
  int64_t index[MAX_RANK] = {0}, i = 0;
  do {
    uint64_t at = base;
    for (int k = 0; k < group.nfrom; k++)
      at += (uint64_t)(index[type_find(&out->type, group.from[k])] * strides->list[k]);
    out->at[i++] = run_constant(run, out->type.elem, philox_uniform(seed, key, step, at));
  } while (walk_next(&out->type, index));
}

void run_source(InterpRun *run) {
  Tensor *out = run_out(run, 0);
  if (run->op->code == OP_rand) {
    run_rand(run);
  } else if (run->op->code == OP_iota) {
    for (int64_t i = 0; i < type_count(&out->type); i++) out->at[i] = (double)i;
  } else {
    run_put(run, out, 0,
            run_constant(run, out->type.elem, attr_float(&run->op->attrs, ATTR_value, 0)));
  }
}
