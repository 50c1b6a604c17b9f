/* What a tuner tries beside the rule for family contract, one decision after the other: register
   tile, packing, blocks of k, chunks. Each stage starts from the best cut so far; chunks come last
   because how many of them are good depends on how long one takes. */
#include "tune.h"

static void add(Module *m, CutList *out, Cut c) { vec_push(m->arena, *out, c); }

/* As many rows as the registers hold beside one register per vector of b and one for a, and the
   next smaller number that divides well. */
static void vary_tile(Module *m, const Machine *x, const Cut *from, bool wide, CutList *out) {
  for (int64_t width = x->registers >= 32 ? 3 : 2; width >= 1; width--) {
    int64_t most = (x->registers - 1 - width) / width;
    if (most > 16) most = 16;
    int64_t less = most > 12 ? 12 : most > 8 ? 8 : most > 6 ? 6 : 4;
    for (int64_t rows = most; rows >= 2; rows = rows > less ? less : wide ? rows - 2 : 0) {
      Cut c = *from;
      c.at[TILE_ROWS] = rows, c.at[TILE_VECTORS] = width;
      add(m, out, c);
    }
  }
}

static void vary_packing(Module *m, const Cut *from, CutList *out) {
  for (int64_t i = 1; i < 4; i++) {
    Cut c = *from;
    c.at[TILE_PACK_A] ^= i & 1, c.at[TILE_PACK_B] ^= i >> 1;
    add(m, out, c);
  }
}

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* `length` steps of k in a block, or a little less. */
static Cut with_k(const Product *p, const Cut *from, int64_t length) {
  Cut c = *from;
  int64_t *t = c.at, inner = ceil_div(p->k.inner, t[TILE_DEPTH]), outer = ceil_div(length, inner);
  if (length >= inner) t[TILE_K_OUTER] = ceil_div(p->k.outer, outer), t[TILE_K_INNER] = 1;
  else t[TILE_K_OUTER] = p->k.outer, t[TILE_K_INNER] = ceil_div(inner, length);
  return c;
}

static void vary_k(Module *m, const Product *p, const Cut *from, bool wide, CutList *out) {
  int64_t k = p->k.outer * ceil_div(p->k.inner, from->at[TILE_DEPTH]);
  int64_t now = ceil_div(k, from->at[TILE_K_OUTER] * from->at[TILE_K_INNER]);
  for (int64_t n = wide ? 128 : now / 2; n > 0 && n <= (wide ? 4096 : now * 2); n *= 2)
    if (n != now && n < 2 * k) add(m, out, with_k(p, from, n));
}

static void vary_chunks(Module *m, const Cut *from, bool wide, CutList *out) {
  static const int64_t factor[] = {1, 2, 4, 8};
  int64_t most = wide ? 4 : 2, *t;
  for (int64_t i = 1 - most; i < most; i++)
    for (int64_t j = 1 - most; j < most; j++) {
      Cut c = *from;
      if ((!i && !j) || (!wide && i && j)) continue;
      t = c.at;
      t[TILE_ROW] = i < 0 ? t[TILE_ROW] / factor[-i] : t[TILE_ROW] * factor[i];
      t[TILE_COLUMN] = j < 0 ? t[TILE_COLUMN] / factor[-j] : t[TILE_COLUMN] * factor[j];
      add(m, out, c);
    }
  for (int64_t n = 2; n <= (wide ? 8 : 2); n *= 2) {
    Cut c = *from;
    c.at[TILE_BATCH] /= n, add(m, out, c);
    c.at[TILE_BATCH] = from->at[TILE_BATCH] * n, add(m, out, c);
  }
}

void contract_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide, CutList *out) {
  Machine x = machine_of(m);
  Product p = product_of(k, x.lanes);
  if (stage == 0) vary_tile(m, &x, from, wide, out);
  if (stage == 1) vary_packing(m, from, out);
  if (stage == 2) vary_k(m, &p, from, wide, out);
  if (stage == 3) vary_chunks(m, from, wide, out);
}

const char *contract_shape(Module *m, const Fn *k) {
  Product p = product_of(k, machine_of(m).lanes);
  const char *elem = p.elem_a == p.elem_b    ? elem_name(p.elem_a)
                     : p.compute != ELEM_f32 ? elem_name(p.compute)
                                             : "mixed";
  return arena_printf(m->arena, "%s-b%lld-m%lld-n%lld-k%lld", elem,
                      (long long)(p.batch.outer * p.batch.inner),
                      (long long)(p.m.outer * p.m.inner), (long long)(p.n.outer * p.n.inner),
                      (long long)(p.k.outer * p.k.inner));
}
