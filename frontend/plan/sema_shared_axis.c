/* Mesh axes that several `place` lines of a plan name (E0606). Two lines may share an axis if one
   of them is about positions (`balanced`, `activations`, `ring`) and the other is not: the ranks
   that split positions then split the experts' weights as well. A value answers to the first of the
   lines whose dims it has (ir/shape/placement_rules.c). Samples have positions, so `Batch` in the
   other line would change nothing. `else` serves the values that no line
   names, so one line alone has it. Other dims of an axis belong in one line, where `else` orders
   them. Must not: check sizes. */
#include "sema_plan.h"
#include <string.h>

bool plan_line_has_axis(const PlaceLine *line, const PlanAxis *axis) {
  for (uint32_t i = 0; i < line->axes.n; i++)
    if (line->axes.at[i] == axis) return true;
  return false;
}

static bool of_positions(const PlaceLine *line) {
  return line->balanced || line->activations || line->ring;
}

static const Placed *otherwise_of(const PlaceLine *line) {
  for (uint32_t i = 0; i < line->dims.n; i++)
    if (line->dims.at[i].otherwise) return &line->dims.at[i];
  return NULL;
}

static const Placed *same_dim(const PlaceLine *one, const PlaceLine *other) {
  for (uint32_t i = 0; i < one->dims.n; i++)
    for (uint32_t k = 0; k < other->dims.n; k++)
      if (one->dims.at[i].dim == other->dims.at[k].dim) return &one->dims.at[i];
  return NULL;
}

static const Placed *batch_of(const PlaceLine *line) {
  for (uint32_t i = 0; i < line->dims.n; i++)
    if (!strcmp(line->dims.at[i].dim, "Batch")) return &line->dims.at[i];
  return NULL;
}

static Report *twice(PlanCheck *check, const PlaceLine *line, const PlaceLine *first,
                     const PlanAxis *axis) {
  Report *r = world_error(check->w, "E0606", line->target,
                          "mesh axis `%s` is written twice in `place` lines", axis->name);
  diag_also(r, first->line->path->span, "the first line");
  return r;
}

static bool refused(PlanCheck *check, const PlaceLine *line, const PlaceLine *first,
                    const PlanAxis *axis) {
  const Placed *both = same_dim(line, first);
  if (of_positions(line) && of_positions(first))
    diag_help(twice(check, line, first, axis),
              "only one of two lines over an axis may have `balanced`, `activations` or `ring`");
  else if (!of_positions(line) && !of_positions(first))
    diag_help(twice(check, line, first, axis),
              "one line has all dims of an axis: `place DIM, DIM -> %s`, or `place DIM -> %s else "
              "DIM` where values have both",
              axis->name, axis->name);
  else if (both)
    diag_help(twice(check, line, first, axis), "`%s` is in both: remove it from one", both->dim);
  else if (otherwise_of(line) && otherwise_of(first))
    diag_help(twice(check, line, first, axis), "`else` in one of the lines serves both");
  else if (batch_of(of_positions(line) ? first : line))
    diag_help(twice(check, line, first, axis),
              "the other line splits samples along their positions: leave `Batch` out");
  else return false;
  return true;
}

void check_shared_axis(PlanCheck *check, const PlaceLine *line) {
  for (uint32_t i = 0; i < check->rules.n; i++)
    for (uint32_t k = 0; k < line->axes.n; k++)
      if (plan_line_has_axis(&check->rules.at[i], line->axes.at[k]) &&
          refused(check, line, &check->rules.at[i], line->axes.at[k]))
        return;
}
