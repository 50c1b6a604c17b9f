/* What follows from the cut of a GPU's kernel, by family; see gpu_plan.h.

   Threads are powers of two of whole warps: exchanges within a warp name all of its lanes, and
   halves of a CTA meet. CTAs are as many as there is work for, no more: where they are exactly
   enough the emitters leave out the test for the end. */
#include "gpu_plan.h"
#include "ir/support/num.h"
#include "scatter_shape.h"

enum { MOST = 1 << 30, WARP = 32, THREADS_MOST = 1024, UNROLL_MOST = 8 };

typedef struct Cutting {
  const Module *m;
  const Fn *k;
  const char *variant;
  const int64_t *tile, *threads; /* threads: as many as the family has phases */
  int ntile, nthreads;
  GpuPlan p;
} Cutting;

static bool power_within(int64_t n, int64_t low, int64_t high) {
  return n >= low && n <= high && !(n & (n - 1));
}

static bool is_variant(const Cutting *x, const char *name) { return !strcmp(x->variant, name); }

/* Says what is wrong; true if nothing was so far, and `good`. */
static bool need(Cutting *x, bool good, const char *fault) {
  if (!good && !x->p.fault) x->p.fault = fault;
  return !x->p.fault;
}

static bool need_tile(Cutting *x, int n) {
  bool good = x->ntile == n;
  for (int i = 0; good && i < n; i++) good = x->tile[i] >= 1 && x->tile[i] < MOST;
  return need(x, good, "its tile has not the numbers of its family");
}

static bool need_threads(Cutting *x, int phases) {
  bool good = x->nthreads == phases;
  for (int i = 0; good && i < phases; i++)
    good = power_within(x->threads[i], WARP, THREADS_MOST), x->p.threads[i] = x->threads[i];
  x->p.phases = phases;
  return need(x, good, "its threads are no powers of two from 32 to 1024, one for each phase");
}

static bool need_lanes(Cutting *x, int64_t lanes, const Nest *n, uint32_t nroots,
                       const ValueId *root) {
  return need(x, gpu_lanes(x->m, x->k, n, nroots, root) % lanes == 0,
              "its buffers have no such vectors");
}

/* ---- elem ---- */

static void plan_elem(Cutting *x) {
  Axes all = {0};
  for (uint32_t r = 0; r < x->k->results.n; r++)
    axes_add(&all, value_type(x->k, x->k->results.at[r]));
  Nest n = nest_of(x->k, &all, nest_reference(x->k, &all));
  if (!need_tile(x, POINT_TILES) || !need_threads(x, 1)) return;
  int64_t lanes = x->tile[POINT_LANES], vectors = x->tile[POINT_VECTORS];
  if (!need_lanes(x, lanes, &n, x->k->results.n, x->k->results.at)) return;
  need(x, vectors <= UNROLL_MOST, "a thread has too many vectors");
  x->p.chunks[0] = ceil_div(nest_count(&n) / lanes, x->threads[0] * vectors);
}

/* ---- rows and columns ---- */

GpuRows gpu_rows_of(const Module *m, const Fn *k) {
  GpuRows w = {.r = reductions_of(k), .level = reduction_levels(m->arena, k), .once = true};
  w.passes = reduction_passes(k, &w.r, w.level);
  w.reference = nest_reference(k, &w.r.over);
  w.kept = nest_of(k, &w.r.kept, w.reference), w.over = nest_of(k, &w.r.over, w.reference);
  for (int i = 0; i < w.r.n; i++) w.root[w.nroots++] = k->ops.at[w.r.op[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) w.root[w.nroots++] = k->results.at[i];
  w.once = w.passes <= 1 && !w.r.scans;
  for (uint32_t i = (uint32_t)w.r.n; i < w.nroots; i++)
    w.once &= !reduction_along(k, &w.r, w.root[i]) || !w.level[w.root[i]];
  return w;
}

/* Rows of scans lie in shared memory, or in the workspace if there is one. */
static void plan_scan(Cutting *x, const GpuRows *w, int64_t rows) {
  int64_t bytes = 0;
  for (int i = 0; i < w->r.n; i++)
    if (op_family(x->k->ops.at[w->r.op[i]].code) == FAMILY_SCAN) bytes += gpu_scan_bytes(&w->r);
  if (!need(x, is_variant(x, "turns") && x->tile[ROW_GROUP] == WARP && x->tile[ROW_LANES] == 1,
            "a scan is made by a warp, element by element"))
    return;
  if (attr_get(&x->k->attrs, ATTR_workspace)) x->p.workspace = rows * bytes;
  else x->p.shared[0] = x->threads[0] / WARP * bytes;
}

static void plan_row(Cutting *x, const GpuRows *w) {
  if (!need_tile(x, ROW_TILES) || !need_threads(x, 1)) return;
  bool side = is_variant(x, "rows");
  int64_t lanes = x->tile[ROW_LANES], group = x->tile[ROW_GROUP], each = x->tile[ROW_VECTORS];
  if (!need_lanes(x, lanes, side ? &w->kept : &w->over, w->nroots, w->root)) return;
  int64_t rows = nest_count(&w->kept) / (side ? lanes : 1),
          length = nest_count(&w->over) / (side ? 1 : lanes), threads = x->threads[0];
  need(x, power_within(group, 1, threads) && (group <= WARP || group == threads),
       "the threads of a row are no power of two of a warp, nor all of the CTA");
  need(x, !side || group == 1, "rows that are contiguous have a thread each");
  need(x, each <= GPU_HELD_MOST, "a thread has too many vectors");
  if (!need(x, !is_variant(x, "held") || each * group >= length,
            "its threads do not hold the whole row"))
    return;
  x->p.chunks[0] = ceil_div(rows, threads / group);
  if (w->r.scans) plan_scan(x, w, rows);
  else x->p.shared[0] = group > WARP ? w->r.n * (int64_t)GROUP_EXCHANGE : 0;
}

static int64_t state_parts(const Fn *k, const GpuRows *w, int64_t *bytes) {
  int64_t parts = 0;
  for (int i = 0; i < w->r.n; i++) {
    const Op *o = &k->ops.at[w->r.op[i]];
    int own = elem_bytes(value_type(k, o->in[0])->elem);
    *bytes += own < 4 ? 4 : own, parts++;
    if (o->code == OP_argmax) *bytes += 4, parts++;
  }
  return parts;
}

/* What the threads of a column have meets in shared memory. */
static int64_t columns_shared(Cutting *x, const GpuRows *w) {
  int64_t lanes = x->tile[COLUMN_LANES], threads = x->threads[0], bytes = 0;
  if (is_variant(x, "along")) return threads > WARP ? w->r.n * (int64_t)GROUP_EXCHANGE : 0;
  if (threads == x->tile[COLUMN_ACROSS]) return 0;
  need(x, state_parts(x->k, w, &bytes) <= MAX_CARRIED, "it sums too much at once");
  return bytes * lanes * threads;
}

static bool column_tile_fits(Cutting *x, const GpuRows *w, int64_t length) {
  const int64_t *t = x->tile;
  int64_t splits = t[COLUMN_SPLITS], last = t[COLUMN_JOINERS];
  need(x, w->once, "its rows are not summed once");
  need(x,
       power_within(t[COLUMN_ACROSS], 1, x->threads[0]) &&
           (t[COLUMN_ACROSS] == 1 || !is_variant(x, "along")),
       "its columns do not divide its threads");
  need(x, t[COLUMN_TURNS] <= UNROLL_MOST, "a thread has too many elements at once");
  need(x, splits == 1 || (splits - 1) * ceil_div(length, splits) < length, "a split is empty");
  return need(x, power_within(last, 1, WARP) && last <= splits, "a joiner has no split");
}

static void plan_column(Cutting *x, const GpuRows *w) {
  if (!need_tile(x, COLUMN_TILES)) return;
  const int64_t *t = x->tile;
  int64_t splits = t[COLUMN_SPLITS], lanes = t[COLUMN_LANES], all = nest_count(&w->kept);
  bool along = is_variant(x, "along");
  if (!need_threads(x, splits > 1 ? 2 : 1)) return;
  if (!need_lanes(x, lanes, along ? &w->over : &w->kept, w->nroots, w->root)) return;
  if (!column_tile_fits(x, w, nest_count(&w->over) / (along ? lanes : 1))) return;
  x->p.chunks[0] = ceil_div(all / (along ? 1 : lanes), t[COLUMN_ACROSS]) * splits;
  x->p.shared[0] = columns_shared(x, w);
  if (splits == 1) return;
  x->p.chunks[1] = ceil_div(all * t[COLUMN_JOINERS], x->threads[1]);
  x->p.workspace = reduction_workspace(x->k, &w->r, splits);
}

static void plan_rows(Cutting *x) {
  GpuRows w = gpu_rows_of(x->m, x->k);
  if (is_variant(x, "columns") || is_variant(x, "along")) plan_column(x, &w);
  else plan_row(x, &w);
}

static void plan_columns(Cutting *x) {
  GpuRows w = gpu_rows_of(x->m, x->k);
  plan_column(x, &w);
}

/* ---- scatter ---- */

bool gpu_scatter_searches(const Fn *k) {
  Scatter s = scatter_of(k, 1);
  const Type *t = value_type(k, s.index);
  const Group *g = &k->ops.at[s.op].group[0];
  for (int a = 0; a < t->rank; a++) {
    bool from = false;
    for (int i = 0; i < g->nfrom; i++) from |= g->from[i] == t->axis[a].dim;
    if (!from) return false;
  }
  return true;
}

static void plan_scatter(Cutting *x) {
  Scatter s = scatter_of(x->k, 1);
  ValueId root[] = {s.x, s.out};
  bool search = is_variant(x, "search");
  if (!need_tile(x, SCATTER_TILES) || !need_threads(x, 2)) return;
  int64_t lanes = x->tile[SCATTER_LANES], vectors = x->tile[SCATTER_VECTORS];
  int64_t fill = x->tile[SCATTER_FILL];
  need(x, !search || gpu_scatter_searches(x->k), "its index is not the same for a warp");
  need(x, search || (lanes == 1 && vectors == 1), "a thread has one column");
  need(x, vectors <= GPU_COLUMNS_MOST, "a thread has too many columns");
  if (!need_lanes(x, lanes, &s.kept, 2, root) || !need_lanes(x, fill, &s.result, 1, &s.out)) return;
  int64_t columns = nest_count(&s.kept) / lanes;
  int64_t warps = nest_count(&s.from) * ceil_div(columns, WARP * vectors);
  x->p.chunks[0] = ceil_div(nest_count(&s.result) / fill, x->threads[0]);
  x->p.chunks[1] =
      search ? ceil_div(warps, x->threads[1] / WARP) : ceil_div(columns, x->threads[1]);
}

/* ---- dots, attention ---- */

static void plan_contract(Cutting *x) {
  bool half = elem_is_half(product_of(x->k, 8).compute);
  GemmMath math = half ? GEMM_MMA : is_variant(x, "tf32") ? GEMM_TF32 : GEMM_FMA;
  GpuProduct d = gpu_product_of(x->m, x->k, math, INT64_MAX);
  if (!need(x, is_variant(x, gemm_variant[math]), "its variant multiplies other types") ||
      !need_tile(x, GEMM_COUNT))
    return;
  if (!need(x, gpu_product_fits(&d, x->tile), "no CTA can have such a tile")) return;
  GemmPlan g = gpu_product_plan(&d, x->tile);
  for (int i = GEMM_COPY_A; i < GEMM_COUNT; i++)
    need(x, x->tile[i] == g.tile[i], "its operands are not copied, or results not stored, so");
  x->p.phases = g.phases, x->p.workspace = g.workspace;
  for (int i = 0; i < g.phases; i++)
    x->p.chunks[i] = g.chunks[i], x->p.threads[i] = g.threads[i], x->p.shared[i] = g.shared[i];
}

static void plan_attention(Cutting *x) {
  if (!need_tile(x, FLASH_GPU_COUNT)) return;
  if (!need(x, gpu_flash_fits(x->k, x->tile, INT64_MAX), "no CTA can have such a tile")) return;
  Flash f = flash_of(x->k);
  FlashGpuPlan p = gpu_flash_plan(x->k, &f, x->tile);
  need(x, x->tile[FLASH_GPU_SLICES] == p.tile[FLASH_GPU_SLICES], "its slices are of another width");
  need(x, x->tile[FLASH_GPU_COPY] == p.tile[FLASH_GPU_COPY], "its operands are not copied so");
  need(x, is_variant(x, p.mma ? "mma" : "fma"), "its variant multiplies other types");
  x->p.phases = p.phases, x->p.workspace = p.workspace;
  for (int i = 0; i < p.phases; i++)
    x->p.chunks[i] = p.chunks[i], x->p.threads[i] = p.threads[i], x->p.shared[i] = p.shared[i];
}

static const struct {
  const char *family, *variants; /* with spaces around each */
  void (*plan)(Cutting *x);
} families[] = {
    {"elem", " vector scalar ", plan_elem},
    {"row", " held turns rows columns along ", plan_rows},
    {"column", " columns along ", plan_columns},
    {"scatter", " search owner ", plan_scatter},
    {"contract", " fma tf32 mma ", plan_contract},
    {"attention", " fma mma ", plan_attention},
    {"attention_grad", " fma mma ", plan_attention},
};

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; n && (at = strstr(at, word)); at++)
    if (at[-1] == ' ' && at[n] == ' ') return true;
  return false;
}

GpuPlan gpu_plan(const Module *m, const Fn *k) {
  const Attr *tile = attr_get(&k->attrs, ATTR_tile), *threads = attr_get(&k->attrs, ATTR_threads);
  Str family = attr_str(&k->attrs, ATTR_family, "");
  Cutting x = {.m = m, .k = k, .variant = attr_str(&k->attrs, ATTR_variant, "")};
  if (tile) x.tile = tile->list, x.ntile = (int)tile->i;
  if (threads) x.threads = threads->list, x.nthreads = (int)threads->i;
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    if (strcmp(families[i].family, family)) continue;
    if (need(&x, has_word(families[i].variants, x.variant), "its family has no such variant"))
      families[i].plan(&x);
    return x.p;
  }
  need(&x, false, "its family has no kernels for GPUs");
  return x.p;
}
