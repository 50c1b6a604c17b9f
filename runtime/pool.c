/* The thread pool: fork and join in about 0.1 us while it is hot.

   One call publishes a job and raises `epoch`; every worker claims chunks from one atomic counter
   until none is left and then lowers `pending`. Which worker runs which chunk differs from run to
   run and never changes a result: the cut into chunks is compiled in. Waiting is spinning for some
   milliseconds, then a futex, so that an idle or stopped run burns nothing; with more workers than
   processors the spinning is short. Sleeping is announced (`sleepers`, `asleep`) before the word is
   looked at again, and the other side looks at the announcement after it changed the word: nobody
   is missed.

   Workers are pinned, one per processor, first threads of cores first. Must not: allocate after the
   start. */
#include "pool.h"
#include "memory.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct Worker {
  Pool *pool;
  int number, cpu;
  pthread_t thread;
  Region scratch;
} Worker;

struct Pool {
  int workers;
  double spin; /* seconds */
  bool quit;
  Worker *worker;
  _Alignas(64) atomic_uint epoch; /* one cache line brings a worker the whole job */
  rt_chunk *run;
  void *const *buffers;
  int64_t chunks;
  _Alignas(64)
      atomic_llong next; /* first chunk that nobody claimed; worker i begins with chunk i unasked */
  _Alignas(64) atomic_uint pending;
  atomic_int asleep; /* the caller waits for `pending` in a futex */
  _Alignas(64) atomic_int sleepers;
};

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
static bool spin(atomic_uint *word, unsigned seen, double seconds) {
  for (int i = 0; i < 200; i++, breathe())
    if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
  for (double end = rt_now() + seconds; rt_now() < end;)
    for (int i = 0; i < 64; i++, breathe())
      if (atomic_load_explicit(word, memory_order_acquire) != seen) return true;
  return false;
}

static void work(Pool *p, Worker *w) {
  int64_t chunks = p->chunks;
  for (int64_t i = w->number; i < chunks;) {
    p->run(p->buffers, i, w->scratch.base);
    if (chunks <= p->workers) return;
    i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
  }
}

static void wait_job(Pool *p, unsigned seen) {
  if (spin(&p->epoch, seen, p->spin)) return;
  atomic_fetch_add(&p->sleepers, 1);
  while (atomic_load(&p->epoch) == seen) futex_wait(&p->epoch, seen);
  atomic_fetch_sub(&p->sleepers, 1);
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *worker_main(void *argument) {
  Worker *w = argument;
  Pool *p = w->pool;
  if (w->cpu >= 0) pin(w->cpu);
  for (unsigned seen = 0;; seen++) {
    wait_job(p, seen);
    if (p->quit) return NULL;
    work(p, w);
    if (atomic_fetch_sub(&p->pending, 1) == 1 && atomic_load(&p->asleep)) futex_wake(&p->pending);
  }
}

static void join(Pool *p) {
  for (unsigned n; (n = atomic_load(&p->pending));)
    if (!spin(&p->pending, n, p->spin)) {
      atomic_store(&p->asleep, 1);
      while ((n = atomic_load(&p->pending))) futex_wait(&p->pending, n);
      atomic_store(&p->asleep, 0);
    }
}

static void raise_epoch(Pool *p) {
  atomic_fetch_add(&p->epoch, 1);
  if (atomic_load(&p->sleepers)) futex_wake(&p->epoch);
}

void rt_pool_run(Pool *p, rt_chunk *run, void *const *buffers, int64_t chunks) {
  if (p->workers == 1 || chunks <= 1) {
    for (int64_t i = 0; i < chunks; i++) run(buffers, i, p->worker[0].scratch.base);
    return;
  }
  p->run = run, p->buffers = buffers, p->chunks = chunks;
  atomic_store_explicit(&p->next, p->workers, memory_order_relaxed);
  atomic_store_explicit(&p->pending, (unsigned)p->workers - 1, memory_order_relaxed);
  raise_epoch(p);
  work(p, &p->worker[0]);
  join(p);
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

static bool start_workers(Pool *p, Fault *f) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int started = 1;
  while (started < p->workers &&
         !pthread_create(&p->worker[started].thread, NULL, worker_main, &p->worker[started]))
    started++;
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (started == p->workers) return true;
  p->workers = started;
  rt_pool_stop(p);
  return rt_fault(f, 704, "cannot start worker %d of this run", started);
}

Pool *rt_pool_start(int workers, int64_t scratch, Fault *f) {
  int cpu[CPU_SETSIZE], cpus = processors(cpu, CPU_SETSIZE), usable = rt_cpus();
  Pool *p = aligned_alloc(64, sizeof(Pool));
  if (!p) rt_fail(701, "no memory for the thread pool");
  *p = (Pool){.workers = workers, .spin = workers <= usable ? 5e-3 : 2e-5};
  p->worker = rt_alloc(sizeof(Worker) * (size_t)workers);
  bool pinned = workers > 1 && workers <= usable && usable == cpus;
  for (int i = 0; i < workers; i++) {
    p->worker[i] = (Worker){.pool = p, .number = i, .cpu = pinned ? cpu[i] : -1};
    if (!rt_region_map(&p->worker[i].scratch, scratch, true, f)) return NULL;
  }
  if (!start_workers(p, f)) return NULL;
  if (pinned) pin(cpu[0]);
  return p;
}

void rt_pool_stop(Pool *p) {
  p->quit = true;
  raise_epoch(p);
  for (int i = 1; i < p->workers; i++) pthread_join(p->worker[i].thread, NULL);
  for (int i = 0; i < p->workers; i++) rt_region_unmap(&p->worker[i].scratch);
  free(p->worker);
  free(p);
}

int rt_pool_workers(const Pool *p) { return p->workers; }
