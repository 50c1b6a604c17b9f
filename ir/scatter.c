/* A kernel function with one scatter: see scatter.h. */
#include "scatter.h"

static OpId find_scatter(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (k->ops.at[i].code == OP_scatter) return i;
  bug("kernel %s has no scatter", k->name);
}

Scatter scatter_of(const Fn *k, int lanes) {
  Scatter s = {.op = find_scatter(k)};
  const Op *o = &k->ops.at[s.op];
  const Group *g = &o->group[0];
  Axes x = {0}, from = {0}, out = {0};
  s.x = o->in[0], s.index = o->in[1], s.out = o->out, s.to = g->to[0];
  s.to_size = type_size(value_type(k, s.out), s.to);
  axes_add(&x, value_type(k, s.x));
  axes_add(&out, value_type(k, s.out));
  for (int i = 0; i < x.n; i++)
    for (int d = 0; d < g->nfrom; d++)
      if (x.axis[i].dim == g->from[d]) from.axis[from.n++] = x.axis[i];
  Axes kept = axes_without(&x, &from);
  s.from = nest_of(k, &from, nest_reference(k, &from));
  s.kept = nest_of(k, &kept, s.out);
  s.result = nest_of(k, &out, s.out);
  s.vector = nest_vector(k, &s.kept, s.out, lanes);
  if (s.vector && type_find(value_type(k, s.index), s.kept.dim[s.kept.n - 1].dim) >= 0)
    s.vector = false;
  return s;
}
