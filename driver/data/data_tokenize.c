/* `shardc data tokenize`: makes tokens of text files and of JSONL, also packed ones. Texts become
   one sequence, a document each; with `--length`, lines of JSONL become rows of tokens and labels
   (rows.c), in which prompts and the messages of others do not count. Must not: change the files
   that it reads. */
#include "data_tokenize.h"
#include "chat.h"
#include "driver/progress_line.h"
#include "rows.h"
#include "runtime/base/file.h"
#include "runtime/data/formats.h"
#include "unpack.h"
#include <stdlib.h>

typedef struct DataWork {
  Cli *o;
  Tokenizer *t;
  Shards s;
  TokenRows *rows; /* NULL: one sequence */
  ChatTemplate chat;
  Ids ids, labels;
  int32_t eot; /* -1: none */
  ProgressLine progress;
} DataWork;

static void say_progress(DataWork *work, const char *path, const Encoding *encoding,
                         const Bytes *bytes) {
  progress_say(work->o, &work->progress, "%s: %.0f%%, %lld tokens", path,
               100.0 * (double)(encoding->at - bytes->at) / (double)bytes->n,
               (long long)work->s.total);
}

static bool tokenize_text(DataWork *work, const char *path, Bytes bytes) {
  enum { BLOCK = 1 << 16 };
  Encoding encoding;
  bool more = true;
  rt_encode_start(&encoding, work->t, bytes, work->o->value[OPT_SPECIAL] != NULL);
  while (more) {
    work->ids.n = 0;
    more = rt_encode_some(&encoding, work->t, BLOCK, &work->ids);
    if (!shards_add(&work->s, work->ids.at, work->ids.n)) return false;
    say_progress(work, path, &encoding, &bytes);
  }
  if (work->eot >= 0 && !shards_add(&work->s, &work->eot, 1)) return false;
  shards_end_document(&work->s);
  return true;
}

/* `--from bytes` insists that it is text. */
static bool is_text(const DataWork *work, const char *name, Bytes bytes, Fault *f) {
  return work->o->value[OPT_FROM] ||
         (rt_not_foreign(bytes, NULL, f) && rt_text_holds(bytes, name, f));
}

/* A line of JSONL: a row's document, or a text in the sequence. */
static bool tokenize_record(DataWork *work, const Records *records, Fault *f) {
  const ChatTemplate *chat = work->chat.n ? &work->chat : NULL;
  bool special = work->o->value[OPT_SPECIAL] != NULL;
  if (!work->rows && (records->turns.n > 1 || records->turns.at[0].role)) {
    rt_fault(f, 202, "line %lld is a dialogue, whose rows have a length", (long long)records->line);
    return rt_help(f, "`--length N`, the length of the model's sequence, writes its tokens and "
                      "labels");
  }
  if (!chat_tokens(chat, work->t, records, special, &work->ids, &work->labels, f)) return false;
  if (work->eot >= 0) rt_ids_add(&work->ids, work->eot), rt_ids_add(&work->labels, work->eot);
  if (work->rows) return rows_add(work->rows, &work->ids, &work->labels), true;
  if (!shards_add(&work->s, work->ids.at, work->ids.n)) return false;
  shards_end_document(&work->s);
  return true;
}

static bool tokenize_records(DataWork *work, Bytes bytes, Fault *f) {
  Records records = {.arena = work->o->c->arena, .rest = bytes};
  bool ok = true;
  while (ok && records_next(&records, f)) ok = tokenize_record(work, &records, f);
  records_close(&records);
  return ok && !f->code;
}

static bool tokenize_bytes(DataWork *work, const char *path, const char *name, Bytes bytes,
                           Fault *f) {
  bool named = rt_text_ends(name, ".jsonl") || rt_text_ends(name, ".ndjson"); /* empty ones, say */
  bool lines = named || records_are_in(bytes);
  if (!work->o->value[OPT_FROM] && lines) return tokenize_records(work, bytes, f);
  if (!is_text(work, name, bytes, f)) return false;
  if (!work->rows) return tokenize_text(work, path, bytes);
  rt_fault(f, 202, "`--length` makes rows of lines of JSONL, and this is plain text");
  return rt_help(f, "without `--length` text becomes one sequence of tokens");
}

static bool tokenize_file(DataWork *work, const char *path) {
  Fault f = {0};
  Bytes bytes;
  char name[RT_PATH];
  bool ok = rt_map_file(path, 201, &bytes, &f);
  if (ok) {
    ok = (work->o->value[OPT_FROM] || unpack_text(path, &bytes, name, &f)) &&
         tokenize_bytes(work, path, name, bytes, &f);
    rt_unmap_file(&bytes);
  }
  if (f.code) rt_at(&f, path, "", -1), data_fault(work->o, &f);
  return ok;
}

static bool tokenize_files(DataWork *work) {
  for (uint32_t i = 1; i < work->o->operands.n; i++)
    if (!tokenize_file(work, work->o->operands.at[i])) return false;
  progress_end(&work->progress);
  return true;
}

/* --eot: the number of a token, or its name. */
static Exit find_eot(DataWork *work) {
  const char *text = work->o->value[OPT_EOT];
  char *end = NULL;
  work->eot = -1;
  if (!text) return EXIT_FINE;
  long long id = strtoll(text, &end, 10);
  bool number = end > text && !*end;
  if (number && id >= 0 && id < rt_tokenizer_limit(work->t)) work->eot = (int32_t)id;
  if (!number) work->eot = rt_tokenizer_id(work->t, text);
  if (work->eot >= 0) return EXIT_FINE;
  return cli_usage("the tokenizer has no token `%s` for `--eot`", text);
}

static Exit open_chat(DataWork *work) {
  Fault f = {0};
  const char *name = work->o->value[OPT_CHAT];
  bool ok = !name || chat_open(name, work->o->c->arena, work->t, &work->chat, &f);
  return ok ? EXIT_FINE : data_fault(work->o, &f);
}

static Exit tokenize_sequence(DataWork *work) {
  Exit e = EXIT_FINE;
  for (uint32_t i = 1; i < work->o->operands.n && e == EXIT_FINE; i++)
    e = data_keeps(work->o, work->o->operands.at[i]);
  if (e == EXIT_FINE) e = shards_open(&work->s, work->o, rt_tokenizer_limit(work->t) - 1);
  return e == EXIT_FINE ? data_finish(work->o, &work->s, tokenize_files(work)) : e;
}

static Exit tokenize_rows(DataWork *work) {
  TokenRows rows;
  Exit e = rows_open(&rows, work->o, rt_tokenizer_limit(work->t), work->eot >= 0 ? work->eot : 0);
  work->rows = &rows;
  if (e == EXIT_FINE && !(tokenize_files(work) && rows_write(&rows))) e = EXIT_ENVIRONMENT;
  rows_close(&rows);
  return e;
}

static Exit words_fit(const Cli *o) {
  if (!o->value[OPT_TOKENIZER]) return cli_usage("`shardc data tokenize` needs --tokenizer FILE");
  if (o->value[OPT_FROM] && strcmp(o->value[OPT_FROM], "bytes"))
    return cli_usage("`shardc data tokenize` reads text: only `--from bytes`, not `%s`",
                     o->value[OPT_FROM]);
  if (!o->value[OPT_LENGTH] && (o->value[OPT_CHAT] || o->value[OPT_PACK]))
    return cli_usage("`--%s` is for rows: `--length N` says how long they are",
                     o->value[OPT_CHAT] ? "chat" : "pack");
  return EXIT_FINE;
}

Exit data_tokenize(Cli *o) {
  DataWork work = {.o = o};
  Exit e = words_fit(o);
  if (e == EXIT_FINE) e = data_tokenizer(o, &work.t);
  if (e == EXIT_FINE) e = find_eot(&work);
  if (e == EXIT_FINE) e = open_chat(&work);
  if (e == EXIT_FINE) e = o->value[OPT_LENGTH] ? tokenize_rows(&work) : tokenize_sequence(&work);
  if (work.t) rt_tokenizer_close(work.t);
  free(work.ids.at), free(work.labels.at);
  return e;
}
