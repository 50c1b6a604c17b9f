/* Inside the parser: its state, the token filter between lexer and grammar, and the builders that the grammar's actions
   call. Nothing outside lexer.l, grammar.y, parse.c, syntax.c and ast.c includes this file. */
#ifndef SHARDC_PARSE_H
#define SHARDC_PARSE_H
#include "ast.h"

enum { MAX_EXPR_DEPTH = 1000, MAX_EXPECTED = 64 };

/* What an open bracket belongs to; named in messages. */
typedef enum OpenKind { OPEN_BLOCK, OPEN_DIMS, OPEN_INDEX, OPEN_LIST, OPEN_RANGE, OPEN_ARGS, OPEN_OPERANDS, OPEN_PAREN } OpenKind;
typedef struct Open {
  char close;
  OpenKind kind;
  uint32_t offset;
} Open;

typedef struct Token {
  int code;
  union {
    Str text;
    AstNumber *number;
  };
  Span span;
} Token;

typedef struct Parse {
  Ctx *c;
  AstFile *file;
  void *scanner;
  uint32_t offset; /* of the next character */
  uint32_t end;    /* of the last token */
  int last;        /* code of the last token */
  int word;        /* code of the first token of this line */
  bool settings;   /* inside (or in the head of) a settings block */
  bool eof_done;   /* the last `;` was given */
  VEC(Open) open;
  uint32_t braces; /* number of OPEN_BLOCK entries */
  bool skip;       /* after a mistake: tokens are dropped up to the end of the line */
  uint32_t skip_level;
  VEC(Token) queue; /* tokens put in front of the text, from queue.at[queued] on */
  uint32_t queued;
  bool bad; /* a mistake since the last item */
} Parse;

/* ---- lexer.l ---- */
bool lexer_open(Parse *p, const char *text, size_t n);
void lexer_close(Parse *p);

/* ---- parse.c: brackets and recovery ---- */
void open_push(Parse *p, char open, int last);
void open_pop(Parse *p, char close);
void open_drop(Parse *p); /* forgets ( and [ that are still open in this block */
uint32_t open_depth(const Parse *p); /* open ( and [ of this block */
bool line_ends(const Parse *p);      /* a newline here ends the statement */
void start_skipping(Parse *p, int found);

/* ---- syntax.c: messages ---- */
void report_syntax(Parse *p, Span at, int found, const char *found_name, const char *const *expected, int n);
void report_depth(Parse *p, Span at);
void report_unclosed(Parse *p, Span at);
void report_bad_number(Parse *p, const char *text, size_t n, Span at);
void report_bad_character(Parse *p, const char *text, size_t n, Span at);
void report_bad_string(Parse *p, Span at);

/* ---- ast.c: builders ---- */
AstName name_at(Str text, Span s);
AstNames *names_add(Parse *p, AstNames *l, AstName n);
AstNumber *number_at(Parse *p, const char *text, size_t n, Span s); /* NULL: no such number */
AstNumber *number_negate(Parse *p, AstNumber *n, Span s);

AstGroup *group_new(Parse *p, AstNames *from, AstNames *to, Span s);
AstAxes *axes_add(Parse *p, AstAxes *a, AstGroup *g);
AstAxes *axes_close(AstAxes *a, Span s);
AstType *type_new(Parse *p, AstAxes *a, AstName of, AstName elem, Span s);

AstExpr *expr_number(Parse *p, AstNumber *n);
AstExpr *expr_string(Parse *p, Str text, Span s);
AstExpr *expr_name(Parse *p, AstName n);
AstExpr *expr_field(Parse *p, AstExpr *base, AstName n, Span s);
AstExpr *expr_list(Parse *p, AstArgs *args, Span s);
AstExpr *expr_gather(Parse *p, AstName n, AstName dim, AstExpr *index, Span s);
AstExpr *expr_axes(Parse *p, AstName n, AstAxes *a, Span s);
AstExpr *expr_call(Parse *p, AstName n, AstAxes *a, AstArgs *args, Span s);
AstExpr *expr_binary(Parse *p, AstOp op, AstExpr *l, AstExpr *r, Span op_span);
AstExpr *expr_pipe(Parse *p, AstExpr *l, AstExpr *r, Span op_span);
AstExpr *expr_negate(Parse *p, AstExpr *r, Span op_span);
AstArgs *args_add(Parse *p, AstArgs *l, AstName n, AstExpr *value, Span s);
AstOptions *options_add(Parse *p, AstOptions *l, AstName n, AstExpr *value, Span s);
AstOptions *options_of_names(Parse *p, const AstNames *names);
AstAttrs *attrs_add(Parse *p, AstAttrs *l, AstName n, AstArgs *args, Span s);

AstStmt *stmt_param(Parse *p, Span word, AstName n, AstAxes *a, bool random, AstExpr *value, AstAttrs *attrs);
AstStmt *stmt_sub(Parse *p, Span word, AstName n, AstName of, AstAxes *a, AstOptions *with);
AstStmt *stmt_stack(Parse *p, Span word, AstName n, AstAxes *a, AstNames *of, AstOptions *with);
AstStmt *stmt_names(Parse *p, AstStmtKind k, Span word, AstNames *names, AstType *t);
AstStmt *stmt_assign(Parse *p, AstNames *names, AstExpr *value, AstAttrs *attrs);
AstStmt *stmt_value(Parse *p, AstStmtKind k, Span word, AstExpr *value);
AstStmt *stmt_close(AstStmt *s, Span whole);
AstStmts *stmts_add(Parse *p, AstStmts *l, AstStmt *s);

AstPath *path_new(Parse *p, AstName n);
AstPath *path_name(Parse *p, AstPath *a, AstName n, Span whole);
AstPath *path_index(Parse *p, AstPath *a, AstNumber *i, Span whole);
AstPath *path_any(Parse *p, AstPath *a, Span any, Span whole);
AstPath *path_range(Parse *p, AstPath *a, AstNumber *first, AstNumber *last, Span whole);
AstValue *value_number(Parse *p, AstNumber *n);
AstValue *value_string(Parse *p, Str text, Span s);
AstValue *value_path(Parse *p, AstPath *a);
AstValue *value_call(Parse *p, AstPath *a, AstPairs *args, AstPairs *to, Span s);
AstValue *value_expr(Parse *p, AstExpr *e, Span s);
AstValue *value_list(AstValue *list, Span s);
AstValue *value_list_add(Parse *p, AstValue *list, AstValue *item);
AstPairs *pairs_add(Parse *p, AstPairs *l, AstPath *key, AstValue *v, Span s);
AstSetting *setting_head(Parse *p, AstExpr *paren, AstPairs *values);
AstSetting *setting_tail(Parse *p, AstArrow arrow, Span at, AstPairs *target, AstAxes *as);
AstSetting *setting_join(AstPath *path, AstSetting *head, const AstSetting *tail, AstBlock *b, Span s);
AstBlock *block_add(Parse *p, AstBlock *b, AstSetting *s);
AstBlock *block_close(Parse *p, AstBlock *b, Span s);

AstDims *dims_add(Parse *p, AstDims *l, AstNames *names, AstExpr *value, AstNumber *pad, Span s);
AstDims *dims_like(Parse *p, AstDims *l, AstName n, AstName like, Span s);
AstDims *dims_join(Parse *p, AstDims *l, const AstDims *more);
AstFormals *formals_add(Parse *p, AstFormals *l, AstName n, AstType *t, Span s);
AstItem *item_new(Parse *p, AstItemKind k, Span word, AstName n);
AstItem *item_use(Parse *p, Span word, Str file, Span at);
AstItem *item_dims(AstItem *i, const AstDims *dims);
AstItem *item_operands(AstItem *i, AstAxes *a, const AstOptions *operands);
AstItem *item_value(AstItem *i, AstExpr *value);
AstItem *item_body(AstItem *i, const AstStmts *body);
AstItem *item_layer(AstItem *i, AstAxes *a, const AstFormals *formals, AstType *result, const AstOptions *with);
AstItem *item_block(AstItem *i, AstName base, AstBlock *b);
void file_add(Parse *p, AstItem *i, Span whole);
#endif
