/* The thread pool: fork and join in about 0.1 us while it is hot.

   `gate` holds the number of the job, how many workers have entered it, and whether it is closed. A
   job is published by storing the next number; a worker that sees it enters by adding one, and
   claims chunks until none is left: its own share in order, as neighbouring chunks use the same
   memory and prefetch for each other, then the remaining chunks of others. The caller also claims
   chunks; when none is left it closes the gate and waits only for the workers that have entered. So
   a worker that is not scheduled costs nothing: it finds the gate closed. Which worker runs which
   chunk differs from run to run and never changes a result: the cut into chunks is compiled in.

   Waiting spins for some milliseconds, then uses a futex, so that an idle run uses no CPU. A thread
   announces that it sleeps (`sleepers`, `asleep`) before it reads the word again, and the other
   side reads the announcement after it changed the word: no wake-up is lost. Workers are pinned,
   one per processor, first threads of cores first; ranks of one machine take
   processors in turn. If other programs compete for the processors, as involuntary context switches
   of the caller show, workers are unpinned and spin only briefly. Must not: allocate after the
   start. */
#include "pool.h"
#include "ir/support/num.h"
#include "region.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN = 5000, SPIN_BUSY = 30 }; /* microseconds */

typedef struct Worker {
  Pool *pool;
  int number, cpu;
  pthread_t thread;
  Region scratch;
  int64_t end;                    /* of its share of the chunks */
  _Alignas(64) atomic_llong next; /* first chunk of the share that nobody claimed */
} Worker;

struct Pool {
  int workers;
  atomic_bool quit;
  bool pinned;
  atomic_int spin; /* microseconds */
  cpu_set_t cpus;  /* where workers may run when they are not pinned */
  Worker *worker;
  JobSpan *span; /* per worker; NULL: nobody watches */
  int64_t runs;  /* since the last look at how busy the machine is */
  long switches;
  double looked;
  _Alignas(64) atomic_ullong gate; /* job number << 32 | CLOSED | workers inside */
  rt_chunk *run;                   /* the job: one cache line brings all of it */
  void *const *buffers;
  _Alignas(64) atomic_uint done; /* workers that have left the job */
  atomic_int asleep;             /* the caller waits for `done` in a futex */
  _Alignas(64) atomic_int sleepers;
};

static const unsigned long long CLOSED = 1u << 31;

static unsigned job_of(unsigned long long gate) { return (unsigned)(gate >> 32); }
static atomic_uint *job_word(Pool *pool) {
  return (atomic_uint *)&pool->gate + 1;
} /* little-endian */

static void futex_wait(atomic_uint *word, unsigned seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}
static void futex_wake(atomic_uint *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

static void breathe(void) {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

/* Waits until the word differs from `seen`, spinning at first; true if it differs now. */
static bool spin(Pool *pool, atomic_uint *word, unsigned seen) {
  for (int i = 0; i < 200; i++, breathe())
    if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
  double end = rt_now() + 1e-6 * atomic_load_explicit(&pool->spin, memory_order_relaxed);
  while (rt_now() < end)
    for (int i = 0; i < 64; i++, breathe())
      if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
  return false;
}

/* The rest of the share of worker `of`. */
static int64_t run_share(Pool *pool, Worker *worker, Worker *of) {
  for (int64_t n = 0;; n++) {
    if (atomic_load_explicit(&of->next, memory_order_relaxed) >= of->end) return n;
    int64_t i = atomic_fetch_add_explicit(&of->next, 1, memory_order_relaxed);
    if (i >= of->end) return n;
    pool->run(pool->buffers, i, worker->scratch.base);
  }
}

static int64_t claim_chunks(Pool *pool, Worker *worker) {
  int64_t n = 0;
  for (int i = 0; i < pool->workers; i++)
    n += run_share(pool, worker, &pool->worker[(worker->number + i) % pool->workers]);
  return n;
}

static void give_shares(Pool *pool, int64_t chunks) {
  for (int i = 0; i < pool->workers; i++) {
    atomic_store_explicit(&pool->worker[i].next, share_begin(chunks, pool->workers, i),
                          memory_order_relaxed);
    pool->worker[i].end = share_begin(chunks, pool->workers, i + 1);
  }
}

static void work(Pool *pool, Worker *worker) {
  if (!pool->span) {
    claim_chunks(pool, worker);
    return;
  }
  double start = rt_now();
  int64_t n = claim_chunks(pool, worker);
  pool->span[worker->number] = (JobSpan){start, rt_now(), n};
}

static void work_alone(Pool *pool, rt_chunk *run, void *const *buffers, int64_t chunks) {
  double start = pool->span ? rt_now() : 0;
  for (int64_t i = 0; i < chunks; i++) run(buffers, i, pool->worker[0].scratch.base);
  if (pool->span) pool->span[0] = (JobSpan){start, rt_now(), chunks};
}

static void wait_job(Pool *pool, unsigned seen) {
  if (spin(pool, job_word(pool), seen)) return;
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(job_word(pool)) == seen) futex_wait(job_word(pool), seen);
  atomic_fetch_sub(&pool->sleepers, 1);
}

/* Goes into the job that is open now, whatever its number; false if it is closed. */
static bool enter(Pool *pool, unsigned *seen) {
  unsigned long long gate = atomic_load(&pool->gate);
  do {
    *seen = job_of(gate);
    if (gate & CLOSED) return false;
  } while (!atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1));
  return true;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *worker_main(void *argument) {
  Worker *worker = argument;
  Pool *pool = worker->pool;
  if (worker->cpu >= 0) pin(worker->cpu);
  for (unsigned seen = 0; !atomic_load(&pool->quit);) {
    wait_job(pool, seen);
    if (atomic_load(&pool->quit) || !enter(pool, &seen)) continue;
    work(pool, worker);
    atomic_fetch_add(&pool->done, 1);
    if (atomic_load(&pool->asleep)) futex_wake(&pool->done);
  }
  return NULL;
}

static void join(Pool *pool) {
  unsigned inside = (unsigned)(atomic_fetch_or(&pool->gate, CLOSED) & (CLOSED - 1));
  for (unsigned n; (n = atomic_load(&pool->done)) != inside;)
    if (!spin(pool, &pool->done, n)) {
      atomic_store(&pool->asleep, 1);
      while ((n = atomic_load(&pool->done)) != inside) futex_wait(&pool->done, n);
      atomic_store(&pool->asleep, 0);
    }
}

static void open_gate(Pool *pool) {
  atomic_store(&pool->gate, (unsigned long long)(job_of(atomic_load(&pool->gate)) + 1) << 32);
  if (atomic_load(&pool->sleepers)) futex_wake(job_word(pool));
}

/* Threads of other programs that push the caller aside show in its forced switches. */
static void look_around(Pool *pool) {
  struct rusage u;
  double now = rt_now(), span = now - pool->looked;
  if (span < 0.2 || getrusage(RUSAGE_THREAD, &u)) return;
  bool busy = (double)(u.ru_nivcsw - pool->switches) > 40 * span;
  pool->switches = u.ru_nivcsw, pool->looked = now;
  atomic_store_explicit(&pool->spin, busy ? SPIN_BUSY : SPIN, memory_order_relaxed);
  if (!busy || !pool->pinned) return;
  pool->pinned = false;
  for (int i = 0; i < pool->workers; i++)
    pthread_setaffinity_np(pool->worker[i].thread, sizeof pool->cpus, &pool->cpus);
}

void rt_pool_run(Pool *pool, rt_chunk *run, void *const *buffers, int64_t chunks) {
  if (pool->workers == 1 || chunks <= 1) {
    work_alone(pool, run, buffers, chunks);
    return;
  }
  if (++pool->runs % 256 == 0) look_around(pool);
  pool->run = run, pool->buffers = buffers;
  give_shares(pool, chunks);
  atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
  open_gate(pool);
  work(pool, &pool->worker[0]);
  join(pool);
}

static bool first_of_core(int cpu) {
  char path[96], text[16] = "";
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *f = fopen(path, "r");
  if (!f) return true;
  bool first = !fgets(text, sizeof text, f) || atoi(text) == cpu;
  fclose(f);
  return first;
}

/* Processors in the order in which workers get them; returns how many. */
static int processors(int *list, int most) {
  cpu_set_t set;
  int n = 0;
  if (sched_getaffinity(0, sizeof set, &set)) return 0;
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < CPU_SETSIZE && n < most; i++)
      if (CPU_ISSET(i, &set) && first_of_core(i) == !round) list[n++] = i;
  return n;
}

static int quota(void) { /* processors that a control group grants, or a large number */
  FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
  long long share, period;
  int n = 1 << 20;
  if (f && fscanf(f, "%lld %lld", &share, &period) == 2 && period > 0 && share > 0)
    n = (int)((share + period - 1) / period);
  if (f) fclose(f);
  return n;
}

int rt_cpus(void) {
  cpu_set_t set;
  int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set), q = quota();
  return n < q ? n : q;
}

static bool start_workers(Pool *pool, Fault *f) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int started = 1;
  while (started < pool->workers &&
         !pthread_create(&pool->worker[started].thread, NULL, worker_main, &pool->worker[started]))
    started++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (started == pool->workers) return true;
  pool->workers = started;
  rt_pool_stop(pool);
  return rt_fault(f, 704, "cannot start worker %d of this run", started);
}

Pool *rt_pool_start_among(int workers, Share among, int64_t scratch, Fault *f) {
  int cpu[CPU_SETSIZE], cpus = processors(cpu, CPU_SETSIZE), usable = rt_cpus(),
                        all = workers * among.ranks;
  Pool *pool = aligned_alloc(64, sizeof(Pool));
  if (getenv("SHARDC_CPUS")) among = (Share){1, 0}, all = workers; /* its own, from `shardc run` */
  if (!pool) rt_fail(701, "no memory for the thread pool");
  *pool = (Pool){.workers = workers, .gate = CLOSED, .spin = all <= usable ? SPIN : SPIN_BUSY};
  pool->worker = aligned_alloc(64, sizeof(Worker) * (size_t)workers);
  if (!pool->worker) rt_fail(701, "no memory for the thread pool");
  if (sched_getaffinity(0, sizeof pool->cpus, &pool->cpus)) CPU_ZERO(&pool->cpus);
  bool pinned = workers > 1 && all <= usable && usable == cpus;
  const int *own = cpu + (pinned ? among.me * workers : 0);
  for (int i = 0; i < workers; i++) {
    pool->worker[i] = (Worker){.pool = pool, .number = i, .cpu = pinned ? own[i] : -1};
    if (!rt_region_map(&pool->worker[i].scratch, scratch, true, f)) return NULL;
  }
  if (!start_workers(pool, f)) return NULL;
  pool->worker[0].thread = pthread_self();
  pool->pinned = pinned;
  if (pinned) pin(own[0]);
  return pool;
}

Pool *rt_pool_start(int workers, int64_t scratch, Fault *f) {
  return rt_pool_start_among(workers, (Share){1, 0}, scratch, f);
}

void rt_pool_leave(const Pool *pool) {
  if (CPU_COUNT(&pool->cpus))
    pthread_setaffinity_np(pthread_self(), sizeof pool->cpus, &pool->cpus);
}

void rt_pool_stop(Pool *pool) {
  atomic_store(&pool->quit, true);
  open_gate(pool);
  for (int i = 1; i < pool->workers; i++) pthread_join(pool->worker[i].thread, NULL);
  for (int i = 0; i < pool->workers; i++) rt_region_unmap(&pool->worker[i].scratch);
  free(pool->worker);
  free(pool);
}

void rt_pool_watch(Pool *pool, JobSpan *spans) { pool->span = spans; }

int rt_pool_workers(const Pool *pool) { return pool->workers; }
