/* Attention and its gradient, row by row: a row is one query of one head of one batch element.

     s_k = scale * q . k_k,  p = softmax over the keys that the mask admits,  y = sum p_k v_k,  lse
   = log sum exp s_k with dy:  dv_k += p_k dy,  ds_k = p_k (dy . v_k - dy . y),  dq = scale sum ds_k
   k_k,  dk_k += scale ds_k q

   k and v may lack dims of q (grouped heads): their gradients add up over those. A row without any
   key gives zeros and an lse of -inf. */
#include "interp_inside.h"
#include <math.h>

typedef struct Heads {
  const Tensor *q, *k, *v, *mask;
  Type rows; /* q without D */
  Str key, dim;
  int64_t keys, width, key_stride, q_step, kv_step;
  int64_t *at_q, *at_kv; /* by row */
  int64_t *at_mask;
  int64_t mask_stride;
  double scale, *p; /* p[keys]: of the current row */
} Heads;

static Heads heads_of(InterpRun *r, uint32_t operands) {
  Heads h = {.q = run_in(r, 0), .k = run_in(r, 1), .v = run_in(r, 2)};
  h.mask = r->op->nin > operands ? run_in(r, operands) : NULL;
  h.key = r->op->group[0].to[0], h.dim = r->op->group[1].from[0];
  h.rows = type_without(&h.q->type, &h.dim, 1);
  h.keys = type_size(&h.k->type, h.key), h.width = type_size(&h.q->type, h.dim);
  h.key_stride = stride_of(&h.k->type, h.key);
  h.q_step = stride_of(&h.q->type, h.dim), h.kv_step = stride_of(&h.k->type, h.dim);
  h.at_q = walk_offsets(r->arena, &h.rows, &h.q->type);
  h.at_kv = walk_offsets(r->arena, &h.rows, &h.k->type);
  if (h.mask) h.at_mask = walk_offsets(r->arena, &h.rows, &h.mask->type);
  if (h.mask) h.mask_stride = stride_of(&h.mask->type, h.key);
  h.scale = attr_float(&r->op->attrs, ATTR_scale, 1);
  h.p = ARENA_ARRAY(r->arena, double, h.keys);
  return h;
}

static bool admits(const Heads *h, int64_t row, int64_t key) {
  return !h->mask || h->mask->at[h->at_mask[row] + key * h->mask_stride] != 0;
}

static double inner(const double *a, int64_t a_step, const double *b, int64_t b_step, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i * a_step] * b[i * b_step];
  return sum;
}

/* Fills h->p with the row's probabilities; returns its lse. */
static double softmax_row(Heads *h, int64_t row) {
  double most = -INFINITY, sum = 0;
  for (int64_t j = 0; j < h->keys; j++) {
    const double *k = h->k->at + h->at_kv[row] + j * h->key_stride;
    double s = h->scale * inner(h->q->at + h->at_q[row], h->q_step, k, h->kv_step, h->width);
    h->p[j] = admits(h, row, j) ? s : -INFINITY;
    if (h->p[j] > most) most = h->p[j];
  }
  if (most == -INFINITY) {
    for (int64_t j = 0; j < h->keys; j++) h->p[j] = 0;
    return -INFINITY;
  }
  for (int64_t j = 0; j < h->keys; j++) sum += h->p[j] = exp(h->p[j] - most);
  for (int64_t j = 0; j < h->keys; j++) h->p[j] /= sum;
  return most + log(sum);
}

static void forward(InterpRun *r) {
  Heads h = heads_of(r, 3);
  Tensor *y = run_out(r, 0), *lse = run_out(r, 1);
  const int64_t *at_y = walk_offsets(r->arena, &h.rows, &y->type);
  const int64_t *at_lse = walk_offsets(r->arena, &h.rows, &lse->type);
  int64_t y_step = stride_of(&y->type, h.dim), v_key = stride_of(&h.v->type, h.key);
  int64_t v_step = stride_of(&h.v->type, h.dim);
  const int64_t *at_v = walk_offsets(r->arena, &h.rows, &h.v->type);
  for (int64_t row = 0, n = type_count(&h.rows); row < n; row++) {
    run_put(r, lse, at_lse[row], softmax_row(&h, row));
    for (int64_t d = 0; d < h.width; d++)
      run_put(r, y, at_y[row] + d * y_step,
              inner(h.p, 1, h.v->at + at_v[row] + d * v_step, v_key, h.keys));
  }
}

typedef struct Moving { /* a tensor whose rows are gone through */
  double *at;
  const int64_t *row;
  int64_t key, step;
} Moving;

static Moving moving(InterpRun *r, const Heads *h, const Tensor *t) {
  return (Moving){t->at, walk_offsets(r->arena, &h->rows, &t->type), stride_of(&t->type, h->key),
                  stride_of(&t->type, h->dim)};
}

static double *at_row(const Moving *m, int64_t row, int64_t key) {
  return m->at + m->row[row] + key * m->key;
}

static void add_scaled(double *to, int64_t to_step, double factor, const double *x, int64_t step,
                       int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i * to_step] += factor * x[i * step];
}

static void backward(InterpRun *r) {
  Heads h = heads_of(r, 6);
  Moving q = moving(r, &h, h.q), k = moving(r, &h, h.k), v = moving(r, &h, h.v),
         y = moving(r, &h, run_in(r, 3)), dy = moving(r, &h, run_in(r, 5)),
         dq = moving(r, &h, run_out(r, 0)), dk = moving(r, &h, run_out(r, 1)),
         dv = moving(r, &h, run_out(r, 2));
  for (int64_t row = 0, n = type_count(&h.rows); row < n; row++) {
    const double *g = at_row(&dy, row, 0);
    double delta = inner(g, dy.step, at_row(&y, row, 0), y.step, h.width);
    softmax_row(&h, row);
    for (int64_t j = 0; j < h.keys; j++) {
      double ds =
          h.scale * h.p[j] * (inner(g, dy.step, at_row(&v, row, j), v.step, h.width) - delta);
      add_scaled(at_row(&dv, row, j), dv.step, h.p[j], g, dy.step, h.width);
      add_scaled(at_row(&dq, row, 0), dq.step, ds, at_row(&k, row, j), k.step, h.width);
      add_scaled(at_row(&dk, row, j), dk.step, ds, at_row(&q, row, 0), q.step, h.width);
    }
  }
  for (uint32_t i = 0; i < 3; i++)
    for (int64_t e = 0, n = type_count(&run_out(r, i)->type); e < n; e++)
      run_put(r, run_out(r, i), e, run_out(r, i)->at[e]);
}

void run_attention(InterpRun *r) {
  if (r->op->code == OP_attention) forward(r);
  else backward(r);
}
