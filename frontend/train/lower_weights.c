/* Weights blocks as lines of the module, for the executable that reads and writes weights files:

     set weights.prefix = "transformer."
     set weights.ignore = "names, blanks between"
     set weights.file.PATH = "names of the parameter, blanks between"
     set weights.order.PATH = "1 0"          (which of the parameter's dims each dim of the file is)
     set weights.config.KEY = "a JSON value"
     set weights.known.KEY = "a number"      (with which operators compute; KEY as in config.json)

   A model without a block takes a built-in one, the blocks of the example files, if the paths are
   exactly its parameters and every name in it means something for this model. A block of the user
   is checked before (sema_data.c, weights_config.c). */
#include "train.h"
#include <string.h>

/* ---- which block ---- */

static const Decl *block_for(World *w, Str model) {
  const Decl *found = NULL;
  uint32_t at = 0;
  for (const Decl *d; model && (d = world_next(w, SPACE_WEIGHTS, &at));)
    if (d->item->base.text == model && (!found || d->span.file == w->top)) found = d;
  return found;
}

const AstItem *choose_weights(World *w, const Choice *choice) {
  const Decl *d = block_for(w, choice->model->name);
  if (!d) d = block_for(w, choice->base->name.text);
  return d ? d->item : NULL;
}

/* ---- lines ---- */

static const Param *param_of(const Eval *e, const AstSetting *setting) {
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!strcmp(e->params.at[i]->path, setting->path->text)) return e->params.at[i];
  return NULL;
}

static Str join_names(Ctx *c, Str text, const AstPairs *names) {
  for (uint32_t i = 0; i < names->n; i++)
    if (names->at[i].value->kind == VALUE_STRING)
      text = arena_printf(c->arena, "%s%s%s", text, *text ? " " : "", names->at[i].value->string);
  return text;
}

static int place_in(const Param *param, Str dim) {
  for (int i = 0; i < param->dims.n; i++)
    if (param->dims.at[i] == dim) return i;
  return -1;
}

typedef struct WeightOrder { /* the dims of a parameter as the file has them */
  int n, from[DIMS_MAX];
  bool cut[DIMS_MAX], plain; /* cut: begins a dim of the file; plain: as declared, unmerged */
} WeightOrder;

/* False: `as` names other dims than the parameter's. */
static bool order_as(const AstAxes *as, const Param *param, WeightOrder *order) {
  for (uint32_t g = 0; g < as->groups.n; g++)
    for (uint32_t i = 0; i < as->groups.at[g].from.n; i++) {
      int at = place_in(param, as->groups.at[g].from.at[i].text);
      if (at < 0 || order->n == param->dims.n) return false;
      order->cut[order->n] = as->groups.n > 1 && i == 0;
      order->from[order->n++] = at;
    }
  return order->n == param->dims.n;
}

static bool same_base(Str a, Str b) { /* a prime is ignored */
  size_t n = strcspn(a, "'");
  return n == strcspn(b, "'") && !strncmp(a, b, n);
}

/* A dim that is all of some parameter, such as the one of every norm, is never joined to others. */
static bool stands_alone(const Eval *e, Str dim) {
  for (uint32_t i = 0; i < e->params.n; i++)
    if (e->params.at[i]->dims.n == 1 && same_base(e->params.at[i]->dims.at[0], dim)) return true;
  return false;
}

/* Other tools hold matrices and vectors: neighbours are joined unless `;` says where to cut. */
static bool order_of(const Eval *e, const AstSetting *setting, const Param *param,
                     WeightOrder *order) {
  *order = (WeightOrder){.plain = true};
  if (setting->as && !order_as(setting->as, param, order)) return false;
  for (int i = 0; !setting->as && i < param->dims.n; i++) order->from[order->n++] = i;
  for (int i = 0; i < order->n; i++) {
    if (!setting->as || setting->as->groups.n < 2)
      order->cut[i] = !i || stands_alone(e, param->dims.at[order->from[i]]) ||
                      stands_alone(e, param->dims.at[order->from[i - 1]]);
    order->plain &= order->cut[i] && order->from[i] == i;
  }
  return true;
}

static Str order_text(Ctx *c, const WeightOrder *order) {
  Str text = "";
  for (int i = 0; i < order->n; i++)
    text = arena_printf(c->arena, "%s%s%d", text,
                        !i              ? ""
                        : order->cut[i] ? "; "
                                        : " ",
                        order->from[i]);
  return text;
}

/* Files hold lora_a as [rank, inputs] and lora_b as [outputs, rank], each side in the order of the
   weight's own line. */
static void write_adapter(Module *m, Eval *e, const Param *param, const Param *weight,
                          const WeightOrder *order, Str names) {
  WeightOrder own = {0};
  bool first = param == weight->low[0];
  int rank = place_in(param, e->adapters->rank);
  if (first) own.cut[0] = true, own.from[own.n++] = rank;
  own.cut[own.n] = true;
  for (int i = 0; i < order->n; i++) {
    int at = place_in(param, weight->dims.at[order->from[i]]);
    if (at >= 0) own.from[own.n++] = at;
  }
  if (!first) own.cut[own.n] = true, own.from[own.n++] = rank;
  module_set(m, arena_printf(e->arena, "weights.file.%s", param->path), "%s", names);
  module_set(m, arena_printf(e->arena, "weights.order.%s", param->path), "%s",
             order_text(e->ctx, &own));
}

/* A built-in block is of a model whose numbers may differ from this one's. */
static Str config_text(Eval *e, const AstPair *pair, bool built_in) {
  const char *name = built_in ? config_known(pair->key->text) : NULL;
  const KnownNumber *known = name ? eval_known(e, name) : NULL;
  return known ? config_number(e->ctx, known->number) : config_json(e, pair->value);
}

/* Writes one line; with m NULL it only says whether it can be written. */
static bool write_line(Module *m, Eval *e, const AstSetting *setting, bool built_in, Str *ignored) {
  bool good = true;
  if (setting->arrow == ARROW_LEFT) {
    const Param *param = param_of(e, setting);
    WeightOrder order;
    if (!param || !order_of(e, setting, param, &order)) return false;
    Str names = m ? join_names(e->ctx, "", &setting->target) : NULL;
    if (m) module_set(m, arena_printf(e->arena, "weights.file.%s", param->path), "%s", names);
    if (m && !order.plain)
      module_set(m, arena_printf(e->arena, "weights.order.%s", param->path), "%s",
                 order_text(e->ctx, &order));
    for (int i = 0; m && param->low[0] && i < 2; i++)
      write_adapter(m, e, param->low[i], param, &order, names);
  } else if (!strcmp(setting->path->text, "prefix")) {
    if (m) module_set(m, "weights.prefix", "%s", join_names(e->ctx, "", &setting->values));
  } else if (!strcmp(setting->path->text, "ignore")) {
    *ignored = join_names(e->ctx, *ignored, &setting->values);
  } else {
    for (uint32_t i = 0; i < setting->values.n; i++) {
      const AstPair *pair = &setting->values.at[i];
      Str value = pair->key ? config_text(e, pair, built_in) : NULL;
      if (m && value)
        module_set(m, arena_printf(e->arena, "weights.config.%s", pair->key->text), "%s", value);
      good &= value != NULL;
    }
  }
  return good;
}

static bool write_block(Module *m, Eval *e, const AstItem *block, bool built_in) {
  Str ignored = "";
  bool good = true;
  for (uint32_t i = 0; i < block->block->settings.n; i++)
    good &= write_line(m, e, block->block->settings.at[i], built_in, &ignored);
  if (m) write_shared_names(m, e, block);
  if (m && *ignored) module_set(m, "weights.ignore", "%s", ignored);
  return good;
}

/* ---- built-in blocks ---- */

static bool has_line(const AstItem *block, const char *path) {
  for (uint32_t i = 0; i < block->block->settings.n; i++) {
    const AstSetting *setting = block->block->settings.at[i];
    if (setting->arrow == ARROW_LEFT && !strcmp(setting->path->text, path)) return true;
  }
  return false;
}

static bool fits(Eval *e, const AstItem *block) {
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!e->params.at[i]->adapts && !has_line(block, e->params.at[i]->path)) return false;
  return e->params.n && write_block(NULL, e, block, true);
}

static const AstItem *block_in(Ctx *c, const char *name, const char *text, size_t n) {
  AstFile *f = ast_parse(c, name, text, n);
  for (uint32_t i = 0; f && i < f->items.n; i++)
    if (f->items.at[i]->kind == ITEM_WEIGHTS && !f->items.at[i]->bad) return f->items.at[i];
  return NULL;
}

static void note_built_in(Eval *e, const Choice *choice, const AstItem *block) {
  Report *r = world_error(e->w, "N0601", choice->model->span,
                          "the names of `%s` were taken for weights files", block->base.text);
  diag_label(r, "it has exactly these parameters");
  diag_help(r, "numbers in config.json such as rope_theta are that model's; a `weights` block says "
               "it otherwise");
}

static const AstItem *built_in(Eval *e, const Choice *choice) {
  static const struct {
    const char *name;
    const char *(*text)(size_t *n);
  } files[] = {{"gpt2.shard", gpt2_shard_text},
               {"llama.shard", llama_shard_text},
               {"bert.shard", bert_shard_text}};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    size_t n;
    const char *text = files[i].text(&n);
    const AstItem *block = block_in(e->ctx, files[i].name, text, n);
    if (!block || !fits(e, block)) continue;
    note_built_in(e, choice, block);
    return block;
  }
  return NULL;
}

void write_weights(Module *m, Eval *e, const Choice *choice) {
  const AstItem *own = choose_weights(e->w, choice), *block = own ? own : built_in(e, choice);
  if (!block || !block->block) return;
  write_block(m, e, block, !own);
  static const char *const names[] = {"rope_theta", "rms_norm_eps", "layer_norm_eps"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const KnownNumber *known = eval_known(e, names[i]);
    if (known)
      module_set(m, arena_printf(e->arena, "weights.known.%s", names[i]), "%s",
                 config_number(e->ctx, known->number));
  }
}
