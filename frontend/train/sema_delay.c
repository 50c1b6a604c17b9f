/* Checks the requirements of the delayed update on train blocks (passes/math/delay.c): a warm-up,
   because the first steps are the largest, that ends before the run; an optimizer whose steps are
   all alike. */
#include "train.h"
#include "frontend/settings/settings.h"
#include "ir/plan/optimizers.h"

/* `before`: the text before the number at the position of the message. */
static void wrong(Eval *e, const AstItem *train, Span at, const char *before, const char *words) {
  Report *r = eval_error(e, "E0602", at, "%s", words);
  int64_t steps = settings_integer(train, ITEM_TRAIN, "steps", NULL), most = steps / 2;
  int64_t n = most < 40 ? most : 40; /* as the paper has it */
  if (n <= 0) {
    diag_help(r, "of one step none is late: without `delay`");
    diag_edit(r, settings_line(train, "delay")->span, "%s", "");
    return;
  }
  diag_help(r, "such as `delay after = %lld`", (long long)n);
  diag_edit(r, at, "%s%lld", before, (long long)n);
}

void check_delay(Eval *e, const AstItem *train) {
  const AstSetting *line = train ? settings_line(train, "delay") : NULL;
  const AstValue *after = line ? setting_option(line, "after") : NULL;
  if (!line) return;
  int64_t n = settings_integer(train, ITEM_TRAIN, "delay", "after"),
          steps = settings_integer(train, ITEM_TRAIN, "steps", NULL);
  const OptimizerRow *optim = block_optimizer(e, train);
  if (!after)
    wrong(e, train, line->path->span,
          "delay after = ", "`delay` without a warm-up: `after` says of how many steps");
  else if (n > 0 && steps > 0 && n >= steps)
    wrong(e, train, after->span, "", "the warm-up takes the whole run: no update would be late");
  if (!optim || !(optim->flags & OPTIMIZER_FREEZES)) return;
  Report *r = world_unbuilt(e->w, line->path->span,
                            "`delay` with `optim onebit_adam`, whose frozen steps send no "
                            "gradient, is");
  diag_help(r, "without `delay`; or `optim adamw`");
  diag_edit(r, line->span, "%s", "");
}
