/* Between lexer and grammar: open brackets, where lines end, and recovery from mistakes; and the
   way in, ast_parse.

   The generated parser recovers at `;`. This filter makes the right `;` arrive: after a mistake it
   drops tokens up to the end of the line in the block where the mistake was, with everything in
   deeper blocks. A word that begins an item
   (`layer`, `model`, ..) is not allowed inside a block of statements; if one occurs, a `}` is
   missing and is inserted. Must not: decide what a construct means. */
#include "keywords.h"
#include "ast_reading.h"
#include "frontend/grammar.h"

int shard_scan_lex(SHARD_STYPE *value, Span *at, void *scanner);
int shard_lex(SHARD_STYPE *value, Span *at, Parse *p);

/* ---- brackets ---- */

/* open ( and [ of this block */
static uint32_t shard_open_depth(const Parse *p) {
  uint32_t n = 0;
  while (n < p->open.n && p->open.at[p->open.n - 1 - n].close != '}') n++;
  return n;
}

/* forgets ( and [ that are still open in this block */
static void shard_open_drop(Parse *p) { p->open.n -= shard_open_depth(p); }

static OpenKind square_kind(const Parse *p, int last) {
  bool settings = p->settings && p->braces;
  if (last == IDENT || last == PAD) return settings ? OPEN_RANGE : OPEN_DIMS;
  if (last == AS || last == COLON || last == ARROW) return OPEN_DIMS;
  return OPEN_LIST;
}

static OpenKind round_kind(const Parse *p, int last) {
  bool after_name = last == IDENT || last == RBRACKET;
  if (after_name && !p->braces && p->word != CONST) return OPEN_OPERANDS;
  return after_name ? OPEN_ARGS : OPEN_PAREN;
}

void shard_open_push(Parse *p, char open, int last) {
  OpenBracket o = {.close = '}', .kind = OPEN_BLOCK, .offset = p->offset - 1};
  if (open == '[') o.close = ']', o.kind = square_kind(p, last);
  else if (open == '(') o.close = ')', o.kind = round_kind(p, last);
  else shard_open_drop(p), p->braces++;
  vec_push(p->c->arena, p->open, o);
}

void shard_open_pop(Parse *p, char close) {
  if (close == '}') shard_open_drop(p), p->skip_open = 0;
  else if (p->skip && p->skip_open) p->skip_open--;
  if (!p->open.n || vec_last(p->open).close != close) return;
  p->open.n--;
  if (close == '}') p->braces--;
}

bool shard_line_ends(const Parse *p) {
  if (p->open.n && vec_last(p->open).close != '}') return false;
  if (p->skip) return p->last != SEMI;
  switch (p->last) {
  case IDENT:
  case NUMBER:
  case STRING:
  case RPAREN:
  case RBRACKET:
  case RBRACE:
  case DOTSTAR: return true;
  default: return false;
  }
}

/* ---- recovery ---- */

/* `found` is the token at which the mistake was noticed; 0 where it is still to come. */
void shard_start_skipping(Parse *p, int found) {
  p->bad = true;
  if (found == LBRACKET || found == LPAREN || found == LBRACE) p->open.n--;
  if (found == LBRACE) p->braces--;
  p->skip_open = shard_open_depth(p);
  shard_open_drop(p);
  p->skip = found != SEMI, p->skip_level = p->braces;
  if (found == LBRACE) shard_open_push(p, '{', 0);
}

static bool begins_item(const Parse *p, int token) {
  return !p->settings && p->braces && keyword_begins_item(token);
}

static void queue_token(Parse *p, int code, Span at) {
  Token t = {.code = code, .span = at};
  vec_push(p->c->arena, p->queue, t);
}

/* A block is still open where an item begins: closes it. */
static void close_blocks(Parse *p, int token, bool new_line, Span at) {
  Span before = {at.file, at.offset, 0};
  shard_report_unclosed(p, at);
  if (p->skip || !new_line) queue_token(p, SEMI, before);
  for (; p->braces; shard_open_pop(p, '}'))
    queue_token(p, RBRACE, before), queue_token(p, SEMI, before);
  queue_token(p, token, at);
  p->settings = keyword_begins_settings(token);
  p->skip = false, p->bad = true, p->word = token;
}

static int next_in_queue(SHARD_STYPE *value, Span *at, Parse *p) {
  Token t = p->queue.at[p->queued++];
  if (p->queued == p->queue.n) p->queued = p->queue.n = 0;
  value->text = t.text, *at = t.span, p->last = t.code;
  return t.code;
}

/* A `;` of the text inside a bracket in which the mistake was: it does not end the line. */
static bool written_inside(const Parse *p, Span at) {
  return (p->skip_open || shard_open_depth(p)) &&
         diag_source(p->c->diag, at.file)->text[at.offset] == ';';
}

int shard_lex(SHARD_STYPE *value, Span *at, Parse *p) {
  while (!p->queue.n) {
    bool new_line = p->last == SEMI || p->last == LBRACE;
    int token = shard_scan_lex(value, at, p->scanner);
    if (diag_full(p->c->diag)) return p->last = 0; /* reading stops: nothing is found any more */
    if (begins_item(p, token)) close_blocks(p, token, new_line, *at);
    else if (!p->skip || !token || token == SHARD_error) return token;
    else if (token == SEMI && p->braces <= p->skip_level && !written_inside(p, *at))
      return p->skip = false, token;
  }
  return next_in_queue(value, at, p);
}

/* ---- what may follow ---- */

/* The parser has met CURSOR, which fits nowhere, and says what would. */
void shard_at_cursor(Parse *p, const char *const *expected, int n) {
  AstCursor *cursor = p->cursor;
  const OpenBracket *open = p->open.n ? &vec_last(p->open) : NULL;
  p->cursor = NULL; /* the text ends as any other */
  for (; cursor->n < n; cursor->n++) cursor->expected[cursor->n] = expected[cursor->n];
  cursor->settings = p->settings && p->braces;
  cursor->fresh = p->last == SEMI || p->last == LBRACE || !p->last;
  cursor->dims = open && (open->kind == OPEN_DIMS || open->kind == OPEN_INDEX);
  if (!cursor->fresh) cursor->line = span_text(p->c, p->word_span);
  const Span last = {p->file->file, p->before, p->end - p->before};
  const char *text = span_text(p->c, last);
  cursor->before = cursor->fresh ? "" : text + strspn(text, " \t\r\n");
  uint32_t count;
  const Keyword *keyword = keyword_table(&count);
  for (uint32_t i = 0; i < count && p->item; i++)
    if (keyword[i].token == p->item && (p->braces || !cursor->fresh))
      cursor->item = keyword[i].word;
}

bool ast_cursor(Ctx *c, const char *text, size_t n, AstCursor *out) {
  AstFile *file = ARENA_NEW(c->arena, AstFile);
  Parse p = {.c = c, .file = file, .cursor = out};
  *out = (AstCursor){.item = "", .line = "", .before = ""};
  file->name = intern(c->names, "cursor"), file->file = diag_add_source(c->diag, "cursor", text, n);
  if (!shard_lexer_open(&p, text, n)) return false;
  shard_parse(&p);
  shard_lexer_close(&p);
  if (p.cursor || !out->n) return false;
  for (size_t i = n; i > p.end && text[i - 1] != '\n'; i--)
    if (text[i - 1] == '#') return false; /* in a comment */
  return true;
}

/* ---- the way in ---- */

AstFile *ast_parse(Ctx *c, const char *name, const char *text, size_t n) {
  AstFile *file = ARENA_NEW(c->arena, AstFile);
  Parse p = {.c = c, .file = file};
  text = arena_strndup(c->arena, text, n);
  file->name = intern(c->names, name), file->file = diag_add_source(c->diag, file->name, text, n);
  if (!shard_lexer_open(&p, text, n)) return NULL;
  shard_parse(&p);
  shard_lexer_close(&p);
  return file;
}
