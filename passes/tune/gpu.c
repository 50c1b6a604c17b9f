/* Cutting kernels for GPUs: the table of families and what they share. See gpu.h. */
#include "gpu.h"
#include "tune.h"

enum { REGISTER_FILE = 65536, OF_A_CTA = 1 << 10, MOST_THREADS = 1536 };

static const struct {
  const char *name;
  void (*tune)(Module *m, Fn *k);
} tuners[] = {
    {"elem", gpu_tune_elem},
    {"row", gpu_tune_row},
    {"column", gpu_tune_column},
    {"scatter", gpu_tune_scatter},
    {"contract", gpu_tune_contract},
    {"attention", gpu_tune_attention},
    {"attention_grad", gpu_tune_attention},
};

int64_t gpu_resident(const Module *m, int64_t shared, int64_t threads, int64_t registers) {
  int64_t most = m->target.shared_all / (shared + OF_A_CTA),
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
    if (k->kind == FN_KERNEL && less) attr_set_ints(m, &k->attrs, ATTR_align, n, list[i]);
  }
}

bool gpu_tune(Module *m, Fn *k) {
  Str family = attr_str(&k->attrs, ATTR_family, "");
  for (size_t i = 0; i < sizeof tuners / sizeof *tuners; i++)
    if (!strcmp(tuners[i].name, family)) {
      tuners[i].tune(m, k);
      return true;
    }
  Report *r = diag_at(m->ctx->diag, "E0901", loc_span(m, k->loc),
                      "kernels of family `%s` are not built for GPUs yet", family);
  diag_fact(r, "kernel `%s`, target %s", k->name, m->target.name ? m->target.name : "?");
  diag_help(r, "compile for a processor: `--target native`");
  return false;
}

void gpu_set(Module *m, Fn *k, const char *variant, int ntile, const int64_t *tile, int phases,
             const int64_t *threads) {
  attr_set_str(m, &k->attrs, ATTR_variant, intern(m->ctx->names, variant));
  attr_set_ints(m, &k->attrs, ATTR_tile, ntile, tile);
  if (threads) attr_set_ints(m, &k->attrs, ATTR_threads, phases, threads);
  GpuPlan p = gpu_plan(m, k);
  if (p.fault) bug("kernel %s: %s", k->name, p.fault);
  attr_set_ints(m, &k->attrs, ATTR_chunks, p.phases, p.chunks);
  attr_set_ints(m, &k->attrs, ATTR_threads, p.phases, p.threads);
  attr_set_ints(m, &k->attrs, ATTR_shared, p.phases, p.shared);
  if (p.workspace) attr_set_int(m, &k->attrs, ATTR_workspace, p.workspace);
}
