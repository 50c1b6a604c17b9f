/* `shardc plan --search` (plan_search.c). */
#ifndef SHARDC_PLAN_SEARCH_H
#define SHARDC_PLAN_SEARCH_H
#include "driver/cmd.h"

Exit check_search_options(const Cli *o); /* those that are with it alone, or never */
Exit plan_search(Cli *o);
#endif
