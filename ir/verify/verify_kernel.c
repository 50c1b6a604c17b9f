/* What `fuse` and `select` promise about kernel functions, checked: the ops of a row kernel can
   share its rows, by the rule that row_share.c states for the code generators as well; the numbers
   of attribute `tile` are numbers a kernel can be made with, and chunks, scratch and workspace are
   what follows from them. The code generator reads all of these and believes them: too
   little scratch would overflow; too few chunks would leave output unwritten.

   Families whose chunks cut any number of units in even ranges are right with any number of them.
 */
#include "ir/kernel/attention_shape.h"
#include "ir/kernel/product.h"
#include "ir/kernel/row_kept.h"
#include "verify.h"

static void wrong(Verifier *v, const char *label, const char *what, int64_t have, int64_t want) {
  verify_report(v, "E1110", verify_at_fn(v), "[%s] %s of @%s is %lld, its tile needs %lld", label,
                what, v->fn->name, (long long)have, (long long)want);
}

typedef struct Plan { /* what follows from a tile */
  int phases;
  int64_t chunks[2], scratch, workspace;
} Plan;

static void check_plan(Verifier *v, const Plan *p) {
  const Attr *chunks = attr_get(&v->fn->attrs, ATTR_chunks);
  int64_t scratch = attr_int(&v->fn->attrs, ATTR_scratch, 0);
  if (!chunks || chunks->i != p->phases)
    wrong(v, "select-c3", "the number of phases", chunks ? chunks->i : 0, p->phases);
  for (int i = 0; chunks && i < p->phases && i < chunks->i; i++)
    if (chunks->list[i] != p->chunks[i])
      wrong(v, "select-c3", "the number of chunks", chunks->list[i], p->chunks[i]);
  if (scratch != p->scratch) wrong(v, "select-c4", "scratch", scratch, p->scratch);
  int64_t workspace = attr_int(&v->fn->attrs, ATTR_workspace, 0);
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

static void check_contract(Verifier *v, const Attr *tile, int lanes) {
  const int64_t *t = tile->list;
  if (!is_tile(v, tile, TILE_COUNT, TILE_PACK_A)) return;
  Product p = product_of(v->fn, lanes);
  if (!product_fits(v->m, &p, t)) {
    no_such_cut(v);
    return;
  }
  ProductPlan q = product_plan(&p, lanes, t);
  check_plan(v, &(Plan){1 + (q.pack_chunks > 0),
                        {q.pack_chunks ? q.pack_chunks : q.chunks, q.chunks},
                        q.a_bytes + q.b_bytes + q.c_bytes + q.s_bytes,
                        q.w_bytes});
}

static void check_attention(Verifier *v, const Attr *tile, int lanes) {
  if (!is_tile(v, tile, FLASH_COUNT, FLASH_KEY_PARTS)) return;
  Flash f = flash_of(v->fn);
  if (!flash_fits(v->m, &f, tile->list)) {
    no_such_cut(v);
    return;
  }
  FlashPlan p = flash_plan(&f, lanes, tile->list);
  check_plan(v, &(Plan){p.phases, {p.chunks[0], p.chunks[1]}, p.scratch, 0});
}

static void check_column(Verifier *v, const Attr *tile) {
  Reductions r = reductions_of(v->fn);
  int64_t want = tile->list[2] > 1 ? reduction_workspace(v->fn, &r, tile->list[2]) : 0;
  int64_t have = attr_int(&v->fn->attrs, ATTR_workspace, 0);
  if (have != want) wrong(v, "select-c4", "workspace", have, want);
}

static void check_row(Verifier *v, const Attr *chunks) {
  Reductions r = reductions_of(v->fn);
  int64_t want = row_scratch(v->m->arena, v->fn, &r),
          have = attr_int(&v->fn->attrs, ATTR_scratch, 0);
  if (have != want) wrong(v, "select-c4", "scratch", have, want);
  if (chunks->i != 1 + (r.ncolumns > 0))
    wrong(v, "select-c3", "the number of phases", chunks->i, 1 + (r.ncolumns > 0));
  want = column_workspace(&r, chunks->list[0]);
  have = attr_int(&v->fn->attrs, ATTR_workspace, 0);
  if (have != want) wrong(v, "select-c4", "workspace", have, want);
}

/* Every reduction of a kernel is taken over the same row; kernels of other families have none. */
void verify_shared_rows(Verifier *v) {
  Str family = attr_str(&v->fn->attrs, ATTR_family, "");
  bool column = !strcmp(family, "column");
  RowFault f;
  if (v->failed || (!column && strcmp(family, "row")) || !row_fault(v->fn, column, &f)) return;
  const Op *op = &v->fn->ops.at[f.op];
  verify_report(v, "E1106", verify_at_op(op), "[%s] %s %s @%s", f.label, op_name(op->code), f.what,
                v->fn->name);
}

/* ---- families ---- */

enum { ROW_TILE = -1, PLANNED = -2 }; /* as many numbers as rows have walks; as check_* say */
enum { MOST_BUFFERS = 255, MOST_UNROLL = 8, MANY = INT32_MAX };

typedef struct Family {
  const char *name;
  unsigned hearts; /* bit by OpFamily: ops beside POINT and STRUCT ones that it can have */
  OpFamily heart;  /* the op that makes one; ELEM: none */
  int least, most; /* of these: a row may have lost all of its reductions, which nothing read */
  int tile, phases;
  int unroll;              /* which number of the tile unrolls, and all behind it; 0: none */
  const char *variants[3]; /* NULL: any */
} Family;

#define F(family) (1u << FAMILY_##family)
/* clang-format off */
static const Family families[] = {
    {"elem", 0, FAMILY_ELEM, 0, MANY, 1, 1, 0, {"vector", "scalar"}},
    {"row", F(REDUCE) | F(SCAN), FAMILY_REDUCE, 0, MAX_RESULTS, ROW_TILE, PLANNED, 1,
     {"row", "rows", "scalar"}},
    {"column", F(REDUCE), FAMILY_REDUCE, 1, MAX_RESULTS, 4, PLANNED, 3,
     {"columns", "row", "scalar"}},
    {"scatter", F(SCATTER), FAMILY_SCATTER, 1, 1, 4, 2, 0, {"vector", "scalar"}},
    {"contract", F(CONTRACT) | F(REDUCE), FAMILY_CONTRACT, 1, 1, PLANNED, PLANNED, 0, {NULL}},
    {"attention", F(ATTENTION), FAMILY_ATTENTION, 1, 1, PLANNED, PLANNED, 0, {NULL}},
    {"attention_grad", F(ATTENTION), FAMILY_ATTENTION, 1, 1, PLANNED, PLANNED, 0, {NULL}},
};
/* clang-format on */

static const Family *family_of(const Fn *k) {
  Str name = attr_str(&k->attrs, ATTR_family, "");
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (!strcmp(families[i].name, name)) return &families[i];
  return NULL;
}

static bool is_heart(const Family *f, OpFamily x) {
  return x == f->heart || (x == FAMILY_SCAN && f->heart == FAMILY_REDUCE);
}

static bool may_stand_beside(OpFamily x) {
  return x == FAMILY_SOURCE || x == FAMILY_ELEM || x == FAMILY_STRUCT || x == FAMILY_GATHER;
}

static void not_of_family(Verifier *v, const Family *f, const char *why) {
  verify_report(v, "E1110", verify_at_fn(v), "[family-c2] @%s is no kernel of family %s: %s",
                v->fn->name, f->name, why);
}

static bool is_argument(const Fn *k, ValueId id) {
  const Op *o = value_def(k, id);
  if (o && o->code == OP_cast) id = o->in[0];
  return k->values.at[id].def == NO_OP;
}

/* What the readers of kernels (product.h, scatter_shape.h, nest.h) take for granted about the
   heart. */
static const char *wrong_heart(const Verifier *v, const Op *o) {
  const Fn *k = v->fn;
  if (o->code == OP_dot && (!is_argument(k, o->in[0]) || !is_argument(k, o->in[1])))
    return "its dot's operands are no arguments";
  if (o->code != OP_scatter) return NULL;
  const Op *last = k->results.n == 1 ? value_def(k, k->results.at[0]) : NULL;
  bool adds = last && last->code == OP_add && (last->in[0] == o->out || last->in[1] == o->out);
  return last == o || adds ? NULL : "it has more results than the scatter";
}

static bool check_hearts(Verifier *v, const Family *f) {
  const Fn *k = v->fn;
  const char *why = NULL;
  int hearts = 0;
  for (OpId i = 0; i < k->ops.n && !why; i++) {
    OpFamily x = op_family(k->ops.at[i].code);
    hearts += is_heart(f, x);
    if (!may_stand_beside(x) && !(f->hearts >> x & 1)) why = op_name(k->ops.at[i].code);
    else if (is_heart(f, x)) why = wrong_heart(v, &k->ops.at[i]);
  }
  if (!why && (hearts < f->least || hearts > f->most)) why = "its ops are too few or too many";
  if (!why && (k->results.n > MAX_RESULTS || k->args.n > MOST_BUFFERS - k->results.n))
    why = "it has too many operands or results";
  if (why) not_of_family(v, f, why);
  return !why;
}

/* After `fuse`. Without a family or a cut a kernel is the interpreter's alone. */
void verify_family(Verifier *v) {
  const AttrList *l = &v->fn->attrs;
  bool named = attr_get(l, ATTR_family), cut = attr_get(l, ATTR_tile);
  const Family *f = family_of(v->fn);
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

static void check_variant(Verifier *v, const Family *f) {
  const Attr *a = attr_get(&v->fn->attrs, ATTR_variant);
  bool known = !a || !f->variants[0];
  for (int i = 0; i < 3 && !known; i++) known = f->variants[i] && !strcmp(f->variants[i], a->s);
  if (!known)
    verify_report(v, "E1110", verify_at_fn(v), "[family-c3] family %s has no variant `%s`", f->name,
                  a->s);
}

/* No chunk has less than one element to do. */
static int64_t most_chunks(const Fn *k) {
  int64_t most = 1;
  for (ValueId i = 0; i < k->values.n; i++)
    if (type_count(value_type(k, i)) > most) most = type_count(value_type(k, i));
  return most;
}

static bool check_tile(Verifier *v, const Family *f, const Attr *tile) {
  Reductions r = {0};
  int64_t count = f->tile;
  if (f->tile == ROW_TILE || !strcmp(f->name, "column")) r = reductions_of(v->fn);
  if (f->tile == ROW_TILE)
    count = 1 + reduction_passes(v->fn, &r, reduction_levels(v->m->arena, v->fn));
  if (count != PLANNED && !is_tile(v, tile, (int)count, count)) return false;
  for (int64_t i = f->unroll; i && i < tile->i; i++)
    if (tile->list[i] > MOST_UNROLL) {
      verify_report(v, "E1110", verify_at_fn(v), "[select-c2] tile of @%s: %lld vectors at once",
                    v->fn->name, (long long)tile->list[i]);
      return false;
    }
  return true;
}

static bool check_chunks(Verifier *v, const Family *f, const Attr *tile, const Attr *chunks) {
  int64_t most = most_chunks(v->fn);
  bool good = chunks->i > 0;
  for (int64_t i = 0; good && i < chunks->i; i++)
    good = chunks->list[i] >= 1 && chunks->list[i] <= most;
  if (!good)
    verify_report(v, "E1110", verify_at_fn(v),
                  "[select-c1] @%s has no chunks, or not from 1 to %lld of them", v->fn->name,
                  (long long)most);
  int64_t phases = !strcmp(f->name, "column") ? 1 + (tile->list[2] > 1) : f->phases;
  if (good && phases != PLANNED && chunks->i != phases) {
    wrong(v, "select-c3", "the number of phases", chunks->i, phases);
    return false;
  }
  return good;
}

static void check_no_memory(Verifier *v, AttrKey key) {
  int64_t have = attr_int(&v->fn->attrs, key, 0);
  if (have) wrong(v, "select-c4", attr_name(key), have, 0);
}

static void check_cpu(Verifier *v, const Family *f, const Attr *tile, const Attr *chunks) {
  int lanes = target_lanes(&v->m->target);
  check_variant(v, f);
  if (!check_tile(v, f, tile) || !check_chunks(v, f, tile, chunks)) return;
  if (f->heart == FAMILY_CONTRACT) check_contract(v, tile, lanes);
  else if (f->heart == FAMILY_ATTENTION) check_attention(v, tile, lanes);
  else if (!strcmp(f->name, "row")) check_row(v, chunks);
  else check_no_memory(v, ATTR_scratch);
  if (!strcmp(f->name, "column")) check_column(v, tile);
  else if (f->heart == FAMILY_ELEM || f->heart == FAMILY_SCATTER)
    check_no_memory(v, ATTR_workspace);
}

void verify_selected(Verifier *v) {
  const Attr *tile = attr_get(&v->fn->attrs, ATTR_tile);
  const Attr *chunks = attr_get(&v->fn->attrs, ATTR_chunks);
  const Family *f = family_of(v->fn);
  if (v->fn->kind != FN_KERNEL) return;
  if (!f || !tile || !chunks) { /* verify_family said more, if there is one */
    if (v->m->target.name)
      verify_report(v, "E1110", verify_at_fn(v), "[select-c8] @%s has no family, or no cut",
                    v->fn->name);
    return;
  }
  if (module_on_gpu(v->m)) verify_gpu(v);
  else check_cpu(v, f, tile, chunks);
}
