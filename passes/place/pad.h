/* Padded dims, internal declarations: the contents of padding (pad_facts.c), and the rewriting
   (pad.c). */
#ifndef SHARDC_PASSES_PAD_H
#define SHARDC_PASSES_PAD_H
#include "passes/base/rebuild.h"

enum { PADS = 8 };

typedef struct PadDim {
  Str dim;
  int64_t size, stored;
} PadDim;

typedef struct Pads {
  Module *m;
  int n;
  PadDim at[PADS];
} Pads;

/* The elements whose index along a padded dim is beyond its logical size. */
typedef enum PadKind {
  PAD_OTHER, /* anything, infinities and NaN included */
  PAD_SAME,  /* the same as in logical elements: the value does not depend on the dim */
  PAD_KNOWN  /* this number */
} PadKind;

typedef struct PadFact {
  PadKind kind;
  double value;
} PadFact;

typedef struct PadFacts { /* of one value, by padded dim */
  PadFact of[PADS];
} PadFacts;

/* Adds the dim of a stack whose layers stages have different numbers of (pad_layers.c). */
void pad_layers(Pads *pads);
bool pad_runs_over(const Module *m, Str dim); /* some loop does */
/* The padded dim of that name and, as an axis, of its logical size; -1: none. */
int pad_find(const Pads *pads, const Type *t, Str dim);
bool pad_is_zero(PadFact f);
PadFact pad_join(PadFact a, PadFact b);
/* For a result of o, given the facts of its operands; `f` is the function before padding. */
PadFacts pad_result(const Pads *pads, const Fn *f, const Op *o, uint32_t result,
                    const PadFacts *in);
#endif
