/* Reading the command line: [command] --name value | --name=value | --flag, in any order. Names are
   written with dashes. Must not: know what options mean. */
#include "options.h"
#include "runtime/base/file.h"
#include "ir/support/columns.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum OptionKind { FLAG, COUNT, SEED, REAL, SHARE, TEXT, MANY, MAYBE, TIME } OptionKind;

static const struct {
  const char *name;
  OptionKind kind;
  const char *placeholder, *commands, *help;
} table[] = {
#define OPTION(name, kind, placeholder, commands, help) {#name, kind, placeholder, commands, help},
#include "options.def"
#undef OPTION
};

static const struct {
  const char *name;
  char letter;
  const char *help;
} commands[] = {
    {"train", 't', "train the model (the default)"},
    {"eval", 'e', "loss on the validation data"},
    {"sample", 's', "continue a text"},
    {"export", 'x', "write the parameters for other tools: safetensors and config.json"},
    {"info", 'i', "what is compiled in: parameters, memory, kernels, settings, source"}};

void rt_option_spell(char out[RT_OPTION], OptionId option) {
  const char *name = table[option].name;
  while ((*out = *name == '_' ? '-' : *name)) out++, name++;
}

static int find(const char *name, size_t n) {
  char spelled[RT_OPTION];
  for (int i = 0; i < OPT_COUNT; i++) {
    rt_option_spell(spelled, (OptionId)i);
    if (strlen(spelled) == n && !strncmp(spelled, name, n)) return i;
  }
  return -1;
}

/* Options of other trainers that are compiled into an executable of shardc. */
static const struct {
  const char *names, *what, *how; /* how: the setting, followed by the value */
} compiled_in[] = {
    {" warmup warmup-steps warmup-iters ", "the schedule", "--set train.lr.warmup="},
    {" optimizer optim ", "the optimizer", "--set train.optim="},
    {" batch batch-size bs train-batch-size ", "the batch", "--set train.batch="},
    {" seq seq-len seq-length block-size context-length ", "the sequence", "-D Seq="},
    {" dtype precision ", "the type of computation", "--set plan.precision="},
};

static bool is_compiled_in(const char *asked, const char *value, Fault *f) {
  char word[72];
  snprintf(word, sizeof word, " %s ", asked);
  for (char *c = word; *c; c++)
    if (*c == '_') *c = '-';
  for (size_t i = 0; i < sizeof compiled_in / sizeof *compiled_in; i++)
    if (strstr(compiled_in[i].names, word)) {
      rt_fault(f, 102, "unknown option --%s: %s is compiled in", asked, compiled_in[i].what);
      rt_help(f, "compile again with %s%.60s, which takes a moment", compiled_in[i].how, value);
      return true;
    }
  return false;
}

/* The names that other tools use for existing options. */
static const struct {
  const char *names;
  OptionId option;
} meanings[] = {
    {" max-steps max-iters iters iterations num-steps epochs num-epochs num-train-epochs ",
     OPT_steps},
    {" train-data dataset input train-file ", OPT_data},
    {" val validation valid-data val-data dev eval-data ", OPT_valid},
    {" learning-rate ", OPT_lr},
    {" wd ", OPT_weight_decay},
    {" grad-clip max-grad-norm ", OPT_clip},
    {" output output-dir out-dir save-dir run-dir checkpoint-dir ", OPT_out},
    {" checkpoint ckpt load restore continue resume-from ", OPT_resume},
    {" model weights pretrained init-from from-pretrained ", OPT_init},
    {" random-seed rng-seed ", OPT_seed},
    {" time-limit max-hours ", OPT_max_time},
    {" eval-interval eval-steps eval-freq val-every ", OPT_eval_every},
    {" eval-iters val-batches ", OPT_eval_batches},
    {" save-interval save-steps checkpoint-every ", OPT_save_every},
    {" save-total-limit max-checkpoints ", OPT_keep},
    {" log-interval logging-steps print-every ", OPT_log_every},
    {" workers num-threads cpus num-workers ", OPT_threads},
    {" gpu gpus cuda ", OPT_device},
    {" text start begin ", OPT_prompt},
    {" max-tokens max-new-tokens n-predict num-tokens length max-length ", OPT_tokens},
    {" temp ", OPT_temperature},
    {" nucleus ", OPT_top_p},
    {" stop-string stop-strings stop-sequence reverse-prompt until end ", OPT_stop},
    {" ignore-eot no-eos ", OPT_ignore_eos},
    {" vocab tok ", OPT_tokenizer},
    {" silent no-progress ", OPT_quiet},
    {" verbose stats ", OPT_profile},
};

/* By what it means, by its begin, or by its letters: at most one in three may differ. */
static int nearest(const char *asked) {
  char word[72], spelled[RT_OPTION];
  size_t n = strlen(asked);
  int best = n / 3 < 3 ? (int)(n / 3) + 1 : 4, at = -1;
  snprintf(word, sizeof word, " %s ", asked);
  for (char *c = word; *c; c++)
    if (*c == '_') *c = '-';
  for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
    if (strstr(meanings[i].names, word)) return meanings[i].option;
  for (int i = 0; i < OPT_COUNT; i++) {
    rt_option_spell(spelled, (OptionId)i);
    if (n >= 3 && !strncmp(spelled, asked, n)) return i;
    int d = rt_distance(asked, spelled);
    if (d < best) best = d, at = i;
  }
  return at;
}

/* next: the word after it, or NULL */
static bool unknown(const char *name, const char *next, Fault *f) {
  char spelled[RT_OPTION], asked[64];
  const char *equal = strchr(name, '=');
  snprintf(asked, sizeof asked, "%.*s", (int)strcspn(name, "="), name);
  if (is_compiled_in(asked, equal ? equal + 1 : next && *next != '-' ? next : "VALUE", f))
    return false;
  int at = nearest(asked);
  rt_fault(f, 102, "unknown option --%s", asked);
  if (at < 0) return rt_help(f, "--help lists all options");
  rt_option_spell(spelled, (OptionId)at);
  return rt_help(f, "did you mean --%s?", spelled);
}

static bool rt_read_time(const char *text, double *seconds) {
  char *end;
  double v = strtod(text, &end), unit = 1;
  if (end == text || !(v >= 0) || !isfinite(v)) return false;
  if (*end == 'm') unit = 60, end++;
  else if (*end == 'h') unit = 3600, end++;
  else if (*end == 's') end++;
  *seconds = v * unit;
  return !*end;
}

/* The values of each kind of option; NULL: any text. */
static const char *const taken[] = {NULL,
                                    "a whole number from 0 to 10^15",
                                    "a whole number from 0 to 2^63 - 1",
                                    "a number from 0",
                                    "a number from 0 to 1",
                                    NULL,
                                    NULL,
                                    NULL,
                                    "a time"};
_Static_assert(sizeof taken / sizeof *taken == TIME + 1, "words per OptionKind");

static bool fits(OptionKind kind, OptionValue *value, const char *text) {
  char *end;
  errno = 0;
  switch (kind) {
  case COUNT:
  case SEED:
    value->count = strtoll(text, &end, 10);
    return !*end && *text && value->count >= 0 && !errno &&
           (kind == SEED || value->count <= (int64_t)1e15);
  case REAL:
  case SHARE:
    value->real = strtod(text, &end);
    return !*end && *text && value->real >= 0 && isfinite(value->real) &&
           (kind == REAL || value->real <= 1);
  case TIME: return rt_read_time(text, &value->real);
  default: return true;
  }
}

static bool read_value(int i, OptionValue *value, const char *text, Fault *f) {
  char spelled[RT_OPTION];
  if (table[i].kind == MANY && value->text)
    text = rt_format("%s%c%s", value->text, RT_BETWEEN, text);
  value->text = text;
  if (fits(table[i].kind, value, text)) return true;
  rt_option_spell(spelled, (OptionId)i);
  rt_fault(f, 103, "--%s takes %s, not `%s`", spelled, taken[table[i].kind], text);
  return table[i].kind == TIME ? rt_help(f, "seconds, or 90s, 15m, 2h") : false;
}

/* One option; *at moves on over its value. */
static bool read_one(Options *options, int i, int argc, char **argv, int *at, Fault *f) {
  const char *name = argv[*at] + 2, *equal = strchr(name, '=');
  OptionValue *value = &options->at[i];
  value->given = true;
  if (table[i].kind == FLAG)
    return equal ? rt_fault(f, 103, "--%.*s takes no value", (int)(equal - name), name) : true;
  if (equal) return read_value(i, value, equal + 1, f);
  bool next = *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0;
  if (table[i].kind == MAYBE && !next) return value->text = "", true;
  if (*at + 1 >= argc)
    return rt_fault(f, 103, "--%s needs a value: %s", name, table[i].placeholder);
  return read_value(i, value, argv[++*at], f);
}

/* A second value is refused, the same one again says nothing new. */
static bool read_option(Options *options, int argc, char **argv, int *at, Fault *f) {
  const char *name = argv[*at] + 2;
  int i = find(name, strcspn(name, "="));
  if (i < 0) return unknown(name, *at + 1 < argc ? argv[*at + 1] : NULL, f);
  OptionValue before = options->at[i];
  if (!read_one(options, i, argc, argv, at, f)) return false;
  const char *now = options->at[i].text;
  if (!before.text || table[i].kind == MANY || !strcmp(before.text, now)) return true;
  return rt_fault(f, 104, "--%.*s is given twice: `%s` and `%s`", (int)strcspn(name, "="), name,
                  before.text, now);
}

static bool read_command(Options *options, const char *word, Fault *f) {
  int best = 4, at = -1;
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    if (!strcmp(word, commands[i].name)) return options->command = commands[i].letter, true;
    int d = rt_distance(word, commands[i].name);
    if (d < best) best = d, at = (int)i;
  }
  rt_fault(f, 102, "unknown command `%s`", word);
  return rt_help(f, at < 0 ? "commands: train, eval, sample, export, info" : "did you mean `%s`?",
                 commands[at < 0 ? 0 : at].name);
}

static bool check_use(const Options *options, Fault *f) {
  char spelled[RT_OPTION];
  for (int i = 0; i < OPT_COUNT; i++) {
    if (!options->at[i].given || strchr(table[i].commands, options->command)) continue;
    rt_option_spell(spelled, (OptionId)i);
    for (size_t k = 0; k < sizeof commands / sizeof *commands; k++)
      if (commands[k].letter == options->command)
        return rt_fault(f, 104, "--%s is no option of `%s`", spelled, commands[k].name);
  }
  if (options->at[OPT_resume].given && options->at[OPT_init].given)
    return rt_fault(f, 104, "--resume and --init both say where parameters come from");
  return true;
}

bool rt_options_read(Options *options, int argc, char **argv, Fault *f) {
  bool command = false;
  *options = (Options){.command = 't'};
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "-h") || (!strcmp(argv[i], "help") && !command))
      options->at[OPT_help].given = true;
    else if (!strncmp(argv[i], "--", 2)) {
      if (!read_option(options, argc, argv, &i, f)) return false;
    } else if (argv[i][0] == '-') {
      rt_fault(f, 102, "unknown option %s", argv[i]);
      return rt_help(f, "--help lists all options");
    } else if (command) return rt_fault(f, 102, "one word too many: `%s`", argv[i]);
    else if (!(command = read_command(options, argv[i], f))) return false;
  }
  return options->at[OPT_help].given || options->at[OPT_version].given || check_use(options, f);
}

void rt_options_help(const char *program, const char *model) {
  rt_say(stdout, "%s: trains, evaluates and samples %s\n\nusage: %s [command] [options]\n\n",
         program, model, program);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    printf("  %-8s%s\n", commands[i].name, commands[i].help);
  printf("\noptions; after each, the commands that take it (t, e, s, x, i)\n\n");
  for (int i = 0; i < OPT_COUNT; i++) {
    char spelled[RT_OPTION], left[128], help[400];
    rt_option_spell(spelled, (OptionId)i);
    bool maybe = table[i].kind == MAYBE;
    snprintf(left, sizeof left, "--%s%s%s%s", spelled,
             maybe                   ? "[="
             : *table[i].placeholder ? " "
                                     : "",
             table[i].placeholder, maybe ? "]" : "");
    snprintf(help, sizeof help, "%s (%s)", table[i].help, table[i].commands);
    put_columns(stdout, left, 26, help);
  }
  printf("\nexit status: 0 done, 1 failed, 2 usage, 3 launch, 4 data or weights, 5 not\n"
         "finite, 75 stopped and saved\n");
}
