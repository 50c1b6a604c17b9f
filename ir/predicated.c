/* See predicated.h. Must not: ask what the condition is computed from. */
#include "predicated.h"

static uint32_t argument(const Fn *k, ValueId v) {
  for (uint32_t i = 0; i < k->args.n; i++)
    if (k->args.at[i] == v) return i;
  return NO_VALUE;
}

static const Op *choice(const Fn *k, uint32_t result) {
  const Op *o = value_def(k, k->results.at[result]);
  return o && o->code == OP_where ? o : NULL;
}

uint32_t kernel_left(const Fn *k, uint32_t result) {
  const Op *o = choice(k, result);
  uint32_t operand = o ? argument(k, o->in[1]) : NO_VALUE;
  if (operand == NO_VALUE || !type_equal(value_type(k, o->in[1]), value_type(k, o->out)))
    return NO_VALUE;
  return operand;
}

uint32_t kernel_skip_condition(const Fn *k) {
  const Op *first = k->results.n ? choice(k, 0) : NULL;
  if (!first || value_type(k, first->in[0])->rank) return NO_VALUE;
  for (uint32_t i = 0; i < k->results.n; i++)
    if (kernel_left(k, i) == NO_VALUE || choice(k, i)->in[0] != first->in[0]) return NO_VALUE;
  return argument(k, first->in[0]);
}

bool op_is_skippable(const Fn *f, const Op *o) {
  if (o->code != OP_kernel || kernel_skip_condition(o->callee) == NO_VALUE) return false;
  for (uint32_t i = 0; i < o->nout; i++) {
    const Storage *s = &f->values.at[o->out + i].storage;
    if (s->view != VIEW_INPLACE || s->base != o->in[kernel_left(o->callee, i)]) return false;
  }
  return true;
}
