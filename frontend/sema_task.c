/* The `task` of a data line: next(a -> b), mlm(a -> b, types = t, rate = 15%, ..). A row per option
   says what it takes; the inputs it feeds are given to the coverage check (sema_data.c), what it
   means is written as data.task.* lines, which the executable reads. Files are not opened here. */
#include "frontend/lower_build.h"
#include "ir/support/num.h"
#include "frontend/settings.h"
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
      const AstPair *p = &both[b]->at[i];
      const TaskOption *o = p->key ? find_option(task->path->text, p->key->text) : NULL;
      visit(data, e, task->path->text, p, o, b == 1);
    }
}

static void visit_fed(void *data, Eval *e, const char *task, const AstPair *p, const TaskOption *o,
                      bool target) {
  (void)task, (void)target;
  bool input = p->value->kind == VALUE_PATH && (!p->key || (o && o->value != TASK_SHARE));
  if (input) fed_push(e, data, p->value->path->text, p->value->span);
}

void task_feeds(Eval *e, const AstValue *task, Feds *out) { each_word(e, task, visit_fed, out); }

/* ---- checks ---- */

static const Input *input_of(const Eval *e, const AstValue *v) {
  for (uint32_t i = 0; v->kind == VALUE_PATH && i < e->inputs.n; i++)
    if (!strcmp(e->inputs.at[i]->name, v->path->text)) return e->inputs.at[i];
  return NULL;
}

static void unknown_option(Eval *e, const char *task, const AstPair *p) {
  const char *names[OPTIONS];
  uint32_t n = 0;
  Str all = "";
  for (int i = 0; i < OPTIONS; i++)
    if (find_option(task, options[i].key) == &options[i]) {
      all = arena_printf(e->arena, "%s%s%s", all, n ? " " : "", options[i].key);
      names[n++] = options[i].key;
    }
  const char *near = diag_nearest(p->key->text, names, n);
  Report *r =
      world_error(e->w, "E0601", p->key->span, "task `%s` has no option `%s`", task, p->key->text);
  diag_label(r, "unknown option");
  if (near) diag_help(r, "write `%s` (options of %s: %s)", near, task, all);
  else diag_help(r, "options of %s: %s", task, all);
}

static bool kind_fits(TaskValue want, const Val *v) {
  if (want == TASK_FLAG) return v->kind == VAL_BOOL;
  return v->kind == VAL_INDEX || (want == TASK_COUNTER && v->kind == VAL_INT);
}

static void check_option(Eval *e, const AstPair *p, const TaskOption *o) {
  static const char *const wanted[] = {"an i32 or index input", "an index input", "a bool input",
                                       "a share such as 15%"};
  _Static_assert(COUNT_OF(wanted) == TASK_SHARE + 1, "words per TaskValue");
  const AstValue *v = p->value;
  if (o->value == TASK_SHARE) {
    bool good = v->kind == VALUE_NUMBER && v->number.value >= 0 && v->number.value <= 1 &&
                (v->number.unit == UNIT_NONE || v->number.unit == UNIT_SHARE);
    if (!good) world_error(e->w, "E0602", v->span, "`%s` wants %s", o->key, wanted[o->value]);
    return;
  }
  const Input *in = input_of(e, v);
  if (v->kind != VALUE_PATH)
    world_error(e->w, "E0602", v->span, "`%s` wants the name of an input", o->key);
  else if (in && !kind_fits(o->value, &in->type)) {
    Report *r = world_error(e->w, "E0402", v->span, "`%s` feeds %s", o->key, wanted[o->value]);
    diag_label(r, "this is %s", kind_text(e->ctx, &in->type));
    diag_also(r, in->span, "the input");
  }
}

static void visit_check(void *data, Eval *e, const char *task, const AstPair *p,
                        const TaskOption *o, bool target) {
  int *bare = data;
  if (!p->key) bare[target]++;
  else if (o) check_option(e, p, o);
  else unknown_option(e, task, p);
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

static bool is_word(const AstValue *v, const char *word) {
  return v && v->kind == VALUE_PATH && !strcmp(v->path->text, word);
}

typedef struct Windows { /* what a data line makes of tokens */
  const AstSetting *line;
  Str task;
  Span task_at, labels_at;
  const Input *labels; /* NULL: not known */
} Windows;

static bool unpacked(const AstSetting *line) {
  return is_word(setting_option(line, "pack"), "off");
}

static void check_labels(Eval *e, const Windows *w) {
  bool without = !strcmp(w->task, "mlm") || unpacked(w->line);
  if (!w->labels || !e->has_loss || !without || label_ignored(e, w->labels)) return;
  Str name = w->labels->name;
  Report *r = world_error(e->w, "E0604", w->labels_at,
                          "`%s` has positions without a label, the loss counts all", name);
  diag_also(r, e->loss_span, "the loss");
  diag_help(r, "leave them out: `cross_entropy[..](.., %s, ignore = -100)`", name);
}

static void check_ids(Eval *e, const Windows *w) {
  const AstSetting *line = w->line;
  static const struct {
    const char *task, *pack, *key, *what;
  } needs[] = {{"mlm", NULL, "mask_id", "the mask token"},
               {NULL, "off", "pad_id", "the padding token"}};
  if (setting_option(line, "tokenizer")) return; /* it says them */
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) {
    bool asked = (!needs[i].task || !strcmp(needs[i].task, w->task)) &&
                 (!needs[i].pack || is_word(setting_option(line, "pack"), needs[i].pack));
    if (!asked || setting_option(line, needs[i].key)) continue;
    Report *r = world_error(e->w, "E0606", w->task_at, "this data line has no `%s`", needs[i].key);
    diag_fact(r, "it is %s", needs[i].what);
    diag_help(r, "write `%s = ID`, or `tokenizer = \"FILE\"`, which says it", needs[i].key);
  }
}

void check_task(Eval *e, const AstSetting *line, const AstValue *task) {
  int bare[2] = {0, 0};
  each_word(e, task, visit_check, bare);
  if (bare[0] != 1 || bare[1] != 1) {
    Report *r = world_error(e->w, "E0602", task->span,
                            "task `%s` takes one input on each side of `->`", task->path->text);
    diag_help(r, "such as `%s(tokens -> targets)`", task->path->text);
  }
  const AstValue *to = bare_of(&task->to);
  Windows w = {line, task->path->text, task->path->span, to ? to->span : task->span,
               to ? input_of(e, to) : NULL};
  check_labels(e, &w), check_ids(e, &w);
}

void check_next(Eval *e, const AstSetting *line) {
  const AstValue *pack = setting_option(line, "pack");
  Span at = pack ? pack->span : line->path->span;
  Windows w = {line, "next", at, at, e->inputs.at[1]};
  check_labels(e, &w), check_ids(e, &w);
}

/* ---- lines of the module ---- */

static void visit_write(void *data, Eval *e, const char *task, const AstPair *p,
                        const TaskOption *o, bool target) {
  Module *m = data;
  (void)task;
  const char *key = p->key ? p->key->text : target ? "to" : "from";
  if (p->key && !o) return;
  if (p->value->kind == VALUE_NUMBER)
    module_set(m, arena_printf(e->arena, "data.task.%s", key), "%.10g", p->value->number.value);
  else if (p->value->kind == VALUE_PATH)
    module_set(m, arena_printf(e->arena, "data.task.%s", key), "%s", p->value->path->text);
}

void write_task(Module *m, Eval *e, const AstValue *task) {
  module_set(m, "data.task", "%s", task->path->text);
  for (int i = 0; i < OPTIONS; i++)
    if (options[i].otherwise && find_option(task->path->text, options[i].key))
      module_set(m, arena_printf(e->arena, "data.task.%s", options[i].key), "%s",
                 options[i].otherwise);
  each_word(e, task, visit_write, m);
}
