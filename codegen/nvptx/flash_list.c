/* Attention on GPUs: lists of tiles (ir/kernel/flash_list.h) as constants of the kernel's module,
   and which CTA has which rows: number n of the order for CTAs n * rest .. n * rest + rest - 1, the
   heads that share these lists, and their slices. So the longest lists begin first in all heads,
   and neighbours in the order, which mostly see the same columns, run at the same time. */
#include "flash.h"
#include "codegen/device_code.h"
#include "ir/support/num.h"

static LLVMValueRef table(FlashGpu *x, const char *what, const uint32_t *words, uint32_t n) {
  Emit *e = x->e;
  LLVMTypeRef i32 = x->w.i32;
  LLVMValueRef *at = ARENA_ARRAY(e->arena, LLVMValueRef, n + 1);
  for (uint32_t i = 0; i < n; i++) at[i] = LLVMConstInt(i32, words[i], 0);
  const char *name = arena_printf(e->arena, "%s_p%d_%s", e->symbol, e->phase, what);
  LLVMValueRef g = LLVMAddGlobalInAddressSpace(e->module, LLVMArrayType2(i32, n), name,
                                               e->target->code->constant_space);
  LLVMSetInitializer(g, LLVMConstArray2(i32, at, n)), LLVMSetGlobalConstant(g, 1);
  LLVMSetLinkage(g, LLVMPrivateLinkage), LLVMSetAlignment(g, 64);
  return g;
}

void flash_list_setup(FlashGpu *x) {
  x->lists = flash_lists(x->e->arena, x->e->m, x->e->k, &x->f, &x->g, x->phase);
  const FlashLists *l = &x->lists;
  if (!l->there) return;
  x->order = table(x, "order", l->order.at, l->order.n);
  x->runs = table(x, "runs", l->runs.at, l->runs.n);
}

/* n words of a row of a table; nobody writes there. */
static void read_row(FlashGpu *x, LLVMValueRef table, LLVMValueRef number, unsigned n,
                     LLVMValueRef *word) {
  Emit *e = x->e;
  LLVMTypeRef row = LLVMVectorType(x->w.i32, n);
  LLVMValueRef at = warp_wide(&x->w, number);
  at = LLVMBuildInBoundsGEP2(e->builder, row, table, &at, 1, "");
  LLVMValueRef v = LLVMBuildLoad2(e->builder, row, at, "");
  LLVMMetadataRef none = LLVMMDNodeInContext2(e->context, NULL, 0);
  unsigned kind = LLVMGetMDKindIDInContext(e->context, "invariant.load", 14);
  LLVMSetMetadata(v, kind, LLVMMetadataAsValue(e->context, none));
  LLVMSetAlignment(v, 4 * n);
  for (unsigned i = 0; i < n; i++)
    word[i] = LLVMBuildExtractElement(e->builder, v, warp_i32(&x->w, i), "");
}

void flash_list_run(FlashGpu *x, LLVMValueRef number, LLVMValueRef word[2]) {
  read_row(x, x->runs, number, 2, word);
}

typedef struct Mixed { /* a number of mixed radix that is being taken apart: class, other heads */
  LLVMValueRef value;
  int64_t below;
} Mixed;

static LLVMValueRef digit(FlashGpu *x, Mixed *m, int64_t size) {
  m->below /= size;
  return warp_rem(&x->w, warp_div(&x->w, m->value, m->below), size);
}

/* The flat index over d: dims by which lists differ from the class, the others from `other`. */
static LLVMValueRef flat_index(FlashGpu *x, const FlashDims *d, LLVMValueRef class, Mixed *other) {
  const FlashLists *l = &x->lists;
  Warp *w = &x->w;
  LLVMValueRef flat = warp_i32(w, 0);
  for (int i = 0; i < d->n; i++) {
    Mixed m = {class, l->classes};
    LLVMValueRef at = NULL;
    for (int k = 0; k < l->heads; k++) {
      LLVMValueRef here = digit(x, &m, l->head[k].size);
      if (l->head[k].dim == d->axis[i].dim) at = here;
    }
    if (!at) at = digit(x, other, d->axis[i].size);
    flat = warp_add(w, warp_times(w, flat, d->axis[i].size), at);
  }
  return flat;
}

/* Where the order of this rank begins: by the numbers that it computes with. */
static LLVMValueRef first_of_rank(FlashGpu *x) {
  Emit *e = x->e;
  Warp *w = &x->w;
  const FlashLists *l = &x->lists;
  LLVMValueRef n = warp_i32(w, 0);
  Point p = {0};
  for (int i = 0; i < l->numbers; i++) {
    LLVMValueRef at = expr_value(e, l->number[i].v, &p);
    n = warp_add(w, warp_times(w, n, l->number[i].values), warp_div(w, at, l->number[i].step));
  }
  return warp_times(w, n, l->classes * l->tiles);
}

void flash_list_place(FlashGpu *x) {
  Warp *w = &x->w;
  const FlashLists *l = &x->lists;
  const Flash *f = &x->f;
  int64_t slices = x->g.tile[FLASH_GPU_SLICES], groups = f->group.count;
  int64_t heads = f->shared.count * (x->rows_are_keys ? 1 : groups) / l->classes;
  LLVMValueRef word[4], rest = warp_rem(w, w->cta, heads * slices);
  LLVMValueRef number = warp_div(w, w->cta, heads * slices);
  read_row(x, x->order, warp_add(w, number, first_of_rank(x)), 4, word);
  LLVMValueRef class = warp_div(w, word[0], l->tiles);
  x->row0 = warp_times(w, warp_rem(w, word[0], l->tiles), x->g.tile[FLASH_GPU_ROWS]);
  x->list = word[1], x->unit = word[2];
  x->slice = warp_times(w, warp_rem(w, rest, slices), x->g.slice);
  Mixed other = {warp_div(w, rest, slices), heads};
  LLVMValueRef shared = flat_index(x, &f->shared, class, &other), group = warp_i32(w, 0);
  if (!x->rows_are_keys) group = flat_index(x, &f->group, class, &other);
  x->head = warp_add(w, warp_times(w, shared, groups), group);
  x->shared = warp_wide(w, shared), x->group = warp_wide(w, group);
}
