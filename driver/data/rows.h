/* Rows of tokens and labels for `data columns(..)`, each as long as the sequence of the model. */
#ifndef SHARDC_CMD_ROWS_H
#define SHARDC_CMD_ROWS_H
#include "driver/cmd.h"
#include "runtime/text/tokenizer.h"

typedef struct RowDocument { /* in `ids`: inputs at .. at + count - 1, and a label for each */
  int64_t at, count, row;
} RowDocument;

typedef struct TokenRows {
  Cli *o;
  const char *output; /* names begin with it */
  int64_t length, limit;
  bool packs; /* several documents in a row, with their numbers and positions */
  int32_t pad;
  Ids ids, labels; /* of all documents */
  VEC(RowDocument) documents;
  int64_t cut, empty; /* documents cut to the length; without a label that counts */
} TokenRows;

Exit rows_open(TokenRows *rows, Cli *o, int64_t limit, int32_t pad);
void rows_add(TokenRows *rows, const Ids *ids, const Ids *labels); /* of a document, one for one */
bool rows_write(TokenRows *rows);                                  /* false: reported */
void rows_close(TokenRows *rows);
#endif
