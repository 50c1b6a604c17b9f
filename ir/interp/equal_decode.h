/* Sampling with caches, in exact arithmetic: see equal_decode.c. */
#ifndef SHARDC_EQUAL_DECODE_H
#define SHARDC_EQUAL_DECODE_H
#include "equal_side.h"

/* After `logits` has run on both sides. True also without an entry `decode`. */
bool decode_equal(const Runner *model, const Runner *ranks, int64_t seed, EqualReport *report);

#endif
