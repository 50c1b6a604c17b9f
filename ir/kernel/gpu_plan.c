/* Consequences of the cut of a GPU kernel: the questions common to all families; see
   gpu_plan.h.

   Threads are powers of two of whole warps: exchanges within a warp name all of its lanes, and
   halves of a CTA combine. There are as many CTAs as there is work for, no more: where they are
   exactly enough the emitters omit the test for the end. */
#include "family.h"

enum { MOST = 1 << 30, THREADS_MOST = 1024 };

bool gpu_power_within(int64_t n, int64_t low, int64_t high) {
  return n >= low && n <= high && !(n & (n - 1));
}

bool gpu_is_variant(const GpuCut *cut, const char *name) { return !strcmp(cut->variant, name); }

bool gpu_need(GpuCut *cut, bool good, const char *fault) {
  if (!good && !cut->p.fault) cut->p.fault = fault;
  return !cut->p.fault;
}

bool gpu_need_tile(GpuCut *cut, int n) {
  bool good = cut->ntile == n;
  for (int i = 0; good && i < n; i++) good = cut->tile[i] >= 1 && cut->tile[i] < MOST;
  return gpu_need(cut, good, "its tile has not the numbers of its family");
}

bool gpu_need_threads(GpuCut *cut, int phases) {
  bool good = cut->nthreads == phases;
  for (int i = 0; good && i < phases; i++)
    good = gpu_power_within(cut->threads[i], GPU_WARP, THREADS_MOST),
    cut->p.threads[i] = cut->threads[i];
  cut->p.phases = phases;
  return gpu_need(cut, good,
                  "its threads are no powers of two from 32 to 1024, one for each phase");
}

bool gpu_need_lanes(GpuCut *cut, int64_t lanes, const Nest *n, uint32_t nroots,
                    const ValueId *root) {
  return gpu_need(cut, gpu_lanes(cut->m, cut->k, n, nroots, root) % lanes == 0,
                  "its buffers have no such vectors");
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; n && (at = strstr(at, word)); at++)
    if (at[-1] == ' ' && at[n] == ' ') return true;
  return false;
}

int64_t gpu_ctas(const Module *m, const Fn *k) {
  return m->target.multiprocessors - attr_int(&k->attrs, ATTR_spare, 0);
}

bool gpu_fills(const Module *m, const Fn *k) {
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks),
             *threads = attr_get(&k->attrs, ATTR_threads);
  bool fills = false;
  if (!chunks || !threads ||
      strcmp(attr_str(&k->attrs, ATTR_variant, ""), gemm_variant[GEMM_WGMMA]))
    return false;
  for (int64_t i = 0; i < chunks->i && i < threads->i; i++)
    fills |= threads->list[i] == (WGMMA_GROUPS + 1) * WGMMA_THREADS && /* a phase that stays */
             chunks->list[i] > m->target.multiprocessors - m->target.channels;
  return fills;
}

/* Multiprocessors are left to messages by kernels that would stay on them. */
static void need_spare(GpuCut *cut) {
  const Attr *spare = attr_get(&cut->k->attrs, ATTR_spare);
  if (!spare) return;
  gpu_need(cut, gpu_is_variant(cut, gemm_variant[GEMM_WGMMA]),
           "its variant leaves multiprocessors to messages anyway");
  gpu_need(cut, spare->i > 0 && spare->i < cut->m->target.multiprocessors,
           "it leaves all multiprocessors to messages, or none");
}

GpuPlan gpu_plan(const Module *m, const Fn *k) {
  const Attr *tile = attr_get(&k->attrs, ATTR_tile), *threads = attr_get(&k->attrs, ATTR_threads);
  const FamilyShape *family = family_shape(k);
  GpuCut cut = {.m = m, .k = k, .variant = attr_str(&k->attrs, ATTR_variant, "")};
  if (tile) cut.tile = tile->list, cut.ntile = (int)tile->i;
  if (threads) cut.threads = threads->list, cut.nthreads = (int)threads->i;
  if (!gpu_need(&cut, family && family->gpu_plan, "its family has no kernels for GPUs"))
    return cut.p;
  need_spare(&cut);
  if (gpu_need(&cut, has_word(family->gpu_variants, cut.variant), "its family has no such variant"))
    family->gpu_plan(&cut);
  return cut.p;
}
