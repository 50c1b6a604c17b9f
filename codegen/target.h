/* The lists of targets, for target.c: each family of machines gives its rows, poorest first. */
#ifndef SHARDC_TARGET_H
#define SHARDC_TARGET_H
#include "codegen.h"

#define DEVICE(name) const Target *name##_target(int i); /* NULL after the last */
#include "devices.def"
#undef DEVICE
const Target *x86_native(void); /* the richest one that this machine can run */

#endif
