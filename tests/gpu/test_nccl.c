/* Collectives of the CUDA device over NCCL, with the stand-ins of both: four processes run every
   kind, in several types and cuts, launch by launch and from a graph, and compare with communicator
   local. A rank that is killed, that does not come on the host or on its GPU, or whose NCCL fails
   ends the others, which name it. */
#include "tests/common/by_hand.h"
#include "runtime/device/cuda/device_cuda.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum {
  RANKS = 4,
  RUNS = 4,
  COUNT = 24,
  ROOM = 40000,
  KINDS = 8,
  TABLE = 64,
  FAILING = 2,
  STALL = 3 * KINDS + 1 /* the second row over the second axis */
};
typedef enum Ill { WELL, DIES, SLEEPS, STALLS, FAILS } Ill; /* what is wrong with rank FAILING */

static const rt_axis square[] = {{"data", 2, 1}, {"tensor", 2, 2}}, line[] = {{"data", 4, 1}};
static rt_collective table[TABLE]; /* made before the ranks part */
static int number_of_rows;
static Device *stalls; /* this rank's GPU does not come to a reduce-scatter; NULL: it does */

static const rt_sends joins[] = {{1, 0, 1}, {0}};
static const rt_sends *const together[RANKS] = {joins, joins, joins, joins};

/* Every kind over every axis; the blocks of the second half are cut in rows; one is long; an
   all-to-all is sent in pieces. Two of three sends are grouped with the receive after them. */
static int make_table(const rt_axis *mesh, int naxes) {
  static const rt_elem elems[] = {RT_F32, RT_BF16, RT_I32};
  int n = 0;
  for (int axis = 0; axis < naxes; axis++)
    for (int e = 0; e < 3; e++)
      for (int kind = 0; kind < KINDS; kind++) {
        bool whole =
            kind == RT_ALL_REDUCE || kind == RT_ROTATE || kind == RT_BROADCAST || kind >= RT_SEND;
        int64_t count = whole && e == 0 ? ROOM / mesh[axis].size : COUNT;
        bool sends = kind == RT_REDUCE_SCATTER || kind == RT_ALL_TO_ALL,
             takes = kind == RT_ALL_GATHER || kind == RT_ALL_TO_ALL;
        table[n++] = (rt_collective){.what = "a test",
                                     .source = "",
                                     .kind = (rt_collective_kind)kind,
                                     .axis = axis,
                                     .reduction = e == 2 ? RT_MAX : RT_SUM,
                                     .elem = elems[e],
                                     .count = count,
                                     .send_row = e == 1 && sends ? count / 4 : count,
                                     .receive_row = e == 1 && takes ? count / 8 : count,
                                     .back = e == 1,
                                     .by = 1 + e % ((int)mesh[axis].size - 1),
                                     .sends = kind == RT_SEND && e < 2 ? together : NULL,
                                     .piece = e == 2 || kind != RT_ALL_TO_ALL ? 0 : 7};
      }
  return n;
}

/* WEIGHTS is what is sent, the same for every row of the table; STATES what is received. */
static void sleep_for_ever(void *nothing) {
  (void)nothing;
  for (;;) pause();
}

static void stall(void) {
  CUresult (*launch)(CUstream, void (*)(void *), void *);
  *(void **)&launch = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuLaunchHostFunc");
  launch(((Cuda *)stalls->inside)->stream, sleep_for_ever, NULL);
}

static void step(rt_ctx *rt) {
  for (int i = 0; i < number_of_rows; i++) {
    if (stalls && i == STALL) stall();
    rt_collect(rt, &table[i], rt->arena[RT_WEIGHTS], rt->arena[RT_STATES] + (int64_t)i * ROOM * 4,
               rt->arena[RT_WORK]);
  }
}

static void check(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "%s\n", what);
  _exit(1);
}

static void compare(const Device *d, Comm *c, const char *sent, int run) {
  const char *have = rt_tensor_read(d, &d->program->tensors[1]);
  char *want = rt_alloc(ROOM * 4);
  for (int i = 0; i < number_of_rows; i++) {
    const rt_collective *x = &table[i];
    bool takes = x->kind == RT_ALL_GATHER || x->kind == RT_ALL_TO_ALL;
    size_t n = (size_t)(x->count * rt_elem_bytes((int)x->elem) * (takes ? c->group[x->axis].n : 1));
    rt_comm_collect(c, x, sent, want);
    if (!memcmp(want, have + (int64_t)i * ROOM * 4, n)) continue;
    fprintf(stderr, "run %d, %s of %s over axis %d differs\n", run,
            rt_collective_facts[x->kind].words, rt_elem_name((int)x->elem), x->axis);
    _exit(1);
  }
  free(want);
}

/* Small whole numbers: sums are exact in every type. */
static void fill(char *data, int rank, int run) {
  for (int i = 0; i < ROOM; i++) {
    int v = (i * 7 + rank * 13 + run * 5) % 9;
    uint16_t two[2] = {(uint16_t)(v ? 0x3f80 + 0x10 * v : 0), 0x4000};
    memcpy(data + 4 * (size_t)i, two, 4);
  }
}

static void be_ill(Ill ill, Device *d) {
  if (ill == DIES) kill(getpid(), SIGKILL);
  if (ill == SLEEPS) sleep_for_ever(NULL);
  if (ill == STALLS) stalls = d;
}

/* The number of CTAs that a user has set stays. */
static bool limited(bool given) {
  const char *limit = getenv("NCCL_MAX_CTAS");
  return limit && !strcmp(limit, given ? "8" : "16");
}

static void run_rank(int rank, const rt_axis *mesh, int naxes, Ill ill) {
  static const rt_setting limit = {"made.channels", "16"};
  static const rt_entry entry = {.name = "step", .run = step};
  const rt_tensor tensors[] = {
      FLOATS("w", RT_PARAM, RT_WEIGHTS, ROOM * 4),
      FLOATS("s", RT_OUTPUT, RT_STATES, (int64_t)number_of_rows * ROOM * 4)};
  const rt_program p = {PROGRAM_SM80,
                        .arena_bytes = {ROOM * 4, tensors[1].bytes, 64 + ROOM * 4, 2 * ROOM * 4},
                        .send_slot = ROOM * 4,
                        .send_slots = 1,
                        .host_window = tensors[1].bytes,
                        .tensors = tensors,
                        .ntensors = 2,
                        .entries = &entry,
                        .nentries = 1,
                        .communicator = "nccl",
                        .mesh = mesh,
                        .naxes = naxes,
                        .settings = &limit,
                        .nsettings = 1,
                        .collectives = table,
                        .ncollectives = number_of_rows};
  Comm c = {0};
  Device d;
  Fault f = {0};
  DeviceOptions o = {.number = -1, .no_graph = ill == STALLS};
  char number[16];
  snprintf(number, sizeof number, "%d", rank);
  if (ill == FAILS && rank == FAILING) setenv("SHARDC_EMULATE_NCCL_ERROR", "20", 1);
  setenv("RANK", number, 1), setenv("LOCAL_RANK", number, 1);
  if (naxes > 1) setenv("NCCL_MAX_CTAS", "8", 1);
  if (!rt_comm_open(&c, &p, &f) || !rt_device_start(&d, &p, &c, &o, &f) || !rt_device_join(&d, &f))
    rt_die(&f);
  check(limited(naxes > 1), "the limit of CTAs");
  char *sent = rt_alloc(ROOM * 4);
  for (int run = 0; run < RUNS; run++) {
    fill(rt_tensor_write(&d, &tensors[0]), rank, run), fill(sent, rank, run);
    if (rank == FAILING && run == 3) be_ill(ill, &d);
    check(rt_device_run(&d, &entry, &f), f.what);
    if (!ill) compare(&d, &c, sent, run);
    else rt_tensor_read(&d, &tensors[1]);
  }
  rt_device_stop(&d);
  rt_comm_close(&c);
  exit(0);
}

/* Exit statuses of all ranks, 256 for a signal; what they said in `words`. */
static void start(const rt_axis *mesh, int naxes, Ill ill, int status[RANKS], char *words) {
  pid_t pid[RANKS];
  char job[32], file[] = "/tmp/shardc-nccl.XXXXXX";
  int say = mkstemp(file);
  unlink(file);
  snprintf(job, sizeof job, "nccl %ld %d", (long)getpid(), naxes + 2 * (int)ill);
  setenv("SHARDC_JOB", job, 1);
  number_of_rows = make_table(mesh, naxes);
  for (int i = 0; i < RANKS; i++)
    if (!(pid[i] = fork())) {
      dup2(say, 2);
      run_rank(i, mesh, naxes, ill);
    }
  for (int i = 0, s; i < RANKS; i++)
    status[i] = waitpid(pid[i], &s, 0) == pid[i] && WIFEXITED(s) ? WEXITSTATUS(s) : 256;
  ssize_t n = pread(say, words, 8191, 0);
  words[n > 0 ? n : 0] = 0;
  close(say);
}

static void all_run(const rt_axis *mesh, int naxes) {
  int status[RANKS];
  char words[8192];
  start(mesh, naxes, WELL, status, words);
  if (*words) print_message("%s", words);
  for (int i = 0; i < RANKS; i++) assert_int_equal(status[i], 0);
}

static void on_a_line(void **state) {
  (void)state;
  all_run(line, 1);
}

static void on_a_square(void **state) {
  (void)state;
  all_run(square, 2);
}

static void late(void **state) {
  (void)state;
  setenv("SHARDC_EMULATE_LATE", "1", 1);
  all_run(square, 2);
  unsetenv("SHARDC_EMULATE_LATE");
}

static void end_of(Ill ill, int failing, const char *text, const char *more) {
  int status[RANKS];
  char words[8192];
  double from = rt_now();
  start(square, 2, ill, status, words);
  print_message("%.2f s: %.*s\n", rt_now() - from, (int)strcspn(words, "\n"), words);
  assert_true(rt_now() - from < 30);
  for (int i = 0; i < RANKS; i++) assert_int_equal(status[i], i == FAILING ? failing : 1);
  if (!strstr(words, text) || !strstr(words, more)) print_message("%s", words);
  assert_non_null(strstr(words, text));
  assert_non_null(strstr(words, more));
}

static void a_rank_dies(void **state) {
  (void)state;
  end_of(DIES, 256, "error[R0901]: rank 2 (", "died");
}

static void a_rank_does_not_come(void **state) {
  (void)state;
  setenv("SHARDC_LATE", "2", 1);
  end_of(SLEEPS, 1, "error[R0902]: rank 2 (", "did not come to all-reduce #");
}

static void a_gpu_does_not_come(void **state) {
  (void)state;
  setenv("SHARDC_LATE", "2", 1);
  end_of(STALLS, 1, "error[R0902]: rank 2 (",
         "did not come to reduce-scatter #26 of a test over tensor; it is still at work in "
         "all-reduce #25 of a test over tensor");
}

static void nccl_fails(void **state) {
  (void)state;
  end_of(FAILS, 1, "error[R1010]: ", "remote process exited or there was a network error (6)");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(on_a_line),
                                     cmocka_unit_test(on_a_square),
                                     cmocka_unit_test(late),
                                     cmocka_unit_test(a_rank_dies),
                                     cmocka_unit_test(nccl_fails),
                                     cmocka_unit_test(a_rank_does_not_come),
                                     cmocka_unit_test(a_gpu_does_not_come)};
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1), setenv("SHARDC_LIBNCCL", LIBNCCL, 1);
  setenv("SHARDC_EMULATE_DEVICES", "4", 1);
  setenv("WORLD_SIZE", "4", 1), setenv("LOCAL_WORLD_SIZE", "4", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
