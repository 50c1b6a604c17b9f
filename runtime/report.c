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

static void take(RunLog *run_log, const StepRecord *record) {
  double x = (double)record->step;
  rt_curve_add(&run_log->train, x, record->loss),
      rt_curve_add(&run_log->valid, x, record->valid_loss);
  rt_curve_add(&run_log->lr, x, record->lr), rt_curve_add(&run_log->norm, x, record->norm);
  rt_curve_add(&run_log->ms, x, record->milliseconds),
      rt_curve_add(&run_log->scale, x, record->scale);
  if (isfinite(record->valid_loss) && !(record->valid_loss >= run_log->best))
    run_log->best = record->valid_loss, run_log->best_step = record->step;
  if (isfinite(record->milliseconds)) run_log->seconds += record->milliseconds / 1e3;
  run_log->last = *record, run_log->lines++;
}

static bool read_run(RunLog *run_log, const char *folder, Fault *f) {
  char path[RT_PATH];
  Bytes bytes;
  *run_log = (RunLog){.name = folder, .best = NAN};
  rt_join(path, folder, "metrics.jsonl");
  if (!rt_map_file(path, 201, &bytes, f)) return false;
  for (int64_t at = 0; at < bytes.n;) {
    const uint8_t *end = memchr(bytes.at + at, '\n', (size_t)(bytes.n - at));
    int64_t n = end ? end - (bytes.at + at) : bytes.n - at;
    StepRecord record;
    if (rt_metrics_line((Bytes){bytes.at + at, n}, &record)) take(run_log, &record);
    else run_log->damaged++;
    at += n + 1;
  }
  rt_unmap_file(&bytes);
  if (run_log->lines) return true;
  rt_fault(f, 202, "the folder has no recorded step");
  return rt_at(f, path, "", -1);
}

/* ---- the page ---- */

static void cell(FILE *file, const char *format, double v) {
  fputs("<td>", file);
  if (isfinite(v)) fprintf(file, format, v);
  else fputs("&ndash;", file);
  fputs("</td>", file);
}

static void row(FILE *file, const RunLog *run_log, int i) {
  double steps = (double)run_log->lines, tokens = (double)run_log->last.tokens,
         all = tokens > 0 ? tokens : (double)run_log->last.samples;
  fprintf(file, "<tr><th><span style=\"color:%s\">&#9632;</span> ", palette[i % COLOURS]);
  rt_put_escaped(file, run_log->name);
  fputs("</th>", file);
  cell(file, "%.0f", (double)run_log->last.step), cell(file, "%.0f", (double)run_log->last.samples);
  cell(file, "%.4f", run_log->train.n ? run_log->last.loss : NAN),
      cell(file, "%.4f", run_log->best);
  cell(file, "%.0f", isfinite(run_log->best) ? (double)run_log->best_step : NAN);
  cell(file, "%.2f", run_log->seconds > 0 ? 1e3 * run_log->seconds / steps : NAN);
  cell(file, tokens > 0 ? "%.0f tokens" : "%.0f samples",
       run_log->seconds > 0 ? all / (double)run_log->last.step * steps / run_log->seconds : NAN);
  cell(file, "%.0f", run_log->seconds > 0 ? run_log->seconds : NAN);
  fputs("</tr>\n", file);
}

static void chart(FILE *file, const RunLog *run_log, int n, size_t curve, const char *title,
                  const char *unit, bool dots) {
  Series *series = rt_alloc(sizeof *series * (size_t)n);
  int points = 0;
  for (int i = 0; i < n; i++) {
    const Curve *c = (const Curve *)(const void *)((const char *)&run_log[i] + curve);
    series[i] = (Series){c, run_log[i].name, palette[i % COLOURS], dots}, points += c->n;
  }
  if (points)
    fputs("<figure>", file), rt_chart(file, title, unit, series, n), fputs("</figure>\n", file);
  free(series);
}

static const char style[] = "body{font:15px/1.5 sans-serif;color:#222;max-width:1100px;margin:2em "
                            "auto;padding:0 1em}"
                            "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
                            "th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #ddd}"
                            "th:first-child{text-align:left}figure{margin:1.5em 0;border:1px solid "
                            "#ddd}"
                            "svg{display:block;width:100%;min-width:480px;height:auto}.wide,figure{"
                            "overflow-x:auto}"
                            "@media(prefers-color-scheme:dark){:root{color-scheme:dark}body{color:#"
                            "ddd;background:#181818}"
                            "th,td,figure{border-color:#444}svg{filter:invert(.9) "
                            "hue-rotate(180deg)}}"; /* of white paper */

/* seconds: after which a browser reads it again; 0: never. */
static void write_page(FILE *file, const RunLog *run_log, int n, int seconds) {
  static const char *const heads[] = {
      "run",     "step",       "samples",         "loss", "best validation", "at",
      "ms/step", "per second", "seconds in steps"};
  fprintf(file,
          "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width\"><title>Training runs</title>\n");
  if (seconds) fprintf(file, "<meta http-equiv=\"refresh\" content=\"%d\">\n", seconds);
  fprintf(file,
          "<style>%s</style></head><body>\n<h1>Training runs</h1>\n<div class=\"wide\"><table><tr>",
          style);
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) fprintf(file, "<th>%s</th>", heads[i]);
  fputs("</tr>\n", file);
  for (int i = 0; i < n; i++) row(file, &run_log[i], i);
  fputs("</table></div>\n", file);
  for (int i = 0; i < n; i++)
    if (run_log[i].damaged) {
      fprintf(file, "<p>%lld lines of ", (long long)run_log[i].damaged);
      rt_put_escaped(file, run_log[i].name), fputs("/metrics.jsonl cannot be read.</p>\n", file);
    }
  chart(file, run_log, n, offsetof(RunLog, train), "Training loss", "loss", false);
  chart(file, run_log, n, offsetof(RunLog, valid), "Validation loss", "loss", true);
  chart(file, run_log, n, offsetof(RunLog, lr), "Learning rate", "rate", false);
  chart(file, run_log, n, offsetof(RunLog, norm), "Gradient norm before clipping", "norm", false);
  chart(file, run_log, n, offsetof(RunLog, scale), "Loss scale", "factor", false);
  chart(file, run_log, n, offsetof(RunLog, ms), "Time per step", "ms", false);
  fputs("</body></html>\n", file);
}

bool rt_report(FILE *file, const char *const *folders, int n, int seconds, Fault *f) {
  RunLog *run_log = rt_alloc(sizeof *run_log * (size_t)n);
  bool ok = true;
  for (int i = 0; ok && i < n; i++) ok = read_run(&run_log[i], folders[i], f);
  if (ok) write_page(file, run_log, n, seconds);
  free(run_log);
  return ok;
}
