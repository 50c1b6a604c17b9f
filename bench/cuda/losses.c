/* Models trained twice from the same start and data: their losses. Lists of the bundle have, for
   each model, its name, the largest difference, steps, ranks.

   losses.list: by one executable, on the processor and on the GPU. Several ranks share the one GPU,
   and send by way of the host. nccl.list: on the GPU, by an executable whose ranks send by way of
   the host, and by one whose ranks send by NCCL. NCCL refuses two ranks on one GPU of one machine;
   a NCCL_HOSTID of each rank makes it take them for two machines, which it joins by sockets. */
#include "bundle.h"
#include "runtime/base/file.h"
#include "runtime/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1000, RANKS = 8 };

typedef struct Curves { /* the losses of both trainings */
  double loss[2][STEPS];
  int n[2];
} Curves;

typedef struct Side {
  const char *name, *device, *suffix; /* suffix: of the executable's name */
  bool nccl;
} Side;

static const Side of_devices[] = {{"cpu", "cpu", "", false}, {"gpu", "gpu", "", false}},
                  of_ways[] = {{"host", "gpu", "", false}, {"nccl", "gpu:0", ".nccl", true}};

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

/* Makes NCCL take two ranks for two machines. The GPU runs kernels of both ranks in turn, so the
   kernels of NCCL, which wait for each other, get few multiprocessors. */
static void be_node(int rank, bool nccl) {
  static const char *const settings[][2] = {
      {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29711"},     {"NCCL_NET", "Socket"},
      {"NCCL_MAX_CTAS", "2"},       {"NCCL_SOCKET_IFNAME", "lo"},
  };
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (nccl) setenv(settings[i][0], settings[i][1], 1);
    else unsetenv(settings[i][0]);
  if (nccl) setenv("NCCL_HOSTID", rt_format("rank%d", rank), 1);
  else unsetenv("NCCL_HOSTID");
}

/* Returns the first exit status that is not 0. */
static int train_ranks(Bundle *b, char *const *words, const char *log, int ranks, bool nccl,
                       double until) {
  Child child[RANKS];
  int status = 0, started = 0;
  for (; started < ranks; started++) {
    child_rank(started, ranks), be_node(started, nccl);
    if (!child_start(&child[started], words, b->out, log, false)) break;
  }
  child_rank(0, 1), be_node(0, false);
  if (started < ranks) status = 1;
  for (int i = 0; i < started; i++) {
    int one = child_wait(&child[i], status ? rt_now() : until);
    if (!status) status = one;
  }
  return status;
}

static bool train(Bundle *b, const Line *l, const Side *side, double until, double *loss, int *n,
                  char *why, int size) {
  char *exe = bundle_path(b, "models/%s%s", l->word[0], side->suffix);
  char *text = bundle_path(b, "text.txt"), *device = (char *)side->device;
  char *out = out_path(b, "losses/%s.%s", l->word[0], side->name);
  char *log = out_path(b, "losses/%s.%s.log", l->word[0], side->name);
  char *steps = b->quick ? "3" : l->word[2];
  int ranks = l->word[3] ? atoi(l->word[3]) : 1;
  char *words[] = {
      exe,        "train", "--data",       text, "--steps", steps, "--out",          out,
      "--device", device,  "--save-every", "0",  "--valid", "10%", "--eval-batches", "1",
      NULL};
  if (ranks < 1 || ranks > RANKS) return snprintf(why, (size_t)size, "%d ranks", ranks), false;
  int status = train_ranks(b, words, log, ranks, side->nccl, until);
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

static int failed(Bundle *b, const Line *l, const Side *side, const char *why) {
  bool absent = side->nccl && strstr(why, "R1009"); /* this machine has no NCCL */
  put_row(b, "{\"name\": %s, \"good\": false, \"device\": \"%s\", \"why\": %s}", quoted(l->word[0]),
          side->name, quoted(why));
  say(b, "%-14s %s %s: %s\n", l->word[0], absent ? "not tried" : "failed",
      side->nccl                    ? "by NCCL"
      : strcmp(side->device, "cpu") ? "on the GPU"
                                    : "on the processor",
      why);
  return absent ? PART_SKIPPED : PART_BAD;
}

static int one_model(Bundle *b, const Line *l, const Side *side, double until) {
  static Curves c;
  char why[400];
  double most = strtod(l->word[1], NULL);
  for (int i = 0; i < 2; i++)
    if (!train(b, l, &side[i], until, c.loss[i], &c.n[i], why, sizeof why))
      return failed(b, l, &side[i], why);
  double worst = worst_of(&c), first = c.loss[1][0], last = c.loss[1][c.n[1] - 1];
  put_row(b,
          "{\"name\": %s, \"good\": %s, \"steps\": %d, \"worst\": %.3g, \"allowed\": %g, "
          "\"first\": %.6f, \"last\": %.6f}",
          quoted(l->word[0]), worst <= most ? "true" : "false", c.n[1], fmin(worst, 1e9), most,
          first, last);
  say(b, "%-14s %4d steps, loss %.4f to %.4f, differs by %.1e at most (%.0e allowed)%s\n",
      l->word[0], c.n[1], first, last, worst, most, worst <= most ? "" : "  WRONG");
  return worst <= most ? PART_GOOD : PART_BAD;
}

static int compare(Bundle *b, const char *name, const Side *side) {
  int n, of[PART_SKIPPED + 1] = {0};
  Line *list = read_list(b, name, &n);
  if (!fresh_folder(b, "losses")) return PART_BAD;
  for (int i = 0; list && i < n; i++) {
    double now = rt_now();
    if (!list[i].word[2]) continue;
    of[one_model(b, &list[i], side, now + 2 * (b->ends - now) / (n - i + 1))]++;
  }
  if (!list || of[PART_BAD]) return PART_BAD;
  return of[PART_SKIPPED] ? PART_SKIPPED : PART_GOOD;
}

int part_losses(Bundle *b) { return compare(b, "losses.list", of_devices); }

int part_nccl(Bundle *b) { return compare(b, "nccl.list", of_ways); }
