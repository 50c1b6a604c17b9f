/* Operators that move indexes without touching numbers: expand, rename, split, merge, unstack,
   concat, slice, pad, shift. Here sizes matter: they must fit (E0312) wherever they are known. */
#include "frontend/lower_emit.h"
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

static Val not_tensor(Eval *e, const Call *c, int i) {
  eval_error(e, "E0402", c->expr[i]->span, "`%s` wants a value with dimensions, not %s", c->name,
             kind_text(e->ctx, &c->arg[i]));
  return val_poison();
}

/* Every group is written `[from -> to]` with these numbers of dims (0: any). */
static bool groups_fit(Eval *e, const Call *c, bool arrow, int nfrom, int nto, const char *form) {
  bool ok = c->groups.n > 0;
  for (int i = 0; i < c->groups.n; i++) {
    const AxisGroup *g = &c->groups.at[i];
    ok &= g->arrow == arrow && (!nfrom || g->from.n == nfrom) && (!arrow || !nto || g->to.n == nto);
  }
  if (ok) return true;
  Report *r = eval_error(e, "E0204", c->axes->span, "`%s` wants other axes", c->name);
  diag_label(r, "written %s", form);
  return false;
}

static bool single_group(Eval *e, const Call *c) {
  if (c->groups.n == 1) return true;
  eval_error(e, "E0204", c->axes->span, "`%s` takes one group of axes", c->name);
  return false;
}

static bool whole_number(Eval *e, const Call *c, int i, double otherwise, int64_t *out) {
  const Val *v = &c->arg[i];
  *out = (int64_t)otherwise;
  if (v->kind == VAL_ABSENT) return true;
  if (v->kind == VAL_NUMBER &&
      (!v->known || (v->number == floor(v->number) && fabs(v->number) < 1e15))) {
    *out = (int64_t)v->number;
    return true;
  }
  eval_error(e, "E0402", c->expr[i]->span, "a whole number is wanted here");
  return false;
}

static Val as_result(const Val *a, Dims d) {
  Val out = val_tensor(a->kind == VAL_NUMBER ? VAL_FLOAT : a->kind, d);
  out.of = a->of, out.known = a->known, out.number = a->number;
  return out;
}

/* A tensor whose elements are all one known number needs no op. */
static Op *moved(Eval *e, Val *out, OpCode code, const Val *a, int ngroups, const AxisGroup *g) {
  if (out->known) return NULL;
  return lower_op(e, out, 1, code, 1, &a, ngroups, g);
}

/* All pairs of two long axes are seldom meant. */
static void warn_huge(Eval *e, const Call *c, const Dims *all) {
  Eval quiet = *e;
  quiet.sized = false;
  int64_t n = eval_sizes(&quiet, all);
  if (n < (int64_t)1 << 30 || c->span.file == e->w->std) return;
  world_warn(e->w, "W0303", c->span,
             arena_printf(e->arena, "`expand%s` makes %.1f G elements: %s",
                          span_text(e->ctx, c->axes->span), (double)n / (1 << 30),
                          dims_text(e->ctx, all)),
             "if they are summed afterwards, `dot[..](a, b)` never makes them");
}

Val op_expand(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  if (!val_is_tensor(a)) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, false, 0, 0, "[A, B]") || !single_group(e, c)) return val_poison();
  const Dims *d = &c->groups.at[0].from;
  Dims all = a->dims;
  for (int i = 0; i < d->n; i++) {
    if (dims_has(&all, d->at[i])) {
      Report *r = eval_error(e, "E0203", c->expr[0]->span, "`expand[%s]` of a tensor that has `%s`",
                             d->at[i], d->at[i]);
      diag_label(r, "has %s", dims_text(e->ctx, &a->dims));
      return val_poison();
    }
    eval_size(e, d->at[i]);
    if (!dims_add(&all, d->at[i])) return val_poison();
  }
  Val out = as_result(a, all);
  warn_huge(e, c, &all);
  moved(e, &out, OP_expand, a, 1, c->groups.at);
  return out;
}

/* ---- rename ---- */

static bool rename_sizes(Eval *e, const Call *c, Str from, Str to) {
  int64_t x = eval_size(e, from), y = eval_size(e, to);
  if (x <= 0 || y <= 0 || x == y) return true;
  Report *r = eval_error(e, "E0312", c->span, "`%s` has size %lld and `%s` %lld", from,
                         (long long)x, to, (long long)y);
  diag_label(r, "a rename keeps the size");
  return false;
}

/* All pairs take place at once, so names may be exchanged. */
static bool rename_one(Eval *e, const Call *c, Str from, Str to, Dims *d, AxisGroup *done) {
  const Dims *before = &c->arg[0].dims;
  if (!dims_has(before, from) && dims_has(before, to)) return true;
  if (!dims_has(before, from)) {
    explain_missing(e, c, from, &c->arg[0], c->expr[0]);
    return false;
  }
  for (int i = 0; i < d->n; i++)
    if (before->at[i] == from) d->at[i] = to;
  dims_add(&done->from, from), dims_add(&done->to, to);
  return rename_sizes(e, c, from, to);
}

static bool rename_distinct(Eval *e, const Call *c, const Dims *d) {
  Str twice = dims_repeated(d);
  if (!twice) return true;
  Report *r = eval_error(e, "E0203", c->expr[0]->span, "`rename%s` of a tensor that has `%s` too",
                         span_text(e->ctx, c->axes->span), twice);
  diag_label(r, "has %s", dims_text(e->ctx, &c->arg[0].dims));
  return false;
}

Val op_rename(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  Dims d = a->dims;
  AxisGroup done = {.arrow = true};
  if (!val_is_tensor(a)) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, true, 0, 0, "[A -> B]")) return val_poison();
  for (int i = 0; i < c->groups.n; i++) {
    const AxisGroup *g = &c->groups.at[i];
    if (g->from.n != g->to.n) return groups_fit(e, c, true, 1, 1, "[A -> B]"), val_poison();
    for (int k = 0; k < g->from.n; k++)
      if (!rename_one(e, c, g->from.at[k], g->to.at[k], &d, &done)) return val_poison();
  }
  if (!done.from.n) return *a;
  if (!rename_distinct(e, c, &d)) return val_poison();
  Val out = as_result(a, d);
  if (out.kind == VAL_INDEX) out.free = a->free;
  moved(e, &out, OP_rename, a, 1, &done);
  return out;
}

/* ---- split, merge ---- */

static bool same_product(Eval *e, const Call *c, const AxisGroup *g) {
  int64_t x = eval_sizes(e, &g->from), y = eval_sizes(e, &g->to);
  if (x <= 0 || y <= 0 || x == y) return x != SIZE_BAD && y != SIZE_BAD;
  Report *r = eval_error(e, "E0312", g->ast ? g->ast->span : c->span,
                         "%s (%lld) does not make %s (%lld)", dims_text(e->ctx, &g->from),
                         (long long)x, dims_text(e->ctx, &g->to), (long long)y);
  diag_label(r, "the products of the sizes differ");
  return false;
}

/* Replaces what the group takes by what it gives, at the place of the first one. */
static bool replace_dims(Eval *e, const Call *c, Dims *d, const AxisGroup *g) {
  Dims r = {0};
  for (int i = 0; i < g->from.n; i++)
    if (!dims_has(d, g->from.at[i])) {
      explain_missing(e, c, g->from.at[i], &c->arg[0], c->expr[0]);
      return false;
    }
  for (int i = 0; i < d->n; i++) {
    if (d->at[i] == g->from.at[0])
      for (int k = 0; k < g->to.n; k++) dims_add(&r, g->to.at[k]);
    if (!dims_has(&g->from, d->at[i]) && !dims_add(&r, d->at[i])) return false;
  }
  *d = r;
  return same_product(e, c, g);
}

static Val regroup(Eval *e, const Call *c, OpCode code) {
  const Val *a = &c->arg[0];
  Dims d = a->dims;
  if (!val_is_tensor(a)) return not_tensor(e, c, 0);
  for (int i = 0; i < c->groups.n; i++)
    if (!replace_dims(e, c, &d, &c->groups.at[i])) return val_poison();
  Str twice = dims_repeated(&d);
  Val out = as_result(a, d);
  if (out.kind == VAL_INDEX) out.free = false;
  if (!twice && d.n <= MAX_RANK) moved(e, &out, code, a, c->groups.n, c->groups.at);
  return out;
}

Val op_split(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  return groups_fit(e, c, true, 1, 0, "[D -> A, B]") ? regroup(e, c, OP_split) : val_poison();
}

Val op_merge(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  return groups_fit(e, c, true, 0, 1, "[A, B -> D]") ? regroup(e, c, OP_merge) : val_poison();
}

/* ---- unstack, concat ---- */

Val op_unstack(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  const Val *a = &c->arg[0];
  if (!val_is_tensor(a)) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, false, 1, 0, "[D]") || !single_group(e, c)) return val_poison();
  const Dims *d = &c->groups.at[0].from;
  if (!need_dims(e, c, d, a, c->expr[0])) return val_poison();
  int64_t n = eval_size(e, d->at[0]);
  if (n == SIZE_BAD) return val_poison();
  if (n > MAX_RESULTS) {
    eval_error(e, "E0204", c->span,
               "`unstack` of `%s` would give %lld values; at most %d are possible", d->at[0],
               (long long)n, MAX_RESULTS);
    return val_poison();
  }
  int count = n == SIZE_OPEN ? MAX_RESULTS : (int)n;
  Val *items = ARENA_ARRAY(e->arena, Val, count);
  for (int i = 0; i < count; i++) items[i] = as_result(a, dims_without(&a->dims, d));
  if (!a->known) lower_op(e, items, count, OP_unstack, 1, &a, 1, c->groups.at);
  if (n == 1) return items[0]; /* one name takes it */
  return (Val){
      .kind = VAL_LIST, .items = items, .nitems = count, .free = n == SIZE_OPEN, .id = NO_VALUE};
}

static bool concat_part(Eval *e, const Call *c, int i, const AxisGroup *g, const Dims *rest) {
  const Val *v = &c->arg[i];
  Dims one = {.n = 1, .at = {g->from.at[i]}};
  if (!val_is_tensor(v) || v->kind != c->arg[0].kind) return not_tensor(e, c, i), false;
  if (!need_dims(e, c, &one, v, c->expr[i])) return false;
  Dims others = dims_without(&v->dims, &one);
  if (dims_same(&others, rest)) return true;
  Report *r = eval_error(e, "E0301", c->expr[i]->span,
                         "`concat` needs the same other dimensions in every operand");
  diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  diag_fact(r, "the first operand has %s beside `%s`", dims_text(e->ctx, rest), g->from.at[0]);
  return false;
}

static bool concat_sizes(Eval *e, const Call *c, const AxisGroup *g) {
  int64_t sum = 0, whole = eval_size(e, g->to.at[0]);
  for (int i = 0; i < g->from.n; i++) {
    int64_t n = eval_size(e, g->from.at[i]);
    if (n <= 0) return n != SIZE_BAD;
    sum += n;
  }
  if (whole <= 0 || whole == sum) return whole != SIZE_BAD;
  Report *r = eval_error(e, "E0312", c->axes->span, "the sizes of %s add up to %lld, not to %lld",
                         dims_text(e->ctx, &g->from), (long long)sum, (long long)whole);
  diag_label(r, "`%s` is %lld long", g->to.at[0], (long long)whole);
  return false;
}

Val op_concat(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  if (!groups_fit(e, c, true, 0, 1, "[A, B -> D]") || !single_group(e, c)) return val_poison();
  const AxisGroup *g = &c->groups.at[0];
  const Val *in[ARGS_MAX];
  if (g->from.n != c->n) {
    eval_error(e, "E0204", c->span, "`concat` of %d operands with %d dimensions before `->`", c->n,
               g->from.n);
    return val_poison();
  }
  Dims first = {.n = 1, .at = {g->from.at[0]}}, rest = dims_without(&c->arg[0].dims, &first);
  for (int i = 0; i < c->n; i++) {
    in[i] = &c->arg[i];
    if (!concat_part(e, c, i, g, &rest)) return val_poison();
  }
  if (!concat_sizes(e, c, g)) return val_poison();
  Dims d = c->arg[0].dims;
  for (int i = 0; i < d.n; i++)
    if (d.at[i] == first.at[0]) d.at[i] = g->to.at[0];
  Val out = val_tensor(c->arg[0].kind, d);
  out.of = c->arg[0].of;
  if (!dims_repeated(&d)) lower_op(e, &out, 1, OP_concat, c->n, in, 1, g);
  return out;
}

/* ---- slice, pad, shift ---- */

static bool part_fits(Eval *e, const Call *c, const AxisGroup *g, bool slice, int64_t at) {
  Str small = slice ? g->to.at[0] : g->from.at[0], big = slice ? g->from.at[0] : g->to.at[0];
  int64_t n = eval_size(e, small), all = eval_size(e, big);
  if (n <= 0 || all <= 0) return n != SIZE_BAD && all != SIZE_BAD;
  if (at >= 0 && at + n <= all) return true;
  Report *r = eval_error(e, "E0312", c->span, "`%s` (%lld) at %lld does not fit in `%s` (%lld)",
                         small, (long long)n, (long long)at, big, (long long)all);
  diag_label(r, "positions %lld .. %lld of %lld", (long long)at, (long long)(at + n - 1),
             (long long)all);
  return false;
}

/* One group after the other: the IR's op has one. */
static Val part(Eval *e, const Call *c, bool slice, int64_t at, double fill) {
  Val v = c->arg[0];
  for (int i = 0; i < c->groups.n; i++) {
    const AxisGroup *g = &c->groups.at[i];
    Dims d = v.dims;
    if (!need_dims(e, c, &g->from, &v, c->expr[0]) || !part_fits(e, c, g, slice, at))
      return val_poison();
    for (int k = 0; k < d.n; k++)
      if (d.at[k] == g->from.at[0]) d.at[k] = g->to.at[0];
    Val out = as_result(&v, d);
    out.known &= slice || fill == v.number;
    if (dims_repeated(&d)) return out;
    const Val *in = &v;
    Op *op = out.known ? NULL : lower_op(e, &out, 1, slice ? OP_slice : OP_pad, 1, &in, 1, g);
    lower_int(e, op, ATTR_at, at);
    if (!slice) lower_float(e, op, ATTR_fill, fill);
    v = out;
  }
  return v;
}

Val op_slice(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  int64_t at;
  if (!val_is_tensor(&c->arg[0])) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, true, 1, 1, "[D -> A]") || !whole_number(e, c, 1, 0, &at))
    return val_poison();
  return part(e, c, true, at, 0);
}

static bool fill_number(Eval *e, const Call *c, int i, double *out) {
  *out = 0;
  if (c->arg[i].kind == VAL_ABSENT) return true;
  *out = c->arg[i].number;
  if (c->arg[i].kind == VAL_NUMBER) return true;
  eval_error(e, "E0402", c->expr[i]->span, "a number is wanted here, not %s",
             kind_text(e->ctx, &c->arg[i]));
  return false;
}

Val op_pad(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  int64_t at;
  double fill;
  if (!val_is_real(&c->arg[0])) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, true, 1, 1, "[A -> D]") || !whole_number(e, c, 1, 0, &at) ||
      !fill_number(e, c, 2, &fill))
    return val_poison();
  return part(e, c, false, at, fill);
}

Val op_shift(Eval *e, const Builtin *b, const Call *c) {
  (void)b;
  int64_t by;
  double fill;
  Val v = c->arg[0];
  if (!val_is_tensor(&v) || v.kind == VAL_BOOL) return not_tensor(e, c, 0);
  if (!groups_fit(e, c, false, 1, 0, "[D]") || !whole_number(e, c, 1, 1, &by) ||
      !fill_number(e, c, 2, &fill))
    return val_poison();
  for (int i = 0; i < c->groups.n; i++) {
    if (!need_dims(e, c, &c->groups.at[i].from, &v, c->expr[0])) return val_poison();
    Val out = as_result(&v, v.dims);
    const Val *in = &v;
    out.known = false, out.free = false;
    Op *op = lower_op(e, &out, 1, OP_shift, 1, &in, 1, &c->groups.at[i]);
    lower_int(e, op, ATTR_by, by);
    lower_float(e, op, ATTR_fill, fill);
    v = out;
  }
  return v;
}
