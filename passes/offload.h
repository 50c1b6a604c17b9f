/* What the files of pass `offload` share. */
#ifndef SHARDC_PASSES_OFFLOAD_H
#define SHARDC_PASSES_OFFLOAD_H
#include "ir/ir.h"

/* By value of f: does it go to the host where it is made? args: where f's arguments are; NULL: on
   the device, as those of entries (offload_gradients.c). */
bool *offload_gradients(const Module *m, const Fn *f, const Tier *args);
#endif
