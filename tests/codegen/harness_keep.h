/* Batches of kernels for a GPU kept in files instead of run: what tools/gpu-bundle takes along. */
#ifndef SHARDC_TEST_HARNESS_KEEP_H
#define SHARDC_TEST_HARNESS_KEEP_H
#include "harness.h"

/* If $SHARDC_KEEP_KERNELS names a folder and m is for a GPU: copies the kernels of m, their PTX in
   `folder`, to a new folder NAME-N in that folder, with the module as kernels.ir, which has the
   harness's numbers as settings check.*. True: they are kept, and need not be run. */
bool harness_keep(Harness *h, Module *m, const char *folder, double tolerance);
/* Before kernels are compiled: if they will be kept, one of $SHARDC_KEEP_EVERY stays in m, where
   nothing calls kernels. */
void harness_thin(Module *m);
#endif
