/* The open documents: their texts, and the changes that the editor sends. A change that cannot be
   applied closes the document, since its text is no longer known. */
#include "lsp.h"
#include <stdlib.h>

EditedFile *document_find(Server *server, const char *uri) {
  for (uint32_t i = 0; uri && i < server->documents.n; i++) {
    EditedFile *document = &server->documents.at[i];
    if (document->uri && !strcmp(document->uri, uri)) return document;
  }
  return NULL;
}

static EditedFile *document_of(Server *server, Json params) {
  Json value;
  char *uri = json_at(params, "textDocument.uri", &value) ? json_text(value, NULL) : NULL;
  EditedFile *document = document_find(server, uri);
  free(uri);
  return document;
}

static void forget(EditedFile *document) {
  free(document->uri), free(document->path), free(document->text);
  *document = (EditedFile){0};
}

static EditedFile *unused_document(Server *server) {
  for (uint32_t i = 0; i < server->documents.n; i++)
    if (!server->documents.at[i].uri) return &server->documents.at[i];
  vec_push(server->cli->c->arena, server->documents, (EditedFile){0});
  return &vec_last(server->documents);
}

void document_open(Server *server, Json params) {
  Json value;
  EditedFile *document = document_of(server, params);
  if (document) forget(document);
  EditedFile opened = {.changed = true, .whole = true};
  if (json_at(params, "textDocument.text", &value)) opened.text = json_text(value, &opened.length);
  if (json_at(params, "textDocument.uri", &value)) opened.uri = json_text(value, NULL);
  if (!opened.text || !opened.uri) {
    forget(&opened);
    return;
  }
  opened.path = uri_path(opened.uri),
  opened.version = json_whole(params, "textDocument.version", -1);
  *unused_document(server) = opened;
}

/* One change: a part of the text, or without `range` all of it. */
static bool change_text(const Server *server, EditedFile *document, Json change) {
  Json value, range;
  size_t n, from = 0, to = document->length;
  char *with = json_at(change, "text", &value) ? json_text(value, &n) : NULL;
  if (!with) return false;
  if (json_at(change, "range", &range)) {
    int64_t line = json_whole(range, "start.line", 0),
            column = json_whole(range, "start.character", 0);
    from = text_offset(document, server->utf8, line, column);
    line = json_whole(range, "end.line", 0), column = json_whole(range, "end.character", 0);
    to = text_offset(document, server->utf8, line, column);
    if (to < from) to = from;
  }
  size_t rest = document->length - to;
  char *text = heap_new(from + n + rest + 1, 1);
  memcpy(text, document->text, from);
  memcpy(text + from, with, n);
  memcpy(text + from + n, document->text + to, rest);
  free(document->text), free(with);
  document->text = text, document->length = from + n + rest;
  return document->changed = true;
}

void document_change(Server *server, Json params) {
  Json changes;
  EditedFile *document = document_of(server, params);
  if (!document || !json_at(params, "contentChanges", &changes) || rt_json_peek(&changes) != '[')
    return;
  document->version = json_whole(params, "textDocument.version", -1);
  rt_json_array(&changes);
  while (rt_json_element(&changes)) {
    Json change = changes;
    if (!rt_json_skip(&changes) || !change_text(server, document, change)) {
      forget(document);
      return;
    }
  }
}

void document_close(Server *server, Json params) {
  EditedFile *document = document_of(server, params);
  if (document) forget(document);
}
