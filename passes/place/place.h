/* Parts of pass `place`, and what is known of the stages that it makes of layers. */
#ifndef SHARDC_PLACE_H
#define SHARDC_PLACE_H
#include "passes/base/rebuild.h"

void place_kept(Module *m);   /* what loops keep for others, split further (place_kept.c) */
void place_stages(Module *m); /* layers over ranks (place_stages.c) */
/* E0901 at the line that puts layers on the axis: why the schedule of its stages is not built for
 * this model, and what is. */
void stages_refuse(Module *m, Str axis, const char *why, const char *help);
/* The loop over parts of the batch in an entry, NULL: there is one part alone. */
const Op *parts_loop(const Module *m, const Fn *entry);
#endif
