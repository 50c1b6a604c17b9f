/* Shared declarations of the files of the harness, and of others that run kernels. */
#ifndef SHARDC_TEST_HARNESS_INSIDE_H
#define SHARDC_TEST_HARNESS_INSIDE_H
#include "harness.h"
#include "ir/interp/interp.h"

enum { GUARD = 256, POISON = 0xFF };

typedef struct Buffer {
  const Fn *k;
  ValueId v;
  int64_t bytes;
  char *block, *at; /* with guards; of the elements */
} Buffer;

struct Running {
  Harness *h;
  Module *m;
  const Fn *k;
  uint32_t nargs, nresults;
  Buffer *buffer; /* arguments, results */
  void **pointer;
  char *scratch, *workspace;
  int64_t scratch_bytes, workspace_bytes;
};

/* Buffers of their own between guards, poisoned; results in buffers of operands as h->inplace says.
 */
Running running_new(Harness *h, Module *m, const Fn *k);
void running_free(Running *r);
int running_same(Harness *h, uint32_t result); /* the argument that has its buffer, -1: none */
/* Random numbers that the element type holds exactly, into the buffer too. */
Tensor running_random(Harness *h, const Fn *k, ValueId v, const Buffer *b);
uint64_t harness_next(Harness *h);
#endif
