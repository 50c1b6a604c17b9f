/* Part of `shardc plan --html`: the schedule of a pipeline's stages, by its table and, where a run
   was traced (--measured), as it was; and what stages do not use of either. */
#include "plan_report.h"
#include "runtime/chart.h"

static void put_key(FILE *file, const char *colour, const char *word) {
  fprintf(file, "<span class=\"key\" style=\"background:%s\"></span>%s, ", colour, word);
}

static void put_keys(FILE *file, const ScheduleTable *table) {
  fputs("<p>", file);
  put_key(file, "#0072B2", "forward"), put_key(file, "#E69F00", "backward");
  if (table->wait) put_key(file, "#009E73", "gradients of weights");
  put_key(file, "#CC79A7", "several in turn");
  if (table->stages <= 16) put_key(file, "#56B4E9", "receive"), put_key(file, "#D55E00", "send");
  fputs("nothing: the stage waits.</p>\n", file);
}

static void put_percent(FILE *file, Arena *arena, double part) {
  plan_html_number(file, arena_printf(arena, "%.1f %%", 100 * part));
}

static void put_idle(FILE *file, const Planned *planned, const PlanGantt *plan) {
  const Measured *measured = planned->measured;
  Arena *arena = planned->m->arena;
  plan_html_heads(file, "a_stage_computes_nothing #by_the_table #measured #of_it_in_turns");
  for (int64_t s = 0; s < plan->table.stages; s++) {
    fprintf(file, "<tr><td>stage %lld</td>", (long long)s);
    put_percent(file, arena, plan_idle(plan, s));
    put_percent(file, arena, plan_idle(&measured->gantt, s));
    put_percent(file, arena, measured->still[s] / measured->gantt.total);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n", file);
}

static void put_measured(FILE *file, const Planned *planned, const PlanGantt *plan) {
  const Measured *measured = planned->measured;
  fprintf(file, "<h3>The same, measured</h3>\n<p>Step %lld, of median time among %lld in ",
          (long long)measured->step, (long long)measured->steps);
  rt_put_escaped(file, measured->path);
  fprintf(file, ": %.4g s from the first turn to the last, on the first rank of each stage, ",
          measured->gantt.total);
  if (measured->error > 0)
    fprintf(file, "times of different ranks may be off by %.3g s", measured->error);
  else fputs("on one clock", file);
  fputs(". A stage may also be blocked during a turn.</p>\n", file);
  plan_gantt_svg(file, planned, &measured->gantt);
  put_idle(file, planned, plan);
}

void plan_html_schedule(FILE *file, const Planned *planned) {
  PlanGantt gantt;
  if (!plan_gantt(planned, &gantt)) return;
  fprintf(file,
          "<h3>The schedule of the stages</h3>\n<p>%lld stages, %lld micro-batches, the operations "
          "of each; messages are drawn without time.</p>\n",
          (long long)gantt.table.stages, (long long)gantt.table.parts);
  put_keys(file, &gantt.table);
  plan_gantt_svg(file, planned, &gantt);
  if (planned->measured) put_measured(file, planned, &gantt);
}
