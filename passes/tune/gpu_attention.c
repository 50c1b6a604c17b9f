/* How attention is cut on a GPU: the largest blocks of scores whose tiles fit the shared memory of
   a CTA and whose sums fit the registers of a thread, and no more rows than there are.

   Fewer columns are taken if only then a multiprocessor has room for eight warps: at each block a
   CTA's warps wait for each other, and those of another CTA continue. If heads are wide and more
   shared memory is available, more rows share the columns that are loaded. If a mask lists tiles
   (ir/kernel/flash_list.h), the size with the least listed work is taken: small tiles follow a
   pattern of small blocks, but do less at a time. Warpgroups (wgmma) take over where their tiles of
   128 rows are filled. ir/kernel/flash_gpu.h explains the numbers. */
#include "gpu.h"
#include "ir/kernel/flash_list.h"
#include "ir/support/num.h"
#include "tune.h"

enum { WIDE = 128 }; /* heads for which larger blocks have a point */
enum { ENOUGH_WARPS = 8 };

typedef int64_t AttentionShape[2];
static const AttentionShape shapes[] = {{64, 64}, {64, 32}, {32, 32}, {32, 16}, {16, 16}};
static const AttentionShape larger[] = {{128, 64}, {128, 32}, {64, 64}, {64, 32}, {32, 32}};

bool gpu_attention_fits(const Module *m, const Fn *k, const Cut *cut) {
  return gpu_flash_fits(m, k, cut->at, m->target.shared);
}

/* Counts the listed blocks, once the tiles are known. */
static void count_lists(Module *m, const Fn *k, const Flash *flash, const FlashGpuPlan *plan) {
  bool too_many = false;
  for (int i = 0; i < plan->phases && !too_many; i++) {
    Arena *arena = arena_new();
    too_many = flash_lists(arena, m, k, flash, plan, plan->phase[i]).too_many;
    arena_free(arena);
  }
  listed_check(m, k, flash, too_many, "ranges of tiles");
}

void gpu_attention_apply(Module *m, Fn *k, const Cut *cut) {
  must(cut->at[FLASH_GPU_ROWS] > 0 && cut->at[FLASH_GPU_COLUMNS] > 0,
       "kernel %s: a cut without a tile", k->name);
  Flash flash = flash_of(k);
  FlashGpuPlan plan = gpu_flash_plan(m, k, &flash, cut->at);
  gpu_set(m, k, flash_gpu_variant(&plan), FLASH_GPU_COUNT, plan.tile, 0, NULL);
  count_lists(m, k, &flash, &plan);
}

/* On a multiprocessor, in the phase over scores that has fewest. */
static int64_t warps_of(const Module *m, const Fn *k, const Flash *flash, const Cut *cut) {
  FlashGpuPlan plan = gpu_flash_plan(m, k, flash, cut->at);
  int64_t registers = gpu_flash_registers(flash, &plan) + FLASH_OTHERS, least = 0;
  for (int i = 0; i < plan.phases; i++) {
    if (!flash_gpu_scores(plan.phase[i])) continue;
    int64_t room =
        gpu_resident(m, plan.shared[i], plan.threads[i], registers < 255 ? registers : 255);
    int64_t each = ceil_div(plan.chunks[i], gpu_ctas(m, k));
    int64_t warps = (each < room ? each : room) * plan.threads[i] / 32;
    if (!least || warps < least) least = warps;
  }
  return least;
}

/* The first shape of the table that fits, or a shape with as many rows that is the first with the
   wanted number of warps; {0}: none fits. */
static Cut first_of(const Module *m, const Fn *k, const AttentionShape *table, size_t n,
                    int64_t limit, int64_t wanted) {
  Flash flash = flash_of(k);
  Cut first = {{0}};
  int64_t most =
      round_up(flash.grad && flash.keys > flash.queries ? flash.keys : flash.queries, 16);
  for (size_t i = 0; i < n; i++) {
    Cut cut = {{table[i][0] < most ? table[i][0] : most, table[i][1], 1}};
    if (!gpu_flash_fits(m, k, cut.at, limit)) continue;
    if (!first.at[0]) first = cut;
    if (cut.at[FLASH_GPU_ROWS] != first.at[FLASH_GPU_ROWS]) break;
    if (warps_of(m, k, &flash, &cut) >= wanted) return cut;
  }
  return first;
}

/* ---- masks that list tiles ---- */

/* Estimated time of the tiles that a phase over queries lists, for one head: 64 rows hide the
   copies made for them, fewer rows wait for as many bytes; a step costs as much as some 16
   columns. */
static double listed_time(const Module *m, const Fn *k, const Flash *flash, const Cut *cut,
                          FlashLists *lists) {
  Arena *arena = arena_new();
  FlashGpuPlan plan = gpu_flash_plan(m, k, flash, cut->at);
  *lists = flash_lists(arena, m, k, flash, &plan, flash->grad ? FLASH_DQ : FLASH_FORWARD);
  int64_t rows = plan.tile[FLASH_GPU_ROWS], columns = plan.tile[FLASH_GPU_COLUMNS];
  int64_t all = ceil_div(flash->queries, rows) * ceil_div(flash->keys, columns);
  double tiles = lists->present ? (double)lists->listed / (double)lists->classes : (double)all;
  arena_free(arena);
  return tiles * (double)max_i64(rows, 64) * (double)(columns + 16);
}

/* The first cut, or another one that lists clearly less. */
static Cut least_listed(const Module *m, const Fn *k, Cut first, int64_t limit) {
  Flash flash = flash_of(k);
  FlashLists lists;
  if (flash.mask == NO_VALUE || !first.at[0]) return first;
  double least = 0.9 * listed_time(m, k, &flash, &first, &lists);
  Cut best = first;
  for (size_t i = 0; i < COUNT_OF(shapes) && lists.present && lists.partial; i++) {
    Cut cut = {{shapes[i][0], shapes[i][1], 1}};
    if (cut.at[0] > first.at[0] || cut.at[1] > first.at[1] || !gpu_flash_fits(m, k, cut.at, limit))
      continue;
    double time = listed_time(m, k, &flash, &cut, &lists);
    if (time < least) least = time, best = cut;
  }
  return best;
}

static Cut usual(const Module *m, const Fn *k) {
  Cut first = first_of(m, k, shapes, COUNT_OF(shapes), m->target.shared, ENOUGH_WARPS);
  return least_listed(m, k, first, m->target.shared);
}

/* With registers to spare: a variant that only some devices run must not be one that spills. */
bool gpu_attention_larger(const Module *m, const Fn *k, int64_t limit, Cut *cut) {
  Cut now = usual(m, k);
  *cut = first_of(m, k, larger, sizeof larger / sizeof *larger, limit, 1);
  Flash flash = flash_of(k);
  if (flash.width < WIDE || cut->at[FLASH_GPU_ROWS] <= now.at[FLASH_GPU_ROWS]) return false;
  FlashGpuPlan plan = gpu_flash_plan(m, k, &flash, cut->at);
  if (gpu_flash_by_element(&flash, &plan)) return false;
  if (gpu_flash_registers(&flash, &plan) > 144) return false;
  FlashLists lists;
  double time = flash.mask == NO_VALUE ? 0 : listed_time(m, k, &flash, &now, &lists);
  return flash.mask == NO_VALUE || !lists.present || listed_time(m, k, &flash, cut, &lists) <= time;
}

/* ---- warpgroups ---- */

/* The most columns that leave registers, then the most stages. {0}: there is no such kernel. */
static Cut group_of(const Module *m, const Fn *k) {
  static const AttentionShape of[] = {{128, 3}, {128, 2}, {64, 3},
                                      {64, 2},  {32, 3},  {32, 2}}; /* columns, stages */
  for (size_t i = 0; i < COUNT_OF(of); i++) {
    Cut cut = {{WGMMA_GROUPS * WGMMA_ROWS, of[i][0], of[i][1]}};
    if (gpu_flash_fits(m, k, cut.at, m->target.shared)) return cut;
  }
  return (Cut){{0}};
}

/* Instead of the usual cut: rows for both warpgroups, and tiles of a list that do not make more
   work than is done faster. The quotient of the rates is an estimate that nobody has measured. */
static bool groups_pay(const Module *m, const Fn *k, const Cut *usual_cut, const Cut *cut) {
  static const double faster = 1.7;
  Flash flash = flash_of(k);
  FlashLists lists;
  bool may = m->target.wgmma_attention && cut->at[0];
  if (!may || min_i64(flash.queries, flash.keys) <= WGMMA_ROWS) return false;
  if (flash.mask == NO_VALUE || !usual_cut->at[0]) return true;
  double time = listed_time(m, k, &flash, cut, &lists);
  return !lists.present || time <= faster * listed_time(m, k, &flash, usual_cut, &lists);
}

/* The larger one where every device of the target allows it. A kernel that leaves multiprocessors
   to messages is one by warpgroups: others leave them anyway. */
Cut gpu_attention_rule(const Module *m, const Fn *k) {
  Cut cut = usual(m, k), wider, groups = group_of(m, k);
  if (attr_get(&k->attrs, ATTR_spare) || groups_pay(m, k, &cut, &groups)) return groups;
  bool more = m->target.wgmma && gpu_attention_larger(m, k, m->target.shared, &wider);
  return more ? wider : cut;
}

void gpu_attention_vary(Module *m, const Fn *k, const Cut *from, int stage, bool wide,
                        CutList *out) {
  static const int64_t sizes[] = {128, 64, 32, 16};
  (void)k;
  for (int i = 0; i < 6 && stage == 0; i++) {
    Cut cut = {{WGMMA_GROUPS * WGMMA_ROWS, 32 << i % 3, 2 + i / 3}};
    vec_push(m->arena, *out, cut);
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      Cut cut = *from;
      cut.at[FLASH_GPU_STAGES] = 1;
      if (wide || stage == 0) cut.at[FLASH_GPU_ROWS] = sizes[i];
      if (wide || stage == 1) cut.at[FLASH_GPU_COLUMNS] = sizes[j];
      if (stage < (wide ? 1 : 2)) vec_push(m->arena, *out, cut);
    }
}

void gpu_tune_attention(Module *m, Fn *k) {
  Cut cut = gpu_attention_rule(m, k);
  if (cut.at[0]) {
    gpu_attention_apply(m, k, &cut);
    return;
  }
  Report *r =
      diag_at(m->ctx->diag, "E0901", loc_span(m, k->loc),
              "attention over heads %lld wide is not built for GPUs", (long long)flash_of(k).width);
  diag_fact(r, "kernel `%s`: its tiles do not fit the shared memory of a CTA", k->name);
  diag_help(r, "use narrower heads, or compile for a processor: `--target native`");
}
