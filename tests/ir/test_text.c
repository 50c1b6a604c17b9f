/* Text form: what is printed reads back to the same text; damaged text gives diagnostics, never a
 * crash. */
#include "common.h"

static const char sample[] =
    "shardc-ir 1\nmodel Tiny\nafter lower\n"
    "source f1 \"tiny.shard\" \"use \\\"std\\\"\\n\\tline \\\\ two\\x01\\n\"\n"
    "dim Batch = 16\ndim Vocab = 50257 pad 50304\ndim Seq = open\n"
    "set train.optim = \"adamw\"\nset \"odd key\" = \"\"\n"
    "lists @x1 {queries = 4, keys = 5, high = 2, wide = 2, heads = [2], classes = [0, 1], listed = "
    "[0, 3, 2, 1], partial = []}\n"
    "param @wte : f32[Vocab:256, Embed:128] {decay}  loc(f1:1:2+3)\n"
    "param @h.*.ln_1.gain : f32[Layers:4, Embed:128] {decay, frozen} at(4096)\n"
    "state @m : bf16[Embed':8]\n"
    "input @tokens : i32[Batch:16, Seq:64] of Vocab\n"
    "scalar @step : i32[]\n"
    "output @loss : f32[]  loc(f1:2:1+1)\n"
    "\n"
    "body @h.forward(%0 : i32[], %1 : f32[Batch:16, Seq:64, Embed:128], %2 : f32[Embed:128]) "
    "{frame = 64} {\n"
    "  %3 = mul %1, %2 : f32[Batch:16, Seq:64, Embed:128]  loc(f1:2:1+3)\n"
    "  return %3, %1\n"
    "}\n"
    "\n"
    "kernel @k(%0 : f32[A:4, B:8] {strides(1, 4) at(arg 0 + 0)}) {family = \"row\", tile = [1, 2], "
    "chunks = []}  "
    "loc(f1:1:1+2) {\n"
    "  %1 = exp %0 : f32[A:4, B:8] {0: strides(1, 4) inplace(%0) at(frame + 64)}\n"
    "  return %1\n"
    "}\n"
    "\n"
    "entry @step {\n"
    "  %0 = load @tokens : i32[Batch:16, Seq:64]\n"
    "  %1 = load @wte : f32[Vocab:256, Embed:128]\n"
    "  %2 = gather[Vocab] %1, %0 : f32[Batch:16, Seq:64, Embed:128]\n"
    "  %3 = load @h.*.ln_1.gain : f32[Layers:4, Embed:128]\n"
    "  %4, %5 = loop[Layers] @h.forward, %2, %3 {carry = 1, invariant = 0, trip = 4, start = 2, "
    "stack_length = 8, continues = [-1], reverse = 1} : "
    "f32[Batch:16, Seq:64, Embed:128], f32[Layers:4, Batch:16, Seq:64, Embed:128] {1: at(result 0 "
    "+ 8)}\n"
    "  %6 = sum[Batch, Seq, Embed] %4 : f32[]\n"
    "  %7 = const {value = 1e-05} : f32[]\n"
    "  %8 = const {value = -inf} : f32[]\n"
    "  %9 = const {value = 0.1} : f64[]\n"
    "  %10 = split[Seq -> A, B; Embed -> C, D] %4 : f32[Batch:16, A:8, B:8, C:2, D:64] "
    "{0: strides(8192, 1024, 128, 64, 1) view(%4 + 64) at(global @wte + 16)}\n"
    "  store @loss, %6  loc(f1:2:2+2)\n"
    "  %11 = concat[Batch, Batch -> Both] %4, %4 : f32[Both:32, Seq:64, Embed:128] {0: assembled "
    "at(frame + 64)}\n"
    "}\n";

static void prints_what_it_read(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(c, sample);
  if (!m) fail_msg("%s", reported(c));
  assert_string_equal(ir_print(m, NULL), sample);
  ctx_free(c);
}

static const char placed[] =
    "shardc-ir 1\nmodel T\nafter collect\ndim Key = 4 like Seq\n"
    "mesh data = 2, t1 = 2, t2 = 3\n"
    "place @h.*.router -> none\nplace Batch -> data  loc(f1:1:2+3)\n"
    "place Mlp, Heads -> t1, t2 else Seq\n"
    "param @w : f32[Mlp/t1/t2:12]\n\n"
    "body @b(%0 : f32[A/t2:3, Mlp:6] partial(data, max t1), %1 : f32[] partial(t1)) {\n"
    "  %2 = all_to_all[A -> Mlp] %0 {axis = \"t2\"} : f32[A:3, Mlp/t2:6] partial(data, max t1)\n"
    "  return %2\n}\n";

static void keeps_placements(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(c, placed);
  if (!m) fail_msg("%s", reported(c));
  assert_string_equal(ir_print(m, NULL), placed);
  ctx_free(c);
}

/* Lines of the plan, and the settings that were lines of the plan in old dumps. */
static void reads_lines_of_the_plan(void **state) {
  static const char lines[] =
      "shardc-ir 1\nmodel T\nafter lower\nmesh t1 = 2, t2 = 2\nset plan.micro = \"2\"\n"
      "recompute h.*.sub[0..5], dec keep = auto budget = 4294967296 offload = host over t1, t2  "
      "loc(f1:20:3+31) over(f1:20:33+6)\n"
      "recompute h keep = [h.*.attn.q, h.*.k]  loc(f1:21:3+4)\nrecompute h keep = none\n"
      "offload params of h[0..3].attn\noffload params of wte\noffload grads\n"
      "input @x : f32[A:3]\n";
  static const char old[] =
      "shardc-ir 1\nmodel T\nafter lower\nmesh t1 = 2, t2 = 2\n"
      "set plan.recompute.1 = \"h.*.sub[0..5], dec keep = auto budget = 4294967296 offload = host "
      "over t1, t2 loc(f1:20:3+31) over(f1:20:33+6)\"\nset plan.micro = \"2\"\n"
      "set plan.recompute.2 = \"h keep = [h.*.attn.q, h.*.k] loc(f1:21:3+4)\"\n"
      "set plan.recompute.3 = \"h keep = none\"\n"
      "set plan.offload.params = \"h[0..3].attn, wte\"\nset plan.offload = \"grads, params, "
      "saved\"\n"
      "input @x : f32[A:3]\n";
  const char *const texts[] = {lines, old};
  (void)state;
  for (int i = 0; i < 2; i++) {
    Ctx *c = ctx_new();
    Module *m = module_of(c, texts[i]);
    if (!m) fail_msg("%s", reported(c));
    assert_int_equal(m->recompute.n, 3);
    assert_int_equal(m->recompute.at[1].names.n, 2);
    assert_string_equal(ir_print(m, NULL), lines);
    ctx_free(c);
  }
}

/* Every word and path has its position; of old dumps the first word has. */
static void lines_of_the_plan_have_positions(void **state) {
  static const char head[] = "shardc-ir 1\nmodel T\nafter lower\nsource f1 \"a\" \"b\"\n",
                    text[] = "offload optimizer loc(f1:2:1+9) of wte loc(f1:2:14+3)\n"
                             "offload auto loc(f1:3:1+4)\n",
                    old[] = "set plan.offload = \"optimizer loc(f1:2:1+9)\"\n"
                            "set plan.offload.optimizer = \"h.*\"\n";
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(c, arena_printf(c->arena, "%s%s", head, text));
  if (!m) fail_msg("%s", reported(c));
  assert_string_equal(ir_print(m, NULL), arena_printf(c->arena, "%s%s", head, text));
  m = module_of(c, arena_printf(c->arena, "%s%s", head, old));
  if (!m) fail_msg("%s", reported(c));
  assert_string_equal(ir_print(m, NULL),
                      arena_printf(c->arena, "%soffload optimizer loc(f1:2:1+9) of h.*\n", head));
  ctx_free(c);
}

static void takes_what_a_hand_writes(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(c, "# by hand\n\n shardc-ir 1 # one\r\nmodel T\n"
                           "input   @x:f32[ A:3 ]\n entry @e{# opens\n %70=load @x:f32[A:3]\n\n"
                           "%3 = exp %70 : f32[A:3]\n  }  # ends\n");
  if (!m) fail_msg("%s", reported(c));
  assert_string_equal(ir_print(m, NULL),
                      "shardc-ir 1\nmodel T\nafter lower\ninput @x : f32[A:3]\n\nentry @e {\n"
                      "  %0 = load @x : f32[A:3]\n  %1 = exp %0 : f32[A:3]\n}\n");
  ctx_free(c);
}

/* After `order` dense strides are left out and come back. */
static void dense_strides_come_back(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  Module *m = module_of(
      c, "shardc-ir 1\nmodel T\nafter order\nkernel @k(%0 : f32[A:2, B:3]) {\n"
         "  %1 = exp %0 : f32[A:2, B:3]\n  %2 = exp %1 : f32[A:2, B:3]\n  return %2\n}\n");
  assert_non_null(m);
  const Fn *f = m->fns.at[0];
  assert_true(f->values.at[0].storage.ordered && f->values.at[0].storage.stride[0] == 3);
  assert_false(f->values.at[1].storage.ordered); /* inside of the kernel */
  assert_true(f->values.at[2].storage.ordered);
  ctx_free(c);
}

#define HAS_H "\nparam @h.*.w : f32[L:4]\nentry @e {\n}\n"

static const struct {
  const char *code, *text;
} damaged[] = {
    {"E1001", "hello\n"},
    {"E1001", "shardc-ir 2\n"},
    {"E1001", "shardc-ir 1\nwhat is this\n"},
    {"E1001", "shardc-ir 1\nset a = \"no end\n"},
    {"E1001", "shardc-ir 1\nset a = \"\\q\"\n"},
    {"E1001", "shardc-ir 1\nset a = \"1\"\nset a = \"2\"\n"},
    {"E1001", "shardc-ir 1\nset plan.recompute.1 = \"h keep = all\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = some\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = auto budget = much\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = auto budget = -5\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = auto budget = nan\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = auto budget = inf\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = auto budget = 0.5\n"},
    {"E1001", "shardc-ir 1\nset plan.recompute.1 = \"h keep = auto budget = -5\"\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = all budget = 5\n"},
    {"E1001", "shardc-ir 1\nmesh data = 2\nrecompute h keep = all over data, data\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = all offload = disk\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = [q\n"},
    {"E1001", "shardc-ir 1\nrecompute h[3..1] keep = all\n"},
    {"E1001", "shardc-ir 1\nrecompute h[3] keep = all\n"},
    {"E1001", "shardc-ir 1\nset plan.offload = \"moments\"\n"},
    {"E1001", "shardc-ir 1\noffload moments\n"},
    {"E1001", "shardc-ir 1\noffload params of\n"},
    {"E1001", "shardc-ir 1\nrecompute keep = all\n"},
    {"E1001", "shardc-ir 1\nrecompute h keep = all over\n"},
    {"E1001", "shardc-ir 1\ndim A = 4 pad 3\n"},
    {"E1001", "shardc-ir 1\ndim A = 4\ndim A = 4\n"},
    {"E1001", "shardc-ir 1\nsource f2 \"a\" \"b\"\n"},
    {"E1001", "shardc-ir 1\nparam @p : f33[]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[A:2, A:2]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[A:0]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[A:99999999999999999999]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[A:1099511627776, B:1099511627776]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[]\nparam @p : f32[]\n"},
    {"E1001", "shardc-ir 1\nparam @p : f32[] {nice}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n}\nentry @e {\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = const {value = x} : f32[]\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = const {value = 1, value = 2} : f32[]\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = const {value = 1} : f32[]\n %0 = const {value = 1} : "
              "f32[]\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = const @e {value = 1} : f32[]\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = const {value = 1} : f32[] {0: near(1)}\n}\n"},
    {"E1001", "shardc-ir 1\nbody @b(%0 : f32[]) {\n return %0\n %1 = exp %0 : f32[]\n}\n"},
    {"E1001", "shardc-ir 1\nentry @e {\n %0 = load : f32[]\n}\n"},
    {"E1002", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = expp %0 : f32[]\n}\n"},
    {"E1002", "shardc-ir 1\nentry @e {\n %0 = const {worth = 1} : f32[]\n}\n"},
    {"E1003", "shardc-ir 1\nmesh data = 2\nrecompute h keep = all over date\n"},
    {"E1003", "shardc-ir 1\nrecompute z keep = all" HAS_H},
    {"E1003", "shardc-ir 1\nrecompute h.*.w keep = all" HAS_H},
    {"E1003", "shardc-ir 1\nrecompute h[0..1], z[0..1] keep = all" HAS_H},
    {"E1003", "shardc-ir 1\nset plan.recompute.1 = \"z keep = all\"" HAS_H},
    {"E1003", "shardc-ir 1\noffload params of z" HAS_H},
    {"E1003", "shardc-ir 1\noffload params of h[0..1].v" HAS_H},
    {"E1003", "shardc-ir 1\nset plan.offload.params = \"h.*, z\"" HAS_H},
    {"E1003", "shardc-ir 1\nplace @h.*.v -> none" HAS_H},
    {"E1003", "shardc-ir 1\nset train.optim.1.of = \"h.*.w, z\"" HAS_H},
    {"E1001", "shardc-ir 1\nset train.optim.1.of = \"\"" HAS_H},
    {"E1003", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = exp %7 : f32[]\n}\n"},
    {"E1003", "shardc-ir 1\nentry @e {\n %0 = load @nothing : f32[]\n}\n"},
    {"E1003", "shardc-ir 1\nentry @e {\n call @nothing\n}\n"},
    {"E1004", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = exp %0, %0 : f32[]\n}\n"},
    {"E1004", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1, %2 = exp %0 : f32[], f32[]\n}\n"},
    {"E1004", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = exp %0 : f32[], f32[]\n}\n"},
    {"E1004", "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = exp %0 : f32[] {1: at(frame + 0)}\n}\n"},
};

/* As lowered; with a stack in parts; after `precision`, when passes may have consumed the names. */
static void knows_what_plans_name(void **state) {
  static const char lines[] = "place @h.*.w -> none\nrecompute h[0..1] keep = all\n"
                              "recompute h keep = none\noffload params of h[0..1].w\n"
                              "offload grads of h.*.w\nset train.optim.1.of = \"h\"\n",
                    parts[] = "param @h.0_1.*.w : f32[L'0_1:2]\nparam @h.2_3.*.w : f32[L'2_3:2]\n";
  const char *const after[] = {"lower", "ranges", "precision"};
  const char *const params[] = {"param @h.*.w : f32[L:4]\n", parts, ""};
  (void)state;
  for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
    Ctx *c = ctx_new();
    const char *text = arena_printf(c->arena, "shardc-ir 1\nmodel T\nafter %s\n%s%s%s", after[i],
                                    lines, params[i], "entry @e {\n}\n");
    if (!module_of(c, text)) fail_msg("%s", reported(c));
    ctx_free(c);
  }
}

static void names_what_is_wrong(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
    Ctx *c = ctx_new();
    assert_null(module_of(c, damaged[i].text));
    const char *said = reported(c);
    if (!strstr(said, damaged[i].code)) fail_msg("%s not in\n%s", damaged[i].code, said);
    if (diag_errors(c->diag) != 1) fail_msg("one mistake, several messages:\n%s", said);
    ctx_free(c);
  }
}

static void offers_a_similar_name(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  assert_null(module_of(c, "shardc-ir 1\nbody @b(%0 : f32[]) {\n %1 = tahn %0 : f32[]\n}\n"));
  assert_non_null(strstr(reported(c), "tanh"));
  ctx_free(c);
}

/* ---- random damage ---- */

typedef struct Dice {
  uint64_t state;
} Dice;

static uint32_t roll(Dice *d, size_t n) {
  d->state = d->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((d->state >> 33) % n);
}

static size_t damage(Dice *d, char *text, size_t n) {
  static const char signs[] = "0123456789%@{}[],:->\n\"\\";
  size_t at = roll(d, n), from = roll(d, n), length = roll(d, 20);
  switch (roll(d, 4)) {
  case 0: text[at] = (char)roll(d, 256); return n;
  case 1: text[at] = signs[roll(d, sizeof signs - 1)]; return n;
  case 2:
    if (at + length >= n || n < 64) return n;
    memmove(text + at, text + at + length, n - at - length);
    return n - length;
  default:
    if (from + length < n && at + length < n) memmove(text + at, text + from, length);
    return n;
  }
}

static void check_damaged(const char *text, size_t n, int number) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "damaged.ir", text, n);
  if (!m && !diag_errors(c->diag)) fail_msg("case %d: refused without a word", number);
  if (m) {
    const char *once = ir_print(m, NULL);
    Module *again = module_of(c, once);
    if (!again) fail_msg("case %d: %s\n%s", number, once, reported(c));
    assert_string_equal(ir_print(again, NULL), once);
    ir_verify(again);
  }
  ctx_free(c);
}

static void survives_damage(void **state) {
  (void)state;
  static const char *const after[] = {"lower\n", "fuse\n ", "order\n", "prove\n"};
  char text[sizeof sample];
  for (int k = 0; k < 8000; k++) {
    Dice d = {(uint64_t)k * 77 + 5};
    size_t n = sizeof sample - 1;
    memcpy(text, sample, sizeof sample);
    memcpy(strstr(text, "after ") + 6, after[k % 4], 6);
    for (uint32_t times = 1 + roll(&d, 4); times; times--) n = damage(&d, text, n);
    check_damaged(text, n, k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(prints_what_it_read),
      cmocka_unit_test(reads_lines_of_the_plan),
      cmocka_unit_test(lines_of_the_plan_have_positions),
      cmocka_unit_test(takes_what_a_hand_writes),
      cmocka_unit_test(keeps_placements),
      cmocka_unit_test(dense_strides_come_back),
      cmocka_unit_test(knows_what_plans_name),
      cmocka_unit_test(names_what_is_wrong),
      cmocka_unit_test(offers_a_similar_name),
      cmocka_unit_test(survives_damage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
