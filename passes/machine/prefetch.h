/* Inside of pass prefetch: one function with its messages in flight (prefetch.c), and the choice of
   which fly, and how far ahead (prefetch_weigh.c). */
#ifndef SHARDC_PASSES_PREFETCH_H
#define SHARDC_PASSES_PREFETCH_H
#include "ir/schedule/flight.h"
#include "passes/base/rebuild.h"

typedef struct FlightsAsked { /* what a function's messages may do */
  Ahead ahead;  /* layers: rounds at most; bytes, not 0: of buffers for rounds ahead, at most */
  bool overlap; /* all other messages may fly too */
  const bool *stays; /* by op: waited for at once, since it hides nothing */
} FlightsAsked;

typedef struct Flown {
  Fn *f;        /* NULL: nothing to change */
  OpId *origin; /* by op of it: the op that it is of the function as it was */
} Flown;

/* f before the change; the module contains `as`. */
Flown prefetch_function(Module *m, const Fn *f, const Fn *as, const FlightsAsked *asked);
/* Bytes of one round of what f's loops can gather ahead; 0: nothing. */
int64_t prefetch_round_bytes(Module *m, const Fn *f);
/* Most rounds ahead that a loop over f has. */
int64_t prefetch_rounds(const Module *m, const Fn *f);
#endif
