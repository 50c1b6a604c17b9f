/* Sums of several terms, taken together: a chain of + and - is one sum, so that partial terms are
   completed once, after they were added, and not one by one.

   A place is chosen for the sum, axis by axis; terms that are partial there stay so, the others are
   brought. Terms of one layout are added first, then the class with the most partial axes is
   completed as far as the next one is, and so on. A sum over the rounds of a loop starts at zero:
   its argument takes the placement of what is added to it. */
#include "passes/collect.h"
#include <math.h>

typedef struct Term {
  ValueId old; /* of the old function */
  bool minus;
  ValueId v; /* brought */
} Term;

typedef struct Sum {
  CollectSite *s;
  const Op *root;
  VEC(Term) terms;
  ValueId running; /* argument of the body that the sum runs in, or its cast, or NO_VALUE */
  Placement target;
} Sum;

static void gather_terms(Sum *x, const Op *o, bool minus) {
  for (uint32_t i = 0; i < 2; i++) {
    ValueId v = o->in[i];
    bool negative = minus != (i == 1 && o->code == OP_sub);
    if (x->s->u.running[v] && !negative && x->running == NO_VALUE) x->running = v;
    else if (x->s->u.inner[v]) gather_terms(x, value_def(x->s->f, v), negative);
    else vec_push(x->s->m->arena, x->terms, (Term){v, negative, NO_VALUE});
  }
}

/* ---- the place of the sum ---- */

static bool partial_on(const Sum *x, const Term *t, int axis) {
  const Copies *c = &x->s->copies[t->old];
  return !x->s->u.free[t->old] && c->n && c->at[0].at.on[axis] == PARTIAL_SUM;
}

static Str within(const Sum *x, const Term *t, Str state) {
  return is_split(state) && type_find(value_type(x->s->f, t->old), state) < 0 ? NULL : state;
}

typedef struct Guess {
  Str state;
  double now, later;
} Guess;

static Guess guess(const Sum *x, int axis, Str state) {
  const CollectSite *s = x->s;
  ValueId v = x->root->out;
  Guess g = {.state = state};
  double held = held_but(s, value_type(s->f, v), &x->target, axis);
  bool partial = false;
  for (uint32_t i = 0; i < x->terms.n; i++) {
    const Term *t = &x->terms.at[i];
    bool is = partial_on(x, t, axis);
    partial |= is;
    if (is) continue; /* blocks are no terms of a partial sum: that costs infinity */
    Str own = s->u.of[t->old] ? s->u.assigned[t->old].on[axis] : NULL;
    if (own && own != state) g.now = INFINITY; /* weights stay */
    g.now += reshard_cost(s, t->old, axis, within(x, t, state), &x->target);
  }
  if (partial) g.now += convert_cost(s, PARTIAL_SUM, state, axis, held);
  Str assigned = s->u.assigned[v].on[axis];
  bool gradient = s->u.gradient[v];
  if (gradient && assigned && state != assigned) g.later += 1e15;
  if (!(gradient && !assigned && is_partial(state)))
    g.later += convert_cost(s, state, assigned, axis, held);
  return g;
}

static void consider(const Sum *x, int axis, Str state, Guess *best, bool *any) {
  Placement p = x->target;
  p.on[axis] = state;
  if (!placement_fits(x->s->m, value_type(x->s->f, x->root->out), &p)) return;
  Guess g = guess(x, axis, state);
  if (isinf(g.now)) return;
  double a = g.now + g.later, b = best->now + best->later;
  bool less =
      !*any || a < b ||
      (a == b && (g.now < best->now || (g.now == best->now && is_split(state) && !best->state)));
  if (less) *best = g, *any = true;
}

/* Dims that a term is cut along there, or would be. */
static void consider_cuts(const Sum *x, int axis, Guess *best, bool *any) {
  const CollectSite *s = x->s;
  for (uint32_t i = 0; i < x->terms.n; i++) {
    ValueId v = x->terms.at[i].old;
    Str assigned = s->u.assigned[v].on[axis];
    if (is_split(assigned)) consider(x, axis, assigned, best, any);
    for (uint32_t k = 0; k < s->copies[v].n; k++)
      if (is_split(s->copies[v].at[k].at.on[axis]))
        consider(x, axis, s->copies[v].at[k].at.on[axis], best, any);
  }
  Str assigned = s->u.assigned[x->root->out].on[axis];
  if (is_split(assigned)) consider(x, axis, assigned, best, any);
}

static ValueId weight_of(const Sum *x, int axis) {
  for (uint32_t i = 0; i < x->terms.n; i++) {
    ValueId v = x->terms.at[i].old;
    if (x->s->u.of[v] && x->s->u.assigned[v].on[axis]) return v;
  }
  return x->root->out;
}

static bool choose_target(Sum *x) {
  for (int i = 0; i < x->s->c->n; i++) {
    int axis = x->s->c->axis[i];
    bool every = x->terms.n > 0, some = false, any = false;
    for (uint32_t k = 0; k < x->terms.n; k++) {
      bool is = partial_on(x, &x->terms.at[k], axis);
      every &= is, some |= is;
    }
    Guess best = {0};
    if (every || (some && x->s->u.gradient[x->root->out]))
      consider(x, axis, PARTIAL_SUM, &best, &any);
    consider_cuts(x, axis, &best, &any);
    consider(x, axis, NULL, &best, &any);
    if (!any) return collect_refuse(x->s, x->root, weight_of(x, axis), axis);
    x->target.on[axis] = best.state;
  }
  return true;
}

/* ---- adding ---- */

static Placement wanted_for(const Sum *x, const Term *t) {
  Placement p = {0};
  for (int i = 0; i < MAX_MESH; i++)
    p.on[i] = partial_on(x, t, i) ? PARTIAL_SUM : within(x, t, x->target.on[i]);
  return p;
}

/* a + b or a - b, widened where neither has all dims. */
static ValueId combine(Sum *x, ValueId a, ValueId b, bool minus) {
  CollectSite *s = x->s;
  Placement p = *site_placed(s, a), q = *site_placed(s, b), r = p;
  Loc loc = x->root->loc;
  for (int i = 0; i < MAX_MESH; i++)
    if (!r.on[i]) r.on[i] = q.on[i];
  const Type *ta = value_type(s->to, a), *tb = value_type(s->to, b);
  Type ea = type_with_elem(*ta, tb->elem);
  if (!type_contains(&ea, tb) && !type_contains(tb, &ea)) {
    a = emit_spread(s->m, s->to, a, *value_type(s->f, x->root->out), loc);
    s->to->values.at[a].placed = r;
  }
  ValueId v = ir_binary(s->m, s->to, minus ? OP_sub : OP_add, a, b, loc);
  s->to->values.at[v].placed = r;
  return v;
}

static int partial_axes(const Placement *p) {
  int n = 0;
  for (int i = 0; i < MAX_MESH; i++) n += p->on[i] == PARTIAL_SUM;
  return n;
}

static bool same_class(const Placement *p, const Placement *q) {
  for (int i = 0; i < MAX_MESH; i++)
    if ((p->on[i] == PARTIAL_SUM) != (q->on[i] == PARTIAL_SUM)) return false;
  return true;
}

typedef struct SumTerms { /* terms that are partial on the same axes, added up */
  ValueId v;
  bool minus;
} SumTerms;
typedef VEC(SumTerms) Classes;

static SumTerms merged(Sum *x, SumTerms a, SumTerms b) {
  if (a.minus && !b.minus) return (SumTerms){combine(x, b.v, a.v, true), false};
  return (SumTerms){combine(x, a.v, b.v, a.minus != b.minus), a.minus};
}

/* Large terms first: they have the dims of the others. */
static Classes add_classes(Sum *x) {
  Classes list = {0};
  for (uint32_t i = 0; i < x->terms.n; i++) {
    Term *t = &x->terms.at[i];
    SumTerms one = {t->v, t->minus};
    bool found = false;
    for (uint32_t k = 0; k < list.n && !found; k++) {
      SumTerms *c = &list.at[k];
      if (!same_class(site_placed(x->s, c->v), site_placed(x->s, t->v))) continue;
      *c = merged(x, *c, one), found = true;
    }
    if (!found) vec_push(x->s->m->arena, list, one);
  }
  return list;
}

/* Completes c on the axes on which d is not partial. */
static void complete_like(Sum *x, SumTerms *c, const Placement *d) {
  Placement p = *site_placed(x->s, c->v);
  const Type *t = value_type(x->s->to, c->v);
  for (int i = 0; i < MAX_MESH; i++) {
    if (p.on[i] != PARTIAL_SUM || d->on[i] == PARTIAL_SUM) continue;
    Str to = x->target.on[i];
    p.on[i] = is_split(to) && type_find(t, to) >= 0 ? to : NULL;
  }
  x->s->gradient = x->s->u.gradient[x->root->out];
  c->v = site_convert(x->s, c->v, &p);
  x->s->gradient = false;
}

static ValueId join_classes(Sum *x, Classes *list) {
  while (list->n > 1) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < list->n; i++)
      if (partial_axes(site_placed(x->s, list->at[i].v)) >
          partial_axes(site_placed(x->s, list->at[most].v)))
        most = i;
    SumTerms top = list->at[most];
    list->at[most] = list->at[--list->n];
    uint32_t next = 0;
    for (uint32_t i = 1; i < list->n; i++)
      if (partial_axes(site_placed(x->s, list->at[i].v)) >
          partial_axes(site_placed(x->s, list->at[next].v)))
        next = i;
    SumTerms *other = &list->at[next];
    complete_like(x, &top, site_placed(x->s, other->v));
    complete_like(x, other, site_placed(x->s, top.v));
    *other = merged(x, top, *other);
  }
  SumTerms *all = &list->at[0];
  complete_like(x, all, &x->target);
  if (all->minus) {
    Placement p = *site_placed(x->s, all->v);
    all->v = ir_unary(x->s->m, x->s->to, OP_neg, all->v, x->root->loc);
    x->s->to->values.at[all->v].placed = p;
  }
  return all->v;
}

static ValueId widened(Sum *x, ValueId v) {
  CollectSite *s = x->s;
  const Type *t = value_type(s->f, x->root->out);
  if (value_type(s->to, v)->rank == t->rank) return v;
  Placement p = *site_placed(s, v);
  v = emit_spread(s->m, s->to, v, *t, x->root->loc);
  s->to->values.at[v].placed = p;
  return v;
}

static int by_size(const CollectSite *s, const Term *a, const Term *b) {
  int x = value_type(s->f, a->old)->rank, y = value_type(s->f, b->old)->rank;
  return y - x;
}

static void largest_first(Sum *x) {
  for (uint32_t i = 1; i < x->terms.n; i++)
    for (uint32_t k = i; k > 0 && by_size(x->s, &x->terms.at[k - 1], &x->terms.at[k]) > 0; k--) {
      Term t = x->terms.at[k];
      x->terms.at[k] = x->terms.at[k - 1], x->terms.at[k - 1] = t;
    }
}

static ValueId replaced(CollectSite *s, ValueId old, const Placement *p) {
  ValueId v = s->copies[old].at[0].v;
  s->copies[old].at[0].at = s->to->values.at[v].placed = *p;
  return v;
}

/* The argument is where the rest of the sum is: it started at zero, which lies anywhere. */
static ValueId run(Sum *x, ValueId v) {
  const Op *cast = value_def(x->s->f, x->running);
  Placement p = *site_placed(x->s, v);
  if (cast) replaced(x->s, cast->in[0], &p);
  return combine(x, replaced(x->s, x->running, &p), v, false);
}

void collect_sum(CollectSite *s, const Op *root) {
  Sum x = {.s = s, .root = root, .running = NO_VALUE};
  gather_terms(&x, root, false);
  must(x.terms.n, "collect: %%%u of %s is a sum of nothing", root->out, s->f->name);
  largest_first(&x);
  if (!choose_target(&x)) return;
  for (uint32_t i = 0; i < x.terms.n; i++) {
    Placement p = wanted_for(&x, &x.terms.at[i]);
    x.terms.at[i].v = site_reshard(s, x.terms.at[i].old, &p);
  }
  Classes list = add_classes(&x);
  ValueId v = widened(&x, join_classes(&x, &list));
  if (x.running != NO_VALUE) v = run(&x, v);
  Placement p = *site_placed(s, v);
  site_define(s, root->out, v, &p);
}
