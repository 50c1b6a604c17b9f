/* Communicator `mpi`: any MPI between machines. The only file that knows MPI: it is compiled with
   the user's mpicc when a model is, so shardc and the runtime need none. One thread owns MPI:
   the main one, or that of flight.c.

   Groups are communicators split from the world, one per mesh axis. What is added goes to the rank
   whose part it is, and is added there in the order of ranks, as communicator `local` does: the
   same bits, whatever the MPI, and each rank sends and receives at once. Buffers whose blocks lie
   end to end travel from and to where they lie, others through staging of a fixed size, made at the
   start. Calls are started without blocking and tested, so that a rank that does not come ends the
   job; one that dies is noticed by the launcher, which ends the others. A launcher that dies is
   noticed by the ranks, which save. SHARDC_DEBUG=comm compares before each call what the ranks of
   the group are about to do. */
#include "comm.h"
#include "flight.h"
#include "reduce_ranks.h"
#include <dlfcn.h>
#include <limits.h>
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
enum { STAGE = 1 << 20, FEW = 4096, ORPHANS_LIVE = 600 };
enum { PARTS = 2 }; /* tag of what collectives are made of; hops have 0 and 1 */
/* Nanoseconds between two looks: where kernels wait, and at least and at most where they run
   beside; looks in the time that it has taken. */
enum { SHORT_NAP = 20000, NAP = 100000, LONG_NAP = 500000, LOOKS = 8 };

typedef struct Sent { /* the last message to a neighbour: copied, so that this rank goes on */
  char *data;
  MPI_Request *part; /* of STAGE elements at most */
  int parts;
} Sent;

typedef struct Mpi {
  MPI_Comm *group;      /* per channel */
  Sent *sent;           /* per channel, to the rank behind, to the rank before */
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

static void look_at_launcher(Mpi *m) {
  struct pollfd end = {m->launcher, POLLIN, 0};
  if (m->launcher < 0 || poll(&end, 1, 0) <= 0) return;
  close(m->launcher);
  m->launcher = -1, m->orphan = true;
  kill(getpid(), SIGTERM);
}

static _Noreturn void abort_all(const Mpi *m, int status) {
  int *delay = abort_delay();
  if (delay && *delay == ORPHANS_LIVE) *delay = 0;
  if (!m || !m->orphan) MPI_Abort(MPI_COMM_WORLD, status);
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

static MPI_Op op_of(const rt_collective *c) {
  return c->reduction == RT_MAX || c->elem == RT_BOOL ? MPI_MAX : MPI_SUM;
}

static _Noreturn void end_all(const MpiCall *x, int code, const char *what) {
  fprintf(stderr, "error[R%04d]: %s: %s #%u of %s%s%s; this is rank %d\n", code, what,
          rt_collective_name((int)x->what->kind), x->m->calls, x->what->what,
          *x->what->source ? ", " : "", x->what->source, x->c->launch.rank);
  abort_all(x->m, 1);
}

/* ---- requests ---- */

/* The processor is others' between two looks, of which each moves what has come meanwhile. While
   kernels run beside, looks become rarer. */
static void nap(const MpiCall *x, double since, double now) {
  int64_t ns = (int64_t)((now - since) * 1e9 / LOOKS);
  if (rt_flight_awaited(x->c->flight)) ns = SHORT_NAP;
  else ns = ns < NAP ? NAP : ns > LONG_NAP ? LONG_NAP : ns;
  nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* What this process slept, stopped or starved, is not counted. */
static void await(MpiCall *x, int n, MPI_Request *r) {
  double since = rt_now(), before = since;
  for (int done = 0; !done;) {
    double now = rt_now();
    if (now - before > 1) x->limit += now - before;
    before = now;
    MPI_Testall(n, r, &done, MPI_STATUSES_IGNORE);
    if (!done && x->c->leaving) abort_all(x->m, x->c->leaving - 1);
    if (!done && x->c->flight) nap(x, since, now);
    if (!done && now > x->limit) end_all(x, 902, "a rank did not come within the time-out to");
  }
}

/* Behind the sends, everywhere. A large message is announced, and goes when the receiver has
   answered; all of it over one connection. A rank that comes late answers what waits for it the
   moment it receives, and the whole message then stands in front of the other's answer to what it
   announces after: one direction of the link would wait for the other. */
static void receive_from(MpiCall *x, int i, void *to, int64_t n) {
  MPI_Irecv(to, (int)n, type_of((int)x->what->elem), i, PARTS, x->comm,
            &x->m->request[x->started++]);
}

static void send_to(MpiCall *x, int i, const void *from, int64_t n) {
  MPI_Isend(from, (int)n, type_of((int)x->what->elem), i, PARTS, x->comm,
            &x->m->request[x->started++]);
}

static void await_started(MpiCall *x) {
  await(x, x->started, x->m->request);
  x->started = 0;
}

/* The k-th partner: not all ranks begin with the same one. */
static int partner(const MpiCall *x, int k) { return (x->g->me + k) % x->g->n; }

/* ---- collectives, m elements from `at` on ---- */

/* Of block i: where they lie, or where they are put end to end. */
static const char *outgoing(const MpiCall *x, const char *send, int i, int64_t at, int64_t m) {
  const rt_collective *c = x->what;
  if (c->send_row == c->count) return send + (i * c->count + at) * x->size;
  char *to = x->m->out + i * m * x->size;
  rt_block_out((int)c->elem, to, send, x->g->n, i, c->send_row, at, m);
  return to;
}

static void unpack(const MpiCall *x, char *receive, int64_t at, int64_t m) {
  for (int i = 0; i < x->g->n; i++)
    rt_block_in((int)x->what->elem, receive, x->m->in + i * m * x->size, x->g->n, i,
                x->what->receive_row, at, m);
}

/* m elements for this rank from each, which has sent them; its own are there. */
static void receive_parts(MpiCall *x, const void *own, int64_t m) {
  for (int k = 1; k < x->g->n; k++) {
    int i = partner(x, k);
    char *to = x->m->in + i * m * x->size;
    x->m->part[i] = to;
    receive_from(x, i, to, m);
  }
  x->m->part[x->g->me] = own;
  await_started(x);
}

/* `to` is none of them. */
static void sum_parts(MpiCall *x, void *to, int64_t m) {
  rt_reduce((int)x->what->elem, (int)x->what->reduction, to, x->m->part, x->g->n, m);
}

/* Where block i begins, if m elements are cut in as many blocks as there are ranks. */
static int64_t cut_at(const MpiCall *x, int64_t m, int i) {
  int64_t block = (m + x->g->n - 1) / x->g->n, at = i * block;
  return at < m ? at : m;
}

/* Each rank adds its part of all, and gives it to all; a few elements are added by each. */
static void add_all(MpiCall *x, const char *send, char *receive, int64_t m, bool few) {
  int n = x->g->n, me = x->g->me, size = x->size;
  int64_t at = few ? 0 : cut_at(x, m, me), mine = few ? m : cut_at(x, m, me + 1) - at;
  for (int k = 1; k < n; k++) {
    int i = partner(x, k);
    int64_t from = few ? 0 : cut_at(x, m, i), to = few ? m : cut_at(x, m, i + 1);
    send_to(x, i, send + from * size, to - from);
  }
  receive_parts(x, send + at * size, mine);
  sum_parts(x, x->m->out, mine);
  memcpy(receive + at * size, x->m->out, (size_t)(mine * size));
  for (int k = 1; k < n && !few; k++) send_to(x, partner(x, k), x->m->out, mine);
  for (int k = 1; k < n && !few; k++) {
    int64_t from = cut_at(x, m, partner(x, k)), to = cut_at(x, m, partner(x, k) + 1);
    receive_from(x, partner(x, k), receive + from * size, to - from);
  }
  await_started(x);
}

static void all_reduce(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  send += at * x->size, receive += at * x->size;
  if (!is_whole_number((int)x->what->elem)) {
    add_all(x, send, receive, m, m * x->g->n <= FEW);
    return;
  }
  memcpy(x->m->out, send, (size_t)(m * x->size)); /* may be `receive` */
  MPI_Iallreduce(x->m->out, receive, (int)m, type_of((int)x->what->elem), op_of(x->what), x->comm,
                 &r);
  await(x, 1, &r);
}

static void send_blocks(MpiCall *x, const char *send, int64_t at, int64_t m) {
  for (int k = 1; k < x->g->n; k++)
    send_to(x, partner(x, k), outgoing(x, send, partner(x, k), at, m), m);
}

static void reduce_scatter(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  send_blocks(x, send, at, m);
  receive_parts(x, outgoing(x, send, x->g->me, at, m), m);
  sum_parts(x, receive + at * x->size, m);
}

/* A ring: each rank hands on to the next what it got last. */
static void all_gather(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  int n = x->g->n, me = x->g->me;
  size_t bytes = (size_t)(m * x->size);
  bool there = m == x->what->count && x->what->receive_row == m;
  char *blocks = there ? receive : x->m->in;
  const char *own = send + at * x->size;
  for (int k = 0; k < n - 1; k++) {
    send_to(x, partner(x, 1), k ? blocks + (size_t)partner(x, n - k) * bytes : own, m);
    receive_from(x, partner(x, n - 1), blocks + (size_t)partner(x, n - 1 - k) * bytes, m);
    if (k == 0) memcpy(blocks + (size_t)me * bytes, own, bytes); /* while others travel */
    await_started(x);
  }
  if (!there) unpack(x, receive, at, m);
}

static void all_to_all(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  size_t bytes = (size_t)(m * x->size);
  send_blocks(x, send, at, m);
  receive_parts(x, outgoing(x, send, x->g->me, at, m), m);
  memcpy(x->m->in + (size_t)x->g->me * bytes, x->m->part[x->g->me], bytes);
  unpack(x, receive, at, m);
}

static void broadcast(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  char *data = receive + at * x->size;
  if (x->g->me == 0 && send != receive) memcpy(data, send + at * x->size, (size_t)(m * x->size));
  MPI_Ibcast(data, (int)m, type_of((int)x->what->elem), 0, x->comm, &r);
  await(x, 1, &r);
}

/* As long as a neighbour that stands in its receive takes to get it, at 1 Gbit/s. */
static void push(const Sent *s, int64_t bytes) {
  double until = rt_now() + 1e-4 + (double)bytes / 1e8;
  for (int done = 0; !done && rt_now() < until;)
    MPI_Testall(s->parts, s->part, &done, MPI_STATUSES_IGNORE);
}

/* Messages of a direction have a tag; they come in the order in which they were sent. Nobody waits
   for the neighbour that is not there yet: ranks that send to each other first and receive then go
   on. The message before must have been taken. */
static void hop_out(MpiCall *x, const char *data, char *receive, int64_t at, int64_t m) {
  Sent *s = &x->m->sent[x->channel * 2 + (x->what->back != 0)];
  (void)receive;
  if (!at) await(x, s->parts, s->part), s->parts = 0;
  memcpy(s->data + at * x->size, data + at * x->size, (size_t)(m * x->size));
  MPI_Isend(s->data + at * x->size, (int)m, type_of((int)x->what->elem), rt_hop_peer(x->what, x->g),
            x->what->back, x->comm, &s->part[s->parts++]);
  if (at + m == x->what->count) push(s, x->what->count * x->size);
}

static void hop_in(MpiCall *x, const char *data, char *to, int64_t at, int64_t m) {
  MPI_Request r;
  (void)data;
  MPI_Irecv(to + at * x->size, (int)m, type_of((int)x->what->elem), rt_hop_peer(x->what, x->g),
            x->what->back, x->comm, &r);
  await(x, 1, &r);
}

static void (*const chunk[])(MpiCall *, const char *, char *, int64_t, int64_t) = {
    all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, hop_out, hop_in};

/* Elements at a time: what staging has room for. */
static int64_t chunk_of(const MpiCall *x) {
  const rt_collective *c = x->what;
  switch (c->kind) {
  case RT_ALL_REDUCE:
  case RT_BROADCAST:
  case RT_SEND:
  case RT_RECEIVE: return STAGE - x->g->n; /* blocks are rounded up */
  case RT_ALL_GATHER:
    if (c->receive_row == c->count && c->count <= INT_MAX) return c->count;
    return STAGE / x->g->n;
  default: return STAGE / x->g->n;
  }
}

/* The largest and the smallest mark of the group are the same if all are. */
static void compare(MpiCall *x) {
  const rt_program *p = x->c->program;
  int64_t row = x->what >= p->collectives && x->what < p->collectives + p->ncollectives
                    ? x->what - p->collectives
                    : -1,
          mine[3] = {row, x->what->count, (int64_t)x->what->kind}, v[6], most[6];
  MPI_Request r;
  for (int i = 0; i < 3; i++) v[i] = mine[i], v[i + 3] = -mine[i];
  MPI_Iallreduce(v, most, 6, MPI_INT64_T, MPI_MAX, x->comm, &r);
  await(x, 1, &r);
  for (int i = 0; i < 3; i++)
    if (most[i] != -most[i + 3]) end_all(x, 903, "the ranks disagree; here comes");
}

static void mpi_collect(Comm *c, const RankGroup *g, int channel, const rt_collective *what,
                        const void *send, void *receive) {
  Mpi *m = c->inside;
  MpiCall x = {.m = m,
               .c = c,
               .g = g,
               .what = what,
               .comm = m->group[channel],
               .channel = channel,
               .size = rt_elem_bytes((int)what->elem)};
  double now = rt_now(), worked = now - m->ended;
  x.limit = now + (worked > m->late ? worked : m->late);
  m->calls++;
  look_at_launcher(m);
  if (m->debug && !rt_is_hop(what->kind)) compare(&x);
  int64_t step = chunk_of(&x);
  for (int64_t at = 0; at < what->count; at += step)
    chunk[what->kind](&x, send, receive, at, what->count - at < step ? what->count - at : step);
  m->ended = rt_now();
}

/* ---- joining ---- */

typedef struct Who {
  uint64_t program, options;
  int64_t pid;
  char host[64];
} Who;

/* Room for the largest message to either neighbour along each axis. */
static void make_sent(Mpi *m, const rt_program *p) {
  m->sent = rt_alloc(sizeof(Sent) * 2 * (size_t)(p->naxes + 1));
  for (int axis = 0; axis < p->naxes; axis++)
    for (int back = 0; back < 2; back++) {
      size_t most = 0, parts = 0;
      for (int i = 0; i < p->ncollectives; i++) {
        const rt_collective *c = &p->collectives[i];
        if (c->kind != RT_SEND || c->axis != axis || (c->back != 0) != back) continue;
        size_t bytes = (size_t)(c->count * rt_elem_bytes((int)c->elem));
        most = bytes > most ? bytes : most;
        parts = (size_t)c->count > parts ? (size_t)c->count : parts;
      }
      if (!most) continue;
      parts = parts / (size_t)(STAGE - 1) + 1; /* shorter parts: STAGE less the ranks of a group */
      m->sent[axis * 2 + back] =
          (Sent){rt_alloc(most), rt_alloc(sizeof(MPI_Request) * 2 * parts), 0};
    }
}

static bool all_alike(const Comm *c, Fault *f) {
  int world = c->launch.world;
  const rt_program *p = c->program;
  Who mine = {.program =
                  rt_hash_of(p->hash, strlen(p->hash)) ^ rt_hash_of(p->target, strlen(p->target)),
              .options = c->options,
              .pid = getpid()};
  Who *all = rt_alloc(sizeof *all * (size_t)world);
  gethostname(mine.host, sizeof mine.host - 1);
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
  bool ok = true;
  for (int i = 1; ok && i < world; i++)
    if (all[i].program != all[0].program || all[i].options != all[0].options)
      ok = rt_fault(f, 106, "rank %d (%s, pid %lld) runs with %s than rank 0 (%s, pid %lld)", i,
                    all[i].host, (long long)all[i].pid,
                    all[i].program != all[0].program ? "another executable" : "other options",
                    all[0].host, (long long)all[0].pid);
  free(all);
  return ok;
}

static bool mpi_join(Comm *c, Fault *f) {
  int have, rank, world, channels = c->program->naxes + 1;
  const char *late = getenv("SHARDC_LATE"), *debug = getenv("SHARDC_DEBUG");
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &have))
    return rt_fault(f, 107, "MPI cannot start");
  if (c->flight && have < MPI_THREAD_FUNNELED) {
    rt_fault(f, 101, "messages are to run beside the computation, and this MPI allows one thread");
    return rt_help(f,
                   "an MPI with MPI_THREAD_FUNNELED, or a plan without `overlap` and `prefetch`");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (rank != c->launch.rank || world != c->launch.world) {
    rt_fault(f, 101, "MPI says rank %d of %d, but %s says rank %d of %d", rank, world,
             c->launch.from, c->launch.rank, c->launch.world);
    return rt_help(f, "start it with the mpirun of the MPI that it was compiled with");
  }
  if (!all_alike(c, f)) return false;
  Mpi *m = rt_alloc(sizeof *m);
  c->inside = m;
  m->late = late && strtod(late, NULL) > 0 ? strtod(late, NULL) : 25;
  m->debug = debug && strstr(debug, "comm");
  m->group = rt_alloc(sizeof(MPI_Comm) * (size_t)channels);
  m->out = rt_alloc((size_t)STAGE * 8), m->in = rt_alloc((size_t)STAGE * 8);
  m->request = rt_alloc(sizeof(MPI_Request) * 2 * (size_t)world);
  m->part = rt_alloc(sizeof(void *) * (size_t)world);
  for (int i = 0; i < channels; i++)
    MPI_Comm_split(MPI_COMM_WORLD, (int)c->group[i].first, c->group[i].me, &m->group[i]);
  make_sent(m, c->program);
  m->ended = rt_now();
  m->launcher = watch_launcher();
  return true;
}

/* Without its launcher MPI would wait for it at the end. */
static void mpi_leave(Comm *c, int status) {
  const Mpi *m = c->inside;
  if (!c->over && status && status != 75) abort_all(m, status);
  for (int i = 0; m && !m->orphan && i < 2 * c->program->naxes; i++)
    MPI_Waitall(m->sent[i].parts, m->sent[i].part, MPI_STATUSES_IGNORE);
  if (!m || !m->orphan) MPI_Finalize();
}

const CommKind rt_comm_mpi = {"mpi", mpi_join, mpi_collect, mpi_leave, true};
