/* All targets as one list, the families of machines one after the other, and what passes learn of
   the chosen one: settings target.*. Facts of machines stand in the file of their family. */
#include "target.h"
#include <string.h>

static const struct { const Target *(*row)(int i); } families[] = {{x86_target}, {nvptx_target}};

enum { FAMILIES = sizeof families / sizeof *families };

static const Target *target_at(int i) {
  for (int f = 0; f < FAMILIES; f++) {
    int n = 0;
    for (const Target *t; (t = families[f].row(n)); n++)
      if (n == i) return t;
    i -= n;
  }
  return NULL;
}

const Target *target_find(const char *name) {
  if (!strcmp(name, "native")) return x86_native();
  if (!strcmp(name, "x86")) name = "x86_64_v3"; /* any processor that shardc knows */
  const Target *t;
  for (int i = 0; (t = target_at(i)); i++)
    if (!strcmp(name, t->name)) return t;
  return NULL;
}

const char *target_name(int i) {
  const Target *t = target_at(i);
  return t ? t->name : NULL;
}

void target_describe(Module *m, const Target *t, int workers) {
  module_set(m, "target.name", "%s", t->name);
  module_set(m, "target.vector_bytes", "%d", t->vector_bytes);
  module_set(m, "target.vector_registers", "%d", t->vector_registers);
  module_set(m, "target.l1", "%lld", (long long)t->l1_bytes);
  module_set(m, "target.l2", "%lld", (long long)t->l2_bytes);
  module_set(m, "target.l3", "%lld", (long long)t->l3_bytes);
  module_set(m, "target.rounds", "%d", t->rounds);
  module_set(m, "target.pairs", "%d", t->pairs);
  module_set(m, "target.matrix", "%d", t->matrix);
  module_set(m, "target.join", "1");
  module_set(m, "target.narrow_from", "%d", t->gpu ? 512 : 0);
  module_set(m, "target.sums", "%d", !t->gpu);
  module_set(m, "target.workers", "%d", t->gpu ? 1 : workers);
  module_set(m, "target.gpu", "%d", t->gpu);
  if (!t->gpu) return;
  module_set(m, "target.sm", "%d", t->sm);
  module_set(m, "target.shared", "%lld", (long long)t->shared_bytes);
  module_set(m, "target.shared_most", "%lld", (long long)t->shared_most);
  module_set(m, "target.shared_all", "%lld", (long long)t->shared_all);
  module_set(m, "target.processors", "%d", t->processors);
}

static bool strange(Module *m, const char *key, const char *have, const char *want) {
  Report *r = diag_at(m->ctx->diag, "E1103", (Span){0}, "%s = \"%s\" is not what target %s has",
                      key, have, module_setting(m, "target.name", ""));
  diag_fact(r, "it has \"%s\"", want);
  return false;
}

/* What passes decide by may be tried out; what kernels are made of may not. */
static bool is_binding(const char *key) {
  static const char *const list[] = {"vector_bytes", "vector_registers", "rounds",
                                     "pairs",        "matrix",           "gpu",
                                     "sm",           "shared_most",      "shared"};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (!strcmp(key + strlen("target."), list[i])) return true;
  return false;
}

bool target_complete(Module *m) {
  Str name = module_setting(m, "target.name", NULL);
  if (!name) return true;
  const Target *t = target_find(name);
  if (!t) return diag_at(m->ctx->diag, "E1103", (Span){0}, "no target is called `%s`", name), false;
  Module *facts = module_new(m->ctx);
  target_describe(facts, t, 1);
  bool good = true;
  for (uint32_t i = 0; i < facts->settings.n; i++) {
    const Setting *want = &facts->settings.at[i];
    Str have = module_setting(m, want->key, NULL);
    if (!have && strcmp(want->key, "target.workers")) module_set(m, want->key, "%s", want->value);
    if (have && have != want->value && is_binding(want->key))
      good = strange(m, want->key, have, want->value);
  }
  return good;
}

const Target *target_of(const Module *m) {
  Str name = module_setting(m, "target.name", NULL);
  const Target *t = name ? target_find(name) : NULL;
  if (!t) bug("the module names no known target");
  return t;
}
