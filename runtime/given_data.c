/* The data of a run by its command line: --data, --valid, --format, --shuffle, or --set of the
   same. Checkpoints keep it next to the given numbers (rates.c), and `train --resume` and `eval` of
   the run read the same again unless they are told otherwise. A word that belongs to another one is
   not kept alone: with --data, nothing else is recalled, and with --valid no format. */
#include "runtime/store/run_settings.h"
#include "run.h"
#include <stdlib.h>
#include <string.h>

typedef enum KeptOption { KEPT_DATA, KEPT_VALID, KEPT_FORMAT, KEPT_SHUFFLE, KEPT_COUNT } KeptOption;

static const struct {
  OptionId option;
  const char *key;
} kept[KEPT_COUNT] = {[KEPT_DATA] = {OPT_data, "data.train"},
                      [KEPT_VALID] = {OPT_valid, "data.valid"},
                      [KEPT_FORMAT] = {OPT_format, "data.format"},
                      [KEPT_SHUFFLE] = {OPT_shuffle, "data.shuffle"}};

bool rt_is_given_data(const char *key) {
  for (int i = 0; i < KEPT_COUNT; i++)
    if (!strcmp(kept[i].key, key)) return true;
  return false;
}

/* The value that this command line gives; NULL: none. */
static const char *given(const Run *r, KeptOption i) {
  const OptionValue *value = &r->o.at[kept[i].option], *set = &r->o.at[OPT_set];
  if (value->given) return value->text;
  size_t n = strlen(kept[i].key);
  for (const char *at = set->given ? set->text : NULL; at; at = strchr(at, RT_BETWEEN)) {
    at += *at == RT_BETWEEN;
    if (!strncmp(at, kept[i].key, n) && at[n] == '=') return rt_setting_of(r->p, kept[i].key);
  }
  return NULL;
}

void rt_keep_data(Run *r) {
  for (int i = 0; i < KEPT_COUNT; i++) {
    const char *text = given(r, i);
    if (text && !strchr(text, '\n')) rt_give_line(r, kept[i].key, text);
  }
}

/* The checkpoint that the command continues from or reads; false: there is none. */
static bool find_checkpoint(const Run *r, char out[RT_PATH]) {
  const OptionValue *resumed = &r->o.at[OPT_resume];
  bool named = resumed->given && *resumed->text && strcmp(resumed->text, "auto") != 0;
  const char *from = named ? resumed->text : r->out;
  if (rt_is_checkpoint(from)) return snprintf(out, RT_PATH, "%s", from) < RT_PATH;
  CheckpointList list = rt_checkpoint_list(from);
  if (list.n) rt_checkpoint_path(out, from, list.step[0]);
  free(list.step);
  return list.n > 0;
}

static void recall(Run *r, KeptOption i, const char *lines) {
  size_t n;
  const char *text = rt_find_setting(lines, kept[i].key, &n);
  if (!text || given(r, i)) return;
  r->o.at[kept[i].option].given = true;
  r->o.at[kept[i].option].text = rt_copy_text(text, n); /* kept as long as the process runs */
  char option[RT_OPTION];
  rt_option_spell(option, kept[i].option);
  if (rt_is_first(r)) rt_note("--%s %.*s, as the run was told", option, (int)n, text);
}

bool rt_recall_data(Run *r, Fault *f) {
  char folder[RT_PATH];
  if (!rt_run_folder(r, false, f)) return false;
  if (given(r, KEPT_DATA) || !find_checkpoint(r, folder)) return true;
  char *lines = rt_checkpoint_given(folder);
  bool of_valid = given(r, KEPT_VALID) != NULL;
  for (int i = 0; lines && i < KEPT_COUNT; i++)
    if (i != KEPT_FORMAT || !of_valid) recall(r, i, lines);
  free(lines);
  return true;
}
