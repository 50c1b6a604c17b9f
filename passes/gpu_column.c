/* Cutting family column for GPUs: vectors of columns side by side in a warp where columns are
   consecutive, else threads along the reduced space; and so many splits of it that there are CTAs
   enough, with no fewer than some elements for each thread. */
#include "gpu.h"
#include "ir/gpu_tile.h"

enum { THREADS = 256, ACROSS = 32, TURN = 4, WANTED = 512, LEAST = 8, SPLITS = 512, MANY = 4096 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t state_bytes(const Fn *k, const Reductions *r) {
  int64_t bytes = 0;
  for (int i = 0; i < r->n; i++) {
    const Op *o = &k->ops.at[r->op[i]];
    int own = elem_bytes(value_type(k, o->in[0])->elem);
    bytes += (own < 4 ? 4 : own) + (o->code == OP_argmax ? 4 : 0);
  }
  return bytes;
}

void gpu_tune_column(Module *m, Fn *k) {
  Reductions r = reductions_of(k);
  ValueId reference = nest_reference(k, &r.over), root[2 * MAX_RESULTS];
  Nest kept = nest_of(k, &r.kept, reference), over = nest_of(k, &r.over, reference);
  uint32_t n = 0;
  for (int i = 0; i < r.n; i++) root[n++] = k->ops.at[r.op[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) root[n++] = k->results.at[i];
  bool side = gpu_consecutive(k, &kept, reference);
  int lanes = gpu_lanes(m, k, side ? &kept : &over, n, root);
  int64_t columns = nest_count(&kept) / (side ? lanes : 1),
          length = nest_count(&over) / (side ? 1 : lanes);
  int64_t across = 1, threads = THREADS;
  while (side && across < ACROSS && across < columns) across *= 2;
  while (threads > 32 && threads / across > length) threads /= 2;
  int64_t joiners = threads / across, blocks = ceil_div(columns, across);
  int64_t splits = least(ceil_div(WANTED, blocks), ceil_div(length, joiners * LEAST));
  if (splits > SPLITS) splits = SPLITS;
  while (splits > 1 && (splits - 1) * ceil_div(length, splits) >= length)
    splits--; /* none is empty */
  int64_t all = nest_count(&kept), last = 1;
  while (all < MANY && last < 32 && 2 * last <= splits)
    last *= 2; /* every one has a split to join */
  int64_t tile[COLUMN_TILES] = {lanes, across, splits, TURN, last};
  int64_t shared = side ? (joiners > 1 ? state_bytes(k, &r) * lanes * threads : 0)
                        : (threads > 32 ? r.n * (int64_t)GROUP_EXCHANGE : 0);
  GpuPhases p = {splits > 1 ? 2 : 1,
                 {blocks * splits, ceil_div(all * last, THREADS)},
                 {threads, THREADS},
                 {shared, 0}};
  gpu_set(m, k, side ? "columns" : "along", COLUMN_TILES, tile, &p);
  if (splits > 1) attr_set_int(m, &k->attrs, ATTR_workspace, reduction_workspace(k, &r, splits));
}
