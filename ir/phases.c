/* Phases of training: see phases.h. Must not: know what an entry computes. */
#include "phases.h"
#include <string.h>

static const struct {
  const char *name, *entry;
  bool replaces;
} phases[] = {
    [PHASE_none] = {"", "", false},
#define PHASE(name, entry, replaces, meaning) [PHASE_##name] = {#name, entry, replaces},
#include "phases.def"
#undef PHASE
};

const char *phase_name(Phase p) { return phases[p].name; }
const char *phase_entry_name(Phase p) { return phases[p].entry; }
bool phase_replaces(Phase p) { return phases[p].replaces; }

Phase phase_find(const char *name) {
  for (int p = PHASE_none + 1; p < PHASES; p++)
    if (!strcmp(phases[p].name, name)) return (Phase)p;
  return PHASE_none;
}

Phase fn_phase(const Fn *f) { return phase_find(attr_str(&f->attrs, ATTR_phase, "")); }

int64_t fn_phase_from(const Fn *f) { return attr_int(&f->attrs, ATTR_from, -1); }

void phase_mark(Module *m, Fn *f, Phase p, int64_t from) {
  f->name = intern(m->ctx->names, phases[p].entry);
  attr_set_str(m, &f->attrs, ATTR_phase, intern(m->ctx->names, phases[p].name));
  if (from >= 0) attr_set_int(m, &f->attrs, ATTR_from, from);
}

Fn *module_phase(const Module *m, Phase p) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY && fn_phase(m->fns.at[i]) == p) return m->fns.at[i];
  return NULL;
}

bool fn_is_step(const Fn *f) { return f->kind == FN_ENTRY && !strcmp(f->name, "step"); }

const Fn *module_step(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (fn_is_step(m->fns.at[i])) return m->fns.at[i];
  return NULL;
}

const Fn *module_later_step(const Module *m) {
  for (int p = PHASE_none + 1; p < PHASES; p++) {
    const Fn *f = phases[p].replaces ? module_phase(m, (Phase)p) : NULL;
    if (f) return f;
  }
  return NULL;
}

static int64_t old_setting(const Module *m, const char *key) {
  return (int64_t)module_number(m, key, -1);
}

static Phase phase_of_name(const Fn *f) {
  for (int p = PHASE_none + 1; p < PHASES; p++)
    if (f->kind == FN_ENTRY && !strcmp(phases[p].entry, f->name)) return (Phase)p;
  return PHASE_none;
}

void phases_of_names(Module *m) {
  int64_t every = old_setting(m, "made.freeze.window");
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    Phase p = attr_get(&f->attrs, ATTR_phase) ? PHASE_none : phase_of_name(f);
    int64_t from = p == PHASE_late                  ? old_setting(m, "train.delay.after")
                   : p == PHASE_frozen && every < 0 ? old_setting(m, "made.freeze")
                                                    : -1;
    if (p != PHASE_none) phase_mark(m, f, p, from);
    if (p == PHASE_look && every > 0) attr_set_int(m, &f->attrs, ATTR_every, every);
  }
}
