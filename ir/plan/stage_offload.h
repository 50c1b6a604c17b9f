/* What a plan has on the host of which stages of a pipeline. `offload optimizer of h[0..3]` cuts no
   stack whose layers stages share: a stage has all of its layers there, or none, and pass
   `pipeline` refuses what is neither (passes/stages/stage_offload_check.c). Until the programs of
   the classes part, before pass `offload`, all stages have the same groups and messages, as if all
   layers were there; then memories alone differ. */
#ifndef SHARDC_STAGE_OFFLOAD_H
#define SHARDC_STAGE_OFFLOAD_H
#include "ir/ir.h"

/* Does a path of the word name layers: h[0..3]? */
bool word_names_layers(const Module *m, Str what);
/* Over so many ranks a place line puts the layers of the stack that it is a parameter of; 1: none
   does, or it is of none. */
int64_t layers_ranks(const Module *m, const Global *global);
/* Have both stages the same there of everything? */
bool stages_offload_alike(const Module *m, int64_t a, int64_t b);
/* As plan_offloads, of the stages that the module is for; of all of them, if any has it. */
bool class_offloads(const Module *m, Str what, Str param);
/* Is there something of this word that other stages have there and the module's have not? */
bool class_hosts_nothing(const Module *m, Str what);
#endif
