/* tokenizer.json, as the Hugging Face tools write it: normalizer, pre-tokenizer, model, added
   tokens. Features of a file that this reader does not support are refused by name, so a text is
   never encoded differently than the file says. Post-processors are ignored: they add special
   tokens around whole texts. Must not: allocate more than a few times the file's size. */
#include "runtime/base/json.h"
#include "tokenizer_in.h"
#include <string.h>

typedef struct Reading {
  Tokenizer *t;
  Json j;
  Fault *f;
  bool refused; /* f says why */
  char model[32];
  bool byte_level, bert_pieces, bert_normal, metaspace, has_vocab, has_merges;
  int64_t unknown_id; /* of Unigram; -1: none */
} Reading;

static bool refuse(Reading *reading, const char *what, const char *name) {
  if (!reading->refused) {
    rt_fault(reading->f, 206, "this tokenizer has %s `%s`, which is not read", what, name);
    rt_help(
        reading->f,
        "byte-level BPE as in GPT-2 and Llama 3, BPE of characters and Unigram with Metaspace, and "
        "WordPiece as in BERT are");
  }
  reading->refused = true;
  return rt_json_fail(&reading->j, "");
}

static bool keep(Reading *reading, bool ok) {
  if (!ok) reading->refused = true, rt_json_fail(&reading->j, "");
  return ok;
}

/* A string becomes part of the vocabulary's text, which has room for all of the file. */
static void take(Reading *reading, TokenPiece *piece) {
  piece->at = (uint32_t)reading->t->used;
  piece->n = (uint32_t)strlen((char *)reading->t->text + piece->at);
  reading->t->used += piece->n;
}

static bool next_key(Reading *reading, TokenPiece *piece) {
  Tokenizer *tokenizer = reading->t;
  if (!rt_json_member(&reading->j, (char *)tokenizer->text + tokenizer->used,
                      (size_t)(tokenizer->room - tokenizer->used)))
    return false;
  take(reading, piece);
  return true;
}

static bool next_text(Reading *reading, TokenPiece *piece) {
  Tokenizer *tokenizer = reading->t;
  if (!rt_json_string(&reading->j, (char *)tokenizer->text + tokenizer->used,
                      (size_t)(tokenizer->room - tokenizer->used)))
    return false;
  take(reading, piece);
  return true;
}

/* null keeps the old value. */
static bool text_or_null(Reading *reading, char *out, size_t size) {
  return rt_json_peek(&reading->j) == 'n' ? rt_json_skip(&reading->j)
                                          : rt_json_string(&reading->j, out, size);
}

static bool bool_or_null(Reading *reading, bool *out) {
  return rt_json_peek(&reading->j) == 'n' ? rt_json_skip(&reading->j)
                                          : rt_json_bool(&reading->j, out);
}

/* ---- normalizer ---- */

static void read_pattern_text(Reading *reading, char *out, size_t size) {
  char key[16];
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    rt_json_string(&reading->j, out, size);
}

/* Llama 2: a mark in front, marks for spaces. */
static void take_marks(Reading *reading, const char *type, const char *pattern, const char *text) {
  Tokenizer *tokenizer = reading->t;
  if (!strcmp(type, "Prepend") && !strcmp(text, RT_MARK_TEXT)) tokenizer->prepend = PREPEND_ALWAYS;
  else if (!strcmp(type, "Replace") && !strcmp(pattern, " ") && !strcmp(text, RT_MARK_TEXT))
    tokenizer->marks = true;
  else if (strcmp(type, "Sequence")) refuse(reading, "the normalizer", type);
}

static void read_normalizer(Reading *reading, int depth) {
  char key[64], type[64] = "", pattern[64] = "", text[64] = "";
  bool clean = true, ideographs = true, lower = true, strip = false, has_strip = false;
  if (rt_json_peek(&reading->j) == 'n') {
    rt_json_skip(&reading->j);
    return;
  }
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&reading->j, type, sizeof type);
    else if (!strcmp(key, "clean_text")) bool_or_null(reading, &clean);
    else if (!strcmp(key, "prepend") || !strcmp(key, "content"))
      rt_json_string(&reading->j, text, sizeof text);
    else if (!strcmp(key, "pattern")) read_pattern_text(reading, pattern, sizeof pattern);
    else if (!strcmp(key, "normalizers") && depth < 4)
      for (rt_json_array(&reading->j); rt_json_element(&reading->j);)
        read_normalizer(reading, depth + 1);
    else if (!strcmp(key, "handle_chinese_chars")) bool_or_null(reading, &ideographs);
    else if (!strcmp(key, "lowercase")) bool_or_null(reading, &lower);
    else if (!strcmp(key, "strip_accents"))
      has_strip = rt_json_peek(&reading->j) != 'n', bool_or_null(reading, &strip);
    else rt_json_skip(&reading->j);
  if (reading->j.error) return;
  if (strcmp(type, "BertNormalizer")) {
    take_marks(reading, type, pattern, text);
    return;
  }
  Tokenizer *tokenizer = reading->t;
  tokenizer->clean = clean, tokenizer->ideographs = ideographs, tokenizer->lower = lower;
  tokenizer->strip = has_strip ? strip : lower;
  reading->bert_normal = true;
}

/* ---- pre-tokenizer ---- */

typedef struct JsonStep {
  char type[64], pattern[600], behavior[64], replacement[16], scheme[16];
  bool prefix_space, use_regex, invert, split;
} JsonStep;

static void take_split(Reading *reading, Split *split, const char *pattern) {
  if (!split || reading->t->split) refuse(reading, "the split", pattern);
  reading->t->split = split;
}

static void take_metaspace(Reading *reading, const JsonStep *step) {
  Tokenizer *tokenizer = reading->t;
  bool first = !strcmp(step->scheme, "first"), never = !strcmp(step->scheme, "never");
  if (strcmp(step->replacement, RT_MARK_TEXT))
    refuse(reading, "the mark for spaces", step->replacement);
  reading->metaspace = tokenizer->marks = true, tokenizer->cut_at_marks = step->split;
  bool none = never || (!*step->scheme && !step->prefix_space);
  tokenizer->prepend = none ? PREPEND_NOT : first ? PREPEND_FIRST : PREPEND_MISSING;
}

static void take_step(Reading *reading, const JsonStep *step) {
  bool isolated = !strcmp(step->behavior, "Isolated") && !step->invert,
       inverted = !strcmp(step->behavior, "Removed") && step->invert;
  if (!strcmp(step->type, "ByteLevel")) {
    reading->byte_level = true, reading->t->prefix_space = step->prefix_space;
    if (step->use_regex) take_split(reading, rt_split_gpt2(), "of ByteLevel after another");
  } else if (!strcmp(step->type, "Split") && (isolated || inverted)) {
    take_split(reading, rt_split_find(step->pattern), step->pattern);
  } else if (!strcmp(step->type, "BertPreTokenizer")) {
    reading->bert_pieces = true;
  } else if (!strcmp(step->type, "Metaspace")) {
    take_metaspace(reading, step);
  } else if (strcmp(step->type, "Sequence")) {
    refuse(reading, "the pre-tokenizer", step->type);
  }
}

static void read_step(Reading *reading, int depth) {
  char key[64];
  JsonStep step = {.prefix_space = true, .use_regex = true, .split = true};
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&reading->j, step.type, sizeof step.type);
    else if (!strcmp(key, "add_prefix_space")) rt_json_bool(&reading->j, &step.prefix_space);
    else if (!strcmp(key, "use_regex")) rt_json_bool(&reading->j, &step.use_regex);
    else if (!strcmp(key, "invert")) rt_json_bool(&reading->j, &step.invert);
    else if (!strcmp(key, "behavior"))
      rt_json_string(&reading->j, step.behavior, sizeof step.behavior);
    else if (!strcmp(key, "replacement"))
      rt_json_string(&reading->j, step.replacement, sizeof step.replacement);
    else if (!strcmp(key, "prepend_scheme"))
      rt_json_string(&reading->j, step.scheme, sizeof step.scheme);
    else if (!strcmp(key, "split")) rt_json_bool(&reading->j, &step.split);
    else if (!strcmp(key, "pattern")) read_pattern_text(reading, step.pattern, sizeof step.pattern);
    else if (!strcmp(key, "pretokenizers") && depth < 4)
      for (rt_json_array(&reading->j); rt_json_element(&reading->j);) read_step(reading, depth + 1);
    else rt_json_skip(&reading->j);
  if (!reading->j.error) take_step(reading, &step);
}

/* ---- added tokens ---- */

static void read_added(Reading *reading) {
  char key[64];
  TokenPiece text = {0};
  VocabToken token = {.added = true}, *made;
  int64_t id = -1;
  bool normalized = true;
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    if (!strcmp(key, "id")) rt_json_int(&reading->j, &id);
    else if (!strcmp(key, "content")) next_text(reading, &text);
    else if (!strcmp(key, "special")) rt_json_bool(&reading->j, &token.special);
    else if (!strcmp(key, "lstrip")) rt_json_bool(&reading->j, &token.left);
    else if (!strcmp(key, "rstrip")) rt_json_bool(&reading->j, &token.right);
    else if (!strcmp(key, "single_word")) rt_json_bool(&reading->j, &token.alone);
    else if (!strcmp(key, "normalized")) rt_json_bool(&reading->j, &normalized);
    else rt_json_skip(&reading->j);
  if (reading->j.error || !keep(reading, rt_vocab_add(reading->t, text, id, &made, reading->f)))
    return;
  token.text = text, token.id = (int32_t)id, token.normalized = normalized;
  *made = token;
}

/* ---- model ---- */

static void read_vocab(Reading *reading) {
  TokenPiece text;
  int64_t id;
  reading->has_vocab = true;
  for (rt_json_object(&reading->j); next_key(reading, &text);)
    if (rt_json_int(&reading->j, &id))
      keep(reading, rt_vocab_add(reading->t, text, id, NULL, reading->f));
}

/* [["text", score], ..]: ids count from 0. */
static void read_scores(Reading *reading) {
  Tokenizer *tokenizer = reading->t;
  int64_t id = 0;
  TokenPiece text;
  double score = 0;
  reading->has_vocab = true;
  for (rt_json_array(&reading->j); rt_json_element(&reading->j); id++) {
    VocabToken *made;
    if (!rt_json_array(&reading->j) || !rt_json_element(&reading->j) ||
        !next_text(reading, &text) || !rt_json_element(&reading->j) ||
        !rt_json_number(&reading->j, &score) || rt_json_element(&reading->j) ||
        !keep(reading, rt_vocab_add(tokenizer, text, id, &made, reading->f)))
      return;
    made->score = score;
    if (!id || score < tokenizer->least) tokenizer->least = score;
  }
}

/* "a b", or ["a", "b"]. */
static bool read_merge(Reading *reading, TokenPiece *left, TokenPiece *right) {
  if (rt_json_peek(&reading->j) == '[')
    return rt_json_array(&reading->j) && rt_json_element(&reading->j) && next_text(reading, left) &&
           rt_json_element(&reading->j) && next_text(reading, right) &&
           (!rt_json_element(&reading->j) || rt_json_fail(&reading->j, "a merge of more than two"));
  if (!next_text(reading, left)) return false;
  const uint8_t *p = reading->t->text + left->at, *blank = memchr(p, ' ', left->n);
  if (!blank) return rt_json_fail(&reading->j, "a merge without a blank");
  uint32_t n = (uint32_t)(blank - p);
  *right = (TokenPiece){left->at + n + 1, left->n - n - 1}, left->n = n;
  return true;
}

static void read_merges(Reading *reading) {
  TokenPiece left, right;
  reading->has_merges = true;
  for (rt_json_array(&reading->j); rt_json_element(&reading->j);)
    if (read_merge(reading, &left, &right))
      keep(reading, rt_vocab_add_merge(reading->t, left, right, reading->f));
}

static void read_model(Reading *reading) {
  Tokenizer *tokenizer = reading->t;
  char key[64], suffix[64] = "";
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&reading->j, reading->model, sizeof reading->model);
    else if (!strcmp(key, "unk_token"))
      text_or_null(reading, tokenizer->unknown_name, sizeof tokenizer->unknown_name);
    else if (!strcmp(key, "continuing_subword_prefix"))
      text_or_null(reading, tokenizer->prefix, sizeof tokenizer->prefix);
    else if (!strcmp(key, "end_of_word_suffix")) text_or_null(reading, suffix, sizeof suffix);
    else if (!strcmp(key, "max_input_chars_per_word"))
      rt_json_int(&reading->j, &tokenizer->longest);
    else if (!strcmp(key, "ignore_merges")) rt_json_bool(&reading->j, &tokenizer->whole_words);
    else if (!strcmp(key, "byte_fallback")) bool_or_null(reading, &tokenizer->byte_fallback);
    else if (!strcmp(key, "fuse_unk")) bool_or_null(reading, &tokenizer->fuse_unknown);
    else if (!strcmp(key, "unk_id") && rt_json_peek(&reading->j) != 'n')
      rt_json_int(&reading->j, &reading->unknown_id);
    else if (!strcmp(key, "vocab") && rt_json_peek(&reading->j) == '[') read_scores(reading);
    else if (!strcmp(key, "vocab") && rt_json_peek(&reading->j) == '{') read_vocab(reading);
    else if (!strcmp(key, "merges")) read_merges(reading);
    else rt_json_skip(&reading->j);
  if (*suffix) refuse(reading, "a suffix at the end of words", suffix);
}

/* ---- all ---- */

static void read_all(Reading *reading) {
  char key[64];
  for (rt_json_object(&reading->j); rt_json_member(&reading->j, key, sizeof key);)
    if (!strcmp(key, "normalizer")) read_normalizer(reading, 0);
    else if (!strcmp(key, "pre_tokenizer") && rt_json_peek(&reading->j) == '{')
      read_step(reading, 0);
    else if (!strcmp(key, "added_tokens"))
      for (rt_json_array(&reading->j); rt_json_element(&reading->j);) read_added(reading);
    else if (!strcmp(key, "model")) read_model(reading);
    else rt_json_skip(&reading->j);
  rt_json_done(&reading->j);
}

static bool is_bpe(Reading *reading) {
  bool bpe = !strcmp(reading->model, "BPE") || (!*reading->model && reading->has_merges);
  if (!bpe) return false;
  bool marked = reading->t->marks && !reading->byte_level && !reading->t->split;
  if (!marked && (!reading->byte_level || !reading->t->split || reading->t->marks))
    refuse(reading, "the model", "BPE that is neither byte-level nor with marks for spaces");
  else if (reading->bert_normal)
    refuse(reading, "with byte-level BPE the normalizer", "BertNormalizer");
  else if (*reading->t->prefix) refuse(reading, "a prefix inside of words", reading->t->prefix);
  else reading->t->model = marked ? MODEL_CHARACTERS : MODEL_BPE;
  reading->t->cut_before_marks = marked;
  return true;
}

static bool is_unigram(Reading *reading) {
  Tokenizer *tokenizer = reading->t;
  if (strcmp(reading->model, "Unigram")) return false;
  tokenizer->model = MODEL_UNIGRAM;
  if (!reading->metaspace) refuse(reading, "with Unigram no", "Metaspace");
  for (int32_t i = 0; i < tokenizer->ntokens && tokenizer->unknown < 0; i++)
    if (!tokenizer->token[i].added && tokenizer->token[i].id == reading->unknown_id)
      tokenizer->unknown = i;
  if (tokenizer->unknown < 0) rt_json_fail(&reading->j, "Unigram without an unknown token");
  return true;
}

static void decide(Reading *reading) {
  Tokenizer *tokenizer = reading->t;
  if (is_bpe(reading) || is_unigram(reading)) return;
  if (*reading->model && strcmp(reading->model, "WordPiece"))
    refuse(reading, "the model", reading->model);
  else if (!reading->has_vocab) rt_json_fail(&reading->j, "there is no vocabulary");
  else if (!reading->bert_pieces || tokenizer->split || reading->byte_level)
    refuse(reading, "with WordPiece no", "BertPreTokenizer");
  for (int32_t i = 0; i < tokenizer->ntokens; i++)
    if (tokenizer->token[i].added && !tokenizer->token[i].special && tokenizer->token[i].normalized)
      refuse(reading, "a token that is searched for after the normalizer,",
             (char *)tokenizer->text + tokenizer->token[i].text.at);
  tokenizer->model = MODEL_WORDPIECE;
  if (!*tokenizer->unknown_name) strcpy(tokenizer->unknown_name, "[UNK]");
  if (!*tokenizer->prefix) strcpy(tokenizer->prefix, "##");
}

bool rt_tokenizer_read(Bytes json, Tokenizer **out, Fault *f) {
  if (json.n > 1 << 30) return rt_fault(f, 206, "a tokenizer of more than 1 GiB is not read");
  Reading reading = {
      .t = rt_vocab_new(json.n), .j = rt_json(json.at, json.n), .f = f, .unknown_id = -1};
  reading.t->longest = 100;
  read_all(&reading);
  if (!reading.j.error) decide(&reading);
  if (reading.j.error && !reading.refused) {
    rt_fault(f, 206, "damaged tokenizer: %s", reading.j.error);
    rt_at(f, "", "byte", reading.j.p - reading.j.begin);
  }
  bool ok = !reading.j.error && rt_vocab_finish(reading.t, f);
  if (!ok) rt_tokenizer_close(reading.t);
  else *out = reading.t;
  return ok;
}
