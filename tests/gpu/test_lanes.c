/* Streams between a GPU and its host (runtime/device/cuda/cuda_copy_streams.c), with the stand-in
   of the driver: a program written by hand copies numbers to the host, adds them in a host kernel,
   uploads sums, and uses the same bytes on either side again in each round; launch by launch and
   from a graph, in orders that events allow. Then one wait or one record of an event is left out,
   each in turn: some order shows it. Then a program whose next step begins while parameters arrive:
   parameters computed on the host are uploaded directly to their place, and each step reads them
   one by one. While they arrive, a snapshot of parameters and of the host's sums is taken between
   two steps (runtime/device/cuda/cuda_background.c), and a thread reads it. */
#include "tests/common/by_hand.h"
#include "runtime/device/cuda/device_cuda.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { RUNS = 3, ROUNDS = 6, COUNT = 16, BYTES = COUNT * 4 };
enum {
  ORDERS = 12,
  STEPS = 5,
  ROWS = 3,
  SAVED = 3
}; /* STEPS of goes_on; SAVED before the snapshot */

static int64_t slot = BYTES;                 /* its bytes */
static bool goes_on;                         /* steps begin while results of the last one arrive */
static int sums;                             /* number of sums that the host has computed */
static rt_background saving[RT_BACKGROUNDS]; /* empty: no snapshot */

/* sum += down */
static void add(void *const *buffers, int64_t chunk, void *scratch) {
  const float *down = buffers[0], *before = buffers[1];
  float *sum = buffers[2];
  (void)chunk, (void)scratch;
  sums++;
  for (int i = 0; i < COUNT; i++) sum[i] = before[i] + down[i];
}

static const rt_kernel adds = {
    .name = "adds", .source = "", .phases = 1, .phase = {{.run = add, .chunks = 1}}, .nbuffers = 3};

/* One buffer each for the downloads, the sum, and the uploads, in all iterations. All downloads
   precede the uploads of sums, so neither direction waits for the other one. */
static void step(rt_ctx *rt) {
  char *from = rt->arena[RT_WEIGHTS], *results = rt->arena[RT_STATES], *part = rt->arena[RT_WORK],
       *up = part + BYTES, *down = rt->arena[RT_HOST_WORK], *sum = rt->arena[RT_HOST_STATES];
  rt_zero(rt, sum, BYTES);
  for (int n = 0; n < ROUNDS; n++) {
    rt_copy(rt, part, from + n * BYTES, BYTES);
    rt_after(rt, RT_STREAM_DOWN, RT_STREAM_HOST, 1 - n);
    rt_move(rt, down, part, BYTES, RT_WAY_DOWN);
    rt_after(rt, RT_STREAM_HOST, RT_STREAM_DOWN, 0);
    rt_launch(rt, &adds, (void *[]){down, sum, sum});
  }
  for (int n = 0; n < ROUNDS; n++) {
    rt_after(rt, RT_STREAM_HOST, RT_STREAM_UP, 0);
    rt_launch(rt, &adds, (void *[]){down, sum, sum});
    rt_after(rt, RT_STREAM_UP, RT_STREAM_HOST, 0);
    rt_move(rt, up, sum, BYTES, RT_WAY_UP);
    rt_copy(rt, results + n * BYTES, up, BYTES);
  }
}

/* Reads each row, twice, and has the host make it anew: the sum of all rows so far. */
static void step_on(rt_ctx *rt) {
  char *row = rt->arena[RT_WEIGHTS], *results = rt->arena[RT_STATES], *part = rt->arena[RT_WORK],
       *down = rt->arena[RT_HOST_WORK], *sum = rt->arena[RT_HOST_STATES];
  for (int n = 0; n < ROWS; n++) {
    rt_after(rt, RT_STREAM_COMPUTE, RT_STREAM_UP, ROWS - 1 - n);
    rt_copy(rt, results + n * BYTES, row + n * BYTES, BYTES);
  }
  for (int n = 0; n < ROWS; n++) {
    rt_copy(rt, part, row + n * BYTES, BYTES);
    rt_after(rt, RT_STREAM_DOWN, RT_STREAM_HOST, 0);
    rt_move(rt, down, part, BYTES, RT_WAY_DOWN);
    rt_after(rt, RT_STREAM_HOST, RT_STREAM_DOWN, 0);
    rt_after(rt, RT_STREAM_HOST, RT_STREAM_UP, 0);
    rt_launch(rt, &adds, (void *[]){down, sum, sum});
    rt_copy(rt, results + (ROWS + n) * BYTES, row + n * BYTES, BYTES);
    rt_after(rt, RT_STREAM_UP, RT_STREAM_HOST, 0);
    rt_move(rt, row + n * BYTES, sum, BYTES, RT_WAY_DIRECT);
  }
}

/* ---- a process ---- */

static float number(int run, int i) { return (float)(i + 1000 * run); }

static void compare(const float *have, int run) {
  for (int i = 0; i < COUNT; i++) {
    float sum = 0, last = number(run, (ROUNDS - 1) * COUNT + i);
    for (int n = 0; n < ROUNDS; n++) sum += number(run, n * COUNT + i);
    for (int n = 0; n < ROUNDS; n++) {
      sum += last;
      if (have[n * COUNT + i] < sum || have[n * COUNT + i] > sum) _exit(1);
    }
  }
}

/* Rows after a number of steps, by the same sums, and the last sum. */
static void rows_after(int steps, float row[(ROWS + 1) * COUNT]) {
  float *sum = row + ROWS * COUNT;
  for (int i = 0; i < ROWS * COUNT; i++) row[i] = number(0, i);
  memset(sum, 0, BYTES);
  for (int k = 0; k < steps; k++)
    for (int i = 0; i < ROWS * COUNT; i++) row[i] = sum[i % COUNT] += row[i];
}

/* A thread writes the snapshot to files. */
static void compare_snapshot(const Device *d) {
  float row[(ROWS + 1) * COUNT];
  rows_after(SAVED, row);
  d->kind->background(d, RT_BACKGROUND_write);
  if (memcmp(row, d->ctx.arena[RT_SNAPSHOT], sizeof row)) _exit(1);
}

/* The values that the last step read. */
static void compare_steps(const float *have) {
  float row[(ROWS + 1) * COUNT];
  rows_after(STEPS - 1, row);
  for (int i = 0; i < 2 * ROWS * COUNT; i++) {
    float wanted = row[i % (ROWS * COUNT)];
    if (have[i] < wanted || have[i] > wanted) _exit(1);
  }
}

/* Nobody looks at anything before the last step has been given to the device. */
static void run_steps(Device *d, const rt_tensor *tensors, const rt_entry *entry) {
  Fault f = {0};
  float *w = rt_tensor_write(d, &tensors[0]);
  for (int i = 0; i < ROWS * COUNT; i++) w[i] = number(0, i);
  for (int k = 0; k < STEPS; k++) {
    if (k == SAVED) d->kind->background(d, RT_BACKGROUND_keep);
    if (!rt_device_run(d, entry, &f)) rt_die(&f);
  }
  if (saving[RT_BACKGROUND_keep].there) compare_snapshot(d);
  rt_cuda_wait(d->inside); /* in order 0 nothing is done before it has to be */
  if (!strcmp(getenv("SHARDC_EMULATE_ORDER"), "0") && sums == STEPS * ROWS) _exit(2);
  compare_steps(rt_tensor_read(d, &tensors[1]));
}

static void run_program(bool no_graph) {
  static const rt_entry whole = {.name = "step", .run = step},
                        on = {.name = "step", .run = step_on};
  const rt_entry entry = goes_on ? on : whole;
  static const rt_kernel *const kernels[] = {&adds};
  const rt_tensor tensors[] = {FLOATS("w", RT_PARAM, RT_WEIGHTS, ROUNDS * BYTES),
                               FLOATS("s", RT_OUTPUT, RT_STATES, ROUNDS * BYTES)};
  const rt_range snapshot[] = {{RT_WEIGHTS, 0, ROWS * BYTES, 0},
                               {RT_HOST_STATES, 0, BYTES, ROWS * BYTES}};
  const bool saves = saving[RT_BACKGROUND_keep].there;
  rt_program p = {PROGRAM_SM80,
                  .workers = 1,
                  .arena_bytes = {[RT_WEIGHTS] = tensors[0].bytes,
                                  [RT_STATES] = tensors[1].bytes,
                                  [RT_IO] = 64 + 4 * slot,
                                  [RT_WORK] = 2 * BYTES,
                                  [RT_HOST_STATES] = BYTES,
                                  [RT_HOST_WORK] = BYTES},
                  .snapshot = snapshot,
                  .nsnapshot = saves ? 2 : 0,
                  .move_slot = slot,
                  .move_slots = {2, 2},
                  .most_back = ROWS - 1,
                  .host_window = tensors[1].bytes,
                  .tensors = tensors,
                  .ntensors = 2,
                  .kernels = kernels,
                  .nkernels = 1,
                  .entries = &entry,
                  .nentries = 1};
  Device d;
  Fault f = {0};
  if (saves) p.arena_bytes[RT_SNAPSHOT] = (ROWS + 1) * BYTES;
  memcpy(p.background, saving, sizeof saving);
  DeviceOptions o = {.number = -1, .no_graph = no_graph, .threads = 1, .saves = saves};
  if (!rt_device_start(&d, &p, NULL, &o, &f)) rt_die(&f);
  if (goes_on) run_steps(&d, tensors, &entry);
  for (int run = 0; run < RUNS && !goes_on; run++) {
    float *w = rt_tensor_write(&d, &tensors[0]);
    for (int i = 0; i < ROUNDS * COUNT; i++) w[i] = number(run, i);
    if (!rt_device_run(&d, &entry, &f)) rt_die(&f);
    compare(rt_tensor_read(&d, &tensors[1]), run);
  }
  rt_device_stop(&d);
  _exit(0);
}

static bool runs_well(int order, bool no_graph, const char *drop) {
  char text[16];
  int status = 1;
  snprintf(text, sizeof text, "%d", order);
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    signal(SIGSEGV, SIG_DFL),
        signal(SIGABRT, SIG_DFL); /* cmocka's would go on with the next test */
    setenv("SHARDC_EMULATE_ORDER", text, 1);
    if (drop) setenv("SHARDC_EMULATE_DROP", drop, 1);
    run_program(no_graph);
  }
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* ---- tests ---- */

static void all_orders(void **state) {
  (void)state;
  for (int order = 0; order < ORDERS; order++)
    for (int no_graph = 0; no_graph < 2; no_graph++)
      if (!runs_well(order, no_graph, NULL)) fail_msg("order %d: other numbers", order);
}

static bool goes_unseen(const char *drop) {
  for (int order = 0; order < ORDERS; order++)
    if (!runs_well(order, true, drop)) return false;
  return true;
}

/* For the second run, whose buffers are not new. unseen: in a run, from 1, the waits that others
   include. */
static void leave_out(const char *what, int per_run, const int *unseen) {
  char drop[32];
  for (int n = 1; n <= per_run; n++) {
    snprintf(drop, sizeof drop, "%s=%d", what, per_run + n);
    bool missed = goes_unseen(drop), known = *unseen == n;
    unseen += known;
    if (missed && !known) fail_msg("nobody notices that %s does nothing", drop);
    if (!missed && known) fail_msg("%s is noticed by now", drop);
  }
}

/* Each lane after the entry's begin: in the first runs no other operation is pending. And the
   entry's end after each lane: the host reads results after the last upload, which was the last
   operation. */
static void no_wait(void **state) {
  static const int unseen[] = {1, 2, 25, 46, 47, 48, 0};
  (void)state;
  leave_out("wait", 48, unseen);
}

/* Where these wait for something; and slots that are not taken again, bytes that nobody touches
   again. */
static void no_record(void **state) {
  static const int unseen[] = {1, 2, 20, 24, 26, 45, 49, 50, 0};
  (void)state;
  leave_out("record", 50, unseen);
}

/* In which a move takes two slots. */
static void in_pieces(void **state) {
  slot = BYTES / 2;
  all_orders(state);
  slot = BYTES;
}

static void goes_on_in_all_orders(void **state) {
  goes_on = true;
  all_orders(state);
  goes_on = false;
}

/* For a step between others. */
static void leave_out_amid(const char *what, int from, int to, const int *unseen) {
  char drop[32];
  goes_on = true;
  for (int n = from; n <= to; n++) {
    snprintf(drop, sizeof drop, "%s=%d", what, n);
    bool missed = goes_unseen(drop), known = *unseen == n;
    unseen += known;
    if (missed && !known) fail_msg("nobody notices that %s does nothing", drop);
    if (!missed && known) fail_msg("%s is noticed by now", drop);
  }
  goes_on = false;
}

/* Others include these: a stream ordered after another one is ordered after the operations that
   this one has waited for. And results that only this step reads are written again by the next. */
static void goes_on_no_wait(void **state) {
  static const int unseen[] = {45, 46, 48, 49, 52, 54, 56, 59, 61, 68, 0};
  (void)state;
  leave_out_amid("wait", 45, 68, unseen);
}

static void goes_on_no_record(void **state) {
  static const int unseen[] = {42, 45, 48, 51, 54, 0};
  (void)state;
  leave_out_amid("record", 38, 55, unseen);
}

/* The thread that writes files waits for the snapshot, and this for the streams that change what it
   copies. `keep` needs no wait for `write`: the host gives a snapshot to a thread, and takes the
   next one when it has come back (runtime/store/saver.c). */
static void snapshots(void **state) {
  static const unsigned streams = 1 << RT_STREAM_HOST | 1 << RT_STREAM_UP;
  static const rt_background keep = {true, 1 << RT_BACKGROUND_write, streams},
                             write = {true, 1 << RT_BACKGROUND_keep, 0};
  saving[RT_BACKGROUND_keep] = keep, saving[RT_BACKGROUND_write] = write;
  goes_on_in_all_orders(state);
  goes_on = true;
  saving[RT_BACKGROUND_keep].streams = 0;
  if (goes_unseen(NULL)) fail_msg("nobody notices that `keep` does not wait for the streams");
  saving[RT_BACKGROUND_keep] = keep, saving[RT_BACKGROUND_write].after = 0;
  if (goes_unseen(NULL)) fail_msg("nobody notices that `write` does not wait for `keep`");
  goes_on = false;
  memset(saving, 0, sizeof saving);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(all_orders),
                                     cmocka_unit_test(in_pieces),
                                     cmocka_unit_test(no_wait),
                                     cmocka_unit_test(no_record),
                                     cmocka_unit_test(goes_on_in_all_orders),
                                     cmocka_unit_test(goes_on_no_wait),
                                     cmocka_unit_test(goes_on_no_record),
                                     cmocka_unit_test(snapshots)};
  setenv("SHARDC_LIBCUDA", LIBCUDA, 1);
  setenv("SHARDC_EMULATE_LATE", "1", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
