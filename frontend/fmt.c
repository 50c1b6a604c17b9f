/* The canonical layout of a `.shard` file.

   Works on the tokens of the lexer and on what stands between them (blanks, newlines, comments), so
   nothing can be lost. Line breaks stay where they are, but a block that is not on one line has its
   braces at line ends. The rules:

   - two blanks per open block; a line that goes on with a statement keeps the author's distance
     from the statement, at least two blanks;
   - one blank around operators, none inside brackets, after a call's name, around `^` and dots;
   - where the author put two or more blanks inside a line, the next token stays in its column, as
     far as the text before it leaves room: columns aligned by hand stay aligned;
   - a comment behind code stays in its column, at least two blanks behind the code; one on a line
   of its own stands where a statement would, or under the comment above it;
   - at most one empty line in a row, none at the ends of a block or of the file; no `;` at a line's
     end; no blanks at a line's end.

   Columns count characters, with tab stops of eight. Must not: decide what a construct means, or
   change a tree; fmt_text compares the trees before and after. */
#include "frontend/fmt.h"
#include "frontend/ast_reading.h"
#include "frontend/grammar.h"
#include <stdlib.h>

int shard_scan_lex(SHARD_STYPE *value, Span *at, void *scanner);

typedef struct FmtPiece { /* a token that is written */
  int code;
  uint32_t at, length;
  bool begins;   /* a statement, setting, dim or item */
  bool settings; /* inside a settings block */
  bool broken;   /* brace of a block on more than one line */
} FmtPiece;
typedef VEC(FmtPiece) Pieces;

typedef struct Fmt {
  Arena *arena;
  const char *text;
  uint32_t n;
  VEC(char) out;
  uint32_t column;             /* of the next character written */
  uint32_t cursor, cursor_col; /* a place in the text and its column, only moved forward */
  uint32_t line_in, line_out;  /* columns of the first token of this line */
  uint32_t stmt_in, stmt_out;  /* the same of the line on which the statement began */
  uint32_t note_in, note_out;  /* columns of the comment on the line above */
  bool note;                   /* there is one */
  uint32_t depth;              /* open braces */
  bool fresh;                  /* nothing since the last `{` but a comment behind it */
  const FmtPiece *last;
  bool sign;      /* the last token was a unary minus */
  bool path;      /* still in the first path of a setting */
  bool declares;  /* between `param`, `stack`, `input`, `layout` and its axes */
  VEC(bool) expr; /* per open ( and [ of settings: it holds an expression */
} Fmt;

/* ---- tokens ---- */

static bool is_written(const char *text, size_t n, const Token *t) {
  return t->code != SEMI || (t->span.offset < n && text[t->span.offset] == ';');
}

static bool newline_between(const char *text, uint32_t from, uint32_t to) {
  return from < to && memchr(text + from, '\n', to - from);
}

static void mark_block(Pieces *l, const char *text, uint32_t open) {
  FmtPiece *o = &l->at[open], *c = &vec_last(*l);
  o->broken = c->broken = newline_between(text, o->at, c->at);
}

static Pieces read_pieces(Ctx *c, const char *text, size_t n) {
  AstFile file = {0};
  Parse p = {.c = c, .file = &file};
  Pieces l = {0};
  VEC(uint32_t) braces = {0};
  Token t;
  SHARD_STYPE value;
  bool begins = true;
  if (!shard_lexer_open(&p, text, n)) return l;
  while ((t.code = shard_scan_lex(&value, &t.span, p.scanner)) > 0) {
    bool settings = p.settings && p.braces;
    if (is_written(text, n, &t))
      vec_push(c->arena, l,
               (FmtPiece){t.code, t.span.offset, t.span.length, begins, settings, false});
    if (t.code == LBRACE) vec_push(c->arena, braces, l.n - 1);
    if (t.code == RBRACE && braces.n) mark_block(&l, text, braces.at[--braces.n]);
    begins = t.code == SEMI || t.code == LBRACE;
  }
  shard_lexer_close(&p);
  return l;
}

/* A `;` that only repeats what the end of the line or of the block says. */
static bool is_idle(const Fmt *f, const Pieces *l, uint32_t i, uint32_t brackets) {
  const FmtPiece *t = &l->at[i];
  uint32_t next = i + 1;
  if (t->code != SEMI || brackets) return false;
  while (next < l->n && l->at[next].code == SEMI) next++;
  if (t->begins || next == l->n || l->at[next].code == RBRACE) return true;
  return newline_between(f->text, t->at, l->at[next].at);
}

static Pieces drop_idle(const Fmt *f, const Pieces *l) {
  Pieces kept = {0};
  uint32_t brackets = 0;
  for (uint32_t i = 0; i < l->n; i++) {
    const FmtPiece *t = &l->at[i];
    if (t->code == LPAREN || t->code == LBRACKET) brackets++;
    if (t->code == RPAREN || t->code == RBRACKET) brackets--;
    if (!is_idle(f, l, i, brackets)) vec_push(f->arena, kept, *t);
  }
  return kept;
}

/* ---- columns and characters ---- */

static uint32_t column_after(uint32_t column, char c) {
  if (c == '\n') return 0;
  if (c == '\t') return (column / 8 + 1) * 8;
  return column + (((unsigned char)c & 0xC0) != 0x80 && c != '\r');
}

static uint32_t column_of(Fmt *f, uint32_t at) {
  for (; f->cursor < at; f->cursor++)
    f->cursor_col = column_after(f->cursor_col, f->text[f->cursor]);
  return f->cursor_col;
}

static void put(Fmt *f, const char *text, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    vec_push(f->arena, f->out, text[i]);
    f->column = column_after(f->column, text[i]);
  }
}

static void put_to(Fmt *f, uint32_t column) {
  while (f->column < column) put(f, " ", 1);
}

static void put_break(Fmt *f, bool blank) {
  if (f->out.n) put(f, "\n\n", blank ? 2 : 1);
}

/* ---- how far apart two tokens of a line are ---- */

static bool ends_operand(int code) {
  return code == IDENT || code == NUMBER || code == STRING || code == RPAREN || code == RBRACKET ||
         code == DOTSTAR;
}

static bool is_sign(const Fmt *f, const FmtPiece *t) {
  bool in_expr = f->expr.n && vec_last(f->expr);
  if (t->code != MINUS) return false;
  return t->begins || !ends_operand(f->last->code) || (t->settings && !in_expr);
}

static bool is_tight(int code) {
  return code == DOT || code == DOTSTAR || code == DOTDOT || code == CARET;
}

static uint32_t gap_before_bracket(const Fmt *f, const FmtPiece *t) {
  int last = f->last->code;
  if (t->code == LPAREN && t->settings && f->path) return 1;
  if (t->code == LPAREN) return last != IDENT && last != RBRACKET;
  return (last != IDENT && last != PAD) || f->declares;
}

static uint32_t gap_before(const Fmt *f, const FmtPiece *t) {
  int last = f->last->code;
  if (last == LPAREN || last == LBRACKET || t->code == RPAREN || t->code == RBRACKET) return 0;
  if (last == LBRACE && t->code == RBRACE) return 0;
  if (t->code == COMMA || t->code == SEMI || t->code == COLON || last == AT || f->sign) return 0;
  if (is_tight(t->code)) return 0;
  if (is_tight(last) && last != DOTSTAR) return 0;
  return t->code == LPAREN || t->code == LBRACKET ? gap_before_bracket(f, t) : 1;
}

/* Two blanks or more are there for a reason. */
static bool aligned(const Fmt *f, const FmtPiece *t) {
  const char *before = f->text + t->at;
  if (f->last->code == LBRACE || t->code == RBRACE || t->at < 2) return false;
  return before[-1] == '\t' || (before[-1] == ' ' && (before[-2] == ' ' || before[-2] == '\t'));
}

static void put_gap(Fmt *f, const FmtPiece *t, uint32_t column) {
  uint32_t gap = gap_before(f, t);
  put_to(f, f->column + gap);
  if (gap && aligned(f, t) && column + f->line_out > f->line_in)
    put_to(f, column + f->line_out - f->line_in);
}

/* ---- lines ---- */

static bool closes(const FmtPiece *t) { return t && (t->code == RPAREN || t->code == RBRACKET); }

/* Where a line stands whose first token is `t` (NULL: the end) and whose first character is at
   column `in` of the text. */
static uint32_t indent_of(const Fmt *f, const FmtPiece *t, uint32_t in) {
  uint32_t extra = in > f->stmt_in ? in - f->stmt_in : 0;
  if (!t || t->begins || t->code == RBRACE) return 2 * f->depth;
  return f->stmt_out + (extra < 2 && !closes(t) ? 2 : extra);
}

static void put_comment(Fmt *f, uint32_t at, uint32_t end, uint32_t newlines,
                        const FmtPiece *next) {
  uint32_t in = column_of(f, at), to = in;
  while (end > at && strchr(" \t\r", f->text[end - 1])) end--;
  bool behind = f->last && !newlines;
  if (behind && to < f->column + 2) to = f->column + 2;
  if (!behind) {
    to = f->note && in == f->note_in ? f->note_out : indent_of(f, next, in);
    put_break(f, newlines > 1 && !f->fresh);
    f->fresh = false;
  }
  put_to(f, to);
  put(f, f->text + at, end - at);
  f->note = true, f->note_in = in, f->note_out = to;
}

static void begin_line(Fmt *f, const FmtPiece *t, uint32_t column, bool blank) {
  put_break(f, blank && !f->fresh && t->code != RBRACE);
  if (t->code == RBRACE && f->depth) f->depth--;
  f->line_in = column, f->line_out = indent_of(f, t, column);
  put_to(f, f->line_out);
}

static void put_between(Fmt *f, const FmtPiece *t, uint32_t column, uint32_t newlines, bool noted) {
  bool empty = f->last && f->last->code == LBRACE && t->code == RBRACE && !noted;
  bool opened = f->last && f->last->code == LBRACE && f->last->broken;
  bool breaks = !f->last || newlines || opened || (t->code == RBRACE && t->broken);
  if (breaks && !empty) begin_line(f, t, column, newlines > 1);
  else {
    if (t->code == RBRACE && f->depth) f->depth--;
    put_gap(f, t, column);
  }
}

/* Everything between the last token and the next one, or the end; then where the next one goes. */
static void put_trivia(Fmt *f, uint32_t from, const FmtPiece *t) {
  uint32_t newlines = 0, to = t ? t->at : f->n;
  bool noted = false;
  f->note = false;
  for (uint32_t i = from; i < to; i++) {
    if (f->text[i] == '\n') newlines++;
    if (newlines > 1) f->note = false;
    if (f->text[i] != '#') continue;
    uint32_t end = i;
    while (end < f->n && f->text[end] != '\n') end++;
    put_comment(f, i, end, newlines, t);
    newlines = 0, i = end - 1, noted = true;
  }
  if (t) put_between(f, t, column_of(f, t->at), newlines, noted);
}

/* ---- what the layout has to remember ---- */

static bool is_keyword_of_axes(int code) {
  return code == PARAM || code == STACK || code == INPUT || code == LAYOUT;
}

static bool in_path(const FmtPiece *t, int last) {
  return t->begins || last == DOT || last == DOTDOT || last == LBRACKET || t->code == RBRACKET ||
         is_tight(t->code) || t->code == LBRACKET;
}

static void remember_brackets(Fmt *f, const FmtPiece *t) {
  bool outer = f->expr.n && vec_last(f->expr);
  bool call = f->last && f->last->code == IDENT && !f->path;
  if (t->code == LPAREN) vec_push(f->arena, f->expr, outer || !call);
  else if (t->code == LBRACKET) vec_push(f->arena, f->expr, outer);
  else if (closes(t) && f->expr.n) f->expr.n--;
}

static void remember(Fmt *f, const FmtPiece *t, bool sign) {
  if (t->begins) f->stmt_in = f->line_in, f->stmt_out = f->line_out;
  remember_brackets(f, t);
  if (t->begins) f->path = true, f->declares = is_keyword_of_axes(t->code);
  f->path = f->path && in_path(t, f->last ? f->last->code : 0);
  if (t->code == LBRACKET || t->code == ASSIGN || t->code == TILDE || t->code == OF)
    f->declares = false;
  f->fresh = t->code == LBRACE;
  f->depth += t->code == LBRACE;
  f->sign = sign;
  f->last = t;
}

static void format(Fmt *f, const Pieces *l) {
  uint32_t end = 0;
  f->fresh = true;
  for (uint32_t i = 0; i < l->n; i++) {
    const FmtPiece *t = &l->at[i];
    put_trivia(f, end, t);
    bool sign = is_sign(f, t);
    put(f, f->text + t->at, t->length);
    remember(f, t, sign);
    end = t->at + t->length;
  }
  put_trivia(f, end, NULL);
  if (f->out.n) put(f, "\n", 1);
}

/* ---- the way in ---- */

static char *tree_text(Ctx *c, const char *name, const char *text, size_t n) {
  AstFile *tree = ast_parse(c, name, text, n);
  char *printed = NULL;
  size_t length;
  FILE *out = tree && !diag_errors(c->diag) ? heap_stream(&printed, &length) : NULL;
  if (!out) return NULL;
  ast_print_plain(c, tree, out);
  fclose(out);
  return printed;
}

static void compare_trees(const char *name, const char *before, const char *text, size_t n) {
  Ctx *c = ctx_new();
  char *after = tree_text(c, name, text, n);
  if (!after || strcmp(before, after)) bug("the layout of %s changes what it says", name);
  free(after);
  ctx_free(c);
}

char *fmt_text(Ctx *c, const char *name, const char *text, size_t n, size_t *out_n) {
  char *before = tree_text(c, name, text, n);
  if (!before) return NULL;
  Fmt f = {.arena = c->arena, .text = text, .n = (uint32_t)n};
  Pieces all = read_pieces(c, text, n), kept = drop_idle(&f, &all);
  format(&f, &kept);
  *out_n = f.out.n;
  vec_push(f.arena, f.out, 0);
  compare_trees(name, before, f.out.at, *out_n);
  free(before);
  return f.out.at;
}
