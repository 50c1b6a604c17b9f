/* Cutting family row for GPUs. A row is held in registers where it fits: how much that is follows
   from the values that one level of reductions leaves for the next ones. The group that shares it
   is the smallest power of two of threads with room for it, so that a warp does short rows without
   any barrier. Longer rows are read again for every level: they are in the cache then. */
#include "gpu.h"
#include "ir/gpu_tile.h"

enum { THREADS = 128, LOOSE = 48, TIGHT = 64, POINTS = 32, TURN = 4 };
enum { LONG = 1 << 14, FEW = 256 }; /* elements of a row, rows */
enum { WHOLE = 1024 };              /* threads of the largest CTA, with 64 registers each */

typedef struct Row {
  Module *m;
  const Fn *k;
  Reductions r;
  Nest kept, over;
  ValueId reference, root[2 * MAX_RESULTS];
  uint32_t nroots;
  const int *level;
  int passes;
} Row;

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

static Row row_of(Module *m, const Fn *k) {
  Row w = {.m = m, .k = k, .r = reductions_of(k), .level = reduction_levels(m->arena, k)};
  w.passes = reduction_passes(k, &w.r, w.level);
  w.reference = nest_reference(k, &w.r.over);
  w.kept = nest_of(k, &w.r.kept, w.reference), w.over = nest_of(k, &w.r.over, w.reference);
  for (int i = 0; i < w.r.n; i++) w.root[w.nroots++] = k->ops.at[w.r.op[i]].in[0];
  for (uint32_t i = 0; i < k->results.n; i++) w.root[w.nroots++] = k->results.at[i];
  return w;
}

/* ---- what is held ---- */

typedef struct Held {
  const Row *w;
  int pass, kept; /* values that are first evaluated in one pass and read in a later one */
  int *first;     /* pass + 1 in which a value is first evaluated, -1: counted, 0: not yet */
} Held;

static void visit(Held *h, ValueId v) {
  const Op *o = value_def(h->w->k, v);
  if (!reduction_along(h->w->k, &h->w->r, v)) return;
  if (h->first[v]) {
    if (h->first[v] > 0 && h->first[v] <= h->pass) h->kept++, h->first[v] = -1;
    return;
  }
  h->first[v] = h->pass + 1;
  for (uint32_t i = 0; o && i < o->nin; i++) visit(h, o->in[i]);
}

/* Per point of a row: how many numbers stay in registers between the levels. */
static int64_t held_values(const Row *w) {
  Held h = {.w = w, .first = ARENA_ARRAY(w->m->arena, int, w->k->values.n + 1)};
  for (; h.pass < w->passes; h.pass++) {
    for (int i = 0; i < w->r.n; i++)
      if (w->level[w->root[i]] == h.pass) visit(&h, w->root[i]);
    for (uint32_t i = (uint32_t)w->r.n; h.pass == w->passes - 1 && i < w->nroots; i++)
      visit(&h, w->root[i]);
  }
  return h.kept ? h.kept : 1;
}

/* ---- the three ways ---- */

static GpuPhases phase_of(int64_t rows, int64_t group, int64_t shared) {
  int64_t threads = group > 32 ? group : THREADS,
          per_cta; /* a group is a warp at most, or the CTA */
  while (threads > group && threads > 32 && rows * group <= threads / 2) threads /= 2;
  per_cta = threads / group;
  return (GpuPhases){1, {ceil_div(rows, per_cta)}, {threads}, {shared}};
}

/* Vectors that a thread has under way while it reads a long row. */
static int64_t turn_of(int64_t group, int lanes) {
  int64_t n = (group == WHOLE ? 8 : 32) / lanes;
  return n < TURN ? n : TURN;
}

static void cut_along(Fn *k, const Row *w) {
  int lanes = gpu_lanes(w->m, k, &w->over, w->nroots, w->root);
  int64_t length = nest_count(&w->over) / lanes, held = held_values(w), group = 1;
  while (group < 32 && group < length) group *= 2;
  while (group < 512 && ceil_div(length, group) * lanes * held > LOOSE) group *= 2;
  int64_t each = ceil_div(length, group) * lanes;
  bool fits = each * held <= TIGHT && each <= POINTS;
  if (!fits) group = length * lanes > LONG ? WHOLE : 512; /* few rows at once stay in the cache */
  int64_t tile[ROW_TILES] = {lanes, group, fits ? ceil_div(length, group) : turn_of(group, lanes)};
  GpuPhases p =
      phase_of(nest_count(&w->kept), group, group > 32 ? w->r.n * (int64_t)GROUP_EXCHANGE : 0);
  gpu_set(w->m, k, fits ? "held" : "turns", ROW_TILES, tile, &p);
}

/* Few rows are not worth vectors: more threads are. */
static void cut_side(Fn *k, const Row *w) {
  int lanes = gpu_lanes(w->m, k, &w->kept, w->nroots, w->root);
  while (lanes > 1 && nest_count(&w->kept) / lanes < 1 << 16) lanes /= 2;
  int64_t tile[ROW_TILES] = {lanes, 1, TURN};
  GpuPhases p = phase_of(nest_count(&w->kept) / lanes, 1, 0);
  gpu_set(w->m, k, "rows", ROW_TILES, tile, &p);
}

/* A warp per row; the row in shared memory if there is room, else in the workspace. */
static void cut_scan(Fn *k, const Row *w) {
  int64_t rows = nest_count(&w->kept), bytes = 0, tile[ROW_TILES] = {1, 32, TURN};
  for (int i = 0; i < w->r.n; i++)
    if (op_family(k->ops.at[w->r.op[i]].code) == FAMILY_SCAN) bytes += gpu_scan_bytes(&w->r);
  int64_t room = (int64_t)module_number(w->m, "target.shared", 48 << 10), warps = THREADS / 32;
  GpuPhases p = phase_of(rows, 32, 0);
  while (warps > 1 && (warps * bytes > room || rows <= warps / 2)) warps /= 2;
  bool shared = warps * bytes <= room;
  if (shared) p = (GpuPhases){1, {ceil_div(rows, warps)}, {32 * warps}, {warps * bytes}};
  else attr_set_int(w->m, &k->attrs, ATTR_workspace, rows * bytes);
  gpu_set(w->m, k, "turns", ROW_TILES, tile, &p);
}

/* Few long rows that are summed once: other CTAs must help, as family column has them. */
static bool few_long_sums(const Row *w) {
  if (w->passes > 1 || w->r.scans || nest_count(&w->kept) > FEW) return false;
  for (uint32_t i = (uint32_t)w->r.n; i < w->nroots; i++)
    if (reduction_along(w->k, &w->r, w->root[i]) && w->level[w->root[i]]) return false;
  return nest_count(&w->over) > LONG;
}

void gpu_tune_row(Module *m, Fn *k) {
  Row w = row_of(m, k);
  bool side = w.over.n && !gpu_consecutive(k, &w.over, w.reference) &&
              gpu_consecutive(k, &w.kept, w.reference);
  if (few_long_sums(&w)) gpu_tune_column(m, k);
  else if (w.r.scans) cut_scan(k, &w);
  else if (side) cut_side(k, &w);
  else cut_along(k, &w);
}
