/* Code shared by all communicators: groups of the mesh, blocks, counting, the choice of the kind,
   and the kind for one rank. Traffic is counted as in the papers (ir/collectives.def). Every rank
   counts this amount, even the last of a line of sends, and even if a ring of n sends only
   (n - 1) / n of it. So measured traffic can be compared with a plan number by number. */
#include "flight.h"
#include "runtime/base/recorder.h"
#include "ir/support/num.h"
#include "runtime/base/setting.h"
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WHOLE, CUT, PARTIAL };
enum { RING, EACH, SHIFT, NEXT };

const CollectiveFacts rt_collective_facts[RT_COLLECTIVES] = {
#define COLLECTIVE(name, kind, words, from, to, passes, way, library)                              \
  [RT_##kind] = {words, (to) == CUT, (from) == CUT, passes, (way) == NEXT, (way) == SHIFT},
#define RUNTIME_COLLECTIVE COLLECTIVE
#include "ir/collectives.def"
};

int rt_hop_peer(const rt_collective *collective, const RankGroup *group) {
  int at = group->me + (!collective->back == (collective->kind == RT_SEND) ? 1 : -1);
  if (collective->cyclic) return (at + group->n) % group->n;
  return at < group->n ? at : -1;
}

int rt_rotate_to(const rt_collective *collective, const RankGroup *group) {
  return (group->me + collective->by) % group->n;
}

int rt_rotate_from(const rt_collective *collective, const RankGroup *group) {
  return (group->me + group->n - collective->by % group->n) % group->n;
}

double rt_comm_elements(const rt_collective *collective, int n) {
  const CollectiveFacts *facts = &rt_collective_facts[collective->kind];
  return facts->passes * (double)collective->count * (facts->gives || facts->takes ? n : 1);
}

/* ---- blocks ---- */

int64_t rt_block_at(int64_t n, int64_t i, int64_t row, int64_t e) {
  return (e / row * n + i) * row + e % row;
}

bool rt_block_run(BlockRuns *b) {
  if (b->left >= b->end) return false;
  int64_t within = b->left % b->row, rows = within ? 0 : (b->end - b->left) / b->row;
  b->from = b->left, b->rows = rows ? rows : 1;
  b->count = rows ? b->row : min_i64(b->row - within, b->end - b->left);
  b->left += b->rows * b->count;
  return true;
}

typedef void Mover(char *blocks, char *line, size_t bytes);
static void out(char *blocks, char *line, size_t bytes) { memcpy(line, blocks, bytes); }
static void in(char *blocks, char *line, size_t bytes) { memcpy(blocks, line, bytes); }

static void walk(int elem, char *blocks, char *line, int n, int i, int64_t row, int64_t from,
                 int64_t count, Mover *move) {
  int64_t size = rt_elem_bytes(elem);
  while (count > 0) {
    int64_t run = min_i64(row - from % row, count);
    move(blocks + rt_block_at(n, i, row, from) * size, line, (size_t)(run * size));
    line += run * size, from += run, count -= run;
  }
}

void rt_block_out(int elem, void *to, const void *blocks, int n, int i, int64_t row, int64_t from,
                  int64_t count) {
  walk(elem, (char *)blocks, to, n, i, row, from, count, out);
}

void rt_block_in(int elem, void *blocks, const void *source, int n, int i, int64_t row,
                 int64_t from, int64_t count) {
  walk(elem, blocks, (char *)source, n, i, row, from, count, in);
}

/* ---- one rank ---- */

static bool self_join(Comm *c, Fault *f) {
  (void)c, (void)f;
  return true;
}
static void self_collect(Comm *c, const RankGroup *group, int channel, const rt_collective *what,
                         const void *send, void *receive) {
  (void)c, (void)group, (void)channel;
  if (send != receive) memmove(receive, send, (size_t)(what->count * rt_elem_bytes(what->elem)));
}
static void self_leave(Comm *c, int status) { (void)c, (void)status; }

const CommKind rt_comm_self = {"self", self_join, self_collect, self_leave, false};

/* ---- groups ---- */

static RankGroup group_of(int rank, int64_t size, int64_t stride) {
  int64_t me = rank / stride % size;
  return (RankGroup){(int)size, (int)me, rank - me * stride, stride};
}

static void make_groups(Comm *c) {
  const rt_program *program = c->program;
  for (int i = 0; i < program->naxes; i++)
    c->group[i] = group_of(c->launch.rank, program->mesh[i].size, program->mesh[i].stride);
  c->group[program->naxes] = (RankGroup){c->launch.world, c->launch.rank, 0, 1};
}

/* Does the communicator send from memory of the device, not of the host? */
static bool is_on_device(const char *name) {
  enum { HOST, DEVICE };
  static const struct {
    const char *name;
    bool on_device;
  } kinds[] = {
#define COMMUNICATOR(name, words, memory, meaning) {#name, memory == DEVICE},
#include "ir/communicators.def"
#undef COMMUNICATOR
  };
  for (size_t i = 0; i < COUNT_OF(kinds); i++)
    if (!strcmp(kinds[i].name, name)) return kinds[i].on_device;
  return false;
}

static bool choose(Comm *c, Fault *f) {
  const char *name = c->program->communicator;
  bool mpi = name && !strcmp(name, "mpi");
  bool device = name && is_on_device(name), apart = c->launch.apart || c->meet;
  c->on_device = device && c->launch.world > 1;
  c->kind = c->launch.world == 1 ? &rt_comm_self
            : mpi                ? &rt_comm_mpi
            : device && apart    ? &rt_comm_tcp
                                 : &rt_comm_local;
  if (c->meet && c->launch.world > 1 && !device) {
    rt_fault(f, 104, "--meet: the ranks of this executable exchange tensors in host memory");
    return rt_help(f, "communicator local is one machine's; over MPI ranks meet by its mpirun");
  }
  return c->kind || rt_fault(f, 105, "this executable was linked without communicator %s",
                             mpi ? "mpi" : "local");
}

int64_t rt_mesh_ranks(const rt_program *program) {
  int64_t n = 1;
  for (int i = 0; i < program->naxes; i++) n *= program->mesh[i].size;
  return n;
}

static bool runs(const rt_program *program, int rank) {
  const rt_axis *a = &program->mesh[program->stage_axis];
  int64_t at = rank / a->stride % a->size;
  return at >= program->stage_first && at <= program->stage_last;
}

const rt_program *rt_class_program(const rt_program *first, const rt_program *p, int rank) {
  if (!p->stages || runs(p, rank)) return p;
  for (const rt_program *q = first; q; q = q->next)
    if (q->stages && !strcmp(q->hash, p->hash) && !strcmp(q->target, p->target) && runs(q, rank))
      return q;
  return p;
}

/* such as 8 ranks (data = 4, tensor = 2) */
static size_t mesh_text(const rt_program *program, char *text, size_t n, size_t size) {
  int64_t ranks = rt_mesh_ranks(program);
  if (n < size)
    n +=
        (size_t)snprintf(text + n, size - n, "%lld rank%s", (long long)ranks, ranks > 1 ? "s" : "");
  for (int i = 0; i < program->naxes && n < size; i++)
    n += (size_t)snprintf(text + n, size - n, "%s%s = %lld", i ? ", " : " (", program->mesh[i].name,
                          (long long)program->mesh[i].size);
  if (program->naxes && n < size) n += (size_t)snprintf(text + n, size - n, ")");
  return n;
}

/* The meshes of all plans of the executable; programs of one plan for several targets are
   adjacent. */
static void meshes_text(const rt_program *program, char *text, size_t size) {
  size_t n = mesh_text(program, text, 0, size);
  for (int64_t before = rt_mesh_ranks(program); (program = program->next);
       before = rt_mesh_ranks(program)) {
    if (rt_mesh_ranks(program) == before) continue;
    if (n < size) n += (size_t)snprintf(text + n, size - n, " or ");
    n = mesh_text(program, text, n, size);
  }
}

static bool check_world(const Comm *c, Fault *f) {
  const Launch *launch = &c->launch;
  int64_t ranks = rt_mesh_ranks(c->program);
  char meshes[400];
  if (ranks == launch->world) return true;
  meshes_text(c->first ? c->first : c->program, meshes, sizeof meshes);
  rt_fault(f, 101, "this executable is built for %s but was started with %d%s%s%s", meshes,
           launch->world, launch->from ? " (" : "", launch->from ? launch->from : "",
           launch->from ? ")" : "");
  if (ranks == 1)
    return rt_help(f, "start it directly, or compile a plan whose mesh has %d ranks",
                   launch->world);
  return rt_help(f,
                 "`--nnodes 1` starts the %lld ranks on this machine; `mpirun -n %lld` or `srun -n "
                 "%lld` on several",
                 (long long)ranks, (long long)ranks, (long long)ranks);
}

/* Checks the ranks of this node against the number of GPUs per node in the machine of the plan, one
   GPU per rank. Unknown counts are not checked, nor is the stand-in, which runs all ranks on one
   machine. */
static bool check_node(const Comm *c, Fault *f) {
  const Launch *launch = &c->launch;
  const char *text = rt_setting_of(c->program, "machine.node.gpus");
  int gpus = text && c->program->sm ? atoi(text) : 0;
  bool known = !launch->apart || launch->local_world != launch->world;
  if (!gpus || !known || launch->local_world <= gpus || getenv("SHARDC_EMULATE_DEVICES"))
    return true;
  rt_fault(f, 101, "%d ranks on this machine, and the plan is for nodes with %d GPU%s",
           launch->local_world, gpus, gpus > 1 ? "s" : "");
  return rt_help(f, "start %d per node, on %d nodes", gpus, (launch->world + gpus - 1) / gpus);
}

static void leave_job(const RtJob *job) { job->comm->kind->leave(job->comm, job->status); }

/* Whoever communicates just now may never be done, and looks at `leaving` while it waits. */
static void leave(int status, void *comm) {
  Comm *c = comm;
  RtJob job = {.run = leave_job, .comm = c, .status = status, .row = -1};
  c->leaving = status + 1;
  if (c->flight && c->kind->one_thread && !rt_flight_inside(c->flight))
    rt_flight_run(c->flight, job);
  else leave_job(&job);
}

static void join_job(const RtJob *job) {
  *job->fine = job->comm->kind->join(job->comm, job->fault);
}

static bool join(Comm *c, Fault *f) {
  bool fine = false;
  RtJob job = {.run = join_job, .comm = c, .fault = f, .fine = &fine, .row = -1};
  if (!c->program->flies || c->on_device || c->launch.world == 1) {
    join_job(&job);
    return fine;
  }
  c->flight = rt_flight_open(c->program->ncollectives, f);
  if (c->flight) rt_flight_run(c->flight, job);
  return fine;
}

/* --meet wins over what the launcher says. */
static void set_place(Comm *c) {
  if (!c->meet) return;
  snprintf(c->launch.place, sizeof c->launch.place, "%s", c->meet);
  c->launch.place_from = "--meet", c->launch.ports = 1;
}

bool rt_comm_open(Comm *c, const rt_program *program, Fault *f) {
  c->program = program;
  if (!rt_launch_find(&c->launch, f) || !check_world(c, f) || !check_node(c, f) ||
      !rt_nodes_fit(program, &c->launch, f) || !choose(c, f))
    return false;
  set_place(c);
  make_groups(c);
  c->count = rt_alloc(sizeof(CommCount) * (size_t)(program->ncollectives + 1));
  if (!join(c, f)) return false;
  on_exit(leave, c);
  return true;
}

void rt_comm_close(Comm *c) {
  if (!c->kind || c->over) return;
  rt_comm_wait(c, "the end of the run");
  c->over = true;
}

double rt_comm_waited(const Comm *c) {
  double seconds = 0;
  if (!c || c->launch.world == 1 || c->on_device) return NAN;
  for (int i = 0; i <= c->program->ncollectives; i++) seconds += c->count[i].waited;
  return seconds;
}

char rt_process_state(int64_t pid) {
  char path[48], text[512] = "";
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  const char *end = n > 0 ? strrchr(text, ')') : NULL;
  return end && end[1] ? end[2] : 0;
}

int rt_comm_rank(const Comm *c) { return c ? c->launch.rank : 0; }
int rt_comm_world(const Comm *c) { return c ? c->launch.world : 1; }

/* ---- calls ---- */

static void add(CommCount *count, const rt_collective *what, int n, double seconds) {
  double elements = rt_comm_elements(what, n);
  count->calls++, count->seconds += seconds;
  count->elements += elements, count->bytes += elements * rt_elem_bytes(what->elem);
}

/* This rank has no neighbour to send to, or to receive from. */
static bool at_end(const rt_collective *what, const RankGroup *group) {
  return rt_is_hop(what->kind) && rt_hop_peer(what, group) < 0;
}

static void watch(Comm *c, int64_t row, double from, bool stood) {
  if (c->watch) c->watch(c->watcher, (int)row, from, rt_now(), stood);
}

void rt_comm_count(Comm *c, const rt_collective *what, double seconds) {
  const RankGroup *group = &c->group[what->axis];
  if (!at_end(what, group)) watch(c, what - c->program->collectives, rt_now() - seconds, false);
  add(&c->count[what - c->program->collectives], what, group->n, seconds);
}

/* Messages of this rank are one after the other, whichever thread has them. */
static void record(const RtJob *job, RecordKind kind) {
  Comm *c = job->comm;
  if (!c->record) return;
  const char *over = job->channel < c->program->naxes ? c->program->mesh[job->channel].name : NULL;
  rt_record(c->record, kind, c->recorded, rt_collective_facts[job->what->kind].words,
            job->what->what, over);
}

static void run_job(const RtJob *job) {
  const RankGroup *group = &job->comm->group[job->channel];
  double start = rt_now();
  job->comm->recorded++, job->comm->late = 0;
  record(job, RECORD_CALL);
  bool ends = at_end(job->what, group);
  if (group->n == 1 || ends)
    self_collect(job->comm, group, job->channel, job->what, job->send, job->receive);
  else job->comm->kind->collect(job->comm, group, job->channel, job->what, job->send, job->receive);
  if (job->what->kind == RT_SEND && !ends)
    memset(job->receive, 0, (size_t)(job->what->count * rt_elem_bytes((int)job->what->elem)));
  record(job, RECORD_CALL_END);
  if (!ends) watch(job->comm, job->count - job->comm->count, start, false);
  add(job->count, job->what, group->n, rt_now() - start);
  job->count->late += job->comm->late;
}

static void run(Comm *c, int channel, const rt_collective *what, CommCount *count, const void *send,
                void *receive) {
  RtJob job = {run_job, c, channel, 0, what, count, send, receive, NULL, NULL, -1};
  double start = rt_now();
  if (c->flight && rt_flight_inside(c->flight)) {
    run_job(&job);
    return;
  }
  if (c->flight) rt_flight_run(c->flight, job);
  else run_job(&job);
  watch(c, count - c->count, start, true);
  count->waited += rt_now() - start;
}

void rt_comm_start(Comm *c, const rt_collective *what, const void *send, void *receive) {
  int row = (int)(what - c->program->collectives);
  RtJob job = {run_job, c, what->axis, 0, what, &c->count[row], send, receive, NULL, NULL, row};
  double start = rt_now();
  if (c->flight) rt_flight_start(c->flight, job);
  else run_job(&job), watch(c, row, start, true);
  c->count[row].waited += rt_now() - start;
}

void rt_comm_await(Comm *c, const rt_collective *what, int64_t n) {
  int row = (int)(what - c->program->collectives);
  double start = rt_now();
  if (c->flight) rt_flight_wait(c->flight, row, n);
  if (c->flight) watch(c, row, start, true);
  c->count[row].waited += rt_now() - start;
}

void rt_comm_collect(Comm *c, const rt_collective *what, const void *send, void *receive) {
  run(c, what->axis, what, &c->count[what - c->program->collectives], send, receive);
}

void rt_comm_piece(Comm *c, const rt_collective *what, int64_t count, const void *send,
                   void *receive) {
  rt_collective piece = *what;
  piece.count = piece.send_row = piece.receive_row = count;
  run(c, what->axis, &piece, &c->count[what - c->program->collectives], send, receive);
}

static void own(Comm *c, rt_collective what, const void *send, void *receive) {
  if (!c || c->launch.world == 1) {
    self_collect(c, NULL, 0, &what, send, receive);
    return;
  }
  what.source = "", what.axis = c->program->naxes;
  what.send_row = what.receive_row = what.count;
  run(c, what.axis, &what, &c->count[c->program->ncollectives], send, receive);
}

int64_t rt_comm_max(Comm *c, const char *what, int64_t v) {
  int64_t most = v;
  own(c,
      (rt_collective){
          .what = what, .kind = RT_ALL_REDUCE, .reduction = RT_MAX, .elem = RT_I64, .count = 1},
      &v, &most);
  return most;
}

void rt_comm_gather(Comm *c, const char *what, const void *mine, void *all, int64_t bytes) {
  own(c, (rt_collective){.what = what, .kind = RT_ALL_GATHER, .elem = RT_BOOL, .count = bytes},
      mine, all);
}

void rt_comm_broadcast(Comm *c, const char *what, void *data, int64_t bytes) {
  own(c, (rt_collective){.what = what, .kind = RT_BROADCAST, .elem = RT_BOOL, .count = bytes}, data,
      data);
}

void rt_comm_wait(Comm *c, const char *what) { rt_comm_max(c, what, 0); }

void rt_comm_max_of(Comm *c, const char *what, int64_t *v, int64_t n) {
  own(c,
      (rt_collective){
          .what = what, .kind = RT_ALL_REDUCE, .reduction = RT_MAX, .elem = RT_I64, .count = n},
      v, v);
}

bool rt_comm_all(Comm *c, const char *what, bool ok, Fault *f) {
  int world = rt_comm_world(c);
  if (world == 1) return ok;
  int64_t code = ok ? 0 : f->code, *all = rt_alloc(sizeof *all * (size_t)world);
  rt_comm_gather(c, what, &code, all, sizeof code);
  bool good = true;
  for (int i = 0; i < world; i++) {
    if (!ok && all[i] == code && i < rt_comm_rank(c)) f->quiet = true; /* one says it */
    if (all[i] && ok && good)
      rt_fault(f, (int)all[i], "rank %d failed: %s", i, what), f->quiet = true;
    good = good && !all[i];
  }
  f->everywhere = !good;
  free(all);
  return good;
}

bool rt_comm_decide(Comm *c, const char *what, bool ok, void *data, int64_t n, Fault *f) {
  if (rt_comm_world(c) == 1) return ok;
  struct {
    Fault f;
    bool ok;
  } told = {.f = *f, .ok = ok};
  rt_comm_broadcast(c, what, &told, sizeof told);
  if (data) rt_comm_broadcast(c, what, data, n);
  *f = told.f, f->everywhere = !told.ok, f->quiet = rt_comm_rank(c) > 0;
  return told.ok;
}

/* ---- the table of --profile ---- */

static void print_axis(const Comm *c, int axis) {
  const rt_program *program = c->program;
  CommCount all = {0};
  for (int i = 0; i <= program->ncollectives; i++) {
    bool mine =
        i < program->ncollectives ? program->collectives[i].axis == axis : axis == program->naxes;
    if (!mine) continue;
    all.calls += c->count[i].calls, all.seconds += c->count[i].seconds;
    all.elements += c->count[i].elements, all.bytes += c->count[i].bytes;
    all.waited += c->count[i].waited;
  }
  fprintf(stderr, "axis %-16s %12lld calls %16.0f elements %18.0f bytes %10.3f s",
          axis < program->naxes ? program->mesh[axis].name : "(all ranks)", (long long)all.calls,
          all.elements, all.bytes, all.seconds);
  if (all.waited > 0) fprintf(stderr, ", %.3f s waited for", all.waited);
  fprintf(stderr, "\n");
}

double rt_comm_per_core(const Comm *c) {
  const rt_program *program = c->program;
  double sent = 0, seconds = c->flight ? rt_flight_processor(c->flight) : 0;
  for (int i = 0; i < program->ncollectives; i++) {
    double n = (double)c->group[program->collectives[i].axis].n;
    bool shifts = rt_collective_facts[program->collectives[i].kind].shifts;
    sent += c->count[i].bytes * (shifts ? 1 : (n - 1) / n);
  }
  return seconds > 0 ? sent / seconds : 0;
}

void rt_comm_table(const Comm *c) {
  const rt_program *program = c->program;
  if (c->launch.world == 1) return;
  fprintf(stderr, "\n%-14s %-10s %10s %16s %18s %10s  %s\n", "collective", "axis", "calls",
          "elements sent", "bytes sent", "seconds", "of");
  for (int i = 0; i < program->ncollectives; i++) {
    const rt_collective *collective = &program->collectives[i];
    const CommCount *count = &c->count[i];
    if (count->calls)
      fprintf(stderr, "%-14s %-10s %10lld %16.0f %18.0f %10.3f  %s%s%s\n",
              rt_collective_facts[collective->kind].words, program->mesh[collective->axis].name,
              (long long)count->calls, count->elements, count->bytes, count->seconds,
              collective->what, *collective->source ? ", " : "", collective->source);
  }
  for (int axis = 0; axis <= program->naxes; axis++) print_axis(c, axis);
  if (c->flight)
    fprintf(stderr, "the thread that communicates took %.3f s of a processor: %.0f MB/s\n",
            rt_flight_processor(c->flight), 1e-6 * rt_comm_per_core(c));
}
