/* `shardc lsp`: a server of the Language Server Protocol (3.17) over standard input and output.

   The server holds the open documents and nothing else. Each answer is made by a child process: it
   reads the documents as the editor has them (Ctx.open), checks, writes one answer and ends. So a
   fault or a loop of the checker costs one answer, nothing leaks, and nothing goes stale. A check
   takes some 10 ms. Documents are checked as soon as no further message waits, so fast typing is
   checked once; opened and saved ones then with their plans too (the passes up to `memory`), in a
   child that the next change ends. */
#ifndef SHARDC_LSP_H
#define SHARDC_LSP_H
#include "driver/cmd.h"
#include "runtime/base/json.h"
#include "ir/support/diag_report.h"
#include <sys/types.h>

typedef struct EditedFile {
  char *uri, *path, *text; /* on the heap; uri NULL: free for another */
  size_t length;
  int64_t version; /* of the client; -1: none */
  bool changed;    /* since the last check */
  bool whole;      /* its plans are to be checked as well */
} EditedFile;

typedef struct Server {
  Cli *cli;
  VEC(EditedFile) documents;
  char *input; /* bytes that were received and not yet read: a part of a message, or several */
  size_t n, cap;
  bool ended;            /* standard input */
  bool utf8;             /* columns count bytes, not UTF-16 units */
  bool begun, shut_down; /* by `initialize`, by `shutdown` */
  pid_t child;           /* that checks plans; 0: none */
  int pipe;              /* from it */
} Server;

typedef struct Request {
  const Server *server;
  const EditedFile *document; /* NULL: none, or it is not open */
  Json params;
  size_t at; /* of the position in the document */
  Cli cli;   /* of the child */
  Ctx *c;    /* the same */
  FILE *out; /* the value of `result`, or whole messages where there is none */
} Request;
typedef void LspAnswer(Request *request);

/* lsp_message.c: JSON and positions */
bool json_at(Json json, const char *path, Json *value); /* "textDocument.uri"; false: none */
char *json_text(Json value, size_t *n);                 /* on the heap; NULL: no string */
int64_t json_whole(Json json, const char *path, int64_t otherwise);
size_t text_offset(const EditedFile *document, bool utf8, int64_t line, int64_t column);
void put_range(FILE *out, const Request *request, const Source *source, Span at);
void put_uri(FILE *out, const Server *server, const char *path); /* as a JSON string */
char *uri_path(const char *uri);                                 /* on the heap */

/* lsp_documents.c */
EditedFile *document_find(Server *server, const char *uri); /* NULL: not open */
void document_open(Server *server, Json params);
void document_change(Server *server, Json params);
void document_close(Server *server, Json params);

/* lsp_check.c */
LspAnswer publish_check, publish_whole; /* textDocument/publishDiagnostics */
LspAnswer answer_actions;               /* the edits of messages */
LspAnswer answer_format, answer_symbols;

/* lsp_names.c, lsp_complete.c */
LspAnswer answer_hover, answer_definition, answer_complete;
#endif
