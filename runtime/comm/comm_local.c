/* Communicator `local`: processes of one machine over shared memory.

   Every rank has a lane per channel (a mesh axis, or all ranks): a slot for what it sends, room for
   what it has added up, and two counters. A collective goes in rounds of at most CHUNK bytes:
     wait until all have done the round before; fill the slot; say `arrived`;
     wait until all have arrived; read the others' slots; say `done`.
   So a slot is never written while somebody reads it, whatever the sizes and the order in which
   ranks come, and nobody waits for anything but a rank of its own group. An all-reduce adds up a
   part on each rank, and hands the results out in the next round, beside the next chunk's slots.
   Sums run from rank 0 up, so results are bitwise the same on all ranks and in all runs.

   What is called is written into the lane and compared: ranks that call different things say so.
   Waiting is spinning for a moment, then a futex. Who waits for the dead, the late and the lost is
   the watchdog's work: here nobody ever gives up. */
#include "reduce_ranks.h"
#include "ir/support/num.h"
#include "peers.h"
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 18, SMALL = 1 << 13, MOST = 1024 }; /* MOST: ranks of one machine */
_Static_assert(MOST < 1 << 28, "a Failure has 28 bits for a rank");

typedef struct Word { /* counts rounds */
  _Alignas(64) atomic_uint at;
  atomic_uint sleepers;
} Word;

typedef struct Box { /* from this rank to a neighbour: filled, emptied, filled, .. */
  Word sent, taken;
  _Alignas(64) atomic_ullong call; /* elements and their type, as a number */
} Box;

typedef struct Lane {
  Word arrived, done;
  _Alignas(64) atomic_ullong call; /* what is called, as a number */
  _Alignas(64) char slot[CHUNK];
  _Alignas(64) char sum[2][CHUNK];
  Box box[2]; /* to the rank behind, to the rank before */
} Lane;

typedef struct LocalComm {
  Watchdog watchdog;
  Rendezvous meeting;
  Lane *lane;  /* channel by channel, rank by rank */
  char *slots; /* of their boxes, in the same order; only what is sent is ever touched */
  size_t slot; /* bytes of one: the largest message between neighbours */
  unsigned *round;
  int world, me;
  int spin;
} LocalComm;

typedef struct LocalCall { /* one collective of one rank */
  LocalComm *l;
  const RankGroup *g;
  const rt_collective *what;
  Lane *lane; /* of the channel */
  unsigned *round;
  unsigned long long mark;
  int size; /* of an element */
  const char *send;
  char *receive;
} LocalCall;

static Lane *lane_of(const LocalCall *x, int i) { return &x->lane[x->g->first + i * x->g->stride]; }

/* ---- waiting ---- */

static void breathe(void) {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

static bool reached(Word *w, unsigned round) { return (int)(atomic_load(&w->at) - round) >= 0; }

static void sleep_until(LocalComm *l, Word *w, unsigned round, int rank) {
  rt_watchdog_wait(&l->watchdog, rank);
  atomic_fetch_add(&w->sleepers, 1);
  for (unsigned seen; (int)((seen = atomic_load(&w->at)) - round) < 0;)
    syscall(SYS_futex, &w->at, FUTEX_WAIT, seen, NULL, NULL, 0);
  atomic_fetch_sub(&w->sleepers, 1);
  rt_watchdog_go_on(&l->watchdog);
}

/* Until rank i of the group has brought the word so far. */
static void await_word(const LocalCall *x, Word *w, unsigned round, int i) {
  for (int k = 0; k < x->l->spin && !reached(w, round); k++) breathe();
  if (!reached(w, round)) sleep_until(x->l, w, round, (int)(x->g->first + i * x->g->stride));
}

static void await(const LocalCall *x, bool arrival, unsigned round) {
  for (int i = 0; i < x->g->n; i++) {
    Lane *lane = lane_of(x, i);
    await_word(x, arrival ? &lane->arrived : &lane->done, round, i);
  }
}

static void advance(const LocalCall *x, Word *w, unsigned round) {
  atomic_store(&w->at, round);
  atomic_fetch_add(&x->l->watchdog.peer->moves, 1);
  if (atomic_load(&w->sleepers)) syscall(SYS_futex, &w->at, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static _Noreturn void disagree(const LocalCall *x, int i) {
  rt_watchdog_fail(&x->l->watchdog, FAILURE_DISAGREES, (int)(x->g->first + i * x->g->stride),
                   x->l->me);
  rt_watchdog_end();
}

static void compare(const LocalCall *x) {
  for (int i = 0; i < x->g->n; i++)
    if (atomic_load(&lane_of(x, i)->call) != x->mark) disagree(x, i);
}

/* ---- rounds ---- */

/* Opens a round: the own slot may be filled. */
static Lane *fill(LocalCall *x) {
  await(x, false, *x->round);
  Lane *mine = lane_of(x, x->g->me);
  atomic_store(&mine->call, x->mark);
  return mine;
}

/* The slot is filled: afterwards all slots can be read. */
static void meet(LocalCall *x) {
  advance(x, &lane_of(x, x->g->me)->arrived, ++*x->round);
  await(x, true, *x->round);
  compare(x);
}

static void leave_round(LocalCall *x) { advance(x, &lane_of(x, x->g->me)->done, *x->round); }

/* Adds up elements from .. from + count - 1 of all slots. */
static void add_up(const LocalCall *x, void *to, int64_t from, int64_t count) {
  const void *in[MOST];
  for (int i = 0; i < x->g->n; i++) in[i] = lane_of(x, i)->slot + from * x->size;
  rt_reduce((int)x->what->elem, (int)x->what->reduction, to, in, x->g->n, count);
}

/* Where the part of rank i begins in a chunk of m elements. */
static int64_t part(int64_t m, int i, int n) { return m * i / n; }

static void hand_out(const LocalCall *x, int parity, int64_t at, int64_t m) {
  for (int i = 0; i < x->g->n; i++) {
    int64_t from = part(m, i, x->g->n), to = part(m, i + 1, x->g->n);
    memcpy(x->receive + (at + from) * x->size, lane_of(x, i)->sum[parity],
           (size_t)((to - from) * x->size));
  }
}

/* Round k adds up chunk k and hands out chunk k - 1; a short one is added up by everybody. */
static void all_reduce(LocalCall *x) {
  int64_t step = CHUNK / x->size, count = x->what->count, last = 0;
  int n = x->g->n, me = x->g->me;
  if (count * x->size <= SMALL) {
    memcpy(fill(x)->slot, x->send, (size_t)(count * x->size));
    meet(x);
    add_up(x, x->receive, 0, count);
    leave_round(x);
    return;
  }
  for (int64_t at = 0;; at += step) {
    int64_t m = min_i64(step, count - at);
    int parity = (int)(at / step & 1);
    Lane *mine = fill(x);
    if (m > 0) memcpy(mine->slot, x->send + at * x->size, (size_t)(m * x->size));
    meet(x);
    if (at) hand_out(x, !parity, at - step, last);
    if (m > 0) add_up(x, mine->sum[parity], part(m, me, n), part(m, me + 1, n) - part(m, me, n));
    leave_round(x);
    if (m <= 0) return;
    last = m;
  }
}

/* Blocks of all ranks in the slot, `step` elements of each. */
static void scatter(LocalCall *x, bool reduce) {
  const rt_collective *c = x->what;
  int n = x->g->n, me = x->g->me;
  int64_t step = CHUNK / x->size / n;
  for (int64_t at = 0; at < c->count; at += step) {
    int64_t m = min_i64(step, c->count - at);
    Lane *mine = fill(x);
    for (int i = 0; i < n; i++)
      rt_block_out((int)c->elem, mine->slot + i * m * x->size, x->send, n, i, c->send_row, at, m);
    meet(x);
    if (reduce) add_up(x, x->receive + at * x->size, me * m, m);
    for (int i = 0; i < n && !reduce; i++)
      rt_block_in((int)c->elem, x->receive, lane_of(x, i)->slot + me * m * x->size, n, i,
                  c->receive_row, at, m);
    leave_round(x);
  }
}

static void all_gather(LocalCall *x) {
  const rt_collective *c = x->what;
  int64_t step = CHUNK / x->size;
  for (int64_t at = 0; at < c->count; at += step) {
    int64_t m = min_i64(step, c->count - at);
    memcpy(fill(x)->slot, x->send + at * x->size, (size_t)(m * x->size));
    meet(x);
    for (int i = 0; i < x->g->n; i++)
      rt_block_in((int)c->elem, x->receive, lane_of(x, i)->slot, x->g->n, i, c->receive_row, at, m);
    leave_round(x);
  }
}

static void broadcast(LocalCall *x) {
  int64_t step = CHUNK / x->size, count = x->what->count;
  bool root = x->g->me == 0;
  for (int64_t at = 0; at < count; at += step) {
    size_t bytes = (size_t)(min_i64(step, count - at) * x->size);
    Lane *mine = fill(x);
    if (root) memcpy(mine->slot, x->send + at * x->size, bytes);
    meet(x);
    if (!root || x->send != x->receive)
      memcpy(x->receive + at * x->size, lane_of(x, 0)->slot, bytes);
    leave_round(x);
  }
}

/* ---- from neighbour to neighbour ---- */

/* What both sides must say of a message. */
static unsigned long long said(const rt_collective *c) {
  return (unsigned long long)c->count << 8 | (unsigned long long)c->elem;
}

static char *slot_of(const LocalCall *x, int i, int back) {
  return x->l->slots + (size_t)((lane_of(x, i) - x->l->lane) * 2 + back) * x->l->slot;
}

/* A message lies in the slot until the neighbour takes it; this rank goes on. So ranks that send to
   each other first and receive then do not wait for ever. The one before must have been taken. */
static void hop_out(LocalCall *x) {
  int peer = rt_hop_peer(x->what, x->g), back = x->what->back != 0;
  Box *b = &lane_of(x, x->g->me)->box[back];
  unsigned round = atomic_load(&b->sent.at);
  await_word(x, &b->taken, round, peer);
  atomic_store(&b->call, said(x->what));
  memcpy(slot_of(x, x->g->me, back), x->send, (size_t)(x->what->count * x->size));
  advance(x, &b->sent, round + 1);
}

static void hop_in(LocalCall *x) {
  int peer = rt_hop_peer(x->what, x->g), back = x->what->back != 0;
  Box *b = &lane_of(x, peer)->box[back];
  unsigned round = atomic_load(&b->taken.at) + 1;
  await_word(x, &b->sent, round, peer);
  if (atomic_load(&b->call) != said(x->what)) disagree(x, peer);
  memcpy(x->receive, slot_of(x, peer, back), (size_t)(x->what->count * x->size));
  advance(x, &b->taken, round);
}

/* ---- calls ---- */

static void local_collect(Comm *c, const RankGroup *g, int channel, const rt_collective *what,
                          const void *send, void *receive) {
  LocalComm *l = c->inside;
  LocalCall x = {.l = l,
                 .g = g,
                 .what = what,
                 .lane = l->lane + (int64_t)channel * l->world,
                 .round = &l->round[channel],
                 .size = rt_elem_bytes((int)what->elem),
                 .send = send,
                 .receive = receive};
  x.mark = rt_watchdog_enter(&l->watchdog, what);
  switch (what->kind) {
  case RT_ALL_REDUCE: all_reduce(&x); break;
  case RT_REDUCE_SCATTER: scatter(&x, true); break;
  case RT_ALL_TO_ALL: scatter(&x, false); break;
  case RT_ALL_GATHER: all_gather(&x); break;
  case RT_BROADCAST: broadcast(&x); break;
  case RT_SEND: hop_out(&x); break;
  case RT_RECEIVE: hop_in(&x); break;
  }
  rt_watchdog_exit(&l->watchdog);
}

/* ---- joining ---- */

/* Bytes of the largest message from neighbour to neighbour. */
static size_t slot_bytes(const rt_program *p) {
  int64_t most = 0;
  for (int i = 0; i < p->ncollectives; i++) {
    const rt_collective *c = &p->collectives[i];
    int64_t bytes = c->kind == RT_SEND ? c->count * rt_elem_bytes((int)c->elem) : 0;
    if (bytes > most) most = bytes;
  }
  return (size_t)round_up(most, CACHE_LINE);
}

static PeerTable *share(LocalComm *l, int64_t bytes, int64_t lane_count, Fault *f) {
  size_t lanes = sizeof(PeerTable) + sizeof(Peer) * (size_t)l->world;
  char *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, l->meeting.memory, 0);
  close(l->meeting.memory);
  if (at == MAP_FAILED) {
    rt_fault(f, 701, "no memory to share between ranks: %s", strerror(errno));
    return NULL;
  }
  l->lane = (Lane *)(at + round_up(lanes, CACHE_LINE));
  l->slots = (char *)(l->lane + lane_count);
  return (PeerTable *)at;
}

static bool one_machine(const Launch *l, Fault *f) {
  if (l->local_world == l->world && l->world <= MOST) return true;
  rt_fault(
      f, 101,
      "communicator local joins up to %d processes of one machine; of %d ranks %d run on this one",
      MOST, l->world, l->local_world);
  return rt_help(f, "for several machines: `shardc compile --comm mpi`");
}

static bool local_join(Comm *c, Fault *f) {
  LocalComm *l = rt_alloc(sizeof *l);
  int channels = c->program->naxes + 1, cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
  c->inside = l;
  l->world = c->launch.world, l->me = c->launch.rank;
  l->spin = l->world <= cpus ? 2000 : 20;
  l->round = rt_alloc(sizeof(unsigned) * (size_t)channels);
  l->slot = slot_bytes(c->program);
  int64_t lanes = (int64_t)l->world * channels;
  int64_t bytes = (int64_t)sizeof(PeerTable) + (int64_t)sizeof(Peer) * l->world + 64 +
                  ((int64_t)sizeof(Lane) + 2 * (int64_t)l->slot) * lanes;
  if (!one_machine(&c->launch, f) || !rt_rendezvous(&l->meeting, &rt_rendezvous_unix, c, bytes, f))
    return false;
  PeerTable *table = share(l, bytes, lanes, f);
  return table && rt_watchdog_start(&l->watchdog, c, &l->meeting, table, f);
}

static void local_leave(Comm *c, int status) {
  LocalComm *l = c->inside;
  if (l) rt_watchdog_leave(&l->watchdog, status);
}

const CommKind rt_comm_local = {"local", local_join, local_collect, local_leave, false};
