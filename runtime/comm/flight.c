/* The communication thread of a program with asynchronous messages (rt_start). One thread makes all
   calls to this rank's communicator: asynchronous collectives, blocking ones, and those of the
   runtime itself, one after the other in the order of the main thread's requests. So ranks with the
   same order of requests communicate in the same order, and a library that allows calls from one
   thread only (MPI_THREAD_FUNNELED) can be used. The queue has a fixed length; a caller that finds
   it full waits. Starts of one row of the table finish in order, so a wait needs only the number of
   finished starts and the number of starts already waited for.

   SHARDC_DEBUG=rest delays each asynchronous message by up to a millisecond: no result may depend
   on its time of arrival. The main thread handles all signals. Must not: allocate after the start;
   end the process, except as a communicator does when it has lost another rank. */
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

static void rest(RtFlight *flight) {
  flight->random = flight->random * 6364136223846793005u + 1442695040888963407u;
  nanosleep(&(struct timespec){0, (long)((flight->random >> 33) % REST)}, NULL);
}

static void *communicate(void *flight) {
  RtFlight *rt_flight = flight;
  ask_for_short_turns();
  pthread_mutex_lock(&rt_flight->lock);
  for (;;) {
    while (rt_flight->asked == rt_flight->done)
      pthread_cond_wait(&rt_flight->more, &rt_flight->lock);
    const RtJob *job = &rt_flight->job[rt_flight->done % QUEUE];
    pthread_mutex_unlock(&rt_flight->lock);
    if (rt_flight->rests && job->row >= 0) rest(rt_flight);
    job->run(job);
    pthread_mutex_lock(&rt_flight->lock);
    if (job->row >= 0) rt_flight->landed[job->row]++;
    rt_flight->done++;
    pthread_cond_broadcast(&rt_flight->over);
  }
  return NULL;
}

RtFlight *rt_flight_open(int rows, Fault *f) {
  RtFlight *flight = rt_alloc(sizeof *flight);
  const char *debug = getenv("SHARDC_DEBUG");
  sigset_t all, old;
  flight->rests = debug && strstr(debug, "rest");
  flight->random = (uint64_t)(1e9 * rt_now()) ^ (uint64_t)getpid() << 32;
  flight->landed = rt_alloc(sizeof *flight->landed * (size_t)(rows + 1));
  flight->waited = rt_alloc(sizeof *flight->waited * (size_t)(rows + 1));
  pthread_mutex_init(&flight->lock, NULL);
  pthread_cond_init(&flight->more, NULL), pthread_cond_init(&flight->over, NULL);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&flight->thread, NULL, communicate, flight);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (!failed) return flight;
  rt_fault(f, 704, "cannot start the thread that communicates");
  return NULL;
}

bool rt_flight_inside(const RtFlight *flight) {
  return pthread_equal(pthread_self(), flight->thread);
}

double rt_flight_processor(const RtFlight *flight) {
  clockid_t clock;
  struct timespec t = {0};
  if (!pthread_getcpuclockid(flight->thread, &clock)) clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool rt_flight_awaited(const RtFlight *flight) { return flight->awaited; }

/* The main thread, which holds the lock, until one more job is over. */
static void stand_still(RtFlight *flight) {
  flight->awaited = true;
  pthread_cond_wait(&flight->over, &flight->lock);
  flight->awaited = false;
}

static int64_t ask(RtFlight *flight, RtJob job) {
  while (flight->asked - flight->done == QUEUE) stand_still(flight);
  flight->job[flight->asked % QUEUE] = job;
  pthread_cond_signal(&flight->more);
  return ++flight->asked;
}

void rt_flight_start(RtFlight *flight, RtJob job) {
  pthread_mutex_lock(&flight->lock);
  ask(flight, job);
  pthread_mutex_unlock(&flight->lock);
}

void rt_flight_run(RtFlight *flight, RtJob job) {
  pthread_mutex_lock(&flight->lock);
  int64_t mine = ask(flight, job);
  while (flight->done < mine) stand_still(flight);
  pthread_mutex_unlock(&flight->lock);
}

void rt_flight_wait(RtFlight *flight, int row, int64_t n) {
  pthread_mutex_lock(&flight->lock);
  flight->waited[row] += n;
  while (flight->landed[row] < flight->waited[row]) stand_still(flight);
  pthread_mutex_unlock(&flight->lock);
}
