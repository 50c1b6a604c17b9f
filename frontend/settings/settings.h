/* Settings blocks: what the table settings.def knows about them. Checking, defaults, and the
 * accessors of lowering. */
#ifndef SHARDC_SETTINGS_H
#define SHARDC_SETTINGS_H
#include "frontend/syntax/ast.h"
#include "ir/ir.h"

typedef enum SettingType {
  TYPE_NOTHING, /* no operand */
  TYPE_COUNT,   /* whole number of at least 1 */
  TYPE_INTEGER, /* whole number of at least 0 */
  TYPE_NUMBER,
  TYPE_POSITIVE,   /* number above 0 */
  TYPE_AT_LEAST_0, /* number of at least 0 */
  TYPE_BELOW_1,    /* number from 0 to below 1 */
  TYPE_SHARE,      /* 0..1 or a percentage */
  TYPE_STEPS,      /* a whole number of at least 1, a share below 1, or auto */
  TYPE_STAGE,      /* 0, 1, 2, 3 */
  TYPE_BYTES,
  TYPE_AHEAD, /* layers, or bytes */
  TYPE_RATE,
  TYPE_FLOPS,
  TYPE_SECONDS, /* 20us */
  TYPE_SWITCH,  /* on, off */
  TYPE_WORD,    /* one of the CHOICE rows */
  TYPE_NAME,
  TYPE_NAMES, /* names, or the bare words after `over` */
  TYPE_PATHS,
  TYPE_STRING,
  TYPE_NUMBERS, /* a number or a list of numbers */
  TYPE_PAIR,    /* a list of two numbers from 0 to below 1 */
  TYPE_SOURCE,  /* "files" or columns(..) */
  TYPE_VALID,   /* "files", columns(..) or a share */
  TYPE_TASK,    /* next(..) or mlm(..) */
  TYPE_KEEP     /* a CHOICE, or a list of names */
} SettingType;

enum SettingFlags {
  SETTING_NEEDED = 1,
  SETTING_MANY = 2,
  SETTING_KEYS = 4,
  SETTING_ARROW = 8,
  SETTING_FREE = 16,
  SETTING_GROUPS = 32
};

typedef enum SettingRowKind { ROW_LINE, ROW_OPTION, ROW_CHOICE } SettingRowKind;
typedef struct SettingRow {
  SettingRowKind kind;
  AstItemKind block;
  const char *word; /* of OPTION and CHOICE also word.choice, word.key */
  const char *key;  /* OPTION: the key; CHOICE: the value; LINE: NULL */
  SettingType type;
  int least, most; /* LINE: number of operands */
  unsigned flags;
  const char *otherwise; /* default, "" if none */
  const char *help;
} SettingRow;

const SettingRow *settings_table(uint32_t *n);

typedef struct PlannedRow { /* in the language, read by no pass yet */
  AstItemKind block;
  const char *word, *key;   /* key NULL: the line itself */
  const char *value, *what; /* value NULL: any; "x": x alone; "!x": any but x */
} PlannedRow;
const PlannedRow *settings_planned(uint32_t *n);
/* NULL: it is built. key NULL: the line. */
bool settings_plans(const PlannedRow *p, const char *word); /* is it one of its values? */
const PlannedRow *settings_planned_row(AstItemKind block, const char *word, const char *key);
bool settings_asks(
    const PlannedRow *p,
    const AstValue *value); /* does the value ask for it? value NULL: none is written */
const char *setting_type_text(SettingType t); /* "a whole number of at least 1" */

/* E0601 unknown setting, E0602 wrong value, E0606 missing or written twice. True if nothing is
   wrong. `item` is a train, plan, machine or weights item. Must not: look up names of dims,
   machines, mesh axes, layers. */
bool settings_check(Ctx *c, const AstItem *item);

/* E1103 for keys and values of a module read from a dump that no block has. */
bool settings_check_dump(const Module *m);
/* Settings of one block whose values bound each other (settings_limits.c): E0602. */
void settings_check_limits(Ctx *c, const AstItem *item);

/* ---- one setting from the command line: "train.optim.lr=1e-4" (settings_set.c) ---- */

bool settings_block_of(const char *text,
                       AstItemKind *block); /* false: of none that --set changes */
/* A copy of `item` with the setting, whose places point into `text`; NULL: E0602 or E0901 was
   given. item NULL: an empty block. The copy is to be checked like the item itself. */
const AstItem *settings_edit(Ctx *c, const AstItem *item, AstItemKind block, const char *text);

/* ---- reading a checked block. `item` may be NULL: only the table's defaults. `key` NULL: the
 * line's operand. ---- */
const AstSetting *settings_line(const AstItem *item,
                                const char *word); /* the last such line, or NULL */
/* If a line may be written again with `of`, settings_line returns the one without it. Each of the
   others is a group: the names after `of`, and a copy of the block that has this line, without
   `of` and names, as its only line of that word. */
typedef struct SettingGroup {
  const AstItem *item;
  const AstValue **path;
  uint32_t paths;
} SettingGroup;
uint32_t settings_groups(Ctx *c, const AstItem *item, const char *word, const SettingGroup **out);
bool setting_is_group(const AstItem *item, const AstSetting *setting);
const AstValue *settings_value(const AstItem *item, const char *word,
                               const char *key); /* as written, or NULL */
const AstValue *setting_option(const AstSetting *setting,
                               const char *key);                /* of one line; NULL: none */
bool settings_is_word(const AstValue *value, const char *word); /* value may be NULL */
uint32_t setting_operands(Ctx *c, const AstSetting *setting,
                          const AstValue ***out); /* bare values, before `over` and `of` */
uint32_t setting_over(Ctx *c, const AstSetting *setting,
                      const AstValue ***out); /* bare values after `over` */
uint32_t setting_of(Ctx *c, const AstSetting *setting,
                    const AstValue ***out); /* bare values after `of` */
bool settings_has(const AstItem *item, const char *word, const char *key); /* written by the user */

double settings_number(const AstItem *item, AstItemKind kind, const char *word,
                       const char *key); /* 0 if nothing */
int64_t settings_integer(const AstItem *item, AstItemKind kind, const char *word, const char *key);
bool settings_on(const AstItem *item, AstItemKind kind, const char *word, const char *key);
Str settings_word(Ctx *c, const AstItem *item, AstItemKind kind, const char *word,
                  const char *key); /* NULL if nothing */
uint32_t settings_numbers(const AstItem *train, const char *word, const char *key, double *out,
                          uint32_t most);

/* Every setting of a kind of block that has a value, written or by default, in table order, as
   text: key "train.optim", "train.optim.lr"; numbers in base units, lists with blanks between,
   switches as on and off. Lines that may be written several times, sources, tasks and paths are
   left to the reader. */
const char *setting_value_text(Ctx *c, const AstValue *value); /* NULL: it has no such text */
typedef void SettingSink(void *data, const char *key, const char *value);
void settings_resolve(Ctx *c, const AstItem *item, AstItemKind kind, SettingSink *sink, void *data);
#endif
