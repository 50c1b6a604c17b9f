/* Lists of dims in brackets: names are checked and formal axes replaced by the dims bound to them;
   the axes of a layer or function are bound to the dims that its caller wrote. A dim that is given
   twice gets a prime in its second role. */
#include "sema_rule.h"
#include <string.h>

const Dims *axis_find(const AxisMap *m, Str formal) {
  for (uint32_t i = 0; i < m->n; i++)
    if (m->at[i].formal == formal) return &m->at[i].dims;
  return NULL;
}

static bool add_all(Eval *e, Dims *out, const Dims *more, Span at) {
  for (int i = 0; i < more->n; i++)
    if (!dims_add(out, more->at[i])) {
      eval_error(e, "E0204", at, "more than %d dimensions in one list", DIMS_MAX);
      return false;
    }
  return true;
}

static bool resolve_name(Eval *e, const Env *env, const AstName *name, Dims *out) {
  const Dims *bound = axis_find(&env->axes, name->text);
  if (bound) return add_all(e, out, bound, name->span);
  Dims one = {.n = 1, .at = {name->text}};
  if (!strcmp(name->text, "*")) return add_all(e, out, &one, name->span);
  if (strchr(name->text, '\'')) {
    Report *r =
        eval_error(e, "E0901", name->span, "a primed dimension can be written in `as [...]` only");
    diag_label(r, "not built yet");
    return false;
  }
  if (sizes_find(e->sizes, name->text)) return add_all(e, out, &one, name->span);
  explain_no_dim(e->w, name->span, name->text);
  return false;
}

bool dims_resolve(Eval *e, const Env *env, const AstNames *names, Dims *out) {
  bool ok = true;
  *out = (Dims){0};
  for (uint32_t i = 0; i < names->n; i++)
    ok = resolve_name(e, env, &names->at[i], out) && ok && rule_of_layer(e, out, names->at[i].span);
  return ok;
}

bool axes_resolve(Eval *e, const Env *env, const AstAxes *axes, AxisGroups *out) {
  bool ok = true;
  *out = (AxisGroups){0};
  for (uint32_t i = 0; axes && i < axes->groups.n; i++) {
    const AstGroup *group = &axes->groups.at[i];
    if (out->n == MAX_GROUPS) {
      eval_error(e, "E0204", group->span, "more than %d groups of axes", MAX_GROUPS);
      return false;
    }
    AxisGroup *axis_group = &out->at[out->n++];
    axis_group->ast = group, axis_group->arrow = group->arrow;
    ok &= dims_resolve(e, env, &group->from, &axis_group->from);
    if (group->arrow) ok &= dims_resolve(e, env, &group->to, &axis_group->to);
  }
  return ok;
}

/* ---- binding ---- */

typedef struct Binder {
  Eval *e;
  Str what;
  Span where;
  bool primes;
  Dims used;
  AxisMap *out;
} Binder;

static Str prime(Binder *binder, Str dim) {
  if (!binder->primes) return dim;
  while (dims_has(&binder->used, dim)) dim = intern_printf(binder->e->ctx->names, "%s'", dim);
  dims_add(&binder->used, dim);
  return dim;
}

static bool bind_side(Binder *binder, const AstNames *formal, const Dims *actual) {
  Dims dims = {0};
  for (int i = 0; i < actual->n; i++) dims_add(&dims, prime(binder, actual->at[i]));
  if (formal->n == 1) {
    vec_push(binder->e->arena, *binder->out, (AxisBind){formal->at[0].text, dims});
    return true;
  }
  if (formal->n != (uint32_t)dims.n) {
    eval_error(binder->e, "E0204", binder->where, "`%s` needs %u axes, not %d", binder->what,
               formal->n, dims.n);
    return false;
  }
  for (int i = 0; i < dims.n; i++)
    vec_push(binder->e->arena, *binder->out,
             (AxisBind){formal->at[i].text, {.n = 1, .at = {dims.at[i]}}});
  return true;
}

static Str axes_wanted(Eval *e, const AstAxes *formal) {
  return formal ? span_text(e->ctx, formal->span) : "no axes";
}

bool axes_bind(Eval *e, const AstAxes *formal, const AxisGroups *actual, Span where, Str what,
               bool primes, AxisMap *out) {
  uint32_t n = formal ? formal->groups.n : 0;
  *out = (AxisMap){0};
  bool fits = n == (uint32_t)actual->n;
  for (uint32_t i = 0; fits && i < n; i++) fits = formal->groups.at[i].arrow == actual->at[i].arrow;
  if (!fits) {
    Report *r =
        eval_error(e, "E0204", where, "the axes of `%s` do not match its declaration", what);
    diag_label(r, "it is declared with %s", axes_wanted(e, formal));
    return false;
  }
  Binder binder = {e, what, where, primes, {0}, out};
  for (uint32_t i = 0; i < n; i++) {
    const AstGroup *group = &formal->groups.at[i];
    if (!bind_side(&binder, &group->from, &actual->at[i].from)) return false;
    if (group->arrow && !bind_side(&binder, &group->to, &actual->at[i].to)) return false;
  }
  return true;
}
