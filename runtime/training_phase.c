/* From which step on an executable runs another entry in place of `step`, by the phases of its
   entries (ir/phases.def): from a fixed step, or from one that the program determines and keeps as
   a state. */
#include "run.h"
#include "ir/support/variance_refresh.h"
#include <stdint.h>
#include <stdlib.h>

int64_t rt_freeze_window(const Run *r) {
  const rt_entry *look = rt_entry_of_phase(r->p, RT_PHASE_look);
  return look ? look->every : 0;
}

const rt_entry *rt_phase_entry(const Run *r) {
  for (int i = 0; i < r->p->nentries; i++)
    if (rt_phase_replaces(r->p->entries[i].phase)) return &r->p->entries[i];
  return NULL;
}

int64_t rt_phase_from(const Run *r) {
  const rt_entry *later = rt_phase_entry(r);
  if (later && later->from >= 0) return later->from;
  double at = later ? rt_get_output(r, "onebit.frozen") : 0;
  return at > 0 ? (int64_t)at : INT64_MAX;
}

int64_t rt_freeze(const Run *r) {
  return rt_entry_of_phase(r->p, RT_PHASE_frozen) ? rt_phase_from(r) : INT64_MAX;
}

/* Was the checkpoint that a run continues from written after the freeze? */
static bool has_begun(const Run *r) { return rt_get_output(r, "onebit.begun") > 0; }

bool rt_phase_fits(const Run *r, int64_t from, Fault *f) {
  if (r->at.step >= from || !has_begun(r)) return true;
  return rt_fault(f, 503, "the checkpoint of step %lld is frozen, and this run would freeze %s",
                  (long long)r->at.step, rt_freeze_window(r) ? "later" : "after more steps");
}

bool rt_phase_begin(Run *r, Fault *f) {
  const rt_entry *derive = rt_entry_of_phase(r->p, RT_PHASE_derive),
                 *freeze = rt_entry_of_phase(r->p, RT_PHASE_freeze);
  if (derive && !rt_device_run(&r->device, derive, f)) return false;
  return !freeze || has_begun(r) || rt_device_run(&r->device, freeze, f);
}

bool rt_phase_renews(const Run *r, int64_t from) {
  const char *often = rt_setting_of(r->p, "train.optim.renew");
  return often && renewal_at(r->at.step + 1 - from, strtoll(often, NULL, 10));
}

bool rt_phase_end(Run *r, bool begun, Fault *f) {
  if (!has_begun(r)) return true;
  if (!begun && !rt_phase_begin(r, f)) return false; /* a resumed run has no units yet */
  return rt_device_run(&r->device, rt_entry_of_phase(r->p, RT_PHASE_thaw), f);
}
