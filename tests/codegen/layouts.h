/* Random layouts of attention as text of IR: patterns of blocks joined by `or`, cut by causal,
   sliding, data of padding; heads that differ; queries that see nothing. */
#ifndef SHARDC_TEST_LAYOUTS_H
#define SHARDC_TEST_LAYOUTS_H
#include "attention_text.h"

AttentionShape layout_shape(Harness *h, int64_t width);
/* arg: number of the first value that is not an argument yet. */
AttentionMask layout_mask(Harness *h, const AttentionShape *s, int arg);
/* Blocks on the diagonal and a comparison of floats, which no block says anything about. */
AttentionMask layout_of_floats(Harness *h, const AttentionShape *s, int arg);
/* Every other block of n, from its own on. */
AttentionMask layout_of_others(Harness *h, const AttentionShape *s, int arg, int n, bool cut);
#endif
