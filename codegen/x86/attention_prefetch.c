/* Software prefetch: each register tile issues one row of the next copy, hiding its latency behind
   FMAs. Copies of rows into scratch, and of results out of it, would otherwise wait for memory,
   which is idle while tiles are computed. What is copied next: keys and values of the next head,
   queries of the next block, results of this one. A counter per list of rows says how far that has
   come. Must not: change what is computed. */
#include "attention.h"
#include "ir/support/num.h"
#include "codegen/walk.h"

void attention_prefetch_start(Attention *a, Prefetch *list, LLVMValueRef rows) {
  must(LLVMTypeOf(rows) == a->i64, "kernel %s: rows are counted in i64", a->e->k->name);
  if (!list->done) list->done = emit_variable(a->e, a->i64);
  emit_set(a->e, list->done, emit_i64(a->e, 0));
  list->rows = rows, list->n = 0;
}

static bool has_buffer(const Fn *k, ValueId v) {
  for (uint32_t i = 0; i < k->results.n; i++)
    if (k->results.at[i] == v) return true;
  return expr_is_argument(k, v);
}

void attention_prefetch_add(Attention *a, Prefetch *list, ValueId v, Str row, const Point *head,
                            LLVMValueRef first, bool write) {
  Emit *e = a->e;
  const Type *t = value_type(e->k, v);
  if (!has_buffer(e->k, v) || expr_stride(e->k, v, type_find(t, a->f.dim)) != 1) return;
  if (list->n == PREFETCH_MOST) bug("more than %d lists of rows", PREFETCH_MOST);
  Point p = *head;
  point_set(&p, (Index){.dim = row, .at = first});
  point_set(&p, (Index){.dim = a->f.dim, .at = emit_i64(e, 0)});
  int64_t bytes = elem_bytes(t->elem);
  list->at[list->n++] = (PrefetchRows){.first = expr_address(e, v, &p),
                                       .distance = expr_stride(e->k, v, type_find(t, row)) * bytes,
                                       .lines = (int)ceil_div(a->f.width * bytes, CACHE_LINE),
                                       .write = write};
}

static void fetch_row(Attention *a, const PrefetchRows *x, LLVMValueRef row) {
  Emit *e = a->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(e->context);
  LLVMValueRef at = tile_elements(e, i8, x->first, tile_times(e, row, x->distance));
  for (int i = 0; i < x->lines; i++)
    emit_prefetch(e, tile_elements(e, i8, at, emit_i64(e, i * CACHE_LINE)), x->write);
}

void attention_prefetch(Attention *a) {
  Emit *e = a->e;
  for (int i = 0; i < PREFETCH_LISTS; i++) {
    const Prefetch *list = &a->prefetch[i];
    if (!list->n) continue;
    LLVMValueRef row = emit_get(e, a->i64, list->done);
    Branch left = emit_if(e, LLVMBuildICmp(e->builder, LLVMIntSLT, row, list->rows, ""));
    for (int j = 0; j < list->n; j++) fetch_row(a, &list->at[j], row);
    emit_set(e, list->done, tile_add(e, row, emit_i64(e, 1)));
    emit_end_if(e, left);
  }
}
