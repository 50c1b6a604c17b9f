/* Builders of the syntax tree, called by the grammar's actions, and small helpers on names, spans
   and numbers. A list is NULL until it has an element. This file gives numbers their value and
   unit, by the table of units. */
#include "ast_reading.h"
#include "ir/support/num.h"
#include <math.h>
#include <stdlib.h>

#define LIST_BUILDER(name, List, Item)                                                             \
  static List *name(Parse *p, List *l, Item item) {                                                \
    if (!l) l = ARENA_NEW(p->c->arena, List);                                                      \
    vec_push(p->c->arena, *l, item);                                                               \
    return l;                                                                                      \
  }
LIST_BUILDER(push_name, AstNames, AstName)
LIST_BUILDER(push_arg, AstArgs, AstArg)
LIST_BUILDER(push_option, AstOptions, AstOption)
LIST_BUILDER(push_attr, AstAttrs, AstAttr)
LIST_BUILDER(push_stmt, AstStmts, AstStmt *)
LIST_BUILDER(push_dim, AstDims, AstDim)
LIST_BUILDER(push_formal, AstFormals, AstFormal)

#define COPY_LIST(to, from)                                                                        \
  do {                                                                                             \
    if (from) (to).at = (from)->at, (to).n = (from)->n, (to).cap = (from)->cap;                    \
  } while (0)

/* ---- names, spans ---- */

Span span_join(Span a, Span b) {
  uint32_t end = b.offset + b.length;
  return (Span){a.file, a.offset, end > a.offset ? end - a.offset : a.length};
}

const char *span_text(Ctx *c, Span s) {
  const Source *source = diag_source(c->diag, s.file);
  if (!source || s.offset > source->length) return "";
  size_t left = source->length - s.offset;
  return arena_strndup(c->arena, source->text + s.offset, s.length < left ? s.length : left);
}

AstName ast_name_at(Str text, Span s) { return (AstName){text, s}; }
AstNames *ast_names_add(Parse *p, AstNames *names, AstName name) {
  return push_name(p, names, name);
}

/* ---- numbers ---- */

typedef struct UnitWord {
  const char *name;
  AstUnit kind;
  double scale;
} UnitWord;

static const UnitWord units[] = {
    {"", UNIT_NONE, 1},          {"%", UNIT_SHARE, 0.01},      {"KiB", UNIT_BYTES, 1024},
    {"MiB", UNIT_BYTES, 0x1p20}, {"GiB", UNIT_BYTES, 0x1p30},  {"TiB", UNIT_BYTES, 0x1p40},
    {"KB", UNIT_BYTES, 1e3},     {"MB", UNIT_BYTES, 1e6},      {"GB", UNIT_BYTES, 1e9},
    {"TB", UNIT_BYTES, 1e12},    {"TFLOPS", UNIT_FLOPS, 1e12}, {"PFLOPS", UNIT_FLOPS, 1e15},
    {"us", UNIT_SECONDS, 1e-6},  {"ms", UNIT_SECONDS, 1e-3},   {"s", UNIT_SECONDS, 1},
    {"min", UNIT_SECONDS, 60},   {"h", UNIT_SECONDS, 3600},
};

const char *ast_unit_name(AstUnit unit) {
  static const char *const names[] = {"no unit",          "a share", "bytes",
                                      "bytes per second", "FLOPS",   "seconds"};
  _Static_assert(COUNT_OF(names) == UNIT_SECONDS + 1, "words per AstUnit");
  return names[unit];
}

static const UnitWord *find_unit(const char *text, size_t n) {
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (strlen(units[i].name) == n && !memcmp(units[i].name, text, n)) return &units[i];
  return NULL;
}

static void set_integral(AstNumber *out, double scale, size_t digits, const char *text) {
  for (size_t i = 0; i < digits; i++)
    if (text[i] < '0' || text[i] > '9') return;
  out->integer = fabs(out->value) < 0x1p63 && scale >= 1 && (digits < 19 || scale > 1);
  if (out->integer) out->integral = scale > 1 ? (int64_t)out->value : strtoll(text, NULL, 10);
}

bool ast_number_unit(const char *text, size_t n, AstNumber *out) {
  char copy[64];
  if (!n || n >= sizeof copy || text[0] < '0' || text[0] > '9') return false;
  memcpy(copy, text, n), copy[n] = 0;
  if (n > 1 && (copy[1] == 'x' || copy[1] == 'X')) return false; /* strtod reads 0x10 */
  char *end;
  double value = strtod(copy, &end);
  size_t digits = (size_t)(end - copy), rest = n - digits;
  bool rate = rest > 2 && !memcmp(end + rest - 2, "/s", 2);
  const UnitWord *word = find_unit(end, rate ? rest - 2 : rest);
  if (!word || (rate && word->kind != UNIT_BYTES) || !isfinite(value)) return false;
  *out = (AstNumber){.value = word->kind == UNIT_SHARE ? value / 100 : value * word->scale,
                     .unit = word->kind};
  if (rate) out->unit = UNIT_BYTES_PER_SECOND;
  set_integral(out, word->scale, digits, copy);
  return true;
}

AstNumber *ast_number_at(Parse *p, const char *text, size_t n, Span s) {
  AstNumber *number = ARENA_NEW(p->c->arena, AstNumber);
  if (!ast_number_unit(text, n, number)) return NULL;
  number->text = intern_n(p->c->names, text, n), number->span = s;
  return number;
}

AstNumber *ast_number_negate(Parse *p, AstNumber *number, Span s) {
  number->value = -number->value, number->integral = -number->integral, number->span = s;
  number->text = intern_printf(p->c->names, "-%s", number->text);
  return number;
}

/* ---- axes, types ---- */

AstGroup *ast_group_new(Parse *p, AstNames *from, AstNames *to, Span s) {
  AstGroup *group = ARENA_NEW(p->c->arena, AstGroup);
  group->arrow = to != NULL, group->span = s;
  COPY_LIST(group->from, from);
  COPY_LIST(group->to, to);
  return group;
}

AstAxes *ast_axes_add(Parse *p, AstAxes *axes, AstGroup *group) {
  if (!axes) axes = ARENA_NEW(p->c->arena, AstAxes);
  vec_push(p->c->arena, axes->groups, *group);
  return axes;
}

AstAxes *ast_axes_close(AstAxes *axes, Span s) {
  axes->span = s;
  return axes;
}

AstType *ast_type_new(Parse *p, AstAxes *axes, AstName of, AstName elem, Span s) {
  AstType *type = ARENA_NEW(p->c->arena, AstType);
  *type = (AstType){.axes = axes, .of = of, .elem = elem, .span = s};
  return type;
}

/* ---- expressions ---- */

static AstExpr *expr_new(Parse *p, AstExprKind kind, Span s, uint32_t depth_below) {
  AstExpr *expr = ARENA_NEW(p->c->arena, AstExpr);
  expr->kind = kind, expr->span = s, expr->depth = depth_below + 1;
  if (expr->depth == MAX_EXPR_DEPTH) shard_report_depth(p, s);
  return expr;
}

static uint32_t deeper(const AstExpr *a, const AstExpr *b) {
  return a->depth > b->depth ? a->depth : b->depth;
}

static uint32_t args_depth(const AstArgs *args) {
  uint32_t depth = 0;
  for (uint32_t i = 0; args && i < args->n; i++)
    if (args->at[i].value->depth > depth) depth = args->at[i].value->depth;
  return depth;
}

/* A tree that is too deep was reported; it is cut, so that walks over it stay shallow. */
static AstExpr *shallow(Parse *p, AstExpr *expr) {
  if (expr->depth < MAX_EXPR_DEPTH) return expr;
  AstExpr *zero = ARENA_NEW(p->c->arena, AstExpr);
  zero->kind = EXPR_NUMBER, zero->span = expr->span, zero->depth = 1;
  zero->number = (AstNumber){.integer = true, .text = intern(p->c->names, "0"), .span = expr->span};
  return zero;
}

AstExpr *ast_expr_number(Parse *p, AstNumber *number) {
  AstExpr *expr = expr_new(p, EXPR_NUMBER, number->span, 0);
  expr->number = *number;
  return expr;
}

AstExpr *ast_expr_string(Parse *p, Str text, Span s) {
  AstExpr *expr = expr_new(p, EXPR_STRING, s, 0);
  expr->string = text;
  return expr;
}

AstExpr *ast_expr_name(Parse *p, AstName name) {
  AstExpr *expr = expr_new(p, EXPR_NAME, name.span, 0);
  expr->name = name;
  return expr;
}

AstExpr *ast_expr_field(Parse *p, AstExpr *base, AstName name, Span s) {
  AstExpr *expr = expr_new(p, EXPR_FIELD, s, base->depth);
  expr->base = base, expr->name = name;
  return shallow(p, expr);
}

AstExpr *ast_expr_list(Parse *p, AstArgs *args, Span s) {
  AstExpr *expr = expr_new(p, EXPR_LIST, s, args_depth(args));
  COPY_LIST(expr->args, args);
  return shallow(p, expr);
}

AstExpr *ast_expr_gather(Parse *p, AstName name, AstName dim, AstExpr *index, Span s) {
  AstExpr *expr = expr_new(p, EXPR_GATHER, s, index->depth);
  expr->name = name, expr->index_dim = dim, expr->index = index;
  return shallow(p, expr);
}

AstExpr *ast_expr_axes(Parse *p, AstName name, AstAxes *axes, Span s) {
  AstExpr *expr = expr_new(p, EXPR_AXES, s, 0);
  expr->name = name, expr->axes = axes;
  return expr;
}

AstExpr *ast_expr_call(Parse *p, AstName name, AstAxes *axes, AstArgs *args, Span s) {
  AstExpr *expr = expr_new(p, EXPR_CALL, s, args_depth(args));
  expr->name = name, expr->axes = axes;
  COPY_LIST(expr->args, args);
  return shallow(p, expr);
}

AstExpr *ast_expr_binary(Parse *p, AstOp op, AstExpr *l, AstExpr *r, Span op_span, Span s) {
  AstExpr *e = expr_new(p, EXPR_BINARY, s, deeper(l, r));
  e->op = op, e->op_span = op_span, e->left = l, e->right = r;
  return shallow(p, e);
}

AstExpr *ast_expr_pipe(Parse *p, AstExpr *l, AstExpr *r, Span op_span, Span s) {
  AstExpr *e = ast_expr_binary(p, AST_OR, l, r, op_span, s);
  if (e->kind == EXPR_BINARY) e->kind = EXPR_PIPE;
  return e;
}

AstExpr *ast_expr_negate(Parse *p, AstExpr *r, Span op_span, Span s) {
  AstExpr *e = expr_new(p, EXPR_UNARY, s, r->depth);
  e->op = AST_NEG, e->op_span = op_span, e->right = r;
  return shallow(p, e);
}

AstArgs *ast_args_add(Parse *p, AstArgs *args, AstName name, AstExpr *value, Span s) {
  return push_arg(p, args, (AstArg){.name = name, .value = value, .span = s});
}

AstOptions *ast_options_add(Parse *p, AstOptions *options, AstName name, AstExpr *value, Span s) {
  return push_option(p, options, (AstOption){.name = name, .value = value, .span = s});
}

AstOptions *ast_options_of_names(Parse *p, const AstNames *names) {
  AstOptions *options = NULL;
  for (uint32_t i = 0; i < names->n; i++)
    options = ast_options_add(p, options, names->at[i], NULL, names->at[i].span);
  return options;
}

AstAttrs *ast_attrs_add(Parse *p, AstAttrs *attrs, AstName name, AstArgs *args, Span s) {
  AstAttr attr = {.name = name, .span = s};
  COPY_LIST(attr.args, args);
  return push_attr(p, attrs, attr);
}

/* ---- statements ---- */

static AstStmt *stmt_new(Parse *p, AstStmtKind kind, Span word) {
  AstStmt *stmt = ARENA_NEW(p->c->arena, AstStmt);
  stmt->kind = kind, stmt->word = stmt->span = word;
  return stmt;
}

static AstStmt *stmt_named(Parse *p, AstStmtKind kind, Span word, AstName name) {
  AstStmt *stmt = stmt_new(p, kind, word);
  vec_push(p->c->arena, stmt->names, name);
  return stmt;
}

AstStmt *ast_stmt_param(Parse *p, Span word, AstName name, AstAxes *axes, bool random,
                        AstExpr *value, AstAttrs *attrs) {
  AstStmt *stmt = stmt_named(p, STMT_PARAM, word, name);
  stmt->axes = axes, stmt->random = random, stmt->value = value;
  COPY_LIST(stmt->attrs, attrs);
  return stmt;
}

AstStmt *ast_stmt_sub(Parse *p, Span word, AstName name, AstName of, AstAxes *axes,
                      AstOptions *with, AstAttrs *attrs) {
  AstStmt *stmt = stmt_named(p, STMT_SUB, word, name);
  stmt->axes = axes;
  vec_push(p->c->arena, stmt->of, of);
  COPY_LIST(stmt->with, with);
  COPY_LIST(stmt->attrs, attrs);
  return stmt;
}

AstUses *ast_uses_add(Parse *p, AstUses *uses, AstName name, AstAxes *axes) {
  if (!uses) uses = ARENA_NEW(p->c->arena, AstUses);
  vec_push(p->c->arena, uses->names, name);
  vec_push(p->c->arena, uses->axes, axes);
  return uses;
}

AstStmt *ast_stmt_stack(Parse *p, Span word, AstName name, AstAxes *axes, const AstUses *of,
                        AstOptions *with, AstAttrs *attrs) {
  AstStmt *stmt = stmt_named(p, STMT_STACK, word, name);
  stmt->axes = axes, stmt->of = of->names, stmt->of_axes = of->axes;
  COPY_LIST(stmt->with, with);
  COPY_LIST(stmt->attrs, attrs);
  return stmt;
}

AstStmt *ast_stmt_names(Parse *p, AstStmtKind kind, Span word, AstNames *names, AstType *type) {
  AstStmt *stmt = stmt_new(p, kind, word);
  stmt->type = type;
  COPY_LIST(stmt->names, names);
  return stmt;
}

AstStmt *ast_stmt_assign(Parse *p, AstNames *names, AstExpr *value, AstAttrs *attrs) {
  AstStmt *stmt = ast_stmt_names(p, STMT_ASSIGN, names->at[0].span, names, NULL);
  stmt->value = value;
  COPY_LIST(stmt->attrs, attrs);
  return stmt;
}

AstStmt *ast_stmt_value(Parse *p, AstStmtKind kind, Span word, AstExpr *value) {
  AstStmt *stmt = stmt_new(p, kind, word);
  stmt->value = value;
  return stmt;
}

AstStmt *ast_stmt_rule(Parse *p, AstStmtKind kind, Span word, AstName name, AstExpr *value) {
  AstStmt *stmt = ast_stmt_value(p, kind, word, value);
  vec_push(p->c->arena, stmt->names, name);
  return stmt;
}

AstStmt *ast_stmt_close(AstStmt *stmt, Span whole) {
  stmt->span = whole;
  return stmt;
}

AstStmts *ast_stmts_add(Parse *p, AstStmts *stmts, AstStmt *stmt) {
  return push_stmt(p, stmts, stmt);
}

/* ---- items ---- */

AstDims *ast_dims_add(Parse *p, AstDims *dims, AstNames *names, AstExpr *value, AstNumber *pad,
                      Span s) {
  for (uint32_t i = 0; i < names->n; i++)
    dims = push_dim(p, dims, (AstDim){.name = names->at[i], .value = value, .pad = pad, .span = s});
  return dims;
}

AstDims *ast_dims_like(Parse *p, AstDims *dims, AstName name, AstName like, Span s) {
  return push_dim(p, dims, (AstDim){.name = name, .like = like, .span = s});
}

AstDims *ast_dims_join(Parse *p, AstDims *dims, const AstDims *more) {
  for (uint32_t i = 0; i < more->n; i++) dims = push_dim(p, dims, more->at[i]);
  return dims;
}

AstFormals *ast_formals_add(Parse *p, AstFormals *formals, AstName name, AstType *type, Span s) {
  return push_formal(p, formals, (AstFormal){.name = name, .type = type, .span = s});
}

AstItem *ast_item_new(Parse *p, AstItemKind kind, Span word, AstName name) {
  AstItem *item = ARENA_NEW(p->c->arena, AstItem);
  item->kind = kind, item->word = item->span = word, item->name = name;
  return item;
}

AstItem *ast_item_use(Parse *p, Span word, Str file, Span at) {
  AstItem *item = ast_item_new(p, ITEM_USE, word, (AstName){0});
  item->file = file, item->file_span = at;
  return item;
}

AstItem *ast_item_dims(AstItem *item, const AstDims *dims) {
  COPY_LIST(item->dims, dims);
  return item;
}

AstItem *ast_item_operands(AstItem *item, AstAxes *axes, const AstOptions *operands) {
  item->axes = axes;
  COPY_LIST(item->operands, operands);
  return item;
}

AstItem *ast_item_value(AstItem *item, AstExpr *value) {
  item->value = value;
  return item;
}

AstItem *ast_item_body(AstItem *item, const AstStmts *body) {
  item->has_body = true;
  COPY_LIST(item->body, body);
  return item;
}

AstItem *ast_item_layer(AstItem *item, AstAxes *axes, const AstFormals *formals, AstType *result,
                        const AstOptions *with) {
  item->axes = axes, item->result = result;
  COPY_LIST(item->formals, formals);
  COPY_LIST(item->with, with);
  return item;
}

AstItem *ast_item_block(Parse *p, AstItem *item, AstName base, AstBlock *block) {
  if (block) ast_rename_settings(p, ast_item_word(item->kind), block);
  item->base = base, item->block = block;
  return item;
}

void ast_file_add(Parse *p, AstItem *item, Span whole) {
  item->span = whole, item->bad = p->bad;
  p->bad = p->deep = false;
  vec_push(p->c->arena, p->file->items, item);
}

/* ---- words ---- */

const char *ast_op_name(AstOp op) {
  static const char *const names[] = {
      "|", "&", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "^", "-"};
  _Static_assert(COUNT_OF(names) == AST_NEG + 1, "a sign per AstOp");
  return names[op];
}

const char *ast_item_word(AstItemKind kind) {
  static const char *const words[] = {"use",    "dims",    "const",  "fn",      "grad",
                                      "layout", "layer",   "model",  "variant", "train",
                                      "plan",   "machine", "weights"};
  _Static_assert(COUNT_OF(words) == ITEM_WEIGHTS + 1, "a word per AstItemKind");
  return words[kind];
}
