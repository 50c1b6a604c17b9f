/* Masks: Boolean functions of query and key. They stay trees until an attention (or a `where`)
   gives them axes; then they become bool values made of iota, comparisons, and, or. Block patterns
   are in sema_pattern.c. */
#include "frontend/lower_emit.h"
#include "frontend/sema.h"
#include "ir/lists.h"
#include "ir/support/num.h"
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

static const Mask *to_mask(Eval *e, const Val *v, Span at);

/* per_head([m, ..]) */
static bool fill_items(Eval *e, const Call *c, Mask *m, const Val *v, const AstExpr *x) {
  if (v->kind != VAL_LIST || !v->nitems) return bad_operand(e, c, x, "a list of masks", v);
  const Mask **items = ARENA_ARRAY(e->arena, const Mask *, v->nitems);
  for (int i = 0; i < v->nitems; i++) {
    const Val *item = &v->items[i];
    if (item->kind != VAL_MASK && item->kind != VAL_BOOL)
      return bad_operand(e, c, x, "a list of masks", item);
    items[i] = to_mask(e, item, c->span);
  }
  m->items = items, m->nitems = v->nitems;
  return true;
}

static bool fill_pattern(Eval *e, const Call *c, Mask *m, int n, const Val *v,
                         const AstExpr *const *x) {
  if (!strcmp(m->name, "per_head")) return fill_items(e, c, m, v, x[0]);
  if (!strcmp(m->name, "table"))
    return v->kind == VAL_STRING ? table_read(e, m, v->string, x[0]->span)
                                 : bad_operand(e, c, x[0], "the name of a file, in quotes", v);
  Val *arg = ARENA_ARRAY(e->arena, Val, n);
  memcpy(arg, v, sizeof *arg * (size_t)n);
  m->arg = arg;
  if (v[0].kind == VAL_NUMBER && v[0].known) m->number = v[0].number;
  return pattern_check(e, m, n, x);
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
  m->kind = p->kind, m->name = c->name, m->span = eval_users_span(e, c->span);
  bool ok = true;
  if (p->kind == MASK_PADDING || p->kind == MASK_SAME) ok = fill_tensor(e, c, m, &v[0], x[0]);
  else if (p->kind == MASK_SLIDING || p->kind == MASK_BLOCKS)
    ok = fill_number(e, c, m, &v[0], x[0]);
  else ok = fill_pattern(e, c, m, n, v, x);
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

const Mask *mask_part(const Mask *m, int i) {
  if (m->kind == MASK_AND || m->kind == MASK_OR) return i == 0 ? m->a : i == 1 ? m->b : NULL;
  return i < m->nitems ? m->items[i] : NULL;
}

typedef struct MaskBlocks { /* the blocks(n) of an expression */
  const Mask *blocks, *pattern;
  const Mask *other; /* blocks of another size */
} MaskBlocks;

static bool counts_blocks(const Mask *m) {
  return m->kind == MASK_PATTERN && strcmp(m->name, "per_head") != 0;
}

static void find_unit(const Mask *m, MaskBlocks *u) {
  if (counts_blocks(m) && !u->pattern) u->pattern = m;
  if (m->kind == MASK_BLOCKS && u->blocks && u->blocks->number != m->number) u->other = m;
  if (m->kind == MASK_BLOCKS && !u->blocks) u->blocks = m;
  for (int i = 0; mask_part(m, i); i++) find_unit(mask_part(m, i), u);
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
  bool ok = check_layout(e, m, scores, a->q, a->k, at) &&
            !(m->tensor && !check_tensor(e, m, scores, a, at));
  for (int i = 0; ok && mask_part(m, i); i++) ok = check_parts(e, mask_part(m, i), scores, a, at);
  return ok;
}

/* random(k) draws k of the block columns that there are. */
static bool enough_columns(Eval *e, const Mask *m, const BlockGrid *g) {
  int64_t size = size_of(e->sizes, g->k);
  if (size <= 0 || g->unit <= 0 || m->number <= ceil((double)size / g->unit)) return true;
  double columns = ceil((double)size / g->unit);
  Report *r = eval_error(e, "E0311", m->span, "`random` of more block columns than there are");
  diag_label(r, "%.0f of %.0f", m->number, columns);
  diag_fact(r, "`%s` has %lld elements, in blocks of %.0f", g->k, (long long)size, g->unit);
  return false;
}

/* What a part of the mask counts in: a layout has heads of its own. */
BlockGrid mask_grid(const Mask *m, const BlockGrid *outer) {
  BlockGrid g = *outer;
  Dims pair = {.n = 2, .at = {g.q, g.k}};
  if (m->layout.n) g.heads = dims_without(&m->layout, &pair);
  return g;
}

/* Patterns that name blocks, against the blocks that there are. */
static bool fits_grid(Eval *e, const Mask *m, const BlockGrid *outer) {
  BlockGrid g = mask_grid(m, outer);
  bool pattern = m->kind == MASK_PATTERN;
  bool ok = !(pattern && !strcmp(m->name, "random") && !enough_columns(e, m, &g)) &&
            !(m->table && !table_fits(e, m, &g));
  for (int i = 0; ok && mask_part(m, i); i++) ok = fits_grid(e, mask_part(m, i), &g);
  return ok;
}

/* Heads by which parts of the mask differ, of the layout that has the most. */
static int64_t most_heads(Eval *e, const Mask *m, const BlockGrid *outer) {
  BlockGrid g = mask_grid(m, outer);
  int64_t n = 1, most;
  for (int i = 0; i < g.heads.n; i++) n *= max_i64(size_of(e->sizes, g.heads.at[i]), 1);
  most = m->kind == MASK_PATTERN ? n : 1;
  for (int i = 0; mask_part(m, i); i++) most = max_i64(most, most_heads(e, mask_part(m, i), &g));
  return most;
}

static bool few_heads(Eval *e, const Mask *m, const BlockGrid *g, Span at) {
  int64_t heads = most_heads(e, m, g);
  if (heads <= LISTS_HEADS) return true;
  Report *r =
      eval_error(e, "E0311", at, "blocks of %lld heads are too many to list", (long long)heads);
  diag_label(r, "at most %d heads differ", LISTS_HEADS);
  diag_help(r, "a layout without these heads is shared by all of them");
  return false;
}

/* What is listed is a constant of the program: so many blocks and heads at most. */
static bool few_blocks(Eval *e, const Mask *m, const BlockGrid *g) {
  int64_t q = size_of(e->sizes, g->q), k = size_of(e->sizes, g->k), n = (int64_t)g->unit;
  if (q <= 0 || k <= 0 || n <= 0) return true;
  int64_t rows = ceil_div(q, n), columns = ceil_div(k, n), fit = n;
  if (rows <= LISTS_BLOCKS / columns) return few_heads(e, m, g, g->word);
  while (ceil_div(q, fit) > LISTS_BLOCKS / ceil_div(k, fit)) fit *= 2;
  Report *r = eval_error(e, "E0311", g->word, "more blocks than a list holds");
  diag_label(r, "%lld x %lld of %lld, at most %d in all", (long long)rows, (long long)columns,
             (long long)n, LISTS_BLOCKS);
  diag_fact(r, "`%s` has %lld elements and `%s` %lld", g->q, (long long)q, g->k, (long long)k);
  diag_help(r, "`blocks(%lld)` fits", (long long)fit);
  diag_edit(r, g->word, "blocks(%lld)", (long long)fit);
  return false;
}

static BlockGrid grid_of(const MaskBlocks *u, Str q, Str k, double otherwise) {
  return (BlockGrid){.q = q,
                     .k = k,
                     .unit = u->blocks ? u->blocks->number : otherwise,
                     .word = u->blocks ? u->blocks->span : (Span){0}};
}

double mask_unit(const Mask *m) {
  MaskBlocks u = {0};
  find_unit(m, &u);
  return u.blocks ? u.blocks->number : 0;
}

void mask_note(Eval *e, const MaskUse *use) {
  if (e->build) return;
  for (uint32_t i = 0; i < e->masks.n; i++) {
    const MaskUse *u = &e->masks.at[i];
    if (u->name == use->name && !memcmp(&u->span, &use->span, sizeof u->span)) return;
  }
  vec_push(e->arena, e->masks, *use);
}

bool mask_check(Eval *e, const Mask *m, const Dims *scores, const MaskAxes *a, Span at) {
  MaskBlocks u = {0};
  find_unit(m, &u);
  if (u.other) {
    Report *r = eval_error(e, "E0311", u.other->span, "two different `blocks(n)` in one mask");
    diag_label(r, "%.0f and %.0f", u.blocks->number, u.other->number);
    diag_also(r, u.blocks->span, "the first one");
    diag_help(r, "`blocks(%.0f)` holds for the whole mask", u.blocks->number);
    diag_edit(r, u.other->span, "blocks(%.0f)", u.blocks->number);
    return false;
  }
  if (u.pattern && !u.blocks) {
    Report *r = eval_error(e, "E0311", u.pattern->span,
                           "`%s` counts in blocks, but no `blocks(n)` is given", u.pattern->name);
    diag_help(r, "for example `blocks(16) & %s`", span_text(e->ctx, u.pattern->span));
    return false;
  }
  if (!check_parts(e, m, scores, a, at)) return false;
  BlockGrid g = grid_of(&u, a->q, a->k, 0);
  return !u.pattern || (fits_grid(e, m, &g) && few_blocks(e, m, &g));
}

/* ---- values ---- */

/* One side of a combination whose other side is true everywhere; a layout that it is part of gives
   it heads, unless it has its own. */
static const Mask *alone(Eval *e, const Mask *m, const Mask *part) {
  if (!m->layout.n || part->layout.n) return part;
  Mask *copy = ARENA_NEW(e->arena, Mask);
  *copy = *part, copy->layout = m->layout;
  return copy;
}

static const Mask *everything(Eval *e) {
  Mask *m = ARENA_NEW(e->arena, Mask);
  return m->kind = MASK_ALL, m;
}

const Mask *mask_reduced(Eval *e, const Mask *m) {
  if (m->kind == MASK_BLOCKS) return everything(e);
  if (m->kind != MASK_AND && m->kind != MASK_OR) return m;
  const Mask *a = mask_reduced(e, m->a), *b = mask_reduced(e, m->b);
  bool a_all = a->kind == MASK_ALL, b_all = b->kind == MASK_ALL;
  if (m->kind == MASK_AND && (a_all || b_all)) return alone(e, m, a_all ? b : a);
  if (m->kind == MASK_OR && (a_all || b_all)) return everything(e);
  Mask *copy = ARENA_NEW(e->arena, Mask);
  *copy = *m, copy->a = a, copy->b = b;
  return copy;
}

static Val causal_values(Eval *e, const BlockGrid *g) {
  return pattern_op(e, OP_le, pattern_position(e, g->k), pattern_position(e, g->q));
}

/* |q - k| < n */
static Val sliding_values(Eval *e, const Mask *m, const BlockGrid *g) {
  Val far = pattern_op(e, OP_sub, pattern_position(e, g->k), pattern_position(e, g->q));
  Val distance = val_tensor(VAL_INT, far.dims);
  const Val *in[] = {&far};
  lower_op(e, &distance, 1, OP_abs, 1, in, 0, NULL);
  return pattern_op(e, OP_lt, distance, val_number(m->number));
}

static Val on_keys(Eval *e, const Val *t, const BlockGrid *g) {
  Val v = *t;
  if (dims_has(&t->dims, g->k) || !dims_has(&t->dims, g->q)) return v;
  for (int i = 0; i < v.dims.n; i++)
    if (v.dims.at[i] == g->q) v.dims.at[i] = g->k;
  lower_rename(e, &v, t, g->q, g->k);
  return v;
}

static Val same_values(Eval *e, const Mask *m, const BlockGrid *g) {
  Val keys = on_keys(e, m->tensor, g);
  Dims all = m->tensor->dims;
  dims_add(&all, g->k);
  Val wide = lower_widened(e, &keys, &all);
  const Val *in[] = {&wide, m->tensor};
  Val out = val_tensor(VAL_BOOL, wide.dims);
  lower_op(e, &out, 1, OP_eq, 2, in, 0, NULL);
  return out;
}

static Val values(Eval *e, const Mask *m, const BlockGrid *g);

/* Entry h mod n for head h: the entries in turn, each where the head is one of its own. */
static Val per_head_values(Eval *e, const Mask *m, const BlockGrid *g) {
  Val h = pattern_head(e, g, m->nitems), any = val_poison();
  for (int i = 0; i < m->nitems; i++) {
    const Mask *item = mask_reduced(e, m->items[i]);
    if (m->nitems == 1 || h.kind == VAL_NUMBER) return values(e, mask_reduced(e, m->items[0]), g);
    Val here = pattern_op(e, OP_eq, h, val_number(i));
    if (item->kind != MASK_ALL) here = pattern_op(e, OP_and, values(e, item, g), here);
    any = i ? pattern_op(e, OP_or, any, here) : here;
  }
  return any;
}

static Val values(Eval *e, const Mask *m, const BlockGrid *outer) {
  BlockGrid own = mask_grid(m, outer), *g = &own;
  switch (m->kind) {
  case MASK_ALL:
  case MASK_BLOCKS: return val_flat(VAL_BOOL, (Dims){.n = 1, .at = {g->k}}, 1);
  case MASK_CAUSAL: return causal_values(e, g);
  case MASK_SLIDING: return sliding_values(e, m, g);
  case MASK_PADDING: return on_keys(e, m->tensor, g);
  case MASK_SAME: return same_values(e, m, g);
  case MASK_TENSOR: return *m->tensor;
  case MASK_AND:
  case MASK_OR:
    return pattern_op(e, m->kind == MASK_AND ? OP_and : OP_or, values(e, m->a, g),
                      values(e, m->b, g));
  case MASK_PATTERN: break;
  }
  return m->items ? per_head_values(e, m, g) : pattern_values(e, m, g);
}

Val mask_values_on(Eval *e, const Mask *m, const BlockGrid *g) {
  return values(e, mask_reduced(e, m), g);
}

/* A bool value over K, perhaps Q, and dims of the scores. Only when building. */
Val mask_values(Eval *e, const Mask *m, Str q, Str k) {
  MaskBlocks u = {0};
  find_unit(m, &u);
  BlockGrid g = grid_of(&u, q, k, 1);
  return mask_values_on(e, m, &g);
}
