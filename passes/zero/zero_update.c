/* The update of a group: the chain of its first member, which represents all, on a rank's own
   shard of the flat values.

   Element-wise ops stay unchanged. Updates that use norms (LAMB: "Large Batch Optimization for
   Deep Learning", algorithm 2) contain numbers as well, one for every member and round: sums over
   a member's elements and values computed from them. Each bucket of such a group belongs to one
   member, so with m(b) the member of bucket b

     sum       x [rounds, buckets, owners, piece] is summed over piece, then to members by m; the
               owners' sums are gathered and added in one order: all stages get the same bits
     spread    s [rounds, members] back to [rounds, buckets] by m

   and the ops in between work on [rounds, members]. m counts the members, after the first, that
   begin at a bucket or before it. Must not: look at ranks; rely on padding to be anything but 0. */
#include "ir/made.h"
#include "zero_site.h"

typedef struct ZeroUpdate {
  Zero *z;
  Fn *f;
  ZeroSite *site;
  const ZeroGroup *g;
  ValueId *done;     /* by old value */
  Type whole;        /* the type of the rank's own shard */
  Axis member;       /* one for each */
  ValueId of_bucket; /* m; NO_VALUE: not made yet */
} ZeroUpdate;

static ValueId count_up(ZeroUpdate *update, ValueId sum, ValueId bucket, int64_t from) {
  Module *module = update->z->m;
  ValueId at = ir_const(module, update->f, ELEM_i32, (double)from, (Loc){0});
  ValueId behind = ir_binary(module, update->f, OP_le, at, bucket, (Loc){0});
  return ir_binary(module, update->f, OP_add, sum,
                   ir_cast(module, update->f, behind, ELEM_i32, (Loc){0}), (Loc){0});
}

static ValueId member_of_bucket(ZeroUpdate *update) {
  const ZeroGroup *group = update->g;
  if (update->of_bucket != NO_VALUE) return update->of_bucket;
  Axis buckets = {group->bucket, group->buckets};
  Type type = type_of(ELEM_i32, 1, &buckets);
  Group dims = group_dims(1, &group->bucket);
  ValueId bucket = emit_typed(update->z->m, update->f, OP_iota, 0, NULL, &dims, type, (Loc){0}),
          v = emit_full(update->z->m, update->f, type, 0, (Loc){0});
  for (uint32_t i = 1; i < group->member.n; i++)
    v = count_up(update, v, bucket, group->member.at[i].begin / (group->piece * group->ways));
  return update->of_bucket = v;
}

static ValueId sum_of_members(ZeroUpdate *update, ValueId value) {
  const ZeroGroup *group = update->g;
  Module *module = update->z->m;
  value = ir_reduce(module, update->f, OP_sum, value, 1, &group->part, (Loc){0});
  Type type = *value_type(update->f, value);
  ValueId in[2] = {value, member_of_bucket(update)};
  type.axis[type_find(&type, group->bucket)] = update->member;
  Group map = group_map(1, &group->bucket, 1, &update->member.dim);
  value = emit_typed(module, update->f, OP_scatter, 2, in, &map, type, (Loc){0});
  if (group->stage) value = zero_numbers(update->z, update->f, group, value);
  if (!group->naxes) return value;
  return ir_reduce(module, update->f, OP_sum, value, group->naxes, group->owner, (Loc){0});
}

static ValueId spread(ZeroUpdate *update, ValueId number) {
  return ir_gather(update->z->m, update->f, number, member_of_bucket(update), update->member.dim,
                   (Loc){0});
}

static bool is_number(const ZeroUpdate *update, ValueId old) {
  return update->g->member.at[0].number[old];
}

/* The new operand for an old value. Numbers that depend on no member, such as rates, are made
   once. */
static ValueId operand(ZeroUpdate *update, const Op *op, ValueId old) {
  if (update->done[old] == NO_VALUE) return site_value(update->site, old);
  bool spreads = is_number(update, old) && !is_number(update, op->out);
  return spreads ? spread(update, update->done[old]) : update->done[old];
}

static ValueId elementwise(ZeroUpdate *update, const Op *op, const ValueId *in, Type type) {
  Op *n = fn_op(update->z->m, update->f, op->code, op->nin, in, 1, &type, op->loc);
  ValueId out = n->out;
  for (uint32_t i = 0; i < op->attrs.n; i++)
    vec_push(update->z->m->arena, n->attrs, op->attrs.at[i]);
  return out;
}

static void update_op(ZeroUpdate *update, const Op *op) {
  Type type = update->whole;
  if (is_number(update, op->out)) {
    type = type_of(ELEM_f32, 1, &update->member);
    if (update->g->rounds.dim) type.axis[type.rank++] = update->g->rounds;
  }
  if (update->g->member.at[0].whole[op->out]) {
    if (op->out == update->g->member.at[0].made)
      update->done[op->out] = zero_matrices(update->z, update->f, update->g,
                                            update->done[update->g->member.at[0].part]);
    return;
  }
  type.elem = value_type(update->site->from, op->out)->elem;
  ValueId in[3], *out = &update->done[op->out];
  for (uint32_t k = 0; k < op->nin; k++) in[k] = operand(update, op, op->in[k]);
  if (op->code == OP_expand) *out = emit_spread(update->z->m, update->f, in[0], type, op->loc);
  else if (op->code == OP_sum) *out = sum_of_members(update, in[0]);
  else if (op->code == OP_all_reduce)
    *out = zero_sum(update->z, update->f, attr_str(&op->attrs, ATTR_axis, ""), in[0]);
  else *out = elementwise(update, op, in, type);
}

static void read_operands(ZeroUpdate *update, ValueId param, ValueId gradient) {
  const ZeroMember *member = &update->g->member.at[0];
  const Fn *fn = update->site->from;
  update->done[member->leaf] = gradient;
  EACH_OP (fn, op) {
    if (op->code != OP_load) continue;
    if (op->global == member->param) update->done[op->out] = param;
    for (uint32_t k = 0; k < update->g->nstates; k++)
      if (op->global == member->state[k])
        update->done[op->out] = ir_load(update->z->m, update->f, update->g->state[k], op->loc);
  }
}

ValueId zero_update(ZeroSite *site, uint32_t index, ValueId param, ValueId gradient) {
  Zero *zero = site->z;
  const ZeroGroup *group = &zero->group.at[index];
  const ZeroMember *member = &group->member.at[0];
  ZeroUpdate update = {.z = zero, .f = site->to, .site = site, .g = group, .of_bucket = NO_VALUE};
  update.done = value_map(zero->m, site->from), update.whole = *value_type(site->to, gradient);
  update.member = (Axis){name_made(zero->m, "Member'%u", index), group->member.n};
  read_operands(&update, param, gradient);
  must(fn_store_of(site->from, member->param), "zero: %s does not store @%s", site->from->name,
       member->param->name);
  must(group->nstates <= ZERO_STATES, "zero: an update of %u states", group->nstates);
  for (uint32_t i = 0; i < member->nchain; i++)
    update_op(&update, &site->from->ops.at[member->chain[i]]);
  for (uint32_t k = 0; k < group->nstates; k++)
    ir_store(zero->m, site->to, group->state[k],
             update.done[fn_store_of(site->from, member->state[k])->in[0]], (Loc){0});
  return update.done[fn_store_of(site->from, member->param)->in[0]];
}
