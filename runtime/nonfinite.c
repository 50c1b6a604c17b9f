/* Handles a step that is not finite (setting train.on_nan).

   A guarded program (pass optimizer) applies a step only if its loss and the norm of its gradients
   are finite, so after one that is not, parameters and states are unchanged. Its outputs
   norm2.of.NAME, one number per parameter or per layer of one, tell where it began. This file
   decides: end with R0601 and a checkpoint of the clean state, or skip the step. In f16 a step that
   is skipped because the scale was too large is no fault: the program has halved the scale
   (passes/math/loss_scale.c). Must not: hide a fault. */
#include "run.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char prefix[] = "norm2.of.";

static bool is_norm(const rt_tensor *tensor) {
  return tensor->kind == RT_OUTPUT && !strncmp(tensor->name, prefix, sizeof prefix - 1);
}

static const char *policy(const rt_program *p) { return rt_setting_of(p, "train.on_nan"); }

static bool scales(const rt_program *p) { return rt_tensor_find(p, "loss.scale") != NULL; }

bool rt_guarded(const rt_program *p) {
  bool norms = false;
  for (int i = 0; i < p->ntensors; i++) norms |= is_norm(&p->tensors[i]);
  return norms && (scales(p) || strcmp(policy(p), "off"));
}

bool rt_overflowed(const Run *r) { return rt_get_output(r, "loss.overflow") > 0; }

int64_t rt_may_skip(const rt_program *p) {
  if (!rt_guarded(p) || strcmp(policy(p), "skip")) return 0;
  const char *most = rt_setting_of(p, "train.on_nan.max");
  return strtoll(most, NULL, 10);
}

bool rt_step_is_finite(const rt_program *p, const StepRecord *r) {
  return isfinite(r->loss) && (!rt_guarded(p) || isfinite(r->norm));
}

/* ---- naming ---- */

static void add(char *text, size_t n, const char *piece) {
  size_t k = strlen(text);
  if (k > 2 && !strcmp(text + k - 2, "..")) return;
  if (k + strlen(piece) + 6 < n) snprintf(text + k, n - k, "%s%s", k ? ", " : "", piece);
  else snprintf(text + k, n - k, "%s", k ? ", .." : "..");
}

static bool bad_at(const rt_tensor *tensor, const void *data, int64_t i) {
  return !isfinite(rt_elem_get(tensor->elem, data, i));
}

/* The layers of one kind as ranges: " 0..3 7" */
static void text_layers(char *out, size_t n, const rt_tensor *tensor, const void *data, bool bad) {
  int64_t all = rt_tensor_count(tensor);
  size_t k = 0;
  out[0] = 0;
  for (int64_t i = 0, end; i < all; i = end) {
    for (end = i + 1; end < all && bad_at(tensor, data, end) == bad_at(tensor, data, i);) end++;
    if (bad_at(tensor, data, i) != bad || k + 48 > n) continue;
    k += (size_t)snprintf(out + k, n - k, end > i + 1 ? " %lld..%lld" : " %lld",
                          (long long)(tensor->first + i), (long long)(tensor->first + end - 1));
  }
}

/* One name, with the layers concerned where not all of them are. */
static void name_one(char *text, size_t n, const rt_tensor *tensor, const void *data, bool bad) {
  char layers[160], piece[RT_NAME + 180];
  int64_t all = rt_tensor_count(tensor), count = 0;
  for (int64_t i = 0; i < all; i++) count += bad_at(tensor, data, i) == bad;
  if (!count) return;
  text_layers(layers, sizeof layers, tensor, data, bad);
  bool whole = count == all;
  snprintf(piece, sizeof piece, "%s%s%s%s", tensor->name + sizeof prefix - 1,
           whole ? "" : " (layers", whole ? "" : layers, whole ? "" : ")");
  add(text, n, piece);
}

static void name_gradients(const Run *r, char *bad, char *clean, size_t n) {
  *bad = *clean = 0;
  for (int i = 0; i < r->p->ntensors; i++) {
    const rt_tensor *tensor = &r->p->tensors[i];
    if (!is_norm(tensor)) continue;
    name_one(bad, n, tensor, rt_tensor_read(&r->device, tensor), true);
    name_one(clean, n, tensor, rt_tensor_read(&r->device, tensor), false);
  }
}

/* Looks for the cause in data, parameters and states, from which a step computes. */
static bool find_cause(const Run *r, char *cause, size_t n) {
  enum { LIST = 240 };
  char names[LIST], clean[LIST];
  const char *from = r->o.at[OPT_init].given ? "perhaps in the file of --init, " : "";
  *cause = 0;
  if (rt_check_finite(&r->device, 1 << RT_INPUT, names, LIST, clean, LIST))
    return snprintf(cause, n, "the data holds numbers that are not finite: inputs %s", names) > 0;
  if (rt_check_finite(&r->device, 1 << RT_PARAM | 1 << RT_STATE, names, LIST, clean, LIST))
    return snprintf(cause, n, "not finite before the step: %s%s", from, names) > 0;
  if (!r->at.step)
    snprintf(cause, n,
             "no step was applied yet, so the learning rate is not the cause: a division "
             "by 0, a log of 0, a large constant?");
  return false;
}

/* Frozen steps measure all gradients together: what the outputs hold is of the warm-up. */
static bool tells_gradients(const Run *r, const StepRecord *record) {
  return record->step <= rt_freeze(r);
}

/* An infinite norm has two causes: f32 does not hold the square of a number above 1.8e19. */
static const char *headline(const StepRecord *record) {
  if (!isfinite(record->loss)) return "the loss is not finite";
  if (isnan(record->norm)) return "a gradient is not finite";
  return "a gradient is not finite, or squares of gradients add up to more than 3.4e38 (f32)";
}

bool rt_report_nonfinite(const Run *r, const StepRecord *record, Fault *f) {
  enum { LIST = 240 };
  char bad[LIST], clean[LIST], cause[2 * LIST];
  name_gradients(r, bad, clean, LIST);
  if (!tells_gradients(r, record)) *clean = 0, snprintf(bad, LIST, "not told apart any more");
  bool before = find_cause(r, cause, sizeof cause);
  rt_fault(f, 601, "step %lld: %s; nothing of this step was applied\n  %s: %s\n  clean: %s%s%s",
           (long long)record->step, headline(record),
           isinf(record->norm) ? "sums of squares not finite" : "gradients not finite",
           *bad ? bad : "none", clean, *clean && !before ? "; " : "",
           before ? "" : "data, parameters and states");
  return *cause ? rt_help(f, "%s", cause) : false;
}

void rt_tell_uncounted(const Run *r, Meter *meter, const StepRecord *record, int64_t *told) {
  if (record->counted != 0 || (*told)++ || !rt_is_first(r)) return;
  rt_meter_break(meter);
  rt_note("no label of step %lld counts: its loss and gradients are 0 (`counted` in "
          "metrics.jsonl tells each such step)",
          (long long)record->step);
}
