/* Functions that nothing uses. A function has no types, so it is checked at its uses; if it has
   none, only its names can be checked: values, functions and dimensions that are not declared. This
   file reports nothing about kinds or dims of values. */
#include "sema_mask.h"
#include <string.h>

typedef struct Scope {
  World *w;
  const Sizes *sizes;
  const AstItem *item;
  VEC(Str) locals; /* operands, and names assigned so far */
} Scope;

static void add(Scope *scope, Str name) { vec_push(scope->w->ctx->arena, scope->locals, name); }

static bool is_local(const Scope *scope, Str name) {
  for (uint32_t i = 0; i < scope->locals.n; i++)
    if (scope->locals.at[i] == name) return true;
  return false;
}

static bool in_list(const AstNames *l, Str name) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i].text == name) return true;
  return false;
}

static bool is_axis(const Scope *scope, Str name) {
  for (uint32_t g = 0; scope->item->axes && g < scope->item->axes->groups.n; g++)
    if (in_list(&scope->item->axes->groups.at[g].from, name) ||
        in_list(&scope->item->axes->groups.at[g].to, name))
      return true;
  return !strcmp(name, "*");
}

static bool is_function(const Scope *scope, Str name) {
  return world_find(scope->w, SPACE_FN, name, false) || builtin_find(name, false) ||
         mask_function(name) || call_is_initialiser(name);
}

static bool is_value(const Scope *scope, Str name) {
  static const char *const words[] = {"none", "on", "off", "pi", "inf"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i], name)) return true;
  return is_local(scope, name) || is_axis(scope, name) || sizes_find(scope->sizes, name) ||
         mask_word(name) || world_find(scope->w, SPACE_CONST, name, false);
}

/* ---- the walk ---- */

static void check_dims(Scope *scope, const AstNames *l) {
  for (uint32_t i = 0; i < l->n; i++)
    if (!is_axis(scope, l->at[i].text) && !sizes_find(scope->sizes, l->at[i].text))
      explain_no_dim(scope->w, l->at[i].span, l->at[i].text);
}

static void no_such(Scope *scope, const AstName *n, const char *kind) {
  if (world_lost(scope->w, SPACE_FN) || world_misses_library(scope->w, SPACE_FN, n->span, n->text))
    return;
  Report *r = world_error(scope->w, "E0201", n->span, "no %s named `%s`", kind, n->text);
  const char *near =
      scope->locals.n ? diag_nearest(n->text, scope->locals.at, scope->locals.n) : NULL;
  diag_near(r, "one", near ? near : world_nearest(scope->w, SPACE_FN, n->text));
}

static void walk(Scope *scope, const AstExpr *expr, bool called) {
  if (!expr) return;
  bool call =
      expr->kind == EXPR_CALL || expr->kind == EXPR_AXES || (expr->kind == EXPR_NAME && called);
  if (call && !is_function(scope, expr->name.text) && !is_local(scope, expr->name.text))
    no_such(scope, &expr->name, "function or operator");
  if ((expr->kind == EXPR_NAME && !called) || expr->kind == EXPR_GATHER)
    if (!is_value(scope, expr->name.text) && !is_function(scope, expr->name.text))
      no_such(scope, &expr->name, "value");
  for (uint32_t g = 0; expr->axes && g < expr->axes->groups.n; g++)
    check_dims(scope, &expr->axes->groups.at[g].from),
        check_dims(scope, &expr->axes->groups.at[g].to);
  for (uint32_t i = 0; i < expr->args.n; i++) walk(scope, expr->args.at[i].value, false);
  if (expr->kind == EXPR_FIELD) return; /* a part of an operand */
  walk(scope, expr->index, false);
  walk(scope, expr->left, false);
  walk(scope, expr->right, expr->kind == EXPR_PIPE);
}

void check_unused_function(World *w, const Decl *decl) {
  Scope scope = {.w = w, .sizes = sizes_new(w, NULL), .item = decl->item};
  for (uint32_t i = 0; i < decl->item->operands.n; i++) {
    walk(&scope, decl->item->operands.at[i].value, false);
    add(&scope, decl->item->operands.at[i].name.text);
  }
  walk(&scope, decl->item->value, false);
  for (uint32_t i = 0; i < decl->item->body.n; i++) {
    const AstStmt *stmt = decl->item->body.at[i];
    walk(&scope, stmt->value, false);
    for (uint32_t k = 0; k < stmt->names.n; k++) add(&scope, stmt->names.at[k].text);
  }
}
