/* The progress line: on a terminal one line that is written over, elsewhere a plain line every few
   seconds. Where the terminal is too narrow, the least important fields go.
     step 1200/18865  loss 3.4127 (val 3.4410)  norm 0.62  lr 5.9e-4  412 ms  1.27M tok/s  MFU 41.3%
   and so on. Must not: allocate. */
#include "metrics.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

/* ---- the line: fields, and which of them go first where the terminal is narrow ---- */

enum { FIELDS = 12, LINE = 256 };

typedef struct Field {
  char text[40];
  int spare; /* 0: stays */
} Field;

typedef struct StatusLine {
  Field field[FIELDS];
  int n;
} StatusLine;

static void add(StatusLine *l, int spare, const char *format, double v) {
  if (isnan(v) || l->n == FIELDS) return;
  Field *f = &l->field[l->n++];
  f->spare = spare;
  snprintf(f->text, sizeof f->text, format, v);
}

static void add_text(StatusLine *l, int spare, const char *before, const char *text,
                     const char *behind) {
  if (l->n == FIELDS) return;
  Field *f = &l->field[l->n++];
  f->spare = spare;
  snprintf(f->text, sizeof f->text, "%.8s%.20s%.10s", before, text, behind);
}

/* The share of the machine's peak that is used; never a guess. */
static void add_use(const Meter *m, StatusLine *l) {
  if (!(m->flop > 0)) return;
  double used = m->flop * m->rate;
  if (m->peak > 0) {
    add(l, 4, "  MFU %.1f%%", 100 * used / m->peak);
    return;
  }
  add(l, 8, "  %.1f GFLOP/s", 1e-9 * used);
  add_text(l, 9, "  MFU ", "n/a", "");
}

static size_t length(const StatusLine *l) {
  size_t n = 0;
  for (int i = 0; i < l->n; i++) n += strlen(l->field[i].text);
  return n;
}

static void drop(StatusLine *l, int i) {
  memmove(&l->field[i], &l->field[i + 1], sizeof(Field) * (size_t)(l->n - i - 1));
  l->n--;
}

static void fold(StatusLine *l, size_t width) {
  while (length(l) > width) {
    int most = 0;
    for (int i = 1; i < l->n; i++)
      if (l->field[i].spare > l->field[most].spare) most = i;
    if (!l->field[most].spare) return;
    drop(l, most);
  }
}

/* A terminal that does not tell its width has the usual one; its last column stays free. */
static size_t width_of(const Meter *m) {
  struct winsize w;
  if (!m->tty) return LINE - 1;
  if (ioctl(2, TIOCGWINSZ, &w) || !w.ws_col) return 79;
  return w.ws_col < LINE ? (size_t)w.ws_col - 1 : LINE - 1;
}

static void print_line(const Meter *m, StatusLine *l, bool last) {
  char text[FIELDS * sizeof l->field[0].text];
  size_t n = 0, width = width_of(m);
  fold(l, width);
  for (int i = 0; i < l->n; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", l->field[i].text);
  if (m->tty) dprintf(2, "\r%.*s\033[K%s", (int)width, text, last ? "\n" : "");
  else dprintf(2, "%s\n", text);
}

void rt_meter_step(Meter *m, const StepRecord *r, int64_t steps, int64_t tokens, double limit,
                   bool last) {
  double now = rt_now();
  if (!isnan(r->valid_loss)) m->valid = r->valid_loss;
  if (m->quiet || (!last && !due(m, r, now))) return;
  char rate[32], eta[32];
  StatusLine l = {.n = 1};
  measure(m, r, now);
  m->last_print = now;
  text_rate(rate, m->rate * (double)tokens);
  rt_text_seconds(eta, fmax(0, fmin((double)(steps - r->step) / m->rate, limit)));
  snprintf(l.field[0].text, sizeof l.field[0].text, "step %lld/%lld", (long long)r->step,
           (long long)steps);
  add(&l, 0, "  loss %.4f", r->loss);
  add(&l, 3, " (val %.4f)", m->valid);
  add(&l, 7, "  norm %.3g", isfinite(r->norm) ? r->norm : NAN);
  add(&l, 6, "  lr %.3g", r->lr);
  add(&l, 5, "  scale %.6g", r->scale);
  add(&l, 5, "  left out %.0f", r->overflows > 0 ? r->overflows : NAN);
  add(&l, 4, m->rate > 100 ? "  %.2f ms" : "  %.0f ms", 1000 / m->rate);
  add_text(&l, 1, "  ", rate, tokens > 1 ? " tok/s" : " samples/s");
  add_use(m, &l);
  add_text(&l, 2, "  eta ", eta, "");
  print_line(m, &l, last);
  m->open = m->tty && !last;
}

void rt_meter_break(Meter *m) {
  if (m->open) dprintf(2, "\n");
  m->open = false;
}
