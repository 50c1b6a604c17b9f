/* Characters: UTF-8 in and out, and what tokenizers ask of them. */
#ifndef SHARDC_RT_UNICODE_H
#define SHARDC_RT_UNICODE_H
#include "runtime/base/base.h"

enum { RT_CHARACTERS = 0x110000 };
enum { /* bits; the first three as regular expressions see them, the others as BERT does */
       RT_LETTER = 1,
       RT_NUMBER = 2,
       RT_SPACE = 4,
       RT_PUNCT = 8,
       RT_CONTROL = 16, /* removed by cleaning, even where it is a space too */
       RT_MARK = 32,    /* accents and the like */
       RT_IDEOGRAPH = 64,
       RT_UPPER = 128, /* allowed where a capital is: also letters without case, and marks */
       RT_LOWER = 256  /* where a small letter does */
};

/* The character at p < end and its bytes; -1 and one byte where it is not UTF-8. */
int32_t rt_utf8_next(const uint8_t *p, const uint8_t *end, int *bytes);

uint16_t *rt_unicode_classes(void); /* the bits of every character, in new memory */
int rt_unicode_lower(int32_t c, int32_t out[2]);
int rt_unicode_decompose(int32_t c, int32_t out[4]); /* canonical, in full */
int rt_unicode_order(int32_t c);                     /* combining class */
#endif
