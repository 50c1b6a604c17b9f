/* Lines of operations outside of entries (ir/background.h):

     background send on inputs after read, take

   Must not: check tokens; that is the task of pass `prove`. */
#include "parse.h"
#include "ir/schedule/background_order.h"

static BackgroundOp read_background_name(Parser *p) {
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++)
    if (lex_keyword(p, background_name(op))) return op;
  return BACKGROUNDS;
}

/* An operation outside of entries, or a stream. */
static void read_background_token(Parser *p, Background *background) {
  lex_blanks(p);
  size_t at = p->at;
  BackgroundOp other = read_background_name(p);
  if (other < BACKGROUNDS) {
    background->after |= 1u << other;
    return;
  }
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
    if (lex_keyword(p, stream_name(stream))) {
      background->streams |= 1u << stream;
      return;
    }
  lex_fail(p, "E1001", at, "neither an operation outside of entries nor a stream");
}

void read_background(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  BackgroundOp op = read_background_name(p);
  if (op == BACKGROUNDS) lex_fail(p, "E1001", at, "not an operation outside of entries");
  if (!lex_keyword(p, "on") || !lex_keyword(p, background_stream(op)))
    lex_fail(p, "E1001", p->at, "`%s` is on stream `%s`", background_name(op),
             background_stream(op));
  Background *background = &p->m->background[op];
  background->there = true;
  bool more = lex_keyword(p, "after");
  while (more) {
    read_background_token(p, background);
    more = lex_take(p, ',');
  }
  background->span = lex_span(p, at);
}
