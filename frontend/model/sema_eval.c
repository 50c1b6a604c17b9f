/* Expressions: from the tree to a value. This file looks up names; operators are in sema_ops*.c,
   calls in sema_call.c. An invalid value is poisoned; values computed from it are also poisoned,
   without a diagnostic. */
#include "frontend/syntax/foreign_words.h"
#include "sema_mask.h"
#include "sema_rule.h"
#include <math.h>
#include <string.h>

Eval *eval_new(World *w, Sizes *s, Mode mode, Build *build) {
  Eval *e = ARENA_NEW(w->ctx->arena, Eval);
  e->w = w, e->ctx = w->ctx, e->arena = w->ctx->arena, e->sizes = s, e->mode = mode,
  e->build = build;
  e->path = "";
  return e;
}

static const Site *outermost_library_site(const Eval *e) {
  const Site *found = NULL;
  for (const Site *s = e->site; s && s->decl->std; s = s->up) found = s;
  return found;
}

Span eval_users_span(const Eval *e, Span s) {
  const Site *library = outermost_library_site(e);
  return library ? library->span : s;
}

static bool lies_in(Span inner, Span outer) {
  return inner.file == outer.file && inner.offset >= outer.offset &&
         inner.offset + inner.length <= outer.offset + outer.length;
}

/* Mistakes that show up inside a body of the library belong to the user's line that used it; in a
   function of the user both places are shown. */
Report *eval_error(Eval *e, const char *code, Span s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(e->arena, format, args);
  va_end(args);
  const Site *library = outermost_library_site(e);
  bool inside = library && s.file == e->w->std;
  Report *r = world_error(e->w, code, inside ? library->span : s, "%s", text);
  if (inside)
    diag_fact(r, "in the library's `%s`, %s", library->decl->name,
              world_place(e->w, library->span, s));
  const Site *user = inside ? library->up : e->site;
  if (user && user->decl->space == SPACE_FN && user->span.file && !lies_in(s, user->span))
    diag_also(r, user->span, "in this use of `%s`", user->decl->name);
  return r;
}

int64_t eval_size(Eval *e, Str dim) {
  int64_t size = size_of(e->sizes, dim);
  if (size != SIZE_OPEN || !e->sized) return size;
  const DimInfo *info = sizes_find(e->sizes, dim);
  Report *r = world_error(e->w, "E0308", info->def->name.span, "dimension `%s` has no size",
                          info->decl->name);
  diag_label(r, "open, and this command needs its size");
  if (e->train)
    diag_also(r, e->train->name.span, "train block `%s` gives none", e->train->name.text);
  diag_help(r, "give it one: `size %s = 64` in the train block, or `-D %s=64`", info->decl->name,
            info->decl->name);
  return SIZE_BAD;
}

int64_t eval_sizes(Eval *e, const Dims *dims) {
  int64_t n = 1;
  for (int i = 0; i < dims->n; i++) {
    int64_t size = eval_size(e, dims->at[i]);
    if (size <= 0) return size;
    if (n > INT64_MAX / size) return SIZE_BAD;
    n *= size;
  }
  return n;
}

static Val size_number(Eval *e, const Dims *dims) {
  int64_t n = eval_sizes(e, dims);
  return n > 0 ? val_number((double)n) : n == SIZE_OPEN ? val_open_number() : val_poison();
}

enum { FEW_VARS = 32 };

const Val *env_find(const Env *env, Str name) {
  uint32_t at;
  if (env->index) return names_find(env->index, 0, name, &at) ? &env->vars.at[at].val : NULL;
  for (uint32_t i = env->vars.n; i-- > 0;)
    if (env->vars.at[i].name == name) return &env->vars.at[i].val;
  return NULL;
}

void env_set(Eval *e, Env *env, Str name, Val v) {
  vec_push(e->arena, env->vars, (Binding){name, v});
  if (env->index) names_put(env->index, 0, name, env->vars.n - 1);
  if (env->index || env->vars.n < FEW_VARS) return;
  env->index = names_new(e->arena);
  for (uint32_t i = 0; i < env->vars.n; i++) names_put(env->index, 0, env->vars.at[i].name, i);
}

static void no_value(Eval *e, const Env *env, const AstExpr *expr) {
  static const char *const words[] = {"none", "on", "off", "pi", "inf", "causal", "all"};
  VEC(const char *) names = {0};
  uint32_t at = 0;
  if (world_lost(e->w, SPACE_CONST) || world_lost(e->w, SPACE_DIM)) return;
  for (uint32_t i = 0; i < env->vars.n; i++)
    if (env->vars.at[i].val.kind != VAL_SUB) vec_push(e->arena, names, env->vars.at[i].name);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) vec_push(e->arena, names, words[i]);
  for (const Decl *decl; (decl = world_next(e->w, SPACE_CONST, &at));)
    vec_push(e->arena, names, decl->name);
  for (uint32_t i = 0; i < e->sizes->n; i++) vec_push(e->arena, names, e->sizes->dim[i].decl->name);
  const char *near = names.n ? foreign_or_near(expr->name.text, names.at, names.n) : NULL;
  Report *r = eval_error(e, "E0201", expr->span, "no value named `%s`", expr->name.text);
  if (world_find(e->w, SPACE_FN, expr->name.text, env->std) || builtin_find(expr->name.text, false))
    diag_help(r, "`%s` is a function: it needs operands in round brackets", expr->name.text);
  else diag_near(r, "a value", near);
}

Val eval_layout(Eval *e, const Decl *decl) {
  Env env = {0};
  Dims axes;
  if (!decl->item->axes || !dims_resolve(e, &env, &decl->item->axes->groups.at[0].from, &axes))
    return val_poison();
  Val v = eval_expr(e, &env, decl->item->value);
  if (v.kind == VAL_POISON) return v;
  if (v.kind != VAL_MASK) {
    eval_error(e, "E0402", decl->item->value->span, "a layout is a mask, not %s",
               kind_text(e->ctx, &v));
    return val_poison();
  }
  Mask *mask = ARENA_NEW(e->arena, Mask);
  Mask *all = ARENA_NEW(e->arena, Mask);
  *mask = *v.mask;
  if (v.mask->layout.n)
    *mask = (Mask){.kind = MASK_AND, .a = v.mask, .b = all}; /* it has its own */
  mask->layout = axes, v.mask = mask;
  if (axes.n >= 2)
    mask_note(e, &(MaskUse){decl->name, mask, axes.at[axes.n - 2], axes.at[axes.n - 1],
                            decl->item->value->span});
  return v;
}

static Val word_value(Str n, bool *found) {
  Val v = {.kind = VAL_NONE, .id = NO_VALUE};
  *found = true;
  if (!strcmp(n, "none")) return v;
  if (!strcmp(n, "on") || !strcmp(n, "off")) return v.kind = VAL_FLAG, v.number = n[1] == 'n', v;
  if (!strcmp(n, "pi")) return val_number(3.14159265358979323846);
  if (!strcmp(n, "inf")) return val_number(INFINITY);
  *found = false;
  return v;
}

static void use_param(const Eval *e, const Val *v) {
  if (!v->param) return;
  v->param->seen = true, v->param->uses++;
  v->param->used |= !e->idle;
}

static Val name_value(Eval *e, Env *env, const AstExpr *expr) {
  Str n = expr->name.text;
  const Val *v = env_find(env, n);
  if (v && v->kind == VAL_SUB) {
    eval_error(e, "E0402", expr->span, "`%s` is a sub, not a value: call it with operands", n);
    return val_poison();
  }
  if (v) use_param(e, v);
  if (v) return rule_view(e, v);
  const Dims *axis = axis_find(&env->axes, n);
  if (axis) return size_number(e, axis);
  bool found;
  Val word = word_value(n, &found);
  if (found) return word;
  if (mask_word(n)) return mask_of_word(e, n, expr->span);
  const Decl *decl = world_find(e->w, SPACE_FN, n, env->std);
  if (decl && decl->item->kind == ITEM_LAYOUT) return eval_layout(e, decl);
  if (world_find(e->w, SPACE_CONST, n, false) || sizes_find(e->sizes, n)) {
    double number;
    Dims one = {.n = 1, .at = {n}};
    if (!world_find(e->w, SPACE_CONST, n, false)) return size_number(e, &one);
    NumState s = number_eval(e->sizes, expr, &number);
    return s == NUM_KNOWN ? val_number(number) : s == NUM_OPEN ? val_open_number() : val_poison();
  }
  no_value(e, env, expr);
  return val_poison();
}

/* head.w: a parameter of a sub. */
static Val field_value(Eval *e, Env *env, const AstExpr *x) {
  const Env *at = env;
  const AstExpr *path[16];
  int n = 0;
  for (const AstExpr *p = x; p && n < 16; p = p->kind == EXPR_FIELD ? p->base : NULL) path[n++] = p;
  while (n > 0) {
    const AstExpr *p = path[--n];
    const Val *v =
        p->kind == EXPR_NAME || p->kind == EXPR_FIELD ? env_find(at, p->name.text) : NULL;
    if (!v || (n && v->kind != VAL_SUB) || (!n && v->kind == VAL_SUB)) {
      Report *r = eval_error(e, "E0201", p->name.span, "no %s named `%s` is defined",
                             n ? "sub" : "parameter", p->name.text);
      diag_help(r, "`name.part` is a parameter of a sub");
      return val_poison();
    }
    if (!n) use_param(e, v);
    if (!n) return rule_view(e, v);
    if (v->sub->stack) {
      eval_error(e, "E0402", p->name.span, "`%s` is a stack: its parameters differ by round",
                 p->name.text);
      return val_poison();
    }
    at = &v->sub->env;
  }
  return val_poison();
}

static Val list_value(Eval *e, Env *env, const AstExpr *expr) {
  Val *items = ARENA_ARRAY(e->arena, Val, expr->args.n + 1);
  for (uint32_t i = 0; i < expr->args.n; i++) {
    items[i] = eval_expr(e, env, expr->args.at[i].value);
    if (items[i].kind == VAL_POISON) return val_poison();
  }
  return (Val){.kind = VAL_LIST, .items = items, .nitems = (int)expr->args.n, .id = NO_VALUE};
}

static Val number_value(Eval *e, const AstExpr *expr) {
  if (expr->number.unit == UNIT_NONE || expr->number.unit == UNIT_SHARE)
    return val_number(expr->number.value);
  eval_error(e, "E0102", expr->span, "a plain number is required, not `%s`",
             expr->number.text ? expr->number.text : "one with a unit");
  return val_poison();
}

static Val binary_value(Eval *e, Env *env, const AstExpr *expr) {
  Val a = eval_expr(e, env, expr->left);
  Val b = eval_expr(e, env, expr->right);
  return eval_binary(e, env, expr, &a, &b);
}

static Val dispatch(Eval *e, Env *env, const AstExpr *expr) {
  switch (expr->kind) {
  case EXPR_NUMBER: return number_value(e, expr);
  case EXPR_STRING: return (Val){.kind = VAL_STRING, .string = expr->string, .id = NO_VALUE};
  case EXPR_NAME: return name_value(e, env, expr);
  case EXPR_FIELD: return field_value(e, env, expr);
  case EXPR_LIST: return list_value(e, env, expr);
  case EXPR_GATHER: return eval_gather(e, env, expr);
  case EXPR_CALL: return eval_call(e, env, expr, NULL);
  case EXPR_UNARY: {
    Val a = eval_expr(e, env, expr->right);
    return eval_negate(e, expr, &a);
  }
  case EXPR_BINARY: return binary_value(e, env, expr);
  case EXPR_PIPE: return eval_call(e, env, expr->right, expr);
  case EXPR_AXES:
    eval_error(e, "E0204", expr->span, "`%s` needs operands in round brackets", expr->name.text);
    return val_poison();
  }
  return val_poison();
}

/* Elements and bytes are counted in 63 bits, over all rounds of stacks. */
bool eval_is_countable(Eval *e, const Dims *dims, const Dims *rounds, Span at, const char *what) {
  static const double most = (double)(1ll << 50);
  double n = 1;
  for (int i = 0; i < dims->n + rounds->n; i++) {
    int64_t size = size_of(e->sizes, i < dims->n ? dims->at[i] : rounds->at[i - dims->n]);
    if (size <= 0) return true; /* open, or was reported */
    n *= (double)size;
  }
  if (n <= most) return true;
  Report *r = eval_error(e, "E0313", at, "%s of %.3g elements", what, n);
  diag_label(r, "at most 2^50 can be addressed");
  return false;
}

bool eval_is_short(Eval *e, Str path, Span at) {
  if (strlen(path) <= PATH_BYTES) return true;
  Report *r = eval_error(e, "E0103", at, "path of %zu bytes", strlen(path));
  diag_label(r, "at most %d, with the names of the layers around it", PATH_BYTES);
  return false;
}

static void meet(Eval *e, const Dims *dims) {
  for (int i = 0; i < dims->n; i++) {
    DimInfo *info = sizes_find(e->sizes, dims->at[i]);
    if (info) info->met = true;
  }
}

/* A tensor has at most MAX_RANK dims, none of them twice. */
static Val checked(Eval *e, const AstExpr *expr, Val v) {
  Str twice = dims_repeated(&v.dims);
  for (int i = 0; i < v.dims.n && v.kind != VAL_POISON; i++)
    if (dims_has(&e->running, v.dims.at[i])) {
      Report *r = eval_error(e, "E0203", expr->span,
                             "a value inside a stack has the stack's dimension `%s`", v.dims.at[i]);
      diag_fact(r, "`%s` counts the rounds", v.dims.at[i]);
      return val_poison();
    }
  if (v.kind == VAL_POISON || v.kind == VAL_SUB) return v;
  meet(e, &v.dims);
  if (v.dims.n <= MAX_RANK && !twice)
    return eval_is_countable(e, &v.dims, &e->running, expr->span, "a value") ? v : val_poison();
  if (twice) {
    Report *r =
        eval_error(e, "E0203", expr->span, "the result would have dimension `%s` twice", twice);
    diag_label(r, "would be %s", dims_text(e->ctx, &v.dims));
    diag_help(r, "give one of them another name first: `rename[%s -> ..](..)`", twice);
  } else
    eval_error(e, "E0204", expr->span, "a value with %d dimensions; at most %d are possible",
               v.dims.n, MAX_RANK);
  return val_poison();
}

enum { MOST_STEPS = 1 << 21 };

/* Forty functions that call the one before twice are 2^40 ops. */
static Val too_many(Eval *e, const AstExpr *expr) {
  if (e->steps == MOST_STEPS + 1)
    diag_help(eval_error(e, "E0202", expr->span, "functions expand to more than %d expressions",
                         MOST_STEPS),
              "a `stack` repeats a layer without copying it");
  return val_poison();
}

Val eval_expr(Eval *e, Env *env, const AstExpr *expr) {
  if (!expr) return val_poison();
  if (e->depth > 400) {
    eval_error(e, "E0202", expr->span, "expressions or functions nested too deeply");
    return val_poison();
  }
  if (++e->steps > MOST_STEPS) return too_many(e, expr);
  Span here = e->here;
  if (!outermost_library_site(e)) e->here = expr->span;
  e->depth++;
  Val v = checked(e, expr, dispatch(e, env, expr));
  e->depth--;
  e->here = here;
  watch_value(e, expr->span, &v);
  return v;
}

void eval_knows(Eval *e, const char *key, double number, Span at) {
  for (uint32_t i = 0; i < e->known.n; i++)
    if (!strcmp(e->known.at[i].key, key) && e->known.at[i].number == number) return;
  vec_push(e->arena, e->known, (KnownNumber){key, number, at});
}

const KnownNumber *eval_known(const Eval *e, const char *key) {
  const KnownNumber *found = NULL;
  for (uint32_t i = 0; i < e->known.n; i++) {
    if (strcmp(e->known.at[i].key, key)) continue;
    if (found) return NULL;
    found = &e->known.at[i];
  }
  return found;
}

/* Norms of the library, by the names of config.json. */
void eval_notes_option(Eval *e, const Instance *instance, Str option, const Val *v) {
  const Decl *layer = instance->layer;
  if (!layer->std || strcmp(option, "eps") || v->kind != VAL_NUMBER || !v->known) return;
  if (!strcmp(layer->name, "RMSNorm")) eval_knows(e, "rms_norm_eps", v->number, instance->span);
  if (!strcmp(layer->name, "LayerNorm")) eval_knows(e, "layer_norm_eps", v->number, instance->span);
}
