/* Attention and its gradient, row by row: a row is one query of one head of one batch element.

     s_k = scale * q . k_k + bias,  p = softmax over the keys that the mask admits,
     y = sum p_k v_k,  lse = log sum exp s_k
   with dy:  dv_k += p_k dy,  ds_k = p_k (dy . v_k - dy . y),  dq = scale sum ds_k k_k,
     dk_k += scale ds_k q

   With dropout, p_k of y and of dv_k, and dy . v_k, are 0 or larger by 1 / (1 - drop).

   k and v may lack dims of q (grouped heads): their gradients add up over those. A row without any
   key gives zeros and an lse of -inf. */
#include "interp_inside.h"
#include "ir/attention_operands.h"
#include <math.h>

typedef struct Heads {
  const Tensor *q, *k, *v, *mask, *kept, *bias, *sink;
  Type rows; /* q without D */
  Str key, dim;
  int64_t keys, width, key_stride, q_step, kv_step;
  int64_t *at_q, *at_kv; /* by row */
  int64_t *at_mask, *at_kept, *at_bias;
  int64_t mask_stride, kept_stride, bias_stride;
  double larger;            /* 1 / (1 - drop) */
  double scale, cap, uncap; /* cap and 1 / cap; 0: none */
  double *p, *slope;        /* [keys], of the current row: probabilities; d capped / d score */
  bool field;               /* numbers are elements of a field */
} Heads;

static Heads heads_of(InterpRun *run) {
  Heads heads = {.q = run_in(run, 0), .k = run_in(run, 1), .v = run_in(run, 2)};
  const Tensor **further[] = {&heads.mask, &heads.kept, &heads.bias, &heads.sink};
  for (uint32_t i = attention_fixed(run->op); i < run->op->nin; i++)
    *further[attention_role(run->op, &run_in(run, i)->type)] = run_in(run, i);
  heads.key = run->op->group[0].to[0], heads.dim = run->op->group[1].from[0];
  heads.rows = type_without(&heads.q->type, &heads.dim, 1);
  heads.keys = type_size(&heads.k->type, heads.key),
  heads.width = type_size(&heads.q->type, heads.dim);
  heads.key_stride = stride_of(&heads.k->type, heads.key);
  heads.q_step = stride_of(&heads.q->type, heads.dim),
  heads.kv_step = stride_of(&heads.k->type, heads.dim);
  heads.at_q = walk_offsets(run->arena, &heads.rows, &heads.q->type);
  heads.at_kv = walk_offsets(run->arena, &heads.rows, &heads.k->type);
  if (heads.mask) heads.at_mask = walk_offsets(run->arena, &heads.rows, &heads.mask->type);
  if (heads.mask) heads.mask_stride = stride_of(&heads.mask->type, heads.key);
  if (heads.kept) {
    heads.at_kept = walk_offsets(run->arena, &heads.rows, &heads.kept->type);
    heads.kept_stride = stride_of(&heads.kept->type, heads.key);
    double share = attr_float(&run->op->attrs, ATTR_drop, 0);
    heads.larger = run_constant(run, heads.q->type.elem, 1 / (1 - share));
  }
  if (heads.bias) heads.at_bias = walk_offsets(run->arena, &heads.rows, &heads.bias->type);
  if (heads.bias) heads.bias_stride = stride_of(&heads.bias->type, heads.key);
  heads.field = run_in_field(run, heads.q->type.elem);
  heads.scale = run_constant(run, heads.q->type.elem, attr_float(&run->op->attrs, ATTR_scale, 1));
  double cap = attr_float(&run->op->attrs, ATTR_cap, 0);
  if (cap != 0) {
    heads.cap = run_constant(run, heads.q->type.elem, cap);
    heads.uncap = run_constant(run, heads.q->type.elem, 1 / cap);
  }
  heads.p = ARENA_ARRAY(run->arena, double, heads.keys);
  heads.slope = ARENA_ARRAY(run->arena, double, heads.keys);
  return heads;
}

static bool admits(const Heads *heads, int64_t row, int64_t key) {
  return !heads->mask || heads->mask->at[heads->at_mask[row] + key * heads->mask_stride] != 0;
}

static double add(const Heads *heads, double a, double b) {
  return heads->field ? field_add(a, b) : a + b;
}

static double subtract(const Heads *heads, double a, double b) {
  return heads->field ? field_sub(a, b) : a - b;
}

static double multiply(const Heads *heads, double a, double b) {
  return heads->field ? field_mul(a, b) : a * b;
}

static double function(const Heads *heads, OpCode code, double (*real)(double), double x) {
  return heads->field ? field_function(code, x, real) : real(x);
}

static double inner(const Heads *heads, const double *a, int64_t a_step, const double *b,
                    int64_t b_step, int64_t n) {
  double sum = 0;
  FieldSum exact = {0};
  for (int64_t i = 0; i < n; i++)
    if (heads->field) field_sum_add(&exact, a[i * a_step], b[i * b_step]);
    else sum += a[i * a_step] * b[i * b_step];
  return heads->field ? field_sum(&exact) : sum;
}

/* cap tanh(score / cap), with its slope 1 - tanh^2 */
static double capped(const Heads *heads, double score, double *slope) {
  double one = heads->field ? field_of(1) : 1;
  *slope = one;
  if (heads->cap == 0) return score;
  double t = function(heads, OP_tanh, tanh, multiply(heads, score, heads->uncap));
  *slope = subtract(heads, one, multiply(heads, t, t));
  return multiply(heads, heads->cap, t);
}

/* x, if the probability of a key is kept, over 1 - drop */
static double kept(const Heads *heads, int64_t row, int64_t key, double x) {
  if (!heads->kept) return x;
  bool keeps = heads->kept->at[heads->at_kept[row] + key * heads->kept_stride] != 0;
  return keeps ? multiply(heads, x, heads->larger) : 0;
}

/* A field has exact inverses, so one division is enough: it takes as long as many products. */
static void normalize(Heads *heads, double sum) {
  double share = heads->field ? field_div(1, sum) : 0;
  for (int64_t j = 0; j < heads->keys; j++)
    heads->p[j] = heads->field ? field_mul(heads->p[j], share) : heads->p[j] / sum;
}

/* Fills h->p with the row's probabilities; returns its lse. In a field no score is subtracted from
   the others: probabilities do not depend on it, and pieces of a row then have one scale. */
static double softmax_row(Heads *heads, int64_t row) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < heads->keys; j++) {
    const double *k = heads->k->at + heads->at_kv[row] + j * heads->key_stride;
    double s = multiply(heads, heads->scale,
                        inner(heads, heads->q->at + heads->at_q[row], heads->q_step, k,
                              heads->kv_step, heads->width));
    s = capped(heads, s, &heads->slope[j]);
    if (heads->bias)
      s = add(heads, s, heads->bias->at[heads->at_bias[row] + j * heads->bias_stride]);
    heads->p[j] = admits(heads, row, j) ? s : -INFINITY;
    if (heads->p[j] > most) most = heads->field ? 0 : heads->p[j];
  }
  if (most == -INFINITY) {
    for (int64_t j = 0; j < heads->keys; j++) heads->p[j] = 0;
    return -INFINITY;
  }
  for (int64_t j = 0; j < heads->keys; j++) {
    heads->p[j] = function(heads, OP_exp, exp, subtract(heads, heads->p[j], most));
    sum = add(heads, sum, heads->p[j]);
  }
  normalize(heads, sum);
  return heads->field ? field_log(sum) : most + log(sum);
}

/* e^(a - b), of log-sum-exps */
static double ratio(const Heads *heads, double a, double b) {
  if (a == -INFINITY) return 0;
  return heads->field ? field_div(field_unlog(a), field_unlog(b)) : exp(a - b);
}

/* Probabilities are e^(score - to) and not e^(score - lse). */
static void rescale(Heads *heads, double lse, double to) {
  double share = ratio(heads, lse, to);
  for (int64_t j = 0; j < heads->keys; j++) heads->p[j] = multiply(heads, heads->p[j], share);
}

static double with_sink(Heads *heads, double lse, double sink) {
  double joined = heads->field ? field_logaddexp(lse, sink) : real_logaddexp(lse, sink);
  rescale(heads, lse, joined);
  return joined;
}

static void forward(InterpRun *run) {
  Heads heads = heads_of(run);
  const int64_t *at_sink =
      heads.sink ? walk_offsets(run->arena, &heads.rows, &heads.sink->type) : NULL;
  Tensor *tensor = run_out(run, 0), *lse = run_out(run, 1);
  const int64_t *at_y = walk_offsets(run->arena, &heads.rows, &tensor->type);
  const int64_t *at_lse = walk_offsets(run->arena, &heads.rows, &lse->type);
  int64_t y_step = stride_of(&tensor->type, heads.dim),
          v_key = stride_of(&heads.v->type, heads.key);
  int64_t v_step = stride_of(&heads.v->type, heads.dim);
  const int64_t *at_v = walk_offsets(run->arena, &heads.rows, &heads.v->type);
  for (int64_t row = 0, n = type_count(&heads.rows); row < n; row++) {
    double l = softmax_row(&heads, row);
    if (heads.sink) l = with_sink(&heads, l, heads.sink->at[at_sink[row]]);
    run_put(run, lse, at_lse[row], l);
    for (int64_t j = 0; j < heads.keys; j++) heads.p[j] = kept(&heads, row, j, heads.p[j]);
    for (int64_t d = 0; d < heads.width; d++)
      run_put(run, tensor, at_y[row] + d * y_step,
              inner(&heads, heads.p, 1, heads.v->at + at_v[row] + d * v_step, v_key, heads.keys));
  }
}

typedef struct Moving { /* a tensor whose rows are gone through */
  double *at;
  const int64_t *row;
  int64_t key, step;
} Moving;

static Moving moving(InterpRun *run, const Heads *heads, const Tensor *tensor) {
  return (Moving){tensor->at, walk_offsets(run->arena, &heads->rows, &tensor->type),
                  stride_of(&tensor->type, heads->key), stride_of(&tensor->type, heads->dim)};
}

static double *at_row(const Moving *moving, int64_t row, int64_t key) {
  return moving->at + moving->row[row] + key * moving->key;
}

static void add_scaled(const Heads *heads, double *to, int64_t to_step, double factor,
                       const double *x, int64_t step) {
  for (int64_t i = 0; i < heads->width; i++)
    to[i * to_step] = add(heads, to[i * to_step], multiply(heads, factor, x[i * step]));
}

static void backward(InterpRun *run) {
  Heads heads = heads_of(run);
  const Tensor *lse = run_in(run, 4);
  const int64_t *at_lse = walk_offsets(run->arena, &heads.rows, &lse->type);
  Moving q = moving(run, &heads, heads.q), k = moving(run, &heads, heads.k),
         v = moving(run, &heads, heads.v), y = moving(run, &heads, run_in(run, 3)),
         dy = moving(run, &heads, run_in(run, 5)), dq = moving(run, &heads, run_out(run, 0)),
         dk = moving(run, &heads, run_out(run, 1)), dv = moving(run, &heads, run_out(run, 2));
  for (int64_t row = 0, n = type_count(&heads.rows); row < n; row++) {
    const double *g = at_row(&dy, row, 0);
    double delta = inner(&heads, g, dy.step, at_row(&y, row, 0), y.step, heads.width);
    double own = softmax_row(&heads, row), given = lse->at[at_lse[row]];
    if (isfinite(given) && (!heads.field || field_is_log(given))) rescale(&heads, own, given);
    for (int64_t j = 0; j < heads.keys; j++) {
      double dp = inner(&heads, g, dy.step, at_row(&v, row, j), v.step, heads.width);
      dp = kept(&heads, row, j, dp);
      double ds =
          multiply(&heads, multiply(&heads, heads.scale, heads.p[j]), subtract(&heads, dp, delta));
      ds = multiply(&heads, ds, heads.slope[j]);
      add_scaled(&heads, at_row(&dv, row, j), dv.step, kept(&heads, row, j, heads.p[j]), g,
                 dy.step);
      add_scaled(&heads, at_row(&dq, row, 0), dq.step, ds, at_row(&k, row, j), k.step);
      add_scaled(&heads, at_row(&dk, row, j), dk.step, ds, at_row(&q, row, 0), q.step);
    }
  }
  for (uint32_t i = 0; i < 3; i++)
    for (int64_t e = 0, n = type_count(&run_out(run, i)->type); e < n; e++)
      run_put(run, run_out(run, i), e, run_out(run, i)->at[e]);
}

void run_attention(InterpRun *run) {
  if (run->op->code == OP_attention) forward(run);
  else backward(run);
}
