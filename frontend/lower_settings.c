/* Resolved settings as flat lines of the module: train.*, plan.*, data.*, then what the command
   line says. And what the table knows but no pass reads yet: E0901 at its position. */
#include "frontend/lower_build.h"
#include "frontend/settings.h"
#include "ir/placement.h"
#include <stdlib.h>
#include <string.h>

/* ---- data ---- */

static void write_columns(Module *m, const AstValue *v, const char *prefix) {
  for (uint32_t i = 0; i < v->args.n; i++) {
    const AstPair *p = &v->args.at[i];
    if (p->key && p->value->kind == VALUE_STRING)
      module_set(m, arena_printf(m->arena, "%s.%s", prefix, p->key->text), "%s", p->value->string);
  }
}

static void write_source(Module *m, const AstValue *v, const char *key, const char *columns) {
  if (!v) return;
  if (v->kind == VALUE_STRING) module_set(m, key, "%s", v->string);
  else if (v->kind == VALUE_NUMBER) module_set(m, key, "%.10g%%", v->number.value * 100);
  else if (v->kind == VALUE_CALL) write_columns(m, v, columns);
}

/* Labels that the loss leaves out are no mistake in the data. */
static void write_ignored(Module *m, Eval *e) {
  for (uint32_t i = 0; i < e->ignored.n; i++)
    module_set(m, arena_printf(m->arena, "data.ignore.%s", e->ignored.at[i].input), "%lld",
               (long long)e->ignored.at[i].label);
}

void write_data(Module *m, Eval *e, const Choice *c) {
  const AstSetting *line = settings_line(c->train->item, "data");
  write_ignored(m, e);
  if (!line) return;
  write_source(m, settings_value(c->train->item, "data", NULL), "data.train", "data.columns");
  write_source(m, setting_option(line, "valid"), "data.valid", "data.valid.columns");
  const AstValue *task = setting_option(line, "task");
  if (task && task->kind == VALUE_CALL) write_task(m, e, task);
}

/* ---- all of a block ---- */

static void sink(void *data, const char *key, const char *value) {
  static const char prefix[] = "train.data.";
  bool moved = !strncmp(key, prefix, sizeof prefix - 1);
  module_set(data, moved ? key + strlen("train.") : key, "%s", value);
}

/* The axes of `zero` stand behind a word, not behind a key. */
static void write_over(Module *m, Eval *e, const Choice *c) {
  const AstSetting *line = c->plan ? settings_line(c->plan->item, "zero") : NULL;
  const AstValue **axis;
  const char *list = "";
  uint32_t n = setting_over(e->ctx, line, &axis);
  for (uint32_t i = 0; i < n; i++)
    list = arena_printf(m->arena, "%s%s%s", list, i ? ", " : "", axis[i]->path->text);
  if (n) module_set(m, "plan.zero.over", "%s", list);
}

static void write_plan(Module *m, Eval *e, const Choice *c) {
  static const char *const wanted[] = {
      "plan.precision",      "plan.precision.grad",  "plan.precision.scale",
      "plan.precision.grow", "plan.precision.least", "plan.deterministic",
      "plan.micro"};
  bool mesh = c->plan && settings_line(c->plan->item, "mesh");
  settings_resolve(e->ctx, c->plan ? c->plan->item : NULL, ITEM_PLAN, sink, m);
  write_over(m, e, c);
  /* What only other plans than one rank on one processor need is left out. */
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->settings.n; i++) {
    bool keep = strncmp(m->settings.at[i].key, "plan.", 5) != 0;
    for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++)
      keep |= !strcmp(m->settings.at[i].key, wanted[k]);
    keep |= mesh && !strncmp(m->settings.at[i].key, "plan.zero", 9);
    keep |= mesh && !strcmp(m->settings.at[i].key, "plan.on.nodes");
    if (keep) m->settings.at[n++] = m->settings.at[i];
  }
  m->settings.n = n;
}

static void write_machine(Module *m, Eval *e, const Choice *c) {
  const AstValue *on = c->plan ? settings_value(c->plan->item, "on", NULL) : NULL;
  const Decl *d =
      on && on->kind == VALUE_PATH ? world_find(e->w, SPACE_MACHINE, on->path->text, false) : NULL;
  if (d) settings_resolve(e->ctx, d->item, ITEM_MACHINE, sink, m);
}

/* ---- the command line ---- */

/* train.optim.lr is the option lr of the lines optim, optim.adamw, ..; data.format is short for
 * train.data.format. */
static bool names_row(const SettingRow *r, const char *key) {
  char name[96];
  int word = (int)strcspn(r->word, ".");
  snprintf(name, sizeof name, "%s.%.*s%s%s", ast_item_word(r->block), word, r->word,
           r->key ? "." : "", r->key ? r->key : "");
  return r->kind != ROW_CHOICE &&
         (!strcmp(name, key) || (!strncmp(name, "train.data.", 11) && !strcmp(name + 6, key)));
}

static const SettingRow *find_setting(const char *key) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (names_row(&rows[i], key)) return &rows[i];
  return NULL;
}

static bool is_choice(const SettingRow *r, const char *value) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (uint32_t i = 0; i < n; i++) {
    char word[64];
    snprintf(word, sizeof word, "%s%s%s", r->word, r->key ? "." : "", r->key ? r->key : "");
    if (rows[i].kind == ROW_CHOICE && rows[i].block == r->block && !strcmp(rows[i].word, word) &&
        !strcmp(rows[i].key, value))
      return true;
  }
  return false;
}

static bool fits_type(const SettingRow *r, const char *value) {
  AstNumber n;
  bool number = ast_number_unit(value, strlen(value), &n);
  switch (r->type) {
  case TYPE_COUNT: return number && n.integer && n.integral >= 1;
  case TYPE_INTEGER:
  case TYPE_STAGE: return number && n.integer && n.integral >= 0;
  case TYPE_POSITIVE: return number && n.value > 0;
  case TYPE_SHARE: return number && n.value >= 0 && n.value <= 1;
  case TYPE_NUMBER:
  case TYPE_BYTES:
  case TYPE_RATE:
  case TYPE_FLOPS: return number;
  case TYPE_SWITCH: return !strcmp(value, "on") || !strcmp(value, "off");
  case TYPE_WORD: return is_choice(r, value);
  default: return true;
  }
}

static bool check_set(World *w, const char *text) {
  const char *eq = strchr(text, '=');
  Str key = eq ? intern_n(w->ctx->names, text, (size_t)(eq - text)) : NULL;
  if (!eq || !eq[1]) {
    world_error(w, "E0602", (Span){0},
                "`--set %s`: a setting and its value are wanted, as in `--set train.steps=10`",
                text);
    return false;
  }
  const SettingRow *r = find_setting(key);
  if (!strncmp(key, "debug.", 6) || !strcmp(key, "data.train") || (r && fits_type(r, eq + 1)))
    return true;
  if (r) {
    world_error(w, "E0602", (Span){0}, "`%s` is %s, not `%s`", key, setting_type_text(r->type),
                eq + 1);
    return false;
  }
  Report *e = world_error(w, "E0601", (Span){0}, "no setting `%s` (from `--set %s`)", key, text);
  diag_help(e, "settings are written as train.steps, train.optim.lr, plan.micro, data.format");
  return false;
}

bool check_command_line(World *w, const LowerOptions *o) {
  bool good = true;
  for (uint32_t i = 0; i < o->nsets; i++) good &= check_set(w, o->sets[i]);
  return good;
}

static void write_command_line(Module *m, const LowerOptions *o) {
  for (uint32_t i = 0; i < o->nsets; i++) {
    const char *eq = strchr(o->sets[i], '=');
    module_set(m, arena_printf(m->arena, "%.*s", (int)(eq - o->sets[i]), o->sets[i]), "%s", eq + 1);
  }
}

/* A micro-batch that is all of a rank's share needs no cut. */
static void drop_whole_micro(Module *m, int64_t batch) {
  uint32_t n = 0;
  bool whole = module_number(m, "plan.micro", 0) * (double)mesh_batch_ranks(m) == (double)batch;
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!whole || strcmp(m->settings.at[i].key, "plan.micro"))
      m->settings.at[n++] = m->settings.at[i];
  m->settings.n = n;
}

void write_settings(Module *m, Eval *e, const Choice *c, const LowerOptions *o) {
  module_set(m, "model", "%s", c->model->name);
  settings_resolve(e->ctx, c->train->item, ITEM_TRAIN, sink, m);
  write_data(m, e, c);
  write_machine(m, e, c);
  write_plan(m, e, c);
  write_command_line(m, o);
  int64_t batch = size_of(e->sizes, intern(e->ctx->names, "Batch"));
  if (batch > 0) module_set(m, "train.batch", "%lld", (long long)batch);
  drop_whole_micro(m, batch);
  if (!module_setting(m, "plan.precision", NULL)) module_set(m, "plan.precision", "f32");
}

/* ---- not built yet ---- */

typedef struct Unbuilt { /* an option of the table; value NULL: written at all; "!x": any other
                            value than x */
  AstItemKind block;
  const char *word, *key, *value, *why;
} Unbuilt;

static const Unbuilt unbuilt[] = {
    {ITEM_TRAIN, "optim", NULL, "onebit_adam", "optimizer `onebit_adam`"},
    {ITEM_TRAIN, "save", "async", "on", "saving while training goes on"},
    {ITEM_PLAN, "pipeline", NULL, NULL, "the pipeline"},
    {ITEM_PLAN, "offload", NULL, NULL, "offloading"},
    {ITEM_PLAN, "precision", "reduce", NULL, "a type of its own for gradients in messages"},
};

static const char *value_word(const AstValue *v) {
  if (v->kind == VALUE_PATH) return v->path->text;
  return v->kind == VALUE_NUMBER && v->number.text ? v->number.text : "";
}

static bool matches(const Unbuilt *u, const AstValue *v) {
  if (!u->value) return true;
  if (!v) return false;
  return u->value[0] == '!' ? strcmp(value_word(v), u->value + 1) != 0
                            : !strcmp(value_word(v), u->value);
}

static void not_built(Eval *e, Span at, const char *why) {
  Report *r = world_error(e->w, "E0901", at, "%s is not built yet", why);
  diag_label(r, "in the language, for later");
}

static void check_unbuilt(Eval *e, const AstItem *item) {
  for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
    const Unbuilt *u = &unbuilt[i];
    const AstSetting *line = u->block == item->kind ? settings_line(item, u->word) : NULL;
    const AstValue *v = line ? settings_value(item, u->word, u->key) : NULL;
    if (line && (v || !u->key) && matches(u, v)) not_built(e, v ? v->span : line->span, u->why);
  }
}

static void check_machine(Eval *e, const AstItem *plan) {
  const AstValue *on = settings_value(plan, "on", NULL);
  const Decl *d =
      on && on->kind == VALUE_PATH ? world_find(e->w, SPACE_MACHINE, on->path->text, false) : NULL;
  if (d && settings_has(d->item, "node", "gpus")) not_built(e, on->span, "a machine with GPUs");
}

static void note_hand_gradients(Eval *e) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(e->w, SPACE_GRAD, &at));) {
    Report *r = world_error(e->w, "N0901", d->span, "the gradient of `%s` by hand is not used yet",
                            d->name);
    diag_label(r, "the derived one is");
  }
}

static void note_kernels(Eval *e) {
  uint32_t at = 0;
  for (const Decl *d; (d = world_next(e->w, SPACE_FN, &at));)
    if (d->item->kind == ITEM_EXTERN) {
      Report *r =
          world_error(e->w, "N0901", d->span, "the kernel of `%s` is not used yet", d->name);
      diag_label(r, "its reference is compiled");
    }
}

void check_built(Eval *e, const Choice *c, bool planning) {
  check_unbuilt(e, c->train->item);
  if (c->plan) {
    check_unbuilt(e, c->plan->item);
    if (!planning) check_machine(e, c->plan->item); /* for the machine no program is made then */
  }
  note_hand_gradients(e);
  note_kernels(e);
}
