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

Heartbeat *rt_heartbeat_open(const Watchdog *watchdog) {
  return rt_alloc(sizeof(HeartbeatLink) * (size_t)watchdog->meeting->npeers);
}

static PeerMessage peer_message(const Peer *peer) {
  PeerMessage message = {.pid = peer->pid,
                         .moves = atomic_load(&peer->moves),
                         .call = atomic_load(&peer->call),
                         .state = atomic_load(&peer->state),
                         .status = atomic_load(&peer->status),
                         .inside = atomic_load(&peer->inside),
                         .beat = atomic_load(&peer->beat),
                         .runs = atomic_load(&peer->runs)};
  memcpy(message.host, peer->host, sizeof message.host - 1);
  memcpy(message.text, peer->text, sizeof message.text - 1);
  return message;
}

static void take_peer(Peer *peer, const PeerMessage *message) {
  memcpy(peer->host, message->host, sizeof peer->host - 1);
  memcpy(peer->text, message->text, sizeof peer->text - 1);
  rt_plain(peer->host, sizeof peer->host), rt_plain(peer->text, sizeof peer->text);
  peer->pid = message->pid;
  atomic_store(&peer->moves, message->moves), atomic_store(&peer->call, message->call);
  atomic_store(&peer->status, message->status), atomic_store(&peer->inside, message->inside);
  atomic_store(&peer->runs, message->runs), atomic_store(&peer->beat, message->beat),
      atomic_store(&peer->state, message->state);
}

/* ---- sending ---- */

static bool holds(const Watchdog *watchdog, Failure v) {
  int world = watchdog->comm->launch.world;
  return v && failure_kind(v) <= FAILURE_LAST && failure_rank(v) < world &&
         failure_against(v) < world;
}

static HeartbeatMessage heartbeat_message(const Watchdog *watchdog) {
  const PeerTable *table = watchdog->table;
  HeartbeatMessage message = {.failure = atomic_load(&table->failure),
                              .note[MINE] = peer_message(watchdog->peer)};
  if (!holds(watchdog, message.failure)) return message;
  message.note[WHO] = peer_message(&table->peer[failure_rank(message.failure)]);
  message.note[OTHER] = peer_message(&table->peer[failure_against(message.failure)]);
  return message;
}

/* False: it has to wait. */
static bool push(int s, HeartbeatLink *beat) {
  while (beat->left) {
    ssize_t n = send(s, (char *)&beat->out + sizeof beat->out - beat->left, beat->left,
                     MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) beat->left = 0; /* the other end is gone */
    if (n <= 0) return false;
    beat->left -= (size_t)n;
  }
  return true;
}

void rt_heartbeat_send(Watchdog *watchdog) {
  HeartbeatMessage message = heartbeat_message(watchdog);
  for (int i = 0; i < watchdog->meeting->npeers; i++) {
    HeartbeatLink *beat = &watchdog->heartbeat->wire[i];
    if (!push(watchdog->meeting->sockets[i], beat)) continue;
    beat->out = message, beat->left = sizeof message;
    push(watchdog->meeting->sockets[i], beat);
  }
}

/* ---- receiving ---- */

/* Rank 0 knows the peers at first hand; each knows its own. */
static void take(Watchdog *watchdog, const HeartbeatMessage *message, int from) {
  PeerTable *table = watchdog->table;
  Failure v = message->failure;
  int me = watchdog->comm->launch.rank, who = failure_rank(v), other = failure_against(v);
  take_peer(&table->peer[from], &message->note[MINE]);
  if (!holds(watchdog, v)) return;
  if (me && who != me) take_peer(&table->peer[who], &message->note[WHO]);
  if (me && other != me) take_peer(&table->peer[other], &message->note[OTHER]);
  rt_watchdog_fail(watchdog, failure_kind(v), who, other);
}

bool rt_heartbeat_receive(Watchdog *watchdog, int line) {
  HeartbeatLink *beat = &watchdog->heartbeat->wire[line];
  int from = watchdog->comm->launch.rank ? 0 : line + 1;
  for (;;) {
    ssize_t n = recv(watchdog->meeting->sockets[line], (char *)&beat->in + beat->come,
                     sizeof beat->in - beat->come, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    beat->come += (size_t)n;
    if (beat->come < sizeof beat->in) continue;
    take(watchdog, &beat->in, from), beat->come = 0;
  }
}
