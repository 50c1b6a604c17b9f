/* The verifier, part of tiers: what lies in which memory (ir/tiers.def). That the operands of one
   op lie together is the shape rules' business ([tier-c1], ir/shape.c). */
#include "ir/bytes.h"
#include "verify.h"

static void check_kernel(Verifier *v) {
  const Fn *f = v->fn;
  if (!f->results.n) return;
  Tier t = kernel_tier(f);
  bool together = true;
  for (uint32_t i = 0; i < f->args.n; i++) together &= value_type(f, f->args.at[i])->tier == t;
  for (uint32_t i = 0; i < f->results.n; i++)
    together &= value_type(f, f->results.at[i])->tier == t;
  if (!together)
    verify_report(v, "E1104", verify_at_fn(v), "[tier-c2] kernel @%s works in two memories",
                  f->name);
  if (kernel_beside(v->m, f) && v->fence >= FENCE_SELECTED && !v->m->beside.name)
    verify_report(v, "E1104", verify_at_fn(v),
                  "[tier-c6] kernel @%s works in the memory `%s`, and no line `beside` says of "
                  "which processor",
                  f->name, tier_name(t));
}

static void check_message(Verifier *v, const Op *op) {
  if (op_family(op->code) == FAMILY_COLLECTIVE && op_tier(v->fn, op->nin, op->in) != TIER_device)
    verify_report(v, "E1109", verify_at_op(op), "[tier-c3] %s of what lies in the memory `%s`",
                  op_name(op->code), tier_name(op_tier(v->fn, op->nin, op->in)));
}

/* The memory that a place is in. */
static Tier place_tier(const Verifier *v, const Value *x) {
  const Storage *s = &x->storage;
  const Fn *f = v->fn;
  if (s->place == PLACE_GLOBAL && s->slot < v->m->globals.n)
    return v->m->globals.at[s->slot]->type.tier;
  if (s->place == PLACE_ARG && s->slot < f->args.n) return value_type(f, f->args.at[s->slot])->tier;
  if (s->place == PLACE_RESULT && s->slot < f->results.n)
    return value_type(f, f->results.at[s->slot])->tier;
  return s->place == PLACE_RING ? TIER_device : x->type.tier; /* every function has its frames */
}

static void check_place(Verifier *v, ValueId id) {
  const Value *x = &v->fn->values.at[id];
  const Op *def = value_def(v->fn, id);
  if (place_tier(v, x) != x->type.tier)
    verify_report(v, "E1108", def ? verify_at_op(def) : verify_at_fn(v),
                  "[tier-c5] a value of the memory `%s` has its bytes in `%s`",
                  tier_name(x->type.tier), tier_name(place_tier(v, x)));
}

void verify_tiers(Verifier *v) {
  const Fn *f = v->fn;
  if (f->kind == FN_KERNEL) check_kernel(v);
  for (OpId i = 0; i < f->ops.n; i++) check_message(v, &f->ops.at[i]);
  for (ValueId i = 0; v->fence >= FENCE_PLACED && i < f->values.n; i++) check_place(v, i);
}

void verify_global_tiers(Verifier *v) {
  const Module *m = v->m;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    if (!global_has_arena(g))
      verify_report(v, "E1105", (VerifyPlace){g->span, g->loc},
                    "[tier-c4] @%s: only parameters and states lie in the memory `%s`", g->name,
                    tier_name(g->type.tier));
  }
}
