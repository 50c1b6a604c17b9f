/* speculate: updates before the norm of all gradients is known (`offload optimizer, grads
   speculate = on -> host`), undone and made again in place if the norm requires it.

   An update on the host waits for numbers that depend on all gradients: the factor of clipping and
   unscaling, and whether loss and norm are finite. Their values can nearly always be guessed: the
   factor is the one without clipping, and everything is finite. So for U(states, gradient,
   numbers) the entry `step` contains

     old    a copy of the states
     early  U(states, gradient, guesses)
     new    where(good, early, U(old, gradient, numbers)),  good: each number is as guessed

   which is U(states, gradient, numbers), bit by bit, whatever the numbers are. The ops of `old`
   and `early` have the attribute `speculative`: `fuse` moves them into the rounds of the backward
   loop that make the gradient (loop_sinking.c); `order` places all of them in the buffers of the
   states; and the last kernel does nothing if `good` holds (ir/predicated.h).

   The pass handles stacks only: parameters outside stacks have no loop whose rounds could update
   them. An update that fits in no loop is refused, with the reason. Must not: change a number;
   guess a number that is neither a factor with a largest value nor a condition. */
#include "ir/made.h"
#include "speculate.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_offload.h"
#include "ir/word_patterns.h"
#include <string.h>

typedef struct GuessCheck { /* cached result */
  const bool *number;       /* by old value: is it one of those that are as guessed? */
  ValueId holds;
} GuessCheck;

typedef struct Speculate {
  Module *m;
  Rebuild r;    /* of entry `step` */
  bool *state;  /* by old value: a load of a state that is speculated on */
  bool *work;   /* by old value: made by its update, element by element */
  bool *late;   /* by old value: known after the loop that makes gradients */
  bool *stored; /* by old value: the new value of a state */
  ValueId *old, *early, *again, *now, *guess; /* by old value, in r.to */
  VEC(GuessCheck) known;
  const char *why, *help; /* not NULL: refused */
} Speculate;

/* ---- updates that can be speculated ---- */

static const Global *member_of(const Module *m, const Global *group) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == group) return m->globals.at[i];
  return NULL;
}

static bool is_speculated_state(const Module *m, const Global *g) {
  const Global *member = g->kind == GLOBAL_STATE ? member_of(m, g) : NULL;
  return member && g->type.tier == TIER_host && strchr(member->name, '*') &&
         offload_names(m, "speculate", g) && offload_names(m, "grads", g);
}

static void refuse(Speculate *spec, const char *why, const char *help) {
  if (!spec->why) spec->why = why, spec->help = help;
}

/* Refuses a gradient that is not a stack made by the rounds of one loop, with the reason. */
static void look_at_gradient(Speculate *spec, ValueId v) {
  const Op *o = value_def(spec->r.from, v);
  bool loop = o && o->code == OP_loop;
  if (o && (op_family(o->code) == FAMILY_REDUCE || op_family(o->code) == FAMILY_GATHER))
    refuse(spec, "the update uses norms of each layer",
           "`optim adamw` and `sgd` work element by element");
  else if (loop && v - o->out < loop_shape(o).carry)
    refuse(spec, "gradients are sums over micro-batches, final only after the last one",
           "one micro-batch per step: `micro` with all samples of a rank");
  else if (loop && loop_continues(o, v - o->out) != NO_VALUE)
    refuse(spec, "the layers of a stack are split over several loops",
           "write one `recompute` line for all of them");
  else if (!loop)
    refuse(spec, "gradients become final only after the loop that makes them",
           "with `zero 2` or `zero 3`, without `accumulate = full`, each layer is final at once");
}

static void mark(Speculate *spec, ValueId v) {
  const Fn *f = spec->r.from;
  const Op *o = value_def(f, v);
  if (spec->work[v] || !value_type(f, v)->rank) return;
  if (o && o->code == OP_load && is_speculated_state(spec->m, o->global)) {
    spec->state[v] = true;
    return;
  }
  if (!o || op_family(o->code) != FAMILY_ELEM) {
    look_at_gradient(spec, v);
    for (uint32_t i = 0; o && i < o->nout; i++) spec->late[o->out + i] = true;
    return;
  }
  spec->work[v] = true;
  for (uint32_t k = 0; k < o->nin; k++) mark(spec, o->in[k]);
}

static bool mark_updates(Speculate *spec) {
  const Fn *f = spec->r.from;
  bool any = false;
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code != OP_store || !is_speculated_state(spec->m, o->global)) continue;
    any = spec->stored[o->in[0]] = true;
    mark(spec, o->in[0]);
  }
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    bool late = false;
    for (uint32_t k = 0; k < o->nin; k++) late |= spec->late[o->in[k]];
    for (uint32_t k = 0; late && k < o->nout; k++) spec->late[o->out + k] = true;
  }
  return any;
}

/* ---- guesses ---- */

static ValueId in_tier(Speculate *spec, ValueId v, Tier t) {
  spec->r.to->values.at[v].type.tier = t;
  return v;
}

static ValueId constant(Speculate *spec, Elem e, double value, Tier t) {
  return in_tier(spec, ir_const(spec->m, spec->r.to, e, value, (Loc){0}), t);
}

static ValueId guess(Speculate *spec, ValueId v);

/* The largest value of min(x, largest), x late. */
static ValueId largest(const Speculate *spec, const Op *o) {
  if (o->code != OP_min || spec->late[o->in[0]] == spec->late[o->in[1]]) return NO_VALUE;
  return o->in[spec->late[o->in[0]]];
}

static ValueId made_of_guesses(Speculate *spec, const Op *o) {
  const Fn *f = spec->r.from;
  for (uint32_t k = 0; k < o->nin; k++)
    if (guess(spec, o->in[k]) == NO_VALUE) return NO_VALUE;
  const Op *in = o->code == OP_move ? value_def(spec->r.to, spec->guess[o->in[0]]) : NULL;
  if (in && in->code == OP_const)
    return constant(spec, value_type(f, o->out)->elem, attr_float(&in->attrs, ATTR_value, 0),
                    value_type(f, o->out)->tier);
  return fn_clone_op(spec->m, spec->r.to, f, o, spec->guess)->out;
}

/* The guess for a number, in the number's tier; NO_VALUE: no guess is possible. */
static ValueId guess(Speculate *spec, ValueId v) {
  const Fn *f = spec->r.from;
  const Op *o = value_def(f, v);
  const Type *t = value_type(f, v);
  if (spec->guess[v] != NO_VALUE) return spec->guess[v];
  if (!spec->late[v]) return spec->guess[v] = spec->r.map[v];
  if (t->elem == ELEM_bool) return spec->guess[v] = constant(spec, ELEM_bool, 1, t->tier);
  if (!o || (op_family(o->code) != FAMILY_ELEM && o->code != OP_move)) return NO_VALUE;
  ValueId most = largest(spec, o);
  return spec->guess[v] = most != NO_VALUE ? guess(spec, most) : made_of_guesses(spec, o);
}

/* ---- are they right? ---- */

static ValueId both(Speculate *spec, ValueId a, ValueId b, Tier t) {
  return a == NO_VALUE ? b
                       : in_tier(spec, ir_binary(spec->m, spec->r.to, OP_and, a, b, (Loc){0}), t);
}

static ValueId to_host(Speculate *spec, ValueId v) {
  Type t = type_in_tier(*value_type(spec->r.to, v), TIER_host);
  return fn_op(spec->m, spec->r.to, OP_move, 1, &v, 1, &t, (Loc){0})->out;
}

static void find_numbers(const Speculate *spec, ValueId v, bool *seen, bool *number) {
  const Fn *f = spec->r.from;
  if (seen[v]) return;
  seen[v] = true;
  if (!value_type(f, v)->rank) number[v] = spec->late[v];
  else if (spec->work[v])
    for (uint32_t k = 0; k < value_def(f, v)->nin; k++)
      find_numbers(spec, value_def(f, v)->in[k], seen, number);
}

static ValueId as_guessed(Speculate *spec, const bool *number) {
  const Fn *f = spec->r.from;
  ValueId all[TIERS];
  for (Tier t = 0; t < TIERS; t++) all[t] = NO_VALUE;
  for (ValueId v = 0; v < f->values.n; v++) {
    if (!number[v]) continue;
    const Op *o = value_def(f, v);
    ValueId here = o && o->code == OP_move ? o->in[0] : v, is = spec->r.map[here];
    Tier t = value_type(f, here)->tier;
    if (value_type(f, here)->elem != ELEM_bool)
      is = in_tier(spec, ir_binary(spec->m, spec->r.to, OP_eq, is, guess(spec, here), (Loc){0}), t);
    all[t] = both(spec, all[t], is, t);
  }
  if (all[TIER_device] == NO_VALUE) return all[TIER_host];
  return both(spec, all[TIER_host], to_host(spec, all[TIER_device]), TIER_host);
}

/* Do all numbers that v depends on have their guessed values? On the host; NO_VALUE: there is
   none. */
static ValueId good(Speculate *spec, ValueId v) {
  uint32_t n = spec->r.from->values.n + 1;
  bool *seen = ARENA_ARRAY(spec->m->arena, bool, n), *number = ARENA_ARRAY(spec->m->arena, bool, n);
  find_numbers(spec, v, seen, number);
  for (uint32_t i = 0; i < spec->known.n; i++)
    if (!memcmp(spec->known.at[i].number, number, n * sizeof *number))
      return spec->known.at[i].holds;
  GuessCheck one = {number, as_guessed(spec, number)};
  vec_push(spec->m->arena, spec->known, one);
  return one.holds;
}

/* ---- the step ---- */

/* The old value of a state, for ops that read it again. */
static void keep_old(Speculate *spec, ValueId v) {
  if (!spec->state[v] || spec->old[v] != NO_VALUE) return;
  ValueId now = spec->r.map[v];
  Type t = *value_type(spec->r.to, now);
  Op *copy = fn_op(spec->m, spec->r.to, OP_copy, 1, &now, 1, &t, (Loc){0});
  attr_set_int(spec->m, &copy->attrs, ATTR_speculative, 1);
  spec->old[v] = copy->out;
  spec->early[v] = now, spec->again[v] = spec->old[v];
}

static void give_operands(Speculate *spec, const Op *o) {
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId v = o->in[k];
    keep_old(spec, v);
    if (spec->work[v] || spec->state[v]) continue;
    bool number = !value_type(spec->r.from, v)->rank;
    spec->again[v] = spec->r.map[v], spec->early[v] = number ? guess(spec, v) : spec->r.map[v];
    if (spec->early[v] == NO_VALUE) {
      refuse(spec, "the update waits for a number that cannot be guessed", NULL);
      spec->early[v] = spec->r.map[v];
    }
  }
}

static bool is_one(const Speculate *spec, ValueId v) {
  const Op *o = value_def(spec->r.to, v);
  return o && o->code == OP_const && attr_float(&o->attrs, ATTR_value, 0) == 1;
}

/* The value under the guess: a condition is true, and most factors are 1. */
static ValueId early_value(Speculate *spec, const Op *o) {
  const ValueId *early = spec->early;
  if (o->code == OP_where && is_one(spec, early[o->in[0]])) return early[o->in[1]];
  if (o->code == OP_mul && is_one(spec, early[o->in[1]])) return early[o->in[0]];
  if (o->code == OP_mul && is_one(spec, early[o->in[0]])) return early[o->in[1]];
  Op *made = fn_clone_op(spec->m, spec->r.to, spec->r.from, o, spec->early);
  attr_set_int(spec->m, &made->attrs, ATTR_speculative, 1);
  return made->out;
}

/* v for readers that are not part of the states: they read it from memory, so that the kernel that
   makes v makes nothing else and may skip its work. */
static ValueId fusion_barrier(Speculate *spec, ValueId v) {
  const Type *t = value_type(spec->r.to, v);
  Str last = t->axis[t->rank - 1].dim,
      other = name_made(spec->m, "%s'new", t->axis[t->rank - 1].dim);
  v = in_tier(spec, ir_rename(spec->m, spec->r.to, v, last, other, (Loc){0}), TIER_host);
  return in_tier(spec, ir_rename(spec->m, spec->r.to, v, other, last, (Loc){0}), TIER_host);
}

static void update_op(Speculate *spec, const Op *o) {
  const Fn *f = spec->r.from;
  give_operands(spec, o);
  spec->early[o->out] = early_value(spec, o);
  spec->again[o->out] = spec->r.map[o->out] =
      fn_clone_op(spec->m, spec->r.to, f, o, spec->again)->out;
  if (!spec->stored[o->out]) return;
  ValueId holds = good(spec, o->out);
  if (holds == NO_VALUE) return;
  ValueId v =
      ir_where(spec->m, spec->r.to, holds, spec->early[o->out], spec->again[o->out], o->loc);
  spec->now[o->out] = in_tier(spec, v, TIER_host);
  spec->r.map[o->out] = fusion_barrier(spec, v);
}

static void copy_op(Speculate *spec, const Op *o) {
  bool ours = o->code == OP_store && is_speculated_state(spec->m, o->global) &&
              spec->now[o->in[0]] != NO_VALUE;
  if (ours) ir_store(spec->m, spec->r.to, o->global, spec->now[o->in[0]], o->loc);
  else rebuild_op(&spec->r, o);
}

static bool waits_for_norm(const Speculate *spec) {
  const Fn *f = spec->r.from;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      const Op *o = &f->ops.at[i];
      if (o->nout && spec->work[o->out] && spec->late[o->in[k]] && !value_type(f, o->in[k])->rank)
        return true;
    }
  return false;
}

static void say_refused(Module *m, const char *why, const char *help) {
  Report *r = diag_at(m->ctx->diag, "E0901", plan_speculate_at(m),
                      "`speculate` in this plan is not built yet");
  diag_label(r, "%s", why);
  diag_help(r, "%s%s`speculate = off`", help ? help : "", help ? "; or " : "");
  diag_edit(r, plan_speculate_at(m), "off");
}

static void say_nothing(Module *m, const char *label, const char *help) {
  Report *r = diag_at(m->ctx->diag, "E0602", plan_speculate_at(m), "`speculate` gains nothing");
  diag_label(r, "%s", label);
  diag_help(r, "%s", help);
  diag_edit(r, plan_speculate_at(m), "off");
}

void pass_speculate(Module *m) {
  Fn *step = entry_of(m, "step");
  if (!step || !text_lists(plan_offload(m), "speculate")) return;
  uint32_t n = step->values.n + 1;
  Speculate spec = {.m = m, .r = rebuild_begin(m, step)};
  spec.state = ARENA_ARRAY(m->arena, bool, n), spec.work = ARENA_ARRAY(m->arena, bool, n);
  spec.late = ARENA_ARRAY(m->arena, bool, n), spec.stored = ARENA_ARRAY(m->arena, bool, n);
  spec.old = value_map(m, step), spec.early = value_map(m, step);
  spec.again = value_map(m, step), spec.guess = value_map(m, step), spec.now = value_map(m, step);
  if (!mark_updates(&spec)) {
    if (class_hosts_nothing(m, intern(m->ctx->names, "speculate")))
      return; /* other stages have it */
    say_nothing(m, "no stack has both its states and its gradients on the host",
                "parameters outside stacks are always updated after the norm is known");
    return;
  }
  if (!spec.why && !waits_for_norm(&spec)) {
    say_nothing(m, "the update waits for no norm",
                "without `clip` and with `on_nan off`, each layer is updated at once anyway");
    return;
  }
  for (OpId i = 0; !spec.why && i < step->ops.n; i++) {
    const Op *o = &step->ops.at[i];
    if (o->nout && spec.work[o->out]) update_op(&spec, o);
    else copy_op(&spec, o);
  }
  if (spec.why) {
    say_refused(m, spec.why, spec.help);
    return;
  }
  module_replace(m, step, spec.r.to);
  module_collect(m);
}

void speculate_check(Module *m) {
  Fn *step = entry_of(m, "step");
  if (!step || !text_lists(plan_offload(m), "speculate")) return;
  for (OpId i = 0; i < step->ops.n; i++) {
    const Op *o = &step->ops.at[i];
    if (!attr_get(&o->attrs, ATTR_speculative)) continue;
    say_refused(m, "rounds of the backward loop cannot take over this update", NULL);
    return;
  }
}
