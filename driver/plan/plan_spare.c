/* The part of `plan` about multiprocessors of a GPU that kernels leave to messages (pass spare),
   for each class of ranks. All facts are read from its module. Must not: choose anything. */
#include "plan_report.h"
#include <stdlib.h>

static double said(const Module *m, const char *key) {
  return strtod(module_setting(m, key, "0"), NULL);
}

static bool spares(const Fn *f) {
  return f->kind == FN_KERNEL && attr_get(&f->attrs, ATTR_spare) != NULL;
}

static void say_class(Sheet *sheet, const Module *m) {
  sheet_open(sheet, "spare[]");
  sheet_say_if(sheet, *module_class_name(m), "{class}: ", as_text(module_class_name(m)));
  sheet_say(sheet,
            "{decision}\n  kernels and waits {seconds}, {seconds_if_none} if none did, "
            "{seconds_if_all} if all did\n",
            as_text(module_setting(m, "made.spare", "")), as_seconds(said(m, "made.spare.seconds")),
            as_seconds(said(m, "made.spare.none")), as_seconds(said(m, "made.spare.all")));
  sheet_list(sheet, "kernels");
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (spares(m->fns.at[i]))
      sheet_say(sheet, "[kernels]  {name}: {multiprocessors} left\n", as_text(m->fns.at[i]->name),
                as_count((double)attr_int(&m->fns.at[i]->attrs, ATTR_spare, 0)));
  sheet_close(sheet);
}

void topic_spare(Sheet *sheet, const Planned *planned) {
  bool listed = false;
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const Module *m = planned->programs.at[i];
    if (!module_setting(m, "made.spare", NULL)) continue;
    if (!listed) sheet_list(sheet, "spare");
    listed = true;
    say_class(sheet, m);
  }
}
