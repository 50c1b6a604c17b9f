/* The command line by the table options.def: long options with = or a following argument, short
   ones with or without a blank, in any order; `--` ends them. The same table writes --help. */
#include "cmd.h"
#include "ir/support/columns.h"
#include "ir/support/num.h"
#include "ir/support/output.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const CommandOption options[] = {
#define OPTION(id, name, letter, argument, repeat, commands, help)                                 \
  {name, letter, argument, repeat, commands, help},
#include "options.def"
#undef OPTION
};
_Static_assert(COUNT_OF(options) == OPT_COUNT, "a row per OptionId");

const CommandOption *option_table(uint32_t *n) {
  *n = OPT_COUNT;
  return options;
}

Exit cli_usage(const char *format, ...) {
  char *text = NULL;
  va_list args;
  va_start(args, format);
  int n = vasprintf(&text, format, args);
  va_end(args);
  output_say(stderr, "shardc: %s\n", n < 0 ? format : text);
  if (n >= 0) free(text);
  return EXIT_USAGE;
}

/* ---- help ---- */

static void help_options(FILE *out, unsigned mask) {
  fputs("\nOptions:\n", out);
  for (int i = 0; i < OPT_COUNT; i++) {
    const CommandOption *option = &options[i];
    char left[40], letter[8] = "    ";
    if (!(option->commands & mask)) continue;
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name, option->argument ? "=" : "",
             option->argument ? option->argument : "");
    put_columns(out, left, 28, option->help);
  }
}

void help_all(FILE *out) {
  uint32_t n;
  const Command *command = command_table(&n);
  fputs("shardc compiles a model description to an executable that trains it.\n\nUsage: shardc "
        "COMMAND ...\n\nCommands:\n",
        out);
  for (uint32_t i = 0; i < n; i++) {
    char left[80];
    if (!*command[i].help) continue;
    snprintf(left, sizeof left, "%-8s %s", command[i].name, command[i].operands);
    put_columns(out, left, 32, command[i].help);
  }
  fputs("\n`shardc help COMMAND` shows the options of a command.\n", out);
}

void help_command(FILE *out, const Command *cmd) {
  fprintf(out, "shardc %s: %s\n\nUsage: shardc %s%s%s\n", cmd->name, cmd->help, cmd->name,
          *cmd->operands ? " " : "", cmd->operands);
  help_options(out, cmd->mask);
}

/* ---- numbers ---- */

bool whole_number(const char *text, int64_t least, int64_t most, int64_t *n) {
  char *end;
  errno = 0;
  long long given = strtoll(text, &end, 10);
  if (*text < '0' || *text > '9' || *end || errno || given < least || given > most) return false;
  *n = given;
  return true;
}

Exit cli_whole(const Cli *o, CliOption option, int64_t least, int64_t most, int64_t *n) {
  const char *text = o->value[option];
  if (!text || whole_number(text, least, most, n)) return EXIT_FINE;
  return cli_usage("`--%s` takes a whole number from %lld to %lld, not `%s`", options[option].name,
                   (long long)least, (long long)most, text);
}

/* ---- options without effect ---- */

Exit cli_idle(const Cli *o, const CliOption *list, size_t n, const char *why) {
  for (size_t i = 0; i < n; i++)
    if (o->value[list[i]])
      return cli_usage("`--%s` would be ignored: %s", options[list[i]].name, why);
  return EXIT_FINE;
}

Exit cli_only(const Cli *o, const CliOption *list, size_t n, const char *why) {
  for (CliOption option = 0; option < OPT_COUNT; option++) {
    bool used = options[option].commands == CMD_ALL;
    for (size_t i = 0; i < n; i++) used |= list[i] == option;
    if (!used && o->value[option]) return cli_idle(o, &option, 1, why);
  }
  return EXIT_FINE;
}

/* ---- reading ---- */

static int find_long(const char *name, size_t n) {
  for (int i = 0; i < OPT_COUNT; i++)
    if (strlen(options[i].name) == n && !strncmp(options[i].name, name, n)) return i;
  return -1;
}

static int find_letter(char letter) {
  for (int i = 0; i < OPT_COUNT; i++)
    if (options[i].letter && options[i].letter == letter) return i;
  return -1;
}

static Exit unknown_option(Cli *o, const Command *cmd, const char *text, size_t n) {
  const char *names[OPT_COUNT], *name = arena_strndup(o->c->arena, text, n);
  uint32_t count = 0;
  for (int i = 0; i < OPT_COUNT; i++)
    if (options[i].commands & cmd->mask) names[count++] = options[i].name;
  const char *near = n > 2 ? diag_nearest(name + 2, names, count) : NULL;
  if (near) return cli_usage("unknown option `%s`; did you mean `--%s`?", name, near);
  return cli_usage("unknown option `%s`; `shardc help %s` lists the options", name, cmd->name);
}

/* Does one word take several values? */
static bool is_list(int id) { return options[id].argument && strstr(options[id].argument, ",.."); }

/* The value that a word before gave the option, or its KEY; NULL: none did. The last value of a dim
   or setting counts, so that a line can change what its begin says. */
static const char *given_before(const Cli *o, int id, const Strings *list, const char *value) {
  size_t n = strcspn(value, "=") + 1;
  if (!options[id].repeat) return o->value[id];
  if (!is_list(id)) return NULL;
  for (uint32_t i = 0; i < list->n; i++)
    if (!strncmp(list->at[i], value, n)) return list->at[i];
  return NULL;
}

/* A second value is refused; the same one again says nothing new. */
static Exit given_twice(Cli *o, int id, const char *before, const char *value) {
  const char *name = arena_printf(o->c->arena, "--%s", options[id].name), *more = value;
  if (options[id].repeat)
    name = arena_printf(o->c->arena, "%s %.*s", name, (int)strcspn(value, "="), value),
    more = strchr(value, '=') + 1;
  if (is_list(id))
    return cli_usage("`%s` was given twice; several are written `--%s %s,%s`", name,
                     options[id].name, before, more);
  return cli_usage("`%s` was given twice: `%s` and `%s`", name, before, value);
}

static Exit store(Cli *o, const Command *cmd, int id, const char *value) {
  Strings *list = id == OPT_DIM ? &o->dims : id == OPT_FIX ? &o->fixes : &o->sets;
  if (!(options[id].commands & cmd->mask))
    return cli_usage("`shardc %s` has no option `--%s`", cmd->name, options[id].name);
  if (options[id].argument && !*value)
    return cli_usage("`--%s` needs %s, and was given nothing", options[id].name,
                     options[id].argument);
  if (options[id].repeat && (!strchr(value, '=') || *value == '='))
    return cli_usage("`%s` is not of the form %s", value, options[id].argument);
  const char *before = given_before(o, id, list, value);
  if (before && strcmp(before, value) != 0) return given_twice(o, id, before, value);
  if (options[id].repeat && !before) vec_push(o->c->arena, *list, value);
  o->value[id] = value;
  return EXIT_FINE;
}

/* The words of an argument that follow the option: as many as the table names, a blank between. */
static const char *read_words(Cli *o, const char *wanted, int argc, char **argv, int *i) {
  const char *value = argv[++*i];
  for (; (wanted = strchr(wanted, ' ')); wanted++) {
    if (*i + 1 >= argc) return NULL;
    value = arena_printf(o->c->arena, "%s %s", value, argv[++*i]);
  }
  return value;
}

/* One option at argv[*i]; *i moves on over its argument if that is not in the same word. */
static Exit read_option(Cli *o, const Command *cmd, int argc, char **argv, int *i) {
  const char *word = argv[*i], *value = NULL;
  bool is_long = word[1] == '-';
  size_t n = is_long ? strcspn(word, "=") : 2;
  int id = is_long ? find_long(word + 2, n - 2) : find_letter(word[1]);
  if (id < 0) return unknown_option(o, cmd, word, n);
  if (word[n]) value = word + n + (is_long ? 1 : word[n] == '=');
  if (!options[id].argument && value)
    return cli_usage("`%s` takes no argument", arena_strndup(o->c->arena, word, n));
  if (options[id].argument && !value) {
    if (*i + 1 >= argc) return cli_usage("`%s` needs %s", word, options[id].argument);
    value = read_words(o, options[id].argument, argc, argv, i);
    if (!value) return cli_usage("`%s` needs %s", word, options[id].argument);
  }
  return store(o, cmd, id, value ? value : "");
}

static Exit read_format(Cli *o) {
  const char *text = o->value[OPT_MESSAGES] ? o->value[OPT_MESSAGES] : "human";
  if (!strcmp(text, "human")) o->format = DIAG_HUMAN;
  else if (!strcmp(text, "short")) o->format = DIAG_SHORT;
  else if (!strcmp(text, "json")) o->format = DIAG_JSON;
  else return cli_usage("`--message-format` is one of human, short, json, not `%s`", text);
  return EXIT_FINE;
}

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value && strcmp(value, "0");
}

static Exit read_colour(Cli *o) {
  const char *text = o->value[OPT_COLOR] ? o->value[OPT_COLOR] : "auto", *terminal = getenv("TERM");
  const char *no = getenv("NO_COLOR");
  bool plain = (no && *no) || (terminal && !strcmp(terminal, "dumb"));
  if (!strcmp(text, "always")) o->colour = true;
  else if (!strcmp(text, "never")) o->colour = false;
  else if (strcmp(text, "auto"))
    return cli_usage("`--color` is one of auto, always, never, not `%s`", text);
  else if (is_set("CLICOLOR_FORCE") || is_set("FORCE_COLOR")) o->colour = true;
  else o->colour = !plain && isatty(STDERR_FILENO);
  return EXIT_FINE;
}

static Exit check_operands(const Cli *o, const Command *cmd) {
  if (o->value[OPT_HELP] || o->value[OPT_VERSION]) return EXIT_FINE;
  if (o->operands.n < cmd->least && !o->value[OPT_LIST])
    return cli_usage("`shardc %s` needs %s", cmd->name, cmd->operands);
  if (o->operands.n > cmd->most)
    return cli_usage("`shardc %s` takes no operand `%s`", cmd->name, o->operands.at[cmd->most]);
  return EXIT_FINE;
}

/* Only an executable has several targets. */
static Exit check_target(const Cli *o, const Command *cmd) {
  const char *list = o->value[OPT_TARGET];
  bool one = !(cmd->mask & (CMD_COMPILE | CMD_RUN | CMD_VERIFY));
  if (!list || !one || !strchr(list, ',')) return EXIT_FINE;
  return cli_usage("`--target %s`: one target at a time; `compile` puts several into an executable",
                   list);
}

Exit cli_parse(Cli *o, const Command *cmd, int argc, char **argv) {
  bool ended = false;
  Exit e = EXIT_FINE;
  for (int i = 0; i < argc && e == EXIT_FINE; i++) {
    bool option = !ended && argv[i][0] == '-' && argv[i][1];
    if (option && !strcmp(argv[i], "--")) ended = true;
    else if (option) e = read_option(o, cmd, argc, argv, &i);
    else vec_push(o->c->arena, o->operands, argv[i]);
  }
  if (e == EXIT_FINE) e = check_operands(o, cmd);
  if (e == EXIT_FINE) e = check_target(o, cmd);
  if (e == EXIT_FINE) e = read_format(o);
  return e == EXIT_FINE ? read_colour(o) : e;
}
