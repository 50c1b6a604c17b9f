/* Communicator `mpi`: any MPI between machines. The only file that knows MPI: it is compiled with
   the user's mpicc when a model is, so shardc and the runtime need none. One thread owns MPI:
   the main one, or that of flight.c.

   Groups are communicators split from the world, one per mesh axis. For a sum, each part is sent to
   the rank that owns it, which adds in the order of ranks, as communicator `local` does: the same
   bits with any MPI, and each rank sends and receives at the same time. Buffers with contiguous
   blocks are sent and received in place, others through staging buffers of a fixed size, allocated
   at the start. Calls are started without blocking and tested, so that a rank that does not come
   ends the job; one that dies is noticed by the launcher, which ends the others. A launcher that
   dies is noticed by the ranks, which save. SHARDC_DEBUG=comm compares before each call what the
   ranks of the group are about to do. */
#include "comm.h"
#include "flight.h"
#include "reduce_ranks.h"
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Elements in flight; of all ranks, of an all-reduce in which each adds all; seconds. */
enum { STAGE = 1 << 20, FEW = 4096, ORPHANS_LIVE = 600, TELL = 4 };
enum { PARTS = 2 }; /* tag of what collectives are made of; hops have 0 and 1 */
/* Nanoseconds between two polls: while kernels wait, and the least and most while kernels run;
   polls per elapsed time. */
enum { SHORT_NAP = 20000, NAP = 100000, LONG_NAP = 500000, LOOKS = 8 };

typedef struct Sent { /* the last message to a neighbour: copied, so that this rank goes on */
  char *data;
  MPI_Request *part; /* of STAGE elements at most */
  int parts;
} Sent;

typedef struct Who { /* a rank */
  uint64_t program, options;
  int64_t pid;
  char host[64];
} Who;

typedef struct Mpi {
  Who *all;             /* ranks */
  MPI_Comm *group;      /* per channel */
  Sent *sent;           /* per channel, to the next rank, to the previous rank */
  char *out, *in;       /* staging: STAGE elements of up to 8 bytes, sent and received */
  MPI_Request *request; /* to and from each rank */
  const void **part;    /* per rank: what it adds */
  double ended, late;
  unsigned calls;
  int debug, launcher; /* launcher: tells its end to poll, -1: nothing does */
  bool orphan;
} Mpi;

typedef struct MpiCall {
  Mpi *m;
  Comm *c;
  const RankGroup *g;
  const rt_collective *what;
  MPI_Comm comm;
  int channel, size, started; /* size: bytes of an element; started: requests */
  double limit;
} MpiCall;

/* ---- a launcher that is gone ---- */

/* mpirun of Open MPI gives up at a second signal within five seconds, and timeout sends two at
   once: it ends without a word to the ranks, and its library ends each of them as soon as a thread
   of its own sees that. With a delay, meant for debuggers, that thread waits first; the rank
   meanwhile does what it does on SIGTERM. Other MPIs have no such word, and nothing is done. */
static int *abort_delay(void) { return dlsym(RTLD_DEFAULT, "opal_abort_delay"); }

/* A process of the job, such as a script around the executable, and no launcher. */
static bool of_job(pid_t pid) {
  char path[48], *word = NULL;
  size_t room = 0;
  bool found = false;
  snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
  FILE *in = fopen(path, "re");
  while (in && !found && getdelim(&word, &room, 0, in) > 0)
    found = !strncmp(word, "PMIX_RANK=", 10);
  if (in) fclose(in);
  free(word);
  return found;
}

static pid_t parent_of(pid_t pid) {
  char path[48], line[256];
  int parent = 0;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  FILE *in = fopen(path, "re");
  while (in && fgets(line, sizeof line, in) && sscanf(line, "PPid: %d", &parent) != 1) {}
  if (in) fclose(in);
  return parent;
}

static int watch_launcher(void) {
  int *delay = abort_delay();
  pid_t pid = getppid();
  if (!delay || *delay) return -1;
  while (pid > 1 && of_job(pid)) pid = parent_of(pid);
  int fd = pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
  if (fd >= 0) *delay = ORPHANS_LIVE;
  return fd;
}

static void look_at_launcher(Mpi *mpi) {
  struct pollfd end = {mpi->launcher, POLLIN, 0};
  if (mpi->launcher < 0 || poll(&end, 1, 0) <= 0) return;
  close(mpi->launcher);
  mpi->launcher = -1, mpi->orphan = true;
  kill(getpid(), SIGTERM);
}

static _Noreturn void abort_all(const Mpi *mpi, int status) {
  int *delay = abort_delay();
  if (delay && *delay == ORPHANS_LIVE) *delay = 0;
  if (!mpi || !mpi->orphan) MPI_Abort(MPI_COMM_WORLD, status);
  _exit(status);
}

/* ---- facts ---- */

static MPI_Datatype type_of(int elem) {
  switch ((rt_elem)elem) {
  case RT_F32: return MPI_FLOAT;
  case RT_F64: return MPI_DOUBLE;
  case RT_I32: return MPI_INT32_T;
  case RT_I64: return MPI_INT64_T;
  case RT_BOOL:
  case RT_U8: return MPI_UINT8_T;
  default: return MPI_UINT16_T; /* moved, never added */
  }
}

static bool is_whole_number(int elem) {
  return elem == RT_I32 || elem == RT_I64 || elem == RT_BOOL || elem == RT_U8;
}

static MPI_Op op_of(const rt_collective *collective) {
  return collective->reduction == RT_MAX || collective->elem == RT_BOOL ? MPI_MAX : MPI_SUM;
}

static _Noreturn void end_all(const MpiCall *call, int code, const char *what) {
  fprintf(stderr, "error[R%04d]: %s: %s #%u of %s%s%s; this is rank %d\n", code, what,
          rt_collective_facts[call->what->kind].words, call->m->calls, call->what->what,
          *call->what->source ? ", " : "", call->what->source, call->c->launch.rank);
  abort_all(call->m, 1);
}

/* ---- requests ---- */

/* Yields the CPU between two polls; each poll progresses the messages that have arrived. While
   kernels run, polls become rarer. */
static void nap(const MpiCall *call, double since, double now) {
  int64_t ns = (int64_t)((now - since) * 1e9 / LOOKS);
  if (rt_flight_awaited(call->c->flight)) ns = SHORT_NAP;
  else ns = ns < NAP ? NAP : ns > LONG_NAP ? LONG_NAP : ns;
  nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Names the ranks of this machine that are stopped. The first that is not stopped says it. */
static void tell_stopped(const MpiCall *call) {
  const Launch *launch = &call->c->launch;
  const Who *all = call->m->all, *mine = &all[launch->rank];
  for (int i = 0; i < launch->world; i++) {
    bool near = !strcmp(all[i].host, mine->host);
    bool stopped = near && i != launch->rank && rt_process_state(all[i].pid) == 'T';
    if (near && !stopped && i < launch->rank) return; /* that one says it */
    if (stopped)
      rt_note("rank %d (%s, pid %lld) has not answered for %d s: it is stopped", i, all[i].host,
              (long long)all[i].pid, TELL);
  }
}

/* Time in which this process was stopped or not scheduled is not counted. */
static void await(MpiCall *call, int n, MPI_Request *request) {
  double since = rt_now(), before = since, tell = since + TELL;
  for (int done = 0; !done;) {
    double now = rt_now();
    if (now - before > 1) call->limit += now - before;
    before = now;
    MPI_Testall(n, request, &done, MPI_STATUSES_IGNORE);
    if (!done && call->c->leaving) abort_all(call->m, call->c->leaving - 1);
    if (!done && call->c->flight) nap(call, since, now);
    if (!done && now > tell) tell_stopped(call), tell = INFINITY;
    if (!done && now > call->limit)
      end_all(call, 902, "a rank did not come within the time-out to");
  }
}

/* Receives follow the sends on all ranks. A large message is announced and sent once the receiver
   has answered, over one connection. A late rank that received first would answer a waiting message
   immediately; that whole message would then precede the other rank's answer to the next
   announcement, and one direction of the link would wait for the other. */
static void receive_from(MpiCall *call, int i, void *to, int64_t n) {
  MPI_Irecv(to, (int)n, type_of((int)call->what->elem), i, PARTS, call->comm,
            &call->m->request[call->started++]);
}

static void send_to(MpiCall *call, int i, const void *from, int64_t n) {
  MPI_Isend(from, (int)n, type_of((int)call->what->elem), i, PARTS, call->comm,
            &call->m->request[call->started++]);
}

static void await_started(MpiCall *call) {
  await(call, call->started, call->m->request);
  call->started = 0;
}

/* The k-th partner: not all ranks begin with the same one. */
static int partner(const MpiCall *call, int k) { return (call->g->me + k) % call->g->n; }

/* ---- collectives, m elements from `at` on ---- */

/* The data of block i to send: in place, or packed into the staging buffer. */
static const char *outgoing(const MpiCall *call, const char *send, int i, int64_t at, int64_t m) {
  const rt_collective *collective = call->what;
  if (collective->send_row == collective->count)
    return send + (i * collective->count + at) * call->size;
  char *to = call->m->out + i * m * call->size;
  rt_block_out((int)collective->elem, to, send, call->g->n, i, collective->send_row, at, m);
  return to;
}

static void unpack(const MpiCall *call, char *receive, int64_t at, int64_t m) {
  for (int i = 0; i < call->g->n; i++)
    rt_block_in((int)call->what->elem, receive, call->m->in + i * m * call->size, call->g->n, i,
                call->what->receive_row, at, m);
}

/* Receives m elements for this rank from every other rank; its own are already in place. */
static void receive_parts(MpiCall *call, const void *own, int64_t m) {
  for (int k = 1; k < call->g->n; k++) {
    int i = partner(call, k);
    char *to = call->m->in + i * m * call->size;
    call->m->part[i] = to;
    receive_from(call, i, to, m);
  }
  call->m->part[call->g->me] = own;
  await_started(call);
}

/* `to` is none of them. */
static void sum_parts(MpiCall *call, void *to, int64_t m) {
  rt_reduce((int)call->what->elem, (int)call->what->reduction, to, call->m->part, call->g->n, m);
}

/* Where block i begins, if m elements are cut in as many blocks as there are ranks. */
static int64_t cut_at(const MpiCall *call, int64_t m, int i) {
  int64_t block = (m + call->g->n - 1) / call->g->n, at = i * block;
  return at < m ? at : m;
}

/* Each rank adds its part of all, and gives it to all; a few elements are added by each. */
static void add_all(MpiCall *call, const char *send, char *receive, int64_t m, bool few) {
  int n = call->g->n, me = call->g->me, size = call->size;
  int64_t at = few ? 0 : cut_at(call, m, me), mine = few ? m : cut_at(call, m, me + 1) - at;
  for (int k = 1; k < n; k++) {
    int i = partner(call, k);
    int64_t from = few ? 0 : cut_at(call, m, i), to = few ? m : cut_at(call, m, i + 1);
    send_to(call, i, send + from * size, to - from);
  }
  receive_parts(call, send + at * size, mine);
  sum_parts(call, call->m->out, mine);
  memcpy(receive + at * size, call->m->out, (size_t)(mine * size));
  for (int k = 1; k < n && !few; k++) send_to(call, partner(call, k), call->m->out, mine);
  for (int k = 1; k < n && !few; k++) {
    int64_t from = cut_at(call, m, partner(call, k)), to = cut_at(call, m, partner(call, k) + 1);
    receive_from(call, partner(call, k), receive + from * size, to - from);
  }
  await_started(call);
}

static void mpi_all_reduce(MpiCall *call, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request request;
  send += at * call->size, receive += at * call->size;
  if (!is_whole_number((int)call->what->elem)) {
    add_all(call, send, receive, m, m * call->g->n <= FEW);
    return;
  }
  memcpy(call->m->out, send, (size_t)(m * call->size)); /* may be `receive` */
  MPI_Iallreduce(call->m->out, receive, (int)m, type_of((int)call->what->elem), op_of(call->what),
                 call->comm, &request);
  await(call, 1, &request);
}

static void send_blocks(MpiCall *call, const char *send, int64_t at, int64_t m) {
  for (int k = 1; k < call->g->n; k++)
    send_to(call, partner(call, k), outgoing(call, send, partner(call, k), at, m), m);
}

static void mpi_reduce_scatter(MpiCall *call, const char *send, char *receive, int64_t at,
                               int64_t m) {
  send_blocks(call, send, at, m);
  receive_parts(call, outgoing(call, send, call->g->me, at, m), m);
  sum_parts(call, receive + at * call->size, m);
}

/* A ring: each rank hands on to the next what it got last. */
static void mpi_all_gather(MpiCall *call, const char *send, char *receive, int64_t at, int64_t m) {
  int n = call->g->n, me = call->g->me;
  size_t bytes = (size_t)(m * call->size);
  bool there = m == call->what->count && call->what->receive_row == m;
  char *blocks = there ? receive : call->m->in;
  const char *own = send + at * call->size;
  for (int k = 0; k < n - 1; k++) {
    send_to(call, partner(call, 1), k ? blocks + (size_t)partner(call, n - k) * bytes : own, m);
    receive_from(call, partner(call, n - 1), blocks + (size_t)partner(call, n - 1 - k) * bytes, m);
    if (k == 0) memcpy(blocks + (size_t)me * bytes, own, bytes); /* while others travel */
    await_started(call);
  }
  if (!there) unpack(call, receive, at, m);
}

static void mpi_all_to_all(MpiCall *call, const char *send, char *receive, int64_t at, int64_t m) {
  size_t bytes = (size_t)(m * call->size);
  send_blocks(call, send, at, m);
  receive_parts(call, outgoing(call, send, call->g->me, at, m), m);
  memcpy(call->m->in + (size_t)call->g->me * bytes, call->m->part[call->g->me], bytes);
  unpack(call, receive, at, m);
}

static void mpi_rotate(MpiCall *call, const char *send, char *receive, int64_t at, int64_t m) {
  send_to(call, rt_rotate_to(call->what, call->g), send + at * call->size, m);
  receive_from(call, rt_rotate_from(call->what, call->g), receive + at * call->size, m);
  await_started(call);
}

static void mpi_broadcast(MpiCall *call, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request request;
  char *data = receive + at * call->size;
  if (call->g->me == 0 && send != receive)
    memcpy(data, send + at * call->size, (size_t)(m * call->size));
  MPI_Ibcast(data, (int)m, type_of((int)call->what->elem), 0, call->comm, &request);
  await(call, 1, &request);
}

/* Polls for as long as a neighbour that waits in its receive needs to get the message at 1
   Gbit/s. */
static void push(const Sent *sent, int64_t bytes) {
  double until = rt_now() + 1e-4 + (double)bytes / 1e8;
  for (int done = 0; !done && rt_now() < until;)
    MPI_Testall(sent->parts, sent->part, &done, MPI_STATUSES_IGNORE);
}

/* Messages of one direction have a tag and arrive in the order of sending. A send does not wait for
   a neighbour that is late: ranks that both send before they receive continue. The previous message
   must have been taken. */
static void mpi_send(MpiCall *call, const char *data, char *receive, int64_t at, int64_t m) {
  Sent *sent = &call->m->sent[call->channel * 2 + (call->what->back != 0)];
  (void)receive;
  if (!at) await(call, sent->parts, sent->part), sent->parts = 0;
  memcpy(sent->data + at * call->size, data + at * call->size, (size_t)(m * call->size));
  MPI_Isend(sent->data + at * call->size, (int)m, type_of((int)call->what->elem),
            rt_hop_peer(call->what, call->g), call->what->back, call->comm,
            &sent->part[sent->parts++]);
  if (at + m == call->what->count) push(sent, call->what->count * call->size);
}

static void mpi_receive(MpiCall *call, const char *data, char *to, int64_t at, int64_t m) {
  MPI_Request request;
  (void)data;
  MPI_Irecv(to + at * call->size, (int)m, type_of((int)call->what->elem),
            rt_hop_peer(call->what, call->g), call->what->back, call->comm, &request);
  await(call, 1, &request);
}

static void (*const chunk[RT_COLLECTIVES])(MpiCall *, const char *, char *, int64_t, int64_t) = {
#define COLLECTIVE(name, kind, words, from, to, passes, way, library) [RT_##kind] = mpi_##name,
#define RUNTIME_COLLECTIVE COLLECTIVE
#include "ir/collectives.def"
};

/* Elements at a time: what staging has room for. */
static int64_t chunk_of(const MpiCall *call) {
  const rt_collective *collective = call->what;
  const CollectiveFacts *facts = &rt_collective_facts[collective->kind];
  if (!facts->gives && !facts->takes) return STAGE - call->g->n; /* blocks are rounded up */
  bool in_place = !facts->gives && collective->receive_row == collective->count;
  return in_place && collective->count <= INT_MAX ? collective->count : STAGE / call->g->n;
}

/* The largest and the smallest mark of the group are the same if all are. */
static void compare(MpiCall *call) {
  const rt_program *program = call->c->program;
  int64_t row = call->what >= program->collectives &&
                        call->what < program->collectives + program->ncollectives
                    ? call->what - program->collectives
                    : -1,
          mine[3] = {row, call->what->count, (int64_t)call->what->kind}, v[6], most[6];
  MPI_Request request;
  for (int i = 0; i < 3; i++) v[i] = mine[i], v[i + 3] = -mine[i];
  MPI_Iallreduce(v, most, 6, MPI_INT64_T, MPI_MAX, call->comm, &request);
  await(call, 1, &request);
  for (int i = 0; i < 3; i++)
    if (most[i] != -most[i + 3]) end_all(call, 903, "the ranks disagree; this rank calls");
}

static void mpi_collect(Comm *c, const RankGroup *group, int channel, const rt_collective *what,
                        const void *send, void *receive) {
  Mpi *mpi = c->inside;
  MpiCall call = {.m = mpi,
                  .c = c,
                  .g = group,
                  .what = what,
                  .comm = mpi->group[channel],
                  .channel = channel,
                  .size = rt_elem_bytes((int)what->elem)};
  double now = rt_now(), worked = now - mpi->ended;
  call.limit = now + (worked > mpi->late ? worked : mpi->late);
  mpi->calls++;
  look_at_launcher(mpi);
  if (mpi->debug && !rt_is_hop(what->kind)) compare(&call);
  int64_t step = chunk_of(&call);
  for (int64_t at = 0; at < what->count; at += step)
    chunk[what->kind](&call, send, receive, at, what->count - at < step ? what->count - at : step);
  mpi->ended = rt_now();
}

/* ---- joining ---- */

/* Room for the largest message to either neighbour along each axis. */
static void make_sent(Mpi *mpi, const rt_program *program) {
  mpi->sent = rt_alloc(sizeof(Sent) * 2 * (size_t)(program->naxes + 1));
  for (int axis = 0; axis < program->naxes; axis++)
    for (int back = 0; back < 2; back++) {
      size_t most = 0, parts = 0;
      for (int i = 0; i < program->ncollectives; i++) {
        const rt_collective *collective = &program->collectives[i];
        if (collective->kind != RT_SEND || collective->axis != axis ||
            (collective->back != 0) != back)
          continue;
        size_t bytes = (size_t)(collective->count * rt_elem_bytes((int)collective->elem));
        most = bytes > most ? bytes : most;
        parts = (size_t)collective->count > parts ? (size_t)collective->count : parts;
      }
      if (!most) continue;
      parts = parts / (size_t)(STAGE - 1) + 1; /* shorter parts: STAGE less the ranks of a group */
      mpi->sent[axis * 2 + back] =
          (Sent){rt_alloc(most), rt_alloc(sizeof(MPI_Request) * 2 * parts), 0};
    }
}

static bool all_alike(const Comm *c, Who *all, Fault *f) {
  int world = c->launch.world;
  const rt_program *program = c->program;
  Who mine = {.program = rt_hash_of(program->hash, strlen(program->hash)) ^
                         rt_hash_of(program->target, strlen(program->target)),
              .options = c->options,
              .pid = getpid()};
  gethostname(mine.host, sizeof mine.host - 1);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  bool ok = true;
  for (int i = 1; ok && i < world; i++)
    if (all[i].program != all[0].program || all[i].options != all[0].options)
      ok = rt_fault(f, 106, "rank %d (%s, pid %lld) runs with %s than rank 0 (%s, pid %lld)", i,
                    all[i].host, (long long)all[i].pid,
                    all[i].program != all[0].program ? "another executable" : "other options",
                    all[0].host, (long long)all[0].pid);
  return ok;
}

static bool mpi_join(Comm *c, Fault *f) {
  int have, rank, world, channels = c->program->naxes + 1;
  const char *late = getenv("SHARDC_LATE"), *debug = getenv("SHARDC_DEBUG");
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &have))
    return rt_fault(f, 107, "MPI cannot start");
  if (c->flight && have < MPI_THREAD_FUNNELED) {
    rt_fault(f, 101,
             "messages run concurrently with the computation, but this MPI allows only one "
             "thread");
    return rt_help(f,
                   "an MPI with MPI_THREAD_FUNNELED, or a plan without `overlap` and `prefetch`");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (rank != c->launch.rank || world != c->launch.world) {
    rt_fault(f, 101, "MPI says rank %d of %d, but %s says rank %d of %d", rank, world,
             c->launch.from, c->launch.rank, c->launch.world);
    return rt_help(f, "start it with the mpirun of the MPI that it was compiled with");
  }
  Mpi *mpi = rt_alloc(sizeof *mpi);
  mpi->all = rt_alloc(sizeof *mpi->all * (size_t)world);
  if (!all_alike(c, mpi->all, f)) return false;
  c->inside = mpi;
  mpi->late = late && strtod(late, NULL) > 0 ? strtod(late, NULL) : 25;
  mpi->debug = debug && strstr(debug, "comm");
  mpi->group = rt_alloc(sizeof(MPI_Comm) * (size_t)channels);
  mpi->out = rt_alloc((size_t)STAGE * 8), mpi->in = rt_alloc((size_t)STAGE * 8);
  mpi->request = rt_alloc(sizeof(MPI_Request) * 2 * (size_t)world);
  mpi->part = rt_alloc(sizeof(void *) * (size_t)world);
  for (int i = 0; i < channels; i++)
    MPI_Comm_split(MPI_COMM_WORLD, (int)c->group[i].first, c->group[i].me, &mpi->group[i]);
  make_sent(mpi, c->program);
  mpi->ended = rt_now();
  mpi->launcher = watch_launcher();
  return true;
}

/* Without its launcher MPI would wait for it at the end. */
static void mpi_leave(Comm *c, int status) {
  const Mpi *mpi = c->inside;
  if (!c->over && status && status != 75) abort_all(mpi, status);
  for (int i = 0; mpi && !mpi->orphan && i < 2 * c->program->naxes; i++)
    MPI_Waitall(mpi->sent[i].parts, mpi->sent[i].part, MPI_STATUSES_IGNORE);
  if (!mpi || !mpi->orphan) MPI_Finalize();
}

const CommKind rt_comm_mpi = {"mpi", mpi_join, mpi_collect, mpi_leave, true};
