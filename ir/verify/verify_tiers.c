/* Checks of tiers: which memory holds which value (ir/tiers.def). That the operands of one op are
   in the same memory is checked by the shape rules ([tier-c1], ir/shape/shape.c). */
#include "ir/bytes.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/stream_order.h"
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
  if (kernel_on_host(verifier->m, f) && verifier->fence >= FENCE_SELECTED &&
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

/* May the op have operations on the stream? */
static bool can_run_on(const Verifier *verifier, const Op *op, OpStream stream) {
  if (op->code == OP_move) {
    bool up = value_type(verifier->fn, op->out)->tier == TIER_device;
    return stream == (up ? STREAM_up : STREAM_down);
  }
  if (op->code == OP_kernel && !kernel_on_host(verifier->m, op->callee)) return false;
  return stream == STREAM_host;
}

static void check_token(Verifier *verifier, const Op *op, AttrKey key, OpStream of) {
  const Attr *numbers = attr_get(&op->attrs, key);
  OpStream runs_on = op_stream(op);
  if (!numbers) return;
  if (numbers->i < 1 || numbers->i > 5)
    verify_report(verifier, "E1103", verify_at_op(op), "[token-c2] `%s` has one to five numbers",
                  attr_name(key));
  if (key != ATTR_arrived && (runs_on == STREAM_compute || runs_on == of))
    verify_report(verifier, "E1103", verify_at_op(op), "[token-c3] `%s` of an op that runs on `%s`",
                  attr_name(key), stream_name(runs_on));
}

static void check_tokens(Verifier *verifier, const Op *op) {
  const Attr *name = attr_get(&op->attrs, ATTR_runs_on);
  OpStream runs_on = op_stream(op);
  bool message = name && op_flies(op) && !strcmp(name->s, stream_messages);
  if (name && !message && (runs_on == STREAM_compute || !can_run_on(verifier, op, runs_on)))
    verify_report(verifier, "E1103", verify_at_op(op),
                  "[token-c1] %s does not run on a stream `%s`", op_name(op->code), name->s);
  check_token(verifier, op, ATTR_after_down, STREAM_down);
  check_token(verifier, op, ATTR_after_host, STREAM_host);
  check_token(verifier, op, ATTR_after_up, STREAM_up);
  check_token(verifier, op, ATTR_arrived, STREAM_up);
}

void verify_tiers(Verifier *verifier) {
  const Fn *f = verifier->fn;
  if (f->kind == FN_KERNEL) check_kernel(verifier);
  for (OpId i = 0; i < f->ops.n; i++)
    check_message(verifier, &f->ops.at[i]), check_work(verifier, &f->ops.at[i]),
        check_tokens(verifier, &f->ops.at[i]);
  for (ValueId i = 0; verifier->fence >= FENCE_PLACED && i < f->values.n; i++)
    check_place(verifier, i);
}

void verify_global_tiers(Verifier *verifier) {
  const Module *m = verifier->m;
  EACH_GLOBAL (m, global) {
    if (!global_has_arena(global))
      verify_report(verifier, "E1105", (VerifyPlace){global->span, global->loc},
                    "[tier-c4] @%s: the memory `%s` may hold only parameters and states",
                    global->name, tier_name(global->type.tier));
  }
}
