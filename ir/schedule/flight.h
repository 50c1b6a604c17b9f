/* Messages in flight (attribute `flight`, docs/ir.md): collectives that are started before their
   result is waited for. Passes, the verifier, the interpreter and the host writer share this view
   of them.

   A flight of 0 begins and ends in one function. A body's flight of -n, an all-gather of a stacked
   argument, is started by the loop n rounds before the round that waits for it; one of 1, a
   reduce-scatter into a stacked result, is started in the body and waited for by the loop after the
   next round. The buffer that such a message uses in the body, its result or its operand, is in a
   ring: buffers in the frame of the loop's function that rounds use in turn.

   Messages of a rank are processed one after the other, in the order of their starts. So the result
   of a reduce-scatter of 1 may be sent on at once, by a further reduce-scatter or by an all-reduce
   in place of it, also of 1, without a wait between them: a chain. */
#ifndef SHARDC_FLIGHT_H
#define SHARDC_FLIGHT_H
#include "ir/bytes.h"
#include "ir/loop.h"

typedef struct Flight { /* of a body, over rounds; number of its ring: its place in the list */
  OpId op;
  int64_t rounds;  /* -n or 1 */
  ValueId crosses; /* the value in the ring; NO_VALUE: sent on from the result, without a copy */
  uint32_t role;   /* -n: the argument that is gathered; 1: the result, of the end of a chain */
} Flight;
typedef VEC(Flight) FlightList;

typedef struct Ring { /* of a loop op: three numbers of its attribute */
  int64_t at, bytes, buffers;
} Ring;

typedef struct Ahead { /* what `zero prefetch` asks for; of both, one is 0 */
  int64_t layers, bytes;
} Ahead;
Ahead flights_ahead(const Module *m);
int64_t flights_depth(const Module *m); /* rounds ahead that something starts, at most */

bool op_can_fly(const Op *o); /* it sends */
/* .. over rounds: it needs no workspace, for which a ring has no room */
bool op_can_cross(const Op *o);
bool op_flies(const Op *o);
/* The op of a chain after which this one runs and whose result it sends on; NULL: none. */
const Op *flight_before(const Fn *f, const Op *o);
const Op *flight_behind(const Fn *f, const Op *o);
/* In the order of ops. Empty: nothing of f flies over rounds. */
FlightList flights_over(Arena *arena, const Fn *f);
int64_t flight_buffers(const Op *loop,
                       const Flight *flight); /* no more than there are rounds; 0: no ring */
/* How often a started collective of f is under way at most. */
int64_t flights_at_once(const Module *m, const Fn *f, const Op *o);
/* Bytes from the start of ring number i to the end of its last slot; after pass memory. */
int64_t flight_bytes(const Fn *body, uint32_t i);
Ring loop_ring(const Op *loop, uint32_t i); /* buffers 0: there is none */
/* The op after which the buffers and workspace of a collective are free: its wait, or itself. */
OpId flight_end(const Fn *f, OpId start);
/* The op that starts what a wait waits for; NULL: none does. */
const Op *flight_start(const Fn *f, const Op *wait);
/* Does v share bytes (class: by value, shared_bytes) with an argument or a result of f? */
bool flight_in_caller(const Fn *f, const ValueId *class, ValueId v);
#endif
