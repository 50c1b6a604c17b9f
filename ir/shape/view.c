/* The strides of a view op's result, from its operand's strides: see view.h. */
#include "view.h"

static int64_t stride_of(const Value *v, Str dim) {
  return v->storage.stride[type_find(&v->type, dim)];
}

typedef struct Strides { /* strides by name while a view is worked out */
  int n;
  Str dim[MAX_RANK];
  int64_t stride[MAX_RANK];
} Strides;

static int find(const Strides *strides, Str dim) {
  for (int i = 0; i < strides->n; i++)
    if (strides->dim[i] == dim) return i;
  return -1;
}

static void put(Strides *strides, Str dim, int64_t stride) {
  strides->dim[strides->n] = dim, strides->stride[strides->n++] = stride;
}

static void take(Strides *strides, Str dim) {
  int i = find(strides, dim);
  strides->n--;
  strides->dim[i] = strides->dim[strides->n], strides->stride[i] = strides->stride[strides->n];
}

/* D cut into to[0], to[1], ..: the last keeps D's stride */
static void view_split(const Value *a, const Type *t, const Group *group, Strides *strides) {
  int64_t stride = stride_of(a, group->from[0]);
  for (int i = group->nto; i-- > 0;) {
    put(strides, group->to[i], stride);
    stride *= type_size(t, group->to[i]);
  }
}

static bool view_merge(const Value *a, const Group *group, Strides *strides) {
  int64_t stride = 0, next = 0;
  for (int i = group->nfrom; i-- > 0;) {
    int64_t size = type_size(&a->type, group->from[i]), own = stride_of(a, group->from[i]);
    if (size == 1) continue;
    if (next && own != next) return false;
    if (!next) stride = own;
    next = own * size;
  }
  put(strides, group->to[0], stride ? stride : 1);
  return true;
}

static bool view_group(const Value *a, const Op *o, const Group *group, const Type *t,
                       Strides *strides, int64_t *offset) {
  switch (o->code) {
  case OP_rename:
    for (int i = 0; i < group->nfrom; i++) put(strides, group->to[i], stride_of(a, group->from[i]));
    return true;
  case OP_split: view_split(a, t, group, strides); return true;
  case OP_merge: return view_merge(a, group, strides);
  case OP_slice:
    put(strides, group->to[0], stride_of(a, group->from[0]));
    *offset += attr_int(&o->attrs, ATTR_at, 0) * stride_of(a, group->from[0]);
    return true;
  default: return true;
  }
}

bool view_layout(const Fn *f, const Op *o, uint32_t i, const Type *type, Storage *out) {
  const Value *a = &f->values.at[o->in[0]];
  Strides left = {0}, made = {0};
  int64_t offset = 0;
  for (int k = 0; k < a->type.rank; k++) put(&left, a->type.axis[k].dim, a->storage.stride[k]);
  for (int k = 0; k < o->ngroups; k++) {
    if (!view_group(a, o, &o->group[k], type, &made, &offset)) return false;
    for (int d = 0; d < o->group[k].nfrom; d++) take(&left, o->group[k].from[d]);
  }
  if (o->code == OP_unstack) offset = i * stride_of(a, o->group[0].from[0]);
  for (int k = 0; k < made.n; k++) put(&left, made.dim[k], made.stride[k]);
  *out = (Storage){.ordered = true, .view = VIEW_OF};
  out->base = a->storage.view == VIEW_OF ? a->storage.base : o->in[0];
  out->offset = offset + (a->storage.view == VIEW_OF ? a->storage.offset : 0);
  for (int k = 0; k < type->rank; k++) out->stride[k] = left.stride[find(&left, type->axis[k].dim)];
  return true;
}
