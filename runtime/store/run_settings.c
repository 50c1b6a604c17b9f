/* Settings in checkpoints. They are those of the train block that change what a step does, and the
   precision; how often a run evaluates and saves is its own affair, the seed is compared by itself,
   and plans with other ranks give the same numbers. */
#include "run_settings.h"
#include "runtime/base/base.h"
#include "runtime/base/file.h"
#include <stdlib.h>
#include <string.h>

static bool starts(const char *key, const char *with) { return !strncmp(key, with, strlen(with)); }

static bool matters(const char *key) {
  static const char *const not [] = {"train.seed", "train.eval.", "train.save."};
  for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
    if (starts(key, not [i])) return false;
  return starts(key, "train.") || !strcmp(key, "plan.precision");
}

char *rt_run_settings(const rt_program *p) {
  char *text = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) rt_fail(701, "no memory");
  for (int i = 0; i < p->nsettings; i++)
    if (matters(p->settings[i].key))
      fprintf(file, "%s=%s\n", p->settings[i].key, p->settings[i].value);
  fclose(file);
  return text;
}

bool rt_next_setting(char **at, char **key, char **value) {
  char *line = strsep(at, "\n");
  if (!line || !*line) return false;
  *key = line, *value = strchr(line, '=');
  if (!*value) return false;
  *(*value)++ = 0;
  return true;
}

void rt_write_settings(FILE *file, const char *lines) {
  char *copy = rt_copy_text(lines, strlen(lines)), *at = copy, *key, *value;
  fputc('{', file);
  for (bool more = false; rt_next_setting(&at, &key, &value); more = true) {
    if (more) fputc(',', file);
    rt_json_write(file, key), fputc(':', file), rt_json_write(file, value);
  }
  fputc('}', file);
  free(copy);
}

char *rt_read_settings(Json *json) {
  char key[128], value[1024], *text = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) rt_fail(701, "no memory");
  if (rt_json_object(json))
    while (rt_json_member(json, key, sizeof key))
      if (rt_json_string(json, value, sizeof value)) fprintf(file, "%s=%s\n", key, value);
  fclose(file);
  return text;
}

const char *rt_find_setting(const char *lines, const char *key, size_t *n) {
  size_t k = strlen(key);
  for (const char *at = lines; *at; at += strcspn(at, "\n"), at += *at == '\n')
    if (!strncmp(at, key, k) && at[k] == '=') return *n = strcspn(at + k + 1, "\n"), at + k + 1;
  return NULL;
}

/* Keys of `a`; back: a is the run that is resumed, and only what `b` has not is told. */
static int tell(const char *a, const char *b, bool back) {
  char *copy = rt_copy_text(a, strlen(a)), *at = copy, *key, *value;
  int told = 0;
  while (rt_next_setting(&at, &key, &value)) {
    size_t n = 0;
    const char *other = rt_find_setting(b, key, &n);
    if (other && (back || (strlen(value) == n && !strncmp(value, other, n)))) continue;
    told++;
    if (back) rt_note("%s was %s in the resumed run, it is not set now", key, value);
    else if (other)
      rt_note("%s was %.*s in the resumed run, it is %s now", key, (int)n, other, value);
    else rt_note("%s was not set in the resumed run, it is %s now", key, value);
  }
  free(copy);
  return told;
}

int rt_tell_settings(const char *then, const char *now) {
  return tell(now, then, false) + tell(then, now, true);
}

uint64_t rt_source_hash(const rt_program *p) {
  Hash hash;
  rt_hash_start(&hash);
  for (const char *const *s = p->sources; s && *s; s++) rt_hash_add(&hash, *s, strlen(*s));
  return rt_hash_end(&hash);
}
