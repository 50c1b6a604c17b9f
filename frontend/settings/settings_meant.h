/* Which word of the table settings.def was meant where another is written. */
#ifndef SHARDC_SETTINGS_MEANT_H
#define SHARDC_SETTINGS_MEANT_H
#include "settings.h"

/* Where this word, or the one that means the same, is written; NULL: nowhere. `line`: of an
   option, the line on which it was found; NULL: of a line. */
const char *settings_place(Ctx *c, AstItemKind block, const char *line, const char *word);
/* The help about this word of another tool, written after `line`; NULL: none. */
const char *settings_foreign(const char *line, const char *word);
/* A number where a word is wanted: `lr 1e-3` is the option `lr` of another line. NULL: there is
   none. */
const char *settings_option_named(Ctx *c, AstItemKind block, const char *word);
#endif
