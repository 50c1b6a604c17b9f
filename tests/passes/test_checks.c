/* Contracts between parts of the compiler are checked where they are used (`must`): a caller that
   breaks one ends with its text, in a child, by the signal of an internal error. The verifier sees
   none of these: they are arguments of functions, or hold between two passes. */
// clang-format off: cmocka.h needs these before it
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include "codegen/emit.h"
#include "passes/base/flow.h"
#include "passes/machine/memory.h"
#include "passes/order/order.h"
#include "passes/tune/gpu.h"
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char placed[] = "shardc-ir 1\nafter clean\nmesh data = 2\n"
                             "target x86_64_v3 {..}\nparam @w : f32[A:8]\n"
                             "entry @step {\n  %0 = load @w : f32[A/data:8]\n"
                             "  store @w, %0\n}\n";
static const char plain[] = "shardc-ir 1\nparam @w : f32[A:8]\nentry @step {\n"
                            "  %0 = load @w : f32[A:8]\n  %1 = exp %0 : f32[A:8]\n"
                            "  store @w, %1\n}\n";

static Module *read_text(const char *text) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "test", text, strlen(text));
  if (!m) _exit(1);
  return m;
}

static void fuse_of_several_ranks(void) { pass_fuse(read_text(placed)); }
static void memory_without_strides(void) { pass_memory(read_text(plain)); }
static void loop_that_is_none(void) { loop_shape(&read_text(plain)->fns.at[0]->ops.at[1]); }

static void layout_of_nothing(void) {
  const Fn *f = read_text(plain)->fns.at[0];
  layout_same(&f->values.at[0], &f->values.at[1]);
}

static void spread_over_less(void) {
  Module *m = read_text(plain);
  emit_spread(m, m->fns.at[0], 0, type_scalar(ELEM_f32), (Loc){0});
}

static void result_that_is_missing(void) {
  Module *m = read_text(plain);
  fn_result(m, m->fns.at[0], 1);
  Rebuild r = rebuild_begin(m, m->fns.at[0]);
  rebuild_results(&r);
}

static void block_before_its_birth(void) {
  Block b = {.bytes = 64, .born = 5, .dies = 4};
  memory_pack(arena_new(), &b, 1);
}

static void arc_too_many(void) {
  Flow n = flow_new(arena_new(), FLOW_NODES + 1, 1);
  flow_join(&n, FLOW_SOURCE, FLOW_NODES, 1), flow_join(&n, FLOW_NODES, FLOW_SINK, 1);
}

static void arc_to_nowhere(void) {
  Flow n = flow_new(arena_new(), FLOW_NODES, 4);
  flow_join(&n, FLOW_SOURCE, FLOW_NODES, 1);
}

static void gpu_cut_on_a_processor(void) {
  Module *m = read_text(plain);
  gpu_set(m, m->fns.at[0], "vector", 1, (int64_t[]){4}, 1, NULL);
}

static Emit *emit_of(const char *text) {
  Module *m = read_text(text);
  return emit_new(m, m->fns.at[0], target_find("x86_64_v3"), "k", m->arena);
}

static const char kernel[] = "shardc-ir 1\nafter fuse\nkernel @k(%0 : f32[A:8]) {\n"
                             "  %1 = exp %0 : f32[A:8]\n  return %1\n}\n";

static void entry_as_a_kernel(void) { emit_of(plain); }

static void buffer_that_is_none(void) { emit_buffer(emit_of(kernel), 2); }

static void two_types_multiplied(void) {
  Emit *e = emit_of(kernel);
  emit_fma(e, emit_f32(e, 1), emit_number(e, ELEM_f64, 1), emit_f32(e, 1));
}

static void chunks_of_nothing(void) {
  Emit *e = emit_of(kernel);
  LLVMValueRef from, to;
  emit_chunk_range(e, 8, 0, &from, &to);
}

static const struct {
  void (*run)(void);
  const char *words;
} broken[] = {
    {fuse_of_several_ranks, "fuse: %0 of step is the value of several ranks"},
    {memory_without_strides, "memory: %0 of step has no strides"},
    {loop_that_is_none, "exp is no loop over a dim"},
    {layout_of_nothing, "values without strides are compared"},
    {spread_over_less, "%0 of step has dims that it is not spread over"},
    {result_that_is_missing, "result 0 of step is not in the new function"},
    {block_before_its_birth, "a block is born at 5 and dies at 4"},
    {arc_too_many, "a net of more than 1 arcs"},
    {arc_to_nowhere, "an arc from node 0 to 2 of 2"},
    {gpu_cut_on_a_processor, "kernel step is cut for a GPU, its target is none"},
    {entry_as_a_kernel, "@step is compiled as a kernel, and is none"},
    {buffer_that_is_none, "kernel k has no buffer 2"},
    {two_types_multiplied, "kernel k: a multiply-add of several types"},
    {chunks_of_nothing, "kernel k: 8 units in 0 chunks"},
};

/* Runs it in a child; what it says goes to `said`. The signal that ended it, 0: none. */
static int signal_of(void (*run)(void), char *said, size_t room) {
  int ends[2], status;
  size_t n = 0;
  fflush(NULL);
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (!child) {
    signal(SIGABRT, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(ends[1], STDERR_FILENO);
    run();
    _exit(0);
  }
  close(ends[1]);
  for (ssize_t got; (got = read(ends[0], said + n, room - 1 - n)) > 0;) n += (size_t)got;
  said[n] = 0, close(ends[0]);
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void broken_promises_are_noticed(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    char said[1000];
    int by = signal_of(broken[i].run, said, sizeof said);
    if (!strstr(said, broken[i].words)) fail_msg("`%s`, not `%s`", said, broken[i].words);
    assert_int_equal(by, SIGABRT);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(broken_promises_are_noticed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
