/* Iteration spaces of kernel functions: see nest.h. */
#include "nest.h"
#include "ir/support/num.h"
#include "ir/loop.h"

/* ---- sets of dims ---- */

bool axes_have(const Axes *axes, Str dim) {
  for (int i = 0; i < axes->n; i++)
    if (axes->axis[i].dim == dim) return true;
  return false;
}

void axes_add(Axes *axes, const Type *t) {
  for (int i = 0; i < t->rank; i++) {
    if (axes_have(axes, t->axis[i].dim)) continue;
    if (axes->n == 2 * MAX_RANK) bug("an iteration space has too many dims");
    axes->axis[axes->n++] = t->axis[i];
  }
}

Axes axes_without(const Axes *a, const Axes *b) {
  Axes r = {0};
  for (int i = 0; i < a->n; i++)
    if (!axes_have(b, a->axis[i].dim)) r.axis[r.n++] = a->axis[i];
  return r;
}

/* ---- buffers ---- */

static int64_t axis_stride(const Value *v, int axis) {
  if (v->storage.ordered) return v->storage.stride[axis];
  int64_t s = 1;
  for (int a = v->type.rank - 1; a > axis; a--) s *= v->type.axis[a].size;
  return s;
}

int64_t buffer_stride(const Fn *k, ValueId v, Str dim) {
  int a = type_find(value_type(k, v), dim);
  return a < 0 ? 0 : axis_stride(&k->values.at[v], a);
}

static uint32_t buffers(const Fn *k) { return k->args.n + k->results.n; }

static ValueId buffer(const Fn *k, uint32_t i) {
  return i < k->args.n ? k->args.at[i] : k->results.at[i - k->args.n];
}

static bool has_all(const Type *t, const Axes *dims) {
  for (int i = 0; dims && i < dims->n; i++)
    if (type_find(t, dims->axis[i].dim) < 0) return false;
  return true;
}

ValueId nest_reference(const Fn *k, const Axes *dims) {
  ValueId best = NO_VALUE;
  int64_t most = -1;
  for (uint32_t i = 0; i < buffers(k); i++) {
    const Type *t = value_type(k, buffer(k, i));
    if (!has_all(t, dims) || type_count(t) <= most) continue;
    most = type_count(t), best = buffer(k, i);
  }
  return best;
}

static ValueId column_reference(const Fn *k, const Reductions *reductions) {
  ValueId read = nest_reference(k, &reductions->over), made;
  bool whole = read != NO_VALUE && has_all(value_type(k, read), &reductions->kept);
  if (whole) return read;
  made = nest_reference(k, &reductions->kept);
  return made == NO_VALUE ? read : made;
}

/* ---- collapsing ---- */

/* rand: the logical index must go on evenly from the inner dim to the outer one */
static bool rand_joins(const Op *o, Str outer, Str inner, int64_t run) {
  const Attr *strides = attr_get(&o->attrs, ATTR_strides);
  int64_t s[2] = {0, 0};
  for (int i = 0; o->ngroups && i < o->group[0].nfrom; i++) {
    if (o->group[0].from[i] == outer) s[0] = strides->list[i];
    if (o->group[0].from[i] == inner) s[1] = strides->list[i];
  }
  return s[0] == s[1] * run;
}

static bool op_joins(const Op *o, Str outer, Str inner, int64_t run) {
  bool a = op_mentions(o, outer), b = op_mentions(o, inner);
  if (!a && !b) return true;
  if (o->code == OP_expand) return true;
  if (o->code == OP_rand) return rand_joins(o, outer, inner, run);
  if (op_family(o->code) == FAMILY_REDUCE && o->code != OP_argmax) return a && b;
  if (op_family(o->code) == FAMILY_CONTRACT) return a && b;
  return false;
}

bool nest_joins(const Fn *k, Str outer, Str inner, int64_t run) {
  for (uint32_t i = 0; i < buffers(k); i++) {
    const Type *t = value_type(k, buffer(k, i));
    if ((type_find(t, outer) < 0) != (type_find(t, inner) < 0)) return false;
    if (buffer_stride(k, buffer(k, i), outer) != buffer_stride(k, buffer(k, i), inner) * run)
      return false;
  }
  for (uint32_t i = 0; i < k->ops.n; i++)
    if (!op_joins(&k->ops.at[i], outer, inner, run)) return false;
  return true;
}

/* Descending strides of the reference; what it lacks comes first. A stable sort, so that equal ones
 * keep their order. */
static void sort_axes(const Fn *k, Axes *axes, ValueId reference) {
  for (int i = 1; i < axes->n; i++) {
    Axis axis = axes->axis[i];
    int64_t s = reference == NO_VALUE ? 0 : buffer_stride(k, reference, axis.dim);
    int j = i;
    for (; j > 0; j--) {
      int64_t before =
          reference == NO_VALUE ? 0 : buffer_stride(k, reference, axes->axis[j - 1].dim);
      bool after = before == 0 || (s != 0 && before >= s);
      if (after) break;
      axes->axis[j] = axes->axis[j - 1];
    }
    axes->axis[j] = axis;
  }
}

Nest nest_of(const Fn *k, const Axes *dims, ValueId reference) {
  Axes axes = *dims;
  Nest nest = {0};
  NestDim reversed[2 * MAX_RANK];
  int count = 0;
  sort_axes(k, &axes, reference);
  for (int i = axes.n - 1; i >= 0; i--) {
    Axis axis = axes.axis[i];
    NestDim *run = count ? &reversed[count - 1] : NULL;
    if (axis.size == 1) {
      nest.zero[nest.nzero++] = axis.dim;
    } else if (run && nest_joins(k, axis.dim, run->dim, run->size)) {
      nest.zero[nest.nzero++] = axis.dim;
      run->size *= axis.size;
    } else {
      reversed[count++] = (NestDim){axis.dim, axis.size};
    }
  }
  while (count) nest.dim[nest.n++] = reversed[--count];
  return nest;
}

int64_t nest_count(const Nest *nest) {
  int64_t c = 1;
  for (int i = 0; i < nest->n; i++) c *= nest->dim[i].size;
  return c;
}

int64_t nest_inner(const Nest *nest) { return nest->n ? nest->dim[nest->n - 1].size : 1; }

int64_t nest_blocks(const Nest *nest, int64_t block) {
  return nest_count(nest) / nest_inner(nest) * ceil_div(nest_inner(nest), block);
}

bool nest_vector(const Fn *k, const Nest *nest, ValueId reference, int lanes) {
  if (!nest->n || reference == NO_VALUE || nest_inner(nest) < lanes / 2) return false;
  return buffer_stride(k, reference, nest->dim[nest->n - 1].dim) == 1;
}

/* ---- reductions ---- */

static bool reduces(const Op *o) {
  return op_family(o->code) == FAMILY_REDUCE || op_family(o->code) == FAMILY_SCAN;
}

/* The reduction that says which dims are reduced: one that cannot be a sum of columns, if any. */
static const Op *leading_reduction(const Fn *k) {
  const Op *first = NULL;
  EACH_OP (k, o) {
    if (!reduces(o)) continue;
    if (o->code != OP_sum || value_is_read(k, o->out)) return o;
    if (!first) first = o;
  }
  return first;
}

static bool disjoint(const Group *a, const Group *b) {
  for (int i = 0; i < a->nfrom; i++)
    for (int j = 0; j < b->nfrom; j++)
      if (a->from[i] == b->from[j]) return false;
  return true;
}

static void add_over(Reductions *reductions, const Fn *k, const Op *o) {
  const Type *t = value_type(k, o->in[0]);
  for (int i = 0; i < o->group[0].nfrom; i++) {
    Type one = type_scalar(t->elem);
    one.axis[one.rank++] = (Axis){o->group[0].from[i], type_size(t, o->group[0].from[i])};
    axes_add(&reductions->over, &one);
  }
}

Reductions reductions_of(const Fn *k) {
  Reductions reductions = {0};
  Axes all = {0};
  const Op *leads = leading_reduction(k);
  for (uint32_t i = 0; i < k->ops.n; i++) {
    const Op *o = &k->ops.at[i];
    if (!reduces(o)) continue;
    if (reductions.n + reductions.ncolumns == MAX_RESULTS)
      bug("kernel %s has too many reductions", k->name);
    axes_add(&all, value_type(k, o->in[0]));
    if (o != leads && disjoint(&o->group[0], &leads->group[0])) {
      reductions.column[reductions.ncolumns++] = i;
      continue;
    }
    reductions.op[reductions.n++] = i;
    reductions.scans |= op_family(o->code) == FAMILY_SCAN;
    add_over(&reductions, k, o);
  }
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId packed = reduction_packed(k, &reductions, k->results.at[i]);
    axes_add(&all, value_type(k, packed == NO_VALUE ? k->results.at[i] : packed));
  }
  reductions.kept = axes_without(&all, &reductions.over);
  return reductions;
}

static ReducedSpace reduced_space(const Fn *k, const Reductions *r, ValueId reference) {
  return (ReducedSpace){.r = *r,
                        .reference = reference,
                        .kept = nest_of(k, &r->kept, reference),
                        .over = nest_of(k, &r->over, reference)};
}

ReducedSpace row_space(const Fn *k) {
  Reductions r = reductions_of(k);
  return reduced_space(k, &r, nest_reference(k, &r.over));
}

ReducedSpace column_space(const Fn *k) {
  Reductions r = reductions_of(k);
  return reduced_space(k, &r, column_reference(k, &r));
}

Nest elem_space(const Fn *k, ValueId *reference) {
  Axes all = {0};
  for (uint32_t r = 0; r < k->results.n; r++) axes_add(&all, value_type(k, k->results.at[r]));
  ValueId most = nest_reference(k, &all);
  if (reference) *reference = most;
  return nest_of(k, &all, most);
}

int *reduction_levels(Arena *arena, const Fn *k) {
  int *level = ARENA_ARRAY(arena, int, k->values.n + 1);
  EACH_OP (k, o) {
    int most = 0;
    for (uint32_t j = 0; j < o->nin; j++)
      if (level[o->in[j]] > most) most = level[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) level[o->out + j] = most + reduces(o);
  }
  return level;
}

int64_t reduction_workspace(const Fn *k, const Reductions *reductions, int64_t splits) {
  Nest kept = nest_of(k, &reductions->kept, nest_reference(k, &reductions->over));
  return 2 * reductions->n * round_up(nest_count(&kept) * splits * 8, CACHE_LINE);
}

int64_t scan_scratch(const Fn *k, const Reductions *reductions) {
  int64_t bytes = 0;
  for (int i = 0; i < reductions->n; i++)
    if (op_family(k->ops.at[reductions->op[i]].code) == FAMILY_SCAN)
      bytes += round_up(reductions->over.axis[0].size * 8, CACHE_LINE);
  return bytes;
}

int64_t column_bytes(const Reductions *reductions) {
  int64_t n = 1;
  for (int i = 0; i < reductions->over.n; i++) n *= reductions->over.axis[i].size;
  return round_up(n * 4, CACHE_LINE);
}

int64_t column_workspace(const Reductions *reductions, int64_t chunks) {
  return reductions->ncolumns * chunks * column_bytes(reductions);
}

bool nest_is_column_sum(const Fn *k, const Reductions *reductions, ValueId v) {
  for (int i = 0; i < reductions->ncolumns; i++)
    if (k->ops.at[reductions->column[i]].out == v) return true;
  return false;
}

bool reduction_along(const Fn *k, const Reductions *reductions, ValueId v) {
  for (int i = 0; i < reductions->over.n; i++)
    if (type_find(value_type(k, v), reductions->over.axis[i].dim) >= 0) return true;
  return false;
}

ValueId reduction_packed(const Fn *k, const Reductions *reductions, ValueId v) {
  const Op *o = value_def(k, v);
  bool along = o && o->code == OP_pack_bits && axes_have(&reductions->over, o->group[0].from[0]);
  return along ? o->in[0] : NO_VALUE;
}

bool reduction_packs(const Fn *k, const Reductions *reductions) {
  for (uint32_t i = 0; i < k->results.n; i++)
    if (reduction_packed(k, reductions, k->results.at[i]) != NO_VALUE) return true;
  return false;
}

/* The value along the row that result v needs. */
static ValueId walked(const Fn *k, const Reductions *reductions, ValueId v) {
  ValueId packed = reduction_packed(k, reductions, v);
  if (packed != NO_VALUE) return packed;
  return nest_is_column_sum(k, reductions, v) ? value_def(k, v)->in[0] : v;
}

int reduction_passes(const Fn *k, const Reductions *reductions, const int *level) {
  int most = -1;
  for (int i = 0; i < reductions->n; i++) {
    int own = level[k->ops.at[reductions->op[i]].in[0]];
    if (own > most) most = own;
  }
  for (uint32_t i = 0; i < k->results.n; i++) {
    ValueId v = walked(k, reductions, k->results.at[i]);
    if (reduction_along(k, reductions, v) && level[v] > most) most = level[v];
  }
  return most + 1;
}

/* ---- cost ---- */

static int64_t op_cost(const Op *o) {
  switch (o->code) {
  case OP_div: return 0;
  case OP_erf:
  case OP_erfinv:
  case OP_gather:
  case OP_pow: return 3;
  case OP_rope:
  case OP_rand: return 6;
  default: return op_flags(o->code) & SLOW ? 2 : 0;
  }
}

int64_t element_cost(const Fn *k) {
  int64_t cost = 0, most = 1;
  for (uint32_t i = 0; i < k->ops.n; i++) cost += op_cost(&k->ops.at[i]);
  for (uint32_t i = 0; i < buffers(k); i++) {
    int64_t n = type_count(value_type(k, buffer(k, i)));
    if (n > most) most = n;
  }
  for (uint32_t i = 0; i < buffers(k); i++) {
    const Type *t = value_type(k, buffer(k, i));
    if (type_count(t) * 2 > most) cost += elem_bytes(t->elem);
  }
  return cost ? cost : 1;
}

/* A chunk should last 20 microseconds or more (setting target.chunk, in the units of cost: tests
 * make it small); eight chunks per worker balance the load. */
int64_t chunks_for(const Module *m, int64_t elements, int64_t cost, int64_t units) {
  int64_t workers = m->target.workers;
  int64_t chunks = elements * cost / m->target.chunk;
  if (chunks > workers * 8) chunks = workers * 8;
  if (chunks > units) chunks = units;
  return chunks < 1 ? 1 : chunks;
}
