/* Old words of files, for both readers: that of the language and that of the IR. */
#include "renamed.h"
#include <string.h>

static const struct {
  RenamedKind kind;
  const char *old, *new;
} words[] = {
#define RENAMED(kind, old, new) {RENAMED_##kind, old, new},
#include "renamed.def"
#undef RENAMED
};

int renamed_find(RenamedKind kind, const char *word) {
  for (int i = 0; i < RENAMED_WORDS; i++)
    if (words[i].kind == kind && !strcmp(words[i].old, word)) return i;
  return -1;
}

const char *renamed_to(int row) { return words[row].new; }

const char *renamed_from(RenamedKind kind, const char *new) {
  for (int i = 0; i < RENAMED_WORDS; i++)
    if (words[i].kind == kind && !strcmp(words[i].new, new)) return words[i].old;
  return NULL;
}

const char *renamed_word(RenamedKind kind, const char *word) {
  int row = renamed_find(kind, word);
  return row < 0 ? word : renamed_to(row);
}

void renamed_note(Ctx *c, Report **note, Span at, const char *old, const char *new) {
  if (!*note) {
    *note = diag_at(c->diag, "N0101", at, "`%s` is called `%s` now", old, new);
    diag_label(*note, "the old word");
    diag_help(*note, "write `%s`; files that say `%s` are read as before", new, old);
  }
  diag_edit(*note, at, "%s", new);
}
