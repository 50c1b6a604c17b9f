/* recompute: the forward body of a pair as input of the search (recompute_cut.h): bytes of each
   value, operations of each op.

   Operations are those of ir/cost/count.c. An op that the backward body computes already, from the
   same values, costs nothing more: equal ops of one body become one in simplify. A value that is
   read outside of the two loops is in memory in any case: its bytes are free. */
#include "passes/simplify/simplify.h"
#include "ir/cost/count.h"
#include "recompute.h"

/* By value of fwd: the equal value of bwd, if the backward pass has it without further ado. */
static ValueId *shared_values(const Pair *pair) {
  ValueId *same = value_map(pair->m, pair->fwd);
  for (ValueId v = 0; v < pair->fwd->values.n; v++)
    if (pair->kept[v] != NO_VALUE) same[v] = pair->bwd->args.at[pair->kept[v] + 1];
  for (uint32_t i = pair->s1.carry; i < pair->l1->nin; i++)
    for (uint32_t j = pair->s2.carry; j < pair->l2->nin; j++) {
      bool stacked = i >= pair->s1.carry + pair->s1.invariant;
      if (pair->l1->in[i] == pair->l2->in[j] &&
          stacked == (j >= pair->s2.carry + pair->s2.invariant))
        same[pair->fwd->args.at[i + 1]] = pair->bwd->args.at[j + 1];
    }
  return same;
}

static bool equals(const Pair *pair, const ValueId *same, const Op *a, const Op *b) {
  if (a->nin != b->nin || a->nout != b->nout || !op_alike(a, b)) return false;
  for (uint32_t i = 0; i < a->nin; i++)
    if (same[a->in[i]] != b->in[i]) return false;
  return type_same_dims(value_type(pair->fwd, a->out), value_type(pair->bwd, b->out));
}

/* Does the backward body compute o? Then its results are known to be shared. */
static bool find_shared(const Pair *pair, ValueId *same, const Op *o) {
  for (OpId k = 0; o->nout && k < pair->bwd->ops.n; k++) {
    const Op *b = &pair->bwd->ops.at[k];
    if (!equals(pair, same, o, b)) continue;
    for (uint32_t i = 0; i < o->nout; i++)
      if (same[o->out + i] == NO_VALUE) same[o->out + i] = b->out + i;
    return true;
  }
  return false;
}

static KeepValue value_of(const Pair *pair, ValueId v, Str over, double in_flight) {
  const Op *def = value_def(pair->fwd, v);
  KeepValue value = {.op = def ? (uint32_t)(def - pair->fwd->ops.at) : KEEP_NO_OP};
  value.bytes = pair->outside[v] ? 0 : in_flight * kept_by_rank(pair, v, over);
  value.known = !def && !pair_is_carried(pair, v);
  value.needed = pair->kept[v] != NO_VALUE;
  value.possible = pair_can_keep(pair, v);
  return value;
}

KeepBody *recompute_body(const Pair *pair, Str over) {
  must(pair->s1.trip == pair->s2.trip, "recompute: %s runs %lld rounds forward, %lld backward",
       pair->fwd->name, (long long)pair->s1.trip, (long long)pair->s2.trip);
  Arena *arena = pair->m->arena;
  KeepBody *body = ARENA_NEW(arena, KeepBody);
  ValueId *same = shared_values(pair);
  body->nvalues = pair->fwd->values.n, body->nops = pair->fwd->ops.n;
  body->value = ARENA_ARRAY(arena, KeepValue, body->nvalues + 1);
  body->op = ARENA_ARRAY(arena, KeepOp, body->nops + 1);
  double in_flight = kept_share(pair).in_flight;
  for (ValueId v = 0; v < body->nvalues; v++) body->value[v] = value_of(pair, v, over, in_flight);
  for (OpId i = 0; i < body->nops; i++) {
    const Op *o = &pair->fwd->ops.at[i];
    body->op[i] = (KeepOp){ir_op_flop(pair->m, pair->fwd, o), o->nin, o->in};
    if (find_shared(pair, same, o)) body->op[i].flop = 0;
  }
  return body;
}
