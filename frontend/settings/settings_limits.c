/* Settings of one train block whose values bound each other: the warm-up, the decay and the
   length of a run; what evaluation keeps of the data. Each is right by itself. Must not: know the
   model or a plan. */
#include "settings.h"
#include <math.h>

/* Fewer steps on the command line are the first of a run, and may all be warm-up. */
static bool is_trial(const AstItem *item, const AstValue *steps) {
  return steps->span.file != item->span.file;
}

static void check_warmup(Ctx *c, const AstItem *item, const AstValue *warmup,
                         const AstValue *steps) {
  if (warmup->number.value <= steps->number.value) return;
  Report *r = NULL;
  if (is_trial(item, steps))
    r = diag_at(c->diag, "W0504", steps->span, "all steps of this run are warm-up");
  else r = diag_at(c->diag, "E0602", warmup->span, "`warmup` of `lr` is longer than the run");
  bool trial = is_trial(item, steps);
  diag_also(r, trial ? warmup->span : steps->span, trial ? "a warm-up of %s steps" : "%s steps",
            setting_value_text(c, trial ? warmup : steps));
  if (!is_trial(item, steps)) diag_edit(r, warmup->span, "%s", setting_value_text(c, steps));
}

/* `lr wsd` has a decay of its own: the step size would drop where the warm-up
   ends. */
static void check_decay(Ctx *c, const AstItem *item, double warmup, const AstValue *steps) {
  const AstValue *decay = settings_value(item, "lr", "decay"),
                 *at = decay ? decay : settings_value(item, "lr", "warmup");
  double n = steps->number.value, share = settings_number(item, ITEM_TRAIN, "lr", "decay");
  double falls = floor(share * n + 1e-9);
  if (warmup <= 0 || warmup > n || warmup + falls <= n) return;
  Report *r = diag_at(c->diag, "E0602", at->span, "warm-up and decay of `lr wsd` overlap");
  diag_label(r, "%.0f steps of warm-up and %.0f of decay, and the run has %.0f", warmup, falls, n);
  diag_also(r, steps->span, "%s steps", setting_value_text(c, steps));
  double most = floor((n - warmup) / n * 100);
  diag_help(r, "`decay = %.0f%%` at most, or `warmup = %.0f`", most, n - falls);
  if (decay) diag_edit(r, decay->span, "%.0f%%", most);
  else diag_edit(r, at->span, "%.0f", n - falls);
}

static void say_decay(Report *r, const AstValue *decay, double warmup, double n) {
  double least = ceil(200 / n);
  bool fits = least <= 100 && warmup + floor(least * n / 100 + 1e-9) <= n;
  if (!fits) diag_help(r, "`lr constant` keeps the step size");
  else diag_help(r, "`lr wsd decay = %.0f%%` at least, or `lr constant`", least);
  if (fits && decay) diag_edit(r, decay->span, "%.0f%%", least);
}

/* The first step of a decay still has the whole step size: over one step nothing falls. A decay of
   0 says so. Short runs are tried with the schedule of long ones, so this is a warning. */
static void check_falls(Ctx *c, const AstItem *item, double warmup, const AstValue *steps) {
  const AstValue *decay = settings_value(item, "lr", "decay"),
                 *at = decay ? decay : settings_value(item, "lr", NULL);
  double n = steps->number.value, falls = settings_number(item, ITEM_TRAIN, "lr", "decay") * n;
  bool trial = is_trial(item, steps);
  if (falls <= 0 || falls > 1 || warmup > n) return;
  Report *r = diag_at(c->diag, "W0504", trial ? steps->span : at->span,
                      "`lr wsd` does not fall in any step of this run");
  diag_label(r, "would fall over %.3g steps of %.0f", falls, n);
  diag_also(r, trial ? at->span : steps->span, trial ? "the schedule" : "%s steps",
            setting_value_text(c, steps));
  if (!trial) say_decay(r, decay, warmup, n);
}

static void check_share(Ctx *c, const AstItem *item) {
  const AstValue *valid = settings_value(item, "data", "valid");
  if (!valid || valid->kind != VALUE_NUMBER) return;
  bool none = valid->number.value <= 0;
  if (!none && valid->number.value < 1) return;
  Report *r = diag_at(c->diag, "E0602", valid->span, "`valid = %s` of `data` leaves nothing to %s",
                      valid->number.text, none ? "evaluate on" : "train on");
  diag_help(r, none ? "leave it out: without `valid` nothing is evaluated"
                    : "`valid = 10%%` is usual");
  if (!none) diag_edit(r, valid->span, "10%%");
}

static void check_std(Ctx *c, const AstItem *item) {
  const AstValue *std = settings_value(item, "data", "std");
  for (uint32_t i = 0; std && i < (std->kind == VALUE_LIST ? std->items.n : 1); i++) {
    const AstValue *one = std->kind == VALUE_LIST ? std->items.at[i] : std;
    if (one->kind != VALUE_NUMBER || one->number.value > 0) continue;
    Report *r = diag_at(c->diag, "E0602", one->span, "`std` of `data` is a divisor: above 0");
    diag_help(r, "1 leaves values as they are");
    diag_edit(r, one->span, "1");
  }
}

void settings_check_limits(Ctx *c, const AstItem *item) {
  const AstValue *warmup = settings_value(item, "lr", "warmup"),
                 *steps = settings_value(item, "steps", NULL);
  if (item->kind != ITEM_TRAIN) return;
  double rises = warmup ? warmup->number.value : 0;
  if (warmup && steps) check_warmup(c, item, warmup, steps);
  if (steps && settings_is_word(settings_value(item, "lr", NULL), "wsd"))
    check_decay(c, item, rises, steps), check_falls(c, item, rises, steps);
  check_share(c, item), check_std(c, item);
}
