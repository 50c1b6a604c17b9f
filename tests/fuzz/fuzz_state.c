/* Fuzzing state.json and metrics.jsonl. The sum at the end of state.json is set right, so that the
 * code after its check is reached. */
#include "runtime/store/checkpoint.h"
#include "runtime/metrics.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Fault f;
  StepRecord r;
  char *text = rt_alloc(n + 64);
  memcpy(text, data, n);
  rt_metrics_line((Bytes){data, (int64_t)n}, &r);
  rt_state_check((Bytes){data, (int64_t)n}, &f);
  int tail =
      snprintf(text + n, 64, ",\"check\":\"%016llx\"}\n", (unsigned long long)rt_hash_of(data, n));
  rt_state_check((Bytes){(uint8_t *)text, (int64_t)n + tail}, &f);
  free(text);
  return 0;
}
