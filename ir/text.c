/* Words and name patterns of the text form; the printer quotes what does not fit a pattern, the
   verifier refuses names that cannot be quoted. */
#include "text.h"

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
bool text_is_key(const char *s) { return matches(s, text_is_key_char); }
