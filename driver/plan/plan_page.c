/* `shardc plan --html`: one page that loads nothing; the sheet of each plan is a section. Several
   plans are first compared in one picture. */
#include "plan_report.h"
#include "ir/support/heap.h"
#include "runtime/chart.h"
#include <stdlib.h>

enum { BAR = 640 };

typedef struct PlanRow { /* of the comparison */
  const char *name;
  PlanPart part[PLAN_PARTS];
  int64_t memory;
  bool fits;
} PlanRow;

struct PlanPage {
  Arena *arena;
  VEC(PlanRow) row;
  FILE *body;
  char *text;
  size_t n;
};

PlanPage *plan_page_new(Arena *arena) {
  PlanPage *page = ARENA_NEW(arena, PlanPage);
  page->arena = arena;
  page->body = heap_stream(&page->text, &page->n);
  return page;
}

void plan_page_add(PlanPage *page, const Planned *planned, const Sheet *sheet) {
  PlanRow row = {arena_printf(page->arena, "%s", planned->name),
                 {{0}},
                 planned->machine.memory,
                 planned->fits};
  plan_parts(planned, &planned->need, row.part);
  vec_push(page->arena, page->row, row);
  fputs("<section>", page->body);
  sheet_html(page->body, sheet);
  fputs("</section>\n", page->body);
}

static double row_bytes(const PlanRow *row) {
  double sum = 0;
  for (int i = 0; i < PLAN_PARTS; i++) sum += (double)row->part[i].bytes;
  return sum;
}

static void put_row(FILE *file, Arena *arena, const PlanRow *row, int y, double most) {
  double x = 120;
  fprintf(file, "<text class=\"t\" x=\"112\" y=\"%d\" text-anchor=\"end\">", y + 15);
  rt_put_escaped(file, row->name);
  fputs("</text>", file);
  for (int i = 0; i < PLAN_PARTS; i++) {
    double width = BAR * (double)row->part[i].bytes / most;
    if (width > 0)
      fprintf(file,
              "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" fill=\"%s\"><title>%s "
              "%s</title></rect>",
              x, y + 3, width, plan_colour(i), row->part[i].name,
              arena_amount(arena, (double)row->part[i].bytes));
    x += width;
  }
  fprintf(file, "<text class=\"t\" x=\"%.1f\" y=\"%d\">%s%s</text>\n", x + 6, y + 15,
          arena_amount(arena, row_bytes(row)), row->memory && !row->fits ? ", does not fit" : "");
}

static void put_comparison(FILE *file, const PlanPage *page) {
  double most = 1;
  if (page->row.n < 2) return;
  for (uint32_t i = 0; i < page->row.n; i++)
    if (row_bytes(&page->row.at[i]) > most) most = row_bytes(&page->row.at[i]);
  fprintf(file, "<div class=\"wide\"><svg viewBox=\"0 0 960 %u\">\n", 24 * page->row.n);
  for (uint32_t i = 0; i < page->row.n; i++)
    put_row(file, page->arena, &page->row.at[i], 24 * (int)i, most);
  fputs("</svg></div>\n", file);
}

Exit plan_page_write(PlanPage *page, Ctx *c, const char *model, const char *path) {
  char *text = NULL;
  size_t n, style;
  FILE *file = heap_stream(&text, &n);
  fclose(page->body);
  const char *css = plan_css_text(&style);
  fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta name=\"viewport\" content=\"width=device-width\"><title>plans of ",
        file);
  rt_put_escaped(file, model), fputs("</title>\n", file);
  fprintf(file,
          "<style>\n%.*s.t{font:12px system-ui,sans-serif;fill:var(--dim)}</style></head><body>\n",
          (int)style, css);
  fputs("<h1>Plans of ", file), rt_put_escaped(file, model), fputs("</h1>\n", file);
  put_comparison(file, page);
  fwrite(page->text, 1, page->n, file);
  fputs("</body></html>\n", file);
  fclose(file);
  Exit e = write_text(c, path, text, n);
  free(text), free(page->text);
  return e;
}
