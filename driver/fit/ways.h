/* How attention over split positions gets its keys: see ways.c. */
#ifndef SHARDC_WAYS_H
#define SHARDC_WAYS_H
#include "ir/ir.h"

typedef struct AttentionWay {
  uint32_t rule;             /* the plan's line */
  Str axis, sequence, heads; /* heads NULL: none that the axis divides */
  const char *now;           /* gather, ring, exchange */
} AttentionWay;

bool attention_way(const Module *m, AttentionWay *way); /* false: no line splits its positions */
/* The heads of the attention of a lowered model over this dim; NULL: it has none. */
Str attention_heads(const Module *m, Str sequence, bool *masked);
void way_set(Module *m, const char *value);
#endif
