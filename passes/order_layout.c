/* order: strides. Layouts of buffers, their comparison, and what a view op makes of its operand's
   strides.

   Rows whose distance is a multiple of a power of two fall on few sets of the first-level cache
   when a contraction reads a column of them. A row here is the shortest run of inner axes of at
   least ROW_BYTES; where its cache lines are even in number, one more line goes between rows. The
   rule looks at inner axes only, so that a slice of a stacked value has the layout of the value
   alone. */
#include "passes/order.h"

Storage layout_dense(const Type *t) {
  Storage s = {.ordered = true};
  int64_t n = 1;
  for (int i = t->rank; i-- > 0; n *= t->axis[i].size) s.stride[i] = n;
  return s;
}

enum { ROW_BYTES = 1024, PAD_BYTES = 0 };

Pad layout_pad(const Module *m) {
  return (Pad){(int64_t)module_number(m, "target.pad", PAD_BYTES),
               (int64_t)module_number(m, "target.row", ROW_BYTES)};
}

Storage layout_padded(const Type *t, Pad pad) {
  Storage s = {.ordered = true};
  int64_t n = 1, bytes = elem_bytes(t->elem);
  bool row = false;
  for (int i = t->rank; i-- > 0;) {
    s.stride[i] = n;
    n *= t->axis[i].size;
    if (row || n * bytes < pad.row) continue;
    row = true;
    if (pad.bytes && n * bytes % (2 * pad.bytes) == 0) n += pad.bytes / bytes;
  }
  return s;
}

bool layout_is_dense(const Value *v) {
  Storage s = layout_dense(&v->type);
  for (int i = 0; i < v->type.rank; i++)
    if (v->storage.stride[i] != s.stride[i] && v->type.axis[i].size > 1) return false;
  return true;
}

bool layout_same(const Value *a, const Value *b) {
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
  return type_with_elem(*order, t->elem);
}

void layout_set(Value *v, const Type *order, Pad pad) {
  if (order) v->type = layout_permuted(&v->type, order);
  v->storage = layout_padded(&v->type, pad);
}

/* ---- views ---- */

static int64_t stride_of(const Value *v, Str dim) {
  return v->storage.stride[type_find(&v->type, dim)];
}

typedef struct Strides { /* strides by name while a view is worked out */
  int n;
  Str dim[MAX_RANK];
  int64_t stride[MAX_RANK];
} Strides;

static int find(const Strides *s, Str dim) {
  for (int i = 0; i < s->n; i++)
    if (s->dim[i] == dim) return i;
  return -1;
}

static void put(Strides *s, Str dim, int64_t stride) {
  s->dim[s->n] = dim, s->stride[s->n++] = stride;
}

static void take(Strides *s, Str dim) {
  int i = find(s, dim);
  s->n--;
  s->dim[i] = s->dim[s->n], s->stride[i] = s->stride[s->n];
}

/* D cut into to[0], to[1], ..: the last keeps D's stride */
static void view_split(const Value *a, const Type *t, const Group *g, Strides *s) {
  int64_t stride = stride_of(a, g->from[0]);
  for (int i = g->nto; i-- > 0;) {
    put(s, g->to[i], stride);
    stride *= type_size(t, g->to[i]);
  }
}

static bool view_merge(const Value *a, const Group *g, Strides *s) {
  int64_t stride = 0, next = 0;
  for (int i = g->nfrom; i-- > 0;) {
    int64_t size = type_size(&a->type, g->from[i]), own = stride_of(a, g->from[i]);
    if (size == 1) continue;
    if (next && own != next) return false;
    if (!next) stride = own;
    next = own * size;
  }
  put(s, g->to[0], stride ? stride : 1);
  return true;
}

static bool view_group(const Value *a, const Op *o, const Group *g, const Type *t, Strides *s,
                       int64_t *offset) {
  switch (o->code) {
  case OP_rename: put(s, g->to[0], stride_of(a, g->from[0])); return true;
  case OP_split: view_split(a, t, g, s); return true;
  case OP_merge: return view_merge(a, g, s);
  case OP_slice:
    put(s, g->to[0], stride_of(a, g->from[0]));
    *offset += attr_int(&o->attrs, ATTR_at, 0) * stride_of(a, g->from[0]);
    return true;
  default: return true;
  }
}

/* Axes by falling stride: the type of a view stands in storage order too. */
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
  const Value *a = &f->values.at[o->in[0]];
  Strides left = {0}, made = {0};
  int64_t offset = 0;
  for (int k = 0; k < a->type.rank; k++) put(&left, a->type.axis[k].dim, a->storage.stride[k]);
  for (int k = 0; k < o->ngroups; k++) {
    if (!view_group(a, o, &o->group[k], &result->type, &made, &offset)) return false;
    for (int d = 0; d < o->group[k].nfrom; d++) take(&left, o->group[k].from[d]);
  }
  if (o->code == OP_unstack) offset = i * stride_of(a, o->group[0].from[0]);
  for (int k = 0; k < made.n; k++) put(&left, made.dim[k], made.stride[k]);
  Storage s = {.ordered = true, .view = VIEW_OF};
  s.base = a->storage.view == VIEW_OF ? a->storage.base : o->in[0];
  s.offset = offset + (a->storage.view == VIEW_OF ? a->storage.offset : 0);
  for (int k = 0; k < result->type.rank; k++)
    s.stride[k] = left.stride[find(&left, result->type.axis[k].dim)];
  sort_axes(&result->type, s.stride);
  result->storage = s;
  return true;
}

ValueId view_root(const Fn *f, ValueId v) {
  const Storage *s = &f->values.at[v].storage;
  return s->view == VIEW_OF ? s->base : v;
}
