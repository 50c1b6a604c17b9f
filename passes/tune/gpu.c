/* Cutting kernels for GPUs: functions that families share. See gpu.h. */
#include "gpu.h"

enum { REGISTER_FILE = 65536, OF_A_CTA = 1 << 10, MOST_THREADS = 1536 };

int64_t gpu_resident(const Module *m, int64_t shared, int64_t threads, int64_t registers) {
  must(threads > 0 && registers > 0 && shared >= 0,
       "a CTA of %lld threads with %lld registers and %lld bytes", (long long)threads,
       (long long)registers, (long long)shared);
  int64_t most = m->target.shared_per_multiprocessor / (shared + OF_A_CTA),
          file = REGISTER_FILE / (registers * threads);
  if (file < most) most = file;
  if (MOST_THREADS / threads < most) most = MOST_THREADS / threads;
  return most < 1 ? 1 : most;
}

void gpu_align(Module *m) {
  int64_t *const *list = gpu_alignments(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    int n = (int)(k->args.n + k->results.n);
    bool less = false;
    for (int j = 0; j < n; j++) less |= list[i][j] < 16;
    if (k->kind == FN_KERNEL && less && !kernel_on_host(m, k))
      attr_set_ints(m, &k->attrs, ATTR_align, n, list[i]);
  }
}

void gpu_set(Module *m, Fn *k, const char *variant, int ntile, const int64_t *tile, int phases,
             const int64_t *threads) {
  must(module_on_gpu(m), "kernel %s is cut for a GPU, its target is none", k->name);
  must(ntile > 0 && tile[0] > 0, "kernel %s: a cut without a tile", k->name);
  attr_set_str(m, &k->attrs, ATTR_variant, intern(m->ctx->names, variant));
  attr_set_ints(m, &k->attrs, ATTR_tile, ntile, tile);
  if (threads) attr_set_ints(m, &k->attrs, ATTR_threads, phases, threads);
  GpuPlan plan = gpu_plan(m, k);
  if (plan.fault) bug("kernel %s: %s", k->name, plan.fault);
  attr_set_ints(m, &k->attrs, ATTR_chunks, plan.phases, plan.chunks);
  attr_set_ints(m, &k->attrs, ATTR_threads, plan.phases, plan.threads);
  attr_set_ints(m, &k->attrs, ATTR_shared, plan.phases, plan.shared);
  if (plan.workspace) attr_set_int(m, &k->attrs, ATTR_workspace, plan.workspace);
}
