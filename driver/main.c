/* The driver: finds the command, reads its options, runs it. The only room that sees all others.

   Exit codes: 0 fine, 1 errors in the input, 2 wrong usage, 3 a check said no, 4 something outside
   is missing, 70 an error of shardc itself. There is no command by default, so that new ones can be
   added without changing the meaning of old lines. */
#include "cmd.h"
#include "ir/support/input.h"
#include "ir/support/num.h"
#include "ir/support/stack_room.h"
#include <signal.h>
#include <unistd.h>

static const Command commands[] = {
#define COMMAND(id, name, run, operands, least, most, help)                                        \
  {name, run, operands, least, most, CMD_##id, help},
#include "commands.def"
#undef COMMAND
};
_Static_assert(CMD_COUNT < 31, "an option's commands are bits of an int");

const Command *command_table(uint32_t *n) {
  *n = sizeof commands / sizeof *commands;
  return commands;
}

const Command *command_find(const char *name) {
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (!strcmp(commands[i].name, name)) return &commands[i];
  return NULL;
}

static bool looks_like_file(const char *name) { return strchr(name, '.') || !access(name, R_OK); }

static Exit unknown_command(const char *name) {
  const char *names[CMD_COUNT];
  for (int i = 0; i < CMD_COUNT; i++) names[i] = commands[i].name;
  const char *near = diag_nearest(name, names, CMD_COUNT);
  if (looks_like_file(name))
    return cli_usage("unknown command `%s`; did you mean `shardc compile %s`?", name, name);
  if (near) return cli_usage("unknown command `%s`; did you mean `%s`?", name, near);
  return cli_usage("unknown command `%s`; `shardc help` lists the commands", name);
}

/* Notes the files that the command reads: no output may replace them. */
static void note_inputs(const Cli *o) {
  static const CliOption files[] = {OPT_TUNE_DB, OPT_MEASURED};
  for (uint32_t i = 0; i < o->operands.n; i++) text_note(o->c, o->operands.at[i]);
  for (size_t i = 0; i < COUNT_OF(files); i++)
    if (o->value[files[i]]) text_note(o->c, o->value[files[i]]);
}

static Exit run_command(const Command *cmd, int argc, char **argv) {
  Cli o = {.c = ctx_new()};
  Exit e = cli_parse(&o, cmd, argc, argv);
  if (e == EXIT_FINE) note_inputs(&o);
  if (e == EXIT_FINE && o.value[OPT_HELP]) help_command(stdout, cmd);
  else if (e == EXIT_FINE && o.value[OPT_VERSION]) e = cmd_version(&o);
  else if (e == EXIT_FINE && !can_write_all(&o)) e = cli_report(&o, EXIT_ENVIRONMENT);
  else if (e == EXIT_FINE) e = cmd->run(&o);
  ctx_free(o.c);
  if (fflush(stdout) || ferror(stdout))
    return fputs("shardc: cannot write to stdout\n", stderr), EXIT_ENVIRONMENT;
  return e;
}

/* Handles bug() and failed assertions of libraries: one exit code for all of them. */
static void on_abort(int signal) {
  (void)signal;
  static const char text[] = "shardc: this is an error of shardc, not of the input\n";
  if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(EXIT_BUG);
  _exit(EXIT_BUG);
}

/* The limits of nesting (frontend/syntax, frontend/model) are made for this many bytes. */
static const size_t STACK = (size_t)8 << 20;

static Exit no_stack(size_t had) {
  fprintf(stderr,
          "shardc: the stack is limited to %zu KiB, and %zu are needed: `ulimit -s %zu` before it "
          "starts\n",
          had >> 10, STACK >> 10, STACK >> 10);
  return EXIT_ENVIRONMENT;
}

int main(int argc, char **argv) {
  size_t had = 0;
  if (!stack_room(STACK, &had)) return no_stack(had);
  signal(SIGABRT, on_abort);
  signal(SIGXFSZ, SIG_IGN); /* the write past a limit of file sizes fails, and is reported */
  const char *first = argc > 1 ? argv[1] : "";
  if (!strcmp(first, "--help") || !strcmp(first, "-h")) first = "help";
  if (!strcmp(first, "--version") || !strcmp(first, "-v")) first = "version";
  if (!*first) return help_all(stderr), EXIT_USAGE;
  const Command *cmd = command_find(first);
  if (!cmd) return unknown_command(first);
  return run_command(cmd, argc - 2, argv + 2);
}
