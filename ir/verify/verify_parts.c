/* Loops over parts of a stack: what such a loop does not write of a new stack, no op may read.

   A stack that a loop begins (`into` -2) has the slices of that loop's rounds; one that a loop
   continues has those of its operand, too. As long as slices are missing, only copies and loops may
   take the value: to continue it, or as a stacked operand of which they read slices that are there.
 */
#include "ir/loop.h"
#include "verify.h"

typedef struct StackPart { /* slices from .. to - 1 of a stack; to 0: all of them, or no stack */
  int64_t from, to;
} StackPart;

static StackPart rounds_of(const Op *loop) {
  int64_t first = loop_first(loop);
  return (StackPart){first, first + attr_int(&loop->attrs, ATTR_trip, 0)};
}

/* Both are parts of one stack; what lies between them counts as missing. */
static StackPart joined(StackPart a, StackPart b, int64_t of) {
  if (!a.to || (a.from > b.to || b.from > a.to)) return a;
  StackPart r = {a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to};
  return r.from == 0 && r.to == of ? (StackPart){0, 0} : r;
}

static StackPart result_part(const Op *loop, uint32_t i, const StackPart *have) {
  uint32_t on = loop_continues(loop, i);
  StackPart rounds = rounds_of(loop);
  if (on != NO_VALUE) return joined(have[loop->in[on]], rounds, loop_length(loop));
  return loop_begins(loop, i) ? rounds : (StackPart){0, 0};
}

/* A copy, in another layout say, has the slices that its operand has. */
static bool copies(const Op *o) {
  const Fn *k = o->code == OP_kernel ? o->callee : NULL;
  return o->code == OP_copy || (k && k->ops.n == 1 && k->ops.at[0].code == OP_copy);
}

static bool may_take(const Op *o, uint32_t k, StackPart have) {
  if (copies(o)) return true;
  if (o->code != OP_loop || k < loop_whole(o)) return false;
  StackPart rounds = rounds_of(o);
  bool reads = value_is_used(o->callee, o->callee->args.at[k + 1]),
       written = have.from <= rounds.from && rounds.to <= have.to;
  return reads ? written : true;
}

static void check_taken(Verifier *verifier, const Op *o, const StackPart *have) {
  for (uint32_t k = 0; k < o->nin; k++)
    if (have[o->in[k]].to && !may_take(o, k, have[o->in[k]]))
      verify_report(verifier, "E1104", verify_at_op(o),
                    "[loop-c13] of operand %u of %s only slices %lld .. %lld are written", k,
                    op_name(o->code), (long long)have[o->in[k]].from,
                    (long long)(have[o->in[k]].to - 1));
}

void verify_parts(Verifier *verifier) {
  const Fn *f = verifier->fn;
  StackPart *have = ARENA_ARRAY(verifier->m->arena, StackPart, f->values.n + 1);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    check_taken(verifier, o, have);
    for (uint32_t k = 0; o->code == OP_loop && k < o->nout; k++)
      have[o->out + k] = result_part(o, k, have);
    if (copies(o)) have[o->out] = have[o->in[0]];
  }
  for (uint32_t i = 0; i < f->results.n; i++)
    if (have[f->results.at[i]].to)
      verify_report(verifier, "E1104", verify_at_fn(verifier),
                    "[loop-c13] result %u is not all written", i);
}
