/* Resolved settings as flat lines of the module: train.*, plan.*, data.*. The changes of the
   command line (--set) are already part of copies of the blocks. */
#include "lower_build.h"
#include "frontend/settings/settings.h"
#include "ir/shape/placement.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/optimizers.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include "ir/word_patterns.h"
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

static void write_data(Module *m, Eval *e, const Choice *choice) {
  const AstSetting *line = settings_line(choice->train->item, "data");
  write_ignored(m, e);
  if (!line) return;
  write_source(m, settings_value(choice->train->item, "data", NULL), "data.train", "data.columns");
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

/* The axes of `zero` follow a word, not a key. */
static void write_over(Module *m, Eval *e, const Choice *choice) {
  const AstSetting *line = choice->plan ? settings_line(choice->plan->item, "zero") : NULL;
  const AstValue **axis;
  const char *list = "";
  uint32_t n = setting_over(e->ctx, line, &axis);
  for (uint32_t i = 0; i < n; i++) list = arena_list(m->arena, list, "%s", axis[i]->path->text);
  if (n) module_set(m, "plan.zero.over", "%s", list);
}

/* Does the module hold the setting? One rank on one processor does not need all of them. */
static bool is_held(const Module *m, const Choice *choice, const char *key) {
  const AstItem *plan = choice->plan ? choice->plan->item : NULL;
  bool mesh = settings_line(plan, "mesh"), pipeline = mesh && settings_line(plan, "pipeline"),
       bytes = plan_int8_gradients(m) || plan_int8_weights(m);
  const struct {
    const char *key; /* or what it begins with */
    bool held;
  } rows[] = {{"plan.on.nodes", mesh},
              {"plan.on", false},
              {"plan.deterministic", false},
              {"plan.recompute", false},
              {"plan.precision.master", false},
              {"plan.precision.block", bytes},
              {"plan.zero", mesh},
              {"plan.pipeline", pipeline}};
  for (size_t i = 0; i < COUNT_OF(rows); i++) {
    size_t n = strlen(rows[i].key);
    if (!strncmp(key, rows[i].key, n) && (!key[n] || key[n] == '.')) return rows[i].held;
  }
  return true;
}

static void write_plan(Module *m, Eval *e, const Choice *choice) {
  uint32_t n = m->settings.n;
  settings_resolve(e->ctx, choice->plan ? choice->plan->item : NULL, ITEM_PLAN, sink, m);
  write_over(m, e, choice);
  for (uint32_t i = n; i < m->settings.n; i++)
    if (is_held(m, choice, m->settings.at[i].key)) m->settings.at[n++] = m->settings.at[i];
  m->settings.n = n;
}

static void write_machine(Module *m, Eval *e, const Choice *choice) {
  const Decl *decl = plan_machine_of(e->w, choice->plan);
  if (decl) settings_resolve(e->ctx, decl->item, ITEM_MACHINE, sink, m);
}

/* ---- the command line ---- */

static bool is_debug(const char *set) { return !strncmp(set, "debug.", 6); }

static const Decl *edited(World *w, const Decl *old, AstItemKind kind, Space space,
                          const char *set) {
  Decl *decl = ARENA_NEW(w->ctx->arena, Decl);
  const AstItem *item = settings_edit(w->ctx, old ? old->item : NULL, kind, set);
  if (!item) return old;
  *decl = old ? *old : (Decl){.space = space, .name = ""};
  decl->item = item;
  return decl;
}

/* The first letters of the option, as a place. */
static Span set_span(World *w, const char *set, size_t n) {
  const char *text = arena_printf(w->ctx->arena, "%s", set);
  return (Span){diag_add_source(w->ctx->diag, "--set", text, strlen(text)), 0, (uint32_t)n};
}

/* Changes the machine of the plan in the world, where every reader finds it by its name. */
static void edit_machine(World *w, const Choice *choice, const char *set) {
  const Decl *decl = plan_machine_of(w, choice->plan);
  if (!decl) {
    Report *r =
        world_error(w, "E0602", set_span(w, set, strcspn(set, ".")), "no plan names a machine");
    diag_help(r, "`--plan NAME` of a plan with `on MACHINE`");
    return;
  }
  const Decl *copy = edited(w, decl, ITEM_MACHINE, SPACE_MACHINE, set);
  w->decls.at[decl - w->decls.at].item = copy->item;
}

static void edit_blocks(World *w, Choice *choice, const char *set) {
  AstItemKind kind;
  const char *eq = strchr(set, '=');
  if (!eq || !eq[1]) {
    Report *r = world_error(w, "E0602", set_span(w, set, strlen(set)), "a value is expected");
    diag_help(r, "as in `--set train.steps=10`");
  } else if (!settings_block_of(set, &kind)) {
    size_t n = strcspn(set, ".=");
    static const char *const blocks[] = {"train", "plan", "machine", "data"};
    const char *name = arena_strndup(w->ctx->arena, set, n), *near = diag_nearest(name, blocks, 4);
    Report *r = world_error(w, "E0601", set_span(w, set, n), "no block `%s` has settings", name);
    if (near) diag_near(r, "one", near);
    else
      diag_help(r, "settings are written as train.steps, train.optim.lr, plan.micro, data.format");
  } else if (kind == ITEM_MACHINE) edit_machine(w, choice, set);
  else if (kind == ITEM_PLAN) choice->plan = edited(w, choice->plan, kind, SPACE_PLAN, set);
  else if (choice->train) choice->train = edited(w, choice->train, kind, SPACE_TRAIN, set);
}

/* Machines last: a plan's may be named by another --set. */
void apply_command_line(World *w, Choice *choice, const LowerOptions *options) {
  for (int machines = 0; machines < 2; machines++)
    for (uint32_t i = 0; i < options->nsets; i++) {
      bool machine = !strncmp(options->sets[i], "machine.", strlen("machine."));
      if (!is_debug(options->sets[i]) && machine == (machines > 0))
        edit_blocks(w, choice, options->sets[i]);
    }
}

/* Settings for debugging shardc itself have no row. */
static void write_debug(Module *m, const LowerOptions *options) {
  for (uint32_t i = 0; i < options->nsets; i++) {
    const char *eq = strchr(options->sets[i], '=');
    if (is_debug(options->sets[i]))
      module_set(m, arena_printf(m->arena, "%.*s", (int)(eq - options->sets[i]), options->sets[i]),
                 "%s", eq + 1);
  }
}

/* A micro-batch that is all of a rank's share needs no cut. */
static void drop_whole_micro(Module *m, int64_t batch) {
  uint32_t n = 0;
  bool whole = plan_micro(m) * mesh_batch_ranks(m) == batch;
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!whole || strcmp(m->settings.at[i].key, "plan.micro"))
      m->settings.at[n++] = m->settings.at[i];
  m->settings.n = n;
}

typedef struct GroupSink {
  Module *m;
  int line;
} GroupSink;

/* The options of its optimizer, of all settings of the block. */
static void group_sink(void *data, const char *key, const char *value) {
  static const char line[] = "train.optim";
  const GroupSink *to = data;
  size_t n = sizeof line - 1;
  if (!strncmp(key, line, n) && (!key[n] || key[n] == '.'))
    module_set(to->m, optimizer_key(to->m, to->line, key), "%s", value);
}

/* train.optim.1 = sgd, with its options, and train.optim.1.of = h.*.attn, wte */
static void write_groups(Module *m, Eval *e, const AstItem *train) {
  const SettingGroup *group;
  uint32_t n = settings_groups(e->ctx, train, "optim", &group);
  for (uint32_t i = 0; i < n; i++) {
    GroupSink to = {m, (int)i + 1};
    settings_resolve(e->ctx, group[i].item, ITEM_TRAIN, group_sink, &to);
    const char *names = "";
    for (uint32_t k = 0; k < group[i].paths; k++)
      names = arena_list(m->arena, names, "%s", group[i].path[k]->path->text);
    module_set(m, optimizer_key(m, to.line, "train.optim.of"), "%s", names);
  }
}

void write_train(Module *m, Eval *e, const Choice *choice) {
  settings_resolve(e->ctx, choice->train->item, ITEM_TRAIN, sink, m);
  write_groups(m, e, choice->train->item);
  write_data(m, e, choice);
}

void write_settings(Module *m, Eval *e, const Choice *choice, const LowerOptions *options) {
  module_set(m, "model", "%s", choice->model->name);
  write_train(m, e, choice);
  write_machine(m, e, choice);
  write_plan(m, e, choice);
  write_debug(m, options);
  int64_t batch = size_of(e->sizes, intern(e->ctx->names, "Batch"));
  if (batch > 0) module_set(m, "train.batch", "%lld", (long long)batch);
  drop_whole_micro(m, batch);
  module_set(m, "plan.precision", "%s", module_word(m, "plan.precision"));
}

static void write_words(const Build *build, const AstSetting *line) {
  const AstValue **word, **path;
  uint32_t words = setting_operands(build->m->ctx, line, &word),
           paths = setting_of(build->m->ctx, line, &path);
  for (uint32_t i = 0; i < words; i++) {
    OffloadLine to = {.loc = build_loc(build, word[i]->span)};
    must(offload_find(word[i]->path->text, &to.word), "`offload %s`", word[i]->path->text);
    if (!paths) vec_push(build->m->arena, build->m->offload, to);
    for (uint32_t k = 0; k < paths; k++) {
      to.path = intern(build->m->ctx->names, path[k]->path->text);
      to.path_loc = build_loc(build, path[k]->span);
      vec_push(build->m->arena, build->m->offload, to);
    }
  }
}

void write_offload(const Build *build, const AstItem *plan) {
  for (uint32_t i = 0; plan && plan->block && i < plan->block->settings.n; i++)
    if (!strcmp(plan->block->settings.at[i]->path->text, "offload"))
      write_words(build, plan->block->settings.at[i]);
}
