/* The result of a command, as data: lines of words and figures, stated once and rendered as text,
   as JSON and as parts of a page (HTML).

     sheet_say(sheet, "a step: {flop_per_step} FLOP per rank, {} moved\n", as_flop(f), as_bytes(b));

   A template has the words of the text; `{..}` is the next figure:

     {key}          a figure; JSON has it under this key, in the object that is open
     {a.b.c}        the key of an object in an object, made as needed
     {bytes.*}      `*` is the name or, of the items of a list, the number that the next figure has
     {}             a figure that only the text and the page show
     {!key}         a figure that only JSON has
     {key:12.4}     at least 12 characters wide, -12: to the left, -: to the left without a width;
                    figures of this form are the columns of tables; 4 digits
     [list]..       before all else: the figures of this template are a new item of that list

   A line ends at `\n`, and may be made by several calls; texts are copied. A table is a line of
   heads, two blanks or more between them, and the lines after it that begin with two blanks. */
#ifndef SHARDC_SHEET_H
#define SHARDC_SHEET_H
#include "ir/support/arena.h"
#include "ir/support/num.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum FigureKind { /* the words of each, in text and in JSON: sheet.c */
                          FIGURE_TEXT,
                          FIGURE_JSON, /* written as it is */
                          FIGURE_FLAG, /* true, false; in text one of two words */
                          FIGURE_BYTES,
                          FIGURE_COUNT,
                          FIGURE_NUMBER,
                          FIGURE_EXACT, /* all digits in JSON */
                          FIGURE_SECONDS,
                          FIGURE_MEASURED, /* seconds with more digits */
                          FIGURE_FLOP,
                          FIGURE_SHARE,   /* 0.125: 12.5 % */
                          FIGURE_PORTION, /* the same by significant digits: 12 % */
} FigureKind;

typedef struct Figure {
  FigureKind kind;
  double number;
  const char *text;
} Figure;

static inline Figure as_text(const char *text) { return (Figure){.text = text ? text : ""}; }
static inline Figure as_json(const char *text) { return (Figure){FIGURE_JSON, 0, text}; }
static inline Figure as_flag(bool flag, const char *yes, const char *no) {
  return (Figure){FIGURE_FLAG, flag, flag ? yes : no};
}
#define FIGURE(name, KIND)                                                                         \
  static inline Figure name(double number) { return (Figure){KIND, number, NULL}; }
FIGURE(as_bytes, FIGURE_BYTES)
FIGURE(as_count, FIGURE_COUNT)
FIGURE(as_number, FIGURE_NUMBER)
FIGURE(as_exact, FIGURE_EXACT)
FIGURE(as_seconds, FIGURE_SECONDS)
FIGURE(as_measured, FIGURE_MEASURED)
FIGURE(as_flop, FIGURE_FLOP)
FIGURE(as_share, FIGURE_SHARE)
FIGURE(as_portion, FIGURE_PORTION)
#undef FIGURE

typedef struct Sheet Sheet;
typedef void SheetDraw(FILE *file, const void *what);
typedef enum SheetPlace {
  IN_JSON,
  ON_PAGE,
  EVERYWHERE
} SheetPlace; /* JSON has all that has keys */

Sheet *sheet_new(Arena *arena);
void sheet_add(Sheet *sheet, SheetPlace place, const char *template, const Figure *figure,
               size_t n);
#define SHEET_FIGURES(...)                                                                         \
  ((const Figure[]){{0}, __VA_ARGS__}) + 1, COUNT_OF(((const Figure[]){{0}, __VA_ARGS__})) - 1
#define sheet_say(sheet, template, ...)                                                            \
  sheet_add(sheet, EVERYWHERE, template, SHEET_FIGURES(__VA_ARGS__))
#define sheet_say_if(sheet, shown, template, ...)                                                  \
  sheet_add(sheet, (shown) ? EVERYWHERE : IN_JSON, template, SHEET_FIGURES(__VA_ARGS__))
#define sheet_put(sheet, template, ...)                                                            \
  sheet_add(sheet, IN_JSON, template, SHEET_FIGURES(__VA_ARGS__))
#define sheet_page(sheet, template, ...)                                                           \
  sheet_add(sheet, ON_PAGE, template, SHEET_FIGURES(__VA_ARGS__))

void sheet_title(Sheet *sheet, const char *text);
void sheet_heading(Sheet *sheet, const char *text); /* of the page */
void sheet_heads(Sheet *sheet, SheetPlace place, const char *text);
void sheet_draw(Sheet *sheet, SheetDraw *draw, const void *what); /* a picture of the page */
/* The object or, of a path that ends with [], a new item: keys are those of its members until it is
   closed. sheet_list and sheet_object make what may stay empty. */
void sheet_open(Sheet *sheet, const char *path);
void sheet_close(Sheet *sheet);
void sheet_list(Sheet *sheet, const char *path);
void sheet_object(Sheet *sheet, const char *path);

void sheet_text(FILE *file, const Sheet *sheet);
void sheet_json(FILE *file, const Sheet *sheet); /* one line */
void sheet_show(const Sheet *sheet, bool json);  /* one of these on stdout */
void sheet_html(FILE *file, const Sheet *sheet);
#endif
