/* The lines of train and weights blocks that name parts of the model: every input has one source
   (E0604), every parameter one line (E0502), `as` is an order of the same dims (E0503). Words of a
   data line that its kind of data does not read are reported (W0706). Must not: open files. */
#include "train.h"
#include "frontend/settings/settings.h"
#include <string.h>

/* ---- data ---- */

void fed_push(Eval *e, Feds *out, Str name, Span span) {
  vec_push(e->arena, *out, (Fed){name, span});
}

static void fed_by_columns(Eval *e, Feds *out, const AstValue *columns) {
  for (uint32_t i = 0; i < columns->args.n; i++)
    if (columns->args.at[i].key)
      fed_push(e, out, columns->args.at[i].key->text, columns->args.at[i].key->span);
}

static bool is_call(const AstValue *value, const char *word) {
  return value && value->kind == VALUE_CALL && !strcmp(value->path->text, word);
}

/* The default: a model with exactly two inputs of the same dims and the same `of`. */
static bool next_by_default(Eval *e, Feds *out) {
  if (e->inputs.n != 2) return false;
  const Val *a = &e->inputs.at[0]->type, *b = &e->inputs.at[1]->type;
  if (a->kind != VAL_INDEX || b->kind != VAL_INDEX || a->of != b->of ||
      !dims_same(&a->dims, &b->dims))
    return false;
  for (int i = 0; i < 2; i++) fed_push(e, out, e->inputs.at[i]->name, (Span){0});
  return true;
}

static const Input *find_input(const Eval *e, Str name) {
  for (uint32_t i = 0; i < e->inputs.n; i++)
    if (e->inputs.at[i]->name == name) return e->inputs.at[i];
  return NULL;
}

static bool is_fed(const Feds *fed, Str name) {
  for (uint32_t i = 0; i < fed->n; i++)
    if (fed->at[i].name == name) return true;
  return false;
}

static void no_input(Eval *e, const Feds *fed, const Fed *wrong) {
  VEC(const char *) hungry = {0};
  Str list = "";
  for (uint32_t i = 0; i < e->inputs.n; i++) {
    Str name = e->inputs.at[i]->name;
    if (is_fed(fed, name)) continue;
    list = arena_list(e->arena, list, "`%s`", name);
    vec_push(e->arena, hungry, name);
  }
  Report *r = world_error(e->w, "E0604", wrong->span, "the model has no input `%s`", wrong->name);
  if (hungry.n) diag_fact(r, "without data: %s", list);
  const char *near = hungry.n ? diag_nearest(wrong->name, hungry.at, hungry.n) : NULL;
  if (near) diag_near(r, "an input", near);
  else if (hungry.n == 1) {
    diag_help(r, "the input without data is `%s`", hungry.at[0]);
    diag_edit(r, wrong->span, "%s", hungry.at[0]);
  }
}

static void check_fed(Eval *e, const Feds *fed, Span line) {
  bool unknown = false;
  for (uint32_t i = 0; i < fed->n; i++)
    if (!find_input(e, fed->at[i].name)) no_input(e, fed, &fed->at[i]), unknown = true;
  for (uint32_t i = 0; i < e->inputs.n && !unknown; i++) {
    uint32_t n = 0;
    Span second = line;
    for (uint32_t k = 0; k < fed->n; k++)
      if (fed->at[k].name == e->inputs.at[i]->name && n++) second = fed->at[k].span;
    if (n == 1) continue;
    Report *r = world_error(e->w, "E0604", n ? second : line, "input `%s` has %s",
                            e->inputs.at[i]->name, n ? "two sources" : "no data");
    diag_also(r, e->inputs.at[i]->span, "the input");
  }
}

/* E0607, W0502 */
static void check_trained(Eval *e, const Choice *choice) {
  const AstSetting *optim = choice->train ? settings_line(choice->train->item, "optim") : NULL;
  bool any = false;
  for (uint32_t i = 0; i < e->params.n; i++) any |= !e->params.at[i]->frozen;
  if (!optim || any) return;
  if (!e->params.n) {
    world_warn(e->w, "W0502", optim->path->span,
               arena_printf(e->arena, "model `%s` has no parameter to train", choice->model->name),
               NULL);
    return;
  }
  Report *r = world_error(e->w, "E0607", optim->path->span, "model `%s` has nothing to train",
                          choice->model->name);
  diag_label(r, "all of its parameters are @frozen");
}

static void unfed(Eval *e, const AstSetting *line) {
  Report *r = world_error(e->w, "E0604", line->span, "which inputs does this data feed?");
  for (uint32_t i = 0; i < e->inputs.n; i++)
    diag_fact(r, "input `%s` %s", e->inputs.at[i]->name,
              dims_text(e->ctx, &e->inputs.at[i]->type.dims));
  diag_help(r, "write `task = next(a -> b)`, or `columns(input = \"file\", ..)`");
}

/* ---- words that change nothing; `eot`, `pad_id`, `tokenizer`: `sample` or `export` reads them */

typedef enum Reads { READS_COLUMNS, READS_TOKENS, READS_MLM } Reads;

static const struct {
  const char *key;
  Reads what;
} readers[] = {{"raw", READS_COLUMNS}, {"mean", READS_COLUMNS}, {"std", READS_COLUMNS},
               {"pack", READS_TOKENS}, {"mask_id", READS_MLM},  {"special", READS_MLM}};

static const char *const reader_words[] = {[READS_COLUMNS] = "`columns` reads it, tokens do not",
                                           [READS_TOKENS] =
                                               "data of tokens reads it, `columns` do not",
                                           [READS_MLM] = "`task = mlm(..)` reads it"};

static bool is_read(const AstSetting *line, bool columns, Reads what) {
  switch (what) {
  case READS_COLUMNS: return columns;
  case READS_TOKENS: return !columns;
  case READS_MLM: return !columns && is_call(setting_option(line, "task"), "mlm");
  }
  return true;
}

static void warn_data_words(Eval *e, const AstSetting *line) {
  const AstValue **source;
  bool columns = setting_operands(e->ctx, line, &source) && is_call(source[0], "columns");
  for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
    const AstValue *value = setting_option(line, readers[i].key);
    if (!value || is_read(line, columns, readers[i].what)) continue;
    world_warn(e->w, "W0706", value->span,
               arena_printf(e->arena, "`%s` has no effect", readers[i].key),
               reader_words[readers[i].what]);
  }
}

/* A special token must be smaller than the vocabulary of the model's input. */
static void check_tokens(Eval *e, const AstSetting *line, const Feds *fed) {
  static const char *const keys[] = {"eot", "pad_id", "mask_id", "special"};
  const Input *in = fed->n ? find_input(e, fed->at[0].name) : NULL;
  int64_t size = in && in->type.kind == VAL_INDEX ? size_of(e->sizes, in->type.of) : 0;
  for (size_t i = 0; size > 0 && i < sizeof keys / sizeof *keys; i++) {
    const AstValue *value = setting_option(line, keys[i]);
    for (uint32_t k = 0; value && k < (value->kind == VALUE_LIST ? value->items.n : 1); k++) {
      const AstValue *one = value->kind == VALUE_LIST ? value->items.at[k] : value;
      if (one->kind != VALUE_NUMBER || one->number.value < (double)size) continue;
      Report *r = world_error(e->w, "E0602", one->span, "token %s of `%s` is no token of the model",
                              one->number.text, keys[i]);
      diag_also(r, in->span, "`%s` is an index of `%s`: 0 to %lld", in->name, in->type.of,
                (long long)size - 1);
    }
  }
}

/* Settings `every = N` with N beyond the end of the run; steps given by --set are a trial. */
static void warn_never(Eval *e, const AstItem *train) {
  static const char *const lines[] = {"eval", "save"};
  const AstValue *steps = settings_value(train, "steps", NULL);
  for (size_t i = 0; steps && i < sizeof lines / sizeof *lines; i++) {
    const AstValue *every = settings_value(train, lines[i], "every");
    if (!every || every->number.value <= steps->number.value) continue;
    if (steps->span.file == train->span.file)
      world_warn(e->w, "W0706", every->span,
                 arena_printf(e->arena, "`every` of `%s` changes nothing: the run has %s steps",
                              lines[i], setting_value_text(e->ctx, steps)),
                 "without it, at the end");
  }
}

/* `--valid` of the executable can still name some. */
static void warn_eval(Eval *e, const AstItem *train) {
  const AstSetting *line = settings_line(train, "eval"), *data = settings_line(train, "data");
  if (!line || !data || setting_option(data, "valid")) return;
  world_warn(e->w, "W0706", line->path->span, "`eval` changes nothing: the data has no `valid`",
             "`valid = \"FILES\"`, or `valid = 10%` for the end of the training data");
}

static void refuse_no_time(Eval *e, const AstItem *train) {
  const AstValue *time = settings_value(train, "save", "time");
  if (!time || time->kind != VALUE_NUMBER || time->number.value > 0) return;
  Report *r = world_error(e->w, "E0602", time->span, "`time` of `save` takes more than 0 s");
  diag_help(r, "leave it out, and steps alone decide when a checkpoint is written");
}

/* At the end of a run nothing goes on while it is saved. */
static void warn_async(Eval *e, const AstItem *train) {
  const AstValue *async = settings_value(train, "save", "async");
  if (!async || !settings_on(train, ITEM_TRAIN, "save", "async")) return;
  if (!settings_value(train, "save", "every") && !settings_value(train, "save", "time"))
    world_warn(e->w, "W0706", async->span,
               "`async` of `save` changes nothing: without `every` or `time`, checkpoints are "
               "written at the end only",
               "`every = 1000`, or `--save-every` when the executable is started");
}

void check_nesterov(Eval *e, const AstItem *train) {
  const AstValue *on = settings_value(train, "optim", "nesterov"),
                 *momentum = settings_value(train, "optim", "momentum");
  if (!settings_on(train, ITEM_TRAIN, "optim", "nesterov")) return;
  if (settings_number(train, ITEM_TRAIN, "optim", "momentum") > 0) return;
  Report *r = world_error(e->w, "E0602", on->span,
                          "`nesterov` looks ahead along the velocity, and "
                          "`momentum = 0` keeps none");
  diag_help(r, "`momentum = 0.9` is usual");
  if (momentum) diag_edit(r, momentum->span, "0.9");
}

void check_data(Eval *e, const Choice *choice) {
  const AstItem *train = choice->train ? choice->train->item : NULL;
  uint32_t before = e->w->errors;
  if (train) check_lora(e, choice, train);
  if (e->w->errors == before) check_trained(e, choice);
  check_onebit(e, train);
  check_nesterov(e, train);
  check_delay(e, train);
  check_states(e, train);
  check_averages(e, train);
  check_groups(e, choice, train);
  if (train)
    warn_never(e, train), warn_eval(e, train), warn_async(e, train), refuse_no_time(e, train);
  const AstSetting *line = settings_line(train, "data");
  Feds fed = {0};
  if (!line) return;
  const AstValue *source = settings_value(train, "data", NULL),
                 *task = setting_option(line, "task");
  if (is_call(source, "columns")) fed_by_columns(e, &fed, source), check_columns(e, line);
  else if (task && task->kind == VALUE_CALL) {
    task_feeds(e, task, &fed);
    check_task(e, line, task);
  } else if (next_by_default(e, &fed)) check_next(e, line);
  else return unfed(e, line);
  warn_data_words(e, line), check_tokens(e, line, &fed);
  check_fed(e, &fed, line->span);
}

/* ---- weights ---- */

/* Paths of the parameters, or of the lines of a weights block. */
static NameMap *index_of_params(const Eval *e) {
  NameMap *m = names_new(e->arena);
  for (uint32_t i = 0; i < e->params.n; i++) names_put(m, 0, e->params.at[i]->path, i);
  return m;
}

static void no_param(Eval *e, const AstSetting *line, const NameMap *lines) {
  VEC(const char *) names = {0};
  uint32_t at;
  for (uint32_t i = 0; i < e->params.n; i++)
    if (!e->params.at[i]->adapts && !names_find(lines, 0, e->params.at[i]->path, &at))
      vec_push(e->arena, names, e->params.at[i]->path);
  const char *near = names.n ? diag_nearest(line->path->text, names.at, names.n) : NULL;
  Report *r = world_error(e->w, "E0502", line->path->span, "no parameter `%s`", line->path->text);
  if (names.n == 1) {
    diag_help(r, "the parameter without a line is `%s`", near = names.at[0]);
    diag_edit(r, line->path->span, "%s", near);
  } else diag_near(r, "a parameter without a line", near);
}

static void check_order(Eval *e, const AstSetting *line, const Param *param) {
  Dims want = param->dims, have = {0};
  if (!line->as) return;
  for (uint32_t g = 0; g < line->as->groups.n; g++)
    for (uint32_t i = 0; i < line->as->groups.at[g].from.n; i++)
      dims_add(&have, line->as->groups.at[g].from.at[i].text);
  if (have.n == want.n && dims_same(&have, &want) && !dims_repeated(&have)) return;
  Report *r = world_error(e->w, "E0503", line->as->span,
                          "`as` does not list each dimension of `%s` once", param->path);
  diag_label(r, "the parameter has %s", dims_text(e->ctx, &want));
}

static int count_stars(const char *s) {
  int n = 0;
  for (; *s; s++) n += *s == '*';
  return n;
}

/* Texts of a list {a,b} at the beginning of s; 0: it has none. */
static int count_listed(const char *s) {
  int n = 1;
  if (*s != '{') return 0;
  for (; *s && *s != '}'; s++) n += *s == ',';
  return *s ? n : 0;
}

/* The dim that further star `i` of a name is the index along, in the order of the file. */
static Str dim_of_star(const AstSetting *line, const Param *param, int i) {
  for (uint32_t g = 0; line->as && g < line->as->groups.n; g++)
    for (uint32_t k = 0; k < line->as->groups.at[g].from.n; k++)
      if (!i--) return line->as->groups.at[g].from.at[k].text;
  return line->as || i >= param->dims.n ? NULL : param->dims.at[i];
}

/* {a,b,a}: two tensors of one name. */
static bool has_text_twice(const char *s, const char *end) {
  for (size_t n; s < end; s += n + 1) {
    n = strcspn(s, ",}");
    for (const char *t = s + n + 1; t < end; t += strcspn(t, ",}") + 1)
      if (strcspn(t, ",}") == n && !strncmp(s, t, n)) return true;
  }
  return false;
}

/* Would indexes be read in two ways, or a sign without a meaning? NULL: neither. */
static const char *fault_of_name(const char *s) {
  enum { MOST_DIGITS = 9 };
  for (; *s; s++) {
    const char *end = *s == '{' ? strchr(s, '}') : NULL;
    size_t digits = s[0] == '*' && s[1] == '+' ? strspn(s + 2, "0123456789") : 1;
    if (!digits || digits > MOST_DIGITS) return "`*+` takes the number of the first: `*+3`";
    if (s[0] == '*' && s[1] == '*') return "numbers need a text between them: `*.*`";
    if (*s == '}') return "`}` without `{`";
    if (end && has_text_twice(s + 1, end)) return "a list has a text for each index, once";
    if (end) s = end;
  }
  return NULL;
}

/* A list {a,b} has a text for each index of its dim. */
static void check_lists(Eval *e, const AstSetting *line, const Param *param,
                        const AstValue *value) {
  int star = 0, stacks = count_stars(param->path);
  const char *fault = fault_of_name(value->string);
  if (fault) {
    Report *r = world_error(e->w, "E0502", value->span, "name of a weights file");
    diag_label(r, "%s", fault);
    return;
  }
  for (const char *s = value->string; *s; s++) {
    int n = count_listed(s);
    if (*s != '*' && *s != '{') continue;
    Str dim = star < stacks ? NULL : dim_of_star(line, param, star - stacks);
    star++;
    int64_t size = dim && n ? eval_size(e, dim) : 0;
    if (*s == '*' || (n && dim && (size <= 0 || size == n))) continue;
    Report *r = world_error(e->w, "E0502", value->span, "list in a name of a weights file");
    if (!n) diag_label(r, "a list is written {a,b}");
    else if (!dim) diag_label(r, "rounds of a stack are numbers: `*`");
    else diag_label(r, "has %d texts, `%s` is %lld", n, dim, (long long)size);
    return;
  }
}

/* A name of the file has a star per star of the path: the rounds; further ones, and lists {a,b},
   are the first dims of the parameter in the order of the file. */
static void check_stars(Eval *e, const AstSetting *line, const Param *param) {
  int want = count_stars(param->path);
  for (uint32_t i = 0; i < line->target.n; i++) {
    const AstValue *value = line->target.at[i].value;
    if (value->kind != VALUE_STRING) continue;
    int have = count_stars(value->string);
    for (const char *s = value->string; *s; s++) have += *s == '{';
    int most = param->low[0] ? want : want + param->dims.n - 1;
    if (have >= want && have <= (most > want ? most : want)) {
      check_lists(e, line, param, value);
      continue;
    }
    Report *r = world_error(e->w, "E0502", value->span, "name of a weights file");
    if (most <= want) diag_label(r, "has %d `*`, `%s` takes %d", have, param->path, want);
    else diag_label(r, "has %d `*` and lists, `%s` takes %d to %d", have, param->path, want, most);
    if (have > want && param->low[0])
      diag_fact(r, "`%s` has adapters (`lora`): a file holds it whole", param->path);
  }
}

static void missing_lines(Eval *e, const AstItem *weights, const NameMap *lines) {
  Str list = "";
  uint32_t n = 0, at;
  for (uint32_t i = 0; i < e->params.n; i++) {
    if (e->params.at[i]->adapts || names_find(lines, 0, e->params.at[i]->path, &at)) continue;
    if (n++ < 5) list = arena_list(e->arena, list, "`%s`", e->params.at[i]->path);
  }
  if (!n) return;
  Report *r = world_error(e->w, "E0502", weights->name.span,
                          "%u parameter%s without a line in weights `%s`", n, n == 1 ? "" : "s",
                          weights->name.text);
  diag_fact(r, "%s%s", list, n > 5 ? ", .." : "");
}

static size_t prefix_bytes(const AstItem *weights) {
  for (uint32_t i = 0; i < weights->block->settings.n; i++) {
    const AstSetting *setting = weights->block->settings.at[i];
    if (setting->arrow == ARROW_LEFT || strcmp(setting->path->text, "prefix")) continue;
    if (setting->values.n && setting->values.at[0].value->kind == VALUE_STRING)
      return strlen(setting->values.at[0].value->string);
  }
  return 0;
}

/* The buffers of the runtime have room for such a name with the numbers of its rounds. */
static void check_lengths(Eval *e, size_t prefix, const AstSetting *line) {
  for (uint32_t i = 0; i < line->target.n; i++) {
    const AstValue *value = line->target.at[i].value;
    if (value->kind != VALUE_STRING || prefix + strlen(value->string) <= PATH_BYTES) continue;
    Report *r = world_error(e->w, "E0502", value->span, "name of %zu bytes in a weights file",
                            prefix + strlen(value->string));
    diag_label(r, "at most %d%s", PATH_BYTES, prefix ? " with the prefix" : "");
  }
}

static void check_line(Eval *e, const AstSetting *setting, const Param *param,
                       const AstSetting *before, const NameMap *lines) {
  if (!param) {
    no_param(e, setting, lines);
    return;
  }
  check_order(e, setting, param), check_stars(e, setting, param);
  if (!before) return;
  Report *r =
      world_error(e->w, "E0502", setting->path->span, "`%s` has two lines", setting->path->text);
  diag_also(r, before->path->span, "the first one");
}

void check_weights(Eval *e, const AstItem *weights) {
  NameMap *params = index_of_params(e), *lines = names_new(e->arena), *all = names_new(e->arena);
  uint32_t before = e->w->errors;
  size_t prefix = weights->block ? prefix_bytes(weights) : 0;
  for (uint32_t i = 0; weights->block && i < weights->block->settings.n; i++)
    names_put(all, 0, weights->block->settings.at[i]->path->text, i);
  for (uint32_t i = 0; weights->block && i < weights->block->settings.n; i++) {
    const AstSetting *setting = weights->block->settings.at[i];
    uint32_t param, line;
    if (setting->arrow != ARROW_LEFT) continue;
    bool known = names_find(params, 0, setting->path->text, &param);
    bool again = names_find(lines, 0, setting->path->text, &line);
    check_line(e, setting, known ? e->params.at[param] : NULL,
               again ? weights->block->settings.at[line] : NULL, all);
    check_lengths(e, prefix, setting);
    names_put(lines, 0, setting->path->text, i);
  }
  if (weights->block && !weights->bad && e->w->errors == before) missing_lines(e, weights, lines);
  if (weights->block && e->w->errors == before) check_shared_names(e, weights);
  if (weights->block) check_weights_config(e, weights);
}
