/* Settings by their key: a walk over the program's table, for calls outside of steps. */
#include "setting.h"
#include "ir/plan/setting_default.h"
#include <stdio.h>

const char *rt_setting_said(const rt_program *program, const char *key) {
  for (int i = 0; i < program->nsettings; i++)
    if (!strcmp(program->settings[i].key, key)) return program->settings[i].value;
  return NULL;
}

/* Rows of the table say train.data.shuffle what a program carries as data.shuffle. */
const char *rt_setting_of(const rt_program *program, const char *key) {
  char row[256], line[256];
  const char *said = rt_setting_said(program, key);
  if (said) return said;
  snprintf(row, sizeof row, "%s%s", strncmp(key, "data.", 5) ? "" : "train.", key);
  snprintf(line, sizeof line, "%.*s", (int)(setting_line_length(row) + setting_group_length(row)),
           row);
  const char *choice = rt_setting_said(program, line);
  const char *value = setting_default(row, choice ? choice : "");
  return value && *value ? value : NULL;
}
