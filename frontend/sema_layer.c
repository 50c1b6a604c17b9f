/* Layers. `sub` and `stack` make instances: parameters with their paths, options, and the subs
   inside. Calling an instance walks its body with the operands; calling it twice shares the
   parameters. What a body returns is compared with what the layer declares, and a dim that got its
   prime inside loses it here. */
#include "frontend/keywords.h"
#include "frontend/sema.h"
#include "frontend/lower_emit.h"
#include <string.h>

/* ---- parameters ---- */

static void read_attrs(Eval *e, const AstAttrs *attrs, Param *p) {
  for (uint32_t i = 0; i < attrs->n; i++) {
    const AstAttr *a = &attrs->at[i];
    if (!strcmp(a->name.text, "nodecay")) p->nodecay = true;
    else if (!strcmp(a->name.text, "frozen")) p->frozen = true;
    else if (!strcmp(a->name.text, "f32")) p->f32 = true;
    else {
      static const char *const names[] = {"nodecay", "f32", "frozen"};
      Report *r = eval_error(e, "E0201", a->name.span, "no attribute named `@%s`", a->name.text);
      const char *near = diag_nearest(a->name.text, names, 3);
      diag_help(r, "the attributes of a parameter are @nodecay, @f32, @frozen");
      if (near) diag_edit(r, a->name.span, "%s", near);
    }
  }
}

static bool check_init(Eval *e, const AstStmt *s, const Val *v) {
  if (v->kind == VAL_POISON) return false;
  bool number = v->kind == VAL_NUMBER || (v->kind == VAL_FLOAT && v->rounds);
  if (s->random ? v->kind == VAL_INIT : number || v->kind == VAL_NONE) return true;
  Report *r = eval_error(e, "E0402", s->value->span, "parameter `%s` cannot begin as %s",
                         s->names.at[0].text, kind_text(e->ctx, v));
  if (s->random)
    diag_help(
        r, "after `~` stands an initialiser, such as `normal(0.02)`; a constant comes after `=`");
  else
    diag_help(r, "after `=` stands a number or `none`; an initialiser such as `normal(0.02)` comes "
                 "after `~`");
  return false;
}

static Span reader_span(const Eval *e, Span own) {
  Span s = own;
  for (const Site *site = e->site; site && site->decl->std; site = site->up) s = site->span;
  return s;
}

static bool param_dims(Eval *e, const Env *env, const AstStmt *s, Dims *out) {
  if (s->axes->groups.n != 1 || s->axes->groups.at[0].arrow)
    return eval_error(e, "E0204", s->axes->span, "a parameter has one list of dimensions"), false;
  if (!dims_resolve(e, env, &s->axes->groups.at[0].from, out)) return false;
  for (int i = 0; i < out->n; i++)
    if (!strcmp(out->at[i], "Batch"))
      return eval_error(e, "E0204", s->axes->span,
                        "`%s` has dimension Batch: a parameter is one "
                        "for all samples",
                        s->names.at[0].text),
             false;
  Str twice = dims_repeated(out);
  for (int i = 0; i < out->n; i++)
    if (dims_has(&e->lead, out->at[i])) {
      Report *r = eval_error(e, "E0203", s->axes->span, "`%s` has the dimension `%s` of its stack",
                             s->names.at[0].text, out->at[i]);
      diag_fact(r, "one is stored per round already: `[%s, ..]`", out->at[i]);
      return false;
    }
  if (!twice) return true;
  Report *r = eval_error(e, "E0203", s->axes->span, "`%s` has dimension `%s` twice",
                         s->names.at[0].text, twice);
  diag_help(r, "a second axis of the same length is another dimension: `dims { Other like %s }`",
            twice);
  return false;
}

static void declare_param(Eval *e, Env *env, const AstStmt *s) {
  Dims d;
  Val poison = val_poison();
  bool ok = param_dims(e, env, s, &d);
  Val init = eval_expr(e, env, s->value);
  if (!check_init(e, s, &init) || !ok) {
    env_set(e, env, s->names.at[0].text, poison);
    return;
  }
  if (init.kind == VAL_NONE) {
    init.known = true; /* an absent parameter: terms with it vanish */
    env_set(e, env, s->names.at[0].text, init);
    return;
  }
  Param *p = ARENA_NEW(e->arena, Param);
  p->path = intern_printf(e->ctx->names, "%s%s", e->path, s->names.at[0].text);
  p->dims = d, p->lead = e->lead, p->init = init, p->decl = s,
  p->span = reader_span(e, s->names.at[0].span);
  read_attrs(e, &s->attrs, p);
  vec_push(e->arena, e->params, p);
  for (int i = 0; i < d.n; i++) eval_size(e, d.at[i]);
  eval_is_countable(e, &d, &p->lead, s->axes->span, "a parameter");
  if (d.n + p->lead.n > MAX_RANK)
    eval_error(e, "E0204", s->axes->span,
               "a parameter of more than %d dimensions, those of its stacks included", MAX_RANK);
  Val v = val_tensor(VAL_FLOAT, d);
  v.param = p;
  env_set(e, env, s->names.at[0].text, v);
}

/* ---- instances ---- */

static const Decl *find_layer(Eval *e, const Env *env, const AstName *n) {
  const Decl *d = world_find(e->w, SPACE_LAYER, n->text, env->std);
  if (d) return d;
  if (world_lost(e->w, SPACE_LAYER) || world_misses_library(e->w, SPACE_LAYER, n->span, n->text))
    return NULL;
  Report *r = eval_error(e, "E0201", n->span, "no layer named `%s`", n->text);
  static const char *const known[] = {"LayerNorm", "Linear"};
  const char *foreign = keyword_foreign(n->text, known, 2);
  if (foreign && world_find(e->w, SPACE_LAYER, intern(e->ctx->names, foreign), false)) {
    diag_help(r, "here that is `%s`", foreign);
    diag_edit(r, n->span, "%s", foreign);
  } else diag_near(r, "a layer", world_nearest(e->w, SPACE_LAYER, n->text));
  return NULL;
}

typedef struct Given { /* one evaluated option */
  const AstOption *ast;
  Val val;
  bool used;
} Given;

static const Val *given_value(Given *g, uint32_t n, Str name) {
  for (uint32_t i = 0; i < n; i++)
    if (g[i].ast->name.text == name) return g[i].used = true, &g[i].val;
  return NULL;
}

static void set_options(Eval *e, Instance *i, Given *g, uint32_t n) {
  const AstOptions *options = &i->layer->item->with;
  for (uint32_t k = 0; k < options->n; k++) {
    const Val *v = given_value(g, n, options->at[k].name.text);
    env_set(e, &i->env, options->at[k].name.text,
            v ? *v : eval_expr(e, &i->env, options->at[k].value));
  }
}

static bool is_declaration(const AstStmt *s) {
  return s->kind == STMT_PARAM || s->kind == STMT_SUB || s->kind == STMT_STACK;
}

static void declare_body(Eval *e, Instance *i) {
  const AstStmts *body = &i->layer->item->body;
  for (uint32_t k = 0; k < body->n; k++)
    if (is_declaration(body->at[k])) eval_declare(e, &i->env, body->at[k]);
}

/* `where`: what the user wrote to make it. */
static Instance *make_instance(Eval *e, const Decl *d, const AxisGroups *axes, Given *g, uint32_t n,
                               Str path, Span where) {
  if (d->item->bad || eval_inside(e, d, where)) return NULL;
  Instance *i = ARENA_NEW(e->arena, Instance);
  if (!d->std) names_put(e->w->walked, 0, d->name, 1);
  i->layer = d, i->path = path, i->span = where, i->env.std = d->std;
  if (!axes_bind(e, d->item->axes, axes, where, d->name, true, &i->env.axes)) return NULL;
  Site site = {d, where, e->site};
  Str outer = e->path;
  e->site = &site, e->path = path;
  set_options(e, i, g, n);
  declare_body(e, i);
  e->site = site.up, e->path = outer;
  return i;
}

static Str joined(Eval *e, const char *const *names, uint32_t n) {
  Str s = "";
  for (uint32_t i = 0; i < n; i++) s = arena_printf(e->arena, "%s%s%s", s, i ? ", " : "", names[i]);
  return s;
}

/* Options that no layer took. `d`: the layer, where there is only one. */
static void check_given(Eval *e, const Given *g, uint32_t n, const Decl *d, Str layer) {
  for (uint32_t i = 0; i < n; i++) {
    if (g[i].used) continue;
    VEC(const char *) names = {0};
    const AstOptions *has = d ? &d->item->with : NULL;
    for (uint32_t k = 0; has && k < has->n; k++) vec_push(e->arena, names, has->at[k].name.text);
    Report *r = eval_error(e, "E0601", g[i].ast->name.span, "`%s` has no option `%s`", layer,
                           g[i].ast->name.text);
    diag_label(r, "unknown option");
    if (has && has->n) diag_fact(r, "its options: %s", joined(e, names.at, names.n));
    else if (has) diag_fact(r, "it has no options");
    diag_near(r, "an option",
              names.n ? diag_nearest(g[i].ast->name.text, names.at, names.n) : NULL);
  }
}

static Given *read_options(Eval *e, Env *env, const AstOptions *with) {
  Given *g = ARENA_ARRAY(e->arena, Given, with->n + 1);
  for (uint32_t i = 0; i < with->n; i++)
    g[i] = (Given){&with->at[i], eval_expr(e, env, with->at[i].value), false};
  return g;
}

static Val sub_value(Instance *i) {
  return i ? (Val){.kind = VAL_SUB, .sub = i, .id = NO_VALUE} : val_poison();
}

static void declare_sub(Eval *e, Env *env, const AstStmt *s) {
  AxisGroups axes;
  Str name = s->names.at[0].text;
  const Decl *d = find_layer(e, env, &s->of.at[0]);
  Given *g = read_options(e, env, &s->with);
  bool ok = axes_resolve(e, env, s->axes, &axes);
  Instance *i = NULL;
  if (d && ok)
    i = make_instance(e, d, &axes, g, s->with.n,
                      intern_printf(e->ctx->names, "%s%s.", e->path, name), s->of.at[0].span);
  if (i) i->name = name, check_given(e, g, s->with.n, d, d->name);
  env_set(e, env, name, sub_value(i));
}

/* ---- stacks ---- */

/* A list of numbers gives each round its own. */
static void option_rounds(Eval *e, Given *g, const Stack *k) {
  if (g->val.kind != VAL_LIST || !g->val.items) return;
  for (int i = 0; i < g->val.nitems; i++)
    if (g->val.items[i].kind != VAL_NUMBER) return;
  int64_t rounds = eval_size(e, k->dim);
  if (rounds > 0 && rounds != g->val.nitems) {
    Report *r =
        eval_error(e, "E0307", g->ast->value->span, "`%s` has %d values for %lld rounds of `%s`",
                   g->ast->name.text, g->val.nitems, (long long)rounds, k->name);
    diag_label(r, "one value per %s is wanted", k->dim);
  }
  Val v = val_tensor(VAL_FLOAT, (Dims){0});
  v.rounds = k, v.items = g->val.items, v.nitems = g->val.nitems;
  g->val = v;
}

static bool stack_dim(Eval *e, const Env *env, const AstStmt *s, Str *dim) {
  Dims d;
  if (!dims_resolve(e, env, &s->axes->groups.at[0].from, &d)) return false;
  if (s->axes->groups.n != 1 || d.n != 1 || s->axes->groups.at[0].arrow)
    return eval_error(e, "E0204", s->axes->span, "a stack has one dimension"), false;
  if (dims_has(&e->lead, d.at[0]))
    return eval_error(e, "E0203", s->axes->span,
                      "a stack around this one has dimension `%s` already", d.at[0]),
           false;
  *dim = d.at[0];
  eval_size(e, d.at[0]);
  return true;
}

static bool fill_stack(Eval *e, Env *env, const AstStmt *s, Stack *k, Given *g) {
  AxisGroups none = {0};
  bool ok = true;
  k->body = ARENA_ARRAY(e->arena, Instance *, s->of.n);
  for (; k->n < s->of.n; k->n++) {
    const Decl *d = find_layer(e, env, &s->of.at[k->n]);
    Str path = intern_printf(e->ctx->names, "%s%s.*.", e->path, k->name);
    if (s->of.n > 1) path = intern_printf(e->ctx->names, "%s%u.", path, k->n);
    Instance *i = d ? make_instance(e, d, &none, g, s->with.n, path, s->of.at[k->n].span) : NULL;
    k->body[k->n] = i;
    if (i) i->name = s->of.at[k->n].text;
    ok &= i != NULL;
  }
  return ok;
}

static void declare_stack(Eval *e, Env *env, const AstStmt *s) {
  Stack *k = ARENA_NEW(e->arena, Stack);
  Instance *i = ARENA_NEW(e->arena, Instance);
  Str name = s->names.at[0].text;
  k->name = name, k->span = s->span, k->outer = e->stack,
  k->depth = e->stack ? e->stack->depth + 1 : 1;
  Given *g = read_options(e, env, &s->with);
  if (!stack_dim(e, env, s, &k->dim)) {
    env_set(e, env, name, val_poison());
    return;
  }
  for (uint32_t o = 0; o < s->with.n; o++) option_rounds(e, &g[o], k);
  const Stack *outer = e->stack;
  e->stack = k, dims_add(&e->lead, k->dim);
  bool ok = fill_stack(e, env, s, k, g);
  e->stack = outer, e->lead.n--;
  if (ok) check_given(e, g, s->with.n, k->n == 1 ? k->body[0]->layer : NULL, name);
  i->stack = k, i->name = name, i->span = s->of.at[0].span;
  env_set(e, env, name, ok ? sub_value(i) : val_poison());
}

void eval_declare(Eval *e, Env *env, const AstStmt *s) {
  Str name = s->names.at[0].text;
  if (env_find(env, name)) {
    Report *r =
        eval_error(e, "E0203", s->names.at[0].span, "`%s` is declared twice in this body", name);
    diag_label(r, "an option, parameter, sub or input has this name already");
    return;
  }
  if (s->kind == STMT_PARAM) declare_param(e, env, s);
  else if (s->kind == STMT_SUB) declare_sub(e, env, s);
  else declare_stack(e, env, s);
}

/* ---- calling ---- */

static Kind formal_kind(Eval *e, const Env *env, const AstType *t, Str *of) {
  *of = NULL;
  if (t->of.text) {
    const Dims *bound = axis_find(&env->axes, t->of.text);
    *of = bound && bound->n == 1 ? bound->at[0] : t->of.text;
    if (!sizes_find(e->sizes, *of)) explain_no_dim(e->w, t->of.span, *of);
    return VAL_INDEX;
  }
  if (!t->elem.text || !strcmp(t->elem.text, "f32")) return VAL_FLOAT;
  if (!strcmp(t->elem.text, "i32")) return VAL_INT;
  if (!strcmp(t->elem.text, "bool")) return VAL_BOOL;
  static const char *const types[] = {"f32", "i32", "bool"};
  const char *near = keyword_meant(t->elem.text, types, 3);
  Report *r = eval_error(e, "E0201", t->elem.span, "no element type named `%s`", t->elem.text);
  if (near) diag_edit(r, t->elem.span, "%s", near);
  diag_help(r, "element types are f32, i32, bool, and `of D` for an index");
  return VAL_POISON;
}

/* The type of an input or formal; false if it names something unknown. `*` stays in the list. */
bool type_resolve(Eval *e, const Env *env, const AstType *t, Val *out) {
  Str of;
  Dims d = {0};
  bool ok = !t->axes || (t->axes->groups.n == 1 && !t->axes->groups.at[0].arrow);
  if (!ok) eval_error(e, "E0204", t->axes->span, "a type has one list of dimensions");
  if (t->axes && ok) ok = dims_resolve(e, env, &t->axes->groups.at[0].from, &d);
  Kind k = formal_kind(e, env, t, &of);
  *out = val_tensor(k, d);
  out->of = of;
  return ok && k != VAL_POISON && (k != VAL_INDEX || sizes_find(e->sizes, of));
}

static Dims without_star(Eval *e, const Dims *d, bool *open) {
  Dims star = {.n = 1, .at = {intern(e->ctx->names, "*")}}, named = dims_without(d, &star);
  *open = named.n != d->n;
  return named;
}

/* The dim that may stand for `want`: one that is `like` it, or the only other one of its size. */
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

static void wrong_dims(Eval *e, const Instance *i, Str formal, const AstType *type,
                       const Dims *want, const Dims *named, const Dims *have, bool open, Span at) {
  Report *r = eval_error(e, "E0304", at, "operand `%s` of `%s` wants %s", formal, i->name,
                         dims_text(e->ctx, want));
  diag_label(r, "has %s", dims_text(e->ctx, have));
  Dims missing = dims_without(named, have), extra = dims_without(have, named);
  if (missing.n)
    diag_fact(r, "%s %s missing", dims_names(e->ctx, &missing), missing.n > 1 ? "are" : "is");
  if (extra.n && !open)
    diag_fact(r, "%s %s not wanted", dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
  if (i->layer->std) diag_also(r, i->span, "`%s` is declared here", i->name);
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

static bool check_operand(Eval *e, Instance *i, uint32_t k, const Val *v, Span at, Dims *rest) {
  const AstFormal *f = &i->layer->item->formals.at[k];
  Val want;
  bool open;
  if (!type_resolve(e, &i->env, f->type, &want)) return false;
  Dims named = without_star(e, &want.dims, &open);
  if (open && k == 0) *rest = dims_without(&v->dims, &named);
  if (!fits_kind(&want, v)) {
    Report *r = eval_error(e, want.kind == VAL_INDEX && val_is_real(v) ? "E0401" : "E0402", at,
                           "operand `%s` of `%s` wants %s", f->name.text, i->name,
                           kind_text(e->ctx, &want));
    diag_label(r, "is %s", kind_text(e->ctx, v));
    return false;
  }
  if (open ? dims_subset(&named, &v->dims) : dims_same(&named, &v->dims)) return true;
  wrong_dims(e, i, f->name.text, f->type, &want.dims, &named, &v->dims, open, at);
  return false;
}

/* ---- what comes back ---- */

static void wrong_result(Eval *e, const Instance *i, const Env *env, const Dims *declared,
                         const Dims *want, const Val *v, Span at) {
  Report *r = eval_error(e, "E0304", at, "`%s` is declared to return %s", i->layer->name,
                         dims_text(e->ctx, declared));
  diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  Dims missing = dims_without(want, &v->dims), extra = dims_without(&v->dims, want);
  if (missing.n)
    diag_fact(r, "%s %s missing", dims_names(e->ctx, &missing), missing.n > 1 ? "are" : "is");
  if (extra.n)
    diag_fact(r, "%s %s not wanted", dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
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

static Val check_result(Eval *e, const Instance *i, const Env *env, const Dims *rest, Val v,
                        Span at) {
  Val want;
  bool open;
  if (v.kind == VAL_POISON || !type_resolve(e, &i->env, i->layer->item->result, &want))
    return val_poison();
  Dims named = without_star(e, &want.dims, &open);
  for (int k = 0; open && k < rest->n; k++)
    if (!dims_has(&named, rest->at[k])) dims_add(&named, rest->at[k]);
  if (!fits_kind(&want, &v)) {
    Report *r = eval_error(e, "E0402", at, "`%s` is declared to return %s", i->layer->name,
                           kind_text(e->ctx, &want));
    diag_label(r, "is %s", kind_text(e->ctx, &v));
    return val_poison();
  }
  if (!dims_same(&named, &v.dims)) {
    wrong_result(e, i, env, &want.dims, &named, &v, at);
    return val_poison();
  }
  return strip_primes(e, v);
}

static Env body_env(Eval *e, const Instance *i) {
  Env env = {.axes = i->env.axes, .std = i->env.std};
  for (uint32_t k = 0; k < i->env.vars.n; k++) vec_push(e->arena, env.vars, i->env.vars.at[k]);
  return env;
}

Val call_layer_body(Eval *e, Instance *i, int n, const Val *args, const Span *spans, Span where) {
  const AstItem *item = i->layer->item;
  Dims rest = {0};
  Env env = body_env(e, i);
  bool ok = true;
  if (item->formals.n != (uint32_t)n) {
    Report *r = eval_error(e, "E0204", where, "`%s` takes %u operand%s, not %d", i->name,
                           item->formals.n, item->formals.n == 1 ? "" : "s", n);
    if (!i->layer->std) diag_also(r, item->name.span, "declared here");
    return val_poison();
  }
  for (uint32_t k = 0; k < item->formals.n; k++) {
    if (!check_operand(e, i, k, &args[k], spans[k], &rest)) {
      ok = false;
      continue;
    }
    env_set(e, &env, item->formals.at[k].name.text, args[k]);
  }
  if (!ok || eval_inside(e, i->layer, where)) return val_poison();
  Site site = {i->layer, where, e->site};
  Span returned = item->name.span, outer_here = e->here;
  const Instance *outer_self = e->self;
  e->site = &site, e->self = i;
  Val v = eval_body(e, &env, &item->body, &returned);
  v = check_result(e, i, &env, &rest, v, returned);
  e->site = site.up, e->here = outer_here, e->self = outer_self;
  return v;
}

/* One round: each layer of the list in order; the first operand goes through, the others stay. */
static Val call_round(Eval *e, const Stack *k, int n, Val *args, const Span *spans, Span where) {
  for (uint32_t b = 0; b < k->n; b++) {
    args[0] = call_layer_body(e, k->body[b], n, args, spans, where);
    if (args[0].kind == VAL_POISON) return args[0];
  }
  return args[0];
}

static Val call_stack(Eval *e, const Stack *k, const Call *c) {
  Val args[ARGS_MAX];
  if (!c->n) {
    eval_error(e, "E0204", c->span, "`%s` needs an operand", k->name);
    return val_poison();
  }
  memcpy(args, c->arg, sizeof args);
  if (k->n && k->body[0]->layer->item->formals.n != (uint32_t)c->n)
    return call_layer_body(e, k->body[0], c->n, args, c->arg_span,
                           c->span); /* says what is wrong */
  for (int i = 0; i < c->n; i++)
    if (dims_has(&args[i].dims, k->dim)) {
      Report *r = eval_error(e, "E0203", c->arg_span[i],
                             "an operand of stack `%s` has its dimension `%s`", k->name, k->dim);
      diag_label(r, "has %s", dims_text(e->ctx, &args[i].dims));
      diag_help(r, "give the operand's axis another name: `rename[%s -> ..](..)`", k->dim);
      return val_poison();
    }
  if (args[0].kind == VAL_NUMBER) args[0] = val_tensor(VAL_FLOAT, (Dims){0});
  Dims before = args[0].dims;
  if (e->build) lower_loop_begin(e, k, c->n, args);
  dims_add(&e->running, k->dim);
  Val v = call_round(e, k, c->n, args, c->arg_span, c->span);
  e->running.n--;
  if (v.kind != VAL_POISON && !dims_same(&before, &v.dims)) {
    eval_error(e, "E0304", c->span, "a round of `%s` turns %s into %s", k->name,
               dims_text(e->ctx, &before), dims_text(e->ctx, &v.dims));
    v = val_poison();
  }
  if (e->build) v = lower_loop_end(e, &v);
  return v;
}

Val call_instance(Eval *e, Instance *i, const Call *c) {
  if (c->axes) {
    eval_error(e, "E0204", c->axes->span, "`%s` got its axes where it was declared", c->name);
    return val_poison();
  }
  for (int k = 0; k < c->n; k++)
    if (c->arg_name[k]) {
      Report *r = eval_error(e, "E0204", c->arg_span[k], "operands of a layer are given by place");
      diag_help(r, "options are written where it is declared: `sub .. with %s = ..`",
                c->arg_name[k]);
      return val_poison();
    }
  return i->stack ? call_stack(e, i->stack, c)
                  : call_layer_body(e, i, c->n, c->arg, c->arg_span, c->span);
}

/* A layer that no model uses is walked once with operands of the declared types. */
void eval_layer(Eval *e, const Decl *d) {
  Val args[ARGS_MAX];
  Span spans[ARGS_MAX];
  AxisGroups axes;
  Env env = {0};
  uint32_t n = d->item->formals.n;
  if (n > ARGS_MAX || !axes_resolve(e, &env, d->item->axes, &axes)) return;
  Instance *i = make_instance(e, d, &axes, NULL, 0, "", d->span);
  if (!i) return;
  i->name = d->name;
  for (uint32_t k = 0; k < n; k++) {
    bool open;
    const AstFormal *f = &d->item->formals.at[k];
    if (!type_resolve(e, &i->env, f->type, &args[k])) return;
    args[k].dims = without_star(e, &args[k].dims, &open), spans[k] = f->span;
  }
  call_layer_body(e, i, (int)n, args, spans, d->span);
}
