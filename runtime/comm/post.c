/* Seats and troubles between machines. Every rank but 0 sends its own seat to rank 0 with each beat
   of its guard, rank 0 sends its own to each; when there is trouble, it goes along with the seats
   of the ranks that it is about, so that all can say the same words. Messages have a fixed size
   and never block: one that does not fit waits for the next beat. Called by the guard alone. Must
   not: believe a number that came over the line before it is checked. */
#include "seats.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

typedef struct Note { /* a seat on its way */
  char host[64], text[SEAT_TEXT];
  int64_t pid;
  uint64_t moves, call;
  int32_t state, status, inside;
  uint32_t beat, runs;
} Note;

enum { MINE, WHO, OTHER, NOTES };

typedef struct News {
  uint64_t trouble; /* a Verdict */
  Note note[NOTES];
} News;

typedef struct Wire { /* of one line: bytes that have come, bytes that wait */
  size_t come, left;
  News in, out;
} Wire;

struct Post {
  Wire wire[1];
};

Post *rt_post_open(const Guard *g) { return rt_alloc(sizeof(Wire) * (size_t)g->meeting->npeers); }

static Note note_of(const Seat *s) {
  Note n = {.pid = s->pid,
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

static void put_down(Seat *s, const Note *n) {
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

static bool holds(const Guard *g, Verdict v) {
  int world = g->comm->launch.world;
  return v && verdict_what(v) <= TROUBLE_LAST && verdict_rank(v) < world &&
         verdict_against(v) < world;
}

static News news_of(const Guard *g) {
  const Table *t = g->table;
  News n = {.trouble = atomic_load(&t->trouble), .note[MINE] = note_of(g->seat)};
  if (!holds(g, n.trouble)) return n;
  n.note[WHO] = note_of(&t->seat[verdict_rank(n.trouble)]);
  n.note[OTHER] = note_of(&t->seat[verdict_against(n.trouble)]);
  return n;
}

/* False: it has to wait. */
static bool push(int s, Wire *w) {
  while (w->left) {
    ssize_t n =
        send(s, (char *)&w->out + sizeof w->out - w->left, w->left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) w->left = 0; /* the other end is gone */
    if (n <= 0) return false;
    w->left -= (size_t)n;
  }
  return true;
}

void rt_post_send(Guard *g) {
  News n = news_of(g);
  for (int i = 0; i < g->meeting->npeers; i++) {
    Wire *w = &g->post->wire[i];
    if (!push(g->meeting->peer[i], w)) continue;
    w->out = n, w->left = sizeof n;
    push(g->meeting->peer[i], w);
  }
}

/* ---- receiving ---- */

/* Rank 0 knows the seats at first hand; each knows its own. */
static void take(Guard *g, const News *n, int from) {
  Table *t = g->table;
  Verdict v = n->trouble;
  int me = g->comm->launch.rank, who = verdict_rank(v), other = verdict_against(v);
  put_down(&t->seat[from], &n->note[MINE]);
  if (!holds(g, v)) return;
  if (me && who != me) put_down(&t->seat[who], &n->note[WHO]);
  if (me && other != me) put_down(&t->seat[other], &n->note[OTHER]);
  rt_guard_trouble(g, verdict_what(v), who, other);
}

bool rt_post_receive(Guard *g, int line) {
  Wire *w = &g->post->wire[line];
  int from = g->comm->launch.rank ? 0 : line + 1;
  for (;;) {
    ssize_t n = recv(g->meeting->peer[line], (char *)&w->in + w->come, sizeof w->in - w->come,
                     MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    w->come += (size_t)n;
    if (w->come < sizeof w->in) continue;
    take(g, &w->in, from), w->come = 0;
  }
}
