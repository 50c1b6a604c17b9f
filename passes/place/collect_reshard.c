/* Values in a requested placement: the cheapest live copy is converted, one collective per step; a
   value that is free to make (positions, constants, inputs, and values made from them) is made
   again in that placement instead.

   The conversions of one axis are rows of ir/collectives.def; steps that send little come first
   (step_order). Blocks are joined at the finest cut of a dim and new cuts are made inside the
   others: a step waits until that is possible, and if all steps wait, the finest cut that blocks
   them is gathered and restored later. */
#include "collect.h"
#include <math.h>

const Placement *site_placed(const CollectSite *site, ValueId v) {
  return &site->to->values.at[v].placed;
}

void site_put(CollectSite *site, ValueId old, ValueId v, const Placement *at) {
  must(v < site->to->values.n, "collect: a copy of %%%u of %s is no value", old, site->f->name);
  site->to->values.at[v].placed = *at;
  vec_push(site->m->arena, site->copies[old], (Copy){*at, v});
}

/* ---- costs ---- */

double bytes_without_axis(const CollectSite *site, const Type *t, const Placement *placement,
                          int axis) {
  Placement rest = *placement;
  rest.on[axis] = NULL;
  return (double)placement_held(site->m, t, &rest);
}

static AxisState state_of(Str state) {
  return !state ? AXIS_WHOLE : is_partial(state) ? AXIS_PARTIAL : AXIS_CUT;
}

/* The first collective on the way. A maximum is completed before it is cut. */
static bool leads(Str from, Str to, OpCode *c) {
  return collective_between(state_of(from), from == PARTIAL_MAX ? AXIS_WHOLE : state_of(to), c);
}

double convert_cost(const CollectSite *site, Str from, Str to, int axis, double held) {
  must(axis >= 0 && axis < (int)site->m->mesh.n, "collect: the mesh has no axis %d", axis);
  OpCode c;
  if (from == to) return 0;
  if (to == PARTIAL_MAX || !leads(from, to, &c)) return INFINITY;
  const Collective *facts = op_collective(c);
  double ways = facts->way == SEND_EACH ? (double)site->m->mesh.at[axis].size : 1;
  return facts->passes * held / ways;
}

/* A free value costs nothing, except the samples of an input, which another rank has. */
static double make_cost(const CollectSite *site, ValueId old, int axis, Str want,
                        const Placement *others) {
  Str assigned = site->u.assigned[old].on[axis];
  if (!site->u.input[old] || !assigned || strcmp(assigned, "Batch") || assigned == want) return 0;
  return bytes_without_axis(site, value_type(site->f, old), others, axis);
}

double reshard_cost(const CollectSite *site, ValueId old, int axis, Str want,
                    const Placement *others) {
  double least = INFINITY;
  if (site->u.free[old]) return make_cost(site, old, axis, want, others);
  for (uint32_t i = 0; i < site->copies[old].n; i++) {
    const Copy *copy = &site->copies[old].at[i];
    double cost = convert_cost(site, copy->at.on[axis], want, axis,
                               bytes_without_axis(site, value_type(site->f, old), others, axis));
    if (cost < least) least = cost;
  }
  return least;
}

/* ---- conversions ---- */

static ValueId emit(CollectSite *site, OpCode c, ValueId v, const Group *group, int axis,
                    Str state) {
  Type t = *value_type(site->to, v);
  Placement placement = *site_placed(site, v);
  ValueId r =
      emit_typed(site->m, site->to, c, 1, &v, group, t, site->op ? site->op->loc : (Loc){0});
  Op *o = &vec_last(site->to->ops);
  attr_set_str(site->m, &o->attrs, ATTR_axis, site->m->mesh.at[axis].name);
  if (placement.on[axis] == PARTIAL_MAX)
    attr_set_str(site->m, &o->attrs, ATTR_reduce, intern(site->m->ctx->names, "max"));
  if (site->gradient && collective_adds(c)) attr_set_int(site->m, &o->attrs, ATTR_gradient, 1);
  placement.on[axis] = state;
  site->to->values.at[r].placed = placement;
  return r;
}

static ValueId step(CollectSite *site, ValueId v, int axis, Str from, Str to) {
  OpCode c;
  must(leads(from, to, &c), "collect: nothing leads from %s to %s", from ? from : "whole",
       to ? to : "whole");
  const Collective *facts = op_collective(c);
  bool joins = facts->from == AXIS_CUT, cuts = facts->to == AXIS_CUT;
  Group group = joins && cuts ? group_map(1, &from, 1, &to) : group_dims(1, cuts ? &to : &from);
  return emit(site, c, v, joins || cuts ? &group : NULL, axis, facts->to == AXIS_WHOLE ? NULL : to);
}

/* Rank of a step among the ready ones. */
static int step_order(Str from, Str to) {
  if (!from) return 0;
  if (is_partial(from)) return is_split(to) ? 1 : 2;
  return to ? 3 : 4;
}

static bool finer_cuts(const CollectSite *site, const Placement *now, int i, Str dim) {
  for (int k = i + 1; k < site->c->n; k++)
    if (now->on[site->c->axis[k]] == dim) return true;
  return false;
}

/* A coarser axis still has to join or cut dim. */
static bool coarser_waits(const CollectSite *site, const Placement *now, const Placement *to, int i,
                          Str dim) {
  for (int k = 0; k < i; k++) {
    int axis = site->c->axis[k];
    if (now->on[axis] != to->on[axis] && (now->on[axis] == dim || to->on[axis] == dim)) return true;
  }
  return false;
}

static bool ready(const CollectSite *site, ValueId v, const Placement *now, const Placement *to,
                  int i) {
  Str from = now->on[site->c->axis[i]], want = to->on[site->c->axis[i]];
  if (is_split(from) && finer_cuts(site, now, i, from)) return false;
  if (!is_split(want)) return true;
  Placement then = *now;
  then.on[site->c->axis[i]] = want;
  return !finer_cuts(site, now, i, want) && !coarser_waits(site, now, to, i, want) &&
         placement_fits(site->m, value_type(site->to, v), &then);
}

/* The finest cut that is in the way of some step. */
static int blocker(const CollectSite *site, const Placement *now, const Placement *to) {
  for (int k = site->c->n; k-- > 0;) {
    int axis = site->c->axis[k];
    Str dim = now->on[axis];
    if (!is_split(dim)) continue;
    for (int i = 0; i < site->c->n; i++) {
      int other = site->c->axis[i];
      bool moves = now->on[other] != to->on[other];
      if (moves && (now->on[other] == dim || to->on[other] == dim)) return axis;
    }
  }
  bug("collect: no way from one placement to another");
}

ValueId site_convert(CollectSite *site, ValueId v, const Placement *to) {
  for (;;) {
    Placement now = *site_placed(site, v);
    int best = -1, order = 9;
    if (placement_equal(&now, to)) return v;
    for (int i = 0; i < site->c->n; i++) {
      int axis = site->c->axis[i], at = step_order(now.on[axis], to->on[axis]);
      if (now.on[axis] != to->on[axis] && at < order && ready(site, v, &now, to, i))
        best = axis, order = at;
    }
    if (best < 0) {
      best = blocker(site, &now, to);
      v = step(site, v, best, now.on[best], NULL);
    } else if (now.on[best] == PARTIAL_MAX) {
      v = step(site, v, best, PARTIAL_MAX, NULL); /* then cut */
    } else {
      v = step(site, v, best, now.on[best], to->on[best]);
    }
  }
}

/* ---- things that are made where they are needed ---- */

const Demand *demand_find(const Collect *c, const void *of, uint32_t arg) {
  for (uint32_t i = 0; i < c->demands.n; i++)
    if (c->demands.at[i].of == of && c->demands.at[i].arg == arg) return &c->demands.at[i];
  return NULL;
}

static void demand(CollectSite *site, const void *of, uint32_t arg, int axis) {
  Collect *c = site->c;
  Demand *d = (Demand *)demand_find(c, of, arg);
  if (!d) {
    vec_push(site->m->arena, c->demands, (Demand){.of = of, .arg = arg});
    d = &vec_last(c->demands);
  }
  if (!d->whole[axis]) d->whole[axis] = c->again = true;
}

/* An input or an argument keeps its placement; a block of a whole value may be taken, and if no
   block suffices, the whole value is requested. */
static ValueId take_leaf(CollectSite *site, ValueId old, const Placement *want) {
  const Copy *have = &site->copies[old].at[0];
  const Value *v = &site->f->values.at[old];
  const Op *def = value_def(site->f, old);
  for (int a = 0; a < MAX_MESH; a++)
    if (have->at.on[a] && have->at.on[a] != want->on[a])
      demand(site, def ? (const void *)def->global : site->f, def ? 0 : v->result, a);
  return site_convert(site, have->v, want);
}

/* States of the operands from which the result gets `want`. On axes that no index maps to, the
   whole value is made, and its block taken afterwards. */
static void work_back(CollectSite *site, const Op *o, uint32_t result, const Placement *want,
                      Placement *in, Placement *out) {
  ShardIndex *list;
  uint32_t n = shard_indexes(site->m, site->f, o, &list);
  for (int i = 0; i < site->c->n; i++) {
    int axis = site->c->axis[i];
    Str state = is_split(want->on[axis]) ? want->on[axis] : NULL;
    const ShardIndex *index = NULL;
    for (uint32_t k = 0; k < n && state && !index; k++)
      if (list[k].out[result] == state) index = &list[k];
    for (uint32_t k = 0; k < o->nin && index; k++) in[k].on[axis] = index->in[k];
    for (uint32_t k = 0; k < o->nout && index; k++) out[k].on[axis] = index->out[k];
    bool fits = index != NULL;
    for (uint32_t k = 0; k < o->nin && fits; k++)
      fits = placement_fits(site->m, value_type(site->f, o->in[k]), &in[k]);
    for (uint32_t k = 0; k < o->nout && fits; k++)
      fits = out[k].on[axis] && placement_fits(site->m, value_type(site->f, o->out + k), &out[k]);
    for (uint32_t k = 0; k < o->nin && !fits; k++) in[k].on[axis] = NULL;
    for (uint32_t k = 0; k < o->nout && !fits; k++) out[k].on[axis] = NULL;
  }
}

static ValueId make_op(CollectSite *site, ValueId old, const Placement *want) {
  const Op *o = value_def(site->f, old), *before = site->op;
  uint32_t result = old - o->out;
  Placement *in = ARENA_ARRAY(site->m->arena, Placement, o->nin + 1);
  Placement *out = ARENA_ARRAY(site->m->arena, Placement, o->nout + 1);
  work_back(site, o, result, want, in, out);
  for (uint32_t i = 0; i < site->copies[old].n; i++)
    if (placement_equal(&site->copies[old].at[i].at, &out[result]))
      return site_convert(site, site->copies[old].at[i].v, want);
  site->op = o;
  ValueId first = site_emit(site, o, in);
  for (uint32_t i = 0; i < o->nout; i++) site_put(site, o->out + i, first + i, &out[i]);
  site->op = before;
  return site_convert(site, first + result, want);
}

ValueId site_emit(CollectSite *site, const Op *o, const Placement *in) {
  ValueId *v = ARENA_ARRAY(site->m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) v[i] = site_reshard(site, o->in[i], &in[i]);
  Op *made = fn_clone_op(site->m, site->to, site->f, o, site->map);
  for (uint32_t i = 0; i < o->nin; i++) made->in[i] = v[i];
  return made->out;
}

/* ---- bringing ---- */

static ValueId known(const CollectSite *site, ValueId old, const Placement *want) {
  for (uint32_t i = 0; i < site->copies[old].n; i++)
    if (placement_equal(&site->copies[old].at[i].at, want)) return site->copies[old].at[i].v;
  return NO_VALUE;
}

static double whole_cost(const CollectSite *site, ValueId old, const Copy *copy,
                         const Placement *want) {
  double sum = 0;
  for (int i = 0; i < site->c->n; i++) {
    int axis = site->c->axis[i];
    double held = bytes_without_axis(site, value_type(site->f, old), want, axis);
    sum += convert_cost(site, copy->at.on[axis], want->on[axis], axis, held);
  }
  return sum;
}

static ValueId from_cheapest(CollectSite *site, ValueId old, const Placement *want) {
  const Copy *best = NULL;
  double least = INFINITY;
  for (uint32_t i = 0; i < site->copies[old].n; i++) {
    double cost = whole_cost(site, old, &site->copies[old].at[i], want);
    if (cost < least) best = &site->copies[old].at[i], least = cost;
  }
  if (!best) bug("collect: value %%%u of %s has no copy", old, site->f->name);
  return site_convert(site, best->v, want);
}

/* Every copy that is made lives to the end of the function and serves all later requests. */
ValueId site_reshard(CollectSite *site, ValueId old, const Placement *want) {
  ValueId v = known(site, old, want);
  if (v != NO_VALUE) return v;
  const Op *def = value_def(site->f, old);
  bool leaf = !def || def->code == OP_load;
  if (!site->u.free[old]) v = from_cheapest(site, old, want);
  else v = leaf ? take_leaf(site, old, want) : make_op(site, old, want);
  if (known(site, old, want) == NO_VALUE) site_put(site, old, v, want);
  return v;
}
