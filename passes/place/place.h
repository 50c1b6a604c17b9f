/* Parts of pass `place`, and queries about the stages that it makes of layers. */
#ifndef SHARDC_PLACE_H
#define SHARDC_PLACE_H
#include "passes/base/rebuild.h"

void place_kept(Module *m);   /* splits the values that loops keep for other loops (place_kept.c) */
void place_pieces(Module *m); /* the number of pieces of balanced dims (place_pieces.c) */
void place_stages(Module *m); /* layers over ranks (place_stages.c) */
/* E0901 at the line that puts layers on the axis: the reason why the schedule of its stages is not
   built for this model, and one that is. */
void stages_refuse(Module *m, Str axis, const char *why, const char *help);
/* Are its ranks' positions pieces of balanced dims? Those of `logits` are blocks, as sampling goes
   on from position to position. */
bool entry_deals(const Fn *f);
/* The loop over micro-batches in an entry; NULL: there is only one micro-batch. */
const Op *parts_loop(const Fn *entry);
#endif
