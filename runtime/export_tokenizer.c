/* Command export: writes the tokenizer into the folder of the weights, so that other tools can load
   the folder as one model. Files next to the named tokenizer (tokenizer_config.json and similar)
   are copied; missing ones are written from the data line and the `config` lines. Must not: write a
   file without content. */
#include "run_tokenizer.h"
#include "runtime/base/file.h"
#include "runtime/base/setting.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file of that name in the folder of the tokenizer; false: there is none. */
static bool beside(const char *path, const char *name, char out[RT_PATH]) {
  char folder[RT_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (!rt_is_folder(path)) snprintf(slash ? slash : folder, slash ? 1 : 2, "%s", slash ? "" : ".");
  rt_join(out, folder, name);
  return rt_exists(out);
}

static bool copy_beside(const char *path, const char *folder, const char *name, bool *copied,
                        Fault *f) {
  char from[RT_PATH], to[RT_PATH];
  Bytes bytes;
  *copied = beside(path, name, from);
  if (!*copied) return true;
  rt_join(to, folder, name);
  if (!rt_map_file(from, 206, &bytes, f)) return false;
  bool ok = rt_write_file(to, bytes.at, bytes.n, true, f);
  rt_unmap_file(&bytes);
  return ok;
}

/* ---- special tokens ---- */

static const struct {
  const char *name, *setting, *known[3]; /* known: names that tokenizers give it */
} specials[RT_SPECIALS] = {
    {"bos", NULL, {"<|begin_of_text|>", "<s>", NULL}},
    {"eos", "data.eot", {"<|end_of_text|>", "</s>", "<|endoftext|>"}},
    {"pad", "data.pad_id", {"<pad>", "[PAD]", "<|finetune_right_pad_id|>"}},
};

static int64_t special_id(const rt_program *program, const Tokenizer *tokenizer, int which) {
  char key[64], *end = NULL;
  snprintf(key, sizeof key, "weights.config.%s_token_id", specials[which].name);
  const char *said = rt_setting_said(program, key);
  if (!said && specials[which].setting) said = rt_setting_of(program, specials[which].setting);
  long long id = said ? strtoll(said, &end, 10) : -1;
  if (said) return end > said && !*end ? id : -1;
  for (int i = 0; tokenizer && i < 3 && specials[which].known[i]; i++) {
    int32_t token = rt_tokenizer_id(tokenizer, specials[which].known[i]);
    if (token >= 0 && rt_tokenizer_special(tokenizer, token)) return token;
  }
  return -1;
}

const char *rt_special_name(int which) { return specials[which].name; }

bool rt_export_specials(const Run *r, int64_t id[RT_SPECIALS], Fault *f) {
  char kept[RT_PATH];
  Tokenizer *tokenizer = NULL;
  const char *path = rt_run_tokenizer_path(r, kept);
  if (path && rt_exists(path) && !rt_tokenizer_open(path, &tokenizer, NULL, f)) return false;
  for (int i = 0; i < RT_SPECIALS; i++) id[i] = special_id(r->p, tokenizer, i);
  if (tokenizer) rt_tokenizer_close(tokenizer);
  return true;
}

/* ---- files ---- */

static bool write_text(const char *folder, const char *name, char *text, size_t n, Fault *f) {
  char path[RT_PATH];
  rt_join(path, folder, name);
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}

static bool write_generation(const int64_t *id, const char *folder, Fault *f) {
  char *text = NULL;
  size_t n = 0;
  int said = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for the configuration");
  for (int i = 0; i < RT_SPECIALS; i++)
    if (id[i] >= 0)
      fprintf(file, "%s\n  \"%s_token_id\": %lld", said++ ? "," : "{", specials[i].name,
              (long long)id[i]);
  fputs("\n}\n", file);
  fclose(file);
  if (said) return write_text(folder, "generation_config.json", text, n, f);
  free(text);
  return true;
}

static void put_token(FILE *file, const Tokenizer *tokenizer, int64_t id) {
  char *name = NULL;
  size_t n = 0;
  Spelling spelling = {.begun = true};
  FILE *memory = open_memstream(&name, &n);
  if (!memory) return;
  rt_decode(tokenizer, (int32_t)id, &spelling, memory);
  fclose(memory);
  rt_json_write(file, name);
  free(name);
}

/* Which class reads the files; names of the special tokens. */
static bool write_tokenizer_config(const int64_t *id, const char *path, const char *folder,
                                   Fault *f) {
  char *text = NULL, *files[2] = {0};
  size_t n = 0;
  Tokenizer *tokenizer;
  if (!rt_tokenizer_open(path, &tokenizer, files, f)) return false;
  const char *reader = files[1]                          ? "GPT2Tokenizer"
                       : rt_text_ends(files[0], ".json") ? "PreTrainedTokenizerFast"
                                                         : "BertTokenizer";
  free(files[0]), free(files[1]);
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for the configuration");
  fprintf(file, "{\n  \"tokenizer_class\": \"%s\"", reader);
  for (int i = 0; i < RT_SPECIALS; i++) {
    if (id[i] < 0 || id[i] >= rt_tokenizer_limit(tokenizer)) continue;
    fprintf(file, ",\n  \"%s_token\": ", specials[i].name);
    put_token(file, tokenizer, id[i]);
  }
  fputs("\n}\n", file);
  fclose(file);
  rt_tokenizer_close(tokenizer);
  return write_text(folder, "tokenizer_config.json", text, n, f);
}

bool rt_export_tokenizer(const Run *r, const int64_t *id, const char *folder, Fault *f) {
  char kept[RT_PATH];
  bool config = false, map = false, generation = false;
  const char *path = rt_run_tokenizer_path(r, kept);
  if (path && !rt_exists(path)) {
    rt_note("no tokenizer is written: %s does not exist; --tokenizer FILE names it", path);
    path = NULL;
  }
  if (path && (!rt_run_tokenizer_copy(path, folder, f) ||
               !copy_beside(path, folder, "tokenizer_config.json", &config, f) ||
               !copy_beside(path, folder, "special_tokens_map.json", &map, f) ||
               !copy_beside(path, folder, "generation_config.json", &generation, f)))
    return false;
  if (path && !config && !write_tokenizer_config(id, path, folder, f)) return false;
  return generation || write_generation(id, folder, f);
}
