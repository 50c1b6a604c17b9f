/* Non-temporal stores for results larger than L2: a regular store would first read the line (RFO).

   A result as large as the second-level cache is not found there when it is read again. Rows of the
   result must begin on whole lines; that vectors are aligned is asked when the kernel runs, because
   results may be parts of others. Not where the epilogue reads something as large as the result: it
   may lie in the same place, and its lines are in the cache already. Measured:
   docs/performance.md. */
#include "contract.h"
#include "ir/support/num.h"

static int64_t elements(const Fn *k, ValueId v) {
  const Type *t = value_type(k, v);
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->axis[i].size;
  return n;
}

static bool whole_lines(const Contract *c, const ProductDims *d, int n) {
  for (int i = 0; i < n; i++)
    if (d->dim[i].r * elem_bytes(c->out) % CACHE_LINE) return false;
  return true;
}

static bool reads_as_much(const Contract *c, int64_t result) {
  for (uint32_t i = 0; i < c->k->args.n; i++)
    if (i != c->product.arg_a && i != c->product.arg_b &&
        elements(c->k, c->k->args.at[i]) >= result)
      return true;
  return false;
}

void contract_plan_nontemporal(Contract *c) {
  if (!c->out_row || c->k->results.n != 1 + (c->product.sum != NO_VALUE)) return;
  int64_t n = elements(c->k, c->k->results.at[c->first]);
  bool may = n * elem_bytes(c->out) >= c->e->target->facts.l2 &&
             c->product.n.inner % c->plan.lanes == 0 &&
             whole_lines(c, &c->product.m, c->product.m.count) &&
             whole_lines(c, &c->product.batch, c->product.batch.count) && !reads_as_much(c, n);
  if (may) c->nontemporal = 1ull << c->first;
}

LLVMValueRef contract_aligned(Contract *c, LLVMValueRef address) {
  if (!c->nontemporal) return NULL;
  return nontemporal_aligned(c->e, address, c->plan.lanes * elem_bytes(c->out));
}
