/* tokenizer.json, as the Hugging Face tools write it: normalizer, pre-tokenizer, model, added
   tokens. What a file asks for and this reader does not do is refused by name, so a text is never
   encoded in another way than the file says. Post-processors are passed over: they add special
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
  bool byte_level, bert_pieces, bert_normal, has_vocab, has_merges;
} Reading;

static bool refuse(Reading *r, const char *what, const char *name) {
  if (!r->refused) {
    rt_fault(r->f, 206, "this tokenizer has %s `%s`, which is not read", what, name);
    rt_help(r->f, "byte-level BPE as in GPT-2 and Llama 3, and WordPiece as in BERT are");
  }
  r->refused = true;
  return rt_json_fail(&r->j, "");
}

static bool keep(Reading *r, bool ok) {
  if (!ok) r->refused = true, rt_json_fail(&r->j, "");
  return ok;
}

/* A string becomes part of the vocabulary's text, which has room for all of the file. */
static void take(Reading *r, TokenPiece *piece) {
  piece->at = (uint32_t)r->t->used;
  piece->n = (uint32_t)strlen((char *)r->t->text + piece->at);
  r->t->used += piece->n;
}

static bool next_key(Reading *r, TokenPiece *piece) {
  Tokenizer *t = r->t;
  if (!rt_json_member(&r->j, (char *)t->text + t->used, (size_t)(t->room - t->used))) return false;
  take(r, piece);
  return true;
}

static bool next_text(Reading *r, TokenPiece *piece) {
  Tokenizer *t = r->t;
  if (!rt_json_string(&r->j, (char *)t->text + t->used, (size_t)(t->room - t->used))) return false;
  take(r, piece);
  return true;
}

/* null leaves what was there. */
static bool text_or_null(Reading *r, char *out, size_t size) {
  return rt_json_peek(&r->j) == 'n' ? rt_json_skip(&r->j) : rt_json_string(&r->j, out, size);
}

static bool bool_or_null(Reading *r, bool *out) {
  return rt_json_peek(&r->j) == 'n' ? rt_json_skip(&r->j) : rt_json_bool(&r->j, out);
}

/* ---- normalizer ---- */

static void read_normalizer(Reading *r) {
  char key[64], type[64] = "";
  bool clean = true, ideographs = true, lower = true, strip = false, has_strip = false;
  if (rt_json_peek(&r->j) == 'n') {
    rt_json_skip(&r->j);
    return;
  }
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&r->j, type, sizeof type);
    else if (!strcmp(key, "clean_text")) bool_or_null(r, &clean);
    else if (!strcmp(key, "handle_chinese_chars")) bool_or_null(r, &ideographs);
    else if (!strcmp(key, "lowercase")) bool_or_null(r, &lower);
    else if (!strcmp(key, "strip_accents"))
      has_strip = rt_json_peek(&r->j) != 'n', bool_or_null(r, &strip);
    else rt_json_skip(&r->j);
  if (r->j.error) return;
  if (strcmp(type, "BertNormalizer")) refuse(r, "the normalizer", type);
  Tokenizer *t = r->t;
  t->clean = clean, t->ideographs = ideographs, t->lower = lower;
  t->strip = has_strip ? strip : lower;
  r->bert_normal = true;
}

/* ---- pre-tokenizer ---- */

typedef struct JsonStep {
  char type[64], pattern[512], behavior[64];
  bool prefix_space, use_regex, invert;
} JsonStep;

static void read_pattern(Reading *r, JsonStep *s) {
  char key[16];
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    rt_json_string(&r->j, s->pattern, sizeof s->pattern);
}

static void take_split(Reading *r, Split *split, const char *pattern) {
  if (!split || r->t->split) refuse(r, "the split", pattern);
  r->t->split = split;
}

static void take_step(Reading *r, const JsonStep *s) {
  bool isolated = !strcmp(s->behavior, "Isolated") && !s->invert,
       inverted = !strcmp(s->behavior, "Removed") && s->invert;
  if (!strcmp(s->type, "ByteLevel")) {
    r->byte_level = true, r->t->prefix_space = s->prefix_space;
    if (s->use_regex) take_split(r, rt_split_gpt2(), "of ByteLevel behind another");
  } else if (!strcmp(s->type, "Split") && (isolated || inverted)) {
    take_split(r, rt_split_find(s->pattern), s->pattern);
  } else if (!strcmp(s->type, "BertPreTokenizer")) {
    r->bert_pieces = true;
  } else if (strcmp(s->type, "Sequence")) {
    refuse(r, "the pre-tokenizer", s->type);
  }
}

static void read_step(Reading *r, int depth) {
  char key[64];
  JsonStep s = {.prefix_space = true, .use_regex = true};
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&r->j, s.type, sizeof s.type);
    else if (!strcmp(key, "add_prefix_space")) rt_json_bool(&r->j, &s.prefix_space);
    else if (!strcmp(key, "use_regex")) rt_json_bool(&r->j, &s.use_regex);
    else if (!strcmp(key, "invert")) rt_json_bool(&r->j, &s.invert);
    else if (!strcmp(key, "behavior")) rt_json_string(&r->j, s.behavior, sizeof s.behavior);
    else if (!strcmp(key, "pattern")) read_pattern(r, &s);
    else if (!strcmp(key, "pretokenizers") && depth < 4)
      for (rt_json_array(&r->j); rt_json_element(&r->j);) read_step(r, depth + 1);
    else rt_json_skip(&r->j);
  if (!r->j.error) take_step(r, &s);
}

/* ---- added tokens ---- */

static void read_added(Reading *r) {
  char key[64];
  TokenPiece text = {0};
  VocabToken k = {.added = true}, *made;
  int64_t id = -1;
  bool normalized = true;
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    if (!strcmp(key, "id")) rt_json_int(&r->j, &id);
    else if (!strcmp(key, "content")) next_text(r, &text);
    else if (!strcmp(key, "special")) rt_json_bool(&r->j, &k.special);
    else if (!strcmp(key, "lstrip")) rt_json_bool(&r->j, &k.left);
    else if (!strcmp(key, "rstrip")) rt_json_bool(&r->j, &k.right);
    else if (!strcmp(key, "single_word")) rt_json_bool(&r->j, &k.alone);
    else if (!strcmp(key, "normalized")) rt_json_bool(&r->j, &normalized);
    else rt_json_skip(&r->j);
  if (r->j.error || !keep(r, rt_vocab_add(r->t, text, id, &made, r->f))) return;
  k.text = text, k.id = (int32_t)id, k.normalized = normalized;
  *made = k;
}

/* ---- model ---- */

static void read_vocab(Reading *r) {
  TokenPiece text;
  int64_t id;
  r->has_vocab = true;
  for (rt_json_object(&r->j); next_key(r, &text);)
    if (rt_json_int(&r->j, &id)) keep(r, rt_vocab_add(r->t, text, id, NULL, r->f));
}

/* "a b", or ["a", "b"]. */
static bool read_merge(Reading *r, TokenPiece *left, TokenPiece *right) {
  if (rt_json_peek(&r->j) == '[')
    return rt_json_array(&r->j) && rt_json_element(&r->j) && next_text(r, left) &&
           rt_json_element(&r->j) && next_text(r, right) &&
           (!rt_json_element(&r->j) || rt_json_fail(&r->j, "a merge of more than two"));
  if (!next_text(r, left)) return false;
  const uint8_t *p = r->t->text + left->at, *blank = memchr(p, ' ', left->n);
  if (!blank) return rt_json_fail(&r->j, "a merge without a blank");
  uint32_t n = (uint32_t)(blank - p);
  *right = (TokenPiece){left->at + n + 1, left->n - n - 1}, left->n = n;
  return true;
}

static void read_merges(Reading *r) {
  TokenPiece left, right;
  r->has_merges = true;
  for (rt_json_array(&r->j); rt_json_element(&r->j);)
    if (read_merge(r, &left, &right)) keep(r, rt_vocab_add_merge(r->t, left, right, r->f));
}

static void read_model(Reading *r) {
  Tokenizer *t = r->t;
  char key[64], suffix[64] = "";
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    if (!strcmp(key, "type")) rt_json_string(&r->j, r->model, sizeof r->model);
    else if (!strcmp(key, "unk_token")) text_or_null(r, t->unknown_name, sizeof t->unknown_name);
    else if (!strcmp(key, "continuing_subword_prefix"))
      text_or_null(r, t->prefix, sizeof t->prefix);
    else if (!strcmp(key, "end_of_word_suffix")) text_or_null(r, suffix, sizeof suffix);
    else if (!strcmp(key, "max_input_chars_per_word")) rt_json_int(&r->j, &t->longest);
    else if (!strcmp(key, "ignore_merges")) rt_json_bool(&r->j, &t->whole_words);
    else if (!strcmp(key, "vocab") && rt_json_peek(&r->j) == '{') read_vocab(r);
    else if (!strcmp(key, "merges")) read_merges(r);
    else rt_json_skip(&r->j);
  if (*suffix) refuse(r, "a suffix at the end of words", suffix);
}

/* ---- all ---- */

static void read_all(Reading *r) {
  char key[64];
  for (rt_json_object(&r->j); rt_json_member(&r->j, key, sizeof key);)
    if (!strcmp(key, "normalizer")) read_normalizer(r);
    else if (!strcmp(key, "pre_tokenizer") && rt_json_peek(&r->j) == '{') read_step(r, 0);
    else if (!strcmp(key, "added_tokens"))
      for (rt_json_array(&r->j); rt_json_element(&r->j);) read_added(r);
    else if (!strcmp(key, "model")) read_model(r);
    else rt_json_skip(&r->j);
  rt_json_done(&r->j);
}

static bool is_bpe(Reading *r) {
  bool bpe = !strcmp(r->model, "BPE") || (!*r->model && r->has_merges);
  if (!bpe) return false;
  if (!r->byte_level || !r->t->split) refuse(r, "the model", "BPE that is not byte-level");
  else if (r->bert_normal) refuse(r, "beside byte-level BPE the normalizer", "BertNormalizer");
  else if (*r->t->prefix) refuse(r, "a prefix inside of words", r->t->prefix);
  else r->t->model = MODEL_BPE;
  return true;
}

static void decide(Reading *r) {
  Tokenizer *t = r->t;
  if (is_bpe(r)) return;
  if (*r->model && strcmp(r->model, "WordPiece")) refuse(r, "the model", r->model);
  else if (!r->has_vocab) rt_json_fail(&r->j, "there is no vocabulary");
  else if (!r->bert_pieces || t->split || r->byte_level)
    refuse(r, "beside WordPiece no", "BertPreTokenizer");
  for (int32_t i = 0; i < t->ntokens; i++)
    if (t->token[i].added && !t->token[i].special && t->token[i].normalized)
      refuse(r, "a token that is looked for behind the normalizer,",
             (char *)t->text + t->token[i].text.at);
  t->model = MODEL_WORDPIECE;
  if (!*t->unknown_name) strcpy(t->unknown_name, "[UNK]");
  if (!*t->prefix) strcpy(t->prefix, "##");
}

bool rt_tokenizer_read(Bytes json, Tokenizer **out, Fault *f) {
  if (json.n > 1 << 30) return rt_fault(f, 206, "a tokenizer of more than 1 GiB is not read");
  Reading r = {.t = rt_vocab_new(json.n), .j = rt_json(json.at, json.n), .f = f};
  r.t->longest = 100;
  read_all(&r);
  if (!r.j.error) decide(&r);
  if (r.j.error && !r.refused) {
    rt_fault(f, 206, "damaged tokenizer: %s", r.j.error);
    rt_at(f, "", "byte", r.j.p - r.j.begin);
  }
  bool ok = !r.j.error && rt_vocab_finish(r.t, f);
  if (!ok) rt_tokenizer_close(r.t);
  else *out = r.t;
  return ok;
}
