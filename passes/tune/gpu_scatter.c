/* Cutting family scatter for GPUs: a warp per row and block of columns; a thread per column where
   the index depends on columns. */
#include "gpu.h"
#include "ir/kernel/gpu_tile.h"
#include "ir/kernel/scatter_shape.h"

enum { THREADS = 256, VECTORS = 8 };

void gpu_tune_scatter(Module *m, Fn *k) {
  Scatter s = scatter_of(k, 1);
  bool search = gpu_scatter_searches(k);
  ValueId root[] = {s.x, s.out};
  int lanes = search ? gpu_lanes(m, k, &s.kept, 2, root) : 1;
  int fill = gpu_lanes(m, k, &s.result, 1, &s.out);
  int64_t columns = nest_count(&s.kept) / lanes, vectors = 1;
  while (search && vectors < VECTORS && vectors * 32 < columns && lanes * vectors < 16)
    vectors *= 2;
  int64_t tile[SCATTER_TILES] = {lanes, vectors, fill}, threads[] = {THREADS, THREADS};
  gpu_set(m, k, search ? "search" : "owner", SCATTER_TILES, tile, 2, threads);
}
