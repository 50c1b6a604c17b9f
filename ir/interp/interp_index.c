/* Contraction and indexed access: dot, gather, scatter. An index outside of its dim reads zero and
 * adds nothing. */
#include "interp_inside.h"

typedef struct Factor { /* of a product that is summed */
  const double *at;
  const int64_t *offset;
} Factor;

static double real_dot(Factor a, Factor b, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < n; k++) sum += a.at[a.offset[k]] * b.at[b.offset[k]];
  return sum;
}

static double field_dot(Factor a, Factor b, int64_t n) {
  FieldSum sum = {0};
  for (int64_t k = 0; k < n; k++) field_sum_add(&sum, a.at[a.offset[k]], b.at[b.offset[k]]);
  return field_sum(&sum);
}

void run_contract(InterpRun *run) {
  const Tensor *a = run_in(run, 0), *b = run_in(run, 1);
  Tensor *out = run_out(run, 0);
  Group group = run->op->ngroups ? run->op->group[0] : group_dims(0, NULL);
  Type summed = type_of_dims(&a->type, group.nfrom, group.from);
  bool field = run_in_field(run, out->type.elem);
  const int64_t *in_a = walk_offsets(run->arena, &summed, &a->type);
  const int64_t *in_b = walk_offsets(run->arena, &summed, &b->type);
  const int64_t *at_a = walk_offsets(run->arena, &out->type, &a->type);
  const int64_t *at_b = walk_offsets(run->arena, &out->type, &b->type);
  for (int64_t i = 0, n = type_count(&out->type), terms = type_count(&summed); i < n; i++) {
    Factor left = {a->at + at_a[i], in_a}, right = {b->at + at_b[i], in_b};
    run_put(run, out, i, (field ? field_dot : real_dot)(left, right, terms));
  }
}

/* A result axis that the index brings does not move in the tensor, even when its indexed dim has
 * the same name. */
void run_gather(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0), *index = run_in(run, 1);
  Tensor *out = run_out(run, 0);
  Str dim = run->op->group[0].from[0];
  int64_t size = type_size(&tensor->type, dim), stride = stride_of(&tensor->type, dim),
          at[MAX_RANK] = {0}, i = 0;
  Steps in_w = steps_in(&out->type, &tensor->type), in_index = steps_in(&out->type, &index->type);
  int same = type_find(&out->type, dim);
  if (same >= 0) in_w.step[same] = 0;
  do {
    double row = index->at[steps_at(&out->type, &in_index, at)];
    bool inside = row >= 0 && row < (double)size;
    out->at[i++] = inside ? tensor->at[steps_at(&out->type, &in_w, at) + (int64_t)row * stride] : 0;
  } while (walk_next(&out->type, at));
}

void run_scatter(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0), *index = run_in(run, 1);
  Tensor *out = run_out(run, 0);
  Group group = run->op->group[0];
  int64_t size = type_size(&out->type, group.to[0]), stride = stride_of(&out->type, group.to[0]),
          at[MAX_RANK] = {0}, i = 0;
  bool field = run_in_field(run, out->type.elem);
  Steps in_out = steps_in(&tensor->type, &out->type),
        in_index = steps_in(&tensor->type, &index->type);
  for (int k = 0; k < group.nfrom; k++) in_out.step[type_find(&tensor->type, group.from[k])] = 0;
  do {
    double row = index->at[steps_at(&tensor->type, &in_index, at)], value = tensor->at[i++];
    if (!(row >= 0 && row < (double)size)) continue;
    double *to = &out->at[steps_at(&tensor->type, &in_out, at) + (int64_t)row * stride];
    *to = field ? field_add(*to, value) : *to + value;
  } while (walk_next(&tensor->type, at));
  for (int64_t k = 0, n = type_count(&out->type); k < n; k++) run_put(run, out, k, out->at[k]);
}
