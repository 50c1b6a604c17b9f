/* Sums along a row that pick one element of it: sum[D](where(i == iota[D], a, 0)) is a at D = i, 0
   if i is outside the row. `fuse` writes them so for families that walk over all elements anyway
   (the score of a label); this file reads only that element, before the row's walk. */
#include "codegen/expr.h"
#include "row.h"

static const Op *made_by(const Fn *k, ValueId v, OpCode c) {
  const Op *o = value_def(k, v);
  return o && o->code == c ? o : NULL;
}

static bool is_zero(const Fn *k, ValueId v) {
  const Op *o = made_by(k, v, OP_const);
  return o && attr_float(&o->attrs, ATTR_value, 1) == 0;
}

static bool is_position(const Fn *k, ValueId v, Str dim) {
  const Op *cast = made_by(k, v, OP_cast);
  const Op *o = made_by(k, cast ? cast->in[0] : v, OP_iota);
  return o && o->group[0].from[0] == dim;
}

/* The number that position is compared with; NO_VALUE: it differs along the row. */
static ValueId label_of(const Fn *k, ValueId v, Str dim) {
  const Op *o = made_by(k, v, OP_expand);
  v = o ? o->in[0] : v;
  return type_find(value_type(k, v), dim) < 0 ? v : NO_VALUE;
}

bool row_pick(const RowNest *nest, const Op *sum, Pick *out) {
  const Fn *k = nest->e->k;
  if (sum->code != OP_sum || sum->group[0].nfrom != 1 || !nest->lanes_over) return false;
  Str dim = sum->group[0].from[0];
  const Op *w = made_by(k, sum->in[0], OP_where);
  const Op *eq = w ? made_by(k, w->in[0], OP_eq) : NULL;
  if (!eq || !is_zero(k, w->in[2]) || type_find(value_type(k, w->in[1]), dim) < 0) return false;
  int at = is_position(k, eq->in[1], dim);
  if (!is_position(k, eq->in[at], dim)) return false;
  ValueId label = label_of(k, eq->in[1 - at], dim);
  if (label == NO_VALUE || elem_class(value_type(k, label)->elem) != CLASS_INT) return false;
  if (!out) return true;
  *out = (Pick){*sum, {w->in[1], label}};
  out->op.code = OP_gather, out->op.in = out->in, out->op.nin = 2;
  return true;
}

void row_picks(RowNest *nest) {
  for (int i = 0; i < nest->r.n; i++) {
    const Op *o = &nest->e->k->ops.at[nest->r.op[i]];
    Pick pick;
    if (nest->level[o->in[0]] != nest->pass || !row_pick(nest, o, &pick)) continue;
    expr_bind(nest->e, o->out, expr_moved(nest->e, &pick.op, o->out, nest->row));
  }
}
