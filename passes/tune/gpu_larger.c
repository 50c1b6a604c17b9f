/* Larger cuts of kernels, for GPUs whose CTAs may have more shared memory than others of the same
   target: the kernel a second time, with attribute `instead`. The executable holds both, and the
   runtime takes the larger one where the device allows it. Only families whose tiles grow with
   shared memory have any, and only where the family's own rule sees a point. */
#include "gpu.h"
#include "tune.h"

/* Callers give one workspace to whichever runs. */
static void share_workspace(Module *m, Fn *a, Fn *b) {
  int64_t x = attr_int(&a->attrs, ATTR_workspace, 0), y = attr_int(&b->attrs, ATTR_workspace, 0);
  int64_t most = x > y ? x : y;
  if (!most) return;
  attr_set_int(m, &a->attrs, ATTR_workspace, most);
  attr_set_int(m, &b->attrs, ATTR_workspace, most);
}

static Fn *copy_of(Module *m, const Fn *k) {
  Fn *f = fn_new(m, FN_KERNEL, k->name);
  AttrList attrs = {0};
  *f = *k;
  for (uint32_t i = 0; i < k->attrs.n; i++)
    if (k->attrs.at[i].key != ATTR_workspace) vec_push(m->arena, attrs, k->attrs.at[i]);
  f->attrs = attrs;
  return f;
}

Fn *gpu_larger(Module *m, Fn *k) {
  const FamilyRules *rules = family_rules(attr_str(&k->attrs, ATTR_family, ""));
  int64_t limit = m->target.shared_most;
  Cut cut;
  if (limit <= m->target.shared || attr_get(&k->attrs, ATTR_tuned)) return NULL;
  if (!rules || !rules->larger || !rules->larger(m, k, limit, &cut)) return NULL;
  Fn *f = copy_of(m, k);
  must(rules->gpu_variants, "kernel %s: its family has larger cuts and no variants", k->name);
  rules->gpu_variants->apply(m, f, &cut);
  share_workspace(m, f, k);
  f->name = intern_printf(m->ctx->names, "%s.larger", k->name);
  return f;
}
