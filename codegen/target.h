/* The lists of targets, for target.c: each family of machines gives its rows, poorest first. */
#ifndef SHARDC_TARGET_H
#define SHARDC_TARGET_H
#include "codegen.h"

const Target *x86_target(int i); /* NULL after the last */
const Target *x86_native(void);  /* the richest one that this machine can run */
const Target *nvptx_target(int i);

#endif
