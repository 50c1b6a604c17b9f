/* The `task` of a data line: next(a -> b), mlm(a -> b, types = t, rate = 15%, ..). A row per option
   says what it takes; the inputs it feeds are passed to the coverage check (sema_data.c), and its
   meaning is written as data.task.* lines, which the executable reads. Must not:
   open files. */
#include "train.h"
#include "ir/support/num.h"
#include "frontend/settings/settings.h"
#include <stdlib.h>
#include <string.h>

typedef enum TaskValue { TASK_COUNTER, TASK_INDEX, TASK_FLAG, TASK_SHARE } TaskValue;

typedef struct TaskOption {
  const char *key, *only; /* only: the one task that has it, NULL: every */
  TaskValue value;
  const char *otherwise;
} TaskOption;

static const TaskOption options[] = {
    {"doc", NULL, TASK_COUNTER, NULL},    {"pos", NULL, TASK_COUNTER, NULL},
    {"types", NULL, TASK_INDEX, NULL},    {"valid", NULL, TASK_FLAG, NULL},
    {"rate", "mlm", TASK_SHARE, "0.15"},  {"mask", "mlm", TASK_SHARE, "0.8"},
    {"random", "mlm", TASK_SHARE, "0.1"},
};
enum { OPTIONS = sizeof options / sizeof *options };

static const TaskOption *find_option(const char *task, const char *key) {
  for (int i = 0; i < OPTIONS; i++)
    if (!strcmp(options[i].key, key) && (!options[i].only || !strcmp(options[i].only, task)))
      return &options[i];
  return NULL;
}

/* ---- walking the words of a task ---- */

typedef void Visit(void *data, Eval *e, const char *task, const AstPair *p, const TaskOption *o,
                   bool target);

static void each_word(Eval *e, const AstValue *task, Visit *visit, void *data) {
  const AstPairs *both[] = {&task->args, &task->to};
  for (int b = 0; b < 2; b++)
    for (uint32_t i = 0; i < both[b]->n; i++) {
      const AstPair *pair = &both[b]->at[i];
      const TaskOption *option = pair->key ? find_option(task->path->text, pair->key->text) : NULL;
      visit(data, e, task->path->text, pair, option, b == 1);
    }
}

static void visit_fed(void *data, Eval *e, const char *task, const AstPair *pair,
                      const TaskOption *option, bool target) {
  (void)task, (void)target;
  bool input =
      pair->value->kind == VALUE_PATH && (!pair->key || (option && option->value != TASK_SHARE));
  if (input) fed_push(e, data, pair->value->path->text, pair->value->span);
}

void task_feeds(Eval *e, const AstValue *task, Feds *out) { each_word(e, task, visit_fed, out); }

/* ---- checks ---- */

static const Input *input_of(const Eval *e, const AstValue *value) {
  for (uint32_t i = 0; value->kind == VALUE_PATH && i < e->inputs.n; i++)
    if (!strcmp(e->inputs.at[i]->name, value->path->text)) return e->inputs.at[i];
  return NULL;
}

static void unknown_option(Eval *e, const char *task, const AstPair *pair) {
  const char *names[OPTIONS];
  uint32_t n = 0;
  Str all = "";
  for (int i = 0; i < OPTIONS; i++)
    if (find_option(task, options[i].key) == &options[i]) {
      all = arena_printf(e->arena, "%s%s%s", all, n ? " " : "", options[i].key);
      names[n++] = options[i].key;
    }
  const char *near = diag_nearest(pair->key->text, names, n);
  Report *r = world_error(e->w, "E0601", pair->key->span, "task `%s` has no option `%s`", task,
                          pair->key->text);
  diag_label(r, "unknown option");
  if (near) diag_help(r, "write `%s` (options of %s: %s)", near, task, all);
  else diag_help(r, "options of %s: %s", task, all);
}

static bool kind_fits(TaskValue want, const Val *v) {
  if (want == TASK_FLAG) return v->kind == VAL_BOOL;
  return v->kind == VAL_INDEX || (want == TASK_COUNTER && v->kind == VAL_INT);
}

/* `pos` counts along the last dimension of its input. */
static void check_positions(Eval *e, const AstValue *value, const Input *in) {
  const Dims *dims = &in->type.dims;
  Str along = dims->n > 1 ? dims->at[dims->n - 1] : NULL;
  int64_t n = along ? size_of(e->sizes, along) : 0, room = size_of(e->sizes, in->type.of);
  if (n <= 0 || room <= 0 || n <= room) return;
  Report *r = world_error(e->w, "E0306", value->span,
                          "positions along `%s` count to %lld, `%s` has only %lld", along,
                          (long long)n, in->type.of, (long long)room);
  diag_also(r, in->span, "the input");
  sizes_mend(e->sizes, r, along, room);
}

static void check_option(Eval *e, const AstPair *pair, const TaskOption *option) {
  static const char *const wanted[] = {"an i32 or index input", "an index input", "a bool input",
                                       "a share such as 15%"};
  _Static_assert(COUNT_OF(wanted) == TASK_SHARE + 1, "words per TaskValue");
  const AstValue *value = pair->value;
  if (option->value == TASK_SHARE) {
    bool good = value->kind == VALUE_NUMBER && value->number.value >= 0 &&
                value->number.value <= 1 &&
                (value->number.unit == UNIT_NONE || value->number.unit == UNIT_SHARE);
    if (!good)
      world_error(e->w, "E0602", value->span, "`%s` takes %s", option->key, wanted[option->value]);
    return;
  }
  const Input *in = input_of(e, value);
  if (value->kind != VALUE_PATH)
    world_error(e->w, "E0602", value->span, "`%s` takes the name of an input", option->key);
  else if (in && !kind_fits(option->value, &in->type)) {
    Report *r = world_error(e->w, "E0402", value->span, "`%s` feeds %s", option->key,
                            wanted[option->value]);
    diag_label(r, "this is %s", kind_text(e->ctx, &in->type));
    diag_also(r, in->span, "the input");
  } else if (in && !strcmp(option->key, "pos") && in->type.kind == VAL_INDEX)
    check_positions(e, value, in);
}

/* The shares of chosen tokens that become the mask token and a random one. */
static void check_shares(Eval *e, const AstValue *task) {
  const AstValue *at[] = {NULL, NULL};
  double sum = 0;
  for (int i = 0; i < 2; i++) {
    const char *key = i ? "random" : "mask";
    for (int to = 0; to < 2; to++) {
      const AstPairs *list = to ? &task->to : &task->args;
      for (uint32_t k = 0; k < list->n; k++)
        if (list->at[k].key && !strcmp(list->at[k].key->text, key)) at[i] = list->at[k].value;
    }
    const TaskOption *option = find_option("mlm", key);
    sum += at[i] && at[i]->kind == VALUE_NUMBER ? at[i]->number.value
                                                : strtod(option->otherwise, NULL);
  }
  const AstValue *last = at[1] ? at[1] : at[0];
  if (strcmp(task->path->text, "mlm") != 0 || !last || sum <= 1 + 1e-9) return;
  Report *r = world_error(e->w, "E0602", last->span, "`mask` and `random` are more than all: %g%%",
                          sum * 100);
  diag_help(r, "shares of the chosen tokens, 80%% and 10%% unwritten; what is left stays as it is");
}

static void visit_check(void *data, Eval *e, const char *task, const AstPair *pair,
                        const TaskOption *option, bool target) {
  int *bare = data;
  if (!pair->key) bare[target]++;
  else if (option) check_option(e, pair, option);
  else unknown_option(e, task, pair);
}

/* Where nothing is to be predicted the label is one that the loss leaves out. */
static bool label_ignored(const Eval *e, const Input *in) {
  for (uint32_t i = 0; i < e->ignored.n; i++)
    if (!strcmp(e->ignored.at[i].input, in->name)) return true;
  return false;
}

static const AstValue *bare_of(const AstPairs *list) {
  for (uint32_t i = 0; i < list->n; i++)
    if (!list->at[i].key) return list->at[i].value;
  return NULL;
}

typedef struct Windows { /* what a data line makes of tokens */
  const AstSetting *line;
  Str task;
  Span task_at, labels_at;
  const Input *labels; /* NULL: not known */
} Windows;

static bool unpacked(const AstSetting *line) {
  return settings_is_word(setting_option(line, "pack"), "off");
}

static void check_labels(Eval *e, const Windows *windows) {
  bool without = !strcmp(windows->task, "mlm") || unpacked(windows->line);
  if (!windows->labels || !e->has_loss || !without || label_ignored(e, windows->labels)) return;
  Str name = windows->labels->name;
  Report *r = world_error(e->w, "E0604", windows->labels_at,
                          "some positions of `%s` have no label, but the loss counts all", name);
  diag_also(r, e->loss_span, "the loss");
  diag_help(r, "leave them out: `cross_entropy[..](.., %s, ignore = -100)`", name);
}

static void check_ids(Eval *e, const Windows *windows) {
  const AstSetting *line = windows->line;
  static const struct {
    const char *task, *pack, *key, *what;
  } needs[] = {{"mlm", NULL, "mask_id", "the mask token"},
               {NULL, "off", "pad_id", "the padding token"}};
  if (setting_option(line, "tokenizer")) return; /* it says them */
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    bool asked = (!needs[i].task || !strcmp(needs[i].task, windows->task)) &&
                 (!needs[i].pack || settings_is_word(setting_option(line, "pack"), needs[i].pack));
    if (!asked || setting_option(line, needs[i].key)) continue;
    Report *r =
        world_error(e->w, "E0606", windows->task_at, "this data line has no `%s`", needs[i].key);
    diag_fact(r, "it is %s", needs[i].what);
    diag_help(r, "write `%s = ID`, or `tokenizer = \"FILE\"`, which names it", needs[i].key);
  }
}

void check_task(Eval *e, const AstSetting *line, const AstValue *task) {
  int bare[2] = {0, 0};
  check_shares(e, task);
  each_word(e, task, visit_check, bare);
  if (bare[0] != 1 || bare[1] != 1) {
    Report *r = world_error(e->w, "E0602", task->span,
                            "task `%s` takes one input on each side of `->`", task->path->text);
    diag_help(r, "such as `%s(tokens -> targets)`", task->path->text);
  }
  const AstValue *to = bare_of(&task->to);
  Windows windows = {line, task->path->text, task->path->span, to ? to->span : task->span,
                     to ? input_of(e, to) : NULL};
  check_labels(e, &windows), check_ids(e, &windows);
}

void check_next(Eval *e, const AstSetting *line) {
  const AstValue *pack = setting_option(line, "pack");
  Span at = pack ? pack->span : line->path->span;
  Windows windows = {line, "next", at, at, e->inputs.at[1]};
  check_labels(e, &windows), check_ids(e, &windows);
}

/* ---- lines of the module ---- */

static void visit_write(void *data, Eval *e, const char *task, const AstPair *pair,
                        const TaskOption *option, bool target) {
  Module *m = data;
  (void)task;
  const char *key = pair->key ? pair->key->text : target ? "to" : "from";
  if (pair->key && !option) return;
  if (pair->value->kind == VALUE_NUMBER)
    module_set(m, arena_printf(e->arena, "data.task.%s", key), "%.10g", pair->value->number.value);
  else if (pair->value->kind == VALUE_PATH)
    module_set(m, arena_printf(e->arena, "data.task.%s", key), "%s", pair->value->path->text);
}

void write_task(Module *m, Eval *e, const AstValue *task) {
  module_set(m, "data.task", "%s", task->path->text);
  for (int i = 0; i < OPTIONS; i++)
    if (options[i].otherwise && find_option(task->path->text, options[i].key))
      module_set(m, arena_printf(e->arena, "data.task.%s", options[i].key), "%s",
                 options[i].otherwise);
  each_word(e, task, visit_write, m);
}
