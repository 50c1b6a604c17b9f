/* fuse, before all else: a huge value that is made by a contraction and soon summed up again is
   computed in blocks.

   The logits of a language model are rows * vocabulary; nothing but their rows' sums, and two
   contractions of their gradient, leave the region of ops around them. Where they exceed a bound
   (setting target.block, bytes), the region becomes the body of a loop over blocks of rows: row
   results are stacked, results that are summed over rows are carried and added up. Only one block
   is in memory at a time. The same numbers are added, in another order over rows.

   Every block reads the operand without rows (the embedding) three times and adds to its gradient:
   a block is no smaller than a few times that operand, or what blocks read again would be more than
   a fifth of all that they move. Nor is it smaller than a share of the largest value that is in
   memory anyway: that saves nothing.

   A region is what reads a large value that depends on the contraction, and what lies between; ops
   in it may do anything but mix rows. What it reads from outside: element-wise values over rows are
   computed again inside, others are sliced. */
#include "passes/fuse.h"
#include "ir/support/num.h"

enum { BLOCK_BYTES = 192 << 20, BLOCK_OPERANDS = 6, BLOCK_SHARE = 4, LARGE_SHARE = 2 };

typedef enum BlockRole {
  OUTSIDE,
  INSIDE,
  ADDED
} BlockRole; /* ADDED: inside, summed over the rows */

typedef struct FuseBlocks {
  Module *m;
  const Fn *f;
  OpId dot; /* what makes the large value */
  Axis rows, block;
  int64_t large;
  bool *depends;   /* by ValueId: on the large value */
  BlockRole *role; /* by OpId */
  OpId last;       /* last op of the region */
  VEC(ValueId) carried, exits, stacked, invariant;
  Fn *body;
  ValueId *inner; /* values of f in the body */
} FuseBlocks;

static const Type *type(const FuseBlocks *b, ValueId v) { return value_type(b->f, v); }

static int64_t bytes_of(const Type *t) { return type_count(t) * elem_bytes(t->elem); }

static bool has_rows(const FuseBlocks *b, ValueId v) {
  return type_find(type(b, v), b->rows.dim) >= 0;
}

static bool names_rows(const FuseBlocks *b, const Op *o) {
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++)
      if (o->group[g].from[i] == b->rows.dim) return true;
    for (int i = 0; i < o->group[g].nto; i++)
      if (o->group[g].to[i] == b->rows.dim) return true;
  }
  return false;
}

/* ---- the region ---- */

/* How op o, which reads something that depends on the large value, can be part of the region. */
static BlockRole role_of(const FuseBlocks *b, const Op *o) {
  bool sums = o->code == OP_sum || o->code == OP_dot;
  if (o->nout != 1) return OUTSIDE;
  if (names_rows(b, o)) return sums ? ADDED : o->code == OP_expand ? INSIDE : OUTSIDE;
  OpFamily f = op_family(o->code);
  bool fits =
      op_flags(o->code) & POINT || f == FAMILY_REDUCE || f == FAMILY_SCAN || f == FAMILY_CONTRACT;
  return fits && has_rows(b, o->out) ? INSIDE : OUTSIDE;
}

static bool reads_large(const FuseBlocks *b, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (b->depends[o->in[i]] && bytes_of(type(b, o->in[i])) >= b->large) return true;
  return false;
}

static bool reads_dependent(const FuseBlocks *b, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (b->depends[o->in[i]]) return true;
  return false;
}

static void mark_dependents(FuseBlocks *b) {
  b->depends[b->f->ops.at[b->dot].out] = true;
  for (OpId i = b->dot + 1; i < b->f->ops.n; i++) {
    const Op *o = &b->f->ops.at[i];
    for (uint32_t k = 0; k < o->nout && reads_dependent(b, o); k++) b->depends[o->out + k] = true;
  }
}

/* Everything that depends on the large value and is read inside must be inside as well. */
static bool pull_inside(FuseBlocks *b, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++) {
    ValueId v = o->in[i];
    if (!b->depends[v]) continue;
    OpId def = b->f->values.at[v].def;
    if (b->role[def] == ADDED) return false;
    if (b->role[def] == OUTSIDE && (b->role[def] = role_of(b, &b->f->ops.at[def])) != INSIDE)
      return false;
  }
  return true;
}

/* Element-wise ops over the rows of what is inside belong there: less leaves the loop. */
static void take_followers(FuseBlocks *b) {
  const Type *large = type(b, b->f->ops.at[b->dot].out);
  for (OpId i = b->dot + 1; i < b->f->ops.n; i++) {
    const Op *o = &b->f->ops.at[i];
    bool follows = b->role[i] == OUTSIDE && reads_dependent(b, o) && op_flags(o->code) & POINT;
    if (!follows || role_of(b, o) != INSIDE || !type_contains(large, type(b, o->out))) continue;
    for (uint32_t k = 0; k < o->nin && follows; k++)
      follows = !b->depends[o->in[k]] || b->role[b->f->values.at[o->in[k]].def] == INSIDE;
    if (follows) b->role[i] = INSIDE, b->last = i > b->last ? i : b->last;
  }
}

static bool find_region(FuseBlocks *b) {
  b->role[b->dot] = INSIDE, b->last = b->dot;
  for (OpId i = b->dot + 1; i < b->f->ops.n; i++) {
    const Op *o = &b->f->ops.at[i];
    if (!reads_large(b, o)) continue;
    b->role[i] = role_of(b, o), b->last = i;
    if (b->role[i] == OUTSIDE) return false; /* the large value itself is needed */
  }
  for (OpId i = b->f->ops.n; i-- > 0;)
    if (b->role[i] != OUTSIDE && !pull_inside(b, &b->f->ops.at[i])) return false;
  take_followers(b);
  return b->last != b->dot;
}

static bool read_outside(const FuseBlocks *b, ValueId v) {
  for (OpId i = 0; i < b->f->ops.n; i++)
    for (uint32_t k = 0; k < b->f->ops.at[i].nin; k++)
      if (b->f->ops.at[i].in[k] == v && b->role[i] == OUTSIDE) return true;
  for (uint32_t i = 0; i < b->f->results.n; i++)
    if (b->f->results.at[i] == v) return true;
  return false;
}

static bool find_exits(FuseBlocks *b) {
  for (OpId i = 0; i < b->f->ops.n; i++) {
    ValueId v = b->f->ops.at[i].out;
    if (b->role[i] == ADDED) vec_push(b->m->arena, b->carried, v);
    if (b->role[i] != INSIDE || !read_outside(b, v)) continue;
    if (bytes_of(type(b, v)) >= b->large) return false;
    vec_push(b->m->arena, b->exits, v);
  }
  return true;
}

/* ---- what it reads ---- */

/* v is read inside. False: it knows which row it stands in, so that a block would see other
 * numbers. */
static bool find_input(FuseBlocks *b, ValueId v, bool *seen) {
  const Op *o = value_def(b->f, v);
  if (seen[v] || b->depends[v]) return true;
  seen[v] = true;
  bool again = o && op_family(o->code) == FAMILY_SOURCE && o->nin == 0;
  if (has_rows(b, v)) again = o && op_flags(o->code) & POINT && o->nout == 1;
  if (!again) {
    if (has_rows(b, v)) vec_push(b->m->arena, b->stacked, v);
    else vec_push(b->m->arena, b->invariant, v);
    return true;
  }
  if (names_rows(b, o) && o->code != OP_expand) return false;
  for (uint32_t i = 0; i < o->nin; i++)
    if (!find_input(b, o->in[i], seen)) return false;
  return true;
}

static bool find_inputs(FuseBlocks *b) {
  bool *seen = ARENA_ARRAY(b->m->arena, bool, b->f->values.n + 1);
  for (OpId i = 0; i < b->f->ops.n; i++)
    for (uint32_t k = 0; k < b->f->ops.at[i].nin && b->role[i] != OUTSIDE; k++)
      if (!find_input(b, b->f->ops.at[i].in[k], seen)) return false;
  return b->carried.n + b->exits.n > 0;
}

/* ---- the body ---- */

static Type one_block(const FuseBlocks *b, const Type *t) {
  Type r = *t;
  int i = type_find(&r, b->rows.dim);
  if (i >= 0) r.axis[i].size = b->rows.size / b->block.size;
  return r;
}

/* Many small terms are never added up in a narrow type. */
static Type sum_type(const FuseBlocks *b, ValueId v) {
  Type t = *type(b, v);
  bool narrow = elem_class(t.elem) == CLASS_FLOAT && elem_bytes(t.elem) < 4;
  return narrow ? type_with_elem(t, ELEM_f32) : t;
}

static void body_args(FuseBlocks *b) {
  fn_arg(b->m, b->body, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < b->carried.n; i++) fn_arg(b->m, b->body, sum_type(b, b->carried.at[i]));
  for (uint32_t i = 0; i < b->invariant.n; i++)
    b->inner[b->invariant.at[i]] = fn_arg(b->m, b->body, *type(b, b->invariant.at[i]));
  for (uint32_t i = 0; i < b->stacked.n; i++)
    b->inner[b->stacked.at[i]] = fn_arg(b->m, b->body, one_block(b, type(b, b->stacked.at[i])));
}

static void build_inner(FuseBlocks *b, ValueId v) {
  if (b->inner[v] != NO_VALUE) return;
  const Op *o = value_def(b->f, v);
  must(o && o->nout == 1, "fuse: %%%u of %s is read in a block and is made outside", v, b->f->name);
  for (uint32_t i = 0; i < o->nin; i++) build_inner(b, o->in[i]);
  fn_clone_op(b->m, b->body, b->f, o, b->inner);
  Value *made = &b->body->values.at[b->inner[v]];
  made->type = one_block(b, &made->type);
}

/* A block's term in the type of the sum: a product delivers it so. */
static ValueId wide_term(FuseBlocks *b, ValueId v) {
  Type t = sum_type(b, v);
  Value *made = &b->body->values.at[b->inner[v]];
  if (value_def(b->f, v)->code == OP_dot) made->type.elem = t.elem;
  return ir_cast(b->m, b->body, b->inner[v], t.elem, value_def(b->f, v)->loc);
}

static void build_body(FuseBlocks *b) {
  b->body = fn_new(b->m, FN_BODY, intern_printf(b->m->ctx->names, "%s.blocks", b->f->name));
  b->body->loc = b->f->ops.at[b->dot].loc;
  b->inner = value_map(b->m, b->f);
  body_args(b);
  for (uint32_t i = 0; i < b->exits.n; i++) build_inner(b, b->exits.at[i]);
  for (uint32_t i = 0; i < b->carried.n; i++) {
    ValueId v = b->carried.at[i];
    build_inner(b, v);
    Loc loc = value_def(b->f, v)->loc;
    ValueId term = wide_term(b, v);
    fn_result(b->m, b->body, ir_binary(b->m, b->body, OP_add, b->body->args.at[1 + i], term, loc));
  }
  for (uint32_t i = 0; i < b->exits.n; i++) fn_result(b->m, b->body, b->inner[b->exits.at[i]]);
}

/* ---- the function around it ---- */

static ValueId split_rows(FuseBlocks *b, Rebuild *r, ValueId v) {
  Type t = one_block(b, type(b, v)),
       cut = {.elem = t.elem, .rank = 1, .axis = {b->block}, .tier = t.tier};
  must(t.rank < MAX_RANK && type_find(&t, b->rows.dim) >= 0, "fuse: %%%u of %s has no rows to cut",
       v, b->f->name);
  for (int i = 0; i < t.rank; i++) cut.axis[cut.rank++] = t.axis[i];
  Str to[] = {b->block.dim, b->rows.dim};
  Group g = group_map(1, &b->rows.dim, 2, to);
  return emit_typed(b->m, r->to, OP_split, 1, &r->map[v], &g, cut, b->body->loc);
}

static void write_loop(FuseBlocks *b, Rebuild *r) {
  ValueId *in = ARENA_ARRAY(b->m->arena, ValueId, b->carried.n + b->invariant.n + b->stacked.n + 1);
  LoopShape s = {.carry = b->carried.n,
                 .invariant = b->invariant.n,
                 .stacked = b->stacked.n,
                 .trip = b->block.size,
                 .axis = b->block};
  Loc loc = b->body->loc;
  uint32_t n = 0;
  for (uint32_t i = 0; i < b->carried.n; i++)
    in[n++] = emit_full(b->m, r->to, sum_type(b, b->carried.at[i]), 0, loc);
  for (uint32_t i = 0; i < b->invariant.n; i++) in[n++] = r->map[b->invariant.at[i]];
  for (uint32_t i = 0; i < b->stacked.n; i++) in[n++] = split_rows(b, r, b->stacked.at[i]);
  ValueId out = rebuild_loop(b->m, r->to, b->body, s, in, loc)->out;
  for (uint32_t i = 0; i < b->carried.n; i++) {
    ValueId v = b->carried.at[i];
    r->map[v] = ir_cast(b->m, r->to, out + i, type(b, v)->elem, loc);
  }
  Str from[] = {b->block.dim, b->rows.dim};
  Group g = group_map(2, from, 1, &b->rows.dim);
  for (uint32_t i = 0; i < b->exits.n; i++) {
    ValueId v = out + b->carried.n + i;
    r->map[b->exits.at[i]] =
        emit_typed(b->m, r->to, OP_merge, 1, &v, &g, *type(b, b->exits.at[i]), loc);
  }
}

/* Ops that depend on the region but stand before its end wait for the loop. */
static Fn *write_function(FuseBlocks *b) {
  must(b->body && b->dot <= b->last, "fuse: a loop over blocks of %s without a body", b->f->name);
  Rebuild r = rebuild_begin(b->m, b->f);
  for (int late = 0; late < 2; late++) {
    for (OpId i = 0; i < b->f->ops.n; i++) {
      const Op *o = &b->f->ops.at[i];
      bool waits = i > b->last || reads_dependent(b, o);
      if (b->role[i] == OUTSIDE && waits == (late == 1)) rebuild_op(&r, o);
    }
    if (!late) write_loop(b, &r);
  }
  rebuild_results(&r);
  return r.to;
}

/* ---- which value, how many blocks ---- */

/* Arguments and results of loops: they stay while the region runs. */
static int64_t largest_kept(const FuseBlocks *b) {
  int64_t most = 0;
  for (ValueId v = 0; v < b->f->values.n; v++) {
    OpId def = b->f->values.at[v].def;
    bool loop = def != NO_OP && def < b->dot && b->f->ops.at[def].code == OP_loop;
    if (def == NO_OP || loop) most = max_i64(most, bytes_of(type(b, v)));
  }
  return most;
}

/* Bytes of a block at most: as set, or by the sizes of what is beside it. */
static int64_t limit_of(const FuseBlocks *b, const Type *again) {
  if (b->m->target.block) return b->m->target.block;
  int64_t most = max_i64(BLOCK_BYTES, BLOCK_OPERANDS * bytes_of(again));
  return max_i64(most, largest_kept(b) / BLOCK_SHARE);
}

/* Rows: the first dim of the result that only one operand has. */
static bool choose_rows(FuseBlocks *b, const Op *o) {
  const Type *t = type(b, o->out), *x = type(b, o->in[0]), *y = type(b, o->in[1]);
  for (int i = 0; i < t->rank; i++) {
    bool one = (type_find(x, t->axis[i].dim) >= 0) != (type_find(y, t->axis[i].dim) >= 0);
    if (!one || t->axis[i].size < 2) continue;
    b->rows = t->axis[i];
    int64_t n = 2, limit = limit_of(b, type_find(x, b->rows.dim) >= 0 ? y : x);
    if (!limit || bytes_of(t) <= limit) return false;
    while (n < b->rows.size && (b->rows.size % n || bytes_of(t) / n > limit)) n++;
    b->block = (Axis){intern_printf(b->m->ctx->names, "%s_block", b->rows.dim), n};
    return true;
  }
  return false;
}

static bool try_dot(FuseBlocks *b, OpId id) {
  const Op *o = &b->f->ops.at[id];
  b->dot = id;
  if (o->code != OP_dot || !choose_rows(b, o)) return false;
  b->large = bytes_of(type(b, o->out)) / LARGE_SHARE;
  b->depends = ARENA_ARRAY(b->m->arena, bool, b->f->values.n + 1);
  b->role = ARENA_ARRAY(b->m->arena, BlockRole, b->f->ops.n + 1);
  mark_dependents(b);
  return find_region(b) && find_exits(b) && find_inputs(b);
}

Fn *fuse_blocks(Module *m, Fn *f, Fn **body) {
  *body = NULL;
  for (OpId i = 0; i < f->ops.n; i++) {
    FuseBlocks b = {.m = m, .f = f};
    if (!try_dot(&b, i)) continue;
    build_body(&b);
    *body = b.body;
    return write_function(&b);
  }
  return f;
}
