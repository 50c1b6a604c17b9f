/* Which results of a kernel are written with non-temporal stores, attribute nontemporal: large ones
   of kernels that move so much that the last-level cache holds little of a result when its first
   reader begins. What a buffer's address and an operand in the same place have to say is asked when
   the kernel runs (codegen/x86/nontemporal.h). Must not: know what instructions a target has. */
#include "ir/count.h"
#include "tune.h"

void tune_nontemporal(Module *m, Fn *k) {
  must(!module_on_gpu(m), "kernel %s: non-temporal stores are chosen for processors", k->name);
  must(k->results.n <= MAX_RESULTS, "kernel %s has %u results", k->name, k->results.n);
  double large = (double)m->target.l2, cache = (double)m->target.l3;
  int64_t *list = ARENA_ARRAY(m->arena, int64_t, k->results.n + 1), n = 0;
  for (uint32_t i = 0; i < k->results.n; i++) {
    const Type *t = value_type(k, k->results.at[i]);
    if ((double)(type_count(t) * elem_bytes(t->elem)) >= large) list[n++] = i;
  }
  if (n && ir_count(m, k).bytes > cache) attr_set_ints(m, &k->attrs, ATTR_nontemporal, n, list);
}
