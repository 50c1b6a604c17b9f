/* quantize: operands of the products that pass `eights` marked are rounded to 8 bits: codes of e4m3
   with a scale for each block, as in DeepSeek-V3 (arXiv 2412.19437, 3.3.2).

     values, gradients   1 x 128: 128 numbers along a summed dim share a scale
     parameters          128 x 128: along a summed dim and along a dim that the product keeps, so
                         that forward and backward have the same codes

   Of several summed dims one is cut, that with the longest block; a block is the longest divisor of
   the rank's size up to 128. Scales are powers of two: numbers of bf16 hold the products of code
   and scale exactly, and kernels multiply those (x86, GPUs). So all of this is plain ops, and op
   `quantize` (ir/eights.h), which pass `fuse` turns into kernels.

   Runs after all passes that cut dims: blocks are those of one rank. Must not: choose products. */
#include "int8.h"
#include "ir/eights.h"
#include "ir/made.h"
#include "ir/plan/module_settings.h"
#include <math.h>

typedef struct Quantize {
  Rebuild rebuild;
  Int8 to; /* where ops are written */
  const char *format[EIGHTS_COUNT];
} Quantize;

/* ---- blocks ---- */

typedef struct EightsCut {
  Str dim;
  int64_t block;
} EightsCut;

static int64_t block_of(int64_t size) {
  int64_t block = size < EIGHTS_BLOCK ? size : EIGHTS_BLOCK;
  while (size % block) block--;
  return block;
}

/* The longest block, of several the last; dims that `only` has if `summed`, else that it has not,
   and that `other` has not either. */
static EightsCut cut_of(const Type *t, const Group *sums, bool summed, const Type *other) {
  EightsCut cut = {NULL, 0};
  for (int i = 0; i < t->rank; i++) {
    Str dim = t->axis[i].dim;
    bool is_summed = false;
    for (int k = 0; k < sums->nfrom; k++) is_summed |= sums->from[k] == dim;
    if (is_summed != summed || (!summed && type_find(other, dim) >= 0)) continue;
    int64_t block = block_of(t->axis[i].size);
    if (block >= cut.block) cut = (EightsCut){dim, block};
  }
  return cut;
}

/* ---- numbers ---- */

static ValueId number(const Int8 *to, double value) {
  return ir_const(to->m, to->f, ELEM_f32, value, to->loc);
}

static ValueId rounded(const Int8 *to, ValueId v, int n, const Str *in, const char *format) {
  ValueId size = ir_unary(to->m, to->f, OP_abs, v, to->loc), most, largest = number(to, INFINITY);
  ValueId finite = ir_binary(to->m, to->f, OP_lt, size, largest, to->loc);
  size = ir_where(to->m, to->f, finite, size, largest, to->loc);
  most = ir_reduce(to->m, to->f, OP_rmax, size, n, in, to->loc);
  v = ir_binary(to->m, to->f, OP_quantize, v, most, to->loc);
  attr_set_str(to->m, &vec_last(to->f->ops).attrs, ATTR_format, intern(to->m->ctx->names, format));
  return v;
}

static ValueId quantized(Int8 *to, ValueId v, int n, const EightsCut *cuts, const char *format) {
  Elem was = value_type(to->f, v)->elem;
  Str in[2], both[2][2];
  for (int i = 0; i < n; i++) { /* before the cast: kernels read what is stored in 16 bits */
    int64_t size = type_size(value_type(to->f, v), cuts[i].dim), block = cuts[i].block;
    in[i] = cuts[i].dim;
    if (block == size) continue;
    both[i][0] = name_made(to->m, "eights'block%d", i);
    both[i][1] = in[i] = name_made(to->m, "eights'in%d", i);
    Axis axes[] = {{both[i][0], size / block}, {in[i], block}};
    v = int8_split(to, v, cuts[i].dim, 2, axes);
  }
  v = ir_cast(to->m, to->f, v, ELEM_f32, to->loc);
  v = ir_cast(to->m, to->f, rounded(to, v, n, in, format), was, to->loc);
  for (int i = n; i-- > 0;)
    if (in[i] != cuts[i].dim) v = int8_merge(to, v, 2, both[i], cuts[i].dim);
  return v;
}

/* ---- products ---- */

/* How many dims of operand i are cut. */
static int cuts_of(const Fn *f, const Op *o, int i, Eights kind, EightsCut *cuts) {
  const Type *t = value_type(f, o->in[i]), *other = value_type(f, o->in[!i]);
  cuts[0] = cut_of(t, &o->group[0], true, other), cuts[1] = cut_of(t, &o->group[0], false, other);
  return kind == EIGHTS_WEIGHT && cuts[1].dim ? 2 : 1;
}

static ValueId operand(Quantize *quantize, const Op *o, int i, Eights kind) {
  EightsCut cuts[2];
  int n = cuts_of(quantize->rebuild.from, o, i, kind, cuts);
  quantize->to.loc = o->loc;
  return quantized(&quantize->to, quantize->rebuild.map[o->in[i]], n, cuts, quantize->format[kind]);
}

static void without_mark(Module *m, Op *dot) {
  AttrList all = dot->attrs;
  dot->attrs = (AttrList){0};
  for (uint32_t i = 0; i < all.n; i++)
    if (all.at[i].key != ATTR_eights) vec_push(m->arena, dot->attrs, all.at[i]);
}

static bool is_narrow(const Fn *f, const Op *o) {
  return value_type(f, o->in[0])->elem == ELEM_bf16 && value_type(f, o->in[1])->elem == ELEM_bf16;
}

static void write_dot(Quantize *quantize, const Op *o) {
  const Attr *eights = attr_get(&o->attrs, ATTR_eights);
  ValueId in[2];
  bool narrow = is_narrow(quantize->rebuild.from, o);
  for (int i = 0; i < 2 && narrow; i++) in[i] = operand(quantize, o, i, (Eights)eights->list[i]);
  Op *made = rebuild_op(&quantize->rebuild, o);
  for (int i = 0; i < 2 && narrow; i++) made->in[i] = in[i];
  if (!narrow) without_mark(quantize->rebuild.m, made);
}

/* Blocks are dims of their own. */
static bool has_room(const Fn *f, const Op *o) {
  const Attr *eights = attr_get(&o->attrs, ATTR_eights);
  for (int i = 0; eights && is_narrow(f, o) && i < 2; i++) {
    EightsCut cuts[2];
    const Type *t = value_type(f, o->in[i]);
    int n = cuts_of(f, o, i, (Eights)eights->list[i], cuts), rank = t->rank;
    for (int k = 0; k < n; k++) rank += cuts[k].block != type_size(t, cuts[k].dim);
    if (rank > MAX_RANK) return false;
  }
  return true;
}

static bool refuse_dims(const Module *m, const Fn *f) {
  EACH_OP (f, o) {
    if (has_room(f, o)) continue;
    Report *r = diag_at(m->ctx->diag, "E0602", module_written(m, "plan.precision").value,
                        "`precision fp8` cuts a tensor of too many dims into blocks");
    diag_label(r, "a cut dim becomes two, and a tensor has at most %d", MAX_RANK);
    diag_also(r, span_of(m, o->loc), "an operand of this product");
    diag_help(r, "fewer dims, or `precision bf16`");
    return true;
  }
  return false;
}

static bool has_marks(const Fn *f) {
  EACH_OP (f, o)
    if (attr_get(&o->attrs, ATTR_eights)) return true;
  return false;
}

void pass_quantize(Module *m) {
  if (!plan_eights(m)) return;
  const char *backward = plan_backward_format(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    if (!has_marks(f)) continue;
    if (refuse_dims(m, f)) return;
    Quantize quantize = {.rebuild = rebuild_begin(m, f), .format = {"e4m3", "e4m3", backward}};
    quantize.to = (Int8){.m = m, .f = quantize.rebuild.to};
    EACH_OP (f, o)
      if (attr_get(&o->attrs, ATTR_eights)) write_dot(&quantize, o);
      else rebuild_op(&quantize.rebuild, o);
    rebuild_results(&quantize.rebuild);
    module_replace(m, f, quantize.rebuild.to);
  }
  module_collect(m);
}
