/* Messages about syntax: E0101 (structure), E0102 (numbers and units), E0103 (characters and
   strings).

   The parser knows which tokens would fit; the bracket stack and the first word of the line know
   where we are. From these: `expected A or B in a dimension list, found C`. Long lists of tokens
   are folded into classes (an expression, an operator), and inside brackets only the comma and the
   closing bracket are named, because one of the two is what is missing. */
#include "keywords.h"
#include "parse.h"
#include "frontend/grammar.h"

/* ---- what was expected ---- */

enum { CLASS_EXPR = 1, CLASS_OPERATOR = 2, CLASS_ITEM = 4, CLASS_STMT = 8 };

typedef struct Class {
  const char *token;
  unsigned classes;
} Class;

static const Class classes[] = {
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

static bool expects(const char *const *expected, int n, const char *token) {
  for (int i = 0; i < n; i++)
    if (!strcmp(expected[i], token)) return true;
  return false;
}

static unsigned classes_of(const char *const *expected, int n) {
  unsigned all = 0;
  for (int i = 0; i < n; i++) all |= class_of(expected[i]);
  return all;
}

typedef struct Words { /* alternatives, joined as `A, B or C` */
  const char *at[4];
  int n;
} Words;

static void words_add(Words *w, const char *text) {
  if (w->n < 4) w->at[w->n++] = text;
}

static const char *words_join(Parse *p, const Words *w) {
  const char *text = w->n ? w->at[0] : "something else";
  for (int i = 1; i < w->n; i++)
    text = arena_printf(p->c->arena, "%s%s%s", text, i + 1 < w->n ? ", " : " or ", w->at[i]);
  return text;
}

static const char *token_text(Parse *p, const char *token) {
  if (!strncmp(token, "a ", 2)) return token;
  if (!strcmp(token, ";")) return "the end of the line";
  return arena_printf(p->c->arena, "`%s`", token);
}

/* The single tokens that no class stands for. */
static void add_tokens(Parse *p, Words *w, const char *const *expected, int n, unsigned taken) {
  for (int i = 0; i < n; i++) {
    unsigned c = class_of(expected[i]);
    if ((c & taken) || (c & CLASS_OPERATOR) || !strcmp(expected[i], ";")) continue;
    if ((taken & CLASS_EXPR) && !strcmp(expected[i], "a name")) continue;
    bool seldom = !strcmp(expected[i], "pad") || !strcmp(expected[i], ".");
    bool after_name = !strcmp(expected[i], "[") || !strcmp(expected[i], "(");
    if (seldom || (after_name && expects(expected, n, "+"))) continue;
    words_add(w, token_text(p, expected[i]));
  }
}

static const char *expected_at_end(Parse *p, const char *const *expected, int n) {
  Words w = {0};
  unsigned all = classes_of(expected, n);
  bool expr = expects(expected, n, "a number") && expects(expected, n, "a string");
  if (all & CLASS_ITEM) return "an item (`dims`, `layer`, `model`, `train`, ..)";
  if (all & CLASS_STMT) return "a statement or `}`";
  if (expr) words_add(&w, p->settings && p->braces ? "a value" : "an expression");
  if (!expr || !(p->settings && p->braces))
    add_tokens(p, &w, expected, n, expr ? (unsigned)CLASS_EXPR : 0);
  if (w.n < 3 && !expr && (all & CLASS_OPERATOR)) words_add(&w, "an operator");
  if (expects(expected, n, ";") && w.n < 4) words_add(&w, "the end of the line");
  return words_join(p, &w);
}

static const char *expected_in(Parse *p, const Open *o, const char *const *expected, int n) {
  char close[2] = {o->close, 0};
  Words w = {0};
  if (!expects(expected, n, close)) return expected_at_end(p, expected, n);
  if (expects(expected, n, ",")) words_add(&w, "`,`");
  else if (expects(expected, n, "+")) words_add(&w, "an operator");
  else if (expects(expected, n, "a number")) words_add(&w, "an expression");
  words_add(&w, token_text(p, close));
  return words_join(p, &w);
}

/* ---- where we are ---- */

static const char *open_name(OpenKind k, bool article) {
  static const char *const names[] = {"a block",         "a dimension list", "an index",
                                      "a list",          "a range",          "an argument list",
                                      "an operand list", "parentheses"};
  static const char *const short_names[] = {"block", "list", "index", "list",
                                            "range", "list", "list",  "parenthesis"};
  return article ? names[k] : short_names[k];
}

static const char *line_name(const Parse *p) {
  if (p->settings && p->braces) return " in a setting";
  switch (p->word) {
  case PARAM: return " in a `param` line";
  case SUB: return " in a `sub` line";
  case STACK: return " in a `stack` line";
  case INPUT: return " in an `input` line";
  case OUTPUT: return " in an `output` line";
  case RETURN: return " after `return`";
  case LOSS: return " after `loss`";
  case AUX: return " after `aux`";
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
  const Source *s = diag_source(p->c->diag, at.file);
  if (!found || at.offset >= s->length) return "the end of the file";
  if (found == SEMI) return s->text[at.offset] == ';' ? "`;`" : "the end of the line";
  if (found == STRING) return "a string";
  (void)name;
  return arena_printf(p->c->arena, "`%s`", span_text(p->c, at));
}

static const char *opened_at(Parse *p, const Open *o, Span at) {
  uint32_t line, column, here;
  diag_line_column(p->c->diag, at, &here, &column);
  diag_line_column(p->c->diag, (Span){at.file, o->offset, 1}, &line, &column);
  if (line == here) return arena_printf(p->c->arena, "column %u", column);
  return arena_printf(p->c->arena, "line %u column %u", line, column);
}

/* help: close it: `[Heads, Head, Embed]`, where that is one short line */
static void help_close(Parse *p, Report *r, const Open *o, uint32_t end) {
  const char *text =
      span_text(p->c, (Span){p->file->file, o->offset, end > o->offset ? end - o->offset : 0});
  if (strlen(text) > 60 || strchr(text, '\n') || strlen(text) < 2) return;
  diag_help(r, "close it: `%s%c`", text, o->close);
}

static uint32_t end_before(const Parse *p, Span at) {
  const Source *s = diag_source(p->c->diag, at.file);
  uint32_t end = at.offset;
  while (end && (s->text[end - 1] == ' ' || s->text[end - 1] == '\t')) end--;
  return end;
}

static void report_in_bracket(Parse *p, Span at, const Open *o, const char *found,
                              const char *const *expected, int n) {
  const char *wanted = expected_in(p, o, expected, n);
  bool closes = expects(expected, n, (char[]){o->close, 0});
  Report *r = diag_at(p->c->diag, "E0101", at, "expected %s in %s, found %s", wanted,
                      open_name(o->kind, true), found);
  diag_label(r, "%s opened at %s is still open", open_name(o->kind, false), opened_at(p, o, at));
  if (closes) help_close(p, r, o, end_before(p, at));
}

/* A bracket that the found token itself opened is not where we are. */
static const Open *innermost(const Parse *p, int found) {
  uint32_t n = p->open.n;
  if (found == LBRACKET || found == LPAREN || found == LBRACE) n--;
  return n && n <= p->open.n ? &p->open.at[n - 1] : NULL;
}

static const char *nearest_keyword(const Parse *p, const char *word, bool item) {
  VEC(const char *) words = {0};
  uint32_t n;
  const Keyword *k = keyword_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (item ? keyword_begins_item(k[i].token) : k[i].role == KEYWORD_LINE)
      vec_push(p->c->arena, words, k[i].word);
  return diag_nearest(word, words.at, words.n);
}

/* The keyword that the name at the start of this line was meant to be: `leyer A`, `parm w [D]`. */
static const char *meant_word(const Parse *p, Span at, const char *const *expected, int n) {
  bool second = expects(expected, n, "=") && expects(expected, n, ",");
  if (p->word != IDENT || p->settings || (at.offset != p->word_span.offset && !second)) return NULL;
  const char *word = span_text(p->c, p->word_span);
  if (!p->braces) return nearest_keyword(p, word, true);
  return second ? nearest_keyword(p, word, false) : NULL;
}

/* `batch = 8` in a settings block */
static bool equals_after_word(const Parse *p, Span at) {
  const Source *s = diag_source(p->c->diag, at.file);
  bool right_behind = end_before(p, at) == p->word_span.offset + p->word_span.length;
  return p->settings && p->braces && at.offset < s->length && s->text[at.offset] == '=' &&
         right_behind;
}

static void report_on_line(Parse *p, Span at, const Open *o, const char *found,
                           const char *const *expected, int n) {
  const char *wanted = expected_at_end(p, expected, n);
  bool fresh = classes_of(expected, n) & (CLASS_ITEM | CLASS_STMT);
  Report *r = diag_at(p->c->diag, "E0101", at, "expected %s%s, found %s", wanted,
                      fresh ? "" : line_name(p), found);
  if (o && !strcmp(found, "the end of the file"))
    diag_label(r, "block opened at %s is still open", opened_at(p, o, at));
  const char *meant = meant_word(p, at, expected, n);
  if (meant) diag_help(r, "did you mean `%s`?", meant);
  if (equals_after_word(p, at))
    diag_help(r, "a setting is a word and its value, without `=` between them");
}

void shard_report_syntax(Parse *p, Span at, int found, const char *found_name,
                         const char *const *expected, int n) {
  const Open *o = innermost(p, found);
  const char *text = found_text(p, at, found, found_name);
  if (!at.length && found) return shard_start_skipping(p, found); /* a token put in: said already */
  if (o && o->kind != OPEN_BLOCK) report_in_bracket(p, at, o, text, expected, n);
  else report_on_line(p, at, o, text, expected, n);
  bool written = found == SEMI && diag_source(p->c->diag, at.file)->text[at.offset] == ';';
  bool inside = o && o->kind != OPEN_BLOCK;
  shard_start_skipping(p, found);
  if (written && inside) p->skip = true; /* this `;` does not end the line */
}

void shard_report_unclosed(Parse *p, Span at) {
  const Open *o = &p->open.at[0];
  Report *r = diag_at(p->c->diag, "E0101", at, "expected `}` before `%s`", span_text(p->c, at));
  diag_label(r, "block opened at %s is still open", opened_at(p, o, at));
}

void shard_report_depth(Parse *p, Span at) {
  if (p->deep) return;
  Report *r = diag_at(p->c->diag, "E0101", (Span){at.file, at.offset, 1}, "nested too deeply");
  diag_label(r, "about %d levels are too many", MAX_EXPR_DEPTH);
  diag_help(r, "give a part of it a name of its own");
  p->bad = p->deep = true;
}

/* ---- E0102, E0103 ---- */

static const char *const unit_words[] = {"KiB", "MiB", "GiB",    "TiB",    "KB", "MB", "GB",  "TB",
                                         "%",   "s",   "TFLOPS", "PFLOPS", "us", "ms", "min", "h"};

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
  if (near) diag_help(r, "a unit with a similar name exists: `%.*s%s`", (int)digits, all, near);
  else
    diag_help(
        r,
        "units: KiB MiB GiB TiB KB MB GB TB (and each with /s), TFLOPS PFLOPS, us ms s min h, %%");
}

void shard_report_bad_character(Parse *p, const char *text, size_t n, Span at) {
  if (p->skip) return; /* the line has a mistake already */
  unsigned char first = (unsigned char)text[0];
  bool printable = first >= 0x20 && first != 0x7f && (first < 0x80 || n > 1);
  const char *shown =
      printable ? arena_strndup(p->c->arena, text, n) : arena_printf(p->c->arena, "\\x%02X", first);
  Report *r = diag_at(p->c->diag, "E0103", at, "the character `%s` has no meaning here", shown);
  if (first == '\'')
    diag_help(r, "a prime belongs directly behind a name; strings are in double quotes");
  else if (first == '!') diag_help(r, "`not(x)` for bools, `!=` for different");
  else if (first >= 0x80) diag_help(r, "names are ASCII letters, digits and `_`");
}

void shard_report_bad_string(Parse *p, Span at) {
  if (p->skip) return; /* the line has a mistake already */
  Report *r = diag_at(p->c->diag, "E0103", at, "string without an end");
  diag_label(r, "no `\"` on this line");
  diag_help(r, "close it with `\"`");
}
