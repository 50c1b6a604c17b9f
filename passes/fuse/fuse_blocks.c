/* fuse, first step: a huge value that a contraction makes and that is soon reduced is computed in
   blocks.

   The logits of a language model have rows * vocabulary elements; only the sums of their rows, and
   two contractions of their gradient, leave the region of ops around them. If they exceed a bound
   (setting target.block, bytes), the region becomes the body of a loop over blocks of rows: row
   results are stacked, results that are summed over rows are carried and added up. Only one block
   is in memory at a time. The same numbers are added, in another order over rows.

   Every block reads the operand without rows (the embedding) three times and adds to its gradient.
   A block is therefore at least a few times as large as that operand; otherwise the repeated reads
   would be more than a fifth of all bytes moved. A block is also no smaller than a fixed share of
   the largest value that is in memory anyway, since smaller blocks would not lower the peak, and
   may take a fixed share of the machine's memory, if that is known: one block has no sums to carry.

   A region consists of the readers of a large value that depends on the contraction, and of the
   ops between; they may do anything but mix rows. As for its inputs, element-wise values over rows
   are computed again inside, and others are sliced. */
#include "ir/made.h"
#include "fuse.h"
#include "ir/cost/machine.h"
#include "ir/support/num.h"

enum {
  BLOCK_BYTES = 192 << 20,
  BLOCK_OPERANDS = 6,
  BLOCK_SHARE = 4,
  LARGE_SHARE = 2,
  MEMORY_SHARE = 32
};

typedef enum BlockRole {
  OUTSIDE,
  INSIDE,
  ADDED
} BlockRole; /* ADDED: inside, summed over the rows */

typedef struct FuseBlocks {
  Module *m;
  const Fn *f;
  OpId dot; /* makes the large value */
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

static bool has_rows(const FuseBlocks *blocks, ValueId value) {
  return type_find(type(blocks, value), blocks->rows.dim) >= 0;
}

static bool names_rows(const FuseBlocks *blocks, const Op *op) {
  for (int g = 0; g < op->ngroups; g++) {
    for (int i = 0; i < op->group[g].nfrom; i++)
      if (op->group[g].from[i] == blocks->rows.dim) return true;
    for (int i = 0; i < op->group[g].nto; i++)
      if (op->group[g].to[i] == blocks->rows.dim) return true;
  }
  return false;
}

/* ---- the region ---- */

/* How op o, which reads something that depends on the large value, can be part of the region. */
static BlockRole role_of(const FuseBlocks *blocks, const Op *op) {
  bool sums = op->code == OP_sum || op->code == OP_dot;
  if (op->nout != 1) return OUTSIDE;
  if (names_rows(blocks, op)) return sums ? ADDED : op->code == OP_expand ? INSIDE : OUTSIDE;
  OpFamily f = op_family(op->code);
  bool fits =
      op_flags(op->code) & POINT || f == FAMILY_REDUCE || f == FAMILY_SCAN || f == FAMILY_CONTRACT;
  return fits && has_rows(blocks, op->out) ? INSIDE : OUTSIDE;
}

static bool reads_large(const FuseBlocks *blocks, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (blocks->depends[op->in[i]] && type_dense_bytes(type(blocks, op->in[i])) >= blocks->large)
      return true;
  return false;
}

static bool reads_dependent(const FuseBlocks *blocks, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++)
    if (blocks->depends[op->in[i]]) return true;
  return false;
}

static void mark_dependents(FuseBlocks *blocks) {
  blocks->depends[blocks->f->ops.at[blocks->dot].out] = true;
  for (OpId i = blocks->dot + 1; i < blocks->f->ops.n; i++) {
    const Op *op = &blocks->f->ops.at[i];
    for (uint32_t k = 0; k < op->nout && reads_dependent(blocks, op); k++)
      blocks->depends[op->out + k] = true;
  }
}

/* Everything that depends on the large value and is read inside must be inside as well. */
static bool pull_inside(FuseBlocks *blocks, const Op *op) {
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId value = op->in[i];
    if (!blocks->depends[value]) continue;
    OpId def = blocks->f->values.at[value].def;
    if (blocks->role[def] == ADDED) return false;
    if (blocks->role[def] == OUTSIDE &&
        (blocks->role[def] = role_of(blocks, &blocks->f->ops.at[def])) != INSIDE)
      return false;
  }
  return true;
}

/* Element-wise ops over the rows of values inside join the region, so that fewer values leave the
   loop. */
static void take_followers(FuseBlocks *blocks) {
  const Type *large = type(blocks, blocks->f->ops.at[blocks->dot].out);
  for (OpId i = blocks->dot + 1; i < blocks->f->ops.n; i++) {
    const Op *op = &blocks->f->ops.at[i];
    bool follows =
        blocks->role[i] == OUTSIDE && reads_dependent(blocks, op) && op_flags(op->code) & POINT;
    if (!follows || role_of(blocks, op) != INSIDE || !type_contains(large, type(blocks, op->out)))
      continue;
    for (uint32_t k = 0; k < op->nin && follows; k++)
      follows = !blocks->depends[op->in[k]] ||
                blocks->role[blocks->f->values.at[op->in[k]].def] == INSIDE;
    if (follows) blocks->role[i] = INSIDE, blocks->last = i > blocks->last ? i : blocks->last;
  }
}

static bool find_region(FuseBlocks *blocks) {
  blocks->role[blocks->dot] = INSIDE, blocks->last = blocks->dot;
  for (OpId i = blocks->dot + 1; i < blocks->f->ops.n; i++) {
    const Op *op = &blocks->f->ops.at[i];
    if (!reads_large(blocks, op)) continue;
    blocks->role[i] = role_of(blocks, op), blocks->last = i;
    if (blocks->role[i] == OUTSIDE) return false; /* the large value itself is needed */
  }
  for (OpId i = blocks->f->ops.n; i-- > 0;)
    if (blocks->role[i] != OUTSIDE && !pull_inside(blocks, &blocks->f->ops.at[i])) return false;
  take_followers(blocks);
  return blocks->last != blocks->dot;
}

static bool read_outside(const FuseBlocks *blocks, ValueId value) {
  for (OpId i = 0; i < blocks->f->ops.n; i++)
    for (uint32_t k = 0; k < blocks->f->ops.at[i].nin; k++)
      if (blocks->f->ops.at[i].in[k] == value && blocks->role[i] == OUTSIDE) return true;
  for (uint32_t i = 0; i < blocks->f->results.n; i++)
    if (blocks->f->results.at[i] == value) return true;
  return false;
}

static bool find_exits(FuseBlocks *blocks) {
  for (OpId i = 0; i < blocks->f->ops.n; i++) {
    ValueId value = blocks->f->ops.at[i].out;
    if (blocks->role[i] == ADDED) vec_push(blocks->m->arena, blocks->carried, value);
    if (blocks->role[i] != INSIDE || !read_outside(blocks, value)) continue;
    if (type_dense_bytes(type(blocks, value)) >= blocks->large) return false;
    vec_push(blocks->m->arena, blocks->exits, value);
  }
  return true;
}

/* ---- inputs of the region ---- */

static bool is_source(const FuseBlocks *blocks, ValueId value) {
  const Op *op = value_def(blocks->f, value);
  return op && op_family(op->code) == FAMILY_SOURCE && op->nin == 0;
}

/* Constants, positions, and whether a position is below a constant: padding, which kernels of the
   region then know without reading it. */
static bool is_position(const FuseBlocks *blocks, ValueId value) {
  const Op *op = value_def(blocks->f, value);
  bool below = op && op->code == OP_lt && type(blocks, value)->rank == 1;
  return is_source(blocks, value) ||
         (below && is_source(blocks, op->in[0]) && is_source(blocks, op->in[1]));
}

/* Records value v as read inside. False: v depends on the index of its row, so that a block would
   see other numbers. */
static bool find_input(FuseBlocks *blocks, ValueId value, bool *seen) {
  const Op *op = value_def(blocks->f, value);
  if (seen[value] || blocks->depends[value]) return true;
  seen[value] = true;
  bool again = is_position(blocks, value);
  if (has_rows(blocks, value)) again = op && op_flags(op->code) & POINT && op->nout == 1;
  if (!again) {
    if (has_rows(blocks, value)) vec_push(blocks->m->arena, blocks->stacked, value);
    else vec_push(blocks->m->arena, blocks->invariant, value);
    return true;
  }
  if (names_rows(blocks, op) && op->code != OP_expand) return false;
  for (uint32_t i = 0; i < op->nin; i++)
    if (!find_input(blocks, op->in[i], seen)) return false;
  return true;
}

static bool find_inputs(FuseBlocks *blocks) {
  bool *seen = ARENA_ARRAY(blocks->m->arena, bool, blocks->f->values.n + 1);
  for (OpId i = 0; i < blocks->f->ops.n; i++)
    for (uint32_t k = 0; k < blocks->f->ops.at[i].nin && blocks->role[i] != OUTSIDE; k++)
      if (!find_input(blocks, blocks->f->ops.at[i].in[k], seen)) return false;
  return blocks->carried.n + blocks->exits.n > 0;
}

/* ---- the body ---- */

static Type one_block(const FuseBlocks *blocks, const Type *t) {
  Type r = *t;
  int i = type_find(&r, blocks->rows.dim);
  if (i >= 0) r.axis[i].size = blocks->rows.size / blocks->block.size;
  return r;
}

/* Many small terms are never added up in a narrow type. */
static Type sum_type(const FuseBlocks *blocks, ValueId value) {
  Type t = *type(blocks, value);
  bool narrow = elem_class(t.elem) == CLASS_FLOAT && elem_bytes(t.elem) < 4;
  return narrow ? type_with_elem(t, ELEM_f32) : t;
}

static void body_args(FuseBlocks *blocks) {
  fn_arg(blocks->m, blocks->body, type_scalar(ELEM_i32));
  for (uint32_t i = 0; i < blocks->carried.n; i++)
    fn_arg(blocks->m, blocks->body, sum_type(blocks, blocks->carried.at[i]));
  for (uint32_t i = 0; i < blocks->invariant.n; i++)
    blocks->inner[blocks->invariant.at[i]] =
        fn_arg(blocks->m, blocks->body, *type(blocks, blocks->invariant.at[i]));
  for (uint32_t i = 0; i < blocks->stacked.n; i++)
    blocks->inner[blocks->stacked.at[i]] =
        fn_arg(blocks->m, blocks->body, one_block(blocks, type(blocks, blocks->stacked.at[i])));
}

static void build_inner(FuseBlocks *blocks, ValueId value) {
  if (blocks->inner[value] != NO_VALUE) return;
  const Op *op = value_def(blocks->f, value);
  must(op && op->nout == 1, "fuse: %%%u of %s is read in a block and is made outside", value,
       blocks->f->name);
  for (uint32_t i = 0; i < op->nin; i++) build_inner(blocks, op->in[i]);
  fn_clone_op(blocks->m, blocks->body, blocks->f, op, blocks->inner);
  Value *made = &blocks->body->values.at[blocks->inner[value]];
  made->type = one_block(blocks, &made->type);
}

/* A block's term in the type of the sum: a product delivers it so. */
static ValueId wide_term(FuseBlocks *blocks, ValueId value) {
  Type type = sum_type(blocks, value);
  Value *made = &blocks->body->values.at[blocks->inner[value]];
  if (value_def(blocks->f, value)->code == OP_dot) made->type.elem = type.elem;
  return ir_cast(blocks->m, blocks->body, blocks->inner[value], type.elem,
                 value_def(blocks->f, value)->loc);
}

static void build_body(FuseBlocks *blocks) {
  blocks->body = fn_new(blocks->m, FN_BODY,
                        intern_printf(blocks->m->ctx->names, "%s.blocks", blocks->f->name));
  blocks->body->loc = blocks->f->ops.at[blocks->dot].loc;
  blocks->inner = value_map(blocks->m, blocks->f);
  body_args(blocks);
  for (uint32_t i = 0; i < blocks->exits.n; i++) build_inner(blocks, blocks->exits.at[i]);
  for (uint32_t i = 0; i < blocks->carried.n; i++) {
    ValueId value = blocks->carried.at[i];
    build_inner(blocks, value);
    Loc loc = value_def(blocks->f, value)->loc;
    ValueId term = wide_term(blocks, value);
    fn_result(blocks->m, blocks->body,
              ir_binary(blocks->m, blocks->body, OP_add, blocks->body->args.at[1 + i], term, loc));
  }
  for (uint32_t i = 0; i < blocks->exits.n; i++)
    fn_result(blocks->m, blocks->body, blocks->inner[blocks->exits.at[i]]);
}

/* ---- the function around it ---- */

static ValueId split_rows(FuseBlocks *blocks, Rebuild *rebuild, ValueId value) {
  Type t = one_block(blocks, type(blocks, value)),
       cut = {.elem = t.elem, .rank = 1, .axis = {blocks->block}, .tier = t.tier};
  must(t.rank < MAX_RANK && type_find(&t, blocks->rows.dim) >= 0,
       "fuse: %%%u of %s has no rows to cut", value, blocks->f->name);
  for (int i = 0; i < t.rank; i++) cut.axis[cut.rank++] = t.axis[i];
  Str to[] = {blocks->block.dim, blocks->rows.dim};
  Group group = group_map(1, &blocks->rows.dim, 2, to);
  return emit_typed(blocks->m, rebuild->to, OP_split, 1, &rebuild->map[value], &group, cut,
                    blocks->body->loc);
}

static void write_loop(FuseBlocks *blocks, Rebuild *rebuild) {
  ValueId *in = ARENA_ARRAY(blocks->m->arena, ValueId,
                            blocks->carried.n + blocks->invariant.n + blocks->stacked.n + 1);
  LoopShape shape = {.carry = blocks->carried.n,
                     .invariant = blocks->invariant.n,
                     .stacked = blocks->stacked.n,
                     .trip = blocks->block.size,
                     .axis = blocks->block,
                     .rounds = ROUNDS_blocks};
  Loc loc = blocks->body->loc;
  uint32_t n = 0;
  for (uint32_t i = 0; i < blocks->carried.n; i++)
    in[n++] = emit_full(blocks->m, rebuild->to, sum_type(blocks, blocks->carried.at[i]), 0, loc);
  for (uint32_t i = 0; i < blocks->invariant.n; i++)
    in[n++] = rebuild->map[blocks->invariant.at[i]];
  for (uint32_t i = 0; i < blocks->stacked.n; i++)
    in[n++] = split_rows(blocks, rebuild, blocks->stacked.at[i]);
  ValueId out = rebuild_loop(blocks->m, rebuild->to, blocks->body, shape, in, loc)->out;
  for (uint32_t i = 0; i < blocks->carried.n; i++) {
    ValueId value = blocks->carried.at[i];
    rebuild->map[value] = ir_cast(blocks->m, rebuild->to, out + i, type(blocks, value)->elem, loc);
  }
  Str from[] = {blocks->block.dim, blocks->rows.dim};
  Group group = group_map(2, from, 1, &blocks->rows.dim);
  for (uint32_t i = 0; i < blocks->exits.n; i++) {
    ValueId value = out + blocks->carried.n + i;
    rebuild->map[blocks->exits.at[i]] = emit_typed(blocks->m, rebuild->to, OP_merge, 1, &value,
                                                   &group, *type(blocks, blocks->exits.at[i]), loc);
  }
}

/* Ops that depend on the region but come before its end are moved after the loop. */
static Fn *write_function(FuseBlocks *blocks) {
  must(blocks->body && blocks->dot <= blocks->last, "fuse: a loop over blocks of %s without a body",
       blocks->f->name);
  Rebuild rebuild = rebuild_begin(blocks->m, blocks->f);
  for (int late = 0; late < 2; late++) {
    for (OpId i = 0; i < blocks->f->ops.n; i++) {
      const Op *op = &blocks->f->ops.at[i];
      bool waits = i > blocks->last || reads_dependent(blocks, op);
      if (blocks->role[i] == OUTSIDE && waits == (late == 1)) rebuild_op(&rebuild, op);
    }
    if (!late) write_loop(blocks, &rebuild);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}

/* ---- which value, how many blocks ---- */

/* Arguments and results of loops: they stay while the region runs. */
static int64_t largest_kept(const FuseBlocks *blocks) {
  int64_t most = 0;
  for (ValueId value = 0; value < blocks->f->values.n; value++) {
    OpId def = blocks->f->values.at[value].def;
    bool loop = def != NO_OP && def < blocks->dot && blocks->f->ops.at[def].code == OP_loop;
    if (def == NO_OP || loop) most = max_i64(most, type_dense_bytes(type(blocks, value)));
  }
  return most;
}

/* The largest number of bytes of a block: as set, or derived from the sizes of the values around
   it. */
static int64_t limit_of(const FuseBlocks *blocks, const Type *again) {
  if (blocks->m->target.block) return blocks->m->target.block;
  int64_t most = max_i64(BLOCK_BYTES, BLOCK_OPERANDS * type_dense_bytes(again)),
          memory = plan_machine(blocks->m).memory;
  return max_i64(max_i64(most, largest_kept(blocks) / BLOCK_SHARE), memory / MEMORY_SHARE);
}

/* Rows: the first dim of the result that only one operand has. */
static bool choose_rows(FuseBlocks *blocks, const Op *op) {
  const Type *t = type(blocks, op->out), *x = type(blocks, op->in[0]), *y = type(blocks, op->in[1]);
  for (int i = 0; i < t->rank; i++) {
    bool one = (type_find(x, t->axis[i].dim) >= 0) != (type_find(y, t->axis[i].dim) >= 0);
    if (!one || t->axis[i].size < 2) continue;
    blocks->rows = t->axis[i];
    int64_t n = 2, limit = limit_of(blocks, type_find(x, blocks->rows.dim) >= 0 ? y : x);
    if (!limit || type_dense_bytes(t) <= limit) return false;
    n = divisor_from(blocks->rows.size, max_i64(n, type_dense_bytes(t) / (limit + 1) + 1));
    blocks->block = (Axis){name_made(blocks->m, "%s'block", blocks->rows.dim), n};
    return true;
  }
  return false;
}

static bool try_dot(FuseBlocks *blocks, OpId id) {
  const Op *op = &blocks->f->ops.at[id];
  blocks->dot = id;
  if (op->code != OP_dot || !choose_rows(blocks, op)) return false;
  blocks->large = type_dense_bytes(type(blocks, op->out)) / LARGE_SHARE;
  blocks->depends = ARENA_ARRAY(blocks->m->arena, bool, blocks->f->values.n + 1);
  blocks->role = ARENA_ARRAY(blocks->m->arena, BlockRole, blocks->f->ops.n + 1);
  mark_dependents(blocks);
  return find_region(blocks) && find_exits(blocks) && find_inputs(blocks);
}

Fn *fuse_blocks(Module *module, Fn *f, Fn **body) {
  *body = NULL;
  for (OpId i = 0; i < f->ops.n; i++) {
    FuseBlocks blocks = {.m = module, .f = f};
    if (!try_dot(&blocks, i)) continue;
    build_body(&blocks);
    *body = blocks.body;
    return write_function(&blocks);
  }
  return f;
}
