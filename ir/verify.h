/* Inside of the verifier: verify.c (names, SSA, types, attributes, globals), verify_parts.c (what
   loops over parts of a stack leave unwritten), verify_shard.c
   (placements on a mesh), verify_storage.c (what fuse, order and memory promise), verify_kernel.c
   (what select promises). A check reports and goes on, so that one run shows every broken rule. */
#ifndef SHARDC_IR_VERIFY_H
#define SHARDC_IR_VERIFY_H
#include "text.h"

typedef struct Verifier {
  Module *m;
  const Fn *fn;
  Fence fence;
  bool failed;
} Verifier;

typedef struct Where { /* the text it was read from, else the source; looked up when it is shown */
  Span span;
  Loc loc;
} Where;

void verify_report(Verifier *v, const char *code, Where at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Where verify_at_op(const Op *op);
Where verify_at_fn(const Verifier *v);

void verify_parts(Verifier *v);       /* loops over parts of stacks */
void verify_shards(Verifier *v);      /* placements of a function, collectives */
void verify_fused(Verifier *v);       /* after fuse */
void verify_shared_rows(Verifier *v); /* kernel functions after fuse */
void verify_ordered(Verifier *v);     /* after order */
void verify_selected(Verifier *v);    /* kernel functions after select */
void verify_placed(Verifier *v);      /* after memory */

/* Elements from the first to the last that the value touches; -1 if its strides are wrong. */
int64_t verify_extent(const Value *v);
#endif
