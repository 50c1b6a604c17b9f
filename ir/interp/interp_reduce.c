/* Reductions and scans. Sums are added up in double, whatever the element type, and rounded once at
 * the end. */
#include <math.h>
#include "interp_inside.h"

typedef struct ReducedRow { /* the elements that one result element comes from */
  const double *at;
  const int64_t *offset;
  int64_t n;
  bool field;
} ReducedRow;

static bool less(const ReducedRow *row, double a, double b) {
  return row->field ? field_less(a, b) : a < b;
}

static double row_sum(ReducedRow row) {
  if (row.field) {
    FieldSum sum = {0};
    for (int64_t i = 0; i < row.n; i++) field_sum_add(&sum, row.at[row.offset[i]], 1);
    return field_sum(&sum);
  }
  double sum = 0;
  for (int64_t i = 0; i < row.n; i++) sum += row.at[row.offset[i]];
  return sum;
}

static int64_t row_extreme(ReducedRow row, bool largest) {
  int64_t best = 0;
  for (int64_t i = 1; i < row.n; i++) {
    double a = row.at[row.offset[i]], b = row.at[row.offset[best]];
    if (isnan(b)) break; /* the first NaN is the result */
    if (isnan(a) || (largest ? less(&row, b, a) : less(&row, a, b))) best = i;
  }
  return best;
}

static double row_value(OpCode c, ReducedRow row) {
  switch (c) {
  case OP_sum: return row_sum(row);
  case OP_rmax: return row.at[row.offset[row_extreme(row, true)]];
  case OP_rmin: return row.at[row.offset[row_extreme(row, false)]];
  case OP_argmax: return (double)row_extreme(row, true);
  default: bug("the interpreter does not know op %s", op_name(c));
  }
}

void run_reduce(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Tensor *out = run_out(run, 0);
  Group group = run->op->group[0];
  Type rows = type_of_dims(&tensor->type, group.nfrom, group.from);
  const int64_t *start = walk_offsets(run->arena, &out->type, &tensor->type);
  ReducedRow row = {NULL, walk_offsets(run->arena, &rows, &tensor->type), type_count(&rows),
                    run_in_field(run, tensor->type.elem)};
  for (int64_t i = 0, n = type_count(&out->type); i < n; i++) {
    row.at = tensor->at + start[i];
    run_put(run, out, i, row_value(run->op->code, row));
  }
}

void run_scan(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Tensor *out = run_out(run, 0);
  Str dim = run->op->group[0].from[0];
  bool inverse = attr_int(&run->op->attrs, ATTR_inverse, 0),
       field = run_in_field(run, tensor->type.elem);
  Type rest = type_without(&tensor->type, &dim, 1);
  int64_t n = type_size(&tensor->type, dim), from = stride_of(&tensor->type, dim),
          to = stride_of(&out->type, dim);
  const int64_t *start = walk_offsets(run->arena, &rest, &tensor->type);
  const int64_t *end = walk_offsets(run->arena, &rest, &out->type);
  for (int64_t i = 0, rows = type_count(&rest); i < rows; i++) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++) {
      int64_t d = inverse ? n - 1 - k : k;
      double x = tensor->at[start[i] + d * from];
      sum = field ? field_add(sum, x) : sum + x;
      run_put(run, out, end[i] + d * to, sum);
    }
  }
}
