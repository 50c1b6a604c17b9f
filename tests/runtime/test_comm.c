/* Communicators `local` and `tcp` with forked processes: every kind, element type and layout over
   meshes of 1 to 8 ranks, odd sizes, ranks that come in any order, against results that each rank
   computes for itself; then ranks that die, stop, leave, come late, call something else, or never
   come.

     test_comm [SEED ROUNDS]      more rounds than the suite runs
     mpirun .. test_comm mpi SEED MESH      linked with communicator `mpi`: one rank of that mesh */
#include "ir/support/numbers.h"
#include "runtime/comm/clocks.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/peers.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROWS = 40, MOST_RANKS = 8 };

typedef struct Case {
  rt_program p;
  rt_axis mesh[3];
  rt_collective row[MOST_ROWS];
  uint64_t seed;
  int world;
  const char *place; /* ranks are on machines of their own: HOST:PORT; NULL: on one machine */
} Case;

static uint64_t next(uint64_t *s) { /* splitmix64 */
  uint64_t z = (*s += 0x9e3779b97f4a7c15u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u, z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}
static int64_t below(uint64_t *s, int64_t n) { return (int64_t)(next(s) % (uint64_t)n); }

static _Noreturn void fail(const char *what, int64_t a, int64_t b) {
  fprintf(stderr, "failed: %s (%lld, %lld)\n", what, (long long)a, (long long)b);
  _exit(99);
}

/* ---- cases ---- */

static const int64_t meshes[][3] = {{1, 0, 0}, {2, 0, 0}, {3, 0, 0}, {2, 2, 0},
                                    {4, 1, 0}, {5, 0, 0}, {3, 2, 0}, {7, 0, 0},
                                    {2, 2, 2}, {4, 2, 0}, {8, 0, 0}};

static int64_t some_count(uint64_t *s) {
  static const int64_t sizes[] = {1, 2, 3, 7, 64, 100, 1000, 4097, 20000, 66001, 300007};
  return sizes[below(s, below(s, 3) ? 8 : 11)];
}

static int64_t divisor(uint64_t *s, int64_t n) {
  int64_t d = 1 + below(s, n < 60 ? n : 60);
  while (n % d) d--;
  return below(s, 2) ? n / d : d;
}

/* Replaces some pairs of rows: a receive, then the send of the value that neighbours receive. */
static void add_hops(Case *c, uint64_t *seed) {
  for (int i = 0; i + 1 < MOST_ROWS; i += 2) {
    if (below(seed, 4)) continue;
    const char *what = c->row[i + 1].what;
    c->row[i].kind = RT_RECEIVE, c->row[i].back = (int)below(seed, 2);
    c->row[i + 1] = c->row[i], c->row[i + 1].kind = RT_SEND, c->row[i + 1].what = what;
  }
}

/* Some groups of four: everybody sends to both neighbours, however much, and receives then. */
static void add_crossings(Case *c, uint64_t *seed) {
  for (int i = 0; i + 3 < MOST_ROWS; i += 4) {
    if (below(seed, 4)) continue;
    for (int k = 0; k < 4; k++) {
      const char *what = c->row[i + k].what;
      c->row[i + k] = c->row[i], c->row[i + k].what = what;
      c->row[i + k].kind = k < 2 ? RT_SEND : RT_RECEIVE, c->row[i + k].back = k & 1;
    }
  }
}

/* The row that sends what row `call` receives. */
static int sender(const Case *c, int call) {
  return c->row[call / 4 * 4].kind == RT_SEND ? call - 2 : call + 1;
}

static void make_case(Case *c, uint64_t seed, int mesh) {
  static char names[] = "abc", what[MOST_ROWS][20];
  *c = (Case){.seed = seed, .world = 1};
  c->p = (rt_program){.abi = RT_ABI_VERSION,
                      .hash = "1",
                      .compiler = "hand",
                      .target = "c",
                      .mesh = c->mesh,
                      .collectives = c->row,
                      .ncollectives = MOST_ROWS};
  for (int i = 0; i < 3 && meshes[mesh][i]; i++) c->world *= (int)meshes[mesh][i], c->p.naxes++;
  bool first_fastest = seed & 1;
  for (int i = 0, stride = 1; i < c->p.naxes; i++) {
    int k = first_fastest ? i : c->p.naxes - 1 - i;
    char *name = rt_format("%c", names[k]);
    c->mesh[k] = (rt_axis){name, meshes[mesh][k], stride}, stride *= (int)meshes[mesh][k];
  }
  for (int i = 0; i < MOST_ROWS; i++) {
    rt_collective *r = &c->row[i];
    snprintf(what[i], sizeof what[i], "value %d", i);
    *r = (rt_collective){.what = what[i], .source = "x.shard:1", .count = some_count(&seed)};
    r->kind = (rt_collective_kind)below(&seed, 6), r->axis = (int)below(&seed, c->p.naxes);
    r->reduction = (rt_reduction)below(&seed, 2), r->elem = (rt_elem)below(&seed, RT_U8 + 1);
    r->by = 1 + (int)below(&seed, c->mesh[r->axis].size > 1 ? c->mesh[r->axis].size - 1 : 1);
    r->send_row = divisor(&seed, r->count), r->receive_row = divisor(&seed, r->count);
  }
  add_hops(c, &seed);
  add_crossings(c, &seed);
}

/* ---- what must come out, element by element ---- */

/* Element e of what `rank` gives to a call: sums depend on the order of additions. */
static double given(const Case *c, int call, int64_t rank, int64_t e) {
  uint64_t s = c->seed * 31 + (uint64_t)(call * 1000003 + rank * 7919) + (uint64_t)e * 1299709;
  int64_t v = (int64_t)(next(&s) % 4001) - 2000;
  return (double)v / 63;
}

static double rounded(int elem, double v) {
  char room[8];
  rt_elem_put(elem, room, 0, v);
  return rt_elem_get(elem, room, 0);
}

static double value(const Case *c, int call, int64_t rank, int64_t e) {
  int elem = (int)c->row[call].elem;
  double v = given(c, call, rank, e);
  return elem == RT_BOOL                    ? v > 0
         : elem == RT_I32 || elem == RT_I64 ? (double)(int64_t)v
         : elem == RT_U8                    ? (double)((int64_t)v & 15)
                                            : rounded(elem, v);
}

static bool blocks_sent(int kind) { return kind == RT_REDUCE_SCATTER || kind == RT_ALL_TO_ALL; }
static bool blocks_received(int kind) { return kind == RT_ALL_GATHER || kind == RT_ALL_TO_ALL; }

/* Place of element k of block i in a buffer of n blocks cut in rows. */
static int64_t place(int n, int i, int64_t row, int64_t k) {
  return (k / row * n + i) * row + k % row;
}

static double reduced(const Case *c, int call, const RankGroup *g, int64_t e) {
  const rt_collective *r = &c->row[call];
  double sum = value(c, call, g->first, e);
  for (int i = 1; i < g->n; i++) {
    double x = value(c, call, g->first + i * g->stride, e);
    if (r->reduction == RT_MAX || r->elem == RT_BOOL) sum = x > sum ? x : sum;
    else sum = r->elem == RT_F64 || r->elem >= RT_I32 ? sum + x : (double)((float)sum + (float)x);
  }
  return rounded((int)r->elem, sum);
}

static double expected(const Case *c, int call, const RankGroup *g, int64_t at) {
  const rt_collective *r = &c->row[call];
  int64_t row, block, k = at;
  if (blocks_received((int)r->kind)) {
    row = r->receive_row, block = at / row % g->n, k = at / row / g->n * row + at % row;
    int64_t from = g->first + block * g->stride;
    return value(c, call, from, r->kind == RT_ALL_GATHER ? k : place(g->n, g->me, r->send_row, k));
  }
  if (r->kind == RT_ROTATE)
    return value(c, call, g->first + (g->me + g->n - r->by % g->n) % g->n * g->stride, k);
  if (r->kind == RT_BROADCAST) return value(c, call, g->first, k);
  if (r->kind == RT_SEND)
    return rt_hop_peer(r, g) < 0 ? value(c, call, g->first + g->me * g->stride, k) : 0;
  if (r->kind == RT_RECEIVE) {
    int from = rt_hop_peer(r, g);
    return from < 0 ? value(c, call, g->first + g->me * g->stride, k)
                    : value(c, sender(c, call), g->first + from * g->stride, k);
  }
  return reduced(c, call, g, r->kind == RT_ALL_REDUCE ? k : place(g->n, g->me, r->send_row, k));
}

static void one_call(const Case *c, Comm *comm, int call, uint64_t *own) {
  const rt_collective *r = &c->row[call];
  const RankGroup *g = &comm->group[r->axis];
  int kind = (int)r->kind, elem = (int)r->elem, bytes = rt_elem_bytes(elem);
  int64_t sent = r->count * (blocks_sent(kind) ? g->n : 1),
          received = r->count * (blocks_received(kind) ? g->n : 1);
  bool in_place = (kind == RT_ALL_REDUCE || kind == RT_BROADCAST) && below(own, 2);
  char *send = malloc((size_t)(sent * bytes)), *receive = malloc((size_t)(received * bytes + 8));
  for (int64_t i = 0; i < sent; i++)
    rt_elem_put(elem, send, i, value(c, call, comm->launch.rank, i));
  memset(receive, 0x5a, (size_t)(received * bytes + 8));
  if (in_place) memcpy(receive, send, (size_t)(sent * bytes));
  if (!below(own, 12)) nanosleep(&(struct timespec){0, below(own, 3000000)}, NULL);
  rt_comm_collect(comm, r, in_place ? receive : send, receive);
  for (int64_t i = 0; i < received; i += received < 5000 ? 1 : 1 + below(own, 40)) {
    double got = rt_elem_get(elem, receive, i), want = expected(c, call, g, i);
    if (memcmp(&got, &want, sizeof got) && !(got == 0 && want == 0)) {
      fprintf(
          stderr, "%s over %d of %d, %s, count %lld, rows %lld %lld, element %lld: %g, not %g\n",
          rt_collective_facts[kind].words, g->n, c->world, rt_elem_name(elem), (long long)r->count,
          (long long)r->send_row, (long long)r->receive_row, (long long)i, got, want);
      fail("result", call, comm->launch.rank);
    }
  }
  for (int i = 0; i < 8; i++)
    if (receive[received * bytes + i] != 0x5a) fail("written behind the end", call, i);
  free(send), free(receive);
}

/* ---- processes ---- */

static void put(const char *name, int64_t v) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)v);
  setenv(name, text, 1);
}

typedef int Body(const Case *c, Comm *comm);

static int some_calls(const Case *c, Comm *comm, int n);
static int two_early(const Case *c, Comm *comm) { return some_calls(c, comm, MOST_ROWS); }
static int zero_early(const Case *c, Comm *comm) { return some_calls(c, comm, MOST_ROWS); }

/* Meets the others, and dies before it has the table of ranks. */
static void die_early(const Case *c) {
  Comm comm = {.program = &c->p};
  Rendezvous meeting;
  Fault f = {0};
  if (!rt_launch_find(&comm.launch, &f)) rt_die(&f);
  if (c->place) snprintf(comm.launch.place, sizeof comm.launch.place, "%s", c->place);
  rt_rendezvous(&meeting, c->place ? &rt_rendezvous_tcp : &rt_rendezvous_unix, &comm, 0, &f);
  kill(getpid(), SIGKILL);
}

static pid_t start(const Case *c, int rank, int job, Body *body, const char *log) {
  fflush(NULL);
  pid_t child = fork();
  if (child) return child;
  Comm comm = {0};
  Fault f = {0};
  put("RANK", rank), put("WORLD_SIZE", c->world), put("LOCAL_RANK", rank);
  put("LOCAL_WORLD_SIZE", c->world), put("SHARDC_JOB", (int64_t)getppid() * 1000 + job);
  if (c->place) put("LOCAL_WORLD_SIZE", 1), put("LOCAL_RANK", 0), comm.meet = c->place;
  if (log) {
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(fd, 2);
  }
  if ((body == two_early && rank == 2) || (body == zero_early && !rank)) die_early(c);
  if (!rt_comm_open(&comm, &c->p, &f)) rt_die(&f);
  int status = body(c, &comm);
  if (!status) rt_comm_close(&comm);
  exit(status);
}

/* Starts all ranks; status[] of each: exit status, or 256 + signal. */
static void run(const Case *c, Body *body, const char *log, int *status) {
  static int job;
  pid_t child[MOST_RANKS];
  job++;
  fflush(NULL);
  for (int i = 0; i < c->world; i++) child[i] = start(c, i, job, body, log);
  for (int i = 0; i < c->world; i++) {
    int s;
    while (waitpid(child[i], &s, 0) < 0 && errno == EINTR) {}
    status[i] = WIFEXITED(s) ? WEXITSTATUS(s) : 256 + WTERMSIG(s);
  }
}

static int all_calls(const Case *c, Comm *comm) {
  uint64_t own = c->seed ^ (uint64_t)comm->launch.rank * 77;
  double sent = 0, counted = 0;
  for (int i = 0; i < MOST_ROWS; i++) {
    one_call(c, comm, i, &own);
    const RankGroup *g = &comm->group[c->row[i].axis];
    sent += rt_comm_elements(&c->row[i], g->n);
    counted += comm->count[i].elements;
  }
  if (sent != counted) fail("counted elements", (int64_t)counted, (int64_t)sent);
  if (rt_comm_max(comm, "a question", comm->launch.rank * 3) != (c->world - 1) * 3)
    fail("largest", 0, 0);
  int mine = comm->launch.rank, all[MOST_RANKS];
  rt_comm_gather(comm, "numbers", &mine, all, sizeof mine);
  for (int i = 0; i < c->world; i++)
    if (all[i] != i) fail("gather", i, all[i]);
  mine += 5;
  rt_comm_broadcast(comm, "a number", &mine, sizeof mine);
  if (mine != 5) fail("broadcast", mine, 5);
  return 0;
}

static void test_results(uint64_t seed, int rounds) {
  int status[MOST_RANKS], n = (int)(sizeof meshes / sizeof *meshes);
  for (int k = 0; k < rounds; k++)
    for (int mesh = 0; mesh < n; mesh++) {
      Case c;
      make_case(&c, seed + (uint64_t)(k * n + mesh), mesh);
      run(&c, all_calls, NULL, status);
      for (int i = 0; i < c.world; i++)
        if (status[i]) fail("a rank failed", mesh, status[i]);
    }
  printf("results: %d programs of %d calls\n", rounds * n, MOST_ROWS);
}

/* This process is a rank that mpirun has started; with an odd seed one thread communicates. */
static int over_mpi(uint64_t seed, int mesh) {
  Case c;
  Comm comm = {0};
  Fault f = {0};
  make_case(&c, seed, mesh);
  c.p.communicator = "mpi", c.p.flies = seed & 1;
  if (!rt_comm_open(&comm, &c.p, &f)) rt_die(&f);
  all_calls(&c, &comm);
  rt_comm_close(&comm);
  return 0;
}

/* ---- failures ---- */

static char log_path[64];

static void check_log(const char *what, const char *const *texts, bool far) {
  static char text[1 << 16];
  int fd = open(log_path, O_RDONLY);
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd), unlink(log_path);
  text[n > 0 ? n : 0] = 0;
  if (strstr(text, "(, pid")) fail("a rank without a name", 0, 0);
  for (; *texts; texts++)
    if ((!far || **texts != '>') && !strstr(text, *texts + (**texts == '>'))) {
      fprintf(stderr, "%s: `%s` is not in\n%s\n", what, *texts, text);
      _exit(99);
    }
}

static int talk(const Case *c, Comm *comm, int n) {
  static char big[200000];
  char *all = rt_alloc(sizeof big * (size_t)c->world);
  for (int i = 0; i < n; i++) {
    int64_t many[3] = {i, comm->launch.rank, -comm->launch.rank};
    memset(big, comm->launch.rank + i, sizeof big);
    rt_comm_gather(comm, "bytes", big, all, i % 2 ? 7 : sizeof big);
    for (int r = 0; r < c->world; r++)
      if (all[r * (i % 2 ? 7 : (int)sizeof big) + 6] != (char)(r + i)) fail("gathered", i, r);
    rt_comm_broadcast(comm, "bytes", big, sizeof big);
    if (big[sizeof big - 1] != (char)i) fail("broadcast", i, big[0]);
    rt_comm_max_of(comm, "numbers", many, 3);
    if (many[0] != i || many[1] != c->world - 1 || many[2]) fail("largest", many[1], many[2]);
  }
  free(all);
  return 0;
}

static int some_calls(const Case *c, Comm *comm, int n) {
  uint64_t own = 1;
  if (c->place) return talk(c, comm, n);
  for (int i = 0; i < n; i++) one_call(c, comm, i, &own);
  return 0;
}

static int dies(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 2) kill(getpid(), SIGKILL);
  return some_calls(c, comm, MOST_ROWS);
}
static int zero_dies(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 0) kill(getpid(), SIGKILL);
  return some_calls(c, comm, MOST_ROWS);
}
static int gives_up(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 1) exit(4);
  return some_calls(c, comm, MOST_ROWS);
}
static int leaves(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 1) exit(0);
  return some_calls(c, comm, MOST_ROWS);
}
static int differs(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 3) rt_comm_wait(comm, "another thing");
  else rt_comm_wait(comm, "one thing");
  return 0;
}
static int other_axis(const Case *c, Comm *comm) { /* nobody meets anybody: all wait */
  float x[4] = {0};
  rt_comm_collect(comm, &c->row[comm->launch.rank == 3 || comm->launch.rank == 0], x, x);
  return 0;
}
static int late(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  if (comm->launch.rank == 3)
    for (;;) pause();
  return some_calls(c, comm, MOST_ROWS);
}
static int stopped(const Case *c, Comm *comm) {
  some_calls(c, comm, 5);
  while (comm->launch.rank == 1) kill(getpid(), SIGSTOP);
  return some_calls(c, comm, MOST_ROWS);
}

typedef struct Expect {
  const char *name;
  Body *body;
  int rank, status, others; /* of the failing rank, -1: any; of the others */
  const char *texts[7];     /* the last ones that begin with > are of ranks on one machine: what is
                           told between machines may be a moment old */
} Expect;

static const Expect failures[] = {
    {"dies",
     dies,
     2,
     256 + SIGKILL,
     1,
     {"R0901", "rank 2 (", "died ", ">died after", ">value 4", ">x.shard:1"}},
    {"rank 0 dies", zero_dies, 0, 256 + SIGKILL, 1, {"R0901", "rank 0 (", "died ", ">died after"}},
    {"dies early", two_early, 2, 256 + SIGKILL, 1, {"R0901", "rank 2 (", "died ", ">died after"}},
    {"rank 0 dies early", zero_early, 0, 256 + SIGKILL, 1, {"R0901", "rank 0 (", "died "}},
    {"gives up", gives_up, 1, 4, 1, {"R0901", "rank 1 (", "ended with exit status 4"}},
    {"leaves", leaves, 1, 0, 1, {"R0901", "rank 1 (", "ended with exit status 0"}},
    {"differs", differs, -1, 0, 1, {"R0903", "another thing", "one thing"}},
    {"another axis", other_axis, -1, 0, 1, {"R0903", "over a", "over b"}},
    {"late", late, 3, 1, 1, {"R0902", "rank 3 (", "did not come to", ">value 4"}},
};

static void check_failure(const Expect *e, const char *place) {
  Case c;
  int status[MOST_RANKS];
  make_case(&c, 12, 3); /* 2 x 2 */
  if (place) c.place = place, c.p.communicator = "nccl";
  if (e->body == (place ? other_axis : zero_early)) return;
  if (e->body == other_axis)
    for (int i = 0; i < 2; i++)
      c.row[i] = (rt_collective){
          .what = "sum", .source = "", .axis = i, .count = 4, .send_row = 4, .receive_row = 4};
  double began = rt_now();
  run(&c, e->body, log_path, status);
  double took = rt_now() - began;
  check_log(e->name, e->texts, place != NULL);
  for (int i = 0; i < c.world; i++) {
    bool failing = i == e->rank;
    if (failing ? e->status >= 0 && status[i] != e->status : status[i] != e->others)
      fail(e->name, i, status[i]);
  }
  printf("%s%s: %.1f s\n", e->name, place ? ", apart" : "", took);
}

/* A process that is stopped: the others leave by themselves, so it is ended from outside. */
static void test_stopped(const char *place) {
  static const char *const texts[] = {"R0902", "rank 1 (", "has not answered", NULL};
  Case c;
  pid_t child[MOST_RANKS];
  make_case(&c, 12, 3);
  if (place) c.place = place, c.p.communicator = "nccl";
  double began = rt_now();
  for (int i = 0; i < c.world; i++) child[i] = start(&c, i, 900, stopped, log_path);
  for (int i = 0; i < c.world; i++)
    if (i != 1) {
      int s;
      waitpid(child[i], &s, 0);
      if (!WIFEXITED(s) || WEXITSTATUS(s) != 1) fail("stopped", i, s);
    }
  double took = rt_now() - began;
  kill(child[1], SIGKILL), waitpid(child[1], NULL, 0);
  check_log("stopped", texts, place != NULL);
  printf("stopped%s: %.1f s\n", place ? ", apart" : "", took);
}

/* It takes as long as ranks wait for a silent one, so it runs concurrently, in a process of its
   own. */
static pid_t begin_stopped(const char *place, int which) {
  fflush(NULL);
  pid_t child = fork();
  if (child) return child;
  snprintf(log_path, sizeof log_path, "/tmp/test_comm.%ld.%d", (long)getppid(), which);
  test_stopped(place);
  exit(0);
}

static void end_stopped(pid_t child) {
  int s;
  if (waitpid(child, &s, 0) < 0 || s) fail("stopped", s, 0);
}

static void test_start(void) {
  static const char *const missing[] = {"R0107", "2 of 4 ranks did not come within 4 s: rank 2, 3",
                                        NULL};
  static const char *const alone[] = {"R0107", "rank 0 did not come within 1 s", NULL};
  static const char *const other[] = {"R0106", "rank 1 (", "another executable than rank 0", NULL};
  Case c;
  make_case(&c, 12, 3);
  for (int which = 0; which < 3; which++) { /* both that come have time to, on a busy machine */
    setenv("SHARDC_MEET", which == 0 ? "4" : which == 1 ? "1" : "60", 1);
    Case d = c;
    pid_t child[2];
    int s, n = which == 1 ? 1 : 2;
    if (which == 2) c.world = d.world = 2, c.mesh[1].size = d.mesh[1].size = 1, d.p.hash = "2";
    d.p.mesh = d.mesh, c.p.mesh = c.mesh;
    for (int i = 0; i < n; i++)
      child[i] = start(i ? &d : &c, which == 1 ? 1 : i, 950 + which, all_calls, log_path);
    for (int i = 0; i < n; i++)
      if (waitpid(child[i], &s, 0) < 0 || !WIFEXITED(s) || WEXITSTATUS(s) != 3)
        fail("start", which, s);
    check_log("start", which == 0 ? missing : which == 1 ? alone : other, false);
  }
  unsetenv("SHARDC_MEET");
  printf("start: ranks that do not come, or differ, are named\n");
}

/* ---- ranks on machines of their own ---- */

static int long_talk(const Case *c, Comm *comm) { return talk(c, comm, 40); }

/* A port that nobody has: the system names one. */
static const char *free_port(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int s = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(s, (struct sockaddr *)&a, n) || getsockname(s, (struct sockaddr *)&a, &n))
    fail("no port", 0, 0);
  close(s);
  return rt_format("127.0.0.1:%d", ntohs(a.sin_port));
}

static void test_apart(const char *place) {
  int status[MOST_RANKS];
  for (int mesh = 1; mesh < (int)(sizeof meshes / sizeof *meshes); mesh += 3) {
    Case c;
    make_case(&c, 5, mesh);
    c.place = place, c.p.communicator = "nccl";
    run(&c, long_talk, NULL, status);
    for (int i = 0; i < c.world; i++)
      if (status[i]) fail("a rank failed", mesh, status[i]);
  }
  printf("apart: good\n");
}

/* Two clocks that meet: whatever their distance and the ways, the bounds hold it. */
static void test_clocks(uint64_t seed) {
  enum { MEETINGS = 16 };
  for (int round = 0; round < 1000; round++) {
    double ahead = (double)below(&seed, 2000001) - 1e6, now = 0, least = INFINITY;
    double first[MEETINGS][2], other[MEETINGS][2];
    for (int i = 0; i < MEETINGS; i++, now += 1) {
      double came = now + 1e-6 * (double)below(&seed, 1000);
      double came_there = now + 1e-6 * (double)below(&seed, 1000);
      double met = fmax(came, came_there), left = met + 1e-6 * (double)(1 + below(&seed, 1000));
      double left_there = met + 1e-6 * (double)(1 + below(&seed, 1000));
      first[i][0] = came, first[i][1] = left;
      other[i][0] = came_there + ahead, other[i][1] = left_there + ahead;
      least = fmin(least, (left - came_there) + (left_there - came));
    }
    ClockBound b = rt_clock_of_meetings(first, other, MEETINGS);
    bool holds = b.low <= ahead + 1e-9 && ahead <= b.high + 1e-9;
    if (!holds || b.high - b.low > least + 1e-9) fail("clocks", round, (int64_t)ahead);
    ClockBound a = {0, 1, 3}, next = {10, 2, 5}, away = {10, 13, 15};
    if (rt_clock_ahead(&a, &next, 5) != 2.5 || rt_clock_error(&a, &next) != 2.5)
      fail("one number that both bounds allow", round, 0);
    if (rt_clock_ahead(&a, &away, 5) != 8 || rt_clock_error(&a, &away) != 1)
      fail("clocks that drift", round, 0);
  }
  printf("clocks: good\n");
}

int main(int argc, char **argv) {
  if (argc > 3) return over_mpi(strtoull(argv[2], NULL, 10), atoi(argv[3]));
  uint64_t seed = argc > 2 ? strtoull(argv[1], NULL, 10) : 1;
  snprintf(log_path, sizeof log_path, "/tmp/test_comm.%ld", (long)getpid());
  unlink(log_path);
  if (argc > 2) {
    test_results(seed, atoi(argv[2]));
    return 0;
  }
  test_clocks(seed);
  pid_t stopped_here = begin_stopped(NULL, 0), stopped_apart = begin_stopped(free_port(), 1);
  test_results(seed, 2);
  test_start();
  char *file = rt_format("%s.meet", log_path);
  const char *places[] = {NULL, free_port(), file};
  for (int k = 1; k < 3; k++) test_apart(places[k]);
  setenv("SHARDC_LATE", "2", 1);
  for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
    for (int k = 0; k < 2; k++) check_failure(&failures[i], places[k]);
  unsetenv("SHARDC_LATE");
  end_stopped(stopped_here), end_stopped(stopped_apart);
  return 0;
}
