/* Software prefetch: each register tile issues one row of the next copy, hiding its latency behind
   FMAs. Copies of rows into scratch, and of results out of it, would otherwise wait for memory,
   which is idle while tiles are computed. The next copies are: keys and values of the next head,
   queries of the next block, results of this one. A counter per list of rows is the position in it.
   --quick: nothing. Must not: change what is computed. */
#include "attention.h"
#include "ir/support/num.h"
#include "codegen/walk.h"

void attention_prefetch_start(Attention *attention, Prefetch *list, LLVMValueRef rows) {
  must(LLVMTypeOf(rows) == attention->i64, "kernel %s: rows are counted in i64",
       attention->e->k->name);
  if (!list->done) list->done = emit_variable(attention->e, attention->i64);
  emit_set(attention->e, list->done, emit_i64(attention->e, 0));
  list->rows = rows, list->n = 0;
}

static bool has_buffer(const Fn *fn, ValueId value) {
  for (uint32_t i = 0; i < fn->results.n; i++)
    if (fn->results.at[i] == value) return true;
  return expr_is_argument(fn, value);
}

void attention_prefetch_add(Attention *attention, Prefetch *list, ValueId value, Str row,
                            const Point *head, LLVMValueRef first, bool write) {
  Emit *emit = attention->e;
  const Type *type = value_type(emit->k, value);
  if (emit->quick || !has_buffer(emit->k, value) ||
      expr_stride(emit->k, value, type_find(type, attention->f.dim)) != 1)
    return;
  if (list->n == PREFETCH_MOST) bug("more than %d lists of rows", PREFETCH_MOST);
  Point p = *head;
  point_set(&p, (Index){.dim = row, .at = first});
  point_set(&p, (Index){.dim = attention->f.dim, .at = emit_i64(emit, 0)});
  int64_t bytes = elem_bytes(type->elem);
  list->at[list->n++] =
      (PrefetchRows){.first = expr_address(emit, value, &p),
                     .distance = expr_stride(emit->k, value, type_find(type, row)) * bytes,
                     .lines = (int)ceil_div(attention->f.width * bytes, CACHE_LINE),
                     .write = write};
}

static void fetch_row(Attention *attention, const PrefetchRows *x, LLVMValueRef row) {
  Emit *emit = attention->e;
  LLVMTypeRef i8 = LLVMInt8TypeInContext(emit->context);
  LLVMValueRef at = tile_elements(emit, i8, x->first, tile_times(emit, row, x->distance));
  for (int i = 0; i < x->lines; i++)
    emit_prefetch(emit, tile_elements(emit, i8, at, emit_i64(emit, i * CACHE_LINE)), x->write);
}

void attention_prefetch_keys(Attention *a, Attention *next) {
  Prefetch *list = &a->prefetch[PREFETCH_HEAD];
  LLVMValueRef first = emit_i64(a->e, 0);
  Point head = attention_point(next);
  attention_prefetch_start(a, list, emit_i64(a->e, next->f.keys));
  attention_prefetch_add(a, list, next->f.k, next->f.key, &head, first, false);
  attention_prefetch_add(a, list, next->f.v, next->f.key, &head, first, false);
}

void attention_prefetch(Attention *attention) {
  Emit *emit = attention->e;
  for (int i = 0; i < PREFETCH_LISTS; i++) {
    const Prefetch *list = &attention->prefetch[i];
    if (!list->n) continue;
    LLVMValueRef row = emit_get(emit, attention->i64, list->done);
    Branch left = emit_if(emit, LLVMBuildICmp(emit->builder, LLVMIntSLT, row, list->rows, ""));
    for (int j = 0; j < list->n; j++) fetch_row(attention, &list->at[j], row);
    emit_set(emit, list->done, tile_add(emit, row, emit_i64(emit, 1)));
    emit_end_if(emit, left);
  }
}
