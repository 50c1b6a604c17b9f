/* Attention: one op where the IR has it; where operands have dims that the op does not know, the
   definition in the library is walked instead. */
#include "lower_emit.h"
#include "sema_mask.h"
#include "sema_rule.h"
#include <math.h>
#include <string.h>

typedef struct AttentionParts {
  Str q, k, d;
  Val x[3]; /* q, k, v */
  Val mask, scale, cap, sink, bias, drop;
  const AstExpr *expr[9];
} AttentionParts;

static bool axes(Eval *e, const Call *call, AttentionParts *parts) {
  const AxisGroups *groups = &call->groups;
  if (groups->n == 2 && groups->at[0].arrow && !groups->at[1].arrow && groups->at[0].from.n == 1 &&
      groups->at[0].to.n == 1 && groups->at[1].from.n >= 1) {
    parts->q = groups->at[0].from.at[0], parts->k = groups->at[0].to.at[0],
    parts->d = groups->at[1].from.at[0];
    return true;
  }
  Report *r = eval_error(e, "E0204", call->axes ? call->axes->span : call->span,
                         "`attention` takes `[Q -> K; D]`");
  diag_help(r, "for example `attention[Seq -> Key; Head](q, k, v)`");
  return false;
}

static bool operands(Eval *e, const Call *call, AttentionParts *parts) {
  Str formals[9] = {0};
  static const char *const names[] = {"q",   "k",    "v",    "mask", "scale",
                                      "cap", "sink", "bias", "drop"};
  Val v[9];
  for (int i = 0; i < 9; i++) formals[i] = intern(e->ctx->names, names[i]);
  if (!bind_operands(e, call, 9, formals, 3, v, parts->expr)) return false;
  memcpy(parts->x, v, sizeof parts->x);
  parts->mask = v[3], parts->scale = v[4], parts->cap = v[5], parts->sink = v[6];
  parts->bias = v[7], parts->drop = v[8];
  if (parts->mask.kind == VAL_ABSENT)
    parts->mask = mask_of_word(e, intern(e->ctx->names, "all"), call->span);
  return true;
}

/* Keys or values along a third axis: those of an encoder, say. */
static void without_keys(Eval *e, const AttentionParts *parts, int i) {
  const Val *v = &parts->x[i];
  Dims other = dims_without(&v->dims, &parts->x[0].dims);
  Report *r = eval_error(e, "E0303", parts->expr[i]->span, "the %s have no axis `%s`",
                         i == 1 ? "keys" : "values", parts->k);
  diag_label(r, "has %s", dims_text(e->ctx, &v->dims));
  if (other.n != 1) return;
  Str before = arena_printf(e->arena, "rename[%s -> %s](", other.at[0], parts->k);
  diag_help(r, "give `%s` that name: `%s%s)`", other.at[0], before,
            expr_text(e->ctx, parts->expr[i], ".."));
  diag_edit_around(r, parts->expr[i]->span, before, ")");
}

static bool float_with(Eval *e, const Call *call, const AttentionParts *parts, int i, Str dim,
                       Str or_dim) {
  const Val *v = &parts->x[i];
  if (v->kind != VAL_FLOAT) {
    eval_error(e, "E0402", parts->expr[i]->span, "`attention` takes floats, not %s",
               kind_text(e->ctx, v));
    return false;
  }
  if (dims_has(&v->dims, dim) || (or_dim && dims_has(&v->dims, or_dim))) return true;
  if (or_dim) without_keys(e, parts, i);
  else explain_missing(e, call, dim, v, parts->expr[i]);
  return false;
}

static bool check_operands(Eval *e, const Call *call, const AttentionParts *parts) {
  const Dims *dims = &call->groups.at[1].from;
  for (int k = 0; k < dims->n; k++)
    for (int i = 0; i < 2; i++)
      if (!float_with(e, call, parts, i, dims->at[k], NULL)) return false;
  for (int i = 0; i < 3; i++)
    if (!float_with(e, call, parts, i, parts->q, i ? parts->k : NULL)) return false;
  if (!dims_has(&parts->x[0].dims, parts->k)) return true;
  Report *r =
      eval_error(e, "E0301", parts->expr[0]->span, "the queries have `%s` already", parts->k);
  diag_label(r, "has %s", dims_text(e->ctx, &parts->x[0].dims));
  return false;
}

static bool check_rest(Eval *e, const AttentionParts *parts) {
  Dims known = parts->x[0].dims;
  dims_add(&known, parts->k);
  for (int i = 1; i < 3; i++) {
    if (i == 2 || dims_subset(&parts->x[i].dims, &known)) continue;
    Dims extra = dims_without(&parts->x[i].dims, &known);
    Report *r = eval_error(e, "E0301", parts->expr[i]->span,
                           "the keys have dimensions that the queries lack");
    diag_label(r, "has %s", dims_text(e->ctx, &parts->x[i].dims));
    diag_fact(r, "the queries have %s; %s %s not in them", dims_text(e->ctx, &parts->x[0].dims),
              dims_names(e->ctx, &extra), extra.n > 1 ? "are" : "is");
    return false;
  }
  return true;
}

/* Keys that have the queries' axis get the keys' name, so both have one length. */
static bool check_lengths(Eval *e, const Call *call, const AttentionParts *parts) {
  if (dims_has(&parts->x[1].dims, parts->k) && dims_has(&parts->x[2].dims, parts->k)) return true;
  int64_t q = eval_size(e, parts->q), k = eval_size(e, parts->k);
  if (q <= 0 || k <= 0 || q == k) return q != SIZE_BAD && k != SIZE_BAD;
  Report *r = eval_error(e, "E0312", call->axes->span, "`%s` has size %lld and `%s` %lld", parts->q,
                         (long long)q, parts->k, (long long)k);
  diag_label(r, "the keys have `%s`, which becomes `%s`", parts->q, parts->k);
  const DimInfo *info = sizes_find(e->sizes, parts->k);
  diag_also(r, info->def->span, "set here");
  diag_help(r, "the same length under another name: `%s like %s`", parts->k, parts->q);
  diag_edit(r, info->def->span, "%s like %s", parts->k, parts->q);
  return false;
}

static bool written(const Val *v) { return v->kind != VAL_ABSENT && v->kind != VAL_NONE; }

static bool check_cap(Eval *e, const AttentionParts *parts) {
  const Val *cap = &parts->cap;
  if (!written(cap)) return true;
  if (cap->kind == VAL_NUMBER)
    return number_in(e, cap, parts->expr[5], cap->number > 0, "the cap of scores",
                     "a number above 0");
  eval_error(e, "E0402", parts->expr[5]->span, "`cap` is a number, not %s", kind_text(e->ctx, cap));
  return false;
}

static bool check_sink(Eval *e, const AttentionParts *parts) {
  const Val *sink = &parts->sink;
  Dims width = {.n = 1, .at = {parts->d}}, rows = dims_without(&parts->x[0].dims, &width);
  if (!written(sink) || (val_is_real(sink) && dims_subset(&sink->dims, &rows))) return true;
  Report *r = eval_error(e, val_is_real(sink) ? "E0301" : "E0402", parts->expr[6]->span,
                         "`sink` is a score of each head or row");
  if (val_is_real(sink)) {
    diag_label(r, "has %s", dims_text(e->ctx, &sink->dims));
    diag_fact(r, "the rows of scores have %s", dims_text(e->ctx, &rows));
  } else diag_label(r, "is %s", kind_text(e->ctx, sink));
  return false;
}

/* A bias without K would be the same for all keys of a query, and change nothing. */
static bool check_bias(Eval *e, const AttentionParts *parts, const Dims *scores) {
  const Val *bias = &parts->bias;
  if (!written(bias)) return true;
  bool real = val_is_real(bias);
  if (real && dims_has(&bias->dims, parts->k) && dims_subset(&bias->dims, scores)) return true;
  Report *r = eval_error(e, real ? "E0301" : "E0402", parts->expr[7]->span,
                         "`bias` is a number for each key of a query");
  if (real) {
    diag_label(r, "has %s", dims_text(e->ctx, &bias->dims));
    diag_fact(r, "the scores have %s; the bias must have `%s`, and no other dimension",
              dims_text(e->ctx, scores), parts->k);
  } else diag_label(r, "is %s", kind_text(e->ctx, bias));
  return false;
}

/* Backward has no room for the slopes of a cap where dropout needs the probabilities. */
static bool check_drop(Eval *e, const AttentionParts *parts) {
  const Val *drop = &parts->drop;
  if (!written(drop)) return true;
  if (drop->kind != VAL_NUMBER) {
    Report *r = eval_error(e, "E0402", parts->expr[8]->span, "`drop` is a number, not %s",
                           kind_text(e->ctx, drop));
    if (drop->rounds)
      diag_label(r, "differs by layer; `attention` takes one number for all layers");
    return false;
  }
  if (!number_in(e, drop, parts->expr[8], drop->number >= 0 && drop->number < 1,
                 "the share that `drop` drops", "a number from 0 to below 1"))
    return false;
  if (!written(&parts->cap) || (drop->known && drop->number == 0)) return true;
  Report *r = eval_error(e, "E0204", parts->expr[8]->span, "`drop` and `cap` in one attention");
  diag_fact(r, "no kernel computes both");
  diag_help(r, "write the scores with `dot` and `softmax`, and `dropout` of the probabilities");
  return false;
}

static bool drops(const Eval *e, const AttentionParts *parts) {
  return written(&parts->drop) && parts->drop.number > 0 && e->mode != MODE_EVAL &&
         e->mode != MODE_LOGITS;
}

/* 1 for a probability that is kept, 0 for others: as `dropout` of the library, by position. */
static Val kept_values(Eval *e, const AttentionParts *parts, const Dims *scores) {
  Val noise = val_tensor(VAL_FLOAT, *scores), keeps = val_tensor(VAL_BOOL, *scores),
      kept = val_tensor(VAL_INT, *scores);
  const Val *both[] = {&parts->drop, &noise}, *one = &keeps;
  lower_rand(e, &noise);
  lower_op(e, &keeps, 1, OP_le, 2, both, 0, NULL);
  lower_op(e, &kept, 1, OP_cast, 1, &one, 0, NULL);
  return kept;
}

static bool check_settings(Eval *e, const AttentionParts *parts, Dims *scores) {
  Dims dims = {.n = 1, .at = {parts->d}};
  *scores = dims_without(&parts->x[0].dims, &dims);
  dims_add(scores, parts->k);
  if (parts->scale.kind != VAL_ABSENT && parts->scale.kind != VAL_NUMBER) {
    eval_error(e, "E0402", parts->expr[4]->span, "`scale` is a number, not %s",
               kind_text(e->ctx, &parts->scale));
    return false;
  }
  if (!check_cap(e, parts) || !check_sink(e, parts) || !check_bias(e, parts, scores) ||
      !check_drop(e, parts))
    return false;
  if (parts->mask.kind == VAL_BOOL || parts->mask.kind == VAL_MASK) return true;
  eval_error(e, "E0402", parts->expr[3]->span, "`mask` is a mask or a bool, not %s",
             kind_text(e->ctx, &parts->mask));
  return false;
}

static Val renamed(Eval *e, const AttentionParts *parts, int i) {
  Val v = parts->x[i];
  for (int k = 0; k < v.dims.n; k++)
    if (v.dims.at[k] == parts->q && !dims_has(&v.dims, parts->k)) {
      v.dims.at[k] = parts->k;
      v.param = NULL, v.input = NULL, v.known = false;
      lower_rename(e, &v, &parts->x[i], parts->q, parts->k);
    }
  return v;
}

/* The op's rules: one D, k and v alike. */
static bool op_knows(const Call *call, const AttentionParts *parts, const Val *k, const Val *v) {
  return call->groups.at[1].from.n == 1 && dims_same(&k->dims, &v->dims) &&
         !dims_has(&k->dims, parts->q);
}

/* Keys that have the queries' axis are the same positions under another name. */
static bool alike(const Eval *e, const AttentionParts *parts) {
  return !dims_has(&parts->x[1].dims, parts->k) || sizes_alike(e->sizes, parts->q, parts->k);
}

static Val walk_definition(Eval *e, const Call *call, const AttentionParts *parts) {
  static const char *const words[] = {[5] = "cap", [6] = "sink", [7] = "bias", [8] = "drop"};
  int own = written(&parts->cap)    ? 5
            : written(&parts->sink) ? 6
            : written(&parts->bias) ? 7
            : written(&parts->drop) ? 8
                                    : 0;
  if (own) {
    Report *r = eval_error(e, "E0204", parts->expr[own]->span,
                           "`%s` of an attention that no kernel computes", words[own]);
    diag_fact(r,
              "kernels want one dimension after `;`, and keys and values of the same dimensions");
    diag_help(r, "write the scores with `dot` and `softmax`");
    return val_poison();
  }
  const Decl *decl = world_find(e->w, SPACE_FN, call->name, true);
  Str q = e->mask_q, k = e->mask_k;
  bool same = e->mask_alike;
  Call copy = *call;
  e->mask_q = parts->q, e->mask_k = parts->k, e->mask_alike = alike(e, parts);
  Val v = call_function(e, decl, &copy);
  e->mask_q = q, e->mask_k = k, e->mask_alike = same;
  return v;
}

static const Mask *as_mask(Eval *e, const Val *v) {
  if (v->kind == VAL_MASK) return v->mask;
  Mask *mask = ARENA_NEW(e->arena, Mask);
  Val *tensor = ARENA_NEW(e->arena, Val);
  *tensor = *v;
  mask->kind = MASK_TENSOR, mask->tensor = tensor;
  return mask;
}

/* Masks and random bits are values of the module, though kernels compute them where they read. */
static bool scores_are_countable(Eval *e, const AttentionParts *parts, const Dims *scores, bool all,
                                 Span mask_at) {
  const Dims square = {.n = 2, .at = {parts->q, parts->k}};
  if (drops(e, parts))
    return eval_is_countable(e, scores, &e->running, parts->expr[8]->span, "random numbers");
  return all || eval_is_countable(e, &square, &e->running, mask_at, "a mask");
}

Val eval_attention(Eval *e, const Call *call) {
  AttentionParts parts = {0};
  Dims scores;
  if (!axes(e, call, &parts) || !operands(e, call, &parts) || !check_operands(e, call, &parts) ||
      !check_rest(e, &parts) || !check_lengths(e, call, &parts) ||
      !check_settings(e, &parts, &scores))
    return val_poison();
  Span mask_at = parts.expr[3] ? parts.expr[3]->span : call->span;
  const Mask *m = as_mask(e, &parts.mask);
  const MaskAxes axes_of = {parts.q, parts.k, alike(e, &parts)};
  if (!mask_check(e, m, &scores, &axes_of, mask_at)) return val_poison();
  if (!m->layout.n) mask_note(e, &(MaskUse){NULL, m, parts.q, parts.k, mask_at});
  bool all = mask_reduced(e, m)->kind == MASK_ALL;
  if (!scores_are_countable(e, &parts, &scores, all, mask_at)) return val_poison();
  Val k = renamed(e, &parts, 1), v = renamed(e, &parts, 2), out[2];
  if (drops(e, &parts) && rule_draws(e, call->site->span)) return val_poison();
  if (!op_knows(call, &parts, &k, &v)) return walk_definition(e, call, &parts);
  int64_t size = eval_size(e, parts.d);
  if (size == SIZE_BAD) return val_poison();
  Dims dims = {.n = 1, .at = {parts.d}};
  out[0] = val_tensor(VAL_FLOAT, parts.x[0].dims),
  out[1] = val_tensor(VAL_FLOAT, dims_without(&parts.x[0].dims, &dims));
  if (!e->build) return out[0];
  Val mask = all ? val_poison() : mask_values(e, m, parts.q, parts.k);
  bool dropped = drops(e, &parts);
  Val kept = dropped ? kept_values(e, &parts, &scores) : val_poison();
  const Val *in[7] = {&parts.x[0], &k, &v};
  int n = 3;
  if (!all) in[n++] = &mask;
  if (dropped) in[n++] = &kept;
  if (written(&parts.bias)) in[n++] = &parts.bias;
  if (written(&parts.sink)) in[n++] = &parts.sink;
  Op *op = lower_op(e, out, 2, OP_attention, n, in, 2, call->groups.at);
  if (written(&parts.cap)) lower_float(e, op, ATTR_cap, parts.cap.number);
  if (dropped) lower_float(e, op, ATTR_drop, parts.drop.number);
  lower_float(e, op, ATTR_scale,
              parts.scale.kind == VAL_ABSENT ? 1 / sqrt((double)size) : parts.scale.number);
  return out[0];
}
