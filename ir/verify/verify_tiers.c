/* Checks of tiers: which memory holds which value (ir/tiers.def). That the operands of one op are
   in the same memory is checked by the shape rules ([tier-c1], ir/shape/shape.c). */
#include "ir/bytes.h"
#include "verify.h"

static void check_kernel(Verifier *verifier) {
  const Fn *f = verifier->fn;
  if (!f->results.n) return;
  Tier t = kernel_tier(f);
  bool together = true;
  for (uint32_t i = 0; i < f->args.n; i++) together &= value_type(f, f->args.at[i])->tier == t;
  for (uint32_t i = 0; i < f->results.n; i++)
    together &= value_type(f, f->results.at[i])->tier == t;
  if (!together)
    verify_report(verifier, "E1104", verify_at_fn(verifier),
                  "[tier-c2] kernel @%s works in two memories", f->name);
  if (kernel_beside(verifier->m, f) && verifier->fence >= FENCE_SELECTED &&
      !verifier->m->host_target.name)
    verify_report(
        verifier, "E1104", verify_at_fn(verifier),
        "[tier-c6] kernel @%s works in the memory `%s`, and no line `host_target` says of "
        "which processor",
        f->name, tier_name(t));
}

static void check_message(Verifier *verifier, const Op *op) {
  if (op_family(op->code) == FAMILY_COLLECTIVE &&
      op_tier(verifier->fn, op->nin, op->in) != TIER_device)
    verify_report(verifier, "E1109", verify_at_op(op), "[tier-c3] %s of a value in the memory `%s`",
                  op_name(op->code), tier_name(op_tier(verifier->fn, op->nin, op->in)));
}

/* Ops that compute activations run on the device: on the host their operands would have to be
   copied to it. The host runs the ops of updates. */
static void check_work(Verifier *verifier, const Op *op) {
  static const OpFamily here[] = {FAMILY_CONTRACT, FAMILY_ATTENTION};
  Tier t = op->nout ? value_type(verifier->fn, op->out)->tier : TIER_device;
  for (size_t i = 0; i < sizeof here / sizeof *here && t != TIER_device; i++)
    if (op_family(op->code) == here[i])
      verify_report(verifier, "E1109", verify_at_op(op), "[tier-c7] %s in the memory `%s`",
                    op_name(op->code), tier_name(t));
}

/* The memory that a place is in. */
static Tier place_tier(const Verifier *verifier, const Value *x) {
  const Storage *storage = &x->storage;
  const Fn *f = verifier->fn;
  if (storage->place == PLACE_GLOBAL && storage->slot < verifier->m->globals.n)
    return verifier->m->globals.at[storage->slot]->type.tier;
  if (storage->place == PLACE_ARG && storage->slot < f->args.n)
    return value_type(f, f->args.at[storage->slot])->tier;
  if (storage->place == PLACE_RESULT && storage->slot < f->results.n)
    return value_type(f, f->results.at[storage->slot])->tier;
  return storage->place == PLACE_RING ? TIER_device
                                      : x->type.tier; /* every function has its frames */
}

static void check_place(Verifier *verifier, ValueId id) {
  const Value *x = &verifier->fn->values.at[id];
  const Op *def = value_def(verifier->fn, id);
  if (place_tier(verifier, x) != x->type.tier)
    verify_report(verifier, "E1108", def ? verify_at_op(def) : verify_at_fn(verifier),
                  "[tier-c5] a value of the memory `%s` has its bytes in `%s`",
                  tier_name(x->type.tier), tier_name(place_tier(verifier, x)));
}

void verify_tiers(Verifier *verifier) {
  const Fn *f = verifier->fn;
  if (f->kind == FN_KERNEL) check_kernel(verifier);
  for (OpId i = 0; i < f->ops.n; i++)
    check_message(verifier, &f->ops.at[i]), check_work(verifier, &f->ops.at[i]);
  for (ValueId i = 0; verifier->fence >= FENCE_PLACED && i < f->values.n; i++)
    check_place(verifier, i);
}

void verify_global_tiers(Verifier *verifier) {
  const Module *m = verifier->m;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (!global_has_arena(global))
      verify_report(verifier, "E1105", (VerifyPlace){global->span, global->loc},
                    "[tier-c4] @%s: the memory `%s` may hold only parameters and states",
                    global->name, tier_name(global->type.tier));
  }
}
