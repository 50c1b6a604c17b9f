/* Sums of the columns of attention's gradients, as they are stored: gradients of biases, without
   reading the gradients again.

   A warp has 16 rows of a gradient, a lane two of them, which it adds. Eight lanes then hold
   numbers of the same columns. In each of three exchanges a lane sends half of its numbers to
   another lane and adds the half that it receives, so that in the end it has the sums of its own
   columns (recursive halving, as in a reduce-scatter). The sums are a line of the workspace; the
   last phase adds the lines in a fixed order (lines.h). Rows that do not exist may hold anything
   and count as zeros. */
#include "flash.h"
#include "ir/support/num.h"
#include "lines.h"
#include "space.h"

enum { EXCHANGED = 8 }; /* blocks of columns: one for each lane of a column */

/* A number of the gradient as it is in memory: rounded. */
static LLVMValueRef stored(FlashGpu *flash, ValueId value, LLVMValueRef x, LLVMValueRef factor) {
  Elem elem = value_type(flash->e->k, value)->elem;
  if (factor) x = LLVMBuildFMul(flash->e->builder, x, factor, "");
  return expr_convert(flash->e, expr_convert(flash->e, x, ELEM_f32, elem), elem, ELEM_f32);
}

/* The sum of number q of a block over both rows of the lane. */
static LLVMValueRef of_rows(FlashGpu *flash, ValueId value, const Registers *sums, int block, int q,
                            LLVMValueRef factor, LLVMValueRef exists[2]) {
  LLVMValueRef zero = emit_f32(flash->e, 0), x[2];
  for (int half = 0; half < 2; half++) {
    x[half] = stored(flash, value, warp_get(&flash->w, sums, 4 * block + 2 * half + q), factor);
    if (exists[half]) x[half] = LLVMBuildSelect(flash->e->builder, exists[half], x[half], zero, "");
  }
  return LLVMBuildFAdd(flash->e->builder, x[0], x[1], "");
}

/* A lane keeps half of its n numbers, the upper half if its bit `distance` is set, and adds those
   that the other lane sends. */
static void exchange(FlashGpu *flash, LLVMValueRef *x, int n, int distance) {
  LLVMBuilderRef builder = flash->e->builder;
  Warp *w = &flash->w;
  LLVMValueRef bit = LLVMBuildAnd(builder, w->lane, warp_i32(w, distance), "");
  LLVMValueRef upper = LLVMBuildICmp(builder, LLVMIntNE, bit, warp_i32(w, 0), "");
  for (int i = 0; i < n / 2; i++) {
    LLVMValueRef keep = LLVMBuildSelect(builder, upper, x[i + n / 2], x[i], ""),
                 send = LLVMBuildSelect(builder, upper, x[i], x[i + n / 2], "");
    x[i] = LLVMBuildFAdd(builder, keep, warp_from(w, send, distance), "");
  }
}

static LLVMValueRef flat_of(FlashGpu *flash, const Point *p, const FlashDims *dims) {
  LLVMValueRef flat = emit_i64(flash->e, 0);
  for (int i = 0; i < dims->n; i++)
    flat = index_mul_add(flash->e, flat, dims->axis[i].size, point_find(p, dims->axis[i].dim)->at);
  return flat;
}

static LLVMValueRef line_of(FlashGpu *flash, const Point *p) {
  Warp *w = &flash->w;
  int64_t rows = flash->g.tile[FLASH_GPU_ROWS], warps = rows / 16,
          blocks = ceil_div(flash->rows, rows);
  LLVMValueRef block = warp_div(w, flash->row0, rows);
  LLVMValueRef own = warp_add(w, warp_times(w, block, warps), w->warp);
  return index_mul_add(flash->e, flat_of(flash, p, &flash->f.columns.summed), blocks * warps,
                       warp_wide(w, own));
}

/* Columns past the width do not exist. */
static void leave(FlashGpu *flash, Point *p, int place, LLVMValueRef line, LLVMValueRef column,
                  LLVMValueRef x) {
  Warp *w = &flash->w;
  Branch in = emit_if(flash->e, warp_less(w, column, warp_i32(w, flash->f.width)));
  point_set(p, (Index){.dim = flash->f.dim, .at = warp_wide(w, column)});
  LLVMValueRef at = flat_of(flash, p, &flash->f.columns.kept);
  lines_store(flash->e, lines_at(flash->e, &flash->g.lines, place, line, at), x);
  emit_end_if(flash->e, in);
}

/* Stores sums of eight blocks of columns from `first` on; at the end a lane has those of one. */
static void put_blocks(FlashGpu *flash, int place, const Registers *sums, int first,
                       LLVMValueRef factor, LLVMValueRef exists[2]) {
  Warp *w = &flash->w;
  ValueId value = flash->f.columns.of[place];
  LLVMValueRef x[2 * EXCHANGED];
  Point p = flash_point(flash);
  for (int i = 0; i < EXCHANGED; i++)
    for (int q = 0; q < 2; q++)
      x[2 * i + q] = 4 * (first + i) < sums->n
                         ? of_rows(flash, value, sums, first + i, q, factor, exists)
                         : emit_f32(flash->e, 0);
  for (int distance = 16, n = 2 * EXCHANGED; distance >= 4; distance /= 2, n /= 2)
    exchange(flash, x, n, distance);
  LLVMValueRef line = line_of(flash, &p), block = warp_plus(w, warp_div(w, w->lane, 4), first);
  LLVMValueRef column =
      warp_add(w, warp_times(w, block, FLASH_BLOCK), warp_times(w, warp_rem(w, w->lane, 4), 2));
  Branch own = {0};
  bool past = 4 * (first + EXCHANGED) > sums->n; /* blocks of another slice */
  if (past) own = emit_if(flash->e, warp_less(w, block, warp_i32(w, sums->n / 4)));
  for (int q = 0; q < 2; q++)
    leave(flash, &p, place, line, warp_plus(w, warp_add(w, column, flash->slice), q), x[q]);
  if (past) emit_end_if(flash->e, own);
}

void flash_columns_put(FlashGpu *flash, ValueId value, const Registers *sums, LLVMValueRef factor) {
  const FlashColumns *columns = &flash->f.columns;
  LLVMValueRef exists[2] = {NULL, NULL};
  for (int place = 0; columns->value != NO_VALUE && place < columns->sums; place++) {
    if (columns->of[place] != value) continue;
    bool whole = flash->rows % flash->g.tile[FLASH_GPU_ROWS] == 0;
    for (int half = 0; half < 2 && !whole; half++)
      exists[half] = warp_less(&flash->w, flash_row(flash, half), warp_i32(&flash->w, flash->rows));
    for (int first = 0; 4 * first < sums->n; first += EXCHANGED)
      put_blocks(flash, place, sums, first, factor, exists);
  }
}

static void deliver(void *state, int i, LLVMValueRef at, LLVMValueRef sum) {
  FlashGpu *flash = state;
  Emit *emit = flash->e;
  const FlashColumns *columns = &flash->f.columns;
  Point p = {0};
  if (columns->place) point_set(&p, (Index){.dim = columns->place, .at = emit_index(emit, i)});
  for (int j = columns->kept.n; j-- > 0;) {
    Axis axis = columns->kept.axis[j];
    point_set(&p, (Index){.dim = axis.dim, .at = j ? index_rem(emit, at, axis.size) : at});
    at = index_div(emit, at, axis.size);
  }
  Elem elem = value_type(emit->k, columns->value)->elem;
  expr_put(emit, columns->value, &p, expr_convert(emit, sum, ELEM_f32, elem));
}

void flash_columns_join(FlashGpu *flash, int phase) {
  lines_join(flash->e, phase, &flash->g.lines, deliver, flash);
}
