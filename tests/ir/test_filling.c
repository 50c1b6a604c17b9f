/* Kernels that fill a GPU, and messages, in the clock of a forecast: a message waits for the end of
   such a kernel, which takes longer where one is in flight. */
#include "common.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/cost/timeline.h"
#include <math.h>

typedef struct Clock { /* seconds of one kernel, of one message, .. */
  double kernel, message, slowed, exposed;
} Clock;

/* A program that starts messages, runs kernels and waits for the messages. `cut`: the
   multiprocessors of a kernel. */
static Clock clock_of(const char *channels, const char *cut, int kernels, int messages) {
  Ctx *c = ctx_new();
  char text[4000], *at = text, *end = text + sizeof text;
  at += snprintf(at, (size_t)(end - at),
                 "shardc-ir 1\nmodel T\ntarget sm_90a {device = gpu, sm = 90, wgmma = true, "
                 "multiprocessors = 132, %s, ..}\nafter prefetch\nmesh data = 2\n"
                 "set plan.precision = \"bf16\"\nset machine.node.arch = \"sm_90a\"\n"
                 "set machine.node.gpus = \"8\"\nset machine.link.intra = \"450e9\"\n"
                 "input @x : bf16[M:4224, K:1024]\ninput @w : bf16[K:1024, N:1024]\n"
                 "param @p : bf16[O/data:1024, P:1024]\noutput @y : bf16[M:4224, N:1024]\n"
                 "output @z : bf16[O:2048, P:1024]\n"
                 "kernel @k(%%0 : bf16[M:4224, K:1024], %%1 : bf16[K:1024, N:1024]) {family = "
                 "\"contract\", variant = \"wgmma\", tile = [128, 256, 64, 64, 256, 3, 1, 3, 3, 4, "
                 "8], threads = [384], shared = [213056], %s} {\n"
                 "%%2 = dot[K] %%0, %%1 : bf16[M:4224, N:1024]\nreturn %%2\n}\n"
                 "entry @step {\n%%0 = load @p : bf16[O:1024, P:1024]\n"
                 "%%1 = load @x : bf16[M:4224, K:1024]\n%%2 = load @w : bf16[K:1024, N:1024]\n",
                 channels, cut);
  for (int i = 0; i < messages; i++)
    at += snprintf(at, (size_t)(end - at),
                   "%%%d = all_gather[O] %%0 {axis = \"data\", ranks = 2, flight = 0} : "
                   "bf16[O:2048, P:1024]\n",
                   3 + i);
  for (int i = 0; i < kernels; i++)
    at += snprintf(at, (size_t)(end - at), "%%%d = kernel @k, %%1, %%2 : bf16[M:4224, N:1024]\n",
                   10 + i);
  for (int i = 0; i < messages; i++)
    at += snprintf(at, (size_t)(end - at),
                   "%%%d = wait %%%d, %%0 : bf16[O:2048, P:1024] {0: view(%%%d + 0)}\n", 20 + i,
                   3 + i, 3 + i);
  snprintf(at, (size_t)(end - at), "store @y, %%10\nstore @z, %%%d\n}\n", 19 + messages);
  Module *m = module_of(c, text);
  if (!m) fail_msg("%s\n%s", text, reported(c));
  const Fn *step = ir_main_entry(m);
  Machine machine = forecast_machine(m, false).machine;
  EventList events = events_in_order(m, step);
  Lanes lanes = lanes_of(m, &machine, &events);
  KernelTime kernel = kernel_time(m, &machine, m->fns.at[0]);
  Clock clock = {kernel_sum(&kernel), 0, lanes.slowed, lanes.exposed[0]};
  for (uint32_t i = 0; i < events.at.n && !clock.message; i++)
    if (event_sends(&events.at.at[i]))
      clock.message = message_seconds(m, &machine, step, event_op(&events.at.at[i]));
  ctx_free(c);
  assert_true(clock.message > 0 && clock.message < clock.kernel);
  return clock;
}

static void near(double x, double y) {
  if (fabs(x - y) > 1e-12) fail_msg("%g instead of %g", x, y);
}

static const char some[] = "channels = 16", none[] = "channels = 0", all[] = "chunks = [132]";

/* A message begins when the kernel ends. */
static void messages_wait(void **state) {
  (void)state;
  Clock x = clock_of(some, all, 1, 1);
  near(x.exposed, x.message), near(x.slowed, 0);
  near(clock_of(none, all, 1, 1).exposed, 0);
}

/* A message takes multiprocessors from the second kernel, whose last CTAs wait for its end. */
static void kernels_take_longer(void **state) {
  (void)state;
  Clock x = clock_of(some, all, 2, 1);
  near(x.exposed, 0), near(x.slowed, x.message);
  near(clock_of(none, all, 2, 1).slowed, 0);
}

/* The second message waits for the CTAs of the second kernel that began first, and is over with the
   others. */
static void messages_follow(void **state) {
  (void)state;
  Clock x = clock_of(some, all, 3, 2);
  near(x.exposed, 0), near(x.slowed, x.message);
  x = clock_of(some, all, 2, 2);
  near(x.exposed, 0), near(x.slowed, x.message);
}

static void what_is_left_is_enough(void **state) {
  (void)state;
  Clock x = clock_of(some, "chunks = [116], spare = 16", 2, 1), full = clock_of(none, all, 2, 1);
  near(x.exposed, 0), near(x.slowed, 0);
  assert_true(x.kernel > full.kernel);
  x = clock_of("channels = 17", "chunks = [116], spare = 16", 2, 1);
  near(x.slowed, x.message);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(messages_wait), cmocka_unit_test(kernels_take_longer),
      cmocka_unit_test(messages_follow), cmocka_unit_test(what_is_left_is_enough)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
