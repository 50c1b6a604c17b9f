/* Shared by the files of pass `fuse`: groups of ops that become kernels, and where each value of a
   function is computed.

   The list of groups is also their order of execution: an op joins a group only if everything it
   needs comes from groups that are not later, so no cycle can arise. A value is INLINED (an
   expression that every user computes for itself), MATERIALISED (computed by one group; in a
   buffer if `stored`), or an INPUT (an argument, a loaded global, a view of those). */
#ifndef SHARDC_PASSES_FUSE_H
#define SHARDC_PASSES_FUSE_H
#include "passes/base/rebuild.h"

/* Rows of ir/kernel/families.def; GROUP_LOOP is a loop op or a collective, which only takes its
   place in
 * the order. */
typedef enum GroupKind {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) GROUP_##name,
#include "ir/kernel/families.def"
#undef FAMILY
  GROUP_LOOP
} GroupKind;

enum Neighbours { PRE = 1, BETWEEN = 2, POST = 4, JOIN = 8, SUMS = 16, BASE = 32 };

typedef struct FuseGroup {
  GroupKind kind;
  OpId anchor; /* the op that opened it */
  Type space,
      rows; /* dims of its full iteration space; `row`: those that are left after the reductions */
  ValueList leaves; /* values that it is known to read */
  ValueList results;
} FuseGroup;

typedef enum Where { INLINED, MATERIALISED, INPUT } Where;

typedef struct FuseValue {
  Where where;
  uint32_t group; /* MATERIALISED: index of its group */
  uint32_t after; /* memo of fuse_after, valid if stamp is the current one */
  uint32_t stamp;
  bool stored; /* has a buffer */
  /* MATERIALISED, and known only when its group is done: nothing in the group may read it */
  bool beside;
  bool wanted; /* MATERIALISED, not stored, a later group computes with it */
} FuseValue;

typedef struct Fuse {
  Module *m;
  const Fn *f;
  Arena *arena;
  VEC(FuseGroup) groups;
  FuseValue *value;    /* by ValueId of f */
  uint32_t *uses;      /* by ValueId: as an operand or a result of f */
  bool *in_memory;     /* by ValueId: views of it are views of a buffer */
  bool *factor;        /* by ValueId: computed, and in memory since a product reads it */
  OpId *sum_of;        /* by OpId: the sum that a contraction or attention makes with its results */
  OpId *with;          /* by OpId: the kernel that computes a sum: a contraction, a row reduction */
  int64_t narrow_from; /* an operand is cast before the product, not while it is read, if the other
                          operand has at least this many rows; 0: never (fact narrow_from) */
  bool joins;          /* kernels of this target may put their results together (fact join) */
  uint32_t stamp;
  uint32_t *seen, walk; /* values that the current walk has seen have seen[v] == walk */
} Fuse;

const char *group_name(GroupKind k);
unsigned group_neighbours(GroupKind k);
GroupKind group_anchored(const Op *o); /* the family whose groups o opens; GROUP_LOOP: none */
/* The range of operands that an op which opens such a group reads from memory: from the first up
   to the other, exclusive. */
void group_buffers(GroupKind k, uint32_t *from, uint32_t *to);

/* least_bytes.c: the bytes that no grouping can avoid, as attribute `compulsory_bytes` of a
   function whose callees have theirs */
void least_bytes(Module *m, Fn *f);

/* fuse.c: how often each value is an operand or a result of f, by ValueId */
uint32_t *fuse_uses(Arena *a, const Fn *f);
bool fuse_reads(const Op *o, const bool *values); /* one of them, by ValueId */

/* loop_sinking.c: moves element-wise work on stacked results into the rounds */
void fuse_rounds(Module *m);

/* fuse_producers.c: element-wise work of the host that a loop takes row by row is done by its
   rounds */
void fuse_feed(Module *m);

/* fuse_squares.c: sums of squares of products begin where these are made */
void fuse_squares(Module *m);

/* fuse_blocks.c: f, or f with its largest value computed in blocks by a loop over *body */
Fn *fuse_blocks(Module *m, Fn *f, Fn **body);

/* fuse_early.c: the function with copies, and rotations of them, as early as they can be. */
const Fn *fuse_early(Module *m, const Fn *f);

/* fuse_narrow.c: the function with results of products that views show in their own type */
const Fn *fuse_narrow(Module *m, const Fn *f);

/* fuse_sink.c: the function with contractions moved to their first use where that needs less memory
 */
Fn *fuse_sink(Module *m, const Fn *f);

/* fuse_concat.c: the function with concats whose operands are made at their places marked as such
   */
Fn *fuse_lay(Module *m, const Fn *f);
/* By value of the new function: views of it are to be views of a buffer. */
bool *fuse_in_memory(Arena *a, const Fn *f);

/* fuse_sums.c: which sums are computed by the kernel of another op: sets sum_of, with */
void fuse_sums(Fuse *u);

/* fuse_room.c: groups that take ops which merely read the same values stay well below the limit of
   results; whether v, of little work, may join a group of which it reads nothing */
bool fuse_has_room(const Fuse *u, uint32_t group);
bool fuse_joins_small(const Fuse *u, uint32_t group, ValueId v);

/* fuse_group.c: which group an op joins */
bool fuse_same_order(const Type *a, const Type *b); /* of the same dims */
bool fuse_moves(OpCode c); /* reads its operands at other indexes than its own */
/* In a row group, gather[V] w, i over the row itself is the sum of w where the position is i: a row
   is then read in step only, so that w may be computed by the group and its gradient may take over
   its buffer. V is all of the row: a kernel takes every sum over its whole row. */
bool fuse_picks(const Fuse *u, uint32_t group, const Op *o);
/* A row group packs booleans into bytes while it walks along the row. */
bool fuse_packs(const Fuse *u, uint32_t group, const Op *o);
GroupKind fuse_reduce_kind(const Fuse *u, const Op *o);
bool fuse_expensive(OpCode c); /* too expensive to be computed by every user */
uint32_t
fuse_after(Fuse *u,
           ValueId v); /* number of groups of the list that must have run before v is known */
void fuse_visit(Fuse *u, OpId id);
void fuse_store(Fuse *u, ValueId v); /* v needs a buffer */

/* fuse_cut.c: which materialised values get buffers, so that the fewest bytes are written and read
   */
void fuse_cut(Fuse *u);

/* fuse_emit.c: the function with kernels in place of ops; kernel functions go to the end of
 * `kernels` */
Fn *fuse_emit(Fuse *u, FnVec *kernels);
#endif
