/* select: every kernel function gets variant, tile, chunks, scratch and workspace from the tuner
   of its family, on a GPU also threads and shared memory (gpu.h; kernels of its host are tiled for
   the processor of that host), or from the tuning record in the settings, if there is one.
   Functions that differ only in name and positions become one, so that each kernel is compiled
   once. */
#include "passes/tune/gpu.h"
#include "messages.h"
#include "select.h"
#include "ir/word_patterns.h"
#include "ir/apart.h"
#include "ir/kernel/kernel_key.h"
#include "passes/tune/tune.h"

/* Products over places of experts (frontend: `route`) skip rows that are zero. */
static void mark_places(Module *m, Fn *k) {
  if (strcmp(attr_str(&k->attrs, ATTR_family, ""), "contract")) return;
  EACH_OP (k, op) {
    if (op->code != OP_dot) continue;
    const Type *t = value_type(k, op->in[0]);
    for (int i = 0; i < t->rank; i++)
      if (module_setting(m, arena_printf(m->arena, "made.places.%s", t->axis[i].dim), NULL))
        attr_set_str(m, &k->attrs, ATTR_skips, t->axis[i].dim);
    return;
  }
}

static bool has_records(const Module *m) {
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!strncmp(m->settings.at[i].key, "tune.", 5)) return true;
  return false;
}

static void refuse(Module *m, const Fn *k, const char *key, const char *text) {
  Report *r = diag_at(m->ctx->diag, "E1205", loc_span(m, k->loc),
                      "the tuning record of kernel `%s` does not fit it", k->name);
  diag_fact(r, "%s = \"%s\"", key, text);
  diag_help(r, "leave out that setting, or measure again: `shardc tune`");
}

/* By a record; false if there is none. */
static bool tune_by_record(Module *m, Fn *k) {
  const Variants *variants = variants_find(attr_str(&k->attrs, ATTR_family, ""), m->target.device);
  Cut cut;
  if (!variants || !has_records(m)) return false;
  const char *key = variants_setting(m, variants, variants_key(m, variants, k));
  Str text = module_setting(m, key, NULL);
  if (!text) return false;
  if (!variants_read(variants, text, &cut) || !variants->fits(m, k, &cut))
    return refuse(m, k, key, text), false;
  variants->apply(m, k, &cut);
  attr_set_str(m, &k->attrs, ATTR_tuned, intern(m->ctx->names, "record"));
  return true;
}

static void redirect(Module *m, const Fn *from, Fn *to) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId j = 0; j < m->fns.at[i]->ops.n; j++)
      if (m->fns.at[i]->ops.at[j].callee == from) m->fns.at[i]->ops.at[j].callee = to;
}

/* The kernel's text, made when it is asked for first. */
static const char *text_of(Module *m, const char **text, uint32_t i) {
  if (!text[i]) text[i] = kernel_key(m, m->fns.at[i], KEY_CUT | KEY_DIMS);
  return text[i];
}

static void merge_equal(Module *m) {
  const char **text = ARENA_ARRAY(m->arena, const char *, m->fns.n + 1);
  bool *merged = ARENA_ARRAY(m->arena, bool, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    for (uint32_t j = 0; k->kind == FN_KERNEL && !merged[i] && j < i; j++) {
      Fn *with = m->fns.at[j];
      if (merged[j] || !fn_may_equal(k, with)) continue;
      merged[i] = !strcmp(text_of(m, text, i), text_of(m, text, j));
      if (merged[i]) redirect(m, k, with);
    }
  }
  module_remove_unused(m);
}

static void name_apart(Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    Str name = f->name;
    for (int n = 2; symbol_twin(m, i); n++)
      f->name = intern_printf(m->ctx->names, "%s.%d", name, n);
  }
}

/* Each comes just before the kernel that it may replace. */
static void add_larger(Module *m) {
  Module old = *m;
  memset(&m->fns, 0, sizeof m->fns);
  for (uint32_t i = 0; i < old.fns.n; i++) {
    Fn *k = old.fns.at[i];
    Fn *f = k->kind == FN_KERNEL && !kernel_on_host(m, k) ? gpu_larger(m, k) : NULL;
    if (f) module_add(m, f), attr_set_str(m, &f->attrs, ATTR_replaces, k->name);
    module_add(m, k);
  }
  name_apart(m);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (attr_get(&m->fns.at[i]->attrs, ATTR_replaces))
      attr_set_str(m, &m->fns.at[i]->attrs, ATTR_replaces, m->fns.at[i + 1]->name);
}

bool select_cut(Module *m, Fn *k) {
  Module *made = module_for_kernel(m, k);
  return tune_by_record(made, k) || tune_by_rule(made, k);
}

void pass_select(Module *m) {
  bool gpu = module_on_gpu(m);
  if (gpu) gpu_align(m), kernels_mark_apart(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL) continue;
    mark_places(m, k);
    if (!select_cut(m, k)) return;
    if (diag_errors(m->ctx->diag)) return; /* no cut fits it */
    must(attr_get(&k->attrs, ATTR_tile) && attr_get(&k->attrs, ATTR_chunks),
         "select: kernel %s got no cut", k->name);
  }
  select_messages(m);
  merge_equal(m);
  name_apart(m);
  if (gpu) add_larger(m);
}
