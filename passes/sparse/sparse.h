/* Parts of pass `sparse`. */
#ifndef SHARDC_PASSES_SPARSE_H
#define SHARDC_PASSES_SPARSE_H
#include "ir/mask/lists.h"
#include "passes/base/rebuild.h"

typedef struct SparseSaid {
  Span word;
  int64_t own;
} SparseSaid;
typedef VEC(SparseSaid) SparseWarned;

/* W0705 where a rank's queries begin inside of a block (sparse_warn.c). */
void sparse_warn(Module *m, const Fn *f, ValueId mask, Str query, SparseWarned *warned);
/* The values 0, step, .. that a whole number without dims takes, each on some rank: how many, if
   all that it follows from are coordinates of ranks (sparse_ranks.c). */
bool sparse_number(const Module *m, const Fn *f, ValueId v, int64_t *values, int64_t *step);
/* By head of the shape: the first head whose mask is provably the same (sparse_alike.c). */
typedef struct SparseHeads {
  Str query, key;
  const ListsShape *shape;
  const ListsHeads *of;
} SparseHeads;
const int64_t *sparse_alike(Arena *arena, const Fn *f, ValueId mask,
                            const SparseHeads *sparse_heads);
#endif
