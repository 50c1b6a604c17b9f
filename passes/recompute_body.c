/* recompute: the forward body of a pair as the search sees it (recompute_cut.h): bytes of each
   value, operations of each op.

   Operations are those of ir/count.c. An op that the backward body computes already, from the same
   values, costs nothing more: equal ops of one body become one in simplify. A value that is read
   outside of the two loops is there in any case: its bytes are free. */
#include "ir/count.h"
#include "passes/recompute.h"

/* By value of fwd: the equal value of bwd, if the backward pass has it without further ado. */
static ValueId *shared_values(const Pair *p) {
  ValueId *same = value_map(p->m, p->fwd);
  for (ValueId v = 0; v < p->fwd->values.n; v++)
    if (p->kept[v] != NO_VALUE) same[v] = p->bwd->args.at[p->kept[v] + 1];
  for (uint32_t i = p->s1.carry; i < p->l1->nin; i++)
    for (uint32_t j = p->s2.carry; j < p->l2->nin; j++) {
      bool stacked = i >= p->s1.carry + p->s1.invariant;
      if (p->l1->in[i] == p->l2->in[j] && stacked == (j >= p->s2.carry + p->s2.invariant))
        same[p->fwd->args.at[i + 1]] = p->bwd->args.at[j + 1];
    }
  return same;
}

static bool equals(const Pair *p, const ValueId *same, const Op *a, const Op *b) {
  if (a->nin != b->nin || a->nout != b->nout || !op_alike(a, b)) return false;
  for (uint32_t i = 0; i < a->nin; i++)
    if (same[a->in[i]] != b->in[i]) return false;
  return type_same_dims(value_type(p->fwd, a->out), value_type(p->bwd, b->out));
}

/* Does the backward body compute o? Then its results are known to be shared. */
static bool find_shared(const Pair *p, ValueId *same, const Op *o) {
  for (OpId k = 0; o->nout && k < p->bwd->ops.n; k++) {
    const Op *b = &p->bwd->ops.at[k];
    if (!equals(p, same, o, b)) continue;
    for (uint32_t i = 0; i < o->nout; i++)
      if (same[o->out + i] == NO_VALUE) same[o->out + i] = b->out + i;
    return true;
  }
  return false;
}

static KeepValue value_of(const Pair *p, ValueId v) {
  const Type *t = value_type(p->fwd, v);
  const Op *def = value_def(p->fwd, v);
  KeepValue k = {.op = def ? (uint32_t)(def - p->fwd->ops.at) : KEEP_NO_OP};
  k.bytes = p->outside[v] ? 0 : (double)type_count(t) * elem_bytes(t->elem);
  k.known = !def && !pair_is_carried(p, v);
  k.needed = p->kept[v] != NO_VALUE;
  k.possible = pair_can_keep(p, v);
  return k;
}

KeepBody *recompute_body(const Pair *p) {
  must(p->s1.trip == p->s2.trip, "recompute: %s runs %lld rounds forward, %lld backward",
       p->fwd->name, (long long)p->s1.trip, (long long)p->s2.trip);
  Arena *a = p->m->arena;
  KeepBody *b = ARENA_NEW(a, KeepBody);
  ValueId *same = shared_values(p);
  b->nvalues = p->fwd->values.n, b->nops = p->fwd->ops.n;
  b->value = ARENA_ARRAY(a, KeepValue, b->nvalues + 1);
  b->op = ARENA_ARRAY(a, KeepOp, b->nops + 1);
  for (ValueId v = 0; v < b->nvalues; v++) b->value[v] = value_of(p, v);
  for (OpId i = 0; i < b->nops; i++) {
    const Op *o = &p->fwd->ops.at[i];
    b->op[i] = (KeepOp){ir_op_flop(p->m, p->fwd, o), o->nin, o->in};
    if (find_shared(p, same, o)) b->op[i].flop = 0;
  }
  return b;
}
