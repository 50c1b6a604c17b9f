/* The watchdog: one thread per rank that watches the others, so that no rank waits for ever.

   The end of a process shows at once, because its socket closes: rank 0 holds one to every other
   rank, those hold one to rank 0. A process that is stopped or starved shows by its heartbeat, a
   counter in its entry of the peer table. A rank that is alive but late is detected when another
   rank has waited for it too long. Ranks of one group that all wait in different calls disagree;
   this is not reported while a heartbeat is missing, because all may wait for that rank, and it may
   come back. The first watchdog that sees a failure writes it into the table, once; every watchdog
   reads it from the table, reports it, and ends its process. The main thread may be anywhere: files
   are complete or missing at any instant.

   Must not: take locks or allocate; compare clocks of different ranks. */
#include "peers.h"
#include "runtime/base/recorder.h"
#include <errno.h>
#include <fcntl.h>
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
  LET_GO = 3,
  TELL = 4
}; /* milliseconds, microseconds, seconds */

typedef struct Pulse { /* of a rank that is watched */
  unsigned beat;
  double seen;
  bool told; /* its silence was reported */
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

static int rank_of(const Watchdog *watchdog, int line) {
  return watchdog->comm->launch.rank ? 0 : line + 1;
}

void rt_watchdog_fail(Watchdog *watchdog, FailureKind what, int rank, int against) {
  unsigned long long none = 0;
  atomic_compare_exchange_strong(&watchdog->table->failure, &none, failure_of(what, rank, against));
}

/* ---- messages ---- */

/* Rows of a call are those of the program that the rank runs. */
static const rt_program *program_of(const Watchdog *watchdog, int rank) {
  return rt_class_program(watchdog->comm->first, watchdog->comm->program, rank);
}

static void call_text(const Watchdog *watchdog, int rank, char *text, size_t size) {
  const Peer *peer = &watchdog->table->peer[rank];
  const rt_program *program = program_of(watchdog, rank);
  unsigned long long call = atomic_load(&peer->call);
  unsigned row = (unsigned)call, number = (unsigned)(call >> 32);
  if (!call && atomic_load(&peer->runs))
    snprintf(text, size, "the beginning of run %u of the GPU", atomic_load(&peer->runs));
  else if (!call) snprintf(text, size, "the start");
  else if (row && row <= (unsigned)program->ncollectives) {
    const rt_collective *collective = &program->collectives[row - 1];
    snprintf(text, size, "%s #%u of %s over %s%s%s%s", rt_collective_facts[collective->kind].words,
             number, collective->what, program->mesh[collective->axis].name,
             *collective->source ? " (" : "", collective->source, *collective->source ? ")" : "");
  } else snprintf(text, size, "#%u: %.*s", number, PEER_TEXT - 1, peer->text);
}

static void where_text(const Watchdog *watchdog, int rank, char *text, size_t size) {
  char call[400];
  bool inside = atomic_load(&watchdog->table->peer[rank].inside);
  call_text(watchdog, rank, call, sizeof call);
  snprintf(text, size, "%s %s", inside ? "in" : "after", call);
}

static void *let_device_go(void *comm) {
  Comm *c = comm;
  void (*go)(void *) = c->let_go;
  c->let_go = NULL;
  go(c->device);
  return NULL;
}

/* Stops operations that wait on the GPU. A driver that does not answer is ignored. */
static void let_go(Comm *c) {
  pthread_t helper;
  if (!c->let_go || pthread_create(&helper, NULL, let_device_go, c)) return;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += LET_GO;
  pthread_timedjoin_np(helper, NULL, &until);
}

static _Noreturn void give_up(const Watchdog *watchdog, Failure failure) {
  int rank = failure_rank(failure), other = failure_against(failure), code = 901;
  if (rank >= watchdog->comm->launch.world || other >= watchdog->comm->launch.world) _exit(1);
  const Peer *peer = &watchdog->table->peer[rank];
  char who[120], where[440], there[440];
  Fault f;
  snprintf(who, sizeof who, "rank %d (%.64s, pid %lld)", rank, peer->host, (long long)peer->pid);
  where_text(watchdog, rank, where, sizeof where);
  switch (failure_kind(failure)) {
  case FAILURE_ENDED:
    rt_fault(&f, code, "%s ended with exit status %d %s", who, atomic_load(&peer->status), where);
    rt_help(&f, "its own message says why");
    break;
  case FAILURE_SILENT:
    rt_fault(&f, 902, "%s has not answered for %.0f s; it stopped %s", who, watchdog->silent,
             where);
    rt_help(&f, "is the process stopped, or its machine overloaded?");
    break;
  case FAILURE_LATE:
    call_text(watchdog, other, there, sizeof there);
    rt_fault(&f, 902, "%s did not come to %s; it is still at work %s", who, there, where);
    rt_help(&f, "SHARDC_LATE=SECONDS gives ranks more time");
    break;
  case FAILURE_DISAGREES:
    where_text(watchdog, other, there, sizeof there);
    rt_fault(&f, 903, "%s is %s, but rank %d is %s", who, where, other, there);
    break;
  case FAILURE_STUCK:
    rt_fault(&f, 902, "no GPU of the job moves on; that of %s is %s", who, where);
    const char *help = watchdog->comm->library_help;
    rt_help(&f, "%s%sa network or a GPU may have failed", help ? help : "", help ? "; " : "");
    break;
  default:
    rt_fault(&f, code, "%s died %s", who, where);
    rt_help(&f, "--resume continues the run from its last checkpoint");
  }
  rt_print_fault(&f, "error");
  rt_record_lost(watchdog->comm->record, rank, f.what);
  let_go(watchdog->comm);
  _exit(rt_exit_status(f.code));
}

/* ---- polling ---- */

static void watch_lines(WatchRound *round) {
  Watchdog *watchdog = round->g;
  for (int i = 0; i < watchdog->meeting->npeers; i++) {
    if (!(round->line[i].revents & (POLLHUP | POLLERR | POLLIN))) continue;
    if (watchdog->heartbeat && rt_heartbeat_receive(watchdog, i)) continue;
    Peer *peer = &watchdog->table->peer[rank_of(watchdog, i)];
    round->line[i].fd = -1; /* poll passes over it */
    if (atomic_load(&peer->state) != PEER_LEFT)
      rt_watchdog_fail(watchdog, FAILURE_DIED, rank_of(watchdog, i), 0);
  }
}

/* The state of the process, if it is of this machine; "": unknown. */
static const char *process_words(const Watchdog *watchdog, const Peer *peer) {
  bool near = !strcmp(peer->host, watchdog->peer->host);
  char state = near ? rt_process_state(peer->pid) : 0;
  return state == 'T' || state == 't' ? ": it is stopped"
         : state == 'D'               ? ": it waits for a disk or a driver"
         : state                      ? ": it lives, and gets no processor"
                                      : "";
}

/* Long before it counts as lost. One rank says it. */
static void tell_silent(WatchRound *round, int i) {
  Watchdog *watchdog = round->g;
  int rank = rank_of(watchdog, i), by = rank ? 0 : 1;
  const Peer *peer = &watchdog->table->peer[rank];
  char where[440];
  round->pulse[i].told = true;
  if (watchdog->comm->launch.rank != by) return;
  where_text(watchdog, rank, where, sizeof where);
  rt_note("rank %d (%.64s, pid %lld) has not answered for %d s%s; it was %s. The job goes on if it "
          "comes back within %.0f s",
          rank, peer->host, (long long)peer->pid, TELL, process_words(watchdog, peer), where,
          watchdog->silent);
}

/* If this process was stopped itself, the others are given their full time again. */
static void watch_pulses(WatchRound *round, bool slept) {
  Watchdog *watchdog = round->g;
  for (int i = 0; i < watchdog->meeting->npeers; i++) {
    Peer *peer = &watchdog->table->peer[rank_of(watchdog, i)];
    unsigned beat = atomic_load(&peer->beat);
    if (slept || beat != round->pulse[i].beat || atomic_load(&peer->state) == PEER_LEFT)
      round->pulse[i] = (Pulse){beat, round->now, false};
    else if (round->now - round->pulse[i].seen > TELL && !round->pulse[i].told)
      tell_silent(round, i);
    else if (round->now - round->pulse[i].seen > watchdog->silent)
      rt_watchdog_fail(watchdog, FAILURE_SILENT, rank_of(watchdog, i), 0);
  }
}

/* Where a rank's GPU is, to compare: the run, then the collective. */
static unsigned long long place_of(const Peer *peer) {
  return (unsigned long long)atomic_load(&peer->runs) << 32 | atomic_load(&peer->call) >> 32;
}

/* GPUs wait for each other without progress: finds the rank at fault. This is a rank that does not
   wait at all, else the rank whose GPU is least advanced; ranks that wait on the host have finished
   their GPU work. Stages of a pipeline count their own messages, which cannot be compared: no rank
   is blamed by such counts. */
static void accuse(const WatchRound *round) {
  Watchdog *watchdog = round->g;
  int behind = -1, ahead = -1, runs = -1, done = -1;
  for (int i = 0; i < watchdog->comm->launch.world; i++) {
    const Peer *peer = watchdog->table->peer;
    int state = atomic_load(&peer[i].state);
    if (state == PEER_RUNS && runs < 0) runs = i;
    if (state == PEER_WAITS && done < 0) done = i;
    if (state != PEER_ON_DEVICE) continue;
    if (behind < 0 || place_of(&peer[i]) < place_of(&peer[behind])) behind = i;
    if (ahead < 0 || place_of(&peer[i]) > place_of(&peer[ahead])) ahead = i;
  }
  if (behind < 0) return;
  bool level = place_of(&watchdog->table->peer[behind]) == place_of(&watchdog->table->peer[ahead]);
  if (watchdog->comm->program->stages) level = true, done = -1;
  if (runs >= 0) rt_watchdog_fail(watchdog, FAILURE_LATE, runs, ahead);
  else if (level && done < 0) rt_watchdog_fail(watchdog, FAILURE_STUCK, behind, ahead);
  else rt_watchdog_fail(watchdog, FAILURE_LATE, behind, level ? done : ahead);
}

/* The row of the call that a rank is in; NULL: it is the runtime's own, of all ranks. */
static const rt_collective *row_of(const Watchdog *watchdog, int rank) {
  const rt_program *program = program_of(watchdog, rank);
  unsigned row = (unsigned)atomic_load(&watchdog->table->peer[rank].call);
  return row && row <= (unsigned)program->ncollectives ? &program->collectives[row - 1] : NULL;
}

static int axis_of(const Watchdog *watchdog, int rank) {
  const rt_collective *collective = row_of(watchdog, rank);
  return collective ? collective->axis : watchdog->comm->program->naxes;
}

/* Are two ranks in one call, as far as their entries tell? Ranks of two classes count their calls
   apart, and have rows of their own. */
static bool in_one_call(const Watchdog *watchdog, int i, int j) {
  const rt_collective *a = row_of(watchdog, i), *b = row_of(watchdog, j);
  if (program_of(watchdog, i) == program_of(watchdog, j) || !a || !b)
    return atomic_load(&watchdog->table->peer[i].call) ==
           atomic_load(&watchdog->table->peer[j].call);
  return a->kind == b->kind && a->axis == b->axis && a->elem == b->elem && a->count == b->count;
}

/* Is rank j in rank i's group on this axis? */
static bool meets(const rt_program *program, int axis, int i, int j) {
  if (axis >= program->naxes) return true;
  int64_t n = program->mesh[axis].size, stride = program->mesh[axis].stride;
  return i - i / stride % n * stride == j - j / stride % n * stride;
}

/* Two ranks that wait for each other in different calls. Ranks of other groups may also wait in
   different calls, because groups advance at different speeds. */
static bool at_odds(const Watchdog *watchdog, int *a, int *b) {
  const rt_program *program = watchdog->comm->program;
  for (int i = 1; i < watchdog->comm->launch.world; i++)
    for (int j = 0; j < i; j++)
      if (!in_one_call(watchdog, i, j) && meets(program, axis_of(watchdog, i), i, j) &&
          meets(program, axis_of(watchdog, j), i, j))
        return *a = i, *b = j, true;
  return false;
}

static bool all_beat(const WatchRound *round) {
  Watchdog *watchdog = round->g;
  for (int i = 0; i < watchdog->meeting->npeers; i++)
    if (atomic_load(&watchdog->table->peer[rank_of(watchdog, i)].state) != PEER_LEFT &&
        round->now - round->pulse[i].seen > 1e-3 * PAUSED)
      return false;
  return true;
}

/* Rank 0 polls whether anybody moves while all wait, or while GPUs do. */
static void watch_moves(WatchRound *round, bool slept) {
  Watchdog *watchdog = round->g;
  unsigned long long moves = 0;
  int n = watchdog->comm->launch.world, a = 0, b = 0, busy = 0, devices = 0;
  for (int i = 0; i < n; i++) {
    Peer *peer = &watchdog->table->peer[i];
    int state = atomic_load(&peer->state);
    moves += atomic_load(&peer->moves);
    busy += state == PEER_RUNS || state == PEER_LEFT, devices += state == PEER_ON_DEVICE;
    if (!in_one_call(watchdog, i, 0)) a = i;
  }
  double still = round->now - round->still_since,
         most = watchdog->late > 5 ? watchdog->late / 5 : 1;
  if ((busy && !devices) || moves != round->moves || slept || !all_beat(round))
    round->moves = moves, round->still_since = round->now;
  else if (!devices && still > most && (at_odds(watchdog, &a, &b) || (a && still > watchdog->late)))
    rt_watchdog_fail(watchdog, FAILURE_DISAGREES, a, b);
  else if (devices && still > watchdog->late && still > atomic_load(&watchdog->device_longest))
    accuse(round);
}

/* A rank that pauses is not late: what it slept is not counted. Between machines only rank 0 sees
   every heartbeat. */
static double asleep(WatchRound *round, int rank, double since_last) {
  Watchdog *watchdog = round->g;
  unsigned beat = atomic_load(&watchdog->table->peer[rank].beat);
  if (rank != round->missing || beat != round->of_missing.beat)
    round->missing = rank, round->of_missing = (Pulse){beat, round->now, false};
  bool seen = !watchdog->heartbeat || !rank || !watchdog->comm->launch.rank;
  return seen && round->now - round->of_missing.seen > 1e-3 * PAUSED ? since_last : 0;
}

/* A rank that progresses in calls with other ranks, as the stages of a pipeline do in turn, has its
   deadline counted from its last progress. */
static double moved_on(WatchRound *round, const Peer *peer, double since) {
  unsigned long long moves = atomic_load(&peer->moves);
  bool on = moves != round->missing_moves && atomic_load(&round->g->waits_since) <= since;
  round->missing_moves = moves;
  return on && since < round->now ? round->now - since : 0;
}

/* This rank waits: for somebody who has left, or for too long? */
static void watch_wait(WatchRound *round, double since_last) {
  Watchdog *watchdog = round->g;
  int rank = atomic_load(&watchdog->missing);
  double since = atomic_load(&watchdog->waits_since);
  if (since <= 0 || rank < 0) return;
  Peer *peer = &watchdog->table->peer[rank];
  bool left = atomic_load(&peer->state) == PEER_LEFT;
  double slept = left ? 0 : asleep(round, rank, since_last),
         on = left ? 0 : moved_on(round, peer, since);
  if (on > slept) slept = on;
  double moved = since + slept;
  if (slept > 0) {
    if (!atomic_compare_exchange_strong(&watchdog->waits_since, &since, moved))
      return; /* it is over */
    since = moved;
  }
  if (!left || since > round->left_wait || since < round->left_wait)
    round->left_wait = left ? since : 0,
    round->left_since = round->now; /* it may have come just before */
  else if (round->now - round->left_since > 3) rt_watchdog_fail(watchdog, FAILURE_ENDED, rank, 0);
  if (atomic_load(&peer->state) == PEER_RUNS &&
      round->now - since > atomic_load(&watchdog->patience))
    rt_watchdog_fail(watchdog, FAILURE_LATE, rank, watchdog->comm->launch.rank);
}

/* A failure ends the process, except a rank that ends by itself already. The others hear it first.
   */
static void watch_failure(WatchRound *round) {
  Watchdog *watchdog = round->g;
  Failure failure = atomic_load(&watchdog->table->failure);
  bool own = failure_rank(failure) == watchdog->comm->launch.rank &&
             failure_kind(failure) == FAILURE_ENDED;
  if (watchdog->heartbeat) rt_heartbeat_send(watchdog);
  if (!failure || own) return;
  if (watchdog->heartbeat) usleep(LINGER);
  give_up(watchdog, failure);
}

/* Reads the state of all ranks at one instant. */
static void observe(WatchRound *round, double now) {
  Watchdog *watchdog = round->g;
  double since_last = now - round->now;
  bool slept = since_last > 3;
  round->now = now;
  atomic_fetch_add(&watchdog->peer->beat, 1);
  watch_lines(round), watch_pulses(round, slept);
  if (!watchdog->comm->launch.rank) watch_moves(round, slept);
  if (slept && atomic_load(&watchdog->waits_since) > 0) atomic_store(&watchdog->waits_since, now);
  watch_wait(round, since_last);
}

static void poll_once(WatchRound *round, double now) {
  observe(round, now);
  watch_failure(round);
  atomic_fetch_add(&round->g->polls, 1);
}

static void *watchdog_thread(void *argument) {
  Watchdog *watchdog = argument;
  int n = watchdog->meeting->npeers;
  WatchRound round = {.g = watchdog,
                      .line = rt_alloc(sizeof(struct pollfd) * (size_t)(n + 1)),
                      .pulse = rt_alloc(sizeof(Pulse) * (size_t)n),
                      .missing = -1};
  for (int i = 0; i < n; i++)
    round.line[i] = (struct pollfd){watchdog->meeting->sockets[i], POLLIN, 0},
    round.pulse[i].seen = rt_now();
  round.line[n] = (struct pollfd){watchdog->wake, POLLIN, 0};
  for (round.now = rt_now();;) {
    uint64_t woken;
    poll(round.line, (nfds_t)n + 1, BEAT);
    if (round.line[n].revents & POLLIN && read(watchdog->wake, &woken, sizeof woken) < 0)
      round.line[n].fd = -1;
    poll_once(&round, rt_now());
  }
  return NULL;
}

bool rt_watchdog_start(Watchdog *watchdog, Comm *c, Rendezvous *rendezvous, PeerTable *table,
                       Fault *f) {
  const Launch *launch = &c->launch;
  sigset_t all, old;
  c->watchdog = watchdog, watchdog->comm = c, watchdog->table = table,
  watchdog->meeting = rendezvous, watchdog->peer = &table->peer[launch->rank];
  watchdog->late = rt_seconds_of("SHARDC_LATE", 25), watchdog->silent = 20, watchdog->missing = -1;
  watchdog->heartbeat = rendezvous->talk ? rt_heartbeat_open(watchdog) : NULL;
  watchdog->wake = rendezvous->talk ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (!watchdog->peer->pid) gethostname(watchdog->peer->host, sizeof watchdog->peer->host - 1);
  if (!watchdog->peer->pid) watchdog->peer->pid = getpid();
  watchdog->ended = rt_now();
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&watchdog->thread, NULL, watchdog_thread, watchdog);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return !failed || rt_fault(f, 704, "cannot start the thread that watches the other ranks");
}

/* ---- called by the main thread ---- */

_Noreturn void rt_watchdog_end(void) {
  for (;;) pause();
}

unsigned long long rt_watchdog_enter(Watchdog *watchdog, const rt_collective *collective) {
  const rt_program *program = watchdog->comm->program;
  struct {
    int64_t count;
    unsigned row, kind, reduction, elem, calls, nothing;
  } key = {collective->count, 0, collective->kind, collective->reduction, collective->elem, 0, 0};
  watchdog->calls++;
  if (!rt_is_hop(collective->kind)) key.calls = ++watchdog->met[collective->axis];
  if (collective >= program->collectives &&
      collective < program->collectives + program->ncollectives)
    key.row = (unsigned)(collective - program->collectives) + 1;
  else snprintf(watchdog->peer->text, PEER_TEXT, "%s", collective->what);
  double worked = rt_now() - watchdog->ended;
  atomic_store(&watchdog->peer->call, (unsigned long long)watchdog->calls << 32 | key.row);
  unsigned row = key.row;
  if (program->stages) key.row = 0; /* rows of classes differ */
  atomic_store(&watchdog->peer->inside, 1);
  atomic_store(&watchdog->patience, worked > watchdog->late ? worked : watchdog->late);
  return rt_hash_of(&key, sizeof key) ^
         (row ? 0 : rt_hash_of(collective->what, strlen(collective->what)));
}

void rt_watchdog_exit(Watchdog *watchdog) {
  atomic_store(&watchdog->peer->inside, 0);
  watchdog->ended = rt_now();
}

void rt_watchdog_wait(Watchdog *watchdog, int rank) {
  atomic_store(&watchdog->missing, rank);
  atomic_store(&watchdog->waits_since, rt_now());
  atomic_store(&watchdog->peer->state, PEER_WAITS);
}

void rt_watchdog_go_on(Watchdog *watchdog) {
  atomic_store(&watchdog->peer->state, PEER_RUNS);
  atomic_store(&watchdog->waits_since, 0);
}

void rt_comm_device_begins(Comm *c, bool new_run) {
  Watchdog *watchdog = c ? c->watchdog : NULL;
  if (!watchdog) return;
  if (new_run) {
    atomic_fetch_add(&watchdog->peer->runs, 1);
    rt_comm_device_at(c, 0, 0);
  }
  watchdog->device_since = rt_now();
  atomic_fetch_add(&watchdog->peer->moves, 1);
  atomic_store(&watchdog->peer->inside, 1);
  atomic_store(&watchdog->peer->state, PEER_ON_DEVICE);
}

void rt_comm_device_ends(Comm *c) {
  Watchdog *watchdog = c ? c->watchdog : NULL;
  if (!watchdog) return;
  double took = rt_now() - watchdog->device_since;
  if (atomic_load(&watchdog->table->failure))
    rt_watchdog_end(); /* what has come from there is not right */
  if (took > atomic_load(&watchdog->device_longest)) atomic_store(&watchdog->device_longest, took);
  atomic_fetch_add(&watchdog->peer->moves, 1);
  atomic_store(&watchdog->peer->inside, 0);
  atomic_store(&watchdog->peer->state, PEER_RUNS);
}

void rt_comm_device_at(Comm *c, unsigned position, unsigned row) {
  Watchdog *watchdog = c ? c->watchdog : NULL;
  if (!watchdog) return;
  unsigned long long call = (unsigned long long)position << 32 | row;
  if (atomic_exchange(&watchdog->peer->call, call) == call) return;
  atomic_fetch_add(&watchdog->peer->moves, 1);
  const rt_collective *at = row_of(watchdog, c->launch.rank);
  if (at)
    rt_record(c->record, RECORD_DEVICE_CALL, position, rt_collective_facts[at->kind].words,
              at->what, c->program->mesh[at->axis].name);
}

/* After two more polls the state written above has been sent. */
static void wait_until_told(Watchdog *watchdog) {
  unsigned from = atomic_load(&watchdog->polls);
  uint64_t one = 1;
  for (int i = 0; i < 150 && atomic_load(&watchdog->polls) - from < 2; i++) {
    if (write(watchdog->wake, &one, sizeof one) < 0) return;
    usleep(10000);
  }
}

/* Ranks that leave without a failure are missed only by those who still wait for them. */
void rt_watchdog_leave(Watchdog *watchdog, int status) {
  if (!watchdog->peer) return;
  atomic_store(&watchdog->peer->status, status);
  atomic_store(&watchdog->peer->state, PEER_LEFT);
  if (!watchdog->comm->over && status && status != 75)
    rt_watchdog_fail(watchdog, FAILURE_ENDED, watchdog->comm->launch.rank, 0);
  if (watchdog->heartbeat) wait_until_told(watchdog);
}
