/* Models trained on the GPU and on the processor, by the same executable from the same start and
   data: their losses. losses.list of the bundle: name, largest difference, steps, ranks. Several
   ranks share the one GPU, and send by way of the host. */
#include "bundle.h"
#include "runtime/base/file.h"
#include "runtime/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1000, RANKS = 8 };

typedef struct Curves {
  double loss[2][STEPS]; /* of the processor, of the GPU */
  int n[2];
} Curves;

static int read_losses(const char *folder, double *loss) {
  char path[RT_PATH], line[1000];
  int n = 0;
  rt_join(path, folder, "metrics.jsonl");
  FILE *f = fopen(path, "r");
  StepRecord r;
  while (f && n < STEPS && fgets(line, sizeof line, f))
    if (rt_metrics_line((Bytes){(uint8_t *)line, (int64_t)strcspn(line, "\n")}, &r) &&
        isfinite(r.loss))
      loss[n++] = r.loss;
  if (f) fclose(f);
  return n;
}

/* As launchers tell a rank who it is; one of one: nothing. */
static void be_rank(int rank, int ranks) {
  static const char *const names[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
  for (int i = 0; i < 4; i++)
    if (ranks > 1) setenv(names[i], rt_format("%d", i < 2 ? rank : ranks), 1);
    else unsetenv(names[i]);
}

/* The first status of the ranks that is not 0. */
static int train_ranks(Bundle *b, char *const *words, const char *log, int ranks, double until) {
  Child child[RANKS];
  int status = 0, started = 0;
  for (; started < ranks; started++) {
    be_rank(started, ranks);
    if (!child_start(&child[started], words, b->out, log, false)) break;
  }
  be_rank(0, 1);
  if (started < ranks) status = 1;
  for (int i = 0; i < started; i++) {
    int one = child_wait(&child[i], status ? rt_now() : until);
    if (!status) status = one;
  }
  return status;
}

static bool train(Bundle *b, const Line *l, const char *device, double until, double *loss, int *n,
                  char *why, int size) {
  char *exe = bundle_path(b, "models/%s", l->word[0]), *text = bundle_path(b, "text.txt");
  char *out = out_path(b, "losses/%s.%s", l->word[0], device);
  char *log = out_path(b, "losses/%s.%s.log", l->word[0], device);
  char *steps = b->quick ? "3" : l->word[2];
  int ranks = l->word[3] ? atoi(l->word[3]) : 1;
  char *words[] = {
      exe,        "train",        "--data",       text, "--steps", steps, "--out",          out,
      "--device", (char *)device, "--save-every", "0",  "--valid", "10%", "--eval-batches", "1",
      NULL};
  if (ranks < 1 || ranks > RANKS) return snprintf(why, (size_t)size, "%d ranks", ranks), false;
  int status = train_ranks(b, words, log, ranks, until);
  *n = read_losses(out, loss);
  last_words(log, why, size);
  if (status < 0) snprintf(why, (size_t)size, "took too long");
  return status == 0 && *n > 0;
}

/* The largest difference; NaN counts as large. */
static double worst_of(const Curves *c) {
  double worst = c->n[0] == c->n[1] ? 0 : INFINITY;
  for (int i = 0; i < c->n[0] && i < c->n[1]; i++) {
    double d = fabs(c->loss[0][i] - c->loss[1][i]);
    if (!(d <= worst)) worst = isnan(d) ? INFINITY : d;
  }
  return worst;
}

static void failed(Bundle *b, const Line *l, const char *device, const char *why) {
  put_row(b, "{\"name\": %s, \"good\": false, \"device\": \"%s\", \"why\": %s}", quoted(l->word[0]),
          device, quoted(why));
  say(b, "%-14s failed on the %s: %s\n", l->word[0], strcmp(device, "cpu") ? "GPU" : "processor",
      why);
}

static bool one_model(Bundle *b, const Line *l, double until) {
  static Curves c;
  static const char *const device[] = {"cpu", "gpu"};
  char why[400];
  double most = strtod(l->word[1], NULL);
  for (int i = 0; i < 2; i++)
    if (!train(b, l, device[i], until, c.loss[i], &c.n[i], why, sizeof why))
      return failed(b, l, device[i], why), false;
  double worst = worst_of(&c), first = c.loss[1][0], last = c.loss[1][c.n[1] - 1];
  put_row(b,
          "{\"name\": %s, \"good\": %s, \"steps\": %d, \"worst\": %.3g, \"allowed\": %g, "
          "\"first\": %.6f, \"last\": %.6f}",
          quoted(l->word[0]), worst <= most ? "true" : "false", c.n[1], fmin(worst, 1e9), most,
          first, last);
  say(b, "%-14s %4d steps, loss %.4f to %.4f, differs by %.1e at most (%.0e allowed)%s\n",
      l->word[0], c.n[1], first, last, worst, most, worst <= most ? "" : "  WRONG");
  return worst <= most;
}

int part_losses(Bundle *b) {
  int n, bad = 0;
  Line *list = read_list(b, "losses.list", &n);
  if (!fresh_folder(b, "losses")) return PART_BAD;
  for (int i = 0; list && i < n; i++) {
    double now = rt_now();
    if (!list[i].word[2]) continue;
    bad += !one_model(b, &list[i], now + 2 * (b->ends - now) / (n - i + 1));
  }
  return list && !bad ? PART_GOOD : PART_BAD;
}
