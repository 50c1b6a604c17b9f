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
  Module *m = u->z->m;
  ValueId at = ir_const(m, u->f, ELEM_i32, (double)from, (Loc){0});
  ValueId behind = ir_binary(m, u->f, OP_le, at, bucket, (Loc){0});
  return ir_binary(m, u->f, OP_add, sum, ir_cast(m, u->f, behind, ELEM_i32, (Loc){0}), (Loc){0});
}

static ValueId member_of_bucket(ZeroUpdate *u) {
  const ZeroGroup *g = u->g;
  if (u->of_bucket != NO_VALUE) return u->of_bucket;
  Axis buckets = {g->bucket, g->buckets};
  Type t = type_of(ELEM_i32, 1, &buckets);
  Group dims = group_dims(1, &g->bucket);
  ValueId bucket = emit_typed(u->z->m, u->f, OP_iota, 0, NULL, &dims, t, (Loc){0}),
          v = emit_full(u->z->m, u->f, t, 0, (Loc){0});
  for (uint32_t i = 1; i < g->member.n; i++)
    v = count_up(u, v, bucket, g->member.at[i].begin / (g->piece * g->ways));
  return u->of_bucket = v;
}

static ValueId sum_of_members(ZeroUpdate *u, ValueId v) {
  const ZeroGroup *g = u->g;
  Module *m = u->z->m;
  v = ir_reduce(m, u->f, OP_sum, v, 1, &g->part, (Loc){0});
  Type t = *value_type(u->f, v);
  ValueId in[2] = {v, member_of_bucket(u)};
  t.axis[type_find(&t, g->bucket)] = u->member;
  Group map = group_map(1, &g->bucket, 1, &u->member.dim);
  v = emit_typed(m, u->f, OP_scatter, 2, in, &map, t, (Loc){0});
  if (g->stage) v = zero_numbers(u->z, u->f, g, v);
  return ir_reduce(m, u->f, OP_sum, v, g->naxes, g->owner, (Loc){0});
}

static ValueId spread(ZeroUpdate *u, ValueId number) {
  return ir_gather(u->z->m, u->f, number, member_of_bucket(u), u->member.dim, (Loc){0});
}

static bool is_number(const ZeroUpdate *u, ValueId old) { return u->g->member.at[0].number[old]; }

/* What stands for an old value. Numbers that look at no member, such as rates, are made once. */
static ValueId operand(ZeroUpdate *u, const Op *o, ValueId old) {
  if (u->done[old] == NO_VALUE) return site_value(u->site, old);
  bool spreads = is_number(u, old) && !is_number(u, o->out);
  return spreads ? spread(u, u->done[old]) : u->done[old];
}

static ValueId elementwise(ZeroUpdate *u, const Op *o, const ValueId *in, Type t) {
  Op *n = fn_op(u->z->m, u->f, o->code, o->nin, in, 1, &t, o->loc);
  ValueId out = n->out;
  for (uint32_t i = 0; i < o->attrs.n; i++) vec_push(u->z->m->arena, n->attrs, o->attrs.at[i]);
  return out;
}

static void update_op(ZeroUpdate *u, const Op *o) {
  Type t = u->whole;
  if (is_number(u, o->out)) {
    t = type_of(ELEM_f32, 1, &u->member);
    if (u->g->rounds.dim) t.axis[t.rank++] = u->g->rounds;
  }
  t.elem = value_type(u->site->from, o->out)->elem;
  ValueId in[3], *out = &u->done[o->out];
  for (uint32_t k = 0; k < o->nin; k++) in[k] = operand(u, o, o->in[k]);
  if (o->code == OP_expand) *out = emit_spread(u->z->m, u->f, in[0], t, o->loc);
  else if (o->code == OP_sum) *out = sum_of_members(u, in[0]);
  else if (o->code == OP_all_reduce)
    *out = zero_sum(u->z, u->f, attr_str(&o->attrs, ATTR_axis, ""), in[0]);
  else *out = elementwise(u, o, in, t);
}

static void read_operands(ZeroUpdate *u, ValueId param, ValueId gradient) {
  const ZeroMember *m = &u->g->member.at[0];
  const Fn *f = u->site->from;
  u->done[m->leaf] = gradient;
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_load) continue;
    if (o->global == m->param) u->done[o->out] = param;
    for (uint32_t k = 0; k < u->g->nstates; k++)
      if (o->global == m->state[k])
        u->done[o->out] = ir_load(u->z->m, u->f, u->g->state[k], o->loc);
  }
}

ValueId zero_update(ZeroSite *s, uint32_t group, ValueId param, ValueId gradient) {
  Zero *z = s->z;
  const ZeroGroup *g = &z->group.at[group];
  const ZeroMember *m = &g->member.at[0];
  ZeroUpdate u = {.z = z, .f = s->to, .site = s, .g = g, .of_bucket = NO_VALUE};
  u.done = value_map(z->m, s->from), u.whole = *value_type(s->to, gradient);
  u.member = (Axis){intern_printf(z->m->ctx->names, "Member_%u", group), g->member.n};
  read_operands(&u, param, gradient);
  must(zero_store_of(s->from, m->param), "zero: %s does not store @%s", s->from->name,
       m->param->name);
  must(g->nstates <= ZERO_STATES, "zero: an update of %u states", g->nstates);
  for (uint32_t i = 0; i < m->nchain; i++) update_op(&u, &s->from->ops.at[m->chain[i]]);
  for (uint32_t k = 0; k < g->nstates; k++)
    ir_store(z->m, s->to, g->state[k], u.done[zero_store_of(s->from, m->state[k])->in[0]],
             (Loc){0});
  return u.done[zero_store_of(s->from, m->param)->in[0]];
}
