/* Statements of bodies, and models: declarations first, then what is computed, in order. */
#include "sema_rule.h"
#include "lower_emit.h"
#include <string.h>

static void assign_several(Eval *e, Env *env, const AstStmt *stmt, const Val *v) {
  int n = v->kind == VAL_LIST ? v->nitems : 1;
  bool any = v->kind == VAL_LIST && v->free; /* an open number of values */
  if (v->kind != VAL_POISON && n != (int)stmt->names.n && !any) {
    Report *r = eval_error(e, "E0204", stmt->value->span, "%u names for %d value%s", stmt->names.n,
                           n, n == 1 ? "" : "s");
    diag_also(r, span_join(stmt->names.at[0].span, stmt->names.at[stmt->names.n - 1].span),
              "these names");
  }
  bool fits = v->kind == VAL_LIST && (any ? n >= (int)stmt->names.n : n == (int)stmt->names.n);
  for (uint32_t i = 0; i < stmt->names.n; i++)
    env_set(e, env, stmt->names.at[i].text, fits ? v->items[i] : val_poison());
  for (uint32_t i = 0; fits && i < stmt->names.n; i++)
    watch_value(e, stmt->names.at[i].span, &v->items[i]);
  for (uint32_t i = 0; fits && i < stmt->names.n; i++)
    lower_assigned(e, stmt->names.at[i].text, &v->items[i]);
}

/* `x = .. @f32`: kept in f32 whatever the plan says. */
static Val keep_wide(Eval *e, const AstAttr *at, const Val *v) {
  if (v->kind == VAL_LIST) {
    Val list = *v, *items = ARENA_ARRAY(e->arena, Val, v->nitems + 1);
    for (int i = 0; i < v->nitems; i++) items[i] = keep_wide(e, at, &v->items[i]);
    list.items = items;
    return list;
  }
  if (v->kind == VAL_POISON || v->kind == VAL_NUMBER || v->known) return *v;
  if (!val_is_real(v)) {
    Report *r =
        eval_error(e, "E0201", at->name.span, "`@f32` does not apply to %s", kind_text(e->ctx, v));
    diag_help(r, "it keeps floats in f32; leave it out");
    return val_poison();
  }
  Val out = val_tensor(VAL_FLOAT, v->dims);
  lower_op(e, &out, 1, OP_wide, 1, &v, 0, NULL);
  return out;
}

static void assign_attrs(Eval *e, const AstStmt *stmt, Val *v) {
  for (uint32_t i = 0; i < stmt->attrs.n; i++)
    if (!strcmp(stmt->attrs.at[i].name.text, "f32")) *v = keep_wide(e, &stmt->attrs.at[i], v);
    else {
      Report *r = eval_error(e, "E0201", stmt->attrs.at[i].name.span,
                             "no attribute `@%s` of a value", stmt->attrs.at[i].name.text);
      if (!strcmp(stmt->attrs.at[i].name.text, "nodecay") ||
          !strcmp(stmt->attrs.at[i].name.text, "frozen"))
        diag_help(r, "a value can be marked `@f32`; `@nodecay` and `@frozen` belong to parameters");
      else diag_help(r, "the product of matrices is `dot[D](a, b)`: D is summed");
      *v = val_poison();
    }
}

static void eval_assign(Eval *e, Env *env, const AstStmt *stmt) {
  Val v = eval_expr(e, env, stmt->value);
  assign_attrs(e, stmt, &v);
  if (stmt->names.n == 1) watch_value(e, stmt->names.at[0].span, &v);
  if (stmt->names.n > 1) assign_several(e, env, stmt, &v);
  else env_set(e, env, stmt->names.at[0].text, v), lower_assigned(e, stmt->names.at[0].text, &v);
}

/* One number, or E0309. */
static bool one_number(Eval *e, const AstStmt *stmt, const Val *v, const char *word) {
  if (v->kind == VAL_POISON) return false;
  if (val_is_real(v) && !v->dims.n) return true;
  Report *r = eval_error(e, "E0309", stmt->value->span, "`%s` takes one number", word);
  if (!val_is_real(v)) diag_label(r, "is %s", kind_text(e->ctx, v));
  else {
    diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
    diag_help(r, "take its mean: `mean[*](..)`");
    diag_edit_around(r, stmt->value->span, "mean[*](", ")");
  }
  return false;
}

static void eval_aux(Eval *e, Env *env, const AstStmt *stmt) {
  Val v = eval_expr(e, env, stmt->value);
  if (one_number(e, stmt, &v, "aux")) lower_term(e, &v);
}

static void misplaced(Eval *e, const AstStmt *stmt, const char *word, const char *where) {
  Report *r = eval_error(e, !strcmp(word, "loss") ? "E0309" : "E0204", stmt->word,
                         "`%s` is not allowed here", word);
  diag_label(r, "only %s has one", where);
  if (stmt->kind == STMT_RETURN)
    diag_help(r, "a model names its values, shows them with `output`, and ends with `loss`");
}

static bool in_layer(const Eval *e) { return e->site && e->site->decl->space == SPACE_LAYER; }

static void body_statement(Eval *e, Env *env, const AstStmt *stmt) {
  switch (stmt->kind) {
  case STMT_ASSIGN: eval_assign(e, env, stmt); break;
  case STMT_AUX:
    if (in_layer(e)) eval_aux(e, env, stmt);
    else misplaced(e, stmt, "aux", "a layer or model");
    break;
  case STMT_UPDATE:
  case STMT_PROJECT:
    if (in_layer(e)) rule_meet(e, env, stmt);
    else misplaced(e, stmt, rule_word(stmt), "a layer or model");
    break;
  case STMT_PARAM:
  case STMT_SUB:
  case STMT_STACK:
    if (!in_layer(e))
      misplaced(e, stmt,
                stmt->kind == STMT_PARAM ? "param"
                : stmt->kind == STMT_SUB ? "sub"
                                         : "stack",
                "a layer or model");
    break;
  case STMT_INPUT: misplaced(e, stmt, "input", "a model"); break;
  case STMT_OUTPUT: misplaced(e, stmt, "output", "a model"); break;
  case STMT_LOSS: misplaced(e, stmt, "loss", "a model"); break;
  case STMT_RETURN: break;
  }
}

/* ---- what some statements need of those before them ---- */

void eval_names(NameMap *out, const AstExpr *x) {
  if (!x) return;
  if (x->name.text) names_put(out, 0, x->name.text, 1);
  for (uint32_t i = 0; i < x->args.n; i++) eval_names(out, x->args.at[i].value);
  eval_names(out, x->base);
  eval_names(out, x->index);
  eval_names(out, x->left);
  eval_names(out, x->right);
}

static bool wanted(const NameMap *names, const AstStmt *stmt) {
  uint32_t one;
  for (uint32_t i = 0; i < stmt->names.n; i++)
    if (names_find(names, 0, stmt->names.at[i].text, &one)) return true;
  return false;
}

/* By statement: is it of one of the kinds `ends` (bits 1 << AstStmtKind), or assigned what they
   need? */
static bool *needed_statements(Eval *e, const AstStmts *body, unsigned ends) {
  bool *need = ARENA_ARRAY(e->arena, bool, body->n + 1);
  NameMap *names = names_new(e->arena);
  for (uint32_t i = body->n; i-- > 0;) {
    const AstStmt *stmt = body->at[i];
    need[i] = ends >> stmt->kind & 1 || (stmt->kind == STMT_ASSIGN && wanted(names, stmt));
    if (!need[i]) continue;
    eval_names(names, stmt->value);
    for (uint32_t k = 0; stmt->kind == STMT_OUTPUT && k < stmt->names.n; k++)
      names_put(names, 0, stmt->names.at[k].text, 1);
  }
  return need;
}

/* The last line assigns what was meant as the result. */
static void help_return(Report *r, const AstStmts *body) {
  const AstStmt *last = body->n ? body->at[body->n - 1] : NULL;
  if (!last || last->kind != STMT_ASSIGN || last->names.n != 1 || !last->value) {
    diag_help(r, "end it with `return ..`");
    return;
  }
  Span name = last->names.at[0].span;
  diag_also(r, name, "the last line");
  diag_help(r, "return it instead of assigning `%s`", last->names.at[0].text);
  diag_edit(r, (Span){name.file, name.offset, last->value->span.offset - name.offset}, "return ");
}

static void after_return(Eval *e, const AstStmt *stmt, const AstStmt *next) {
  Report *r = eval_error(e, "E0204", next->names.n ? next->names.at[0].span : next->word,
                         "nothing is computed after `return`");
  diag_also(r, stmt->word, "the body ends with this line");
}

/* False: no value was returned. A body whose value is unused uses no parameter, except by its `aux`
   lines. */
static bool walk_body(Eval *e, Env *env, const AstStmts *body, Span *returned, Val *v) {
  unsigned ends = 1u << STMT_AUX | RULE_LINES | (e->idle ? 0 : 1u << STMT_RETURN);
  bool *need = e->mode == MODE_CHECK ? needed_statements(e, body, ends) : NULL;
  *v = val_poison();
  for (uint32_t i = 0; i < body->n; i++) {
    const AstStmt *stmt = body->at[i];
    e->idle = need && !need[i];
    if (stmt->kind == STMT_RETURN) {
      if (stmt->value) *returned = stmt->value->span;
      *v = eval_expr(e, env, stmt->value);
      if (i + 1 < body->n) after_return(e, stmt, body->at[i + 1]);
      return true;
    }
    body_statement(e, env, stmt);
    if (diag_full(e->ctx->diag)) return true;
  }
  return false;
}

Val eval_body(Eval *e, Env *env, const AstStmts *body, Span *returned) {
  bool idle = e->idle;
  Val v;
  bool done = walk_body(e, env, body, returned, &v);
  e->idle = idle;
  if (done) return v;
  const Decl *decl = e->site ? e->site->decl : NULL;
  if (decl && !decl->item->bad) {
    Report *r = eval_error(e, "E0304", decl->span, "`%s` has no `return`", decl->name);
    diag_label(r, "its body ends without a result");
    help_return(r, body);
  }
  return val_poison();
}

/* ---- models ---- */

static void declare_input(Eval *e, Env *env, const AstStmt *stmt) {
  Val t;
  bool ok = type_resolve(e, env, stmt->type, &t);
  Str twice = dims_repeated(&t.dims);
  if (twice)
    diag_help(eval_error(e, "E0203", stmt->type->span, "an input has dimension `%s` twice", twice),
              "a second axis of the same length is another dimension: `dims { Other like %s }`",
              twice);
  if (t.dims.n > MAX_RANK)
    ok = false, eval_error(e, "E0204", stmt->type->span, "more than %d dimensions", MAX_RANK);
  for (int k = 0; ok && k < t.dims.n; k++) {
    if (t.dims.at[k][0] == '*')
      ok = false, eval_error(e, "E0204", stmt->type->span,
                             "`*` is allowed in types of layers "
                             "only");
    else eval_size(e, t.dims.at[k]);
  }
  for (uint32_t i = 0; i < stmt->names.n; i++) {
    Input *in = ARENA_NEW(e->arena, Input);
    in->name = stmt->names.at[i].text, in->type = t, in->span = stmt->names.at[i].span;
    Val v = ok && !twice ? t : val_poison();
    v.input = in;
    if (env_find(env, in->name))
      eval_error(e, "E0203", in->span, "`%s` is declared twice in this body", in->name);
    vec_push(e->arena, e->inputs, in);
    watch_value(e, in->span, &v);
    env_set(e, env, in->name, v);
  }
}

static void set_loss(Eval *e, Env *env, const AstStmt *stmt) {
  Val v = eval_expr(e, env, stmt->value);
  if (e->has_loss)
    diag_edit(eval_error(e, "E0309", stmt->word, "a model has one `loss`; further terms are `aux`"),
              stmt->word, "aux");
  e->has_loss = true;
  if (!one_number(e, stmt, &v, "loss")) v = val_poison();
  e->loss = v;
  if (stmt->value) e->loss_span = stmt->value->span;
}

static void note_outputs(Eval *e, Env *env, const AstStmt *stmt) {
  for (uint32_t i = 0; i < stmt->names.n; i++) {
    const AstName *name = &stmt->names.at[i];
    const Val *v = env_find(env, name->text);
    if (!v || v->kind == VAL_SUB || (v->kind != VAL_POISON && !val_is_tensor(v))) {
      Report *r = eval_error(e, v ? "E0402" : "E0201", name->span,
                             v ? "`%s` is no value: only values can be shown"
                               : "no value named `%s` is "
                                 "defined",
                             name->text);
      VEC(const char *) names = {0};
      for (uint32_t k = 0; k < env->vars.n; k++)
        if (val_is_tensor(&env->vars.at[k].val)) vec_push(e->arena, names, env->vars.at[k].name);
      const char *near = !v && names.n ? diag_nearest(name->text, names.at, names.n) : NULL;
      if (near) diag_near(r, "a value", near);
      else if (!v) diag_help(r, "`output` comes after the line that computes it");
      continue;
    }
    vec_push(e->arena, e->outputs, (ModelOutput){name->text, name->span, *v});
  }
}

static void model_statement(Eval *e, Env *env, const AstStmt *stmt) {
  switch (stmt->kind) {
  case STMT_ASSIGN: eval_assign(e, env, stmt); break;
  case STMT_AUX: eval_aux(e, env, stmt); break;
  case STMT_UPDATE:
  case STMT_PROJECT: rule_meet(e, env, stmt); break;
  case STMT_LOSS: set_loss(e, env, stmt); break;
  case STMT_OUTPUT: note_outputs(e, env, stmt); break;
  case STMT_RETURN: misplaced(e, stmt, "return", "a layer or function"); break;
  default: break;
  }
}

static void warn_unused(Eval *e) {
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *p = e->params.at[i];
    if (p->used || p->frozen) continue;
    const char *why = p->seen ? "what uses it is not used" : "nothing uses it";
    world_warn(e->w, "W0501", p->span,
               arena_printf(e->arena, "parameter `%s` gets no gradient: %s", p->path, why), NULL);
  }
}

void eval_model(Eval *e, const AstItem *model) {
  Env env = {0};
  const AstStmts *body = &model->body;
  e->loss = val_poison(), e->updated = rule_names(e, body);
  for (uint32_t i = 0; i < body->n; i++)
    if (body->at[i]->kind == STMT_INPUT) declare_input(e, &env, body->at[i]);
  for (uint32_t i = 0; i < body->n; i++)
    if (stmt_declares(body->at[i])) eval_declare(e, &env, body->at[i]);
  unsigned ends = 1u << STMT_OUTPUT;
  if (e->mode != MODE_LOGITS) ends |= 1u << STMT_LOSS | 1u << STMT_AUX | RULE_LINES;
  bool *need = needed_statements(e, body, ends);
  for (uint32_t i = 0; i < body->n && !diag_full(e->ctx->diag); i++) {
    e->idle = !need[i];
    if (need[i] || e->mode != MODE_LOGITS) model_statement(e, &env, body->at[i]);
  }
  e->idle = false;
  rules_close(e);
  if (e->mode == MODE_CHECK) warn_unused(e);
  if (e->has_loss || model->bad || e->mode == MODE_LOGITS || diag_full(e->ctx->diag)) return;
  Report *r =
      eval_error(e, "E0309", model->name.span, "model `%s` has no `loss`", model->name.text);
  diag_help(r, "end it with `loss ..`, one number to make small");
}
