/* `shardc data`: looks at files of tokens and arrays (info), writes tokens in another format
   (convert), makes tokens of text (data_tokenize.c), and blends files of tokens (data_blend.c). All
   reading is the runtime's, so what this shows is what an executable will see. Must not: change the
   files that it reads. */
#include "data_tokenize.h"
#include "driver/sheet/sheet.h"
#include "ir/support/num.h"
#include "ir/support/output.h"
#include "runtime/data/data_file.h"
#include <stdlib.h>
#include <sys/stat.h>

/* Cures of the runtime name the word of the data line; the option of this command is `--from`. */
static const char *own_words(Cli *o, const char *help) {
  static const char word[] = "`format = ";
  const char *at = strstr(help, word);
  if (!at) return help;
  return arena_printf(o->c->arena, "%.*s`--from %s", (int)(at - help), help,
                      own_words(o, at + sizeof word - 1));
}

/* The runtime's fault as a diagnostic. */
Exit data_fault(Cli *o, const Fault *f) {
  const char *code = f->code == 201 ? "E0001" : "E1401";
  Report *r = *f->where ? diag_at(o->c->diag, code, (Span){0}, "%s: %s", f->where, f->what)
                        : diag_at(o->c->diag, code, (Span){0}, "%s", f->what);
  if (f->position >= 0) diag_fact(r, "at %s %lld", f->unit, (long long)f->position);
  if (*f->help) diag_help(r, "%s", own_words(o, f->help));
  return EXIT_INPUT;
}

typedef VEC(DataFile) DataParts;

static Exit open_parts(Cli *o, DataParts *out) {
  Fault f = {0};
  Exit e = EXIT_FINE;
  for (uint32_t i = 1; i < o->operands.n && e == EXIT_FINE; i++) {
    DataFile *parts = NULL;
    int n;
    if (!rt_parts_open(o->operands.at[i], o->value[OPT_FROM], &parts, &n, &f))
      e = data_fault(o, &f);
    for (int k = 0; k < n; k++) vec_push(o->c->arena, *out, parts[k]);
    free(parts);
  }
  return e;
}

static void close_parts(DataParts *parts) {
  for (uint32_t i = 0; i < parts->n; i++) rt_part_close(&parts->at[i]);
}

Exit data_tokenizer(Cli *o, Tokenizer **tokenizer) {
  Fault f = {0};
  *tokenizer = NULL;
  if (!o->value[OPT_TOKENIZER] || rt_tokenizer_open(o->value[OPT_TOKENIZER], tokenizer, NULL, &f))
    return EXIT_FINE;
  return data_fault(o, &f);
}

/* ---- info ---- */

typedef struct TokenRange {
  double low, high; /* exact for all that can be a token */
} TokenRange;

static TokenRange range_of(const Array *array) {
  TokenRange range = {0};
  for (int64_t i = 0; i < array->count; i++) {
    double v = rt_array_real(array, i);
    if (i == 0 || v < range.low) range.low = v;
    if (i == 0 || v > range.high) range.high = v;
  }
  return range;
}

static const char *number_type(Cli *o, const Array *array) {
  static const char *const kinds[] = {"u", "i", "f", "bool"};
  _Static_assert(COUNT_OF(kinds) == NUMBER_BOOL + 1, "a word per NumberKind");
  return array->kind == NUMBER_BOOL
             ? kinds[3]
             : arena_printf(o->c->arena, "%s%d", kinds[array->kind], 8 * array->width);
}

static void say_part(Cli *o, Sheet *sheet, const DataFile *file) {
  const Array *array = &file->array;
  TokenRange range = range_of(array);
  bool documents = array->documents > 1;
  sheet_open(sheet, "files[]");
  sheet_list(sheet, "shape");
  sheet_say(sheet, "{path}: {format}, {type}{}, {numbers} numbers", as_text(file->path),
            as_text(array->format), as_text(number_type(o, array)),
            as_text(array->big ? " big-endian" : ""), as_count((double)array->count));
  for (int i = 0; i < array->rank; i++)
    sheet_say_if(sheet, array->rank > 1, "{}{shape[]}", as_text(i ? " x " : ", shape "),
                 as_count((double)array->size[i]));
  sheet_say_if(sheet, array->count, ", {least} to {most}", as_exact(range.low),
               as_exact(range.high));
  sheet_say_if(sheet, documents, ", {} sequences, {documents} documents",
               as_count((double)array->sequences),
               as_count(documents ? (double)array->documents - 1 : 0));
  sheet_say(sheet, "\n");
  sheet_close(sheet);
}

/* The first numbers; as text, if a tokenizer can spell them. */
static void say_head(const DataFile *file, const Tokenizer *tokenizer, int64_t n) {
  Spelling s = {0};
  if (n > file->array.count) n = file->array.count;
  for (int64_t i = 0; i < n; i++)
    if (tokenizer) rt_decode(tokenizer, (int32_t)rt_array_int(&file->array, i), &s, stdout);
    else printf(i ? " %.10g" : "%.10g", rt_array_real(&file->array, i));
  rt_decode_end(&s, stdout);
  putchar('\n');
}

static void show_parts(Cli *o, const DataParts *parts, const Tokenizer *tokenizer, int64_t head) {
  bool json = o->value[OPT_JSON];
  double numbers = 0;
  Sheet *sheet = sheet_new(o->c->arena);
  sheet_put(sheet, "{schema}", as_count(1));
  sheet_list(sheet, "files");
  for (uint32_t i = 0; i < parts->n; i++) {
    say_part(o, sheet, &parts->at[i]);
    numbers += (double)parts->at[i].array.count;
    if (json) continue;
    sheet_text(stdout, sheet), sheet = sheet_new(o->c->arena);
    if (head >= 0) say_head(&parts->at[i], tokenizer, head);
  }
  if (!json && parts->n > 1)
    sheet_say(sheet, "{} files, {} numbers\n", as_count(parts->n), as_count(numbers));
  sheet_show(sheet, json);
}

static Exit data_info(Cli *o) {
  DataParts parts = {0};
  Tokenizer *tokenizer = NULL;
  const char *head = o->value[OPT_HEAD];
  int64_t shown = 0;
  Exit e = cli_whole(o, OPT_HEAD, 0, MOST_TOKENS, &shown);
  if (e == EXIT_FINE) e = open_parts(o, &parts);
  if (e == EXIT_FINE) e = data_tokenizer(o, &tokenizer);
  if (e == EXIT_FINE) show_parts(o, &parts, tokenizer, head ? shown : -1);
  if (tokenizer) rt_tokenizer_close(tokenizer);
  close_parts(&parts);
  return e;
}

/* ---- convert ---- */

Exit data_keeps(const Cli *o, const char *input) {
  struct stat in, out;
  const char *output = o->value[OPT_OUTPUT];
  if (!output || stat(output, &out) || stat(input, &in) || in.st_dev != out.st_dev ||
      in.st_ino != out.st_ino)
    return EXIT_FINE;
  return cli_usage("`-o %s` would overwrite the input `%s`", output, input);
}

Exit data_tokens_of(Cli *o, const DataFile *part, int64_t *largest) {
  const Array *array = &part->array;
  TokenRange range = range_of(array);
  bool tokens =
      array->kind != NUMBER_FLOAT && array->rank <= 1 && range.low >= 0 && range.high <= INT32_MAX;
  if ((int64_t)range.high > *largest && tokens) *largest = (int64_t)range.high;
  if (tokens) return EXIT_FINE;
  Report *e = diag_at(o->c->diag, "E1402", (Span){0}, "%s holds no tokens", part->path);
  diag_fact(e, "tokens are one sequence of whole numbers from 0; these are %s, %.10g to %.10g%s",
            number_type(o, array), range.low, range.high,
            array->rank > 1 ? ", of several dimensions" : "");
  return EXIT_INPUT;
}

static bool copy_part(Shards *shards, const Array *array) {
  enum { BLOCK = 4096 };
  int32_t ids[BLOCK];
  int64_t document = 1, end = array->documents > 1 ? rt_array_document(array, 1) : array->count;
  for (int64_t i = 0, n; i < array->count; i += n) {
    while (end == i && document + 1 < array->documents) end = rt_array_document(array, ++document);
    n = end - i < BLOCK ? end - i : BLOCK;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)rt_array_int(array, i + k);
    if (!shards_add(shards, ids, n)) return false;
    if (i + n == end) shards_end_document(shards);
  }
  return true;
}

static void say_written(const Cli *o, const Shards *shards) {
  if (o->value[OPT_QUIET]) return;
  if (shards->files == 1)
    output_say(stdout, "%s: %lld tokens\n", shards->name, (long long)shards->total);
  else
    output_say(stdout, "%s and %d before it: %lld tokens\n", shards->name, shards->files - 1,
               (long long)shards->total);
}

Exit data_finish(Cli *o, Shards *shards, bool ok) {
  ok = ok && shards_close(shards);
  if (ok) say_written(o, shards);
  else shards_remove(shards);
  return ok ? EXIT_FINE : EXIT_ENVIRONMENT;
}

static Exit data_convert(Cli *o) {
  DataParts parts = {0};
  Shards shards = {0};
  int64_t largest = 0;
  Exit e = open_parts(o, &parts);
  for (uint32_t i = 0; i < parts.n && e == EXIT_FINE; i++)
    if ((e = data_keeps(o, parts.at[i].path)) == EXIT_FINE)
      e = data_tokens_of(o, &parts.at[i], &largest);
  if (e == EXIT_FINE) e = shards_open(&shards, o, largest);
  if (e == EXIT_FINE) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < parts.n; i++) ok = copy_part(&shards, &parts.at[i].array);
    e = data_finish(o, &shards, ok);
  }
  close_parts(&parts);
  return e;
}

/* ---- the command ---- */

static const struct {
  const char *name;
  Exit (*run)(Cli *o);
} verbs[] = {{"info", data_info},
             {"convert", data_convert},
             {"tokenize", data_tokenize},
             {"blend", data_blend}};

/* Options that belong to some of them only. */
static const struct {
  CliOption id;
  const char *name, *verbs;
} bound[] = {{OPT_TO, "to", "convert tokenize blend"},
             {OPT_SHARD, "shard", "convert tokenize blend"},
             {OPT_FROM, "from", "info convert tokenize blend"},
             {OPT_OUTPUT, "output", "convert tokenize blend"},
             {OPT_EOT, "eot", "tokenize blend"},
             {OPT_TOKENS, "tokens", "blend"},
             {OPT_CHAT, "chat", "tokenize"},
             {OPT_LENGTH, "length", "tokenize"},
             {OPT_PACK, "pack", "tokenize"},
             {OPT_SPECIAL, "special", "tokenize"},
             {OPT_HEAD, "head", "info"},
             {OPT_JSON, "json", "info"},
             {OPT_TOKENIZER, "tokenizer", "info tokenize"}};

Exit cmd_data(Cli *o) {
  const char *verb = o->operands.at[0];
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (strcmp(verbs[i].name, verb)) continue;
    if (o->operands.n < 2) return cli_usage("`shardc data %s` needs FILE...", verb);
    for (size_t k = 0; k < sizeof bound / sizeof *bound; k++)
      if (o->value[bound[k].id] && !strstr(bound[k].verbs, verb))
        return cli_usage("`shardc data %s` has no option `--%s`", verb, bound[k].name);
    return cli_report(o, verbs[i].run(o));
  }
  return cli_usage("`shardc data` does info, convert, tokenize or blend, not `%s`", verb);
}
