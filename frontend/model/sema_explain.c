/* The longer messages: why two operands do not fit, what was probably meant. They look at the
   source text and at the names in scope, so that the help line is an edit that can be made. */
#include "frontend/syntax/operators.h"
#include "sema.h"
#include <limits.h>
#include <string.h>

/* The source text of an expression if it is short and on one line. */
Str expr_text(Ctx *c, const AstExpr *expr, const char *otherwise) {
  if (!expr || !expr->span.file || expr->span.length > 40) return otherwise;
  Str t = span_text(c, expr->span);
  return strchr(t, '\n') ? otherwise : t;
}

void explain_no_dim(World *w, Span at, Str name) {
  if (world_lost(w, SPACE_DIM)) return;
  const char *near = world_nearest(w, SPACE_DIM, name);
  Report *r = world_error(w, "E0201", at, "no dimension named `%s`", name);
  diag_label(r, "not in any `dims` block of %s", world_file_name(w, at.file));
  uint32_t i = 0;
  for (const Decl *decl; near && (decl = world_next(w, SPACE_DIM, &i));)
    if (!strcmp(decl->name, near)) {
      diag_help(r, "a dimension with a similar name exists: `%s` (%s)", near,
                world_place(w, at, decl->span));
      diag_edit(r, at, "%s", near);
      return;
    }
  diag_help(r, "declare it: `dims { %s = .. }`", name);
}

/* ---- E0301 ---- */

/* A parameter in scope whose dims fit and whose name is nearest. */
static const Binding *fitting(const Env *env, const AstExpr *wrong, const Dims *into) {
  const Binding *best = NULL;
  int nearest = INT_MAX;
  if (wrong->kind != EXPR_NAME) return NULL;
  for (uint32_t i = 0; i < env->vars.n; i++) {
    const Binding *binding = &env->vars.at[i];
    if (binding->val.kind != VAL_FLOAT || !binding->val.dims.n ||
        !dims_subset(&binding->val.dims, into))
      continue;
    int d = diag_distance(binding->name, wrong->name.text);
    if (d < nearest) nearest = d, best = binding;
  }
  return nearest * 3 <= 2 * (int)strlen(wrong->name.text) ? best : NULL;
}

static const char *all_pairs(AstOp op) {
  switch (op) {
  case AST_ADD: return "to add all pairs";
  case AST_SUB: return "to subtract all pairs";
  case AST_MUL: return "to multiply all pairs";
  case AST_DIV: return "to divide all pairs";
  default: return "to compare all pairs";
  }
}

void explain_elementwise(Eval *e, const Env *env, const AstExpr *expr, const Val *a, const Val *b) {
  Ctx *c = e->ctx;
  Report *r = eval_error(e, "E0301", expr->right->span,
                         "`%s` needs one operand to contain all dimensions of the other",
                         ast_op_name(expr->op));
  Dims extra = dims_without(&b->dims, &a->dims);
  Str list = dims_names(c, &extra);
  diag_label(r, "has %s", dims_text(c, &b->dims));
  diag_fact(r, "left operand has %s; %s %s not in %s", dims_text(c, &a->dims), list,
            extra.n > 1 ? "are" : "is", extra.n > 1 ? "it" : "it");
  const Binding *better = fitting(env, expr->right, &a->dims);
  if (better) diag_edit(r, expr->right->span, "%s", better->name);
  if (better)
    diag_help(r, "`%s %s` fits; %s, widen one side: `expand[%s](...)`", better->name,
              dims_text(c, &better->val.dims), all_pairs(expr->op), list);
  else diag_help(r, "%s, widen one side: `expand[%s](...)`", all_pairs(expr->op), list);
}

/* ---- E0302 ---- */

static Str operand_name(Ctx *c, const Call *call, int i) {
  return expr_text(c, call->expr[i], i ? "the right operand" : "the left operand");
}

/* The listed axes with another one in the place of `wrong`. */
static Str axes_with(Ctx *c, const Call *call, Str wrong, Str right) {
  Dims d = call->groups.at[0].from;
  for (int i = 0; i < d.n; i++)
    if (d.at[i] == wrong) d.at[i] = right;
  return dims_names(c, &d);
}

void explain_contract(Eval *e, const Call *call, Str dim) {
  Ctx *c = e->ctx;
  const Val *a = &call->arg[0], *b = &call->arg[1];
  bool in_a = dims_has(&a->dims, dim), in_b = dims_has(&b->dims, dim);
  Span at = call->axes->span;
  const AstGroup *group = &call->axes->groups.at[0];
  for (uint32_t i = 0; i < group->from.n; i++)
    if (group->from.at[i].text == dim || group->from.n == 1) at = group->from.at[i].span;
  Str left = operand_name(c, call, 0), right = operand_name(c, call, 1);
  Report *r = in_a || in_b
                  ? eval_error(e, "E0302", at, "cannot contract `%s`: `%s` does not have it", dim,
                               in_a ? right : left)
                  : eval_error(e, "E0302", at, "cannot contract `%s`: neither operand has it", dim);
  diag_label(r, "%s is %s, %s is %s", left, dims_text(c, &a->dims), right, dims_text(c, &b->dims));
  Dims only_a = dims_without(&a->dims, &b->dims), shared = dims_without(&a->dims, &only_a);
  for (int i = 0; i < call->groups.at[0].from.n; i++) { /* those that are listed already */
    Dims one = {.n = 1, .at = {call->groups.at[0].from.at[i]}};
    if (shared.n > 1) shared = dims_without(&shared, &one);
  }
  bool listed = shared.n == 1 && dims_has(&call->groups.at[0].from, shared.at[0]);
  if (listed) {
    diag_help(r, "leave `%s` out: `dot[%s](%s, %s)`", dim, shared.at[0], left, right);
    diag_edit(r, call->axes->span, "[%s]", shared.at[0]);
  } else if (shared.n == 1) {
    diag_help(r, "the shared dimension is `%s`: `dot[%s](%s, %s)`", shared.at[0],
              axes_with(c, call, dim, shared.at[0]), left, right);
    diag_edit(r, at, "%s", shared.at[0]);
  } else if (shared.n) diag_help(r, "the shared dimensions are %s", dims_names(c, &shared));
  else diag_help(r, "they share no dimension; `outer(%s, %s)` makes all products", left, right);
}

/* split[D -> A, B](x): as the table has it, where the axes are more than one dim. */
static const char *form_of(const char *name) {
  uint32_t n;
  const Operator *table = operator_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    const char *axes = strchr(table[i].form, '[');
    if (!strcmp(table[i].name, name) && axes && memchr(axes, '>', strcspn(axes, "]")))
      return table[i].form;
  }
  return NULL;
}

/* dot(x, w): the axes are missing, and mostly it is clear which. */
void explain_no_axes(Eval *e, const Call *call) {
  Report *r = eval_error(e, "E0204", call->span, "`%s` needs axes in square brackets", call->name);
  const char *form = form_of(call->name);
  Dims shared = {0};
  if (!strcmp(call->name, "dot") && call->n == 2) {
    Dims only = dims_without(&call->arg[0].dims, &call->arg[1].dims);
    shared = dims_without(&call->arg[0].dims, &only);
  }
  Span after = {call->name_span.file, call->name_span.offset + call->name_span.length, 0};
  if (shared.n == 1) {
    diag_help(r, "the shared dimension is `%s`: `dot[%s](..)`", shared.at[0], shared.at[0]);
    diag_edit(r, after, "[%s]", shared.at[0]);
  } else if (form) diag_help(r, "it is written `%s`", form);
  else if (call->n && call->arg[0].dims.n)
    diag_help(r, "for example `%s[%s](..)`", call->name,
              call->arg[0].dims.at[call->arg[0].dims.n - 1]);
  else diag_help(r, "for example `%s[D](..)`", call->name);
}

/* ---- E0303 ---- */

/* dot[Head](q, k): both have Seq, whose `like` Key was wanted. */
static Str matched_axis(Eval *e, Str dim, const AstExpr *expr) {
  const DimInfo *info = sizes_find(e->sizes, dim);
  if (!info || !info->def->like.text || !expr || expr->kind != EXPR_CALL || !expr->axes ||
      strcmp(expr->name.text, "dot"))
    return NULL;
  const AstGroup *group = &expr->axes->groups.at[0];
  for (uint32_t i = 0; i < group->from.n; i++)
    if (group->from.at[i].text == info->def->like.text) return NULL;
  return expr->args.n == 2 ? info->def->like.text : NULL;
}

static void help_crossed(Eval *e, Report *r, Str like, Str dim, const AstExpr *expr) {
  Ctx *c = e->ctx;
  diag_fact(r, "`%s` is in both operands and is not contracted, so it was matched, not crossed",
            like);
  diag_help(r, "give the keys their own axis: `dot%s(%s, rename[%s -> %s](%s))`",
            span_text(c, expr->axes->span), expr_text(c, expr->args.at[0].value, "q"), like, dim,
            expr_text(c, expr->args.at[1].value, "k"));
  diag_edit_around(r, expr->args.at[1].value->span,
                   arena_printf(c->arena, "rename[%s -> %s](", like, dim), ")");
}

/* The axis that was meant: one with a similar name, the other end of a `like`, or the one that the
   index in the second operand addresses. */
static Str meant_axis(Eval *e, const Call *call, Str dim, const Val *x) {
  VEC(const char *) names = {0};
  for (int i = 0; i < x->dims.n; i++) {
    Str have = x->dims.at[i];
    const DimInfo *a = sizes_find(e->sizes, have), *b = sizes_find(e->sizes, dim);
    if (dims_has(&call->groups.at[0].from, have)) continue;
    if ((a && a->def->like.text == dim) || (b && b->def->like.text == have)) return have;
    if (call->n > 1 && call->arg[1].kind == VAL_INDEX && call->arg[1].of == have) return have;
    vec_push(e->arena, names, have);
  }
  return names.n ? diag_nearest(dim, names.at, names.n) : NULL;
}

static bool axis_span(const Call *call, Str dim, Span *out) {
  for (uint32_t g = 0; call->axes && g < call->axes->groups.n; g++)
    for (uint32_t i = 0; i < call->axes->groups.at[g].from.n; i++)
      if (call->axes->groups.at[g].from.at[i].text == dim)
        return *out = call->axes->groups.at[g].from.at[i].span, true;
  return false;
}

static void help_missing(Eval *e, Report *r, const Call *call, Str dim, const Val *x) {
  Ctx *c = e->ctx;
  Str meant = meant_axis(e, call, dim, x);
  Span at;
  bool swapped = call->n > 1 && x->kind == VAL_INDEX && call->arg[1].kind == VAL_FLOAT &&
                 dims_has(&call->arg[1].dims, dim) && call->expr[0] && call->expr[1];
  if (swapped) {
    Str first = expr_text(c, call->expr[1], NULL), second = expr_text(c, call->expr[0], NULL);
    diag_help(r, "the operands are in the other order");
    if (!first || !second) return;
    diag_edit(r, call->expr[0]->span, "%s", first);
    diag_edit(r, call->expr[1]->span, "%s", second);
  } else if (meant && axis_span(call, dim, &at)) {
    diag_help(r, "perhaps `%s` was meant, which it has", meant);
    diag_edit(r, at, "%s", meant);
  }
}

void explain_missing(Eval *e, const Call *call, Str dim, const Val *x, const AstExpr *expr) {
  Ctx *c = e->ctx;
  Span at = expr ? expr->span : call->span;
  Str axes = call->axes ? span_text(c, call->axes->span) : "";
  Report *r = eval_error(e, "E0303", at, "`%s%s` of a tensor without `%s`", call->name, axes, dim);
  Str like = matched_axis(e, dim, expr);
  if (like && dims_has(&x->dims, like)) {
    diag_label(r, "has %s: one score per token, not one per pair", dims_text(c, &x->dims));
    help_crossed(e, r, like, dim, expr);
    return;
  }
  if (x->kind == VAL_INDEX) diag_label(r, "is %s, has %s", kind_text(c, x), dims_text(c, &x->dims));
  else diag_label(r, "has %s", dims_text(c, &x->dims));
  help_missing(e, r, call, dim, x);
}
