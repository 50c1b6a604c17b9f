/* Plans against the model: names exist (E0201, E0708, E0709), dims divide (E0701, E0704), no
   parameter is split twice over one axis (E0702), the batch equation holds (E0703). Must not: check
   the cost of a plan. */
#include "sema_plan.h"
#include "frontend/settings/settings_meant.h"
#include "ir/plan/layer_range.h"
#include "ir/support/num.h"
#include <string.h>

/* ---- mesh ---- */

/* Words of a `place` line after the arrow, which are no axes. */
static const struct {
  const char *word, *how;
} target_words[] = {{"else", "DIM -> AXIS else DIM"},
                    {"none", "NAME -> none"},
                    {"balanced", "DIM -> AXIS balanced"},
                    {"activations", "DIM -> AXIS activations"},
                    {"ring", "DIM -> AXIS ring"}};

/* How it is written; NULL: it is no such word. */
static const char *target_word(const char *name) {
  for (size_t i = 0; i < COUNT_OF(target_words); i++)
    if (!strcmp(name, target_words[i].word)) return target_words[i].how;
  return NULL;
}

static void read_mesh(PlanCheck *check) {
  const AstSetting *setting = settings_line(check->item, "mesh");
  for (uint32_t i = 0; setting && i < setting->values.n; i++) {
    const AstPair *pair = &setting->values.at[i];
    if (pair->key && target_word(pair->key->text)) {
      Report *r = world_error(check->w, "E0602", pair->key->span,
                              "`%s` is a word of `place` lines, not an axis", pair->key->text);
      diag_help(r, "give the axis another name");
    }
    if (pair->key && pair->value->kind == VALUE_NUMBER && pair->value->number.integer)
      vec_push(check->e->arena, check->mesh,
               (PlanAxis){pair->key->text, pair->value->number.integral, pair->value->span, false});
  }
}

/* Limits the number of ranks, because some computations loop over ranks. */
static void check_size(PlanCheck *check) {
  enum { MOST = 1 << 20 };
  int64_t ranks = 1;
  for (uint32_t i = 0; i < check->mesh.n; i++) {
    const PlanAxis *axis = &check->mesh.at[i];
    if (axis->size >= 1 && axis->size <= MOST / ranks) ranks *= axis->size;
    else if (axis->size >= 1) {
      Report *r = world_error(check->w, "E0602", axis->value, "a mesh of too many ranks");
      diag_label(r, "%lld over `%s`", (long long)axis->size, axis->name);
      diag_help(r, "%d ranks at most, over all axes together", MOST);
      return;
    }
  }
}

int64_t plan_mesh_ranks(const PlanCheck *check) {
  int64_t ranks = 1;
  for (uint32_t i = 0; i < check->mesh.n; i++) ranks = times_i64(ranks, check->mesh.at[i].size);
  return ranks;
}

static PlanAxis *find_axis(PlanCheck *check, Str name) {
  for (uint32_t i = 0; i < check->mesh.n; i++)
    if (check->mesh.at[i].name == name) return &check->mesh.at[i];
  return NULL;
}

static PlanAxis *need_axis(PlanCheck *check, Str name, Span at) {
  PlanAxis *axis = find_axis(check, name);
  if (axis) return axis;
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < check->mesh.n; i++)
    vec_push(check->e->arena, names, check->mesh.at[i].name);
  const char *near = names.n ? diag_nearest(name, names.at, names.n) : NULL;
  Report *r = world_error(check->w, "E0708", at, "the mesh has no axis `%s`", name);
  const char *said = settings_foreign("place", name);
  if (near) diag_near(r, "an axis", near);
  else if (said) diag_help(r, "%s", said);
  else if (!check->mesh.n) diag_help(r, "add it to the plan: `mesh %s = 2`", name);
  else diag_help(r, "its axes: %s", diag_list(check->e->arena, names.at, names.n));
  return NULL;
}

/* ---- rules ---- */

/* True: it is a word that follows the arrow. */
static bool refuse_word(PlanCheck *check, const AstValue *value, Str name) {
  const char *how = target_word(name);
  if (!how) return false;
  Report *r = world_error(check->w, "E0602", value->span, "`%s` follows `->`", name);
  diag_help(r, "`place %s`", how);
  return true;
}

/* h[0..3].attn: layers of a stack are one tensor, which is split or is not. */
static void refuse_layers(PlanCheck *check, const AstValue *value) {
  Str whole = layer_path_whole(check->e->ctx->names, value->path->text);
  Report *r = world_error(check->w, "E0602", value->span, "`place` takes all layers of a stack");
  diag_label(r, "some of `%s`", plan_stack_of(check, value));
  diag_help(r, "`%s`", whole);
  diag_edit(r, value->span, "%s", whole);
}

static void read_operand(PlanCheck *check, PlaceLine *line, const AstValue *value, bool otherwise) {
  if (value->kind != VALUE_PATH) return;
  Str name = intern(check->e->ctx->names, value->path->text);
  Placed placed = {name, value->span, otherwise};
  if (sizes_find(check->e->sizes, name)) vec_push(check->e->arena, line->dims, placed);
  else if (plan_has_path(check, name)) vec_push(check->e->arena, line->paths, placed);
  else if (refuse_word(check, value, name)) return;
  else if (value->path->parts.n < 2) explain_no_dim(check->w, value->span, name);
  else if (plan_names_params(check, value)) refuse_layers(check, value);
}

/* Dims go to axes, paths to `none`. */
static void check_operands(PlanCheck *check, const PlaceLine *line) {
  if (!line->none && line->axes.n && line->paths.n) {
    Str path = line->paths.at[0].dim;
    Report *report = world_error(check->w, "E0602", line->paths.at[0].span,
                                 "`place` splits dimensions over mesh axes, `%s` is none", path);
    diag_help(report, "name a dimension of it; `place %s -> none` keeps it whole", path);
  }
  if (line->none && line->dims.n) {
    Str dim = line->dims.at[0].dim;
    Report *report = world_error(check->w, "E0602", line->dims.at[0].span,
                                 "`-> none` takes paths of parameters, `%s` is a dimension", dim);
    diag_help(report, "a dimension that no `place` line names is not split");
  }
}

static void read_target(PlanCheck *check, PlaceLine *line, const AstSetting *setting) {
  bool otherwise = false, named = false;
  for (uint32_t i = 0; i < setting->target.n; i++) {
    const AstValue *value = setting->target.at[i].value;
    if (value->kind != VALUE_PATH || setting->target.at[i].key) continue;
    Str name = intern(check->e->ctx->names, value->path->text);
    if (!strcmp(name, "else")) otherwise = true;
    else if (!otherwise && !strcmp(name, "balanced")) line->balanced = value;
    else if (!otherwise && !strcmp(name, "activations")) line->activations = value;
    else if (!otherwise && !strcmp(name, "ring")) line->ring = value;
    else if (otherwise) read_operand(check, line, value, true);
    else if (!strcmp(name, "none")) line->none = true;
    else {
      named = true;
      PlanAxis *axis = need_axis(check, name, value->span);
      if (axis && plan_line_has_axis(line, axis)) {
        world_error(check->w, "E0606", value->span, "mesh axis `%s` is written twice", name);
        continue;
      }
      if (axis) axis->placed = true, line->target = value->span;
      if (axis) vec_push(check->e->arena, line->axes, axis);
    }
  }
  if (named || line->none || line->balanced || line->activations || line->ring) return;
  diag_help(world_error(check->w, "E0602", line->line->path->span, "`place` names no mesh axis"),
            "`place %s`", target_word("else"));
}

static void read_rules(PlanCheck *check) {
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *setting = check->item->block->settings.at[i];
    if (strcmp(setting->path->text, "place") || setting->arrow != ARROW_RIGHT) continue;
    PlaceLine line = {.line = setting};
    for (uint32_t k = 0; k < setting->values.n; k++)
      if (!setting->values.at[k].key)
        read_operand(check, &line, setting->values.at[k].value, false);
    read_target(check, &line, setting);
    check_operands(check, &line);
    check_shared_axis(check, &line);
    vec_push(check->e->arena, check->rules, line);
  }
}

int64_t plan_ranks_of(const PlaceLine *line) {
  int64_t n = 1;
  for (uint32_t i = 0; i < line->axes.n; i++) n = times_i64(n, line->axes.at[i]->size);
  return n;
}

static Str axes_text(PlanCheck *check, const PlaceLine *line) {
  Str s = "";
  for (uint32_t i = 0; i < line->axes.n; i++)
    s = arena_list(check->e->arena, s, "%s", line->axes.at[i]->name);
  return s;
}

static bool param_has(const Param *param, Str dim) {
  return dims_has(&param->dims, dim) || dims_has(&param->lead, dim);
}

/* ---- E0701, E0704 ---- */

static const char *last_part(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* GPT2.h.*.attn.c_attn, c_attn_b, c_proj: names of one place are not repeated. */
static void fact_params(PlanCheck *check, Report *r, Str dim) {
  Str text = NULL, before = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    Str path = check->e->params.at[i]->path;
    if (!param_has(check->e->params.at[i], dim) || n++ >= 6) continue;
    size_t folder = (size_t)(last_part(path) - path);
    bool same =
        before && (size_t)(last_part(before) - before) == folder && !strncmp(before, path, folder);
    if (!text) text = arena_printf(check->e->arena, "%s.%s", check->c->base->name.text, path);
    else text = arena_printf(check->e->arena, "%s, %s", text, same ? last_part(path) : path);
    before = path;
  }
  if (text) diag_fact(r, "`%s` is a dimension of %s%s", dim, text, n > 6 ? ", .." : "");
}

bool plan_is_stack_dim(const PlanCheck *check, Str dim) {
  for (uint32_t i = 0; i < check->e->params.n; i++)
    if (dims_has(&check->e->params.at[i]->lead, dim)) return true;
  return false;
}

/* 0: it is open, or another message is about it. */
static int64_t size_to_divide(const PlanCheck *check, Str dim) {
  int64_t size = strcmp(dim, "Batch") ? stored_size_of(check->e->sizes, dim) : 0;
  return size > 0 && !plan_is_stack_dim(check, dim) ? size : 0;
}

static void help_divisors(PlanCheck *check, Report *r, const PlaceLine *rule) {
  int64_t common = 0;
  Str names = "", list = "";
  uint32_t n = 0, all = 0, seen = 0;
  for (uint32_t i = 0; i < rule->dims.n; i++)
    all += size_to_divide(check, rule->dims.at[i].dim) > 0;
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    Str dim = rule->dims.at[i].dim;
    if (!size_to_divide(check, dim)) continue;
    common = gcd_i64(common, size_to_divide(check, dim));
    names = arena_printf(check->e->arena, "%s%s%s", names,
                         !seen             ? ""
                         : seen + 1 == all ? " and "
                                           : ", ",
                         dim);
    seen++;
  }
  for (int64_t k = 1; k <= common && k <= 4096 && n < 16; k++)
    if (common % k == 0) list = arena_list(check->e->arena, list, "%lld", (long long)k), n++;
  diag_help(r, "%s sizes that divide %s: %s", axes_text(check, rule), names, list);
}

/* Where it costs no more than an eighth. */
static void help_padding(Report *r, const Placed *placed, int64_t size, int64_t ranks) {
  int64_t stored = ranks <= size ? round_up(size, ranks) : INT64_MAX;
  if (stored - size <= size / 8)
    diag_help(r, "or store it padded: `%s = %lld pad %lld` among the dims is %lld, which divides",
              placed->dim, (long long)size, (long long)ranks, (long long)stored);
}

static void check_divides(PlanCheck *check, const PlaceLine *rule) {
  int64_t ranks = plan_ranks_of(rule);
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *placed = &rule->dims.at[i];
    int64_t size = size_to_divide(check, placed->dim);
    if (plan_is_stack_dim(check, placed->dim)) {
      check_layers(check, placed, stored_size_of(check->e->sizes, placed->dim), ranks);
      continue;
    }
    if (size % ranks == 0) continue;
    Report *r = world_error(check->w, "E0701", placed->span,
                            "cannot split `%s` (%lld) over mesh axis `%s` (%lld)", placed->dim,
                            (long long)size, axes_text(check, rule), (long long)ranks);
    diag_label(r, "%lld is not a multiple of %lld", (long long)size, (long long)ranks);
    fact_params(check, r, placed->dim);
    help_divisors(check, r, rule);
    help_padding(r, placed, size, ranks);
    help_heads(check, r, rule, placed);
  }
}

/* ---- E0702 ---- */

static bool kept_whole(const PlanCheck *check, const PlaceLine *before, Str path) {
  for (uint32_t i = 0; i < check->rules.n && &check->rules.at[i] != before; i++)
    for (uint32_t k = 0; check->rules.at[i].none && k < check->rules.at[i].paths.n; k++)
      if (check->rules.at[i].paths.at[k].dim == path) return true;
  return false;
}

static Str names_but(PlanCheck *check, const PlaceLine *rule, const Placed *without) {
  Str s = "";
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *placed = &rule->dims.at[i];
    if (!placed->otherwise && placed != without)
      s = arena_list(check->e->arena, s, "%s", placed->dim);
  }
  return s;
}

/* The operands of the line between these, the second one left out. */
static Str names_between(PlanCheck *check, const Placed *from, const Placed *end) {
  Str s = "";
  for (const Placed *placed = from; placed < end; placed++)
    s = arena_list(check->e->arena, s, "%s", placed->dim);
  return s;
}

static void split_twice(PlanCheck *check, const PlaceLine *rule, const Param *param,
                        const Placed *first, const Placed *second) {
  Str axis = axes_text(check, rule);
  Dims all = param->dims;
  Report *r = world_error(check->w, "E0702", second->span,
                          "`%s` would be split twice over mesh axis `%s`", param->path, axis);
  diag_label(r, "`%s` already takes `%s` in %s", first->dim, axis, dims_text(check->e->ctx, &all));
  diag_help(r, "drop `%s`, or order the choice: `place %s -> %s else %s`", second->dim,
            names_but(check, rule, second), axis, second->dim);
  for (uint32_t i = 0; i < rule->dims.n; i++)
    if (rule->dims.at[i].otherwise) return; /* the order is written already */
  const AstPair *last = &vec_last(rule->line->target);
  diag_edit(r,
            (Span){first->span.file, first->span.offset,
                   second->span.offset + second->span.length - first->span.offset},
            "%s", names_between(check, first, second));
  diag_edit(r, (Span){last->span.file, last->span.offset + last->span.length, 0}, " else %s",
            second->dim);
}

static void check_once(PlanCheck *check, const PlaceLine *rule) {
  for (uint32_t i = 0; i < check->e->params.n; i++) {
    const Param *param = check->e->params.at[i];
    const Placed *first = NULL;
    if (rule->activations || kept_whole(check, rule, param->path)) continue;
    for (uint32_t k = 0; k < rule->dims.n; k++) {
      const Placed *placed = &rule->dims.at[k];
      if (placed->otherwise || !param_has(param, placed->dim)) continue;
      if (first) {
        split_twice(check, rule, param, first, placed);
        return;
      }
      first = placed;
    }
  }
}

/* ---- E0703 ---- */

bool plan_cuts_batch(const PlaceLine *rule) {
  for (uint32_t k = 0; k < rule->dims.n; k++)
    if (!strcmp(rule->dims.at[k].dim, "Batch")) return true;
  return false;
}

const PlaceLine *plan_batch_rule(const PlanCheck *check) {
  for (uint32_t i = 0; i < check->rules.n; i++)
    if (plan_cuts_batch(&check->rules.at[i])) return &check->rules.at[i];
  return NULL;
}

/* Over which Batch is cut: axes of one line, or of several. */
typedef VEC(const PlanAxis *) AxisVec;

static AxisVec batch_axes(const PlanCheck *check) {
  AxisVec axes = {0};
  for (uint32_t i = 0; i < check->rules.n; i++)
    for (uint32_t k = 0; plan_cuts_batch(&check->rules.at[i]) && k < check->rules.at[i].axes.n; k++)
      vec_push(check->e->arena, axes, check->rules.at[i].axes.at[k]);
  return axes;
}

int64_t plan_batch_ranks(const PlanCheck *check) {
  AxisVec axes = batch_axes(check);
  int64_t ranks = 1;
  for (uint32_t i = 0; i < axes.n; i++) ranks = times_i64(ranks, axes.at[i]->size);
  return ranks;
}

static Str equation(PlanCheck *check, const AxisVec *axes, int64_t micro, bool has_micro) {
  Str names = "", sizes = "";
  int64_t product = micro;
  for (uint32_t i = 0; i < axes->n; i++) {
    names = arena_printf(check->e->arena, "%s%s%s", names, i ? " x " : "", axes->at[i]->name);
    sizes = arena_printf(check->e->arena, "%s%s%lld", sizes, i ? " x " : "",
                         (long long)axes->at[i]->size);
    product = times_i64(product, axes->at[i]->size);
  }
  if (has_micro) {
    names = arena_printf(check->e->arena, "%s%smicro", names, axes->n ? " x " : "");
    sizes =
        arena_printf(check->e->arena, "%s%s%lld", sizes, axes->n ? " x " : "", (long long)micro);
  }
  if (axes->n + has_micro < 2) return arena_printf(check->e->arena, "%s = %s", names, sizes);
  return arena_printf(check->e->arena, "%s = %s = %lld", names, sizes, (long long)product);
}

static void help_micro(Report *r, const AstValue *written, int64_t share, int64_t micro) {
  int64_t below = divisor_to(share, micro),
          above = micro < share ? divisor_from(share, micro) : micro;
  if (written) diag_edit(r, written->span, "%lld", (long long)below);
  if (above > share || above == below)
    diag_help(r, "nearest that divides: micro = %lld (%lld accumulation step%s)", (long long)below,
              (long long)(share / below), share > below ? "s" : "");
  else
    diag_help(r, "nearest that divide: micro = %lld (%lld accumulation steps) or %lld (%lld)",
              (long long)below, (long long)(share / below), (long long)above,
              (long long)(share / above));
}

static void check_batch(PlanCheck *check) {
  const AstItem *train = check->c->train ? check->c->train->item : NULL;
  const AstValue *written = settings_value(train, "batch", NULL),
                 *micro_at = settings_value(check->item, "micro", NULL);
  int64_t batch = size_of(check->e->sizes, intern(check->e->ctx->names, "Batch"));
  if (batch <= 0) batch = settings_integer(train, ITEM_TRAIN, "batch", NULL);
  int64_t micro = micro_at ? settings_integer(check->item, ITEM_PLAN, "micro", NULL) : 1;
  const PlaceLine *rule = plan_batch_rule(check);
  AxisVec axes = batch_axes(check);
  int64_t splits = plan_batch_ranks(check);
  if (!written || batch < 1 || micro < 1 || batch % times_i64(splits, micro) == 0) return;
  Span at = micro_at ? micro_at->span : rule->target;
  Report *r = world_error(check->w, "E0703", at, "batch %lld is not a multiple of %s",
                          (long long)batch, equation(check, &axes, micro, micro_at != NULL));
  diag_label(r, "%lld / %lld is no whole number of accumulation steps", (long long)batch,
             (long long)times_i64(splits, micro));
  diag_also(r, written->span, "batch %lld (train `%s`)", (long long)batch, train->name.text);
  for (uint32_t i = 0; i < axes.n; i++)
    diag_also(r, axes.at[i]->value, "%s = %lld", axes.at[i]->name, (long long)axes.at[i]->size);
  if (batch % splits == 0) help_micro(r, micro_at, batch / splits, micro);
  else if (batch < splits) diag_help(r, "a batch of %lld", (long long)splits);
  else
    diag_help(r, "a batch of %lld or %lld", (long long)(batch / splits * splits),
              (long long)((batch / splits + 1) * splits));
}

/* ---- names after `over`, paths of recompute ---- */

static void check_over(PlanCheck *check, const AstSetting *setting) {
  const AstValue **value;
  uint32_t n = setting_over(check->e->ctx, setting, &value);
  VEC(const PlanAxis *) named = {0};
  for (uint32_t i = 0; i < n; i++) {
    if (value[i]->kind != VALUE_PATH) continue;
    Str name = intern(check->e->ctx->names, value[i]->path->text);
    const PlanAxis *axis = need_axis(check, name, value[i]->span);
    for (uint32_t k = 0; axis && k < named.n; k++)
      if (named.at[k] == axis)
        world_error(check->w, "E0606", value[i]->span,
                    "mesh axis `%s` is written twice after `over`", name);
    if (axis) vec_push(check->e->arena, named, axis);
  }
}

static void check_lines(PlanCheck *check) {
  for (uint32_t i = 0; i < check->item->block->settings.n; i++) {
    const AstSetting *setting = check->item->block->settings.at[i];
    const AstValue **value;
    bool recompute = !strcmp(setting->path->text, "recompute");
    if (recompute || !strcmp(setting->path->text, "zero")) check_over(check, setting);
    uint32_t n = recompute ? setting_operands(check->e->ctx, setting, &value) : 0;
    for (uint32_t k = 0; k < n; k++) plan_names_part(check, value[k]);
    if (recompute) check_recompute(check->e, setting);
  }
}

/* ---- warnings: what works, slowly ---- */

/* Ranks along an axis that cuts nothing all do the same. */
static void warn_idle(PlanCheck *check) {
  for (uint32_t i = 0; i < check->mesh.n; i++) {
    const PlanAxis *axis = &check->mesh.at[i];
    if (axis->size < 2 || axis->placed) continue;
    world_warn(check->w, "W0704", axis->value,
               arena_printf(check->e->arena,
                            "nothing is split over mesh axis `%s`: %lld ranks do the same",
                            axis->name, (long long)axis->size),
               arena_printf(check->e->arena,
                            "`place DIM -> %s`, for data parallelism `place Batch -> %s`",
                            axis->name, axis->name));
  }
}

/* Keys of an attention, say, that no expression of the model names are like a dim that it has. */
static bool is_met(const PlanCheck *check, Str dim) {
  const DimInfo *info = sizes_find(check->e->sizes, dim);
  return !info || info->met || (info->def && info->def->like.text) || plan_is_stack_dim(check, dim);
}

static void warn_unmet(PlanCheck *check) {
  for (uint32_t i = 0; i < check->rules.n; i++)
    for (uint32_t k = 0; k < check->rules.at[i].dims.n; k++) {
      const Placed *placed = &check->rules.at[i].dims.at[k];
      if (!is_met(check, placed->dim))
        world_warn(check->w, "W0704", placed->span,
                   arena_printf(check->e->arena, "no value of model `%s` has dimension `%s`",
                                check->c->model->name, placed->dim),
                   "`place` splits nothing by it");
    }
}

/* Without `over`, the axes that split Batch are meant. */
static void warn_whole(PlanCheck *check) {
  const AstSetting *zero = settings_line(check->item, "zero");
  const AstValue *stage = settings_value(check->item, "zero", NULL), **over;
  if (!stage || stage->kind != VALUE_NUMBER || stage->number.integral < 1 ||
      plan_batch_rule(check) || setting_over(check->e->ctx, zero, &over))
    return;
  long long z = stage->number.integral;
  world_warn(
      check->w, "W0703", zero->span,
      arena_printf(check->e->arena, "`zero %lld` partitions nothing: no mesh axis splits Batch", z),
      check->mesh.n ? arena_printf(check->e->arena, "`place Batch -> %s`, or `zero %lld over %s`",
                                   check->mesh.at[0].name, z, check->mesh.at[0].name)
                    : "`mesh data = N` and `place Batch -> data` say whose ranks share");
}

/* The number of ranks that share the partitions of `zero`: over the axes after `over`, or those
   that split Batch. */
int64_t plan_zero_ranks(PlanCheck *check) {
  const AstSetting *zero = settings_line(check->item, "zero");
  const AstValue **over;
  int64_t ranks = 1;
  uint32_t n = zero ? setting_over(check->e->ctx, zero, &over) : 0;
  for (uint32_t i = 0; i < n; i++) {
    Str name =
        over[i]->kind == VALUE_PATH ? intern(check->e->ctx->names, over[i]->path->text) : NULL;
    const PlanAxis *axis = name ? find_axis(check, name) : NULL;
    if (axis) ranks = times_i64(ranks, axis->size);
  }
  return n ? ranks : plan_batch_ranks(check);
}

/* Every rank has a piece of every bucket, and pieces begin at multiples of 64 bytes, or are whole
   blocks of what travels in 8 bits. */
static void check_bucket(PlanCheck *check) {
  enum { LINE = 64, WIDEST = 4 };
  int64_t block = plan_int8_numbers(check),
          piece = block > LINE / WIDEST ? times_i64(block, WIDEST) : LINE;
  const AstSetting *zero = settings_line(check->item, "zero");
  const AstValue *bucket = zero ? setting_option(zero, "bucket") : NULL;
  const AstValue *at = bucket ? bucket : settings_value(check->item, "precision", "block");
  if (!at) return;
  int64_t ranks = plan_zero_ranks(check), least = times_i64(ranks, piece),
          have = settings_integer(check->item, ITEM_PLAN, "zero", "bucket");
  if (have >= least) return;
  Report *r = world_error(check->w, "E0602", at->span, "a bucket of %lld bytes for %lld ranks",
                          (long long)have, (long long)ranks);
  diag_label(r, "every rank owns a piece of each, of %lld bytes at least", (long long)piece);
  if (bucket)
    diag_help(r, "`bucket = %lld` is the least; without it `zero` takes 25MiB or more",
              (long long)least);
  else diag_help(r, "a smaller `block`, or `zero` with `bucket = %lld`", (long long)least);
  if (bucket) diag_edit(r, at->span, "%lld", (long long)least);
}

void check_plan(Eval *e, const Choice *choice, const AstItem *plan) {
  PlanCheck check = {.e = e, .w = e->w, .c = choice, .item = plan};
  if (!plan->block) return;
  if (check_searched(&check)) return;
  read_mesh(&check);
  check_size(&check);
  read_rules(&check);
  check_machine(&check);
  for (uint32_t i = 0; i < check.rules.n; i++)
    if (check.rules.at[i].axes.n)
      check_divides(&check, &check.rules.at[i]), check_once(&check, &check.rules.at[i]);
  for (uint32_t i = 0; i < check.rules.n; i++) {
    check_balanced(&check, &check.rules.at[i]);
    check_activations(&check, &check.rules.at[i]);
    check_ring(&check, &check.rules.at[i]);
  }
  check_batch(&check);
  check_messages(&check);
  for (uint32_t i = 0; i < check.rules.n; i++) warn_wide(&check, &check.rules.at[i]);
  check_stages(&check);
  warn_idle(&check), warn_unmet(&check);
  warn_whole(&check);
  check_bucket(&check);
  check_flights(&check);
  check_ignored(&check);
  check_onebit_plan(&check);
  check_lines(&check);
  check_offload(&check);
}
