/* Communicator `tcp`: what the runtime itself asks, between ranks of several machines. Programs for
   GPUs talk over NCCL, and need somebody who hands out its ids and answers the runtime's short
   questions; this is he. Every rank has a connection to rank 0, which hears all and tells all: a
   star, made for kilobytes. The watchdog watches over second connections, as on one machine.

   Each message begins with the mark of the call, so ranks that call different things say so. Must
   not: carry the program's own collectives; allocate after the start. */
#include "reduce_ranks.h"
#include "peers.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHUNK = 1 << 16 };

typedef struct Tcp {
  Watchdog watchdog;
  Rendezvous meeting;
  char *in, *sum; /* rank 0: chunks of an all-reduce */
} Tcp;

typedef struct TcpCall {
  Tcp *t;
  const rt_collective *what;
  int world, size;
  unsigned long long mark;
} TcpCall;

static int line_to(const TcpCall *x, int rank) { return x->t->meeting.talk[rank ? rank - 1 : 0]; }

/* ---- messages ---- */

/* Why is the watchdog's to find out: this rank waits for one that is gone. */
static _Noreturn void broken(const TcpCall *x, int rank) {
  rt_watchdog_wait(&x->t->watchdog, rank);
  rt_watchdog_end();
}

static void await(const TcpCall *x, int rank) {
  struct pollfd p = {line_to(x, rank), POLLIN, 0};
  atomic_fetch_add(&x->t->watchdog.peer->moves, 1);
  if (poll(&p, 1, 0) == 1) return;
  rt_watchdog_wait(&x->t->watchdog, rank);
  while (poll(&p, 1, -1) != 1) {}
  rt_watchdog_go_on(&x->t->watchdog);
}

static void tell(const TcpCall *x, int rank, const void *data, int64_t bytes) {
  if (!rt_send_all(line_to(x, rank), data, (size_t)bytes)) broken(x, rank);
}

static void hear(const TcpCall *x, int rank, void *data, int64_t bytes) {
  await(x, rank);
  if (!rt_receive_all(line_to(x, rank), data, (size_t)bytes, 1e6)) broken(x, rank);
}

static void compare(const TcpCall *x, int rank) {
  unsigned long long theirs;
  hear(x, rank, &theirs, sizeof theirs);
  if (theirs == x->mark) return;
  rt_watchdog_fail(&x->t->watchdog, FAILURE_DISAGREES, rank, 0);
  rt_watchdog_end();
}

/* ---- collectives: rank 0 hears all, then tells all ---- */

static void sum_at_zero(const TcpCall *x, const char *send, char *receive) {
  const rt_collective *c = x->what;
  int64_t step = CHUNK / x->size;
  for (int64_t at = 0; at < c->count; at += step) {
    int64_t m = c->count - at < step ? c->count - at : step, bytes = m * x->size;
    char *sum = x->t->sum, *other = x->t->sum + CHUNK;
    memcpy(sum, send + at * x->size, (size_t)bytes);
    for (int i = 1; i < x->world; i++) {
      hear(x, i, x->t->in, bytes);
      rt_reduce((int)c->elem, (int)c->reduction, other, (const void *[]){sum, x->t->in}, 2, m);
      char *next = sum;
      sum = other, other = next;
    }
    memcpy(receive + at * x->size, sum, (size_t)bytes);
    for (int i = 1; i < x->world; i++) tell(x, i, receive + at * x->size, bytes);
  }
}

static void all_reduce(const TcpCall *x, const char *send, char *receive) {
  int64_t step = CHUNK / x->size, count = x->what->count;
  if (!x->t->watchdog.comm->launch.rank) {
    sum_at_zero(x, send, receive);
    return;
  }
  for (int64_t at = 0; at < count; at += step) {
    int64_t bytes = (count - at < step ? count - at : step) * x->size;
    tell(x, 0, send + at * x->size, bytes);
    hear(x, 0, receive + at * x->size, bytes);
  }
}

static void all_gather(const TcpCall *x, const char *send, char *receive) {
  int64_t bytes = x->what->count * x->size;
  if (x->t->watchdog.comm->launch.rank) {
    tell(x, 0, send, bytes);
    hear(x, 0, receive, bytes * x->world);
    return;
  }
  memmove(receive, send, (size_t)bytes);
  for (int i = 1; i < x->world; i++) hear(x, i, receive + i * bytes, bytes);
  for (int i = 1; i < x->world; i++) tell(x, i, receive, bytes * x->world);
}

static void broadcast(const TcpCall *x, const char *send, char *receive) {
  int64_t bytes = x->what->count * x->size;
  if (x->t->watchdog.comm->launch.rank) {
    hear(x, 0, receive, bytes);
    return;
  }
  if (send != receive) memmove(receive, send, (size_t)bytes);
  for (int i = 1; i < x->world; i++) tell(x, i, receive, bytes);
}

static void greet(const TcpCall *x) {
  if (x->t->watchdog.comm->launch.rank) {
    tell(x, 0, &x->mark, sizeof x->mark);
    return;
  }
  for (int i = 1; i < x->world; i++) compare(x, i);
}

static void tcp_collect(Comm *c, const RankGroup *g, int channel, const rt_collective *what,
                        const void *send, void *receive) {
  Tcp *t = c->inside;
  if (channel != c->program->naxes)
    rt_fail(105, "communicator tcp does not carry the %s of %s: compile again",
            rt_collective_name((int)what->kind), what->what);
  TcpCall x = {.t = t, .what = what, .world = g->n, .size = rt_elem_bytes((int)what->elem)};
  x.mark = rt_watchdog_enter(&t->watchdog, what);
  greet(&x);
  if (what->kind == RT_ALL_REDUCE) all_reduce(&x, send, receive);
  else if (what->kind == RT_ALL_GATHER) all_gather(&x, send, receive);
  else broadcast(&x, send, receive);
  rt_watchdog_exit(&t->watchdog);
}

/* ---- joining ---- */

static bool tcp_join(Comm *c, Fault *f) {
  Tcp *t = rt_alloc(sizeof *t);
  c->inside = t;
  t->in = rt_alloc(CHUNK), t->sum = rt_alloc((size_t)2 * CHUNK);
  if (!*c->launch.place) {
    rt_fault(f, 108, "%d ranks on several machines, and nothing says where they meet",
             c->launch.world);
    return rt_help(f, "MASTER_ADDR and MASTER_PORT of rank 0's machine, or --meet HOST:PORT, or "
                      "--meet FILE on a file system that all see");
  }
  if (!rt_rendezvous(&t->meeting, &rt_rendezvous_tcp, c, 0, f)) return false;
  size_t bytes = sizeof(PeerTable) + sizeof(Peer) * (size_t)c->launch.world;
  PeerTable *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return rt_fault(f, 701, "no memory for the table of ranks");
  for (int i = 0; i < c->launch.world; i++) {
    memcpy(table->peer[i].host, t->meeting.hello[i].host, sizeof table->peer[i].host);
    table->peer[i].pid = t->meeting.hello[i].pid;
  }
  return rt_watchdog_start(&t->watchdog, c, &t->meeting, table, f);
}

static void tcp_leave(Comm *c, int status) {
  Tcp *t = c->inside;
  if (t) rt_watchdog_leave(&t->watchdog, status);
}

const CommKind rt_comm_tcp = {"tcp", tcp_join, tcp_collect, tcp_leave, false};
