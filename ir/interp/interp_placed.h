/* The bytes of the interpreter after pass `memory`: memories, marks, values where they are placed.
   interp_placed.c says what marks are for. Must not: run anything. */
#ifndef SHARDC_INTERP_PLACED_H
#define SHARDC_INTERP_PLACED_H
#include "interp_inside.h"
#include "ir/schedule/message.h"
#include "ir/schedule/stream_order.h"

typedef uint32_t Mark; /* 0: none */

typedef struct PlacedStreams PlacedStreams; /* interp_streams.c */
typedef struct StreamByte StreamByte;

typedef struct Memory {
  const char *name;
  unsigned char *byte;
  double *element; /* by byte: of numbers that are elements of a field; else NULL */
  Mark *mark;
  int64_t n;
  bool host;
  PlacedStreams *streams; /* NULL: one stream touches it, or the order of several is given */
  StreamByte *shared;     /* by byte */
} Memory;

typedef struct PlacedAddress {
  Memory *memory;
  int64_t at;
} PlacedAddress;

typedef struct Flying { /* a message on its way */
  const Op *op;
  Message m;
  PlacedAddress from, to, work;
  int64_t workspace; /* bytes */
  Mark own, mark;    /* of the sent bytes; of the received bytes until the message arrives */
  double *received;  /* NULL: it is exchanged at the wait */
  bool sent_on;      /* by the next message of a chain, whose its bytes are now */
} Flying;

typedef struct PlacedMachine {
  Interp *in;
  Arena *arena;
  Memory *global; /* by index in m->globals */
  Mark *old;      /* marks of the globals at the start */
  Mark last;
  VEC(Flying) flying;     /* in the order of starts */
  PlacedStreams *streams; /* NULL: the program has one, or no tokens yet */
  const char *error;      /* the first */
} PlacedMachine;

typedef struct PlacedCall { /* a function that runs */
  PlacedMachine *x;
  const Fn *f;
  PlacedAddress frame[TIERS];
  const PlacedAddress *in, *out;
  Mark *mark;                /* by value */
  const PlacedAddress *ring; /* of a body: where this round finds its rings */
  int64_t round;             /* or NO_ROUND */
} PlacedCall;

typedef enum Access {
  READ,  /* with its mark, to t if there is one */
  WRITE, /* from t */
  SPOIL, /* as written, with nonsense */
  OWN    /* its bytes get its mark, no more */
} Access;

/* Notes the first error: of op (NULL: of the return), about v (NO_VALUE: about none). */
void placed_error(PlacedCall *call, const Op *op, const char *what, ValueId v);
/* n bytes that are not written yet. */
Memory placed_memory(PlacedMachine *x, const char *name, int64_t n);
bool placed_inside(PlacedAddress address, int64_t bytes);
/* Nonsense with this mark; nothing outside of the memory. */
void placed_spoil(PlacedAddress address, int64_t bytes, Mark mark);
/* Have all these bytes this mark? */
bool placed_marked(PlacedAddress address, int64_t bytes, Mark mark);
/* n elements of type e, one after the other. */
void placed_write(PlacedAddress to, Elem e, const double *x, int64_t n);
void placed_read(PlacedAddress from, Elem e, double *x, int64_t n);
PlacedAddress placed_offset(PlacedAddress address, int64_t bytes);
/* Where v begins. */
PlacedAddress placed_address(const PlacedCall *call, ValueId v);
bool placed_same(PlacedAddress a, PlacedAddress b);
/* Every element of v, in the order of its type, where its strides say. READ: were all its own? */
bool placed_visit(const PlacedCall *call, ValueId v, Tensor *tensor, Access access);
/* Gives v's bytes, which must all be its own, to `mark`. */
/* Bytes that still have the mark `left` get the mark of v and nonsense as contents. */
void placed_spoil_rest(PlacedCall *call, ValueId v, Mark left);
void placed_hand_over(PlacedCall *call, const Op *op, ValueId v, Mark mark);
/* That no value has. */
Mark placed_new_mark(PlacedCall *call);
/* As rt_copy: all bytes from v's first to its last element; those of its elements must be its
 * own. */
void placed_copy(PlacedCall *call, const Op *op, PlacedAddress to, ValueId v, Mark to_mark);

/* ---- streams (interp_streams.c) ---- */
/* Before the globals of a run. */
void placed_begin_streams(PlacedMachine *machine, const Fn *entry);
/* Accesses to the memory are looked at, if streams share it. */
void placed_share_global(PlacedMachine *machine, uint32_t slot);
void placed_share_frame(PlacedMachine *machine, Memory *memory, Tier tier);
/* Around all accesses of an operation; the round as in its event (events.h). */
void placed_begin_operation(PlacedCall *call, const Op *op, OpStream stream, int64_t round);
void placed_end_operation(PlacedCall *call, const Op *op);
bool placed_in_operation(const PlacedCall *call); /* also if nothing is looked at */
void placed_touch_shared(PlacedAddress address, int64_t bytes, bool written);
static inline void placed_touch(PlacedAddress address, int64_t bytes, bool written) {
  if (address.memory->streams) placed_touch_shared(address, bytes, written);
}

#endif
