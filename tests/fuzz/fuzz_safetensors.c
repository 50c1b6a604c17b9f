/* Fuzzing the safetensors reader: tensors that it accepts must be inside the file; every byte of
 * every tensor is read. */
#include "runtime/store/safetensors.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  SafeFile s;
  Fault f;
  unsigned sum = 0;
  if (!rt_safe_read((Bytes){data, (int64_t)n}, &s, &f)) return 0;
  for (int i = 0; i < s.ntensors; i++) {
    if (s.tensor[i].data < data || s.tensor[i].data + s.tensor[i].bytes > data + n) abort();
    for (int64_t k = 0; k < s.tensor[i].bytes; k++) sum += s.tensor[i].data[k];
    if (rt_safe_find(&s, s.tensor[i].name) != &s.tensor[i]) abort();
  }
  rt_safe_free(&s);
  return sum == 1 && n == 0;
}
