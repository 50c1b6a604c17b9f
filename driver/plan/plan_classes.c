/* Part of `shardc plan`: classes of ranks (stage_class.h), each with a program of its own: which
   ranks they are, and what they need. Must not: refuse a plan; fit_check does (driver/fit). */
#include "plan_report.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"

/* ---- which ranks ---- */

static bool has_rank(const Module *m, const StageClass *class, int64_t rank) {
  int64_t at = class->axis < 0 ? 0 : mesh_coordinate(m, rank, class->axis);
  return at >= class->first && at <= class->last;
}

/* 0-7, 16-23 */
static void name_ranks(const Module *m, PlannedClass *planned_class) {
  StageClass class = module_class(m);
  planned_class->name = class.name, planned_class->ranks = "", planned_class->count = 0;
  for (int64_t from = 0, all = mesh_ranks(m), to; from < all; from = to) {
    bool has = has_rank(m, &class, from);
    for (to = from + 1; to < all && has_rank(m, &class, to) == has;) to++;
    if (!has) continue;
    planned_class->ranks =
        arena_list(m->arena, planned_class->ranks, to - from > 1 ? "%lld-%lld" : "%lld",
                   (long long)from, (long long)to - 1);
    planned_class->count += to - from;
  }
}

void plan_classes(Planned *planned) {
  planned->m = planned->programs.at[0];
  int64_t most = -1;
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    Module *m = planned->programs.at[i];
    PlannedClass *class = &planned->class[i];
    IrCount work = module_count(m);
    name_ranks(m, class);
    class->need = module_budget(m), class->flop = work.flop;
    if (budget_all(&class->need) > most) most = budget_all(&class->need), planned->m = m;
  }
}
