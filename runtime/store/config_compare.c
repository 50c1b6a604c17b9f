/* --init DIR: config.json of the directory against what the program says of its model: the lines
   `config` of the weights block (settings weights.config.*), and what its operators compute with
   (weights.known.*). Every difference that changes numbers is named. Both sides become entries of
   one form: objects by paths with dots, rope_parameters and rope_scaling as one, null as nothing.
   Must not: judge sizes of tensors (weights.c does). */
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "weights.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 256, VALUE = 120 };
typedef struct ConfigEntry {
  char key[RT_NAME], value[VALUE];
} ConfigEntry;

typedef struct ConfigEntries {
  ConfigEntry at[MOST];
  int n;
} ConfigEntries;

/* ---- reading ---- */

static const char *own_key(const char *path, char key[RT_NAME]) {
  static const char *const objects[] = {"rope_parameters.", "rope_scaling."};
  snprintf(key, RT_NAME, "%s", path);
  for (int i = 0; i < 2; i++) {
    size_t n = strlen(objects[i]);
    if (strncmp(path, objects[i], n)) continue;
    const char *rest = path + n;
    bool plain = !strcmp(rest, "rope_theta") || !strcmp(rest, "partial_rotary_factor");
    snprintf(key, RT_NAME, "%s%s", plain ? "" : "rope_scaling.",
             !strcmp(rest, "type") ? "rope_type" : rest);
  }
  return key;
}

static const ConfigEntry *find(const ConfigEntries *entries, const char *key) {
  for (int i = 0; i < entries->n; i++)
    if (!strcmp(entries->at[i].key, key)) return &entries->at[i];
  return NULL;
}

static void put(ConfigEntries *entries, const char *path, const char *value, int64_t n) {
  char key[RT_NAME];
  if (entries->n == MOST || find(entries, own_key(path, key))) return;
  ConfigEntry *entry = &entries->at[entries->n];
  size_t used = 0;
  bool quoted = false;
  for (int64_t i = 0; i < n && used + 1 < VALUE; i++) { /* without blanks */
    quoted ^= value[i] == '"';
    if (quoted || !strchr(" \t\r\n", value[i])) entry->value[used++] = value[i];
  }
  entry->value[used] = 0;
  if (!strcmp(entry->value, "null")) return;
  strcpy(entry->key, key);
  entries->n++;
}

static void read_value(Json *json, const char *path, ConfigEntries *entries, int depth) {
  char key[RT_NAME], inner[2 * RT_NAME + 2];
  if (rt_json_peek(json) != '{' || depth > 8) {
    const char *from = json->p;
    if (rt_json_skip(json)) put(entries, path, from, json->p - from);
    return;
  }
  for (rt_json_object(json); rt_json_member(json, key, sizeof key);) {
    snprintf(inner, sizeof inner, "%s%s%s", path, *path ? "." : "", key);
    inner[RT_NAME - 1] = 0;
    read_value(json, inner, entries, depth + 1);
  }
}

static void drop(ConfigEntries *entries, const char *prefix) {
  int n = 0;
  for (int i = 0; i < entries->n; i++)
    if (strncmp(entries->at[i].key, prefix, strlen(prefix))) entries->at[n++] = entries->at[i];
  entries->n = n;
}

static void settle(ConfigEntries *entries) {
  const ConfigEntry *type = find(entries, "rope_scaling.rope_type");
  if (type && !strcmp(type->value, "\"default\"")) drop(entries, "rope_scaling.");
}

static void read_program(const rt_program *program, const char *prefix, ConfigEntries *entries) {
  size_t n = strlen(prefix);
  for (int i = 0; i < program->nsettings; i++) {
    const rt_setting *setting = &program->settings[i];
    if (strncmp(setting->key, prefix, n)) continue;
    Json json = rt_json(setting->value, (int64_t)strlen(setting->value));
    read_value(&json, setting->key + n, entries, 0);
  }
  settle(entries);
}

static bool read_file(const char *path, ConfigEntries *entries, Fault *f) {
  Bytes bytes;
  if (!rt_map_file(path, 301, &bytes, f)) return false;
  Json json = rt_json(bytes.at, bytes.n);
  bool object = rt_json_peek(&json) == '{';
  read_value(&json, "", entries, 0);
  bool ok = rt_json_done(&json) && object;
  if (!ok) {
    rt_fault(f, 302, "damaged config.json: %s", object ? json.error : "it is no object");
    rt_at(f, path, "byte", json.p - json.begin);
  }
  rt_unmap_file(&bytes);
  settle(entries);
  return ok;
}

/* ---- comparing ---- */

static bool same_value(const char *a, const char *b) {
  char *enda, *endb;
  double x = strtod(a, &enda), y = strtod(b, &endb);
  if (enda > a && endb > b && !*enda && !*endb)
    return x == y || fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y));
  return !strcmp(a, b);
}

/* Entries that change no number of a step: names, tokens, dropout, and sizes that tensors show. */
static bool changes_nothing(const char *key) {
  static const char *const keys[] = {"architectures",
                                     "torch_dtype",
                                     "dtype",
                                     "transformers_version",
                                     "use_cache",
                                     "initializer_range",
                                     "max_position_embeddings",
                                     "n_positions",
                                     "n_ctx",
                                     "vocab_size",
                                     "pretraining_tp",
                                     "_name_or_path",
                                     "max_window_layers"};
  static const char *const ends[] = {"_token_id", "dropout", "_pdrop"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!strcmp(key, keys[i])) return true;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (rt_text_ends(key, ends[i])) return true;
  return false;
}

/* Entries that change results whenever they are present, and the value that is equal to absence. */
static const char *without(const char *key) {
  static const char *const rows[][2] = {{"rope_theta", "10000"},
                                        {"partial_rotary_factor", "1"},
                                        {"sliding_window", ""},
                                        {"attn_logit_softcapping", ""},
                                        {"final_logit_softcapping", ""},
                                        {"embedding_multiplier", "1"},
                                        {"residual_multiplier", "1"},
                                        {"attention_multiplier", ""},
                                        {"logits_scaling", "1"},
                                        {"logit_scale", "1"},
                                        {"scale_attn_by_inverse_layer_idx", "false"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(key, rows[i][0])) return rows[i][1];
  bool object = !strncmp(key, "rope_scaling.", 13) || !strncmp(key, "quantization_config.", 20);
  return object ? "" : NULL;
}

typedef struct Differences {
  const ConfigEntries *file, *model;
  char text[520];
  size_t used;
  int n;
} Differences;

static void differ(Differences *found, const char *key, const char *file, const char *model) {
  found->n++;
  if (found->used + 1 >= sizeof found->text) return;
  found->used += (size_t)snprintf(found->text + found->used, sizeof found->text - found->used,
                                  "%s%s is %s, %s in the model", found->n > 1 ? "; " : "", key,
                                  *file ? file : "not said", *model ? model : "not said");
}

/* A window that reaches over all positions is none; so is one that is switched off. */
static bool no_window(const Differences *found, const char *key, const char *value) {
  const ConfigEntry *use = find(found->file, "use_sliding_window"),
                    *all = find(found->model, "max_position_embeddings");
  if (strcmp(key, "sliding_window")) return false;
  return (use && !strcmp(use->value, "false")) ||
         (all && strtod(all->value, NULL) <= strtod(value, NULL));
}

static void compare_model(Differences *found) {
  for (int i = 0; i < found->model->n; i++) {
    const ConfigEntry *model = &found->model->at[i], *file = find(found->file, model->key);
    if (changes_nothing(model->key) || (file && same_value(file->value, model->value))) continue;
    const char *none = file ? NULL : without(model->key);
    if (file ? !no_window(found, model->key, file->value) : none && !same_value(none, model->value))
      differ(found, model->key, file ? file->value : none, model->value);
  }
}

static void compare_file(Differences *found) {
  for (int i = 0; i < found->file->n; i++) {
    const ConfigEntry *file = &found->file->at[i];
    const char *none = without(file->key);
    if (!none || find(found->model, file->key) || same_value(none, file->value) ||
        no_window(found, file->key, file->value) || !strcmp(file->value, "[]"))
      continue;
    differ(found, file->key, file->value, none);
  }
}

/* Adds the numbers that the operators use, for `config` lines that were not written. */
static void add_known(const rt_program *program, const ConfigEntries *file, ConfigEntries *model) {
  static const char *const names[][2] = {{"rope_theta", "rope_theta"},
                                         {"rms_norm_eps", "rms_norm_eps"},
                                         {"rms_norm_eps", "norm_eps"},
                                         {"layer_norm_eps", "layer_norm_eps"},
                                         {"layer_norm_eps", "layer_norm_epsilon"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char key[64];
    snprintf(key, sizeof key, "weights.known.%s", names[i][0]);
    const char *value = rt_setting_said(program, key);
    if (value && (find(file, names[i][1]) || !i))
      put(model, names[i][1], value, (int64_t)strlen(value));
  }
}

bool rt_weights_same_model(const char *path, const rt_program *program, Fault *f) {
  char config[RT_PATH];
  if (!rt_map_there(program) || !rt_is_folder(path)) return true;
  rt_join(config, path, "config.json");
  if (!rt_exists(config)) return true;
  ConfigEntries *file = rt_alloc(sizeof *file), *model = rt_alloc(sizeof *model);
  Differences found = {.file = file, .model = model};
  bool ok = read_file(config, file, f);
  if (ok) {
    read_program(program, "weights.config.", model);
    add_known(program, file, model);
    compare_model(&found), compare_file(&found);
  }
  if (found.n) {
    ok = rt_fault(f, 304, "config.json is of another model: %s", found.text);
    rt_help(f, "change the model and its `config` lines; naming the safetensors file itself "
               "instead of its "
               "folder insists");
    rt_at(f, config, "", -1);
  }
  free(file), free(model);
  return ok;
}
