/* Iteration spaces of kernel functions: which dims a family walks, in storage order, with
   neighbours collapsed into one loop where no buffer and no op can tell the difference. `select`
   asks it for sizes, the code generators for loops: so they agree. */
#ifndef SHARDC_NEST_H
#define SHARDC_NEST_H
#include "ir/ir.h"

typedef struct NestDim {
  Str dim; /* of a collapsed run: its innermost dim, the others stay at index 0 */
  int64_t size;
} NestDim;

typedef struct Nest { /* outermost first */
  int n;
  NestDim dim[2 * MAX_RANK];
  int nzero;
  Str zero[2 * MAX_RANK]; /* dims that stay at index 0: size 1, or outer ones of a collapsed run */
} Nest;

typedef struct Axes { /* a set of dims */
  int n;
  Axis axis[2 * MAX_RANK];
} Axes;

void axes_add(Axes *axes, const Type *t); /* those that are not in it yet */
bool axes_have(const Axes *axes, Str dim);
Axes axes_without(const Axes *a, const Axes *b);

/* Whether index i of `inner` may run on through `outer`, i = outer * run + inner: no buffer and no
   op of the kernel function can tell. */
bool nest_joins(const Fn *k, Str outer, Str inner, int64_t run);

/* Stride of `dim` in the buffer of an argument or result; 0 if the buffer does not have it. */
int64_t buffer_stride(const Fn *k, ValueId v, Str dim);
/* The argument or result with the most elements among those that have all of `dims` (NULL: no
   condition); arguments win ties. NO_VALUE if there is none. */
ValueId nest_reference(const Fn *k, const Axes *dims);

/* The dims in the storage order of `reference` (those that it lacks are outermost), collapsed. */
Nest nest_of(const Fn *k, const Axes *dims, ValueId reference);
int64_t nest_count(const Nest *nest);
int64_t nest_inner(const Nest *nest); /* size of the innermost dim, 1 if there is none */
int64_t nest_blocks(const Nest *nest, int64_t block); /* of that many indices of it, or fewer */
/* Whether vectors along the innermost dim pay: it is long enough and consecutive in the reference.
 */
bool nest_vector(const Fn *k, const Nest *nest, ValueId reference, int lanes);
/* The same where no buffer has that dim, which ops make of other dims (a concat of tensors, split
   again): whether neighbours along it are neighbours in every buffer. (nest_lanes.c) */
bool nest_moved_vector(const Module *m, const Fn *k, const Nest *nest, int lanes);

/* Reductions and scans of a kernel function: all over the same dims, but for sums of columns. Those
   add up, over the dims that the others keep, what the rows make, and nothing reads them. */
typedef struct Reductions {
  int n, ncolumns;
  OpId op[MAX_RESULTS], column[MAX_RESULTS];
  Axes over, kept; /* kept: all other dims of operands and results; bytes along a reduced dim are
                      none of either */
  bool scans;
} Reductions;

Reductions reductions_of(const Fn *k);
/* The loops of a kernel, for the rules that cut it, the plan of a cut and the emitters. They follow
   the storage order of one buffer, chosen by these functions alone (`reference`, NO_VALUE: none).
   Columns follow the buffer that has all dims or, if no operand has, the largest result. A GPU
   kernel of family row that is cut as a column kernel has the loops of a column kernel. */
typedef struct ReducedSpace {
  Reductions r;
  ValueId reference;
  Nest kept, over;
} ReducedSpace;
ReducedSpace row_space(const Fn *k);
ReducedSpace column_space(const Fn *k);
Nest elem_space(const Fn *k, ValueId *reference); /* reference: NULL: not asked for */
/* Per value: 0: needs no reduction; a reduction is one above its operand; other values as their
 * highest operand. */
int *reduction_levels(Arena *arena, const Fn *k);
/* Walks along a row: one per level that a reduction's operand has, and one for each higher level of
 * a result with reduced dims; the last one stores these results. */
int reduction_passes(const Fn *k, const Reductions *reductions, const int *level);
/* Bytes of workspace if the reduced dims are cut into `splits` ranges; of scratch per worker for
   scans. */
int64_t reduction_workspace(const Fn *k, const Reductions *reductions, int64_t splits);
int64_t scan_scratch(const Fn *k, const Reductions *reductions);
/* Bytes of one sum of columns in one chunk; of workspace for all of them in that many chunks */
int64_t column_bytes(const Reductions *reductions);
int64_t column_workspace(const Reductions *reductions, int64_t chunks);
bool nest_is_column_sum(const Fn *k, const Reductions *reductions, ValueId v);
bool reduction_along(const Fn *k, const Reductions *reductions,
                     ValueId v); /* v has a reduced dim */
/* Result v packs the bits of this value along a reduced dim, byte by byte as the row is walked;
   NO_VALUE: it is no such result. */
ValueId reduction_packed(const Fn *k, const Reductions *reductions, ValueId v);
bool reduction_packs(const Fn *k, const Reductions *reductions); /* any result does */
/* Why the ops of a kernel of family row or column cannot share its rows (row_share.c); false if
   they can. */
typedef struct RowFault {
  const char *label, *what; /* of docs/ir.md; what the op does, before the kernel's name */
  OpId op;
} RowFault;
bool row_fault(const Fn *k, bool column, RowFault *fault);
/* The cost of one element, in tenths of nanoseconds on one core, including reading and writing
 * memory. */
int64_t element_cost(const Fn *k);
/* Number of chunks for that much work: 1 if it is small, else several per worker. */
int64_t chunks_for(const Module *m, int64_t elements, int64_t cost, int64_t units);
#endif
