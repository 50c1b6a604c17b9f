/* Communicator `mpi`: any MPI between machines. The only file that knows MPI: it is compiled with
   the user's mpicc when a model is, so shardc and the runtime need none. One thread owns MPI:
   the main one, or that of flight.c.

   Groups are communicators split from the world, one per mesh axis. Tensors travel in chunks
   through staging of a fixed size, made at the start; 16-bit floats are added as f32 and rounded
   once. Calls are started without blocking and tested, so that a rank that does not come ends the
   job; one that dies is noticed by the launcher, which ends the others. A launcher that dies is
   noticed by the ranks, which save. SHARDC_DEBUG=comm compares before each call what the ranks of
   the group are about to do. */
#include "comm.h"
#include <dlfcn.h>
#include <mpi.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Elements in flight; seconds; nanoseconds between looks, where kernels run beside. */
enum { STAGE = 1 << 20, ORPHANS_LIVE = 600, NAP = 20000 };

typedef struct Mpi {
  MPI_Comm *group; /* per channel */
  char *out, *in;  /* staging: STAGE elements of up to 8 bytes, sent and received */
  double ended, late;
  unsigned calls;
  int debug, launcher; /* launcher: tells its end to poll, -1: nothing does */
  bool orphan;
} Mpi;

typedef struct MpiCall {
  Mpi *m;
  Comm *c;
  const Group *g;
  const rt_collective *what;
  MPI_Comm comm;
  int size, wire; /* bytes of an element; element type on the wire */
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
  case RT_BOOL: return MPI_UINT8_T;
  default: return MPI_UINT16_T; /* moved, never added */
  }
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

/* What this process slept, stopped or starved, is not counted. */
static void await(MpiCall *x, MPI_Request *r) {
  double before = rt_now();
  for (int done = 0; !done;) {
    double now = rt_now();
    if (now - before > 1) x->limit += now - before;
    before = now;
    MPI_Test(r, &done, MPI_STATUS_IGNORE);
    if (!done && x->c->leaving) abort_all(x->m, x->c->leaving - 1);
    if (!done && x->c->flight) nanosleep(&(struct timespec){.tv_nsec = NAP}, NULL);
    if (!done && now > x->limit) end_all(x, 902, "a rank did not come within the time-out to");
  }
}

/* ---- 16-bit floats travel as f32 where they are added ---- */

static void widen(const MpiCall *x, void *to, const void *from, int64_t n) {
  if (x->wire == (int)x->what->elem) memcpy(to, from, (size_t)(n * x->size));
  else
    for (int64_t i = 0; i < n; i++)
      ((float *)to)[i] = (float)rt_elem_get((int)x->what->elem, from, i);
}

static void narrow(const MpiCall *x, void *to, const void *from, int64_t n) {
  if (x->wire == (int)x->what->elem) memcpy(to, from, (size_t)(n * x->size));
  else
    for (int64_t i = 0; i < n; i++)
      rt_elem_put((int)x->what->elem, to, i, (double)((const float *)from)[i]);
}

/* ---- collectives, a chunk at a time ---- */

static void all_reduce(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  widen(x, x->m->out, send + at * x->size, m);
  MPI_Iallreduce(x->m->out, x->m->in, (int)m, type_of(x->wire), op_of(x->what), x->comm, &r);
  await(x, &r);
  narrow(x, receive + at * x->size, x->m->in, m);
}

/* Blocks in the order of ranks, m elements of each; x->m->in is free until they are sent. */
static void pack(const MpiCall *x, const char *send, int64_t at, int64_t m) {
  int wire = rt_elem_bytes(x->wire);
  for (int i = 0; i < x->g->n; i++) {
    rt_block_out((int)x->what->elem, x->m->in, send, x->g->n, i, x->what->send_row, at, m);
    widen(x, x->m->out + i * m * wire, x->m->in, m);
  }
}

static void unpack(const MpiCall *x, char *receive, int64_t at, int64_t m) {
  for (int i = 0; i < x->g->n; i++)
    rt_block_in((int)x->what->elem, receive, x->m->in + i * m * x->size, x->g->n, i,
                x->what->receive_row, at, m);
}

static void reduce_scatter(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  pack(x, send, at, m);
  MPI_Ireduce_scatter_block(x->m->out, x->m->in, (int)m, type_of(x->wire), op_of(x->what), x->comm,
                            &r);
  await(x, &r);
  narrow(x, receive + at * x->size, x->m->in, m);
}

static void all_gather(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  MPI_Datatype t = type_of((int)x->what->elem);
  MPI_Iallgather(send + at * x->size, (int)m, t, x->m->in, (int)m, t, x->comm, &r);
  await(x, &r);
  unpack(x, receive, at, m);
}

static void all_to_all(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  MPI_Datatype t = type_of((int)x->what->elem);
  pack(x, send, at, m);
  MPI_Ialltoall(x->m->out, (int)m, t, x->m->in, (int)m, t, x->comm, &r);
  await(x, &r);
  unpack(x, receive, at, m);
}

static void broadcast(MpiCall *x, const char *send, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  char *data = receive + at * x->size;
  if (x->g->me == 0 && send != receive) memcpy(data, send + at * x->size, (size_t)(m * x->size));
  MPI_Ibcast(data, (int)m, type_of((int)x->what->elem), 0, x->comm, &r);
  await(x, &r);
}

/* Messages of a direction have a tag; they come in the order in which they were sent. */
static void hop_out(MpiCall *x, const char *data, char *receive, int64_t at, int64_t m) {
  MPI_Request r;
  (void)receive;
  MPI_Isend(data + at * x->size, (int)m, type_of((int)x->what->elem), rt_hop_peer(x->what, x->g),
            x->what->back, x->comm, &r);
  await(x, &r);
}

static void hop_in(MpiCall *x, const char *data, char *to, int64_t at, int64_t m) {
  MPI_Request r;
  (void)data;
  MPI_Irecv(to + at * x->size, (int)m, type_of((int)x->what->elem), rt_hop_peer(x->what, x->g),
            x->what->back, x->comm, &r);
  await(x, &r);
}

static void (*const chunk[])(MpiCall *, const char *, char *, int64_t, int64_t) = {
    all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, hop_out, hop_in};

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
  await(x, &r);
  for (int i = 0; i < 3; i++)
    if (most[i] != -most[i + 3]) end_all(x, 903, "the ranks disagree; here comes");
}

static void mpi_collect(Comm *c, const Group *g, int channel, const rt_collective *what,
                        const void *send, void *receive) {
  Mpi *m = c->inside;
  MpiCall x = {.m = m,
               .c = c,
               .g = g,
               .what = what,
               .comm = m->group[channel],
               .size = rt_elem_bytes((int)what->elem),
               .wire = (int)what->elem};
  bool adds = what->kind == RT_ALL_REDUCE || what->kind == RT_REDUCE_SCATTER;
  double now = rt_now(), worked = now - m->ended;
  if (adds && (what->elem == RT_BF16 || what->elem == RT_F16)) x.wire = RT_F32;
  x.limit = now + (worked > m->late ? worked : m->late);
  m->calls++;
  look_at_launcher(m);
  if (m->debug && !rt_is_hop(what->kind)) compare(&x);
  bool blocks = what->kind != RT_ALL_REDUCE && what->kind != RT_BROADCAST && !rt_is_hop(what->kind);
  int64_t step = blocks ? STAGE / g->n : STAGE;
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
  for (int i = 0; i < channels; i++)
    MPI_Comm_split(MPI_COMM_WORLD, (int)c->group[i].first, c->group[i].me, &m->group[i]);
  m->ended = rt_now();
  m->launcher = watch_launcher();
  return true;
}

/* Without its launcher MPI would wait for it at the end. */
static void mpi_leave(Comm *c, int status) {
  const Mpi *m = c->inside;
  if (!c->over && status && status != 75) abort_all(m, status);
  if (!m || !m->orphan) MPI_Finalize();
}

const CommKind rt_comm_mpi = {"mpi", mpi_join, mpi_collect, mpi_leave, true};
