/* The rules of all families as one table, from ir/kernel/families.def. Must not: name a family. */
#include "tune.h"

#define FAMILY(name, anchors, buffers, neighbours, devices, what)                                  \
  extern const FamilyRules name##_rules;
#include "ir/kernel/families.def"
#undef FAMILY

static const struct {
  const char *name;
  const FamilyRules *rules;
} families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) {#name, &name##_rules},
#include "ir/kernel/families.def"
#undef FAMILY
};

enum { FAMILIES = sizeof families / sizeof *families };

const FamilyRules *family_rules(Str family) {
  for (int i = 0; i < FAMILIES; i++)
    if (!strcmp(families[i].name, family)) return families[i].rules;
  return NULL;
}

const Variants *variants_row(int i, DeviceKind device) {
  for (int f = 0; f < FAMILIES; f++) {
    const FamilyRules *r = families[f].rules;
    const Variants *v = device == DEVICE_GPU ? r->gpu_variants : r->cpu_variants;
    if (v && !i--) return v;
  }
  return NULL;
}

static bool refuse_on_gpu(Module *m, const Fn *k, Str family) {
  Report *r = diag_at(m->ctx->diag, "E0901", loc_span(m, k->loc),
                      "kernels of family `%s` are not built for GPUs yet", family);
  diag_fact(r, "kernel `%s`, target %s", k->name, m->target.name ? m->target.name : "?");
  diag_help(r, "compile for a processor: `--target native`");
  return false;
}

bool tune_by_rule(Module *m, Fn *k) {
  Str family = attr_str(&k->attrs, ATTR_family, "");
  const FamilyRules *r = family_rules(family);
  bool gpu = module_on_gpu(m);
  if (r && (gpu ? r->gpu : r->cpu)) return (gpu ? r->gpu : r->cpu)(m, k), true;
  if (gpu) return refuse_on_gpu(m, k, family);
  diag_at(m->ctx->diag, "E1110", loc_span(m, k->loc), "kernel @%s has no family", k->name);
  return false;
}
