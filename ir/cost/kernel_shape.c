/* Shapes of kernels, and their text in tuning records (kernel_shape.h):

     elem  batch rows columns terms  flop  bytes     of a product
     elem  queries keys width columns  flop  bytes   of attention: columns of a tile by wgmma, or 1

   Numbers are whole and above 0. */
#include "kernel_shape.h"
#include "count.h"
#include "ir/codes.h"
#include "ir/kernel/chunks.h"
#include "ir/kernel/flash_gpu.h"
#include "ir/kernel/gemm_gpu.h"
#include "ir/kernel/product.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The op that gives the kernel its family: a product or attention; NULL: it is neither. */
static const Op *anchor_of(const Fn *kernel) {
  for (OpId i = 0; i < kernel->ops.n; i++) {
    OpFamily family = op_family(kernel->ops.at[i].code);
    if (family == FAMILY_CONTRACT || family == FAMILY_ATTENTION) return &kernel->ops.at[i];
  }
  return NULL;
}

static void sizes_of_product(KernelShape *shape, const Fn *f, const Op *dot) {
  const Type *a = value_type(f, dot->in[0]), *b = value_type(f, dot->in[1]),
             *sum = value_type(f, dot->out);
  for (int i = 0; i < a->rank; i++) {
    bool in_b = type_find(b, a->axis[i].dim) >= 0, stays = type_find(sum, a->axis[i].dim) >= 0;
    int which = !in_b ? SHAPE_ROWS : stays ? SHAPE_BATCH : SHAPE_TERMS;
    shape->size[which] *= (double)a->axis[i].size;
  }
  for (int i = 0; i < b->rank; i++)
    if (type_find(a, b->axis[i].dim) < 0) shape->size[SHAPE_COLUMNS] *= (double)b->axis[i].size;
}

/* Columns of a tile of scores by wgmma, and who copies, once the kernel is cut. */
static void find_tile(KernelShape *shape, const Fn *f) {
  const Attr *tile = attr_get(&f->attrs, ATTR_tile);
  bool groups = !strcmp(attr_str(&f->attrs, ATTR_variant, ""), gemm_variant[GEMM_WGMMA]);
  if (!groups || !tile || tile->i != FLASH_GPU_COUNT) return;
  bool bulk = (tile->list[FLASH_GPU_COPY] - 1) & FLASH_COPY_BULK;
  shape->size[SHAPE_BLOCK] = (double)tile->list[FLASH_GPU_COLUMNS];
  shape->groups.by = bulk ? BY_BULK : BY_THREADS;
}

static void sizes_of_attention(KernelShape *shape, const Fn *f, const Op *o) {
  const Type *q = value_type(f, o->in[0]);
  shape->grad = o->code == OP_attention_grad;
  shape->size[SHAPE_WIDTH] = (double)type_size(q, o->group[1].from[0]);
  shape->size[SHAPE_QUERIES] = (double)type_count(q) / shape->size[SHAPE_WIDTH];
  find_tile(shape, f);
  shape->size[SHAPE_KEYS] = (double)type_size(value_type(f, o->in[1]), o->group[0].to[0]);
}

/* Small whole powers are a few products. */
static bool takes_long(const Op *o) {
  double power = attr_float(&o->attrs, ATTR_value, 1);
  return op_family(o->code) == FAMILY_ELEM && op_flags(o->code) & SLOW &&
         !(o->code == OP_pow && fabs(power) <= 64 && power == floor(power));
}

static double functions_of(const Fn *f) {
  double numbers = 0;
  EACH_OP (f, o)
    if (takes_long(o)) numbers += (double)type_count(value_type(f, o->out));
  return numbers;
}

/* On processors, once the kernel is cut. */
static bool packs_left(const Fn *f) {
  const Attr *tile = attr_get(&f->attrs, ATTR_tile);
  return tile && tile->i > TILE_PACK_A && tile->list[TILE_PACK_A] > 0;
}

/* On GPUs, once the kernel is cut. */
static void find_groups(KernelShape *shape, const Fn *f) {
  const Attr *tile = attr_get(&f->attrs, ATTR_tile);
  bool groups = !strcmp(attr_str(&f->attrs, ATTR_variant, ""), gemm_variant[GEMM_WGMMA]);
  if (!groups || !tile || tile->i != GEMM_COUNT) return;
  shape->groups.by = (int)tile->list[GEMM_BY];
  shape->groups.columns = (int)tile->list[GEMM_N];
  shape->groups.shares = tile->list[GEMM_SPLITS] == GEMM_SHARES;
  if (shape->groups.by != BY_BULK_ALL) return;
  Product product = product_of(f, 8);
  shape->groups.elements = product_others(&product);
}

KernelShape kernel_shape(const Module *m, const Fn *kernel) {
  KernelShape shape = {.part = PART_MEMORY, .size = {1, 1, 1, 1}};
  const Op *anchor = anchor_of(kernel);
  shape.bytes = ir_count(m, kernel).bytes;
  if (!anchor) return shape;
  bool attention = op_family(anchor->code) == FAMILY_ATTENTION;
  shape.part = attention ? PART_ATTENTION : PART_PRODUCTS;
  shape.elem = value_type(kernel, anchor->in[0])->elem;
  if (!attention && kernel_has_codes(kernel)) shape.elem = ELEM_u8;
  shape.flop = ir_op_flop(m, kernel, anchor);
  shape.spare = (int)attr_int(&kernel->attrs, ATTR_spare, 0);
  if (attention) sizes_of_attention(&shape, kernel, anchor);
  else sizes_of_product(&shape, kernel, anchor);
  if (attention) return shape;
  if (module_on_gpu(m)) find_groups(&shape, kernel);
  if (shape.groups.by || !module_on_gpu(m)) shape.functions = functions_of(kernel);
  if (!module_on_gpu(m) && packs_left(kernel))
    shape.packed = shape.size[SHAPE_BATCH] * shape.size[SHAPE_ROWS] * shape.size[SHAPE_TERMS];
  return shape;
}

KernelShape kernel_shape_once(const Module *m, KernelShapes *known, const Fn *kernel) {
  for (uint32_t i = 0; known && i < known->at.n; i++)
    if (known->at.at[i].kernel == kernel) return known->at.at[i].shape;
  KnownShape one = {kernel, kernel_shape(m, kernel)};
  if (known) vec_push(m->arena, known->at, one);
  return one.shape;
}

double kernel_stretch_once(const Module *m, KernelShapes *known, const Fn *kernel,
                           int64_t threads) {
  if (threads <= 1) return 1;
  for (uint32_t i = 0; known && i < known->stretch.n; i++) {
    const KnownStretch *one = &known->stretch.at[i];
    if (one->kernel == kernel && one->threads == threads) return one->stretch;
  }
  KnownStretch one = {kernel, threads, kernel_stretch(m, kernel, threads)};
  if (known) vec_push(m->arena, known->stretch, one);
  return one.stretch;
}

static KnownWork work_of(const Module *m, const Fn *kernel) {
  IrCount count = ir_count(m, kernel);
  return (KnownWork){kernel, count.flop, count.bytes, ir_codes_flop(m, kernel)};
}

KnownWork kernel_work_once(const Module *m, KernelShapes *known, const Fn *kernel) {
  if (!known) return work_of(m, kernel);
  for (uint32_t i = 0; i < known->work.n; i++)
    if (known->work.at[i].kernel == kernel) return known->work.at[i];
  KnownWork one = work_of(m, kernel);
  vec_push(m->arena, known->work, one);
  return one;
}

/* ---- as text ---- */

const char *kernel_shape_text(Arena *arena, const KernelShape *shape) {
  const char *text = elem_name(shape->elem);
  for (int i = 0; i < SHAPE_SIZES; i++) text = arena_printf(arena, "%s %.0f", text, shape->size[i]);
  return arena_printf(arena, "%s %.0f %.0f", text, shape->flop, shape->bytes);
}

static bool next_number(const char **text, double *number) {
  char *end;
  if (**text != ' ' || (*text)[1] < '0' || (*text)[1] > '9') return false;
  *number = strtod(*text + 1, &end);
  *text = end;
  return isfinite(*number) && *number >= 1 && *number < 1e20;
}

bool kernel_shape_read(const char *family, const char *text, KernelShape *shape) {
  size_t n = strcspn(text, " ");
  bool found = false;
  *shape = (KernelShape){.part = strcmp(family, "contract") ? PART_ATTENTION : PART_PRODUCTS,
                         .grad = !strcmp(family, "attention_grad")};
  for (int e = 0; e < ELEM_COUNT && !found; e++)
    if (strlen(elem_name((Elem)e)) == n && !strncmp(elem_name((Elem)e), text, n))
      shape->elem = (Elem)e, found = true;
  text += n;
  for (int i = 0; i < SHAPE_SIZES && found; i++) found = next_number(&text, &shape->size[i]);
  return found && next_number(&text, &shape->flop) && next_number(&text, &shape->bytes) && !*text;
}
