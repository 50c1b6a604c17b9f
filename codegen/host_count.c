/* Host writer: floating-point operations and bytes of one run of an entry, counted from the IR.

   A contraction is two operations per term; attention two contractions forward, five backward, over
   all keys; every other float op one per element of its result or, for reductions, of its operand.
   Bytes are the operands and results of each kernel, as if nothing stayed in a cache. Loops count
   their rounds. */
#include "host.h"

static double count(const Fn *f, ValueId v) { return (double)type_count(value_type(f, v)); }

/* Number of terms of a contraction: all dims of both operands. */
static double terms(const Fn *f, ValueId a, ValueId b) {
  const Type *x = value_type(f, a), *y = value_type(f, b);
  double n = (double)type_count(x);
  for (int i = 0; i < y->rank; i++)
    if (type_find(x, y->axis[i].dim) < 0) n *= (double)y->axis[i].size;
  return n;
}

static double op_flop(const Fn *f, const Op *o) {
  switch (op_family(o->code)) {
  case FAMILY_CONTRACT: return 2 * terms(f, o->in[0], o->in[1]);
  case FAMILY_ATTENTION: return (o->nout == 2 ? 4 : 10) * terms(f, o->in[0], o->in[1]);
  case FAMILY_REDUCE:
  case FAMILY_SCAN:
  case FAMILY_SCATTER: return count(f, o->in[0]);
  case FAMILY_ELEM:
    return elem_class(value_type(f, o->out)->elem) == CLASS_FLOAT ? count(f, o->out) : 0;
  default: return 0;
  }
}

static double value_bytes(const Fn *f, ValueId v) {
  return count(f, v) * elem_bytes(value_type(f, v)->elem);
}

static HostCount kernel_count(const Fn *k) {
  HostCount c = {0, 0};
  for (OpId i = 0; i < k->ops.n; i++) c.flop += op_flop(k, &k->ops.at[i]);
  for (uint32_t i = 0; i < k->args.n; i++) c.bytes += value_bytes(k, k->args.at[i]);
  for (uint32_t i = 0; i < k->results.n; i++) c.bytes += value_bytes(k, k->results.at[i]);
  return c;
}

HostCount host_count(const Module *m, const Fn *f) {
  HostCount sum = {0, 0};
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (!o->callee) continue;
    double rounds = o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
    HostCount c = o->code == OP_loop ? host_count(m, o->callee) : kernel_count(o->callee);
    sum.flop += rounds * c.flop, sum.bytes += rounds * c.bytes;
  }
  return sum;
}
