/* Cutting text into pieces, inside of which byte-level tokenizers merge. */
#ifndef SHARDC_RT_SPLIT_H
#define SHARDC_RT_SPLIT_H
#include "runtime/base/base.h"

typedef struct SplitText { /* the input of a splitter; text before a piece has no effect */
  const uint8_t *at, *end;
  const uint16_t *classes; /* rt_unicode_classes() */
} SplitText;

typedef const uint8_t *Split(const SplitText *t,
                             const uint8_t *p); /* the end of the piece at p < end */

Split *rt_split_gpt2(void);
Split *rt_split_find(const char *pattern); /* NULL: an expression that is not known */
#endif
