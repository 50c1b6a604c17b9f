/* Chat templates: how a dialogue becomes the text that a model reads, and which of its tokens the
   model learns to write. */
#ifndef SHARDC_CMD_CHAT_H
#define SHARDC_CMD_CHAT_H
#include "records.h"
#include "runtime/text/tokenizer.h"

enum { CHAT_IGNORED = -100 }; /* a label that does not count */

typedef struct ChatMark { /* a line of a template */
  const char *word;    /* a role, or one of begin, system_in_user, default_system, trim, tokens */
  const char *text[3]; /* of a role: before, after, what follows and is not learned */
} ChatMark;

typedef VEC(ChatMark) ChatTemplate;

/* A template of chat_templates.def, or a file. Its `tokens` must be tokens of the tokenizer. */
bool chat_open(const char *name, Arena *arena, const Tokenizer *tokenizer, ChatTemplate *out,
               Fault *f);
/* The tokens of a line, and as many labels: the token itself, or CHAT_IGNORED. chat: NULL without a
   template. special: names of special tokens in texts are read as these tokens. */
bool chat_tokens(const ChatTemplate *chat, Tokenizer *tokenizer, const Records *records,
                 bool special, Ids *ids, Ids *labels, Fault *f);
#endif
