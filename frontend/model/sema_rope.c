/* rope[S; D](x, theta, pos, factor, ..): rotary positions. Further options choose frequencies that
   reach past the positions of the training, as in config.json:

     factor                                 position interpolation: "rope_type": "linear"
     factor, original, low, high            "llama3": low_freq_factor, high_freq_factor
     factor, original, slow, fast           "yarn": beta_slow, beta_fast
     .., truncate = off                     its "truncate": false

   A base per layer (`theta = [1e4, 1e6, ..]` of a stack) becomes one rope for each different base,
   of which each layer takes its own. */
#include "ir/rope.h"
#include "lower_emit.h"
#include "sema.h"
#include <string.h>

enum { X, THETA, POS, FACTOR, ORIGINAL, LOW, HIGH, BETA_SLOW, BETA_FAST, TRUNCATE, OPTIONS };

static bool rope_axes(Eval *e, const Call *call) {
  if (call->groups.n == 2 && call->groups.at[0].from.n == 1 && call->groups.at[1].from.n == 1 &&
      !call->groups.at[0].arrow && !call->groups.at[1].arrow)
    return true;
  eval_error(e, "E0204", call->axes->span,
             "`rope` takes `[S; D]`: the axis of positions, the axis that is rotated");
  return false;
}

static bool rope_even(Eval *e, const Call *call, Str d) {
  int64_t n = eval_size(e, d);
  if (n <= 0 || n % 2 == 0) return n != SIZE_BAD;
  eval_error(e, "E0305", call->span, "`rope` rotates pairs: `%s` (%lld) is odd", d, (long long)n);
  return false;
}

static bool rope_positions(Eval *e, const Call *call, Str d) {
  const Val *p = &call->arg[POS];
  if (p->kind == VAL_ABSENT) return true;
  if (p->kind != VAL_INDEX && p->kind != VAL_INT) {
    eval_error(e, "E0402", call->expr[POS]->span, "`pos` is an index or i32, not %s",
               kind_text(e->ctx, p));
    return false;
  }
  if (dims_subset(&p->dims, &call->arg[X].dims) && !dims_has(&p->dims, d)) return true;
  Report *r =
      eval_error(e, "E0301", call->expr[POS]->span, "`pos` has dimensions that the operand lacks");
  diag_label(r, "has %s", dims_text(e->ctx, &p->dims));
  return false;
}

/* ---- frequencies ---- */

static bool written(const Call *call, int i) { return call->arg[i].kind != VAL_ABSENT; }

static const char *const names[OPTIONS] = {"x",   "theta", "pos",  "factor", "original",
                                           "low", "high",  "slow", "fast",   "truncate"};

static bool option_kinds(Eval *e, const Call *call) {
  for (int i = THETA; i < OPTIONS; i++) {
    const Val *v = &call->arg[i];
    Kind wanted = i == TRUNCATE ? VAL_FLAG : VAL_NUMBER;
    bool own = i == THETA && v->kind == VAL_FLOAT && v->rounds;
    if (i == POS || !written(call, i) || v->kind == wanted || own) continue;
    eval_error(e, "E0402", call->expr[i]->span, "`%s` is %s, not %s", names[i],
               i == TRUNCATE ? "`on` or `off`" : "a number", kind_text(e->ctx, v));
    return false;
  }
  return true;
}

/* Which options go together. */
static bool option_sets(Eval *e, const Call *call) {
  static const int needs[][3] = {{LOW, HIGH, ORIGINAL},
                                 {HIGH, LOW, ORIGINAL},
                                 {BETA_SLOW, BETA_FAST, ORIGINAL},
                                 {BETA_FAST, BETA_SLOW, ORIGINAL},
                                 {TRUNCATE, BETA_SLOW, BETA_FAST},
                                 {ORIGINAL, FACTOR, FACTOR},
                                 {LOW, FACTOR, FACTOR},
                                 {BETA_SLOW, FACTOR, FACTOR}};
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    for (int k = 1; k < 3; k++)
      if (written(call, needs[i][0]) && !written(call, needs[i][k])) {
        Report *r = eval_error(e, "E0204", call->expr[needs[i][0]]->span,
                               "`%s` of `rope` needs `%s`", names[needs[i][0]], names[needs[i][k]]);
        diag_help(r, i < 2 ? "for example `factor = 8, original = 8192, low = 1, high = 4`"
                           : "for example `factor = 32, original = 4096, slow = 1, fast = 32`");
        return false;
      }
  int both = written(call, LOW) && written(call, BETA_SLOW) ? BETA_SLOW : 0;
  int unused =
      written(call, ORIGINAL) && !written(call, LOW) && !written(call, BETA_SLOW) ? ORIGINAL : 0;
  if (both)
    eval_error(e, "E0204", call->expr[both]->span,
               "`slow` and `fast` (YaRN) and `low` and `high` (Llama 3.1) exclude each other");
  if (unused)
    eval_error(e, "E0204", call->expr[unused]->span,
               "`original` counts only with `low` and `high`, or with `slow` and `fast`");
  return !both && !unused;
}

static RopeRamp ramp_of(const Call *call) {
  if (written(call, LOW)) return ROPE_TURNS;
  if (!written(call, BETA_SLOW)) return ROPE_ALL;
  return written(call, TRUNCATE) && call->arg[TRUNCATE].number == 0 ? ROPE_PAIRS : ROPE_ROUNDED;
}

static double number_of(const Call *call, int i, double absent) {
  return written(call, i) ? call->arg[i].number : absent;
}

static void set_frequencies(Eval *e, Op *op, const Call *call, double theta) {
  lower_float(e, op, ATTR_theta, theta);
  if (!written(call, FACTOR)) return;
  lower_float(e, op, ATTR_factor, call->arg[FACTOR].number);
  if (ramp_of(call) == ROPE_ALL) return;
  bool turns = ramp_of(call) == ROPE_TURNS;
  lower_float(e, op, ATTR_original, call->arg[ORIGINAL].number);
  lower_float(e, op, ATTR_slow, call->arg[turns ? LOW : BETA_SLOW].number);
  lower_float(e, op, ATTR_fast, call->arg[turns ? HIGH : BETA_FAST].number);
  lower_int(e, op, ATTR_ramp, ramp_of(call));
}

/* The rules of rope_wrong, at the word. */
static bool numbers_fit(Eval *e, const Call *call) {
  for (int i = THETA; i < TRUNCATE; i++) {
    const Val *v = &call->arg[i];
    Str what = arena_printf(e->arena, "`%s` of `rope`", names[i]);
    if (i != POS && !number_in(e, v, call->expr[i], v->number > 0, what, "a number above 0"))
      return false;
    for (int k = 0; v->rounds && k < v->nitems; k++)
      if (!number_in(e, &v->items[k], call->expr[i], v->items[k].number > 0, what,
                     "a number above 0"))
        return false;
  }
  int few = written(call, LOW) ? LOW : BETA_SLOW, many = few + 1;
  if (!written(call, few) || !call->arg[few].known) return true;
  return number_in(e, &call->arg[many], call->expr[many],
                   call->arg[few].number < call->arg[many].number,
                   arena_printf(e->arena, "`%s` of `rope`", names[many]),
                   arena_printf(e->arena, "must be above `%s`", names[few]));
}

/* ---- the op ---- */

static Val turned(Eval *e, const Call *call, double theta) {
  const Val *in[] = {&call->arg[X], &call->arg[POS]};
  Val out = val_tensor(VAL_FLOAT, call->arg[X].dims);
  Op *op = lower_op(e, &out, 1, OP_rope, written(call, POS) ? 2 : 1, in, 2, call->groups.at);
  set_frequencies(e, op, call, theta);
  return out;
}

/* A rope per base: each layer takes that of its own. */
static Val turned_by_layer(Eval *e, const Call *call) {
  RoundChoice choice = rounds_choice(e, &call->arg[THETA]);
  Val out = turned(e, call, choice.item[0].number);
  for (int i = 1; i < choice.n; i++) {
    Val own = turned(e, call, choice.item[i].number);
    const Val *in[] = {&choice.has[i], &own, &out};
    Val next = val_tensor(VAL_FLOAT, out.dims);
    lower_op(e, &next, 1, OP_where, 3, in, 0, NULL);
    out = next;
  }
  return out;
}

Val op_rope(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *x = &call->arg[X], *theta = &call->arg[THETA];
  if (!rope_axes(e, call)) return val_poison();
  if (!val_is_real(x)) {
    Report *r = eval_error(e, "E0402", call->expr[X]->span, "`rope` takes a float");
    diag_label(r, "is %s", kind_text(e->ctx, x));
    return val_poison();
  }
  for (int i = 0; i < 2; i++)
    if (!need_dims(e, call, &call->groups.at[i].from, x, call->expr[X])) return val_poison();
  Str d = call->groups.at[1].from.at[0];
  if (!option_kinds(e, call) || !option_sets(e, call) || !numbers_fit(e, call) ||
      !rope_even(e, call, d) || !rope_positions(e, call, d))
    return val_poison();
  if (theta->rounds) return turned_by_layer(e, call);
  double number = number_of(call, THETA, 10000);
  if (theta->kind == VAL_ABSENT || theta->known) eval_knows(e, "rope_theta", number, call->span);
  return turned(e, call, number);
}
