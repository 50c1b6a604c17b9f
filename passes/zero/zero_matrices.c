/* The part of an update that needs whole matrices, of members of which a rank has a piece. The
   rounds of a stack are dealt to the ranks: in each turn every rank gets all pieces of one round,
   computes its matrices, and returns the pieces.

     x [rounds, buckets, 1, piece] --split--> [turns, ranks, buckets, 1, piece]
       --loop[turns]: all_to_all[owners -> ranks], members, their part of the update, flat,
         all_to_all[ranks -> owners]--> [turns, ranks, buckets, 1, piece]

   So a rank has one whole round at a time, and computes a share of them; rounds that are missing in
   the last turn are zeros. Parameters outside of stacks are gathered, and every rank computes them.
   Each member has a part of its own, in its own dims; messages over other axes, of matrices that
   these cut, are in it. Must not: keep a whole round longer than its iteration. */
#include "ir/made.h"
#include "ir/support/num.h"
#include "zero.h"

/* The member's part of the update, without rounds, on x, for f. */
static ValueId replay(Zero *zero, Fn *fn, const ZeroGroup *group, const ZeroMember *member,
                      ValueId x) {
  const Fn *step = zero->step;
  ValueId *map = value_map(zero->m, step);
  map[member->part] = x;
  for (uint32_t i = 0; i < member->nchain; i++) {
    const Op *op = &step->ops.at[member->chain[i]];
    if (!member->whole[op->out]) continue;
    for (uint32_t k = 0; k < op->nin; k++) {
      const Op *def = value_def(step, op->in[k]);
      if (map[op->in[k]] != NO_VALUE) continue;
      must(def && def->code == OP_const, "zero: %%%u of an update is no matrix", op->in[k]);
      fn_clone_op(zero->m, fn, step, def, map);
    }
    Op *made = fn_clone_op(zero->m, fn, step, op, map);
    fn->values.at[made->out].type = type_without(value_type(step, op->out), &group->rounds.dim, 1);
  }
  return map[member->made];
}

/* All members, of all their elements. */
static ValueId all_members(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId all) {
  ValueId *member = ARENA_ARRAY(zero->m->arena, ValueId, group->member.n);
  ValueId flat = zero_join(zero, fn, group, all, false);
  for (uint32_t i = 0; i < group->member.n; i++)
    member[i] =
        replay(zero, fn, group, &group->member.at[i], zero_member(zero, fn, group, i, flat, false));
  flat = zero_flatten(zero, fn, group, member, false, false);
  return zero_cut(zero, fn, group, flat, false);
}

/* ---- rounds dealt to ranks ---- */

typedef struct Deal {
  Zero *zero;
  const ZeroGroup *group;
  Axis turn, all;      /* turns; all rounds, with those that are missing */
  Str rank[ZERO_AXES]; /* for each axis of the group */
} Deal;

static Deal deal_of(Zero *zero, const ZeroGroup *group) {
  Deal deal = {.zero = zero, .group = group};
  int64_t turns = ceil_div(group->rounds.size, group->ways);
  deal.turn = (Axis){name_made(zero->m, "Turn'%s", group->flat), turns};
  deal.all = turns * group->ways == group->rounds.size
                 ? group->rounds
                 : (Axis){name_made(zero->m, "Dealt'%s", group->flat), turns * group->ways};
  for (int i = 0; i < group->naxes; i++)
    deal.rank[i] = name_made(zero->m, "Rank'%s", group->owner[i]);
  return deal;
}

/* Blocks of one dim are joined, and blocks of the other go to the ranks of axis i. */
static ValueId exchange(const Deal *deal, Fn *fn, int i, Str joined, Str cut, ValueId v) {
  Zero *zero = deal->zero;
  Type type = *value_type(fn, v);
  int64_t ways = zero_ways(zero, deal->group->axis[i]);
  if (ways == 1) return v;
  type.axis[type_find(&type, joined)].size *= ways, type.axis[type_find(&type, cut)].size /= ways;
  Group group = group_map(1, &joined, 1, &cut);
  v = emit_typed(zero->m, fn, OP_all_to_all, 1, &v, &group, type, (Loc){0});
  AttrList *attrs = &vec_last(fn->ops).attrs;
  attr_set_str(zero->m, attrs, ATTR_axis, deal->group->axis[i]);
  attr_set_int(zero->m, attrs, ATTR_ranks, ways);
  return v;
}

/* Over all axes: the pieces of one round to each rank, or back to their owners. */
static ValueId exchange_all(const Deal *deal, Fn *fn, bool back, ValueId v) {
  const ZeroGroup *group = deal->group;
  for (int k = 0; k < group->naxes; k++) {
    int i = back ? group->naxes - 1 - k : k;
    v = back ? exchange(deal, fn, i, deal->rank[i], group->owner[i], v)
             : exchange(deal, fn, i, group->owner[i], deal->rank[i], v);
  }
  return v;
}

/* A message is one bucket. */
static ValueId by_bucket(const Deal *deal, Fn *fn, bool back, ValueId v) {
  Module *m = deal->zero->m;
  Axis buckets = {deal->group->bucket, deal->group->buckets};
  if (buckets.size == 1) return exchange_all(deal, fn, back, v);
  Fn *body = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.deal", deal->group->name));
  fn_arg(m, body, type_scalar(ELEM_i32));
  ValueId one = fn_arg(m, body, type_without(value_type(fn, v), &buckets.dim, 1));
  fn_result(m, body, exchange_all(deal, body, back, one));
  LoopShape shape = {
      .stacked = 1, .trip = buckets.size, .axis = buckets, .rounds = ROUNDS_messages};
  return rebuild_loop(m, fn, body, shape, &v, (Loc){0})->out;
}

/* dims: of one element each, and the buckets; the buckets. */
static ValueId without_ranks(const Deal *deal, Fn *fn, ValueId v) {
  const ZeroGroup *group = deal->group;
  Type type = *value_type(fn, v);
  Str from[ZERO_AXES + 1], to = name_made(deal->zero->m, "Rank'%s", group->bucket);
  for (int i = 0; i < group->naxes; i++) from[i] = deal->rank[i];
  from[group->naxes] = group->bucket;
  Group map = group_map(group->naxes + 1, from, 1, &to);
  type.axis[type_find(&type, group->bucket)].dim = to;
  type = type_without(&type, deal->rank, group->naxes);
  v = emit_typed(deal->zero->m, fn, OP_merge, 1, &v, &map, type, (Loc){0});
  return ir_rename(deal->zero->m, fn, v, to, group->bucket, (Loc){0});
}

static ValueId one_turn(const Deal *deal, Fn *fn, ValueId v) {
  v = by_bucket(deal, fn, false, v);
  Type dealt = *value_type(fn, v);
  v = all_members(deal->zero, fn, deal->group, without_ranks(deal, fn, v));
  v = emit_spread(deal->zero->m, fn, v, dealt, (Loc){0});
  return by_bucket(deal, fn, true, v);
}

/* With another number of rounds: zeros after them, or without them. */
static ValueId resized(const Deal *deal, Fn *fn, OpCode code, Axis from, Axis to, ValueId v) {
  Type type = *value_type(fn, v);
  if (from.dim == to.dim) return v;
  type.axis[type_find(&type, from.dim)] = to;
  Group map = group_map(1, &from.dim, 1, &to.dim);
  v = emit_typed(deal->zero->m, fn, code, 1, &v, &map, type, (Loc){0});
  AttrList *attrs = &vec_last(fn->ops).attrs;
  attr_set_int(deal->zero->m, attrs, ATTR_at, 0);
  if (code == OP_pad) attr_set_float(deal->zero->m, attrs, ATTR_fill, 0);
  return v;
}

/* [all rounds, ..] as [turns, ranks, ..], or the reverse. */
static ValueId by_turns(const Deal *deal, Fn *fn, bool split, ValueId v) {
  Type have = *value_type(fn, v), type = {.elem = have.elem, .tier = have.tier};
  Str dims[ZERO_AXES + 1] = {deal->turn.dim};
  int n = deal->group->naxes + 1;
  type.axis[type.rank++] = split ? deal->turn : deal->all;
  for (int i = 1; i < n; i++) {
    dims[i] = deal->rank[i - 1];
    if (split)
      type.axis[type.rank++] = (Axis){dims[i], zero_ways(deal->zero, deal->group->axis[i - 1])};
  }
  have = split ? type_without(&have, &deal->all.dim, 1) : type_without(&have, dims, n);
  for (int i = 0; i < have.rank; i++) type.axis[type.rank++] = have.axis[i];
  Group map = split ? group_map(1, &deal->all.dim, n, dims) : group_map(n, dims, 1, &deal->all.dim);
  return emit_typed(deal->zero->m, fn, split ? OP_split : OP_merge, 1, &v, &map, type, (Loc){0});
}

static Fn *turn_body(const Deal *deal, const Type *type) {
  Module *m = deal->zero->m;
  Fn *body = fn_new(m, FN_BODY, intern_printf(m->ctx->names, "%s.matrices", deal->group->name));
  fn_arg(m, body, type_scalar(ELEM_i32));
  ValueId v = fn_arg(m, body, *type);
  fn_result(m, body,
            deal->turn.dim ? one_turn(deal, body, v)
                           : all_members(deal->zero, body, deal->group, v));
  return body;
}

static ValueId in_loop(const Deal *deal, Fn *fn, Axis axis, ValueId v) {
  Type round = type_without(value_type(fn, v), &axis.dim, 1);
  LoopShape shape = {.stacked = 1, .trip = axis.size, .axis = axis, .rounds = ROUNDS_matrices};
  return rebuild_loop(deal->zero->m, fn, turn_body(deal, &round), shape, &v, (Loc){0})->out;
}

ValueId zero_matrices(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId own) {
  bool shared = group->stage && group->ways > 1;
  if (!group->rounds.dim) {
    ValueId all = shared ? zero_gather(zero, fn, group, own) : own;
    all = all_members(zero, fn, group, all);
    return shared ? zero_own(zero, fn, group, all) : all;
  }
  if (!shared) return in_loop(&(Deal){.zero = zero, .group = group}, fn, group->rounds, own);
  Deal deal = deal_of(zero, group);
  ValueId v = resized(&deal, fn, OP_pad, group->rounds, deal.all, own);
  v = in_loop(&deal, fn, deal.turn, by_turns(&deal, fn, true, v));
  return resized(&deal, fn, OP_slice, deal.all, group->rounds, by_turns(&deal, fn, false, v));
}
