/* A walk over the tree to the name at an offset. Of two names that touch there, the first one
   counts. */
#include "ast_find.h"

typedef struct Finder {
  uint32_t offset;
  AstFound found;
} Finder;

static bool inside(const Finder *f, Span at) {
  return at.offset <= f->offset && f->offset <= at.offset + at.length;
}

static void see(Finder *f, AstRole role, AstName name) {
  if (f->found.role || !name.text || !inside(f, name.span)) return;
  f->found.role = role, f->found.name = name;
}

static void see_names(Finder *f, AstRole role, const AstNames *names) {
  for (uint32_t i = 0; i < names->n; i++) see(f, role, names->at[i]);
}

static void see_axes(Finder *f, const AstAxes *axes) {
  for (uint32_t i = 0; axes && i < axes->groups.n; i++) {
    see_names(f, ROLE_DIM, &axes->groups.at[i].from);
    see_names(f, ROLE_DIM, &axes->groups.at[i].to);
  }
}

static void see_type(Finder *f, const AstType *type) {
  if (!type) return;
  see_axes(f, type->axes);
  see(f, ROLE_DIM, type->of);
}

static void see_expr(Finder *f, const AstExpr *x);

static void see_args(Finder *f, const AstArgs *args, Str of) {
  for (uint32_t i = 0; i < args->n; i++) {
    see(f, ROLE_OPTION, args->at[i].name);
    if (f->found.role == ROLE_OPTION && !f->found.of) f->found.of = of;
    see_expr(f, args->at[i].value);
  }
}

static void see_options(Finder *f, AstRole role, const AstOptions *options, Str of) {
  for (uint32_t i = 0; i < options->n; i++) {
    see(f, role, options->at[i].name);
    if (f->found.role == ROLE_OPTION && !f->found.of) f->found.of = of;
    see_expr(f, options->at[i].value);
  }
}

static void see_expr(Finder *f, const AstExpr *x) {
  if (!x || f->found.role) return;
  bool call = x->kind == EXPR_CALL || x->kind == EXPR_AXES;
  see_expr(f, x->base), see_expr(f, x->left);
  if (x->kind == EXPR_PIPE && x->right && x->right->kind == EXPR_NAME)
    see(f, ROLE_CALL, x->right->name);
  see(f, call ? ROLE_CALL : ROLE_VALUE, x->name);
  see(f, ROLE_DIM, x->index_dim);
  see_axes(f, x->axes);
  see_args(f, &x->args, x->name.text);
  see_expr(f, x->index), see_expr(f, x->right);
}

static void see_stmt(Finder *f, const AstStmt *stmt) {
  if (!inside(f, stmt->span)) return;
  f->found.stmt = stmt;
  see_names(f, ROLE_VALUE, &stmt->names);
  see_axes(f, stmt->axes), see_type(f, stmt->type);
  see_names(f, ROLE_LAYER, &stmt->of);
  see_options(f, ROLE_OPTION, &stmt->with, stmt->of.n ? stmt->of.at[0].text : NULL);
  see_expr(f, stmt->value);
  for (uint32_t i = 0; i < stmt->attrs.n; i++) {
    see(f, ROLE_ATTRIBUTE, stmt->attrs.at[i].name);
    see_args(f, &stmt->attrs.at[i].args, NULL);
  }
}

/* ---- settings ---- */

static void see_path(Finder *f, AstRole role, const AstPath *path) {
  for (uint32_t i = 0; path && i < path->parts.n; i++)
    if (path->parts.at[i].kind == PART_NAME)
      see(f, role, (AstName){path->parts.at[i].name, path->parts.at[i].span});
}

static void see_pairs(Finder *f, const AstPairs *pairs);

static void see_value(Finder *f, const AstValue *value, Str key) {
  if (!value || f->found.role) return;
  see_path(f, ROLE_CHOICE, value->path);
  if (f->found.role) f->found.of = key;
  see_pairs(f, &value->args), see_pairs(f, &value->to);
  for (uint32_t i = 0; i < value->items.n; i++) see_value(f, value->items.at[i], key);
  see_expr(f, value->expr);
}

static void see_pairs(Finder *f, const AstPairs *pairs) {
  for (uint32_t i = 0; i < pairs->n; i++) {
    see_path(f, ROLE_KEY, pairs->at[i].key);
    see_value(f, pairs->at[i].value, pairs->at[i].key ? pairs->at[i].key->text : NULL);
  }
}

static void see_block(Finder *f, const AstBlock *block) {
  for (uint32_t i = 0; block && i < block->settings.n; i++) {
    const AstSetting *line = block->settings.at[i];
    if (f->found.role || !inside(f, line->span)) continue;
    f->found.line = line;
    see_path(f, ROLE_WORD, line->path);
    see_expr(f, line->paren);
    see_pairs(f, &line->values), see_pairs(f, &line->target);
    see_axes(f, line->as);
    see_block(f, line->block);
  }
}

/* ---- items ---- */

static void see_item(Finder *f, const AstItem *item) {
  see(f, ROLE_ITEM, item->name);
  see(f, ROLE_MODEL, item->base);
  see(f, ROLE_FILE, (AstName){item->file, item->file_span});
  for (uint32_t i = 0; i < item->dims.n; i++) {
    see(f, ROLE_DIM, item->dims.at[i].name), see(f, ROLE_DIM, item->dims.at[i].like);
    see_expr(f, item->dims.at[i].value);
  }
  see_axes(f, item->axes);
  see_options(f, ROLE_VALUE, &item->operands, NULL);
  for (uint32_t i = 0; i < item->formals.n; i++)
    see(f, ROLE_VALUE, item->formals.at[i].name), see_type(f, item->formals.at[i].type);
  see_type(f, item->result);
  see_options(f, ROLE_VALUE, &item->with, NULL);
  see_expr(f, item->value);
  for (uint32_t i = 0; i < item->body.n && !f->found.role; i++) see_stmt(f, item->body.at[i]);
  see_block(f, item->block);
}

AstFound ast_find(const AstFile *file, uint32_t offset) {
  Finder f = {.offset = offset};
  for (uint32_t i = 0; i < file->items.n && !f.found.role; i++) {
    if (!inside(&f, file->items.at[i]->span)) continue;
    f.found.item = file->items.at[i];
    see_item(&f, file->items.at[i]);
  }
  return f.found;
}
