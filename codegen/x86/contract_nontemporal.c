/* Non-temporal stores for results larger than L2: a regular store would first read the line (RFO).

   A result as large as the second-level cache is no longer in it when it is read again. Rows of the
   result must begin on whole lines; the alignment of vectors is tested when the kernel runs,
   because results may be parts of others. Not used where the epilogue reads something as large as
   the result: it may have the same buffer, and its lines are in the cache already. Measured:
   docs/performance.md.

   Zeros of empty tiles (contract_skip.c) are written so to all results of one layout: no operand is
   read. */
#include "contract.h"
#include "ir/support/num.h"

static int64_t elements(const Fn *fn, ValueId value) {
  const Type *type = value_type(fn, value);
  int64_t n = 1;
  for (int i = 0; i < type->rank; i++) n *= type->axis[i].size;
  return n;
}

static bool whole_lines(const Contract *contract, const ProductDims *d, int n) {
  for (int i = 0; i < n; i++)
    if (d->dim[i].r * elem_bytes(contract->out) % CACHE_LINE) return false;
  return true;
}

static bool reads_as_much(const Contract *contract, int64_t result) {
  for (uint32_t i = 0; i < contract->k->args.n; i++)
    if (i != contract->product.arg_a && i != contract->product.arg_b &&
        elements(contract->k, contract->k->args.at[i]) >= result)
      return true;
  return false;
}

void contract_plan_nontemporal(Contract *contract) {
  if (!contract->out_row) return;
  int64_t n = elements(contract->k, contract->k->results.at[contract->first]);
  bool may = n * elem_bytes(contract->out) >= contract->e->target->facts.l2 &&
             contract->product.n.inner % contract->plan.lanes == 0 &&
             whole_lines(contract, &contract->product.m, contract->product.m.count) &&
             whole_lines(contract, &contract->product.batch, contract->product.batch.count);
  if (!may) return;
  if (contract->k->results.n == 1 + (contract->product.sum != NO_VALUE) &&
      !reads_as_much(contract, n))
    contract->nontemporal = 1ull << contract->first;
  contract->zeros = 1ull << contract->first;
  for (int i = 0; i < contract->nresults; i++)
    contract->zeros |= 1ull << (contract->beside[i] - contract->k->args.n);
}

LLVMValueRef contract_aligned(Contract *contract, LLVMValueRef address) {
  return nontemporal_aligned(contract->e, address,
                             contract->plan.lanes * elem_bytes(contract->out));
}

LLVMValueRef contract_all_aligned(Contract *contract, uint64_t results) {
  Emit *emit = contract->e;
  LLVMValueRef all = NULL;
  for (uint32_t i = 0; i < contract->k->results.n; i++) {
    if (!(results >> i & 1)) continue;
    LLVMValueRef one = contract_aligned(contract, emit_buffer(emit, contract->k->args.n + i));
    all = all ? LLVMBuildAnd(emit->builder, all, one, "") : one;
  }
  return all;
}
