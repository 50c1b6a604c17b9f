/* Any bytes as a `.shard` file: lexer, parser, printer, fmt, checker, lowering, messages. It must
   end, with or without diagnostics; what checks without errors must lower to IR that verifies. The
   file that the checker reads stands in /dev/shm or /tmp and is written anew for each input. */
#include "frontend/fmt.h"
#include "frontend/lower.h"
#include "ir/ir.h"
#include <stdlib.h>
#include <unistd.h>

static const char *write_input(const uint8_t *data, size_t n) {
  static char path[64];
  if (!*path)
    snprintf(path, sizeof path, "%s/fuzz_front.%ld.shard",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm", (long)getpid());
  FILE *f = fopen(path, "wb");
  if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
  return path;
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

static void format(const uint8_t *data, size_t n) {
  Ctx *c = ctx_new();
  size_t once, twice;
  char *text = arena_strndup(c->arena, (const char *)data, n);
  char *made = fmt_text(c, "input.shard", text, n, &once);
  char *again = made ? fmt_text(c, "input.shard", made, once, &twice) : NULL;
  if (made && (!again || once != twice || memcmp(made, again, once))) abort();
  ctx_free(c);
}

static bool check(const char *path, FILE *nowhere) {
  Ctx *c = ctx_new();
  CheckResult r = {0};
  bool good = check_program(c, path, &r) && !diag_errors(c->diag);
  diag_print(c->diag, nowhere, DIAG_HUMAN, false);
  diag_print(c->diag, nowhere, DIAG_JSON, false);
  ctx_free(c);
  return good;
}

static void lower(const char *path, FILE *nowhere) {
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
  const char *path = write_input(data, n);
  read_and_print(data, n, nowhere);
  format(data, n);
  if (check(path, nowhere)) lower(path, nowhere);
  return 0;
}
