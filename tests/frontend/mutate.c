/* Robustness of the reader: parses each file given and many damaged copies of it, checks their
   settings blocks, prints tree and diagnostics to nowhere. It passes if it ends (and, built with
   sanitizers, if these have nothing to say). Usage: mutate ROUNDS FILE...   The same rounds give
   the same damage. */
#include "frontend/settings/settings.h"
#include <stdlib.h>

typedef struct Text {
  char *at;
  size_t n;
} Text;

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n) { return n ? (size_t)(next_random(state) % n) : 0; }

static Text read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  Text t = {malloc(1 << 20), 0};
  if (!f || !t.at) exit(2);
  t.n = fread(t.at, 1, 1 << 20, f);
  fclose(f);
  return t;
}

static void replace(Text *t, size_t at, size_t cut, const char *with, size_t n) {
  char *out = malloc(t->n - cut + n + 1);
  if (!out) exit(2);
  memcpy(out, t->at, at);
  memcpy(out + at, with, n);
  memcpy(out + at + n, t->at + at + cut, t->n - at - cut);
  free(t->at);
  t->at = out, t->n = t->n - cut + n;
}

static const char *const pieces[] = {
    "{",       "}",      "[",     "]",     "(",        ")",    ";",  "\n",       "=",
    "->",      "<-",     "..",    ".*",    "\"",       "'",    "|>", "layer ",   "train x {",
    "return ", "param ", "25MXB", "1e999", "\xC3\xA9", "\xFF", "#",  "-",        "^",
    "~",       "@",      "pad",   " as ",  "h.0.1",    "if",   ",,", "((((((((", "[[[[[[[["};

static void damage(Text *t, uint64_t *state) {
  size_t at = below(state, t->n), cut = below(state, 6);
  if (cut > t->n - at) cut = t->n - at;
  switch (below(state, 5)) {
  case 0: replace(t, at, cut, "", 0); break;
  case 1: {
    const char *piece = pieces[below(state, sizeof pieces / sizeof *pieces)];
    replace(t, at, cut, piece, strlen(piece));
    break;
  }
  case 2: {
    char byte = (char)below(state, 256);
    replace(t, at, t->n > at, &byte, 1);
    break;
  }
  case 3: { /* a part of the text once more, elsewhere */
    size_t from = below(state, t->n), n = below(state, 200);
    if (n > t->n - from) n = t->n - from;
    char *copy = malloc(n + 1);
    if (!copy) exit(2);
    memcpy(copy, t->at + from, n);
    replace(t, at, 0, copy, n);
    free(copy);
    break;
  }
  default:
    if (!below(state, 8)) replace(t, at, t->n - at, "", 0);
  }
}

static void read_all(const Text *t, FILE *nowhere) {
  Ctx *c = ctx_new();
  AstFile *f = ast_parse(c, "damaged.shard", t->at, t->n);
  for (uint32_t i = 0; f && i < f->items.n; i++)
    if (f->items.at[i]->block) settings_check(c, f->items.at[i]);
  if (f) ast_print(c, f, nowhere);
  diag_print(c->diag, nowhere, DIAG_HUMAN, false);
  diag_print(c->diag, nowhere, DIAG_JSON, false);
  ctx_free(c);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 1;
  FILE *nowhere = fopen("/dev/null", "w");
  uint64_t state = 1;
  for (int i = 2; i < argc; i++) {
    Text original = read_file(argv[i]);
    read_all(&original, nowhere);
    for (int r = 0; r < rounds; r++) {
      Text t = {malloc(original.n + 1), original.n};
      if (!t.at) return 2;
      memcpy(t.at, original.at, original.n);
      for (size_t k = 0, n = 1 + below(&state, 6); k < n; k++) damage(&t, &state);
      read_all(&t, nowhere);
      free(t.at);
    }
    free(original.at);
  }
  fclose(nowhere);
  return 0;
}
