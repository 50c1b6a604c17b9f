/* Cutting family row for GPUs. A row is held in registers where it fits: how much that is follows
   from the values that one level of reductions leaves for the next ones. The group that shares it
   is the smallest power of two of threads with room for it, so that a warp does short rows without
   any barrier. Longer rows are read again for every level: they are in the cache then. */
#include "gpu.h"
#include "ir/support/num.h"

enum { THREADS = 128, LOOSE = 48, TIGHT = 64, POINTS = 32, TURN = 4 };
enum { LONG = 1 << 14, FEW = 256 }; /* elements of a row, rows */
enum { WHOLE = 1024 };              /* threads of the largest CTA, with 64 registers each */
enum { WALKED = 24 };               /* of them for what is read and summed of a row */

/* ---- what is held ---- */

typedef struct HeldRow {
  const Fn *k;
  const GpuRows *w;
  int pass, kept; /* values that are first evaluated in one pass and read in a later one */
  int *first;     /* pass + 1 in which a value is first evaluated, -1: counted, 0: not yet */
} HeldRow;

static void visit(HeldRow *h, ValueId v) {
  const Op *o = value_def(h->k, v);
  if (!reduction_along(h->k, &h->w->r, v)) return;
  if (h->first[v]) {
    if (h->first[v] > 0 && h->first[v] <= h->pass) h->kept++, h->first[v] = -1;
    return;
  }
  h->first[v] = h->pass + 1;
  for (uint32_t i = 0; o && i < o->nin; i++) visit(h, o->in[i]);
}

/* Per point of a row: how many numbers stay in registers between the levels. */
static int64_t held_values(const Module *m, const Fn *k, const GpuRows *w) {
  HeldRow h = {.k = k, .w = w, .first = ARENA_ARRAY(m->arena, int, k->values.n + 1)};
  for (; h.pass < w->passes; h.pass++) {
    for (int i = 0; i < w->r.n; i++)
      if (w->level[w->root[i]] == h.pass) visit(&h, w->root[i]);
    for (uint32_t i = (uint32_t)w->r.n; h.pass == w->passes - 1 && i < w->nroots; i++)
      visit(&h, w->root[i]);
  }
  return h.kept ? h.kept : 1;
}

/* ---- the three ways ---- */

static int64_t threads_of(int64_t rows, int64_t group) {
  int64_t threads = group > 32 ? group : THREADS; /* a group is a warp at most, or the CTA */
  while (threads > group && threads > 32 && rows * group <= threads / 2) threads /= 2;
  return threads;
}

/* Numbers that a long row's walk keeps per point: what it reads, the sums of its busiest level. */
static int64_t walked_values(const Fn *k, const GpuRows *w) {
  int64_t n = 0, most = 0;
  for (uint32_t i = 0; i < k->args.n; i++) n += reduction_along(k, &w->r, k->args.at[i]);
  for (int pass = 0; pass < w->passes; pass++) {
    int64_t sums = 0;
    for (int i = 0; i < w->r.n; i++) sums += w->level[w->root[i]] == pass;
    if (sums > most) most = sums;
  }
  return n + most;
}

/* Threads for a long row: few rows at once stay in the cache. But what a thread keeps of one vector
   must leave most of its registers to the rest, as for the loss over padded words in 16 bits. */
static int64_t group_of(const Fn *k, const GpuRows *w, int64_t length, int lanes) {
  bool roomy = walked_values(k, w) * lanes <= WALKED;
  return length * lanes > LONG && roomy ? WHOLE : WHOLE / 2;
}

/* Vectors that a thread has under way while it reads a long row. */
static int64_t turn_of(const Fn *k, const GpuRows *w, int64_t group, int lanes) {
  bool whole = group == WHOLE;
  int64_t room = (whole ? WALKED : 4 * WALKED) / (walked_values(k, w) * lanes);
  int64_t n = min_i64((whole ? 8 : 32) / lanes, room);
  return n < 1 ? 1 : min_i64(n, TURN);
}

static void cut_along(Module *m, Fn *k, const GpuRows *w) {
  int lanes = gpu_lanes(m, k, &w->over, w->nroots, w->root);
  int64_t length = nest_count(&w->over) / lanes, held = held_values(m, k, w), group = 1;
  while (group < 32 && group < length) group *= 2;
  while (group < 512 && ceil_div(length, group) * lanes * held > LOOSE) group *= 2;
  int64_t each = ceil_div(length, group) * lanes;
  bool fits = each * held <= TIGHT && each <= POINTS;
  if (!fits) group = group_of(k, w, length, lanes);
  int64_t turn = fits ? ceil_div(length, group) : turn_of(k, w, group, lanes);
  int64_t tile[ROW_TILES] = {lanes, group, turn};
  int64_t threads = threads_of(nest_count(&w->kept), group);
  gpu_set(m, k, fits ? "held" : "turns", ROW_TILES, tile, 1, &threads);
}

/* Few rows are not worth vectors: more threads are. */
static void cut_side(Module *m, Fn *k, const GpuRows *w) {
  int lanes = gpu_lanes(m, k, &w->kept, w->nroots, w->root);
  while (lanes > 1 && nest_count(&w->kept) / lanes < 1 << 16) lanes /= 2;
  int64_t tile[ROW_TILES] = {lanes, 1, TURN}, threads = threads_of(nest_count(&w->kept) / lanes, 1);
  gpu_set(m, k, "rows", ROW_TILES, tile, 1, &threads);
}

/* A warp per row; the row in shared memory if there is room, else in the workspace. */
static void cut_scan(Module *m, Fn *k, const GpuRows *w) {
  int64_t rows = nest_count(&w->kept), bytes = 0, tile[ROW_TILES] = {1, 32, TURN};
  for (int i = 0; i < w->r.n; i++)
    if (op_family(k->ops.at[w->r.op[i]].code) == FAMILY_SCAN) bytes += gpu_scan_bytes(&w->r);
  int64_t room = m->target.shared, warps = THREADS / 32;
  int64_t threads = threads_of(rows, 32);
  while (warps > 1 && (warps * bytes > room || rows <= warps / 2)) warps /= 2;
  if (warps * bytes <= room) threads = 32 * warps;
  else attr_set_int(m, &k->attrs, ATTR_workspace, rows * bytes);
  gpu_set(m, k, "turns", ROW_TILES, tile, 1, &threads);
}

/* Few long rows that are summed once: other CTAs must help, as family column has them. */
static bool few_long_sums(const GpuRows *w) {
  return w->once && nest_count(&w->kept) <= FEW && nest_count(&w->over) > LONG;
}

void gpu_tune_row(Module *m, Fn *k) {
  GpuRows w = gpu_rows_of(m, k);
  bool side = w.over.n && !gpu_consecutive(k, &w.over, w.reference) &&
              gpu_consecutive(k, &w.kept, w.reference);
  if (few_long_sums(&w)) gpu_tune_column(m, k);
  else if (w.r.scans) cut_scan(m, k, &w);
  else if (side) cut_side(m, k, &w);
  else cut_along(m, k, &w);
}
