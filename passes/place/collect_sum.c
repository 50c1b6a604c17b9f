/* Sums of several terms, taken together: a chain of + and - is one sum, so that partial terms are
   completed once, after they were added, and not one by one.

   A placement is chosen for the sum, axis by axis; terms that are partial on that axis stay so,
   the others are resharded. Terms of one placement are added first, then the class with the most
   partial axes is completed to the next class, and so on. A sum over the rounds of a loop starts
   at zero: its argument takes the placement of the terms added to it. */
#include "collect.h"
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

static void gather_terms(Sum *sum, const Op *o, bool minus) {
  for (uint32_t i = 0; i < 2; i++) {
    ValueId v = o->in[i];
    bool negative = minus != (i == 1 && o->code == OP_sub);
    if (sum->s->u.running[v] && !negative && sum->running == NO_VALUE) sum->running = v;
    else if (sum->s->u.inner[v]) gather_terms(sum, value_def(sum->s->f, v), negative);
    else vec_push(sum->s->m->arena, sum->terms, (Term){v, negative, NO_VALUE});
  }
}

/* ---- the place of the sum ---- */

static bool partial_on(const Sum *sum, const Term *term, int axis) {
  const Copies *copies = &sum->s->copies[term->old];
  return !sum->s->u.free[term->old] && copies->n && copies->at[0].at.on[axis] == PARTIAL_SUM;
}

static Str within(const Sum *sum, const Term *term, Str state) {
  return is_split(state) && type_find(value_type(sum->s->f, term->old), state) < 0 ? NULL : state;
}

typedef struct Guess {
  Str state;
  double now, later;
} Guess;

static Guess guess(const Sum *sum, int axis, Str state) {
  const CollectSite *site = sum->s;
  ValueId v = sum->root->out;
  Guess g = {.state = state};
  double held = bytes_without_axis(site, value_type(site->f, v), &sum->target, axis);
  bool partial = false;
  for (uint32_t i = 0; i < sum->terms.n; i++) {
    const Term *term = &sum->terms.at[i];
    bool is = partial_on(sum, term, axis);
    partial |= is;
    if (is) continue; /* blocks are no terms of a partial sum: that costs infinity */
    Str own = site->u.of[term->old] ? site->u.assigned[term->old].on[axis] : NULL;
    if (own && own != state) g.now = INFINITY; /* weights stay */
    g.now += reshard_cost(site, term->old, axis, within(sum, term, state), &sum->target);
  }
  if (partial) g.now += convert_cost(site, PARTIAL_SUM, state, axis, held);
  Str assigned = site->u.assigned[v].on[axis];
  bool gradient = site->u.gradient[v];
  if (gradient && assigned && state != assigned) g.later += 1e15;
  if (!(gradient && !assigned && is_partial(state)))
    g.later += convert_cost(site, state, assigned, axis, held);
  return g;
}

static void consider(const Sum *sum, int axis, Str state, Guess *best, bool *any) {
  Placement placement = sum->target;
  placement.on[axis] = state;
  if (!placement_fits(sum->s->m, value_type(sum->s->f, sum->root->out), &placement)) return;
  Guess g = guess(sum, axis, state);
  if (isinf(g.now)) return;
  double a = g.now + g.later, b = best->now + best->later;
  bool less =
      !*any || a < b ||
      (a == b && (g.now < best->now || (g.now == best->now && is_split(state) && !best->state)));
  if (less) *best = g, *any = true;
}

/* Considers the dims that a term is cut along on this axis, or would be. */
static void consider_cuts(const Sum *sum, int axis, Guess *best, bool *any) {
  const CollectSite *site = sum->s;
  for (uint32_t i = 0; i < sum->terms.n; i++) {
    ValueId v = sum->terms.at[i].old;
    Str assigned = site->u.assigned[v].on[axis];
    if (is_split(assigned)) consider(sum, axis, assigned, best, any);
    for (uint32_t k = 0; k < site->copies[v].n; k++)
      if (is_split(site->copies[v].at[k].at.on[axis]))
        consider(sum, axis, site->copies[v].at[k].at.on[axis], best, any);
  }
  Str assigned = site->u.assigned[sum->root->out].on[axis];
  if (is_split(assigned)) consider(sum, axis, assigned, best, any);
}

static ValueId weight_of(const Sum *sum, int axis) {
  for (uint32_t i = 0; i < sum->terms.n; i++) {
    ValueId v = sum->terms.at[i].old;
    if (sum->s->u.of[v] && sum->s->u.assigned[v].on[axis]) return v;
  }
  return sum->root->out;
}

static bool choose_target(Sum *sum) {
  for (int i = 0; i < sum->s->c->n; i++) {
    int axis = sum->s->c->axis[i];
    bool every = sum->terms.n > 0, some = false, any = false;
    for (uint32_t k = 0; k < sum->terms.n; k++) {
      bool is = partial_on(sum, &sum->terms.at[k], axis);
      every &= is, some |= is;
    }
    Guess best = {0};
    if (every || (some && sum->s->u.gradient[sum->root->out]))
      consider(sum, axis, PARTIAL_SUM, &best, &any);
    consider_cuts(sum, axis, &best, &any);
    consider(sum, axis, NULL, &best, &any);
    if (!any) return collect_refuse(sum->s, sum->root, weight_of(sum, axis), axis);
    sum->target.on[axis] = best.state;
  }
  return true;
}

/* ---- adding ---- */

static Placement wanted_for(const Sum *sum, const Term *term) {
  Placement placement = {0};
  for (int i = 0; i < MAX_MESH; i++)
    placement.on[i] = partial_on(sum, term, i) ? PARTIAL_SUM : within(sum, term, sum->target.on[i]);
  return placement;
}

/* With all dims of the sum, those that v did not have cut as the sum cuts them. */
static ValueId spread(Sum *sum, ValueId v) {
  CollectSite *site = sum->s;
  Placement placement = *site_placed(site, v);
  for (int i = 0; i < MAX_MESH; i++)
    if (!placement.on[i] && is_split(sum->target.on[i])) placement.on[i] = sum->target.on[i];
  v = emit_spread(site->m, site->to, v, *value_type(site->f, sum->root->out), sum->root->loc);
  site->to->values.at[v].placed = placement;
  return v;
}

/* a + b or a - b, widened where neither has all dims. */
static ValueId combine(Sum *sum, ValueId a, ValueId b, bool minus) {
  CollectSite *site = sum->s;
  const Type *ta = value_type(site->to, a), *tb = value_type(site->to, b);
  Type ea = type_with_elem(*ta, tb->elem);
  if (!type_contains(&ea, tb) && !type_contains(tb, &ea)) a = spread(sum, a);
  Placement p = *site_placed(site, a), q = *site_placed(site, b), r = p;
  for (int i = 0; i < MAX_MESH; i++)
    if (!r.on[i]) r.on[i] = q.on[i];
  ValueId v = ir_binary(site->m, site->to, minus ? OP_sub : OP_add, a, b, sum->root->loc);
  site->to->values.at[v].placed = r;
  return v;
}

static int partial_axes(const Placement *placement) {
  int n = 0;
  for (int i = 0; i < MAX_MESH; i++) n += placement->on[i] == PARTIAL_SUM;
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

static SumTerms merged(Sum *sum, SumTerms a, SumTerms b) {
  if (a.minus && !b.minus) return (SumTerms){combine(sum, b.v, a.v, true), false};
  return (SumTerms){combine(sum, a.v, b.v, a.minus != b.minus), a.minus};
}

/* Large terms first: they have the dims of the others. */
static Classes add_classes(Sum *sum) {
  Classes list = {0};
  for (uint32_t i = 0; i < sum->terms.n; i++) {
    Term *term = &sum->terms.at[i];
    SumTerms one = {term->v, term->minus};
    bool found = false;
    for (uint32_t k = 0; k < list.n && !found; k++) {
      SumTerms *terms = &list.at[k];
      if (!same_class(site_placed(sum->s, terms->v), site_placed(sum->s, term->v))) continue;
      *terms = merged(sum, *terms, one), found = true;
    }
    if (!found) vec_push(sum->s->m->arena, list, one);
  }
  return list;
}

/* Completes the sum of the terms on the axes on which d is not partial. */
static void complete_like(Sum *sum, SumTerms *terms, const Placement *d) {
  Placement p = *site_placed(sum->s, terms->v);
  const Type *t = value_type(sum->s->to, terms->v);
  for (int i = 0; i < MAX_MESH; i++) {
    if (p.on[i] != PARTIAL_SUM || d->on[i] == PARTIAL_SUM) continue;
    Str to = sum->target.on[i];
    p.on[i] = is_split(to) && type_find(t, to) >= 0 ? to : NULL;
  }
  sum->s->gradient = sum->s->u.gradient[sum->root->out];
  terms->v = site_convert(sum->s, terms->v, &p);
  sum->s->gradient = false;
}

static ValueId join_classes(Sum *sum, Classes *list) {
  while (list->n > 1) {
    uint32_t most = 0;
    for (uint32_t i = 1; i < list->n; i++)
      if (partial_axes(site_placed(sum->s, list->at[i].v)) >
          partial_axes(site_placed(sum->s, list->at[most].v)))
        most = i;
    SumTerms top = list->at[most];
    list->at[most] = list->at[--list->n];
    uint32_t next = 0;
    for (uint32_t i = 1; i < list->n; i++)
      if (partial_axes(site_placed(sum->s, list->at[i].v)) >
          partial_axes(site_placed(sum->s, list->at[next].v)))
        next = i;
    SumTerms *other = &list->at[next];
    complete_like(sum, &top, site_placed(sum->s, other->v));
    complete_like(sum, other, site_placed(sum->s, top.v));
    *other = merged(sum, top, *other);
  }
  SumTerms *all = &list->at[0];
  complete_like(sum, all, &sum->target);
  if (all->minus) {
    Placement placement = *site_placed(sum->s, all->v);
    all->v = ir_unary(sum->s->m, sum->s->to, OP_neg, all->v, sum->root->loc);
    sum->s->to->values.at[all->v].placed = placement;
  }
  return all->v;
}

static ValueId widened(Sum *sum, ValueId v) {
  bool all = value_type(sum->s->to, v)->rank == value_type(sum->s->f, sum->root->out)->rank;
  return all ? v : spread(sum, v);
}

static int by_size(const CollectSite *site, const Term *a, const Term *b) {
  int x = value_type(site->f, a->old)->rank, y = value_type(site->f, b->old)->rank;
  return y - x;
}

static void largest_first(Sum *sum) {
  for (uint32_t i = 1; i < sum->terms.n; i++)
    for (uint32_t k = i; k > 0 && by_size(sum->s, &sum->terms.at[k - 1], &sum->terms.at[k]) > 0;
         k--) {
      Term term = sum->terms.at[k];
      sum->terms.at[k] = sum->terms.at[k - 1], sum->terms.at[k - 1] = term;
    }
}

static ValueId replaced(CollectSite *site, ValueId old, const Placement *placement) {
  ValueId v = site->copies[old].at[0].v;
  site->copies[old].at[0].at = site->to->values.at[v].placed = *placement;
  return v;
}

/* The argument takes the placement of the rest of the sum: it started at zero, which has any
   placement. */
static ValueId run(Sum *sum, ValueId v) {
  const Op *cast = value_def(sum->s->f, sum->running);
  Placement placement = *site_placed(sum->s, v);
  if (cast) replaced(sum->s, cast->in[0], &placement);
  return combine(sum, replaced(sum->s, sum->running, &placement), v, false);
}

void collect_sum(CollectSite *site, const Op *root) {
  Sum sum = {.s = site, .root = root, .running = NO_VALUE};
  gather_terms(&sum, root, false);
  must(sum.terms.n, "collect: %%%u of %s is a sum of nothing", root->out, site->f->name);
  largest_first(&sum);
  if (!choose_target(&sum)) return;
  for (uint32_t i = 0; i < sum.terms.n; i++) {
    Placement placement = wanted_for(&sum, &sum.terms.at[i]);
    sum.terms.at[i].v = site_reshard(site, sum.terms.at[i].old, &placement);
  }
  Classes list = add_classes(&sum);
  ValueId v = widened(&sum, join_classes(&sum, &list));
  if (sum.running != NO_VALUE) v = run(&sum, v);
  Placement placement = *site_placed(site, v);
  site_define(site, root->out, v, &placement);
}
