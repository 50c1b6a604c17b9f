/* `shardc fmt`: the canonical layout of files, on stdout, in place (--write), or only compared
   (--check, exit 3). A file with syntax errors is reported and left alone. */
#include "cmd.h"
#include "ir/support/output.h"
#include "frontend/syntax/fmt.h"

static Exit deliver(Cli *o, const char *path, const char *text, size_t n, bool same) {
  bool from_stdin = !strcmp(path, "-");
  if (o->value[OPT_CHECK]) {
    if (!same) output_say(stdout, "%s\n", from_stdin ? "<stdin>" : path);
    return same ? EXIT_FINE : EXIT_NO;
  }
  if (!o->value[OPT_WRITE] || from_stdin) return write_text(o->c, "-", text, n);
  return same ? EXIT_FINE : write_text(o->c, path, text, n);
}

static Exit format_file(Cli *o, const char *path) {
  size_t n = 0, length = 0;
  bool from_stdin = !strcmp(path, "-");
  const char *text = file_read(o->c, path, &n);
  if (!text) return EXIT_ENVIRONMENT;
  const char *made = fmt_text(o->c, from_stdin ? "<stdin>" : path, text, n, &length);
  if (!made) return EXIT_INPUT;
  return deliver(o, path, made, length, length == n && !memcmp(made, text, n));
}

Exit cmd_fmt(Cli *o) {
  static const CliOption written = OPT_WRITE;
  Exit worst = EXIT_FINE;
  if (o->value[OPT_CHECK] && cli_idle(o, &written, 1, "`--check` writes nothing") != EXIT_FINE)
    return EXIT_USAGE;
  for (uint32_t i = 0; i < o->operands.n; i++)
    if (o->value[OPT_WRITE] && !strcmp(o->operands.at[i], "-"))
      return cli_usage("`--write` rewrites files, and `-` is the standard input: leave it out");
  for (uint32_t i = 0; i < o->operands.n; i++) {
    Cli one = *o;
    one.c = ctx_new();
    Exit e = format_file(&one, o->operands.at[i]);
    e = cli_report(&one, e);
    if (e > worst) worst = e;
    ctx_free(one.c);
  }
  return worst;
}
