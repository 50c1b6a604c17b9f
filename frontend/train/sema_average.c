/* Checks of optimizers that average their own steps (`schedule_free`): `eval --ema` reads one
   average of every trained parameter, so no other line of the block makes another or none; and the
   average takes the place of a rate that falls. All E0602. Must not: know rules. */
#include "frontend/model/sema_rule.h"
#include "frontend/settings/settings.h"
#include "train.h"
#include <string.h>

static bool averages(const Eval *e, const AstItem *block) {
  const OptimizerRow *row = block_optimizer(e, block);
  return row && (row->flags & OPTIMIZER_AVERAGES);
}

static void refuse_other_line(Eval *e, const AstItem *block, const char *name) {
  const AstValue *word = settings_value(block, "optim", NULL);
  Report *r = world_error(e->w, "E0602", word->span,
                          "lines `optim %s` and lines of other optimizers in one block", name);
  diag_fact(r, "--ema reads an average of every trained parameter");
  diag_help(r, "`optim %s` in each line, or in none", name);
}

static void check_average(Eval *e, const AstItem *train) {
  const AstSetting *ema = settings_line(train, "ema");
  const char *name = block_optimizer(e, train)->name;
  if (!ema) return;
  Report *r =
      world_error(e->w, "E0602", ema->path->span, "`optim %s` has an average of its own", name);
  diag_help(r, "leave out `ema`: --ema reads that average");
  diag_edit(r, ema->span, "%s", "");
}

static void check_rate(Eval *e, const AstItem *train) {
  const AstValue *shape = settings_value(train, "lr", NULL);
  const char *name = block_optimizer(e, train)->name;
  if (!shape || !strcmp(settings_word(e->ctx, train, ITEM_TRAIN, "lr", NULL), "constant")) return;
  Report *r = world_error(e->w, "E0602", shape->span,
                          "`optim %s` averages steps at the full rate, which does not fall", name);
  diag_help(r, "`lr constant`, with a `warmup`");
  diag_edit(r, shape->span, "constant");
}

/* The next step begins at the average and the last point, which `project` would leave. */
static void refuse_project(Eval *e, const AstItem *train) {
  const AstStmt *line = rule_line(e, STMT_PROJECT);
  if (!line) return;
  Report *r = world_error(e->w, "E0602", line->word,
                          "`optim %s` writes weights as an average, which `project` would leave",
                          block_optimizer(e, train)->name);
  diag_also(r, train->name.span, "train block `%s`", train->name.text);
  diag_help(r, "`optim adamw` supports `project`");
}

void check_averages(Eval *e, const AstItem *train) {
  const SettingGroup *group;
  uint32_t n = train ? settings_groups(e->ctx, train, "optim", &group) : 0;
  if (!train || !settings_line(train, "optim")) return;
  bool own = averages(e, train);
  for (uint32_t i = 0; i < n; i++)
    if (averages(e, group[i].item) != own)
      return refuse_other_line(
          e, group[i].item,
          (own ? block_optimizer(e, train) : block_optimizer(e, group[i].item))->name);
  if (own) check_average(e, train), check_rate(e, train), refuse_project(e, train);
}
