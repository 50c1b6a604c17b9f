/* Functions that nothing uses. A function has no types, so it is checked where it is used; of one
   that is not, only the names can be: values, functions and dimensions that cannot be anything.
   Nothing is said about kinds or dims of values here. */
#include "frontend/sema.h"
#include <string.h>

typedef struct Scope {
  World *w;
  const Sizes *sizes;
  const AstItem *item;
  VEC(Str) locals; /* operands, and names assigned so far */
} Scope;

static void add(Scope *s, Str name) { vec_push(s->w->ctx->arena, s->locals, name); }

static bool is_local(const Scope *s, Str name) {
  for (uint32_t i = 0; i < s->locals.n; i++)
    if (s->locals.at[i] == name) return true;
  return false;
}

static bool in_list(const AstNames *l, Str name) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i].text == name) return true;
  return false;
}

static bool is_axis(const Scope *s, Str name) {
  for (uint32_t g = 0; s->item->axes && g < s->item->axes->groups.n; g++)
    if (in_list(&s->item->axes->groups.at[g].from, name) ||
        in_list(&s->item->axes->groups.at[g].to, name))
      return true;
  return !strcmp(name, "*");
}

static bool is_function(const Scope *s, Str name) {
  return world_find(s->w, SPACE_FN, name, false) || builtin_find(name, false) ||
         mask_function(name) || call_is_initialiser(name);
}

static bool is_value(const Scope *s, Str name) {
  static const char *const words[] = {"none", "on", "off", "pi", "inf"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i], name)) return true;
  return is_local(s, name) || is_axis(s, name) || sizes_find(s->sizes, name) || mask_word(name) ||
         world_find(s->w, SPACE_CONST, name, false);
}

/* ---- the walk ---- */

static void check_dims(Scope *s, const AstNames *l) {
  for (uint32_t i = 0; i < l->n; i++)
    if (!is_axis(s, l->at[i].text) && !sizes_find(s->sizes, l->at[i].text))
      explain_no_dim(s->w, l->at[i].span, l->at[i].text);
}

static void no_such(Scope *s, const AstName *n, const char *kind) {
  if (world_lost(s->w, SPACE_FN) || world_misses_library(s->w, SPACE_FN, n->span, n->text)) return;
  Report *r = world_error(s->w, "E0201", n->span, "no %s named `%s`", kind, n->text);
  const char *near = s->locals.n ? diag_nearest(n->text, s->locals.at, s->locals.n) : NULL;
  diag_near(r, "one", near ? near : world_nearest(s->w, SPACE_FN, n->text));
}

static void walk(Scope *s, const AstExpr *x, bool called) {
  if (!x) return;
  bool call = x->kind == EXPR_CALL || x->kind == EXPR_AXES || (x->kind == EXPR_NAME && called);
  if (call && !is_function(s, x->name.text) && !is_local(s, x->name.text))
    no_such(s, &x->name, "function or operator");
  if ((x->kind == EXPR_NAME && !called) || x->kind == EXPR_GATHER)
    if (!is_value(s, x->name.text) && !is_function(s, x->name.text)) no_such(s, &x->name, "value");
  for (uint32_t g = 0; x->axes && g < x->axes->groups.n; g++)
    check_dims(s, &x->axes->groups.at[g].from), check_dims(s, &x->axes->groups.at[g].to);
  for (uint32_t i = 0; i < x->args.n; i++) walk(s, x->args.at[i].value, false);
  if (x->kind == EXPR_FIELD) return; /* a part of an operand */
  walk(s, x->index, false);
  walk(s, x->left, false);
  walk(s, x->right, x->kind == EXPR_PIPE);
}

void check_unused_function(World *w, const Decl *d) {
  Scope s = {.w = w, .sizes = sizes_new(w, NULL), .item = d->item};
  for (uint32_t i = 0; i < d->item->operands.n; i++) {
    walk(&s, d->item->operands.at[i].value, false);
    add(&s, d->item->operands.at[i].name.text);
  }
  walk(&s, d->item->value, false);
  for (uint32_t i = 0; i < d->item->body.n; i++) {
    const AstStmt *t = d->item->body.at[i];
    walk(&s, t->value, false);
    for (uint32_t k = 0; k < t->names.n; k++) add(&s, t->names.at[k].text);
  }
}
