/* The line `lora` of a train block: which weights get adapters of low rank. The rank is a dim of
   the model (E0201); names must match parameters (E0709), of all layers of a stack (E0901), that
   products read and nothing else does (E0602). Must not: make the adapters
   (frontend/model/sema_adapt.c). */
#include "frontend/plan/sema_plan.h"
#include "frontend/settings/settings.h"
#include "ir/plan/layer_range.h"
#include "train.h"
#include <string.h>

const Adapters *read_lora(Ctx *c, const AstItem *train) {
  const AstSetting *line = settings_line(train, "lora");
  const AstValue *rank = settings_value(train, "lora", NULL);
  if (!line || !rank) return NULL;
  Adapters *adapters = ARENA_NEW(c->arena, Adapters);
  adapters->rank = rank->path->text, adapters->span = line->path->span;
  adapters->alpha = settings_number(train, ITEM_TRAIN, "lora", "alpha");
  adapters->dropout = settings_number(train, ITEM_TRAIN, "lora", "dropout");
  adapters->n = setting_of(c, line, &adapters->path);
  return adapters;
}

static bool has_words(Eval *e, const AstSetting *line) {
  const Adapters *adapters = e->adapters;
  if (!adapters->n) {
    Report *r = world_error(e->w, "E0602", line->path->span, "`lora` needs `of` and weights");
    diag_help(r, "for example `lora %s alpha = 16 of h.*.attn`", adapters->rank);
  } else if (!setting_option(line, "alpha")) {
    const DimInfo *dim = sizes_find(e->sizes, adapters->rank);
    Report *r = world_error(e->w, "E0602", line->path->span, "`lora` needs `alpha`");
    diag_fact(r, "what adapters add is scaled by alpha / %s", adapters->rank);
    if (dim && dim->size > 0)
      diag_help(r, "for example `alpha = %lld`, for a factor of 2", 2 * (long long)dim->size);
  } else return true;
  return false;
}

static bool has_rank(Eval *e, const AstSetting *line) {
  const AstValue *rank = line->values.at[0].value;
  if (sizes_find(e->sizes, e->adapters->rank)) return true;
  Report *r = world_error(e->w, "E0201", rank->span, "no dimension named `%s`", e->adapters->rank);
  diag_help(r, "`dims { %s = 8 }` declares the rank", e->adapters->rank);
  return false;
}

/* A path also names biases and the like, which stay as they are. */
static void check_weight(Eval *e, const AstValue *path, const Param *param, bool *any) {
  *any |= param->low[0] != NULL;
  if (!param->low[0] || param->uses == param->products) return;
  Report *r = world_error(e->w, "E0602", path->span, "`lora` adapts weights of products alone");
  diag_label(r, "other operators than `dot` read `%s` as well", param->path);
  diag_also(r, param->span, "`%s`", param->path);
  diag_help(r, "name weights that only `dot` reads, such as those of `Linear`");
}

static void no_weight(Eval *e, const AstValue *path) {
  Report *r = world_error(e->w, "E0602", path->span, "`lora` adapts weights of products alone");
  diag_label(r, "no `dot` reads what this names");
  diag_help(r, "name weights that `dot` reads, such as those of `Linear`");
}

static void check_path(PlanCheck *check, const AstValue *path) {
  Eval *e = check->e;
  LayerPath layers;
  if (path->kind != VALUE_PATH || !plan_names_params(check, path)) return;
  Str text = path->path->text;
  if (layer_path(text, strlen(text), &layers)) {
    Report *r = world_unbuilt(e->w, path->span, "an adapter for some layers of a stack is");
    Str whole = layer_path_whole(e->ctx->names, text);
    diag_help(r, "all of them: `%s`", whole);
    diag_edit(r, path->span, "%s", whole);
    return;
  }
  bool any = false;
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!e->params.at[i]->adapts && layer_path_names(text, strlen(text), e->params.at[i]->path))
      check_weight(e, path, e->params.at[i], &any);
  if (!any) no_weight(e, path);
}

void check_lora(Eval *e, const Choice *choice, const AstItem *train) {
  const AstSetting *line = settings_line(train, "lora");
  PlanCheck check = {.e = e, .w = e->w, .c = choice};
  uint32_t before = e->w->errors;
  if (!e->adapters || !line || !has_words(e, line) || !has_rank(e, line)) return;
  for (uint32_t i = 0; i < e->adapters->n && e->w->errors == before; i++)
    check_path(&check, e->adapters->path[i]);
}

void write_lora(Module *m, const Eval *e) {
  for (uint32_t i = 0; i < e->params.n; i++)
    if (e->params.at[i]->adapts)
      module_set(m, arena_printf(m->arena, "weights.adapter.%s", e->params.at[i]->path), "%s",
                 e->params.at[i]->adapts->path);
}
