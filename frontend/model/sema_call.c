/* Calls: what a name before round brackets means (a sub, a function, an operator, a mask, an
   initialiser, in this order), operands by place and by name, and functions, which are walked in
   place once per use. */
#include "frontend/syntax/foreign_words.h"
#include "sema_mask.h"
#include <math.h>
#include <string.h>

/* ---- operands ---- */

static bool add_operand(Eval *e, Env *env, Call *call, Str name, const AstExpr *expr, Span span) {
  if (call->n == ARGS_MAX) {
    eval_error(e, "E0204", span, "more than %d operands", ARGS_MAX);
    return false;
  }
  call->arg_name[call->n] = name, call->expr[call->n] = expr, call->arg_span[call->n] = span;
  call->arg[call->n++] = eval_expr(e, env, expr);
  return true;
}

static bool start_call(Eval *e, Env *env, const AstExpr *expr, const AstExpr *pipe, Call *call) {
  const AstExpr *receiver = pipe ? pipe->left : NULL;
  call->site = expr, call->name = expr->name.text, call->name_span = expr->name.span,
  call->axes = expr->axes;
  call->span = pipe ? pipe->span : expr->span;
  if (!axes_resolve(e, env, expr->axes, &call->groups)) return false;
  if (receiver && !add_operand(e, env, call, NULL, receiver, receiver->span)) return false;
  for (uint32_t i = 0; i < expr->args.n; i++) {
    const AstArg *arg = &expr->args.at[i];
    if (call->n < ARGS_MAX) call->arg_name_span[call->n] = arg->name.span;
    if (!add_operand(e, env, call, arg->name.text, arg->value, arg->value->span)) return false;
  }
  return true;
}

static bool poisoned(const Call *call) {
  for (int i = 0; i < call->n; i++)
    if (call->arg[i].kind == VAL_POISON) return true;
  return false;
}

static int formal_index(const Call *call, int i, int n, const Str *formals) {
  if (!call->arg_name[i]) return i;
  for (int k = 0; k < n; k++)
    if (formals[k] == call->arg_name[i]) return k;
  return -1;
}

static Str formals_text(Eval *e, int n, const Str *formals) {
  Str list = "";
  for (int k = 0; k < n; k++) list = arena_list(e->arena, list, "%s", formals[k]);
  return list;
}

static void wrong_operand(Eval *e, const Call *call, int i, int n, const Str *formals, Str why) {
  Span at = call->arg_name[i] ? call->arg_name_span[i] : call->expr[i]->span;
  Report *r = eval_error(e, "E0204", at, "%s", why);
  diag_fact(r, "`%s` takes %s", call->name, n ? formals_text(e, n, formals) : "no operands");
  const char *said = call->arg_name[i] ? foreign_text(FOREIGN_CODE, call->arg_name[i]) : NULL;
  if (said) diag_help(r, "%s", said);
  else if (call->arg_name[i])
    diag_near(r, "an operand", n ? foreign_or_near(call->arg_name[i], formals, (uint32_t)n) : NULL);
}

/* Places operands; out[i].kind is VAL_ABSENT where nothing was written. */
bool bind_operands(Eval *e, const Call *call, int n, const Str *formals, int required, Val *out,
                   const AstExpr **exprs) {
  for (int k = 0; k < n; k++) out[k] = (Val){.kind = VAL_ABSENT, .id = NO_VALUE}, exprs[k] = NULL;
  for (int i = 0; i < call->n; i++) {
    int k = formal_index(call, i, n, formals);
    if (k < 0 || k >= n) {
      Str why = call->arg_name[i] ? arena_printf(e->arena, "`%s` has no operand named `%s`",
                                                 call->name, call->arg_name[i])
                                  : arena_printf(e->arena, "`%s` takes %d operand%s, not %d",
                                                 call->name, n, n == 1 ? "" : "s", call->n);
      wrong_operand(e, call, i, n, formals, why);
      return false;
    }
    if (exprs[k]) {
      wrong_operand(e, call, i, n, formals,
                    arena_printf(e->arena, "operand `%s` is given twice", formals[k]));
      return false;
    }
    out[k] = call->arg[i], exprs[k] = call->expr[i];
  }
  for (int k = 0; k < required; k++) {
    if (exprs[k]) continue;
    Report *r =
        eval_error(e, "E0204", call->span, "`%s` needs its operand `%s`", call->name, formals[k]);
    diag_label(r, "%d of %d given", call->n, n);
    diag_fact(r, "`%s` takes %s", call->name, formals_text(e, n, formals));
    return false;
  }
  return true;
}

/* ---- functions ---- */

bool eval_inside(Eval *e, const Decl *decl, Span at) {
  for (const Site *site = e->site; site; site = site->up)
    if (site->decl == decl) {
      eval_error(e, "E0202", at, "`%s` is used inside itself", decl->name);
      return true;
    }
  return false;
}

Dims dims_of_star(const Eval *e, const Val *v) {
  return e->ruled ? dims_without(&v->dims, e->ruled) : v->dims;
}

/* `*` passed to a function means all dims of its first operand. */
static void fill_star(const Eval *e, Call *call) {
  for (int i = 0; i < call->groups.n; i++) {
    AxisGroup *group = &call->groups.at[i];
    if (group->from.n == 1 && !strcmp(group->from.at[0], "*") && call->n)
      group->from = dims_of_star(e, &call->arg[0]);
  }
}

/* A function of the library reduces the dims in a group without arrow, so its operand, if it needs
   one, must have them. Checked at the call, whose words are the user's. */
static bool library_needs(Eval *e, const Decl *decl, const Call *call) {
  if (!decl->std || !call->n || !strcmp(decl->name, "attention")) return true;
  if (decl->item->operands.n && decl->item->operands.at[0].value) return true;
  for (int i = 0; i < call->groups.n; i++)
    if (!call->groups.at[i].arrow &&
        !need_dims(e, call, &call->groups.at[i].from, &call->arg[0], call->expr[0]))
      return false;
  return true;
}

static bool bind_function(Eval *e, const AstItem *item, const Call *call, Env *env) {
  Str formals[ARGS_MAX] = {0};
  Val vals[ARGS_MAX];
  const AstExpr *exprs[ARGS_MAX];
  int n = (int)item->operands.n, required = 0;
  if (n > ARGS_MAX)
    return eval_error(e, "E0204", item->span, "more than %d operands", ARGS_MAX), false;
  for (int i = 0; i < n; i++) {
    formals[i] = item->operands.at[i].name.text;
    if (!item->operands.at[i].value) required = i + 1;
  }
  if (!bind_operands(e, call, n, formals, required, vals, exprs)) return false;
  for (int i = 0; i < n; i++) {
    Val v = exprs[i] ? vals[i] : eval_expr(e, env, item->operands.at[i].value);
    if (v.kind == VAL_POISON) return false;
    env_set(e, env, formals[i], v);
  }
  return true;
}

static Val run_function(Eval *e, const AstItem *item, Env *env) {
  Span returned;
  if (!item->has_body) return eval_expr(e, env, item->value);
  return eval_body(e, env, &item->body, &returned);
}

/* A hand-written gradient is checked at each use of its function, where its types are known. */
static void check_grad(Eval *e, const Decl *d, const Call *call, const Env *env, const Val *y) {
  const Decl *g = world_find(e->w, SPACE_GRAD, d->name, d->std);
  if (!g || d->std || e->build || y->kind != VAL_FLOAT) return;
  const AstItem *item = g->item;
  if (item->operands.n != d->item->operands.n + 1) {
    Report *r = world_error(e->w, "E0204", item->name.span, "`grad %s` takes %u operands, not %u",
                            d->name, d->item->operands.n + 1, item->operands.n);
    diag_fact(r, "the operands of `%s`, then the gradient of its result", d->name);
    return;
  }
  Env inner = {.axes = env->axes};
  for (uint32_t i = 0; i < item->operands.n; i++)
    env_set(e, &inner, item->operands.at[i].name.text,
            i < d->item->operands.n ? *env_find(env, d->item->operands.at[i].name.text)
                                    : val_tensor(VAL_FLOAT, y->dims));
  Val dx = run_function(e, item, &inner);
  const Val *x = env_find(env, d->item->operands.at[0].name.text);
  if (dx.kind == VAL_POISON || dims_same(&dx.dims, &x->dims)) return;
  Report *r = world_error(e->w, "E0304", item->name.span,
                          "`grad %s` gives %s, but the first operand has %s", d->name,
                          dims_text(e->ctx, &dx.dims), dims_text(e->ctx, &x->dims));
  diag_also(r, call->span, "in this use");
}

Val call_function(Eval *e, const Decl *decl, Call *call) {
  if (eval_inside(e, decl, call->name_span)) return val_poison();
  if (!decl->std) names_put(e->w->walked, 1, decl->name, 1);
  fill_star(e, call);
  if (decl->item->axes && !call->axes) return explain_no_axes(e, call), val_poison();
  if (!library_needs(e, decl, call)) return val_poison();
  Env env = {.std = decl->std};
  if (!axes_bind(e, decl->item->axes, &call->groups, call->name_span, decl->name, false, &env.axes))
    return val_poison();
  Site site = {decl, call->span, e->site};
  e->site = &site;
  Val v =
      bind_function(e, decl->item, call, &env) ? run_function(e, decl->item, &env) : val_poison();
  check_grad(e, decl, call, &env, &v);
  e->site = site.up;
  return v;
}

/* E0404 where a number is known and `good` says no; lists of a number per round are not looked at.
 */
bool number_in(Eval *e, const Val *v, const AstExpr *expr, bool good, const char *what,
               const char *wanted) {
  if (v->kind != VAL_NUMBER || !v->known || good) return true;
  Report *r = eval_error(e, "E0404", expr->span, "%s is %s", what, number_text(e->ctx, v->number));
  diag_label(r, "%s", wanted);
  return false;
}

/* dropout of the library does nothing where nothing is learned. */
static bool dropout_is_off(const Eval *e, const Call *call) {
  if (e->mode == MODE_EVAL || e->mode == MODE_LOGITS) return true;
  for (int i = 1; i < call->n; i++)
    if (call->arg[i].kind == VAL_NUMBER && call->arg[i].known && call->arg[i].number == 0)
      return true;
  return false;
}

static bool drops_a_share(Eval *e, const Call *call) {
  if (call->n < 2) return true;
  double p = call->arg[1].number;
  return number_in(e, &call->arg[1], call->expr[1], p >= 0 && p < 1,
                   "the share that `dropout` drops", "a number from 0 to below 1");
}

/* ---- operators ---- */

/* Spreads formals "x at value" into names; the number of them. */
static int split_formals(Eval *e, const char *formals, Str *out) {
  int n = 0;
  while (*formals && n < ARGS_MAX) {
    size_t k = strcspn(formals, " ");
    out[n++] = intern_n(e->ctx->names, formals, k);
    formals += k + (formals[k] == ' ');
  }
  return n;
}

static bool place_operands(Eval *e, const Builtin *builtin, Call *call) {
  Str formals[ARGS_MAX] = {0};
  Val vals[ARGS_MAX];
  const AstExpr *exprs[ARGS_MAX];
  if (!strcmp(builtin->formals, "*")) {
    for (int i = 0; i < call->n; i++)
      if (call->arg_name[i])
        return wrong_operand(e, call, i, 0, formals, "positional operands are required"), false;
    if (call->n >= builtin->required) return true;
    eval_error(e, "E0204", call->span, "`%s` needs at least %d operands", builtin->name,
               builtin->required);
    return false;
  }
  int n = split_formals(e, builtin->formals, formals);
  if (!bind_operands(e, call, n, formals, builtin->required, vals, exprs)) return false;
  for (int i = 0; i < n; i++) call->arg[i] = vals[i], call->expr[i] = exprs[i];
  call->n = n;
  return true;
}

static bool lists_once(Eval *e, const Call *call) {
  for (int i = 0; i < call->groups.n; i++) {
    const AxisGroup *group = &call->groups.at[i];
    Str twice =
        dims_repeated(&group->from) ? dims_repeated(&group->from) : dims_repeated(&group->to);
    if (twice)
      return eval_error(e, "E0203", call->axes->span, "`%s` lists dimension `%s` twice", call->name,
                        twice),
             false;
  }
  return true;
}

static Val call_builtin(Eval *e, const Builtin *builtin, Call *call) {
  if (builtin->axes == 1 && !call->axes) {
    explain_no_axes(e, call);
    return val_poison();
  }
  if (builtin->axes == 0 && call->axes) {
    eval_error(e, "E0204", call->axes->span, "`%s` takes no axes", builtin->name);
    return val_poison();
  }
  if (!lists_once(e, call) || !place_operands(e, builtin, call)) return val_poison();
  return builtin->run(e, builtin, call);
}

static const char *const inits[] = {"normal", "truncated_normal", "uniform"};

bool call_is_initialiser(Str n) {
  for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
    if (!strcmp(n, inits[i])) return true;
  return false;
}

static bool init_in_range(Eval *e, const Call *call, const Val *v, const AstExpr *const *expr) {
  if (!strcmp(call->name, "uniform"))
    return !v[0].known || number_in(e, &v[1], expr[1], v[1].number >= v[0].number,
                                    "the upper end of `uniform`", "at least the lower one");
  return number_in(e, &v[0], expr[0], v[0].number >= 0 && isfinite(v[0].number),
                   "the deviation of an initialiser", "a number of at least 0");
}

static Val call_init(Eval *e, Call *call) {
  Str formals[2] = {0};
  Val *v = ARENA_ARRAY(e->arena, Val, 2);
  const AstExpr *exprs[2];
  bool uniform = !strcmp(call->name, "uniform");
  split_formals(e, uniform ? "low high" : "std mean", formals);
  if (!bind_operands(e, call, 2, formals, uniform ? 2 : 1, v, exprs)) return val_poison();
  for (int i = 0; i < 2; i++) {
    bool number = v[i].kind == VAL_NUMBER || (v[i].kind == VAL_FLOAT && v[i].rounds) ||
                  v[i].kind == VAL_ABSENT;
    if (number) continue;
    eval_error(e, "E0402", exprs[i]->span, "`%s` of an initialiser is a number, not %s", formals[i],
               kind_text(e->ctx, &v[i]));
    return val_poison();
  }
  if (v[1].kind == VAL_ABSENT) v[1] = val_number(0);
  if (!init_in_range(e, call, v, exprs)) return val_poison();
  Init *init = ARENA_NEW(e->arena, Init);
  init->kind = uniform ? INIT_UNIFORM : call->name[0] == 'n' ? INIT_NORMAL : INIT_TRUNCATED;
  init->a = &v[0], init->b = &v[1];
  return (Val){.kind = VAL_INIT, .init = init, .id = NO_VALUE};
}

/* ---- what the name means ---- */

typedef VEC(const char *) FunctionNames;

static FunctionNames functions_in_scope(Eval *e, const Env *env) {
  FunctionNames names = {0};
  uint32_t at = 0, n;
  const Builtin *table = builtin_table(&n);
  for (uint32_t i = 0; i < env->vars.n; i++)
    if (env->vars.at[i].val.kind == VAL_SUB) vec_push(e->arena, names, env->vars.at[i].name);
  for (const Decl *decl; (decl = world_next(e->w, SPACE_FN, &at));)
    vec_push(e->arena, names, decl->name);
  for (uint32_t i = 0; i < n; i++) vec_push(e->arena, names, table[i].name);
  for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) vec_push(e->arena, names, inits[i]);
  for (uint32_t i = 0; mask_name(i); i++) vec_push(e->arena, names, mask_name(i));
  return names;
}

/* layer_norm(x), where LayerNorm is a layer: NULL if it means none. */
static const char *foreign_layer(Eval *e, const char *name) {
  uint32_t at = 0;
  for (const char *meant; (meant = foreign_meaning(name, &at));)
    if (world_find(e->w, SPACE_LAYER, intern(e->ctx->names, meant), false)) return meant;
  return NULL;
}

/* matmul for dot: an edit only where no axes have to be chosen. */
static void help_foreign(Eval *e, Report *r, const Call *call, const char *foreign) {
  const Builtin *builtin = builtin_find(intern(e->ctx->names, foreign), true);
  bool bare = builtin && builtin->axes == 1 && !call->axes;
  diag_help(r, "this is written `%s%s`", foreign, bare ? "[D](..)" : "");
  if (!bare) diag_edit(r, call->name_span, "%s", foreign);
}

static void no_function(Eval *e, const Env *env, const Call *call) {
  FunctionNames names = functions_in_scope(e, env);
  if (world_lost(e->w, SPACE_FN) ||
      world_misses_library(e->w, SPACE_FN, call->name_span, call->name))
    return;
  const char *near = diag_nearest(call->name, names.at, names.n);
  const char *foreign = foreign_name(call->name, names.at, names.n);
  Report *r = eval_error(e, "E0201", call->name_span, "no sub, function or operator named `%s`",
                         call->name);
  const char *said = foreign_text(FOREIGN_CODE, call->name), *layer = foreign_layer(e, call->name);
  if (said) diag_help(r, "%s", said);
  else if (foreign) help_foreign(e, r, call, foreign);
  else if (layer)
    diag_help(r, "`%s` is a layer: declare `sub name = %s[D]` and call `name(..)`", layer, layer);
  else if (near) diag_near(r, "one", near);
  else if (world_find(e->w, SPACE_LAYER, call->name, false))
    diag_help(r, "`%s` is a layer: declare `sub name = %s%s` and call `name(..)`", call->name,
              call->name, call->axes ? span_text(e->ctx, call->axes->span) : "");
}

/* cross_entropy(x, labels, ignore = -100), and nll: such labels are in the data on purpose. */
static void note_ignored(Eval *e, const Call *call) {
  const Val *labels = call->n > 1 ? &call->arg[1] : NULL;
  if (!labels || !labels->input) return;
  for (int i = 2; i < call->n; i++)
    if (call->arg[i].kind == VAL_NUMBER && call->arg[i].known &&
        (call->arg_name[i] ? !strcmp(call->arg_name[i], "ignore") : i == 2))
      vec_push(e->arena, e->ignored, (Ignored){labels->input->name, (int64_t)call->arg[i].number});
}

static Val call_declared(Eval *e, const Decl *decl, Call *call) {
  if (decl->item->kind == ITEM_LAYOUT) {
    eval_error(e, "E0402", call->span, "`%s` is a layout, not a function", decl->name);
    return val_poison();
  }
  if (decl->std && !strcmp(decl->name, "attention")) return eval_attention(e, call);
  if (decl->std && !strcmp(decl->name, "dropout") && call->n) {
    if (!drops_a_share(e, call)) return val_poison();
    if (dropout_is_off(e, call)) return call->arg[0];
  }
  if (decl->std && (!strcmp(decl->name, "cross_entropy") || !strcmp(decl->name, "nll")))
    note_ignored(e, call);
  return call_function(e, decl, call);
}

Val eval_call(Eval *e, Env *env, const AstExpr *expr, const AstExpr *pipe) {
  bool callable = expr->kind == EXPR_NAME || expr->kind == EXPR_AXES || expr->kind == EXPR_CALL;
  if (!callable) {
    eval_error(e, "E0204", expr->span, "the right side of `|>` is a function or a sub");
    return val_poison();
  }
  Call call = {0};
  const Val *sub = env_find(env, expr->name.text);
  const Decl *decl = world_find(e->w, SPACE_FN, expr->name.text, env->std);
  const Builtin *builtin = builtin_find(expr->name.text, expr->axes != NULL);
  if (sub && sub->kind == VAL_POISON && !decl && !builtin) return val_poison();
  if (sub && sub->kind != VAL_SUB) sub = NULL;
  if (!sub && !decl && builtin && !strcmp(builtin->name, "iota")) return eval_iota(e, env, expr);
  if (!start_call(e, env, expr, pipe, &call) || poisoned(&call)) return val_poison();
  if (sub) return call_instance(e, sub->sub, &call);
  if (decl) return call_declared(e, decl, &call);
  if (builtin) return call_builtin(e, builtin, &call);
  if (mask_function(call.name)) return mask_call(e, &call);
  if (call_is_initialiser(call.name)) return call_init(e, &call);
  no_function(e, env, &call);
  return val_poison();
}
