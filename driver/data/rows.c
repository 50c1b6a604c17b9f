/* Documents as rows. The label of a token is the one after it; a document of length + 1 tokens or
   fewer is whole, a longer one is cut. Without packing a document has a row of its own, and the
   rest of the row is padding. Packed, by best fit: the longest documents first, each into the row
   with the least room that takes it, of equal rows the first. Padding is a document of its own.
   All documents are in memory. Must not: know templates. */
#include "rows.h"
#include "chat.h"
#include "ir/support/output.h"
#include "ir/support/refused.h"
#include <stdlib.h>
#include <unistd.h>

Exit rows_open(TokenRows *rows, Cli *o, int64_t limit, int32_t pad) {
  *rows = (TokenRows){.o = o, .output = o->value[OPT_OUTPUT], .limit = limit, .pad = pad};
  if (!rows->output) return cli_usage("where to? --output NAME, of NAME.tokens.npy ..");
  if (o->value[OPT_TO] || o->value[OPT_SHARD])
    return cli_usage("rows of `--length` are npy files: leave out `--to` and `--shard`");
  rows->packs = o->value[OPT_PACK] != NULL;
  return cli_whole(o, OPT_LENGTH, 1, INT32_MAX, &rows->length);
}

void rows_add(TokenRows *rows, const Ids *ids, const Ids *labels) {
  bool learns = false;
  RowDocument document = {rows->ids.n, ids->n - 1, 0};
  if (document.count > rows->length) document.count = rows->length, rows->cut++;
  for (int64_t i = 0; i < document.count; i++) learns |= labels->at[i + 1] != CHAT_IGNORED;
  if (!learns) {
    rows->empty++;
    return;
  }
  for (int64_t i = 0; i < document.count; i++)
    rt_ids_add(&rows->ids, ids->at[i]), rt_ids_add(&rows->labels, labels->at[i + 1]);
  vec_push(rows->o->c->arena, rows->documents, document);
}

/* ---- which row ---- */

static int longest_first(const void *a, const void *b) {
  const RowDocument *x = a, *y = b;
  return x->count != y->count ? (x->count < y->count) - (x->count > y->count)
                              : (x->at > y->at) - (x->at < y->at);
}

typedef VEC(int64_t) RowList; /* rows with equal room, in a heap: the first is on top */

static void heap_push(Arena *arena, RowList *list, int64_t row) {
  vec_push(arena, *list, row);
  for (uint32_t i = list->n - 1; i && list->at[(i - 1) / 2] > row; i = (i - 1) / 2)
    list->at[i] = list->at[(i - 1) / 2], list->at[(i - 1) / 2] = row;
}

static int64_t heap_pop(RowList *list) {
  int64_t top = list->at[0], last = list->at[--list->n];
  uint32_t i = 0;
  for (uint32_t k; (k = 2 * i + 1) < list->n; i = k) {
    if (k + 1 < list->n && list->at[k + 1] < list->at[k]) k++;
    if (list->at[k] >= last) break;
    list->at[i] = list->at[k];
  }
  list->at[i] = last;
  return top;
}

/* Gives each document its row, and sorts them by rows; returns the number of rows. */
static int64_t pack(TokenRows *rows) {
  int64_t n = 0;
  Arena *arena = rows->o->c->arena;
  RowList *with_room = ARENA_ARRAY(arena, RowList, rows->length + 1);
  qsort(rows->documents.at, rows->documents.n, sizeof(RowDocument), longest_first);
  for (uint32_t i = 0; i < rows->documents.n; i++) {
    RowDocument *document = &rows->documents.at[i];
    int64_t room = document->count;
    while (room <= rows->length && !with_room[room].n) room++;
    document->row = room > rows->length ? n++ : heap_pop(&with_room[room]);
    if (room > rows->length) room = rows->length;
    heap_push(arena, &with_room[room - document->count], document->row);
  }
  return n;
}

static int by_row(const void *a, const void *b) {
  const RowDocument *x = a, *y = b;
  return x->row != y->row ? (x->row > y->row) - (x->row < y->row) : longest_first(a, b);
}

static int64_t deal(TokenRows *rows) {
  int64_t n = rows->documents.n;
  if (rows->packs) n = pack(rows);
  else
    for (uint32_t i = 0; i < rows->documents.n; i++) rows->documents.at[i].row = i;
  qsort(rows->documents.at, rows->documents.n, sizeof(RowDocument), by_row);
  return n;
}

/* ---- files ---- */

typedef enum Column { TOKENS, TARGETS, DOC, POS, COLUMNS } Column;

static int32_t number_at(const TokenRows *rows, Column column, const RowDocument *document,
                         int64_t i, int32_t doc) { /* i: from the document's begin, or of padding */
  switch (column) {
  case TOKENS: return document ? rows->ids.at[document->at + i] : rows->pad;
  case TARGETS: return document ? rows->labels.at[document->at + i] : CHAT_IGNORED;
  case DOC: return doc;
  default: return (int32_t)i;
  }
}

static bool put_number(FILE *file, int32_t number, int width) {
  uint8_t bytes[4];
  for (int k = 0; k < 4; k++) bytes[k] = (uint8_t)((uint32_t)number >> 8 * k);
  return fwrite(bytes, 1, (size_t)width, file) == (size_t)width;
}

static bool write_rows(const TokenRows *rows, Column column, FILE *file, int width) {
  uint32_t next = 0;
  bool ok = true;
  while (ok && next < rows->documents.n) {
    int64_t row = rows->documents.at[next].row, at = 0;
    int32_t doc = 0;
    for (; next < rows->documents.n && rows->documents.at[next].row == row; next++, doc++) {
      const RowDocument *document = &rows->documents.at[next];
      for (int64_t i = 0; i < document->count; i++, at++)
        ok &= put_number(file, number_at(rows, column, document, i, doc), width);
    }
    for (int64_t i = 0; at < rows->length; at++, i++)
      ok &= put_number(file, number_at(rows, column, NULL, i, doc), width);
  }
  return ok;
}

static bool write_column(const TokenRows *rows, Column column, const char *name, int64_t n) {
  Output out;
  int width = column == TOKENS && rows->limit <= 1 << 16 ? 2 : 4;
  char head[128];
  FILE *file = output_open(&out, rows->o->c->arena, name, 0666) ? fdopen(dup(out.fd), "wb") : NULL;
  int used = snprintf(head, sizeof head,
                      "\x93NUMPY\1%c\x76%c{'descr': '<%c%d', 'fortran_order': "
                      "False, 'shape': (%lld, %lld), }",
                      0, 0, width == 2 ? 'u' : 'i', width, (long long)n, (long long)rows->length);
  memset(head + used, ' ', (size_t)(127 - used)), head[127] = '\n';
  bool ok = file && fwrite(head, 1, 128, file) == 128 && write_rows(rows, column, file, width);
  if (file && fclose(file)) ok = false;
  ok = output_close(&out, ok) && ok;
  if (!ok) diag_refused(rows->o->c->diag, "E0002", CANNOT_WRITE, name);
  return ok;
}

static void say_rows(const TokenRows *rows, int64_t n) {
  if (rows->o->value[OPT_QUIET]) return;
  double filled = 100.0 * (double)rows->ids.n / ((double)n * (double)rows->length);
  output_say(stdout, "%lld rows of %lld tokens, %u documents, %.1f%% filled", (long long)n,
             (long long)rows->length, rows->documents.n, filled);
  if (rows->cut) output_say(stdout, "; %lld documents cut", (long long)rows->cut);
  if (rows->empty)
    output_say(stdout, "; %lld left out, without a token to learn", (long long)rows->empty);
  output_say(stdout, "\n  data columns(tokens = \"%s.tokens.npy\", targets = \"%s.targets.npy\"",
             rows->output, rows->output);
  if (rows->packs)
    output_say(stdout, ", doc = \"%s.doc.npy\", pos = \"%s.pos.npy\"", rows->output, rows->output);
  output_say(stdout, ")\n");
}

bool rows_write(TokenRows *rows) {
  static const char *const names[] = {"tokens", "targets", "doc", "pos"};
  _Static_assert(sizeof names / sizeof *names == COLUMNS, "a name per Column");
  int64_t n = deal(rows);
  if (!n) {
    diag_at(rows->o->c->diag, "E1402", (Span){0}, "no document has a token to learn");
    return false;
  }
  for (int i = 0; i < (rows->packs ? COLUMNS : DOC); i++)
    if (!write_column(rows, (Column)i,
                      arena_printf(rows->o->c->arena, "%s.%s.npy", rows->output, names[i]), n))
      return false;
  say_rows(rows, n);
  return true;
}

void rows_close(TokenRows *rows) { free(rows->ids.at), free(rows->labels.at); }
