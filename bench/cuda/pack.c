/* gpu_pack DUMP.ir TARGET FOLDER KERNELS CUTS [SHARED]: the hot kernels of a model for a GPU, each
   with a few cuts, as FOLDER/kernels.ir and FOLDER/SYMBOL.ptx: the kernels that the bundle's part
   `variants` measures. (Part `densities` measures attention's.)

   Hot are those of a training step that take longest by their operations and bytes, half of them
   with variants if that number exists. Cuts are the rule's, others that differ from it in one
   decision (passes/tune/variants.h), and where that makes too few, others that differ from those.
   SHARED: bytes of shared memory that a CTA may take, those that every GPU of the target allows
   without it. Settings of the module say what each function is: bench.NAME =
   "family|key|cut|kernel|flop|bytes". */
#include "codegen/codegen.h"
#include "ir/cost/count.h"
#include "passes/pass.h"
#include "passes/tune/variants.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct Hot {
  const Fn *k;
  const Variants *v; /* NULL: its family has none */
  double seconds;    /* what it takes, roughly: to compare */
} Hot;

typedef VEC(Hot) Hots;

static int slowest_first(const void *a, const void *b) {
  const Hot *x = a, *y = b;
  if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? 1 : -1;
  return strcmp(x->k->name, y->k->name);
}

/* Functions that an entry reaches, by their numbers. */
static void reach(const Module *m, const Fn *f, bool *seen) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (m->fns.at[i] != f || seen[i]) continue;
    seen[i] = true;
    for (uint32_t o = 0; o < f->ops.n; o++)
      if (f->ops.at[o].callee) reach(m, f->ops.at[o].callee, seen);
  }
}

static bool *of_step(const Module *m) {
  bool *seen = ARENA_ARRAY(m->arena, bool, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (!strcmp(m->fns.at[i]->name, "step")) reach(m, m->fns.at[i], seen);
  return seen;
}

static Hots hot_kernels(Module *m) {
  Hots list = {0};
  const bool *wanted = of_step(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || !wanted[i]) continue;
    IrCount c = ir_count(m, k);
    Hot h = {k, variants_find(attr_str(&k->attrs, ATTR_family, ""), DEVICE_GPU),
             c.flop / 200e12 + c.bytes / 1.5e12};
    vec_push(m->arena, list, h);
  }
  if (list.n) qsort(list.at, list.n, sizeof *list.at, slowest_first);
  return list;
}

static bool listed(const CutList *l, const Cut *c) {
  for (uint32_t i = 0; i < l->n; i++)
    if (!memcmp(l->at[i].at, c->at, sizeof c->at)) return true;
  return false;
}

/* Adds up to `most` cuts that differ from `from` in one decision, the stages sharing the number. */
static void add_near(Module *m, const Hot *h, const Cut *from, uint32_t most, CutList *all) {
  for (int stage = 0; stage < TUNE_STAGES; stage++) {
    CutList near = {0};
    uint32_t left = most > all->n ? most - all->n : 0;
    uint32_t share = (left + (uint32_t)(TUNE_STAGES - stage) - 1) / (uint32_t)(TUNE_STAGES - stage);
    h->v->vary(m, h->k, from, stage, false, &near);
    for (uint32_t i = 0; i < near.n && share > 0; i++) {
      if (listed(all, &near.at[i]) || !h->v->fits(m, h->k, &near.at[i])) continue;
      vec_push(m->arena, *all, near.at[i]);
      share--;
    }
  }
}

/* The rule's, its neighbours, theirs, .. until there are enough, or no new ones. */
static CutList cuts_of(Module *m, const Hot *h, uint32_t most) {
  CutList all = {0};
  Cut rule = h->v->rule(m, h->k);
  vec_push(m->arena, all, rule);
  for (uint32_t i = 0; i < all.n && all.n < most; i++) {
    Cut from = all.at[i];
    add_near(m, h, &from, most, &all);
  }
  return all;
}

static void add(Module *to, Module *m, const Hot *h, const Cut *c, uint32_t number, uint32_t cut) {
  Fn *f = fn_new(to, FN_KERNEL, intern_printf(m->ctx->names, "k%u.cut%u", number, cut));
  Str name = f->name;
  IrCount n = ir_count(m, h->k);
  *f = *h->k, f->name = name;
  AttrList all = {0};
  for (uint32_t i = 0; i < h->k->attrs.n; i++) vec_push(to->arena, all, h->k->attrs.at[i]);
  f->attrs = all;
  if (c) h->v->apply(to, f, c);
  module_add(to, f);
  module_set(to, arena_printf(to->arena, "bench.%s", name), "%s|%s|%s|%s|%.6g|%.6g",
             attr_str(&h->k->attrs, ATTR_family, "?"), c ? variants_key(m, h->v, h->k) : "-",
             c ? variants_text(m, h->v, c) : "-", h->k->name, n.flop, n.bytes);
}

static Module *pack(Module *m, uint32_t most, uint32_t cuts) {
  Hots list = hot_kernels(m);
  Module *to = module_new(m->ctx);
  to->model = m->model, to->after = m->after, to->target = m->target, to->lists = m->lists;
  uint32_t done = 0, plain = 0;
  for (uint32_t i = 0; i < list.n && done < most; i++) {
    const Hot *h = &list.at[i];
    if (!h->v && plain >= most / 2) continue;
    if (!h->v) add(to, m, h, NULL, done, 0), plain++;
    CutList all = {0};
    if (h->v) all = cuts_of(m, h, cuts);
    for (uint32_t c = 0; c < all.n; c++) add(to, m, h, &all.at[c], done, c);
    done++;
  }
  return to;
}

static bool write_module(Module *m, const char *folder) {
  size_t n;
  const char *text = ir_print(m, &n);
  FILE *f = fopen(arena_printf(m->arena, "%s/kernels.ir", folder), "w");
  return f && fwrite(text, 1, n, f) == n && !fclose(f);
}

int main(int argc, char **argv) {
  if (argc != 6 && argc != 7) {
    fprintf(stderr, "usage: gpu_pack DUMP.ir TARGET FOLDER KERNELS CUTS [SHARED]\n");
    return 2;
  }
  Ctx *c = ctx_new();
  const Target *t = target_find(argv[2]);
  Module *m = t && t->facts.device == DEVICE_GPU ? ir_read(c, argv[1]) : NULL;
  if (m) target_describe(m, t, 1);
  bool ok = m && pipeline_run(m, &(PipelineOptions){.until = "select"});
  if (ok && argc == 7) m->target.shared = atoll(argv[6]);
  Module *to = ok ? pack(m, (uint32_t)atoi(argv[4]), (uint32_t)atoi(argv[5])) : NULL;
  ok = to && kernels_build(to, argv[3], (int)sysconf(_SC_NPROCESSORS_ONLN)) &&
       write_module(to, argv[3]);
  if (!ok) diag_print(c->diag, stderr, DIAG_HUMAN, false);
  ctx_free(c);
  return !ok;
}
