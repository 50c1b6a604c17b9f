/* A walk over the tree to the name at an offset. If two names touch at the offset, the first one
   counts. */
#include "ast_find.h"

typedef struct Finder {
  uint32_t offset;
  AstFound found;
} Finder;

static bool inside(const Finder *finder, Span at) {
  return at.offset <= finder->offset && finder->offset <= at.offset + at.length;
}

static void see(Finder *finder, AstRole role, AstName name) {
  if (finder->found.role || !name.text || !inside(finder, name.span)) return;
  finder->found.role = role, finder->found.name = name;
}

static void see_names(Finder *finder, AstRole role, const AstNames *names) {
  for (uint32_t i = 0; i < names->n; i++) see(finder, role, names->at[i]);
}

static void see_axes(Finder *finder, const AstAxes *axes) {
  for (uint32_t i = 0; axes && i < axes->groups.n; i++) {
    see_names(finder, ROLE_DIM, &axes->groups.at[i].from);
    see_names(finder, ROLE_DIM, &axes->groups.at[i].to);
  }
}

static void see_type(Finder *finder, const AstType *type) {
  if (!type) return;
  see_axes(finder, type->axes);
  see(finder, ROLE_DIM, type->of);
}

static void see_expr(Finder *finder, const AstExpr *x);

static void see_args(Finder *finder, const AstArgs *args, Str of) {
  for (uint32_t i = 0; i < args->n; i++) {
    see(finder, ROLE_OPTION, args->at[i].name);
    if (finder->found.role == ROLE_OPTION && !finder->found.of) finder->found.of = of;
    see_expr(finder, args->at[i].value);
  }
}

static void see_options(Finder *finder, AstRole role, const AstOptions *options, Str of) {
  for (uint32_t i = 0; i < options->n; i++) {
    see(finder, role, options->at[i].name);
    if (finder->found.role == ROLE_OPTION && !finder->found.of) finder->found.of = of;
    see_expr(finder, options->at[i].value);
  }
}

static void see_expr(Finder *finder, const AstExpr *x) {
  if (!x || finder->found.role) return;
  bool call = x->kind == EXPR_CALL || x->kind == EXPR_AXES;
  see_expr(finder, x->base), see_expr(finder, x->left);
  if (x->kind == EXPR_PIPE && x->right && x->right->kind == EXPR_NAME)
    see(finder, ROLE_CALL, x->right->name);
  see(finder, call ? ROLE_CALL : ROLE_VALUE, x->name);
  see(finder, ROLE_DIM, x->index_dim);
  see_axes(finder, x->axes);
  see_args(finder, &x->args, x->name.text);
  see_expr(finder, x->index), see_expr(finder, x->right);
}

static void see_stmt(Finder *finder, const AstStmt *stmt) {
  if (!inside(finder, stmt->span)) return;
  finder->found.stmt = stmt;
  see_names(finder, ROLE_VALUE, &stmt->names);
  see_axes(finder, stmt->axes), see_type(finder, stmt->type);
  see_names(finder, ROLE_LAYER, &stmt->of);
  for (uint32_t i = 0; i < stmt->of_axes.n; i++) see_axes(finder, stmt->of_axes.at[i]);
  see_options(finder, ROLE_OPTION, &stmt->with, stmt->of.n ? stmt->of.at[0].text : NULL);
  see_expr(finder, stmt->value);
  for (uint32_t i = 0; i < stmt->attrs.n; i++) {
    see(finder, ROLE_ATTRIBUTE, stmt->attrs.at[i].name);
    see_args(finder, &stmt->attrs.at[i].args, NULL);
  }
}

/* ---- settings ---- */

static void see_path(Finder *finder, AstRole role, const AstPath *path) {
  for (uint32_t i = 0; path && i < path->parts.n; i++)
    if (path->parts.at[i].kind == PART_NAME)
      see(finder, role, (AstName){path->parts.at[i].name, path->parts.at[i].span});
}

static void see_pairs(Finder *finder, const AstPairs *pairs);

static void see_value(Finder *finder, const AstValue *value, Str key) {
  if (!value || finder->found.role) return;
  see_path(finder, ROLE_CHOICE, value->path);
  if (finder->found.role) finder->found.of = key;
  see_pairs(finder, &value->args), see_pairs(finder, &value->to);
  for (uint32_t i = 0; i < value->items.n; i++) see_value(finder, value->items.at[i], key);
  see_expr(finder, value->expr);
}

static void see_pairs(Finder *finder, const AstPairs *pairs) {
  for (uint32_t i = 0; i < pairs->n; i++) {
    see_path(finder, ROLE_KEY, pairs->at[i].key);
    see_value(finder, pairs->at[i].value, pairs->at[i].key ? pairs->at[i].key->text : NULL);
  }
}

static void see_block(Finder *finder, const AstBlock *block) {
  for (uint32_t i = 0; block && i < block->settings.n; i++) {
    const AstSetting *line = block->settings.at[i];
    if (finder->found.role || !inside(finder, line->span)) continue;
    finder->found.line = line;
    see_path(finder, ROLE_WORD, line->path);
    see_expr(finder, line->paren);
    see_pairs(finder, &line->values), see_pairs(finder, &line->target);
    see_axes(finder, line->as);
    see_block(finder, line->block);
  }
}

/* ---- items ---- */

static void see_item(Finder *finder, const AstItem *item) {
  see(finder, ROLE_ITEM, item->name);
  see(finder, ROLE_MODEL, item->base);
  see(finder, ROLE_FILE, (AstName){item->file, item->file_span});
  for (uint32_t i = 0; i < item->dims.n; i++) {
    see(finder, ROLE_DIM, item->dims.at[i].name), see(finder, ROLE_DIM, item->dims.at[i].like);
    see_expr(finder, item->dims.at[i].value);
  }
  see_axes(finder, item->axes);
  see_options(finder, ROLE_VALUE, &item->operands, NULL);
  for (uint32_t i = 0; i < item->formals.n; i++)
    see(finder, ROLE_VALUE, item->formals.at[i].name), see_type(finder, item->formals.at[i].type);
  see_type(finder, item->result);
  see_options(finder, ROLE_VALUE, &item->with, NULL);
  see_expr(finder, item->value);
  for (uint32_t i = 0; i < item->body.n && !finder->found.role; i++)
    see_stmt(finder, item->body.at[i]);
  see_block(finder, item->block);
}

AstFound ast_find(const AstFile *file, uint32_t offset) {
  Finder finder = {.offset = offset};
  for (uint32_t i = 0; i < file->items.n && !finder.found.role; i++) {
    if (!inside(&finder, file->items.at[i]->span)) continue;
    finder.found.item = file->items.at[i];
    see_item(&finder, file->items.at[i]);
  }
  return finder.found;
}
