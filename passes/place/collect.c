/* collect: inserts collectives where placements disagree. Every op gets its operands in the
   placement that it works on, and every result states its actual placement (docs/ir.md,
   Placements).

   One walk per function in program order. An op takes the strategy that sends the least
   (collect_choose.c); its operands are brought into its placement (collect_reshard.c). A partial
   sum stays partial as long as everything that reads it is a sum or moves indexes; otherwise it is
   completed right after its definition, to its assigned placement: so nothing is completed twice
   and saved values are complete.

   Loops run over the same body, written once; at their borders values have their assigned
   placement, except that sums over the rounds and gradients may leave as partial sums, to be
   completed once after the loop. Inputs and positions are made where they are needed and never
   sent: if shards do not suffice, the whole input is requested and the walk starts again (each
   time with at least one axis less). Without a mesh the pass does nothing. */
#include "ir/plan/module_settings.h"
#include "collect.h"
#include "localize.h"
#include <string.h>

static Str completed_to(const CollectSite *site, ValueId old, int axis,
                        const Placement *placement) {
  Str assigned = site->u.assigned[old].on[axis];
  Placement with = *placement;
  with.on[axis] = assigned;
  return assigned && placement_fits(site->m, value_type(site->f, old), &with) ? assigned : NULL;
}

void site_define(CollectSite *site, ValueId old, ValueId v, const Placement *at) {
  must(old < site->f->values.n && v < site->to->values.n, "collect: %%%u of %s becomes %%%u", old,
       site->f->name, v);
  Placement placement = *at;
  site->to->values.at[v].placed = *at;
  for (int i = 0; i < site->c->n; i++) {
    int axis = site->c->axis[i];
    bool stays = at->on[axis] == PARTIAL_SUM && site->u.linear[old];
    if (at->on[axis] == PARTIAL_MAX) placement.on[axis] = NULL; /* its blocks then cost nothing */
    else if (is_partial(placement.on[axis]) && !stays)
      placement.on[axis] = completed_to(site, old, axis, &placement);
  }
  if (site->u.root[old]) placement = site->u.assigned[old];
  site->gradient = site->u.root[old] || site->u.gradient[old];
  v = site_convert(site, v, &placement);
  site->gradient = false, site->copies[old].n = 0;
  site_put(site, old, v, &placement);
}

static void collect_op(CollectSite *site, const Op *o) {
  Way way;
  if (o->code == OP_cast && site->u.narrowed[o->out]) {
    Placement placement = site->copies[o->in[0]].at[0].at;
    site_define(site, o->out, site_emit(site, o, &placement), &placement);
    return;
  }
  if (!choose_way(site, o, &way)) return;
  ValueId first = site_emit(site, o, way.in);
  for (uint32_t i = 0; i < o->nout; i++) site_define(site, o->out + i, first + i, &way.out[i]);
  int ring = op_family(o->code) == FAMILY_ATTENTION ? ring_axis(site->m, o, &way.in[1]) : -1;
  if (ring >= 0) site->c->ring[ring] = true;
}

static Placement global_placement(const Collect *collect, const Global *global) {
  Placement placement = global->placed;
  const Demand *demand = demand_find(collect, global, 0);
  for (int i = 0; demand && i < MAX_MESH; i++)
    if (demand->whole[i]) placement.on[i] = NULL;
  return placement;
}

static void collect_global(CollectSite *site, const Op *o) {
  Placement placement = global_placement(site->c, o->global);
  if (o->code == OP_load) {
    ValueId v = site_emit(site, o, NULL);
    site_put(site, o->out, v, &placement);
  } else {
    ValueId v = o->in[0];
    for (int a = 0; a < MAX_MESH && site->u.of[v]; a++)
      if (site->u.assigned[v].on[a] && site->u.assigned[v].on[a] != placement.on[a]) {
        collect_refuse(site, o, v, a);
        return;
      }
    site_emit(site, o, &placement);
  }
}

/* ---- loops ---- */

static void visit(CollectSite *s);

static CollectSite site_new(Collect *collect, const Fn *f) {
  must(collect->n <= (int)collect->m->mesh.n, "collect: %d axes of a mesh of %u", collect->n,
       collect->m->mesh.n);
  CollectSite site = {.c = collect, .m = collect->m, .f = f, .to = fn_like(collect->m, f)};
  site.u = uses_new(collect->m, f);
  site.copies = ARENA_ARRAY(collect->m->arena, Copies, f->values.n + 1);
  site.map = ARENA_ARRAY(collect->m->arena, ValueId, f->values.n + 1);
  return site;
}

static Placement without(Placement placement, Str dim) {
  for (int i = 0; i < MAX_MESH; i++)
    if (placement.on[i] == dim) placement.on[i] = NULL;
  return placement;
}

typedef struct CollectLoop {
  CollectSite *outer;
  const Op *o;
  LoopShape s;
  CollectSite in;
  ValueList operands;
} CollectLoop;

/* Used if the stack is cut over axes that do not cut the body's slice of it: a plan splits in this
   way the values that one loop keeps for another (pass `place`). */
static Placement as_the_stack(const CollectLoop *loop, ValueId stack, const Placement *assigned) {
  Placement placement = *assigned, all = without(loop->outer->u.assigned[stack], loop->s.axis.dim);
  for (int a = 0; a < MAX_MESH; a++)
    if (!placement.on[a]) placement.on[a] = all.on[a];
  return placement;
}

static bool splits_stacks(const CollectLoop *loop, ValueId stack) {
  const Op *def = value_def(loop->outer->f, stack);
  return def && def->code == OP_loop && attr_get(&def->attrs, ATTR_saved_axes);
}

/* Weights keep their placement, free values take the placement that the body needs, all others
   have their assigned placement. */
static Placement argument_placement(const CollectLoop *loop, uint32_t i) {
  ValueId arg = loop->in.f->args.at[i + 1];
  Placement placement = loop->in.u.assigned[arg];
  if (i < loop->s.carry) return placement;
  if (loop->in.u.of[arg]) return without(loop->outer->u.assigned[loop->o->in[i]], loop->s.axis.dim);
  if (i >= loop->s.carry + loop->s.invariant && !loop->in.u.free[arg] &&
      splits_stacks(loop, loop->o->in[i]))
    return as_the_stack(loop, loop->o->in[i], &placement);
  const Demand *demand = loop->in.u.free[arg] ? demand_find(loop->in.c, loop->in.f, i + 1) : NULL;
  for (int a = 0; demand && a < MAX_MESH; a++)
    if (demand->whole[a]) placement.on[a] = NULL;
  return placement;
}

static bool is_kept_split(const CollectLoop *loop, ValueId arg, const Placement *placement) {
  return !loop->in.u.free[arg] && !placement_equal(placement, &loop->in.u.assigned[arg]) &&
         value_is_used(loop->in.f, arg);
}

/* Shards are joined once, before all of their readers: one all-gather of the value. */
static void join_kept(CollectLoop *loop, ValueId arg, ValueId v) {
  const Placement *placement = &loop->in.u.assigned[arg];
  v = site_convert(&loop->in, v, placement);
  loop->in.copies[arg].n = 0;
  site_put(&loop->in, arg, v, placement);
}

static void add_arguments(CollectLoop *loop) {
  const Fn *f = loop->in.f;
  for (uint32_t i = 0; i < f->args.n; i++) {
    ValueId arg = f->args.at[i];
    ValueId v = fn_arg(loop->in.m, loop->in.to, *value_type(f, arg));
    Placement placement = i ? argument_placement(loop, i - 1) : (Placement){0};
    if (i && loop->in.u.of[arg]) loop->in.u.assigned[arg] = placement;
    site_put(&loop->in, arg, v, &placement);
    if (i && is_kept_split(loop, arg, &placement)) join_kept(loop, arg, v);
  }
  uses_follow_weights(f, &loop->in.u);
}

/* The operand that a loop continues and the slices that it adds have the same placement: that of
   gradients if both have it; the operand's where it is split and the slices are whole, because a
   stack of which some slices are written cannot be gathered; else the assigned one. If the rounds
   also read the stack, the operand has its assigned placement. */
static Placement continued_placement(CollectLoop *loop, uint32_t result, uint32_t operand) {
  const Fn *f = loop->in.f;
  ValueId v = f->results.at[result], arg = f->args.at[operand + 1];
  const Placement *have = &loop->outer->copies[loop->o->in[operand]].at[0].at;
  Placement placement = loop->in.u.free[v] ? loop->in.u.assigned[v] : loop->in.copies[v].at[0].at,
            assigned = without(loop->outer->u.assigned[loop->o->out + result], loop->s.axis.dim);
  if (value_is_used(f, arg)) return loop->in.copies[arg].at[0].at;
  for (int a = 0; a < MAX_MESH; a++) {
    bool cuts = !placement.on[a] && is_split(have->on[a]);
    if (cuts) placement.on[a] = have->on[a];
    else if (placement.on[a] != have->on[a] || !loop->in.u.gradient[v])
      placement.on[a] = assigned.on[a];
  }
  ValueId slice = loop->in.copies[arg].at[0].v;
  loop->in.copies[arg].n = 0;
  site_put(&loop->in, arg, slice, &placement);
  return placement;
}

static void add_results(CollectLoop *loop) {
  const Fn *f = loop->in.f;
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId v = f->results.at[i];
    bool sums = i < loop->s.carry && loop->in.u.running[f->args.at[i + 1]];
    bool free_way = sums || (i >= loop->s.carry && loop->in.u.gradient[v] && !loop->in.u.free[v]);
    Placement placement = free_way ? loop->in.copies[v].at[0].at : loop->in.u.assigned[v];
    if (i < loop->s.carry && !sums) placement = loop->in.copies[f->args.at[i + 1]].at[0].at;
    uint32_t on = loop_continues(loop->o, i);
    if (on != NO_VALUE) placement = continued_placement(loop, i, on);
    else if (i >= loop->s.carry && loop->s.over && !free_way && !loop->in.u.free[v])
      placement = as_the_stack(loop, loop->o->out + i, &placement);
    fn_result(loop->in.m, loop->in.to, site_reshard(&loop->in, v, &placement));
  }
}

/* ---- stages ---- */

static int stage_axis(const CollectLoop *loop) {
  return loop->s.stages ? mesh_find(loop->outer->m, loop->s.stages) : -1;
}

/* The placement outside of a loop whose rounds an axis cuts. Stacks are sharded along the rounds;
   a sum over rounds is a partial sum over stages. So is a carried value that stages hand on: the
   last stage has it, the others have 0. If the value streams, it remains on the last stage and no
   rank waits for it (pass `pipeline` handles the values computed from it). Inside, nothing is
   placed on that axis. */
static Placement outside(const CollectLoop *loop, Placement placement, Str state) {
  int axis = stage_axis(loop);
  if (axis >= 0) placement.on[axis] = state;
  return placement;
}

static bool is_placed_inside(const Fn *f, int axis) {
  for (uint32_t i = 0; i < f->values.n; i++)
    if (f->values.at[i].placed.on[axis]) return true;
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop && is_placed_inside(f->ops.at[i].callee, axis)) return true;
  return false;
}

/* A value that stages read from one another must not be sharded over their axis, and a carried
   value must have a type in which the other stages can hold 0. */
static bool stages_are_apart(CollectLoop *loop) {
  int axis = stage_axis(loop);
  const char *why = NULL;
  if (axis < 0) return true;
  if (is_placed_inside(loop->in.to, axis))
    why = "a value inside its layers is split over this axis as well";
  for (uint32_t i = 0; i < loop->s.carry; i++) {
    ValueId arg = loop->in.f->args.at[i + 1];
    if (!value_is_float(loop->in.f, arg)) why = "its layers carry a value that is not a float";
  }
  if (!why) return true;
  loop->outer->c->failed = true;
  Report *r =
      diag_at(loop->outer->m->ctx->diag, "E0901", span_of(loop->outer->m, loop->o->loc),
              "a pipeline of `%s` over `%s` is not built yet", loop->s.axis.dim, loop->s.stages);
  diag_label(r, "%s", why);
  return false;
}

static bool sums(const CollectLoop *loop, uint32_t i) {
  return i < loop->s.carry && loop->in.u.running[loop->in.f->args.at[i + 1]];
}

/* Is it a sum over layers that becomes a sum over stages, each adding up its own layers? If
   micro-batches stream, the sum of an operand of all layers that has samples is passed from stage
   to stage instead: the last stage of the line has all of it, and no stage waits. Between chunks
   this is not possible, since their schedule counts one message per stage: pass `pipeline` refuses
   the remaining cases. */
static bool sums_stages(const CollectLoop *loop, uint32_t i) {
  if (!sums(loop, i)) return false;
  const Type *t = value_type(loop->in.f, loop->in.f->args.at[i + 1]);
  bool samples = type_find(t, intern(loop->in.m->ctx->names, "Batch")) >= 0;
  return !(loop->s.streams && samples) || plan_chunks(loop->in.m) > 1;
}

/* An initial value that is zero takes the placement of the sum. */
static void bring_operands(CollectLoop *loop) {
  for (uint32_t i = 0; i < loop->o->nin; i++) {
    Placement placement = outside(loop, *site_placed(&loop->in, loop->in.to->args.at[i + 1]),
                                  sums_stages(loop, i)                    ? PARTIAL_SUM
                                  : i < loop->s.carry + loop->s.invariant ? NULL
                                                                          : loop->s.axis.dim);
    vec_push(loop->in.m->arena, loop->operands,
             site_reshard(loop->outer, loop->o->in[i], &placement));
  }
}

static void collect_loop(CollectSite *site, const Op *o) {
  CollectLoop loop = {
      .outer = site, .o = o, .s = loop_shape(o), .in = site_new(site->c, o->callee)};
  uses_of_body(site->m, site->f, &site->u, o, &loop.in.u);
  add_arguments(&loop);
  visit(&loop.in);
  if (site->c->failed) return;
  add_results(&loop);
  if (!stages_are_apart(&loop)) return;
  bring_operands(&loop);
  ValueId first =
      rebuild_loop(site->m, site->to, loop.in.to, loop.s, loop.operands.at, o->loc)->out;
  for (uint32_t i = 0; i < o->nout; i++) {
    Placement placement = outside(&loop, *site_placed(&loop.in, loop.in.to->results.at[i]),
                                  i >= loop.s.carry                          ? loop.s.axis.dim
                                  : loop.s.streams && !sums_stages(&loop, i) ? NULL
                                                                             : PARTIAL_SUM);
    site_define(site, o->out + i, first + i, &placement);
  }
}

/* ---- functions ---- */

static bool is_free(const CollectSite *site, const Op *o) {
  return o->code != OP_load && o->nout && site->u.free[o->out];
}

static void visit(CollectSite *site) {
  for (uint32_t i = 0; i < site->f->ops.n && !site->c->failed; i++) {
    const Op *o = site->op = &site->f->ops.at[i];
    if (is_free(site, o)) continue;
    if (op_family(o->code) == FAMILY_GLOBAL) collect_global(site, o);
    else if (o->code == OP_loop) collect_loop(site, o);
    else if (!sum_like(site->f, o)) collect_op(site, o);
    else if (!site->u.inner[o->out]) collect_sum(site, o);
  }
}

static Fn *collect_entry(Collect *collect, const Fn *f) {
  collect->deals = entry_deals(f);
  CollectSite site = site_new(collect, f);
  uses_of_entry(collect->m, f, &site.u);
  visit(&site);
  return site.to;
}

/* A line `ring` that no attention follows. */
static void check_rings(Collect *collect) {
  for (uint32_t i = 0; i < collect->m->rules.n; i++) {
    const PlaceRule *rule = &collect->m->rules.at[i];
    int axis = rule->ring ? mesh_find(collect->m, rule->axes.at[0]) : -1;
    if (axis < 0 || collect->ring[axis] || collect->m->mesh.at[axis].size == 1) continue;
    collect->failed = true;
    Report *r = diag_at(collect->m->ctx->diag, "E0602", span_of(collect->m, rule->loc),
                        "no attention passes keys round `%s`", rule->axes.at[0]);
    diag_fact(r, "`ring` needs attention whose queries and keys this line splits over the axis");
    diag_help(r, "leave out `ring`");
  }
}

void pass_collect(Module *m) {
  Collect collect = {.m = m};
  uint32_t n = m->fns.n;
  Fn **entry = ARENA_ARRAY(m->arena, Fn *, n + 1);
  if (!m->mesh.n) return;
  collect.n = mesh_order(m, collect.axis);
  do {
    collect.again = false;
    for (uint32_t i = 0; i < n && !collect.failed; i++)
      if (m->fns.at[i]->kind == FN_ENTRY) entry[i] = collect_entry(&collect, m->fns.at[i]);
  } while (collect.again && !collect.failed);
  if (!collect.failed) check_rings(&collect);
  if (collect.failed) return;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    Global *global = m->globals.at[i];
    global->placed = global_placement(&collect, global);
  }
  for (uint32_t i = 0; i < n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) module_replace(m, m->fns.at[i], entry[i]);
  module_collect(m);
}
