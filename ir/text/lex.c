/* Characters of the IR text: blanks, words, numbers, strings, types, groups, attributes, locations.

   Every function reads at the cursor and goes past what it read. The text ends with a NUL, which no
   rule accepts, so no rule needs to know the length. Numbers are read with their ranges checked;
   nothing is trusted. */
#include "parse.h"
#include "ir/shape/placement.h"
#include <errno.h>
#include <stdlib.h>

Span lex_span(const Parser *p, size_t from) {
  size_t to = p->at > from ? p->at : from + 1;
  if (to > p->n) to = p->n;
  return (Span){p->file, (uint32_t)from, to > from ? (uint32_t)(to - from) : 0};
}

void lex_fail(Parser *p, const char *code, size_t at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(p->m->arena, format, args);
  va_end(args);
  diag_at(p->m->ctx->diag, code, lex_span(p, at), "%s", text);
  p->failed = p->quiet = true;
  longjmp(p->line, 1);
}

void lex_blanks(Parser *p) {
  while (p->text[p->at] == ' ' || p->text[p->at] == '\t' || p->text[p->at] == '\r') p->at++;
  if (p->text[p->at] == '#')
    while (p->at < p->n && p->text[p->at] != '\n') p->at++;
}

bool lex_at_end(Parser *p) {
  lex_blanks(p);
  return p->at >= p->n || p->text[p->at] == '\n';
}

/* The text at the cursor, for messages. */
static const char *here(Parser *p) {
  if (lex_at_end(p)) return "the end of the line";
  unsigned char c = (unsigned char)p->text[p->at];
  if (c < 32 || c > 126) return arena_printf(p->m->arena, "byte %02x", c);
  size_t n = 1;
  while (text_is_word_char(p->text[p->at]) && text_is_word_char(p->text[p->at + n]) && n < 40) n++;
  return arena_printf(p->m->arena, "`%.*s`", (int)n, p->text + p->at);
}

static _Noreturn void expected(Parser *p, const char *what) {
  const char *found = here(p);
  size_t at = p->at;
  lex_fail(p, "E1001", at, "expected %s, found %s", what, found);
}

void lex_end(Parser *p) {
  if (!lex_at_end(p)) expected(p, "the end of the line");
}

bool lex_is(Parser *p, char c) {
  lex_blanks(p);
  return p->text[p->at] == c && p->at < p->n;
}

bool lex_take(Parser *p, char c) { return lex_is(p, c) ? p->at++, true : false; }

bool lex_arrow(Parser *p) {
  lex_blanks(p);
  if (p->text[p->at] != '-' || p->text[p->at + 1] != '>') return false;
  p->at += 2;
  return true;
}

bool lex_rest(Parser *p) {
  lex_blanks(p);
  if (p->text[p->at] != '.' || p->text[p->at + 1] != '.') return false;
  p->at += 2;
  return true;
}

void lex_expect(Parser *p, char c) {
  if (!lex_take(p, c)) expected(p, arena_printf(p->m->arena, "`%c`", c));
}

bool lex_keyword(Parser *p, const char *word) {
  lex_blanks(p);
  size_t n = strlen(word);
  if (strncmp(p->text + p->at, word, n) || text_is_word_char(p->text[p->at + n])) return false;
  p->at += n;
  return true;
}

static Str run_of(Parser *p, bool (*allowed)(char), const char *what) {
  size_t from = p->at;
  if (!text_is_start(p->text[from])) expected(p, what);
  while (allowed(p->text[p->at])) p->at++;
  return intern_n(p->m->ctx->names, p->text + from, p->at - from);
}

Str lex_word(Parser *p, const char *what) {
  lex_blanks(p);
  return run_of(p, text_is_word_char, what);
}

Str lex_key(Parser *p, const char *what) {
  return lex_is(p, '"') ? lex_quoted(p) : run_of(p, text_is_key_char, what);
}

Str lex_path(Parser *p) {
  lex_blanks(p);
  return run_of(p, text_is_symbol_char, "a name");
}

static bool is_layers_char(char c) { return text_is_symbol_char(c) || c == '[' || c == ']'; }

Str lex_layers(Parser *p) {
  lex_blanks(p);
  return run_of(p, is_layers_char, "a path");
}

Str lex_symbol(Parser *p) {
  lex_expect(p, '@');
  return run_of(p, text_is_symbol_char, "a name");
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static char escaped(Parser *p) {
  char c = p->text[p->at++];
  if (c == 'n') return '\n';
  if (c == 't') return '\t';
  if (c == '"' || c == '\\') return c;
  int high = c == 'x' ? hex_digit(p->text[p->at]) : -1;
  int low = high >= 0 ? hex_digit(p->text[p->at + 1]) : -1;
  if (low < 0 || !(high | low)) lex_fail(p, "E1001", p->at - 2, "unknown escape in a text");
  p->at += 2;
  return (char)(high << 4 | low);
}

Str lex_quoted(Parser *p) {
  lex_expect(p, '"');
  size_t from = p->at, n = 0;
  while (p->text[p->at] != '"') {
    if (p->at >= p->n || (unsigned char)p->text[p->at] < 32)
      lex_fail(p, "E1001", from - 1, "the text has no end on its line");
    p->at += 1 + (p->text[p->at] == '\\' && p->at + 1 < p->n);
  }
  char *s = arena_alloc(p->m->arena, p->at - from + 1);
  for (p->at = from; p->text[p->at] != '"';)
    s[n++] = p->text[p->at++] == '\\' ? escaped(p) : p->text[p->at - 1];
  p->at++;
  return intern_n(p->m->ctx->names, s, n);
}

Str lex_value(Parser *p) {
  lex_blanks(p);
  size_t from = p->at;
  p->at += p->text[p->at] == '-';
  while (text_is_word_char(p->text[p->at])) p->at++;
  if (p->at == from) expected(p, "a value");
  return intern_n(p->m->ctx->names, p->text + from, p->at - from);
}

int64_t lex_int(Parser *p) {
  lex_blanks(p);
  const char *from = p->text + p->at, *digits = from + (*from == '-');
  if (*digits < '0' || *digits > '9') expected(p, "a whole number");
  char *end;
  errno = 0;
  int64_t i = strtoll(from, &end, 10);
  if (errno) lex_fail(p, "E1001", p->at, "a number that does not fit 64 bits");
  p->at += (size_t)(end - from);
  return i;
}

uint32_t lex_count(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  int64_t i = lex_int(p);
  if (i < 0 || i > UINT32_MAX)
    lex_fail(p, "E1001", at, "the number %lld is out of range", (long long)i);
  return (uint32_t)i;
}

double lex_float(Parser *p) {
  lex_blanks(p);
  const char *from = p->text + p->at, *digits = from + (*from == '-');
  bool number = *digits >= '0' && *digits <= '9';
  if (!number && strncmp(digits, "inf", 3) && strncmp(from, "nan", 3)) expected(p, "a number");
  if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) expected(p, "a decimal number");
  char *end;
  double f = strtod(from, &end);
  p->at += (size_t)(end - from);
  return f;
}

static const int64_t longest_dim = (int64_t)1 << 40, most_elements = (int64_t)1 << 50;

/* Puts a state at the mesh axis that is named next, which must have none yet. */
static int take_axis(Parser *p, Placement *placed, Str state) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_word(p, "a mesh axis");
  int axis = mesh_find(p->m, name);
  if (axis < 0) lex_fail(p, "E1003", at, "the mesh has no axis `%s`", name);
  if (placed->on[axis]) lex_fail(p, "E1001", at, "mesh axis %s appears in the type twice", name);
  placed->on[axis] = state;
  return axis;
}

static void lex_cuts(Parser *p, Placement *placed, Str dim) {
  int axes[MAX_MESH], n = mesh_order(p->m, axes), last = -1;
  while (lex_take(p, '/')) {
    size_t at = p->at;
    int axis = take_axis(p, placed, dim), place = 0;
    while (place < n && axes[place] != axis) place++;
    if (place <= last)
      lex_fail(p, "E1001", at, "mesh axes cut %s in another order than the place lines", dim);
    last = place;
  }
}

static void lex_partial(Parser *p, Placement *placed) {
  if (!lex_keyword(p, "partial")) return;
  lex_expect(p, '(');
  do take_axis(p, placed, lex_keyword(p, "max") ? PARTIAL_MAX : PARTIAL_SUM);
  while (lex_take(p, ','));
  lex_expect(p, ')');
}

static void add_axis(Parser *p, Type *t, Placement *placed) {
  lex_blanks(p);
  size_t at = p->at;
  Str dim = lex_word(p, "a dim");
  lex_cuts(p, placed, dim);
  lex_expect(p, ':');
  int64_t size = lex_int(p);
  if (type_find(t, dim) >= 0) lex_fail(p, "E1001", at, "dim %s appears in the type twice", dim);
  if (t->rank == MAX_RANK) lex_fail(p, "E1001", at, "a type has at most %d dims", MAX_RANK);
  if (size < 1 || size > longest_dim || size > most_elements / type_count(t))
    lex_fail(p, "E1001", at, "dim %s has a size out of range", dim);
  t->axis[t->rank++] = (Axis){dim, size};
}

Type lex_type(Parser *p, Placement *placed) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_word(p, "a type");
  Type t = {0};
  *placed = (Placement){0};
  if (tier_find(name, &t.tier)) lex_blanks(p), at = p->at, name = lex_word(p, "a type");
  if (!elem_find(name, &t.elem)) lex_fail(p, "E1001", at, "no element type named `%s`", name);
  lex_expect(p, '[');
  if (!lex_is(p, ']')) do
      add_axis(p, &t, placed);
    while (lex_take(p, ','));
  lex_expect(p, ']');
  lex_partial(p, placed);
  return t;
}

static int names(Parser *p, Str *list) {
  int n = 0;
  lex_blanks(p);
  if (!text_is_start(p->text[p->at])) return 0;
  do {
    if (n == MAX_RANK) lex_fail(p, "E1001", p->at, "a group has at most %d dims", MAX_RANK);
    list[n++] = lex_word(p, "a dim");
  } while (lex_take(p, ','));
  return n;
}

Group lex_group(Parser *p) {
  Group g = {0};
  g.nfrom = names(p, g.from);
  g.arrow = lex_arrow(p);
  if (g.arrow) g.nto = names(p, g.to);
  return g;
}

static void lex_ints(Parser *p, AttrList *attr_list, AttrKey k) {
  VEC(int64_t) list = {0};
  lex_expect(p, '[');
  if (!lex_is(p, ']')) do
      vec_push(p->m->arena, list, lex_int(p));
    while (lex_take(p, ','));
  lex_expect(p, ']');
  attr_set_ints(p->m, attr_list, k, (int)list.n, list.at);
}

Str lex_renamed(Parser *p, RenamedKind kind, size_t at, Str word) {
  int row = renamed_find(kind, word);
  if (row < 0) return word;
  const char *new = renamed_to(row);
  renamed_note(p->m->ctx, &p->renamed[row], lex_span(p, at), word, new);
  return intern(p->m->ctx->names, new);
}

bool lex_new_keyword(Parser *p, const char *word) {
  if (lex_keyword(p, word)) return true;
  const char *old = renamed_from(RENAMED_KEYWORD, word);
  size_t at = p->at;
  return lex_keyword(p, old) && lex_renamed(p, RENAMED_KEYWORD, at, old);
}

static void lex_attr(Parser *p, AttrList *list) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_renamed(p, RENAMED_ATTRIBUTE, at, lex_word(p, "an attribute"));
  AttrKey k;
  if (!attr_find(name, &k)) lex_fail(p, "E1002", at, "no attribute named `%s`", name);
  if (attr_get(list, k)) lex_fail(p, "E1001", at, "attribute `%s` is given twice", name);
  lex_expect(p, '=');
  switch (attr_kind(k)) {
  case ATTR_INT: attr_set_int(p->m, list, k, lex_int(p)); break;
  case ATTR_FLOAT: attr_set_float(p->m, list, k, lex_float(p)); break;
  case ATTR_STR: attr_set_str(p->m, list, k, lex_quoted(p)); break;
  case ATTR_INTS: lex_ints(p, list, k);
  }
}

void lex_attrs(Parser *p, AttrList *list) {
  if (!lex_take(p, '{')) return;
  if (lex_take(p, '}')) return;
  do lex_attr(p, list);
  while (lex_take(p, ','));
  lex_expect(p, '}');
}

bool lex_loc(Parser *p, const char *word, Loc *l) {
  if (!lex_keyword(p, word)) return false;
  lex_expect(p, '(');
  lex_expect(p, 'f');
  l->file = lex_count(p);
  lex_expect(p, ':');
  l->line = lex_count(p);
  lex_expect(p, ':');
  l->column = lex_count(p);
  lex_expect(p, '+');
  l->length = lex_count(p);
  lex_expect(p, ')');
  return true;
}
