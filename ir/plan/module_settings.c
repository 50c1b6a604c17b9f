/* Settings of a module with their defaults: see module_settings.h. */
#include "module_settings.h"
#include "ir/made.h"
#include "ir/support/num.h"
#include "layer_range.h"
#include "optimizers.h"
#include "setting_default.h"
#include <stdlib.h>

Str module_said(const Module *m, const char *key) { return module_setting(m, key, NULL); }

/* A line may say which rows of options count: `optim lamb` has an eps of its own. */
static const char *choice_of(const Module *m, const char *key) {
  size_t n = setting_line_length(key) + setting_group_length(key);
  if (!key[n]) return "";
  Str word = module_word(m, arena_strndup(m->arena, key, n));
  return word ? word : "";
}

static const char *by_default(const Module *m, const char *key) {
  const char *value = setting_default(key, choice_of(m, key));
  if (!value) bug("no setting `%s`", key);
  return value;
}

Str module_word(const Module *m, const char *key) {
  Str said = module_said(m, key);
  if (said) return said;
  const char *value = by_default(m, key);
  return *value ? intern(m->ctx->names, value) : NULL;
}

bool module_on(const Module *m, const char *key) {
  Str word = module_word(m, key);
  return word && !strcmp(word, "on");
}

static const struct {
  const char *unit;
  double factor;
} units[] = {{"%", 0.01}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};

/* False: the text is not a number. */
static bool read_amount(const char *text, double *to) {
  char *end;
  double v = strtod(text, &end);
  if (end == text) return false;
  *to = v;
  for (size_t i = 0; i < COUNT_OF(units); i++)
    if (!strncmp(end, units[i].unit, strlen(units[i].unit)))
      *to = units[i].factor < 1 ? v / 100 : v * units[i].factor;
  return true;
}

double module_amount(const Module *m, const char *key) {
  double v = 0;
  Str said = module_said(m, key);
  if (!said || !read_amount(said, &v)) read_amount(by_default(m, key), &v);
  return v;
}

bool module_setting_scalar(const Module *m, const Global *scalar, double *value) {
  const char *key = scalar->kind == GLOBAL_SCALAR ? made_rest(scalar->name, MADE_SETTING) : NULL;
  if (key) *value = module_amount(m, key);
  return key != NULL;
}

int64_t module_whole(const Module *m, const char *key) { return (int64_t)module_amount(m, key); }

static void read_list(const char *text, int n, double *to) {
  for (int i = 0; i < n; i++) {
    text += strspn(text, "[(, ");
    if (!read_amount(text, &to[i])) return;
    text += strcspn(text, ", ");
  }
}

void module_amounts(const Module *m, const char *key, int n, double *to) {
  for (int i = 0; i < n; i++) to[i] = 0;
  read_list(by_default(m, key), n, to);
  Str said = module_said(m, key);
  if (said) read_list(said, n, to); /* those that are missing stay as they are by default */
}

/* ---- what several ask for ---- */

bool plan_eights(const Module *m) { return !strcmp(module_word(m, "plan.precision"), "fp8"); }
Str plan_precision(const Module *m) {
  return plan_eights(m) ? intern(m->ctx->names, "bf16") : module_word(m, "plan.precision");
}
Str plan_backward_format(const Module *m) { return module_word(m, "plan.precision.backward"); }
Str plan_gradient_type(const Module *m) { return module_word(m, "plan.precision.grad"); }
Str plan_message_type(const Module *m) { return module_word(m, "plan.precision.reduce"); }
bool plan_copies_weights(const Module *m) { return module_on(m, "plan.precision.copies"); }
bool plan_int8_gradients(const Module *m) {
  Str type = plan_message_type(m);
  return type && !strcmp(type, "int8");
}
bool plan_int8_weights(const Module *m) { return module_word(m, "plan.precision.gather") != NULL; }
int64_t plan_int8_block(const Module *m) { return module_whole(m, "plan.precision.block"); }
Str plan_schedule(const Module *m) {
  Str word = module_word(m, "plan.pipeline");
  return word && !strcmp(word, "auto") ? intern(m->ctx->names, "one_f_one_b") : word;
}
bool plan_uneven(const Module *m) { return strcmp(module_word(m, "plan.pipeline.uneven"), "off"); }
int64_t plan_chunks(const Module *m) {
  bool chunks = !strcmp(plan_schedule(m), "interleaved");
  return chunks ? module_whole(m, "plan.pipeline.chunks") : 1;
}
bool plan_takes_turns(const Module *m) {
  return strcmp(plan_schedule(m), "sequential") != 0 && strcmp(plan_schedule(m), "gpipe") != 0;
}
int64_t plan_ahead(const Module *m) {
  bool bubble = !strcmp(plan_schedule(m), "zero_bubble");
  return bubble ? module_whole(m, "plan.pipeline.memory") : 1;
}
int64_t plan_micro(const Module *m) { return module_whole(m, "plan.micro"); }
int plan_zero_stage(const Module *m) { return (int)module_whole(m, "plan.zero"); }
int64_t plan_zero_bucket(const Module *m) { return module_whole(m, "plan.zero.bucket"); }
bool plan_overlaps(const Module *m) { return module_on(m, "plan.zero.overlap"); }
int64_t train_batch(const Module *m) { return module_whole(m, "train.batch"); }
double train_steps(const Module *m) { return module_amount(m, "train.steps"); }
int64_t made_workers(const Module *m) { return atoll(module_setting(m, "made.workers", "0")); }
Str train_optimizer(const Module *m) { return module_word(m, "train.optim"); }

bool train_freezes(const Module *m) {
  const OptimizerRow *row = optimizer_row(train_optimizer(m));
  return row && row->flags & OPTIMIZER_FREEZES;
}
double machine_node_memory(const Module *m) { return module_amount(m, "machine.node.memory"); }

Str plan_zero_axes(const Module *m) {
  Str axes = module_word(m, "plan.zero.over");
  return axes ? axes : intern(m->ctx->names, "");
}

bool plan_offloads_any(const Module *m, OffloadWord word) {
  for (uint32_t i = 0; i < m->offload.n; i++)
    if (m->offload.at[i].word == word) return true;
  return false;
}

bool plan_offloads_all(const Module *m, OffloadWord word) {
  for (uint32_t i = 0; i < m->offload.n; i++)
    if (m->offload.at[i].word == word && !m->offload.at[i].path) return true;
  return false;
}

bool plan_offloads(const Module *m, OffloadWord word, Str param) {
  for (uint32_t i = 0; i < m->offload.n; i++) {
    const OffloadLine *line = &m->offload.at[i];
    if (line->word == word &&
        (!line->path || layer_path_names(line->path, strlen(line->path), param)))
      return true;
  }
  return false;
}

Span plan_offload_at(Module *m) {
  if (m->offload.n) return loc_span(m, m->offload.at[0].loc);
  for (uint32_t i = 0; i < m->recompute.n; i++)
    if (m->recompute.at[i].offload) return loc_span(m, m->recompute.at[i].offload_loc);
  return (Span){0};
}

bool plan_accumulates_full(const Module *m) {
  return !strcmp(module_word(m, "plan.zero.accumulate"), "full");
}

Str machine_arch(const Module *m) { return module_said(m, "machine.node.arch"); }
