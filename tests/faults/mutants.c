/* Seeded faults: does anything notice if a pass makes a mistake?

   A small model runs to each pass in turn. Then one thing is changed: an operand, an attribute, a
   dim, an offset, a place, a tile. Then the verifier must refuse the module, or the interpreter (in
   bytes after `memory`) must report, or the numbers of some entry must differ from those of the
   sound module. A fault that nothing notices is a survivor, and the test fails.

     mutants MODEL.shard COUNT [SEED]      COUNT faults after each pass
     mutants MODEL.shard -SEED             shows that one

   A fault that by its nature changes no number is no fault. Which those are is not a list of cases:
   operands of commutative ops in the other order; ops whose result reaches nothing; changes after
   which pass simplify makes both modules the same (equal expressions, before they are joined);
   values that are equivalent by `as_good` and `neutral`; results in place, or placed elsewhere,
   where the verifier's rules for that allow it; cuts of kernels that are as right as the rule's,
   which the tests of codegen prove. */
#include "frontend/lower.h"
#include "ir/bytes.h"
#include "ir/interp/interp.h"
#include "ir/plan/module_settings.h"
#include "made_up.h"
#include "mutants.h"
#include "passes/pass.h"
#include "passes/simplify/simplify.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t fault_below(Fault *x, uint64_t n) {
  x->random = x->random * 6364136223846793005u + 1442695040888963407u;
  return n ? (uint32_t)((x->random >> 33) % n) : 0;
}

/* ---- values and operands ---- */

static bool same_type(const Fn *f, ValueId a, ValueId b) {
  return type_same_dims(&f->values.at[a].type, &f->values.at[b].type) &&
         f->values.at[a].type.elem == f->values.at[b].type.elem;
}

/* The maximum that log-sum-exp subtracts has no gradient in total; the loss and the norm, whose
   absolute values the guard of a step asks for, are never negative; `wide` keeps what is f32. */
static ValueId undressed(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  if (!o || !o->nin) return v;
  bool kept = o->code == OP_wide && f->values.at[v].type.elem == f->values.at[o->in[0]].type.elem;
  return o->code == OP_stop || o->code == OP_abs || kept ? o->in[0] : v;
}

/* Are both the same, computed in the same way, though perhaps with axes in another order? */
static bool same_value(const Fn *f, ValueId a, ValueId b) {
  const Op *p = value_def(f, a = undressed(f, a)), *q = value_def(f, b = undressed(f, b));
  if (a == b) return true;
  if (!p || !q || p->nin != q->nin || p->nout != 1 || p->global || !op_alike(p, q)) return false;
  for (uint32_t i = 0; i < p->nin; i++)
    if (!same_value(f, p->in[i], q->in[i])) return false;
  return true;
}

/* Does v, and all that is made of it, reach but first choices of `where guard`? */
static bool let_through_by(const Fn *f, ValueId guard, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return false;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v || (o->code == OP_where && o->in[0] == guard && k == 1)) continue;
      if (o->nout != 1 || o->callee || !let_through_by(f, guard, o->out)) return false;
    }
  }
  return true;
}

/* One is `where guard, the other, something`, and the result counts only where the guard holds. */
static bool same_behind_guard(const Fn *f, const Op *at, ValueId a, ValueId b) {
  for (int i = 0; i < 2; i++) {
    const Op *o = value_def(f, i ? a : b);
    if (o && o->code == OP_where && o->in[1] == (i ? b : a) && at->nout == 1 &&
        !f->values.at[o->in[0]].type.rank && let_through_by(f, o->in[0], at->out))
      return true;
  }
  return false;
}

static ValueId without_factor(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v = undressed(f, v));
  const Op *c = o && o->code == OP_mul ? value_def(f, o->in[1]) : NULL;
  return c && c->code == OP_const ? undressed(f, o->in[0]) : v;
}

/* Whether something is finite does not depend on the mean's factor. */
static bool both_finite(const Fn *f, const Op *at, ValueId a, ValueId b) {
  const Op *limit = at->code == OP_lt ? value_def(f, at->in[1]) : NULL;
  return limit && limit->code == OP_const && isinf(attr_float(&limit->attrs, ATTR_value, 0)) &&
         without_factor(f, a) == without_factor(f, b);
}

static bool loads_same(const Fn *f, ValueId a, ValueId b) {
  const Op *p = value_def(f, a), *q = value_def(f, b);
  return p && q && p->code == OP_load && q->code == OP_load && p->global == q->global;
}

static ValueId without_root(const Fn *f, ValueId v) {
  const Op *o = value_def(f, v);
  return o && o->code == OP_sqrt ? o->in[0] : v;
}

/* The root of a second moment also shows whether it is above 0. */
static bool both_above_0(const Fn *f, const Op *at, ValueId a, ValueId b) {
  const Op *zero = at->code == OP_lt ? value_def(f, at->in[0]) : NULL;
  if (!zero || zero->code != OP_const || attr_float(&zero->attrs, ATTR_value, 1) != 0) return false;
  ValueId of_a = without_root(f, a), of_b = without_root(f, b);
  return of_a == of_b || loads_same(f, of_a, of_b);
}

static bool as_good(const Fn *f, const Op *at, ValueId a, ValueId b) {
  return same_value(f, a, b) || same_behind_guard(f, at, a, b) || both_finite(f, at, a, b) ||
         both_above_0(f, at, a, b);
}

/* Another value of the type of v that is defined above op; NO_VALUE if there is none. */
ValueId fault_another(Fault *x, ValueId v) {
  VEC(ValueId) list = {0};
  for (ValueId i = 0; i < x->f->values.n; i++) {
    const Value *u = &x->f->values.at[i];
    bool above = u->def == NO_OP || u->def < x->at;
    if (above && i != v && same_type(x->f, i, v) && !as_good(x->f, x->op, v, i))
      vec_push(x->m->arena, list, i);
  }
  return list.n ? list.at[fault_below(x, list.n)] : NO_VALUE;
}

static bool other_operand(Fault *x) {
  if (!x->op->nin || x->op->code == OP_abs) return false; /* used in the guard only */
  uint32_t which = fault_below(x, x->op->nin);
  ValueId v = fault_another(x, x->op->in[which]);
  if (v == NO_VALUE) return false;
  x->op->in[which] = v, x->what = "another operand";
  return true;
}

static bool commutes(OpCode c) {
  static const OpCode list[] = {OP_add, OP_mul, OP_min, OP_max, OP_and, OP_or, OP_eq, OP_dot};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (list[i] == c) return true;
  return false;
}

/* Also a kernel that consists of one such op. */
static bool commutative(const Op *o) {
  if (o->code != OP_kernel || !o->callee->ops.n) return commutes(o->code);
  OpCode all = o->callee->ops.at[0].code;
  for (OpId i = 0; i < o->callee->ops.n; i++)
    if (o->callee->ops.at[i].code != all) return false;
  return commutes(all);
}

static bool swapped_operands(Fault *x) {
  if (x->op->nin < 2 || commutative(x->op)) return false;
  uint32_t i = fault_below(x, x->op->nin), j = fault_below(x, x->op->nin);
  ValueId v = x->op->in[i];
  if (v == x->op->in[j] || !same_type(x->f, v, x->op->in[j])) return false;
  x->op->in[i] = x->op->in[j], x->op->in[j] = v, x->what = "swapped operands";
  return true;
}

/* A product of `to` with the constant 1; the absolute value of a loss that is not negative. */
static bool neutral(const Fn *f, const Op *o, ValueId to) {
  if (o->code == OP_abs) return true;
  for (uint32_t i = 0; o->code == OP_mul && i < o->nin; i++) {
    const Op *c = value_def(f, o->in[i]);
    if (o->in[i] != to && c && c->code == OP_const &&
        fabs(attr_float(&c->attrs, ATTR_value, 0) - 1) < 1e-9)
      return true;
  }
  return false;
}

/* Its operand instead of it, as if the op (an accumulation, an activation) had been forgotten. */
static bool dropped_op(Fault *x) {
  const Op *o = x->op;
  if (!o->nin || o->nout != 1 || o->code == OP_stop) return false;
  ValueId to = o->in[fault_below(x, o->nin)];
  if (!same_type(x->f, to, o->out) || neutral(x->f, o, to)) return false;
  for (OpId i = x->at + 1; i < x->f->ops.n; i++)
    for (uint32_t k = 0; k < x->f->ops.at[i].nin; k++)
      if (x->f->ops.at[i].in[k] == o->out) x->f->ops.at[i].in[k] = to;
  for (uint32_t i = 0; i < x->f->results.n; i++)
    if (x->f->results.at[i] == o->out) x->f->results.at[i] = to;
  x->what = "dropped op";
  return true;
}

static bool swapped_results(Fault *x) {
  uint32_t n = x->f->results.n, i = fault_below(x, n), j = fault_below(x, n);
  if (n < 2) return false;
  ValueId v = x->f->results.at[i];
  if (v == x->f->results.at[j] || !same_type(x->f, v, x->f->results.at[j])) return false;
  x->f->results.at[i] = x->f->results.at[j], x->f->results.at[j] = v;
  x->what = "swapped results of the function";
  return true;
}

static bool other_op(Fault *x) {
  static const OpCode pairs[][2] = {{OP_add, OP_sub}, {OP_mul, OP_div},   {OP_exp, OP_sqrt},
                                    {OP_lt, OP_le},   {OP_sum, OP_rmax},  {OP_tanh, OP_sigmoid},
                                    {OP_max, OP_min}, {OP_rsqrt, OP_sqrt}};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    for (int k = 0; k < 2; k++)
      if (x->op->code == pairs[i][k]) {
        x->op->code = pairs[i][!k], x->what = "another op";
        return true;
      }
  return false;
}

static bool swapped_ops(Fault *x) {
  Op *next = x->at + 1 < x->f->ops.n ? x->op + 1 : NULL;
  if (!next) return false;
  bool meet = false;
  for (uint32_t i = 0; i < next->nin; i++)
    meet |= next->in[i] >= x->op->out && next->in[i] < x->op->out + x->op->nout;
  if (!meet) return false; /* an order that is as good */
  Op o = *x->op;
  *x->op = *next, *next = o;
  for (uint32_t i = 0; i < x->op->nout; i++) x->f->values.at[x->op->out + i].def = x->at;
  for (uint32_t i = 0; i < next->nout; i++) x->f->values.at[next->out + i].def = x->at + 1;
  x->what = "two ops in the wrong order";
  return true;
}

/* ---- dims, attributes, globals ---- */

static bool other_dim(Fault *x) {
  if (!x->op->ngroups || !x->op->nin) return false;
  Group *g = &x->op->group[fault_below(x, (uint64_t)x->op->ngroups)];
  const Type *t = &x->f->values.at[x->op->in[0]].type;
  if (!g->nfrom || !t->rank) return false;
  Str dim = t->axis[fault_below(x, (uint64_t)t->rank)].dim;
  if (dim == g->from[0]) return false;
  g->from[0] = dim, x->what = "another dim";
  return true;
}

static bool other_number(Fault *x) {
  if (!x->op->attrs.n) return false;
  Attr *a = &x->op->attrs.at[fault_below(x, x->op->attrs.n)];
  if (attr_kind(a->key) == ATTR_INT) a->i += fault_below(x, 2) ? 1 : -1;
  else if (attr_kind(a->key) == ATTR_FLOAT && isfinite(a->f)) a->f = a->f * 1.5 + 1;
  else if (attr_kind(a->key) == ATTR_INTS && a->i) a->list[fault_below(x, (uint64_t)a->i)] += 4;
  else return false;
  x->what = arena_printf(x->m->arena, "attribute %s", attr_name(a->key));
  return true;
}

static bool other_global(Fault *x) {
  if (!x->op->global) return false;
  Global *g = x->m->globals.at[fault_below(x, x->m->globals.n)];
  if (g == x->op->global || !type_same_dims(&g->type, &x->op->global->type)) return false;
  if (g->type.elem != x->op->global->type.elem) return false;
  x->op->global = g, x->what = "another global";
  return true;
}

static bool dropped_store(Fault *x) {
  if (x->op->code != OP_store) return false;
  memmove(x->op, x->op + 1, sizeof *x->op * (x->f->ops.n - x->at - 1));
  x->f->ops.n--;
  for (ValueId v = 0; v < x->f->values.n; v++)
    if (x->f->values.at[v].def != NO_OP && x->f->values.at[v].def > x->at) x->f->values.at[v].def--;
  x->what = "dropped store";
  return true;
}

static bool other_callee(Fault *x) {
  if (!x->op->callee) return false;
  Fn *f = x->m->fns.at[fault_below(x, x->m->fns.n)];
  if (f == x->op->callee) return false;
  x->op->callee = f, x->what = "another function";
  return true;
}

/* ---- one fault ---- */

static bool (*const faults[])(Fault *) = {other_operand,
                                          swapped_operands,
                                          dropped_op,
                                          swapped_results,
                                          other_op,
                                          swapped_ops,
                                          other_dim,
                                          other_number,
                                          other_global,
                                          dropped_store,
                                          other_callee,
                                          fault_other_stride,
                                          fault_other_view,
                                          fault_new_view,
                                          fault_other_place,
                                          fault_smaller_frame,
                                          fault_other_place,
                                          other_operand,
                                          fault_other_shape_of_kernel,
                                          fault_other_row};

/* Does the value reach a result, a store, or an argument that its function uses? */
static bool live(const Fn *f, ValueId v) {
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return true;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++) {
      if (o->in[k] != v) continue;
      bool used = !o->nout;
      for (uint32_t r = 0; r < o->nout; r++) used |= live(f, o->out + r);
      if (used && (!o->callee || live(o->callee, o->callee->args.at[k + (o->code == OP_loop)])))
        return true;
    }
  }
  return false;
}

static bool reaches_nothing(const Fn *f, const Op *o) {
  for (uint32_t i = 0; i < o->nout; i++)
    if (live(f, o->out + i)) return false;
  return o->nout > 0;
}

/* Concats are few among the ops: where there are any, one of them is looked at now and then. */
static const char *seed_laid(Fault *x) {
  VEC(Op *) all = {0};
  VEC(Fn *) of = {0};
  for (uint32_t i = 0; i < x->m->fns.n; i++)
    for (OpId k = 0; k < x->m->fns.at[i]->ops.n; k++) {
      Op *o = &x->m->fns.at[i]->ops.at[k];
      if (!op_lays(x->m->fns.at[i], o)) continue;
      vec_push(x->m->arena, all, o);
      vec_push(x->m->arena, of, x->m->fns.at[i]);
    }
  if (!all.n || fault_below(x, 3)) return NULL;
  uint32_t which = fault_below(x, all.n);
  x->f = of.at[which], x->op = all.at[which], x->at = (OpId)(x->op - x->f->ops.at);
  if (!fault_other_laid(x)) return NULL;
  return arena_printf(x->m->arena, "@%s, op %u (concat): %s", x->f->name, x->at, x->what);
}

/* Lists of blocks are also few: they get half of the faults of a module that has some. */
static const char *seed_lists(Fault *x) {
  if (!x->m->lists.n || fault_below(x, 2)) return NULL;
  for (int tries = 0; tries < 100; tries++)
    if (fault_other_lists(x)) return arena_printf(x->m->arena, "lists: %s", x->what);
  return NULL;
}

static const char *seed_fault(Module *m, uint64_t seed) {
  Fault x = {.m = m, .random = seed * 2862933555777941757u + 3037000493u};
  const char *lists = seed_lists(&x);
  if (lists) return lists;
  const char *laid = seed_laid(&x);
  if (laid) return laid;
  for (int tries = 0; tries < 2000; tries++) {
    x.f = m->fns.at[fault_below(&x, m->fns.n)];
    if (!x.f->ops.n) continue;
    x.at = fault_below(&x, x.f->ops.n), x.op = &x.f->ops.at[x.at];
    OpId at = x.at;
    if (reaches_nothing(x.f, x.op)) continue;
    const char *op = op_name(x.op->code);
    if (faults[fault_below(&x, sizeof faults / sizeof *faults)](&x))
      return arena_printf(m->arena, "@%s, op %u (%s): %s", x.f->name, at, op, x.what);
  }
  return NULL;
}

/* ---- running ---- */

/* Steps that are sick try what guards a step against numbers that are not finite. Small weights
   have gradients too short to be clipped. With the large embedding the loss is infinite and the
   gradients' norm finite; with the large weights at the end it is the other way round. */
enum { RUNS = 35 };
static const struct Run {
  const char *entry;
  int step;       /* in the warm-up, at its end, after it, past the end */
  double sick;    /* instead of the first weight; 0: nothing */
  double scale;   /* of the weights */
  const char *of; /* which ones; NULL: all */
} runs[RUNS] = {{"init", 3, 0, 1, NULL},
                {"step", 2, 0, 1, NULL},
                {"step", 5, 0, 1, NULL},
                {"step", 25, 0, 1, NULL},
                {"eval", 3, 0, 1, NULL},
                {"logits", 3, 0, 1, NULL},
                {"step", 3, INFINITY, 1, NULL},
                {"step", 3, 1e25, 1, NULL},
                {"step", 3, 0, 40, NULL},
                {"eval", 3, 0, 40, NULL},
                {"step", 4, 0, 0.02, NULL},
                {"step", 5, 0, 4e18, "wte"},
                {"step", 5, 0, 1e19, "h.*.down.w"},
                {"step", 5, 0, 1e18, "s"},
                {"step", 5, 0, 6e18, "b"},
                {"step.frozen", 5, 0, 1, NULL},
                {"step.frozen", 2, 0, 1, NULL},
                {"step.frozen", 3, INFINITY, 1, NULL},
                {"step.frozen", 3, 1e25, 1, NULL},
                {"step.frozen", 4, 0, 0.02, NULL},
                {"step.frozen", 5, 0, 1.2e19, "w"},
                {"step.frozen", 5, 0, 2e19, "w"},
                {"step.freeze", 5, 0, 1, NULL},
                {"step.freeze", 5, 0, 40, NULL},
                {"step.frozen", 5, 0, 1e7, NULL},
                {"step.thaw", 5, 0, 1, NULL},
                {"step.thaw", 5, 0, 40, NULL},
                {"step.thaw", 3, INFINITY, 1, NULL},
                {"step.late", 4, 0, 1, NULL},
                {"step.late", 5, 0, 1, NULL},
                {"step.late", 25, 0, 1, NULL},
                {"step.late", 5, INFINITY, 1, NULL},
                {"step.late", 5, 1e25, 1, NULL},
                {"step.late", 5, 0, 0.02, NULL},
                {"refresh", 5, 0, 1, NULL}};

static bool is_second_moment(const Global *g) {
  size_t n = strlen(g->name);
  return g->kind == GLOBAL_STATE && n > 2 && !strcmp(g->name + n - 2, ".v");
}

static Interp *filled(Module *m, const struct Run *r) {
  Interp *in = interp_new(m, m->arena);
  const Global *first = NULL;
  for (uint32_t i = 0; i < m->globals.n && !first; i++)
    if (m->globals.at[i]->kind == GLOBAL_PARAM) first = m->globals.at[i];
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t n = type_count(&g->type);
    double *x = ARENA_ARRAY(m->arena, double, n);
    bool scaled = g->kind == GLOBAL_PARAM && (!r->of || !strcmp(r->of, g->name));
    double scale = scaled ? r->scale : 1;
    for (int64_t k = 0; k < n; k++) x[k] = scale * made_up(g, k, m);
    for (int64_t k = 0; is_second_moment(g) && k < n; k += 5) x[k] = 0; /* never had a gradient */
    if (g->kind == GLOBAL_SCALAR && !module_setting_scalar(m, g, x)) x[0] = r->step;
    if (!strcmp(g->name, "delay.fine"))
      x[0] = r->step != 4; /* nothing waits for the first late one */
    if (r->sick > 0 && g == first) x[0] = r->sick;
    interp_set(in, g->name, x);
  }
  return in;
}

static bool run(Interp *in, const Module *m, const char *entry) {
  return module_fence(m) == FENCE_PLACED ? interp_run_placed(in, entry) : interp_run(in, entry);
}

/* Both come from one interpreter, so a sound module gives the same bits. */
static bool differ(double x, double y) {
  return memcmp(&x, &y, sizeof x) && !(isnan(x) && isnan(y));
}

static bool globals_differ(Module *m, Interp *a, Interp *b) {
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Tensor *x = interp_get(a, m->globals.at[i]->name),
                 *y = interp_get(b, m->globals.at[i]->name);
    if (!y) return true;
    for (int64_t k = 0; k < type_count(&x->type); k++)
      if (differ(x->at[k], y->at[k])) return true;
  }
  return false;
}

static const char *without_positions(Module *m) {
  size_t n;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) m->fns.at[i]->ops.at[k].loc = (Loc){0};
  return ir_print(m, &n);
}

/* Is it the same after pass simplify? */
static bool same_when_clean(Module *sound, Module *m) {
  size_t n;
  if (module_fence(m) != FENCE_NONE) return false;
  const char *text = ir_print(sound, &n);
  Module *copy = ir_parse(m->ctx, "sound.ir", text, n);
  pass_find("simplify")->run(copy), pass_find("simplify")->run(m);
  return !strcmp(without_positions(copy), without_positions(m));
}

typedef enum Notice { NOBODY, VERIFIER, INTERPRETER, NUMBERS, NO_FAULT, NOTICES } Notice;

static Notice noticed_by(Module *sound, Interp *const *want, Module *m, bool allowed) {
  if (!ir_verify(m)) return VERIFIER;
  for (int i = 0; i < RUNS; i++) {
    if (!module_fn(m, intern(m->ctx->names, runs[i].entry))) continue;
    Interp *in = filled(m, &runs[i]);
    if (!run(in, m, runs[i].entry)) return INTERPRETER;
    if (globals_differ(sound, want[i], in)) return NUMBERS;
  }
  return allowed || same_when_clean(sound, m) ? NO_FAULT : NOBODY;
}

/* ---- the program ---- */

static Module *lowered(Ctx *c, const char *path) {
  LowerOptions options = {.path = path, .plan = "parts"};
  Module *m = lower_program(c, &options);
  if (!m) return NULL;
  m->target.l3 = 32 << 20, m->target.workers = 2, m->target.join = true, m->target.sums = true;
  target_named(&m->target, intern(c->names, "x86_64_v3"));
  return m;
}

typedef struct Tally {
  uint32_t by[NOTICES];
} Tally;

static uint32_t seeded(const Tally *t) {
  return t->by[VERIFIER] + t->by[INTERPRETER] + t->by[NUMBERS] + t->by[NOBODY];
}

/* The lines of the mutant that the sound module has not in that place. */
static void show_lines(const char *a, const char *b) {
  for (size_t n, k; *a && *b; a += n + (a[n] == '\n'), b += k + (b[k] == '\n')) {
    n = strcspn(a, "\n"), k = strcspn(b, "\n");
    if (n != k || memcmp(a, b, n)) printf("  - %.*s\n  + %.*s\n", (int)n, a, (int)k, b);
  }
}

/* The verifier's rules prove that a result may use another's bytes, or other ones. */
static bool verifier_decides(const char *what) {
  const char *last = strrchr(what, ':');
  return strstr(what, "in place") || (last && !strcmp(last, ": place"));
}

static void try_fault(Module *sound, Interp *const *want, const char *text, uint64_t seed, Tally *t,
                      bool show) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "sound.ir", text, strlen(text));
  const char *what = m ? seed_fault(m, seed) : NULL;
  size_t length;
  if (what && show) show_lines(text, ir_print(m, &length));
  if (what) {
    Notice n = noticed_by(sound, want, m, verifier_decides(what));
    t->by[n]++;
    if (n == NOBODY || show)
      printf("%s after %s, %llu: %s\n", n ? "noticed" : "SURVIVOR", sound->after,
             (unsigned long long)seed, what);
    if (show) diag_print(c->diag, stdout, DIAG_SHORT, false);
  }
  ctx_free(c);
}

/* Is what the faults are seeded in accepted, and does it run? Else nothing would be shown. */
static bool is_sound(Module *m, Interp *const *want, const bool *ran) {
  if (!ir_verify(m)) return printf("%s: the verifier refuses the sound module\n", m->after), false;
  for (int i = 0; i < RUNS; i++)
    if (!ran[i])
      return printf("%s of the sound module: %s\n", runs[i].entry, interp_error(want[i])), false;
  return true;
}

static bool try_stage(Module *m, long count, uint64_t seed, Tally *t) {
  Interp *want[RUNS];
  bool ran[RUNS];
  size_t n;
  const char *text = ir_print(m, &n);
  for (int i = 0; i < RUNS; i++) {
    want[i] = filled(m, &runs[i]);
    ran[i] = !module_fn(m, intern(m->ctx->names, runs[i].entry)) || run(want[i], m, runs[i].entry);
  }
  if (!is_sound(m, want, ran)) return false;
  if (count < 0) try_fault(m, want, text, (uint64_t)-count, t, true);
  for (long i = 0; i < count; i++) try_fault(m, want, text, seed + (uint64_t)i, t, false);
  return true;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  Tally all = {0};
  bool sound = true;
  uint32_t n;
  const Pass *passes = pass_table(&n);
  Ctx *c = ctx_new();
  Module *m = lowered(c, argv[1]);
  for (uint32_t i = 0; m && i < n; i++) {
    if (!passes[i].run) continue;
    if (!pipeline_run(m, &(PipelineOptions){.until = passes[i].name})) break;
    Tally t = {0};
    sound &= try_stage(m, atol(argv[2]), argc > 3 ? strtoull(argv[3], NULL, 10) : 1, &t);
    printf("%-10s %4u faults: %4u refused, %4u stopped, %4u other numbers, %4u unnoticed; %u were "
           "none\n",
           passes[i].name, seeded(&t), t.by[VERIFIER], t.by[INTERPRETER], t.by[NUMBERS],
           t.by[NOBODY], t.by[NO_FAULT]);
    for (int k = 0; k < NOTICES; k++) all.by[k] += t.by[k];
  }
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  printf("%u faults, %u unnoticed\n", seeded(&all), all.by[NOBODY]);
  bool fine = sound && m && !diag_errors(c->diag) && seeded(&all) && !all.by[NOBODY];
  ctx_free(c);
  return !fine;
}
