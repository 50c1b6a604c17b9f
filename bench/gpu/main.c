/* The one command of a bundle: runs the parts of parts.def one after the other, each as a process
   with a time limit, and joins what they wrote in OUT/results.json and OUT/table.txt, after every
   part anew. A part that fails or hangs costs its own results and nothing else. */
#include "bundle.h"
#include "runtime/file.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
} Part;

static Part parts[] = {
#define PART(name, seconds, what) {#name, seconds, what, part_##name, true, NULL, 0},
#include "parts.def"
#undef PART
};

enum { COUNT = sizeof parts / sizeof *parts };

/* ---- one part ---- */

static _Noreturn void part_main(Bundle *b, const Part *p) {
  char *log = out_path(b, "%s.log", p->name);
  setpgid(0, 0);
  if (!freopen(log, "w", stderr)) exit(PART_BAD);
  b->rows = fopen(out_path(b, "%s.jsonl", p->name), "w");
  b->table = fopen(out_path(b, "%s.txt", p->name), "w");
  if (!b->rows || !b->table) exit(PART_BAD);
  say(b, "\n== %s: %s\n", p->name, p->what);
  int status = p->run(b);
  fclose(b->rows), fclose(b->table);
  exit(status);
}

static const char *state_of(int status, char *words, size_t n) {
  if (status < 0) return "ended at its time limit";
  if (status == PART_GOOD) return "good";
  if (status == PART_BAD) return "failed";
  if (status == PART_SKIPPED) return "skipped";
  snprintf(words, n, status > 128 ? "died of signal %d" : "ended with status %d", status & 127);
  return words;
}

/* As child_wait, and gentle first: a part that is ended may still write what it has. */
static int wait_part(pid_t pid, double until) {
  const struct timespec nap = {.tv_nsec = 10000000};
  int status = 0;
  bool late = false;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (rt_now() > until) late = true, kill(-pid, SIGKILL);
    nanosleep(&nap, NULL);
  }
  kill(-pid, SIGKILL);
  if (late) return -1;
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
  printf("   %s: %s, %.0f s\n", p->name, p->state, p->took);
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
    fprintf(out, "%s\n  \"%s\": {\"state\": \"%s\", \"seconds\": %.1f, \"rows\": [", n++ ? "," : "",
            parts[i].name, parts[i].state, parts[i].took);
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
    fprintf(out, "   %s: %s, %.0f s\n", parts[i].name, parts[i].state, parts[i].took);
  }
  return !fclose(out);
}

/* ---- the command line ---- */

static _Noreturn void usage(int status) {
  printf("usage: run [--quick] [--only PART,PART] [--out DIR] [--minutes N]\n\n"
         "Checks and measures shardc's GPU code on this machine's first GPU. It needs NVIDIA's\n"
         "driver; SHARDC_LIBCUDA=FILE names another one.\n\n");
  for (int i = 0; i < COUNT; i++)
    printf("  %-10s %s (%.0f s at most)\n", parts[i].name, parts[i].what, parts[i].seconds);
  printf("\n  --quick    small sizes and few of everything\n"
         "  --minutes  another limit than 8 minutes, shared out in the same way\n"
         "  --out      where results.json and table.txt go; without it, ./results\n\n"
         "exit status: 0 all parts good, 1 a part failed, 2 usage, 4 there is no GPU\n");
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

static double read_options(Bundle *b, int argc, char **argv) {
  double minutes = 8;
  const char *out = "results";
  for (int i = 1; i < argc; i++) {
    char *end = "";
    bool value = i + 1 < argc;
    if (!strcmp(argv[i], "--quick")) b->quick = true;
    else if (!strcmp(argv[i], "--only") && value) choose(argv[++i]);
    else if (!strcmp(argv[i], "--out") && value) out = argv[++i];
    else if (!strcmp(argv[i], "--minutes") && value) minutes = strtod(argv[++i], &end);
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

/* Asked in a process of its own, so that this one never holds a context. */
static bool has_gpu(void) {
  int status = 1;
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    Gpu g;
    bool ok = gpu_open(&g);
    if (ok)
      printf("%s, sm_%d, driver %d.%d\n", g.device.name, g.device.sm, g.api.version / 1000,
             g.api.version % 1000 / 10);
    else printf("no GPU that can be used: %s\n", g.why);
    exit(!ok);
  }
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return pid > 0 && !status;
}

int main(int argc, char **argv) {
  Bundle b = {0};
  int bad = 0;
  signal(SIGPIPE, SIG_IGN);
  find_folder(&b);
  double scale = read_options(&b, argc, argv);
  if (!has_gpu()) return 4;
  for (int i = 0; i < COUNT; i++) {
    if (!parts[i].wanted) continue;
    run_part(&b, &parts[i], scale);
    bad += strcmp(parts[i].state, "good") && strcmp(parts[i].state, "skipped");
    if (!write_json(&b) || !write_table(&b)) printf("cannot write results to %s\n", b.out), bad++;
  }
  printf("\nresults: %s/results.json, %s/table.txt\n", b.out, b.out);
  return bad != 0;
}
