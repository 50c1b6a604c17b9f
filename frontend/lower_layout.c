/* Layouts for people: figures and pictures of the blocks that a program's masks list. A mask is
   lowered into a module of its own and evaluated block by block (ir/mask/blocks.h); elements that
   depend on data count as admitted. So figures and pictures show the expression that every target
   computes. */
#include "layout.h"
#include "lower_build.h"
#include "frontend/model/sema_mask.h"
#include "ir/mask/mask_range.h"
#include "ir/support/num.h"
#include <stdio.h>
#include <string.h>

enum { PICTURE_BLOCKS = 64 }; /* a side, where the layout does not say blocks(n) */

typedef struct Scene {
  Eval *e; /* writes into a module of its own */
  const Mask *mask;
  BlockGrid grid;
  Axis query, key;
  Axis head[MASK_DIMS]; /* by whose positions the mask differs */
  int heads;
  ValueId value;
  VEC(ValueId) by_head; /* values of heads alone that others of the mask are made of */
} Scene;

static Eval *pen(World *w, Sizes *sizes) {
  Build *build = ARENA_NEW(w->ctx->arena, Build);
  Frame *frame = ARENA_NEW(w->ctx->arena, Frame);
  build->m = module_new(w->ctx);
  build->files = ARENA_ARRAY(w->ctx->arena, uint32_t, diag_source_count(w->ctx->diag) + 1);
  frame->fn = fn_new(build->m, FN_ENTRY, intern(w->ctx->names, "layout"));
  build->root = build->frame = frame;
  return eval_new(w, sizes, MODE_EVAL, build);
}

static const Fn *fn_of(const Scene *scene) { return scene->e->build->root->fn; }

/* The mask as a function of positions only: data admits everything. */
static const Mask *of_positions(Eval *e, const Mask *mask) {
  Mask *copy = ARENA_NEW(e->arena, Mask);
  *copy = *mask;
  if (mask->tensor) *copy = (Mask){.kind = MASK_ALL, .span = mask->span};
  if (mask->a)
    copy->a = of_positions(e, mask->a), copy->b = mask->b ? of_positions(e, mask->b) : NULL;
  if (!mask->items) return copy;
  const Mask **items = ARENA_ARRAY(e->arena, const Mask *, mask->nitems);
  for (int i = 0; i < mask->nitems; i++) items[i] = of_positions(e, mask->items[i]);
  copy->items = items;
  return copy;
}

static void add_dims(const Mask *mask, Dims *out) {
  for (int i = 0; i < mask->layout.n; i++)
    if (!dims_has(out, mask->layout.at[i])) dims_add(out, mask->layout.at[i]);
  for (int i = 0; mask_part(mask, i); i++) add_dims(mask_part(mask, i), out);
}

static bool all_sized(Sizes *sizes, const Dims *dims) {
  for (int i = 0; i < dims->n; i++)
    if (!sizes_find(sizes, dims->at[i]) || size_of(sizes, dims->at[i]) <= 0) return false;
  return true;
}

/* Heads in the order in which the layout names them. */
static void sort_heads(Scene *scene, const Dims *order) {
  int n = 0;
  for (int i = 0; i < order->n; i++)
    for (int h = n; h < scene->heads; h++)
      if (scene->head[h].dim == order->at[i]) {
        Axis here = scene->head[h];
        scene->head[h] = scene->head[n], scene->head[n++] = here;
      }
}

static ValueId value_on(Scene *scene, const Mask *mask, const BlockGrid *grid) {
  Val v = mask_values_on(scene->e, mask, grid);
  return emit_use(scene->e, &v);
}

/* 1: of queries or keys, 2: of heads, by value */
static const uint8_t *positions_in(const Scene *scene) {
  const Fn *f = fn_of(scene);
  uint8_t *of = ARENA_ARRAY(scene->e->arena, uint8_t, f->values.n + 1);
  EACH_OP (f, o) {
    Str dim = o->code == OP_iota ? o->group[0].from[0] : NULL;
    if (dim) of[o->out] = dim == scene->query.dim || dim == scene->key.dim ? 1 : 2;
    for (uint32_t k = 0; k < o->nin; k++) of[o->out] |= of[o->in[k]];
  }
  return of;
}

/* Heads for which these values are alike have the same blocks. */
static void set_by_head(Scene *scene) {
  const Fn *f = fn_of(scene);
  const uint8_t *of = positions_in(scene);
  if (of[scene->value] == 2) vec_push(scene->e->arena, scene->by_head, scene->value);
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin && of[f->ops.at[i].out] == 3; k++)
      if (of[f->ops.at[i].in[k]] == 2)
        vec_push(scene->e->arena, scene->by_head, f->ops.at[i].in[k]);
}

/* False: sizes are open, or the mask does not fit them, which is reported. */
static bool set_scene(Scene *scene, World *w, Sizes *sizes, const Mask *mask, Str q, Str k) {
  Dims all = {0}, pair = {.n = 2, .at = {q, k}};
  add_dims(mask, &all);
  all = dims_without(&all, &pair), dims_add(&all, q), dims_add(&all, k);
  if (!all_sized(sizes, &all)) return false;
  scene->e = pen(w, sizes);
  scene->mask = of_positions(scene->e, mask);
  const MaskAxes axes = {q, k, true};
  if (!mask_check(scene->e, scene->mask, &all, &axes, mask->span)) return false;
  scene->query = (Axis){q, size_of(sizes, q)}, scene->key = (Axis){k, size_of(sizes, k)};
  scene->grid = (BlockGrid){.q = q, .k = k, .unit = mask_unit(scene->mask)};
  if (scene->grid.unit <= 0) scene->grid.unit = 1;
  scene->value = value_on(scene, scene->mask, &scene->grid);
  scene->heads = mask_heads(fn_of(scene), scene->value, q, k, scene->head);
  sort_heads(scene, &all), set_by_head(scene);
  return true;
}

static int64_t head_count(const Scene *scene) {
  int64_t n = 1;
  for (int i = 0; i < scene->heads; i++) n *= scene->head[i].size;
  return n;
}

static void head_at(const Scene *scene, int64_t h, BlockHead *out) {
  for (int i = scene->heads; i-- > 0; h /= scene->head[i].size)
    out[i] = (BlockHead){scene->head[i].dim, h % scene->head[i].size, NO_VALUE};
}

/* Per head the first one with the same blocks. */
static const int64_t *alike_heads(const Scene *scene) {
  Arena *arena = scene->e->arena;
  int64_t heads = head_count(scene), n = scene->by_head.n;
  int64_t *first = ARENA_ARRAY(arena, int64_t, heads),
          *key = ARENA_ARRAY(arena, int64_t, heads * n + 1);
  MaskQuestion question = mask_question(arena, fn_of(scene));
  for (int64_t h = 0; h < heads; h++) {
    BlockHead at[MASK_DIMS];
    head_at(scene, h, at);
    for (int i = 0; i < scene->heads; i++) mask_range(&question, at[i].dim, at[i].at, at[i].at + 1);
    for (int64_t i = 0; i < n; i++)
      key[h * n + i] = mask_interval(&question, scene->by_head.at[i]).lo;
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

static void add_count(BlockCount *sum, const BlockCount *count) {
  sum->partial += count->partial, sum->full += count->full, sum->blind += count->blind;
  sum->listed += count->listed, sum->admitted += count->admitted;
}

static LayoutFigures begin_figures(const Scene *scene, Str name, Span span) {
  LayoutFigures figures = {
      .name = name, .span = span, .query = scene->query.dim, .key = scene->key.dim};
  figures.queries = scene->query.size, figures.keys = scene->key.size,
  figures.heads = head_count(scene);
  figures.counted = mask_unit(scene->mask) > 0;
  figures.unit = figures.counted ? (int64_t)scene->grid.unit
                                 : picture_unit(max_i64(figures.queries, figures.keys));
  figures.blocks = (double)figures.heads * (double)ceil_div(figures.queries, figures.unit) *
                   (double)ceil_div(figures.keys, figures.unit);
  figures.scores = (double)figures.heads * (double)figures.queries * (double)figures.keys;
  return figures;
}

static BlockMap map_of(const Scene *scene, Arena *arena, ValueId v, int64_t unit,
                       const BlockHead *at) {
  return mask_blocks(arena, fn_of(scene), v, scene->query, scene->key, unit, unit, scene->heads,
                     at);
}

static BlockCount count_of(const Scene *scene, int64_t h, int64_t unit) {
  Arena *arena = arena_new();
  BlockHead at[MASK_DIMS];
  head_at(scene, h, at);
  BlockMap map = map_of(scene, arena, scene->value, unit, at);
  BlockCount count =
      mask_count(fn_of(scene), scene->value, scene->query, scene->key, &map, scene->heads, at);
  arena_free(arena);
  return count;
}

static LayoutFigures figures_of(const Scene *scene, Str name, Span span) {
  LayoutFigures figures = begin_figures(scene, name, span);
  const int64_t *like = alike_heads(scene);
  BlockCount *count = ARENA_ARRAY(scene->e->arena, BlockCount, figures.heads);
  for (int64_t h = 0; h < figures.heads; h++) {
    if (like[h] == h) count[h] = count_of(scene, h, figures.unit);
    add_count(&figures.sum, &count[like[h]]);
  }
  return figures;
}

static bool has_pattern(const Mask *mask) {
  bool any = mask->kind == MASK_PATTERN && !mask->items;
  for (int i = 0; mask_part(mask, i) && !any; i++) any = has_pattern(mask_part(mask, i));
  return any;
}

static void warn_empty(World *w, const LayoutFigures *figures) {
  Str what =
      figures->name ? arena_printf(w->ctx->arena, "layout `%s`", figures->name) : "this mask";
  world_warn(w, "W0304", figures->span,
             arena_printf(w->ctx->arena,
                          "%s lists none of the %lld x %lld blocks: all results are 0", what,
                          (long long)ceil_div(figures->queries, figures->unit),
                          (long long)ceil_div(figures->keys, figures->unit)),
             arena_printf(w->ctx->arena, "`%s` has %lld elements and `%s` %lld, in blocks of %lld",
                          figures->query, (long long)figures->queries, figures->key,
                          (long long)figures->keys, (long long)figures->unit));
}

/* Blocks after the last one have no effect: a warning and no error, because sizes may be those of a
   trial. */
static void warn_beyond(World *w, const Scene *scene, const Mask *mask) {
  double rows = (double)ceil_div(scene->query.size, (int64_t)scene->grid.unit),
         columns = (double)ceil_div(scene->key.size, (int64_t)scene->grid.unit), named, there;
  for (int i = 0; mask_part(mask, i); i++) warn_beyond(w, scene, mask_part(mask, i));
  if (mask->kind != MASK_PATTERN || mask->items ||
      !pattern_beyond(mask, rows, columns, &named, &there))
    return;
  Arena *arena = w->ctx->arena;
  world_warn(
      w, "W0305", mask->span,
      arena_printf(arena, "`%s` names block %.0f, the layout has %.0f", mask->name, named - 1,
                   there),
      arena_printf(arena,
                   "blocks count from 0; `%s` has %lld elements and `%s` %lld, in blocks of %.0f",
                   scene->query.dim, (long long)scene->query.size, scene->key.dim,
                   (long long)scene->key.size, scene->grid.unit));
}

void layouts_of(Eval *checked, LayoutList *out) {
  World *w = checked->w;
  for (uint32_t i = 0; i < checked->masks.n; i++) {
    const MaskUse *use = &checked->masks.at[i];
    Scene scene = {0};
    bool pattern = has_pattern(use->mask);
    if (pattern ? mask_unit(use->mask) <= 0 : !use->name) continue; /* of a larger mask */
    if (!set_scene(&scene, w, checked->sizes, use->mask, use->q, use->k)) continue;
    if (pattern) warn_beyond(w, &scene, scene.mask);
    LayoutFigures figures = figures_of(&scene, use->name, use->span);
    if (!figures.sum.full && !figures.sum.partial) warn_empty(w, &figures);
    if (use->name && out) vec_push(w->ctx->arena, *out, figures);
  }
}

/* ---- pictures ---- */

typedef struct Leaf {
  Str name;
  int rank; /* patterns of blocks before predicates of elements, narrow ones first */
  ValueId value;
} Leaf;
typedef VEC(Leaf) WeightLeaves;

static int64_t head_number(const Scene *scene, const Dims *heads, const BlockHead *at) {
  int64_t h = 0;
  for (int i = 0; i < heads->n; i++) {
    int64_t here = 0;
    for (int k = 0; k < scene->heads; k++)
      if (at[k].dim == heads->at[i]) here = at[k].at;
    h = h * size_of(scene->e->sizes, heads->at[i]) + here;
  }
  return h;
}

static Str leaf_name(const Mask *mask) {
  static const char *const names[] = {
      [MASK_ALL] = "all", [MASK_CAUSAL] = "causal", [MASK_SLIDING] = "sliding"};
  return mask->kind == MASK_PATTERN ? mask->name : names[mask->kind];
}

/* The parts that speak for a head, in the order in which they are written. */
static void add_leaves(Scene *scene, const Mask *mask, const BlockGrid *outer, const BlockHead *at,
                       WeightLeaves *out) {
  BlockGrid grid = mask_grid(mask, outer);
  if (mask->items) {
    add_leaves(scene, mask->items[head_number(scene, &grid.heads, at) % mask->nitems], &grid, at,
               out);
    return;
  }
  for (int i = 0; mask_part(mask, i); i++) add_leaves(scene, mask_part(mask, i), &grid, at, out);
  if (mask->kind == MASK_BLOCKS || mask->kind == MASK_AND || mask->kind == MASK_OR) return;
  int rank = mask->kind == MASK_PATTERN ? 0 : mask->kind == MASK_SLIDING ? 1 : 2;
  Leaf leaf = {leaf_name(mask), rank, value_on(scene, mask, outer)};
  vec_push(scene->e->arena, *out, leaf);
}

static uint8_t part_number(Layout *layout, Arena *arena, Str name) {
  uint32_t i = 0;
  while (i < layout->parts.n && strcmp(layout->parts.at[i], name) != 0) i++;
  if (i == layout->parts.n) vec_push(arena, layout->parts, name);
  return (uint8_t)(i + 1);
}

/* Patterns before predicates: `& causal` cuts what patterns list, it lists nothing. */
static void paint(Scene *scene, Layout *layout, LayoutHead *head, const BlockHead *at) {
  WeightLeaves leaves = {0};
  int64_t n = head->map.rows * head->map.columns;
  head->part = ARENA_ARRAY(scene->e->arena, uint8_t, n);
  add_leaves(scene, scene->mask, &scene->grid, at, &leaves);
  for (uint32_t i = 0; i < 3 * leaves.n; i++) {
    const Leaf *leaf = &leaves.at[i % leaves.n];
    if (leaf->rank != (int)(i / leaves.n)) continue;
    Arena *arena = arena_new();
    BlockMap own = map_of(scene, arena, leaf->value, layout->figures.unit, at);
    for (int64_t b = 0; b < n; b++)
      if (head->map.state[b] != BLOCK_ABSENT && !head->part[b] && own.state[b] != BLOCK_ABSENT)
        head->part[b] = part_number(layout, scene->e->arena, leaf->name);
    arena_free(arena);
  }
}

static bool same_blocks(const LayoutHead *a, const LayoutHead *b) {
  size_t n = (size_t)(a->map.rows * a->map.columns);
  return !memcmp(a->map.state, b->map.state, n) && !memcmp(a->part, b->part, n);
}

static Str head_name(const Scene *scene, const BlockHead *at) {
  const char *text = "";
  for (int i = 0; i < scene->heads; i++)
    text = arena_list(scene->e->arena, text, "%s %lld", at[i].dim, (long long)at[i].at);
  return text;
}

static void add_head(Scene *scene, Layout *layout, int64_t number) {
  LayoutHead head = {.like = number};
  BlockHead at[MASK_DIMS];
  head_at(scene, number, at);
  head.name = head_name(scene, at);
  head.map = map_of(scene, scene->e->arena, scene->value, layout->figures.unit, at);
  head.count =
      mask_count(fn_of(scene), scene->value, scene->query, scene->key, &head.map, scene->heads, at);
  paint(scene, layout, &head, at);
  for (int64_t i = 0; i < number && head.like == number; i++)
    if (layout->heads.at[i].like == i && same_blocks(&layout->heads.at[i], &head)) head.like = i;
  if (head.like != number) head.map.state = NULL, head.part = NULL;
  add_count(&layout->figures.sum, &head.count);
  vec_push(scene->e->arena, layout->heads, head);
}

/* NULL: its sizes are open or do not fit */
static const Layout *drawn(World *w, Sizes *sizes, const Decl *decl, const Mask *mask) {
  Scene scene = {0};
  int n = mask->layout.n;
  Layout *layout = ARENA_NEW(w->ctx->arena, Layout);
  if (n < 2 || !set_scene(&scene, w, sizes, mask, mask->layout.at[n - 2], mask->layout.at[n - 1]))
    return NULL;
  layout->figures = begin_figures(&scene, decl->name, decl->item->value->span);
  layout->text = span_text(w->ctx, decl->item->value->span);
  for (int64_t h = 0; h < layout->figures.heads; h++) add_head(&scene, layout, h);
  return layout;
}

static bool is_used(const Eval *e, Str name) {
  for (uint32_t i = 0; i < e->masks.n; i++)
    if (e->masks.at[i].name == name) return true;
  return false;
}

void draw_layouts(Eval *checked, LayoutDrawings *out) {
  World *w = checked->w;
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, SPACE_FN, &at));) {
    if (decl->item->kind != ITEM_LAYOUT) continue;
    vec_push(w->ctx->arena, out->names, decl->name);
    if (out->name ? strcmp(out->name, decl->name) != 0 : !is_used(checked, decl->name)) continue;
    Val v = eval_layout(checked, decl);
    bool part = v.kind == VAL_MASK && has_pattern(v.mask) && mask_unit(v.mask) <= 0;
    if (part && !out->name) continue;
    const Layout *layout = v.kind == VAL_MASK ? drawn(w, checked->sizes, decl, v.mask) : NULL;
    if (layout) vec_push(w->ctx->arena, out->drawn, layout);
  }
}

/* ---- a line of the module ---- */

static const char counted[] = "[%s %lld, %s %lld] x %lld in blocks of %lld: %lld full and %lld "
                              "partial of %.0f; %.0f of %.0f scores listed, %.0f admitted; %lld "
                              "queries see nothing";
static const char plain[] =
    "[%s %lld, %s %lld] x %lld: %.0f of %.0f scores admitted; %lld queries see nothing";

const char *layout_line(Arena *arena, const LayoutFigures *figures) {
  if (!figures->counted)
    return arena_printf(arena, plain, figures->query, (long long)figures->queries, figures->key,
                        (long long)figures->keys, (long long)figures->heads, figures->sum.admitted,
                        figures->scores, (long long)figures->sum.blind);
  return arena_printf(arena, counted, figures->query, (long long)figures->queries, figures->key,
                      (long long)figures->keys, (long long)figures->heads, (long long)figures->unit,
                      (long long)figures->sum.full, (long long)figures->sum.partial,
                      figures->blocks, figures->sum.listed, figures->scores, figures->sum.admitted,
                      (long long)figures->sum.blind);
}

bool layout_read(const char *line, LayoutFigures *out) {
  long long q, k, heads, unit, full, partial, blind;
  LayoutFigures figures = {0};
  if (sscanf(line,
             "[%*s %lld, %*s %lld] x %lld in blocks of %lld: %lld full and %lld partial of %lf; "
             "%lf of %lf scores listed, %lf admitted; %lld queries",
             &q, &k, &heads, &unit, &full, &partial, &figures.blocks, &figures.sum.listed,
             &figures.scores, &figures.sum.admitted, &blind) == 11)
    figures.counted = true, figures.unit = unit, figures.sum.full = full,
    figures.sum.partial = partial;
  else if (sscanf(line, "[%*s %lld, %*s %lld] x %lld: %lf of %lf scores admitted; %lld queries", &q,
                  &k, &heads, &figures.sum.admitted, &figures.scores, &blind) != 6)
    return false;
  figures.queries = q, figures.keys = k, figures.heads = heads, figures.sum.blind = blind;
  return *out = figures, true;
}
