/* The arithmetic of attention's cut on a GPU; see flash_gpu.h. Rows in shared memory are padded by
   16 bytes: their number of 16-byte pieces is odd, so eight neighbours begin in eight different
   banks. With wgmma they are in panels of 128 bytes, one after the other. */
#include "flash_gpu.h"
#include "ir/support/num.h"

static GemmSide side_of(const FlashGpuPlan *plan, int64_t rows) {
  GemmSide side = {.elem = plan->mma ? 2 : 4, .rows = rows, .columns = plan->width};
  if (plan->wgmma) {
    side.panels = true, side.pitch = WGMMA_PANEL;
    side.bytes = ceil_div(side.columns, WGMMA_K) * side.rows * side.pitch;
    return side;
  }
  side.pitch = side.columns * side.elem + 16;
  side.bytes = side.rows * side.pitch;
  return side;
}

bool flash_gpu_scores(FlashPhase p) { return p != FLASH_JOIN; }

int flash_gpu_tiles(FlashPhase p, bool columns) {
  if (!flash_gpu_scores(p)) return 0;
  return columns || p != FLASH_FORWARD ? 2 : 1;
}

int64_t flash_gpu_sums(const FlashGpuPlan *plan, FlashPhase phase) {
  return plan->wgmma && phase == FLASH_DKV ? plan->tile[FLASH_GPU_COLUMNS] * 4 : 0;
}

int64_t flash_gpu_signals(const FlashGpuPlan *plan) {
  return plan->bulk ? 4 * plan->tile[FLASH_GPU_STAGES] + 2 : 0;
}

static int64_t shared_of(const FlashGpuPlan *plan, FlashPhase phase) {
  if (phase == FLASH_JOIN) return LINES_SHARED;
  if (plan->wgmma)
    return flash_gpu_tiles(phase, false) * plan->row.bytes +
           2 * plan->tile[FLASH_GPU_STAGES] * (plan->column.bytes + flash_gpu_sums(plan, phase)) +
           round_up(flash_gpu_signals(plan) * SIGNAL_BYTES, CACHE_LINE);
  return flash_gpu_tiles(phase, false) * plan->row.bytes +
         2 * flash_gpu_tiles(phase, true) * plan->column.bytes + plan->scores;
}

static int64_t tiles_of(const FlashGpuPlan *plan, const Flash *flash, FlashPhase phase) {
  int64_t rows = plan->tile[FLASH_GPU_ROWS], slices = plan->tile[FLASH_GPU_SLICES];
  if (phase == FLASH_JOIN) return plan->lines.sums * lines_blocks(&plan->lines);
  if (phase == FLASH_DKV) return flash->shared.count * ceil_div(flash->keys, rows) * slices;
  return plan->heads * ceil_div(flash->queries, rows) * slices;
}

const char *flash_gpu_variant(const FlashGpuPlan *plan) {
  return plan->wgmma ? "wgmma" : plan->mma ? "mma" : "fma";
}

static int64_t threads_of(const FlashGpuPlan *plan, FlashPhase phase) {
  if (phase == FLASH_JOIN) return LINES_THREADS;
  return 2 * plan->tile[FLASH_GPU_ROWS] + (plan->wgmma ? WGMMA_THREADS : 0);
}

static void plan_lines(FlashGpuPlan *plan, const FlashColumns *columns) {
  int64_t rows = plan->tile[FLASH_GPU_ROWS], warps = ceil_div(columns->rows, rows) * (rows / 16);
  plan->lines = (SumLines){columns->kept.count, columns->sums, columns->summed.count * warps,
                           round_up(plan->workspace, CACHE_LINE)};
  plan->workspace = plan->lines.at + lines_workspace(&plan->lines);
}

FlashGpuPlan flash_gpu_plan(const Flash *flash, Elem elem, const int64_t tile[FLASH_GPU_COUNT]) {
  static const FlashPhase forward[] = {FLASH_FORWARD},
                          backward[] = {FLASH_DQ, FLASH_DKV, FLASH_JOIN};
  FlashGpuPlan plan = {.wgmma = tile[FLASH_GPU_STAGES] > 1,
                       .bulk = (tile[FLASH_GPU_COPY] - 1) & FLASH_COPY_BULK,
                       .mma = elem_is_half(elem),
                       .phases = !flash->grad                       ? 1
                                 : flash->columns.value == NO_VALUE ? 2
                                                                    : 3,
                       .heads = flash->shared.count * flash->group.count};
  memcpy(plan.tile, tile, sizeof plan.tile);
  plan.width = round_up(flash->width, 16 * tile[FLASH_GPU_SLICES]);
  plan.slice = plan.width / tile[FLASH_GPU_SLICES];
  plan.queries = round_up(round_up(flash->queries, tile[FLASH_GPU_ROWS]), tile[FLASH_GPU_COLUMNS]);
  plan.row = side_of(&plan, tile[FLASH_GPU_ROWS]);
  plan.column = side_of(&plan, tile[FLASH_GPU_COLUMNS]);
  plan.scores = plan.mma ? 0 : tile[FLASH_GPU_ROWS] * (tile[FLASH_GPU_COLUMNS] + 4) * 4;
  if (flash->grad) plan.workspace = 2 * plan.heads * plan.queries * 4;
  if (flash->columns.value != NO_VALUE) plan_lines(&plan, &flash->columns);
  for (int i = 0; i < plan.phases; i++) {
    plan.phase[i] = flash->grad ? backward[i] : forward[i];
    plan.chunks[i] = plan.tiles[i] = tiles_of(&plan, flash, plan.phase[i]);
    plan.threads[i] = threads_of(&plan, plan.phase[i]);
    plan.shared[i] = shared_of(&plan, plan.phase[i]);
  }
  return plan;
}
