/* Inside of the IR parser: the cursor and what its two halves share (lex.c: characters, words,
   numbers, types, attributes; parse.c: lines, declarations, functions, ops).

   A mistake reports one diagnostic and leaves the line by longjmp; reading goes on with the next
   line, so that one run shows several mistakes. Functions that can fail therefore hold nothing that
   must be released: all memory is the arena's. */
#ifndef SHARDC_IR_PARSE_H
#define SHARDC_IR_PARSE_H
#include "renamed.h"
#include "ir/word_patterns.h"
#include <setjmp.h>

typedef struct KnownValue { /* %number of the text: which value of the function being read */
  uint32_t fn;              /* 0: not yet; functions count from 1 */
  ValueId value;
} KnownValue;

typedef struct PlanName { /* a stack or parameter that a line of the plan names */
  Str path;               /* h, h.*.attn; layers are left out */
  bool stack;
  Span span;
} PlanName;

typedef struct Parser {
  Module *m;
  uint32_t file;
  const char *text; /* NUL after the last character */
  size_t at, n;
  jmp_buf line; /* where a mistake leads */
  bool failed;  /* some mistake was reported */
  bool quiet;   /* the function has a mistake: a value may be unknown for that reason alone */
  Fn *fn;
  uint32_t fn_number;
  VEC(KnownValue) known;
  VEC(PlanName) plan_names;       /* what they name is declared after them */
  Report *renamed[RENAMED_WORDS]; /* the note about each old word that the text has */
} Parser;

enum { MOST_VALUES = 1 << 20, MOST_RANKS = 1 << 24 };

_Noreturn void lex_fail(Parser *p, const char *code, size_t at, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
Span lex_span(const Parser *p, size_t from);

void lex_blanks(Parser *p);       /* white space and comment, not the end of the line */
bool lex_at_end(Parser *p);       /* end of line or text */
void lex_end(Parser *p);          /* ... or a mistake */
bool lex_is(Parser *p, char c);   /* next is c */
bool lex_take(Parser *p, char c); /* ... then go past it */
bool lex_arrow(Parser *p);        /* takes -> */
bool lex_rest(Parser *p);         /* takes .. */
void lex_expect(Parser *p, char c);
bool lex_keyword(Parser *p, const char *word); /* takes the word if it is next */
/* The same for a keyword with an old spelling, which is accepted with a note (renamed.def). */
bool lex_new_keyword(Parser *p, const char *word);
Str lex_word(Parser *p, const char *what);
Str lex_key(Parser *p, const char *what); /* a word with dots and the like, or a quoted text */
/* The present spelling of the word before the cursor, which began at `at`; a note if it was an old
   one. */
Str lex_renamed(Parser *p, RenamedKind kind, size_t at, Str word);
Str lex_path(Parser *p);   /* h.*.sub */
Str lex_layers(Parser *p); /* h[0..3].attn, h.*.sub */
Str lex_symbol(Parser *p); /* @name */
Str lex_quoted(Parser *p);
Str lex_value(Parser *p); /* a word or the digits of a number, as written */
int64_t lex_int(Parser *p);
uint32_t lex_count(Parser *p); /* 0 .. 2^32 - 1 */
double lex_float(Parser *p);

Type lex_type(Parser *p, Placement *placed);
Group lex_group(Parser *p);
void lex_attrs(Parser *p, AttrList *list);         /* { name = value, .. } if a brace is next */
bool lex_loc(Parser *p, const char *word, Loc *l); /* word(f1:2:3+4) if it is next */

/* The rest of a line of the plan (plan_lines.c). */
void read_rule(Parser *p); /* place */
void read_recompute(Parser *p);
void read_offload(Parser *p);
void note_group(Parser *p, Str key); /* the names in `set train.optim.1.of = "h.*.attn, wte"` */
void check_plan_names(Parser *p);    /* once the whole text is read: E1003 */
void read_background(Parser *p);     /* the rest of its line (background_lines.c) */
/* The text of a setting that was a line of the plan in old dumps; false: it was none. */
bool read_old_line(Parser *p, Str key);
#endif
