/* Which way of working an op takes: axis by axis, in the order of the rules, the one that sends the
   least. A way cuts one index of the op (ir/shard.c), or none, or lets a partial sum through.

   What counts: what bringing the operands costs now, and what the result costs on its way assigned.
   Between equals less now wins, then a cut result, then the order of the table. Two rules stand
   above costs: a parameter stays on the axes that cut it, and a gradient is cut where its parameter
   is. Where the parameter is whole its gradient may stay a partial sum at no cost. */
#include "passes/collect.h"
#include <math.h>

typedef struct CollectChoice { /* on one axis */
  Str *in, *out;
  double now, later;
  bool whole; /* the result is not cut */
} CollectChoice;

/* A large cost that is not yet impossible: a gradient that would have to move at the end. */
static const double MISPLACED_COST = 1e15;

bool collect_refuse(CollectSite *s, const Op *o, ValueId weight, int axis) {
  Collect *c = s->c;
  if (c->failed) return false;
  c->failed = true;
  const Placement *p = &s->u.assigned[weight];
  Str name = s->m->mesh.at[axis].name;
  const PlaceRule *rule = NULL;
  for (uint32_t i = 0; i < s->m->rules.n && !rule; i++)
    for (uint32_t k = 0; k < s->m->rules.at[i].axes.n; k++)
      if (s->m->rules.at[i].axes.at[k] == name) rule = &s->m->rules.at[i];
  const char *said = op_said(s->m, o);
  Report *r = diag_at(s->m->ctx->diag, "E0707", span_of(s->m, rule ? rule->loc : o->loc),
                      "`%s` cannot work on `%s` split over `%s`", said ? said : op_name(o->code),
                      p->on[axis], name);
  if (rule && said) diag_also(r, span_of(s->m, o->loc), "`%s` here", said);
  else if (rule) diag_also(r, span_of(s->m, o->loc), "of this");
  if (s->u.of[weight]) {
    diag_fact(r, "parameter `%s` is never gathered over an axis that splits it",
              s->u.of[weight]->name);
    diag_help(r, "`place %s -> none` before it, or another dim over `%s`", s->u.of[weight]->name,
              name);
  }
  return false;
}

typedef struct Chooser {
  CollectSite *s;
  const Op *o;
  Way *w;
  int axis;
  Placement *native; /* by operand: where undecided axes are */
  CollectChoice best;
  bool any;
} Chooser;

static bool fits(const Chooser *c, const CollectChoice *x) {
  for (uint32_t i = 0; i < c->o->nin; i++) {
    Placement p = c->w->in[i];
    p.on[c->axis] = x->in[i];
    if (!placement_fits(c->s->m, value_type(c->s->f, c->o->in[i]), &p)) return false;
  }
  for (uint32_t i = 0; i < c->o->nout; i++) {
    Placement p = c->w->out[i];
    p.on[c->axis] = x->out[i];
    if (!placement_fits(c->s->m, value_type(c->s->f, c->o->out + i), &p)) return false;
  }
  return true;
}

/* States on the other axes: decided ones as wanted, the others as they are. */
static Placement others(const Chooser *c, uint32_t operand) {
  Placement p = c->native[operand], with = p;
  bool decided = true;
  for (int i = 0; i < c->s->c->n; i++) {
    int axis = c->s->c->axis[i];
    if (axis == c->axis) decided = false;
    if (decided) p.on[axis] = c->w->in[operand].on[axis];
    else if (is_split(p.on[axis])) {
      with = p;
      for (int k = i + 1; k < c->s->c->n; k++) with.on[c->s->c->axis[k]] = NULL;
      if (!placement_fits(c->s->m, value_type(c->s->f, c->o->in[operand]), &with))
        p.on[axis] = NULL;
    }
  }
  return p;
}

static double now_cost(const Chooser *c, const CollectChoice *x) {
  double sum = 0;
  for (uint32_t i = 0; i < c->o->nin; i++) {
    ValueId v = c->o->in[i];
    bool counted = false;
    for (uint32_t k = 0; k < i; k++) counted |= c->o->in[k] == v && x->in[k] == x->in[i];
    if (counted) continue;
    Str assigned = c->s->u.of[v] ? c->s->u.assigned[v].on[c->axis] : NULL;
    if (assigned && x->in[i] != assigned) return INFINITY;
    Placement p = others(c, i);
    sum += reshard_cost(c->s, v, c->axis, x->in[i], &p);
  }
  return sum;
}

static double later_cost(const Chooser *c, const CollectChoice *x) {
  double sum = 0;
  for (uint32_t i = 0; i < c->o->nout; i++) {
    ValueId v = c->o->out + i;
    const Type *t = value_type(c->s->f, v);
    Str assigned = c->s->u.assigned[v].on[c->axis], state = x->out[i];
    bool gradient = c->s->u.gradient[v];
    if (gradient && assigned && state != assigned) sum += MISPLACED_COST;
    if (gradient && !assigned && is_partial(state)) continue;
    sum += convert_cost(c->s, state, assigned, c->axis, held_but(c->s, t, &c->w->out[i], c->axis));
  }
  return sum;
}

static bool better(const CollectChoice *a, const CollectChoice *b) {
  double x = a->now + a->later, y = b->now + b->later;
  if (x != y) return x < y;
  if (a->now != b->now) return a->now < b->now;
  return !a->whole && b->whole;
}

static void consider(Chooser *c, CollectChoice x) {
  if (!fits(c, &x)) return;
  x.now = now_cost(c, &x);
  if (isinf(x.now)) return;
  x.later = later_cost(c, &x);
  x.whole = !c->o->nout || !is_split(x.out[0]);
  if (!c->any || better(&x, &c->best)) c->best = x, c->any = true;
}

/* ---- ways on one axis ---- */

static bool copy_has(const CollectSite *s, ValueId v, int axis, Str state) {
  for (uint32_t i = 0; i < s->copies[v].n; i++)
    if (s->copies[v].at[i].at.on[axis] == state) return true;
  return false;
}

/* Only what the axis cuts already, somewhere, or would by the rules. */
static bool is_near(const Chooser *c, const ShardIndex *x) {
  const CollectSite *s = c->s;
  for (uint32_t i = 0; i < c->o->nin; i++) {
    ValueId v = c->o->in[i];
    if (!x->in[i]) continue;
    if (s->u.assigned[v].on[c->axis] == x->in[i] || copy_has(s, v, c->axis, x->in[i])) return true;
  }
  for (uint32_t i = 0; i < c->o->nout; i++)
    if (x->out[i] && s->u.assigned[c->o->out + i].on[c->axis] == x->out[i]) return true;
  return false;
}

static CollectChoice empty(const Chooser *c) {
  return (CollectChoice){.in = ARENA_ARRAY(c->s->m->arena, Str, c->o->nin + 1),
                         .out = ARENA_ARRAY(c->s->m->arena, Str, c->o->nout + 1)};
}

static bool all_floats(const Chooser *c) {
  for (uint32_t i = 0; i < c->o->nout; i++)
    if (elem_class(value_type(c->s->f, c->o->out + i)->elem) != CLASS_FLOAT) return false;
  return true;
}

static void consider_indexes(Chooser *c) {
  ShardIndex *list;
  uint32_t n = shard_indexes(c->s->m, c->s->f, c->o, &list);
  for (uint32_t k = 0; k < n; k++) {
    if (!is_near(c, &list[k])) continue;
    CollectChoice x = {.in = list[k].in, .out = ARENA_ARRAY(c->s->m->arena, Str, c->o->nout + 1)};
    bool lost = false;
    for (uint32_t i = 0; i < c->o->nout; i++) {
      x.out[i] = list[k].out[i] ? list[k].out[i] : list[k].lost;
      lost |= !list[k].out[i];
    }
    if (!lost || all_floats(c)) consider(c, x);
  }
}

static void consider_partial(Chooser *c) {
  for (uint32_t i = 0; i < c->o->nin; i++) {
    if (!copy_has(c->s, c->o->in[i], c->axis, PARTIAL_SUM)) continue;
    if (!shard_linear(c->s->m, c->s->f, c->o, i)) continue;
    CollectChoice x = empty(c);
    x.in[i] = PARTIAL_SUM;
    for (uint32_t k = 0; k < c->o->nout; k++) x.out[k] = PARTIAL_SUM;
    consider(c, x);
  }
}

static ValueId parameter_of(const CollectSite *s, const Op *o, int axis) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (s->u.of[o->in[i]] && s->u.assigned[o->in[i]].on[axis]) return o->in[i];
  return o->nin ? o->in[0] : o->out;
}

static bool choose_axis(Chooser *c) {
  c->any = false;
  consider_indexes(c);
  consider_partial(c);
  consider(c, empty(c));
  if (!c->any) return collect_refuse(c->s, c->o, parameter_of(c->s, c->o, c->axis), c->axis);
  for (uint32_t i = 0; i < c->o->nin; i++) c->w->in[i].on[c->axis] = c->best.in[i];
  for (uint32_t i = 0; i < c->o->nout; i++) c->w->out[i].on[c->axis] = c->best.out[i];
  return true;
}

bool choose_way(CollectSite *s, const Op *o, Way *w) {
  must(op_family(o->code) != FAMILY_COLLECTIVE, "collect: %s stands in %s already",
       op_name(o->code), s->f->name);
  Arena *a = s->m->arena;
  Chooser c = {.s = s, .o = o, .w = w};
  w->in = ARENA_ARRAY(a, Placement, o->nin + 1), w->out = ARENA_ARRAY(a, Placement, o->nout + 1);
  c.native = ARENA_ARRAY(a, Placement, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    c.native[i] = s->copies[o->in[i]].n ? s->copies[o->in[i]].at[0].at : s->u.assigned[o->in[i]];
  for (int i = 0; i < s->c->n; i++) {
    c.axis = s->c->axis[i];
    if (!choose_axis(&c)) return false;
  }
  return true;
}
