/* Checks what `fuse` and `select` promise about kernel functions: the ops of a row kernel can share
   its rows, by the rule of row_share.c, which the code generators use as well; a kernel can be
   built with the numbers of attribute `tile`; and chunks, scratch and workspace follow from them.
   The code generator trusts all of these: too little scratch would overflow, too few chunks would
   leave output unwritten.

   Each family computes what follows (ir/kernel/family.h). Must not: name a family. */
#include "ir/kernel/family.h"
#include "verify.h"

static void wrong(Verifier *verifier, const char *label, const char *what, int64_t have,
                  int64_t want) {
  verify_report(verifier, "E1110", verify_at_fn(verifier),
                "[%s] %s of @%s is %lld, its tile needs %lld", label, what, verifier->fn->name,
                (long long)have, (long long)want);
}

static void check_plan(Verifier *verifier, const CpuPlan *plan, const Attr *chunks) {
  int64_t scratch = attr_int(&verifier->fn->attrs, ATTR_scratch, 0);
  int64_t workspace = attr_int(&verifier->fn->attrs, ATTR_workspace, 0);
  if (chunks->i != plan->phases)
    wrong(verifier, "select-c3", "the number of phases", chunks->i, plan->phases);
  for (int i = 0; i < plan->phases && i < chunks->i; i++)
    if (plan->chunks[i] && chunks->list[i] != plan->chunks[i])
      wrong(verifier, "select-c3", "the number of chunks", chunks->list[i], plan->chunks[i]);
  if (scratch != plan->scratch) wrong(verifier, "select-c4", "scratch", scratch, plan->scratch);
  if (workspace != plan->workspace)
    wrong(verifier, "select-c4", "workspace", workspace, plan->workspace);
}

static bool is_tile(Verifier *verifier, const Attr *tile, int count, int64_t needed) {
  bool good = tile->i == count;
  for (int64_t i = 0; good && i < needed; i++) good = tile->list[i] >= 1 && tile->list[i] < 1 << 30;
  if (!good)
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[select-c2] tile of @%s: %d numbers, the first %lld of them from 1 on",
                  verifier->fn->name, count, (long long)needed);
  return good;
}

static void no_such_cut(Verifier *verifier) {
  verify_report(verifier, "E1110", verify_at_fn(verifier),
                "[select-c2] no kernel of this target can be made with the tile of @%s",
                verifier->fn->name);
}

/* Every reduction of a kernel is taken over the same row; kernels of other families have none. */
void verify_shared_rows(Verifier *verifier) {
  const FamilyShape *shape = family_shape(verifier->fn);
  RowFault fault;
  if (verifier->failed || !shape || !shape->reduces ||
      !row_fault(verifier->fn, shape->reduces == REDUCES_COLUMNS, &fault))
    return;
  const Op *op = &verifier->fn->ops.at[fault.op];
  verify_report(verifier, "E1106", verify_at_op(op), "[%s] %s %s @%s", fault.label,
                op_name(op->code), fault.what, verifier->fn->name);
}

/* ---- families ---- */

enum { MOST_BUFFERS = 255, MOST_UNROLL = 8 };

static Str family_name(const Verifier *verifier) {
  return attr_str(&verifier->fn->attrs, ATTR_family, "");
}

static bool is_heart(const FamilyShape *shape, OpFamily x) {
  return x == shape->heart || (x == FAMILY_SCAN && shape->heart == FAMILY_REDUCE);
}

static bool may_stand_beside(OpFamily x) {
  return x == FAMILY_SOURCE || x == FAMILY_ELEM || x == FAMILY_STRUCT || x == FAMILY_GATHER;
}

static void not_of_family(Verifier *verifier, const char *why) {
  verify_report(verifier, "E1110", verify_at_fn(verifier),
                "[family-c2] @%s is no kernel of family %s: %s", verifier->fn->name,
                family_name(verifier), why);
}

static bool check_hearts(Verifier *verifier, const FamilyShape *shape) {
  const Fn *k = verifier->fn;
  const char *why = NULL;
  int hearts = 0;
  for (OpId i = 0; i < k->ops.n && !why; i++) {
    OpFamily x = op_family(k->ops.at[i].code);
    hearts += is_heart(shape, x);
    if (!may_stand_beside(x) && !(shape->beside >> x & 1)) why = op_name(k->ops.at[i].code);
    else if (is_heart(shape, x) && shape->heart_fault) why = shape->heart_fault(k, &k->ops.at[i]);
  }
  if (!why && (hearts < shape->least || hearts > shape->most))
    why = "its ops are too few or too many";
  if (!why && (k->results.n > MAX_RESULTS || k->args.n > MOST_BUFFERS - k->results.n))
    why = "it has too many operands or results";
  if (why) not_of_family(verifier, why);
  return !why;
}

/* After `fuse`. Without a family or a cut a kernel is the interpreter's alone. */
void verify_family(Verifier *verifier) {
  const AttrList *list = &verifier->fn->attrs;
  bool named = attr_get(list, ATTR_family), cut = attr_get(list, ATTR_tile);
  const FamilyShape *shape = family_shape(verifier->fn);
  if (verifier->fn->kind != FN_KERNEL) return;
  if (cut != (attr_get(list, ATTR_chunks) != NULL))
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[select-c1] @%s: tile and chunks go together", verifier->fn->name);
  if ((named || cut) && !shape)
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[family-c1] @%s is of no known family", verifier->fn->name);
  if (shape) check_hearts(verifier, shape);
}

/* ---- processors ---- */

static void check_variant(Verifier *verifier, const FamilyShape *shape) {
  const Attr *a = attr_get(&verifier->fn->attrs, ATTR_variant);
  bool known = !a || !shape->variants[0];
  for (int i = 0; i < 3 && !known; i++)
    known = shape->variants[i] && !strcmp(shape->variants[i], a->s);
  if (!known)
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[family-c3] family %s has no variant `%s`", family_name(verifier), a->s);
}

/* No chunk has less than one element to do. */
static int64_t most_chunks(const Fn *k) {
  int64_t most = 1;
  for (ValueId i = 0; i < k->values.n; i++)
    if (type_count(value_type(k, i)) > most) most = type_count(value_type(k, i));
  return most;
}

static bool check_tile(Verifier *verifier, const FamilyShape *shape, const Attr *tile) {
  int count = shape->count_tile ? shape->count_tile(verifier->m->arena, verifier->fn) : shape->tile;
  if (!is_tile(verifier, tile, count, shape->needed ? shape->needed : count)) return false;
  for (int64_t i = shape->unroll; i && i < tile->i; i++)
    if (tile->list[i] > MOST_UNROLL) {
      verify_report(verifier, "E1110", verify_at_fn(verifier),
                    "[select-c2] tile of @%s: %lld vectors at once", verifier->fn->name,
                    (long long)tile->list[i]);
      return false;
    }
  return true;
}

static bool check_chunks(Verifier *verifier, const Attr *chunks) {
  int64_t most = most_chunks(verifier->fn);
  bool good = chunks->i > 0;
  for (int64_t i = 0; good && i < chunks->i; i++)
    good = chunks->list[i] >= 1 && chunks->list[i] <= most;
  if (!good)
    verify_report(verifier, "E1110", verify_at_fn(verifier),
                  "[select-c1] @%s must have `chunks`, each from 1 to %lld", verifier->fn->name,
                  (long long)most);
  return good;
}

static void check_cpu(Verifier *verifier, const FamilyShape *shape, const Attr *tile,
                      const Attr *chunks) {
  check_variant(verifier, shape);
  if (!check_tile(verifier, shape, tile) || !check_chunks(verifier, chunks)) return;
  const Module *m = module_for_kernel(verifier->m, verifier->fn);
  CpuPlan plan =
      shape->plan(&(CpuCut){m, verifier->fn, target_lanes(&m->target), tile->list, chunks->list});
  if (plan.none) no_such_cut(verifier);
  else check_plan(verifier, &plan, chunks);
}

void verify_selected(Verifier *verifier) {
  const Attr *tile = attr_get(&verifier->fn->attrs, ATTR_tile);
  const Attr *chunks = attr_get(&verifier->fn->attrs, ATTR_chunks);
  const FamilyShape *shape = family_shape(verifier->fn);
  if (verifier->fn->kind != FN_KERNEL) return;
  if (!shape || !tile || !chunks) { /* verify_family said more, if there is one */
    if (verifier->m->target.name)
      verify_report(verifier, "E1110", verify_at_fn(verifier),
                    "[select-c8] @%s has no family, or no cut", verifier->fn->name);
    return;
  }
  if (module_on_gpu(verifier->m) && !kernel_on_host(verifier->m, verifier->fn))
    verify_gpu(verifier);
  else check_cpu(verifier, shape, tile, chunks);
}
