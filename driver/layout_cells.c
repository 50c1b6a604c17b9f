/* What a picture of a layout shows at each place. Where there are more blocks than a picture has
   room for, a cell is a square of them: it has the colour of the part that lists most of its blocks
   (of several, the first written), and says how many there are. Must not: leave out a listed block;
   a cell with one block in it is not empty. */
#include "driver/layout_drawing.h"
#include "ir/support/num.h"
#include <string.h>

enum { PARTS = 64 };

static Cell cell_at(const LayoutHead *h, int64_t r0, int64_t c0, int64_t side) {
  const BlockMap *m = &h->map;
  int64_t r1 = min_i64(r0 + side, m->rows), c1 = min_i64(c0 + side, m->columns);
  int64_t of[PARTS] = {0}, partial = 0, most = 0;
  Cell cell = {.part = CELL_NOTHING, .of = (r1 - r0) * (c1 - c0)};
  for (int64_t r = r0; r < r1; r++)
    for (int64_t c = c0; c < c1; c++) {
      int64_t i = r * m->columns + c;
      if (m->state[i] == BLOCK_ABSENT) continue;
      cell.blocks++;
      if (m->state[i] == BLOCK_PARTIAL || !h->part[i]) partial++;
      else of[h->part[i] % PARTS]++;
    }
  for (int p = 1; p < PARTS; p++)
    if (of[p] > most) most = of[p], cell.part = p - 1;
  if (partial > most) cell.part = CELL_PARTIAL;
  return cell;
}

Cells layout_cells(Arena *a, const LayoutHead *h, int64_t most) {
  int64_t side = 1;
  while (ceil_div(max_i64(h->map.rows, h->map.columns), side) > most) side++;
  Cells x = {ceil_div(h->map.rows, side), ceil_div(h->map.columns, side), side, NULL};
  x.at = ARENA_ARRAY(a, Cell, x.rows * x.columns);
  for (int64_t r = 0; r < x.rows; r++)
    for (int64_t c = 0; c < x.columns; c++)
      x.at[r * x.columns + c] = cell_at(h, r * side, c * side, side);
  return x;
}

bool layout_has_partial(const Layout *l) { return l->figures.sum.partial > 0; }

const char *layout_heads(Arena *a, const Layout *l, int64_t first) {
  enum { NAMED = 6 };
  const char *text = "";
  int n = 0;
  for (uint32_t i = 0; i < l->heads.n; i++) {
    if (l->heads.at[i].like != first) continue;
    if (n < NAMED) text = arena_printf(a, "%s%s%s", text, n ? "; " : "", l->heads.at[i].name);
    n++;
  }
  return n > NAMED ? arena_printf(a, "%s and %d more", text, n - NAMED) : text;
}
