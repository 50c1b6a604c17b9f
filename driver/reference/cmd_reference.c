/* `shardc reference WHAT`: the parts of docs/ that are made from tables: settings.md, errors.md,
   operators.md, kernels/families.md. Not in the list of commands: people read the documents, and a
   test compares them with what this writes. The files for editors are in reference_editors.c. */
#include "driver/cmd.h"
#include "frontend/syntax/operators.h"
#include "frontend/settings/settings.h"
#include <stdlib.h>

/* ---- text in tables ---- */

static void put_cell(const char *text) {
  for (; *text; text++) fputs(*text == '|' ? "\\|" : (char[]){*text, 0}, stdout);
}

static void put_code(const char *text) {
  if (!*text) return;
  putchar('`'), put_cell(text), putchar('`');
}

static void put_head(const char *title, const char *table, const char *words) {
  printf("# %s\n\nMade from `%s`; change that file, not this one.\n\n%s\n", title, table, words);
}

/* A paragraph, cut between words into lines of 120 characters at most, as all documents are. */
static void put_paragraph(const char *text) {
  size_t column = 0;
  for (size_t n; *text; text += n) {
    n = strcspn(text, " ") + strspn(text + strcspn(text, " "), " ");
    size_t word = strcspn(text, " ");
    if (column && column + 1 + word > 120) putchar('\n'), column = 0;
    if (column) putchar(' '), column++;
    printf("%.*s", (int)word, text), column += word;
  }
  putchar('\n');
}

/* ---- settings.md ---- */

static bool is_line(const SettingRow *row, AstItemKind block) {
  return row->block == block && row->kind == ROW_LINE;
}

/* Is `row` about the line `word`? `*only`: the choice, or the option's key, that it belongs to. */
static bool is_part(const SettingRow *row, const SettingRow *line, const char **only) {
  size_t n = strlen(line->word);
  *only = "";
  if (row->block != line->block || row->kind == ROW_LINE || strncmp(row->word, line->word, n))
    return false;
  if (row->word[n] == '.') *only = row->word + n + 1;
  return !row->word[n] || row->word[n] == '.';
}

static const char *operands_text(const SettingRow *row) {
  if (row->flags & SETTING_KEYS) return "NAME = N, ..";
  if (row->flags & SETTING_FREE) return "KEY = VALUE, ..";
  if (row->type == TYPE_NOTHING) return "";
  return row->most > 1 ? "VALUE, .." : row->type == TYPE_WORD ? "WORD" : "VALUE";
}

/* With a capital letter, as a sentence has it. */
static void put_sentence(FILE *out, const char *text) {
  putc(*text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text, out);
  fprintf(out, "%s.", text + 1);
}

/* Writes the help of a line, its operands, and whether it is required. */
static void write_line_help(FILE *out, const SettingRow *row) {
  put_sentence(out, row->help);
  if (row->type != TYPE_NOTHING && row->type != TYPE_WORD)
    fprintf(out, " Takes %s.", setting_type_text(row->type));
  const PlannedRow *later = settings_planned_row(row->block, row->word, NULL);
  if (later && !later->value) fputs(" Not built yet.", out);
  if (later && later->value && *later->value == '!')
    fprintf(out, " Other than `%s` is not built yet.", later->value + 1);
  if (row->flags & SETTING_NEEDED) fputs(" The block must have it.", out);
  if (row->flags & SETTING_MANY) fputs(" May be written more than once.", out);
  if (*row->otherwise) fprintf(out, " Default: `%s`.", row->otherwise);
}

static void put_line_head(const SettingRow *row) {
  const char *operands = operands_text(row);
  printf("\n### `%s%s%s%s`\n\n", row->word, *operands ? " " : "", operands,
         row->flags & SETTING_ARROW ? " -> .." : "");
  char *help;
  size_t n;
  FILE *out = heap_stream(&help, &n);
  write_line_help(out, row);
  fclose(out), put_paragraph(help), free(help);
}

/* Marks words that no pass reads yet. word: of the line; choice: one of it, or NULL */
static void put_planned(const SettingRow *row, const char *key, const char *choice) {
  char word[32];
  snprintf(word, sizeof word, "%.*s", (int)strcspn(row->word, "."), row->word);
  const PlannedRow *p = settings_planned_row(row->block, word, key);
  if (!p) return;
  if (choice) fputs(p->value && settings_plans(p, choice) ? "; not built yet" : "", stdout);
  else if (!p->value) fputs("; not built yet", stdout);
  else if (*p->value == '!') printf("; other than `%s` is not built yet", p->value + 1);
}

static void put_choices(const SettingRow *rows, uint32_t n, const SettingRow *line) {
  const char *only;
  bool begun = false;
  for (uint32_t i = 0; i < n; i++) {
    const SettingRow *row = &rows[i];
    if (row->kind != ROW_CHOICE || !is_part(row, line, &only) || *only) continue;
    if (!begun) puts("\n| word | meaning |\n|---|---|");
    begun = true;
    fputs("| ", stdout), put_code(row->key), fputs(" | ", stdout), put_cell(row->help);
    put_planned(row, NULL, row->key), puts(" |");
  }
}

static bool is_value(const SettingRow *row, const SettingRow *option) {
  size_t k = strlen(option->word);
  return row->kind == ROW_CHOICE && row->block == option->block &&
         !strncmp(row->word, option->word, k) && row->word[k] == '.' &&
         !strcmp(row->word + k + 1, option->key);
}

/* The words that an option of type WORD may be: `f32`, `bf16` */
static void put_words(const SettingRow *rows, uint32_t n, const SettingRow *option) {
  bool begun = false;
  for (uint32_t i = 0; i < n; i++) {
    if (!is_value(&rows[i], option)) continue;
    fputs(begun ? ", " : "", stdout), put_code(rows[i].key);
    begun = true;
  }
  if (!begun) fputs("a word", stdout);
}

static void put_option(const SettingRow *rows, uint32_t n, const SettingRow *row,
                       const char *only) {
  fputs("| ", stdout), put_code(row->key), fputs(" | ", stdout);
  if (row->type == TYPE_WORD) put_words(rows, n, row);
  else put_cell(setting_type_text(row->type));
  fputs(" | ", stdout), put_code(row->otherwise), fputs(" | ", stdout), put_cell(row->help);
  if (*only) printf(" (with `%s`)", only);
  put_planned(row, row->key, NULL);
  puts(" |");
}

static void put_options(const SettingRow *rows, uint32_t n, const SettingRow *line) {
  const char *only;
  bool begun = false;
  for (uint32_t i = 0; i < n; i++) {
    if (rows[i].kind != ROW_OPTION || !is_part(&rows[i], line, &only)) continue;
    if (!begun) puts("\n| option | takes | default | meaning |\n|---|---|---|---|");
    begun = true;
    put_option(rows, n, &rows[i], only);
  }
}

/* The meanings of the words that options of the line may be. */
static void put_values(const SettingRow *rows, uint32_t n, const SettingRow *line) {
  const char *only;
  bool begun = false;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < n && rows[i].kind == ROW_OPTION && is_part(&rows[i], line, &only);
         k++) {
      if (!is_value(&rows[k], &rows[i])) continue;
      if (!begun) puts("\n| value | meaning |\n|---|---|");
      begun = true;
      printf("| `%s = %s`%s%s%s | ", rows[i].key, rows[k].key, *only ? " (with `" : "", only,
             *only ? "`)" : "");
      put_cell(rows[k].help), puts(" |");
    }
}

static void put_settings(void) {
  static const AstItemKind blocks[] = {ITEM_TRAIN, ITEM_PLAN, ITEM_MACHINE, ITEM_WEIGHTS};
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  put_head("Settings", "frontend/settings/settings.def",
           "A settings block holds lines: a word, its operands, then options `key = value`. An "
           "option that is not written\n"
           "has its default. An option without a default is off unless it is written, or its "
           "meaning says what happens.\n"
           "`shardc explain setting:WORD` shows one line; `--set train.steps=10` and `--set "
           "train.optim.lr=1e-4` on the\n"
           "command line override the file.\n\n"
           "Units: `KiB MiB GiB TiB` are powers of 1024, `KB MB GB TB` of 1000, both also with "
           "`/s`; `TFLOPS PFLOPS`;\n"
           "`us ms s min h`; `%`.");
  for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
    printf("\n## `%s`\n", ast_item_word(blocks[b]));
    for (uint32_t i = 0; i < n; i++) {
      if (!is_line(&rows[i], blocks[b])) continue;
      put_line_head(&rows[i]), put_choices(rows, n, &rows[i]);
      put_options(rows, n, &rows[i]), put_values(rows, n, &rows[i]);
    }
  }
}

/* ---- operators.md ---- */

static void put_operators(void) {
  uint32_t n;
  const Operator *operator= operator_table(&n);
  put_head("Operators and the library", "frontend/syntax/operators.def",
           "How dims of several operands go together is in [language.md](language.md); `shardc "
           "explain op:NAME` shows one\n"
           "entry, with the definition in `std.shard` where there is one. Besides: `+ - * /`, `^` "
           "with a number, comparisons,\n"
           "`&`, `|`, and `w[V = i]`, which reads w at index i.");
  for (int s = 0; s < SECTION_COUNT; s++) {
    printf("\n## %s\n\n| form | meaning | gradient |\n|---|---|---|\n", operator_section(s));
    for (uint32_t i = 0; i < n; i++) {
      if ((int)operator[i].section != s) continue;
      fputs("| ", stdout), put_code(operator[i].form), fputs(" | ", stdout),
          put_cell(operator[i].meaning);
      fputs(" | ", stdout), put_cell(operator[i].gradient), puts(" |");
    }
  }
}

/* ---- errors.md ---- */

static const char *group_name(const char *code) {
  static const char *const names[][2] = {{"E00", "Files"},
                                         {"E01", "Syntax"},
                                         {"E02", "Names"},
                                         {"E03", "Dims, sizes, losses, masks"},
                                         {"E04", "Kinds of values"},
                                         {"E05", "Weights"},
                                         {"E06", "Settings and choices"},
                                         {"E07", "Plans"},
                                         {"E08", "Memory"},
                                         {"E09", "Not built yet"},
                                         {"E10", "Text of the IR"},
                                         {"E11", "Rules of the IR"},
                                         {"E12", "Passes"},
                                         {"E13", "Making the executable"},
                                         {"W", "Warnings"},
                                         {"N", "Notes"},
                                         {"R", "Errors of the executable"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strncmp(code, names[i][0], strlen(names[i][0]))) return names[i][1];
  return "Others";
}

static void put_error(const Explanation *explanation, const char **group) {
  const char *now = group_name(explanation->code);
  if (*group != now) printf("\n## %s\n", now);
  *group = now;
  printf("\n### %s: %s\n\n", explanation->code, explanation->title);
  put_paragraph(explanation->cause);
  printf("\n```\n%s\n```\n\n", explanation->example);
  put_paragraph(explanation->repair);
}

static void put_errors(void) {
  uint32_t n;
  const Explanation *explanation = explanation_table(&n);
  const char *group = "";
  put_head(
      "Errors, warnings, notes", "driver/explain.def",
      "`shardc explain CODE` prints one entry. A file under `tests/frontend` produces each code,\n"
      "except those whose check is not built yet.");
  for (uint32_t i = 0; i < n; i++) put_error(&explanation[i], &group);
  puts("\n## Errors of the executable\n\n| code | exit status | meaning |\n|---|---|---|");
  const RuntimeError *error = runtime_error_table(&n);
  for (uint32_t i = 0; i < n; i++)
    printf("| R%04d | %d | %s |\n", error[i].number, error[i].status, error[i].text);
}

/* ---- kernels/families.md ---- */

static void put_families(void) {
  static const struct {
    const char *name, *devices, *what;
  } families[] = {
#define FAMILY(name, anchors, buffers, neighbours, devices, what) {#name, #devices, what},
#include "ir/kernel/families.def"
#undef FAMILY
  };
  put_head(
      "Kernel families", "ir/kernel/families.def",
      "In the order in which families are tried for an op. The other pages of this folder draw the "
      "loop nests.\n\n| family | kernels for | what it computes |\n|---|---|---|");
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    bool both = !strcmp(families[i].devices, "BOTH");
    printf("| `%s` | processors%s | ", families[i].name, both ? ", GPUs" : "");
    put_cell(families[i].what), puts(" |");
  }
}

/* ---- the command ---- */

Exit cmd_reference(Cli *o) {
  static const struct {
    const char *name;
    void (*put)(void);
  } parts[] = {{"settings", put_settings},
               {"operators", put_operators},
               {"errors", put_errors},
               {"families", put_families},
               {"textmate", put_textmate},
               {"vim", put_vim},
               {"dictionary", put_dictionary},
               {"man", put_man},
               {"bash", put_bash},
               {"zsh", put_zsh},
               {"fish", put_fish}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (!strcmp(o->operands.at[0], parts[i].name)) return parts[i].put(), EXIT_FINE;
  return cli_usage(
      "no reference `%s`; one of settings, operators, errors, families, textmate, vim, "
      "dictionary, man, bash, zsh, fish",
      o->operands.at[0]);
}
