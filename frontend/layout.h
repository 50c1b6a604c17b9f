/* Named layouts of a program: figures, and pictures of their blocks. */
#ifndef SHARDC_LAYOUT_H
#define SHARDC_LAYOUT_H
#include "ir/mask/blocks.h"

typedef struct LayoutFigures {
  Str name;
  Span span;
  Str query, key;
  int64_t queries, keys;
  int64_t unit;          /* of a block's side */
  bool counted;          /* the layout says blocks(unit); else the unit is one for pictures alone */
  int64_t heads;         /* by which it differs: 1, they are alike */
  BlockCount sum;        /* over these heads */
  double blocks, scores; /* over these heads, listed or not */
} LayoutFigures;

typedef struct LayoutHead {
  Str name; /* "Heads 3"; "" where all are alike */
  BlockMap map;
  uint8_t *part; /* [rows][columns]: 1 + number of the part that lists the block first, 0: absent */
  BlockCount count;
  int64_t like; /* the first head of the same blocks */
} LayoutHead;

typedef struct Layout {
  LayoutFigures figures;
  Str text; /* as it is written */
  VEC(Str) parts;
  VEC(LayoutHead) heads;
} Layout;

typedef VEC(LayoutFigures) LayoutList;

/* One line of a module's setting `layout.NAME`, and back; false: it is none. */
const char *layout_line(Arena *a, const LayoutFigures *f);
bool layout_read(const char *line, LayoutFigures *out);
#endif
