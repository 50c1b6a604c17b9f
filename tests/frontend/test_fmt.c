/* Guards fmt.c: exact layouts; examples that are canonical already; and, over many damaged copies
   of the examples that can still be read, that the tree and the comments stay and that a second run
   changes nothing. (That the tree stays is also checked by fmt_text itself, which would abort.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "frontend/syntax/fmt.h"
#include <stdlib.h>

static char *format_once(Ctx *c, const char *text, size_t n, size_t *out_n) {
  return fmt_text(c, "test.shard", text, n, out_n);
}

static void expect(const char *text, const char *wanted) {
  Ctx *c = ctx_new();
  size_t n;
  char *made = format_once(c, text, strlen(text), &n);
  assert_non_null(made);
  assert_string_equal(made, wanted);
  assert_int_equal(n, strlen(wanted));
  ctx_free(c);
}

static void operators(void **state) {
  (void)state;
  expect("const a=1+2*-3^ -x-y\n", "const a = 1 + 2 * -3^-x - y\n");
  expect("fn f [ A,B->C ; D ] ( x,y=1 )=x [ A=y ]<=- 2\n",
         "fn f[A, B -> C; D](x, y = 1) = x[A = y] <= -2\n");
  expect("fn f(x)=x|>g|>h&m|not( x )\n", "fn f(x) = x |> g |> h & m | not(x)\n");
  expect("const a = [ -1,2 , b . c ]\n", "const a = [-1, 2, b.c]\n");
}

static void statements(void **state) {
  (void)state;
  expect("model M{param w[A,B]~normal( 0.02 )@f32@nodecay\nstack h[L]of(A,B)with drop=[0,1]\n"
         "input a,b[A]of B\nsub s=Linear[A->B]with bias=none\nreturn(a)\nloss-x\n}",
         "model M {\n  param w [A, B] ~ normal(0.02) @f32 @nodecay\n  stack h [L] of (A, B) with "
         "drop = [0, 1]\n"
         "  input a, b [A] of B\n  sub s = Linear[A -> B] with bias = none\n  return (a)\n  loss "
         "-x\n}\n");
  expect("layer A[D](x:[*,D],y:[D]bool)->[*,D]with e=1{return x}\n",
         "layer A[D](x: [*, D], y: [D] bool) -> [*, D] with e = 1 { return x }\n");
  expect("dims{A,B;C=4 pad 8\nK like A;}\n", "dims {\n  A, B; C = 4 pad 8\n  K like A\n}\n");
  expect("dims {\n\n}\ndims {\n # note\n}\n", "dims {}\ndims {\n  # note\n}\n");
}

static void settings(void **state) {
  (void)state;
  expect("train t for M{optim adamw lr=1e-3 betas=[0.9,0.95]\ndata columns( x=\"a\" "
         "),task=next(a->b,k=-1)-100\n"
         "a.b (1-2) 3 -1\n}",
         "train t for M {\n  optim adamw lr = 1e-3 betas = [0.9, 0.95]\n"
         "  data columns(x = \"a\"), task = next(a -> b, k = -1) -100\n  a.b (1 - 2) 3 -1\n}\n");
  expect(
      "weights w for M {\nh .*.c_attn<-\"a\"as[A,B']\nh[ 0 .. 5 ].w   <- \"b\"\nconfig "
      "n=(A*B)\n}\n",
      "weights w for M {\n  h.*.c_attn <- \"a\" as [A, B']\n  h[0..5].w       <- \"b\"\n  config n "
      "= (A * B)\n}\n");
}

static void lines(void **state) {
  (void)state;
  expect("\xEF\xBB\xBF"
         "const a = 1\n",
         "const a = 1\n");
  expect("\n\nconst a = 1;\n\n\n\nconst b = 2; const c = 3;\r\n\n",
         "const a = 1\n\nconst b = 2; const c = 3\n");
  expect("model M {\n\n    x = y +\n z\n  w = f(a,\n      b\n    )\n    h = x\n  |> g # note\n\n}",
         "model M {\n  x = y +\n    z\n  w = f(a,\n      b\n    )\n  h = x\n    |> g  # note\n}\n");
  expect("dims { A = 1\nB = 2 }\n", "dims {\n  A = 1\n  B = 2\n}\n");
}

static void alignment(void **state) {
  (void)state;
  expect("dims {\n    A    = 1     # one\n    Long = 22    # two\n                 # and more\n    "
         "# own\n}\n",
         "dims {\n  A    = 1       # one\n  Long = 22      # two\n                 # and more\n  # "
         "own\n}\n");
  expect("const a=1 # x\nconst b  =  2\n", "const a = 1  # x\nconst b  =  2\n");
  expect("model M {\n\tparam w\t[A] ~ x\t# note\n}\n",
         "model M {\n  param w [A] ~ x       # note\n}\n");
  expect("const a = \"\xC3\xA9\xC3\xA9\"   # x\n", "const a = \"\xC3\xA9\xC3\xA9\"   # x\n");
}

static void refusal(void **state) {
  (void)state;
  Ctx *c = ctx_new();
  size_t n;
  assert_null(format_once(c, "const a = (1\n", 13, &n));
  assert_string_equal(diag_first_code(c->diag), "E0101");
  ctx_free(c);
}

/* ---- examples ---- */

static const char *const examples[] = {"bert", "gpt1t", "gpt2",  "llama", "mlp", "mnist",
                                       "moe",  "ops",   "plans", "tiny",  "vit", "tiny_llama"};

static char *read_example(const char *path, size_t *n) {
  FILE *f = fopen(path, "rb");
  char *text = malloc(1 << 16);
  assert_non_null(f);
  assert_non_null(text);
  *n = fread(text, 1, 1 << 16, f);
  fclose(f);
  return text;
}

static char *example(size_t i, size_t *n) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s.shard", EXAMPLES, examples[i]);
  return read_example(path, n);
}

static void examples_are_canonical(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
    Ctx *c = ctx_new();
    size_t n, m;
    char *text = example(i, &n), *made = format_once(c, text, n, &m);
    assert_non_null(made);
    text[n] = 0;
    assert_string_equal(made, text);
    free(text);
    ctx_free(c);
  }
}

/* ---- damaged copies ---- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void replace(char **text, size_t *n, size_t at, size_t cut, const char *with) {
  size_t add = strlen(with);
  char *out = malloc(*n - cut + add + 1);
  assert_non_null(out);
  memcpy(out, *text, at);
  memcpy(out + at, with, add);
  memcpy(out + at + add, *text + at + cut, *n - at - cut);
  free(*text);
  *text = out, *n = *n - cut + add;
}

static const char *const pieces[] = {
    " ",  "  ", "\t",       "\n", "\n\n\n",  ";",    " ;\n",         " # note \n",
    "#x", "-",  "(",        "[",  "\n  |> ", "\r\n", "+ ",           "a",
    "{",  "}",  "\xC3\xA9", " =", ".",       "\n#",  "# \xC3\xA9\n", "\t\t"};

static void damage(char **text, size_t *n, uint64_t *seed) {
  size_t at = next_random(seed) % (*n + 1), kind = next_random(seed) % 12;
  while (kind && at < *n && !strchr(" ;\n()[],", (*text)[at])) at++;
  bool blank = at < *n && strchr(" ;\n", (*text)[at]);
  if (kind == 1 && blank) replace(text, n, at, 1, "");
  else if (kind > 6 && blank) replace(text, n, at, 1, pieces[next_random(seed) % 8]);
  else if (kind) replace(text, n, at, 0, pieces[next_random(seed) % 8]);
  else replace(text, n, at, 0, pieces[next_random(seed) % (sizeof pieces / sizeof *pieces)]);
}

/* All comments, without blanks at their ends. Strings hold no line ends. */
static char *comments_of(const char *text, size_t n) {
  char *out = calloc(n + 2, 1);
  bool string = false;
  size_t k = 0;
  assert_non_null(out);
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '"') string = !string;
    if (text[i] == '\n') string = false;
    if (text[i] != '#' || string) continue;
    size_t end = i;
    while (end < n && text[end] != '\n') end++;
    size_t last = end;
    while (last > i && strchr(" \t\r", text[last - 1])) last--;
    memcpy(out + k, text + i, last - i);
    k += last - i, out[k++] = '\n', i = end;
  }
  return out;
}

static bool check_copy(const char *text, size_t n) {
  Ctx *c = ctx_new();
  size_t m, again;
  char *made = format_once(c, text, n, &m);
  if (made) {
    char *before = comments_of(text, n), *after = comments_of(made, m);
    char *twice = format_once(c, made, m, &again);
    assert_string_equal(before, after);
    assert_non_null(twice);
    assert_string_equal(made, twice);
    for (size_t i = 1; i < m; i++) assert_false(made[i] == '\n' && strchr(" \t\r", made[i - 1]));
    free(before), free(after);
  }
  ctx_free(c);
  return made != NULL;
}

static void damaged_examples(void **state) {
  (void)state;
  uint64_t seed = 7;
  int good = 0;
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
    size_t n, m;
    char *original = example(i, &n);
    for (int round = 0; round < ROUNDS; round++) {
      char *text = malloc(m = n);
      assert_non_null(text);
      memcpy(text, original, n);
      for (uint64_t k = 0, most = 1 + next_random(&seed) % 8; k < most; k++)
        damage(&text, &m, &seed);
      good += check_copy(text, m);
      free(text);
    }
    free(original);
  }
  print_message("%d of %d copies could be read\n", good,
                ROUNDS * (int)(sizeof examples / sizeof *examples));
  assert_true(good > ROUNDS);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operators),
                                     cmocka_unit_test(statements),
                                     cmocka_unit_test(settings),
                                     cmocka_unit_test(lines),
                                     cmocka_unit_test(alignment),
                                     cmocka_unit_test(refusal),
                                     cmocka_unit_test(examples_are_canonical),
                                     cmocka_unit_test(damaged_examples)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
