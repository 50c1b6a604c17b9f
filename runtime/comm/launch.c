/* Which rank is this? Launchers say so in the environment, each with variables of its own; the
   first set found wins. Open MPI precedes Slurm, because mpirun inside an allocation sets both;
   Slurm counts only inside a step, because the batch shell also has SLURM_PROCID = 0. Ranks of
   several machines meet at MASTER_ADDR and MASTER_PORT, or at an address derived from Slurm's list
   of nodes. Must not: guess; half a set is refused. */
#include "comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Launcher {
  const char *inside; /* must be set, else this set of variables is ignored; NULL: never ignored */
  const char *rank, *world, *local_rank, *local_world;
  const char *job[3]; /* together the same for all ranks of a job */
} Launcher;

static const Launcher launchers[] = {
    {NULL,
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     {"SHARDC_JOB", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}},
    {NULL,
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE"}},
    {NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {NULL}},
    {"SLURM_STEP_ID",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL,
     {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

static bool number(const char *name, int otherwise, int *to, Fault *f) {
  const char *text = name ? getenv(name) : NULL;
  char *end;
  *to = otherwise;
  if (!text || !*text) return true;
  long v = strtol(text, &end, 10);
  if (*end || v < 0 || v > 1 << 24)
    return rt_fault(f, 101, "%s is `%s`: not a rank or a number of ranks", name, text);
  *to = (int)v;
  return true;
}

/* Slurm's tasks per node: 2(x3),1 is 2, 2, 2, 1. Returns those of node `node`, 0 if unknown. */
static int tasks_on(const char *text, int node) {
  for (int at = 0; text && *text;) {
    int n = 0, times = 1, used = 0;
    if (sscanf(text, "%d%n", &n, &used) != 1) return 0;
    text += used;
    if (sscanf(text, "(x%d)%n", &times, &used) == 1) text += used;
    if (node < (at += times)) return n;
    if (*text == ',') text++;
    else if (*text) return 0;
  }
  return 0;
}

/* Without a name, the parent process identifies the job: launchers start all ranks of a machine. */
static void name_job(Launch *launch, const Launcher *from) {
  size_t n = 0;
  for (int i = 0; i < 3 && from->job[i]; i++) {
    const char *text = getenv(from->job[i]);
    if (text && n < sizeof launch->job)
      n += (size_t)snprintf(launch->job + n, sizeof launch->job - n, "%s/", text);
  }
  launch->named = n > 0;
  if (!n) snprintf(launch->job, sizeof launch->job, "parent %ld", (long)getppid());
}

/* ---- where ranks of several machines meet ---- */

/* The first of n[01-03,7],m2 is n01. */
static void first_host(const char *list, char *to, size_t size) {
  size_t n = strcspn(list, "[,"), digits = list[n] == '[' ? strcspn(list + n + 1, "-,]") : 0;
  snprintf(to, size, "%.*s%.*s", (int)n, list, (int)digits, list + n + 1);
}

/* A port that the steps of a job share, and other jobs hardly have. */
static int port_of_step(void) {
  const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
  return 20000 +
         (int)((strtoul(job ? job : "0", NULL, 10) * 16 + strtoul(step ? step : "0", NULL, 10)) %
               10000);
}

/* torchrun listens at MASTER_PORT itself: its ranks take one of the ports after it. */
static void find_place(Launch *launch, const Launcher *from) {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT"),
             *store = getenv("TORCHELASTIC_USE_AGENT_STORE"),
             *nodes = getenv("SLURM_STEP_NODELIST");
  bool taken = store && !strcmp(store, "True") && port && atoi(port) > 0;
  launch->ports = taken ? 8 : 1;
  if (host && *host) {
    launch->place_from = "MASTER_ADDR, MASTER_PORT";
    if (taken) snprintf(launch->place, sizeof launch->place, "%s:%d", host, atoi(port) + 1);
    else
      snprintf(launch->place, sizeof launch->place, "%s:%s", host, port && *port ? port : "29500");
  } else if (!strncmp(from->rank, "SLURM", 5) && nodes && *nodes) {
    char name[256];
    first_host(nodes, name, sizeof name);
    launch->place_from = "SLURM_STEP_NODELIST";
    snprintf(launch->place, sizeof launch->place, "%s:%d", name, port_of_step());
  }
}

static bool read_set(Launch *launch, const Launcher *from, Fault *f) {
  int node, local = 0;
  launch->from = from->rank;
  if (!number(from->rank, 0, &launch->rank, f) || !number(from->world, 1, &launch->world, f))
    return false;
  if (!strncmp(from->rank, "SLURM", 5)) {
    if (!number("SLURM_NODEID", 0, &node, f)) return false;
    local = tasks_on(getenv("SLURM_STEP_TASKS_PER_NODE"), node);
  }
  if (!number(from->local_rank, launch->rank, &launch->local_rank, f)) return false;
  if (!number(from->local_world, local ? local : launch->world, &launch->local_world, f))
    return false;
  name_job(launch, from), find_place(launch, from);
  /* By hand, or where a launcher does not count them, ranks with a place may be anywhere. */
  launch->counted = local || (from->local_world && getenv(from->local_world));
  launch->apart = launch->local_world != launch->world || (!launch->counted && *launch->place);
  if (launch->rank < launch->world) return true;
  return rt_fault(f, 101, "%s is %d, but %s is %d: ranks count from 0", from->rank, launch->rank,
                  from->world, launch->world);
}

bool rt_launch_find(Launch *launch, Fault *f) {
  *launch = (Launch){.world = 1, .local_world = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const Launcher *from = &launchers[i];
    const char *rank = getenv(from->rank), *world = getenv(from->world);
    if ((from->inside && !getenv(from->inside)) || (!rank && !world)) continue;
    if (rank && world) return read_set(launch, from, f);
    if (world && atoi(world) <= 1) continue;
    rt_fault(f, 101, "%s is set, but %s is not", rank ? from->rank : from->world,
             rank ? from->world : from->rank);
    return rt_help(f, "launchers set both; unset it to start one rank");
  }
  return true;
}

double rt_seconds_of(const char *name, double otherwise) {
  const char *text = getenv(name);
  double v = text ? strtod(text, NULL) : 0;
  return v > 0 ? v : otherwise;
}
