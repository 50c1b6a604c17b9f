/* `shardc run`: compiles a model and starts it, as one process or as the ranks of its plan on this
   machine.

   Rank 0 has the terminal; what other ranks say is passed on line by line with their number in
   front, but not what another one said already. Signals go to all ranks once. When a rank fails,
   the others are given a moment to leave by themselves, then they are killed; the exit status is
   that of the rank that failed. When this process is killed itself, the ranks save and leave, as at
   SIGTERM. Launching on several machines is the work of mpirun, srun and their kind.

   On a machine with several NUMA nodes or sockets each rank gets cores of its own, near its GPU
   (runtime/device/topology.h), and SHARDC_CPUS tells it so. */
#include "cmd.h"
#include "driver/doctor/doctor.h"
#include "driver/verify/verify_runs.h"
#include "codegen/codegen.h"
#include "ir/plan/module_settings.h"
#include "ir/support/output.h"
#include "runtime/device/topology.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  GRACE = 5,
  MOST_RANKS = 1024,
  MOST_GPUS = 16,
  LINE = 2048,
  REMEMBERED = 256,
  RESUMABLE = 75
};

typedef struct Rank {
  pid_t pid; /* 0: has ended */
  int from;  /* what it says; -1: the terminal is its own, or it has ended */
  char line[LINE];
  size_t n;
} Rank;

struct RankPlaces {
  cpu_set_t own[MOST_RANKS];
};

typedef struct Job {
  int n, alive, signals;
  Rank *rank;
  char **command;
  const RankPlaces *places; /* NULL: ranks may run anywhere */
  pid_t group;
  char name[64];
  int status;    /* of the first that failed, or of all */
  double failed; /* when; 0: none has */
  bool killed;
  uint64_t said[REMEMBERED]; /* lines that other ranks than 0 have said */
  int nsaid;
} Job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- starting ---- */

static void put(const char *name, int v) {
  char text[16];
  snprintf(text, sizeof text, "%d", v);
  setenv(name, text, 1);
}

static void take_place(const Job *job, int i) {
  char text[1024];
  if (!job->places || sched_setaffinity(0, sizeof(cpu_set_t), &job->places->own[i])) return;
  setenv("SHARDC_CPUS", rt_cpus_text(&job->places->own[i], text, sizeof text), 1);
}

static _Noreturn void become(const Job *job, int i, int say) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, job->group);
  if (job->n > 1) {
    put("RANK", i), put("WORLD_SIZE", job->n), put("LOCAL_RANK", i),
        put("LOCAL_WORLD_SIZE", job->n);
    setenv("SHARDC_JOB", job->name, 1);
    take_place(job, i);
  }
  if (say >= 0) {
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, 0);
    dup2(say, 1), dup2(say, 2);
  }
  execv(job->command[0], job->command);
  output_say(stderr, "shardc: cannot run `%s`: %s\n", job->command[0], strerror(errno));
  _exit(127);
}

static bool start_rank(Job *job, int i) {
  int line[2] = {-1, -1};
  if (i && pipe2(line, O_CLOEXEC)) return false;
  pid_t pid = fork();
  if (pid == 0) become(job, i, line[1]);
  if (line[1] >= 0) close(line[1]);
  if (pid < 0) return false;
  if (!i) job->group = pid;
  setpgid(pid, job->group);
  if (line[0] >= 0) fcntl(line[0], F_SETFL, O_NONBLOCK);
  job->rank[i] = (Rank){.pid = pid, .from = line[0]};
  job->alive++;
  return true;
}

static bool watch_signals(Job *job) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD), sigaddset(&set, SIGINT), sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1), sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, NULL);
  job->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  return job->signals >= 0;
}

/* ---- what ranks say ---- */

static bool said_before(Job *job, const char *line) {
  uint64_t sum = 14695981039346656037u; /* FNV-1a */
  for (; *line; line++) sum = (sum ^ (unsigned char)*line) * 1099511628211u;
  for (int i = 0; i < job->nsaid && i < REMEMBERED; i++)
    if (job->said[i] == sum) return true;
  job->said[job->nsaid++ % REMEMBERED] = sum;
  return false;
}

static void say_line(Job *job, int i) {
  Rank *rank = &job->rank[i];
  rank->line[rank->n] = 0, rank->n = 0;
  if (!said_before(job, rank->line)) fprintf(stderr, "[rank %d] %s\n", i, rank->line);
}

static void listen_to(Job *job, int i) {
  Rank *rank = &job->rank[i];
  char part[4096];
  for (ssize_t got; rank->from >= 0;) {
    got = read(rank->from, part, sizeof part);
    if (got < 0) return;
    for (ssize_t k = 0; k < got; k++)
      if (part[k] == '\n' || rank->n == LINE - 1) say_line(job, i);
      else rank->line[rank->n++] = part[k];
    if (got) continue;
    if (rank->n) say_line(job, i);
    close(rank->from), rank->from = -1;
  }
}

/* ---- ends ---- */

static void note_end(Job *job, int i, int status) {
  bool signalled = WIFSIGNALED(status);
  int code = signalled ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  job->rank[i].pid = 0, job->alive--;
  listen_to(job, i);
  if (signalled && !job->killed && job->n > 1)
    fprintf(stderr, "shardc: rank %d was ended by signal %d (%s)\n", i, WTERMSIG(status),
            strsignal(WTERMSIG(status)));
  if (!code || job->killed) return;
  /* Ranks that leave because another one failed leave with 1: the cause counts. */
  if (job->failed <= 0 || job->status == 1) job->status = code;
  if (job->failed <= 0 && code != RESUMABLE) job->failed = now();
}

static void reap(Job *job) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (int i = 0; i < job->n; i++)
      if (job->rank[i].pid == pid) note_end(job, i, status);
}

static void forward(Job *job, int number) {
  if (job->n == 1) kill(job->rank[0].pid, number);
  else kill(-job->group, number);
}

static void read_signals(Job *job) {
  struct signalfd_siginfo s;
  while (read(job->signals, &s, sizeof s) == (ssize_t)sizeof s)
    if (s.ssi_signo == SIGCHLD) reap(job);
    else if (job->alive) forward(job, (int)s.ssi_signo == SIGHUP ? SIGTERM : (int)s.ssi_signo);
}

static int look_after(Job *job) {
  struct pollfd *p = heap_new((size_t)job->n + 1, sizeof *p);
  while (p && job->alive) {
    p[0] = (struct pollfd){job->signals, POLLIN, 0};
    for (int i = 0; i < job->n; i++) p[i + 1] = (struct pollfd){job->rank[i].from, POLLIN, 0};
    poll(p, (nfds_t)job->n + 1, job->failed > 0 ? 200 : -1);
    for (int i = 0; i < job->n; i++)
      if (p[i + 1].revents) listen_to(job, i);
    read_signals(job);
    if (job->failed > 0 && !job->killed && now() > job->failed + GRACE)
      job->killed = true, kill(-job->group, SIGKILL);
  }
  free(p);
  return job->status;
}

int run_ranks(char **command, int n, const RankPlaces *places) {
  Job job = {
      .n = n, .command = command, .places = places, .rank = heap_new((size_t)n, sizeof(Rank))};
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  snprintf(job.name, sizeof job.name, "run %ld %lld.%09ld", (long)getpid(), (long long)t.tv_sec,
           t.tv_nsec);
  bool ok = job.rank && watch_signals(&job);
  for (int i = 0; ok && i < n; i++) ok = start_rank(&job, i);
  if (!ok) {
    fprintf(stderr, "shardc: cannot start %d processes: %s\n", n, strerror(errno));
    if (job.group) kill(-job.group, SIGKILL);
    free(job.rank);
    return EXIT_ENVIRONMENT;
  }
  int status = look_after(&job);
  close(job.signals);
  free(job.rank);
  return status;
}

/* ---- the command ---- */

static bool is_executable(const char *path) {
  char mark[4] = "";
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool elf = fd >= 0 && read(fd, mark, 4) == 4 && !memcmp(mark, "\177ELF", 4);
  if (fd >= 0) close(fd);
  return elf;
}

static Exit count_ranks(const Cli *o, const Module *m, int *n) {
  const char *text = o->value[OPT_RANKS];
  char *end;
  *n = 1;
  for (uint32_t i = 0; m && i < m->mesh.n; i++) *n *= (int)m->mesh.at[i].size;
  if (!text) return EXIT_FINE;
  long v = strtol(text, &end, 10);
  if (*end || end == text || v < 1 || v > MOST_RANKS)
    return cli_usage("`--ranks` wants a number from 1 to %d, not `%s`", MOST_RANKS, text);
  *n = (int)v;
  return EXIT_FINE;
}

/* Makes executables find the stand-in as the driver of a GPU. */
static Exit find_standin(Cli *o) {
  const char *path = standin_path(o->c->arena);
  if (access(path, R_OK)) {
    Report *r = diag_at(o->c->diag, "E1314", (Span){0}, "cannot find the stand-in for a GPU");
    diag_fact(r, "looked for `%s`", path);
    diag_help(r, "build shardc with its tests, or set SHARDC_LIB to the folder that holds emulate");
    return cli_report(o, EXIT_ENVIRONMENT);
  }
  standin_use(o->c->arena);
  return EXIT_FINE;
}

/* NULL: ranks may run anywhere. The target of a given executable is unknown; its ranks take cores
   in the order of NUMA nodes, as GPUs are numbered in most machines. */
static const RankPlaces *places_of(Cli *o, const Module *m, int n) {
  const char *bind = getenv("SHARDC_BIND");
  Topology *topology = ARENA_NEW(o->c->arena, Topology);
  RankPlaces *places = ARENA_NEW(o->c->arena, RankPlaces);
  cpu_set_t allowed;
  char text[1024];
  bool gpus = m && module_on_gpu(m) && !o->value[OPT_EMULATE];
  if (n < 2 || (bind && !strcmp(bind, "off")) || !rt_topology_read(NULL, topology) ||
      sched_getaffinity(0, sizeof allowed, &allowed))
    return NULL;
  rt_topology_see(topology);
  for (int i = 0; i < n; i++)
    if (!rt_topology_share(topology, &allowed, i, n, gpus, &places->own[i])) return NULL;
  for (int i = 0; o->value[OPT_VERBOSE] && i < n; i++)
    fprintf(stderr, "rank %d: processors %s\n", i,
            rt_cpus_text(&places->own[i], text, sizeof text));
  return places;
}

static Exit run_it(Cli *o, const char *exe, const Module *m) {
  Strings words = {0};
  int n;
  Exit e = count_ranks(o, m, &n);
  if (e != EXIT_FINE) return e;
  if (o->value[OPT_EMULATE] && !getenv("SHARDC_EMULATE_DEVICES"))
    put("SHARDC_EMULATE_DEVICES", n < MOST_GPUS ? n : MOST_GPUS);
  vec_push(o->c->arena, words, strchr(exe, '/') ? exe : arena_printf(o->c->arena, "./%s", exe));
  for (uint32_t i = 1; i < o->operands.n; i++) vec_push(o->c->arena, words, o->operands.at[i]);
  vec_push(o->c->arena, words, NULL);
  return (Exit)run_ranks((char **)words.at, n, places_of(o, m, n));
}

Exit cmd_run(Cli *o) {
  const char *base = getenv("TMPDIR");
  Module *m;
  Exit e = o->value[OPT_EMULATE] ? find_standin(o) : EXIT_FINE;
  if (e != EXIT_FINE) return e;
  if (is_executable(o->operands.at[0])) return run_it(o, o->operands.at[0], NULL);
  char *folder = arena_printf(o->c->arena, "%s/shardc-run.XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(folder)) {
    diag_at(o->c->diag, "E0002", (Span){0}, "cannot write `%s`: %s", folder, strerror(errno));
    return cli_report(o, EXIT_ENVIRONMENT);
  }
  const char *exe = arena_printf(o->c->arena, "%s/model", folder);
  o->here = true;
  e = compile_executable(o, exe, &m);
  if (e == EXIT_FINE) e = run_it(o, exe, m);
  unlink(exe), rmdir(folder);
  return e;
}
