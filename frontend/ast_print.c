/* The syntax tree as text, for --emit=ast: one node per line, two blanks per level, the node's line
   and column behind `@`. Lists that are always short (axes, names, paths) stay on the line of their
   node. */
#include "ast.h"
#include "ir/support/num.h"

typedef struct AstPrinter {
  Ctx *c;
  FILE *out;
  int depth;
  bool plain; /* without positions */
} AstPrinter;

static void begin(const AstPrinter *p, const char *word) {
  fprintf(p->out, "%*s%s", 2 * p->depth, "", word);
}

static void end(const AstPrinter *p, Span s) {
  uint32_t line, column;
  if (p->plain) {
    fputc('\n', p->out);
    return;
  }
  diag_line_column(p->c->diag, s, &line, &column);
  fprintf(p->out, "  @%u:%u\n", line, column);
}

static void put_names(const AstPrinter *p, const AstNames *names) {
  for (uint32_t i = 0; i < names->n; i++) fprintf(p->out, "%s%s", i ? ", " : "", names->at[i].text);
}

static void put_axes(const AstPrinter *p, const AstAxes *a) {
  if (!a) return;
  fputs(" [", p->out);
  for (uint32_t i = 0; i < a->groups.n; i++) {
    const AstGroup *g = &a->groups.at[i];
    if (i) fputs("; ", p->out);
    put_names(p, &g->from);
    if (g->arrow) fputs(" -> ", p->out);
    put_names(p, &g->to);
  }
  fputc(']', p->out);
}

static void put_type(const AstPrinter *p, const AstType *t) {
  put_axes(p, t->axes);
  if (t->of.text) fprintf(p->out, " of %s", t->of.text);
  if (t->elem.text) fprintf(p->out, " %s", t->elem.text);
}

/* ---- expressions ---- */

static void put_expr(AstPrinter *p, const AstExpr *e);

static void put_args(AstPrinter *p, const AstArgs *args) {
  p->depth++;
  for (uint32_t i = 0; i < args->n; i++) {
    const AstArg *a = &args->at[i];
    if (!a->name.text) {
      put_expr(p, a->value);
      continue;
    }
    begin(p, a->name.text), fputs(" =", p->out), end(p, a->span);
    p->depth++, put_expr(p, a->value), p->depth--;
  }
  p->depth--;
}

static void put_head(AstPrinter *p, const AstExpr *e) {
  switch (e->kind) {
  case EXPR_NUMBER: begin(p, "number "), fputs(e->number.text, p->out); break;
  case EXPR_STRING: begin(p, "string "), fprintf(p->out, "\"%s\"", e->string); break;
  case EXPR_NAME: begin(p, "name "), fputs(e->name.text, p->out); break;
  case EXPR_FIELD: begin(p, "field "), fputs(e->name.text, p->out); break;
  case EXPR_LIST: begin(p, "list"); break;
  case EXPR_GATHER:
    begin(p, "gather "), fprintf(p->out, "%s[%s]", e->name.text, e->index_dim.text);
    break;
  case EXPR_AXES: begin(p, "axes "), fputs(e->name.text, p->out), put_axes(p, e->axes); break;
  case EXPR_CALL: begin(p, "call "), fputs(e->name.text, p->out), put_axes(p, e->axes); break;
  case EXPR_UNARY: begin(p, "negate"); break;
  case EXPR_BINARY: begin(p, ast_op_name(e->op)); break;
  case EXPR_PIPE: begin(p, "|>"); break;
  }
  end(p, e->span);
}

static void put_expr(AstPrinter *p, const AstExpr *e) {
  put_head(p, e);
  p->depth++;
  if (e->base) put_expr(p, e->base);
  if (e->index) put_expr(p, e->index);
  if (e->left) put_expr(p, e->left);
  if (e->right) put_expr(p, e->right);
  p->depth--;
  put_args(p, &e->args);
}

static void put_below(AstPrinter *p, const AstExpr *e) {
  p->depth++;
  if (e) put_expr(p, e);
  p->depth--;
}

/* ---- statements ---- */

static void put_options(AstPrinter *p, const char *word, const AstOptions *l) {
  p->depth++;
  for (uint32_t i = 0; i < l->n; i++) {
    begin(p, word), fprintf(p->out, " %s", l->at[i].name.text), end(p, l->at[i].span);
    put_below(p, l->at[i].value);
  }
  p->depth--;
}

static void put_attrs(AstPrinter *p, const AstAttrs *l) {
  p->depth++;
  for (uint32_t i = 0; i < l->n; i++) {
    begin(p, "@"), fputs(l->at[i].name.text, p->out), end(p, l->at[i].span);
    put_args(p, &l->at[i].args);
  }
  p->depth--;
}

static void put_stmt(AstPrinter *p, const AstStmt *s) {
  static const char *const words[] = {"param",  "sub",    "stack", "input", "output",
                                      "assign", "return", "loss",  "aux"};
  _Static_assert(COUNT_OF(words) == STMT_AUX + 1, "a word per AstStmtKind");
  begin(p, words[s->kind]);
  if (s->names.n) fputc(' ', p->out), put_names(p, &s->names);
  if (s->kind != STMT_SUB) put_axes(p, s->axes);
  if (s->type) put_type(p, s->type);
  if (s->kind == STMT_PARAM) fputs(s->random ? " ~" : " =", p->out);
  if (s->of.n) fputs(s->kind == STMT_SUB ? " = " : " of ", p->out), put_names(p, &s->of);
  if (s->kind == STMT_SUB) put_axes(p, s->axes);
  end(p, s->span);
  put_below(p, s->value);
  put_options(p, "with", &s->with);
  put_attrs(p, &s->attrs);
}

/* ---- settings ---- */

static void put_value(AstPrinter *p, const AstValue *v);

static void put_pairs(AstPrinter *p, const char *word, const AstPairs *l) {
  p->depth++;
  for (uint32_t i = 0; i < l->n; i++) {
    const AstPair *a = &l->at[i];
    begin(p, word);
    if (a->key) fprintf(p->out, " %s =", a->key->text);
    end(p, a->span);
    p->depth++, put_value(p, a->value), p->depth--;
  }
  p->depth--;
}

static void put_value(AstPrinter *p, const AstValue *v) {
  static const char *const words[] = {"number ", "string ", "path ", "call ", "list", "expression"};
  _Static_assert(COUNT_OF(words) == VALUE_EXPR + 1, "a word per AstValueKind");
  begin(p, words[v->kind]);
  if (v->kind == VALUE_NUMBER) fputs(v->number.text, p->out);
  if (v->kind == VALUE_STRING) fprintf(p->out, "\"%s\"", v->string);
  if (v->path) fputs(v->path->text, p->out);
  end(p, v->span);
  p->depth++;
  for (uint32_t i = 0; i < v->items.n; i++) put_value(p, v->items.at[i]);
  if (v->expr) put_expr(p, v->expr);
  p->depth--;
  put_pairs(p, "value", &v->args);
  put_pairs(p, "to", &v->to);
}

static void put_block(AstPrinter *p, const AstBlock *b) {
  p->depth++;
  for (uint32_t i = 0; b && i < b->settings.n; i++) {
    const AstSetting *s = b->settings.at[i];
    begin(p, "setting "), fputs(s->path->text, p->out), end(p, s->span);
    put_below(p, s->paren);
    put_pairs(p, "value", &s->values);
    put_pairs(p, s->arrow == ARROW_LEFT ? "from" : "to", &s->target);
    p->depth++;
    if (s->as) begin(p, "as"), put_axes(p, s->as), end(p, s->as->span);
    p->depth--;
    put_block(p, s->block);
  }
  p->depth--;
}

/* ---- items ---- */

static void put_dims(AstPrinter *p, const AstDims *dims) {
  p->depth++;
  for (uint32_t i = 0; i < dims->n; i++) {
    const AstDim *d = &dims->at[i];
    begin(p, "dim "), fputs(d->name.text, p->out);
    if (d->like.text) fprintf(p->out, " like %s", d->like.text);
    if (d->pad) fprintf(p->out, " pad %s", d->pad->text);
    end(p, d->name.span);
    put_below(p, d->value);
  }
  p->depth--;
}

static void put_formals(AstPrinter *p, const AstItem *i) {
  p->depth++;
  for (uint32_t j = 0; j < i->formals.n; j++) {
    begin(p, "operand "), fputs(i->formals.at[j].name.text, p->out);
    put_type(p, i->formals.at[j].type), end(p, i->formals.at[j].span);
  }
  if (i->result) begin(p, "result"), put_type(p, i->result), end(p, i->result->span);
  p->depth--;
}

static void put_item(AstPrinter *p, const AstItem *i) {
  begin(p, ast_item_word(i->kind));
  if (i->name.text) fprintf(p->out, " %s", i->name.text);
  if (i->file) fprintf(p->out, " \"%s\"", i->file);
  put_axes(p, i->axes);
  if (i->base.text)
    fprintf(p->out, "%s%s", i->kind == ITEM_VARIANT ? " of " : " for ", i->base.text);
  if (i->bad) fputs(" (with errors)", p->out);
  end(p, i->span);
  put_dims(p, &i->dims);
  put_options(p, "operand", &i->operands);
  put_formals(p, i);
  put_options(p, "with", &i->with);
  put_below(p, i->value);
  p->depth++;
  for (uint32_t j = 0; j < i->body.n; j++) put_stmt(p, i->body.at[j]);
  p->depth--;
  put_block(p, i->block);
}

static void put_file(AstPrinter *p, const AstFile *f) {
  fprintf(p->out, "file \"%s\"\n", f->name);
  for (uint32_t i = 0; i < f->items.n; i++) put_item(p, f->items.at[i]);
}

void ast_print(Ctx *c, const AstFile *f, FILE *out) {
  AstPrinter p = {c, out, 1, false};
  put_file(&p, f);
}

void ast_print_plain(Ctx *c, const AstFile *f, FILE *out) {
  AstPrinter p = {c, out, 1, true};
  put_file(&p, f);
}
