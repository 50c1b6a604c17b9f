/* top and route: the choice of experts. Both are lowered to ops that exist already, so that
   gradients, plans and kernels need nothing of their own.

   A round chooses the largest remaining score by argmax, the first of equal ones, and sets it to
   -inf; k choices are k rounds. An entry of -inf or NaN is never chosen, so fewer than k may be.

   route gives each chosen (token, expert) a place: the tokens of the same choice before it, counted
   by a running sum, and all tokens that chose the expert in earlier rounds. A scatter writes each
   token's number to its place; places beyond the last drop out, empty ones keep 0, so `number + 1`
   is written and 1 is subtracted: -1 is empty. */
#include "build.h"
#include "lower_emit.h"
#include "sema.h"
#include <math.h>

enum { CHOICES_MOST = 64 };

typedef struct Choosing {
  Eval *e;
  Str routes, tokens; /* tokens: NULL for top */
  Dims all, counts;   /* of the gates; of the counts of each route */
  Val left, number;   /* what has not been chosen; 0, 1, .. over routes */
} Choosing;

static Val made(Eval *e, Kind kind, const Dims *dims, OpCode code, int n, const Val *const *in) {
  Val out = val_tensor(kind, *dims);
  lower_op(e, &out, 1, code, n, in, 0, NULL);
  return out;
}

static Val made_2(Eval *e, Kind kind, const Dims *dims, OpCode code, const Val *a, const Val *b) {
  return made(e, kind, dims, code, 2, (const Val *const[]){a, b});
}

static Val made_over(Eval *e, Kind kind, const Dims *dims, OpCode code, const Val *a, Str dim) {
  Val out = val_tensor(kind, *dims);
  Dims over = {.n = 1, .at = {dim}};
  lower_dims(e, &out, code, a, &over);
  return out;
}

/* Neither -inf nor NaN, which argmax would take first. */
static Val may_be_chosen(const Choosing *choosing) {
  Val none = val_number(-INFINITY);
  return made_2(choosing->e, VAL_BOOL, &choosing->all, OP_lt, &none, &choosing->left);
}

static Choosing choosing_of(Eval *e, const Val *x, Str routes, Str tokens) {
  Choosing choosing = {.e = e, .routes = routes, .tokens = tokens, .all = x->dims, .left = *x};
  Dims one = {.n = 1, .at = {routes}}, token = {.n = tokens != NULL, .at = {tokens}};
  choosing.counts = dims_without(&x->dims, &token);
  choosing.number = val_tensor(VAL_INDEX, one);
  lower_iota(e, &choosing.number, routes);
  Val none = val_number(-INFINITY), is = may_be_chosen(&choosing);
  choosing.left = made(e, VAL_FLOAT, &choosing.all, OP_where, 3,
                       (const Val *const[]){&is, &choosing.left, &none});
  return choosing;
}

/* The next choice of every token, as a bool of the gates' dims. */
static Val choose(Choosing *choosing) {
  Eval *e = choosing->e;
  Dims one = {.n = 1, .at = {choosing->routes}}, rest = dims_without(&choosing->all, &one);
  Val best = made_over(e, VAL_INDEX, &rest, OP_argmax, &choosing->left, choosing->routes),
      none = val_number(-INFINITY);
  Val wide = lower_widened(e, &best, &choosing->all);
  Val best_is = made_2(e, VAL_BOOL, &wide.dims, OP_eq, &wide, &choosing->number);
  Val may = may_be_chosen(choosing);
  Val is = made_2(e, VAL_BOOL, &choosing->all, OP_and, &may, &best_is);
  choosing->left = made(e, VAL_FLOAT, &choosing->all, OP_where, 3,
                        (const Val *const[]){&is, &none, &choosing->left});
  return is;
}

/* ---- operands ---- */

static bool one_of_each(Eval *e, const Call *call, int groups, const char *form) {
  bool good = call->groups.n == groups;
  for (int i = 0; i < groups && good; i++) {
    const AxisGroup *group = &call->groups.at[i];
    good =
        group->from.n == 1 && group->arrow == (groups == 2) && (!group->arrow || group->to.n == 1);
  }
  if (!good) eval_error(e, "E0204", call->axes->span, "`%s` takes `%s`", call->name, form);
  return good;
}

static bool real_with(Eval *e, const Call *call, int i, const Dims *dims) {
  const Val *x = &call->arg[i];
  if (val_is_real(x)) return need_dims(e, call, dims, x, call->expr[i]);
  Report *r = eval_error(e, "E0402", call->expr[i]->span, "`%s` takes a float", call->name);
  diag_label(r, "is %s", kind_text(e->ctx, x));
  return false;
}

/* The number of choices, which unrolls into ops: 0 after a message, 1 where it is not known yet. */
static int choices(Eval *e, const Call *call, Str routes) {
  const Val *k = &call->arg[1];
  if (k->kind == VAL_ABSENT) return 1;
  if (k->kind != VAL_NUMBER) {
    eval_error(e, "E0402", call->expr[1]->span, "`k` is a number, not %s", kind_text(e->ctx, k));
    return 0;
  }
  if (!k->known) return 1;
  int64_t size = eval_size(e, routes), most = size > 0 && size < CHOICES_MOST ? size : CHOICES_MOST;
  if (k->number == trunc(k->number) && k->number >= 1 && k->number <= (double)most)
    return (int)k->number;
  Report *r =
      eval_error(e, "E0404", call->expr[1]->span, "`k` is %s", number_text(e->ctx, k->number));
  diag_label(r, "a whole number from 1 to %lld", (long long)most);
  if (most == size) diag_fact(r, "`%s` has %lld", routes, (long long)size);
  return 0;
}

Val op_top(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  if (!one_of_each(e, call, 1, "[D]")) return val_poison();
  const Dims *dims = &call->groups.at[0].from;
  if (!real_with(e, call, 0, dims)) return val_poison();
  int k = choices(e, call, dims->at[0]);
  if (!k) return val_poison();
  Choosing choosing = choosing_of(e, &call->arg[0], dims->at[0], NULL);
  Val all = choose(&choosing);
  for (int i = 1; i < k; i++) {
    Val next = choose(&choosing);
    all = made_2(e, VAL_BOOL, &choosing.all, OP_or, &all, &next);
  }
  return all;
}

/* ---- places ---- */

/* The place of every token at every route, from 1 over all choices; 0: not chosen. */
static Val places(Choosing *choosing, int k) {
  Eval *e = choosing->e;
  Val before = val_number(0), place = val_number(0);
  for (int i = 0; i < k; i++) {
    Val is = choose(choosing),
        one = made(e, VAL_INT, &choosing->all, OP_cast, 1, (const Val *const[]){&is});
    Val at = made_over(e, VAL_INT, &choosing->all, OP_cumsum, &one, choosing->tokens);
    if (i) at = made_2(e, VAL_INT, &choosing->all, OP_add, &at, &before);
    place = made(e, VAL_INT, &choosing->all, OP_where, 3, (const Val *const[]){&is, &at, &place});
    if (i + 1 == k) break;
    Val count = made_over(e, VAL_INT, &choosing->counts, OP_sum, &one, choosing->tokens);
    before = i ? made_2(e, VAL_INT, &choosing->counts, OP_add, &before, &count) : count;
  }
  return place;
}

/* The token at each place of each route, or -1. */
static Val tokens_at(Choosing *choosing, const Val *place, const AxisGroup *slots) {
  Eval *e = choosing->e;
  Dims token = {.n = 1, .at = {choosing->tokens}}, out = choosing->counts;
  Val one = val_number(1), number = val_tensor(VAL_INT, token);
  dims_add(&out, slots->to.at[0]);
  lower_iota(e, &number, choosing->tokens);
  number = made_2(e, VAL_INT, &token, OP_add, &number, &one);
  number = lower_widened(e, &number, &choosing->all);
  Val index = made_2(e, VAL_INT, &choosing->all, OP_sub, place, &one),
      at = val_tensor(VAL_INT, out);
  lower_op(e, &at, 1, OP_scatter, 2, (const Val *const[]){&number, &index}, 1, slots);
  return made_2(e, VAL_INT, &out, OP_sub, &at, &one);
}

static Val renamed(Eval *e, const Val *x, const AxisGroup *routes) {
  Val out = *x;
  for (int i = 0; i < out.dims.n; i++)
    if (out.dims.at[i] == routes->from.at[0]) out.dims.at[i] = routes->to.at[0];
  lower_rename(e, &out, x, routes->from.at[0], routes->to.at[0]);
  return out;
}

static bool sizes_agree(Eval *e, const Call *call, const AxisGroup *routes) {
  int64_t n = eval_size(e, routes->from.at[0]), experts = eval_size(e, routes->to.at[0]);
  if (n <= 0 || experts <= 0 || n == experts) return true;
  eval_error(e, "E0312", call->axes->span, "`%s` (%lld) and `%s` (%lld) must have one size",
             routes->from.at[0], (long long)n, routes->to.at[0], (long long)experts);
  return false;
}

static bool route_operands(Eval *e, const Call *call, const Dims *cut) {
  const Val *gates = &call->arg[0], *by = &call->arg[2];
  if (!real_with(e, call, 0, cut)) return false;
  if (by->kind == VAL_ABSENT) return true;
  if (!real_with(e, call, 2, cut)) return false;
  if (dims_same(&gates->dims, &by->dims)) return true;
  Report *r =
      eval_error(e, "E0301", call->expr[2]->span, "`by` and the gates differ in dimensions");
  diag_label(r, "has %s", dims_text(e->ctx, &by->dims));
  diag_fact(r, "the gates have %s", dims_text(e->ctx, &gates->dims));
  return false;
}

/* Products over these dims skip empty places (ir/attrs.def: skips): at most k * S of R * Slot have
   a token. */
static void tell_places(Eval *e, const Dims *cut, Str slot, int k) {
  if (!e->build) return;
  Module *m = e->build->m;
  int64_t tokens = eval_size(e, cut->at[0]), places = eval_size(e, slot);
  module_set(m, arena_printf(m->arena, "made.places.%s", slot), "%lld/%lld",
             (long long)(k * tokens), (long long)(eval_size(e, cut->at[1]) * places));
}

Val op_route(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const AxisGroup *slots = &call->groups.at[0], *routes = &call->groups.at[1];
  if (!one_of_each(e, call, 2, "[S -> Slot; R -> E]")) return val_poison();
  Dims cut = {.n = 2, .at = {slots->from.at[0], routes->from.at[0]}};
  if (!route_operands(e, call, &cut) || !sizes_agree(e, call, routes)) return val_poison();
  int k = choices(e, call, cut.at[1]);
  if (!k || eval_size(e, slots->to.at[0]) == SIZE_BAD) return val_poison();
  const Val *by = call->arg[2].kind == VAL_ABSENT ? &call->arg[0] : &call->arg[2];
  Choosing choosing = choosing_of(e, by, cut.at[1], cut.at[0]);
  Val place = places(&choosing, k), at = tokens_at(&choosing, &place, slots);
  tell_places(e, &cut, slots->to.at[0], k);
  Val *items = ARENA_ARRAY(e->arena, Val, 2);
  Val gates = renamed(e, &call->arg[0], routes);
  items[0] = renamed(e, &at, routes);
  items[0].kind = VAL_INDEX, items[0].of = cut.at[0];
  items[1] = val_tensor(VAL_FLOAT, items[0].dims);
  AxisGroup tokens = {.from = slots->from};
  lower_op(e, &items[1], 1, OP_gather, 2, (const Val *const[]){&gates, &items[0]}, 1, &tokens);
  return (Val){.kind = VAL_LIST, .items = items, .nitems = 2, .id = NO_VALUE};
}
