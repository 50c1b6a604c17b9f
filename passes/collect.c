/* collect: collectives where placements disagree. Every op gets operands in the placement that it
   works on, and every result says where it really is (docs/ir.md, Placements).

   One walk per function in program order. An op takes the way that sends the least
   (collect_choose.c); its operands are brought there (collect_reshard.c); a result that is a
   partial sum stays one as long as everything that reads it is a sum or moves indexes, and is
   completed right behind its definition otherwise, to its assigned: so nothing is completed twice
   and saved values are complete. Loops run over the same body, written once; at their borders
   values are at assigned, but sums over the rounds and gradients may leave as partial sums, to be
   completed once behind the loop. Inputs and positions are made where they are needed and never
   sent: if blocks do not serve, the input is asked for whole and the walk begins again (each time
   at least one axis less). Without a mesh the pass does nothing. */
#include "passes/collect.h"
#include <string.h>

static Str completed_to(const CollectSite *s, ValueId old, int axis, const Placement *p) {
  Str assigned = s->u.assigned[old].on[axis];
  Placement with = *p;
  with.on[axis] = assigned;
  return assigned && placement_fits(s->m, value_type(s->f, old), &with) ? assigned : NULL;
}

void site_define(CollectSite *s, ValueId old, ValueId v, const Placement *at) {
  must(old < s->f->values.n && v < s->to->values.n, "collect: %%%u of %s becomes %%%u", old,
       s->f->name, v);
  Placement p = *at;
  s->to->values.at[v].placed = *at;
  for (int i = 0; i < s->c->n; i++) {
    int axis = s->c->axis[i];
    bool stays = at->on[axis] == PARTIAL_SUM && s->u.linear[old];
    if (at->on[axis] == PARTIAL_MAX) p.on[axis] = NULL; /* its blocks then cost nothing */
    else if (is_partial(p.on[axis]) && !stays) p.on[axis] = completed_to(s, old, axis, &p);
  }
  if (s->u.root[old]) p = s->u.assigned[old];
  s->gradient = s->u.root[old] || s->u.gradient[old];
  v = site_convert(s, v, &p);
  s->gradient = false, s->copies[old].n = 0;
  site_put(s, old, v, &p);
}

static void collect_op(CollectSite *s, const Op *o) {
  Way w;
  if (!choose_way(s, o, &w)) return;
  ValueId first = site_emit(s, o, w.in);
  for (uint32_t i = 0; i < o->nout; i++) site_define(s, o->out + i, first + i, &w.out[i]);
}

static Placement global_placement(const Collect *c, const Global *g) {
  Placement p = g->placed;
  const Demand *d = demand_find(c, g, 0);
  for (int i = 0; d && i < MAX_MESH; i++)
    if (d->whole[i]) p.on[i] = NULL;
  return p;
}

static void collect_global(CollectSite *s, const Op *o) {
  Placement p = global_placement(s->c, o->global);
  if (o->code == OP_load) {
    ValueId v = site_emit(s, o, NULL);
    site_put(s, o->out, v, &p);
  } else {
    ValueId v = o->in[0];
    for (int a = 0; a < MAX_MESH && s->u.of[v]; a++)
      if (s->u.assigned[v].on[a] && s->u.assigned[v].on[a] != p.on[a]) {
        collect_refuse(s, o, v, a);
        return;
      }
    site_emit(s, o, &p);
  }
}

/* ---- loops ---- */

static void visit(CollectSite *s);

static CollectSite site_new(Collect *c, const Fn *f) {
  must(c->n <= (int)c->m->mesh.n, "collect: %d axes of a mesh of %u", c->n, c->m->mesh.n);
  CollectSite s = {.c = c, .m = c->m, .f = f, .to = fn_new(c->m, f->kind, f->name)};
  s.to->loc = f->loc;
  s.u = uses_new(c->m, f);
  s.copies = ARENA_ARRAY(c->m->arena, Copies, f->values.n + 1);
  s.map = ARENA_ARRAY(c->m->arena, ValueId, f->values.n + 1);
  return s;
}

static Placement without(Placement p, Str dim) {
  for (int i = 0; i < MAX_MESH; i++)
    if (p.on[i] == dim) p.on[i] = NULL;
  return p;
}

typedef struct CollectLoop {
  CollectSite *outer;
  const Op *o;
  LoopShape s;
  CollectSite in;
  ValueList operands;
} CollectLoop;

/* Where the stack is cut over axes that do not cut what the body has of it: so a plan splits what
   one loop keeps for another (pass `place`). */
static Placement as_the_stack(const CollectLoop *l, ValueId stack, const Placement *assigned) {
  Placement p = *assigned, all = without(l->outer->u.assigned[stack], l->s.axis.dim);
  for (int a = 0; a < MAX_MESH; a++)
    if (!p.on[a]) p.on[a] = all.on[a];
  return p;
}

static bool splits_stacks(const CollectLoop *l, ValueId stack) {
  const Op *def = value_def(l->outer->f, stack);
  return def && def->code == OP_loop && attr_get(&def->attrs, ATTR_over);
}

/* Weights come as they are, free things as the body asks for them, all else comes assigned. */
static Placement argument_placement(const CollectLoop *l, uint32_t i) {
  ValueId arg = l->in.f->args.at[i + 1];
  Placement p = l->in.u.assigned[arg];
  if (i < l->s.carry) return p;
  if (l->in.u.of[arg]) return without(l->outer->u.assigned[l->o->in[i]], l->s.axis.dim);
  if (i >= l->s.carry + l->s.invariant && !l->in.u.free[arg] && splits_stacks(l, l->o->in[i]))
    return as_the_stack(l, l->o->in[i], &p);
  const Demand *d = l->in.u.free[arg] ? demand_find(l->in.c, l->in.f, i + 1) : NULL;
  for (int a = 0; d && a < MAX_MESH; a++)
    if (d->whole[a]) p.on[a] = NULL;
  return p;
}

static bool is_kept_split(const CollectLoop *l, ValueId arg, const Placement *p) {
  return !l->in.u.free[arg] && !placement_equal(p, &l->in.u.assigned[arg]) &&
         value_is_used(l->in.f, arg);
}

/* Blocks are joined once, in front of all that reads them: one all-gather of the value. */
static void join_kept(CollectLoop *l, ValueId arg, ValueId v) {
  const Placement *p = &l->in.u.assigned[arg];
  v = site_convert(&l->in, v, p);
  l->in.copies[arg].n = 0;
  site_put(&l->in, arg, v, p);
}

static void add_arguments(CollectLoop *l) {
  const Fn *f = l->in.f;
  for (uint32_t i = 0; i < f->args.n; i++) {
    ValueId arg = f->args.at[i];
    ValueId v = fn_arg(l->in.m, l->in.to, *value_type(f, arg));
    Placement p = i ? argument_placement(l, i - 1) : (Placement){0};
    if (i && l->in.u.of[arg]) l->in.u.assigned[arg] = p;
    site_put(&l->in, arg, v, &p);
    if (i && is_kept_split(l, arg, &p)) join_kept(l, arg, v);
  }
}

/* What has been written of a stack and what this loop adds to it lie alike: as gradients do, if
   both are so placed, else at assigned. Of a stack that its rounds read, too, the operand is at
   assigned. */
static Placement continued_placement(CollectLoop *l, uint32_t result, uint32_t operand) {
  const Fn *f = l->in.f;
  ValueId v = f->results.at[result], arg = f->args.at[operand + 1];
  const Placement *have = &l->outer->copies[l->o->in[operand]].at[0].at;
  Placement p = l->in.u.free[v] ? l->in.u.assigned[v] : l->in.copies[v].at[0].at,
            assigned = without(l->outer->u.assigned[l->o->out + result], l->s.axis.dim);
  if (value_is_used(f, arg)) return l->in.copies[arg].at[0].at;
  for (int a = 0; a < MAX_MESH; a++)
    if (p.on[a] != have->on[a] || !l->in.u.gradient[v]) p.on[a] = assigned.on[a];
  ValueId slice = l->in.copies[arg].at[0].v;
  l->in.copies[arg].n = 0;
  site_put(&l->in, arg, slice, &p);
  return p;
}

static void add_results(CollectLoop *l) {
  const Fn *f = l->in.f;
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId v = f->results.at[i];
    bool sums = i < l->s.carry && l->in.u.running[f->args.at[i + 1]];
    bool free_way = sums || (i >= l->s.carry && l->in.u.gradient[v] && !l->in.u.free[v]);
    Placement p = free_way ? l->in.copies[v].at[0].at : l->in.u.assigned[v];
    if (i < l->s.carry && !sums) p = l->in.copies[f->args.at[i + 1]].at[0].at;
    uint32_t on = loop_continues(l->o, i);
    if (on != NO_VALUE) p = continued_placement(l, i, on);
    else if (i >= l->s.carry && l->s.over && !free_way && !l->in.u.free[v])
      p = as_the_stack(l, l->o->out + i, &p);
    fn_result(l->in.m, l->in.to, site_reshard(&l->in, v, &p));
  }
}

/* ---- stages ---- */

static int stage_axis(const CollectLoop *l) {
  return l->s.stages ? mesh_find(l->outer->m, l->s.stages) : -1;
}

/* Outside of a loop whose rounds an axis cuts: stacks are cut along them, a sum over rounds is one
   over stages, and so is what is carried from stage to stage: the last one has it, the others 0;
   where it streams it stays there, and nobody waits for it (pass `pipeline` sees to what is made of
   it). Inside nothing is placed on that axis. */
static Placement outside(const CollectLoop *l, Placement p, Str state) {
  int axis = stage_axis(l);
  if (axis >= 0) p.on[axis] = state;
  return p;
}

static bool is_placed_inside(const Fn *f, int axis) {
  for (uint32_t i = 0; i < f->values.n; i++)
    if (f->values.at[i].placed.on[axis]) return true;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop && is_placed_inside(f->ops.at[i].callee, axis)) return true;
  return false;
}

/* What a stage reads of another one's must not be cut over their axis, and what goes from one to
   the next must be a value that the others can have as 0. */
static bool stages_are_apart(CollectLoop *l) {
  int axis = stage_axis(l);
  const char *why = NULL;
  if (axis < 0) return true;
  if (is_placed_inside(l->in.to, axis)) why = "its layers share what the axis cuts otherwise";
  for (uint32_t i = 0; i < l->s.carry; i++) {
    ValueId arg = l->in.f->args.at[i + 1];
    if (elem_class(value_type(l->in.f, arg)->elem) != CLASS_FLOAT)
      why = "its layers hand on something that is no float";
  }
  if (!why) return true;
  l->outer->c->failed = true;
  Report *r = diag_at(l->outer->m->ctx->diag, "E0901", span_of(l->outer->m, l->o->loc),
                      "a pipeline of `%s` over `%s` is not built yet", l->s.axis.dim, l->s.stages);
  diag_label(r, "%s", why);
  return false;
}

static bool sums(const CollectLoop *l, uint32_t i) {
  return i < l->s.carry && l->in.u.running[l->in.f->args.at[i + 1]];
}

/* A first value that is zero lies wherever the sum does. */
static void bring_operands(CollectLoop *l) {
  for (uint32_t i = 0; i < l->o->nin; i++) {
    Placement p = outside(l, *site_placed(&l->in, l->in.to->args.at[i + 1]),
                          sums(l, i)                        ? PARTIAL_SUM
                          : i < l->s.carry + l->s.invariant ? NULL
                                                            : l->s.axis.dim);
    vec_push(l->in.m->arena, l->operands, site_reshard(l->outer, l->o->in[i], &p));
  }
}

static void collect_loop(CollectSite *s, const Op *o) {
  CollectLoop l = {.outer = s, .o = o, .s = loop_shape(o), .in = site_new(s->c, o->callee)};
  uses_of_body(s->m, s->f, &s->u, o, &l.in.u);
  add_arguments(&l);
  visit(&l.in);
  if (s->c->failed) return;
  add_results(&l);
  if (!stages_are_apart(&l)) return;
  bring_operands(&l);
  ValueId first = rebuild_loop(s->m, s->to, l.in.to, l.s, l.operands.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    Placement p = outside(&l, *site_placed(&l.in, l.in.to->results.at[i]),
                          i >= l.s.carry                ? l.s.axis.dim
                          : l.s.streams && !sums(&l, i) ? NULL
                                                        : PARTIAL_SUM);
    site_define(s, o->out + i, first + i, &p);
  }
}

/* ---- functions ---- */

static bool is_free(const CollectSite *s, const Op *o) {
  return o->code != OP_load && o->nout && s->u.free[o->out];
}

static void visit(CollectSite *s) {
  for (uint32_t i = 0; i < s->f->ops.n && !s->c->failed; i++) {
    const Op *o = s->op = &s->f->ops.at[i];
    if (is_free(s, o)) continue;
    if (op_family(o->code) == FAMILY_GLOBAL) collect_global(s, o);
    else if (o->code == OP_loop) collect_loop(s, o);
    else if (!sum_like(s->f, o)) collect_op(s, o);
    else if (!s->u.inner[o->out]) collect_sum(s, o);
  }
}

static Fn *collect_entry(Collect *c, const Fn *f) {
  CollectSite s = site_new(c, f);
  uses_of_entry(c->m, f, &s.u);
  visit(&s);
  return s.to;
}

void pass_collect(Module *m) {
  Collect c = {.m = m};
  uint32_t n = m->fns.n;
  Fn **entry = ARENA_ARRAY(m->arena, Fn *, n + 1);
  if (!m->mesh.n) return;
  c.n = mesh_order(m, c.axis);
  do {
    c.again = false;
    for (uint32_t i = 0; i < n && !c.failed; i++)
      if (m->fns.at[i]->kind == FN_ENTRY) entry[i] = collect_entry(&c, m->fns.at[i]);
  } while (c.again && !c.failed);
  if (c.failed) return;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *g = m->globals.at[i];
    g->placed = global_placement(&c, g);
  }
  for (uint32_t i = 0; i < n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) module_replace(m, m->fns.at[i], entry[i]);
  module_collect(m);
}
