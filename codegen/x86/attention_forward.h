/* Inside of family attention, forward: the part of queries that is worked on, and the scores of a
   block of keys (attention_scores.c). See attention.c for the formulation. */
#ifndef SHARDC_ATTENTION_FORWARD_H
#define SHARDC_ATTENTION_FORWARD_H
#include "attention.h"

typedef struct Forward {
  Attention a;
  LLVMValueRef keys, values, rows, all_scores;  /* scratch */
  LLVMValueRef all_queries, all_out, all_state; /* of the block's tiles */
  LLVMValueRef q0;                              /* first query of the part being worked on */
  int vectors;                                  /* of it */
  LLVMValueRef queries, scores, out;            /* its columns */
  LLVMValueRef minus, sum;                      /* per query: -m, l */
  LLVMValueRef grown, added; /* of the present block: largest score so far, sum of powers */
} Forward;

typedef void QueryWork(Forward *f, int v, const void *state);

/* The offset of vector v of the part. */
LLVMValueRef forward_lane(Forward *forward, int v);
/* These queries of a tile alone. */
Forward forward_part(const Forward *f, LLVMValueRef lane, int vectors);
/* Works on n vectors of queries; with --quick in a loop. */
void forward_each(Forward *forward, int64_t n, QueryWork *work, const void *state);
/* The queries of vector v */
Point forward_queries(Forward *forward, int v);
/* m so far */
LLVMValueRef forward_reference(Forward *forward, int v);
/* The results of vector v times the factor. */
void forward_scale(Forward *forward, int v, LLVMValueRef factor);
/* The tiles of a block of scores. */
TileShape forward_tile(Forward *forward);
/* Scores of keys [k0, k0 + count) to probabilities, with a new m. whole: the mask admits all. */
void forward_exact(Forward *forward, LLVMValueRef k0, LLVMValueRef count, bool whole);
/* The same with the present m; whether all sums of powers are fit to be used. */
LLVMValueRef forward_quick(Forward *forward, LLVMValueRef k0, LLVMValueRef count, bool whole);
/* Adds the sums of powers of the present block. */
void forward_add(Forward *forward);
#endif
