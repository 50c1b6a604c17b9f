/* Reductions and scans. Sums are added up in double, whatever the element type, and rounded once at
 * the end. */
#include <math.h>
#include "interp_inside.h"

typedef struct ReducedRow { /* the elements that one result element comes from */
  const double *at;
  const int64_t *offset;
  int64_t n;
} ReducedRow;

static double row_sum(ReducedRow w) {
  double sum = 0;
  for (int64_t i = 0; i < w.n; i++) sum += w.at[w.offset[i]];
  return sum;
}

static int64_t row_extreme(ReducedRow w, bool largest) {
  int64_t best = 0;
  for (int64_t i = 1; i < w.n; i++) {
    double a = w.at[w.offset[i]], b = w.at[w.offset[best]];
    if (isnan(b)) break; /* the first NaN is the result */
    if (isnan(a) || (largest ? a > b : a < b)) best = i;
  }
  return best;
}

static double row_value(OpCode c, ReducedRow w) {
  switch (c) {
  case OP_sum: return row_sum(w);
  case OP_rmax: return w.at[w.offset[row_extreme(w, true)]];
  case OP_rmin: return w.at[w.offset[row_extreme(w, false)]];
  case OP_argmax: return (double)row_extreme(w, true);
  default: bug("the interpreter does not know op %s", op_name(c));
  }
}

void run_reduce(InterpRun *r) {
  const Tensor *a = run_in(r, 0);
  Tensor *out = run_out(r, 0);
  Group g = r->op->group[0];
  Type rows = type_of_dims(&a->type, g.nfrom, g.from);
  const int64_t *start = walk_offsets(r->arena, &out->type, &a->type);
  ReducedRow w = {NULL, walk_offsets(r->arena, &rows, &a->type), type_count(&rows)};
  for (int64_t i = 0, n = type_count(&out->type); i < n; i++) {
    w.at = a->at + start[i];
    run_put(r, out, i, row_value(r->op->code, w));
  }
}

void run_scan(InterpRun *r) {
  const Tensor *a = run_in(r, 0);
  Tensor *out = run_out(r, 0);
  Str dim = r->op->group[0].from[0];
  bool inverse = attr_int(&r->op->attrs, ATTR_inverse, 0);
  Type rest = type_without(&a->type, &dim, 1);
  int64_t n = type_size(&a->type, dim), from = stride_of(&a->type, dim),
          to = stride_of(&out->type, dim);
  const int64_t *start = walk_offsets(r->arena, &rest, &a->type);
  const int64_t *end = walk_offsets(r->arena, &rest, &out->type);
  for (int64_t i = 0, rows = type_count(&rest); i < rows; i++) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
      int64_t d = inverse ? n - 1 - k : k;
      sum += a->at[start[i] + d * from];
      run_put(r, out, end[i] + d * to, sum);
    }
  }
}
