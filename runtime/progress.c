/* The progress line: on a terminal one line that is written over, elsewhere a plain line every few
   seconds. step 1200/18865  loss 3.4127 (val 3.4410)  norm 0.62  lr 5.9e-4  412 ms  1.27M tok/s
   MFU 41.3% eta 2h01m. Must not: allocate. */
#include "metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rt_text_seconds(char out[32], double s) {
  if (!(s < 1e7)) snprintf(out, 32, "?");
  else if (s < 60) snprintf(out, 32, "%.0fs", s);
  else if (s < 3600) snprintf(out, 32, "%dm%02ds", (int)s / 60, (int)s % 60);
  else snprintf(out, 32, "%dh%02dm", (int)s / 3600, (int)s / 60 % 60);
}

static void text_rate(char out[32], double v) {
  if (v >= 1e6) snprintf(out, 32, "%.2fM", v / 1e6);
  else if (v >= 1e3) snprintf(out, 32, "%.1fk", v / 1e3);
  else snprintf(out, 32, "%.1f", v);
}

void rt_meter_start(Meter *m, bool quiet, int64_t every, int64_t step) {
  const char *term = getenv("TERM");
  *m = (Meter){.quiet = quiet, .every = every, .last_step = step, .valid = NAN};
  m->tty = isatty(2) && !(term && !strcmp(term, "dumb"));
  m->last_time = m->last_print = rt_now();
}

static bool due(Meter *m, const StepRecord *r, double now) {
  if (m->every) return r->step % m->every == 0;
  return now - m->last_print > (m->tty ? 0.2 : 5.0);
}

static void measure(Meter *m, const StepRecord *r, double now) {
  double span = now - m->last_time;
  int64_t steps = r->step - m->last_step;
  if (span <= 0 || steps <= 0) return;
  double rate = (double)steps / span, weight = m->rate > 0 ? fmin(1, span / 5 + 0.05) : 1;
  m->rate += weight * (rate - m->rate);
  m->last_time = now, m->last_step = r->step;
}

static size_t add(char *line, size_t n, const char *format, double v) {
  if (isnan(v)) return n;
  return n + (size_t)snprintf(line + n, 256 - n, format, v);
}

/* The share of the machine's peak that is used; never a guess. */
static size_t add_use(const Meter *m, char *line, size_t n) {
  if (!(m->flop > 0)) return n;
  double used = m->flop * m->rate;
  if (m->peak > 0) return add(line, n, "  MFU %.1f%%", 100 * used / m->peak);
  return add(line, n, "  %.1f GFLOP/s  MFU n/a", 1e-9 * used);
}

void rt_meter_step(Meter *m, const StepRecord *r, int64_t steps, int64_t tokens, double limit,
                   bool last) {
  double now = rt_now();
  if (!isnan(r->valid_loss)) m->valid = r->valid_loss;
  if (m->quiet || (!last && !due(m, r, now))) return;
  char line[256], rate[32], eta[32];
  measure(m, r, now);
  m->last_print = now;
  text_rate(rate, m->rate * (double)tokens);
  rt_text_seconds(eta, fmax(0, fmin((double)(steps - r->step) / m->rate, limit)));
  size_t n = (size_t)snprintf(line, sizeof line, "step %lld/%lld  loss %.4f", (long long)r->step,
                              (long long)steps, r->loss);
  n = add(line, n, " (val %.4f)", m->valid);
  n = add(line, n, "  norm %.3g", isfinite(r->norm) ? r->norm : NAN);
  n = add(line, n, "  lr %.3g", r->lr);
  n = add(line, n, "  scale %.6g", r->scale);
  n = add(line, n, "  left out %.0f", r->overflows > 0 ? r->overflows : NAN);
  n = add(line, n, m->rate > 100 ? "  %.2f ms" : "  %.0f ms", 1000 / m->rate);
  n += (size_t)snprintf(line + n, sizeof line - n, "  %s %s/s", rate,
                        tokens > 1 ? "tok" : "samples");
  n = add_use(m, line, n);
  snprintf(line + n, sizeof line - n, "  eta %s", eta);
  if (m->tty) dprintf(2, "\r%s\033[K%s", line, last ? "\n" : "");
  else dprintf(2, "%s\n", line);
  m->open = m->tty && !last;
}

void rt_meter_break(Meter *m) {
  if (m->open) dprintf(2, "\n");
  m->open = false;
}
