/* The lines `optim .. of NAMES` of a train block: each updates the parameters that it names by an
   optimizer of its own, and the line without `of` all others. Paths must match parameters (E0709)
   that are updated (E0602), each in one line (E0606), and all layers of a stack (E0901). Numbers of
   each line are checked like those of the line without `of`. Must not: know what rules compute. */
#include "train.h"
#include "frontend/plan/sema_plan.h"
#include "frontend/settings/settings.h"
#include "ir/plan/layer_range.h"

typedef struct GroupLines {
  PlanCheck check;
  const AstItem *train;
  VEC(const AstValue *) paths; /* of lines before */
  bool *taken;                 /* by parameter */
} GroupLines;

/* E0901: train blocks say nothing that holds for some layers of a stack alone. */
static bool has_layers(GroupLines *lines, const AstValue *path) {
  LayerPath layers;
  Str text = path->path->text;
  if (!layer_path(text, strlen(text), &layers)) return false;
  Report *r = world_unbuilt(lines->check.w, path->span,
                            "an optimizer for some layers of a stack, apart from the others, is");
  Str whole = layer_path_whole(lines->check.e->ctx->names, text);
  diag_help(r, "all of them: `%s`", whole);
  diag_edit(r, path->span, "%s", whole);
  return true;
}

static void report_twice(GroupLines *lines, const AstValue *path, Str param) {
  World *w = lines->check.w;
  Report *r = world_error(w, "E0606", path->span, "`%s` is updated by two lines `optim`", param);
  for (uint32_t i = 0; i < lines->paths.n; i++) {
    Str before = lines->paths.at[i]->path->text;
    if (!layer_path_names(before, strlen(before), param)) continue;
    diag_also(r, lines->paths.at[i]->span, "first");
    break;
  }
  diag_help(r, "each parameter in one line");
}

/* A parameter of fewer than two dims is no matrix, whatever reads it; passes/math/matrix.c checks
   what reads the others. */
static void check_matrix(GroupLines *lines, const OptimizerRow *row, Span at, const Param *param) {
  if (!row || !(row->flags & OPTIMIZER_MATRICES) || param->frozen || param->dims.n > 1) return;
  Report *r = world_error(lines->check.w, "E0602", at,
                          "`optim %s` updates matrices, and `%s` is none", row->name, param->path);
  diag_also(r, param->span, "%s", param->dims.n ? "one dim" : "a number");
  diag_help(r, "a line `optim %s .. of NAMES` for matrices, and `optim adamw` for all others",
            row->name);
}

const OptimizerRow *block_optimizer(const Eval *e, const AstItem *block) {
  return optimizer_row(settings_word(e->ctx, block, ITEM_TRAIN, "optim", NULL));
}

static void read_path(GroupLines *lines, const OptimizerRow *row, const AstValue *path) {
  Eval *e = lines->check.e;
  bool known = false, any = false;
  uint32_t twice = e->params.n;
  if (path->kind != VALUE_PATH || !plan_names_params(&lines->check, path) ||
      has_layers(lines, path))
    return;
  Str text = path->path->text;
  for (uint32_t i = 0; i < e->params.n; i++) {
    const Param *param = e->params.at[i];
    if (!layer_path_names(text, strlen(text), param->path)) continue;
    known = true, any |= !param->frozen;
    check_matrix(lines, row, path->span, param);
    if (lines->taken[i] && twice == e->params.n) twice = i;
    lines->taken[i] = true;
  }
  if (known && !any) {
    Report *r = world_error(e->w, "E0602", path->span, "`optim` names only frozen parameters");
    diag_label(r, "no update writes them");
    diag_help(r, "leave it out");
  } else if (twice < e->params.n) report_twice(lines, path, e->params.at[twice]->path);
  vec_push(e->arena, lines->paths, path);
}

/* 1-bit Adam has an entry of its own for its frozen steps, in which every parameter is. */
static void check_alone(GroupLines *lines, const AstItem *block, const AstSetting *line) {
  Eval *e = lines->check.e;
  const OptimizerRow *row = block_optimizer(e, block);
  if (!row || !(row->flags & OPTIMIZER_FREEZES)) return;
  Report *r =
      world_unbuilt(e->w, line->path->span, "`optim %s` with another line `optim` is", row->name);
  diag_help(r, "one line `optim %s` for all parameters, or `adamw` in its place", row->name);
}

/* A line for all others that has none left would be without effect. */
static void check_left(GroupLines *lines) {
  Eval *e = lines->check.e;
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!lines->taken[i] && !e->params.at[i]->frozen) return;
  Report *r = world_error(e->w, "E0602", settings_line(lines->train, "optim")->path->span,
                          "the line `optim` without `of` updates nothing");
  diag_label(r, "other lines name every parameter");
  diag_help(r, "leave out one `of`: the line without it updates all others");
}

static void check_lines(GroupLines *lines, uint32_t n, const SettingGroup *group) {
  Eval *e = lines->check.e;
  for (uint32_t i = 0; i < n; i++) {
    const AstItem *item = group[i].item;
    for (uint32_t k = 0; k < group[i].paths; k++)
      read_path(lines, block_optimizer(e, item), group[i].path[k]);
    check_alone(lines, item, settings_line(item, "optim"));
    check_states(e, item), check_nesterov(e, item);
  }
}

void check_groups(Eval *e, const Choice *choice, const AstItem *train) {
  const SettingGroup *group;
  uint32_t n = settings_groups(e->ctx, train, "optim", &group);
  const AstSetting *others = settings_line(train, "optim");
  GroupLines lines = {.check = {.e = e, .w = e->w, .c = choice}, .train = train};
  lines.taken = ARENA_ARRAY(e->arena, bool, e->params.n + 1);
  check_lines(&lines, n, group);
  if (!others) return;
  if (n) check_alone(&lines, train, others), check_left(&lines);
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!lines.taken[i])
      check_matrix(&lines, block_optimizer(e, train), others->path->span, e->params.at[i]);
}
