/* The machine that a module is compiled for, as typed facts: see target_facts.def. The rows of
   machines belong to the code generators (codegen/target.h); every other room asks through this
   header. Must not: know a machine by its name. */
#ifndef SHARDC_IR_TARGET_H
#define SHARDC_IR_TARGET_H
#include "ir/support/ctx.h"

typedef enum DeviceKind { DEVICE_CPU, DEVICE_GPU, DEVICE_KINDS } DeviceKind;

typedef enum TargetFact {
#define TARGET_FACT(name, type, devices, use, least, most, otherwise, meaning) TARGET_##name,
#include "target_facts.def"
#undef TARGET_FACT
  TARGET_FACTS
} TargetFact;

typedef bool FactFLAG;
typedef int64_t FactCOUNT, FactPOWER;
typedef DeviceKind FactDEVICE;

typedef struct TargetFacts {
  Str name; /* x86_64_v3, ..; NULL: no machine in particular */
#define TARGET_FACT(name, type, devices, use, least, most, otherwise, meaning) Fact##type name;
#include "target_facts.def"
#undef TARGET_FACT
  uint32_t given; /* a bit of each fact that was written, not left at the table's */
  bool rest;      /* what was not said, the compiler's row of that name has (`..`) */
  Span span;      /* .. and where it was written */
} TargetFacts;

typedef enum TargetType {
  TARGET_TYPE_FLAG,
  TARGET_TYPE_COUNT,
  TARGET_TYPE_POWER,
  TARGET_TYPE_DEVICE
} TargetType;

extern const TargetFacts target_none; /* every fact as the table has it */
const char *device_name(DeviceKind d);
const char *target_fact_name(TargetFact f);
TargetType target_fact_type(TargetFact f);
const char *target_type_words(TargetType t); /* for messages */
bool target_fact_find(const char *name, TargetFact *f);
bool target_fact_made(TargetFact f);                  /* code is made by it */
bool target_fact_of(TargetFact f, DeviceKind d);      /* such devices have it */
bool target_fact_allows(TargetFact f, int64_t value); /* what a machine can have */
int64_t target_get(const TargetFacts *t, TargetFact f);
void target_set(TargetFacts *t, TargetFact f, int64_t value); /* .. and now it is given */
/* The machine of that name: all facts of its device are said by now. */
void target_named(TargetFacts *t, Str name);
/* The first fact that a target with a name owes, unless the rest is the compiler's; TARGET_FACTS:
   none. */
TargetFact target_lacks(const TargetFacts *t);
/* From the text of a dump or of an option: a number, true, false, cpu, gpu. False: it is of another
 * type. */
bool target_fact_read(TargetFact f, const char *text, int64_t *value);

static inline int target_lanes(const TargetFacts *t) {
  return (int)t->vector_bytes / 4;
} /* of f32 */

#endif
