/* Tuning of family row: along which dim lanes run, how many rows are a unit, how many vectors of a
   row are summed at once.

   Lanes run along the row where its elements are consecutive; over neighbouring rows where those
   are; else there are none. Short expressions are unrolled, so that additions do not wait for each
   other. */
#include "ir/nest.h"
#include "tune.h"

enum { ROWS = 64, SIMPLE = 12 };

static int64_t scratch_of(const Fn *k, const Reductions *r) {
  int64_t bytes = 0;
  for (int i = 0; i < r->n; i++)
    if (op_family(k->ops.at[r->op[i]].code) == FAMILY_SCAN)
      bytes += (r->over.axis[0].size * 8 + 63) / 64 * 64;
  return bytes;
}

void tune_row(Module *m, Fn *k) {
  Reductions r = reductions_of(k);
  ValueId reference = nest_reference(k, &r.over);
  Nest kept = nest_of(k, &r.kept, reference), over = nest_of(k, &r.over, reference);
  int lanes = (int)module_number(m, "target.vector_bytes", 32) / 4;
  bool along = nest_vector(k, &over, reference, lanes);
  bool across = !along && !r.scans && nest_vector(k, &kept, reference, lanes);
  int64_t tile[2] = {across ? ROWS : 1, 1}, rows = nest_inner(&kept), length = nest_inner(&over);
  if (k->ops.n <= SIMPLE && length >= 8 * lanes && along) tile[1] = 4;
  int64_t units = nest_count(&kept) / rows * ((rows + tile[0] - 1) / tile[0]);
  int64_t count = nest_count(&kept) * nest_count(&over);
  int64_t chunks = chunks_for(m, count, element_cost(k) * (along || across ? 1 : 8), units);
  attr_set_str(m, &k->attrs, ATTR_variant, along ? "row" : across ? "rows" : "scalar");
  attr_set_ints(m, &k->attrs, ATTR_tile, 2, tile);
  attr_set_ints(m, &k->attrs, ATTR_chunks, 1, &chunks);
  if (r.scans) attr_set_int(m, &k->attrs, ATTR_scratch, scratch_of(k, &r));
}
