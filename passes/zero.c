/* zero: parameters that every rank of an axis would hold alike become flat groups, and the stage
   says what of them is kept as one rank's shard: 1 the optimizer's states, 2 gradients too, 3
   parameters too ("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section
   5).

     stage   gradient                                    parameter
     0       all-reduce of the flat group                every rank updates all
     1       reduce-scatter at the end of the step       own shard is updated, all-gather
     2       reduce-scatter of each micro-batch, per     the same
             round of a stack
     3       the same                                    gathered before each round that reads it

   Runs below `localize`: members have the sizes of one rank. The norm is summed per bucket and
   owner and these sums in one order, so all stages get the same bits. Further axes over which a
   gradient is a partial sum are reduced on the shard, once per step. Must not: touch parameters
   that `place` cut over the axis (their gradients have no all-reduce over it). */
#include "ir/placement.h"
#include "passes/guard_nonfinite.h"
#include "passes/zero_site.h"
#include "ir/module_settings.h"
#include <string.h>

typedef struct ZeroEntry { /* an entry being rewritten */
  Zero *z;
  ZeroSite site;
  bool *stored;      /* by group */
  bool goes_on;      /* reads states, without being `step`: it stores what becomes of them */
  ValueId *complete; /* by group: the gradient, summed over all axes */
} ZeroEntry;

/* ---- globals ---- */

/* A shard says over which axes it is one. */
static Global *add_global(Zero *z, const ZeroGroup *g, GlobalKind kind, Str name, Type t, Loc loc,
                          bool shard) {
  Global *x = module_add_global(z->m, kind, name, t, loc);
  for (int i = 0; shard && i < g->naxes; i++)
    x->placed.on[mesh_find(z->m, g->axis[i])] = g->owner[i];
  return x;
}

static void add_globals(Zero *z, ZeroGroup *g) {
  const ZeroMember *first = &g->member.at[0];
  bool all = g->rounds.dim != NULL, whole = g->stage<3, shard = g->stage> 0;
  Elem e = first->param->type.elem;
  if (g->copied) {
    Type own = zero_owned_type(z, g, e, all, !shard);
    Str name = intern_printf(z->m->ctx->names, "%s.master", g->name);
    g->master = add_global(z, g, GLOBAL_STATE, name, own, first->param->loc, shard);
    e = g->narrow;
  }
  Type t = whole ? zero_flat_type(g, e, all) : zero_owned_type(z, g, e, all, false);
  g->param = add_global(z, g, GLOBAL_PARAM, g->name, t, first->param->loc, !whole);
  g->param->derived = g->copied;
  for (uint32_t i = 0; i < g->nstates; i++) {
    const Global *old = first->state[i];
    Str name =
        intern_printf(z->m->ctx->names, "%s%s", g->name, old->name + strlen(first->param->name));
    t = zero_owned_type(z, g, old->type.elem, all, !shard);
    g->state[i] = add_global(z, g, GLOBAL_STATE, name, t, old->loc, shard);
  }
}

static bool is_member(const Zero *z, const Global *x, uint32_t *group, uint32_t *member,
                      int *state) {
  for (uint32_t g = 0; g < z->group.n; g++)
    for (uint32_t i = 0; i < z->group.at[g].member.n; i++) {
      const ZeroMember *m = &z->group.at[g].member.at[i];
      *group = g, *member = i, *state = -1;
      if (m->param == x) return true;
      for (uint32_t k = 0; k < z->group.at[g].nstates; k++)
        if (m->state[k] == x) return *state = (int)k, true;
    }
  return false;
}

static void put_members(const ZeroGroup *g) {
  for (uint32_t i = 0; i < g->member.n; i++) {
    const ZeroMember *m = &g->member.at[i];
    m->param->within = g->copied ? g->master : g->param, m->param->begin = m->begin;
    for (uint32_t k = 0; k < g->nstates; k++)
      m->state[k]->within = g->state[k], m->state[k]->begin = m->begin;
  }
}

/* Groups stand before their members. */
static void sort_globals(Module *m) {
  VEC(Global *) all = {0};
  for (int members = 0; members < 2; members++)
    for (uint32_t i = 0; i < m->globals.n; i++)
      if ((m->globals.at[i]->within != NULL) == members) vec_push(m->arena, all, m->globals.at[i]);
  for (uint32_t i = 0; i < all.n; i++) m->globals.at[i] = all.at[i];
}

/* ---- reading ---- */

/* As the functions of the entry read it. */
static ValueId load_param(ZeroEntry *e, uint32_t group) {
  Zero *z = e->z;
  const ZeroGroup *g = &z->group.at[group];
  ValueId v = ir_load(z->m, e->site.to, g->param, (Loc){0});
  if (g->stage < 3 || !z->keep_gathered) return v;
  return zero_join(z, e->site.to, g, zero_gather(z, e->site.to, g, v), g->rounds.dim != NULL);
}

static void find_members(ZeroEntry *e) {
  ZeroSite *s = &e->site;
  for (uint32_t i = 0; i < s->from->ops.n; i++) {
    const Op *o = &s->from->ops.at[i];
    uint32_t group, member;
    int state;
    if (o->code != OP_load || !is_member(e->z, o->global, &group, &member, &state) || state >= 0)
      continue;
    bool all = e->z->group.at[group].rounds.dim != NULL;
    s->ref[o->out] = (Ref){.group = (int)group, .member = member, .all = all};
    if (s->kept[all][group] == NO_VALUE) s->kept[all][group] = load_param(e, group);
  }
}

/* An entry beside `step` that reads states of members reads them where they lie, all of them: there
   is no stage then (the frontend says so). */
static void find_states(ZeroEntry *e) {
  ZeroSite *s = &e->site;
  for (uint32_t i = 0; i < s->from->ops.n; i++) {
    const Op *o = &s->from->ops.at[i];
    uint32_t group, member;
    int state;
    if (o->code != OP_load || !is_member(e->z, o->global, &group, &member, &state) || state < 0)
      continue;
    const ZeroGroup *g = &e->z->group.at[group];
    must(!g->stage, "zero: %s reads @%s, of which a rank has a part", s->from->name,
         o->global->name);
    bool all = g->rounds.dim != NULL;
    ValueId v = ir_load(e->z->m, s->to, g->state[state], o->loc);
    v = zero_join(e->z, s->to, g, v, all);
    s->map[o->out] = zero_member(e->z, s->to, g, member, v, all);
    e->goes_on = true;
  }
}

/* ---- the gradient and its norm ---- */

static ValueId complete(ZeroEntry *e, uint32_t group) {
  Zero *z = e->z;
  ZeroGroup *g = &z->group.at[group];
  if (e->complete[group] != NO_VALUE) return e->complete[group];
  ValueId v = site_reduced(&e->site, group);
  g->gradient = type_count(value_type(e->site.to, v));
  for (int i = 0; i < g->nothers && !g->summed_inside; i++)
    v = zero_sum_gradient(z, e->site.to, g->others[i], v);
  v = ir_cast(z->m, e->site.to, v, value_type(z->step, g->member.at[0].leaf)->elem, (Loc){0});
  return e->complete[group] = v;
}

/* One number, or one per round, as the old one was. */
static ValueId norm_of(ZeroEntry *e, uint32_t group, const Type *as) {
  Zero *z = e->z;
  const ZeroGroup *g = &z->group.at[group];
  Fn *f = e->site.to;
  Str dims[ZERO_AXES + 2] = {g->bucket};
  int n = 1;
  for (int i = 0; i < g->naxes; i++) dims[n++] = g->owner[i];
  if (!as->rank && g->rounds.dim) dims[n++] = g->rounds.dim;
  ValueId v = complete(e, group), q = ir_binary(z->m, f, OP_mul, v, v, (Loc){0});
  q = ir_cast(z->m, f, q, as->elem, (Loc){0});
  q = ir_reduce(z->m, f, OP_sum, q, 1, &g->part, (Loc){0});
  if (g->stage) q = zero_numbers(z, f, g, q);
  return ir_reduce(z->m, f, OP_sum, q, n, dims, (Loc){0});
}

/* The sums of squares that the old norm adds: the first member's is the group's, the others' 0. */
static void prepare_norms(ZeroEntry *e) {
  Zero *z = e->z;
  for (uint32_t g = 0; g < z->group.n; g++)
    for (uint32_t i = 0; i < z->group.at[g].member.n; i++) {
      ValueId old = z->group.at[g].member.at[i].square;
      if (old == NO_VALUE) continue;
      const Type *t = value_type(z->step, old);
      e->site.map[old] = i ? emit_full(z->m, e->site.to, *t, 0, (Loc){0}) : norm_of(e, g, t);
    }
}

/* Which gradient is at fault is told by group: outputs norm2.of.NAME of its members go, that of the
   first one takes the group's name. */
static ZeroGroup *group_of_norm(Zero *z, const Global *x, bool *first) {
  if (x->kind != GLOBAL_OUTPUT || strncmp(x->name, guard_prefix, strlen(guard_prefix))) return NULL;
  for (uint32_t g = 0; g < z->group.n; g++)
    for (uint32_t i = 0; i < z->group.at[g].member.n; i++)
      if (!strcmp(z->group.at[g].member.at[i].param->name, x->name + strlen(guard_prefix)))
        return *first = i == 0, &z->group.at[g];
  return NULL;
}

static void name_norms(Zero *z) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < z->m->globals.n; i++) {
    Global *x = z->m->globals.at[i];
    bool first = false;
    const ZeroGroup *g = group_of_norm(z, x, &first);
    if (g && !first) continue;
    if (g) x->name = intern_printf(z->m->ctx->names, "%s%s", guard_prefix, g->name);
    z->m->globals.at[n++] = x;
  }
  z->m->globals.n = n;
}

/* ---- the update ---- */

static ValueId own_part(ZeroEntry *e, uint32_t group) {
  Zero *z = e->z;
  const ZeroGroup *g = &z->group.at[group];
  bool all = g->rounds.dim != NULL;
  if (g->copied) return ir_load(z->m, e->site.to, g->master, (Loc){0});
  ValueId v = ir_load(z->m, e->site.to, g->param, (Loc){0});
  if (g->stage == 3) return v;
  v = zero_cut(z, e->site.to, g, v, all);
  return g->stage ? zero_own(z, e->site.to, g, v) : v;
}

static void publish(Zero *z, Fn *f, const ZeroGroup *g, ValueId v) {
  ir_store(z->m, f, g->param, zero_publish(z, f, g, v), (Loc){0});
}

static void update(ZeroEntry *e, uint32_t group) {
  const ZeroGroup *g = &e->z->group.at[group];
  ValueId gradient = complete(e, group), own = own_part(e, group),
          v = zero_update(&e->site, group, own, gradient);
  if (g->copied) ir_store(e->z->m, e->site.to, g->master, v, (Loc){0});
  publish(e->z, e->site.to, g, v);
}

/* ---- first values ---- */

static ValueId stored_value(ZeroEntry *e, const Global *x, Type t) {
  const Op *o = zero_store_of(e->site.from, x);
  return o ? site_value(&e->site, o->in[0]) : emit_full(e->z->m, e->site.to, t, 0, (Loc){0});
}

/* State k of all members: zeros, or what the entry makes of them. */
static ValueId stored_state(ZeroEntry *e, uint32_t group, uint32_t k) {
  const ZeroGroup *g = &e->z->group.at[group];
  if (!e->goes_on) return emit_full(e->z->m, e->site.to, g->state[k]->type, 0, (Loc){0});
  bool all = g->rounds.dim != NULL;
  ValueId *v = ARENA_ARRAY(e->z->m->arena, ValueId, g->member.n);
  for (uint32_t i = 0; i < g->member.n; i++)
    v[i] = stored_value(e, g->member.at[i].state[k], g->member.at[i].state[k]->type);
  ValueId flat = zero_flatten(e->z, e->site.to, g, v, all, false);
  return zero_cut(e->z, e->site.to, g, flat, all);
}

static void first_values(ZeroEntry *e, uint32_t group) {
  Zero *z = e->z;
  const ZeroGroup *g = &z->group.at[group];
  bool all = g->rounds.dim != NULL;
  ValueId *v = ARENA_ARRAY(z->m->arena, ValueId, g->member.n);
  for (uint32_t i = 0; i < g->member.n; i++)
    v[i] = stored_value(e, g->member.at[i].param, g->member.at[i].param->type);
  ValueId flat = zero_flatten(z, e->site.to, g, v, all, false);
  if (g->copied) {
    ValueId own = zero_cut(z, e->site.to, g, flat, all);
    if (g->stage) own = zero_own(z, e->site.to, g, own);
    ir_store(z->m, e->site.to, g->master, own, (Loc){0});
    flat = ir_cast(z->m, e->site.to, flat, g->narrow, (Loc){0});
  }
  if (g->stage == 3) {
    flat = zero_cut(z, e->site.to, g, flat, all);
    flat = zero_own(z, e->site.to, g, flat);
  }
  ir_store(z->m, e->site.to, g->param, flat, (Loc){0});
  for (uint32_t k = 0; k < g->nstates; k++)
    if (zero_store_of(e->site.from, g->member.at[0].state[k]))
      ir_store(z->m, e->site.to, g->state[k], stored_state(e, group, k), (Loc){0});
}

/* Copies are no part of checkpoints: what has read the parameters runs this entry behind it. */
static void add_refresh(Zero *z) {
  bool any = false;
  for (uint32_t g = 0; g < z->group.n; g++) any |= z->group.at[g].copied;
  if (!any) return;
  Fn *f = fn_new(z->m, FN_ENTRY, intern(z->m->ctx->names, "refresh"));
  for (uint32_t i = 0; i < z->group.n; i++) {
    const ZeroGroup *g = &z->group.at[i];
    if (g->copied) publish(z, f, g, ir_load(z->m, f, g->master, (Loc){0}));
  }
  module_add(z->m, f);
}

/* ---- entries ---- */

static void rewrite_store(ZeroEntry *e, const Op *o, bool step) {
  uint32_t group, member;
  int state;
  bool first = true;
  if (group_of_norm(e->z, o->global, &first) && !first) return;
  if (!is_member(e->z, o->global, &group, &member, &state)) {
    ir_store(e->z->m, e->site.to, o->global, site_value(&e->site, o->in[0]), o->loc);
    return;
  }
  if (e->stored[group]) return;
  e->stored[group] = true;
  if (step) update(e, group);
  else first_values(e, group);
}

static void rewrite_entry(Zero *z, Fn *f) {
  must(!f->args.n && !f->results.n, "zero: entry %s has arguments", f->name);
  Arena *a = z->m->arena;
  uint32_t n = z->group.n;
  Rebuild r = rebuild_begin(z->m, f);
  ZeroEntry e = {.z = z, .site = site_begin(z, f, r.to)};
  e.stored = ARENA_ARRAY(a, bool, n + 1);
  e.complete = ARENA_ARRAY(a, ValueId, n + 1);
  for (uint32_t g = 0; g < n; g++) e.complete[g] = NO_VALUE;
  find_members(&e);
  if (f != z->step) find_states(&e);
  if (f == z->step) {
    for (uint32_t g = 0; g < n; g++) {
      const ZeroGroup *group = &z->group.at[g];
      ValueId *sum = ARENA_ARRAY(a, ValueId, group->member.n);
      for (uint32_t i = 0; i < group->member.n; i++) sum[i] = group->member.at[i].sum;
      site_gradient(&e.site, g, sum, group->member.at[0].elem);
    }
    prepare_norms(&e);
  }
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_store) rewrite_store(&e, o, f == z->step);
  }
  site_hops(&e.site, f->ops.n);
  module_replace(z->m, f, r.to);
}

int64_t zero_ways(const Zero *z, Str axis) {
  int at = mesh_find(z->m, axis);
  return at < 0 ? 1 : z->m->mesh.at[at].size;
}

/* Is a name in a list like "data, node"? */
static bool lists(const char *list, const char *name) {
  size_t n = strlen(name);
  for (const char *p = list; *p; p += strcspn(p, ", "), p += strspn(p, ", "))
    if (!strncmp(p, name, n) && (!p[n] || p[n] == ',' || p[n] == ' ')) return true;
  return false;
}

static bool cuts_batch(const Module *m, Str axis) {
  Str batch = intern(m->ctx->names, "Batch");
  for (uint32_t i = 0; i < m->rules.n; i++) {
    const PlaceRule *r = &m->rules.at[i];
    bool names = false, cuts = false;
    for (uint32_t k = 0; k < r->axes.n; k++) names |= r->axes.at[k] == axis;
    for (uint32_t k = 0; k < r->dims.n; k++) cuts |= r->dims.at[k] == batch;
    if (names && cuts) return true;
  }
  return false;
}

/* What the plan says, else the axes that cut Batch; in the order of the mesh, whose first axis has
   the ranks that are the nearest to each other. */
static void find_axes(Zero *z) {
  const Module *m = z->m;
  const char *said = plan_zero_axes(m);
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    Str name = m->mesh.at[i].name;
    bool ours = *said ? lists(said, name) : cuts_batch(m, name);
    if (ours && z->naxes < ZERO_AXES) z->axis[z->naxes++] = name;
  }
}

static int reduce_bytes(const Module *m) {
  Elem e;
  Str said = plan_message_type(m);
  return said && elem_find(said, &e) ? (int)elem_bytes(e) : 0;
}

static bool read_settings(Zero *z) {
  Module *m = z->m;
  find_axes(z);
  if (!z->naxes) return false;
  z->stage = plan_zero_stage(m);
  z->bucket_bytes = plan_zero_bucket(m);
  z->reduce_bytes = reduce_bytes(m);
  z->persist = module_whole(m, "plan.zero.persist");
  z->masters = *plan_offload(m) != 0;
  z->keep_root = module_on(m, "plan.zero.keep_root");
  z->keep_gathered = module_on(m, "plan.zero.keep_gathered");
  z->full = plan_accumulates_full(m);
  z->step = entry_of(m, "step");
  return z->step != NULL;
}

void pass_zero(Module *m) {
  Zero z = {.m = m};
  if (!read_settings(&z)) return;
  zero_find_groups(&z);
  for (uint32_t i = 0; i < z.group.n; i++) add_globals(&z, &z.group.at[i]);
  VEC(Fn *) entries = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY) vec_push(m->arena, entries, m->fns.at[i]);
  for (uint32_t i = 0; i < entries.n; i++) rewrite_entry(&z, entries.at[i]);
  zero_warn(&z);
  add_refresh(&z);
  for (uint32_t i = 0; i < z.group.n; i++) put_members(&z.group.at[i]);
  const char *wrong = zero_unaccounted(&z);
  if (wrong) bug("zero: %s", wrong);
  name_norms(&z);
  sort_globals(m);
  module_collect(m);
}
