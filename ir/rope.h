/* Frequencies of rotary positions: at position p, pair i has the angle
   p * rope_frequency(op, i, D).

   Without attribute `factor` they are theta^(-2i/D). With it, slow pairs turn `factor` times
   slower, so that a model reaches past the `original` positions it was trained on. How often a
   pair turns over these positions says how slow it is: below `slow` turns it is divided by
   `factor`, above `fast` it is unchanged, and between the two it is a mean of both, with a weight
   that rises along `ramp`:

     turns    linear in the number of turns (Llama 3.1)
     pairs    linear in i (YaRN)
     rounded  the same between two whole numbers i (YaRN, as it is by default)
     all      no weight: every pair is divided (position interpolation) */
#ifndef SHARDC_ROPE_H
#define SHARDC_ROPE_H
#include "ir.h"

typedef enum RopeRamp { ROPE_ALL, ROPE_TURNS, ROPE_PAIRS, ROPE_ROUNDED, ROPE_RAMPS } RopeRamp;

double rope_frequency(const Op *rope, int64_t i, int64_t size); /* size of D */
const char *rope_wrong(const Op *rope); /* the reason why its attributes mean nothing, or NULL */
void rope_copy_attrs(Module *m, Op *to, const Op *from); /* all but `inverse` */
#endif
