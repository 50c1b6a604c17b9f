/* The texts of eight typical mistakes, byte for byte: each is what `shardc check` says of an
 * example after an edit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "frontend/lower.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Edit {
  int line; /* 0: no more */
  const char *old, *with;
} Edit;

typedef struct Mistake {
  const char *file;
  Edit edit[3];
  const char *text;
} Mistake;

static const Mistake mistakes[] = {
    {"gpt2.shard",
     {{22, "Linear[Embed", "Linear[Embd"}},
     "error[E0201]: no dimension named `Embd`\n"
     "  --> gpt2.shard:22:23\n"
     "22 |   sub c_fc   = Linear[Embd -> Mlp] with init = normal(0.02)\n"
     "   |                       ^^^^ not in any `dims` block of gpt2.shard\n"
     "   = help: a dimension with a similar name exists: `Embed` (line 7)\n"},
    {"gpt2.shard",
     {{19, "c_proj_b", "c_attn_b"}},
     "error[E0301]: `+` needs one operand to contain all dimensions of the other\n"
     "  --> gpt2.shard:19:40\n"
     "19 |   return dot[Heads, Head](y, c_proj) + c_attn_b\n"
     "   |                                        ^^^^^^^^ has [QKV, Heads, Head]\n"
     "   = left operand has [Batch, Seq, Embed]; QKV, Heads, Head are not in it\n"
     "   = help: `c_proj_b [Embed]` fits; to add all pairs, widen one side: `expand[QKV, "
     "Heads, Head](...)`\n"},
    {"gpt2.shard",
     {{17, "dot[Embed]", "dot[Mlp]"}},
     "error[E0302]: cannot contract `Mlp`: neither operand has it\n"
     "  --> gpt2.shard:17:30\n"
     "17 |   q, k, v = unstack[QKV](dot[Mlp](x, c_attn) + c_attn_b)\n"
     "   |                              ^^^ x is [Batch, Seq, Embed], c_attn is [Embed, QKV, "
     "Heads, Head]\n"
     "   = help: the shared dimension is `Embed`: `dot[Embed](x, c_attn)`\n"},
    {"gpt2.shard",
     {{18, "attention[Seq -> Key; Head](q, k, v, mask = causal)", "softmax[Key](dot[Head](q, k))"}},
     "error[E0303]: `softmax[Key]` of a tensor without `Key`\n"
     "  --> gpt2.shard:18:20\n"
     "18 |   y = softmax[Key](dot[Head](q, k))\n"
     "   |                    ^^^^^^^^^^^^^^^ has [Batch, Seq, Heads]: one score per token, not "
     "one per pair\n"
     "   = `Seq` is in both operands and is not contracted, so it was matched, not crossed\n"
     "   = help: give the keys their own axis: `dot[Head](q, rename[Seq -> Key](k))`\n"},
    {"gpt2.shard",
     {{7, "Heads = 12", "Heads = 10"}},
     "error[E0305]: `Embed / Heads` is not a whole number (768 / 10 = 76.8)\n"
     "  --> gpt2.shard:8:12\n"
     "7 |   Embed  = 768;  Heads = 10;  QKV = 3;  Layers = 12\n"
     "  |                  ---------- set here\n"
     "8 |   Head   = Embed / Heads             # must divide exactly\n"
     "  |            ^^^^^^^^^^^^^ every dimension is an integer\n"
     "  = help: divisors of 768 near 10: 8, 12\n"},
    {"plans.shard",
     {{11, "data = 8", "tensor = 8"},
      {12, "Batch -> data", "Heads, Mlp -> tensor else Embed"},
      {14, "zero      2 over data bucket = 25MiB", ""}},
     "error[E0701]: cannot split `Heads` (12) over mesh axis `tensor` (8)\n"
     "  --> plans.shard:12:13\n"
     "12 |   place     Heads, Mlp -> tensor else Embed\n"
     "   |             ^^^^^ 12 is not a multiple of 8\n"
     "   = `Heads` is a dimension of GPT2.h.*.attn.c_attn, c_attn_b, c_proj\n"
     "   = help: tensor sizes that divide Heads, Mlp and Embed: 1, 2, 3, 4, 6, 12\n"},
    {"plans.shard",
     {{11, "data = 8", "tensor = 4"},
      {12, "Batch -> data", "Heads, Embed -> tensor"},
      {14, "zero      2 over data bucket = 25MiB", ""}},
     "error[E0702]: `h.*.attn.c_attn` would be split twice over mesh axis `tensor`\n"
     "  --> plans.shard:12:20\n"
     "12 |   place     Heads, Embed -> tensor\n"
     "   |                    ^^^^^ `Heads` already takes `tensor` in [Embed, QKV, Heads, Head]\n"
     "   = help: drop `Embed`, or order the choice: `place Heads -> tensor else Embed`\n"},
    {"plans.shard",
     {{13, "16                                    # 512 / (8 x 16) = 4 accumulation steps, derived",
       "24"}},
     "error[E0703]: batch 512 is not a multiple of data x micro = 8 x 24 = 192\n"
     "  --> plans.shard:13:13\n"
     "13 |   micro     24\n"
     "   |             ^^ 512 / 192 is no whole number of accumulation steps\n"
     "   ::: gpt2.shard:48:9  batch 512 (train `web`);  plans.shard:11:20  data = 8\n"
     "   = help: nearest that divide: micro = 16 (4 accumulation steps) or 32 (2)\n"},
};

static char *read_example(Ctx *c, const char *name) {
  FILE *f = fopen(arena_printf(c->arena, EXAMPLES "/%s", name), "rb");
  char *text = arena_alloc(c->arena, 1 << 16);
  assert_non_null(f);
  text[fread(text, 1, (1 << 16) - 1, f)] = 0;
  fclose(f);
  return text;
}

/* The first `old` at or after the line. */
static char *edited(Ctx *c, char *text, const Edit *e) {
  char *at = text;
  for (int line = 1; line < e->line; line++) at = strchr(at, '\n') + 1;
  at = strstr(at, e->old);
  assert_non_null(at);
  return arena_printf(c->arena, "%.*s%s%s", (int)(at - text), text, e->with, at + strlen(e->old));
}

static void write_file(const char *name, const char *text) {
  FILE *f = fopen(name, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
  assert_int_equal(fclose(f), 0);
}

static char *printed(Ctx *c) {
  char *text = NULL;
  size_t n;
  FILE *f = open_memstream(&text, &n);
  diag_print(c->diag, f, DIAG_HUMAN, false);
  fclose(f);
  return text;
}

static void check_mistake(const Mistake *k) {
  static const char *const names[] = {"gpt2.shard", "gpt1t.shard", "plans.shard"};
  Ctx *c = ctx_new();
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *text = read_example(c, names[i]);
    for (int e = 0; e < 3 && !strcmp(names[i], k->file) && k->edit[e].line; e++)
      text = edited(c, text, &k->edit[e]);
    write_file(names[i], text);
  }
  assert_true(check_program(c, k->file, NULL));
  char *text = printed(c);
  assert_string_equal(text, k->text);
  free(text);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(names[i]);
  ctx_free(c);
}

static void test_texts(void **state) {
  char folder[] = "/tmp/shardc-sema-XXXXXX";
  (void)state;
  assert_true(mkdtemp(folder) && !chdir(folder));
  for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) check_mistake(&mistakes[i]);
  assert_true(!chdir("/") && !rmdir(folder));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
