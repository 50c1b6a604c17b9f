/* Cutting family row for GPUs.

   A row is held in registers if it fits: its size follows from the values that one level of
   reductions leaves for the next ones. The group of threads that shares a row is the smallest
   power of two with room for it, so that a warp does short rows without any barrier.

   Longer rows of a softmax are walked once for their largest element and their sum (ir/kernel/
   online_rows.h), and stay in shared memory for their results if it has room: memory is then read
   once. Two CTAs on a multiprocessor write one row while they read the next one; a row that leaves
   no room for a second one has the threads of both. Other rows are read again for every level: they
   are in the cache then. */
#include "gpu.h"
#include "ir/kernel/gpu_lines.h"
#include "ir/kernel/online_rows.h"
#include "ir/kernel/row_turned.h"
#include "ir/support/num.h"

enum { THREADS = 128, LOOSE = 48, TIGHT = 64, POINTS = 32, TURN = 4 };
enum { LONG = 1 << 14, FEW = 256 }; /* elements of a row, rows */
enum { WHOLE = 1024 };              /* threads of the largest CTA, with 64 registers each */
enum { NOW = 16 };                  /* elements of operands that a thread reads at once, */
enum { ROOM = 40 };                 /* registers for these and for sums, of 64 */
enum { WALKED = 24 };               /* of them for values read and summed of a row; */
enum { HALF_WALKED = 4 * WALKED };  /* .. in a CTA of half as many threads */
enum { SUMMED = 160, OTHERS = 52 }; /* registers for the row and sums of columns; all others */

/* ---- values held in registers ---- */

typedef struct HeldRow {
  const Fn *k;
  const GpuRows *w;
  int pass, kept; /* values that are first evaluated in one pass and read in a later one */
  int *first;     /* pass + 1 in which a value is first evaluated, -1: counted, 0: not yet */
} HeldRow;

static void visit(HeldRow *row, ValueId v) {
  const Op *o = value_def(row->k, v);
  if (!reduction_along(row->k, &row->w->r, v)) return;
  if (row->first[v]) {
    if (row->first[v] > 0 && row->first[v] <= row->pass) row->kept++, row->first[v] = -1;
    return;
  }
  row->first[v] = row->pass + 1;
  for (uint32_t i = 0; o && i < o->nin; i++) visit(row, o->in[i]);
}

/* Results per point of a row: all points of a thread are evaluated before one is stored. */
static int64_t stored_values(const Fn *k, const GpuRows *rows) {
  int64_t n = 0;
  for (uint32_t i = (uint32_t)(rows->r.n + rows->r.ncolumns); i < rows->nroots; i++)
    n += reduction_along(k, &rows->r, rows->root[i]);
  return n;
}

/* Per point of a row: how many numbers stay in registers between the levels, or until the end. */
static int64_t held_values(const Module *m, const Fn *k, const GpuRows *rows) {
  HeldRow row = {.k = k, .w = rows, .first = ARENA_ARRAY(m->arena, int, k->values.n + 1)};
  for (; row.pass < rows->passes; row.pass++) {
    for (int i = 0; i < rows->r.n; i++)
      if (rows->level[rows->root[i]] == row.pass) visit(&row, rows->root[i]);
    for (uint32_t i = (uint32_t)rows->r.n; row.pass == rows->passes - 1 && i < rows->nroots; i++)
      visit(&row, rows->root[i]);
  }
  return max_i64(max_i64(row.kept, stored_values(k, rows)), 1);
}

/* ---- the three ways ---- */

static int64_t threads_of(int64_t rows, int64_t group) {
  int64_t threads = group > 32 ? group : THREADS; /* a group is a warp at most, or the CTA */
  while (threads > group && threads > 32 && rows * group <= threads / 2) threads /= 2;
  return threads;
}

/* Numbers that a long row's walk keeps per point: its operands, the sums of its busiest level or
   the results with what they are made from. */
static int64_t walked_values(const Fn *k, const GpuRows *rows) {
  int64_t n = 0, most = 3 * stored_values(k, rows) / 2;
  for (uint32_t i = 0; i < k->args.n; i++) n += reduction_along(k, &rows->r, k->args.at[i]);
  for (int pass = 0; pass < rows->passes; pass++) {
    int64_t sums = 0;
    for (int i = 0; i < rows->r.n; i++) sums += rows->level[rows->root[i]] == pass;
    if (sums > most) most = sums;
  }
  return n + most;
}

/* Threads for a long row: few rows at once stay in the cache. But the values that a thread keeps
   of one vector must leave most of its registers to the rest, as for the loss over padded words in
   16 bits. */
static int64_t group_of(const Fn *k, const GpuRows *rows, int64_t length, int lanes) {
  bool roomy = walked_values(k, rows) * lanes <= WALKED;
  return length * lanes > LONG && roomy ? WHOLE : WHOLE / 2;
}

/* Lanes of a vector whose values a thread of the smaller group has registers for: a kernel of many
   updates has many values. */
static int walked_lanes(const Fn *k, const GpuRows *rows, int lanes) {
  while (lanes > 1 && walked_values(k, rows) * lanes > HALF_WALKED) lanes /= 2;
  return lanes;
}

/* Vectors that a thread has under way while it reads a long row. */
static int64_t turn_of(const Fn *k, const GpuRows *rows, int64_t group, int lanes) {
  bool whole = group == WHOLE;
  int64_t room = (whole ? WALKED : HALF_WALKED) / (walked_values(k, rows) * lanes);
  int64_t n = min_i64((whole ? 8 : 32) / lanes, room);
  return n < 1 ? 1 : min_i64(n, TURN);
}

/* Numbers that a thread has of a walk for all levels, per lane: its sums, its operands and what is
   made of them. */
static int64_t online_values(const Fn *k, const GpuRows *rows, const OnlineRows *online,
                             int64_t operands) {
  int64_t sums = online->nsums;
  for (int i = 0; i < rows->r.n; i++)
    if (!rows_online_has(online, i)) sums += 1 + (k->ops.at[rows->r.op[i]].code == OP_argmax);
  return sums + ceil_div(3 * operands, 2);
}

/* A walk for all levels; false: the kernel has none. */
static bool cut_online(Module *m, Fn *k, const GpuRows *rows, int lanes) {
  OnlineRows online;
  if (!rows_online(m->arena, k, &rows->r, &online)) return false;
  int64_t operands = 0, length = nest_count(&rows->over), threads = WHOLE / 2;
  for (uint32_t i = 0; i < k->args.n; i++)
    operands += reduction_along(k, &rows->r, k->args.at[i]) != 0;
  int64_t row = rows_online_bytes(k, &online, length);
  int64_t bytes = round_up(rows->r.n * (int64_t)GROUP_EXCHANGE + row, 16);
  bool kept = row && bytes <= m->target.shared;
  int64_t turn = NOW / (lanes * (operands ? operands : 1));
  turn = turn < 1 ? 1 : min_i64(turn, TURN);
  if (kept && gpu_resident(m, bytes, threads, 64) < 2 &&
      lanes * online_values(k, rows, &online, turn * operands) <= ROOM)
    threads = WHOLE;
  int64_t tile[ROW_TILES] = {lanes, threads, turn};
  gpu_set(m, k, kept ? "kept" : "online", ROW_TILES, tile, 1, &threads);
  return true;
}

static void cut_along(Module *m, Fn *k, const GpuRows *rows) {
  int lanes = gpu_lanes(m, k, &rows->over, rows->nroots, rows->root);
  int64_t length = nest_count(&rows->over) / lanes, held = held_values(m, k, rows), group = 1;
  while (group < 32 && group < length) group *= 2;
  while (group < 512 && ceil_div(length, group) * lanes * held > LOOSE) group *= 2;
  int64_t each = ceil_div(length, group) * lanes;
  bool fits = each * held <= TIGHT && each <= POINTS;
  if (!fits && cut_online(m, k, rows, lanes)) return;
  if (!fits) {
    lanes = walked_lanes(k, rows, lanes), length = nest_count(&rows->over) / lanes;
    group = group_of(k, rows, length, lanes);
  }
  int64_t turn = fits ? ceil_div(length, group) : turn_of(k, rows, group, lanes);
  int64_t tile[ROW_TILES] = {lanes, group, turn};
  int64_t threads = threads_of(nest_count(&rows->kept), group);
  gpu_set(m, k, fits ? "held" : "turns", ROW_TILES, tile, 1, &threads);
}

/* Operands that are the same for all rows stay in registers as well. */
static int64_t kept_operands(const Fn *k, const GpuRows *rows) {
  int64_t n = 0;
  for (uint32_t i = 0; i < k->args.n; i++) {
    const Type *t = value_type(k, k->args.at[i]);
    bool varies = false;
    for (int j = 0; j < t->rank; j++) varies |= axes_have(&rows->r.kept, t->axis[j].dim);
    n += !varies && reduction_along(k, &rows->r, k->args.at[i]);
  }
  return n;
}

/* A group that fills whole warps holds the row and its sums, unless a row is too long or scanned.
   CTAs take rows in turn: as many as are resident at once, each with a line of sums. */
static void cut_sums(Module *m, Fn *k, const GpuRows *rows) {
  int64_t whole = nest_count(&rows->over), all = nest_count(&rows->kept), group = 32;
  int64_t values = held_values(m, k, rows) + rows->r.ncolumns + kept_operands(k, rows);
  int lanes = rows->r.scans ? 1 : gpu_lanes(m, k, &rows->over, rows->nroots, rows->root);
  while (lanes > 1 && whole / lanes < 32) lanes /= 2;
  int64_t length = whole / lanes, most = lanes > 1 ? SUMMED : SUMMED / 2; /* and addresses */
  while (group < 512 && ceil_div(length, group) * lanes * values > most) group *= 2;
  int64_t vectors = ceil_div(length, group), registers = vectors * lanes * values;
  bool held = registers <= SUMMED && !rows->r.scans;
  if (!held) group = rows->r.scans ? 32 : 512, vectors = 1, registers = SUMMED;
  int64_t threads = held ? threads_of(all, group) : group;
  int64_t resident = gpu_resident(m, 0, threads, registers + OTHERS);
  int64_t groups = resident * m->target.multiprocessors * (threads / group);
  int64_t tile[] = {lanes, group, vectors, ceil_div(all, groups)};
  int64_t both[] = {threads, LINES_THREADS};
  gpu_set(m, k, held ? "held" : "turns", ROW_TILES + 1, tile, 2, both);
}

/* Few rows are not worth vectors: more threads are. */
static void cut_side(Module *m, Fn *k, const GpuRows *rows) {
  int lanes = gpu_lanes(m, k, &rows->kept, rows->nroots, rows->root);
  while (lanes > 1 && nest_count(&rows->kept) / lanes < 1 << 16) lanes /= 2;
  int64_t tile[ROW_TILES] = {lanes, 1, TURN},
          threads = threads_of(nest_count(&rows->kept) / lanes, 1);
  gpu_set(m, k, "rows", ROW_TILES, tile, 1, &threads);
}

/* A warp per row; the row in shared memory if there is room, else in the workspace. */
static void cut_scan(Module *m, Fn *k, const GpuRows *gpu_rows) {
  int64_t rows = nest_count(&gpu_rows->kept), bytes = gpu_scan_row(k, &gpu_rows->r);
  int64_t tile[ROW_TILES] = {1, 32, TURN};
  int64_t room = m->target.shared, warps = THREADS / 32;
  int64_t threads = threads_of(rows, 32);
  while (warps > 1 && (warps * bytes > room || rows <= warps / 2)) warps /= 2;
  if (warps * bytes <= room) threads = 32 * warps;
  else attr_set_int(m, &k->attrs, ATTR_workspace, rows * bytes);
  gpu_set(m, k, "turns", ROW_TILES, tile, 1, &threads);
}

static void cut_turned(Module *m, Fn *k) {
  int64_t tile[ROW_TILES] = {TURNED_LANES, TURNED_THREADS, TURNED_DEPTH}, threads = TURNED_THREADS;
  gpu_set(m, k, "turned", ROW_TILES, tile, 1, &threads);
}

/* Few long rows that are summed once: other CTAs must help, as family column has them. */
static bool few_long_sums(const GpuRows *rows) {
  return rows->once && nest_count(&rows->kept) <= FEW && nest_count(&rows->over) > LONG;
}

void gpu_tune_row(Module *m, Fn *k) {
  ReducedSpace space = row_space(k);
  GpuRows rows = gpu_rows_of(m, k, &space);
  bool side = rows.over.n && !gpu_consecutive(k, &rows.over, rows.reference) &&
              gpu_consecutive(k, &rows.kept, rows.reference);
  TurnedRows turned;
  if (row_turned(m, k, &turned) || codes_other(k)) cut_turned(m, k);
  else if (few_long_sums(&rows)) gpu_tune_column(m, k);
  else if (rows.r.ncolumns) cut_sums(m, k, &rows);
  else if (rows.r.scans) cut_scan(m, k, &rows);
  else if (side) cut_side(m, k, &rows);
  else cut_along(m, k, &rows);
}
