/* Parameters that share one gradient get values of their own.

   If two biases are added to one sum, as in a parallel residual, their gradients are one value,
   computed once, and so are the sums of its squares and parts of both updates. Groups separate
   gradients and updates by parameter, so entry `step` is written anew: for every parameter after
   the first of such a set, the ops between its gradient, as a loop or a single op makes it, and
   its stores are copied. In the norm, which adds the squares once per parameter, each sum reads
   its own copy. A gradient that a loop makes remains shared before the loop's result
   (zero_gradients.c). If the loop's result itself is the gradient, each parameter reads it through
   a cast to the same type. `clean` merges copies that are still equal after the pass.

   Must not: copy a message except the sums of gradients, which groups replace. */
#include "passes/math/guard_nonfinite.h"
#include "passes/zero/zero_slice.h"
#include <string.h>

typedef struct Twin { /* a parameter whose gradient another one has */
  GroupSlice slice;
  ValueId *map; /* by old value: its copy for this parameter; NO_VALUE: the same */
  bool *copied; /* by op of `step` */
  bool *square; /* by old value: the squares of the gradient, or sums of them */
} Twin;

typedef struct Unshare {
  Zero *zero;
  const Fn *step;
  VEC(GroupSlice) first; /* one for each gradient */
  VEC(Twin) twin;
  bool *shared;    /* by value: a gradient that several parameters have */
  uint32_t *given; /* by value: number of reads of a sum of squares that have one of their own */
  bool *live;      /* by op: is it still read where its copies are not? */
} Unshare;

/* ---- shared gradients ---- */

static bool is_updated(const Zero *zero, const Global *global) {
  return global->kind == GLOBAL_PARAM && global->type.rank && fn_store_of(zero->step, global) &&
         (zero->naxes || zero_hosted(zero, global) & HOSTED_UPDATE);
}

static void find_twin(Unshare *unshare, Global *global) {
  Arena *arena = unshare->zero->m->arena;
  GroupSlice slice = slice_begin(unshare->zero, global, zero_rounds_of(global));
  if (!slice_read_update(&slice)) return;
  for (uint32_t i = 0; i < unshare->first.n; i++) {
    if (unshare->first.at[i].member.leaf != slice.member.leaf) continue;
    Twin twin = {.slice = slice, .map = value_map(unshare->zero->m, unshare->step)};
    twin.copied = ARENA_ARRAY(arena, bool, unshare->step->ops.n + 1);
    twin.square = ARENA_ARRAY(arena, bool, unshare->step->values.n + 1);
    unshare->shared[slice.member.leaf] = true;
    vec_push(arena, unshare->twin, twin);
    return;
  }
  vec_push(arena, unshare->first, slice);
}

/* ---- copied ops ---- */

/* A single op that may be made twice. */
static bool may_copy(const Op *op) {
  return op && op->code != OP_loop && op->code != OP_load && op->nout == 1 &&
         (op_family(op->code) != FAMILY_COLLECTIVE || op->code == OP_all_reduce);
}

/* From the gradient to the ops that make it: sums over ranks, and chunks of layers that are
   joined. */
static void copy_gradient(const Unshare *unshare, Twin *twin, ValueId value) {
  const Op *op = value_def(unshare->step, value);
  if (!may_copy(op)) return;
  twin->copied[op - unshare->step->ops.at] = true;
  bool goes_on = zero_completes(op) || op->code == OP_concat;
  for (uint32_t i = 0; goes_on && i < op->nin; i++) copy_gradient(unshare, twin, op->in[i]);
}

static bool is_sum(const Op *op) {
  return op->code == OP_cast || op->code == OP_sum || op->code == OP_all_reduce;
}

/* The squares of the gradient and their sum, also over ranks. */
static void copy_squares(const Unshare *unshare, Twin *twin) {
  const Fn *step = unshare->step;
  ValueId leaf = twin->slice.member.leaf;
  for (OpId i = 0; i < step->ops.n; i++) {
    const Op *op = &step->ops.at[i];
    bool squares = op->code == OP_mul && op->in[0] == leaf && op->in[1] == leaf,
         sums = is_sum(op) && twin->square[op->in[0]];
    if (squares || sums) twin->square[op->out] = twin->copied[i] = true;
  }
}

static void mark_copies(const Unshare *unshare, Twin *twin) {
  copy_gradient(unshare, twin, twin->slice.member.leaf);
  copy_squares(unshare, twin);
  for (uint32_t i = 0; i < twin->slice.chain.n; i++) twin->copied[twin->slice.chain.at[i]] = true;
}

/* ---- the step anew ---- */

/* Does it store the parameter, a state of it, or the square of its gradient? */
static bool stores_of(const Twin *twin, const Op *op) {
  const Global *param = twin->slice.member.param;
  size_t n = strlen(guard_prefix);
  bool ours = op->global == param || (!strncmp(op->global->name, guard_prefix, n) &&
                                      !strcmp(op->global->name + n, param->name));
  for (uint32_t i = 0; i < twin->slice.nstates; i++)
    ours |= op->global == twin->slice.member.state[i];
  return ours;
}

static const Twin *twin_of_store(const Unshare *unshare, const Op *op) {
  for (uint32_t i = 0; op->code == OP_store && i < unshare->twin.n; i++)
    if (stores_of(&unshare->twin.at[i], op)) return &unshare->twin.at[i];
  return NULL;
}

static bool is_copied(const Unshare *unshare, OpId at) {
  for (uint32_t i = 0; i < unshare->twin.n; i++)
    if (unshare->twin.at[i].copied[at]) return true;
  return false;
}

static bool stores_copy(const Unshare *unshare, const Op *op) {
  const Twin *twin = twin_of_store(unshare, op);
  const Op *made = twin ? value_def(unshare->step, op->in[0]) : NULL;
  return made && twin->copied[made - unshare->step->ops.at];
}

/* Updates of which only copies are stored are removed. */
static void find_live(Unshare *unshare) {
  const Fn *step = unshare->step;
  bool *read = ARENA_ARRAY(unshare->zero->m->arena, bool, step->values.n + 1);
  for (OpId i = step->ops.n; i-- > 0;) {
    const Op *op = &step->ops.at[i];
    bool live = !is_copied(unshare, i) && !stores_copy(unshare, op);
    for (uint32_t k = 0; k < op->nout; k++) live |= read[op->out + k];
    for (uint32_t k = 0; live && k < op->nin; k++) read[op->in[k]] = true;
    unshare->live[i] = live;
  }
}

/* For one number per round the squares are their sums. */
static bool sums_squares(const Unshare *unshare, const Twin *twin, ValueId value) {
  return twin->square[value] &&
         (is_sum(value_def(unshare->step, value)) || slice_is_number(&twin->slice));
}

/* Counts the ops of the norm that read a sum of squares and are no part of it. */
static uint32_t norm_reads(const Unshare *unshare, const Twin *twin, ValueId value) {
  uint32_t n = 0;
  for (OpId i = 0; i < unshare->step->ops.n; i++) {
    const Op *op = &unshare->step->ops.at[i];
    for (uint32_t k = 0; op->code != OP_store && !twin->copied[i] && k < op->nin; k++)
      n += op->in[k] == value;
  }
  return n;
}

/* Does the norm add the squares once for each parameter that has the gradient, or is there none? */
static bool is_added(const Unshare *unshare, const Twin *twin) {
  uint32_t alike = 1, sums = 0;
  bool fits = true;
  for (uint32_t i = 0; i < unshare->twin.n; i++)
    alike += unshare->twin.at[i].slice.member.leaf == twin->slice.member.leaf;
  for (ValueId v = 0; v < unshare->step->values.n; v++) {
    uint32_t reads = sums_squares(unshare, twin, v) ? norm_reads(unshare, twin, v) : 0;
    sums += reads > 0;
    fits &= !reads || reads == alike;
  }
  return fits && sums <= 1;
}

/* Where the norm has another form, the parameters stay as they are, and W0703 says so. */
static void keep_added(Unshare *unshare) {
  uint32_t n = 0;
  bool *fits = ARENA_ARRAY(unshare->zero->m->arena, bool, unshare->twin.n + 1);
  for (uint32_t i = 0; i < unshare->twin.n; i++) fits[i] = is_added(unshare, &unshare->twin.at[i]);
  for (uint32_t i = 0; i < unshare->twin.n; i++) {
    unshare->shared[unshare->twin.at[i].slice.member.leaf] = fits[i];
    if (fits[i]) unshare->twin.at[n++] = unshare->twin.at[i];
  }
  unshare->twin.n = n;
}

/* The operand by which the norm reads a sum of squares: the first read gets that of the first
   parameter, the next read that of the next one. */
static ValueId next_squares(Unshare *unshare, ValueId value, ValueId otherwise) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < unshare->twin.n; i++) {
    const Twin *twin = &unshare->twin.at[i];
    if (!sums_squares(unshare, twin, value)) continue;
    if (++n != unshare->given[value]) continue;
    unshare->given[value]++;
    return twin->map[value];
  }
  if (n) unshare->given[value]++;
  return otherwise;
}

static void copy_for_twins(Unshare *unshare, Rebuild *rebuild, const Op *op) {
  OpId at = (OpId)(op - unshare->step->ops.at);
  for (uint32_t i = 0; i < unshare->twin.n; i++) {
    Twin *twin = &unshare->twin.at[i];
    if (!twin->copied[at]) continue;
    for (uint32_t k = 0; k < op->nin; k++)
      if (twin->map[op->in[k]] == NO_VALUE) twin->map[op->in[k]] = rebuild->map[op->in[k]];
    fn_clone_op(rebuild->m, rebuild->to, unshare->step, op, twin->map);
  }
}

/* A gradient that no single op makes: a value of its own for each. */
static void part_result(Unshare *unshare, Rebuild *rebuild, ValueId value) {
  if (!unshare->shared[value] || may_copy(value_def(unshare->step, value))) return;
  ValueId made = rebuild->map[value];
  Type type = *value_type(rebuild->to, made);
  for (uint32_t i = 0; i < unshare->twin.n; i++)
    if (unshare->twin.at[i].slice.member.leaf == value)
      unshare->twin.at[i].map[value] =
          emit_typed(rebuild->m, rebuild->to, OP_cast, 1, &made, NULL, type, (Loc){0});
  rebuild->map[value] =
      emit_typed(rebuild->m, rebuild->to, OP_cast, 1, &made, NULL, type, (Loc){0});
}

static void rewrite_op(Unshare *unshare, Rebuild *rebuild, OpId at) {
  const Op *op = &unshare->step->ops.at[at];
  if (stores_copy(unshare, op)) {
    ValueId own = twin_of_store(unshare, op)->map[op->in[0]];
    ir_store(rebuild->m, rebuild->to, op->global, own, op->loc);
    return;
  }
  Op *made = unshare->live[at] ? rebuild_op(rebuild, op) : NULL;
  bool norm = made && op->code != OP_store && !is_copied(unshare, at);
  for (uint32_t i = 0; norm && i < op->nin; i++)
    made->in[i] = next_squares(unshare, op->in[i], made->in[i]);
  copy_for_twins(unshare, rebuild, op);
  for (uint32_t i = 0; i < op->nout; i++) part_result(unshare, rebuild, op->out + i);
}

void zero_unshare(Zero *zero) {
  Unshare unshare = {.zero = zero, .step = zero->step};
  uint32_t values = zero->step->values.n + 1;
  unshare.shared = ARENA_ARRAY(zero->m->arena, bool, values);
  unshare.given = ARENA_ARRAY(zero->m->arena, uint32_t, values);
  for (uint32_t i = 0; i < zero->m->globals.n; i++)
    if (is_updated(zero, zero->m->globals.at[i])) find_twin(&unshare, zero->m->globals.at[i]);
  if (!unshare.twin.n) return;
  unshare.live = ARENA_ARRAY(zero->m->arena, bool, zero->step->ops.n + 1);
  for (uint32_t i = 0; i < unshare.twin.n; i++) mark_copies(&unshare, &unshare.twin.at[i]);
  keep_added(&unshare);
  if (!unshare.twin.n) return;
  find_live(&unshare);
  Rebuild rebuild = rebuild_begin(zero->m, zero->step);
  for (OpId i = 0; i < zero->step->ops.n; i++) rewrite_op(&unshare, &rebuild, i);
  module_replace(zero->m, entry_of(zero->m, "step"), rebuild.to);
  zero->step = rebuild.to;
}
