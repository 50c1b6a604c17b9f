/* JSON values by the path of their members, and places: the protocol counts lines and UTF-16 units
   from 0, or bytes where the client offers them; documents are UTF-8. */
#include "lsp.h"
#include <stdlib.h>

/* ---- JSON ---- */

static bool member_of(Json *json, const char *name, size_t n) {
  char key[256];
  if (rt_json_peek(json) != '{' || !rt_json_object(json)) return false;
  while (rt_json_member(json, key, sizeof key)) {
    if (strlen(key) == n && !strncmp(key, name, n)) return rt_json_peek(json) >= 0;
    rt_json_skip(json);
  }
  return false;
}

bool json_at(Json json, const char *path, Json *value) {
  for (;; path++) {
    size_t n = strcspn(path, ".");
    if (!member_of(&json, path, n)) return false;
    path += n;
    if (!*path) return *value = json, true;
  }
}

char *json_text(Json value, size_t *n) {
  size_t most = (size_t)(value.end - value.p) + 1;
  if (rt_json_peek(&value) != '"') return NULL;
  char *text = heap_new(most, 1);
  if (!rt_json_string(&value, text, most)) return free(text), NULL;
  if (n) *n = strlen(text);
  return text;
}

int64_t json_whole(Json json, const char *path, int64_t otherwise) {
  Json value;
  int64_t whole;
  return json_at(json, path, &value) && rt_json_int(&value, &whole) ? whole : otherwise;
}

/* ---- places ---- */

/* The number of units of the character at `text`, and of its bytes. */
static size_t units(const char *text, size_t left, bool utf8, size_t *bytes) {
  unsigned char first = (unsigned char)*text;
  size_t want = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
  for (*bytes = 1; *bytes < want && *bytes < left; ++*bytes)
    if (((unsigned char)text[*bytes] & 0xC0) != 0x80) break;
  return utf8 ? *bytes : *bytes == 4 ? 2 : 1;
}

/* Beyond the end of a line means its end, beyond the last line the end of the text. */
size_t text_offset(const EditedFile *document, bool utf8, int64_t line, int64_t column) {
  const char *text = document->text, *end = text + document->length, *next;
  for (; line > 0 && (next = memchr(text, '\n', (size_t)(end - text))); line--) text = next + 1;
  if (line > 0) return document->length;
  size_t bytes;
  while (text < end && *text != '\n' && column > 0) {
    column -= (int64_t)units(text, (size_t)(end - text), utf8, &bytes);
    text += bytes;
  }
  return (size_t)(text - document->text);
}

static void put_position(FILE *out, const char *text, size_t length, size_t at, bool utf8) {
  size_t line = 0, column = 0, bytes;
  if (at > length) at = length;
  const char *start = text;
  for (const char *next; (next = memchr(start, '\n', at - (size_t)(start - text))); line++)
    start = next + 1;
  for (const char *p = start; p < text + at; p += bytes)
    column += units(p, (size_t)(text + at - p), utf8, &bytes);
  fprintf(out, "{\"line\":%zu,\"character\":%zu}", line, column);
}

void put_range(FILE *out, const Request *request, const Source *source, Span at) {
  bool utf8 = request->server->utf8;
  fputs("{\"start\":", out);
  put_position(out, source->text, source->length, at.offset, utf8);
  fputs(",\"end\":", out);
  put_position(out, source->text, source->length, (size_t)at.offset + at.length, utf8);
  fputc('}', out);
}

/* ---- names of documents ---- */

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* A document that is no file keeps its URI as its name. */
char *uri_path(const char *uri) {
  static const char scheme[] = "file://";
  bool file = !strncmp(uri, scheme, sizeof scheme - 1);
  const char *from = file ? strchr(uri + sizeof scheme - 1, '/') : uri;
  if (!from) from = uri;
  char *path = heap_new(strlen(from) + 1, 1), *to = path;
  for (; *from; from++) {
    int high = file && *from == '%' ? hex_digit(from[1]) : -1;
    int low = high >= 0 ? hex_digit(from[2]) : -1;
    if (low < 0 || !(high * 16 + low)) *to++ = *from;
    else *to++ = (char)(high * 16 + low), from += 2;
  }
  char *real = realpath(path, NULL); /* by which the checker knows a file */
  if (!file || !real) return free(real), path;
  free(path);
  return real;
}

void put_uri(FILE *out, const Server *server, const char *path) {
  char *real = realpath(path, NULL);
  const char *name = real ? real : path;
  for (uint32_t i = 0; i < server->documents.n; i++) {
    const EditedFile *document = &server->documents.at[i];
    if (!document->uri || strcmp(document->path, name)) continue;
    json_put_string(out, document->uri);
    free(real);
    return;
  }
  fputs("\"file://", out);
  for (; *name; name++) {
    unsigned char c = (unsigned char)*name;
    bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 strchr("/-_.~", c);
    fprintf(out, plain ? "%c" : "%%%02X", c);
  }
  fputc('"', out);
  free(real);
}
