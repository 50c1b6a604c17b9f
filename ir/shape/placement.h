/* Placements: which block of a value each rank of a mesh holds (Placement in ir.h), and the rules
   by which an op may work on blocks.

   A dim that several mesh axes cut is cut by them in the order of the place rules, the first one
   coarsest; but an axis that cuts it in some values only (`else`) cuts the blocks of one that cuts
   it in all. So a value changes between the dims of the former axis within a block, and the latter
   sends nothing. Sizes of placed types are global. */
#ifndef SHARDC_PLACEMENT_H
#define SHARDC_PLACEMENT_H
#include "ir/ir.h"

int mesh_find(const Module *m, Str name); /* -1: no such axis */
int64_t mesh_ranks(const Module *m);
/* Axes in the order of cuts, those of balanced dims first, those of no rule last; returns their
   number. */
int mesh_order(const Module *m, int *axes);
const PlaceRule *rule_of_dim(const Module *m, Str dim); /* puts it on axes; NULL: none does */
bool rule_cuts_batch(const PlaceRule *r);
int64_t mesh_batch_ranks(const Module *m); /* over which Batch is cut by the place rules */
/* Coordinate of a rank along an axis: the first axis varies fastest. */
int64_t mesh_coordinate(const Module *m, int64_t rank, int axis);

static inline bool is_partial(Str state) { return state == PARTIAL_SUM || state == PARTIAL_MAX; }
static inline bool is_split(Str state) { return state && !is_partial(state); }

/* Balanced dims (`place D -> axis balanced`): the dim is cut into n * pieces equal pieces over the
   n ranks of the axis. Rank r has piece r of the first n, piece n - 1 - r of the second n, and so
   on in turn, in their order. Work that rises or falls along the dim is then the same on all ranks,
   as that of causal attention. The axis cuts coarsest. The positions of a rank are its only trace:
   no tensor of the runtime is cut along such a dim, and all text before pass `localize` has it in
   its order. */
typedef struct Dealt {
  int axis; /* -1: the dim is not balanced */
  int64_t pieces;
} Dealt;
Dealt dim_dealt(const Module *m, Str dim);

/* The axis over which attention passes keys along that dim from rank to rank (`place D -> axis
   ring`); -1: none. */
int dim_ring(const Module *m, Str dim);

bool placement_equal(const Placement *a, const Placement *b);
bool placement_is_whole(const Placement *p);                          /* on every axis */
int64_t placement_ways(const Module *m, const Placement *p, Str dim); /* number of blocks of dim */
bool placement_fits(const Module *m, const Type *t, const Placement *p); /* blocks are equal */

/* placement_rules.c: where the place rules want a value of that type, or a parameter or state.
   `miss`, if not NULL, gets the first axis whose dim it does not divide: the value is whole on
   it. */
typedef struct RuleMiss {
  const PlaceRule *rule; /* NULL: every axis divides what it cuts */
  Str dim;
  int axis;
} RuleMiss;
Placement placement_by_rules(const Module *m, const Type *t, RuleMiss *miss);
Placement placement_of_weight(const Module *m, const Type *t, RuleMiss *miss);

Type placement_local(const Module *m, const Type *t, const Placement *p); /* sizes of one rank */
/* A dim of a parameter or state without the padding that its split needs; `whole`: of all ranks. */
int64_t placement_logical(const Module *m, Str dim, int64_t whole);
int64_t placement_held(const Module *m, const Type *t, const Placement *p); /* its elements */
const char *placed_text(Module *m, const Type *t, const Placement *p);      /* f32[Batch/data:8] */

/* The rule of one index of an op for a mesh axis that cuts it: the op works on blocks if every
   operand that has the index is cut along it. Each op has a list of indexes. */
typedef struct ShardIndex {
  Str *in;      /* by operand: its dim, NULL where it does not have the index */
  Str *out;     /* by result: its dim, NULL where the index is gone */
  Str lost;     /* state of results without it: PARTIAL_SUM, PARTIAL_MAX */
  int ring;     /* only this axis cuts it, and pass `localize` writes a ring; -1: any may */
  int64_t size; /* blocks must divide this */
} ShardIndex;

/* The indexes of op o along which it can work on blocks, in the order of preference. Loops, loads
   and stores have none: their values are placed by what surrounds them. */
uint32_t shard_indexes(Module *m, const Fn *f, const Op *o, ShardIndex **list);
/* May operand i be a partial sum, the others being whole, with a partial result? */
bool shard_linear(const Module *m, const Fn *f, const Op *o, uint32_t i);
#endif
