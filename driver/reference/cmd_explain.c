/* `shardc explain`: texts from the tables (explain.def, operators.def, ops.def, settings.def,
   passes.def, the runtime's errors.def); and the two commands about shardc itself. */
#include "driver/cmd.h"
#include "ir/support/num.h"
#include "codegen/codegen.h"
#include "frontend/syntax/foreign_words.h"
#include "frontend/syntax/operators.h"
#include "frontend/settings/settings.h"
#include "passes/pass.h"

/* ---- codes ---- */

static const Explanation explanations[] = {
#define EXPLAIN(code, title, cause, example, repair) {code, title, cause, example, repair},
#include "driver/explain.def"
#undef EXPLAIN
};

static const RuntimeError runtime_errors[] = {
#define RT_ERROR(number, status, text) {number, status, text},
#include "runtime/base/errors.def"
#undef RT_ERROR
};

const Explanation *explanation_table(uint32_t *n) {
  *n = sizeof explanations / sizeof *explanations;
  return explanations;
}

const RuntimeError *runtime_error_table(uint32_t *n) {
  *n = sizeof runtime_errors / sizeof *runtime_errors;
  return runtime_errors;
}

enum { WIDTH = 90 };

/* Text in lines of at most WIDTH columns. */
static void put_wrapped(FILE *out, const char *text) {
  for (size_t n = strlen(text); n;) {
    size_t take = n < WIDTH ? n : WIDTH;
    while (take < n && take && text[take] != ' ') take--;
    if (!take) take = strcspn(text, " ");
    fprintf(out, "%.*s\n", (int)take, text);
    text += take, n -= take;
    if (*text == ' ') text++, n--;
  }
}

static bool explain_runtime(const char *what) {
  for (size_t i = 0; i < sizeof runtime_errors / sizeof *runtime_errors; i++) {
    char code[16];
    const RuntimeError *error = &runtime_errors[i];
    snprintf(code, sizeof code, "R%04d", error->number);
    if (strcmp(code, what)) continue;
    printf("%s: %s\n\nAn error of the produced executable; it ends with status %d. The message "
           "names the place.\n",
           code, error->text, error->status);
    return true;
  }
  return false;
}

static bool explain_code(const char *what) {
  for (size_t i = 0; i < sizeof explanations / sizeof *explanations; i++) {
    const Explanation *explanation = &explanations[i];
    if (strcmp(explanation->code, what)) continue;
    printf("%s: %s\n\n", what, explanation->title);
    put_wrapped(stdout, explanation->cause);
    printf("\nExample:\n  %s\n\n", explanation->example);
    put_wrapped(stdout, explanation->repair);
    return true;
  }
  return explain_runtime(what);
}

/* ---- rows of other tables ---- */

static bool explain_ir_op(const char *name) {
  static const char *const families[] = {"source",
                                         "element-wise",
                                         "reduction",
                                         "scan",
                                         "structure",
                                         "contraction",
                                         "gather",
                                         "scatter",
                                         "attention",
                                         "global",
                                         "call",
                                         "collective",
                                         "messages in flight",
                                         "between memories"};
  _Static_assert(COUNT_OF(families) == FAMILY_MOVE + 1, "a word per OpFamily");
  OpCode code;
  if (!op_find(name, &code)) return false;
  printf("op %s of the IR (%s)\n\n", name, families[op_family(code)]);
  put_wrapped(stdout, op_meaning(code));
  if (op_flags(code) & NODIFF) puts("\nNo gradient flows through it.");
  return true;
}

/* The library's own text of what it declares under this name. */
static void show_definition(FILE *out, Ctx *c, const char *name) {
  size_t n;
  const char *text = std_shard_text(&n);
  AstFile *std = ast_parse(c, "std.shard", text, n);
  for (uint32_t i = 0; i < std->items.n; i++) {
    const AstItem *item = std->items.at[i];
    if (!strcmp(item->name.text, name))
      fprintf(out, "\nDefinition in std.shard:\n\n%s\n", span_text(c, item->span));
  }
}

bool explain_operator(FILE *out, Ctx *c, const char *name) {
  uint32_t n, found = 0;
  const Operator *operator= operator_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    if (strcmp(operator[i].name, name)) continue;
    fprintf(out, "%s%s\n\n", found++ ? "\n" : "", operator[i].form);
    put_wrapped(out, operator[i].meaning);
    if (*operator[i].gradient) fprintf(out, "\nGradient: %s.\n", operator[i].gradient);
  }
  if (found) show_definition(out, c, name);
  return found;
}

static bool explain_op(Ctx *c, const char *name) {
  OpCode code;
  bool found = explain_operator(stdout, c, name);
  if (found && op_find(name, &code)) putchar('\n');
  return explain_ir_op(name) || found;
}

static bool explain_pass(const char *name) {
  uint32_t n;
  const Pass *pass = pass_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    if (strcmp(pass[i].name, name)) continue;
    printf("pass %s (%u of %u)%s\n\n", name, i + 1, n, pass[i].run ? "" : ", not built yet");
    put_wrapped(stdout, pass[i].help);
    return true;
  }
  return false;
}

static void explain_line(FILE *out, const SettingRow *r) {
  fprintf(out, "%s: %s", ast_item_word(r->block), r->word);
  if (r->type != TYPE_NOTHING) fprintf(out, " %s", r->type == TYPE_WORD ? "NAME" : "VALUE");
  fprintf(out, "\n  %s\n", r->help);
  if (r->type != TYPE_NOTHING && r->type != TYPE_WORD)
    fprintf(out, "  takes %s\n", setting_type_text(r->type));
  if (r->flags & SETTING_NEEDED) fputs("  needed\n", out);
  if (*r->otherwise) fprintf(out, "  default: %s\n", r->otherwise);
}

static void explain_part(FILE *out, const SettingRow *r) {
  const char *dot = strchr(r->word, '.'), *comma = *r->otherwise ? ", default " : "";
  if (r->kind == ROW_CHOICE && dot) fprintf(out, "    %s = %s: %s\n", dot + 1, r->key, r->help);
  else if (r->kind == ROW_CHOICE) fprintf(out, "    %s: %s\n", r->key, r->help);
  else if (dot)
    fprintf(out, "    %s =, with %s%s%s: %s\n", r->key, dot + 1, comma, r->otherwise, r->help);
  else fprintf(out, "    %s =%s%s: %s\n", r->key, comma, r->otherwise, r->help);
}

bool explain_setting(FILE *out, const char *word) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  bool found = false;
  for (uint32_t i = 0; i < n; i++) {
    size_t length = strcspn(rows[i].word, ".");
    if (strlen(word) != length || strncmp(rows[i].word, word, length)) continue;
    if (rows[i].kind == ROW_LINE) explain_line(out, &rows[i]);
    else explain_part(out, &rows[i]);
    found = true;
  }
  return found;
}

/* A choice of a line, such as adamw. */
static bool explain_choice(const char *word) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  bool found = false;
  for (uint32_t i = 0; i < n; i++) {
    if (rows[i].kind == ROW_LINE || strcmp(rows[i].key, word)) continue;
    printf("%s: %s %s\n  %s\n", ast_item_word(rows[i].block), rows[i].word, word, rows[i].help);
    found = true;
  }
  return found;
}

/* A word without its kind: of the language, and what is said about it elsewhere. */
static bool explain_word(Ctx *c, const char *word) {
  bool found = explain_op(c, word);
  if (explain_setting(stdout, word)) found = true;
  else found |= explain_choice(word);
  if (found && pass_find(word)) putchar('\n');
  return explain_pass(word) || found;
}

/* A word of other tools: what means the same, and what to write where nothing does. */
static bool explain_foreign(Ctx *c, const char *word) {
  const char *code = foreign_text(FOREIGN_LAYER, word), *text = foreign_text(FOREIGN_SETTING, word);
  uint32_t at = 0, n = 0;
  for (const char *meant; (meant = foreign_meaning(word, &at)); n++) {
    printf("%s`%s` of other tools is `%s`\n\n", n ? "\n" : "", word, meant);
    explain_word(c, meant);
  }
  if (code) printf("`%s` of other tools, in a model: ", word), put_wrapped(stdout, code);
  if (text) printf("`%s` of other tools, in a settings block: ", word), put_wrapped(stdout, text);
  return n || code || text;
}

/* ---- the command ---- */

static Strings names_of(Cli *o, const char *kind) {
  Strings names = {0};
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  if (!strcmp(kind, "setting"))
    for (uint32_t i = 0; i < n; i++)
      if (rows[i].kind == ROW_LINE) vec_push(o->c->arena, names, rows[i].word);
  const Pass *pass = pass_table(&n);
  if (!strcmp(kind, "pass"))
    for (uint32_t i = 0; i < n; i++) vec_push(o->c->arena, names, pass[i].name);
  const Operator *operator= operator_table(&n);
  for (uint32_t i = 0; i < n && !strcmp(kind, "op"); i++)
    vec_push(o->c->arena, names, operator[i].name);
  if (!strcmp(kind, "op"))
    for (int i = 0; i < OP_COUNT; i++) vec_push(o->c->arena, names, op_name((OpCode)i));
  return names;
}

static Exit not_found(Cli *o, const char *what, const char *kind, const char *name) {
  Strings names = names_of(o, kind);
  const char *near = diag_nearest(name, names.at, names.n);
  if (near)
    return cli_usage("nothing is known about `%s`; did you mean `%s:%s`?", what, kind, near);
  return cli_usage("nothing is known about `%s`; a code such as E0301, a word, op:NAME, "
                   "setting:NAME or pass:NAME",
                   what);
}

static Exit explain_one(Cli *o, const char *what) {
  const char *colon = strchr(what, ':'), *name = colon ? colon + 1 : what;
  const char *kind = arena_strndup(o->c->arena, what, colon ? (size_t)(colon - what) : 0);
  bool found = false;
  if (!colon)
    found = explain_code(what) || explain_word(o->c, foreign_last_part(what)) ||
            explain_foreign(o->c, what);
  else if (!strcmp(kind, "op")) found = explain_op(o->c, name);
  else if (!strcmp(kind, "setting")) found = explain_setting(stdout, name);
  else if (!strcmp(kind, "pass")) found = explain_pass(name);
  return found ? EXIT_FINE : not_found(o, what, kind, name);
}

Exit cmd_explain(Cli *o) {
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; i < o->operands.n && e == EXIT_FINE; i++) {
    if (i) putchar('\n');
    e = explain_one(o, o->operands.at[i]);
  }
  return e;
}

/* ---- about shardc ---- */

Exit cmd_version(Cli *o) {
  printf("shardc %s\n", SHARDC_VERSION);
  if (!o->value[OPT_VERBOSE]) return EXIT_FINE;
  const Target *target = target_find("native");
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  printf("LLVM %u.%u.%u\n", major, minor, patch);
  if (target) printf("native target: %s, %s\n", target->name, target->cpu);
  return EXIT_FINE;
}

Exit cmd_help(Cli *o) {
  if (!o->operands.n) return help_all(stdout), EXIT_FINE;
  const Command *cmd = command_find(o->operands.at[0]);
  if (!cmd)
    return cli_usage("unknown command `%s`; `shardc help` lists the commands", o->operands.at[0]);
  return help_command(stdout, cmd), EXIT_FINE;
}
