/* Loops over parts of stacks: no op may read slices of a new stack that no loop has written.

   A stack that a loop begins (`continues` -2) has the slices of that loop's rounds; one that a loop
   continues has those of its operand as well. As long as slices are missing, only copies and loops
   may take the value: loops over the same dim continue it, or read slices that exist as a stacked
   operand; loops over another dim (micro-batches) pass it to their rounds, or stack what their
   rounds make of it. So missing slices are followed through all functions until nothing changes.
   Must not: take time where no loop runs over a part. */
#include "ir/loop.h"
#include "verify.h"

typedef struct StackPart { /* slices from .. to - 1 of a stack; to 0: all of them, or no stack */
  int64_t from, to;
  Str dim;
} StackPart;

typedef struct StackParts {
  Verifier *verifier;
  StackPart **of; /* by function and value */
  bool *runs;     /* by function: some loop runs it */
} StackParts;

static Str loop_dim(const Op *loop) { return loop->group[0].from[0]; }

static StackPart rounds_of(const Op *loop) {
  int64_t first = loop_first(loop);
  return (StackPart){first, first + attr_int(&loop->attrs, ATTR_trip, 0), loop_dim(loop)};
}

/* Both are parts of one stack; slices between them count as missing. */
static StackPart joined(StackPart a, StackPart b, int64_t of) {
  if (!a.to || (a.from > b.to || b.from > a.to)) return a;
  StackPart r = {a.from < b.from ? a.from : b.from, a.to > b.to ? a.to : b.to, a.dim};
  return r.from == 0 && r.to == of ? (StackPart){0, 0, NULL} : r;
}

static StackPart result_part(const Op *loop, uint32_t i, const StackPart *have,
                             const StackPart *inside) {
  uint32_t on = loop_continues(loop, i);
  StackPart rounds = rounds_of(loop), made = inside[loop->callee->results.at[i]];
  if (made.to && made.dim != rounds.dim) return made;
  if (on != NO_VALUE) return joined(have[loop->in[on]], rounds, loop_length(loop));
  return loop_begins(loop, i) ? rounds : (StackPart){0, 0, NULL};
}

/* A copy, in another layout say, has the slices that its operand has. */
static bool copies(const Op *o) {
  const Fn *k = o->code == OP_kernel ? o->callee : NULL;
  return o->code == OP_copy || (k && k->ops.n == 1 && k->ops.at[0].code == OP_copy);
}

/* ---- what is missing where ---- */

static bool set(StackPart *to, StackPart part) {
  bool same = to->from == part.from && to->to == part.to;
  *to = part;
  return !same;
}

/* The operands that each loop passes to its body. */
static StackPart narrower(StackPart a, StackPart b) {
  if (!a.to) return b;
  return (StackPart){a.from > b.from ? a.from : b.from, a.to < b.to ? a.to : b.to, a.dim};
}

static bool flow_loop(StackParts *parts, const Op *o, StackPart *have) {
  uint32_t callee = fn_index(parts->verifier->m, o->callee);
  StackPart *inside = parts->of[callee];
  bool changed = false;
  parts->runs[callee] = true;
  for (uint32_t k = 0; k < o->nin; k++) {
    StackPart part = have[o->in[k]];
    StackPart *arg = &inside[o->callee->args.at[k + 1]];
    if (part.to && part.dim != loop_dim(o)) changed |= set(arg, narrower(*arg, part));
  }
  for (uint32_t k = 0; k < o->nout; k++)
    changed |= set(&have[o->out + k], result_part(o, k, have, inside));
  return changed;
}

static bool flow(StackParts *parts, uint32_t number) {
  const Fn *f = parts->verifier->m->fns.at[number];
  StackPart *have = parts->of[number];
  bool changed = false;
  EACH_OP (f, o)
    if (o->code == OP_loop) changed |= flow_loop(parts, o, have);
    else if (copies(o)) changed |= set(&have[o->out], have[o->in[0]]);
  return changed;
}

/* ---- who may take it ---- */

static bool may_take(const Op *o, uint32_t k, StackPart have) {
  if (copies(o)) return true;
  if (o->code != OP_loop) return false;
  if (have.dim != loop_dim(o)) return k >= (uint32_t)attr_int(&o->attrs, ATTR_carry, 0);
  if (k < loop_whole(o)) return false;
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

/* A value that a loop carries is whole. */
static bool stacks(const Module *m, const Fn *body, uint32_t result) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      if (o->code == OP_loop && o->callee == body &&
          result < (uint32_t)attr_int(&o->attrs, ATTR_carry, 0))
        return false;
    }
  return true;
}

static void check(StackParts *parts, uint32_t number) {
  Verifier *verifier = parts->verifier;
  const Fn *f = verifier->fn = verifier->m->fns.at[number];
  const StackPart *have = parts->of[number];
  for (OpId i = 0; i < f->ops.n; i++) check_taken(verifier, &f->ops.at[i], have);
  for (uint32_t i = 0; i < f->results.n; i++)
    if (have[f->results.at[i]].to && !(parts->runs[number] && stacks(verifier->m, f, i)))
      verify_report(verifier, "E1104", verify_at_fn(verifier),
                    "[loop-c13] result %u is not all written", i);
}

static bool any_part(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (m->fns.at[i]->ops.at[k].code == OP_loop &&
          attr_get(&m->fns.at[i]->ops.at[k].attrs, ATTR_stack_length))
        return true;
  return false;
}

void verify_parts(Verifier *verifier) {
  const Module *m = verifier->m;
  if (!any_part(m)) return;
  StackParts parts = {verifier, ARENA_ARRAY(m->arena, StackPart *, m->fns.n),
                      ARENA_ARRAY(m->arena, bool, m->fns.n)};
  for (uint32_t i = 0; i < m->fns.n; i++)
    parts.of[i] = ARENA_ARRAY(m->arena, StackPart, m->fns.at[i]->values.n + 1);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t i = 0; i < m->fns.n; i++) changed |= flow(&parts, i);
  }
  for (uint32_t i = 0; i < m->fns.n; i++) check(&parts, i);
}
