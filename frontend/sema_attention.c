/* Attention: one op where the IR has it; where operands have dims that the op does not know, the
   definition in the library is walked instead. */
#include "frontend/lower_emit.h"
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

typedef struct AttentionParts {
  Str q, k, d;
  Val x[3]; /* q, k, v */
  Val mask, scale;
  const AstExpr *expr[5];
} AttentionParts;

static bool axes(Eval *e, const Call *c, AttentionParts *p) {
  const AxisGroups *g = &c->groups;
  if (g->n == 2 && g->at[0].arrow && !g->at[1].arrow && g->at[0].from.n == 1 &&
      g->at[0].to.n == 1 && g->at[1].from.n >= 1) {
    p->q = g->at[0].from.at[0], p->k = g->at[0].to.at[0], p->d = g->at[1].from.at[0];
    return true;
  }
  Report *r =
      eval_error(e, "E0204", c->axes ? c->axes->span : c->span, "`attention` wants `[Q -> K; D]`");
  diag_help(r, "for example `attention[Seq -> Key; Head](q, k, v)`");
  return false;
}

static bool operands(Eval *e, const Call *c, AttentionParts *p) {
  Str formals[5] = {0};
  static const char *const names[] = {"q", "k", "v", "mask", "scale"};
  Val v[5];
  for (int i = 0; i < 5; i++) formals[i] = intern(e->ctx->names, names[i]);
  if (!bind_operands(e, c, 5, formals, 3, v, p->expr)) return false;
  memcpy(p->x, v, sizeof p->x);
  p->mask = v[3], p->scale = v[4];
  if (p->mask.kind == VAL_ABSENT) p->mask = mask_of_word(e, intern(e->ctx->names, "all"), c->span);
  return true;
}

static bool float_with(Eval *e, const Call *c, const AttentionParts *p, int i, Str dim,
                       Str or_dim) {
  const Val *v = &p->x[i];
  if (v->kind != VAL_FLOAT) {
    eval_error(e, "E0402", p->expr[i]->span, "`attention` wants floats, not %s",
               kind_text(e->ctx, v));
    return false;
  }
  if (dims_has(&v->dims, dim) || (or_dim && dims_has(&v->dims, or_dim))) return true;
  explain_missing(e, c, dim, v, p->expr[i]);
  return false;
}

static bool check_operands(Eval *e, const Call *c, const AttentionParts *p) {
  const Dims *d = &c->groups.at[1].from;
  for (int k = 0; k < d->n; k++)
    for (int i = 0; i < 2; i++)
      if (!float_with(e, c, p, i, d->at[k], NULL)) return false;
  for (int i = 0; i < 3; i++)
    if (!float_with(e, c, p, i, p->q, i ? p->k : NULL)) return false;
  if (!dims_has(&p->x[0].dims, p->k)) return true;
  Report *r = eval_error(e, "E0301", p->expr[0]->span, "the queries have `%s` already", p->k);
  diag_label(r, "has %s", dims_text(e->ctx, &p->x[0].dims));
  return false;
}

static bool check_rest(Eval *e, const AttentionParts *p) {
  Dims known = p->x[0].dims;
  dims_add(&known, p->k);
  for (int i = 1; i < 3; i++) {
    if (i == 2 || dims_subset(&p->x[i].dims, &known)) continue;
    Dims extra = dims_without(&p->x[i].dims, &known);
    Report *r =
        eval_error(e, "E0301", p->expr[i]->span, "the keys have dimensions that the queries lack");
    diag_label(r, "has %s", dims_text(e->ctx, &p->x[i].dims));
    diag_fact(r, "the queries have %s; %s %s not in them", dims_text(e->ctx, &p->x[0].dims),
              dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
    return false;
  }
  return true;
}

/* Keys that have the queries' axis get the keys' name, so both have one length. */
static bool check_lengths(Eval *e, const Call *c, const AttentionParts *p) {
  if (dims_has(&p->x[1].dims, p->k) && dims_has(&p->x[2].dims, p->k)) return true;
  int64_t q = eval_size(e, p->q), k = eval_size(e, p->k);
  if (q <= 0 || k <= 0 || q == k) return q != SIZE_BAD && k != SIZE_BAD;
  Report *r = eval_error(e, "E0312", c->axes->span, "`%s` has size %lld and `%s` %lld", p->q,
                         (long long)q, p->k, (long long)k);
  diag_label(r, "the keys have `%s`, which becomes `%s`", p->q, p->k);
  const DimInfo *info = sizes_find(e->sizes, p->k);
  diag_also(r, info->def->span, "set here");
  diag_help(r, "the same length under another name: `%s like %s`", p->k, p->q);
  diag_edit(r, info->def->span, "%s like %s", p->k, p->q);
  return false;
}

static bool check_settings(Eval *e, const AttentionParts *p, Dims *scores) {
  Dims d = {.n = 1, .at = {p->d}};
  *scores = dims_without(&p->x[0].dims, &d);
  dims_add(scores, p->k);
  if (p->scale.kind != VAL_ABSENT && p->scale.kind != VAL_NUMBER) {
    eval_error(e, "E0402", p->expr[4]->span, "`scale` is a number, not %s",
               kind_text(e->ctx, &p->scale));
    return false;
  }
  if (p->mask.kind == VAL_BOOL || p->mask.kind == VAL_MASK) return true;
  eval_error(e, "E0402", p->expr[3]->span, "`mask` is a mask or a bool, not %s",
             kind_text(e->ctx, &p->mask));
  return false;
}

static Val renamed(Eval *e, const AttentionParts *p, int i) {
  Val v = p->x[i];
  for (int k = 0; k < v.dims.n; k++)
    if (v.dims.at[k] == p->q && !dims_has(&v.dims, p->k)) {
      v.dims.at[k] = p->k;
      v.param = NULL, v.input = NULL, v.known = false;
      lower_rename(e, &v, &p->x[i], p->q, p->k);
    }
  return v;
}

/* The op's rules: one D, k and v alike. */
static bool op_knows(const Call *c, const AttentionParts *p, const Val *k, const Val *v) {
  return c->groups.at[1].from.n == 1 && dims_same(&k->dims, &v->dims) && !dims_has(&k->dims, p->q);
}

/* Keys that have the queries' axis are the same positions under another name. */
static bool alike(const Eval *e, const AttentionParts *p) {
  return !dims_has(&p->x[1].dims, p->k) || sizes_alike(e->sizes, p->q, p->k);
}

static Val walk_definition(Eval *e, const Call *c, const AttentionParts *p) {
  const Decl *d = world_find(e->w, SPACE_FN, c->name, true);
  Str q = e->mask_q, k = e->mask_k;
  bool same = e->mask_alike;
  Call copy = *c;
  e->mask_q = p->q, e->mask_k = p->k, e->mask_alike = alike(e, p);
  Val v = call_function(e, d, &copy);
  e->mask_q = q, e->mask_k = k, e->mask_alike = same;
  return v;
}

static const Mask *as_mask(Eval *e, const Val *v) {
  if (v->kind == VAL_MASK) return v->mask;
  Mask *m = ARENA_NEW(e->arena, Mask);
  Val *tensor = ARENA_NEW(e->arena, Val);
  *tensor = *v;
  m->kind = MASK_TENSOR, m->tensor = tensor;
  return m;
}

Val eval_attention(Eval *e, const Call *c) {
  AttentionParts p = {0};
  Dims scores;
  if (!axes(e, c, &p) || !operands(e, c, &p) || !check_operands(e, c, &p) || !check_rest(e, &p) ||
      !check_lengths(e, c, &p) || !check_settings(e, &p, &scores))
    return val_poison();
  Span mask_at = p.expr[3] ? p.expr[3]->span : c->span;
  const Mask *m = as_mask(e, &p.mask);
  const MaskAxes axes_of = {p.q, p.k, alike(e, &p)};
  if (!mask_check(e, m, &scores, &axes_of, mask_at)) return val_poison();
  if (!m->layout.n) mask_note(e, &(MaskUse){NULL, m, p.q, p.k, mask_at});
  bool all = mask_reduced(e, m)->kind == MASK_ALL;
  Val k = renamed(e, &p, 1), v = renamed(e, &p, 2), out[2];
  if (!op_knows(c, &p, &k, &v)) return walk_definition(e, c, &p);
  int64_t size = eval_size(e, p.d);
  if (size == SIZE_BAD) return val_poison();
  Dims d = {.n = 1, .at = {p.d}};
  out[0] = val_tensor(VAL_FLOAT, p.x[0].dims),
  out[1] = val_tensor(VAL_FLOAT, dims_without(&p.x[0].dims, &d));
  if (!e->build) return out[0];
  Val mask = all ? val_poison() : mask_values(e, m, p.q, p.k);
  const Val *in[] = {&p.x[0], &k, &v, &mask};
  Op *op = lower_op(e, out, 2, OP_attention, all ? 3 : 4, in, 2, c->groups.at);
  lower_float(e, op, ATTR_scale,
              p.scale.kind == VAL_ABSENT ? 1 / sqrt((double)size) : p.scale.number);
  return out[0];
}
