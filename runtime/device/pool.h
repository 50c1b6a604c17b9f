/* The workers of the CPU device. */
#ifndef SHARDC_RT_POOL_H
#define SHARDC_RT_POOL_H
#include "runtime/base/base.h"
#include "runtime/rt.h"

typedef struct Pool Pool;

/* Workers (the caller is number 0), each with `scratch` bytes that start at a multiple of 64 and
 * end at a guard page. */
Pool *rt_pool_start(int workers, int64_t scratch, Fault *f);
typedef struct Share { /* ranks on this machine, and which of them this is: each has its processors
                        */
  int ranks, me;
} Share;
Pool *rt_pool_start_among(int workers, Share among, int64_t scratch, Fault *f);
void rt_pool_stop(Pool *pool);
/* The calling thread, made by one that is a worker, may run on any processor of the process. */
void rt_pool_leave(const Pool *pool);
/* Runs all chunks; returns when the last has ended. Only the thread that started the pool may call
 * it. */
void rt_pool_run(Pool *pool, rt_chunk *run, void *const *buffers, int64_t chunks);
typedef struct JobSpan { /* when a worker was in a job, and how many chunks it ran */
  double start, end;
  int64_t chunks;
} JobSpan;
/* From now on every job notes the spans of the workers that took part; one per worker. */
void rt_pool_watch(Pool *pool, JobSpan *spans);
int rt_pool_workers(const Pool *pool);
int rt_cpus(void); /* that this process may use: affinity and control group */
#endif
