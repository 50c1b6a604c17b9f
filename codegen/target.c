/* All targets as one list, the families of machines one after the other, and the facts of the
   chosen one, which passes read. Facts of machines are in the file of their family. */
#include "target.h"
#include <stdio.h>
#include <string.h>

static const struct {
  const Target *(*row)(int i);
} families[] = {
#define DEVICE(name) {name##_target},
#include "devices.def"
#undef DEVICE
};

enum { FAMILIES = sizeof families / sizeof *families };

static const Target *target_at(int i) {
  for (int f = 0; f < FAMILIES; f++) {
    int n = 0;
    for (const Target *target; (target = families[f].row(n)); n++)
      if (n == i) return target;
    i -= n;
  }
  return NULL;
}

const Target *target_find(const char *name) {
  if (!strcmp(name, "native")) return x86_native();
  if (!strcmp(name, "x86")) name = "x86_64_v3"; /* any processor that shardc knows */
  const Target *target;
  for (int i = 0; (target = target_at(i)); i++)
    if (!strcmp(name, target->name)) return target;
  return NULL;
}

const Target *target_for_newer(const char *name) {
  const Target *newest = NULL, *target;
  for (int i = 0; (target = target_at(i)); i++)
    if (target->facts.sm && !target->alone) newest = target;
  int sm;
  return newest && sscanf(name, "sm_%d", &sm) == 1 && sm > newest->facts.sm ? newest : NULL;
}

const Target *target_first(DeviceKind device) {
  const Target *target;
  for (int i = 0; (target = target_at(i)); i++)
    if (target->facts.device == device) return target;
  bug("no target with a %s", device_name(device));
}

const char *target_name(int i) {
  const Target *target = target_at(i);
  return target ? target->name : NULL;
}

DeviceKind target_kind(const char *name) {
  const Target *target = target_find(name);
  return target ? target->facts.device : DEVICE_CPU;
}

/* All facts of the row's device. */
static TargetFacts facts_of(const Target *target, Str name) {
  TargetFacts facts = target_none;
  for (TargetFact f = 0; f < TARGET_FACTS; f++)
    if (target_get(&target->facts, f)) target_set(&facts, f, target_get(&target->facts, f));
  target_named(&facts, name);
  return facts;
}

void target_describe(Module *m, const Target *target, int workers) {
  m->target = facts_of(target, intern(m->ctx->names, target->name));
  if (target->facts.device == DEVICE_CPU) m->target.workers = workers;
}

/* The number of workers is that of a machine, not of the target. */
bool target_edited(const Module *m) {
  TargetFacts row = facts_of(target_of(m), m->target.name);
  row.workers = m->target.workers;
  for (TargetFact f = 0; f < TARGET_FACTS; f++)
    if (target_get(&m->target, f) != target_get(&row, f)) return true;
  return false;
}

void target_describe_beside(Module *m, const Target *target, int workers) {
  m->host_target = facts_of(target, intern(m->ctx->names, target->name));
  m->host_target.workers = workers;
}

static bool strange(Module *m, const TargetFacts *have, TargetFact f, int64_t want) {
  Report *r = diag_at(m->ctx->diag, "E1103", have->span, "%s = %lld is not what target %s has",
                      target_fact_name(f), (long long)target_get(have, f), have->name);
  diag_fact(r, "it has %lld", (long long)want);
  return false;
}

static bool complete(Module *m, TargetFacts *have) {
  const Target *target = have->name ? target_find(have->name) : NULL;
  if (!have->name) return true;
  if (!target)
    return diag_at(m->ctx->diag, "E1103", have->span, "no target is called `%s`", have->name),
           false;
  bool good = true;
  const TargetFacts facts = facts_of(target, have->name);
  for (TargetFact f = 0; f < TARGET_FACTS; f++) {
    int64_t row = target_get(&facts, f);
    if (!(have->given >> f & 1)) {
      if (have->rest && facts.given >> f & 1) target_set(have, f, row);
    } else if (target_fact_made(f) && target_get(have, f) != row) {
      good = strange(m, have, f, row);
    }
  }
  have->rest = false;
  return good;
}

bool target_complete(Module *m) { return complete(m, &m->target) && complete(m, &m->host_target); }

const Target *target_of(const Module *m) {
  const Target *target = m->target.name ? target_find(m->target.name) : NULL;
  if (!target) bug("the module names no known target");
  return target;
}
