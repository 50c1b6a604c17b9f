/* Whole training steps of GPT-2 in bf16: milliseconds, tokens/s, MFU, in turn with another program.
   Lists of the bundle, steps.list and offload.list, have name, layers, width, heads, batch, length,
   vocabulary, the other program, and the parameters of a model other than GPT-2. The other program
   is an executable of the bundle (the same model without `offload`), or - for none; without a word
   it is PyTorch, where python3 has it and sees the GPU. All read steps/tokens.VOCABULARY: random
   tokens, all equally frequent. The FLOP of a step are the usual count, 6 per parameter and token
   and 12 per layer, width, position and token, for both programs. MFU refers to the peak of the
   data sheet (peaks.def); the table also has the share of mma.sync as measured in this run.

   PyTorch's process waits while ours runs, and keeps its memory. */
#include "bundle.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "runtime/metrics.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  MOST = 400,
  ROUNDS = 3,
  FIRST = 3,
  CHANGE_STEPS = 20,
  MOST_CHANGES = 16
}; /* FIRST: steps at the start of a run that do not count */

typedef struct Times {
  double at[MOST];
  int n;
} Times;

typedef struct Model {
  const char *name;
  const char *other; /* executable of the other program; NULL: PyTorch */
  bool alone;
  double layers, width, batch, length, vocabulary, parameters; /* parameters: 0 for GPT-2 */
  Line *line;
} Model;

static const struct {
  const char *words;
  int multiprocessors;
  double tflops;
} peaks[] = {
#define PEAK(words, multiprocessors, tflops) {words, multiprocessors, tflops},
#include "peaks.def"
#undef PEAK
};

static bool whole_words(const char *name, const char *words) {
  for (const char *at = name; (at = strstr(at, words)); at++) {
    bool begins = at == name || !isalnum((unsigned char)at[-1]);
    if (begins && !isalnum((unsigned char)at[strlen(words)])) return true;
  }
  return false;
}

/* NaN: peaks.def has no data sheet of it. */
static double peak_of(const CudaDevice *d) {
  for (size_t i = 0; i < sizeof peaks / sizeof *peaks; i++) {
    if (!whole_words(d->name, peaks[i].words)) continue;
    double share = (double)d->multiprocessors / peaks[i].multiprocessors;
    bool slice = whole_words(d->name, "MIG") && share < 1;
    return slice || d->multiprocessors == peaks[i].multiprocessors ? 1e12 * peaks[i].tflops * share
                                                                   : NAN;
  }
  return NAN;
}

static double flop_of(const Model *m) {
  double e = m->width, tokens = m->batch * m->length;
  double parameters = m->parameters;
  if (!(parameters > 0))
    parameters = m->vocabulary * e + 1024 * e + m->layers * (12 * e * e + 13 * e) + 2 * e;
  return (6 * parameters + 12 * m->layers * e * m->length) * tokens;
}

/* ---- ours ---- */

static void read_times(const char *folder, Times *t) {
  char path[RT_PATH], line[1000];
  int n = 0;
  StepRecord r;
  rt_join(path, folder, "metrics.jsonl");
  FILE *f = fopen(path, "r");
  while (f && fgets(line, sizeof line, f))
    if (rt_metrics_line((Bytes){(uint8_t *)line, (int64_t)strcspn(line, "\n")}, &r) &&
        isfinite(r.milliseconds) && n++ >= FIRST && t->n < MOST)
      t->at[t->n++] = 1e-3 * r.milliseconds;
  if (f) fclose(f);
}

static char *tokens_of(const Bundle *b, const Model *m) {
  return bundle_path(b, "steps/tokens.%.0f", m->vocabulary);
}

typedef struct Program {
  const char *name; /* in the rows of results */
  const char *exe;
  const char *kernels; /* a folder of kernels that replace some of its own; NULL: none */
} Program;

static bool run_program(Bundle *b, const Model *m, const Program *p, int steps, int round,
                        double until, Times *t, char *why, int size) {
  char number[32], *exe = bundle_path(b, "steps/%s", p->exe), *tokens = tokens_of(b, m);
  char *out = out_path(b, "steps/%s.%d", p->name, round);
  char *log = out_path(b, "steps/%s.log", p->name);
  char *kernels = p->kernels ? bundle_path(b, "steps/%s", p->kernels) : NULL;
  char *words[] = {exe,
                   "train",
                   "--data",
                   tokens,
                   "--format",
                   "u16",
                   "--steps",
                   number,
                   "--valid",
                   "0%",
                   "--out",
                   out,
                   "--device",
                   "gpu",
                   "--save-every",
                   "0",
                   kernels ? "--kernels" : NULL,
                   kernels,
                   NULL};
  Child c;
  snprintf(number, sizeof number, "%d", steps + FIRST);
  int before = t->n;
  int status = child_start(&c, words, b->out, log, false) ? child_wait(&c, until) : 1;
  read_times(out, t);
  last_words(log, why, size);
  if (status < 0) snprintf(why, (size_t)size, "took too long");
  return t->n > before;
}

/* Runs the executable of that name. */
static bool run_ours(Bundle *b, const Model *m, const char *name, int steps, int round,
                     double until, Times *t, char *why, int size) {
  Program p = {name, name, NULL};
  return run_program(b, m, &p, steps, round, until, t, why, size);
}

/* ---- PyTorch ---- */

static bool start_peer(Bundle *b, const Model *m, Child *c, double until, char *why, int size) {
  const char *python = getenv("SHARDC_PYTHON");
  char line[400], *log = out_path(b, "steps/%s.torch.log", m->name);
  char **w = m->line->word;
  char *words[] = {python ? (char *)python : "python3",
                   bundle_path(b, "torch_steps.py"),
                   w[1],
                   w[2],
                   w[3],
                   w[4],
                   w[5],
                   w[6],
                   tokens_of(b, m),
                   b->quick ? "cpu" : NULL,
                   NULL};
  *why = 0;
  if (child_start(c, words, b->out, log, true) && child_line(c, line, sizeof line, until))
    return strstr(line, "ready") != NULL;
  last_words(log, why, size);
  if (rt_now() >= until) snprintf(why, (size_t)size, "PyTorch was not ready in time");
  child_stop(c);
  return false;
}

static bool run_peer(Child *c, int steps, double until, Times *t) {
  char line[8000], key[32];
  double x;
  if (dprintf(c->in, "%d\n", steps) < 1 || !child_line(c, line, sizeof line, until)) return false;
  Json j = rt_json(line, (int64_t)strlen(line));
  if (!rt_json_object(&j) || !rt_json_member(&j, key, sizeof key) || !rt_json_array(&j))
    return false;
  while (rt_json_element(&j) && t->n < MOST)
    if (rt_json_number(&j, &x)) t->at[t->n++] = x;
  return true;
}

/* ---- one model ---- */

/* The peer of a model: a process of PyTorch, or runs of an executable. */
static bool start_other(Bundle *b, const Model *m, Child *c, double until, char *why, int size) {
  Times warm = {.n = 0};
  if (m->other) return run_ours(b, m, m->other, 2, 0, until, &warm, why, size);
  double now = rt_now();
  return start_peer(b, m, c, now + 0.6 * (until - now), why, size);
}

static bool run_other(Bundle *b, const Model *m, Child *c, int steps, int round, double until,
                      Times *t) {
  char why[400];
  if (m->other) return run_ours(b, m, m->other, steps, round, until, t, why, sizeof why);
  return run_peer(c, steps, until, t);
}

static void show(Bundle *b, const Model *m, const char *who, Times *t, const CudaDevice *gpu) {
  double s = median(t->at, t->n), rate = flop_of(m) / s, tokens = m->batch * m->length / s;
  double mfu = rate / peak_of(gpu), share = rate / found(b, "ceilings", "bf16 mma.sync", "flops");
  put_row(b,
          "{\"name\": \"%s %s\", \"ms\": %.4f, \"low_ms\": %.4f, \"high_ms\": %.4f, \"steps\": %d, "
          "\"tokens_per_second\": %.6g, \"tflops\": %.5g%s%s}",
          m->name, who, 1e3 * s, 1e3 * t->at[0], 1e3 * t->at[t->n - 1], t->n, tokens, 1e-12 * rate,
          isfinite(mfu) ? rt_format(", \"mfu\": %.4f", mfu) : "",
          isfinite(share) ? rt_format(", \"of_mma_sync\": %.4f", share) : "");
  say(b, "%-14s %-14s %9.2f ms (%.2f .. %.2f, %d steps) %10.0f tokens/s %8.2f TFLOP/s", m->name,
      who, 1e3 * s, 1e3 * t->at[0], 1e3 * t->at[t->n - 1], t->n, tokens, 1e-12 * rate);
  if (isfinite(mfu)) say(b, "  MFU %.1f %%", 100 * mfu);
  if (isfinite(share)) say(b, "  %.1f %% of mma.sync", 100 * share);
  say(b, "\n");
}

/* How many steps take about five seconds. */
static int steps_for(const Bundle *b, Times *t) {
  double n = t->n ? 5 / median(t->at, t->n) : 10;
  return b->quick ? 2 : n < 5 ? 5 : n > 100 ? 100 : (int)n;
}

typedef enum Outcome { MEASURED, NO_ROOM, FAILED } Outcome;

/* The GPU's memory is too small, or the model is for a newer one: nothing is wrong with it. */
static Outcome outcome_of(bool measured, const char *why) {
  bool small = strstr(why, "R1005") || strstr(why, "R1003");
  return measured ? MEASURED : small ? NO_ROOM : FAILED;
}

static Outcome one_model(Bundle *b, const Model *m, const CudaDevice *gpu, double until) {
  Times ours = {.n = 0}, theirs = {.n = 0}, warm = {.n = 0};
  Child peer = {0, -1, -1};
  char why[400] = "", lacks[400];
  /* The driver assembles PTX in the first run, and keeps what it made. */
  bool good = run_ours(b, m, m->name, 2, 0, until, &warm, why, sizeof why);
  const char *who = m->other ? m->other : "PyTorch";
  if (!good) say(b, "%-14s shardc not measured: %s\n", m->name, why);
  if (!good) put_row(b, "{\"name\": \"%s shardc\", \"why\": %s}", m->name, quoted(why));
  bool pair = good && !m->alone && start_other(b, m, &peer, until, lacks, sizeof lacks);
  int steps = steps_for(b, &warm);
  for (int i = 1; good && i <= (b->quick || m->alone ? 1 : ROUNDS) && rt_now() < until; i++) {
    good = run_ours(b, m, m->name, steps, i, until, &ours, why, sizeof why);
    if (pair) pair = run_other(b, m, &peer, steps, i, until, &theirs);
  }
  child_stop(&peer);
  if (!ours.n && warm.n)
    good = run_ours(b, m, m->name, steps, ROUNDS + 1, until, &ours, why, sizeof why); /* alone */
  if (ours.n) show(b, m, "shardc", &ours, gpu);
  if (theirs.n) show(b, m, who, &theirs, gpu);
  else if (warm.n && !m->alone) say(b, "%-14s %-14s not measured: %s\n", m->name, who, lacks);
  if (ours.n && theirs.n) {
    double ratio = median(theirs.at, theirs.n) / median(ours.at, ours.n);
    put_row(b, "{\"name\": \"%s ratio\", \"ratio\": %.4f}", m->name, ratio);
    say(b, "%-14s shardc is %.2f times as fast as %s\n", m->name, ratio, who);
  }
  return outcome_of(ours.n > 0, why);
}

static Model model_of(Line *l) {
  bool alone = l->word[7] && !strcmp(l->word[7], "-");
  return (Model){.name = l->word[0],
                 .other = alone ? NULL : l->word[7],
                 .alone = alone,
                 .parameters = l->word[7] && l->word[8] ? atof(l->word[8]) : 0,
                 .layers = atof(l->word[1]),
                 .width = atof(l->word[2]),
                 .batch = atof(l->word[4]),
                 .length = atof(l->word[5]),
                 .vocabulary = atof(l->word[6]),
                 .line = l};
}

/* Asked in the part's own process: the context is given back before others measure. */
static bool device_of(CudaDevice *d) {
  Gpu g;
  if (!gpu_open(&g, 0)) return false;
  *d = g.device;
  g.api.cuDevicePrimaryCtxRelease(g.device.handle);
  return true;
}

static int measure(Bundle *b, const char *name) {
  int n, of[FAILED + 1] = {0};
  CudaDevice gpu;
  Line *list = read_list(b, name, &n);
  if (!fresh_folder(b, "steps") || !device_of(&gpu)) return PART_BAD;
  for (int i = 0; list && i < n; i++) {
    double now = rt_now();
    if (!list[i].word[6]) continue;
    Model m = model_of(&list[i]);
    of[one_model(b, &m, &gpu, now + (b->ends - now) / (n - i))]++;
  }
  if (of[FAILED] || !(of[MEASURED] + of[NO_ROOM])) return PART_BAD;
  return of[MEASURED] ? PART_GOOD : PART_SKIPPED;
}

/* ---- changes, each alone ---- */

/* changes.list has the model, then programs that lack one change each: name, executable, and a
   folder of kernels in place of its own, or -. They run in turn, in every second round backwards,
   so that all get the same share of a drift of the GPU's clock. */
typedef struct Changes {
  Model model;
  int n; /* number 0 is the model itself */
  Program program[MOST_CHANGES];
  Times times[MOST_CHANGES];
  bool failed[MOST_CHANGES];
} Changes;

static bool read_changes(const Bundle *b, Changes *c) {
  int n;
  Line *list = read_list(b, "changes.list", &n);
  if (!list || n < 2 || n > MOST_CHANGES || !list[0].word[6]) return false;
  c->model = model_of(&list[0]), c->n = n;
  c->program[0] = (Program){list[0].word[0], list[0].word[0], NULL};
  for (int i = 1; i < n; i++) {
    char **w = list[i].word;
    if (!w[2]) return false;
    c->program[i] = (Program){w[0], w[1], strcmp(w[2], "-") ? w[2] : NULL};
  }
  return true;
}

static void show_change(Bundle *b, Changes *c, int i) {
  double base = median(c->times[0].at, c->times[0].n), ms = median(c->times[i].at, c->times[i].n);
  put_row(b, "{\"name\": \"without %s\", \"ms\": %.4f, \"saves_ms\": %.4f, \"steps\": %d}",
          c->program[i].name, 1e3 * ms, 1e3 * (ms - base), c->times[i].n);
  say(b, "without %-20s %9.3f ms: it saves %8.3f ms, %5.1f %% of a step\n", c->program[i].name,
      1e3 * ms, 1e3 * (ms - base), 100 * (ms / base - 1));
}

/* False: the program failed, and is not tried again. */
static bool run_change(Bundle *b, Changes *c, int i, int round) {
  char why[400] = "";
  if (c->failed[i] || run_program(b, &c->model, &c->program[i], b->quick ? 2 : CHANGE_STEPS, round,
                                  b->ends, &c->times[i], why, sizeof why))
    return !c->failed[i];
  put_row(b, "{\"name\": \"without %s\", \"why\": %s}", c->program[i].name, quoted(why));
  say(b, "without %-20s not measured: %s\n", c->program[i].name, why);
  return !(c->failed[i] = true);
}

int part_changes(Bundle *b) {
  static Changes c;
  bool bad = false, late = false;
  CudaDevice gpu;
  if (!read_changes(b, &c) || !fresh_folder(b, "steps") || !device_of(&gpu)) return PART_BAD;
  for (int round = 0; round < (b->quick ? 1 : ROUNDS); round++)
    for (int k = 0; k < c.n && !late; k++) {
      bad |= !run_change(b, &c, round % 2 ? c.n - 1 - k : k, round);
      late = rt_now() > b->ends - 1;
    }
  if (c.times[0].n) show(b, &c.model, "shardc", &c.times[0], &gpu);
  for (int i = 1; i < c.n && c.times[0].n; i++)
    if (c.times[i].n) show_change(b, &c, i);
  return bad ? PART_BAD : late ? PART_SHORT : PART_GOOD;
}

int part_steps(Bundle *b) { return measure(b, "steps.list"); }

int part_offload(Bundle *b) { return measure(b, "offload.list"); }
