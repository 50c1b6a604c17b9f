/* Masks: Boolean functions of query and key. They stay trees until an attention (or a `where`)
   gives them axes; then they become bool values made of iota, comparisons, and, or. Block patterns
   are in sema_pattern.c. */
#include "lower_emit.h"
#include "sema_mask.h"
#include "ir/mask/lists.h"
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

static Val mask_value(const Mask *mask) {
  return (Val){.kind = VAL_MASK, .mask = mask, .id = NO_VALUE};
}

Val mask_of_word(Eval *e, Str name, Span at) {
  Mask *mask = ARENA_NEW(e->arena, Mask);
  mask->kind = name[0] == 'c' ? MASK_CAUSAL : MASK_ALL, mask->span = at;
  return mask_value(mask);
}

/* ---- making ---- */

static int formals_of(Eval *e, const Pattern *pattern, Str *out) {
  int n = 0;
  for (const char *s = pattern->formals; *s;) {
    size_t k = strcspn(s, " ");
    out[n++] = intern_n(e->ctx->names, s, k);
    s += k + (s[k] == ' ');
  }
  return n;
}

static bool bad_operand(Eval *e, const Call *call, const AstExpr *expr, const char *wanted,
                        const Val *v) {
  Report *r =
      eval_error(e, "E0402", expr ? expr->span : call->span, "`%s` takes %s", call->name, wanted);
  diag_label(r, "is %s", kind_text(e->ctx, v));
  return false;
}

static bool fill_tensor(Eval *e, const Call *call, Mask *mask, const Val *v, const AstExpr *expr) {
  bool ok =
      mask->kind == MASK_PADDING ? v->kind == VAL_BOOL : v->kind == VAL_INDEX || v->kind == VAL_INT;
  if (!ok)
    return bad_operand(e, call, expr, mask->kind == MASK_PADDING ? "a bool" : "an i32 or an index",
                       v);
  Val *t = ARENA_NEW(e->arena, Val);
  *t = *v, mask->tensor = t;
  return true;
}

static bool fill_number(Eval *e, const Call *call, Mask *mask, const Val *v, const AstExpr *expr) {
  if (v->kind != VAL_NUMBER) return bad_operand(e, call, expr, "a number", v);
  mask->number = v->number;
  if (!v->known || (v->number >= 1 && v->number == floor(v->number))) return true;
  return bad_operand(e, call, expr, "a positive whole number", v);
}

static const Mask *to_mask(Eval *e, const Val *v, Span at);

/* per_head([m, ..]) */
static bool fill_items(Eval *e, const Call *call, Mask *mask, const Val *v, const AstExpr *expr) {
  if (v->kind != VAL_LIST || !v->nitems) return bad_operand(e, call, expr, "a list of masks", v);
  const Mask **items = ARENA_ARRAY(e->arena, const Mask *, v->nitems);
  for (int i = 0; i < v->nitems; i++) {
    const Val *item = &v->items[i];
    if (item->kind != VAL_MASK && item->kind != VAL_BOOL)
      return bad_operand(e, call, expr, "a list of masks", item);
    items[i] = to_mask(e, item, call->span);
  }
  mask->items = items, mask->nitems = v->nitems;
  return true;
}

static bool fill_pattern(Eval *e, const Call *call, Mask *mask, int n, const Val *v,
                         const AstExpr *const *expr) {
  if (!strcmp(mask->name, "per_head")) return fill_items(e, call, mask, v, expr[0]);
  if (!strcmp(mask->name, "table"))
    return v->kind == VAL_STRING
               ? table_read(e, mask, v->string, expr[0]->span)
               : bad_operand(e, call, expr[0], "the name of a file, in quotes", v);
  Val *arg = ARENA_ARRAY(e->arena, Val, n);
  memcpy(arg, v, sizeof *arg * (size_t)n);
  mask->arg = arg;
  if (v[0].kind == VAL_NUMBER && v[0].known) mask->number = v[0].number;
  return pattern_check(e, mask, n, expr);
}

Val mask_call(Eval *e, const Call *call) {
  Str formals[ARGS_MAX] = {0};
  Val v[ARGS_MAX];
  const AstExpr *expr[ARGS_MAX];
  const Pattern *pattern = find_pattern(call->name);
  int n = formals_of(e, pattern, formals);
  if (call->axes) eval_error(e, "E0204", call->axes->span, "`%s` takes no axes", call->name);
  if (!bind_operands(e, call, n, formals, pattern->required, v, expr)) return val_poison();
  Mask *mask = ARENA_NEW(e->arena, Mask);
  mask->kind = pattern->kind, mask->name = call->name, mask->span = eval_users_span(e, call->span);
  bool ok = true;
  if (pattern->kind == MASK_PADDING || pattern->kind == MASK_SAME)
    ok = fill_tensor(e, call, mask, &v[0], expr[0]);
  else if (pattern->kind == MASK_SLIDING || pattern->kind == MASK_BLOCKS)
    ok = fill_number(e, call, mask, &v[0], expr[0]);
  else ok = fill_pattern(e, call, mask, n, v, expr);
  return ok ? mask_value(mask) : val_poison();
}

static const Mask *to_mask(Eval *e, const Val *v, Span at) {
  if (v->kind == VAL_MASK) return v->mask;
  if (v->kind != VAL_BOOL) {
    eval_error(e, "E0402", at, "a mask is combined with %s", kind_text(e->ctx, v));
    return NULL;
  }
  Mask *mask = ARENA_NEW(e->arena, Mask);
  Val *t = ARENA_NEW(e->arena, Val);
  *t = *v, mask->kind = MASK_TENSOR, mask->tensor = t, mask->span = at;
  return mask;
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

const Mask *mask_part(const Mask *mask, int i) {
  if (mask->kind == MASK_AND || mask->kind == MASK_OR)
    return i == 0 ? mask->a : i == 1 ? mask->b : NULL;
  return i < mask->nitems ? mask->items[i] : NULL;
}

typedef struct MaskBlocks { /* the blocks(n) of an expression */
  const Mask *blocks, *pattern;
  const Mask *other; /* blocks of another size */
} MaskBlocks;

static bool counts_blocks(const Mask *mask) {
  return mask->kind == MASK_PATTERN && strcmp(mask->name, "per_head") != 0;
}

static void find_unit(const Mask *mask, MaskBlocks *blocks) {
  if (counts_blocks(mask) && !blocks->pattern) blocks->pattern = mask;
  if (mask->kind == MASK_BLOCKS && blocks->blocks && blocks->blocks->number != mask->number)
    blocks->other = mask;
  if (mask->kind == MASK_BLOCKS && !blocks->blocks) blocks->blocks = mask;
  for (int i = 0; mask_part(mask, i); i++) find_unit(mask_part(mask, i), blocks);
}

static bool check_layout(Eval *e, const Mask *mask, const Dims *scores, Str q, Str k, Span at) {
  const Dims *dims = &mask->layout;
  if (!dims->n) return true;
  if (dims->n >= 2 && dims->at[dims->n - 2] == q && dims->at[dims->n - 1] == k &&
      dims_subset(dims, scores))
    return true;
  Report *r = eval_error(e, "E0310", at, "this layout is over %s, the attention over [%s, %s]",
                         dims_text(e->ctx, dims), q, k);
  diag_fact(r, "the scores have %s; a layout ends with the queries' and the keys' dimension",
            dims_text(e->ctx, scores));
  return false;
}

/* A tensor over the queries' axis that is also used for the keys: valid only if both axes are the
   same positions. Two axes of equal size are not. */
static bool wrong_side(Eval *e, const Mask *mask, const MaskAxes *axes, Span at) {
  const Val *t = mask->tensor;
  Report *r = eval_error(e, "E0301", mask->span.file ? mask->span : at,
                         "`%s` of the queries, where `%s` are other positions than `%s`",
                         mask->name, axes->k, axes->q);
  diag_label(r, "has %s", dims_text(e->ctx, &t->dims));
  if (mask->kind == MASK_PADDING)
    diag_help(r, "`padding` takes the keys that count: a bool with `%s`", axes->k);
  else
    diag_help(r,
              "compare two tensors: `doc_of_queries == doc_of_keys`, one with `%s`, one with "
              "`%s`, widened to both",
              axes->q, axes->k);
  diag_help(r, "if they are the same positions, say so: `dims { %s like %s }`", axes->k, axes->q);
  return false;
}

static bool check_tensor(Eval *e, const Mask *mask, const Dims *scores, const MaskAxes *axes,
                         Span at) {
  const Val *t = mask->tensor;
  bool fits = dims_subset(&t->dims, scores), q = dims_has(&t->dims, axes->q),
       k = dims_has(&t->dims, axes->k);
  bool of_queries = fits && q && !k && mask->kind != MASK_TENSOR;
  if (of_queries && !axes->alike) return wrong_side(e, mask, axes, at);
  if (of_queries || t->rounds || (fits && k && !(mask->kind == MASK_SAME))) return true;
  Str wanted = mask->kind == MASK_SAME ? axes->q : axes->k;
  Report *r = eval_error(e, "E0301", mask->span.file ? mask->span : at,
                         "this part of the mask does not fit the scores");
  diag_label(r, "has %s", dims_text(e->ctx, &t->dims));
  diag_fact(r, "the scores have %s; the mask must have `%s`, and no other dimension",
            dims_text(e->ctx, scores), wanted);
  return false;
}

static bool check_parts(Eval *e, const Mask *mask, const Dims *scores, const MaskAxes *axes,
                        Span at) {
  bool ok = check_layout(e, mask, scores, axes->q, axes->k, at) &&
            !(mask->tensor && !check_tensor(e, mask, scores, axes, at));
  for (int i = 0; ok && mask_part(mask, i); i++)
    ok = check_parts(e, mask_part(mask, i), scores, axes, at);
  return ok;
}

/* random(k) draws k of the block columns that there are. */
static bool enough_columns(Eval *e, const Mask *mask, const BlockGrid *grid) {
  int64_t size = size_of(e->sizes, grid->k);
  if (size <= 0 || grid->unit <= 0 || mask->number <= ceil((double)size / grid->unit)) return true;
  double columns = ceil((double)size / grid->unit);
  Report *r = eval_error(e, "E0311", mask->span, "`random` draws more block columns than exist");
  diag_label(r, "it draws %.0f, and %.0f exist", mask->number, columns);
  diag_fact(r, "`%s` has %lld elements, in blocks of %.0f", grid->k, (long long)size, grid->unit);
  return false;
}

/* The grid of blocks of a part of the mask: a layout has heads of its own. */
BlockGrid mask_grid(const Mask *mask, const BlockGrid *outer) {
  BlockGrid grid = *outer;
  Dims pair = {.n = 2, .at = {grid.q, grid.k}};
  if (mask->layout.n) grid.heads = dims_without(&mask->layout, &pair);
  return grid;
}

/* Patterns that name blocks, against the blocks that there are. */
static bool fits_grid(Eval *e, const Mask *mask, const BlockGrid *outer) {
  BlockGrid grid = mask_grid(mask, outer);
  bool pattern = mask->kind == MASK_PATTERN;
  bool ok = !(pattern && !strcmp(mask->name, "random") && !enough_columns(e, mask, &grid)) &&
            !(mask->table && !table_fits(e, mask, &grid));
  for (int i = 0; ok && mask_part(mask, i); i++) ok = fits_grid(e, mask_part(mask, i), &grid);
  return ok;
}

/* Heads by which parts of the mask differ, of the layout that has the most. */
static int64_t most_heads(Eval *e, const Mask *mask, const BlockGrid *outer) {
  BlockGrid grid = mask_grid(mask, outer);
  int64_t n = 1, most;
  for (int i = 0; i < grid.heads.n; i++) n *= max_i64(size_of(e->sizes, grid.heads.at[i]), 1);
  most = mask->kind == MASK_PATTERN ? n : 1;
  for (int i = 0; mask_part(mask, i); i++)
    most = max_i64(most, most_heads(e, mask_part(mask, i), &grid));
  return most;
}

static bool few_heads(Eval *e, const Mask *mask, const BlockGrid *grid, Span at) {
  int64_t heads = most_heads(e, mask, grid);
  if (heads <= LISTS_HEADS) return true;
  Report *r =
      eval_error(e, "E0311", at, "a layout has blocks of its own for at most %d heads, not %lld",
                 LISTS_HEADS, (long long)heads);
  diag_label(r, "each head has blocks of its own");
  diag_help(r, "leave the heads out of the axes of the layout: they all use the same blocks then");
  return false;
}

/* The list of blocks is a constant of the program, so the numbers of blocks and heads are
   limited. */
static bool few_blocks(Eval *e, const Mask *mask, const BlockGrid *grid) {
  int64_t q = size_of(e->sizes, grid->q), k = size_of(e->sizes, grid->k), n = (int64_t)grid->unit;
  if (q <= 0 || k <= 0 || n <= 0) return true;
  int64_t rows = ceil_div(q, n), columns = ceil_div(k, n), fit = n;
  if (rows <= LISTS_BLOCKS / columns) return few_heads(e, mask, grid, grid->word);
  while (ceil_div(q, fit) > LISTS_BLOCKS / ceil_div(k, fit)) fit *= 2;
  Report *r = eval_error(e, "E0311", grid->word, "the mask has more blocks than a list holds");
  diag_label(r, "%lld x %lld blocks of %lld x %lld; a list holds at most %d", (long long)rows,
             (long long)columns, (long long)n, (long long)n, LISTS_BLOCKS);
  diag_fact(r, "`%s` has %lld elements and `%s` %lld", grid->q, (long long)q, grid->k,
            (long long)k);
  diag_help(r, "`blocks(%lld)` fits", (long long)fit);
  diag_edit(r, grid->word, "blocks(%lld)", (long long)fit);
  return false;
}

static BlockGrid grid_of(const MaskBlocks *blocks, Str q, Str k, double otherwise) {
  return (BlockGrid){.q = q,
                     .k = k,
                     .unit = blocks->blocks ? blocks->blocks->number : otherwise,
                     .word = blocks->blocks ? blocks->blocks->span : (Span){0}};
}

double mask_unit(const Mask *mask) {
  MaskBlocks blocks = {0};
  find_unit(mask, &blocks);
  return blocks.blocks ? blocks.blocks->number : 0;
}

void mask_note(Eval *e, const MaskUse *use) {
  if (e->build) return;
  for (uint32_t i = 0; i < e->masks.n; i++) {
    const MaskUse *mask_use = &e->masks.at[i];
    if (mask_use->name == use->name && !memcmp(&mask_use->span, &use->span, sizeof mask_use->span))
      return;
  }
  vec_push(e->arena, e->masks, *use);
}

bool mask_check(Eval *e, const Mask *mask, const Dims *scores, const MaskAxes *axes, Span at) {
  MaskBlocks blocks = {0};
  find_unit(mask, &blocks);
  if (blocks.other) {
    Report *r = eval_error(e, "E0311", blocks.other->span, "two different `blocks(n)` in one mask");
    diag_label(r, "%.0f and %.0f", blocks.blocks->number, blocks.other->number);
    diag_also(r, blocks.blocks->span, "the first one");
    diag_help(r, "`blocks(%.0f)` holds for the whole mask", blocks.blocks->number);
    diag_edit(r, blocks.other->span, "blocks(%.0f)", blocks.blocks->number);
    return false;
  }
  if (blocks.pattern && !blocks.blocks) {
    Report *r =
        eval_error(e, "E0311", blocks.pattern->span,
                   "`%s` counts in blocks, but no `blocks(n)` is given", blocks.pattern->name);
    diag_help(r, "for example `blocks(16) & %s`", span_text(e->ctx, blocks.pattern->span));
    return false;
  }
  if (!check_parts(e, mask, scores, axes, at)) return false;
  BlockGrid grid = grid_of(&blocks, axes->q, axes->k, 0);
  return !blocks.pattern || (fits_grid(e, mask, &grid) && few_blocks(e, mask, &grid));
}

/* ---- values ---- */

/* One side of a combination whose other side is true everywhere; a layout that it is part of gives
   it heads, unless it has its own. */
static const Mask *alone(Eval *e, const Mask *mask, const Mask *part) {
  if (!mask->layout.n || part->layout.n) return part;
  Mask *copy = ARENA_NEW(e->arena, Mask);
  *copy = *part, copy->layout = mask->layout;
  return copy;
}

static const Mask *everything(Eval *e) {
  Mask *mask = ARENA_NEW(e->arena, Mask);
  return mask->kind = MASK_ALL, mask;
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

static Val causal_values(Eval *e, const BlockGrid *grid) {
  return pattern_op(e, OP_le, pattern_position(e, grid->k), pattern_position(e, grid->q));
}

/* |q - k| < n */
static Val sliding_values(Eval *e, const Mask *mask, const BlockGrid *grid) {
  Val far = pattern_op(e, OP_sub, pattern_position(e, grid->k), pattern_position(e, grid->q));
  Val distance = val_tensor(VAL_INT, far.dims);
  const Val *in[] = {&far};
  lower_op(e, &distance, 1, OP_abs, 1, in, 0, NULL);
  return pattern_op(e, OP_lt, distance, val_number(mask->number));
}

static Val on_keys(Eval *e, const Val *t, const BlockGrid *grid) {
  Val v = *t;
  if (dims_has(&t->dims, grid->k) || !dims_has(&t->dims, grid->q)) return v;
  for (int i = 0; i < v.dims.n; i++)
    if (v.dims.at[i] == grid->q) v.dims.at[i] = grid->k;
  lower_rename(e, &v, t, grid->q, grid->k);
  return v;
}

static Val same_values(Eval *e, const Mask *mask, const BlockGrid *grid) {
  Val keys = on_keys(e, mask->tensor, grid);
  Dims all = mask->tensor->dims;
  dims_add(&all, grid->k);
  Val wide = lower_widened(e, &keys, &all);
  const Val *in[] = {&wide, mask->tensor};
  Val out = val_tensor(VAL_BOOL, wide.dims);
  lower_op(e, &out, 1, OP_eq, 2, in, 0, NULL);
  return out;
}

static Val values(Eval *e, const Mask *m, const BlockGrid *g);

/* Entry h mod n for head h: the entries in turn, each where the head is one of its own. */
static Val per_head_values(Eval *e, const Mask *mask, const BlockGrid *grid) {
  Val h = pattern_head(e, grid, mask->nitems), any = val_poison();
  for (int i = 0; i < mask->nitems; i++) {
    const Mask *item = mask_reduced(e, mask->items[i]);
    if (mask->nitems == 1 || h.kind == VAL_NUMBER)
      return values(e, mask_reduced(e, mask->items[0]), grid);
    Val here = pattern_op(e, OP_eq, h, val_number(i));
    if (item->kind != MASK_ALL) here = pattern_op(e, OP_and, values(e, item, grid), here);
    any = i ? pattern_op(e, OP_or, any, here) : here;
  }
  return any;
}

static Val values(Eval *e, const Mask *mask, const BlockGrid *outer) {
  BlockGrid own = mask_grid(mask, outer), *grid = &own;
  switch (mask->kind) {
  case MASK_ALL:
  case MASK_BLOCKS: return val_flat(VAL_BOOL, (Dims){.n = 1, .at = {grid->k}}, 1);
  case MASK_CAUSAL: return causal_values(e, grid);
  case MASK_SLIDING: return sliding_values(e, mask, grid);
  case MASK_PADDING: return on_keys(e, mask->tensor, grid);
  case MASK_SAME: return same_values(e, mask, grid);
  case MASK_TENSOR: return *mask->tensor;
  case MASK_AND:
  case MASK_OR:
    return pattern_op(e, mask->kind == MASK_AND ? OP_and : OP_or, values(e, mask->a, grid),
                      values(e, mask->b, grid));
  case MASK_PATTERN: break;
  }
  return mask->items ? per_head_values(e, mask, grid) : pattern_values(e, mask, grid);
}

Val mask_values_on(Eval *e, const Mask *mask, const BlockGrid *grid) {
  return values(e, mask_reduced(e, mask), grid);
}

/* A bool value over K, perhaps Q, and dims of the scores. Only when building. */
Val mask_values(Eval *e, const Mask *mask, Str q, Str k) {
  MaskBlocks blocks = {0};
  find_unit(mask, &blocks);
  BlockGrid grid = grid_of(&blocks, q, k, 1);
  return mask_values_on(e, mask, &grid);
}
