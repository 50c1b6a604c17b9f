/* Masks: Boolean functions of query and key. They stay trees until an attention (or a `where`)
   gives them axes; then element predicates become bool values made of iota, comparisons, and, or.
   Block patterns are checked and kept; no pass knows them yet. */
#include "frontend/lower_emit.h"
#include "frontend/sema.h"
#include <math.h>
#include <string.h>

typedef struct Pattern {
  const char *name, *formals;
  int required;
  MaskKind kind;
} Pattern;

static const Pattern patterns[] = {
    {"sliding", "n", 1, MASK_SLIDING},
    {"padding", "valid", 1, MASK_PADDING},
    {"same", "doc", 1, MASK_SAME},
    {"blocks", "n", 1, MASK_BLOCKS},
    {"window", "w", 1, MASK_PATTERN},
    {"global", "g rows columns", 1, MASK_PATTERN},
    {"random", "k seed lower", 1, MASK_PATTERN},
    {"fixed", "local global patterns horizontal", 0, MASK_PATTERN},
    {"variable", "windows globals horizontal", 0, MASK_PATTERN},
    {"strided", "s", 1, MASK_PATTERN},
    {"dilated", "w d", 2, MASK_PATTERN},
    {"table", "file", 1, MASK_PATTERN},
    {"per_head", "masks", 1, MASK_PATTERN},
};

static const Pattern *find_pattern(Str name) {
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (!strcmp(patterns[i].name, name)) return &patterns[i];
  return NULL;
}

bool mask_word(Str name) { return !strcmp(name, "causal") || !strcmp(name, "all"); }
bool mask_function(Str name) { return find_pattern(name) != NULL; }

const char *mask_name(uint32_t i) {
  return i < sizeof patterns / sizeof *patterns ? patterns[i].name : NULL;
}

static Val mask_value(const Mask *m) { return (Val){.kind = VAL_MASK, .mask = m, .id = NO_VALUE}; }

Val mask_of_word(Eval *e, Str name, Span at) {
  Mask *m = ARENA_NEW(e->arena, Mask);
  m->kind = name[0] == 'c' ? MASK_CAUSAL : MASK_ALL, m->span = at;
  return mask_value(m);
}

/* ---- making ---- */

static int formals_of(Eval *e, const Pattern *p, Str *out) {
  int n = 0;
  for (const char *s = p->formals; *s;) {
    size_t k = strcspn(s, " ");
    out[n++] = intern_n(e->ctx->names, s, k);
    s += k + (s[k] == ' ');
  }
  return n;
}

static bool bad_operand(Eval *e, const Call *c, const AstExpr *x, const char *wanted,
                        const Val *v) {
  Report *r = eval_error(e, "E0402", x ? x->span : c->span, "`%s` wants %s", c->name, wanted);
  diag_label(r, "is %s", kind_text(e->ctx, v));
  return false;
}

static bool fill_tensor(Eval *e, const Call *c, Mask *m, const Val *v, const AstExpr *x) {
  bool ok =
      m->kind == MASK_PADDING ? v->kind == VAL_BOOL : v->kind == VAL_INDEX || v->kind == VAL_INT;
  if (!ok)
    return bad_operand(e, c, x, m->kind == MASK_PADDING ? "a bool" : "an i32 or an index", v);
  Val *t = ARENA_NEW(e->arena, Val);
  *t = *v, m->tensor = t;
  return true;
}

static bool fill_number(Eval *e, const Call *c, Mask *m, const Val *v, const AstExpr *x) {
  if (v->kind != VAL_NUMBER) return bad_operand(e, c, x, "a number", v);
  m->number = v->number;
  if (!v->known || (v->number >= 1 && v->number == floor(v->number))) return true;
  return bad_operand(e, c, x, "a positive whole number", v);
}

static bool pattern_operand(Eval *e, const Call *c, const Val *v, const AstExpr *x) {
  bool ok = v->kind == VAL_NUMBER || v->kind == VAL_LIST || v->kind == VAL_FLAG ||
            v->kind == VAL_STRING || v->kind == VAL_ABSENT;
  return ok ? true : bad_operand(e, c, x, "numbers, lists, `on` or `off`", v);
}

Val mask_call(Eval *e, const Call *c) {
  Str formals[ARGS_MAX] = {0};
  Val v[ARGS_MAX];
  const AstExpr *x[ARGS_MAX];
  const Pattern *p = find_pattern(c->name);
  int n = formals_of(e, p, formals);
  if (c->axes) eval_error(e, "E0204", c->axes->span, "`%s` takes no axes", c->name);
  if (!bind_operands(e, c, n, formals, p->required, v, x)) return val_poison();
  Mask *m = ARENA_NEW(e->arena, Mask);
  m->kind = p->kind, m->name = c->name, m->span = c->span;
  bool ok = true;
  if (p->kind == MASK_PADDING || p->kind == MASK_SAME) ok = fill_tensor(e, c, m, &v[0], x[0]);
  else if (p->kind == MASK_SLIDING || p->kind == MASK_BLOCKS)
    ok = fill_number(e, c, m, &v[0], x[0]);
  else
    for (int i = 0; i < n; i++) ok &= pattern_operand(e, c, &v[i], x[i]);
  if (p->kind == MASK_PATTERN && v[0].kind == VAL_NUMBER && v[0].known) m->number = v[0].number;
  return ok ? mask_value(m) : val_poison();
}

static const Mask *to_mask(Eval *e, const Val *v, Span at) {
  if (v->kind == VAL_MASK) return v->mask;
  if (v->kind != VAL_BOOL) {
    eval_error(e, "E0402", at, "a mask is combined with %s", kind_text(e->ctx, v));
    return NULL;
  }
  Mask *m = ARENA_NEW(e->arena, Mask);
  Val *t = ARENA_NEW(e->arena, Val);
  *t = *v, m->kind = MASK_TENSOR, m->tensor = t, m->span = at;
  return m;
}

Val mask_combine(Eval *e, AstOp op, const Val *a, const Val *b, Span at) {
  const Mask *x = to_mask(e, a, at), *y = to_mask(e, b, at);
  if (!x || !y) return val_poison();
  if (op == AST_AND && x->kind == MASK_ALL) return mask_value(y);
  if (op == AST_AND && y->kind == MASK_ALL) return mask_value(x);
  if (op == AST_OR && (x->kind == MASK_ALL || y->kind == MASK_ALL))
    return mask_value(x->kind == MASK_ALL ? x : y);
  Mask *m = ARENA_NEW(e->arena, Mask);
  *m = (Mask){.kind = op == AST_AND ? MASK_AND : MASK_OR, .a = x, .b = y, .span = at};
  return mask_value(m);
}

/* ---- checking against an attention ---- */

const Mask *mask_unbuilt(const Mask *m) {
  if (!m) return NULL;
  if (m->kind == MASK_BLOCKS || m->kind == MASK_PATTERN) return m;
  const Mask *a = mask_unbuilt(m->a);
  return a ? a : mask_unbuilt(m->b);
}

typedef struct MaskBlocks { /* the blocks(n) of an expression */
  const Mask *blocks, *pattern;
  const Mask *other; /* blocks of another size */
} MaskBlocks;

static void find_unit(const Mask *m, MaskBlocks *u) {
  if (!m) return;
  if (m->kind == MASK_PATTERN && !u->pattern) u->pattern = m;
  if (m->kind == MASK_BLOCKS && u->blocks && u->blocks->number != m->number) u->other = m;
  if (m->kind == MASK_BLOCKS && !u->blocks) u->blocks = m;
  find_unit(m->a, u), find_unit(m->b, u);
}

static bool check_layout(Eval *e, const Mask *m, const Dims *scores, Str q, Str k, Span at) {
  const Dims *d = &m->layout;
  if (!d->n) return true;
  if (d->n >= 2 && d->at[d->n - 2] == q && d->at[d->n - 1] == k && dims_subset(d, scores))
    return true;
  Report *r = eval_error(e, "E0310", at, "this layout is over %s, the attention over [%s, %s]",
                         dims_text(e->ctx, d), q, k);
  diag_fact(r, "the scores have %s; a layout ends with the queries' and the keys' dimension",
            dims_text(e->ctx, scores));
  return false;
}

/* A tensor over the queries' axis that is taken for the keys', too: only where they are the same
   positions. Two axes of one size are not. */
static bool wrong_side(Eval *e, const Mask *m, const MaskAxes *a, Span at) {
  const Val *t = m->tensor;
  Report *r = eval_error(e, "E0301", m->span.file ? m->span : at,
                         "`%s` of the queries, where `%s` are other positions than `%s`", m->name,
                         a->k, a->q);
  diag_label(r, "has %s", dims_text(e->ctx, &t->dims));
  if (m->kind == MASK_PADDING)
    diag_help(r, "`padding` wants the keys that count: a bool with `%s`", a->k);
  else
    diag_help(r,
              "compare two tensors: `doc_of_queries == doc_of_keys`, one with `%s`, one with "
              "`%s`, widened to both",
              a->q, a->k);
  diag_help(r, "if they are the same positions, say so: `dims { %s like %s }`", a->k, a->q);
  return false;
}

static bool check_tensor(Eval *e, const Mask *m, const Dims *scores, const MaskAxes *a, Span at) {
  const Val *t = m->tensor;
  bool fits = dims_subset(&t->dims, scores), q = dims_has(&t->dims, a->q),
       k = dims_has(&t->dims, a->k);
  bool of_queries = fits && q && !k && m->kind != MASK_TENSOR;
  if (of_queries && !a->alike) return wrong_side(e, m, a, at);
  if (of_queries || (fits && k && !(m->kind == MASK_SAME))) return true;
  Str wanted = m->kind == MASK_SAME ? a->q : a->k;
  Report *r = eval_error(e, "E0301", m->span.file ? m->span : at,
                         "this part of the mask does not fit the scores");
  diag_label(r, "has %s", dims_text(e->ctx, &t->dims));
  diag_fact(r, "the scores have %s; `%s` must be there, and no other dimension",
            dims_text(e->ctx, scores), wanted);
  return false;
}

static bool check_parts(Eval *e, const Mask *m, const Dims *scores, const MaskAxes *a, Span at) {
  if (!m) return true;
  if (!check_layout(e, m, scores, a->q, a->k, at)) return false;
  if (m->tensor && !check_tensor(e, m, scores, a, at)) return false;
  return check_parts(e, m->a, scores, a, at) && check_parts(e, m->b, scores, a, at);
}

/* random(k) draws k of the block columns that there are. */
static bool enough_columns(Eval *e, const Mask *m, const Mask *blocks, Str k) {
  if (!m) return true;
  int64_t size = size_of(e->sizes, k);
  bool random = m->kind == MASK_PATTERN && !strcmp(m->name, "random");
  if (random && size > 0 && blocks->number > 0 && m->number > ceil((double)size / blocks->number)) {
    Report *r = eval_error(e, "E0311", m->span, "`random` of more block columns than there are");
    diag_label(r, "%.0f of %.0f", m->number, ceil((double)size / blocks->number));
    diag_fact(r, "`%s` has %lld elements, in blocks of %.0f", k, (long long)size, blocks->number);
    return false;
  }
  return enough_columns(e, m->a, blocks, k) && enough_columns(e, m->b, blocks, k);
}

bool mask_check(Eval *e, const Mask *m, const Dims *scores, const MaskAxes *a, Span at) {
  MaskBlocks u = {0};
  find_unit(m, &u);
  if (u.other) {
    Report *r = eval_error(e, "E0311", u.other->span, "two different `blocks(n)` in one mask");
    diag_also(r, u.blocks->span, "the first one");
    return false;
  }
  if (u.pattern && !u.blocks) {
    Report *r = eval_error(e, "E0311", u.pattern->span,
                           "`%s` counts in blocks, but no `blocks(n)` is given", u.pattern->name);
    diag_help(r, "for example `blocks(16) & %s`", span_text(e->ctx, u.pattern->span));
    return false;
  }
  if (u.pattern && !enough_columns(e, m, u.blocks, a->k)) return false;
  return check_parts(e, m, scores, a, at);
}

/* ---- values ---- */

static Val position(Eval *e, Str dim, const Dims *grid) {
  Val v = val_tensor(VAL_INDEX, (Dims){.n = 1, .at = {dim}});
  v.of = dim;
  lower_iota(e, &v, dim);
  return lower_widened(e, &v, grid);
}

static Val op2(Eval *e, Kind k, OpCode code, const Val *a, const Val *b) {
  const Val *in[] = {a, b};
  Val out = val_tensor(k, dims_subset(&b->dims, &a->dims) ? a->dims : b->dims);
  lower_op(e, &out, 1, code, 2, in, 0, NULL);
  return out;
}

static Val op1(Eval *e, OpCode code, const Val *a) {
  Val out = val_tensor(a->kind, a->dims);
  lower_op(e, &out, 1, code, 1, &a, 0, NULL);
  return out;
}

static Val causal_values(Eval *e, Str q, Str k) {
  Dims grid = {.n = 2, .at = {q, k}}, row = {.n = 1, .at = {q}};
  Val key = position(e, k, &grid), query = position(e, q, &row);
  return op2(e, VAL_BOOL, OP_le, &key, &query);
}

/* |q - k| < n */
static Val sliding_values(Eval *e, const Mask *m, Str q, Str k) {
  Dims grid = {.n = 2, .at = {q, k}}, row = {.n = 1, .at = {q}};
  Val key = position(e, k, &grid), query = position(e, q, &row), n = val_number(m->number);
  key.kind = query.kind = VAL_INT;
  Val far = op2(e, VAL_INT, OP_sub, &key, &query), distance = op1(e, OP_abs, &far);
  return op2(e, VAL_BOOL, OP_lt, &distance, &n);
}

static Val on_keys(Eval *e, const Val *t, Str q, Str k) {
  Val v = *t;
  if (dims_has(&t->dims, k) || !dims_has(&t->dims, q)) return v;
  for (int i = 0; i < v.dims.n; i++)
    if (v.dims.at[i] == q) v.dims.at[i] = k;
  lower_rename(e, &v, t, q, k);
  return v;
}

static Val same_values(Eval *e, const Mask *m, Str q, Str k) {
  Val keys = on_keys(e, m->tensor, q, k);
  Dims all = m->tensor->dims;
  dims_add(&all, k);
  Val wide = lower_widened(e, &keys, &all);
  return op2(e, VAL_BOOL, OP_eq, &wide, m->tensor);
}

static Val joined(Eval *e, const Mask *m, Str q, Str k, Span at) {
  Val a = mask_values(e, m->a, q, k, at), b = mask_values(e, m->b, q, k, at);
  Dims all = a.dims;
  for (int i = 0; i < b.dims.n; i++)
    if (!dims_has(&all, b.dims.at[i])) dims_add(&all, b.dims.at[i]);
  if (!dims_subset(&a.dims, &b.dims)) a = lower_widened(e, &a, &all);
  return op2(e, VAL_BOOL, m->kind == MASK_AND ? OP_and : OP_or, &a, &b);
}

/* A bool value over K, perhaps Q, and dims of the scores. Only when building. */
Val mask_values(Eval *e, const Mask *m, Str q, Str k, Span at) {
  switch (m->kind) {
  case MASK_CAUSAL: return causal_values(e, q, k);
  case MASK_SLIDING: return sliding_values(e, m, q, k);
  case MASK_PADDING: return on_keys(e, m->tensor, q, k);
  case MASK_SAME: return same_values(e, m, q, k);
  case MASK_TENSOR: return *m->tensor;
  case MASK_AND:
  case MASK_OR: return joined(e, m, q, k, at);
  case MASK_ALL: return position(e, k, &(Dims){.n = 1, .at = {k}}); /* never asked for */
  case MASK_BLOCKS:
  case MASK_PATTERN: break;
  }
  bug("a block pattern reached code generation");
}
