/* Fuzzing metrics.jsonl, as resuming and the report read it: whole files, not single lines. */
#include "runtime/metrics.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  Metrics *m = rt_alloc(sizeof *m);
  size_t length;
  char *text = rt_alloc(n + 1);
  int64_t kept = rt_metrics_read(m, (Bytes){data, (int64_t)n}, INT64_MAX, text).bytes;
  if (kept < 0 || kept > (int64_t)n || (kept && text[kept - 1] != '\n')) abort();
  free(text);
  free(rt_loss_svg(m, "title <&\"", &length));
  free(m);
  return 0;
}
