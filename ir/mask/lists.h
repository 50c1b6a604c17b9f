/* Lists of blocks: the blocks of scores on which attention works, as constants of the module.

   A module's line `lists` gives for every class of heads the blocks that are full, partial or
   absent by positions alone; attribute `lists` of an attention op names the line. If data decides
   as well, its part of the mask (mask_rest) is evaluated in full blocks. Pass `sparse` makes the
   lists, and kernels walk them: rows (forward, dq) and columns (dk, dv) are the runs of lists_runs.
   The name is a hash of the contents, so that the text of a kernel says which lists it walks.

   Must not: be trusted before lists_fault has checked them; be the meaning of the op, which is its
   mask. */
#ifndef SHARDC_IR_LISTS_H
#define SHARDC_IR_LISTS_H
#include "blocks.h"
#include "mask_range.h"

/* The most that pass `sparse` lists: blocks of a head, of all heads that differ; heads, on all
   ranks. */
enum { LISTS_BLOCKS = 1 << 24, LISTS_ALL = 1 << 28, LISTS_HEADS = 256, LISTS_RANKS = 1 << 14 };

typedef struct ListsShape {
  int64_t queries, keys, high, wide, rows, columns; /* positions; of a block; blocks */
  int heads, scalars;      /* by what heads differ; the last ones are numbers of a rank, not dims */
  int64_t head[MASK_DIMS]; /* sizes, the last one varies fastest */
  int64_t step[MASK_SCALARS];    /* a number's values are 0, step, .. */
  int64_t count, ranks, classes; /* of heads on all ranks; of values of all numbers; of lists */
} ListsShape;

const BlockLists *lists_named(const Module *m, Str name); /* NULL: none */
const BlockLists *lists_of(const Module *m, const Op *attention);
ListsShape lists_shape(const BlockLists *lists);
double lists_share(const BlockLists *lists); /* of the blocks, those that are listed */
double lists_share_of(const BlockLists *lists,
                      int64_t rank); /* of the heads of rank 0 .. s.ranks - 1 */
double *lists_counts(Arena *arena, const BlockLists *lists); /* by class: listed blocks */
int64_t lists_class(const BlockLists *lists, int64_t head);
/* The blocks of the heads of a class, read from its run lengths. */
BlockMap lists_map(Arena *arena, const BlockLists *lists, int64_t class);

/* Adds lists to the module, or finds equal ones: maps[classes] of one shape, class[count] by
   head. */
const BlockLists *lists_add(Module *m, const ListsShape *shape, const BlockMap *maps,
                            const int64_t *class);
/* By what a mask differs, as lists count heads: dims, then numbers of a rank. Whether these are as
   many, and of such sizes, as the shape has. */
typedef struct ListsHeads {
  int dims, scalars;
  Axis dim[MASK_DIMS];
  ValueId scalar[MASK_SCALARS];
} ListsHeads;
ListsHeads lists_heads(const Fn *f, ValueId mask, Str query, Str key);
bool lists_heads_meet(const ListsShape *shape, const ListsHeads *of);
/* The position of a head: one of s->heads. */
void lists_head_at(const ListsShape *shape, const ListsHeads *of, int64_t head,
                   BlockHead at[MASK_DIMS]);
const char *lists_fault(Arena *arena,
                        const BlockLists *lists); /* what its attributes lack, or NULL */
Str lists_hash(Module *m, const AttrList *attrs); /* the name that they must have */
/* Positions of a block in which the mask counts: the most by which it divides positions of queries
   or keys; 0: it does not. The op: the division that says so, NULL: none. */
const Op *mask_block_op(const Fn *f, ValueId mask, Str query, Str key, int64_t *size);
int64_t mask_block_size(const Fn *f, ValueId mask, Str query, Str key);
#endif
