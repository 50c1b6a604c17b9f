/* Communicator `local`: processes of one machine over shared memory.

   Every rank has a lane per channel (a mesh axis, or all ranks): a slot for what it sends, room for
   what it has added up, and two counters. A collective goes in rounds of at most CHUNK bytes:
     wait until all have done the round before; fill the slot; say `arrived`;
     wait until all have arrived; read the others' slots; say `done`.
   So a slot is never written while another rank reads it, whatever the sizes and the order of
   arrival, and a rank waits only for ranks of its own group. An all-reduce adds up a part on each
   rank and distributes the results in the next round, together with the slots of the next chunk.
   Sums run from rank 0 up, so results are bitwise the same on all ranks and in all runs.

   Each call is written into the lane and compared: ranks that call different collectives report an
   error. Waiting spins for a moment, then uses a futex. Dead, late and lost ranks are detected by
   the watchdog; a wait in this file never times out. */
#include "reduce_ranks.h"
#include "ir/support/num.h"
#include "peers.h"
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
  Box box[2]; /* to the next rank, to the previous rank */
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
  bool met; /* all ranks have begun it */
  double *late;
  const char *send;
  char *receive;
} LocalCall;

static Lane *lane_of(const LocalCall *call, int i) {
  return &call->lane[call->g->first + i * call->g->stride];
}

/* ---- waiting ---- */

static void breathe(void) {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

static bool reached(Word *word, unsigned round) {
  return (int)(atomic_load(&word->at) - round) >= 0;
}

static void sleep_until(LocalComm *comm, Word *word, unsigned round, int rank) {
  rt_watchdog_wait(&comm->watchdog, rank);
  atomic_fetch_add(&word->sleepers, 1);
  for (unsigned seen; (int)((seen = atomic_load(&word->at)) - round) < 0;)
    syscall(SYS_futex, &word->at, FUTEX_WAIT, seen, NULL, NULL, 0);
  atomic_fetch_sub(&word->sleepers, 1);
  rt_watchdog_go_on(&comm->watchdog);
}

/* Until rank i of the group has brought the word so far. */
static void await_word(const LocalCall *call, Word *word, unsigned round, int i) {
  for (int k = 0; k < call->l->spin && !reached(word, round); k++) breathe();
  if (!reached(word, round))
    sleep_until(call->l, word, round, (int)(call->g->first + i * call->g->stride));
}

static void await(const LocalCall *call, bool arrival, unsigned round) {
  for (int i = 0; i < call->g->n; i++) {
    Lane *lane = lane_of(call, i);
    await_word(call, arrival ? &lane->arrived : &lane->done, round, i);
  }
}

static void advance(const LocalCall *call, Word *word, unsigned round) {
  atomic_store(&word->at, round);
  atomic_fetch_add(&call->l->watchdog.peer->moves, 1);
  if (atomic_load(&word->sleepers))
    syscall(SYS_futex, &word->at, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
}

static _Noreturn void disagree(const LocalCall *call, int i) {
  rt_watchdog_fail(&call->l->watchdog, FAILURE_DISAGREES,
                   (int)(call->g->first + i * call->g->stride), call->l->me);
  rt_watchdog_end();
}

static void compare(const LocalCall *call) {
  for (int i = 0; i < call->g->n; i++)
    if (atomic_load(&lane_of(call, i)->call) != call->mark) disagree(call, i);
}

/* ---- rounds ---- */

/* Opens a round: the own slot may be filled. */
static Lane *fill(LocalCall *call) {
  await(call, false, *call->round);
  Lane *mine = lane_of(call, call->g->me);
  atomic_store(&mine->call, call->mark);
  return mine;
}

/* The slot is filled: afterwards all slots can be read. */
static void meet(LocalCall *call) {
  double start = call->met ? 0 : rt_now();
  advance(call, &lane_of(call, call->g->me)->arrived, ++*call->round);
  await(call, true, *call->round);
  if (!call->met) *call->late = rt_now() - start;
  call->met = true;
  compare(call);
}

static void leave_round(LocalCall *call) {
  advance(call, &lane_of(call, call->g->me)->done, *call->round);
}

/* Adds up elements from .. from + count - 1 of all slots. */
static void add_up(const LocalCall *call, void *to, int64_t from, int64_t count) {
  const void *in[MOST];
  for (int i = 0; i < call->g->n; i++) in[i] = lane_of(call, i)->slot + from * call->size;
  rt_reduce((int)call->what->elem, (int)call->what->reduction, to, in, call->g->n, count);
}

/* Where the part of rank i begins in a chunk of m elements. */
static int64_t part(int64_t m, int i, int n) { return m * i / n; }

static void hand_out(const LocalCall *call, int parity, int64_t at, int64_t m) {
  for (int i = 0; i < call->g->n; i++) {
    int64_t from = part(m, i, call->g->n), to = part(m, i + 1, call->g->n);
    memcpy(call->receive + (at + from) * call->size, lane_of(call, i)->sum[parity],
           (size_t)((to - from) * call->size));
  }
}

/* Round k adds up chunk k and hands out chunk k - 1; a short one is added up by everybody. */
static void local_all_reduce(LocalCall *call) {
  int64_t step = CHUNK / call->size, count = call->what->count, last = 0;
  int n = call->g->n, me = call->g->me;
  if (count * call->size <= SMALL) {
    memcpy(fill(call)->slot, call->send, (size_t)(count * call->size));
    meet(call);
    add_up(call, call->receive, 0, count);
    leave_round(call);
    return;
  }
  for (int64_t at = 0;; at += step) {
    int64_t m = min_i64(step, count - at);
    int parity = (int)(at / step & 1);
    Lane *mine = fill(call);
    if (m > 0) memcpy(mine->slot, call->send + at * call->size, (size_t)(m * call->size));
    meet(call);
    if (at) hand_out(call, !parity, at - step, last);
    if (m > 0) add_up(call, mine->sum[parity], part(m, me, n), part(m, me + 1, n) - part(m, me, n));
    leave_round(call);
    if (m <= 0) return;
    last = m;
  }
}

/* Blocks of all ranks in the slot, `step` elements of each. */
static void send_blocks(LocalCall *call, bool reduce) {
  const rt_collective *collective = call->what;
  int n = call->g->n, me = call->g->me;
  int64_t step = CHUNK / call->size / n;
  for (int64_t at = 0; at < collective->count; at += step) {
    int64_t m = min_i64(step, collective->count - at);
    Lane *mine = fill(call);
    for (int i = 0; i < n; i++)
      rt_block_out((int)collective->elem, mine->slot + i * m * call->size, call->send, n, i,
                   collective->send_row, at, m);
    meet(call);
    if (reduce) add_up(call, call->receive + at * call->size, me * m, m);
    for (int i = 0; i < n && !reduce; i++)
      rt_block_in((int)collective->elem, call->receive,
                  lane_of(call, i)->slot + me * m * call->size, n, i, collective->receive_row, at,
                  m);
    leave_round(call);
  }
}

static void local_reduce_scatter(LocalCall *call) { send_blocks(call, true); }
static void local_all_to_all(LocalCall *call) { send_blocks(call, false); }

static void local_all_gather(LocalCall *call) {
  const rt_collective *collective = call->what;
  int64_t step = CHUNK / call->size;
  for (int64_t at = 0; at < collective->count; at += step) {
    int64_t m = min_i64(step, collective->count - at);
    memcpy(fill(call)->slot, call->send + at * call->size, (size_t)(m * call->size));
    meet(call);
    for (int i = 0; i < call->g->n; i++)
      rt_block_in((int)collective->elem, call->receive, lane_of(call, i)->slot, call->g->n, i,
                  collective->receive_row, at, m);
    leave_round(call);
  }
}

static void local_rotate(LocalCall *call) {
  int64_t step = CHUNK / call->size, count = call->what->count;
  int from = rt_rotate_from(call->what, call->g);
  for (int64_t at = 0; at < count; at += step) {
    size_t bytes = (size_t)(min_i64(step, count - at) * call->size);
    memcpy(fill(call)->slot, call->send + at * call->size, bytes);
    meet(call);
    memcpy(call->receive + at * call->size, lane_of(call, from)->slot, bytes);
    leave_round(call);
  }
}

static void local_broadcast(LocalCall *call) {
  int64_t step = CHUNK / call->size, count = call->what->count;
  bool root = call->g->me == 0;
  for (int64_t at = 0; at < count; at += step) {
    size_t bytes = (size_t)(min_i64(step, count - at) * call->size);
    Lane *mine = fill(call);
    if (root) memcpy(mine->slot, call->send + at * call->size, bytes);
    meet(call);
    if (!root || call->send != call->receive)
      memcpy(call->receive + at * call->size, lane_of(call, 0)->slot, bytes);
    leave_round(call);
  }
}

/* ---- from neighbour to neighbour ---- */

/* The description of a message on which both sides must agree. */
static unsigned long long said(const rt_collective *collective) {
  return (unsigned long long)collective->count << 8 | (unsigned long long)collective->elem;
}

static char *slot_of(const LocalCall *call, int i, int back) {
  return call->l->slots + (size_t)((lane_of(call, i) - call->l->lane) * 2 + back) * call->l->slot;
}

/* A message stays in the slot until the neighbour takes it; this rank continues. So ranks that both
   send before they receive do not deadlock. The previous message must have been taken. */
static void local_send(LocalCall *call) {
  int peer = rt_hop_peer(call->what, call->g), back = call->what->back != 0;
  Box *box = &lane_of(call, call->g->me)->box[back];
  unsigned round = atomic_load(&box->sent.at);
  await_word(call, &box->taken, round, peer);
  atomic_store(&box->call, said(call->what));
  memcpy(slot_of(call, call->g->me, back), call->send, (size_t)(call->what->count * call->size));
  advance(call, &box->sent, round + 1);
}

static void local_receive(LocalCall *call) {
  int peer = rt_hop_peer(call->what, call->g), back = call->what->back != 0;
  Box *box = &lane_of(call, peer)->box[back];
  unsigned round = atomic_load(&box->taken.at) + 1;
  await_word(call, &box->sent, round, peer);
  if (atomic_load(&box->call) != said(call->what)) disagree(call, peer);
  memcpy(call->receive, slot_of(call, peer, back), (size_t)(call->what->count * call->size));
  advance(call, &box->taken, round);
}

/* ---- calls ---- */

static void (*const calls[RT_COLLECTIVES])(LocalCall *) = {
#define COLLECTIVE(name, kind, words, from, to, passes, way, library) [RT_##kind] = local_##name,
#define RUNTIME_COLLECTIVE COLLECTIVE
#include "ir/collectives.def"
};

static void local_collect(Comm *c, const RankGroup *group, int channel, const rt_collective *what,
                          const void *send, void *receive) {
  LocalComm *comm = c->inside;
  LocalCall call = {.l = comm,
                    .g = group,
                    .what = what,
                    .lane = comm->lane + (int64_t)channel * comm->world,
                    .round = &comm->round[channel],
                    .size = rt_elem_bytes((int)what->elem),
                    .late = &c->late,
                    .send = send,
                    .receive = receive};
  call.mark = rt_watchdog_enter(&comm->watchdog, what);
  calls[what->kind](&call);
  rt_watchdog_exit(&comm->watchdog);
}

/* ---- joining ---- */

/* Bytes of the largest message from neighbour to neighbour. Stages have programs of their own: the
   last one may send gradients that are larger than all that the first one sends. Each of them sends
   or receives every kind of message, so all find the same number. */
static size_t slot_bytes(const rt_program *program) {
  int64_t most = 0;
  for (int i = 0; i < program->ncollectives; i++) {
    const rt_collective *collective = &program->collectives[i];
    int64_t bytes =
        rt_is_hop(collective->kind) ? collective->count * rt_elem_bytes((int)collective->elem) : 0;
    if (bytes > most) most = bytes;
  }
  return (size_t)round_up(most, CACHE_LINE);
}

static PeerTable *share(LocalComm *comm, int64_t bytes, int64_t lane_count, Fault *f) {
  size_t lanes = sizeof(PeerTable) + sizeof(Peer) * (size_t)comm->world;
  struct stat shared;
  if (fstat(comm->meeting.memory, &shared) == 0 && shared.st_size != bytes) {
    rt_fault(f, 701, "ranks have programs whose messages differ in size");
    return NULL;
  }
  char *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, comm->meeting.memory, 0);
  close(comm->meeting.memory);
  if (at == MAP_FAILED) {
    rt_fault(f, 701, "no memory to share between ranks: %s", strerror(errno));
    return NULL;
  }
  comm->lane = (Lane *)(at + round_up(lanes, CACHE_LINE));
  comm->slots = (char *)(comm->lane + lane_count);
  return (PeerTable *)at;
}

static bool one_machine(const Launch *launch, Fault *f) {
  if (launch->local_world == launch->world && launch->world <= MOST) return true;
  rt_fault(
      f, 101,
      "communicator local joins up to %d processes of one machine; of %d ranks %d run on this one",
      MOST, launch->world, launch->local_world);
  return rt_help(f, "for several machines: `shardc compile --comm mpi`");
}

static bool local_join(Comm *c, Fault *f) {
  LocalComm *comm = rt_alloc(sizeof *comm);
  int channels = c->program->naxes + 1, cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
  c->inside = comm;
  comm->world = c->launch.world, comm->me = c->launch.rank;
  comm->spin = comm->world <= cpus ? 2000 : 20;
  comm->round = rt_alloc(sizeof(unsigned) * (size_t)channels);
  comm->slot = slot_bytes(c->program);
  int64_t lanes = (int64_t)comm->world * channels;
  int64_t bytes = (int64_t)sizeof(PeerTable) + (int64_t)sizeof(Peer) * comm->world + 64 +
                  ((int64_t)sizeof(Lane) + 2 * (int64_t)comm->slot) * lanes;
  if (!one_machine(&c->launch, f) ||
      !rt_rendezvous(&comm->meeting, &rt_rendezvous_unix, c, bytes, f))
    return false;
  PeerTable *table = share(comm, bytes, lanes, f);
  return table && rt_watchdog_start(&comm->watchdog, c, &comm->meeting, table, f);
}

static void local_leave(Comm *c, int status) {
  LocalComm *comm = c->inside;
  if (comm) rt_watchdog_leave(&comm->watchdog, status);
}

const CommKind rt_comm_local = {"local", local_join, local_collect, local_leave, false};
