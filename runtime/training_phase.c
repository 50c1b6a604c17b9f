/* From which step on an executable runs another entry in place of `step`: `step.frozen` of 1-bit
   Adam (passes/math/onebit.c), from a fixed step, or from one that the program determines and keeps
   as a state; `step.late` after the warm-up of the delayed update
   (passes/offload/delayed_update.c). */
#include "run.h"
#include "ir/support/variance_refresh.h"
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

const rt_entry *rt_phase_entry(const Run *r) {
  const rt_entry *frozen = rt_entry_find(r->p, "step.frozen");
  return frozen ? frozen : rt_entry_find(r->p, "step.late");
}

/* Was the checkpoint that a run continues from written after the freeze? */
static bool has_begun(const Run *r) { return rt_get_output(r, "onebit.begun") > 0; }

bool rt_phase_fits(const Run *r, int64_t from, Fault *f) {
  if (r->at.step >= from || !has_begun(r)) return true;
  return rt_fault(f, 503, "the checkpoint of step %lld is frozen, and this run would freeze %s",
                  (long long)r->at.step, rt_freeze_window(r) ? "later" : "after more steps");
}

bool rt_phase_begin(Run *r, Fault *f) {
  const rt_entry *unit = rt_entry_find(r->p, "step.unit"),
                 *freeze = rt_entry_find(r->p, "step.freeze");
  if (unit && !rt_device_run(&r->device, unit, f)) return false;
  return !freeze || has_begun(r) || rt_device_run(&r->device, freeze, f);
}

bool rt_phase_renews(const Run *r, int64_t from) {
  const char *often = rt_setting_of(r->p, "train.optim.renew");
  return often && renewal_at(r->at.step + 1 - from, strtoll(often, NULL, 10));
}

bool rt_phase_end(Run *r, bool begun, Fault *f) {
  if (!has_begun(r)) return true;
  if (!begun && !rt_phase_begin(r, f)) return false; /* a resumed run has no units yet */
  return rt_device_run(&r->device, rt_entry_find(r->p, "step.thaw"), f);
}

int64_t rt_phase_from(const Run *r) {
  const char *after = rt_setting_of(r->p, "train.delay.after");
  bool late = rt_entry_find(r->p, "step.late") != NULL;
  return late && after ? strtoll(after, NULL, 10) : rt_freeze(r);
}
