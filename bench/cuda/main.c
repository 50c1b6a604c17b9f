/* The one command of a bundle: runs the parts of parts.def one after the other, each as a process
   with a time limit, and joins what they wrote in OUT/results.json and OUT/table.txt, after every
   part anew. A part that fails or hangs costs its own results and nothing else; a signal ends the
   part that runs and then the command, with results so far.

   All parts see one GPU: the first that can run the bundle, or the requested one. Others are hidden
   by CUDA_VISIBLE_DEVICES, so that models and PyTorch take the same one. */
#include "bundle.h"
#include "runtime/base/file.h"
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct Part {
  const char *name;
  double seconds;
  const char *what;
  int (*run)(Bundle *b);
  bool wanted;
  const char *state; /* NULL: not run yet */
  double took;
  char seen[300], clocks[300]; /* of its clocks: words, members of its object */
} Part;

static Part parts[] = {
#define PART(name, seconds, what) {#name, seconds, what, part_##name, true, NULL, 0, "", ""},
#include "parts.def"
#undef PART
};

enum { COUNT = sizeof parts / sizeof *parts, LATE = -1, STOPPED = -2 };

static volatile sig_atomic_t stopped;

static void stop(int signal) {
  (void)signal;
  stopped = 1;
}

/* ---- one part ---- */

static _Noreturn void part_main(Bundle *b, const Part *p) {
  char *log = out_path(b, "%s.log", p->name);
  setpgid(0, 0), prctl(PR_SET_PDEATHSIG, SIGKILL); /* with the command */
  signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL);
  if (!freopen(log, "w", stderr)) exit(PART_BAD);
  setvbuf(stderr, NULL, _IONBF, 0); /* a part's children may end without writing what is kept */
  b->rows = fopen(out_path(b, "%s.jsonl", p->name), "w");
  b->table = fopen(out_path(b, "%s.txt", p->name), "w");
  if (!b->rows || !b->table) exit(PART_BAD);
  say(b, "\n== %s: %s\n", p->name, p->what);
  int status = p->run(b);
  fclose(b->rows), fclose(b->table);
  exit(status);
}

static const char *state_of(int status, char *words, size_t n) {
  if (status == LATE) return "ended at its time limit";
  if (status == STOPPED) return "interrupted";
  if (status == PART_GOOD) return "good";
  if (status == PART_SHORT) return "out of time";
  if (status == PART_BAD) return "failed";
  if (status == PART_SKIPPED) return "skipped";
  snprintf(words, n, status > 128 ? "died of signal %d" : "ended with status %d", status & 127);
  return words;
}

/* Parts look at the time themselves; this is for those that hang. */
static int wait_part(pid_t pid, double until) {
  const struct timespec nap = {.tv_nsec = 10000000};
  int status = 0, ended = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (stopped) ended = STOPPED;
    else if (rt_now() > until) ended = LATE;
    if (ended) kill(-pid, SIGKILL);
    nanosleep(&nap, NULL);
  }
  kill(-pid, SIGKILL);
  if (ended) return ended;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void run_part(Bundle *b, Part *p, double scale) {
  static char words[COUNT][60];
  double start = rt_now();
  b->ends = start + p->seconds * scale;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) part_main(b, p);
  if (pid > 0) setpgid(pid, pid);
  int status = pid > 0 ? wait_part(pid, b->ends + 2) : PART_BAD;
  p->state = state_of(status, words[p - parts], sizeof words[0]), p->took = rt_now() - start;
  clocks_since(b, p->seen, p->clocks, sizeof p->clocks);
  printf("   %s: %s, %.0f s%s\n", p->name, p->state, p->took, p->seen);
}

/* ---- all results ---- */

static void append(FILE *out, const char *path, bool rows) {
  char line[4000];
  bool first = true;
  FILE *in = fopen(path, "r");
  while (in && fgets(line, sizeof line, in)) {
    size_t n = strcspn(line, "\n");
    if (rows && line[n] != '\n') break; /* broken off while it was written */
    if (rows) fprintf(out, "%s\n      %.*s", first ? "" : ",", (int)n, line);
    else fputs(line, out);
    first = false;
  }
  if (in) fclose(in);
}

static bool write_json(const Bundle *b) {
  char *path = out_path(b, "results.json"), *fresh = out_path(b, "results.json.new"), date[32];
  FILE *out = fopen(fresh, "w");
  time_t now = time(NULL);
  if (!out) return false;
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
  fprintf(out, "{\"written\": \"%s\", \"quick\": %s, \"parts\": {", date,
          b->quick ? "true" : "false");
  for (int i = 0, n = 0; i < COUNT; i++) {
    if (!parts[i].state) continue;
    fprintf(out, "%s\n  \"%s\": {\"state\": \"%s\", \"seconds\": %.1f%s, \"rows\": [",
            n++ ? "," : "", parts[i].name, parts[i].state, parts[i].took, parts[i].clocks);
    append(out, out_path(b, "%s.jsonl", parts[i].name), true);
    fprintf(out, "]}");
  }
  fprintf(out, "\n}}\n");
  return !fclose(out) && !rename(fresh, path);
}

static bool write_table(const Bundle *b) {
  FILE *out = fopen(out_path(b, "table.txt"), "w");
  if (!out) return false;
  for (int i = 0; i < COUNT; i++) {
    if (!parts[i].state) continue;
    append(out, out_path(b, "%s.txt", parts[i].name), false);
    fprintf(out, "   %s: %s, %.0f s%s\n", parts[i].name, parts[i].state, parts[i].took,
            parts[i].seen);
  }
  return !fclose(out);
}

/* ---- the command line ---- */

static _Noreturn void usage(int status) {
  printf("usage: run [--quick] [--only PART,PART] [--device N] [--out DIR] [--minutes N]\n\n"
         "Checks and measures shardc's GPU code on one GPU of this machine. It needs NVIDIA's\n"
         "driver; SHARDC_LIBCUDA=FILE names another one.\n\n");
  for (int i = 0; i < COUNT; i++)
    printf("  %-10s %s (%.0f s at most)\n", parts[i].name, parts[i].what, parts[i].seconds);
  printf("\n  --quick    small sizes and few of everything\n"
         "  --device   which GPU, from 0; without it, the first that can run the bundle\n"
         "  --minutes  another limit than 8 minutes, shared out in the same way\n"
         "  --out      where results.json and table.txt go; without it, ./results\n\n"
         "exit status: 0 all parts good, 1 a part failed or ran out of time, 2 usage,\n"
         "             4 there is no GPU that can be used\n");
  exit(status);
}

static void choose(const char *only) {
  for (int i = 0; i < COUNT; i++) parts[i].wanted = false;
  for (size_t n; *only; only += n + (only[n] == ',')) {
    bool known = false;
    n = strcspn(only, ",");
    for (int i = 0; i < COUNT; i++)
      if (strlen(parts[i].name) == n && !strncmp(parts[i].name, only, n))
        parts[i].wanted = known = true;
    if (!known) printf("no part is called `%.*s`\n\n", (int)n, only), usage(2);
  }
}

static double read_options(Bundle *b, int argc, char **argv, int *device) {
  double minutes = 8;
  const char *out = "results";
  for (int i = 1; i < argc; i++) {
    char *end = "";
    bool value = i + 1 < argc;
    if (!strcmp(argv[i], "--quick")) b->quick = true;
    else if (!strcmp(argv[i], "--only") && value) choose(argv[++i]);
    else if (!strcmp(argv[i], "--out") && value) out = argv[++i];
    else if (!strcmp(argv[i], "--minutes") && value) minutes = strtod(argv[++i], &end);
    else if (!strcmp(argv[i], "--device") && value) *device = (int)strtol(argv[++i], &end, 10);
    else usage(strcmp(argv[i], "--help") ? 2 : 0);
    if (*end || !(minutes > 0)) usage(2);
  }
  Fault f = {0};
  if (!rt_make_folders(out, &f)) rt_die(&f);
  if (!realpath(out, b->out)) usage(2);
  return minutes / 8;
}

static void find_folder(Bundle *b) {
  ssize_t n = readlink("/proc/self/exe", b->folder, sizeof b->folder - 1);
  b->folder[n > 0 ? n : 0] = 0;
  char *slash = strrchr(b->folder, '/');
  if (slash) *slash = 0;
}

/* File `parts` names the parts whose kernels and models are in the bundle; without it all are.
   False: none of the wanted parts is in the bundle. */
static bool drop_absent(const Bundle *b) {
  int n, left = 0;
  Line *list = read_list(b, "parts", &n);
  for (int i = 0; i < COUNT; i++) {
    bool absent = parts[i].wanted && list;
    for (int k = 0; absent && k < n; k++) absent = strcmp(list[k].word[0], parts[i].name) != 0;
    if (absent) printf("%s: not in this bundle\n", parts[i].name), parts[i].wanted = false;
    left += parts[i].wanted;
  }
  return left > 0;
}

/* ---- which GPU ---- */

typedef struct Choice {
  int number, of;
  char place[40];
} Choice;

static bool can_run(const Gpu *g, int number, int asked) {
  bool old = g->device.sm < NEEDS_SM;
  printf("GPU %d: %s, sm_%d, %.1f GB, driver %d.%d%s\n", number, g->device.name, g->device.sm,
         1e-9 * (double)g->device.bytes, g->api.version / 1000, g->api.version % 1000 / 10,
         old ? ": too old, all code of the bundle needs sm_80" : "");
  return !old && (asked < 0 || asked == number);
}

/* Its place on the bus, as nvidia-smi takes it. */
static void place_of(const Gpu *g, char *out, int size) {
  CUresult (*place)(char *, int, CUdevice);
  *(void **)&place = dlsym(g->api.library, "cuDeviceGetPCIBusId");
  if (!place || place(out, size, g->device.handle)) *out = 0;
}

/* The number of the GPU to take, -1: none. */
static int choose_gpu(int asked, Choice *c) {
  Gpu g = {0};
  int n = 0, number = -1;
  Fault f = {0};
  if (!rt_cuda_load(&g.api, &f)) return printf("no GPU that can be used: %s\n", f.what), -1;
  g.api.cuDeviceGetCount(&n);
  for (int i = 0; i < n; i++)
    if (rt_cuda_device(&g.api, i, &g.device, &f) && can_run(&g, i, asked) && number < 0) number = i;
  if (number < 0 && asked >= n) printf("there is no GPU %d\n", asked);
  if (number < 0) return printf("no GPU that can be used\n"), -1;
  if (!gpu_open(&g, number)) return printf("no GPU that can be used: %s\n", g.why), -1;
  place_of(&g, c->place, sizeof c->place), c->of = n;
  return number;
}

/* Entry `number` of what is visible is all that is visible from now on. */
static void hide_others(int number) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; list && i < number && strchr(list, ','); i++) list = strchr(list, ',') + 1;
  char *one = list ? rt_format("%.*s", (int)strcspn(list, ","), list) : rt_format("%d", number);
  setenv("CUDA_VISIBLE_DEVICES", one, 1);
  free(one);
}

/* Asked in a process of its own, so that this one never holds a context. */
static Choice ask_gpu(int asked) {
  Choice c = {.number = -1};
  int ends[2], status = 1;
  fflush(NULL);
  if (pipe(ends)) return c;
  pid_t pid = fork();
  if (!pid) {
    c.number = choose_gpu(asked, &c);
    exit(write(ends[1], &c, sizeof c) != sizeof c);
  }
  close(ends[1]);
  if (pid < 0 || read(ends[0], &c, sizeof c) != sizeof c) c.number = -1;
  close(ends[0]);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return c;
}

/* The driver's assembled code is kept for the other processes, also without HOME. */
static void keep_code(const Bundle *b) {
  if (fresh_folder(b, "cache")) setenv("CUDA_CACHE_PATH", out_path(b, "cache"), 0);
}

static int run_parts(Bundle *b, double scale) {
  int bad = 0;
  for (int i = 0; i < COUNT && !stopped; i++) {
    if (!parts[i].wanted) continue;
    run_part(b, &parts[i], scale);
    bad += strcmp(parts[i].state, "good") && strcmp(parts[i].state, "skipped");
    if (!write_json(b) || !write_table(b)) printf("cannot write results to %s\n", b->out), bad++;
  }
  return bad;
}

int main(int argc, char **argv) {
  Bundle b = {0};
  int device = -1;
  signal(SIGPIPE, SIG_IGN);
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
  find_folder(&b);
  double scale = read_options(&b, argc, argv, &device);
  if (!drop_absent(&b)) return 2;
  Choice c = ask_gpu(device);
  if (c.number < 0) return 4;
  if (c.of > 1) hide_others(c.number);
  keep_code(&b);
  signal(SIGINT, stop), signal(SIGTERM, stop), signal(SIGHUP, stop);
  clocks_start(&b, c.place);
  int bad = run_parts(&b, scale);
  clocks_stop(&b);
  fresh_folder(&b, "cache"), rmdir(out_path(&b, "cache"));
  printf("\nresults: %s/results.json, %s/table.txt\n", b.out, b.out);
  return bad != 0;
}
