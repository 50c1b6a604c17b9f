/* tally: the numbers that evaluations add up over batches, and the number of labels that count in
   a step.

   A mean of means over batches is wrong if batches count unequally: a loss divided by a sum over
   samples (labels that are not ignored, weights) is kept as its terms,

     loss = factor * sum / weight + .. + a term that is linear in sums over samples

   `eval` stores each sum and weight as outputs eval.sum.K and eval.weight.K, and the linear part
   as a sum without a weight, which batches average. The runtime adds these up over batches and
   ranks and divides once. `step` stores its weights as loss.weight.K. No model has a name that
   contains such a number.

     made.eval.terms      number of terms; absent: the loss is linear, or of another form than that
     made.eval.mean       `on`: it is of another form, so batches have a loss each
     made.eval.least.K    a lower bound of the divisor: max(weight, c)
     made.eval.plus.K     it is divided by weight + c
     made.eval.separable  a part of a batch suffices for all sums: no sample needs another

   Last it says where terms of `aux` are those of each micro-batch (aux_parts.c). Must not: change
   the numbers that are computed. */
#include "passes/math/micro.h"
#include <string.h>

typedef struct Quotient {
  ValueId sum, weight; /* weight: NO_VALUE of the linear part */
  double least, plus;
} Quotient;

typedef VEC(Quotient) QuotientList;

typedef struct Tally {
  Module *m;
  Fn *f;
  MicroState *state; /* by value of f before anything was added */
  QuotientList terms;
  bool failed;
} Tally;

/* Assumes that nothing is known before the last batch: counts of labels are sums as well. */
static MicroState *states_of(Module *m, const Fn *f, bool alone, bool *failed) {
  Micro micro = {.m = m, .batch = intern(m->ctx->names, "Batch"), .quiet = true};
  micro.asks = alone, micro.linear = micro.all_sums = true;
  MicroState *s = micro_states(&micro, f, NULL);
  *failed = micro.failed;
  return s;
}

static bool linear(const Tally *tally, ValueId v) { return tally->state[v] != MICRO_AFTER; }

static bool is_number(const Fn *f, ValueId v, double *x) {
  const Op *o = value_def(f, v);
  while (o && (o->code == OP_cast || o->code == OP_expand)) o = value_def(f, o->in[0]);
  if (!o || o->code != OP_const) return false;
  *x = attr_float(&o->attrs, ATTR_value, 0);
  return true;
}

static bool passes_on(const Op *o) {
  return o->code == OP_cast || o->code == OP_wide || o->code == OP_copy || o->code == OP_stop ||
         o->code == OP_share;
}

/* 0 < v, v != 0 */
static bool asks_for_more_than_zero(const Fn *f, ValueId c, ValueId v) {
  const Op *o = value_def(f, c);
  double zero = 1;
  if (o && o->code == OP_not) {
    const Op *equal = value_def(f, o->in[0]);
    if (!equal || equal->code != OP_eq) return false;
    for (int i = 0; i < 2; i++)
      if (equal->in[i] == v && is_number(f, equal->in[1 - i], &zero) && zero == 0) return true;
    return false;
  }
  return o && o->code == OP_lt && o->in[1] == v && is_number(f, o->in[0], &zero) && zero == 0;
}

/* Finds the divisor of a loss: a weight, alone or protected from being 0. */
static bool find_weight(const Tally *tally, ValueId v, Quotient *term) {
  const Op *o = value_def(tally->f, v);
  if (o && passes_on(o) && !linear(tally, v)) return find_weight(tally, o->in[0], term);
  for (int i = 0; o && i < 2 && (o->code == OP_max || o->code == OP_add); i++) {
    double x;
    if (!is_number(tally->f, o->in[1 - i], &x)) continue;
    term->weight = o->in[i];
    *(o->code == OP_max ? &term->least : &term->plus) = x;
  }
  if (o && o->code == OP_where && asks_for_more_than_zero(tally->f, o->in[0], o->in[1]))
    term->weight = o->in[1];
  if (term->weight == NO_VALUE) term->weight = v;
  return tally->state[term->weight] == MICRO_PARTIAL;
}

static ValueId scaled(const Tally *tally, ValueId v, double factor) {
  if (factor == 1) return v;
  Elem e = value_type(tally->f, v)->elem;
  return ir_binary(tally->m, tally->f, OP_mul, v, ir_const(tally->m, tally->f, e, factor, (Loc){0}),
                   (Loc){0});
}

/* Terms with one weight are one. */
static bool add_term(Tally *tally, Quotient term, double factor) {
  const Fn *f = tally->f;
  if (value_type(f, term.sum)->rank) return false;
  if (term.weight != NO_VALUE && value_type(f, term.weight)->rank) return false;
  term.sum = scaled(tally, term.sum, factor);
  for (uint32_t i = 0; i < tally->terms.n; i++) {
    Quotient *other = &tally->terms.at[i];
    if (other->weight != term.weight || other->least != term.least || other->plus != term.plus)
      continue;
    other->sum = ir_binary(tally->m, tally->f, OP_add, other->sum, term.sum, (Loc){0});
    return true;
  }
  vec_push(tally->m->arena, tally->terms, term);
  return true;
}

static bool add_quotient(Tally *tally, ValueId sum, ValueId by, double factor) {
  Quotient term = {.sum = sum, .weight = NO_VALUE};
  return linear(tally, sum) && find_weight(tally, by, &term) && add_term(tally, term, factor);
}

static bool add_loss(Tally *tally, ValueId v, double factor);

/* a * (n / weight) */
static bool add_product(Tally *tally, const Op *o, double factor) {
  double x;
  for (int i = 0; i < 2; i++) {
    if (is_number(tally->f, o->in[i], &x)) return add_loss(tally, o->in[1 - i], factor * x);
    const Op *share = value_def(tally->f, o->in[i]);
    if (share && share->code == OP_div && is_number(tally->f, share->in[0], &x))
      return add_quotient(tally, o->in[1 - i], share->in[1], factor * x);
  }
  return false;
}

/* A loss that is 0 where nothing counts. */
static bool add_choice(Tally *tally, const Op *o, double factor) {
  double x = 1;
  Quotient term = {.weight = NO_VALUE};
  const Op *quotient = value_def(tally->f, o->in[1]);
  if (!is_number(tally->f, o->in[2], &x) || x != 0 || !quotient || quotient->code != OP_div ||
      !find_weight(tally, quotient->in[1], &term) ||
      !asks_for_more_than_zero(tally->f, o->in[0], term.weight))
    return false;
  return add_loss(tally, o->in[1], factor);
}

static bool add_loss(Tally *tally, ValueId v, double factor) {
  if (linear(tally, v)) return add_term(tally, (Quotient){.sum = v, .weight = NO_VALUE}, factor);
  const Op *o = value_def(tally->f, v);
  double x;
  if (passes_on(o)) return add_loss(tally, o->in[0], factor);
  switch (o->code) {
  case OP_neg: return add_loss(tally, o->in[0], -factor);
  case OP_add:
  case OP_sub:
    return add_loss(tally, o->in[0], factor) &&
           add_loss(tally, o->in[1], o->code == OP_sub ? -factor : factor);
  case OP_mul: return add_product(tally, o, factor);
  case OP_div:
    if (is_number(tally->f, o->in[1], &x)) return add_loss(tally, o->in[0], factor / x);
    return add_quotient(tally, o->in[0], o->in[1], factor);
  case OP_where: return add_choice(tally, o, factor);
  default: return false;
  }
}

static void store_number(Tally *tally, const char *name, uint32_t i, ValueId v) {
  Module *m = tally->m;
  Str full = intern_printf(m->ctx->names, "%s.%u", name, i);
  Global *g = module_add_global(m, GLOBAL_OUTPUT, full, type_scalar(ELEM_f32), (Loc){0});
  ir_store(m, tally->f, g, ir_cast(m, tally->f, v, ELEM_f32, (Loc){0}), (Loc){0});
}

static ValueId stored(const Fn *f, const char *name) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && !strcmp(f->ops.at[i].global->name, name))
      return f->ops.at[i].in[0];
  return NO_VALUE;
}

/* The terms of the loss that the entry stores; of a linear one, none. */
static Tally terms_of(Module *m, const char *entry, const char *output) {
  Tally tally = {.m = m, .f = entry_of(m, entry)};
  ValueId loss = tally.f ? stored(tally.f, output) : NO_VALUE;
  if (loss == NO_VALUE) return tally.failed = true, tally;
  tally.state = states_of(m, tally.f, false, &tally.failed);
  if (tally.failed || linear(&tally, loss)) return tally;
  tally.failed = !add_loss(&tally, loss, 1);
  if (tally.failed) tally.terms.n = 0;
  return tally;
}

static void tally_eval(Module *m) {
  Tally tally = terms_of(m, "eval", "eval.loss");
  if (!tally.f) return;
  if (tally.failed) module_set(m, "made.eval.mean", "on");
  for (uint32_t i = 0; i < tally.terms.n; i++) {
    const Quotient *term = &tally.terms.at[i];
    store_number(&tally, "eval.sum", i, term->sum);
    if (term->weight != NO_VALUE) store_number(&tally, "eval.weight", i, term->weight);
    Str k = arena_printf(m->arena, "%u", i);
    if (term->least != 0)
      module_set(m, arena_printf(m->arena, "made.eval.least.%s", k), "%.17g", term->least);
    if (term->plus != 0)
      module_set(m, arena_printf(m->arena, "made.eval.plus.%s", k), "%.17g", term->plus);
  }
  if (tally.terms.n) module_set(m, "made.eval.terms", "%u", tally.terms.n);
}

/* Does nothing that is added up need more than its own sample? */
static void tell_separable(Module *m) {
  bool failed = false;
  const Fn *f = entry_of(m, "eval");
  const MicroState *s = f ? states_of(m, f, true, &failed) : NULL;
  bool terms = module_setting(m, "made.eval.terms", NULL) != NULL;
  for (uint32_t i = 0; f && !failed && i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_store || (terms && !strcmp(o->global->name, "eval.loss"))) continue;
    MicroState state = s[o->in[0]];
    failed |= state != MICRO_PARTIAL && !(terms && (state == MICRO_WHOLE || state == MICRO_ZERO));
  }
  if (f && !failed) module_set(m, "made.eval.separable", "on");
}

static void tally_step(Module *m) {
  Tally tally = terms_of(m, "step", "loss");
  uint32_t n = 0;
  for (uint32_t i = 0; i < tally.terms.n; i++) {
    ValueId weight = tally.terms.at[i].weight;
    if (weight != NO_VALUE) store_number(&tally, "loss.weight", n++, weight);
  }
}

void pass_tally(Module *m) {
  tally_step(m);
  tally_eval(m);
  tell_separable(m);
  aux_parts(m, "step");
  aux_parts(m, "eval");
}
