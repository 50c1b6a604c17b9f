/* Kernels that round to 8 bits an operand of a product whose summed dim is not the contiguous one
   (variant `turned` of family row on GPUs). They read lines that are contiguous across the summed
   dim, and write codes that are contiguous along it (codes.h).

   A CTA takes one block of the summed dim for 128 neighbours across it; if a block spans the
   neighbours as well, it takes one block. A second result may hold the codes of the same numbers in
   the order of the operand, in blocks of the 128 neighbours. */
#ifndef SHARDC_ROW_TURNED_H
#define SHARDC_ROW_TURNED_H
#include "ir/codes.h"
#include "nest.h"

enum {
  TURNED_WARP = 32,  /* threads */
  TURNED_LANES = 4,  /* neighbours that a thread takes at once */
  TURNED_DEPTH = 16, /* elements along the summed dim that it has of each: codes of 16 bytes */
  TURNED_THREADS = 32 * EIGHTS_BLOCK / TURNED_DEPTH,
  TURNED_SHARED = EIGHTS_BLOCK / TURNED_DEPTH * 32 * TURNED_LANES * 4
};

typedef struct TurnedRows {
  ReducedSpace space;
  const Op *quantize, *most;
  const Op *other_most; /* of the second result; NULL: there is none */
  Str along, across;    /* the summed dim; that of the neighbours */
  bool whole;           /* a block spans the neighbours */
  int64_t stride;       /* from a neighbour to the next, of the result */
  int64_t vectors;      /* of TURNED_LANES neighbours, in all; of a block, if it spans them */
  int64_t ctas;
} TurnedRows;

/* false: the kernel does more, or its operand has no such lines. */
bool row_turned(const Module *m, const Fn *k, TurnedRows *out);
#endif
