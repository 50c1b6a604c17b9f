/* The cuts that a tuner tries in addition to the rule's for family contract, one decision after
   the other: register tile, packing, blocks of k, chunks. Each stage starts from the best cut so
   far; chunks come last because the best number of chunks depends on the time that one takes. A
   change in an earlier stage is first tried with the rule's chunks, then with the previous ones. */
#include "tune.h"
#include "ir/support/num.h"

static void add(Module *m, CutList *out, Cut cut) { vec_push(m->arena, *out, cut); }

static void vary_matrix(Module *m, const Cut *from, CutList *out) {
  for (int64_t i = 0; i < 4; i++) {
    Cut cut = *from;
    cut.at[TILE_ROWS] = i & 1 ? 2 * AMX_ROWS : AMX_ROWS, cut.at[TILE_VECTORS] = 1 + i / 2;
    add(m, out, cut);
  }
}

/* The number of rows that fit in the registers, next to one register per vector of b and one for
   a, and the next smaller number that divides well. */
static void vary_tile(Module *m, const KernelLimits *limits, const Cut *from, bool wide,
                      CutList *out) {
  if (from->at[TILE_DEPTH] == DEPTH_AMX) {
    vary_matrix(m, from, out);
    return;
  }
  for (int64_t width = limits->registers >= 32 ? 3 : 2; width >= 1; width--) {
    int64_t most = (limits->registers - 1 - width) / width;
    if (most > 16) most = 16;
    int64_t less = most > 12 ? 12 : most > 8 ? 8 : most > 6 ? 6 : 4;
    for (int64_t rows = most; rows >= 2; rows = rows > less ? less : wide ? rows - 2 : 0) {
      Cut cut = *from;
      cut.at[TILE_ROWS] = rows, cut.at[TILE_VECTORS] = width;
      add(m, out, cut);
    }
  }
}

/* First b, packed or in place, once for all chunks; then a: once for all chunks instead of by
   each, in place; then the remaining combinations, last those of both. */
static void vary_packing(Module *m, const Cut *from, CutList *out) {
  int64_t now = from->at[TILE_PACK_A];
  const int64_t how[] = {now ? now ^ PACK_SHARED : PACK_TILES | PACK_SHARED,
                         now ? PACK_NOT : PACK_TILES,
                         PACK_TILES,
                         PACK_TILES | PACK_SHARED,
                         PACK_ROWS,
                         PACK_ROWS | PACK_SHARED};
  Cut cut = *from, other = *from;
  bool matrix = from->at[TILE_DEPTH] == DEPTH_AMX; /* always packs b */
  int64_t packed = from->at[TILE_PACK_B];
  other.at[TILE_PACK_B] ^= matrix || packed > 1 ? PACK_SHARED : 1;
  add(m, out, other);
  cut.at[TILE_PACK_B] |= PACK_SHARED;
  if (packed == 1 && !matrix) add(m, out, cut);
  cut = *from;
  for (size_t i = 0; i < sizeof how / sizeof *how; i++)
    cut.at[TILE_PACK_A] = how[i], add(m, out, cut);
  for (size_t i = 0; i < sizeof how / sizeof *how; i++)
    other.at[TILE_PACK_A] = how[i], add(m, out, other);
}

/* `length` steps of k in a block, or a little less. */
static Cut with_k(const Product *product, const Cut *from, int64_t length) {
  Cut cut = *from;
  int64_t *t = cut.at, inner = ceil_div(product->k.inner, t[TILE_DEPTH]),
          outer = ceil_div(length, inner);
  if (length >= inner) t[TILE_K_OUTER] = ceil_div(product->k.outer, outer), t[TILE_K_INNER] = 1;
  else t[TILE_K_OUTER] = product->k.outer, t[TILE_K_INNER] = ceil_div(inner, length);
  return cut;
}

static void vary_k(Module *m, const Product *product, const Cut *from, bool wide, CutList *out) {
  int64_t k = product->k.outer * ceil_div(product->k.inner, from->at[TILE_DEPTH]);
  int64_t now = ceil_div(k, from->at[TILE_K_OUTER] * from->at[TILE_K_INNER]);
  int64_t words = from->at[TILE_DEPTH] == DEPTH_AMX ? AMX_ROWS : 1;
  int64_t least = wide ? 128 / words : now / 2, most = wide ? 4096 / words : now * 2;
  for (int64_t n = least; n > 0 && n <= most; n *= 2)
    if (n != now && n < 2 * k) add(m, out, with_k(product, from, n));
}

static int64_t scaled(int64_t n, int power) { return power < 0 ? n >> -power : n << power; }

/* More of them balance the work, fewer copy less; columns before rows. */
static void vary_chunks(Module *m, const Cut *from, bool wide, CutList *out) {
  static const int powers[] = {0, 1, -1, 2, -2, 3, -3};
  for (int i = 0; i < (wide ? 7 : 3); i++)
    for (int j = 0; j < (wide ? 7 : 3); j++) {
      Cut cut = *from;
      if ((!i && !j) || (!wide && i && j)) continue;
      cut.at[TILE_ROW] = scaled(from->at[TILE_ROW], powers[i]);
      cut.at[TILE_COLUMN] = scaled(from->at[TILE_COLUMN], powers[j]);
      add(m, out, cut);
    }
  for (int64_t n = 2; n <= (wide ? 8 : 2); n *= 2) {
    Cut cut = *from;
    cut.at[TILE_BATCH] /= n, add(m, out, cut);
    cut.at[TILE_BATCH] = from->at[TILE_BATCH] * n, add(m, out, cut);
  }
}

void contract_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out) {
  KernelLimits limits = machine_of(m);
  Product product = product_of(k, limits.lanes);
  CutList near = {0};
  if (stage == 0) vary_tile(m, &limits, from, wide, &near);
  if (stage == 1) vary_packing(m, from, &near);
  if (stage == 2) vary_k(m, &product, from, wide, &near);
  if (stage == 3) vary_chunks(m, from, wide, &near);
  for (uint32_t i = 0; i < near.n && stage < 3; i++)
    add(m, out, contract_chunked(m, k, &near.at[i]));
  for (uint32_t i = 0; i < near.n; i++) add(m, out, near.at[i]);
}

const char *contract_shape(Module *m, const Fn *k) {
  Product product = product_of(k, machine_of(m).lanes);
  const char *elem = product.elem_a == product.elem_b ? elem_name(product.elem_a)
                     : product.compute != ELEM_f32    ? elem_name(product.compute)
                                                      : "mixed";
  return arena_printf(m->arena, "%s-b%lld-m%lld-n%lld-k%lld", elem,
                      (long long)(product.batch.outer * product.batch.inner),
                      (long long)(product.m.outer * product.m.inner),
                      (long long)(product.n.outer * product.n.inner),
                      (long long)(product.k.outer * product.k.inner));
}
