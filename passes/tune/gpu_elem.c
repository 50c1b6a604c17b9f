/* Cutting family elem for GPUs: as many points per thread as fill 16-byte accesses, one vector per
   thread, so that enough CTAs keep the memory busy. */
#include "gpu.h"
#include "ir/kernel/gpu_tile.h"

enum { THREADS = 256 };

void gpu_tune_elem(Module *m, Fn *k) {
  Nest n = elem_space(k, NULL);
  int lanes = gpu_lanes(m, k, &n, k->results.n, k->results.at);
  int64_t vectors = nest_count(&n) / lanes, tile[POINT_TILES] = {lanes, 1}, threads = THREADS;
  while (threads > 32 && threads / 2 >= vectors) threads /= 2;
  gpu_set(m, k, lanes > 1 ? "vector" : "scalar", POINT_TILES, tile, 1, &threads);
}
