/* The communicating thread of a program whose messages fly (rt_start).

   One thread does all that this rank's communicator does: collectives that are started, those that
   are waited for at once, and the runtime's own questions, one after the other in the order in
   which the main thread asks. So ranks that ask in one order communicate in one order, and a
   library that wants to be called by one thread alone (MPI_THREAD_FUNNELED) is. The queue is of a
   fixed length; who finds it full waits. Starts of a row of the table are over in their order, so a
   number of starts over and a number of starts waited for are all that a wait needs.

   SHARDC_DEBUG=rest lets it rest for up to a millisecond before each message that was started: no
   number may depend on when one arrives. Signals are the main thread's. Must not: allocate after
   the start; end the process, but by what a communicator does when it has lost another rank. */
#include "flight.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { QUEUE = 256, TURN = 100000, REST = 1000000 }; /* jobs; nanoseconds */

struct RtFlight {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t more, over; /* there is a job; a job is over */
  RtJob job[QUEUE];
  int64_t asked, done;      /* jobs */
  int64_t *landed, *waited; /* by row: starts that are over; starts waited for */
  _Atomic bool awaited;
  bool rests;
  uint64_t random; /* for how long */
};

/* This thread has little to do at a time, on processors that are busy with kernels, and other ranks
   wait for it: it asks for short turns, which are given at once, and to be woken on time. Where the
   system has no such word, it goes without. */
static void ask_for_short_turns(void) {
  struct { /* as Linux has it, for a thread of the usual class; `runtime`: of a turn */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } turns = {.size = sizeof turns, .nice = getpriority(PRIO_PROCESS, 0), .runtime = TURN};
  if (sched_getscheduler(0) == SCHED_OTHER) syscall(SYS_sched_setattr, 0, &turns, 0);
  prctl(PR_SET_TIMERSLACK, 1000L);
}

static void rest(RtFlight *x) {
  x->random = x->random * 6364136223846793005u + 1442695040888963407u;
  nanosleep(&(struct timespec){0, (long)((x->random >> 33) % REST)}, NULL);
}

static void *communicate(void *flight) {
  RtFlight *x = flight;
  ask_for_short_turns();
  pthread_mutex_lock(&x->lock);
  for (;;) {
    while (x->asked == x->done) pthread_cond_wait(&x->more, &x->lock);
    const RtJob *j = &x->job[x->done % QUEUE];
    pthread_mutex_unlock(&x->lock);
    if (x->rests && j->row >= 0) rest(x);
    j->run(j);
    pthread_mutex_lock(&x->lock);
    if (j->row >= 0) x->landed[j->row]++;
    x->done++;
    pthread_cond_broadcast(&x->over);
  }
  return NULL;
}

RtFlight *rt_flight_open(int rows, Fault *f) {
  RtFlight *x = rt_alloc(sizeof *x);
  const char *debug = getenv("SHARDC_DEBUG");
  sigset_t all, old;
  x->rests = debug && strstr(debug, "rest");
  x->random = (uint64_t)(1e9 * rt_now()) ^ (uint64_t)getpid() << 32;
  x->landed = rt_alloc(sizeof *x->landed * (size_t)(rows + 1));
  x->waited = rt_alloc(sizeof *x->waited * (size_t)(rows + 1));
  pthread_mutex_init(&x->lock, NULL);
  pthread_cond_init(&x->more, NULL), pthread_cond_init(&x->over, NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&x->thread, NULL, communicate, x);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!failed) return x;
  rt_fault(f, 704, "cannot start the thread that communicates");
  return NULL;
}

bool rt_flight_inside(const RtFlight *x) { return pthread_equal(pthread_self(), x->thread); }

double rt_flight_processor(const RtFlight *x) {
  clockid_t clock;
  struct timespec t = {0};
  if (!pthread_getcpuclockid(x->thread, &clock)) clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool rt_flight_awaited(const RtFlight *x) { return x->awaited; }

/* The main thread, which holds the lock, until one more job is over. */
static void stand_still(RtFlight *x) {
  x->awaited = true;
  pthread_cond_wait(&x->over, &x->lock);
  x->awaited = false;
}

static int64_t ask(RtFlight *x, RtJob job) {
  while (x->asked - x->done == QUEUE) stand_still(x);
  x->job[x->asked % QUEUE] = job;
  pthread_cond_signal(&x->more);
  return ++x->asked;
}

void rt_flight_start(RtFlight *x, RtJob job) {
  pthread_mutex_lock(&x->lock);
  ask(x, job);
  pthread_mutex_unlock(&x->lock);
}

void rt_flight_run(RtFlight *x, RtJob job) {
  pthread_mutex_lock(&x->lock);
  int64_t mine = ask(x, job);
  while (x->done < mine) stand_still(x);
  pthread_mutex_unlock(&x->lock);
}

void rt_flight_wait(RtFlight *x, int row, int64_t n) {
  pthread_mutex_lock(&x->lock);
  x->waited[row] += n;
  while (x->landed[row] < x->waited[row]) stand_still(x);
  pthread_mutex_unlock(&x->lock);
}
