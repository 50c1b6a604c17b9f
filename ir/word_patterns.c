/* Words and name patterns of the text form; the printer quotes what does not fit a pattern, the
   verifier refuses names that cannot be quoted. */
#include "word_patterns.h"

const char *const text_fn_kinds[3] = {"entry", "body", "kernel"};
const char *const text_global_kinds[5] = {"param", "state", "input", "scalar", "output"};

bool text_is_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool text_is_word_char(char c) { return text_is_start(c) || (c >= '0' && c <= '9') || c == '\''; }

bool text_is_symbol_char(char c) { return text_is_word_char(c) || c == '.' || c == '*'; }

bool text_is_key_char(char c) { return text_is_symbol_char(c) || c == '-'; }

static bool matches(const char *s, bool (*allowed)(char)) {
  if (!text_is_start(*s)) return false;
  while (*s && allowed(*s)) s++;
  return !*s;
}

bool text_is_word(const char *s) { return matches(s, text_is_word_char); }
bool text_is_symbol(const char *s) { return matches(s, text_is_symbol_char); }
bool text_lists(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *p = list; *p; p += strcspn(p, ", "), p += strspn(p, ", "))
    if (!strncmp(p, word, n) && (!p[n] || p[n] == ',' || p[n] == ' ')) return true;
  return false;
}

bool text_is_key(const char *s) { return matches(s, text_is_key_char); }

static char symbol_char(char c) { return text_is_word_char(c) && c != '\'' ? c : '_'; }

/* A kernel's symbol is the name of a file: a long name is cut and ends in a hash of all of it. */
enum { LONGEST_SYMBOL = 150 };

char *text_symbol(Arena *a, const char *name) {
  char *s = arena_strndup(a, name, strlen(name));
  for (char *c = s; *c; c++) *c = symbol_char(*c);
  if (strlen(s) <= LONGEST_SYMBOL) return s;
  uint64_t h = 14695981039346656037u;
  for (const char *c = s; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  return arena_printf(a, "%.*s_%016llx", LONGEST_SYMBOL - 17, s, (unsigned long long)h);
}

/* The endings that generated code appends to a kernel's symbol: phases, images of a GPU. */
static bool is_ending(const char *s) {
  static const char *const list[] = {"_image"};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (!strcmp(s, list[i])) return true;
  if (strncmp(s, "_p", 2) || !s[2]) return false;
  return !s[2 + strspn(s + 2, "0123456789")];
}

static bool symbols_meet(const char *a, const char *b) {
  while (*a && *b && symbol_char(*a) == symbol_char(*b)) a++, b++;
  if (*a && *b) return false;
  char rest[16] = "";
  const char *longer = *a ? a : b;
  if (strlen(longer) >= sizeof rest) return false;
  for (int i = 0; longer[i]; i++) rest[i] = symbol_char(longer[i]);
  return !*rest || is_ending(rest);
}

const Fn *symbol_twin(const Module *m, uint32_t i) {
  for (uint32_t j = 0; j < i; j++)
    if (symbols_meet(m->fns.at[i]->name, m->fns.at[j]->name)) return m->fns.at[j];
  return NULL;
}
