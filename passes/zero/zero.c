/* zero: parameters that every rank of an axis would hold alike become flat groups. The stage gives
   the values that are kept as one rank's shard: 1 the optimizer's states, 2 also gradients, 3 also
   parameters ("ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5).

     stage   gradient                                    parameter
     0       all-reduce of the flat group                every rank updates all
     1       reduce-scatter at the end of the step       own shard is updated, all-gather
     2       reduce-scatter of each micro-batch, per     the same
             round of a stack
     3       the same                                    gathered before each round that reads it

   Stages 1 and 2 with `prefetch` keep parameters as stage 3 does, and whole from forward to
   backward (zero_sharded.c).

   Runs after `localize`: members have the sizes of one rank. The norm is summed per bucket and
   owner and these sums in one order, so all stages get the same bits. Further axes over which a
   gradient is a partial sum are reduced on the shard, once per step. Must not: touch parameters
   that `place` cut over the axis (their gradients have no all-reduce over it). */
#include "ir/shape/placement.h"
#include "ir/word_patterns.h"
#include "passes/math/guard_nonfinite.h"
#include "zero_site.h"
#include "ir/plan/module_settings.h"
#include <string.h>

typedef struct ZeroEntry { /* an entry being rewritten */
  Zero *z;
  ZeroSite site;
  bool *stored;      /* by group */
  ValueId *complete; /* by group: the gradient, summed over all axes */
} ZeroEntry;

/* ---- globals ---- */

/* A shard says over which axes it is one. */
static Global *add_global(Zero *zero, const ZeroGroup *group, GlobalKind kind, Str name, Type type,
                          Loc loc, bool shard) {
  Global *x = module_add_global(zero->m, kind, name, type, loc);
  x->stages = group->member.at[0].param->stages;
  for (int i = 0; shard && i < group->naxes; i++)
    x->placed.on[mesh_find(zero->m, group->axis[i])] = group->owner[i];
  return x;
}

static void add_globals(Zero *zero, ZeroGroup *group) {
  const ZeroMember *first = &group->member.at[0];
  bool all = group->rounds.dim != NULL, shard = group->stage > 0;
  bool whole = !group->sharded;
  Elem e = first->param->type.elem;
  if (group->copied) {
    Type own = zero_owned_type(zero, group, e, all, !shard);
    Str name = intern_printf(zero->m->ctx->names, "%s.master", group->name);
    group->master = add_global(zero, group, GLOBAL_STATE, name, own, first->param->loc, shard);
    e = group->narrow;
  }
  Type type = whole ? zero_flat_type(group, e, all) : zero_owned_type(zero, group, e, all, false);
  group->param =
      add_global(zero, group, GLOBAL_PARAM, group->name, type, first->param->loc, !whole);
  group->param->derived = group->copied;
  for (uint32_t i = 0; i < group->nstates; i++) {
    const Global *old = first->state[i];
    Str name = intern_printf(zero->m->ctx->names, "%s%s", group->name,
                             old->name + strlen(first->param->name));
    type = zero_owned_type(zero, group, old->type.elem, all, !shard);
    group->state[i] = add_global(zero, group, GLOBAL_STATE, name, type, old->loc, shard);
  }
}

static bool is_member(const Zero *zero, const Global *global, uint32_t *group, uint32_t *member,
                      int *state) {
  for (uint32_t g = 0; g < zero->group.n; g++)
    for (uint32_t i = 0; i < zero->group.at[g].member.n; i++) {
      const ZeroMember *zero_member = &zero->group.at[g].member.at[i];
      *group = g, *member = i, *state = -1;
      if (zero_member->param == global) return true;
      for (uint32_t k = 0; k < zero->group.at[g].nstates; k++)
        if (zero_member->state[k] == global) return *state = (int)k, true;
    }
  return false;
}

static void put_members(const ZeroGroup *group) {
  for (uint32_t i = 0; i < group->member.n; i++) {
    const ZeroMember *member = &group->member.at[i];
    member->param->within = group->copied ? group->master : group->param,
    member->param->begin = member->begin;
    for (uint32_t k = 0; k < group->nstates; k++)
      member->state[k]->within = group->state[k], member->state[k]->begin = member->begin;
  }
}

/* Groups come before their members. */
static void sort_globals(Module *module) {
  VEC(Global *) all = {0};
  for (int members = 0; members < 2; members++)
    for (uint32_t i = 0; i < module->globals.n; i++)
      if ((module->globals.at[i]->within != NULL) == members)
        vec_push(module->arena, all, module->globals.at[i]);
  for (uint32_t i = 0; i < all.n; i++) module->globals.at[i] = all.at[i];
}

/* ---- reading ---- */

/* As the functions of the entry read it. */
static void load_param(ZeroEntry *entry, uint32_t index, bool all) {
  Zero *zero = entry->z;
  ZeroSite *site = &entry->site;
  const ZeroGroup *group = &zero->group.at[index];
  ValueId *value = &site->kept[all][index], *scale = &site->scale[all][index];
  *value = ir_load(zero->m, site->to, group->param, (Loc){0});
  if (zero_packs(zero, group)) *value = zero_pack(zero, site->to, group, *value, scale);
  if (!group->sharded || !zero->keep_gathered || group->keeps_rounds) return;
  ValueId whole = *scale == NO_VALUE ? zero_gather(zero, site->to, group, *value)
                                     : zero_gather_packed(zero, site->to, group, *value, *scale);
  *value = zero_join(zero, site->to, group, whole, group->rounds.dim != NULL), *scale = NO_VALUE;
}

typedef struct ZeroLoad { /* the member and the value that an op loads */
  uint32_t group, member;
  int state; /* -1: the parameter */
} ZeroLoad;

static bool loads_member(const ZeroEntry *entry, const Op *op, ZeroLoad *load) {
  return op->code == OP_load &&
         is_member(entry->z, op->global, &load->group, &load->member, &load->state);
}

static void find_members(ZeroEntry *entry) {
  ZeroSite *site = &entry->site;
  ZeroLoad load;
  EACH_OP (site->from, op) {
    if (!loads_member(entry, op, &load) || load.state >= 0) continue;
    bool all = entry->z->group.at[load.group].rounds.dim != NULL;
    site->ref[op->out] = (Ref){.group = (int)load.group, .member = load.member, .all = all};
    if (site->kept[all][load.group] == NO_VALUE) load_param(entry, load.group, all);
  }
}

static ValueId whole_state(ZeroEntry *entry, const ZeroGroup *group, int state) {
  Zero *zero = entry->z;
  Fn *fn = entry->site.to;
  ValueId value = ir_load(zero->m, fn, group->state[state], (Loc){0});
  if (group->stage) value = zero_gather(zero, fn, group, value);
  return zero_join(zero, fn, group, value, group->rounds.dim != NULL);
}

/* An entry other than `step` that reads states of members reads all of them: sharded states are
   gathered. It writes none of the states that it reads. */
static void find_states(ZeroEntry *entry) {
  ZeroSite *site = &entry->site;
  Zero *zero = entry->z;
  ZeroLoad load;
  uint32_t n = zero->group.n * ZERO_STATES;
  ValueId *whole = ARENA_ARRAY(zero->m->arena, ValueId, n + 1);
  for (uint32_t i = 0; i < n; i++) whole[i] = NO_VALUE;
  EACH_OP (site->from, op) {
    if (!loads_member(entry, op, &load) || load.state < 0) continue;
    const ZeroGroup *group = &zero->group.at[load.group];
    must(!fn_store_of(site->from, op->global), "zero: %s writes @%s", site->from->name,
         op->global->name);
    bool all = group->rounds.dim != NULL;
    ValueId *value = &whole[load.group * ZERO_STATES + (uint32_t)load.state];
    if (*value == NO_VALUE) *value = whole_state(entry, group, load.state);
    site->map[op->out] = zero_member(zero, site->to, group, load.member, *value, all);
  }
}

/* ---- the gradient and its norm ---- */

static ValueId complete(ZeroEntry *entry, uint32_t index) {
  Zero *zero = entry->z;
  ZeroGroup *group = &zero->group.at[index];
  if (entry->complete[index] != NO_VALUE) return entry->complete[index];
  ValueId value = zero_gradient(&entry->site, index);
  group->gradient = type_count(value_type(entry->site.to, value));
  for (int i = 0; i < group->nothers && !group->summed_inside; i++)
    value = zero_sum_gradient(zero, entry->site.to, group->others[i], value);
  value = ir_cast(zero->m, entry->site.to, value,
                  value_type(zero->step, group->member.at[0].leaf)->elem, (Loc){0});
  return entry->complete[index] = value;
}

/* One number, or one per round, as the old one was. */
static ValueId norm_of(ZeroEntry *entry, uint32_t index, const Type *as) {
  Zero *zero = entry->z;
  const ZeroGroup *group = &zero->group.at[index];
  Fn *fn = entry->site.to;
  Str dims[ZERO_AXES + 2] = {group->bucket};
  int n = 1;
  for (int i = 0; i < group->naxes; i++) dims[n++] = group->owner[i];
  if (!as->rank && group->rounds.dim) dims[n++] = group->rounds.dim;
  ValueId value = complete(entry, index),
          q = ir_binary(zero->m, fn, OP_mul, value, value, (Loc){0});
  q = ir_cast(zero->m, fn, q, as->elem, (Loc){0});
  q = ir_reduce(zero->m, fn, OP_sum, q, 1, &group->part, (Loc){0});
  if (group->stage) q = zero_numbers(zero, fn, group, q);
  return ir_reduce(zero->m, fn, OP_sum, q, n, dims, (Loc){0});
}

/* The sums of squares that the old norm adds: the first member's is the group's, the others' 0. */
static void prepare_norms(ZeroEntry *entry) {
  Zero *zero = entry->z;
  for (uint32_t g = 0; g < zero->group.n; g++)
    for (uint32_t i = 0; i < zero->group.at[g].member.n; i++) {
      ValueId old = zero->group.at[g].member.at[i].square;
      if (old == NO_VALUE) continue;
      const Type *type = value_type(zero->step, old);
      entry->site.map[old] =
          i ? emit_full(zero->m, entry->site.to, *type, 0, (Loc){0}) : norm_of(entry, g, type);
    }
}

/* A gradient that is not finite is reported by group: outputs norm2.of.NAME of its members are
   removed, except that the first one takes the group's name. */
static ZeroGroup *group_of_norm(Zero *zero, const Global *global, bool *first) {
  if (global->kind != GLOBAL_OUTPUT || strncmp(global->name, guard_prefix, strlen(guard_prefix)))
    return NULL;
  for (uint32_t g = 0; g < zero->group.n; g++)
    for (uint32_t i = 0; i < zero->group.at[g].member.n; i++)
      if (!strcmp(zero->group.at[g].member.at[i].param->name, global->name + strlen(guard_prefix)))
        return *first = i == 0, &zero->group.at[g];
  return NULL;
}

static void name_norms(Zero *zero) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < zero->m->globals.n; i++) {
    Global *global = zero->m->globals.at[i];
    bool first = false;
    const ZeroGroup *group = group_of_norm(zero, global, &first);
    if (group && !first) continue;
    if (group) global->name = intern_printf(zero->m->ctx->names, "%s%s", guard_prefix, group->name);
    zero->m->globals.at[n++] = global;
  }
  zero->m->globals.n = n;
}

/* ---- the update ---- */

static ValueId own_part(ZeroEntry *entry, uint32_t index) {
  Zero *zero = entry->z;
  const ZeroGroup *group = &zero->group.at[index];
  bool all = group->rounds.dim != NULL;
  if (group->copied) return ir_load(zero->m, entry->site.to, group->master, (Loc){0});
  ValueId value = ir_load(zero->m, entry->site.to, group->param, (Loc){0});
  if (group->sharded) return value;
  value = zero_cut(zero, entry->site.to, group, value, all);
  return group->stage ? zero_own(zero, entry->site.to, group, value) : value;
}

static void publish(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId value) {
  ir_store(zero->m, fn, group->param, zero_publish(zero, fn, group, value), (Loc){0});
}

static void update(ZeroEntry *entry, uint32_t index) {
  const ZeroGroup *group = &entry->z->group.at[index];
  ValueId gradient = complete(entry, index), own = own_part(entry, index),
          v = zero_update(&entry->site, index, own, gradient);
  if (group->copied) ir_store(entry->z->m, entry->site.to, group->master, v, (Loc){0});
  publish(entry->z, entry->site.to, group, v);
}

/* ---- first values ---- */

/* All stores of the entry to that state of members, or to members themselves (state < 0), as one
   flat value. A parameter that it does not store is 0. */
static ValueId stored_values(ZeroEntry *entry, const ZeroGroup *group, int state) {
  Zero *zero = entry->z;
  ValueId *value = ARENA_ARRAY(zero->m->arena, ValueId, group->member.n);
  for (uint32_t i = 0; i < group->member.n; i++) {
    const ZeroMember *member = &group->member.at[i];
    const Global *of = state < 0 ? member->param : member->state[state];
    const Op *op = fn_store_of(entry->site.from, of);
    must(op || state < 0, "zero: %s leaves out @%s", entry->site.from->name, of->name);
    value[i] = op ? site_value(&entry->site, op->in[0])
                  : emit_full(zero->m, entry->site.to, of->type, 0, (Loc){0});
  }
  return zero_flatten(zero, entry->site.to, group, value, group->rounds.dim != NULL, false);
}

/* The part of a flat value that a rank has; of it, where the update is sharded, its own part. */
static ValueId cut_flat(ZeroEntry *entry, const ZeroGroup *group, ValueId flat, bool own) {
  flat = zero_cut(entry->z, entry->site.to, group, flat, group->rounds.dim != NULL);
  return own ? zero_own(entry->z, entry->site.to, group, flat) : flat;
}

static void first_values(ZeroEntry *entry, const ZeroGroup *group) {
  Module *m = entry->z->m;
  Fn *to = entry->site.to;
  ValueId flat = stored_values(entry, group, -1);
  if (group->copied) {
    ir_store(m, to, group->master, cut_flat(entry, group, flat, group->stage), (Loc){0});
    flat = ir_cast(m, to, flat, group->narrow, (Loc){0});
  }
  if (group->sharded) flat = cut_flat(entry, group, flat, true);
  ir_store(m, to, group->param, flat, (Loc){0});
  for (uint32_t k = 0; k < group->nstates; k++)
    if (fn_store_of(entry->site.from, group->member.at[0].state[k]))
      ir_store(m, to, group->state[k], emit_full(m, to, group->state[k]->type, 0, (Loc){0}),
               (Loc){0});
}

/* For an entry other than `step` that writes a state of all members, and no parameter. */
static void write_state(ZeroEntry *entry, const ZeroGroup *group, int state) {
  ValueId flat = stored_values(entry, group, state);
  ir_store(entry->z->m, entry->site.to, group->state[state],
           cut_flat(entry, group, flat, group->stage), (Loc){0});
}

/* Copies are not part of checkpoints: this entry runs after a checkpoint's parameters are read. */
static void add_refresh(Zero *zero) {
  bool any = false;
  for (uint32_t g = 0; g < zero->group.n; g++) any |= zero->group.at[g].copied;
  if (!any) return;
  Fn *fn = fn_new(zero->m, FN_ENTRY, intern(zero->m->ctx->names, "refresh"));
  for (uint32_t i = 0; i < zero->group.n; i++) {
    const ZeroGroup *g = &zero->group.at[i];
    if (g->copied) publish(zero, fn, g, ir_load(zero->m, fn, g->master, (Loc){0}));
  }
  module_add(zero->m, fn);
}

/* ---- entries ---- */

static void rewrite_store(ZeroEntry *entry, const Op *op, bool step) {
  uint32_t group, member;
  int state;
  bool first = true;
  if (group_of_norm(entry->z, op->global, &first) && !first) return;
  if (!is_member(entry->z, op->global, &group, &member, &state)) {
    ir_store(entry->z->m, entry->site.to, op->global, site_value(&entry->site, op->in[0]), op->loc);
    return;
  }
  const ZeroMember *of = &entry->z->group.at[group].member.at[member];
  if (!step && state >= 0 && !fn_store_of(entry->site.from, of->param)) {
    if (!member) write_state(entry, &entry->z->group.at[group], state);
    return;
  }
  if (entry->stored[group]) return;
  entry->stored[group] = true;
  if (step) update(entry, group);
  else first_values(entry, &entry->z->group.at[group]);
}

static void rewrite_entry(Zero *zero, Fn *fn) {
  must(!fn->args.n && !fn->results.n, "zero: entry %s has arguments", fn->name);
  Arena *arena = zero->m->arena;
  uint32_t n = zero->group.n;
  Rebuild rebuild = rebuild_begin(zero->m, fn);
  ZeroEntry entry = {.z = zero, .site = site_begin(zero, fn, rebuild.to)};
  entry.stored = ARENA_ARRAY(arena, bool, n + 1);
  entry.complete = ARENA_ARRAY(arena, ValueId, n + 1);
  for (uint32_t g = 0; g < n; g++) entry.complete[g] = NO_VALUE;
  find_members(&entry);
  if (fn != zero->step) find_states(&entry);
  if (fn == zero->step) {
    zero_gradients(&entry.site);
    prepare_norms(&entry);
  }
  EACH_OP (fn, op)
    if (op->code == OP_store) rewrite_store(&entry, op, fn == zero->step);
  site_hops(&entry.site, fn->ops.n);
  module_replace(zero->m, fn, rebuild.to);
}

int64_t zero_ways(const Zero *zero, Str axis) {
  int at = mesh_find(zero->m, axis);
  return at < 0 ? 1 : zero->m->mesh.at[at].size;
}

static bool cuts_batch(const Module *module, Str axis) {
  for (uint32_t i = 0; i < module->rules.n; i++) {
    const PlaceRule *r = &module->rules.at[i];
    for (uint32_t k = 0; k < r->axes.n && rule_cuts_batch(r); k++)
      if (r->axes.at[k] == axis) return true;
  }
  return false;
}

/* The axes of the plan, else the axes that cut Batch; in the order of the mesh, whose first axis
   has the ranks that are nearest to each other. */
static void find_axes(Zero *zero) {
  const Module *module = zero->m;
  const char *said = plan_zero_axes(module);
  for (uint32_t i = 0; i < module->mesh.n; i++) {
    Str name = module->mesh.at[i].name;
    bool ours = *said ? text_lists(said, name) : cuts_batch(module, name);
    if (ours && zero->naxes < ZERO_AXES) zero->axis[zero->naxes++] = name;
  }
}

static bool read_settings(Zero *zero) {
  Module *module = zero->m;
  find_axes(zero);
  zero->hosts = plan_offloads_any(module, OFFLOAD_OPTIMIZER);
  if (!zero->naxes && !zero->hosts) return false;
  zero->stage = plan_zero_stage(module);
  zero->bucket_bytes = plan_zero_bucket(module);
  Str said = plan_message_type(module);
  zero->asked = said && elem_find(said, &zero->reduce);
  zero->int8_weights = zero->stage == 3 && plan_int8_weights(module);
  zero->unit = 1;
  if (plan_int8_gradients(module)) zero->asked = true, zero->reduce = ELEM_u8;
  if (zero->int8_weights || plan_int8_gradients(module)) zero->unit = plan_int8_block(module);
  zero->persist = module_whole(module, "plan.zero.persist");
  zero->keep_root = module_on(module, "plan.zero.keep_root");
  zero->keep_gathered = module_on(module, "plan.zero.keep_gathered");
  zero->full = plan_accumulates_full(module);
  zero->step = entry_of(module, "step");
  return zero->step != NULL;
}

/* A dump that was edited may lack the store of a parameter or state; else it is an error of this
   pass. */
static void refuse(const Zero *zero, const Global *at, const char *wrong) {
  if (!at || !at->span.file) bug("zero: %s", wrong); /* not read from a dump */
  Report *r = diag_at(zero->m->ctx->diag, "E1105", at->span, "`zero` cannot share @%s", at->name);
  diag_fact(r, "after the pass: %s", wrong);
  diag_help(r, "entry @step must store each parameter that it updates, and its states");
}

void pass_zero(Module *module) {
  Zero zero = {.m = module};
  if (!read_settings(&zero)) return;
  zero_unshare(&zero);
  zero_find_groups(&zero), zero_find_sharded(&zero), zero_find_parts(&zero);
  for (uint32_t i = 0; i < zero.group.n; i++) add_globals(&zero, &zero.group.at[i]);
  VEC(Fn *) entries = {0};
  for (uint32_t i = 0; i < module->fns.n; i++)
    if (module->fns.at[i]->kind == FN_ENTRY) vec_push(module->arena, entries, module->fns.at[i]);
  for (uint32_t i = 0; i < entries.n; i++) rewrite_entry(&zero, entries.at[i]);
  zero_warn(&zero);
  add_refresh(&zero);
  for (uint32_t i = 0; i < zero.group.n; i++) put_members(&zero.group.at[i]);
  const Global *at = NULL;
  const char *wrong = zero_unaccounted(&zero, &at);
  if (wrong) refuse(&zero, at, wrong);
  name_norms(&zero);
  sort_globals(module);
  module_collect(module);
}
