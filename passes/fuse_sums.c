/* fuse, before grouping: sums that a contraction computes while it reads their operand.

   The gradient of a bias is the sum, over the rows of a batch, of the very value that the gradient
   of a weight contracts over the same rows: dot[B](x, dy) and sum[B] dy. A contraction that copies
   the rows of dy for its own use adds them up on the way, and memory is read once (`SUMS` in
   families.def). The summed operand must own the innermost dim of the product in the order of its
   type: it is the one that runs over vector lanes (ir/product.h).

   A sum above its contraction waits for it; so nothing may read the sum in between. Which targets
   have such kernels: setting target.sums. */
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

static bool is_factor(Elem e) { return e == ELEM_f32 || e == ELEM_bf16 || e == ELEM_f16; }

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

static OpId find_dot(const Fuse *u, const Op *sum) {
  const Fn *f = u->f;
  ValueId v = summed(f, sum);
  OpId before = first_reader(f, sum->out);
  for (OpId i = 0; i < before; i++)
    if (may_sum(f, &f->ops.at[i], sum, v) && u->sum_of[i] == NO_OP) return i;
  return NO_OP;
}

void fuse_sums(Fuse *u) {
  const Fn *f = u->f;
  u->sum_of = ARENA_ARRAY(u->arena, OpId, f->ops.n + 1);
  u->dot_of = ARENA_ARRAY(u->arena, OpId, f->ops.n + 1);
  for (OpId i = 0; i <= f->ops.n; i++) u->sum_of[i] = u->dot_of[i] = NO_OP;
  if (!module_number(u->m, "target.sums", 0) || !(group_neighbours(GROUP_contract) & SUMS)) return;
  for (OpId i = 0; i < f->ops.n; i++) {
    OpId dot = f->ops.at[i].code == OP_sum ? find_dot(u, &f->ops.at[i]) : NO_OP;
    if (dot != NO_OP) u->dot_of[i] = dot, u->sum_of[dot] = i;
  }
}
