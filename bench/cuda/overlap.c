/* The cost of messages for a rank whose kernels run concurrently, on one GPU. Rank 0 of a
   plan runs alone with the double of NCCL (paced.c), whose messages take the time, the memory and
   the multiprocessors of a link; the other ranks have the driver that does nothing (idle.c). The
   runtime and its control messages are those of a real job.

   overlap.list has name, ranks, bytes that a rank sends in a step, and the forecast of `plan` in
   milliseconds: of the step, and of its exposed messages. NAME is the executable, NAME.full the
   same with kernels that leave no multiprocessors to messages (pass spare). Each plan runs in the
   ways of the table below, so the part says whether messages wait for kernels that fill the GPU,
   and whether a priority of messages or multiprocessors left to them are worth their cost. Must
   not: be taken for a training; values are wrong. */
#include "bundle.h"
#include "runtime/base/file.h"
#include "runtime/metrics.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 100, MOST_RANKS = 16, WARM = 3, STEPS = 12, QUICK_STEPS = 2 };

typedef struct Way { /* settings of the double of NCCL */
  const char *name;
  double rate, latency; /* GB/s, microseconds */
  const char *priority, *suffix;
} Way;

enum { UNPACED, LINK, FIRST, FULL, NETWORK, WAYS };
static const Way ways[WAYS] = {
    [UNPACED] = {"unpaced", 0, 0, "0", ""},
    [LINK] = {"450 GB/s", 450, 5, "0", ""},
    [FIRST] = {"450 GB/s, messages first", 450, 5, "1", ""},
    [FULL] = {"450 GB/s, no SMs left", 450, 5, "0", ".full"},
    [NETWORK] = {"50 GB/s", 50, 20, "0", ""},
};

typedef struct Messages { /* of a step; milliseconds, and bytes that the rank sends */
  int n;
  double bytes, link, took, waited, longest_wait;
  bool early; /* one took less time than the link needs */
} Messages;

typedef struct Result {
  double ms, waited;
  Messages messages;
} Result;

/* ---- one run ---- */

static void set(const char *name, const char *value) {
  if (value) setenv(name, value, 1);
  else unsetenv(name);
}

static void set_double(const Bundle *b, const Way *w, const char *log) {
  /* Quick runs are on the stand-in for a GPU, which is slower than any link. */
  set("PACED_RATE", rt_format("%g", w->rate * (b->quick ? 1e-3 : 1)));
  set("PACED_LATENCY", rt_format("%g", w->latency * (b->quick ? 100 : 1)));
  set("PACED_PRIORITY", w->priority), set("PACED_LOG", log);
  set("SHARDC_LIBNCCL", bundle_path(b, "lib/libpaced.so"));
  set("SHARDC_DEBUG", "waited"), set("SHARDC_LATE", "600");
}

/* Rank 0, which is started last, has the driver of this machine. */
static bool start_ranks(Bundle *b, char *const *words, const char *log, int ranks, Child *child) {
  const char *driver = getenv("SHARDC_LIBCUDA");
  char *own = driver ? rt_copy_text(driver, strlen(driver)) : NULL;
  bool good = true;
  for (int i = ranks - 1; i >= 0; i--) {
    child_rank(i, ranks);
    set("SHARDC_LIBCUDA", i ? bundle_path(b, "lib/libidle.so") : own);
    good = good && child_start(&child[i], words, b->out, i ? "/dev/null" : log, false);
  }
  child_rank(0, 1);
  return good;
}

static double median_of_steps(const char *folder, double *waited) {
  char path[RT_PATH], line[1000];
  double ms[MOST_STEPS], wait[MOST_STEPS];
  int n = 0, seen = 0;
  StepRecord r;
  rt_join(path, folder, "metrics.jsonl");
  FILE *f = fopen(path, "r");
  while (f && n < MOST_STEPS && fgets(line, sizeof line, f))
    if (rt_metrics_line((Bytes){(uint8_t *)line, (int64_t)strcspn(line, "\n")}, &r) &&
        isfinite(r.milliseconds) && seen++ >= WARM)
      ms[n] = r.milliseconds, wait[n++] = r.waited;
  if (f) fclose(f);
  *waited = median(wait, n);
  return median(ms, n);
}

/* Messages that graphs of steps repeated; a message with fewer runs belongs to another entry. */
static Messages read_messages(const char *log) {
  Messages m = {0};
  double bytes, runs, most = 0, link, took, waited;
  char line[400];
  FILE *f = fopen(log, "r");
  while (f && fgets(line, sizeof line, f)) {
    if (sscanf(line, "%*s %*d %lf %lf %lf %lf %lf", &bytes, &runs, &link, &took, &waited) != 5 ||
        runs < most)
      continue;
    if (runs > most) m = (Messages){0}, most = runs;
    m.n++, m.bytes += bytes, m.link += 1e-3 * link;
    m.took += 1e-3 * took, m.waited += 1e-3 * waited;
    m.longest_wait = fmax(m.longest_wait, 1e-3 * waited);
    m.early |= took < 0.99 * link - 2; /* the clock has a resolution of 1 us */
  }
  if (f) fclose(f);
  return m;
}

static bool one_run(Bundle *b, const Line *l, const Way *w, double until, Result *r, char *why,
                    int size) {
  int ranks = atoi(l->word[1]), status = 0;
  char *exe = bundle_path(b, "overlap/%s%s", l->word[0], w->suffix);
  char *out = out_path(b, "overlap/run"), *log = out_path(b, "overlap/%s.log", l->word[0]);
  char *messages = out_path(b, "overlap/messages"), *tokens = bundle_path(b, "%s", l->word[5]);
  char steps[16];
  snprintf(steps, sizeof steps, "%d", WARM + (b->quick ? QUICK_STEPS : STEPS));
  char *words[] = {exe,        "train", "--data",       tokens, "--format", "u16",
                   "--steps",  steps,   "--valid",      "0%",   "--out",    out,
                   "--device", "gpu:0", "--save-every", "0",    NULL};
  Child child[MOST_RANKS] = {{0}};
  if (ranks < 2 || ranks > MOST_RANKS) return snprintf(why, (size_t)size, "%d ranks", ranks), false;
  fresh_folder(b, "overlap/run"), remove(messages);
  set_double(b, w, messages);
  status = start_ranks(b, words, log, ranks, child) ? child_wait(&child[0], until) : 1;
  for (int i = 1; i < ranks; i++) child_wait(&child[i], status ? rt_now() : until);
  last_words(log, why, size);
  if (status < 0) snprintf(why, (size_t)size, "took too long");
  r->ms = median_of_steps(out, &r->waited), r->messages = read_messages(messages);
  return !status && isfinite(r->ms);
}

/* ---- one plan ---- */

/* Did the double send as many bytes as the plan does, no faster than the link? */
static bool is_true(Bundle *b, const Line *l, const Way *w, const Result *r) {
  double planned = strtod(l->word[2], NULL), bytes = r->messages.bytes;
  if (w == &ways[UNPACED]) return true;
  if (r->messages.early)
    say(b, "%-16s %s: a message was faster than its link\n", l->word[0], w->name);
  bool all = fabs(bytes - planned) <= 0.01 * planned;
  if (!all)
    say(b, "%-16s %s: messages of %.0f bytes a step, and the plan sends %.0f\n", l->word[0],
        w->name, bytes, planned);
  return all && !r->messages.early;
}

static void show(Bundle *b, const Line *l, const Way *w, const Result *r, const Result *unpaced) {
  const Messages *m = &r->messages;
  double waited = isfinite(r->waited) ? r->waited : 0;
  double slower =
      r->ms - waited - (unpaced->ms - (isfinite(unpaced->waited) ? unpaced->waited : 0));
  put_row(b,
          "{\"name\": \"%s, %s\", \"ms\": %.4f, \"exposed_ms\": %.4f, \"slower_ms\": %.4f, "
          "\"messages\": %d, \"bytes\": %.0f, \"link_ms\": %.4f, \"took_ms\": %.4f, "
          "\"ready_ms\": %.4f, \"longest_ready_ms\": %.4f}",
          l->word[0], w->name, r->ms, waited, slower, m->n, m->bytes, m->link, m->took, m->waited,
          m->longest_wait);
  say(b, "%-16s %-26s %9.2f ms, %7.2f waited for messages, %7.2f slower kernels", l->word[0],
      w->name, r->ms, waited, slower);
  if (m->n)
    say(b, "; %d messages %.2f ms on the link, took %.2f, ready before they began %.2f (%.3f)",
        m->n, m->link, m->took, m->waited, m->longest_wait);
  say(b, "\n");
}

/* A change is advised if it saves one per cent of a step. */
static void judge(Bundle *b, const Line *l, const Result *r) {
  double first = r[LINK].ms / r[FIRST].ms, full = r[LINK].ms / r[FULL].ms;
  double best = fmax(first, full);
  const char *what = best < 1.01     ? "leave kernels and messages as they are"
                     : first >= full ? "give messages a priority"
                                     : "leave no multiprocessors to messages";
  put_row(b,
          "{\"name\": \"%s, forecast\", \"ms\": %s, \"exposed_ms\": %s, \"first\": %.4f, "
          "\"full\": %.4f, \"advice\": \"%s\"}",
          l->word[0], l->word[3], l->word[4], first, full, what);
  say(b, "%-16s forecast %s ms, exposed %s. A priority makes a step %.3f times as fast, all\n",
      l->word[0], l->word[3], l->word[4], first);
  say(b, "%-16s multiprocessors for kernels %.3f times: %s\n", "", full, what);
}

/* If one way fails (the driver may refuse a priority), the others still run. */
static bool one_plan(Bundle *b, const Line *l, double until) {
  Result r[WAYS];
  char why[400];
  bool good = true;
  for (int i = 0; i < WAYS; i++) {
    if (!one_run(b, l, &ways[i], until, &r[i], why, sizeof why)) {
      put_row(b, "{\"name\": \"%s, %s\", \"why\": %s}", l->word[0], ways[i].name, quoted(why));
      say(b, "%-16s %-26s not measured: %s\n", l->word[0], ways[i].name, why);
      good = false;
      if (i == UNPACED) return false;
      continue;
    }
    show(b, l, &ways[i], &r[i], &r[UNPACED]);
    if (!is_true(b, l, &ways[i], &r[i])) return false;
  }
  if (good) judge(b, l, r);
  return good;
}

static bool describe_device(Bundle *b) {
  Gpu g;
  if (!gpu_open(&g, 0)) return say(b, "%s\n", g.why), false;
  set("IDLE_SM", rt_format("%d", g.device.sm));
  set("IDLE_SHARED", rt_format("%d", g.device.shared_limit));
  g.api.cuDevicePrimaryCtxRelease(g.device.handle);
  return true;
}

int part_overlap(Bundle *b) {
  int n;
  bool good = true;
  Line *list = read_list(b, "overlap.list", &n);
  if (!list || !fresh_folder(b, "overlap") || !describe_device(b)) return PART_BAD;
  for (int i = 0; i < n; i++) {
    double now = rt_now();
    if (!list[i].word[5]) return PART_BAD;
    good &= one_plan(b, &list[i], now + (b->ends - now) / (n - i));
  }
  return good && n ? PART_GOOD : PART_BAD;
}
