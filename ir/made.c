/* Names that no user can write: see made.h. */
#include "made.h"
#include "word_patterns.h"
#include <string.h>

static bool is_letter(char c) { return text_is_word_char(c) && c != '\''; }

static bool begins_of(const char *word) { return !strncmp(word, "of.", 3) || !strcmp(word, "of"); }

static bool name_is_made(const char *name) {
  for (const char *c = name; *c; c++) {
    if (*c == '\'' && is_letter(c[1])) return true;
    if ((c == name || c[-1] == '.') && begins_of(c)) return true;
  }
  return false;
}

Str name_made(const Module *m, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Str name = intern(m->ctx->names, arena_vprintf(m->arena, format, args));
  va_end(args);
  must(name_is_made(name), "`%s` could be a name of a user", name);
  return name;
}

Str made_coordinate(const Module *m, Str axis) { return name_made(m, MADE_COORDINATE "%s", axis); }

const char *made_rest(const char *name, const char *prefix) {
  size_t n = strlen(prefix);
  return strncmp(name, prefix, n) ? NULL : name + n;
}

const char *made_rule(const char *name) {
  const char *next = made_rest(name, MADE_NEXT);
  return next ? next : made_rest(name, MADE_PROJECTED);
}

bool made_is_coordinate(const Global *global) {
  return made_rest(global->name, MADE_COORDINATE) != NULL;
}

bool dim_is_primed(const char *name, const char *dim) {
  size_t n = strlen(dim);
  return !strncmp(name, dim, n) && !name[n + strspn(name + n, "'")];
}
