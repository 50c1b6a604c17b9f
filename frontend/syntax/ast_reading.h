/* Inside the parser: its state, the token filter between lexer and grammar, and the builders that
   the grammar's actions call. Nothing outside lexer.l, grammar.y, ast*.c and fmt.c includes this
   file. */
#ifndef SHARDC_AST_READING_H
#define SHARDC_AST_READING_H
#include "ast.h"

enum { MAX_EXPR_DEPTH = 1000 };

/* The construct of an open bracket; named in messages. */
typedef enum OpenKind {
  OPEN_BLOCK,
  OPEN_DIMS,
  OPEN_INDEX,
  OPEN_LIST,
  OPEN_RANGE,
  OPEN_ARGS,
  OPEN_OPERANDS,
  OPEN_PAREN
} OpenKind;
typedef struct OpenBracket {
  char close;
  OpenKind kind;
  uint32_t offset;
} OpenBracket;

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
  uint32_t before; /* end of the token before it */
  int last;        /* code of the last token */
  int word;        /* code of the first token of this line */
  Span word_span;
  int item;      /* the word that began this item */
  bool settings; /* inside (or in the head of) a settings block */
  bool eof_done; /* the last `;` was given */
  VEC(OpenBracket) open;
  uint32_t braces; /* number of OPEN_BLOCK entries */
  bool skip;       /* after a mistake: tokens are dropped up to the end of the line */
  uint32_t skip_level, skip_open; /* braces where it ends; brackets that were open at that point */
  VEC(Token) queue;               /* tokens inserted before the text, from queue.at[queued] on */
  uint32_t queued;
  bool bad;          /* a mistake since the last item */
  Str long_name;     /* the last one that was reported as too long */
  bool deep;         /* the item was reported as nested too deeply */
  AstCursor *cursor; /* to fill at the end of the text; NULL: none, or it was given */
} Parse;

/* ---- lexer.l ---- */
bool shard_lexer_open(Parse *p, const char *text, size_t n);
void shard_lexer_close(Parse *p);

/* ---- ast_parse.c: brackets and recovery ---- */
void shard_open_push(Parse *p, char open, int last);
void shard_open_pop(Parse *p, char close);
bool shard_line_ends(const Parse *p); /* does a newline at this point end the statement? */
void shard_start_skipping(Parse *p, int found);
void shard_at_cursor(Parse *p, const char *const *expected, int n);

/* ---- ast_syntax.c: messages ---- */
void shard_report_syntax(Parse *p, Span at, int found, const char *found_name,
                         const char *const *expected, int n);
void shard_report_depth(Parse *p, Span at);
void shard_report_extern(Parse *p, Span at); /* E0901 */
void shard_report_unclosed(Parse *p, Span at);
void shard_report_bad_number(Parse *p, const char *text, size_t n, Span at);
void shard_report_bad_character(Parse *p, const char *text, size_t n, Span at);
bool shard_in_settings(const Parse *p, int found);
void shard_report_bad_string(Parse *p, Span at);
void shard_report_long_name(Parse *p, Span at);

/* ---- ast_help.c: what to write instead ---- */
void shard_help_in_bracket(Parse *p, Report *r, Span at, const OpenBracket *bracket, int found,
                           bool closes);
void shard_help_on_line(Parse *p, Report *r, Span at, int found, const char *const *expected,
                        int n);
bool shard_line_begins(const Parse *p, Span at); /* the token there is the first of its line */
bool shard_expects(const char *const *expected, int n, const char *token);

/* ---- ast.c: builders ---- */
AstName ast_name_at(Str text, Span s);
AstNames *ast_names_add(Parse *p, AstNames *l, AstName n);
AstNumber *ast_number_at(Parse *p, const char *text, size_t n, Span s); /* NULL: no such number */
AstNumber *ast_number_negate(Parse *p, AstNumber *n, Span s);

AstGroup *ast_group_new(Parse *p, AstNames *from, AstNames *to, Span s);
AstAxes *ast_axes_add(Parse *p, AstAxes *a, AstGroup *g);
AstAxes *ast_axes_close(AstAxes *a, Span s);
AstType *ast_type_new(Parse *p, AstAxes *a, AstName of, AstName elem, Span s);

AstExpr *ast_expr_number(Parse *p, AstNumber *n);
AstExpr *ast_expr_string(Parse *p, Str text, Span s);
AstExpr *ast_expr_name(Parse *p, AstName n);
AstExpr *ast_expr_field(Parse *p, AstExpr *base, AstName n, Span s);
AstExpr *ast_expr_list(Parse *p, AstArgs *args, Span s);
AstExpr *ast_expr_gather(Parse *p, AstName n, AstName dim, AstExpr *index, Span s);
AstExpr *ast_expr_axes(Parse *p, AstName n, AstAxes *a, Span s);
AstExpr *ast_expr_call(Parse *p, AstName n, AstAxes *a, AstArgs *args, Span s);
AstExpr *ast_expr_binary(Parse *p, AstOp op, AstExpr *l, AstExpr *r, Span op_span, Span s);
AstExpr *ast_expr_pipe(Parse *p, AstExpr *l, AstExpr *r, Span op_span, Span s);
AstExpr *ast_expr_negate(Parse *p, AstExpr *r, Span op_span, Span s);
AstArgs *ast_args_add(Parse *p, AstArgs *l, AstName n, AstExpr *value, Span s);
AstOptions *ast_options_add(Parse *p, AstOptions *l, AstName n, AstExpr *value, Span s);
AstOptions *ast_options_of_names(Parse *p, const AstNames *names);
AstAttrs *ast_attrs_add(Parse *p, AstAttrs *l, AstName n, AstArgs *args, Span s);

AstStmt *ast_stmt_param(Parse *p, Span word, AstName n, AstAxes *a, bool random, AstExpr *value,
                        AstAttrs *attrs);
AstStmt *ast_stmt_sub(Parse *p, Span word, AstName n, AstName of, AstAxes *a, AstOptions *with,
                      AstAttrs *attrs);
AstUses *ast_uses_add(Parse *p, AstUses *uses, AstName name, AstAxes *axes);
AstStmt *ast_stmt_stack(Parse *p, Span word, AstName n, AstAxes *a, const AstUses *of,
                        AstOptions *with, AstAttrs *attrs);
AstStmt *ast_stmt_names(Parse *p, AstStmtKind k, Span word, AstNames *names, AstType *t);
AstStmt *ast_stmt_assign(Parse *p, AstNames *names, AstExpr *value, AstAttrs *attrs);
AstStmt *ast_stmt_value(Parse *p, AstStmtKind k, Span word, AstExpr *value);
AstStmt *ast_stmt_rule(Parse *p, AstStmtKind kind, Span word, AstName name, AstExpr *value);
AstStmt *ast_stmt_close(AstStmt *s, Span whole);
AstStmts *ast_stmts_add(Parse *p, AstStmts *l, AstStmt *s);

AstPath *ast_path_new(Parse *p, AstName n);
AstPath *ast_path_quoted(Parse *p, Str text,
                         Span s); /* a key that the check refuses: it has no parts */
AstPath *ast_path_name(Parse *p, AstPath *a, AstName n, Span whole);
AstPath *ast_path_index(Parse *p, AstPath *a, AstNumber *i, Span whole);
AstPath *ast_path_any(Parse *p, AstPath *a, Span any, Span whole);
AstPath *ast_path_bracket(Parse *p, AstPath *a, AstNumber *i, Span open, Span close, Span whole);
AstPath *ast_path_range(Parse *p, AstPath *a, AstNumber *first, AstNumber *last, Span whole);
AstValue *ast_value_number(Parse *p, AstNumber *n);
AstValue *ast_value_string(Parse *p, Str text, Span s);
AstValue *ast_value_path(Parse *p, AstPath *a);
AstValue *ast_value_call(Parse *p, AstPath *a, AstPairs *args, AstPairs *to, Span s);
AstValue *ast_value_expr(Parse *p, AstExpr *e, Span s);
AstValue *ast_value_list(AstValue *list, Span s);
AstValue *ast_value_object(Parse *p, AstPairs *members, Span s);
AstValue *ast_value_list_add(Parse *p, AstValue *list, AstValue *item);
AstPairs *ast_pairs_add(Parse *p, AstPairs *l, AstPath *key, AstValue *v, Span s);
AstSetting *ast_setting_head(Parse *p, AstExpr *paren, AstPairs *values);
AstSetting *ast_setting_list(Parse *p, AstValue *list,
                             AstSetting *head); /* a list before its values */
AstSetting *ast_setting_tail(Parse *p, AstArrow arrow, Span at, AstPairs *target, AstAxes *as);
AstSetting *ast_setting_join(AstPath *path, AstSetting *head, const AstSetting *tail,
                             AstBlock *block, Span s);
AstBlock *ast_block_add(Parse *p, AstBlock *block, AstSetting *setting);
/* Lines and options with an old word (renamed.def) get the current word, with a note. */
void ast_rename_settings(Parse *p, const char *block, AstBlock *ast_block);
AstBlock *ast_block_close(Parse *p, AstBlock *block, Span s);

AstDims *ast_dims_add(Parse *p, AstDims *l, AstNames *names, AstExpr *value, AstNumber *pad,
                      Span s);
AstDims *ast_dims_like(Parse *p, AstDims *l, AstName n, AstName like, Span s);
AstDims *ast_dims_join(Parse *p, AstDims *l, const AstDims *more);
AstFormals *ast_formals_add(Parse *p, AstFormals *l, AstName n, AstType *t, Span s);
AstItem *ast_item_new(Parse *p, AstItemKind k, Span word, AstName n);
AstItem *ast_item_use(Parse *p, Span word, Str file, Span at);
AstItem *ast_item_dims(AstItem *i, const AstDims *dims);
AstItem *ast_item_operands(AstItem *i, AstAxes *a, const AstOptions *operands);
AstItem *ast_item_value(AstItem *i, AstExpr *value);
AstItem *ast_item_body(AstItem *i, const AstStmts *body);
AstItem *ast_item_layer(AstItem *i, AstAxes *a, const AstFormals *formals, AstType *result,
                        const AstOptions *with);
AstItem *ast_item_block(Parse *p, AstItem *i, AstName base, AstBlock *b);
void ast_file_add(Parse *p, AstItem *i, Span whole);
#endif
