/* precision, first half: which element type each value will have.

   Uses are gathered from the last op to the first, through ops that only move indexes; then one
   walk from the first op to the last says what each value is made of and whether it is rounded.
   What statistics are taken of and what a loop keeps is decided at the end, when all readers are
   known. A kept value that its reader can compute from others in memory is not rounded: pass
   recompute will drop it. */
#include "passes/precision.h"

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

static void find_uses(FnPlan *x, const BodyPlan *body) {
  const Fn *f = x->f;
  for (uint32_t i = 0; i < f->results.n; i++) {
    bool carried = body->carried[i], sum = !carried && i < body->carry; /* goes round as it is */
    if (!sum) x->uses[f->results.at[i]] |= carried ? USE_CARRIED : USE_STACKED;
    if (body->wanted[i]) x->uses[f->results.at[i]] |= USE_WIDE;
  }
}

static void spread_uses(FnPlan *x) {
  for (uint32_t i = x->f->ops.n; i-- > 0;) {
    const Op *o = &x->f->ops.at[i];
    uint8_t use = use_of(o);
    for (uint32_t k = 0; k < o->nout && moves(o->code); k++) use |= x->uses[o->out + k];
    for (uint32_t k = 0; k < o->nin; k++) x->uses[o->in[k]] |= use, x->readers[o->in[k]]++;
  }
}

/* ---- what values are made of ---- */

static bool is_float(const FnPlan *x, ValueId v) {
  return elem_class(value_type(x->f, v)->elem) == CLASS_FLOAT;
}

static Make met(Make a, Make b) {
  if (a == MADE_NEUTRAL || a == b) return b;
  return b == MADE_NEUTRAL ? a : MADE_MIXED;
}

static Make made_of(const FnPlan *x, const Op *o) {
  Make m = MADE_NEUTRAL;
  for (uint32_t i = 0; i < o->nin; i++)
    if (is_float(x, o->in[i])) m = met(m, x->info[o->in[i]].make);
  return m;
}

static bool any_wide(const FnPlan *x, const Op *o) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (x->info[o->in[i]].wide) return true;
  return false;
}

/* Was f32 and may be rounded: not one number, not statistics, nothing that is marked. */
static bool may_round(const FnPlan *x, ValueId v) {
  const Type *t = value_type(x->f, v);
  const Info *i = &x->info[v];
  const Op *o = value_def(x->f, v);
  bool computed = o && (op_family(o->code) == FAMILY_ELEM || o->code == OP_rope ||
                        op_family(o->code) == FAMILY_GATHER);
  return computed && o->code != OP_cast && t->elem == ELEM_f32 && t->rank && !i->wide &&
         (i->make == MADE_NARROW || i->make == MADE_MIXED);
}

static void round_value(Precision *p, FnPlan *x, ValueId v) {
  x->rounded[v] = true, x->info[v].elem = p->compute;
}

static Info global_info(const Op *o, Elem elem) {
  bool param = o->global->kind == GLOBAL_PARAM;
  return (Info){elem, param ? MADE_NEUTRAL : MADE_STATS, false};
}

/* All floats narrow: stays narrow. */
static Elem moved_elem(Precision *p, const FnPlan *x, const Op *o, Elem was) {
  uint32_t n = o->code == OP_gather ? 1 : o->nin;
  for (uint32_t i = 0; i < n; i++)
    if (x->info[o->in[i]].elem != p->compute) return was;
  return n && was == ELEM_f32 ? p->compute : was;
}

/* Its one reader is an element-wise op over the same dims that waits for nothing else of its size:
   surely in the same kernel, so the sum needs no rounding of its own. */
static const Op *first_reader(const FnPlan *x, const Op *o) {
  for (const Op *r = o + 1, *end = x->f->ops.at + x->f->ops.n; r < end; r++)
    for (uint32_t i = 0; i < r->nin; i++)
      if (r->in[i] == o->out) return r;
  return NULL;
}

static bool waits(const FnPlan *x, const Op *o, ValueId v) {
  const Op *d = value_def(x->f, v);
  return v != o->out && value_type(x->f, v)->rank && (v > o->out || (d && precision_is_product(d)));
}

static bool has_epilogue(const FnPlan *x, const Op *o) {
  const uint8_t elsewhere = USE_PRODUCT | USE_LOOP | USE_CARRIED | USE_STACKED | USE_REDUCTION;
  const Op *r = first_reader(x, o);
  if (!r || x->readers[o->out] != 1 || x->uses[o->out] & elsewhere) return false;
  if (op_family(r->code) != FAMILY_ELEM || r->code == OP_cast) return false;
  for (uint32_t i = 0; i < r->nin; i++)
    if (waits(x, o, r->in[i])) return false;
  return type_same_dims(value_type(x->f, r->out), value_type(x->f, o->out));
}

static Info product_info(Precision *p, const FnPlan *x, const Op *o, uint32_t result) {
  Elem was = value_type(x->f, o->out + result)->elem;
  bool stats = o->code == OP_attention && result == 1;
  if (was != ELEM_f32 || stats) return (Info){was, MADE_STATS, false};
  bool asked = o->code == OP_dot && (x->uses[o->out] & USE_WIDE || has_epilogue(x, o));
  bool narrow = !any_wide(x, o) && !asked;
  return (Info){narrow ? p->compute : ELEM_f32, MADE_NARROW, false};
}

static Info info_of(Precision *p, const FnPlan *x, const Op *o, uint32_t result) {
  ValueId v = o->out + result;
  Elem was = value_type(x->f, v)->elem;
  if (elem_class(was) != CLASS_FLOAT) return (Info){was, MADE_NEUTRAL, false};
  if (precision_is_product(o)) return product_info(p, x, o, result);
  if (o->code == OP_load) return global_info(o, was);
  if (is_sum(o)) return (Info){was, MADE_STATS, false};
  if (o->code == OP_wide) return (Info){was, MADE_STATS, true};
  Info i = {was, made_of(x, o), false};
  if (moves(o->code) || o->code == OP_gather) i.elem = moved_elem(p, x, o, was);
  if (moves(o->code) || o->code == OP_gather) i.wide = any_wide(x, o);
  if (o->code == OP_gather && i.make == MADE_NEUTRAL) i.make = MADE_NARROW;
  return i;
}

/* Rows of a table are rounded as its products round them, so that a copy of it in the compute type
   serves both. */
static bool takes_rows(const FnPlan *x, const Op *o) {
  const Op *table = o->code == OP_gather ? value_def(x->f, o->in[0]) : NULL;
  bool given = !table || table->code == OP_load;
  return o->code == OP_gather && given && x->info[o->in[0]].make == MADE_NEUTRAL;
}

static void visit(Precision *p, FnPlan *x, const Op *o) {
  if (o->code == OP_loop) {
    BodyPlan *b = x->body[o - x->f->ops.at] = precision_body(p, o, x);
    LoopShape s = loop_shape(o);
    for (uint32_t i = 0; i < o->nout; i++)
      x->info[o->out + i] = i < s.carry ? b->args[i + 1] : b->plan.info[b->f->results.at[i]];
    return;
  }
  for (uint32_t i = 0; i < o->nout; i++) {
    x->info[o->out + i] = info_of(p, x, o, i);
    bool kept = x->uses[o->out + i] & (USE_PRODUCT | USE_LOOP | USE_CARRIED) || takes_rows(x, o);
    if (kept && p->compute != ELEM_f32 && may_round(x, o->out + i)) round_value(p, x, o->out + i);
  }
}

/* ---- what statistics are taken of ---- */

static void mark_readers(FnPlan *x) { /* a mix of v and statistics reads v */
  for (uint32_t i = 0; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    bool mixes = op_family(o->code) == FAMILY_ELEM && o->nout && x->info[o->out].make == MADE_MIXED;
    for (uint32_t k = 0; k < o->nin && mixes; k++)
      if (x->info[o->in[k]].make == MADE_NARROW) x->uses[o->in[k]] |= USE_REDUCTION;
  }
}

/* ---- what a loop keeps, and what is read again ---- */

typedef struct Leaves { /* what a value can be computed again from */
  Precision *p;
  const FnPlan *x;
  bool *seen;
  int64_t count;
  int large;
  bool later; /* by another loop: products are in memory if they are kept */
  bool possible;
} Leaves;

static bool in_memory(const Leaves *l, ValueId v) {
  const FnPlan *x = l->x;
  const Op *o = value_def(x->f, v);
  if (!o || x->rounded[v] || o->code == OP_load) return true;
  if (op_family(o->code) == FAMILY_ATTENTION) return true;
  return precision_is_product(o) &&
         (l->later ? x->uses[v] & USE_STACKED : x->info[v].elem == l->p->compute);
}

static void find_leaves(Leaves *l, ValueId v, bool root) {
  if (l->seen[v] || !l->possible) return;
  l->seen[v] = true;
  const Op *o = value_def(l->x->f, v);
  const Type *t = value_type(l->x->f, v);
  bool memory = !root && in_memory(l, v);
  bool small = !root && l->x->info[v].make == MADE_STATS && type_count(t) * 4 <= l->count;
  if (memory || small) {
    l->large += is_float(l->x, v) && type_count(t) >= l->count;
    return;
  }
  if (!(op_flags(o->code) & POINT)) l->possible = false;
  for (uint32_t i = 0; i < o->nin; i++) find_leaves(l, o->in[i], false);
}

static bool computed_again(Precision *p, const FnPlan *x, ValueId v, bool later) {
  Leaves l = {
      .p = p, .x = x, .later = later, .possible = true, .count = type_count(value_type(x->f, v))};
  l.seen = ARENA_ARRAY(p->m->arena, bool, x->f->values.n + 1);
  find_leaves(&l, v, true);
  return l.possible && l.large <= 1;
}

static void round_for_statistics(Precision *p, FnPlan *x) {
  mark_readers(x);
  for (ValueId v = 0; v < x->f->values.n; v++)
    if (x->uses[v] & USE_REDUCTION && x->readers[v] > 1 && !x->rounded[v] &&
        x->info[v].make == MADE_NARROW && may_round(x, v) && !computed_again(p, x, v, false))
      round_value(p, x, v);
}

static void round_kept(Precision *p, FnPlan *x) {
  for (ValueId v = 0; v < x->f->values.n; v++)
    if (x->uses[v] & USE_STACKED && !x->rounded[v] && may_round(x, v) &&
        !computed_again(p, x, v, true))
      round_value(p, x, v);
}

/* Rounding at the end changes what moves indexes of the rounded. */
static void settle_moved(Precision *p, FnPlan *x) {
  for (uint32_t i = 0; i < x->f->ops.n; i++) {
    const Op *o = &x->f->ops.at[i];
    if (!moves(o->code) && o->code != OP_gather) continue;
    for (uint32_t k = 0; k < o->nout; k++)
      if (!x->rounded[o->out + k])
        x->info[o->out + k].elem = moved_elem(p, x, o, value_type(x->f, o->out + k)->elem);
  }
}

FnPlan precision_plan(Precision *p, const Fn *f, const BodyPlan *body) {
  must(body || f->kind == FN_ENTRY, "precision: nothing is known of the arguments of %s", f->name);
  Arena *a = p->m->arena;
  uint32_t n = f->values.n + 1;
  FnPlan x = {f,
              ARENA_ARRAY(a, Info, n),
              ARENA_ARRAY(a, uint8_t, n),
              ARENA_ARRAY(a, uint32_t, n),
              ARENA_ARRAY(a, bool, n),
              ARENA_ARRAY(a, BodyPlan *, f->ops.n + 1)};
  for (uint32_t i = 0; i < f->args.n; i++) x.info[f->args.at[i]] = body->args[i];
  if (body) find_uses(&x, body);
  spread_uses(&x);
  for (uint32_t i = 0; i < f->ops.n; i++) visit(p, &x, &f->ops.at[i]);
  if (p->compute == ELEM_f32) return x;
  round_for_statistics(p, &x);
  round_kept(p, &x);
  settle_moved(p, &x);
  return x;
}
