/* Lines of JSONL: one object each, of a text or a dialogue. */
#ifndef SHARDC_CMD_RECORDS_H
#define SHARDC_CMD_RECORDS_H
#include "ir/support/arena.h"
#include "ir/support/vec.h"
#include "runtime/base/base.h"

typedef struct ChatTurn {
  const char *role; /* NULL: plain text, without the marks of a chat template */
  const char *text;
  bool learned; /* it is text to predict; else only read */
} ChatTurn;

typedef VEC(ChatTurn) ChatTurns;

typedef struct Records {
  Arena *arena;
  Bytes rest;   /* lines that are not read yet */
  int64_t line; /* number of the last one that was read, from 1 */
  char *text;   /* the strings of this line */
  size_t room;
  ChatTurns turns; /* of this line */
} Records;

bool records_are_in(Bytes file); /* its first line begins with an object */
/* The next line that is not empty. False: there is none, or f has a fault. */
bool records_next(Records *records, Fault *f);
void records_close(Records *records);
#endif
