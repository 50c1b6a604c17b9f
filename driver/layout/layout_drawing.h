/* Layouts for people: figures in words and JSON, pictures for terminals and browsers. */
#ifndef SHARDC_DRIVER_LAYOUT_DRAWING_H
#define SHARDC_DRIVER_LAYOUT_DRAWING_H
#include "driver/sheet/sheet.h"
#include "frontend/layout.h"
#include <stdio.h>

/* layout_figures.c */
/* 607 of 4096 blocks of 64 x 64 (607 full, 0 partial): 14.8 % of the blocks, .. */
const char *layout_words(Arena *arena, const LayoutFigures *figures);
void layout_figures(Sheet *sheet, const LayoutFigures *figures); /* members of the open object */
/* An item of `lists`; in words, if the lists of ranks differ. */
void lists_figures(Sheet *sheet, Arena *arena, const BlockLists *lists);
LayoutList module_layouts(const Module *m); /* of its settings */

/* A picture's cells: a block each, or squares of blocks where there are more than fit.
   layout_cells.c */
typedef struct Cell {
  int part;       /* the part that lists most of its blocks; CELL_NOTHING, CELL_PARTIAL */
  int64_t blocks; /* that are listed; */
  int64_t of;     /* of this many */
} Cell;
enum { CELL_NOTHING = -1, CELL_PARTIAL = -2 };

typedef struct Cells {
  int64_t rows, columns, blocks; /* blocks: of a cell's side */
  Cell *at;
} Cells;
Cells layout_cells(Arena *arena, const LayoutHead *head, int64_t most);
bool layout_has_partial(const Layout *layout);
const char *layout_heads(Arena *arena, const Layout *layout,
                         int64_t first); /* "Heads 0, Heads 2" */

void layout_text(FILE *out, Arena *arena, const Layout *layout); /* layout_text.c */
void layout_svg(FILE *out, Arena *arena, const Layout *layout);  /* layout_svg.c */
const char *layout_picture(Arena *a, const Layout *l);           /* the same, as text */
#endif
