/* Single edits of a dump's text: see edit_text.h. */
#include "edit_text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Random {
  uint64_t state;
} Random;

static uint64_t below(Random *r, uint64_t n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return n ? (r->state >> 33) % n : 0;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || strchr("_.*'", c); }

/* Sources are the user's text, which nothing but messages reads. */
static size_t begin_of(const char *text) {
  const char *at = strstr(text, "\ndim ");
  return at ? (size_t)(at - text) : 0;
}

/* The word before position `at`, over signs and numbers of a list. */
static void name_piece(const char *text, size_t at, char *key) {
  size_t end = at;
  while (end && !isalpha((unsigned char)text[end - 1]) && text[end - 1] != '\n') end--;
  size_t from = end;
  while (from && is_word(text[from - 1]) && end - from < EDIT_KEY - 1) from--;
  memcpy(key, text + from, end - from), key[end - from] = 0;
  bool of_storage =
      !strcmp(key, "strides") && text[end] == '('; /* rand has an attribute of that name */
  if (of_storage) snprintf(key, EDIT_KEY, "storage");
}

static void find_pieces(Arena *a, const char *text, Pieces *numbers, Pieces *words) {
  for (size_t i = begin_of(text); text[i];) {
    size_t from = i;
    bool sign = text[i] == '-' && isdigit((unsigned char)text[i + 1]);
    if (!sign && !is_word(text[i])) {
      i++;
      continue;
    }
    for (i += sign; is_word(text[i]);) i++;
    Piece p = {from, i, ""};
    name_piece(text, from, p.key);
    bool number = sign || isdigit((unsigned char)text[from]);
    if (!strcmp(p.key, "loc") || !strcmp(p.key, "f")) continue; /* places in sources */
    if (number) vec_push(a, *numbers, p);
    else vec_push(a, *words, p);
  }
}

static Text replaced(Arena *a, const char *text, size_t from, size_t to, const char *with) {
  Text t;
  t.at = arena_printf(a, "%.*s%s%s", (int)from, text, with, text + to);
  t.n = strlen(t.at);
  return t;
}

static const char *other_number(Arena *a, const char *text, const Piece *p, uint64_t how) {
  static const char *const fixed[] = {"0",
                                      "1",
                                      "-1",
                                      "-64",
                                      "2147483647",
                                      "2147483648",
                                      "4294967296",
                                      "4611686018427387904",
                                      "9223372036854775807",
                                      "1000000"};
  enum { FIXED = sizeof fixed / sizeof *fixed };
  long long n = strtoll(text + p->from, NULL, 10);
  const long long other[NUMBER_EDITS - FIXED] = {n + 1, n - 1,  2 * n,  n / 2,  -n,
                                                 n + 4, n + 16, n + 64, n - 64, n + 1048576};
  if (how < FIXED) return fixed[how];
  return arena_printf(a, "%lld", other[how - FIXED]);
}

static Text edit_number(Arena *a, const char *text, const Pieces *list, Random *r, Piece *p) {
  if (!list->n) return (Text){0};
  *p = list->at[below(r, list->n)];
  const Piece *q = &list->at[below(r, list->n)];
  uint64_t how = below(r, NUMBER_EDITS + 2);
  if (how < NUMBER_EDITS) return replaced(a, text, p->from, p->to, other_number(a, text, p, how));
  return replaced(
      a, text, p->from, p->to,
      arena_strndup(a, text + q->from, q->to - q->from)); /* the number of another piece */
}

static Text edit_word(Arena *a, const char *text, const Pieces *list, Random *r, Piece *p) {
  if (!list->n) return (Text){0};
  *p = list->at[below(r, list->n)];
  const Piece *q = &list->at[below(r, list->n)];
  for (int i = 0; i < 50 && strcmp(p->key, q->key); i++) q = &list->at[below(r, list->n)];
  return replaced(a, text, p->from, p->to, arena_strndup(a, text + q->from, q->to - q->from));
}

/* `at(..)`, `{..}`, `[..]` or `name = ..`: from an opening bracket, or a comma, to its end. */
static Text drop_clause(Arena *a, const char *text, Random *r, Piece *p) {
  size_t n = strlen(text), first = begin_of(text), from = first + below(r, n - first);
  while (from < n && !strchr("({[,", text[from])) from++;
  if (from == n) return (Text){0};
  char end = text[from] == '(' ? ')' : text[from] == '{' ? '}' : text[from] == '[' ? ']' : ',';
  size_t to = from + 1;
  while (to < n && text[to] != end && text[to] != '\n') to++;
  if (end != ',' && text[to] == end) to++;
  if (end == ')')
    while (from && is_word(text[from - 1])) from--;
  name_piece(text, to, p->key);
  return replaced(a, text, from, to, "");
}

static Text edit_line(Arena *a, const char *text, Random *r, Piece *p) {
  size_t n = strlen(text), first = begin_of(text), from = first + below(r, n - first);
  while (from && text[from - 1] != '\n') from--;
  size_t to = from + strcspn(text + from, "\n"), next = to + (text[to] == '\n');
  size_t end = next + strcspn(text + next, "\n");
  snprintf(p->key, EDIT_KEY, "line");
  char *line = arena_strndup(a, text + from, to - from);
  switch (below(r, 3)) {
  case 0: return replaced(a, text, from, next, "");
  case 1: return replaced(a, text, from, from, arena_printf(a, "%s\n", line));
  default:
    return replaced(a, text, from, end,
                    arena_printf(a, "%.*s\n%s", (int)(end - next), text + next, line));
  }
}

Text edit_by_seed(Arena *a, const char *text, uint64_t seed, Piece *p) {
  Random r = {seed * 2862933555777941757u + 3037000493u};
  Pieces numbers = {0}, words = {0};
  find_pieces(a, text, &numbers, &words);
  switch (below(&r, 8)) {
  case 0: return edit_word(a, text, &words, &r, p);
  case 1: return drop_clause(a, text, &r, p);
  case 2: return edit_line(a, text, &r, p);
  default: return edit_number(a, text, &numbers, &r, p);
  }
}

Pieces edit_numbers(Arena *a, const char *text) {
  Pieces numbers = {0}, words = {0};
  find_pieces(a, text, &numbers, &words);
  return numbers;
}

Text edit_number_at(Arena *a, const char *text, const Piece *p, uint64_t how) {
  return replaced(a, text, p->from, p->to, other_number(a, text, p, how));
}

/* ---- what is left out ---- */

/* The position after the bracket that opens at `at`, or after the line. */
static size_t behind(const char *text, size_t at) {
  int depth = 0;
  bool quoted = false;
  for (; text[at] && text[at] != '\n'; at++) {
    if (quoted && text[at] == '\\') at++;
    else if (text[at] == '"') quoted = !quoted;
    else if (quoted) continue;
    else if (strchr("({[", text[at])) depth++;
    else if (strchr(")}]", text[at]) && !--depth) return at + 1;
  }
  return at;
}

static void add_clause(Arena *a, Pieces *list, const char *text, size_t from, size_t to) {
  Piece p = {from, to, ""};
  size_t n = from;
  while (is_word(text[n]) && n - from < EDIT_KEY - 1) n++;
  memcpy(p.key, text + from, n - from), p.key[n - from] = 0;
  vec_push(a, *list, p);
}

/* `{a = 1, b = 2}`, `{0: inplace(%1) at(frame + 64)}`: clauses end with a comma, or with a space
   after a number of a result. */
static void inside(Arena *a, Pieces *list, const char *text, size_t from, size_t to) {
  const char *ends = isdigit((unsigned char)text[from]) ? " " : ",";
  if (*ends == ' ') from += strcspn(text + from, " ");
  while (from < to) {
    while (from < to && strchr(" ,", text[from])) from++;
    size_t end = from;
    while (end < to && text[end] != *ends)
      end = strchr("({[", text[end]) ? behind(text, end) : end + 1;
    if (end > from) add_clause(a, list, text, from, end < to ? end : to);
    from = end;
  }
}

static void in_line(Arena *a, Pieces *list, const char *text, size_t line, size_t end) {
  for (size_t i = line; i < end; i++) {
    if (text[i] == '"') {
      for (i++; i < end && text[i] != '"'; i++) i += text[i] == '\\';
      continue;
    }
    if (text[i] != '{') continue;
    size_t to = behind(text, i);
    if (text[to - 1] != '}') return; /* a function begins */
    add_clause(a, list, text, i, to);
    inside(a, list, text, i + 1, to - 1);
    i = to - 1;
  }
}

Pieces edit_clauses(Arena *a, const char *text) {
  Pieces list = {0};
  for (size_t line = begin_of(text) + 1, end; text[line]; line = end + (text[end] == '\n')) {
    static const char *const functions[] = {"entry ", "body ", "kernel ", "layer ", "sub ", "}"};
    end = line + strcspn(text + line, "\n");
    bool own = end > line && text[line] != ' ';
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
      own &= strncmp(text + line, functions[i], strlen(functions[i])) != 0;
    if (own) add_clause(a, &list, text, line, end + (text[end] == '\n'));
    in_line(a, &list, text, line, end);
  }
  return list;
}

Text edit_without(Arena *a, const char *text, const Piece *p) {
  size_t from = p->from, to = p->to;
  if (!strncmp(text + to, ", ", 2)) to += 2;
  else if (from > 1 && !strncmp(text + from - 2, ", ", 2)) from -= 2;
  return replaced(a, text, from, to, "");
}
