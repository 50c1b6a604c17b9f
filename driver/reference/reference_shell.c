/* The man page, and the completions of bash, zsh and fish, from the tables of commands and options:
   parts of `shardc reference`, written when shardc is built and installed by CMake. */
#include "driver/cmd.h"

/* ---- man ---- */

/* As troff reads text: a leading dot or quote and backslashes are no requests. */
static void put_troff(const char *text) {
  for (; *text; text++)
    if (*text == '\\') fputs("\\e", stdout);
    else if (*text == '-') fputs("\\-", stdout);
    else putchar(*text);
}

static void put_option(const CommandOption *option) {
  fputs(".TP\n.B ", stdout);
  if (option->letter) printf("\\-%c, ", option->letter);
  fputs("\\-\\-", stdout), put_troff(option->name);
  if (option->argument) fputs("=", stdout), put_troff(option->argument);
  putchar('\n'), put_troff(option->help), puts(".");
}

void put_man(void) {
  uint32_t n, options;
  const Command *command = command_table(&n);
  const CommandOption *option = option_table(&options);
  puts(".TH SHARDC 1 \"\" \"shardc\" \"User Commands\"\n.SH NAME\nshardc \\- compile a model "
       "description to an executable that trains it\n.SH SYNOPSIS\n.B shardc\n.I COMMAND\n"
       "[\\fIOPTION\\fR].. [\\fIFILE\\fR]..\n.SH COMMANDS");
  for (uint32_t i = 0; i < n; i++) {
    if (!*command[i].help) continue;
    printf(".TP\n.B %s ", command[i].name), put_troff(command[i].operands);
    putchar('\n'), put_troff(command[i].help), puts(".");
  }
  for (uint32_t i = 0; i < n; i++) {
    if (!*command[i].help) continue;
    printf(".SH OPTIONS OF %s\n", command[i].name);
    for (uint32_t k = 0; k < options; k++)
      if (option[k].commands & command[i].mask && option[k].commands != CMD_ALL)
        put_option(&option[k]);
  }
  puts(".SH OPTIONS OF ALL COMMANDS");
  for (uint32_t k = 0; k < options; k++)
    if (option[k].commands == CMD_ALL) put_option(&option[k]);
  puts(".SH EXIT STATUS\n0 done, 1 errors in the input, 2 wrong use of the command line, 3 a check "
       "failed, 4 a file, tool or device is missing, 70 an error of shardc itself.\n.SH "
       "ENVIRONMENT\n.TP\n.B SHARDC_PATH\nfolders in which \\fBuse\\fR finds model files.\n.TP\n.B "
       "SHARDC_LIB\nthe folder of the runtime library.\n.SH SEE ALSO\nThe documents under "
       "share/doc/shardc; \\fBshardc explain\\fR \\fICODE\\fR; \\fB./model \\-\\-help\\fR of an "
       "executable.");
}

/* ---- completions ---- */

static void put_commands(void) {
  uint32_t n;
  const Command *command = command_table(&n);
  for (uint32_t i = 0, put = 0; i < n; i++)
    if (*command[i].help) printf("%s%s", put++ ? " " : "", command[i].name);
}

static void put_options(unsigned mask) {
  uint32_t n;
  const CommandOption *option = option_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (option[i].commands & mask) printf(" --%s%s", option[i].name, option[i].argument ? "=" : "");
}

void put_bash(void) {
  uint32_t n;
  const Command *command = command_table(&n);
  fputs("# Completion of shardc in bash, made from its tables.\n_shardc() {\n  local "
        "word=${COMP_WORDS[COMP_CWORD]} options=\n  if [ \"$COMP_CWORD\" = 1 ]; then\n    "
        "COMPREPLY=($(compgen -W '",
        stdout);
  put_commands();
  puts("' -- \"$word\"))\n    return\n  fi\n  case ${COMP_WORDS[1]} in");
  for (uint32_t i = 0; i < n; i++) {
    if (!*command[i].help) continue;
    printf("    %s) options='", command[i].name), put_options(command[i].mask), puts("' ;;");
  }
  fputs("    help) options='", stdout), put_commands();
  puts("' ;;\n  esac\n  if [[ $word == -* || ${COMP_WORDS[1]} == help ]]; then\n    "
       "COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n    [[ ${COMPREPLY[0]} == *= ]] && "
       "compopt -o nospace\n  else\n    COMPREPLY=($(compgen -f -- \"$word\"))\n    compopt -o "
       "filenames\n  fi\n}\ncomplete -F _shardc shardc");
}

/* In quotes of zsh and fish. */
static void put_quoted(const char *text) {
  for (; *text; text++)
    if (*text == '\'' || *text == '[' || *text == ']' || *text == ':') putchar(' ');
    else putchar(*text);
}

void put_zsh(void) {
  uint32_t n, options;
  const Command *command = command_table(&n);
  const CommandOption *option = option_table(&options);
  puts("#compdef shardc\n# Completion of shardc in zsh, made from its tables.\nif (( CURRENT == 2 "
       ")); then\n  local -a commands=(");
  for (uint32_t i = 0; i < n; i++)
    if (*command[i].help)
      printf("    '%s:", command[i].name), put_quoted(command[i].help), puts("'");
  puts("  )\n  _describe command commands\n  return\nfi\ncase $words[2] in");
  for (uint32_t i = 0; i < n; i++) {
    if (!*command[i].help) continue;
    printf("  %s) _arguments", command[i].name);
    for (uint32_t k = 0; k < options; k++) {
      if (!(option[k].commands & command[i].mask)) continue;
      printf(" \\\n    '%s--%s%s[", option[k].repeat ? "*" : "", option[k].name,
             option[k].argument ? "=" : "");
      put_quoted(option[k].help), fputs("]", stdout);
      if (option[k].argument)
        putchar(':'), put_quoted(option[k].argument), fputs(":_files", stdout);
      putchar('\'');
    }
    puts(" \\\n    '*:file:_files' ;;");
  }
  puts("esac");
}

void put_fish(void) {
  uint32_t n, options;
  const Command *command = command_table(&n);
  const CommandOption *option = option_table(&options);
  puts("# Completion of shardc in fish, made from its tables.");
  for (uint32_t i = 0; i < n; i++) {
    if (!*command[i].help) continue;
    printf("complete -c shardc -n __fish_use_subcommand -f -a %s -d '", command[i].name);
    put_quoted(command[i].help), puts("'");
    for (uint32_t k = 0; k < options; k++) {
      if (!(option[k].commands & command[i].mask)) continue;
      printf("complete -c shardc -n '__fish_seen_subcommand_from %s' -l %s", command[i].name,
             option[k].name);
      if (option[k].letter) printf(" -s %c", option[k].letter);
      printf("%s -d '", option[k].argument ? " -r" : ""), put_quoted(option[k].help), puts("'");
    }
  }
}
