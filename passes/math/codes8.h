/* Moments of AdamW in 8 bits (codes8.c). */
#ifndef SHARDC_PASSES_CODES8_H
#define SHARDC_PASSES_CODES8_H
#include "update.h"

typedef enum Codes8 { CODES_FIRST, CODES_SECOND } Codes8; /* with and without a sign */

void codes8_begin(Update *u); /* once per line, if its states are codes */
ValueId codes8_read(Update *u, Codes8 kind, ValueId codes); /* f32 of u8 */
ValueId codes8_of(Update *u, Codes8 kind, ValueId moment);  /* u8 of f32 */
#endif
