/* A layout as SVG: rows are queries, columns keys; a colour per part of the layout, one for blocks
   that an element predicate cuts. Cells of one colour are one path, neighbours in a row one
   rectangle of it, so that 1,024 rows stay small. Of more blocks than a side has cells, a cell is a
   square of them, the paler the fewer of them are listed. Colours are those of Okabe and Ito and
   others far from them. The same layout gives the same bytes. */
#include "driver/layout_drawing.h"
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
enum { LEVELS = 4, WIDEST = 3 }; /* shades of a colour; panels beside each other */

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

static void put_text(const LayoutPicture *x, double at, double y, const char *more,
                     const char *text) {
  fprintf(x->out, "<text x=\"%.6g\" y=\"%.6g\"%s>", at, y, more);
  rt_put_escaped(x->out, text);
  fputs("</text>\n", x->out);
}

/* ---- cells ---- */

static int level_of(const Cell *c) { return (int)((c->blocks * LEVELS - 1) / c->of); }

static bool drawn_as(const Cell *c, int part, int level) {
  return c->blocks && c->part == part && level_of(c) == level;
}

/* One path of all cells of a colour and shade; nothing if there are none. */
static void put_part(const LayoutPicture *x, const Cells *cells, int part, int level, double left,
                     double top) {
  bool any = false;
  double s = x->side;
  for (int64_t r = 0; r < cells->rows; r++)
    for (int64_t c = 0, n; c < cells->columns; c += n + 1) {
      const Cell *row = cells->at + r * cells->columns;
      for (n = 0; c + n < cells->columns && drawn_as(&row[c + n], part, level);) n++;
      if (!n) continue;
      const char *colour = part == CELL_PARTIAL ? partial : colour_of(x->l->parts.at[part]);
      if (!any)
        fprintf(x->out, "<path fill=\"%s\" fill-opacity=\"%s\" d=\"", colour, shades[level]);
      fprintf(x->out, "M%.6g %.6gh%.6gv%.6gh%.6gz", left + (double)c * s, top + (double)r * s,
              (double)n * s, s, -(double)n * s);
      any = true;
    }
  if (!any) return;
  const char *name = part == CELL_PARTIAL ? "partial" : x->l->parts.at[part];
  fprintf(x->out, "\"><title>%s</title></path>\n", name);
}

/* Lines between cells, where they are large enough to be told apart. */
static void put_grid(const LayoutPicture *x, const Cells *c, double left, double top) {
  double s = x->side, wide = (double)c->columns * s, high = (double)c->rows * s;
  if (s >= 6) {
    fputs("<path class=\"g\" d=\"", x->out);
    for (int64_t i = 1; i < c->columns; i++)
      fprintf(x->out, "M%.6g %.6gv%.6g", left + (double)i * s, top, high);
    for (int64_t i = 1; i < c->rows; i++)
      fprintf(x->out, "M%.6g %.6gh%.6g", left, top + (double)i * s, wide);
    fputs("\"/>\n", x->out);
  }
  fprintf(x->out, "<path class=\"e\" d=\"M%.6g %.6gh%.6gv%.6gh%.6gz\"/>\n", left, top, wide, high,
          -wide);
}

static void put_scale(const LayoutPicture *x, const Cells *c, double left, double top) {
  const LayoutFigures *f = &x->l->figures;
  double wide = (double)c->columns * x->side, high = (double)c->rows * x->side;
  const char *keys = arena_printf(x->a, "%s %lld", f->key, (long long)f->keys - 1),
             *queries = arena_printf(x->a, "%lld", (long long)f->queries - 1);
  put_text(x, left, top - 5, "", "0");
  put_text(x, left + wide, top - 5, " text-anchor=\"end\"", keys);
  put_text(x, left - 5, top + 10, " text-anchor=\"end\"", "0");
  put_text(x, left - 5, top + high, " text-anchor=\"end\"", queries);
  put_text(x, left - 5, top + high / 2 + 4, " text-anchor=\"end\"", f->query);
}

/* ---- a head ---- */

static const char *caption(const LayoutPicture *x, int64_t number) {
  const LayoutHead *h = &x->l->heads.at[number];
  const char *heads = layout_heads(x->a, x->l, number);
  double all = (double)h->map.rows * (double)h->map.columns;
  double listed = (double)h->count.full + (double)h->count.partial;
  return arena_printf(x->a, "%s%s%.0f of %.0f blocks (%.1f %%), %lld partial", heads,
                      *heads ? ": " : "", listed, all, 100 * listed / all,
                      (long long)h->count.partial);
}

static void put_head(const LayoutPicture *x, int64_t number, double left, double top) {
  const LayoutHead *h = &x->l->heads.at[number];
  Cells c = layout_cells(x->a, h, MOST_CELLS);
  for (int level = 0; level < LEVELS; level++) {
    for (int p = 0; p < (int)x->l->parts.n; p++) put_part(x, &c, p, level, left, top);
    put_part(x, &c, CELL_PARTIAL, level, left, top);
  }
  put_grid(x, &c, left, top), put_scale(x, &c, left, top);
  if (*h->name)
    put_text(x, left, top + (double)c.rows * x->side + 20, " class=\"h\"", caption(x, number));
}

/* ---- around ---- */

static void put_swatch(const LayoutPicture *x, double *at, double y, const char *colour,
                       const char *name) {
  fprintf(x->out, "<rect x=\"%.6g\" y=\"%.6g\" width=\"11\" height=\"11\" fill=\"%s\"/>", *at,
          y - 10, colour);
  put_text(x, *at + 15, y, "", name);
  *at += 34 + 7 * (double)strlen(name);
}

static void put_legend(const LayoutPicture *x, double y, int64_t blocks) {
  double at = MARGIN;
  for (uint32_t i = 0; i < x->l->parts.n; i++)
    put_swatch(x, &at, y, colour_of(x->l->parts.at[i]), x->l->parts.at[i]);
  if (layout_has_partial(x->l)) put_swatch(x, &at, y, partial, "partial");
  const char *note = "";
  if (blocks > 1)
    note = arena_printf(x->a, "a cell is %lld x %lld blocks, pale: few of them are listed. ",
                        (long long)blocks, (long long)blocks);
  if (x->shown < x->different)
    note = arena_printf(x->a, "%s%lld other pictures are left out", note,
                        (long long)(x->different - x->shown));
  if (*note) put_text(x, at, y, "", note);
}

static void put_head_lines(const LayoutPicture *x, int64_t blocks) {
  const LayoutFigures *f = &x->l->figures;
  put_text(x, MARGIN, 22, " class=\"n\"",
           arena_printf(x->a, "%s [%s, %s] = %s", f->name, f->query, f->key, x->l->text));
  const char *unit =
      f->counted ? ""
                 : arena_printf(x->a, "; drawn in blocks of %lld, it has none", (long long)f->unit);
  put_text(x, MARGIN, 40, "", arena_printf(x->a, "%s%s", layout_words(x->a, f), unit));
  put_legend(x, 60, blocks);
}

static int64_t different_heads(const Layout *l) {
  int64_t n = 0;
  for (uint32_t i = 0; i < l->heads.n; i++) n += l->heads.at[i].like == (int64_t)i;
  return n;
}

void layout_svg(FILE *out, Arena *a, const Layout *l) {
  static const char style[] =
      "<style>text{font:12px system-ui,sans-serif;fill:#555}.n{font:600 13px "
      "ui-monospace,monospace;"
      "fill:#222}.g{stroke:#8883;fill:none}.e{stroke:#888;fill:none}"
      "@media(prefers-color-scheme:dark){text{fill:#aaa}.n{fill:#eee}}</style>\n";
  LayoutPicture x = {.out = out, .a = a, .l = l, .different = different_heads(l)};
  x.shown = min_i64(x.different, HEADS);
  Cells c = layout_cells(a, &l->heads.at[0], MOST_CELLS);
  x.side = (double)PANEL / (double)max_i64(c.rows, c.columns);
  double wide = LEFT + (double)c.columns * x.side, high = (double)c.rows * x.side + CAPTION;
  int64_t across = min_i64(x.shown, WIDEST), down = ceil_div(x.shown, across);
  double width = 2 * MARGIN + (double)across * wide;
  double line = 2 * MARGIN + 8 * (double)strlen(l->text) + 200;
  if (width < line) width = line;
  if (width < WIDTH) width = WIDTH;
  double height = TOP + (double)down * high + MARGIN;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.6g\" height=\"%.6g\" "
          "viewBox=\"0 0 %.6g %.6g\" role=\"img\" aria-label=\"layout %s\">\n%s",
          width, height, width, height, l->figures.name, style);
  put_head_lines(&x, c.blocks);
  for (int64_t i = 0, n = 0; i < (int64_t)l->heads.n && n < x.shown; i++) {
    if (l->heads.at[i].like != i) continue;
    put_head(&x, i, LEFT + (double)(n % across) * wide, TOP + (double)(n / across) * high), n++;
  }
  fputs("</svg>\n", out);
}
