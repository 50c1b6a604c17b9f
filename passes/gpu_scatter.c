/* Cutting family scatter for GPUs: a warp per row and block of columns; a thread per column where
   the index depends on columns. */
#include "gpu.h"
#include "ir/gpu_tile.h"
#include "ir/scatter.h"

enum { THREADS = 256, VECTORS = 8 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* The index must be the same for a whole warp. */
static bool index_stays(const Fn *k, const Scatter *s) {
  const Type *t = value_type(k, s->index);
  const Op *o = &k->ops.at[s->op];
  for (int a = 0; a < t->rank; a++) {
    bool from = false;
    for (int i = 0; i < o->group[0].nfrom; i++) from |= o->group[0].from[i] == t->axis[a].dim;
    if (!from) return false;
  }
  return true;
}

void gpu_tune_scatter(Module *m, Fn *k) {
  Scatter s = scatter_of(k, 1);
  bool search = index_stays(k, &s);
  ValueId root[] = {s.x, s.out};
  int lanes = search ? gpu_lanes(m, k, &s.kept, 2, root) : 1;
  int fill = gpu_lanes(m, k, &s.result, 1, &s.out);
  int64_t columns = nest_count(&s.kept) / lanes, rows = nest_count(&s.from);
  int64_t vectors = 1;
  while (search && vectors < VECTORS && vectors * 32 < columns && lanes * vectors < 16)
    vectors *= 2;
  int64_t blocks = ceil_div(columns, 32 * vectors), fills = nest_count(&s.result) / fill;
  int64_t ctas = search ? ceil_div(rows * blocks, THREADS / 32) : ceil_div(columns, THREADS);
  int64_t tile[SCATTER_TILES] = {lanes, vectors, fill};
  GpuPhases p = {2, {ceil_div(fills, THREADS), ctas}, {THREADS, THREADS}, {0, 0}};
  gpu_set(m, k, search ? "search" : "owner", SCATTER_TILES, tile, &p);
}
