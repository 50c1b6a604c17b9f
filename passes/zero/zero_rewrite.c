/* Rewriting functions for partitioned states: members of a group become slices of one flat value.

   A function is written anew from its stores and results backwards, so that only needed ops are
   copied. Three things move:

     parameters   a loop whose operands are members gets their group instead, and its body slices
                  them from it. A sharded group (stage 3) is gathered where it is sliced: once per
                  round of the stack, or per micro-batch; so never more than a round is whole.
     gradients    members that leave a loop as its results, carried or stacked, are flattened inside
                  its body and leave as one reduce-scattered shard; else that is done where they are
                  final.
     updates      the chain of one member represents all, on flat values (zero.c).

   Gradients are in zero_gradients.c, loops in zero_loops.c.

   Must not: change the results, beyond the order in which ranks are summed. */
#include "ir/loop.h"
#include "zero_site.h"

uint32_t zero_epochs(const Zero *zero, const Fn *fn, uint32_t **epoch) {
  uint32_t n = 0;
  *epoch = ARENA_ARRAY(zero->m->arena, uint32_t, fn->ops.n + 1);
  for (OpId i = 0; i < fn->ops.n; i++) {
    (*epoch)[i] = n;
    n += fn->ops.at[i].code == OP_loop && !loop_is_micro(&fn->ops.at[i]);
  }
  return n + 1;
}

/* ---- sites ---- */

ZeroSite site_begin(Zero *zero, const Fn *from, Fn *to) {
  Arena *arena = zero->m->arena;
  uint32_t n = zero->group.n;
  ZeroSite site = {.z = zero, .from = from, .to = to, .map = value_map(zero->m, from)};
  site.ref = ARENA_ARRAY(arena, Ref, from->values.n + 1);
  site.narrow = ARENA_ARRAY(arena, bool, from->values.n + 1);
  for (uint32_t i = 0; i < from->values.n; i++) site.ref[i].group = -1;
  for (int all = 0; all < 2; all++) {
    site.kept[all] = ARENA_ARRAY(arena, ValueId, n + 1),
    site.flat[all] = ARENA_ARRAY(arena, ValueId, n + 1),
    site.scale[all] = ARENA_ARRAY(arena, ValueId, n + 1);
    for (uint32_t g = 0; g < n; g++)
      site.kept[all][g] = site.flat[all][g] = site.scale[all][g] = NO_VALUE;
  }
  site.whole = ARENA_ARRAY(arena, bool, n + 1);
  site.pull = ARENA_ARRAY(arena, Pull, zero->part.n + 1);
  site.reduced = ARENA_ARRAY(arena, ValueId, zero->part.n + 1),
  site.finished = ARENA_ARRAY(arena, bool, zero->part.n + 1);
  site.claimed = ARENA_ARRAY(arena, uint32_t, from->values.n + 1);
  site.copied = ARENA_ARRAY(arena, bool, from->ops.n + 1);
  site.staged = ARENA_ARRAY(arena, bool, from->ops.n + 1);
  for (uint32_t i = 0; i < zero->part.n; i++) site.reduced[i] = NO_VALUE;
  site.epochs = zero_epochs(zero, from, &site.epoch);
  site.again = ARENA_ARRAY(arena, ValueId, site.epochs * n + 1);
  site.member = ARENA_ARRAY(arena, ValueId, site.epochs * from->values.n + 1);
  for (uint32_t i = 0; i < site.epochs * n; i++) site.again[i] = NO_VALUE;
  for (uint32_t i = 0; i < site.epochs * from->values.n; i++) site.member[i] = NO_VALUE;
  return site;
}

/* ---- parameters ---- */

/* Kept in shards, and gathered where it is read? */
static bool is_gathered(const Zero *zero, uint32_t index) {
  const ZeroGroup *group = &zero->group.at[index];
  return group->sharded && (!zero->keep_gathered || group->keeps_rounds);
}

/* Dropped while a stack runs, gathered again afterwards? */
static bool is_gathered_anew(const Zero *zero, uint32_t group) {
  return is_gathered(zero, group) && !zero->keep_root && !zero->group.at[group].rounds.dim;
}

static ValueId gathered(ZeroSite *site, uint32_t index, bool all) {
  const ZeroGroup *group = &site->z->group.at[index];
  ValueId value = site->kept[all][index], scale = site->scale[all][index];
  return scale == NO_VALUE ? zero_gather(site->z, site->to, group, value)
                           : zero_gather_packed(site->z, site->to, group, value, scale);
}

static ValueId site_flat(ZeroSite *site, uint32_t index, bool all, uint32_t epoch) {
  Zero *zero = site->z;
  const ZeroGroup *group = &zero->group.at[index];
  bool anew = is_gathered_anew(zero, index),
       gathers = is_gathered(zero, index) && !site->whole[index];
  ValueId *memo = anew ? &site->again[epoch * zero->group.n + index] : &site->flat[all][index];
  if (*memo != NO_VALUE) return *memo;
  ValueId value = site->kept[all][index];
  zero->group.at[index].gathers_all |= gathers && all && group->rounds.dim;
  if (gathers) value = zero_join(zero, site->to, group, gathered(site, index, all), all);
  return *memo = value;
}

ValueId site_round(ZeroSite *site, uint32_t group) {
  return site_flat(site, group, false, site->epochs - 1);
}

/* Is the cast member the value that the group keeps? */
static bool is_copy(const ZeroSite *site, Ref ref, const Op *cast) {
  const ZeroGroup *group = &site->z->group.at[ref.group];
  return group->copied && value_type(site->from, cast->out)->elem == group->narrow;
}

/* The member of a group, or the view of one, that an old value is. */
Ref site_ref(ZeroSite *site, ValueId value) {
  const Op *op = value_def(site->from, value);
  bool casts = op && op->code == OP_cast;
  if (site->ref[value].group >= 0 || !op || (op->code != OP_rename && !casts))
    return site->ref[value];
  Ref ref = site_ref(site, op->in[0]);
  if (casts)
    return ref.group >= 0 && is_copy(site, ref, op) ? (site->ref[value] = ref) : site->ref[value];
  if (ref.group < 0 || ref.nviews == REF_VIEWS) return site->ref[value];
  ref.view[ref.nviews++] = op;
  return site->ref[value] = ref;
}

static ValueId take_member(ZeroSite *site, Ref ref, uint32_t epoch) {
  Zero *zero = site->z;
  must(epoch < site->epochs && ref.member < zero->group.at[ref.group].member.n,
       "zero: member %u of group %d, stack %u of %u", ref.member, ref.group, epoch, site->epochs);
  ValueId v = zero_member(zero, site->to, &zero->group.at[ref.group], ref.member,
                          site_flat(site, (uint32_t)ref.group, ref.all, epoch), ref.all);
  for (int i = 0; i < ref.nviews; i++)
    v = ir_rename(zero->m, site->to, v, ref.view[i]->group[0].from[0], ref.view[i]->group[0].to[0],
                  ref.view[i]->loc);
  return v;
}

/* The new value that op o of the old function reads as v. */
ValueId site_operand(ZeroSite *site, const Op *op, ValueId value) {
  Ref ref = site_ref(site, value);
  if (ref.group < 0 || !is_gathered_anew(site->z, (uint32_t)ref.group))
    return site_value(site, value);
  uint32_t epoch = site->epoch[op - site->from->ops.at];
  ValueId *memo = &site->member[epoch * site->from->values.n + value];
  if (*memo == NO_VALUE) *memo = take_member(site, ref, epoch);
  return site->map[value] = *memo;
}

bool site_is_narrow(ZeroSite *site, ValueId value) {
  Ref ref = site_ref(site, value);
  return site->narrow[value] || (ref.group >= 0 && zero_narrows(&site->z->group.at[ref.group]));
}

/* ---- values ---- */

static void copy_op(ZeroSite *site, const Op *op) {
  const Op *stages = op_is_p2p(op->code) ? site_stages_of(site, op) : NULL;
  if (stages && site_stages(site, stages)) return;
  if (op->code == OP_loop) {
    site_loop(site, op);
    return;
  }
  if (op_is_p2p(op->code)) site_hops(site, (OpId)(op - site->from->ops.at));
  for (uint32_t i = 0; i < op->nin; i++) site_operand(site, op, op->in[i]);
  for (uint32_t i = 0; i < op->nin; i++)
    site_operand(site, op, op->in[i]); /* as of this op's place */
  if (op->code == OP_cast && site_is_narrow(site, op->in[0])) {
    site->map[op->out] = site->map[op->in[0]];
    return;
  }
  fn_clone_op(site->z->m, site->to, site->from, op, site->map);
}

ValueId site_value(ZeroSite *site, ValueId value) {
  if (site->map[value] != NO_VALUE) return site->map[value];
  Ref ref = site_ref(site, value);
  if (ref.group >= 0) return site->map[value] = take_member(site, ref, site->epochs - 1);
  const Op *op = value_def(site->from, value);
  if (!op) bug("%%%u of %s is an argument without a value", value, site->from->name);
  copy_op(site, op);
  return site->map[value];
}

void site_hops(ZeroSite *site, OpId end) {
  while (site->hops < end) {
    const Op *op = &site->from->ops.at[site->hops++];
    if (zero_holds_hops(op)) site_value(site, op->out);
  }
}
