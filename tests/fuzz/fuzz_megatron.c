/* Fuzzing Megatron's index: the first two bytes are the length of the tokens; of what is accepted
   every number, document and end is asked for. */
#include "runtime/data/formats.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Array a;
  Fault f;
  double sum = 0;
  if (n < 2) return 0;
  int64_t bytes = data[0] | (data[1] & 3) << 8;
  uint8_t *index = malloc(n - 1), *tokens = calloc(1, (size_t)bytes + 1);
  memcpy(index, data + 2, n - 2);
  if (rt_megatron_open((Bytes){index, (int64_t)n - 2}, (Bytes){tokens, bytes}, &a, &f)) {
    for (int64_t i = 0; i < a.count; i++) sum += rt_array_real(&a, i) + rt_array_ends(&a, i);
    for (int64_t d = 0; d < a.documents; d++) sum += (double)rt_array_document(&a, d);
  }
  free(index), free(tokens);
  return sum == 0.125;
}
