/* fuse, before grouping: sums of the squares of all elements of a product's result (norms of
   gradients) begin where the product is made, so that its kernel adds them up (`SUMS` in
   families.def) and memory is not read again.

     before   body: g = dot(x, dy)                    after   body: g = dot(x, dy)
                                                                    rows = sum[m] cast(g)^2
              g = loop[L] ..                                  g, rows = loop[L] ..
              norm2 = sum[m, n] cast(g)^2                     norm2 = sum[n] rows

   The dims of one operand of the product are summed first, for which its kernel has room: those of
   which none is the last dim of the result. The rest is a small sum. Squares are those of the
   rounded gradient that the sum read before; only the order of the sum changes.

   The product may be one of the function itself. A stacked result of a loop is one if each round
   makes its slice by a product: if gradients are added over micro-batches or reduced over ranks,
   another op comes last.

   A sum in a kernel of a product takes another phase of the kernel, the time in which a GPU reads
   some megabytes: target fact `squares` says from how many bytes of the product on this is done.

   Must not: touch a loop whose body another loop also runs, or one that completes a stack. */
#include "fuse.h"

typedef struct SquareSum { /* of a sum */
  OpId loop;               /* NO_OP: the product is an op of the function */
  ValueId of;              /* the product's result, or the loop's */
  Group rows, columns;     /* dims that are summed first, and then */
} SquareSum;

typedef struct SquareSums {
  Module *m;
  const Fn *f;
  SquareSum **sum; /* by OpId: NULL: none */
  ValueId *first;  /* by OpId of a sum: that of its rows, in the new function */
} SquareSums;

/* v before it was cast. */
static ValueId before_casts(const Fn *fn, ValueId v) {
  const Op *op = value_def(fn, v);
  for (; op && op->code == OP_cast; op = value_def(fn, v)) v = op->in[0];
  return v;
}

/* The value whose casts are squared and summed; NO_VALUE: the op is no such sum. */
static ValueId squared(const Fn *fn, const Op *op) {
  const Op *square = op->code == OP_sum ? value_def(fn, op->in[0]) : NULL;
  if (!square || square->code != OP_mul || square->in[0] != square->in[1]) return NO_VALUE;
  if (value_type(fn, square->out)->elem != ELEM_f32) return NO_VALUE;
  return before_casts(fn, square->in[0]);
}

/* All dims of a product's result are summed, each one of either operand. Those of the operand that
   lacks the last one come first. */
static bool divide(const Fn *fn, ValueId result, const Op *sum, SquareSum *out) {
  ValueId value = before_casts(fn, result);
  const Op *dot = value_def(fn, value);
  if (!dot || dot->code != OP_dot) return false;
  const Type *type = value_type(fn, value), *a = value_type(fn, dot->in[0]),
             *b = value_type(fn, dot->in[1]);
  if (!type->rank) return false;
  bool last_of_a = type_find(a, type->axis[type->rank - 1].dim) >= 0;
  for (int i = 0; i < type->rank; i++) {
    Str dim = type->axis[i].dim;
    bool of_a = type_find(a, dim) >= 0, of_b = type_find(b, dim) >= 0;
    if (of_a == of_b || !op_lists(sum, dim)) return false;
    Group *group = of_a == last_of_a ? &out->columns : &out->rows;
    group->from[group->nfrom++] = dim;
  }
  return out->rows.nfrom > 0;
}

/* A stacked result of which each round makes a slice. */
static bool is_whole(const SquareSums *squares, const Op *loop, uint32_t result) {
  LoopShape shape = loop_shape(loop);
  const Type *type = value_type(squares->f, loop->out + result);
  return result >= shape.carry && loop_into(&shape, result) == INTO_OWN &&
         type->axis[0].dim == shape.axis.dim && type->axis[0].size == shape.trip &&
         module_calls(squares->m, loop->callee) == 1;
}

static bool is_large(const SquareSums *squares, const Fn *fn, ValueId v) {
  const TargetFacts *facts = &squares->m->target;
  Elem elem = value_type(fn, v)->elem;
  return facts->sums && facts->squares && value_dense_bytes(fn, v) >= facts->squares &&
         value_type(fn, v)->tier == TIER_device && (elem == ELEM_f32 || elem_is_half(elem));
}

static bool find_sum(const SquareSums *squares, const Op *op, SquareSum *out) {
  const Fn *fn = squares->f;
  ValueId of = squared(fn, op);
  const Op *def = of == NO_VALUE ? NULL : value_def(fn, of);
  if (!def) return false;
  *out = (SquareSum){.loop = NO_OP, .of = of};
  if (def->code != OP_loop) return is_large(squares, fn, of) && divide(fn, of, op, out);
  uint32_t result = of - def->out;
  ValueId slice = def->callee->results.at[result];
  out->loop = fn->values.at[of].def;
  return is_whole(squares, def, result) && !op_lists(op, loop_shape(def).axis.dim) &&
         is_large(squares, def->callee, slice) && divide(def->callee, slice, op, out);
}

/* ---- what is written ---- */

static ValueId emit_part(Module *m, Fn *fn, ValueId v, const Group *dims, Loc loc) {
  Type type = type_without(value_type(fn, v), dims->from, dims->nfrom);
  return emit_typed(m, fn, OP_sum, 1, &v, dims, type, loc);
}

/* v of the function, from result `of` of the loop on, as a round knows it. */
static void give_slice(const SquareSums *squares, const SquareSum *sum, Fn *body, ValueId *map,
                       ValueId v) {
  const Op *op = value_def(squares->f, v);
  Str dim = loop_shape(&squares->f->ops.at[sum->loop]).axis.dim;
  if (map[v] != NO_VALUE) return;
  give_slice(squares, sum, body, map, op->in[0]);
  const Op *made = fn_clone_op(squares->m, body, squares->f, op, map);
  body->values.at[made->out].type = type_without(value_type(squares->f, v), &dim, 1);
}

static Fn *body_with_sums(const SquareSums *squares, OpId loop) {
  const Fn *fn = squares->f, *from = fn->ops.at[loop].callee;
  Rebuild rebuild = rebuild_begin(squares->m, from);
  ValueId *map = value_map(squares->m, fn);
  for (OpId i = 0; i < from->ops.n; i++) rebuild_op(&rebuild, &from->ops.at[i]);
  rebuild_results(&rebuild);
  for (uint32_t i = 0; i < from->results.n; i++)
    map[fn->ops.at[loop].out + i] = rebuild.map[from->results.at[i]];
  for (OpId i = loop + 1; i < fn->ops.n; i++) {
    const SquareSum *sum = squares->sum[i];
    const Op *op = &fn->ops.at[i];
    if (!sum || sum->loop != loop) continue;
    give_slice(squares, sum, rebuild.to, map, op->in[0]);
    fn_result(squares->m, rebuild.to,
              emit_part(squares->m, rebuild.to, map[op->in[0]], &sum->rows, op->loc));
  }
  return rebuild.to;
}

static bool has_sums(const SquareSums *squares, OpId loop) {
  for (OpId i = loop + 1; i < squares->f->ops.n; i++)
    if (squares->sum[i] && squares->sum[i]->loop == loop) return true;
  return false;
}

static void loop_with_sums(const SquareSums *squares, Rebuild *rebuild, OpId loop) {
  const Op *op = &squares->f->ops.at[loop];
  Fn *body = body_with_sums(squares, loop);
  ValueId *in = ARENA_ARRAY(squares->m->arena, ValueId, op->nin + 1);
  for (uint32_t i = 0; i < op->nin; i++) in[i] = rebuild->map[op->in[i]];
  module_replace(squares->m, op->callee, body);
  const Op *made = rebuild_loop(squares->m, rebuild->to, body, loop_shape(op), in, op->loc);
  for (uint32_t i = 0; i < op->nout; i++) rebuild->map[op->out + i] = made->out + i;
  uint32_t next = made->out + op->nout;
  for (OpId i = loop + 1; i < squares->f->ops.n; i++)
    if (squares->sum[i] && squares->sum[i]->loop == loop) squares->first[i] = next++;
}

static void end_sum(const SquareSums *squares, Rebuild *rebuild, OpId id) {
  const Op *op = &squares->f->ops.at[id];
  const SquareSum *sum = squares->sum[id];
  ValueId rows = squares->first[id];
  if (sum->loop == NO_OP)
    rows = emit_part(squares->m, rebuild->to, rebuild->map[op->in[0]], &sum->rows, op->loc);
  rebuild->map[op->out] = emit_part(squares->m, rebuild->to, rows, &sum->columns, op->loc);
}

/* Casts and squares that only sums of rounds read are in the rounds now. */
static bool *find_moved(const SquareSums *squares) {
  const Fn *fn = squares->f;
  uint32_t *uses = fuse_uses(squares->m->arena, fn);
  bool *moved = ARENA_ARRAY(squares->m->arena, bool, fn->ops.n + 1);
  for (OpId i = fn->ops.n; i-- > 0;) {
    const Op *op = &fn->ops.at[i];
    bool small = op->code == OP_cast || op->code == OP_mul;
    moved[i] = small && !uses[op->out];
    bool ends = squares->sum[i] && squares->sum[i]->loop != NO_OP;
    for (uint32_t k = 0; (ends || moved[i]) && k < op->nin; k++) uses[op->in[k]]--;
  }
  return moved;
}

static Fn *begun_early(const SquareSums *squares) {
  Rebuild rebuild = rebuild_begin(squares->m, squares->f);
  const bool *moved = find_moved(squares);
  for (OpId i = 0; i < squares->f->ops.n; i++) {
    if (has_sums(squares, i)) loop_with_sums(squares, &rebuild, i);
    else if (squares->sum[i]) end_sum(squares, &rebuild, i);
    else if (!moved[i]) rebuild_op(&rebuild, &squares->f->ops.at[i]);
  }
  rebuild_results(&rebuild);
  return rebuild.to;
}

static bool begin_sums(Module *m, Fn *fn) {
  SquareSums squares = {.m = m, .f = fn};
  bool any = false;
  squares.sum = ARENA_ARRAY(m->arena, SquareSum *, fn->ops.n + 1);
  squares.first = ARENA_ARRAY(m->arena, ValueId, fn->ops.n + 1);
  for (OpId i = 0; i < fn->ops.n; i++) {
    SquareSum sum;
    if (!find_sum(&squares, &fn->ops.at[i], &sum)) continue;
    squares.sum[i] = ARENA_NEW(m->arena, SquareSum);
    *squares.sum[i] = sum, any = true;
  }
  if (any) module_replace(m, fn, begun_early(&squares));
  return any;
}

void fuse_squares(Module *m) {
  bool any = false;
  for (uint32_t i = m->fns.n; i-- > 0;)
    if (m->fns.at[i]->kind != FN_KERNEL) any |= begin_sums(m, m->fns.at[i]);
  if (any) module_collect(m);
}
