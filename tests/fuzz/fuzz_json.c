/* Fuzzing the JSON reader: any bytes, read in the ways that its users read them. */
#include "runtime/base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char text[16];
  double number;
  int64_t whole;
  Json j = rt_json(data, (int64_t)n);
  rt_json_skip(&j), rt_json_done(&j);
  j = rt_json(data, (int64_t)n);
  if (rt_json_array(&j))
    while (rt_json_element(&j)) rt_json_number(&j, &number);
  j = rt_json(data, (int64_t)n);
  if (rt_json_object(&j))
    while (rt_json_member(&j, text, sizeof text))
      *text == 's' ? rt_json_string(&j, text, sizeof text) : rt_json_int(&j, &whole);
  return 0;
}
