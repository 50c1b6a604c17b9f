/* The interpreter after pass `memory`: functions, loops round by round, messages in flight
   (interp_placed.c, interp_rounds.c, interp_flights.c). */
#ifndef SHARDC_INTERP_ROUNDS_H
#define SHARDC_INTERP_ROUNDS_H
#include "interp_placed.h"
#include "ir/schedule/flight.h"

typedef struct PlacedRounds { /* a loop that runs */
  const Op *op;
  uint32_t carried, whole;
  int64_t trip, first;
  bool reverse;
  Str dim;
  PlacedAddress *in, *out;
  Mark *in_mark, *out_mark; /* out_mark: of stacked results, for all rounds */
  FlightList flights;       /* of the body, over rounds */
  PlacedAddress *ring;      /* of each in this round */
} PlacedRounds;

void placed_run(PlacedCall *call);
PlacedRounds placed_begin_rounds(PlacedCall *c, const Op *loop);
void placed_round(PlacedCall *c, PlacedRounds *l, int64_t n);
void placed_end_rounds(PlacedCall *c, PlacedRounds *l);
void placed_run_loop(PlacedCall *c, const Op *loop);

/* ---- messages in flight (interp_flights.c) ---- */
/* Where the workspace of an op begins: what it may write before it has read its operands. */
PlacedAddress placed_work(const PlacedCall *call, const Op *op);
/* Op of f sends the bytes at from, with mark own: the received bytes have a mark of their own from
   now on; the sent bytes keep theirs. */
void placed_start_flight(PlacedCall *call, const Fn *f, const Op *op, PlacedAddress from, Mark own,
                         PlacedAddress to);
/* The oldest that is on its way from this op arrives: its bytes get the mark. */
void placed_land_flight(PlacedCall *call, const Fn *f, const Op *op, Mark mark);
void placed_run_start(PlacedCall *call, const Op *op);
void placed_run_wait(PlacedCall *call, const Op *op);
#endif
