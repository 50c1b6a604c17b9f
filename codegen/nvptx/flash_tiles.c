/* Attention on GPUs: heads, tiles in shared memory, results. See flash.c. Offsets of tensors go
   through the expression generator, so any storage order will do. */
#include "flash.h"
#include "ir/support/num.h"

FlashGpu flash_new(Emit *emit) {
  FlashGpu x = {.e = emit, .f = flash_of(emit->k)};
  emit->lanes = 1, emit->index = emit_type(emit, ELEM_i64); /* bounds of masks are i64 */
  x.elem = value_type(emit->k, x.f.q)->elem;
  x.g = flash_gpu_plan(&x.f, x.elem, emit_tile(emit, FLASH_GPU_COUNT));
  return x;
}

AttentionHead flash_head(const FlashGpu *x) {
  return (AttentionHead){x->e, &x->f, x->shared, x->group};
}

Point flash_point(const FlashGpu *x) {
  AttentionHead h = flash_head(x);
  return attention_head_point(&h);
}

/* ---- tiles ---- */

static int64_t stride_of(const FlashGpu *x, ValueId value, Str dim) {
  return expr_stride(x->e->k, value, type_find(value_type(x->e->k, value), dim));
}

LLVMValueRef flash_base(FlashGpu *x, ValueId value, Str row) {
  Point p = flash_point(x);
  point_set(&p, (Index){.dim = row, .at = emit_i64(x->e, 0)});
  point_set(&p, (Index){.dim = x->f.dim, .at = emit_i64(x->e, 0)});
  return expr_address(x->e, value, &p);
}

static ProductDims one_dim(Str dim, int64_t size, int64_t stride) {
  return (ProductDims){.count = 1, .dim = {{.dim = dim, .size = size, .a = stride}}, size, 1};
}

static TileLoad load_of(FlashGpu *x, ValueId value, bool keys, bool column, int bit, int64_t at) {
  const Flash *flash = &x->f;
  Str row = keys ? flash->key : flash->query;
  TileLoad l = {.side = column ? x->g.column : x->g.row, .memory = x->elem, .shared = x->elem};
  l.side.async = (x->g.tile[FLASH_GPU_COPY] - 1) & bit;
  l.k = one_dim(row, keys ? flash->keys : flash->queries, stride_of(x, value, row));
  l.mn = one_dim(flash->dim, flash->width, stride_of(x, value, flash->dim));
  l.k_extent = l.k.inner, l.k_tile = l.side.rows;
  l.mn_extent = flash->width, l.mn_tile = x->g.width;
  l.threads = 2 * (int)x->g.tile[FLASH_GPU_ROWS], l.mn0 = warp_i32(&x->w, 0);
  l.base = flash_base(x, value, row);
  tile_load_setup(&x->w, &l, at);
  return l;
}

ValueId flash_tile_value(const FlashGpu *x, bool column, int i, int *bit) {
  const Flash *flash = &x->f;
  bool keys = column != x->rows_are_keys;
  if (keys) return *bit = i ? FLASH_COPY_V : FLASH_COPY_K, i ? flash->v : flash->k;
  return *bit = i ? FLASH_COPY_DY : FLASH_COPY_Q, i ? flash->dy : flash->q;
}

static void setup_tiles(FlashGpu *x) {
  int rows = flash_gpu_tiles(x->phase, false), columns = flash_gpu_tiles(x->phase, true), bit;
  int64_t at = 0;
  for (int i = 0; i < rows; i++, at += x->g.row.bytes) {
    ValueId value = flash_tile_value(x, false, i, &bit);
    x->row_at[i] = at;
    x->row[i] = load_of(x, value, x->rows_are_keys, false, bit, at);
  }
  x->column_at = at, x->stage_bytes = columns * x->g.column.bytes;
  x->scores_at = at + 2 * x->stage_bytes;
  for (int i = 0; i < columns; i++) {
    ValueId value = flash_tile_value(x, true, i, &bit);
    x->column[i] = load_of(x, value, !x->rows_are_keys, true, bit, at + i * x->g.column.bytes);
  }
}

/* Rows of one head beside each other, the last ones first: under a causal mask they have most work.
 */
static void place(FlashGpu *x) {
  Warp *w = &x->w;
  Emit *emit = x->e;
  const Flash *flash = &x->f;
  if (x->lists.there) {
    flash_list_place(x);
    return;
  }
  int64_t blocks = ceil_div(x->rows, x->g.tile[FLASH_GPU_ROWS]);
  LLVMValueRef slices = warp_div(w, w->cta, blocks), block = warp_rem(w, w->cta, blocks);
  if (!x->rows_are_keys) block = warp_sub(w, warp_i32(w, blocks - 1), block);
  x->row0 = warp_times(w, block, x->g.tile[FLASH_GPU_ROWS]);
  x->slice = warp_times(w, warp_rem(w, slices, x->g.tile[FLASH_GPU_SLICES]), x->g.slice);
  LLVMValueRef head = warp_div(w, slices, x->g.tile[FLASH_GPU_SLICES]);
  int64_t groups = flash->group.count;
  x->head = x->rows_are_keys ? warp_times(w, head, groups) : head;
  x->shared = warp_wide(w, x->rows_are_keys ? head : warp_div(w, head, groups));
  x->group = x->rows_are_keys ? emit_i64(emit, 0) : warp_wide(w, warp_rem(w, head, groups));
}

void flash_begin(FlashGpu *x, int phase) {
  must(phase >= 0 && phase < x->g.phases, "kernel %s: phase %d of %d", x->e->k->name, phase,
       x->g.phases);
  emit_begin_phase(x->e, phase);
  x->w = warp_begin(x->e);
  x->phase = x->g.phase[phase];
  x->rows_are_keys = x->phase == FLASH_DKV;
  x->rows = x->rows_are_keys ? x->f.keys : x->f.queries;
  x->columns = x->rows_are_keys ? x->f.queries : x->f.keys;
  if (x->phase == FLASH_ROWSUMS) return;
  flash_list_setup(x);
  place(x);
  setup_tiles(x);
}

void flash_read_rows(FlashGpu *x) {
  Warp *w = &x->w;
  LLVMValueRef block = warp_div(w, x->row0, x->g.tile[FLASH_GPU_ROWS]), zero = warp_i32(w, 0);
  for (int i = 0; i < flash_gpu_tiles(x->phase, false); i++) {
    tile_load_begin(w, &x->row[i], block, warp_plus(w, block, 1), zero);
    tile_load_end(w, &x->row[i], zero);
  }
}

LLVMValueRef flash_row(FlashGpu *x, int half) {
  Warp *w = &x->w;
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4));
  return warp_add(w, x->row0, warp_plus(w, row, 8 * half));
}

LLVMValueRef flash_column(FlashGpu *x, LLVMValueRef c0, int block, int q) {
  Warp *w = &x->w;
  LLVMValueRef at = warp_times(w, warp_rem(w, w->lane, 4), 2);
  return warp_plus(w, warp_add(w, c0, at), block * FLASH_BLOCK + q);
}

/* ---- results ---- */

/* Whether elements of the width are contiguous in every result that has it. */
static bool side_by_side(const FlashGpu *x) {
  const Fn *fn = x->e->k;
  for (uint32_t r = 0; r < fn->results.n; r++) {
    bool there = type_find(value_type(fn, fn->results.at[r]), x->f.dim) >= 0;
    if (there && stride_of(x, fn->results.at[r], x->f.dim) != 1) return false;
  }
  return x->f.width % 2 == 0;
}

/* Two neighbours in one store where they lie so. */
static void put_pair(FlashGpu *x, ValueId value, Point *p, LLVMValueRef d, LLVMValueRef at[2]) {
  Emit *emit = x->e;
  const Flash *flash = &x->f;
  LLVMValueRef two = LLVMGetPoison(LLVMVectorType(x->w.f32, 2));
  if (side_by_side(x)) {
    for (int q = 0; q < 2; q++)
      two = LLVMBuildInsertElement(emit->builder, two, at[q], warp_i32(&x->w, q), "");
    point_set(p,
              (Index){.dim = flash->dim, .at = warp_wide(&x->w, d), .lane = true, .multiple = 2});
    emit->lanes = 2;
    expr_deliver(emit, value, p, two);
    emit->lanes = 1;
    return;
  }
  for (int q = 0; q < 2; q++) {
    LLVMValueRef i = warp_plus(&x->w, d, q);
    Branch b = emit_if(emit, warp_less(&x->w, i, warp_i32(&x->w, flash->width)));
    point_set(p, (Index){.dim = flash->dim, .at = warp_wide(&x->w, i)});
    expr_deliver(emit, value, p, at[q]);
    emit_end_if(emit, b);
  }
}

static void put_row(FlashGpu *x, ValueId value, Point *p, const Registers *sums, int half,
                    LLVMValueRef factor) {
  Warp *w = &x->w;
  for (int j = 0; j < sums->n / 4; j++) {
    LLVMValueRef d = flash_column(x, x->slice, j, 0), at[2];
    Branch b = {0};
    bool ragged = x->f.width != x->g.width;
    if (ragged) b = emit_if(x->e, warp_less(w, d, warp_i32(w, x->f.width)));
    for (int q = 0; q < 2; q++) {
      at[q] = warp_get(w, sums, 4 * j + 2 * half + q);
      if (factor) at[q] = LLVMBuildFMul(x->e->builder, at[q], factor, "");
    }
    put_pair(x, value, p, d, at);
    if (ragged) emit_end_if(x->e, b);
  }
}

void flash_put(FlashGpu *x, ValueId value, const Registers *sums, const LLVMValueRef factor[2]) {
  Warp *w = &x->w;
  Str dim = x->rows_are_keys ? x->f.key : x->f.query;
  if (x->rows_are_keys) x->group = emit_i64(x->e, 0);
  for (int half = 0; half < 2; half++) {
    LLVMValueRef row = flash_row(x, half);
    Branch b = emit_if(x->e, warp_less(w, row, warp_i32(w, x->rows)));
    Point p = flash_point(x);
    point_set(&p, (Index){.dim = dim, .at = warp_wide(w, row)});
    put_row(x, value, &p, sums, half, factor ? factor[half] : NULL);
    emit_end_if(x->e, b);
  }
}

LLVMValueRef flash_workspace(FlashGpu *x, LLVMValueRef index) {
  Emit *emit = x->e;
  LLVMValueRef base = emit_buffer(emit, emit->k->args.n + emit->k->results.n),
               at = warp_wide(&x->w, index);
  return LLVMBuildInBoundsGEP2(emit->builder, x->w.f32, base, &at, 1, "");
}
