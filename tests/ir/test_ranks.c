/* Ranks in one process: what collectives do to blocks, worked out by hand, and what they send. */
#include "common.h"
#include "ir/interp/interp_ranks.h"

/* Six ranks: coordinate of a = rank % 2, of b = rank / 2. */
#define HEAD(after, x, a, b)                                                                       \
  "shardc-ir 1\nmodel T\nafter " after "\nmesh a = 2, b = 3\nplace R -> b, a\n"                    \
  "input @x : f32[R/b/a:1, N:6]" x "\nscalar @mesh.of.a : i32[]" a "\nscalar @mesh.of.b : i32[]" b \
  "\n"
static const char head[] = HEAD("localize", "", "", ""),
                  placed_head[] = HEAD("memory", " at(0)", " at(64)", " at(128)");

typedef struct Case {
  const char *output, *op;
  OpCode code;
  int axis;
  int64_t sent;
  double want[36]; /* by rank, then element */
} Case;

/* Rank r holds the numbers 10 r + 0 .. 10 r + 5. */
static const Case cases[] = {
    {"f32[R/b/a:1, N:6]",
     "all_reduce %0 {axis = \"a\", ranks = 2} : f32[R:1, N:6]",
     OP_all_reduce,
     0,
     12,
     {10, 12, 14, 16, 18, 20, 10, 12, 14, 16, 18, 20,  50, 52, 54, 56, 58, 60,
      50, 52, 54, 56, 58, 60, 90, 92, 94, 96, 98, 100, 90, 92, 94, 96, 98, 100}},
    {"f32[R/b/a:1, N:6]",
     "all_reduce %0 {axis = \"b\", reduce = \"max\", ranks = 3} : f32[R:1, N:6]",
     OP_all_reduce,
     1,
     12,
     {40, 41, 42, 43, 44, 45, 50, 51, 52, 53, 54, 55, 40, 41, 42, 43, 44, 45,
      50, 51, 52, 53, 54, 55, 40, 41, 42, 43, 44, 45, 50, 51, 52, 53, 54, 55}},
    {"f32[R/b/a:1, N:2]",
     "reduce_scatter[N] %0 {axis = \"b\", ranks = 3} : f32[R:1, N:2]",
     OP_reduce_scatter,
     1,
     6,
     {60, 63, 90, 93, 66, 69, 96, 99, 72, 75, 102, 105}},
    {"f32[R/b/a:2, N:6]",
     "all_gather[R] %0 {axis = \"a\", ranks = 2} : f32[R:2, N:6]",
     OP_all_gather,
     0,
     12,
     {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}},
    {"f32[R/b/a:3, N:2]",
     "all_to_all[R -> N] %0 {axis = \"b\", ranks = 3} : f32[R:3, N:2]",
     OP_all_to_all,
     1,
     6,
     {0, 1, 20, 21, 40, 41, 10, 11, 30, 31, 50, 51}},
    {"f32[R/b/a:1, N:6]",
     "rotate %0 {by = 2, axis = \"b\", ranks = 3} : f32[R:1, N:6]",
     OP_rotate,
     1,
     6,
     {20, 21, 22, 23, 24, 25, 30, 31, 32, 33, 34, 35, 40, 41, 42, 43, 44, 45,
      50, 51, 52, 53, 54, 55, 0,  1,  2,  3,  4,  5,  10, 11, 12, 13, 14, 15}},
    {"f32[R/b/a:1, N:6]",
     "receive %0 {axis = \"b\", ranks = 3} : f32[R:1, N:6]\n%2 = send %1 {axis = \"b\", ranks = 3} "
     ": f32[R:1, N:6]",
     OP_send,
     1,
     6,
     {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,
      0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15}},
    {"f32[R/b/a:1, N:6]",
     "receive %0 {reverse = 1, axis = \"a\", ranks = 2} : f32[R:1, N:6]\n%2 = send %1 {reverse = "
     "1, "
     "axis = \"a\", ranks = 2} : f32[R:1, N:6]",
     OP_send,
     0,
     6,
     {10, 11, 12, 13, 14, 15, 0,  0,  0,  0,  0,  0,  30, 31, 32, 33, 34, 35,
      0,  0,  0,  0,  0,  0,  50, 51, 52, 53, 54, 55, 0,  0,  0,  0,  0,  0}},
};

/* The first of two ops is also placed. */
static const char *ops_of(Ctx *c, const Case *k, bool placed) {
  const char *end = strchr(k->op, '\n');
  if (!placed || !end) return k->op;
  return arena_printf(c->arena, "%.*s {0: at(frame + 64)}%s", (int)(end - k->op), k->op, end);
}

/* By names of dims; placed: blocks of bytes. */
static void check_case(const Case *k, bool placed) {
  Ctx *c = ctx_new();
  const char *text = arena_printf(
      c->arena,
      "%soutput @y : %s%s\nentry @e%s {\n%%0 = load @x : f32[R:1, N:6]%s\n%%1 = %s%s\nstore @y, "
      "%%%d\n}\n",
      placed ? placed_head : head, k->output, placed ? " at(192)" : "",
      placed ? " {frame = 128}" : "", placed ? " {0: at(global @x + 0)}" : "", ops_of(c, k, placed),
      placed ? " {0: at(frame + 16)}" : "", k->code == OP_send ? 2 : 1);
  Module *m = module_of(c, text);
  if (!m || !ir_verify(m)) fail_msg("%s", reported(c));
  Ranks *r = ranks_new(m, c->arena);
  double x[36];
  for (int i = 0; i < 36; i++) x[i] = 10 * (i / 6) + i % 6;
  ranks_set(r, "x", x);
  if (!(placed ? ranks_run_placed : ranks_run)(r, "e")) fail_msg("%s", ranks_error(r));
  const Tensor *y = ranks_get(r, "y");
  if (!y) fail_msg("%s", ranks_error(r));
  for (int i = 0; i < 36 && (k->want[i] || i < 2); i++)
    if (y->at[i] != k->want[i]) fail_msg("%s: element %d is %g", k->op, i, y->at[i]);
  if (!placed) assert_int_equal(ranks_sent(r, k->axis, k->code), k->sent);
  if (!placed) assert_int_equal(ranks_calls(r, k->axis, k->code), 1);
  ctx_free(c);
}

static void by_hand(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_case(&cases[i], false), check_case(&cases[i], true);
}

static void knows_its_place(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m =
      module_of(c, arena_printf(c->arena,
                                "%soutput @y : i32[R/b/a:1]\nentry @e {\n"
                                "%%0 = load @mesh.of.a : i32[]\n%%1 = load @mesh.of.b : i32[]\n"
                                "%%2 = const {value = 10} : i32[]\n%%3 = mul %%1, %%2 : i32[]\n"
                                "%%4 = add %%0, %%3 : i32[]\n%%5 = expand[R] %%4 : i32[R:1]\n"
                                "store @y, %%5\n}\n",
                                head));
  Ranks *r = ranks_new(m, c->arena);
  assert_true(ranks_run(r, "e"));
  static const double want[] = {0, 1, 10, 11, 20, 21};
  for (int i = 0; i < 6; i++) assert_true(ranks_get(r, "y")->at[i] == want[i]);
  ctx_free(c);
}

/* One copy of y is written by all ranks: they do not agree. */
static void sees_that_ranks_differ(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m =
      module_of(c, arena_printf(c->arena,
                                "%soutput @y : i32[]\nentry @e {\n%%0 = load @mesh.of.a : i32[]\n"
                                "store @y, %%0\n}\n",
                                head));
  Ranks *r = ranks_new(m, c->arena);
  assert_true(ranks_run(r, "e"));
  assert_null(ranks_get(r, "y"));
  assert_non_null(strstr(ranks_error(r), "@y"));
  ctx_free(c);
}

/* Sent and received in bytes: what is not the operand's own, or would be overwritten before it is
   sent, stops all ranks. */
static void bytes_of_others(void **state) {
  (void)state;
  static const char *const lines[][2] = {
      {"%1 = all_gather[R] %0 {axis = \"a\", ranks = 2} : f32[R:2, N:6] {0: at(frame + 24)}\n"
       "%2 = all_gather[R] %1 {axis = \"b\", ranks = 3} : f32[R:6, N:6] {0: at(frame + 0)}\n",
       "sends bytes that are another value's"},
      {"%1 = all_reduce %0 {axis = \"a\", ranks = 2} : f32[R:1, N:6] {0: at(frame + 0)}\n"
       "%2 = all_reduce %1 {axis = \"b\", ranks = 3} : f32[R:1, N:6] {0: at(frame + 0)}\n",
       "sends bytes that are another value's"}, /* in place, without the attribute */
      {"%1 = all_gather[R] %0 {axis = \"a\", ranks = 2} : f32[R:2, N:6] {0: at(frame + 8)}\n",
       "receives outside of its memory"},
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    Ctx *c = ctx_new();
    const char *text = arena_printf(c->arena,
                                    "%sentry @e {frame = %d} {\n%%0 = load @x : f32[R:1, N:6] {0: "
                                    "at(global @x + 0)}\n%s}\n",
                                    placed_head, i == 2 ? 48 : 256, lines[i][0]);
    Module *m = module_of(c, text);
    if (!m) fail_msg("%s", reported(c));
    Ranks *r = ranks_new(m, c->arena);
    assert_false(ranks_run_placed(r, "e"));
    if (!strstr(ranks_error(r), lines[i][1])) fail_msg("%s: %s", lines[i][1], ranks_error(r));
    ctx_free(c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(by_hand),
      cmocka_unit_test(knows_its_place),
      cmocka_unit_test(sees_that_ranks_differ),
      cmocka_unit_test(bytes_of_others),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
