/* A model of attention over layouts as text, lowered, for tests. */
#ifndef SHARDC_TEST_SPARSE_PROGRAM_H
#define SHARDC_TEST_SPARSE_PROGRAM_H
#include "ir/ir.h"
/* `type`: the plan's precision. NULL: a diagnostic was given. */
Module *sparse_program(Ctx *c, const char *text, const char *type);
#endif
