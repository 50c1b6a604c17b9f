/* Any bytes as a `.shard` file: lexer, parser, printer, fmt, places, checker, lowering, messages.
   It must end, with or without diagnostics; a file that checks without errors must lower to IR that
   verifies. The file that the checker reads is in the working directory and is written anew for
   each input; its name is the same in every run, since names are hashed and so change the
   coverage. */
#include "frontend/syntax/ast_find.h"
#include "frontend/syntax/fmt.h"
#include "frontend/lower.h"
#include "ir/ir.h"
#include <stdlib.h>

static const char path[] = "fuzz_input.shard";

static void write_input(const uint8_t *data, size_t n) {
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

static void read_and_print(const uint8_t *data, size_t n, FILE *nowhere) {
  Ctx *c = ctx_new();
  char *text = arena_strndup(c->arena, (const char *)data, n);
  AstFile *f = ast_parse(c, "input.shard", text, n);
  if (f) ast_print(c, f, nowhere);
  diag_print(c->diag, nowhere, DIAG_HUMAN, true);
  diag_print_list(c->diag, nowhere, false);
  ctx_free(c);
}

/* The questions of an editor at any place: its name, and the words that fit. */
static void ask(const uint8_t *data, size_t n) {
  Ctx *c = ctx_new();
  AstCursor cursor;
  char *text = arena_strndup(c->arena, (const char *)data, n);
  const AstFile *f = ast_parse(c, "input.shard", text, n);
  for (size_t at = 0; at <= n; at += 1 + n / 64) {
    AstFound found = {0};
    if (f) found = ast_find(f, (uint32_t)at);
    if (found.role && !found.name.text) abort();
  }
  for (int part = 1; part <= 4; part++)
    if (ast_cursor(c, arena_strndup(c->arena, text, n * (size_t)part / 4), n * (size_t)part / 4,
                   &cursor) &&
        !cursor.n)
      abort();
  ctx_free(c);
}

static void format(const uint8_t *data, size_t n) {
  Ctx *c = ctx_new();
  size_t once, twice;
  char *text = arena_strndup(c->arena, (const char *)data, n);
  char *made = fmt_text(c, "input.shard", text, n, &once);
  char *again = made ? fmt_text(c, "input.shard", made, once, &twice) : NULL;
  if (made && (!again || once != twice || memcmp(made, again, once))) abort();
  ctx_free(c);
}

static bool check(FILE *nowhere) {
  Ctx *c = ctx_new();
  CheckResult r = {0};
  bool good = check_program(c, path, &r) && !diag_errors(c->diag);
  diag_print(c->diag, nowhere, DIAG_HUMAN, false);
  diag_print(c->diag, nowhere, DIAG_JSON, false);
  ctx_free(c);
  return good;
}

static void lower(FILE *nowhere) {
  Ctx *c = ctx_new();
  LowerOptions o = {.path = path};
  Module *m = lower_program(c, &o);
  bool failed = m && !diag_errors(c->diag) && !ir_verify(m);
  diag_print(c->diag, failed ? stderr : nowhere, DIAG_HUMAN, false);
  if (failed) abort();
  ctx_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  write_input(data, n);
  read_and_print(data, n, nowhere);
  format(data, n);
  ask(data, n);
  if (check(nowhere)) lower(nowhere);
  return 0;
}
