/* Which rank is this? Launchers say so in the environment, each with variables of its own; the
   first set found wins. Open MPI stands before Slurm, because mpirun inside an allocation sets
   both; Slurm counts only inside a step, because the batch shell has SLURM_PROCID = 0, too. Must
   not: guess; half a set is refused. */
#include "comm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Launcher {
  const char *inside; /* must be there, else the set does not count; NULL: always counts */
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
    {NULL, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_ID"}},
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

/* What nobody names is told by the parent: launchers start all ranks of a machine. */
static void name_job(Launch *l, const Launcher *from) {
  size_t n = 0;
  for (int i = 0; i < 3 && from->job[i]; i++) {
    const char *text = getenv(from->job[i]);
    if (text && n < sizeof l->job)
      n += (size_t)snprintf(l->job + n, sizeof l->job - n, "%s/", text);
  }
  if (!n) snprintf(l->job, sizeof l->job, "parent %ld", (long)getppid());
}

static bool read_set(Launch *l, const Launcher *from, Fault *f) {
  int node, local = 0;
  l->from = from->rank;
  if (!number(from->rank, 0, &l->rank, f) || !number(from->world, 1, &l->world, f)) return false;
  if (!strncmp(from->rank, "SLURM", 5)) {
    if (!number("SLURM_NODEID", 0, &node, f)) return false;
    local = tasks_on(getenv("SLURM_STEP_TASKS_PER_NODE"), node);
  }
  if (!number(from->local_rank, l->rank, &l->local_rank, f)) return false;
  if (!number(from->local_world, local ? local : l->world, &l->local_world, f)) return false;
  name_job(l, from);
  if (l->rank < l->world) return true;
  return rt_fault(f, 101, "%s is %d, but %s is %d: ranks count from 0", from->rank, l->rank,
                  from->world, l->world);
}

bool rt_launch_find(Launch *l, Fault *f) {
  *l = (Launch){.world = 1, .local_world = 1};
  for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
    const Launcher *from = &launchers[i];
    const char *rank = getenv(from->rank), *world = getenv(from->world);
    if ((from->inside && !getenv(from->inside)) || (!rank && !world)) continue;
    if (rank && world) return read_set(l, from, f);
    if (world && atoi(world) <= 1) continue;
    rt_fault(f, 101, "%s is set, but %s is not", rank ? from->rank : from->world,
             rank ? from->world : from->rank);
    return rt_help(f, "launchers set both; unset it to start one rank");
  }
  return true;
}
