/* Attention on GPUs: lists of tiles (ir/kernel/flash_list.h) as constants of the kernel's module,
   and which CTA has which rows: number n of the order for CTAs n * rest .. n * rest + rest - 1, the
   heads that share these lists, and their slices. So the longest lists begin first in all heads,
   and neighbours in the order, which mostly see the same columns, run at the same time. */
#include "flash.h"
#include "codegen/device_code.h"

static LLVMValueRef table(FlashGpu *flash, const char *what, const uint32_t *words, uint32_t n) {
  Emit *e = flash->e;
  LLVMTypeRef i32 = flash->w.i32;
  LLVMValueRef *at = ARENA_ARRAY(e->arena, LLVMValueRef, n + 1);
  for (uint32_t i = 0; i < n; i++) at[i] = LLVMConstInt(i32, words[i], 0);
  const char *name = arena_printf(e->arena, "%s_p%d_%s", e->symbol, e->phase, what);
  LLVMValueRef g = LLVMAddGlobalInAddressSpace(e->module, LLVMArrayType2(i32, n), name,
                                               e->target->code->constant_space);
  LLVMSetInitializer(g, LLVMConstArray2(i32, at, n)), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

void flash_list_setup(FlashGpu *flash) {
  flash->lists =
      flash_lists(flash->e->arena, flash->e->m, flash->e->k, &flash->f, &flash->g, flash->phase);
  const FlashLists *lists = &flash->lists;
  if (!lists->present) return;
  flash->order = table(flash, "order", lists->order.at, lists->order.n);
  flash->runs = table(flash, "runs", lists->runs.at, lists->runs.n);
}

/* n words of a row of a table, which is read-only. */
static void read_row(FlashGpu *flash, LLVMValueRef table, LLVMValueRef number, unsigned n,
                     LLVMValueRef *word) {
  Emit *e = flash->e;
  LLVMTypeRef row = LLVMVectorType(flash->w.i32, n);
  LLVMValueRef at = warp_wide(&flash->w, number);
  at = LLVMBuildInBoundsGEP2(e->builder, row, table, &at, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(e->builder, row, at, "");
  LLVMMetadataRef none = LLVMMDNodeInContext2(e->context, NULL, 0);
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "invariant.load", 14);
  LLVMSetMetadata(v, kind, LLVMMetadataAsValue(e->context, none));
  LLVMSetAlignment(v, 4 * n);
  for (unsigned i = 0; i < n; i++)
    word[i] = LLVMBuildExtractElement(e->builder, v, warp_i32(&flash->w, i), "");
}

void flash_list_run(FlashGpu *flash, LLVMValueRef number, LLVMValueRef word[2]) {
  read_row(flash, flash->runs, number, 2, word);
}

typedef struct Mixed { /* a number of mixed radix that is being taken apart: class, other heads */
  LLVMValueRef value;
  int64_t below;
} Mixed;

static LLVMValueRef digit(FlashGpu *flash, Mixed *mixed, int64_t size) {
  mixed->below /= size;
  return warp_rem(&flash->w, warp_div(&flash->w, mixed->value, mixed->below), size);
}

/* The flat index over dims: dims by which lists differ from the class, the others from `other`. */
static LLVMValueRef flat_index(FlashGpu *flash, const FlashDims *dims, LLVMValueRef class,
                               Mixed *other) {
  const FlashLists *lists = &flash->lists;
  Warp *w = &flash->w;
  LLVMValueRef flat = warp_i32(w, 0);
  for (int i = 0; i < dims->n; i++) {
    Mixed mixed = {class, lists->classes};
    LLVMValueRef at = NULL;
    for (int k = 0; k < lists->heads; k++) {
      LLVMValueRef here = digit(flash, &mixed, lists->head[k].size);
      if (lists->head[k].dim == dims->axis[i].dim) at = here;
    }
    if (!at) at = digit(flash, other, dims->axis[i].size);
    flat = warp_add(w, warp_times(w, flat, dims->axis[i].size), at);
  }
  return flat;
}

/* Where the order of this rank begins: by the numbers that it computes with. */
static LLVMValueRef first_of_rank(FlashGpu *flash) {
  Emit *e = flash->e;
  Warp *w = &flash->w;
  const FlashLists *lists = &flash->lists;
  LLVMValueRef n = warp_i32(w, 0);
  Point p = {0};
  for (int i = 0; i < lists->numbers; i++) {
    LLVMValueRef at = expr_value(e, lists->number[i].v, &p);
    n = warp_add(w, warp_times(w, n, lists->number[i].values),
                 warp_div(w, at, lists->number[i].step));
  }
  return warp_times(w, n, lists->classes * lists->tiles);
}

void flash_list_place(FlashGpu *flash_gpu) {
  Warp *w = &flash_gpu->w;
  const FlashLists *lists = &flash_gpu->lists;
  const Flash *flash = &flash_gpu->f;
  int64_t slices = flash_gpu->g.tile[FLASH_GPU_SLICES], groups = flash->group.count;
  int64_t heads = flash->shared.count * (flash_gpu->rows_are_keys ? 1 : groups) / lists->classes;
  LLVMValueRef word[4], rest = warp_rem(w, flash_gpu->number, heads * slices);
  LLVMValueRef number = warp_div(w, flash_gpu->number, heads * slices);
  read_row(flash_gpu, flash_gpu->order, warp_add(w, number, first_of_rank(flash_gpu)), 4, word);
  LLVMValueRef class = warp_div(w, word[0], lists->tiles);
  flash_gpu->row0 =
      warp_times(w, warp_rem(w, word[0], lists->tiles), flash_gpu->g.tile[FLASH_GPU_ROWS]);
  flash_gpu->list = word[1], flash_gpu->unit = word[2];
  flash_gpu->slice = warp_times(w, warp_rem(w, rest, slices), flash_gpu->g.slice);
  Mixed other = {warp_div(w, rest, slices), heads};
  LLVMValueRef shared = flat_index(flash_gpu, &flash->shared, class, &other),
               group = warp_i32(w, 0);
  if (!flash_gpu->rows_are_keys) group = flat_index(flash_gpu, &flash->group, class, &other);
  flash_gpu->head = warp_add(w, warp_times(w, shared, groups), group);
  flash_gpu->shared = warp_wide(w, shared), flash_gpu->group = warp_wide(w, group);
}
