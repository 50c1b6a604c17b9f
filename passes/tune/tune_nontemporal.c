/* The results of a kernel that are written with non-temporal stores, attribute nontemporal: large
   ones of kernels whose data exceeds the last-level cache, which holds little of a result when
   its first reader begins. The buffer's address and an operand in the same place are checked when
   the kernel runs (codegen/x86/nontemporal.h). A large result of wider elements excludes one of
   bytes: a vector of bytes is a quarter of a line at most, and the other result's lines flush the
   write-combining buffers in which it would gather. Must not: know the instructions of a target. */
#include "ir/cost/count.h"
#include "tune.h"

static double result_bytes(const Fn *k, uint32_t i) {
  const Type *t = value_type(k, k->results.at[i]);
  return (double)(type_dense_bytes(t));
}

static bool beside_wider(const Fn *k, uint32_t i, double large) {
  int64_t own = elem_bytes(value_type(k, k->results.at[i])->elem);
  for (uint32_t j = 0; j < k->results.n; j++)
    if (result_bytes(k, j) >= large && elem_bytes(value_type(k, k->results.at[j])->elem) >= 4 * own)
      return true;
  return false;
}

void tune_nontemporal(Module *m, Fn *k) {
  must(!module_on_gpu(m), "kernel %s: non-temporal stores are chosen for processors", k->name);
  must(k->results.n <= MAX_RESULTS, "kernel %s has %u results", k->name, k->results.n);
  double large = (double)m->target.l2, cache = (double)m->target.l3;
  int64_t *list = ARENA_ARRAY(m->arena, int64_t, k->results.n + 1), n = 0;
  for (uint32_t i = 0; i < k->results.n; i++)
    if (result_bytes(k, i) >= large && !beside_wider(k, i, large)) list[n++] = i;
  if (n && ir_count(m, k).bytes > cache) attr_set_ints(m, &k->attrs, ATTR_nontemporal, n, list);
}
