/* A kernel function with one scatter: see scatter_shape.h. */
#include "scatter_shape.h"
#include "ir/support/num.h"

static OpId find_scatter(const Fn *k) {
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (k->ops.at[i].code == OP_scatter) return i;
  bug("kernel %s has no scatter", k->name);
}

/* The result is the scatter's own, or a sum of it and the base. */
static void find_base(const Fn *k, ValueId sum, Scatter *scatter) {
  scatter->out = k->results.at[0], scatter->base = NO_VALUE, scatter->from_arg = k->args.n;
  if (k->results.n != 1) bug("kernel %s: a scatter kernel has one result", k->name);
  if (scatter->out == sum) return;
  const Op *add = value_def(k, scatter->out);
  if (!add || add->code != OP_add) bug("kernel %s: a scatter is only added to something", k->name);
  scatter->base = add->in[add->in[0] == sum];
  for (uint32_t i = 0; i < k->args.n; i++)
    if (k->args.at[i] == scatter->base) scatter->from_arg = i;
}

Scatter scatter_of(const Fn *k, int lanes) {
  Scatter scatter = {.op = find_scatter(k)};
  const Op *o = &k->ops.at[scatter.op];
  const Group *group = &o->group[0];
  Axes axes = {0}, from = {0}, out = {0};
  scatter.x = o->in[0], scatter.index = o->in[1], scatter.to = group->to[0];
  find_base(k, o->out, &scatter);
  scatter.to_size = type_size(value_type(k, scatter.out), scatter.to);
  axes_add(&axes, value_type(k, scatter.x));
  axes_add(&out, value_type(k, scatter.out));
  for (int i = 0; i < axes.n; i++)
    for (int d = 0; d < group->nfrom; d++)
      if (axes.axis[i].dim == group->from[d]) from.axis[from.n++] = axes.axis[i];
  Axes kept = axes_without(&axes, &from);
  scatter.from = nest_of(k, &from, nest_reference(k, &from));
  scatter.kept = nest_of(k, &kept, scatter.out);
  scatter.result = nest_of(k, &out, scatter.out);
  scatter.vector = nest_vector(k, &scatter.kept, scatter.out, lanes);
  if (scatter.vector &&
      type_find(value_type(k, scatter.index), scatter.kept.dim[scatter.kept.n - 1].dim) >= 0)
    scatter.vector = false;
  return scatter;
}

int64_t scatter_order_joins(int64_t rows) { return ceil_div(rows, SCATTER_PIECE) - 1; }

ScatterOrder scatter_order_of(const Fn *k, const Scatter *scatter, int64_t threads) {
  Elem elem = value_type(k, scatter->out)->elem;
  int64_t rows = nest_count(&scatter->from), sum = elem_is_half(elem) ? 4 : elem_bytes(elem);
  ScatterOrder order = {.list = round_up(rows * SCATTER_PAIR, CACHE_LINE), .digits = 1};
  while (scatter->to_size >> (order.digits * SCATTER_DIGIT)) order.digits++;
  order.sorted = order.digits % 2 * order.list, order.pieces = 2 * order.list;
  order.workspace =
      order.pieces + 2 * ceil_div(rows, SCATTER_PIECE) * nest_count(&scatter->kept) * sum;
  order.shared = (SCATTER_BINS * threads + 32) * 4;
  return order;
}
