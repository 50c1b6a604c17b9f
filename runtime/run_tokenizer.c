/* The tokenizer of a run: that of --tokenizer, else the copy in the run directory, else what the
   setting data.tokenizer names. Training copies the files, so a run can be sampled where the
   originals are gone; a run that goes on must have the same. Must not: tokenize training data (that
   is done beforehand, by `shardc data tokenize`). */
#include "run_tokenizer.h"
#include "runtime/base/file.h"
#include "runtime/data/data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *wanted(const Run *r) {
  const OptionValue *o = &r->o.at[OPT_tokenizer];
  return o->given ? o->text : rt_task_tokenizer(r->p);
}

static bool fits(const Tokenizer *tokenizer, int64_t vocab, const char *path, Fault *f) {
  if (rt_tokenizer_limit(tokenizer) <= vocab) return true;
  rt_fault(f, 205, "the tokenizer has tokens up to %lld, the model takes 0 to %lld",
           (long long)rt_tokenizer_limit(tokenizer) - 1, (long long)vocab - 1);
  return rt_at(f, path, "", -1);
}

const char *rt_run_tokenizer_path(const Run *r, char kept[RT_PATH]) {
  rt_join(kept, r->out, "tokenizer");
  return !r->o.at[OPT_tokenizer].given && *r->out && rt_is_folder(kept) ? kept : wanted(r);
}

bool rt_run_tokenizer_open(RunTokenizer *tokenizer, const Run *r, int64_t vocab, Fault *f) {
  char kept[RT_PATH];
  const char *path = rt_run_tokenizer_path(r, kept);
  const char *eot = rt_setting_of(r->p, "data.eot");
  *tokenizer = (RunTokenizer){.vocab = vocab, .eot = eot ? strtoll(eot, NULL, 10) : -1};
  if (!path) return true;
  return rt_tokenizer_open(path, &tokenizer->t, NULL, f) && fits(tokenizer->t, vocab, path, f);
}

/* The token that a text begins with where nothing says how: the end of the text before it. */
static int32_t first_token(const RunTokenizer *tokenizer) {
  if (tokenizer->eot >= 0 && tokenizer->eot < tokenizer->vocab) return (int32_t)tokenizer->eot;
  return !rt_run_tokenizer_numbers(tokenizer) && '\n' < tokenizer->vocab ? '\n' : 0;
}

static bool encode_bytes(RunTokenizer *tokenizer, const char *text, Ids *out, Fault *f) {
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    if (*at < tokenizer->vocab) {
      rt_ids_add(out, *at);
      continue;
    }
    rt_fault(f, 204, "the prompt's byte %d is not below %lld", *at, (long long)tokenizer->vocab);
    return rt_help(f, "without a tokenizer each byte of a text is a token: --tokenizer FILE");
  }
  return true;
}

/* "12 7 300" */
static bool encode_numbers(RunTokenizer *tokenizer, const char *text, Ids *out, Fault *f) {
  static const char between[] = " \t\n";
  for (size_t n; *(text += strspn(text, between)); text += n) {
    char *end;
    long long token = strtoll(text, &end, 10);
    n = strcspn(text, between);
    if (end == text + n && token >= 0 && token < tokenizer->vocab) {
      rt_ids_add(out, (int32_t)token);
      continue;
    }
    rt_fault(f, 103, "--prompt takes numbers of tokens, 0 to %lld, not `%.*s`",
             (long long)tokenizer->vocab - 1, n < 40 ? (int)n : 40, text);
    return rt_help(f, "without a tokenizer, tokens are numbers: --tokenizer FILE gives their text");
  }
  return true;
}

bool rt_run_tokenizer_encode(RunTokenizer *tokenizer, const char *text, Ids *out, Fault *f) {
  bool any = text && *text, ok = true;
  const char *words = any ? text : "\n";
  Bytes bytes = {(const uint8_t *)words, (int64_t)strlen(words)};
  if (tokenizer->t) rt_encode(tokenizer->t, bytes, true, out);
  else if (!any) rt_ids_add(out, first_token(tokenizer));
  else if (rt_run_tokenizer_numbers(tokenizer)) ok = encode_numbers(tokenizer, text, out, f);
  else ok = encode_bytes(tokenizer, text, out, f);
  if (ok && out->n == 0) rt_ids_add(out, 0); /* a text without tokens: something must be first */
  return ok;
}

void rt_run_tokenizer_put(RunTokenizer *tokenizer, int32_t token, FILE *out) {
  if (tokenizer->t) rt_decode(tokenizer->t, token, &tokenizer->spelling, out);
  else if (tokenizer->vocab <= 256) fputc(token, out);
  else fprintf(out, "%d ", token);
}

bool rt_run_tokenizer_numbers(const RunTokenizer *tokenizer) {
  return !tokenizer->t && tokenizer->vocab > 256;
}

bool rt_run_tokenizer_ends(const RunTokenizer *tokenizer, int32_t token) {
  static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                      "<eos>",         "<|eot_id|>",      "<|im_end|>",
                                      "<|end|>",       "<|return|>",      "<end_of_turn>"};
  if (token == tokenizer->eot) return true;
  for (size_t i = 0; tokenizer->t && i < sizeof names / sizeof *names; i++)
    if (rt_tokenizer_id(tokenizer->t, names[i]) == token) return true;
  return false;
}

void rt_run_tokenizer_close(RunTokenizer *tokenizer) {
  rt_decode_end(&tokenizer->spelling, stdout);
  putchar('\n');
  if (tokenizer->t) rt_tokenizer_close(tokenizer->t);
  tokenizer->t = NULL;
}

/* ---- keeping it ---- */

static const rt_tensor *token_input(const rt_program *p) {
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_INPUT && p->tensors[i].of) return &p->tensors[i];
  return NULL;
}

/* Under the name by which rt_tokenizer_open finds it in a folder. */
static const char *kept_name(const char *path, bool second, bool pair) {
  size_t n = strlen(path);
  bool json = n > 5 && !strcmp(path + n - 5, ".json");
  return second ? "merges.txt" : !json ? "vocab.txt" : pair ? "vocab.json" : "tokenizer.json";
}

static bool same(Bytes a, const char *path, Fault *f) {
  Bytes b;
  if (!rt_map_file(path, 206, &b, f)) return false;
  bool equal = a.n == b.n && (a.n == 0 || !memcmp(a.at, b.at, (size_t)a.n));
  rt_unmap_file(&b);
  if (equal) return true;
  rt_fault(f, 104, "this run was started with another tokenizer");
  return rt_at(f, path, "", -1);
}

static bool keep_file(const char *folder, const char *path, const char *name, bool anew, Fault *f) {
  char to[RT_PATH];
  Bytes bytes;
  rt_join(to, folder, name);
  if (!rt_map_file(path, 206, &bytes, f)) return false;
  bool ok =
      rt_exists(to) && !anew ? same(bytes, to, f) : rt_write_file(to, bytes.at, bytes.n, true, f);
  rt_unmap_file(&bytes);
  return ok;
}

/* anew: replaces existing files; else they must be identical. */
static bool keep_files(char *files[2], const char *folder, bool anew, Fault *f) {
  bool ok = rt_make_folders(folder, f);
  for (int i = 0; i < 2; i++) {
    if (ok && files[i])
      ok = keep_file(folder, files[i], kept_name(files[i], i == 1, files[1]), anew, f);
    free(files[i]);
  }
  return ok;
}

bool rt_run_tokenizer_copy(const char *path, const char *folder, Fault *f) {
  char *files[2] = {0};
  Tokenizer *tokenizer;
  if (!rt_tokenizer_open(path, &tokenizer, files, f)) return false;
  rt_tokenizer_close(tokenizer);
  return keep_files(files, folder, true, f);
}

bool rt_run_tokenizer_keep(const Run *r, Fault *f) {
  char folder[RT_PATH], *files[2] = {0};
  const char *path = wanted(r);
  const rt_tensor *input = token_input(r->p);
  Tokenizer *tokenizer;
  if (!path) return true;
  if (!rt_tokenizer_open(path, &tokenizer, files, f)) return false;
  bool ok = !input || fits(tokenizer, input->of_size, path, f);
  rt_tokenizer_close(tokenizer);
  rt_join(folder, r->out, "tokenizer");
  if (ok) return keep_files(files, folder, false, f);
  free(files[0]), free(files[1]);
  return false;
}
