/* What `select` promises about kernels for GPUs, checked: CTAs, threads, shared memory and
   workspace are those that follow from the cut (gpu_plan.h), and buffers begin where attribute
   align says. The code generator believes all of these: with a thread too few some output
   would be left unwritten, and a vector too long would leave the buffer. */
#include "ir/kernel/gpu_plan.h"
#include "verify.h"

static void wrong(Verifier *v, const char *label, const char *what, int64_t have, int64_t want) {
  verify_report(v, "E1110", verify_at_fn(v), "[%s] %s of @%s is %lld, its cut needs %lld", label,
                what, v->fn->name, (long long)have, (long long)want);
}

static bool lists_phases(Verifier *v, AttrKey key, int64_t phases, int64_t least, int64_t most) {
  const Attr *a = attr_get(&v->fn->attrs, key);
  bool good = a && a->i == phases;
  for (int64_t i = 0; good && i < phases; i++) good = a->list[i] >= least && a->list[i] <= most;
  if (!good)
    verify_report(v, "E1110", verify_at_fn(v),
                  "[select-c5] %s of @%s: one number from %lld to %lld for each of its %lld phases",
                  attr_name(key), v->fn->name, (long long)least, (long long)most,
                  (long long)phases);
  return good;
}

/* A kernel that takes another one's place has its operands, results and workspace. */
static void check_instead(Verifier *v) {
  const Fn *f = v->fn, *other = module_fn(v->m, attr_str(&f->attrs, ATTR_replaces, ""));
  bool same = other && other->kind == FN_KERNEL && other->args.n == f->args.n &&
              other->results.n == f->results.n;
  for (uint32_t i = 0; same && i < f->args.n; i++)
    same = type_equal(value_type(f, f->args.at[i]), value_type(other, other->args.at[i]));
  for (uint32_t i = 0; same && i < f->results.n; i++)
    same = type_equal(value_type(f, f->results.at[i]), value_type(other, other->results.at[i]));
  if (!same || attr_int(&f->attrs, ATTR_workspace, 0) != attr_int(&other->attrs, ATTR_workspace, 0))
    verify_report(v, "E1110", verify_at_fn(v),
                  "[select-c6] @%s cannot take the place of another kernel", f->name);
}

static void compare(Verifier *v, const char *label, AttrKey key, const int64_t *want, int phases) {
  const Attr *a = attr_get(&v->fn->attrs, key);
  for (int i = 0; i < phases; i++)
    if (a->list[i] != want[i]) wrong(v, label, attr_name(key), a->list[i], want[i]);
}

/* A workspace may be that of a larger cut in its place. */
static void check_plan(Verifier *v) {
  GpuPlan p = gpu_plan(v->m, v->fn);
  int64_t workspace = attr_int(&v->fn->attrs, ATTR_workspace, 0);
  const Attr *chunks = attr_get(&v->fn->attrs, ATTR_chunks);
  if (p.phases && chunks->i != p.phases) {
    wrong(v, "select-c3", "the number of phases", chunks->i, p.phases);
    return;
  }
  if (p.fault) {
    verify_report(v, "E1110", verify_at_fn(v), "[select-c2] the cut of @%s: %s", v->fn->name,
                  p.fault);
    return;
  }
  compare(v, "select-c3", ATTR_chunks, p.chunks, p.phases);
  compare(v, "select-c3", ATTR_threads, p.threads, p.phases);
  compare(v, "select-c4", ATTR_shared, p.shared, p.phases);
  if (workspace < p.workspace) wrong(v, "select-c4", "workspace", workspace, p.workspace);
}

void verify_gpu(Verifier *v) {
  const Attr *chunks = attr_get(&v->fn->attrs, ATTR_chunks);
  int64_t phases = chunks->i > 0 ? chunks->i : 1;
  bool instead = attr_get(&v->fn->attrs, ATTR_replaces) != NULL;
  int64_t shared = instead ? v->m->target.shared_most : v->m->target.shared;
  if (instead) check_instead(v);
  if (lists_phases(v, ATTR_chunks, phases, 1, INT32_MAX) &&
      lists_phases(v, ATTR_threads, phases, 1, 1024) &&
      lists_phases(v, ATTR_shared, phases, 0, shared))
    check_plan(v);
}

/* Of one kernel; NULL: 16 bytes everywhere. */
static bool aligned(const Attr *said, int64_t n, const int64_t *known) {
  if (said && said->i != n) return false;
  for (int64_t i = 0; i < n; i++) {
    int64_t bytes = said ? said->list[i] : 16;
    if (bytes < 1 || bytes > known[i] || bytes & (bytes - 1)) return false;
  }
  return true;
}

void verify_alignments(Verifier *v) {
  if (!module_on_gpu(v->m)) return;
  int64_t *const *known = gpu_alignments(v->m);
  for (uint32_t i = 0; i < v->m->fns.n; i++) {
    const Fn *k = v->fn = v->m->fns.at[i];
    if (k->kind != FN_KERNEL || !attr_get(&k->attrs, ATTR_tile) || kernel_beside(v->m, k)) continue;
    if (!aligned(attr_get(&k->attrs, ATTR_align), k->args.n + k->results.n, known[i]))
      verify_report(v, "E1110", verify_at_fn(v),
                    "[select-c7] @%s is called with buffers that begin on less than align says",
                    k->name);
  }
}
