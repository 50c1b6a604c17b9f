/* From which step on an executable runs another entry in place of `step`: `step.frozen` of 1-bit
   Adam (passes/onebit.c), by number, or by what the program found out itself and keeps as a state;
   `step.late` behind the warm-up of the delayed update (passes/late.c). */
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

const rt_entry *rt_later_entry(const Run *r) {
  const rt_entry *frozen = rt_entry_find(r->p, "step.frozen");
  return frozen ? frozen : rt_entry_find(r->p, "step.late");
}

int64_t rt_later_from(const Run *r) {
  const char *after = rt_setting_of(r->p, "train.delay.after");
  bool late = rt_entry_find(r->p, "step.late") != NULL;
  return late && after ? strtoll(after, NULL, 10) : rt_freeze(r);
}
