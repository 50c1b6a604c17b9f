/* The words `balanced`, `activations` and `ring` of a `place` line: the dims that the first (Dealt
   of placement.h) may cut in pieces, and their sizes; the lines in which the second (PlaceRule of
   ir.h) changes something; the dims that the third may name. Must not: judge whether `balanced`
   makes ranks equal; `plan` shows their work. */
#include "sema_plan.h"
#include "ir/support/num.h"
#include <string.h>

static Report *refuse(PlanCheck *check, const PlaceLine *rule, const char *label) {
  Report *r =
      world_error(check->w, "E0602", rule->balanced->span, "`balanced` deals out positions");
  diag_label(r, "%s", label);
  diag_edit(r, rule->balanced->span, "%s", "");
  return r;
}

/* Both halves of the ranks' pieces: head and tail. */
static void check_size(PlanCheck *check, const PlaceLine *rule, const Placed *placed) {
  int64_t size = stored_size_of(check->e->sizes, placed->dim),
          pieces = times_i64(2, plan_ranks_of(rule));
  if (size <= 0 || size % pieces == 0 || size % plan_ranks_of(rule)) return;
  Report *r = world_error(check->w, "E0701", placed->span,
                          "cannot deal `%s` (%lld) out to `%s` (%lld)", placed->dim,
                          (long long)size, rule->axes.at[0]->name, (long long)plan_ranks_of(rule));
  diag_label(r, "%lld is not a multiple of %lld", (long long)size, (long long)pieces);
  diag_fact(r, "with `balanced` each rank has at least two pieces, one from either end");
}

void check_balanced(PlanCheck *check, const PlaceLine *rule) {
  if (!rule->balanced) return;
  if (rule->axes.n != 1) {
    diag_help(refuse(check, rule, "over one axis"),
              "name the axis of the sequence: `-> cp balanced`");
    return;
  }
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *placed = &rule->dims.at[i];
    bool batch = !strcmp(placed->dim, "Batch");
    if (placed->otherwise) continue;
    if (batch || plan_is_stack_dim(check, placed->dim)) {
      Report *r = refuse(check, rule, batch ? "samples have no order" : "layers have stages");
      diag_also(r, placed->span, batch ? "samples" : "layers");
      return;
    }
    check_size(check, rule, placed);
  }
}

/* ---- activations ---- */

static bool some_param_has(const PlanCheck *check, const PlaceLine *rule) {
  for (uint32_t i = 0; i < check->e->params.n; i++)
    for (uint32_t k = 0; k < rule->dims.n; k++)
      if (!rule->dims.at[k].otherwise &&
          dims_has(&check->e->params.at[i]->dims, rule->dims.at[k].dim))
        return true;
  return false;
}

/* The word changes something where the line would split a parameter. */
void check_activations(PlanCheck *check, const PlaceLine *rule) {
  if (!rule->activations) return;
  const char *why = rule->none       ? "`-> none` names parameters"
                    : rule->balanced ? "`balanced` keeps parameters whole already"
                                     : NULL;
  for (uint32_t i = 0; i < rule->dims.n && !why; i++)
    if (plan_is_stack_dim(check, rule->dims.at[i].dim)) why = "layers have stages";
  if (!why && some_param_has(check, rule)) return;
  Report *r = world_error(check->w, "E0602", rule->activations->span,
                          "`activations` keeps parameters whole that the line would split");
  diag_label(r, "%s", why ? why : "no parameter has a dim of this line");
  diag_edit(r, rule->activations->span, "%s", "");
}

/* ---- ring ---- */

/* Keys follow the dim of the queries over one axis; whether some attention does, pass `collect`
   knows. */
void check_ring(PlanCheck *check, const PlaceLine *rule) {
  const char *why = NULL;
  if (!rule->ring) return;
  if (rule->axes.n != 1) why = "over one axis";
  for (uint32_t i = 0; i < rule->dims.n && !why; i++) {
    const Placed *placed = &rule->dims.at[i];
    if (placed->otherwise) continue;
    if (!strcmp(placed->dim, "Batch")) why = "samples attend to themselves alone";
    else if (plan_is_stack_dim(check, placed->dim)) why = "layers have stages";
  }
  if (!why) return;
  Report *r = world_error(check->w, "E0602", rule->ring->span,
                          "`ring` passes keys and values of attention from rank to rank");
  diag_label(r, "%s", why);
  diag_edit(r, rule->ring->span, "%s", "");
}
