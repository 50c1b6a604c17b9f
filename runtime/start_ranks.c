/* Starts the ranks of one machine as processes and waits for them: for `shardc run`, and for an
   executable that starts the ranks of its node itself (start_node.c).

   The first rank has the terminal; what other ranks say is passed on line by line with their number
   in front, but not what another one said already. Signals go to all ranks once. When a rank fails,
   the others are given a moment to leave by themselves, then they are killed; the exit status is
   that of the rank that failed. When this process is killed itself, the ranks save and leave, as at
   SIGTERM.

   On a machine with several NUMA nodes or sockets each rank gets cores of its own, near its GPU
   (device/topology.h), and SHARDC_CPUS tells it so. */
#include "start_ranks.h"
#include "runtime/base/file.h"
#include "runtime/device/topology.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE = 5, LINE = 2048, REMEMBERED = 256, RESUMABLE = 75, NOT_STARTED = 4 };

typedef struct Rank {
  pid_t pid; /* 0: has ended */
  int from;  /* what it says; -1: the terminal is its own, or it has ended */
  char line[LINE];
  size_t n;
} Rank;

typedef struct Job {
  const RankStart *start;
  int n, alive, signals;
  Rank *rank;
  cpu_set_t *places; /* of each rank; NULL: ranks may run anywhere */
  pid_t group;
  char name[64];
  int status;    /* of the first that failed, or of all */
  double failed; /* when; 0: none has */
  bool killed;
  uint64_t said[REMEMBERED]; /* lines that other ranks than 0 have said */
  int nsaid;
} Job;

/* ---- starting ---- */

static void put(const char *name, int v) {
  char text[16];
  snprintf(text, sizeof text, "%d", v);
  setenv(name, text, 1);
}

/* NULL: ranks may run anywhere. */
static cpu_set_t *places_of(const RankStart *start) {
  const char *bind = getenv("SHARDC_BIND");
  Topology *topology = rt_alloc(sizeof *topology);
  cpu_set_t *places = rt_alloc(sizeof *places * (size_t)start->n), allowed;
  char text[1024];
  bool good = start->bind && start->n > 1 && !(bind && !strcmp(bind, "off")) &&
              rt_topology_read(NULL, topology) && !sched_getaffinity(0, sizeof allowed, &allowed);
  if (good) rt_topology_see(topology);
  for (int i = 0; good && i < start->n; i++)
    good = rt_topology_share(topology, &allowed, i, start->n, start->gpus, &places[i]);
  free(topology);
  for (int i = 0; good && start->verbose && i < start->n; i++)
    fprintf(stderr, "rank %d: processors %s\n", start->first + i,
            rt_cpus_text(&places[i], text, sizeof text));
  if (good) return places;
  free(places);
  return NULL;
}

static void take_place(const Job *job, int i) {
  char text[1024];
  if (!job->places || sched_setaffinity(0, sizeof(cpu_set_t), &job->places[i])) return;
  setenv("SHARDC_CPUS", rt_cpus_text(&job->places[i], text, sizeof text), 1);
}

/* Ranks of several machines meet at the place that all are told, not under a name. */
static void be_rank(const Job *job, int i) {
  const RankStart *start = job->start;
  put("RANK", start->first + i), put("WORLD_SIZE", start->world);
  put("LOCAL_RANK", i), put("LOCAL_WORLD_SIZE", start->n);
  if (start->n == start->world) setenv("SHARDC_JOB", job->name, 1);
  take_place(job, i);
}

/* Returns where the rank is this process. */
static void become(const Job *job, int i, int say) {
  char **command = job->start->command;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setpgid(0, job->group);
  if (job->start->world > 1) be_rank(job, i);
  if (say >= 0) {
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, 0);
    dup2(say, 1), dup2(say, 2);
  }
  if (!command) return;
  execv(command[0], command);
  rt_say(stderr, "%s: cannot run `%s`: %s\n", job->start->program, command[0], strerror(errno));
  _exit(127);
}

/* A rank that executes nothing closes the files of the process that started it. */
static void let_go(Job *job) {
  for (int i = 0; i < job->n; i++)
    if (job->rank[i].from > 0) close(job->rank[i].from);
  close(job->signals);
}

/* RT_IS_RANK: in the process that it starts; else 0, or 1 if it failed. */
static int start_rank(Job *job, int i) {
  int line[2] = {-1, -1};
  if (i && pipe2(line, O_CLOEXEC)) return 1;
  pid_t pid = fork();
  if (pid == 0) {
    become(job, i, line[1]);
    if (line[0] >= 0) close(line[0]), close(line[1]);
    return let_go(job), RT_IS_RANK;
  }
  if (line[1] >= 0) close(line[1]);
  if (pid < 0) return 1;
  if (!i) job->group = pid;
  setpgid(pid, job->group);
  if (line[0] >= 0) fcntl(line[0], F_SETFL, O_NONBLOCK);
  job->rank[i] = (Rank){.pid = pid, .from = line[0]};
  job->alive++;
  return 0;
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
  if (!said_before(job, rank->line))
    fprintf(stderr, "[rank %d] %s\n", job->start->first + i, rank->line);
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
    fprintf(stderr, "%s: rank %d was ended by signal %d (%s)\n", job->start->program,
            job->start->first + i, WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (!code || job->killed) return;
  /* Ranks that leave because another one failed leave with 1: the cause counts. */
  if (job->failed <= 0 || job->status == 1) job->status = code;
  if (job->failed <= 0 && code != RESUMABLE) job->failed = rt_now();
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
  struct pollfd *p = rt_alloc(sizeof *p * ((size_t)job->n + 1));
  while (job->alive) {
    p[0] = (struct pollfd){job->signals, POLLIN, 0};
    for (int i = 0; i < job->n; i++) p[i + 1] = (struct pollfd){job->rank[i].from, POLLIN, 0};
    poll(p, (nfds_t)job->n + 1, job->failed > 0 ? 200 : -1);
    for (int i = 0; i < job->n; i++)
      if (p[i + 1].revents) listen_to(job, i);
    read_signals(job);
    if (job->failed > 0 && !job->killed && rt_now() > job->failed + GRACE)
      job->killed = true, kill(-job->group, SIGKILL);
  }
  free(p);
  return job->status;
}

static void name_job(Job *job) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  snprintf(job->name, sizeof job->name, "run %ld %lld.%09ld", (long)getpid(), (long long)t.tv_sec,
           t.tv_nsec);
}

int rt_start_ranks(const RankStart *start) {
  Job job = {.start = start, .n = start->n, .rank = rt_alloc(sizeof(Rank) * (size_t)start->n)};
  name_job(&job);
  job.places = places_of(start);
  int failed = !watch_signals(&job);
  fflush(stdout), fflush(stderr); /* not once by each rank */
  for (int i = 0; !failed && i < start->n; i++) failed = start_rank(&job, i);
  if (failed == RT_IS_RANK) {
    free(job.places), free(job.rank);
    return RT_IS_RANK;
  }
  if (failed)
    fprintf(stderr, "%s: cannot start %d processes: %s\n", start->program, start->n,
            strerror(errno));
  if (failed && job.group) kill(-job.group, SIGKILL);
  int status = failed ? NOT_STARTED : look_after(&job);
  close(job.signals);
  free(job.places), free(job.rank);
  return status;
}
