/* `mesh auto`, or a plan of the name `auto` without a line `mesh`: its mesh, and all lines that
   depend on it, are found by the search of `plan --search` (driver/fit/searched.c). Such lines are
   refused next to it, and it needs a machine whose ranks are counted. Must not: search. */
#include "sema_plan.h"
#include "ir/word_patterns.h"
#include <string.h>

const char plan_searched_lines[] = "place, micro, pipeline, zero, recompute, offload";

/* The word may follow sizes of axes, which are refused next to it. */
const char *plan_is_searched(const AstItem *plan, Span *at) {
  const AstSetting *mesh = plan && plan->block ? settings_line(plan, "mesh") : NULL;
  if (plan && !mesh && plan->name.text && !strcmp(plan->name.text, "auto")) {
    *at = plan->name.span;
    return "plan auto";
  }
  for (uint32_t i = 0; mesh && i < mesh->values.n; i++) {
    const AstPair *pair = &mesh->values.at[i];
    bool named = pair->key && !strcmp(pair->key->text, "auto"); /* auto = 4 */
    bool word =
        !pair->key && pair->value->kind == VALUE_PATH && !strcmp(pair->value->path->text, "auto");
    if (!named && !word) continue;
    *at = named ? pair->key->span : pair->value->span;
    return "mesh auto";
  }
  return NULL;
}

static const Decl *machine_of(PlanCheck *check, const AstValue *on) {
  return on && on->kind == VALUE_PATH ? world_find(check->w, SPACE_MACHINE, on->path->text, false)
                                      : NULL;
}

static void refuse_chosen(PlanCheck *check, const char *by, Span at) {
  const AstSetting *mesh = settings_line(check->item, "mesh");
  for (uint32_t i = 0; mesh && i < mesh->values.n; i++)
    if (mesh->values.at[i].key) {
      Report *r = world_error(check->w, "E0602", mesh->values.at[i].key->span,
                              "`mesh auto` chooses the axes");
      diag_help(r, "`plan --search --fix` takes some of them as given");
      return;
    }
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstPath *word = check->item->block->settings.at[i]->path;
    if (!text_lists(plan_searched_lines, word->text)) continue;
    Report *r = world_error(check->w, "E0602", word->span, "`%s` chooses `%s`", by, word->text);
    diag_also(r, at, mesh ? "this line" : "a plan of this name without a line `mesh`");
    diag_help(r, "leave one of both out; `plan --search --fix` takes some choices as given");
  }
}

bool check_searched(PlanCheck *check) {
  Span at;
  const char *by = plan_is_searched(check->item, &at);
  if (!by) return false;
  refuse_chosen(check, by, at);
  const AstValue *on = settings_value(check->item, "on", NULL);
  const Decl *machine = machine_of(check, on);
  if (machine && settings_integer(machine->item, ITEM_MACHINE, "node", "gpus") > 0) return true;
  if (on && !machine) return check_machine(check), true;
  Report *r = world_error(check->w, "E0602", at, "`%s` needs a machine with GPUs", by);
  diag_help(r, "`on MACHINE`, a block with `node gpus = ..`: each of them has a rank");
  return true;
}
