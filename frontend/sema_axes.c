/* Lists of dims in brackets: names are checked and formal axes replaced by the dims they stand for;
   the axes of a layer or function are bound to what its user wrote. A dim that is given twice gets
   a prime in its second role. */
#include "frontend/sema.h"
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

static bool resolve_name(Eval *e, const Env *env, const AstName *n, Dims *out) {
  const Dims *bound = axis_find(&env->axes, n->text);
  if (bound) return add_all(e, out, bound, n->span);
  Dims one = {.n = 1, .at = {n->text}};
  if (!strcmp(n->text, "*")) return add_all(e, out, &one, n->span);
  if (strchr(n->text, '\'')) {
    Report *r =
        eval_error(e, "E0901", n->span, "a primed dimension can be written in `as [...]` only");
    diag_label(r, "not built yet");
    return false;
  }
  if (sizes_find(e->sizes, n->text)) return add_all(e, out, &one, n->span);
  explain_no_dim(e->w, n->span, n->text);
  return false;
}

bool dims_resolve(Eval *e, const Env *env, const AstNames *names, Dims *out) {
  bool ok = true;
  *out = (Dims){0};
  for (uint32_t i = 0; i < names->n; i++) ok &= resolve_name(e, env, &names->at[i], out);
  return ok;
}

bool axes_resolve(Eval *e, const Env *env, const AstAxes *a, AxisGroups *out) {
  bool ok = true;
  *out = (AxisGroups){0};
  for (uint32_t i = 0; a && i < a->groups.n; i++) {
    const AstGroup *g = &a->groups.at[i];
    if (out->n == MAX_GROUPS) {
      eval_error(e, "E0204", g->span, "more than %d groups of axes", MAX_GROUPS);
      return false;
    }
    AxisGroup *r = &out->at[out->n++];
    r->ast = g, r->arrow = g->arrow;
    ok &= dims_resolve(e, env, &g->from, &r->from);
    if (g->arrow) ok &= dims_resolve(e, env, &g->to, &r->to);
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

static Str prime(Binder *b, Str dim) {
  if (!b->primes) return dim;
  while (dims_has(&b->used, dim)) dim = intern_printf(b->e->ctx->names, "%s'", dim);
  dims_add(&b->used, dim);
  return dim;
}

static bool bind_side(Binder *b, const AstNames *formal, const Dims *actual) {
  Dims d = {0};
  for (int i = 0; i < actual->n; i++) dims_add(&d, prime(b, actual->at[i]));
  if (formal->n == 1) {
    vec_push(b->e->arena, *b->out, (AxisBind){formal->at[0].text, d});
    return true;
  }
  if (formal->n != (uint32_t)d.n) {
    eval_error(b->e, "E0204", b->where, "`%s` wants %u axes here, not %d", b->what, formal->n, d.n);
    return false;
  }
  for (int i = 0; i < d.n; i++)
    vec_push(b->e->arena, *b->out, (AxisBind){formal->at[i].text, {.n = 1, .at = {d.at[i]}}});
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
    Report *r = eval_error(e, "E0204", where, "`%s` wants other axes", what);
    diag_label(r, "it is declared with %s", axes_wanted(e, formal));
    return false;
  }
  Binder b = {e, what, where, primes, {0}, out};
  for (uint32_t i = 0; i < n; i++) {
    const AstGroup *g = &formal->groups.at[i];
    if (!bind_side(&b, &g->from, &actual->at[i].from)) return false;
    if (g->arrow && !bind_side(&b, &g->to, &actual->at[i].to)) return false;
  }
  return true;
}
