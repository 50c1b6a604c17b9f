/* The values that a plan keeps on the host, by stage of a pipeline. `offload optimizer of h[0..3]`
   does not cut a stack whose layers are divided among stages: a stage has all of its layers on the
   host, or none, and pass `pipeline` refuses any other plan (passes/stages/stage_offload_check.c).
   Until the program is specialised for the classes, before pass `offload`, all stages have the same
   groups and messages, as if all layers were on the host; after that only the tiers differ. */
#ifndef SHARDC_STAGE_OFFLOAD_H
#define SHARDC_STAGE_OFFLOAD_H
#include "ir/ir.h"

/* Does a path of the word name layers: h[0..3]? */
bool word_names_layers(const Module *m, OffloadWord word);
/* The number of ranks over which a place line divides the layers of the stack that a parameter
   belongs to; 1: no line does, or it belongs to no stack. */
int64_t layers_ranks(const Module *m, const Global *global);
/* Have both stages the same values on the host? */
bool stages_offload_alike(const Module *m, int64_t a, int64_t b);
/* As plan_offloads, of the stages that the module is for; of all of them, if any has it. */
bool class_offloads(const Module *m, OffloadWord word, Str param);
#endif
