/* The memory and the messages of a rank, read off a module after pass `memory`: for `shardc plan`.
   All ranks of a module are alike: offsets differ, sizes do not. */
#ifndef SHARDC_IR_BUDGET_H
#define SHARDC_IR_BUDGET_H
#include "ir/bytes.h"

/* Bytes of a rank, by purpose; together they are the arenas of its device, to the byte.
     weights     parameters
     optimizer   states
     gradients   values read by updates
     saved       values of the forward part that the backward part reads
     buffers     values that collectives send and receive, and that are none of these
     working     the rest: temporaries, inputs, outputs
     sampling    in addition: values of entries `logits` and `decode`, which training does not
                 allocate (arenas.def)
   Saved values and gradients share bytes where their lifetimes allow it. Shared bytes are counted
   as gradients once, so that the parts add up. */
typedef struct Budget {
  int64_t weights, gradients, optimizer, saved, working, buffers, total;
  int64_t sampling;
  int64_t host; /* in addition: bytes in the memory of the host */
  bool apart;   /* .. which is another one than the device's: that of a GPU */
} Budget;
/* All bytes in the memory of the device. */
static inline int64_t budget_all(const Budget *b) { return b->total + (b->apart ? 0 : b->host); }
Budget module_budget(const Module *m);
/* And what it has in the memory of the host; on a processor that is the same memory. */
typedef struct HostBudget {
  int64_t weights, gradients, optimizer, saved, working, snapshot, total;
} HostBudget;
HostBudget module_host(const Module *m);

/* The snapshot of `save async = on` (snapshot.c): ranges of arenas, contiguous in the snapshot.
   Bytes at the end of a global's last cache line are part of its range. */
typedef struct SnapshotRange {
  GlobalArena arena;
  int64_t from, bytes, at; /* at: in the snapshot */
} SnapshotRange;
typedef VEC(SnapshotRange) SnapshotRanges;
SnapshotRanges module_snapshot_ranges(const Module *m);
int64_t module_snapshot(const Module *m);      /* bytes of all of them; 0: saves are synchronous */
int64_t module_frame(const Module *m, Tier t); /* the largest of an entry */
int64_t module_counters(const Module *m);      /* loops count to less than this */
/* On a GPU: bytes of the runtime in device memory, in addition to globals and work: the counters, a
   line with the position of the device in the program, messages to a neighbour that wait to be sent
   (send_order.h), slots for copies to and from the host, and the inputs of the next step. Their
   place is after the inputs, outputs and scalars. */
int64_t module_device_words(const Module *m);
int64_t module_ahead(const Module *m); /* the last of these alone */
/* Bytes of a slot for copies to or from the host, part of the above, or 0; and the number of slots
   in each direction: enough for the moves of one round of a loop, so that the next one need not
   wait, and for the first downloads of a delayed step. */
int64_t module_move_slot(const Module *m);
int64_t module_move_slots(const Module *m, bool up);
enum { MOVE_SLOTS = 16 };              /* at most */
int64_t module_slots(const Module *m); /* bytes of all of them, and of what is being sent */

/* Pinned host memory that a GPU accesses, by purpose (host_pinned.c); none without a GPU. */
typedef struct Pinned {
  int64_t view, window, messages, ahead;
} Pinned;
Pinned module_pinned(const Module *m);
static inline int64_t pinned_all(const Pinned *p) {
  return p->view + p->window + p->messages + p->ahead;
}
int64_t module_view_at(const Module *m, const Global *global);  /* -1: it has none */
int64_t module_ahead_at(const Module *m, const Global *global); /* -1: it is not sent ahead */
bool global_is_tensor(const Module *m, const Global *global);   /* does the runtime know it? */

typedef enum Use { USE_WORKING, USE_GRADIENT, USE_SAVED, USE_BUFFER, USE_COUNT } Use;

typedef struct Moment { /* one op of a step, kernels and collectives; ops of a body are listed where
                           it runs */
  const Fn *f;
  OpId op;
  double times;             /* how often a step comes by */
  int64_t alive[USE_COUNT]; /* bytes of the frame by what for, those of callers included */
} Moment;

typedef struct Alive { /* a buffer at the peak */
  const Fn *f;
  ValueId value; /* of f; NO_VALUE: the workspace of the op */
  Use use;
  int64_t bytes;
} Alive;

typedef struct Timeline {
  VEC(Moment) moment;
  uint32_t peak;    /* the moment of the largest sum */
  VEC(Alive) alive; /* then, the largest first */
} Timeline;
Timeline module_timeline(const Module *m);

typedef struct Traffic { /* of one step and rank, over one axis, in paper counting */
  OpCode kind;
  int axis;                      /* of m->mesh */
  double calls, elements, bytes; /* calls: messages */
  int64_t largest;               /* bytes of a message, of its blocks together */
} Traffic;
typedef VEC(Traffic) TrafficList;
/* Bytes that a step moves to the host and from it, and in how many copies. */
typedef struct Moves {
  double down, up, calls;
} Moves;
Moves entry_moves(const Fn *entry);       /* entry NULL: nothing */
Moves module_moves(const Module *m);      /* of a step */
Moves op_moves(const Fn *f, const Op *o); /* once */

double message_traffic(const Fn *f, const Op *o); /* elements of one collective */
/* By axis, then kind; only what is sent at all. */
TrafficList entry_traffic(const Module *m, const Fn *entry); /* entry NULL: nothing */
TrafficList module_traffic(const Module *m);                 /* of a step */
#endif
