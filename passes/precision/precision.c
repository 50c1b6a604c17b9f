/* precision: element types of values, from setting plan.precision. Globals stay as they are:
   parameters are f32 master weights, states and outputs f32; but frozen parameters get the type in
   which they are read (precision_frozen.c).

   f32 and tf32 only remove op `wide` (a processor has no products rounded to TF32). With bf16 (and
   f16, whose gradients have a scale: loss_scale.c), f32 values become:

     contractions, attention   operands are rounded to bf16, sums run in f32, results are bf16
     element-wise, reductions  computed in f32; results f32
     a value is rounded once, for all its readers, where it would be in memory: operands of
       products, the state between rounds of a loop, values that a loop keeps, operands of a loop,
       and activations that statistics are taken of
     statistics                sums, inputs, optimizer states, losses, log-sum-exp are not rounded
     values marked @f32        (op `wide`) are not rounded, and products that read them run in f32

   So master weights are cast where a product reads them; fuse lets the product's packing do that,
   and no copy of the weights is kept. Sums over rounds of a loop add up in f32
   (plan.precision.grad).

   The pass plans each function by one walk, bodies of loops with the types of their operands
   (precision_plan.c), then writes it anew (precision_emit.c). */
#include "precision.h"
#include "ir/plan/module_settings.h"
#include <string.h>

/* ---- bodies ---- */

static bool same_infos(const Info *a, const Info *b, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    if (a[i].elem != b[i].elem || a[i].make != b[i].make || a[i].wide != b[i].wide) return false;
  return true;
}

static BodyPlan *plan_body(Precision *precision, const BodyPlan *like) {
  uint32_t results = like->f->results.n;
  for (uint32_t i = 0; i < precision->bodies.n; i++) {
    BodyPlan *plan = precision->bodies.at[i];
    if (plan->f == like->f && same_infos(plan->args, like->args, like->f->args.n) &&
        !memcmp(plan->carried, like->carried, results) &&
        !memcmp(plan->wanted, like->wanted, results))
      return plan;
  }
  BodyPlan *plan = ARENA_ARRAY(precision->m->arena, BodyPlan, 1);
  *plan = *like;
  plan->args = ARENA_ARRAY(precision->m->arena, Info, like->f->args.n + 1);
  plan->carried = ARENA_ARRAY(precision->m->arena, bool, results + 1);
  memcpy(plan->args, like->args, sizeof *plan->args * like->f->args.n);
  memcpy(plan->carried, like->carried, results);
  plan->plan = precision_plan(precision, plan->f, plan);
  vec_push(precision->m->arena, precision->bodies, plan);
  return plan;
}

/* Does carried value i only add something up? Then its only reader is the sum that is carried
   on. */
static bool adds_up(const Fn *body, uint32_t i) {
  ValueId arg = body->args.at[i + 1], result = body->results.at[i];
  const Op *sum = value_def(body, result);
  uint32_t readers = 0;
  for (uint32_t k = 0; k < body->ops.n; k++)
    for (uint32_t j = 0; j < body->ops.at[k].nin; j++) readers += body->ops.at[k].in[j] == arg;
  return readers == 1 && sum && sum->code == OP_add && (sum->in[0] == arg || sum->in[1] == arg);
}

/* The state between rounds: sums are f32, others the compute type unless only statistics are
   carried. */
static Info first_guess(const Precision *precision, const Fn *body, uint32_t i, Info given) {
  const Type *t = value_type(body, body->args.at[i + 1]);
  if (t->elem != ELEM_f32) return given;
  if (adds_up(body, i)) return (Info){t->rank ? precision->added : ELEM_f32, MADE_STATS, false};
  if (given.wide) return (Info){ELEM_f32, MADE_STATS, true};
  if (!t->rank || given.make == MADE_STATS || given.make == MADE_NEUTRAL)
    return (Info){ELEM_f32, MADE_STATS, false};
  return (Info){precision->compute, MADE_NARROW, false};
}

/* A carried result may tell more than the guess for its argument; true if it did. */
static bool revise(const Precision *precision, const BodyPlan *plan, uint32_t i, Info *guess) {
  Info back = plan->plan.info[plan->f->results.at[i]];
  const Type *t = value_type(plan->f, plan->f->args.at[i + 1]);
  if (t->elem != ELEM_f32 || !t->rank || guess->wide || adds_up(plan->f, i)) return false;
  if (back.wide) {
    *guess = (Info){ELEM_f32, MADE_STATS, true};
    return true;
  }
  bool stats = back.make == MADE_STATS || back.make == MADE_NEUTRAL;
  if (stats || guess->elem == precision->compute) return false;
  *guess = (Info){precision->compute, MADE_NARROW, false};
  return true;
}

static BodyPlan *settle(Precision *precision, BodyPlan *like, const LoopShape *shape) {
  for (;;) {
    for (uint32_t i = 0; i < shape->carry; i++) {
      Elem was = value_type(like->f, like->f->args.at[i + 1])->elem;
      like->carried[i] = was == ELEM_f32 && like->args[i + 1].elem == precision->compute;
    }
    BodyPlan *plan = plan_body(precision, like);
    bool again = false;
    for (uint32_t i = 0; i < shape->carry; i++)
      again |= revise(precision, plan, i, &like->args[i + 1]);
    if (!again) return plan;
  }
}

BodyPlan *precision_body(Precision *precision, const Op *loop, const FnPlan *plan) {
  LoopShape shape = loop_shape(loop);
  const Fn *f = loop->callee;
  must(f->args.n == loop->nin + 1 && f->results.n == loop->nout,
       "precision: loop body %s does not fit its call", f->name);
  BodyPlan like = {
      .f = f, .carry = shape.carry, .args = ARENA_ARRAY(precision->m->arena, Info, f->args.n + 1)};
  like.carried = ARENA_ARRAY(precision->m->arena, bool, f->results.n + 1);
  like.wanted = ARENA_ARRAY(precision->m->arena, bool, f->results.n + 1);
  like.args[0] = (Info){value_type(f, f->args.at[0])->elem, MADE_NEUTRAL, false};
  for (uint32_t i = 0; i < loop->nin; i++) {
    Info given = plan->info[loop->in[i]];
    like.args[i + 1] = i < shape.carry ? first_guess(precision, f, i, given) : given;
  }
  for (uint32_t i = 0; i < loop->nout; i++)
    like.wanted[i] = precision->wide_sums && (plan->uses[loop->out + i] & USE_WIDE);
  return settle(precision, &like, &shape);
}

Fn *precision_made(Precision *precision, BodyPlan *plan) {
  if (!plan->made) plan->made = precision_write(precision, &plan->plan, plan);
  return plan->made;
}

/* ---- the pass ---- */

static bool has_wide(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (uint32_t k = 0; k < m->fns.at[i]->ops.n; k++)
      if (m->fns.at[i]->ops.at[k].code == OP_wide) return true;
  return false;
}

static Elem elem_of(Str word) { /* NULL: f32 */
  Elem e = ELEM_f32;
  must(!word || elem_find(word, &e), "precision `%s`", word);
  return e;
}

void pass_precision(Module *m) {
  Str word = plan_precision(m), added = plan_gradient_type(m);
  Elem compute = strcmp(word, "tf32") ? elem_of(word) : ELEM_f32;
  if (compute == ELEM_f32 && !has_wide(m)) return;
  Precision precision = {.m = m, .compute = compute};
  precision.added = elem_of(added);
  precision.wide_sums = added && precision.added == ELEM_f32;
  if (compute == ELEM_f32) precision.added = ELEM_f32;
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; i < n; i++) {
    Fn *f = m->fns.at[i];
    if (f->kind != FN_ENTRY) continue;
    FnPlan plan = precision_plan(&precision, f, NULL);
    module_replace(m, f, precision_write(&precision, &plan, NULL));
  }
  module_collect(m);
  if (compute != ELEM_f32) precision_frozen(m, compute);
}
