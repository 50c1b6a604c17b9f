/* Classes of the stages of a pipeline: shared by pass `classes`, its part for layers, and `own`. */
#ifndef SHARDC_CLASSES_H
#define SHARDC_CLASSES_H
#include "passes/base/rebuild.h"

/* Pass `classes`; `together`: with the collectives that other classes need (classes.c). */
void classes_apart(Module *m, bool together);
/* Copies a loop over layers if each stage of the class has fewer of them than the loop has rounds
   (class_layers.c); false: the loop is like any other. */
bool class_layers(Rebuild *rebuild, const Op *o);
/* Refuses lines `offload` that cut a stage, and a class that is none of the plan's
   (stage_offload_check.c). */
void stage_tiers_check(Module *m);
/* Does every round of the loop do work on every stage of the class, once rounds are cut? */
bool class_layers_full(const Module *m, const Op *loop);
#endif
