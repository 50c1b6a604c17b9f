/* A layout as SVG: rows are queries, columns keys; a colour per part of the layout, one for blocks
   that an element predicate cuts. Cells of one colour are one path, neighbours in a row one
   rectangle of it, so that 1,024 rows stay small. If there are more blocks than cells on a side, a
   cell is a square of blocks, paler if fewer of them are listed. Colours are those of Okabe and Ito
   and others far from them. The same layout gives the same bytes. */
#include "layout_drawing.h"
#include "ir/support/num.h"
#include "runtime/chart.h"
#include <string.h>

enum {
  WIDTH = 900,
  MARGIN = 16,
  LEFT = 56,
  PANEL = 448,
  TOP = 84,
  CAPTION = 52,
  MOST_CELLS = 224,
  HEADS = 16
};
enum { LEVELS = 4, WIDEST = 3 }; /* shades of a colour; panels in a row */

static const struct {
  const char *name, *colour;
} colours[] = {{"window", "#0072B2"},  {"global", "#D55E00"},  {"random", "#009E73"},
               {"table", "#CC79A7"},   {"fixed", "#56B4E9"},   {"variable", "#7F3C8D"},
               {"strided", "#8B5A2B"}, {"dilated", "#3B3B98"}, {"sliding", "#6E7F80"},
               {"causal", "#8C8C8C"},  {"all", "#A0A0A0"}};
static const char partial[] = "#F0C808";
static const char *const shades[LEVELS] = {".4", ".6", ".8", "1"};

static const char *colour_of(const char *part) {
  for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
    if (!strcmp(colours[i].name, part)) return colours[i].colour;
  return "#000000";
}

typedef struct LayoutPicture {
  FILE *out;
  Arena *a;
  const Layout *l;
  int64_t shown, different; /* heads */
  double side;              /* of a cell */
} LayoutPicture;

static void put_text(const LayoutPicture *picture, double at, double y, const char *more,
                     const char *text) {
  fprintf(picture->out, "<text x=\"%.6g\" y=\"%.6g\"%s>", at, y, more);
  rt_put_escaped(picture->out, text);
  fputs("</text>\n", picture->out);
}

/* ---- cells ---- */

static int level_of(const Cell *c) { return (int)((c->blocks * LEVELS - 1) / c->of); }

static bool drawn_as(const Cell *c, int part, int level) {
  return c->blocks && c->part == part && level_of(c) == level;
}

/* One path of all cells of a colour and shade; nothing if there are none. */
static void put_part(const LayoutPicture *picture, const Cells *cells, int part, int level,
                     double left, double top) {
  bool any = false;
  double s = picture->side;
  for (int64_t r = 0; r < cells->rows; r++)
    for (int64_t c = 0, n; c < cells->columns; c += n + 1) {
      const Cell *row = cells->at + r * cells->columns;
      for (n = 0; c + n < cells->columns && drawn_as(&row[c + n], part, level);) n++;
      if (!n) continue;
      const char *colour = part == CELL_PARTIAL ? partial : colour_of(picture->l->parts.at[part]);
      if (!any)
        fprintf(picture->out, "<path fill=\"%s\" fill-opacity=\"%s\" d=\"", colour, shades[level]);
      fprintf(picture->out, "M%.6g %.6gh%.6gv%.6gh%.6gz", left + (double)c * s, top + (double)r * s,
              (double)n * s, s, -(double)n * s);
      any = true;
    }
  if (!any) return;
  const char *name = part == CELL_PARTIAL ? "partial" : picture->l->parts.at[part];
  fprintf(picture->out, "\"><title>%s</title></path>\n", name);
}

/* Lines between cells, where they are large enough to be told apart. */
static void put_grid(const LayoutPicture *picture, const Cells *cells, double left, double top) {
  double s = picture->side, wide = (double)cells->columns * s, high = (double)cells->rows * s;
  if (s >= 6) {
    fputs("<path class=\"g\" d=\"", picture->out);
    for (int64_t i = 1; i < cells->columns; i++)
      fprintf(picture->out, "M%.6g %.6gv%.6g", left + (double)i * s, top, high);
    for (int64_t i = 1; i < cells->rows; i++)
      fprintf(picture->out, "M%.6g %.6gh%.6g", left, top + (double)i * s, wide);
    fputs("\"/>\n", picture->out);
  }
  fprintf(picture->out, "<path class=\"e\" d=\"M%.6g %.6gh%.6gv%.6gh%.6gz\"/>\n", left, top, wide,
          high, -wide);
}

static void put_scale(const LayoutPicture *picture, const Cells *cells, double left, double top) {
  const LayoutFigures *figures = &picture->l->figures;
  double wide = (double)cells->columns * picture->side, high = (double)cells->rows * picture->side;
  const char *keys =
                 arena_printf(picture->a, "%s %lld", figures->key, (long long)figures->keys - 1),
             *queries = arena_printf(picture->a, "%lld", (long long)figures->queries - 1);
  put_text(picture, left, top - 5, "", "0");
  put_text(picture, left + wide, top - 5, " text-anchor=\"end\"", keys);
  put_text(picture, left - 5, top + 10, " text-anchor=\"end\"", "0");
  put_text(picture, left - 5, top + high, " text-anchor=\"end\"", queries);
  put_text(picture, left - 5, top + high / 2 + 4, " text-anchor=\"end\"", figures->query);
}

/* ---- a head ---- */

static const char *caption(const LayoutPicture *picture, int64_t number) {
  const LayoutHead *head = &picture->l->heads.at[number];
  const char *heads = layout_heads(picture->a, picture->l, number);
  double all = (double)head->map.rows * (double)head->map.columns;
  double listed = (double)head->count.full + (double)head->count.partial;
  return arena_printf(picture->a, "%s%s%.0f of %.0f blocks (%.1f %%), %lld partial", heads,
                      *heads ? ": " : "", listed, all, 100 * listed / all,
                      (long long)head->count.partial);
}

static void put_head(const LayoutPicture *picture, int64_t number, double left, double top) {
  const LayoutHead *head = &picture->l->heads.at[number];
  Cells cells = layout_cells(picture->a, head, MOST_CELLS);
  for (int level = 0; level < LEVELS; level++) {
    for (int p = 0; p < (int)picture->l->parts.n; p++)
      put_part(picture, &cells, p, level, left, top);
    put_part(picture, &cells, CELL_PARTIAL, level, left, top);
  }
  put_grid(picture, &cells, left, top), put_scale(picture, &cells, left, top);
  if (*head->name)
    put_text(picture, left, top + (double)cells.rows * picture->side + 20, " class=\"h\"",
             caption(picture, number));
}

/* ---- around ---- */

static void put_swatch(const LayoutPicture *picture, double *at, double y, const char *colour,
                       const char *name) {
  fprintf(picture->out, "<rect x=\"%.6g\" y=\"%.6g\" width=\"11\" height=\"11\" fill=\"%s\"/>", *at,
          y - 10, colour);
  put_text(picture, *at + 15, y, "", name);
  *at += 34 + 7 * (double)strlen(name);
}

static void put_legend(const LayoutPicture *picture, double y, int64_t blocks) {
  double at = MARGIN;
  for (uint32_t i = 0; i < picture->l->parts.n; i++)
    put_swatch(picture, &at, y, colour_of(picture->l->parts.at[i]), picture->l->parts.at[i]);
  if (layout_has_partial(picture->l)) put_swatch(picture, &at, y, partial, "partial");
  const char *note = "";
  if (blocks > 1)
    note = arena_printf(picture->a, "a cell is %lld x %lld blocks, pale: few of them are listed. ",
                        (long long)blocks, (long long)blocks);
  if (picture->shown < picture->different)
    note = arena_printf(picture->a, "%s%lld other pictures are left out", note,
                        (long long)(picture->different - picture->shown));
  if (*note) put_text(picture, at, y, "", note);
}

static void put_head_lines(const LayoutPicture *picture, int64_t blocks) {
  const LayoutFigures *figures = &picture->l->figures;
  put_text(picture, MARGIN, 22, " class=\"n\"",
           arena_printf(picture->a, "%s [%s, %s] = %s", figures->name, figures->query, figures->key,
                        picture->l->text));
  const char *unit = figures->counted
                         ? ""
                         : arena_printf(picture->a, "; drawn in blocks of %lld, it has none",
                                        (long long)figures->unit);
  put_text(picture, MARGIN, 40, "",
           arena_printf(picture->a, "%s%s", layout_words(picture->a, figures), unit));
  put_legend(picture, 60, blocks);
}

static int64_t different_heads(const Layout *layout) {
  int64_t n = 0;
  for (uint32_t i = 0; i < layout->heads.n; i++) n += layout->heads.at[i].like == (int64_t)i;
  return n;
}

void layout_svg(FILE *out, Arena *arena, const Layout *layout) {
  static const char style[] =
      "<style>text{font:12px system-ui,sans-serif;fill:#555}.n{font:600 13px "
      "ui-monospace,monospace;"
      "fill:#222}.g{stroke:#8883;fill:none}.e{stroke:#888;fill:none}"
      "@media(prefers-color-scheme:dark){text{fill:#aaa}.n{fill:#eee}}</style>\n";
  LayoutPicture picture = {
      .out = out, .a = arena, .l = layout, .different = different_heads(layout)};
  picture.shown = min_i64(picture.different, HEADS);
  Cells cells = layout_cells(arena, &layout->heads.at[0], MOST_CELLS);
  picture.side = (double)PANEL / (double)max_i64(cells.rows, cells.columns);
  double wide = LEFT + (double)cells.columns * picture.side,
         high = (double)cells.rows * picture.side + CAPTION;
  int64_t across = min_i64(picture.shown, WIDEST), down = ceil_div(picture.shown, across);
  double width = 2 * MARGIN + (double)across * wide;
  double line = 2 * MARGIN + 8 * (double)strlen(layout->text) + 200;
  if (width < line) width = line;
  if (width < WIDTH) width = WIDTH;
  double height = TOP + (double)down * high + MARGIN;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.6g\" height=\"%.6g\" "
          "viewBox=\"0 0 %.6g %.6g\" role=\"img\" aria-label=\"layout %s\">\n%s",
          width, height, width, height, layout->figures.name, style);
  put_head_lines(&picture, cells.blocks);
  for (int64_t i = 0, n = 0; i < (int64_t)layout->heads.n && n < picture.shown; i++) {
    if (layout->heads.at[i].like != i) continue;
    put_head(&picture, i, LEFT + (double)(n % across) * wide, TOP + (double)(n / across) * high),
        n++;
  }
  fputs("</svg>\n", out);
}
