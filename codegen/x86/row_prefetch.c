/* Software prefetch of the next rows while one is computed. A row is read from memory in its first
   walk and from the caches in the others; without prefetches memory would be idle during these.
   Each walk prefetches its part of a row that is `PREFETCH_BYTES` later; if rows are longer, each
   walk but the first prefetches its part of the next one, because lines of the first walk's own row
   are still in flight. Prefetching touches no value: whatever is at the address, no result depends
   on it. */
#include "row.h"

enum { PREFETCH_BYTES = 9 << 10 };

/* An argument of which every row is read anew, its elements contiguous. Tables, and what is read
   under other names, have dims of their own: which of their rows comes next is not known. */
static bool streams(const RowNest *nest, ValueId v) {
  const Type *t = value_type(nest->e->k, v);
  for (int i = 0; i < t->rank; i++)
    if (!axes_have(&nest->r.kept, t->axis[i].dim) && !axes_have(&nest->r.over, t->axis[i].dim))
      return false;
  Str row = nest->kept.dim[nest->kept.n - 1].dim, along = nest->over.dim[0].dim;
  return type_find(t, row) >= 0 && type_find(t, along) >= 0 && elem_bytes(t->elem) > 1 &&
         buffer_stride(nest->e->k, v, along) == 1;
}

static int64_t row_bytes(const RowNest *nest, ValueId v) {
  return nest->over.dim[0].size * elem_bytes(value_type(nest->e->k, v)->elem);
}

static int64_t rows_ahead(const RowNest *nest, ValueId v) {
  int64_t bytes = row_bytes(nest, v);
  return bytes < PREFETCH_BYTES ? PREFETCH_BYTES / bytes : 1;
}

/* The first walk that fetches. */
static int first_walk(const RowNest *nest, ValueId v) {
  return row_bytes(nest, v) > PREFETCH_BYTES;
}

static void fetch(RowNest *nest, ValueId v, const Point *p) {
  Emit *e = nest->e;
  int64_t first = first_walk(nest, v), walks = nest->passes - first,
          length = nest->over.dim[0].size;
  Str row = nest->kept.dim[nest->kept.n - 1].dim, along = nest->over.dim[0].dim;
  Point place = *p;
  Index r = *point_find(p, row), i = *point_find(p, along);
  r.at = LLVMBuildAdd(e->builder, r.at, emit_index(e, rows_ahead(nest, v)), "");
  i.at = LLVMBuildUDiv(e->builder, i.at, emit_index(e, walks), "");
  i.at = LLVMBuildAdd(e->builder, i.at, emit_index(e, (nest->pass - first) * length / walks), "");
  point_set(&place, r), point_set(&place, i);
  emit_prefetch(e, expr_address(e, v, &place), false);
}

void row_prefetch(RowNest *nest, const Point *p, int n) {
  const Fn *k = nest->e->k;
  if (nest->passes == 1 || !nest->lanes_over || nest->over.n != 1 || !nest->kept.n) return;
  for (uint32_t i = 0; i < k->args.n; i++) {
    ValueId v = k->args.at[i];
    for (int u = 0; u < n && streams(nest, v) && nest->pass >= first_walk(nest, v); u++)
      fetch(nest, v, &p[u]);
  }
}
