/* Rules of states: `update NAME = value` gives a parameter of the same body the value that it has
   after the step. Such a parameter has no gradient, and no optimizer updates it.

   The rule is evaluated once per step, after the model, in the entry and not in the body of a loop:
   so it may read sums over all samples through any operator. In a stack a rule is one for all
   rounds: states and values get the dim of the stack, which `*` leaves out. Values that a
   rule reads leave the loops as stacked results (rules_leave). The new value is stored to the
   output MADE_NEXT NAME, from which pass `optimizer` takes it as it takes gradients. Entries that
   do not train have no rules.

   `project NAME = value` is a rule of a parameter that is trained: `value` reads it as the
   optimizer has just written it, and nothing else. It is lowered as a rule of a state, of the
   parameter before the step, to the output MADE_PROJECTED NAME; pass `optimizer` repeats these ops
   on the updated value. A layer that is called twice has one such rule; a parameter of a frozen
   sub is never updated and has none. */
#include "build.h"
#include "lower_emit.h"
#include "sema_rule.h"
#include <string.h>

struct Rule {
  Param *param;
  const AstStmt *stmt;
  Env env;              /* of the body, values of rounds stacked once their loops have ended */
  VEC(Val *) delivered; /* of env: values that the rule reads and a body computes */
  int depth;            /* stacks whose rounds have not ended */
  const Site *site;
  const Instance *self;
};

const char *rule_word(const AstStmt *stmt) {
  return stmt->kind == STMT_PROJECT ? "project" : "update";
}

const NameMap *rule_names(Eval *e, const AstStmts *body) {
  NameMap *names = NULL;
  for (uint32_t i = 0; i < body->n; i++) {
    if (!(RULE_LINES >> body->at[i]->kind & 1)) continue;
    if (!names) names = names_new(e->arena);
    names_put(names, 0, body->at[i]->names.at[0].text, (uint32_t)body->at[i]->kind);
  }
  return names;
}

static void refuse_attr(Eval *e, const Param *param, const AstAttr *attr) {
  const char *name = param->decl->names.at[0].text, *word = attr->name.text;
  Report *r = eval_error(e, "E0204", attr->span, "`%s` has %s line and is `@%s`", name,
                         param->projected ? "a `project`" : "an `update`", word);
  if (param->projected)
    diag_help(r, "`project` changes what the optimizer has updated: leave one of both out");
  else diag_help(r, "its `update` line alone changes it: leave `@%s` out", word);
  diag_edit(r, attr->span, "%s", "");
}

/* A state: no optimizer updates it. A parameter that is projected is one that is trained. */
void rule_declare(Eval *e, Param *param) {
  const AstName *name = &param->decl->names.at[0];
  uint32_t kind;
  if (!e->updated || !names_find(e->updated, 0, name->text, &kind)) return;
  param->ruled = kind == STMT_UPDATE, param->projected = kind == STMT_PROJECT;
  const AstAttrs *attrs = &param->decl->attrs;
  for (uint32_t i = 0; i < attrs->n; i++) {
    const char *word = attrs->at[i].name.text;
    if (!strcmp(word, "f32") || (param->projected && strcmp(word, "frozen") != 0)) continue;
    refuse_attr(e, param, &attrs->at[i]);
  }
  param->frozen |= param->ruled;
}

/* ---- where the line is ---- */
static Param *param_of(Eval *e, const Env *env, const AstStmt *stmt) {
  const AstName *name = &stmt->names.at[0];
  const Val *v = env_find(env, name->text);
  if (v && v->kind == VAL_POISON) return NULL;
  Param *param = v ? v->param : NULL;
  if (!param || !(param->ruled || param->projected) ||
      param->decl->names.at[0].text != name->text) {
    Report *r = eval_error(e, "E0201", name->span, "no parameter `%s` is declared in this body",
                           name->text);
    diag_help(r, "`%s` gives a parameter of the same layer or model its next value",
              rule_word(stmt));
    return NULL;
  }
  for (uint32_t i = 0; i < e->rules.n; i++) {
    if (e->rules.at[i]->param != param) continue;
    bool line = e->rules.at[i]->stmt != stmt;
    if (!line && param->projected) return NULL;
    Report *r = eval_error(e, "E0203", name->span, "`%s` is updated twice in a step", name->text);
    if (line) diag_also(r, e->rules.at[i]->stmt->word, "here as well");
    else diag_label(r, "the layer is called twice");
    return NULL;
  }
  return param;
}

static bool may_leave(Eval *e, const Rule *rule, const Binding *var) {
  const Span at = rule->stmt->value->span;
  if (rule->param->projected) {
    Report *r = eval_error(e, "E0402", at, "`project %s` cannot read `%s`",
                           rule->stmt->names.at[0].text, var->name);
    diag_label(r, "reads only `%s`, as the optimizer has just written it",
               rule->stmt->names.at[0].text);
    diag_help(r, "write it as a function of `%s`, numbers and constants, in one line",
              rule->stmt->names.at[0].text);
    return false;
  }
  if (var->val.rounds) {
    eval_error(e, "E0402", at, "a rule cannot read `%s`, which differs by round", var->name);
    return false;
  }
  if (!rule->depth || !dims_has(&var->val.dims, intern(e->ctx->names, "Batch"))) return true;
  Report *r = eval_error(e, "E0402", at, "a rule in a stack reads no value with dimension Batch");
  diag_label(r, "`%s` has %s", var->name, dims_text(e->ctx, &var->val.dims));
  diag_help(r, "sum it on a line before: `count = sum[Batch, ..](..)`");
  return false;
}

/* The entry has it: a parameter of the body, or outside of stacks an input. */
static bool is_global(const Rule *rule, const Val *v) {
  if (v->rounds) return false;
  return v->param ? v->param->lead.n == rule->depth : v->input && !rule->depth;
}

/* The names of the body as they are now; of those that the rule reads, the values to deliver. */
static bool take_names(Eval *e, Rule *rule, const Env *env) {
  NameMap *names = names_new(e->arena);
  uint32_t one;
  eval_names(names, rule->stmt->value);
  rule->env = (Env){.axes = env->axes, .std = env->std};
  for (uint32_t i = 0; i < env->vars.n; i++) vec_push(e->arena, rule->env.vars, env->vars.at[i]);
  for (uint32_t i = 0; i < rule->env.vars.n; i++) {
    Binding *var = &rule->env.vars.at[i];
    if (env_find(&rule->env, var->name) != &var->val || !names_find(names, 0, var->name, &one))
      continue;
    if (!val_is_tensor(&var->val) || var->val.kind == VAL_NUMBER || var->val.known) continue;
    if (rule->param->projected ? var->val.param == rule->param : is_global(rule, &var->val))
      continue;
    if (!may_leave(e, rule, var)) return false;
    if (!e->build) var->val.param = NULL, var->val.input = NULL;
    vec_push(e->arena, rule->delivered, &var->val);
  }
  return true;
}

/* Sites live as long as the walk of their body. */
static const Site *kept_site(Eval *e, const Site *site) {
  if (!site) return NULL;
  Site *kept = ARENA_NEW(e->arena, Site);
  *kept = *site, kept->up = kept_site(e, site->up);
  return kept;
}

void rule_meet(Eval *e, const Env *env, const AstStmt *stmt) {
  if (e->mode != MODE_CHECK && e->mode != MODE_STEP) return;
  Param *param = param_of(e, env, stmt);
  if (!param || (param->projected && param->frozen)) return;
  Rule *rule = ARENA_NEW(e->arena, Rule);
  *rule = (Rule){.param = param,
                 .stmt = stmt,
                 .depth = e->running.n,
                 .site = kept_site(e, e->site),
                 .self = e->self};
  if (take_names(e, rule, env)) vec_push(e->arena, e->rules, rule);
}

/* ---- the end of a loop ---- */
void rules_leave(Eval *e, Str dim, RuleValues *out) {
  *out = (RuleValues){0};
  for (uint32_t i = 0; i < e->rules.n; i++) {
    Rule *rule = e->rules.at[i];
    if (rule->depth <= e->running.n) continue;
    rule->depth = e->running.n;
    for (uint32_t k = 0; k < rule->delivered.n; k++) {
      Val *v = rule->delivered.at[k];
      Dims dims = {.n = 1, .at = {dim}};
      for (int j = 0; j < v->dims.n; j++) dims_add(&dims, v->dims.at[j]);
      vec_push(e->arena, *out, ((RuleValue){v, dims}));
      if (!e->build) v->dims = dims;
    }
  }
}

bool rule_refuses(Eval *e, Span layer) {
  if (!e->ruled) return false;
  diag_help(eval_error(e, "E0204", layer, "a rule calls no layer"),
            "name its result on a line before");
  return true;
}

bool rule_draws(Eval *e, Span call) {
  if (!e->projects) return false;
  eval_error(e, "E0204", call, "`project` draws no random numbers");
  return true;
}

bool rule_of_layer(Eval *e, const Dims *dims, Span at) {
  for (int i = 0; e->projects && i < dims->n; i++) {
    if (!dims_has(e->ruled, dims->at[i])) continue;
    Report *r =
        eval_error(e, "E0402", at, "`project` over `%s`, the layers of its stack", dims->at[i]);
    diag_help(r, "the line is about the parameter of one layer");
    return false;
  }
  return true;
}

/* ---- the end of the model ---- */
Val rule_view(const Eval *e, const Val *v) {
  Val all = *v;
  if (!e->ruled || !v->param) return all;
  all.dims = v->param->lead;
  for (int i = 0; i < v->param->dims.n; i++) dims_add(&all.dims, v->param->dims.at[i]);
  return all;
}

static bool fits(Eval *e, const Rule *rule, const Val *v, const Dims *want) {
  if (v->kind == VAL_POISON) return false;
  if (val_is_real(v) && dims_subset(&v->dims, want)) return true;
  Report *r = eval_error(e, "E0304", rule->stmt->value->span, "`%s` is declared with %s",
                         rule->stmt->names.at[0].text, dims_text(e->ctx, want));
  if (val_is_real(v)) diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  else diag_label(r, "is %s", kind_text(e->ctx, v));
  return false;
}

static void close_rule(Eval *e, Rule *rule) {
  Val state = val_tensor(VAL_FLOAT, (Dims){0});
  const Param before = *rule->param;
  state.param = rule->param, e->projects = rule->param->projected;
  e->ruled = &rule->param->lead, e->site = rule->site, e->self = rule->self;
  state = rule_view(e, &state);
  Val v = eval_expr(e, &rule->env, rule->stmt->value);
  e->here = rule->stmt->value->span;
  if (fits(e, rule, &v, &state.dims) && e->build) {
    v = lower_widened(e, &v, &state.dims);
    lower_next(e, rule->param, &v);
  }
  e->ruled = NULL, e->site = NULL, e->self = NULL;
  if (e->projects) { /* none of the reads that gradients, adapters and warnings are about */
    rule->param->used = before.used;
    rule->param->uses = before.uses, rule->param->products = before.products;
  }
  e->projects = false;
}

void rules_close(Eval *e) {
  if (diag_full(e->ctx->diag)) return;
  for (uint32_t i = 0; i < e->rules.n; i++) close_rule(e, e->rules.at[i]);
}

const AstStmt *rule_line(const Eval *e, AstStmtKind kind) {
  for (uint32_t i = 0; i < e->rules.n; i++)
    if (e->rules.at[i]->stmt->kind == kind) return e->rules.at[i]->stmt;
  return NULL;
}
