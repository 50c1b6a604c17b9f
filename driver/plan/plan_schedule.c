/* Part of `shardc plan`: the schedule of a pipeline's stages, drawn by its table and, where a run
   was traced (--measured), as it was; then what stages do not use of either. */
#include "plan_report.h"

typedef struct DrawnSchedule {
  const Planned *planned;
  PlanGantt gantt;
} DrawnSchedule;

static void draw_key(FILE *file, const char *colour, const char *word) {
  fprintf(file, "<span class=\"key\" style=\"background:%s\"></span>%s, ", colour, word);
}

static void draw_keys(FILE *file, const ScheduleTable *table) {
  fputs("<p>", file);
  draw_key(file, "#0072B2", "forward"), draw_key(file, "#E69F00", "backward");
  if (table->wait) draw_key(file, "#009E73", "gradients of weights");
  draw_key(file, "#CC79A7", "several in turn");
  if (table->stages <= 16) draw_key(file, "#56B4E9", "receive"), draw_key(file, "#D55E00", "send");
  fputs("nothing: the stage waits.</p>\n", file);
}

static void draw(FILE *file, const void *what) {
  const DrawnSchedule *drawn = what;
  draw_keys(file, &drawn->gantt.table);
  plan_gantt_svg(file, drawn->planned, &drawn->gantt);
}

static void draw_measured(FILE *file, const void *planned) {
  plan_gantt_svg(file, planned, &((const Planned *)planned)->measured->gantt);
}

void topic_schedule(Sheet *sheet, const Planned *planned) {
  DrawnSchedule *drawn = ARENA_NEW(planned->m->arena, DrawnSchedule);
  drawn->planned = planned;
  if (!plan_gantt(planned, &drawn->gantt)) return;
  sheet_heading(sheet, "The schedule of the stages");
  sheet_page(
      sheet,
      "{} stages, {} micro-batches, the operations of each; messages are drawn without time.\n",
      as_count((double)drawn->gantt.table.stages), as_count((double)drawn->gantt.table.parts));
  sheet_draw(sheet, draw, drawn);
  if (!planned->measured) return; /* it has a schedule */
  sheet_heading(sheet, "The same, measured");
  sheet_page(sheet,
             "A step of median time, on the first rank of each stage. A stage may also be blocked "
             "during a turn.\n");
  sheet_draw(sheet, draw_measured, planned);
  plan_measured(sheet, planned, &drawn->gantt);
}
