/* Layouts for people: figures and pictures of what a program's masks list. A mask is lowered alone
   into a module of its own and asked block by block (ir/blocks.h); what data decides counts as
   admitted. So figures and pictures are of the expression that every target computes. */
#include "frontend/layout.h"
#include "frontend/lower_build.h"
#include "frontend/lower_emit.h"
#include "ir/mask_range.h"
#include "ir/support/num.h"
#include <stdio.h>
#include <string.h>

enum { PICTURE_BLOCKS = 64 }; /* a side, where the layout does not say blocks(n) */

typedef struct Scene {
  Eval *e; /* writes into a module that nobody else sees */
  const Mask *mask;
  BlockGrid grid;
  Axis query, key;
  Axis head[MASK_DIMS]; /* by whose positions the mask differs */
  int heads;
  ValueId value;
  VEC(ValueId) by_head; /* values of heads alone that others of the mask are made of */
} Scene;

static Eval *pen(World *w, Sizes *s) {
  Build *b = ARENA_NEW(w->ctx->arena, Build);
  Frame *f = ARENA_NEW(w->ctx->arena, Frame);
  b->m = module_new(w->ctx);
  b->files = ARENA_ARRAY(w->ctx->arena, uint32_t, diag_source_count(w->ctx->diag) + 1);
  f->fn = fn_new(b->m, FN_ENTRY, intern(w->ctx->names, "layout"));
  b->root = b->frame = f;
  return eval_new(w, s, MODE_EVAL, b);
}

static const Fn *fn_of(const Scene *s) { return s->e->build->root->fn; }

/* Of positions alone: data admits everything. */
static const Mask *of_positions(Eval *e, const Mask *m) {
  Mask *copy = ARENA_NEW(e->arena, Mask);
  *copy = *m;
  if (m->tensor) *copy = (Mask){.kind = MASK_ALL, .span = m->span};
  if (m->a) copy->a = of_positions(e, m->a), copy->b = m->b ? of_positions(e, m->b) : NULL;
  if (!m->items) return copy;
  const Mask **items = ARENA_ARRAY(e->arena, const Mask *, m->nitems);
  for (int i = 0; i < m->nitems; i++) items[i] = of_positions(e, m->items[i]);
  copy->items = items;
  return copy;
}

static void add_dims(const Mask *m, Dims *out) {
  for (int i = 0; i < m->layout.n; i++)
    if (!dims_has(out, m->layout.at[i])) dims_add(out, m->layout.at[i]);
  for (int i = 0; mask_part(m, i); i++) add_dims(mask_part(m, i), out);
}

static bool all_sized(Sizes *s, const Dims *d) {
  for (int i = 0; i < d->n; i++)
    if (!sizes_find(s, d->at[i]) || size_of(s, d->at[i]) <= 0) return false;
  return true;
}

/* Heads in the order in which the layout names them. */
static void sort_heads(Scene *s, const Dims *order) {
  int n = 0;
  for (int i = 0; i < order->n; i++)
    for (int h = n; h < s->heads; h++)
      if (s->head[h].dim == order->at[i]) {
        Axis here = s->head[h];
        s->head[h] = s->head[n], s->head[n++] = here;
      }
}

static ValueId value_on(Scene *s, const Mask *m, const BlockGrid *g) {
  Val v = mask_values_on(s->e, m, g);
  return emit_use(s->e, &v);
}

/* 1: of queries or keys, 2: of heads, by value */
static const uint8_t *positions_in(const Scene *s) {
  const Fn *f = fn_of(s);
  uint8_t *of = ARENA_ARRAY(s->e->arena, uint8_t, f->values.n + 1);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    Str dim = o->code == OP_iota ? o->group[0].from[0] : NULL;
    if (dim) of[o->out] = dim == s->query.dim || dim == s->key.dim ? 1 : 2;
    for (uint32_t k = 0; k < o->nin; k++) of[o->out] |= of[o->in[k]];
  }
  return of;
}

/* Heads for which these values are alike have the same blocks. */
static void set_by_head(Scene *s) {
  const Fn *f = fn_of(s);
  const uint8_t *of = positions_in(s);
  if (of[s->value] == 2) vec_push(s->e->arena, s->by_head, s->value);
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin && of[f->ops.at[i].out] == 3; k++)
      if (of[f->ops.at[i].in[k]] == 2) vec_push(s->e->arena, s->by_head, f->ops.at[i].in[k]);
}

/* False: sizes are open, or the mask does not fit them, which was said. */
static bool set_scene(Scene *s, World *w, Sizes *sizes, const Mask *m, Str q, Str k) {
  Dims all = {0}, pair = {.n = 2, .at = {q, k}};
  add_dims(m, &all);
  all = dims_without(&all, &pair), dims_add(&all, q), dims_add(&all, k);
  if (!all_sized(sizes, &all)) return false;
  s->e = pen(w, sizes);
  s->mask = of_positions(s->e, m);
  const MaskAxes axes = {q, k, true};
  if (!mask_check(s->e, s->mask, &all, &axes, m->span)) return false;
  s->query = (Axis){q, size_of(sizes, q)}, s->key = (Axis){k, size_of(sizes, k)};
  s->grid = (BlockGrid){.q = q, .k = k, .unit = mask_unit(s->mask)};
  if (s->grid.unit <= 0) s->grid.unit = 1;
  s->value = value_on(s, s->mask, &s->grid);
  s->heads = mask_heads(fn_of(s), s->value, q, k, s->head);
  sort_heads(s, &all), set_by_head(s);
  return true;
}

static int64_t head_count(const Scene *s) {
  int64_t n = 1;
  for (int i = 0; i < s->heads; i++) n *= s->head[i].size;
  return n;
}

static void head_at(const Scene *s, int64_t h, BlockHead *out) {
  for (int i = s->heads; i-- > 0; h /= s->head[i].size)
    out[i] = (BlockHead){s->head[i].dim, h % s->head[i].size, NO_VALUE};
}

/* Per head the first one with the same blocks. */
static const int64_t *alike_heads(const Scene *s) {
  Arena *a = s->e->arena;
  int64_t heads = head_count(s), n = s->by_head.n;
  int64_t *first = ARENA_ARRAY(a, int64_t, heads), *key = ARENA_ARRAY(a, int64_t, heads * n + 1);
  MaskQuestion x = mask_question(a, fn_of(s));
  for (int64_t h = 0; h < heads; h++) {
    BlockHead at[MASK_DIMS];
    head_at(s, h, at);
    for (int i = 0; i < s->heads; i++) mask_range(&x, at[i].dim, at[i].at, at[i].at + 1);
    for (int64_t i = 0; i < n; i++) key[h * n + i] = mask_interval(&x, s->by_head.at[i]).lo;
    while (memcmp(key + first[h] * n, key + h * n, sizeof *key * (size_t)n) != 0) first[h]++;
  }
  return first;
}

/* ---- figures ---- */

static int64_t picture_unit(int64_t longest) {
  int64_t n = 1;
  while (n * PICTURE_BLOCKS < longest) n *= 2;
  return n;
}

static void add_count(BlockCount *sum, const BlockCount *c) {
  sum->partial += c->partial, sum->full += c->full, sum->blind += c->blind;
  sum->listed += c->listed, sum->admitted += c->admitted;
}

static LayoutFigures begin_figures(const Scene *s, Str name, Span span) {
  LayoutFigures f = {.name = name, .span = span, .query = s->query.dim, .key = s->key.dim};
  f.queries = s->query.size, f.keys = s->key.size, f.heads = head_count(s);
  f.counted = mask_unit(s->mask) > 0;
  f.unit = f.counted ? (int64_t)s->grid.unit : picture_unit(max_i64(f.queries, f.keys));
  f.blocks =
      (double)f.heads * (double)ceil_div(f.queries, f.unit) * (double)ceil_div(f.keys, f.unit);
  f.scores = (double)f.heads * (double)f.queries * (double)f.keys;
  return f;
}

static BlockMap map_of(const Scene *s, Arena *a, ValueId v, int64_t unit, const BlockHead *at) {
  return mask_blocks(a, fn_of(s), v, s->query, s->key, unit, unit, s->heads, at);
}

static BlockCount count_of(const Scene *s, int64_t h, int64_t unit) {
  Arena *a = arena_new();
  BlockHead at[MASK_DIMS];
  head_at(s, h, at);
  BlockMap map = map_of(s, a, s->value, unit, at);
  BlockCount c = mask_count(fn_of(s), s->value, s->query, s->key, &map, s->heads, at);
  arena_free(a);
  return c;
}

static LayoutFigures figures_of(const Scene *s, Str name, Span span) {
  LayoutFigures f = begin_figures(s, name, span);
  const int64_t *like = alike_heads(s);
  BlockCount *count = ARENA_ARRAY(s->e->arena, BlockCount, f.heads);
  for (int64_t h = 0; h < f.heads; h++) {
    if (like[h] == h) count[h] = count_of(s, h, f.unit);
    add_count(&f.sum, &count[like[h]]);
  }
  return f;
}

static bool has_pattern(const Mask *m) {
  bool any = m->kind == MASK_PATTERN && !m->items;
  for (int i = 0; mask_part(m, i) && !any; i++) any = has_pattern(mask_part(m, i));
  return any;
}

static void warn_empty(World *w, const LayoutFigures *f) {
  Str what = f->name ? arena_printf(w->ctx->arena, "layout `%s`", f->name) : "this mask";
  world_warn(w, "W0304", f->span,
             arena_printf(
                 w->ctx->arena, "%s lists none of the %lld x %lld blocks: all results are 0", what,
                 (long long)ceil_div(f->queries, f->unit), (long long)ceil_div(f->keys, f->unit)),
             arena_printf(w->ctx->arena, "`%s` has %lld elements and `%s` %lld, in blocks of %lld",
                          f->query, (long long)f->queries, f->key, (long long)f->keys,
                          (long long)f->unit));
}

/* What a pattern names behind the last block is none: said, no error, as sizes may be a trial's. */
static void warn_beyond(World *w, const Scene *s, const Mask *m) {
  double rows = (double)ceil_div(s->query.size, (int64_t)s->grid.unit),
         columns = (double)ceil_div(s->key.size, (int64_t)s->grid.unit), named, there;
  for (int i = 0; mask_part(m, i); i++) warn_beyond(w, s, mask_part(m, i));
  if (m->kind != MASK_PATTERN || m->items || !pattern_beyond(m, rows, columns, &named, &there))
    return;
  Arena *a = w->ctx->arena;
  world_warn(
      w, "W0305", m->span,
      arena_printf(a, "`%s` names block %.0f, and there are %.0f", m->name, named - 1, there),
      arena_printf(a,
                   "blocks count from 0; `%s` has %lld elements and `%s` %lld, in blocks of %.0f",
                   s->query.dim, (long long)s->query.size, s->key.dim, (long long)s->key.size,
                   s->grid.unit));
}

void layouts_of(Eval *checked, LayoutList *out) {
  World *w = checked->w;
  for (uint32_t i = 0; i < checked->masks.n; i++) {
    const MaskUse *u = &checked->masks.at[i];
    Scene s = {0};
    bool pattern = has_pattern(u->mask);
    if (pattern ? mask_unit(u->mask) <= 0 : !u->name) continue; /* of a larger mask */
    if (!set_scene(&s, w, checked->sizes, u->mask, u->q, u->k)) continue;
    if (pattern) warn_beyond(w, &s, s.mask);
    LayoutFigures f = figures_of(&s, u->name, u->span);
    if (!f.sum.full && !f.sum.partial) warn_empty(w, &f);
    if (u->name && out) vec_push(w->ctx->arena, *out, f);
  }
}

/* ---- pictures ---- */

typedef struct Leaf {
  Str name;
  int rank; /* patterns of blocks before predicates of elements, narrow ones first */
  ValueId value;
} Leaf;
typedef VEC(Leaf) WeightLeaves;

static int64_t head_number(const Scene *s, const Dims *heads, const BlockHead *at) {
  int64_t h = 0;
  for (int i = 0; i < heads->n; i++) {
    int64_t here = 0;
    for (int k = 0; k < s->heads; k++)
      if (at[k].dim == heads->at[i]) here = at[k].at;
    h = h * size_of(s->e->sizes, heads->at[i]) + here;
  }
  return h;
}

static Str leaf_name(const Mask *m) {
  static const char *const names[] = {
      [MASK_ALL] = "all", [MASK_CAUSAL] = "causal", [MASK_SLIDING] = "sliding"};
  return m->kind == MASK_PATTERN ? m->name : names[m->kind];
}

/* The parts that speak for a head, in the order in which they are written. */
static void add_leaves(Scene *s, const Mask *m, const BlockGrid *outer, const BlockHead *at,
                       WeightLeaves *out) {
  BlockGrid g = mask_grid(m, outer);
  if (m->items) {
    add_leaves(s, m->items[head_number(s, &g.heads, at) % m->nitems], &g, at, out);
    return;
  }
  for (int i = 0; mask_part(m, i); i++) add_leaves(s, mask_part(m, i), &g, at, out);
  if (m->kind == MASK_BLOCKS || m->kind == MASK_AND || m->kind == MASK_OR) return;
  int rank = m->kind == MASK_PATTERN ? 0 : m->kind == MASK_SLIDING ? 1 : 2;
  Leaf leaf = {leaf_name(m), rank, value_on(s, m, outer)};
  vec_push(s->e->arena, *out, leaf);
}

static uint8_t part_number(Layout *l, Arena *a, Str name) {
  uint32_t i = 0;
  while (i < l->parts.n && strcmp(l->parts.at[i], name) != 0) i++;
  if (i == l->parts.n) vec_push(a, l->parts, name);
  return (uint8_t)(i + 1);
}

/* Patterns before predicates: `& causal` cuts what patterns list, it lists nothing. */
static void paint(Scene *s, Layout *l, LayoutHead *h, const BlockHead *at) {
  WeightLeaves leaves = {0};
  int64_t n = h->map.rows * h->map.columns;
  h->part = ARENA_ARRAY(s->e->arena, uint8_t, n);
  add_leaves(s, s->mask, &s->grid, at, &leaves);
  for (uint32_t i = 0; i < 3 * leaves.n; i++) {
    const Leaf *leaf = &leaves.at[i % leaves.n];
    if (leaf->rank != (int)(i / leaves.n)) continue;
    Arena *a = arena_new();
    BlockMap own = map_of(s, a, leaf->value, l->figures.unit, at);
    for (int64_t b = 0; b < n; b++)
      if (h->map.state[b] != BLOCK_ABSENT && !h->part[b] && own.state[b] != BLOCK_ABSENT)
        h->part[b] = part_number(l, s->e->arena, leaf->name);
    arena_free(a);
  }
}

static bool same_blocks(const LayoutHead *a, const LayoutHead *b) {
  size_t n = (size_t)(a->map.rows * a->map.columns);
  return !memcmp(a->map.state, b->map.state, n) && !memcmp(a->part, b->part, n);
}

static Str head_name(const Scene *s, const BlockHead *at) {
  const char *text = "";
  for (int i = 0; i < s->heads; i++)
    text = arena_printf(s->e->arena, "%s%s%s %lld", text, i ? ", " : "", at[i].dim,
                        (long long)at[i].at);
  return text;
}

static void add_head(Scene *s, Layout *l, int64_t number) {
  LayoutHead h = {.like = number};
  BlockHead at[MASK_DIMS];
  head_at(s, number, at);
  h.name = head_name(s, at);
  h.map = map_of(s, s->e->arena, s->value, l->figures.unit, at);
  h.count = mask_count(fn_of(s), s->value, s->query, s->key, &h.map, s->heads, at);
  paint(s, l, &h, at);
  for (int64_t i = 0; i < number && h.like == number; i++)
    if (l->heads.at[i].like == i && same_blocks(&l->heads.at[i], &h)) h.like = i;
  if (h.like != number) h.map.state = NULL, h.part = NULL;
  add_count(&l->figures.sum, &h.count);
  vec_push(s->e->arena, l->heads, h);
}

/* The place of an expression leaves out brackets around its first and last part. */
static Str balanced(Ctx *c, Str text) {
  int open = 0, before = 0;
  for (const char *s = text; *s; s++) {
    open += (*s == '(') - (*s == ')');
    if (-open > before) before = -open;
  }
  for (; before > 0; before--, open++) text = arena_printf(c->arena, "(%s", text);
  for (; open > 0; open--) text = arena_printf(c->arena, "%s)", text);
  return text;
}

/* NULL: its sizes are open or do not fit */
static const Layout *drawn(World *w, Sizes *sizes, const Decl *d, const Mask *m) {
  Scene s = {0};
  int n = m->layout.n;
  Layout *l = ARENA_NEW(w->ctx->arena, Layout);
  if (n < 2 || !set_scene(&s, w, sizes, m, m->layout.at[n - 2], m->layout.at[n - 1])) return NULL;
  l->figures = begin_figures(&s, d->name, d->item->value->span);
  l->text = balanced(w->ctx, span_text(w->ctx, d->item->value->span));
  for (int64_t h = 0; h < l->figures.heads; h++) add_head(&s, l, h);
  return l;
}

static bool is_used(const Eval *e, Str name) {
  for (uint32_t i = 0; i < e->masks.n; i++)
    if (e->masks.at[i].name == name) return true;
  return false;
}

void draw_layouts(Eval *checked, LayoutDrawings *out) {
  World *w = checked->w;
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_FN, &at));) {
    if (d->item->kind != ITEM_LAYOUT) continue;
    vec_push(w->ctx->arena, out->names, d->name);
    if (out->name ? strcmp(out->name, d->name) != 0 : !is_used(checked, d->name)) continue;
    Val v = eval_layout(checked, d);
    bool part = v.kind == VAL_MASK && has_pattern(v.mask) && mask_unit(v.mask) <= 0;
    if (part && !out->name) continue;
    const Layout *l = v.kind == VAL_MASK ? drawn(w, checked->sizes, d, v.mask) : NULL;
    if (l) vec_push(w->ctx->arena, out->drawn, l);
  }
}

/* ---- a line of the module ---- */

static const char counted[] = "[%s %lld, %s %lld] x %lld in blocks of %lld: %lld full and %lld "
                              "partial of %.0f; %.0f of %.0f scores listed, %.0f admitted; %lld "
                              "queries see nothing";
static const char plain[] =
    "[%s %lld, %s %lld] x %lld: %.0f of %.0f scores admitted; %lld queries see nothing";

const char *layout_line(Arena *a, const LayoutFigures *f) {
  if (!f->counted)
    return arena_printf(a, plain, f->query, (long long)f->queries, f->key, (long long)f->keys,
                        (long long)f->heads, f->sum.admitted, f->scores, (long long)f->sum.blind);
  return arena_printf(a, counted, f->query, (long long)f->queries, f->key, (long long)f->keys,
                      (long long)f->heads, (long long)f->unit, (long long)f->sum.full,
                      (long long)f->sum.partial, f->blocks, f->sum.listed, f->scores,
                      f->sum.admitted, (long long)f->sum.blind);
}

bool layout_read(const char *line, LayoutFigures *out) {
  long long q, k, heads, unit, full, partial, blind;
  LayoutFigures f = {0};
  if (sscanf(line,
             "[%*s %lld, %*s %lld] x %lld in blocks of %lld: %lld full and %lld partial of %lf; "
             "%lf of %lf scores listed, %lf admitted; %lld queries",
             &q, &k, &heads, &unit, &full, &partial, &f.blocks, &f.sum.listed, &f.scores,
             &f.sum.admitted, &blind) == 11)
    f.counted = true, f.unit = unit, f.sum.full = full, f.sum.partial = partial;
  else if (sscanf(line, "[%*s %lld, %*s %lld] x %lld: %lf of %lf scores admitted; %lld queries", &q,
                  &k, &heads, &f.sum.admitted, &f.scores, &blind) != 6)
    return false;
  f.queries = q, f.keys = k, f.heads = heads, f.sum.blind = blind;
  return *out = f, true;
}
