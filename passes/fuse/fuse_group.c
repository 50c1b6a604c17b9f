/* fuse, first half: which group computes an op.

   Every op is visited once, in program order. The groups of its operands are already in the list,
   so an op may join any group that is not earlier than the last of them. An element-wise op that
   fits in no group stays INLINED and each user computes it; when a user needs a buffer (an operand
   of a contraction, a loop, a store) it opens or joins a group of family `elem`. Inlined values
   that read two or more large operands, or are expensive, are materialised in the group of their
   first consumer, so that later users read the result instead of the operands. */
#include "ir/bytes.h"
#include "fuse.h"
#include "ir/kernel/gradient_columns.h"
#include "ir/kernel/product.h"

enum { SMALL_SCALAR_TREE = 4, LARGE_FRACTION = 8, CHEAP_OPS = 32, CHEAP_SLOW_OPS = 4 };

bool fuse_moves(OpCode c) {
  OpFamily f = op_family(c);
  return (f == FAMILY_STRUCT && c != OP_expand) || f == FAMILY_GATHER;
}

bool fuse_expensive(OpCode c) { return c == OP_rope || c == OP_erfinv; }

/* Operations that should not be repeated for every element when their result is one number. */
static bool slow_scalar(const Op *op, Elem e) { return op_flags(op->code) & SLOW || e == ELEM_f64; }

static bool is_view(const Op *op) { return op_flags(op->code) & VIEW; }
static bool is_point(const Op *op) { return op_flags(op->code) & POINT; }
static FuseValue *value(Fuse *fuse, ValueId v) { return &fuse->value[v]; }
static const Type *type(const Fuse *u, ValueId v) { return value_type(u->f, v); }

static uint32_t compute_after(Fuse *fuse, ValueId v) {
  const FuseValue *fuse_value = value(fuse, v);
  if (fuse_value->where == MATERIALISED) return fuse_value->group + 1 + fuse_value->beside;
  const Op *op = value_def(fuse->f, v);
  uint32_t after = 0;
  for (uint32_t i = 0; op && i < op->nin; i++) {
    uint32_t a = fuse_after(fuse, op->in[i]);
    if (a > after) after = a;
  }
  return after;
}

uint32_t fuse_after(Fuse *fuse, ValueId v) {
  FuseValue *fuse_value = value(fuse, v);
  if (fuse_value->stamp != fuse->stamp) {
    uint32_t a = compute_after(fuse, v);
    fuse_value->after = a, fuse_value->stamp = fuse->stamp;
  }
  return fuse_value->after;
}

static bool listed(const ValueList *l, ValueId value) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i] == value) return true;
  return false;
}

/* An expression: its inlined values, and the values in buffers that they read. */
typedef struct Tree {
  ValueList inlined, leaves;
  uint32_t most; /* limit of inlined values that a search visits */
} Tree;

static void collect(Fuse *fuse, ValueId v, Tree *tree) {
  if (fuse->seen[v] == fuse->walk || tree->inlined.n > tree->most) return;
  fuse->seen[v] = fuse->walk;
  const Op *op = value_def(fuse->f, v);
  if (value(fuse, v)->where != INLINED || !op) {
    vec_push(fuse->arena, tree->leaves, v);
    return;
  }
  vec_push(fuse->arena, tree->inlined, v);
  for (uint32_t i = 0; i < op->nin; i++) collect(fuse, op->in[i], tree);
}

static Tree tree_up_to(Fuse *fuse, ValueId value, uint32_t most) {
  Tree tree = {.most = most};
  fuse->walk++;
  collect(fuse, value, &tree);
  return tree;
}

static Tree tree_of(Fuse *fuse, ValueId value) { return tree_up_to(fuse, value, UINT32_MAX); }

/* A inlined value that every user may compute for itself: few ops, at most one operand of its own
 * size. */
static bool is_cheap(Fuse *fuse, ValueId value) {
  Tree tree = tree_up_to(fuse, value, CHEAP_OPS);
  int64_t count = type_count(type(fuse, value));
  int large = 0, slow = 0;
  for (uint32_t i = 0; i < tree.leaves.n; i++)
    large += type_count(type(fuse, tree.leaves.at[i])) > count / LARGE_FRACTION;
  for (uint32_t i = 0; i < tree.inlined.n; i++) {
    const Op *op = value_def(fuse->f, tree.inlined.at[i]);
    if (fuse_expensive(op->code)) return false;
    slow += slow_scalar(op, type(fuse, tree.inlined.at[i])->elem);
  }
  return (large <= 1 || count == 1) && tree.inlined.n <= CHEAP_OPS && slow <= CHEAP_SLOW_OPS;
}

static uint32_t open_group(Fuse *fuse, GroupKind kind, OpId anchor, Type space, Type rows) {
  vec_push(fuse->arena, fuse->groups,
           (FuseGroup){.kind = kind, .anchor = anchor, .space = space, .rows = rows});
  return fuse->groups.n - 1;
}

static void set_home(Fuse *fuse, ValueId v, uint32_t g) {
  FuseValue *fuse_value = value(fuse, v);
  fuse_value->where = MATERIALISED, fuse_value->group = g;
  fuse->stamp++;
}

/* Elements that one kernel walks over: no kernel works in two memories. */
static bool same_space(const Type *a, const Type *b) {
  return a->tier == b->tier && type_same_dims(a, b);
}

static bool keeps_inputs(GroupKind k) {
  return k == GROUP_elem || k == GROUP_row || k == GROUP_contract;
}

/* v is now computed by group g, and so are its inlined operands; those that later users should not
   compute again are materialised. */
static void pull(Fuse *fuse, ValueId v, uint32_t g) {
  const Op *op = value_def(fuse->f, v);
  for (uint32_t i = 0; op && i < op->nin; i++) {
    ValueId a = op->in[i];
    if (value(fuse, a)->where != INLINED) {
      if (!listed(&fuse->groups.at[g].leaves, a))
        vec_push(fuse->arena, fuse->groups.at[g].leaves, a);
      continue;
    }
    bool stays = keeps_inputs(fuse->groups.at[g].kind) &&
                 same_space(type(fuse, a), &fuse->groups.at[g].space) &&
                 (!fuse_moves(op->code) || fuse_packs(fuse, g, op)) && !is_cheap(fuse, a);
    if (stays) set_home(fuse, a, g);
    pull(fuse, a, g);
  }
}

static void settle(Fuse *fuse, ValueId value, uint32_t g) {
  set_home(fuse, value, g);
  pull(fuse, value, g);
}

bool fuse_picks(const Fuse *fuse, uint32_t group, const Op *op) {
  const FuseGroup *g = &fuse->groups.at[group];
  if (g->kind != GROUP_row || op->code != OP_gather) return false;
  return same_space(type(fuse, op->in[0]), &g->space) &&
         same_space(type(fuse, op->in[1]), &g->rows) && same_space(type(fuse, op->out), &g->rows);
}

bool fuse_packs(const Fuse *fuse, uint32_t group, const Op *op) {
  const FuseGroup *g = &fuse->groups.at[group];
  if (g->kind != GROUP_row || op->code != OP_pack_bits) return false;
  const Type *bits = type(fuse, op->in[0]);
  Type rows = type_without(bits, op->group[0].from, 1);
  return same_space(bits, &g->space) && same_space(&rows, &g->rows);
}

/* Does an op that reads its operands at other indexes read something that group g computes? */
static bool moves_own(Fuse *fuse, const Op *op, uint32_t g) {
  if (!fuse_moves(op->code) || fuse_picks(fuse, g, op) || fuse_packs(fuse, g, op)) return false;
  for (uint32_t i = 0; i < op->nin; i++)
    if (fuse_after(fuse, op->in[i]) == g + 1) return true;
  return false;
}

/* Same for every inlined value from which v is computed; g cannot read a view of its own results
   either. */
static bool tree_moves_own(Fuse *fuse, ValueId v, uint32_t g) {
  Tree tree = tree_of(fuse, v);
  for (uint32_t i = 0; i < tree.inlined.n; i++)
    if (moves_own(fuse, value_def(fuse->f, tree.inlined.at[i]), g)) return true;
  for (uint32_t i = 0; i < tree.leaves.n; i++)
    if (value(fuse, tree.leaves.at[i])->where == INPUT &&
        fuse_after(fuse, tree.leaves.at[i]) == g + 1)
      return true;
  return false;
}

static bool space_fits(const FuseGroup *group, const Type *type) {
  return same_space(&group->space, type) ||
         (group->kind == GROUP_row && same_space(&group->rows, type));
}

/* May element-wise v be computed by group g, whose values it may read? */
static bool admits(Fuse *fuse, uint32_t g, ValueId value) {
  const FuseGroup *group = &fuse->groups.at[g];
  const Op *op = value_def(fuse->f, value);
  if (g >= fuse->groups.n || fuse_after(fuse, value) > g + 1) return false;
  if (!space_fits(group, type(fuse, value)) && !fuse_packs(fuse, g, op)) return false;
  if (group->kind != GROUP_elem && !(group_neighbours(group->kind) & POST)) return false;
  if (moves_own(fuse, op, g)) return false;
  for (uint32_t i = 0; i < op->nin; i++)
    if (tree_moves_own(fuse, op->in[i], g)) return false;
  return true;
}

/* Does g read a value that is made where leaf x is made? The question is asked for groups that
   would read both from memory: if the value is not stored, they compute it again from the same
   values. */
static bool reads_from(Fuse *fuse, uint32_t g, const FuseValue *x) {
  const ValueList *leaves = &fuse->groups.at[g].leaves;
  GroupKind kind = fuse->groups.at[g].kind;
  for (uint32_t i = 0; i < leaves->n && (kind == GROUP_column || kind == GROUP_elem); i++) {
    const FuseValue *y = value(fuse, leaves->at[i]);
    bool same = x->where == MATERIALISED && y->where == MATERIALISED && x->group == y->group;
    if (same && (kind == GROUP_column || fuse->groups.at[x->group].kind != GROUP_LOOP)) return true;
  }
  return false;
}

bool fuse_same_order(const Type *a, const Type *b) {
  for (int i = 0; i < a->rank; i++)
    if (a->axis[i].dim != b->axis[i].dim) return false;
  return true;
}

static bool shares_leaf(Fuse *fuse, uint32_t g, ValueId v) {
  ValueList leaves = tree_of(fuse, v).leaves;
  for (uint32_t i = 0; i < leaves.n; i++) {
    const FuseValue *fuse_value = value(fuse, leaves.at[i]);
    if (!type(fuse, leaves.at[i])->rank && type(fuse, v)->rank)
      continue; /* a factor of everything */
    if (type(fuse, leaves.at[i])->rank && listed(&fuse->groups.at[g].leaves, leaves.at[i]))
      return true;
    if (fuse_value->where == MATERIALISED && fuse_value->group == g) return true;
    if (reads_from(fuse, g, fuse_value) &&
        fuse_same_order(&fuse->groups.at[g].space, type(fuse, v)))
      return true;
  }
  return false;
}

/* The group of family elem for a inlined value that needs a buffer or a place. */
static uint32_t elem_place(Fuse *fuse, ValueId value) {
  bool scalar = type(fuse, value)->rank == 0;
  for (uint32_t g = fuse->groups.n; g-- > 0 && g + 1 >= fuse_after(fuse, value);)
    if (fuse->groups.at[g].kind == GROUP_elem && admits(fuse, g, value) &&
        (scalar || shares_leaf(fuse, g, value) || fuse_joins_small(fuse, g, value)) &&
        fuse_has_room(fuse, g))
      return g;
  Type space = *type(fuse, value);
  return open_group(fuse, GROUP_elem, fuse->f->values.at[value].def, space, space);
}

void fuse_store(Fuse *fuse, ValueId v) {
  must(v < fuse->f->values.n, "fuse: %s has no value %u", fuse->f->name, v);
  if (value(fuse, v)->where == INLINED) settle(fuse, v, elem_place(fuse, v));
  value(fuse, v)->stored = true;
}

/* ---- element-wise ops ---- */

static bool takes_work(Fuse *fuse, ValueId value) {
  Tree tree = tree_of(fuse, value);
  uint32_t n = 0;
  for (uint32_t i = 0; i < tree.inlined.n; i++) {
    const Op *op = value_def(fuse->f, tree.inlined.at[i]);
    if (op->code != OP_const && slow_scalar(op, type(fuse, tree.inlined.at[i])->elem)) return true;
    n += op->code != OP_const;
  }
  return n > SMALL_SCALAR_TREE;
}

/* A scalar that takes work is computed once, in a kernel for scalars, before many elements use
   it. */
static void place_scalars(Fuse *fuse, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId a = op->in[i];
    if (type(fuse, a)->rank || value(fuse, a)->where != INLINED) continue;
    if (takes_work(fuse, a)) settle(fuse, a, elem_place(fuse, a));
  }
}

/* A row kernel that reads the row anyway also picks from it, and packs its bits. */
static uint32_t picking_group(Fuse *fuse, const Op *op) {
  bool may = op->code == OP_gather || op->code == OP_pack_bits;
  for (uint32_t g = fuse->groups.n; may && g-- > 0 && g + 1 >= fuse_after(fuse, op->out);)
    if ((fuse_picks(fuse, g, op) || fuse_packs(fuse, g, op)) && admits(fuse, g, op->out) &&
        shares_leaf(fuse, g, op->in[0]))
      return g;
  return UINT32_MAX;
}

/* ---- results that are put together ---- */

/* The value that v shows under other names, if it has no other readers. */
static ValueId only_shown(const Fuse *fuse, ValueId value) {
  while (fuse->uses[value] == 1) {
    const Op *op = value_def(fuse->f, value);
    if (!op || op->code != OP_rename) return value;
    value = op->in[0];
  }
  return NO_VALUE;
}

/* The group that makes all operands of a stack and may write them contiguously. */
static uint32_t joining_group(const Fuse *fuse, const Op *op) {
  uint32_t g = UINT32_MAX;
  for (uint32_t i = 0; i < op->nin && fuse->joins && op->code == OP_stack; i++) {
    ValueId value = only_shown(fuse, op->in[i]);
    if (value == NO_VALUE || fuse->value[value].where != MATERIALISED ||
        (i && fuse->value[value].group != g))
      return UINT32_MAX;
    g = fuse->value[value].group;
  }
  bool may = g != UINT32_MAX && group_neighbours(fuse->groups.at[g].kind) & JOIN;
  return may ? g : UINT32_MAX;
}

/* Only the whole is stored. */
static void join_results(Fuse *fuse, const Op *op, uint32_t g) {
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId v = op->in[i];
    for (; value(fuse, v)->where == INPUT; v = value_def(fuse->f, v)->in[0])
      *value(fuse, v) = (FuseValue){.where = MATERIALISED, .group = g};
    value(fuse, v)->stored = false;
  }
  set_home(fuse, op->out, g);
}

/* ---- sums that start from something ---- */

/* The group that makes one term and may start from the other one, known before. */
static uint32_t adding_group(Fuse *fuse, const Op *op) {
  for (uint32_t i = 0; op->code == OP_add && i < 2; i++) {
    const FuseValue *fuse_value = value(fuse, op->in[i]);
    ValueId base = op->in[1 - i];
    if (fuse_value->where != MATERIALISED ||
        !(group_neighbours(fuse->groups.at[fuse_value->group].kind) & BASE))
      continue;
    if (fuse->f->values.at[op->in[i]].def != fuse->groups.at[fuse_value->group].anchor) continue;
    bool fits = fuse->uses[op->in[i]] == 1 && !fuse_value->stored &&
                fuse_after(fuse, base) <= fuse_value->group;
    if (fits && same_space(type(fuse, base), &fuse->groups.at[fuse_value->group].space))
      return fuse_value->group;
  }
  return UINT32_MAX;
}

static void visit_point(Fuse *fuse, const Op *op) {
  for (uint32_t i = 0; i < op->nout; i++) *value(fuse, op->out + i) = (FuseValue){.where = INLINED};
  ValueId v = op->out;
  if (type(fuse, v)->rank) place_scalars(fuse, op);
  uint32_t after = fuse_after(fuse, v), row = picking_group(fuse, op),
           whole = joining_group(fuse, op);
  uint32_t sum = adding_group(fuse, op);
  if (whole != UINT32_MAX) join_results(fuse, op, whole);
  else if (row != UINT32_MAX) settle(fuse, v, row);
  else if (sum != UINT32_MAX) settle(fuse, v, sum);
  else if (after && admits(fuse, after - 1, v)) settle(fuse, v, after - 1);
  if (op->code == OP_copy) fuse_store(fuse, v); /* at its place */
}

static void visit_view(Fuse *fuse, const Op *op) {
  if (value(fuse, op->in[0])->where == INLINED && op->nout == 1 && !fuse->in_memory[op->in[0]]) {
    visit_point(fuse, op);
    return;
  }
  fuse_store(fuse, op->in[0]);
  for (uint32_t i = 0; i < op->nout; i++)
    *value(fuse, op->out + i) = (FuseValue){.where = INPUT, .stored = true};
  fuse->stamp++;
}

/* ---- anchors ---- */

static void store_operands(Fuse *fuse, const Op *op, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to && i < op->nin; i++) fuse_store(fuse, op->in[i]);
}

static void materialise_results(Fuse *fuse, const Op *op, uint32_t g) {
  for (uint32_t i = 0; i < op->nout; i++)
    *value(fuse, op->out + i) = (FuseValue){.where = MATERIALISED, .group = g};
  fuse->stamp++;
  pull(fuse, op->out, g);
}

static uint32_t anchor_group(Fuse *fuse, OpId id, GroupKind kind) {
  const Op *op = &fuse->f->ops.at[id];
  Type space = *type(fuse, op->out);
  uint32_t g = open_group(fuse, kind, id, space, space);
  materialise_results(fuse, op, g);
  return g;
}

/* The number of elements of the product that use one element of a factor. */
static int64_t met_by(const Fuse *fuse, const Op *dot, ValueId value) {
  const Type *t = type(fuse, value), *r = type(fuse, dot->out);
  int64_t n = type_count(r);
  for (int i = 0; i < t->rank; i++)
    if (type_find(r, t->axis[i].dim) >= 0) n /= t->axis[i].size;
  return n;
}

/* A contraction that packs its operand casts it on the way in: no copy of a parameter is kept in
 * the narrow type, unless the target reads it too often for that. */
static void store_factor(Fuse *fuse, const Op *dot, ValueId v) {
  const Op *op = value_def(fuse->f, v);
  bool cast = op && op->code == OP_cast && value(fuse, v)->where == INLINED;
  bool narrows = cast && type(fuse, op->in[0])->elem == ELEM_f32 &&
                 elem_bytes(type(fuse, v)->elem) < 4 &&
                 elem_class(type(fuse, v)->elem) == CLASS_FLOAT;
  bool often = fuse->narrow_from && met_by(fuse, dot, v) >= fuse->narrow_from;
  if (!narrows || often || value(fuse, op->in[0])->where != INPUT) fuse_store(fuse, v);
}

/* Visits an op of a family that only needs its operands in memory. */
static void visit_anchor(Fuse *fuse, OpId id, GroupKind kind) {
  uint32_t from, to;
  group_buffers(kind, &from, &to);
  store_operands(fuse, &fuse->f->ops.at[id], from, to);
  anchor_group(fuse, id, kind);
}

/* Sums whose last dim in natural order stays, or that leave nothing, are column kernels; all other
 * reductions go by rows. */
GroupKind fuse_reduce_kind(const Fuse *fuse, const Op *op) {
  const Type *t = type(fuse, op->in[0]);
  if (op->code != OP_sum || !t->rank) return GROUP_row;
  bool scalar = type(fuse, op->out)->rank == 0;
  return scalar || !op_lists(op, t->axis[t->rank - 1].dim) ? GROUP_column : GROUP_row;
}

static Type rows_of(const Fuse *fuse, const Op *op) {
  return type_without(type(fuse, op->in[0]), op->group[0].from, op->group[0].nfrom);
}

/* A reduction joins a group of its kind over the same dims; sums of a column kernel read nothing
 * that it makes, and go through their operands in the same order. */
static bool reduce_joins(Fuse *fuse, uint32_t g, const Op *op, GroupKind kind) {
  const FuseGroup *group = &fuse->groups.at[g];
  Type rows = rows_of(fuse, op);
  ValueId value = op->in[0];
  uint32_t after = fuse_after(fuse, value);
  if (group->kind != kind || !same_space(&group->space, type(fuse, value)) ||
      !same_space(&group->rows, &rows))
    return false;
  if (after > g + 1 || (after == g + 1 && kind == GROUP_column)) return false;
  if (kind == GROUP_column && !fuse_same_order(&group->space, type(fuse, value))) return false;
  if (tree_moves_own(fuse, value, g)) return false;
  return after == g + 1 || ((shares_leaf(fuse, g, value) || fuse_joins_small(fuse, g, value)) &&
                            fuse_has_room(fuse, g));
}

static uint32_t reduce_group(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  GroupKind kind = fuse_reduce_kind(fuse, op);
  uint32_t after = fuse_after(fuse, op->in[0]);
  for (uint32_t g = fuse->groups.n; g-- > 0 && g + 1 >= after;)
    if (reduce_joins(fuse, g, op, kind)) return g;
  return open_group(fuse, kind, id, *type(fuse, op->in[0]), rows_of(fuse, op));
}

static void materialise_beside(Fuse *fuse, const Op *op, uint32_t g) {
  materialise_results(fuse, op, g);
  value(fuse, op->out)->beside = true;
  fuse->stamp++;
}

/* A sum of columns with the rows of group g, or in a group of its own. */
static void add_columns(Fuse *fuse, OpId id, uint32_t g) {
  const Op *op = &fuse->f->ops.at[id];
  const FuseGroup *group = &fuse->groups.at[g];
  bool fits = group->kind == GROUP_row && same_space(&group->space, type(fuse, op->in[0])) &&
              fuse_after(fuse, op->in[0]) <= g + 1 && !tree_moves_own(fuse, op->in[0], g) &&
              fuse_has_room(fuse, g);
  if (fits) materialise_beside(fuse, op, g);
  else materialise_results(fuse, op, reduce_group(fuse, id));
}

/* The group of that kind that makes the operand of a sum, if kernels add up such sums: one for each
   kernel, on GPUs. */
static uint32_t summing_group(Fuse *fuse, const Op *op, GroupKind kind) {
  uint32_t after = fuse_after(fuse, op->in[0]), g = after - 1;
  if (!after || !fuse->m->target.sums || !module_on_gpu(fuse->m)) return UINT32_MAX;
  const FuseGroup *group = &fuse->groups.at[g];
  Elem elem = type(fuse, op->in[0])->elem;
  bool fits = group->kind == kind && fuse->sum_of[group->anchor] == NO_OP &&
              (elem == ELEM_f32 || elem_is_half(elem)) && group->space.tier == TIER_device;
  return fits ? g : UINT32_MAX;
}

/* The product whose rows a sum adds up, if its kernel can. */
static uint32_t summing_product(Fuse *fuse, const Op *op) {
  uint32_t g = summing_group(fuse, op, GROUP_contract);
  bool fits = g != UINT32_MAX && fuse_reduce_kind(fuse, op) == GROUP_column &&
              product_sums_rows(fuse->f, &fuse->f->ops.at[fuse->groups.at[g].anchor], op) &&
              !tree_moves_own(fuse, op->in[0], g);
  return fits ? g : UINT32_MAX;
}

/* The group of attention whose gradients a sum adds up, if its kernel can. Nothing between
   gradients and sum is a view of a buffer. */
static uint32_t summing_attention(Fuse *fuse, const Op *op) {
  FlashColumns columns;
  uint32_t g = summing_group(fuse, op, GROUP_attention_grad);
  if (g == UINT32_MAX || !flash_sums_columns(fuse->f, op, &columns)) return UINT32_MAX;
  Tree tree = tree_of(fuse, op->in[0]);
  for (uint32_t i = 0; i < tree.leaves.n; i++) {
    const FuseValue *leaf = value(fuse, tree.leaves.at[i]);
    if (leaf->where != MATERIALISED || leaf->group != g) return UINT32_MAX;
  }
  return g;
}

static void visit_reduce(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  OpId with = fuse->with[id];
  bool dot = with != NO_OP && fuse->f->ops.at[with].code == OP_dot;
  if (dot || (with != NO_OP && with > id)) return; /* with the contraction, with the rows */
  if (with != NO_OP) {
    add_columns(fuse, id, value(fuse, fuse->f->ops.at[with].out)->group);
    return;
  }
  uint32_t maker = summing_product(fuse, op);
  if (maker == UINT32_MAX) maker = summing_attention(fuse, op);
  if (maker != UINT32_MAX) {
    fuse->sum_of[fuse->groups.at[maker].anchor] = id;
    materialise_beside(fuse, op, maker);
    return;
  }
  uint32_t g = reduce_group(fuse, id);
  materialise_results(fuse, op, g);
  for (OpId i = 0; i < id; i++)
    if (fuse->with[i] == id) add_columns(fuse, i, g);
}

static void visit_contract(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  store_factor(fuse, op, op->in[0]), store_factor(fuse, op, op->in[1]);
  uint32_t g = anchor_group(fuse, id, GROUP_contract);
  if (fuse->sum_of[id] != NO_OP) materialise_beside(fuse, &fuse->f->ops.at[fuse->sum_of[id]], g);
}

static void visit_loop(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  store_operands(fuse, op, 0, op->nin);
  uint32_t g = open_group(fuse, GROUP_LOOP, id, type_scalar(ELEM_f32), type_scalar(ELEM_f32));
  for (uint32_t i = 0; i < op->nout; i++)
    *value(fuse, op->out + i) = (FuseValue){.where = MATERIALISED, .group = g, .stored = true};
  fuse->stamp++;
}

static void visit_call(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  if (op->code != OP_loop) bug("fuse: a %s op in %s", op_name(op->code), fuse->f->name);
  visit_loop(fuse, id);
}

static void visit_global(Fuse *fuse, const Op *op) {
  if (op->code == OP_store) fuse_store(fuse, op->in[0]);
  else *value(fuse, op->out) = (FuseValue){.where = INPUT, .stored = true};
}

void fuse_visit(Fuse *fuse, OpId id) {
  const Op *op = &fuse->f->ops.at[id];
  must(fuse->sum_of && fuse->with, "fuse: groups are made once the sums of products are known");
  if (op_lays(fuse->f, op)) {
    visit_loop(fuse, id); /* fusion also happens between buffers */
    return;
  }
  switch (op_family(op->code)) {
  case FAMILY_GLOBAL: visit_global(fuse, op); return;
  case FAMILY_CALL: visit_call(fuse, id); return;
  case FAMILY_MOVE:
  case FAMILY_COLLECTIVE:
    visit_loop(fuse, id);
    return; /* in its place, between buffers, as a loop */
  default: break;
  }
  GroupKind kind = group_anchored(op);
  switch (kind) {
  case GROUP_row:
  case GROUP_column: visit_reduce(fuse, id); return;
  case GROUP_contract: visit_contract(fuse, id); return;
  case GROUP_LOOP:
    if (!is_point(op)) bug("fuse: no kernel family takes %s", op_name(op->code));
    if (is_view(op)) visit_view(fuse, op);
    else visit_point(fuse, op);
    return;
  default: visit_anchor(fuse, id, kind);
  }
}
