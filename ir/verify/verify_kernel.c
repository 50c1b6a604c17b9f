/* What `fuse` and `select` promise about kernel functions, checked: the ops of a row kernel can
   share its rows, by the rule that row_share.c states for the code generators as well; the numbers
   of attribute `tile` are numbers a kernel can be made with, and chunks, scratch and workspace are
   what follows from them. The code generator reads all of these and believes them: too
   little scratch would overflow; too few chunks would leave output unwritten.

   What follows is each family's to say (ir/kernel/family.h). Must not: name one.
 */
#include "ir/kernel/family.h"
#include "verify.h"

static void wrong(Verifier *v, const char *label, const char *what, int64_t have, int64_t want) {
  verify_report(v, "E1110", verify_at_fn(v), "[%s] %s of @%s is %lld, its tile needs %lld", label,
                what, v->fn->name, (long long)have, (long long)want);
}

static void check_plan(Verifier *v, const CpuPlan *p, const Attr *chunks) {
  int64_t scratch = attr_int(&v->fn->attrs, ATTR_scratch, 0);
  int64_t workspace = attr_int(&v->fn->attrs, ATTR_workspace, 0);
  if (chunks->i != p->phases) wrong(v, "select-c3", "the number of phases", chunks->i, p->phases);
  for (int i = 0; i < p->phases && i < chunks->i; i++)
    if (p->chunks[i] && chunks->list[i] != p->chunks[i])
      wrong(v, "select-c3", "the number of chunks", chunks->list[i], p->chunks[i]);
  if (scratch != p->scratch) wrong(v, "select-c4", "scratch", scratch, p->scratch);
  if (workspace != p->workspace) wrong(v, "select-c4", "workspace", workspace, p->workspace);
}

static bool is_tile(Verifier *v, const Attr *tile, int count, int64_t needed) {
  bool good = tile->i == count;
  for (int64_t i = 0; good && i < needed; i++) good = tile->list[i] >= 1 && tile->list[i] < 1 << 30;
  if (!good)
    verify_report(v, "E1110", verify_at_fn(v),
                  "[select-c2] tile of @%s: %d numbers, the first %lld of them from 1 on",
                  v->fn->name, count, (long long)needed);
  return good;
}

static void no_such_cut(Verifier *v) {
  verify_report(v, "E1110", verify_at_fn(v),
                "[select-c2] no kernel of this target can be made with the tile of @%s",
                v->fn->name);
}

/* Every reduction of a kernel is taken over the same row; kernels of other families have none. */
void verify_shared_rows(Verifier *v) {
  const FamilyShape *shape = family_shape(v->fn);
  RowFault f;
  if (v->failed || !shape || !shape->reduces ||
      !row_fault(v->fn, shape->reduces == REDUCES_COLUMNS, &f))
    return;
  const Op *op = &v->fn->ops.at[f.op];
  verify_report(v, "E1106", verify_at_op(op), "[%s] %s %s @%s", f.label, op_name(op->code), f.what,
                v->fn->name);
}

/* ---- families ---- */

enum { MOST_BUFFERS = 255, MOST_UNROLL = 8 };

static Str family_name(const Verifier *v) { return attr_str(&v->fn->attrs, ATTR_family, ""); }

static bool is_heart(const FamilyShape *f, OpFamily x) {
  return x == f->heart || (x == FAMILY_SCAN && f->heart == FAMILY_REDUCE);
}

static bool may_stand_beside(OpFamily x) {
  return x == FAMILY_SOURCE || x == FAMILY_ELEM || x == FAMILY_STRUCT || x == FAMILY_GATHER;
}

static void not_of_family(Verifier *v, const char *why) {
  verify_report(v, "E1110", verify_at_fn(v), "[family-c2] @%s is no kernel of family %s: %s",
                v->fn->name, family_name(v), why);
}

static bool check_hearts(Verifier *v, const FamilyShape *f) {
  const Fn *k = v->fn;
  const char *why = NULL;
  int hearts = 0;
  for (OpId i = 0; i < k->ops.n && !why; i++) {
    OpFamily x = op_family(k->ops.at[i].code);
    hearts += is_heart(f, x);
    if (!may_stand_beside(x) && !(f->beside >> x & 1)) why = op_name(k->ops.at[i].code);
    else if (is_heart(f, x) && f->heart_fault) why = f->heart_fault(k, &k->ops.at[i]);
  }
  if (!why && (hearts < f->least || hearts > f->most)) why = "its ops are too few or too many";
  if (!why && (k->results.n > MAX_RESULTS || k->args.n > MOST_BUFFERS - k->results.n))
    why = "it has too many operands or results";
  if (why) not_of_family(v, why);
  return !why;
}

/* After `fuse`. Without a family or a cut a kernel is the interpreter's alone. */
void verify_family(Verifier *v) {
  const AttrList *l = &v->fn->attrs;
  bool named = attr_get(l, ATTR_family), cut = attr_get(l, ATTR_tile);
  const FamilyShape *f = family_shape(v->fn);
  if (v->fn->kind != FN_KERNEL) return;
  if (cut != (attr_get(l, ATTR_chunks) != NULL))
    verify_report(v, "E1110", verify_at_fn(v), "[select-c1] @%s: tile and chunks go together",
                  v->fn->name);
  if ((named || cut) && !f)
    verify_report(v, "E1110", verify_at_fn(v), "[family-c1] @%s is of no known family",
                  v->fn->name);
  if (f) check_hearts(v, f);
}

/* ---- processors ---- */

static void check_variant(Verifier *v, const FamilyShape *f) {
  const Attr *a = attr_get(&v->fn->attrs, ATTR_variant);
  bool known = !a || !f->variants[0];
  for (int i = 0; i < 3 && !known; i++) known = f->variants[i] && !strcmp(f->variants[i], a->s);
  if (!known)
    verify_report(v, "E1110", verify_at_fn(v), "[family-c3] family %s has no variant `%s`",
                  family_name(v), a->s);
}

/* No chunk has less than one element to do. */
static int64_t most_chunks(const Fn *k) {
  int64_t most = 1;
  for (ValueId i = 0; i < k->values.n; i++)
    if (type_count(value_type(k, i)) > most) most = type_count(value_type(k, i));
  return most;
}

static bool check_tile(Verifier *v, const FamilyShape *f, const Attr *tile) {
  int count = f->count_tile ? f->count_tile(v->m->arena, v->fn) : f->tile;
  if (!is_tile(v, tile, count, f->needed ? f->needed : count)) return false;
  for (int64_t i = f->unroll; i && i < tile->i; i++)
    if (tile->list[i] > MOST_UNROLL) {
      verify_report(v, "E1110", verify_at_fn(v), "[select-c2] tile of @%s: %lld vectors at once",
                    v->fn->name, (long long)tile->list[i]);
      return false;
    }
  return true;
}

static bool check_chunks(Verifier *v, const Attr *chunks) {
  int64_t most = most_chunks(v->fn);
  bool good = chunks->i > 0;
  for (int64_t i = 0; good && i < chunks->i; i++)
    good = chunks->list[i] >= 1 && chunks->list[i] <= most;
  if (!good)
    verify_report(v, "E1110", verify_at_fn(v),
                  "[select-c1] @%s has no chunks, or not from 1 to %lld of them", v->fn->name,
                  (long long)most);
  return good;
}

static void check_cpu(Verifier *v, const FamilyShape *f, const Attr *tile, const Attr *chunks) {
  check_variant(v, f);
  if (!check_tile(v, f, tile) || !check_chunks(v, chunks)) return;
  const Module *m = module_for_kernel(v->m, v->fn);
  CpuPlan p = f->plan(&(CpuCut){m, v->fn, target_lanes(&m->target), tile->list, chunks->list});
  if (p.none) no_such_cut(v);
  else check_plan(v, &p, chunks);
}

void verify_selected(Verifier *v) {
  const Attr *tile = attr_get(&v->fn->attrs, ATTR_tile);
  const Attr *chunks = attr_get(&v->fn->attrs, ATTR_chunks);
  const FamilyShape *f = family_shape(v->fn);
  if (v->fn->kind != FN_KERNEL) return;
  if (!f || !tile || !chunks) { /* verify_family said more, if there is one */
    if (v->m->target.name)
      verify_report(v, "E1110", verify_at_fn(v), "[select-c8] @%s has no family, or no cut",
                    v->fn->name);
    return;
  }
  if (module_on_gpu(v->m) && !kernel_beside(v->m, v->fn)) verify_gpu(v);
  else check_cpu(v, f, tile, chunks);
}
