/* Calls: what a name before round brackets means (a sub, a function, an operator, a mask, an
   initialiser, in this order), operands by place and by name, and functions, which are walked in
   place once per use. */
#include "frontend/keywords.h"
#include "frontend/sema.h"
#include "frontend/lower.h"
#include <math.h>
#include <string.h>

/* ---- operands ---- */

static bool add_operand(Eval *e, Env *env, Call *c, Str name, const AstExpr *x, Span span) {
  if (c->n == ARGS_MAX) {
    eval_error(e, "E0204", span, "more than %d operands", ARGS_MAX);
    return false;
  }
  c->arg_name[c->n] = name, c->expr[c->n] = x, c->arg_span[c->n] = span;
  c->arg[c->n++] = eval_expr(e, env, x);
  return true;
}

static bool start_call(Eval *e, Env *env, const AstExpr *x, const AstExpr *receiver, Call *c) {
  c->site = x, c->name = x->name.text, c->name_span = x->name.span, c->axes = x->axes;
  c->span = receiver ? span_join(receiver->span, x->span) : x->span;
  if (!axes_resolve(e, env, x->axes, &c->groups)) return false;
  if (receiver && !add_operand(e, env, c, NULL, receiver, receiver->span)) return false;
  for (uint32_t i = 0; i < x->args.n; i++) {
    const AstArg *a = &x->args.at[i];
    if (c->n < ARGS_MAX) c->arg_name_span[c->n] = a->name.span;
    if (!add_operand(e, env, c, a->name.text, a->value, a->value->span)) return false;
  }
  return true;
}

static bool poisoned(const Call *c) {
  for (int i = 0; i < c->n; i++)
    if (c->arg[i].kind == VAL_POISON) return true;
  return false;
}

static int formal_index(const Call *c, int i, int n, const Str *formals) {
  if (!c->arg_name[i]) return i;
  for (int k = 0; k < n; k++)
    if (formals[k] == c->arg_name[i]) return k;
  return -1;
}

static Str formals_text(Eval *e, int n, const Str *formals) {
  Str list = "";
  for (int k = 0; k < n; k++)
    list = arena_printf(e->arena, "%s%s%s", list, k ? ", " : "", formals[k]);
  return list;
}

static void wrong_operand(Eval *e, const Call *c, int i, int n, const Str *formals, Str why) {
  Span at = c->arg_name[i] ? c->arg_name_span[i] : c->expr[i]->span;
  Report *r = eval_error(e, "E0204", at, "%s", why);
  diag_fact(r, "`%s` takes %s", c->name, n ? formals_text(e, n, formals) : "no operands");
  if (c->arg_name[i])
    diag_near(r, "an operand", n ? diag_nearest(c->arg_name[i], formals, (uint32_t)n) : NULL);
}

/* Places operands; out[i].kind is VAL_ABSENT where nothing was written. */
bool bind_operands(Eval *e, const Call *c, int n, const Str *formals, int required, Val *out,
                   const AstExpr **exprs) {
  for (int k = 0; k < n; k++) out[k] = (Val){.kind = VAL_ABSENT, .id = NO_VALUE}, exprs[k] = NULL;
  for (int i = 0; i < c->n; i++) {
    int k = formal_index(c, i, n, formals);
    if (k < 0 || k >= n) {
      Str why = c->arg_name[i] ? arena_printf(e->arena, "`%s` has no operand named `%s`", c->name,
                                              c->arg_name[i])
                               : arena_printf(e->arena, "`%s` takes %d operand%s, not %d", c->name,
                                              n, n == 1 ? "" : "s", c->n);
      wrong_operand(e, c, i, n, formals, why);
      return false;
    }
    if (exprs[k]) {
      wrong_operand(e, c, i, n, formals,
                    arena_printf(e->arena, "operand `%s` is given twice", formals[k]));
      return false;
    }
    out[k] = c->arg[i], exprs[k] = c->expr[i];
  }
  for (int k = 0; k < required; k++) {
    if (exprs[k]) continue;
    Report *r = eval_error(e, "E0204", c->span, "`%s` needs its operand `%s`", c->name, formals[k]);
    diag_label(r, "%d of %d given", c->n, n);
    diag_fact(r, "`%s` takes %s", c->name, formals_text(e, n, formals));
    return false;
  }
  return true;
}

/* ---- functions ---- */

bool eval_inside(Eval *e, const Decl *d, Span at) {
  for (const Site *s = e->site; s; s = s->up)
    if (s->decl == d) {
      eval_error(e, "E0202", at, "`%s` is used inside itself", d->name);
      return true;
    }
  return false;
}

/* `*` given to a function stands for all dims of its first operand. */
static void fill_star(Call *c) {
  for (int i = 0; i < c->groups.n; i++) {
    AxisGroup *g = &c->groups.at[i];
    if (g->from.n == 1 && !strcmp(g->from.at[0], "*") && c->n) g->from = c->arg[0].dims;
  }
}

/* A function of the library reduces what stands in a group without arrow, so the operand must have
   it. Said here, because here the words are the user's. */
static bool library_needs(Eval *e, const Decl *d, const Call *c) {
  if (!d->std || !c->n || !strcmp(d->name, "attention")) return true;
  for (int i = 0; i < c->groups.n; i++)
    if (!c->groups.at[i].arrow && !need_dims(e, c, &c->groups.at[i].from, &c->arg[0], c->expr[0]))
      return false;
  return true;
}

static bool bind_function(Eval *e, const AstItem *f, const Call *c, Env *env) {
  Str formals[ARGS_MAX] = {0};
  Val vals[ARGS_MAX];
  const AstExpr *exprs[ARGS_MAX];
  int n = (int)f->operands.n, required = 0;
  if (n > ARGS_MAX)
    return eval_error(e, "E0204", f->span, "more than %d operands", ARGS_MAX), false;
  for (int i = 0; i < n; i++) {
    formals[i] = f->operands.at[i].name.text;
    if (!f->operands.at[i].value) required = i + 1;
  }
  if (!bind_operands(e, c, n, formals, required, vals, exprs)) return false;
  for (int i = 0; i < n; i++) {
    Val v = exprs[i] ? vals[i] : eval_expr(e, env, f->operands.at[i].value);
    if (v.kind == VAL_POISON) return false;
    env_set(e, env, formals[i], v);
  }
  return true;
}

static Val run_function(Eval *e, const AstItem *f, Env *env) {
  Span returned;
  if (!f->has_body) return eval_expr(e, env, f->value);
  return eval_body(e, env, &f->body, &returned);
}

/* A gradient by hand is checked where its function is used: there its types are known. */
static void check_grad(Eval *e, const Decl *d, const Call *c, const Env *env, const Val *y) {
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
  diag_also(r, c->span, "in this use");
}

Val call_function(Eval *e, const Decl *d, Call *c) {
  if (eval_inside(e, d, c->name_span)) return val_poison();
  if (!d->std) names_put(e->w->walked, 1, d->name, 1);
  fill_star(c);
  if (d->item->axes && !c->axes) return explain_no_axes(e, c), val_poison();
  if (!library_needs(e, d, c)) return val_poison();
  Env env = {.std = d->std};
  if (!axes_bind(e, d->item->axes, &c->groups, c->name_span, d->name, false, &env.axes))
    return val_poison();
  Site site = {d, c->span, e->site};
  e->site = &site;
  Val v = bind_function(e, d->item, c, &env) ? run_function(e, d->item, &env) : val_poison();
  check_grad(e, d, c, &env, &v);
  e->site = site.up;
  return v;
}

/* E0404 where a number is known and `good` says no; lists of a number per round are not looked at.
 */
static bool number_in(Eval *e, const Val *v, const AstExpr *x, bool good, const char *what,
                      const char *wanted) {
  if (v->kind != VAL_NUMBER || !v->known || good) return true;
  Report *r = eval_error(e, "E0404", x->span, "%s is %s", what, number_text(e->ctx, v->number));
  diag_label(r, "%s", wanted);
  return false;
}

/* dropout of the library does nothing where nothing is learned. */
static bool dropout_is_off(const Eval *e, const Call *c) {
  if (e->mode == MODE_EVAL || e->mode == MODE_LOGITS) return true;
  for (int i = 1; i < c->n; i++)
    if (c->arg[i].kind == VAL_NUMBER && c->arg[i].known && c->arg[i].number == 0) return true;
  return false;
}

static bool drops_a_share(Eval *e, const Call *c) {
  if (c->n < 2) return true;
  double p = c->arg[1].number;
  return number_in(e, &c->arg[1], c->expr[1], p >= 0 && p < 1, "the share that `dropout` drops",
                   "a number from 0 to below 1");
}

/* ---- extern: the reference is its definition ---- */

static const AstSetting *find_setting(const AstBlock *b, const char *word) {
  for (uint32_t i = 0; b && i < b->settings.n; i++)
    if (b->settings.at[i]->path && !strcmp(b->settings.at[i]->path->text, word))
      return b->settings.at[i];
  return NULL;
}

static const Decl *reference_of(Eval *e, const Decl *d, Span at) {
  const AstSetting *s = find_setting(d->item->block, "reference");
  const AstValue *v = s && s->values.n ? s->values.at[0].value : NULL;
  if (!s) {
    Report *r = eval_error(e, "E0901", at, "`%s` has no `reference`", d->name);
    diag_label(r, "code of other files is not built in yet");
    diag_help(r, "write `reference = NAME` in its block, a function of the language");
    return NULL;
  }
  if (!v || v->kind != VALUE_PATH) return e->w->errors++, NULL; /* E0606 was given */
  const Decl *f = world_find(e->w, SPACE_FN, v->path->text, false);
  if (f && f->item->kind == ITEM_FN) return f;
  Report *r = world_error(e->w, "E0201", v->span, "no function named `%s`", v->path->text);
  diag_near(r, "one", world_nearest(e->w, SPACE_FN, v->path->text));
  return NULL;
}

static bool extern_operands(Eval *e, const Decl *d, const Call *c, const Env *env) {
  for (uint32_t i = 0; i < d->item->formals.n && i < (uint32_t)c->n; i++) {
    const AstFormal *f = &d->item->formals.at[i];
    Dims want;
    if (!dims_resolve(e, env, &f->type->axes->groups.at[0].from, &want)) return false;
    Dims star = {.n = 1, .at = {intern(e->ctx->names, "*")}}, named = dims_without(&want, &star);
    bool open = named.n != want.n;
    if (open ? dims_subset(&named, &c->arg[i].dims) : dims_same(&named, &c->arg[i].dims)) continue;
    Report *r = eval_error(e, "E0304", c->expr[i]->span, "operand `%s` of `%s` wants %s",
                           f->name.text, d->name, dims_text(e->ctx, &want));
    diag_label(r, "has %s", dims_text(e->ctx, &c->arg[i].dims));
    return false;
  }
  return true;
}

static Val call_extern(Eval *e, const Decl *d, Call *c) {
  Env env = {0};
  const Decl *f = reference_of(e, d, c->name_span);
  if (!f || eval_inside(e, d, c->name_span)) return val_poison();
  if (d->item->formals.n != (uint32_t)c->n) {
    eval_error(e, "E0204", c->span, "`%s` takes %u operands, not %d", d->name, d->item->formals.n,
               c->n);
    return val_poison();
  }
  if (!axes_bind(e, d->item->axes, &c->groups, c->name_span, d->name, false, &env.axes))
    return val_poison();
  if (!extern_operands(e, d, c, &env)) return val_poison();
  Site site = {d, c->span, e->site};
  e->site = &site;
  Val v = call_function(e, f, c);
  e->site = site.up;
  return v;
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

static bool place_operands(Eval *e, const Builtin *b, Call *c) {
  Str formals[ARGS_MAX] = {0};
  Val vals[ARGS_MAX];
  const AstExpr *exprs[ARGS_MAX];
  if (!strcmp(b->formals, "*")) {
    for (int i = 0; i < c->n; i++)
      if (c->arg_name[i])
        return wrong_operand(e, c, i, 0, formals, "operands by place are wanted here"), false;
    if (c->n >= b->required) return true;
    eval_error(e, "E0204", c->span, "`%s` needs at least %d operands", b->name, b->required);
    return false;
  }
  int n = split_formals(e, b->formals, formals);
  if (!bind_operands(e, c, n, formals, b->required, vals, exprs)) return false;
  for (int i = 0; i < n; i++) c->arg[i] = vals[i], c->expr[i] = exprs[i];
  c->n = n;
  return true;
}

static bool lists_once(Eval *e, const Call *c) {
  for (int i = 0; i < c->groups.n; i++) {
    const AxisGroup *g = &c->groups.at[i];
    Str twice = dims_repeated(&g->from) ? dims_repeated(&g->from) : dims_repeated(&g->to);
    if (twice)
      return eval_error(e, "E0203", c->axes->span, "`%s` lists dimension `%s` twice", c->name,
                        twice),
             false;
  }
  return true;
}

static Val call_builtin(Eval *e, const Builtin *b, Call *c) {
  if (b->axes == 1 && !c->axes) {
    explain_no_axes(e, c);
    return val_poison();
  }
  if (b->axes == 0 && c->axes) {
    eval_error(e, "E0204", c->axes->span, "`%s` takes no axes", b->name);
    return val_poison();
  }
  if (!lists_once(e, c) || !place_operands(e, b, c)) return val_poison();
  if (b->later && e->build) bug("`%s` reached code generation", b->name);
  if (b->later) {
    const char *code = unbuilt_code(e->w);
    diag_label(eval_error(e, code, c->name_span, "`%s` is not built yet", b->name), "%s", b->later);
    if (e->compile) return val_poison();
  }
  return b->run(e, b, c);
}

static const char *const inits[] = {"normal", "truncated_normal", "uniform"};

bool call_is_initialiser(Str n) {
  for (size_t i = 0; i < sizeof inits / sizeof *inits; i++)
    if (!strcmp(n, inits[i])) return true;
  return false;
}

static bool init_in_range(Eval *e, const Call *c, const Val *v, const AstExpr *const *x) {
  if (!strcmp(c->name, "uniform"))
    return !v[0].known || number_in(e, &v[1], x[1], v[1].number >= v[0].number,
                                    "the upper end of `uniform`", "at least the lower one");
  return number_in(e, &v[0], x[0], v[0].number >= 0 && isfinite(v[0].number),
                   "the deviation of an initialiser", "a number of at least 0");
}

static Val call_init(Eval *e, Call *c) {
  Str formals[2] = {0};
  Val *v = ARENA_ARRAY(e->arena, Val, 2);
  const AstExpr *exprs[2];
  bool uniform = !strcmp(c->name, "uniform");
  split_formals(e, uniform ? "low high" : "std mean", formals);
  if (!bind_operands(e, c, 2, formals, uniform ? 2 : 1, v, exprs)) return val_poison();
  for (int i = 0; i < 2; i++) {
    bool number = v[i].kind == VAL_NUMBER || (v[i].kind == VAL_FLOAT && v[i].rounds) ||
                  v[i].kind == VAL_ABSENT;
    if (number) continue;
    eval_error(e, "E0402", exprs[i]->span, "`%s` of an initialiser is a number, not %s", formals[i],
               kind_text(e->ctx, &v[i]));
    return val_poison();
  }
  if (v[1].kind == VAL_ABSENT) v[1] = val_number(0);
  if (!init_in_range(e, c, v, exprs)) return val_poison();
  Init *init = ARENA_NEW(e->arena, Init);
  init->kind = uniform ? INIT_UNIFORM : c->name[0] == 'n' ? INIT_NORMAL : INIT_TRUNCATED;
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
  for (const Decl *d; (d = world_next(e->w, SPACE_FN, &at));) vec_push(e->arena, names, d->name);
  for (uint32_t i = 0; i < n; i++) vec_push(e->arena, names, table[i].name);
  for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) vec_push(e->arena, names, inits[i]);
  for (uint32_t i = 0; mask_name(i); i++) vec_push(e->arena, names, mask_name(i));
  return names;
}

/* matmul for dot: an edit only where no axes have to be chosen. */
static void help_foreign(Eval *e, Report *r, const Call *c, const char *foreign) {
  const Builtin *b = builtin_find(intern(e->ctx->names, foreign), true);
  bool bare = b && b->axes == 1 && !c->axes;
  diag_help(r, "here that is `%s%s`", foreign, bare ? "[D](..)" : "");
  if (!bare) diag_edit(r, c->name_span, "%s", foreign);
}

static void no_function(Eval *e, const Env *env, const Call *c) {
  FunctionNames names = functions_in_scope(e, env);
  if (world_lost(e->w, SPACE_FN) || world_misses_library(e->w, SPACE_FN, c->name_span, c->name))
    return;
  const char *near = diag_nearest(c->name, names.at, names.n);
  const char *foreign = keyword_foreign(c->name, names.at, names.n);
  Report *r =
      eval_error(e, "E0201", c->name_span, "no sub, function or operator named `%s`", c->name);
  if (keyword_habit(c->name)) diag_help(r, "%s", keyword_habit(c->name));
  else if (foreign) help_foreign(e, r, c, foreign);
  else if (near) diag_near(r, "one", near);
  else if (world_find(e->w, SPACE_LAYER, c->name, false))
    diag_help(r, "`%s` is a layer: declare `sub name = %s%s` and call `name(..)`", c->name, c->name,
              c->axes ? span_text(e->ctx, c->axes->span) : "");
}

/* cross_entropy(x, labels, ignore = -100): such labels are in the data on purpose. */
static void note_ignored(Eval *e, const Call *c) {
  const Val *labels = c->n > 1 ? &c->arg[1] : NULL;
  if (!labels || !labels->input) return;
  for (int i = 2; i < c->n; i++)
    if (c->arg[i].kind == VAL_NUMBER && c->arg[i].known &&
        (c->arg_name[i] ? !strcmp(c->arg_name[i], "ignore") : i == 2))
      vec_push(e->arena, e->ignored, (Ignored){labels->input->name, (int64_t)c->arg[i].number});
}

static Val call_declared(Eval *e, const Decl *d, Call *c) {
  if (d->item->kind == ITEM_LAYOUT) {
    eval_error(e, "E0402", c->span, "`%s` is a layout, not a function", d->name);
    return val_poison();
  }
  if (d->item->kind == ITEM_EXTERN) return call_extern(e, d, c);
  if (d->std && !strcmp(d->name, "attention")) return eval_attention(e, c);
  if (d->std && !strcmp(d->name, "dropout") && c->n) {
    if (!drops_a_share(e, c)) return val_poison();
    if (dropout_is_off(e, c)) return c->arg[0];
  }
  if (d->std && !strcmp(d->name, "cross_entropy")) note_ignored(e, c);
  return call_function(e, d, c);
}

Val eval_call(Eval *e, Env *env, const AstExpr *x, const AstExpr *receiver) {
  bool callable = x->kind == EXPR_NAME || x->kind == EXPR_AXES || x->kind == EXPR_CALL;
  if (!callable) {
    eval_error(e, "E0204", x->span, "the right side of `|>` is a function or a sub");
    return val_poison();
  }
  Call c = {0};
  const Val *sub = env_find(env, x->name.text);
  const Decl *d = world_find(e->w, SPACE_FN, x->name.text, env->std);
  const Builtin *b = builtin_find(x->name.text, x->axes != NULL);
  if (sub && sub->kind == VAL_POISON && !d && !b) return val_poison();
  if (sub && sub->kind != VAL_SUB) sub = NULL;
  if (!sub && !d && b && !strcmp(b->name, "iota")) return eval_iota(e, env, x);
  if (!start_call(e, env, x, receiver, &c) || poisoned(&c)) return val_poison();
  if (sub) return call_instance(e, sub->sub, &c);
  if (d) return call_declared(e, d, &c);
  if (b) return call_builtin(e, b, &c);
  if (mask_function(c.name)) return mask_call(e, &c);
  if (call_is_initialiser(c.name)) return call_init(e, &c);
  no_function(e, env, &c);
  return val_poison();
}
