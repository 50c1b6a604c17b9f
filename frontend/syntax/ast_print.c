/* The syntax tree as text, for --emit=ast: one node per line, two blanks per level, the node's line
   and column after `@`. Lists that are always short (axes, names, paths) stay on the line of their
   node. */
#include "ast.h"
#include "ir/support/num.h"

typedef struct AstPrinter {
  Ctx *c;
  FILE *out;
  int depth;
  bool plain; /* without positions */
} AstPrinter;

static void begin(const AstPrinter *printer, const char *word) {
  fprintf(printer->out, "%*s%s", 2 * printer->depth, "", word);
}

static void end(const AstPrinter *printer, Span s) {
  uint32_t line, column;
  if (printer->plain) {
    fputc('\n', printer->out);
    return;
  }
  diag_line_column(printer->c->diag, s, &line, &column);
  fprintf(printer->out, "  @%u:%u\n", line, column);
}

static void put_names(const AstPrinter *printer, const AstNames *names) {
  for (uint32_t i = 0; i < names->n; i++)
    fprintf(printer->out, "%s%s", i ? ", " : "", names->at[i].text);
}

static void put_axes(const AstPrinter *printer, const AstAxes *axes) {
  if (!axes) return;
  fputs(" [", printer->out);
  for (uint32_t i = 0; i < axes->groups.n; i++) {
    const AstGroup *group = &axes->groups.at[i];
    if (i) fputs("; ", printer->out);
    put_names(printer, &group->from);
    if (group->arrow) fputs(" -> ", printer->out);
    put_names(printer, &group->to);
  }
  fputc(']', printer->out);
}

static void put_type(const AstPrinter *printer, const AstType *type) {
  put_axes(printer, type->axes);
  if (type->of.text) fprintf(printer->out, " of %s", type->of.text);
  if (type->elem.text) fprintf(printer->out, " %s", type->elem.text);
}

/* ---- expressions ---- */

static void put_expr(AstPrinter *p, const AstExpr *e);

static void put_args(AstPrinter *printer, const AstArgs *args) {
  printer->depth++;
  for (uint32_t i = 0; i < args->n; i++) {
    const AstArg *arg = &args->at[i];
    if (!arg->name.text) {
      put_expr(printer, arg->value);
      continue;
    }
    begin(printer, arg->name.text), fputs(" =", printer->out), end(printer, arg->span);
    printer->depth++, put_expr(printer, arg->value), printer->depth--;
  }
  printer->depth--;
}

static void put_head(AstPrinter *printer, const AstExpr *expr) {
  switch (expr->kind) {
  case EXPR_NUMBER: begin(printer, "number "), fputs(expr->number.text, printer->out); break;
  case EXPR_STRING: begin(printer, "string "), fprintf(printer->out, "\"%s\"", expr->string); break;
  case EXPR_NAME: begin(printer, "name "), fputs(expr->name.text, printer->out); break;
  case EXPR_FIELD: begin(printer, "field "), fputs(expr->name.text, printer->out); break;
  case EXPR_LIST: begin(printer, "list"); break;
  case EXPR_GATHER:
    begin(printer, "gather "),
        fprintf(printer->out, "%s[%s]", expr->name.text, expr->index_dim.text);
    break;
  case EXPR_AXES:
    begin(printer, "axes "), fputs(expr->name.text, printer->out), put_axes(printer, expr->axes);
    break;
  case EXPR_CALL:
    begin(printer, "call "), fputs(expr->name.text, printer->out), put_axes(printer, expr->axes);
    break;
  case EXPR_UNARY: begin(printer, "negate"); break;
  case EXPR_BINARY: begin(printer, ast_op_name(expr->op)); break;
  case EXPR_PIPE: begin(printer, "|>"); break;
  }
  end(printer, expr->span);
}

static void put_expr(AstPrinter *printer, const AstExpr *expr) {
  put_head(printer, expr);
  printer->depth++;
  if (expr->base) put_expr(printer, expr->base);
  if (expr->index) put_expr(printer, expr->index);
  if (expr->left) put_expr(printer, expr->left);
  if (expr->right) put_expr(printer, expr->right);
  printer->depth--;
  put_args(printer, &expr->args);
}

static void put_below(AstPrinter *printer, const AstExpr *expr) {
  printer->depth++;
  if (expr) put_expr(printer, expr);
  printer->depth--;
}

/* ---- statements ---- */

static void put_options(AstPrinter *printer, const char *word, const AstOptions *options) {
  printer->depth++;
  for (uint32_t i = 0; i < options->n; i++) {
    begin(printer, word), fprintf(printer->out, " %s", options->at[i].name.text),
        end(printer, options->at[i].span);
    put_below(printer, options->at[i].value);
  }
  printer->depth--;
}

static void put_attrs(AstPrinter *printer, const AstAttrs *attrs) {
  printer->depth++;
  for (uint32_t i = 0; i < attrs->n; i++) {
    begin(printer, "@"), fputs(attrs->at[i].name.text, printer->out),
        end(printer, attrs->at[i].span);
    put_args(printer, &attrs->at[i].args);
  }
  printer->depth--;
}

static void put_stmt(AstPrinter *printer, const AstStmt *stmt) {
  static const char *const words[] = {"param",  "sub",  "stack", "input",  "output", "assign",
                                      "return", "loss", "aux",   "update", "project"};
  _Static_assert(COUNT_OF(words) == STMT_PROJECT + 1, "a word per AstStmtKind");
  begin(printer, words[stmt->kind]);
  if (stmt->names.n) fputc(' ', printer->out), put_names(printer, &stmt->names);
  if (stmt->kind != STMT_SUB) put_axes(printer, stmt->axes);
  if (stmt->type) put_type(printer, stmt->type);
  if (stmt->kind == STMT_PARAM) fputs(stmt->random ? " ~" : " =", printer->out);
  if (stmt->of.n)
    fputs(stmt->kind == STMT_SUB ? " = " : " of ", printer->out), put_names(printer, &stmt->of);
  for (uint32_t i = 0; i < stmt->of_axes.n; i++) put_axes(printer, stmt->of_axes.at[i]);
  if (stmt->kind == STMT_SUB) put_axes(printer, stmt->axes);
  end(printer, stmt->span);
  put_below(printer, stmt->value);
  put_options(printer, "with", &stmt->with);
  put_attrs(printer, &stmt->attrs);
}

/* ---- settings ---- */

static void put_value(AstPrinter *printer, const AstValue *v);

static void put_pairs(AstPrinter *printer, const char *word, const AstPairs *pairs) {
  printer->depth++;
  for (uint32_t i = 0; i < pairs->n; i++) {
    const AstPair *pair = &pairs->at[i];
    begin(printer, word);
    if (pair->key) fprintf(printer->out, " %s =", pair->key->text);
    end(printer, pair->span);
    printer->depth++, put_value(printer, pair->value), printer->depth--;
  }
  printer->depth--;
}

static void put_value(AstPrinter *printer, const AstValue *value) {
  static const char *const words[] = {"number ", "string ", "path ",     "call ",
                                      "list",    "object",  "expression"};
  _Static_assert(COUNT_OF(words) == VALUE_EXPR + 1, "a word per AstValueKind");
  begin(printer, words[value->kind]);
  if (value->kind == VALUE_NUMBER) fputs(value->number.text, printer->out);
  if (value->kind == VALUE_STRING) fprintf(printer->out, "\"%s\"", value->string);
  if (value->path) fputs(value->path->text, printer->out);
  end(printer, value->span);
  printer->depth++;
  for (uint32_t i = 0; i < value->items.n; i++) put_value(printer, value->items.at[i]);
  if (value->expr) put_expr(printer, value->expr);
  printer->depth--;
  put_pairs(printer, "value", &value->args);
  put_pairs(printer, "to", &value->to);
}

static void put_block(AstPrinter *printer, const AstBlock *block) {
  printer->depth++;
  for (uint32_t i = 0; block && i < block->settings.n; i++) {
    const AstSetting *setting = block->settings.at[i];
    begin(printer, "setting "), fputs(setting->path->text, printer->out),
        end(printer, setting->span);
    put_below(printer, setting->paren);
    put_pairs(printer, "value", &setting->values);
    put_pairs(printer, setting->arrow == ARROW_LEFT ? "from" : "to", &setting->target);
    printer->depth++;
    if (setting->as)
      begin(printer, "as"), put_axes(printer, setting->as), end(printer, setting->as->span);
    printer->depth--;
    put_block(printer, setting->block);
  }
  printer->depth--;
}

/* ---- items ---- */

static void put_dims(AstPrinter *printer, const AstDims *dims) {
  printer->depth++;
  for (uint32_t i = 0; i < dims->n; i++) {
    const AstDim *dim = &dims->at[i];
    begin(printer, "dim "), fputs(dim->name.text, printer->out);
    if (dim->like.text) fprintf(printer->out, " like %s", dim->like.text);
    if (dim->pad) fprintf(printer->out, " pad %s", dim->pad->text);
    end(printer, dim->name.span);
    put_below(printer, dim->value);
  }
  printer->depth--;
}

static void put_formals(AstPrinter *printer, const AstItem *item) {
  printer->depth++;
  for (uint32_t j = 0; j < item->formals.n; j++) {
    begin(printer, "operand "), fputs(item->formals.at[j].name.text, printer->out);
    put_type(printer, item->formals.at[j].type), end(printer, item->formals.at[j].span);
  }
  if (item->result)
    begin(printer, "result"), put_type(printer, item->result), end(printer, item->result->span);
  printer->depth--;
}

static void put_item(AstPrinter *printer, const AstItem *item) {
  begin(printer, ast_item_word(item->kind));
  if (item->name.text) fprintf(printer->out, " %s", item->name.text);
  if (item->file) fprintf(printer->out, " \"%s\"", item->file);
  put_axes(printer, item->axes);
  if (item->base.text)
    fprintf(printer->out, "%s%s", item->kind == ITEM_VARIANT ? " of " : " for ", item->base.text);
  if (item->bad) fputs(" (with errors)", printer->out);
  end(printer, item->span);
  put_dims(printer, &item->dims);
  put_options(printer, "operand", &item->operands);
  put_formals(printer, item);
  put_options(printer, "with", &item->with);
  put_below(printer, item->value);
  printer->depth++;
  for (uint32_t j = 0; j < item->body.n; j++) put_stmt(printer, item->body.at[j]);
  printer->depth--;
  put_block(printer, item->block);
}

static void put_file(AstPrinter *printer, const AstFile *file) {
  fprintf(printer->out, "file \"%s\"\n", file->name);
  for (uint32_t i = 0; i < file->items.n; i++) put_item(printer, file->items.at[i]);
}

void ast_print(Ctx *c, const AstFile *file, FILE *out) {
  AstPrinter printer = {c, out, 1, false};
  put_file(&printer, file);
}

void ast_print_plain(Ctx *c, const AstFile *file, FILE *out) {
  AstPrinter printer = {c, out, 1, true};
  put_file(&printer, file);
}
