/* Old words of files, from the table renamed.def. Must not: be asked by what writes. */
#ifndef SHARDC_RENAMED_H
#define SHARDC_RENAMED_H
#include "ir/support/ctx.h"

typedef enum RenamedKind {
  RENAMED_ATTRIBUTE,
  RENAMED_FACT,
  RENAMED_SETTING,
  RENAMED_KEYWORD
} RenamedKind;

enum {
  RENAMED_WORDS = 0
#define RENAMED(kind, old, new) +1
#include "renamed.def"
#undef RENAMED
};

int renamed_find(RenamedKind kind, const char *word); /* number of its row, -1: it is no old word */
const char *renamed_to(int row);
/* The word that `new` was called, NULL: it is no renamed one. */
const char *renamed_from(RenamedKind kind, const char *new);
/* The present spelling of a word: itself, or the new word for an old one. */
const char *renamed_word(RenamedKind kind, const char *word);

/* Note N0101 about an old word; its edit writes the new word. If *note already is a note about the
   same word, it gets the edit of this place as well. */
void renamed_note(Ctx *c, Report **note, Span at, const char *old, const char *new);
#endif
