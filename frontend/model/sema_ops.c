/* Element-wise operators and reductions: their operands and results. Operands without any computed
   element (numbers, and tensors whose elements are all one known number) are folded, so that
   `ignore = none` and `smooth = 0` add no ops. */
#include "lower_emit.h"
#include "sema_mask.h"
#include "sema_rule.h"
#include <math.h>
#include <string.h>

/* ---- element-wise ---- */

/* The operand that has the dims of all; -1 if there is none. */
static int biggest(int n, const Val *const *v) {
  for (int i = 0; i < n; i++) {
    bool all = true;
    for (int k = 0; k < n; k++) all &= dims_subset(&v[k]->dims, &v[i]->dims);
    if (all) return i;
  }
  return -1;
}

static Val wrong_kind(Eval *e, const Call *call, int i, const char *wanted) {
  Report *r = eval_error(e, "E0402", call->expr[i]->span, "`%s` takes %s", call->name, wanted);
  diag_label(r, "is %s", kind_text(e->ctx, &call->arg[i]));
  if (!strcmp(wanted, "a float") && (call->arg[i].kind == VAL_INDEX ||
                                     call->arg[i].kind == VAL_INT || call->arg[i].kind == VAL_BOOL))
    diag_help(r, "turn it into one: `float(..)`");
  return val_poison();
}

/* A number that finite ones gave: an error where it is none. */
static Val finite_number(Eval *e, Span at, double v) {
  if (isfinite(v)) return val_number(v);
  Report *r = eval_error(e, "E0404", at, "`%s` is not finite", span_text(e->ctx, at));
  diag_label(r, "%s", isnan(v) ? "not a number" : number_text(e->ctx, v));
  return val_poison();
}

static Val number_of(Eval *e, const Call *call, double v) {
  return isfinite(call->arg[0].number) ? finite_number(e, call->span, v) : val_number(v);
}

Val op_numeric(Eval *e, const Builtin *builtin, const Call *call) {
  if (call->arg[0].kind != VAL_NUMBER) return wrong_kind(e, call, 0, "a number");
  double v = 0;
  if (!call->arg[0].known) return val_open_number();
  number_function(intern(e->ctx->names, builtin->name), 1, &call->arg[0].number, &v);
  return number_of(e, call, v);
}

Val op_unary(Eval *e, const Builtin *builtin, const Call *call) {
  const Val *a = &call->arg[0];
  double v;
  if (!val_is_real(a)) return wrong_kind(e, call, 0, "a float");
  if (a->kind == VAL_NUMBER && !a->known) return val_open_number();
  if (a->known && number_function(intern(e->ctx->names, builtin->name), 1, &a->number, &v))
    return a->kind == VAL_NUMBER ? number_of(e, call, v) : val_flat(VAL_FLOAT, a->dims, v);
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, (OpCode)builtin->code, 1, &a, 0, NULL);
  return out;
}

Val eval_negate(Eval *e, const AstExpr *expr, const Val *a) {
  if (a->kind == VAL_POISON) return *a;
  if (!val_is_real(a)) {
    eval_error(e, "E0402", expr->span, "`-` of %s", kind_text(e->ctx, a));
    return val_poison();
  }
  Val out = *a;
  if (a->known || a->kind == VAL_NUMBER) return out.number = -a->number, out;
  out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_neg, 1, &a, 0, NULL);
  return out;
}

static Val no_common_dims(Eval *e, const Call *call, int n, const Val *const *v) {
  Report *r =
      eval_error(e, "E0301", call->span,
                 "`%s` needs one operand to contain all dimensions of the others", call->name);
  for (int i = 0; i < n; i++)
    if (v[i]->dims.n)
      diag_fact(r, "`%s` has %s", expr_text(e->ctx, call->expr[i], "an operand"),
                dims_text(e->ctx, &v[i]->dims));
  diag_help(r, "widen one of them: `expand[..](..)`");
  return val_poison();
}

Val op_minmax(Eval *e, const Builtin *builtin, const Call *call) {
  const Val *in[] = {&call->arg[0], &call->arg[1]};
  double both[2], v;
  for (int i = 0; i < 2; i++)
    if (!val_is_real(in[i])) return wrong_kind(e, call, i, "a float");
  int big = biggest(2, in);
  if (big < 0) return no_common_dims(e, call, 2, in);
  bool numbers = in[0]->kind == VAL_NUMBER && in[1]->kind == VAL_NUMBER;
  if (in[0]->known && in[1]->known) {
    both[0] = in[0]->number, both[1] = in[1]->number;
    number_function(intern(e->ctx->names, builtin->name), 2, both, &v);
    return numbers ? val_number(v) : val_flat(VAL_FLOAT, in[big]->dims, v);
  }
  if (numbers) return val_open_number();
  Val out = val_tensor(VAL_FLOAT, in[big]->dims);
  lower_op(e, &out, 1, (OpCode)builtin->code, 2, in, 0, NULL);
  return out;
}

/* Two values of one kind; numbers fit floats, indexes and i32. */
static bool common_kind(const Val *a, const Val *b, Kind *kind) {
  if (val_is_real(a) && val_is_real(b)) return *kind = VAL_FLOAT, true;
  if (a->kind == VAL_NUMBER && (b->kind == VAL_INDEX || b->kind == VAL_INT))
    return *kind = b->kind, true;
  if (b->kind == VAL_NUMBER && (a->kind == VAL_INDEX || a->kind == VAL_INT))
    return *kind = a->kind, true;
  if (a->kind == VAL_BOOL && b->kind == VAL_BOOL) return *kind = VAL_BOOL, true;
  bool whole =
      (a->kind == VAL_INDEX || a->kind == VAL_INT) && (b->kind == VAL_INDEX || b->kind == VAL_INT);
  *kind = a->kind == b->kind && a->of == b->of ? a->kind : VAL_INT;
  return whole;
}

/* The dims of a mask outside of attention: a pair of dims of which one is `like` the other. */
static bool mask_axes(Eval *e, const Dims *dims, MaskAxes *axes) {
  *axes = (MaskAxes){e->mask_q, e->mask_k, e->mask_alike};
  if (e->mask_q) return true;
  axes->alike = true;
  int found = 0;
  for (int i = 0; i < dims->n; i++) {
    const DimInfo *info = sizes_find(e->sizes, dims->at[i]);
    if (info && info->def->like.text && dims_has(dims, info->def->like.text))
      axes->q = info->def->like.text, axes->k = dims->at[i], found++;
  }
  return found == 1;
}

static Val mask_condition(Eval *e, const Call *call) {
  Dims all = call->arg[1].dims;
  MaskAxes axes;
  for (int i = 0; i < call->arg[2].dims.n; i++)
    if (!dims_has(&all, call->arg[2].dims.at[i])) dims_add(&all, call->arg[2].dims.at[i]);
  if (mask_reduced(e, call->arg[0].mask)->kind == MASK_ALL) return val_flat(VAL_BOOL, all, 1);
  if (!mask_axes(e, &all, &axes)) {
    eval_error(e, "E0402", call->expr[0]->span,
               "which dimensions of %s are queries and keys of this mask?",
               dims_text(e->ctx, &all));
    return val_poison();
  }
  if (!mask_check(e, call->arg[0].mask, &all, &axes, call->expr[0]->span)) return val_poison();
  if (!e->build) return val_tensor(VAL_BOOL, all);
  Val v = mask_values(e, call->arg[0].mask, axes.q, axes.k);
  return dims_subset(&v.dims, &all) ? v : val_poison();
}

Val op_where(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  Kind kind;
  Val cond = call->arg[0];
  if (cond.kind != VAL_BOOL && cond.kind != VAL_MASK)
    return wrong_kind(e, call, 0, "a bool or a mask");
  for (int i = 1; i < 3; i++)
    if (!val_is_tensor(&call->arg[i])) return wrong_kind(e, call, i, "a value with elements");
  if (!common_kind(&call->arg[1], &call->arg[2], &kind))
    return wrong_kind(e, call, 2, kind_text(e->ctx, &call->arg[1]));
  if (cond.kind == VAL_MASK) cond = mask_condition(e, call);
  if (cond.kind == VAL_POISON) return cond;
  const Val *in[] = {&cond, &call->arg[1], &call->arg[2]};
  int big = biggest(3, in);
  if (big < 0) return no_common_dims(e, call, 3, in);
  const Val *chosen = cond.known ? in[cond.number != 0 ? 1 : 2] : NULL;
  if (chosen && dims_same(&chosen->dims, &in[big]->dims)) return *chosen;
  Val out = val_tensor(kind, in[big]->dims);
  out.of = call->arg[1].kind == VAL_INDEX ? call->arg[1].of : call->arg[2].of;
  if (chosen && chosen->known) return out.known = true, out.number = chosen->number, out;
  lower_op(e, &out, 1, OP_where, 3, in, 0, NULL);
  return out;
}

Val op_not(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  if (a->kind == VAL_MASK) {
    eval_error(e, "E0402", call->expr[0]->span, "`not` of a mask; masks know `&` and `|`");
    return val_poison();
  }
  if (a->kind != VAL_BOOL) return wrong_kind(e, call, 0, "a bool");
  if (a->known) return val_flat(VAL_BOOL, a->dims, a->number == 0);
  Val out = val_tensor(VAL_BOOL, a->dims);
  lower_op(e, &out, 1, OP_not, 1, &a, 0, NULL);
  return out;
}

Val op_float(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  if (!val_is_tensor(a)) return wrong_kind(e, call, 0, "a bool, an index or an i32");
  if (val_is_real(a)) return *a;
  if (a->known) return val_flat(VAL_FLOAT, a->dims, a->number);
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_cast, 1, &a, 0, NULL);
  return out;
}

Val op_stop(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  if (!val_is_real(a)) return wrong_kind(e, call, 0, "a float");
  if (a->known || a->kind == VAL_NUMBER) return *a;
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_stop, 1, &a, 0, NULL);
  return out;
}

Val op_rand(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  if (!val_is_tensor(&call->arg[0])) return wrong_kind(e, call, 0, "a value with elements");
  if (rule_draws(e, call->site->span)) return val_poison();
  Val out = val_tensor(VAL_FLOAT, call->arg[0].dims);
  lower_rand(e, &out);
  return out;
}

/* ---- a op b ---- */

static OpCode code_of(AstOp op) {
  switch (op) {
  case AST_ADD: return OP_add;
  case AST_SUB: return OP_sub;
  case AST_MUL: return OP_mul;
  case AST_DIV: return OP_div;
  case AST_LT:
  case AST_GT: return OP_lt;
  case AST_LE:
  case AST_GE: return OP_le;
  case AST_AND: return OP_and;
  case AST_OR: return OP_or;
  default: return OP_eq;
  }
}

static bool compares(AstOp op) { return op >= AST_LT && op <= AST_NE; }
static bool arithmetic(AstOp op) { return op >= AST_ADD && op <= AST_DIV; }

static double compare(AstOp op, double a, double b) {
  switch (op) {
  case AST_LT: return a < b;
  case AST_LE: return a <= b;
  case AST_GT: return a > b;
  case AST_GE: return a >= b;
  case AST_EQ: return a == b;
  default: return a != b;
  }
}

static Val power(Eval *e, const AstExpr *expr, const Val *a, const Val *b) {
  if (b->kind != VAL_NUMBER) {
    Report *r = eval_error(e, "E0403", expr->right->span, "an exponent is a number");
    diag_label(r, "is %s", kind_text(e->ctx, b));
    return val_poison();
  }
  if (a->kind == VAL_NUMBER && (!a->known || !b->known)) return val_open_number();
  if (a->known && b->known) {
    double v = pow(a->number, b->number);
    if (a->kind != VAL_NUMBER) return val_flat(VAL_FLOAT, a->dims, v);
    return isfinite(a->number) && isfinite(b->number) ? finite_number(e, expr->span, v)
                                                      : val_number(v);
  }
  if (b->known && b->number == 1) return *a;
  Val out = val_tensor(VAL_FLOAT, a->dims);
  Op *op = lower_op(e, &out, 1, OP_pow, 1, &a, 0, NULL);
  if (op) lower_float(e, op, ATTR_value, b->number);
  return out;
}

/* x + 0, 1 * x, 0 * x .. where x has all the dims: no op. */
static bool neutral(AstOp op, const Val *a, const Val *b, Val *out) {
  bool zero_a = a->known && a->number == 0, zero_b = b->known && b->number == 0;
  bool one_a = a->known && a->number == 1, one_b = b->known && b->number == 1;
  bool in_a = dims_subset(&b->dims, &a->dims), in_b = dims_subset(&a->dims, &b->dims);
  if (in_a &&
      ((zero_b && (op == AST_ADD || op == AST_SUB)) || (one_b && (op == AST_MUL || op == AST_DIV))))
    return *out = *a, true;
  if (in_b && ((zero_a && op == AST_ADD) || (one_a && op == AST_MUL))) return *out = *b, true;
  if (op == AST_MUL && (zero_a || zero_b))
    return *out = val_flat(VAL_FLOAT, in_a ? a->dims : b->dims, 0), true;
  return false;
}

static Val arith(Eval *e, AstOp op, const Val *a, const Val *b) {
  const Val *in[] = {a, b};
  Val out;
  double v;
  bool numbers = a->kind == VAL_NUMBER && b->kind == VAL_NUMBER;
  if (a->known && b->known) {
    number_apply(op, a->number, b->number, &v);
    return numbers ? val_number(v) : val_flat(VAL_FLOAT, in[biggest(2, in)]->dims, v);
  }
  if (numbers) return val_open_number();
  if (neutral(op, a, b, &out)) return out.kind = VAL_FLOAT, out;
  out = val_tensor(VAL_FLOAT, in[biggest(2, in)]->dims);
  lower_op(e, &out, 1, code_of(op), 2, in, 0, NULL);
  return out;
}

static Val comparison(Eval *e, AstOp op, const Val *a, const Val *b) {
  bool swapped = op == AST_GT || op == AST_GE; /* b < a */
  const Val *in[] = {swapped ? b : a, swapped ? a : b};
  Dims dims = in[biggest(2, in)]->dims;
  if (a->known && b->known) return val_flat(VAL_BOOL, dims, compare(op, a->number, b->number));
  Val out = val_tensor(VAL_BOOL, dims);
  lower_op(e, &out, 1, code_of(op), 2, in, 0, NULL);
  if (op != AST_NE) return out;
  Val not = val_tensor(VAL_BOOL, dims);
  const Val *same = &out;
  lower_op(e, &not, 1, OP_not, 1, &same, 0, NULL);
  return not ;
}

static Val logic(Eval *e, AstOp op, const Val *a, const Val *b) {
  const Val *in[] = {a, b};
  Val out = val_tensor(VAL_BOOL, in[biggest(2, in)]->dims);
  if (a->known && b->known)
    return val_flat(VAL_BOOL, out.dims,
                    op == AST_AND ? a->number * b->number : fmax(a->number, b->number));
  lower_op(e, &out, 1, code_of(op), 2, in, 0, NULL);
  return out;
}

/* Terms with `none`: an absent parameter leaves the other operand; anything compared with none is
 * different. */
static bool with_none(AstOp op, const Val *a, const Val *b, Val *out) {
  if (a->kind != VAL_NONE && b->kind != VAL_NONE) return false;
  const Val *other = a->kind == VAL_NONE ? b : a;
  if (op == AST_EQ || op == AST_NE)
    return *out = val_flat(VAL_BOOL, other->dims, (op == AST_NE) != (a->kind == b->kind)), true;
  bool absent = arithmetic(op) &&
                (b->kind == VAL_NONE ? b->known : a->known && (op == AST_ADD || op == AST_MUL));
  if (absent && a->kind != b->kind && val_is_real(other)) return *out = *other, true;
  return false;
}

static Val wrong_operands(Eval *e, const AstExpr *expr, const Val *a, const Val *b) {
  Report *r = eval_error(e, "E0402", expr->op_span, "`%s` of %s and %s", ast_op_name(expr->op),
                         kind_text(e->ctx, a), kind_text(e->ctx, b));
  bool counts = a->kind == VAL_INDEX || a->kind == VAL_INT || a->kind == VAL_BOOL ||
                b->kind == VAL_INDEX || b->kind == VAL_INT || b->kind == VAL_BOOL;
  if (arithmetic(expr->op) && counts)
    diag_help(r, "an index, i32 or bool becomes a float by `float(..)`");
  return val_poison();
}

static bool kinds_fit(AstOp op, const Val *a, const Val *b) {
  Kind kind;
  if (!val_is_tensor(a) || !val_is_tensor(b)) return false;
  if (arithmetic(op) || op == AST_POW) return val_is_real(a) && val_is_real(b);
  if (op == AST_AND || op == AST_OR) return a->kind == VAL_BOOL && b->kind == VAL_BOOL;
  return common_kind(a, b, &kind) && (kind != VAL_BOOL || op == AST_EQ || op == AST_NE);
}

Val eval_binary(Eval *e, Env *env, const AstExpr *expr, const Val *a, const Val *b) {
  Val out;
  const Val *in[] = {a, b};
  if (a->kind == VAL_POISON || b->kind == VAL_POISON) return val_poison();
  if ((expr->op == AST_AND || expr->op == AST_OR) && (a->kind == VAL_MASK || b->kind == VAL_MASK))
    return mask_combine(e, expr->op, a, b, expr->span);
  if (with_none(expr->op, a, b, &out)) return out;
  if (!kinds_fit(expr->op, a, b)) return wrong_operands(e, expr, a, b);
  if (expr->op == AST_POW) return power(e, expr, a, b);
  if (biggest(2, in) < 0) {
    explain_elementwise(e, env, expr, a, b);
    return val_poison();
  }
  if (expr->op == AST_MUL) e->product = expr, e->factor[0] = *a, e->factor[1] = *b;
  if (compares(expr->op)) return comparison(e, expr->op, a, b);
  if (!arithmetic(expr->op)) return logic(e, expr->op, a, b);
  if (expr->op == AST_DIV && b->kind == VAL_NUMBER && b->known && b->number == 0 &&
      a->kind != VAL_NUMBER) {
    Report *r = eval_error(e, "E0404", expr->right->span, "division by 0");
    diag_label(r, "no value of `%s` is finite", span_text(e->ctx, expr->span));
    return val_poison();
  }
  out = arith(e, expr->op, a, b);
  if (out.kind != VAL_NUMBER || !out.known || isfinite(out.number) || !isfinite(a->number) ||
      !isfinite(b->number))
    return out;
  return finite_number(e, expr->span, out.number);
}

/* ---- reductions ---- */

bool need_dims(Eval *e, const Call *call, const Dims *want, const Val *x, const AstExpr *expr) {
  for (int i = 0; i < want->n; i++)
    if (!dims_has(&x->dims, want->at[i])) {
      explain_missing(e, call, want->at[i], x, expr);
      return false;
    }
  return true;
}

static Dims reduced(const Eval *e, const Call *call) {
  const Dims *dims = &call->groups.at[0].from;
  return dims->n == 1 && !strcmp(dims->at[0], "*") ? dims_of_star(e, &call->arg[0]) : *dims;
}

static bool one_group(Eval *e, const Call *call, bool single) {
  if (call->groups.n == 1 && !call->groups.at[0].arrow &&
      (!single || call->groups.at[0].from.n == 1))
    return true;
  Report *r = eval_error(e, "E0204", call->axes->span, "`%s` does not take these axes", call->name);
  diag_label(r, single ? "it takes one dimension: `[D]`"
                       : "it takes one group of dimensions: `[A, B]`");
  return false;
}

/* sum[D](a * b) is what dot[D](a, b) computes, slower. Where one number is left nothing is: both
   read their operands once. */
static void lint_product(Eval *e, const Call *call, const Dims *dims) {
  const AstExpr *expr = e->product;
  if (!expr || call->expr[0] != expr || expr->span.file == e->w->std || !dims->n) return;
  if (dims->n == call->arg[0].dims.n) return;
  for (int i = 0; i < 2; i++)
    if (e->factor[i].kind != VAL_FLOAT || !dims_subset(dims, &e->factor[i].dims)) return;
  Str a = expr_text(e->ctx, expr->left, "a"), b = expr_text(e->ctx, expr->right, "b"),
      axes = span_text(e->ctx, call->axes->span);
  Str listed = strcmp(call->groups.at[0].from.at[0], "*") ? axes : dims_text(e->ctx, dims);
  world_warn(
      e->w, "W0302", call->span,
      arena_printf(e->arena, "`sum%s` of a product is a contraction, computed slowly", axes),
      arena_printf(e->arena,
                   "write `dot%s(%s, %s)`: the same sum; in 16 bits its operands are rounded",
                   listed, a, b));
}

Val op_reduce(Eval *e, const Builtin *builtin, const Call *call) {
  const Val *a = &call->arg[0];
  if (!one_group(e, call, false)) return val_poison();
  if (!val_is_real(a)) return wrong_kind(e, call, 0, "a float");
  Dims dims = reduced(e, call);
  if (!need_dims(e, call, &dims, a, call->expr[0])) return val_poison();
  if (!dims.n) return *a;
  if (builtin->code == OP_sum) lint_product(e, call, &dims);
  Dims rest = dims_without(&a->dims, &dims);
  int64_t n = a->known ? eval_sizes(e, &dims) : 0;
  if (a->known && n > 0)
    return val_flat(VAL_FLOAT, rest, builtin->code == OP_sum ? a->number * (double)n : a->number);
  Val out = val_tensor(VAL_FLOAT, rest);
  lower_dims(e, &out, (OpCode)builtin->code, a, &dims);
  return out;
}

/* argmax, cumsum: over one dim */
Val op_over_one(Eval *e, const Builtin *builtin, const Call *call) {
  const Val *a = &call->arg[0];
  if (!one_group(e, call, true)) return val_poison();
  if (!val_is_real(a)) return wrong_kind(e, call, 0, "a float");
  const Dims *dims = &call->groups.at[0].from;
  if (!need_dims(e, call, dims, a, call->expr[0])) return val_poison();
  bool stays = builtin->code == OP_cumsum;
  Val out =
      val_tensor(stays ? VAL_FLOAT : VAL_INDEX, stays ? a->dims : dims_without(&a->dims, dims));
  if (!stays) out.of = dims->at[0];
  lower_dims(e, &out, (OpCode)builtin->code, a, dims);
  return out;
}
