/* Layers. `sub` and `stack` make instances: parameters with their paths, options, and the subs
   inside. Calling an instance walks its body with the operands; calling it twice shares the
   parameters. The result of a body is compared with the declaration of the layer, and a dim that
   got a prime inside of the body loses it. */
#include "frontend/syntax/foreign_words.h"
#include "sema_rule.h"
#include "lower_emit.h"
#include <string.h>

/* ---- parameters ---- */

static bool check_init(Eval *e, const AstStmt *stmt, const Val *v) {
  if (v->kind == VAL_POISON) return false;
  bool number = v->kind == VAL_NUMBER || (v->kind == VAL_FLOAT && v->rounds);
  if (stmt->random ? v->kind == VAL_INIT : number || v->kind == VAL_NONE) return true;
  Report *r = eval_error(e, "E0402", stmt->value->span, "the initial value of `%s` cannot be %s %s",
                         stmt->names.at[0].text, kind_text(e->ctx, v),
                         stmt->random ? "after `~`" : "after `=`");
  if (stmt->random)
    diag_help(r, "an initialiser, such as `normal(0.02)`, follows `~`; a constant follows `=`");
  else
    diag_help(r, "a number or `none` follows `=`; an initialiser such as `normal(0.02)` follows "
                 "`~`");
  return false;
}

static Span reader_span(const Eval *e, Span own) {
  Span s = own;
  for (const Site *site = e->site; site && site->decl->std; site = site->up) s = site->span;
  return s;
}

static bool param_dims(Eval *e, const Env *env, const AstStmt *stmt, Dims *out) {
  if (stmt->axes->groups.n != 1 || stmt->axes->groups.at[0].arrow)
    return eval_error(e, "E0204", stmt->axes->span, "a parameter has one list of dimensions"),
           false;
  if (!dims_resolve(e, env, &stmt->axes->groups.at[0].from, out)) return false;
  for (int i = 0; i < out->n; i++)
    if (!strcmp(out->at[i], "Batch"))
      return eval_error(e, "E0204", stmt->axes->span,
                        "`%s` has dimension Batch: a parameter is one "
                        "for all samples",
                        stmt->names.at[0].text),
             false;
  Str twice = dims_repeated(out);
  for (int i = 0; i < out->n; i++)
    if (dims_has(&e->lead, out->at[i])) {
      Report *r =
          eval_error(e, "E0203", stmt->axes->span, "`%s` has the dimension `%s` of its stack",
                     stmt->names.at[0].text, out->at[i]);
      diag_fact(r, "one is stored per round already: `[%s, ..]`", out->at[i]);
      return false;
    }
  if (!twice) return true;
  Report *r = eval_error(e, "E0203", stmt->axes->span, "`%s` has dimension `%s` twice",
                         stmt->names.at[0].text, twice);
  diag_help(r, "a second axis of the same length is another dimension: `dims { Other like %s }`",
            twice);
  return false;
}

static void declare_param(Eval *e, Env *env, const AstStmt *stmt) {
  Dims dims;
  Val poison = val_poison();
  bool ok = param_dims(e, env, stmt, &dims);
  Val init = eval_expr(e, env, stmt->value);
  if (!check_init(e, stmt, &init) || !ok) {
    env_set(e, env, stmt->names.at[0].text, poison);
    return;
  }
  if (init.kind == VAL_NONE) {
    init.known = true; /* an absent parameter: terms with it vanish */
    env_set(e, env, stmt->names.at[0].text, init);
    return;
  }
  Param *param = ARENA_NEW(e->arena, Param);
  param->path = intern_printf(e->ctx->names, "%s%s", e->path, stmt->names.at[0].text);
  param->dims = dims, param->lead = e->lead, param->init = init, param->decl = stmt,
  param->span = reader_span(e, stmt->names.at[0].span);
  eval_is_short(e, param->path, param->span);
  attrs_of_param(e, &stmt->attrs, param), adapt_param(e, param), rule_declare(e, param);
  vec_push(e->arena, e->params, param);
  for (int i = 0; i < dims.n; i++) eval_size(e, dims.at[i]);
  eval_is_countable(e, &dims, &param->lead, stmt->axes->span, "a parameter");
  if (dims.n + param->lead.n > MAX_RANK)
    eval_error(e, "E0204", stmt->axes->span,
               "a parameter of more than %d dimensions, those of its stacks included", MAX_RANK);
  Val v = val_tensor(VAL_FLOAT, dims);
  v.param = param;
  env_set(e, env, stmt->names.at[0].text, v);
}

/* ---- instances ---- */

static const Decl *find_layer(Eval *e, const Env *env, const AstName *name) {
  const Decl *decl = world_find(e->w, SPACE_LAYER, name->text, env->std);
  if (decl) return decl;
  if (world_lost(e->w, SPACE_LAYER) ||
      world_misses_library(e->w, SPACE_LAYER, name->span, name->text))
    return NULL;
  Report *r = eval_error(e, "E0201", name->span, "no layer named `%s`", name->text);
  VEC(const char *) layers = {0};
  uint32_t at = 0;
  for (const Decl *other; (other = world_next(e->w, SPACE_LAYER, &at));)
    vec_push(e->arena, layers, other->name);
  const char *foreign = layers.n ? foreign_name(name->text, layers.at, layers.n) : NULL;
  const char *said = foreign_text(FOREIGN_LAYER, name->text);
  if (foreign) {
    diag_help(r, "this is written `%s`", foreign);
    diag_edit(r, name->span, "%s", foreign);
  } else if (said) diag_help(r, "%s", said);
  else diag_near(r, "a layer", world_nearest(e->w, SPACE_LAYER, name->text));
  return NULL;
}

typedef struct Given { /* one evaluated option */
  const AstOption *ast;
  Val val;
  bool used;
} Given;

static const Val *given_value(Given *given, uint32_t n, Str name) {
  for (uint32_t i = 0; i < n; i++)
    if (given[i].ast->name.text == name) return given[i].used = true, &given[i].val;
  return NULL;
}

static void set_options(Eval *e, Instance *instance, Given *given, uint32_t n) {
  const AstOptions *options = &instance->layer->item->with;
  for (uint32_t k = 0; k < options->n; k++) {
    const Val *v = given_value(given, n, options->at[k].name.text);
    Val val = v ? *v : eval_expr(e, &instance->env, options->at[k].value);
    eval_notes_option(e, instance, options->at[k].name.text, &val);
    env_set(e, &instance->env, options->at[k].name.text, val);
  }
}

bool stmt_declares(const AstStmt *stmt) {
  return stmt->kind == STMT_PARAM || stmt->kind == STMT_SUB || stmt->kind == STMT_STACK;
}

static void declare_body(Eval *e, Instance *instance) {
  const AstStmts *body = &instance->layer->item->body;
  const NameMap *outer = e->updated;
  e->updated = rule_names(e, body);
  for (uint32_t k = 0; k < body->n; k++)
    if (stmt_declares(body->at[k])) eval_declare(e, &instance->env, body->at[k]);
  e->updated = outer;
}

/* `where`: what the user wrote to make it. */
static Instance *make_instance(Eval *e, const Decl *decl, const AxisGroups *axes, Given *given,
                               uint32_t n, Str path, Span where) {
  if (decl->item->bad || eval_inside(e, decl, where)) return NULL;
  Instance *instance = ARENA_NEW(e->arena, Instance);
  if (!decl->std) names_put(e->w->walked, 0, decl->name, 1);
  instance->layer = decl, instance->path = path, instance->span = where,
  instance->env.std = decl->std;
  if (!axes_bind(e, decl->item->axes, axes, where, decl->name, true, &instance->env.axes))
    return NULL;
  Site site = {decl, where, e->site};
  Str outer = e->path;
  e->site = &site, e->path = path;
  set_options(e, instance, given, n);
  declare_body(e, instance);
  e->site = site.up, e->path = outer;
  return instance;
}

/* Options that no layer took. `decl`: the layer, where there is only one. */
static void check_given(Eval *e, const Given *given, uint32_t n, const Decl *decl, Str layer) {
  for (uint32_t i = 0; i < n; i++) {
    if (given[i].used) continue;
    VEC(const char *) names = {0};
    const AstOptions *has = decl ? &decl->item->with : NULL;
    for (uint32_t k = 0; has && k < has->n; k++) vec_push(e->arena, names, has->at[k].name.text);
    Report *r = eval_error(e, "E0601", given[i].ast->name.span, "`%s` has no option `%s`", layer,
                           given[i].ast->name.text);
    diag_label(r, "unknown option");
    if (has && has->n) diag_fact(r, "its options: %s", diag_list(e->arena, names.at, names.n));
    else if (has) diag_fact(r, "it has no options");
    const char *wrong = given[i].ast->name.text, *said = foreign_text(FOREIGN_CODE, wrong);
    if (said) diag_help(r, "%s", said);
    else diag_near(r, "an option", names.n ? foreign_or_near(wrong, names.at, names.n) : NULL);
  }
}

static Given *read_options(Eval *e, Env *env, const AstOptions *with) {
  Given *given = ARENA_ARRAY(e->arena, Given, with->n + 1);
  for (uint32_t i = 0; i < with->n; i++)
    given[i] = (Given){&with->at[i], eval_expr(e, env, with->at[i].value), false};
  return given;
}

static Val sub_value(Instance *instance) {
  return instance ? (Val){.kind = VAL_SUB, .sub = instance, .id = NO_VALUE} : val_poison();
}

static void declare_sub(Eval *e, Env *env, const AstStmt *stmt) {
  AxisGroups axes;
  Str name = stmt->names.at[0].text;
  const Decl *decl = find_layer(e, env, &stmt->of.at[0]);
  Given *given = read_options(e, env, &stmt->with);
  bool ok = axes_resolve(e, env, stmt->axes, &axes);
  Instance *instance = NULL;
  if (decl && ok)
    instance =
        make_instance(e, decl, &axes, given, stmt->with.n,
                      intern_printf(e->ctx->names, "%s%s.", e->path, name), stmt->of.at[0].span);
  if (instance) instance->name = name, check_given(e, given, stmt->with.n, decl, decl->name);
  env_set(e, env, name, sub_value(instance));
}

/* ---- stacks ---- */

static bool stack_dim(Eval *e, const Env *env, const AstStmt *stmt, Str *dim) {
  Dims dims;
  if (!dims_resolve(e, env, &stmt->axes->groups.at[0].from, &dims)) return false;
  if (stmt->axes->groups.n != 1 || dims.n != 1 || stmt->axes->groups.at[0].arrow)
    return eval_error(e, "E0204", stmt->axes->span, "a stack has one dimension"), false;
  if (dims_has(&e->lead, dims.at[0]))
    return eval_error(e, "E0203", stmt->axes->span,
                      "a stack around this one has dimension `%s` already", dims.at[0]),
           false;
  *dim = dims.at[0];
  eval_size(e, dims.at[0]);
  return true;
}

static bool fill_stack(Eval *e, Env *env, const AstStmt *stmt, Stack *stack, Given *given) {
  bool ok = true;
  stack->body = ARENA_ARRAY(e->arena, Instance *, stmt->of.n);
  for (; stack->n < stmt->of.n; stack->n++) {
    const Decl *decl = find_layer(e, env, &stmt->of.at[stack->n]);
    Str path = intern_printf(e->ctx->names, "%s%s.*.", e->path, stack->name);
    if (stmt->of.n > 1) path = intern_printf(e->ctx->names, "%s%u.", path, stack->n);
    AxisGroups axes;
    bool resolved = axes_resolve(e, env, stmt->of_axes.at[stack->n], &axes);
    Instance *instance = decl && resolved ? make_instance(e, decl, &axes, given, stmt->with.n, path,
                                                          stmt->of.at[stack->n].span)
                                          : NULL;
    stack->body[stack->n] = instance;
    if (instance) instance->name = stmt->of.at[stack->n].text;
    ok &= instance != NULL;
  }
  return ok;
}

static void declare_stack(Eval *e, Env *env, const AstStmt *stmt) {
  Stack *stack = ARENA_NEW(e->arena, Stack);
  Instance *instance = ARENA_NEW(e->arena, Instance);
  Str name = stmt->names.at[0].text;
  stack->name = name, stack->span = stmt->span, stack->outer = e->stack,
  stack->depth = e->stack ? e->stack->depth + 1 : 1;
  Given *given = read_options(e, env, &stmt->with);
  if (!stack_dim(e, env, stmt, &stack->dim)) {
    env_set(e, env, name, val_poison());
    return;
  }
  for (uint32_t o = 0; o < stmt->with.n; o++)
    rounds_option(e, &given[o].val, given[o].ast->name.text, given[o].ast->value->span, stack);
  const Stack *outer = e->stack;
  e->stack = stack, dims_add(&e->lead, stack->dim);
  bool ok = fill_stack(e, env, stmt, stack, given);
  e->stack = outer, e->lead.n--;
  if (ok) check_given(e, given, stmt->with.n, stack->n == 1 ? stack->body[0]->layer : NULL, name);
  instance->stack = stack, instance->name = name, instance->span = stmt->of.at[0].span;
  env_set(e, env, name, ok ? sub_value(instance) : val_poison());
}

void eval_declare(Eval *e, Env *env, const AstStmt *stmt) {
  Str name = stmt->names.at[0].text;
  if (env_find(env, name)) {
    Report *r =
        eval_error(e, "E0203", stmt->names.at[0].span, "`%s` is declared twice in this body", name);
    diag_label(r, "an option, parameter, sub or input has this name already");
    return;
  }
  uint32_t before = e->params.n;
  if (stmt->kind == STMT_PARAM) declare_param(e, env, stmt);
  else if (stmt->kind == STMT_SUB) declare_sub(e, env, stmt);
  else declare_stack(e, env, stmt);
  if (stmt->kind != STMT_PARAM) attrs_of_sub(e, &stmt->attrs, before);
  watch_params(e, stmt, before);
}

/* ---- calling ---- */

static Kind formal_kind(Eval *e, const Env *env, const AstType *type, Str *of) {
  *of = NULL;
  if (type->of.text) {
    const Dims *bound = axis_find(&env->axes, type->of.text);
    *of = bound && bound->n == 1 ? bound->at[0] : type->of.text;
    if (!sizes_find(e->sizes, *of)) explain_no_dim(e->w, type->of.span, *of);
    return VAL_INDEX;
  }
  if (!type->elem.text || !strcmp(type->elem.text, "f32")) return VAL_FLOAT;
  if (!strcmp(type->elem.text, "i32")) return VAL_INT;
  if (!strcmp(type->elem.text, "bool")) return VAL_BOOL;
  static const char *const types[] = {"f32", "i32", "bool"};
  const char *near = foreign_or_near(type->elem.text, types, 3);
  Report *r =
      eval_error(e, "E0201", type->elem.span, "no element type named `%s`", type->elem.text);
  if (near) diag_edit(r, type->elem.span, "%s", near);
  diag_help(r, "element types are f32, i32, bool, and `of D` for an index");
  return VAL_POISON;
}

/* The type of an input or formal; false if it names something unknown. `*` stays in the list. */
bool type_resolve(Eval *e, const Env *env, const AstType *type, Val *out) {
  Str of;
  Dims dims = {0};
  bool ok = !type->axes || (type->axes->groups.n == 1 && !type->axes->groups.at[0].arrow);
  if (!ok) eval_error(e, "E0204", type->axes->span, "a type has one list of dimensions");
  if (type->axes && ok) ok = dims_resolve(e, env, &type->axes->groups.at[0].from, &dims);
  Kind kind = formal_kind(e, env, type, &of);
  *out = val_tensor(kind, dims), out->of = of;
  return ok && kind != VAL_POISON && (kind != VAL_INDEX || sizes_find(e->sizes, of));
}

static Dims without_star(Eval *e, const Dims *dims, bool *open) {
  Dims star = {.n = 1, .at = {intern(e->ctx->names, "*")}}, named = dims_without(dims, &star);
  *open = named.n != dims->n;
  return named;
}

/* The dim that may replace `want`: one that is `like` it, or the only other one of its size. */
static Str same_axis(Eval *e, Str want, const Dims *have, bool by_size) {
  Str found = NULL;
  const DimInfo *w = sizes_find(e->sizes, want);
  for (int i = 0; i < have->n; i++) {
    const DimInfo *h = sizes_find(e->sizes, have->at[i]);
    if (!w || !h) continue;
    if (w->def->like.text == have->at[i] || h->def->like.text == want) return have->at[i];
    if (!by_size || size_of(e->sizes, want) != size_of(e->sizes, have->at[i])) continue;
    if (found) return NULL;
    found = have->at[i];
  }
  return found;
}

static void wrong_dims(Eval *e, const Instance *instance, Str formal, const AstType *type,
                       const Dims *want, const Dims *named, const Dims *have, bool open, Span at) {
  Report *r = eval_error(e, "E0304", at, "operand `%s` of `%s` takes %s", formal, instance->name,
                         dims_text(e->ctx, want));
  diag_label(r, "has %s", dims_text(e->ctx, have));
  Dims missing = dims_without(named, have), extra = dims_without(have, named);
  if (missing.n)
    diag_fact(r, "%s %s missing", dims_names(e->ctx, &missing), missing.n > 1 ? "are" : "is");
  if (extra.n && !open)
    diag_fact(r, "%s %s not expected", dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
  if (instance->layer->std) diag_also(r, instance->span, "`%s` is declared here", instance->name);
  else diag_also(r, type->span, "declared here");
  Str other = missing.n == 1 ? same_axis(e, missing.at[0], open ? have : &extra, !open) : NULL;
  if (!other) return;
  diag_help(r, "if they are the same axis: `rename[%s -> %s](..)`", other, missing.at[0]);
  diag_edit_around(r, at, arena_printf(e->arena, "rename[%s -> %s](", other, missing.at[0]), ")");
}

static bool fits_kind(const Val *want, const Val *have) {
  if (want->kind == VAL_FLOAT) return val_is_real(have);
  if (want->kind == VAL_INDEX)
    return have->kind == VAL_INDEX && (have->of == want->of || have->free);
  return want->kind == have->kind;
}

static bool check_operand(Eval *e, Instance *instance, uint32_t k, const Val *v, Span at,
                          Dims *rest) {
  const AstFormal *formal = &instance->layer->item->formals.at[k];
  Val want;
  bool open;
  if (!type_resolve(e, &instance->env, formal->type, &want)) return false;
  Dims named = without_star(e, &want.dims, &open);
  if (open && k == 0) *rest = dims_without(&v->dims, &named);
  if (!fits_kind(&want, v)) {
    Report *r = eval_error(e, want.kind == VAL_INDEX && val_is_real(v) ? "E0401" : "E0402", at,
                           "operand `%s` of `%s` takes %s", formal->name.text, instance->name,
                           kind_text(e->ctx, &want));
    diag_label(r, "is %s", kind_text(e->ctx, v));
    return false;
  }
  if (open ? dims_subset(&named, &v->dims) : dims_same(&named, &v->dims)) return true;
  wrong_dims(e, instance, formal->name.text, formal->type, &want.dims, &named, &v->dims, open, at);
  return false;
}

/* ---- what comes back ---- */

static void wrong_result(Eval *e, const Instance *instance, const Env *env, const Dims *declared,
                         const Dims *want, const Val *v, Span at) {
  Report *r = eval_error(e, "E0304", at, "`%s` is declared to return %s", instance->layer->name,
                         dims_text(e->ctx, declared));
  diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  Dims missing = dims_without(want, &v->dims), extra = dims_without(&v->dims, want);
  if (missing.n)
    diag_fact(r, "%s %s missing", dims_names(e->ctx, &missing), missing.n > 1 ? "are" : "is");
  if (extra.n)
    diag_fact(r, "%s %s not expected", dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
  for (int k = 0; k < missing.n; k++) {
    uint32_t last = UINT32_MAX;
    for (uint32_t b = 0; b < env->vars.n; b++)
      if (val_is_tensor(&env->vars.at[b].val) && dims_has(&env->vars.at[b].val.dims, missing.at[k]))
        last = b;
    if (last != UINT32_MAX)
      diag_fact(r, "the last value with `%s` is `%s`", missing.at[k], env->vars.at[last].name);
  }
}

static Str no_prime(Eval *e, Str dim) {
  size_t n = strcspn(dim, "'");
  return dim[n] ? intern_n(e->ctx->names, dim, n) : dim;
}

/* Embed' of the inside is Embed outside. */
static Val strip_primes(Eval *e, Val v) {
  for (int i = 0; i < v.dims.n; i++) {
    Str plain = no_prime(e, v.dims.at[i]);
    if (plain == v.dims.at[i] || dims_has(&v.dims, plain)) continue;
    Val from = v;
    v.dims.at[i] = plain;
    lower_rename(e, &v, &from, from.dims.at[i], plain);
  }
  return v;
}

static Val check_result(Eval *e, const Instance *instance, const Env *env, const Dims *rest, Val v,
                        Span at) {
  Val want;
  bool open;
  if (v.kind == VAL_POISON ||
      !type_resolve(e, &instance->env, instance->layer->item->result, &want))
    return val_poison();
  Dims named = without_star(e, &want.dims, &open);
  for (int k = 0; open && k < rest->n; k++)
    if (!dims_has(&named, rest->at[k])) dims_add(&named, rest->at[k]);
  if (!fits_kind(&want, &v)) {
    Report *r = eval_error(e, "E0402", at, "`%s` is declared to return %s", instance->layer->name,
                           kind_text(e->ctx, &want));
    diag_label(r, "is %s", kind_text(e->ctx, &v));
    return val_poison();
  }
  if (!dims_same(&named, &v.dims)) {
    wrong_result(e, instance, env, &want.dims, &named, &v, at);
    return val_poison();
  }
  return strip_primes(e, v);
}

static Env body_env(Eval *e, const Instance *instance) {
  Env env = {.axes = instance->env.axes, .std = instance->env.std};
  for (uint32_t k = 0; k < instance->env.vars.n; k++)
    vec_push(e->arena, env.vars, instance->env.vars.at[k]);
  return env;
}

static Val call_layer_body(Eval *e, Instance *instance, int n, const Val *args, const Span *spans,
                           Span where) {
  const AstItem *item = instance->layer->item;
  Dims rest = {0};
  Env env = body_env(e, instance);
  bool ok = true;
  if (item->formals.n != (uint32_t)n) {
    Report *r = eval_error(e, "E0204", where, "`%s` takes %u operand%s, not %d", instance->name,
                           item->formals.n, item->formals.n == 1 ? "" : "s", n);
    if (!instance->layer->std) diag_also(r, item->name.span, "declared here");
    return val_poison();
  }
  for (uint32_t k = 0; k < item->formals.n; k++) {
    if (!check_operand(e, instance, k, &args[k], spans[k], &rest)) {
      ok = false;
      continue;
    }
    env_set(e, &env, item->formals.at[k].name.text, args[k]);
    watch_value(e, item->formals.at[k].name.span, &args[k]);
  }
  if (!ok || eval_inside(e, instance->layer, where)) return val_poison();
  Site site = {instance->layer, where, e->site};
  Span returned = item->name.span, outer_here = e->here;
  const Instance *outer_self = e->self;
  e->site = &site, e->self = instance;
  Val v = eval_body(e, &env, &item->body, &returned);
  v = check_result(e, instance, &env, &rest, v, returned);
  e->site = site.up, e->here = outer_here, e->self = outer_self;
  return v;
}

/* One round: each layer of the list in order; the first operand goes through, the others stay. */
static Val call_round(Eval *e, const Stack *stack, int n, Val *args, const Span *spans,
                      Span where) {
  for (uint32_t b = 0; b < stack->n; b++) {
    args[0] = call_layer_body(e, stack->body[b], n, args, spans, where);
    if (args[0].kind == VAL_POISON) return args[0];
  }
  return args[0];
}

static Val call_stack(Eval *e, const Stack *stack, const Call *call) {
  Val args[ARGS_MAX];
  if (!call->n) {
    eval_error(e, "E0204", call->span, "`%s` needs an operand", stack->name);
    return val_poison();
  }
  memcpy(args, call->arg, sizeof args);
  if (stack->n && stack->body[0]->layer->item->formals.n != (uint32_t)call->n)
    return call_layer_body(e, stack->body[0], call->n, args, call->arg_span,
                           call->span); /* says what is wrong */
  for (int i = 0; i < call->n; i++)
    if (dims_has(&args[i].dims, stack->dim)) {
      Report *r =
          eval_error(e, "E0203", call->arg_span[i],
                     "an operand of stack `%s` has its dimension `%s`", stack->name, stack->dim);
      diag_label(r, "has %s", dims_text(e->ctx, &args[i].dims));
      diag_help(r, "give the operand's axis another name: `rename[%s -> ..](..)`", stack->dim);
      return val_poison();
    }
  if (args[0].kind == VAL_NUMBER) args[0] = val_tensor(VAL_FLOAT, (Dims){0});
  Dims before = args[0].dims;
  if (e->build) lower_loop_begin(e, stack, call->n, args);
  dims_add(&e->running, stack->dim);
  Val v = call_round(e, stack, call->n, args, call->arg_span, call->span);
  e->running.n--;
  if (v.kind != VAL_POISON && !dims_same(&before, &v.dims)) {
    eval_error(e, "E0304", call->span, "a round of `%s` turns %s into %s", stack->name,
               dims_text(e->ctx, &before), dims_text(e->ctx, &v.dims));
    v = val_poison();
  }
  RuleValues rules;
  rules_leave(e, stack->dim, &rules);
  if (e->build) v = lower_loop_end(e, &v, &rules);
  return v;
}

Val call_instance(Eval *e, Instance *instance, const Call *call) {
  if (rule_refuses(e, call->span)) return val_poison();
  if (call->axes) {
    eval_error(e, "E0204", call->axes->span, "`%s` got its axes where it was declared", call->name);
    return val_poison();
  }
  for (int k = 0; k < call->n; k++)
    if (call->arg_name[k]) {
      Report *r =
          eval_error(e, "E0204", call->arg_span[k], "operands of a layer are given by place");
      diag_help(r, "options are written where it is declared: `sub .. with %s = ..`",
                call->arg_name[k]);
      return val_poison();
    }
  return instance->stack
             ? call_stack(e, instance->stack, call)
             : call_layer_body(e, instance, call->n, call->arg, call->arg_span, call->span);
}

/* A layer that no model uses is walked once with operands of the declared types. */
void eval_layer(Eval *e, const Decl *decl) {
  Val args[ARGS_MAX];
  Span spans[ARGS_MAX];
  AxisGroups axes;
  Env env = {0};
  uint32_t n = decl->item->formals.n;
  if (n > ARGS_MAX || !axes_resolve(e, &env, decl->item->axes, &axes)) return;
  Instance *instance = make_instance(e, decl, &axes, NULL, 0, "", decl->span);
  if (!instance) return;
  instance->name = decl->name;
  for (uint32_t k = 0; k < n; k++) {
    bool open;
    const AstFormal *formal = &decl->item->formals.at[k];
    if (!type_resolve(e, &instance->env, formal->type, &args[k])) return;
    args[k].dims = without_star(e, &args[k].dims, &open), spans[k] = formal->span;
  }
  call_layer_body(e, instance, (int)n, args, spans, decl->span);
}
