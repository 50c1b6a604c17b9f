/* recompute: each value that a loop keeps for its backward loop is kept or computed again.

   First, for every pair of loops, the recomputation that is free and therefore needs no setting. A
   kept value is computed again when its producers are POINT ops, back to values that are in memory
   anyway, with at most one large input: the kernel that reads it would read that input instead, so
   memory traffic does not grow. In memory anyway are the loop's operands, values that a
   contraction, attention or inner loop of the forward body reads, values that are live across one,
   and small results of reductions (statistics of rows). If such a value is not kept yet, it is
   kept from now on, in exchange.

   An operand of a contraction is not computed again, unless it needs nothing but the loop's
   operands (masks). A value that is live across one is, if everything it needs is kept in any
   case: then the forward body reads those values as well. So a pre-norm block keeps its input, the
   operands of its products, the result of attention, the residual stream and per-row statistics;
   norms and activations are computed again. Values are judged in order of definition; dropped
   values are replaced by the values they depend on.

   This is what a plan calls `keep = all`. Then the plan's `recompute` lines: recompute_lines.c
   decides which values the layers of each stack keep, recompute_pair.c rewrites the loops. A pair
   in a body that only these lines made (an inner stack whose forward loop was copied) is judged in
   turn.

   Random numbers are functions of logical indexes, so that a second computation gives the same.
   The pass simplifies before and after itself, since it judges by the readers of values. */
#include "passes/simplify/simplify.h"
#include "recompute.h"
#include <string.h>

typedef struct Judge {
  Pair p;
  bool *drop;   /* by value of fwd: is computed again */
  bool *pinned; /* by value of fwd: read from memory, by an op of fwd or of f */
  bool *memory; /* by value of fwd: that, or it lives across such an op */
  bool *free;   /* by value of fwd: made of the loop's operands, constants, positions alone */
  bool *fresh;  /* by value of fwd: was not kept before, is now */
} Judge;

static bool reads_memory(const Op *o) {
  OpFamily family = op_family(o->code);
  return family == FAMILY_CONTRACT || family == FAMILY_ATTENTION || family == FAMILY_CALL;
}

/* The value that holds the number v: for a narrow float cast to a wide one, the narrow one. */
static ValueId held(const Pair *pair, ValueId v) {
  const Op *o = value_def(pair->fwd, v);
  if (!o || o->code != OP_cast) return v;
  const Type *from = value_type(pair->fwd, o->in[0]), *to = value_type(pair->fwd, v);
  bool widens = elem_class(from->elem) == CLASS_FLOAT && elem_class(to->elem) == CLASS_FLOAT &&
                elem_bytes(from->elem) < elem_bytes(to->elem);
  return widens ? o->in[0] : v;
}

/* `barrier` counts the barrier ops so far: a value is live across one if it is used after a later
   barrier than the last one before its definition. */
static void find_memory(Judge *judge) {
  const Pair *pair = &judge->p;
  uint32_t *born = ARENA_ARRAY(pair->m->arena, uint32_t, pair->fwd->values.n + 1), barrier = 0;
  EACH_OP (pair->fwd, o) {
    for (uint32_t j = 0; j < o->nin; j++) {
      if (reads_memory(o)) judge->pinned[o->in[j]] = true;
      ValueId v = held(pair, o->in[j]);
      judge->memory[v] |= judge->pinned[v] || born[v] < barrier;
    }
    barrier += reads_memory(o);
    for (uint32_t j = 0; j < o->nout; j++) born[o->out + j] = barrier;
  }
  for (uint32_t i = 0; i < pair->s1.carry; i++) {
    judge->memory[pair->fwd->args.at[i + 1]] = true;
    judge->memory[pair->fwd->results.at[i]] = true;
  }
}

static void find_free(Judge *judge) {
  const Pair *pair = &judge->p;
  for (uint32_t i = 0; i < pair->fwd->args.n; i++)
    judge->free[pair->fwd->args.at[i]] = i == 0 || i > pair->s1.carry;
  EACH_OP (pair->fwd, o) {
    bool all = op_flags(o->code) & POINT;
    for (uint32_t j = 0; j < o->nin; j++) all &= judge->free[o->in[j]];
    for (uint32_t j = 0; j < o->nout; j++) judge->free[o->out + j] = all;
  }
}

typedef struct RecomputeWalk {
  const Judge *j;
  bool *seen;      /* by value of fwd */
  bool *need;      /* by value of fwd: would have to be kept */
  Type type;       /* of the value in question */
  int large, kept; /* large inputs; inputs that are kept values */
  bool possible;
} RecomputeWalk;

/* As many elements as the value in question; of operands of the loop, only such with all its dims
   (a weight may have more elements than a small batch). */
static bool is_large(const RecomputeWalk *recompute_walk, ValueId v) {
  Type t = *value_type(recompute_walk->j->p.fwd, v);
  t.elem = recompute_walk->type.elem;
  if (!value_def(recompute_walk->j->p.fwd, v))
    return recompute_walk->type.rank && type_contains(&t, &recompute_walk->type);
  return type_count(&t) >= type_count(&recompute_walk->type);
}

static void keep_leaf(RecomputeWalk *recompute_walk, ValueId v) {
  recompute_walk->large += is_large(recompute_walk, v), recompute_walk->kept++;
  if (recompute_walk->j->p.kept[v] == NO_VALUE) recompute_walk->need[v] = true;
}

static bool is_kept(const Judge *judge, ValueId v) {
  return judge->fresh[v] || (judge->p.kept[v] != NO_VALUE && !judge->drop[v]);
}

static bool small(const RecomputeWalk *recompute_walk, ValueId v) {
  return type_count(value_type(recompute_walk->j->p.fwd, v)) * 4 <=
         type_count(&recompute_walk->type);
}

/* Follows v back to values that are kept or may be, and to operands of the loop. */
static void walk(RecomputeWalk *recompute_walk, ValueId v, bool root) {
  if (recompute_walk->seen[v] || !recompute_walk->possible) return;
  recompute_walk->seen[v] = true;
  const Op *def = value_def(recompute_walk->j->p.fwd, v);
  bool in_memory = recompute_walk->j->memory[v] && !recompute_walk->j->free[v];
  if (!root &&
      (is_kept(recompute_walk->j, v) || in_memory || pair_is_carried(&recompute_walk->j->p, v))) {
    keep_leaf(recompute_walk, v);
  } else if (!def) {
    recompute_walk->large += is_large(recompute_walk, v);
  } else if (op_flags(def->code) & POINT) {
    for (uint32_t i = 0; i < def->nin; i++) walk(recompute_walk, def->in[i], false);
  } else if (small(recompute_walk, v)) {
    keep_leaf(recompute_walk, v);
  } else {
    recompute_walk->possible = false;
  }
}

/* Is v computed again? Then the values that have to be kept for that are marked fresh. */
static bool again(Judge *judge, ValueId v) {
  const Pair *pair = &judge->p;
  const Op *def = value_def(pair->fwd, v);
  uint32_t n = pair->fwd->values.n;
  if (!def || !(op_flags(def->code) & POINT)) return false;
  RecomputeWalk recompute_walk = {.j = judge, .type = *value_type(pair->fwd, v), .possible = true};
  recompute_walk.seen = ARENA_ARRAY(pair->m->arena, bool, n + 1),
  recompute_walk.need = ARENA_ARRAY(pair->m->arena, bool, n + 1);
  walk(&recompute_walk, v, true);
  if (!recompute_walk.possible || recompute_walk.large > 1 ||
      (judge->pinned[v] && recompute_walk.kept))
    return false;
  for (ValueId i = 0; i < n; i++)
    if (recompute_walk.need[i] && (judge->memory[v] || !pair_can_keep(pair, i))) return false;
  for (ValueId i = 0; i < n; i++) judge->fresh[i] |= recompute_walk.need[i];
  return true;
}

static Judge judge_of(const Pair *pair) {
  Arena *arena = pair->m->arena;
  uint32_t n = pair->fwd->values.n + 1;
  Judge judge = {.p = *pair};
  judge.drop = ARENA_ARRAY(arena, bool, n), judge.pinned = ARENA_ARRAY(arena, bool, n);
  judge.memory = ARENA_ARRAY(arena, bool, n), judge.free = ARENA_ARRAY(arena, bool, n);
  judge.fresh = ARENA_ARRAY(arena, bool, n);
  for (uint32_t v = 0; v + 1 < n; v++) judge.pinned[v] = pair->outside[v];
  find_memory(&judge);
  find_free(&judge);
  return judge;
}

/* Finds the values that are kept from now on, as one segment of all layers; false: nothing
   changes. */
static bool judge(const Pair *pair, RecomputeChange *change) {
  Judge j = judge_of(pair);
  Segment all = {.count = pair->s1.trip};
  bool any = false;
  all.keep = ARENA_ARRAY(pair->m->arena, bool, pair->fwd->values.n + 1);
  for (ValueId v = 0; v < pair->fwd->values.n; v++)
    if (pair->kept[v] != NO_VALUE && again(&j, v)) j.drop[v] = any = true;
  for (ValueId v = 0; v < pair->fwd->values.n; v++) all.keep[v] = is_kept(&j, v);
  *change = (RecomputeChange){.pair = *pair};
  vec_push(pair->m->arena, change->segments, all);
  return any;
}

/* The first pair of loops with something to compute again, or NULL. */
static Fn *improved(Module *m, const Fn *f) {
  RecomputeChange change;
  Pair pair;
  for (uint32_t j = 0; j < f->ops.n; j++)
    for (uint32_t i = 0; f->ops.at[j].code == OP_loop && i < j; i++)
      if (pair_of(m, f, &f->ops.at[i], &f->ops.at[j], &pair) && !pair_judged(&pair) &&
          judge(&pair, &change))
        return pair_rewrite(m, f, &change, 1, false);
  return NULL;
}

/* Terminates: each round removes a POINT value from the kept values; the values that it adds
   instead are in memory anyway, operands or no POINT values, and these are never removed. */
static void improve_all(Module *m) {
  bool changed;
  do {
    changed = false;
    for (uint32_t i = 0; i < m->fns.n; i++) {
      Fn *n = improved(m, m->fns.at[i]);
      if (n) module_replace(m, m->fns.at[i], n), changed = true;
    }
    if (changed) module_collect(m), simplify_module(m, true);
  } while (changed);
}

/* Terminates: a line judges a pair once, and copies of loops in bodies are nested deeper each
   time. */
void pass_recompute(Module *m) {
  simplify_module(m, true);
  do { improve_all(m); } while (recompute_lines(m));
}
