/* Fuzzing the index of sharded weights: names of shards stay plain file names. */
#include "runtime/store/weights.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  WeightFiles w = {0};
  Fault f;
  if (rt_index_read((Bytes){data, (int64_t)n}, "folder", &w, &f))
    for (int i = 0; i < w.n; i++)
      if (strncmp(w.path[i], "folder/", 7) || strchr(w.path[i] + 7, '/')) abort();
  rt_weights_close(&w);
  return 0;
}
