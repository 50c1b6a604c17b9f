/* The part of an update that needs whole matrices, of members of which a rank has a piece.

     x [rounds, buckets, 1, piece] --loop[rounds]: all-gather, members, their part of the update,
     flat, the rank's piece--> [rounds, buckets, 1, piece]

   So the matrices of one round are whole at a time. Every rank computes all matrices of a round:
   the products are few against those of the layer, which sums over all tokens. Each member has a
   part of its own, in its own dims; messages over other axes, of matrices that these cut, are in
   it. Must not: keep a whole round longer than its iteration. */
#include "zero_site.h"

/* The member's part of the update, without rounds, on x, for f. */
static ValueId replay(Zero *zero, Fn *fn, const ZeroGroup *group, const ZeroMember *member,
                      ValueId x) {
  const Fn *step = zero->step;
  ValueId *map = value_map(zero->m, step);
  map[member->part] = x;
  for (uint32_t i = 0; i < member->nchain; i++) {
    const Op *op = &step->ops.at[member->chain[i]];
    if (!member->whole[op->out]) continue;
    ValueId in[MAX_RANK];
    for (uint32_t k = 0; k < op->nin; k++) {
      const Op *def = value_def(step, op->in[k]);
      if (map[op->in[k]] == NO_VALUE) {
        must(def && def->code == OP_const, "zero: %%%u of an update is no matrix", op->in[k]);
        map[op->in[k]] = ir_const(zero->m, fn, value_type(step, def->out)->elem,
                                  attr_float(&def->attrs, ATTR_value, 0), op->loc);
      }
      in[k] = map[op->in[k]];
    }
    Type type = type_without(value_type(step, op->out), &group->rounds.dim, 1);
    Op *made = fn_op(zero->m, fn, op->code, op->nin, in, 1, &type, op->loc);
    for (int g = 0; g < op->ngroups; g++) op_add_group(zero->m, made, op->group[g]);
    for (uint32_t k = 0; k < op->attrs.n; k++)
      vec_push(zero->m->arena, made->attrs, op->attrs.at[k]);
    map[op->out] = made->out;
  }
  return map[member->made];
}

static ValueId one_round(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId own,
                         const ValueId *at) {
  ValueId *member = ARENA_ARRAY(zero->m->arena, ValueId, group->member.n);
  ValueId all = group->stage ? zero_gather(zero, fn, group, own) : own,
          flat = zero_join(zero, fn, group, all, false);
  for (uint32_t i = 0; i < group->member.n; i++)
    member[i] =
        replay(zero, fn, group, &group->member.at[i], zero_member(zero, fn, group, i, flat, false));
  flat = zero_flatten(zero, fn, group, member, false, false);
  all = zero_cut(zero, fn, group, flat, false);
  return group->stage ? zero_own_at(zero, fn, group, all, at) : all;
}

ValueId zero_matrices(Zero *zero, Fn *fn, const ZeroGroup *group, ValueId own) {
  ValueId in[ZERO_AXES + 1], at[ZERO_AXES];
  int n = group->stage ? group->naxes : 0;
  if (n) zero_coordinates(zero, fn, group, in);
  if (!group->rounds.dim) return one_round(zero, fn, group, own, in);
  Fn *body =
      fn_new(zero->m, FN_BODY, intern_printf(zero->m->ctx->names, "%s.matrices", group->name));
  fn_arg(zero->m, body, type_scalar(ELEM_i32));
  for (int i = 0; i < n; i++) at[i] = fn_arg(zero->m, body, type_scalar(ELEM_i32));
  in[n] = own;
  ValueId piece = fn_arg(zero->m, body, type_without(value_type(fn, own), &group->rounds.dim, 1));
  fn_result(zero->m, body, one_round(zero, body, group, piece, at));
  LoopShape shape = {
      .invariant = (uint32_t)n, .stacked = 1, .trip = group->rounds.size, .axis = group->rounds};
  return rebuild_loop(zero->m, fn, body, shape, in, (Loc){0})->out;
}
