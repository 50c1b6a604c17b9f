/* Tensors of attention in and out of scratch: rows of D elements, padded with zeros to whole
   vectors. Loads and stores go through the expression generator, so any storage order, stride and
   element type will do. */
#include "attention.h"

AttentionHead attention_head(const Attention *attention) {
  return (AttentionHead){.e = attention->e,
                         .f = &attention->f,
                         .shared = attention->shared,
                         .group = attention->group,
                         .reads = true};
}

Point attention_point(Attention *attention) {
  AttentionHead h = attention_head(attention);
  return attention_head_point(&h);
}

Point attention_queries(Attention *attention, LLVMValueRef q) {
  Point p = attention_point(attention);
  point_set(&p, (Index){.dim = attention->f.query, .at = q, .lane = true});
  int64_t covered = attention->p.query_blocks *
                    attention->p.tile[FLASH_QUERY_BLOCK]; /* whole blocks are worked on */
  if (attention->f.queries != covered)
    p.mask = emit_tail_mask(attention->e, q, emit_i64(attention->e, attention->f.queries),
                            attention->p.lanes);
  return p;
}

/* Index of D at vector `at` of a row, with its mask. */
static void set_vector(Attention *attention, Point *p, LLVMValueRef at, bool tail) {
  point_set(
      p, (Index){.dim = attention->f.dim, .at = at, .lane = true, .multiple = attention->p.lanes});
  p->mask = tail ? emit_tail_mask(attention->e, at, emit_i64(attention->e, attention->f.width),
                                  attention->p.lanes)
                 : NULL;
}

typedef struct KeptRowCopy {
  Attention *a;
  ValueId v;
  LLVMValueRef memory, factor; /* NULL: none */
} KeptRowCopy;

static void read_vector(KeptRowCopy *copy, Point *p, LLVMValueRef row, LLVMValueRef at, bool tail) {
  Attention *attention = copy->a;
  Emit *emit = attention->e;
  set_vector(attention, p, at, tail);
  LLVMValueRef value =
      expr_convert(emit, expr_load(emit, copy->v, p), value_type(emit->k, copy->v)->elem, ELEM_f32);
  if (copy->factor) value = LLVMBuildFMul(emit->builder, value, copy->factor, "");
  if (tail)
    value = LLVMBuildSelect(emit->builder, p->mask, value, LLVMConstNull(attention->vector), "");
  attention_store(attention, value, copy->memory, tile_add(emit, row, at));
}

static void write_vector(KeptRowCopy *copy, Point *p, LLVMValueRef row, LLVMValueRef at,
                         bool tail) {
  Attention *attention = copy->a;
  Emit *emit = attention->e;
  set_vector(attention, p, at, tail);
  LLVMValueRef value = attention_load(attention, copy->memory, tile_add(emit, row, at));
  if (copy->factor) value = LLVMBuildFMul(emit->builder, value, copy->factor, "");
  expr_deliver(emit, copy->v, p,
               expr_convert(emit, value, ELEM_f32, value_type(emit->k, copy->v)->elem));
}

typedef void VectorWork(KeptRowCopy *x, Point *p, LLVMValueRef row, LLVMValueRef at, bool tail);

/* All vectors of a row that hold elements. */
static void each_vector(KeptRowCopy *copy, Point *p, LLVMValueRef row, VectorWork *work) {
  Attention *attention = copy->a;
  Emit *emit = attention->e;
  int64_t whole = attention->f.width / attention->p.lanes * attention->p.lanes;
  Loop c = emit_loop(emit, emit_i64(emit, 0), emit_i64(emit, whole), attention->p.lanes, 0, NULL);
  work(copy, p, row, c.i, false);
  emit_loop_end(emit, &c);
  if (whole < attention->f.width) work(copy, p, row, emit_i64(emit, whole), true);
}

static LLVMValueRef rows_there(Attention *attention, LLVMValueRef first, int64_t total,
                               LLVMValueRef count) {
  return emit_min_i64(
      attention->e, count,
      LLVMBuildNSWSub(attention->e->builder, emit_i64(attention->e, total), first, ""));
}

static void each_row(KeptRowCopy *copy, Str row, LLVMValueRef first, LLVMValueRef present,
                     VectorWork *work) {
  Emit *emit = copy->a->e;
  Point p = attention_point(copy->a);
  Loop r = emit_loop(emit, emit_i64(emit, 0), present, 1, 0, NULL);
  point_set(&p, (Index){.dim = row, .at = tile_add(emit, first, r.i)});
  each_vector(copy, &p, tile_times(emit, r.i, copy->a->p.width), work);
  emit_loop_end(emit, &r);
}

void attention_read(Attention *attention, ValueId value, Str row, LLVMValueRef first, int64_t total,
                    LLVMValueRef count, LLVMValueRef dst, double factor) {
  Emit *emit = attention->e;
  KeptRowCopy copy = {attention, value, dst,
                      factor == 1 ? NULL : attention_splat(attention, factor)};
  LLVMValueRef present = rows_there(attention, first, total, count);
  if (attention->f.width % attention->p.lanes || attention->p.width != attention->f.width)
    attention_zero(attention, dst, tile_times(emit, count, attention->p.width));
  else
    attention_zero(
        attention, attention_at(attention, dst, present, attention->p.width),
        tile_times(emit, LLVMBuildNSWSub(emit->builder, count, present, ""), attention->p.width));
  each_row(&copy, row, first, present, read_vector);
}

void attention_write(Attention *attention, ValueId value, Str row, LLVMValueRef first,
                     int64_t total, LLVMValueRef count, LLVMValueRef src, double factor) {
  KeptRowCopy copy = {attention, value, src,
                      factor == 1 ? NULL : attention_splat(attention, factor)};
  each_row(&copy, row, first, rows_there(attention, first, total, count), write_vector);
}
