/* Kernels of GPU targets on the PTX machine: see harness_gpu.h. */
#include "harness_gpu.h"
#include "tests/common/kernel_params.h"
#include <stdio.h>
#include <stdlib.h>

static char *read_text(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  size_t room = 1 << 22, n;
  char *text = malloc(room);
  n = fread(text, 1, room - 1, f);
  fclose(f);
  text[n] = 0;
  return text;
}

typedef struct GpuRun {
  PtxDevice *device;
  PtxModule *module;
  const Module *m;
  const Fn *k;
  const char *symbol;
  GpuProducts *products;
  uint64_t params[64];
  int n;
} GpuRun;

static bool say(const GpuRun *r, const char *what) {
  fprintf(stderr, "  @%s: %s\n", r->k->name, what);
  return false;
}

static bool send(GpuRun *r, const GpuBuffer *b, int n) {
  for (int i = 0; i < n; i++) {
    r->params[i] = b[i].same < 0 ? ptx_alloc(r->device, b[i].bytes) : r->params[b[i].same];
    if (!r->params[i]) return say(r, "no device memory");
    if (b[i].same < 0 && !b[i].unwritten &&
        !ptx_write(r->device, r->params[i], b[i].at, b[i].bytes))
      return say(r, "cannot write device memory");
  }
  r->n = n;
  int64_t workspace = attr_int(&r->k->attrs, ATTR_workspace, 0);
  if (workspace) r->params[r->n++] = ptx_alloc(r->device, workspace);
  return true;
}

static void count_products(GpuRun *r, int64_t phase) {
  for (int i = 0; r->products && phase < GPU_PHASES && i < PTX_GROUPS; i++) {
    uint64_t before = 0;
    for (int64_t p = 0; p < phase; p++) before += r->products->of[p][i];
    r->products->of[phase][i] = ptx_products(r->device, i) - before;
  }
}

static bool launch(GpuRun *r) {
  const Attr *chunks = attr_get(&r->k->attrs, ATTR_chunks),
             *threads = attr_get(&r->k->attrs, ATTR_threads),
             *shared = attr_get(&r->k->attrs, ATTR_shared);
  for (int64_t p = 0; p < chunks->i; p++) {
    char error[2000] = "", entry[300];
    snprintf(entry, sizeof entry, "%s_p%d", r->symbol, (int)p);
    PtxLaunch l = {.entry = entry,
                   .grid = {(uint32_t)chunks->list[p], 1, 1},
                   .block = {(uint32_t)threads->list[p], 1, 1},
                   .shared = (uint32_t)shared->list[p]};
    l.params = kernel_params(r->m, r->k, r->params, r->n, &l.params_bytes);
    if (!ptx_launch(r->module, &l, error, sizeof error)) return say(r, error);
    count_products(r, p);
  }
  return true;
}

static bool run_on_device(GpuRun *r, const char *text, const GpuBuffer *b, int n) {
  char error[2000] = "";
  r->module = ptx_parse(r->device, text, error, sizeof error);
  if (!r->module) return say(r, error);
  if (!send(r, b, n) || !launch(r)) return false;
  for (int i = 0; i < n; i++)
    if (!ptx_read(r->device, b[i].at, r->params[i], b[i].bytes))
      return say(r, "cannot read device memory");
  return true;
}

bool gpu_run_kernel(Module *m, const Fn *k, const char *folder, const GpuBuffer *buffer, int n,
                    uint64_t seed, bool late, GpuProducts *products) {
  GpuRun r = {.m = m, .k = k, .symbol = kernel_symbol(m, k), .products = products};
  PtxOptions o = {.check = true, .late = late, .seed = seed, .sm = (int)m->target.sm};
  o.shared_limit = m->target.shared;
  char *text = read_text(arena_printf(m->arena, "%s/%s.ptx", folder, r.symbol));
  if (!text) return say(&r, "there is no PTX");
  r.device = ptx_device_new(&o);
  bool ok = run_on_device(&r, text, buffer, n);
  if (r.module) ptx_module_free(r.module);
  ptx_device_free(r.device);
  free(text);
  return ok;
}
