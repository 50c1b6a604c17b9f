/* Operators that move indexes without touching numbers: expand, rename, split, merge, unstack,
   concat, slice, pad, shift. Here sizes matter: they must fit (E0312) wherever they are known. */
#include "lower_emit.h"
#include "sema.h"
#include <math.h>
#include <string.h>

static Val not_tensor(Eval *e, const Call *call, int i) {
  eval_error(e, "E0402", call->expr[i]->span, "`%s` takes a value with dimensions, not %s",
             call->name, kind_text(e->ctx, &call->arg[i]));
  return val_poison();
}

/* Every group is written `[from -> to]` with these numbers of dims (0: any). */
static bool groups_fit(Eval *e, const Call *call, bool arrow, int nfrom, int nto,
                       const char *form) {
  bool ok = call->groups.n > 0;
  for (int i = 0; i < call->groups.n; i++) {
    const AxisGroup *group = &call->groups.at[i];
    ok &= group->arrow == arrow && (!nfrom || group->from.n == nfrom) &&
          (!arrow || !nto || group->to.n == nto);
  }
  if (ok) return true;
  Report *r = eval_error(e, "E0204", call->axes->span, "`%s` does not take these axes", call->name);
  diag_label(r, "it is written %s", form);
  return false;
}

static bool single_group(Eval *e, const Call *call) {
  if (call->groups.n == 1) return true;
  eval_error(e, "E0204", call->axes->span, "`%s` takes one group of axes", call->name);
  return false;
}

static bool whole_number(Eval *e, const Call *call, double otherwise, int64_t *out) {
  const Val *v = &call->arg[1];
  *out = (int64_t)otherwise;
  if (v->kind == VAL_ABSENT) return true;
  if (v->kind == VAL_NUMBER &&
      (!v->known || (v->number == floor(v->number) && fabs(v->number) < 1e15))) {
    *out = (int64_t)v->number;
    return true;
  }
  eval_error(e, "E0402", call->expr[1]->span, "a whole number is required");
  return false;
}

static Val as_result(const Val *a, Dims dims) {
  Val out = val_tensor(a->kind == VAL_NUMBER ? VAL_FLOAT : a->kind, dims);
  out.of = a->of, out.known = a->known, out.number = a->number;
  return out;
}

/* A tensor whose elements are all one known number needs no op. */
static Op *moved(Eval *e, Val *out, OpCode code, const Val *a, int ngroups,
                 const AxisGroup *group) {
  if (out->known) return NULL;
  return lower_op(e, out, 1, code, 1, &a, ngroups, group);
}

/* All pairs of two long axes are seldom meant. */
static void warn_huge(Eval *e, const Call *call, const Dims *all) {
  Eval quiet = *e;
  quiet.sized = false;
  int64_t n = eval_sizes(&quiet, all);
  if (n < (int64_t)1 << 30 || call->span.file == e->w->std) return;
  world_warn(e->w, "W0303", call->span,
             arena_printf(e->arena, "`expand%s` makes %.1f G elements: %s",
                          span_text(e->ctx, call->axes->span), (double)n / (1 << 30),
                          dims_text(e->ctx, all)),
             "if they are summed afterwards, `dot[..](a, b)` never makes them");
}

Val op_expand(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  if (!val_is_tensor(a)) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, false, 0, 0, "[A, B]") || !single_group(e, call)) return val_poison();
  const Dims *dims = &call->groups.at[0].from;
  Dims all = a->dims;
  for (int i = 0; i < dims->n; i++) {
    if (dims_has(&all, dims->at[i])) {
      Report *r = eval_error(e, "E0203", call->expr[0]->span,
                             "`expand[%s]` of a tensor that has `%s`", dims->at[i], dims->at[i]);
      diag_label(r, "has %s", dims_text(e->ctx, &a->dims));
      return val_poison();
    }
    eval_size(e, dims->at[i]);
    if (!dims_add(&all, dims->at[i])) return val_poison();
  }
  Val out = as_result(a, all);
  warn_huge(e, call, &all);
  moved(e, &out, OP_expand, a, 1, call->groups.at);
  return out;
}

/* ---- rename ---- */

static bool rename_sizes(Eval *e, const Call *call, Str from, Str to) {
  int64_t x = eval_size(e, from), y = eval_size(e, to);
  if (x <= 0 || y <= 0 || x == y) return true;
  Report *r = eval_error(e, "E0312", call->span, "`%s` has size %lld and `%s` %lld", from,
                         (long long)x, to, (long long)y);
  diag_label(r, "a rename keeps the size");
  return false;
}

/* All pairs take place at once, so names may be exchanged. */
static bool rename_one(Eval *e, const Call *call, Str from, Str to, Dims *dims, AxisGroup *done) {
  const Dims *before = &call->arg[0].dims;
  if (!dims_has(before, from) && dims_has(before, to)) return true;
  if (!dims_has(before, from)) {
    explain_missing(e, call, from, &call->arg[0], call->expr[0]);
    return false;
  }
  for (int i = 0; i < dims->n; i++)
    if (before->at[i] == from) dims->at[i] = to;
  dims_add(&done->from, from), dims_add(&done->to, to);
  return rename_sizes(e, call, from, to);
}

static bool rename_distinct(Eval *e, const Call *call, const Dims *dims) {
  Str twice = dims_repeated(dims);
  if (!twice) return true;
  Report *r =
      eval_error(e, "E0203", call->expr[0]->span, "`rename%s` of a tensor that has `%s` too",
                 span_text(e->ctx, call->axes->span), twice);
  diag_label(r, "has %s", dims_text(e->ctx, &call->arg[0].dims));
  return false;
}

Val op_rename(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  Dims dims = a->dims;
  AxisGroup done = {.arrow = true};
  if (!val_is_tensor(a)) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, true, 0, 0, "[A -> B]")) return val_poison();
  for (int i = 0; i < call->groups.n; i++) {
    const AxisGroup *group = &call->groups.at[i];
    if (group->from.n != group->to.n)
      return groups_fit(e, call, true, 1, 1, "[A -> B]"), val_poison();
    for (int k = 0; k < group->from.n; k++)
      if (!rename_one(e, call, group->from.at[k], group->to.at[k], &dims, &done))
        return val_poison();
  }
  if (!done.from.n) return *a;
  if (!rename_distinct(e, call, &dims)) return val_poison();
  Val out = as_result(a, dims);
  if (out.kind == VAL_INDEX) out.free = a->free;
  moved(e, &out, OP_rename, a, 1, &done);
  return out;
}

/* ---- split, merge ---- */

static bool same_product(Eval *e, const Call *call, const AxisGroup *group) {
  int64_t x = eval_sizes(e, &group->from), y = eval_sizes(e, &group->to);
  if (x <= 0 || y <= 0 || x == y) return x != SIZE_BAD && y != SIZE_BAD;
  Report *r = eval_error(e, "E0312", group->ast ? group->ast->span : call->span,
                         "%s (%lld) does not make %s (%lld)", dims_text(e->ctx, &group->from),
                         (long long)x, dims_text(e->ctx, &group->to), (long long)y);
  diag_label(r, "the products of the sizes differ");
  return false;
}

/* Replaces what the group takes by what it gives, at the place of the first one. */
static bool replace_dims(Eval *e, const Call *call, Dims *d, const AxisGroup *group) {
  Dims r = {0};
  for (int i = 0; i < group->from.n; i++)
    if (!dims_has(d, group->from.at[i])) {
      explain_missing(e, call, group->from.at[i], &call->arg[0], call->expr[0]);
      return false;
    }
  for (int i = 0; i < d->n; i++) {
    if (d->at[i] == group->from.at[0])
      for (int k = 0; k < group->to.n; k++) dims_add(&r, group->to.at[k]);
    if (!dims_has(&group->from, d->at[i]) && !dims_add(&r, d->at[i])) return false;
  }
  *d = r;
  return same_product(e, call, group);
}

static Val regroup(Eval *e, const Call *call, OpCode code) {
  const Val *a = &call->arg[0];
  Dims dims = a->dims;
  if (!val_is_tensor(a)) return not_tensor(e, call, 0);
  for (int i = 0; i < call->groups.n; i++)
    if (!replace_dims(e, call, &dims, &call->groups.at[i])) return val_poison();
  Str twice = dims_repeated(&dims);
  Val out = as_result(a, dims);
  if (out.kind == VAL_INDEX) out.free = false;
  if (!twice && dims.n <= MAX_RANK) moved(e, &out, code, a, call->groups.n, call->groups.at);
  return out;
}

Val op_split(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  return groups_fit(e, call, true, 1, 0, "[D -> A, B]") ? regroup(e, call, OP_split) : val_poison();
}

Val op_merge(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  return groups_fit(e, call, true, 0, 1, "[A, B -> D]") ? regroup(e, call, OP_merge) : val_poison();
}

/* ---- unstack, concat ---- */

Val op_unstack(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  const Val *a = &call->arg[0];
  if (!val_is_tensor(a)) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, false, 1, 0, "[D]") || !single_group(e, call)) return val_poison();
  const Dims *dims = &call->groups.at[0].from;
  if (!need_dims(e, call, dims, a, call->expr[0])) return val_poison();
  int64_t n = eval_size(e, dims->at[0]);
  if (n == SIZE_BAD) return val_poison();
  if (n > MAX_RESULTS) {
    eval_error(e, "E0204", call->span,
               "`unstack` of `%s` would give %lld values; at most %d are possible", dims->at[0],
               (long long)n, MAX_RESULTS);
    return val_poison();
  }
  int count = n == SIZE_OPEN ? MAX_RESULTS : (int)n;
  Val *items = ARENA_ARRAY(e->arena, Val, count);
  for (int i = 0; i < count; i++) items[i] = as_result(a, dims_without(&a->dims, dims));
  if (!a->known) lower_op(e, items, count, OP_unstack, 1, &a, 1, call->groups.at);
  if (n == 1) return items[0]; /* one name takes it */
  return (Val){
      .kind = VAL_LIST, .items = items, .nitems = count, .free = n == SIZE_OPEN, .id = NO_VALUE};
}

static bool concat_part(Eval *e, const Call *call, int i, const AxisGroup *group,
                        const Dims *rest) {
  const Val *v = &call->arg[i];
  Dims one = {.n = 1, .at = {group->from.at[i]}};
  if (!val_is_tensor(v) || v->kind != call->arg[0].kind) return not_tensor(e, call, i), false;
  if (!need_dims(e, call, &one, v, call->expr[i])) return false;
  Dims others = dims_without(&v->dims, &one);
  if (dims_same(&others, rest)) return true;
  Report *r = eval_error(e, "E0301", call->expr[i]->span,
                         "`concat` needs the same other dimensions in every operand");
  diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  diag_fact(r, "the first operand has %s in addition to `%s`", dims_text(e->ctx, rest),
            group->from.at[0]);
  return false;
}

static bool concat_sizes(Eval *e, const Call *call, const AxisGroup *group) {
  int64_t sum = 0, whole = eval_size(e, group->to.at[0]);
  for (int i = 0; i < group->from.n; i++) {
    int64_t n = eval_size(e, group->from.at[i]);
    if (n <= 0) return n != SIZE_BAD;
    sum += n;
  }
  if (whole <= 0 || whole == sum) return whole != SIZE_BAD;
  Report *r =
      eval_error(e, "E0312", call->axes->span, "the sizes of %s add up to %lld, not to %lld",
                 dims_text(e->ctx, &group->from), (long long)sum, (long long)whole);
  diag_label(r, "`%s` is %lld long", group->to.at[0], (long long)whole);
  return false;
}

Val op_concat(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  if (!groups_fit(e, call, true, 0, 1, "[A, B -> D]") || !single_group(e, call))
    return val_poison();
  const AxisGroup *group = &call->groups.at[0];
  const Val *in[ARGS_MAX];
  if (group->from.n != call->n) {
    eval_error(e, "E0204", call->span, "`concat` of %d operands with %d dimensions before `->`",
               call->n, group->from.n);
    return val_poison();
  }
  Dims first = {.n = 1, .at = {group->from.at[0]}}, rest = dims_without(&call->arg[0].dims, &first);
  for (int i = 0; i < call->n; i++) {
    in[i] = &call->arg[i];
    if (!concat_part(e, call, i, group, &rest)) return val_poison();
  }
  if (!concat_sizes(e, call, group)) return val_poison();
  Dims dims = call->arg[0].dims;
  for (int i = 0; i < dims.n; i++)
    if (dims.at[i] == first.at[0]) dims.at[i] = group->to.at[0];
  Val out = val_tensor(call->arg[0].kind, dims);
  out.of = call->arg[0].of;
  if (!dims_repeated(&dims)) lower_op(e, &out, 1, OP_concat, call->n, in, 1, group);
  return out;
}

/* ---- slice, pad, shift ---- */

static bool part_fits(Eval *e, const Call *call, const AxisGroup *group, bool slice, int64_t at) {
  Str small = slice ? group->to.at[0] : group->from.at[0],
      big = slice ? group->from.at[0] : group->to.at[0];
  int64_t n = eval_size(e, small), all = eval_size(e, big);
  if (n <= 0 || all <= 0) return n != SIZE_BAD && all != SIZE_BAD;
  if (at >= 0 && at + n <= all) return true;
  Report *r = eval_error(e, "E0312", call->span, "`%s` (%lld) at %lld does not fit in `%s` (%lld)",
                         small, (long long)n, (long long)at, big, (long long)all);
  diag_label(r, "positions %lld .. %lld of %lld", (long long)at, (long long)(at + n - 1),
             (long long)all);
  return false;
}

/* One group after the other: the IR's op has one. */
static Val part(Eval *e, const Call *call, bool slice, int64_t at, double fill) {
  Val v = call->arg[0];
  for (int i = 0; i < call->groups.n; i++) {
    const AxisGroup *group = &call->groups.at[i];
    Dims dims = v.dims;
    if (!need_dims(e, call, &group->from, &v, call->expr[0]) ||
        !part_fits(e, call, group, slice, at))
      return val_poison();
    for (int k = 0; k < dims.n; k++)
      if (dims.at[k] == group->from.at[0]) dims.at[k] = group->to.at[0];
    Val out = as_result(&v, dims);
    out.known &= slice || fill == v.number;
    if (dims_repeated(&dims)) return out;
    const Val *in = &v;
    Op *op = out.known ? NULL : lower_op(e, &out, 1, slice ? OP_slice : OP_pad, 1, &in, 1, group);
    lower_int(e, op, ATTR_at, at);
    if (!slice) lower_float(e, op, ATTR_fill, fill);
    v = out;
  }
  return v;
}

Val op_slice(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  int64_t at;
  if (!val_is_tensor(&call->arg[0])) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, true, 1, 1, "[D -> A]") || !whole_number(e, call, 0, &at))
    return val_poison();
  return part(e, call, true, at, 0);
}

static bool fill_number(Eval *e, const Call *call, double *out) {
  const Val *fill = &call->arg[2];
  *out = fill->kind == VAL_ABSENT ? 0 : fill->number;
  if (fill->kind == VAL_ABSENT || fill->kind == VAL_NUMBER) return true;
  eval_error(e, "E0402", call->expr[2]->span, "a number is required, not %s",
             kind_text(e->ctx, fill));
  return false;
}

Val op_pad(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  int64_t at;
  double fill;
  if (!val_is_real(&call->arg[0])) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, true, 1, 1, "[A -> D]") || !whole_number(e, call, 0, &at) ||
      !fill_number(e, call, &fill))
    return val_poison();
  return part(e, call, false, at, fill);
}

Val op_shift(Eval *e, const Builtin *builtin, const Call *call) {
  (void)builtin;
  int64_t by;
  double fill;
  Val v = call->arg[0];
  if (!val_is_tensor(&v) || v.kind == VAL_BOOL) return not_tensor(e, call, 0);
  if (!groups_fit(e, call, false, 1, 0, "[D]") || !whole_number(e, call, 1, &by) ||
      !fill_number(e, call, &fill))
    return val_poison();
  for (int i = 0; i < call->groups.n; i++) {
    if (!need_dims(e, call, &call->groups.at[i].from, &v, call->expr[0])) return val_poison();
    Val out = as_result(&v, v.dims);
    const Val *in = &v;
    out.known = false, out.free = false;
    Op *op = lower_op(e, &out, 1, OP_shift, 1, &in, 1, &call->groups.at[i]);
    lower_int(e, op, ATTR_by, by);
    lower_float(e, op, ATTR_fill, fill);
    v = out;
  }
  return v;
}
