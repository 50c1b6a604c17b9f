/* libFuzzer target: any text as a module; what parses is launched under a small budget with all
 * checks. Reports are expected, undefined behaviour and leaks are not. See fuzz.sh. */
#include "ptx.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const PtxOptions options = {
      .check = true, .late = true, .seed = 3, .budget = 3000, .memory = 1 << 20};
  char *text = malloc(size + 1), error[600];
  memcpy(text, data, size);
  text[size] = 0;
  PtxDevice *d = ptx_device_new(&options);
  PtxModule *m = d ? ptx_parse(d, text, error, sizeof error) : NULL;
  uint64_t params[64] = {0};
  for (int i = 0; m && i < 4; i++) params[i] = ptx_alloc(d, 8192);
  if (m) ptx_set32(d, params[0], 3, 2048);
  for (int i = 0; m && ptx_entry_name(m, i) && i < 4; i++) {
    PtxLaunch l = {ptx_entry_name(m, i), {2, 1, 1}, {40, 1, 1}, 512, params, sizeof params};
    ptx_launch(m, &l, error, sizeof error);
  }
  ptx_module_free(m);
  ptx_device_free(d);
  free(text);
  return 0;
}
