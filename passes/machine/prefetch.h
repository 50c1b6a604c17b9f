/* Internal declarations of pass prefetch: one function with its messages in flight (prefetch.c),
   and the choice of those messages and of how early they start (prefetch_weigh.c). */
#ifndef SHARDC_PASSES_PREFETCH_H
#define SHARDC_PASSES_PREFETCH_H
#include "ir/schedule/flight.h"
#include "passes/base/rebuild.h"

typedef struct FlightsAsked { /* limits for the messages of a function */
  Ahead ahead;  /* layers: rounds at most; bytes, not 0: of buffers for rounds ahead, at most */
  bool overlap; /* all other messages may be asynchronous as well */
  const bool *stays; /* by op: waited for at once, since it hides nothing */
} FlightsAsked;

typedef struct Flown {
  Fn *f;        /* NULL: nothing to change */
  OpId *origin; /* by op of it: the op that it is of the function as it was */
} Flown;

/* f before the change; the module contains `as`. */
Flown prefetch_function(Module *m, const Fn *f, const Fn *as, const FlightsAsked *asked);
/* Bytes of one round of the operands that f's loops can gather ahead; 0: nothing. */
int64_t prefetch_round_bytes(Module *m, const Fn *f);
/* Most rounds ahead that a loop over f has. */
int64_t prefetch_rounds(const Module *m, const Fn *f);
#endif
