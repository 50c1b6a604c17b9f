/* The reader: exact texts of its diagnostics, recovery, numbers and units, the tree as text,
 * settings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/settings/settings.h"
#include <stdlib.h>

typedef struct Read {
  Ctx *c;
  AstFile *file;
} Read;

static Read read_text(const char *name, const char *text) {
  Read r = {ctx_new(), NULL};
  r.file = ast_parse(r.c, name, text, strlen(text));
  for (uint32_t i = 0; r.file && i < r.file->items.n; i++)
    if (r.file->items.at[i]->block) settings_check(r.c, r.file->items.at[i]);
  return r;
}

static char *printed(Read r, DiagFormat format) {
  char *text;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  diag_print(r.c->diag, f, format, false);
  fclose(f);
  return text;
}

static void expect_text(const char *name, const char *source, const char *wanted) {
  Read r = read_text(name, source);
  char *text = printed(r, DIAG_HUMAN);
  assert_string_equal(text, wanted);
  free(text);
  ctx_free(r.c);
}

static void expect_short(const char *source, const char *wanted) {
  Read r = read_text("t.shard", source);
  char *text = printed(r, DIAG_SHORT);
  assert_string_equal(text, wanted);
  free(text);
  ctx_free(r.c);
}

static char *example(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", EXAMPLES, name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  char *text = calloc(1, 1 << 16);
  assert_true(fread(text, 1, (1 << 16) - 1, f) > 0);
  fclose(f);
  return text;
}

/* The text with line `line` (from 1) replaced. */
static char *edited(const char *text, int line, const char *with) {
  char *out = calloc(1, strlen(text) + strlen(with) + 2);
  const char *start = text, *end;
  while (--line) start = strchr(start, '\n') + 1;
  end = strchr(start, '\n');
  memcpy(out, text, (size_t)(start - text));
  strcat(out, with);
  strcat(out, end);
  return out;
}

static void expect_edit(const char *name, int line, const char *with, const char *wanted) {
  char *text = example(name), *wrong = edited(text, line, with);
  expect_text(name, wrong, wanted);
  free(text);
  free(wrong);
}

static void open_dimension_list(void **state) {
  (void)state;
  expect_edit(
      "gpt2.shard", 15, "  param c_proj   [Heads, Head, Embed      ~ normal(resid)",
      "error[E0101]: expected `,` or `]` in a dimension list, found `~`\n"
      "  --> gpt2.shard:15:43\n"
      "15 |   param c_proj   [Heads, Head, Embed      ~ normal(resid)\n"
      "   |                                           ^ list opened at column 18 is still open\n"
      "   = help: close it: `[Heads, Head, Embed]`\n");
}

static void unknown_setting(void **state) {
  (void)state;
  expect_edit("plans.shard", 14, "  zero_stage 2 over data",
              "error[E0601]: plan blocks have no setting `zero_stage`\n"
              "  --> plans.shard:14:3\n"
              "14 |   zero_stage 2 over data\n"
              "   |   ^^^^^^^^^^ unknown setting\n"
              "   = help: write `zero 2 over data` (settings of plan: on mesh place micro pipeline "
              "zero ...)\n");
}

static void other_mistakes(void **state) {
  (void)state;
  expect_text("t.shard", "const a = 25MXB\n",
              "error[E0102]: `25MXB` is not a number with a unit\n"
              "  --> t.shard:1:13\n"
              "1 | const a = 25MXB\n"
              "  |             ^^^ no such unit\n"
              "  = help: a unit with a similar name exists: `25MiB`\n");
  expect_text("t.shard", "use \"std\nconst a = 1\n",
              "error[E0103]: string without an end\n"
              "  --> t.shard:1:5\n"
              "1 | use \"std\n"
              "  |     ^^^^ no `\"` on this line\n"
              "  = help: close it with `\"`\n");
  expect_text("t.shard", "train t {\n  batch 8\n  steps 2\n  optim sgd\n  batch 9\n}\n",
              "error[E0606]: `batch` is written twice\n"
              "  --> t.shard:5:3\n"
              "2 |   batch 8\n"
              "  |   ----- the first one\n"
              "...\n"
              "5 |   batch 9\n"
              "  |   ^^^^^ the second one\n");
}

/* A keyword with a slip in it. */
static void slips(void **state) {
  (void)state;
  expect_text(
      "t.shard", "leyer L(x: [A]) -> [A] { return x }\n",
      "error[E0101]: expected an item (`dims`, `layer`, `model`, `train`, ..), found `leyer`\n"
      "  --> t.shard:1:1\n"
      "1 | leyer L(x: [A]) -> [A] { return x }\n"
      "  | ^^^^^\n"
      "  = help: did you mean `layer`?\n");
  expect_text("t.shard", "model M {\n  parm w [A] ~ 1\n}\n",
              "error[E0101]: expected `,` or `=`, found `w`\n"
              "  --> t.shard:2:8\n"
              "2 |   parm w [A] ~ 1\n"
              "  |        ^\n"
              "  = help: did you mean `param`?\n");
}

/* One mistake gives one message, and what follows is read. */
static void recovers(void **state) {
  (void)state;
  expect_short("const a = (1 + \nconst b = 2\nconst c = 3 $\nconst d = = 4\nconst e = 5\n",
               "t.shard:1:15: error[E0101]: expected an expression in parentheses, found the end "
               "of the line\n"
               "t.shard:3:13: error[E0103]: the character `$` has no meaning\n"
               "t.shard:4:11: error[E0101]: expected an expression in a `const` line, found `=`\n");
  expect_short("model M {\n  x = f(1\nlayer L(x: [A]) -> [A] {\n  return x\n}\n",
               "t.shard:3:1: error[E0101]: expected `}` before `layer`\n");
  Read r = read_text("t.shard",
                     "dims { A; B = ; C }\nlayer L(x: [A] -> [A] {\n  return x\n}\nconst a = 1\n");
  assert_int_equal(diag_errors(r.c->diag), 2);
  assert_int_equal(r.file->items.n, 2);
  assert_true(r.file->items.at[0]->bad);
  assert_int_equal(r.file->items.at[0]->dims.n, 2);
  ctx_free(r.c);
}

static void stops_after_twenty(void **state) {
  (void)state;
  char text[400] = "";
  for (int i = 0; i < 40; i++) strcat(text, "const\n");
  Read r = read_text("t.shard", text);
  assert_true(diag_full(r.c->diag));
  ctx_free(r.c);
}

static void numbers(void **state) {
  (void)state;
  AstNumber n;
  assert_true(ast_number_unit("25MiB", 5, &n) && n.unit == UNIT_BYTES && n.integral == 26214400);
  assert_true(ast_number_unit("25MB", 4, &n) && n.integral == 25000000);
  assert_true(ast_number_unit("15%", 3, &n) && n.unit == UNIT_SHARE && n.value == 0.15);
  assert_true(ast_number_unit("312TFLOPS", 9, &n) && n.unit == UNIT_FLOPS && n.value == 3.12e14);
  assert_true(ast_number_unit("1555GB/s", 8, &n) && n.unit == UNIT_BYTES_PER_SECOND);
  assert_true(ast_number_unit("6e-4", 4, &n) && !n.integer && n.value == 6e-4);
  assert_true(ast_number_unit("10min", 5, &n) && n.unit == UNIT_SECONDS && n.value == 600);
  assert_false(ast_number_unit("5%/s", 4, &n));
  assert_false(ast_number_unit("0x10", 4, &n));
  assert_false(ast_number_unit("1e999", 5, &n));
}

static void tree_as_text(void **state) {
  (void)state;
  Read r = read_text("t.shard", "model M {\n  param w [A, B] ~ normal(0.1) @f32\n  y = -x.b |> f[A "
                                "-> C](p = w[A = i])^2\n}\n");
  char *text;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  ast_print(r.c, r.file, f);
  fclose(f);
  assert_string_equal(text, "file \"t.shard\"\n"
                            "  model M  @1:1\n"
                            "    param w [A, B] ~  @2:3\n"
                            "      call normal  @2:20\n"
                            "        number 0.1  @2:27\n"
                            "      @f32  @2:32\n"
                            "    assign y  @3:3\n"
                            "      |>  @3:7\n"
                            "        negate  @3:7\n"
                            "          field b  @3:8\n"
                            "            name x  @3:8\n"
                            "        ^  @3:15\n"
                            "          call f [A -> C]  @3:15\n"
                            "            p =  @3:25\n"
                            "              gather w[A]  @3:29\n"
                            "                name i  @3:35\n"
                            "          number 2  @3:39\n");
  free(text);
  ctx_free(r.c);
}

/* ---- the quoted text of an expression is that expression ---- */

static bool same_tree(const AstExpr *a, const AstExpr *b) {
  if (!a || !b) return a == b;
  bool same = a->kind == b->kind && a->op == b->op && a->args.n == b->args.n &&
              same_tree(a->base, b->base) && same_tree(a->index, b->index) &&
              same_tree(a->left, b->left) && same_tree(a->right, b->right);
  if (a->name.text) same &= b->name.text && !strcmp(a->name.text, b->name.text);
  for (uint32_t i = 0; same && i < a->args.n; i++)
    same = same_tree(a->args.at[i].value, b->args.at[i].value);
  return same;
}

static void reads_back(Ctx *c, const AstExpr *expr) {
  if (!expr) return;
  const char *quoted = span_text(c, expr->span);
  char *source = calloc(1, strlen(quoted) + 16);
  sprintf(source, "const q = (%s)\n", quoted);
  Read again = read_text("quoted.shard", source);
  if (diag_errors(again.c->diag) || !same_tree(expr, again.file->items.at[0]->value))
    fail_msg("`%s` is not the expression that it quotes", quoted);
  ctx_free(again.c);
  free(source);
  reads_back(c, expr->base), reads_back(c, expr->index);
  reads_back(c, expr->left), reads_back(c, expr->right);
  for (uint32_t i = 0; i < expr->args.n; i++) reads_back(c, expr->args.at[i].value);
}

static void all_read_back(const Read r) {
  assert_int_equal(diag_errors(r.c->diag), 0);
  for (uint32_t i = 0; i < r.file->items.n; i++) {
    const AstItem *item = r.file->items.at[i];
    reads_back(r.c, item->value);
    for (uint32_t k = 0; k < item->body.n; k++) reads_back(r.c, item->body.at[k]->value);
    for (uint32_t k = 0; k < item->dims.n; k++) reads_back(r.c, item->dims.at[k].value);
  }
  ctx_free(r.c);
}

static void quoted_expressions(void **state) {
  (void)state;
  static const char *const forms[] = {"8 / (x - 8)",
                                      "(8 - x) / 8",
                                      "(a + b) * (c + d)",
                                      "((a + b)) * (((c)))",
                                      "-(a + b)",
                                      "-(-(a))",
                                      "(a + b)^(c - d)^2",
                                      "(a) |> f",
                                      "(a + b) |> f |> (g)",
                                      "a |> (b |> (c))",
                                      "f((a + b), k = (c + d))",
                                      "w[V = (i + 1)] * (2)",
                                      "[(a), (b + c), [d]]",
                                      "(h.x) / (h.y)",
                                      "(a & b) | (c & (d))",
                                      "(a < b) == (c >= (d))",
                                      "split[A -> B, C]((x))",
                                      "pad[A]((x), (1))",
                                      "(a\n + b) * (\nc + d)",
                                      "(\"t.npy\")"};
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    char source[128];
    snprintf(source, sizeof source, "const q = %s\n", forms[i]);
    all_read_back(read_text("t.shard", source));
  }
  static const char *const files[] = {"gpt2.shard", "llama_mesh.shard", "bert.shard", "vit.shard"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char *text = example(files[i]);
    all_read_back(read_text(files[i], text));
    free(text);
  }
  size_t n;
  all_read_back(read_text("std.shard", std_shard_text(&n)));
}

static void setting_values(void **state) {
  (void)state;
  Read r = read_text(
      "t.shard",
      "train t {\n  batch 8; steps 20\n  optim adamw lr = 6e-4\n  lr wsd warmup = 7\n}\n");
  const AstItem *t = r.file->items.at[0];
  double betas[2];
  assert_int_equal(diag_errors(r.c->diag), 0);
  assert_int_equal(settings_integer(t, ITEM_TRAIN, "batch", NULL), 8);
  assert_true(settings_number(t, ITEM_TRAIN, "optim", "lr") == 6e-4);
  assert_int_equal(settings_numbers(t, "optim", "betas", betas, 2), 2);
  assert_true(betas[0] == 0.9 && betas[1] == 0.999);
  assert_true(settings_number(t, ITEM_TRAIN, "lr", "decay") == 0.2);
  assert_string_equal(settings_word(r.c, NULL, ITEM_TRAIN, "lr", NULL), "constant");
  assert_false(settings_has(t, "seed", NULL));
  ctx_free(r.c);
}

static void wrong_settings(void **state) {
  (void)state;
  expect_short("plan p {\n  zero 4 over data bucket = 25ms acumulate = full\n  place Batch\n  "
               "offload optimizer -> disk\n}\n",
               "t.shard:2:8: error[E0602]: `zero` takes a stage: 0, 1, 2 or 3, found `4`\n"
               "t.shard:2:29: error[E0602]: `bucket` of `zero` takes a number of bytes, such as "
               "25MiB, found `25ms`\n"
               "t.shard:2:34: error[E0601]: `zero` has no option `acumulate`\n"
               "t.shard:3:3: error[E0602]: `place` needs `->` and a place\n"
               "t.shard:4:24: error[E0602]: `offload` takes `host` after `->`, found `disk`\n");
  expect_short(
      "train t {\n  batch 0.5\n  steps 10ms\n  clip\n  optim adamx\n}\nmachine m { }\n",
      "t.shard:2:9: error[E0602]: `batch` takes a whole number of at least 1, found `0.5`\n"
      "t.shard:3:9: error[E0602]: `steps` takes a whole number of at least 1, found `10ms`\n"
      "t.shard:4:3: error[E0602]: `clip` takes a number above 0\n"
      "t.shard:5:9: error[E0602]: `optim` takes one of adamw, sgd, lamb, lion, muon, "
      "schedule_free, adafactor, onebit_adam, found `adamx`\n"
      "t.shard:7:9: error[E0606]: machine block `m` has no `node`\n");
}

static void examples_are_accepted(void **state) {
  (void)state;
  static const char *const names[] = {
      "bert.shard", "gpt1t.shard", "gpt2.shard",  "llama.shard", "mlp.shard", "mnist.shard",
      "moe.shard",  "ops.shard",   "plans.shard", "tiny.shard",  "vit.shard", "tiny_llama.shard"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *text = example(names[i]);
    expect_text(names[i], text, "");
    free(text);
  }
  size_t n;
  const char *text = std_shard_text(&n);
  assert_int_equal(strlen(text), n);
  expect_text("std.shard", text, "");
}

static void near_names(void **state) {
  (void)state;
  static const char *const names[] = {"Embed", "Heads", "Head", "Mlp"};
  assert_string_equal(diag_nearest("Embd", names, 4), "Embed");
  assert_string_equal(diag_nearest("Haeds", names, 4), "Heads");
  assert_null(diag_nearest("Vocab", names, 4));
  assert_null(diag_nearest("", names, 4));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(open_dimension_list),
      cmocka_unit_test(unknown_setting),
      cmocka_unit_test(other_mistakes),
      cmocka_unit_test(recovers),
      cmocka_unit_test(numbers),
      cmocka_unit_test(tree_as_text),
      cmocka_unit_test(quoted_expressions),
      cmocka_unit_test(setting_values),
      cmocka_unit_test(wrong_settings),
      cmocka_unit_test(examples_are_accepted),
      cmocka_unit_test(slips),
      cmocka_unit_test(near_names),
      cmocka_unit_test(stops_after_twenty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
