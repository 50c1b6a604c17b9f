/* metrics.jsonl: one object per step, appended with one write each. On resuming, lines after the
   resumed step are dropped, so the file reads as if the run had never been interrupted. Curves keep
   a bounded number of points: when full, neighbours are joined and each point represents twice as
   many steps. Must not: allocate in rt_metrics_step or rt_curve_add. */
#include "metrics.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void halve(Curve *c) {
  for (int i = 0; i < HISTORY / 2; i++) {
    c->step[i] = c->step[2 * i + 1];
    c->value[i] = (c->value[2 * i] + c->value[2 * i + 1]) / 2;
  }
  c->n = HISTORY / 2, c->stride *= 2;
}

void rt_curve_add(Curve *c, double step, double value) {
  if (!isfinite(value)) return;
  if (!c->stride) c->stride = 1;
  c->sum += value;
  if (++c->pending < c->stride) return;
  if (c->n == HISTORY) halve(c);
  c->step[c->n] = step, c->value[c->n++] = c->sum / c->pending;
  c->sum = c->pending = 0;
}

static void field(Json *json, const char *key, StepRecord *record) {
  const JsonField rows[] = {{"step", &record->step, NULL},
                            {"samples", &record->samples, NULL},
                            {"tokens", &record->tokens, NULL},
                            {"loss", NULL, &record->loss},
                            {"valid_loss", NULL, &record->valid_loss},
                            {"lr", NULL, &record->lr},
                            {"grad_norm", NULL, &record->norm},
                            {"scale", NULL, &record->scale},
                            {"counted", NULL, &record->counted},
                            {"ms", NULL, &record->milliseconds},
                            {"waited_ms", NULL, &record->waited},
                            {"slowest", NULL, &record->slowest},
                            {"slower_ms", NULL, &record->slower}};
  if (!rt_json_field(json, key, sizeof rows / sizeof *rows, rows)) rt_json_skip(json);
}

bool rt_metrics_line(Bytes line, StepRecord *record) {
  char key[64];
  *record = (StepRecord){.step = -1, .loss = NAN, .valid_loss = NAN, .lr = NAN, .norm = NAN};
  record->milliseconds = record->waited = record->scale = record->overflows = NAN;
  record->counted = record->slowest = record->slower = NAN;
  Json json = rt_json(line.at, line.n);
  if (rt_json_object(&json))
    while (rt_json_member(&json, key, sizeof key)) field(&json, key, record);
  return rt_json_done(&json) && record->step >= 0;
}

/* Steps after `before`, up to `last`, have no line. */
static void count_missing(MetricsKept *kept, int64_t before, int64_t last) {
  if (before < 0) before = 0;
  if (last <= before) return;
  if (!kept->missing) kept->first_missing = before + 1;
  kept->missing += last - before, kept->last_missing = last;
}

MetricsKept rt_metrics_read(Metrics *metrics, Bytes bytes, int64_t step, char *out) {
  MetricsKept kept = {0};
  int64_t before = -1;
  const uint8_t *end;
  for (int64_t at = 0, n;
       at < bytes.n && (end = memchr(bytes.at + at, '\n', (size_t)(bytes.n - at))); at += n) {
    StepRecord record;
    n = end - (bytes.at + at) + 1;
    if (!rt_metrics_line((Bytes){bytes.at + at, n - 1}, &record)) {
      kept.damaged++;
      continue;
    }
    if (record.step > step) continue;
    if (before >= 0 || kept.damaged) count_missing(&kept, before, record.step - 1);
    if (record.step > before) before = record.step;
    if (record.valid_loss < metrics->best) metrics->best = record.valid_loss;
    rt_curve_add(&metrics->train, (double)record.step, record.loss),
        rt_curve_add(&metrics->valid, (double)record.step, record.valid_loss);
    if (out) memcpy(out + kept.bytes, bytes.at + at, (size_t)n);
    kept.bytes += n;
  }
  if (before >= 0 || kept.damaged) count_missing(&kept, before, step);
  return kept;
}

static void tell_lost(const char *path, const MetricsKept *kept) {
  long long n = kept->missing, first = kept->first_missing, last = kept->last_missing;
  if (kept->damaged)
    rt_note("%s: %lld %s cannot be read and %s left out", path, (long long)kept->damaged,
            kept->damaged == 1 ? "line" : "lines", kept->damaged == 1 ? "is" : "are");
  if (n == 1) rt_note("%s: step %lld has no line", path, first);
  else if (n == last - first + 1 && n)
    rt_note("%s: steps %lld to %lld have no line", path, first, last);
  else if (n) rt_note("%s: %lld steps between %lld and %lld have no line", path, n, first, last);
}

static bool open_end(Metrics *metrics, Fault *f) {
  metrics->fd = open(metrics->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (metrics->fd >= 0) return true;
  rt_fault(f, 401, "cannot open: %s", strerror(errno));
  return rt_at(f, metrics->path, "", -1);
}

bool rt_metrics_open(Metrics *metrics, const char *run, int64_t step, bool own, Fault *f) {
  *metrics = (Metrics){.fd = -1, .csv = -1, .events = -1, .best = INFINITY};
  rt_join(metrics->path, run, "metrics.jsonl");
  Bytes bytes = {0};
  MetricsKept kept = {0};
  if (rt_exists(metrics->path)) {
    if (!rt_map_file(metrics->path, 401, &bytes, f)) return false;
    char *text = rt_alloc((size_t)bytes.n + 1);
    kept = rt_metrics_read(metrics, bytes, step, text);
    bool ok = kept.bytes == bytes.n || rt_write_file(metrics->path, text, kept.bytes, true, f);
    rt_unmap_file(&bytes), free(text);
    if (!ok) return false;
  }
  if (own && !kept.bytes && !kept.damaged) count_missing(&kept, 0, step);
  tell_lost(metrics->path, &kept);
  return open_end(metrics, f);
}

bool rt_metrics_sync(const Metrics *metrics, Fault *f) {
  if (metrics->fd < 0 || !fsync(metrics->fd) || errno == EINVAL) return true;
  rt_fault(f, 403, "cannot write: %s", strerror(errno));
  return rt_at(f, metrics->path, "", -1);
}

/* A removed file can still be read while it is open. */
bool rt_metrics_move(Metrics *metrics, const char *run, int64_t step, Fault *f) {
  char self[48];
  Bytes bytes = {0};
  Fault unread = {0};
  snprintf(self, sizeof self, "/proc/self/fd/%d", metrics->fd);
  rt_map_file(self, 401, &bytes, &unread);
  rt_join(metrics->path, run, "metrics.jsonl");
  bool ok = rt_write_file(metrics->path, bytes.at, bytes.n, true, f);
  rt_unmap_file(&bytes);
  if (metrics->fd >= 0) close(metrics->fd);
  return ok && open_end(metrics, f) &&
         (!metrics->logs || rt_logs_open(metrics, run, metrics->logs, step, f));
}

void rt_metrics_close(Metrics *metrics) {
  if (metrics->fd >= 0) close(metrics->fd);
  metrics->fd = -1;
  rt_logs_close(metrics);
}

static size_t put(char *line, size_t n, size_t size, const char *key, double v, bool always) {
  if (isnan(v) && !always) return n;
  int k = isfinite(v) ? snprintf(line + n, size - n, ",\"%s\":%.9g", key, v)
                      : snprintf(line + n, size - n, ",\"%s\":null", key);
  return n + (size_t)k;
}

bool rt_metrics_step(Metrics *metrics, const StepRecord *record, Fault *f) {
  char line[512];
  size_t n = (size_t)snprintf(line, sizeof line, "{\"schema\":1,\"step\":%lld,\"samples\":%lld",
                              (long long)record->step, (long long)record->samples);
  if (record->tokens)
    n += (size_t)snprintf(line + n, sizeof line - n, ",\"tokens\":%lld", (long long)record->tokens);
  n = put(line, n, sizeof line, "loss", record->loss, true);
  n = put(line, n, sizeof line, "valid_loss", record->valid_loss, false);
  n = put(line, n, sizeof line, "lr", record->lr, false);
  n = put(line, n, sizeof line, "grad_norm", record->norm, false);
  n = put(line, n, sizeof line, "scale", record->scale, false);
  n = put(line, n, sizeof line, "counted", record->counted, false);
  n = put(line, n, sizeof line, "ms", record->milliseconds, false);
  n = put(line, n, sizeof line, "waited_ms", record->waited, false);
  n = put(line, n, sizeof line, "slowest", record->slowest, false);
  n = put(line, n, sizeof line, "slower_ms", record->slower, false);
  n += (size_t)snprintf(line + n, sizeof line - n, "%s}\n",
                        record->skipped ? ",\"skipped\":true" : "");
  if (record->valid_loss < metrics->best) metrics->best = record->valid_loss;
  rt_curve_add(&metrics->train, (double)record->step, record->loss);
  rt_curve_add(&metrics->valid, (double)record->step, record->valid_loss);
  return (rt_write_all(metrics->fd, line, (int64_t)n, f) && rt_logs_step(metrics, record, f)) ||
         rt_at(f, metrics->path, "", -1);
}

bool rt_metrics_picture(const Metrics *metrics, const char *run, const char *title, Fault *f) {
  char path[RT_PATH];
  size_t n;
  char *text = rt_loss_svg(metrics, title, &n);
  rt_join(path, run, "loss.svg");
  bool ok = rt_write_file(path, text, (int64_t)n, false, f);
  free(text);
  return ok;
}
