/* Inside the driver: the command line, what the commands share, and their functions. Results go to
 * stdout, talk to stderr. */
#ifndef SHARDC_CMD_H
#define SHARDC_CMD_H
#include "ir/ir.h"

typedef enum Exit {
  EXIT_FINE = 0,
  EXIT_INPUT = 1,       /* errors in the input */
  EXIT_USAGE = 2,       /* wrong use of the command line */
  EXIT_NO = 3,          /* a check said no */
  EXIT_ENVIRONMENT = 4, /* a file, tool or device is missing */
  EXIT_BUG = 70         /* an error of shardc itself */
} Exit;

typedef enum CliOption {
#define OPTION(id, name, letter, argument, repeat, commands, help) OPT_##id,
#include "options.def"
#undef OPTION
  OPT_COUNT
} CliOption;

enum CommandBits {
#define COMMAND(id, name, run, operands, least, most, help) CMD_BIT_##id,
#include "commands.def"
#undef COMMAND
  CMD_COUNT
};
enum CommandMasks {
#define COMMAND(id, name, run, operands, least, most, help) CMD_##id = 1 << CMD_BIT_##id,
#include "commands.def"
#undef COMMAND
  CMD_ALL = (1 << CMD_COUNT) - 1
};

typedef VEC(const char *) Strings;

typedef struct Cli {
  Ctx *c;
  const char *value[OPT_COUNT]; /* "" for an option without argument; NULL: not given */
  Strings dims, sets;           /* -D, --set */
  Strings fixes;                /* --fix */
  Strings operands;
  DiagFormat format;
  bool colour;                    /* of stderr */
  const struct Change *chosen;    /* for what the plan leaves open (driver/fit); NULL: nothing */
  struct LayoutDrawings *layouts; /* wanted of the file that is lowered; NULL: none */
  const char *written;            /* a plan that FILE does not have; NULL: none */
  bool planning;                  /* nothing is compiled */
  bool here;                      /* all ranks will run on this machine */
  double noise; /* in what a step adds up, of each operand; 0: none (passes/math/noise.h) */
} Cli;

typedef Exit CommandRun(Cli *o);
typedef struct Command {
  const char *name;
  CommandRun *run;
  const char *operands;
  uint32_t least, most;
  unsigned mask;
  const char *help;
} Command;

typedef struct CommandOption {
  const char *name;
  char letter;
  const char *argument; /* NULL: none */
  bool repeat;
  unsigned commands;
  const char *help;
} CommandOption;

const Command *command_table(uint32_t *n);
const CommandOption *option_table(uint32_t *n);
const Command *command_find(const char *name);

/* cmd_options.c */
Exit cli_parse(Cli *o, const Command *cmd, int argc,
               char **argv); /* EXIT_FINE or EXIT_USAGE, said on stderr */
Exit cli_usage(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* says it, EXIT_USAGE */
enum { MOST_NUMBER = 1000000 };            /* of steps, seeds, measurements */
static const int64_t MOST_TOKENS = (int64_t)1 << 60;
bool whole_number(const char *text, int64_t least, int64_t most, int64_t *n); /* digits alone */
/* Without the option *n stays as it is. */
Exit cli_whole(const Cli *o, CliOption option, int64_t least, int64_t most, int64_t *n);
/* An option that the call would ignore is refused: one of the list (cli_idle), or any but those of
   the list and those of all commands (cli_only). */
Exit cli_idle(const Cli *o, const CliOption *list, size_t n, const char *why);
Exit cli_only(const Cli *o, const CliOption *list, size_t n, const char *why);
void help_all(FILE *out);
void help_command(FILE *out, const Command *cmd);

/* cmd_dump.c: for all commands that run passes by name */
struct PipelineOptions;
Exit pipeline_options(Cli *o, Module *m, struct PipelineOptions *p); /* target, folders, checks */
Exit run_pipeline(Cli *o, Module *m, const char *until);
Exit emit_ir(Cli *o, Module *m, const char *output);
Exit find_function(const Cli *o, Module *m, const Fn **f); /* --func; NULL: not given */
Exit unknown_pass(Cli *o, const char *name);

/* dump_*.c: other forms of a module, as text in o's arena */
char *module_json(Module *m, const Fn *only, size_t *n); /* NULL: all functions */
char *module_dot(Module *m, const Fn *only, size_t *n);  /* NULL: all but kernel functions */
Exit dump_html(Cli *o, Module *m, const char *output);   /* dump_html.c */
Exit dump_layout(Cli *o, bool svg, const char *output);  /* --layout; cmd_layout.c */
const char *page_html_text(size_t *n);                   /* page.html, embedded */
char *text_diff(Arena *a, const char *before, const char *after, const char *const names[2],
                size_t *n); /* unified; empty if equal */
char *text_changes(Arena *arena, const char *before, const char *after, size_t *n); /* by entries */

/* cmd_compile.c: operand 0 to an executable; says what is wrong */
Exit compile_executable(Cli *o, const char *output, Module **m);

/* cmd_load.c */
typedef enum FileKind { FILE_SHARD, FILE_IR, FILE_MISSING } FileKind;
char *file_read(Ctx *c, const char *path, size_t *n); /* NULL: cannot be read (E0001) */
FileKind file_kind(Ctx *c, const char *path);
/* The same call in a context of its own, which the caller frees before that of o: it has what o has
   read of standard input or a pipe. */
Cli cli_again(const Cli *o);
/* Operand 0 -> a module. Diagnostics are not printed. */
Exit load_module(Cli *o, Module **m);
/* --tune-db, --require-tuned: records become settings of the module (tune_records.c) */
Exit use_records(Cli *o, Module *m);
const char *machine_target(const Module *m);
bool machine_compiles(const Cli *o, const Module *m);
Exit know_targets(const Cli *o);          /* one of the list of --target may be unknown */
Exit describe_target(Cli *o, Module *m);  /* before passes run; what a dump says already is kept */
bool can_write(Ctx *c, const char *path); /* false: E0002 */
bool can_write_all(const Cli *o); /* the files and folders that options name; false: E0002 */
Exit write_text(Ctx *c, const char *path, const char *text,
                size_t n);                  /* "-": stdout; else whole or not at all */
bool make_folder(Ctx *c, const char *path); /* false: E0002 */
Exit exit_of(const Cli *o, Exit otherwise); /* what the diagnostics mean for the exit code */
Exit cli_report(Cli *o,
                Exit otherwise); /* prints the diagnostics; EXIT_INPUT if there are errors, or
                                        EXIT_ENVIRONMENT */

/* cmd_check.c: all that `check` says of a file, without its lines on models and plans */
void check_beyond(Cli *o, const char *path);

/* data/data_check.c: E1401, E1404 */
struct CheckResult;
void check_data_files(Cli *o, const struct CheckResult *result);

/* cmd_explain.c: its tables, and texts of them; false: nothing was written */
bool explain_operator(FILE *out, Ctx *c, const char *name);
bool explain_setting(FILE *out, const char *word);
typedef struct Explanation {
  const char *code, *title, *cause, *example, *repair;
} Explanation;
typedef struct RuntimeError {
  int number, status;
  const char *text;
} RuntimeError;
const Explanation *explanation_table(uint32_t *n);
const RuntimeError *runtime_error_table(uint32_t *n);

/* reference_editors.c: to stdout */
void put_textmate(void);
void put_vim(void);
void put_dictionary(void);

/* reference_shell.c: to stdout */
void put_man(void);
void put_bash(void);
void put_zsh(void);
void put_fish(void);

#define COMMAND(id, name, run, operands, least, most, help) CommandRun run;
#include "commands.def"
#undef COMMAND
#endif
