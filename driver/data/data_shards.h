/* Writing files of tokens, for `shardc data`: one file, or shards with a fixed number of tokens
   each. */
#ifndef SHARDC_CMD_SHARDS_H
#define SHARDC_CMD_SHARDS_H
#include "driver/cmd.h"
#include "ir/support/output.h"

typedef enum TokenFormat { TO_BYTES, TO_U16, TO_U32, TO_LLMC, TO_NPY, TO_MEGATRON } TokenFormat;

typedef struct Shards {
  Cli *o;
  const char *output, *name; /* as asked for; of the file that is written */
  Output out;
  TokenFormat format;
  int width;        /* bytes of a token */
  int64_t most;     /* tokens of a shard; 0: all in one file */
  int64_t n, total; /* tokens of this file, of all */
  int files;
  FILE *f;
  VEC(int64_t) ends; /* of documents in this file, in tokens */
} Shards;

/* By --to, --output and --shard; largest: of the ids that will come. Says what is wrong. */
Exit shards_open(Shards *shards, Cli *o, int64_t largest);
bool shards_add(Shards *shards, const int32_t *ids, int64_t n);
void shards_end_document(Shards *shards);
bool shards_close(Shards *shards);  /* the last file gets its name */
void shards_remove(Shards *shards); /* after a failure: what is not complete goes */
#endif
