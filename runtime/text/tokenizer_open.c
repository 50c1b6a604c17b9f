/* The other forms of a tokenizer, vocab.json with merges.txt (GPT-2) and vocab.txt (BERT), and
   opening the tokenizer at a path, whatever its form. vocab.txt does not say whether text is made
   lower case: it is, unless a token has a capital letter. Must not: guess between files that
   contradict each other. */
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "tokenizer_in.h"
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

static bool next_line(const uint8_t **at, const uint8_t *end, const uint8_t **line, int64_t *n) {
  if (*at == end) return false;
  const uint8_t *stop = memchr(*at, '\n', (size_t)(end - *at));
  *line = *at, *n = (stop ? stop : end) - *at;
  *at = stop ? stop + 1 : end;
  if (*n && (*line)[*n - 1] == '\r') --*n;
  return true;
}

static TokenPiece copied(Tokenizer *tokenizer, const uint8_t *text, int64_t n) {
  TokenPiece piece = {(uint32_t)tokenizer->used, (uint32_t)n};
  memcpy(tokenizer->text + tokenizer->used, text, (size_t)n);
  tokenizer->used += n;
  return piece;
}

static bool read_merge_lines(Tokenizer *tokenizer, Bytes merges, Fault *f) {
  const uint8_t *at = merges.at, *end = merges.at + merges.n, *line;
  int64_t n, number = 0;
  while (next_line(&at, end, &line, &n)) {
    number++;
    if (n == 0 || (number == 1 && n > 8 && !memcmp(line, "#version", 8))) continue;
    const uint8_t *blank = memchr(line, ' ', (size_t)n);
    if (!blank) {
      rt_fault(f, 206, "damaged merges: a line without a blank");
      return rt_at(f, "", "line", number);
    }
    TokenPiece left = copied(tokenizer, line, blank - line),
               right = copied(tokenizer, blank + 1, line + n - blank - 1);
    if (!rt_vocab_add_merge(tokenizer, left, right, f)) return false;
  }
  return true;
}

static bool read_vocab_object(Tokenizer *tokenizer, Bytes vocab, Fault *f) {
  Json json = rt_json(vocab.at, vocab.n);
  int64_t id;
  rt_json_object(&json);
  for (char *key; key = (char *)tokenizer->text + tokenizer->used,
                  rt_json_member(&json, key, (size_t)(tokenizer->room - tokenizer->used));) {
    TokenPiece text = {(uint32_t)tokenizer->used, (uint32_t)strlen(key)};
    tokenizer->used += text.n;
    if (rt_json_int(&json, &id) && !rt_vocab_add(tokenizer, text, id, NULL, f)) return false;
  }
  if (rt_json_done(&json)) return true;
  rt_fault(f, 206, "damaged vocabulary: %s", json.error);
  return rt_at(f, "", "byte", json.p - json.begin);
}

/* A token of the vocabulary is special too, where it has this name. */
static bool mark_special(Tokenizer *tokenizer, const char *name, Fault *f) {
  VocabToken *made;
  for (int32_t i = 0; i < tokenizer->ntokens; i++) {
    TokenPiece piece = tokenizer->token[i].text;
    if (piece.n != strlen(name) || memcmp(tokenizer->text + piece.at, name, piece.n)) continue;
    if (!rt_vocab_add(tokenizer, piece, tokenizer->token[i].id, &made, f)) return false;
    made->added = made->special = true;
    return true;
  }
  return true;
}

static bool finish(Tokenizer *tokenizer, bool ok, Tokenizer **out, Fault *f) {
  ok = ok && rt_vocab_finish(tokenizer, f);
  if (ok) *out = tokenizer;
  else rt_tokenizer_close(tokenizer);
  return ok;
}

static bool small_enough(int64_t n, Fault *f) {
  return n <= 1 << 30 || rt_fault(f, 206, "a tokenizer of more than 1 GiB is not read");
}

bool rt_tokenizer_read_pair(Bytes vocab, Bytes merges, Tokenizer **out, Fault *f) {
  if (!small_enough(vocab.n, f) || !small_enough(merges.n, f)) return false;
  Tokenizer *tokenizer = rt_vocab_new(vocab.n + merges.n);
  tokenizer->model = MODEL_BPE, tokenizer->split = rt_split_gpt2();
  bool ok = read_vocab_object(tokenizer, vocab, f) && mark_special(tokenizer, "<|endoftext|>", f) &&
            read_merge_lines(tokenizer, merges, f);
  return finish(tokenizer, ok, out, f);
}

bool rt_tokenizer_read_words(Bytes lines, bool lower, Tokenizer **out, Fault *f) {
  static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  const uint8_t *at = lines.at, *end = lines.at + lines.n, *line;
  int64_t n, id = 0;
  if (!small_enough(lines.n, f)) return false;
  Tokenizer *tokenizer = rt_vocab_new(lines.n);
  bool ok = true;
  tokenizer->model = MODEL_WORDPIECE, tokenizer->longest = 100;
  tokenizer->clean = tokenizer->ideographs = true, tokenizer->lower = tokenizer->strip = lower;
  strcpy(tokenizer->unknown_name, "[UNK]"), strcpy(tokenizer->prefix, "##");
  while (ok && next_line(&at, end, &line, &n))
    ok = rt_vocab_add(tokenizer, copied(tokenizer, line, n), id++, NULL, f);
  for (size_t i = 0; ok && i < sizeof specials / sizeof *specials; i++)
    ok = mark_special(tokenizer, specials[i], f);
  return finish(tokenizer, ok, out, f);
}

/* ---- paths ---- */

/* gpt2-vocab.json -> gpt2-merges.txt, and the other way round; "" if the name has another end. */
static void partner(char out[RT_PATH], const char *path, const char *end, const char *other) {
  size_t n = rt_text_ends(path, end) ? strlen(path) - strlen(end) : 0;
  if (!rt_text_ends(path, end) || snprintf(out, RT_PATH, "%.*s%s", (int)n, path, other) >= RT_PATH)
    *out = 0;
}

/* A plain vocabulary holds numbers only; all else is a tokenizer.json, or wrong as one. */
static bool is_plain(Bytes json) {
  Json j = rt_json(json.at, json.n);
  int64_t id;
  return rt_json_object(&j) && rt_json_member(&j, NULL, 0) && rt_json_int(&j, &id);
}

static bool has_capitals(Bytes lines) {
  const uint8_t *at = lines.at, *end = lines.at + lines.n, *line;
  for (int64_t n; next_line(&at, end, &line, &n);)
    for (int64_t i = 0; n && *line != '[' && i < n; i++)
      if (line[i] >= 'A' && line[i] <= 'Z') return true;
  return false;
}

typedef struct TokenizerOpening {
  char path[RT_PATH], other[RT_PATH];
  Bytes file, second;
  Fault *f;
} TokenizerOpening;

static bool find_file(TokenizerOpening *opening, const char *path) {
  static const char *const names[] = {"tokenizer.json", "vocab.json", "vocab.txt"};
  snprintf(opening->path, RT_PATH, "%s", path);
  for (size_t i = 0; rt_is_folder(path) && i < sizeof names / sizeof *names; i++) {
    rt_join(opening->path, path, names[i]);
    if (rt_exists(opening->path)) break;
  }
  if (rt_text_ends(opening->path, "merges.txt"))
    partner(opening->other, opening->path, "merges.txt", "vocab.json");
  if (*opening->other) strcpy(opening->path, opening->other), *opening->other = 0;
  return rt_map_file(opening->path, 206, &opening->file, opening->f);
}

static bool read_found(TokenizerOpening *opening, Tokenizer **tokenizer) {
  if (!rt_text_ends(opening->path, ".json"))
    return rt_tokenizer_read_words(opening->file, !has_capitals(opening->file), tokenizer,
                                   opening->f);
  if (!is_plain(opening->file)) return rt_tokenizer_read(opening->file, tokenizer, opening->f);
  partner(opening->other, opening->path, "vocab.json", "merges.txt");
  if (!*opening->other)
    return rt_fault(opening->f, 206,
                    "this vocabulary has no merges: its name does not end in vocab.json");
  return rt_map_file(opening->other, 206, &opening->second, opening->f) &&
         rt_tokenizer_read_pair(opening->file, opening->second, tokenizer, opening->f);
}

bool rt_tokenizer_open(const char *path, Tokenizer **tokenizer, char *files[2], Fault *f) {
  TokenizerOpening opening = {.f = f};
  bool ok = find_file(&opening, path) &&
            (read_found(&opening, tokenizer) || rt_at(f, opening.path, "", -1));
  rt_unmap_file(&opening.file), rt_unmap_file(&opening.second);
  for (int i = 0; files && i < 2; i++) {
    const char *name = i ? opening.other : opening.path;
    files[i] = ok && *name ? rt_copy_text(name, strlen(name)) : NULL;
  }
  return ok;
}
