/* Buffers of a kernel that share bytes with no buffer on the other side, operands against results,
   wherever it is called: the values of attribute `apart`. A result shares bytes with operands only
   where pass `order` put it in place of one; so these are exact in each caller, but for two
   arguments of a caller, which may be one buffer. A kernel whose callers are not known is judged by
   sizes: a result in place has the size of its operand. */
#include "apart.h"
#include "ir/bytes.h"

static int64_t buffer_bytes(const Fn *k, uint32_t i) {
  const Type *t = value_type(k, i < k->args.n ? k->args.at[i] : k->results.at[i - k->args.n]);
  return type_dense_bytes(t);
}

static bool has_twin(const Fn *k, uint32_t i) {
  for (uint32_t j = 0; j < k->args.n + k->results.n; j++)
    if ((i < k->args.n) != (j < k->args.n) && buffer_bytes(k, i) == buffer_bytes(k, j)) return true;
  return false;
}

bool kernel_buffer_apart(const Fn *k, uint32_t i) {
  const Attr *said = attr_get(&k->attrs, ATTR_apart);
  if (i >= k->args.n + k->results.n || !has_twin(k, i)) return true; /* the workspace too */
  for (int64_t j = 0; said && j < said->i; j++)
    if (said->list[j] == i) return true;
  return false;
}

/* Do both begin in memory that the caller was given? */
static bool both_given(const Fn *f, ValueId a, ValueId b) {
  const Op *x = value_def(f, a), *y = value_def(f, b);
  if (x && y) return x->code == OP_load && y->code == OP_load && x->global == y->global;
  return !x && !y;
}

static void visit_call(const Fn *f, const SharedBytes *bytes, const Op *call, bool *apart) {
  for (uint32_t r = 0; r < call->nout; r++) {
    ValueId result = call->out + r;
    if (f->values.at[result].storage.view != VIEW_INPLACE) continue;
    for (uint32_t k = 0; k < call->nin; k++) {
      ValueId operand = call->in[k];
      if (bytes->of[operand] == bytes->of[result] ||
          both_given(f, bytes->of[operand], bytes->of[result]))
        apart[k] = apart[call->nin + r] = false;
    }
  }
}

bool *const *kernels_apart(const Module *m) {
  bool **list = ARENA_ARRAY(m->arena, bool *, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    uint32_t n = f->args.n + f->results.n;
    list[i] = ARENA_ARRAY(m->arena, bool, n + 1);
    for (uint32_t j = 0; j < n; j++) list[i][j] = true;
  }
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    if (f->kind == FN_KERNEL) continue;
    SharedBytes bytes = shared_bytes(m->arena, f);
    EACH_OP (f, o)
      if (o->code == OP_kernel) visit_call(f, &bytes, o, list[fn_index(m, o->callee)]);
  }
  for (uint32_t i = 0; i < m->fns.n; i++) { /* what takes a kernel's place is called as that one */
    const Fn *other = module_fn(m, attr_str(&m->fns.at[i]->attrs, ATTR_replaces, ""));
    if (other) list[i] = list[fn_index(m, other)];
  }
  return list;
}

void kernels_mark_apart(Module *m) {
  bool *const *apart = kernels_apart(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    uint32_t n = k->kind == FN_KERNEL ? k->args.n + k->results.n : 0;
    int64_t *said = ARENA_ARRAY(m->arena, int64_t, n + 1);
    int count = 0;
    for (uint32_t j = 0; j < n; j++)
      if (apart[i][j] && has_twin(k, j)) said[count++] = j;
    if (count && module_calls(m, k)) attr_set_ints(m, &k->attrs, ATTR_apart, count, said);
  }
}
