/* Communicator `tcp`: messages of the runtime itself between ranks of several machines. In programs
   for GPUs a library of the device sends the tensors; this communicator sends the ids of that
   library and the short messages of the runtime. Every rank has a connection to rank 0, which
   receives from all ranks and sends to all: a star, made for kilobytes. The watchdog uses second
   connections, as on one machine.

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

static int line_to(const TcpCall *call, int rank) {
  return call->t->meeting.talk[rank ? rank - 1 : 0];
}

/* ---- messages ---- */

/* Why is the watchdog's to find out: this rank waits for one that is gone. */
static _Noreturn void broken(const TcpCall *call, int rank) {
  rt_watchdog_wait(&call->t->watchdog, rank);
  rt_watchdog_end();
}

static void await(const TcpCall *call, int rank) {
  struct pollfd p = {line_to(call, rank), POLLIN, 0};
  atomic_fetch_add(&call->t->watchdog.peer->moves, 1);
  if (poll(&p, 1, 0) == 1) return;
  rt_watchdog_wait(&call->t->watchdog, rank);
  while (poll(&p, 1, -1) != 1) {}
  rt_watchdog_go_on(&call->t->watchdog);
}

static void tell(const TcpCall *call, int rank, const void *data, int64_t bytes) {
  if (!rt_send_all(line_to(call, rank), data, (size_t)bytes)) broken(call, rank);
}

static void hear(const TcpCall *call, int rank, void *data, int64_t bytes) {
  await(call, rank);
  if (!rt_receive_all(line_to(call, rank), data, (size_t)bytes, 1e6)) broken(call, rank);
}

static void compare(const TcpCall *call, int rank) {
  unsigned long long theirs;
  hear(call, rank, &theirs, sizeof theirs);
  if (theirs == call->mark) return;
  rt_watchdog_fail(&call->t->watchdog, FAILURE_DISAGREES, rank, 0);
  rt_watchdog_end();
}

/* ---- collectives: rank 0 hears all, then tells all ---- */

static void sum_at_zero(const TcpCall *call, const char *send, char *receive) {
  const rt_collective *collective = call->what;
  int64_t step = CHUNK / call->size;
  for (int64_t at = 0; at < collective->count; at += step) {
    int64_t m = collective->count - at < step ? collective->count - at : step,
            bytes = m * call->size;
    char *sum = call->t->sum, *other = call->t->sum + CHUNK;
    memcpy(sum, send + at * call->size, (size_t)bytes);
    for (int i = 1; i < call->world; i++) {
      hear(call, i, call->t->in, bytes);
      rt_reduce((int)collective->elem, (int)collective->reduction, other,
                (const void *[]){sum, call->t->in}, 2, m);
      char *next = sum;
      sum = other, other = next;
    }
    memcpy(receive + at * call->size, sum, (size_t)bytes);
    for (int i = 1; i < call->world; i++) tell(call, i, receive + at * call->size, bytes);
  }
}

static void all_reduce(const TcpCall *call, const char *send, char *receive) {
  int64_t step = CHUNK / call->size, count = call->what->count;
  if (!call->t->watchdog.comm->launch.rank) {
    sum_at_zero(call, send, receive);
    return;
  }
  for (int64_t at = 0; at < count; at += step) {
    int64_t bytes = (count - at < step ? count - at : step) * call->size;
    tell(call, 0, send + at * call->size, bytes);
    hear(call, 0, receive + at * call->size, bytes);
  }
}

static void all_gather(const TcpCall *call, const char *send, char *receive) {
  int64_t bytes = call->what->count * call->size;
  if (call->t->watchdog.comm->launch.rank) {
    tell(call, 0, send, bytes);
    hear(call, 0, receive, bytes * call->world);
    return;
  }
  memmove(receive, send, (size_t)bytes);
  for (int i = 1; i < call->world; i++) hear(call, i, receive + i * bytes, bytes);
  for (int i = 1; i < call->world; i++) tell(call, i, receive, bytes * call->world);
}

static void broadcast(const TcpCall *call, const char *send, char *receive) {
  int64_t bytes = call->what->count * call->size;
  if (call->t->watchdog.comm->launch.rank) {
    hear(call, 0, receive, bytes);
    return;
  }
  if (send != receive) memmove(receive, send, (size_t)bytes);
  for (int i = 1; i < call->world; i++) tell(call, i, receive, bytes);
}

static void greet(const TcpCall *call) {
  if (call->t->watchdog.comm->launch.rank) {
    tell(call, 0, &call->mark, sizeof call->mark);
    return;
  }
  for (int i = 1; i < call->world; i++) compare(call, i);
}

static void tcp_collect(Comm *c, const RankGroup *group, int channel, const rt_collective *what,
                        const void *send, void *receive) {
  Tcp *tcp = c->inside;
  if (channel != c->program->naxes)
    rt_fail(105, "communicator tcp does not carry the %s of %s: compile again",
            rt_collective_facts[what->kind].words, what->what);
  TcpCall call = {
      .t = tcp, .what = what, .world = group->n, .size = rt_elem_bytes((int)what->elem)};
  call.mark = rt_watchdog_enter(&tcp->watchdog, what);
  greet(&call);
  if (what->kind == RT_ALL_REDUCE) all_reduce(&call, send, receive);
  else if (what->kind == RT_ALL_GATHER) all_gather(&call, send, receive);
  else broadcast(&call, send, receive);
  rt_watchdog_exit(&tcp->watchdog);
}

/* ---- joining ---- */

static bool tcp_join(Comm *c, Fault *f) {
  Tcp *tcp = rt_alloc(sizeof *tcp);
  c->inside = tcp;
  tcp->in = rt_alloc(CHUNK), tcp->sum = rt_alloc((size_t)2 * CHUNK);
  if (!*c->launch.place) {
    rt_fault(f, 108, "%d ranks on several machines, and nothing says where they meet",
             c->launch.world);
    return rt_help(f, "MASTER_ADDR and MASTER_PORT of rank 0's machine, or --meet HOST:PORT, or "
                      "--meet FILE on a file system that all see");
  }
  if (!rt_rendezvous(&tcp->meeting, &rt_rendezvous_tcp, c, 0, f)) return false;
  size_t bytes = sizeof(PeerTable) + sizeof(Peer) * (size_t)c->launch.world;
  PeerTable *table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (table == MAP_FAILED) return rt_fault(f, 701, "no memory for the table of ranks");
  for (int i = 0; i < c->launch.world; i++) {
    memcpy(table->peer[i].host, tcp->meeting.hello[i].host, sizeof table->peer[i].host);
    table->peer[i].pid = tcp->meeting.hello[i].pid;
  }
  return rt_watchdog_start(&tcp->watchdog, c, &tcp->meeting, table, f);
}

static void tcp_leave(Comm *c, int status) {
  Tcp *tcp = c->inside;
  if (tcp) rt_watchdog_leave(&tcp->watchdog, status);
}

const CommKind rt_comm_tcp = {"tcp", tcp_join, tcp_collect, tcp_leave, false};
