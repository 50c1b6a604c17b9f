/* Which kernels turn what they round to 8 bits: see row_turned.h. They have one result, and read
   an operand of its size whose neighbours are others. Must not: choose which values are codes. */
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

bool row_turned(const Module *m, const Fn *k, TurnedRows *out) {
  Codes codes;
  if (k->results.n != 1 || !kernel_codes(k, k->args.n, &codes)) return false;
  ValueId result = k->results.at[0];
  *out = (TurnedRows){.quantize = codes_quantize(k, result), .most = codes_most(k, result)};
  if (!out->most) return false;
  out->space = row_space(k);
  if (out->space.r.n != 1 || out->space.r.scans || out->space.r.ncolumns) return false;
  if (out->space.reference == NO_VALUE || !has_shape(out)) return false;
  out->stride = buffer_stride(k, result, out->across);
  return out->stride % codes.run == 0 && buffer_stride(k, result, out->along) == 1 &&
         reads_lines(m, k, out, out->whole ? &out->space.over : &out->space.kept);
}
