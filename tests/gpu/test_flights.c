/* Messages in flight of the CUDA device (runtime/device/cuda/cuda_flight.c), with the stand-ins of
   the driver and of NCCL: two processes run a program written by hand, in which each event matters,
   in orders that events allow, launch by launch and from a graph. Then one wait or one record of an
   event is left out, each in turn: some order shows it. A second entry has sends and receives
   between neighbours, in which the two also send to each other: together with their receives that
   comes to an end, and alone it would not. A rank that is killed, or whose GPU stops, in the middle
   of a flight ends the other one, which names it. */
#include "tests/common/by_hand.h"
#include "runtime/device/cuda/device_cuda.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 2, RUNS = 3, ROUNDS = 4, COUNT = 16, BYTES = COUNT * 4, GATHERED = RANKS * BYTES };
enum { GATHER, REDUCE, BLOCKING, UP_ALONE, UP, DOWN, FROM_BELOW, FROM_ABOVE, ROWS };
enum { PER_RUN = 2 * ROUNDS + 2 * ROUNDS + 2 }; /* waits of streams in a run, and as many records */
enum { HOPS = 3, PER_HOPS = 4 * HOPS };         /* the same of the entry with neighbours */

typedef enum Ill { WELL, DIES, STALLS } Ill; /* what becomes of rank 1 in its last run */

static Ill ill;
static Device *device;
static int run_now, started;
static bool neighbours;            /* they run that entry */
static const char *dropped[RANKS]; /* by rank; NULL: nothing */

#define HOP(way, ...)                                                                              \
  {                                                                                                \
    .what = "hop", .source = "", .kind = way, .elem = RT_F32, .count = COUNT, .send_row = COUNT,   \
    .receive_row = COUNT, __VA_ARGS__                                                              \
  }

static const rt_axis mesh[] = {{"data", RANKS, 1}};

static const rt_sends joins[] = {{2 * HOPS, 0, 1}, {0}};
static const rt_sends *const together[] = {joins, joins};

/* A gather is two messages of half of it; two are under way at once. */
static const rt_collective table[ROWS] = {[GATHER] = {.what = "parts",
                                                      .source = "",
                                                      .kind = RT_ALL_GATHER,
                                                      .elem = RT_F32,
                                                      .count = COUNT / 2,
                                                      .send_row = COUNT / 2,
                                                      .receive_row = COUNT / 2,
                                                      .times = 2,
                                                      .flights = 2},
                                          [REDUCE] = {.what = "sums",
                                                      .source = "",
                                                      .kind = RT_ALL_REDUCE,
                                                      .elem = RT_F32,
                                                      .count = COUNT,
                                                      .send_row = COUNT,
                                                      .receive_row = COUNT,
                                                      .times = 1,
                                                      .flights = 1},
                                          [BLOCKING] = {.what = "all",
                                                        .source = "",
                                                        .kind = RT_ALL_REDUCE,
                                                        .elem = RT_F32,
                                                        .count = COUNT,
                                                        .send_row = COUNT,
                                                        .receive_row = COUNT},
                                          [UP_ALONE] = HOP(RT_SEND, .back = 0),
                                          [UP] = HOP(RT_SEND, .sends = together),
                                          [DOWN] = HOP(RT_SEND, .back = 1, .sends = together),
                                          [FROM_BELOW] = HOP(RT_RECEIVE, .back = 0),
                                          [FROM_ABOVE] = HOP(RT_RECEIVE, .back = 1)};

/* ---- the program ---- */

/* On the stream of the kernels. */
static void fall_ill(void *nothing) {
  (void)nothing;
  if (run_now < RUNS - 1) return;
  if (ill == DIES) kill(getpid(), SIGKILL);
  for (;;) pause();
}

static void give_ill_turn(void) {
  CUresult (*launch)(CUstream, void (*)(void *), void *);
  *(void **)&launch = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuLaunchHostFunc");
  launch(((Cuda *)device->inside)->stream, fall_ill, NULL);
}

typedef struct Buffers {
  char *sent, *results, *parts, *ring, *part, *sum, *total;
} Buffers;

static Buffers buffers_of(const rt_ctx *rt) {
  char *work = rt->arena[RT_WORK];
  return (Buffers){rt->arena[RT_WEIGHTS], rt->arena[RT_STATES], work,
                   work + 2 * BYTES,      work + 10 * BYTES,    work + 11 * BYTES,
                   work + 12 * BYTES};
}

/* The operand of a gather in iteration n is computed right before it; the result is read one
   iteration later. */
static void start_gather(rt_ctx *rt, const Buffers *b, int n) {
  char *part = b->parts + n % 2 * BYTES, *ring = b->ring + n % 2 * GATHERED;
  rt_copy(rt, part, b->sent + n * BYTES, BYTES);
  for (int k = 0; k < 2; k++)
    rt_start(rt, &table[GATHER], part + k * BYTES / 2, ring + k * GATHERED / 2, NULL);
}

static void finish_gather(rt_ctx *rt, const Buffers *b, int n) {
  rt_wait(rt, &table[GATHER], 2);
  rt_copy(rt, b->results + n * GATHERED, b->ring + n % 2 * GATHERED, GATHERED);
}

static void add_up(rt_ctx *rt, const Buffers *b, int n) {
  rt_copy(rt, b->part, b->sent + (n + 1) * BYTES, BYTES);
  rt_start(rt, &table[REDUCE], b->part, b->sum, NULL);
  if (device->comm->launch.rank == 1 && ill && n == 2) give_ill_turn();
  rt_wait(rt, &table[REDUCE], 1);
  rt_copy(rt, b->results + ROUNDS * GATHERED + n * BYTES, b->sum, BYTES);
}

/* One stream has all messages, so a wait for a later one includes the earlier ones: gathers and
   sums are apart, and each wait is the only one of its kind. */
static void step(rt_ctx *rt) {
  Buffers b = buffers_of(rt);
  start_gather(rt, &b, 0);
  for (int n = 0; n < ROUNDS; n++) {
    if (n + 1 < ROUNDS) start_gather(rt, &b, n + 1);
    finish_gather(rt, &b, n);
  }
  for (int n = 0; n < ROUNDS; n++) add_up(rt, &b, n);
  rt_copy(rt, b.part, b.sent, BYTES);
  rt_collect(rt, &table[BLOCKING], b.part, b.total, NULL);
  rt_copy(rt, b.results + ROUNDS * (GATHERED + BYTES), b.total, BYTES);
}

/* First one way, then both ways: a send waits for its receive, and both send first. */
static void hop(rt_ctx *rt) {
  Buffers b = buffers_of(rt);
  bool up = device->comm->launch.rank == 0;
  rt_copy(rt, b.sum, b.sent, BYTES), rt_copy(rt, b.results, b.sum, BYTES);
  for (int n = 0; n < 2 * HOPS; n++) {
    int send = !up ? DOWN : n < HOPS ? UP_ALONE : UP, receive = up ? FROM_ABOVE : FROM_BELOW;
    rt_copy(rt, b.part, b.sent + n % ROUNDS * BYTES, BYTES);
    if (up || n >= HOPS) rt_collect(rt, &table[send], b.part, b.part, NULL);
    if (!up || n >= HOPS) rt_collect(rt, &table[receive], NULL, b.sum, NULL);
    rt_copy(rt, b.results + (n + 1) * BYTES, b.sum, BYTES);
  }
}

/* ---- a rank ---- */

static float number(int rank, int run, int i) { return (float)(i + 100 * rank + 1000 * run); }

static void check(float have, float want) {
  if (!(have < want) && !(have > want)) return;
  fprintf(stderr, "run %d: %g, not %g\n", run_now, (double)have, (double)want);
  _exit(1);
}

static float sum_of(int i) {
  float sum = 0;
  for (int r = 0; r < RANKS; r++) sum += number(r, run_now, i);
  return sum;
}

static void compare(const float *have) {
  for (int n = 0; n < ROUNDS; n++)
    for (int i = 0; i < RANKS * COUNT; i++) { /* by message, by rank, within its part */
      int half = i / COUNT, rank = i % COUNT / (COUNT / 2), at = i % (COUNT / 2);
      check(have[n * RANKS * COUNT + i],
            number(rank, run_now, n * COUNT + half * (COUNT / 2) + at));
    }
  for (int i = 0; i < ROUNDS * COUNT; i++)
    check(have[ROUNDS * RANKS * COUNT + i], sum_of(COUNT + i));
  for (int i = 0; i < COUNT; i++) check(have[ROUNDS * (RANKS + 1) * COUNT + i], sum_of(i));
}

static void compare_hops(const float *have, int rank) {
  for (int n = 0; n <= 2 * HOPS; n++)
    for (int i = 0; i < COUNT; i++) {
      bool own = n == 0 || (rank == 0 && n <= HOPS);
      int at = own ? 0 : (n - 1) % ROUNDS;
      check(have[n * COUNT + i], number(own ? rank : !rank, run_now, at * COUNT + i));
    }
}

static void run_rank(int rank, const char *drop, bool no_graph) {
  static const rt_entry entries[] = {{.name = "step", .run = step}, {.name = "hop", .run = hop}};
  const rt_entry *entry = &entries[neighbours];
  const rt_tensor tensors[] = {
      FLOATS("w", RT_PARAM, RT_WEIGHTS, (ROUNDS + 1) * BYTES),
      FLOATS("s", RT_OUTPUT, RT_STATES, ROUNDS * (GATHERED + BYTES) + BYTES)};
  const rt_program p = {PROGRAM_SM80,
                        .arena_bytes = {tensors[0].bytes, tensors[1].bytes, 64 + BYTES, 16 * BYTES},
                        .send_slot = BYTES,
                        .send_slots = 1,
                        .host_window = tensors[1].bytes,
                        .tensors = tensors,
                        .ntensors = 2,
                        .entries = entries,
                        .nentries = 2,
                        .communicator = "nccl",
                        .mesh = mesh,
                        .naxes = 1,
                        .collectives = table,
                        .ncollectives = ROWS,
                        .flies = true};
  Comm c = {0};
  Device d;
  Fault f = {0};
  DeviceOptions o = {.number = -1, .no_graph = no_graph};
  char text[16];
  snprintf(text, sizeof text, "%d", rank);
  setenv("RANK", text, 1), setenv("LOCAL_RANK", text, 1);
  device = &d;
  if (drop) setenv("SHARDC_EMULATE_DROP", drop, 1);
  if (!rt_comm_open(&c, &p, &f) || !rt_device_start(&d, &p, &c, &o, &f) || !rt_device_join(&d, &f))
    rt_die(&f);
  for (run_now = 0; run_now < RUNS; run_now++) {
    float *w = rt_tensor_write(&d, &tensors[0]);
    for (int i = 0; i < (ROUNDS + 1) * COUNT; i++) w[i] = number(rank, run_now, i);
    if (!rt_device_run(&d, entry, &f)) rt_die(&f);
    if (neighbours) compare_hops(rt_tensor_read(&d, &tensors[1]), rank);
    else compare(rt_tensor_read(&d, &tensors[1]));
  }
  rt_device_stop(&d);
  rt_comm_close(&c);
  exit(0);
}

/* Exit statuses, 256 for a signal; what they said in `words`. */
static void start(bool no_graph, int status[RANKS], char words[4096]) {
  pid_t pid[RANKS];
  char job[40], file[] = "/tmp/shardc-flights.XXXXXX";
  int say = mkstemp(file);
  unlink(file);
  snprintf(job, sizeof job, "flights %ld %d", (long)getpid(), started++);
  setenv("SHARDC_JOB", job, 1);
  for (int i = 0; i < RANKS; i++)
    if (!(pid[i] = fork())) {
      dup2(say, 2);
      run_rank(i, dropped[i], no_graph);
    }
  for (int i = 0, s; i < RANKS; i++)
    status[i] = waitpid(pid[i], &s, 0) == pid[i] && WIFEXITED(s) ? WEXITSTATUS(s) : 256;
  ssize_t n = pread(say, words, 4095, 0);
  words[n > 0 ? n : 0] = 0;
  close(say);
}

static bool runs_well(const char *order, bool no_graph) {
  int status[RANKS];
  char words[4096];
  setenv("SHARDC_EMULATE_ORDER", order, 1);
  start(no_graph, status, words);
  bool well = !status[0] && !status[1];
  if (*words && !dropped[0] && !dropped[1]) print_message("%s", words);
  return well;
}

/* ---- tests ---- */

static void all_orders(void **state) {
  static const char *const orders[] = {"0", "1", "2", "3", "4"};
  (void)state;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
    for (int no_graph = 0; no_graph < 2; no_graph++) assert_true(runs_well(orders[i], no_graph));
}

static void leave_out_of(const char *what, int rank, int per_run) {
  char drop[32];
  for (int n = per_run + 1; n <= 2 * per_run; n++) { /* of the second run: buffers are not new */
    snprintf(drop, sizeof drop, "%s=%d", what, n);
    dropped[rank] = drop;
    if (!neighbours) dropped[!rank] = drop;
    bool late = runs_well("0", true), early = late && runs_well("1", true);
    dropped[0] = dropped[1] = NULL;
    if (late && early) fail_msg("nobody notices that %s of rank %d does nothing", drop, rank);
  }
}

static void leave_out(const char *what) {
  leave_out_of(what, 0, PER_RUN);
  neighbours = true;
  for (int rank = 0; rank < RANKS; rank++) leave_out_of(what, rank, PER_HOPS);
  neighbours = false;
}

static void no_wait(void **state) {
  (void)state;
  leave_out("wait");
}

static void no_record(void **state) {
  (void)state;
  leave_out("record");
}

static void neighbours_in_all_orders(void **state) {
  neighbours = true;
  all_orders(state);
  neighbours = false;
}

static void lost(Ill how, bool no_graph, int its_status, const char *says) {
  int status[RANKS];
  char words[4096];
  double from = rt_now();
  ill = how;
  setenv("SHARDC_LATE", "1", 1);
  start(no_graph, status, words);
  ill = WELL;
  print_message("%.2f s: %.*s\n", rt_now() - from, (int)strcspn(words, "\n"), words);
  assert_int_equal(status[0], 1);
  assert_int_equal(status[1], its_status);
  assert_non_null(strstr(words, "rank 1 ("));
  assert_non_null(strstr(words, says));
}

static void a_rank_dies(void **state) {
  (void)state;
  for (int no_graph = 0; no_graph < 2; no_graph++) lost(DIES, no_graph, 256, "died");
}

static void a_gpu_stalls(void **state) {
  (void)state;
  for (int no_graph = 0; no_graph < 2; no_graph++)
    lost(STALLS, no_graph, 1, "did not come to all-");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_orders),  cmocka_unit_test(neighbours_in_all_orders),
      cmocka_unit_test(no_wait),     cmocka_unit_test(no_record),
      cmocka_unit_test(a_rank_dies), cmocka_unit_test(a_gpu_stalls)};
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1), setenv("SHARDC_LIBNCCL", LIBNCCL, 1);
  setenv("SHARDC_EMULATE_DEVICES", "2", 1), setenv("SHARDC_EMULATE_LATE", "1", 1);
  setenv("WORLD_SIZE", "2", 1), setenv("LOCAL_WORLD_SIZE", "2", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
