/* Which cuts of a dot and of attention are possible for a processor's kernels: the candidates of
   pass `select` and of the tuner, and the cuts that the verifier admits. Sums stay in registers,
   whose number is limited, and in the values that a loop of generated code carries; an operand that
   is read in place must be contiguous, in whole vectors. */
#include "attention_shape.h"
#include "ir/support/num.h"
#include "product.h"

enum { ROWS_MOST = 32, VECTORS_MOST = 8 };
enum { BESIDE = 5 }; /* registers for pointers and counters */

static int64_t registers_of(const Module *module) { return module->target.vector_registers; }

static int lanes_of(const Module *module) { return target_lanes(&module->target); }

/* ---- dots ---- */

bool product_a_in_order(const Product *product) {
  return product->k.count && product->k.dim[product->k.count - 1].a == 1;
}

bool product_a_readable(const Product *product, const int64_t tile[TILE_COUNT]) {
  if (tile[TILE_DEPTH] == DEPTH_AMX) return product_amx_in_place(product, tile);
  if (tile[TILE_DEPTH] == 1) return product->elem_a == ELEM_f32 && product->compute == ELEM_f32;
  return product->elem_a == product->compute && product_a_in_order(product);
}

bool product_b_readable(const Product *product, int lanes) {
  if (product->elem_b != ELEM_f32 || product->compute != ELEM_f32 || !product->n.count ||
      product->n.outer > 1 || product->n.inner % lanes)
    return false;
  return product->n.dim[product->n.count - 1].b == 1;
}

/* No more blocks than there is of anything. */
static bool blocks_fit(const Product *p, int lanes, const int64_t *t) {
  if (t[TILE_K_OUTER] > p->k.outer || t[TILE_K_INNER] > ceil_div(p->k.inner, t[TILE_DEPTH]))
    return false;
  if (t[TILE_K_INNER] > 1 && t[TILE_K_OUTER] != p->k.outer) return false;
  ProductPlan product = product_plan(p, lanes, t);
  return t[TILE_BATCH] <= p->batch.outer * p->batch.inner && t[TILE_ROW] <= product.tiles &&
         t[TILE_COLUMN] <= product.panels;
}

static bool depth_fits(const Module *module, const Product *product, const int64_t *t) {
  bool rounds = module->target.bf16_dot;
  return t[TILE_DEPTH] == 1 || (t[TILE_DEPTH] == DEPTH_PAIRS && rounds &&
                                product->compute == ELEM_bf16 && product->k.inner >= 2);
}

/* Rows are copied where k is contiguous. */
static bool packing_fits(const Product *product, int lanes, const int64_t *t) {
  int64_t how = t[TILE_PACK_A] & ~PACK_SHARED, panels = t[TILE_PACK_B] & ~PACK_SHARED;
  if (how < PACK_NOT || how > PACK_ROWS || (!how && t[TILE_PACK_A])) return false;
  if (panels < 0 || panels > 1 || (!panels && t[TILE_PACK_B])) return false;
  if (how == PACK_ROWS && !product_a_in_order(product)) return false;
  if (!how && !product_a_readable(product, t)) return false;
  return panels || (product_b_readable(product, lanes) && product->sum == NO_VALUE);
}

static bool registers_fit(const Module *module, const int64_t *t) {
  int64_t sums = t[TILE_ROWS] * t[TILE_VECTORS];
  return sums + t[TILE_VECTORS] + 1 <= registers_of(module) && sums + BESIDE <= MAX_CARRIED;
}

bool product_fits(const Module *module, const Product *product, const int64_t tile[TILE_COUNT]) {
  int lanes = lanes_of(module);
  for (int i = 0; i < TILE_PACK_A; i++)
    if (tile[i] < 1) return false;
  if (tile[TILE_ROWS] > ROWS_MOST || tile[TILE_VECTORS] > VECTORS_MOST) return false;
  if (tile[TILE_DEPTH] == DEPTH_AMX)
    return module->target.amx && product_amx_fits(product, tile) &&
           blocks_fit(product, lanes, tile);
  return registers_fit(module, tile) && depth_fits(module, product, tile) &&
         packing_fits(product, lanes, tile) && blocks_fit(product, lanes, tile);
}

/* ---- attention ---- */

static bool within(int64_t x, int64_t low, int64_t high) { return x >= low && x <= high; }

int64_t flash_rows(int64_t registers, int64_t vectors) {
  return registers < 32 || vectors == FLASH_WIDE ? 6 : 8;
}

static bool tile_fits(const Module *module, const Flash *flash, const int64_t *t) {
  int64_t vectors = t[FLASH_VECTORS], rows = t[FLASH_ROWS], registers = registers_of(module);
  if (!within(vectors, 1, 2) && (vectors != FLASH_WIDE || registers < 32)) return false;
  if (rows != flash_rows(registers, vectors)) return false;
  int64_t lanes = vectors * lanes_of(module), block = t[FLASH_QUERY_BLOCK];
  return within(t[FLASH_KEY_BLOCK], 1, round_up(flash->keys, rows)) &&
         t[FLASH_KEY_BLOCK] % rows == 0 && block % lanes == 0 &&
         within(block, lanes, round_up(flash->queries, lanes));
}

bool flash_fits(const Module *module, const Flash *flash, const int64_t tile[FLASH_COUNT]) {
  if (!tile_fits(module, flash, tile)) return false;
  FlashPlan plan = flash_plan(flash, lanes_of(module), tile);
  int64_t heads = flash->grad ? flash->shared.count : flash->shared.count * flash->group.count;
  int64_t parts = tile[FLASH_PARTS], key_parts = tile[FLASH_KEY_PARTS];
  if (!within(tile[FLASH_HEADS], 1, heads) || !within(parts, 1, plan.query_blocks)) return false;
  if (!flash->grad) return !key_parts && (parts == 1 || tile[FLASH_HEADS] == heads);
  if (!key_parts) return parts == 1;
  return within(key_parts, 1, plan.key_blocks);
}
