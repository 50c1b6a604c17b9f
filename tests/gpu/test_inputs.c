/* Inputs that the CUDA device sends ahead (runtime/device/cuda/cuda_background.c), with the
   stand-in of the driver: a program written by hand reads its inputs, twice, while those of
   the next run are on their way, in orders that events allow, launch by launch and from a
   graph. A run must read the inputs written for it, and these are written while the previous
   run may not have begun. Then one wait or one record of an event is left out, each in turn:
   some order shows it. Each case is a process of its own, as the stand-in counts calls by
   process. */
#include "tests/common/by_hand.h"
#include "runtime/device/cuda/device_cuda.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { COUNT = 40, BYTES = COUNT * 4, RUNS = 7, LINE = 192 };

static const rt_tensor tensors[] = {
    {.name = "a", .kind = RT_INPUT, .elem = RT_F32, .arena = RT_IO, .bytes = BYTES},
    {.name = "b",
     .kind = RT_INPUT,
     .elem = RT_F32,
     .arena = RT_IO,
     .offset = LINE,
     .bytes = BYTES,
     .view = LINE,
     .ahead = LINE},
    {.name = "c", /* comes with its own run */
     .kind = RT_INPUT,
     .elem = RT_F32,
     .arena = RT_IO,
     .offset = 2 * LINE,
     .bytes = BYTES,
     .view = 2 * LINE,
     .ahead = -1},
    {.name = "read",
     .kind = RT_OUTPUT,
     .elem = RT_F32,
     .arena = RT_STATES,
     .bytes = 4 * RUNS * BYTES,
     .view = -1,
     .ahead = -1}};

/* Reads its inputs, and the first of them once more at the end. */

static void step(rt_ctx *rt) {
  char *io = rt->arena[RT_IO], *read = rt->arena[RT_STATES], *work = rt->arena[RT_WORK];
  for (int i = 0; i < 3; i++) rt_copy(rt, work + i * LINE, io + i * LINE, BYTES);
  rt_copy(rt, work + 3 * LINE, io, BYTES);
  for (int i = 0; i < 4; i++) rt_copy(rt, read + i * BYTES, work + i * LINE, BYTES);
}

static const rt_entry entry = {.name = "step", .run = step};
static rt_program program = {
    PROGRAM_SM80,
    .arena_bytes = {64, 4 * RUNS *BYTES, 6 * LINE, 4 * LINE},
    .ahead_at = 4 * LINE,
    .host_view = 3 * LINE,
    .host_window = 4 * RUNS * BYTES,
    .host_ahead = 2 * LINE,
    .background = {[RT_BACKGROUND_read] = {true, 1 << RT_BACKGROUND_send, 0},
                   [RT_BACKGROUND_send] = {true, 1 << RT_BACKGROUND_take, 0},
                   [RT_BACKGROUND_take] = {true, 1 << RT_BACKGROUND_send, 0}},
    .tensors = tensors,
    .ntensors = 4,
    .entries = &entry,
    .nentries = 1};

static float number(int run, int tensor, int i) { return (float)(1000 * run + 100 * tensor + i); }

static void fill(float *to, int run, int tensor) {
  for (int i = 0; i < COUNT; i++) to[i] = number(run, tensor, i);
}

static void send(const Device *d, int run) {
  d->kind->background(d, RT_BACKGROUND_read);
  for (int i = 0; i < 2; i++) fill((float *)d->kind->ahead_at(d, &tensors[i]), run, i);
  d->kind->background(d, RT_BACKGROUND_send);
}

static void check(const float *have, int run) {
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < COUNT; i++) {
      float want = number(run, k % 3, i), is = have[k * COUNT + i];
      if (!(is < want) && !(is > want)) continue;
      fprintf(stderr, "run %d: %g, not %g\n", run, (double)is, (double)want);
      _exit(1);
    }
}

/* As a training does it, whose thread sends sooner or later: before an even run, after an odd one.
   The inputs of the third are written when it begins, as after a resume or an evaluation, in
   addition to some that were sent for nothing. */
static void run_all(bool no_graph) {
  Device d;
  Fault f = {0};
  DeviceOptions o = {.no_graph = no_graph};
  if (!rt_device_start(&d, &program, NULL, &o, &f)) rt_die(&f);
  if (d.kind->ahead_at(&d, &tensors[2])) _exit(1);
  send(&d, 0);
  for (int run = 0; run < RUNS; run++) {
    if (run == 2)
      for (int i = 0; i < 2; i++) fill(rt_tensor_write(&d, &tensors[i]), run, i);
    else rt_ahead_take(&d);
    fill(rt_tensor_write(&d, &tensors[2]), run, 2);
    if (run % 2 == 0 && run + 1 < RUNS) send(&d, run + 1);
    if (!rt_device_run(&d, &entry, &f)) rt_die(&f);
    check(rt_tensor_read(&d, &tensors[3]), run);
    if (run % 2) send(&d, run == 1 ? 9 : run + 1);
    const float *b = rt_tensor_read(&d, &tensors[1]);
    if (b[1] < number(run, 1, 1) || b[1] > number(run, 1, 1)) _exit(1);
  }
  rt_device_stop(&d);
  _exit(0);
}

static rt_background_op without = RT_BACKGROUNDS; /* which token is left out */

static bool runs_well(const char *order, bool no_graph) {
  int status;
  setenv("SHARDC_EMULATE_ORDER", order, 1);
  pid_t child = fork();
  if (!child) {
    if (without < RT_BACKGROUNDS) program.background[without].after = 0;
    if ((getenv("SHARDC_EMULATE_DROP") || without < RT_BACKGROUNDS) &&
        !freopen("/dev/null", "w", stderr))
      _exit(2);
    run_all(no_graph);
  }
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

static void all_orders(void **state) {
  static const char *const orders[] = {"0", "1", "2", "3", "4"};
  (void)state;
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
    for (int no_graph = 0; no_graph < 2; no_graph++) assert_true(runs_well(orders[i], no_graph));
}

static void leave_out(const char *what, const int *calls, int n) {
  char drop[32];
  for (int i = 0; i < n; i++) {
    bool well = true;
    snprintf(drop, sizeof drop, "%s=%d", what, calls[i]);
    setenv("SHARDC_EMULATE_DROP", drop, 1);
    for (int order = 0; order < 6 && well; order++)
      well = runs_well((const char *[]){"0", "1", "2", "3", "4", "5"}[order], order % 2 == 0);
    unsetenv("SHARDC_EMULATE_DROP");
    if (well) fail_msg("nobody notices that %s does nothing", drop);
  }
}

/* In turn: copy 0, run 0, copy 1, run 1, copy 9, copy 3, run 3, copy 4, run 4, copy 5, run 5, copy
   6, run 6. A copy sent after a run writes to a buffer that has been read; the inputs of an even
   run have arrived when the host writes the next ones, except for the last. */
static void no_wait(void **state) {
  (void)state;
  leave_out("wait", (const int[]){3, 4, 7, 10, 11, 13}, 6);
}

/* The same turn. A missing record also lets the host overwrite inputs that have not been sent. */
static void no_record(void **state) {
  (void)state;
  leave_out("record", (const int[]){1, 2, 3, 6, 8, 9, 10, 12}, 8);
}

static void no_token(void **state) {
  (void)state;
  for (without = RT_BACKGROUND_read; without <= RT_BACKGROUND_take; without++) {
    bool well = true;
    for (int order = 0; order < 6 && well; order++)
      well = runs_well((const char *[]){"0", "1", "2", "3", "4", "5"}[order], order % 2 == 0);
    if (well) fail_msg("nobody notices that operation %d has no token", (int)without);
  }
  without = RT_BACKGROUNDS;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_orders), cmocka_unit_test(no_wait),
                                     cmocka_unit_test(no_record), cmocka_unit_test(no_token)};
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1);
  setenv("SHARDC_EMULATE_DEVICES", "1", 1), setenv("SHARDC_EMULATE_LATE", "1", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
