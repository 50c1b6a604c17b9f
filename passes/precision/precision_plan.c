/* precision, first half: the element type that each value will have.

   Uses are gathered from the last op to the first, through ops that only move indexes; then one
   walk from the first op to the last finds the origin of each value and whether it is rounded.
   Operands of statistics and values that a loop keeps are decided at the end, when all readers are
   known. A kept value that its reader can compute from others in memory is not rounded: pass
   recompute will drop it. */
#include "precision.h"

static bool moves(OpCode c) { return op_family(c) == FAMILY_STRUCT && c != OP_rope; }

bool precision_is_product(const Op *o) {
  return op_family(o->code) == FAMILY_CONTRACT || op_family(o->code) == FAMILY_ATTENTION;
}

static bool is_sum(const Op *o) {
  OpFamily f = op_family(o->code);
  return f == FAMILY_REDUCE || f == FAMILY_SCAN || f == FAMILY_SCATTER;
}

/* ---- uses ---- */

static uint8_t use_of(const Op *o) {
  if (precision_is_product(o)) return USE_PRODUCT;
  if (o->code == OP_loop) return USE_LOOP;
  if (o->code == OP_wide) return USE_WIDE;
  return is_sum(o) ? USE_REDUCTION : 0;
}

static void find_uses(FnPlan *plan, const BodyPlan *body) {
  const Fn *f = plan->f;
  for (uint32_t i = 0; i < f->results.n; i++) {
    bool carried = body->carried[i], sum = !carried && i < body->carry; /* keeps its own type */
    if (!sum) plan->uses[f->results.at[i]] |= carried ? USE_CARRIED : USE_STACKED;
    if (body->wanted[i]) plan->uses[f->results.at[i]] |= USE_WIDE;
  }
}

static void spread_uses(FnPlan *plan) {
  for (uint32_t i = plan->f->ops.n; i-- > 0;) {
    const Op *o = &plan->f->ops.at[i];
    uint8_t use = use_of(o);
    for (uint32_t k = 0; k < o->nout && moves(o->code); k++) use |= plan->uses[o->out + k];
    for (uint32_t k = 0; k < o->nin; k++) plan->uses[o->in[k]] |= use, plan->readers[o->in[k]]++;
  }
}

/* ---- origins of values ---- */

static bool is_float(const FnPlan *plan, ValueId v) { return value_is_float(plan->f, v); }

static Make met(Make a, Make b) {
  if (a == MADE_NEUTRAL || a == b) return b;
  return b == MADE_NEUTRAL ? a : MADE_MIXED;
}

static Make made_of(const FnPlan *plan, const Op *o) {
  Make m = MADE_NEUTRAL;
  for (uint32_t i = 0; i < o->nin; i++)
    if (is_float(plan, o->in[i])) m = met(m, plan->info[o->in[i]].make);
  return m;
}

static bool any_wide(const FnPlan *plan, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (plan->info[o->in[i]].wide) return true;
  return false;
}

/* Was f32 and may be rounded: not one number, not statistics, nothing that is marked. */
static bool may_round(const FnPlan *plan, ValueId v) {
  const Type *t = value_type(plan->f, v);
  const Info *info = &plan->info[v];
  const Op *o = value_def(plan->f, v);
  bool computed = o && (op_family(o->code) == FAMILY_ELEM || o->code == OP_rope ||
                        op_family(o->code) == FAMILY_GATHER);
  return computed && o->code != OP_cast && t->elem == ELEM_f32 && t->rank && !info->wide &&
         (info->make == MADE_NARROW || info->make == MADE_MIXED);
}

static void round_value(Precision *precision, FnPlan *plan, ValueId v) {
  plan->rounded[v] = true, plan->info[v].elem = precision->compute;
}

static Info global_info(const Op *o, Elem elem) {
  bool param = o->global->kind == GLOBAL_PARAM;
  return (Info){elem, param ? MADE_NEUTRAL : MADE_STATS, false};
}

/* All floats narrow: stays narrow. */
static Elem moved_elem(Precision *precision, const FnPlan *plan, const Op *o, Elem was) {
  uint32_t n = o->code == OP_gather ? 1 : o->nin;
  for (uint32_t i = 0; i < n; i++)
    if (plan->info[o->in[i]].elem != precision->compute) return was;
  return n && was == ELEM_f32 ? precision->compute : was;
}

/* Its one reader is an element-wise op over the same dims that waits for nothing else of its size:
   surely in the same kernel, so the sum needs no rounding of its own. */
static const Op *first_reader(const FnPlan *plan, const Op *o) {
  for (const Op *r = o + 1, *end = plan->f->ops.at + plan->f->ops.n; r < end; r++)
    for (uint32_t i = 0; i < r->nin; i++)
      if (r->in[i] == o->out) return r;
  return NULL;
}

static bool waits(const FnPlan *plan, const Op *o, ValueId v) {
  const Op *d = value_def(plan->f, v);
  return v != o->out && value_type(plan->f, v)->rank &&
         (v > o->out || (d && precision_is_product(d)));
}

static bool has_epilogue(const FnPlan *plan, const Op *o) {
  const uint8_t elsewhere = USE_PRODUCT | USE_LOOP | USE_CARRIED | USE_STACKED | USE_REDUCTION;
  const Op *r = first_reader(plan, o);
  if (!r || plan->readers[o->out] != 1 || plan->uses[o->out] & elsewhere) return false;
  if (op_family(r->code) != FAMILY_ELEM || r->code == OP_cast) return false;
  for (uint32_t i = 0; i < r->nin; i++)
    if (waits(plan, o, r->in[i])) return false;
  return type_same_dims(value_type(plan->f, r->out), value_type(plan->f, o->out));
}

static Info product_info(Precision *precision, const FnPlan *plan, const Op *o, uint32_t result) {
  Elem was = value_type(plan->f, o->out + result)->elem;
  bool stats = o->code == OP_attention && result == 1;
  if (was != ELEM_f32 || stats) return (Info){was, MADE_STATS, false};
  bool asked = o->code == OP_dot && (plan->uses[o->out] & USE_WIDE || has_epilogue(plan, o));
  bool narrow = !any_wide(plan, o) && !asked;
  return (Info){narrow ? precision->compute : ELEM_f32, MADE_NARROW, false};
}

static Info info_of(Precision *precision, const FnPlan *plan, const Op *o, uint32_t result) {
  ValueId v = o->out + result;
  Elem was = value_type(plan->f, v)->elem;
  if (elem_class(was) != CLASS_FLOAT) return (Info){was, MADE_NEUTRAL, false};
  if (precision_is_product(o)) return product_info(precision, plan, o, result);
  if (o->code == OP_load) return global_info(o, was);
  if (is_sum(o)) return (Info){was, MADE_STATS, false};
  if (o->code == OP_wide) return (Info){was, MADE_STATS, true};
  Info info = {was, made_of(plan, o), false};
  if (moves(o->code) || o->code == OP_gather) info.elem = moved_elem(precision, plan, o, was);
  if (moves(o->code) || o->code == OP_gather) info.wide = any_wide(plan, o);
  if (o->code == OP_gather && info.make == MADE_NEUTRAL) info.make = MADE_NARROW;
  return info;
}

/* Rows of a table are rounded as its products round them, so that a copy of it in the compute type
   serves both. */
static bool takes_rows(const FnPlan *plan, const Op *o) {
  const Op *table = o->code == OP_gather ? value_def(plan->f, o->in[0]) : NULL;
  bool given = !table || table->code == OP_load;
  return o->code == OP_gather && given && plan->info[o->in[0]].make == MADE_NEUTRAL;
}

static void visit(Precision *precision, FnPlan *fn_plan, const Op *o) {
  if (o->code == OP_loop) {
    BodyPlan *plan = fn_plan->body[o - fn_plan->f->ops.at] = precision_body(precision, o, fn_plan);
    LoopShape shape = loop_shape(o);
    for (uint32_t i = 0; i < o->nout; i++)
      fn_plan->info[o->out + i] =
          i < shape.carry ? plan->args[i + 1] : plan->plan.info[plan->f->results.at[i]];
    return;
  }
  for (uint32_t i = 0; i < o->nout; i++) {
    fn_plan->info[o->out + i] = info_of(precision, fn_plan, o, i);
    bool kept = fn_plan->uses[o->out + i] & (USE_PRODUCT | USE_LOOP | USE_CARRIED) ||
                takes_rows(fn_plan, o);
    if (kept && precision->compute != ELEM_f32 && may_round(fn_plan, o->out + i))
      round_value(precision, fn_plan, o->out + i);
  }
}

/* ---- operands of statistics ---- */

static void mark_readers(FnPlan *plan) { /* a mix of v and statistics reads v */
  EACH_OP (plan->f, o) {
    bool mixes =
        op_family(o->code) == FAMILY_ELEM && o->nout && plan->info[o->out].make == MADE_MIXED;
    for (uint32_t k = 0; k < o->nin && mixes; k++)
      if (plan->info[o->in[k]].make == MADE_NARROW) plan->uses[o->in[k]] |= USE_REDUCTION;
  }
}

/* ---- values that a loop keeps, and values that are read again ---- */

typedef struct Leaves { /* values from which a value can be computed again */
  Precision *p;
  const FnPlan *x;
  bool *seen;
  int64_t count;
  int large;
  bool later; /* by another loop: products are in memory if they are kept */
  bool possible;
} Leaves;

static bool in_memory(const Leaves *leaves, ValueId v) {
  const FnPlan *plan = leaves->x;
  const Op *o = value_def(plan->f, v);
  if (!o || plan->rounded[v] || o->code == OP_load) return true;
  if (op_family(o->code) == FAMILY_ATTENTION) return true;
  return precision_is_product(o) &&
         (leaves->later ? plan->uses[v] & USE_STACKED : plan->info[v].elem == leaves->p->compute);
}

static void find_leaves(Leaves *leaves, ValueId v, bool root) {
  if (leaves->seen[v] || !leaves->possible) return;
  leaves->seen[v] = true;
  const Op *o = value_def(leaves->x->f, v);
  const Type *t = value_type(leaves->x->f, v);
  bool memory = !root && in_memory(leaves, v);
  bool small = !root && leaves->x->info[v].make == MADE_STATS && type_count(t) * 4 <= leaves->count;
  if (memory || small) {
    leaves->large += is_float(leaves->x, v) && type_count(t) >= leaves->count;
    return;
  }
  if (!(op_flags(o->code) & POINT)) leaves->possible = false;
  for (uint32_t i = 0; i < o->nin; i++) find_leaves(leaves, o->in[i], false);
}

static bool computed_again(Precision *precision, const FnPlan *plan, ValueId v, bool later) {
  Leaves leaves = {.p = precision,
                   .x = plan,
                   .later = later,
                   .possible = true,
                   .count = type_count(value_type(plan->f, v))};
  leaves.seen = ARENA_ARRAY(precision->m->arena, bool, plan->f->values.n + 1);
  find_leaves(&leaves, v, true);
  return leaves.possible && leaves.large <= 1;
}

static void round_for_statistics(Precision *precision, FnPlan *plan) {
  mark_readers(plan);
  for (ValueId v = 0; v < plan->f->values.n; v++)
    if (plan->uses[v] & USE_REDUCTION && plan->readers[v] > 1 && !plan->rounded[v] &&
        plan->info[v].make == MADE_NARROW && may_round(plan, v) &&
        !computed_again(precision, plan, v, false))
      round_value(precision, plan, v);
}

static void round_kept(Precision *precision, FnPlan *plan) {
  for (ValueId v = 0; v < plan->f->values.n; v++)
    if (plan->uses[v] & USE_STACKED && !plan->rounded[v] && may_round(plan, v) &&
        !computed_again(precision, plan, v, true))
      round_value(precision, plan, v);
}

/* Rounding at the end also changes ops that move indexes of a rounded value. */
static void settle_moved(Precision *precision, FnPlan *plan) {
  EACH_OP (plan->f, o) {
    if (!moves(o->code) && o->code != OP_gather) continue;
    for (uint32_t k = 0; k < o->nout; k++)
      if (!plan->rounded[o->out + k])
        plan->info[o->out + k].elem =
            moved_elem(precision, plan, o, value_type(plan->f, o->out + k)->elem);
  }
}

FnPlan precision_plan(Precision *precision, const Fn *f, const BodyPlan *body) {
  must(body || f->kind == FN_ENTRY, "precision: nothing is known of the arguments of %s", f->name);
  Arena *arena = precision->m->arena;
  uint32_t n = f->values.n + 1;
  FnPlan plan = {f,
                 ARENA_ARRAY(arena, Info, n),
                 ARENA_ARRAY(arena, uint8_t, n),
                 ARENA_ARRAY(arena, uint32_t, n),
                 ARENA_ARRAY(arena, bool, n),
                 ARENA_ARRAY(arena, BodyPlan *, f->ops.n + 1)};
  for (uint32_t i = 0; i < f->args.n; i++) plan.info[f->args.at[i]] = body->args[i];
  if (body) find_uses(&plan, body);
  spread_uses(&plan);
  for (uint32_t i = 0; i < f->ops.n; i++) visit(precision, &plan, &f->ops.at[i]);
  if (precision->compute == ELEM_f32) return plan;
  round_for_statistics(precision, &plan);
  round_kept(precision, &plan);
  settle_moved(precision, &plan);
  return plan;
}
