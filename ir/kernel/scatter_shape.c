/* A kernel function with one scatter: see scatter_shape.h. */
#include "scatter_shape.h"

static OpId find_scatter(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (k->ops.at[i].code == OP_scatter) return i;
  bug("kernel %s has no scatter", k->name);
}

/* The result is the scatter's own, or a sum of it and the base. */
static void find_base(const Fn *k, ValueId sum, Scatter *s) {
  s->out = k->results.at[0], s->base = NO_VALUE, s->from_arg = k->args.n;
  if (k->results.n != 1) bug("kernel %s: a scatter kernel has one result", k->name);
  if (s->out == sum) return;
  const Op *add = value_def(k, s->out);
  if (!add || add->code != OP_add) bug("kernel %s: a scatter is only added to something", k->name);
  s->base = add->in[add->in[0] == sum];
  for (uint32_t i = 0; i < k->args.n; i++)
    if (k->args.at[i] == s->base) s->from_arg = i;
}

Scatter scatter_of(const Fn *k, int lanes) {
  Scatter s = {.op = find_scatter(k)};
  const Op *o = &k->ops.at[s.op];
  const Group *g = &o->group[0];
  Axes x = {0}, from = {0}, out = {0};
  s.x = o->in[0], s.index = o->in[1], s.to = g->to[0];
  find_base(k, o->out, &s);
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
