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

void rt_meter_start(Meter *meter, bool quiet, int64_t every, int64_t step) {
  const char *term = getenv("TERM");
  *meter = (Meter){.quiet = quiet, .every = every, .last_step = step, .valid = NAN};
  meter->tty = isatty(2) && !(term && !strcmp(term, "dumb"));
  meter->last_time = meter->last_print = rt_now();
}

static bool due(Meter *meter, const StepRecord *record, double now) {
  if (meter->every) return record->step % meter->every == 0;
  return now - meter->last_print > (meter->tty ? 0.2 : 5.0);
}

static void measure(Meter *meter, const StepRecord *record, double now) {
  double span = now - meter->last_time;
  int64_t steps = record->step - meter->last_step;
  if (span <= 0 || steps <= 0) return;
  double rate = (double)steps / span, weight = meter->rate > 0 ? fmin(1, span / 5 + 0.05) : 1;
  meter->rate += weight * (rate - meter->rate);
  meter->last_time = now, meter->last_step = record->step;
}

/* ---- the line: fields, and which of them go first where the terminal is narrow ---- */

enum { FIELDS = 14, LINE = 256 };

typedef struct Field {
  char text[40];
  int spare; /* 0: stays */
} Field;

typedef struct StatusLine {
  Field field[FIELDS];
  int n;
} StatusLine;

static void add(StatusLine *line, int spare, const char *format, double v) {
  if (isnan(v) || line->n == FIELDS) return;
  Field *f = &line->field[line->n++];
  f->spare = spare;
  snprintf(f->text, sizeof f->text, format, v);
}

static void add_text(StatusLine *line, int spare, const char *before, const char *text,
                     const char *behind) {
  if (line->n == FIELDS) return;
  Field *f = &line->field[line->n++];
  f->spare = spare;
  snprintf(f->text, sizeof f->text, "%.8s%.20s%.10s", before, text, behind);
}

/* A rank for which the others wait for a tenth of the step. */
static void add_slowest(StatusLine *line, const StepRecord *record) {
  char rank[32];
  double share = record->slower / record->milliseconds;
  if (!(share > 0.1)) return;
  snprintf(rank, sizeof rank, "%.0f +%.0f%%", record->slowest, 100 * share);
  add_text(line, 6, "  rank ", rank, "");
}

/* The share of the machine's peak that is used; never a guess. */
static void add_use(const Meter *meter, StatusLine *line) {
  if (!(meter->flop > 0)) return;
  double used = meter->flop * meter->rate;
  if (meter->peak > 0) {
    add(line, 4, "  MFU %.1f%%", 100 * used / meter->peak);
    return;
  }
  add(line, 8, "  %.1f GFLOP/s", 1e-9 * used);
  add_text(line, 9, "  MFU ", "n/a", "");
}

static size_t length(const StatusLine *line) {
  size_t n = 0;
  for (int i = 0; i < line->n; i++) n += strlen(line->field[i].text);
  return n;
}

static void drop(StatusLine *line, int i) {
  memmove(&line->field[i], &line->field[i + 1], sizeof(Field) * (size_t)(line->n - i - 1));
  line->n--;
}

static void fold(StatusLine *line, size_t width) {
  while (length(line) > width) {
    int most = 0;
    for (int i = 1; i < line->n; i++)
      if (line->field[i].spare > line->field[most].spare) most = i;
    if (!line->field[most].spare) return;
    drop(line, most);
  }
}

/* A terminal that does not tell its width has the usual one; its last column stays free. */
static size_t width_of(const Meter *meter) {
  struct winsize w;
  if (!meter->tty) return LINE - 1;
  if (ioctl(2, TIOCGWINSZ, &w) || !w.ws_col) return 79;
  return w.ws_col < LINE ? (size_t)w.ws_col - 1 : LINE - 1;
}

static void print_line(const Meter *meter, StatusLine *line, bool last) {
  char text[FIELDS * sizeof line->field[0].text];
  size_t n = 0, width = width_of(meter);
  fold(line, width);
  for (int i = 0; i < line->n; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s", line->field[i].text);
  if (meter->tty) dprintf(2, "\r%.*s\033[K%s", (int)width, text, last ? "\n" : "");
  else dprintf(2, "%s\n", text);
}

void rt_meter_step(Meter *meter, const StepRecord *record, int64_t steps, double limit, bool last) {
  double now = rt_now();
  if (!isnan(record->valid_loss)) meter->valid = record->valid_loss;
  if (meter->quiet || (!last && !due(meter, record, now))) return;
  char rate[32], eta[32];
  StatusLine line = {.n = 1};
  measure(meter, record, now);
  meter->last_print = now;
  text_rate(rate, meter->rate * (double)meter->per_step);
  rt_text_seconds(eta, fmax(0, fmin((double)(steps - record->step) / meter->rate, limit)));
  snprintf(line.field[0].text, sizeof line.field[0].text, "step %lld/%lld", (long long)record->step,
           (long long)steps);
  add(&line, 0, "  loss %.4f", record->loss);
  add(&line, 3, " (val %.4f)", meter->valid);
  add(&line, 7, "  norm %.3g", isfinite(record->norm) ? record->norm : NAN);
  add(&line, 6, "  lr %.3g", record->lr);
  add(&line, 5, "  scale %.6g", record->scale);
  add(&line, 5, "  left out %.0f", record->overflows > 0 ? record->overflows : NAN);
  add(&line, 4, meter->rate > 100 ? "  %.2f ms" : "  %.0f ms", 1000 / meter->rate);
  add(&line, 7, meter->forecast < 0.1 ? " (forecast %.3g)" : " (forecast %.0f)",
      meter->forecast > 0 ? 1000 * meter->forecast : NAN);
  add_text(&line, 1, "  ", rate, meter->tokens ? " tok/s" : " samples/s");
  add_use(meter, &line);
  add_slowest(&line, record);
  add_text(&line, 2, "  eta ", eta, "");
  print_line(meter, &line, last);
  meter->open = meter->tty && !last;
}

void rt_meter_break(Meter *meter) {
  if (meter->open) dprintf(2, "\n");
  meter->open = false;
}
