/* Readers of a parameter other than its update, for partitioned states: between which stacks, and
   in which type. Must not: look into the update itself (zero_slice.c). */
#include "ir/loop.h"
#include "ir/plan/module_settings.h"
#include "zero_slice.h"

/* Between which stacks a value is read, as a set of epochs; views of it included. The update does
   not count. */
static uint64_t epochs_of(const GroupSlice *slice, const Fn *fn, ValueId value) {
  uint32_t *epoch;
  uint64_t set = 0;
  zero_epochs(slice->z, fn, &epoch);
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    if (fn == slice->f && op->nout == 1 && slice->in[op->out]) continue;
    for (uint32_t k = 0; k < op->nin; k++) {
      if (op->in[k] != value) continue;
      if (op->code == OP_rename || op->code == OP_cast) set |= epochs_of(slice, fn, op->out);
      else if (loop_is_micro(op)) set |= epochs_of(slice, op->callee, op->callee->args.at[k + 1]);
      else set |= (uint64_t)1 << (epoch[i] < 63 ? epoch[i] : 63);
    }
  }
  return set;
}

/* Is v, of any function, read by nothing but casts to one narrower float type? */
static bool only_cast(GroupSlice *slice, const Fn *fn, ValueId value) {
  EACH_OP (fn, op) {
    if (fn == slice->f && op->nout == 1 && slice->in[op->out] && op->code != OP_cast) continue;
    for (uint32_t k = 0; k < op->nin; k++) {
      if (op->in[k] != value) continue;
      if (op->code == OP_loop && !only_cast(slice, op->callee, op->callee->args.at[k + 1]))
        return false;
      if (op->code == OP_rename && !only_cast(slice, fn, op->out)) return false;
      if (op->code == OP_loop || op->code == OP_rename) continue;
      Elem e = op->code == OP_cast ? value_type(fn, op->out)->elem : ELEM_f32;
      if (elem_class(e) != CLASS_FLOAT || elem_bytes(e) >= elem_bytes(value_type(fn, value)->elem))
        return false;
      if (slice->member.copied && slice->member.narrow != e) return false;
      slice->member.copied = true, slice->member.narrow = e;
    }
  }
  return true;
}

void slice_find_copy(GroupSlice *slice) {
  Module *module = slice->z->m;
  bool good = true;
  for (uint32_t i = 0; i < module->fns.n; i++)
    for (OpId at = 0; module->fns.at[i]->kind == FN_ENTRY && at < module->fns.at[i]->ops.n; at++) {
      const Op *op = &module->fns.at[i]->ops.at[at];
      if (op->code == OP_load && op->global == slice->member.param)
        good = good && only_cast(slice, module->fns.at[i], op->out);
    }
  slice->member.copied = slice->member.copied && good && plan_copies_weights(module);
  if (slice->member.copied || !(zero_hosted(slice->z, slice->member.param) & HOSTED_UPDATE)) return;
  slice->member.copied = true, slice->member.narrow = slice->member.param->type.elem;
}

Str slice_region(const GroupSlice *slice) {
  uint64_t set = 0;
  EACH_OP (slice->f, op)
    if (op->code == OP_load && op->global == slice->member.param)
      set |= epochs_of(slice, slice->f, op->out);
  return arena_printf(slice->z->m->arena, "@%llx", (unsigned long long)set);
}
