/* The cells of a picture of a layout. If there are more blocks than a picture has room for, a cell
   is a square of blocks: it has the colour of the part that lists most of its blocks (the first
   written, if several do), and holds the number of listed blocks. Must not: leave out a listed
   block; a cell with one block in it is not empty. */
#include "layout_drawing.h"
#include "ir/support/num.h"
#include <string.h>

enum { PARTS = 64 };

static Cell cell_at(const LayoutHead *head, int64_t r0, int64_t c0, int64_t side) {
  const BlockMap *map = &head->map;
  int64_t r1 = min_i64(r0 + side, map->rows), c1 = min_i64(c0 + side, map->columns);
  int64_t of[PARTS] = {0}, partial = 0, most = 0;
  Cell cell = {.part = CELL_NOTHING, .of = (r1 - r0) * (c1 - c0)};
  for (int64_t r = r0; r < r1; r++)
    for (int64_t c = c0; c < c1; c++) {
      int64_t i = r * map->columns + c;
      if (map->state[i] == BLOCK_ABSENT) continue;
      cell.blocks++;
      if (map->state[i] == BLOCK_PARTIAL || !head->part[i]) partial++;
      else of[head->part[i] % PARTS]++;
    }
  for (int p = 1; p < PARTS; p++)
    if (of[p] > most) most = of[p], cell.part = p - 1;
  if (partial > most) cell.part = CELL_PARTIAL;
  return cell;
}

Cells layout_cells(Arena *arena, const LayoutHead *head, int64_t most) {
  int64_t side = 1;
  while (ceil_div(max_i64(head->map.rows, head->map.columns), side) > most) side++;
  Cells cells = {ceil_div(head->map.rows, side), ceil_div(head->map.columns, side), side, NULL};
  cells.at = ARENA_ARRAY(arena, Cell, cells.rows * cells.columns);
  for (int64_t r = 0; r < cells.rows; r++)
    for (int64_t c = 0; c < cells.columns; c++)
      cells.at[r * cells.columns + c] = cell_at(head, r * side, c * side, side);
  return cells;
}

bool layout_has_partial(const Layout *layout) { return layout->figures.sum.partial > 0; }

const char *layout_heads(Arena *arena, const Layout *layout, int64_t first) {
  enum { NAMED = 6 };
  const char *text = "";
  int n = 0;
  for (uint32_t i = 0; i < layout->heads.n; i++) {
    if (layout->heads.at[i].like != first) continue;
    if (n < NAMED)
      text = arena_printf(arena, "%s%s%s", text, n ? "; " : "", layout->heads.at[i].name);
    n++;
  }
  return n > NAMED ? arena_printf(arena, "%s and %d more", text, n - NAMED) : text;
}
