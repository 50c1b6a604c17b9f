/* Facts of targets by name and by number, from the table target_facts.def: for the text of modules,
   for the verifier, for what tries other facts. Must not: decide anything by a fact. */
#include "target_facts.h"
#include "ir/support/num.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { CPU = 1 << DEVICE_CPU, GPU = 1 << DEVICE_GPU, BOTH = CPU | GPU, MADE = 1, TRIED = 0 };
enum {
  FLAG = TARGET_TYPE_FLAG,
  COUNT = TARGET_TYPE_COUNT,
  POWER = TARGET_TYPE_POWER,
  DEVICE = TARGET_TYPE_DEVICE
};

static const struct {
  const char *name;
  TargetType type;
  unsigned devices;
  bool made;
  size_t at;
  int64_t least, most;
} facts[] = {
#define TARGET_FACT(name, type, devices, use, least, most, otherwise, meaning)                     \
  {#name, (TargetType)type, devices, use, offsetof(TargetFacts, name), least, most},
#include "target_facts.def"
#undef TARGET_FACT
};

_Static_assert(COUNT_OF(facts) == TARGET_FACTS, "a row per TargetFact");
_Static_assert(TARGET_FACTS <= 32, "TargetFacts.given has a bit per fact");

const TargetFacts target_none = {
#define TARGET_FACT(name, type, devices, use, least, most, otherwise, meaning) .name = otherwise,
#include "target_facts.def"
#undef TARGET_FACT
};

static const char *const devices[] = {[DEVICE_CPU] = "cpu", [DEVICE_GPU] = "gpu"};
_Static_assert(COUNT_OF(devices) == DEVICE_KINDS, "a word per DeviceKind");

const char *target_type_words(TargetType t) {
  static const char *const words[] = {[TARGET_TYPE_FLAG] = "true or false",
                                      [TARGET_TYPE_COUNT] = "a whole number",
                                      [TARGET_TYPE_POWER] = "a whole number",
                                      [TARGET_TYPE_DEVICE] = "cpu or gpu"};
  _Static_assert(COUNT_OF(words) == TARGET_TYPE_DEVICE + 1, "a word per TargetType");
  return words[t];
}

const char *device_name(DeviceKind d) { return devices[d]; }
const char *target_fact_name(TargetFact f) { return facts[f].name; }
TargetType target_fact_type(TargetFact f) { return facts[f].type; }
bool target_fact_made(TargetFact f) { return facts[f].made; }
bool target_fact_of(TargetFact f, DeviceKind d) { return facts[f].devices >> d & 1; }

bool target_fact_find(const char *name, TargetFact *f) {
  for (*f = 0; *f < TARGET_FACTS; (*f)++)
    if (!strcmp(facts[*f].name, name)) return true;
  return false;
}

bool target_fact_allows(TargetFact f, int64_t value) {
  bool power = facts[f].type != TARGET_TYPE_POWER || !(value & (value - 1));
  return value >= facts[f].least && value <= facts[f].most && power;
}

int64_t target_get(const TargetFacts *t, TargetFact f) {
  const char *at = (const char *)t + facts[f].at;
  switch (facts[f].type) {
  case TARGET_TYPE_FLAG: return *(const FactFLAG *)at;
  case TARGET_TYPE_DEVICE: return *(const FactDEVICE *)at;
  default: return *(const FactCOUNT *)at;
  }
}

void target_set(TargetFacts *t, TargetFact f, int64_t value) {
  char *at = (char *)t + facts[f].at;
  t->given |= UINT32_C(1) << f;
  switch (facts[f].type) {
  case TARGET_TYPE_FLAG: *(FactFLAG *)at = value != 0; break;
  case TARGET_TYPE_DEVICE: *(FactDEVICE *)at = (DeviceKind)value; break;
  default: *(FactCOUNT *)at = value;
  }
}

void target_named(TargetFacts *t, Str name) {
  t->name = name;
  for (TargetFact f = 0; f < TARGET_FACTS; f++)
    if (target_fact_of(f, t->device)) t->given |= UINT32_C(1) << f;
}

TargetFact target_lacks(const TargetFacts *t) {
  for (TargetFact f = 0; f < TARGET_FACTS && t->name && !t->rest; f++)
    if (target_fact_of(f, t->device) && !(t->given >> f & 1)) return f;
  return TARGET_FACTS;
}

bool target_fact_read(TargetFact f, const char *text, int64_t *value) {
  static const char *const flags[] = {"false", "true"};
  const char *const *words = facts[f].type == TARGET_TYPE_FLAG ? flags : devices;
  if (facts[f].type == TARGET_TYPE_FLAG || facts[f].type == TARGET_TYPE_DEVICE) {
    for (*value = 0; *value < 2; (*value)++)
      if (!strcmp(words[*value], text)) return true;
    return false;
  }
  char *end;
  *value = strtoll(text, &end, 10);
  return *text >= '0' && *text <= '9' && !*end && *value < INT64_MAX;
}
