/* PTX of kernels under another name (codegen/device_code.h, `named`): every word of the text that
   is the neutral symbol, or begins with it and `_`. Words are what PTX calls identifiers; registers
   and labels of LLVM begin with another character. Must not: know what the text says. */
#include "text_names.h"
#include <ctype.h>
#include <string.h>

static bool in_word(char c) { return isalnum((unsigned char)c) || strchr("_$%.", c); }

/* Does the neutral symbol begin at this position, and not inside a word? */
static bool begins(const char *text, size_t at, size_t n) {
  size_t neutral = strlen(NEUTRAL_SYMBOL);
  if (at + neutral > n || memcmp(text + at, NEUTRAL_SYMBOL, neutral) != 0) return false;
  if (at && in_word(text[at - 1])) return false;
  return at + neutral == n || text[at + neutral] == '_' || !in_word(text[at + neutral]);
}

static size_t count(CacheBytes code) {
  size_t times = 0;
  for (size_t i = 0; i < code.n; i++) times += begins(code.at, i, code.n);
  return times;
}

CacheBytes text_named(Arena *arena, CacheBytes code, const char *symbol) {
  size_t neutral = strlen(NEUTRAL_SYMBOL), n = strlen(symbol), at = 0;
  CacheBytes made = {ARENA_ARRAY(arena, char, code.n + count(code) * n + 1), 0};
  while (at < code.n) {
    bool here = begins(code.at, at, code.n);
    memcpy(made.at + made.n, here ? symbol : code.at + at, here ? n : 1);
    made.n += here ? n : 1, at += here ? neutral : 1;
  }
  return made;
}
