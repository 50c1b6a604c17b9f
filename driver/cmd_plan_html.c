/* `shardc plan --html`: one page about plans, with nothing to load and nothing that runs. Per plan
   the picture of cmd_plan_svg.c, and everything that is drawn as a table as well: bytes by what
   they are for, the largest buffers, what each axis sends, collectives, the parts of a step's time.
   Several plans are first shown beside each other. */
#include "cmd_plan.h"
#include "ir/support/num.h"
#include "ir/placement.h"
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

PlanPage *plan_page_new(Arena *a) {
  PlanPage *p = ARENA_NEW(a, PlanPage);
  p->arena = a;
  p->body = heap_stream(&p->text, &p->n);
  if (!p->body) bug("no memory");
  return p;
}

/* ---- small pieces ---- */

static void put(FILE *o, const char *before, const char *text, const char *after) {
  fputs(before, o);
  rt_put_escaped(o, text);
  fputs(after, o);
}

static void put_number(FILE *o, const char *text) { put(o, "<td class=\"n\">", text, "</td>"); }

static void put_amount(FILE *o, Arena *a, double bytes) { put_number(o, plan_amount(a, bytes)); }

static void put_heads(FILE *o, const char *heads) { /* a blank between; _ is one; # for numbers */
  fputs("<table><tr>", o);
  for (size_t n; *heads; heads += n + (heads[n] == ' ')) {
    n = strcspn(heads, " ");
    bool number = *heads == '#';
    fprintf(o, "<th%s>", number ? " class=\"n\"" : "");
    for (const char *c = heads + number; c < heads + n; c++) putc(*c == '_' ? ' ' : *c, o);
    fputs("</th>", o);
  }
  fputs("</tr>\n", o);
}

/* ---- one plan ---- */

/* A column per class of ranks; with the share of the rank, where all ranks are alike. */
static void put_part(FILE *o, const Planned *p, int i) {
  for (uint32_t k = 0; k < p->programs.n; k++) {
    PlanPart part[PLAN_PARTS];
    plan_parts(p, &p->class[k].need, part);
    if (!k)
      fprintf(o, "<tr><td><span class=\"key\" style=\"background:%s\"></span>%s</td>",
              plan_colour(i), part[i].name);
    put_amount(o, p->m->arena, (double)part[i].bytes);
    if (p->programs.n == 1)
      put_number(o, arena_printf(p->m->arena, "%.1f %%",
                                 100 * (double)part[i].bytes /
                                     (double)(p->need.total + p->machine.reserve)));
  }
  fputs("</tr>\n", o);
}

static void put_parts(FILE *o, const Planned *p) {
  bool alike = p->programs.n == 1;
  const char *heads = alike ? "bytes_of_a_rank # #share" : "bytes_of_a_rank_of";
  for (uint32_t k = 0; !alike && k < p->programs.n; k++)
    heads = arena_printf(p->m->arena, "%s #%s", heads, p->class[k].name);
  put_heads(o, heads);
  for (int i = 0; i < PLAN_PARTS; i++) put_part(o, p, i);
  fputs("<tr><td>total</td>", o);
  for (uint32_t k = 0; k < p->programs.n; k++)
    put_amount(o, p->m->arena, (double)(p->class[k].need.total + p->machine.reserve));
  fputs(alike ? "<td></td></tr>\n" : "</tr>\n<tr><td>ranks</td>", o);
  for (uint32_t k = 0; !alike && k < p->programs.n; k++)
    put_number(o, arena_printf(p->m->arena, "%lld", (long long)p->class[k].count));
  fputs(alike ? "</table>\n" : "</tr></table>\n", o);
}

static void put_largest(FILE *o, const Planned *p) {
  static const char *const uses[] = {"working", "gradient", "saved", "buffer"};
  _Static_assert(COUNT_OF(uses) == USE_COUNT, "a word per Use");
  fputs("<h3>The largest buffers at the largest moment</h3>\n", o);
  put_heads(o, "buffer what_for #bytes");
  for (uint32_t i = 0; i < p->timeline.alive.n && i < LARGEST; i++) {
    const Alive *x = &p->timeline.alive.at[i];
    put(o, "<tr><td>", plan_buffer(p, x), "</td>");
    put(o, "<td>", uses[x->use], "</td>");
    put_amount(o, p->m->arena, (double)x->bytes);
    fputs("</tr>\n", o);
  }
  fputs("</table>\n", o);
}

static double bytes_over(const Planned *p, uint32_t axis) {
  double sum = 0;
  for (uint32_t i = 0; i < p->step.traffic.n; i++)
    if (p->step.traffic.at[i].axis == (int)axis) sum += p->step.traffic.at[i].bytes;
  return sum;
}

static void put_axes(FILE *o, const Planned *p) {
  double most = 1;
  if (!p->m->mesh.n) return;
  for (uint32_t i = 0; i < p->m->mesh.n; i++)
    if (bytes_over(p, i) > most) most = bytes_over(p, i);
  fprintf(o, "<h3>Bytes that a rank sends in a step</h3>\n<svg viewBox=\"0 0 960 %u\">\n",
          24 * p->m->mesh.n);
  for (uint32_t i = 0; i < p->m->mesh.n; i++) {
    int y = 24 * (int)i, width = (int)(BAR * bytes_over(p, i) / most);
    fprintf(o, "<text class=\"t\" x=\"112\" y=\"%d\" text-anchor=\"end\">%s</text>", y + 15,
            p->m->mesh.at[i].name);
    fprintf(o, "<rect x=\"120\" y=\"%d\" width=\"%d\" height=\"16\" fill=\"%s\"/>", y + 3, width,
            axis_crosses(p->m, &p->machine, (int)i) ? "#D55E00" : "#0072B2");
    fprintf(o, "<text class=\"t\" x=\"%d\" y=\"%d\">%s%s</text>\n", 126 + width, y + 15,
            plan_amount(p->m->arena, bytes_over(p, i)),
            axis_crosses(p->m, &p->machine, (int)i) ? ", between nodes" : "");
  }
  fputs("</svg>\n", o);
}

static void put_collectives(FILE *o, const Planned *p, const PlanStep *s) {
  if (!s->traffic.n) return;
  put_heads(o, "over collective #calls #elements #bytes");
  for (uint32_t i = 0; i < s->traffic.n; i++) {
    const Traffic *t = &s->traffic.at[i];
    fprintf(o, "<tr><td>%s</td><td>%s</td>", p->m->mesh.at[t->axis].name, op_name(t->kind));
    put_number(o, arena_printf(p->m->arena, "%.0f", t->calls));
    put_number(o, arena_printf(p->m->arena, "%.0f", t->elements));
    put_amount(o, p->m->arena, t->bytes);
    fputs("</tr>\n", o);
  }
  fputs("</table>\n", o);
}

static void put_accumulation(FILE *o, const Planned *p) {
  if (!p->naccumulate) return;
  fputs("<h3>Gradients between micro-batches</h3>\n", o);
  put_heads(o, "accumulate #total #gradients #sent_in_a_step");
  for (int i = 0; i < p->naccumulate; i++) {
    const Accumulation *a = &p->accumulate[i];
    fprintf(o, "<tr><td>%s%s</td>", a->name, a->taken ? " (taken)" : "");
    put_amount(o, p->m->arena, (double)(a->cost.need.total + p->machine.reserve));
    put_amount(o, p->m->arena, (double)a->cost.need.gradients);
    put_amount(o, p->m->arena, a->cost.bytes);
    fputs("</tr>\n", o);
  }
  fputs("</table>\n", o);
}

static void put_seconds(FILE *o, const char *what, double seconds) {
  if (seconds > 0) fprintf(o, "<tr><td>%s</td><td class=\"n\">%.3g s</td></tr>\n", what, seconds);
}

static void put_work(FILE *o, const Planned *p, const PlanStep *s, const char *head) {
  const StepTime *t = &s->time;
  fprintf(o, "<h3>%s</h3>\n<p>%.4g FLOP per rank, %s between kernels and memory.</p>\n", head,
          s->flop, plan_amount(p->m->arena, s->moved));
  if (s->waited > 0)
    fprintf(o, "<p>A bubble of %.0f %%: for %.4g FLOP of other stages it waits.</p>\n",
            100 * plan_bubble(s), s->waited);
  if (t->total <= 0) return;
  put_heads(o, "at_the_machine's_peaks #");
  put_seconds(o, "computation", t->compute), put_seconds(o, "memory, beside it", t->memory);
  for (uint32_t i = 0; i < p->m->mesh.n; i++) {
    const char *axis = p->m->mesh.at[i].name;
    put_seconds(o, arena_printf(p->m->arena, "over %s", axis), t->exposed[i]);
    put_seconds(o, arena_printf(p->m->arena, "over %s, hidden beside the computation", axis),
                t->axis[i] - t->exposed[i]);
  }
  put_seconds(o, "slower beside messages that processors carry", t->slowed);
  put_seconds(o, "at least", t->total);
  fputs("</table>\n", o);
}

static void put_lanes(FILE *o, const Planned *p) {
  if (p->step.time.total <= 0 || !p->m->mesh.n || p->step.lanes.shown <= 0) return;
  fputs("<h3>Kernels and messages of a rank, at these peaks</h3>\n"
        "<p>Yellow: the kernels wait for messages. Of a loop some rounds are drawn.</p>\n",
        o);
  plan_lanes_svg(o, p);
}

static void put_schedule(FILE *o, const Planned *p) {
  PlanGantt s;
  if (!plan_gantt(p, &s)) return;
  fprintf(
      o,
      "<h3>The schedule of the stages</h3>\n<p>%lld stages, %lld micro-batches, the operations of "
      "each; messages take no time here. <span style=\"color:#0072B2\">Forward</span>, "
      "<span style=\"color:#E69F00\">backward</span>, ",
      (long long)s.table.stages, (long long)s.table.parts);
  if (s.table.wait) fputs("<span style=\"color:#009E73\">gradients of weights</span>, ", o);
  fputs("<span style=\"color:#CC79A7\">several in turn</span>; between them a stage waits.</p>\n",
        o);
  plan_gantt_svg(o, p, &s);
}

static void put_frozen(FILE *o, const Planned *p) {
  if (!p->freezes) return;
  put_work(o, p, &p->frozen, arena_printf(p->m->arena, "After %s, frozen", plan_warm_up(p)));
  put_collectives(o, p, &p->frozen);
}

/* The class that needs the most, whose memory is drawn. */
static const char *drawn_ranks(const Planned *p) {
  for (uint32_t k = 0; k < p->programs.n && p->programs.n > 1; k++)
    if (p->programs.at[k] == p->m)
      return arena_printf(p->m->arena, "stages `%s`, which need the most", p->class[k].name);
  int64_t ranks = mesh_ranks(p->m);
  return ranks > 1 ? arena_printf(p->m->arena, "ranks 0–%lld", (long long)ranks - 1) : "the rank";
}

static void put_verdict(FILE *o, const Planned *p) {
  put(o, "<p>", drawn_ranks(p), ": ");
  fprintf(o, "%s", plan_amount(p->m->arena, (double)(p->need.total + p->machine.reserve)));
  if (p->machine.memory)
    fprintf(o, " of %s: <span%s>%s</span>", plan_amount(p->m->arena, (double)p->machine.memory),
            p->fits ? "" : " class=\"no\"", p->fits ? "fits" : "does not fit");
  fputs(".</p>\n", o);
}

void plan_page_add(PlanPage *page, const Planned *p) {
  PlanRow row = {arena_printf(page->arena, "%s", p->name),
                 arena_printf(page->arena, "%s", plan_mesh(p)),
                 {{0}},
                 p->machine.memory,
                 p->fits};
  plan_parts(p, &p->need, row.part);
  vec_push(page->arena, page->row, row);
  put(page->body, "<section><h2>", plan_title(p), "</h2>\n");
  put_verdict(page->body, p);
  plan_svg(page->body, p);
  put_parts(page->body, p);
  put_largest(page->body, p);
  put_axes(page->body, p);
  put_collectives(page->body, p, &p->step);
  put_accumulation(page->body, p);
  put_work(page->body, p, &p->step, "A step");
  put_lanes(page->body, p);
  put_schedule(page->body, p);
  put_frozen(page->body, p);
  fputs("</section>\n", page->body);
}

/* ---- all of them ---- */

static double row_bytes(const PlanRow *r) {
  double sum = 0;
  for (int i = 0; i < PLAN_PARTS; i++) sum += (double)r->part[i].bytes;
  return sum;
}

static void put_row(FILE *o, Arena *a, const PlanRow *r, int y, double most) {
  double x = 120;
  fprintf(o, "<text class=\"t\" x=\"112\" y=\"%d\" text-anchor=\"end\">", y + 15);
  rt_put_escaped(o, r->name);
  fputs("</text>", o);
  for (int i = 0; i < PLAN_PARTS; i++) {
    double width = BAR * (double)r->part[i].bytes / most;
    if (width > 0)
      fprintf(o,
              "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"16\" fill=\"%s\"><title>%s "
              "%s</title></rect>",
              x, y + 3, width, plan_colour(i), r->part[i].name,
              plan_amount(a, (double)r->part[i].bytes));
    x += width;
  }
  fprintf(o, "<text class=\"t\" x=\"%.1f\" y=\"%d\">%s%s</text>\n", x + 6, y + 15,
          plan_amount(a, row_bytes(r)), r->memory && !r->fits ? ", does not fit" : "");
}

static void put_comparison(FILE *o, const PlanPage *p) {
  double most = 1;
  if (p->row.n < 2) return;
  for (uint32_t i = 0; i < p->row.n; i++)
    if (row_bytes(&p->row.at[i]) > most) most = row_bytes(&p->row.at[i]);
  fprintf(o, "<svg viewBox=\"0 0 960 %u\">\n", 24 * p->row.n);
  for (uint32_t i = 0; i < p->row.n; i++) put_row(o, p->arena, &p->row.at[i], 24 * (int)i, most);
  fputs("</svg>\n", o);
}

Exit plan_page_write(PlanPage *p, Ctx *c, const char *model, const char *path) {
  char *text = NULL;
  size_t n, style;
  FILE *o = heap_stream(&text, &n);
  if (!o) bug("no memory");
  fclose(p->body);
  const char *css = plan_css_text(&style);
  put(o, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>plans of ", model,
      "</title>\n");
  fprintf(o,
          "<style>\n%.*s.t{font:12px system-ui,sans-serif;fill:var(--dim)}</style></head><body>\n",
          (int)style, css);
  put(o, "<h1>What plans of ", model, " cost</h1>\n");
  put_comparison(o, p);
  fwrite(p->text, 1, p->n, o);
  fputs("</body></html>\n", o);
  fclose(o);
  Exit e = write_text(c, path, text, n);
  free(text), free(p->text);
  return e;
}
