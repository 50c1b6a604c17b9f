/* The watchdog: one thread per rank that watches the others, so that no rank waits for ever.

   The end of a process shows at once, because its socket closes: rank 0 holds one to every other
   rank, those hold one to rank 0. A process that is stopped or starved shows by its heartbeat, a
   counter in its entry of the peer table. A rank that lives but does not come shows when somebody
   has waited for it too long; ranks that all wait, in one group for different things, disagree: but
   not while a heartbeat is missing, for its rank may be what all wait for, and come back. Whoever
   sees a failure writes it into the table, once; every watchdog reads it there, reports it, and
   ends its process. What the main thread does meanwhile is no matter: files are complete or not
   there at any instant.

   Must not: take locks or allocate; compare clocks of different ranks. */
#include "peers.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum {
  BEAT = 250,
  PAUSED = 2 * BEAT,
  LINGER = 100000,
  LET_GO = 3
}; /* milliseconds, microseconds, seconds */

typedef struct Pulse { /* of a rank that is watched */
  unsigned beat;
  double seen;
} Pulse;

typedef struct WatchRound { /* what one watchdog remembers */
  Watchdog *g;
  struct pollfd *line;
  Pulse *pulse;
  double now, still_since, left_since, left_wait;
  unsigned long long moves;
  int missing; /* the rank waited for, its pulse, and how far it was */
  Pulse of_missing;
  unsigned long long missing_moves;
} WatchRound;

static int rank_of(const Watchdog *g, int line) { return g->comm->launch.rank ? 0 : line + 1; }

void rt_watchdog_fail(Watchdog *g, FailureKind what, int rank, int against) {
  unsigned long long none = 0;
  atomic_compare_exchange_strong(&g->table->failure, &none, failure_of(what, rank, against));
}

/* ---- messages ---- */

/* Rows of a call are those of the program that the rank runs. */
static const rt_program *program_of(const Watchdog *g, int rank) {
  return rt_class_program(g->comm->first, g->comm->program, rank);
}

static void call_text(const Watchdog *g, int rank, char *text, size_t size) {
  const Peer *s = &g->table->peer[rank];
  const rt_program *p = program_of(g, rank);
  unsigned long long call = atomic_load(&s->call);
  unsigned row = (unsigned)call, number = (unsigned)(call >> 32);
  if (!call && atomic_load(&s->runs))
    snprintf(text, size, "the beginning of run %u of the GPU", atomic_load(&s->runs));
  else if (!call) snprintf(text, size, "the start");
  else if (row && row <= (unsigned)p->ncollectives) {
    const rt_collective *c = &p->collectives[row - 1];
    snprintf(text, size, "%s #%u of %s over %s%s%s%s", rt_collective_name((int)c->kind), number,
             c->what, p->mesh[c->axis].name, *c->source ? " (" : "", c->source,
             *c->source ? ")" : "");
  } else snprintf(text, size, "#%u: %.*s", number, PEER_TEXT - 1, s->text);
}

static void where_text(const Watchdog *g, int rank, char *text, size_t size) {
  char call[400];
  bool inside = atomic_load(&g->table->peer[rank].inside);
  call_text(g, rank, call, sizeof call);
  snprintf(text, size, "%s %s", inside ? "in" : "after", call);
}

static void *let_device_go(void *comm) {
  Comm *c = comm;
  void (*go)(void *) = c->let_go;
  c->let_go = NULL;
  go(c->device);
  return NULL;
}

/* What waits on the GPU is told to end. A driver that does not answer is left alone. */
static void let_go(Comm *c) {
  pthread_t helper;
  if (!c->let_go || pthread_create(&helper, NULL, let_device_go, c)) return;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LET_GO;
  pthread_timedjoin_np(helper, NULL, &until);
}

static _Noreturn void give_up(const Watchdog *g, Failure failure) {
  int rank = failure_rank(failure), other = failure_against(failure), code = 901;
  if (rank >= g->comm->launch.world || other >= g->comm->launch.world) _exit(1);
  const Peer *s = &g->table->peer[rank];
  char who[120], where[440], there[440];
  Fault f;
  snprintf(who, sizeof who, "rank %d (%.64s, pid %lld)", rank, s->host, (long long)s->pid);
  where_text(g, rank, where, sizeof where);
  switch (failure_kind(failure)) {
  case FAILURE_ENDED:
    rt_fault(&f, code, "%s ended with exit status %d %s", who, atomic_load(&s->status), where);
    rt_help(&f, "its own message says why");
    break;
  case FAILURE_SILENT:
    rt_fault(&f, 902, "%s has not answered for %.0f s; it stopped %s", who, g->silent, where);
    rt_help(&f, "is the process stopped, or its machine overloaded?");
    break;
  case FAILURE_LATE:
    call_text(g, other, there, sizeof there);
    rt_fault(&f, 902, "%s did not come to %s; it is still at work %s", who, there, where);
    rt_help(&f, "SHARDC_LATE=SECONDS gives ranks more time");
    break;
  case FAILURE_DISAGREES:
    where_text(g, other, there, sizeof there);
    rt_fault(&f, 903, "%s is %s, but rank %d is %s", who, where, other, there);
    break;
  case FAILURE_STUCK:
    rt_fault(&f, 902, "no GPU of the job moves on; that of %s is %s", who, where);
    rt_help(&f, "NCCL_DEBUG=INFO tells what NCCL does; a network or a GPU may have failed");
    break;
  default:
    rt_fault(&f, code, "%s died %s", who, where);
    rt_help(&f, "a run goes on with --resume from its last checkpoint");
  }
  rt_print_fault(&f, "error");
  let_go(g->comm);
  _exit(rt_exit_status(f.code));
}

/* ---- polling ---- */

static void watch_lines(WatchRound *l) {
  Watchdog *g = l->g;
  for (int i = 0; i < g->meeting->npeers; i++) {
    if (!(l->line[i].revents & (POLLHUP | POLLERR | POLLIN))) continue;
    if (g->heartbeat && rt_heartbeat_receive(g, i)) continue;
    Peer *s = &g->table->peer[rank_of(g, i)];
    l->line[i].fd = -1; /* poll passes over it */
    if (atomic_load(&s->state) != PEER_LEFT) rt_watchdog_fail(g, FAILURE_DIED, rank_of(g, i), 0);
  }
}

/* If this process was stopped itself, the others are given their full time again. */
static void watch_pulses(WatchRound *l, bool slept) {
  Watchdog *g = l->g;
  for (int i = 0; i < g->meeting->npeers; i++) {
    Peer *s = &g->table->peer[rank_of(g, i)];
    unsigned beat = atomic_load(&s->beat);
    if (slept || beat != l->pulse[i].beat || atomic_load(&s->state) == PEER_LEFT)
      l->pulse[i] = (Pulse){beat, l->now};
    else if (l->now - l->pulse[i].seen > g->silent)
      rt_watchdog_fail(g, FAILURE_SILENT, rank_of(g, i), 0);
  }
}

/* Where a rank's GPU is, to compare: the run, then the collective. */
static unsigned long long place_of(const Peer *s) {
  return (unsigned long long)atomic_load(&s->runs) << 32 | atomic_load(&s->call) >> 32;
}

/* GPUs wait for each other and nothing moves: who is behind? A rank that does not wait at all, else
   the one whose GPU has come least far; those that wait on the host are done with theirs. Stages of
   a pipeline count their own messages, which nothing compares: there nobody is accused of that. */
static void accuse(const WatchRound *l) {
  Watchdog *g = l->g;
  int behind = -1, ahead = -1, runs = -1, done = -1;
  for (int i = 0; i < g->comm->launch.world; i++) {
    const Peer *s = g->table->peer;
    int state = atomic_load(&s[i].state);
    if (state == PEER_RUNS && runs < 0) runs = i;
    if (state == PEER_WAITS && done < 0) done = i;
    if (state != PEER_ON_DEVICE) continue;
    if (behind < 0 || place_of(&s[i]) < place_of(&s[behind])) behind = i;
    if (ahead < 0 || place_of(&s[i]) > place_of(&s[ahead])) ahead = i;
  }
  if (behind < 0) return;
  bool level = place_of(&g->table->peer[behind]) == place_of(&g->table->peer[ahead]);
  if (g->comm->program->stages) level = true, done = -1;
  if (runs >= 0) rt_watchdog_fail(g, FAILURE_LATE, runs, ahead);
  else if (level && done < 0) rt_watchdog_fail(g, FAILURE_STUCK, behind, ahead);
  else rt_watchdog_fail(g, FAILURE_LATE, behind, level ? done : ahead);
}

/* The row of the call that a rank is in; NULL: it is the runtime's own, of all ranks. */
static const rt_collective *row_of(const Watchdog *g, int rank) {
  const rt_program *p = program_of(g, rank);
  unsigned row = (unsigned)atomic_load(&g->table->peer[rank].call);
  return row && row <= (unsigned)p->ncollectives ? &p->collectives[row - 1] : NULL;
}

static int axis_of(const Watchdog *g, int rank) {
  const rt_collective *c = row_of(g, rank);
  return c ? c->axis : g->comm->program->naxes;
}

/* Are two ranks in one call, as far as their entries tell? Ranks of two classes count their calls
   apart, and have rows of their own. */
static bool in_one_call(const Watchdog *g, int i, int j) {
  const rt_collective *a = row_of(g, i), *b = row_of(g, j);
  if (program_of(g, i) == program_of(g, j) || !a || !b)
    return atomic_load(&g->table->peer[i].call) == atomic_load(&g->table->peer[j].call);
  return a->kind == b->kind && a->axis == b->axis && a->elem == b->elem && a->count == b->count;
}

/* Is rank j in rank i's group on this axis? */
static bool meets(const rt_program *p, int axis, int i, int j) {
  if (axis >= p->naxes) return true;
  int64_t n = p->mesh[axis].size, stride = p->mesh[axis].stride;
  return i - i / stride % n * stride == j - j / stride % n * stride;
}

/* Two ranks that wait for each other in different calls. Others may wait in different calls, too:
   of groups that have come more or less far. */
static bool at_odds(const Watchdog *g, int *a, int *b) {
  const rt_program *p = g->comm->program;
  for (int i = 1; i < g->comm->launch.world; i++)
    for (int j = 0; j < i; j++)
      if (!in_one_call(g, i, j) && meets(p, axis_of(g, i), i, j) && meets(p, axis_of(g, j), i, j))
        return *a = i, *b = j, true;
  return false;
}

static bool all_beat(const WatchRound *l) {
  Watchdog *g = l->g;
  for (int i = 0; i < g->meeting->npeers; i++)
    if (atomic_load(&g->table->peer[rank_of(g, i)].state) != PEER_LEFT &&
        l->now - l->pulse[i].seen > 1e-3 * PAUSED)
      return false;
  return true;
}

/* Rank 0 polls whether anybody moves while all wait, or while GPUs do. */
static void watch_moves(WatchRound *l, bool slept) {
  Watchdog *g = l->g;
  unsigned long long moves = 0;
  int n = g->comm->launch.world, a = 0, b = 0, busy = 0, devices = 0;
  for (int i = 0; i < n; i++) {
    Peer *s = &g->table->peer[i];
    int state = atomic_load(&s->state);
    moves += atomic_load(&s->moves);
    busy += state == PEER_RUNS || state == PEER_LEFT, devices += state == PEER_ON_DEVICE;
    if (!in_one_call(g, i, 0)) a = i;
  }
  double still = l->now - l->still_since, most = g->late > 5 ? g->late / 5 : 1;
  if ((busy && !devices) || moves != l->moves || slept || !all_beat(l))
    l->moves = moves, l->still_since = l->now;
  else if (!devices && still > most && (at_odds(g, &a, &b) || (a && still > g->late)))
    rt_watchdog_fail(g, FAILURE_DISAGREES, a, b);
  else if (devices && still > g->late && still > atomic_load(&g->device_longest)) accuse(l);
}

/* A rank that pauses is not late: what it slept is not counted. Between machines only rank 0 sees
   every heartbeat. */
static double asleep(WatchRound *l, int rank, double since_last) {
  Watchdog *g = l->g;
  unsigned beat = atomic_load(&g->table->peer[rank].beat);
  if (rank != l->missing || beat != l->of_missing.beat)
    l->missing = rank, l->of_missing = (Pulse){beat, l->now};
  bool seen = !g->heartbeat || !rank || !g->comm->launch.rank;
  return seen && l->now - l->of_missing.seen > 1e-3 * PAUSED ? since_last : 0;
}

/* Who moves on in calls with others, as the stages of a pipeline do one after the other, is given
   its time from there. */
static double moved_on(WatchRound *l, const Peer *s, double since) {
  unsigned long long moves = atomic_load(&s->moves);
  bool on = moves != l->missing_moves && atomic_load(&l->g->waits_since) <= since;
  l->missing_moves = moves;
  return on && since < l->now ? l->now - since : 0;
}

/* This rank waits: for somebody who has left, or for too long? */
static void watch_wait(WatchRound *l, double since_last) {
  Watchdog *g = l->g;
  int rank = atomic_load(&g->missing);
  double since = atomic_load(&g->waits_since);
  if (since <= 0 || rank < 0) return;
  Peer *s = &g->table->peer[rank];
  bool left = atomic_load(&s->state) == PEER_LEFT;
  double slept = left ? 0 : asleep(l, rank, since_last), on = left ? 0 : moved_on(l, s, since);
  if (on > slept) slept = on;
  double moved = since + slept;
  if (slept > 0) {
    if (!atomic_compare_exchange_strong(&g->waits_since, &since, moved)) return; /* it is over */
    since = moved;
  }
  if (!left || since > l->left_wait || since < l->left_wait)
    l->left_wait = left ? since : 0, l->left_since = l->now; /* it may have come just before */
  else if (l->now - l->left_since > 3) rt_watchdog_fail(g, FAILURE_ENDED, rank, 0);
  if (atomic_load(&s->state) == PEER_RUNS && l->now - since > atomic_load(&g->patience))
    rt_watchdog_fail(g, FAILURE_LATE, rank, g->comm->launch.rank);
}

/* A failure ends the process, except a rank that ends by itself already. The others hear it first.
   */
static void watch_failure(WatchRound *l) {
  Watchdog *g = l->g;
  Failure failure = atomic_load(&g->table->failure);
  bool own =
      failure_rank(failure) == g->comm->launch.rank && failure_kind(failure) == FAILURE_ENDED;
  if (g->heartbeat) rt_heartbeat_send(g);
  if (!failure || own) return;
  if (g->heartbeat) usleep(LINGER);
  give_up(g, failure);
}

/* What there is to see at an instant. */
static void observe(WatchRound *l, double now) {
  Watchdog *g = l->g;
  double since_last = now - l->now;
  bool slept = since_last > 3;
  l->now = now;
  atomic_fetch_add(&g->peer->beat, 1);
  watch_lines(l), watch_pulses(l, slept);
  if (!g->comm->launch.rank) watch_moves(l, slept);
  if (slept && atomic_load(&g->waits_since) > 0) atomic_store(&g->waits_since, now);
  watch_wait(l, since_last);
}

static void poll_once(WatchRound *l, double now) {
  observe(l, now);
  watch_failure(l);
  atomic_fetch_add(&l->g->polls, 1);
}

static void *watchdog_thread(void *argument) {
  Watchdog *g = argument;
  int n = g->meeting->npeers;
  WatchRound l = {.g = g,
                  .line = rt_alloc(sizeof(struct pollfd) * (size_t)(n + 1)),
                  .pulse = rt_alloc(sizeof(Pulse) * (size_t)n),
                  .missing = -1};
  for (int i = 0; i < n; i++)
    l.line[i] = (struct pollfd){g->meeting->sockets[i], POLLIN, 0}, l.pulse[i].seen = rt_now();
  l.line[n] = (struct pollfd){g->wake, POLLIN, 0};
  for (l.now = rt_now();;) {
    uint64_t woken;
    poll(l.line, (nfds_t)n + 1, BEAT);
    if (l.line[n].revents & POLLIN && read(g->wake, &woken, sizeof woken) < 0) l.line[n].fd = -1;
    poll_once(&l, rt_now());
  }
  return NULL;
}

bool rt_watchdog_start(Watchdog *g, Comm *c, Rendezvous *m, PeerTable *table, Fault *f) {
  const Launch *l = &c->launch;
  sigset_t all, old;
  c->watchdog = g, g->comm = c, g->table = table, g->meeting = m, g->peer = &table->peer[l->rank];
  g->late = rt_seconds_of("SHARDC_LATE", 25), g->silent = 20, g->missing = -1;
  g->heartbeat = m->talk ? rt_heartbeat_open(g) : NULL;
  g->wake = m->talk ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  gethostname(g->peer->host, sizeof g->peer->host - 1);
  g->peer->pid = getpid(), g->ended = rt_now();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&g->thread, NULL, watchdog_thread, g);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return !failed || rt_fault(f, 704, "cannot start the thread that watches the other ranks");
}

/* ---- called by the main thread ---- */

_Noreturn void rt_watchdog_end(void) {
  for (;;) pause();
}

unsigned long long rt_watchdog_enter(Watchdog *g, const rt_collective *c) {
  const rt_program *p = g->comm->program;
  struct {
    int64_t count;
    unsigned row, kind, reduction, elem, calls, nothing;
  } key = {c->count, 0, c->kind, c->reduction, c->elem, 0, 0};
  g->calls++;
  if (!rt_is_hop(c->kind)) key.calls = ++g->met[c->axis];
  if (c >= p->collectives && c < p->collectives + p->ncollectives)
    key.row = (unsigned)(c - p->collectives) + 1;
  else snprintf(g->peer->text, PEER_TEXT, "%s", c->what);
  double worked = rt_now() - g->ended;
  atomic_store(&g->peer->call, (unsigned long long)g->calls << 32 | key.row);
  unsigned row = key.row;
  if (p->stages) key.row = 0; /* rows of classes differ */
  atomic_store(&g->peer->inside, 1);
  atomic_store(&g->patience, worked > g->late ? worked : g->late);
  return rt_hash_of(&key, sizeof key) ^ (row ? 0 : rt_hash_of(c->what, strlen(c->what)));
}

void rt_watchdog_exit(Watchdog *g) {
  atomic_store(&g->peer->inside, 0);
  g->ended = rt_now();
}

void rt_watchdog_wait(Watchdog *g, int rank) {
  atomic_store(&g->missing, rank);
  atomic_store(&g->waits_since, rt_now());
  atomic_store(&g->peer->state, PEER_WAITS);
}

void rt_watchdog_go_on(Watchdog *g) {
  atomic_store(&g->peer->state, PEER_RUNS);
  atomic_store(&g->waits_since, 0);
}

void rt_comm_device_begins(Comm *c, bool new_run) {
  Watchdog *g = c ? c->watchdog : NULL;
  if (!g) return;
  if (new_run) {
    atomic_fetch_add(&g->peer->runs, 1);
    rt_comm_device_at(c, 0, 0);
  }
  g->device_since = rt_now();
  atomic_fetch_add(&g->peer->moves, 1);
  atomic_store(&g->peer->inside, 1);
  atomic_store(&g->peer->state, PEER_ON_DEVICE);
}

void rt_comm_device_ends(Comm *c) {
  Watchdog *g = c ? c->watchdog : NULL;
  if (!g) return;
  double took = rt_now() - g->device_since;
  if (atomic_load(&g->table->failure))
    rt_watchdog_end(); /* what has come from there is not right */
  if (took > atomic_load(&g->device_longest)) atomic_store(&g->device_longest, took);
  atomic_fetch_add(&g->peer->moves, 1);
  atomic_store(&g->peer->inside, 0);
  atomic_store(&g->peer->state, PEER_RUNS);
}

void rt_comm_device_at(Comm *c, unsigned position, unsigned row) {
  Watchdog *g = c ? c->watchdog : NULL;
  if (!g) return;
  unsigned long long call = (unsigned long long)position << 32 | row;
  if (atomic_exchange(&g->peer->call, call) != call) atomic_fetch_add(&g->peer->moves, 1);
}

/* After two more polls the state written above has been sent. */
static void wait_until_told(Watchdog *g) {
  unsigned from = atomic_load(&g->polls);
  uint64_t one = 1;
  for (int i = 0; i < 150 && atomic_load(&g->polls) - from < 2; i++) {
    if (write(g->wake, &one, sizeof one) < 0) return;
    usleep(10000);
  }
}

/* Ranks that leave without a failure are missed only by those who still wait for them. */
void rt_watchdog_leave(Watchdog *g, int status) {
  if (!g->peer) return;
  atomic_store(&g->peer->status, status);
  atomic_store(&g->peer->state, PEER_LEFT);
  if (!g->comm->over && status && status != 75)
    rt_watchdog_fail(g, FAILURE_ENDED, g->comm->launch.rank, 0);
  if (g->heartbeat) wait_until_told(g);
}
