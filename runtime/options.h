/* The command line of the executable, as one table. */
#ifndef SHARDC_RT_OPTIONS_H
#define SHARDC_RT_OPTIONS_H
#include "runtime/base/base.h"

enum { RT_BETWEEN = 0x1e }; /* between the texts of an option that may repeat */

typedef enum OptionId {
#define OPTION(name, kind, placeholder, commands, help) OPT_##name,
#include "options.def"
#undef OPTION
  OPT_COUNT
} OptionId;

typedef struct OptionValue {
  bool given;
  int64_t count;
  double real;
  const char *text; /* MAYBE without a value: "" */
} OptionValue;

typedef struct Options {
  char command; /* t, e, s, x, i */
  OptionValue at[OPT_COUNT];
} Options;

enum { RT_OPTION = 64 };                                    /* bytes of an option's name */
void rt_option_spell(char out[RT_OPTION], OptionId option); /* as the user writes it, without -- */
bool rt_options_read(Options *options, int argc, char **argv, Fault *f);
void rt_options_help(const char *program, const char *model);
#endif
