/* The defaults of settings, from the rows of frontend/settings/settings.def and from nowhere else:
   for passes, which read a module's settings, and for the runtime, which reads those that a program
   carries. A key is the text of a `set` line: "train.optim.lr"; rows of one choice only
   (optim.adamw lr) count where it was made. Must not: hold a value of its own. */
#ifndef SHARDC_IR_SETTING_DEFAULT_H
#define SHARDC_IR_SETTING_DEFAULT_H
#include <stddef.h>
#include <string.h>

typedef struct SettingDefault {
  const char *line, *option, *value; /* "train.optim.adamw", "lr", "1e-3"; option "": the line's */
  const char *type;                  /* RATE, .. */
} SettingDefault;

#define SETTING_TRAIN "train."
#define SETTING_PLAN "plan."
#define SETTING_MACHINE "machine."
#define SETTING_WEIGHTS "weights."
#define SETTING_EXTERN "extern."
static const SettingDefault setting_defaults[] = {
#define LINE(block, word, type, least, most, flags, value, help)                                   \
  {SETTING_##block #word, "", value, #type},
#define OPTION(block, word, key, type, value, help) {SETTING_##block #word, #key, value, #type},
#define CHOICE(block, word, value, help)
#define PLANNED(block, word, key, value, what)
#include "frontend/settings/settings.def"
#undef LINE
#undef OPTION
#undef CHOICE
#undef PLANNED
};

/* The type of an option of a line without choices: "machine.node", "disk". "": there is none. */
static inline const char *setting_type(const char *line, const char *option) {
  for (size_t i = 0; i < sizeof setting_defaults / sizeof *setting_defaults; i++)
    if (!strcmp(setting_defaults[i].line, line) && !strcmp(setting_defaults[i].option, option))
      return setting_defaults[i].type;
  return "";
}

/* How long "train.optim" is at the beginning of a line or of a key. */
static inline size_t setting_line_length(const char *text) {
  size_t block = strcspn(text, ".");
  return text[block] ? block + 1 + strcspn(text + block + 1, ".") : block;
}

/* How long ".2" is in "train.optim.2.lr", after the line: the option of another line of this word,
   for some parameters alone; 0: the key is of the line itself. */
static inline size_t setting_group_length(const char *key) {
  const char *group = key + setting_line_length(key);
  size_t digits = *group == '.' ? strspn(group + 1, "0123456789") : 0;
  return digits ? 1 + digits : 0;
}

/* "": the table has none, NULL: it has no such row. `choice` is what the line of the key says. */
static inline const char *setting_default(const char *key, const char *choice) {
  size_t n = setting_line_length(key);
  const char *rest = key + n + setting_group_length(key), *option = *rest ? rest + 1 : rest,
             *found = NULL;
  for (size_t i = 0; i < sizeof setting_defaults / sizeof *setting_defaults; i++) {
    const SettingDefault *d = &setting_defaults[i];
    if (strncmp(d->line, key, n) || setting_line_length(d->line) != n || strcmp(d->option, option))
      continue;
    if (!d->line[n] || !strcmp(d->line + n + 1, choice)) return d->value;
    found = "";
  }
  return found;
}
#endif
