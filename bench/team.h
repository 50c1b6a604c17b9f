/* Threads that run the chunks of compiled kernels as the pool does, for the programs that time
   single kernels. Times are processor time of the threads, so that other processes on the machine
   count little. As many as environment variable BENCH_THREADS says, else one for each processor
   that this process may use. Whatever cannot be had (memory, a thread, a symbol) ends the program.
 */
#ifndef BENCH_TEAM_H
#define BENCH_TEAM_H

#include "ir/ir.h"

enum { TEAM_MOST = 256 };

struct Target;
typedef struct Team Team;
typedef void TeamWork(void *context, int number); /* number: of the thread, from 0 */
typedef void Chunk(void *const *buffers, int64_t chunk, void *scratch);

typedef struct Code { /* a compiled kernel: its phases, with the number of chunks of each */
  int phases;
  Chunk *run[2];
  int64_t chunks[2];
} Code;

Team *team_start(void); /* lives to the program's end */
int team_threads(const Team *t);
char **team_scratches(Team *t); /* of each thread; team_scratch makes them */
_Noreturn void team_fail(const char *what);

/* Every thread does the work once; seconds per thread. */
double team_run(Team *t, TeamWork *work, void *context);

/* Operations of a loop that each thread repeats, per second of all threads. */
typedef double TeamLoop(void); /* returns the operations of one call */
double team_rate(Team *t, TeamLoop *loop);

/* The target that environment variable BENCH_TARGET names, else that of this machine: kernels are
   made for it, and loops.h uses its instructions. */
const struct Target *team_target(void);

/* The loop of multiply-adds that this target multiplies elements e with. */
TeamLoop *loop_of(Elem e);

/* So many bytes are in no cache when they are read again; 0 or less: the machine tells no size. */
int64_t team_cold(void);

/* Bytes per second of triad over arrays of the given total size; 0: larger than every cache. The
   first call makes them. */
double team_triad(Team *t, int64_t bytes);

/* All phases of a kernel, the chunks taken as the pool does. scratch: team_scratch's. */
double team_kernel(Team *t, const Code *code, void *const *buffers);

/* Room for each thread's scratch, and the bytes of workspace, which the largest of n kernels needs.
 */
int64_t team_scratch(Team *t, const Fn *const *kernels, int n);

/* A kernel's symbols in a library that kernels_link made. */
Code code_find(Module *m, const Fn *k, void *library);

/* Memory in huge pages, to be freed with free; elements of f32 and bf16 hold small numbers of both
   signs, others 0. */
char *bench_memory(int64_t bytes, Elem e);

double bench_median(double *x, int n); /* sorts x */

#endif
