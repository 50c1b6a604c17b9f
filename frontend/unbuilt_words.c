/* Parts of the language that no pass implements yet. When a program is compiled such a word is
   E0901 at its position; `check` gives a note and continues (N0902). Words of settings blocks are
   rows PLANNED of settings.def; the evaluator calls this file for others (operators, masks). Words
   that are accepted but not used yet are N0901. */
#include "lower_build.h"
#include "frontend/settings/settings.h"
#include <string.h>

static void later(World *w, Span at, const char *what) {
  diag_label(world_unbuilt(w, at, "%s is", what), "planned for a later version");
}

/* ---- settings ---- */

static bool is_names(const PlannedRow *row) { return row->key && !strcmp(row->key, "over"); }

static void check_line(World *w, const AstSetting *line, const PlannedRow *row) {
  const AstValue **at, *value = NULL;
  uint32_t n = row->key ? 0 : setting_operands(w->ctx, line, &at);
  if (is_names(row) && setting_over(w->ctx, line, &at)) value = at[0];
  else if (row->key) value = setting_option(line, row->key);
  for (uint32_t i = 0; i < n; i++)
    if (settings_asks(row, at[i])) {
      later(w, at[i]->span, row->what);
      return;
    }
  if (n) return;
  if ((value || !row->key) && settings_asks(row, value))
    later(w, value ? value->span : line->path->span, row->what);
}

void check_unbuilt(World *w, const AstItem *item) {
  uint32_t n;
  const PlannedRow *rows = settings_planned(&n);
  for (uint32_t i = 0; item->block && i < item->block->settings.n; i++) {
    const AstSetting *line = item->block->settings.at[i];
    for (uint32_t k = 0; k < n && line->arrow != ARROW_LEFT; k++)
      if (rows[k].block == item->kind && !strcmp(rows[k].word, line->path->text))
        check_line(w, line, &rows[k]);
  }
}

/* ---- passed over ---- */

static void note_hand_gradients(World *w) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(w, SPACE_GRAD, &at));) {
    Report *r = world_error(w, "N0901", d->span,
                            "the hand-written gradient of `%s` is not used yet", d->name);
    diag_label(r, "the derived gradient is used");
  }
}

void check_built(World *w, const Choice *c) {
  const Decl *machine = plan_machine_of(w, c->plan);
  check_unbuilt(w, c->train->item);
  if (c->plan) check_unbuilt(w, c->plan->item);
  if (machine) check_unbuilt(w, machine->item);
  note_hand_gradients(w);
}
