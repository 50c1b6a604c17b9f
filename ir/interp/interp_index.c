/* Contraction and indexed access: dot, gather, scatter. An index outside of its dim reads zero and
 * adds nothing. */
#include "interp_inside.h"

void run_contract(InterpRun *r) {
  const Tensor *a = run_in(r, 0), *b = run_in(r, 1);
  Tensor *out = run_out(r, 0);
  Group g = r->op->ngroups ? r->op->group[0] : group_dims(0, NULL);
  Type summed = type_of_dims(&a->type, g.nfrom, g.from);
  const int64_t *in_a = walk_offsets(r->arena, &summed, &a->type);
  const int64_t *in_b = walk_offsets(r->arena, &summed, &b->type);
  const int64_t *at_a = walk_offsets(r->arena, &out->type, &a->type);
  const int64_t *at_b = walk_offsets(r->arena, &out->type, &b->type);
  for (int64_t i = 0, n = type_count(&out->type), terms = type_count(&summed); i < n; i++) {
    double sum = 0;
    for (int64_t k = 0; k < terms; k++) sum += a->at[at_a[i] + in_a[k]] * b->at[at_b[i] + in_b[k]];
    run_put(r, out, i, sum);
  }
}

/* A result axis that the index brings does not move in w, even when w's indexed dim has the same
 * name. */
void run_gather(InterpRun *r) {
  const Tensor *w = run_in(r, 0), *index = run_in(r, 1);
  Tensor *out = run_out(r, 0);
  Str dim = r->op->group[0].from[0];
  int64_t size = type_size(&w->type, dim), stride = stride_of(&w->type, dim), at[MAX_RANK] = {0},
          i = 0;
  Steps in_w = steps_in(&out->type, &w->type), in_index = steps_in(&out->type, &index->type);
  int same = type_find(&out->type, dim);
  if (same >= 0) in_w.step[same] = 0;
  do {
    double row = index->at[steps_at(&out->type, &in_index, at)];
    bool inside = row >= 0 && row < (double)size;
    out->at[i++] = inside ? w->at[steps_at(&out->type, &in_w, at) + (int64_t)row * stride] : 0;
  } while (walk_next(&out->type, at));
}

void run_scatter(InterpRun *r) {
  const Tensor *x = run_in(r, 0), *index = run_in(r, 1);
  Tensor *out = run_out(r, 0);
  Group g = r->op->group[0];
  int64_t size = type_size(&out->type, g.to[0]), stride = stride_of(&out->type, g.to[0]),
          at[MAX_RANK] = {0}, i = 0;
  Steps in_out = steps_in(&x->type, &out->type), in_index = steps_in(&x->type, &index->type);
  for (int k = 0; k < g.nfrom; k++) in_out.step[type_find(&x->type, g.from[k])] = 0;
  do {
    double row = index->at[steps_at(&x->type, &in_index, at)], value = x->at[i++];
    if (row >= 0 && row < (double)size)
      out->at[steps_at(&x->type, &in_out, at) + (int64_t)row * stride] += value;
  } while (walk_next(&x->type, at));
  for (int64_t k = 0, n = type_count(&out->type); k < n; k++) run_put(r, out, k, out->at[k]);
}
