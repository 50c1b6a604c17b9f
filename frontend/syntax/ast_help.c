/* Help lines and edits for mistakes of syntax. The parser reports the token that does not fit; this
   file examines the text around it for habits from other languages: a missing bracket, comma or
   `=`, `def` for `fn`, `x += y`, round brackets for square ones. Each help is one edit; if no edit
   is certain, an example of the construct is shown. Must not: decide what is accepted. */
#include "foreign_words.h"
#include "keywords.h"
#include "ast_reading.h"
#include "frontend/grammar.h"

static const char *source_at(const Parse *p, uint32_t offset) {
  const Source *s = diag_source(p->c->diag, p->file->file);
  return s->text + (offset < s->length ? offset : s->length);
}

static Span span_of(const Parse *p, uint32_t from, uint32_t to) {
  return (Span){p->file->file, from, to > from ? to - from : 0};
}

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '\'';
}

static uint32_t skip_blanks(const Parse *p, uint32_t at) {
  while (is_blank(*source_at(p, at))) at++;
  return at;
}

/* Offset after the last non-blank character before `at`. */
static uint32_t back_over_blanks(const Parse *p, uint32_t at) {
  while (at && is_blank(*source_at(p, at - 1))) at--;
  return at;
}

/* Where the bracket opened at `open` is closed on its line; 0: nowhere. */
static uint32_t closing(const Parse *p, uint32_t open) {
  int depth = 0;
  for (uint32_t i = open;; i++) {
    char c = *source_at(p, i);
    if (!c || c == '\n' || c == '#') return 0;
    if (c == '(' || c == '[') depth++;
    if ((c == ')' || c == ']') && --depth == 0) return i;
  }
}

static const char *text_between(const Parse *p, uint32_t from, uint32_t to) {
  return span_text(p->c, span_of(p, from, to));
}

/* A part of the source that can be shown inside a sentence. */
static bool showable(const char *text) {
  return *text && strlen(text) <= 60 && !strchr(text, '\n');
}

bool shard_expects(const char *const *expected, int n, const char *token) {
  for (int i = 0; i < n; i++)
    if (!strcmp(expected[i], token)) return true;
  return false;
}

/* ---- inside brackets ---- */

static void help_close(Parse *p, Report *r, const OpenBracket *bracket, uint32_t end) {
  const char *text = text_between(p, bracket->offset, end);
  if (showable(text) && strlen(text) > 1) diag_help(r, "close it: `%s%c`", text, bracket->close);
  else diag_help(r, "close it with `%c`", bracket->close);
  diag_edit(r, span_of(p, end, end), "%c", bracket->close);
}

/* [a, b] for (a, b): both brackets are changed. */
static bool help_brackets(Parse *p, Report *r, const OpenBracket *bracket, const char *what) {
  uint32_t end = closing(p, bracket->offset);
  if (!end) return false;
  const char *inside = text_between(p, bracket->offset + 1, end);
  if (showable(inside)) diag_help(r, "%s: `[%s]`", what, inside);
  else diag_help(r, "%s", what);
  diag_edit(r, span_of(p, bracket->offset, bracket->offset + 1), "[");
  diag_edit(r, span_of(p, end, end + 1), "]");
  return true;
}

/* split[Row -> A, B, Col -> C, D]: the comma before `Col` was meant as `;`. */
static bool help_groups(Parse *p, Report *r, Span at) {
  uint32_t name = back_over_blanks(p, at.offset);
  while (name && in_name(*source_at(p, name - 1))) name--;
  uint32_t comma = back_over_blanks(p, name);
  if (!comma || *source_at(p, comma - 1) != ',') return false;
  diag_help(r, "groups of axes are separated by `;`");
  diag_edit(r, span_of(p, comma - 1, comma), ";");
  return true;
}

static bool begins_value(int token) {
  return token == IDENT || token == NUMBER || token == STRING || token == LPAREN ||
         token == LBRACKET;
}

static void help_comma(Parse *p, Report *r, uint32_t end) {
  diag_help(r, "a comma is missing before it");
  diag_edit(r, span_of(p, end, end), ",");
}

static bool help_operator(Parse *p, Report *r, Span at);
static bool help_method(Parse *p, Report *r, Span at, int found);

void shard_help_in_bracket(Parse *p, Report *r, Span at, const OpenBracket *bracket, int found,
                           bool closes) {
  uint32_t end = back_over_blanks(p, p->before < at.offset ? p->before : at.offset);
  bool axes = bracket->kind == OPEN_DIMS || bracket->kind == OPEN_INDEX;
  if (found == ARROW && bracket->kind == OPEN_ARGS &&
      help_brackets(p, r, bracket, "axes are in square brackets"))
    return;
  if (found == COMMA && bracket->kind == OPEN_PAREN && p->settings && p->braces &&
      help_brackets(p, r, bracket, "a list is in square brackets"))
    return;
  if (found == ARROW && axes && help_groups(p, r, at)) return;
  if (help_operator(p, r, at) || (!axes && help_method(p, r, at, found))) return;
  if (found == LPAREN && axes)
    diag_help(r, "picking elements names the dimension that the index addresses: `w[D = index]`");
  else if (axes && (found == NUMBER || found == COLON || found == MINUS))
    diag_help(
        r,
        "elements are picked by name: `x[D = index]`; a part of D is `slice[D -> A](x, at = 0)`");
  else if (closes && begins_value(found) && bracket->kind != OPEN_RANGE) help_comma(p, r, end);
  else if (closes && found != ARROW && found != COMMA) help_close(p, r, bracket, end);
}

/* ---- on a line ---- */

static const char *nearest_keyword(const Parse *p, const char *word, bool item) {
  VEC(const char *) words = {0};
  uint32_t n;
  const Keyword *keyword = keyword_table(&n);
  if (!item && (!strcmp(word, "let") || !strcmp(word, "var"))) return "";
  for (uint32_t i = 0; i < n; i++)
    if (item ? keyword_begins_item(keyword[i].token) : keyword[i].role == KEYWORD_LINE)
      vec_push(p->c->arena, words, keyword[i].word);
  return foreign_or_near(word, words.at, words.n);
}

/* The keyword that the name at the start of this line was meant to be: `leyer A`, `parm w [D]`. */
static bool help_word(Parse *p, Report *r, Span at, const char *const *expected, int n) {
  bool second = shard_expects(expected, n, "=") && shard_expects(expected, n, ",");
  if (p->word == FOR && p->braces && !p->settings)
    return diag_help(r, "%s", foreign_text(FOREIGN_LINE, "for")), true;
  if (p->word != IDENT || p->settings || (at.offset != p->word_span.offset && !second))
    return false;
  const char *word = span_text(p->c, p->word_span), *meant = NULL;
  const char *said =
      foreign_text(*source_at(p, at.offset) == '(' ? FOREIGN_CODE : FOREIGN_LINE, word);
  if (p->braces && said) return diag_help(r, "%s", said), true;
  if (!p->braces) meant = nearest_keyword(p, word, true);
  else if (second) meant = nearest_keyword(p, word, false);
  if (!meant) return false;
  uint32_t from = p->word_span.offset, to = from + p->word_span.length;
  if (*meant) diag_help(r, "did you mean `%s`?", meant);
  else
    diag_help(r, "no word is needed before a name: leave out `%s`", word), to = skip_blanks(p, to);
  diag_edit(r, span_of(p, from, to), "%s", meant);
  return true;
}

/* `batch = 8` in a settings block; `wte = "name"` in a weights block. */
static bool help_setting(Parse *p, Report *r, Span at) {
  bool right_behind = back_over_blanks(p, at.offset) == p->word_span.offset + p->word_span.length ||
                      p->item == WEIGHTS;
  if (!p->settings || !p->braces || *source_at(p, at.offset) != '=' || !right_behind) return false;
  uint32_t value = skip_blanks(p, at.offset + 1);
  if (p->item == WEIGHTS && *source_at(p, value) == '"') {
    diag_help(r, "the name in the file follows `<-`");
    diag_edit(r, span_of(p, at.offset, at.offset + 1), "<-");
    return true;
  }
  diag_help(r, "a setting is a word and its value, without `=` between them");
  diag_edit(r, span_of(p, at.offset, value), "%s", "");
  return true;
}

/* x += y */
static bool help_operator(Parse *p, Report *r, Span at) {
  char op = *source_at(p, at.offset);
  const char *name = span_text(p->c, p->word_span);
  if (op == '@') {
    diag_help(r, "the product of matrices is `dot[D](a, b)`: D is summed");
    return true;
  }
  if (p->word == IDENT && op && strchr("+-*/", op) && *source_at(p, at.offset + 1) == '=') {
    diag_help(r, "there is no `%c=`: `%s = %s %c ..`", op, name, name, op);
    diag_edit(r, span_of(p, at.offset, at.offset + 2), "= %s %c", name, op);
    return true;
  }
  char before = at.offset ? *source_at(p, at.offset - 1) : 0;
  if ((op == '&' || op == '|') && before == op) {
    diag_help(r, "`%c` joins bools and masks", op);
    diag_edit(r, span_of(p, at.offset - 1, at.offset + 1), "%c", op);
    return true;
  }
  const char *word = span_text(p->c, at);
  if (!strcmp(word, "and") || !strcmp(word, "or")) {
    diag_help(r, "`%c` joins bools and masks", *word == 'a' ? '&' : '|');
    diag_edit(r, at, "%c", *word == 'a' ? '&' : '|');
    return true;
  }
  if (op == '*' && before == '*') {
    diag_help(r, "`^` raises to a power");
    diag_edit(r, span_of(p, at.offset - 1, at.offset + 1), "^");
    return true;
  }
  uint32_t bar = back_over_blanks(p, at.offset);
  if (op != '>' || !bar || *source_at(p, bar - 1) != '|') return false;
  diag_help(r, "the pipe is one word: `|>`");
  diag_edit(r, span_of(p, bar - 1, at.offset + 1), "|>");
  return true;
}

/* q k v = unstack..: names of one line without commas */
static bool help_names(Parse *p, Report *r, Span at) {
  uint32_t gap[8], n = 0, i = back_over_blanks(p, at.offset);
  if (p->word != IDENT || p->settings || !p->braces) return false;
  for (;;) {
    uint32_t next = skip_blanks(p, i);
    if (!in_name(*source_at(p, next)) || n == 8) break;
    gap[n++] = i;
    while (in_name(*source_at(p, next))) next++;
    i = next;
  }
  if (!n || *source_at(p, skip_blanks(p, i)) != '=') return false;
  diag_help(r, "several names are separated by commas");
  for (uint32_t k = 0; k < n; k++) diag_edit(r, span_of(p, gap[k], gap[k]), ",");
  return true;
}

/* One word is missing, and it is clear which. */
static bool help_missing(Parse *p, Report *r, Span at, int found, const char *const *expected,
                         int n) {
  static const char *const certain[] = {"=", "->", ":", "of"};
  const char *word = NULL;
  for (size_t i = 0; n == 1 && i < sizeof certain / sizeof *certain; i++)
    if (!strcmp(expected[0], certain[i])) word = certain[i];
  if (found == IDENT && shard_expects(expected, n, "for")) word = "for";
  if (p->item == DIMS && p->braces && found == NUMBER && shard_expects(expected, n, "="))
    word = "=";
  if (found == COLON && word && *word == '=') {
    diag_help(r, "write `=` for `:`");
    diag_edit(r, at, "=");
    return true;
  }
  if (p->word == PARAM && found == NUMBER && shard_expects(expected, n, "~")) word = "=";
  if (p->word == PARAM && found == IDENT && shard_expects(expected, n, "~")) word = "~";
  if (!word || shard_line_begins(p, at)) return false;
  if (p->item == DIMS && found == AS) return false;
  diag_help(r, "put `%s` before `%s`", word, span_text(p->c, at));
  diag_edit(r, span_of(p, at.offset, at.offset), "%s ", word);
  return true;
}

static bool in_path(char c) { return in_name(c) || c == '.'; }

/* torch.nn.functional.relu(x), F.layer_norm[D](x): modules are left out. False if it names none. */
static bool help_module(Parse *p, Report *r, uint32_t from, uint32_t to) {
  const char *whole = text_between(p, from, to), *last = foreign_last_part(whole);
  const char *said = foreign_text(p->word == SUB ? FOREIGN_LAYER : FOREIGN_CODE, last);
  uint32_t i = 0;
  if (last == whole || strchr(last, '.')) return false;
  const char *meant = foreign_meaning(last, &i);
  if (said) diag_help(r, "%s", said);
  else if (p->word != SUB && last[0] >= 'A' && last[0] <= 'Z')
    diag_help(r, "layers are declared, `sub name = %s[..]`, and called by their name", last);
  else if (meant && p->word != SUB) diag_help(r, "`%s` is `%s`, without a module", whole, meant);
  else {
    diag_help(r, "names have no modules: `%s`", meant ? meant : last);
    diag_edit(r, span_of(p, from, to), "%s", meant ? meant : last);
  }
  return true;
}

/* x.relu(), torch.relu(x) */
static bool help_method(Parse *p, Report *r, Span at, int found) {
  uint32_t name = at.offset, from = at.offset;
  if (found != LPAREN && found != LBRACKET) return false;
  while (name && in_name(*source_at(p, name - 1))) name--;
  while (from && in_path(*source_at(p, from - 1))) from--;
  if (name == at.offset || !name || *source_at(p, name - 1) != '.') return false;
  if (help_module(p, r, from, at.offset)) return true;
  if (found != LPAREN) return false;
  const char *method = text_between(p, name, at.offset);
  const char *said = foreign_text(FOREIGN_CODE, method);
  if (said) diag_help(r, "%s", said);
  else diag_help(r, "there are no methods and no prefixes: `%s(x)`, or `x |> %s`", method, method);
  return true;
}

/* sub fc = nn.Linear[In -> Out] */
static bool help_sub(Parse *p, Report *r, Span at, int found) {
  uint32_t from = at.offset, to = at.offset;
  if (found != DOT || p->word != SUB) return false;
  while (from && in_path(*source_at(p, from - 1))) from--;
  while (in_path(*source_at(p, to))) to++;
  return help_module(p, r, from, to);
}

/* Linear(In, Out), param w (In, Out), a == b at the beginning of a line */
static bool help_round(Parse *p, Report *r, Span at, int found) {
  uint32_t end = found == LPAREN ? closing(p, at.offset) : 0;
  if (found == EQ && p->word == IDENT && p->braces && !p->settings) {
    diag_help(r, "`=` gives a name to a value");
    diag_edit(r, at, "=");
    return true;
  }
  if (found == ASSIGN && p->word == OUTPUT) {
    diag_help(r, "first `name = ..`, then `output name`");
    return true;
  }
  if (!end) return help_method(p, r, at, found);
  if (p->word == SUB || p->word == PARAM || p->word == STACK) {
    const char *inside = text_between(p, at.offset, end), *comma = strchr(inside, ',');
    diag_help(r, "axes are in square brackets%s", p->word == SUB ? ": `Linear[In -> Out]`" : "");
    diag_edit(r, span_of(p, at.offset, at.offset + 1), "[");
    if (p->word == SUB && comma && !strchr(comma + 1, ',')) {
      uint32_t where = at.offset + (uint32_t)(comma - inside);
      diag_edit(r, span_of(p, where, where + 1), " ->");
    }
    diag_edit(r, span_of(p, end, end + 1), "]");
    return true;
  }
  return help_method(p, r, at, found);
}

/* dims { B as A }, recompute h* */
static bool help_other_word(Parse *p, Report *r, Span at, int found) {
  if (p->item == DIMS && p->braces && found == AS) {
    diag_help(r, "the same size under another name is written `like`");
    diag_edit(r, at, "like");
    return true;
  }
  if (!p->settings || !p->braces || found != STAR || !at.offset ||
      !in_name(*source_at(p, at.offset - 1)))
    return false;
  diag_help(r, "all layers of a stack are written `.*`");
  diag_edit(r, at, ".*");
  return true;
}

static const struct {
  int token;
  const char *text;
} examples[] = {
    {USE, "use \"std\""},
    {DIMS, "dims { Batch; Embed = 64; Key like Seq }"},
    {CONST, "const scale = 1 / sqrt(Embed)"},
    {FN, "fn half(x, p = 0.5) = p * x"},
    {GRAD, "grad half(x, dy) = 0.5 * dy"},
    {LAYER, "layer Feed(x: [*, Embed]) -> [*, Embed] {"},
    {MODEL, "model Name {"},
    {LAYOUT, "layout local [Seq, Key] = causal & sliding(64)"},
    {VARIANT, "variant Big of Name { Embed = 1024 }"},
    {TRAIN, "train run for Name {"},
    {PLAN, "plan small for Name {"},
    {MACHINE, "machine laptop {"},
    {WEIGHTS, "weights hf for Name {"},
    {PARAM, "param w [In, Out] ~ normal(0.02)"},
    {SUB, "sub fc = Linear[In -> Out]"},
    {STACK, "stack h [Layers] of Block"},
    {INPUT, "input tokens [Batch, Seq] of Vocab"},
    {OUTPUT, "output logits"},
};

static void help_example(const Parse *p, Report *r, int found) {
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    if (examples[i].token == p->word && !shard_in_settings(p, found))
      diag_help(r, "for example `%s`", examples[i].text);
}

void shard_help_on_line(Parse *p, Report *r, Span at, int found, const char *const *expected,
                        int n) {
  bool done = help_word(p, r, at, expected, n) || help_setting(p, r, at) ||
              help_operator(p, r, at) || help_other_word(p, r, at, found) ||
              help_sub(p, r, at, found) || help_round(p, r, at, found) ||
              help_missing(p, r, at, found, expected, n);
  if (!done && found == IDENT && shard_expects(expected, n, "=") && shard_expects(expected, n, ","))
    done = help_names(p, r, at);
  if (!done) help_example(p, r, found);
}
