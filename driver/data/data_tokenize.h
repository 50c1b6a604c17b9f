/* Making tokens of text, blending files of tokens, and what all verbs of `shardc data` share. */
#ifndef SHARDC_CMD_TOKENIZE_H
#define SHARDC_CMD_TOKENIZE_H
#include "data_shards.h"
#include "runtime/data/data_file.h"
#include "runtime/text/tokenizer.h"

Exit data_tokenize(Cli *o);
Exit data_blend(Cli *o);
/* cmd_data.c */
Exit data_fault(Cli *o, const Fault *f);            /* the runtime's fault as a diagnostic */
Exit data_tokenizer(Cli *o, Tokenizer **tokenizer); /* of --tokenizer; NULL: none is named */
Exit data_keeps(const Cli *o, const char *input);   /* the output is another file */
/* Are its numbers tokens? Raises `largest` to the largest of them; E1402 */
Exit data_tokens_of(Cli *o, const DataFile *part, int64_t *largest);
Exit data_finish(Cli *o, Shards *shards, bool ok); /* closes them and says so; or removes them */
#endif
