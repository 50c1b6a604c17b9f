/* order: strides. Layouts of buffers and their comparison; the axes of views are sorted by
   descending stride.

   Rows whose distance is a multiple of a power of two map to few sets of the first-level cache
   when a contraction reads a column of them. A row in this file is the shortest run of inner axes
   of at least `row` bytes (ir/target_facts.def); if its number of cache lines is even, one more
   line is added between rows. The rule considers inner axes only, so that a slice of a stacked
   value has the layout of the value alone. */
#include "order.h"
#include "ir/shape/view.h"

Storage layout_dense(const Type *t) {
  Storage storage = {.ordered = true};
  int64_t n = 1;
  for (int i = t->rank; i-- > 0; n *= t->axis[i].size) storage.stride[i] = n;
  return storage;
}

Pad layout_pad(const Module *m) { return (Pad){m->target.pad, m->target.row}; }

Storage layout_padded(const Type *t, Pad pad) {
  must(pad.bytes % elem_bytes(t->elem) == 0, "rows %lld bytes apart hold no whole %s",
       (long long)pad.bytes, elem_name(t->elem));
  Storage storage = {.ordered = true};
  int64_t n = 1, bytes = elem_bytes(t->elem);
  bool row = false;
  for (int i = t->rank; i-- > 0;) {
    storage.stride[i] = n;
    n *= t->axis[i].size;
    if (row || n * bytes < pad.row) continue;
    row = true;
    if (pad.bytes && n * bytes % (2 * pad.bytes) == 0) n += pad.bytes / bytes;
  }
  return storage;
}

bool layout_is_dense(const Value *v) {
  must(v->storage.ordered, "a value without strides is asked whether it is dense");
  Storage storage = layout_dense(&v->type);
  for (int i = 0; i < v->type.rank; i++)
    if (v->storage.stride[i] != storage.stride[i] && v->type.axis[i].size > 1) return false;
  return true;
}

bool layout_same(const Value *a, const Value *b) {
  must(a->storage.ordered && b->storage.ordered, "values without strides are compared");
  if (!type_same_dims(&a->type, &b->type) || elem_bytes(a->type.elem) != elem_bytes(b->type.elem))
    return false;
  for (int i = 0; i < a->type.rank; i++) {
    int j = type_find(&b->type, a->type.axis[i].dim);
    if (a->storage.stride[i] != b->storage.stride[j] && a->type.axis[i].size > 1) return false;
  }
  return true;
}

Type layout_permuted(const Type *t, const Type *order) {
  if (!type_same_dims(t, order)) bug("order: a type cannot take the order of one with other dims");
  return type_in_tier(type_with_elem(*order, t->elem), t->tier);
}

void layout_set(Value *v, const Type *order, Pad pad) {
  if (order) v->type = layout_permuted(&v->type, order);
  v->storage = layout_padded(&v->type, pad);
}

/* Axes by descending stride, so that the type of a view is also in storage order. */
static void sort_axes(Type *t, int64_t *stride) {
  for (int i = 1; i < t->rank; i++)
    for (int j = i; j > 0 && stride[j] > stride[j - 1]; j--) {
      Axis a = t->axis[j];
      int64_t s = stride[j];
      t->axis[j] = t->axis[j - 1], stride[j] = stride[j - 1];
      t->axis[j - 1] = a, stride[j - 1] = s;
    }
}

bool layout_view(const Fn *f, const Op *o, uint32_t i, Value *result) {
  Storage storage;
  if (!view_layout(f, o, i, &result->type, &storage)) return false;
  sort_axes(&result->type, storage.stride);
  result->storage = storage;
  return true;
}

ValueId view_root(const Fn *f, ValueId v) {
  const Storage *storage = &f->values.at[v].storage;
  return storage->view == VIEW_OF ? storage->base : v;
}
