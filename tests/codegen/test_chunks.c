/* Chunks of attention over lists, forward and backward, of heads that list unequally much: chunks
   are all of the work once, and workers who take them as the runtime's pool does end together. The
   test counts work independently from the rectangles, and each bound is one that heads as they come
   would break. */
#include "ir/kernel/attention_list.h"
#include "ir/kernel/chunks.h"
#include "ir/kernel/flash_list.h"
#include "ir/kernel/gpu_plan.h"
#include "passes/tune/variants.h"
#include "sparse_program.h"
#include "harness.h"
#include "passes/base/rebuild.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { HEADS = 12, MOST_WORKERS = 8 };

typedef struct Phase { /* of a kernel: what its chunks are worth */
  int64_t units, each, chunks;
  const uint32_t *chunk; /* [chunks][2] */
  double *work;          /* by unit */
} Phase;

/* Scores of rectangles of a class: all, or those of a block of queries or of keys (else -1). */
static double scores(const AttentionList *x, const FlashPlan *p, int64_t class, int64_t qb,
                     int64_t kb) {
  double sum = 0;
  for (int64_t q = 0; q < p->query_blocks; q++)
    for (uint32_t r = x->starts.at[class * p->query_blocks + q];
         r < x->starts.at[class * p->query_blocks + q + 1]; r++) {
      const uint32_t *w = &x->rects.at[r * RECT_WORDS];
      bool mine = (qb < 0 || q == qb) && (kb < 0 || w[1] / p->tile[FLASH_KEY_BLOCK] == kb);
      if (mine) sum += (double)((w[0] >> 16) - (w[0] & 0xffff)) * (double)(w[2] / 4 - w[1]);
    }
  return sum * (double)p->tile_queries;
}

static Phase phase_of(Arena *a, const AttentionList *x, const FlashPlan *p, const Flash *f, int i) {
  bool keys = f->grad && p->phases > 1 && !i, whole = f->grad && p->phases == 1;
  Phase s = {.units = HEADS * x->units[i], .each = x->units[i], .chunks = p->chunks[i]};
  s.chunk = x->chunks[i].at, s.work = ARENA_ARRAY(a, double, s.units);
  assert_int_equal(x->chunks[i].n, 2 * s.chunks);
  assert_int_equal(x->units[i], whole ? 1 : keys ? p->key_blocks : p->query_blocks);
  for (int64_t u = 0; u < s.units; u++) {
    int64_t class = x->classes.n ? x->classes.at[u / s.each] : 0, b = u % s.each;
    s.work[u] = scores(x, p, class, whole || keys ? -1 : b, keys ? b : -1);
  }
  return s;
}

static double work_of(const Phase *p, int64_t chunk) {
  double sum = 0;
  for (uint32_t u = p->chunk[2 * chunk]; u < p->chunk[2 * chunk + 1]; u++) sum += p->work[u];
  return sum;
}

static void covers_all_once(Arena *a, const Phase *p) {
  uint8_t *seen = ARENA_ARRAY(a, uint8_t, p->units);
  for (int64_t c = 0; c < p->chunks; c++)
    for (uint32_t u = p->chunk[2 * c]; u < p->chunk[2 * c + 1]; u++) seen[u]++;
  for (int64_t u = 0; u < p->units; u++) assert_int_equal(seen[u], 1);
}

static double balance(Arena *a, const Phase *p, int workers) {
  double all = 0, *work = ARENA_ARRAY(a, double, p->chunks);
  for (int64_t c = 0; c < p->chunks; c++) all += work[c] = work_of(p, c);
  return chunks_end(a, work, p->chunks, workers) * workers / all;
}

/* The same if chunks were whole heads, in their order. */
static double balance_of_heads(Arena *a, const Phase *p, int workers) {
  double all = 0, *work = ARENA_ARRAY(a, double, HEADS);
  for (int64_t u = 0; u < p->units; u++) work[u / p->each] += p->work[u], all += p->work[u];
  return chunks_end(a, work, HEADS, workers) * workers / all;
}

static Module *lowered(Ctx *c, const char *text, const char *target, int workers) {
  Module *m = sparse_program(c, text, "f32");
  PipelineOptions o = {.verify = true, .until = "select"};
  if (m) target_describe(m, target_find(target), workers);
  bool good = m && pipeline_run(m, &o);
  if (!good) diag_print(c->diag, stderr, DIAG_HUMAN, false);
  assert_true(good);
  return m;
}

static const char *program(Arena *a, int seq, const char *heads) {
  return arena_printf(
      a,
      "use \"std\"\ndims { Batch; Seq = %d; Key like Seq; Heads = %d; Head = 64 }\n"
      "layout l [Heads, Seq, Key] = blocks(64) & per_head([%s])\n"
      "model M {\n  input x [Batch, Heads, Seq, Head] f32\n  param w [Head] ~ "
      "normal(1)\n  y = attention[Seq -> Key; Head](x * w, rename[Seq -> Key](x * w), "
      "rename[Seq -> Key](x), mask = l)\n  loss mean[*](y * y)\n}\n"
      "train t { batch 1; steps 1; optim sgd lr = 1; data columns(x = \"x.npy\") }\n",
      seq, HEADS, heads);
}

typedef void Check(Arena *a, const Phase *p, int phases, int workers);

static void each_phase(const char *heads, int workers, Check *check) {
  Ctx *c = ctx_new();
  Module *m = lowered(c, program(c->arena, 2048, heads), "x86_64_v3", workers);
  int kernels = 0;
  for (uint32_t i = 0; m && i < m->fns.n; i++) {
    const Fn *k = m->fns.at[i];
    if (strncmp(attr_str(&k->attrs, ATTR_family, ""), "attention", 9) != 0) continue;
    Flash f = flash_of(k);
    FlashPlan p = flash_plan(&f, machine_of(m).lanes, attr_get(&k->attrs, ATTR_tile)->list);
    AttentionList x = attention_list(c->arena, m, k, &f, &p);
    assert_true(x.present);
    for (int n = 0; n < p.phases; n++, kernels++) {
      Phase s = phase_of(c->arena, &x, &p, &f, n);
      covers_all_once(c->arena, &s), check(c->arena, &s, p.phases, workers);
    }
  }
  assert_true(kernels >= 2);
  ctx_free(c);
}

/* One head has nearly all of the work: it is cut, and the backward pass takes two phases. */
static void check_heavy(Arena *a, const Phase *p, int phases, int workers) {
  (void)phases;
  assert_true(p->each > 1);
  assert_true(balance_of_heads(a, p, workers) > 1.4);
  for (int n = 2; n <= workers; n *= 2) {
    double here = balance(a, p, n);
    if (here > 1.15) fail_msg("%d of %d workers: %.3f x the mean", n, workers, here);
  }
}

static void heavy_head(void **state) {
  (void)state;
  const char *heads = "window(60), window(1), window(1), window(1), window(1), window(1), "
                      "window(1), window(1), window(1), window(1), window(1), window(1)";
  for (int workers = 2; workers <= MOST_WORKERS; workers *= 2)
    each_phase(heads, workers, check_heavy);
}

/* Heads that list more and more: where they stay whole, the longest come first. */
static void check_growing(Arena *a, const Phase *p, int phases, int workers) {
  double here = balance(a, p, workers);
  if (here > 1.1) fail_msg("%d workers: %.3f x the mean", workers, here);
  if (phases > 1 || p->each > 1) return;
  assert_int_equal(p->chunks, HEADS);
  double half[2] = {0}, *work = ARENA_ARRAY(a, double, HEADS);
  for (int64_t c = 0; c < HEADS; c++) half[c >= HEADS / 2] += work[c] = work_of(p, c);
  for (int64_t c = 1; c < HEADS; c++)
    assert_true(work[c] < work[0] && (c == HEADS / 2 || work[c] < work[HEADS / 2]));
  assert_true(half[0] < 1.3 * half[1] && half[1] < 1.3 * half[0]);
}

static void growing_heads(void **state) {
  (void)state;
  const char *heads =
      "window(1), window(3), window(5), window(7), window(9), window(11), window(13),"
      " window(15), window(17), window(19), window(21), window(23)";
  each_phase(heads, 2, check_growing);
}

/* Tiles of a list: runs from the first to the last. */
static int64_t length_of(const FlashLists *x, const uint32_t *order) {
  int64_t n = 0;
  uint32_t from = order[2], run = order[1];
  for (; from != UINT32_MAX; from = x->runs.at[2 * run++ + 1])
    n += x->runs.at[2 * run] / FLASH_UNIT - from / FLASH_UNIT;
  return n;
}

/* Whether the phase has lists, of which none is longer than the one before it. */
static bool falling(Arena *a, const FlashLists *x) {
  if (!x->present) return false;
  int64_t n = x->classes * x->tiles, last = INT64_MAX, grown = 0, all = 0;
  uint32_t *row = ARENA_ARRAY(a, uint32_t, n);
  for (int64_t i = 0; i < n; i++) {
    const uint32_t *order = &x->order.at[4 * i];
    int64_t here = length_of(x, order);
    assert_true(here <= last);
    grown += i && order[0] < order[-4], row[order[0]]++, last = here, all += here;
  }
  for (int64_t i = 0; i < n; i++) assert_int_equal(row[i], 1);
  assert_int_equal(all, x->listed);
  assert_true(grown > 0); /* which is not the order of the rows */
  return true;
}

/* Rows of a GPU's CTAs: none lists more than the one before it. */
static void longest_cta_first(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  const char *heads = "window(1), window(1) | global(2), window(60), window(3)";
  Module *m = lowered(c, program(c->arena, 2048, heads), "sm_80", 2);
  int lists = 0;
  for (uint32_t i = 0; m && i < m->fns.n; i++) {
    const Fn *k = m->fns.at[i];
    if (strncmp(attr_str(&k->attrs, ATTR_family, ""), "attention", 9) != 0) continue;
    Flash f = flash_of(k);
    FlashGpuPlan p = gpu_flash_plan(m, k, &f, attr_get(&k->attrs, ATTR_tile)->list);
    for (int n = 0; n < p.phases; n++) {
      FlashLists x = flash_lists(c->arena, m, k, &f, &p, p.phase[n]);
      lists += falling(c->arena, &x);
    }
  }
  assert_true(lists >= 3); /* forward, dk and dv, dq */
  ctx_free(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(heavy_head), cmocka_unit_test(growing_heads),
                                     cmocka_unit_test(longest_cta_first)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
