/* Builders of the syntax tree, called by the grammar's actions, and small helpers on names, spans
   and numbers. A list is NULL until it has an element. Numbers get their value and unit here, by
   the table of units. */
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
AstNames *ast_names_add(Parse *p, AstNames *l, AstName n) { return push_name(p, l, n); }

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
  const UnitWord *u = find_unit(end, rate ? rest - 2 : rest);
  if (!u || (rate && u->kind != UNIT_BYTES) || !isfinite(value)) return false;
  *out =
      (AstNumber){.value = u->kind == UNIT_SHARE ? value / 100 : value * u->scale, .unit = u->kind};
  if (rate) out->unit = UNIT_BYTES_PER_SECOND;
  set_integral(out, u->scale, digits, copy);
  return true;
}

AstNumber *ast_number_at(Parse *p, const char *text, size_t n, Span s) {
  AstNumber *number = ARENA_NEW(p->c->arena, AstNumber);
  if (!ast_number_unit(text, n, number)) return NULL;
  number->text = intern_n(p->c->names, text, n), number->span = s;
  return number;
}

AstNumber *ast_number_negate(Parse *p, AstNumber *n, Span s) {
  n->value = -n->value, n->integral = -n->integral, n->span = s;
  n->text = intern_printf(p->c->names, "-%s", n->text);
  return n;
}

/* ---- axes, types ---- */

AstGroup *ast_group_new(Parse *p, AstNames *from, AstNames *to, Span s) {
  AstGroup *g = ARENA_NEW(p->c->arena, AstGroup);
  g->arrow = to != NULL, g->span = s;
  COPY_LIST(g->from, from);
  COPY_LIST(g->to, to);
  return g;
}

AstAxes *ast_axes_add(Parse *p, AstAxes *a, AstGroup *g) {
  if (!a) a = ARENA_NEW(p->c->arena, AstAxes);
  vec_push(p->c->arena, a->groups, *g);
  return a;
}

AstAxes *ast_axes_close(AstAxes *a, Span s) {
  a->span = s;
  return a;
}

AstType *ast_type_new(Parse *p, AstAxes *a, AstName of, AstName elem, Span s) {
  AstType *t = ARENA_NEW(p->c->arena, AstType);
  *t = (AstType){.axes = a, .of = of, .elem = elem, .span = s};
  return t;
}

/* ---- expressions ---- */

static AstExpr *expr_new(Parse *p, AstExprKind kind, Span s, uint32_t depth_below) {
  AstExpr *e = ARENA_NEW(p->c->arena, AstExpr);
  e->kind = kind, e->span = s, e->depth = depth_below + 1;
  if (e->depth == MAX_EXPR_DEPTH) shard_report_depth(p, s);
  return e;
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
static AstExpr *shallow(Parse *p, AstExpr *e) {
  if (e->depth < MAX_EXPR_DEPTH) return e;
  AstExpr *zero = ARENA_NEW(p->c->arena, AstExpr);
  zero->kind = EXPR_NUMBER, zero->span = e->span, zero->depth = 1;
  zero->number = (AstNumber){.integer = true, .text = intern(p->c->names, "0"), .span = e->span};
  return zero;
}

AstExpr *ast_expr_number(Parse *p, AstNumber *n) {
  AstExpr *e = expr_new(p, EXPR_NUMBER, n->span, 0);
  e->number = *n;
  return e;
}

AstExpr *ast_expr_string(Parse *p, Str text, Span s) {
  AstExpr *e = expr_new(p, EXPR_STRING, s, 0);
  e->string = text;
  return e;
}

AstExpr *ast_expr_name(Parse *p, AstName n) {
  AstExpr *e = expr_new(p, EXPR_NAME, n.span, 0);
  e->name = n;
  return e;
}

AstExpr *ast_expr_field(Parse *p, AstExpr *base, AstName n, Span s) {
  AstExpr *e = expr_new(p, EXPR_FIELD, s, base->depth);
  e->base = base, e->name = n;
  return shallow(p, e);
}

AstExpr *ast_expr_list(Parse *p, AstArgs *args, Span s) {
  AstExpr *e = expr_new(p, EXPR_LIST, s, args_depth(args));
  COPY_LIST(e->args, args);
  return shallow(p, e);
}

AstExpr *ast_expr_gather(Parse *p, AstName n, AstName dim, AstExpr *index, Span s) {
  AstExpr *e = expr_new(p, EXPR_GATHER, s, index->depth);
  e->name = n, e->index_dim = dim, e->index = index;
  return shallow(p, e);
}

AstExpr *ast_expr_axes(Parse *p, AstName n, AstAxes *a, Span s) {
  AstExpr *e = expr_new(p, EXPR_AXES, s, 0);
  e->name = n, e->axes = a;
  return e;
}

AstExpr *ast_expr_call(Parse *p, AstName n, AstAxes *a, AstArgs *args, Span s) {
  AstExpr *e = expr_new(p, EXPR_CALL, s, args_depth(args));
  e->name = n, e->axes = a;
  COPY_LIST(e->args, args);
  return shallow(p, e);
}

AstExpr *ast_expr_binary(Parse *p, AstOp op, AstExpr *l, AstExpr *r, Span op_span) {
  AstExpr *e = expr_new(p, EXPR_BINARY, span_join(l->span, r->span), deeper(l, r));
  e->op = op, e->op_span = op_span, e->left = l, e->right = r;
  return shallow(p, e);
}

AstExpr *ast_expr_pipe(Parse *p, AstExpr *l, AstExpr *r, Span op_span) {
  AstExpr *e = ast_expr_binary(p, AST_OR, l, r, op_span);
  if (e->kind == EXPR_BINARY) e->kind = EXPR_PIPE;
  return e;
}

AstExpr *ast_expr_negate(Parse *p, AstExpr *r, Span op_span) {
  AstExpr *e = expr_new(p, EXPR_UNARY, span_join(op_span, r->span), r->depth);
  e->op = AST_NEG, e->op_span = op_span, e->right = r;
  return shallow(p, e);
}

AstArgs *ast_args_add(Parse *p, AstArgs *l, AstName n, AstExpr *value, Span s) {
  return push_arg(p, l, (AstArg){.name = n, .value = value, .span = s});
}

AstOptions *ast_options_add(Parse *p, AstOptions *l, AstName n, AstExpr *value, Span s) {
  return push_option(p, l, (AstOption){.name = n, .value = value, .span = s});
}

AstOptions *ast_options_of_names(Parse *p, const AstNames *names) {
  AstOptions *l = NULL;
  for (uint32_t i = 0; i < names->n; i++)
    l = ast_options_add(p, l, names->at[i], NULL, names->at[i].span);
  return l;
}

AstAttrs *ast_attrs_add(Parse *p, AstAttrs *l, AstName n, AstArgs *args, Span s) {
  AstAttr a = {.name = n, .span = s};
  COPY_LIST(a.args, args);
  return push_attr(p, l, a);
}

/* ---- statements ---- */

static AstStmt *stmt_new(Parse *p, AstStmtKind kind, Span word) {
  AstStmt *s = ARENA_NEW(p->c->arena, AstStmt);
  s->kind = kind, s->word = s->span = word;
  return s;
}

static AstStmt *stmt_named(Parse *p, AstStmtKind kind, Span word, AstName n) {
  AstStmt *s = stmt_new(p, kind, word);
  vec_push(p->c->arena, s->names, n);
  return s;
}

AstStmt *ast_stmt_param(Parse *p, Span word, AstName n, AstAxes *a, bool random, AstExpr *value,
                        AstAttrs *attrs) {
  AstStmt *s = stmt_named(p, STMT_PARAM, word, n);
  s->axes = a, s->random = random, s->value = value;
  COPY_LIST(s->attrs, attrs);
  return s;
}

AstStmt *ast_stmt_sub(Parse *p, Span word, AstName n, AstName of, AstAxes *a, AstOptions *with) {
  AstStmt *s = stmt_named(p, STMT_SUB, word, n);
  s->axes = a;
  vec_push(p->c->arena, s->of, of);
  COPY_LIST(s->with, with);
  return s;
}

AstStmt *ast_stmt_stack(Parse *p, Span word, AstName n, AstAxes *a, AstNames *of,
                        AstOptions *with) {
  AstStmt *s = stmt_named(p, STMT_STACK, word, n);
  s->axes = a;
  COPY_LIST(s->of, of);
  COPY_LIST(s->with, with);
  return s;
}

AstStmt *ast_stmt_names(Parse *p, AstStmtKind k, Span word, AstNames *names, AstType *t) {
  AstStmt *s = stmt_new(p, k, word);
  s->type = t;
  COPY_LIST(s->names, names);
  return s;
}

AstStmt *ast_stmt_assign(Parse *p, AstNames *names, AstExpr *value, AstAttrs *attrs) {
  AstStmt *s = ast_stmt_names(p, STMT_ASSIGN, names->at[0].span, names, NULL);
  s->value = value;
  COPY_LIST(s->attrs, attrs);
  return s;
}

AstStmt *ast_stmt_value(Parse *p, AstStmtKind k, Span word, AstExpr *value) {
  AstStmt *s = stmt_new(p, k, word);
  s->value = value;
  return s;
}

AstStmt *ast_stmt_close(AstStmt *s, Span whole) {
  s->span = whole;
  return s;
}

AstStmts *ast_stmts_add(Parse *p, AstStmts *l, AstStmt *s) { return push_stmt(p, l, s); }

/* ---- items ---- */

AstDims *ast_dims_add(Parse *p, AstDims *l, AstNames *names, AstExpr *value, AstNumber *pad,
                      Span s) {
  for (uint32_t i = 0; i < names->n; i++)
    l = push_dim(p, l, (AstDim){.name = names->at[i], .value = value, .pad = pad, .span = s});
  return l;
}

AstDims *ast_dims_like(Parse *p, AstDims *l, AstName n, AstName like, Span s) {
  return push_dim(p, l, (AstDim){.name = n, .like = like, .span = s});
}

AstDims *ast_dims_join(Parse *p, AstDims *l, const AstDims *more) {
  for (uint32_t i = 0; i < more->n; i++) l = push_dim(p, l, more->at[i]);
  return l;
}

AstFormals *ast_formals_add(Parse *p, AstFormals *l, AstName n, AstType *t, Span s) {
  return push_formal(p, l, (AstFormal){.name = n, .type = t, .span = s});
}

AstItem *ast_item_new(Parse *p, AstItemKind k, Span word, AstName n) {
  AstItem *i = ARENA_NEW(p->c->arena, AstItem);
  i->kind = k, i->word = i->span = word, i->name = n;
  return i;
}

AstItem *ast_item_use(Parse *p, Span word, Str file, Span at) {
  AstItem *i = ast_item_new(p, ITEM_USE, word, (AstName){0});
  i->file = file, i->file_span = at;
  return i;
}

AstItem *ast_item_dims(AstItem *i, const AstDims *dims) {
  COPY_LIST(i->dims, dims);
  return i;
}

AstItem *ast_item_operands(AstItem *i, AstAxes *a, const AstOptions *operands) {
  i->axes = a;
  COPY_LIST(i->operands, operands);
  return i;
}

AstItem *ast_item_value(AstItem *i, AstExpr *value) {
  i->value = value;
  return i;
}

AstItem *ast_item_body(AstItem *i, const AstStmts *body) {
  i->has_body = true;
  COPY_LIST(i->body, body);
  return i;
}

AstItem *ast_item_layer(AstItem *i, AstAxes *a, const AstFormals *formals, AstType *result,
                        const AstOptions *with) {
  i->axes = a, i->result = result;
  COPY_LIST(i->formals, formals);
  COPY_LIST(i->with, with);
  return i;
}

AstItem *ast_item_block(Parse *p, AstItem *i, AstName base, AstBlock *b) {
  if (b) ast_rename_settings(p, ast_item_word(i->kind), b);
  i->base = base, i->block = b;
  return i;
}

void ast_file_add(Parse *p, AstItem *i, Span whole) {
  i->span = whole, i->bad = p->bad;
  p->bad = p->deep = false;
  vec_push(p->c->arena, p->file->items, i);
}

/* ---- words ---- */

const char *ast_op_name(AstOp op) {
  static const char *const names[] = {
      "|", "&", "<", "<=", ">", ">=", "==", "!=", "+", "-", "*", "/", "^", "-"};
  _Static_assert(COUNT_OF(names) == AST_NEG + 1, "a sign per AstOp");
  return names[op];
}

const char *ast_item_word(AstItemKind kind) {
  static const char *const words[] = {"use",    "dims",  "const",   "fn",     "grad",
                                      "layout", "layer", "extern",  "model",  "variant",
                                      "train",  "plan",  "machine", "weights"};
  _Static_assert(COUNT_OF(words) == ITEM_WEIGHTS + 1, "a word per AstItemKind");
  return words[kind];
}

Str ast_dotted(Ctx *c, const AstExpr *e) {
  if (e->kind == EXPR_NAME) return e->name.text;
  if (e->kind != EXPR_FIELD) return NULL;
  Str base = ast_dotted(c, e->base);
  return base ? intern_printf(c->names, "%s.%s", base, e->name.text) : NULL;
}
