/* Seeded faults of storage: strides, views, places, cuts of kernels, and a term added to a row. */
#include "mutants.h"
#include "ir/bytes.h"

static Value *a_result(Fault *x) {
  return x->op->nout ? &x->f->values.at[x->op->out + fault_below(x, x->op->nout)] : NULL;
}

bool fault_other_stride(Fault *x) {
  Value *v = a_result(x);
  if (!v || !v->storage.ordered || !v->type.rank) return false;
  int i = (int)fault_below(x, (uint64_t)v->type.rank),
      j = (int)fault_below(x, (uint64_t)v->type.rank);
  int64_t s = v->storage.stride[i];
  if (v->type.axis[i].size == 1 || v->type.axis[j].size == 1) return false;
  if (i == j) v->storage.stride[i] += 1;
  else if (s == v->storage.stride[j]) return false;
  else v->storage.stride[i] = v->storage.stride[j], v->storage.stride[j] = s;
  x->what = "strides";
  return true;
}

bool fault_other_view(Fault *x) {
  Value *v = a_result(x);
  if (!v || v->storage.view == VIEW_NONE) return false;
  ValueId b = fault_another(x, v->storage.base);
  switch (fault_below(x, 4)) {
  case 0: v->storage.offset += 1; break;
  case 1:
    if (v->storage.view == VIEW_OF) return false; /* new_view does that */
    v->storage.view = VIEW_OF;
    break;
  case 2: v->storage.view = VIEW_NONE; break;
  default:
    if (b == NO_VALUE) return false;
    x->what = v->storage.view == VIEW_OF ? "view" : "in place of another";
    v->storage.base = b;
    return true;
  }
  if (v->storage.view == VIEW_INPLACE && v->storage.offset) return false; /* it has none */
  x->what = "view";
  return true;
}

bool fault_new_view(Fault *x) { /* in place of an operand, unsaid by order */
  Value *v = a_result(x);
  if (!v || !v->storage.ordered || v->storage.view != VIEW_NONE || !x->op->nin) return false;
  v->storage.view = VIEW_INPLACE, v->storage.base = x->op->in[fault_below(x, x->op->nin)];
  v->storage.offset = 0;
  x->what = "in place";
  return true;
}

bool fault_other_place(Fault *x) {
  Value *v = a_result(x);
  static const int64_t steps[] = {4, -4, 64, -64, 128};
  if (!v || v->storage.place == PLACE_NONE) return false;
  const Storage *other = &x->f->values.at[fault_below(x, x->f->values.n)].storage;
  Storage was = v->storage;
  switch (fault_below(x, 3)) {
  case 0: v->storage.at += steps[fault_below(x, 5)]; break;
  case 1:
    v->storage.place = other->place, v->storage.slot = other->slot, v->storage.at = other->at;
    break;
  default: v->storage.slot++;
  }
  bool slot = v->storage.place != PLACE_FRAME && v->storage.slot != was.slot;
  if (!slot && v->storage.place == was.place && v->storage.at == was.at) return false;
  x->what = "place";
  return true;
}

/* Operands laid into a concat: no mark, another order, a part in the place of its neighbour or of
   one of its operands. */
bool fault_other_laid(Fault *x) {
  if (!op_lays(x->f, x->op)) return false;
  uint32_t k = fault_below(x, x->op->nin), i = fault_below(x, x->op->nin);
  Value *all = &x->f->values.at[x->op->out], *part = &x->f->values.at[x->op->in[k]],
        *other = &x->f->values.at[x->op->in[i]];
  x->what = "laid";
  switch (fault_below(x, 4)) {
  case 0: all->storage.view = VIEW_NONE; return true;
  case 1:
    if (i == k) return false;
    x->op->in[k] = x->op->in[i], x->op->in[i] = (ValueId)(part - x->f->values.at);
    return true;
  case 2:
    if (i == k || part->storage.place == PLACE_NONE) return false;
    part->storage.at = other->storage.at;
    return true;
  default:
    if (!part->storage.ordered || part->def == NO_OP || !x->f->ops.at[part->def].nin) return false;
    part->storage.view = VIEW_INPLACE, part->storage.base = x->f->ops.at[part->def].in[0];
    return true;
  }
}

/* Numbers that a cut must not have. Kernels of elem, row, column, scatter divide their units into
   any number of chunks. */
bool fault_other_shape_of_kernel(Fault *x) {
  if (x->f->kind != FN_KERNEL || !x->f->attrs.n) return false;
  Attr *a = &x->f->attrs.at[fault_below(x, x->f->attrs.n)];
  Str family = attr_str(&x->f->attrs, ATTR_family, "");
  bool planned = !strcmp(family, "contract") || !strncmp(family, "attention", 9);
  if (a->key == ATTR_scratch || a->key == ATTR_workspace) a->i -= 64;
  else if (a->key == ATTR_chunks && planned)
    a->list[fault_below(x, (uint64_t)a->i)] += fault_below(x, 2) ? 1 : -1;
  else if (a->key == ATTR_chunks || (a->key == ATTR_tile && !planned))
    a->list[fault_below(x, (uint64_t)a->i)] = 0;
  else return false;
  x->what = arena_printf(x->m->arena, "%s of the kernel", attr_name(a->key));
  return true;
}

bool fault_smaller_frame(Fault *x) {
  Attr *a = NULL;
  for (uint32_t i = 0; i < x->f->attrs.n; i++)
    if (x->f->attrs.at[i].key == ATTR_frame) a = &x->f->attrs.at[i];
  if (!a || a->i < 64) return false;
  a->i -= 64, x->what = "frame";
  return true;
}

/* ---- rows ---- */

/* Appends an op of one operand before the present one. */
static ValueId put_before(Fault *x, OpCode c, ValueId a, Group g, Type t) {
  Op *o = fn_op(x->m, x->f, c, 1, &a, 1, &t, (Loc){0});
  op_add_group(x->m, o, g);
  ValueId v = o->out;
  Op last = vec_last(x->f->ops);
  memmove(&x->f->ops.at[x->at + 1], &x->f->ops.at[x->at], sizeof last * (x->f->ops.n - 1 - x->at));
  x->f->ops.at[x->at] = last;
  for (ValueId i = 0; i < x->f->values.n; i++) {
    OpId *def = &x->f->values.at[i].def;
    if (*def != NO_OP && *def >= x->at) *def = i == v ? x->at : *def + 1;
  }
  x->op = &x->f->ops.at[++x->at];
  return v;
}

/* A sum of one term more in a kernel that sums along other dims: the same number in the
   interpreter, and a sum over the whole row in the kernel. */
bool fault_other_row(Fault *x) {
  Str family = attr_str(&x->f->attrs, ATTR_family, "");
  if ((strcmp(family, "row") && strcmp(family, "column")) || !x->op->nin) return false;
  uint32_t which = fault_below(x, x->op->nin);
  Type t = x->f->values.at[x->op->in[which]].type, more = t;
  if (elem_class(t.elem) != CLASS_FLOAT || t.rank == MAX_RANK) return false;
  Axis one = {intern(x->m->ctx->names, "One"), 1};
  more.axis[more.rank++] = one;
  Group g = group_dims(1, &one.dim);
  ValueId v = put_before(x, OP_expand, x->op->in[which], g, more);
  x->op->in[which] = put_before(x, OP_sum, v, g, t);
  x->what = "a sum over another row";
  return true;
}
