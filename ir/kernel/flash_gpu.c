/* The arithmetic of attention's cut on a GPU; see flash_gpu.h. Rows in shared memory are padded by
   16 bytes: their number of 16-byte pieces is odd, so eight neighbours begin in eight different
   banks. */
#include "flash_gpu.h"
#include "ir/support/num.h"

enum { SUM_ROWS = 4 }; /* queries of a CTA of the first phase of the gradient: one per warp */

static GemmSide side_of(const FlashGpuPlan *p, int64_t rows, bool async) {
  GemmSide s = {.async = async, .elem = p->mma ? 2 : 4, .rows = rows, .columns = p->width};
  s.pitch = s.columns * s.elem + 16;
  s.bytes = s.rows * s.pitch;
  return s;
}

int flash_gpu_tiles(FlashPhase p, bool columns) {
  if (p == FLASH_ROWSUMS) return 0;
  return columns || p != FLASH_FORWARD ? 2 : 1;
}

static int64_t shared_of(const FlashGpuPlan *p, FlashPhase phase) {
  if (phase == FLASH_ROWSUMS) return 0;
  return flash_gpu_tiles(phase, false) * p->row.bytes +
         2 * flash_gpu_tiles(phase, true) * p->column.bytes + p->scores;
}

static int64_t chunks_of(const FlashGpuPlan *p, const Flash *f, FlashPhase phase) {
  int64_t rows = p->tile[FLASH_GPU_ROWS], slices = p->tile[FLASH_GPU_SLICES];
  if (phase == FLASH_ROWSUMS) return ceil_div(p->heads * p->queries, SUM_ROWS);
  if (phase == FLASH_DKV) return f->shared.count * ceil_div(f->keys, rows) * slices;
  return p->heads * ceil_div(f->queries, rows) * slices;
}

FlashGpuPlan flash_gpu_plan(const Flash *f, Elem elem, const int64_t tile[FLASH_GPU_COUNT]) {
  static const FlashPhase forward[] = {FLASH_FORWARD},
                          backward[] = {FLASH_ROWSUMS, FLASH_DKV, FLASH_DQ};
  FlashGpuPlan p = {.mma = elem_is_half(elem),
                    .phases = f->grad ? 3 : 1,
                    .heads = f->shared.count * f->group.count};
  memcpy(p.tile, tile, sizeof p.tile);
  p.width = round_up(f->width, 16 * tile[FLASH_GPU_SLICES]);
  p.slice = p.width / tile[FLASH_GPU_SLICES];
  p.queries = round_up(round_up(f->queries, tile[FLASH_GPU_ROWS]), tile[FLASH_GPU_COLUMNS]);
  p.row = side_of(&p, tile[FLASH_GPU_ROWS], false);
  p.column = side_of(&p, tile[FLASH_GPU_COLUMNS], false);
  p.scores = p.mma ? 0 : tile[FLASH_GPU_ROWS] * (tile[FLASH_GPU_COLUMNS] + 4) * 4;
  for (int i = 0; i < p.phases; i++) {
    p.phase[i] = f->grad ? backward[i] : forward[i];
    p.chunks[i] = chunks_of(&p, f, p.phase[i]);
    p.threads[i] = 32 * (p.phase[i] == FLASH_ROWSUMS ? SUM_ROWS : tile[FLASH_GPU_ROWS] / 16);
    p.shared[i] = shared_of(&p, p.phase[i]);
  }
  if (f->grad) p.workspace = 2 * p.heads * p.queries * 4;
  return p;
}
