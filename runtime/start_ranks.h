/* Starting the ranks of one machine as processes (start_ranks.c). */
#ifndef SHARDC_RT_START_RANKS_H
#define SHARDC_RT_START_RANKS_H
#include <stdbool.h>

enum { RT_MOST_RANKS = 1024, RT_IS_RANK = -1 };

typedef struct RankStart {
  const char *program;      /* for messages: who starts them */
  char **command;           /* what each rank executes; NULL: a rank returns from the call */
  int n, first, world;      /* ranks of this machine, number of the first, ranks of the job */
  bool bind, gpus, verbose; /* bind: to cores of their own, of the NUMA nodes of their GPUs */
} RankStart;

/* Starts the ranks and waits for them: the exit status of the first that failed. RT_IS_RANK: this
   process is one of the ranks, and `command` is NULL. Called while there is one thread. */
int rt_start_ranks(const RankStart *start);
#endif
