/* `shardc plan --search` (plan_search.c). */
#ifndef SHARDC_PLAN_SEARCH_H
#define SHARDC_PLAN_SEARCH_H
#include "driver/cmd.h"
#include "driver/fit/best.h"
#include "driver/sheet/sheet.h"

Exit check_search_options(const Cli *o); /* those that are with it alone, or never */
Exit plan_search(Cli *o);

/* ---- plan_sizes.c ---- */

Exit plan_search_sizes(PlanSpace *whole, const BestWanted *wanted); /* `--objective cost` */

/* ---- for it, of plan_search.c ---- */

BestPlans best_of(const PlanSpace *space, const BestWanted *wanted);
const char *search_by_what(const BestPlans *best); /* forecasts */
void search_say_plan(Sheet *sheet, const BestPlans *best, const FoundPlan *one, const char *name);
void search_say_block(Sheet *sheet, const BestPlans *best, const char *text);
void search_put_all(Sheet *sheet, const BestPlans *best);
Exit search_say_none(BestPlans *best);
Exit search_no_bounds(const PlanSpace *space);
#endif
