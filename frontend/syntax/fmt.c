/* The canonical layout of a `.shard` file.

   Works on the tokens of the lexer and the text between them (blanks, newlines, comments), so
   nothing can be lost. Line breaks stay where they are, but a block that is not on one line has its
   braces at line ends. The rules:

   - two blanks per open block; a line that goes on with a statement keeps the author's distance
     from the statement, at least two blanks;
   - one blank around operators, none inside brackets, after a call's name, around `^` and dots;
   - where the author put two or more blanks inside a line, the next token stays in its column, as
     far as the text before it leaves room: columns aligned by hand stay aligned;
   - a comment after code stays in its column, at least two blanks after the code; one on a line of
   its own is indented like a statement, or like the comment above it; - at most one empty line in a
   row, none at the ends of a block or of the file; no `;` at a line's
     end; no blanks at a line's end.

   Columns count characters, with tab stops of eight. Must not: decide what a construct means, or
   change a tree; fmt_text compares the trees before and after. */
#include "fmt.h"
#include "ast_reading.h"
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
  bool fresh;                  /* nothing since the last `{` except a comment after it */
  const FmtPiece *last;
  bool sign;      /* the last token was a unary minus */
  bool path;      /* still in the first path of a setting */
  bool declares;  /* between `param`, `stack`, `input`, `layout` and its axes */
  VEC(bool) expr; /* per open ( and [ of settings: it holds an expression */
} Fmt;

/* ---- tokens ---- */

static bool is_written(const char *text, size_t n, const Token *token) {
  return token->code != SEMI || (token->span.offset < n && text[token->span.offset] == ';');
}

static bool newline_between(const char *text, uint32_t from, uint32_t to) {
  return from < to && memchr(text + from, '\n', to - from);
}

static void mark_block(Pieces *pieces, const char *text, uint32_t open) {
  FmtPiece *o = &pieces->at[open], *c = &vec_last(*pieces);
  o->broken = c->broken = newline_between(text, o->at, c->at);
}

static Pieces read_pieces(Ctx *c, const char *text, size_t n) {
  AstFile file = {0};
  Parse p = {.c = c, .file = &file};
  Pieces pieces = {0};
  VEC(uint32_t) braces = {0};
  Token token;
  SHARD_STYPE value;
  bool begins = true;
  if (!shard_lexer_open(&p, text, n)) return pieces;
  while ((token.code = shard_scan_lex(&value, &token.span, p.scanner)) > 0) {
    bool settings = p.settings && p.braces;
    if (is_written(text, n, &token))
      vec_push(
          c->arena, pieces,
          (FmtPiece){token.code, token.span.offset, token.span.length, begins, settings, false});
    if (token.code == LBRACE) vec_push(c->arena, braces, pieces.n - 1);
    if (token.code == RBRACE && braces.n) mark_block(&pieces, text, braces.at[--braces.n]);
    begins = token.code == SEMI || token.code == LBRACE;
  }
  shard_lexer_close(&p);
  return pieces;
}

/* A `;` that only repeats what the end of the line or of the block says. */
static bool is_idle(const Fmt *fmt, const Pieces *pieces, uint32_t i, uint32_t brackets) {
  const FmtPiece *piece = &pieces->at[i];
  uint32_t next = i + 1;
  if (piece->code != SEMI || brackets) return false;
  while (next < pieces->n && pieces->at[next].code == SEMI) next++;
  if (piece->begins || next == pieces->n || pieces->at[next].code == RBRACE) return true;
  return newline_between(fmt->text, piece->at, pieces->at[next].at);
}

static Pieces drop_idle(const Fmt *fmt, const Pieces *pieces) {
  Pieces kept = {0};
  uint32_t brackets = 0;
  for (uint32_t i = 0; i < pieces->n; i++) {
    const FmtPiece *piece = &pieces->at[i];
    if (piece->code == LPAREN || piece->code == LBRACKET) brackets++;
    if (piece->code == RPAREN || piece->code == RBRACKET) brackets--;
    if (!is_idle(fmt, pieces, i, brackets)) vec_push(fmt->arena, kept, *piece);
  }
  return kept;
}

/* ---- columns and characters ---- */

static uint32_t column_after(uint32_t column, char c) {
  if (c == '\n') return 0;
  if (c == '\t') return (column / 8 + 1) * 8;
  return column + (((unsigned char)c & 0xC0) != 0x80 && c != '\r');
}

static uint32_t column_of(Fmt *fmt, uint32_t at) {
  for (; fmt->cursor < at; fmt->cursor++)
    fmt->cursor_col = column_after(fmt->cursor_col, fmt->text[fmt->cursor]);
  return fmt->cursor_col;
}

static void put(Fmt *fmt, const char *text, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    vec_push(fmt->arena, fmt->out, text[i]);
    fmt->column = column_after(fmt->column, text[i]);
  }
}

static void put_to(Fmt *fmt, uint32_t column) {
  while (fmt->column < column) put(fmt, " ", 1);
}

static void put_break(Fmt *fmt, bool blank) {
  if (fmt->out.n) put(fmt, "\n\n", blank ? 2 : 1);
}

/* ---- how far apart two tokens of a line are ---- */

static bool ends_operand(int code) {
  return code == IDENT || code == NUMBER || code == STRING || code == RPAREN || code == RBRACKET ||
         code == DOTSTAR;
}

static bool is_sign(const Fmt *fmt, const FmtPiece *piece) {
  bool in_expr = fmt->expr.n && vec_last(fmt->expr);
  if (piece->code != MINUS) return false;
  return piece->begins || !ends_operand(fmt->last->code) || (piece->settings && !in_expr);
}

static bool is_tight(int code) {
  return code == DOT || code == DOTSTAR || code == DOTDOT || code == CARET;
}

static uint32_t gap_before_bracket(const Fmt *fmt, const FmtPiece *piece) {
  int last = fmt->last->code;
  if (piece->code == LPAREN && piece->settings && fmt->path) return 1;
  if (piece->code == LPAREN) return last != IDENT && last != RBRACKET;
  return (last != IDENT && last != PAD) || fmt->declares;
}

static uint32_t gap_before(const Fmt *fmt, const FmtPiece *piece) {
  int last = fmt->last->code;
  if (last == LPAREN || last == LBRACKET || piece->code == RPAREN || piece->code == RBRACKET)
    return 0;
  if (last == LBRACE && piece->code == RBRACE) return 0;
  if (piece->code == COMMA || piece->code == SEMI || piece->code == COLON || last == AT ||
      fmt->sign)
    return 0;
  if (is_tight(piece->code)) return 0;
  if (is_tight(last) && last != DOTSTAR) return 0;
  return piece->code == LPAREN || piece->code == LBRACKET ? gap_before_bracket(fmt, piece) : 1;
}

/* Two blanks or more are intentional. */
static bool aligned(const Fmt *fmt, const FmtPiece *piece) {
  const char *before = fmt->text + piece->at;
  if (fmt->last->code == LBRACE || piece->code == RBRACE || piece->at < 2) return false;
  return before[-1] == '\t' || (before[-1] == ' ' && (before[-2] == ' ' || before[-2] == '\t'));
}

static void put_gap(Fmt *fmt, const FmtPiece *piece, uint32_t column) {
  uint32_t gap = gap_before(fmt, piece);
  put_to(fmt, fmt->column + gap);
  if (gap && aligned(fmt, piece) && column + fmt->line_out > fmt->line_in)
    put_to(fmt, column + fmt->line_out - fmt->line_in);
}

/* ---- lines ---- */

static bool closes(const FmtPiece *piece) {
  return piece && (piece->code == RPAREN || piece->code == RBRACKET);
}

/* The column of a line whose first token is `piece` (NULL: the end) and whose first character is at
   column `in` of the text. */
static uint32_t indent_of(const Fmt *fmt, const FmtPiece *piece, uint32_t in) {
  uint32_t extra = in > fmt->stmt_in ? in - fmt->stmt_in : 0;
  if (!piece || piece->begins || piece->code == RBRACE) return 2 * fmt->depth;
  return fmt->stmt_out + (extra < 2 && !closes(piece) ? 2 : extra);
}

static void put_comment(Fmt *fmt, uint32_t at, uint32_t end, uint32_t newlines,
                        const FmtPiece *next) {
  uint32_t in = column_of(fmt, at), to = in;
  while (end > at && strchr(" \t\r", fmt->text[end - 1])) end--;
  bool behind = fmt->last && !newlines;
  if (behind && to < fmt->column + 2) to = fmt->column + 2;
  if (!behind) {
    to = fmt->note && in == fmt->note_in ? fmt->note_out : indent_of(fmt, next, in);
    put_break(fmt, newlines > 1 && !fmt->fresh);
    fmt->fresh = false;
  }
  put_to(fmt, to);
  put(fmt, fmt->text + at, end - at);
  fmt->note = true, fmt->note_in = in, fmt->note_out = to;
}

static void begin_line(Fmt *fmt, const FmtPiece *piece, uint32_t column, bool blank) {
  put_break(fmt, blank && !fmt->fresh && piece->code != RBRACE);
  if (piece->code == RBRACE && fmt->depth) fmt->depth--;
  fmt->line_in = column, fmt->line_out = indent_of(fmt, piece, column);
  put_to(fmt, fmt->line_out);
}

static void put_between(Fmt *fmt, const FmtPiece *piece, uint32_t column, uint32_t newlines,
                        bool noted) {
  bool empty = fmt->last && fmt->last->code == LBRACE && piece->code == RBRACE && !noted;
  bool opened = fmt->last && fmt->last->code == LBRACE && fmt->last->broken;
  bool breaks = !fmt->last || newlines || opened || (piece->code == RBRACE && piece->broken);
  if (breaks && !empty) begin_line(fmt, piece, column, newlines > 1);
  else {
    if (piece->code == RBRACE && fmt->depth) fmt->depth--;
    put_gap(fmt, piece, column);
  }
}

/* Everything between the last token and the next one, or the end; then where the next one goes. */
static void put_trivia(Fmt *fmt, uint32_t from, const FmtPiece *piece) {
  uint32_t newlines = 0, to = piece ? piece->at : fmt->n;
  bool noted = false;
  fmt->note = false;
  for (uint32_t i = from; i < to; i++) {
    if (fmt->text[i] == '\n') newlines++;
    if (newlines > 1) fmt->note = false;
    if (fmt->text[i] != '#') continue;
    uint32_t end = i;
    while (end < fmt->n && fmt->text[end] != '\n') end++;
    put_comment(fmt, i, end, newlines, piece);
    newlines = 0, i = end - 1, noted = true;
  }
  if (piece) put_between(fmt, piece, column_of(fmt, piece->at), newlines, noted);
}

/* ---- what the layout has to remember ---- */

static bool is_keyword_of_axes(int code) {
  return code == PARAM || code == STACK || code == INPUT || code == LAYOUT;
}

static bool in_path(const FmtPiece *piece, int last) {
  return piece->begins || last == DOT || last == DOTDOT || last == LBRACKET ||
         piece->code == RBRACKET || is_tight(piece->code) || piece->code == LBRACKET;
}

static void remember_brackets(Fmt *fmt, const FmtPiece *piece) {
  bool outer = fmt->expr.n && vec_last(fmt->expr);
  bool call = fmt->last && fmt->last->code == IDENT && !fmt->path;
  if (piece->code == LPAREN) vec_push(fmt->arena, fmt->expr, outer || !call);
  else if (piece->code == LBRACKET) vec_push(fmt->arena, fmt->expr, outer);
  else if (closes(piece) && fmt->expr.n) fmt->expr.n--;
}

static void remember(Fmt *fmt, const FmtPiece *piece, bool sign) {
  if (piece->begins) fmt->stmt_in = fmt->line_in, fmt->stmt_out = fmt->line_out;
  remember_brackets(fmt, piece);
  if (piece->begins) fmt->path = true, fmt->declares = is_keyword_of_axes(piece->code);
  fmt->path = fmt->path && in_path(piece, fmt->last ? fmt->last->code : 0);
  if (piece->code == LBRACKET || piece->code == ASSIGN || piece->code == TILDE || piece->code == OF)
    fmt->declares = false;
  fmt->fresh = piece->code == LBRACE;
  fmt->depth += piece->code == LBRACE;
  fmt->sign = sign;
  fmt->last = piece;
}

static void format(Fmt *fmt, const Pieces *pieces) {
  uint32_t end = 0;
  fmt->fresh = true;
  for (uint32_t i = 0; i < pieces->n; i++) {
    const FmtPiece *piece = &pieces->at[i];
    put_trivia(fmt, end, piece);
    bool sign = is_sign(fmt, piece);
    put(fmt, fmt->text + piece->at, piece->length);
    remember(fmt, piece, sign);
    end = piece->at + piece->length;
  }
  put_trivia(fmt, end, NULL);
  if (fmt->out.n) put(fmt, "\n", 1);
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
  Fmt fmt = {.arena = c->arena, .text = text, .n = (uint32_t)n};
  Pieces all = read_pieces(c, text, n), kept = drop_idle(&fmt, &all);
  format(&fmt, &kept);
  *out_n = fmt.out.n;
  vec_push(fmt.arena, fmt.out, 0);
  compare_trees(name, before, fmt.out.at, *out_n);
  free(before);
  return fmt.out.at;
}
