/* Which kernels turn what they round to 8 bits: see row_turned.h. They read an operand of the
   size of their result whose neighbours are others. Must not: choose which values are codes. */
#include "row_turned.h"
#include "gpu_lanes.h"
#include "ir/support/num.h"

static bool reads_lines(const Module *m, const Fn *k, const TurnedRows *rows, const Nest *nest) {
  ValueId root[] = {rows->most->in[0], rows->quantize->in[0]};
  return nest->n && buffer_stride(k, rows->space.reference, rows->across) == 1 &&
         gpu_lanes(m, k, nest, COUNT_OF(root), root) % TURNED_LANES == 0;
}

static bool has_shape(TurnedRows *rows) {
  const Nest *over = &rows->space.over, *kept = &rows->space.kept;
  rows->whole = over->n == 2;
  if (over->n < 1 || over->n > 2 || over->dim[0].size != EIGHTS_BLOCK || !kept->n) return false;
  rows->along = over->dim[0].dim;
  rows->across = rows->whole ? over->dim[1].dim : kept->dim[kept->n - 1].dim;
  int64_t lines = rows->whole ? over->dim[1].size : nest_count(kept);
  rows->vectors = lines / TURNED_LANES;
  rows->ctas = rows->whole ? nest_count(kept) : ceil_div(rows->vectors, TURNED_WARP);
  return lines % TURNED_LANES == 0 && (!rows->whole || rows->vectors <= TURNED_WARP);
}

/* In the order of the second result, if there is one: that in which the operands are read. */
static ReducedSpace space_of(const Fn *k) {
  ReducedSpace space = row_space(k);
  if (k->results.n == 1) return space;
  space.reference = k->results.at[1];
  space.kept = nest_of(k, &space.r.kept, space.reference);
  space.over = nest_of(k, &space.r.over, space.reference);
  return space;
}

/* The second result: the same numbers, in blocks of neighbours, each of one warp. */
static bool has_other(const Fn *k, TurnedRows *rows) {
  ValueId result = k->results.at[1];
  const Op *most = rows->other_most = codes_other(k);
  if (!most || rows->whole || codes_quantize(k, result)->in[0] != rows->quantize->in[0])
    return false;
  return most->group[0].nfrom == 1 && most->group[0].from[0] == rows->across &&
         nest_inner(&rows->space.kept) == EIGHTS_BLOCK &&
         buffer_stride(k, result, rows->across) == 1;
}

bool row_turned(const Module *m, const Fn *k, TurnedRows *out) {
  Codes codes;
  if (!k->results.n || k->results.n > 2 || !kernel_codes(k, k->args.n, &codes)) return false;
  ValueId result = k->results.at[0];
  int others = (int)k->results.n - 1;
  *out = (TurnedRows){.quantize = codes_quantize(k, result), .most = codes_most(k, result)};
  if (!out->most) return false;
  out->space = space_of(k);
  if (out->space.r.n != 1 || out->space.r.scans || out->space.r.ncolumns != others) return false;
  if (out->space.reference == NO_VALUE || !has_shape(out)) return false;
  if (others && !has_other(k, out)) return false;
  out->stride = buffer_stride(k, result, out->across);
  return out->stride % codes.run == 0 && buffer_stride(k, result, out->along) == 1 &&
         reads_lines(m, k, out, out->whole ? &out->space.over : &out->space.kept);
}
