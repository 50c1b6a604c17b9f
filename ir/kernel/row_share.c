/* Which ops may share the rows of a kernel: one rule, which the verifier checks (fuse-c2 to
   fuse-c5) and the code generators trust.

   A kernel of family `row` or `column` takes every reduction over its whole row, whatever dims the
   op lists, and knows a reduction's result at the present row only. So all reductions list the same
   dims, those that are reduced; sums of columns list all others and are known when the last row is
   done; and a value that depends on a reduction is never read at another row. It may be read at
   another place of the same row. A result may have bytes of bits along the row instead of
   elements. Numbers rounded to 8 bits in blocks of two dims (ir/codes.h) are the exception: variant
   `turned` alone makes both. */
#include "ir/codes.h"
#include "nest.h"
#include "ir/loop.h"

static bool is_over(const Axes *a, const Op *o) {
  for (int i = 0; i < o->group[0].nfrom; i++)
    if (!axes_have(a, o->group[0].from[i])) return false;
  return o->group[0].nfrom == a->n;
}

static bool is_column(const Fn *k, const Reductions *reductions, const Op *o) {
  return o->code == OP_sum && is_over(&reductions->kept, o) && !value_is_read(k, o->out) &&
         value_type(k, o->in[0])->rank == reductions->kept.n + reductions->over.n;
}

/* Does o read operand i at other indexes of these dims? */
static bool moves_along(const Op *o, uint32_t i, const Axes *dims) {
  bool moves = (op_family(o->code) == FAMILY_STRUCT && o->code != OP_expand) ||
               (o->code == OP_gather && i == 0);
  for (int g = 0; moves && g < o->ngroups; g++)
    for (int d = 0; d < o->group[g].nfrom; d++)
      if (axes_have(dims, o->group[g].from[d])) return true;
  return false;
}

static bool fault(RowFault *row_fault, const char *label, const char *what, OpId op) {
  *row_fault = (RowFault){label, what, op};
  return true;
}

static bool dims_differ(const Fn *k, const Reductions *reductions, bool column,
                        RowFault *row_fault) {
  for (int i = 0; i < reductions->n; i++)
    if (!is_over(&reductions->over, &k->ops.at[reductions->op[i]]))
      return fault(row_fault, "fuse-c2", "is not over all reduced dims of", reductions->op[i]);
  for (int i = 0; i < reductions->ncolumns; i++) {
    const Op *o = &k->ops.at[reductions->column[i]];
    bool good = !column && (is_column(k, reductions, o) || o == codes_other(k));
    if (!good)
      return fault(row_fault, "fuse-c2", "is neither along the rows nor a sum of all rows of",
                   reductions->column[i]);
  }
  return false;
}

/* Bytes of bits along a row are made as it is walked: by rows of one dim, in order. */
static bool packs_apart(const Fn *k, const Reductions *reductions, bool column,
                        RowFault *row_fault) {
  for (uint32_t i = 0; i < k->results.n; i++)
    if (reduction_packed(k, reductions, k->results.at[i]) != NO_VALUE &&
        (column || reductions->over.n != 1))
      return fault(row_fault, "fuse-c5", "packs other than rows of one dim of",
                   k->values.at[k->results.at[i]].def);
  return false;
}

static bool is_read_elsewhere(const Fn *k, const Reductions *reductions, const int *level,
                              RowFault *row_fault) {
  for (OpId i = 0; i < k->ops.n; i++)
    for (uint32_t j = 0; j < k->ops.at[i].nin; j++)
      if (level[k->ops.at[i].in[j]] && moves_along(&k->ops.at[i], j, &reductions->kept))
        return fault(row_fault, "fuse-c3", "reads a reduction at another row of", i);
  return false;
}

static bool sums_twice(const Fn *k, const Reductions *reductions, const int *level,
                       RowFault *row_fault) {
  for (int i = 0; i < reductions->n; i++) {
    const Op *o = &k->ops.at[reductions->op[i]];
    if (level[o->in[0]] || op_family(o->code) == FAMILY_SCAN)
      return fault(row_fault, "fuse-c4", "needs a second walk along the columns of",
                   reductions->op[i]);
  }
  return false;
}

bool row_fault(const Fn *k, bool column, RowFault *fault) {
  Arena *a = arena_new();
  Reductions reductions = reductions_of(k);
  const int *level = reduction_levels(a, k);
  bool wrong = dims_differ(k, &reductions, column, fault) ||
               packs_apart(k, &reductions, column, fault) ||
               is_read_elsewhere(k, &reductions, level, fault) ||
               (column && sums_twice(k, &reductions, level, fault));
  arena_free(a);
  return wrong;
}
