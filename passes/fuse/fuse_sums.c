/* fuse, before grouping: sums over rows that the kernel of another op computes while it reads
   their operand (`SUMS` in families.def), so that memory is read once. Setting target.sums tells
   which targets have such kernels.

   The gradient of a bias is the sum, over the rows of a batch, of the very value that the gradient
   of a weight contracts over the same rows: dot[B](x, dy) and sum[B] dy. A contraction that copies
   the rows of dy for its own use adds them up. The summed operand must own the innermost dim of
   the product in the order of its type: the dim that runs over vector lanes (ir/kernel/product.h).

   The gradients of a norm's gain and bias are sums over rows of values that a row kernel has in
   registers when it computes the gradient of the norm's input: it adds them up row by row. So is
   the gradient of the bias before a residual, which that kernel adds to its result. A sum
   that comes before its partner waits for it; so no op in between may read the sum, and readers of
   the sum are never in the same kernel. An operand of a product is in memory: what reads it does
   not read the values that it was computed from. */
#include "fuse.h"

/* The operand of the sum, before it was widened. */
static ValueId summed(const Fn *fn, const Op *sum) {
  const Op *op = value_def(fn, sum->in[0]);
  bool widens = op && op->code == OP_cast && elem_bytes(value_type(fn, op->in[0])->elem) == 2 &&
                value_type(fn, op->out)->elem == ELEM_f32;
  return widens && value_is_float(fn, op->in[0]) ? op->in[0] : sum->in[0];
}

static bool same_dims(const Group *a, const Group *b) {
  int n = 0;
  for (int i = 0; i < a->nfrom; i++)
    for (int j = 0; j < b->nfrom; j++) n += a->from[i] == b->from[j];
  return n == a->nfrom && n == b->nfrom;
}

static bool is_factor(Elem e) { return e == ELEM_f32 || elem_is_half(e); }

/* v varies over the lanes of dot o, and the product also has rows. */
static bool over_lanes(const Fn *fn, const Op *op, ValueId value) {
  const Type *type = value_type(fn, op->out), *own = value_type(fn, value);
  const Type *other = value_type(fn, op->in[op->in[0] == value]);
  if (op->in[0] == op->in[1] || !type->rank) return false;
  Str last = type->axis[type->rank - 1].dim;
  bool rows = false;
  for (int i = 0; i < type->rank; i++) rows |= type_find(own, type->axis[i].dim) < 0;
  return rows && type_find(own, last) >= 0 && type_find(other, last) < 0;
}

static bool may_sum(const Fn *fn, const Op *dot, const Op *sum, ValueId value) {
  if (dot->code != OP_dot || (dot->in[0] != value && dot->in[1] != value)) return false;
  return is_factor(value_type(fn, value)->elem) && same_dims(&dot->group[0], &sum->group[0]) &&
         over_lanes(fn, dot, value);
}

static OpId first_reader(const Fn *fn, ValueId value) {
  for (OpId i = 0; i < fn->ops.n; i++)
    for (uint32_t k = 0; k < fn->ops.at[i].nin; k++)
      if (fn->ops.at[i].in[k] == value) return i;
  return fn->ops.n;
}

static OpId find_dot(const Fuse *fuse, const Op *sum, OpId before) {
  const Fn *fn = fuse->f;
  ValueId value = summed(fn, sum);
  for (OpId i = 0; i < before; i++)
    if (may_sum(fn, &fn->ops.at[i], sum, value) && fuse->sum_of[i] == NO_OP) return i;
  return NO_OP;
}

/* ---- rows ---- */

static bool *flags(const Fuse *fuse) {
  return ARENA_ARRAY(fuse->arena, bool, fuse->f->values.n + 1);
}

static bool computes(const Op *op) {
  return op && op_flags(op->code) & POINT && !fuse_moves(op->code);
}

/* By ValueId: computed element by element, and an operand of a product. A product casts what is not
   computed while it reads it. */
static bool *find_factors(const Fuse *fuse) {
  const Fn *fn = fuse->f;
  bool *factor = flags(fuse);
  EACH_OP (fn, op)
    for (uint32_t i = 0; op_family(op->code) == FAMILY_CONTRACT && i < op->nin; i++) {
      const Op *maker = value_def(fn, op->in[i]);
      factor[op->in[i]] =
          computes(maker) && (maker->code != OP_cast || computes(value_def(fn, maker->in[0])));
    }
  return factor;
}

/* Values of the size of v from which it is computed element by element, up to those in memory. */
static void mark_sources(const Fuse *fuse, ValueId value, bool *seen, bool *source) {
  const Fn *fn = fuse->f;
  const Op *op = value_def(fn, value);
  if (seen[value]) return;
  seen[value] = true;
  source[value] = !computes(op) || fuse->factor[value];
  for (uint32_t i = 0; !source[value] && i < op->nin; i++)
    if (type_same_dims(value_type(fn, op->in[i]), value_type(fn, value)))
      mark_sources(fuse, op->in[i], seen, source);
}

/* The reduction's operand, all values of its size that depend on the result, and all of that size
   that they are computed from: what its kernel reads or makes. */
static bool *known_with(const Fuse *fuse, OpId reduction) {
  const Fn *fn = fuse->f;
  bool *known = flags(fuse), *derived = flags(fuse), *source = flags(fuse);
  const Op *first = &fn->ops.at[reduction];
  mark_sources(fuse, first->in[0], known, source);
  derived[first->out] = true;
  for (OpId i = reduction + 1; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (!computes(op) || !fuse_reads(op, derived)) continue;
    derived[op->out] = !fuse->factor[op->out];
    if (!type_same_dims(value_type(fn, op->out), value_type(fn, first->in[0]))) continue;
    known[op->out] = true;
    for (uint32_t k = 0; k < op->nin; k++)
      if (type_same_dims(value_type(fn, op->in[k]), value_type(fn, op->out)))
        mark_sources(fuse, op->in[k], known, source);
  }
  return known;
}

static bool share_source(const Fuse *fuse, ValueId summed, OpId reduction) {
  bool *own = flags(fuse), *read = known_with(fuse, reduction);
  mark_sources(fuse, summed, flags(fuse), own);
  for (ValueId v = 0; v < fuse->f->values.n; v++)
    if (own[v] && read[v]) return true;
  return false;
}

/* Sums over all dims that the row reduction keeps. */
static bool is_complement(const Type *type, const Group *sum, const Group *row) {
  for (int i = 0; i < sum->nfrom; i++)
    for (int j = 0; j < row->nfrom; j++)
      if (sum->from[i] == row->from[j]) return false;
  return sum->nfrom + row->nfrom == type->rank;
}

/* On a GPU sums of rows that no CTA has room for would go through memory, once per row. */
static bool fits_registers(const Fuse *fuse, const Op *row) {
  enum { LONGEST = 1 << 13 };
  const Type *type = value_type(fuse->f, row->in[0]);
  int64_t length = 1;
  for (int i = 0; i < row->group[0].nfrom; i++) length *= type_size(type, row->group[0].from[i]);
  return !module_on_gpu(fuse->m) || length <= LONGEST;
}

static bool may_follow(const Fuse *fuse, const Op *sum, OpId reduction) {
  const Fn *fn = fuse->f;
  const Op *op = &fn->ops.at[reduction];
  const Type *type = value_type(fn, sum->in[0]);
  bool row = op_family(op->code) == FAMILY_REDUCE && fuse->uses[op->out] &&
             type_same_dims(value_type(fn, op->in[0]), type) &&
             is_complement(type, &sum->group[0], &op->group[0]);
  return row && fuse_reduce_kind(fuse, op) == GROUP_row && fits_registers(fuse, op) &&
         share_source(fuse, sum->in[0], reduction);
}

/* The next reduction of rows after the sum, whose kernel comes later; else the last one before it,
   so that ops which are only recomputed for the gradient change no partner. */
static OpId find_row(const Fuse *fuse, OpId id, OpId before) {
  const Fn *fn = fuse->f;
  const Op *sum = &fn->ops.at[id];
  if (!value_type(fn, sum->out)->rank || !is_factor(value_type(fn, sum->in[0])->elem)) return NO_OP;
  for (OpId i = id + 1; i < before; i++)
    if (may_follow(fuse, sum, i)) return i;
  for (OpId i = id; i-- > 0;)
    if (may_follow(fuse, sum, i)) return i;
  return NO_OP;
}

/* Products of processors read every factor with ordinary instructions; those of GPUs do not. */
static bool sums_factors(const Fuse *fuse) {
  return group_neighbours(GROUP_contract) & SUMS && !module_on_gpu(fuse->m);
}

static void find_partner(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  OpId before = first_reader(fuse->f, op->out), dot = NO_OP;
  if (sums_factors(fuse)) dot = find_dot(fuse, op, before);
  if (dot != NO_OP) fuse->sum_of[dot] = id;
  fuse->with[id] = dot;
  if (dot == NO_OP && group_neighbours(GROUP_row) & SUMS &&
      fuse_reduce_kind(fuse, op) == GROUP_column)
    fuse->with[id] = find_row(fuse, id, before);
}

void fuse_sums(Fuse *fuse) {
  const Fn *fn = fuse->f;
  fuse->sum_of = ARENA_ARRAY(fuse->arena, OpId, fn->ops.n + 1);
  fuse->with = ARENA_ARRAY(fuse->arena, OpId, fn->ops.n + 1);
  fuse->factor = find_factors(fuse);
  for (OpId i = 0; i <= fn->ops.n; i++) fuse->sum_of[i] = fuse->with[i] = NO_OP;
  if (!fuse->m->target.sums) return;
  for (OpId i = 0; i < fn->ops.n; i++)
    if (fn->ops.at[i].code == OP_sum) find_partner(fuse, i);
}
