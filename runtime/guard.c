/* The guard: one thread per rank that looks after the others, so that no rank waits for ever.

   The end of a process shows at once, because its socket closes: rank 0 holds one to every other
   rank, those hold one to rank 0. A process that is stopped or starved shows by its heart beat, a
   counter in its seat. A rank that lives but does not come shows when somebody has waited for it
   too long; ranks that all wait, for different things, disagree. Whoever sees trouble writes it
   into the table, once; every guard reads it there, says it, and ends its process. What the main
   thread does meanwhile is no matter: files are complete or not there at any instant.

   Must not: take locks or allocate; compare clocks of different ranks. */
#include "seats.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BEAT = 250 }; /* milliseconds */

typedef struct Pulse { /* of a rank that is watched */
  unsigned beat;
  double seen;
} Pulse;

typedef struct Look { /* what one guard remembers */
  Guard *g;
  struct pollfd *line;
  Pulse *pulse;
  double now, still_since, left_since, left_wait;
  unsigned long long moves;
} Look;

static int rank_of(const Guard *g, int line) { return g->comm->launch.rank ? 0 : line + 1; }

void rt_guard_trouble(Guard *g, Trouble what, int rank, int against) {
  unsigned long long none = 0;
  atomic_store(&g->table->against, (unsigned long long)against);
  atomic_compare_exchange_strong(&g->table->trouble, &none,
                                 (unsigned long long)what << 32 | (unsigned)rank);
}

/* ---- words ---- */

static void call_text(const Guard *g, int rank, char *text, size_t size) {
  const Seat *s = &g->table->seat[rank];
  const rt_program *p = g->comm->program;
  unsigned long long call = atomic_load(&s->call);
  unsigned row = (unsigned)call, number = (unsigned)(call >> 32);
  if (!call) snprintf(text, size, "the start");
  else if (row && (int)row <= p->ncollectives) {
    const rt_collective *c = &p->collectives[row - 1];
    snprintf(text, size, "%s #%u of %s over %s%s%s%s", rt_collective_name((int)c->kind), number,
             c->what, p->mesh[c->axis].name, *c->source ? " (" : "", c->source,
             *c->source ? ")" : "");
  } else snprintf(text, size, "#%u: %.*s", number, SEAT_TEXT - 1, s->text);
}

static void where_text(const Guard *g, int rank, char *text, size_t size) {
  char call[400];
  bool inside = atomic_load(&g->table->seat[rank].inside);
  call_text(g, rank, call, sizeof call);
  snprintf(text, size, "%s %s", inside ? "in" : "after", call);
}

static _Noreturn void give_up(const Guard *g, unsigned long long trouble) {
  int rank = (int)(unsigned)trouble, other = (int)atomic_load(&g->table->against), code = 901;
  const Seat *s = &g->table->seat[rank];
  char who[120], where[440], there[440];
  Fault f;
  snprintf(who, sizeof who, "rank %d (%.64s, pid %lld)", rank, s->host, (long long)s->pid);
  where_text(g, rank, where, sizeof where);
  switch ((Trouble)(trouble >> 32)) {
  case TROUBLE_ENDED:
    rt_fault(&f, code, "%s ended with exit status %d %s", who, atomic_load(&s->status), where);
    rt_help(&f, "its own message says why");
    break;
  case TROUBLE_SILENT:
    rt_fault(&f, 902, "%s has not answered for %.0f s; it stopped %s", who, g->silent, where);
    rt_help(&f, "is the process stopped, or its machine overloaded?");
    break;
  case TROUBLE_LATE:
    call_text(g, other, there, sizeof there);
    rt_fault(&f, 902, "%s did not come to %s; it is still at work %s", who, there, where);
    rt_help(&f, "SHARDC_LATE=SECONDS gives ranks more time");
    break;
  case TROUBLE_DISAGREES:
    where_text(g, other, there, sizeof there);
    rt_fault(&f, 903, "%s is %s, but rank %d is %s", who, where, other, there);
    break;
  default:
    rt_fault(&f, code, "%s died %s", who, where);
    rt_help(&f, "a run goes on with --resume from its last checkpoint");
  }
  rt_print_fault(&f, "error");
  _exit(rt_exit_status(f.code));
}

/* ---- looking ---- */

static void watch_lines(Look *l) {
  Guard *g = l->g;
  for (int i = 0; i < g->meeting->npeers; i++) {
    if (!(l->line[i].revents & (POLLHUP | POLLERR | POLLIN))) continue;
    Seat *s = &g->table->seat[rank_of(g, i)];
    l->line[i].fd = -1; /* poll passes over it */
    if (atomic_load(&s->state) != SEAT_LEFT) rt_guard_trouble(g, TROUBLE_DIED, rank_of(g, i), 0);
  }
}

/* If this process was stopped itself, the others are given their full time again. */
static void watch_pulses(Look *l, bool slept) {
  Guard *g = l->g;
  for (int i = 0; i < g->meeting->npeers; i++) {
    Seat *s = &g->table->seat[rank_of(g, i)];
    unsigned beat = atomic_load(&s->beat);
    if (slept || beat != l->pulse[i].beat || atomic_load(&s->state) == SEAT_LEFT)
      l->pulse[i] = (Pulse){beat, l->now};
    else if (l->now - l->pulse[i].seen > g->silent)
      rt_guard_trouble(g, TROUBLE_SILENT, rank_of(g, i), 0);
  }
}

/* Rank 0 looks whether anybody moves while all wait. */
static void watch_moves(Look *l) {
  Guard *g = l->g;
  unsigned long long moves = 0;
  int n = g->comm->launch.world, differs = 0;
  bool wait = true;
  for (int i = 0; i < n; i++) {
    Seat *s = &g->table->seat[i];
    moves += atomic_load(&s->moves), wait = wait && atomic_load(&s->state) == SEAT_WAITS;
    if (atomic_load(&s->call) != atomic_load(&g->table->seat[0].call)) differs = i;
  }
  if (!wait || moves != l->moves) l->moves = moves, l->still_since = l->now;
  else if (l->now - l->still_since > 5 && differs)
    rt_guard_trouble(g, TROUBLE_DISAGREES, differs, 0);
}

/* This rank waits: for somebody who has left, or for too long? */
static void watch_wait(Look *l) {
  Guard *g = l->g;
  int rank = atomic_load(&g->missing);
  double since = atomic_load(&g->waits_since);
  if (since <= 0 || rank < 0) return;
  Seat *s = &g->table->seat[rank];
  bool left = atomic_load(&s->state) == SEAT_LEFT;
  if (!left || since > l->left_wait || since < l->left_wait)
    l->left_wait = left ? since : 0, l->left_since = l->now; /* it may have come just before */
  else if (l->now - l->left_since > 3) rt_guard_trouble(g, TROUBLE_ENDED, rank, 0);
  if (atomic_load(&s->state) == SEAT_RUNS && l->now - since > atomic_load(&g->patience))
    rt_guard_trouble(g, TROUBLE_LATE, rank, g->comm->launch.rank);
}

static void *stand(void *argument) {
  Guard *g = argument;
  Seat *mine = &g->table->seat[g->comm->launch.rank];
  int n = g->meeting->npeers;
  Look l = {.g = g,
            .line = rt_alloc(sizeof(struct pollfd) * (size_t)n),
            .pulse = rt_alloc(sizeof(Pulse) * (size_t)n)};
  for (int i = 0; i < n; i++)
    l.line[i] = (struct pollfd){g->meeting->peer[i], POLLIN, 0}, l.pulse[i].seen = rt_now();
  for (l.now = rt_now();;) {
    poll(l.line, (nfds_t)n, BEAT);
    double now = rt_now();
    bool slept = now - l.now > 3;
    l.now = now;
    atomic_fetch_add(&mine->beat, 1);
    watch_lines(&l), watch_pulses(&l, slept);
    if (!g->comm->launch.rank) watch_moves(&l);
    if (slept && atomic_load(&g->waits_since) > 0) atomic_store(&g->waits_since, now);
    watch_wait(&l);
    unsigned long long trouble = atomic_load(&g->table->trouble);
    if (trouble && (int)(unsigned)trouble != g->comm->launch.rank) give_up(g, trouble);
    if (trouble && (Trouble)(trouble >> 32) != TROUBLE_ENDED) give_up(g, trouble);
  }
  return NULL;
}

bool rt_guard_start(Guard *g, Fault *f) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&g->thread, NULL, stand, g);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return !failed || rt_fault(f, 704, "cannot start the thread that watches the other ranks");
}
