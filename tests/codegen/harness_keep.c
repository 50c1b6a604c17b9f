/* Keeping a batch of kernels, with all that checking them later needs: see harness_keep.h. */
#include "harness_keep.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

static bool copy_text(const char *from, const char *to) {
  char piece[1 << 14];
  FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
  bool ok = out != NULL;
  for (size_t n; ok && (n = fread(piece, 1, sizeof piece, in)) > 0;)
    ok = fwrite(piece, 1, n, out) == n;
  if (in) fclose(in);
  return out && !fclose(out) && ok;
}

static void write_numbers(Harness *h, Module *m, double tolerance) {
  const char *pairs = "";
  for (uint32_t i = 0; i < h->inplace.n; i++)
    pairs = arena_printf(h->arena, "%s%s%d", pairs, i ? " " : "", h->inplace.at[i]);
  module_set(m, "check.tolerance", "%g", tolerance);
  module_set(m, "check.relative", "%d", h->relative);
  module_set(m, "check.low", "%g", h->low), module_set(m, "check.high", "%g", h->high);
  module_set(m, "check.int_low", "%lld", (long long)h->int_low);
  module_set(m, "check.int_high", "%lld", (long long)h->int_high);
  module_set(m, "check.inplace", "%s", pairs);
}

/* The next free NAME-N; NULL: none can be made. */
static const char *new_folder(Harness *h, const char *within) {
  for (int i = 0; i < 10000; i++) {
    const char *path = arena_printf(h->arena, "%s/%s-%d", within, program_invocation_short_name, i);
    if (!mkdir(path, 0777)) return path;
    if (errno != EEXIST) return NULL;
  }
  return NULL;
}

static bool keep_module(Harness *h, Module *m, const char *to) {
  size_t n;
  const char *text = ir_print(m, &n), *path = arena_printf(h->arena, "%s/kernels.ir", to);
  FILE *out = fopen(path, "wb");
  return out && fwrite(text, 1, n, out) == n && !fclose(out);
}

static const char *kept_within(const Module *m) {
  const char *within = getenv("SHARDC_KEEP_KERNELS");
  return within && *within && module_on_gpu(m) ? within : NULL;
}

void harness_thin(Module *m) {
  if (!kept_within(m)) return;
  const char *text = getenv("SHARDC_KEEP_EVERY");
  uint32_t every = text ? (uint32_t)atoi(text) : 1, n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) return;
  for (uint32_t i = 0; every && i < m->fns.n; i += every) m->fns.at[n++] = m->fns.at[i];
  if (every) m->fns.n = n;
}

bool harness_keep(Harness *h, Module *m, const char *folder, double tolerance) {
  const char *within = kept_within(m);
  if (!within) return false;
  const char *to = new_folder(h, within);
  bool ok = to != NULL;
  write_numbers(h, m, tolerance);
  for (uint32_t i = 0; ok && i < m->fns.n; i++) {
    if (m->fns.at[i]->kind != FN_KERNEL) continue;
    const char *name = kernel_symbol(m, m->fns.at[i]);
    ok = copy_text(arena_printf(h->arena, "%s/%s.ptx", folder, name),
                   arena_printf(h->arena, "%s/%s.ptx", to, name));
  }
  if (!ok || !keep_module(h, m, to)) bug("cannot keep kernels in %s", within);
  return true;
}
