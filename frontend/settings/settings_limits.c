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

/* Steps over which `lr` falls at the end of a run. The first of them still has the whole step size,
   but after the warm-up of `inverse_sqrt`. */
static double falling_steps(const AstItem *item, const char *lr, double warmup, double n) {
  if (!strcmp(lr, "wsd")) return settings_number(item, ITEM_TRAIN, "lr", "decay") * n;
  return n - warmup + (strcmp(lr, "inverse_sqrt") == 0);
}

static void say_falls(Report *r, const AstItem *item, bool wsd, double warmup, double falls,
                      double n) {
  const AstValue *decay = settings_value(item, "lr", "decay");
  double least = ceil(200 / n), most = warmup + falls - 2;
  bool fits = wsd ? least <= 100 && warmup + floor(least * n / 100 + 1e-9) <= n : most >= 0;
  if (!fits) diag_help(r, "`lr constant` keeps the step size");
  else if (wsd) diag_help(r, "`lr wsd decay = %.0f%%` at least, or `lr constant`", least);
  else diag_help(r, "`warmup = %.0f` at most, or `lr constant`", most);
  if (fits && wsd && decay) diag_edit(r, decay->span, "%.0f%%", least);
  if (fits && !wsd) diag_edit(r, settings_value(item, "lr", "warmup")->span, "%.0f", most);
}

/* A schedule whose name says that it falls does so in one step at least. */
static void check_falls(Ctx *c, const AstItem *item, double warmup, const AstValue *steps) {
  const AstValue *lr = settings_value(item, "lr", NULL);
  const char *name = settings_word(c, item, ITEM_TRAIN, "lr", NULL);
  double n = steps->number.value, falls = falling_steps(item, name, warmup, n);
  bool wsd = !strcmp(name, "wsd"), never = !strcmp(name, "constant") || (wsd && falls <= 0);
  if (never || falls > 1 || warmup > n || (!wsd && warmup <= 0)) return;
  const AstValue *decay = settings_value(item, "lr", "decay"),
                 *at = !wsd    ? settings_value(item, "lr", "warmup")
                       : decay ? decay
                               : lr;
  bool trial = is_trial(item, steps);
  Report *r = diag_at(c->diag, trial ? "W0504" : "E0602", trial ? steps->span : at->span,
                      "`lr %s` does not fall in any step of this run", name);
  if (wsd) diag_label(r, "would fall over %.3g steps of %.0f", falls, n);
  else diag_label(r, "%.0f steps of warm-up, and the run has %.0f", warmup, n);
  diag_also(r, trial ? at->span : steps->span, trial ? "the schedule" : "%s steps",
            setting_value_text(c, steps));
  if (!trial) say_falls(r, item, wsd, warmup, falls, n);
}

static void check_schedule(Ctx *c, const AstItem *item, double warmup, const AstValue *steps) {
  if (!settings_value(item, "lr", NULL)) return;
  if (settings_is_word(settings_value(item, "lr", NULL), "wsd"))
    check_decay(c, item, warmup, steps);
  check_falls(c, item, warmup, steps);
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
  if (warmup && steps) check_warmup(c, item, warmup, steps);
  if (steps) check_schedule(c, item, warmup ? warmup->number.value : 0, steps);
  check_share(c, item), check_std(c, item);
}
