/* Attention on GPUs: heads, tiles in shared memory, results. See flash.c. Offsets of tensors go
   through the expression generator, so any storage order will do. */
#include "flash.h"
#include "ir/kernel/gpu_plan.h"
#include "ir/support/num.h"

enum { SECTION_BYTES = 16 << 20 }; /* keys and values, or queries and dy */

FlashGpu flash_new(Emit *emit) {
  FlashGpu flash_gpu = {.e = emit, .f = flash_of(emit->k)};
  emit->lanes = 1, emit->index = emit_type(emit, ELEM_i64); /* bounds of masks are i64 */
  flash_gpu.elem = value_type(emit->k, flash_gpu.f.q)->elem;
  flash_gpu.g = flash_gpu_plan(&flash_gpu.f, flash_gpu.elem, emit_tile(emit, FLASH_GPU_COUNT));
  return flash_gpu;
}

AttentionHead flash_head(const FlashGpu *flash_gpu) {
  return (AttentionHead){.e = flash_gpu->e,
                         .f = &flash_gpu->f,
                         .shared = flash_gpu->shared,
                         .group = flash_gpu->group};
}

Point flash_point(const FlashGpu *flash_gpu) {
  AttentionHead h = flash_head(flash_gpu);
  return attention_head_point(&h);
}

/* ---- tiles ---- */

int64_t flash_stride(const FlashGpu *flash_gpu, ValueId value, Str dim) {
  return expr_stride(flash_gpu->e->k, value, type_find(value_type(flash_gpu->e->k, value), dim));
}

LLVMValueRef flash_base(FlashGpu *flash_gpu, ValueId value, Str row) {
  Point p = flash_point(flash_gpu);
  point_set(&p, (Index){.dim = row, .at = emit_i64(flash_gpu->e, 0)});
  point_set(&p, (Index){.dim = flash_gpu->f.dim, .at = emit_i64(flash_gpu->e, 0)});
  return expr_address(flash_gpu->e, value, &p);
}

static ProductDims one_dim(Str dim, int64_t size, int64_t stride) {
  return (ProductDims){.count = 1, .dim = {{.dim = dim, .size = size, .a = stride}}, size, 1};
}

static TileLoad load_of(FlashGpu *flash_gpu, ValueId value, bool keys, bool column, int bit,
                        int64_t at) {
  const Flash *flash = &flash_gpu->f;
  Str row = keys ? flash->key : flash->query;
  TileLoad load = {.side = column ? flash_gpu->g.column : flash_gpu->g.row,
                   .memory = flash_gpu->elem,
                   .shared = flash_gpu->elem};
  load.side.async = (flash_gpu->g.tile[FLASH_GPU_COPY] - 1) & bit;
  load.k = one_dim(row, keys ? flash->keys : flash->queries, flash_stride(flash_gpu, value, row));
  load.mn = one_dim(flash->dim, flash->width, flash_stride(flash_gpu, value, flash->dim));
  load.k_extent = load.k.inner, load.k_tile = load.side.rows;
  load.mn_extent = flash->width, load.mn_tile = flash_gpu->g.width;
  load.threads = 2 * (int)flash_gpu->g.tile[FLASH_GPU_ROWS], load.mn0 = warp_i32(&flash_gpu->w, 0);
  load.base = flash_base(flash_gpu, value, row);
  load.side.held = gpu_flash_holds(flash, &flash_gpu->g, &load.side);
  tile_load_setup(&flash_gpu->w, &load, at);
  return load;
}

ValueId flash_tile_value(const FlashGpu *flash_gpu, bool column, int i, int *bit) {
  const Flash *flash = &flash_gpu->f;
  bool keys = column != flash_gpu->rows_are_keys;
  if (keys) return *bit = i ? FLASH_COPY_V : FLASH_COPY_K, i ? flash->v : flash->k;
  return *bit = i ? FLASH_COPY_DY : FLASH_COPY_Q, i ? flash->dy : flash->q;
}

static void setup_tiles(FlashGpu *flash_gpu) {
  int rows = flash_gpu_tiles(flash_gpu->phase, false),
      columns = flash_gpu_tiles(flash_gpu->phase, true), bit;
  int64_t at = 0;
  for (int i = 0; i < rows; i++, at += flash_gpu->g.row.bytes) {
    ValueId value = flash_tile_value(flash_gpu, false, i, &bit);
    flash_gpu->row_at[i] = at;
    flash_gpu->row[i] = load_of(flash_gpu, value, flash_gpu->rows_are_keys, false, bit, at);
  }
  flash_gpu->column_at = at, flash_gpu->stage_bytes = columns * flash_gpu->g.column.bytes;
  flash_gpu->scores_at = at + 2 * flash_gpu->stage_bytes;
  for (int i = 0; i < columns; i++) {
    ValueId value = flash_tile_value(flash_gpu, true, i, &bit);
    flash_gpu->column[i] = load_of(flash_gpu, value, !flash_gpu->rows_are_keys, true, bit,
                                   at + i * flash_gpu->g.column.bytes);
  }
}

static void setup_panels(FlashGpu *flash_gpu) {
  int rows = flash_gpu_tiles(flash_gpu->phase, false);
  for (int i = 0; i < rows; i++) flash_gpu->row_at[i] = i * flash_gpu->g.row.bytes;
  flash_gpu->column_at = rows * flash_gpu->g.row.bytes;
}

typedef struct RowsOrder {
  LLVMValueRef head, block; /* i32: of tile `number` of rows; head: times slices */
} RowsOrder;

/* Blocks of rows of one head are neighbours. */
static RowsOrder by_head(FlashGpu *flash, int64_t blocks) {
  Warp *w = &flash->w;
  return (RowsOrder){warp_div(w, flash->number, blocks), warp_rem(w, flash->number, blocks)};
}

/* CTAs that take tile after tile get about equal work if the long ones come first; sections of
   heads whose columns together stay in the second-level cache come one after the other. */
static RowsOrder by_section(FlashGpu *flash, int64_t blocks) {
  Warp *w = &flash->w;
  int64_t heads = flash->g.tiles[flash->e->phase] / blocks, section = heads,
          each = 4 * flash->columns * flash->f.width;
  while (section > 1 && (section * each > SECTION_BYTES || heads % section)) section--;
  LLVMValueRef number = warp_rem(w, flash->number, section * blocks);
  LLVMValueRef first = warp_times(w, warp_div(w, flash->number, section * blocks), section);
  return (RowsOrder){warp_add(w, first, warp_rem(w, number, section)),
                     warp_div(w, number, section)};
}

/* The last blocks of queries first: under a causal mask they have most work. */
void flash_place(FlashGpu *flash_gpu) {
  Warp *w = &flash_gpu->w;
  Emit *emit = flash_gpu->e;
  const Flash *flash = &flash_gpu->f;
  if (flash_gpu->lists.present) {
    flash_list_place(flash_gpu);
    return;
  }
  int64_t blocks = ceil_div(flash_gpu->rows, flash_gpu->g.tile[FLASH_GPU_ROWS]),
          slices = flash_gpu->g.tile[FLASH_GPU_SLICES], groups = flash->group.count;
  RowsOrder order = flash_gpu->g.wgmma ? by_section(flash_gpu, blocks) : by_head(flash_gpu, blocks);
  LLVMValueRef block = order.block, head = warp_div(w, order.head, slices);
  if (!flash_gpu->rows_are_keys) block = warp_sub(w, warp_i32(w, blocks - 1), block);
  flash_gpu->row0 = warp_times(w, block, flash_gpu->g.tile[FLASH_GPU_ROWS]);
  flash_gpu->slice = warp_times(w, warp_rem(w, order.head, slices), flash_gpu->g.slice);
  flash_gpu->head = flash_gpu->rows_are_keys ? warp_times(w, head, groups) : head;
  flash_gpu->shared = warp_wide(w, flash_gpu->rows_are_keys ? head : warp_div(w, head, groups));
  flash_gpu->group =
      flash_gpu->rows_are_keys ? emit_i64(emit, 0) : warp_wide(w, warp_rem(w, head, groups));
}

void flash_begin(FlashGpu *flash_gpu, int phase) {
  must(phase >= 0 && phase < flash_gpu->g.phases, "kernel %s: phase %d of %d",
       flash_gpu->e->k->name, phase, flash_gpu->g.phases);
  emit_begin_phase(flash_gpu->e, phase);
  flash_gpu->w = warp_begin(flash_gpu->e);
  flash_gpu->phase = flash_gpu->g.phase[phase];
  flash_gpu->rows_are_keys = flash_gpu->phase == FLASH_DKV;
  flash_gpu->rows = flash_gpu->rows_are_keys ? flash_gpu->f.keys : flash_gpu->f.queries;
  flash_gpu->columns = flash_gpu->rows_are_keys ? flash_gpu->f.queries : flash_gpu->f.keys;
  flash_list_setup(flash_gpu);
  if (flash_gpu->g.wgmma) {
    setup_panels(flash_gpu);
    return;
  }
  flash_gpu->number = flash_gpu->w.cta;
  flash_place(flash_gpu);
  setup_tiles(flash_gpu);
}

void flash_read_rows(FlashGpu *flash_gpu) {
  Warp *w = &flash_gpu->w;
  LLVMValueRef block = warp_div(w, flash_gpu->row0, flash_gpu->g.tile[FLASH_GPU_ROWS]),
               zero = warp_i32(w, 0);
  for (int i = 0; i < flash_gpu_tiles(flash_gpu->phase, false); i++) {
    tile_load_begin(w, &flash_gpu->row[i], block, warp_plus(w, block, 1), zero);
    tile_load_end(w, &flash_gpu->row[i], zero);
  }
}

LLVMValueRef flash_row(FlashGpu *flash_gpu, int half) {
  Warp *w = &flash_gpu->w;
  LLVMValueRef row = warp_add(w, warp_times(w, w->warp, 16), warp_div(w, w->lane, 4));
  return warp_add(w, flash_gpu->row0, warp_plus(w, row, 8 * half));
}

LLVMValueRef flash_column(FlashGpu *flash_gpu, LLVMValueRef c0, int block, int q) {
  Warp *w = &flash_gpu->w;
  LLVMValueRef at = warp_times(w, warp_rem(w, w->lane, 4), 2);
  return warp_plus(w, warp_add(w, c0, at), block * FLASH_BLOCK + q);
}

/* ---- results ---- */

/* Whether elements of the width are contiguous in every result that has it. */
static bool side_by_side(const FlashGpu *flash_gpu) {
  const Fn *fn = flash_gpu->e->k;
  for (uint32_t r = 0; r < fn->results.n; r++) {
    bool present = type_find(value_type(fn, fn->results.at[r]), flash_gpu->f.dim) >= 0;
    if (present && flash_stride(flash_gpu, fn->results.at[r], flash_gpu->f.dim) != 1) return false;
  }
  return flash_gpu->f.width % 2 == 0;
}

/* Two neighbours in one store where they are contiguous. */
static void put_pair(FlashGpu *flash_gpu, ValueId value, Point *p, LLVMValueRef d,
                     LLVMValueRef at[2]) {
  Emit *emit = flash_gpu->e;
  const Flash *flash = &flash_gpu->f;
  LLVMValueRef two = LLVMGetPoison(LLVMVectorType(flash_gpu->w.f32, 2));
  if (side_by_side(flash_gpu)) {
    for (int q = 0; q < 2; q++)
      two = LLVMBuildInsertElement(emit->builder, two, at[q], warp_i32(&flash_gpu->w, q), "");
    point_set(
        p,
        (Index){.dim = flash->dim, .at = warp_wide(&flash_gpu->w, d), .lane = true, .multiple = 2});
    emit->lanes = 2;
    expr_deliver(emit, value, p, two);
    emit->lanes = 1;
    return;
  }
  for (int q = 0; q < 2; q++) {
    LLVMValueRef i = warp_plus(&flash_gpu->w, d, q);
    Branch branch =
        emit_if(emit, warp_less(&flash_gpu->w, i, warp_i32(&flash_gpu->w, flash->width)));
    point_set(p, (Index){.dim = flash->dim, .at = warp_wide(&flash_gpu->w, i)});
    expr_deliver(emit, value, p, at[q]);
    emit_end_if(emit, branch);
  }
}

static void put_row(FlashGpu *flash_gpu, ValueId value, Point *p, const Registers *sums, int half,
                    LLVMValueRef factor) {
  Warp *w = &flash_gpu->w;
  for (int j = 0; j < sums->n / 4; j++) {
    LLVMValueRef d = flash_column(flash_gpu, flash_gpu->slice, j, 0), at[2];
    Branch branch = {0};
    bool ragged = flash_gpu->f.width != flash_gpu->g.width;
    if (ragged) branch = emit_if(flash_gpu->e, warp_less(w, d, warp_i32(w, flash_gpu->f.width)));
    for (int q = 0; q < 2; q++) {
      at[q] = warp_get(w, sums, 4 * j + 2 * half + q);
      if (factor) at[q] = LLVMBuildFMul(flash_gpu->e->builder, at[q], factor, "");
    }
    put_pair(flash_gpu, value, p, d, at);
    if (ragged) emit_end_if(flash_gpu->e, branch);
  }
}

void flash_put(FlashGpu *flash_gpu, ValueId value, const Registers *sums,
               const LLVMValueRef factor[2]) {
  Warp *w = &flash_gpu->w;
  Str dim = flash_gpu->rows_are_keys ? flash_gpu->f.key : flash_gpu->f.query;
  if (flash_gpu->rows_are_keys) flash_gpu->group = emit_i64(flash_gpu->e, 0);
  for (int half = 0; half < 2; half++) {
    LLVMValueRef row = flash_row(flash_gpu, half);
    Branch branch = emit_if(flash_gpu->e, warp_less(w, row, warp_i32(w, flash_gpu->rows)));
    Point p = flash_point(flash_gpu);
    point_set(&p, (Index){.dim = dim, .at = warp_wide(w, row)});
    put_row(flash_gpu, value, &p, sums, half, factor ? factor[half] : NULL);
    emit_end_if(flash_gpu->e, branch);
  }
}

LLVMValueRef flash_workspace(FlashGpu *flash_gpu, LLVMValueRef index) {
  Emit *emit = flash_gpu->e;
  LLVMValueRef base = emit_buffer(emit, emit->k->args.n + emit->k->results.n),
               at = warp_wide(&flash_gpu->w, index);
  return LLVMBuildInBoundsGEP2(emit->builder, flash_gpu->w.f32, base, &at, 1, "");
}

LLVMValueRef flash_sums(FlashGpu *flash, LLVMValueRef head, LLVMValueRef query, int which) {
  Warp *w = &flash->w;
  LLVMValueRef at = warp_add(w, warp_times(w, head, flash->g.queries), query);
  return warp_plus(w, at, which * flash->g.heads * flash->g.queries);
}
