/* The update of a group: the chain of its first member, which stands for all, on what a rank owns
   of the flat values.

   Element-wise ops stay what they are. Updates that look at norms (LAMB: "Large Batch Optimization
   for Deep Learning", algorithm 2) hold numbers as well, one for every member and round: sums over
   a member's elements and what is made of them. Buckets of such groups are of one member alone, so
   with m(b) the member of bucket b

     sum       x [rounds, buckets, owners, piece] is summed over piece, then to members by m; the
               owners' sums are gathered and added in one order: all stages get the same bits
     spread    s [rounds, members] back to [rounds, buckets] by m

   and what lies between works on [rounds, members]. m counts the members behind the first that
   begin at a bucket or before it. Must not: look at ranks; rely on padding to be anything but 0. */
#include "passes/zero_site.h"

typedef struct ZeroUpdate {
  Zero *z;
  Fn *f;
  ZeroSite *site;
  const ZeroGroup *g;
  ValueId *done;     /* by old value */
  Type whole;        /* of what a rank owns */
  Axis member;       /* one for each */
  ValueId of_bucket; /* m; NO_VALUE: not made yet */
} ZeroUpdate;

static ValueId count_up(ZeroUpdate *u, ValueId sum, ValueId bucket, int64_t from) {
  Module *module = u->z->m;
  ValueId at = ir_const(module, u->f, ELEM_i32, (double)from, (Loc){0});
  ValueId behind = ir_binary(module, u->f, OP_le, at, bucket, (Loc){0});
  return ir_binary(module, u->f, OP_add, sum, ir_cast(module, u->f, behind, ELEM_i32, (Loc){0}),
                   (Loc){0});
}

static ValueId member_of_bucket(ZeroUpdate *u) {
  const ZeroGroup *g = u->g;
  if (u->of_bucket != NO_VALUE) return u->of_bucket;
  Axis buckets = {g->bucket, g->buckets};
  Type type = type_of(ELEM_i32, 1, &buckets);
  Group dims = group_dims(1, &g->bucket);
  ValueId bucket = emit_typed(u->z->m, u->f, OP_iota, 0, NULL, &dims, type, (Loc){0}),
          v = emit_full(u->z->m, u->f, type, 0, (Loc){0});
  for (uint32_t i = 1; i < g->member.n; i++)
    v = count_up(u, v, bucket, g->member.at[i].begin / (g->piece * g->ways));
  return u->of_bucket = v;
}

static ValueId sum_of_members(ZeroUpdate *u, ValueId value) {
  const ZeroGroup *g = u->g;
  Module *module = u->z->m;
  value = ir_reduce(module, u->f, OP_sum, value, 1, &g->part, (Loc){0});
  Type type = *value_type(u->f, value);
  ValueId in[2] = {value, member_of_bucket(u)};
  type.axis[type_find(&type, g->bucket)] = u->member;
  Group map = group_map(1, &g->bucket, 1, &u->member.dim);
  value = emit_typed(module, u->f, OP_scatter, 2, in, &map, type, (Loc){0});
  if (g->stage) value = zero_numbers(u->z, u->f, g, value);
  return ir_reduce(module, u->f, OP_sum, value, g->naxes, g->owner, (Loc){0});
}

static ValueId spread(ZeroUpdate *u, ValueId number) {
  return ir_gather(u->z->m, u->f, number, member_of_bucket(u), u->member.dim, (Loc){0});
}

static bool is_number(const ZeroUpdate *u, ValueId old) { return u->g->member.at[0].number[old]; }

/* What stands for an old value. Numbers that look at no member, such as rates, are made once. */
static ValueId operand(ZeroUpdate *u, const Op *op, ValueId old) {
  if (u->done[old] == NO_VALUE) return site_value(u->site, old);
  bool spreads = is_number(u, old) && !is_number(u, op->out);
  return spreads ? spread(u, u->done[old]) : u->done[old];
}

static ValueId elementwise(ZeroUpdate *u, const Op *op, const ValueId *in, Type type) {
  Op *n = fn_op(u->z->m, u->f, op->code, op->nin, in, 1, &type, op->loc);
  ValueId out = n->out;
  for (uint32_t i = 0; i < op->attrs.n; i++) vec_push(u->z->m->arena, n->attrs, op->attrs.at[i]);
  return out;
}

static void update_op(ZeroUpdate *u, const Op *op) {
  Type type = u->whole;
  if (is_number(u, op->out)) {
    type = type_of(ELEM_f32, 1, &u->member);
    if (u->g->rounds.dim) type.axis[type.rank++] = u->g->rounds;
  }
  type.elem = value_type(u->site->from, op->out)->elem;
  ValueId in[3], *out = &u->done[op->out];
  for (uint32_t k = 0; k < op->nin; k++) in[k] = operand(u, op, op->in[k]);
  if (op->code == OP_expand) *out = emit_spread(u->z->m, u->f, in[0], type, op->loc);
  else if (op->code == OP_sum) *out = sum_of_members(u, in[0]);
  else if (op->code == OP_all_reduce)
    *out = zero_sum(u->z, u->f, attr_str(&op->attrs, ATTR_axis, ""), in[0]);
  else *out = elementwise(u, op, in, type);
}

static void read_operands(ZeroUpdate *u, ValueId param, ValueId gradient) {
  const ZeroMember *m = &u->g->member.at[0];
  const Fn *fn = u->site->from;
  u->done[m->leaf] = gradient;
  for (uint32_t i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (op->code != OP_load) continue;
    if (op->global == m->param) u->done[op->out] = param;
    for (uint32_t k = 0; k < u->g->nstates; k++)
      if (op->global == m->state[k])
        u->done[op->out] = ir_load(u->z->m, u->f, u->g->state[k], op->loc);
  }
}

ValueId zero_update(ZeroSite *site, uint32_t group, ValueId param, ValueId gradient) {
  Zero *zero = site->z;
  const ZeroGroup *g = &zero->group.at[group];
  const ZeroMember *m = &g->member.at[0];
  ZeroUpdate u = {.z = zero, .f = site->to, .site = site, .g = g, .of_bucket = NO_VALUE};
  u.done = value_map(zero->m, site->from), u.whole = *value_type(site->to, gradient);
  u.member = (Axis){intern_printf(zero->m->ctx->names, "Member_%u", group), g->member.n};
  read_operands(&u, param, gradient);
  must(zero_store_of(site->from, m->param), "zero: %s does not store @%s", site->from->name,
       m->param->name);
  must(g->nstates <= ZERO_STATES, "zero: an update of %u states", g->nstates);
  for (uint32_t i = 0; i < m->nchain; i++) update_op(&u, &site->from->ops.at[m->chain[i]]);
  for (uint32_t k = 0; k < g->nstates; k++)
    ir_store(zero->m, site->to, g->state[k], u.done[zero_store_of(site->from, m->state[k])->in[0]],
             (Loc){0});
  return u.done[zero_store_of(site->from, m->param)->in[0]];
}
