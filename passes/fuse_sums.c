/* fuse, before grouping: sums over rows that the kernel of something else computes on the way
   (`SUMS` in families.def), so that memory is read once. Which targets have such kernels: setting
   target.sums.

   The gradient of a bias is the sum, over the rows of a batch, of the very value that the gradient
   of a weight contracts over the same rows: dot[B](x, dy) and sum[B] dy. A contraction that copies
   the rows of dy for its own use adds them up. The summed operand must own the innermost dim of the
   product in the order of its type: it is the one that runs over vector lanes
   (ir/kernel/product.h).

   The gradients of a norm's gain and bias are sums over rows of what a row kernel has in its hands
   when it computes the gradient of the norm's input: it adds them up row by row.

   A sum above its partner waits for it; so nothing may read the sum in between, and what reads it
   is never of the same kernel. */
#include "passes/fuse.h"

/* What the sum adds up, before it was widened. */
static ValueId summed(const Fn *f, const Op *sum) {
  const Op *o = value_def(f, sum->in[0]);
  bool widens = o && o->code == OP_cast && elem_bytes(value_type(f, o->in[0])->elem) == 2 &&
                value_type(f, o->out)->elem == ELEM_f32;
  return widens && elem_class(value_type(f, o->in[0])->elem) == CLASS_FLOAT ? o->in[0] : sum->in[0];
}

static bool same_dims(const Group *a, const Group *b) {
  int n = 0;
  for (int i = 0; i < a->nfrom; i++)
    for (int j = 0; j < b->nfrom; j++) n += a->from[i] == b->from[j];
  return n == a->nfrom && n == b->nfrom;
}

static bool is_factor(Elem e) { return e == ELEM_f32 || elem_is_half(e); }

/* v runs over the lanes of dot o, and the product has rows beside. */
static bool over_lanes(const Fn *f, const Op *o, ValueId v) {
  const Type *t = value_type(f, o->out), *own = value_type(f, v);
  const Type *other = value_type(f, o->in[o->in[0] == v]);
  if (o->in[0] == o->in[1] || !t->rank) return false;
  Str last = t->axis[t->rank - 1].dim;
  bool rows = false;
  for (int i = 0; i < t->rank; i++) rows |= type_find(own, t->axis[i].dim) < 0;
  return rows && type_find(own, last) >= 0 && type_find(other, last) < 0;
}

static bool may_sum(const Fn *f, const Op *dot, const Op *sum, ValueId v) {
  if (dot->code != OP_dot || (dot->in[0] != v && dot->in[1] != v)) return false;
  return is_factor(value_type(f, v)->elem) && same_dims(&dot->group[0], &sum->group[0]) &&
         over_lanes(f, dot, v);
}

static OpId first_reader(const Fn *f, ValueId v) {
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      if (f->ops.at[i].in[k] == v) return i;
  return f->ops.n;
}

static OpId find_dot(const Fuse *u, const Op *sum, OpId before) {
  const Fn *f = u->f;
  ValueId v = summed(f, sum);
  for (OpId i = 0; i < before; i++)
    if (may_sum(f, &f->ops.at[i], sum, v) && u->sum_of[i] == NO_OP) return i;
  return NO_OP;
}

/* ---- rows ---- */

/* What v is computed from, element by element, that is as large as v. */
static void mark_sources(const Fn *f, ValueId v, bool *seen, bool *source) {
  const Op *o = value_def(f, v);
  if (seen[v]) return;
  seen[v] = true;
  if (!o || !(op_flags(o->code) & POINT) || fuse_moves(o->code)) source[v] = true;
  for (uint32_t i = 0; o && !source[v] && i < o->nin; i++)
    if (type_same_dims(value_type(f, o->in[i]), value_type(f, v)))
      mark_sources(f, o->in[i], seen, source);
}

static bool share_source(const Fuse *u, ValueId a, ValueId b) {
  uint32_t n = u->f->values.n;
  bool *x = ARENA_ARRAY(u->arena, bool, n + 1), *y = ARENA_ARRAY(u->arena, bool, n + 1);
  mark_sources(u->f, a, ARENA_ARRAY(u->arena, bool, n + 1), x);
  mark_sources(u->f, b, ARENA_ARRAY(u->arena, bool, n + 1), y);
  for (ValueId v = 0; v < n; v++)
    if (x[v] && y[v]) return true;
  return false;
}

/* Sums over all dims that the row reduction keeps. */
static bool is_complement(const Type *t, const Group *sum, const Group *row) {
  for (int i = 0; i < sum->nfrom; i++)
    for (int j = 0; j < row->nfrom; j++)
      if (sum->from[i] == row->from[j]) return false;
  return sum->nfrom + row->nfrom == t->rank;
}

static bool may_follow(const Fuse *u, const Op *sum, const Op *o) {
  const Fn *f = u->f;
  const Type *t = value_type(f, sum->in[0]);
  bool row = op_family(o->code) == FAMILY_REDUCE && u->uses[o->out] &&
             type_same_dims(value_type(f, o->in[0]), t) &&
             is_complement(t, &sum->group[0], &o->group[0]);
  return row && fuse_reduce_kind(u, o) == GROUP_row && share_source(u, sum->in[0], o->in[0]);
}

/* The next reduction of rows below the sum, whose kernel is still to come; else the last one above,
   so that what is only computed again for the gradient changes no partner. */
static OpId find_row(const Fuse *u, OpId id, OpId before) {
  const Fn *f = u->f;
  const Op *sum = &f->ops.at[id];
  if (!value_type(f, sum->out)->rank || !is_factor(value_type(f, sum->in[0])->elem)) return NO_OP;
  for (OpId i = id + 1; i < before; i++)
    if (may_follow(u, sum, &f->ops.at[i])) return i;
  for (OpId i = id; i-- > 0;)
    if (may_follow(u, sum, &f->ops.at[i])) return i;
  return NO_OP;
}

static void find_partner(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  OpId before = first_reader(u->f, o->out), dot = NO_OP;
  if (group_neighbours(GROUP_contract) & SUMS) dot = find_dot(u, o, before);
  if (dot != NO_OP) u->sum_of[dot] = id;
  u->with[id] = dot;
  if (dot == NO_OP && group_neighbours(GROUP_row) & SUMS && fuse_reduce_kind(u, o) == GROUP_column)
    u->with[id] = find_row(u, id, before);
}

void fuse_sums(Fuse *u) {
  const Fn *f = u->f;
  u->sum_of = ARENA_ARRAY(u->arena, OpId, f->ops.n + 1);
  u->with = ARENA_ARRAY(u->arena, OpId, f->ops.n + 1);
  for (OpId i = 0; i <= f->ops.n; i++) u->sum_of[i] = u->with[i] = NO_OP;
  if (!u->m->target.sums) return;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_sum) find_partner(u, i);
}
