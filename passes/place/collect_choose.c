/* The strategy of an op: axis by axis, in the order of the rules, the one that sends the least. A
   strategy cuts one index of the op (ir/shape/shard.c), or none, or lets a partial sum through.

   The cost is the elements that a rank sends now to bring the operands into place, plus those that
   the result needs later to get its assigned placement. Among equals the fewest elements now win,
   then a cut result, then the order of the table. Two rules take precedence over costs: a
   parameter stays on the axes that cut it, and a gradient is cut where its parameter is, and is
   not where `zero` shares out the parameter. Where the parameter is whole its gradient may stay a
   partial sum at no cost. */
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"
#include "collect.h"
#include <math.h>

typedef struct CollectChoice { /* on one axis */
  Str *in, *out;
  double now, later;
  bool whole; /* the result is not cut */
} CollectChoice;

/* A large cost that is not yet impossible: a gradient that would have to move at the end. */
static const double MISPLACED_COST = 1e15;

bool collect_refuse(CollectSite *site, const Op *o, ValueId weight, int axis) {
  Collect *collect = site->c;
  if (collect->failed) return false;
  collect->failed = true;
  const Placement *placement = &site->u.assigned[weight];
  Str name = site->m->mesh.at[axis].name;
  const PlaceRule *rule = NULL;
  for (uint32_t i = 0; i < site->m->rules.n && !rule; i++)
    for (uint32_t k = 0; k < site->m->rules.at[i].axes.n; k++)
      if (site->m->rules.at[i].axes.at[k] == name) rule = &site->m->rules.at[i];
  const char *said = op_said(site->m, o);
  Report *r = diag_at(site->m->ctx->diag, "E0707", span_of(site->m, rule ? rule->loc : o->loc),
                      "`%s` cannot work on `%s` split over `%s`", said ? said : op_name(o->code),
                      placement->on[axis], name);
  if (rule && said) diag_also(r, span_of(site->m, o->loc), "used by `%s`", said);
  else if (rule) diag_also(r, span_of(site->m, o->loc), "used by this op");
  if (site->u.of[weight]) {
    diag_fact(r, "parameter `%s` is never gathered over an axis that splits it",
              site->u.of[weight]->name);
    diag_help(r, "`place %s -> none` before it, or another dim over `%s`", site->u.of[weight]->name,
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

static bool fits(const Chooser *chooser, const CollectChoice *choice) {
  for (uint32_t i = 0; i < chooser->o->nin; i++) {
    Placement placement = chooser->w->in[i];
    placement.on[chooser->axis] = choice->in[i];
    if (!placement_fits(chooser->s->m, value_type(chooser->s->f, chooser->o->in[i]), &placement))
      return false;
  }
  for (uint32_t i = 0; i < chooser->o->nout; i++) {
    Placement placement = chooser->w->out[i];
    placement.on[chooser->axis] = choice->out[i];
    if (!placement_fits(chooser->s->m, value_type(chooser->s->f, chooser->o->out + i), &placement))
      return false;
  }
  return true;
}

/* States on the other axes: decided ones as wanted, the others as they are. */
static Placement others(const Chooser *chooser, uint32_t operand) {
  Placement placement = chooser->native[operand], with = placement;
  bool decided = true;
  for (int i = 0; i < chooser->s->c->n; i++) {
    int axis = chooser->s->c->axis[i];
    if (axis == chooser->axis) decided = false;
    if (decided) placement.on[axis] = chooser->w->in[operand].on[axis];
    else if (is_split(placement.on[axis])) {
      with = placement;
      for (int k = i + 1; k < chooser->s->c->n; k++) with.on[chooser->s->c->axis[k]] = NULL;
      if (!placement_fits(chooser->s->m, value_type(chooser->s->f, chooser->o->in[operand]), &with))
        placement.on[axis] = NULL;
    }
  }
  return placement;
}

static double now_cost(const Chooser *chooser, const CollectChoice *choice) {
  double sum = 0;
  for (uint32_t i = 0; i < chooser->o->nin; i++) {
    ValueId v = chooser->o->in[i];
    bool counted = false;
    for (uint32_t k = 0; k < i; k++)
      counted |= chooser->o->in[k] == v && choice->in[k] == choice->in[i];
    if (counted) continue;
    Str assigned = chooser->s->u.of[v] ? chooser->s->u.assigned[v].on[chooser->axis] : NULL;
    if (assigned && choice->in[i] != assigned) return INFINITY;
    Placement placement = others(chooser, i);
    sum += reshard_cost(chooser->s, v, chooser->axis, choice->in[i], &placement);
  }
  return sum;
}

/* States of a result on the other axes: decided ones as chosen, the others as assigned. Costs of
   operands and of results count what a rank holds, so neither may leave out an axis that divides
   the other. */
static Placement others_of_result(const Chooser *chooser, uint32_t result) {
  const CollectSite *site = chooser->s;
  ValueId v = chooser->o->out + result;
  Placement placement = chooser->w->out[result];
  bool decided = true;
  for (int i = 0; i < site->c->n; i++) {
    int axis = site->c->axis[i];
    Str assigned = site->u.assigned[v].on[axis];
    if (axis == chooser->axis) decided = false;
    else if (!decided && is_split(assigned)) {
      placement.on[axis] = assigned;
      if (!placement_fits(site->m, value_type(site->f, v), &placement)) placement.on[axis] = NULL;
    }
  }
  return placement;
}

/* A sum over the axis is sent as shards of the gradient; a gradient made in blocks would be
   gathered whole. */
static bool zero_shards(const Chooser *chooser) {
  const Module *m = chooser->s->m;
  return plan_zero_stage(m) && text_lists(plan_zero_axes(m), m->mesh.at[chooser->axis].name);
}

static double later_cost(const Chooser *chooser, const CollectChoice *choice) {
  double sum = 0;
  for (uint32_t i = 0; i < chooser->o->nout; i++) {
    ValueId v = chooser->o->out + i;
    const Type *t = value_type(chooser->s->f, v);
    Str assigned = chooser->s->u.assigned[v].on[chooser->axis], state = choice->out[i];
    bool gradient = chooser->s->u.gradient[v];
    bool moves = assigned ? state != assigned : is_split(state) && zero_shards(chooser);
    if (gradient && moves) sum += MISPLACED_COST;
    if (gradient && !assigned && is_partial(state)) continue;
    Placement placement = others_of_result(chooser, i);
    sum += convert_cost(chooser->s, state, assigned, chooser->axis,
                        bytes_without_axis(chooser->s, t, &placement, chooser->axis));
  }
  return sum;
}

static bool better(const CollectChoice *a, const CollectChoice *b) {
  double x = a->now + a->later, y = b->now + b->later;
  if (x != y) return x < y;
  if (a->now != b->now) return a->now < b->now;
  return !a->whole && b->whole;
}

static void consider(Chooser *chooser, CollectChoice choice) {
  if (!fits(chooser, &choice)) return;
  choice.now = now_cost(chooser, &choice);
  if (isinf(choice.now)) return;
  choice.later = later_cost(chooser, &choice);
  choice.whole = !chooser->o->nout || !is_split(choice.out[0]);
  if (!chooser->any || better(&choice, &chooser->best)) chooser->best = choice, chooser->any = true;
}

/* ---- ways on one axis ---- */

static bool copy_has(const CollectSite *site, ValueId v, int axis, Str state) {
  for (uint32_t i = 0; i < site->copies[v].n; i++)
    if (site->copies[v].at[i].at.on[axis] == state) return true;
  return false;
}

/* Only indexes that the axis already cuts in some operand, or would cut by the rules. */
static bool is_near(const Chooser *chooser, const ShardIndex *index) {
  const CollectSite *site = chooser->s;
  for (uint32_t i = 0; i < chooser->o->nin; i++) {
    ValueId v = chooser->o->in[i];
    if (!index->in[i]) continue;
    if (site->u.assigned[v].on[chooser->axis] == index->in[i] ||
        copy_has(site, v, chooser->axis, index->in[i]))
      return true;
  }
  for (uint32_t i = 0; i < chooser->o->nout; i++)
    if (index->out[i] && site->u.assigned[chooser->o->out + i].on[chooser->axis] == index->out[i])
      return true;
  return false;
}

static CollectChoice empty(const Chooser *chooser) {
  return (CollectChoice){.in = ARENA_ARRAY(chooser->s->m->arena, Str, chooser->o->nin + 1),
                         .out = ARENA_ARRAY(chooser->s->m->arena, Str, chooser->o->nout + 1)};
}

static bool all_floats(const Chooser *chooser) {
  for (uint32_t i = 0; i < chooser->o->nout; i++)
    if (!value_is_float(chooser->s->f, chooser->o->out + i)) return false;
  return true;
}

/* `logits` gathers keys, as sampling continues a text. */
static bool is_open(const Chooser *chooser, const ShardIndex *index) {
  return index->ring < 0 || (index->ring == chooser->axis && chooser->s->c->deals);
}

static void consider_indexes(Chooser *chooser) {
  ShardIndex *list;
  uint32_t n = shard_indexes(chooser->s->m, chooser->s->f, chooser->o, &list);
  for (uint32_t k = 0; k < n; k++) {
    if (!is_near(chooser, &list[k]) || !is_open(chooser, &list[k])) continue;
    CollectChoice choice = {.in = list[k].in,
                            .out = ARENA_ARRAY(chooser->s->m->arena, Str, chooser->o->nout + 1)};
    bool lost = false;
    for (uint32_t i = 0; i < chooser->o->nout; i++) {
      choice.out[i] = list[k].out[i] ? list[k].out[i] : list[k].lost;
      lost |= !list[k].out[i];
    }
    if (!lost || all_floats(chooser)) consider(chooser, choice);
  }
}

static void consider_partial(Chooser *chooser) {
  for (uint32_t i = 0; i < chooser->o->nin; i++) {
    if (!copy_has(chooser->s, chooser->o->in[i], chooser->axis, PARTIAL_SUM)) continue;
    if (!shard_linear(chooser->s->m, chooser->s->f, chooser->o, i)) continue;
    CollectChoice choice = empty(chooser);
    choice.in[i] = PARTIAL_SUM;
    for (uint32_t k = 0; k < chooser->o->nout; k++) choice.out[k] = PARTIAL_SUM;
    consider(chooser, choice);
  }
}

static ValueId parameter_of(const CollectSite *site, const Op *o, int axis) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (site->u.of[o->in[i]] && site->u.assigned[o->in[i]].on[axis]) return o->in[i];
  return o->nin ? o->in[0] : o->out;
}

static bool choose_axis(Chooser *chooser) {
  chooser->any = false;
  consider_indexes(chooser);
  consider_partial(chooser);
  consider(chooser, empty(chooser));
  if (!chooser->any)
    return collect_refuse(chooser->s, chooser->o,
                          parameter_of(chooser->s, chooser->o, chooser->axis), chooser->axis);
  for (uint32_t i = 0; i < chooser->o->nin; i++)
    chooser->w->in[i].on[chooser->axis] = chooser->best.in[i];
  for (uint32_t i = 0; i < chooser->o->nout; i++)
    chooser->w->out[i].on[chooser->axis] = chooser->best.out[i];
  return true;
}

bool choose_way(CollectSite *site, const Op *o, Way *way) {
  must(op_family(o->code) != FAMILY_COLLECTIVE, "collect: %s is in %s already", op_name(o->code),
       site->f->name);
  Arena *arena = site->m->arena;
  Chooser chooser = {.s = site, .o = o, .w = way};
  way->in = ARENA_ARRAY(arena, Placement, o->nin + 1),
  way->out = ARENA_ARRAY(arena, Placement, o->nout + 1);
  chooser.native = ARENA_ARRAY(arena, Placement, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++)
    chooser.native[i] =
        site->copies[o->in[i]].n ? site->copies[o->in[i]].at[0].at : site->u.assigned[o->in[i]];
  for (int i = 0; i < site->c->n; i++) {
    chooser.axis = site->c->axis[i];
    if (!choose_axis(&chooser)) return false;
  }
  return true;
}
