/* Do the programs of all ranks compute what the model does? Both run in exact arithmetic (field.h)
   with the same random parameters and inputs: `init`, steps of training, `eval`, samples. Losses,
   outputs and parameters must be equal, and ranks that hold the same number must agree. A program
   that is wrong passes with a chance of d / 2^51 for numbers that are polynomials of degree d of
   what is drawn; functions that are no polynomials count as random ones (field.h).

   Rounding is not compared. */
#ifndef SHARDC_EQUAL_H
#define SHARDC_EQUAL_H
#include "interp.h"

typedef struct EqualSide {
  Module *const *programs; /* of the classes of ranks, or one */
  uint32_t n;
  bool whole;  /* one program of all samples: before pass `localize` */
  bool placed; /* after pass `memory`: in bytes */
  bool early;  /* messages arrive when they start */
} EqualSide;

typedef struct EqualTask {
  EqualSide model, ranks;
  int64_t seed, steps;
  InterpWork *work; /* NULL: no limit */
} EqualTask;

typedef struct EqualReport { /* of a difference */
  const char *why;           /* in an arena of the side's; NULL: they are equal */
  Str global;                /* NULL: no run of an entry ended */
  const char *entry;         /* after which it was seen */
  int64_t element;           /* the first that differs */
  uint32_t entries;          /* that were compared; their names, and those of all others: */
  const char *compared, *left;
  bool spent; /* no difference: the budget of work was spent */
} EqualReport;

/* False: see the report. */
bool programs_equal(const EqualTask *task, EqualReport *report);

#endif
