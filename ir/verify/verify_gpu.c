/* Checks what `select` promises about kernels for GPUs: CTAs, threads, shared memory and workspace
   follow from the cut (gpu_plan.h), and buffers begin where attribute align says. The code
   generator trusts all of these: with one thread too few some output would be left unwritten, and a
   vector that is too long would cross the end of the buffer. */
#include "ir/apart.h"
#include "ir/kernel/gpu_plan.h"
#include "verify.h"

static void wrong(Verifier *verifier, const char *label, const char *what, int64_t have,
                  int64_t want) {
  verify_report(verifier, "E1110", verify_at_fn(verifier),
                "[%s] %s of @%s is %lld, its cut needs %lld", label, what, verifier->fn->name,
                (long long)have, (long long)want);
}

static bool lists_phases(Verifier *verifier, AttrKey key, int64_t phases, int64_t least,
                         int64_t most) {
  const Attr *attr = attr_get(&verifier->fn->attrs, key);
  bool good = attr && attr->i == phases;
  for (int64_t i = 0; good && i < phases; i++)
    good = attr->list[i] >= least && attr->list[i] <= most;
  if (!good)
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[select-c5] %s of @%s: one number from %lld to %lld for each of its %lld phases",
                  attr_name(key), verifier->fn->name, (long long)least, (long long)most,
                  (long long)phases);
  return good;
}

/* A kernel that takes another one's place has its operands, results and workspace. */
static void check_instead(Verifier *verifier) {
  const Fn *f = verifier->fn,
           *other = module_fn(verifier->m, attr_str(&f->attrs, ATTR_replaces, ""));
  bool same = other && other->kind == FN_KERNEL && other->args.n == f->args.n &&
              other->results.n == f->results.n;
  for (uint32_t i = 0; same && i < f->args.n; i++)
    same = type_equal(value_type(f, f->args.at[i]), value_type(other, other->args.at[i]));
  for (uint32_t i = 0; same && i < f->results.n; i++)
    same = type_equal(value_type(f, f->results.at[i]), value_type(other, other->results.at[i]));
  if (!same || attr_int(&f->attrs, ATTR_workspace, 0) != attr_int(&other->attrs, ATTR_workspace, 0))
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[select-c6] @%s cannot take the place of another kernel", f->name);
}

static void compare(Verifier *verifier, const char *label, AttrKey key, const int64_t *want,
                    int phases) {
  const Attr *attr = attr_get(&verifier->fn->attrs, key);
  for (int i = 0; i < phases; i++)
    if (attr->list[i] != want[i]) wrong(verifier, label, attr_name(key), attr->list[i], want[i]);
}

/* A workspace may be that of a larger cut in its place. */
static void check_plan(Verifier *verifier) {
  GpuPlan plan = gpu_plan(verifier->m, verifier->fn);
  int64_t workspace = attr_int(&verifier->fn->attrs, ATTR_workspace, 0);
  const Attr *chunks = attr_get(&verifier->fn->attrs, ATTR_chunks);
  if (plan.phases && chunks->i != plan.phases) {
    wrong(verifier, "select-c3", "the number of phases", chunks->i, plan.phases);
    return;
  }
  if (plan.fault) {
    verify_report(verifier, "E1110", verify_at_fn(verifier), "[select-c2] the cut of @%s: %s",
                  verifier->fn->name, plan.fault);
    return;
  }
  compare(verifier, "select-c3", ATTR_chunks, plan.chunks, plan.phases);
  compare(verifier, "select-c3", ATTR_threads, plan.threads, plan.phases);
  compare(verifier, "select-c4", ATTR_shared, plan.shared, plan.phases);
  if (workspace < plan.workspace)
    wrong(verifier, "select-c4", "workspace", workspace, plan.workspace);
}

void verify_gpu(Verifier *verifier) {
  const Attr *chunks = attr_get(&verifier->fn->attrs, ATTR_chunks);
  int64_t phases = chunks->i > 0 ? chunks->i : 1;
  bool instead = attr_get(&verifier->fn->attrs, ATTR_replaces) != NULL;
  int64_t shared = instead ? verifier->m->target.shared_most : verifier->m->target.shared;
  if (instead) check_instead(verifier);
  if (lists_phases(verifier, ATTR_chunks, phases, 1, INT32_MAX) &&
      lists_phases(verifier, ATTR_threads, phases, 1, 1024) &&
      lists_phases(verifier, ATTR_shared, phases, 0, shared))
    check_plan(verifier);
}

/* For one kernel; NULL: 16 bytes everywhere. */
static bool aligned(const Attr *said, int64_t n, const int64_t *known) {
  if (said && said->i != n) return false;
  for (int64_t i = 0; i < n; i++) {
    int64_t bytes = said ? said->list[i] : 16;
    if (bytes < 1 || bytes > known[i] || bytes & (bytes - 1)) return false;
  }
  return true;
}

static bool all_apart(const Attr *said, int64_t n, const bool *apart) {
  for (int64_t i = 0; said && i < said->i; i++)
    if (said->list[i] < 0 || said->list[i] >= n || !apart[said->list[i]]) return false;
  return true;
}

void verify_buffers(Verifier *verifier) {
  if (!module_on_gpu(verifier->m)) return;
  int64_t *const *known = gpu_alignments(verifier->m);
  bool *const *apart = kernels_apart(verifier->m);
  for (uint32_t i = 0; i < verifier->m->fns.n; i++) {
    const Fn *k = verifier->fn = verifier->m->fns.at[i];
    if (k->kind != FN_KERNEL || !attr_get(&k->attrs, ATTR_tile) || kernel_on_host(verifier->m, k))
      continue;
    if (!aligned(attr_get(&k->attrs, ATTR_align), k->args.n + k->results.n, known[i]))
      verify_report(verifier, "E1110", verify_at_fn(verifier),
                    "[select-c7] @%s is called with buffers that begin on less than align says",
                    k->name);
    if (!all_apart(attr_get(&k->attrs, ATTR_apart), k->args.n + k->results.n, apart[i]))
      verify_report(verifier, "E1110", verify_at_fn(verifier),
                    "[select-c9] @%s is called with a buffer in `apart` that shares bytes",
                    k->name);
  }
}
