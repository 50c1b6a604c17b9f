/* Operators with a meaning of their own: contraction, indexes; and the table of
 * all operators. */
#include "lower_emit.h"
#include "sema.h"
#include <string.h>

static Val not_float(Eval *e, const Call *call, int i) {
  Report *r = eval_error(e, "E0402", call->expr[i]->span, "`%s` takes a float", call->name);
  diag_label(r, "is %s", kind_text(e->ctx, &call->arg[i]));
  return val_poison();
}

/* ---- dot, outer ---- */

static Dims side_by_side(const Val *a, const Val *b, const Dims *cut) {
  Dims dims = dims_without(&a->dims, cut);
  for (int i = 0; i < b->dims.n; i++)
    if (!dims_has(cut, b->dims.at[i]) && !dims_has(&dims, b->dims.at[i]))
      dims_add(&dims, b->dims.at[i]);
  return dims;
}

static Val op_dot(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *in[] = {&call->arg[0], &call->arg[1]};
  for (int i = 0; i < 2; i++)
    if (!val_is_real(in[i])) return not_float(e, call, i);
  if (call->groups.n != 1 || call->groups.at[0].arrow) {
    eval_error(e, "E0204", call->axes->span,
               "`dot` takes one group of dimensions: `dot[A, B](x, y)`");
    return val_poison();
  }
  const Dims *dims = &call->groups.at[0].from;
  for (int i = 0; i < dims->n; i++)
    if (!dims_has(&in[0]->dims, dims->at[i]) || !dims_has(&in[1]->dims, dims->at[i])) {
      explain_contract(e, call, dims->at[i]);
      return val_poison();
    }
  Val out = val_tensor(VAL_FLOAT, side_by_side(in[0], in[1], dims));
  if (out.dims.n <= MAX_RANK) lower_op(e, &out, 1, OP_dot, 2, in, 1, call->groups.at);
  if (e->adapters) adapt_dot(e, call, &out);
  return out;
}

static Val op_outer(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  Dims none = {0};
  for (int i = 0; i < 2; i++)
    if (!val_is_real(&call->arg[i])) return not_float(e, call, i);
  Val out = val_tensor(VAL_FLOAT, side_by_side(&call->arg[0], &call->arg[1], &none));
  if (out.dims.n > MAX_RANK) return out;
  Val x = lower_widened(e, &call->arg[0], &out.dims),
      y = lower_widened(e, &call->arg[1], &out.dims);
  const Val *in[] = {&x, &y};
  lower_op(e, &out, 1, OP_mul, 2, in, 0, NULL);
  return out;
}

/* ---- indexes ---- */

Val eval_iota(Eval *e, Env *env, const AstExpr *x) {
  Dims dims;
  const AstExpr *a = x->args.n == 1 ? x->args.at[0].value : NULL;
  if (!a || a->kind != EXPR_NAME || x->axes) {
    Report *r = eval_error(e, "E0204", x->span, "`iota` takes one dimension");
    diag_help(r, "for example `iota(Seq)`");
    return val_poison();
  }
  AstNames name = {0};
  vec_push(e->arena, name, a->name);
  if (!dims_resolve(e, env, &name, &dims)) return val_poison();
  if (dims.n != 1) {
    eval_error(e, "E0204", a->span, "`iota` takes one dimension; `%s` is bound to %d", a->name.text,
               dims.n);
    return val_poison();
  }
  eval_size(e, dims.at[0]);
  Val out = val_tensor(VAL_INDEX, dims);
  out.of = dims.at[0], out.free = true;
  lower_iota(e, &out, dims.at[0]);
  return out;
}

static bool sizes_address(Eval *e, Str of, Str dim, Span at) {
  int64_t n = eval_size(e, of), room = eval_size(e, dim);
  if (n <= 0 || room <= 0 || n <= room) return true;
  Report *r = eval_error(e, "E0306", at, "`iota(%s)` counts to %lld, `%s` has only %lld", of,
                         (long long)n, dim, (long long)room);
  diag_label(r, "index range larger than the dimension");
  sizes_mend(e->sizes, r, of, room);
  return false;
}

/* An index that addresses `dim`, or E0401, E0402, E0306. */
static bool is_index_of(Eval *e, const Val *i, Str dim, Span at) {
  if (i->kind == VAL_INDEX && i->of == dim) return true;
  if (i->kind == VAL_INDEX && i->free) return sizes_address(e, i->of, dim, at);
  bool real = val_is_real(i);
  Report *r =
      real ? eval_error(e, "E0401", at, "%s cannot be an index", kind_text(e->ctx, i))
           : eval_error(e, "E0402", at, "%s does not address `%s`", kind_text(e->ctx, i), dim);
  diag_label(r, "an index of `%s` is expected", dim);
  return false;
}

Val eval_gather(Eval *e, Env *env, const AstExpr *expr) {
  AstExpr name = {.kind = EXPR_NAME, .span = expr->name.span, .name = expr->name};
  AstNames list = {0};
  Dims dims;
  Val w = eval_expr(e, env, &name), i = eval_expr(e, env, expr->index);
  vec_push(e->arena, list, expr->index_dim);
  if (!dims_resolve(e, env, &list, &dims) || w.kind == VAL_POISON || i.kind == VAL_POISON)
    return val_poison();
  Call call = {.site = expr,
               .name = expr->name.text,
               .span = expr->span,
               .name_span = expr->name.span,
               .n = 1,
               .arg = {w}};
  call.expr[0] = &name;
  if (!val_is_tensor(&w) || dims.n != 1 || !dims_has(&w.dims, dims.at[0])) {
    Report *r =
        eval_error(e, "E0303", expr->index_dim.span, "`%s[%s = ..]` of a tensor without `%s`",
                   call.name, expr->index_dim.text, expr->index_dim.text);
    diag_label(r, "`%s` has %s", call.name, dims_text(e->ctx, &w.dims));
    return val_poison();
  }
  if (!is_index_of(e, &i, dims.at[0], expr->index->span)) return val_poison();
  Dims rest = dims_without(&w.dims, &dims);
  Val out = val_tensor(w.kind, i.dims);
  out.of = w.of;
  for (int k = 0; k < rest.n; k++)
    if (!dims_has(&out.dims, rest.at[k])) dims_add(&out.dims, rest.at[k]);
  AxisGroup group = {.from = dims};
  const Val *in[] = {&w, &i};
  if (out.dims.n <= MAX_RANK) lower_op(e, &out, 1, OP_gather, 2, in, 1, &group);
  return out;
}

static Val op_one_hot(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *i = &call->arg[0];
  if (call->groups.n != 1 || call->groups.at[0].arrow || call->groups.at[0].from.n != 1) {
    eval_error(e, "E0204", call->axes->span, "`one_hot` takes one dimension: `one_hot[D](i)`");
    return val_poison();
  }
  Str d = call->groups.at[0].from.at[0];
  if (!is_index_of(e, i, d, call->expr[0]->span)) return val_poison();
  Dims all = i->dims;
  dims_add(&all, d);
  Val out = val_tensor(VAL_FLOAT, all), same = val_tensor(VAL_BOOL, all),
      places = val_tensor(VAL_INDEX, call->groups.at[0].from);
  if (dims_repeated(&all) || all.n > MAX_RANK || !e->build) return out;
  lower_iota(e, &places, d);
  Val wide = lower_widened(e, i, &all);
  const Val *in[] = {&wide, &places}, *equal = &same;
  lower_op(e, &same, 1, OP_eq, 2, in, 0, NULL);
  lower_op(e, &out, 1, OP_cast, 1, &equal, 0, NULL);
  return out;
}

static Val op_scatter(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *x = &call->arg[0], *i = &call->arg[1], *in[] = {x, i};
  const AxisGroup *group = &call->groups.at[0];
  if (call->groups.n != 1 || !group->arrow || group->to.n != 1) {
    eval_error(e, "E0204", call->axes->span, "`scatter_add` takes `[A, B -> D]`");
    return val_poison();
  }
  if (!val_is_real(x)) return not_float(e, call, 0);
  if (!need_dims(e, call, &group->from, x, call->expr[0]) ||
      !need_dims(e, call, &group->from, i, call->expr[1]))
    return val_poison();
  if (!is_index_of(e, i, group->to.at[0], call->expr[1]->span)) return val_poison();
  if (!dims_subset(&i->dims, &x->dims)) {
    Report *r = eval_error(e, "E0301", call->expr[1]->span,
                           "the index of `scatter_add` has dimensions that the operand lacks");
    diag_label(r, "has %s", dims_text(e->ctx, &i->dims));
    diag_fact(r, "the operand has %s", dims_text(e->ctx, &x->dims));
    return val_poison();
  }
  eval_size(e, group->to.at[0]);
  Val out = val_tensor(VAL_FLOAT, dims_without(&x->dims, &group->from));
  dims_add(&out.dims, group->to.at[0]);
  if (!dims_repeated(&out.dims)) lower_op(e, &out, 1, OP_scatter, 2, in, 1, group);
  return out;
}

/* ---- the table ---- */

static const Builtin builtins[] = {
    {"abs", op_unary, OP_abs, "x", 1, 0},
#define FUNCTION(name, ...) {#name, op_unary, OP_##name, "x", 1, 0},
#include "ir/functions.def"
#undef FUNCTION
    {"sign", op_unary, OP_sign, "x", 1, 0},
    {"floor", op_unary, OP_floor, "x", 1, 0},
    {"ceil", op_numeric, 0, "x", 1, 0},
    {"min", op_minmax, OP_min, "a b", 2, 0},
    {"max", op_minmax, OP_max, "a b", 2, 0},
    {"not", op_not, OP_not, "a", 1, 0},
    {"where", op_where, OP_where, "c a b", 3, 0},
    {"float", op_float, OP_cast, "x", 1, 0},
    {"stop_gradient", op_stop, OP_stop, "x", 1, 0},
    {"rand", op_rand, OP_rand, "x", 1, 0},
    {"sum", op_reduce, OP_sum, "x", 1, 1},
    {"max", op_reduce, OP_rmax, "x", 1, 1},
    {"min", op_reduce, OP_rmin, "x", 1, 1},
    {"argmax", op_over_one, OP_argmax, "x", 1, 1},
    {"cumsum", op_over_one, OP_cumsum, "x", 1, 1},
    {"dot", op_dot, OP_dot, "a b", 2, 1},
    {"outer", op_outer, OP_mul, "a b", 2, 0},
    {"expand", op_expand, OP_expand, "x", 1, 1},
    {"rename", op_rename, OP_rename, "x", 1, 1},
    {"split", op_split, OP_split, "x", 1, 1},
    {"merge", op_merge, OP_merge, "x", 1, 1},
    {"unstack", op_unstack, OP_unstack, "x", 1, 1},
    {"concat", op_concat, OP_concat, "*", 2, 1},
    {"slice", op_slice, OP_slice, "x at", 1, 1},
    {"pad", op_pad, OP_pad, "x at value", 1, 1},
    {"shift", op_shift, OP_shift, "x by fill", 1, 1},
    {"iota", NULL, OP_iota, "D", 1, 0},
    {"one_hot", op_one_hot, OP_eq, "i", 1, 1},
    {"scatter_add", op_scatter, OP_scatter, "x i", 2, 1},
    {"repeat", op_repeat, 0, "values", 1, 0},
    {"rope", op_rope, OP_rope, "x theta pos factor original low high slow fast truncate", 1, 1},
    {"bucket", op_bucket, OP_min, "far both", 0, 1},
    {"top", op_top, OP_argmax, "x k", 1, 1},
    {"route", op_route, OP_scatter, "gates k by", 1, 1},
};

const Builtin *builtin_table(uint32_t *n) {
  *n = sizeof builtins / sizeof *builtins;
  return builtins;
}

/* max and min mean one thing with axes and another without. */
const Builtin *builtin_find(Str name, bool has_axes) {
  const Builtin *other = NULL;
  for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++) {
    if (strcmp(builtins[i].name, name)) continue;
    if (builtins[i].axes == has_axes) return &builtins[i];
    other = &builtins[i];
  }
  return other;
}
