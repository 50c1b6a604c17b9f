/* Heartbeats between machines. With each beat of its watchdog every rank but 0 sends its own entry
   of the peer table to rank 0, and rank 0 sends its own to each. After a failure, that goes along
   with the entries of the ranks that it is about, so that all print the same message. Messages have
   a fixed size and never block: one that does not fit waits for the next beat. Called by the
   watchdog alone. Must not: believe a number that came over a connection before it is checked. */
#include "peers.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

typedef struct PeerMessage { /* an entry of the peer table */
  char host[64], text[PEER_TEXT];
  int64_t pid;
  uint64_t moves, call;
  int32_t state, status, inside;
  uint32_t beat, runs;
} PeerMessage;

enum { MINE, WHO, OTHER, NOTES };

typedef struct HeartbeatMessage {
  uint64_t failure; /* a Failure */
  PeerMessage note[NOTES];
} HeartbeatMessage;

typedef struct HeartbeatLink { /* of one line: bytes that have come, bytes that wait */
  size_t come, left;
  HeartbeatMessage in, out;
} HeartbeatLink;

struct Heartbeat {
  HeartbeatLink wire[1];
};

Heartbeat *rt_heartbeat_open(const Watchdog *g) {
  return rt_alloc(sizeof(HeartbeatLink) * (size_t)g->meeting->npeers);
}

static PeerMessage peer_message(const Peer *s) {
  PeerMessage n = {.pid = s->pid,
                   .moves = atomic_load(&s->moves),
                   .call = atomic_load(&s->call),
                   .state = atomic_load(&s->state),
                   .status = atomic_load(&s->status),
                   .inside = atomic_load(&s->inside),
                   .beat = atomic_load(&s->beat),
                   .runs = atomic_load(&s->runs)};
  memcpy(n.host, s->host, sizeof n.host - 1);
  memcpy(n.text, s->text, sizeof n.text - 1);
  return n;
}

static void take_peer(Peer *s, const PeerMessage *n) {
  memcpy(s->host, n->host, sizeof s->host - 1);
  memcpy(s->text, n->text, sizeof s->text - 1);
  rt_plain(s->host, sizeof s->host), rt_plain(s->text, sizeof s->text);
  s->pid = n->pid;
  atomic_store(&s->moves, n->moves), atomic_store(&s->call, n->call);
  atomic_store(&s->status, n->status), atomic_store(&s->inside, n->inside);
  atomic_store(&s->runs, n->runs), atomic_store(&s->beat, n->beat),
      atomic_store(&s->state, n->state);
}

/* ---- sending ---- */

static bool holds(const Watchdog *g, Failure v) {
  int world = g->comm->launch.world;
  return v && failure_kind(v) <= FAILURE_LAST && failure_rank(v) < world &&
         failure_against(v) < world;
}

static HeartbeatMessage heartbeat_message(const Watchdog *g) {
  const PeerTable *t = g->table;
  HeartbeatMessage n = {.failure = atomic_load(&t->failure), .note[MINE] = peer_message(g->peer)};
  if (!holds(g, n.failure)) return n;
  n.note[WHO] = peer_message(&t->peer[failure_rank(n.failure)]);
  n.note[OTHER] = peer_message(&t->peer[failure_against(n.failure)]);
  return n;
}

/* False: it has to wait. */
static bool push(int s, HeartbeatLink *w) {
  while (w->left) {
    ssize_t n =
        send(s, (char *)&w->out + sizeof w->out - w->left, w->left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) w->left = 0; /* the other end is gone */
    if (n <= 0) return false;
    w->left -= (size_t)n;
  }
  return true;
}

void rt_heartbeat_send(Watchdog *g) {
  HeartbeatMessage n = heartbeat_message(g);
  for (int i = 0; i < g->meeting->npeers; i++) {
    HeartbeatLink *w = &g->heartbeat->wire[i];
    if (!push(g->meeting->sockets[i], w)) continue;
    w->out = n, w->left = sizeof n;
    push(g->meeting->sockets[i], w);
  }
}

/* ---- receiving ---- */

/* Rank 0 knows the peers at first hand; each knows its own. */
static void take(Watchdog *g, const HeartbeatMessage *n, int from) {
  PeerTable *t = g->table;
  Failure v = n->failure;
  int me = g->comm->launch.rank, who = failure_rank(v), other = failure_against(v);
  take_peer(&t->peer[from], &n->note[MINE]);
  if (!holds(g, v)) return;
  if (me && who != me) take_peer(&t->peer[who], &n->note[WHO]);
  if (me && other != me) take_peer(&t->peer[other], &n->note[OTHER]);
  rt_watchdog_fail(g, failure_kind(v), who, other);
}

bool rt_heartbeat_receive(Watchdog *g, int line) {
  HeartbeatLink *w = &g->heartbeat->wire[line];
  int from = g->comm->launch.rank ? 0 : line + 1;
  for (;;) {
    ssize_t n = recv(g->meeting->sockets[line], (char *)&w->in + w->come, sizeof w->in - w->come,
                     MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    w->come += (size_t)n;
    if (w->come < sizeof w->in) continue;
    take(g, &w->in, from), w->come = 0;
  }
}
