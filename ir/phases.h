/* Phases of training (phases.def): attributes of entries. `step` itself has no phase. */
#ifndef SHARDC_IR_PHASES_H
#define SHARDC_IR_PHASES_H
#include "ir.h"

typedef enum Phase {
  PHASE_none,
#define PHASE(name, entry, replaces, meaning) PHASE_##name,
#include "phases.def"
#undef PHASE
  PHASES
} Phase;

const char *phase_name(Phase p);
const char *phase_entry_name(Phase p);
Phase phase_find(const char *name); /* PHASE_none: there is no such phase */
bool phase_replaces(Phase p);       /* its entry is a step */

Phase fn_phase(const Fn *f);
bool fn_is_step(const Fn *f);           /* the entry of a training step that no phase changes */
const Fn *module_step(const Module *m); /* that entry, or NULL */
/* The first step of its phase, counted from 0; -1: the program finds it while it runs. */
int64_t fn_phase_from(const Fn *f);
/* Makes f the entry of a phase: its name and its attribute; from, -1: none. */
void phase_mark(Module *m, Fn *f, Phase p, int64_t from);

Fn *module_phase(const Module *m, Phase p);   /* the entry of that phase, or NULL */
const Fn *module_later_step(const Module *m); /* the entry that replaces `step`, or NULL */
/* In dumps from before the attribute, entries are told by name, first steps by settings. */
void phases_of_names(Module *m);
#endif
