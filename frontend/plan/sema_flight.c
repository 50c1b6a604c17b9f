/* Checks settings about asynchronous messages: `prefetch` gathers layers of ZeRO ahead, or
   kept values that `recompute .. over` splits, so it needs one of these and a stack with more
   layers (E0602); on one rank `overlap` has no effect (N0702). Pass prefetch implements these
   settings. */
#include "sema_plan.h"

/* Layers of the longest stack; 0: not known. */
static int64_t longest_stack(const PlanCheck *check) {
  int64_t most = 0;
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    const Param *q = check->e->params.at[i];
    int64_t rounds = q->lead.n ? size_of(check->e->sizes, q->lead.at[0]) : 0;
    if (rounds > most) most = rounds;
  }
  return most;
}

/* Kept values that are split are also gathered layer by layer. */
static bool splits_kept(PlanCheck *check) {
  const AstValue **axis;
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *s = check->item->block->settings.at[i];
    if (!strcmp(s->path->text, "recompute") && setting_over(check->e->ctx, s, &axis)) return true;
  }
  return false;
}

static void check_stage(PlanCheck *check, const AstValue *at) {
  int64_t stage = settings_integer(check->item, ITEM_PLAN, "zero", NULL);
  if (stage > 0 || splits_kept(check)) return;
  Report *r =
      world_error(check->w, "E0602", at->span,
                  "`prefetch` gathers layers ahead, and stage %lld gathers none", (long long)stage);
  diag_help(r,
            "`zero 1` to `zero 3` partition the update and gather a layer at a time; without it, "
            "leave `prefetch` out");
}

static void check_depth(PlanCheck *check, const AstValue *at, int64_t ahead) {
  int64_t layers = longest_stack(check), most = layers > 1 ? layers - 1 : 0;
  if (ahead <= most || !layers) return;
  if (!most) {
    Report *r = world_error(check->w, "N0702", at->span,
                            "a stack of one layer has no layer to gather ahead");
    diag_help(r, "leave it out, unless there will be more layers");
    return;
  }
  Report *r = world_error(check->w, "E0602", at->span,
                          "`prefetch = %lld`, and no stack has more than %lld layers",
                          (long long)ahead, (long long)layers);
  diag_help(r, "`prefetch = 1` is what hides most; each layer more needs the room of one more");
  diag_edit(r, at->span, "1");
}

typedef struct Asked { /* NULL: not written, or so that nothing flies */
  const AstValue *prefetch, *overlap;
} Asked;

static Asked asked_of(const AstItem *plan) {
  const AstSetting *zero = settings_line(plan, "zero");
  Asked a = {zero ? setting_option(zero, "prefetch") : NULL,
             zero ? setting_option(zero, "overlap") : NULL};
  if (settings_integer(plan, ITEM_PLAN, "zero", "prefetch") <= 0) a.prefetch = NULL;
  if (!settings_on(plan, ITEM_PLAN, "zero", "overlap")) a.overlap = NULL;
  return a;
}

static void note_one_rank(PlanCheck *check, const AstValue *at) {
  if (plan_mesh_ranks(check) > 1) return;
  Report *r = world_error(check->w, "N0702", at->span, "one rank sends nothing that could overlap");
  diag_help(r, "leave `overlap` out, or give the plan a `mesh`");
}

void check_flights(PlanCheck *check) {
  Asked a = asked_of(check->item);
  if (a.overlap) note_one_rank(check, a.overlap);
  if (!a.prefetch) return;
  check_stage(check, a.prefetch);
  if (a.prefetch->kind == VALUE_NUMBER && a.prefetch->number.unit == UNIT_BYTES) return;
  check_depth(check, a.prefetch, settings_integer(check->item, ITEM_PLAN, "zero", "prefetch"));
}
