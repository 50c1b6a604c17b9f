/* metrics.jsonl: one object per step, appended with one write each. On resuming, lines behind the
   resumed step are dropped, so the file reads as if the run had never been broken. Curves keep a
   bounded number of points: when full, neighbours are joined and each point stands for twice as
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

static void field(Json *j, const char *key, StepRecord *r) {
  const struct {
    const char *key;
    int64_t *whole;
    double *real;
  } rows[] = {{"step", &r->step, NULL},
              {"samples", &r->samples, NULL},
              {"tokens", &r->tokens, NULL},
              {"loss", NULL, &r->loss},
              {"valid_loss", NULL, &r->valid_loss},
              {"lr", NULL, &r->lr},
              {"grad_norm", NULL, &r->norm},
              {"scale", NULL, &r->scale},
              {"ms", NULL, &r->milliseconds},
              {"waited_ms", NULL, &r->waited}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(key, rows[i].key)) {
      if (rows[i].whole) rt_json_int(j, rows[i].whole);
      else rt_json_number(j, rows[i].real);
      return;
    }
  rt_json_skip(j);
}

bool rt_metrics_line(Bytes line, StepRecord *r) {
  char key[64];
  *r = (StepRecord){.step = -1, .loss = NAN, .valid_loss = NAN, .lr = NAN, .norm = NAN};
  r->milliseconds = r->waited = r->scale = r->overflows = NAN;
  Json j = rt_json(line.at, line.n);
  if (rt_json_object(&j))
    while (rt_json_member(&j, key, sizeof key)) field(&j, key, r);
  return rt_json_done(&j) && r->step >= 0;
}

int64_t rt_metrics_read(Metrics *m, Bytes b, int64_t step) {
  int64_t at = 0;
  for (const uint8_t *end; at < b.n && (end = memchr(b.at + at, '\n', (size_t)(b.n - at)));) {
    int64_t n = end - (b.at + at);
    StepRecord r;
    if (!rt_metrics_line((Bytes){b.at + at, n}, &r) || r.step > step) break;
    rt_curve_add(&m->train, (double)r.step, r.loss),
        rt_curve_add(&m->valid, (double)r.step, r.valid_loss);
    at += n + 1;
  }
  return at;
}

static bool open_end(Metrics *m, Fault *f) {
  m->fd = open(m->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (m->fd >= 0) return true;
  rt_fault(f, 401, "cannot open: %s", strerror(errno));
  return rt_at(f, m->path, "", -1);
}

bool rt_metrics_open(Metrics *m, const char *run, int64_t step, Fault *f) {
  *m = (Metrics){.fd = -1};
  rt_join(m->path, run, "metrics.jsonl");
  Bytes b = {0};
  if (rt_exists(m->path)) {
    if (!rt_map_file(m->path, 401, &b, f)) return false;
    int64_t keep = rt_metrics_read(m, b, step);
    bool ok = keep == b.n || rt_write_file(m->path, b.at, keep, true, f);
    rt_unmap_file(&b);
    if (!ok) return false;
  }
  return open_end(m, f);
}

/* What was removed can still be read while it is open. */
bool rt_metrics_move(Metrics *m, const char *run, Fault *f) {
  char self[48];
  Bytes b = {0};
  Fault unread = {0};
  snprintf(self, sizeof self, "/proc/self/fd/%d", m->fd);
  rt_map_file(self, 401, &b, &unread);
  rt_join(m->path, run, "metrics.jsonl");
  bool ok = rt_write_file(m->path, b.at, b.n, true, f);
  rt_unmap_file(&b);
  rt_metrics_close(m);
  return ok && open_end(m, f);
}

void rt_metrics_close(Metrics *m) {
  if (m->fd >= 0) close(m->fd);
  m->fd = -1;
}

static size_t put(char *line, size_t n, size_t size, const char *key, double v, bool always) {
  if (isnan(v) && !always) return n;
  int k = isfinite(v) ? snprintf(line + n, size - n, ",\"%s\":%.9g", key, v)
                      : snprintf(line + n, size - n, ",\"%s\":null", key);
  return n + (size_t)k;
}

bool rt_metrics_step(Metrics *m, const StepRecord *r, Fault *f) {
  char line[512];
  size_t n = (size_t)snprintf(line, sizeof line,
                              "{\"schema\":1,\"step\":%lld,\"samples\":%lld,\"tokens\":%lld",
                              (long long)r->step, (long long)r->samples, (long long)r->tokens);
  n = put(line, n, sizeof line, "loss", r->loss, true);
  n = put(line, n, sizeof line, "valid_loss", r->valid_loss, false);
  n = put(line, n, sizeof line, "lr", r->lr, false);
  n = put(line, n, sizeof line, "grad_norm", r->norm, false);
  n = put(line, n, sizeof line, "scale", r->scale, false);
  n = put(line, n, sizeof line, "ms", r->milliseconds, false);
  n = put(line, n, sizeof line, "waited_ms", r->waited, false);
  n += (size_t)snprintf(line + n, sizeof line - n, "%s}\n", r->skipped ? ",\"skipped\":true" : "");
  rt_curve_add(&m->train, (double)r->step, r->loss);
  rt_curve_add(&m->valid, (double)r->step, r->valid_loss);
  return rt_write_all(m->fd, line, (int64_t)n, f) || rt_at(f, m->path, "", -1);
}

bool rt_metrics_picture(const Metrics *m, const char *run, const char *title, Fault *f) {
  char path[RT_PATH];
  size_t n;
  char *text = rt_loss_svg(m, title, &n);
  rt_join(path, run, "loss.svg");
  bool ok = rt_write_file(path, text, (int64_t)n, false, f);
  free(text);
  return ok;
}
