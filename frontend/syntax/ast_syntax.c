/* Messages about syntax: E0101 (structure), E0102 (numbers and units), E0103 (characters and
   strings).

   The parser knows which tokens would fit; the bracket stack and the first word of the line know
   where we are. From these: `expected A or B in a dimension list, found C`. Long lists of tokens
   are folded into classes (an expression, an operator), and inside brackets only the comma and the
   closing bracket are named, because one of the two is what is missing. */
#include "foreign_words.h"
#include "ir/support/num.h"
#include "ast_reading.h"
#include "frontend/grammar.h"

/* ---- what was expected ---- */

enum { CLASS_EXPR = 1, CLASS_OPERATOR = 2, CLASS_ITEM = 4, CLASS_STMT = 8 };

typedef struct TokenClass {
  const char *token;
  unsigned classes;
} TokenClass;

static const TokenClass classes[] = {
    {"a number", CLASS_EXPR}, {"a string", CLASS_EXPR}, {"[", CLASS_EXPR},
    {"(", CLASS_EXPR},        {"-", CLASS_OPERATOR},    {"+", CLASS_OPERATOR},
    {"*", CLASS_OPERATOR},    {"/", CLASS_OPERATOR},    {"^", CLASS_OPERATOR},
    {"|", CLASS_OPERATOR},    {"&", CLASS_OPERATOR},    {"<", CLASS_OPERATOR},
    {">", CLASS_OPERATOR},    {"<=", CLASS_OPERATOR},   {">=", CLASS_OPERATOR},
    {"==", CLASS_OPERATOR},   {"!=", CLASS_OPERATOR},   {"|>", CLASS_OPERATOR},
    {"layer", CLASS_ITEM},    {"model", CLASS_ITEM},    {"return", CLASS_STMT},
    {"param", CLASS_STMT},
};

static unsigned class_of(const char *token) {
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (!strcmp(classes[i].token, token)) return classes[i].classes;
  return 0;
}

static unsigned classes_of(const char *const *expected, int n) {
  unsigned all = 0;
  for (int i = 0; i < n; i++) all |= class_of(expected[i]);
  return all;
}

typedef struct SyntaxWords { /* alternatives, joined as `A, B or C` */
  const char *at[4];
  int n;
} SyntaxWords;

static void words_add(SyntaxWords *words, const char *text) {
  if (words->n < 4) words->at[words->n++] = text;
}

static const char *words_join(Parse *p, const SyntaxWords *words) {
  const char *text = words->n ? words->at[0] : "something else";
  for (int i = 1; i < words->n; i++)
    text =
        arena_printf(p->c->arena, "%s%s%s", text, i + 1 < words->n ? ", " : " or ", words->at[i]);
  return text;
}

static const char *token_text(Parse *p, const char *token) {
  if (!strncmp(token, "a ", 2)) return token;
  if (!strcmp(token, ";")) return "the end of the line";
  return arena_printf(p->c->arena, "`%s`", token);
}

/* The single tokens that belong to no class. */
static void add_tokens(Parse *p, SyntaxWords *words, const char *const *expected, int n,
                       unsigned taken) {
  for (int i = 0; i < n; i++) {
    unsigned c = class_of(expected[i]);
    if ((c & taken) || (c & CLASS_OPERATOR) || !strcmp(expected[i], ";")) continue;
    if ((taken & CLASS_EXPR) && !strcmp(expected[i], "a name")) continue;
    bool seldom = !strcmp(expected[i], "pad") || !strcmp(expected[i], ".");
    bool after_name = !strcmp(expected[i], "[") || !strcmp(expected[i], "(");
    if (seldom || (after_name && shard_expects(expected, n, "+"))) continue;
    words_add(words, token_text(p, expected[i]));
  }
}

static const char *expected_at_end(Parse *p, const char *const *expected, int n) {
  SyntaxWords words = {0};
  unsigned all = classes_of(expected, n);
  bool expr = shard_expects(expected, n, "a number") && shard_expects(expected, n, "a string");
  if (all & CLASS_ITEM) return "an item (`dims`, `layer`, `model`, `train`, ..)";
  if (all & CLASS_STMT) return "a statement or `}`";
  if (expr) words_add(&words, p->settings && p->braces ? "a value" : "an expression");
  if (!expr || !(p->settings && p->braces))
    add_tokens(p, &words, expected, n, expr ? (unsigned)CLASS_EXPR : 0);
  if (words.n < 3 && !expr && (all & CLASS_OPERATOR)) words_add(&words, "an operator");
  if (shard_expects(expected, n, ";") && words.n < 4) words_add(&words, "the end of the line");
  return words_join(p, &words);
}

static const char *expected_in(Parse *p, const OpenBracket *bracket, const char *const *expected,
                               int n) {
  char close[2] = {bracket->close, 0};
  SyntaxWords words = {0};
  if (!shard_expects(expected, n, close)) return expected_at_end(p, expected, n);
  if (shard_expects(expected, n, ",")) words_add(&words, "`,`");
  else if (shard_expects(expected, n, "+")) words_add(&words, "an operator");
  else if (shard_expects(expected, n, "a number")) words_add(&words, "an expression");
  words_add(&words, token_text(p, close));
  return words_join(p, &words);
}

/* ---- where we are ---- */

static const char *open_name(OpenKind k, bool article) {
  static const char *const names[] = {"a block",         "a dimension list", "an index",
                                      "a list",          "a range",          "an argument list",
                                      "an operand list", "parentheses"};
  _Static_assert(COUNT_OF(names) == OPEN_PAREN + 1, "words per OpenKind");
  static const char *const short_names[] = {"block", "list", "index", "list",
                                            "range", "list", "list",  "parenthesis"};
  _Static_assert(COUNT_OF(short_names) == OPEN_PAREN + 1, "a word per OpenKind");
  return article ? names[k] : short_names[k];
}

/* A brace that the found token itself opened does not count. */
bool shard_in_settings(const Parse *p, int found) {
  return p->settings && p->braces > (found == LBRACE);
}

static const char *line_name(const Parse *p, int found) {
  if (shard_in_settings(p, found)) return " in a setting";
  switch (p->word) {
  case PARAM: return " in a `param` line";
  case SUB: return " in a `sub` line";
  case STACK: return " in a `stack` line";
  case INPUT: return " in an `input` line";
  case OUTPUT: return " in an `output` line";
  case RETURN: return " after `return`";
  case LOSS: return " after `loss`";
  case AUX: return " after `aux`";
  case UPDATE: return " in an `update` line";
  case PROJECT: return " in a `project` line";
  case USE: return " after `use`";
  case DIMS: return " after `dims`";
  case CONST: return " in a `const` line";
  case LAYOUT: return " in a `layout` line";
  case FN: return " in the head of a `fn`";
  case GRAD: return " in the head of a `grad`";
  case LAYER: return " in the head of a `layer`";
  case EXTERN: return " in the head of an `extern`";
  case MODEL: return " in the head of a `model`";
  case VARIANT: return " in the head of a `variant`";
  case TRAIN:
  case PLAN:
  case MACHINE:
  case WEIGHTS: return " in the head of a settings block";
  default: return "";
  }
}

static const char *found_text(Parse *p, Span at, int found, const char *name) {
  const Source *source = diag_source(p->c->diag, at.file);
  if (!found || at.offset >= source->length) return "the end of the file";
  if (found == SEMI) return source->text[at.offset] == ';' ? "`;`" : "the end of the line";
  if (found == STRING) return "a string";
  (void)name;
  return arena_printf(p->c->arena, "`%s`", span_text(p->c, at));
}

static const char *opened_at(Parse *p, const OpenBracket *bracket, Span at) {
  uint32_t line, column, here;
  diag_line_column(p->c->diag, at, &here, &column);
  diag_line_column(p->c->diag, (Span){at.file, bracket->offset, 1}, &line, &column);
  if (line == here) return arena_printf(p->c->arena, "column %u", column);
  return arena_printf(p->c->arena, "line %u column %u", line, column);
}

static void report_in_bracket(Parse *p, Span at, const OpenBracket *bracket, int token,
                              const char *found, const char *const *expected, int n) {
  const char *wanted = expected_in(p, bracket, expected, n);
  bool closes = shard_expects(expected, n, (char[]){bracket->close, 0});
  Report *r = diag_at(p->c->diag, "E0101", at, "expected %s in %s, found %s", wanted,
                      open_name(bracket->kind, true), found);
  diag_label(r, "%s opened at %s is still open", open_name(bracket->kind, false),
             opened_at(p, bracket, at));
  if (n == 1 && !strcmp(expected[0], ":")) {
    diag_help(r, "the type follows `:`");
    diag_edit(r, (Span){at.file, p->before, 0}, ":");
  } else shard_help_in_bracket(p, r, at, bracket, token, closes);
}

/* A bracket that the found token itself opened is not where we are. */
static const OpenBracket *innermost(const Parse *p, int found) {
  uint32_t n = p->open.n;
  if (found == LBRACKET || found == LPAREN || found == LBRACE) n--;
  return n && n <= p->open.n ? &p->open.at[n - 1] : NULL;
}

static void report_on_line(Parse *p, Span at, const OpenBracket *bracket, int token,
                           const char *found, const char *const *expected, int n) {
  const char *wanted = expected_at_end(p, expected, n);
  bool fresh = classes_of(expected, n) & (CLASS_ITEM | CLASS_STMT);
  Report *r = diag_at(p->c->diag, "E0101", at, "expected %s%s, found %s", wanted,
                      fresh ? "" : line_name(p, token), found);
  if (bracket && !token) {
    diag_label(r, "block opened at %s is still open", opened_at(p, bracket, at));
    diag_help(r, "close it with `}`");
    diag_edit(r, (Span){at.file, at.offset, 0}, "}\n");
    return;
  }
  shard_help_on_line(p, r, at, token, expected, n);
}

bool shard_line_begins(const Parse *p, Span at) {
  const Source *source = diag_source(p->c->diag, at.file);
  uint32_t i = at.offset;
  while (i && (source->text[i - 1] == ' ' || source->text[i - 1] == '\t')) i--;
  return !i || source->text[i - 1] == '\n';
}

/* The token is the first of its line, but the line before was not complete. */
static bool ends_too_early(const Parse *p, Span at) {
  return p->before && p->word_span.offset != at.offset && shard_line_begins(p, at);
}

void shard_report_syntax(Parse *p, Span at, int found, const char *found_name,
                         const char *const *expected, int n) {
  const OpenBracket *bracket = innermost(p, found);
  const char *text = found_text(p, at, found, found_name);
  if (!at.length && found) return shard_start_skipping(p, found); /* a token put in: reported */
  Span where = at;
  if (found && ends_too_early(p, at))
    where = (Span){at.file, p->before, 1}, text = "the end of the line";
  if (bracket && bracket->kind != OPEN_BLOCK)
    report_in_bracket(p, where, bracket, found, text, expected, n);
  else report_on_line(p, where, bracket, found, text, expected, n);
  bool written = found == SEMI && diag_source(p->c->diag, at.file)->text[at.offset] == ';';
  bool inside = bracket && bracket->kind != OPEN_BLOCK;
  shard_start_skipping(p, found);
  if (written && inside) p->skip = true; /* this `;` does not end the line */
}

void shard_report_unclosed(Parse *p, Span at) {
  const OpenBracket *bracket = &p->open.at[0];
  Report *r = diag_at(p->c->diag, "E0101", at, "expected `}` before `%s`", span_text(p->c, at));
  diag_label(r, "block opened at %s is still open", opened_at(p, bracket, at));
  diag_help(r, "close it with `}` on a line before");
  diag_edit(r, (Span){at.file, at.offset, 0}, "}\n");
}

void shard_report_depth(Parse *p, Span at) {
  if (p->deep) return;
  Report *r = diag_at(p->c->diag, "E0101", (Span){at.file, at.offset, 1}, "nested too deeply");
  diag_label(r, "about %d levels are too many", MAX_EXPR_DEPTH);
  diag_help(r, "give a part of it a name of its own");
  p->bad = p->deep = true;
}

/* The word is kept for kernels by hand; nothing of such an item is read. */
void shard_report_extern(Parse *p, Span at) {
  Report *r = diag_at(p->c->diag, "E0901", at, "kernels written by hand are not built yet");
  diag_label(r, "planned for a later version");
  diag_help(r,
            "write it as a function of the language, `fn name(x) = ..`: kernels are made from it");
}

/* ---- E0102, E0103 ---- */

static const char *const unit_words[] = {"KiB", "MiB", "GiB",    "TiB",    "KB", "MB", "GB",  "TB",
                                         "%",   "s",   "TFLOPS", "PFLOPS", "us", "ms", "min", "h"};

static const char *without_underscores(Parse *p, const char *text) {
  char *plain = arena_strndup(p->c->arena, text, strlen(text)), *to = plain;
  for (; *text; text++)
    if (*text != '_') *to++ = *text;
  *to = 0;
  return plain;
}

void shard_report_bad_number(Parse *p, const char *text, size_t n, Span at) {
  size_t digits = strspn(text, "0123456789.");
  const char *all = arena_strndup(p->c->arena, text, n), *unit = all + (digits < n ? digits : n);
  p->bad = true;
  if (!*unit ||
      ((*unit == 'e' || *unit == 'E') && strspn(unit + 1, "+-0123456789") == strlen(unit + 1))) {
    diag_label(diag_at(p->c->diag, "E0102", at, "number out of range: `%s`", all),
               "larger than any float");
    return;
  }
  Span where = {at.file, at.offset + (uint32_t)digits, (uint32_t)(n - digits)};
  Report *r = diag_at(p->c->diag, "E0102", where, "`%s` is not a number with a unit", all);
  diag_label(r, "no such unit");
  const char *near = diag_nearest(unit, unit_words, sizeof unit_words / sizeof *unit_words);
  const char *const pipeline[] = {"one_f_one_b"};
  const char *choice = foreign_name(all, pipeline, 1);
  size_t name = strspn(unit, "0123456789_");
  if (near) {
    diag_help(r, "a unit with a similar name exists: `%.*s%s`", (int)digits, all, near);
    diag_edit(r, where, "%s", near);
  } else if (choice) {
    diag_help(r, "write `%s`", choice);
    diag_edit(r, at, "%s", choice);
  } else if (!unit[name]) {
    const char *plain = without_underscores(p, all);
    diag_help(r, "digits are written without `_`: `%s`", plain);
    diag_edit(r, at, "%s", plain);
  } else
    diag_help(
        r,
        "units: KiB MiB GiB TiB KB MB GB TB (and each with /s), TFLOPS PFLOPS, us ms s min h, %%");
}

/* 'a string' in single quotes */
static void help_quotes(Parse *p, Report *r, const char *text, Span at) {
  size_t n = strcspn(text + 1, "'\n") + 1;
  diag_help(r, "a prime must directly follow a name; strings are in double quotes");
  if (text[n] != '\'') return;
  diag_edit(r, at, "\"");
  diag_edit(r, (Span){at.file, at.offset + (uint32_t)n, 1}, "\"");
  (void)p;
}

void shard_report_bad_character(Parse *p, const char *text, size_t n, Span at) {
  if (p->skip) return; /* the line has a mistake already */
  unsigned char first = (unsigned char)text[0];
  bool printable = first >= 0x20 && first != 0x7f && (first < 0x80 || n > 1);
  const char *shown =
      printable ? arena_strndup(p->c->arena, text, n) : arena_printf(p->c->arena, "\\x%02X", first);
  Report *r = diag_at(p->c->diag, "E0103", at, "the character `%s` has no meaning", shown);
  if (first == '\'') help_quotes(p, r, text, at);
  else if (first == '!') diag_help(r, "`not(x)` for bools, `!=` for different");
  else if (first >= 0x80) diag_help(r, "names are ASCII letters, digits and `_`");
}

void shard_report_bad_string(Parse *p, Span at) {
  if (p->skip) return; /* the line has a mistake already */
  Report *r = diag_at(p->c->diag, "E0103", at, "string without an end");
  diag_label(r, "no `\"` on this line");
  const Source *source = diag_source(p->c->diag, at.file);
  uint32_t start = at.offset, end = at.offset + at.length;
  while (start && source->text[start - 1] != '\n' && source->text[start - 1] != '"') start--;
  if (start && source->text[start - 1] == '"') {
    diag_help(r, "a string begins and ends with `\"` on the same line");
    return;
  }
  while (end > at.offset + 1 && strchr(" \t\r", source->text[end - 1])) end--;
  diag_help(r, "close it with `\"`");
  diag_edit(r, (Span){at.file, end, 0}, "\"");
}

void shard_report_long_name(Parse *p, Span at) {
  Report *r = diag_at(p->c->diag, "E0103", at, "name of %u bytes", at.length);
  diag_label(r, "at most %d", NAME_BYTES);
}
