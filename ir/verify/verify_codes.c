/* Constraint of buffers that hold codes of 8 bits (ir/codes.h): what writes a buffer and all
   that read it agree about what is in it. Must not: ask why a value is kept so. */
#include "ir/codes.h"
#include "verify.h"

/* Formats and runs that a kernel function can have: of results that it rounds so, of both operands
   of its product. */
static bool has_kernel(const Module *m, const Fn *k) {
  const Op *dot = NULL;
  if (codes_other(k) && !m->target.wgmma) return false; /* no other target has such kernels */
  EACH_OP (k, o)
    if (o->code == OP_dot) dot = o;
  for (uint32_t i = 0; i < k->args.n + k->results.n; i++) {
    Codes codes, other;
    if (!kernel_codes(k, i, &codes)) continue;
    if (!codes.format || codes.run < 1 || codes.run % EIGHTS_BLOCK || codes.count % codes.run)
      return false;
    if (i >= k->args.n) {
      ValueId v = k->results.at[i - k->args.n];
      if (!codes_most(k, v) || eights_format_of(codes_quantize(k, v)) != codes.format) return false;
      continue;
    }
    ValueId v = k->args.at[i];
    if (!dot || (dot->in[0] != v && dot->in[1] != v)) return false;
    ValueId second = dot->in[dot->in[0] == v];
    if (k->values.at[second].def != NO_OP || !kernel_codes(k, k->values.at[second].result, &other))
      return false;
  }
  return true;
}

/* Codes are written in storage order: between them is no room. */
static void check_room(Verifier *verifier, const Fn *f, const Op *o) {
  Codes codes;
  for (uint32_t i = 0; i < o->nout && o->code == OP_kernel; i++)
    if (kernel_codes(o->callee, o->nin + i, &codes) && !value_is_dense(&f->values.at[o->out + i]))
      verify_report(verifier, "E1110", verify_at_op(o),
                    "[select-c10] result %u is codes of 8 bits and not dense", i);
}

/* The codes that the op writes to its result v; false: it writes numbers. */
static bool written(const Op *made, ValueId v, Codes *out) {
  return made && made->code == OP_kernel &&
         kernel_codes(made->callee, made->nin + (v - made->out), out);
}

static void check_reader(Verifier *verifier, const Fn *f, const Op *o, const ValueId *root) {
  for (uint32_t i = 0; i < o->nin; i++) {
    Codes has, reads;
    ValueId v = root[o->in[i]];
    bool codes = written(value_def(f, v), v, &has),
         as_codes = o->code == OP_kernel && kernel_codes(o->callee, i, &reads);
    bool same = codes == as_codes && (!codes || (has.format == reads.format &&
                                                 has.run == reads.run && has.count == reads.count));
    if (!same)
      verify_report(verifier, "E1110", verify_at_op(o),
                    "[select-c10] operand %u is read as other codes of 8 bits than it holds", i);
  }
}

void verify_coded(Verifier *verifier) {
  const Module *m = verifier->m;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *k = verifier->fn = m->fns.at[i];
    if (k->kind == FN_KERNEL && !has_kernel(m, k))
      verify_report(verifier, "E1110", verify_at_fn(verifier),
                    "[select-c10] @%s has no such codes of 8 bits", k->name);
  }
}

void verify_codes(Verifier *verifier) {
  const Module *m = verifier->m;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = verifier->fn = m->fns.at[i];
    if (f->kind == FN_KERNEL) continue;
    ValueId *root = ARENA_ARRAY(m->arena, ValueId, f->values.n + 1);
    for (ValueId v = 0; v < f->values.n; v++) root[v] = v;
    EACH_OP (f, o) {
      bool view = op_flags(o->code) & VIEW && o->nin;
      for (uint32_t k = 0; view && k < o->nout; k++) root[o->out + k] = root[o->in[0]];
      if (!view) check_reader(verifier, f, o, root);
      check_room(verifier, f, o);
    }
    for (uint32_t k = 0; k < f->results.n; k++) {
      Codes codes;
      ValueId v = root[f->results.at[k]];
      if (written(value_def(f, v), v, &codes))
        verify_report(verifier, "E1110", verify_at_fn(verifier),
                      "[select-c10] @%s returns codes of 8 bits", f->name);
    }
  }
}
