/* `shardc plan --html`: one page about plans, without scripts or external resources. Each plan has
   the picture of plan_svg.c, and all drawn figures also as tables: bytes by purpose, the largest
   buffers, the traffic of each axis, collectives, the parts of a step's time. Several plans are
   first compared in one table. */
#include "plan_report.h"
#include "ir/support/num.h"
#include "ir/shape/placement.h"
#include "runtime/chart.h"
#include <stdlib.h>

enum { LARGEST = 8, BAR = 640 };

typedef struct PlanRow { /* of the comparison */
  const char *name, *mesh;
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
  if (!page->body) bug("no memory");
  return page;
}

/* ---- small pieces ---- */

static void put(FILE *file, const char *before, const char *text, const char *after) {
  fputs(before, file);
  rt_put_escaped(file, text);
  fputs(after, file);
}

void plan_html_number(FILE *file, const char *text) {
  put(file, "<td class=\"n\">", text, "</td>");
}

static void put_amount(FILE *file, Arena *arena, double bytes) {
  plan_html_number(file, arena_amount(arena, bytes));
}

void plan_html_heads(FILE *file, const char *heads) {
  fputs("<table><tr>", file);
  for (size_t n; *heads; heads += n + (heads[n] == ' ')) {
    n = strcspn(heads, " ");
    bool number = *heads == '#';
    fprintf(file, "<th%s>", number ? " class=\"n\"" : "");
    for (const char *c = heads + number; c < heads + n; c++) putc(*c == '_' ? ' ' : *c, file);
    fputs("</th>", file);
  }
  fputs("</tr>\n", file);
}

/* ---- one plan ---- */

/* A column per class of ranks; with the share of the rank, where all ranks are alike. */
static void put_part(FILE *file, const Planned *planned, int i) {
  for (uint32_t k = 0; k < planned->programs.n; k++) {
    PlanPart part[PLAN_PARTS];
    plan_parts(planned, &planned->class[k].need, part);
    if (!k)
      fprintf(file, "<tr><td><span class=\"key\" style=\"background:%s\"></span>%s</td>",
              plan_colour(i), part[i].name);
    put_amount(file, planned->m->arena, (double)part[i].bytes);
    if (planned->programs.n == 1)
      plan_html_number(file,
                       arena_printf(planned->m->arena, "%.1f %%",
                                    100 * (double)part[i].bytes /
                                        (double)(planned->need.total + planned->machine.reserve)));
  }
  fputs("</tr>\n", file);
}

/* Writes host memory if any class uses it. */
static void put_host(FILE *file, const Planned *planned) {
  if (!planned->host.total || planned->programs.n < 2) return;
  fputs("<tr><td>on the host</td>", file);
  for (uint32_t k = 0; k < planned->programs.n; k++)
    put_amount(file, planned->m->arena, (double)planned->class[k].need.host);
  fputs("</tr>\n", file);
}

static void put_parts(FILE *file, const Planned *planned) {
  bool alike = planned->programs.n == 1;
  const char *heads = alike ? "bytes_of_a_rank # #share" : "bytes_of_a_rank_of";
  for (uint32_t k = 0; !alike && k < planned->programs.n; k++)
    heads = arena_printf(planned->m->arena, "%s #%s", heads, planned->class[k].name);
  plan_html_heads(file, heads);
  for (int i = 0; i < PLAN_PARTS; i++) put_part(file, planned, i);
  fputs("<tr><td>total</td>", file);
  for (uint32_t k = 0; k < planned->programs.n; k++)
    put_amount(file, planned->m->arena,
               (double)(planned->class[k].need.total + planned->machine.reserve));
  fputs(alike ? "<td></td></tr>\n" : "</tr>\n", file);
  put_host(file, planned);
  if (!alike) fputs("<tr><td>ranks</td>", file);
  for (uint32_t k = 0; !alike && k < planned->programs.n; k++)
    plan_html_number(file,
                     arena_printf(planned->m->arena, "%lld", (long long)planned->class[k].count));
  fputs(alike ? "</table>\n" : "</tr></table>\n", file);
}

static void put_largest(FILE *file, const Planned *planned) {
  static const char *const uses[] = {"working", "gradient", "saved", "buffer"};
  _Static_assert(COUNT_OF(uses) == USE_COUNT, "a word per Use");
  fputs("<h3>The largest buffers at the largest moment</h3>\n", file);
  plan_html_heads(file, "buffer what_for #bytes");
  for (uint32_t i = 0; i < planned->timeline.alive.n && i < LARGEST; i++) {
    const Alive *alive = &planned->timeline.alive.at[i];
    put(file, "<tr><td>", plan_buffer(planned, alive), "</td>");
    put(file, "<td>", uses[alive->use], "</td>");
    put_amount(file, planned->m->arena, (double)alive->bytes);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n", file);
}

static double bytes_over(const Planned *planned, uint32_t axis) {
  double sum = 0;
  for (uint32_t i = 0; i < planned->step.traffic.n; i++)
    if (planned->step.traffic.at[i].axis == (int)axis) sum += planned->step.traffic.at[i].bytes;
  return sum;
}

static void put_axes(FILE *file, const Planned *planned) {
  double most = 1;
  if (!planned->m->mesh.n) return;
  for (uint32_t i = 0; i < planned->m->mesh.n; i++)
    if (bytes_over(planned, i) > most) most = bytes_over(planned, i);
  fprintf(file, "<h3>Bytes that a rank sends in a step</h3>\n<svg viewBox=\"0 0 960 %u\">\n",
          24 * planned->m->mesh.n);
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) {
    int y = 24 * (int)i, width = (int)(BAR * bytes_over(planned, i) / most);
    fprintf(file, "<text class=\"t\" x=\"112\" y=\"%d\" text-anchor=\"end\">%s</text>", y + 15,
            planned->m->mesh.at[i].name);
    fprintf(file, "<rect x=\"120\" y=\"%d\" width=\"%d\" height=\"16\" fill=\"%s\"/>", y + 3, width,
            axis_crosses(planned->m, &planned->machine, (int)i) ? "#D55E00" : "#0072B2");
    fprintf(file, "<text class=\"t\" x=\"%d\" y=\"%d\">%s%s</text>\n", 126 + width, y + 15,
            arena_amount(planned->m->arena, bytes_over(planned, i)),
            axis_crosses(planned->m, &planned->machine, (int)i) ? ", between nodes" : "");
  }
  fputs("</svg>\n", file);
}

static void put_collectives(FILE *file, const Planned *planned, const PlanStep *step) {
  if (!step->traffic.n) return;
  plan_html_heads(file, "over collective #calls #elements #bytes");
  for (uint32_t i = 0; i < step->traffic.n; i++) {
    const Traffic *traffic = &step->traffic.at[i];
    fprintf(file, "<tr><td>%s</td><td>%s</td>", planned->m->mesh.at[traffic->axis].name,
            op_name(traffic->kind));
    plan_html_number(file, arena_printf(planned->m->arena, "%.0f", traffic->calls));
    plan_html_number(file, arena_printf(planned->m->arena, "%.0f", traffic->elements));
    put_amount(file, planned->m->arena, traffic->bytes);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n", file);
}

static void put_accumulation(FILE *file, const Planned *planned) {
  if (!planned->naccumulate) return;
  fputs("<h3>Gradients between micro-batches</h3>\n", file);
  plan_html_heads(file, "accumulate #total #gradients #sent_in_a_step");
  for (int i = 0; i < planned->naccumulate; i++) {
    const Accumulation *accumulation = &planned->accumulate[i];
    fprintf(file, "<tr><td>%s%s</td>", accumulation->name, accumulation->taken ? " (taken)" : "");
    put_amount(file, planned->m->arena,
               (double)(accumulation->cost.need.total + planned->machine.reserve));
    put_amount(file, planned->m->arena, (double)accumulation->cost.need.gradients);
    put_amount(file, planned->m->arena, accumulation->cost.bytes);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n", file);
}

static void put_seconds(FILE *file, const char *what, double seconds) {
  if (seconds > 0)
    fprintf(file, "<tr><td>%s</td><td class=\"n\">%.3g s</td></tr>\n", what, seconds);
}

static void put_work(FILE *file, const Planned *planned, const PlanStep *step, const char *head) {
  const StepTime *step_time = &step->time;
  fprintf(file, "<h3>%s</h3>\n<p>%.4g FLOP per rank, %s between kernels and memory.</p>\n", head,
          step->flop, arena_amount(planned->m->arena, step->moved));
  if (step->waited > 0)
    fprintf(file, "<p>A bubble of %.0f %%: for %.4g FLOP of other stages it waits.</p>\n",
            100 * plan_bubble(step), step->waited);
  if (step_time->total <= 0) return;
  plan_html_heads(file, "at_the_machine's_peaks #");
  put_seconds(file, "computation", step_time->compute),
      put_seconds(file, "memory, concurrent", step_time->memory);
  for (uint32_t i = 0; i < planned->m->mesh.n; i++) {
    const char *axis = planned->m->mesh.at[i].name;
    put_seconds(file, arena_printf(planned->m->arena, "over %s", axis), step_time->exposed[i]);
    put_seconds(file, arena_printf(planned->m->arena, "over %s, hidden by the computation", axis),
                step_time->axis[i] - step_time->exposed[i]);
    put_seconds(file, arena_printf(planned->m->arena, "latency of these, over %s", axis),
                step_time->latency[i]);
  }
  put_seconds(file, "slowdown by messages that CPUs carry", step_time->slowed);
  put_seconds(file, "at least", step_time->total);
  fputs("</table>\n", file);
}

static void put_lanes(FILE *file, const Planned *planned) {
  if (planned->step.time.total <= 0 || !planned->m->mesh.n || planned->step.lanes.shown <= 0)
    return;
  fputs("<h3>Kernels and messages of a rank, at these peaks</h3>\n<p>Yellow: the kernels wait for "
        "messages. Only some rounds of a loop are drawn.</p>\n",
        file);
  plan_lanes_svg(file, planned);
}

static void put_later(FILE *file, const Planned *planned) {
  if (!planned->kind) return;
  put_work(file, planned, &planned->later,
           arena_printf(planned->m->arena, "After %s, %s", plan_warm_up(planned), planned->kind));
  put_collectives(file, planned, &planned->later);
}

/* The class that needs the most, whose memory is drawn. */
static const char *drawn_ranks(const Planned *planned) {
  for (uint32_t k = 0; k < planned->programs.n && planned->programs.n > 1; k++)
    if (planned->programs.at[k] == planned->m)
      return arena_printf(planned->m->arena, "stages `%s`, which need the most",
                          planned->class[k].name);
  int64_t ranks = mesh_ranks(planned->m);
  return ranks > 1 ? arena_printf(planned->m->arena, "ranks 0–%lld", (long long)ranks - 1)
                   : "the rank";
}

static void put_verdict(FILE *file, const Planned *planned) {
  put(file, "<p>", drawn_ranks(planned), ": ");
  fprintf(
      file, "%s",
      arena_amount(planned->m->arena, (double)(planned->need.total + planned->machine.reserve)));
  if (planned->machine.memory)
    fprintf(file, " of %s: <span%s>%s</span>",
            arena_amount(planned->m->arena, (double)planned->machine.memory),
            planned->fits ? "" : " class=\"no\"", planned->fits ? "fits" : "does not fit");
  fputs(".</p>\n", file);
}

void plan_page_add(PlanPage *page, const Planned *planned) {
  PlanRow row = {arena_printf(page->arena, "%s", planned->name),
                 arena_printf(page->arena, "%s", plan_mesh(planned)),
                 {{0}},
                 planned->machine.memory,
                 planned->fits};
  plan_parts(planned, &planned->need, row.part);
  vec_push(page->arena, page->row, row);
  put(page->body, "<section><h2>", plan_title(planned), "</h2>\n");
  put_verdict(page->body, planned);
  plan_svg(page->body, planned);
  put_parts(page->body, planned);
  put_largest(page->body, planned);
  put_axes(page->body, planned);
  put_collectives(page->body, planned, &planned->step);
  plan_html_nodes(page->body, planned);
  put_accumulation(page->body, planned);
  put_work(page->body, planned, &planned->step, "A step");
  put_lanes(page->body, planned);
  plan_html_schedule(page->body, planned);
  put_later(page->body, planned);
  fputs("</section>\n", page->body);
}

/* ---- all of them ---- */

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
  fprintf(file, "<svg viewBox=\"0 0 960 %u\">\n", 24 * page->row.n);
  for (uint32_t i = 0; i < page->row.n; i++)
    put_row(file, page->arena, &page->row.at[i], 24 * (int)i, most);
  fputs("</svg>\n", file);
}

Exit plan_page_write(PlanPage *page, Ctx *c, const char *model, const char *path) {
  char *text = NULL;
  size_t n, style;
  FILE *file = heap_stream(&text, &n);
  if (!file) bug("no memory");
  fclose(page->body);
  const char *css = plan_css_text(&style);
  put(file, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>plans of ",
      model, "</title>\n");
  fprintf(file,
          "<style>\n%.*s.t{font:12px system-ui,sans-serif;fill:var(--dim)}</style></head><body>\n",
          (int)style, css);
  put(file, "<h1>What plans of ", model, " cost</h1>\n");
  put_comparison(file, page);
  fwrite(page->text, 1, page->n, file);
  fputs("</body></html>\n", file);
  fclose(file);
  Exit e = write_text(c, path, text, n);
  free(text), free(page->text);
  return e;
}
