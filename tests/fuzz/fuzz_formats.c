/* Fuzzing the data formats: the first byte chooses the format, every number of what is accepted is
 * read. */
#include "runtime/data/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static const char *const formats[] = {NULL,  "npy", "llmc",  "idx",     "u16",
                                        "u32", "f32", "bytes", "megatron"};
  static const char *const names[] = {"a", "a.bin", "a.f32", "a.u32"};
  Array a;
  Fault f;
  double sum = 0;
  if (n < 1) return 0;
  const char *format = formats[data[0] % 9], *name = names[data[0] / 9 % 4];
  uint8_t *copy = rt_alloc(n - 1); /* so that reading one byte too many is seen */
  __builtin_memcpy(copy, data + 1, n - 1);
  if (rt_array_open((Bytes){copy, (int64_t)n - 1}, name, format, &a, &f))
    for (int64_t i = 0; i < a.count; i++) sum += rt_array_real(&a, i) + (double)rt_array_int(&a, i);
  __builtin_free(copy);
  return sum == 0.125 && n == 1;
}
