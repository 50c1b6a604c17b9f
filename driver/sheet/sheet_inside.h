/* The inside of a sheet, for its renderers. */
#ifndef SHARDC_SHEET_INSIDE_H
#define SHARDC_SHEET_INSIDE_H
#include "sheet.h"
#include "ir/support/vec.h"

typedef struct SheetPiece { /* of a line: words, or a figure */
  Figure figure;
  int width, digits; /* digits -1: as its kind has them */
  bool column;       /* a width is given */
  bool words;        /* of the template */
} SheetPiece;

typedef enum LineKind { LINE_PLAIN, LINE_TITLE, LINE_HEADING, LINE_HEADS, LINE_DRAWING } LineKind;

typedef struct SheetLine {
  LineKind kind;
  bool page; /* not in the text */
  VEC(SheetPiece) piece;
  SheetDraw *draw;
  const void *what;
} SheetLine;

typedef enum MemberKind { MEMBER_FIGURE, MEMBER_OBJECT, MEMBER_LIST } MemberKind;

typedef struct SheetMember { /* of JSON */
  const char *key;           /* "": an item of a list */
  MemberKind kind;
  Figure figure;
  struct SheetMember *first, *last, *next;
} SheetMember;

struct Sheet {
  Arena *arena;
  VEC(SheetLine) line;
  bool open; /* the last line goes on */
  SheetMember root, *at;
  VEC(SheetMember *) around; /* what is open around it */
};

const char *figure_text(Arena *arena, const Figure *figure, int digits);
void figure_json(FILE *file, const Figure *figure);
#endif
