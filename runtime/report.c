/* The page of `shardc report`: a table of runs and charts of loss, validation loss, learning rate,
   gradient norm and time per step, all runs in each. Plain HTML with SVG inside: no scripts, no
   other files, the same bytes for the same runs. Lines that are no metrics are counted and told. */
#include "chart.h"
#include "runtime/base/file.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct RunLog {
  const char *name;
  Curve train, valid, lr, norm, scale, ms;
  StepRecord last;
  double best;
  int64_t best_step, lines, damaged;
  double seconds; /* sum of all steps */
} RunLog;

static const char *const palette[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                      "#E69F00", "#56B4E9", "#000000", "#B8A800"};
enum { COLOURS = sizeof palette / sizeof *palette };

static void take(RunLog *l, const StepRecord *r) {
  double x = (double)r->step;
  rt_curve_add(&l->train, x, r->loss), rt_curve_add(&l->valid, x, r->valid_loss);
  rt_curve_add(&l->lr, x, r->lr), rt_curve_add(&l->norm, x, r->norm);
  rt_curve_add(&l->ms, x, r->milliseconds), rt_curve_add(&l->scale, x, r->scale);
  if (isfinite(r->valid_loss) && !(r->valid_loss >= l->best))
    l->best = r->valid_loss, l->best_step = r->step;
  if (isfinite(r->milliseconds)) l->seconds += r->milliseconds / 1e3;
  l->last = *r, l->lines++;
}

static bool read_run(RunLog *l, const char *folder, Fault *f) {
  char path[RT_PATH];
  Bytes b;
  *l = (RunLog){.name = folder, .best = NAN};
  rt_join(path, folder, "metrics.jsonl");
  if (!rt_map_file(path, 201, &b, f)) return false;
  for (int64_t at = 0; at < b.n;) {
    const uint8_t *end = memchr(b.at + at, '\n', (size_t)(b.n - at));
    int64_t n = end ? end - (b.at + at) : b.n - at;
    StepRecord r;
    if (rt_metrics_line((Bytes){b.at + at, n}, &r)) take(l, &r);
    else l->damaged++;
    at += n + 1;
  }
  rt_unmap_file(&b);
  if (l->lines) return true;
  rt_fault(f, 202, "no step is recorded here");
  return rt_at(f, path, "", -1);
}

/* ---- the page ---- */

static void cell(FILE *o, const char *format, double v) {
  fputs("<td>", o);
  if (isfinite(v)) fprintf(o, format, v);
  else fputs("&ndash;", o);
  fputs("</td>", o);
}

static void row(FILE *o, const RunLog *l, int i) {
  double steps = (double)l->lines, tokens = (double)l->last.tokens;
  fprintf(o, "<tr><th><span style=\"color:%s\">&#9632;</span> ", palette[i % COLOURS]);
  rt_put_escaped(o, l->name);
  fputs("</th>", o);
  cell(o, "%.0f", (double)l->last.step), cell(o, "%.0f", (double)l->last.samples);
  cell(o, "%.4f", l->train.n ? l->last.loss : NAN), cell(o, "%.4f", l->best);
  cell(o, "%.0f", isfinite(l->best) ? (double)l->best_step : NAN);
  cell(o, "%.2f", l->seconds > 0 ? 1e3 * l->seconds / steps : NAN);
  cell(o, "%.0f", l->seconds > 0 ? tokens / (double)l->last.step * steps / l->seconds : NAN);
  cell(o, "%.0f", l->seconds > 0 ? l->seconds : NAN);
  fputs("</tr>\n", o);
}

static void chart(FILE *o, const RunLog *l, int n, size_t curve, const char *title,
                  const char *unit, bool dots) {
  Series *s = rt_alloc(sizeof *s * (size_t)n);
  int points = 0;
  for (int i = 0; i < n; i++) {
    const Curve *c = (const Curve *)(const void *)((const char *)&l[i] + curve);
    s[i] = (Series){c, l[i].name, palette[i % COLOURS], dots}, points += c->n;
  }
  if (points) fputs("<figure>", o), rt_chart(o, title, unit, s, n), fputs("</figure>\n", o);
  free(s);
}

static const char style[] =
    "body{font:15px/1.5 sans-serif;color:#222;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}"
    "th:first-child{text-align:left}figure{margin:1.5em 0;border:1px solid #ddd}"
    "svg{display:block;width:100%;height:auto}.wide{overflow-x:auto}";

static void write_page(FILE *o, const RunLog *l, int n) {
  static const char *const heads[] = {
      "run",     "step",     "samples",         "loss", "best validation", "at",
      "ms/step", "tokens/s", "seconds in steps"};
  fprintf(o,
          "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\"><title>Training runs</title>\n");
  fprintf(o,
          "<style>%s</style></head><body>\n<h1>Training runs</h1>\n<div class=\"wide\"><table><tr>",
          style);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) fprintf(o, "<th>%s</th>", heads[i]);
  fputs("</tr>\n", o);
  for (int i = 0; i < n; i++) row(o, &l[i], i);
  fputs("</table></div>\n", o);
  for (int i = 0; i < n; i++)
    if (l[i].damaged) {
      fprintf(o, "<p>%lld lines of ", (long long)l[i].damaged);
      rt_put_escaped(o, l[i].name), fputs("/metrics.jsonl cannot be read.</p>\n", o);
    }
  chart(o, l, n, offsetof(RunLog, train), "Training loss", "loss", false);
  chart(o, l, n, offsetof(RunLog, valid), "Validation loss", "loss", true);
  chart(o, l, n, offsetof(RunLog, lr), "Learning rate", "rate", false);
  chart(o, l, n, offsetof(RunLog, norm), "Gradient norm before clipping", "norm", false);
  chart(o, l, n, offsetof(RunLog, scale), "Loss scale", "factor", false);
  chart(o, l, n, offsetof(RunLog, ms), "Time per step", "ms", false);
  fputs("</body></html>\n", o);
}

bool rt_report(FILE *o, const char *const *folders, int n, Fault *f) {
  RunLog *l = rt_alloc(sizeof *l * (size_t)n);
  bool ok = true;
  for (int i = 0; ok && i < n; i++) ok = read_run(&l[i], folders[i], f);
  if (ok) write_page(o, l, n);
  free(l);
  return ok;
}
