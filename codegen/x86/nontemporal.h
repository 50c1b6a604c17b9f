/* Results written with non-temporal (streaming) stores.

   A plain store first reads its line (RFO). A result that is mostly evicted from the caches before
   it is read again need not pass through them: attribute `nontemporal`, set by `select`. Such
   stores need whole vectors that are aligned, so that lines are written as a whole, and a buffer
   that is no operand's, because the lines of those are in the caches already. This file tests the
   conditions that are known when a kernel is made; the others are tested when it runs. Parts of
   vectors are stored as usual. */
#ifndef SHARDC_NONTEMPORAL_H
#define SHARDC_NONTEMPORAL_H
#include "codegen/emit.h"

typedef struct
    NontemporalSpace { /* rows of `length` elements that a walk stores vector by vector */
  const NestDim *outer;
  int n;
  Str inner;
  int64_t length;
  bool heads; /* a walk can begin with less than a vector, so that the others are aligned */
} NontemporalSpace;

typedef struct Nontemporal {
  uint64_t results;   /* one bit each; 0: none, and nothing below is set */
  uint32_t first;     /* of them */
  bool ragged;        /* rows begin anywhere: walks need heads */
  LLVMValueRef holds; /* i1: when the kernel runs, these results can be nontemporal_results */
} Nontemporal;

/* The results in attribute `nontemporal` that can be stored so; writes the code of `holds`. */
Nontemporal nontemporal_of(Emit *e, const NontemporalSpace *space);

/* Indexes of the row that begins at p before its first aligned vector */
LLVMValueRef nontemporal_head(Emit *e, const Nontemporal *nontemporal, const Point *p);

/* i1: address is a multiple of bytes, a power of two */
LLVMValueRef nontemporal_aligned(Emit *e, LLVMValueRef address, int64_t bytes);

/* Writes `body` twice: with these results nontemporal_results where `holds`, and as ever elsewhere;
   once if there are none. */
typedef void NontemporalBody(void *state);
void nontemporal_either(Emit *e, uint64_t results, LLVMValueRef holds, NontemporalBody *body,
                        void *state);

/* Such stores may pass others: whoever is told that the chunk is done must find them. */
void nontemporal_end(Emit *e, uint64_t results);
/* A non-temporal store of a whole vector; its address is a multiple of its size. */
void emit_nontemporal_store(Emit *e, LLVMValueRef pointer, LLVMValueRef vector);
#endif
