/* --set KEY=VALUE: settings that the executable reads when it runs. Settings that are compiled into
   kernels (optimizer, schedule, sizes, plan) cannot be changed and are refused. The program's table
   is constant: the run gets a copy of it with the new values. */
#include "run.h"
#include "ir/plan/setting_default.h"
#include "ir/support/num.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* LESS: a switch that can be turned off, as its memory is compiled in. */
typedef enum ValueKind { WHOLE, SEED, NUMBER, PEAK, SWITCH, LESS, ANY } ValueKind;

static const struct {
  const char *key;
  ValueKind kind;
  OptionId option; /* which gives the same; OPT_COUNT: none */
} open_keys[] = {{"train.steps", WHOLE, OPT_steps},
                 {"train.seed", SEED, OPT_seed},
                 {"train.eval.every", WHOLE, OPT_eval_every},
                 {"train.eval.batches", WHOLE, OPT_eval_batches},
                 {"train.save.every", WHOLE, OPT_save_every},
                 {"train.save.keep", WHOLE, OPT_keep},
                 {"data.train", ANY, OPT_data},
                 {"data.valid", ANY, OPT_valid},
                 {"data.format", ANY, OPT_format},
                 {"data.tokenizer", ANY, OPT_tokenizer},
                 {"data.shuffle", SWITCH, OPT_shuffle},
                 {"data.raw", SWITCH, OPT_COUNT},
                 {"machine.node.f32", PEAK, OPT_COUNT},
                 {"machine.node.tf32", PEAK, OPT_COUNT},
                 {"machine.node.bf16", PEAK, OPT_COUNT},
                 {"machine.node.f16", PEAK, OPT_COUNT},
                 {"train.save.time", NUMBER, OPT_save_time},
                 {"train.save.async", LESS, OPT_COUNT}};
enum { OPEN_KEYS = sizeof open_keys / sizeof *open_keys };

static bool fits(ValueKind kind, const char *value) {
  char *end;
  if (kind == ANY) return *value;
  if (kind == SWITCH || kind == LESS) return !strcmp(value, "on") || !strcmp(value, "off");
  double v = strtod(value, &end);
  if (end == value || *end) return false;
  if (kind == NUMBER) return v > 0 && isfinite(v);
  if (kind == PEAK) return v >= 1 && v <= 1e24; /* as in machine blocks */
  return !value[strspn(value, "0123456789")] && (kind == SEED ? strlen(value) <= 18 : v <= 1e15);
}

/* A key that a file may write; programs carry those of train.data as data. */
static bool is_written(const char *key) {
  bool data = !strncmp(key, SETTING_TRAIN "data", sizeof SETTING_TRAIN "data" - 1);
  return !data && !setting_group_length(key) && setting_default(key, "");
}

static bool check(const rt_program *program, const char *key, const char *value, Fault *f) {
  static const char *const wanted[] = {"a whole number from 0 to 10^15",
                                       "a whole number of up to 18 digits",
                                       "a number above 0",
                                       "a number from 1 to 10^24",
                                       "on or off",
                                       "on or off",
                                       "a value"};
  _Static_assert(COUNT_OF(wanted) == ANY + 1, "words per ValueKind");
  int best = 4;
  const char *near = NULL;
  for (int i = 0; i < OPEN_KEYS; i++) {
    const char *now = rt_setting_of(program, key);
    bool open = open_keys[i].kind != LESS || !strcmp(value, "off") || (now && !strcmp(value, now));
    if (!strcmp(open_keys[i].key, key) && open)
      return fits(open_keys[i].kind, value) ||
             rt_fault(f, 103, "%s takes %s, not `%s`", key, wanted[open_keys[i].kind], value);
    int d = rt_distance(key, open_keys[i].key);
    if (d < best) best = d, near = open_keys[i].key;
  }
  bool said = rt_setting_said(program, key);
  if (said || is_written(key)) {
    rt_fault(f, 103, said ? "%s is compiled in" : "this executable was compiled without %s", key);
    return rt_help(f, "compile again with --set %s=%s", key, value);
  }
  rt_fault(f, 103, "no setting `%s`", key);
  return rt_help(f, near ? "did you mean %s?" : "`info` lists the settings", near);
}

static void put(rt_program *program, rt_setting *table, const char *key, const char *value) {
  int i = 0;
  while (i < program->nsettings && strcmp(table[i].key, key)) i++;
  table[i] = (rt_setting){key, value};
  if (i == program->nsettings) program->nsettings++;
}

/* Does an option give it as well? */
static bool is_given(const Run *r, const char *key, Fault *f) {
  for (int i = 0; i < OPEN_KEYS; i++) {
    char option[RT_OPTION];
    if (open_keys[i].option == OPT_COUNT || strcmp(open_keys[i].key, key) != 0) continue;
    rt_option_spell(option, open_keys[i].option);
    if (r->o.at[open_keys[i].option].given)
      return !rt_fault(f, 104, "%s is given twice: by --%s and by --set", key, option);
  }
  return false;
}

/* The texts of the option: KEY=VALUE each; the last one of a key counts. */
bool rt_override(Run *r, Fault *f) {
  static const char between[] = {RT_BETWEEN, 0};
  const OptionValue *value = &r->o.at[OPT_set];
  if (!rt_give_rates(r, f)) return false;
  if (!value->given) return true;
  if (!*value->text) return rt_fault(f, 103, "--set takes KEY=VALUE, and was given nothing");
  char *text = rt_copy_text(value->text, strlen(value->text)), *rest = NULL;
  rt_program *program = rt_alloc(sizeof *program);
  size_t lines = 1;
  for (const char *c = text; *c; c++) lines += *c == RT_BETWEEN;
  *program = *r->p;
  rt_setting *table = rt_alloc(sizeof *table * ((size_t)program->nsettings + lines));
  memcpy(table, program->settings, sizeof *table * (size_t)program->nsettings);
  program->settings = table;
  for (char *line = strtok_r(text, between, &rest); line; line = strtok_r(NULL, between, &rest)) {
    char *equal = strchr(line, '=');
    if (!equal) return rt_fault(f, 103, "--set takes KEY=VALUE, not `%s`", line);
    *equal = 0;
    if (is_given(r, line, f)) return false;
    if (r->o.command == 't' && rt_is_rate(r->p, line)) {
      if (!rt_give_rate(r, line, equal + 1, f)) return false;
      continue;
    }
    if (!check(r->p, line, equal + 1, f)) return false;
    put(program, table, line, equal + 1);
  }
  r->p = program; /* lives as long as the process */
  return true;
}
