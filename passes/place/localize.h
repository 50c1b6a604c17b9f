/* localize, internal declarations: a function whose types become those of one rank.

   localize.c   the walk; positions, collectives, loops
   ring.c       attention whose keys travel from rank to rank */
#ifndef SHARDC_LOCALIZE_H
#define SHARDC_LOCALIZE_H
#include "ir/shape/placement.h"
#include "place.h"

typedef struct Done { /* bodies, written once */
  const Fn *from;
  bool deals;
  Fn *to;
} Done;

typedef struct Localize {
  Module *m;
  VEC(Done) done;
  Global *scalar[MAX_MESH];
} Localize;

typedef struct Local { /* one function */
  Localize *l;
  Module *m;
  Rebuild r;
  ValueId coordinate[MAX_MESH];
  bool deals; /* pieces of balanced dims */
  Loc loc;
} Local;

static inline const Placement *placed(const Local *local, ValueId v) {
  return &local->r.from->values.at[v].placed;
}

static inline Type local_type(const Local *local, ValueId v) {
  return placement_local(local->m, value_type(local->r.from, v), placed(local, v));
}

static inline ValueId bin(Local *local, OpCode c, ValueId a, ValueId b) {
  return ir_binary(local->m, local->r.to, c, a, b, local->loc);
}

static inline ValueId num(Local *local, Elem e, int64_t n) {
  return ir_const(local->m, local->r.to, e, (double)n, local->loc);
}

/* Positions of a rank's `size` elements along a dim with these cuts: i32[dim]. */
ValueId local_positions(Local *local, const Placement *placement, Str dim, int64_t size);

/* ---- ring.c ---- */
/* The axis over which the attention passes keys on, whose operand 1 is so placed; -1: none. */
int ring_axis(const Module *m, const Op *o, const Placement *key);
void local_ring(Local *local, const Op *o, int axis);
#endif
