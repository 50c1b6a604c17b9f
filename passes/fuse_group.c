/* fuse, first half: which group computes an op.

   Every op is visited once, in program order. Its operands' groups all stand in the list already,
   so an op may join any group that is not earlier than the last of them. An element-wise op without
   such a place stays INLINED and is computed by whoever uses it; when a user needs a buffer (an
   operand of a contraction, a loop, a store) it opens or joins a group of family `elem`. Inlined
   values that read two or more large operands, or are expensive, are materialised in their first
   consumer's group, so that later users read the result instead of the operands. */
#include "ir/bytes.h"
#include "passes/fuse.h"

enum { SMALL_SCALAR_TREE = 4, LARGE_FRACTION = 8, CHEAP_OPS = 32, CHEAP_SLOW_OPS = 4 };

bool fuse_moves(OpCode c) {
  OpFamily f = op_family(c);
  return (f == FAMILY_STRUCT && c != OP_expand) || f == FAMILY_GATHER;
}

bool fuse_expensive(OpCode c) { return c == OP_rope || c == OP_erfinv; }

/* Operations that should not be repeated for every element when their result is one number. */
static bool slow_scalar(const Op *o, Elem e) { return op_flags(o->code) & SLOW || e == ELEM_f64; }

static bool is_view(const Op *o) { return op_flags(o->code) & VIEW; }
static bool is_point(const Op *o) { return op_flags(o->code) & POINT; }
static FuseValue *value(Fuse *u, ValueId v) { return &u->value[v]; }
static const Type *type(const Fuse *u, ValueId v) { return value_type(u->f, v); }

static uint32_t compute_after(Fuse *u, ValueId v) {
  const FuseValue *x = value(u, v);
  if (x->where == MATERIALISED) return x->group + 1 + x->beside;
  const Op *o = value_def(u->f, v);
  uint32_t after = 0;
  for (uint32_t i = 0; o && i < o->nin; i++) {
    uint32_t a = fuse_after(u, o->in[i]);
    if (a > after) after = a;
  }
  return after;
}

uint32_t fuse_after(Fuse *u, ValueId v) {
  FuseValue *x = value(u, v);
  if (x->stamp != u->stamp) {
    uint32_t a = compute_after(u, v);
    x->after = a, x->stamp = u->stamp;
  }
  return x->after;
}

static bool listed(const ValueList *l, ValueId v) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i] == v) return true;
  return false;
}

/* An expression: its inlined values, and the values in buffers that they read. */
typedef struct Tree {
  ValueList inlined, leaves;
  uint32_t most; /* inlined values after which nobody asks for more */
} Tree;

static void collect(Fuse *u, ValueId v, Tree *t) {
  if (u->seen[v] == u->walk || t->inlined.n > t->most) return;
  u->seen[v] = u->walk;
  const Op *o = value_def(u->f, v);
  if (value(u, v)->where != INLINED || !o) {
    vec_push(u->arena, t->leaves, v);
    return;
  }
  vec_push(u->arena, t->inlined, v);
  for (uint32_t i = 0; i < o->nin; i++) collect(u, o->in[i], t);
}

static Tree tree_up_to(Fuse *u, ValueId v, uint32_t most) {
  Tree t = {.most = most};
  u->walk++;
  collect(u, v, &t);
  return t;
}

static Tree tree_of(Fuse *u, ValueId v) { return tree_up_to(u, v, UINT32_MAX); }

/* A inlined value that every user may compute for itself: few ops, at most one operand of its own
 * size. */
static bool is_cheap(Fuse *u, ValueId v) {
  Tree t = tree_up_to(u, v, CHEAP_OPS);
  int64_t count = type_count(type(u, v));
  int large = 0, slow = 0;
  for (uint32_t i = 0; i < t.leaves.n; i++)
    large += type_count(type(u, t.leaves.at[i])) > count / LARGE_FRACTION;
  for (uint32_t i = 0; i < t.inlined.n; i++) {
    const Op *o = value_def(u->f, t.inlined.at[i]);
    if (fuse_expensive(o->code)) return false;
    slow += slow_scalar(o, type(u, t.inlined.at[i])->elem);
  }
  return (large <= 1 || count == 1) && t.inlined.n <= CHEAP_OPS && slow <= CHEAP_SLOW_OPS;
}

static uint32_t open_group(Fuse *u, GroupKind kind, OpId anchor, Type space, Type rows) {
  vec_push(u->arena, u->groups,
           (FuseGroup){.kind = kind, .anchor = anchor, .space = space, .rows = rows});
  return u->groups.n - 1;
}

static void set_home(Fuse *u, ValueId v, uint32_t g) {
  FuseValue *x = value(u, v);
  x->where = MATERIALISED, x->group = g;
  u->stamp++;
}

/* Elements that one kernel walks over: no kernel works in two memories. */
static bool same_space(const Type *a, const Type *b) {
  return a->tier == b->tier && type_same_dims(a, b);
}

static bool keeps_inputs(GroupKind k) {
  return k == GROUP_elem || k == GROUP_row || k == GROUP_contract;
}

/* v, now computed by group g, brings its inlined operands along; those that later users should not
 * compute again stay. */
static void pull(Fuse *u, ValueId v, uint32_t g) {
  const Op *o = value_def(u->f, v);
  for (uint32_t i = 0; o && i < o->nin; i++) {
    ValueId a = o->in[i];
    if (value(u, a)->where != INLINED) {
      if (!listed(&u->groups.at[g].leaves, a)) vec_push(u->arena, u->groups.at[g].leaves, a);
      continue;
    }
    bool stays = keeps_inputs(u->groups.at[g].kind) &&
                 same_space(type(u, a), &u->groups.at[g].space) && !fuse_moves(o->code) &&
                 !is_cheap(u, a);
    if (stays) set_home(u, a, g);
    pull(u, a, g);
  }
}

static void settle(Fuse *u, ValueId v, uint32_t g) {
  set_home(u, v, g);
  pull(u, v, g);
}

bool fuse_picks(const Fuse *u, uint32_t group, const Op *o) {
  const FuseGroup *g = &u->groups.at[group];
  if (g->kind != GROUP_row || o->code != OP_gather) return false;
  return same_space(type(u, o->in[0]), &g->space) && same_space(type(u, o->in[1]), &g->rows) &&
         same_space(type(u, o->out), &g->rows);
}

/* Does an op that reads its operands at other indexes read something that group g computes? */
static bool moves_own(Fuse *u, const Op *o, uint32_t g) {
  if (!fuse_moves(o->code) || fuse_picks(u, g, o)) return false;
  for (uint32_t i = 0; i < o->nin; i++)
    if (fuse_after(u, o->in[i]) == g + 1) return true;
  return false;
}

/* Same for every inlined value below v; a view of what g computes is out of reach for g, too. */
static bool tree_moves_own(Fuse *u, ValueId v, uint32_t g) {
  Tree t = tree_of(u, v);
  for (uint32_t i = 0; i < t.inlined.n; i++)
    if (moves_own(u, value_def(u->f, t.inlined.at[i]), g)) return true;
  for (uint32_t i = 0; i < t.leaves.n; i++)
    if (value(u, t.leaves.at[i])->where == INPUT && fuse_after(u, t.leaves.at[i]) == g + 1)
      return true;
  return false;
}

static bool space_fits(const FuseGroup *g, const Type *t) {
  return same_space(&g->space, t) || (g->kind == GROUP_row && same_space(&g->rows, t));
}

/* May element-wise v be computed by group g, whose values it may read? */
static bool admits(Fuse *u, uint32_t g, ValueId v) {
  const FuseGroup *x = &u->groups.at[g];
  if (g >= u->groups.n || fuse_after(u, v) > g + 1 || !space_fits(x, type(u, v))) return false;
  if (x->kind != GROUP_elem && !(group_neighbours(x->kind) & POST)) return false;
  const Op *o = value_def(u->f, v);
  if (moves_own(u, o, g)) return false;
  for (uint32_t i = 0; i < o->nin; i++)
    if (tree_moves_own(u, o->in[i], g)) return false;
  return true;
}

/* Does g read a value that is made where leaf x is made? It is asked for groups that would read
   both from memory: what is not stored there they compute again, from the same values. */
static bool reads_from(Fuse *u, uint32_t g, const FuseValue *x) {
  const ValueList *leaves = &u->groups.at[g].leaves;
  GroupKind kind = u->groups.at[g].kind;
  for (uint32_t i = 0; i < leaves->n && (kind == GROUP_column || kind == GROUP_elem); i++) {
    const FuseValue *y = value(u, leaves->at[i]);
    bool same = x->where == MATERIALISED && y->where == MATERIALISED && x->group == y->group;
    if (same && (kind == GROUP_column || u->groups.at[x->group].kind != GROUP_LOOP)) return true;
  }
  return false;
}

static bool same_order(const Type *a, const Type *b) {
  for (int i = 0; i < a->rank; i++)
    if (a->axis[i].dim != b->axis[i].dim) return false;
  return true;
}

static bool shares_leaf(Fuse *u, uint32_t g, ValueId v) {
  ValueList leaves = tree_of(u, v).leaves;
  for (uint32_t i = 0; i < leaves.n; i++) {
    const FuseValue *x = value(u, leaves.at[i]);
    if (!type(u, leaves.at[i])->rank && type(u, v)->rank) continue; /* a factor of everything */
    if (type(u, leaves.at[i])->rank && listed(&u->groups.at[g].leaves, leaves.at[i])) return true;
    if (x->where == MATERIALISED && x->group == g) return true;
    if (reads_from(u, g, x) && same_order(&u->groups.at[g].space, type(u, v))) return true;
  }
  return false;
}

/* Groups that take what merely reads the same things stay well below the limit of results. */
static bool has_room(Fuse *u, uint32_t g) {
  uint32_t n = 0;
  for (ValueId v = 0; v < u->f->values.n; v++)
    n += value(u, v)->where == MATERIALISED && value(u, v)->group == g && value(u, v)->stored;
  return n < MAX_RESULTS / 2;
}

/* The group of family elem for a inlined value that needs a buffer or a place. */
static uint32_t elem_place(Fuse *u, ValueId v) {
  bool scalar = type(u, v)->rank == 0;
  for (uint32_t g = u->groups.n; g-- > 0 && g + 1 >= fuse_after(u, v);)
    if (u->groups.at[g].kind == GROUP_elem && admits(u, g, v) && (scalar || shares_leaf(u, g, v)) &&
        has_room(u, g))
      return g;
  Type space = *type(u, v);
  return open_group(u, GROUP_elem, u->f->values.at[v].def, space, space);
}

void fuse_store(Fuse *u, ValueId v) {
  must(v < u->f->values.n, "fuse: %s has no value %u", u->f->name, v);
  if (value(u, v)->where == INLINED) settle(u, v, elem_place(u, v));
  value(u, v)->stored = true;
}

/* ---- element-wise ops ---- */

static bool takes_work(Fuse *u, ValueId v) {
  Tree t = tree_of(u, v);
  uint32_t n = 0;
  for (uint32_t i = 0; i < t.inlined.n; i++) {
    const Op *o = value_def(u->f, t.inlined.at[i]);
    if (o->code != OP_const && slow_scalar(o, type(u, t.inlined.at[i])->elem)) return true;
    n += o->code != OP_const;
  }
  return n > SMALL_SCALAR_TREE;
}

/* One number that takes work is computed once, in a kernel for numbers, before many elements use
 * it. */
static void place_scalars(Fuse *u, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++) {
    ValueId a = o->in[i];
    if (type(u, a)->rank || value(u, a)->where != INLINED) continue;
    if (takes_work(u, a)) settle(u, a, elem_place(u, a));
  }
}

/* A row kernel that reads the row anyway also picks from it. */
static uint32_t picking_group(Fuse *u, const Op *o) {
  for (uint32_t g = u->groups.n; o->code == OP_gather && g-- > 0 && g + 1 >= fuse_after(u, o->out);)
    if (fuse_picks(u, g, o) && admits(u, g, o->out) && shares_leaf(u, g, o->in[0])) return g;
  return UINT32_MAX;
}

/* ---- results that are put together ---- */

/* The value that v shows under other names, if nobody else reads either of them. */
static ValueId only_shown(const Fuse *u, ValueId v) {
  while (u->uses[v] == 1) {
    const Op *o = value_def(u->f, v);
    if (!o || o->code != OP_rename) return v;
    v = o->in[0];
  }
  return NO_VALUE;
}

/* The group that makes all operands of a stack and may write them contiguously. */
static uint32_t joining_group(const Fuse *u, const Op *o) {
  uint32_t g = UINT32_MAX;
  for (uint32_t i = 0; i < o->nin && u->joins && o->code == OP_stack; i++) {
    ValueId v = only_shown(u, o->in[i]);
    if (v == NO_VALUE || u->value[v].where != MATERIALISED || (i && u->value[v].group != g))
      return UINT32_MAX;
    g = u->value[v].group;
  }
  bool may = g != UINT32_MAX && group_neighbours(u->groups.at[g].kind) & JOIN;
  return may ? g : UINT32_MAX;
}

/* Only the whole is stored. */
static void join_results(Fuse *u, const Op *o, uint32_t g) {
  for (uint32_t i = 0; i < o->nin; i++) {
    ValueId v = o->in[i];
    for (; value(u, v)->where == INPUT; v = value_def(u->f, v)->in[0])
      *value(u, v) = (FuseValue){.where = MATERIALISED, .group = g};
    value(u, v)->stored = false;
  }
  set_home(u, o->out, g);
}

/* ---- sums that start from something ---- */

/* The group that makes one term and may start from the other one, known before. */
static uint32_t adding_group(Fuse *u, const Op *o) {
  for (uint32_t i = 0; o->code == OP_add && i < 2; i++) {
    const FuseValue *x = value(u, o->in[i]);
    ValueId base = o->in[1 - i];
    if (x->where != MATERIALISED || !(group_neighbours(u->groups.at[x->group].kind) & BASE))
      continue;
    if (u->f->values.at[o->in[i]].def != u->groups.at[x->group].anchor) continue;
    bool fits = u->uses[o->in[i]] == 1 && !x->stored && fuse_after(u, base) <= x->group;
    if (fits && same_space(type(u, base), &u->groups.at[x->group].space)) return x->group;
  }
  return UINT32_MAX;
}

static void visit_point(Fuse *u, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++) *value(u, o->out + i) = (FuseValue){.where = INLINED};
  ValueId v = o->out;
  if (type(u, v)->rank) place_scalars(u, o);
  uint32_t after = fuse_after(u, v), row = picking_group(u, o), whole = joining_group(u, o);
  uint32_t sum = adding_group(u, o);
  if (whole != UINT32_MAX) join_results(u, o, whole);
  else if (row != UINT32_MAX) settle(u, v, row);
  else if (sum != UINT32_MAX) settle(u, v, sum);
  else if (after && admits(u, after - 1, v)) settle(u, v, after - 1);
}

static void visit_view(Fuse *u, const Op *o) {
  if (value(u, o->in[0])->where == INLINED && o->nout == 1) {
    visit_point(u, o);
    return;
  }
  fuse_store(u, o->in[0]);
  for (uint32_t i = 0; i < o->nout; i++)
    *value(u, o->out + i) = (FuseValue){.where = INPUT, .stored = true};
  u->stamp++;
}

/* ---- anchors ---- */

static void store_operands(Fuse *u, const Op *o, uint32_t from, uint32_t to) {
  for (uint32_t i = from; i < to && i < o->nin; i++) fuse_store(u, o->in[i]);
}

static void materialise_results(Fuse *u, const Op *o, uint32_t g) {
  for (uint32_t i = 0; i < o->nout; i++)
    *value(u, o->out + i) = (FuseValue){.where = MATERIALISED, .group = g};
  u->stamp++;
  pull(u, o->out, g);
}

static uint32_t anchor_group(Fuse *u, OpId id, GroupKind kind) {
  const Op *o = &u->f->ops.at[id];
  Type space = *type(u, o->out);
  uint32_t g = open_group(u, kind, id, space, space);
  materialise_results(u, o, g);
  return g;
}

/* How many elements of the product one element of a factor goes into. */
static int64_t met_by(const Fuse *u, const Op *dot, ValueId v) {
  const Type *t = type(u, v), *r = type(u, dot->out);
  int64_t n = type_count(r);
  for (int i = 0; i < t->rank; i++)
    if (type_find(r, t->axis[i].dim) >= 0) n /= t->axis[i].size;
  return n;
}

/* A contraction that packs its operand casts it on the way in: no copy of a parameter is kept in
 * the narrow type, unless the target reads it too often for that. */
static void store_factor(Fuse *u, const Op *dot, ValueId v) {
  const Op *o = value_def(u->f, v);
  bool cast = o && o->code == OP_cast && value(u, v)->where == INLINED;
  bool narrows = cast && type(u, o->in[0])->elem == ELEM_f32 && elem_bytes(type(u, v)->elem) < 4 &&
                 elem_class(type(u, v)->elem) == CLASS_FLOAT;
  bool often = u->narrow_from && met_by(u, dot, v) >= u->narrow_from;
  if (!narrows || often || value(u, o->in[0])->where != INPUT) fuse_store(u, v);
}

/* Of families that want nothing but operands in memory. */
static void visit_anchor(Fuse *u, OpId id, GroupKind kind) {
  uint32_t from, to;
  group_buffers(kind, &from, &to);
  store_operands(u, &u->f->ops.at[id], from, to);
  anchor_group(u, id, kind);
}

static bool reduced(const Op *o, Str dim) {
  for (int i = 0; i < o->group[0].nfrom; i++)
    if (o->group[0].from[i] == dim) return true;
  return false;
}

/* Sums whose last dim in natural order stays, or that leave nothing, are column kernels; all other
 * reductions go by rows. */
GroupKind fuse_reduce_kind(const Fuse *u, const Op *o) {
  const Type *t = type(u, o->in[0]);
  if (o->code != OP_sum || !t->rank) return GROUP_row;
  bool scalar = type(u, o->out)->rank == 0;
  return scalar || !reduced(o, t->axis[t->rank - 1].dim) ? GROUP_column : GROUP_row;
}

static Type rows_of(const Fuse *u, const Op *o) {
  return type_without(type(u, o->in[0]), o->group[0].from, o->group[0].nfrom);
}

/* A reduction joins a group of its kind over the same dims; sums of a column kernel read nothing
 * that it makes, and go through their operands in the same order. */
static bool reduce_joins(Fuse *u, uint32_t g, const Op *o, GroupKind kind) {
  const FuseGroup *x = &u->groups.at[g];
  Type rows = rows_of(u, o);
  ValueId a = o->in[0];
  uint32_t after = fuse_after(u, a);
  if (x->kind != kind || !same_space(&x->space, type(u, a)) || !same_space(&x->rows, &rows))
    return false;
  if (after > g + 1 || (after == g + 1 && kind == GROUP_column)) return false;
  if (kind == GROUP_column && !same_order(&x->space, type(u, a))) return false;
  if (tree_moves_own(u, a, g)) return false;
  return after == g + 1 || (shares_leaf(u, g, a) && has_room(u, g));
}

static uint32_t reduce_group(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  GroupKind kind = fuse_reduce_kind(u, o);
  uint32_t after = fuse_after(u, o->in[0]);
  for (uint32_t g = u->groups.n; g-- > 0 && g + 1 >= after;)
    if (reduce_joins(u, g, o, kind)) return g;
  return open_group(u, kind, id, *type(u, o->in[0]), rows_of(u, o));
}

static void materialise_beside(Fuse *u, const Op *o, uint32_t g) {
  materialise_results(u, o, g);
  value(u, o->out)->beside = true;
  u->stamp++;
}

/* A sum of columns with the rows of group g, or in a group of its own. */
static void add_columns(Fuse *u, OpId id, uint32_t g) {
  const Op *o = &u->f->ops.at[id];
  const FuseGroup *x = &u->groups.at[g];
  bool fits = x->kind == GROUP_row && same_space(&x->space, type(u, o->in[0])) &&
              fuse_after(u, o->in[0]) <= g + 1 && !tree_moves_own(u, o->in[0], g) && has_room(u, g);
  if (fits) materialise_beside(u, o, g);
  else materialise_results(u, o, reduce_group(u, id));
}

static void visit_reduce(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  OpId with = u->with[id];
  bool dot = with != NO_OP && u->f->ops.at[with].code == OP_dot;
  if (dot || (with != NO_OP && with > id)) return; /* with the contraction, with the rows */
  if (with != NO_OP) {
    add_columns(u, id, value(u, u->f->ops.at[with].out)->group);
    return;
  }
  uint32_t g = reduce_group(u, id);
  materialise_results(u, o, g);
  for (OpId i = 0; i < id; i++)
    if (u->with[i] == id) add_columns(u, i, g);
}

static void visit_contract(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  store_factor(u, o, o->in[0]), store_factor(u, o, o->in[1]);
  uint32_t g = anchor_group(u, id, GROUP_contract);
  if (u->sum_of[id] != NO_OP) materialise_beside(u, &u->f->ops.at[u->sum_of[id]], g);
}

static void visit_loop(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  store_operands(u, o, 0, o->nin);
  uint32_t g = open_group(u, GROUP_LOOP, id, type_scalar(ELEM_f32), type_scalar(ELEM_f32));
  for (uint32_t i = 0; i < o->nout; i++)
    *value(u, o->out + i) = (FuseValue){.where = MATERIALISED, .group = g, .stored = true};
  u->stamp++;
}

static void visit_call(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  if (o->code != OP_loop) bug("fuse: a %s op in %s", op_name(o->code), u->f->name);
  visit_loop(u, id);
}

static void visit_global(Fuse *u, const Op *o) {
  if (o->code == OP_store) fuse_store(u, o->in[0]);
  else *value(u, o->out) = (FuseValue){.where = INPUT, .stored = true};
}

void fuse_visit(Fuse *u, OpId id) {
  const Op *o = &u->f->ops.at[id];
  must(u->sum_of && u->with, "fuse: groups are made after the sums beside products are known");
  if (op_lays(u->f, o)) {
    visit_loop(u, id); /* between buffers, too */
    return;
  }
  switch (op_family(o->code)) {
  case FAMILY_GLOBAL: visit_global(u, o); return;
  case FAMILY_CALL: visit_call(u, id); return;
  case FAMILY_MOVE:
  case FAMILY_COLLECTIVE: visit_loop(u, id); return; /* in its place, between buffers, as a loop */
  default: break;
  }
  GroupKind kind = group_anchored(o);
  switch (kind) {
  case GROUP_row:
  case GROUP_column: visit_reduce(u, id); return;
  case GROUP_contract: visit_contract(u, id); return;
  case GROUP_LOOP:
    if (!is_point(o)) bug("fuse: no kernel family takes %s", op_name(o->code));
    if (is_view(o)) visit_view(u, o);
    else visit_point(u, o);
    return;
  default: visit_anchor(u, id, kind);
  }
}
