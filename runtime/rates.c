/* Numbers of the optimizer that a run may change: rates, weight decays, the norm of clipping. The
   program reads each from a scalar, `setting.of.KEY`, which this file sets before the first step:
   to the value that the command line gives (--lr, --weight-decay, --clip, --set KEY=), else to that
   of the resumed run's command line, else to the compiled one. Given values are lines KEY=VALUE of
   Progress, which checkpoints keep. Numbers without a scalar are compiled in. */
#include "run.h"
#include "runtime/base/setting.h"
#include "runtime/store/run_settings.h"
#include "ir/support/num.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCALAR "setting.of." /* MADE_SETTING of ir/made.h */

static const struct {
  OptionId option;
  const char *name, *line, *key, *without; /* the key: line, the group's number, key */
} flags[] = {
    {OPT_lr, "--lr", "train.optim", ".lr", "no update of this executable has a rate"},
    {OPT_weight_decay, "--weight-decay", "train.optim", ".weight_decay",
     "it was compiled without weight decay"},
    {OPT_clip, "--clip", "train.clip", "", "it was compiled without clipping"},
};

static const char *key_of(const rt_tensor *tensor) { /* NULL: another tensor */
  size_t n = sizeof SCALAR - 1;
  bool is = tensor->kind == RT_SCALAR && !strncmp(tensor->name, SCALAR, n);
  return is ? tensor->name + n : NULL;
}

bool rt_is_rate(const rt_program *program, const char *key) {
  for (int i = 0; i < program->ntensors; i++) {
    const char *is = key_of(&program->tensors[i]);
    if (is && !strcmp(is, key)) return true;
  }
  return false;
}

/* ---- given values ---- */

/* A decay may be 0. The program keeps 32 bits of it. */
static bool fits(const char *key, const char *text, Fault *f) {
  char *end;
  bool decay = rt_text_ends(key, ".weight_decay");
  double v = strtod(text, &end);
  float kept = (float)v;
  bool number = end != text && !*end && !isspace((unsigned char)*text) && isfinite(v);
  if (number && isfinite(kept) && (kept > 0 || (decay && v == 0))) return true;
  rt_fault(f, 103, "%s takes a number %s, not `%s`", key, decay ? "from 0" : "above 0", text);
  if (number && v > 0) rt_help(f, "in 32 bits it is %s", kept > 0 ? "infinite" : "0");
  return false;
}

void rt_give_line(Run *r, const char *key, const char *value) {
  char *before = r->given;
  r->given = rt_format("%s%s=%s\n", before ? before : "", key, value);
  free(before);
}

static const char *find(const Run *r, const char *key) {
  size_t n;
  return r->given ? rt_find_setting(r->given, key, &n) : NULL;
}

bool rt_give_rate(Run *r, const char *key, const char *value, Fault *f) {
  if (!fits(key, value, f)) return false;
  if (find(r, key)) return rt_fault(f, 104, "%s is given twice", key);
  rt_give_line(r, key, value);
  return true;
}

static bool is_of_flag(int flag, const char *key) {
  size_t n = strlen(flags[flag].line);
  return !strncmp(key, flags[flag].line, n) && rt_text_ends(key, flags[flag].key);
}

/* The keys of a flag: one is given, several are not chosen from. */
static bool give_flag(Run *r, int flag, Fault *f) {
  const OptionValue *value = &r->o.at[flags[flag].option];
  const char *key = NULL, *first = NULL;
  int n = 0;
  for (int i = 0; i < r->p->ntensors; i++) {
    const char *is = key_of(&r->p->tensors[i]);
    if (!is || !is_of_flag(flag, is)) continue;
    if (!n++) first = is;
    key = is;
  }
  if (!n) {
    rt_fault(f, 104, "%s: %s", flags[flag].name, flags[flag].without);
    return rt_help(f, "compile again with --set %s%s=%s", flags[flag].line, flags[flag].key,
                   value->text);
  }
  if (n == 1) return rt_give_rate(r, key, value->text, f);
  rt_fault(f, 104, "%s, but %d lines `optim` have one each", flags[flag].name, n);
  return rt_help(f, "name the line: --set %s=%s, --set %s=%s%s", first, value->text, key,
                 value->text, n > 2 ? ", .." : "");
}

bool rt_give_rates(Run *r, Fault *f) {
  for (int i = 0; i < (int)COUNT_OF(flags); i++)
    if (r->o.at[flags[i].option].given && !give_flag(r, i, f)) return false;
  return true;
}

/* ---- before the first step ---- */

void rt_keep_rates(Run *r, const char *then) {
  char *lines = rt_copy_text(then ? then : "", then ? strlen(then) : 0), *at = lines, *key, *value;
  while (rt_next_setting(&at, &key, &value)) {
    if (find(r, key) || rt_is_given_data(key)) continue;
    bool open = rt_is_rate(r->p, key);
    if (open) rt_give_line(r, key, value);
    if (rt_is_first(r) && open) rt_note("%s is %s, as the resumed run was told", key, value);
    else if (rt_is_first(r))
      rt_note("%s was %s in the resumed run, this executable has it compiled in", key, value);
  }
  free(lines);
}

static double number_of(const Run *r, const char *key) {
  char *end;
  const char *text = find(r, key);
  if (!text) text = rt_setting_of(r->p, key);
  double v = text ? strtod(text, &end) : 0;
  return text && *end == '%' ? v / 100 : v;
}

void rt_set_rates(Run *r) {
  for (int i = 0; i < r->p->ntensors; i++) {
    const rt_tensor *tensor = &r->p->tensors[i];
    const char *key = key_of(tensor);
    if (key) rt_elem_put(tensor->elem, rt_tensor_write(&r->device, tensor), 0, number_of(r, key));
  }
}
