/* The other forms of a tokenizer, vocab.json with merges.txt (GPT-2) and vocab.txt (BERT), and from
   a path to whatever lies there. vocab.txt does not say whether text is made lower case: it is,
   unless a token has a capital letter. Must not: guess between files that contradict each other. */
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

static TokenPiece copied(Tokenizer *t, const uint8_t *text, int64_t n) {
  TokenPiece p = {(uint32_t)t->used, (uint32_t)n};
  memcpy(t->text + t->used, text, (size_t)n);
  t->used += n;
  return p;
}

static bool read_merge_lines(Tokenizer *t, Bytes merges, Fault *f) {
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
    TokenPiece left = copied(t, line, blank - line),
               right = copied(t, blank + 1, line + n - blank - 1);
    if (!rt_vocab_add_merge(t, left, right, f)) return false;
  }
  return true;
}

static bool read_vocab_object(Tokenizer *t, Bytes vocab, Fault *f) {
  Json j = rt_json(vocab.at, vocab.n);
  int64_t id;
  rt_json_object(&j);
  for (char *key;
       key = (char *)t->text + t->used, rt_json_member(&j, key, (size_t)(t->room - t->used));) {
    TokenPiece text = {(uint32_t)t->used, (uint32_t)strlen(key)};
    t->used += text.n;
    if (rt_json_int(&j, &id) && !rt_vocab_add(t, text, id, NULL, f)) return false;
  }
  if (rt_json_done(&j)) return true;
  rt_fault(f, 206, "damaged vocabulary: %s", j.error);
  return rt_at(f, "", "byte", j.p - j.begin);
}

/* A token of the vocabulary is special too, where it has this name. */
static bool mark_special(Tokenizer *t, const char *name, Fault *f) {
  VocabToken *made;
  for (int32_t i = 0; i < t->ntokens; i++) {
    TokenPiece p = t->token[i].text;
    if (p.n != strlen(name) || memcmp(t->text + p.at, name, p.n)) continue;
    if (!rt_vocab_add(t, p, t->token[i].id, &made, f)) return false;
    made->added = made->special = true;
    return true;
  }
  return true;
}

static bool finish(Tokenizer *t, bool ok, Tokenizer **out, Fault *f) {
  ok = ok && rt_vocab_finish(t, f);
  if (ok) *out = t;
  else rt_tokenizer_close(t);
  return ok;
}

static bool small_enough(int64_t n, Fault *f) {
  return n <= 1 << 30 || rt_fault(f, 206, "a tokenizer of more than 1 GiB is not read");
}

bool rt_tokenizer_read_pair(Bytes vocab, Bytes merges, Tokenizer **out, Fault *f) {
  if (!small_enough(vocab.n, f) || !small_enough(merges.n, f)) return false;
  Tokenizer *t = rt_vocab_new(vocab.n + merges.n);
  t->model = MODEL_BPE, t->split = rt_split_gpt2();
  bool ok = read_vocab_object(t, vocab, f) && mark_special(t, "<|endoftext|>", f) &&
            read_merge_lines(t, merges, f);
  return finish(t, ok, out, f);
}

bool rt_tokenizer_read_words(Bytes lines, bool lower, Tokenizer **out, Fault *f) {
  static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  const uint8_t *at = lines.at, *end = lines.at + lines.n, *line;
  int64_t n, id = 0;
  if (!small_enough(lines.n, f)) return false;
  Tokenizer *t = rt_vocab_new(lines.n);
  bool ok = true;
  t->model = MODEL_WORDPIECE, t->longest = 100;
  t->clean = t->ideographs = true, t->lower = t->strip = lower;
  strcpy(t->unknown_name, "[UNK]"), strcpy(t->prefix, "##");
  while (ok && next_line(&at, end, &line, &n))
    ok = rt_vocab_add(t, copied(t, line, n), id++, NULL, f);
  for (size_t i = 0; ok && i < sizeof specials / sizeof *specials; i++)
    ok = mark_special(t, specials[i], f);
  return finish(t, ok, out, f);
}

/* ---- paths ---- */

static bool ends(const char *name, const char *end) {
  size_t n = strlen(name), k = strlen(end);
  return n >= k && !strcmp(name + n - k, end);
}

/* gpt2-vocab.json -> gpt2-merges.txt, and the other way round; "" if the name has another end. */
static void partner(char out[RT_PATH], const char *path, const char *end, const char *other) {
  size_t n = ends(path, end) ? strlen(path) - strlen(end) : 0;
  if (!ends(path, end) || snprintf(out, RT_PATH, "%.*s%s", (int)n, path, other) >= RT_PATH)
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

static bool find_file(TokenizerOpening *o, const char *path) {
  static const char *const names[] = {"tokenizer.json", "vocab.json", "vocab.txt"};
  snprintf(o->path, RT_PATH, "%s", path);
  for (size_t i = 0; rt_is_folder(path) && i < sizeof names / sizeof *names; i++) {
    rt_join(o->path, path, names[i]);
    if (rt_exists(o->path)) break;
  }
  if (ends(o->path, "merges.txt")) partner(o->other, o->path, "merges.txt", "vocab.json");
  if (*o->other) strcpy(o->path, o->other), *o->other = 0;
  return rt_map_file(o->path, 206, &o->file, o->f);
}

static bool read_found(TokenizerOpening *o, Tokenizer **t) {
  if (!ends(o->path, ".json"))
    return rt_tokenizer_read_words(o->file, !has_capitals(o->file), t, o->f);
  if (!is_plain(o->file)) return rt_tokenizer_read(o->file, t, o->f);
  partner(o->other, o->path, "vocab.json", "merges.txt");
  if (!*o->other)
    return rt_fault(o->f, 206,
                    "this vocabulary has no merges: its name does not end in vocab.json");
  return rt_map_file(o->other, 206, &o->second, o->f) &&
         rt_tokenizer_read_pair(o->file, o->second, t, o->f);
}

bool rt_tokenizer_open(const char *path, Tokenizer **t, char *files[2], Fault *f) {
  TokenizerOpening o = {.f = f};
  bool ok = find_file(&o, path) && (read_found(&o, t) || rt_at(f, o.path, "", -1));
  rt_unmap_file(&o.file), rt_unmap_file(&o.second);
  for (int i = 0; files && i < 2; i++) {
    const char *name = i ? o.other : o.path;
    files[i] = ok && *name ? rt_copy_text(name, strlen(name)) : NULL;
  }
  return ok;
}
