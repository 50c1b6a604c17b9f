/* Tensors of attention in and out of scratch: rows of D elements, padded with zeros to whole
   vectors. Loads and stores go through the expression generator, so any storage order, stride and
   element type will do. */
#include "attention.h"

AttentionHead attention_head(const Attention *a) {
  return (AttentionHead){a->e, &a->f, a->shared, a->group};
}

Point attention_point(Attention *a) {
  AttentionHead h = attention_head(a);
  return attention_head_point(&h);
}

Point attention_queries(Attention *a, LLVMValueRef q) {
  Point p = attention_point(a);
  point_set(&p, (Index){.dim = a->f.query, .at = q, .lane = true});
  int64_t covered =
      a->p.query_blocks * a->p.tile[FLASH_QUERY_BLOCK]; /* whole blocks are worked on */
  if (a->f.queries != covered)
    p.mask = emit_tail_mask(a->e, q, emit_i64(a->e, a->f.queries), a->p.lanes);
  return p;
}

/* Index of D at vector `at` of a row, with its mask. */
static void set_vector(Attention *a, Point *p, LLVMValueRef at, bool tail) {
  point_set(p, (Index){.dim = a->f.dim, .at = at, .lane = true, .multiple = a->p.lanes});
  p->mask = tail ? emit_tail_mask(a->e, at, emit_i64(a->e, a->f.width), a->p.lanes) : NULL;
}

typedef struct KeptRowCopy {
  Attention *a;
  ValueId v;
  LLVMValueRef memory, factor; /* NULL: none */
} KeptRowCopy;

static void read_vector(KeptRowCopy *x, Point *p, LLVMValueRef row, LLVMValueRef at, bool tail) {
  Attention *a = x->a;
  Emit *e = a->e;
  set_vector(a, p, at, tail);
  LLVMValueRef value =
      expr_convert(e, expr_load(e, x->v, p), value_type(e->k, x->v)->elem, ELEM_f32);
  if (x->factor) value = LLVMBuildFMul(e->builder, value, x->factor, "");
  if (tail) value = LLVMBuildSelect(e->builder, p->mask, value, LLVMConstNull(a->vector), "");
  attention_store(a, value, x->memory, tile_add(e, row, at));
}

static void write_vector(KeptRowCopy *x, Point *p, LLVMValueRef row, LLVMValueRef at, bool tail) {
  Attention *a = x->a;
  Emit *e = a->e;
  set_vector(a, p, at, tail);
  LLVMValueRef value = attention_load(a, x->memory, tile_add(e, row, at));
  if (x->factor) value = LLVMBuildFMul(e->builder, value, x->factor, "");
  expr_deliver(e, x->v, p, expr_convert(e, value, ELEM_f32, value_type(e->k, x->v)->elem));
}

typedef void VectorWork(KeptRowCopy *x, Point *p, LLVMValueRef row, LLVMValueRef at, bool tail);

/* All vectors of a row that hold elements. */
static void each_vector(KeptRowCopy *x, Point *p, LLVMValueRef row, VectorWork *work) {
  Attention *a = x->a;
  Emit *e = a->e;
  int64_t whole = a->f.width / a->p.lanes * a->p.lanes;
  Loop c = emit_loop(e, emit_i64(e, 0), emit_i64(e, whole), a->p.lanes, 0, NULL);
  work(x, p, row, c.i, false);
  emit_loop_end(e, &c);
  if (whole < a->f.width) work(x, p, row, emit_i64(e, whole), true);
}

static LLVMValueRef rows_there(Attention *a, LLVMValueRef first, int64_t total,
                               LLVMValueRef count) {
  return emit_min_i64(a->e, count,
                      LLVMBuildNSWSub(a->e->builder, emit_i64(a->e, total), first, ""));
}

static void each_row(KeptRowCopy *x, Str row, LLVMValueRef first, LLVMValueRef there,
                     VectorWork *work) {
  Emit *e = x->a->e;
  Point p = attention_point(x->a);
  Loop r = emit_loop(e, emit_i64(e, 0), there, 1, 0, NULL);
  point_set(&p, (Index){.dim = row, .at = tile_add(e, first, r.i)});
  each_vector(x, &p, tile_times(e, r.i, x->a->p.width), work);
  emit_loop_end(e, &r);
}

void attention_read(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                    LLVMValueRef count, LLVMValueRef dst, double factor) {
  Emit *e = a->e;
  KeptRowCopy x = {a, v, dst, factor == 1 ? NULL : attention_splat(a, factor)};
  LLVMValueRef there = rows_there(a, first, total, count);
  if (a->f.width % a->p.lanes || a->p.width != a->f.width)
    attention_zero(a, dst, tile_times(e, count, a->p.width));
  else
    attention_zero(a, attention_at(a, dst, there, a->p.width),
                   tile_times(e, LLVMBuildNSWSub(e->builder, count, there, ""), a->p.width));
  each_row(&x, row, first, there, read_vector);
}

void attention_write(Attention *a, ValueId v, Str row, LLVMValueRef first, int64_t total,
                     LLVMValueRef count, LLVMValueRef src, double factor) {
  KeptRowCopy x = {a, v, src, factor == 1 ? NULL : attention_splat(a, factor)};
  each_row(&x, row, first, rows_there(a, first, total, count), write_vector);
}
