/* Software prefetch of the rows that come next while one is worked on. A row is read from memory in
   its first walk and from the caches in the others; without this, memory would rest meanwhile. Each
   walk prefetches its part of a row that comes `PREFETCH_BYTES` later; where rows are longer, each
   walk but the first for its part of the next one, because the first still meets lines of its own
   row on their way. Fetching touches no value: whatever lies at the address, no result depends on
   it. */
#include "row.h"

enum { PREFETCH_BYTES = 9 << 10 };

/* An argument of which every row is read anew, its elements contiguous. Tables, and what is read
   under other names, have dims of their own: which of their rows comes next is not known. */
static bool streams(const RowNest *s, ValueId v) {
  const Type *t = value_type(s->e->k, v);
  for (int i = 0; i < t->rank; i++)
    if (!axes_have(&s->r.kept, t->axis[i].dim) && !axes_have(&s->r.over, t->axis[i].dim))
      return false;
  Str row = s->kept.dim[s->kept.n - 1].dim, along = s->over.dim[0].dim;
  return type_find(t, row) >= 0 && type_find(t, along) >= 0 && elem_bytes(t->elem) > 1 &&
         buffer_stride(s->e->k, v, along) == 1;
}

static int64_t row_bytes(const RowNest *s, ValueId v) {
  return s->over.dim[0].size * elem_bytes(value_type(s->e->k, v)->elem);
}

static int64_t rows_ahead(const RowNest *s, ValueId v) {
  int64_t bytes = row_bytes(s, v);
  return bytes < PREFETCH_BYTES ? PREFETCH_BYTES / bytes : 1;
}

/* The first walk that fetches. */
static int first_walk(const RowNest *s, ValueId v) { return row_bytes(s, v) > PREFETCH_BYTES; }

static void fetch(RowNest *s, ValueId v, const Point *p) {
  Emit *e = s->e;
  int64_t first = first_walk(s, v), walks = s->passes - first, length = s->over.dim[0].size;
  Str row = s->kept.dim[s->kept.n - 1].dim, along = s->over.dim[0].dim;
  Point there = *p;
  Index r = *point_find(p, row), i = *point_find(p, along);
  r.at = LLVMBuildAdd(e->builder, r.at, emit_index(e, rows_ahead(s, v)), "");
  i.at = LLVMBuildUDiv(e->builder, i.at, emit_index(e, walks), "");
  i.at = LLVMBuildAdd(e->builder, i.at, emit_index(e, (s->pass - first) * length / walks), "");
  point_set(&there, r), point_set(&there, i);
  emit_prefetch(e, expr_address(e, v, &there), false);
}

void row_prefetch(RowNest *s, const Point *p, int n) {
  const Fn *k = s->e->k;
  if (s->passes == 1 || !s->lanes_over || s->over.n != 1 || !s->kept.n) return;
  for (uint32_t i = 0; i < k->args.n; i++) {
    ValueId v = k->args.at[i];
    for (int u = 0; u < n && streams(s, v) && s->pass >= first_walk(s, v); u++) fetch(s, v, &p[u]);
  }
}
