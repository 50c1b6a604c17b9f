/* From which step on an executable runs `step.frozen` (passes/onebit.c): by number, or by what
   the program found out itself and keeps as a state. */
#include "run.h"
#include <stdint.h>
#include <stdlib.h>

int64_t rt_freeze_window(const Run *r) {
  const char *window = rt_setting_of(r->p, "made.freeze.window");
  return window ? strtoll(window, NULL, 10) : 0;
}

int64_t rt_freeze(const Run *r) {
  const char *freeze = rt_setting_of(r->p, "made.freeze");
  if (!freeze) return INT64_MAX;
  if (!rt_freeze_window(r)) return strtoll(freeze, NULL, 10);
  double at = rt_get_output(r, "onebit.frozen");
  return at > 0 ? (int64_t)at : INT64_MAX;
}
