/* Element-wise operators and reductions: which operands they take, what comes out. Operands without
   any computed element (numbers, and tensors whose elements are all one known number) are folded
   here, so that `ignore = none` and `smooth = 0` leave nothing behind. */
#include "frontend/lower_emit.h"
#include "frontend/sema.h"
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

static Val wrong_kind(Eval *e, const Call *c, int i, const char *wanted) {
  Report *r = eval_error(e, "E0402", c->expr[i]->span, "`%s` wants %s", c->name, wanted);
  diag_label(r, "is %s", kind_text(e->ctx, &c->arg[i]));
  if (!strcmp(wanted, "a float") &&
      (c->arg[i].kind == VAL_INDEX || c->arg[i].kind == VAL_INT || c->arg[i].kind == VAL_BOOL))
    diag_help(r, "turn it into one: `float(..)`");
  return val_poison();
}

Val op_numeric(Eval *e, const Builtin *b, const Call *c) {
  if (c->arg[0].kind != VAL_NUMBER) return wrong_kind(e, c, 0, "a number");
  double v = 0;
  if (!c->arg[0].known) return val_open_number();
  number_function(intern(e->ctx->names, b->name), 1, &c->arg[0].number, &v);
  return val_number(v);
}

Val op_unary(Eval *e, const Builtin *b, const Call *c) {
  const Val *a = &c->arg[0];
  double v;
  if (!val_is_real(a)) return wrong_kind(e, c, 0, "a float");
  if (a->kind == VAL_NUMBER && !a->known) return val_open_number();
  if (a->known && number_function(intern(e->ctx->names, b->name), 1, &a->number, &v))
    return a->kind == VAL_NUMBER ? val_number(v) : val_flat(VAL_FLOAT, a->dims, v);
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, (OpCode)b->code, 1, &a, 0, NULL);
  return out;
}

Val eval_negate(Eval *e, const AstExpr *x, const Val *a) {
  if (a->kind == VAL_POISON) return *a;
  if (!val_is_real(a)) {
    eval_error(e, "E0402", x->span, "`-` of %s", kind_text(e->ctx, a));
    return val_poison();
  }
  Val out = *a;
  if (a->known || a->kind == VAL_NUMBER) return out.number = -a->number, out;
  out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_neg, 1, &a, 0, NULL);
  return out;
}

static Val no_common_dims(Eval *e, const Call *c, int n, const Val *const *v) {
  Report *r = eval_error(e, "E0301", c->span,
                         "`%s` needs one operand to contain all dimensions of the others", c->name);
  for (int i = 0; i < n; i++)
    if (v[i]->dims.n)
      diag_fact(r, "`%s` has %s", expr_text(e->ctx, c->expr[i], "an operand"),
                dims_text(e->ctx, &v[i]->dims));
  diag_help(r, "widen one of them: `expand[..](..)`");
  return val_poison();
}

Val op_minmax(Eval *e, const Builtin *b, const Call *c) {
  const Val *in[] = {&c->arg[0], &c->arg[1]};
  double both[2], v;
  for (int i = 0; i < 2; i++)
    if (!val_is_real(in[i])) return wrong_kind(e, c, i, "a float");
  int big = biggest(2, in);
  if (big < 0) return no_common_dims(e, c, 2, in);
  bool numbers = in[0]->kind == VAL_NUMBER && in[1]->kind == VAL_NUMBER;
  if (in[0]->known && in[1]->known) {
    both[0] = in[0]->number, both[1] = in[1]->number;
    number_function(intern(e->ctx->names, b->name), 2, both, &v);
    return numbers ? val_number(v) : val_flat(VAL_FLOAT, in[big]->dims, v);
  }
  if (numbers) return val_open_number();
  Val out = val_tensor(VAL_FLOAT, in[big]->dims);
  lower_op(e, &out, 1, (OpCode)b->code, 2, in, 0, NULL);
  return out;
}

/* Two values of one kind; numbers fit floats, indexes and i32. */
static bool common_kind(const Val *a, const Val *b, Kind *k) {
  if (val_is_real(a) && val_is_real(b)) return *k = VAL_FLOAT, true;
  if (a->kind == VAL_NUMBER && (b->kind == VAL_INDEX || b->kind == VAL_INT))
    return *k = b->kind, true;
  if (b->kind == VAL_NUMBER && (a->kind == VAL_INDEX || a->kind == VAL_INT))
    return *k = a->kind, true;
  if (a->kind == VAL_BOOL && b->kind == VAL_BOOL) return *k = VAL_BOOL, true;
  bool whole =
      (a->kind == VAL_INDEX || a->kind == VAL_INT) && (b->kind == VAL_INDEX || b->kind == VAL_INT);
  *k = a->kind == b->kind && a->of == b->of ? a->kind : VAL_INT;
  return whole;
}

/* The dims of a mask outside of attention: a pair of dims of which one is `like` the other. */
static bool mask_axes(Eval *e, const Dims *d, MaskAxes *a) {
  *a = (MaskAxes){e->mask_q, e->mask_k, e->mask_alike};
  if (e->mask_q) return true;
  a->alike = true;
  int found = 0;
  for (int i = 0; i < d->n; i++) {
    const DimInfo *info = sizes_find(e->sizes, d->at[i]);
    if (info && info->def->like.text && dims_has(d, info->def->like.text))
      a->q = info->def->like.text, a->k = d->at[i], found++;
  }
  return found == 1;
}

static Val mask_condition(Eval *e, const Call *c) {
  Dims all = c->arg[1].dims;
  MaskAxes a;
  for (int i = 0; i < c->arg[2].dims.n; i++)
    if (!dims_has(&all, c->arg[2].dims.at[i])) dims_add(&all, c->arg[2].dims.at[i]);
  if (mask_reduced(e, c->arg[0].mask)->kind == MASK_ALL) return val_flat(VAL_BOOL, all, 1);
  if (!mask_axes(e, &all, &a)) {
    eval_error(e, "E0402", c->expr[0]->span,
               "which dimensions of %s are queries and keys of this mask?",
               dims_text(e->ctx, &all));
    return val_poison();
  }
  if (!mask_check(e, c->arg[0].mask, &all, &a, c->expr[0]->span)) return val_poison();
  if (!e->build) return val_tensor(VAL_BOOL, all);
  Val v = mask_values(e, c->arg[0].mask, a.q, a.k);
  return dims_subset(&v.dims, &all) ? v : val_poison();
}

Val op_where(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  Kind k;
  Val cond = c->arg[0];
  if (cond.kind != VAL_BOOL && cond.kind != VAL_MASK)
    return wrong_kind(e, c, 0, "a bool or a mask");
  for (int i = 1; i < 3; i++)
    if (!val_is_tensor(&c->arg[i])) return wrong_kind(e, c, i, "a value with elements");
  if (!common_kind(&c->arg[1], &c->arg[2], &k))
    return wrong_kind(e, c, 2, kind_text(e->ctx, &c->arg[1]));
  if (cond.kind == VAL_MASK) cond = mask_condition(e, c);
  if (cond.kind == VAL_POISON) return cond;
  const Val *in[] = {&cond, &c->arg[1], &c->arg[2]};
  int big = biggest(3, in);
  if (big < 0) return no_common_dims(e, c, 3, in);
  const Val *chosen = cond.known ? in[cond.number != 0 ? 1 : 2] : NULL;
  if (chosen && dims_same(&chosen->dims, &in[big]->dims)) return *chosen;
  Val out = val_tensor(k, in[big]->dims);
  out.of = c->arg[1].kind == VAL_INDEX ? c->arg[1].of : c->arg[2].of;
  if (chosen && chosen->known) return out.known = true, out.number = chosen->number, out;
  lower_op(e, &out, 1, OP_where, 3, in, 0, NULL);
  return out;
}

Val op_not(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  if (a->kind == VAL_MASK) {
    eval_error(e, "E0402", c->expr[0]->span, "`not` of a mask; masks know `&` and `|`");
    return val_poison();
  }
  if (a->kind != VAL_BOOL) return wrong_kind(e, c, 0, "a bool");
  if (a->known) return val_flat(VAL_BOOL, a->dims, a->number == 0);
  Val out = val_tensor(VAL_BOOL, a->dims);
  lower_op(e, &out, 1, OP_not, 1, &a, 0, NULL);
  return out;
}

Val op_float(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  if (!val_is_tensor(a)) return wrong_kind(e, c, 0, "a bool, an index or an i32");
  if (val_is_real(a)) return *a;
  if (a->known) return val_flat(VAL_FLOAT, a->dims, a->number);
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_cast, 1, &a, 0, NULL);
  return out;
}

Val op_stop(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  if (!val_is_real(a)) return wrong_kind(e, c, 0, "a float");
  if (a->known || a->kind == VAL_NUMBER) return *a;
  Val out = val_tensor(VAL_FLOAT, a->dims);
  lower_op(e, &out, 1, OP_stop, 1, &a, 0, NULL);
  return out;
}

Val op_rand(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  if (!val_is_tensor(&c->arg[0])) return wrong_kind(e, c, 0, "a value with elements");
  Val out = val_tensor(VAL_FLOAT, c->arg[0].dims);
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

static Val power(Eval *e, const AstExpr *x, const Val *a, const Val *b) {
  if (b->kind != VAL_NUMBER) {
    Report *r = eval_error(e, "E0403", x->right->span, "an exponent is a number");
    diag_label(r, "is %s", kind_text(e->ctx, b));
    return val_poison();
  }
  if (a->kind == VAL_NUMBER && (!a->known || !b->known)) return val_open_number();
  if (a->known && b->known)
    return a->kind == VAL_NUMBER ? val_number(pow(a->number, b->number))
                                 : val_flat(VAL_FLOAT, a->dims, pow(a->number, b->number));
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
  const Val *in[] = {a, b};
  Dims d = in[biggest(2, in)]->dims;
  if (a->known && b->known) return val_flat(VAL_BOOL, d, compare(op, a->number, b->number));
  if (op == AST_GT || op == AST_GE) in[0] = b, in[1] = a;
  Val out = val_tensor(VAL_BOOL, d);
  lower_op(e, &out, 1, code_of(op), 2, in, 0, NULL);
  if (op != AST_NE) return out;
  Val not = val_tensor(VAL_BOOL, d);
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

static Val wrong_operands(Eval *e, const AstExpr *x, const Val *a, const Val *b) {
  Report *r = eval_error(e, "E0402", x->op_span, "`%s` of %s and %s", ast_op_name(x->op),
                         kind_text(e->ctx, a), kind_text(e->ctx, b));
  bool counts = a->kind == VAL_INDEX || a->kind == VAL_INT || a->kind == VAL_BOOL ||
                b->kind == VAL_INDEX || b->kind == VAL_INT || b->kind == VAL_BOOL;
  if (arithmetic(x->op) && counts)
    diag_help(r, "an index, i32 or bool becomes a float by `float(..)`");
  return val_poison();
}

static bool kinds_fit(AstOp op, const Val *a, const Val *b) {
  Kind k;
  if (!val_is_tensor(a) || !val_is_tensor(b)) return false;
  if (arithmetic(op) || op == AST_POW) return val_is_real(a) && val_is_real(b);
  if (op == AST_AND || op == AST_OR) return a->kind == VAL_BOOL && b->kind == VAL_BOOL;
  return common_kind(a, b, &k) && (k != VAL_BOOL || op == AST_EQ || op == AST_NE);
}

Val eval_binary(Eval *e, Env *env, const AstExpr *x, const Val *a, const Val *b) {
  Val out;
  const Val *in[] = {a, b};
  if (a->kind == VAL_POISON || b->kind == VAL_POISON) return val_poison();
  if ((x->op == AST_AND || x->op == AST_OR) && (a->kind == VAL_MASK || b->kind == VAL_MASK))
    return mask_combine(e, x->op, a, b, x->span);
  if (with_none(x->op, a, b, &out)) return out;
  if (!kinds_fit(x->op, a, b)) return wrong_operands(e, x, a, b);
  if (x->op == AST_POW) return power(e, x, a, b);
  if (biggest(2, in) < 0) {
    explain_elementwise(e, env, x, a, b);
    return val_poison();
  }
  if (x->op == AST_MUL) e->product = x, e->factor[0] = *a, e->factor[1] = *b;
  if (compares(x->op)) return comparison(e, x->op, a, b);
  if (!arithmetic(x->op)) return logic(e, x->op, a, b);
  out = arith(e, x->op, a, b);
  if (out.kind != VAL_NUMBER || !out.known || isfinite(out.number) || !isfinite(a->number) ||
      !isfinite(b->number))
    return out;
  Report *r = eval_error(e, "E0404", x->span, "`%s` is not finite", span_text(e->ctx, x->span));
  diag_label(r, "%s", number_text(e->ctx, out.number));
  return val_poison();
}

/* ---- reductions ---- */

bool need_dims(Eval *e, const Call *c, const Dims *want, const Val *x, const AstExpr *expr) {
  for (int i = 0; i < want->n; i++)
    if (!dims_has(&x->dims, want->at[i])) {
      explain_missing(e, c, want->at[i], x, expr);
      return false;
    }
  return true;
}

static Dims reduced(const Call *c) {
  const Dims *d = &c->groups.at[0].from;
  return d->n == 1 && !strcmp(d->at[0], "*") ? c->arg[0].dims : *d;
}

static bool one_group(Eval *e, const Call *c, bool single) {
  if (c->groups.n == 1 && !c->groups.at[0].arrow && (!single || c->groups.at[0].from.n == 1))
    return true;
  Report *r = eval_error(e, "E0204", c->axes->span, "`%s` wants other axes", c->name);
  diag_label(r, single ? "one dimension: `[D]`" : "one group of dimensions: `[A, B]`");
  return false;
}

/* sum[D](a * b) is what dot[D](a, b) computes, slower. Where one number is left nothing is: both
   read their operands once. */
static void lint_product(Eval *e, const Call *c, const Dims *d) {
  const AstExpr *x = e->product;
  if (!x || c->expr[0] != x || x->span.file == e->w->std || !d->n) return;
  if (d->n == c->arg[0].dims.n) return;
  for (int i = 0; i < 2; i++)
    if (e->factor[i].kind != VAL_FLOAT || !dims_subset(d, &e->factor[i].dims)) return;
  Str a = expr_text(e->ctx, x->left, "a"), b = expr_text(e->ctx, x->right, "b"),
      axes = span_text(e->ctx, c->axes->span);
  Str listed = strcmp(c->groups.at[0].from.at[0], "*") ? axes : dims_text(e->ctx, d);
  world_warn(
      e->w, "W0302", c->span,
      arena_printf(e->arena, "`sum%s` of a product is a contraction, computed slowly", axes),
      arena_printf(e->arena,
                   "write `dot%s(%s, %s)`: the same sum; in 16 bits its operands are rounded",
                   listed, a, b));
}

Val op_reduce(Eval *e, const Builtin *b, const Call *c) {
  const Val *a = &c->arg[0];
  if (!one_group(e, c, false)) return val_poison();
  if (!val_is_real(a)) return wrong_kind(e, c, 0, "a float");
  Dims d = reduced(c);
  if (!need_dims(e, c, &d, a, c->expr[0])) return val_poison();
  if (!d.n) return *a;
  if (b->code == OP_sum) lint_product(e, c, &d);
  Dims rest = dims_without(&a->dims, &d);
  int64_t n = a->known ? eval_sizes(e, &d) : 0;
  if (a->known && n > 0)
    return val_flat(VAL_FLOAT, rest, b->code == OP_sum ? a->number * (double)n : a->number);
  Val out = val_tensor(VAL_FLOAT, rest);
  lower_dims(e, &out, (OpCode)b->code, a, &d);
  return out;
}

Val op_argmax(Eval *e, const Builtin *b, const Call *c) {
  if (!one_group(e, c, true)) return val_poison();
  if (!val_is_real(&c->arg[0])) return wrong_kind(e, c, 0, "a float");
  const Dims *d = &c->groups.at[0].from;
  if (!need_dims(e, c, d, &c->arg[0], c->expr[0])) return val_poison();
  Val out = val_tensor(VAL_INDEX, dims_without(&c->arg[0].dims, d));
  out.of = d->at[0];
  lower_dims(e, &out, (OpCode)b->code, &c->arg[0], d);
  return out;
}

Val op_cumsum(Eval *e, const Builtin *b, const Call *c) {
  if (!one_group(e, c, true)) return val_poison();
  if (!val_is_real(&c->arg[0])) return wrong_kind(e, c, 0, "a float");
  const Dims *d = &c->groups.at[0].from;
  if (!need_dims(e, c, d, &c->arg[0], c->expr[0])) return val_poison();
  Val out = val_tensor(VAL_FLOAT, c->arg[0].dims);
  lower_dims(e, &out, (OpCode)b->code, &c->arg[0], d);
  return out;
}

Val op_top(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  if (!one_group(e, c, true)) return val_poison();
  if (!val_is_real(&c->arg[0])) return wrong_kind(e, c, 0, "a float");
  if (!need_dims(e, c, &c->groups.at[0].from, &c->arg[0], c->expr[0])) return val_poison();
  return val_tensor(VAL_BOOL, c->arg[0].dims);
}
